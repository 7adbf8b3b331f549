"""MENU: the median of ridge regressions on groups of repeated plays, for heavy tails. Not private.

An arm is played until k = O(log T) of its rewards have come, one for each of k groups. Every group has a ridge
regression of its own, all with the same matrix; the one that most of the others are near to is the estimate. For a
fixed set of arms and noise with a finite moment of order 1 + ε, independent from play to play. One round costs
O(Kd²), an epoch O(k²d + kd²) more. Kept are V and Σ y_{i,j}x_i of every group: memory is O(d² + kd).

Source: Shao, Yu, King & Lyu, "Almost Optimal Algorithms for Linear Stochastic Bandits with Heavy-Tailed Payoffs"
(NeurIPS 2018, arXiv:1810.10895), Algorithm 1. The paper bounds the error of one group by
(9dc)^{1/(1+ε)}n^{(1−ε)/(2(1+ε))} + √λ S, as if the arms, and with them V_n^{−1/2}Xᵀ, did not depend on the rewards,
and the groups on each other. Here both are allowed for. Let w_i = ‖x_i‖_{V_i⁻¹}, P = d ln(1 + n/(dλ)) ≥ Σw_i², Q =
n^{(1−ε)/2}P^{(1+ε)/2} ≥ Σw_i^{1+ε}, and c = ν^{1+ε}.

* With η cut to zero where w_i|η| > τ, the noise of a group is Σ x_i·η = M + A: A, the bias, has ‖A‖_{V⁻¹} ≤ cτ^{−ε}Q,
  and M is a martingale. Let Y_j be ‖M‖²_{V⁻¹} plus y = Υτ² for every cut in group j. Given the past, Y_j grows on
  average by at most c(1 + Υ)τ^{1−ε}w_i^{1+ε}, in all by C = c(1 + Υ)τ^{1−ε}Q, and the groups grow independently of
  each other.
* So E Π_j(1 + aY_j) ≤ e^{kaC}, and half of the Y_j reach y with probability at most exp(−k(½ln(1 + ay) − aC)). For y
  = 3.1·C and a = (½ − 1/3.1)/C that is at most e^{−k/24} = δ/(eT), which is small enough for all n together.
* Otherwise more than half of the groups are within γ = √y + cτ^{−ε}Q + √λ S of θ, so the chosen one is within 3γ. Υ =
  (1 − ε)/(1 + ε) gives γ = (1+Υ)^{1/(1+ε)}Υ^{−Υ/2}(1 + √Υ/(3.1(1+Υ)))·(3.1·cQ)^{1/(1+ε)} + √λ S, where 0⁰ is 1.

Where arms change from round to round, an epoch ends early when its arm is not offered, and groups without a reward
are given the median of the others'; the guarantee is then void. Rewards of an earlier epoch's arm that come late are
not used.
"""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np

from accounting.arrays import Array
from accounting.checks import fraction, integer, positive
from dpbandits.policy.parameters import Parameters
from dpbandits.reference.confidence import TimedOptions
from dpbandits.reference.heavy_tails.repeated import Epoch, InEpochs
from dpkit.models.ellipsoid import RankOneInverse

__all__ = ["MENU"]

_LAMBDA = 3.1  # ½ln(Λ/2) − ½ + 1/Λ ≥ 1/24


class MENU(InEpochs):
    """A linear bandit for heavy-tailed rewards: the median of several ridge regressions, with optimism.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    horizon : int
        T, which k needs.
    theta_bound : float
        S ≥ ‖θ‖.
    tail : float
        ε in (0, 1]: the noise η has E|η|^{1+ε} ≤ ν^{1+ε}.
    noise_scale : float
        ν; c of the paper is ν^{1+ε}.
    parameters : {"practical", "theory"}
        ``"theory"``: k = 24 ln(eT/δ) groups and the radius 3γ of the module's derivation, under which the ellipsoid
        holds θ in all rounds with probability 1 − ``failure_probability``. ``"practical"``: k = ln(eT/δ), so that there
        are 24 times as many epochs, and that radius times ``radius_scale``.
    radius_scale : float
        Factor on the radius, of the practical parameters.
    failure_probability : float
        δ.
    ridge : float
        λ > 0.
    **options
        ``reward_range``, ``base_rate``, ``on_violation``, ``expire_after``, ``rng``: see
        :class:`dpbandits.Policy`.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range.

    Examples
    --------
    >>> import numpy as np
    >>> policy = MENU(dim=2, horizon=1000)
    >>> for _ in range(600):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, (0.1, 0.9)[decision.index])
    >>> policy.select([[1.0, 0.0], [0.0, 1.0]]).index
    1
    """

    learned = ("B", "theta", "epochs", "epoch", "V")

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        theta_bound: float = 1.0,
        tail: float = 1.0,
        noise_scale: float = 1.0,
        parameters: Parameters = "practical",
        radius_scale: float = 0.03,
        ridge: float = 1.0,
        **options: Unpack[TimedOptions],
    ) -> None:
        super().__init__(dim, (-math.inf, math.inf), theta_bound, parameters, radius_scale, horizon=horizon, **options)
        T = integer("horizon", horizon, at_least=1)
        eps = self.tail = fraction("tail", tail, include_one=True)
        self.noise_scale = positive("noise_scale", noise_scale)
        self.ridge = positive("ridge", ridge)
        doubt = math.log(math.e * T / self.failure_probability)
        self.groups = math.ceil((24.0 if parameters == "theory" else 1.0) * doubt)  # k
        self._power = (1.0 - eps) / (2.0 * (1.0 + eps))
        upsilon = (1.0 - eps) / (1.0 + eps)
        cut = (1.0 + upsilon) ** (1.0 / (1.0 + eps)) * upsilon ** (-0.5 * upsilon)
        cut *= 1.0 + math.sqrt(upsilon) / (_LAMBDA * (1.0 + upsilon))
        self._noise = cut * _LAMBDA ** (1.0 / (1.0 + eps)) * self.noise_scale
        self.V = RankOneInverse(dim, self.ridge)
        self.B = np.zeros((self.groups, dim))  # Σ_i y_{i,j} x_i
        self.theta = np.zeros(dim)
        self.epochs = 0  # n
        self.epoch = Epoch(dim, size=self.groups)

    def width(self) -> float:
        """β_n, the radius of the ellipsoid {θ : ‖θ − θ_n‖_{V_n} ≤ β_n}."""
        # β_n = 3γ, and (cQ)^{1/(1+ε)} = ν n^{(1−ε)/(2(1+ε))} √P
        n, d = self.epochs, self.dim
        noise = self._noise * n**self._power * math.sqrt(d * math.log1p(n / (d * self.ridge)))
        radius = 3.0 * (noise + math.sqrt(self.ridge) * self.theta_bound)
        return self.scaled(radius)

    def observe(self, arm: Array, means: Array) -> None:
        """Every group has one more reward, and one of them is chosen."""
        y = np.full(self.groups, float(np.median(means)))
        y[: len(means)] = means
        y -= self.base_rate
        self.epochs += 1
        self.V.add(arm, 1.0)
        self.B += y[:, None] * arm
        # θ_{n,j} = V_n⁻¹ Σ_i y_{i,j} x_i, and ‖θ_{n,j} − θ_{n,s}‖²_{V_n} from B − (its mean), whose products are small
        spread = self.B - self.B.mean(axis=0)
        solved = spread @ self.V.inverse
        squares = np.einsum("jd,jd->j", solved, spread)
        # the group with the smallest median distance to all; a few rows of the table of distances at a time
        medians = [
            np.median(squares[rows, None] + squares - 2.0 * solved[rows] @ spread.T, axis=1)
            for rows in (slice(start, start + 256) for start in range(0, self.groups, 256))
        ]
        chosen = int(np.concatenate(medians).argmin())
        self.theta = self.V.inverse.dot(self.B[chosen])

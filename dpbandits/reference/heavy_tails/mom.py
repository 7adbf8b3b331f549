"""MoM: ridge regression on medians of means of repeated plays, for heavy tails. Not private.

An arm is played until r of its rewards have come; the median of the means of k blocks of them is one observation. For
a fixed set of arms and noise with a finite moment of order 1 + ε. One round costs O(Kd²), an epoch O(d² + log T)
more; kept are the means of the running epoch's blocks, so that memory is O(d² + log T).

Source: Muñoz Medina & Yang, "No-Regret Algorithms for Heavy-Tailed Linear Bandits" (ICML 2016), the algorithm by
medians of means, with r of the order T^{(1+ε)/(1+3ε)}, which gives their regret Õ(T^{(1+2ε)/(1+3ε)}). The constants
are derived here:

* The mean of m rewards has E|error|^{1+ε} ≤ 2^{1−ε}ν^{1+ε}m^{−ε} (by |a+b|^p ≤ |a|^p + p|a|^{p−1}sgn(a)b +
  2^{2−p}|b|^p for p = 1 + ε). So it is off by more than ϱ = 2^{(4−ε)/(1+ε)}ν m^{−ε/(1+ε)} with probability at most ⅛,
  and the median of k such means with probability at most exp(−k·kl(½‖⅛)), which is at most δ/T for k =
  ln(T/δ)/kl(½‖⅛).
* Observations that are all off by at most ϱ give ‖Σ x_i e_i‖_{V⁻¹} ≤ √(Σ e_i²) ≤ ϱ√n, as XV⁻¹Xᵀ ≤ I.

Where arms change from round to round, an epoch ends early when its arm is not offered, with the rewards it has; the
guarantee is then void. Rewards of an earlier epoch's arm that come late are not used.
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

__all__ = ["MoM"]

_RATE = 0.5 * math.log(4.0) + 0.5 * math.log(4.0 / 7.0)  # kl(½‖⅛)


class MoM(InEpochs):
    """A linear bandit for heavy-tailed rewards: ridge regression on medians of means, with optimism.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    horizon : int
        T, which r and k need.
    theta_bound : float
        S ≥ ‖θ‖.
    tail : float
        ε in (0, 1]: the noise η has E|η|^{1+ε} ≤ ν^{1+ε}.
    noise_scale : float
        ν.
    parameters : {"practical", "theory"}
        ``"theory"``: the radius of the module's derivation, under which the ellipsoid holds θ in all rounds with
        probability 1 − ``failure_probability``. ``"practical"``: that radius times ``radius_scale``.
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
    >>> policy = MoM(dim=2, horizon=1000)
    >>> for _ in range(600):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, (0.1, 0.9)[decision.index])
    >>> policy.select([[1.0, 0.0], [0.0, 1.0]]).index
    1
    """

    learned = ("b", "theta", "epochs", "epoch", "V")

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
        nu = self.noise_scale = positive("noise_scale", noise_scale)
        self.ridge = positive("ridge", ridge)
        self.blocks = math.ceil(math.log(T / self.failure_probability) / _RATE)  # k
        block = math.ceil(T ** ((1.0 + eps) / (1.0 + 3.0 * eps)) / self.blocks)  # m
        self.plays = block * self.blocks  # r
        self.rho = 2.0 ** ((4.0 - eps) / (1.0 + eps)) * nu * block ** (-eps / (1.0 + eps))
        self.V = RankOneInverse(dim, self.ridge)
        self.b = np.zeros(dim)
        self.theta = np.zeros(dim)
        self.epochs = 0  # n
        self.epoch = Epoch(dim, size=self.blocks, block=block)

    def width(self) -> float:
        """β_n, the radius of the ellipsoid {θ : ‖θ − θ_n‖_{V_n} ≤ β_n}."""
        # β_n = ϱ√n + √λ S
        radius = self.rho * math.sqrt(self.epochs) + math.sqrt(self.ridge) * self.theta_bound
        return self.scaled(radius)

    def observe(self, arm: Array, means: Array) -> None:
        """The median of means is one observation of the arm."""
        self.epochs += 1
        self.V.add(arm, 1.0)
        self.b += (float(np.median(means)) - self.base_rate) * arm
        self.theta = self.V.inverse.dot(self.b)

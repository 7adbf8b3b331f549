"""CRMM: a generalized linear bandit for heavy-tailed symmetric noise, by medians of repeated plays. Not private.

An arm is played until m = O(log T) of its rewards have come; their median, which has light tails, makes one online
Newton step. For noise that is symmetric around 0 and has a finite moment of order 1 + ε, and for a fixed set of arms.
One round costs O(Kd²), an epoch O(d²) more (O(d³) when the step leaves the ball), memory O(d² + log T).

Source: Xue, Wang, Wan, Yi & Zhang, "Efficient Algorithms for Generalized Linear Bandits with Heavy-tailed Rewards"
(NeurIPS 2023, arXiv:2310.18701), the algorithm by medians. Its m and its radius are derived here:

* P(|η| > b) ≤ (ν/b)^{1+ε} = ¼ at b = 4^{1/(1+ε)}ν, hence on one side at most ⅛, and the median of m such values
  leaves [−b, b] with probability at most 2exp(−m·kl(½‖⅛)). With m = ln(4T/δ)/kl(½‖⅛) this happens in one of at most T
  epochs with probability at most δ/2. Kept in [−b, b], the median is symmetric, hence b-sub-Gaussian.
* With κ = inf μ̇, R = b, Δ_t = θ_t − θ* and z_t = x_tᵀΔ_t, one step gives
  ‖Δ_{t+1}‖²_{V_{t+1}} ≤ ‖Δ_t‖²_{V_t} + 2ξ_t z_t − (3κ/2)z_t² + g_t²‖x_t‖²_{V_{t+1}⁻¹}
  for the noise ξ_t and the slope g_t of the loss. The supermartingale with rate 3κ/(2R²) cancels the second and the
  third term up to (4R²/(3κ)) ln(2/δ); the rest is known.

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
from dpkit.models.ellipsoid import RankOneInverse, project_on_ball
from dpkit.models.links import Link, get_link

__all__ = ["CRMM"]

_RATE = 0.5 * math.log(4.0) + 0.5 * math.log(4.0 / 7.0)  # kl(½‖⅛)


class CRMM(InEpochs):
    """A linear bandit for heavy-tailed rewards: online Newton steps on medians of repeated rewards, with optimism.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    link : str or Link
        μ in E[r | x] = μ(xᵀθ).
    horizon : int
        T, which m needs.
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
    >>> policy = CRMM(dim=2, horizon=1000)
    >>> for _ in range(600):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, (0.1, 0.9)[decision.index])
    >>> policy.select([[1.0, 0.0], [0.0, 1.0]]).index
    1
    """

    learned = ("theta", "stability", "epoch", "V")

    def __init__(
        self,
        dim: int,
        link: str | Link = "linear",
        *,
        horizon: int,
        theta_bound: float = 1.0,
        tail: float = 1.0,
        noise_scale: float = 1.0,
        parameters: Parameters = "practical",
        radius_scale: float = 0.1,
        **options: Unpack[TimedOptions],
    ) -> None:
        self.link = get_link(link)
        super().__init__(dim, self.link.reward_range, theta_bound, parameters, radius_scale, horizon=horizon, **options)
        S = self.theta_bound
        T = integer("horizon", horizon, at_least=1)
        eps = self.tail = fraction("tail", tail, include_one=True)
        nu = self.noise_scale = positive("noise_scale", noise_scale)

        self._kappa = self.link.derivative_range(S)[0]  # the smallest slope
        self.ridge = 1.0
        self._bound = 4.0 ** (1.0 / (1.0 + eps)) * nu  # b
        self.plays = math.ceil(math.log(4.0 * T / self.failure_probability) / _RATE)  # m
        self.V = RankOneInverse(dim, self.ridge)
        self.theta = np.zeros(dim)
        self.stability = 0.0  # Σ g_s² ‖x_s‖²_{V_{s+1}⁻¹}
        self.epoch = Epoch(dim, size=self.plays)

    def width(self) -> float:
        """The radius of the ellipsoid {θ : ‖θ − θ_t‖_{V_t} ≤ β_t}."""
        # β_t² = λS² + (4b²/(3κ)) ln(2/δ) + Σ g_s² ‖x_s‖²_{V_{s+1}⁻¹}
        noise = 4.0 * self._bound**2 / (3.0 * self._kappa) * math.log(2.0 / self.failure_probability)
        radius = math.sqrt(self.ridge * self.theta_bound**2 + noise + self.stability)
        return self.scaled(radius)

    def observe(self, arm: Array, means: Array) -> None:
        """One online Newton step on the median."""
        slope = float(self.link.mean(float(arm.dot(self.theta)))) - float(np.median(means))
        # V_{t+1} = V_t + (κ/2) x xᵀ, θ_{t+1} = Π_{‖θ‖≤S}^{V_{t+1}}(θ_t − V_{t+1}⁻¹∇ℓ_t(θ_t)), ∇ℓ_t(θ_t) = slope·x
        self.V.add(arm, 0.5 * self._kappa)
        solved = self.V.inverse.dot(arm)
        self.stability += slope**2 * float(arm.dot(solved))
        self.theta = project_on_ball(self.theta - slope * solved, self.V.matrix, self.theta_bound)

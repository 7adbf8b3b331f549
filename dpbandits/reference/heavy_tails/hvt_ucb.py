"""Hvt-UCB: a linear bandit for heavy-tailed noise with one Huber-clipped mirror descent step per round. Not private.

Rewards need a finite central moment of order 1 + ε only. One round costs O(Kd²) to select and O(d²) to update (O(d³)
when the step leaves the ball), memory O(d²), whatever the number of rounds played.

Source: Wang, Zhang, Zhao & Zhou, "Heavy-Tailed Linear Bandits: Huber Regression with One-Pass Update" (ICML 2025,
arXiv:2503.00419), Algorithm 1 with Lemma 1 (the radius) and Theorem 1 (λ, σ_min). An arm of zeros has τ_t = ∞.

Skewed noise. A clipped regression finds where the bulk of the rewards lies. Under skewed noise that is xᵀθ − b, with
about the same b for every arm, and the slopes alone cannot express it. Give arms a constant feature, (x, 1)/√2 in place
of x, and ``theta_bound`` room for √2·b: then the constant takes b up, and the order of the arms is unharmed.
"""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np

from accounting.checks import fraction, integer
from dpbandits.policy.parameters import PublishedParameters
from dpbandits.policy.protocol import Pending
from dpbandits.reference.confidence import ReferencePolicy, TimedOptions
from dpbandits.reference.heavy_tails.noise_scales import NoiseScale, noise_scale_at, noise_scales
from dpkit.models.ellipsoid import RankOneInverse, project_on_ball

__all__ = ["HvtUCB"]


class HvtUCB(ReferencePolicy):
    """A linear bandit for heavy-tailed rewards that reads every reward once: one-pass Huber regression with optimism.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    horizon : int
        T, which the constants need.
    theta_bound : float
        S ≥ ‖θ‖.
    tail : float
        ε in (0, 1]: the noise η has E|η|^{1+ε} ≤ ν^{1+ε}.
    noise_scale : float, sequence of float, or callable
        ν; or ν_t of each of the T rounds, or a function of t = 1, …, T that gives it: t is the round of the decision,
        however late its reward comes.
    parameters : {"practical", "theory", "published"}
        ``"theory"``: α = 4, λ = d and the radius of Lemma 1 with c = 107, under which the ellipsoid holds θ in all
        rounds with probability 1 − ``failure_probability``. Its c makes the radius useless below T ~ 10⁶.
        ``"published"``: the same with Theorem 1's δ = 1/(8T), in place of ``failure_probability``: all that the paper
        says of its experiments, but for c_0 and c_1, which Algorithm 1 asks for and nothing defines. Its curves cannot
        have been drawn with c = 107 (docs/reproducing.md).
        ``"practical"``: α = 1 (recursive least squares, but for the clipping), λ = 1, c = ``radius_scale`` and √λ S in
        place of √(λ(2 + 4S²)). ε and ν are then working values: ε = 1 clips earliest, which suits noise that is
        about symmetric, whatever its moments, with ν about its interquartile range.
    radius_scale : float
        c of the practical parameters.
    failure_probability : float
        4δ of Lemma 1.
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
    >>> policy = HvtUCB(dim=2, horizon=1000)
    >>> for _ in range(200):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, (0.1, 0.9)[decision.index])
    >>> policy.select([[1.0, 0.0], [0.0, 1.0]]).index
    1
    """

    learned = ("theta", "rounds", "V")
    has_published = True

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        theta_bound: float = 1.0,
        tail: float = 1.0,
        noise_scale: NoiseScale = 1.0,
        parameters: PublishedParameters = "practical",
        radius_scale: float = 0.02,
        **options: Unpack[TimedOptions],
    ) -> None:
        super().__init__(dim, (-math.inf, math.inf), theta_bound, parameters, radius_scale, horizon=horizon, **options)
        S = self.theta_bound
        T = integer("horizon", horizon, at_least=1)
        eps = self.tail = fraction("tail", tail, include_one=True)
        self.noise_scale = noise_scales(noise_scale, T)

        theory = parameters != "practical"
        if parameters == "published":
            self.failure_probability = 4.0 / (8.0 * T)
        self.alpha = 4.0 if theory else 1.0
        self.ridge = float(dim) if theory else 1.0
        self._sigma_min = 1.0 / math.sqrt(T)
        self._power = (1.0 - eps) / (2.0 * (1.0 + eps))
        doubt = math.log(2.0 * T**2 / (0.25 * self.failure_probability))  # ln(2T²/δ)
        kappa = dim * math.log(1.0 + T**2 / (self.alpha * self.ridge * dim))  # L²T/σ_min² = T²
        self._tau_0 = math.sqrt(2.0 * kappa) * math.log(3.0 * T) ** self._power / doubt ** (1.0 / (1.0 + eps))
        # β_t = steady + rising · t^{(1−ε)/(2(1+ε))}
        self._steady = math.sqrt(self.ridge * (2.0 + 4.0 * S**2)) if theory else math.sqrt(self.ridge) * S
        self._rising = (107.0 if theory else self.radius_scale) * doubt * self._tau_0
        self.V = RankOneInverse(dim, self.ridge)
        self.theta = np.zeros(dim)
        self.rounds = 0  # rewards taken in

    by_rows = lasting = True

    def width(self) -> float:
        """β_t, the radius of the ellipsoid {θ : ‖θ − θ_{t+1}‖_{V_t} ≤ β_t}, where t rewards have come."""
        return float(self._steady + self._rising * self.rounds**self._power)

    def learn(self, pending: Pending, reward: float) -> None:
        arm = pending.arm
        width = self.width()
        self.rounds += 1
        growth = self._tau_0 * self.rounds**self._power  # τ_0 t^{(1−ε)/(2(1+ε))}
        solved = self.V.inverse.dot(arm)
        square = max(float(arm.dot(solved)), 0.0)  # ‖x_t‖² in the norm of V_{t−1}⁻¹
        nu = noise_scale_at(self.noise_scale, pending.round)
        # σ_t² = max{ν_t², σ_min², 2β_{t−1} ‖x_t‖²_{V_{t−1}⁻¹} / (τ_0 √α t^{…})}
        variance = max(nu**2, self._sigma_min**2, 2.0 * width * square / (growth * math.sqrt(self.alpha)))
        sigma, w2 = math.sqrt(variance), square / (self.alpha * variance)  # w_t²
        tau = growth * math.sqrt((1.0 + w2) / w2) if w2 > 0.0 else math.inf
        residual = min(max((reward - self.base_rate - float(arm.dot(self.theta))) / sigma, -tau), tau)
        # V_t = V_{t−1} + x xᵀ/(ασ_t²), and V_t⁻¹x = V_{t−1}⁻¹x / (1 + w_t²)
        self.V.add(arm, 1.0 / (self.alpha * variance), solved)
        # θ_{t+1} = Π_{‖θ‖≤S}^{V_t}(θ_t − V_t⁻¹∇ℓ_t(θ_t)) with ∇ℓ_t(θ_t) = −residual·x/σ_t
        step = (residual / (sigma * (1.0 + w2))) * solved
        self.theta = project_on_ball(self.theta + step, self.V.matrix, self.theta_bound)

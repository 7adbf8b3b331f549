"""AdaOFUL: a linear bandit for noise of finite variance around an adaptive pseudo-Huber regression. Not private.

Every reward refits the whole history by Newton's method from the last estimate, so an update costs O(td²) and memory
is O(td).

Source: Li & Sun, "Variance-aware Robust Reinforcement Learning with Linear Function Approximation under Heavy-tailed
Rewards" (arXiv:2303.05606), the algorithm for linear bandits. The constants are those that public code of its
generalisation to other links states for the linear one (the code itself runs with m_0 = τ_0 = β = 1); HEAVY-OFUL
is its successor for noise without variance.
"""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np

from accounting.arrays import Array
from accounting.checks import integer, positive
from dpbandits.policy.parameters import Parameters
from dpbandits.policy.protocol import Pending
from dpbandits.reference.confidence import ReferencePolicy, TimedOptions
from dpkit.models.ellipsoid import RankOneInverse
from dpkit.models.likelihood import Rows, minimize_in_ball

__all__ = ["AdaOFUL"]


class AdaOFUL(ReferencePolicy):
    """A linear bandit for heavy-tailed rewards whose noise changes: adaptive pseudo-Huber regression with optimism.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    horizon : int
        T, which the constants need.
    theta_bound : float
        S ≥ ‖θ‖.
    noise_scale : float
        ν, a bound on the standard deviation of the noise in every round.
    parameters : {"practical", "theory"}
        ``"theory"``: λ = d/S² and the constants of the module, under which the ellipsoid holds θ in all rounds with
        probability 1 − ``failure_probability``. ``"practical"``: λ = 1, m_0 = 1, no floor by m_1 in σ_t, and in the
        radius ``radius_scale``·√(κ ln(2t²/δ)) + √λ S.
    radius_scale : float
        Of the practical parameters.
    failure_probability : float
        3δ of the theorem, as in that of HEAVY-OFUL.
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
    >>> policy = AdaOFUL(dim=2, horizon=1000)
    >>> for _ in range(200):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, (0.1, 0.9)[decision.index])
    >>> policy.select([[1.0, 0.0], [0.0, 1.0]]).index
    1
    """

    learned = ("theta", "V", "rows")

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        theta_bound: float = 1.0,
        noise_scale: float = 1.0,
        parameters: Parameters = "practical",
        radius_scale: float = 0.02,
        **options: Unpack[TimedOptions],
    ) -> None:
        super().__init__(dim, (-math.inf, math.inf), theta_bound, parameters, radius_scale, horizon=horizon, **options)
        T = integer("horizon", horizon, at_least=1)
        S = self.theta_bound
        self.noise_scale = positive("noise_scale", noise_scale)

        theory = parameters == "theory"
        self.ridge = dim / S**2 if theory else 1.0
        self._sigma_min = 1.0 / math.sqrt(T)
        self._delta = self.failure_probability / 3.0
        doubt = math.log(2.0 * T**2 / self._delta)  # ln(2T²/δ)
        self._kappa = dim * math.log(1.0 + T**2 / (self.ridge * dim))  # κ; L²T/σ_min² = T²
        self._tau_0 = max(math.sqrt(2.0 * self._kappa), 2.0 * math.sqrt(dim)) / math.sqrt(doubt)
        self._m0 = 1.0 / (6.0 * math.sqrt(3.0 * doubt)) if theory else 1.0
        m1 = 1.0 / (42.0 * doubt)
        self._floor = math.sqrt(S) / (m1 * dim) ** 0.25 if theory else 0.0
        self.V = RankOneInverse(dim, self.ridge)
        self.theta = np.zeros(dim)
        self.rows = Rows(dim + 2)  # (x/σ, r/σ, τ)

    def width(self) -> float:
        """β_t, the radius of the ellipsoid {θ : ‖θ − θ_t‖_{H_t} ≤ β_t}."""
        doubt = math.log(2.0 * max(self.rows.count, 1) ** 2 / self._delta)  # ln(2t²/δ)
        steady = math.sqrt(self.ridge) * self.theta_bound
        if self.parameters == "practical":
            return self.radius_scale * math.sqrt(self._kappa * doubt) + steady
        # β_t = 64 (2√(κ ln(2t²/δ)) + √(d ln(2t²/δ))) + 5√λ S
        return 64.0 * (2.0 * math.sqrt(self._kappa * doubt) + math.sqrt(self.dim * doubt)) + 5.0 * steady

    def learn(self, pending: Pending, reward: float) -> None:
        arm = pending.arm
        solved = self.V.inverse.dot(arm)
        size = math.sqrt(max(float(arm.dot(solved)), 0.0))  # ‖x_t‖ in the norm of H_{t−1}⁻¹
        # σ_t = max{ν, σ_min, ‖x_t‖/m_0, √(S‖x_t‖)/(m_1 d)^{1/4}}, w_t = ‖x_t‖/σ_t, τ_t = τ_0 √(1 + w_t²)/w_t
        sigma = max(self.noise_scale, self._sigma_min, size / self._m0, self._floor * math.sqrt(size))
        w2 = (size / sigma) ** 2
        if w2 > 0.0:  # an arm of zeros says nothing
            tau = self._tau_0 * math.sqrt((1.0 + w2) / w2)
            self.V.add(arm, 1.0 / sigma**2, solved)
            self.rows.append([*(arm / sigma), (reward - self.base_rate) / sigma, tau])
            # θ_t = argmin over ‖θ‖ ≤ S of ½λ‖θ‖² + Σ τ_s(√(τ_s² + z_s²) − τ_s), z_s = (r_s − x_sᵀθ)/σ_s
            self.theta, _ = minimize_in_ball(self.loss, self.theta, radius=self.theta_bound)

    def loss(self, theta: Array) -> tuple[float, Array, Array]:
        """The pseudo-Huber loss, its gradient and its Hessian."""
        rows = self.rows.array
        X, tau = rows[:, :-2], rows[:, -1]
        z = rows[:, -2] - X @ theta
        stretch = np.sqrt(1.0 + (z / tau) ** 2)
        # τ²(√(1 + z²/τ²) − 1), without the difference of near numbers
        value = float(np.sum(z**2 / (1.0 + stretch))) + 0.5 * self.ridge * float(theta @ theta)
        gradient = self.ridge * theta - X.T @ (z / stretch)
        hessian = (X.T * stretch**-3) @ X
        hessian.flat[:: self.dim + 1] += self.ridge
        return value, gradient, hessian

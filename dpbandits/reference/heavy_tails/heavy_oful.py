"""HEAVY-OFUL: a linear bandit for heavy-tailed noise around an adaptive Huber regression on all rounds. Not private.

Rewards need a finite central moment of order 1 + ε only. Every reward refits the whole history by Newton's method from
the last estimate, so an update costs O(td²) and memory is O(td).

Source: Huang, Zhong, Wang & Yang, "Tackling Heavy-Tailed Rewards in Reinforcement Learning with Function
Approximation: Minimax Optimal and Instance-Dependent Regret Bounds" (NeurIPS 2023, arXiv:2306.06836), Algorithm 1 with
its confidence set. The constants are those of the authors' code, written for general S.
"""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np

from accounting.arrays import Array
from accounting.checks import fraction, integer
from dpbandits.policy.parameters import Parameters
from dpbandits.policy.protocol import Pending
from dpbandits.reference.confidence import ReferencePolicy, TimedOptions
from dpbandits.reference.heavy_tails.noise_scales import NoiseScale, noise_scale_at, noise_scales
from dpkit.models.ellipsoid import RankOneInverse
from dpkit.models.likelihood import Rows, minimize_in_ball

__all__ = ["HeavyOFUL"]


class HeavyOFUL(ReferencePolicy):
    """A linear bandit for heavy-tailed rewards whose noise changes: adaptive Huber regression with optimism.

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
    parameters : {"practical", "theory"}
        ``"theory"``: λ = d and the radius of the theorem, under which the ellipsoid holds θ in all rounds with
        probability 1 − ``failure_probability``. ``"practical"``: λ = 1, c_0 = 1 and no floor by c_1 in σ_t; in the
        radius ``radius_scale`` in place of 24 and √λ S in place of 3√λ S. (The authors' experiments divide it by 10⁴.)
    radius_scale : float
        Of the practical parameters.
    failure_probability : float
        3δ of the theorem.
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
    >>> policy = HeavyOFUL(dim=2, horizon=1000)
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
        tail: float = 1.0,
        noise_scale: NoiseScale = 1.0,
        parameters: Parameters = "practical",
        radius_scale: float = 0.02,
        **options: Unpack[TimedOptions],
    ) -> None:
        super().__init__(dim, (-math.inf, math.inf), theta_bound, parameters, radius_scale, horizon=horizon, **options)
        S = self.theta_bound
        T = integer("horizon", horizon, at_least=1)
        eps = self.tail = fraction("tail", tail, include_one=True)
        self.noise_scale = noise_scales(noise_scale, T)

        theory = parameters == "theory"
        self.ridge = float(dim) if theory else 1.0
        self._sigma_min = 1.0 / math.sqrt(T)
        self._power = (1.0 - eps) / (2.0 * (1.0 + eps))
        doubt = math.log(2.0 * T**2 / (self.failure_probability / 3.0))  # ln(2T²/δ)
        kappa = dim * math.log(1.0 + T**2 / (self.ridge * dim))  # L²T/σ_min² = T²
        late = math.log(3.0 * T)
        self._tau_0 = math.sqrt(2.0 * kappa) * late**self._power / doubt ** (1.0 / (1.0 + eps))
        self._c0 = 1.0 / math.sqrt(23.0 * doubt) if theory else 1.0
        c1 = late ** (2.0 * self._power) / (48.0 * doubt ** (2.0 / (1.0 + eps)))
        self._floor = math.sqrt(S) / (2.0 * c1 * kappa) ** 0.25 if theory else 0.0
        # β_t = steady + rising · t^{(1−ε)/(2(1+ε))}
        self._steady = (3.0 if theory else 1.0) * math.sqrt(self.ridge) * S
        self._rising = (24.0 if theory else self.radius_scale) * doubt * self._tau_0
        self.V = RankOneInverse(dim, self.ridge)
        self.theta = np.zeros(dim)
        self.rows = Rows(dim + 2)  # (x/σ, r/σ, τ)

    def width(self) -> float:
        """β_t, the radius of the ellipsoid {θ : ‖θ − θ_t‖_{H_t} ≤ β_t}."""
        return float(self._steady + self._rising * self.rows.count**self._power)

    def learn(self, pending: Pending, reward: float) -> None:
        arm = pending.arm
        solved = self.V.inverse.dot(arm)
        size = math.sqrt(max(float(arm.dot(solved)), 0.0))  # ‖x_t‖ in the norm of H_{t−1}⁻¹
        nu = noise_scale_at(self.noise_scale, pending.round)
        # σ_t = max{ν_t, σ_min, ‖x_t‖/c_0, √(S‖x_t‖)/(2c_1κ)^{1/4}}, w_t = ‖x_t‖/σ_t
        sigma = max(nu, self._sigma_min, size / self._c0, self._floor * math.sqrt(size))
        w2 = (size / sigma) ** 2
        late = (self.rows.count + 1) ** self._power
        tau = self._tau_0 * math.sqrt((1.0 + w2) / w2) * late if w2 > 0.0 else math.inf
        self.V.add(arm, 1.0 / sigma**2, solved)
        self.rows.append([*(arm / sigma), (reward - self.base_rate) / sigma, tau])
        # θ_t = argmin over ‖θ‖ ≤ S of ½λ‖θ‖² + Σ f_{τ_s}((r_s − x_sᵀθ)/σ_s)
        self.theta, _ = minimize_in_ball(self.loss, self.theta, radius=self.theta_bound)

    def loss(self, theta: Array) -> tuple[float, Array, Array]:
        """The Huber loss, its gradient and its generalised Hessian."""
        rows = self.rows.array
        X, tau = rows[:, :-2], rows[:, -1]
        z = rows[:, -2] - X @ theta
        clipped = np.clip(z, -tau, tau)
        # z²/2 where |z| ≤ τ, τ|z| − τ²/2 elsewhere
        value = float(clipped @ z) - 0.5 * float(clipped @ clipped) + 0.5 * self.ridge * float(theta @ theta)
        gradient = self.ridge * theta - X.T @ clipped
        hessian = (X.T * (clipped == z)) @ X
        hessian.flat[:: self.dim + 1] += self.ridge
        return value, gradient, hessian

"""CRTM: a generalized linear bandit for heavy-tailed rewards that truncates the largest of them. Not private.

Rewards need a finite moment of order 1 + ε only. One round costs O(Kd²) to select and O(d²) to update (O(d³) when the
step leaves the ball), memory O(d²), whatever the number of rounds played.

Source: Xue, Wang, Wan, Yi & Zhang, "Efficient Algorithms for Generalized Linear Bandits with Heavy-tailed Rewards"
(NeurIPS 2023, arXiv:2310.18701), the algorithm by truncation: an online Newton step on r̃_t = r_t·1{q_t|r_t| ≤ Γ} with
q_t = ‖x_t‖_{V_t⁻¹}. Γ and the radius are derived here; they have the paper's order T^{(1−ε)/(2(1+ε))} but not its
constants. Let κ = inf μ̇, M = sup |μ|, E|r|^{1+ε} ≤ u, Δ_t = θ_t − θ*, P ≥ Σq_s² by the elliptical potential, and
Q = T^{(1−ε)/2}P^{(1+ε)/2} ≥ Σq_s^{1+ε}. Adding up the steps, with g_s the slope of the loss,

    ‖Δ_{t+1}‖²_{V_{t+1}} ≤ λS² + Σ(2(r̃_s − μ_s)x_sᵀΔ_s + g_s²‖x_s‖²_{V_{s+1}⁻¹}) − (3κ/2)Σ(x_sᵀΔ_s)².

While all ‖Δ_s‖²_{V_s} ≤ γ, truncation biases the first sum by at most 2uΓ^{−ε}Q√γ, Freedman's inequality bounds its
deviation by (e − 2)uΓ^{−ε}Q√γ + 4Γ√γ ln(2/δ), and the slopes add at most 2M²P + 2(e − 1)uΓ^{1−ε}Q + 2Γ² ln(2/δ). With
Γ^{1+ε} = uQ/ln(2/δ) all terms have one size, and γ is the root of a quadratic equation.
"""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np

from accounting.checks import fraction, integer, positive
from dpbandits.policy.parameters import Parameters
from dpbandits.policy.protocol import Pending
from dpbandits.reference.confidence import ReferencePolicy, TimedOptions
from dpkit.models.ellipsoid import RankOneInverse, project_on_ball
from dpkit.models.links import Link, get_link

__all__ = ["CRTM"]


class CRTM(ReferencePolicy):
    """A linear bandit for heavy-tailed rewards: online Newton steps on truncated rewards, with optimism.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    link : str or Link
        μ in E[r | x] = μ(xᵀθ).
    horizon : int
        T, which the constants need.
    theta_bound : float
        S ≥ ‖θ‖.
    tail : float
        ε in (0, 1]: the noise η has E|η|^{1+ε} ≤ ν^{1+ε}.
    noise_scale : float
        ν. The moment of the reward itself is at most u = 2^ε(M^{1+ε} + ν^{1+ε}).
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
    >>> policy = CRTM(dim=2, horizon=1000)
    >>> for _ in range(400):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, (0.1, 0.9)[decision.index])
    >>> policy.select([[1.0, 0.0], [0.0, 1.0]]).index
    1
    """

    learned = ("theta", "V")

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
        radius_scale: float = 0.01,
        **options: Unpack[TimedOptions],
    ) -> None:
        self.link = get_link(link)
        super().__init__(dim, self.link.reward_range, theta_bound, parameters, radius_scale, horizon=horizon, **options)
        S = self.theta_bound
        T = integer("horizon", horizon, at_least=1)
        eps = self.tail = fraction("tail", tail, include_one=True)
        nu = self.noise_scale = positive("noise_scale", noise_scale)

        self._kappa = self.link.derivative_range(S)[0]  # the smallest slope
        self.ridge = max(float(dim), 0.5 * self._kappa)
        M = max(abs(float(self.link.mean(z))) for z in (-S, S))
        u = 2.0**eps * (M ** (1.0 + eps) + nu ** (1.0 + eps))
        doubt = math.log(2.0 / self.failure_probability)  # ln(2/δ)
        P = 4.0 * dim / self._kappa * math.log(1.0 + self._kappa * T / (2.0 * self.ridge * dim))
        Q = float(T) ** ((1.0 - eps) / 2.0) * P ** ((1.0 + eps) / 2.0)
        self.truncation = float((u * Q / doubt) ** (1.0 / (1.0 + eps)))  # Γ
        # γ = a + b√γ, after uΓ^{−ε}Q = Γ ln(2/δ)
        G = self.truncation
        a = self.ridge * S**2 + 2.0 * M**2 * P + 2.0 * math.e * G**2 * doubt
        b = (math.e + 4.0) * G * doubt
        radius = 0.5 * (b + math.sqrt(b**2 + 4.0 * a))
        self.radius = radius if parameters == "theory" else self.radius_scale * radius
        self.V = RankOneInverse(dim, self.ridge)
        self.theta = np.zeros(dim)

    def width(self) -> float:
        """√γ, the radius of the ellipsoid {θ : ‖θ − θ_t‖_{V_t} ≤ √γ}."""
        return self.radius

    def learn(self, pending: Pending, reward: float) -> None:
        arm = pending.arm
        solved = self.V.inverse.dot(arm)
        square = max(float(arm.dot(solved)), 0.0)
        kept = reward if math.sqrt(square) * abs(reward) <= self.truncation else 0.0
        slope = float(self.link.mean(float(arm.dot(self.theta)))) - kept  # ∇ℓ_t(θ_t) = slope·x
        # V_{t+1} = V_t + (κ/2) x xᵀ, θ_{t+1} = Π_{‖θ‖≤S}^{V_{t+1}}(θ_t − V_{t+1}⁻¹∇ℓ_t(θ_t))
        weight = 0.5 * self._kappa
        self.V.add(arm, weight, solved)
        step = (slope / (1.0 + weight * square)) * solved
        self.theta = project_on_ball(self.theta - step, self.V.matrix, self.theta_bound)

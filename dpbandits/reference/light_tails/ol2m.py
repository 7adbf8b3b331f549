"""OL2M: a logistic bandit with one online Newton step per round, the first of constant cost. Not private.

One round costs O(Kd²) to select and O(d²) to update (O(d³) when the step leaves the ball), memory O(d²). Its steps and
its exploration go by the smallest slope of the logistic function, so that regret grows like e^S.

Source: Zhang, Yang, Jin, Xiao & Zhou, "Online Stochastic Linear Optimization under One-bit Feedback" (ICML 2016,
arXiv:1509.07728), the algorithm and its Theorem 1, with the constants that public code of it states. With R = S,
β = 1/(2(1 + e^S)) ≤ μ̇, Z_{t+1} = Z_t + (β/2)x_tx_tᵀ, Δ_t = θ_t − θ* and z_t = x_tᵀΔ_t, they follow in three steps:

* The loss is β-strongly convex along x, so that one projected step gives ‖Δ_{t+1}‖² ≤ ‖Δ_t‖² − (β/2)z_t² + 2ξ_tz_t +
  ‖x_t‖² (norms of Z_{t+1}, Z_t and Z_{t+1}⁻¹) for the noise |ξ_t| ≤ 1 of the slope; and Σ‖x_t‖² ≤ (2/β)ln(det Z/λᵈ).
* Bernstein's inequality over a grid of sizes of A = Σz_s² has 2Σξ_sz_s ≤ 4√(Aτ) + (16/3)Sτ, with τ_t =
  ln(2⌈2 log₂ t⌉t²/δ), or A is so small that 8S covers it; and 4√(Aτ) ≤ (β/2)A + (8/β)τ.
* Together γ_{t+1} = 8S + λS² + (8/β + 16S/3)τ_t + (2/β)ln(det Z_{t+1}/λᵈ) ≥ ‖Δ_{t+1}‖², for all t together with
  probability 1 − δ.
"""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np

from accounting.checks import positive
from dpbandits.policy.parameters import Parameters
from dpbandits.policy.protocol import Pending
from dpbandits.reference.confidence import ReferenceOptions, ReferencePolicy
from dpkit.models.ellipsoid import RankOneInverse, project_on_ball
from dpkit.models.links import Link, get_link

__all__ = ["OL2M"]


class OL2M(ReferencePolicy):
    """A logistic bandit at O(d²) per round: optimism around an online Newton step.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    link : str or Link
        μ in E[r | x] = μ(xᵀθ). The algorithm is for the logistic one, and the theory's parameters are for no other.
    theta_bound : float
        S ≥ ‖θ‖.
    parameters : {"practical", "theory"}
        ``"theory"``: the radius √γ_t of Theorem 1, under which the ellipsoid holds θ in all rounds with probability
        1 − ``failure_probability``, for rewards in [0, 1]. ``"practical"``: that radius times ``radius_scale``.
    radius_scale : float
        Factor on the radius, of the practical parameters.
    failure_probability : float
        δ.
    ridge : float, optional
        λ > 0; by default d, as in public code.
    **options
        ``reward_range``, ``base_rate``, ``on_violation``, ``horizon``, ``expire_after``, ``rng``: see
        :class:`dpbandits.Policy`.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range, or the theory's parameters with another link or other rewards.

    Examples
    --------
    >>> import numpy as np
    >>> policy = OL2M(dim=2, theta_bound=1.0)
    >>> for _ in range(500):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, (0.3, 0.7)[decision.index])
    >>> policy.select([[1.0, 0.0], [0.0, 1.0]]).index
    1
    """

    learned = ("theta", "rounds", "volume", "V")

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        theta_bound: float = 3.0,
        parameters: Parameters = "practical",
        radius_scale: float = 0.05,
        ridge: float | None = None,
        **options: Unpack[ReferenceOptions],
    ) -> None:
        self.link = get_link(link)
        super().__init__(dim, self.link.reward_range, theta_bound, parameters, radius_scale, **options)
        self.check_logistic()
        S = self.theta_bound
        # β = 1/(2(1 + e^S)) for the logistic μ itself, and ≤ inf μ̇ for other links and where the base rate has moved it
        self._beta = 0.5 * (1.0 + math.exp(-S)) * self.link.derivative_range(S)[0]
        self.ridge = float(dim) if ridge is None else positive("ridge", ridge)
        self.V = RankOneInverse(dim, self.ridge)  # Z_t
        self.theta = np.zeros(dim)
        self.rounds = 0  # rewards taken in
        self.volume = 0.0  # ln(det Z_{t+1}/λᵈ)

    def width(self) -> float:
        """√γ_{t+1}, the radius of the ellipsoid {θ : ‖θ − θ_{t+1}‖_Z ≤ √γ_{t+1}}, where t rewards have come."""
        S, beta, t = self.theta_bound, self._beta, max(self.rounds, 1)
        tau = math.log(2.0 * max(math.ceil(2.0 * math.log2(t)), 1) * t**2 / self.failure_probability)
        squared = 8.0 * S + self.ridge * S**2 + (8.0 / beta + 16.0 * S / 3.0) * tau + 2.0 / beta * self.volume
        return self.scaled(math.sqrt(squared))

    def learn(self, pending: Pending, reward: float) -> None:
        arm = pending.arm
        slope = float(self.link.mean(float(arm.dot(self.theta)))) - reward  # ∇ℓ_t(θ_t) = slope·x
        solved = self.V.inverse.dot(arm)
        # det(Z + (β/2)x xᵀ) = det(Z)(1 + (β/2)‖x‖²), and (Z + (β/2)x xᵀ)⁻¹x = Z⁻¹x/(1 + (β/2)‖x‖²)
        growth = 1.0 + 0.5 * self._beta * max(float(arm.dot(solved)), 0.0)
        self.V.add(arm, 0.5 * self._beta, solved)
        self.volume += math.log(growth)
        self.rounds += 1
        # θ_{t+1} = argmin over ‖θ‖ ≤ S of ½‖θ − θ_t‖²_{Z_{t+1}} + (θ − θ_t)ᵀ∇ℓ_t(θ_t)
        self.theta = project_on_ball(self.theta - (slope / growth) * solved, self.V.matrix, self.theta_bound)

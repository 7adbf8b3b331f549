"""GLOC: a generalized linear bandit whose confidence set comes from an online learner's regret. Not private.

An online Newton step learns θ_t; its predictions z_t = x_tᵀθ_t serve as the responses of a least-squares fit, and the
learner's own regret bounds how far that fit is from θ. One round costs O(d²) (O(d³) when the step leaves the ball) and
O(Kd²) to select, memory O(d²), whatever the number of rounds played. Its exploration grows with 1/κ, κ = inf μ̇.

Source: Jun, Bhargava, Nowak & Willett, "Scalable Generalized Linear Bandits: Online Computation and Hashing"
(NIPS 2017), Algorithm 1 (GLOC) with Theorem 1 (the set) and Algorithm 2 with Theorem 3 (online Newton step, regret).
"""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np

from accounting.checks import positive
from dpbandits.policy.parameters import Parameters, noise_level
from dpbandits.policy.protocol import Pending
from dpbandits.reference.confidence import ReferenceOptions, ReferencePolicy
from dpkit.models.ellipsoid import RankOneInverse, project_on_ball
from dpkit.models.links import Link, get_link

__all__ = ["GLOC"]


class GLOC(ReferencePolicy):
    """A generalized linear bandit made of an online learner: optimism over the ellipsoid that its regret implies.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    link : str or Link
        μ in E[r | x] = μ(xᵀθ).
    theta_bound : float
        S ≥ ‖θ‖.
    parameters : {"practical", "theory"}
        ``"theory"``: the radius of Theorem 1, under which the ellipsoid holds θ in all rounds with probability
        1 − ``failure_probability``. ``"practical"``: that radius times ``radius_scale``, without the promise.
    radius_scale : float
        Factor on the radius, of the practical parameters. At 1 they are the theory's.
    failure_probability : float
        δ.
    noise_bound : float, optional
        R: the noise is R-sub-Gaussian. By default half the length of ``reward_range``; where that is infinite, the
        root of the link's largest slope for the practical parameters.
    ridge : float, optional
        λ > 0; by default d.
    **options
        ``reward_range``, ``base_rate``, ``on_violation``, ``horizon``, ``expire_after``, ``rng``: see
        :class:`dpbandits.Policy`.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range.

    Examples
    --------
    >>> import numpy as np
    >>> policy = GLOC(dim=2, theta_bound=1.0)
    >>> for _ in range(500):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, (0.3, 0.7)[decision.index])
    >>> policy.select([[1.0, 0.0], [0.0, 1.0]]).index
    1
    """

    learned = ("learner", "theta", "xz", "zz", "stability", "V")

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        theta_bound: float = 3.0,
        parameters: Parameters = "practical",
        radius_scale: float = 1.0,
        noise_bound: float | None = None,
        ridge: float | None = None,
        **options: Unpack[ReferenceOptions],
    ) -> None:
        self.link = get_link(link)
        super().__init__(dim, self.link.reward_range, theta_bound, parameters, radius_scale, **options)
        S = self.theta_bound
        self._kappa, steepest = self.link.derivative_range(S)  # the paper's κ is the smallest slope
        self.noise_bound = noise_level(noise_bound, self.reward_range, parameters, typical=math.sqrt(steepest))
        self.ridge = float(dim) if ridge is None else positive("ridge", ridge)
        self.V = RankOneInverse(dim, self.ridge)
        self.learner = np.zeros(dim)  # θ_t of the online Newton step
        self.theta = np.zeros(dim)  # θ̂_t, the centre of the set
        self.xz = np.zeros(dim)  # X_tᵀz_t
        self.zz = 0.0  # ‖z_t‖²
        self.stability = 0.0  # Σ g_s² ‖x_s‖²_{V_s⁻¹}, g_s the slope of the loss

    def width(self) -> float:
        """√β_t, the radius of the ellipsoid {θ : ‖θ − θ̂_t‖_{V_t} ≤ √β_t}."""
        kappa, S, delta = self._kappa, self.theta_bound, self.failure_probability
        R = self.noise_bound
        # B_t of Theorem 3, and β_t of Theorem 1
        B = self.stability / (2.0 * kappa) + 2.0 * kappa * S**2 * self.ridge
        inside = math.sqrt(1.0 + 2.0 * B / kappa + 4.0 * R**4 / (kappa**4 * delta**2))
        beta = 1.0 + 4.0 * B / kappa + 8.0 * (R / kappa) ** 2 * math.log(2.0 / delta * inside)
        beta += self.ridge * S**2 - (self.zz - float(self.theta.dot(self.xz)))
        radius = math.sqrt(max(beta, 0.0))
        return self.scaled(radius)

    def learn(self, pending: Pending, reward: float) -> None:
        arm = pending.arm
        z = float(arm.dot(self.learner))
        slope = float(self.link.mean(z)) - reward  # ∇ℓ_t(θ_t) = slope·x
        self.V.add(arm, 1.0)
        solved = self.V.inverse.dot(arm)
        self.stability += slope**2 * float(arm.dot(solved))
        self.xz += z * arm
        self.zz += z**2
        self.theta = self.V.inverse.dot(self.xz)
        # θ_{t+1} = Π_{‖θ‖≤S}^{V_t}(θ_t − V_t⁻¹∇ℓ_t(θ_t)/κ)
        self.learner = project_on_ball(self.learner - (slope / self._kappa) * solved, self.V.matrix, self.theta_bound)

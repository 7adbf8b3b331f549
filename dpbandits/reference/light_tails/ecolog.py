"""ECOLog: a logistic bandit whose online estimate minimises each round's exact loss near the last one. Not private.

A round costs O(Kd²) to select and O(d²) to update (a few scalar root-finding steps; O(d³) where the estimate meets the
ball), memory O(d²), whatever the number of rounds played.

Source: Faury, Abeille, Jun & Calauzènes, "Jointly Efficient and Optimal Algorithms for Logistic Bandits" (AISTATS
2022), Algorithm 2 (ada-OFU-ECOLog). What is different here, and why:

* The paper minimises by projected gradient descent to precision 1/t; here the step is exact. It moves along W⁻¹x by an
  amount that solves one scalar equation.
* The paper sets rounds aside, and explores with them, when μ̇(xᵀθ̄_t) > 2μ̇(xᵀθ_{t+1}) could happen. Both points lie on
  one ray, at most η‖x‖²_{W⁻¹} ≤ η/λ apart along x, so with λ ≥ Rη/ln 2 it never happens, and no round is set aside.
* The theory's radius is derived here; it has the paper's data-dependent form with smaller constants. With η = 1 + RS,
  optimality of θ_{t+1} and self-concordance give
  ‖θ_{t+1} − θ*‖²_{W_{t+1}} ≤ ‖θ_t − θ*‖²_{W_t} − ‖θ_{t+1} − θ_t‖²_{W_t} + 2η(ℓ_t(θ*) − ℓ_t(θ_{t+1})).
  For any θ̄_t that does not depend on r_t, exp Σ(ℓ_s(θ*) − ℓ_s(θ̄_s)) is a likelihood ratio, hence by Ville's inequality
  at most 1/δ in all rounds with probability 1 − δ. What remains, Σ(ℓ_s(θ̄_s) − ℓ_s(θ_{s+1})), is known. As in the paper,
  θ̄_t is fitted to both possible rewards.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Unpack

import numpy as np

from accounting.arrays import Array
from dpbandits.policy.parameters import Parameters
from dpbandits.policy.protocol import Pending
from dpbandits.reference.confidence import ReferenceOptions, ReferencePolicy
from dpkit.models.ellipsoid import RankOneInverse
from dpkit.models.links import Link, get_link
from dpkit.models.proximal import proximal_point

__all__ = ["ECOLog"]


class ECOLog(ReferencePolicy):
    """A logistic bandit at O(d²) per round: optimism over an ellipsoid around an implicit online estimate.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    link : str or Link
        μ in E[r | x] = μ(xᵀθ). The paper's is the logistic; the derivation holds for the probit too.
    theta_bound : float
        S ≥ ‖θ‖.
    parameters : {"practical", "theory"}
        ``"theory"``: λ = max{1, R(1 + RS)/ln 2} and the radius of the module's derivation, under which the ellipsoid
        holds θ in all rounds with probability 1 − ``failure_probability``. ``"practical"``: λ = d, and the radius times
        ``radius_scale``.
    radius_scale : float
        Factor on the radius, of the practical parameters.
    failure_probability : float
        δ.
    **options
        ``reward_range`` (by default that of the link; it must be finite, and the theory wants it in [0, 1]),
        ``base_rate``, ``on_violation``, ``horizon``, ``expire_after``, ``rng``: see :class:`dpbandits.Policy`.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range.

    Examples
    --------
    >>> import numpy as np
    >>> policy = ECOLog(dim=2, theta_bound=1.0)
    >>> for _ in range(300):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, float(decision.index == 1))
    >>> policy.select([[1.0, 0.0], [0.0, 1.0]]).index
    1
    """

    learned = ("theta", "lead", "moves", "V")

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        theta_bound: float = 3.0,
        parameters: Parameters = "practical",
        radius_scale: float = 1.0,
        **options: Unpack[ReferenceOptions],
    ) -> None:
        self.link = get_link(link)
        super().__init__(dim, self.link.reward_range, theta_bound, parameters, radius_scale, **options)
        S = self.theta_bound
        low, high = self.reward_range
        if math.isinf(high - low) or (parameters == "theory" and not 0.0 <= low < high <= 1.0):
            bound = "finite" if parameters == "practical" else "in [0, 1]"
            raise ValueError(f"reward_range must be {bound} for ECOLog, got reward_range={self.reward_range}")
        R = self.link.self_concordance(S)
        self.eta = 1.0 + R * S
        self.ridge = max(1.0, R * self.eta / math.log(2.0)) if parameters == "theory" else float(dim)
        self.V = RankOneInverse(dim, self.ridge)
        self.theta = np.zeros(dim)
        self.lead = 0.0  # Σ ℓ_s(θ̄_s) − ℓ_s(θ_{s+1})
        self.moves = 0.0  # Σ ‖θ_{s+1} − θ_s‖²_{W_s}

    def width(self) -> float:
        """The radius of the ellipsoid {θ : ‖θ − θ_t‖_{W_t} ≤ β_t}."""
        # β_t² = λS² + 2η (ln(1/δ) + Σ ℓ_s(θ̄_s) − ℓ_s(θ_{s+1})) − Σ ‖θ_{s+1} − θ_s‖²_{W_s}
        doubt = math.log(1.0 / self.failure_probability) + self.lead
        radius = math.sqrt(max(self.ridge * self.theta_bound**2 + 2.0 * self.eta * doubt - self.moves, 0.0))
        return self.scaled(radius)

    def learn(self, pending: Pending, reward: float) -> None:
        arm = pending.arm
        low, high = self.reward_range
        solved = self.V.inverse.dot(arm)
        mean = self.link.mean

        def nearest(slope: Callable[[float], float]) -> tuple[Array, float]:
            return proximal_point(self.theta, self.V.matrix, arm, solved, slope, self.eta, self.theta_bound)

        # θ_{t+1} = argmin over ‖θ‖ ≤ S of ½‖θ − θ_t‖²_{W_t} + η ℓ(xᵀθ, r), and θ̄_t with ℓ(·, low) + ℓ(·, high)
        theta, z = nearest(lambda z: float(mean(z)) - reward)
        _, z_bar = nearest(lambda z: 2.0 * float(mean(z)) - low - high)
        loss = self.link.integral
        self.lead += float(loss(z_bar) - loss(z)) - reward * (z_bar - z)
        move = theta - self.theta
        self.moves += float(move @ self.V.matrix @ move)
        self.theta = theta
        # W_{t+1} = W_t + μ̇(xᵀθ_{t+1}) x xᵀ
        self.V.add(arm, float(self.link.derivative(z)), solved)

"""ada-OFU-ECOLog: the adaptive logistic bandit that sets rounds aside to shrink where it searches. Not private.

A round costs O(Kd²) to select and O(d²) to update (a few scalar root-finding steps; O(d³) where the estimate meets
the edge of the set, and once rounds have been set aside); memory O(d²), and d + 1 numbers for every round set aside,
each of which is fitted again, O(nd²), when one more is.

Source: Faury, Abeille, Jun & Calauzènes, "Jointly Efficient and Optimal Algorithms for Logistic Bandits" (AISTATS
2022), Algorithm 2, with its λ = 1 and its test: where μ̇(xᵀθ̄_t) > 2μ̇(xᵀθ_{t+1}) for the estimate that one of the two
rewards would give, the round is set aside before its reward is looked at. ``ECOLog`` of this package has a larger λ,
under which that never happens. What is different from the paper, and why:

* The paper minimises by projected gradient descent to precision 1/t; here the step is exact.
* Rounds set aside have a ridge likelihood of their own over the ball, with matrix A = λI + Σxxᵀ and estimate c, and as
  in GLM-UCB ‖c − θ*‖_A ≤ ϱ = (R/κ)√(2 ln(2/δ) + ln(det A/λᵈ)) + √λ S with κ = inf μ̇. A step is taken over the ellipsoid
  {‖θ − c‖_A ≤ ϱ} or over the ball, whichever is narrower along x; both hold θ*. Let D_t ≤ 2S be that width, and
  η_t = 1 + ½R·D_t. After O(κ⁻² ln t) rounds of one arm D_t is so small that its test cannot fail again.
* The theory's radius has the data-dependent form of the paper with smaller constants. Optimality of θ_{t+1} and
  self-concordance give, for a round that is not set aside,
  ‖θ_{t+1} − θ*‖²_{W_{t+1}} ≤ ‖θ_t − θ*‖²_{W_t} − ‖θ_{t+1} − θ_t‖²_{W_t} + 2η_t(ℓ_t(θ*) − ℓ_t(θ_{t+1})).
  With η = 1 + RS, exp Σ(η_s/η)(ℓ_s(θ*) − ℓ_s(θ̄_s)) is a product of powers of likelihood ratios with exponents in [0, 1]
  that are known before the reward, hence by Ville's inequality at most 2/δ in all rounds with probability 1 − ½δ.

Public code has η = 1 and stops with an error where the test fails, which is rare for that η; its radius has
γ = ½√λ + (2/√λ) ln(2√(1 + t/4λ)/δ), and its bonus is added to μ(xᵀθ).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Unpack

import numpy as np

from accounting.arrays import Array
from accounting.checks import positive
from dpbandits.policy.parameters import Parameters
from dpbandits.policy.protocol import Pending
from dpbandits.reference.confidence import ReferenceOptions, ReferencePolicy
from dpkit.models.ellipsoid import RankOneInverse
from dpkit.models.likelihood import Rows, glm_loss, minimize_in_ball
from dpkit.models.links import Link, get_link
from dpkit.models.proximal import proximal_point

__all__ = ["AdaOFUECOLog"]

Nearest = Callable[[Callable[[float], float]], tuple[Array, float]]


class AdaOFUECOLog(ReferencePolicy):
    """A logistic bandit that sets some rounds aside, to shrink the set that it searches.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    link : str or Link
        μ in E[r | x] = μ(xᵀθ). The paper's is the logistic, which the theory's parameters need.
    theta_bound : float
        S ≥ ‖θ‖.
    parameters : {"practical", "theory"}
        ``"theory"``: η_t and the radius of the module, under which the ellipsoid holds θ in all rounds with probability
        1 − ``failure_probability``. ``"practical"``: η_t = 1, and the radius with η = 1 times ``radius_scale``.
    radius_scale : float
        Factor on the radius, of the practical parameters.
    failure_probability : float
        δ.
    ridge : float
        λ > 0.
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
    >>> policy = AdaOFUECOLog(dim=2, theta_bound=1.0)
    >>> for _ in range(300):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, float(decision.index == 1))
    >>> policy.select([[1.0, 0.0], [0.0, 1.0]]).index
    1
    """

    learned = ("theta", "lead", "moves", "V", "aside", "center", "A")

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        theta_bound: float = 3.0,
        parameters: Parameters = "practical",
        radius_scale: float = 0.5,
        ridge: float = 1.0,
        **options: Unpack[ReferenceOptions],
    ) -> None:
        self.link = get_link(link)
        super().__init__(dim, self.link.reward_range, theta_bound, parameters, radius_scale, **options)
        low, high = self.reward_range
        if math.isinf(high - low):
            raise ValueError(f"reward_range must be finite for AdaOFUECOLog, got reward_range={self.reward_range}")
        self.check_logistic()
        S = self.theta_bound
        self.ridge = positive("ridge", ridge)
        self._R = self.link.self_concordance(S) if parameters == "theory" else 0.0
        self.eta = 1.0 + self._R * S
        self._kappa = self.link.derivative_range(S)[0]
        self.V = RankOneInverse(dim, self.ridge)
        self.theta = np.zeros(dim)
        self.lead = 0.0  # Σ η_s(ℓ_s(θ̄_s) − ℓ_s(θ_{s+1}))
        self.moves = 0.0  # Σ ‖θ_{s+1} − θ_s‖²_{W_s}
        self.aside = Rows(dim + 1)  # (x, r) of the rounds set aside
        self.A = RankOneInverse(dim, self.ridge)
        self.center = np.zeros(dim)

    def width(self) -> float:
        """The radius of the ellipsoid {θ : ‖θ − θ_t‖_{W_t} ≤ β_t}."""
        # β_t² = λS² + 2η ln(2/δ) + Σ (2η_s(ℓ_s(θ̄_s) − ℓ_s(θ_{s+1})) − ‖θ_{s+1} − θ_s‖²_{W_s})
        doubt = self.eta * math.log(2.0 / self.failure_probability) + self.lead
        radius = math.sqrt(max(self.ridge * self.theta_bound**2 + 2.0 * doubt - self.moves, 0.0))
        return self.scaled(radius)

    def learn(self, pending: Pending, reward: float) -> None:
        arm = pending.arm
        low, high = self.reward_range
        solved = self.V.inverse.dot(arm)
        mean, slope_at, loss = self.link.mean, self.link.derivative, self.link.integral
        nearest, eta = self.nearest(arm, solved)
        # θ̄_t is fitted to both possible rewards; xᵀθ_{t+1} grows with the reward
        _, z_bar = nearest(lambda z: 2.0 * float(mean(z)) - low - high)
        ends = {u: nearest(lambda z, u=u: float(mean(z)) - u) for u in (low, high)}  # type: ignore[misc]
        if float(slope_at(z_bar)) > 2.0 * min(float(slope_at(z)) for _, z in ends.values()):
            self.set_aside(arm, reward)
            return
        # θ_{t+1} = argmin over the set of ½‖θ − θ_t‖²_{W_t} + η_t ℓ(xᵀθ, r)
        theta, z = ends[reward] if reward in ends else nearest(lambda z: float(mean(z)) - reward)
        self.lead += eta * (float(loss(z_bar) - loss(z)) - reward * (z_bar - z))
        move = theta - self.theta
        self.moves += float(move @ self.V.matrix @ move)
        self.theta = theta
        # W_{t+1} = W_t + μ̇(xᵀθ_{t+1}) x xᵀ
        self.V.add(arm, float(slope_at(z)), solved)

    def set_aside(self, arm: Array, reward: float) -> None:
        """Fit the rounds set aside, with one more."""
        self.aside.append([*arm, reward])
        self.A.add(arm, 1.0)
        rows = self.aside.array
        fit = glm_loss(self.link, rows[:, :-1], rows[:, -1], ridge=self._kappa * self.ridge)
        self.center, _ = minimize_in_ball(fit, self.center, radius=self.theta_bound)

    def reach(self) -> float:
        """ϱ."""
        low, high = self.reward_range
        doubt = 2.0 * math.log(2.0 / self.failure_probability) + self.A.log_det
        noise = 0.5 * (high - low) / self._kappa * math.sqrt(max(doubt, 0.0))
        return noise + math.sqrt(self.ridge) * self.theta_bound

    def nearest(self, arm: Array, solved: Array) -> tuple[Nearest, float]:
        """The proximal step along ``arm``, over the ball or the ellipsoid of the rounds set aside, and η_t."""
        W, S, reach = self.V.matrix, self.theta_bound, self.reach()
        wide = S * math.sqrt(float(arm @ arm))
        narrow = reach * math.sqrt(max(float(arm @ self.A.inverse @ arm), 0.0))
        eta = 1.0 + self._R * min(wide, narrow)
        if not self.aside.count or narrow >= wide:
            return lambda slope: proximal_point(self.theta, W, arm, solved, slope, eta, S), eta
        # in v = A^{1/2}(θ − c) the ellipsoid is a ball; no eigenvalue of A is below λ
        eigenvalues, U = np.linalg.eigh(self.A.matrix)
        sizes = np.sqrt(np.maximum(eigenvalues, self.ridge))
        root, inverse = (U * sizes) @ U.T, (U / sizes) @ U.T
        start, offset = root @ (self.theta - self.center), float(arm @ self.center)

        def nearest(slope: Callable[[float], float]) -> tuple[Array, float]:
            v, z = proximal_point(
                start, inverse @ W @ inverse, inverse @ arm, root @ solved, lambda z: slope(z + offset), eta, reach
            )
            return self.center + inverse @ v, z + offset

        return nearest, eta

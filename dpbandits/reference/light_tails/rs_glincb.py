"""RS-GLinCB: a generalized linear bandit that refits seldom. Not private.

Rounds in which some arm is poorly known play that arm and refit an exploration estimate θ_o. In all others, arms that
θ_o rules out are dropped, and the optimistic one of the rest is played by an estimate θ_τ, which is refitted only when
the determinant of the information matrix has doubled. Most rounds cost O(Kd²); O(log T) rounds outside exploration go
over the history. Memory is O(td).

Source: Sawarni, Das, Barman & Sinha, "Generalized Linear Bandits with Limited Adaptivity" (NeurIPS 2024), Algorithm 2.
"""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike

from accounting.arrays import Array
from accounting.checks import integer
from dpbandits.policy.parameters import Parameters
from dpbandits.policy.protocol import Pending
from dpbandits.reference.confidence import ReferencePolicy, TimedOptions
from dpkit.models.ellipsoid import RankOneInverse, norms, within
from dpkit.models.likelihood import Rows, Smooth, glm_loss, minimize_in_ball
from dpkit.models.links import Link, get_link

__all__ = ["RSGLinCB"]


class RSGLinCB(ReferencePolicy):
    """A generalized linear bandit that refits seldom: optimism, and an exploration phase that the data end.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    link : str or Link
        μ in E[r | x] = μ(xᵀθ).
    horizon : int
        T, which every constant needs.
    theta_bound : float
        S ≥ ‖θ‖.
    parameters : {"practical", "theory"}
        ``"theory"``: the paper's λ = d ln(T/δ)/R², γ = 25RS√(d ln(T/δ)), β = 150√(d ln(T/δ)), exploration while some
        ‖x‖²_{V⁻¹} ≥ 1/(γ²κR²) and refitting at a doubled determinant, under which both confidence sets hold θ in all
        rounds with probability 1 − ``failure_probability``. Short of millions of rounds they explore all the time.
        ``"practical"``: λ = ½, γ = RS√(d ln(T/δ)), β = ``radius_scale``·√(d ln(T/δ)), exploration while some
        ‖x‖²_{V⁻¹} ≥ 100/(κR⁴S²d), refitting at a determinant 1.5 times as large, and θ_τ fitted to all rounds.
    radius_scale : float
        Of the practical parameters. (The authors' experiments use 4.)
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
    >>> policy = RSGLinCB(dim=2, theta_bound=1.0, horizon=1000)
    >>> for _ in range(500):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, (0.3, 0.7)[decision.index])
    >>> policy.select([[1.0, 0.0], [0.0, 1.0]]).index
    1
    """

    learned = ("theta_o", "theta", "inverse", "matrix", "log_det", "V", "H", "explored", "others")

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        horizon: int,
        theta_bound: float = 3.0,
        parameters: Parameters = "practical",
        radius_scale: float = 1.0,
        **options: Unpack[TimedOptions],
    ) -> None:
        self.link = get_link(link)
        super().__init__(dim, self.link.reward_range, theta_bound, parameters, radius_scale, horizon=horizon, **options)
        S = self.theta_bound
        T = integer("horizon", horizon, at_least=1)

        R = self.bound_together()
        kappa = self.link.kappa(S)
        size = math.sqrt(dim * math.log(T / self.failure_probability))  # √(d ln(T/δ))
        if parameters == "theory":
            self.ridge = size**2 / R**2
            gamma, self.beta = 25.0 * R * S * size, 150.0 * size
            self.threshold, self._growth = 1.0 / (gamma**2 * kappa * R**2), math.log(2.0)
        else:
            self.ridge = 0.5
            gamma, self.beta = R * S * size, self.radius_scale * size
            self.threshold, self._growth = 100.0 / (kappa * R**4 * S**2 * dim), math.log(1.5)
        self.gamma = gamma * math.sqrt(kappa)  # γ√κ, the radius of the exploration set
        self.V = RankOneInverse(dim, self.ridge)  # of the exploration rounds
        self.H = RankOneInverse(dim, self.ridge)  # of all others
        self.theta_o = np.zeros(dim)
        self.theta = np.zeros(dim)  # θ_τ
        self.matrix, self.inverse, self.log_det = self.H.matrix.copy(), self.H.inverse.copy(), 0.0  # H_τ
        self.explored, self.others = Rows(dim + 1), Rows(dim + 1)  # (x, r)

    def contains(self, theta: ArrayLike) -> bool:
        """Whether both confidence sets hold ``theta``."""
        near_o = within(theta, self.theta_o, self.V.matrix, self.gamma)
        return near_o and within(theta, self.theta, self.matrix, self.beta)

    def prepare(self, arms: Array) -> None:
        # criterion II, where criterion I does not hold
        grown = self.H.log_det > self.log_det + self._growth
        if grown and float(norms(arms, self.V.inverse).max()) ** 2 < self.threshold:
            self._refit()

    def score(self, arms: Array) -> Array:
        unknown = norms(arms, self.V.inverse)
        if float(unknown.max()) ** 2 >= self.threshold:  # criterion I
            return unknown
        # keep x with UCB_o(x) ≥ max LCB_o, and play argmax xᵀθ_τ + β ‖x‖_{H_τ⁻¹} of them
        center = arms @ self.theta_o
        kept = center + self.gamma * unknown >= (center - self.gamma * unknown).max()
        return np.where(kept, arms @ self.theta + self.beta * norms(arms, self.inverse), -np.inf)

    def learn(self, pending: Pending, reward: float) -> None:
        arm = pending.arm
        # without delays this tells exactly the rounds of criterion I; it never depends on rewards
        if float(arm @ self.V.inverse @ arm) >= self.threshold:
            self.explored.append([*arm, reward])
            self.V.add(arm, 1.0)
            self.theta_o, _ = minimize_in_ball(self._loss(self.explored.array), self.theta_o)
        else:
            self.others.append([*arm, reward])
            self.H.add(arm, float(self.link.derivative(float(arm @ self.theta_o))) / math.e)

    def _refit(self) -> None:
        """τ = t: θ_τ from the likelihood, within γ√κ of θ_o in the norm of V."""
        self.matrix, self.inverse = self.H.matrix.copy(), self.H.inverse.copy()
        self.log_det = self.H.log_det
        if self.parameters == "practical":
            loss = self._loss(np.concatenate([self.explored.array, self.others.array]))
            self.theta, _ = minimize_in_ball(loss, self.theta)
            return
        loss = self._loss(self.others.array)
        self.theta, _ = minimize_in_ball(loss, self.theta)
        if within(self.theta, self.theta_o, self.V.matrix, self.gamma):
            return
        # u = V^{1/2}(θ − θ_o) turns the ellipsoid into a ball
        eigenvalues, U = np.linalg.eigh(self.V.matrix)
        root = (U / np.sqrt(eigenvalues)) @ U.T

        def moved(u: Array) -> tuple[float, Array, Array]:
            value, gradient, hessian = loss(self.theta_o + root @ u)
            return value, root @ gradient, root @ hessian @ root

        u, _ = minimize_in_ball(moved, np.zeros(self.dim), radius=self.gamma)
        self.theta = self.theta_o + root @ u

    def _loss(self, rows: Array) -> Smooth:
        return glm_loss(self.link, rows[:, :-1], rows[:, -1], ridge=self.ridge)

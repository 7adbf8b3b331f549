"""B-GLinCB: a generalized linear bandit whose policy changes at a few rounds that are fixed beforehand. Not private.

For arm sets that come at random. The horizon is cut into M batches. In the first, every round plays an arm from a
G-optimal design of its arm set; it ends with V = λI + Σ x xᵀ and θ_1, the maximum likelihood. A round of batch k ≥ 2

1. drops, for j = 1, …, k − 1 in turn, every arm with ⟨x, θ_j⟩ + w_j(x) below the largest ⟨y, θ_j⟩ − w_j(y);
2. scales the others by √(μ̇(xᵀθ_1)/β(x)), β(x) = exp(R·min(2S, w_1(x))), and plays from a G-optimal design of them.

It ends with H_k = λI + Σ μ̇(xᵀθ_1)/β(x)·x xᵀ and θ_k, the maximum likelihood of the batch. Half-widths are
w_1(x) = γ√κ‖x‖_{V⁻¹} and w_k(x) = γ‖x‖_{H_k⁻¹}.

Source: Sawarni, Das, Barman & Sinha, "Generalized Linear Bandits with Limited Adaptivity" (NeurIPS 2024), Algorithm 1,
of which :class:`~dpbandits.policies.ShuffleGLM` is the private form. Constants and lemmas are read as Sarmasarkar
(2026, arXiv:2602.00417, appendices E to I) restates them; without noise, its (26) is the theory's γ here.

One thing differs. The authors learn the design of batch k, a *distributional* optimal design (Ruan, Yang & Zhou 2021),
from a half of batch k − 1 that is set aside. Here every round computes the design of its own arms, as ShuffleGLM does:
no half is set aside, and the bound on the regret grows by √d (Remark 4.4 there).

Cost per round: a G-optimal design, O(Kd²) and O(Kd) per step of it. A batch of n rounds ends with a fit in O(nd²).
Memory: O(nd) for the open batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike

from accounting.arrays import Array
from accounting.checks import integer
from dpbandits.policy.choices import Shares
from dpbandits.policy.parameters import Parameters
from dpbandits.policy.protocol import Pending
from dpbandits.policy.schedule import rare_lengths
from dpbandits.reference.confidence import ReferencePolicy, TimedOptions
from dpkit.geometry import g_optimal_design
from dpkit.models.ellipsoid import norms, within
from dpkit.models.likelihood import Rows, glm_loss, minimize_in_ball
from dpkit.models.links import Link, get_link

__all__ = ["BGLinCB"]


class BGLinCB(ReferencePolicy):
    """A generalized linear bandit that changes its rule in few batches: G-optimal designs, then elimination.

    Parameters
    ----------
    dim : int Dimension d of an arm. link : str or Link μ in E[r | x] = μ(xᵀθ). horizon : int T, which the batches
        share. theta_bound : float S ≥ ‖θ‖. batches : sequence of int, optional Lengths of the batches but the last,
        which takes what is left. By default, with practical parameters, 16d (at most T/20) and then always twice as
        long; with the theory's B_1 = (√κ·e^{3S}d²γ²α/S)^{2/3}, B_2 = α, B_k = α√B_{k−1} with α = T^{1/(2(1 − 2^{1−M}))}
        and M = ⌊log₂ log₂ T⌋, of which the first is longer than most runs. parameters : {"practical", "theory"} Theory:
        λ = 20dR ln T and γ = 24RS(√(ln T + d) + R(ln T + d)/√λ) + 2S√λ, R the bound on rewards and self-concordance:
        all confidence sets hold θ with probability 1 − O(1/T). Practical: λ = 1, γ = ``radius_scale``·√(d + ln T)·R,
        with 1/κ the mean of μ̇ over [−S, S], and β(x) = 1. radius_scale : float Of the practical parameters. **options
        ``reward_range`` (by default that of the link; it must be finite), ``base_rate``, ``on_violation``,
        ``expire_after``, ``failure_probability`` (not looked at: the theory's is 1/T), ``rng``: see
        :class:`dpbandits.Policy`.

    Attributes
    ----------
    ends : list of int
        After how many decisions each batch but the last ends.
    thetas, designs : (k, d) and (k, d, d) ndarray
        θ_k, and V or H_k, of the batches; zero for those to come.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range.

    Examples
    --------
    >>> import numpy as np
    >>> policy = BGLinCB(dim=2, theta_bound=1.0, horizon=2000, rng=np.random.default_rng(0))
    >>> for _ in range(1500):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, (0.3, 0.7)[decision.index])
    >>> policy.select([[1.0, 0.0], [0.0, 1.0]]).probability
    1.0
    """

    learned = ("thetas", "designs", "closed", "rows")

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        horizon: int,
        theta_bound: float = 3.0,
        batches: Sequence[int] | None = None,
        parameters: Parameters = "practical",
        radius_scale: float = 0.5,
        **options: Unpack[TimedOptions],
    ) -> None:
        self.link = get_link(link)
        super().__init__(dim, self.link.reward_range, theta_bound, parameters, radius_scale, horizon=horizon, **options)
        S, T = self.theta_bound, integer("horizon", horizon, at_least=1)
        log_T = math.log(max(2, T))
        self.R = self.bound_together()
        if parameters == "theory":
            self.ridge = 20.0 * dim * self.R * log_T
            chance = math.sqrt(log_T + dim) + self.R * (log_T + dim) / math.sqrt(self.ridge)
            self.gamma = 24.0 * self.R * S * chance + 2.0 * S * math.sqrt(self.ridge)
            kappa = self.link.kappa(S)
        else:
            self.ridge, self.gamma = 1.0, self.radius_scale * self.R * math.sqrt(dim + log_T)
            kappa = 2.0 * S / float(self.link.mean(S) - self.link.mean(-S))
        self.root_kappa = math.sqrt(kappa)

        self.batches = None if batches is None else [integer("batches", n, at_least=1) for n in batches]
        lengths = self.batches
        if lengths is None:
            theory = parameters == "theory"
            lengths = rare_lengths(T, kappa, S, dim, self.gamma) if theory else self._doubled(T)
        self.ends = [int(end) for end in np.cumsum(lengths) if end < T]
        self.closed = 0
        self.thetas, self.designs = np.zeros((len(self.ends), dim)), np.zeros((len(self.ends), dim, dim))
        self.rows = Rows(dim + 1)  # (x, r) of the open batch

    def _doubled(self, T: int) -> list[int]:
        lengths = [min(16 * self.dim, -(-T // 20))]
        while sum(lengths) < T:
            lengths.append(2 * lengths[-1])
        return lengths

    def contains(self, theta: ArrayLike) -> bool:
        """Whether the confidence sets of all batches so far hold ``theta``."""
        return all(
            within(theta, self.thetas[k], self.designs[k], self.gamma * (1.0 if k else self.root_kappa))
            for k in range(self.closed)
        )

    def half_widths(self, arms: Array, batch: int) -> Array:
        """w of every arm after a batch, counted from 0: shape (K,)."""
        scale = self.gamma * (1.0 if batch else self.root_kappa)
        return scale * norms(arms, np.asarray(np.linalg.inv(self.designs[batch]), np.float64))

    def prepare(self, arms: Array) -> None:
        while self.closed < len(self.ends) and self.decisions >= self.ends[self.closed]:
            self._close()

    def score(self, arms: Array) -> Shares:
        shares, alive = np.zeros(len(arms)), np.arange(len(arms))
        for k in range(self.closed):
            centre, half = arms[alive] @ self.thetas[k], self.half_widths(arms[alive], k)
            alive = alive[centre + half >= (centre - half).max()]
        scaled = np.sqrt(self._weights(arms[alive]))[:, None] * arms[alive]
        shares[alive] = g_optimal_design(scaled, tolerance=1.0)
        return Shares(shares)

    def learn(self, pending: Pending, reward: float) -> None:
        self.rows.append([*pending.arm, reward])

    def _weights(self, X: Array) -> Array:
        """μ̇(xᵀθ_1)/β(x) of every row; 1 in the first batch."""
        if self.closed == 0:
            return np.ones(len(X))
        slopes = np.asarray(self.link.derivative(X @ self.thetas[0]), np.float64)
        if self.parameters == "practical":
            return slopes
        return np.asarray(slopes * np.exp(-self.R * np.minimum(2.0 * self.theta_bound, self.half_widths(X, 0))))

    def _close(self) -> None:
        """V or H_k, and θ_k."""
        X, r, k = self.rows.array[:, :-1], self.rows.array[:, -1], self.closed
        self.designs[k] = self.ridge * np.eye(self.dim) + (X.T * self._weights(X)) @ X
        loss = glm_loss(self.link, X, r, ridge=self.ridge)
        start = self.thetas[k - 1] if k else np.zeros(self.dim)
        self.thetas[k], _ = minimize_in_ball(loss, start, radius=self.theta_bound)
        self.rows = Rows(self.dim + 1)
        self.closed += 1

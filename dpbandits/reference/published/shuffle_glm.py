"""Algorithm 1 of Sarmasarkar (2026), shuffle-DP generalized linear bandits, as published.

Source: Sarmasarkar, "Shuffle and Joint Differential Privacy for Generalized Linear Contextual Bandits",
arXiv:2602.00417, Algorithm 1, with the constants of section E.1, the sums of Algorithms 4 to 6 and the optimizer of
Algorithm 7. Batches have the lengths

    B_1 = (√κ·e^{3S}d²γ²α/S)^{2/3},  B_2 = α,  B_k = α√B_{k−1},  α = T^{1/(2(1 − 2^{1−M}))}          (6), (7)

of which the last takes what is left. In batch 1 arms are sampled from a G-optimal design. After it, for each j < k in
turn arms are dropped with ⟨x, θ_j⟩ + γ√κ‖x‖_{V_j⁻¹} below the largest ⟨y, θ_j⟩ − γ√κ‖y‖_{V_j⁻¹} (lines 16 to 18, with
√κ for every j as in (12) and (13)); the others are scaled by √(μ̇(xᵀθ_1)/β(x)), β(x) = exp(R·min(2S, γ√κ‖x‖_{V⁻¹})),
and sampled from a G-optimal design of what results. A batch ends with

* V, or H_k: λI plus the shuffled sum of x xᵀ, or of μ̇(xᵀθ_1)/β(x)·x xᵀ, each with Δ = 1 or 1/κ*, at (ε/2, δ/2);
* θ_k from P_GD on ℓ(θ; x, r) + λ_max‖θ‖²/(2B_k) over {‖θ‖ ≤ S}, at (ε/2, δ/2): with (ε, δ) short for these halves,

      k = ⌈ε²n²/(d·ln³(nd/δ))⌉ steps of η = 2D/(L√k),  D = 2S,  L = RS + S + Sλ_max/B_k,

  each along a shuffled mean of gradients at (ε/(2√(2k·ln(1/δ))), δ/(k + 1)); the mean of θ_0, …, θ_{k−1} is returned.

A shuffled sum of an entry w in [−Δ, Δ] adds, of every user, ⌊(w + Δ)g/Δ⌋ or one more at random, and Bin(b, ¼) ones of
noise, with b and g of (122), and takes Δ/g·(Σ − nb/4) − nΔ.

Read so: constants O(·) and C are 1; λ of (20), γ of (21), λ_max of (23); M = ⌊log₂ log₂ T⌋, at least 2, or the number
of ``batches``; b is rounded up. The noise bits of n users are drawn as one Bin(nb, ¼). The paper has no experiments
with this algorithm. Without ``batches`` the first batch is longer than any feasible horizon, as at d = 3, S = 2, ε = 4
it has more than 10⁹ rounds.

A P_GD over n rows takes about ε²n²/(d·ln³) passes over them: some 10⁴ at n = 5,000 (seconds), and 10⁸ at n = 10⁶
(years). ``max_steps`` caps them where that is impossible; the step length and the noise are then those of the capped
number.

Not private as claimed
----------------------
Sensitivity 1/κ* holds with high probability under the reward model only; g + b bits do not hold what entries up to 2Δ
ask for, so that one user moves a coordinate by twice what the analysis allows (``docs/errata.md``). The noise bits are
not exact where nb is beyond 2⁶² (then: normal noise of the same variance).
:class:`~dpbandits.policies.ShuffleGLM` is the private form.

Late rewards enter the batch that is open when they come.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, Unpack

import numpy as np

from accounting import Budget
from accounting.arrays import Array
from accounting.checks import integer
from dpbandits.policy.choices import Shares
from dpbandits.policy.options import PrivateOptions
from dpbandits.policy.protocol import Pending
from dpbandits.policy.schedule import rare_batches, rare_lengths
from dpbandits.reference.published.base import PublishedPolicy
from dpkit.geometry import LpBall, g_optimal_design
from dpkit.models.ellipsoid import norms
from dpkit.models.likelihood import Rows
from dpkit.models.links import Link, get_link

__all__ = ["PublishedShuffleGLM", "shuffled_sum"]

# the most that a sampler of binomial numbers takes
_MOST_TRIALS = 2**62


class PublishedShuffleGLM(PublishedPolicy):
    """Algorithm 1 of Sarmasarkar (2026), as printed. Not private as claimed: see the module's text.

    Parameters
    ----------
    dim, link, budget, horizon, theta_bound
        As for :class:`~dpbandits.policies.ShuffleGLM`.
    batches : sequence of int, optional
        Lengths of the batches but the last. By default those of (6) and (7).
    max_steps : int, optional
        The most steps of a P_GD; by default as many as printed.
    parameters : {"published"}
    **options
        See :class:`PublishedPolicy`.

    Attributes
    ----------
    ends : list of int
        After how many decisions a batch ends.
    thetas, designs : (k, d) and (k, d, d) ndarray
        θ_k and V or H_k of the batches, zero for those to come.

    Examples
    --------
    >>> import numpy as np, warnings
    >>> from accounting import Budget
    >>> rng = np.random.default_rng(0)
    >>> with warnings.catch_warnings(action="ignore"):
    ...     policy = PublishedShuffleGLM(2, budget=Budget(4.0, 0.01), horizon=300, batches=[100], rng=rng)
    >>> for _ in range(101):
    ...     decision = policy.select(np.eye(2))
    ...     policy.update(decision, float(decision.index))
    >>> policy.ends, policy.closed
    ([100], 1)
    """

    learned = ("thetas", "designs", "closed", "rows")

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        budget: Budget,
        horizon: int,
        theta_bound: float = 3.0,
        batches: Sequence[int] | None = None,
        max_steps: int | None = None,
        parameters: Literal["published"] = "published",
        **options: Unpack[PrivateOptions],
    ) -> None:
        self.link = get_link(link)
        super().__init__(
            dim, self.link.reward_range, budget=budget, horizon=horizon, theta_bound=theta_bound, **options
        )
        S, T, d, R = self.theta_bound, horizon, self.dim, self.reward_bound()
        eps, delta, log_T = budget.epsilon, budget.delta, self.log_horizon()
        kappa, kappa_star = self.link.kappa(S), self.link.kappa_star(S)
        M = rare_batches(T) if batches is None else len(batches) + 1
        # (20) to (23), with constants of 1
        sigma = R * math.log(d**2 / delta) / (kappa_star * eps)
        nu = R * S**2 / eps * math.sqrt(d * math.log(T * d / delta) ** 3)
        lam = 20 * d * R * log_T + sigma * (2 * math.sqrt(math.log(2 * d * M * T / delta)) + 4 * math.sqrt(d))
        self.ridge = lam
        self.gamma = R * S * math.sqrt(lam) + math.sqrt(4 * R * S * nu)
        self.largest = lam + 8 * sigma * (4 * math.sqrt(d) + 2 * math.sqrt(math.log(2 * M * T / delta)))  # λ_max
        self.width = self.gamma * math.sqrt(kappa)
        self.R, self.kappa_star = R, kappa_star

        self.max_steps = None if max_steps is None else integer("max_steps", max_steps, at_least=1)
        self.batches = None if batches is None else [integer("batches", n, at_least=1) for n in batches]
        lengths = rare_lengths(T, kappa, S, d, self.gamma) if self.batches is None else self.batches
        self.ends = [int(end) for end in np.cumsum(lengths) if end < T]
        self.closed = 0
        self.thetas, self.designs = np.zeros((len(self.ends), d)), np.zeros((len(self.ends), d, d))
        self.rows = Rows(d + 1, bound=1.0)

    def prepare(self, arms: Array) -> None:
        while self.closed < len(self.ends) and self.decisions >= self.ends[self.closed]:
            self._close()

    def score(self, arms: Array) -> Shares:
        shares = np.zeros(len(arms))
        alive = np.arange(len(arms))
        for j in range(self.closed):  # lines 16 to 18
            centre = arms[alive] @ self.thetas[j]
            half = self.width * norms(arms[alive], np.linalg.inv(self.designs[j]))
            alive = alive[centre + half >= (centre - half).max()]
        scaled = np.sqrt(self._weights(arms[alive]))[:, None] * arms[alive]  # line 19
        shares[alive] = g_optimal_design(scaled, tolerance=1.0)
        return Shares(shares)

    def learn(self, pending: Pending, reward: float) -> None:
        self.rows.append([*pending.arm, reward])

    def _weights(self, X: Array) -> Array:
        """μ̇(xᵀθ_1)/β(x) of every row; 1 in batch 1."""
        if self.closed == 0:
            return np.ones(len(X))
        half = self.width * norms(X, np.linalg.inv(self.designs[0]))
        slopes = np.asarray(self.link.derivative(X @ self.thetas[0]))
        return np.asarray(slopes / np.exp(self.R * np.minimum(2 * self.theta_bound, half)))

    def _close(self) -> None:
        """Lines 8 to 11, or 24 to 27."""
        X, r = self.rows.array[:, :-1], self.rows.array[:, -1]
        d, k = self.dim, self.closed
        eps, delta = self.budget.epsilon / 2, self.budget.delta / 2
        upper = np.triu_indices(d)
        records = (self._weights(X)[:, None, None] * X[:, :, None] * X[:, None, :])[:, upper[0], upper[1]]
        total = np.zeros((d, d))
        bound = 1.0 / self.kappa_star if k else 1.0
        total[upper] = shuffled_sum(records, bound, eps, delta, d, self.rng)
        self.designs[k] = total + np.triu(total, 1).T + self.ridge * np.eye(d)
        self.thetas[k] = self._descent(X, r, eps, delta)
        self.rows = Rows(d + 1, bound=1.0)
        self.closed += 1

    def _descent(self, X: Array, r: Array, eps: float, delta: float) -> Array:
        """P_GD, Algorithm 7."""
        n, d, S, rng = max(1, len(X)), self.dim, self.theta_bound, self.rng
        L = self.R * S + S + S * self.largest / n
        steps = max(1, math.ceil(eps**2 * n**2 / (d * math.log(n * d / delta) ** 3)))
        steps = steps if self.max_steps is None else min(steps, self.max_steps)
        eta = 2 * (2 * S) / (L * math.sqrt(steps))
        each, part = eps / (2 * math.sqrt(2 * steps * math.log(1 / delta))), delta / (steps + 1)
        ball, theta, mean = LpBall(2, d, S), np.zeros(d), np.zeros(d)
        for _ in range(steps):
            mean += theta / steps
            gradients = (self.link.mean(X @ theta) - r)[:, None] * X + self.largest / n * theta
            theta = ball.project(theta - eta * shuffled_sum(gradients, L, each, part, d, rng) / n)
        return mean


def shuffled_sum(
    records: Array, bound: float, epsilon: float, delta: float, dim: int, rng: np.random.Generator
) -> Array:
    """The sum over users that Algorithms 4 to 6 release, with b and g of (122).

    Parameters
    ----------
    records : (n, m) ndarray
        Of n users, entries in [−Δ, Δ].
    bound : float
        Δ.
    epsilon, delta : float
    dim : int
        d in (122).
    rng : numpy.random.Generator
        Of which are drawn, in this order, n·m uniform numbers and m numbers of noise bits.

    Examples
    --------
    >>> total = shuffled_sum(np.ones((10, 2)), 1.0, 1e6, 0.01, 2, np.random.default_rng(0))
    >>> bool(np.abs(total - 10).max() < 1)
    True
    """
    n = max(1, len(records))
    g = math.ceil(max(2 * math.sqrt(n), dim, 4))
    b = math.ceil(24e4 * g**2 * math.log(4 * (dim**2 + 1) / delta) ** 2 / (epsilon**2 * n))
    scaled = (records + bound) * (g / bound)
    whole = np.floor(scaled)
    ones = (whole + (rng.random(records.shape) < scaled - whole)).sum(axis=0)
    trials = b * n
    if trials < _MOST_TRIALS:
        # whole numbers of this size are no floats: their mean is taken off first
        noise = (rng.binomial(trials, 0.25, records.shape[1]) - trials // 4) - trials % 4 / 4
    else:
        noise = rng.normal(0.0, math.sqrt(trials * 0.1875), records.shape[1])
    return np.asarray(bound / g * (ones + noise) - n * bound)

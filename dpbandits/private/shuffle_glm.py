"""ShuffleGLM: generalized linear bandits in the shuffle model, by elimination of arms from batch to batch.

For people who trust a shuffler, but not the server, and whose arm sets come at random. The horizon is cut into a few
batches. In the first, every user plays an arm from a G-optimal design of its own arm set; the batch ends with V, the
shuffled sum of x xᵀ, and θ_1, fitted by shuffled gradient descent. In batch k ≥ 2, a user

1. drops every arm whose upper confidence bound is below the best lower one, for each earlier batch in turn;
2. scales the others by √(μ̇(xᵀθ_1)/β(x)), β(x) = exp(R·min(2S, half-width of x after batch 1)), and
3. plays from a G-optimal design of the scaled arms; H_k sums what step 2 makes of x xᵀ, and θ_k is fitted to batch k.

Source: Sarmasarkar (2026, arXiv:2602.00417), Algorithm 1, after Sawarni, Das, Barman & Sinha (2024). Its bounds are
‖x‖_{V⁻¹}γ√κ for batch 1 and ‖x‖_{H_k⁻¹}γ after it (Lemma F.9).

Guarantee
---------
* Unit: one round, that is its arm set and its reward: one user. Neighbours: two runs in which one round differs
  ("replace"), or counts for nothing ("zero_out").
* Every user is in exactly one batch, fixed by the number of decisions alone, and takes part in all its releases: with
  its own row, or with null vectors if its reward does not come before the batch ends. So batches compose in
  parallel, and later rewards are accepted and count for nothing.
* A batch releases one matrix sum and T_k sums of gradients at iterates that are public. The weight of x xᵀ lies in
  [0, W], W = sup μ̇ over [−S, S] (1 in the first batch), because ‖θ_1‖ ≤ S and β ≥ 1, and it is clipped there: the paper
  asks for an event of high probability instead. Gradients are clipped to L = sup |μ(e) − r|, which no gradient at
  ‖θ‖ ≤ S passes.
* The releases of a batch are composed and calibrated as a whole, with ``matrix_share`` of the squared privacy loss for
  the matrix; ``analysis="paper"`` gives each half of ε and of δ instead, with the constants of the paper.
* Users keep their rows until the batch ends, since every gradient is asked for at a new θ: a saved state holds them.
* An older state is refused after a crash, as in :class:`~dpbandits.policies.ShuffleOnePassGLM`.

The paper's ridge ½λ_max‖θ‖² in the fit is left out. The ball takes its place: a minimiser without it is within
½λ_max·S² of the regularised minimum, which ν in the theory's γ counts.

Cost per round: a G-optimal design, O(Kd²) and O(Kd) per step of it; per batch O(T_k·n_k·d) numbers and random bits.
Regret: Õ(d^{3/2}√(T/κ*) + d^{5/4}√(T/ε)/κ* + d²e^{3S}(κT)^{1/3}ε^{−2/3}) for theory's parameters (Theorem 5.1). They
are for long runs: with d = 3, S = 2, the probit link, ε = 4 and constants of 1, the first batch alone has more than 10⁹
rounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar, Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from accounting import ApproxDP, Budget, Gaussian, Ledger, Release, calibrate, delta
from accounting.arrays import Array
from accounting.checks import choice, fraction, integer, positive
from accounting.notions.conversions import gdp_epsilon
from dpbandits.policy.choices import Law, Shares
from dpbandits.policy.parameters import Parameters, checked_parameters
from dpbandits.policy.private import PrivateOptions, PrivatePolicy, Schedule, finite_rewards
from dpbandits.policy.protocol import Pending
from dpbandits.private.parts.design import g_optimal_design
from dpkit.geometry import LpBall, outer_product_sensitivity, smat, svec
from dpkit.models.ellipsoid import norms
from dpkit.models.likelihood import Rows
from dpkit.models.links import Link, get_link
from dpkit.models.losses import matching_loss
from dpkit.moments.shuffled import batch_protocol, max_cost
from dpkit.shuffle import Analyzer, Randomizer, Shuffler, SumProtocol, VectorSum
from dpkit.shuffle.vector_sum import check_delta

__all__ = ["ShuffleGLM"]

# rounds of gradient descent in a batch, at most: noise does not fall with more, and the start is forgotten by then
_ITERATIONS = 50
# the matrix sum; budget, rounds and cost of the descent (None: the budget); and the cost of both
_Plan = tuple[SumProtocol, tuple[Budget, int, Release | None], Release]
# the δ at which parts of a budget are stated; only the whole is a guarantee
_PART_DELTA = 1e-6


@dataclass(frozen=True)
class Estimates:
    """The public half: θ_k and Q_k of every batch, zero for those to come."""

    thetas: Array
    shapes: Array


class ShuffleGLM(PrivatePolicy[Estimates]):
    """Batched elimination with shuffled design matrices and shuffled gradient descent.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    link : str or Link
        μ in E[r | x] = μ(xᵀθ).
    budget : Budget
        What the whole run may cost one user (or person), replaced or zeroed out; δ > 0.
    horizon : int
        T, the number of rounds that the policy will take part in.
    theta_bound : float
        S ≥ ‖θ*‖.
    batches : sequence of int, optional
        Lengths of the batches but the last, which takes what is left. By default, with practical parameters,
        32d (at most T/20) and then always twice as long; with the theory's, those of the paper's Equation (6).
    parameters : {"practical", "theory"}
        Ridge λ and half-widths. Theory: λ and γ of the paper's Equations (20) and (26) with the standard deviation of
        the noise as it is. Practical: λ is 1 more than σ√(2d), which bounds the noise in the matrix on average;
        half-widths are ``exploration`` standard deviations of xᵀθ_k, by chance and by noise, and β(x) = 1.
    exploration : float
        Of the practical parameters.
    matrix_share : float
        Share, in (0, 1), of the squared privacy loss of a batch that is spent on its matrix.
    analysis : {"numeric", "paper"}
        How noise is calibrated.
    failure_probability : float
        ζ of the theory's parameters.
    **options
        ``reward_range`` (by default that of the link; it must be finite), ``base_rate``, ``on_violation``,
        ``expire_after``, ``rng``, ``ledger``, ``label``, ``checkpoint``, ``rounds_per_person``: see
        :class:`dpbandits.PrivatePolicy`, also for errors.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> policy = ShuffleGLM(dim=2, budget=Budget(4.0, 1e-6), horizon=3000, rng=rng)
    >>> chosen = []
    >>> for _ in range(3000):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, float(rng.random() < (0.2, 0.8)[decision.index]))
    ...     chosen.append(decision.index)
    >>> bool(np.mean(chosen[1500:]) > 0.9)    # the worse arm is eliminated
    True
    """

    trust: ClassVar[Literal["shuffle"]] = "shuffle"
    prices_persons = True
    secret = ("rows",)

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        budget: Budget,
        horizon: int,
        theta_bound: float = 3.0,
        batches: Sequence[int] | None = None,
        parameters: Parameters = "practical",
        exploration: float = 1.0,
        matrix_share: float = 0.2,
        analysis: Literal["numeric", "paper"] = "numeric",
        failure_probability: float = 0.01,
        **options: Unpack[PrivateOptions],
    ) -> None:
        self.link = get_link(link)
        super().__init__(dim, self.link.reward_range, budget=budget, horizon=horizon, **options)
        low, high = finite_rewards(self.reward_range)
        S = self.theta_bound = positive("theta_bound", theta_bound)
        T = integer("horizon", horizon, at_least=1)
        self.parameters = checked_parameters(parameters)
        self.exploration = positive("exploration", exploration)
        self.matrix_share = fraction("matrix_share", matrix_share)
        self.analysis = choice("analysis", analysis, "numeric", "paper")
        if analysis == "paper" and (self.rounds_per_person or 1) > 1:
            raise ValueError(f"rounds_per_person must be 1 with analysis='paper', got {self.rounds_per_person}")
        self.failure_probability = fraction("failure_probability", failure_probability)

        # R: of self-concordance, and of rewards, as the paper uses one letter for both
        self._R = max(1.0, self.link.self_concordance(S), abs(low), abs(high))
        self._W = self.link.lipschitz(S)
        z = np.linspace(-S, S, 2001)
        self._L = max(float(np.abs(self.link.mean(z) - r).max()) for r in (low, high))
        self.batches = None if batches is None else [integer("batches", n, at_least=1) for n in batches]
        if self.batches is None and self.parameters == "practical":
            self.schedule = Schedule.batches(T, min(32 * dim, -(-T // 20)), 2.0)
        else:
            lengths = self._paper_lengths(T) if self.batches is None else self.batches
            self.schedule = Schedule(tuple(int(end) for end in np.cumsum(lengths) if end < T))
        ends = self.schedule.ends
        plans = [self._plan(end - start, k) for k, (start, end) in enumerate(pairwise([0, *ends]))]
        self._matrices = [matrix for matrix, _, _ in plans]
        self._fits = [descent for _, descent, _ in plans]
        self._objective = matching_loss(self.link, S, clip=self._L)
        self.rows = Rows(dim + 1, bound=1.0)  # x and r of the open batch, which users hold until it ends
        self.public = Estimates(np.zeros((len(ends), dim)), np.zeros((len(ends), dim, dim)))
        self.open_run((self.rounds_per_person or 1) * max_cost(total for _, _, total in plans))

    @property
    def thetas(self) -> Array:
        """θ_k of the batches so far, one per row."""
        return self.public.thetas[: self.releases]

    @property
    def shapes(self) -> Array:
        """Q_k of the batches so far, with half-width √(xᵀQ_k x)."""
        return self.public.shapes[: self.releases]

    # ------------------------------------------------------------------------------------- schedule and budget

    def _paper_lengths(self, T: int) -> list[int]:
        """B_1, B_2, … of Equations (6) and (7), with γ of Equations (20)–(22) and constants of 1."""
        d, S, R = self.dim, self.theta_bound, self._R
        epsilon, log_delta = self.budget.epsilon, math.log(self.dim**2 / self.budget.delta)
        M = max(2, math.floor(math.log2(max(2.0, math.log2(max(2, T))))))
        alpha = T ** (1.0 / (2.0 * (1.0 - 2.0 ** (1 - M))))
        sigma = R * log_delta * self._W / epsilon
        spread = math.sqrt(math.log(2 * d * M * T / self.failure_probability))
        lam = 20.0 * d * R * math.log(max(2, T)) + sigma * (2.0 * spread + 4.0 * math.sqrt(d))
        nu = R * S**2 / epsilon * math.sqrt(d * math.log(T * d / self.budget.delta) ** 3)
        gamma = R * S * math.sqrt(lam) + math.sqrt(4.0 * R * S * nu)
        kappa = self.link.kappa(S)
        first = (math.sqrt(kappa) * math.exp(3.0 * S) * d**2 * gamma**2 * alpha / S) ** (2.0 / 3.0)
        lengths = [min(float(T), first), alpha]
        while len(lengths) < M:
            lengths.append(alpha * math.sqrt(lengths[-1]))
        return [math.ceil(length) for length in lengths]

    def _plan(self, users: int, batch: int) -> _Plan:
        """What a batch of so many users releases, and at which cost."""
        d, budget, weight = self.dim, self.budget, 1.0 if batch == 0 else self._W
        if self.analysis == "paper":
            half = Budget(budget.epsilon / 2, budget.delta / 2, adjacency=budget.adjacency)
            matrix = VectorSum(d * (d + 1) // 2, users, weight, budget=half, analysis="paper").protocol
            part = ApproxDP(half.epsilon, half.delta, adjacency=budget.adjacency)
            return matrix, (half, 4 * _ITERATIONS, None), 2 * part
        return _numeric_plan(d, users, weight, self._L, budget, self.matrix_share, self.rounds_per_person or 1)

    # ---------------------------------------------------------------------------------------------- choose

    def score(self, arms: Array) -> Law:
        alive = self._alive(arms)
        shares = np.zeros(len(arms))
        if len(alive) == 1:
            shares[alive] = 1.0
            return Shares(shares)
        design = g_optimal_design(np.sqrt(self._weights(arms[alive]))[:, None] * arms[alive], tolerance=1.0)
        shares[alive] = design
        return Shares(shares)

    def _alive(self, arms: Array) -> NDArray[np.int64]:
        """Indices of the arms that no batch so far has ruled out, each batch among those that the earlier ones left."""
        centre = self.thetas @ arms.T
        half = np.sqrt(np.maximum(np.einsum("kij,ij->ki", arms @ self.shapes, arms), 0.0))
        low, high = centre - half, centre + half
        alive = np.arange(len(arms))
        while True:  # all batches at once, and once more after those that rule out an arm
            kept = high[:, alive] >= low[:, alive].max(axis=1, keepdims=True)
            drops = np.flatnonzero(~kept.all(axis=1))
            if not len(drops):
                return alive
            first = int(drops[0])
            alive, low, high = alive[kept[first]], low[first + 1 :], high[first + 1 :]

    def _weights(self, X: Array) -> Array:
        """μ̇(xᵀθ_1)/β(x) of every row; 1 in the first batch."""
        if self.releases == 0:
            return np.ones(len(X))
        weights = np.asarray(self.link.derivative(X @ self.thetas[0]))
        if self.parameters == "theory":
            weights = weights * np.exp(-self._R * np.minimum(2.0 * self.theta_bound, norms(X, self.shapes[0])))
        # NaN, which a caller's link may give, counts for nothing
        return np.where(weights > 0.0, np.minimum(weights, self._W), 0.0)

    # ----------------------------------------------------------------------------------------------- learn

    def learn(self, pending: Pending, reward: float) -> None:
        self.rows.append([*pending.arm, reward])

    # --------------------------------------------------------------------------------------------- release

    def close_batch(self) -> Estimates:
        """Sum the matrix and fit θ_k; what is computed from both is post-processing."""
        k, d = self.releases, self.dim
        protocol = self._matrices[k]
        rows = np.zeros((protocol.users, d + 1))  # users without a reward send zeros
        rows[: self.rows.count] = self.rows.array
        self.rows = Rows(d + 1, bound=1.0)
        X, r = rows[:, :d], rows[:, d]
        weights = self._weights(X)
        tally = Randomizer(protocol, rng=self.rng).tally(weights[:, None] * svec(X[:, :, None] * X[:, None, :]))
        matrix = smat(Analyzer(protocol).decode(Shuffler(protocol, rng=self.rng).shuffle_tallies(tally)))
        budget, rounds, cost = self._fits[k]
        from dpkit.optimize import shuffle_gradient_descent

        fit = shuffle_gradient_descent(
            self._objective,
            X,
            r,
            constraint=LpBall(2, d, self.theta_bound),
            budget=budget,
            schedule=self.analysis,
            max_iterations=rounds,
            smoothness=self._W,
            rng=self.rng,
            # refuses to draw anything but what was priced when the policy was made
            ledger=None if cost is None else Ledger(budget, plan=cost),
        )
        thetas, shapes = self.public.thetas.copy(), self.public.shapes.copy()
        thetas[k] = fit.x
        shapes[k] = self._shape(k, matrix, fit.noise_std * protocol.users, fit.nit, fit.step_size)
        return Estimates(thetas, shapes)

    def _shape(self, k: int, matrix: Array, gradient_noise: float, rounds: int, step: float) -> Array:
        """Q_k, for ``gradient_noise`` the standard deviation of the noise in a coordinate of a sum of gradients."""
        d, S, R = self.dim, self.theta_bound, self._R
        users = self._matrices[k].users
        sigma = self._matrices[k].noise_std(users)
        eigenvalues, U = np.linalg.eigh(matrix)
        low, high = self.reward_range
        if self.parameters == "practical":
            eigenvalues = np.maximum(eigenvalues + 1.0 + sigma * math.sqrt(2 * d), 1.0)
            if k == 0:  # V has no μ̇ in it: its mean over [−S, S]
                eigenvalues *= float(self.link.mean(S) - self.link.mean(-S)) / (2.0 * S)
            # the mean over the last half of the iterates sees the noise of so many rounds
            noise = gradient_noise**2 * 2.0 / rounds
            chance = 0.25 * (high - low) ** 2 / self._W
            axes = self.exploration**2 * (chance / eigenvalues + noise / eigenvalues**2)
        else:
            log_T = math.log(self.horizon or 1)
            spread = math.sqrt(
                math.log(2 * d * len(self.schedule.ends) * (self.horizon or 1) / self.failure_probability)
            )
            reach = sigma * (4.0 * math.sqrt(d) + 2.0 * spread)
            lam = 20.0 * d * R * max(1.0, log_T) + reach  # so that λ_min is what the lemma asks for
            lam_min, lam_max = lam - reach, lam + reach
            # of the descent, and of the ridge that it leaves out
            per_user = (2.0 * S) ** 2 / (step * rounds) + 0.5 * step * d * (gradient_noise / users) ** 2
            nu = users * per_user + 0.5 * lam_max * S**2
            chance = math.sqrt(log_T + d) + R * (log_T + d) / math.sqrt(lam_min)
            gamma = 24.0 * R * S * chance + 2.0 * S * math.sqrt(lam_max) + math.sqrt(4.0 * R * S * nu)
            eigenvalues = np.maximum(eigenvalues + lam, lam_min)
            axes = gamma**2 / eigenvalues * (self.link.kappa(S) if k == 0 else 1.0)
        return np.asarray((U * axes) @ U.T)


@lru_cache(maxsize=256)  # the same batches come again in every run of a simulation
def _numeric_plan(
    d: int, users: int, weight: float, L: float, budget: Budget, matrix_share: float, batches: int
) -> _Plan:
    """Matrix and descent, composed, at a cost of which so many are just within the budget."""
    check_delta(batches * (d * (d + 1) // 2 + _ITERATIONS * d), budget)
    mu = 1.0 / calibrate(lambda z: batches * Gaussian(z), budget)
    while True:
        for_matrix, for_fit = (
            Budget(gdp_epsilon(mu * math.sqrt(share), _PART_DELTA), _PART_DELTA, adjacency=budget.adjacency)
            for share in (matrix_share, 1.0 - matrix_share)
        )
        # so many that the schedule of the descent takes them all
        z = calibrate(Gaussian, for_fit)
        rounds = min(_ITERATIONS, max(1, math.ceil(users**2 / (4.0 * d * z**2))))
        apart = outer_product_sensitivity(weight, budget.adjacency)
        matrix = batch_protocol(d * (d + 1) // 2, users, weight, apart, for_matrix)
        descent = rounds * VectorSum(d, users, L, budget=for_fit, rounds=rounds).cost
        total = matrix.cost + descent
        # binomial noise costs a little more than the Gaussian noise of this μ
        if delta(batches * total, budget.epsilon) <= budget.delta:
            return matrix, (for_fit, rounds, descent), total
        mu *= 0.998

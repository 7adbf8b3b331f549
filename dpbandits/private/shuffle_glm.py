"""ShuffleGLM: generalized linear bandits in the shuffle model, by elimination of arms from batch to batch.

For people who trust a shuffler, but not the server, and whose arm sets come at random. The horizon is cut into a few
batches. In the first, every user plays an arm from a G-optimal design of its own arm set; the batch ends with V, the
shuffled sum of x xᵀ, and θ_1, fitted by shuffled gradient descent. In batch k ≥ 2, a user

1. drops every arm whose upper confidence bound is below the best lower one, for each earlier batch in turn;
2. scales the others by √(μ̇(xᵀθ_1)/β(x)), β(x) = exp(R·min(2S, half-width of x after batch 1)), and
3. plays from a G-optimal design of the scaled arms; H_k sums what step 2 makes of x xᵀ, and θ_k is fitted to batch k.

Where no base rate is stated, the first batch also tells the level of rewards, the sum of (r − middle)/(high − low) at a
twentieth of its squared privacy loss, and θ_1 is fitted at it (``private.parts.records.level_of``).

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
* Where the level of rewards is learned, the first batch has one more sum, of numbers in [−½, ½]; users without a reward
  add the null number.
* The releases of a batch are composed and calibrated as a whole, with ``matrix_share`` of the squared privacy loss for
  the matrix. ``analysis="paper"`` gives each half of ε and of δ instead, with b and g of the paper's (122) and its
  composition over the rounds of a descent. It is not the paper's descent: this one stops after at most 200 rounds,
  where Algorithm 7 asks for ε²n²/(d·ln³(nd/δ)), about 10⁴ for ε/2 = 2, n = 5,000, d = 3.
* Users keep their rows until the batch ends, since every gradient is asked for at a new θ: a saved state holds them.
* An older state is refused after a crash, as in :class:`~dpbandits.policies.ShuffleOnePassGLM`.

The paper's ridge ½λ_max‖θ‖² in the fit is left out. The ball takes its place: a minimiser without it is within
½λ_max·S² of the regularised minimum, which ν in the theory's γ counts.

Cost per round: a G-optimal design, O(Kd²) and O(Kd) per step of it; per batch O(T_k·n_k·d) numbers and random bits.
Regret: the paper has Õ(d^{3/2}√(T/κ*) + d^{5/4}√(T/ε)/κ* + d²e^{3S}(κT)^{1/3}ε^{−2/3}) for its own algorithm (Theorem
E.3). It is not claimed for this one: the theory's ν bounds the descent's error in expectation, where Assumption E.2
wants it with probability 1 − T⁻⁴, and ζ stands where (20) has δ. The theory's parameters are for long runs: with d = 3,
S = 2, the probit link, ε = 4 and constants of 1, the first batch alone has more than 10⁹ rounds.

``parameters="published"`` is the paper's Algorithm 1 to the letter. It is **not private as claimed**, has no
``privacy()``, and is another class, :class:`~dpbandits.reference.published.shuffle_glm.PublishedShuffleGLM`, which says
why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Literal, Unpack, cast

import numpy as np

from accounting import Budget
from accounting.arrays import Array
from accounting.checks import choice, fraction, integer, positive
from dpbandits.policy.as_published import as_published
from dpbandits.policy.choices import Shares
from dpbandits.policy.parameters import Parameters, checked_parameters
from dpbandits.policy.private import PrivateOptions, PrivatePolicy, Schedule, finite_rewards
from dpbandits.policy.protocol import Pending, Policy
from dpbandits.private.parts.batch_plans import numeric_plan, paper_lengths, paper_plan
from dpbandits.private.parts.half_widths import HalfWidths, surviving
from dpbandits.private.parts.held_rows import HeldRows
from dpbandits.private.parts.records import begins_in_the_middle
from dpkit.geometry import g_optimal_design
from dpkit.models.ellipsoid import norms
from dpkit.models.links import Link, get_link
from dpkit.moments.shuffled import max_cost

__all__ = ["ShuffleGLM"]


@dataclass(frozen=True)
class Estimates:
    """The public half: θ_k and Q_k of every batch, zero for those to come, and the level of rewards.

    √(xᵀQ_k x) is the half-width of x.
    """

    thetas: Array
    shapes: Array
    level: float


@dataclass(frozen=True)
class Design:
    """The three steps of a user.

    Attributes
    ----------
    link : Link
    ends : sequence of int
        Of the batches.
    bound : float
        W, that of the weights of x xᵀ.
    beta : (float, float), optional
        2S and R of the theory's β(x); in practice β(x) = 1.
    """

    link: Link
    ends: Sequence[int]
    bound: float
    beta: tuple[float, float] | None

    def __call__(self, public: Estimates, arms: Array, since: int) -> Shares:
        past, shares = sum(end <= since for end in self.ends), np.zeros(len(arms))
        alive = surviving(arms, public.thetas[:past], public.shapes[:past])
        if len(alive) == 1:
            shares[alive] = 1.0
        else:
            scaled = np.sqrt(self.weights(public, arms[alive], since))[:, None] * arms[alive]
            shares[alive] = g_optimal_design(scaled, tolerance=1.0)
        return Shares(shares)

    def weights(self, public: Estimates, X: Array, since: int) -> Array:
        """μ̇(xᵀθ_1)/β(x) of every row; 1 in the first batch."""
        if since == 0:
            return np.ones(len(X))
        weights = np.asarray(self.link.derivative(public.level + X @ public.thetas[0]))
        if self.beta is not None:
            reach, R = self.beta
            weights = weights * np.exp(-R * np.minimum(reach, norms(X, public.shapes[0])))
        # NaN, which a caller's link may give, counts for nothing
        return np.where(weights > 0.0, np.minimum(weights, self.bound), 0.0)


def _published() -> type[Policy]:
    from dpbandits.reference.published.shuffle_glm import PublishedShuffleGLM

    return PublishedShuffleGLM


@as_published(_published)
class ShuffleGLM(PrivatePolicy[Estimates]):
    """A private generalized linear bandit through a shuffler: a paper's algorithm, kept for comparison.

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
    parameters : {"practical", "theory", "published"}
        Ridge λ and half-widths. Theory: λ and γ of the paper's Equations (20) and (26) with the standard deviation of
        the noise as it is. Practical: λ is 1 more than σ√(2d), which bounds the noise in the matrix on average;
        half-widths are ``exploration`` standard deviations of xᵀθ_k, by chance and by noise, and β(x) = 1. Published:
        not private, see the module's text; of the parameters here it takes ``batches``, and also ``max_steps``.
    exploration : float
        Of the practical parameters.
    matrix_share : float
        Share, in (0, 1), of the squared privacy loss of a batch that is spent on its matrix.
    analysis : {"numeric", "paper"}
        How noise is calibrated; see the module's text.
    failure_probability : float
        ζ of the theory's parameters.
    **options
        ``reward_range`` (by default that of the link; it must be finite), ``base_rate`` (by default learned where
        rewards are well below the middle of their range, if noise permits; not for counts, nor with the theory's
        parameters or the paper's analysis), ``on_violation``,
        ``expire_after``, ``rng``, ``ledger``, ``label``, ``checkpoint``, ``rounds_per_person``: see
        :class:`dpbandits.PrivatePolicy`, also for errors.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> policy = ShuffleGLM(dim=2, budget=Budget(4.0, 1e-6), horizon=1000, rng=rng)
    >>> chosen = []
    >>> for _ in range(1000):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, float(rng.random() < (0.2, 0.8)[decision.index]))
    ...     chosen.append(decision.index)
    >>> bool(np.mean(chosen[500:]) > 0.9)    # the worse arm is eliminated
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
        parameters: Parameters | Literal["published"] = "practical",
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
        self.parameters = checked_parameters(cast(Parameters, parameters))
        self.exploration = positive("exploration", exploration)
        self.matrix_share = fraction("matrix_share", matrix_share)
        self.analysis = choice("analysis", analysis, "numeric", "paper")
        if analysis == "paper" and (self.rounds_per_person or 1) > 1:
            raise ValueError(f"rounds_per_person must be 1 with analysis='paper', got {self.rounds_per_person}")
        self.failure_probability = fraction("failure_probability", failure_probability)

        # R: of self-concordance, and of rewards, as the paper uses one letter for both
        R, W = max(1.0, self.link.self_concordance(S), abs(low), abs(high)), self.link.lipschitz(S)
        L = max(float(np.abs(self.link.mean(np.linspace(-S, S, 2001)) - r).max()) for r in (low, high))
        lengths = self.batches = None if batches is None else [integer("batches", n, at_least=1) for n in batches]
        if lengths is None and self.parameters == "theory":
            lengths = paper_lengths(dim, T, self.link, S, R, self.failure_probability, budget)
        if lengths is None:
            self.schedule = Schedule.batches(T, min(32 * dim, -(-T // 20)), 2.0)
        else:
            self.schedule = Schedule(tuple(int(end) for end in np.cumsum(lengths) if end < T))
        ends, m = self.schedule.ends, self.rounds_per_person or 1

        # of each batch: its users, a bound on their weights, and whether it is to tell the level
        learns = self.parameters == "practical" and begins_in_the_middle(self)
        spans = [(end - start, W if start else 1.0, learns and not start) for start, end in pairwise([0, *ends])]
        if analysis == "paper":
            plans = [paper_plan(dim, n, weight, budget) for n, weight, _ in spans]
        else:
            plans = [numeric_plan(dim, n, weight, L, budget, self.matrix_share, m, tells) for n, weight, tells in spans]
        self.rows = HeldRows(dim, plans, self.link, S, L, self.reward_range, analysis, self.rng)
        self.rule = self.design = Design(self.link, ends, W, (2.0 * S, R) if self.parameters == "theory" else None)
        known = self.parameters, self.link, S, R, self.reward_range
        self.half_widths = HalfWidths(*known, self.exploration, self.failure_probability, T, len(ends))
        self.public = Estimates(np.zeros((len(ends), dim)), np.zeros((len(ends), dim, dim)), 0.0)
        self.open_run(m * max_cost(plan.total for plan in plans))

    @property
    def thetas(self) -> Array:
        """θ_k of the batches so far, one per row."""
        return self.public.thetas[: self.releases]

    def learn(self, pending: Pending, reward: float) -> None:
        self.rows.add(pending.arm, reward)

    def close_batch(self) -> Estimates:
        k, last = self.releases, self.public
        fit = self.rows.release(k, lambda X: self.design.weights(last, X, self.schedule.start(k)), last.level)
        # all that follows is post-processing
        thetas, shapes = last.thetas.copy(), last.shapes.copy()
        thetas[k], shapes[k] = fit.theta, self.half_widths(fit, first=k == 0)
        return Estimates(thetas, shapes, fit.level)

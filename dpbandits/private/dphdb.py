"""DP-HDB: a jointly differentially private bandit with a sparse, high-dimensional parameter for every arm.

For whoever serves one of K standing treatments to people who are described by many features, of which few matter. Arm
k's reward has mean μ(Xᵀθ_k), ‖θ_k‖₁ ≤ S, for a context X with ‖X‖_∞ ≤ 1. Every θ_k is fitted by Frank–Wolfe steps over
the ℓ₁ ball, whose private part is to name one of its 2d corners by a noisy comparison: so d enters by its logarithm.

Source: Han, Liang, Liang, Wang, Yao & Zhang, "On private online convex optimization: optimal algorithms in ℓ_p-geometry
and high dimensional contextual bandits", Algorithm 3: t₀ forced rounds of every arm; from then on the arms whose
forced-sample estimate, which is that of the end of the forced rounds, comes within h/2 of the best, and of these the
one with the best all-sample estimate. Every arm steps whenever one does, whether or not it was played, as if those not
played had seen the row (0, μ(0)), of gradient 0: so the times of the steps say nothing.

* ``release="scheduled"`` (default): steps only at the ends of batches of growing, public length, several at a time:
  v = report-noisy-min over the corners of ⟨Σ clip(μ(xᵀθ_k) − r, ±C)·x, v⟩, summed over all rows of the arm so far at
  the current θ_k; θ_k ← θ_k + η(v − θ_k), η = 2/(i + 2) at the i-th step.
* ``release="every_round"``: one step per decision; each row enters once, in the round its reward comes, by the
  recursive gradient clip((t + 1)(μ(xᵀθ_t) − r) − t(μ(xᵀθ_{t−1}) − r), ±C)·x; η = 1/(t + 1). Many more, much noisier
  comparisons. This is near the paper's algorithm and is not it: there arms are forced in blocks, one arm steps in a
  forced round and no other, and the noise is Laplace's.
* ``parameters="published"``: the paper's algorithm to the letter. It is **not private as claimed** (the claim is not
  proved), has no ``privacy()``, and is another class, :class:`~dpbandits.reference.published.dphdb.PublishedDPHDB`,
  which says why.

Guarantee
---------
* Unit: one round, that is its context and its reward. Neighbours: two runs in which one round differs ("replace"), or
  counts for nothing ("zero_out").
* Joint privacy: what round s sees of any other round t is a function of the corners named and of s's own context (the
  billboard lemma of Hsu, Huang, Roth, Roughgarden & Wu 2014). The forced-sample estimate is an all-sample estimate of
  an earlier time, and the arms of forced rounds are public.
* A changed round moves the sums of at most two arms. Given what was released before, either it changes one summand
  of one arm: then every score of that arm moves by at most Δ = 2CS, and those of no other. Or, as another context may
  have led to another arm, it leaves one arm's sum and enters another's: then the scores of both move, by at most Δ/2
  each. A corner named with Gumbel noise of scale 2Δ/ε_i has a privacy loss of range ε_i in the first case; in the
  second the two arms' losses have range ε_i/2 each, and their sum again ε_i. So the i-th steps of *all* arms together
  cost ε_i²/8 in zCDP (bounded range: Cesar & Rogers 2021, arXiv:2106.09805), not K or two times that, and the whole
  run Σε_i²/8 = ρ, the largest that meets the budget.
* Rewards may be late, out of order or missing: steps come after a fixed number of *decisions*, and a change of when a
  reward comes is covered by the same two cases.
* After a crash, the newest state goes on and an older one is refused (see ``checkpoint``).
* It holds for the program as it runs: corners are sampled exactly from the scores as computed, and Δ includes their
  rounding, at most a thousandth of it.

Arms stand for the whole run. A newcomer's steps could ride along with the others' at no further cost; but it would
start at their small η and at ε_i that were planned for theirs, and Frank–Wolfe would leave it near 0; and its forced
rounds, on which the pre-selection rests, would have to interrupt everybody else's.
:class:`~dpbandits.policies.DisjointPrivateGLM` lets arms come and go, for contexts of a few features.

Cost per round: O(Kd) to select, O(d) to update; a scheduled step reads all rows of an arm, O(Td) for all arms, at about
ln(T)/ln(growth) times, with memory O(Td). Every round's step costs O(Kd), with memory O(Kd).

Regret of the paper's algorithm (its Theorem 4.3, under its margin, covariate and optimality assumptions):
O(ln²(dT)·ln²(T)/ε²). It is not proved for either form here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Unpack

import numpy as np

from accounting import ZCDP, Budget, calibrate
from accounting.arrays import Array
from accounting.checks import choice, integer, positive
from dpbandits.policy.as_published import as_published
from dpbandits.policy.choices import Law, Shares
from dpbandits.policy.offers import CUBE
from dpbandits.policy.private import PrivateOptions, PrivatePolicy
from dpbandits.policy.protocol import Pending, Policy
from dpbandits.policy.schedule import Schedule
from dpbandits.private.parts.corners import Corners, recursive_gradient, summed_gradient
from dpkit.geometry import LpBall
from dpkit.models.likelihood import Rows
from dpkit.models.links import Link, get_link

__all__ = ["DPHDB"]


@dataclass(frozen=True)
class Estimates:
    """The public half: the all-sample estimates, θ_{t−1} of the recursive gradients, and the forced-sample ones.

    The latter are zero before there are any.
    """

    theta: Array
    before: Array
    forced_theta: Array
    steps: int


def _published() -> type[Policy]:
    from dpbandits.reference.published.dphdb import PublishedDPHDB

    return PublishedDPHDB


@as_published(_published)
class DPHDB(PrivatePolicy[Estimates]):
    """A private sparse linear bandit in high dimension: forced rounds, then the best arm of a private estimate.

    Parameters
    ----------
    dim : int
        Dimension d of a context.
    n_arms : int
        K.
    link : str or Link
        μ in E[r | X, k] = μ(Xᵀθ_k).
    budget : Budget
        What the whole run may cost, for one round, or one person, replaced (or zeroed out); δ > 0.
    horizon : int
        T, the number of rounds that the policy will take part in.
    theta_bound : float
        S ≥ ‖θ_k‖₁.
    release : {"scheduled", "every_round"}
        See the module's text.
    forced : int, optional
        t₀, the forced rounds of every arm. By default 6·ln(2d)/√ρ, at most T/(10K).
    margin : float
        h > 0: an arm that is not the best for any context falls behind by more than this in all. Infinite (default):
        nothing is known, and all arms are pre-selected.
    growth : float
        Scheduled: length of a batch over the length of the one before, at least 1.
    steps : int, optional
        Scheduled: Frank–Wolfe steps per release. By default 10·ρ^{1/3}.
    clip : float, optional
        C. By default the largest |μ(Xᵀθ) − r| there is, or the length of ``reward_range`` where less: then nothing is
        clipped where the mean is predicted right. If the rewards' noise is about symmetric, 1.5 times its standard
        deviation is far better (Huber's gradient); with two-valued rewards that would fit something else than a mean.
    parameters : {"practical", "published"}
        Published: see the module's text; of the parameters here it takes ``forced`` and ``margin``, and a
        ``gradient_bound``.
    **options
        ``reward_range`` (by default that of the link; finite, unless ``clip`` is given), ``base_rate``,
        ``on_violation``, ``expire_after``, ``rng``, ``ledger``, ``label``, ``checkpoint``, ``rounds_per_person``: see
        :class:`dpbandits.PrivatePolicy`, also for errors.

    Attributes
    ----------
    theta : (K, d) ndarray
        The all-sample estimates; the forced-sample ones are ``public.forced_theta``.

    Examples
    --------
    Of 30 features one decides which arm is better:

    >>> import numpy as np
    >>> from accounting import Budget
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> policy = DPHDB(
    ...     30, 2, "linear", budget=Budget(1.0, 1e-6), horizon=3000, clip=0.2, reward_range=(-2, 2), rng=rng
    ... )
    >>> right = np.zeros(3000)
    >>> for t in range(3000):
    ...     X = rng.uniform(-1, 1, 30)
    ...     decision = policy.select(X)
    ...     policy.update(decision, (X[4], -X[4])[decision.index] + rng.normal(scale=0.1))
    ...     right[t] = decision.index == (X[4] < 0)
    >>> bool(right[-1000:].mean() > 0.9)
    True
    >>> print(policy.privacy())
    (1, 1e-06)-DP joint, one round under replace, ε left 0 (SIMULATION: the noise came from a seeded generator...)
    """

    trust: ClassVar[Literal["joint"]] = "joint"
    offer = CUBE
    n_arms: int
    secret = ("sums", "rows")
    prices_persons = True
    choices_read = ("theta", "forced_theta")

    def __init__(
        self,
        dim: int,
        n_arms: int,
        link: str | Link = "logistic",
        *,
        budget: Budget,
        horizon: int,
        theta_bound: float = 1.0,
        release: Literal["scheduled", "every_round"] = "scheduled",
        forced: int | None = None,
        margin: float = math.inf,
        growth: float = 1.4,
        steps: int | None = None,
        clip: float | None = None,
        parameters: Literal["practical", "published"] = "practical",
        **options: Unpack[PrivateOptions],
    ) -> None:
        self.parameters = choice("parameters", parameters, "practical")
        self.link = get_link(link)
        super().__init__(dim, self.link.reward_range, budget=budget, horizon=horizon, **options)
        self.n_arms = integer("n_arms", n_arms, at_least=1)
        T, K, d = integer("horizon", horizon, at_least=1), self.n_arms, self.dim
        self.theta_bound = positive("theta_bound", theta_bound)
        self.margin = positive("margin", margin, finite=False)
        low, high = self.reward_range
        if clip is None and math.isinf(high - low):
            raise ValueError(f"reward_range must be finite where clip is not given, got reward_range={(low, high)}")
        least, most = (float(self.link.mean(e)) for e in (-self.theta_bound, self.theta_bound))
        self.clip = min(high - low, max(high - least, most - low)) if clip is None else positive("clip", clip)
        rho = 0.5 / calibrate(lambda z: ZCDP(0.5 / z**2, adjacency=budget.adjacency), budget) ** 2
        enough = min(math.ceil(6.0 * math.log(2 * d) / math.sqrt(rho)), -(-T // (10 * K)))
        self.forced = enough if forced is None else integer("forced", forced, at_least=1)
        few = max(1, round(10.0 * rho ** (1 / 3)))
        self.steps = few if steps is None else integer("steps", steps, at_least=1)

        self.release, self.growth, self.first_batch = release, growth, K * self.forced
        self.schedule = Schedule.of(release, T, self.first_batch, growth)
        self.steps_per_release = self.steps if release == "scheduled" else 1
        ball, cost = LpBall(1, d, self.theta_bound), ZCDP(rho, adjacency=budget.adjacency)
        calls, m = max(1, len(self.schedule.ends) * self.steps_per_release), self.rounds_per_person or 1
        self.corners = Corners.of(ball, self.clip, cost, calls, falling=release == "every_round", horizon=T, m=m)

        self.sums = np.zeros((K, d))  # Σ of the recursive gradients
        self.rows = [Rows(d + 1, bound=1.0, order=math.inf) for _ in range(K)]  # (x, r), scheduled
        zero = np.zeros((K, d))
        self.public = Estimates(zero, zero, zero, 0)
        self.open_run(cost)

    # ---------------------------------------------------------------------------------------------- choose

    def score(self, context: Array) -> Array:
        if self.decisions < self.first_batch:
            return np.asarray(np.arange(self.n_arms) == self.decisions % self.n_arms, np.float64)
        return self._pre_selected(context)

    def score_elsewhere(self, context: Array) -> Array | Law:
        if self.releases == 0:  # whoever does not know whose turn it is forces an arm at random
            return Shares(np.full(self.n_arms, 1.0 / self.n_arms))
        return self._pre_selected(context)

    def _pre_selected(self, context: Array) -> Array:
        scores = np.asarray(self.link.mean(self.public.theta @ context))
        if math.isfinite(self.margin):
            rough = self.link.mean(self.public.forced_theta @ context)
            scores = np.where(rough > rough.max() - 0.5 * self.margin, scores, -math.inf)
        return scores

    # --------------------------------------------------------------------------------------- learn, and release

    def learn(self, pending: Pending, reward: float) -> None:
        k, context, known = pending.index, pending.arm, self.public
        if self.release == "scheduled":
            self.rows[k].append(np.append(context, reward))
            return
        thetas = known.theta[k], known.before[k]
        self.sums[k] += recursive_gradient(context, reward, thetas, known.steps + 1, self.link, self.clip)

    def close_batch(self) -> Estimates:
        """Step with every arm, whether or not it was played: the times of the steps are public."""
        known = self.public
        for _ in range(self.steps_per_release):
            i = known.steps + 1
            rate = 2.0 / (i + 2) if self.release == "scheduled" else 1.0 / (i + 1)
            steps = [
                self.corners.step(theta, self._gradient(theta, k), i, rate, self.rng)
                for k, theta in enumerate(known.theta)
            ]
            known = replace(known, theta=np.stack(steps), before=known.theta, steps=i)
        if self.decisions == self.first_batch:
            known = replace(known, forced_theta=known.theta)
        return known

    def _gradient(self, theta: Array, k: int) -> Array:
        if self.release == "scheduled":
            return summed_gradient(self.rows[k], theta, self.link, self.clip)
        return self.corners.gradient(self.sums[k])

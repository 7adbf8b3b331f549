"""DisjointPrivateGLM: a jointly differentially private bandit whose arms have a parameter each.

For whoever shows one of K standing things (articles, treatments, answers) to people who come with a context z, each of
them liked by other people. E[r | z, k] = μ(base + xᵀθ_k), x = (1, z)/√2: the disjoint model of Li, Chu, Langford &
Schapire (2010). Arms have names; they come and go at any round.

A round in which arm k was played leaves one small record in the sums of arm k, and nothing in those of others. With
ψ = 1/‖x‖ and g = r − c₀, c₀ the middle of the range of rewards, it is (ψ·x xᵀ, ψ·g·x), and a total over all arms takes
ψ·x xᵀ and ψ‖z‖⁴. Sums are taken over batches of growing, public length, and continual mechanisms release running ones.
Until the next release every round plays

    argmax_k xᵀθ_k + α_t‖x‖_{P_k}·ξ_k,    ξ_k ~ N(0, 1) afresh,    α_t = α·ln(T/t)/3 after a release at round t

(or an arm that is drawn by the gaps of the means μ(base + xᵀθ_k)), θ_k and P_k the mean and covariance of a posterior
that counts the noise: b_k is what θ_k would have left, of contexts with the moments H_k, with the covariance
s_b²·I + B²·H_k, s_b the noise of b. The prior variance τ² is estimated from all arms together; see
:mod:`dpbandits.private.parts.block_fits`. Arms are played where they are good, and there μ is flat: a line through what
was seen of them says the wrong thing of other contexts, and costs a tenth more with five logistic arms. H_k is not
taken from its own noisy sum: what the policy, which is known, collects of contexts with the released moments is known
more precisely; see :mod:`dpbandits.private.parts.block_model`.

Guarantee
---------
* Unit: one round, that is its context, its reward, and when that came. Neighbours: two runs in which one round differs
  ("replace"), or counts for nothing ("zero_out").
* One round enters one block (that of the arm played) and one batch, by one record, whose squared sensitivity is 1.072
  in units in which b alone has 1, whatever K is; another context may have led to another arm, whose block is another,
  and then the squared distance is the sum of two records' and smaller. Proof: ``moments.blocks.record_sensitivity``.
* All releases together are one Gaussian mechanism under adaptive inputs, so the whole run costs one ``Gaussian(z)``,
  calibrated to the budget exactly and recorded when the policy is made. Arms that come later bring streams of their
  own, on other coordinates, with the same z: they cost nothing more (``moments.blocks.BlockSums``).
* Which arms stand, and when, is public: ``add_arm`` and ``retire_arm`` must not be called because of a single round.
* Joint privacy: what round s sees of any other round t is post-processing of these releases, applied to s's own
  context (the billboard lemma of Hsu, Huang, Roth, Roughgarden & Wu 2014).
* Rewards may be late, out of order or missing: batches end after a fixed number of *decisions*; a record enters the
  batch in which its reward comes, also if its arm was retired meanwhile. The sensitivity covers the move.
* After a crash, the newest state goes on and an older one is refused (see ``checkpoint``).
* It holds for the program as it runs: records are summed as whole numbers, and noise is exact (``dpkit.continual``).

Cost per round: O(Kd²) to select, O(d²) to update; O(Kd³) and K(d(d + 3)/2) exact draws at each of about
ln(T)/ln(growth) releases, with 100K contexts replayed for up to 200 arms. Memory O(Kd²), some fifty numbers for each
of a block's. Arms that were retired keep their blocks.

There are no features that all arms share (the hybrid model of Li et al.). A term in the context alone moves the scores
of all arms alike, and so no choice. Features y_k of pairs of context and arm need K cross blocks Σψx yᵀ with noise of
their own, and the model that stands for the noisy H_k here, a replay of drawn contexts, would have to know the joint
law of all arms' features, which no released sum tells. Half of a record's length would go to them, too: where they say
nothing, even a hybrid that knew H exactly had a regret of 376 ± 38 (ε = 1, K = 5, four features of either kind,
T = 20,000, eight seeds), and this policy, which fitted a line then, 301 ± 24. Where they do say something, take
the ``groups`` of :class:`~dpbandits.policies.OnePassPrivateGLM`: the same blocks in one parameter, with the noise of
cross products that are zero dropped (460 ± 19 there, and 1235 ± 64 here, if half of the variance is theirs).

This policy belongs to this package. Its ingredients: Shariff & Sheffet (2018) for joint privacy by noisy sums;
Agrawal & Goyal (2013) for posterior draws; Dvijotham et al. (2024) for the noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal, Unpack

from accounting import Budget, Gaussian, calibrate
from accounting.arrays import Array
from accounting.checks import fraction, integer, positive
from dpbandits.policy.catalogue import Catalogue
from dpbandits.policy.choices import Law
from dpbandits.policy.many import Laws, Rounds
from dpbandits.policy.offers import BALL
from dpbandits.policy.parameters import Exploration, batch_discount
from dpbandits.policy.private import PrivateOptions, PrivatePolicy, Schedule, finite_rewards
from dpbandits.policy.progress import Found
from dpbandits.policy.together import until_scheduled
from dpbandits.private.parts.cold_start import clarity, warn_of_cold_start
from dpbandits.private.parts.disjoint import Estimate, parts
from dpkit.models.links import Link, get_link
from dpkit.models.prior import PriorLike, checked_prior
from dpkit.moments.blocks import BlockSums, record_sensitivity

__all__ = ["DisjointPrivateGLM"]


class DisjointPrivateGLM(PrivatePolicy[Estimate]):
    """A private bandit on features of visitors, behind a trusted server, with parameters of its own for every arm.

    Parameters
    ----------
    dim : int
        m, the dimension of a context z, ‖z‖ ≤ 1; the constant is added here.
    arms : int or list of str
        The names of the arms at the start; a number K stands for "0", …, str(K − 1).
    link : str or Link
        μ: "linear" where nothing is known of the curve.
    budget : Budget
        What the whole run may cost, for one round replaced (or zeroed out); δ > 0.
    horizon : int
        T, the number of rounds that the policy will take part in.
    theta_bound : float
        S: entries of θ_k have a prior standard deviation of at most S; where μ is flatter at the base rate than it may
        be elsewhere, of more in proportion, up to 3S.
    growth : float
        Length of a batch over the length of the one before, at least 1; without a meaning for discounted sums.
    first_batch : int, optional
        Rounds before the first release, in which all arms are played equally often. By default six times K times the
        noise in an entry, at least K and at most T/50. Of discounted sums every batch has that length, by default
        1/(20(1 − discount)), at most T/20 and at least K.
    discount : float, optional
        γ in (0, 1): a round of k rounds ago counts γ^k of what the newest one does (up to a batch's length), so that
        about 1/(1 − γ) rounds are remembered, which all arms share. For people whose tastes drift; by default nothing
        is forgotten.
    exploration : float or "inverse_gap"
        α ≥ 0; draws are the narrower the later it is (of discounted sums: always as wide). Or arms are drawn by the
        gaps of their predicted rewards (Foster & Rakhlin 2020), so that none that stands is ever without a chance; see
        :class:`~dpbandits.policies.OnePassPrivateGLM`.
    gamma_scale : float
        Of "inverse_gap", by default that of Vowpal Wabbit.
    prior : (array_like, array_like), optional
        Mean, of shape (m + 1,), and precision of a normal prior of every arm's θ_k, in the units of ``theta``. It
        must be public knowledge. Then the first batch plays by the prior, too.
    **options
        ``reward_range`` (by default that of the link; finite, or "learned"), ``base_rate`` (here: of an arm of which
        nothing is known), ``on_violation``, ``expire_after``, ``rng``, ``ledger``, ``label``, ``checkpoint``: see
        :class:`dpbandits.PrivatePolicy`, also for errors.

    Examples
    --------
    Three notices, of which the first is for the left and the second for the right:

    >>> import numpy as np
    >>> from accounting import Budget
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> policy = DisjointPrivateGLM(1, ["left", "right", "neither"], budget=Budget(1.0, 1e-6), horizon=3000, rng=rng)
    >>> right = np.zeros(3000)
    >>> for t in range(3000):
    ...     z = rng.uniform(-1, 1)
    ...     decision = policy.select([z])
    ...     liked = {"left": 0.5 - 0.4 * z, "right": 0.5 + 0.4 * z, "neither": 0.3}[decision.name]
    ...     policy.update(decision, float(rng.random() < liked))
    ...     right[t] = decision.name == ("left" if z < 0 else "right")
    >>> bool(right[-1000:].mean() > 0.8)
    True
    >>> policy.add_arm("both")
    >>> policy.retire_arm("neither")
    >>> policy.standing
    ['left', 'right', 'both']
    >>> print(policy.privacy())
    (1, 1e-06)-DP joint, one round under replace, ε left 0 (SIMULATION: the noise came from a seeded generator...)
    """

    trust: ClassVar[Literal["joint"]] = "joint"
    offer = BALL
    catalogue: Catalogue
    learns_range = True
    choices_read = ("theta", "covariance")
    public_parts = ("catalogue",)

    def __init__(
        self,
        dim: int,
        arms: int | Sequence[str],
        link: str | Link = "logistic",
        *,
        budget: Budget,
        horizon: int,
        theta_bound: float = 3.0,
        growth: float = 1.1,
        first_batch: int | None = None,
        discount: float | None = None,
        exploration: Exploration = 0.3,
        gamma_scale: float = 10.0,
        prior: PriorLike | None = None,
        **options: Unpack[PrivateOptions],
    ) -> None:
        self.link = get_link(link)
        super().__init__(dim, self.link.reward_range, budget=budget, horizon=horizon, **options)
        self.catalogue = Catalogue(arms)
        self.arms = list(self.catalogue.names)
        K, T = len(self.catalogue), integer("horizon", horizon, at_least=1)
        S = self.theta_bound = positive("theta_bound", theta_bound)
        rewards = finite_rewards(self.reward_range)
        self.growth = growth
        self.discount = None if discount is None else fraction("discount", discount)
        z = calibrate(lambda z: Gaussian(z, adjacency=budget.adjacency), budget)
        # so long that uniform choices add about as much to an arm's sums as the noise
        enough = max(K, min(round(6.0 * K * z * record_sensitivity(budget.adjacency)), -(-T // 50)))
        if self.discount is not None:
            enough = max(K, min(round(0.05 / (1.0 - self.discount)), -(-T // 20)))
        self.first_batch = enough if first_batch is None else integer("first_batch", first_batch, at_least=1)
        # sums that lose the same factor at every release need batches of one length
        self.schedule = Schedule.batches(T, self.first_batch, growth if self.discount is None else 1.0)
        self.prior = checked_prior(prior, self.dim + 1, math.inf)
        # where tastes drift an arm that is found late is worth as much
        model, lasting = (self.dim + 1, self.link, rewards, S), T if self.discount is None else None
        self.record, self.draws, self.fit = parts(*model, exploration, gamma_scale, lasting, self.prior)
        self.exploration, self.gamma_scale = self.draws.exploration, self.draws.gamma_scale
        self.sums = BlockSums(
            self.dim,
            K,
            0.5 / self.record.spread,
            **self.terms(),
            discount=batch_discount(self.discount, self.first_batch),
        )
        self.public = self.fit.nothing(K)
        # each arm has a K-th of the rounds; H_k is known far better than b_k
        remembered = T if self.discount is None else min(T, 1 / (1 - self.discount))
        steep, noise = S * self.link.lipschitz(S), self.sums.noise(max(1, len(self.schedule.ends)))
        clear = clarity(self.dim + 1, remembered / K, 1.0, steep, noise)
        warn_of_cold_start(self, clear, self.dim + 1)
        self.open_run(self.sums.cost)

    @property
    def theta(self) -> Array:
        """The released θ_k by slot, for the features (1, z)/√2: E[r | z, k] = μ(base + xᵀθ_k)."""
        return self.public.theta

    def found(self) -> Found:
        return self.fit.found(self.public, self.catalogue)

    def with_room(self, public: Estimate) -> Estimate:
        return self.fit.with_room(public, len(self.catalogue))

    def score(self, context: Array) -> Law:
        return self.draws(self.public, context, self.catalogue.active, self.schedule.start(self.releases))

    def score_many(self, rounds: Rounds) -> Laws:
        return self.draws.many(self.public, rounds, self.catalogue.active, self.schedule.start(self.releases))

    def steady(self) -> int:
        return until_scheduled(self)

    def close_batch(self) -> Estimate:
        rounds = self.schedule.start(self.releases), self.schedule.ends[self.releases]
        return self.fit(self.public, self.sums.release(), self.catalogue, rounds, self.rng, self.sums.decay)

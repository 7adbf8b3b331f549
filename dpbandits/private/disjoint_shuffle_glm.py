"""DisjointShuffleGLM: a shuffle-private bandit whose arms have a parameter each.

For whoever shows one of K standing things to people who trust a shuffler, but not the server. Model, records, and
how arms are chosen are those of :class:`~dpbandits.policies.DisjointPrivateGLM`; batches are those of
:class:`~dpbandits.policies.ShuffleOnePassGLM`: each round is one user of its batch, and sends a record of the arm that
it was shown, randomized in the coordinates of *all* arms, so that not even the arm shows. When batch j of n_j rounds
ends, its shuffled sums count with the weight ω_j = 1/(1 + n_0/n_j), n_0 the length at which the noise in b is as large
as what rewards add to it.

Guarantee
---------
* Unit: one round, that is its context and its reward: one user. Neighbours: two runs in which one round differs
  ("replace"), or counts for nothing ("zero_out").
* Every user is in exactly one batch, which is fixed by the number of *decisions* alone, and sends exactly one record:
  the null record if its reward does not come before the batch ends. Later rewards are accepted and count for nothing.
* Two records of a user, of one arm or of two, the null record among them, differ by at most
  ``moments.blocks.record_sensitivity``. A batch of n users is one :class:`~dpkit.shuffle.VectorSum` over n users,
  calibrated to the whole budget.
* What the server sees of earlier batches fixes what the users of a batch send as a function of their own data: the
  batches compose in parallel, adaptively, and the run costs the budget's (ε, δ), recorded when the policy is made.
* Which arms stand, and when, is public. An arm that comes in the middle of a batch sends null records until its end;
  the next batch has a sum with one block more, calibrated to the same budget: that costs nothing more.
* Shuffle privacy protects every user against the server; the rounds that others play are post-processing of what the
  shuffler lets out (the billboard lemma of Hsu, Huang, Roth, Roughgarden & Wu 2014).
* After a crash, the newest state goes on and an older one is refused (see ``checkpoint``). A saved state holds, of the
  open batch, randomized counts only, and the contexts of decisions that wait for their reward.

Cost per round: O(Kd²) to select; to update, a fixed number of random bits for each of K·d(d + 3)/2 coordinates, shared
by 64 users at a time: for tens of arms, not for thousands. Memory O(Kd²).

This policy belongs to this package. Its ingredients: Cheu, Joseph, Mao & Peng (2022) for the shuffled sum; Chowdhury &
Zhou (2022) for batches of users.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Unpack

import numpy as np

from accounting import ApproxDP, Budget
from accounting.arrays import Array
from accounting.checks import integer, positive
from dpbandits.policy.catalogue import Catalogue
from dpbandits.policy.choices import Law
from dpbandits.policy.many import Laws, Rounds
from dpbandits.policy.offers import BALL
from dpbandits.policy.parameters import Exploration
from dpbandits.policy.private import PrivateOptions, PrivatePolicy, Schedule, finite_rewards
from dpbandits.policy.progress import Found
from dpbandits.policy.together import until_scheduled
from dpbandits.private.parts.block_batches import BlockBatches, NoisyBlocks
from dpbandits.private.parts.disjoint import Estimate, Refit, parts
from dpkit.models.links import Link, get_link
from dpkit.models.prior import PriorLike, checked_prior

__all__ = ["DisjointShuffleGLM"]


@dataclass(frozen=True)
class Weighted:
    """The public half: what choices follow from, and the weighted sums Σω_j·(released sums of batch j).

    ``noise`` (K,) is Σ(ω_j·σ_j)² over the batches that had the arm.
    """

    estimate: Estimate
    blocks: Array
    total: Array
    noise: Array

    def with_room(self, arms: int, fit: Refit) -> Weighted:
        """And of the arms that have come since, up to so many."""
        more = max(0, arms - len(self.noise))
        blocks, noise = np.pad(self.blocks, ((0, more), (0, 0))), np.pad(self.noise, (0, more))
        return replace(self, estimate=fit.with_room(self.estimate, arms), blocks=blocks, noise=noise)

    def followed_by(self, batch: NoisyBlocks, spread: float) -> Weighted:
        """With one batch more; ``spread`` is B."""
        had, d = len(batch.blocks), self.estimate.theta.shape[1]
        # noise against the chance in a coordinate of one arm's b: K·d of them share the rounds
        n_0 = (2.0 * spread * batch.std) ** 2 * len(self.noise) * d / spread**2
        weight = 1.0 / (1.0 + n_0 / batch.users)
        blocks, noise = self.blocks.copy(), self.noise.copy()
        blocks[:had] += weight * batch.blocks
        noise[:had] += (weight * batch.std) ** 2
        return replace(self, blocks=blocks, total=self.total + weight * batch.total, noise=noise)


class DisjointShuffleGLM(PrivatePolicy[Weighted]):
    """A private bandit on features of visitors, through a shuffler, with parameters of its own for every arm.

    Parameters
    ----------
    dim : int
        m, the dimension of a context z, ‖z‖ ≤ 1; the constant is added here.
    arms : int or list of str
        The names of the arms at the start; a number K stands for "0", …, str(K − 1).
    link : str or Link
        μ: "linear" where nothing is known of the curve.
    budget : Budget
        What the whole run may cost one user, replaced (or zeroed out); δ > 0.
    horizon : int
        T, the number of rounds that the policy will take part in.
    theta_bound, exploration, gamma_scale
        See :class:`~dpbandits.policies.DisjointPrivateGLM`.
    growth : float
        Length of a batch over the length of the one before, at least 1.
    first_batch : int, optional
        Rounds before the first release, in which all arms are played equally often. By default 20K, at most T/20.
    prior : (array_like, array_like), optional
        Mean, of shape (m + 1,), and precision of a normal prior of every arm's θ_k, public knowledge, by which the
        first batch plays, too; see :class:`~dpbandits.policies.DisjointPrivateGLM`.
    **options
        ``reward_range`` (by default that of the link; it must be finite), ``base_rate`` (here: of an arm of which
        nothing is known), ``on_violation``, ``expire_after``, ``rng``, ``ledger``, ``label``, ``checkpoint``: see
        :class:`dpbandits.PrivatePolicy`, also for errors.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> policy = DisjointShuffleGLM(1, ["left", "right"], budget=Budget(2.0, 1e-6), horizon=2000, rng=rng)
    >>> right = np.zeros(2000)
    >>> for t in range(2000):
    ...     z = rng.uniform(-1, 1)
    ...     decision = policy.select([z])
    ...     liked = 0.5 - 0.4 * z if decision.name == "left" else 0.5 + 0.4 * z
    ...     policy.update(decision, float(rng.random() < liked))
    ...     right[t] = decision.name == ("left" if z < 0 else "right")
    >>> bool(right[-1000:].mean() > 0.75)
    True
    >>> report = policy.privacy()
    >>> report.trust, report.epsilon <= 2.0
    ('shuffle', True)
    """

    trust: ClassVar[Literal["shuffle"]] = "shuffle"
    offer = BALL
    catalogue: Catalogue
    # the ledger holds what one batch costs, which says nothing of several together
    prices_persons = False
    choices_read = ("estimate",)
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
        growth: float = 1.7,
        first_batch: int | None = None,
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
        enough = max(1, min(20 * K, -(-T // 20)))
        self.first_batch = enough if first_batch is None else integer("first_batch", first_batch, at_least=1)
        self.schedule = Schedule.batches(T, self.first_batch, growth)
        self.prior = checked_prior(prior, self.dim + 1, math.inf)
        model = self.dim + 1, self.link, rewards, S
        self.record, self.draws, self.fit = parts(*model, exploration, gamma_scale, T, self.prior)
        self.exploration, self.gamma_scale = self.draws.exploration, self.draws.gamma_scale
        ends, c = self.schedule.ends, 0.5 / self.record.spread
        self.sums = BlockBatches(ends, self.dim, K, c, budget=budget, rng=self.rng)
        zeros = np.zeros((K, self.sums.own)), np.zeros(self.sums.shared), np.zeros(K)
        self.public = Weighted(self.fit.nothing(K), *zeros)
        self.open_run(ApproxDP(budget.epsilon, budget.delta, adjacency=budget.adjacency))

    @property
    def theta(self) -> Array:
        """The released θ_k by slot, for the features (1, z)/√2: E[r | z, k] = μ(base + xᵀθ_k)."""
        return self.public.estimate.theta

    def found(self) -> Found:
        return self.fit.found(self.public.estimate, self.catalogue)

    def with_room(self, public: Weighted) -> Weighted:
        return public.with_room(len(self.catalogue), self.fit)

    def score(self, context: Array) -> Law:
        return self.draws(self.public.estimate, context, self.catalogue.active, self.schedule.start(self.releases))

    def score_many(self, rounds: Rounds) -> Laws:
        return self.draws.many(self.public.estimate, rounds, self.catalogue.active, self.schedule.start(self.releases))

    def steady(self) -> int:
        return until_scheduled(self)

    def close_batch(self) -> Weighted:
        """Close the batch and refit. All but the shuffled sum itself is public, or post-processing."""
        rounds = self.schedule.start(self.releases), self.schedule.ends[self.releases]
        known = self.public.followed_by(self.sums.release(), self.fit.record.spread)
        sums = self.sums.noisy(known.blocks, known.total, np.sqrt(known.noise))
        return replace(known, estimate=self.fit(known.estimate, sums, self.catalogue, rounds, self.rng))

"""ShuffleArms: named arms without features, for people who trust a shuffler, but not the server.

The shuffled twin of :class:`~dpbandits.policies.PrivateArms`: an A/B/n test whose server sees sums of batches and
nothing of anybody's reward. Each arm has batches of its own, of public numbers of decisions; the rounds that play arm k
while its batch j is open are the batch's n_j users. A device that knows its reward sends one randomized message of it,
and the shuffler lets out the sum of the batch (:mod:`dpkit.moments.shuffled_arms`). Posteriors of all arms follow from
what it lets out, as in ``PrivateArms`` (``private.parts.arm_posteriors``), and until the next release every round plays

    argmax_k m_k + α·√(1 − t/T)·s_k·ξ_k,    ξ_k ~ N(0, 1) afresh.

Guarantee
---------
* Unit: one round, that is its reward, whether that comes, and when: one user. Or one person, that is all rewards of
  that person. Neighbours: two runs in which one of them differs ("replace"), or counts as the middle of the range
  ("zero_out"). Who came in which rounds is public, and which arms were shown.
* Plays and the ends of batches are functions of what was released and of fresh draws, as in ``PrivateArms``. So every
  user is in one batch, fixed when its arm is chosen, and sends one message: of the middle of the range if the reward
  has not come by the end of the batch. Later rewards are accepted and count for nothing.
* Given what was released before, a change of one user changes one message of one batch, which meets the budget by
  itself: batches compose in parallel, adaptively, and the run costs the budget's (ε, δ), recorded when the policy is
  made.
* A person is a user of the first m = ``rounds_per_person`` of its rounds of which no two are in one batch
  (``policy.trust``), which is public; its other rounds are no users. So a person changes one message of
  each of m sums, and pays for m of them.
* Messages are of the kind with less noise: counts of many bits, or, in short batches at a large ε, randomized response.
  Both are priced exactly, by what is known of shuffled binomial noise, and of shuffled responses.
* Shuffle privacy protects every user against the server, too; what others see is post-processing (the billboard lemma
  of Hsu, Huang, Roth, Roughgarden & Wu 2014). All devices follow the protocol.
* Which arms are active, and when, is public. An arm that comes has batches of its own: that costs nothing more.
* After a crash, the newest state goes on and an older one is refused (see ``checkpoint``). A saved state holds
  randomized counts only.

Where rewards are late, much of a batch counts as the middle of the range, and means are nearer to it than they should
be: take a ``first_batch`` of several delays.

Cost per round: O(K) to select, the random bits of one message to update; O(K·J) at each of about K·J releases. Memory
O(K·J).

This policy belongs to this package. Its ingredients: Tenenbaum, Kaplan, Mansour & Stemmer (2021), "Differentially
private multi-armed bandits in the shuffle model", arXiv:2106.02900, for batches of an arm through a shuffler; Cheu,
Joseph, Mao & Peng (2022) for the sum; Cheu, Smith, Ullman, Zeber & Zhilyaev (2019) for responses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Unpack

import numpy as np

from accounting import Budget
from accounting.arrays import Array
from accounting.checks import integer, nonnegative
from dpbandits.durability.pending import Pending
from dpbandits.policy.catalogue import Catalogue
from dpbandits.policy.choices import Independent, Law
from dpbandits.policy.logs import refuse_where_plays_are_counted
from dpbandits.policy.many import Laws, Repeated, Rounds
from dpbandits.policy.offers import NOTHING
from dpbandits.policy.private import PrivateOptions, PrivatePolicy, Schedule, finite_rewards
from dpbandits.policy.progress import Found
from dpbandits.policy.trust import ShuffledInArms
from dpbandits.private.parts.arm_posteriors import Estimate, Posteriors, first_length
from dpkit.moments.shuffled_arms import ShuffledArms

__all__ = ["ShuffleArms"]


class ShuffleArms(PrivatePolicy[Estimate]):
    """A private A/B/n test through a shuffler: named arms without features.

    Parameters
    ----------
    arms : int or list of str
        The names of the arms at the start, at least two; a number K stands for "0", …, str(K − 1).
    budget : Budget
        What the whole run may cost one user, or one person, replaced (or zeroed out); δ > 0.
    horizon : int
        T, the number of rounds that the policy will take part in.
    reward_range : (float, float)
        Finite, and public.
    first_batch : int, optional
        Users of an arm's first batch. By default 11.3 times the noise of a sum, in lengths of the range, at least 8,
        and no more than T/(8K).
    growth : float
        Users of a batch over those of the one before, at least 1.
    exploration : float
        α ≥ 0.
    **options
        ``base_rate`` (here: around which the arms' common level is expected, with a standard deviation of half the
        range; by default its middle), ``on_violation``, ``expire_after``, ``decision_log``, ``rng``, ``ledger``,
        ``label``, ``checkpoint``, ``rounds_per_person``: see :class:`dpbandits.PrivatePolicy`, also for errors.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> policy = ShuffleArms(["plain", "witty", "loud"], budget=Budget(4.0, 1e-6), horizon=3000, rng=rng)
    >>> liked = {"plain": 0.1, "witty": 0.3, "loud": 0.15}
    >>> for _ in range(3000):
    ...     decision = policy.select()
    ...     policy.update(decision, float(rng.random() < liked[decision.name]))
    >>> max(policy.means(), key=policy.means().get)
    'witty'
    >>> print(policy.privacy())
    (4, 1e-06)-DP shuffle, one round under replace, ε left 0 (SIMULATION: the noise came from a seeded generator...)
    """

    trust: ClassVar[Literal["shuffle"]] = "shuffle"
    offer = NOTHING
    catalogue: Catalogue
    choices_read = ("mean", "width")
    public_parts = ("catalogue",)
    passed_on = ("dim",)
    prices_persons = True
    notes = 1  # the number of the batch of its arm that a decision is in
    sums: ShuffledArms

    def __init__(
        self,
        arms: int | Sequence[str],
        *,
        budget: Budget,
        horizon: int,
        first_batch: int | None = None,
        growth: float = 1.3,
        exploration: float = 0.8,
        **options: Unpack[PrivateOptions],
    ) -> None:
        super().__init__(1, (0.0, 1.0), budget=budget, horizon=horizon, **options)
        self.catalogue = Catalogue.of_several(arms)
        self.counting = ShuffledInArms()
        self.arms = list(self.catalogue.names)
        K, T, m = len(self.arms), integer("horizon", horizon, at_least=1), self.rounds_per_person or 1
        low, high = finite_rewards(self.reward_range)
        # a long batch's noise depends on its length next to nothing
        noise = float(ShuffledArms(1, 0.0, 1.0, [T], budget=budget, records=m).noise[0])
        self.first_batch = first_length(first_batch, noise, T, K)
        self.growth, self.exploration = growth, nonnegative("exploration", exploration)
        # of an arm, by the number of decisions for it
        self.schedule = Schedule.batches(T, self.first_batch, growth)
        lengths = np.diff(np.array([0, *self.schedule.ends], dtype=np.int64))
        self.sums = ShuffledArms(K, low, high, lengths.tolist(), budget=budget, records=m, rng=self.rng)
        model = low, high, self.base_rate, lengths.astype(np.float64), self.sums.noise, self.exploration, T
        self.posteriors = Posteriors(*model)
        self.public = self.posteriors.nothing(K)
        self.open_run(self.sums.cost)

    def means(self) -> dict[str, float]:
        """Of the active arms, the mean reward by the arm's own sums; see :meth:`PrivateArms.means`."""
        with self.lock:
            return self.public.means(self.catalogue, self.reward_range)

    def interval(self, arm: str, confidence: float = 0.95) -> tuple[float, float]:
        """Where the mean reward of an arm lies, by its own sums; see :meth:`PrivateArms.interval`."""
        with self.lock:
            return self.public.interval(self.catalogue, self.reward_range, arm, confidence, laplace=False)

    def found(self) -> Found:
        return self.posteriors.found(self.public, self.catalogue)

    def check_log(self) -> None:
        refuse_where_plays_are_counted(self)

    def with_room(self, public: Estimate) -> Estimate:
        return self.posteriors.with_room(public, len(self.catalogue))

    def score(self, nothing: Array) -> Law:
        return Independent(self.catalogue.offered(self.public.mean), self.public.width)

    def score_many(self, rounds: Rounds) -> Laws:
        return Repeated(self.score(rounds[0]), len(rounds))

    def steady(self) -> int:
        return self.posteriors.missing(self.public, self.sums.turns.counts(self.decisions))

    def note(self, arm: Array, index: int) -> tuple[int, ...]:
        return (int(self.public.closed[index]),)

    def decided(self, pending: Pending) -> None:
        self.sums.turns.decided(pending.round, pending.index if len(pending.arm) else None)

    def learn(self, pending: Pending, reward: float) -> None:
        self.sums.add(pending.index, reward)

    def last_release(self) -> int:
        return self.public.since

    def due(self) -> bool:
        return self.posteriors.full(self.public, self.sums.turns.counts(self.decisions)) is not None

    def close_batch(self) -> Estimate:
        arm = self.posteriors.full(self.public, self.sums.turns.counts(self.decisions))
        if arm is None:
            raise RuntimeError("no batch is due")
        return self.posteriors(self.public, arm, self.sums.release(arm, self.decisions), self.decisions)

    def most_releases(self) -> int:
        return len(self.catalogue) * len(self.schedule.ends)

    def resume(self, saved: Any) -> None:
        super().resume(saved)
        self.public.check()

"""PrivateArms: a jointly differentially private bandit of K named arms, without features: an A/B/n test that learns.

For whoever shows everybody one of a few things (headlines, prices, layouts) of which nothing is known but their names,
and takes a reward from a public range. Arms come and go.

Which arm a round plays follows from what was released before and from the policy's own draws. So it is public how often
each arm was played, and a reward touches the sum of one arm alone. A batch of arm k ends after a public number of
decisions *for k*, of which each further batch has ``growth`` times as many. Then Σ(r − c) over the rewards of k that
came meanwhile is released, c the middle of the range, with exact Laplace (or Gaussian) noise. Batches are disjoint: one
release pays for all of them, with δ = 0 if that is asked for. From what was released follow a common level of all arms,
how far they are apart, and with these a posterior of each arm's mean (``private.parts.arm_posteriors``). Until the next
release every round plays

    argmax_k m_k + α·√(1 − t/T)·s_k·ξ_k,    ξ_k ~ N(0, 1) afresh,

m_k and s_k the posterior's mean and standard deviation after a release at round t: Thompson's draws, narrower the
later it is, since an arm that is found late is worth little. No hint of the level or the size of rewards is needed.

Guarantee
---------
* Unit: one round, that is its reward, whether that comes, and when; or one person, that is all rewards of that person.
  Neighbours: two runs in which one round or person differs ("replace"), or its rewards never come ("zero_out"). Who
  came in which rounds is public.
* Plays are no secret. Let y_j be the j-th release, and ω the draws by which arms are chosen, not the noise. What is
  played between two releases is a function of (y_1, …, y_j, ω), *the same one* in both runs, and so is when the next
  batch ends, and of which arm. ``learn_log`` is refused: arms that others chose may tell of those who came. And
  ``register`` must be told choices by ``released()`` and fresh draws alone.
* For every ω, y is one vector of disjoint sums under adaptive inputs. A reward that is replaced moves the sum of its
  batch by the length R of the range at most; one that comes in another batch moves two sums, by R/2 each; one that
  never comes, one sum by R/2. So the L1 distance is at most R, R/2 under "zero_out" (``moments.ArmBatches``), and the
  whole run costs one ``Laplace(z)``, or one ``Gaussian(z)`` where that has less noise, recorded when the policy is
  made. With z = 1/ε it is ε-DP.
* A person teaches in the first m = ``rounds_per_person`` of its rounds, of which no two may be in one batch. That is
  decided as rounds are (``policy.trust``): a round teaches if its person had fewer than m that do, and none
  in the open batch of its arm. It follows from who came when and from releases, and is the same in both runs. Of two
  rewards that are late and come in one batch, the second is dropped: by the person's own data. So in each run the
  person has a part of at most R/2 in at most m sums, and the run costs m ``Laplace(z)`` or m ``Gaussian(z)``, whichever
  has less noise (proof: ``moments.ArmBatches``). With z = m/ε it is ε-DP.
* Which arms are active, and when, is public: ``add_arm`` and ``retire_arm`` must not be called because of a single
  round.
* Joint privacy: what round s sees of any other round t is post-processing of these releases (the billboard lemma of
  Hsu, Huang, Roth, Roughgarden & Wu 2014).
* After a crash, the newest state goes on and an older one is refused (see ``checkpoint``).
* It holds for the program as it runs: records are summed as whole numbers, and noise is exact.

How many rewards *came* is not released. Decisions that teach are counted, and a reward that is missing counts as the
middle of the range: estimates are nearer to it than they should be, of all arms alike if rewards are missing by chance.
A late reward enters the batch of its arm that is open when it comes.

Cost per round: O(K) to select, O(1) to update; O(K·J) at each of about K·J releases, J = ln(T)/ln(growth). Memory
O(K·J).

This policy belongs to this package. Its ingredients: Thompson (1933) for the draws; Sajed & Sheffet (2019) and Azize &
Basu (2022) for batches of an arm, each with Laplace noise of its own; Robbins (1956) for empirical Bayes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Unpack

import numpy as np

from accounting import Budget, Laplace
from accounting.arrays import Array
from accounting.checks import integer, nonnegative
from dpbandits.durability.pending import Pending, Together
from dpbandits.policy.catalogue import Catalogue
from dpbandits.policy.choices import Independent, Law
from dpbandits.policy.logs import refuse_where_plays_are_counted
from dpbandits.policy.many import Laws, Repeated, Rounds
from dpbandits.policy.offers import NOTHING
from dpbandits.policy.private import PrivateOptions, PrivatePolicy, Schedule, finite_rewards
from dpbandits.policy.progress import Found
from dpbandits.policy.together import until_ranged
from dpbandits.policy.trust import InArms
from dpbandits.private.parts.arm_posteriors import Estimate, Posteriors, first_length
from dpkit.moments.arm_batches import ArmBatches

__all__ = ["PrivateArms"]


class PrivateArms(PrivatePolicy[Estimate]):
    """A private A/B/n test that learns, behind a trusted server: named arms without features.

    Parameters
    ----------
    arms : int or list of str
        The names of the arms at the start, at least two; a number K stands for "0", …, str(K − 1).
    budget : Budget
        What the whole run may cost, for one round, or one person, replaced (or zeroed out). δ may be 0.
    horizon : int
        T, the number of rounds that the policy will take part in.
    reward_range : (float, float) or "learned"
        Finite, and public. Or the first rounds tell it (:mod:`dpbandits.policy.learned_range`).
    first_batch : int, optional
        Decisions for an arm before its first release. By default 11.3 times the noise of a sum, in lengths of the range
        (16/ε), at least 8, and no more than T/(8K).
    growth : float
        Decisions of a batch over those of the one before, at least 1.
    longest_batch : int, optional
        Decisions of a batch at most.
    exploration : float
        α ≥ 0.
    **options
        ``base_rate`` (here: around which the arms' common level is expected, with a standard deviation of half the
        range; by default its middle), ``on_violation``, ``expire_after``, ``decision_log``, ``rng``, ``ledger``,
        ``label``, ``checkpoint``, ``rounds_per_person``: see :class:`dpbandits.PrivatePolicy`, also for errors.

    Examples
    --------
    Three headlines, of which nothing is known beforehand, at ε = 1 and δ = 0:

    >>> import numpy as np
    >>> from accounting import Budget
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> policy = PrivateArms(["plain", "witty", "loud"], budget=Budget(1.0, 0.0), horizon=3000, rng=rng)
    >>> liked = {"plain": 0.1, "witty": 0.3, "loud": 0.15}
    >>> for _ in range(3000):
    ...     decision = policy.select()
    ...     policy.update(decision, float(rng.random() < liked[decision.name]))
    >>> max(policy.means(), key=policy.means().get)
    'witty'
    >>> low, high = policy.interval("witty")
    >>> low < 0.3 < high
    True
    >>> print(policy.privacy())
    (1, 0)-DP joint, one round under replace, ε left 0 (SIMULATION: the noise came from a seeded generator...)
    """

    trust: ClassVar[Literal["joint"]] = "joint"
    offer = NOTHING
    catalogue: Catalogue
    learns_range = True
    choices_read = ("mean", "width")
    public_parts = ("catalogue",)
    passed_on = ("dim",)
    takes_pure = True
    prices_persons = True
    sums: ArmBatches

    def __init__(
        self,
        arms: int | Sequence[str],
        *,
        budget: Budget,
        horizon: int,
        first_batch: int | None = None,
        growth: float = 1.3,
        longest_batch: int | None = None,
        exploration: float = 0.8,
        **options: Unpack[PrivateOptions],
    ) -> None:
        super().__init__(1, (0.0, 1.0), budget=budget, horizon=horizon, **options)
        self.catalogue = Catalogue.of_several(arms)
        self.arms = list(self.catalogue.names)
        K, T = len(self.arms), integer("horizon", horizon, at_least=1)
        low, high = finite_rewards(self.reward_range)
        self.sums = ArmBatches(K, low, high, budget=budget, records=self.rounds_per_person or 1, rng=self.rng)
        if self.persons is not None:
            self.counting, self.drops_arms = InArms(), True
        self.first_batch = first_length(first_batch, self.sums.noise / (high - low), T, K)
        self.growth, self.exploration = growth, nonnegative("exploration", exploration)
        # of an arm, by the number of decisions for it
        self.longest_batch = None if longest_batch is None else integer("longest_batch", longest_batch, at_least=1)
        self.schedule = Schedule.batches(T, self.first_batch, growth, self.longest_batch)
        lengths = np.diff(np.array([0, *self.schedule.ends], dtype=np.float64))
        model = low, high, self.base_rate, lengths, self.sums.noise, self.exploration, T
        self.posteriors = Posteriors(*model)
        self.public = self.posteriors.nothing(K)
        self._looked = 0, False
        self.open_run(self.sums.cost)

    def means(self) -> dict[str, float]:
        """Of the active arms, the mean reward by the arm's own released sums; costs nothing.

        Arms of which nothing was released yet are left out.

        Raises
        ------
        ValueError
            If nothing was released of any of them.
        """
        with self.lock:
            found = self.public.means(self.catalogue, self.reward_range)
            return {name: self.in_rewards(mean) for name, mean in found.items()}

    def interval(self, arm: str, confidence: float = 0.95) -> tuple[float, float]:
        """Where the mean reward of an arm lies, by what was released of it; costs nothing.

        It holds for one arm at one time that was fixed beforehand, such as the end of the run: not for whoever looks
        again and again until it excludes something, nor for the arm that happens to be the best of many. It takes
        rewards as independent and all as come.

        Parameters
        ----------
        arm : str
            Its name; of several arms of this name that of the last one.
        confidence : float
            In (0, 1).

        Raises
        ------
        ValueError
            If there never was such an arm, nothing was released of it yet, or for another confidence.
        """
        laplace = isinstance(self.sums.law, Laplace)
        with self.lock:
            low, high = self.public.interval(self.catalogue, self.reward_range, arm, confidence, laplace=laplace)
            return self.in_rewards(low), self.in_rewards(high)

    def found(self) -> Found:
        return self.posteriors.found(self.public, self.catalogue)

    @property
    def changed(self) -> bool:
        """Whether the last batch of an arm contradicts its earlier ones: the world moved.

        Without a change that is so once in 10⁵ batches. Post-processing, so it costs nothing. Of arms that are not
        played nothing is seen.
        """
        if self._looked[0] != self.releases:  # asked in every round
            self._looked = self.releases, self.posteriors.contradicted(self.public, 1e-5)
        return self._looked[1]

    def check_log(self) -> None:
        refuse_where_plays_are_counted(self)

    def with_room(self, public: Estimate) -> Estimate:
        return self.posteriors.with_room(public, len(self.catalogue))

    def score(self, nothing: Array) -> Law:
        return Independent(self.catalogue.offered(self.public.mean), self.public.width)

    def score_many(self, rounds: Rounds) -> Laws:
        return Repeated(self.score(rounds[0]), len(rounds))

    def steady(self) -> int:
        # whatever is chosen, no batch ends before so many decisions for its arm
        return min(self.posteriors.missing(self.public, self.sums.turns.counts(self.clock)), until_ranged(self))

    def decided(self, pending: Pending) -> None:
        # as it is decided, live or from the journal: whether its reward comes is a secret
        self.sums.turns.decided(pending.round, pending.index if len(pending.arm) else None)

    def decided_many(self, made: Together) -> None:
        if not all(map(len, made.arms)):
            super().decided_many(made)
        else:
            self.sums.turns.decided_many(made.rounds[0], np.array(made.indices))

    def learn_many(self, made: Together, rewards: Sequence[float]) -> None:
        # of rounds that are nobody's: persons teach one by one
        self.sums.add_many(np.array(made.indices), np.array(rewards))

    def learn(self, pending: Pending, reward: float) -> None:
        self.sums.add(pending.index, reward)
        self.sums.turns.tell(pending.index, pending.person)

    def last_release(self) -> int:
        return self.decisions_at(self.public.since)

    def due(self) -> bool:
        return self.posteriors.full(self.public, self.sums.turns.counts(self.clock)) is not None

    def close_batch(self) -> Estimate:
        arm = self.posteriors.full(self.public, self.sums.turns.counts(self.clock))
        if arm is None:
            raise RuntimeError("no batch is due")
        return self.posteriors(self.public, arm, self.sums.release(arm, self.clock), self.clock)

    def most_releases(self) -> int:
        return len(self.catalogue) * len(self.schedule.ends)

    def resume(self, saved: Any) -> None:
        super().resume(saved)
        self.public.check()

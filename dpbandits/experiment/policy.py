"""The policy below an experiment: who is assigned to which arm, and what is released of their values.

Guarantee
---------
* Unit: one decision, that is its value, whether that comes, and when; or one person, who has one decision. Neighbours:
  two runs in which the values of one differ ("replace"), or never come ("zero_out").
* Assignments are no secret. They are functions of earlier releases and of draws that depend on nothing else, the same
  functions in both runs; a person who comes again has the decision of the first time. So the counts are the same, too,
  and when batches end.
* A value enters the sum of its own decision's batch or none (``dpkit.moments.TrialBatches``, which has the proof of the
  sensitivity): the whole run costs one ``Laplace(z)``, or one ``Gaussian(z)`` where that has less noise, recorded when
  the experiment is made. With δ = 0 and z = 1/ε it is ε-DP.
* An experiment that stops by what it has found stops by what it has released. ``end`` must be called for reasons that
  have nothing to do with a single person's values.

Cost per decision: O(K); per release some milliseconds (e-values of pairs of arms).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal, Unpack

import numpy as np
from numpy.typing import ArrayLike

from accounting import Budget
from accounting.arrays import Array
from accounting.checks import choice, fraction, integer
from dpbandits.durability.pending import Pending
from dpbandits.experiment.batches import batch_ends
from dpbandits.experiment.metrics import Metrics
from dpbandits.experiment.readings import Readings
from dpbandits.experiment.sequences import Sequences
from dpbandits.experiment.stopping import Stop, best_arm, top_two
from dpbandits.experiment.visits import Visits
from dpbandits.policy.catalogue import Catalogue
from dpbandits.policy.choices import Independent, Law, Shares, Ties, Told
from dpbandits.policy.decision import Decision
from dpbandits.policy.offers import NOTHING
from dpbandits.policy.private import PrivateOptions, PrivatePolicy, Schedule
from dpbandits.policy.trust import AsRewarded
from dpbandits.private.parts.arm_posteriors import Posteriors
from dpkit.moments.trial_batches import STEPS, TrialBatches

__all__ = ["ExperimentPolicy"]

# of the draws of an adaptive assignment, over the posterior's standard deviation: more than 1, as noise has longer
# tails than the model's, and no arm may be given up for a single draw of it (one run in twenty did, at 0.8 and 1)
_EXPLORATION = 1.2


class InBatches(AsRewarded):
    """A value counts when it comes, in the batch of its decision; for what is of a closed one nobody waits."""

    def released(self, policy: PrivatePolicy[Any]) -> None:
        closed = policy.public.closed
        for key in [key for key, one in policy.waiting.items() if one.note[0] < closed[one.index]]:
            del policy.waiting[key]
            if policy.decision_log is not None:
                policy.decision_log.closed(key, None)


class ExperimentPolicy(PrivatePolicy[Readings]):
    """Assignments of an experiment; :class:`dpbandits.Experiment` is what people use, and says what the arguments are.

    Its ``select`` and ``update`` are those of every policy. Where the budget protects persons each has one decision,
    which is returned again whenever the person comes.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpbandits import Experiment
    >>> test = Experiment(["old", "new"], budget=Budget(1.0, 0.0, unit="person"), horizon=1000)
    >>> test.assign(person="ann").name in ("old", "new")
    True
    """

    trust: ClassVar[Literal["joint"]] = "joint"
    offer = NOTHING
    takes_pure = True
    warned = False
    notes = 1
    choices_read = ("mean", "width", "shares")
    passed_on = ("dim",)
    secret = ("sums", "visits")
    sums: TrialBatches

    def __init__(
        self,
        arms: Sequence[str],
        *,
        budget: Budget,
        horizon: int,
        alpha: float,
        assignment: str,
        baseline: str,
        metrics: Mapping[str, tuple[float, float]],
        missing: Mapping[str, float],
        wait: int,
        stop_when: str | None,
        worthwhile: float,
        **options: Unpack[PrivateOptions],
    ) -> None:
        first = next(iter(metrics.values()), (0.0, 1.0))
        super().__init__(1, first, budget=budget, horizon=horizon, **options)
        self.counting = InBatches()
        self.arms = list(Catalogue(arms).names)  # which refuses what are no names
        self.n_arms = K = len(self.arms)
        if K < 2:
            raise ValueError(f"arms must be at least two, got {self.arms}")
        self.alpha = fraction("alpha", alpha)
        self.assignment = choice("assignment", assignment, "adaptive", "fixed")
        self.baseline = choice("baseline", baseline, *self.arms)
        if len(metrics) > 1 and options.get("decision_log") is not None:
            raise ValueError("decision_log must be None for several metrics: it has one column of rewards")
        self.measured = Metrics(metrics, missing, clip=self.on_violation == "clip")
        self.metrics, self.missing = self.measured.ranges, self.measured.missing
        low, high = self.reward_range
        self.stop_when, self.worthwhile = stop_when, float(worthwhile)
        self.stop = Stop.of(stop_when, self.worthwhile / (high - low))
        T, self.wait = integer("horizon", horizon, at_least=1), integer("wait", wait, at_least=0)
        told = list(self.metrics.values()), list(self.missing.values())
        sums = partial(TrialBatches, K, *told, wait=self.wait, budget=budget, rng=self.rng)
        self.sums = sums(ends=batch_ends(T, K, sums(ends=[1]).noise))
        self.schedule = Schedule(self.sums.ends.tolist())
        self.sequences = Sequences(self.sums.cost, self.sums.scale, STEPS, T, self.assignment == "fixed")
        lengths = np.diff(self.sums.ends, prepend=0).astype(np.float64)
        self.posteriors = Posteriors(0.0, 1.0, 0.5, lengths, self.sums.noise, _EXPLORATION, T)
        self.visits = Visits()
        J = len(lengths) + 1
        none, m = np.zeros((K, J), np.int64), len(self.metrics)
        even, flat = np.full(K, 1.0 / K), np.full((K, m), 0.5)
        sums_of = np.zeros((K, J, m), np.int64)
        start = Readings(np.zeros(K, np.int64), sums_of, none, none, even, even, flat, flat, even, 0, 0, "")
        self.public = self._reckoned(start, 0)
        self.open_run(self.sums.cost)

    def name_of(self, index: int) -> str:
        return self.arms[index]

    # --------------------------------------------------------------------------------------------- assignments

    def select(self, arms: ArrayLike | None = None, person: str | bytes | int | None = None) -> Decision:
        """Assign somebody to an arm; a person who was assigned before has that decision still."""
        self.check_process()
        with self.lock:
            self.check_open()
            known = None if self.persons is None else self.visits.find(self.who(person), self.decisions)
            if known is not None:
                round, index = known
                law = Told(math.nan, len(self.arms))  # of the first time
                return Decision(round, index, np.zeros(1), np.empty(0), self.waiting.run, law, self.arms[index])
            self.settle()
            self.check_running()
            return super().select(np.zeros(1) if arms is None else arms, person)

    def register(
        self,
        arms: ArrayLike | None,
        index: int,
        person: str | bytes | int | None = None,
        *,
        probability: float | None = None,
        release: int | None = None,
    ) -> Decision:
        """Write down an assignment by :meth:`released`, of somebody who has none yet, while the experiment runs."""
        self.check_process()
        with self.lock:
            self.check_open()
            if self.persons is not None and self.visits.find(self.who(person), self.decisions) is not None:
                raise ValueError("person must have no decision yet, as each has one: whoever comes again keeps that")
            self.settle()
            self.check_running()
            return super().register(arms, index, person, probability=probability, release=release)

    def check_running(self) -> None:
        """Refuse decisions after the end."""
        if self.public.stopped:
            raise ValueError(
                f"the experiment must still run for one more decision, got one that has ended: {self.public.stopped}"
            )

    def check_log(self) -> None:
        """Refuse logs: their assignments may tell of those who came."""
        raise ValueError("rows must be analysed by Experiment.analyse, got a log to learn from")

    def score(self, nothing: Array) -> Law:
        if self.assignment == "fixed":
            return Ties(-self.sums.totals(self.decisions).astype(np.float64))
        return self.score_elsewhere(nothing)

    def score_elsewhere(self, nothing: Array) -> Law:
        if self.assignment == "fixed":
            return Shares(np.full(len(self.arms), 1.0 / len(self.arms)))
        if self.stop.kind == "best":
            return Shares(self.public.shares)
        return Independent(self.public.mean, self.public.width)

    def note(self, arm: Array, index: int) -> tuple[int, ...]:
        return (self.sums.open_batch(index),)

    def decided(self, pending: Pending) -> None:
        # as it is decided, live or from the journal: whether its value comes is a secret
        self.sums.decided(pending.round, pending.index)
        if self.persons is not None:
            self.visits.add(pending.person, pending.round, pending.index)

    def learn(self, pending: Pending, reward: Any) -> None:
        values = reward if isinstance(reward, tuple) else (reward,)
        self.sums.add(pending.index, pending.note[0], values)

    def checked_reward(self, reward: Any) -> Any:
        """The value of one metric, or those of several, by their names, as a tuple."""
        values = self.measured.checked(reward)
        return values if len(values) > 1 else values[0]

    # ------------------------------------------------------------------------------------------------ releases

    def last_release(self) -> int:
        return self.public.since

    def due(self) -> bool:
        return self.sums.due(self.decisions) is not None

    def close_batch(self) -> Readings:
        arm = self.sums.due(self.decisions)
        if arm is None:
            raise RuntimeError("no batch is due")
        return self._released(arm)

    def _released(self, arm: int) -> Readings:
        known = self.public
        j, ends = int(known.closed[arm]), self.sums.ends
        before = int(ends[j - 1]) if j else 0
        end = int(ends[j]) if j < len(ends) else math.inf
        count = min(int(self.sums.totals(self.decisions)[arm]), end) - before
        closed, sums, counts, when = (one.copy() for one in (known.closed, known.sums, known.counts, known.when))
        sums[arm, j] = self.sums.release(arm, self.decisions)
        counts[arm, j], when[arm, j] = count, self.decisions
        closed[arm] += 1
        return self._reckoned(replace(known, closed=closed, sums=sums, counts=counts, when=when), self.decisions)

    def _reckoned(self, known: Readings, decisions: int) -> Readings:
        """With all that follows from the sums."""
        lengths, missing = self.posteriors.lengths, self.sums.missing
        whole = known.counts[:, :-1] == lengths
        batches, center, spread = np.minimum(known.closed, whole.sum(axis=1)), [], []
        for metric, absent in enumerate(missing.tolist()):
            above = known.sums[:, :-1, metric] / STEPS + lengths * (absent - 0.5)
            wide = self.posteriors.of(batches, np.where(whole, above, 0.0), 0)
            center.append(np.clip(wide.mean, 0.0, 1.0))
            spread.append(wide.width / _EXPLORATION)
        late = math.sqrt(max(0.0, 1.0 - decisions / self.posteriors.horizon))
        width = late * _EXPLORATION * spread[0]
        shares = top_two(center[0], spread[0]) if self.stop.kind == "best" else known.shares
        best, stopped = known.found, known.stopped
        if known.closed.all():
            evidence = known.evidence(missing)
            best = best or best_arm(self.sequences, evidence, self.alpha)
            where = self.arms.index(self.baseline)
            stopped = stopped or self.stop.reason(self.sequences, evidence, self.alpha, where, best)
        chosen = replace(
            known, mean=center[0], width=width, shares=shares, since=decisions, found=best, stopped=stopped
        )
        return replace(chosen, center=np.stack(center, axis=1), spread=np.stack(spread, axis=1))

    def update(self, decision: Decision | int, reward: Any) -> None:
        """As every policy's; what comes for a closed batch is passed over."""
        if reward is not None:
            self.checked_reward(reward)
        with self.lock:
            if self._late(self.waiting.key(decision)):
                self._passed_over(reward)
            else:
                super().update(decision, reward)

    def check_told(self, key: int, reward: Any) -> None:
        if not self._late(key):
            super().check_told(key, reward)
        else:
            if reward is not None:
                self.checked_reward(reward)
            self._passed_over(reward)

    def _passed_over(self, reward: Any) -> None:
        """Say once that a value came too late, to whoever tells it."""
        if reward is not None and not self.warned and not self.public.stopped:
            self.warned = True
            warnings.warn(
                "a value came after the batch of its decision was released: if it was not told before, it does not "
                "count, as if it had never come. If many are so late, means are wrong: give them time by wait=, the "
                f"number of further decisions for which a batch waits (here {self.wait})",
                stacklevel=4,
            )

    def _late(self, key: int) -> bool:
        """Whether a decision is of a batch that is closed, or may be: its value counts for nothing any more."""
        with self.lock:
            closed = self.public.closed
            ended = np.where(closed > 0, self.sums.filled[np.arange(len(closed)), np.maximum(closed - 1, 0)], 0)
            return key not in self.waiting and 0 <= key < (self.decisions if self.public.stopped else int(ended.max()))

    def end(self, reason: str) -> None:
        """Release what is worth it of the open batches, and make no further decision."""
        self.check_process()
        with self.lock:
            self.check_open()
            if self.public.stopped:
                return
            self.prepare(np.empty((0, self.dim)))
            for arm in range(len(self.arms)):
                while not self.public.stopped and self._worthwhile(arm):
                    self.run.begin()
                    self.unseen = self._released(arm)
                    self.releases += 1
                    self.keep()
                    self.expose()
                    self.run.end()

            def change() -> None:
                self.public = replace(self.public, stopped=self.public.stopped or reason)

            self.publicly(change)

    def overdue(self, now: float) -> str:
        """That the date has come, if it has; ``now`` in seconds since 1970."""
        return f"the date {self.stop_when} has come" if now >= self.stop.until else ""

    def end_by_date(self, now: float) -> None:
        """End where the date has come."""
        if not self.public.stopped and (reason := self.overdue(now)):
            self.end(reason)

    def _worthwhile(self, arm: int) -> bool:
        """Whether an arm has an open batch of which noise is not most: half of the length that it was to have."""
        j, ends = int(self.public.closed[arm]), self.sums.ends
        if j >= len(ends):
            return False
        before = int(ends[j - 1]) if j else 0
        return 2 * (int(self.sums.totals(self.decisions)[arm]) - before) >= int(ends[j]) - before

    def most_releases(self) -> int:
        return len(self.arms) * (len(self.schedule.ends) + 1)

    def resume(self, saved: Any) -> None:
        super().resume(saved)
        self.public.check()

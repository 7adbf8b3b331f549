"""What every policy has in common: decisions with ids, checked input, privacy reports, and state on disk.

>>> import numpy as np
>>> from dpbandits.policies import Uniform
>>> policy = Uniform(dim=3, rng=np.random.default_rng(0))
>>> decision = policy.select(np.eye(3))            # arms: (K, d), rows of norm <= 1
>>> policy.update(decision, reward=1.0)            # at once, later, out of order, or never
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from accounting.arrays import Array
from accounting.checks import choice, integer
from accounting.printed import as_html, parameter_cells
from dpbandits.durability import state
from dpbandits.durability.decision_log import DecisionLog, log_of
from dpbandits.durability.pending import Pending
from dpbandits.policy import logs
from dpbandits.policy.catalogue import Catalogue, changing
from dpbandits.policy.checks import checked_base_rate, checked_range, checked_reward, checked_row, refuse_unknown
from dpbandits.policy.choices import Law
from dpbandits.policy.decision import Decision, PrivacyReport
from dpbandits.policy.elsewhere import made_elsewhere
from dpbandits.policy.offers import ROWS, Offer
from dpbandits.policy.open_decisions import OpenDecisions
from dpbandits.policy.options import CommonOptions, Options, Violation
from dpbandits.policy.rounds import ManyRounds
from dpkit import randomness
from dpkit.models.links import Link, get_link
from dpkit.states import Run, entries
from dpkit.states.registry import NOBODY, kind_of

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["CommonOptions", "Decision", "Options", "Pending", "Policy", "PrivacyReport"]

_LONGEST = 2**62  # what a state counts


class Policy(ManyRounds, ABC):
    """Base of all policies: it checks input and keeps open decisions; the algorithm is in ``score`` and ``learn``.

    A subclass keeps its constructor's arguments under their own names and lists what it learns in ``learned``; then it
    saves and loads, also if it is defined outside this package. Methods may be called from several threads.

    What a subclass has to say, and what it may:

    * ``score(arms)``: what is maximised, or the law of the choice; it learns, releases and draws nothing.
    * ``learn(pending, reward)``: take in the reward of a decision.
    * ``learned``: the names of the attributes that a state keeps: arrays, numbers, and parts that keep and resume
      themselves.
    * ``offer``: what a round offers, rows of arms or one context (:mod:`dpbandits.policy.offers`); with a context,
      ``n_arms`` says how many arms there are, or a ``catalogue``: where that is set arms have names, they come and go
      (``add_arm``, ``retire_arm``), and ``grow`` makes room for one more in what is learned.
    * ``prepare(arms)``, before one of them is chosen; ``checked_arms(arms)``, refusing them; ``chosen(arms, index)``,
      what is kept of a choice; ``note(arm, index)``, whole numbers that are kept beside it, ``notes`` many;
      ``decided(pending)``, after it was made. For many requests at once: :class:`~dpbandits.policy.rounds.ManyRounds`.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    rewards : (float, float)
        What ``reward_range`` is if it is not given.
    reward_range : (float, float), optional
        Rewards outside are refused or clipped.
    base_rate : float, optional
        A public guess of the mean reward of an arm taken at random, strictly inside the link's range: the linear
        predictor is μ⁻¹(base_rate) + xᵀθ. A constant feature is needed where this guess may be far off: it learns the
        rest. By default the middle of ``reward_range``; μ(0) where that, or the link's range on one side, is infinite.
        Policies that say so learn it where none is stated.
    on_violation : {"raise", "clip"}
        What happens to a reward outside its range. NaN is always refused.
    horizon : int, optional
        The number of rounds after which the policy takes part in no more.
    expire_after : int, optional
        A decision is forgotten when so many further rounds have passed without its reward; by default never.
    decision_log : path or DecisionLog, optional
        A new .csv or .parquet path, where every decision is logged with its probability and reward: raw data, as
        confidential as it. See :mod:`dpbandits.durability.decision_log`.
    rng : numpy.random.Generator, optional
        None is the secure source; a seeded generator makes a simulation.

    Examples
    --------
    >>> from dpbandits.policies import Uniform
    >>> isinstance(Uniform(2), Policy)  # examples/extend/policy.py is one of your own
    True
    """

    trust: ClassVar[Literal["none", "joint", "shuffle", "local"]] = "none"
    # what a round offers; ``takes`` is the word for it
    offer: Offer = ROWS
    takes: ClassVar[Literal["arms", "context"]] = "arms"
    # how many arms there are, where that is the same in all rounds
    n_arms: int | None = None
    catalogue: Catalogue | None = None
    notes: int = 0
    learned: ClassVar[tuple[str, ...]] = ()
    # arguments that are kept as attributes of another name, and those of this constructor that a subclass does not take
    kept_as: ClassVar[Mapping[str, str]] = {}
    passed_on: ClassVar[tuple[str, ...]] = ()

    ledger: Ledger | None = None
    # μ. A policy that is told another one sets it before it calls this class's constructor, which moves it to the base
    # rate. All others are linear, and subtract ``base_rate`` from rewards
    link: Link = get_link("linear")
    # the releases of a private policy
    run: Run | None = None
    # what a privacy report is about
    protects: str = "round"
    # whether the arms of decisions that count no more are dropped
    drops_arms: bool = False

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        state.register(cls)
        cls.takes = cls.offer.takes
        score = vars(cls).get("score")
        if "rng" in getattr(getattr(score, "__code__", None), "co_names", ()):
            raise TypeError(
                f"{cls.__name__}.score must draw nothing, as nobody would know how probable its choices are: return a "
                "law of dpbandits.policy.choices"
            )

    def __init__(
        self,
        dim: int,
        rewards: tuple[float, float] = (-math.inf, math.inf),
        *,
        reward_range: tuple[float, float] | None = None,
        base_rate: float | None = None,
        on_violation: Violation = "raise",
        horizon: int | None = None,
        expire_after: int | None = None,
        decision_log: str | Path | DecisionLog | None = None,
        rng: np.random.Generator | None = None,
        **unknown: object,
    ) -> None:
        for name in unknown:
            refuse_unknown(type(self), state.keywords(type(self)), name)
        self.dim = self.arm_size = integer("dim", dim, at_least=1)  # the latter is kept of a choice
        low, high = self.reward_range = checked_range(rewards if reward_range is None else reward_range)
        self.stated_base_rate, self.base_rate = base_rate, checked_base_rate(base_rate, self.link, low, high)
        self.link = self.link.at(self.base_rate)
        self.on_violation = choice("on_violation", on_violation, "raise", "clip")
        self.horizon = None if horizon is None else integer("horizon", horizon, at_least=1)
        if (self.horizon or 0) > _LONGEST:
            raise ValueError(f"horizon must be at most 2**62, got horizon={horizon!r}")
        self.expire_after = None if expire_after is None else integer("expire_after", expire_after, at_least=1)
        self.decision_log = None if decision_log is None else log_of(decision_log).begin()
        self.rng = randomness.resolve(rng)
        self.decisions = 0
        self.waiting = OpenDecisions()
        self.lock = threading.RLock()

    def __repr__(self) -> str:
        rounds = "" if self.horizon is None else f" of {self.horizon:,}"
        size = [] if self.catalogue is None else [f"{len(self.catalogue.standing)} arms"]
        size += [f"dim={self.dim}"] if self.dim > 1 or not size else []  # arms without features have none to speak of
        return f"{type(self).__name__}({', '.join(size)}): {self.decisions:,}{rounds} decisions, {self.promise()}"

    def __getstate__(self) -> dict[str, Any]:
        # a copy is used by other threads than the original, and leaves the log to it
        return {name: value for name, value in vars(self).items() if name != "lock"} | {"decision_log": None}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        vars(self).update(saved)
        self.lock = threading.RLock()

    def _repr_html_(self) -> str:
        budget = {name: one for name, one in vars(self).items() if name == "budget"}  # no plain values, as a state has
        return as_html(repr(self), parameter_cells(state.config_of(self) | budget))

    def promise(self) -> str:
        """What ``repr`` says of privacy."""
        return "not private"

    # ------------------------------------------------------------------------------------------ one round

    def select(self, arms: ArrayLike | None = None, person: str | bytes | int | None = None) -> Decision:
        """Choose one of ``arms``.

        Parameters
        ----------
        arms : array_like of shape (K, d), or a context of shape (d,)
            Finite rows of Euclidean norm at most 1; K may change from round to round. Or, for policies whose arms have
            parameters of their own, one context; None where only names are known (:mod:`dpbandits.policy.offers`).
        person : str, bytes or int, optional
            Whose round it is. Needed where the budget's unit is a person, and then of one type in the whole run;
            others do not look at it.

        Raises
        ------
        ValueError
            If the arms are no such array, the horizon is used up, or the person is no such id, or missing where one is
            needed. The policy's state is as it was.
        """
        X = self.checked_arms(arms)
        self.check_process()
        with self.lock:
            who = self.admitted(person)
            self.prepare(X)
            found = self.score(X)
            law, scores = (found, found.draw(self.rng)) if isinstance(found, Law) else (None, found)
            return self._decided(X, int(scores.argmax()), scores, law, (person, who), self.number())

    def register(
        self,
        arms: ArrayLike | None,
        index: int,
        person: str | bytes | int | None = None,
        *,
        probability: float | None = None,
        release: int | None = None,
    ) -> Decision:
        """Write down a choice that was made elsewhere, such as by :class:`dpbandits.Released`.

        It counts for the schedule and the horizon as ``select`` does, and its reward is learned like any other: also if
        it was made from an older release.

        Parameters
        ----------
        arms : array_like of shape (K, d), or a context of shape (d,)
            What was offered, as for ``select``.
        index : int
            Row of the arm that was chosen.
        person : str, bytes or int, optional
            As for ``select``.
        probability : float, optional
            With which it was chosen, in (0, 1].
        release : int, optional
            The ``number`` of what it was made from, for the log of decisions; by default the newest.

        Raises
        ------
        ValueError
            As by ``select``, or if there is no such arm or probability. The policy's state is as it was.
        """
        X = self.checked_arms(arms)
        row = checked_row(index, count := self.count(X))
        with made_elsewhere(self, X, count, person, probability, release) as (law, whose, number):
            return self._decided(X, row, np.empty(0), law, whose, number)

    def admitted(self, person: object) -> int:
        """Refuse a round that there must not be; else whose it is, as it is kept."""
        self.check_open()
        if self.horizon is not None and self.decisions >= self.horizon:
            raise ValueError(
                f"horizon must be at least {self.decisions + 1} for one more round, got {self.horizon}, which are "
                f"used up: start a policy with a longer one, or Doubling, which needs none"
            )
        return self.who(person)

    def _decided(
        self, arms: Array, index: int, scores: Array, law: Law | None, whose: tuple[object, int], release: int
    ) -> Decision:
        """Wait for the reward of what was chosen, and log it."""
        arm, (person, who) = self.chosen(arms, index), whose
        key = self.admit_choice(arm, index, who)
        made = Decision(key, index, arm, scores, self.waiting.run, law, self.name_of(index))
        if self.decision_log is not None:
            self.decision_log.decided(made, arms, person, release)
        return made

    def admit_choice(self, arm: Array, index: int, who: int) -> int:
        """Wait for the reward of a choice, whoever made it; the id of the decision."""
        key = self.decisions
        self.make(Pending(arm, index, key, self.note(arm, index), who))
        return key

    def update(self, decision: Decision | int, reward: float | None) -> None:
        """Learn the reward of a decision (given itself or by its id); None is a reward that will never come.

        Raises
        ------
        ValueError
            If the decision is unknown or already has its reward, or the reward is no number, NaN or outside
            ``reward_range``. The policy's state is as it was.
        """
        key = self.waiting.key(decision)
        self.check_process()
        with self.lock:
            self.check_open()
            pending = self.waiting.get(key)
            if pending is None:
                raise ValueError(f"decision must be one whose reward is still open, got decision id {key!r}")
            if reward is None:
                self.forget(key)
            else:
                value = self.reward_of(pending, reward)
                self.take_in(key, pending, value)
                if self.decision_log is not None:
                    self.decision_log.closed(key, value)

    def forget(self, decision: Decision | int) -> None:
        """Give up waiting for a reward, so that its arm is no longer kept. Says nothing about the data."""
        key = self.waiting.key(decision)
        self.check_process()
        with self.lock:
            self.check_open()
            if key in self.waiting:
                self.give_up(key)
            if self.decision_log is not None:
                self.decision_log.closed(key, None)

    @property
    def open_decisions(self) -> list[int]:
        """The ids of the decisions whose reward has not come."""
        with self.lock:
            return list(self.waiting)

    def learn_log(self, rows: Iterable[Any], *, progress: bool = True) -> int:
        """Learn from choices that were made elsewhere, before the first round or between two.

        Every row is a round of this run like any other, its reward told at once: for the schedule, the horizon, the
        noise and the persons' allowances. Whose choices they were does not matter, but for what can be learned from
        them (least for policies with noisy sums for every arm, from a log that hardly tried some arm). How many rows
        there are is public. Nobody else chooses meanwhile. With a checkpoint all are durable when this returns; after a
        crash in the middle, ``decisions`` tells how many were taken in, and the others can be given again.

        Parameters
        ----------
        rows : iterable
            Each a tuple ``(arm, reward)`` or ``(arm, reward, person)``, where the arm is the vector that was chosen; or
            a :class:`dpbandits.lab.evaluate.LoggedRound`, which policies that take contexts need; of slates ``(arms,
            clicks)``, by position what was shown and what ``update`` takes. All are checked before one is learned.
        progress : bool
            Show a progress bar on a terminal, if ``rich`` is installed.

        Returns
        -------
        int
            How many rows were learned.

        Raises
        ------
        ValueError
            Naming the first bad row: as ``select`` and ``update`` would, or there are more rows than the horizon has
            left. The policy's state is as it was.
        """
        return logs.learn(self, rows, progress)

    # --------------------------------------------------------------------------------- arms that come and go

    @property
    def standing(self) -> list[str]:
        """The names of the arms that may be chosen, in the order in which they came; none where arms have no names."""
        with self.lock:
            return [] if self.catalogue is None else self.catalogue.standing

    def add_arm(self, name: str) -> None:
        """Let a new arm stand, from the next decision on, of which nothing is known.

        Its coming is public and costs nothing: what is released of its records was charged with the run.

        Raises
        ------
        ValueError
            If it is no name, or that of an arm in use. The policy's state is as it was.
        TypeError
            If arms do not come and go here.
        """
        with changing(self, "add", name) as catalogue:
            catalogue.check_new(name)

            def change() -> None:
                catalogue.add(name, self.decisions)
                self.grow()

            self.publicly(change)

    def retire_arm(self, name: str) -> None:
        """Never choose this arm again. Rewards on their way are taken in; its name becomes free.

        Raises
        ------
        ValueError
            If no arm of that name stands, or it is the last one. The policy's state is as it was.
        TypeError
            If arms do not come and go here.
        """
        with changing(self, "retire", name) as catalogue:
            slot = catalogue.to_retire(name)
            self.publicly(lambda: catalogue.retire(slot, self.decisions))

    def grow(self) -> None:
        """Make room, in what is learned, for the arm that has come."""

    # ------------------------------------------------------------------------------------------- the algorithm

    @abstractmethod
    def score(self, arms: Array) -> Array | Law:
        """The quantity to maximise, of shape (K,), for arms that have been checked; nothing is learned or released.

        Where the choice is random it draws nothing itself, but returns the law of the choice, of which ``select`` makes
        the draw: so the probability of every choice is known.
        """

    @abstractmethod
    def learn(self, pending: Pending, reward: float) -> None:
        """Take in one checked reward of one arm of norm at most 1."""

    def prepare(self, arms: Array) -> None:
        """Do what is due before one of ``arms`` is chosen."""

    def checked_arms(self, arms: ArrayLike | None) -> Array:
        """What a round offers, as an array; a ``ValueError`` for anything else."""
        return self.offer.checked(arms, self.dim)

    def chosen(self, arms: Array, index: int) -> Array:
        """What is kept of a choice: a read-only copy of length at most 1, whatever happens to the caller's array."""
        return self.offer.chosen(arms, index)

    def note(self, arm: Array, index: int) -> tuple[int, ...]:
        """What is to be known of the choice besides the arm when its reward comes."""
        return ()

    def decided(self, pending: Pending) -> None:
        """A decision was made, also where it is made again from a journal: perhaps the last one once more."""

    def count(self, arms: Array) -> int:
        """Among how many arms there is a choice."""
        if self.takes == "arms":
            return len(arms)
        return len(self.catalogue) if self.catalogue is not None else self.n_arms or _LONGEST

    def name_of(self, index: int) -> str:
        """What an arm is called, where arms have names."""
        return "" if self.catalogue is None else self.catalogue.names[index]

    def check_log(self) -> None:
        """Refuse to learn from choices that were made elsewhere, where a policy has a reason to."""

    def check_process(self) -> None:
        """Refuse to go on in the child of a fork, where a policy has a reason to; before the lock is taken."""

    def check_open(self) -> None:
        """Refuse to go on after an interrupt, where a policy has a reason to; behind the lock."""

    def number(self) -> int:
        """Of the newest release, where there are any."""
        return 0

    def who(self, person: object) -> int:
        """What is kept of a person's id, which is checked: by default nothing."""
        if person is not None:
            kind_of(person)
        return NOBODY

    def make(self, pending: Pending) -> None:
        """Make a decision: write it down, count it, and wait for its reward."""
        self.admit(self.written(pending))

    def written(self, pending: Pending) -> Pending:
        """A decision that is about to be made, as it will wait for its reward: written down first, if it is at all."""
        return pending

    def admit(self, pending: Pending) -> None:
        """Count a decision, and wait for its reward."""
        self.counted(pending)
        key = self.decisions
        try:
            self.waiting[key] = pending
            self.decisions += 1
        except BaseException:
            if self.decisions == key:  # it was not made: nobody may tell its reward
                self.waiting.pop(key, None)
            raise
        if self.expire_after is not None:
            self.expire(self.decisions - self.expire_after)

    def counted(self, pending: Pending) -> None:
        """Note a decision for good; perhaps the last one once more, which an interrupt left unmade."""
        self.decided(pending)

    def expire(self, first: int) -> None:
        """Forget the decisions before ``first``."""
        for key in self.waiting.expire(first):
            if self.decision_log is not None:
                self.decision_log.closed(key, None)

    def take_in(self, key: int, pending: Pending, reward: float) -> None:
        """Close the decision and learn; closed first, so that no reward counts twice."""
        del self.waiting[key]
        self.learn(pending, reward)

    def give_up(self, key: int) -> None:
        """Wait no longer for the reward of an open decision."""
        del self.waiting[key]

    def together(self) -> AbstractContextManager[None]:
        """Rewards that are taken in inside of it are acknowledged together, at its end."""
        return nullcontext()

    def publicly(self, change: Callable[[], None]) -> None:
        """Make a change that everybody may know of; behind the lock."""
        change()

    def checked_reward(self, reward: float) -> float:
        """A reward within its range, or moved there."""
        return checked_reward(reward, *self.reward_range, clip=self.on_violation == "clip")

    def logged(self, arm: ArrayLike) -> Array:
        """What is kept of a choice that a log has by its arm alone."""
        return self.chosen(self.checked_arms([arm]), 0)  # type: ignore[arg-type]

    def reward_of(self, choice: Pending | Array, reward: float) -> float:
        """A reward of this decision, or of what a log has in its place, as :meth:`checked_reward` makes it."""
        return self.checked_reward(reward)

    def save(self, path: str | Path) -> None:
        """Write the whole state to a file that only its owner can read.

        The file holds unreleased sums and open decisions: it is as confidential as the data. It replaces an
        older one atomically. Nothing of a secure generator is written, so noise is never drawn twice.
        """
        state.save(self, path)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        ledger: Ledger | None = None,
        link: Link | None = None,
        unattended: bool = False,
        checkpoint: str | Path | None = None,
        decision_log: str | Path | DecisionLog | None = None,
    ) -> Policy:
        """Continue a policy from a file that ``save`` wrote, or from the checkpoint of a private one.

        Parameters
        ----------
        path : path
            The file. A checkpoint goes on being the checkpoint.
        ledger : Ledger, optional
            The ledger in which a private policy recorded its cost, if it was not its own. The cost is looked up there,
            not spent again, and older states are refused.
        link : Link, optional
            The caller's link, if the policy did not use a named one.
        unattended : bool
            Needed for a private policy without such a ledger: the caller's word that this is the newest state of its
            run and that nobody else continues it.
        checkpoint : path, optional
            Where a private policy that was saved by hand keeps its state from now on. A checkpoint stays where it is.
        decision_log : path or DecisionLog, optional
            The log of decisions that goes on, or a new one. A state does not name it: no file says where to write.

        Raises
        ------
        ValueError
            If the file is damaged, of another format, or of a policy that is not a ``cls``; if ``ledger`` does not
            hold the policy's cost; or if the state must not be continued.
        """
        policy = state.load(cls, state.Loader(Path(path), ledger, link, unattended, checkpoint))
        policy.decision_log = None if decision_log is None else log_of(decision_log)
        return policy

    def kept(self) -> dict[str, Any]:
        """What the algorithm has learned, as a tree of plain values and arrays."""
        return state.with_names(self, entries.kept(self, self.learned))

    def resume(self, saved: Any) -> None:
        """The inverse of :meth:`kept`, checked; keys of older states may have an underscore before them."""
        entries.resume(self, self.learned, state.renamed(state.without_names(self, saved), self.learned))

    def books(self) -> dict[str, Any]:
        """What else a state holds, but for the open decisions."""
        return {}

    def resume_books(self, tree: Mapping[str, Any], loader: state.Loader) -> None:
        """Go on with the books of a file, after :meth:`resume`."""
        at = self.decisions
        self.waiting.unpack(tree["open"], self.arm_size, self.notes, decisions=at, checked=self.checked_pending)

    @classmethod
    def elements(cls, config: Mapping[str, Any]) -> int:
        """How many numbers a state holds at least: no file can ask for more memory than its own size."""
        return cls.offer.numbers(config)

    def checked_pending(self, pending: Pending) -> Pending:
        """An open decision that was read from a file, checked like what comes in; the arm of a closed one is empty."""
        return state.open_decision(self, pending)

    def privacy(self, delta: float | None = None) -> PrivacyReport:
        """What has been spent and what is left, at ``delta`` (by default the budget's)."""
        return PrivacyReport.of(self, delta)

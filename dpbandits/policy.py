"""What every policy has in common: decisions with ids, checked input, privacy reports, and state on disk.

>>> import numpy as np
>>> from dpbandits.policies import Uniform
>>> policy = Uniform(dim=3, rng=np.random.default_rng(0))
>>> decision = policy.select(np.eye(3))            # arms: (K, d), rows of norm <= 1
>>> policy.update(decision, reward=1.0)            # at once, later, out of order, or never
>>> policy.update(decision, reward=1.0)
Traceback (most recent call last):
    ...
ValueError: decision must be one whose reward is still open, got decision id 0
"""

from __future__ import annotations

import math
import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Budget, Ledger
from accounting.checks import choice, fraction, integer
from dpbandits.decision_log import DecisionLog
from dpbandits.mathematics.choices import Law, Told
from dpbandits.mathematics.links import Link, get_link
from dpbandits.registry import NOBODY, kind_of
from dpkit import randomness
from dpkit.states import files
from dpkit.states.entries import conform, generator, generator_text, kept, resume, short, taken

__all__ = ["Array", "CommonOptions", "Decision", "Options", "Pending", "Policy", "PrivacyReport"]

Array = NDArray[np.float64]
Violation = Literal["raise", "clip"]

# rows whose norm passes 1 by rounding only are scaled back, so that a sensitivity computed for norm 1 holds
_NORM_TOLERANCE = 1e-9
# what a state counts
_LONGEST = 2**62
# one spare rounding step, so that scaled rows are at most 1 and not just about 1
_SPARE = 1 + 2.0**-50
# the products of rows; numpy 1 has a slower way only
_vecdot: Callable[[Array, Array], Array] = getattr(np, "vecdot", lambda X, Y: np.einsum("ij,ij->i", X, Y))


@dataclass(slots=True, eq=False)
class Decision:
    """What a policy chose in one round.

    Attributes
    ----------
    id : int
        Identifies the round when its reward comes back.
    index : int
        Row of the chosen arm.
    arm : ndarray of shape (d,)
        The chosen arm; read-only.
    scores : ndarray of shape (K,)
        What was maximised; not a probability. Empty where the choice was made elsewhere.
    run : str
        The run that the decision belongs to; no other one takes its reward.
    law : Law or None
        From what the choice was drawn; None where nothing was left to chance.
    name : str
        Of the arm, where arms have names; else empty.
    """

    id: int
    index: int
    arm: Array
    scores: Array
    run: str
    law: Law | None = None
    name: str = ""

    @property
    def probability(self) -> float:
        """With which this arm was chosen, given all that the policy had released (or learned) and the arms.

        1 where nothing was left to chance; NaN for a choice made elsewhere of which nobody said it. It is computed when
        it is asked for. Where there is no closed form it has a small error, ``probability_error``; see
        :mod:`dpbandits.mathematics.choices`.
        """
        return 1.0 if self.law is None else self.law.chance(self.index)[0]

    @property
    def probability_error(self) -> float:
        """The standard error of ``probability`` as a number; 0 where it is exact."""
        return 0.0 if self.law is None else self.law.chance(self.index)[1]


@dataclass(slots=True, eq=False)
class Pending:
    """A decision whose reward has not come: all that ``_learn`` is told of it.

    Attributes
    ----------
    arm : ndarray of shape (d,)
        What was chosen (for policies with a context: the context); empty once its batch is closed.
    index : int
        Its row.
    round : int
        Its number among the decisions of the run, from 0.
    note : tuple of int
        What else the policy has written down about the choice.
    person : int
        Whose round it was, hashed (:class:`dpbandits.registry.Registry`), where the policy protects persons; else
        ``NOBODY``.
    """

    arm: Array
    index: int
    round: int
    note: tuple[int, ...] = ()
    person: int = NOBODY


@dataclass(frozen=True)
class PrivacyReport:
    """What a policy has cost: (ε, δ) spent and left, and what these numbers are about."""

    epsilon: float
    delta: float
    left: float
    trust: Literal["none", "joint", "shuffle", "local"]
    adjacency: str
    unit: str
    simulation: bool

    def __str__(self) -> str:
        if math.isinf(self.epsilon):
            return "not private"
        mark = " (SIMULATION: the noise came from a seeded generator; not a private release)" if self.simulation else ""
        return (
            f"({self.epsilon:.6g}, {self.delta:g})-DP {self.trust}, one {self.unit} under {self.adjacency}, "
            f"ε left {self.left:.6g}{mark}"
        )


class CommonOptions(TypedDict, total=False):
    """The keywords that every policy takes; see :class:`Policy`."""

    reward_range: tuple[float, float] | None
    base_rate: float | None
    on_violation: Violation
    expire_after: int | None
    decision_log: str | Path | DecisionLog | None
    rng: np.random.Generator | None


class Options(CommonOptions, total=False):
    """Those of the policies that need no horizon."""

    horizon: int | None


@dataclass(frozen=True)
class Loader:
    """What whoever loads a state says; see :meth:`Policy.load`."""

    path: Path
    ledger: Ledger | None
    link: Link | None
    unattended: bool
    checkpoint: Path | None


class Policy(ABC):
    """Base of all policies: it checks and keeps the books; the algorithm is in ``_score`` and ``_learn``.

    A subclass keeps its constructor's arguments under their own names and lists what it learns in ``_learned``; then it
    saves and loads, also if it is defined outside this package. Methods may be called from several threads.

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
    on_violation : {"raise", "clip"}
        What happens to a reward outside its range. NaN is always refused.
    horizon : int, optional
        The number of rounds after which the policy takes part in no more.
    expire_after : int, optional
        A decision is forgotten when so many further rounds have passed without its reward; by default never.
    decision_log : path or DecisionLog, optional
        A new .csv or .parquet path, where every decision is logged with its probability and reward: raw data, as
        confidential as it. See :mod:`dpbandits.decision_log`.
    rng : numpy.random.Generator, optional
        None is the secure source; a seeded generator makes a simulation.
    """

    trust: ClassVar[Literal["none", "joint", "shuffle", "local"]] = "none"
    # what ``select`` is given: the arms' vectors, or one context for all arms (see dpbandits.per_arm)
    takes: ClassVar[Literal["arms", "context"]] = "arms"
    # the attributes that hold what was learned: arrays, numbers, and parts that keep and resume themselves
    _learned: ClassVar[tuple[str, ...]] = ()
    # how many numbers ``_note`` gives
    _notes: int = 0
    # how many arms there are, where that is the same in all rounds
    n_arms: int | None = None
    # every class there is, by module and name: so that ``load`` finds those of users, too
    _kinds: ClassVar[dict[str, type[Policy]]] = {}

    ledger: Ledger | None = None
    # μ. A policy that is told another one sets it before it calls this class's constructor, which moves it to the base
    # rate. All others are linear, and subtract ``base_rate`` from rewards
    link: Link = get_link("linear")
    # what a privacy report is about
    _protects: str = "round"

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        Policy._kinds[kind_name(cls)] = cls
        score = vars(cls).get("_score")
        if "rng" in getattr(getattr(score, "__code__", None), "co_names", ()):
            raise TypeError(
                f"{cls.__name__}._score must draw nothing, as nobody would know how probable its choices are: return a "
                "law of dpbandits.mathematics.choices"
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
    ) -> None:
        self.dim = integer("dim", dim, at_least=1)
        low, high = map(float, rewards if reward_range is None else reward_range)
        if not low < high:
            raise ValueError(f"reward_range must be increasing, got reward_range={reward_range!r}")
        self.reward_range = (low, high)
        self.base_rate = _checked_base_rate(base_rate, self.link, low, high)
        self.link = self.link.at(self.base_rate)
        self.on_violation = choice("on_violation", on_violation, "raise", "clip")
        self.horizon = None if horizon is None else integer("horizon", horizon, at_least=1)
        if self.horizon is not None and self.horizon > _LONGEST:
            raise ValueError(f"horizon must be at most 2**62, got horizon={horizon!r}")
        self.expire_after = None if expire_after is None else integer("expire_after", expire_after, at_least=1)
        self.decision_log = None if decision_log is None else _log(decision_log).begin()
        self.rng = randomness.resolve(rng)
        self.decisions = 0
        self._open: dict[int, Pending] = {}
        self._id = secrets.token_hex(16)
        self._lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        # a copy is used by other threads than the original, and leaves the log to it
        return {name: value for name, value in vars(self).items() if name != "_lock"} | {"decision_log": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lock = threading.RLock()

    # ------------------------------------------------------------------------------------------ one round

    def select(self, arms: ArrayLike, person: str | bytes | int | None = None) -> Decision:
        """Choose one of ``arms``.

        Parameters
        ----------
        arms : array_like of shape (K, d)
            Finite rows of Euclidean norm at most 1; K may change from round to round.
        person : str, bytes or int, optional
            Whose round it is. Needed where the budget's unit is a person, and then of one type in the whole run;
            others do not look at it.

        Raises
        ------
        ValueError
            If the arms are not such an array, the horizon is used up, or the person is missing where one is needed, or
            is no such id. The policy's state is as it was.
        """
        X = self._checked_arms(arms)
        self._check()
        with self._lock:
            who = self._admitted(person)
            self._settle(X)
            found = self._score(X)
            law, scores = (found, found.draw(self.rng)) if isinstance(found, Law) else (None, found)
            made = self._decided(X, int(scores.argmax()), scores, law, who)
            if self.decision_log is not None:
                self.decision_log.decided(made, X, person, self._number())
            return made

    def register(
        self,
        arms: ArrayLike,
        index: int,
        person: str | bytes | int | None = None,
        *,
        probability: float | None = None,
        release: int | None = None,
    ) -> Decision:
        """Write down a choice that was made elsewhere, such as by :class:`dpbandits.released.Released`.

        It counts for the schedule and the horizon as ``select`` does, and its reward is learned like any other: also if
        it was made from an older release.

        Parameters
        ----------
        arms : array_like of shape (K, d)
            What was offered (or the context), as for ``select``.
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
        X = self._checked_arms(arms)
        chosen, count = integer("index", index, at_least=0), self._count(X)
        if chosen >= count:
            raise ValueError(f"index must be that of one of {count} arms, got index={index!r}")
        chance = math.nan if probability is None else fraction("probability", probability, include_one=True)
        self._check()
        with self._lock:
            who = self._admitted(person)
            number = self._number()
            if release is not None and integer("release", release, at_least=0) > number:
                raise ValueError(f"release must be at most {number}, the newest there is, got release={release!r}")
            self._settle(X)
            made = self._decided(X, chosen, np.empty(0), Told(chance, count), who)
            if self.decision_log is not None:
                self.decision_log.decided(made, X, person, self._number() if release is None else release)
            return made

    def _flush_log(self) -> None:
        if self.decision_log is not None:
            self.decision_log.flush()

    def _number(self) -> int:
        """Of the newest release, where there are any."""
        return 0

    def _admitted(self, person: object) -> int:
        """Refuse a round that there must not be; else whose it is, as it is kept."""
        self._check_open()
        if self.horizon is not None and self.decisions >= self.horizon:
            raise ValueError(
                f"horizon must be at least {self.decisions + 1} for one more round, got {self.horizon}, which are "
                f"used up: start a policy with a longer one, or Doubling, which needs none"
            )
        return self._who(person)

    def _decided(self, arms: Array, index: int, scores: Array, law: Law | None, who: int) -> Decision:
        """Wait for the reward of what was chosen."""
        arm = self._chosen(arms, index)
        return Decision(self._admit_choice(arm, index, who), index, arm, scores, self._id, law, self._name(index))

    def _admit_choice(self, arm: Array, index: int, who: int) -> int:
        """Wait for the reward of a choice, whoever made it; the id of the decision."""
        key = self.decisions
        self._admit(Pending(arm, index, key, self._note(arm, index), who))
        return key

    def update(self, decision: Decision | int, reward: float | None) -> None:
        """Learn the reward of a decision (given itself or by its id); None is a reward that will never come.

        Raises
        ------
        ValueError
            If the decision is unknown or already has its reward, or the reward is no number, NaN or outside
            ``reward_range``. The policy's state is as it was.
        """
        key = self._key(decision)
        self._check()
        with self._lock:
            self._check_open()
            pending = self._open.get(key)
            if pending is None:
                raise ValueError(f"decision must be one whose reward is still open, got decision id {key!r}")
            if reward is None:
                self.forget(key)
            else:
                value = self._checked_reward(reward)
                self._take_in(key, pending, value)
                if self.decision_log is not None:
                    self.decision_log.closed(key, value)

    def forget(self, decision: Decision | int) -> None:
        """Give up waiting for a reward, so that its arm is no longer kept. Says nothing about the data."""
        key = self._key(decision)
        with self._lock:
            self._open.pop(key, None)
            if self.decision_log is not None:
                self.decision_log.closed(key, None)

    def learn_log(self, rows: Iterable[Any], *, progress: bool = True) -> int:
        """Learn from choices that were made elsewhere, before the first round or between two.

        Every row counts as a decision of this run, and its reward as told at once: for the schedule, the horizon, the
        noise and the persons' allowances it is a round like any other, and protected like one. Whose choices they were
        does not matter, but for what can be learned from them (least for the policies with noisy sums for every arm,
        which reckon with choices of their own, from a log that hardly tried some arm). How many rows there are is
        public. Nobody else chooses meanwhile.

        Parameters
        ----------
        rows : iterable
            Each a tuple ``(arm, reward)`` or ``(arm, reward, person)``, where the arm is the vector that was chosen; or
            a :class:`dpbandits.evaluate.LoggedRound`, which policies that take contexts need. All are checked before
            the first is learned.
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

        Notes
        -----
        With a checkpoint all rows are durable when this returns. After a crash in the middle, ``decisions`` tells how
        many were taken in; the others can be given again.
        """
        from dpbandits.logs import checked_rows, learn

        self._check()
        checked = checked_rows(self, rows)
        with self._lock:
            self._check_open()
            return learn(self, checked, progress)

    @property
    def open_decisions(self) -> list[int]:
        """The ids of the decisions whose reward has not come."""
        with self._lock:
            return list(self._open)

    def _check(self) -> None:  # noqa: B027
        """Refuse to go on in the child of a fork, where a policy has a reason to; before the lock is taken."""

    def _check_open(self) -> None:  # noqa: B027
        """Refuse to go on after an interrupt, where a policy has a reason to; behind the lock."""

    def _who(self, person: object) -> int:
        """What is kept of a person's id, which is checked: by default nothing."""
        if person is not None:
            kind_of(person)
        return NOBODY

    def _settle(self, arms: Array) -> None:  # noqa: B027
        """Do what is due before one of ``arms`` is chosen."""

    def _publicly(self, change: Callable[[], None]) -> None:
        """Make a change that everybody may know of; behind the lock."""
        change()

    @abstractmethod
    def _score(self, arms: Array) -> Array | Law:
        """The quantity to maximise, of shape (K,), for arms that have been checked; nothing is learned or released.

        Where the choice is random it draws nothing itself, but returns the law of the choice, of which ``select`` makes
        the draw: so the probability of every choice is known.
        """

    def _count(self, arms: Array) -> int:
        """Among how many arms there is a choice."""
        return len(arms) if self.takes == "arms" else self.n_arms or _LONGEST

    def _name(self, index: int) -> str:
        """What an arm is called, where arms have names."""
        return ""

    def _note(self, arm: Array, index: int) -> tuple[int, ...]:
        """What is to be known of the choice besides the arm when its reward comes."""
        return ()

    @abstractmethod
    def _learn(self, pending: Pending, reward: float) -> None:
        """Take in one checked reward of one arm of norm at most 1."""

    def _admit(self, pending: Pending) -> None:
        """Wait for the reward of the decision that was just made."""
        self._open[self.decisions] = pending
        self.decisions += 1
        if self.expire_after is not None:
            self._expire(self.decisions - self.expire_after)

    def _expire(self, first: int) -> None:
        """Forget the decisions before ``first``; the oldest come first."""
        while (oldest := next(iter(self._open), first)) < first:
            del self._open[oldest]
            if self.decision_log is not None:
                self.decision_log.closed(oldest, None)

    def _take_in(self, key: int, pending: Pending, reward: float) -> None:
        """Close the decision and learn; closed first, so that no reward counts twice."""
        del self._open[key]
        self._learn(pending, reward)

    def _together(self) -> AbstractContextManager[None]:
        """Rewards that are taken in inside of it are acknowledged together, at its end."""
        return nullcontext()

    def _key(self, decision: Decision | int) -> int:
        key = decision
        if isinstance(decision, Decision):
            if decision.run != self._id:
                raise ValueError(f"decision must come from this policy, got decision {decision.id} of another one")
            key = decision.id
        # 1.0 and True would find decision 1, too, and could not be read back from a journal
        if type(key) is int or isinstance(key, np.integer):
            return int(key)
        raise ValueError(f"decision must be a Decision or its id, a whole number, got decision={key!r}")

    def _chosen(self, arms: Array, index: int) -> Array:
        """The vector of the chosen arm: a read-only copy of norm at most 1, whatever happens to the caller's array."""
        arm: Array = arms[index].copy()
        square = float(arm.dot(arm))
        if not square <= 1.0:
            arm = arm / (math.sqrt(square) * _SPARE) if math.isfinite(square) else np.zeros_like(arm)
        arm.setflags(write=False)
        return arm

    def _checked_arms(self, arms: ArrayLike) -> Array:
        X = real_array("arms", arms)
        if X.ndim != 2 or X.shape[1] != self.dim or not len(X):
            raise ValueError(f"arms must have shape (K, {self.dim}) with K >= 1, got shape {X.shape}")
        squares = _vecdot(X, X)
        largest = squares.item(squares.argmax())  # NaN, if there is one
        if not largest <= 1.0:  # also true for NaN
            if not np.isfinite(X).all():
                raise ValueError(f"arms must be finite, got {X[~np.isfinite(X)][0]} in row {_bad_row(X)}")
            if largest > (1.0 + _NORM_TOLERANCE) ** 2:
                row = int(squares.argmax())
                raise ValueError(f"arms must have norm at most 1, got norm {math.sqrt(largest):.6g} in row {row}")
            X = X / np.maximum(1.0, np.sqrt(squares) * _SPARE)[:, None]
        return X

    def _checked_reward(self, reward: float) -> float:
        value = reward if type(reward) is float else _number("reward", reward)
        low, high = self.reward_range
        if low <= value <= high and math.isfinite(value):
            return value
        if self.on_violation == "clip" and not math.isnan(value) and math.isfinite(low) and math.isfinite(high):
            return min(max(value, low), high)
        raise ValueError(f"reward must be a finite number in [{low:g}, {high:g}], got reward={reward!r}")

    # -------------------------------------------------------------------------------------------- privacy

    def privacy(self, delta: float | None = None) -> PrivacyReport:
        """What has been spent and what is left, at ``delta`` (by default the budget's)."""
        simulation = randomness.is_simulation(self.rng)
        if self.trust == "none" or self.ledger is None:
            return PrivacyReport(math.inf, delta or 0.0, 0.0, "none", "replace", "round", simulation)
        budget = self.ledger.budget
        if delta is None:
            if budget is None:
                raise ValueError("delta must be given where the ledger has no budget, got delta=None")
            delta = budget.delta
        fraction("delta", delta, include_zero=True)
        left = self.ledger.remaining()
        return PrivacyReport(
            epsilon=float(self.ledger.epsilon(delta)),
            delta=delta,
            # what calibration leaves over in the last digits is not worth a word
            left=left if budget is None or left > 1e-9 * budget.epsilon else 0.0,
            trust=self.trust,
            adjacency=budget.adjacency if budget else "replace",
            unit=self._protects,
            simulation=simulation,
        )

    # ---------------------------------------------------------------------------------------------- state

    # arguments that a state does not keep: they come with the one who loads it
    _OF_THE_LOADER: ClassVar[tuple[str, ...]] = ("rng", "ledger", "checkpoint", "decision_log")

    def _config(self) -> dict[str, Any]:
        """The constructor's arguments as plain values, read from the attributes of the same names."""
        names: list[str] = []
        for kind in type(self).__mro__:
            if "__init__" not in vars(kind):
                continue
            found = signature(vars(kind)["__init__"]).parameters.values()
            names += [p.name for p in found if p.kind is not Parameter.VAR_KEYWORD]
            if all(p.kind is not Parameter.VAR_KEYWORD for p in found):
                break  # further arguments are not passed on
        skipped = ("self", "rewards", *self._OF_THE_LOADER)
        config = {name: getattr(self, name) for name in dict.fromkeys(names) if name not in skipped}
        if "link" in config:
            config["link"] = config["link"].name
        if "budget" in config:
            config["budget"] = asdict(config["budget"])
        return config

    def _kept(self) -> dict[str, Any]:
        """What the algorithm has learned, as a tree of plain values and arrays."""
        return kept(self, self._learned)

    def _resume(self, saved: Any) -> None:
        """The inverse of :meth:`_kept`, checked."""
        resume(self, self._learned, saved)

    def _tree(self) -> dict[str, Any]:
        """Everything that a file holds, but for the open decisions."""
        return {
            "policy": kind_name(type(self)),
            "config": self._config(),
            "learned": self._kept(),
            "decisions": self.decisions,
            "id": self._id,
            "generator": generator_text(self.rng),
        }

    def save(self, path: str | Path) -> None:
        """Write the whole state to a file that only its owner can read.

        The file holds unreleased sums and open decisions: it is as confidential as the data. It replaces an
        older one atomically. Nothing of a secure generator is written, so noise is never drawn twice.
        """
        with self._lock:
            self._flush_log()
            files.write(path, {**self._tree(), "open": self._packed()})

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
            Where a private policy that was saved by hand keeps its state from now on.
        decision_log : path or DecisionLog, optional
            The log of decisions that goes on, or a new one. A state does not name it: no file says where to write.

        Raises
        ------
        ValueError
            If the file is damaged, of another format, or of a policy that is not a ``cls``; if ``ledger`` does not
            hold the policy's cost; or if the state must not be continued.
        """
        import dpbandits.policies  # noqa: F401 (registers them)

        tree, digest = files.read(path)
        kind = Policy._kinds.get(str(tree.get("policy")))
        if kind is None or not issubclass(kind, cls):
            raise ValueError(f"path must hold the state of a {cls.__name__}, got a {_class_name(tree)} in {path}")
        kept_in = None if checkpoint is None else Path(checkpoint).absolute()
        loader = Loader(Path(path).absolute(), ledger, link, unattended, kept_in)
        try:
            with np.errstate(all="ignore"):  # what overflows in a constructor or a check is not finite, and refused
                policy = kind._revived(tree, digest, loader)
        except (TypeError, KeyError, AttributeError, IndexError, ArithmeticError, MemoryError) as error:
            raise ValueError(f"path must hold a state that fits together, got {path}: {error!r}") from error
        if decision_log is not None:
            policy.decision_log = _log(decision_log)
        return policy

    @classmethod
    def _revived(cls, tree: dict[str, Any], digest: str, loader: Loader) -> Policy:
        """The policy of a file's tree and digest."""
        policy = cls._built(tree, loader.link)
        policy._open = policy._unpacked(tree["open"])
        return policy

    @classmethod
    def _built(cls, tree: dict[str, Any], link: Link | None) -> Self:
        """The policy of a file's tree, without its open decisions."""
        config = dict(tree["config"])
        if not cls._elements(config) <= 2 * _count(tree["learned"]) + 2**12:
            raise ValueError(f"dim must be that of the arrays in the file, got dim={config['dim']}")
        if "budget" in config:
            config["budget"] = Budget(**config["budget"])
        if link is not None:
            config["link"] = link
        text = conform("generator", tree["generator"], "")
        rng = generator(text, None)
        policy = cls(**config, rng=rng)
        policy._resume(tree["learned"])
        policy.decisions = conform("decisions", tree["decisions"], 0)
        if policy.horizon is not None and policy.decisions > policy.horizon:
            raise ValueError(f"decisions must be at most horizon={policy.horizon}, got decisions={policy.decisions}")
        policy._id = conform("id", tree["id"], "")
        if randomness.is_simulation(policy.rng):  # construction may have drawn
            policy.rng.bit_generator.state = generator(text, None).bit_generator.state
        return policy

    @classmethod
    def _elements(cls, config: Mapping[str, Any]) -> int:
        """How many numbers a state holds at least, so that a file cannot ask for more memory than its own size."""
        return int(conform("dim", config["dim"], 0)) ** 2

    def _packed(self) -> dict[str, Any]:
        """The open decisions as arrays."""
        waiting = list(self._open.values())
        arms = np.zeros((len(waiting), self.dim))
        for row, pending in zip(arms, waiting, strict=True):
            row[: len(pending.arm)] = pending.arm
        return {
            "ids": np.array(list(self._open), dtype=np.int64),
            "indices": np.array([pending.index for pending in waiting], dtype=np.int64),
            "arms": arms,
            "closed": np.array([not len(pending.arm) for pending in waiting], dtype=np.bool_),
            "notes": np.array([pending.note for pending in waiting], dtype=np.int64).reshape(len(waiting), self._notes),
            "persons": np.array([pending.person for pending in waiting], dtype=np.int64),
        }

    def _unpacked(self, saved: Any) -> dict[int, Pending]:
        """The inverse of :meth:`_packed`, checked, for a policy that has no open decisions yet."""
        like = {
            name: np.broadcast_to(np.zeros((), none.dtype), (len(saved["ids"]), *none.shape[1:]))
            for name, none in self._packed().items()
        }
        ids, indices, arms, closed, notes, persons = taken("open", saved, like).values()
        if len(ids) and not (ids[0] >= 0 and (np.diff(ids) > 0).all() and ids[-1] < self.decisions):
            raise ValueError(f"open.ids must increase from 0 to less than decisions={self.decisions}, got others")
        numbers = (one.tolist() for one in (ids, indices, closed, notes, persons))
        return {
            id: self._checked_pending(Pending(arm[: 0 if shut else None].copy(), index, id, tuple(note), person))
            for arm, id, index, shut, note, person in zip(arms, *numbers, strict=True)
        }

    def _checked_pending(self, pending: Pending) -> Pending:
        """An open decision that was read from a file, checked like what comes in; the arm of a closed one is empty."""
        arm = pending.arm
        if len(arm) and not (len(arm) == self.dim and float(self._length(arm)) <= 1.0):  # also for NaN
            raise ValueError(f"an open arm must be finite, of {self.dim} entries and length at most 1, got others")
        if not 0 <= pending.index < (self.n_arms or math.inf):
            raise ValueError(f"an open decision's index must be that of an arm, got index={pending.index}")
        if len(pending.note) != self._notes:
            raise ValueError(f"an open decision's note must have length {self._notes}, got {short(pending.note)}")
        arm.setflags(write=False)
        return pending

    @staticmethod
    def _length(arms: Array) -> Array:
        """How long arms (or contexts) are, in the norm in which they must be at most 1."""
        return np.asarray(np.sqrt(np.einsum("...j,...j->...", arms, arms)))


def _log(log: str | Path | DecisionLog) -> DecisionLog:
    if not isinstance(log, str | Path | DecisionLog):
        raise TypeError(f"decision_log must be a path or a DecisionLog, got {short(log)}")
    return log if isinstance(log, DecisionLog) else DecisionLog(log)


def _checked_base_rate(base_rate: float | None, link: Link, low: float, high: float) -> float:
    """``base_rate``, or its default."""
    if base_rate is not None:
        rate = _number("base_rate", base_rate)
        if not (low < rate < high and math.isfinite(rate)):
            raise ValueError(f"base_rate must lie strictly inside reward_range, ({low:g}, {high:g}), got {base_rate!r}")
        return rate
    middle, neutral = 0.5 * low + 0.5 * high, float(link.mean(0.0))
    least, most = link.reward_range
    # the middle of a range that cuts counts off says nothing of their mean
    usable = math.isfinite(middle) and math.isinf(least) == math.isinf(most)
    return middle if usable and link.reaches(middle) else neutral


def real_array(name: str, value: ArrayLike) -> Array:
    """``value`` as an array of float64, if it holds real numbers and nothing else.

    Raises
    ------
    ValueError
        For strings, times, complex numbers, objects (also integers beyond all floats), and masked entries.
    """
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise ValueError(f"{name} must have no masked entries, got {int(np.ma.getmaskarray(value).sum())} of them")
    try:
        found = np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise ValueError(f"{name} must be rows of the same length, got rows of several lengths") from error
    if found.dtype == np.float64:
        return found
    if found.dtype.kind not in "fiub":
        raise ValueError(f"{name} must be real numbers, got an array of type {found.dtype}")
    with np.errstate(over="ignore"):  # infinite entries are refused by name
        return found.astype(np.float64)


def _number(name: str, value: Any) -> float:
    found = real_array(name, value)
    if found.ndim:
        raise ValueError(f"{name} must be one number, got an array of shape {found.shape}")
    return float(found)


def _count(tree: Any) -> int:
    """How many numbers the arrays of a tree hold."""
    if isinstance(tree, Mapping):
        return sum(map(_count, tree.values()))
    if isinstance(tree, list):
        return sum(map(_count, tree))
    return tree.size if isinstance(tree, np.ndarray) else 0


def _class_name(tree: Mapping[str, Any]) -> str:
    return str(tree.get("policy")).rpartition(":")[-1][:80]


def kind_name(cls: type) -> str:
    """Module and name of a policy's class."""
    return f"{cls.__module__}:{cls.__qualname__}"


def _bad_row(X: Array) -> int:
    return int(np.flatnonzero(~np.isfinite(X).all(axis=1))[0])

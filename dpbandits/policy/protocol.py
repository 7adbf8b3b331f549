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
from abc import abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from accounting.arrays import Array
from accounting.checks import choice, fraction, integer
from accounting.printed import as_html, parameter_cells
from dpbandits.durability.decision_log import DecisionLog, log_of
from dpbandits.durability.registry import NOBODY, kind_of
from dpbandits.durability.state import Loadable, kind_name
from dpbandits.policy.checks import checked_base_rate, real_array, unit_row, unit_rows
from dpbandits.policy.choices import Law, Told
from dpbandits.policy.decision import Decision, Pending, PrivacyReport
from dpkit import randomness
from dpkit.models.links import Link, get_link

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = [
    "CommonOptions",
    "Decision",
    "Options",
    "Pending",
    "Policy",
    "PrivacyReport",
    "kind_name",
    "real_array",
]

Violation = Literal["raise", "clip"]

# what a state counts
_LONGEST = 2**62


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


class Policy(Loadable):
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
        confidential as it. See :mod:`dpbandits.durability.decision_log`.
    rng : numpy.random.Generator, optional
        None is the secure source; a seeded generator makes a simulation.
    """

    trust: ClassVar[Literal["none", "joint", "shuffle", "local"]] = "none"
    # what ``select`` is given: the arms' vectors, or one context for all arms (see dpbandits.arms.per_arm)
    takes: ClassVar[Literal["arms", "context"]] = "arms"

    ledger: Ledger | None = None
    # μ. A policy that is told another one sets it before it calls this class's constructor, which moves it to the base
    # rate. All others are linear, and subtract ``base_rate`` from rewards
    link: Link = get_link("linear")
    # what a privacy report is about
    _protects: str = "round"

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        cls._kinds[kind_name(cls)] = cls
        score = vars(cls).get("_score")
        if "rng" in getattr(getattr(score, "__code__", None), "co_names", ()):
            raise TypeError(
                f"{cls.__name__}._score must draw nothing, as nobody would know how probable its choices are: return a "
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
    ) -> None:
        self.dim = integer("dim", dim, at_least=1)
        low, high = map(float, rewards if reward_range is None else reward_range)
        if not low < high:
            raise ValueError(f"reward_range must be increasing, got reward_range={reward_range!r}")
        self.reward_range = (low, high)
        self.base_rate = checked_base_rate(base_rate, self.link, low, high)
        self.link = self.link.at(self.base_rate)
        self.on_violation = choice("on_violation", on_violation, "raise", "clip")
        self.horizon = None if horizon is None else integer("horizon", horizon, at_least=1)
        if self.horizon is not None and self.horizon > _LONGEST:
            raise ValueError(f"horizon must be at most 2**62, got horizon={horizon!r}")
        self.expire_after = None if expire_after is None else integer("expire_after", expire_after, at_least=1)
        self.decision_log = None if decision_log is None else log_of(decision_log).begin()
        self.rng = randomness.resolve(rng)
        self.decisions = 0
        self._open: dict[int, Pending] = {}
        self._id = secrets.token_hex(16)
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        rounds = "" if self.horizon is None else f" of {self.horizon:,}"
        return f"{type(self).__name__}(dim={self.dim}): {self.decisions:,}{rounds} decisions, {self._promise()}"

    def _repr_html_(self) -> str:
        shown = self._config()
        if "budget" in shown:  # as it is written, not as the plain values of a state
            shown["budget"] = vars(self)["budget"]
        return as_html(repr(self), parameter_cells(shown))

    def _promise(self) -> str:
        """What ``repr`` says of privacy."""
        return "not private"

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
        """Write down a choice that was made elsewhere, such as by :class:`dpbandits.Released`.

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

    def _check_log(self) -> None:
        """Refuse to learn from choices that were made elsewhere, where a policy has a reason to."""

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
            a :class:`dpbandits.lab.evaluate.LoggedRound`, which policies that take contexts need. All are checked
            before the first is learned.
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
        from dpbandits.policy.logs import checked_rows, learn

        self._check_log()
        self._check()
        checked = checked_rows(self, rows)
        with self._lock:
            self._check_open()
            return learn(self, checked, progress)

    def _who(self, person: object) -> int:
        """What is kept of a person's id, which is checked: by default nothing."""
        if person is not None:
            kind_of(person)
        return NOBODY

    def _settle(self, arms: Array) -> None:
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

    def _chosen(self, arms: Array, index: int) -> Array:
        """The vector of the chosen arm: a read-only copy of norm at most 1, whatever happens to the caller's array."""
        return unit_row(arms[index])

    def _checked_arms(self, arms: ArrayLike) -> Array:
        return unit_rows(arms, self.dim)

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

"""What policies share that choose a slate: k arms in a round, such as a page of articles, with clicks by position.

Which positions were seen is part of what a round tells. ``examination`` says how:

* ``"cascade"``: people look from the top, and stop at the first click (Craswell et al. 2008). What comes after it was
  not seen, and is cut off.
* k numbers q_1 = 1, q_2, …: the position-based model (Richardson et al. 2007): a click at position j has the mean
  q_j·μ(xᵀθ), where q_j is the known chance that it is looked at, relative to the first position. All ones: every
  position is seen, and every click told (a semi-bandit).

In both a list that is shorter than the slate says that the positions after it were not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.arrays import Array
from accounting.checks import fraction, integer
from dpbandits.policy.checks import checked_row, each_of, unit_row
from dpbandits.policy.choices import Law
from dpbandits.policy.decision import Decision
from dpbandits.policy.elsewhere import made_elsewhere
from dpbandits.policy.protocol import Pending, Policy
from dpbandits.policy.rounds import check_admitted

__all__ = ["Examination", "Page", "SlateDecision", "SlatePolicy", "checked_examination", "ranked", "shown_of"]

Examination = Literal["cascade"] | Sequence[float]

# rooms for records are made by k, which may come from a file or a release of somebody else
_MOST_POSITIONS = 10_000
# what a slate that is shorter than k has at its end
_EMPTY = -1


@dataclass(slots=True, eq=False)
class SlateDecision(Decision):
    """What a policy chose in one round: the attributes of a :class:`~dpbandits.Decision` are of the first position.

    Attributes
    ----------
    indices : tuple of int
        By position, from the top: the row of the arm; where every slot has arms of its own, its row among these.
    arms : ndarray of shape (k, d)
        The arms by position; read-only.
    """

    indices: tuple[int, ...] = ()
    arms: Array = field(default_factory=lambda: np.empty((0, 0)), repr=False)


class Page(NamedTuple):
    """A slate, by position: rows of all arms, and among those of the slot; all scores, and the law of the first one."""

    rows: NDArray[np.int64]
    indices: NDArray[np.int64]
    scores: Array
    law: Law | None


class SlatePolicy(Policy):
    """Base of the policies that choose a slate. A constructor calls :meth:`show` after its base's.

    Attributes
    ----------
    k : int
        The number of positions, at most 10,000. Where fewer arms are offered the slate is shorter.
    examination : "cascade" or tuple of float
    """

    k: int
    examination: Literal["cascade"] | tuple[float, ...]

    def show(self, k: int, examination: Examination) -> None:
        """Choose slates of k positions from now on."""
        self.k = self.notes = integer("k", k, at_least=1)
        if self.k > _MOST_POSITIONS:
            raise ValueError(f"k must be at most {_MOST_POSITIONS:,} positions, got k={k!r}")
        self.arm_size = self.k * self.dim
        self.examination = checked_examination(examination, self.k, self.reward_range)
        # the best arm goes where most people look, in a cascade to the top
        looks = None if isinstance(self.examination, str) else np.array(self.examination)
        self._places = None if looks is None else np.argsort(-looks, kind="stable")

    def select(self, arms: ArrayLike | None = None, person: str | bytes | int | None = None) -> SlateDecision:
        """Choose k of ``arms``, in order; or, where every slot has arms of its own, one of each.

        Parameters
        ----------
        arms : array_like of shape (K, d) or (k, K, d)
            Finite rows of Euclidean norm at most 1: one set for all positions, or one for each.
        person : str, bytes or int, optional
            As for :meth:`dpbandits.Policy.select`, also for errors.
        """
        X, sets = self.checked_slots(arms)
        self.check_process()
        with self.lock:
            return self._chosen(X, sets, person)

    def _chosen(self, X: Array, sets: int, person: object) -> SlateDecision:
        """Choose of what was checked; behind the lock."""
        who = self.admitted(person)
        self.prepare(X)
        return self._shown(X, self.page(X, sets, self.score, self.rng), (person, who), self.number())

    def checked_slots(self, arms: ArrayLike | None) -> tuple[Array, int]:
        """The rows that are offered, checked, and of how many sets they are: 1, or k of one size."""
        if _dimensions(arms) != 3:
            return self.checked_arms(arms), 1
        sets = np.asarray(arms)
        if len(sets) != self.k:
            raise ValueError(f"arms must have one set for each of k={self.k} slots, got {len(sets)} sets")
        return self.checked_arms(sets.reshape(-1, sets.shape[-1])), self.k

    def page(self, arms: Array, sets: int, score: Callable[[Array], Array | Law], rng: np.random.Generator) -> Page:
        """Score the arms, once, and fill the positions."""
        found = score(arms)
        law, scores = (found, found.draw(rng)) if isinstance(found, Law) else (None, found)
        if sets == 1:
            rows = self.placed(scores)
            return Page(rows, rows, scores, law)
        size = len(arms) // sets
        if law is not None:  # of the first slot, which draws among its own arms
            law = cast("Law", score(arms[:size]))
        indices = scores.reshape(sets, size).argmax(axis=1)
        return Page(indices + np.arange(sets) * size, indices, scores, law)

    def placed(self, scores: Array) -> NDArray[np.int64]:
        """The rows of the k largest scores, or of all, by position: the largest where most people look."""
        best = ranked(scores, min(self.k, len(scores)))
        if self._places is None:
            return best
        rows = np.empty_like(best)
        rows[self._places[self._places < len(rows)]] = best
        return rows

    def select_many(  # type: ignore[override]
        self, arms: Sequence[Any] | Array, persons: Sequence[str | bytes | int] | None = None
    ) -> list[SlateDecision]:
        """Choose slates for many requests, one after the other; ``arms`` and ``persons`` have one entry for each.

        Raises
        ------
        ValueError
            As by ``select``, naming the request. All are checked first: the policy's state is as it was.
        """
        offered = each_of("arms", self.checked_slots, arms)
        self.check_process()
        with self.lock:
            check_admitted(self, persons, len(arms))
            whose = [None] * len(arms) if persons is None else persons
            return [self._chosen(*slots, person) for slots, person in zip(offered, whose, strict=True)]

    def _shown(self, arms: Array, page: Page, whose: tuple[object, int], release: int) -> SlateDecision:
        """Wait for the clicks on a slate, and log its first position."""
        person, who = whose
        chosen = tuple(page.indices.tolist())
        key, shown = self._admit(arms[page.rows], chosen, who)
        made = SlateDecision(key, chosen[0], shown[0], page.scores, self.waiting.run, page.law, "", chosen, shown)
        if self.decision_log is not None:
            self.decision_log.decided(made, arms, person, release)
        return made

    def register(
        self,
        arms: ArrayLike | None,
        index: int | Sequence[int],
        person: str | bytes | int | None = None,
        *,
        probability: float | None = None,
        release: int | None = None,
    ) -> SlateDecision:
        """Write down a slate that was shown elsewhere, such as by :class:`dpbandits.Released`.

        Parameters
        ----------
        arms : array_like of shape (K, d) or (k, K, d)
            What was offered, as for ``select``.
        index : sequence of int, or int
            By position the rows that were shown, each once, at most k: ``Released.choose(arms).indices``. Of every slot
            where each has arms of its own. A number is a slate of one.
        person, probability, release
            As for :meth:`dpbandits.Policy.register`, also for errors; the probability is that of the first position.

        Examples
        --------
        >>> from accounting import Budget
        >>> from dpbandits.policies import SlatePrivateGLM
        >>> learner = SlatePrivateGLM(dim=3, k=2, budget=Budget(1.0, 1e-6), horizon=1000)
        >>> shown = learner.released().choose(np.eye(3))
        >>> learner.update(learner.register(np.eye(3), shown.indices), [0.0, 1.0])
        """
        X, sets = self.checked_slots(arms)
        size = len(X) // sets
        chosen = index if isinstance(index, Sequence | np.ndarray) else [index]
        indices = np.array([checked_row(one, size) for one in chosen], dtype=np.int64)
        rows = indices + np.arange(len(indices)) * size if sets > 1 else indices
        # where every slot has arms of its own, all are shown
        if not max(1, sets) <= len(rows) <= self.k or len({*rows.tolist()}) < len(rows):
            some = f"k={self.k} rows, one for each slot" if sets > 1 else f"from 1 to k={self.k} rows, each once"
            raise ValueError(f"index must be {some}, got index={index!r}")
        with made_elsewhere(self, X, size, person, probability, release) as (law, whose, number):
            return self._shown(X, Page(rows, indices, np.empty(0), law), whose, number)

    def logged(self, arm: ArrayLike) -> Array:
        if _dimensions(arm) != 2:
            return super().logged(arm)
        page = self.checked_arms(arm)
        if len(page) > self.k:
            raise ValueError(f"a page must have at most k={self.k} arms, got {len(page)}")
        return page.copy()

    def admit_choice(self, arm: Array, index: int, who: int) -> int:
        # that of a log, a page or a single arm
        return self._admit(np.atleast_2d(arm), (index,) if arm.ndim == 1 else tuple(range(len(arm))), who)[0]

    def _admit(self, shown: Array, chosen: tuple[int, ...], who: int) -> tuple[int, Array]:
        """Wait for the clicks on these arms; the id of the decision, and what is kept of them, read-only."""
        key, kept = self.decisions, np.zeros((self.k, self.dim))
        kept[: len(shown)] = [unit_row(arm) for arm in shown]
        kept.setflags(write=False)
        note = chosen + (_EMPTY,) * (self.k - len(chosen))
        self.make(Pending(kept.reshape(-1), chosen[0], key, note, who))
        return key, kept[: len(shown)]

    def update(self, decision: Decision | int, reward: float | Sequence[float] | None) -> None:
        """Learn the clicks on a slate.

        Parameters
        ----------
        decision : SlateDecision or int
            Itself, or its id.
        reward : sequence of float, float or None
            The reward of every position that was seen, from the top: 0 or 1 for clicks. A cascade ends with its first
            click, so that ``[0, 1]`` and ``[0, 1, 0]`` say the same. A number is the reward of the first position,
            where no other was seen. None: the clicks will never come.

        Raises
        ------
        ValueError
            As by :meth:`dpbandits.Policy.update`, or if there are more numbers than positions were shown.
        """
        super().update(decision, reward)  # type: ignore[arg-type]

    def checked_reward(self, reward: Any) -> Any:
        told = reward if isinstance(reward, Sequence | np.ndarray) and np.ndim(reward) == 1 else [reward]
        if len(told) > self.k:
            raise ValueError(f"reward must hold at most k={self.k} numbers, one for a position, got {len(told)}")
        found = tuple(super(SlatePolicy, self).checked_reward(one) for one in told)
        if self.examination == "cascade":
            clicked = next((j for j, one in enumerate(found) if one > self.reward_range[0]), len(found))
            return found[: clicked + 1]
        return found

    def reward_of(self, choice: Pending | Array, reward: Any) -> Any:
        shown = shown_of(choice) if isinstance(choice, Pending) else len(np.atleast_2d(choice))
        if len(found := self.checked_reward(reward)) > shown:
            raise ValueError(f"reward must hold at most {shown} numbers, as so many were shown, got {len(found)}")
        return found

    def rows(self, pending: Pending) -> Array:
        """The arms that were shown, by position."""
        return pending.arm.reshape(self.k, self.dim)[: shown_of(pending)]

    def checked_pending(self, pending: Pending) -> Pending:
        arm, longest = pending.arm, 1.0 + self.dim * 2.0**-52
        # also for NaN
        if len(arm) != self.arm_size or not (self.offer.length(arm.reshape(self.k, self.dim)) <= longest).all():
            raise ValueError(f"an open slate must have {self.k} arms, finite and of length at most 1, got others")
        shown = shown_of(pending)
        ended = pending.note[shown:] == (_EMPTY,) * (self.k - shown)
        if not (len(pending.note) == self.k and shown and ended and pending.note[0] == pending.index):
            raise ValueError(f"an open slate must have from 1 to {self.k} arms, got the rows {pending.note}")
        arm.setflags(write=False)
        return pending


def _dimensions(arms: ArrayLike | None) -> int:
    try:
        return np.ndim(arms)  # type: ignore[arg-type]
    except ValueError:  # rows of different lengths, which are refused by their name
        return 0


def shown_of(pending: Pending) -> int:
    """How many positions a slate has."""
    return sum(index >= 0 for index in pending.note)


def ranked(scores: Array, count: int) -> NDArray[np.int64]:
    """The rows of the largest scores, the largest first; among equals the first row.

    Examples
    --------
    >>> import numpy as np
    >>> ranked(np.array([0.1, 0.9, 0.5, 0.9]), 3).tolist()
    [1, 3, 2]
    """
    least = np.partition(scores, len(scores) - count)[len(scores) - count]
    near = np.flatnonzero(scores >= least)
    return near[np.argsort(-scores[near], kind="stable")[:count]]


def checked_examination(
    examination: str | Sequence[float], k: int, reward_range: tuple[float, float]
) -> Literal["cascade"] | tuple[float, ...]:
    """How positions are looked at: "cascade", or k chances of which the first is 1.

    Raises
    ------
    ValueError, TypeError
        For anything else; or if what nobody sees would have no reward of 0.
    """
    if examination == "cascade":
        return "cascade"
    known = (
        () if isinstance(examination, str) else tuple(fraction("examination", q, include_one=True) for q in examination)
    )
    if len(known) != k or known[0] != 1.0:
        raise ValueError(
            f"examination must be 'cascade' or k={k} numbers, of which the first is 1 as all are relative to it, "
            f"got examination={examination!r}"
        )
    if min(known) < 1.0 and not reward_range[0] <= 0.0 <= reward_range[1]:
        raise ValueError(f"reward_range must hold 0, the reward of what nobody saw, got reward_range={reward_range}")
    return known

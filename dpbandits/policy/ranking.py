"""Public candidates, the same for many requests: scored once, and chosen among with what each request leaves out.

A posterior draw needs the scores of all candidates under a parameter of its own; of many requests they are one product
of matrices. Where nothing but the scores decides, candidates are sorted once, and a request takes the first that it
does not leave out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from accounting.arrays import Array
from accounting.checks import integer
from dpbandits.policy.choices import Law, Perturbed
from dpbandits.policy.chosen import Choice, Choices
from dpbandits.policy.many import Index, Laws
from dpbandits.policy.slates import SlatePolicy
from dpkit import randomness
from dpkit.states.entries import short

__all__ = ["Ranking"]

# scores that are held at once
_BLOCK = 2**18


class Ranking:
    """What :meth:`dpbandits.Released.rank` returns; immutable.

    Attributes
    ----------
    arms : ndarray of shape (K, d)
        The candidates; read-only.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpbandits.policies import OnePassPrivateGLM
    >>> released = OnePassPrivateGLM(dim=2, budget=Budget(1.0, 1e-6), horizon=1000).released()
    >>> ranking = released.rank(np.eye(2))
    >>> ranking.choose(exclude=[0]).index
    1
    """

    def __init__(self, score: Callable[[Array], Array | Law], arms: Array, slates: SlatePolicy | None = None) -> None:
        self.arms, self._score, self._slates = arms, score, slates
        self._found = score(arms)
        self._order: Index | None = None
        if not isinstance(self._found, Law):
            self._order = np.argsort(-self._found, kind="stable")

    def __len__(self) -> int:
        return len(self.arms)

    def __repr__(self) -> str:
        return f"Ranking({len(self)} candidates)"

    def choose(self, exclude: Sequence[int] = (), rng: np.random.Generator | None = None) -> Choice:
        """One choice among the candidates that are not excluded, or one slate.

        Parameters
        ----------
        exclude : sequence of int
            Rows of ``arms``.
        rng : numpy.random.Generator, optional
            None is the secure source.
        """
        return self.choose_many([exclude], rng)[0]

    def choose_many(self, exclude: Sequence[Sequence[int]] | int, rng: np.random.Generator | None = None) -> Choices:
        """A choice for each request, with a draw of its own.

        Parameters
        ----------
        exclude : sequence of n sequences of int, or int
            The rows of ``arms`` that each request leaves out; or how many requests there are, which leave out none.
        rng : numpy.random.Generator, optional
            None is the secure source.

        Returns
        -------
        Choices
            Indices are rows of ``arms``. A probability is that of the choice among what is left. Slates are shorter
            where fewer are left.

        Raises
        ------
        ValueError
            If there is no such row, or none is left.
        """
        if isinstance(exclude, (int, np.integer)):
            exclude = integer("exclude", exclude, at_least=0) * [()]
        left_out = [self._rows(one, number) for number, one in enumerate(exclude)]
        source, n = randomness.resolve(rng), len(left_out)
        found = self._found
        laws = _Among(self, left_out)
        if isinstance(found, Perturbed):
            laws.drawn = found.parameters(n, source)
        if self._slates is not None:
            drawn = [None] * n if laws.drawn is None else laws.drawn
            slates = [self._slate(self._slates, *one, source) for one in zip(left_out, drawn, strict=True)]
            return Choices(slates, laws)
        if laws.drawn is None:
            return Choices(np.array([laws.choose(i, source) for i in range(n)], np.int64), laws)
        return Choices(self._best(laws.drawn, getattr(found, "bonus", None), left_out), laws)

    def _slate(
        self, slates: SlatePolicy, left_out: Index, drawn: Array | None, rng: np.random.Generator
    ) -> tuple[int, ...]:
        """By position the best rows that are left, for a parameter that was drawn if there is one."""
        found = self._found
        if isinstance(found, Perturbed) and drawn is not None:
            scores = found.scores(drawn)
        else:
            scores = found.draw(rng) if isinstance(found, Law) else found
        left = self.left(left_out)
        return tuple(left[slates.placed(scores[left])].tolist())

    def _best(self, drawn: Array, bonus: Array | None, left_out: list[Index]) -> Index:
        """The best row for each parameter that was drawn, some candidates at a time."""
        who = np.repeat(np.arange(len(drawn)), [len(rows) for rows in left_out])
        rows = np.concatenate([*left_out, np.empty(0, np.int64)])
        order = np.argsort(rows, kind="stable")
        who, rows = who[order], rows[order]
        best, picks = np.full(len(drawn), -np.inf), np.zeros(len(drawn), np.int64)
        step = max(256, _BLOCK // max(1, len(drawn)))
        for start in range(0, len(self), step):
            scores = drawn @ self.arms[start : start + step].T
            if bonus is not None:
                scores += bonus[start : start + step]
            first, last = np.searchsorted(rows, [start, start + step])
            scores[who[first:last], rows[first:last] - start] = -np.inf
            found = scores.argmax(axis=1)
            largest = np.take_along_axis(scores, found[:, None], axis=1)[:, 0]
            better = largest > best
            best[better], picks[better] = largest[better], found[better] + start
        return picks

    def _rows(self, exclude: Sequence[int], number: int) -> Index:
        rows = np.asarray(exclude)
        if rows.size == 0:
            return np.empty(0, np.int64)
        if rows.ndim != 1 or rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= len(self):
            raise ValueError(f"exclude[{number}] must hold rows of {len(self)} candidates, got {short(exclude)}")
        rows = np.unique(rows).astype(np.int64)
        if len(rows) == len(self):
            raise ValueError(f"exclude[{number}] must leave one of {len(self)} candidates, got all of them")
        return rows

    def left(self, rows: Index) -> Index:
        """The rows that are left without these."""
        return np.delete(np.arange(len(self)), rows)

    def first_left(self, rows: Index) -> int | None:
        """The best row without these, where nothing but scores decides."""
        if self._order is None:
            return None
        among = self._order[: len(rows) + 1]
        return int(among[~np.isin(among, rows)][0])

    def law_of(self, left: Index) -> Law | None:
        """Of a choice among these rows."""
        found = self._found if len(left) == len(self) else self._score(self.arms[left])
        return found if isinstance(found, Law) else None


class _Among(Laws):
    """Laws of choices among the candidates that each request leaves."""

    def __init__(self, ranking: Ranking, left_out: list[Index]) -> None:
        self._ranking, self._left_out = ranking, left_out
        self.drawn: Array | None = None

    def __len__(self) -> int:
        return len(self._left_out)

    def draw(self, rng: np.random.Generator) -> Index:
        return np.array([self.choose(i, rng) for i in range(len(self))], np.int64)

    def choose(self, i: int, rng: np.random.Generator) -> int:
        """One choice, by its own law."""
        best = self._ranking.first_left(self._left_out[i])
        if best is not None:
            return best
        left = self._ranking.left(self._left_out[i])
        law = self._ranking.law_of(left)
        if law is None:
            raise RuntimeError("scores decide, and are ranked")
        return int(left[law.draw(rng).argmax()])

    def of(self, i: int) -> Law | None:
        left = self._ranking.left(self._left_out[i])
        law = self._ranking.law_of(left)
        if isinstance(law, Perturbed) and self.drawn is not None:
            law = law.as_drawn(self.drawn[i])
        return None if law is None else _Some(law, left, len(self._ranking))


class _Some(Law):
    """A law among some rows of K, by their numbers among all; the others have the probability 0."""

    def __init__(self, law: Law, rows: Index, count: int) -> None:
        self._law, self._rows, self._count = law, rows, count

    def __len__(self) -> int:
        return self._count

    def _place(self, index: int) -> int | None:
        place = int(np.searchsorted(self._rows, index))
        return place if place < len(self._rows) and self._rows[place] == index else None

    def draw(self, rng: np.random.Generator) -> Array:
        scores = np.full(self._count, -np.inf)
        scores[self._rows] = self._law.draw(rng)
        return scores

    def chance(self, index: int) -> tuple[float, float]:
        place = self._place(index)
        return (0.0, 0.0) if place is None else self._law.chance(place)

    def inverse(self, index: int) -> float:
        place = self._place(index)
        return np.inf if place is None else self._law.inverse(place)

    def propensity(self, index: int) -> float:
        place = self._place(index)
        return 0.0 if place is None else self._law.propensity(place)

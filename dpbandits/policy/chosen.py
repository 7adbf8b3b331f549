"""What a :class:`~dpbandits.Released` chose: indices at once, probabilities when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np

from accounting.arrays import Array
from dpbandits.policy.choices import Law
from dpbandits.policy.many import Index, Laws

__all__ = ["Choice", "Choices", "SlateChoice"]


class Choice:
    """One choice; ``index, probability = choice`` takes it apart, which computes the probability.

    Attributes
    ----------
    index : int
        Row of the chosen arm, or the arm, for a context.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbandits.policy.choices import Shares
    >>> choice = Choice(1, Shares(np.array([0.75, 0.25])))
    >>> index, probability = choice
    >>> index, probability, choice.inverse_probability
    (1, 0.25, 4.0)
    """

    __slots__ = ("_law", "index")

    def __init__(self, index: int, law: Law | None) -> None:
        self.index, self._law = index, law

    @property
    def probability(self) -> float:
        """With which it was chosen; see ``Decision.probability``."""
        return 1.0 if self._law is None else self._law.chance(self.index)[0]

    @property
    def probability_error(self) -> float:
        """The standard error of ``probability`` as a number; 0 where it is exact."""
        return 0.0 if self._law is None else self._law.chance(self.index)[1]

    @property
    def inverse_probability(self) -> float:
        """1/p, or an estimate of it without bias; see ``Decision.inverse_probability``."""
        return 1.0 if self._law is None else self._law.inverse(self.index)

    def __repr__(self) -> str:
        return f"Choice(index={self.index})"

    def __iter__(self) -> Iterator[Any]:
        yield self.index
        yield self.probability

    def __getitem__(self, i: int) -> Any:
        return self.index if i == 0 else (self.index, self.probability)[i]

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, (Choice, tuple)) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))


class SlateChoice(Choice):
    """One slate; index and probability are those of its first position.

    Attributes
    ----------
    indices : tuple of int
        By position, from the top: the row of the arm; where every slot has arms of its own, its row among these.

    Examples
    --------
    >>> from dpbandits.policy.choices import Shares
    >>> choice = SlateChoice((2, 0), Shares(np.array([0.25, 0.0, 0.75])))
    >>> choice.indices, choice.probability
    ((2, 0), 0.75)
    """

    __slots__ = ("indices",)

    def __init__(self, indices: tuple[int, ...], law: Law | None) -> None:
        super().__init__(indices[0], law)
        self.indices = indices

    def __repr__(self) -> str:
        return f"SlateChoice(indices={self.indices})"

    def __eq__(self, other: object) -> bool:
        return self.indices == getattr(other, "indices", self.indices) and super().__eq__(other)

    __hash__ = Choice.__hash__


class Choices(Sequence[Choice]):
    """Choices for many requests.

    Attributes
    ----------
    indices : ndarray of shape (n,)
        Rows of the chosen arms; of slates, of their first positions.
    slates : list of tuple of int, or None
        Of each slate, ``SlateChoice.indices``; None where single arms were chosen.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbandits.policy.many import Gaps
    >>> choices = Choices(np.array([1, 0]), Gaps(np.array([[0.75, 0.25], [0.5, 0.5]])))
    >>> choices.indices.tolist(), choices.probabilities.tolist(), choices[1].index
    ([1, 0], [0.25, 0.5], 0)
    """

    def __init__(self, chosen: Index | list[tuple[int, ...]], laws: Laws) -> None:
        self.slates = chosen if isinstance(chosen, list) else None
        firsts = np.array([one[0] for one in chosen], np.int64) if isinstance(chosen, list) else chosen
        self.indices: Index = firsts
        self._laws = laws
        self._told: Array | None = None

    def __len__(self) -> int:
        return len(self.indices)

    def __repr__(self) -> str:
        return f"Choices({len(self)} of them)"

    @property
    def probabilities(self) -> Array:
        """With which each was chosen, shape (n,); computed when it is first asked for."""
        if self._told is None:
            self._told = self._laws.chances(self.indices)
        return self._told

    @overload
    def __getitem__(self, i: int) -> Choice: ...

    @overload
    def __getitem__(self, i: slice) -> list[Choice]: ...

    def __getitem__(self, i: int | slice) -> Choice | list[Choice]:
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        k = range(len(self))[i]  # which refuses what is out of range
        if self.slates is not None:
            return SlateChoice(self.slates[k], self._laws.of(k))
        return Choice(int(self.indices[k]), self._laws.of(k))

"""Public sets of features, of which every arm has those of one set and zeros else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from accounting.arrays import Array
from accounting.checks import integer

__all__ = ["FeatureGroups"]


@dataclass(frozen=True)
class FeatureGroups:
    """The sets, or None where every arm may have all features.

    Attributes
    ----------
    sets : list of lists of int, or None
    outside : (d, G) ndarray
        Which features are outside of which set, as 0 and 1.
    together : (d, d) ndarray
        Which are in a set together: no record has another entry.

    Examples
    --------
    >>> FeatureGroups.of([[0, 1], [2]], dim=3).together.tolist()
    [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """

    sets: list[list[int]] | None
    outside: Array
    together: Array

    @classmethod
    def of(cls, groups: Sequence[Sequence[int]] | None, dim: int) -> FeatureGroups:
        """From what a user says.

        Raises
        ------
        ValueError, TypeError
            If these are no sets of features that cover all of them.
        """
        if groups is None:
            return cls(None, np.zeros((dim, 1)), np.ones((dim, dim)))
        try:
            sets = [list(one) for one in groups]
        except TypeError:
            raise TypeError(f"groups must be a list of lists of features, [[0, 1], [2]] say, got {groups!r}") from None
        sets = [[integer("groups", i, at_least=0) for i in one] for one in sets]
        if not sets or not all(sets) or max(map(max, sets)) >= dim:
            raise ValueError(f"groups must be sets of features from 0 to {dim - 1}, none of them empty, got {groups!r}")
        members = np.zeros((dim, len(sets)))
        for n, one in enumerate(sets):
            members[one, n] = 1.0
        if not members.any(axis=1).all():
            missing = members.any(axis=1).argmin()
            raise ValueError(f"groups must have every feature in one of them, got none with {missing}")
        return cls(sets, 1.0 - members, np.asarray((members @ members.T > 0.0).astype(np.float64)))

    def checked(self, arms: Array) -> Array:
        """``arms``, if each has the features of one set.

        Raises
        ------
        ValueError
            If not.
        """
        if self.sets is not None:
            outside = ((arms != 0.0) @ self.outside).min(axis=1) > 0.0
            if outside.any():
                raise ValueError(
                    f"arms must have the features of one of groups each, and zeros else, got row {outside.argmax()}"
                )
        return arms

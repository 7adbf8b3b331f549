"""Arms that are public and stand: which of them a row is that is offered again."""

from __future__ import annotations

import numpy as np

from accounting.arrays import Array

__all__ = ["PublicArms"]

# arms are the same if no entry differs by more
_SAME = 1e-9


class PublicArms:
    """The rows of an array, found again in O(d), or in O(Kd) where a row differs in its last digits.

    Examples
    --------
    >>> PublicArms(np.eye(3)).which(np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 1e-12]]))
    [2, 0]
    """

    def __init__(self, rows: Array) -> None:
        self.rows = rows
        # of two arms that are the same, the first
        self._numbers = {row.tobytes(): k for k, row in reversed(list(enumerate(rows)))}

    def which(self, offered: Array) -> list[int]:
        """The number of each row that is offered.

        Raises
        ------
        ValueError
            If a row is none of the arms.
        """
        return [self._which(row, number) for number, row in enumerate(offered)]

    def _which(self, row: Array, number: int) -> int:
        found = self._numbers.get(row.tobytes())
        if found is None:
            apart = np.abs(self.rows - row).max(axis=1)
            found = int(apart.argmin())
            if apart[found] > _SAME:
                raise ValueError(
                    f"arms must be among the {len(self.rows)} that the policy was made with, got row {number}, which "
                    "is none of them: StandingPrivateGLM is for arms that stand, OnePassPrivateGLM for arms that change"
                )
        return found

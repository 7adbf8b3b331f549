"""Random values drawn ahead, for the small requests of the secure source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["POOL", "Pool"]

# Values that are drawn ahead for small requests, per distribution (128 KiB); larger requests are filled directly.
POOL = 1 << 14


class Pool:
    """Values drawn ahead, each handed out once and wiped."""

    def __init__(self, fill: Callable[[NDArray[Any]], None], dtype: type[np.generic]) -> None:
        self._fill = fill
        self._values = np.zeros(POOL, dtype)
        self._next = POOL
        self._taking = False

    def take(self, out: NDArray[Any]) -> None:
        """Fill the 1-d array ``out``; the caller holds the lock."""
        if self._taking:
            # a signal handler draws in the middle of a draw, whose values must stay where they are
            self._fill(out)
            return
        self._taking = True
        try:
            self._take(out)
        finally:
            self._taking = False

    def _take(self, out: NDArray[Any]) -> None:
        while 0 < out.size < POOL:
            start = self._next
            stop = min(POOL, start + out.size)
            # marked as used before it is used, so that an interrupt can waste values but never repeat them
            self._next = stop
            out[: stop - start] = self._values[start:stop]
            self._values[start:stop] = 0
            out = out[stop - start :]
            if out.size:
                self._fill(self._values)
                self._next = 0
        if out.size:
            self._fill(out)

    def wipe(self) -> None:
        """Overwrite what has not been handed out."""
        self._next = POOL
        self._values[:] = 0

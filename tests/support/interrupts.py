"""KeyboardInterrupt at any line of this project's code, as a signal would bring it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from linecache import getline
from pathlib import Path

import accounting

_ROOT = Path(accounting.__file__).parent.parent


class Interrupter:
    """Raises KeyboardInterrupt at the n-th line of the given packages that is run inside the block."""

    def __init__(self, n: int, *packages: str) -> None:
        self.left = n
        self._folders = tuple(str(_ROOT / package) for package in packages or ("accounting", "dpkit", "dpbandits"))

    def __enter__(self) -> Interrupter:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *exception: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame, event, argument):
        if not frame.f_code.co_filename.startswith(self._folders):
            return None
        # On leaving a ``with`` its line comes up once more, before the lock is opened. CPython takes no signal there,
        # but an exception from a tracer would leave the lock closed for ever.
        if event == "line" and not getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with "):
            self.left -= 1
            if self.left == 0:
                sys.settrace(self._before)
                raise KeyboardInterrupt
        return self._trace


def interrupted(call: Callable[[], object], n: int, *packages: str) -> bool:
    """Interrupt ``call`` at its n-th line; whether it got that far."""
    try:
        with Interrupter(n, *packages):
            call()
    except KeyboardInterrupt:
        return True
    return False

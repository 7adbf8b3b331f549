"""KeyboardInterrupt at any line of this project's code, as a signal would bring it; threads and forks."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable
from linecache import getline
from pathlib import Path

import accounting

_ROOT = Path(accounting.__file__).parent.parent


def _interrupt() -> None:
    raise KeyboardInterrupt


class Interrupter:
    """At the n-th line of the given packages that is run inside the block KeyboardInterrupt, or what ``action`` does.

    ``left`` is how many lines that was too late.
    """

    def __init__(self, n: int, *packages: str, action: Callable[[], object] = _interrupt) -> None:
        self.left, self._action = n, action
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
                self._action()
        return self._trace


def interrupted(call: Callable[[], object], n: int, *packages: str) -> bool:
    """Interrupt ``call`` at its n-th line; whether it got that far."""
    try:
        with Interrupter(n, *packages):
            call()
    except KeyboardInterrupt:
        return True
    return False


def at_once(jobs: Iterable[Callable[[], object]]) -> None:
    """All jobs in threads, with switches as often as the interpreter makes them."""
    threads = [threading.Thread(target=job) for job in jobs]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)


def refused_in_a_fork(call: Callable[[], object], error: type[Exception]) -> bool:
    """Whether the child of a fork gets ``error``."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            call()
        except error:
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

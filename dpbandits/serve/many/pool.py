"""The learners of many runs, in a few processes that share them among them.

Each run has its learner, with its lease, checkpoint and trail, as a service of one run has
(:mod:`dpbandits.serve.learner`). A process of the pool holds many, and lets one after the other take a step. A run in
which little happens is looked at ever more rarely, down to once in a second, so that a hundred of them cost little.

Every process has a number, and runs that are its own by a hash of their name. A run that no other process leads for
some time it takes over; the leases, and the hold on the checkpoint, see to it that only one does. Whoever is started in
the place of a process that has ended has its name in the leases, and goes on at once.

What stops one run (storage that went back, a contract that was changed) is written down for it, and the others go on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from zlib import crc32

from accounting import Ledger
from dpbandits.serve.database import Mismatch
from dpbandits.serve.edge import failed_at
from dpbandits.serve.learner import AGAIN, MOST, PAUSE, Learner, RunClosed
from dpbandits.serve.many.group import Group
from dpbandits.serve.store import LeaseLost

__all__ = ["Pool", "learn_many"]

log = logging.getLogger("dpbandits.serve")

# seconds: that a lease holds (it is renewed five times as often), between two looks into the folder, that a step may be
# put off where nothing happens, before a run that was refused is tried again, and for which another process's run may
# be without a learner before this one takes it over
_LEASE, _LOOK, _IDLE, _REFUSED, _OTHERS = 20.0, 0.5, 1.0, 20.0, 30.0
# how many are let go of at once
_TOGETHER = 16


@dataclass
class _Led:
    """A learner at work: when its next step is due, and how long after that the following one."""

    learner: Learner
    due: float = 0.0
    pause: float = PAUSE


class Pool:
    """The learners of one process.

    Parameters
    ----------
    group : Group
    number, processes : int
        Which process of the pool this is, and of how many.
    holder : str
        Its name in leases; by default one that no other has.
    clock : callable, optional
        Seconds, in place of a monotonic clock.
    """

    def __init__(
        self,
        group: Group,
        number: int = 0,
        processes: int = 1,
        *,
        holder: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._group, self._number, self._processes, self._holder = group, number, processes, holder
        self._clock = clock
        self._led: dict[str, _Led] = {}
        self._again: dict[str, float] = {}
        self._looked = -_LOOK
        self._books: Ledger | None = None
        self._away: set[str] = set()
        self._closed: set[str] = set()

    def close(self) -> None:
        """Let go of all runs, for others to take over at once."""
        # each writes to a disk, and many wait for it no longer than one
        with ThreadPoolExecutor(_TOGETHER) as together:
            list(together.map(self._let_go, list(self._led)))
        if self._books is not None:
            self._books.close()
            self._books = None

    def turn(self, ended: Callable[[], bool] = lambda: False) -> float:
        """Let every learner that is due take a step, until ``ended``; in how many seconds the next one is."""
        now = self._clock()
        if now >= self._looked + _LOOK:
            self._looked = now
            self._look(now)
        for name, one in list(self._led.items()):
            if one.due <= now and not ended():
                self._step(name, one)
        next_due = min((one.due for one in self._led.values()), default=now + _LOOK)
        return max(0.0, min(next_due, self._looked + _LOOK) - self._clock())

    def names(self) -> list[str]:
        """The runs whose learners are here."""
        return sorted(self._led)

    def gauges(self) -> dict[str, float]:
        """For monitoring, by run."""
        told: dict[str, float] = {}
        for name in set(self._again) - set(self._led) - self._closed:
            told[f'leads{{run="{name}"}}'] = 0
        for name, one in list(self._led.items()):
            told |= {f'{figure}{{run="{name}"}}': number for figure, number in one.learner.gauges().items()}
        return {**told, "heartbeat": time.time(), "runs": len(self._led)}

    def _look(self, now: float) -> None:
        """Take over runs that are to be led here, one new one at a time, and let go of those that are paused."""
        names = self._group.begun()
        for name in [*self._led]:
            if name not in names or self._group.paused(name):
                self._let_go(name)
        for name in names:
            if name in self._led or self._group.paused(name):
                continue
            theirs = crc32(name.encode()) % self._processes != self._number
            if now >= self._again.setdefault(name, now + _OTHERS if theirs else now):
                self._lead(name, now)
                self._looked = now - _LOOK  # the next one soon, after those that are led have had their turn
                return

    def _lead(self, name: str, now: float) -> None:
        self._again[name] = now + AGAIN
        try:
            if self._books is None:
                self._books = self._group.open_ledger()
            config = replace(self._group.config(name), books=self._books)
            self._led[name] = _Led(Learner(config, holder=self._holder, lease=_LEASE), now)
            self._again[name] = now
            self._away.discard(name)
            self._group.refuse(name, "")
        except (LeaseLost, BlockingIOError):  # another process leads it
            self._again[name] = now + (AGAIN if crc32(name.encode()) % self._processes == self._number else _OTHERS)
        except Exception as error:
            self._failed(name, error, now)

    def _step(self, name: str, one: _Led) -> None:
        try:
            done = one.learner.step()
        except (LeaseLost, BlockingIOError):
            self._let_go(name)
            return
        except Exception as error:
            self._let_go(name)
            self._failed(name, error, self._clock())
            return
        one.pause = PAUSE if done else min(2.0 * one.pause, _IDLE)
        one.due = self._clock() + (0.0 if done >= MOST else one.pause)

    def _let_go(self, name: str) -> None:
        with suppress(OSError):
            self._led.pop(name).learner.close()
        self._again[name] = self._clock() + AGAIN

    def _failed(self, name: str, error: Exception, now: float) -> None:
        """Say why a run is not learned from, and try it again later; the others go on."""
        self._again[name] = now + _REFUSED
        if isinstance(error, RunClosed):
            self._closed.add(name)
            why = f"the run is closed ({error})"
        elif isinstance(error, (Mismatch, FileNotFoundError)):
            why = str(error)
        elif isinstance(error, OSError):
            self._again[name] = now + AGAIN
            why = f"the database or the disk cannot be used ({type(error).__name__})"
            if name in self._away:
                return
            self._away.add(name)
        else:  # whose words may hold values
            why = failed_at(error)
        if self._books is not None:  # it may be what went back
            books, self._books = self._books, None
            if not self._led:
                books.close()
        if self._group.refused(name) != why:
            log.warning("run %s is not learned from: %s", name, why)
            with suppress(OSError):
                self._group.refuse(name, why)


def learn_many(
    group: Group, number: int, holder: str, stop: threading.Event, gauges: dict[str, float] | None = None
) -> None:
    """Be a process of the pool until ``stop``; ``gauges`` is kept up to date, for monitoring."""
    group.check()
    pool, told = Pool(group, number, group.learners, holder=holder), {} if gauges is None else gauges
    last = 0.0
    try:
        while not stop.is_set():
            wait = pool.turn(stop.is_set)
            if time.monotonic() > last + 0.5:
                last, found = time.monotonic(), pool.gauges()
                for name in set(told) - set(found):
                    del told[name]
                told.update(found)
            stop.wait(max(wait, 0.001))
    finally:
        pool.close()

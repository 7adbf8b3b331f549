"""A worker's one way to the database: a thread that writes what all open requests ask for in one transaction.

A commit is written through to the disk, which costs as much for a hundred decisions as for one; so requests that come
while one commit is on its way share the next. None is answered before its commit.

Where the database is away, requests are turned away at once (:class:`Away`), and the thread goes on knocking. Decisions
can then still be made by the newest release that is known here, and answered with tickets.

Whoever has connected asks the learner first whether this is the run's history, or one that went back (see
:mod:`dpbandits.serve.lineage`); until it has answered, nothing is written, as where the database is away.

A commit whose answer does not come may be one, or may still become one. A decision in it that is answered with a ticket
would then be there twice, and count for two rounds of one person; so the ticket says by which id it may be there, and
whoever activates it looks (:meth:`dpbandits.serve.store.Store.activate`). Who is turned away before the commit began is
not in it: one lock decides which of the two it is.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dpbandits.policy.released import Released
from dpbandits.serve import events
from dpbandits.serve.database import Mismatch
from dpbandits.serve.store import Store

__all__ = ["Away", "Busy", "Writer"]

log = logging.getLogger("dpbandits.serve")

Kind = Literal["decide", "visit", "activate", "reward", "rank", "show", "praise", "read"]

# how many requests may wait, how many share a commit, and how often to ask for a newer release where nobody writes
_MOST_WAITING, _MOST_TOGETHER, _PAUSE = 4096, 256, 0.1
# seconds: how long one commit may take before nobody waits for it any more, between two knocks at the door, and between
# two looks at the clock
PATIENCE, _AGAIN, LOOK = 3.0, 0.25, 0.5


class Busy(RuntimeError):
    """Nothing was written, or nobody knows: ask again."""


class Away(Busy):
    """The database does not answer; of a decision, ``ids`` are those by which it may be written all the same."""

    ids: Sequence[str] | None = None


@dataclass(slots=True)
class _Job:
    kind: Kind
    load: Any
    done: asyncio.Future[Any]
    # behind the writer's lock: whether it is in no later commit, and what a commit that has begun will answer
    left: bool = False
    ids: Sequence[str] | None = None


class _Left(Exception):
    """Somebody was turned away before the commit began: it is made without."""


class Writer:
    """The database of one worker, and the newest release that it knows.

    Parameters
    ----------
    where : Path or str
        The database.
    horizon : int or None
        After how many decisions nothing is learned any more.
    wait : float or None
        After how many seconds a reward is late.
    check : callable, optional
        Called with each new connection; what it raises keeps this worker from writing, and is logged.
    clock : callable, optional
        Seconds since 1970, in place of the database's: decides what is late, and nothing of what is released.
    idle : float
        Seconds that may pass between two looks for a newer release. Where it is more than a moment, the thread looks
        the more rarely the longer nobody has asked.

    Attributes
    ----------
    released : Released or None
        The newest one that is known.
    key : str
        Of tickets; empty until it is known.
    away : bool
        Whether the database does not answer.
    confirmed : bool
        Whether the learner has said that the database's history is the run's.
    skew : float
        By how many seconds this process's clock is ahead of the database's.
    """

    def __init__(
        self,
        where: Path | str,
        *,
        horizon: int | None,
        wait: float | None,
        check: Callable[[Store], object] = lambda _: None,
        clock: Callable[[], float] | None = None,
        idle: float = _PAUSE,
    ) -> None:
        self._idle, self._pause = idle, _PAUSE
        self._where, self._horizon, self._wait, self._check, self._clock = where, horizon, wait, check, clock
        self._jobs: deque[_Job] = deque()
        self._current: list[_Job] = []
        self._begun: float | None = None
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._open = True
        self.away = False
        self.confirmed = False
        self.skew = 0.0
        self._told = ""
        self.released: Released | None = None
        self.key = ""
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)

    def start(self) -> None:
        """Begin to write, for requests of the running loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        """Write what waits, and end then."""
        self._open = False
        self._wake.set()

    def close(self) -> None:
        """:meth:`stop`, and wait for the end."""
        self.stop()
        self._thread.join(2 * PATIENCE)

    def gauges(self) -> dict[str, float]:
        """For monitoring."""
        release = -1 if self.released is None else self.released.number
        known = {"release": release, "confirmed": self.confirmed, "database_there": not self.away}
        return {**known, "clock_skew_seconds": abs(self.skew), "waiting": len(self._jobs)}

    def ask(self, kind: Kind, load: Any) -> asyncio.Future[Any]:
        """What :class:`.store.Store` answers to a list for the method of this name; what was written is durable then.

        Or :mod:`.events`, where an event is ranked, activated (``"show"``) or rewarded (``"praise"``). Or, to
        ``"read"``, the answer of a function of the store.

        Raises
        ------
        Busy, Away
        """
        if self.away:
            raise Away("the database does not answer")
        if len(self._jobs) >= _MOST_WAITING or not self._thread.is_alive():
            raise Busy("the database does not keep up")
        done: asyncio.Future[Any] = self._loop.create_future()
        self._jobs.append(_Job(kind, load, done))
        if not self._wake.is_set():  # else the thread has yet to look
            self._wake.set()
        return done

    async def watch(self) -> None:
        """Turn away whoever waits for a commit that does not end; for as long as the loop runs."""
        while True:
            await asyncio.sleep(LOOK)
            begun = self._begun
            if begun is not None and time.monotonic() > begun + PATIENCE:
                self.away = True
                late = [job for job in [*self._current, *self._jobs] if not job.done.done()]
                _tell([(job.done, self._away(job, "the database does not answer")) for job in late])

    # --------------------------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        store: Store | None = None
        while self._open or self._jobs:
            try:
                self._begun = time.monotonic()
                if store is None:
                    store = self._knock()
                self._serve(store)
                self.away = False
            except Exception as error:  # a full disk, a lock, a server that is gone: nobody is told that it was written
                # of a mismatch the words are the operator's; of all else they may hold values
                why = str(error) if isinstance(error, Mismatch) else type(error).__name__
                if not self.away or why != self._told:
                    log.warning("the database cannot be used (%s)", why)
                self.away, self.confirmed, self._told = True, False, why
                self._turn_away(f"the database could not be written ({type(error).__name__})")
                if store is not None:
                    store.close()
                    store = None
            self._begun = None
            if self.away and self._open:
                time.sleep(_AGAIN)
            elif not self._jobs:
                asked = self._wake.wait(self._pause)
                soon = asked or not self.confirmed
                self._pause = _PAUSE if soon else min(2.0 * self._pause, self._idle)
            self._wake.clear()
        if store is not None:
            store.close()

    def _knock(self) -> Store:
        store = Store(self._where, clock=self._clock)
        try:
            self._check(store)
            self.key = self.key or str(store.fact("key"))
            store.knock()
            self.skew = store.skew
        except BaseException:
            store.close()
            raise
        return store

    def _serve(self, store: Store) -> None:
        self._current = [self._jobs.popleft() for _ in range(min(len(self._jobs), _MOST_TOGETHER))]
        if not self._current:
            self._refresh(store, store.newest())
            if not self.confirmed:
                self.confirmed = store.is_confirmed()
            return
        told: list[tuple[_Job, Any]] | None = None
        while told is None:
            with suppress(_Left), store.writing():
                told = self._done(store)
        self._answer(told)
        self._current = []
        self._refresh(store, store.last_release)

    def _done(self, store: Store) -> list[tuple[_Job, Any]]:
        """Do what the current jobs ask for, up to the commit."""
        with self._lock:
            self._current = jobs = [job for job in self._current if not job.left]
        now, self.skew, self.confirmed = store.now, store.skew, store.confirmed
        unread = [job for job in jobs if job.kind != "read"]
        if unread and not store.confirmed:
            self._answer([(job, self._away(job, "the learner has not confirmed the database yet")) for job in unread])
            with self._lock:
                self._current = jobs = [job for job in jobs if job.kind == "read"]
        ended = store.fact("ended")
        horizon = self._horizon if ended is None else int(ended["after"])
        # requests that are open together have no order among them
        answers = {
            "decide": _dealt(jobs, "decide", lambda load: store.decide(load, now, horizon)),
            "visit": _dealt(jobs, "visit", lambda load: store.visit(load, now, horizon)),
            "activate": _dealt(jobs, "activate", lambda load: store.activate(load, now, horizon)),
            "reward": _dealt(jobs, "reward", lambda load: store.reward(load, now, self._wait)),
            "rank": _dealt(jobs, "rank", lambda load: events.rank(store, load, now, horizon)),
            "show": _dealt(jobs, "show", lambda load: events.activate(store, load, now, horizon, self._wait, self.key)),
            "praise": _dealt(jobs, "praise", lambda load: events.reward(store, load, now, self._wait)),
            "read": iter([job.load(store) for job in jobs if job.kind == "read"]),
        }
        told = [(job, next(answers[job.kind])) for job in jobs]
        with self._lock:
            if any(job.left for job in jobs):
                raise _Left
            for job, answer in told:
                job.ids = answer if job.kind == "decide" else None
        return told

    def _away(self, job: _Job, why: str) -> Away:
        """Leave a job out of what is written from now on."""
        error = Away(why)
        with self._lock:
            job.left, error.ids = True, job.ids
        return error

    def _refresh(self, store: Store, newest: int) -> None:
        """Choose by the newest release from now on."""
        if newest >= 0 and (self.released is None or newest != self.released.number):
            self.released = Released.from_json(store.released(newest))

    def _turn_away(self, why: str) -> None:
        jobs, self._current = [*self._current, *self._jobs], []
        self._jobs.clear()
        self._answer([(job, self._away(job, why)) for job in jobs])

    def _answer(self, told: Sequence[tuple[_Job, Any]]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(_tell, [(job.done, answer) for job, answer in told])


def _dealt(jobs: Sequence[_Job], kind: str, work: Callable[[list[Any]], Sequence[Any]]) -> Iterator[Any]:
    """The answers to the jobs of a kind, which are done as one."""
    loads = [job.load for job in jobs if job.kind == kind]
    if not loads:
        return iter(())
    answers = iter(work([one for load in loads for one in load]))
    return iter([[next(answers) for _ in load] for load in loads])


def _tell(pairs: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    for done, answer in pairs:
        if done.done():  # its client has gone
            continue
        if isinstance(answer, Exception):
            done.set_exception(answer)
        else:
            done.set_result(answer)

"""A worker's one way to the database: a thread that writes what all open requests ask for in one transaction.

A commit is written through to the disk, which costs as much for a hundred decisions as for one; so requests that come
while one commit is on its way share the next. None is answered before its commit.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from dpbandits.released import Released
from dpbandits.serve.store import Choice, Status, Store

__all__ = ["Busy", "Desk"]

T = TypeVar("T")

# how many requests may wait, how many share a commit, and how often to ask for a newer release where nobody writes
_MOST_WAITING, _MOST_TOGETHER, _PAUSE = 4096, 256, 0.1


class Busy(RuntimeError):
    """Nothing was written, or nobody knows: ask again."""


@dataclass(slots=True)
class _Job:
    work: Callable[[Store], Any]
    done: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


class Desk:
    """The database of one worker, and the newest release that it knows.

    Parameters
    ----------
    path : Path
        The database.
    horizon : int or None
        After how many decisions nothing is learned any more.
    wait : float or None
        After how many seconds a reward is late.
    clock : callable
        Seconds since 1970; decides what is late, and nothing of what is released.
    """

    def __init__(
        self, path: Path, *, horizon: int | None, wait: float | None, clock: Callable[[], float] = time.time
    ) -> None:
        self._path, self._horizon, self._wait, self._clock = path, horizon, wait, clock
        self._jobs: deque[_Job] = deque()
        self._wake = threading.Event()
        self._open = True
        self.released: Released | None = None
        self._thread = threading.Thread(target=self._run, name="desk", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def close(self) -> None:
        """Write what waits, and end."""
        self._open = False
        self._wake.set()
        self._thread.join()

    async def decide(self, choices: Sequence[Choice]) -> list[str]:
        """Ids of decisions that are durable.

        Raises
        ------
        Busy
        """
        return await self._ask(lambda store: store.decide(choices, self._clock(), self._horizon))

    async def reward(self, rewards: Sequence[tuple[str, float]]) -> list[Status]:
        """What became of rewards; accepted ones are durable.

        Raises
        ------
        Busy
        """
        return await self._ask(lambda store: store.reward(rewards, self._clock(), self._wait))

    async def read(self, work: Callable[[Store], T]) -> T:
        """The answer to a question, in a transaction."""
        return await self._ask(work)

    def _ask(self, work: Callable[[Store], T]) -> asyncio.Future[T]:
        if len(self._jobs) >= _MOST_WAITING or not self._thread.is_alive():
            raise Busy("the database does not keep up")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._jobs.append(_Job(work, done, loop))
        self._wake.set()
        return done

    def _run(self) -> None:
        store = Store(self._path)
        try:
            while self._open or self._jobs:
                if not self._jobs:
                    self._wake.wait(_PAUSE)
                self._wake.clear()
                try:
                    self._refresh(store)
                finally:
                    self._serve(store)
        finally:
            store.close()

    def _refresh(self, store: Store) -> None:
        """Choose by the newest release from now on."""
        newest = store.newest()
        if newest >= 0 and (self.released is None or newest != self.released.number):
            self.released = Released.from_json(store.released(newest))

    def _serve(self, store: Store) -> None:
        jobs = [self._jobs.popleft() for _ in range(min(len(self._jobs), _MOST_TOGETHER))]
        if not jobs:
            return
        answers: list[Any] = []
        try:
            with store.writing():
                answers.extend(job.work(store) for job in jobs)
        except Exception as error:  # a full disk, a lock: nobody is told that it was written
            answers = [Busy(f"the database could not be written ({type(error).__name__})")] * len(jobs)
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
        for job, answer in zip(jobs, answers, strict=True):
            by_loop.setdefault(job.loop, []).append((job.done, answer))
        for loop, pairs in by_loop.items():
            try:
                loop.call_soon_threadsafe(_tell, pairs)
            except RuntimeError:  # the loop is closed: nobody waits
                continue


def _tell(pairs: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    for done, answer in pairs:
        if done.done():  # its client has gone
            continue
        if isinstance(answer, Exception):
            done.set_exception(answer)
        else:
            done.set_result(answer)

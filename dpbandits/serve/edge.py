"""The edge of a service: what strangers may hold before they have shown a token, and how much of it.

Whoever can reach the port can open connections, send half a request, and make the log grow. So every worker

* closes a connection that has not sent a whole request head in time, or does not read its answer, and the oldest idle
  ones where there are too many (:func:`watch`);
* gives a body a deadline, and all bodies together a bound (:class:`Bodies`), after the token was seen;
* takes decisions of one client at a bounded rate, if the file says so (:class:`Rates`): the horizon is part of the
  budget, and who may decide could else use it up in seconds;
* writes what repeats itself once, with a count (:class:`Repeated`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
import traceback
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any, Protocol

from dpbandits.serve.clients import Client
from dpbandits.serve.messages import Refusal
from dpbandits.serve.metrics import trace_here

__all__ = [
    "Bodies",
    "Gone",
    "JsonLines",
    "Rates",
    "Receive",
    "Repeated",
    "failed_at",
    "more_descriptors",
    "quiet",
    "watch",
]

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

# seconds between two looks at all connections
_LOOK = 0.5
# how often in the time that a body has
_LOOKS = 4
# file descriptors for the database, the log and libraries
_SPARE = 64

log = logging.getLogger("dpbandits.serve")


class Gone(Exception):
    """Nobody is there any more."""


class Bodies:
    """Reads bodies: each at most ``most`` bytes in ``seconds`` or a quarter more, all at most ``together`` bytes.

    Raises
    ------
    Gone
        If the connection ended.
    Refusal
        413 if a body is too large, 408 if it is late, 503 if too many are being read.
    """

    def __init__(self, *, most: int, together: int, seconds: float) -> None:
        self._most, self._together, self._seconds = most, together, seconds
        self._held = 0
        # until when each task may read, and those that were late: one timer for all, as one for each takes longer than
        # to read most bodies
        self._until: dict[asyncio.Task[Any], float] = {}
        self._late: set[asyncio.Task[Any]] = set()
        self._timed: asyncio.AbstractEventLoop | None = None

    async def read(self, receive: Receive) -> bytes:
        """The whole body of a request."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        if task is None:
            raise RuntimeError("bodies are read in a task")
        self._until[task] = loop.time() + self._seconds
        if self._timed is not loop:
            self._timed = loop
            loop.call_later(self._seconds / _LOOKS, self._look, loop)
        try:
            return await self._whole(receive)
        except asyncio.CancelledError:
            if task not in self._late:
                raise
            task.uncancel()
            raise Refusal(408, "the body did not come in time", connection="close") from None
        finally:
            del self._until[task]
            self._late.discard(task)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give up on those whose time is over."""
        now = loop.time()
        for task, until in self._until.items():
            if now >= until and task not in self._late:
                self._late.add(task)
                task.cancel()
        self._timed = loop if self._until else None
        if self._until:
            loop.call_later(self._seconds / _LOOKS, self._look, loop)

    async def _whole(self, receive: Receive) -> bytes:
        parts: list[bytes] = []
        size, more = 0, True
        try:
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Gone
                part = message.get("body", b"")
                size += len(part)
                self._held += len(part)
                if size > self._most:
                    raise Refusal(413, "the request is too large", connection="close")
                if self._held > self._together:
                    raise Refusal(503, "too many large requests at once", connection="close")
                parts.append(part)
                more = message.get("more_body", False)
        finally:
            self._held -= size
        return b"".join(parts)


class Rates:
    """At most ``per_minute`` of something for each client, a minute's worth at once; None does not limit.

    Each of ``workers`` gives its part. A client may have a rate of its own.
    """

    def __init__(self, per_minute: float | None, workers: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._workers, self._clock = per_minute, workers, clock
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, client: Client | None, count: int) -> None:
        """Take ``count`` for a client, all of them or none.

        Raises
        ------
        Refusal
            429 with the seconds to wait, if so many are not there.
        """
        rate = self._rate if client is None or client.decisions is None else client.decisions
        if rate is None or client is None:
            return
        now, most = self._clock(), rate / self._workers
        left, since = self._left.get(client.name, (most, now))
        left = min(most, left + (now - since) * most / 60.0)
        if count > left:
            self._left[client.name] = left, now
            if count > most:
                raise Refusal(429, f"this client may have {most:g} a minute from this worker, in smaller requests")
            wait = max(1, round((count - left) * 60.0 / most + 0.5))
            raise Refusal(429, "this client has had its decisions of this minute", retry_after=str(wait))
        self._left[client.name] = left - count, now


class _Cycle(Protocol):
    response_complete: bool


class _Connection(Protocol):
    cycle: _Cycle | None
    transport: asyncio.Transport


async def watch(connections: Collection[Any], *, most: int, seconds: float) -> None:
    """Close connections that keep the server waiting longer than ``seconds``, and of too many the oldest of these.

    It waits for a whole request head, or for an answer to be read.

    Parameters
    ----------
    connections : collection
        The server's, which it adds to and takes from.
    """
    since: dict[_Connection, tuple[_Cycle | None, float]] = {}
    while True:
        now = time.monotonic()
        before, since = since, {}
        for one in connections:
            cycle = one.cycle
            # an answer that is not read blocks its request for ever
            if cycle is None or cycle.response_complete or one.transport.get_write_buffer_size():
                known, at = before.get(one, (cycle, now))
                since[one] = (cycle, at if known is cycle else now)  # another request has come since
        by_age = sorted(since, key=lambda one: since[one][1])
        many = len(connections) - most
        for place, one in enumerate(by_age):
            if place < many or now - since[one][1] > seconds:
                one.transport.abort()
        if many > 0:
            log.warning("more than %s connections: idle ones are closed", most)
        await asyncio.sleep(_LOOK)


def more_descriptors(connections: int) -> int:
    """Raise the limit on open files as far as this process may; how many connections fit under it, at most so many."""
    try:
        import resource
    except ImportError:  # there is no such limit
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _SPARE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    fitting: int = max(1, soft - _SPARE)
    log.warning("the limit on open files, %s, leaves room for %s connections, not %s", soft, fitting, connections)
    return fitting


class Repeated(logging.Filter):
    """Lets the first ``most`` warnings of one place in the sources through in ``seconds``, and counts the others.

    What is no warning is told once for each fact, and is all written: the last head of a ledger above all, by which an
    old copy is known.
    """

    def __init__(self, most: int = 5, seconds: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._most, self._seconds, self._clock = most, seconds, clock
        self._seen: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is written."""
        if record.levelno < logging.WARNING:
            return True
        place, now = (record.pathname, record.lineno), self._clock()
        begun, count = self._seen.get(place, (now, 0))
        if now - begun > self._seconds:
            if count > self._most:
                record.msg = f"{record.getMessage()} ({count - self._most} more like this were not written)"
                record.args = ()
            begun, count = now, 0
        self._seen[place] = begun, count + 1
        return count < self._most


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, process, message, and the trace if one is known. None has personal data."""

    def __init__(self, role: str, *, traces: bool = False) -> None:
        super().__init__()
        self._role, self._trace = role, trace_here if traces else dict

    def format(self, record: logging.LogRecord) -> str:
        """A line."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{record.msecs:03.0f}Z"
        told = {"time": at, "level": record.levelname, "role": self._role, "pid": record.process}
        told |= self._trace()
        return json.dumps({**told, "message": record.getMessage()}, ensure_ascii=False)


def failed_at(error: BaseException) -> str:
    """The type of an error and the place of it, for logs: its message may hold values."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {os.path.basename(place.filename)}, line {place.lineno}"


def quiet(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What went wrong in the event loop, in one line without a traceback: there may be hundreds of thousands."""
    error = context.get("exception")
    log.error("%s: %s", type(error).__name__ if error else "event loop", context.get("message", ""))

"""What an operator's monitoring reads: the figures of all processes of a service together, on a port of its own.

Once a second every process writes a line about itself into a pipe that the supervisor reads. So the figures are there
while the disk is full or the database away, and no worker has to know another one. ``GET /metrics`` answers in
Prometheus's text format, for an owner's token: how many rewards came, and when, tells of those who sent them.
``GET /livez`` needs none.

    [service]
    admin = 9090
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import closing
from typing import Any

from dpbandits.serve.clients import Callers
from dpbandits.serve.edge import quiet
from dpbandits.serve.metrics import BOUNDS, time_lines

__all__ = ["Admin", "Board", "listening", "report"]

# seconds between two lines of a process, and after which one that is silent counts as stuck
_EVERY, _SILENT = 1.0, 10.0
_LONGEST = 2**20
# of the admin port: connections at once, bytes of a head, and seconds for it and its answer
_CONNECTIONS, _HEAD, _SECONDS = 64, 2**13, 5.0
# of several processes the one that is worst off is told: with the least of these, and the most of all others
_LEAST = ("worker_release", "worker_confirmed", "worker_database_there")


def report(fd: int, snapshot: Callable[[], dict[str, Any]]) -> None:
    """Write what ``snapshot`` says into a pipe, every second, in a thread of its own, until nobody reads."""

    def write() -> None:
        os.set_blocking(fd, True)
        while True:
            try:
                os.write(fd, json.dumps(snapshot()).encode() + b"\n")
            except OSError:
                return
            time.sleep(_EVERY)

    threading.Thread(target=write, name="report", daemon=True).start()


class Board:
    """The newest line of every process, and what those that have ended had counted."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._newest: dict[int, tuple[str, float, dict[str, Any]]] = {}
        self._past: Counter[tuple[str, ...]] = Counter()
        self._starts: Counter[str] = Counter()

    def begin(self, slot: int, role: str) -> int:
        """A process begins in this place; the end of a pipe for it to write to, which the caller closes then."""
        reading, writing = os.pipe()
        with self._lock:
            self._starts[role] += 1
            ended = self._newest.pop(slot, None)
            if ended is not None:
                self._past += _counts(ended[2])
            self._newest[slot] = role, 0.0, {}
        threading.Thread(target=self._read, args=(slot, role, reading), name="board", daemon=True).start()
        return writing

    def _read(self, slot: int, role: str, reading: int) -> None:
        rest = b""
        while True:
            select.select([reading], [], [])
            part = os.read(reading, 65536)
            if not part or len(rest) > _LONGEST:
                os.close(reading)
                return
            *lines, rest = (rest + part).split(b"\n")
            if lines:
                with self._lock:
                    self._newest[slot] = role, self._clock(), json.loads(lines[-1])

    def text(self) -> str:
        """All figures, in Prometheus's text format."""
        now = self._clock()
        with self._lock:
            newest, counts, starts = list(self._newest.values()), Counter(self._past), dict(self._starts)
        lines = []
        for _, _, told in newest:
            counts += _counts(told)
        lines.append("# TYPE dpbandits_requests_total counter")
        for (_, route, kind), number in sorted((k, n) for k, n in counts.items() if k[0] == "answers"):
            lines.append(f'dpbandits_requests_total{{route="{route}",status="{kind}"}} {number}')
        lines.append("# TYPE dpbandits_request_seconds histogram")
        for route in sorted({key[1] for key in counts if key[0] == "times"}):
            times = (counts["times", route, str(place)] for place in range(len(BOUNDS) + 1))
            lines += time_lines(f'route="{route}"', times, counts["sums", route])
        lines.append("# TYPE dpbandits_process_starts_total counter")
        lines += [
            f'dpbandits_process_starts_total{{role="{role}"}} {number}' for role, number in sorted(starts.items())
        ]
        lines.append("# TYPE dpbandits_processes gauge")
        for role in sorted(starts):
            alive = sum(1 for kind, at, _ in newest if kind == role and now - at < _SILENT)
            lines.append(f'dpbandits_processes{{role="{role}"}} {alive}')
        kinds = set[str]()
        for name, numbers in sorted(_gauges(newest, now).items()):  # of many runs they have the run's name in braces
            worst, kind = min(numbers) if name in _LEAST else max(numbers), name.partition("{")[0]
            lines += [] if kind in kinds else [f"# TYPE dpbandits_{kind} gauge"]
            lines.append(f"dpbandits_{name} {worst:.15g}")
            kinds.add(kind)
        return "\n".join([*lines, *_build()]) + "\n"


def _counts(told: dict[str, Any]) -> Counter[tuple[str, ...]]:
    """The counters in a line, by what they count."""
    found: Counter[tuple[str, ...]] = Counter()
    for route, kind, number in told.get("answers", ()):
        found["answers", route, kind] += number
    for route, numbers in told.get("times", {}).items():
        for place, number in enumerate(numbers):
            found["times", route, str(place)] += number
    for route, number in told.get("sums", {}).items():
        found["sums", route] += number
    return found


def _gauges(newest: Collection[tuple[str, float, dict[str, Any]]], now: float) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for role, at, told in newest:
        if now - at < _SILENT:
            for name, number in told.get("gauges", {}).items():
                found.setdefault(f"{role}_{name}", []).append(float(number))
    return found


def _build() -> list[str]:
    from accounting import __version__

    return ["# TYPE dpbandits_build_info gauge", f'dpbandits_build_info{{version="{__version__}"}} 1']


class Admin:
    """Answers on the admin port, in a thread, until :meth:`close`.

    It runs in the process that starts all others again, so whoever floods it must take nothing from that: a connection
    has seconds for a small head and for its answer, beyond a few dozen connections the oldest is closed, and nothing is
    written of who asks.

    Parameters
    ----------
    board : Board
    host, port
        Where; port 0 takes any that is free.
    callers : Callers
        Of whom those with the scope ``own`` may read.
    """

    def __init__(self, board: Board, host: str, port: int, callers: Callers) -> None:
        self._board, self._callers = board, callers
        self._socket = listening(host, port, backlog=2 * _CONNECTIONS)
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self._socket.getsockname()[1]}"
        self._open: dict[asyncio.StreamWriter, None] = {}  # the oldest first
        self._loop, self._ended = asyncio.new_event_loop(), asyncio.Event()
        self._loop.set_exception_handler(quiet)
        self._thread = threading.Thread(target=self._run, name="admin", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def _run(self) -> None:
        with closing(self._loop):
            self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, sock=self._socket, limit=_HEAD)
        await self._ended.wait()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for one in others:
            one.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open[writer] = None
        if len(self._open) > _CONNECTIONS:
            next(iter(self._open)).transport.abort()
        try:
            async with asyncio.timeout(_SECONDS):
                writer.write(self._answer(await reader.readuntil(b"\r\n\r\n")))
                writer.close()
                await writer.wait_closed()
        except (OSError, EOFError, asyncio.LimitOverrunError):  # also TimeoutError
            pass
        finally:
            del self._open[writer]
            writer.transport.abort()

    def _answer(self, head: bytes) -> bytes:
        asked, *lines = head.decode("latin-1").split("\r\n")
        method, _, path = asked.rpartition(" ")[0].partition(" ")
        named = (line.partition(":") for line in lines)
        headers = {name.lower().encode(): value.strip().encode("latin-1") for name, _, value in named}
        caller = self._callers.who(headers, now=time.time())
        if method != "GET":
            status, text = "405 Method Not Allowed", "only GET\n"
        elif path == "/livez":
            status, text = "200 OK", "alive\n"
        elif path != "/metrics":
            status, text = "404 Not Found", "there are /metrics and /livez\n"
        elif caller is None or not caller.may(["own"]):
            status, text = "401 Unauthorized", "a client with the scope own is needed: Authorization: Bearer …\n"
        else:
            status, text = "200 OK", self._board.text()
        content = text.encode()
        told = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nConnection: close\r\n"
        return f"{told}Content-Length: {len(content)}\r\n\r\n".encode() + content


def listening(host: str, port: int, *, backlog: int) -> socket.socket:
    """A socket that listens there, on IPv6 where the host is one of its addresses."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=backlog)

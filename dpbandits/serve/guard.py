"""Around every request: a bound on its size, a count, a time, and no word of its content in logs or errors.

The requests that come many times a second are answered here, without a framework around them (see
:mod:`dpbandits.serve.posts`).
"""

from __future__ import annotations

import json
import logging
import os
import time
import traceback
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

from dpbandits.serve.desk import Busy
from dpbandits.serve.messages import Refusal
from dpbandits.serve.posts import Post

__all__ = ["Guard", "Meter"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

log = logging.getLogger("dpbandits.serve")

_BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)


class Meter:
    """Counts and times of this process's requests, by route and kind of answer.

    That a reward came, and when, is a person's data (it may be missing): that route is told to owners alone.
    """

    def __init__(self) -> None:
        self._answers: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._times: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(_BOUNDS) + 1))
        self._sums: defaultdict[str, float] = defaultdict(float)

    def count(self, route: str, status: int, seconds: float) -> None:
        """One request was answered."""
        self._answers[route, f"{status // 100}xx"] += 1
        self._sums[route] += seconds
        self._times[route][bisect_left(_BOUNDS, seconds)] += 1

    def text(self, *, private: frozenset[str]) -> list[str]:
        """In Prometheus's text format, without the routes that are ``private``."""
        who = f'worker="{os.getpid()}"'
        lines = ["# TYPE dpbandits_requests_total counter"]
        for (route, kind), number in sorted(self._answers.items()):
            if route not in private:
                lines.append(f'dpbandits_requests_total{{{who},route="{route}",status="{kind}"}} {number}')
        lines.append("# TYPE dpbandits_request_seconds histogram")
        for route, counts in sorted(self._times.items()):
            if route in private:
                continue
            total = 0
            for bound, number in zip((*_BOUNDS, "+Inf"), counts, strict=True):
                total += number
                lines.append(f'dpbandits_request_seconds_bucket{{{who},route="{route}",le="{bound}"}} {total}')
            lines.append(f'dpbandits_request_seconds_sum{{{who},route="{route}"}} {self._sums[route]:.6f}')
            lines.append(f'dpbandits_request_seconds_count{{{who},route="{route}"}} {total}')
        return lines


class _TooLarge(Exception):
    pass


class Guard:
    """An ASGI application around another one.

    Parameters
    ----------
    app
        The one inside.
    meter : Meter
    most : int
        Bytes of a request's body.
    routes : frozenset of str
        Paths that are counted under their own names; all others together, as "other".
    posts : mapping of path to Post
        What is answered here, where the method is POST.
    """

    def __init__(self, app: Any, *, meter: Meter, most: int, routes: frozenset[str], posts: Mapping[str, Post]) -> None:
        self._app, self._meter, self._most, self._routes, self._posts = app, meter, most, routes, posts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path, post = scope["path"], None
        if scope["method"] == "POST":
            post = self._posts.get(path)
        begun = time.perf_counter()
        status = 0
        size = 0

        async def counted() -> MutableMapping[str, Any]:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self._most:
                raise _TooLarge
            return message

        async def noted(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                if size > self._most:  # whatever the application made of it
                    status = 413
                    await _refuse(send, 413, "the request is too large")
                    return
                status = message["status"]
            if status != 413 or size <= self._most:
                await send(message)

        try:
            if _length(scope) > self._most:
                status = 413
                await _refuse(send, 413, "the request is too large")
            elif post is not None:
                content = await self._answer(post, scope, receive)
                if content is not None:
                    status = 200
                    await _send(send, 200, content, {})
            else:
                await self._app(scope, counted, noted)
        except Refusal as error:
            status = error.status
            await _refuse(send, error.status, error.error, error.where, error.headers)
        except _TooLarge:
            status = 413
            await _refuse(send, 413, "the request is too large")
        except Exception as error:
            # type and place: a message may hold values
            place = traceback.extract_tb(error.__traceback__)[-1]
            log.error("%s in %s, line %s", type(error).__name__, os.path.basename(place.filename), place.lineno)
            if not status:
                status = 500
                await _refuse(send, 500, "an error inside the service")
        finally:
            route = path if path in self._routes else "other"
            self._meter.count(route, status or 499, time.perf_counter() - begun)

    async def _answer(self, post: Post, scope: Scope, receive: Receive) -> bytes | None:
        """What is told; None where nobody is there any more."""
        parts, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._most:
                raise _TooLarge
            more = message.get("more_body", False)
        try:
            return await post.answer(_header(scope, b"authorization"), b"".join(parts))
        except Busy as error:
            raise Refusal(503, str(error)) from None


def _header(scope: Scope, wanted: bytes) -> str:
    for name, value in scope["headers"]:
        if name == wanted:
            return str(value, "latin-1")
    return ""


def _length(scope: Scope) -> int:
    value = _header(scope, b"content-length")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 19 else 0


async def _refuse(
    send: Send, status: int, error: str, where: Sequence[str] = (), headers: Mapping[str, str] | None = None
) -> None:
    await _send(send, status, json.dumps({"error": error, "where": list(where)}).encode(), headers or {})


async def _send(send: Send, status: int, content: bytes, headers: Mapping[str, str]) -> None:
    named = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    named += [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": named})
    await send({"type": "http.response.body", "body": content})

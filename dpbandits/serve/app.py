"""A worker, as an ASGI application: around every request a bound on its size, a token, a count and a time.

It is written without a framework, whose share of a request would be larger than all that is done for it. No word of a
request's content gets into logs or errors.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from dpbandits.serve import personalizer
from dpbandits.serve.admin import report
from dpbandits.serve.config import Config, Limits
from dpbandits.serve.desk import Answering, Desk
from dpbandits.serve.edge import Bodies, Gone, Receive, failed_at, more_descriptors, quiet, watch
from dpbandits.serve.many.front import UNTOLD, Front
from dpbandits.serve.many.group import Group
from dpbandits.serve.messages import Refusal, Route, parsed
from dpbandits.serve.metrics import Meter, Traces
from dpbandits.serve.writer import Busy

__all__ = ["create"]

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

log = logging.getLogger("dpbandits.serve")


def create(
    config: Config | Group,
    *,
    clock: Callable[[], float] | None = None,
    connections: Collection[Any] = (),
    board: int | None = None,
) -> Application:
    """The application of one worker, of a run or of a group of runs.

    Of a server's ``connections`` it closes those that only wait; into the pipe ``board`` it writes its figures. The
    ``clock`` is for one run, in place of its database's.
    """
    meter = Meter()
    front = Front(config, meter) if isinstance(config, Group) else Desk(config, meter, clock=clock)
    if board is not None:
        report(board, lambda: meter.to_dict() | {"gauges": front.gauges() | {"connections": len(connections)}})
    return Application(front, config.limits, meter, connections, Traces(UNTOLD) if config.traces else None)


class Application:
    """Answers to requests.

    Parameters
    ----------
    front : Desk or Front
        What begins and ends with the server, and knows what answers a request.
    limits : Limits
    meter : Meter
    connections : collection
        The server's.
    traces : Traces or None
    """

    def __init__(
        self, front: Desk | Front, limits: Limits, meter: Meter, connections: Collection[Any], traces: Traces | None
    ) -> None:
        self._front, self._limits, self._meter = front, limits, meter
        self._connections, self._traces = connections, traces
        self._bodies = Bodies(most=limits.body, together=limits.bodies, seconds=limits.seconds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the time from the start of the server to its end."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._counted(scope, receive, send)

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun, status = time.perf_counter(), 499
        desk, path = self._front.pick(scope["path"])
        route, named = desk.find(path, scope["method"])
        with self._span(route, scope) as span:
            try:
                headers = {"content-type": "application/json"}
                try:
                    if route is None:
                        raise Refusal(404, "there is no such page")
                    content = await self._answer(desk, route, named, scope, receive)
                    status, headers = route.status, {"content-type": route.media, **route.headers}
                except (Gone, asyncio.CancelledError):  # by whoever asked, or because the service ends
                    return
                except Exception as error:
                    if not isinstance(error, Refusal):
                        log.error("%s", failed_at(error))
                        error = Refusal(500, "an error inside the service")
                    status, content = personalizer.problem(error) if desk.theirs(path) else _problem(error)
                    headers |= error.headers
                await _send(send, status, content.encode(), headers)
            finally:
                self._meter.count("other" if route is None else route.path, status, time.perf_counter() - begun)
                if self._traces is not None and span is not None:
                    self._traces.answered(span, status)

    def _span(self, route: Route | None, scope: Scope) -> AbstractContextManager[Any]:
        """Around a request that needs a token, where requests are traced."""
        if self._traces is None or route is None or not route.scopes:
            return nullcontext()
        return self._traces.span(route.method, route.path, dict(scope["headers"]))

    async def _answer(self, desk: Answering, route: Route, named: Sequence[str], scope: Scope, receive: Receive) -> str:
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:19]) > self._limits.body:
            raise Refusal(413, "the request is too large", connection="close")
        if route.method not in ("*", scope["method"]):
            raise Refusal(405, "not this method here", allow=route.method)
        # nothing of a body is read before its sender has shown a token
        if b"authorization" not in headers and route.path.startswith(personalizer.PREFIX):
            headers[b"authorization"] = b"Bearer " + headers.get(personalizer.KEY, b"")
        caller = desk.who(headers)
        if route.scopes and caller is None:
            raise Refusal(401, "a valid token is needed: Authorization: Bearer …", connection="close")
        if route.scopes and caller is not None and not caller.may(route.scopes):
            needed = " or ".join(route.scopes)
            raise Refusal(403, f"this needs a client with the scope {needed}", connection="close")
        asked: Any = route.asked and parsed(await self._bodies.read(receive), route.asked)
        if route.path in ("/v1/decisions", "/v1/slates"):
            desk.rates.take(caller, len(asked.decisions if route.path == "/v1/decisions" else asked.slates))
        elif route.asked and issubclass(route.asked, personalizer.RankRequest):
            desk.rates.take(caller, 1)
        try:
            return await route.answer(asked, caller, *named)
        except Busy as error:
            raise Refusal(503, str(error)) from None

    async def _live(self, receive: Receive, send: Send) -> None:
        """From the start of the server to its end."""
        await receive()
        asyncio.get_running_loop().set_exception_handler(quiet)
        self._front.start()
        guarding = asyncio.create_task(self._guard())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        guarding.cancel()
        self._front.stop()
        self._front.close()
        if self._traces is not None:
            await asyncio.to_thread(self._traces.flush)
        await send({"type": "lifespan.shutdown.complete"})

    async def _guard(self) -> None:
        limits = self._limits
        await watch(self._connections, most=more_descriptors(limits.connections), seconds=limits.seconds)


def _problem(error: Refusal) -> tuple[int, str]:
    return error.status, json.dumps({"error": error.error, "where": error.where})


async def _send(send: Send, status: int, content: bytes, headers: Mapping[str, str]) -> None:
    if status == 204:  # has neither a content nor its length
        headers = {name: value for name, value in headers.items() if name != "content-type"}
    named = [(name.encode(), value.encode()) for name, value in headers.items()]
    if status != 204:
        named.append((b"content-length", str(len(content)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": named})
    await send({"type": "http.response.body", "body": content})

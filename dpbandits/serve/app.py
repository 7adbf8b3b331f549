"""A worker, as an ASGI application: around every request a bound on its size, a token, a count and a time.

It is written without a framework, whose share of a request would be larger than all that is done for it. No word of a
request's content gets into logs or errors.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import time
import traceback
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any

from dpbandits.serve import contract, personalizer
from dpbandits.serve.admin import report
from dpbandits.serve.config import Config
from dpbandits.serve.edge import Bodies, Gone, Rates, more_descriptors, quiet, watch
from dpbandits.serve.endpoints import Endpoints
from dpbandits.serve.messages import Refusal, Route, parsed
from dpbandits.serve.metrics import Meter
from dpbandits.serve.writer import Busy, Writer

__all__ = ["create"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

log = logging.getLogger("dpbandits.serve")


def create(
    config: Config,
    *,
    clock: Callable[[], float] | None = None,
    connections: Collection[Any] = (),
    board: int | None = None,
) -> Callable[[Scope, Receive, Send], Any]:
    """The application of one worker.

    Of a server's ``connections`` it closes those that only wait; into the pipe ``board`` it writes its figures.
    """
    probe = config.probe()
    check = partial(contract.check, wanted=contract.terms_of(config, probe))
    writer = Writer(config.database, horizon=probe.horizon, wait=config.wait, check=check, clock=clock)
    meter = Meter()
    endpoints = Endpoints(config, probe, writer, meter)
    find = _finder(endpoints.routes)
    limits = config.limits
    if board is not None:
        report(board, lambda: meter.to_dict() | {"gauges": writer.gauges() | {"connections": len(connections)}})
    bodies = Bodies(most=limits.body, together=limits.bodies, seconds=limits.seconds)
    rates, callers = Rates(config.rate, config.workers), config.callers()

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(writer, _guard(config, connections), receive, send)
        elif scope["type"] == "http":
            await _counted(scope, receive, send)

    async def _counted(scope: Scope, receive: Receive, send: Send) -> None:
        begun, status = time.perf_counter(), 499
        route, named = find(scope["path"])
        theirs = config.features is not None and scope["path"].startswith(personalizer.PREFIX)
        try:
            headers = {"content-type": "application/json"}
            try:
                if route is None:
                    raise Refusal(404, "there is no such page")
                content = await _answer(route, named, scope, receive)
                status, headers = route.status, {"content-type": route.media, **route.headers}
            except (Gone, asyncio.CancelledError):  # by whoever asked, or because the service ends
                return
            except Refusal as error:
                status, content = personalizer.problem(error) if theirs else _problem(error)
                headers |= error.headers
            except Exception as error:
                # type and place: a message may hold values
                place = traceback.extract_tb(error.__traceback__)[-1]
                log.error("%s in %s, line %s", type(error).__name__, os.path.basename(place.filename), place.lineno)
                inside = Refusal(500, "an error inside the service")
                status, content = personalizer.problem(inside) if theirs else _problem(inside)
            await _send(send, status, content.encode(), headers)
        finally:
            meter.count("other" if route is None else route.path, status, time.perf_counter() - begun)

    async def _answer(route: Route, named: Sequence[str], scope: Scope, receive: Receive) -> str:
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:19]) > config.limits.body:
            raise Refusal(413, "the request is too large", connection="close")
        if route.method != scope["method"]:
            raise Refusal(405, "not this method here", allow=route.method)
        # nothing of a body is read before its sender has shown a token
        if b"authorization" not in headers and route.path.startswith(personalizer.PREFIX):
            headers[b"authorization"] = b"Bearer " + headers.get(personalizer.KEY, b"")
        caller = callers.who(headers, now=time.time() - writer.skew)
        if route.scopes and caller is None:
            raise Refusal(401, "a valid token is needed: Authorization: Bearer …", connection="close")
        if route.scopes and caller is not None and not caller.may(route.scopes):
            needed = " or ".join(route.scopes)
            raise Refusal(403, f"this needs a client with the scope {needed}", connection="close")
        asked: Any = route.asked and parsed(await bodies.read(receive), route.asked)
        if route.path == "/v1/decisions":
            rates.take(caller, len(asked.decisions))
        elif route.asked and issubclass(route.asked, personalizer.RankRequest):
            rates.take(caller, 1)
        try:
            return await route.answer(asked, caller, *named)
        except Busy as error:
            raise Refusal(503, str(error)) from None

    return application


def _finder(routes: Sequence[Route]) -> Callable[[str], tuple[Route | None, Sequence[str]]]:
    """By a path, the route, and what stands for its parts in braces."""
    exact = {route.path: route for route in routes if "{" not in route.path}
    patterns = [
        (re.compile("(.+)".join(map(re.escape, re.split(r"\{\w+\}", route.path))), re.DOTALL), route)
        for route in routes
        if "{" in route.path
    ]

    def find(path: str) -> tuple[Route | None, Sequence[str]]:
        if (route := exact.get(path)) is not None:
            return route, ()
        for pattern, route in patterns:
            if found := pattern.fullmatch(path):
                return route, found.groups()
        return None, ()

    return find


def _problem(error: Refusal) -> tuple[int, str]:
    return error.status, json.dumps({"error": error.error, "where": error.where})


async def _guard(config: Config, connections: Collection[Any]) -> None:
    limits = config.limits
    await watch(connections, most=more_descriptors(limits.connections), seconds=limits.seconds)


async def _live(writer: Writer, guard: Coroutine[Any, Any, None], receive: Receive, send: Send) -> None:
    """From the start of the server to its end."""
    await receive()
    asyncio.get_running_loop().set_exception_handler(quiet)
    writer.start()
    watching, guarding = asyncio.create_task(writer.watch()), asyncio.create_task(guard)
    await send({"type": "lifespan.startup.complete"})
    await receive()
    watching.cancel()
    guarding.cancel()
    writer.close()
    await send({"type": "lifespan.shutdown.complete"})


async def _send(send: Send, status: int, content: bytes, headers: Mapping[str, str]) -> None:
    if status == 204:  # has neither a content nor its length
        headers = {name: value for name, value in headers.items() if name != "content-type"}
    named = [(name.encode(), value.encode()) for name, value in headers.items()]
    if status != 204:
        named.append((b"content-length", str(len(content)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": named})
    await send({"type": "http.response.body", "body": content})

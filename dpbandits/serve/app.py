"""A worker, as an ASGI application: around every request a bound on its size, a token, a count and a time.

It is written without a framework, whose share of a request would be larger than all that is done for it. No word of a
request's content gets into logs or errors.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import partial
from typing import Any

from dpbandits.serve import contract
from dpbandits.serve.config import Config
from dpbandits.serve.endpoints import Endpoints
from dpbandits.serve.messages import Refusal, Route, parsed
from dpbandits.serve.metrics import Meter
from dpbandits.serve.writer import Busy, Writer

__all__ = ["create"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

log = logging.getLogger("dpbandits.serve")


class _Gone(Exception):
    """Nobody is there any more."""


def create(config: Config, *, clock: Callable[[], float] | None = None) -> Callable[[Scope, Receive, Send], Any]:
    """The application of one worker."""
    probe = config.probe()
    check = partial(contract.check, wanted=contract.terms_of(config, probe))
    writer = Writer(config.database, horizon=probe.horizon, wait=config.wait, check=check, clock=clock)
    meter = Meter()
    endpoints = Endpoints(config, probe, writer, meter)
    routes = {route.path: route for route in endpoints.routes}

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(writer, receive, send)
        elif scope["type"] == "http":
            await _counted(scope, receive, send)

    async def _counted(scope: Scope, receive: Receive, send: Send) -> None:
        begun, path, status = time.perf_counter(), scope["path"], 499
        try:
            headers = {"content-type": "application/json"}
            try:
                route, content = await _answer(scope, receive)
                status, headers = 200, {"content-type": route.media, **route.headers}
            except _Gone:
                return
            except Refusal as error:
                status, content = error.status, json.dumps({"error": error.error, "where": error.where})
                headers |= error.headers
            except Exception as error:
                # type and place: a message may hold values
                place = traceback.extract_tb(error.__traceback__)[-1]
                log.error("%s in %s, line %s", type(error).__name__, os.path.basename(place.filename), place.lineno)
                status, content = 500, json.dumps({"error": "an error inside the service", "where": []})
            await _send(send, status, content.encode(), headers)
        finally:
            meter.count(path if path in routes else "other", status, time.perf_counter() - begun)

    async def _answer(scope: Scope, receive: Receive) -> tuple[Route, str]:
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:19]) > config.limits.body:
            raise Refusal(413, "the request is too large")
        route = routes.get(scope["path"])
        if route is None:
            raise Refusal(404, "there is no such page")
        if route.method != scope["method"]:
            raise Refusal(405, "not this method here", allow=route.method)
        content = b"" if route.asked is None else await _body(receive, config.limits.body)
        role = endpoints.role(headers.get(b"authorization", b"").decode("latin-1"))
        if route.roles and role is None:
            raise Refusal(401, "a valid token is needed: Authorization: Bearer …")
        if route.roles and role not in route.roles:
            raise Refusal(403, f"this needs a token of: {', '.join(route.roles)}")
        try:
            return route, await route.answer(route.asked and parsed(content, route.asked), role)
        except Busy as error:
            raise Refusal(503, str(error)) from None

    return application


async def _live(writer: Writer, receive: Receive, send: Send) -> None:
    """From the start of the server to its end."""
    await receive()
    writer.start()
    watching = asyncio.create_task(writer.watch())
    await send({"type": "lifespan.startup.complete"})
    await receive()
    watching.cancel()
    writer.close()
    await send({"type": "lifespan.shutdown.complete"})


async def _body(receive: Receive, most: int) -> bytes:
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            raise Refusal(413, "the request is too large")
        more = message.get("more_body", False)
    return b"".join(parts)


async def _send(send: Send, status: int, content: bytes, headers: Mapping[str, str]) -> None:
    named = [(name.encode(), value.encode()) for name, value in headers.items()]
    named.append((b"content-length", str(len(content)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": named})
    await send({"type": "http.response.body", "body": content})

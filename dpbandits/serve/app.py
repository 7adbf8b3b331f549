"""A worker: it chooses by the newest release, writes down what it chose, and takes rewards in. It keeps no more."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException as AnyHTTPException

from dpbandits.serve.config import ROLES, Config
from dpbandits.serve.desk import Busy, Desk
from dpbandits.serve.guard import Guard, Meter
from dpbandits.serve.manual import manual
from dpbandits.serve.messages import (
    Problem,
    Refusal,
    document,
    told,
)
from dpbandits.serve.posts import Post, Posts
from dpbandits.serve.store import Store

__all__ = ["create"]

M = TypeVar("M", bound=BaseModel)

_ROUTES = frozenset(
    {
        "/",
        "/docs",
        "/healthz",
        "/metrics",
        "/v1/activations",
        "/v1/decisions",
        "/v1/rewards",
        "/v1/released",
        "/v1/privacy",
    }
    | {"/v1/releases"}
)
_ABOUT_REWARDS = frozenset({"/v1/rewards"})
_PAGE = Path(__file__).with_name("page.html")
_BEARER = {
    "type": "http",
    "scheme": "bearer",
    "description": "a token of a decider, the learner of rewards, or the owner",
}
_REFUSALS: dict[int | str, dict[str, Any]] = {
    code: {"model": Problem, "description": text}
    for code, text in {
        400: "not JSON",
        401: "no valid token",
        403: "a token of another role",
        413: "too large",
        422: "not as the schema or the policy wants it",
        503: "not ready, or overloaded: ask again",
    }.items()
}


def create(config: Config, *, clock: Callable[[], float] = time.time) -> Guard:
    """The application of one worker, inside of its guard, which answers most requests."""
    probe = config.probe()
    desk = Desk(config.database, horizon=probe.horizon, wait=config.wait, clock=clock)
    meter = Meter()
    posts = Posts(config, probe, desk)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        desk.start()
        watching = asyncio.create_task(desk.watch())
        yield
        watching.cancel()
        desk.close()

    # the framework's own viewers of the schema load their scripts from elsewhere
    app = FastAPI(title="dpbandits", version="1", lifespan=life, responses=_REFUSALS, docs_url=None, redoc_url=None)
    _handle(app)
    for path, post in posts.table.items():
        _declare(app, path, post)

    @app.get("/v1/released", summary="The newest release, as Released.from_json reads it")
    async def released(request: Request) -> Response:
        posts.check(authorization(request), *ROLES)
        return Response(posts.newest().to_json(), media_type="application/json")

    @app.get("/v1/releases", summary="All releases so far, as the page shows them")
    async def releases(request: Request) -> Response:
        posts.check(authorization(request), *ROLES)
        return _json({"releases": await desk.read(Store.history)})

    @app.get("/v1/privacy", summary="What the run costs, and what is left")
    async def privacy(request: Request) -> Response:
        posts.check(authorization(request), *ROLES)
        fact = await desk.read(lambda store: store.fact("privacy"))
        if fact is None:
            raise Refusal(503, "nothing is released yet: is the learner running?")
        return _json(fact | await desk.read(Store.counts))

    @app.get("/v1/raw/curve", summary="RAW DATA, for the owner: means of rewards in parts of the run")
    async def curve(request: Request) -> Response:
        posts.check(authorization(request), "owner")
        if not config.curves:
            raise Refusal(403, "page.curves is not set: no raw means are kept")
        return _json({"raw": True, "curve": await desk.read(Store.curve)})

    @app.get("/v1/raw/apprentice", summary="RAW DATA, for the owner: what the bandit would have got")
    async def apprentice(request: Request) -> Response:
        posts.check(authorization(request), "owner")
        if not (config.curves and config.apprentice):
            raise Refusal(403, "page.curves is not set, or the mode is not apprentice: nothing raw is kept")
        return _json({"raw": True, "apprentice": await desk.read(Store.apprentice)})

    @app.get("/healthz", summary="Whether this worker can decide")
    async def health() -> Response:
        return _json({"release": posts.newest().number, "database": "away" if desk.away else "there"})

    @app.get("/metrics", response_class=PlainTextResponse, summary="Counts and times; of rewards, for the owner alone")
    async def metrics(request: Request) -> Response:
        owner = posts.role(authorization(request)) == "owner"
        counts = await desk.read(Store.counts)
        lines = []
        for name, number in counts.items():
            lines += [f"# TYPE dpbandits_{name}_total counter", f"dpbandits_{name}_total {number}"]
        if desk.released is not None:
            lines += ["# TYPE dpbandits_release gauge", f"dpbandits_release {desk.released.number}"]
        if owner:
            waiting = await desk.read(Store.waiting)
            lines += ["# TYPE dpbandits_rewards_waiting gauge", f"dpbandits_rewards_waiting {waiting}"]
        lines += meter.text(private=frozenset() if owner else _ABOUT_REWARDS)
        return PlainTextResponse("\n".join(lines) + "\n")

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def page() -> Response:
        return _html(_PAGE.read_text(encoding="utf-8"), "script-src 'unsafe-inline'; connect-src 'self'")

    @app.get("/docs", response_class=HTMLResponse, include_in_schema=False)
    async def docs() -> Response:
        return _html(manual(app.openapi()))

    _document_tokens(app)
    return Guard(app, meter=meter, most=config.limits.body, routes=_ROUTES, posts=posts.table)


def _declare(app: FastAPI, path: str, post: Post) -> None:
    """Say in the schema what is asked and told; such requests are answered before the framework sees them."""

    async def answered(request: Request) -> Response:
        content = await post.answer(authorization(request), await request.body())
        return Response(content, media_type="application/json")

    extra = document(post.asked)
    app.post(path, response_model=post.told, summary=post.summary, openapi_extra=extra, name=path)(answered)


def authorization(request: Request) -> str:
    """The header that holds the token."""
    return request.headers.get("authorization", "")


def _document_tokens(app: FastAPI) -> None:
    """Say in the schema where tokens are needed."""
    schema = app.openapi()
    schema.setdefault("components", {})["securitySchemes"] = {"token": _BEARER}
    for path, methods in schema["paths"].items():
        if path.startswith("/v1/"):
            for operation in methods.values():
                operation["security"] = [{"token": []}]


def _json(content: Any) -> Response:
    return Response(json.dumps(content, allow_nan=False), media_type="application/json")


def _html(text: str, *allowed: str) -> Response:
    """A page that loads nothing from elsewhere."""
    policy = "; ".join(["default-src 'none'", "style-src 'unsafe-inline'", *allowed])
    headers = {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
    return HTMLResponse(text, headers=headers)


def _problem(status: int, error: str, where: list[str] | None = None, headers: Any = None) -> Response:
    return JSONResponse({"error": error, "where": where or []}, status, headers=headers)


def _handle(app: FastAPI) -> None:
    """Refusals in our own words: the framework's repeat what was sent."""

    @app.exception_handler(Refusal)
    async def refused(_: Request, error: Refusal) -> Response:
        return _problem(error.status, error.error, error.where, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        return _problem(422, "the request is not of the schema at /docs", told(error.errors()))

    @app.exception_handler(AnyHTTPException)
    async def other(_: Request, error: HTTPException) -> Response:
        texts = {400: "the body is not JSON", 404: "there is no such page", 405: "not this method here"}
        return _problem(error.status_code, texts.get(error.status_code, "refused"), headers=error.headers)

    @app.exception_handler(Busy)
    async def busy(_: Request, error: Busy) -> Response:
        return _problem(503, str(error), headers={"Retry-After": "1"})

    @app.exception_handler(Exception)
    async def broken(_: Request, __: Exception) -> Response:
        return _problem(500, "an error inside the service")  # and the guard logs what and where

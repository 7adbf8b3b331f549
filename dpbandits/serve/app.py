"""A worker: it chooses by the newest release, writes down what it chose, and takes rewards in. It keeps no more."""

import asyncio
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException as AnyHTTPException

from dpbandits.mathematics.choices import Law
from dpbandits.policy import Array
from dpbandits.released import Released
from dpbandits.serve.config import ROLES, Config, digest
from dpbandits.serve.desk import Away, Busy, Desk
from dpbandits.serve.guard import Guard, Meter
from dpbandits.serve.manual import manual
from dpbandits.serve.store import Choice, Store
from dpbandits.serve.tickets import punched, read
from dpbandits.serve.wire import (
    Activations,
    Answer,
    Ask,
    Asked,
    Problem,
    Rewarded,
    Rewards,
    Tickets,
    document,
    told,
    vectors,
)
from dpkit.randomness import secure

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


class Refusal(Exception):
    """An answer in the four or five hundreds, in words that hold nothing of the request."""

    def __init__(self, status: int, error: str, where: list[str] | None = None) -> None:
        self.status, self.error, self.where = status, error, where or []


def create(config: Config, *, clock: Callable[[], float] = time.time) -> FastAPI:
    """The application of one worker."""
    probe = config.probe()
    desk = Desk(config.database, horizon=probe.horizon, wait=config.wait, clock=clock)
    meter = Meter()
    rng = secure()
    persons = probe._persons is not None or config.budget.unit == "person"

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        desk.start()
        watching = asyncio.create_task(desk.watch())
        yield
        watching.cancel()
        desk.close()

    # the framework's own viewers of the schema load their scripts from elsewhere
    app = FastAPI(title="dpbandits", version="1", lifespan=life, responses=_REFUSALS, docs_url=None, redoc_url=None)
    app.add_middleware(Guard, meter=meter, most=config.limits.body, routes=_ROUTES)
    _handle(app)

    def check(request: Request, *allowed: str) -> None:
        """Refuse whoever has no token of these roles; not as a dependency, which would cost as much as the choice."""
        found = _role(config, request)
        if found is None:
            raise Refusal(401, "a valid token is needed: Authorization: Bearer …")
        if found not in allowed:
            raise Refusal(403, f"this needs a token of: {', '.join(allowed)}")

    def newest() -> Released:
        if desk.released is None:
            raise Refusal(503, "nothing is released yet: is the learner running?")
        return desk.released

    def choose(ask: Ask, released: Released, at: str, *, tell: bool) -> tuple[Choice, int]:
        """What is written down, and what the bandit would have chosen; ``tell`` with which probability."""
        limits = config.limits
        given, other = (ask.arms, ask.context) if probe.takes == "arms" else (ask.context, ask.arms)
        if given is None or other is not None:
            raise Refusal(422, f"this policy takes {probe.takes}, and nothing else", [at])
        if ask.arms is not None and len(ask.arms) > limits.arms:
            raise Refusal(422, f"at most {limits.arms} arms", [at])
        if (ask.chosen is None) == config.apprentice or (ask.probability is not None and not config.apprentice):
            needed = "needed, and probability may be given," if config.apprentice else "(or probability) taken"
            raise Refusal(422, f"chosen is {needed} in apprentice mode, and only there", [at])
        try:
            X = probe._checked_arms(vectors(ask.arms) if ask.arms is not None else given)
            bandit, chance = _chosen(released, X, rng, tell=tell and not config.apprentice)
        except (ValueError, OverflowError):
            what = "arms must be rows" if probe.takes == "arms" else "context must be a list"
            raise Refusal(422, f"{what} of {probe.dim} numbers, of norm at most 1", [at]) from None
        index = bandit
        if ask.chosen is not None:
            index, chance = ask.chosen, ask.probability
            if index >= released._shell._count(X):
                raise Refusal(422, "chosen must be the index of an arm", [at])
        arm = X if probe.takes == "context" else X[index]
        who = person(ask.person, at) if persons else None
        return Choice(index, chance, arm, who, bandit if config.apprentice else None), bandit

    def person(given: str | None, at: str) -> str:
        if given is None or len(given) > config.limits.person:
            raise Refusal(422, f"person is needed, of at most {config.limits.person} letters", [at])
        try:
            given.encode()
        except UnicodeEncodeError:
            raise Refusal(422, "person must be a text", [at]) from None
        return given

    @app.post(
        "/v1/decisions", response_model=Answer, summary="Choose, and wait for rewards", openapi_extra=document(Asked)
    )
    async def decisions(request: Request) -> Response:
        check(request, "decider")
        body = await _body(request, Asked)
        if len(body.decisions) > config.limits.batch:
            raise Refusal(422, f"at most {config.limits.batch} decisions in one request", ["decisions"])
        released = newest()
        found = [
            choose(ask, released, f"decisions.{i}", tell=body.probabilities) for i, ask in enumerate(body.decisions)
        ]
        ids: Sequence[str | None] = [None] * len(found)
        if body.activate:
            with suppress(Away):  # tickets, then
                ids = await desk.decide([choice for choice, _ in found])
        answers = []
        for id, (choice, bandit) in zip(ids, found, strict=True):
            answer = {
                "id": id,
                "index": choice.chosen,
                "probability": choice.probability,
                "release": released.number,
                "learned": id is not None and not id.startswith("0-"),
            }
            if config.apprentice:
                answer["bandit"] = bandit
            if id is None:
                answer["ticket"] = punched(choice, desk.key)
            answers.append(answer)
        return _json({"decisions": answers})

    @app.post(
        "/v1/activations",
        response_model=Activations,
        summary="Learn from decisions that were answered with tickets; each counts once",
        openapi_extra=document(Tickets),
    )
    async def activations(request: Request) -> Response:
        check(request, "decider")
        body = await _body(request, Tickets)
        if len(body.tickets) > config.limits.batch:
            raise Refusal(422, f"at most {config.limits.batch} tickets in one request", ["tickets"])
        newest()  # the key is known with it
        read_ones = [read(ticket, desk.key) for ticket in body.tickets]
        made = iter(await desk.activate([one for one in read_ones if one is not None]))
        answers: list[dict[str, Any]] = []
        for one in read_ones:
            if one is None:
                answers.append({"id": None, "status": "unknown", "learned": False})
                continue
            id, new = next(made)
            status = "accepted" if new else "duplicate"
            answers.append({"id": id, "status": status, "learned": not id.startswith("0-")})
        return _json({"activations": answers})

    @app.post(
        "/v1/rewards",
        response_model=Rewarded,
        summary="Tell rewards; each counts once",
        openapi_extra=document(Rewards),
    )
    async def rewards(request: Request) -> Response:
        check(request, "learner")
        body = await _body(request, Rewards)
        if len(body.rewards) > config.limits.batch:
            raise Refusal(422, f"at most {config.limits.batch} rewards in one request", ["rewards"])
        checked = []
        for i, one in enumerate(body.rewards):
            try:
                checked.append((one.id, probe._checked_reward(one.reward)))
            except ValueError:
                raise Refusal(422, "reward must lie in the policy's reward_range", [f"rewards.{i}"]) from None
        statuses = await desk.reward(checked)
        told_back = [{"id": id, "status": status} for (id, _), status in zip(checked, statuses, strict=True)]
        return _json({"rewards": told_back})

    @app.get("/v1/released", summary="The newest release, as Released.from_json reads it")
    async def released(request: Request) -> Response:
        check(request, *ROLES)
        return Response(newest().to_json(), media_type="application/json")

    @app.get("/v1/releases", summary="All releases so far, as the page shows them")
    async def releases(request: Request) -> Response:
        check(request, *ROLES)
        return _json({"releases": await desk.read(Store.history)})

    @app.get("/v1/privacy", summary="What the run costs, and what is left")
    async def privacy(request: Request) -> Response:
        check(request, *ROLES)
        fact = await desk.read(lambda store: store.fact("privacy"))
        if fact is None:
            raise Refusal(503, "nothing is released yet: is the learner running?")
        return _json(fact | await desk.read(Store.counts))

    @app.get("/v1/raw/curve", summary="RAW DATA, for the owner: means of rewards in parts of the run")
    async def curve(request: Request) -> Response:
        check(request, "owner")
        if not config.curves:
            raise Refusal(403, "page.curves is not set: no raw means are kept")
        return _json({"raw": True, "curve": await desk.read(Store.curve)})

    @app.get("/v1/raw/apprentice", summary="RAW DATA, for the owner: what the bandit would have got")
    async def apprentice(request: Request) -> Response:
        check(request, "owner")
        if not (config.curves and config.apprentice):
            raise Refusal(403, "page.curves is not set, or the mode is not apprentice: nothing raw is kept")
        return _json({"raw": True, "apprentice": await desk.read(Store.apprentice)})

    @app.get("/healthz", summary="Whether this worker can decide")
    async def health() -> Response:
        return _json({"release": newest().number, "database": "away" if desk.away else "there"})

    @app.get("/metrics", response_class=PlainTextResponse, summary="Counts and times; of rewards, for the owner alone")
    async def metrics(request: Request) -> Response:
        owner = _role(config, request) == "owner"
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
    return app


def _document_tokens(app: FastAPI) -> None:
    """Say in the schema where tokens are needed."""
    schema = app.openapi()
    schema.setdefault("components", {})["securitySchemes"] = {"token": _BEARER}
    for path, methods in schema["paths"].items():
        if path.startswith("/v1/"):
            for operation in methods.values():
                operation["security"] = [{"token": []}]


def _role(config: Config, request: Request) -> str | None:
    """Whose token it is; every one is compared, in a time that tells nothing."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return None
    wanted, found = digest(token), None
    for role, digests in config.tokens.items():
        for one in digests:
            if hmac.compare_digest(one, wanted):
                found = role
    return found


def _chosen(released: Released, arms: Array, rng: np.random.Generator, *, tell: bool) -> tuple[int, float | None]:
    """The choice, and its probability, which for some laws costs a hundred times what the choice does."""
    found = released._shell._score_elsewhere(arms)  # they are checked
    if not isinstance(found, Law):
        return int(found.argmax()), 1.0 if tell else None
    index = int(found.draw(rng).argmax())
    chance = found.chance(index)[0] if tell else 0.0
    return index, chance if 0 < chance <= 1 else None


async def _body(request: Request, model: type[M]) -> M:
    """The checked body; read from JSON at once, in a fifth of the time that two steps take."""
    try:
        return model.model_validate_json(await request.body())
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        raise Refusal(422, "the request is not of the schema at /docs", told(found)) from None


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
        headers = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}.get(error.status)
        return _problem(error.status, error.error, error.where, headers)

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

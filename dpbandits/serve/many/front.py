"""What a worker of many runs answers about all of them, and which run a request is for.

A run answers below ``/v1/runs/NAME`` what a service of one run answers below ``/v1``: decisions at
``/v1/runs/NAME/decisions``. Its page is at ``/v1/runs/NAME/``, and the retired service's wire at
``/v1/runs/NAME/personalizer/…``.

A worker opens the runs of the folder by and by, and those that are begun later when it sees them. A request for one
that it has not opened yet is answered 503, for the client to send again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from accounting import AdjacencyMismatch, BudgetExceeded, UnsupportedRelease
from dpbandits.serve import operate, personalizer
from dpbandits.serve.answers import Begin, Closed, Live, Ready, Run, RunClients, Runs
from dpbandits.serve.clients import SCOPES, Client
from dpbandits.serve.database import Mismatch
from dpbandits.serve.desk import Answering, Desk, Found, finder
from dpbandits.serve.edge import Rates
from dpbandits.serve.endpoints import Endpoints, page_route, routes_of
from dpbandits.serve.many.group import Group, Taken
from dpbandits.serve.messages import Refusal, Route
from dpbandits.serve.metrics import Meter, gauge_lines
from dpbandits.serve.openapi import manual, schema
from dpbandits.serve.writer import Busy

__all__ = ["UNTOLD", "Front"]

log = logging.getLogger("dpbandits.serve")

_RUN = re.compile(r"/v1/runs/([^/]+)(/.*)", re.DOTALL)
# what a run has under the same name as a service of one run, besides /v1/… and the other wire
_PAGES = ("/", "/healthz", "/readyz", "/metrics")
# what is about a run, and asked of the group
_FRONT = ("/close", "/clients")
# seconds: between two looks into the folder, and that a run's thread may sleep where nobody asks
_LOOK, _IDLE = 0.5, 2.0
_AGAIN = "this run is being opened: ask again"
# of a run that this worker does not serve, whatever is asked
_UNOPENED = "/v1/runs/{run}"
# routes of requests that tell rewards, or may: how many came, and when, is for the owner of all runs alone
UNTOLD = personalizer.TOLD_NOBODY | {"/v1/rewards", _UNOPENED}


class Front:
    """A group of runs, as a worker serves it.

    Parameters
    ----------
    group : Group
    meter : Meter
    """

    def __init__(self, group: Group, meter: Meter) -> None:
        self._group, self._meter = group, meter
        self.rates, self._callers = Rates(None), group.callers()
        self._desks: dict[str, Desk] = {}
        self._failed: dict[str, str] = {}
        self._opening = asyncio.Lock()
        self._looked = False
        self.routes = [
            Route("GET", "/v1/runs", self.runs, ("read",), told=Runs),
            Route("POST", "/v1/runs", self.begin_run, ("own",), Begin, Run, status=201),
            Route("POST", "/v1/runs/{run}/close", self.close_run, ("own",), told=Closed),
            Route("PUT", "/v1/runs/{run}/clients", self.let_in, ("own",), RunClients, Run),
            Route("GET", "/livez", self.alive, told=Live),
            Route("GET", "/readyz", self.all_ready, told=Ready),
            Route("GET", "/metrics", self.all_metrics, media="text/plain; charset=utf-8"),
            page_route("/docs", self.docs),
            Route("GET", "/openapi.json", self.openapi, listed=False),
        ]
        self._find = finder(self.routes)
        self._missing = Route("*", _UNOPENED, self.missing, SCOPES, listed=False)

    def start(self) -> None:
        """Begin to open runs, in the running loop."""
        self._looking = asyncio.create_task(self._look())

    def stop(self) -> None:
        """Take nothing in any more."""
        self._looking.cancel()
        for desk in self._desks.values():
            desk.stop()

    def close(self) -> None:
        """Wait until what waits is written."""
        for desk in self._desks.values():
            desk.close()

    def pick(self, path: str) -> tuple[Answering, str]:
        """The run that a path is for, and the path that it has there."""
        found = _RUN.fullmatch(path)
        if found is None or found[2] in _FRONT or (desk := self._desks.get(found[1])) is None:
            return self, path
        rest = found[2]
        return desk, rest if rest in _PAGES or rest.startswith(personalizer.PREFIX) else f"/v1{rest}"

    def find(self, path: str, method: str) -> Found:
        """The route of a path, of those that are about all runs."""
        route, named = self._find(path, method)
        if route is None and (found := _RUN.fullmatch(path)) is not None:
            return self._missing, (found[1],)
        return route, named

    def who(self, headers: Mapping[bytes, bytes]) -> Client | None:
        """Who asks, of the group's clients."""
        skew = next((desk.writer.skew for desk in self._desks.values()), 0.0)
        return self._callers.who(headers, now=time.time() - skew)

    def theirs(self, path: str) -> bool:
        """Whether a refusal is in the words of the retired service's wire: not here."""
        return False

    def gauges(self) -> dict[str, float]:
        """For monitoring: of all runs the one that is worst off."""
        found = [desk.writer.gauges() for desk in list(self._desks.values())]
        told: dict[str, float] = {"runs": len(found)}
        for name, worst in (("confirmed", min), ("database_there", min), ("clock_skew_seconds", max), ("waiting", max)):
            if found:
                told[name] = worst(one[name] for one in found)
        return told

    # ------------------------------------------------------------------------------------------- opening runs

    async def _look(self) -> None:
        """Open what has begun, for as long as the loop runs."""
        while True:
            for name in await asyncio.to_thread(self._group.begun):
                await self._open(name)
            self._looked = True
            await asyncio.sleep(_LOOK)

    async def _open(self, name: str) -> None:
        """Open a run, unless it is open; one at a time, as all of them would take the worker's time at once."""
        async with self._opening:
            if name in self._desks:
                return
            try:
                desk = await asyncio.to_thread(self._made, name)
            except (ValueError, OSError) as error:  # of its description, which holds no data
                if self._failed.get(name) != str(error):
                    log.warning("run %s cannot be opened: %s", name, error)
                self._failed[name] = str(error)
                return
            self._failed.pop(name, None)
            desk.start()
            self._desks[name] = desk

    def _made(self, name: str) -> Desk:
        # what this process counts is of all runs, and not for the owner of one
        return Desk(self._group.config(name), Meter(), idle=_IDLE, above=self.who)

    # ------------------------------------------------------------------------------------------------ answers

    async def missing(self, _: None, caller: Client | None, name: str) -> str:
        """What is said of a run that this worker does not serve."""
        if not await asyncio.to_thread(self._group.has_begun, name):
            raise Refusal(404, "there is no such run")
        await self._open(name)
        raise Refusal(503, _AGAIN)

    async def runs(self, *_: Any) -> str:
        """All runs."""
        names = await asyncio.to_thread(self._group.names)
        return json.dumps({"runs": await asyncio.gather(*map(self._told, names))})

    async def _told(self, name: str) -> dict[str, Any]:
        """What is said of a run."""
        told: dict[str, Any] = dict.fromkeys(Run.model_fields)
        told |= {"name": name, "state": "starting"}
        desk = self._desks.get(name)
        if desk is None:
            begun = await asyncio.to_thread(self._group.has_begun, name)
            failed = self._failed.get(name)
            state = "refused" if failed else "starting" if begun else "unfinished"
            return told | {"state": state, "reason": failed}
        config, probe = desk.config, desk.probe
        told |= {"policy": type(probe).__name__, "horizon": probe.horizon, "scope": config.scope}
        told |= {"epsilon": config.budget.epsilon, "delta": config.budget.delta}
        try:
            closed, counts = await desk.writer.ask("read", lambda store: (store.fact("closed"), store.counts()))
        except Busy as error:
            return told | {"reason": str(error)}
        told |= counts
        if closed is not None:
            return told | {"state": "closed", "reason": closed["reason"]}
        if why := await asyncio.to_thread(self._group.refused, name):
            return told | {"state": "refused", "reason": why}
        if await asyncio.to_thread(self._group.paused, name):
            return told | {"state": "starting", "reason": "a command works on it"}
        ready = desk.writer.released is not None and desk.writer.confirmed
        return told | {"state": "running" if ready else "starting"}

    async def begin_run(self, body: Begin, caller: Client | None) -> str:
        """Begin a run: charge the ledger, and make all that it needs; again, where that was interrupted."""
        actor = None if caller is None else f"client {caller.name}"
        if ":" in str(body.policy.get("class", "")):
            raise Refusal(422, "policy.class must be one of this package's: no other modules are imported on request")
        try:
            await asyncio.to_thread(self._group.begin, body.name, body.described(), actor)
        except (BudgetExceeded, AdjacencyMismatch, UnsupportedRelease, Taken, Mismatch, FileExistsError) as error:
            raise Refusal(409, str(error)) from None
        except (ValueError, TypeError) as error:  # in words for the owner; a description holds no data
            raise Refusal(422, str(error)) from None
        except (MemoryError, OverflowError):
            raise Refusal(422, "a number in the description is too large") from None
        except OSError as error:
            raise Refusal(503, f"a disk or a database cannot be used ({type(error).__name__})") from None
        await self._open(body.name)
        return json.dumps(await self._told(body.name))

    async def close_run(self, _: None, caller: Client | None, name: str) -> str:
        """End a run: take in what has come, make the last release if one is due, and erase all raw data."""
        reason = "its owner closed it" if caller is None else f"the client {caller.name} closed it"

        def close() -> list[str]:
            with self._group.alone(name) as config:
                return operate.close(config, reason)

        try:
            return json.dumps({"said": await asyncio.to_thread(close)})
        except FileNotFoundError:
            raise Refusal(404, "there is no such run") from None
        except Mismatch as error:
            raise Refusal(409, str(error)) from None

    async def let_in(self, body: RunClients, _: Client | None, name: str) -> str:
        """Give a run other clients, in place of those that it has."""
        try:
            await asyncio.to_thread(self._group.let_in, name, body.described())
        except FileNotFoundError:
            raise Refusal(404, "there is no such run") from None
        except ValueError as error:
            raise Refusal(422, str(error)) from None
        return json.dumps(await self._told(name))

    async def alive(self, *_: Any) -> str:
        """Whether this process answers: if not, start it again."""
        return json.dumps({"live": True})

    async def all_ready(self, *_: Any) -> str:
        """Whether this worker has opened the runs that there are: if not, send requests elsewhere."""
        away = [desk for desk in self._desks.values() if desk.writer.away]
        if not self._looked or (away and len(away) == len(self._desks)):
            raise Refusal(503, "not ready: it opens its runs, or no database answers")
        return json.dumps({"ready": True})

    async def all_metrics(self, _: None, caller: Client | None) -> str:
        """Counts and times of this process; those of rewards, for the owner alone."""
        owner = caller is not None and caller.may(["own"])
        return (
            "\n".join([*gauge_lines(self.gauges()), *self._meter.text(private=frozenset() if owner else UNTOLD)]) + "\n"
        )

    @cached_property
    def _schema(self) -> dict[str, Any]:
        return schema([*self.routes, *of_runs(self._group.limits.batch)])

    async def docs(self, *_: Any) -> str:
        """The schema, for people."""
        return manual(self._schema)

    async def openapi(self, *_: Any) -> str:
        """The schema."""
        return json.dumps(self._schema)


def of_runs(batch: int) -> list[Route]:
    """What every run answers, by the paths that it has among many; for the schema."""
    made = []
    for route in routes_of(Endpoints, batch, experiment=True):
        if route.path.startswith("/v1/"):
            made.append(replace(route, path=f"/v1/runs/{{run}}{route.path.removeprefix('/v1')}"))
        elif route.listed and route.path in _PAGES:
            made.append(replace(route, path=f"/v1/runs/{{run}}{route.path}"))
    return made

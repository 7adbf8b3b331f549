"""One run, as a worker serves it: what it answers, to whom, and its way to the database."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from dpbandits.serve import contract, personalizer
from dpbandits.serve.clients import Client
from dpbandits.serve.config import Config
from dpbandits.serve.edge import Rates
from dpbandits.serve.endpoints import Endpoints
from dpbandits.serve.messages import Route
from dpbandits.serve.metrics import Meter
from dpbandits.serve.writer import Writer

__all__ = ["Answering", "Desk", "Found", "finder"]

# the route of a path, and what stands for its parts in braces
Found = tuple[Route | None, Sequence[str]]


class Answering(Protocol):
    """What answers requests: a run, or the front of many runs."""

    rates: Rates

    def find(self, path: str, method: str) -> Found:
        """The route of a path; one of another method where this one has none."""

    def who(self, headers: Mapping[bytes, bytes]) -> Client | None:
        """Who asks."""

    def theirs(self, path: str) -> bool:
        """Whether a refusal is told in the words of the retired service's wire."""


class Desk:
    """A run.

    Parameters
    ----------
    config : Config
    meter : Meter
        Where requests are counted.
    clock : callable, optional
        Seconds since 1970, in place of the database's.
    idle : float, optional
        For how many seconds at most the run's thread sleeps while nobody asks.
    above : callable, optional
        Who asks, of the clients that may ask any run of a group.
    """

    def __init__(
        self,
        config: Config,
        meter: Meter,
        *,
        clock: Callable[[], float] | None = None,
        idle: float | None = None,
        above: Callable[[Mapping[bytes, bytes]], Client | None] = lambda _: None,
    ) -> None:
        self.config, self._above = config, above
        self.probe = config.probe()
        check = partial(contract.check, wanted=contract.terms_of(config, self.probe))
        more = {} if idle is None else {"idle": idle}
        self.writer = Writer(
            config.database, horizon=self.probe.horizon, wait=config.wait, check=check, clock=clock, **more
        )
        self.endpoints = Endpoints(config, self.probe, self.writer, meter)
        self.rates, self._callers = Rates(config.rate, config.workers), config.callers()
        self.find = finder(self.endpoints.routes)

    def who(self, headers: Mapping[bytes, bytes]) -> Client | None:
        """Who asks, by the database's clock."""
        return self._callers.who(headers, now=time.time() - self.writer.skew) or self._above(headers)

    def theirs(self, path: str) -> bool:
        """Whether it speaks the retired service's wire there."""
        return self.config.features is not None and path.startswith(personalizer.PREFIX)

    def pick(self, path: str) -> tuple[Answering, str]:
        """What answers a path, and the path there: itself."""
        return self, path

    def gauges(self) -> dict[str, float]:
        """For monitoring."""
        return self.writer.gauges()

    def start(self) -> None:
        """Begin to write, in the running loop."""
        self.writer.start()
        self._watching = asyncio.create_task(self.writer.watch())

    def stop(self) -> None:
        """Take nothing in any more; :meth:`close` waits for what has been."""
        self._watching.cancel()
        self.writer.stop()

    def close(self) -> None:
        """Wait until what waits is written."""
        self.writer.close()


def finder(routes: Sequence[Route]) -> Callable[[str, str], Found]:
    """By a path and a method, the route, and what stands for its parts in braces; of another method if need be."""
    exact: dict[str, dict[str, Route]] = {}
    patterns = []
    for route in routes:
        if "{" in route.path:
            parts = map(re.escape, re.split(r"\{\w+\}", route.path))
            patterns.append((re.compile("(.+)".join(parts), re.DOTALL), route))
        else:
            exact.setdefault(route.path, {})[route.method] = route

    def find(path: str, method: str) -> Found:
        if (there := exact.get(path)) is not None:
            return there.get(method) or next(iter(there.values())), ()
        for pattern, route in patterns:
            if found := pattern.fullmatch(path):
                return route, found.groups()
        return None, ()

    return find

"""A query that waits where it would spend: what it costs is known, and what its engine added up is kept.

A query checks its data, and lets an engine add up, before it charges the ledger, and draws noise afterwards. In a
thread of its own it can wait between the two for all others, so that a table is read once for each answer, and nothing
is spent where one of them is refused. One thread runs at a time: random numbers are drawn in the order of the answers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from accounting import Release
from dpkit.queries.answer import Answer

__all__ = ["Again", "Waiting"]


class Waiting:
    """``ask``, which takes a ledger, until it spends."""

    def __init__(self, ask: Callable[[Any], Answer]) -> None:
        self._ask = ask
        self._told, self._go = threading.Event(), threading.Event()
        self._stopped = False
        self._cost: Release | None = None
        self._found: Answer | BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def cost(self) -> Release:
        """Run it up to there; raises what it raises."""
        self._thread.start()
        self._told.wait()
        if isinstance(self._found, BaseException):
            raise self._found
        if self._cost is None:
            raise RuntimeError("a query was answered without a cost: nothing was spent")
        return self._cost

    def answer(self) -> Answer:
        """Let it go on."""
        self._go.set()
        self._thread.join()
        if not isinstance(self._found, Answer):
            raise self._found or RuntimeError("a query ended without an answer")
        return self._found

    def stop(self) -> None:
        """End it where it waits; it may have ended already, or never have begun."""
        self._stopped = True
        self._go.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._found = self._ask(self)
        except BaseException as error:  # handed to whoever asked
            self._found = error
        finally:
            self._told.set()

    # what a query asks of a ledger
    budget = None

    def spend(self, cost: Release, **_: object) -> None:
        """Wait."""
        self._cost = cost
        self._told.set()
        self._go.wait()
        if self._stopped:
            raise _Stopped


class _Stopped(Exception):
    """Another query was refused."""


class Again:
    """A query that is run twice, so that it keeps no columns in memory while it waits."""

    budget = None

    def __init__(self, ask: Callable[[Any], Answer]) -> None:
        self._ask = ask

    def cost(self) -> Release:
        """Run it up to where it would spend."""
        try:
            self._ask(self)
        except _WouldSpend as stopped:
            return stopped.cost
        raise RuntimeError("a query was answered without a cost: nothing was spent")

    def answer(self) -> Answer:
        """Run it."""
        return self._ask(None)

    def stop(self) -> None:
        """It keeps nothing."""

    def spend(self, cost: Release, **_: object) -> None:
        """End there."""
        raise _WouldSpend(cost)


class _WouldSpend(Exception):
    def __init__(self, cost: Release) -> None:
        self.cost = cost

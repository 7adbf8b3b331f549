"""Queries that wait: for sums that are added up for all of them together, and where they would spend.

A query checks its data, and lets an engine add up, before it charges the ledger, and draws noise afterwards. In a
thread of its own it can wait for all others at both places, so that a table is read once for what all of them ask of
it, and nothing is spent where one of them is refused. One thread runs at a time: random numbers are drawn in the order
of the answers, those that choose a person's rows before those of the noise.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable

from accounting import Release
from dpkit.queries.answer import Answer
from dpkit.queries.engines.together import Found, Scan

__all__ = ["Waiting"]


class Waiting:
    """``ask`` in a thread, which is given this in the place of a ledger, and whose table waits for its scans."""

    def __init__(self, ask: Callable[[Waiting], Answer]) -> None:
        self._ask = ask
        self._waits, self._go = threading.Event(), threading.Event()
        self._stopped = False
        self._told: Scan | Release | Answer | BaseException | None = None
        self._given: Found | Exception | None = None
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), daemon=True)

    def next(self, given: Found | Exception | None = None) -> Scan | Release | Answer:
        """Let it go on, with what its scan found: to its next scan, to its cost, or to its answer; raises its error."""
        self._given = given
        self._waits.clear()
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._go.set()
        self._waits.wait()
        if isinstance(self._told, BaseException):
            raise self._told
        if self._told is None:
            raise RuntimeError("a query ended without an answer")
        return self._told

    def stop(self) -> None:
        """End it where it waits; it may have ended already, or never have begun."""
        self._stopped = True
        self._go.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._told = self._ask(self)
        except BaseException as error:  # handed to whoever asked
            self._told = error
        finally:
            self._waits.set()

    def _wait(self, told: Scan | Release) -> Found | Exception | None:
        self._told = told
        self._waits.set()
        self._go.wait()
        self._go.clear()
        if self._stopped:
            raise _Stopped
        return self._given

    def scan(self, scan: Scan) -> Found:
        """Wait for what a scan finds."""
        found = self._wait(scan)
        if isinstance(found, list):
            return found
        raise found or RuntimeError("a query went on without the sums that it asked for")

    # what a query asks of a ledger
    budget = None

    def spend(self, cost: Release, **_: object) -> None:
        """Wait until all of it is charged."""
        self._wait(cost)


class _Stopped(Exception):
    """Another query was refused."""

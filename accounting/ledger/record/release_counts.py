"""How often each release was recorded in each scope, and the description of it all."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from accounting.ledger.filters.scopes import inside, path
from accounting.ledger.record.entry_types import check_scope
from accounting.ledger.record.release_json import decode, encode
from accounting.releases import Composed, Release, compose, parallel

__all__ = ["ReleaseCounts"]


class ReleaseCounts:
    """Counts of releases per scope. What comes from a summary is decoded when it is first needed."""

    def __init__(self) -> None:
        # replaced in one step, so that an interrupt never leaves half of a change
        self._held: tuple[dict[str | None, dict[Release, int]], list[Any]] = {}, []

    def add(self, scope: str | None, release: Release, count: int = 1) -> None:
        """Count a release."""
        counts = self._held[0].setdefault(scope, {})
        counts[release] = counts.get(release, 0) + count

    def terms(self) -> Iterator[tuple[str | None, Release, int]]:
        """Every scope and release, with its count."""
        for scope, counts in self._counts().items():
            for release, count in counts.items():
                yield scope, release, count

    def scopes(self) -> list[str]:
        """Every named scope in which something was recorded."""
        return sorted(scope for scope in self._counts() if scope is not None)

    def touched(self) -> Iterator[str | None]:
        """Every scope, the whole data included, in which something was recorded that costs anything."""
        nothing = Composed()
        for scope, counts in self._counts().items():
            if any(release != nothing for release in counts):
                yield scope

    def total(
        self, scope: str | None = None, *, extra: tuple[str | None, Release] | None = None, within: bool = False
    ) -> Release:
        """What the units of a scope met: there, in its parts, and unless ``within`` around it.

        Sequential composition around a scope and in it, parallel between its parts. ``extra`` is counted too.
        """
        counts = self._counts()
        if extra is not None:
            there = dict(counts.get(extra[0], {}))
            there[extra[1]] = there.get(extra[1], 0) + 1
            counts = {**counts, extra[0]: there}
        parts: dict[str | None, set[str]] = {}
        for name in counts:
            steps = path(name)
            for outer, part in pairwise(steps):
                if inside(part, scope):
                    parts.setdefault(outer, set()).add(str(part))

        def below(name: str | None) -> Release:
            here = compose(counts.get(name, {}).items())
            inner = [below(part) for part in sorted(parts.get(name, ())) if inside(part, scope) and part != scope]
            return compose([(here, 1), (parallel(*inner), 1)]) if inner else here

        found = below(scope)
        around = [] if within else path(scope)[:-1]
        return compose([(found, 1), *((compose(counts.get(outer, {}).items()), 1) for outer in around)])

    def state(self) -> list[Any]:
        """The counts as plain JSON values."""
        return [[scope, encode(release), count] for scope, release, count in self.terms()]

    @classmethod
    def restored(cls, state: list[Any]) -> ReleaseCounts:
        """The counts of a :meth:`state`."""
        counts = cls()
        counts._held = {}, list(state)
        return counts

    @property
    def size(self) -> int:
        """How many different pairs of a scope and a release there are, or a few more."""
        counts, packed = self._held
        return len(packed) + sum(map(len, counts.values()))

    def _counts(self) -> dict[str | None, dict[Release, int]]:
        held, packed = self._held
        if packed:
            unpacked = ReleaseCounts()
            for scope, stored, count in packed:
                if scope is not None:
                    check_scope("scope", scope)
                if type(count) is not int or count < 1:
                    raise ValueError(f"a count must be a positive whole number, got {count!r}")
                unpacked.add(scope, decode(stored), count)
            for scope, counts in held.items():
                for release, count in counts.items():
                    unpacked.add(scope, release, count)
            self._held = unpacked._held
        return self._held[0]

"""Filters of lists that were fixed in advance: one for the whole ledger, or one of its own for a scope."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from accounting.ledger.rule import Rule
from accounting.ledger.scopes import inside, path
from accounting.releases import Composed, Release

__all__ = ["OwnPlans", "PlanFilter", "parts"]


class PlanFilter:
    """Admit what is left of a list that was priced as a whole; see :mod:`accounting.ledger.filters`."""

    def __init__(self, rule: Rule) -> None:
        if rule.plan is None:
            raise ValueError("a plan's rule must state the plan")
        self.rule = rule
        self._plan = parts(rule.plan)
        # per scope what was taken there, and the most of each release that any unit met in the parts of it
        self._taken: dict[str | None, dict[Release, int]] = {}
        self._below: dict[str | None, dict[Release, int]] = {}

    def knows(self, release: Release) -> bool:
        """A plan prices nothing."""
        return True

    def price(self, release: Release) -> None:
        """A plan prices nothing."""

    def admits(
        self, scope: str | None, release: Release, total_after: Callable[[], Release] | None = None
    ) -> bool | None:
        """Whether a release is among those that are left for every unit that it meets."""
        below = self._below.get(scope, {})
        return all(
            sum(self._taken.get(outer, {}).get(part, 0) for outer in path(scope)) + below.get(part, 0) + count
            <= self._plan.get(part, 0)
            for part, count in parts(release).items()
        )

    def record(self, scope: str | None, release: Release, count: int = 1) -> None:
        """Take a release off the plan."""
        steps = path(scope)
        for part, times in parts(release).items():
            taken = self._taken.setdefault(scope, {})
            taken[part] = taken.get(part, 0) + times * count
            for outer, inner in reversed(list(pairwise(steps))):
                there = self._taken.get(inner, {}).get(part, 0) + self._below.get(inner, {}).get(part, 0)
                below = self._below.setdefault(outer, {})
                below[part] = max(below.get(part, 0), there)


class OwnPlans:
    """The plans of scopes that were still untouched when their plan was fixed; see :mod:`accounting.ledger.filters`."""

    def __init__(self) -> None:
        self._filters: dict[str, PlanFilter] = {}

    def __len__(self) -> int:
        return len(self._filters)

    def start(self, scope: str, rule: Rule) -> None:
        """Fix the plan of a scope."""
        self._filters[scope] = PlanFilter(rule)

    def around(self, scope: str | None) -> PlanFilter | None:
        """The plan that units of a scope follow instead of the ledger's filter; None if it is the latter."""
        return next((self._filters[str(s)] for s in path(scope)[1:] if s in self._filters), None)

    def within(self, scope: str | None) -> list[PlanFilter]:
        """The plans of parts of a scope, which what is released in the scope must follow, too."""
        return [plan for own, plan in self._filters.items() if own != scope and inside(own, scope)]

    def scopes(self, scope: str | None = None) -> list[str]:
        """The scopes with plans that lie in a scope, or are it."""
        return [own for own in self._filters if inside(own, scope)]

    def record(self, scope: str | None, release: Release, count: int = 1) -> bool:
        """Count a release for the units that follow plans; whether it met those only."""
        own = self.around(scope)
        for plan in self.within(scope) if own is None else [own]:
            plan.record(scope, release, count)
        return own is not None

    def rules(self) -> list[tuple[str, Rule]]:
        """Every scope with its rule."""
        return [(scope, plan.rule) for scope, plan in self._filters.items()]


def parts(release: Release) -> dict[Release, int]:
    """How many of each release a description holds."""
    return dict(release.parts) if isinstance(release, Composed) else {release: 1}

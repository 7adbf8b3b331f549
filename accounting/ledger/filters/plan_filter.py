"""The filter of a list that was fixed in advance: one for the whole ledger, or one of its own for a scope."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.ledger.filters.rule import Rule
from accounting.ledger.filters.scopes import ScopedSums, inside, path
from accounting.releases import Composed, Release

__all__ = ["OwnPlans", "PlanFilter", "parts"]


class PlanFilter:
    """Admit what is left of a list that was priced as a whole; see :mod:`accounting.ledger.filters`."""

    def __init__(self, rule: Rule) -> None:
        if rule.plan is None:
            raise ValueError("a plan's rule must state the plan")
        self.rule = rule
        self._plan = parts(rule.plan)
        # whole numbers, however large
        self._taken = ScopedSums(len(self._plan), dtype=object)

    def knows(self, release: Release) -> bool:
        """A plan prices nothing."""
        return True

    def admits(
        self, scope: str | None, release: Release, total_after: Callable[[], Release] | None = None
    ) -> bool | None:
        """Whether a release is among those that are left for every unit that it meets."""
        if not parts(release).keys() <= self._plan.keys():
            return False
        after = self._taken.after(scope, self._counts(release))
        return all(count <= most for count, most in zip(after, self._plan.values(), strict=True))

    def record(self, scope: str | None, release: Release, count: int = 1) -> None:
        """Take a release off the plan."""
        self._taken.add(scope, self._counts(release), count)

    def left(self, scope: str | None) -> Release:
        """What any unit that a release in this scope meets may still meet."""
        taken = self._taken.after(scope, self._counts(Composed()))
        nothing: Release = Composed()
        counts = (most - count for count, most in zip(taken, self._plan.values(), strict=True))
        return sum((max(0, n) * kind for kind, n in zip(self._plan, counts, strict=True)), start=nothing)

    def _counts(self, release: Release) -> NDArray[Any]:
        asked = parts(release)
        return np.array([asked.get(kind, 0) for kind in self._plan], dtype=object)


class OwnPlans(dict[str, PlanFilter]):
    """The plans of scopes that were still untouched when their plan was fixed; see :mod:`accounting.ledger.filters`."""

    def around(self, scope: str | None) -> PlanFilter | None:
        """The plan that units of a scope follow instead of the ledger's filter; None if it is the latter."""
        return next((self[str(outer)] for outer in path(scope)[1:] if outer in self), None)

    def within(self, scope: str | None) -> list[PlanFilter]:
        """The plans of parts of a scope, which what is released in the scope must follow, too."""
        return [plan for own, plan in self.items() if own != scope and inside(own, scope)]

    def record(self, scope: str | None, release: Release, count: int = 1) -> bool:
        """Count a release for the units that follow plans; whether it met those only."""
        own = self.around(scope)
        for plan in self.within(scope) if own is None else [own]:
            plan.record(scope, release, count)
        return own is not None


def parts(release: Release) -> dict[Release, int]:
    """How many of each release a description holds."""
    return dict(release.parts) if isinstance(release, Composed) else {release: 1}

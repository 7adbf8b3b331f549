"""What may be spent inside single scopes under a ledger's own budget: each with its filter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from accounting.budget import Budget
from accounting.ledger.filters.additive_filter import AdditiveFilter
from accounting.ledger.filters.scopes import inside, path
from accounting.ledger.record.entry_json import from_dict, to_dict
from accounting.ledger.record.entry_types import Quota
from accounting.releases import Release

__all__ = ["Quotas"]


class Quotas:
    """The quota of every scope that has one, and what was spent of it; ``doubt`` as of :class:`AdditiveFilter`."""

    def __init__(self, *, doubt: float = 0.0) -> None:
        self._doubt = doubt
        self._held: dict[str, tuple[Quota, AdditiveFilter]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def around(self, scope: str | None) -> Iterator[tuple[str, Budget, AdditiveFilter]]:
        """The quotas that a release in a scope must meet, from the outermost in: their scope, budget and filter."""
        for outer in path(scope)[1:]:
            quota, filter = self._held.get(str(outer), (None, None))
            if quota is not None and filter is not None and quota.budget is not None:
                yield quota.scope, quota.budget, filter

    def budgets(self) -> dict[str, Budget]:
        """The budget of every scope that has a quota."""
        return {scope: quota.budget for scope, (quota, _) in self._held.items() if quota.budget is not None}

    def spent(self, scope: str) -> float:
        """ε at the quota's δ of what was recorded in a scope that has one, as its filter counts it."""
        return self._held[scope][1].spent(scope)

    def set(self, quota: Quota, terms: Iterable[tuple[str | None, Release, int]]) -> None:
        """Fix or lift a quota; ``terms`` are what was recorded so far."""
        if quota.budget is None or quota.rule is None:
            self._held.pop(quota.scope, None)
            return
        filter = AdditiveFilter(quota.budget, quota.rule, doubt=self._doubt)
        filter.record_all(term for term in terms if inside(term[0], quota.scope))
        self._held[quota.scope] = quota, filter

    def record(self, scope: str | None, release: Release) -> None:
        """Count a release that was recorded in a scope."""
        for _, _, filter in self.around(scope):
            filter.record(scope, release)

    def state(self) -> list[Any]:
        """The quotas, and the sums of their filters, as plain JSON values."""
        return [[to_dict(quota), filter.sums.state()] for quota, filter in self._held.values()]

    @classmethod
    def restored(cls, state: list[Any]) -> Quotas:
        """The quotas of a :meth:`state`; a ``ValueError``, ``TypeError`` or ``KeyError`` if none."""
        quotas = cls()
        for stored, sums in state:
            quota = from_dict(stored)
            if not isinstance(quota, Quota) or quota.budget is None or quota.rule is None:
                raise ValueError(f"{stored!r} is not a quota")
            filter = AdditiveFilter(quota.budget, quota.rule)
            filter.sums.restore(sums)
            quotas._held[quota.scope] = quota, filter
        return quotas

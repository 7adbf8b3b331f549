"""What a ledger says where it refuses a release, and which releases it judges at once."""

from __future__ import annotations

from accounting.budget import Budget
from accounting.errors import BudgetExceeded, UnsupportedRelease
from accounting.ledger.entries import Row
from accounting.ledger.filters import AdditiveFilter, Filter, is_skewed
from accounting.releases import (
    ZCDP,
    ApproxDP,
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    NoisyMax,
    PureDP,
    RandomizedResponse,
    Release,
    TreeAggregation,
)
from accounting.text import printable

__all__ = ["is_quick", "refusal"]

# Descriptions with a closed formula in every measure: a fraction of a millisecond each.
_QUICK = (
    ApproxDP, DiscreteGaussian, DiscreteLaplace, Gaussian, GeneralizedGaussian, Laplace, NoisyMax, PureDP,
    RandomizedResponse, TreeAggregation, ZCDP,
)  # fmt: skip


def is_quick(release: Release) -> bool:
    """Whether any filter prices a release in the time for which a lock may be held."""
    parts = release.parts if isinstance(release, Composed) else ((release, 1),)
    return len(parts) <= 16 and all(type(part) in _QUICK for part, _ in parts)


def refusal(
    budget: Budget, filter: Filter, row: Row, *, quota: str, spent: float
) -> BudgetExceeded | UnsupportedRelease:
    """Why a filter does not admit a row: the words of a budget, or (where ``quota`` names a scope) of a quota."""
    name, release = repr(row.label or "a release"), row.release
    whose = f" of the quota of {printable(quota)!r}" if quota else ""
    if not isinstance(filter, AdditiveFilter):
        return BudgetExceeded(
            f"{name} asks for {release!r}, which is not among what is left of the plan {filter.rule.plan!r}; "
            f"spent {spent:.6g} of {budget.epsilon:g}"
        )
    if not filter.covers(row.scope, release):
        return UnsupportedRelease(
            f"{name} asks for {release!r}, and the filter of this ledger ({filter.rule.accountant!r}, fixed before "
            f"its first release) has no bound for it together with what was recorded; open the ledger with an "
            f"accountant that covers everything to come"
        )
    message = (
        f"{name} asks for {release!r} (ε at δ={budget.delta:g}: {filter.alone(release):.6g} alone); "
        f"spent {spent:.6g} of {budget.epsilon:g}, left {max(0.0, budget.epsilon - spent):.6g}{whose}"
    )
    # a quota has no first release, and no plan
    if not quota and filter.rule.accountant == "mixed" and filter.rule.kind is None and is_skewed(filter, release):
        message += "; samples with little noise fit better as the first of a ledger, or as a ledger's plan="
    if not filter.may_fail(row.scope, release):
        kept = filter.rule.failure_delta
        message += f"; its failures pass the part of δ that this ledger keeps for them, failure_delta={kept:g}"
        message += ": ask for less δ there (groups that are listed need none), or open a ledger with more failure_delta"
    return BudgetExceeded(message)

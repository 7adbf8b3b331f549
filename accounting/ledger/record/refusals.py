"""What a ledger says where it refuses a release, and which releases it judges at once."""

from __future__ import annotations

import numpy as np

from accounting.budget import Budget
from accounting.errors import BudgetExceeded, UnsupportedRelease
from accounting.ledger.filters.additive_filter import AdditiveFilter
from accounting.ledger.filters.choice import Filter, is_skewed
from accounting.ledger.filters.plan_filter import parts
from accounting.ledger.record.entry_types import Row
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
from accounting.totals import Bound, epsilon

__all__ = ["is_quick", "refusal"]

# A difference between what is booked and what a list costs, as a share of ε, that puzzles.
_FAR = 0.05
_DUST = 1e-9
_MORE_NOISE = "a release with more noise may still fit"
_LARGER_QUOTA = "so may this one in a larger quota (set_quota), where the ledger's own budget has room"
_LITTLE_NOISE = "samples with little noise fit better as the first of a ledger, or as a ledger's plan="
_PLAN = "what is known beforehand fits better as a ledger's plan=, which the best accountant prices as a whole"

# Descriptions with a closed formula in every measure: a fraction of a millisecond each.
_QUICK = (
    ApproxDP, DiscreteGaussian, DiscreteLaplace, Gaussian, GeneralizedGaussian, Laplace, NoisyMax, PureDP,
    RandomizedResponse, TreeAggregation, ZCDP,
)  # fmt: skip


def is_quick(release: Release) -> bool:
    """Whether any filter prices a release in the time for which a lock may be held."""
    kinds = parts(release)
    return len(kinds) <= 16 and all(type(kind) in _QUICK for kind in kinds)


def refusal(
    budget: Budget, filter: Filter, row: Row, *, quota: str, booked: float, recorded: Release
) -> BudgetExceeded | UnsupportedRelease:
    """Why a filter does not admit a row: the words of a budget, or (where ``quota`` names a scope) of a quota.

    ``recorded`` is what the filter has booked at the price of ``booked``; it is priced as a list, too.
    """
    name, release = repr(row.label or "a release"), row.release
    whose = f" of the quota of {printable(quota)!r}" if quota else ""
    if not isinstance(filter, AdditiveFilter):
        planned = filter.left(row.scope)
        rest = f", {planned!r}" if planned != Composed() else ": nothing is"
        return BudgetExceeded(
            f"{name} asks for {release!r}, which is not among what is left of the ledger's plan{rest}; "
            f"spent {booked:.6g} of {budget.epsilon:g}"
        )
    if not filter.covers(row.scope, release):
        return UnsupportedRelease(
            f"{name} asks for {release!r}, and the filter of this ledger ({filter.rule.accountant!r}, fixed before "
            f"its first release) has no bound for it together with what was recorded; open the ledger with an "
            f"accountant that covers everything to come"
        )
    left = budget.epsilon - booked
    left = left if left > _DUST * budget.epsilon else 0.0
    message = (
        f"{name} asks for {release!r} (ε at δ={budget.delta:g}: {filter.alone(release):.6g} alone); the ledger's "
        f"filter has booked {booked:.6g} of {budget.epsilon:g}, left {left:.6g}{whose}"
    )
    if not filter.may_fail(row.scope, release):
        kept = filter.rule.failure_delta
        message += f"; its failures pass the part of δ that this ledger keeps for them, failure_delta={kept:g}"
        message += ": ask for less δ there (groups that are listed need none), or open a ledger with more failure_delta"
    listed = _as_a_list(recorded, budget.delta)
    if listed is not None and listed < booked * (1 - _DUST):
        message += f". As a list fixed beforehand, what is recorded costs {listed:.6g}, by the best accountant "
        message += f"({listed.accountant!r})"
    far = listed is not None and booked - listed > _FAR * budget.epsilon
    if far:
        message += (
            f". The difference cannot be spent here: releases may be chosen in the light of earlier outputs, and of "
            f"such a sequence only what the filter adds up is proved ({filter.rule.accountant!r}, fixed before the "
            f"first release)"
        )
    advice = [_MORE_NOISE] if far else []
    if quota:  # which has no first release, and no plan
        advice += [_LARGER_QUOTA] if far else []
    elif filter.rule.accountant == "mixed" and filter.rule.kind is None and is_skewed(filter, release):
        advice.append(_LITTLE_NOISE)
    elif far:
        advice.append(_PLAN)
    return BudgetExceeded("; ".join([message, *advice]))


def _as_a_list(recorded: Release, delta: float) -> Bound | None:
    """What the best accountant says of it; None if none knows it, or it is no number of this machine."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            return epsilon(recorded, delta)
    except (UnsupportedRelease, ArithmeticError):
        return None

"""Which filter a ledger gets: from its budget, the caller's choices and the first release, and nothing later."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import get_args

import numpy as np

from accounting.arrays import UNIT_ROUNDOFF
from accounting.budget import Budget
from accounting.calibration import check_budget_adjacency
from accounting.checks import fraction
from accounting.compose.failures import split_failures
from accounting.conversions import best_order_for_delta, gdp_delta, gdp_mu, pure_parameter
from accounting.errors import BudgetExceeded, UnsupportedRelease
from accounting.ledger.filters.additive_filter import AdditiveFilter
from accounting.ledger.filters.copies_of_first import kind_of
from accounting.ledger.filters.default_rule import mixed_rule
from accounting.ledger.filters.measure_sums import price
from accounting.ledger.filters.plan_filter import PlanFilter, parts
from accounting.ledger.filters.rule import Measure, Rule, without_failures
from accounting.loss.concentrated_curve import zcdp_rho
from accounting.notions.gdp import gdp, is_exact, lattice_noise
from accounting.notions.pure import pure
from accounting.notions.rdp import rdp
from accounting.notions.zcdp import zcdp
from accounting.releases import Release
from accounting.totals import ACCOUNTANTS, epsilon, meets

__all__ = ["Filter", "check_choices", "check_plan", "first_filter", "is_skewed", "make_filter"]

Filter = AdditiveFilter | PlanFilter

# A whole run that leaves less than this share of ε is followed as a plan.
_FULL = 0.005
# How much more a sample costs late than early where there is a share of δ for it alone.
_SKEWED = 1.4


def check_choices(
    budget: Budget | None, accountant: str | None, failure_delta: float | None, plan: Release | None
) -> None:
    """Refuse a caller's choice that no filter can follow."""
    if budget is not None and not isinstance(budget, Budget):
        raise TypeError(f"budget must be a Budget or None, got budget={budget!r}")
    if accountant is not None and accountant not in get_args(Measure):
        hint = ": to be priced by it, state everything to come as the ledger's plan" if accountant == "pld" else ""
        raise ValueError(f"accountant must be one of {get_args(Measure)}, got accountant={accountant!r}{hint}")
    check_plan(plan)
    if failure_delta is not None:
        fraction("failure_delta", failure_delta, include_zero=True)
    if budget is None:
        for name, value in (("accountant", accountant), ("failure_delta", failure_delta), ("plan", plan)):
            if value is not None:
                raise ValueError(f"{name} needs a budget to filter for, got {name}={value!r} and budget=None")
        return
    if plan is not None:
        if accountant is not None or failure_delta is not None:
            raise ValueError("a plan is priced as a whole: accountant and failure_delta do not apply to it")
        check_budget_adjacency(plan, budget)
        if not meets(plan, budget.epsilon, budget.delta):
            total = epsilon(plan, budget.delta)
            raise BudgetExceeded(f"the plan {plan!r} costs ε={total:.6g} at δ={budget.delta:g}, of {budget.epsilon:g}")
    if accountant not in (None, "pure") and budget.delta == 0:
        raise ValueError(f"a budget with delta=0 admits accountant='pure' only, got accountant={accountant!r}")
    if failure_delta and failure_delta >= budget.delta:
        raise ValueError(
            f"failure_delta must be below the budget's delta={budget.delta:g}, got failure_delta={failure_delta!r}"
        )


def check_plan(plan: object) -> None:
    """Refuse what is neither a description nor None."""
    if plan is not None and not isinstance(plan, Release):
        raise TypeError(f"plan must be a description such as 100 * Gaussian(10.0), got plan={plan!r}")


def make_filter(budget: Budget, rule: Rule, *, doubt: float = 0.0) -> Filter:
    """The filter that follows a rule; ``doubt`` as of :class:`AdditiveFilter`."""
    return PlanFilter(rule) if rule.accountant == "plan" else AdditiveFilter(budget, rule, doubt=doubt)


def first_filter(
    budget: Budget,
    release: Release,
    *,
    whole: Release | None = None,
    accountant: Measure | None = None,
    failure_delta: float | None = None,
    plan: Release | None = None,
) -> Filter:
    """The filter for a sequence that starts with ``release``, whose choices look at nothing else.

    Where the release is stated to begin a ``whole``, the filter for that, if there is one that admits all of it.

    Where the caller leaves it open: the measure of the first release if the budget was calibrated for it,
    else ``mixed``. Half of δ is kept for failures if the first release may fail; else a small part, or nothing if
    calibrated. A first release that meets the budget, but by neither of these, is admitted by the measure that
    suits it, or becomes a plan of its own, which leaves room for nothing else.

    Raises
    ------
    UnsupportedRelease
        If no filter covers the release.
    """
    if whole is not None:
        check_budget_adjacency(whole, budget)
        if accountant is None and failure_delta is None and plan is None:
            with suppress(UnsupportedRelease):
                # it leaves no room that a filter of many kinds could use for others
                if (1 - _FULL) * budget.epsilon <= float(epsilon(whole, budget.delta)) <= budget.epsilon:
                    return PlanFilter(Rule("plan", plan=whole))
        begun = first_filter(budget, whole, accountant=accountant, failure_delta=failure_delta, plan=plan)
        if begun.admits(None, whole, lambda: whole):
            return begun
    if plan is not None:
        return PlanFilter(Rule("plan", plan=plan))
    log_survival, rest = split_failures(release)
    kept = failure_delta
    if kept is None:
        kept = budget.delta / 2 if log_survival < 0 else 0.0
    if accountant is not None:
        if accountant == "mixed":
            return AdditiveFilter(budget, mixed_rule(budget, failure_delta if log_survival == 0 else kept))
        return AdditiveFilter(budget, _own_rule(accountant, budget, kept, rest))
    if failure_delta is None and (calibrated := _lattice_plan(budget, release)) is not None:
        return PlanFilter(Rule("plan", plan=calibrated))
    measure = _calibrated(budget, without_failures(budget.delta, kept), rest)
    if measure is not None:
        return AdditiveFilter(budget, _own_rule(measure, budget, kept, rest))
    kept_for_any = failure_delta if log_survival == 0 else kept
    mixed = AdditiveFilter(budget, mixed_rule(budget, kept_for_any))
    kind, _ = kind_of(rest)
    if kind is not None and is_skewed(mixed, kind):
        alone = AdditiveFilter(budget, mixed_rule(budget, kept_for_any, kind))
        if alone.admits(None, release, lambda: release):
            return alone
    if mixed.admits(None, release, lambda: release):
        return mixed
    measure = _natural(budget, rest)
    if measure is not None:
        own = AdditiveFilter(budget, _own_rule(measure, budget, kept, rest))
        if own.admits(None, release, lambda: release):
            return own
    if meets(release, budget.epsilon, budget.delta):
        return PlanFilter(Rule("plan", plan=release))
    if mixed.covers(None, release):
        return mixed
    raise UnsupportedRelease(f"no additive filter covers {release!r}: state everything to come as the ledger's plan")


def is_skewed(filter: AdditiveFilter, release: Release) -> bool:
    """Whether some part of a release has losses that are large and rare: all of them had better come first."""
    return any(math.isinf(price(gdp, part)) and filter.skewness(part) >= _SKEWED for part in parts(release))


def _own_rule(measure: Measure, budget: Budget, failure_delta: float, rest: Release) -> Rule:
    order = limit = None
    if measure == "rdp":
        order, limit, _ = _rdp_order(budget.epsilon, without_failures(budget.delta, failure_delta), rest)
    return Rule(measure, failure_delta, order, limit)


def _natural(budget: Budget, rest: Release) -> Measure | None:
    """The measure that suits a release best."""
    if budget.delta == 0:
        return "pure"
    if is_exact(rest):
        return "gdp"
    if math.isfinite(price(zcdp, rest)) and math.isinf(price(pure, rest)):
        return "zcdp"
    return "rdp" if math.isfinite(price(_rdp_at(2.0), rest)) else None


def _calibrated(budget: Budget, delta: float, rest: Release) -> Measure | None:
    """The measure of which (ε, δ) holds a whole number of releases like ``rest``, to nine digits."""
    measure = _natural(budget, rest)
    if measure == "zcdp" and _is_whole(gdp_mu(budget.epsilon, delta) ** 2, price(_square, rest)):
        return "gdp"  # discrete Gaussian noise is the nearer to Gaussian noise the more of it there is
    match measure:
        case "gdp":
            cost, limit = price(_square, rest), gdp_mu(budget.epsilon, delta) ** 2
        case "zcdp":
            cost, limit = price(zcdp, rest), zcdp_rho(budget.epsilon, delta)
        case "rdp":
            if _rdp_order(budget.epsilon, delta, rest)[2]:
                return "rdp"
            measure, cost, limit = "pure", price(pure, rest), pure_parameter(budget.epsilon, delta)
        case _:
            return measure
    return measure if _is_whole(limit, cost) else None


def _lattice_plan(budget: Budget, release: Release) -> Release | None:
    """All that the budget was calibrated for, if it holds a whole number of releases of lattice noise, to nine digits.

    Together they cost less than one by one (:mod:`accounting.loss.lattice`).
    """
    z = lattice_noise(release)
    limit = gdp_mu(budget.epsilon, budget.delta) ** 2 if z is not None and budget.delta > 0 else 0.0
    room = limit * z * z * (1 + 1e-9) if z is not None else 0.0
    if not 2 <= room < 1e9:
        return None
    whole = math.floor(room) * release
    return (
        whole
        if limit * (1 - 1e-9) <= gdp(whole) ** 2 and gdp_delta(gdp(whole), budget.epsilon) <= budget.delta
        else None
    )


def _is_whole(limit: float, cost: float) -> bool:
    """Whether ``limit`` is a whole number of times ``cost``, to nine digits."""
    room = limit / cost if cost > 0 else math.inf
    return 0.5 < room < 1e9 and abs(room - round(room)) <= 1e-9 * room


def _rdp_order(epsilon: float, delta: float, rest: Release) -> tuple[float, float, bool]:
    """The best order for releases like ``rest``, what ε_α may add up to there, and whether some fill the budget.

    The order is the one at which (ε, δ) holds the most of them. The maximum is flat, so a grid finds how many that
    are, and then the accountant the best order for that many: whatever it proves of them there, it proves of anything
    else with the same sum. Thus the number that was calibrated is the number that fits.
    """
    best, width = 2.1, 7.1  # ln(α − 1): orders up to 1e4; where larger ones are best, pure DP does as well
    for _ in range(3):
        orders = 1.0 + np.exp(np.linspace(best - width, min(best + width, 9.2), 64))
        limits = np.array([_rdp_limit(epsilon, delta, order) for order in orders])
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(limits > 0, limits / rdp(rest, orders), -1.0)
        index = int(np.argmax(room))
        best = math.log(orders[index] - 1.0)
        width /= 16
    most = float(room[index]) * (1 + 1e-5)
    if 1 <= most < 1e15:
        like = math.floor(most) * rest
        needed = ACCOUNTANTS["rdp"].delta(like, epsilon)
        if needed <= delta:
            order = 1.0 + best_order_for_delta(lambda orders: rdp(like, orders), epsilon)
            limit = max(_rdp_at(order)(like), _rdp_limit(epsilon, delta, order))
            return order, limit, needed >= delta * (1 - 1e-7)
    return float(orders[index]), float(limits[index]), False


def _rdp_limit(epsilon: float, delta: float, order: float) -> float:
    """The largest ε_α that meets (ε, δ) by Proposition 12 of Canonne, Kamath & Steinke (2020), rounded down."""
    terms = (epsilon, -math.log1p(-1 / order), math.log(delta) / (order - 1), math.log(order) / (order - 1))
    return math.fsum(terms) - 8 * UNIT_ROUNDOFF * math.fsum(map(abs, terms))


def _rdp_at(order: float) -> Callable[[Release], float]:
    return lambda release: float(rdp(release, np.array([order]))[0])


def _square(release: Release) -> float:
    return gdp(release) ** 2

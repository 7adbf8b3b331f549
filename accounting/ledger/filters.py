"""Privacy filters: what keeps a sequence of adaptively chosen releases inside its budget.

A filter adds up one measure and refuses the release that would take it past what the budget allows. The next
release may depend on every output so far; the measure may not, so a :class:`Rule` is fixed before anything
leaves: by the caller, or from the first release alone. Per measure, the whole sequence meets (ε, δ) if always

=========  ===========================================  =======================================================
``pure``   Σ ε ≤ the largest ε₀ that meets (ε, δ)       Rogers, Roth, Ullman & Vadhan 2016 (arXiv:1605.08294)
``gdp``    Σ μ² ≤ the largest μ² that meets (ε, δ)      Smith & Thakurta 2022 (arXiv:2210.17520)
``zcdp``   Σ ρ ≤ the largest ρ that meets (ε, δ)        Whitehouse et al. 2023 (arXiv:2203.05481)
``rdp``    Σ ε_α ≤ what meets (ε, δ), at one order α    Feldman & Zrnic 2021 (arXiv:2008.11193)
``plan``   the releases are among those of a plan       composition of a list fixed in advance, see below
=========  ===========================================  =======================================================

An order α read off afterwards, or the smallest of several accountants, is *not* covered: which one ends up the
smallest depends on the outputs. Three additions keep the rule useful.

*Pure DP rides along.* With gdp, zcdp or rdp at (ε, δ), a release is also admitted while Σ ε of everything stays at
or below ε. Proof: let A be the transcripts that end inside the first limit and B those that end inside the
second only. On A the filter never differs from the first filter alone, on B never from the second, so
P(S) = P(S∩A) + P(S∩B) ≤ e^ε Q(S∩A) + δ + e^ε Q(S∩B) = e^ε Q(S) + δ.

*Releases that may fail* (``ApproxDP``) may spend ``failure_delta`` of δ: Π(1 − δᵢ) ≥ 1 − ``failure_delta``, and the
measure must meet (ε, δ′) with δ′ = (δ − f)/(1 − f). Proof: pad each transcript with one more failure so that
every one survives with probability 1 − f exactly; the survivors' part of P is then (1 − f)·P′ with P′ the filtered
composition of the rest, and P(S) ≤ f + (1 − f)(e^ε Q′(S) + δ′) ≤ e^ε Q(S) + δ.

*A plan* is a list of releases that meets the budget under any accountant, the privacy loss distribution included.
Whatever order they are taken in, and wherever the sequence stops, it is dominated by the whole list: composition
is commutative, and so by induction on what is left of the list.

Scopes. A unit lies in one named scope, and meets what was released there and on the whole data: each measure is
held to its limit on whole + the largest named scope.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast, get_args

import numpy as np

from accounting.accountants.failures import split_failures
from accounting.accountants.gdp import gdp, is_exact
from accounting.accountants.orders import best_order_for_delta
from accounting.accountants.pure import pure
from accounting.accountants.rdp import rdp
from accounting.accountants.zcdp import zcdp
from accounting.budget import Budget
from accounting.calibration import check_budget_adjacency
from accounting.checks import fraction
from accounting.conversions import gdp_epsilon, gdp_mu, pure_epsilon, pure_parameter, zcdp_epsilon, zcdp_rho
from accounting.errors import BudgetExceeded, UnsupportedRelease
from accounting.releases import Composed, Release
from accounting.totals import ACCOUNTANTS, delta, epsilon

__all__ = ["AdditiveFilter", "Filter", "Measure", "PlanFilter", "Rule", "check_rule", "first_filter", "make_filter"]

Measure = Literal["gdp", "pure", "rdp", "zcdp"]

_UNIT_ROUNDOFF = 2.0**-52


@dataclass(frozen=True)
class Rule:
    """What a filter counts, fixed before the first release leaves.

    Parameters
    ----------
    accountant : {"gdp", "pure", "rdp", "zcdp", "plan"}
    failure_delta : float
        The part of the budget's δ that is kept for releases that may fail outright.
    order, limit : float, optional
        The Rényi order, and what ε_α may add up to there (``"rdp"`` only).
    plan : Release, optional
        Everything that may be released (``"plan"`` only).
    """

    accountant: Measure | Literal["plan"]
    failure_delta: float = 0.0
    order: float | None = None
    limit: float | None = None
    plan: Release | None = None


def check_rule(
    budget: Budget | None, accountant: str | None, failure_delta: float | None, plan: Release | None
) -> None:
    """Refuse a caller's choice that no filter can follow."""
    if accountant is not None and accountant not in get_args(Measure):
        raise ValueError(f"accountant must be one of {get_args(Measure)}, got accountant={accountant!r}")
    if plan is not None and not isinstance(plan, Release):
        raise TypeError(f"plan must be a description such as 100 * Gaussian(10.0), got plan={plan!r}")
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
        if delta(plan, budget.epsilon) > budget.delta:
            total = epsilon(plan, budget.delta)
            raise BudgetExceeded(f"the plan {plan!r} costs ε={total:.6g} at δ={budget.delta:g}, of {budget.epsilon:g}")
    if accountant not in (None, "pure") and budget.delta == 0:
        raise ValueError(f"a budget with delta=0 admits accountant='pure' only, got accountant={accountant!r}")
    if failure_delta and failure_delta >= budget.delta:
        raise ValueError(
            f"failure_delta must be below the budget's delta={budget.delta:g}, got failure_delta={failure_delta!r}"
        )


class _ScopedSum:
    """A sum over the whole data and one per named scope; its value is that of the worst-off unit."""

    def __init__(self) -> None:
        self.whole = 0.0
        self.named: dict[str, float] = {}
        self.largest = 0.0
        self.terms = 0

    def after(self, scope: str | None, amount: float) -> float:
        if scope is None:
            return self.whole + amount + self.largest
        return self.whole + max(self.largest, self.named.get(scope, 0.0) + amount)

    def add(self, scope: str | None, amount: float) -> None:
        self.terms += 1
        if scope is None:
            self.whole += amount
        else:
            self.named[scope] = self.named.get(scope, 0.0) + amount
            self.largest = max(self.largest, self.named[scope])

    def within(self, scope: str | None, amount: float, limit: float) -> bool | None:
        """Whether the sum stays within ``limit``; None where only exact arithmetic can tell.

        The rounding of n additions of nonnegative terms is below n·2⁻⁵² of their sum.
        """
        total = self.after(scope, amount)
        slack = (self.terms + 64) * _UNIT_ROUNDOFF
        if total == 0 or total <= limit * (1 - slack):
            return True
        return False if total > limit * (1 + 1e-9 + slack) else None


@dataclass
class _Limit:
    """One additive measure: its cost, its limit, the ε that it stands for, and the exact test of a whole total."""

    cost: Callable[[Release], float]
    limit: float
    epsilon: Callable[[float], float]
    exact: Callable[[Release], bool]


class AdditiveFilter:
    """Admit releases while a measure, summed over each unit's scope, stays within the budget; O(1) a release."""

    def __init__(self, budget: Budget, rule: Rule) -> None:
        self.rule = rule
        self._failure_limit = -math.log1p(-rule.failure_delta)
        self._limits = [_additive(rule, budget.epsilon, _without_failures(budget.delta, rule.failure_delta))]
        if rule.accountant != "pure":
            self._limits.append(_additive(Rule("pure"), budget.epsilon, 0.0))
        self._failures = _ScopedSum()
        self._sums = [_ScopedSum() for _ in self._limits]
        self._costs: dict[Release, tuple[float, list[float]]] = {}

    def admits(self, scope: str | None, release: Release, total_after: Callable[[], Release]) -> bool:
        """Whether a release fits; ``total_after()`` describes everything with it, for the last digits."""
        failure, amounts = self._cost(release)
        verdict = self._failures.within(scope, failure, self._failure_limit)
        if verdict is None:
            verdict = -split_failures(total_after())[0] <= self._failure_limit
        if not verdict:
            return False
        verdicts = [s.within(scope, a, m.limit) for s, a, m in zip(self._sums, amounts, self._limits, strict=True)]
        if True in verdicts:
            return True
        close = [m for m, verdict in zip(self._limits, verdicts, strict=True) if verdict is None]
        if not close:
            return False
        rest = split_failures(total_after())[1]
        return any(limit.exact(rest) for limit in close)

    def record(self, scope: str | None, release: Release) -> None:
        """Count a release that was recorded."""
        failure, amounts = self._cost(release)
        self._failures.add(scope, failure)
        for total, amount in zip(self._sums, amounts, strict=True):
            total.add(scope, amount)

    def spent(self) -> float:
        """ε at the budget's δ of what was counted; infinite if the filter's measures do not cover it."""
        return self._epsilon([total.after(None, 0.0) for total in self._sums])

    def covers(self, scope: str | None, release: Release) -> bool:
        """Whether a measure has a bound for a release together with everything that was counted."""
        amounts = self._cost(release)[1]
        return any(math.isfinite(s.after(scope, a)) for s, a in zip(self._sums, amounts, strict=True))

    def may_fail(self, scope: str | None, release: Release) -> bool:
        """Whether the failures, with those of a release, stay within the part of δ that is kept for them."""
        verdict = self._failures.within(scope, self._cost(release)[0], self._failure_limit)
        return verdict is not False

    def alone(self, release: Release) -> float:
        """ε at the budget's δ that the filter counts for a release by itself."""
        return self._epsilon(self._cost(release)[1])

    def _epsilon(self, totals: list[float]) -> float:
        return min(limit.epsilon(total) for limit, total in zip(self._limits, totals, strict=True))

    def _cost(self, release: Release) -> tuple[float, list[float]]:
        known = self._costs.get(release)
        if known is None:
            log_survival, rest = split_failures(release)
            known = (-log_survival, [_price(limit.cost, rest) for limit in self._limits])
            self._costs[release] = known
        return known


class PlanFilter:
    """Admit what is left of a list that was fixed in advance and priced as a whole."""

    def __init__(self, budget: Budget, rule: Rule) -> None:
        self.rule = rule
        self._budget = budget
        self._plan = _parts(cast(Release, rule.plan))
        self._taken: dict[str | None, dict[Release, int]] = {}

    def admits(self, scope: str | None, release: Release, total_after: Callable[[], Release]) -> bool:
        """Whether a release is among those that are left for every unit that it meets."""
        asked = _parts(release)
        whole = self._taken.get(None, {})
        named = [self._taken.get(scope, {})] if scope is not None else [t for s, t in self._taken.items() if s]
        return all(
            whole.get(part, 0) + max((taken.get(part, 0) for taken in named), default=0) + count
            <= self._plan.get(part, 0)
            for part, count in asked.items()
        )

    def record(self, scope: str | None, release: Release) -> None:
        """Take a release off the plan."""
        taken = self._taken.setdefault(scope, {})
        for part, count in _parts(release).items():
            taken[part] = taken.get(part, 0) + count


Filter = AdditiveFilter | PlanFilter


def make_filter(budget: Budget, rule: Rule) -> Filter:
    """The filter that follows a rule."""
    return PlanFilter(budget, rule) if rule.accountant == "plan" else AdditiveFilter(budget, rule)


def first_filter(
    budget: Budget,
    release: Release,
    *,
    accountant: Measure | None = None,
    failure_delta: float | None = None,
    plan: Release | None = None,
) -> Filter:
    """The filter for a sequence that starts with ``release``, whose choices look at nothing else.

    Where the caller leaves it open: the measure is gdp if the first release is made of Gaussians, zcdp if only ρ
    is known of it, else rdp at the order where the budget holds the most releases like it; half of δ is kept for
    failures if the first release may fail, and nothing if it cannot. A first release that meets the budget, but
    not by an additive measure, becomes a plan of its own, which leaves room for nothing else.

    Raises
    ------
    UnsupportedRelease
        If no filter covers the release.
    """
    if plan is not None:
        return PlanFilter(budget, Rule("plan", plan=plan))
    log_survival, rest = split_failures(release)
    measure = accountant or _measure(budget, rest)
    if measure is not None:
        if failure_delta is None:
            failure_delta = budget.delta / 2 if log_survival < 0 else 0.0
        order = limit = None
        if measure == "rdp":
            order, limit = _rdp_order(budget.epsilon, _without_failures(budget.delta, failure_delta), rest)
        additive = AdditiveFilter(budget, Rule(measure, failure_delta, order, limit))
        if accountant is not None or additive.admits(None, release, lambda: release):
            return additive
    if delta(release, budget.epsilon) <= budget.delta:
        return PlanFilter(budget, Rule("plan", plan=release))
    if measure is not None:
        return additive
    raise UnsupportedRelease(f"no additive filter covers {release!r}: state everything to come as the ledger's plan")


def _measure(budget: Budget, rest: Release) -> Measure | None:
    if budget.delta == 0:
        return "pure"
    if is_exact(rest):
        return "gdp"
    if math.isfinite(_price(zcdp, rest)) and math.isinf(_price(pure, rest)):
        return "zcdp"
    return "rdp" if math.isfinite(_price(_rdp_at(2.0), rest)) else None


def _without_failures(delta: float, failure_delta: float) -> float:
    """What is left of δ for the releases that do not fail, (δ − f)/(1 − f), rounded down."""
    if failure_delta == 0:
        return delta
    return max(0.0, (delta - failure_delta) / (1 - failure_delta) * (1 - 4 * _UNIT_ROUNDOFF))


def _rdp_order(epsilon: float, delta: float, rest: Release) -> tuple[float, float]:
    """The order at which (ε, δ) holds the most releases like ``rest``, and what ε_α may add up to there.

    The maximum is flat, so a grid finds the number of releases, and then the accountant the best order for that
    many: whatever it proves of them there, it proves of anything else with the same sum. Thus the number that was
    calibrated is the number that fits.
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
        if ACCOUNTANTS["rdp"].delta(like, epsilon) <= delta:
            order = 1.0 + best_order_for_delta(lambda orders: rdp(like, orders), epsilon)
            return order, max(_rdp_at(order)(like), _rdp_limit(epsilon, delta, order))
    return float(orders[index]), float(limits[index])


def _rdp_limit(epsilon: float, delta: float, order: float) -> float:
    """The largest ε_α that meets (ε, δ) by Proposition 12 of Canonne, Kamath & Steinke (2020), rounded down."""
    terms = (epsilon, -math.log1p(-1 / order), math.log(delta) / (order - 1), math.log(order) / (order - 1))
    return math.fsum(terms) - 8 * _UNIT_ROUNDOFF * math.fsum(map(abs, terms))


def _rdp_epsilon(total: float, delta: float, order: float) -> float:
    """ε of a total ε_α by the same proposition."""
    return max(0.0, total + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1))


def _rdp_at(order: float) -> Callable[[Release], float]:
    return lambda release: float(rdp(release, np.array([order]))[0])


def _additive(rule: Rule, epsilon: float, delta: float) -> _Limit:
    """The limit of one measure for (ε, δ)."""

    def exact(rest: Release) -> bool:
        return float(ACCOUNTANTS[cast(Measure, rule.accountant)].delta(rest, epsilon)) <= delta

    match rule.accountant:
        case "gdp":
            limit = gdp_mu(epsilon, delta) ** 2
            return _Limit(lambda rest: gdp(rest) ** 2, limit, lambda m: gdp_epsilon(math.sqrt(m), delta), exact)
        case "zcdp":
            return _Limit(zcdp, zcdp_rho(epsilon, delta), lambda rho: zcdp_epsilon(rho, delta), exact)
        case "rdp":
            order, limit = cast(float, rule.order), cast(float, rule.limit)
            cost = _rdp_at(order)
            return _Limit(cost, limit, lambda m: _rdp_epsilon(m, delta, order), lambda rest: cost(rest) <= limit)
        case "pure":
            return _Limit(pure, pure_parameter(epsilon, delta), lambda m: pure_epsilon(m, delta), exact)
    raise ValueError(f"accountant must be one of {get_args(Measure)}, got accountant={rule.accountant!r}")


def _price(cost: Callable[[Release], float], release: Release) -> float:
    """A cost, infinite where the accountant has no bound."""
    try:
        return cost(release)
    except UnsupportedRelease:
        return math.inf


def _parts(release: Release) -> dict[Release, int]:
    return dict(release.parts) if isinstance(release, Composed) else {release: 1}

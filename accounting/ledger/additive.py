"""Filters that add up measures per unit, and admit while one of several measures stays within its limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from accounting.accountants.failures import split_failures
from accounting.accountants.gdp import gdp
from accounting.accountants.pure import pure
from accounting.accountants.rdp import rdp
from accounting.accountants.zcdp import zcdp
from accounting.budget import Budget
from accounting.conversions import gdp_epsilon, gdp_mu, pure_epsilon, pure_parameter, zcdp_epsilon, zcdp_rho
from accounting.errors import UnsupportedRelease
from accounting.ledger.mixture import least_epsilon, meets
from accounting.ledger.rule import UNIT_ROUNDOFF, Rule, without_failures
from accounting.ledger.scopes import ScopedSums
from accounting.ledger.smoothing import Potential, smoothed_costs
from accounting.releases import Composed, Release
from accounting.totals import ACCOUNTANTS, Accountant

__all__ = ["AdditiveFilter", "price"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class _Measure:
    """What is added up (one number or several), whether a sum is within its limit, and the ε that it stands for.

    ``within(sum, slack)`` is None where only exact arithmetic can tell; then ``exact(total)`` decides.
    """

    cost: Callable[[Release], list[float]]
    within: Callable[[Array, float], bool | None]
    epsilon: Callable[[Array], float]
    exact: Callable[[Release], bool]


class AdditiveFilter:
    """Admit releases while a measure of everything that a unit meets stays within the budget."""

    def __init__(self, budget: Budget, rule: Rule) -> None:
        self.rule = rule
        self._failure_limit = -math.log1p(-rule.failure_delta)
        self._measures = list(_measures(rule, budget.epsilon, without_failures(budget.delta, rule.failure_delta)))
        self._slices: list[slice] = []
        width = 1  # the failures come first
        for measure in self._measures:
            numbers = len(measure.cost(_NOTHING))
            self._slices.append(slice(width, width + numbers))
            width += numbers
        self.sums = ScopedSums(width)
        self._costs: dict[Release, Array] = {}

    def price(self, release: Release) -> Array:
        """What a release adds to every sum; remembered, so that :meth:`admits` and :meth:`record` are quick."""
        known = self._costs.get(release)
        if known is None:
            log_survival, rest = split_failures(release)
            numbers = [-log_survival]
            for measure, part in zip(self._measures, self._slices, strict=True):
                try:
                    numbers += measure.cost(rest)
                except UnsupportedRelease:
                    numbers += [math.inf] * (part.stop - part.start)
            known = self._costs[release] = np.array(numbers)
        return known

    def knows(self, release: Release) -> bool:
        """Whether :meth:`price` was asked before."""
        return release in self._costs

    def admits(self, scope: str | None, release: Release, total_after: Callable[[], Release] | None) -> bool | None:
        """Whether a release fits; ``total_after()`` describes everything with it, for the last digits.

        None if only they can tell and no ``total_after`` is given.
        """
        amount = self.price(release)
        verdict = self._verdict(self.sums.after(scope, amount))
        if verdict is not True:
            each = self.sums.each_after(scope, amount)
            verdicts = [self._verdict(total) for total in each] if len(each) > 1 else [verdict]
            verdict = all(verdicts) if None not in verdicts or False in verdicts else None
        if verdict is not None or total_after is None:
            return verdict
        return self._exactly(scope, amount, total_after())

    def record(self, scope: str | None, release: Release, count: int = 1) -> None:
        """Count a release that was recorded."""
        self.sums.add(scope, self.price(release), count)

    def spent(self, scope: str | None = None) -> float:
        """ε at the budget's δ of what the worst-off unit of a scope met; infinite if no measure covers it."""
        zero = np.zeros_like(self.price(_NOTHING))
        return max(self._epsilon(total) for total in _maximal(self.sums.each_after(scope, zero)))

    def covers(self, scope: str | None, release: Release) -> bool:
        """Whether a measure has a bound for a release together with everything that was counted."""
        total = self.sums.after(scope, self.price(release))
        return any(np.isfinite(total[part]).any() for part in self._slices)

    def may_fail(self, scope: str | None, release: Release) -> bool:
        """Whether the failures, with those of a release, stay within the part of δ that is kept for them."""
        total = self.sums.after(scope, self.price(release))
        return _within(float(total[0]), self._failure_limit, self._slack) is not False

    def alone(self, release: Release) -> float:
        """ε at the budget's δ that the filter counts for a release by itself."""
        return self._epsilon(self.price(release))

    @property
    def _slack(self) -> float:
        """The rounding of n additions of nonnegative terms is below n·2⁻⁵² of their sum."""
        return (self.sums.terms + 64) * UNIT_ROUNDOFF

    def _verdict(self, total: Array) -> bool | None:
        failures = _within(float(total[0]), self._failure_limit, self._slack)
        if failures is False:
            return False
        verdicts = [m.within(total[part], self._slack) for m, part in zip(self._measures, self._slices, strict=True)]
        if True in verdicts:
            return failures
        return None if None in verdicts else False

    def _exactly(self, scope: str | None, amount: Array, total: Release) -> bool:
        """Whether one measure holds for everything, by the accountants rather than by the running sums."""
        log_survival, rest = split_failures(total)
        if -log_survival > self._failure_limit:
            return False
        worst = self.sums.after(scope, amount)
        for measure, part in zip(self._measures, self._slices, strict=True):
            verdict = measure.within(worst[part], self._slack)
            if verdict or (verdict is None and measure.exact(rest)):
                return True
        return False

    def _epsilon(self, total: Array) -> float:
        return min(m.epsilon(total[part]) for m, part in zip(self._measures, self._slices, strict=True))


def price(cost: Callable[[Release], float], release: Release) -> float:
    """A cost, infinite where the accountant has no bound."""
    try:
        return cost(release)
    except UnsupportedRelease:
        return math.inf


def _measures(rule: Rule, epsilon: float, delta: float) -> Iterable[_Measure]:
    """The measures of a rule for (ε, δ), of which any may hold; pure DP rides along."""
    match rule.accountant:
        case "gdp":
            yield _gdp(epsilon, delta)
        case "zcdp":
            limit = zcdp_rho(epsilon, delta)
            yield _single("zcdp", zcdp, limit, lambda rho: zcdp_epsilon(rho, delta), epsilon, delta)
        case "rdp" if rule.order is not None and rule.limit is not None:
            yield _one_order(rule.order, rule.limit, epsilon, delta)
        case "mixed" if rule.orders and rule.shares:
            yield _smoothed(epsilon, rule.shares[0] * delta, rule.reserves, rule.left_out, rule.tilt)
            if rule.heavy:
                share, left_out, *reserves = rule.heavy
                yield _smoothed(epsilon, share * delta, tuple(reserves), left_out)
            yield _mixture(np.array(rule.orders), np.array(rule.shares[1:]) * delta, epsilon)
        case "pure":
            yield _single(
                "pure", pure, pure_parameter(epsilon, delta), lambda m: pure_epsilon(m, delta), epsilon, delta
            )
            return
        case other:
            raise ValueError(f"a filter cannot follow the accountant {other!r} with {rule!r}")
    yield _single("pure", pure, pure_parameter(epsilon, 0.0), lambda m: pure_epsilon(m, 0.0), epsilon, 0.0)


@lru_cache(maxsize=256)
def _largest_mu(epsilon: float, delta: float) -> float:
    return gdp_mu(epsilon, delta)


def _gdp(epsilon: float, delta: float) -> _Measure:
    limit = _largest_mu(epsilon, delta) ** 2
    return _single("gdp", lambda r: gdp(r) ** 2, limit, lambda m: gdp_epsilon(math.sqrt(m), delta), epsilon, delta)


def _smoothed(
    epsilon: float, delta: float, reserves: tuple[float, ...], left_out: float, tilt: tuple[float, ...] = ()
) -> _Measure:
    """Σ μ², or Σ c with a reserve, whichever holds; see :mod:`accounting.ledger.smoothing`."""
    missed = left_out * delta if reserves else 0.0
    share, order, rate = tilt or (0.0, 1.0, 1.0)
    weight = share * delta
    delta = (delta - missed - weight) * (1 - 4 * UNIT_ROUNDOFF)
    limit = _largest_mu(epsilon, delta) ** 2
    failing = missed / limit * (1 - 4 * UNIT_ROUNDOFF)
    potential = Potential(epsilon, limit, failing, weight, order, rate)
    kept = np.array([0.0, *(share * limit for share in sorted(reserves))])

    def cost(release: Release) -> list[float]:
        try:
            costs = np.array([smoothed_costs(release, reserve, potential) for reserve in kept[1:].tolist()])
        except UnsupportedRelease:
            costs = np.full((kept.size - 1, 2), math.inf)
        square = np.full((1, 2), price(lambda r: gdp(r) ** 2, release))
        # what holds with a small reserve holds with a larger one; first all without the exponential term, then with it
        return [float(c) for c in np.minimum.accumulate(np.concatenate([square, costs])).T.ravel()]

    def within(total: Array, slack: float) -> bool | None:
        if np.any(total[kept.size + 1 :] + kept[1:] <= limit * (1 - slack)):
            return True
        return _within(float(total[0]), limit, slack)

    def closed(most: float) -> float:
        """ε at which D_m is what is left of δ; more than M leaves out more."""
        left = delta - failing * max(0.0, most - limit)
        return gdp_epsilon(math.sqrt(most), left) if left > 0 else math.inf

    def to_epsilon(total: Array) -> float:
        plain, tilted = np.split(total, 2)
        kept_now = np.where(plain > 0, kept, 0.0)
        found = min(gdp_epsilon(math.sqrt(float(plain[0])), delta), closed(float(np.min(plain + kept_now))))
        if weight == 0:
            return found
        # the exponential term is λ at ε, and no more than that at an ε′ that differs by ρ(m − M)
        with_term = float(np.min(tilted + kept_now))
        return min(found, max(epsilon + rate * (with_term - limit), closed(with_term), 0.0))

    return _Measure(cost, within, to_epsilon, lambda rest: float(ACCOUNTANTS["gdp"].delta(rest, epsilon)) <= delta)


def _single(
    accountant: Accountant,
    cost: Callable[[Release], float],
    limit: float,
    to_epsilon: Callable[[float], float],
    epsilon: float,
    delta: float,
) -> _Measure:
    return _Measure(
        lambda release: [cost(release)],
        lambda total, slack: _within(float(total[0]), limit, slack),
        lambda total: to_epsilon(float(total[0])),
        lambda rest: float(ACCOUNTANTS[accountant].delta(rest, epsilon)) <= delta,
    )


def _one_order(order: float, limit: float, epsilon: float, delta: float) -> _Measure:
    def cost(release: Release) -> list[float]:
        return [float(rdp(release, np.array([order]))[0])]

    def to_epsilon(total: Array) -> float:
        closed = total[0] + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
        return max(0.0, float(closed))

    if not to_epsilon(np.array([limit])) <= epsilon * (1 + 1e-9):
        raise ValueError(
            f"a Rényi divergence of {limit!r} at the order {order!r} is more than ε={epsilon!r}, δ={delta!r}"
        )

    return _Measure(
        cost,
        lambda total, slack: _within(float(total[0]), limit, slack),
        to_epsilon,
        lambda rest: cost(rest)[0] <= limit,
    )


def _mixture(orders: Array, weights: Array, epsilon: float) -> _Measure:
    eta = orders - 1
    return _Measure(
        lambda release: [float(value) for value in rdp(release, orders)],
        lambda total, slack: meets(eta, weights, total * (1 + slack), epsilon),
        lambda total: least_epsilon(eta, weights, total),
        lambda rest: False,
    )


def _within(total: float, limit: float, slack: float) -> bool | None:
    """Whether a sum stays within ``limit``; None where only exact arithmetic can tell."""
    if total == 0 or total <= limit * (1 - slack):
        return True
    return False if total > limit * (1 + 1e-9 + slack) else None


def _maximal(vectors: list[Array]) -> list[Array]:
    """Those of some vectors that lie below no other."""
    kept: list[Array] = []
    for vector in sorted(vectors, key=lambda v: -float(v[np.isfinite(v)].sum())):
        if not any(np.all(vector <= other) for other in kept):
            kept.append(vector)
    return kept


_NOTHING = Composed()

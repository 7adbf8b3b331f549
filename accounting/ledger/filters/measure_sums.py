"""What a filter adds up, per unit: sums of several kinds, their limits, and the ε that they stand for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from accounting.arrays import UNIT_ROUNDOFF, Array
from accounting.conversions import gdp_epsilon, gdp_mu, pure_epsilon, pure_parameter
from accounting.errors import UnsupportedRelease
from accounting.ledger.filters.copies_of_first import CopiesOfFirst
from accounting.ledger.filters.level_charges import LevelCharges, costs_between
from accounting.ledger.filters.renyi_mixture import least_epsilon, meets
from accounting.ledger.filters.reserve_costs import Potential, smoothed_costs
from accounting.ledger.filters.rule import Rule
from accounting.loss.concentrated_curve import zcdp_epsilon, zcdp_rho
from accounting.notions.gdp import gdp, is_exact
from accounting.notions.pure import is_within, pure
from accounting.notions.rdp import rdp
from accounting.notions.zcdp import zcdp
from accounting.releases import Release
from accounting.totals import ACCOUNTANTS, Accountant

__all__ = ["MeasureSum", "bounded", "measures", "price", "within"]

_Cost = TypeVar("_Cost")


@dataclass(frozen=True)
class MeasureSum:
    """What is added up (one number or several), whether a sum is within its limit, and the ε that it stands for.

    ``within(sum, slack)`` is None where only exact arithmetic can tell; then ``exact(total, sum)`` decides, by the
    description of everything or by the sum. With ``by_level`` one more number is added up, what it charged;
    ``skewness(release)`` is how much more it charges for a release at the least level than at the largest.
    """

    cost: Callable[[Release], list[float]]
    within: Callable[[Array, float], bool | None]
    epsilon: Callable[[Array], float]
    exact: Callable[[Release, Array], bool]
    by_level: LevelCharges | None = None
    skewness: Callable[[Release], float] = lambda release: 0.0


def bounded(cost: Callable[[], _Cost], infinite: _Cost) -> _Cost:
    """A cost, or what is ``infinite`` where there is no bound, or none that is a number of this machine."""
    try:
        with np.errstate(over="raise", invalid="raise", under="ignore"):
            return cost()
    except (UnsupportedRelease, ArithmeticError):
        return infinite


def price(cost: Callable[[Release], float], release: Release) -> float:
    """A cost of a release, infinite where there is no bound."""
    return bounded(lambda: cost(release), math.inf)


def measures(rule: Rule, epsilon: float, delta: float) -> Iterable[MeasureSum]:
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
            yield _smoothed(epsilon, rule.shares[0] * delta, rule.reserves, rule.left_out, rule.tilt, rule.levels)
            if rule.heavy:
                share, left_out, *reserves = rule.heavy
                yield _smoothed(epsilon, share * delta, tuple(reserves), left_out, rule.heavy_tilt, rule.heavy_levels)
            yield _mixture(np.array(rule.orders), np.array(rule.shares[1:]) * delta, epsilon)
            if rule.kind is not None:
                one = CopiesOfFirst(rule.kind, epsilon, rule.kind_share * delta)
                yield MeasureSum(one.cost, one.within, one.epsilon, lambda rest, total: one.decide(total))
        case "pure":
            yield _pure(epsilon, delta)
            return
        case other:
            raise ValueError(f"a filter cannot follow the accountant {other!r} with {rule!r}")
    yield _pure(epsilon, 0.0)


def _gdp(epsilon: float, delta: float) -> MeasureSum:
    limit = gdp_mu(epsilon, delta) ** 2
    return _single("gdp", lambda r: gdp(r) ** 2, limit, lambda m: gdp_epsilon(math.sqrt(m), delta), epsilon, delta)


def _smoothed(
    epsilon: float,
    delta: float,
    reserves: tuple[float, ...],
    left_out: float,
    tilt: tuple[float, ...] = (),
    levels: tuple[float, ...] = (),
) -> MeasureSum:
    """Σ μ², or Σ c with a reserve, or, last, what is charged at levels; whichever holds.

    See :mod:`accounting.ledger.filters.reserve_costs` and :mod:`accounting.ledger.filters.level_charges`.
    """
    missed = left_out * delta if reserves else 0.0
    share, order, rate = tilt or (0.0, 1.0, 1.0)
    weight = share * delta
    delta = (delta - missed - weight) * (1 - 4 * UNIT_ROUNDOFF)
    limit = gdp_mu(epsilon, delta) ** 2
    failing = missed / limit * (1 - 4 * UNIT_ROUNDOFF)
    potential = Potential(epsilon, limit, failing, weight, order, rate)
    kept = np.array([0.0, *(share * limit for share in sorted(reserves))])
    steps = [share * limit for share in sorted(levels)]

    def square(release: Release) -> float:
        return price(lambda r: gdp(r) ** 2, release)

    def costs_at(release: Release, reserve: float, *, plain: bool) -> Array:
        return bounded(lambda: smoothed_costs(release, reserve, potential, plain=plain), np.full(2, math.inf))

    def cost(release: Release) -> list[float]:
        """Without the exponential term at every reserve, then with it; both from μ² on."""
        found = np.full((kept.size, 2), square(release))
        if not is_exact(release):
            for at, reserve in zip(found[1:], kept[1:].tolist(), strict=True):
                at[:] = costs_at(release, reserve, plain=True)
        # what holds with a small reserve holds with a larger one
        return [float(c) for c in np.minimum.accumulate(found).T.ravel()]

    def at_levels(release: Release) -> list[float]:
        least = square(release)
        if is_exact(release):
            return [least] * (1 + len(steps))
        found = costs_between(steps, lambda reserve: float(costs_at(release, reserve, plain=False)[1]))
        return [least, *(min(least, c) for c in found)]

    def skewness(release: Release) -> float:
        if not steps:
            return 0.0
        late, early = (float(costs_at(release, reserve, plain=False)[1]) for reserve in (steps[0], steps[-1]))
        return late / early if late < math.inf else math.inf

    by_level = LevelCharges(limit, [0.0, *steps], at_levels) if levels else None

    def fits(total: Array, slack: float) -> bool | None:
        with_term = total[kept.size : 2 * kept.size]
        if by_level is not None and total[-1] <= limit * (1 - slack):
            return True
        if np.any(with_term[1:] + kept[1:] <= limit * (1 - slack)):
            return True
        return within(float(total[0]), limit, slack)

    def closed(most: float) -> float:
        """ε at which D_m is what is left of δ; more than M leaves out more."""
        left = delta - failing * max(0.0, most - limit)
        return gdp_epsilon(math.sqrt(most), left) if left > 0 else math.inf

    def to_epsilon(total: Array) -> float:
        plain, tilted = total[: kept.size], total[kept.size : 2 * kept.size]
        kept_now = np.where(plain > 0, kept, 0.0)
        found = min(gdp_epsilon(math.sqrt(float(plain[0])), delta), closed(float(np.min(plain + kept_now))))
        if by_level is not None and total[-1] < math.inf:
            found = min(found, epsilon)
        if weight == 0:
            return found
        # the exponential term is λ at ε, and no more than that at an ε′ that differs by ρ(m − M)
        with_term = float(np.min(tilted + kept_now))
        return min(found, max(epsilon + rate * (with_term - limit), closed(with_term), 0.0))

    def exact(rest: Release, total: Array) -> bool:
        return float(ACCOUNTANTS["gdp"].delta(rest, epsilon)) <= delta

    return MeasureSum(cost, fits, to_epsilon, exact, by_level, skewness)


def _single(
    accountant: Accountant,
    cost: Callable[[Release], float],
    limit: float,
    to_epsilon: Callable[[float], float],
    epsilon: float,
    delta: float,
    exact: Callable[[Release, Array], bool] | None = None,
) -> MeasureSum:
    return MeasureSum(
        lambda release: [cost(release)],
        lambda total, slack: within(float(total[0]), limit, slack),
        lambda total: to_epsilon(float(total[0])),
        exact or (lambda rest, total: float(ACCOUNTANTS[accountant].delta(rest, epsilon)) <= delta),
    )


def _pure(epsilon: float, delta: float) -> MeasureSum:
    limit = pure_parameter(epsilon, delta)

    def exact(rest: Release, total: Array) -> bool:
        return is_within(rest, epsilon) if delta == 0 else ACCOUNTANTS["pure"].delta(rest, epsilon) <= delta

    return _single("pure", pure, limit, lambda m: pure_epsilon(m, delta), epsilon, delta, exact)


def _one_order(order: float, limit: float, epsilon: float, delta: float) -> MeasureSum:
    def cost(release: Release) -> list[float]:
        return [float(rdp(release, np.array([order]))[0])]

    def to_epsilon(total: Array) -> float:
        closed = total[0] + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
        return max(0.0, float(closed))

    if not to_epsilon(np.array([limit])) <= epsilon * (1 + 1e-9):
        raise ValueError(
            f"a Rényi divergence of {limit!r} at the order {order!r} is more than ε={epsilon!r}, δ={delta!r}"
        )

    return MeasureSum(
        cost,
        lambda total, slack: within(float(total[0]), limit, slack),
        to_epsilon,
        lambda rest, total: cost(rest)[0] <= limit,
    )


def _mixture(orders: Array, weights: Array, epsilon: float) -> MeasureSum:
    eta = orders - 1
    return MeasureSum(
        lambda release: [float(value) for value in rdp(release, orders)],
        lambda total, slack: meets(eta, weights, total * (1 + slack), epsilon),
        lambda total: least_epsilon(eta, weights, total),
        lambda rest, total: False,
    )


def within(total: float, limit: float, slack: float) -> bool | None:
    """Whether a sum stays within ``limit``; None where only exact arithmetic can tell."""
    if total == 0 or total <= limit * (1 - slack):
        return True
    return False if total > limit * (1 + 1e-9 + slack) else None

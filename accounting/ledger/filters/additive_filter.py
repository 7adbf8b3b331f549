"""The filter that adds up measures per unit, and admits while one of several measures stays within its limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from accounting.arrays import UNIT_ROUNDOFF, Array
from accounting.budget import Budget
from accounting.compose.failures import split_failures
from accounting.ledger.filters.measure_sums import bounded, measures, within
from accounting.ledger.filters.rule import Rule, without_failures
from accounting.ledger.filters.scopes import ScopedSums
from accounting.releases import Composed, Release

__all__ = ["AdditiveFilter"]


class AdditiveFilter:
    """Admit releases while a measure of everything that a unit meets stays within the budget.

    With a ``doubt`` its sums are no larger than those of any filter that follows the same rule, also if the costs
    differ by such a share from these.
    """

    def __init__(self, budget: Budget, rule: Rule, *, doubt: float = 0.0) -> None:
        self.rule = rule
        self._doubt = doubt
        self._failure_limit = -math.log1p(-rule.failure_delta)
        self._measures = list(measures(rule, budget.epsilon, without_failures(budget.delta, rule.failure_delta)))
        self._slices: list[slice] = []
        self._by_level = []  # what is charged by how much is left: where it stands, and by whom
        width = 1  # the failures come first
        for measure in self._measures:
            numbers = len(measure.cost(Composed()))
            if measure.by_level is not None:
                self._by_level.append((width + numbers, measure.by_level))
                numbers += 1
            self._slices.append(slice(width, width + numbers))
            width += numbers
        self.sums = ScopedSums(width)
        self._zero = np.zeros(width)
        self._costs: dict[Release, Array] = {}
        self._rests: dict[Release, Release] = {}  # without what may fail

    def price(self, release: Release) -> Array:
        """What a release adds to every sum, to what is booked nothing if it has a cost at some level.

        Remembered, so that :meth:`admits` and :meth:`record` are quick.
        """
        known = self._costs.get(release)
        if known is None:
            log_survival, rest = split_failures(release)
            numbers = [-log_survival]
            for measure, part in zip(self._measures, self._slices, strict=True):
                width = part.stop - part.start - (measure.by_level is not None)
                numbers += bounded(partial(measure.cost, rest), [math.inf] * width)
                if measure.by_level is not None:
                    numbers.append(0.0 if measure.by_level.covers(rest) else math.inf)
            known = self._costs[release] = np.array(numbers) * (1 - self._doubt)
            self._rests[release] = rest
        return known

    def knows(self, release: Release) -> bool:
        """Whether :meth:`price` was asked before."""
        return release in self._costs

    def admits(self, scope: str | None, release: Release, total_after: Callable[[], Release] | None) -> bool | None:
        """Whether a release fits; ``total_after()`` describes everything with it, for the last digits.

        None if only they can tell and no ``total_after`` is given.
        """
        spent = self.sums.after(scope, self._zero)
        amount = self._charged(spent, release)
        verdict = self._verdict(spent + amount)
        if verdict is not True:
            each = self.sums.each_after(scope, amount)
            verdicts = [self._verdict(total) for total in each] if len(each) > 1 else [verdict]
            verdict = all(verdicts) if None not in verdicts or False in verdicts else None
        if verdict is not None or total_after is None:
            return verdict
        return self._exactly(scope, amount, total_after())

    def record(self, scope: str | None, release: Release) -> None:
        """Count a release that was recorded."""
        self.sums.add(scope, self._charged(self.sums.after(scope, self._zero), release))

    def record_all(self, terms: Iterable[tuple[str | None, Release, int]]) -> None:
        """Count releases of which nobody knows the order, and how often each was recorded in a scope; before others."""
        if self.sums.terms:
            raise ValueError(f"releases without an order come before all others, and {self.sums.terms} were counted")
        counted = list(terms)
        slack = self._slack + sum(count for _, _, count in counted) * UNIT_ROUNDOFF
        amounts = [self.price(release) * count for _, release, count in counted]
        parts = [(scope, self._rests[release], count) for scope, release, count in counted]
        for place, by_level in self._by_level:
            doubt = self._doubt
            charges = by_level.unordered_at_least(parts, doubt) if doubt else by_level.unordered(parts, slack)
            for amount, charge in zip(amounts, charges, strict=True):
                amount[place] = charge
        for (scope, _, count), amount in zip(counted, amounts, strict=True):
            self.sums.add(scope, amount)
            self.sums.terms += count - 1

    def spent(self, scope: str | None = None) -> float:
        """ε at the budget's δ of what the worst-off unit of a scope met; infinite if no measure covers it."""
        return max(self._epsilon(total) for total in _maximal(self.sums.each_after(scope, self._zero)))

    def skewness(self, release: Release) -> float:
        """How much more a release is charged late than early, by the largest share of δ."""
        return self._measures[0].skewness(release)

    def covers(self, scope: str | None, release: Release) -> bool:
        """Whether a measure has a bound for a release together with everything that was counted."""
        total = self.sums.after(scope, self.price(release))
        return any(np.isfinite(total[part]).any() for part in self._slices)

    def may_fail(self, scope: str | None, release: Release) -> bool:
        """Whether the failures, with those of a release, stay within the part of δ that is kept for them."""
        total = self.sums.after(scope, self.price(release))
        return within(float(total[0]), self._failure_limit, self._slack) is not False

    def alone(self, release: Release) -> float:
        """ε at the budget's δ that the filter counts for a release by itself."""
        return self._epsilon(self._charged(self._zero, release))

    def _charged(self, spent: Array, release: Release) -> Array:
        """What a release adds to every sum where the worst-off unit that meets it met ``spent``."""
        amount = self.price(release)
        if self._by_level:
            amount = amount.copy()
            for place, by_level in self._by_level:
                before, rest = float(spent[place]), self._rests[release]
                if self._doubt:
                    amount[place] = by_level.charged_at_least(before, rest, self._doubt)
                else:
                    amount[place] = by_level.charge(before, rest, self._slack)
        return amount

    @property
    def _slack(self) -> float:
        """The rounding of n additions of nonnegative terms is below n·2⁻⁵² of their sum."""
        return (self.sums.terms + 64) * UNIT_ROUNDOFF

    def _verdict(self, total: Array) -> bool | None:
        failures = within(float(total[0]), self._failure_limit, self._slack)
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
            if verdict or (verdict is None and measure.exact(rest, worst[part])):
                return True
        return False

    def _epsilon(self, total: Array) -> float:
        return min(m.epsilon(total[part]) for m, part in zip(self._measures, self._slices, strict=True))


def _maximal(vectors: list[Array]) -> list[Array]:
    """Those of some vectors that lie below no other."""
    kept: list[Array] = []
    for vector in sorted(vectors, key=lambda v: -float(v[np.isfinite(v)].sum())):
        if not any(np.all(vector <= other) for other in kept):
            kept.append(vector)
    return kept

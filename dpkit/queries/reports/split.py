"""How a plan splits its budget: the answers with an accuracy wanted take what that needs, the others share the rest.

One noise for the whole plan. With Gaussian noise the answers compose as one Gaussian mechanism, μ² = Σ 1/z², and
quantiles join by the privacy loss distribution of all together; a share of the budget is a share of ρ. With Laplace
noise ε adds up. Of the two, the plan takes the one with the smaller errors (the product over all answers), which public
numbers decide. (Laplace noise composed by its loss distribution gains from some ten answers on, where Gaussian noise is
smaller: at ε = 1 and δ = 1e-6, 15 counts have errors of 45, 44 and 32, and 30 of 90, 65 and 45. ``noise="laplace"``
has it.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from accounting import Budget, BudgetExceeded, Release, calibrate, compose, epsilon
from accounting.totals import Accountant, meets
from dpkit.queries._noise import NoiseName
from dpkit.queries.reports.demands import Demand

__all__ = ["Split", "split"]

# what the queries' own calibrations may lose in the last digits
_ROOM = 1 - 1e-10
# how much of ε a refusal proposes for the answers with an accuracy wanted
_LEFT = 0.9


@dataclass(frozen=True)
class Split:
    """The noise of every answer, by its strength, and the cost of all together."""

    noise: NoiseName
    strengths: tuple[float, ...]
    cost: Release


class _Refused(BudgetExceeded):
    """What does not fit, and how many times as large errors would have to be."""

    def __init__(self, message: str, wider: float) -> None:
        super().__init__(message)
        self.wider = wider


def split(demands: Sequence[Demand], budget: Budget, noise: NoiseName | None) -> Split:
    """The split with the smaller errors; raises :class:`~accounting.BudgetExceeded` where none fits."""
    if noise not in (None, "laplace", "gaussian"):
        raise ValueError(f"noise must be 'laplace' or 'gaussian' (by default the better), got noise={noise!r}")
    if noise == "gaussian" and budget.delta == 0:
        raise ValueError(f"Gaussian noise needs budget.delta > 0, got {budget!r}: allow 1e-6, say")
    found: list[Split] = []
    refusals: list[_Refused] = []

    def tried(name: NoiseName, allowed: Budget) -> None:
        try:
            found.append(_split(demands, allowed, name))
        except _Refused as refused:
            refusals.append(refused)

    if noise != "laplace" and budget.delta > 0:
        tried("gaussian", budget)
    if noise != "gaussian":
        # where ε adds up: of so few answers that Laplace noise is the smaller, the loss distribution says no less
        tried("laplace", budget if noise == "laplace" else replace(budget, delta=0.0))
    if not found and len(refusals) > 1 and any(need.ask.within is None for need in demands):
        # what would fit leaves the others the noise that is best for them
        others = [replace(need, ask=replace(need.ask, within=None)) for need in demands]
        raise BudgetExceeded(str(refusals[0 if split(others, budget, None).noise == "gaussian" else 1]))
    if not found:
        raise BudgetExceeded(str(min(refusals, key=lambda refused: refused.wider)))
    return min(found, key=lambda one: _score(demands, one))


def _score(demands: Sequence[Demand], one: Split) -> tuple[float, float]:
    """Σ ln error of the answers that share; then the cost, where all have the accuracy wanted."""
    total = 0.0
    for need, strength in zip(demands, one.strengths, strict=True):
        if need.ask.within is None and not need.free:
            known = need if need.factor is not None else replace(need, factor=1.0)
            total += math.log(max(known.error(strength, one.noise) or 0.0, 1e-300))
    if any(need.ask.within is None for need in demands):
        return total, 0.0
    return total, float(epsilon(one.cost, demands[0].budget.delta))


def _split(demands: Sequence[Demand], budget: Budget, noise: NoiseName) -> Split:
    wanted = {i: need.enough(need.ask.within, noise) for i, need in enumerate(demands) if need.ask.within is not None}
    for i, strength in wanted.items():
        if math.isinf(strength):
            told = f"{demands[i].ask.name!r} asks for errors within {demands[i].ask.within:g}, which no noise has"
            raise _Refused(told, math.inf)
    sharing = [i for i, need in enumerate(demands) if i not in wanted and not need.free]
    weights = sum(demands[i].ask.weight for i in sharing)

    def strengths(multiplier: float) -> list[float]:
        """Of all answers, where those that share have this noise multiplier together."""
        whole = 0.5 / multiplier**2 if noise == "gaussian" else 1 / multiplier
        out = [wanted.get(i, 0.0) for i in range(len(demands))]
        for i in sharing:
            out[i] = demands[i].strength(whole * demands[i].ask.weight / weights, noise)
        return out

    fixed = total(demands, strengths(1.0), noise, wanted)
    if wanted and not fits(fixed, budget):
        raise _refusal(demands, wanted, noise, budget, fixed)
    if not sharing:
        return Split(noise, tuple(strengths(1.0)), fixed)
    try:
        room = replace(budget, epsilon=budget.epsilon * _ROOM)
        multiplier = calibrate(lambda z: total(demands, strengths(z), noise), room, accountant=_adding(room))
    except BudgetExceeded:
        raise _refusal(demands, wanted, noise, budget, fixed) from None
    found = strengths(multiplier)
    return Split(noise, tuple(found), total(demands, found, noise))


def total(
    demands: Sequence[Demand], strengths: Sequence[float], noise: NoiseName, only: dict[int, float] | None = None
) -> Release:
    """The cost of all answers, or of some."""
    chosen = [i for i, need in enumerate(demands) if (only is None or i in only) and not need.free]
    return compose([(demands[i].cost(strengths[i], noise), 1) for i in chosen])


def fits(cost: Release, budget: Budget) -> bool:
    """Whether a cost meets the budget."""
    if budget.delta == 0:
        return bool(epsilon(cost, 0.0) <= budget.epsilon)
    return meets(cost, budget.epsilon, budget.delta)


def _adding(budget: Budget) -> Accountant | None:
    """Where δ is 0, ε adds up, and no other accountant need be asked."""
    return "pure" if budget.delta == 0 else None


def _refusal(
    demands: Sequence[Demand], wanted: dict[int, float], noise: NoiseName, budget: Budget, cost: Release
) -> _Refused:
    """Which answer does not fit, and what would."""
    parts = {i: demands[i].part(strength, noise) for i, strength in wanted.items()}
    worst = max(parts, key=parts.__getitem__)
    share = parts[worst] / sum(parts.values())
    need = demands[worst]
    spent = float(epsilon(cost, budget.delta))
    lines = (
        f"the accuracy wanted of these answers costs ε = {spent:.4g} at δ = {need.budget.delta:g}, and the plan may "
        f"spend {budget.epsilon:g}; {share:.0%} of it is {need.ask.name!r} with within={need.ask.within:g}"
    )
    # answers without a wish must be left something
    room = budget if len(wanted) == len(demands) else replace(budget, epsilon=_LEFT * budget.epsilon)
    kept = "" if room is budget else f" (and leaves {1 - _LEFT:.0%} of ε to the answers without a wish)"

    def alone(z: float) -> Release:
        return total(demands, [1 / z if i == worst else wanted.get(i, 0.0) for i in range(len(demands))], noise, wanted)

    def together(factor: float) -> Release:
        found = {i: demands[i].enough(factor * float(demands[i].ask.within or 1), noise) for i in wanted}
        return total(demands, [found.get(i, 0.0) for i in range(len(demands))], noise, wanted)

    try:
        fitting = need.error(1 / calibrate(alone, room, accountant=_adding(room)), noise) or 0.0
        way, wider = f"it fits with within={_up(fitting):g}{kept}", fitting / float(need.ask.within or 1)
    except BudgetExceeded:
        wider = _first(lambda factor: fits(together(factor), room))
        way = f"all of them fit with errors {_up(wider):g} times as large{kept}"
    return _Refused(f"{lines}: {way}; or allow ε = {_up(spent):g}", wider)


def _first(enough: Callable[[float], bool]) -> float:
    """The smallest number above 1 that is enough, to a thousandth; the larger ones all are."""
    low, high = 1.0, 2.0
    while not enough(high):
        low, high = high, 2 * high
    while high > 1.001 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _up(number: float) -> float:
    """Rounded up to three digits."""
    if number <= 0 or not math.isfinite(number):
        return number
    step = 10.0 ** (math.floor(math.log10(number)) - 2)
    return float(f"{math.ceil(number / step - 1e-9) * step:.3g}")

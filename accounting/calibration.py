"""The smallest noise that meets a budget."""

from __future__ import annotations

import math
from collections.abc import Callable

from accounting._checks import positive
from accounting.errors import AdjacencyMismatch, BudgetExceeded
from accounting.guarantees import Budget
from accounting.releases import Release
from accounting.totals import delta as total_delta

__all__ = ["calibrate"]


def calibrate(
    make_release: Callable[[float], Release],
    budget: Budget,
    *,
    bracket: tuple[float, float] = (0.5, 8.0),
) -> float:
    """The smallest noise multiplier z such that ``make_release(z)`` meets ``budget``.

    Parameters
    ----------
    make_release : callable
        Noise multiplier → description. More noise must not cost more.
    budget : Budget
        What the whole description may cost. If the description states an adjacency, it must be the budget's.
    bracket : (float, float)
        Where the answer is expected; it is widened as needed (over [1e-9, 1e18]).

    Returns
    -------
    float
        z with a relative precision of 1e-12, rounded so that ``make_release(z)`` never passes the budget.

    Raises
    ------
    BudgetExceeded
        If no noise is enough (for example because a fixed part of the description costs more).

    Examples
    --------
    >>> from accounting import Budget, Gaussian, calibrate
    >>> round(calibrate(lambda z: 100 * Gaussian(z), Budget(1.0, 1e-6)), 9)
    42.246788893
    """
    low, high = (positive("bracket", end) for end in bracket)
    if not low < high:
        raise ValueError(f"bracket must be increasing, got bracket={bracket!r}")
    root = math.sqrt(-math.log(budget.delta)) if budget.delta > 0 else math.inf

    def excess(z: float) -> float:
        """Positive where z passes the budget. √(−ln δ) is close to linear in z, which a secant likes."""
        release = make_release(z)
        check_budget_adjacency(release, budget)
        value = float(total_delta(release, budget.epsilon))
        if value == 0 or budget.delta == 0:
            return -1.0 if value <= budget.delta else 1.0
        return root - math.sqrt(-math.log(value))

    while excess(high) > 0:
        low, high = high, high * 8.0
        if high > 1e18:
            raise BudgetExceeded(f"no noise multiplier up to 1e18 meets {budget!r} with {make_release(high)!r}")
    while excess(low) <= 0:
        low, high = low / 8.0, low
        if low < 1e-9:
            return high

    from scipy.optimize import brentq

    guess: float = brentq(excess, low, high, xtol=1e-14 * high, rtol=1e-13)
    # brentq stops on either side of the root: step up to the first multiplier that was seen to meet the budget
    step = 1e-14
    while excess(guess) > 0:
        guess *= 1.0 + step
        step *= 2.0
    return guess


def check_budget_adjacency(release: Release, budget: Budget) -> None:
    """Refuse a description whose stated adjacency is not the budget's."""
    if release.adjacency is not None and release.adjacency != budget.adjacency:
        raise AdjacencyMismatch(
            f"the budget counts {budget.adjacency!r} neighbours and {release!r} was measured under "
            f"{release.adjacency!r}"
        )

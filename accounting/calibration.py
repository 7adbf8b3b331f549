"""The smallest noise that meets a budget."""

from __future__ import annotations

import math
from collections.abc import Callable

from accounting.budget import Budget
from accounting.checks import positive
from accounting.conversions import gdp_mu
from accounting.errors import AdjacencyMismatch, BudgetExceeded, UnsupportedRelease
from accounting.releases import Composed, Release
from accounting.roots import root_between
from accounting.totals import ACCOUNTANTS, Accountant, Bound
from accounting.totals import delta as total_delta
from accounting.totals import epsilon as total_epsilon

__all__ = ["calibrate"]

# Relative precision of the search where δ is not inverted in closed form.
_PRECISION = 1e-11
# The same for sums on a grid, whose ε is no more precise.
_ON_A_GRID = 1e-7
# And for the noise that it begins with.
_START = 1e-3


def calibrate(
    make_release: Callable[[float], Release],
    budget: Budget,
    *,
    bracket: tuple[float, float] = (0.5, 8.0),
    accountant: Accountant | None = None,
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
    accountant : {"gdp", "pure", "zcdp", "rdp", "pld"}, optional
        Whose total has to meet the budget. By default the smallest of all that apply.

    Returns
    -------
    float
        z with a relative precision of 1e-10 (1e-14 for Gaussians and for what is pure; as far as the grid of the
        privacy loss distribution allows where that decides, about 1e-5), rounded up: ``make_release(z)`` meets the
        budget by ``epsilon`` and by ``delta``.

    Raises
    ------
    TypeError
        If ``make_release`` is a description and no function, or the arguments are swapped.
    BudgetExceeded
        If no noise is enough (for example because a fixed part of the description costs more).

    Examples
    --------
    >>> from accounting import Budget, Gaussian, PoissonSubsampled, calibrate
    >>> round(calibrate(lambda z: 100 * Gaussian(z), Budget(1.0, 1e-6)), 9)
    42.246788893
    >>> budget = Budget(1.0, 1e-5, adjacency="add_remove")
    >>> z = calibrate(lambda z: 1000 * PoissonSubsampled(Gaussian(z), 0.01), budget, accountant="rdp")
    >>> round(z, 4)
    1.5131
    """
    _check(make_release, budget)
    low, high = (positive("bracket", end) for end in bracket)
    if not low < high:
        raise ValueError(f"bracket must be increasing, got bracket={bracket!r}")
    search = _Search(make_release, budget, accountant, high)
    if search.on_a_grid:
        found = _by_grid(search, bracket)
        if found is not None:
            return found
    precision = _PRECISION if search.mu is None else 1e-15
    if search.mu is not None or budget.delta == 0:
        # where all noise is proportional to z, μ and a pure ε are to 1/z, and one step from anywhere arrives
        over = search.excess(high)
        guess = high * (1.0 + over if search.mu is None else math.exp(over))
        if 0.0 < guess < 1e18 and abs(search.excess(guess)) < 4e-15:
            return search.first_that_meets(guess, 1e-15)
    return _by_root(search, bracket, precision)


def _check(make_release: object, budget: object) -> None:
    """Refuse a description in the place of a function, a number in that of a budget, and both in the wrong order."""
    if not callable(make_release) or not isinstance(budget, Budget):
        way = ": the function comes first" if callable(budget) and isinstance(make_release, Budget) else ""
        raise TypeError(
            "make_release must be a function of the noise multiplier, Gaussian or lambda z: 100 * Gaussian(z) say, and "
            f"budget a Budget, Budget(1.0, 1e-6) say, got make_release={make_release!r}, budget={budget!r}{way}"
        )


def _by_root(search: _Search, bracket: tuple[float, float], precision: float) -> float:
    """A noise multiplier that meets the budget, by at most about ``precision`` too large."""
    low, high = bracket
    budget = search.budget
    while search.excess(high) > 0:
        low, high = high, high * 8.0
        if high > 1e18:
            way = "allow a delta, 1e-6 say, or take noise that needs none, Laplace say" if budget.delta == 0 else ""
            raise BudgetExceeded(
                f"no noise multiplier up to 1e18 meets {budget!r} with {search.make_release(high)!r}: "
                f"{way or 'what does not depend on it must cost less, or the budget be larger'}"
            )
    while search.excess(low) <= 0:
        low, high = low / 8.0, low
        if low < 1e-9:
            return high

    root = root_between(search.excess, low, high, absolute=precision * high, relative=precision)
    return search.first_that_meets(root, precision)


def _by_grid(search: _Search, bracket: tuple[float, float]) -> float | None:
    """The answer where the privacy loss distribution decides; None if it does not, or where there is no start.

    Each of its totals takes a tenth of a second, that of ε less than that of δ. So ε is what is solved for, from the
    noise that is enough by the Rényi curve downwards.
    """
    try:
        enough = _by_root(_Search(search.make_release, search.budget, "rdp", bracket[1]), bracket, _START)
    except (BudgetExceeded, UnsupportedRelease):
        return None
    high = math.log(enough)
    over = search.excess_epsilon(high)
    if over > 0:
        return None
    low = high - min(max(-over, _ON_A_GRID), 0.7)  # ε falls like 1/z, or faster
    while search.excess_epsilon(low) <= 0:
        high, low = low, low - 0.25
        if low < math.log(1e-9):
            return None
    root = root_between(search.excess_epsilon, low, high, absolute=_ON_A_GRID / 2)
    z = math.exp(root) * (1 + _ON_A_GRID)
    return search.first_that_meets(z, _ON_A_GRID) if search.decided_by(z) == "pld" else None


class _Search:
    """By how much a noise multiplier misses the budget, in a form that is close to linear for a secant."""

    def __init__(
        self, make_release: Callable[[float], Release], budget: Budget, accountant: Accountant | None, high: float
    ) -> None:
        self.make_release, self.budget, self.accountant = make_release, budget, accountant
        typical = make_release(high)
        # a sum of releases, of which the privacy loss distribution may know the most
        self.on_a_grid = (
            accountant in (None, "pld")
            and budget.delta > 0
            and isinstance(typical, Composed)
            and not ACCOUNTANTS["gdp"].is_exact(typical)
            and (accountant == "pld" or ACCOUNTANTS["pld"].is_quick(typical))
        )
        # where the description is all Gaussian, μ is compared with the largest that the budget allows
        self.mu: float | None = None
        if accountant in (None, "gdp") and budget.delta > 0 and ACCOUNTANTS["gdp"].is_exact(typical):
            self.mu = gdp_mu(budget.epsilon, budget.delta)
        # a root is asked for where its bracket was
        self._epsilons: dict[float, Bound] = {}
        self._deltas: dict[float, Bound] = {}

    def release(self, z: float) -> Release:
        release = self.make_release(z)
        check_budget_adjacency(release, self.budget)
        return release

    def excess(self, z: float) -> float:
        """Positive where z passes the budget."""
        release, budget = self.release(z), self.budget
        if self.mu is not None and ACCOUNTANTS["gdp"].is_exact(release):
            return math.log(ACCOUNTANTS["gdp"].gdp(release) / self.mu)
        if budget.delta == 0:
            return min(total_epsilon(release, 0.0, accountant=self.accountant) / budget.epsilon, 1e300) - 1.0
        value = float(self._delta(z))
        target = math.sqrt(-math.log(budget.delta))
        gap = target - math.sqrt(-math.log(value)) if value > 0 else -1.0
        # the comparison decides; the square root may round across the boundary
        return min(gap, 0.0) if value <= budget.delta else max(gap, 1e-15)

    def excess_epsilon(self, log_z: float) -> float:
        """ln of ε over the budget's, which is close to linear in ln z."""
        found = float(self._epsilon(math.exp(log_z)))
        return math.log(min(max(found / self.budget.epsilon, 1e-9), 1e9))

    def decided_by(self, z: float) -> str:
        """The accountant whose total is the smallest."""
        return self._epsilon(z).accountant

    def _epsilon(self, z: float) -> Bound:
        if z not in self._epsilons:
            self._epsilons[z] = total_epsilon(self.release(z), self.budget.delta, accountant=self.accountant)
        return self._epsilons[z]

    def _delta(self, z: float) -> Bound:
        if z not in self._deltas:
            self._deltas[z] = total_delta(self.release(z), self.budget.epsilon, accountant=self.accountant)
        return self._deltas[z]

    def first_that_meets(self, z: float, step: float) -> float:
        """A root may lie on either side: step up to the first multiplier that was seen to meet the budget."""
        while not self.meets(z):
            z *= 1.0 + step
            step *= 2.0 if step < 1e-14 else 8.0
        return z

    def meets(self, z: float) -> bool:
        budget = self.budget
        if (self.on_a_grid or budget.delta == 0) and self._epsilon(z) > budget.epsilon:  # the quicker of the two
            return False
        if self._delta(z) > budget.delta:
            return False
        # the two directions are discretised each by itself, and either may be asked for later
        return self._epsilon(z) <= budget.epsilon


def check_budget_adjacency(release: Release, budget: Budget) -> None:
    """Refuse a description whose stated adjacency is not the budget's."""
    if release.adjacency is not None and release.adjacency != budget.adjacency:
        raise AdjacencyMismatch(
            f"the budget counts {budget.adjacency!r} neighbours and {release!r} was measured under "
            f"{release.adjacency!r}: state one of them in both, adjacency={release.adjacency!r} of the budget, or "
            f"adjacency={budget.adjacency!r} of the description where its noise was measured so"
        )

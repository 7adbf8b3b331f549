"""One budget for a number of fits: what each of them may cost."""

from __future__ import annotations

from accounting import Budget, Gaussian, calibrate, epsilon
from accounting.checks import integer

__all__ = ["split_budget"]


def split_budget(budget: Budget, fits: int) -> Budget:
    """The budget of one of so many fits that together meet ``budget``.

    A fit of the estimators costs what one Gaussian release costs, so this is exact: noise grows with the square root of
    ``fits``. A search over m points in k folds makes m·k + 1, the refit among them.

    Raises
    ------
    ValueError, TypeError
        If ``budget`` has δ = 0, or ``fits`` is not a whole number of at least 1.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit.sklearn import split_budget
    >>> round(split_budget(Budget(1.0, 1e-6), 31).epsilon, 3)
    0.159
    """
    count = integer("fits", fits, at_least=1)
    if not isinstance(budget, Budget):
        raise TypeError(f"budget must be a Budget, got budget={budget!r}")
    if budget.delta == 0:
        raise ValueError("budget must have delta > 0, got delta=0")

    def one(z: float) -> Gaussian:
        return Gaussian(z, adjacency=budget.adjacency)

    z = calibrate(lambda z: count * one(z), budget)
    return Budget(epsilon(one(z), budget.delta), budget.delta, adjacency=budget.adjacency, unit=budget.unit)

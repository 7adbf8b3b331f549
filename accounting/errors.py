"""The errors and the warning that are the field's own; everything else is a ``ValueError`` or a ``TypeError``."""

from __future__ import annotations

__all__ = [
    "AdjacencyMismatch",
    "BudgetExceeded",
    "LedgerBehind",
    "LedgerCorrupted",
    "NotPrivateWarning",
    "UnsupportedRelease",
]


class AdjacencyMismatch(ValueError):
    """Two costs that were measured under different neighbouring relations (or units) met.

    A number under ``replace`` and one under ``add_remove`` bound different things; their sum bounds neither.

    Examples
    --------
    >>> from accounting import AdjacencyMismatch, Gaussian
    >>> try:
    ...     Gaussian(2.0, adjacency="replace") + Gaussian(2.0, adjacency="add_remove")
    ... except AdjacencyMismatch:
    ...     print("costs for different neighbours do not add up")
    costs for different neighbours do not add up
    """


class BudgetExceeded(RuntimeError):
    """A release would have passed the budget. Nothing was drawn and nothing was recorded.

    Examples
    --------
    >>> from accounting import Budget, BudgetExceeded, Ledger, PureDP
    >>> ledger = Ledger(Budget(1.0, 0.0))
    >>> try:
    ...     ledger.spend(PureDP(1.5), label="too much")
    ... except BudgetExceeded:
    ...     print(len(ledger.rows()))
    0
    """


class LedgerCorrupted(RuntimeError):
    """A stored ledger does not verify: a row was edited, lost or added outside the ledger.

    Examples
    --------
    >>> from accounting import Ledger, LedgerCorrupted
    >>> try:
    ...     Ledger.from_json(Ledger().to_json(), expected_head="0" * 64)
    ... except LedgerCorrupted:
    ...     print("this ledger does not contain the head that was noted")
    this ledger does not contain the head that was noted
    """


class LedgerBehind(LedgerCorrupted):
    """A ledger holds less than its witness has seen: an older copy was put in its place.

    Examples
    --------
    >>> from accounting import LedgerBehind, LedgerCorrupted
    >>> issubclass(LedgerBehind, LedgerCorrupted)
    True
    """


class UnsupportedRelease(TypeError):
    """An accountant has no proved bound for a description; the message names both.

    Examples
    --------
    >>> from accounting import ZCDP, UnsupportedRelease, gdp
    >>> try:
    ...     gdp(ZCDP(0.1))
    ... except UnsupportedRelease:
    ...     print("zCDP implies no Gaussian DP")
    zCDP implies no Gaussian DP
    """


class NotPrivateWarning(UserWarning):
    """An algorithm as published was made that is not private as its paper claims: it is for comparisons only."""

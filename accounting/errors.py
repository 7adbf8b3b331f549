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
    """


class BudgetExceeded(RuntimeError):
    """A release would have passed the budget. Nothing was drawn and nothing was recorded."""


class LedgerCorrupted(RuntimeError):
    """A stored ledger does not verify: a row was edited, lost or added outside the ledger."""


class LedgerBehind(LedgerCorrupted):
    """A ledger holds less than its witness has seen: an older copy was put in its place."""


class UnsupportedRelease(TypeError):
    """An accountant has no proved bound for a description; the message names both."""


class NotPrivateWarning(UserWarning):
    """An algorithm as published was made that is not private as its paper claims: it is for comparisons only."""

"""What the estimators warn of: rows that were cut, and fits that each spend a budget."""

from __future__ import annotations

import threading
import warnings

from accounting import Budget, Ledger

__all__ = ["EveryFitSpendsWarning", "Fits", "ShortenedRowsWarning", "warn_of_shortened"]


class ShortenedRowsWarning(UserWarning):
    """Most rows were longer than ``row_norm``: by a count that was released with noise, and paid for.

    Examples
    --------
    >>> from dpkit.sklearn import ShortenedRowsWarning
    >>> issubclass(ShortenedRowsWarning, UserWarning)
    True
    """


class EveryFitSpendsWarning(UserWarning):
    """Clones of one estimator were fitted several times, as in a search, with no ledger's budget to stop them.

    Examples
    --------
    >>> from dpkit.sklearn import EveryFitSpendsWarning
    >>> issubclass(EveryFitSpendsWarning, UserWarning)
    True
    """


class Fits:
    """How often an estimator and its clones were fitted, in this process."""

    def __init__(self) -> None:
        self._lock, self._count = threading.Lock(), 0

    def note(self, budget: Budget, ledger: Ledger | None, *, clone: bool) -> None:
        """Count a fit of a clone; warn at the second, unless a ledger holds all of them to a budget."""
        if not clone or (ledger is not None and ledger.budget is not None):
            return
        with self._lock:
            self._count += 1
            second = self._count == 2
        if second:
            warnings.warn(
                f"each fit of a search or cross-validation spends a budget of its own, {budget!r}; this is the second. "
                "Give the estimator a ledger with a budget for all of them, ledger=Ledger(budget), of which "
                "split_budget(budget, fits) is one fit's part; or choose hyperparameters by PrivateSearch",
                EveryFitSpendsWarning,
                stacklevel=5,
            )

    def __reduce__(self) -> tuple[type[Fits], tuple[()]]:
        return Fits, ()


def warn_of_shortened(share: float, deviation: float, row_norm: float) -> None:
    """Warn where a noisy share is above one half by three standard deviations."""
    if share - 3.0 * deviation > 0.5:
        warnings.warn(
            f"about {min(share, 1.0):.0%} of the rows were longer than row_norm={row_norm!r} and were shortened to it: "
            "scale features by public constants, so that an average row has length row_norm or less, or raise "
            "row_norm: d features of size about 1, as PrivateScaler makes them, need about row_norm=√d",
            ShortenedRowsWarning,
            stacklevel=5,
        )

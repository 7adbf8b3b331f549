"""What an estimator returns: a value, its standard error and intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from accounting.arrays import Array
from accounting.checks import fraction
from dpbandits.lab.evaluate.support import Support

__all__ = ["Estimate", "opened", "summed"]


@dataclass(frozen=True, eq=False)
class Estimate:
    """The value of a policy, estimated from a log. Computed from raw data: not private.

    Attributes
    ----------
    value : float
        The mean reward that the policy would have had.
    std_error : float
        Of the value. Rows of one person are not independent; where persons were given, it counts them as clusters.
    rows : int
        How many rows it rests on.
    effective_rows : float
        (Σw)²/Σw²: of how many equally weighted rows the weights are worth.
    method : str
        The estimator.
    terms : ndarray of shape (n,)
        Its value is the mean of these (for self-normalised weights, to first order).
    support : Support
        How much of the policy the log holds. Where its ``verdict`` is not "held", the value is wrong, however small its
        standard error: there was a UserWarning, and intervals are as wide as the rewards of the log leave it open.
    open : (float, float)
        By how much the value would move if the log held nothing of the policy, and what it lacks paid the smallest
        reward in the log, or the largest.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbandits import evaluate
    >>> evaluate.ips([1, 0, 1, 1], probabilities=[0.5, 0.5, 0.25, 0.5], target=[1, 1, 0.5, 0])
    ips: 1 ± 0.577 (standard error), 95 % interval [-0.132, 2.13], 4 rows worth 3.0
    """

    value: float
    std_error: float
    rows: int
    effective_rows: float
    method: str
    terms: Array = field(repr=False)
    support: Support = field(default=Support(), repr=False)
    open: tuple[float, float] = field(default=(0.0, 0.0), repr=False)

    def interval(self, confidence: float = 0.95, *, largest: tuple[float, float] | None = None) -> tuple[float, float]:
        """Where the value lies with probability ``confidence``.

        Parameters
        ----------
        confidence : float
            In (0, 1).
        largest : (float, float), optional
            Bounds on every term that are known without the data: (0, largest weight × largest reward) for ``ips``. With
            them the interval holds for every number of rows (the empirical Bernstein bound of Maurer & Pontil 2009,
            Theorem 4, at both ends); without, it is the normal one, which is too short where few rows carry the weight.

        Returns
        -------
        (low, high)
            Where the log does not hold all of the policy (``support``), it reaches from what the value would be if the
            missing part paid the smallest reward in the log to what it would be with the largest.
        """
        outside = 1 - fraction("confidence", confidence)
        if largest is None:
            from scipy.special import ndtri

            errors = float(ndtri(1 - outside / 2))
            return self._opened(self.value - errors * self.std_error, self.value + errors * self.std_error, errors)
        low, high = largest
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"largest must be two increasing finite numbers, got largest={largest!r}")
        if self.method == "snips":
            raise ValueError(
                "largest= needs an estimate that is a mean of terms, and snips is a ratio of two means: take ips or "
                "doubly_robust, or ask for interval(confidence) without largest="
            )
        if self.rows < 2:
            raise ValueError(f"largest= needs at least two rows, got {self.rows}")
        if self.terms.min() < low or self.terms.max() > high:
            raise ValueError(
                f"largest must bound every term, got terms in [{self.terms.min():g}, {self.terms.max():g}]"
            )
        log, n = math.log(4 / outside), self.rows
        reach = math.sqrt(2 * float(self.terms.var(ddof=1)) * log / n) + 7 * (high - low) * log / (3 * (n - 1))
        errors = math.sqrt(2 * log) + 7 * log / 3 / math.sqrt(n)
        return self._opened(max(low, self.value - reach), min(high, self.value + reach), errors)

    def _opened(self, low: float, high: float, errors: float) -> tuple[float, float]:
        """The ends, moved by what the log leaves open."""
        if self.support.verdict == "held":
            return low, high
        lost = 1.0 if self.support.verdict == "excess" else self.support.lost_at_most(errors)
        return low + min(0.0, lost * self.open[0]), high + max(0.0, lost * self.open[1])

    def __repr__(self) -> str:
        low, high = self.interval()
        return (
            f"{self.method}: {self.value:.3g} ± {self.std_error:.3g} (standard error), 95 % interval "
            f"[{low:.3g}, {high:.3g}], {self.rows:,} rows worth {self.effective_rows:,.1f}"
            + (f"\n  {self.support}" if self.support.verdict != "held" else "")
        )


def summed(
    method: str,
    terms: Array,
    weights: Array,
    value: float,
    persons: Any = None,
    support: Support = Support(),
    open: tuple[float, float] = (0.0, 0.0),
) -> Estimate:
    """The estimate whose error is that of the mean of ``terms``."""
    n = len(terms)
    off: Array = terms - value
    clusters = n
    if persons is not None:
        if np.shape(persons) != (n,):
            raise ValueError(f"persons must have one entry per row, {n}, got shape {np.shape(persons)}")
        codes = np.unique(np.asarray(persons), return_inverse=True)[1]
        off = np.bincount(codes, weights=off).astype(np.float64)
        clusters = len(off)
    # with one cluster there is nothing to compare
    error = math.sqrt(float((off**2).sum()) / n**2 * clusters / (clusters - 1)) if clusters > 1 else math.inf
    square = float((weights**2).sum())
    worth = float(weights.sum()) ** 2 / square if square else 0.0
    return Estimate(value, error, n, worth, method, terms, support, open)


def opened(support: Support, rewards: Array, value: float, counted: Any) -> tuple[float, float]:
    """How far off a value may be where the log lacks everything: any reward of it, minus what was counted instead."""
    low, high = float(rewards.min()), float(rewards.max())
    if support.verdict == "excess":
        return low - value, high - value
    return low - float(np.max(counted)), high - float(np.min(counted))

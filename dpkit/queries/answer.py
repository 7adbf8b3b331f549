"""What a query returns: the value, how far noise can have moved it, and what it cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from accounting import Budget, Release
from accounting.checks import fraction

__all__ = ["Answer"]

Interval = Callable[[float], tuple[Any, Any]]
_SHOWN = 20


@dataclass(frozen=True, eq=False)
class Answer:
    """A private answer; a function of what was released, to be printed, stored and published.

    Attributes
    ----------
    value : int, float or ndarray
        With one entry per key where there are ``keys``.
    cost : Release
        What was recorded in the ledger, if there was one.
    query : str
        What was asked.
    budget : Budget
        What it was allowed to cost, and for which unit.
    keys : tuple or None
        The groups, bins, ranks or candidates of the value's entries.
    noise_std : float, ndarray or None
        The standard deviation of the noise in the value, where it is known (for ratios to first order).
    raw : int, float, ndarray or None
        The value before it was cut to where it can be (counts to 0 and above), where that was done: without bias, for
        adding up.
    ranked : bool
        The keys are the answer, in order, and ``value`` only their places among what was asked about.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit import queries
    >>> answer = queries.count([4, 5, 6], budget=Budget(1e6, 0.0, adjacency="add_remove"))
    >>> answer.value, answer.interval(0.95)
    (3, (3, 3))
    >>> answer
    count: 3, 95 % interval [3, 3] (noise)
      costs DiscreteLaplace(noise_multiplier=1...e-06, shift=1, adjacency='add_remove'), counts one row
    """

    value: Any
    cost: Release
    query: str
    budget: Budget
    keys: tuple[Any, ...] | None = None
    noise_std: Any = None
    raw: Any = None
    noise_interval: Interval | None = field(default=None, repr=False)
    full_interval: Interval | None = field(default=None, repr=False)
    rows_bound: Callable[[float], Any] | None = field(default=None, repr=False)
    why_none: str = field(default="", repr=False)
    ranked: bool = field(default=False, repr=False)

    def interval(self, confidence: float = 0.95, *, sampling: bool = False) -> tuple[Any, Any]:
        """Where the answer without noise lies with probability ``confidence``, each entry for itself.

        Parameters
        ----------
        confidence : float
            In (0, 1).
        sampling : bool
            Count the sampling error too: the interval is then for the population of which the rows are a random sample.

        Returns
        -------
        (low, high)
            Numbers or arrays, as the value is. What was cut to bounds, or left out to bound contributions, counts as
            cut and left out: that bias is not in the interval.

        Raises
        ------
        ValueError
            If the query has no such interval; the message says what to ask instead.
        """
        level = fraction("confidence", confidence)
        found = self.full_interval if sampling else self.noise_interval
        if found is None:
            what = "with sampling error" if sampling else "for the noise"
            raise ValueError(f"{self.query} has no interval {what}: {self.why_none or 'ask for a mean or a quantile'}")
        return found(level)

    def rows_off(self, confidence: float = 0.95) -> Any:
        """By how many rows a choice is off at most, with probability ``confidence`` whatever the data are.

        For quantiles: |#{rows below the value} − q·n|, where rows that are equal to it, up to n·2⁻⁵⁰ of the width of
        the bounds, may count or not; for all levels together; among ``candidates`` how much more that is than for the
        best of them. For :func:`~dpkit.queries.top_k`: how many rows fewer a winner has than any candidate that it left
        out; for all winners together. For :func:`~dpkit.queries.private_bounds`: see there.

        Raises
        ------
        ValueError
            If the query makes no choice by rank or count: it has an ``interval``.
        """
        level = fraction("confidence", confidence)
        if self.rows_bound is None:
            raise ValueError(f"{self.query} chooses nothing by rank or count: ask for interval({confidence!r})")
        return self.rows_bound(level)

    def to_dict(self, confidence: float = 0.95) -> dict[str, Any]:
        """Everything that may be published, in types that JSON knows."""
        low, high = self.interval(confidence) if self.noise_interval is not None else (None, None)
        out = {
            "query": self.query,
            "value": self.value,
            "keys": self.keys,
            "noise_std": self.noise_std,
            "low": low,
            "high": high,
            "rows_off": None if self.rows_bound is None else self.rows_bound(fraction("confidence", confidence)),
            "confidence": confidence if low is not None or self.rows_bound is not None else None,
            "cost": repr(self.cost),
            "epsilon": self.budget.epsilon,
            "delta": self.budget.delta,
            "adjacency": self.budget.adjacency,
            "unit": self.budget.unit,
        }
        return {key: _plain(value) for key, value in out.items() if value is not None}

    def __repr__(self) -> str:
        spent = f"\n  costs {self.cost!r}, counts one {self.budget.unit}"
        if self.rows_bound is not None:
            off = math.ceil(float(np.max(self.rows_bound(0.95))))
            spent = f"\n  at most {off:,} rows off, with probability 95 %{spent}"
        low, high = self.interval(0.95) if self.noise_interval is not None else (None, None)
        if self.keys is None:
            interval = "" if low is None else f", 95 % interval [{_shown(low)}, {_shown(high)}] (noise)"
            return f"{self.query}: {_shown(self.value)}{interval}{spent}"
        lines = [f"{self.query}:" if low is None else f"{self.query}, with 95 % intervals (noise):"]
        width = max((len(str(key)) for key in self.keys[:_SHOWN]), default=0)
        for i, key in enumerate(self.keys[:_SHOWN]):
            shown = "" if self.value is None or self.ranked else _shown(self.value[i])
            interval = "" if low is None else f"  [{_shown(_entry(low, i))}, {_shown(_entry(high, i))}]"
            place = f"{i + 1}. " if self.ranked else ""
            lines.append(f"  {place}{key!s:<{width}}  {shown}{interval}".rstrip())
        if len(self.keys) > _SHOWN:
            lines.append(f"  … and {len(self.keys) - _SHOWN} more")
        return "\n".join(lines) + spent


def _entry(values: Any, i: int) -> Any:
    return values[i] if np.ndim(values) else values


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, (int, np.integer)) else f"{value:,.6g}"


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(entry) for entry in value]
    return value

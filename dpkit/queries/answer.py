"""What a query returns: the value, how far noise can have moved it, what it counts, and what it cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from accounting import Budget, PureDP, Release
from accounting.checks import fraction
from accounting.printed import written
from dpkit.queries._drawn import as_html, key_parts, parted, plotted, shown

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Answer"]

Interval = Callable[[float], tuple[Any, Any]]
_SHOWN = 20
_NEIGHBOURS = {"add_remove": "added or removed", "replace": "swapped for another", "zero_out": "emptied"}


@dataclass(frozen=True, eq=False)
class Answer:
    """A private answer; a function of what was released, to be printed, stored and published.

    Attributes
    ----------
    value : int, float, datetime64 or ndarray
        With one entry per key where there are ``keys``.
    cost : Release
        What was recorded in the ledger, if there was one.
    query : str
        What was asked.
    budget : Budget
        What it was allowed to cost, and for which unit.
    keys : tuple or None
        The groups, bins, ranks or candidates of the value's entries; of several columns, tuples.
    columns : tuple of str
        What the keys are called, each part of them by a name.
    uses : str
        How much of one unit is in the answer, "at most 3 rows of one person" say; empty where all is.
    noise_std : float, ndarray or None
        The standard deviation of the noise in the value, where it is known (for ratios to first order; of dates, in
        days).
    raw : int, float, ndarray or None
        The value before it was cut to where it can be (counts to 0 and above), where that was done: without bias, for
        adding up.
    limits : (low, high) or None
        Where the value would lie whatever the data are. An interval that reaches from one to the other says nothing.
    counted, counted_std : float or ndarray, float, or None
        Of a mean whose number of rows is private: that number with its noise, as it was released (with weights, their
        sum as shares of the largest), and the noise's standard deviation.
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
      costs ε = 1e+06 for one row, added or removed
    >>> answer.cost
    DiscreteLaplace(noise_multiplier=1...e-06, shift=1, adjacency='add_remove')
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
    columns: tuple[str, ...] = ("key",)
    uses: str = ""
    limits: tuple[Any, Any] | None = None
    off_by: str = field(default="rows", repr=False)
    counted: Any = field(default=None, repr=False)
    counted_std: float | None = field(default=None, repr=False)
    # by how many rows any value within the limits may be off; None where that depends on a private number of rows
    rows_at_most: Any = field(default=None, repr=False)

    def __getitem__(self, key: Any) -> Any:
        """The value of one key, ``answer["Linz"]``; of several columns, of one tuple."""
        if self.keys is None:
            raise TypeError(f"{self.query} has no keys: .value is its number")
        if self.ranked:
            raise TypeError(f"{self.query} names winners and has no value for each: .keys are the winners, in order")
        if key not in self.keys:
            raise KeyError(f"{key!r} is no key of {self.query}: .keys has all {len(self.keys)}")
        return self.value[self.keys.index(key)]

    # keys need not be numbers from 0 on, by which Python would go through the values otherwise
    __iter__ = None

    def interval(self, confidence: float = 0.95, *, sampling: bool = False) -> tuple[Any, Any]:
        """Where the answer without noise lies with probability ``confidence``, each entry for itself.

        Parameters
        ----------
        confidence : float
            In (0, 1).
        sampling : bool
            Of means: count the sampling error too. The interval is then for the population of which the rows are a
            random sample.

        Returns
        -------
        (low, high)
            Numbers or arrays, as the value is. What was cut to bounds, or left out to bound contributions (``uses``
            says how much is used, and :func:`~dpkit.queries.share_cut` estimates the rest), counts as cut and left
            out: that bias is not in the interval.

        Raises
        ------
        ValueError
            If the query has no such interval; the message says what to ask instead.
        """
        level = fraction("confidence", confidence)
        found = self.full_interval if sampling else self.noise_interval
        if found is None and sampling:
            alone = "" if self.noise_interval is None else f": interval({confidence!r}) counts the noise alone"
            raise ValueError(
                f"{self.query} has no interval with sampling error, which is offered for means only{alone}"
            )
        if found is None:
            why = self.why_none or "ask for a mean or a quantile"
            raise ValueError(f"{self.query} has no interval for the noise: {why}")
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

    def informative(self, confidence: float = 0.95) -> Any:
        """Whether the answer leaves anything out of what could be said without data; a bool, or one for each key.

        False for a mean of no rows, or of so few that the noise hides them: a function of what was released, which
        tells the one as little from the other as the answer does. A quantile says something by its interval, or by
        ``rows_off``, where that is less than any value would be off.
        """
        fraction("confidence", confidence)
        nothing: Any = []
        if self.limits is not None and self.noise_interval is not None:
            low, high = self.interval(confidence)
            nothing.append((low <= self.limits[0]) & (high >= self.limits[1]))
        if self.rows_at_most is not None:
            nothing.append(self.rows_off(confidence) >= self.rows_at_most)
        if not nothing:
            return True if self.keys is None else np.ones(len(self.keys), np.bool_)
        told = ~np.all(nothing, axis=0)
        return told if np.ndim(told) else bool(told)

    def to_dict(self, confidence: float = 0.95) -> dict[str, Any]:
        """Everything that may be published, in types that JSON knows."""
        fraction("confidence", confidence)
        low, high = self.interval(confidence) if self.noise_interval is not None else (None, None)
        out = {
            "query": self.query,
            "value": self.value,
            "keys": self.keys,
            "columns": self.columns if self.keys is not None else None,
            "noise_std": self.noise_std,
            "low": low,
            "high": high,
            "informative": None if self.limits is None and self.rows_at_most is None else self.informative(confidence),
            "rows_off": None if self.rows_bound is None else self.rows_off(confidence),
            "confidence": confidence if low is not None or self.rows_bound is not None else None,
            "uses": self.uses or None,
            "cost": repr(self.cost),
            "epsilon": self.budget.epsilon,
            "delta": self.budget.delta,
            "adjacency": self.budget.adjacency,
            "unit": self.budget.unit,
        }
        return {key: _plain(value) for key, value in out.items() if value is not None}

    def to_frame(self, confidence: float = 0.95) -> DataFrame:
        """A table of pandas with one row per key: the keys by ``columns``, ``value``, and ``low`` and ``high``.

        What was asked, what it counts and what it cost are in the frame's ``attrs``. A query without an interval has no
        ``low`` and ``high``, and one that chooses has ``rows_off``.
        """
        import pandas as pd

        fraction("confidence", confidence)
        columns: dict[str, Any] = {}
        keys = [()] if self.keys is None else [key if parted(self, key) else (key,) for key in self.keys]
        for place, name in enumerate(self.columns if self.keys is not None else ()):
            columns[name if name not in ("value", "low", "high") else f"{name} (key)"] = [key[place] for key in keys]
        if self.ranked:
            columns = {"place": np.arange(1, len(keys) + 1), **columns}
        else:
            columns["value"] = np.atleast_1d(np.asarray(self.value))
        if self.noise_interval is not None:
            low, high = self.interval(confidence)
            columns["low"], columns["high"] = np.atleast_1d(low), np.atleast_1d(high)
        if self.rows_bound is not None:
            columns["rows_off"] = np.broadcast_to(self.rows_off(confidence), len(keys))
        if self.limits is not None or self.rows_at_most is not None:
            columns["informative"] = np.atleast_1d(self.informative(confidence))
        frame = pd.DataFrame(columns)
        frame.attrs = {"query": self.query, "uses": self.uses, "cost": self.price, "confidence": confidence}
        return frame

    def plot(self, target: Any = None, *, confidence: float = 0.95) -> Any:
        """Draw the entries as points with their intervals (needs matplotlib).

        Parameters
        ----------
        target : path, matplotlib Axes or None
            An image file to write (the suffix is its format), axes to draw on, or by default a new figure.
        confidence : float
            Of the intervals.

        Returns
        -------
        matplotlib Axes, or the path
        """
        return written(plotted(self, target, confidence), target)

    @property
    def price(self) -> str:
        """The cost in the words of the budget: "ε = 0.5 for one person, added or removed"."""
        free = isinstance(self.cost, PureDP) and self.cost.epsilon == 0
        delta = f", δ = {self.budget.delta:g}" if self.budget.delta and not free else ""
        neighbours = _NEIGHBOURS.get(self.budget.adjacency, self.budget.adjacency)
        return f"ε = {0 if free else self.budget.epsilon:g}{delta} for one {self.budget.unit}, {neighbours}"

    def notes(self, confidence: float = 0.95) -> list[str]:
        """What to know of the answer, a sentence each."""
        fraction("confidence", confidence)
        percent = f"{100 * confidence:g} %"
        out = []
        if self.uses:
            out.append(f"counts {self.uses}; what was left out for that is not in the intervals")
        if self.rows_bound is not None:
            off = math.ceil(float(np.max(self.rows_off(confidence)))) if self.keys != () else 0
            few = "" if self.ranked else f": of fewer {self.off_by} than that it says nothing"
            out.append(f"at most {off:,} {self.off_by} off, with probability {percent}{few}")
        return [*out, f"costs {self.price}"]

    def _repr_html_(self) -> str:
        return as_html(self)

    def in_words(self, confidence: float = 0.95, *, most: int | None = None) -> str:
        """The answer as it is printed, with intervals of this confidence; at most so many of its numbers."""
        notes = "".join(f"\n  {note}" for note in self.notes(confidence))
        low, high = self.interval(confidence) if self.noise_interval is not None else (None, None)
        told, percent = self.informative(confidence), f"{100 * confidence:g} %"
        if self.keys is None:
            interval = "" if low is None else f", {percent} interval [{shown(low)}, {shown(high)}] (noise)"
            if not told:
                return f"{self.query}: no information{interval}{notes}"
            return f"{self.query}: {shown(self.value)}{interval}{notes}"
        lines = [f"{self.query}:" if low is None else f"{self.query}, with {percent} intervals (noise):"]
        names = [key_parts(self, key) for key in self.keys[:most]]
        widths = [max(map(len, column)) for column in zip(*names, strict=True)]
        for i, parts in enumerate(names):
            value = "" if self.value is None or self.ranked else shown(self.value[i])
            interval = "" if low is None else f"  [{shown(_entry(low, i))}, {shown(_entry(high, i))}]"
            place = f"{i + 1}. " if self.ranked else ""
            name = "  ".join(f"{part:<{width}}" for part, width in zip(parts, widths, strict=True))
            lines.append(f"  {place}{name}  {value if told[i] else 'no information'}{interval}".rstrip())
        if len(names) < len(self.keys):
            lines.append(f"  … and {len(self.keys) - len(names)} more")
        if not self.keys:
            lines.append("  no group is large enough to be shown")
        return "\n".join(lines) + notes

    def __repr__(self) -> str:
        return self.in_words(most=_SHOWN)


def _entry(values: Any, i: int) -> Any:
    return values[i] if np.ndim(values) else values


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [_plain(entry) for entry in value] if value.dtype.kind == "M" else value.tolist()
    if isinstance(value, np.datetime64):
        return str(value).removesuffix("T00:00:00")
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(entry) for entry in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)

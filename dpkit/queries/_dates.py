"""Dates on the line of numbers: a query counts them in days since 1970, and its answer is turned into dates again.

That is a change of unit and no more: the bounds are dates, values are cut to them, and sensitivity and cost are those
of the query on numbers. A column of dates is one of ``datetime64`` or of Python's dates, or of texts that are written
like 2026-01-31 or 2026-01-31 08:30, without a time zone. Answers are ``datetime64`` to the second; their ``noise_std``
is in days.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array
from dpkit.queries.answer import Answer

__all__ = ["DATE", "as_dates", "as_shown_dates", "dated_answer", "days", "is_dated"]

DATE = re.compile(r"\d{4}-\d{2}(-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?)?)?$")
_DAY = 86_400e6  # in microseconds


def is_dated(bounds: Any) -> bool:
    """Whether bounds, edges or candidates are dates: all of them, or a refusal."""
    if bounds is None or (isinstance(bounds, np.ndarray) and bounds.dtype.kind in "iufb"):
        return False
    try:
        kinds = {isinstance(one, (datetime.date, np.datetime64, str)) for one in bounds}
    except TypeError:
        return False
    if len(kinds) > 1:
        raise TypeError(f"dates and numbers must not be mixed, got {bounds!r}")
    return kinds == {True}


def as_dates(what: str, values: Any, *, private: bool = True) -> NDArray[np.datetime64]:
    """Dates to the microsecond; ``what`` they are called in a refusal. What is missing is NaT.

    ``private``: a refusal does not show the value.
    """
    array = np.asarray(values)
    if array.dtype.kind in "US":
        array = array.astype(object)
    if array.dtype.kind == "O":
        entries = array.tolist()
        known_as = {one: _plain(what, one, private) for one in dict.fromkeys(entries)}  # many rows have the same date
        array = np.array([known_as[one] for one in entries], dtype="datetime64[us]")
    if array.dtype.kind != "M":
        raise TypeError(f"{what} must hold dates, as its bounds are dates, got {what}.dtype={array.dtype}")
    found = array.astype("datetime64[us]")
    known = found[~np.isnat(found)]
    if known.size and (known.min() < np.datetime64("0001") or known.max() >= np.datetime64("10000")):
        raise ValueError(
            f"{what} must be of the years 1 to 9999, got others"
            + ("" if private else f", {known.min()} to {known.max()}")
        )
    return found


def _plain(what: str, one: Any, private: bool) -> Any:
    if one is None or (isinstance(one, float) and one != one) or type(one).__name__ in ("NaTType", "NAType"):
        return np.datetime64("NaT", "us")
    if isinstance(one, str):
        try:
            if not DATE.match(one):
                raise ValueError
            return np.datetime64(one, "us")
        except ValueError:
            told = "a text that is not" if private else f"{one!r} (a number goes without quotes)"
            raise ValueError(f"{what} must be written like 2026-01-31 or 2026-01-31 08:30, got {told}") from None
    if getattr(one, "tzinfo", None) is not None:
        raise ValueError(f"{what} must not have a time zone: convert it to one time, and drop the zone")
    if isinstance(one, (datetime.date, np.datetime64)):
        return np.datetime64(one).astype("datetime64[us]")
    raise TypeError(f"{what} must hold dates, as its bounds are dates, got {type(one).__name__}")


def days(what: str, values: Any) -> Array:
    """Days since 1970, of an array of dates or of a sequence that somebody stated; NaN for what is missing."""
    stated = not isinstance(values, np.ndarray)
    found = as_dates(what, list(values) if stated else values, private=not stated)
    return np.where(np.isnat(found), np.nan, found.astype(np.int64) / _DAY)


def as_shown_dates(number: Any) -> Any:
    """Days since 1970 as dates again, to the second."""
    found = np.rint(np.asarray(number, np.float64) * 86_400).astype(np.int64).astype("datetime64[s]")
    return found if found.ndim else found[()]


def dated_answer(answer: Answer) -> Answer:
    """The same answer in dates."""

    def both(level: float, interval: Any) -> tuple[Any, Any]:
        low, high = interval(level)
        return as_shown_dates(low), as_shown_dates(high)

    noise, full = answer.noise_interval, answer.full_interval
    return replace(
        answer,
        value=as_shown_dates(answer.value),
        noise_interval=None if noise is None else lambda level: both(level, noise),
        full_interval=None if full is None else lambda level: both(level, full),
        limits=None if answer.limits is None else both(0.0, lambda _: answer.limits),
    )

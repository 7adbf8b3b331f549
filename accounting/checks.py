"""Argument checks shared by the three packages: each message names the parameter, its value and the bound."""

from __future__ import annotations

import math
import numbers
from typing import SupportsFloat, TypeVar

__all__ = ["choice", "fraction", "integer", "ledger_or_none", "nonnegative", "positive"]

T = TypeVar("T")


def _number(name: str, value: SupportsFloat) -> float:
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{name} must be a number, got {name}={value!r}")
    try:
        number = float(value)
    except TypeError:
        raise TypeError(f"{name} must be a number, got {name}={value!r}") from None
    except OverflowError:
        raise ValueError(f"{name} must be a number that a float holds, got one above 1e308") from None
    if math.isnan(number):
        raise ValueError(f"{name} must be a number, got {name}=nan")
    return number


def positive(name: str, value: SupportsFloat, *, finite: bool = True) -> float:
    """``value`` as a float, if it is > 0 (and finite unless said otherwise)."""
    number = _number(name, value)
    if number <= 0 or (finite and math.isinf(number)):
        bound = "positive and finite" if finite else "positive"
        raise ValueError(f"{name} must be {bound}, got {name}={value!r}")
    return number


def nonnegative(name: str, value: SupportsFloat) -> float:
    """``value`` as a float, if it is >= 0 and finite."""
    number = _number(name, value)
    if number < 0 or math.isinf(number):
        raise ValueError(f"{name} must be nonnegative and finite, got {name}={value!r}")
    return number


def fraction(name: str, value: SupportsFloat, *, include_zero: bool = False, include_one: bool = False) -> float:
    """``value`` as a float, if it lies between 0 and 1 (end points only where they are included)."""
    number = _number(name, value)
    low = number >= 0 if include_zero else number > 0
    high = number <= 1 if include_one else number < 1
    if not (low and high):
        interval = f"{'[' if include_zero else '('}0, 1{']' if include_one else ')'}"
        raise ValueError(f"{name} must lie in {interval}, got {name}={value!r}")
    return number


def integer(name: str, value: object, *, at_least: int, at_most: int | None = None) -> int:
    """``value`` as an int, if it is a whole number (an int or an integral float) from ``at_least`` to ``at_most``."""
    whole = isinstance(value, numbers.Integral) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not whole:
        raise TypeError(f"{name} must be a whole number, got {name}={value!r}")
    number = int(value)  # type: ignore[call-overload]
    if number < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {name}={value!r}")
    if at_most is not None and number > at_most:
        raise ValueError(f"{name} must be at most {at_most}, got {name}={value!r}")
    return int(number)


def choice(name: str, value: T, *among: T) -> T:
    """``value``, which must be one of these."""
    if value not in among:
        *others, last = map(repr, among)
        first = ", ".join(others)
        listed = f"one of {first}, {last}" if len(others) > 2 else f"{first} or {last}"
        raise ValueError(f"{name} must be {listed}, got {name}={value!r}")
    return value


def ledger_or_none(ledger: T) -> T:
    """``ledger``, if it is None or can be spent from: a path cannot."""
    if ledger is not None and not hasattr(ledger, "spend"):
        raise TypeError(
            f"ledger must be a Ledger or None, got ledger={ledger!r}: Ledger.create(path, budget) makes one in a file, "
            "and Ledger.open(path) opens it"
        )
    return ledger

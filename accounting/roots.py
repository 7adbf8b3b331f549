"""Roots of one variable, without loading ``scipy.optimize``, which takes longer than most answers."""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["root_between"]

_LEAST = 2.0**-50


def root_between(
    function: Callable[[float], float], low: float, high: float, *, absolute: float, relative: float = _LEAST
) -> float:
    """A point at most ``absolute`` + ``relative``·|x| from where ``function`` changes its sign in [low, high].

    Brent's method (1973, chapter 4): inverse quadratic interpolation or a secant where they shrink the bracket fast
    enough, else bisection.

    Raises
    ------
    ValueError
        If the function has the same sign at both ends.

    Examples
    --------
    >>> round(root_between(lambda x: x * x - 2, 0.0, 2.0, absolute=1e-15), 12)
    1.414213562373
    """
    relative = max(relative, _LEAST)
    # b is the best point, c one on the other side of the root, a the best point before
    a, b = low, high
    at_a, at_b = function(a), function(b)
    if at_a == 0:
        return a
    if at_b != 0 and (at_a > 0) == (at_b > 0):
        raise ValueError(f"the function has one sign at both ends: {at_a!r} at {low!r}, {at_b!r} at {high!r}")
    c, at_c = a, at_a
    step = before = b - a
    for _ in range(500):
        if (at_b > 0) == (at_c > 0):
            c, at_c = a, at_a
            step = before = b - a
        if abs(at_c) < abs(at_b):
            a, b, c = b, c, b
            at_a, at_b, at_c = at_b, at_c, at_b
        tolerance = (absolute + relative * abs(b)) / 2
        half = (c - b) / 2
        if abs(half) <= tolerance or at_b == 0:
            break
        interpolated = math.inf
        if abs(before) >= tolerance and abs(at_a) > abs(at_b):
            s = at_b / at_a
            if a == c:
                p, q = 2 * half * s, 1 - s
            else:
                t, r = at_a / at_c, at_b / at_c
                p, q = s * (2 * half * t * (t - r) - (b - a) * (r - 1)), (t - 1) * (r - 1) * (s - 1)
            p, q = (p, -q) if p > 0 else (-p, q)
            if 2 * p < min(3 * half * q - abs(tolerance * q), abs(before * q)):
                interpolated = p / q
        before, step = (step, interpolated) if math.isfinite(interpolated) else (half, half)
        a, at_a = b, at_b
        b += step if abs(step) > tolerance else math.copysign(tolerance, half)
        at_b = function(b)
    return b

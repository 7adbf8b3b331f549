"""Decisions about whole arrays of uniform reals in double precision, each with a bound on its error.

A word of 64 random bits gives the leading bits of a uniform real U. Each function below returns values together with
what the error of double precision leaves open; callers settle that part in ``_exact``. The bounds assume that
``numpy.log`` and ``math.log`` are right within 4 units in the last place and ``numpy.exp`` and ``math.exp`` within an
absolute 2⁻⁴¹. A few values are drawn one by one on Python's floats, by the same decisions on the same bounds: an array
of one costs six times as much.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from accounting.checks import positive
from dpkit.samplers._exact import LazyUniform, Offset, below_exponential, floor_log, random_word, random_words

__all__ = [
    "BLOCK",
    "FEW",
    "bernoulli_exp_block",
    "check_scale",
    "half_step",
    "log_block",
    "log_one",
    "signed",
    "signed_floor_log",
    "signed_floor_log_one",
]

BLOCK = 1 << 13  # values per vector operation: small enough for the processor's cache

FEW = 4  # up to so many values are faster one by one

# Of −ln U + c in double precision, relative to 1 + its size: the logarithm (4·2⁻⁵²), its argument and four roundings.
LOG_ERROR = 2.0**-49
# Of U − exp(−x), absolute, where x carries a relative error of at most 2⁻⁴⁸.
EXP_ERROR = 2.0**-40


def check_scale(name: str, value: float) -> float:
    """``value`` as a float, if the error bounds above settle almost every decision at this scale."""
    scale = positive(name, value)
    if not 2.0**-40 <= scale <= 2.0**40:
        raise ValueError(f"{name} must lie in [2**-40, 2**40], got {name}={value!r}")
    return scale


def log_block(words: NDArray[np.uint64], offset: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """offset − ln U, and a bound on its error, where U ∈ [u, u + 1]·2⁻⁶³ for the upper 63 bits u of each word."""
    u: NDArray[np.float64] = (words >> np.uint64(1)).view(np.int64).astype(np.float64)
    u += 0.5
    y = np.log(u * 2.0**-63)
    np.subtract(offset, y, out=y)
    # 1/(u + ½) is more than half the width of the interval of ln U, which is infinite for u = 0
    error = np.reciprocal(u, out=u)
    error += LOG_ERROR * y
    error += LOG_ERROR
    error[error > 1.5] = np.inf
    return y, error


def log_one(word: int, offset: float) -> tuple[float, float]:
    """What :func:`log_block` says of one word, with the same error bound and its derivation."""
    u = (word >> 1) + 0.5
    y = offset - math.log(u * 2.0**-63)
    error = 1 / u + LOG_ERROR * y + LOG_ERROR
    return y, error if error <= 1.5 else math.inf


def signed(magnitude: NDArray[np.int64], words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """``magnitude`` with the sign that the last bit of each word says."""
    sign = (words & np.uint64(1)).view(np.int64)
    return (magnitude ^ -sign) + sign  # the two's complement where the bit is set


def signed_floor_log(
    t: float, offset: float, exact_offset: Offset, count: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """±⌊t·(c − ln U)⌋ for ``count`` uniforms U and random signs, exactly for the real c = exact_offset(t) ≈ offset."""
    words = random_words(rng, count)
    y, error = log_block(words, offset)
    low, open_ = floor_between(t, y, error)
    magnitude = low.astype(np.int64)
    for i in np.flatnonzero(open_):
        magnitude[i] = floor_log(LazyUniform(int(words[i] >> np.uint64(1)), 63, rng), Fraction(t), exact_offset)
    return signed(magnitude, words)


def signed_floor_log_one(t: float, offset: float, exact_offset: Offset, rng: np.random.Generator) -> int:
    """One value of :func:`signed_floor_log`."""
    word = random_word(rng)
    y, error = log_one(word, offset)
    low = max(math.floor(t * (y - error)), 0) if error < math.inf else -1
    if low != (math.floor(t * (y + error)) if error < math.inf else 0):
        low = floor_log(LazyUniform(word >> 1, 63, rng), Fraction(t), exact_offset)
    return -low if word & 1 else low


def floor_between(
    t: float, y: NDArray[np.float64], error: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """⌊t·(y − error)⌋, and where it is not the floor of all of t·(y ± error), for a y ≥ 0. Overwrites ``error``."""
    low = np.subtract(y, error)
    low *= t
    np.maximum(np.floor(low, out=low), 0.0, out=low)
    error += y
    error *= t
    np.floor(error, out=error)
    return low, low != error


def half_step(t: Decimal) -> Decimal:
    """The offset that turns the floor into rounding to nearest: t·(1/(2t) − ln U) = −t·ln U + ½."""
    return 1 / (2 * t)


def bernoulli_exp_block(
    x: NDArray[np.float64], exact: Callable[[int], Fraction], rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Bernoulli(exp(−x)) for the rational exponents that ``exact(i)`` gives and ``x`` approximates."""
    words = random_words(rng, x.size)
    difference = excess(words, x)
    result = difference < 0
    for i in np.flatnonzero(np.abs(difference, out=difference) <= EXP_ERROR):
        result[i] = below_exponential(LazyUniform(int(words[i]), 64, rng), exact(int(i)))
    return result


def excess(words: NDArray[np.uint64], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """U − exp(−x) within ``EXP_ERROR``."""
    difference: NDArray[np.float64] = (words >> np.uint64(1)).view(np.int64).astype(np.float64)
    difference *= 2.0**-63
    difference -= np.exp(-x)
    return difference

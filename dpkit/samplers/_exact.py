"""Decisions about uniform real numbers, settled with as many random bits and digits as they need.

The samplers of this package decide almost everything in double precision, with a bound on the error of each decision
(``_filtered``). Where the bound does not settle it, the decision comes here: the random bits already drawn are the
first binary digits of a uniform real U, more are drawn as needed, and logarithms and exponentials are evaluated by
``decimal``, whose results are correctly rounded, until both ends of every interval agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_FLOOR, Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpkit.randomness.generator import SecureGenerator

__all__ = [
    "LazyUniform",
    "Offset",
    "below_exponential",
    "decimal_context",
    "floor_log",
    "random_word",
    "random_words",
    "rounded_half_normal",
    "rounding_slack",
]

Offset = Callable[[Decimal], Decimal]
# generators whose raw numbers are 64 bits
_OF_64_BITS = (np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64)


def random_words(rng: np.random.Generator, count: int) -> NDArray[np.uint64]:
    """``count`` words of 64 random bits, perhaps in an array that cannot be written."""
    if isinstance(rng, SecureGenerator):
        return np.frombuffer(rng.bytes(8 * count), np.uint64)  # less than half the time of ``integers``
    words: NDArray[np.uint64]
    if type(rng) is np.random.Generator and isinstance(rng.bit_generator, _OF_64_BITS):
        words = rng.bit_generator.random_raw(count)  # the words of ``integers``, in a tenth of its time for a few
    else:
        words = rng.integers(0, 2**64 - 1, size=count, dtype=np.uint64, endpoint=True)
    return words


def random_word(rng: np.random.Generator) -> int:
    """One word of 64 random bits, as a number."""
    if isinstance(rng, SecureGenerator):
        return int.from_bytes(rng.bytes(8), "little")
    return int(random_words(rng, 1)[0])


class LazyUniform:
    """A uniform real in [0, 1), known to lie in [numerator, numerator + 1]·2^−bits; more bits are drawn on demand."""

    def __init__(self, numerator: int, bits: int, rng: np.random.Generator) -> None:
        self.numerator = numerator
        self.bits = bits
        self._rng = rng

    def extend(self) -> None:
        """Draw 64 more bits."""
        self.numerator = (self.numerator << 64) | int(random_words(self._rng, 1)[0])
        self.bits += 64

    def minus_log(self) -> tuple[Decimal, Decimal]:
        """Both ends of −ln U, rounded in the current decimal context (the upper one is infinite until a bit is set)."""
        whole = Decimal(2**self.bits)
        return -(Decimal(self.numerator + 1) / whole).ln(), -(Decimal(self.numerator) / whole).ln()


def decimal_context(digits: int, size: Fraction) -> Context:
    """A context with ``digits`` digits behind the decimal point for numbers of this size."""
    return Context(prec=digits + len(str(math.ceil(size))), Emin=-(10**15), Emax=10**15)


def rounding_slack(digits: int, size: Decimal) -> Decimal:
    """More than the absolute error of ten correctly rounded operations on numbers up to ``size``."""
    return (1 + size) * Decimal(10) ** (3 - digits)


def below_exponential(u: LazyUniform, x: Fraction) -> bool:
    """Whether U < exp(−x), for a rational x ≥ 0."""
    if x == 0:
        return True
    digits = 40
    while True:
        with localcontext(decimal_context(digits, x)):
            value = Decimal(x.numerator) / Decimal(x.denominator)
            low, high = u.minus_log()
            slack = rounding_slack(digits, low)
            if low - slack > value:
                return True
            if high + slack < value:
                return False
        u.extend()
        digits += 20


def floor_log(u: LazyUniform, scale: Fraction, offset: Offset) -> int:
    """⌊t·(offset(t) − ln U)⌋ with t = ``scale``."""
    digits = 40
    while True:
        with localcontext(decimal_context(digits, scale)):
            t = Decimal(scale.numerator) / Decimal(scale.denominator)
            low, high = u.minus_log()
            if high.is_finite():
                shift = offset(t)
                slack = (1 + t) * rounding_slack(digits, low + shift)
                first = int((t * (shift + low) - slack).to_integral_value(ROUND_FLOOR))
                last = int((t * (shift + high) + slack).to_integral_value(ROUND_FLOOR))
                if first == last:
                    return first
        u.extend()
        digits += 20


def rounded_half_normal(u: LazyUniform, v: LazyUniform, sigma: Fraction, offset: Offset) -> int | None:
    """⌊σ·E + ½⌋ with E = −ln U if V < exp(−(E − 1)²/2), else None: one trial for a rounded half-normal."""
    digits = 40
    while True:
        with localcontext(decimal_context(digits, Fraction(1))):
            low, high = u.minus_log()
            low_v, high_v = v.minus_log()
            slack = rounding_slack(digits, low * low + low_v)
            if high.is_finite():
                ends = sorted(((low - 1) ** 2 / 2, (high - 1) ** 2 / 2))
                if low < 1 < high:
                    ends[0] = Decimal(0)
                if ends[1] + slack < low_v:
                    return floor_log(u, sigma, offset)
                if ends[0] - slack > high_v:
                    return None
        u.extend()
        v.extend()
        digits += 20

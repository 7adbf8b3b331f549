"""Plain transcriptions of samplers, and the law of a sampler by all strings of bits up to a length.

* Algorithms 1 to 3 of Canonne, Kamath & Steinke, "The Discrete Gaussian for Differential Privacy" (arXiv:2004.00010),
  in the order in which SampCert proves them (de Medeiros et al., arXiv:2412.01671), on random bits and whole numbers.
* What a word of 64 bits means to this package's samplers, which take it for the leading digits of a uniform real: in
  extended precision on whole arrays, and with 60 digits where that leaves anything open.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np

# ---------------------------------------------------------------------------------------------- single random bits


class OutOfBits(Exception):
    """A program asks for more bits than there are."""


class Bits:
    """Given bits, one after the other."""

    def __init__(self, bits: list[int]) -> None:
        self._bits = iter(bits)

    def __call__(self) -> int:
        for bit in self._bits:
            return bit
        raise OutOfBits


def uniform_below(n: int, bit: Callable[[], int]) -> int:
    """Of 0, …, n − 1, by rejection from the next power of two."""
    while True:
        value = 0
        for _ in range((n - 1).bit_length()):
            value = 2 * value + bit()
        if value < n:
            return value


def bernoulli(p: Fraction, bit: Callable[[], int]) -> bool:
    return uniform_below(p.denominator, bit) < p.numerator


def bernoulli_exp(gamma: Fraction, bit: Callable[[], int]) -> bool:
    """Algorithm 1: True with probability exp(−γ)."""
    if gamma > 1:
        for _ in range(math.floor(gamma)):
            if not bernoulli_exp(Fraction(1), bit):
                return False
        return bernoulli_exp(gamma - math.floor(gamma), bit)
    k = 1
    while bernoulli(gamma / k, bit):
        k += 1
    return k % 2 == 1


def discrete_laplace(scale: Fraction, bit: Callable[[], int]) -> int:
    """Algorithm 2: P(k) ∝ exp(−|k|/scale)."""
    t, s = scale.numerator, scale.denominator
    while True:
        u = uniform_below(t, bit)
        if not bernoulli_exp(Fraction(u, t), bit):
            continue
        v = 0
        while bernoulli_exp(Fraction(1), bit):
            v += 1
        magnitude = (u + t * v) // s
        negative = bernoulli(Fraction(1, 2), bit)
        if not (negative and magnitude == 0):
            return -magnitude if negative else magnitude


def discrete_gaussian(variance: Fraction, bit: Callable[[], int]) -> int:
    """Algorithm 3: P(k) ∝ exp(−k²/(2·variance))."""
    t = math.isqrt(math.floor(variance)) + 1
    while True:
        y = discrete_laplace(Fraction(t), bit)
        if bernoulli_exp((abs(y) - variance / t) ** 2 / (2 * variance), bit):
            return y


def law_by_bits(program: Callable[[Callable[[], int]], Any], depth: int) -> tuple[dict[Any, Fraction], Fraction]:
    """The probability of each output that is certain after at most ``depth`` bits, and that of all that is open."""
    found: dict[Any, Fraction] = {}
    open_, waiting = Fraction(0), [[]]
    while waiting:
        bits: list[int] = waiting.pop()
        try:
            output = program(Bits(bits))
        except OutOfBits:
            if len(bits) < depth:
                waiting += [[*bits, 0], [*bits, 1]]
            else:
                open_ += Fraction(1, 2**depth)
            continue
        found[output] = found.get(output, Fraction(0)) + Fraction(1, 2 ** len(bits))
    return found, open_


# ------------------------------------------------------------------------------------------------- words of 64 bits


class Words(np.random.Generator):
    """A generator whose words are given; then it repeats ``further``, as the rest of the digits of every uniform."""

    def __init__(self, *words: Any, further: int = 0) -> None:
        super().__init__(np.random.PCG64(0))
        self._given = [np.asarray(part, np.uint64) for part in words]
        self._further = further

    def integers(self, low: Any, high: Any = None, size: Any = None, dtype: Any = None, endpoint: Any = False) -> Any:
        if self._given and self._given[0].size == size:
            return self._given.pop(0).copy()
        assert not self._given or size == 1  # in the middle of blocks
        return np.full(size, self._further, np.uint64)


class Logged(np.random.Generator):
    """A seeded generator that keeps the words that were asked for."""

    def __init__(self, seed: int) -> None:
        super().__init__(np.random.PCG64(seed))
        self._asked: list[Any] = []

    def integers(self, low: Any, high: Any = None, size: Any = None, dtype: Any = None, endpoint: Any = False) -> Any:
        words = self.bit_generator.random_raw(size)
        self._asked.append(words.copy())
        return words

    def blocks(self) -> list[Any]:
        """The words of whole arrays; single ones are further digits of one uniform."""
        return [words for words in self._asked if words.size > 1]


DIGITS = 60


def _log_uniform(words: Any) -> tuple[Any, Any]:
    """−ln U in extended precision, U the real whose first 63 digits a word has, and a bound on its error."""
    u = (words >> np.uint64(1)).astype(np.longdouble) + np.longdouble(0.5)
    y = -np.log(u / np.longdouble(2) ** 63)
    return y, 1 / u + 16 * np.finfo(np.longdouble).eps * (1 + y)


def scaled_magnitudes(words: Any, scale: float, offset: Callable[[Any], Any]) -> tuple[Any, Any]:
    """⌊scale·(offset(scale) − ln U)⌋ of each word, decided with 60 digits where extended precision does not.

    And which of them 63 digits of U leave open, between this value and the next: a word in 10⁷ at the largest scales.
    """
    y, error = _log_uniform(words)
    with mpmath.workdps(DIGITS):
        shift = offset(mpmath.mpf(scale))
        # a number of 64 bits is a sum of two of 53
        high = float(shift)
        y = y + np.longdouble(high) + np.longdouble(float(shift - high))
        error = error + 16 * np.finfo(np.longdouble).eps * (1 + abs(y))
        low = np.floor(np.longdouble(scale) * (y - error))
        out, open_ = low.astype(np.int64), np.zeros(low.shape, np.bool_)
        for i in np.flatnonzero(low != np.floor(np.longdouble(scale) * (y + error))):
            u = int(words[i]) >> 1
            ends = [int(mpmath.floor(scale * (shift - mpmath.log(mpmath.mpf(n) / 2**63)))) for n in (u + 1, u)]
            assert ends[1] - ends[0] <= 1
            out[i], open_[i] = ends[0], ends[0] != ends[1]
    return out, open_


def below_exponential(words: Any, exponents: Any, exact: Callable[[int], Fraction]) -> Any:
    """Whether U < exp(−x), all 64 bits of a word being digits of U."""
    u = words.astype(np.longdouble) / np.longdouble(2) ** 64
    difference = u - np.exp(-exponents)
    out = difference < 0
    for i in np.flatnonzero(abs(difference) <= 1e-15):
        x = exact(int(i))
        with mpmath.workdps(DIGITS):
            edge = mpmath.exp(-mpmath.mpf(x.numerator) / x.denominator) * 2**64
            assert not int(words[i]) <= edge <= int(words[i]) + 1 or x == 0
            out[i] = int(words[i]) < edge
    return out


def laplace_of_words(words: Any, scale: float, offset: Callable[[Any], Any]) -> tuple[Any, Any]:
    """With the sign that a word's last bit says; and which of them are open, by one towards the outside."""
    magnitudes, open_ = scaled_magnitudes(words, scale, offset)
    signs = np.where(words & np.uint64(1), -1, 1)
    return signs * magnitudes, signs * open_


def share_zero(t: Any) -> Any:
    """ln(2/(1 + q)), q = exp(−1/t): by which 0 has half of its mass under either sign."""
    return mpmath.log(2 / (1 + mpmath.exp(-1 / t)))


def gaussian_of_words(sigma: float, proposals: Any, heights: Any) -> tuple[Any, Any]:
    """Algorithm 3 on two words for each trial: what is kept, in order, and what of it is open."""
    variance, t = Fraction(sigma) ** 2, math.floor(sigma) + 1
    y, open_ = laplace_of_words(proposals, float(t), share_zero)
    centre = variance / t

    def exact(i: int) -> Fraction:
        return (abs(int(y[i])) - centre) ** 2 / (2 * variance)

    high = float(centre)
    x = (abs(y).astype(np.longdouble) - np.longdouble(high)) - np.longdouble(float(centre - Fraction(high)))
    kept = below_exponential(heights, x * x / (2 * np.longdouble(sigma) ** 2), exact)
    return y[kept], open_[kept]

"""Which of many weights is the largest once noise is added to each: exactly, with the law of real-valued noise.

Candidate i has the weight w_i + ln m_i with a rational w_i and a whole m_i ≥ 1, and noise from a uniform U: Gumbel
noise −ln(−ln U), exponential noise −ln U, or that with a random sign. With Gumbel noise the largest is i with
probability ∝ m_i·exp(w_i), which is the exponential mechanism over classes of m_i equal outcomes each.

Why the winner is exact. A word of random bits gives the leading bits of U, and the noisy weight is computed from them
in double precision. Where E = −ln U lies in [2⁻³⁵, 30], the errors of E and of −ln E are below 2⁻¹⁵, and so is that of
the weight for every candidate that can matter (weights are relative to the best, so one more than 2¹⁰ below it is
beyond any such noise). A leader by ``WINDOW`` = 2⁻¹⁰ has therefore won whatever its further bits are. Candidates closer
than that to the leader (one run in a thousand), and those whose E is outside that range (one in 10¹⁰), are compared
again by ``_exact``'s rules, with further random bits and digits, until their intervals are disjoint. The float path
decides only where its margin proves the answer, so the law is that of the reals.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpkit.samplers._exact import LazyUniform, decimal_context, random_word, random_words, rounding_slack

__all__ = ["FEW", "Noise", "NoisyOrder", "largest_of_few"]

Noise = Literal["gumbel", "exponential", "laplace"]
# m and w of a candidate: m·exp(w) is its weight; m is computed in the current decimal context
Exact = Callable[[], tuple[int | Decimal, Fraction]]

FEW = 40  # up to so many candidates are faster one by one
# Two noisy weights closer than this are compared exactly.
WINDOW = 2.0**-10
SMALLEST, LARGEST = 2.0**-35, 30.0


class NoisyOrder:
    """Add noise to candidates, block by block; then ask for the largest ``top`` of them.

    Examples
    --------
    >>> import numpy as np
    >>> from fractions import Fraction
    >>> from dpkit import randomness
    >>> from dpkit.samplers.noisy_order import NoisyOrder
    >>> order = NoisyOrder("gumbel", randomness.secure(), top=2)
    >>> weights = [0.0, -1e3, -2e3]
    >>> order.add(np.array(weights), lambda i: Fraction(weights[i]))
    >>> order.largest()
    [0, 1]
    """

    def __init__(self, noise: Noise, rng: np.random.Generator, *, top: int = 1) -> None:
        self._noise: Noise = noise
        self._rng = rng
        self._top = top
        self._count = 0
        self._leaders = np.empty(0)  # the noisy weights of the ``top`` largest so far
        self._near: list[_Candidate] = []

    @property
    def count(self) -> int:
        """How many candidates were added."""
        return self._count

    def add(
        self,
        weights: NDArray[np.float64],
        exact: Callable[[int], Fraction],
        sizes: NDArray[np.int64] | None = None,
    ) -> None:
        """Add candidates of the ``weights`` ≤ 0, which ``exact`` gives as fractions, and ``sizes`` m_i (by default 1).

        −inf is a candidate that is never chosen.
        """
        words = random_words(self._rng, weights.size)
        noisy, doubtful = _noise_of(words, self._noise)
        noisy += weights if sizes is None else weights + np.log(sizes)
        noisy[doubtful] = -math.inf
        if self._top == 1:
            leader = float(noisy.max())
            self._leaders = np.array([max(leader, *self._leaders)]) if self._leaders.size else np.array([leader])
        else:
            self._leaders = np.sort(np.concatenate([self._leaders, noisy]))[-self._top :]
        floor = self._leaders[0] - WINDOW if self._count + weights.size >= self._top else -math.inf
        near = np.flatnonzero((noisy >= floor) & (weights > -math.inf))
        if doubtful.size:
            near = np.union1d(near, doubtful[weights[doubtful] > -math.inf])
        for i in near.tolist():
            said: Exact = partial(_said, 1 if sizes is None else int(sizes[i]), exact, i)
            self._near.append(_Candidate(self._count + i, float(noisy[i]), int(words[i]), said, self._rng))
        self._count += weights.size

    def surely_below(self, log_size: float, exact: Exact) -> bool:
        """Add all of a class at once, of total weight at most exp(``log_size``); whether it stays below the leader.

        The largest of a class with Gumbel noise has the law of one candidate of their total weight, so one draw tells
        (and says nothing about which of them it is). Where it does not, the class is a candidate, of the logarithmic
        weight that ``exact`` gives.
        """
        word = random_word(self._rng)
        noise, doubtful = _noise_of(np.array([word], np.uint64), "gumbel")
        if not doubtful.size and float(noise[0]) + log_size < self._leaders[0] - WINDOW:
            return True
        self._near.append(_Candidate(-1, -math.inf, word, exact, self._rng))
        return False

    def largest(self) -> list[int]:
        """The indices of the largest noisy weights, in order; −1 for a class."""
        left = self._near
        found: list[int] = []
        while left and len(found) < self._top:
            floor = max(candidate.noisy for candidate in left) - WINDOW
            close = [c for c in left if c.noisy == -math.inf or c.noisy >= floor]
            winner = close[0] if len(close) == 1 else _largest(close, self._noise)
            found.append(winner.index)
            left = [c for c in left if c is not winner]
        return found


def largest_of_few(
    weights: list[float], exact: Callable[[int], Fraction], noise: Noise, rng: np.random.Generator
) -> int:
    """The winner of :class:`NoisyOrder` among a few candidates, from the same words, on Python's floats."""
    words = random_words(rng, len(weights)).tolist()
    drawn = [-math.log(((word >> 1) + 0.5) * 2.0**-63) for word in words]
    noisy = []
    for weight, word, e in zip(weights, words, drawn, strict=True):
        if e > LARGEST or (noise == "gumbel" and e < SMALLEST):
            noisy.append(math.nan)
        elif noise == "gumbel":
            noisy.append(weight - math.log(e))
        else:
            noisy.append(weight - e if noise == "laplace" and word & 1 else weight + e)
    floor = max((value for value in noisy if value == value), default=-math.inf) - WINDOW
    # nan compares as not below: it is always looked at again
    close = [i for i, value in enumerate(noisy) if not value < floor and weights[i] > -math.inf]
    if len(close) == 1:
        return close[0]
    candidates = [_Candidate(i, noisy[i], words[i], partial(_said, 1, exact, i), rng) for i in close]
    return _largest(candidates, noise).index


def _said(size: int, exact: Callable[[int], Fraction], i: int) -> tuple[int | Decimal, Fraction]:
    return size, exact(i)


def _noise_of(words: NDArray[np.uint64], noise: Noise) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """The noise of each word in double precision, and the positions where its error may be large."""
    e: NDArray[np.float64] = (words >> np.uint64(1)).view(np.int64).astype(np.float64)
    e += 0.5
    e *= 2.0**-63
    np.log(e, out=e)
    np.negative(e, out=e)  # −ln U, U uniform
    doubtful = np.empty(0, dtype=np.intp)
    if e.max() > LARGEST or (noise == "gumbel" and e.min() < SMALLEST):
        doubtful = np.flatnonzero((e > LARGEST) | (e < SMALLEST))
    if noise == "gumbel":
        np.log(np.maximum(e, SMALLEST, out=e), out=e)
        np.negative(e, out=e)
    elif noise == "laplace":
        np.negative(e, out=e, where=(words & np.uint64(1)).astype(np.bool_))
    return e, doubtful


class _Candidate:
    """A candidate that may be the winner; ``noisy`` is −inf where double precision says nothing about it."""

    __slots__ = ("_exact", "_rng", "_uniform", "_word", "index", "noisy")

    def __init__(self, index: int, noisy: float, word: int, exact: Exact, rng: np.random.Generator) -> None:
        self.index, self.noisy, self._word, self._exact, self._rng = index, noisy, word, exact, rng
        self._uniform: LazyUniform | None = None

    @property
    def uniform(self) -> LazyUniform:
        """U as far as it is known: 63 bits at first."""
        if self._uniform is None:
            self._uniform = LazyUniform(self._word >> 1, 63, self._rng)
        return self._uniform

    def bounds(self, noise: Noise, digits: int) -> tuple[Decimal, Decimal]:
        """Bounds of the noisy weight from the random bits drawn so far."""
        with localcontext(decimal_context(digits + 12, Fraction(1))):  # sums of up to 10⁹ terms
            size, weight = self._exact()
        with localcontext(decimal_context(digits, abs(weight))):
            low, high = self.uniform.minus_log()
            slack = rounding_slack(digits, low)
            if noise == "gumbel":
                infinite = Decimal("Infinity")
                low, high = (
                    -(high + slack).ln() if high.is_finite() else -infinite,
                    -(low - slack).ln() if low > slack else infinite,
                )
            elif noise == "laplace" and self._word & 1:
                low, high = -high, -low
            value = Decimal(weight.numerator) / Decimal(weight.denominator)
            if size != 1:
                value += Decimal(size).ln()
                slack *= 100  # |ln m| < 50
            return value + low - slack, value + high + slack


def _largest(candidates: list[_Candidate], noise: Noise) -> _Candidate:
    """The one of the largest noisy weight, with as many random bits and digits as it takes."""
    digits = 40
    while True:
        bounds = [candidate.bounds(noise, digits) for candidate in candidates]
        floor = max(low for low, _ in bounds)
        candidates = [c for c, (_, high) in zip(candidates, bounds, strict=True) if high >= floor]
        if len(candidates) == 1:
            return candidates[0]
        for candidate in candidates:
            candidate.uniform.extend()
        digits += 20

"""Report noisy max: the index of the candidate with the best noisy score, and nothing else.

For anyone who picks one of many candidates (a model, a split, a query) by a score of bounded sensitivity.

With weights w_i = ε·s_i/(2Δ), the winner is the largest w_i + noise_i:

* ``"gumbel"``: the exponential mechanism (McSherry & Talwar 2007), P(i) ∝ exp(w_i); its privacy loss has range ε
  (Cesar & Rogers 2021), which composes better than pure ε-DP.
* ``"exponential"``: permute-and-flip (McKenna & Sheldon 2020; Ding et al. 2021), whose error is never larger.
* ``"laplace"``: the classical mechanism (Dwork & Roth 2014, claim 3.9).

Privacy. Δ is the largest |s_i(D) − s_i(D′)| over candidates and neighbouring D, D′. The index is ε-DP. If moreover all
scores move in the same direction between any two neighbours (``monotone``), w_i = ε·s_i/Δ gives the same ε.

The winner is sampled exactly, with the law of real-valued noise on the scores as given. Noisy weights are compared in
double precision; where two come within its error of each other (one run in a thousand), they are compared again with
as many random bits and digits as it takes. Cost: one random number and one or two logarithms per score.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Adjacency, Ledger, NoisyMax
from accounting.checks import positive
from dpkit import randomness
from dpkit.mechanisms._checked import charge, real_array
from dpkit.samplers._exact import LazyUniform, decimal_context, random_words, rounding_slack
from dpkit.samplers._filtered import BLOCK

__all__ = ["report_noisy_max"]

Noise = Literal["gumbel", "exponential", "laplace"]
Blocks = Callable[[], Iterable[ArrayLike]]

# Two noisy weights closer than this are compared exactly. Where E = −ln U lies in [2⁻³⁵, 30], the errors of E and of
# −ln E are below 2⁻¹⁵; the others (one in 10¹⁰) are always compared exactly.
_WINDOW = 2.0**-10
_SMALLEST, _LARGEST = 2.0**-35, 30.0


def report_noisy_max(
    scores: ArrayLike | Blocks,
    sensitivity: float,
    epsilon: float,
    noise: Noise = "gumbel",
    *,
    monotone: bool = False,
    minimise: bool = False,
    adjacency: Adjacency = "replace",
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> int:
    """The index of the largest (or smallest) noisy score.

    Parameters
    ----------
    scores : array_like of float, shape (n,), or callable
        ``-inf`` (``inf`` when minimising) marks a candidate that is never chosen unless all are so marked; which ones
        are must not depend on private data. A callable returns the scores as an iterable of 1-d blocks; it is called
        twice, to check them and to choose, and must return the same scores.
    sensitivity : float
        Δ > 0, of every single score.
    epsilon : float
        ε > 0, the cost.
    noise : {"gumbel", "exponential", "laplace"}
        See the module's text.
    monotone : bool
        All scores move in the same direction between any two neighbours: half the noise.
    minimise : bool
        Choose the smallest score.
    adjacency : {"replace", "add_remove", "zero_out"}
        The neighbouring relation under which ``sensitivity`` holds.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.
    ledger : Ledger, optional
        The cost is recorded in it, or refused by it, before any noise is drawn.

    Returns
    -------
    int

    Raises
    ------
    TypeError, ValueError
        If there are no scores, one is NaN or infinite in the preferred direction, or a parameter is out of range.
    BudgetExceeded
        If the ledger's budget does not cover the release.

    Notes
    -----
    Guarantees, each with a test of the same name:

    * noisy_max_follows_the_exponential_mechanism.
    * noisy_max_follows_permute_and_flip.
    * noisy_max_costs_epsilon: the ratio of each winner's probabilities on neighbouring scores.
    * noisy_max_refuses_before_it_draws.

    Examples
    --------
    >>> from dpkit.mechanisms import report_noisy_max
    >>> report_noisy_max([0.0, 1e6, -float("inf")], sensitivity=1.0, epsilon=1.0)
    1
    >>> report_noisy_max([0.0, 1e6, float("inf")], sensitivity=1.0, epsilon=1.0, minimise=True)
    0
    """
    cost = NoisyMax(positive("epsilon", epsilon), noise, adjacency=adjacency)
    exact_rate = Fraction(float(epsilon)) / (Fraction(positive("sensitivity", sensitivity)) * (1 if monotone else 2))
    if not 1e-300 < exact_rate < 1e300:
        raise ValueError(f"epsilon/sensitivity must lie in (1e-300, 1e300), got {epsilon!r}/{sensitivity!r}")
    source = randomness.resolve(rng)
    best, count = _best_score(scores, minimise)
    charge(ledger, cost, f"report noisy max ({noise} noise)", source)

    rate = float(exact_rate)
    leader = -math.inf
    contenders: list[_Contender] = []
    start = 0
    for block in _blocks(scores, minimise):
        # all scores −inf: all candidates are equal
        gaps = np.zeros(block.size) if best == -math.inf else block - best
        if not float(gaps.max()) <= 0:
            raise ValueError("scores must be the same each time they are asked for, got a larger one the second time")
        words = random_words(source, block.size)
        noisy, doubtful = _noisy_weights(gaps, rate, words, noise)
        leader = max(leader, float(noisy.max()))
        near = np.flatnonzero(noisy >= leader - _WINDOW)
        if doubtful.size:
            near = np.union1d(near, doubtful)
        for i in near[gaps[near] > -math.inf]:
            weight = (Fraction(float(block[i])) - Fraction(best)) * exact_rate if gaps[i] < 0 else Fraction(0)
            uniform = LazyUniform(int(words[i] >> np.uint64(1)), 63, source)
            negative = noise == "laplace" and bool(words[i] & np.uint64(1))
            contenders.append(_Contender(start + int(i), weight, uniform, negative, float(noisy[i])))
        start += block.size
    if start != count:
        raise ValueError(f"scores must be the same each time they are asked for, got {count} and then {start}")
    close = [c for c in contenders if c.noisy == -math.inf or c.noisy >= leader - _WINDOW]
    return close[0].index if len(close) == 1 else _largest(close, noise)


def _blocks(scores: ArrayLike | Blocks, minimise: bool) -> Iterator[NDArray[np.float64]]:
    """The scores to maximise, checked, in blocks of at most ``BLOCK``."""
    for part in scores() if callable(scores) else (scores,):
        values = real_array("scores", part, finite=False)
        if values.ndim != 1:
            raise ValueError(f"scores must be one-dimensional, got scores.shape={values.shape}")
        for start in range(0, values.size, BLOCK):
            block = values[start : start + BLOCK]
            yield -block if minimise else block


def _best_score(scores: ArrayLike | Blocks, minimise: bool) -> tuple[float, int]:
    """The largest score to maximise and the number of scores; refuses NaN, a preferred infinity, overflow and none."""
    tops, count = [], 0
    for block in _blocks(scores, minimise):
        top, bottom = float(block.max()), float(block.min())
        if math.isnan(top):
            raise ValueError("scores must be numbers, got NaN")
        if bottom == -math.inf:
            bottom = float(block.min(initial=0.0, where=block > -math.inf))
        if max(top, -bottom) > 1e300:
            side = "below" if minimise else "above"
            raise ValueError(f"scores must not be infinite {side} or beyond 1e300 in size, got such a score")
        tops.append(top)
        count += block.size
    if not tops:
        raise ValueError("scores must hold at least one candidate, got none")
    return max(tops), count


def _noisy_weights(
    gaps: NDArray[np.float64], rate: float, words: NDArray[np.uint64], noise: Noise
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """``rate``·``gaps`` plus noise, in double precision; −inf at the returned positions, whose error may be large."""
    e: NDArray[np.float64] = (words >> np.uint64(1)).view(np.int64).astype(np.float64)
    e += 0.5
    e *= 2.0**-63
    np.log(e, out=e)
    np.negative(e, out=e)  # −ln U, U uniform
    doubtful = np.empty(0, dtype=np.intp)
    if e.max() > _LARGEST or (noise == "gumbel" and e.min() < _SMALLEST):
        doubtful = np.flatnonzero((e > _LARGEST) | (e < _SMALLEST))
    if noise == "gumbel":
        np.log(np.maximum(e, _SMALLEST, out=e), out=e)
        np.negative(e, out=e)
    elif noise == "laplace":
        np.negative(e, out=e, where=(words & np.uint64(1)).astype(np.bool_))
    with np.errstate(over="ignore"):  # a weight beyond the floats is as good as −inf
        e += gaps * rate
    e[doubtful] = -math.inf
    return e, doubtful


@dataclass
class _Contender:
    """A candidate that may be the winner; ``noisy`` is −inf where double precision says nothing about it."""

    index: int
    weight: Fraction
    uniform: LazyUniform
    negative: bool
    noisy: float

    def bounds(self, noise: Noise, digits: int) -> tuple[Decimal, Decimal]:
        """Bounds of the noisy weight from the random bits drawn so far."""
        with localcontext(decimal_context(digits, abs(self.weight))):
            low, high = self.uniform.minus_log()
            slack = rounding_slack(digits, low)
            if noise == "gumbel":
                infinite = Decimal("Infinity")
                low, high = (
                    -(high + slack).ln() if high.is_finite() else -infinite,
                    -(low - slack).ln() if low > slack else infinite,
                )
            elif self.negative:
                low, high = -high, -low
            weight = Decimal(self.weight.numerator) / Decimal(self.weight.denominator)
            return weight + low - slack, weight + high + slack


def _largest(contenders: list[_Contender], noise: Noise) -> int:
    """The index of the largest noisy weight, with as many random bits and digits as it takes."""
    digits = 40
    while True:
        bounds = [contender.bounds(noise, digits) for contender in contenders]
        floor = max(low for low, _ in bounds)
        contenders = [c for c, (_, high) in zip(contenders, bounds, strict=True) if high >= floor]
        if len(contenders) == 1:
            return contenders[0].index
        for contender in contenders:
            contender.uniform.extend()
        digits += 20

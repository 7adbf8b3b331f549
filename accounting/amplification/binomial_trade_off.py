"""Integer counts under binomial noise Bin(N, ½) as Gaussian differential privacy: μ, within a fraction of a percent.

One unit moves D numbers by a real vector t with ‖t‖₂ ≤ Δ; each is an integer already, or rounded at random to one of
its two neighbours (up with the probability of the fraction), and binomial noise X is added. Let F be the distribution
function of X, interpolated linearly between the integers: then for any real a, rounded at random to an integer A,
Pr(X + A ≤ k) = F(k − a). And let y = Φ⁻¹∘F.

**One count, moved from a to a + t.** The two laws P and Q have a monotone likelihood ratio, since binomial laws are
log-concave (X, X + Bernoulli and X + 1 are ordered by likelihood ratio). So the best tests are thresholds, and P and Q
are μ-Gaussian DP if y(k − a) − y(k − a − t) ≤ μ at every threshold k (:mod:`accounting.notions.gdp`). On a
window that leaves out the ends of the support,

    y(x) − y(x − t) ≤ c·(t + e),

where c is the largest increment of y between neighbouring integers, and c·e bounds how far y strays from its chords:
the slopes of y on one segment are in the ratio of at most e^(c·y_max), so by at most c(e^(c·y_max) − 1)/4 to either
side. e = 0 for integers; in general e ≤ 1, because a rounded shift is at most ⌈t⌉. Typically c = 2/√N to a part in
a thousand, and e is a few hundredths.

**Failures.** Cut both laws to a set W of counts in the middle with P(W) = Q(W) = 1 − τ, which is possible by a suitable
lower end (drawn at random between two integers, if need be). Inside W the likelihood ratio L lies in an interval I,
outside it lies beyond. For any convex φ let ℓ be the chord of φ over the ends of I. As L has mean 1 both inside and
outside,

    E[φ(L) | W] ≤ E[ℓ(L) | W] = ℓ(1) = E[ℓ(L) | not W] ≤ E[φ(L) | not W],

so E[φ(L) | W] is at most the value for the pair in which all that is above W is one outcome, and all that is below: by
Blackwell's theorem the pair on W is at least as private as that one, whose thresholds all lie in the window. Hence each
law is 1 − τ times one of a μ-GDP pair, plus τ times some other law. With s = (1 − τ)^D,

    δ(ε) ≤ (1 − s) + s·δ_μ(ε),      μ = c·(Δ + e√D)   (Minkowski's inequality over the coordinates),

also inside adaptive compositions, where μ² and ln s add.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from accounting.amplification.shuffled_binomial import integer_shift, window
from accounting.arrays import Array

__all__ = ["LEFT_OUT", "MOST_TRIALS", "central_mu", "rounded_line", "rounded_log_survival", "rounded_mu"]

# The mass that may fall outside the window of one count, where N allows it: far below any δ that is asked for.
_TAIL = 1e-30
# Relative error granted to increments, which are small differences, and to tails.
_SAFETY = 1 + 1e-8
# So many counts are summed over at once, and so many are held.
_BLOCK, _FEW = 2**14, 2**16
# More trials than this are priced as this many: the rest only adds noise.
MOST_TRIALS = 2**36
# Of one rounded count of ten thousand trials or more, this is the most that lies outside its window (a test sums it),
# and a third of it does whatever the noise: about so much δ for every count is the least possible.
LEFT_OUT = 2e-32


@lru_cache(maxsize=256)
def _increments(trials: int, first: int, *tails: int) -> tuple[float, float, float]:
    """c and y_max over thresholds from ``first`` ≥ 0 up to its mirror image, and the sum of F at ``tails`` ≥ ``first``.

    All is computed on the lower half of the counts, of which the upper one is the mirror image.
    """
    from scipy.special import ndtri_exp

    # What is left out below (a part of e^−80) makes F too small and the increments of y too large, which is the safe
    # side.
    start = max(0, first - 1 - math.ceil(40 * trials / (trials - 2 * first)))
    held = list(_log_pmf(trials, start)) if trials // 2 - start <= _FEW else None
    highest, half = 0.0, 0.0
    for _, log_p in held or _log_pmf(trials, start):
        # the last is the largest
        half = half * math.exp(highest - log_p[-1]) + float(np.exp(log_p - log_p[-1]).sum())
        highest = float(log_p[-1])
    whole = 2.0 * half - (trials % 2 == 0)
    largest, lowest, mass = -math.inf, math.nan, 0.0
    log_sum, y = np.empty(0), np.empty(0)
    for count, log_p in held or _log_pmf(trials, start):
        log_sum = np.logaddexp.accumulate(np.append(log_sum[-1:], log_p - highest))[-log_p.size :]
        log_f = log_sum - math.log(whole)
        mass += sum(math.exp(log_f[k - count]) for k in tails if 0 <= k - count < log_f.size)
        y = np.append(y[-1:], ndtri_exp(log_f[max(0, first - count) :]))
        if y.size and math.isnan(lowest):
            lowest = float(y[0])
        if y.size > 1:
            largest = max(largest, float(np.diff(y).max()))
    return largest * _SAFETY, -lowest, mass * _SAFETY


def _log_pmf(trials: int, start: int) -> Iterator[tuple[int, Array]]:
    """ln of the pmf over its value at ``start``, from its exact ratios, up to the middle.

    In blocks, each with its first count: there may be millions of counts, and a file from elsewhere may ask for them.
    """
    end, log_p = trials // 2 + 1, np.zeros(1)
    yield start, log_p
    for count in range(start + 1, end, _BLOCK):
        k = np.arange(count, min(count + _BLOCK, end), dtype=np.float64)
        log_p = np.cumsum(np.append(log_p[-1:], np.log((trials - k + 1) / k)))[1:]
        yield count, log_p


def _rounded_window(trials: int, shift_norm: float) -> tuple[float, float, float]:
    """c, y_max and τ for one count that is shifted by at most ``shift_norm`` and rounded."""
    trials = min(trials, MOST_TRIALS)
    reach = math.ceil(shift_norm) + 1
    # the window are the counts from ``low`` to N − low; its thresholds reach two further down at most
    low = max(2, math.floor(trials / 2 - reach - math.sqrt(trials * math.log(4 / _TAIL) / 2)))  # Hoeffding
    if low + reach >= trials // 2:
        return math.inf, math.inf, 1.0
    c, furthest, tail = _increments(trials, low - 2, low + 1, low + reach)
    return c, furthest, min(1.0, tail)


def rounded_log_survival(trials: int, shift_norm: float, coordinates: int) -> float:
    """ln s, the probability that no rounded count leaves its window (−∞ if the noise hides nothing)."""
    tail = _rounded_window(trials, shift_norm)[2]
    return coordinates * math.log1p(-tail) if tail < 1 else -math.inf


def rounded_mu(trials: int, shift_norm: float, coordinates: int) -> float:
    """μ of the whole vector of rounded counts on their windows (infinite if the noise hides nothing).

    Parameters
    ----------
    trials : int
        N.
    shift_norm : float
        Δ, in counts.
    coordinates : int
        D.

    Examples
    --------
    Close to the Gaussian of the same variance N/4:

    >>> round(rounded_mu(85_000, 137.0, 6) / (137.0 / math.sqrt(85_000 / 4)), 4)
    1.0013
    """
    slope, offset, _ = rounded_line(trials, shift_norm, coordinates)
    return slope * shift_norm + offset


def rounded_line(trials: int, largest_shift: float, coordinates: int) -> tuple[float, float, float]:
    """(k, o, ln s) such that with probability s a shift by any Δ ≤ ``largest_shift`` costs μ = k·Δ + o at most.

    All those shifts share the windows of the largest: so the μ of several releases adds up as √Σ(k·Δ_j + o)² for
    whatever Δ_j, and does not ask how a unit's total was spent on them. Without privacy, (∞, ∞, −∞).

    Examples
    --------
    >>> slope, offset, _ = rounded_line(1_000_000, 150.0, 9)
    >>> round(slope * 500, 4), round(offset, 6)   # a standard deviation of 500
    (1.0, 7.4e-05)
    """
    c, furthest, tail = _rounded_window(trials, largest_shift)
    if tail >= 1:
        return math.inf, math.inf, -math.inf
    stray = min(1.0, 0.5 * math.expm1(min(c * furthest, 2.0)))
    return c, c * stray * math.sqrt(coordinates), coordinates * math.log1p(-tail)


def central_mu(trials: int, shift_norm: float) -> float:
    """μ of a vector of counts that is shifted by an integer vector.

    On the windows of :mod:`accounting.amplification.shuffled_binomial`. Infinite where those windows reach the ends of
    the support, or there are too many trials to sum over.

    Examples
    --------
    >>> round(central_mu(20_000, 80.0) / (80.0 / math.sqrt(20_000 / 4)), 3)
    1.003
    """
    largest = integer_shift(shift_norm)[1]
    if largest == 0:
        return 0.0
    low, tail = window(trials, largest)
    if low < 1 or tail >= 1 or trials > MOST_TRIALS:
        return math.inf
    return _increments(trials, low - 1)[0] * shift_norm

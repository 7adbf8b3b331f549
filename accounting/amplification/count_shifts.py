"""Counts under binomial noise Bin(N, ½) whose vector is shifted: δ(ε) of the worst shift, as good as exact.

One unit moves D counts by v, ‖v‖₂ ≤ Δ: by integers, or by real numbers that are rounded at random to a neighbouring
integer. Let b be the law of the noise, and for a real t = n + τ, 0 ≤ τ < 1, let b_t(x) = (1 − τ)·b(x − n) +
τ·b(x − n − 1).

**Which starts are worst.** The divergence H(P, Q) = Σ(P − e^ε·Q)₊ is the largest of functions that are linear in (P,
Q), and so it is convex in the pair of one coordinate where the others are fixed. A count that was at a and is at a + t
has the pair (b_(a+t), b_a), which is affine in a between those a at which a or a + t is an integer; so one of these is
worst. As the noise is symmetric, the pairs (b_t, b₀) and (b₀, b_(−t)) are all that is needed of one coordinate. The
laws b_a are ordered by likelihood ratio, so a test for b_a against b_(a+t) is a threshold, and one for farther a and
a + t is better: H grows with t. Real shifts are therefore as long as Δ, and an integer vector is so long that no entry
can be one larger: Σv² ≥ S − 2·min v, where S = ⌊Δ²⌋, or it is S if an entry is 0.

**One count.** H of either pair is linear in e^ε between its losses, L(x) = ln P/Q(x), which increase with x, and so is
at most what joins the larger ones of both at all their losses.

**Many counts.** For λ > 0 and every x

    (1 − e^(−x))₊ = 1/(2π)·∫ e^((λ+iω)x)/((λ + iω)(λ + 1 + iω)) dω,

so, with M_j(ζ) = E[e^(ζL_j)] under P_j where L_j is finite and what else is kept of P_j,

    δ(ε) ≤ Σ_j P_j(not kept) + e^(−λε)/π·∫₀^∞ ∏_j |M_j(λ + iω)|/|(λ + iω)(λ + 1 + iω)| dω.

This is within a percent or two of δ at the best λ, as the phases hardly count there. And it asks only for a bound on
each |M_v|: with k(ω) = max over v of ln|M_v(λ + iω)|/v² the product is at most e^(k·Σv²). What is not kept of P_j
lies above a cut. Extreme counts are so rare, and their losses so large, that they would make M infinite or next to it.

Counts are taken together in blocks, each of which is split over the losses at its ends so that P and Q keep their
masses, and those far below are raised to the first end: that pair has a larger H
(:mod:`accounting.compose.convolution`). And one more release of Gaussian noise with a small μ, which only adds to
H, makes the integral end.

**Real shifts between the nodes.** Let the nodes be some t_i, all integers among them, and t between two neighbours a
and b. By convexity again H is at most its mean over a coin that is a or b with the mean t, independently for every
coordinate; so |M_t| may be replaced by the chord of |M_a| and |M_b|. These are at most e^(ka²) and e^(kb²), and the
chord of e^(kt²) is above it by (b − a)²/8·(2|k| + 4k²b²)·e^(|k|(b²−a²)) at most, relatively. A t below the smallest
node is raised to it; all of these together add a small share of Δ² (``_RAISED``).

**Between the nodes in ω** the chord of |φ(ω)|, φ the characteristic function of any law with variance s², is at most
h²s²/8 below it. So let |M_j| ≤ l_j, linear in ω between two nodes, and s = Σv². As s ≥ v_j², l_j^(s/v_j²) is convex, so
it is below the chord of the largest of all v, and so is ∏l_j, their geometric mean with the weights v_j²/s.

**Small shifts.** With u = b(x − 1)/b(x) − 1 the loss of b_τ(x) against b₀ is ln(1 + τu), which keeps its digits where
two logarithms that are subtracted would not. Shorter shifts than ``SMALLEST_SHIFT`` are priced as
that. For the same reason what a block holds is split by the losses in it, e^(−L) keeping its mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from accounting.amplification.binomial_trade_off import central_mu, rounded_mu
from accounting.amplification.shuffled_binomial import integer_shift, log_pmf, window
from accounting.arrays import Array

__all__ = ["LOG_LEAST", "SMALLEST_SHIFT", "Rows", "count_curve", "is_listed", "vector_rows"]


# Relative rounding errors of probabilities; and what lies outside of windows.
_SAFETY, _OUTSIDE = 1 + 1e-9, 2e-40
# Shorter real shifts are so long.
SMALLEST_SHIFT = 1e-6
# e^x of larger losses is beyond floats: they count as infinite.
_HIGHEST = 690.0
# λ in units of 1/μ, μ = 2Δ/√N: about how many deviations out the losses are that count.
_TILTS = np.concatenate([np.arange(0.2, 2.6, 0.2), 2.6 * 1.08 ** np.arange(22)])
# ω in units of 1/μ: so many nodes at these distances.
_PIECES = ((0.1, 60), (0.2, 45), (0.4, 90))
# The variance of the added noise's loss as a share of μ²; points for the integral's kernel in every cell.
_ADDED, _POINTS = 0.003, 16
# How many deviations beyond those of λ counts are cut, the first of few trials only; how many below even odds they are
# taken together.
_BEYOND, _FEW_TRIALS, _BELOW = (2.0, 3.5), 300, 6.0
# Blocks of counts in a deviation.
_BLOCKS = 16
# The smallest node, as a share of what all coordinates have if they are alike; the distance of nodes.
_RAISED, _APART, _FARTHEST = 0.025, 0.7, 7.0


# Of more trials, and where μ is as little above 2Δ/√N, Gaussian noise is as good; for one count, and for many.
_MOST_TRIALS = 1 << 22
_AS_GOOD = 2e-4, 8e-3
# Of so many coordinates, as of few trials, the bound may say nothing at all. Its curve ends where δ is e^(this).
_MANY, LOG_LEAST = 10**4, -69.0


def is_listed(trials: int, shift_norm: float, coordinates: int, *, rounded: bool) -> bool:
    """Whether these bounds are there, and better than those by Gaussian noise."""
    longest = math.ceil(shift_norm) if rounded else integer_shift(shift_norm)[1]
    many = coordinates > 1 and (rounded or longest > 1)
    most = trials // 8 if many else (trials - 2) // 2  # of few trials the bound of many counts is of no use
    if not 0 < longest <= most or trials > _MOST_TRIALS:
        return False
    mu = rounded_mu(trials, shift_norm, coordinates) if rounded else central_mu(trials, shift_norm)
    if mu <= 2 * shift_norm / math.sqrt(trials) * (1 + _AS_GOOD[many]):
        return False
    if many and (trials < _FEW_TRIALS or coordinates > _MANY):
        rows = vector_rows(trials, max(shift_norm, SMALLEST_SHIFT), coordinates, rounded)
        return bool(rows.deltas(np.array(rows.end(LOG_LEAST))) < 1)
    return True


@dataclass(frozen=True)
class Rows:
    """δ(ε) ≤ min over rows of e^(log_scale − tilt·ε) + failed, for ε ≥ 0."""

    tilts: Array
    log_scales: Array
    failed: Array

    def deltas(self, epsilons: Array) -> Array:
        """The bound, at several ε."""
        found = np.exp(np.minimum(self.log_scales - np.multiply.outer(epsilons, self.tilts), 0.0)) + self.failed
        return np.asarray(np.minimum(found.min(axis=-1), 1.0))

    def end(self, log_delta: float) -> float:
        """The ε at which the integral is at most e^``log_delta``."""
        return max(0.0, float(np.min((self.log_scales - log_delta) / self.tilts)))


def _pair(log_b: Array, first: int, last: int, shift: float) -> list[tuple[Array, Array, Array]]:
    """ln P, ln Q and the loss where the noise of P is ``first`` … ``last`` − 1, in places of ``log_b``, both ways."""
    whole = math.floor(shift)
    up = shift - whole

    def law(at: int) -> Array:
        places = np.arange(first + at, last + at)
        inside = (places >= 0) & (places < log_b.size)
        return np.asarray(np.where(inside, log_b[np.clip(places, 0, log_b.size - 1)], -np.inf))

    def mixed(at: int, other: int) -> tuple[Array, Array]:
        """ln of the law, and by how much it is above that of ``at``."""
        most, some = law(at), law(other)
        mean = np.logaddexp(math.log1p(-up) + most, math.log(up) + some)
        return mean, np.log1p(up * np.expm1(some - most))

    here, there = law(0), law(whole)
    with np.errstate(invalid="ignore"):  # where one is not a number, P or Q is 0
        if up == 0:
            return [(here, there, here - there)]
        (forth, more), (back, less) = mixed(0, -1), mixed(whole, whole + 1)
        return [(forth, there, here - there + more), (here, back, here - there - less)]


# ------------------------------------------------------------------------------------------------------- one count


def count_curve(trials: int, shift: float) -> tuple[Array, Array]:
    """ε ≥ 0, rising, and δ there, of one count that is shifted by at most ``shift``; between them linear in e^ε."""
    log_b = log_pmf(trials, window(trials, math.ceil(shift))[0])
    curves = [_curve(*pair) for pair in _pair(log_b, 0, log_b.size + 1, shift)]
    epsilons = np.unique(np.concatenate([[0.0], *(losses for losses, _, _ in curves)]))
    epsilons = epsilons[(epsilons >= 0) & (epsilons < _HIGHEST)]
    y = np.expm1(epsilons)
    found = [np.interp(y, np.expm1(losses), values, right=0.0) + infinite for losses, values, infinite in curves]
    return epsilons, np.minimum(np.max(found, axis=0) * _SAFETY + _OUTSIDE, 1.0)


def _curve(log_p: Array, log_q: Array, losses: Array) -> tuple[Array, Array, float]:
    """Losses, those from one that is not positive on; the H of finite losses there; and P of infinite ones."""
    finite = (log_p > -np.inf) & (log_q > -np.inf)
    losses, q = np.maximum.accumulate(losses[finite]), np.exp(log_q[finite])
    some = losses < _HIGHEST
    # towards smaller losses H rises by what Q has above
    above = np.cumsum(q[:0:-1])[::-1]
    with np.errstate(over="ignore"):
        steps = (np.exp(losses[1:]) * -np.expm1(-np.diff(losses)) * above)[some[1:]]
    values = np.append(np.cumsum(steps[::-1])[::-1], 0.0)
    first = max(0, int(np.searchsorted(losses, 0.0, side="right")) - 1)
    infinite = float(np.exp(log_p[~finite]).sum() + np.exp(log_p[finite][~some]).sum())
    return losses[some][first:], values[first:], infinite


# ----------------------------------------------------------------------------------------------------- many counts


@lru_cache(maxsize=64)
def vector_rows(trials: int, shift_norm: float, coordinates: int, rounded: bool) -> Rows:
    """The bound of a vector of counts; ``trials`` are at least twice the longest shift of one."""
    if rounded:
        moved = coordinates
        counts = _Counts(trials, math.ceil(shift_norm), 2 * shift_norm / math.sqrt(trials), moved)
        logs = _log_product_of_reals(counts, shift_norm, coordinates)
    else:
        square, longest = integer_shift(shift_norm)
        moved = min(coordinates, square)
        counts = _Counts(trials, longest, 2 * math.sqrt(square / trials), moved)
        least = square if coordinates >= square else square - 2 * math.isqrt(square // coordinates)
        logs = np.full((counts.tilts.size, counts.frequencies.size), -np.inf)
        for shift in range(1, longest + 1):
            one = counts.log_image(float(shift))
            logs = np.maximum(logs, np.where(one > 0, one * (square / shift**2), one * max(1.0, least / shift**2)))
    return Rows(counts.tilts, counts.integrals(logs), moved * counts.failed * _SAFETY)


class _Counts:
    """Images M of one count on a grid of λ + iω, for the shifts that are asked for."""

    def __init__(self, trials: int, longest: int, mu: float, moved: int) -> None:
        self._log_b = log_pmf(trials, window(trials, longest)[0])
        self._mu = mu
        deviation, middle = math.sqrt(trials) / 2, (self._log_b.size - 1) / 2
        # at even odds P's noise is at least half a shift below the middle
        self._first = max(0, math.floor(middle - (longest + 1) / 2 - _BELOW * deviation))
        self._block = max(1, math.floor(deviation / _BLOCKS))
        tails = np.cumsum(np.exp(self._log_b)[::-1])[::-1]
        beyond = _BEYOND if trials < _FEW_TRIALS else _BEYOND[1:]
        wanted = np.concatenate([np.exp(-((_TILTS + more) ** 2) / 2) for more in beyond]) * min(1.0, 4 * mu) / moved
        cuts = np.searchsorted(-tails, -wanted) + 1
        self._cuts = np.minimum(cuts, self._log_b.size - longest - 1)
        self._last = int(self._cuts.max()) + 1
        self.tilts = np.tile(_TILTS, len(beyond)) / mu
        distances = np.concatenate([np.full(count, distance) for distance, count in _PIECES]) / mu
        self.frequencies = np.append(0.0, np.cumsum(distances))
        #: The largest distance of every frequency to a neighbour.
        self._apart = np.maximum(np.append(distances, 0.0), np.append(0.0, distances))
        #: What one count has above the cuts, for the worst of the shifts so far.
        self.failed = np.zeros_like(self.tilts)

    def log_image(self, shift: float) -> Array:
        """ln of |M|, and more than it is between frequencies; shape (tilts, frequencies)."""
        pairs = _pair(self._log_b, self._first, self._last, shift)
        return np.asarray(np.max([self._of_pair(p, losses) for p, _, losses in pairs], axis=0))

    def _of_pair(self, log_p: Array, losses: Array) -> Array:
        ends = np.arange(0, log_p.size, self._block)
        ends[-1] = log_p.size - 1
        mass, losses = self._in_blocks(np.exp(log_p), np.maximum.accumulate(losses), ends)
        kept = (self._first + ends) < self._cuts[:, None]
        beyond = float(np.exp(self._log_b[self._last - 1 :]).sum())
        self.failed = np.maximum(self.failed, np.where(kept, 0.0, mass).sum(axis=1) + beyond + _OUTSIDE)
        with np.errstate(divide="ignore"):
            exponents = np.where(kept, np.log(mass) + np.multiply.outer(self.tilts, losses), -np.inf)
        peaks = exponents.max(axis=1, keepdims=True)
        weights = np.exp(exponents - peaks)
        total = weights.sum(axis=1, keepdims=True)
        weights /= total
        centre = losses[losses.size // 2]
        variance = np.maximum(weights @ (losses - centre) ** 2 - (weights @ (losses - centre)) ** 2, 0.0)
        cosines, sines = self._waves(losses - centre)
        size = np.sqrt((weights @ cosines.T) ** 2 + (weights @ sines.T) ** 2)
        size += np.multiply.outer(variance, self._apart**2 / 8 * (1 + 1e-6)) + 1e-12
        return np.asarray(peaks + np.log(total) + np.log(size) + 1e-9)

    def _in_blocks(self, p: Array, losses: Array, ends: NDArray[np.intp]) -> tuple[Array, Array]:
        """What P has at the losses at ``ends``, and these."""
        at, widths = losses[ends], np.diff(ends)
        low, high = np.repeat(at[:-1], widths), np.repeat(at[1:], widths)
        with np.errstate(invalid="ignore"):
            share = np.where(high > low, np.expm1(low - losses[1:]) / np.expm1(low - high), 1.0)
        mass = np.zeros(ends.size)
        mass[1:] = np.add.reduceat(p[1:] * share, ends[:-1])
        mass[:-1] += np.add.reduceat(p[1:] * (1 - share), ends[:-1])
        mass[0] += float(p[0]) + float(np.exp(self._log_b[: self._first]).sum())
        return mass, at

    def _waves(self, losses: Array) -> tuple[Array, Array]:
        """cos ωL and sin ωL; shape (frequencies, losses)."""
        cosines, sines = np.empty((2, self.frequencies.size, losses.size))
        wave, row = np.ones(losses.size, dtype=np.complex128), 0
        cosines[0], sines[0] = 1.0, 0.0
        for distance, count in _PIECES:
            turn = np.exp(1j * distance / self._mu * losses)
            for _ in range(count):
                wave, row = wave * turn, row + 1
                cosines[row], sines[row] = wave.real, wave.imag
        return cosines, sines

    def integrals(self, logs: Array) -> Array:
        """ln of 1/π·∫ e^logs/|ζ(ζ + 1)| dω with the noise that is added, rounded up."""
        added, widths = _ADDED * self._mu**2, np.diff(self.frequencies)
        share = np.arange(_POINTS) / _POINTS
        at = (self.frequencies[:-1, None] + np.multiply.outer(widths, share)) ** 2
        tilts = self.tilts[:, None, None]
        # it falls with ω: by its value at the left of every part of a cell
        kernel = np.exp(-added / 2 * at) / np.sqrt((tilts**2 + at) * ((tilts + 1) ** 2 + at))
        kernel *= widths[:, None] / _POINTS
        right = kernel @ (share + 0.5 / _POINTS)
        left = kernel.sum(axis=2) - right
        peaks = logs.max(axis=1)
        values = np.exp(logs - peaks[:, None])
        end = float(self.frequencies[-1])
        beyond = values[:, 0] * math.exp(-added / 2 * end**2) / (added * end**3)
        total = (values[:, :-1] * left + values[:, 1:] * right).sum(axis=1) + beyond
        return np.asarray(peaks + np.log(total / math.pi) + added / 2 * self.tilts * (self.tilts + 1) + 1e-9)


def _log_product_of_reals(counts: _Counts, norm: float, coordinates: int) -> Array:
    """A bound on ln ∏|M| over all vectors of the length ``norm``."""
    nodes = _nodes(norm, coordinates)
    k = np.max([counts.log_image(node) / node**2 for node in nodes], axis=0)
    more = np.zeros_like(k)
    for a, b in pairwise(nodes):
        with np.errstate(over="ignore"):  # of rows that are of no use
            grown = np.exp(np.abs(k) * (b * b - a * a))
        chord = (b - a) ** 2 / 8 * (2 * np.abs(k) + 4 * (k * b) ** 2) * grown
        more = np.maximum(more, np.log1p(chord) / a**2)
    k = np.minimum(k + more, 1e100)
    return np.asarray(np.where(k > 0, k * (norm**2 * (1 + _RAISED**2)), k * norm**2))


def _nodes(norm: float, coordinates: int) -> list[float]:
    """Shifts, rising, between which and ``norm`` chords are not far off; all integers are among them."""
    nodes, least = [norm], _RAISED * norm / math.sqrt(coordinates)
    while nodes[-1] > least:
        last = nodes[-1]
        step = _APART * last / (_FARTHEST * math.hypot(1.0, _FARTHEST * last / norm))
        nodes.append(max(last - step, math.ceil(last) - 1.0, least))
    return nodes[::-1]

"""What the best of a random number of runs costs: a curve from above, and a mechanism below it.

Where it comes from. K runs are made of what has the law P under one of two neighbours and Q under the other, and the
best by some order is released; of equal ones the first, which is the same as to order them by a uniform number that
each draws. So let no two be equal. With f(x) = E[x^K] and x, y the probabilities under P and under Q that a run is not
better than this output, the best one has the laws f′(x)dP and f′(y)dQ, and nothing with probability P(K = 0) under
both. For a set S of outputs, then,

    δ(ε) = sup ∫_S f′(x)dP − e^ε f′(y)dQ.

**From above.** Let G(s) be the largest Q(U) of a set with P(U) ≤ s, for any two neighbours. The outputs that are better
are such a set: 1 − y ≤ G(1 − x). As f′ increases, f′(y) ≥ f′(1 − G(1 − x)), and whatever x is, with s = 1 − x

    δ(ε) ≤ E_P[g(e^(ε − L))],    L = ln dP/dQ,    g(ρ) = max(0, sup over s of f′(1 − s) − ρ·f′(1 − G(s))).

g is a maximum of linear functions of ρ, so E_P[g(e^ε·dQ/dP)] is convex in (dP, dQ) and no larger than for a pair that
dominates all neighbours; and of that pair G is the polygon of its laws, taken in the order of its losses. Where δ is
small, S is a small set, all of which may have the place that is best for it; hence little is lost. ∎

*Pure releases.* If one run is ε₀-DP, G(s) ≤ min(e^ε₀·s, 1 − e^(−ε₀)(1 − s)), and no loss is larger than ε₀ and the
largest ln f′(1 − s)/f′(1 − G(s)) together. For K truncated negative binomial that is (1 + η)·ln(v(G(s))/v(s)), v(s) =
γ + (1 − γ)s, which rises up to s = 1/(1 + e^ε₀), where the two bounds on G meet, and falls from there on; and for
Poisson K it is μ(G(s) − s), largest at the same s. So the best of them is pure, too, at a cost of

    ε₀ + (1 + η)·ln((e^ε₀ + γ)/(1 + γe^ε₀))    or    ε₀ + μ·tanh(ε₀/2),

where (2 + η)ε₀ was known for the first (Papernot & Steinke 2022, Corollary 3). Coins have it.

Given K, all runs together tell more than the best one, so that where one is μ-Gaussian DP, δ(ε) is at most the mean of
that of √K·μ. It is the better bound where ε is small. Either one may be taken at every ε.

The sup over s, of a pair with finitely many losses. Between the corners of the polygon G is linear, and f′(1 − s) and
f′(1 − G(s)) are convex, as 1 − G is convex and f″ and f‴ are not negative. So in a cell the first is below its chord
and the second above its tangent in the middle, and the difference at most what these make of it at one of the ends. G
is rounded up by 10⁻¹², which is more than its corners are off, also by what s is off: G((1 + u)s) ≤ (1 + u)G(s).

**From below.** The runs are a mechanism whose neighbours are an exact pair; outputs whose losses are nearly alike are
put together, which is one more step of the mechanism. From the best on they are ordered like this: there are two rows,
of losses below 0 and of others, both with those farthest from 0 first. A share ``cut`` of P of the first row comes
before all else; from then on the first row is ``pace`` times as fast as the second one, until either ends. A heavy
output is cut in parts by a uniform number. Each part has the probabilities f(x) − f(x − p) and f(y) − f(y − q), a pair
that is its own. The first outputs make f′(x)/f′(y) large, and large losses are not far from where f′ is largest: in
compositions a search among all orders of a hundred outputs found hardly more.

Serves whoever tunes, and releases the best of the runs. ``BestOfRuns(Gaussian(8.0), 0.1)`` costs 0.7505 at δ = 1e-6,
and 1.127 by Rényi orders. By brute force, from the law of K: ``tests/accounting/adaptive/test_one_selection.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from accounting.amplification.runs import Runs
from accounting.arrays import Array
from accounting.compose.convolution import Parts, log_sum
from accounting.compose.pld import answers
from accounting.errors import UnsupportedRelease
from accounting.loss.curves import pair_of_curve
from accounting.loss.gaussian import normal_tail
from accounting.loss.pair import Atoms, LopsidedAtoms, LossPair, Symmetric, atoms_below, mirrored, remembered

__all__ = ["BestPair", "OrderedPair", "best_order", "one_run"]


_UP = 1 + 1e-9
# Deviations of a normal tail at which the curve of one run is known, or the same tails of others.
_DEVIATIONS = np.concatenate([np.linspace(0.0, 12.0, 200), np.linspace(12.0, 37.0, 60)[1:]])
# The δ at which the total of a run that is composed is found.
_LEVELS = (0.2, 1e-2, 1e-4, 1e-8, 1e-14, 1e-24)
# Outputs that a witness tells apart, the tail that it reads off, and the mass that is cut in parts.
_OUTPUTS, _TAIL, _HEAVY = 600, -60.0, 0.02
_PARTS = np.concatenate([np.geomspace(1e-10, 0.01, 40), np.linspace(0.0, 1.0, 251)[3:-3]])
_PARTS = np.diff(np.concatenate([[0.0], _PARTS, 1 - _PARTS[39::-1], [1.0]]))
# Larger losses of one run have no ratios in floats.
_LARGEST = 600.0
_CUTS = np.concatenate([[0.0], np.geomspace(1e-4, 0.05, 20), np.linspace(0.05, 0.95, 37)[1:]])
_PACES = (0.05, 0.25, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0)


@dataclass(frozen=True)
class BestPair(Atoms, Symmetric):
    """The best of K runs, ``runs`` the law of K, of what the pairs ``inner`` stand for, whichever a unit meets.

    ``mu`` says that one run is as private as Gaussian noise (infinite where it is not known).
    """

    follows = True
    runs: Runs
    inner: tuple[Parts, ...]
    mu: float

    @mirrored
    def delta(self, epsilon: float) -> float:
        return float(_curve(self, np.array([epsilon]))[0])

    @remembered(64)
    def atoms(self) -> tuple[Array, Array, Array, float]:
        losses, *_ = one_run(self.inner)
        known = losses[losses > 0]
        # the place adds at most this
        shift = math.log(_worst_place(self.runs, self.inner)[0][-1])
        epsilons = np.unique(np.concatenate([np.linspace(0.0, shift, 100), known, known + shift]))
        return pair_of_curve(epsilons, _curve(self, epsilons))


def _curve(pair: BestPair, epsilons: Array) -> Array:
    """δ at ``epsilons`` ≥ 0, from above."""
    losses, p, _, beyond = one_run(pair.inner)
    at, gain = _worst_place(pair.runs, pair.inner)
    with np.errstate(over="ignore"):
        ratios = np.exp(epsilons[:, None] - losses)
    values = np.interp(ratios.ravel(), at, gain, right=0.0).reshape(ratios.shape) @ p + pair.runs.mean * beyond
    values *= (1.0 + pair.runs.rounding) * _UP
    return np.minimum(np.minimum(values, 1.0), _all_runs(pair.runs, pair.mu, epsilons))


@lru_cache(maxsize=64)
def _worst_place(runs: Runs, inner: tuple[Parts, ...]) -> tuple[Array, Array]:
    """ρ, rising from 0 to where g is 0, and g there; it is linear between."""
    _, p, q, beyond = one_run(inner)
    corners = np.concatenate([[0.0], np.minimum(np.cumsum(p), 1.0), [1.0]])
    reached = np.concatenate([[beyond], beyond + np.cumsum(q), [1.0]])
    places = runs.places()
    s = np.unique(np.concatenate([corners, places, np.interp(places, reached, corners)]))
    # where a step of the polygon is too short for floats, its upper end counts
    corners, last = np.unique(corners[::-1], return_index=True)
    others = np.minimum(np.interp(s, corners, reached[::-1][last]) * (1 + 1e-12), 1.0)
    middle, width = (others[1:] + others[:-1]) / 2, np.diff(others)
    here, tangent = runs.slope(middle), runs.bend(middle) * width / 2
    slopes = runs.slope(s)
    rough = tangent > here / 2  # the tangent is no help there, and the least value is taken
    a = np.concatenate([slopes[:-1], np.where(rough, 0.0, slopes[1:])])
    b = np.concatenate([np.where(rough, runs.slope(others[1:]), here + tangent), np.where(rough, 1.0, here - tangent)])
    return _largest_line(a, b)


def _largest_line(a: Array, b: Array) -> tuple[Array, Array]:
    """The corners of the largest of 0 and all lines a − ρb, from ρ = 0 to where it is 0, and its values, rounded up."""
    a, b = np.append(a, 0.0), np.append(b, 0.0)
    kept: list[int] = []
    # the larger ρ, the smaller the b that counts
    for i in np.lexsort((a, b))[::-1].tolist():
        while kept and a[i] >= a[kept[-1]]:
            kept.pop()
        if kept and b[i] == b[kept[-1]]:
            continue
        while len(kept) > 1:
            first, second = kept[-2:]
            if (a[first] - a[second]) * (b[second] - b[i]) < (a[second] - a[i]) * (b[first] - b[second]):
                break
            kept.pop()
        kept.append(i)
    a, b = a[kept], b[kept]
    at = np.concatenate([[0.0], (a[:-1] - a[1:]) / (b[:-1] - b[1:])])
    values = a * (1 + 2.0**-48) - at * b
    at[-1] *= 1 + 2.0**-46
    return at, values


def _all_runs(runs: Runs, mu: float, epsilons: Array) -> Array:
    """The mean of the δ of √K·μ-Gaussian DP, from above."""
    if math.isinf(mu):
        return np.ones_like(epsilons)
    chances = runs.chances()
    ends = np.unique(np.floor(np.geomspace(1, chances.size + 1, 200)).astype(int))
    starts, most = ends[:-1] - 1, ends[1:] - 1
    shares = np.add.reduceat(chances, starts)
    shift = mu * np.sqrt(most)
    near, far = shift / 2 - epsilons[:, None] / shift, shift / 2 + epsilons[:, None] / shift
    with np.errstate(over="ignore", invalid="ignore"):
        tails = normal_tail(np.abs(near).ravel()).reshape(near.shape)
        deltas = np.where(near > 0, 1 - tails, tails)
        beyond = np.exp(epsilons[:, None]) * normal_tail(far.ravel()).reshape(far.shape)
        deltas = np.where(np.isfinite(beyond), np.maximum(deltas - beyond, 0.0), 1.0)
    left = max(0.0, 1.0 - runs.none - float(shares.sum()))
    return np.asarray((deltas @ shares + left) * (1 + 1e-9) + 1e-10)


# ------------------------------------------------------------------------------------------------------- one run


@lru_cache(maxsize=64)
def one_run(inner: tuple[Parts, ...]) -> tuple[Array, Array, Array, float]:
    """A symmetric pair with finitely many losses that dominates one run, and what P has beyond them."""
    curves = [_curve_of(parts) for parts in inner]
    epsilons = np.unique(np.concatenate([places for places, _ in curves]))
    if epsilons[-1] > _LARGEST:
        raise UnsupportedRelease(f"the PLD accountant has no bound for the best of runs that lose {epsilons[-1]:g}")
    values = np.max([[delta(at) for at in epsilons.tolist()] for _, delta in curves], axis=0)
    return pair_of_curve(epsilons, values)


def _curve_of(parts: Parts) -> tuple[Array, Callable[[float], float]]:
    """Where δ of a composition should be known, and δ."""
    (pair, count), *more = parts
    if count == 1 and not more:
        ends = np.array([pair.highest(-0.5 * x * x) for x in _DEVIATIONS.tolist()])
        return np.concatenate([np.linspace(0.0, ends[-1], 60), ends[ends > 0]]), pair.delta
    found = [(value, total) for value, total in answers(parts, _LEVELS) if math.isfinite(value)]
    if not found:
        raise ArithmeticError(f"the privacy loss of {parts!r} is known at no δ")
    places = np.concatenate([[0.0], np.maximum.accumulate([value for value, _ in found])])
    between = np.linspace(0.0, places.size - 1.0, 24 * places.size)
    return np.interp(between, np.arange(places.size), places), lambda at: min(total.delta(at) for _, total in found)


# -------------------------------------------------------------------------------------------------- from below


@dataclass(frozen=True)
class OrderedPair(LopsidedAtoms):
    """The best of K runs of an exact pair, in the order of ``cut`` and ``pace``."""

    exact = True
    runs: Runs
    inner: LossPair
    cut: float
    pace: float

    def largest(self) -> float:
        """The largest loss of an output that is told apart."""
        return float(self.atoms()[0][-1])

    @remembered(256)
    def atoms(self) -> tuple[Array, Array, Array, float]:
        p, q, behind, along = _rows(self.inner)
        order = np.argsort(np.concatenate([(behind - self.cut) / self.pace, along]), kind="stable")
        p, q = p[order], q[order]
        better_p, better_q = (np.concatenate([[0.0], np.cumsum(mass)[:-1]]) for mass in (p, q))
        some = (p > 0) & (q > 0)
        p, q = self.runs.gain(better_p, p)[some], self.runs.gain(better_q, q)[some]
        p, q = np.append(p, self.runs.none), np.append(q, self.runs.none)
        return atoms_below(p, q)


@lru_cache(maxsize=16)
def _rows(inner: LossPair) -> tuple[Array, Array, Array, Array]:
    """P and Q of what a run outputs, by like losses: those below 0, then others; and how much of P is before each."""
    lowest, highest = -inner.lowest(_TAIL), inner.highest(_TAIL)
    if max(-lowest, highest) > _LARGEST:
        raise UnsupportedRelease(f"no order is known of runs that lose {highest:g}")
    edges = np.linspace(lowest, highest, _OUTPUTS)
    p, q = inner.masses(edges)
    some = (p > 0) | (q > 0)
    p, q = _in_parts(p[some], q[some])
    first = p < q
    rows = np.flatnonzero(first), np.flatnonzero(~first)[::-1]
    behind, along = (np.cumsum(p[row]) - p[row] / 2 for row in rows)
    order = np.concatenate(rows)
    return p[order], q[order], behind, along


def _in_parts(p: Array, q: Array) -> tuple[Array, Array]:
    """With what is heavy cut in parts, the smallest ones at both ends."""
    heavy = (p > _HEAVY) | (q > _HEAVY)
    at = np.flatnonzero(heavy)
    times = np.ones(p.size, dtype=np.int64)
    times[at] = _PARTS.size
    shares = np.ones(int(times.sum()))
    for start in (np.cumsum(times) - times)[at]:
        shares[start : start + _PARTS.size] = _PARTS
    return np.repeat(p, times) * shares, np.repeat(q, times) * shares


def best_order(runs: Runs, inner: tuple[LossPair, ...], order: float) -> tuple[float, float]:
    """The cut and the pace by which the Rényi divergence of order 1 + ``order`` is largest, for any of ``inner``."""
    rows = [_rows(pair) for pair in inner]
    # the last cut is the best for one coin
    cuts = [*_CUTS.tolist(), *(float(p[: behind.size].sum()) for p, _, behind, _ in rows)]

    def moment(cut: float, pace: float) -> float:
        atoms = (OrderedPair(runs, pair, cut, pace).atoms() for pair in inner)
        return max(log_sum(np.log(p) + max(order, 0.1) * losses) for losses, p, _, _ in atoms)

    cut = max(cuts, key=lambda cut: moment(cut, 1.0))
    pace = max(_PACES, key=lambda pace: moment(cut, pace))
    return max(cuts, key=lambda cut: moment(cut, pace)), pace

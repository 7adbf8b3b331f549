"""The best of some runs: a bound on one moment of its loss, whatever the order by which the best is chosen.

What it is for: :mod:`accounting.adaptive.repeated_selection.many_selections`. By brute force, against orders of a
hundred outputs: ``tests/accounting/adaptive/test_many_selections.py``.

**Paths.** Let one run be dominated by the pair (P, Q) with the losses ℓ. By Blackwell's theorem it is that pair,
followed by noise; and the best run tells less than it does together with the ℓ that it came from. So let outputs be ℓ
and more, in an order without ties. From the best one on let s and u be what P and Q have of better outputs: from (0, 0)
they come to (1, 1), by ds = dP and du = e^(−ℓ)ds, and of all ds together ℓ has the law P. The best of K runs has the
laws φ(s)ds and φ(u)du, φ(s) = f′(1 − s), apart from what it has where K = 0. With τ = ln φ(s)/φ(u) the moment is

    P(K = 0) + ∫ φ(s)e^(t(ℓ + τ)) ds.

**A potential.** For any U(s, u) with U(0, 0) = u₀ and U(1, 1) = u₁, if at all places (s, u) that can be reached

    φ(s)e^(t(ℓ + τ)) + U_s + e^(−ℓ)U_u ≤ λ(ℓ),

then the integral is at most u₀ − u₁ + E_P[λ(ℓ)]. Here φ is const·(γ + (1 − γ)s)^(−1/θ), θ = 1/(1 + η), or const·
e^(−μs), with θ = 0. Let ψ = −φ′/φ, and

    U = κ·φ(s)/ψ(s)·e^((t + θ)τ)/(t + θ) + b(s)(u − s) + a(s),

κ a number, and b and a′ continuous and in each of some cells of s linear in φ(s). As ψ(s)(u − s) = (e^(θτ) − 1)/θ, and
τ where θ = 0, and along a path dτ = ψ(s)(e^(−ℓ − θτ) − 1)ds, what λ(ℓ) must exceed is, with c = (t + 1)/(t + θ),

    φ·(e^(tτ)(e^(tℓ) + κe^(−ℓ)) − κc·e^((t + θ)τ) − (db/dφ)·(e^(θτ) − 1)/θ) + b·(e^(−ℓ) − 1) + a′.

For a given τ that is linear in φ, hence largest at an end of the cell; in τ it is above its chords by an eighth of the
squared step times the least second derivative at most, which its three kinds of terms show. ∎

*What can be reached.* Given s, u is between what Q has where losses are the largest and where they are the smallest,
up to s of P. Both are polygons, of which τ is monotone along each side.

*Why it is near.* Where runs tell little and orders are small, the integral is ∫φ(ℓ + τ)²ds, and with U = −φ′(u − s)²,
which is κ = t nearly, it is ∫φℓ²ds less something positive: the worst order has the largest losses of either sign
first, and pairs of them do not move τ. In general κ, b and a come from a linear programme on a few places, shifts and
losses. Whatever it finds, λ is computed anew, for all. A programme for any U on a grid came only a few per cent lower.

Sums and products are right to 10⁻¹⁰ of all their terms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from accounting.adaptive.repeated_selection.one_selection import one_run
from accounting.amplification.runs import Runs
from accounting.arrays import Array
from accounting.compose.convolution import Parts

__all__ = ["log_moment"]

Inner = tuple[Parts, ...]

# The size of the linear programme: cells of s, losses, and shifts τ in each cell, the fewest, the most, and times the
# losses; and shifts where λ is computed.
_CELLS, _LOSSES, _SHIFTS, _FINE = 28, 24, (7, 33, 168), 160
# Losses that are rarer than this, over the mean number of runs, are put together.
_RARE = 3e-3
# φ has to change by that share in each cell, and exponents have to be floats.
_LEAST_CHANGE, _MOST = 1e-3, 600.0
_ROUNDING, _SLACK = 1e-10, 1e-8


@dataclass(frozen=True)
class _Cells:
    """Knots of s, φ there, and the least and the largest τ in the cells between."""

    knots: Array
    slope: Array
    lowest: Array
    highest: Array

    def shifts(self, count: int) -> Array:
        """τ, evenly spaced; of shape (cells, count)."""
        return np.asarray(np.linspace(self.lowest, self.highest, count, axis=1))


@dataclass(frozen=True)
class _Potential:
    """κ, and b and −a′ at the knots."""

    kappa: float
    linear: Array
    place: Array


@lru_cache(maxsize=64)
def log_moment(runs: Runs, inner: Inner, order: float) -> float:
    """ln E_P[e^(``order``·L)] of the best of K runs, at most; infinite where nothing is found."""
    cells = _cells(runs, inner)
    if np.any(np.diff(cells.slope) > -_LEAST_CHANGE * cells.slope[:-1]):
        return math.inf
    losses, p, _, _ = one_run(inner)
    if (order + 1) * (max(losses[-1], -losses[0]) + float(cells.highest.max())) > _MOST:
        return math.inf
    potential = _found(runs, inner, order)
    if potential is None:
        return math.inf
    cost, prices = _cost(runs, cells, order), _prices(runs, cells, order, potential, losses)
    # p is a law but for its rounding, and for what is beyond
    mean = float(p @ prices)
    mean = max(mean, mean / float(p.sum()))
    value = runs.none + float(cost @ np.append(potential.kappa, potential.place)) + mean
    sizes = cost[0] * potential.kappa + np.abs(potential.place).max() + float(p @ np.abs(prices))
    return math.log(value + _rounding(runs) * sizes) + _ROUNDING


@lru_cache(maxsize=16)
def _cells(runs: Runs, inner: Inner) -> _Cells:
    _, p, q, _ = one_run(inner)
    fine = np.unique(np.concatenate([runs.places(), np.linspace(0.0, 1.0, 1001)]))
    shares = np.cumsum(runs.gain(fine[:-1], np.diff(fine)))
    knots = np.interp(np.linspace(0.0, 1.0, _CELLS + 1), np.append(0.0, shares / shares[-1]), fine)
    up, down = (_polygon(p[at], q[at]) for at in (slice(None), slice(None, None, -1)))
    s = np.unique(np.concatenate([knots, up[0], down[0]]))
    here = np.log(runs.slope(s))
    highest, lowest = (here - np.log(runs.slope(np.interp(s, *side))) for side in (up, down))
    at = np.searchsorted(s, knots)
    slack = _SLACK * (1 + here[0] - here[-1])
    top = np.maximum(np.maximum.reduceat(highest, at[:-1]), highest[at[1:]]) + slack
    bottom = np.minimum(np.minimum.reduceat(lowest, at[:-1]), lowest[at[1:]]) - slack
    return _Cells(knots, runs.slope(knots), bottom, top)


def _polygon(p: Array, q: Array) -> tuple[Array, Array]:
    """The corners of sums of masses, from 0 to 1."""
    s, u = (np.concatenate([[0.0], np.minimum(np.cumsum(mass), 1.0)]) for mass in (p, q))
    s[-1] = u[-1] = 1.0
    return s, u


def _rounding(runs: Runs) -> float:
    """What a sum may be off by, as a share of its terms: differences of φ have fewer digits."""
    return _ROUNDING + runs.rounding / _LEAST_CHANGE


def _rise(theta: float, tau: Array) -> Array:
    """(e^(θτ) − 1)/θ."""
    return np.expm1(theta * tau) / theta if theta > 0 else tau


def _cost(runs: Runs, cells: _Cells, order: float) -> Array:
    """What κ and −a′ at every knot add to u₀ − u₁."""
    slope, width = cells.slope, np.diff(cells.knots)
    ends = slope[[0, -1]] ** 2 / runs.bend(cells.knots[[0, -1]]) / (order + runs.theta)
    # ∫(φ − φ_i)ds over the change of φ: how much of a cell its farther knot has
    farther = (runs.gain(cells.knots[:-1], width) - slope[:-1] * width) / np.diff(slope)
    place = np.append(width - farther, 0.0) + np.append(0.0, farther)
    return np.concatenate([[ends[0] - ends[1]], place])


def _prices(runs: Runs, cells: _Cells, order: float, potential: _Potential, losses: Array) -> Array:
    """λ at ``losses``, rounded up."""
    t, theta, kappa, off = order, runs.theta, potential.kappa, _rounding(runs)
    tau = cells.shifts(_FINE + 1)
    step = tau[:, 1] - tau[:, 0]
    c, bend = kappa * (t + 1) / (t + theta), (np.diff(potential.linear) / np.diff(cells.slope))[:, None]
    gain, stay, moved = (
        np.exp(t * losses) + kappa * np.exp(-losses),
        np.expm1(-losses),
        np.abs(bend * _rise(theta, tau)),
    )
    grown, fallen, risen = np.exp(t * tau), c * np.exp((t + theta) * tau), bend * _rise(theta, tau)
    # the least of the second derivative between two shifts, apart from what has a factor of the loss
    least = -((t + theta) ** 2) * fallen[:, 1:] - theta * np.maximum(bend, 0.0) * np.exp(theta * tau[:, 1:])
    worst = np.full(losses.size, -np.inf)
    for i in range(_CELLS):
        values = grown[i][:, None] * gain - (fallen[i] + risen[i])[:, None]
        curved = t * t * grown[i][:-1, None] * gain + least[i][:, None]
        top = np.maximum(values[1:], values[:-1]) + step[i] ** 2 / 8 * np.maximum(-curved, 0.0)
        sizes = grown[i][-1] * gain + fallen[i][-1] + moved[i].max()
        top = top.max(axis=0) + off * sizes
        for knot in (i, i + 1):
            b, a = potential.linear[knot], potential.place[knot]
            value = cells.slope[knot] * top + b * stay - a + off * (abs(b) * (1 + np.abs(stay)) + abs(a))
            worst = np.maximum(worst, value)
    return worst


def _found(runs: Runs, inner: Inner, order: float) -> _Potential | None:
    """A potential that is good at a few places, shifts and losses."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    cells, t, theta, n = _cells(runs, inner), order, runs.theta, _CELLS + 1
    losses, masses = _few_losses(runs, inner, t)
    fewest, most, times = _SHIFTS
    shifts = min(max(times // losses.size, fewest), most)
    cell, end, shift, loss = (axis.ravel() for axis in np.indices((_CELLS, 2, shifts, losses.size), dtype=np.int64))
    knot, row = cell + end, np.arange(cell.size)
    tau, x, slope = cells.shifts(shifts)[cell, shift], losses[loss], cells.slope[knot]
    drift = slope * _rise(theta, tau) / np.diff(cells.slope)[cell]
    # 0 without losses: 1 + κ(1 − c) times φ is added to −a′ afterwards
    c = (t + 1) / (t + theta)
    by_kappa = slope * (np.expm1(t * tau - x) - c * np.expm1((t + theta) * tau))
    # columns: κ, b and −a′ at the knots, λ at the losses over what e^(tL) is there
    columns = np.concatenate([0 * row, 1 + cell, 2 + cell, 1 + knot, 1 + n + knot, 1 + 2 * n + loss])
    grown = 1 + np.exp(t * losses)
    entries = np.stack([by_kappa, drift, -drift, np.expm1(-x), -np.ones(row.size), -grown[loss]])
    own = _cost(runs, cells, t)
    costs = np.concatenate([[own[0] + (1 - c) * (own[1:] @ cells.slope)], np.zeros(n), own[1:], masses * grown])
    least = -slope * np.expm1(t * (tau + x))
    # rows in units of their largest number, and then columns
    rows = np.abs(entries).max(axis=0)
    entries /= rows
    units = np.full(costs.size, 1e-300)
    np.maximum.at(units, columns, np.abs(entries).ravel())
    entries = entries.ravel() / units[columns]
    matrix = csr_array((entries, (np.tile(row, 6), columns)), shape=(row.size, units.size))
    # b and λ, or a′ and λ, may be moved together: so the last ones are 0
    ends = np.tile([[-np.inf], [np.inf]], units.size)
    ends[0, 0] = ends[:, n] = ends[:, 2 * n] = 0.0
    least, costs = least / rows, costs / units
    size, price = float(np.abs(least).max()), float(np.abs(costs).max())
    found = linprog(costs / price, matrix, least / size, bounds=ends.T, method="highs-ds")
    if found.x is None:
        return None
    values = found.x * size / units
    kappa = max(float(values[0]), 0.0)
    return _Potential(kappa, values[1 : 1 + n], values[1 + n : 1 + 2 * n] + (1 + kappa * (1 - c)) * cells.slope)


def _few_losses(runs: Runs, inner: Inner, order: float) -> tuple[Array, Array]:
    """Losses and what P has of them, near ones put together."""
    losses, p, q, _ = one_run(inner)
    tilted = p * np.exp(order * (losses - losses[-1]))
    rare = _RARE / runs.mean
    lowest = losses[np.searchsorted(np.cumsum(p), rare)]
    highest = losses[-1 - np.searchsorted(np.cumsum(tilted[::-1]), rare * tilted.sum())]
    at = np.searchsorted(np.linspace(lowest, highest, _LOSSES - 1), losses)
    in_p, in_q = (np.bincount(at, weights=mass) for mass in (p, q))
    some = (in_p > 0) & (in_q > 0)
    return np.log(in_p[some] / in_q[some]), in_p[some].astype(np.float64)

"""Samples of zCDP releases from below: coins, and Gaussian noise, that follow what was seen.

For a unit that is present a release that reads it with probability q has the losses ln(1 − q + qe^L), L those of what
is read. A player who knows a test for what is left, with the probabilities p and q under both laws, at some points of
the ε that is left, and moves to any of them, reaches p − t·q at every t: so tests of the nearest points will do, and
what they miss is of second order. At every point the best of some laws is played: coins that are certainly ρ-zCDP
(:mod:`accounting.worst_coins`), both ways round, and Gaussian noise of which some losses are not told apart.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from accounting.accountants import pld
from accounting.accountants.losses import normal_masses
from accounting.errors import UnsupportedRelease
from accounting.releases import ZCDP, Composed, FixedSizeSubsampled, PoissonSubsampled, Release
from accounting.worst_coins import SAFETY, worst_coin

__all__ = ["sampled_epsilon_at_least"]

Array = NDArray[np.float64]
Laws = tuple[Array, Array, Array]

# As many are played; of more, those that matter most.
_MOST = 128
# The coins that are tried, the losses of Gaussian noise, and the points of the grid.
_COINS, _LOSSES, _POINTS = 64, 64, 700
# The grid, in multiples of an ε from above.
_LOWEST, _HIGHEST = -0.5, 1.25
# e^ε of larger ones, and chances at smaller δ, are beyond floats.
_LARGEST, _RAREST = 500.0, 1e-200
# Far more than what rounding adds.
_ROUNDING = 1e-11


def sampled_epsilon_at_least(release: Release, delta: float) -> float:
    """An ε that samples of zCDP releases cost at least, also among such that are not sampled; 0 of any others."""
    parts = release.parts if isinstance(release, Composed) else ((release, 1),)
    played: list[tuple[float, float]] = []
    for part, count in parts:
        match part:
            # of a batch, all others contribute what the unit is replaced by
            case (
                PoissonSubsampled(release=ZCDP(rho=rho), rate=rate, adjacency="add_remove")
                | FixedSizeSubsampled(release=ZCDP(rho=rho), rate=rate)
            ):
                played += [(float(rho), float(rate))] * min(int(count), _MOST)
            case ZCDP(rho=rho):
                played += [(float(rho), 1.0)] * min(int(count), _MOST)
            case _:
                return 0.0
    played = sorted((one for one in played if min(one) > 0), key=lambda one: -one[0] * one[1] ** 2)[:_MOST]
    try:
        top = pld.epsilon(release, delta)
    except (UnsupportedRelease, ArithmeticError):
        return 0.0
    if len(played) < 2 or all(rate == 1 for _, rate in played) or not (0 < top < _LARGEST and delta >= _RAREST):
        return 0.0
    return _played(played, delta, top)


def _played(steps: list[tuple[float, float]], delta: float, top: float) -> float:
    """An ε at which ``steps`` certainly cost δ, 0 if there is none; ``top`` is about as large as it may be."""
    grid = top * np.linspace(_LOWEST, _HIGHEST, _POINTS)
    t, rows = np.exp(grid), np.arange(_POINTS)
    p = q = (grid < 0).astype(np.float64)
    known: dict[tuple[float, float], list[tuple[NDArray[np.intp], Array, Array]]] = {}
    for rho, rate in steps:
        if (rho, rate) not in known:
            known[rho, rate] = [_told(grid, rate, *law) for law in _laws(rho, delta)]
        found = []
        for places, in_p, in_q in known[rho, rate]:
            # of laws with the same number of losses all at once
            some_p, some_q = (p[places] * in_p).sum(axis=2), (q[places] * in_q).sum(axis=2)
            best = np.argmax(some_p - some_q * t[:, None], axis=1)
            found.append((some_p[rows, best], some_q[rows, best]))
        first = np.argmax([some_p - some_q * t for some_p, some_q in found], axis=0)
        p, q = (np.stack(some)[first, rows] for some in zip(*found, strict=True))
    # every test costs δ where p − e^ε·q is δ
    excess = p * (1 - _ROUNDING) - delta
    some = (excess > 0) & (q > 0)
    return max(0.0, float(np.max(np.log(excess[some] / q[some]), initial=0.0)) - _ROUNDING)


def _laws(rho: float, delta: float) -> list[Laws]:
    """Losses, and what P and Q have there, of shape (laws, losses)."""
    steepest = math.sqrt(-math.log(delta) / rho)
    coins = [worst_coin(rho * (1 - SAFETY), float(eta)) for eta in np.linspace(0.02, 1.2, _COINS) * steepest]
    some = [coin for coin in coins if coin.meets(rho)]
    found = []
    if some:
        p = np.exp([coin.log_p for coin in some])
        q = np.exp([coin.log_p - coin.high for coin in some])
        losses = np.array([(coin.high, coin.low) for coin in some])
        one, other = np.stack([p, 1 - p], axis=1), np.stack([q, 1 - q], axis=1)
        both = [losses, -losses[::4]], [one, other[::4]], [other, one[::4]]
        losses, p, q = (np.concatenate(some) for some in both)
        found.append((losses, p, q))
    mu = math.sqrt(2 * rho) * (1 - SAFETY)
    edges = np.linspace(-3.0, 3.0 + math.sqrt(-2 * math.log(delta)), _LOSSES - 1)
    p, q = normal_masses(edges - mu), normal_masses(edges)
    found.append((np.log(p / q)[None], p[None], q[None]))
    return found


def _told(grid: Array, rate: float, losses: Array, p: Array, q: Array) -> tuple[NDArray[np.intp], Array, Array]:
    """The point that every loss leads to, and what P and Q have there, on a sample of ``rate``."""
    moved = np.log1p(rate * np.expm1(losses))
    places = np.rint((grid[:, None, None] - moved - grid[0]) / (grid[1] - grid[0])).astype(np.intp)
    return np.clip(places, 0, grid.size - 1), (1 - rate) * q + rate * p, q

"""Many batches of a fixed size of noisy maxima, one after another: a bound on what they cost when each follows others.

One of n records is replaced, and a batch is m of them: q = m/n. The laws of a step are P = (1 − q)R + qS and Q =
(1 − q)R + qS′, as in :mod:`accounting.adaptive.fixed_batches.gaussian_batches`,
of choices without the record, with it, and with its substitute, and k steps are a game. Of R, S and S′ any two are
neighbours: what is lost between them is at most a coin of the kind of :mod:`accounting.adaptive.choices.coins`, of
one t for all ε.

*A step.* Let V be an upper bound, linear in y = e^x between points y_m at which its slope grows by s_m. What a step is
worth is the mean under Q of a function of P/Q that is as often bent, so

    E_P[V(x − L)] = V(x) + Σ_m y_m·s_m·H(x − ln y_m),

H(ε) the divergence E_Q(P/Q − e^ε)₊ for ε ≥ 0, and E_Q(e^ε − P/Q)₊ for ε < 0. With c = e^ε ≥ 1, c′ = 1 + (c − 1)/q and β
= c/c′ is P − cQ = q(S − c′((1 − β)R + βS′)), so that by convexity

    H(ε) ≤ q(1 − β)·H_{S, R}(ln c′) + qβ·H_{S, S′}(ln c′),

and H(−ε) is e^(−ε) times as much with S and S′ exchanged. These are divergences of three coins: that of S and R, for ε
≥ 0; that of S′ and R, for ε ≤ 0; and that of S and S′, for both. The sum is one of three such sums, each of which is at
most its largest value over the t of its coin alone; and a divergence is at most the largest one of t in a cell, which
is reached at (ε + E)/2 or next to it. What cells add falls with their number.

*How far it is from the truth.* Where R is S′, the coin of S′ and R is counted in vain. With Gumbel noise three outcomes
are enough for the truth: given what normalises the laws, u = dS/dR and v = dS′/dR lie in a hexagon, as u, v and u/v are
within factors of e^ε, and have the mean (1, 1); a step is worth the mean of a convex function of them, so they may be
put on three of its corners. Of two outcomes one law is a mixture of the others, and the worth is convex in each law:
the worst have R = S′ or R = S, which is a Poisson sample's game. While ε is below about 2, nothing that is worse in
these games was found by search; for stronger choices three outcomes are (:mod:`accounting.lower.maxima_in_batches`). A
proof has to use what V is like: for other convex functions, such as a divergence at one level above 0 plus one below,
three outcomes are worse by 1 % at ε = 1 and by 45 % at ε = 3.

*Numbers.* V_k is convex in y, and neighbours may change places: it is known from above by its values on a grid in x ≥
0. Where what is interpolated bends downwards nothing is counted. What differences lose of digits is added.

Serves mini-batches of a fixed size that are selected from. 50 × ``FixedSizeSubsampled(NoisyMax(0.5), 10, 300)`` cost
0.251 at δ = 1e-6, and 0.288 step by step. By brute force: ``tests/accounting/adaptive/test_games.py``.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from accounting.adaptive.choices.coins import CoinKind, largest_moments
from accounting.adaptive.engine import Batches, Board, largest_means, play
from accounting.arrays import UNIT_ROUNDOFF, Array

__all__ = ["MOST_STEPS", "ReplacedMaxima", "is_playable"]


#: More steps are several games, of finer cells.
MOST_STEPS = 256
# Cells of t, what they add falls with their number: so many of all steps together, but at least and at most so many.
_CELLS, _FEWEST_CELLS, _MOST_CELLS = 20_000, 32, 128
# The grid's step as a share of how far the losses of a middle coin are apart; points of the largest loss, and in all.
_FINE, _FEWEST, _MOST, _MOST_POINTS = 0.1, 40, 400, 6000


def is_playable(kind: CoinKind, rate: float) -> bool:
    """Whether the losses of a step are neither next to nothing nor too strong."""
    return 1e-4 <= kind.span <= 20.0 and 1e-6 <= rate <= 1 - 1e-6


def _coin(kind: CoinKind, first: float, last: float, epsilon: Array, *, exchanged: bool) -> Array:
    """The largest divergence of coins in a cell at ``epsilon`` ≥ 0, or of those with P and Q exchanged."""
    # what a divergence subtracts is a multiple of e^(−t) and one of e^t, least here
    best = (kind.span + (-epsilon if exchanged else epsilon)) / 2
    t = np.clip(best, first, last)
    u = np.exp(-t)
    in_q, more = kind.chances(u, -np.expm1(-t), u - math.exp(-kind.span))
    less = 1 - in_q - more if exchanged else in_q
    return np.asarray(np.maximum(more - np.expm1(epsilon) * less, 0.0) * (1 + 1e-12) + 4 * UNIT_ROUNDOFF)


def _parts(kind: CoinKind, rate: float, step: float, reach: int, cells: int) -> list[Array]:
    """Bounds on the divergences on ``step``·(−reach, …, reach): of every cell, for each of the three coins."""
    at = step * np.arange(reach + 1, dtype=np.float64)
    more = np.expm1(at) / rate
    beta, inner, falling = np.exp(at) / (1 + more), np.log1p(more), np.exp(-at)
    ends = np.linspace(*kind.ends, cells + 1).tolist()
    nothing = np.zeros(reach)
    present, absent, both = [], [], []
    for first, last in itertools.pairwise(ends):
        up, down = (_coin(kind, first, last, inner, exchanged=side) * rate for side in (False, True))
        to_rest = (1 - rate) * more / (1 + more) * up
        present.append(np.concatenate([nothing, to_rest]))
        absent.append(np.concatenate([(falling * to_rest)[:0:-1], [0.0], nothing]))
        both.append(np.concatenate([(falling * beta * down)[:0:-1], beta * up]))
    return [np.array(one) * (1 + 1e-12) for one in (present, absent, both)]


def _grid(kind: CoinKind, rate: float, count: int, tail: float) -> tuple[float, int, int]:
    """The step, how many of them the largest loss has, and how many the grid."""
    sampled = replace(kind, rate=rate)
    highest = sampled.highest
    orders = np.geomspace(1e-2, 1e3, 80) / highest
    # about; what is beyond counts all the same
    top = min(
        count * highest,
        1.15 * float(np.min((1.2 * count * largest_moments(sampled, orders) - math.log(tail)) / orders)),
    )
    step = min(max(_FINE * sampled.width, highest / _MOST), highest / _FEWEST)
    step = max(step, top / _MOST_POINTS)
    reach = math.ceil(highest / step) + 1
    return step, reach, max(math.ceil(top / step), 2 * reach) + 2


class ThreeCoins:
    """What three coins add at most, in so many cells each, where losses have up to ``reach`` steps."""

    def __init__(self, kind: CoinKind, rate: float, step: float, reach: int, cells: int) -> None:
        parts = _parts(kind, rate, step, reach, cells)
        self._board, self._reach = Board(step, symmetric=True), reach
        self._laws = np.ascontiguousarray(np.concatenate(parts)[:, ::-1])
        # a slope is right to a few units of V, and there are so many
        largest = sum(float(part.max()) for part in parts)
        self._rounding = 32 * UNIT_ROUNDOFF * (2 * reach + 1) * largest / math.expm1(step)

    def best(self, values: Array) -> Array:
        # with one point more for the slope
        step, whole = self._board.step, self._board.continued(values, self._reach + 1, self._reach + 1)
        slopes = np.diff(whole) / math.expm1(step)
        bends = np.maximum(slopes[1:] - slopes[:-1] * math.exp(step), 0.0)
        more = largest_means(self._laws, bends, values.size, groups=3)
        return np.minimum((values + more) * (1 + 1e-12) + self._rounding * whole[: values.size], 1.0)


@lru_cache(maxsize=16)
def _curve(kind: CoinKind, rate: float, count: int, tail: float) -> tuple[Array, Array]:
    """Losses from 0 on, evenly spaced, and V there after ``count`` steps, rounded up."""
    step, reach, size = _grid(kind, rate, count, tail)
    family = ThreeCoins(kind, rate, step, reach, min(max(_CELLS // count, _FEWEST_CELLS), _MOST_CELLS))
    return step * np.arange(size + 1, dtype=np.float64), play([(family, count)], np.zeros(size + 1))


@dataclass(frozen=True)
class ReplacedMaxima(Batches):
    """``count`` batches of noisy maxima whose coins are of a ``kind``; last of a composition.

    ``tail`` is a probability that may be cut off.
    """

    kind: CoinKind
    rate: float
    count: int
    tail: float

    def _curve(self) -> tuple[Array, Array]:
        return _curve(self.kind, self.rate, self.count, self.tail)

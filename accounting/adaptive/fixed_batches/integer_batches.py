"""Many batches of a fixed size with noise on one integer, one after another: what they cost when each follows others.

One of n records is replaced, and a batch is m of them: q = m/n. The laws of a step are P = (1 − q)R + qS and Q =
(1 − q)R + qS′, as in :mod:`accounting.adaptive.fixed_batches.gaussian_batches`,
here with R, S and S′ discrete Gaussian or Laplace noise around three integers r, s and s′ no two of which are farther
apart than k. Which three are worst depends on ε, so the steps are a game.

*Theorem.* Let a mass function be symmetric, and its logarithm concave. Of every three integers there are three of

    s′ = 0, r = i, s = k,    0 ≤ i ≤ k,        and        r = 0, s′ = i, s = k,    0 < i < k,

or the last ones with s and s′ exchanged, of which H(c), the divergence of P and Q, is at least as large at every c.

*Proof.* Let s′ < s, if need be by a reflection, which leaves H as it is; if s = s′ nothing is lost. H(c) is the largest
qS(A) − (c − 1)(1 − q)R(A) − cqS′(A) over all sets A; if c < 1 it is 1 − c and the largest cqS′(A) − (1 − c)(1 − q)R(A)
− qS(A). Let r ≤ s, and let s move upwards. If c ≥ 1 the best A is a half-line above some x, as S/R and S/S′ do not
fall; so S(A) grows. If c < 1 the best A lies where S′ > S, hence below s; so S(A) falls. Either way H grows, until s is
at k from the lower one of r and s′. If s < r, a reflection with P and Q exchanged leads to that. ∎

(Where r lies between, moving it is worse on one side of c = 1 and better on the other one.)

*Numbers.* H is known at the points of a grid, between which it lies below its chords, as it is convex; neighbouring i
share the largest of their curves where there are many. What is reached with r = s′ alone, at every step, is mostly less
by ½ % or not at all, and by 1 to 2 % where totals are a few hundredths.

Serves counts of a mini-batch of a fixed size: 100 × ``FixedSizeSubsampled(DiscreteGaussian(2.0, shift=3), 10, 500)``
cost 0.480 at δ = 1e-6, and 0.520 step by step. By brute force, the theorem and the game:
``tests/accounting/adaptive/test_integer_batches.py``.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from accounting.adaptive.engine import Batches, moved
from accounting.adaptive.fixed_batches.games_on_grids import (
    Fineness,
    Laws,
    grid,
    places_up_to,
    play_above,
    steps_to_play,
)
from accounting.amplification.subsampling import log_mixture
from accounting.arrays import Array
from accounting.loss.curves import pair_of_whole_curve
from accounting.loss.integers import IntegerPair, atoms_of
from accounting.loss.pair import histogram

__all__ = ["ReplacedIntegers", "most_steps"]


# More steps are several games. Losses of all laws together, of which more take too long.
_MOST_STEPS, _MOST_ATOMS = 2048, 3e6
_GRID = Fineness(0.05, 0.1, 1500, 8000)
# How many curves all i have, at most: where r is between the others, and where s′ is.
_BETWEEN, _BESIDE = 24, 2
# How far losses may be off.
_MISSED = 1e-13


def most_steps(pair: IntegerPair, rate: float, tail: float) -> int:
    """How many steps make a game; 0 where it would take too long, or no grid is fine and long enough.

    Of each step ``tail`` is cut off.
    """
    z, k = pair.noise_multiplier, pair.shift
    if not (1 / 12 <= z <= 1e4 and 1e-7 <= rate <= 1 - 1e-6 and 3 * k * atoms_of(pair.noise, z, k) <= _MOST_ATOMS):
        return 0
    step, _ = grid(*_sizes(pair, rate, tail), _GRID)
    return _MOST_STEPS if step <= 0.5 * _deviation(pair, rate) else 0


class _Triples:
    """The laws of a step, of any three integers."""

    def __init__(self, pair: IntegerPair, rate: float) -> None:
        (_, self._logs), self._rate = pair.log_laws(np.arange(pair.shift + 1.0)), rate

    def losses(self, r: int, s: int, other: int) -> tuple[Array, Array, Array]:
        """Losses, and the masses of P and of Q, in no order."""
        absent = self._logs[r]
        in_p, in_q = (log_mixture(self._rate, self._logs[at] - absent) for at in (s, other))
        return in_p - in_q, np.exp(absent + in_p), np.exp(absent + in_q)

    def curve(self, edges: Array, r: int, s: int, other: int) -> Array:
        """H at ``edges``, rounded up; for losses above 0 as what lies above, and below 0 as what lies below."""
        p, q = histogram(edges, *self.losses(r, s, other))
        above, below = (
            np.array([np.cumsum(mass[::-1])[::-1][1:] for mass in (p, q)]),
            np.array([np.cumsum(mass)[:-1] for mass in (p, q)]),
        )
        c = np.exp(edges)
        rising = edges >= 0
        in_p, in_q = np.where(rising, above, below)
        found = np.where(rising, in_p - c * in_q, -np.expm1(edges) + c * in_q - in_p)
        off = (in_p + c * in_q) * np.where(in_p + c * in_q > 1e-3, 3e-14, 3e-12)
        return np.asarray(np.maximum(found + off, np.maximum(-np.expm1(edges), 0.0)))


@lru_cache(maxsize=64)
def _deviation(pair: IntegerPair, rate: float) -> float:
    """That of one loss, where S′ = R."""
    losses, _, q = _Triples(pair, rate).losses(0, pair.shift, 0)
    return math.sqrt(float(q @ np.square(losses)))


@lru_cache(maxsize=64)
def _sizes(pair: IntegerPair, rate: float, tail: float) -> tuple[float, float]:
    """How large a loss may be, and about the deviation of one."""
    triples, k = _Triples(pair, rate), pair.shift
    highest = 0.0
    for r in {0, k // 2, k}:
        losses, p, _ = triples.losses(r, k, 0)
        order = np.argsort(-losses)
        rare = int(np.searchsorted(np.cumsum(p[order]), tail))
        highest = max(highest, float(losses[order[rare]]))
    return highest * (1 + 1e-12), _deviation(pair, rate)


def _groups(first: int, last: int, most: int) -> list[range]:
    """All i from ``first`` to ``last``, in as many ranges as there may be."""
    ends = np.unique(np.round(np.linspace(first, last + 1, min(most, last + 1 - first) + 1)).astype(int)).tolist()
    return [range(a, b) for a, b in itertools.pairwise(ends)]


@lru_cache(maxsize=8)
def _laws(pair: IntegerPair, rate: float, tail: float) -> Laws:
    """The losses of all three integers that there may be."""
    step, reach = grid(*_sizes(pair, rate, tail), _GRID)
    places, k = places_up_to(reach), pair.shift
    edges, triples = np.asarray(step * places, dtype=np.float64), _Triples(pair, rate)
    curves = []
    for group in _groups(0, k, _BETWEEN):
        curves.append(np.max([triples.curve(edges, i, k, 0) for i in group], axis=0))
    for group in _groups(1, k - 1, _BESIDE) if k > 1 else ():
        curve = np.max([triples.curve(edges, 0, k, i) for i in group], axis=0)
        curves += [curve, -np.expm1(edges) + np.exp(edges) * curve[::-1]]
    masses, beyond = [], 0.0
    for curve in curves:
        losses, p, _, above = pair_of_whole_curve(edges, curve)
        mass = np.zeros(2 * reach + 1)
        mass[np.rint(losses / step).astype(int) + reach] = p
        mass[reach] += max(0.0, 1.0 - float(p.sum())) + 1e-14
        masses.append(mass)
        beyond = max(beyond, above)
    return Laws(np.array(masses), step, beyond)


@lru_cache(maxsize=4)
def _values(pair: IntegerPair, rate: float, most: int, tail: float) -> tuple[Array, Array]:
    return play_above(_laws(pair, rate, tail), most, tail)


@dataclass(frozen=True)
class ReplacedIntegers(Batches):
    """``count`` batches with the noise of ``inner``, last of a composition.

    Of each loss what is rarer than ``tail`` counts as infinite.
    """

    inner: IntegerPair
    rate: float
    count: int
    tail: float

    def _curve(self) -> tuple[Array, Array]:
        losses, values = _values(self.inner, self.rate, steps_to_play(self.count), self.tail)
        return moved(losses, values[self.count], self.count * _MISSED)

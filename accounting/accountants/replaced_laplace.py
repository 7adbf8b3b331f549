"""Many batches of a fixed size with Laplace noise, one after another: what they cost when each follows the others.

One of n records is replaced, and a batch is m of them: q = m/n. As in :mod:`accounting.accountants.replaced_steps` the
laws of a step are P = (1 − q)R + qS and Q = (1 − q)R + qS′; here R, S and S′ are Laplace noise of scale 1 around three
points of a space of any dimension, no two of which are farther apart than θ in the L1 norm. Which three are worst
depends on ε, so k steps are a game. Its laws are curves of which all triples, or their mirror images, have one that is
worse: :mod:`accounting.accountants.laplace_triples` has the theorem, and :mod:`accounting.accountants.laplace_cells`
the cells.

*From below* a player has S′ = R; three points at equal distances, where α = s and t = θ/2
(:class:`~accounting.accountants.triangles.LaplaceTrianglePair`) or α = 0 and t = θ/2
(:class:`~accounting.accountants.triangles.LaplaceCornerPair`, in many strong steps the worst that is known); and their
mirror images. Of the last two the player sees less than there is.

*Numbers.* Curves are bounded at a few c = e^ε, between which a convex function lies below its chords; and what no
triple passes is put on a grid, on which the game is played (:mod:`accounting.accountants.loss_games`). Brackets of
up to a thousand steps are at most 1 % wide, for 2 < θ < 6 up to 2.6 %; those of ten thousand 1 % for θ ≤ 2 (1.5 % at
rates of a half), else 1 to 3 %: several games, each of which may be played anew. Totals above 700, where e^ε is beyond
floats from below, come to 8 %. With θ > 12 there is no game.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from accounting.accountants.curves import (
    Batches,
    pair_of_points_below,
    pair_of_whole_curve,
)
from accounting.accountants.laplace_cells import curves
from accounting.accountants.loss_games import Laws, laws_below, play_above, play_below, quarters, steps_to_play
from accounting.accountants.losses import LaplacePair
from accounting.accountants.sampled_losses import ReplacedPair, SubsampledPair
from accounting.accountants.triangles import LaplaceCornerPair, LaplaceTrianglePair

__all__ = ["ReplacedLaplace", "deviation", "most_steps"]

Array = NDArray[np.float64]

# The grid's step as a share of a loss's deviation, and how many nodes a step has at least, and at least where the most
# frequent losses are much smaller than that; and from below.
_FINE, _FINE_BELOW = (0.08, 16, 32), (0.05, 1, 400)
# Beyond this there are too many nodes.
_LARGEST_SHIFT = 12.0


def most_steps(theta: float, rate: float) -> int:
    """How many steps make a game; 0 where it is of no use."""
    return 1024 if 1e-4 <= theta <= _LARGEST_SHIFT and 1e-7 <= rate <= 1 - 1e-6 else 0


def deviation(theta: float, rate: float) -> float:
    """About that of one loss, where S′ = R."""
    return rate * math.sqrt((2 * math.expm1(theta) + math.expm1(-2 * theta)) / 3)


def _curves(theta: float, rate: float, losses: Array) -> list[Array]:
    """Bounds on H at ``losses``, of which all triples or their mirror images have one that is worse."""
    k, halves = curves(theta, rate, deviation(theta, rate))
    pair = ReplacedPair(LaplacePair(theta), rate)
    # no triple is worse, and beyond the largest loss there is nothing
    most = np.array([pair.delta(float(loss)) for loss in losses])
    most[-1] = 0.0
    rising = losses >= 0
    # H is convex in e^ε
    above, below, down = np.expm1(losses[rising]), -np.expm1(losses[~rising]), (k / (1 + k))
    found = []
    for up, other in halves:
        curve = np.empty(losses.size)
        curve[rising] = np.interp(above, k, up)
        curve[~rising] = below + np.interp(below, down, other)
        found.append(np.minimum(most, curve * (1 + 1e-12)))
    return found


def _nodes(theta: float, rate: float, fine: tuple[float, int, int]) -> int:
    """Up to the largest loss."""
    highest, frequent = math.log1p(rate * math.expm1(theta)), -math.log1p(rate * math.expm1(-theta))
    share, least, most = fine
    least = max(least, min(most, math.ceil(3 * highest / frequent)))
    return max(least, math.ceil(highest / (share * deviation(theta, rate))))


@lru_cache(maxsize=8)
def _laws(theta: float, rate: float) -> Laws:
    """The losses of all cells and their mirror images."""
    highest = math.log1p(rate * math.expm1(theta))
    reach = _nodes(theta, rate, _FINE)
    step = highest / reach
    losses = step * np.arange(-reach - 1, reach + 2, dtype=np.float64)
    zero, masses = reach + 1, []
    for curve in _curves(theta, rate, losses):
        mirrored = -np.expm1(losses) + np.exp(losses) * curve[::-1]
        mirrored[-1] = 0.0
        for values in (curve, mirrored):
            places, p, _, _ = pair_of_whole_curve(losses, np.maximum(values, np.maximum(-np.expm1(losses), 0.0)))
            mass = np.zeros(losses.size)
            mass[np.rint(places / step).astype(int) + zero] = p
            mass[zero] += max(0.0, 1.0 - float(p.sum())) + 1e-14
            masses.append(mass)
    return Laws(np.array(masses), step)


@lru_cache(maxsize=8)
def _laws_below(theta: float, rate: float) -> Laws:
    """The three laws that a player has from below, and their mirror images."""
    one, other = SubsampledPair(LaplacePair(theta), rate, True), LaplaceTrianglePair(theta, rate)
    tops = np.array([math.log1p(rate * math.expm1(theta)), other.highest(0.0)])
    # both largest losses a little above a node, where nothing else is above to make up for what is below
    fewest = _nodes(theta, rate, _FINE_BELOW)
    sizes = np.arange(fewest, 2 * fewest)
    reach = int(sizes[np.argmin(sizes * (tops[1] / tops[0]) % 1.0)])
    step = tops[0] * (1 - 1e-9) / reach
    places = np.arange(-reach - 1, reach + 2)
    edges = np.sort(np.concatenate([quarters(step * places), tops * (1 - 1e-10)]))
    corner = LaplaceCornerPair(theta, rate)
    return laws_below([pair.masses(edges) for pair in (one, other, corner)], places, step)


@lru_cache(maxsize=4)
def _values(theta: float, rate: float, most: int, tail: float) -> tuple[Array, Array]:
    return play_above(_laws(theta, rate), most, tail)


@dataclass(frozen=True)
class ReplacedLaplace(Batches):
    """``count`` steps with Laplace noise of scale 1 and a sensitivity of ``theta``, last of a composition.

    ``tail`` is a probability that may be cut off. With ``from_below`` it is a lower bound on what the worst of these
    cost, where they come last.
    """

    theta: float
    rate: float
    count: int
    tail: float
    from_below: bool = False

    def _curve(self) -> tuple[Array, Array]:
        losses, values = _values(self.theta, self.rate, steps_to_play(self.count), self.tail)
        return losses * (1 + 1e-13), values[self.count]

    def _below(self) -> tuple[Array, Array, Array]:
        return pair_of_points_below(*play_below(_laws_below(self.theta, self.rate), self.count, self.tail))

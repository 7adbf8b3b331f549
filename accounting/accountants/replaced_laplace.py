"""Many batches of a fixed size with Laplace noise, one after another: what they cost when each follows the others.

One of n records is replaced, and a batch is m of them: q = m/n. As in :mod:`accounting.accountants.replaced_steps` the
laws of a step are P = (1 − q)R + qS and Q = (1 − q)R + qS′; here R, S and S′ are Laplace noise of scale 1 around three
points of a space of any dimension, no two of which are farther apart than θ in the L1 norm. Which three are worst
depends on ε, so k steps are a game. Its laws are bounds on the curves of all triples.

*Arms.* In every coordinate one of the three points lies between the others. So with M the noise around the middle ones,
each coordinate moves two of R, S, S′ away from M, to opposite sides. Let r, s and s′ be how far they are moved all in
all: r + s, r + s′ and s + s′ are their distances, at most θ. A point may be moved along a coordinate of its own, too:
who forgets it has the old laws. So let two of the sums be θ: one arm is θ − t, and two are t ≤ θ/2.

*Theorem.* Write x_R for the probability R(A), and so on. For w, a, b ≥ 0

    max over A of w·x_S − a·x_R − b·x_S′  ≤  max over α of D(α),    D(α) = E_M[(w·τ₁τ₂ − aρ₂ − bσ₁)₊],

where along a first coordinate S moves by α and S′, to the other side, by s′; and along a second one S by s − α and R,
to the other side, by r; τ, σ and ρ are their densities over M. So three such points have D(α). This is what the
divergence asks for: with c = e^ε ≥ 1 it is the left side for w = q, a = (1 − q)(c − 1), b = cq, and for c ≤ 1 it is 1 −
c and, with S and S′ exchanged and A for what it is not, that for w = cq, a = (1 − q)(1 − c), b = q.

*Proof.* Where one coordinate moves R and S′, to opposite sides, one of its factors of ρ and σ falls as the other rises,
and (wτ − aρ − bσ)₊ has a mixed derivative ≥ 0 in them; so its mean grows if they are drawn independently, coordinate
after coordinate. Now given all else, sections of A along the coordinates that move S′ ask for the same, with weights of
any size on S, M and S′. On the way from M to S in small steps x and 1 − x change by no more than a factor of e^(ds),
and so from M to S′ (see :class:`~accounting.accountants.losses.LaplacePair`); half-lines of a single coordinate reach
both bounds at once. The same holds of the coordinates that move R. ∎

*Lemma.* Longer arms have no less; for who forgets a coordinate has the old laws. (i) D grows if S's arm along a
coordinate does as much as the other one there shrinks. (ii) Let α* = ½(s + ln(w/(ae^(−r) + be^(−s′)))). Where α ≥ α*,
and at α = s if we^(−s) ≤ ae^(−r) + be^(−s′), D does not fall as α grows by as much as s − α shrinks; (iii) and not as
α grows by as much as r and s′ both shrink. The same holds of s − α.

*Proof.* Sections of the best A along the first coordinate are half-lines on the side of S. At their ends y the gain is
0, wτ₂f_S = aρ₂f_M + bf_S′, f the densities along it. As A is the best, D changes as if it stood. So S's arm there gains
E[wτ₂f_S] = aX + bY, where X is the mean of ρ₂f_M, and Y that of f_S′, what S′(A) loses as s′ grows: (i). Of half-lines
f_M is min(h, 1 − h), h = M's probability. If 0 gains nothing, h ≤ ½ in all sections and X = R(A), Y = S′(A). What S
gains along the second coordinate is aY′ + bX′ likewise, Y′ what R(A) loses as r grows; and a mean of min(h, 1 − h) is
at most that of h, so Y′ ≤ R(A) and X′ ≤ S′(A). Hence aX + bY is at least aY′ + bX′ and aY′ + bY. And 0 gains nothing
if wτ₂e^(−α) ≤ aρ₂ + be^(−s′), where τ₂ ≤ e^(s−α), ρ₂ ≥ e^(−r), and τ₂ = 1 if α = s. ∎

*Which arms.* For t in [t₀, t₁] nothing is worse than the largest of:

* With R's arm θ − t: D at t = θ/2, by (i) along R's coordinate.
* With S's arm θ − t and c ≤ 1, where S′ is the one that is to be likely: D at t₁, by (i) along the first coordinate.
* With S's arm θ − t and c ≥ 1: qe^(t−θ) ≤ (c − 1 + q)e^(−t), and 2α* = θ − ln(1 + (c − 1)/q) whatever t is. So D at
  t₀, at α = 0 or α = s; or some α with α and s − α below α*.

With S′'s arm θ − t the laws are the mirror images. Of α and s − α below α*, at c ≤ 1 too, all are counted in cells,
with longer arms. There is little to gain.

*From below* a player has S′ = R; three points at equal distances, where α = s and t = θ/2
(:class:`~accounting.accountants.triangles.LaplaceTrianglePair`) or α = 0 and t = θ/2
(:class:`~accounting.accountants.triangles.LaplaceCornerPair`, in many strong steps the worst that is known); and their
mirror images. Of the last two the player sees less than there is.

*Numbers.* Densities are moved to the ends of pieces, which is more in convex order, and what no triple passes is put
on a grid, on which the game is played (:mod:`accounting.accountants.loss_games`): a few cells of t with their mirror
images. Brackets are at most 0.5 % wide for θ ≤ 1. Those of a thousand steps and more come to 1 % for θ = 1.4, to 3 %
for θ = 2, and to 5 to 10 % for θ > 2: a cell has R on the far side of S above 0, and of S′ below, on different axes,
where R's arm is as long for both as one is (for large θ the variance of such a loss is 6/5 of
the corner's); a hundred come to 1 or 2 %. With θ > 12 there is no game.
"""

from __future__ import annotations

import itertools
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
from accounting.accountants.loss_games import Laws, laws_below, play_above, play_below, quarters, steps_to_play
from accounting.accountants.losses import LaplacePair
from accounting.accountants.sampled_losses import ReplacedPair, SubsampledPair
from accounting.accountants.triangles import LaplaceCornerPair, LaplaceTrianglePair

__all__ = ["ReplacedLaplace", "deviation", "most_steps"]

Array = NDArray[np.float64]

# t as shares of θ: the ends of the cells.
_CELLS = (0.0, 0.01, 0.03, 0.06, 0.1, 0.15, 0.21, 0.27, 0.33, 0.38, 0.42, 0.45, 0.47, 0.485, 0.495, 0.5)
# s − α as a share of s: cells that are narrow at both ends.
_SHARES = 0.5 - 0.5 * np.cos(np.pi * np.linspace(0.0, 1.0, 33))
# Pieces of a density between its largest and its smallest value, where they are more than this wide.
_PIECES, _WIDEST = 12, 0.15
# The grid's step as a share of a loss's deviation; and from below.
_FINE, _FINE_BELOW = 0.08, 0.05
# Beyond this there are too many nodes.
_LARGEST_SHIFT = 12.0


def most_steps(theta: float, rate: float) -> int:
    """How many steps make a game; 0 where it is of no use."""
    return 1024 if 1e-4 <= theta <= _LARGEST_SHIFT and 1e-7 <= rate <= 1 - 1e-6 else 0


def deviation(theta: float, rate: float) -> float:
    """About that of one loss, where S′ = R."""
    return rate * math.sqrt((2 * math.expm1(theta) + math.expm1(-2 * theta)) / 3)


def _densities(arm: float) -> tuple[Array, Array]:
    """M's masses and the values of ρ of a point at this distance, a little larger in convex order."""
    if arm == 0.0:
        return np.ones(1), np.ones(1)
    y = np.linspace(0.0, arm, max(_PIECES, math.ceil(arm / _WIDEST)) + 1)
    ratios = np.exp(2 * y - arm)
    in_m, in_r = 0.5 * np.exp(-y[:-1]) * -np.expm1(-y[1]), 0.5 * np.exp(y[1:] - arm) * -np.expm1(-y[1])
    up = np.clip((in_r - in_m * ratios[:-1]) / np.diff(ratios), 0.0, in_m)
    masses = np.zeros(y.size)
    masses[[0, -1]] = 0.5, 0.5 * math.exp(-arm)
    masses[:-1] += in_m - up
    masses[1:] += up
    return masses, ratios


def _opposite(one: float, other: float) -> tuple[Array, Array, Array]:
    """M's masses and the densities of two points that are moved to either side along one coordinate."""
    (left, tau), (right, sigma) = _densities(one), _densities(other)
    # either has the other's side as one half
    masses = np.concatenate([left, right])
    masses[[0, left.size]] -= 0.5
    taus = np.concatenate([tau, np.full(sigma.size, math.exp(-one))])
    return masses, taus, np.concatenate([np.full(tau.size, math.exp(-other)), sigma])


def _gain(w: Array, arms: tuple[float, float], a: Array, near: float, b: Array, other: float) -> Array:
    """D, for S's ``arms`` along the two coordinates, R's ``near`` and S′'s ``other``; all weights per point."""
    first, tau, sigma = _opposite(arms[0], other)
    second, more, rho = _opposite(arms[1], near)
    gain = np.multiply.outer(w, np.outer(tau, more))
    gain -= np.multiply.outer(a, rho)[:, None, :]
    gain -= np.multiply.outer(b, sigma)[:, :, None]
    np.maximum(gain, 0.0, out=gain)
    return np.asarray((gain @ second @ first) * (1 + 1e-12) + 1e-15 * w)


def _ends(w: Array, far: float, a: Array, near: float, b: Array, other: float) -> Array:
    """The larger of D at α = 0 and α = s."""
    return np.maximum(_gain(w, (far, 0.0), a, near, b, other), _gain(w, (0.0, far), a, near, b, other))


def _between(w: Array, far: tuple[float, float], a: Array, near: float, b: Array, other: float, limit: Array) -> Array:
    """At least D wherever α and s − α are at most ``limit``, for s between both of ``far``."""
    least, most = far
    found = np.zeros(w.size)
    for share, end in itertools.pairwise(_SHARES):
        some = (most * (1 - end) <= limit) & (least - most * (1 - share) <= limit)
        if some.any():
            arms = most * (1 - share), most * end
            found[some] = np.maximum(found[some], _gain(w[some], arms, a[some], near, b[some], other))
    return found


def _curve_of_cell(theta: float, rate: float, ends: tuple[float, float], losses: Array) -> Array:
    """A bound on H at ``losses`` of all triples with S's arm θ − t, or R's, t between ``ends``; R's up to θ/2."""
    start, end = ends
    up = losses >= 0
    down = ~up
    found, c = np.empty(losses.size), np.exp(losses)
    away, q = (1 - rate) * np.abs(np.expm1(losses)), np.full(losses.size, rate)
    limit = (theta - np.log1p(np.maximum(np.expm1(losses), 0.0) / rate)) / 2 * (1 + 1e-9)
    w, a, b = q[up], away[up], (c * rate)[up]
    found[up] = np.maximum(
        _ends(w, theta - start, a, start, b, start),
        _between(w, (theta - end, theta - start), a, end, b, end, limit[up]),
    )
    w, a, b = (c * rate)[down], away[down], q[down]
    limit = (end + np.log(w / (a * math.exp(-end) + b * math.exp(end - theta)))) / 2 * (1 + 1e-9)
    found[down] = -np.expm1(losses[down]) + np.maximum(
        _ends(w, end, a, end, b, theta - end), _between(w, (end, end), a, end, b, theta - end, limit)
    )
    return found


def _curves(theta: float, rate: float, losses: Array) -> list[Array]:
    """Of every cell of t."""
    pair = ReplacedPair(LaplacePair(theta), rate)
    # no triple is worse, and beyond the largest loss there is nothing
    most = np.array([pair.delta(float(loss)) for loss in losses])
    most[-1] = 0.0
    cells = itertools.pairwise([theta * share for share in _CELLS])
    return [np.minimum(most, _curve_of_cell(theta, rate, cell, losses)) for cell in cells]


@lru_cache(maxsize=8)
def _laws(theta: float, rate: float) -> Laws:
    """The losses of all cells and their mirror images."""
    highest = math.log1p(rate * math.expm1(theta))
    reach = max(16, math.ceil(highest / (_FINE * deviation(theta, rate))))
    step = highest / reach
    losses = step * np.arange(-reach - 1, reach + 2, dtype=np.float64)
    zero, masses = reach + 1, []
    for curve in _curves(theta, rate, losses):
        mirrored = -np.expm1(losses) + np.exp(losses) * curve[::-1]
        mirrored[-1] = 0.0
        for values in (curve, mirrored):
            places, p, _ = pair_of_whole_curve(losses, np.maximum(values, np.maximum(-np.expm1(losses), 0.0)))
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
    fewest = math.ceil(tops[0] / (_FINE_BELOW * deviation(theta, rate)))
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

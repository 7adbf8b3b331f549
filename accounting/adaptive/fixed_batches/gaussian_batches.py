"""Many batches of a fixed size with Gaussian noise, one after another: what they cost when each follows the others.

One of n records is replaced, and a batch is m of them. As :class:`~accounting.loss.sampled.ReplacedPair`
says, the laws of a step are mixtures of P = (1 − q)R + qS and Q = (1 − q)R + qS′, of three normal laws N(·, z²) no two
of which have means farther apart than 1: the batch without the record, with it, and with its substitute. Divergences
are jointly convex, so let them be such. *Which* three is worst depends on ε. For ε > 0 it is S′ = R, for ε < 0 it is
S = R, and ``ReplacedPair`` is both at once, which no release can be: its compositions are 3 to 20 % more expensive
than need be. The worst that k steps can do is a game with one player, who sees what was lost so far:

    V₀(x) = (1 − e^x)₊,    V_k(x) = TV_{k−1}(x),    TV(x) = max over R, S, S′ of E_P[V(x − L)],    L = ln P/Q.

*Theorem.* Let h = 1/z². The maximum is reached where R and S, and S and S′, are at distance 1, and R and S′ anywhere
between 0 and 1; or where S and S′ have changed places. If t ≤ |R − S′|² ≤ t′ the divergence of P and Q is at most that
of the triangle with |R − S′|² = t for ε ≥ 0, and at most that of the one with t′ for ε ≤ 0. At 0 all are equal.

*Proof.* With g, g′ the steps from R to S and to S′, over z, and x ~ N(0, I): P/R = 1 − q + qU and Q/R = 1 − q + qV, U =
e^{⟨g, x⟩ − ‖g‖²/2} and V likewise. What a step is worth is E[G(U, V)], G(u, v) = F(1 − q + qu, 1 − q + qv), where F is
convex and homogeneous of degree 1 (F(a, b) = a·V(x − ln a/b)), hence so is G convex, and G_uv ≤ 0. It is a function
of s = ‖g‖², s′ = ‖g′‖² and r = ⟨g, g′⟩, and (see :mod:`accounting.amplification.subsampling`)

    dE = ½E[U²G_uu] ds + ½E[V²G_vv] ds′ + E[UVG_uv] dr.

(a) E rises with s and s′ and falls with r. So r is lowered, and where it cannot be, S and S′ being on opposite sides of
R, s grows, until s + s′ − 2r, the squared distance from S to S′, is h. (b) Where s, s′ and r grow alike, R moves away
from both at a right angle, and dE is half the quadratic form of the Hessian of G at (U, V), not negative; until s or s′
is h. Let it be s; then r = s′/2. (c) For G = (P/R − cQ/R)₊ all second derivatives live on the line qU = cqV + (c − 1)(1
− q), and 2 dE/ds′ = E[V²G_vv + UVG_uv] = q²c·E[V(cV − U); on the line], which has the sign of 1 − c. At c = 1 it is q
times the distance in variation of S and S′. ∎

So the game is played with finitely many *cells* [t, t′], whose curve is that of one triangle above 0 and of another
below. It is convex, as the second is the larger one below 0; so it is the divergence of a pair. Of the mirror images,
which hardly ever are the best at x ≥ 0, there are fewer and wider ones.

*From below* a player has the two triangles with t = 0 and t = h and their mirror images, all of which are mechanisms,
and no others: those between are hardly ever worse than both. The player may choose anew after what was seen.

*In compositions* with releases of other kinds, of whatever order, the steps come last at worst: a mean of maxima is at
least the maximum of means. So the others compose with the pair whose curve is V_k (see
:mod:`~accounting.adaptive.engine`); it is symmetric, as S and S′ may change places. More than 2048
steps are several such pairs, each of which the player may play anew for every ε, a little too much. Brackets of up to
a thousand steps are at most about 0.9 % wide, of 10⁴ steps 1 %; 10⁴ steps with z < ½ at rates of a hundredth or less,
or at δ of 10⁻¹⁰ or less, 1 to 2 %.

*Numbers.* A triangle's losses are rounded up, or down (:mod:`accounting.loss.replaced_noise`), and put on a grid
Δ·ℤ, the larger ones on fewer of its points; on it the game is played
(:mod:`accounting.adaptive.fixed_batches.games_on_grids`).

Serves mini-batches of a fixed size with Gaussian noise: 100 × ``FixedSizeSubsampled(Gaussian(2.0), 10, 100)`` cost
2.688 at δ = 1e-6, and 2.884 step by step. By brute force: ``tests/accounting/adaptive/test_games.py`` and
``test_gaussian_batches.py``.
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
    laws_below,
    places_up_to,
    play_above,
    play_below,
    quarters,
    steps_to_play,
)
from accounting.arrays import Array
from accounting.loss.curves import pair_of_points_below
from accounting.loss.gaussian import GaussianPair
from accounting.loss.replaced_noise import MISSED, deviation, triangle_masses
from accounting.loss.sampled import SubsampledPair
from accounting.masses import split

__all__ = ["MOST_STEPS", "ReplacedSteps", "cut", "most_steps"]


# |R − S′|² at the ends of the cells, as shares of 1/z²; and of their mirror images.
_CELLS = (0.0, 0.03, 0.08, 0.15, 0.24, 0.34, 0.45, 0.56, 0.67, 0.77, 0.85, 0.91, 0.955, 0.985, 1.0)
_MIRRORED = (0.0, 0.15, 0.34, 0.56, 0.77, 0.91, 0.985, 1.0)
# It adds little beside what a game takes that is played anew.
_GRID = Fineness(0.1, 0.2, 1500, 8000)
# From below, where steps are many at a time.
_GRID_BELOW = Fineness(0.1, 0.1, 6000, 12_000)
# Where the first node is at most, as a share of the smallest loss; and the most nodes for that.
_WITHIN, _MOST_BELOW = 0.85, 40_000
# The most steps of a game.
MOST_STEPS = 2048
# Of every loss at least this much is cut off, and this many times what matters least: the grid is the shorter.
_LEAST_TAIL, _MORE = 1e-24, 100


def cut(tail: float) -> float:
    """What of every loss is cut off, where ``tail`` is next to nothing."""
    return max(_MORE * tail, _LEAST_TAIL)


def most_steps(mu: float, rate: float, tail: float) -> int:
    """How many steps make a game, by what they take; 0 where no grid is fine and long enough.

    Of each step ``tail`` is cut off.
    """
    if not (1e-4 <= mu <= 5.0 and 1e-9 <= rate <= 1 - 1e-6 and mu * rate >= 1e-10):
        return 0
    step, _ = grid(*_sizes(mu, rate, tail), _GRID)
    if step > 0.5 * deviation(mu, rate):
        return 0
    return MOST_STEPS


def _sizes(mu: float, rate: float, tail: float) -> tuple[float, float]:
    """How large a loss may be, and about the deviation of one."""
    # only the record's own batches reach far; whatever more there is beyond is counted
    rare = math.log(min(tail / rate, 1e-3))
    return SubsampledPair(GaussianPair(mu), rate, True).highest(rare), deviation(mu, rate)


@lru_cache(maxsize=8)
def _cells(mu: float, rate: float, tail: float) -> Laws:
    """The losses of all cells and of their mirror images."""
    step, reach = grid(*_sizes(mu, rate, tail), _GRID)
    places = places_up_to(reach)
    edges, zero = np.asarray(step * places, dtype=np.float64), places.size // 2
    triangles = {share: triangle_masses(mu, share, rate, edges) for share in _CELLS}
    found, beyond = [], 0.0
    for ends, mirrored in ((_CELLS, False), (_MIRRORED, True)):
        for (up_p, up_q), (down_p, down_q) in itertools.pairwise(triangles[share] for share in ends):
            # at 0 both are as bad, but for what moving Y adds: there the upper part must not be below the lower one
            least = float(np.sum(down_q[: zero + 1]) - np.sum(down_p[: zero + 1]))
            most = float(np.sum(up_p[zero + 1 :]) - np.sum(up_q[zero + 1 :]))
            raised = max(1.0, (least + 1e-14) / (most - 1e-14))
            p = np.concatenate([down_p[: zero + 1], raised * up_p[zero + 1 :]])
            q = np.concatenate([down_q[: zero + 1], raised * up_q[zero + 1 :]])
            if mirrored:
                p, q = q[::-1], p[::-1]
            mass = np.zeros(2 * reach + 1)
            mass[places + reach] = split(p, q, edges)
            mass[reach] += max(0.0, 1.0 - float(p.sum())) + 1e-14
            found.append(mass)
            beyond = max(beyond, float(p[-1]))
    return Laws(np.array(found), step, beyond)


@lru_cache(maxsize=8)
def _triangles(mu: float, rate: float, tail: float) -> Laws:
    """The losses of two triangles and their mirror images, from below."""
    step, reach = grid(*_sizes(mu, rate, tail), _GRID_BELOW)
    # half of all losses may lie next to the smallest one, ln(1 − q): with no node above it they come to lie at 0
    if (low := -_WITHIN * math.log1p(-rate)) < step and (finer := math.ceil(reach * step / low)) <= _MOST_BELOW:
        step, reach = low, finer
    places = places_up_to(reach)
    edges = quarters(np.asarray(step * places, dtype=np.float64))
    pairs = [triangle_masses(mu, share, rate, edges, below=True) for share in (0.0, 1.0)]
    return laws_below(pairs, places, step)


@lru_cache(maxsize=4)
def _values(mu: float, rate: float, most: int, tail: float) -> tuple[Array, Array]:
    """Losses from 0 on, evenly spaced, and V there after 0, 1, …, ``most`` steps, rounded up."""
    return play_above(_cells(mu, rate, tail), most, tail)


@dataclass(frozen=True)
class ReplacedSteps(Batches):
    """``count`` releases, each μ-GDP in a replaced record of a batch of a fixed size: the whole game.

    Of each loss what is rarer than ``tail`` counts as infinite. With ``from_below`` it is a lower bound on what the
    worst of these cost, where they come last. ``apart`` says how far the laws may be from such normal ones, which is
    added (:mod:`accounting.loss.lattice`).
    """

    mu: float
    rate: float
    count: int
    tail: float
    from_below: bool = False
    apart: float = 0.0

    def _curve(self) -> tuple[Array, Array]:
        losses, values = _values(self.mu, self.rate, steps_to_play(self.count), self.tail)
        # every loss may be larger by what its edge was missed by
        losses, found = moved(losses, values[self.count], self.count * (MISSED + self.apart))
        return losses, np.minimum(found * math.exp(self.count * self.apart), 1.0)

    def _below(self) -> tuple[Array, Array, Array]:
        return pair_of_points_below(*play_below(_triangles(self.mu, self.rate, self.tail), self.count, self.tail))

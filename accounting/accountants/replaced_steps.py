"""Many batches of a fixed size with Gaussian noise, one after another: what they cost when each follows the others.

One of n records is replaced, and a batch is m of them. As :class:`~accounting.accountants.sampled_losses.ReplacedPair`
says, the laws of a step are mixtures of P = (1 − q)R + qS and Q = (1 − q)R + qS′, of three normal laws N(·, z²) no two
of which have means farther apart than 1: the batch without the record, with it, and with its substitute. Divergences
are jointly convex, so let them be such. *Which* three is worst depends on ε. For ε > 0 it is S′ = R, for ε < 0 it is
S = R, and ``ReplacedPair`` is both at once, which no release can be: its compositions are 3 to 20 % dearer than need
be. The worst that k steps can do is a game with one player, who sees what was lost so far:

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
below. It is convex, as the second is the larger one below 0; so it is the divergence of a pair. Cells are narrow near
t = h, the equilateral triangle, which is the worst for the middle of many small losses.

*In compositions* with releases of other kinds, of whatever order, the steps come last at worst: a mean of maxima is at
least the maximum of means. So the others compose with the pair whose curve is V_k (see
:class:`~accounting.accountants.curves.PlayedPair`); it is symmetric, as S and S′ may change places. More steps than
a few hundred are several such pairs, each of which the player may play anew for every ε, a little too much.

*Numbers.* A triangle's losses are rounded up (:mod:`accounting.accountants.triangles`). Every cell's losses are put on
a grid Δ·ℤ, upwards (:mod:`accounting.accountants.convolution`), the larger ones on fewer of its points; there V is
known without interpolation. Above the grid V is at most its last value; below it V(−x) = 1 − e^(−x) + e^(−x)V(x).
Convolutions are fast Fourier transforms of V(x)e^(λx), with a bound on their rounding errors added.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from accounting.accountants.curves import Atoms, pair_of_curve, value_between
from accounting.accountants.losses import GaussianPair, Symmetric
from accounting.accountants.numerics import fast_length, split
from accounting.accountants.sampled_losses import SubsampledPair
from accounting.accountants.triangles import MISSED, deviation, triangle_masses

__all__ = ["LEAST_TAIL", "ReplacedSteps", "most_steps"]

Array = NDArray[np.float64]

# |R − S′|² at the ends of the cells, as shares of 1/z².
_CELLS = (0.0, 0.25, 0.5, 0.7, 0.84, 0.93, 1.0)
# The grid's step as a share of one loss's deviation; more nodes than this on either side of 0 take too long.
_FINE, _MOST_NODES = 0.2, 6000
#: Of every loss at least this much is cut off.
LEAST_TAIL = 1e-19
# ln of what the tilted moment of all losses may come to
_GROWTH = 12.0
_UNIT_ROUNDOFF = 2.0**-52


def most_steps(mu: float, rate: float, tail: float) -> int:
    """How many steps make a game, by what they take; 0 where no grid is fine and long enough.

    Of each step at least ``tail`` is cut off, and no less than can be told apart.
    """
    tail = max(tail, LEAST_TAIL)
    if not (1e-4 <= mu <= 5.0 and 1e-9 <= rate <= 1 - 1e-6 and mu * rate >= 1e-10):
        return 0
    step, nodes = _grid(mu, rate, tail)
    if step > 0.5 * deviation(mu, rate):
        return 0
    return 512 if nodes <= 600 else 256 if nodes <= 2000 else 128


def _grid(mu: float, rate: float, tail: float) -> tuple[float, int]:
    """Δ, and the number of nodes that one loss may reach."""
    highest = SubsampledPair(GaussianPair(mu), rate, True).highest(math.log(tail))
    step = max(min(_FINE * deviation(mu, rate), highest / 50), highest / _MOST_NODES)
    return step, math.ceil(highest / step)


def _cells(mu: float, rate: float, step: float, reach: int) -> tuple[Array, float]:
    """The losses of all cells and of their mirror images on the grid, and the largest mass above it."""
    # all points, and then some, at distances of 1.5 % of the loss
    some = np.unique(np.round(np.geomspace(64, reach, 2 + max(0, round(67 * math.log(reach / 64))))).astype(int))
    some = np.union1d(np.arange(min(64, reach)), some[some <= reach])
    places = np.concatenate([-some[:0:-1], some])
    edges = step * places
    zero = some.size - 1
    triangles = [triangle_masses(mu, share, rate, edges) for share in _CELLS]
    found, beyond = [], 0.0
    for (up_p, up_q), (down_p, down_q) in itertools.pairwise(triangles):
        # at 0 both are as bad, but for what moving Y adds: there the upper part must not be below the lower one
        least = float(np.sum(down_q[: zero + 1]) - np.sum(down_p[: zero + 1]))
        most = float(np.sum(up_p[zero + 1 :]) - np.sum(up_q[zero + 1 :]))
        raised = max(1.0, (least + 1e-14) / (most - 1e-14))
        p = np.concatenate([down_p[: zero + 1], raised * up_p[zero + 1 :]])
        q = np.concatenate([down_q[: zero + 1], raised * up_q[zero + 1 :]])
        for one, other in ((p, q), (q[::-1], p[::-1])):
            mass = np.zeros(2 * reach + 1)
            mass[places + reach] = split(one, other, edges)
            mass[reach] += max(0.0, 1.0 - float(one.sum())) + 1e-14
            found.append(mass)
            beyond = max(beyond, float(one[-1]))
    return np.array(found), beyond


def _cumulants(cells: Array, edges: Array) -> tuple[Array, Array]:
    """Tilts, and the largest ln E[e^(tilt·L)] of any cell."""
    tilts = np.geomspace(0.1, 1e5, 80) / edges[-1]
    found = []
    for tilt in tilts:
        exponents = tilt * (edges - edges[-1])
        with np.errstate(under="ignore", divide="ignore"):
            found.append(math.log(float(np.max(cells @ np.exp(exponents)))) + float(tilt * edges[-1]))
    return tilts, np.array(found)


@lru_cache(maxsize=4)
def _values(mu: float, rate: float, most: int, tail: float) -> tuple[Array, Array]:
    """Losses from 0 on, evenly spaced, and V there after 0, 1, …, ``most`` steps, rounded up."""
    step, reach = _grid(mu, rate, tail)
    edges = step * np.arange(-reach, reach + 1, dtype=np.float64)
    cells, beyond = _cells(mu, rate, step, reach)
    tilts, cumulants = _cumulants(cells, edges)
    # (Chernoff); and V(x)e^(tilt·x) must not grow so much that V(0) loses its digits
    size = min(most * reach, math.ceil(float(np.min((most * cumulants - math.log(tail)) / tilts)) / step))
    tilt = float(tilts[np.flatnonzero(most * cumulants <= _GROWTH)[-1]])
    x = step * np.arange(-size, size + 1, dtype=np.float64)
    n = fast_length(2 * size + 1 + 4 * reach)
    tilted = cells * np.exp(tilt * edges)
    images = np.fft.rfft(tilted, n)
    rounding = 8 * _UNIT_ROUNDOFF * math.log2(n) * math.sqrt(float(np.max(np.sum(tilted * tilted, axis=1))))
    below = step * np.arange(-size - reach, -size, dtype=np.float64)
    lowest = -np.expm1(below) * np.exp(tilt * below)
    up, down, falling = np.exp(tilt * x), np.exp(-tilt * x[size:]), np.exp(-x[size:])
    values = np.zeros((most + 1, size + 1))
    for k in range(1, most + 1):
        half = values[k - 1]
        last = float(half[-1])
        whole = np.concatenate([(1 - falling + falling * half)[:0:-1], half]) - last
        padded = np.concatenate([lowest, np.maximum(whole, 0.0) * up])
        sums = np.fft.irfft(np.fft.rfft(padded, n) * images, n)[:, 2 * reach + size : 2 * (reach + size) + 1]
        best = sums.max(axis=0)
        error = rounding * math.sqrt(float(padded @ padded))
        values[k] = np.minimum(((best + error) * down + beyond + last) * (1 + 1e-14), 1.0)
    return x[size:], values


def _curve(pair: ReplacedSteps) -> tuple[Array, Array]:
    # so that growing totals need few games
    losses, values = _values(pair.mu, pair.rate, 1 << (pair.count - 1).bit_length(), pair.tail)
    # every loss may be larger by what its edge was missed by; δ falls no faster than ε grows
    missed = pair.count * MISSED
    found = values[pair.count].copy()
    found[0] = min(1.0, found[0] + missed)
    return np.concatenate([losses[:1], losses[1:] + missed]), found


@lru_cache(maxsize=16)
def _atoms(pair: ReplacedSteps) -> tuple[Array, Array, Array, float]:
    losses, values = _curve(pair)
    return *pair_of_curve(losses, values), float(values[-1])


@dataclass(frozen=True)
class ReplacedSteps(Atoms, Symmetric):
    """``count`` releases, each μ-GDP in a replaced record of a batch of a fixed size: the whole game.

    Of each loss what is rarer than ``tail`` counts as infinite.
    """

    mu: float
    rate: float
    count: int
    tail: float

    def delta(self, epsilon: float) -> float:
        if epsilon < 0:
            return -math.expm1(epsilon) + math.exp(epsilon) * self.delta(-epsilon)
        return value_between(*_curve(self), epsilon)

    def _atoms(self) -> tuple[Array, Array, Array, float]:
        return _atoms(self)

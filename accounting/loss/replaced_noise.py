"""Three normal laws of equal variance in the plane: the losses of a step on a batch of a fixed size.

And three laws of Laplace noise. Serves :mod:`accounting.adaptive.fixed_batches.gaussian_batches`. Masses are those of a
pair that is certainly worse, or certainly less bad: integrals over one axis are closed forms, and along the other the
law is replaced by one on finitely many places that is larger, or less, in convex order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from accounting.arrays import Array
from accounting.loss.gaussian import GaussianPair, normal_masses
from accounting.loss.pair import Atoms, Symmetric, remembered
from accounting.loss.sampled import SubsampledPair
from accounting.masses import laplace_below, mass_errors, onto_edges

__all__ = ["MISSED", "LaplaceTrianglePair", "TrianglePair", "deviation", "triangle_masses"]


# So many numbers at once stay in fast memory.
_AT_ONCE = 1 << 14
# The distance of places beside the axis, and how far they go: what R and S have beyond is below 1e-25.
_BESIDE, _BESIDE_BELOW, _FAR = 0.09, 0.09, 10.6
#: How far from an edge the loss may be at its place: what is left of Newton's gap, and rounding errors of logarithms.
MISSED = 1e-13


def triangle_masses(mu: float, share: float, rate: float, edges: Array, *, below: bool = False) -> tuple[Array, Array]:
    """P and Q of L between ``edges``, for |R − S| = |S − S′| = ``mu`` and |R − S′|² = ``share``·μ²; of a worse pair.

    One axis goes from S′ to S, and R lies at −a on it, and b beside it. At x on this axis and y beside it P/R = 1 − q +
    qYe^(ax − a²/2) grows with x, and Q/R = 1 − q + qYe^(−mx − m²/2) falls, m = μ − a, Y = e^(by − b²/2). So an interval
    of L is one of x, for every y.

    P and Q are linear in Y and divergences convex, so they grow where the Y between two neighbours of a list of places
    y are moved to Y's values there, such that R and S keep their masses; and so they do where all above the last is
    told apart by P and by Q from everything else. What is moved to Y = 0 from below the first has no loss, and is left
    out. With ``below`` the Y between two neighbours are replaced by their mean, and what is outside left out: the pair
    is less than a pair that is not as bad as P and Q.
    """
    if share == 0.0:
        return SubsampledPair(GaussianPair(mu), rate, True).masses(edges)
    a, m = mu * (1 - share / 2), mu * share / 2
    b = mu * math.sqrt(share - share * share / 4)
    log_y, absent, present, (last_absent, last_present) = _beside(b, below=below)
    p, q = np.zeros(edges.size + 1), np.zeros(edges.size + 1)
    if not below:
        p[-1] = q[0] = (1 - rate) * last_absent + rate * last_present
    rows = max(1, _AT_ONCE // edges.size)
    for start in range(0, log_y.size, rows):
        some = slice(start, start + rows)
        x = _places(a, m, rate, edges, log_y[some, None])
        in_r, in_s, in_other = (_row_masses(x - shift) for shift in (0.0, a, -m))
        p += (1 - rate) * (absent[some] @ in_r) + rate * (present[some] @ in_s)
        q += (1 - rate) * (absent[some] @ in_r) + rate * (present[some] @ in_other)
    return p, q


def _beside(b: float, *, below: bool) -> tuple[Array, Array, Array, tuple[float, float]]:
    """ln Y, and the masses of R and of S there; and what they have above all."""
    step = (_BESIDE_BELOW if below else _BESIDE) / max(1.0, b)
    y = np.arange(-_FAR, b + _FAR + step, step)
    absent, present = normal_masses(y), normal_masses(y - b)
    log_y = b * y - b * b / 2
    above = float(absent[-1]), float(present[-1])
    if below:
        kept = (absent[1:-1] > 0) & (present[1:-1] > 0)
        absent, present = absent[1:-1][kept], present[1:-1][kept]
        return np.log(present / absent), absent, present, above
    # in every cell Y has the mean present/absent
    ends = np.exp(log_y)
    moved = onto_edges(absent[1:-1], present[1:-1], ends)
    moved[0] += present[0] / ends[0]
    return log_y, moved, moved * ends, above


def _places(a: float, m: float, rate: float, edges: Array, log_y: Array) -> Array:
    """The x at which L is each of ``edges``, where Y is each of e^``log_y``.

    Where the logarithms of both sides differ by g the loss is missed by at most |g|.

    With c = e^L it solves Ae^(ax) = D + Be^(−mx), A = qYe^(−a²/2), B = cqYe^(−m²/2), D = (1 − q)(c − 1), or the same
    with −D on the left. In logarithms the difference of the sides is concave, so Newton's method converges from the one
    side on which it begins.
    """
    log_a = math.log(rate) + log_y - a * a / 2
    log_b = edges + math.log(rate) + log_y - m * m / 2
    with np.errstate(divide="ignore"):
        log_d = math.log1p(-rate) + np.maximum(edges, 0.0) + np.log(-np.expm1(-np.abs(edges)))
    even = (log_b - log_a) / (a + m)
    up = edges >= 0
    x = np.where(up, np.maximum((log_d - log_a) / a, even), np.minimum((log_b - log_d) / m, even))
    for _ in range(40):
        left, right = a * x + log_a, log_b - m * x
        # what stands beside D, and the other side
        beside, other = np.where(up, right, left), np.where(up, left, right)
        more = log_d - beside
        less = np.exp(-np.abs(more))
        share = np.where(more > 0, less, 1.0) / (1 + less)
        gap = other - (np.maximum(log_d, beside) + np.log1p(less))
        slope = np.where(up, a + m * share, -m - a * share)
        change = gap / slope
        x = x - change
        # the next gap is below 10·gap²
        if float(np.max(np.abs(gap))) < 2e-8:
            break
    return np.asarray(x)


def _row_masses(places: Array) -> Array:
    """Φ between neighbouring places, in every row."""
    end = np.full((places.shape[0], 1), np.inf)
    # one list, of which the piece between the end of a row and the beginning of the next is empty
    flat = np.concatenate([places, end, -end], axis=1).ravel()
    return normal_masses(flat)[:-1].reshape(places.shape[0], -1)[:, : places.shape[1] + 1]


@lru_cache(maxsize=64)
def deviation(mu: float, rate: float) -> float:
    """About that of one loss."""
    highest = mu * mu / 2 + 12 * mu
    losses = np.concatenate([-np.geomspace(highest, 1e-9 * mu, 400), np.geomspace(1e-9 * mu, highest, 400)])
    _, q = SubsampledPair(GaussianPair(mu), rate, True).masses(losses)
    return math.sqrt(float(q[1:-1] @ (losses[1:] * losses[:-1])))


@dataclass(frozen=True)
class TrianglePair(Atoms, Symmetric):
    """One step of the equilateral triangle, of which only an interval of L is seen: from below."""

    exact = True
    mu: float
    rate: float

    @remembered(16)
    def atoms(self) -> tuple[Array, Array, Array, float]:
        highest = SubsampledPair(GaussianPair(self.mu), self.rate, True).highest(-700.0)
        fine = min(0.04 * deviation(self.mu, self.rate), highest / 1000)
        far = np.geomspace(100 * fine, highest, 2 + math.ceil(67 * math.log(highest / (100 * fine))))
        some = np.concatenate([fine * np.arange(100), far])
        p, q = triangle_masses(self.mu, 1.0, self.rate, np.concatenate([-some[:0:-1], some]), below=True)
        # P is rounded down and Q up, by all that masses and the arithmetic around them may be off; what is left out is
        # missing from the mechanism's own tails
        p, q = np.maximum(p - mass_errors(p), 0.0) * (1 - 2 * MISSED), (q + mass_errors(q)) * (1 + 2 * MISSED)
        kept = (p > 1e-18) & (q > 1e-18)
        p, q = p[kept], q[kept]
        order = np.argsort(losses := np.log(p / q), kind="stable")
        return losses[order], p[order], q[order], 0.0


# Pieces of what is seen of the coordinate that tells less.
_PIECES = 32


@dataclass(frozen=True)
class LaplaceTrianglePair(Symmetric):
    """One step with Laplace noise of scale 1 in the plane, of three points each θ from the others in the L1 norm.

    S and S′ lie on one axis, ±θ/2 from 0, and R on the other one, θ/2 from 0. Of the coordinate that moves R only in
    what piece it lies is seen. With k = (1 − q)ρ(c − 1)/q, ρ the ratio of R to noise around 0 in that piece, the loss
    is at least ln c where σ − cσ′ ≥ k, the densities of S and S′ over noise around 0; and that is where x is at most
    what is found in closed form, S on the left.
    """

    theta: float
    rate: float

    def delta(self, epsilon: float) -> float:
        p, q = self.masses(np.array([epsilon]))
        return max(0.0, float(p[-1] - math.exp(epsilon) * q[-1]))

    def masses(self, edges: Array) -> tuple[Array, Array]:
        arm, rate = self.theta / 2, self.rate
        p, q = np.zeros(edges.size), np.zeros(edges.size)
        c, far, near = np.exp(edges), math.exp(arm), math.exp(-arm)
        for mass, other in zip(*_pieces(arm), strict=True):
            k = (1 - rate) * other / mass * np.expm1(edges) / rate
            with np.errstate(divide="ignore", invalid="ignore"):
                left, right = -(np.log(k + c * near) + arm) / 2, (np.log((near - k) / c) + arm) / 2
            x = np.where(k >= near - c * near, np.maximum(left, -arm), np.minimum(right, arm))
            x = np.where(k > far - c * near, -np.inf, np.where(k < near - c * far, np.inf, x))
            p += (1 - rate) * other * laplace_below(x) + rate * mass * laplace_below(x + arm)
            q += (1 - rate) * other * laplace_below(x) + rate * mass * laplace_below(x - arm)
        in_p, in_q = (np.maximum(-np.diff(above, prepend=1.0, append=0.0), 0.0) for above in (p, q))
        return in_p, in_q

    def highest(self, log_tail: float) -> float:
        arm, absent = self.theta / 2, (1 - self.rate) * math.exp(-self.theta / 2)
        ratio = (absent + self.rate * math.exp(arm)) / (absent + self.rate * math.exp(-arm))
        return math.log(ratio) * (1 + 1e-12)


def _pieces(arm: float) -> tuple[Array, Array]:
    """Of noise around 0, and around ``arm``, what lies in each piece of the line."""
    ends = np.linspace(0.0, arm, _PIECES + 1)
    around, there = (np.diff(laplace_below(ends - at), prepend=0.0, append=1.0) for at in (0.0, arm))
    return around, there

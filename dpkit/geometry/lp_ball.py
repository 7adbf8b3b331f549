"""The ball {‖θ‖_p ≤ radius}, 1 ≤ p ≤ ∞."""

from __future__ import annotations

import math
from typing import SupportsFloat

import numpy as np
from numpy.typing import ArrayLike

from accounting.checks import integer, positive
from dpkit.geometry.sets import ITERATIVE_ERROR, Vector, checked_norm, flat_length, vector
from dpkit.geometry.simplex import simplex_projection

__all__ = ["LpBall"]


class LpBall:
    """{θ ∈ R^d : ‖θ‖_p ≤ radius}.

    Parameters
    ----------
    p : float
        In [1, ∞].
    dimension : int
        d.
    radius : float
        Positive.

    Notes
    -----
    Projection. p = 1: by sorting (Duchi, Shalev-Shwartz, Singer & Chandra 2008). 1 < p < ∞: the optimality conditions
    are x_i + μx_i^(p−1) = |z_i| with the μ ≥ 0 for which ‖x‖_p = radius; each x_i is a decreasing function of μ, found
    by Newton's method from its right, where the equation is convex, and μ is a 1-d root.

    Examples
    --------
    >>> from dpkit.geometry import LpBall
    >>> LpBall(1, 3).project([2.0, 1.0, 0.0])
    array([1., 0., 0.])
    >>> ball = LpBall(1.5, 3, radius=2.0)
    >>> x = ball.project([3.0, -1.0, 0.5])
    >>> x.round(4), ball.contains(x), ball.diameter(1.5)
    (array([ 1.8327, -0.4328,  0.1577]), True, 4.0)
    """

    def __init__(self, p: SupportsFloat, dimension: int, radius: SupportsFloat = 1.0) -> None:
        self.p = checked_norm("p", p)
        self.dimension = integer("dimension", dimension, at_least=1)
        self.radius = positive("radius", radius)

    def __repr__(self) -> str:
        return f"LpBall({self.p!r}, {self.dimension}, {self.radius!r})"

    @property
    def dual(self) -> float:
        """q = p/(p − 1), the norm of gradients."""
        if self.p == 1:
            return math.inf
        return 1.0 if math.isinf(self.p) else self.p / (self.p - 1.0)

    @property
    def center(self) -> Vector:
        """The origin."""
        return np.zeros(self.dimension)

    def project(self, x: ArrayLike) -> Vector:
        """The closest point in ℓ₂."""
        z = vector("x", x, self.dimension)
        largest = float(np.abs(z).max())
        if largest == 0 or self._length(z / largest) * largest <= self.radius:
            return z.copy()
        if math.isinf(self.p):
            return np.clip(z, -self.radius, self.radius)
        magnitudes, radius = np.abs(z) / largest, self.radius / largest
        if radius < 1e-20:  # from so far away the closest point is the one farthest in the direction of z
            return self.linear_minimizer(-z)
        if self.p == 1:
            return np.copysign(largest * simplex_projection(magnitudes, radius), z)
        if self.p == 2:
            return z * (self.radius / (largest * self._length(magnitudes)))
        return np.copysign(self.radius * _onto_sphere(magnitudes, self.p, radius), z)

    def projection_error(self, reach: float) -> float:
        """0 for p = ∞, (d + 8)2u·reach for p = 2, as on the simplex for p = 1, with u = 2⁻⁵³; else a tested bound.

        For p = 2 the length is within a relative (d + 4)u, and the scaled point with it; a point that is taken for
        one inside is outside by no more.
        """
        if math.isinf(self.p):
            return 0.0
        if self.p == 2:
            return (self.dimension + 8.0) * 2.0**-52 * reach
        if self.p == 1:
            return 16.0 * self.dimension**2 * 2.0**-53 * (reach + self.radius)
        return ITERATIVE_ERROR * reach

    def linear_minimizer(self, g: ArrayLike) -> Vector:
        """−radius·sign(g)·|g|^(q−1)/‖g‖_q^(q−1); for p = 1 a vertex of the largest |g_i|; the centre for g = 0."""
        direction = vector("g", g, self.dimension)
        largest = float(np.abs(direction).max())
        if self.p == 1:
            i = int(np.argmax(np.abs(direction)))
            return self.vertex(i if direction[i] < 0 else i + self.dimension)
        if largest == 0:
            return np.zeros(self.dimension)
        if math.isinf(self.p):
            return -self.radius * np.sign(direction)
        scaled: Vector = np.abs(direction) / largest
        shape = scaled if self.p == 2 else scaled ** (self.dual - 1.0)
        # ‖shape‖_p^p = Σ scaled^((q − 1)p), and (q − 1)p = q
        length = math.pow(float(scaled @ shape), 1.0 / self.p)
        return np.copysign(self.radius / length * shape, -direction)

    def diameter(self, norm: float = 2.0) -> float:
        """2·radius·max(1, d^(1/norm − 1/p))."""
        return 2.0 * self.radius * flat_length(self.dimension, checked_norm("norm", norm), self.p)

    def contains(self, x: ArrayLike, tolerance: float = 1e-9) -> bool:
        """Whether ``x`` lies in the set, up to a relative ``tolerance``."""
        return self._length(vector("x", x, self.dimension) / self.radius) <= 1.0 + tolerance

    def vertex_scores(self, g: ArrayLike) -> Vector:
        """⟨g, v⟩ for the vertices radius·e_1, …, radius·e_d, −radius·e_1, …, −radius·e_d of the ℓ₁ ball.

        Raises
        ------
        ValueError
            For p > 1, where the ball is not the hull of these.
        """
        self._check_polyhedral()
        scores: Vector = np.empty(2 * self.dimension)
        np.multiply(vector("g", g, self.dimension), self.radius, out=scores[: self.dimension])
        np.negative(scores[: self.dimension], out=scores[self.dimension :])
        return scores

    def vertex(self, index: int) -> Vector:
        """The vertex of that number, in the order of :meth:`vertex_scores`."""
        self._check_polyhedral()
        v = np.zeros(self.dimension)
        v[index % self.dimension] = self.radius if index < self.dimension else -self.radius
        return v

    def radius_in(self, norm: float) -> float:
        """The largest ℓ_norm length of a point of the ball."""
        return self.diameter(norm) / 2.0

    def _check_polyhedral(self) -> None:
        if self.p != 1:
            raise ValueError(f"p must be 1 for a ball with 2d vertices, got p={self.p!r}")

    def _length(self, x: Vector) -> float:
        return float(np.linalg.norm(x, self.p))


def _onto_sphere(a: Vector, p: float, radius: float) -> Vector:
    """The projection of ``a`` ≥ 0, largest entry 1, ‖a‖_p > radius, divided by ``radius``; 1 < p < ∞, p ≠ 2."""
    a = a / radius  # onto the unit sphere
    outside = _log_length(a, p)
    if outside <= 1e-14:  # by little more than rounding, which hides the root
        return a / math.exp(outside)
    # x ≤ (a/μ)^(1/(p−1)), whose ℓ_p length is 1 at μ = ‖a‖_q
    low, high = -600.0, _log_length(a, p / (p - 1.0)) + 1e-9
    # Newton's method for ln‖x‖_p = 0 in t = ln μ: from the right, and for points that are not far outside from where
    # the line ln‖a‖_p − μ·Σa^(2p−2)/Σa^p meets 0
    t = high
    if outside < 0.5:
        with np.errstate(under="ignore"):
            powers = float(np.sum(np.exp((2.0 * p - 2.0) * (np.log(np.maximum(a, 1e-300)) - outside))))
        t = min(high, max(low, math.log(outside) + (2.0 - p) * outside - math.log(powers)))
    u: Vector | None = None
    for _ in range(200):
        u = _shrunk(a, p, math.exp(t), u)
        with np.errstate(under="ignore"):
            x = u ** (1.0 / (p - 1.0)) if p < 2 else u
            logs = np.log(x[x > 0])
            # d ln x/dt = −w/(1 + (p − 1)w) with w = μx^(p−2)
            w = np.exp(np.clip(t + (p - 2.0) * logs, -700.0, 700.0))
            weights = np.exp(p * (logs - logs.max()))
        excess, slope = _log_length(x, p), float(weights @ (w / (1.0 + (p - 1.0) * w))) / float(weights.sum())
        step = excess / slope
        if abs(step) <= 1e-14 * max(1.0, abs(t)):
            break
        low, high = (t, high) if excess > 0 else (low, t)
        t = t + step if low < t + step < high else 0.5 * (low + high)
    return np.asarray(x / math.exp(_log_length(x, p)))


def _log_length(x: Vector, p: float) -> float:
    """ln‖x‖_p of an x ≥ 0, not 0, of which powers may be beyond floats."""
    largest = float(x.max())
    with np.errstate(under="ignore"):
        return math.log(largest) + math.log(float(np.linalg.norm(x / largest, p)))


def _shrunk(a: Vector, p: float, mu: float, start: Vector | None) -> Vector:
    """The x ≥ 0 with x + μx^(p−1) = a, entry by entry; for p < 2 its power x^(p−1)."""
    # For p < 2 in the unknown u = x^(p−1), so that the equation u^s + μu = a is convex for either p: from anywhere the
    # first step goes to the right of the root, and the others come down on it
    s, linear, curved = (1.0 / (p - 1.0), mu, 1.0) if p < 2 else (p - 1.0, 1.0, mu)
    with np.errstate(over="ignore"):
        most: Vector = np.minimum(a ** (1.0 / s) * curved ** (-1.0 / s), a / linear)  # to the right of the root
    u = most if start is None else np.where(start > 0, np.minimum(start, most), most)
    for _ in range(100):
        power = u ** (s - 1.0)
        step = (curved * power * u + linear * u - a) / (curved * s * power + linear)
        u = np.clip(u - step, 0.0, most)
        if float(np.abs(step).max()) <= 1e-12 * float(u.max()):  # the next one would be below rounding
            break
    return u

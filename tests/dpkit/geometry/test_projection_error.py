"""Projections are as close to the closest point as their sets say, against exact and 30-digit arithmetic."""

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpkit.geometry import Box, Ellipsoid, EllipsoidBall, LpBall, Simplex
from dpkit.geometry.sets import ITERATIVE_ERROR

D = 4
entries = st.floats(-1e6, 1e6, allow_subnormal=True)
points = st.lists(entries, min_size=D, max_size=D).map(np.array)


def length(difference):
    """Rounded once, at the end."""
    return math.sqrt(sum(Fraction(v) ** 2 for v in difference))


def simplex_point(x, mass):
    x = [Fraction(float(v)) for v in x]
    for count in range(len(x), 0, -1):
        kept = sorted(x, reverse=True)[:count]
        tau = (sum(kept) - mass) / count
        if kept[-1] > tau:
            return [max(v - tau, Fraction(0)) for v in x]
    raise AssertionError("no threshold")


@settings(max_examples=80, deadline=None)
@given(points, st.floats(1e-3, 1e3))
def test_simplex_and_cross_polytope(x, mass):
    reach = float(np.linalg.norm(x)) * (1 + 1e-12)
    exact = simplex_point(x, Fraction(mass))
    simplex = Simplex(D, mass)
    found = [Fraction(float(v)) for v in simplex.project(x)]
    assert length([a - b for a, b in zip(found, exact, strict=True)]) <= simplex.projection_error(reach)
    exact = [Fraction(float(v)) for v in x]
    if sum(map(abs, exact)) > Fraction(mass):
        exact = [v if w > 0 else -v for v, w in zip(simplex_point(np.abs(x), Fraction(mass)), x, strict=True)]
    ball = LpBall(1, D, mass)
    found = [Fraction(float(v)) for v in ball.project(x)]
    assert length([a - b for a, b in zip(found, exact, strict=True)]) <= ball.projection_error(reach)


@settings(max_examples=80, deadline=None)
@given(points, st.floats(1e-3, 1e3))
def test_round_ball_cube_and_box(x, radius):
    exact = [Fraction(float(v)) for v in x]
    squared = sum(v * v for v in exact)
    if squared > Fraction(radius) ** 2:
        # the root to 40 digits
        root = Fraction(math.isqrt(int(squared * 10**80)), 10**40) if squared > 0 else Fraction(1)
        exact = [v * Fraction(radius) / root for v in exact]
    ball = LpBall(2, D, radius)
    found = [Fraction(float(v)) for v in ball.project(x)]
    reach = float(np.linalg.norm(x)) * (1 + 1e-12)
    assert length([a - b for a, b in zip(found, exact, strict=True)]) <= ball.projection_error(reach)
    cut = np.clip(x, -radius, radius)
    for box in (LpBall(math.inf, D, radius), Box(np.full(D, -radius), np.full(D, radius))):
        assert np.array_equal(box.project(x), cut)
        assert box.projection_error(reach) == 0


def root_of(excess):
    """The root of a decreasing function of λ ≥ 0, in mpmath's numbers; between a bracket's ends, and verified."""
    mpmath = pytest.importorskip("mpmath")
    low, high = mpmath.mpf(0), mpmath.mpf(1)
    while excess(high) > 0:
        low, high = high, 4 * high
    return mpmath.findroot(excess, (low, high), solver="anderson", maxsteps=200)


@pytest.mark.parametrize("p", [1.2, 1.5, 3.0, 8.0])
def test_iterative_projections_on_balls(p):
    mpmath = pytest.importorskip("mpmath")
    rng = np.random.default_rng(int(10 * p))
    with mpmath.workdps(30):
        for scale in (1.0, 8.0):
            z = scale * (1 + rng.random(3)) * rng.choice([-1, 1], 3)
            exact = [mpmath.mpf(float(v)) for v in np.abs(z)]

            def point(mu, exact=exact):
                # x + μx^(p−1) = a is a decreasing excess a − x − μx^(p−1)
                def left(root, a, mu=mu):
                    return a - root - mu * root ** (mpmath.mpf(p) - 1)

                return [root_of(partial(left, a=a)) for a in exact]

            mu = root_of(lambda mu: sum(x ** mpmath.mpf(p) for x in point(mu)) - 1)
            difference = [
                mpmath.mpf(abs(float(v))) - x for v, x in zip(LpBall(p, 3).project(z), point(mu), strict=True)
            ]
            error = float(mpmath.sqrt(sum(v * v for v in difference)))
            assert error <= LpBall(p, 3).projection_error(float(np.linalg.norm(z))) / 1000


def test_iterative_projections_on_ellipsoids():
    mpmath = pytest.importorskip("mpmath")
    rng = np.random.default_rng(5)
    with mpmath.workdps(30):
        for condition in (1.0, 1e-3):
            A = rng.normal(size=(3, 3))
            V = A @ A.T + condition * np.eye(3)
            V = (V + V.T) / 2
            center, z = rng.normal(size=3), rng.normal(size=3) * 20
            exact, difference = mpmath.matrix(V.tolist()), mpmath.matrix(z.tolist()) - mpmath.matrix(center.tolist())
            ellipsoid = Ellipsoid(V, 1.3, center)

            def point(weight, exact=exact, difference=difference):
                return mpmath.lu_solve(mpmath.eye(3) + weight * exact, difference)

            def excess(weight, exact=exact, point=point):
                y = point(weight)
                return (y.T * exact * y)[0] - mpmath.mpf(1.3) ** 2

            y = point(root_of(excess)) + mpmath.matrix(center.tolist())
            error = float(mpmath.norm(mpmath.matrix(ellipsoid.project(z).tolist()) - y))
            assert error <= ellipsoid.projection_error(float(np.linalg.norm(z))) / 1000
    assert ITERATIVE_ERROR == 2.0**-36


def test_the_intersection_asks_its_own_ball():
    # the closest point of a ball that is not at the origin, inside a large ellipsoid
    both = EllipsoidBall(Ellipsoid(np.eye(2) / 100.0), 1.0, [3.0, 0.0])
    np.testing.assert_allclose(both.project([3.0, 5.0]), [3.0, 1.0], atol=1e-12)
    np.testing.assert_allclose(both.project([3.5, 0.0]), [3.5, 0.0], atol=1e-12)
    assert both.projection_error(5.0) > 0

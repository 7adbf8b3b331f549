"""Constraint sets: projections and linear minimizers against a generic solver, and the invariants that define them."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from tabled import tabled

from dpkit.geometry import Box, ConvexSet, Ellipsoid, EllipsoidBall, LpBall, PolyhedralSet, Simplex

D = 5


def ellipsoid(rng, center=True):
    A = rng.normal(size=(D, D))
    return Ellipsoid(A @ A.T + 0.1 * np.eye(D), 1.5, rng.normal(size=D) if center else None)


def make_sets(rng):
    V = ellipsoid(rng)
    return {
        **{f"ball {p}": LpBall(p, D, 2.0) for p in (1, 1.2, 1.5, 2, 3, 8, math.inf)},
        "simplex": Simplex(D, 1.7),
        "box": Box(-rng.random(D), rng.random(D)),
        "ellipsoid": V,
        "both": EllipsoidBall(V, 1.0, V.center + 0.4 * rng.normal(size=D) / math.sqrt(D)),
    }


NAMES = sorted(make_sets(np.random.default_rng(0)))


def generic(s, objective, gradient):
    """The minimum of a smooth objective over the set by a general-purpose solver."""
    bounds, constraints, lift = None, [], False
    if isinstance(s, LpBall) and s.p == 1:
        # θ = u − w with u, w ≥ 0 and Σ(u + w) ≤ radius
        lift = True
        bounds = [(0, None)] * (2 * D)
        constraints = [{"type": "ineq", "fun": lambda v: s.radius - v.sum()}]
        start = np.full(2 * D, 0.05)
    elif isinstance(s, LpBall) and math.isinf(s.p):
        bounds, start = [(-s.radius, s.radius)] * D, np.full(D, 0.01)
    elif isinstance(s, LpBall):
        constraints = [{"type": "ineq", "fun": lambda v: s.radius**s.p - np.sum(np.abs(v) ** s.p)}]
        start = np.full(D, 0.01)
    elif isinstance(s, Simplex):
        bounds, constraints = [(0, None)] * D, [{"type": "eq", "fun": lambda v: v.sum() - s.mass}]
        start = s.center
    elif isinstance(s, Box):
        bounds, start = list(zip(s.lower, s.upper, strict=True)), s.center
    else:
        E = s if isinstance(s, Ellipsoid) else s.ellipsoid
        constraints = [{"type": "ineq", "fun": lambda v: E.radius**2 - (v - E.center) @ E.V @ (v - E.center)}]
        if isinstance(s, EllipsoidBall):
            constraints.append({"type": "ineq", "fun": lambda v: s.ball_radius**2 - np.sum((v - s.ball_center) ** 2)})
        start = s.center

    def f(v):
        return objective(v[:D] - v[D:] if lift else v)

    def df(v):
        return np.concatenate([gradient(v[:D] - v[D:]), -gradient(v[:D] - v[D:])]) if lift else gradient(v)

    found = minimize(
        f,
        start,
        jac=df,
        bounds=bounds,
        constraints=constraints,
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    return found.fun


@pytest.mark.filterwarnings("ignore:Values in x were outside bounds")  # the generic one may step out
@pytest.mark.parametrize("name", NAMES)
def test_projection_and_linear_minimizer_match_a_generic_solver(name):
    for seed in range(2):
        rng = np.random.default_rng(seed)
        s = make_sets(rng)[name]
        z = rng.normal(size=D) * rng.choice([0.5, 2.0, 10.0])
        x, v = s.project(z), s.linear_minimizer(z)
        assert s.contains(x)
        assert s.contains(v)
        nearest = generic(s, lambda u, z=z: np.sum((u - z) ** 2), lambda u, z=z: 2 * (u - z))
        lowest = generic(s, lambda u, z=z: z @ u, lambda u, z=z: z)
        # no worse than the solver, and not better than its own tolerance allows
        assert abs(np.sum((x - z) ** 2) - nearest) <= 1e-6 * (1 + nearest)
        assert abs(z @ v - lowest) <= 1e-6 * (1 + abs(lowest))


vectors = st.lists(st.floats(-50, 50), min_size=D, max_size=D).map(np.array)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=12, deadline=None)
@given(x=vectors, z=vectors)
def test_projection_is_idempotent_and_non_expansive(name, x, z):
    s = make_sets(np.random.default_rng(3))[name]
    a, b = s.project(x), s.project(z)
    assert np.allclose(s.project(a), a, atol=1e-8)
    assert np.linalg.norm(a - b) <= np.linalg.norm(x - z) + 1e-7
    # optimality: the angle at the projection is obtuse towards every point of the set
    assert (x - a) @ (b - a) <= 1e-6 * (1 + np.linalg.norm(x - a))


@pytest.mark.thorough
@settings(max_examples=100, deadline=None)
@example(log_p=-3.0, sizes=[0.0] * 30, signs=0, share=-0.005)  # powers of p/(p − 1) = 1001 are below floats
@example(log_p=-3.0, sizes=[-1.0, -1.5], signs=0, share=-1e-10)
@example(log_p=2.3, sizes=[0.0] * 30, signs=0, share=-15.0)  # powers of 200 are beyond them
@given(
    log_p=st.floats(-3, 2.3),
    sizes=st.lists(st.floats(-3, 3), min_size=1, max_size=30),
    signs=st.integers(0, 2**30 - 1),
    share=st.one_of(st.floats(-15, -1e-3), st.floats(-1e-4, -1e-10)),
)
def test_projection_on_balls_that_are_nearly_a_cross_or_a_cube_and_from_near_and_far(log_p, sizes, signs, share):
    p = 1.0 + 10**log_p
    z = 10 ** np.array(sizes) * [1 - 2 * (signs >> i & 1) for i in range(len(sizes))]
    largest = np.abs(z).max()
    ball = LpBall(p, len(z), 10**share * largest * float(np.linalg.norm(z / largest, p)))
    x = ball.project(z)
    assert ball.contains(x)
    # the angle at the projection is obtuse towards the point that is farthest in that direction, hence to all
    way = (z - x) / np.abs(z - x).max()
    farthest = ball.linear_minimizer(-way)
    # a few units in the last place of x turn that direction
    scale = np.linalg.norm(z) * 1e-15 / np.abs(z - x).max() + 1e-9
    assert way @ (farthest - x) <= scale * len(z) * (np.linalg.norm(x) + np.linalg.norm(farthest))


@pytest.mark.parametrize("name", [n for n in NAMES if n != "both"])
def test_diameter_bounds_distances_and_is_attained(name):
    rng = np.random.default_rng(5)
    s = make_sets(rng)[name]
    for norm in (2.0, math.inf):
        pairs = [(s.linear_minimizer(g), s.linear_minimizer(-g)) for g in rng.normal(size=(400, D))]
        longest = max(np.linalg.norm(a - b, norm) for a, b in pairs)
        assert longest <= s.diameter(norm) * (1 + 1e-9)
        assert longest >= 0.8 * s.diameter(norm)


def test_diameters_in_closed_form():
    assert LpBall(1.5, 4, 2.0).diameter(1.5) == 4.0
    assert LpBall(math.inf, 4).diameter(2) == pytest.approx(4.0)
    assert LpBall(1, 4).diameter(2) == 2.0
    assert Simplex(3).diameter(1) == 2.0
    assert Simplex(1).diameter() == 0.0
    assert Box([0, 0], [3, 4]).diameter() == 5.0
    both = EllipsoidBall(Ellipsoid(np.eye(2), 3.0), 1.0)
    assert both.diameter() == 2.0


@pytest.mark.parametrize("s", [LpBall(1, 4, 2.0), Simplex(4, 3.0)])
def test_vertices(s):
    assert isinstance(s, PolyhedralSet)
    g = np.array([1.0, -2.0, 0.5, 0.0])
    scores = s.vertex_scores(g)
    assert np.allclose(scores, [g @ s.vertex(i) for i in range(scores.size)])
    assert scores.min() == pytest.approx(g @ s.linear_minimizer(g))
    assert max(np.abs(s.vertex(i)).sum() for i in range(scores.size)) == s.radius_in(1)
    assert all(s.contains(s.vertex(i)) for i in range(scores.size))


@pytest.mark.parametrize("name", NAMES)
def test_every_set_has_the_protocol_and_refuses_bad_vectors(name):
    s = make_sets(np.random.default_rng(0))[name]
    assert isinstance(s, ConvexSet)
    assert s.contains(s.center)
    for method in (s.project, s.linear_minimizer, s.contains):
        with pytest.raises(ValueError, match=rf"must have shape \({D},\)"):
            method(np.zeros(D + 1))
        with pytest.raises(ValueError, match="must be finite"):
            method([math.nan] * D)
        with pytest.raises(TypeError, match="real numbers"):
            method(["a"] * D)


def test_extreme_scales():
    ball = LpBall(1.5, 3, 1e-200)
    assert ball.contains(ball.project([1e200, -1e180, 3.0]))
    assert np.abs(LpBall(3, 3).linear_minimizer([1e-300, -1e-300, 0.0])).max() == pytest.approx(2 ** (-1 / 3))
    assert np.array_equal(LpBall(3, 3).linear_minimizer([0.0, 0.0, 0.0]), np.zeros(3))
    assert np.array_equal(Simplex(2).project([1e16, 1e16]), [0.5, 0.5])


@tabled(
    ("make", "message"),
    [
        (lambda: LpBall(0.5, 3), "p must be at least 1, got p=0.5"),
        (lambda: LpBall(2, 0), "dimension must be at least 1, got dimension=0"),
        (lambda: LpBall(2, 3, -1.0), "radius must be positive"),
        (lambda: LpBall(2, 3).vertex(0), "p must be 1"),
        (lambda: Simplex(2, 0.0), "mass must be positive"),
        (lambda: Box([1.0], [0.0]), "lower must be at most upper"),
        (lambda: Box([], []), "at least one bound"),
        (lambda: Ellipsoid([[1.0, 2.0], [2.0, 1.0]]), "positive definite"),
        (lambda: Ellipsoid([[1.0, 2.0], [0.0, 1.0]]), "symmetric"),
        (lambda: Ellipsoid(np.eye(2)).diameter(1.0), "norm must be 2 or inf"),
        (lambda: EllipsoidBall(Ellipsoid(np.eye(2)), 1.0, [3.0, 0.0]), "interior point in common"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ValueError, match=message):
        make()

"""Many batches of a fixed size of pure releases: against laws of all kinds, exact games, and the totals of others."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from accounting import FixedSizeSubsampled, Gaussian, Laplace, PureDP, RandomizedResponse, UnaryEncoding, bound, epsilon
from accounting.adaptive.fixed_batches import pure_batches
from accounting.adaptive.fixed_batches.in_totals import batches_at_least, in_place
from accounting.adaptive.fixed_batches.pure_batches import ReplacedCoins, lowered
from accounting.compose.pairs import alternatives

TAIL = 1e-15


def game(eps, categories, rate, count, **more):
    return ReplacedCoins(eps, categories, rate, count, TAIL, **more)


def exact(x, eps, rate, count):
    """The game by its definition, of the theorem's laws."""
    if count == 0:
        return max(0.0, -math.expm1(x))
    a, values = math.exp(eps), []
    rows = [(a, 1), (1, a), (a, 1)], [(a, 1, 1), (1, a, 1), (1, 1, a)], [(1, a, a), (a, 1, a), (a, a, 1)]
    for absent, one, other in ([np.array(law) / np.sum(law) for law in laws] for laws in rows):
        mixed = [(1 - rate) * absent + rate * law for law in (one, other)]
        for p, q in (mixed, mixed[::-1]):
            values.append(sum(m * exact(x - math.log(m / n), eps, rate, count - 1) for m, n in zip(p, q, strict=True)))
    return max(values)


@settings(max_examples=25, deadline=None)
@given(
    logs=st.lists(st.tuples(*[st.floats(0.0, 1.0)] * 3), min_size=2, max_size=5),
    rate=st.floats(0.01, 0.95),
    at=st.floats(-1.0, 1.0),
)
def test_no_three_laws_within_a_factor_are_worse(logs, rate, at):
    laws = np.exp(np.array(logs))
    laws /= laws.sum(axis=0)
    absent, one, other = laws.T
    eps = max(float(np.max(np.abs(np.log(a / b)))) for a, b in ((absent, one), (absent, other), (one, other)))
    p, q = (1 - rate) * absent + rate * one, (1 - rate) * absent + rate * other
    divergence = float(np.maximum(p - math.exp(at) * q, 0.0).sum())
    assert divergence <= game(max(eps, 1e-5), None, rate, 1).delta(at) + 1e-12


@pytest.mark.parametrize(("eps", "rate", "at"), [(1.0, 0.1, 0.0), (1.0, 0.1, 0.05), (0.4, 0.5, -0.1), (2.5, 0.05, 0.3)])
def test_the_worst_second_step_is_on_the_corners(eps, rate, at):
    # all likelihood ratios on a lattice of the hexagon: a linear program over their laws
    logs = np.linspace(-eps, eps, 15)
    u, v = (x.ravel() for x in np.meshgrid(logs, logs))
    inside = np.abs(u - v) <= eps * (1 + 1e-12)
    u, v = np.exp(u[inside]), np.exp(v[inside])
    p, q = 1 - rate + rate * u, 1 - rate + rate * v
    worth = [a * exact(at - math.log(a / b), eps, rate, 1) for a, b in zip(p, q, strict=True)]
    best = linprog(-np.array(worth), A_eq=[np.ones_like(u), u, v], b_eq=[1, 1, 1])
    assert -best.fun == pytest.approx(exact(at, eps, rate, 2), rel=1e-9)


def test_responses_cost_less_than_what_is_as_private_and_more_categories_less():
    found = [game(1.0, k, 0.1, 20).delta(0.5) for k in (None, 3, 4, 50)]
    assert found[0] >= found[1] * (1 - 1e-3)
    assert np.all(np.diff(found[1:]) < 0)
    assert game(1.0, 2, 0.1, 20).delta(0.5) < found[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:ε is only known")
@pytest.mark.parametrize(
    ("total", "width"),
    [
        # 27.9 where both directions of every step are the worst at once, 22.5 where none is
        (1000 * FixedSizeSubsampled(PureDP(1.54), 514, 10_000), 3e-3),
        (50 * FixedSizeSubsampled(RandomizedResponse(1.0, 4), 50, 1000) + Gaussian(5.0), 1e-3),
        # 0.311 and 0.351 one by one
        (100 * FixedSizeSubsampled(UnaryEncoding(1.0, 10), 100, 10_000), 1e-3),
        (100 * FixedSizeSubsampled(UnaryEncoding(3.0, 10, optimized=False), 100, 10_000), 1e-3),
    ],
    ids=["alone", "among others", "unary", "symmetric"],
)
def test_totals_are_known_closely(total, width):
    lower, upper = bound(total, 1e-6)
    assert (1 - width) * upper < lower <= upper


@pytest.mark.thorough
def test_more_steps_than_a_game_has_are_several(monkeypatch):
    step = FixedSizeSubsampled(PureDP(0.2), 10, 1000)
    whole = epsilon(40 * step, 1e-6)
    monkeypatch.setattr(pure_batches, "MOST_STEPS", 15)
    (parts,) = alternatives(40 * step)
    assert [(pair.count, games) for pair, games in in_place(parts, 1e-6)] == [(15, 2), (10, 1)]
    assert whole * (1 - 1e-4) < epsilon(40 * step, 1e-6) < 1.01 * whole


def test_what_is_played():
    def of(inner, batch=10):
        (parts,) = alternatives(20 * FixedSizeSubsampled(inner, batch, 100))
        ((pair, _),) = in_place(parts, 1e-6) or parts
        return pair

    assert of(PureDP(1.0)) == ReplacedCoins(1.0, None, 0.1, 20, 1e-13)
    assert of(RandomizedResponse(1.0, 2)) == ReplacedCoins(1.0, 2, 0.1, 20, 1e-13)
    assert of(UnaryEncoding(1.0, 9)) == ReplacedCoins(1.0, "optimized", 0.1, 20, 1e-13)
    # too far for a grid
    assert not isinstance(of(PureDP(9.0)), ReplacedCoins)
    assert batches_at_least(FixedSizeSubsampled(PureDP(9.0), 1, 10), 2, 1e-6) is None
    assert batches_at_least(FixedSizeSubsampled(Laplace(1.0), 1, 10), 2, 1e-6) is None
    # as what is 1-DP
    assert of(Laplace(1.0)) == ReplacedCoins(1.0, None, 0.1, 20, 1e-13)


@pytest.mark.parametrize(("eps", "rate"), [(1.0, 0.01), (0.01, 0.5), (7.0, 0.3)])
def test_lowered_losses_are_multiples_of_one_step(eps, rate):
    lower, large, small = lowered(eps, rate, 100, TAIL)
    one, other = math.log1p(rate * math.expm1(lower)), -math.log1p(rate * math.expm1(-lower))
    assert other / one == pytest.approx(small / large, rel=1e-12)
    assert 0.97 * eps < lower <= eps

"""Many batches of a fixed size: against triples of normal laws on a lattice, and against players of the game."""

import math
import random

import numpy as np
import pytest
from hockey_stick import divergence
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import (
    DiscreteGaussian,
    FixedSizeSubsampled,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    PoissonSubsampled,
    bound,
    delta,
    epsilon,
)
from accounting.adaptive.fixed_batches.gaussian_batches import ReplacedSteps, _triangles
from accounting.adaptive.fixed_batches.in_totals import in_place
from accounting.compose.pairs import alternatives
from accounting.loss import replaced_noise
from accounting.loss.replaced_noise import TrianglePair, triangle_masses

TAIL = 1e-15
SPACING = 0.08
X, Y = np.meshgrid(SPACING * np.arange(-125, 126), SPACING * np.arange(-125, 126))


def normal(place):
    return np.exp(-((X - place[0]) ** 2 + (Y - place[1]) ** 2) / 2) * SPACING**2 / (2 * math.pi)


def laws(rate, first, second):
    """P and Q of a step, on a lattice of the plane, R in its origin: a sum over it is right to many digits."""
    absent, with_one, with_other = normal((0.0, 0.0)), normal(first), normal(second)
    return (1 - rate) * absent + rate * with_one, (1 - rate) * absent + rate * with_other


def of_masses(masses, at):
    return divergence(*masses, at)


def triangle(mu, share):
    """Where S and S′ are."""
    height = math.sqrt(share - share * share / 4)
    return (mu * (1 - share / 2), mu * height), (-mu * share / 2, mu * height)


@pytest.mark.parametrize("share", [0.0, 0.25, 0.7, 1.0])
@pytest.mark.parametrize(("mu", "rate"), [(0.5, 0.3), (1.0, 0.01), (2.0, 0.1)])
def test_the_losses_of_a_triangle_are_those_of_its_laws(mu, rate, share):
    p, q = laws(rate, *triangle(mu, share))
    edges = np.linspace(-1.0, 1.0, 21) * mu * rate * 3
    in_p, in_q = triangle_masses(mu, share, rate, edges)
    assert (in_p.sum(), in_q.sum()) == pytest.approx((1.0, 1.0), abs=1e-12)
    less_p, less_q = (in_p, in_q) if share == 0 else triangle_masses(mu, share, rate, edges, below=True)
    for k in range(edges.size):
        # what is counted above an edge is the divergence there, for it is the best event
        found, less = (
            a[k + 1 :].sum() - math.exp(edges[k]) * b[k + 1 :].sum() for a, b in ((in_p, in_q), (less_p, less_q))
        )
        assert found == pytest.approx(divergence(p, q, edges[k]), abs=7e-4 * rate)
        assert less <= found * (1 + 1e-12) <= less + 1e-3 * rate


@pytest.mark.parametrize(("mu", "rate", "share"), [(0.5, 0.3, 1.0), (2.0, 0.01, 0.25), (4.0, 0.1, 0.84)])
def test_masses_of_a_triangle_hold_the_exact_tails_between_them(mu, rate, share, monkeypatch):
    # far out on either side, against rules with more and more places
    edges = np.linspace(-3.0, 3.0, 13) * mu
    edges = edges[edges > math.log1p(-rate) * 0.9] if rate > 0.2 else edges

    def curves(places, **more):
        monkeypatch.setattr(replaced_noise, "_BESIDE", places)
        monkeypatch.setattr(replaced_noise, "_BESIDE_BELOW", places)
        p, q = triangle_masses(mu, share, rate, edges, **more)
        above = np.cumsum(p[::-1])[::-1][1:] - np.exp(edges) * np.cumsum(q[::-1])[::-1][1:]
        below = np.exp(edges) * np.cumsum(q)[:-1] - np.cumsum(p)[:-1]
        return np.where(edges > 0, above, below)

    coarse, fine, least = curves(0.1), curves(0.02), curves(0.02, below=True)
    some = fine > 1e-17
    assert np.count_nonzero(some) >= 4
    slack = 1e-11 * fine + 1e-16 * (np.exp(np.minimum(edges, 0.0)) + (edges > 0))
    assert np.all((least <= fine + slack)[some])
    assert np.all((fine <= coarse + slack)[some])
    assert np.all((coarse <= 1.3 * least + slack)[some])


@pytest.mark.thorough
@settings(max_examples=10, deadline=None)
@given(
    places=st.tuples(*[st.floats(-1.0, 1.0)] * 4),
    case=st.sampled_from([(0.3, 0.9), (1.0, 0.2), (2.5, 0.01)]),
    at=st.floats(0.0, 1.0),
)
def test_no_three_laws_are_worse_than_the_cells_say(places, case, at):
    # S and S′ anywhere, moved apart as far as they may be
    mu, rate = case
    first, second = np.array(places[:2]), np.array(places[2:])
    longest = max(np.linalg.norm(first), np.linalg.norm(second), np.linalg.norm(first - second), 1e-9)
    first, second = mu * first / longest, mu * second / longest
    p, q = laws(rate, first, second)
    fine = np.linspace(0.0, at, 2)
    for one, other, share in ((p, q, np.sum(second**2)), (q, p, np.sum(first**2))):
        # above 0: what the theorem says of S′ at this distance from R, and of none
        exact = min(1.0, float(share) / mu**2)
        exact = exact if exact > 1e-9 else 0.0
        tightest, least = (triangle_masses(mu, of, rate, fine) for of in (exact, 0.0))
        found = divergence(one, other, at)
        from_cell = max(of_masses((m[0][2:], m[1][2:]), at) for m in (tightest, least))
        assert found <= from_cell + 2e-3 * rate
    both = ReplacedSteps(mu, rate, 1, TAIL).delta(at)
    assert max(divergence(p, q, at), divergence(q, p, at)) <= both + 2e-3 * rate


@pytest.mark.parametrize("at", [0.05, 0.3, -0.1])
def test_triangles_fall_above_nothing_and_rise_below(at):
    values = [of_masses(triangle_masses(1.0, share, 0.2, np.array([at])), at) for share in np.linspace(0.02, 1, 9)]
    assert np.all(np.diff(values) * np.sign(at) < 0)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:ε is only known")
def test_a_game_is_cheaper_than_steps_that_are_worst_one_by_one_and_known_closely():
    step = FixedSizeSubsampled(Gaussian(2.0), 10, 100)
    for count, width in ((2, 0.0015), (100, 0.007)):
        lower, upper = bound(count * step, 1e-6)
        assert 0 < upper - lower < width * upper
    # 2.8838 where both directions of every step are the worst at once
    assert upper == pytest.approx(2.689, abs=2e-3)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:ε is only known")
def test_equal_distances_are_the_worst_of_many_small_steps():
    step = FixedSizeSubsampled(Gaussian(1.0), 1, 20)
    poisson = PoissonSubsampled(Gaussian(1.0), 0.05)
    lower, upper = bound(900 * step, 1e-5)
    assert lower > 1.01 * epsilon(900 * poisson, 1e-5)
    assert upper < 1.015 * lower


OTHERS = [5 * Laplace(10.0), 3 * Gaussian(5.0), 2 * FixedSizeSubsampled(Gaussian(3.0), 1, 10)]


@pytest.mark.parametrize("others", OTHERS, ids=repr)
def test_a_game_among_others_costs_more_than_either_and_less_than_the_sum(others):
    steps = 30 * FixedSizeSubsampled(Gaussian(2.0), 10, 100)
    found = epsilon(steps + others, 1e-6)
    assert max(epsilon(steps, 1e-6), epsilon(others, 1e-6)) < found < epsilon(steps, 5e-7) + epsilon(others, 5e-7)


@pytest.mark.slow
def test_totals_grow_with_steps_rate_and_noise():
    def total(count, size, z):
        return float(epsilon(count * FixedSizeSubsampled(Gaussian(z), size, 1000), 1e-6))

    counts = [total(count, 50, 2.0) for count in (1, 2, 9)]
    sizes = [total(4, size, 2.0) for size in (50, 999, 1000)]
    noises = [total(4, 50, z) for z in (5.0, 0.21, 0.19)]
    for found in (counts, sizes, noises):
        assert np.all(np.diff(found) > 0)


def check_random_compositions(number, seed):
    rng = random.Random(seed)
    for _ in range(number):
        z, size = 10 ** rng.uniform(-0.2, 0.7), round(10 ** rng.uniform(1, 3.7))
        steps = rng.choice((2, 10, 100)) * FixedSizeSubsampled(Gaussian(z), size, 10_000)
        total = steps + rng.choice((0, 3)) * Laplace(10 * z) + rng.choice((0, 2)) * Gaussian(5 * z)
        lower, upper = bound(total, 10 ** rng.uniform(-12, -3))
        assert 0 <= lower <= upper
        assert upper - lower <= 0.01 * upper


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:ε is only known")
def test_brackets_of_random_compositions():
    check_random_compositions(2, seed=1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:ε is only known")
def test_brackets_of_200_random_compositions():
    check_random_compositions(200, seed=2)


@pytest.mark.thorough
def test_what_is_cut_off_is_counted():
    step = 20 * FixedSizeSubsampled(Gaussian(2.0), 10, 1000)
    poisson = 20 * PoissonSubsampled(Gaussian(2.0), 0.01)
    for total in (step, step + 5 * Laplace(10.0)):
        assert delta(total, 0.3) >= delta(poisson, 0.3)
    game = ReplacedSteps(0.5, 0.01, 100, 1e-10)
    assert game.infinite >= 1e-12
    assert game.delta(1e3) >= game.infinite
    assert epsilon(step, 1e-200) < math.inf


@pytest.mark.thorough
def test_a_triangle_is_bounded_by_the_game():
    for mu, rate in ((0.5, 0.1), (1.0, 0.01)):
        one = TrianglePair(mu, rate)
        # P is rounded down and Q up, so that no digit that is missing makes a product larger
        losses, p, q, _ = one.atoms()
        assert p.sum() < 1 < q.sum() < 1 + 1e-9
        assert np.all(np.exp(losses) * q <= p * (1 + 1e-13))
        for at in (0.0, 0.02, 0.2):
            assert one.delta(at) <= ReplacedSteps(mu, rate, 1, TAIL).delta(at)


def test_laws_that_are_only_as_private_as_normal_ones_are_not_played():
    for inner, games in ((GeneralizedGaussian(30.0), False), (Gaussian(30.0), True)):
        (parts,) = alternatives(20 * FixedSizeSubsampled(inner, 10, 100))
        assert (in_place(parts, 1e-6) is not None) == games


def test_batches_with_little_noise_are_not_lost_below():
    # of strong steps most losses lie next to the smallest one, ln(1 − q), a tenth of a deviation from 0
    laws = _triangles(2.5, 1e-3, 1e-10)
    nodes = laws.step * np.arange(-laws.reach, laws.reach + 1)
    spreads = laws.masses @ nodes**2
    assert spreads.min() > 0.2 * spreads.max()
    assert np.all(laws.masses.sum(axis=1) > 1 - 1e-9)


@pytest.mark.slow
def test_ten_thousand_batches_are_known_closely():
    # 0.95 % with wide cells, 1.2 % with cells of uneven widths
    lower, upper = bound(10_000 * FixedSizeSubsampled(Gaussian(5.0), 1000, 10_000), 1e-6)
    assert 0.992 * upper < lower <= upper


@pytest.mark.parametrize(
    ("inner", "count"),
    [(DiscreteGaussian(12.0), 300), (DiscreteGaussian(16.5, shift=300), 300), (DiscreteGaussian(0.06, shift=10), 2)],
)
def test_lattice_noise_on_the_rarest_batches_has_an_answer(inner, count):
    # the game asked for was not the one that had been found possible, or its loss had no deviation
    assert 0 <= epsilon(count * FixedSizeSubsampled(inner, 1, 10**8), 1e-9) < math.inf

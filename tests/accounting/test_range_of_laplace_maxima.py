"""The range of the privacy loss of Laplace noisy maxima: the computation in its proof, and exact mechanisms."""

import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import Laplace, NoisyMax, PoissonSubsampled, bound, delta, epsilon
from accounting.accountants.laplace_maxima import LARGEST_RANGE
from accounting.accountants.lattice_games import two_losses

STEP, CELL = 0.01, 0.005
THETAS = np.linspace(-4, 4, 81)[:, None]


def ramps(t, values):
    """∫_t^∞ e^(t − s) values(s) ds, for values that fall like e^(−s) at the end."""
    weighted = np.exp(-t) * values
    pieces = (weighted[1:] + weighted[:-1]) / 2 * STEP
    return np.exp(t) * (np.append(np.cumsum(pieces[::-1])[::-1], 0.0) + weighted[-1] / 2)


def margin(distance, cell=CELL, limit=LARGEST_RANGE):
    """Step (b) of the proof, for all d within half a ``cell`` of ``distance``: how much is left over, relatively.

    Functions of t are linear between the points, and the trapezoids exact, to 1.5e-4 of ``rounded``: with K(t) the
    integral over a step, that over a ramp has K′ = K − step, and (ln step)′ and λ are at most 4 and 1. Below −5 and
    beyond d + 12 they are constant and a multiple of e^(−t), to 1e-4.

    Floats, of unit u = 1.2e-16. The three terms of ``second`` are at most 1 and each right to 5u, and their
    difference is at least 5e-8, so right to 4e-8 of itself. All else adds, multiplies and divides nonnegative numbers
    (in ``ramps`` fewer than 2,600 of them: 3e-13), but for differences that leave at least half of their first term,
    in the F and ``first``, and 1 − e^(2t) in ``inside``, where d/4 is added: 1e-13 at most. So each array is right to
    5e-8 of itself, and ``left`` is made of terms that are no more than 14 ``size`` together: it is right to 1e-6 of
    ``size``. More than 0 is needed, and 0.005 is asked for.
    """
    t = np.arange(-5.0, distance + 16, STEP)
    f0, fd = 0.5 * np.exp(-np.abs(t)), 0.5 * np.exp(-np.abs(t - distance))
    F0, Fd = np.where(t < 0, f0, 1 - f0), np.where(t < distance, fd, 1 - fd)
    # integrals of f_0 f_d, f_0 F_d and f_d F_0 from t on
    far = np.exp(-distance)
    inside = far * (np.clip(distance - t, 0, distance) / 4 + (1 - np.exp(2 * np.minimum(t, 0))) / 8)
    ahead, both = np.exp(np.minimum(distance - t, 0)), far * np.exp(np.minimum(2 * (distance - t), 0)) / 8
    joint, first = inside + both, far * ahead / 2 - both + inside
    second = 1 - F0 * Fd - first
    assert second.min() > 5e-8
    assert t.size < 2600
    joints, firsts, seconds = ramps(t, joint), ramps(t, first), ramps(t, second)
    half, rest = 1.01 * cell / 2, []
    for share in np.linspace(np.exp(-distance - cell), 2 - np.exp(-distance - cell), 17):
        ratio = share / far
        step = (ratio + 1) * joint + np.maximum(ratio * f0 * Fd, fd * F0)
        needed, size = ramps(t, step), seconds + ratio * firsts
        rounded = needed + step + limit * (seconds + second)
        slack = half * (needed + (ratio + 1) * joints + limit * seconds) + 2.5e-4 * rounded
        turn = half * size + 2.5e-4 * (size + second + ratio * first)
        left = limit * seconds - needed - slack + THETAS * (seconds - ratio * firsts) - np.abs(THETAS) * turn
        assert np.all((rounded + 5 * size + second + ratio * first <= 14 * size)[t < distance + 12])
        rest.append((left / size)[:, t < distance + 12].min(axis=1))
    # one θ for both ends of a cell of ratios
    return float(np.minimum(rest[1:], rest[:-1]).max(axis=1).min())


@pytest.mark.parametrize("distance", [0.0025, 0.1025, 0.2725, 0.6, 1.3, 2.4, 3.2, 3.7, 3.9975])
def test_two_scores_near_one_another(distance):
    assert margin(distance) > 0.005


@pytest.mark.slow
def test_two_scores_near_one_another_everywhere():
    # 0.0054 is left at 4
    assert min(margin(distance) for distance in np.arange(CELL / 2, 4.0, CELL)) > 0.005


def test_the_computation_refuses_what_is_wrong():
    """Ties of two and three reach 75/64; and the bounds of step (b) are 1.2175 for ties, and more at 4."""
    assert margin(0.0025, limit=1.2) < 0
    assert margin(1.0, limit=75 / 64) < 0
    assert margin(3.9975, limit=1.22) < 0


@pytest.mark.parametrize("distance", [4.0, 5.0, 8.0, 14.0])
def test_two_scores_far_from_one_another(distance):
    """Step (c), by the midpoint rule: ∫(−g′/g)MH over ∫MH; what is left is more than the rule's error, 1e-4."""
    t = np.arange(-8.0, distance + 30, STEP)
    x = t + STEP / 2
    hazard, m = 1 / (2 * np.exp(np.maximum(x, 0)) - 1), 1 - np.exp(-distance) / 2
    after = np.exp(np.minimum(distance - x, 0))
    mass = np.where(x < 0, 2 * m * np.exp(np.minimum(x, 0)), np.where(x < distance, m * (1 + hazard), after))
    rate = np.where(x < 0, 0.0, np.where(x < distance, 1 + hazard, 2 / (2 - after)))
    means, masses = (ramps(t, np.cumsum(values[::-1])[::-1]) for values in (rate * mass, mass))
    assert 1.2765 < np.max((means / masses)[t < distance + 8]) < 1.2795 < LARGEST_RANGE


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(40)


def laplace_max(scores):
    """Exact but for the rule, which is one of degree 79 between the scores, and in e^(−distance) beyond them."""
    ends = np.unique(scores)
    low, high = ends[0], ends[-1]
    v = (_NODES + 1) / 2
    x = [low + np.log(v), high - np.log(v)]
    w = [_WEIGHTS / (2 * v)] * 2
    for left, right in itertools.pairwise(ends):
        x.append(left + (right - left) * v)
        w.append(_WEIGHTS * (right - left) / 2)
    far = np.concatenate(x)[:, None] - scores
    half = 0.5 * np.exp(-np.abs(far))
    below = np.where(far < 0, half, 1 - half)
    return np.concatenate(w) @ (half / below * below.prod(axis=1, keepdims=True))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, 0.5, 1.0]) | st.floats(-4, 4), min_size=2, max_size=7), st.data(), st.floats(0.02, 4)
)
def test_no_two_outcomes_differ_by_more(scores, data, eps):
    moved = data.draw(st.lists(st.sampled_from([0.0, 1.0, 0.4]), min_size=len(scores), max_size=len(scores)))
    before, scale = np.array(scores), data.draw(st.sampled_from([1.0, eps]))
    p, q = laplace_max(scale * before), laplace_max(scale * before + eps * np.array(moved))
    assert p.sum() == pytest.approx(1, abs=1e-11)
    losses = np.log(p / q)
    assert np.ptp(losses) <= LARGEST_RANGE * eps + 1e-9
    assert np.abs(losses).max() <= eps + 1e-9


def test_scores_that_tie_come_within_a_tenth():
    before, eps = np.zeros(5), 0.01
    after = before + eps * np.array([1, 1, 0, 0, 0])
    middle = (before + after) / 2 - before
    losses = np.log(laplace_max(-middle) / laplace_max(middle))
    assert np.ptp(losses) == pytest.approx(75 / 64 * eps, rel=1e-4)
    assert np.ptp(losses) > LARGEST_RANGE * eps / 1.1


@pytest.mark.parametrize("eps", [0.01, 0.3, 2.0])
def test_no_coin_of_the_lower_value_is_longer(eps):
    for low, high in two_losses("laplace", eps):
        assert np.all(low + high <= LARGEST_RANGE * eps)
        assert np.all(np.maximum(low, high) <= eps * (1 + 1e-9))


@pytest.mark.parametrize(
    ("choices", "as_noise", "share"),
    [
        (100 * NoisyMax(0.1, "laplace"), 100 * Laplace(10.0), 0.64),
        (100 * NoisyMax(1.0, "laplace"), 100 * Laplace(1.0), 0.72),
        (20 * PoissonSubsampled(NoisyMax(0.3, "laplace"), 0.1), 20 * PoissonSubsampled(Laplace(1 / 0.3), 0.1), 0.71),
        (2 * NoisyMax(0.3, "laplace"), 2 * Laplace(1 / 0.3), 1.0001),
        (NoisyMax(0.3, "laplace"), Laplace(1 / 0.3), 1.0001),
    ],
    ids=repr,
)
def test_choices_are_cheaper_than_noise_on_a_number(choices, as_noise, share):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, before = bound(choices, 1e-6), epsilon(as_noise, 1e-6)
    assert found.lower <= found.upper <= share * before
    assert delta(choices, found.upper) <= 1e-6 * (1 + 1e-3)

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

CELL, FAR = 0.005, 2.0
NODES, WEIGHTS = np.polynomial.legendre.leggauss(3)
# What is asked for at the middle of a cell: T changes by a factor of at most e^CELL to its ends.
MIDDLE = LARGEST_RANGE * np.exp(-CELL) - 1e-4


def density(x):
    return 0.5 * np.exp(-np.abs(x))


def distribution(x):
    return np.where(x < 0, density(x), 1 - density(x))


def evenly(first, last, step):
    return np.linspace(first, last, max(1, int(np.ceil((last - first) / step - 1e-9))) + 1)


def multipliers(distance, limit=MIDDLE, step=0.025, cells=24):
    """Step (b) of the proof: how long the interval of θ is that will do in a cell of κ, for the worst cell.

    All integrals are over cells whose ends are the kinks, by Gauss's rule for polynomials of degree 5: for sums of
    e^(kx), |k| ≤ 4, right to 1e-5. All ramps are at ends of cells, or at −∞. What is between them:

    A ramp at t between two ends, h apart, is at most a mixture of the two, the same outside of the cell, and its
    integral is smaller by at most h²/8. By parts, what this is multiplied by is at most (b + κa)((3 + |θ|)H + H′), H
    the other ramp, as b′ − f_0 f_d = f_d′F_0 ≤ b and the like for a. For |θ| ≤ 4 it is less than ``between``, the
    largest value in the cells on both sides of t (|a′| ≤ 2a, |b′| ≤ 2b), whatever the place of the other ramp in the
    cells on both sides of its own; it is taken off for both ramps.

    What is below −5 is at most e^(−10 − d)(κ + 1), less than 5e-4 of P_d; a ramp that begins there is a mixture of
    that at −5 and of 1. Where one ramp begins beyond d + 10, a and b are multiples of e^(−x) to 3e-5 and all is, to
    3e-4, a mean of what it is with either ramp at d + 10 and without the other. 0.001 of P_d is taken off for both.
    """
    near = evenly(-5, 0, step), evenly(0, distance, step), evenly(distance, distance + 2, step)
    edges = np.unique(np.concatenate([*near, evenly(distance + 2, distance + 10, 3 * step)]))
    t, widths = edges, np.append(np.diff(edges), 3 * step)
    widths = np.maximum(widths, np.append(widths[0], widths[:-1]))
    edges = np.concatenate([edges, np.arange(distance + 10.5, distance + 24, 0.5)])
    middle, half = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
    x, w = (middle[:, None] + half[:, None] * NODES).ravel(), (half[:, None] * WEIGHTS).ravel()

    def with_none(values, none):
        return np.vstack([np.full(values.shape[1], none), values])

    gone = np.exp(np.minimum(t[:, None] - x, 0.0))
    ramp = with_none(1 - gone, 1.0)
    slope = with_none(np.where(x > t[:, None], gone, 0.0), 0.0)
    a, b = density(x) * distribution(x - distance), density(x - distance) * distribution(x)
    joint = (ramp * (w * density(x) * density(x - distance))) @ ramp.T
    first, second = (ramp * (w * a)) @ ramp.T, (ramp * (w * b)) @ ramp.T
    rises = (ramp * (w * a)) @ slope.T + joint, (slope * (w * b)) @ ramp.T + joint
    grown = np.exp(4 * widths) * widths**2
    at = grown * density(t) * distribution(t - distance), grown * density(t - distance) * distribution(t)
    # the first place and the last one of the other ramp, from the end and the beginning of what is around t
    first_ahead = (t - widths)[:, None] - (t + widths)
    last_ahead = np.minimum((t + widths)[:, None] - (t - widths), 0.0)
    other = np.maximum(-np.expm1(first_ahead), 0.0) + np.where(first_ahead < 0, np.exp(last_ahead), 0.0) / 8
    other = with_none(other, 1.0).T
    between = [with_none(one[:, None] * other, 0.0) for one in at]
    between = [one + one.T for one in between]
    found, before = np.inf, None
    for ratio in np.geomspace(1, 2 * np.exp(distance) - 1, cells + 1):
        left = (limit - 0.001) * second - ratio * rises[0] - rises[1] - ratio * between[0] - between[1]
        turn = second - ratio * first
        with np.errstate(divide="ignore", invalid="ignore"):
            theta = -left / turn
        now = theta[turn > 0].max(initial=-4.0), theta[turn < 0].min(initial=4.0)
        if np.any(left[turn == 0] < 0):
            return -np.inf
        if before is not None:
            found = min(found, min(now[1], before[1]) - max(now[0], before[0]))
        before = now
    return float(found)


@pytest.mark.parametrize("distance", [0.0, 0.0025, 0.1025, 0.2525, 0.6, 1.3, 1.9975])
def test_two_scores_near_one_another(distance):
    assert multipliers(distance) > 0


@pytest.mark.slow
def test_two_scores_near_one_another_everywhere():
    assert min(multipliers(distance) for distance in np.arange(CELL / 2, FAR, CELL)) > 0


STEP = 0.01


def ramps(t, values):
    """∫_t^∞ e^(t − s) values(s) ds, for values that fall like e^(−s) at the end."""
    weighted = np.exp(-t) * values
    pieces = (weighted[1:] + weighted[:-1]) / 2 * STEP
    return np.exp(t) * (np.append(np.cumsum(pieces[::-1])[::-1], 0.0) + weighted[-1] / 2)


def margin(limit=LARGEST_RANGE, nearest=FAR, cells=64):
    """Step (c) of the proof, for all d ≥ ``nearest``: how much of ∫bH is left over.

    The trapezoids are exact to h²/12 of second derivatives, at most a few times the values, and h²/8 of a jump of the
    first: to 1e-4. Beyond 12 all are multiples of e^(−z), to 1e-5.
    """
    z, thetas = np.arange(-nearest, 13, STEP), np.linspace(-3, 3, 121)[:, None]
    up, down = np.exp(-np.maximum(z, 0.0)), np.minimum(z, 0.0)
    ratios = np.linspace(0.5, 1, cells + 1)
    left = np.full((cells + 1, thetas.size), np.inf)
    for iota in (0.0, np.exp(-nearest)):
        b = np.where(z < 0, np.exp(down) / 2 - iota / 4, up / 2 - iota * up**2 / 4)
        g = np.where(z < 0, b, (1 - iota / 2) * (up - up**2 / 2))
        # their integrals from z on, and that of f_0 f_d
        below = -np.expm1(down) / 2 + iota * down / 4
        B, G = up / 2 - iota * up**2 / 8 + below, (1 - iota / 2) * (up - up**2 / 4) + below
        joint = iota * up**2 / 8 - iota * down / 4
        bs, gs, joints = ramps(z, B), ramps(z, G), ramps(z, joint)
        for i, ratio in enumerate(ratios):
            risen = ramps(z, np.maximum(b - ratio * g, 0.0))
            some = ((limit - 1) * bs - joints - risen - thetas * (bs - ratio * gs)) / bs
            none = (limit - 1) * B[0] - joint[0] - 0.41 * np.exp(-nearest) - thetas[:, 0] * (B[0] - ratio * G[0])
            rest = np.minimum(some[:, z < 12].min(axis=1), none / B[0])
            left[i] = np.minimum(left[i], np.where(limit - 1 >= thetas[:, 0] * (1 - ratio), rest, -np.inf))
    # one θ for both ends of a cell of ratios
    return float(np.minimum(left[1:], left[:-1]).max(axis=1).min())


def test_two_scores_far_from_one_another():
    # all that lies between is of second order in the steps
    assert margin() > 30 * STEP**2


def test_the_computations_refuse_what_is_wrong():
    """Ties of two and three reach 75/64; ramps 1.2175 near ties, 1.2115 for d = ½, 1.2092 for 1.9, and 1.2245 in (c).

    The values for ramps are by integrals in closed form, and the best θ for 121 ratios.
    """
    assert multipliers(0.0025, limit=75 / 64) < 0
    assert multipliers(0.0025, limit=1.218) < 0
    assert multipliers(0.5, limit=1.212) < 0
    assert multipliers(1.9, limit=1.21) < 0
    # steps so coarse that too much may be between them
    assert multipliers(0.0, step=0.1) < 0
    assert margin(limit=1.2243) < 0


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


def test_no_climb_finds_scores_that_differ_by_more():
    """Scores are moved at random, and kept where the range is larger: at best it is 1.1739, of five of two values."""
    rng, eps, best = np.random.default_rng(7), 1e-3, 0.0
    for moved in ([1, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0, 0]):
        half = eps / 2 * np.array(moved)

        def reached(scores, half=half):
            return np.ptp(np.log(laplace_max(scores - half) / laplace_max(scores + half))) / eps

        scores = rng.normal(size=half.size)
        found = reached(scores)
        for step in np.repeat(np.geomspace(1.0, 0.01, 12), 30):
            near = scores + step * rng.normal(size=half.size)
            if (value := reached(near)) > found:
                scores, found = near, value
        best = max(best, found)
    assert 1.165 < best < 1.175 < LARGEST_RANGE


def test_scores_that_tie_come_within_a_twentieth():
    before, eps = np.zeros(5), 0.01
    after = before + eps * np.array([1, 1, 0, 0, 0])
    middle = (before + after) / 2 - before
    losses = np.log(laplace_max(-middle) / laplace_max(middle))
    assert np.ptp(losses) == pytest.approx(75 / 64 * eps, rel=1e-4)
    assert np.ptp(losses) > LARGEST_RANGE * eps / 1.05


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

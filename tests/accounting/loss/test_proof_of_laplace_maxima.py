"""The computations in the proof of the range of Laplace noisy maxima, and what they are built of."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.loss.laplace_maxima import excess

# How fast losses part at most, by (b) and (c), and by (e) where κ ≤ e^d.
LARGEST, EVEN = 1.2, 1.05
# Steps of x, and of the places t of steepest functions; what a rule may be wrong by, of ∫bH.
FINE, STEP, SLACK = 0.025, 0.05, 5e-4
# Up to which distance there are two functions, and from where all distances are seen at once.
NEAR, FAR = 1.4, 3.0


def density(x):
    return 0.5 * np.exp(-np.abs(x))


def distribution(x):
    return np.where(x < 0, density(x), 1 - density(x))


def evenly(first, last, step):
    return np.linspace(first, last, max(1, int(np.ceil((last - first) / step - 1e-9))) + 1)


def cells(*ends):
    """Edges, of which the ends are some, the middles of what is between them, and the widths."""
    pieces = [evenly(first, last, FINE) for first, last in itertools.pairwise(ends)]
    edges = np.unique(np.concatenate([*pieces, evenly(ends[-1], ends[-1] + 10, 2 * FINE)]))
    return edges, (edges[1:] + edges[:-1]) / 2, np.diff(edges)


def steepest(x, t):
    """φ_t and how much its second and its third derivatives are at most, for t and one step to both sides.

    The first of all t stands for −∞: from it to the second one φ is a mixture, and there is no bend.
    """

    def at(t):
        z = np.exp(np.minimum(t[:, None] - x, 2.5))
        y, near = z**2, z / 2
        far = np.exp((1 - y) / 2) / 2
        second, third = np.abs(y**2 - 2 * y), np.abs(y**3 - 6 * y**2 + 4 * y)
        return np.where(z < 1, [1 - near, near, near], [far, far * second, far * third])

    sides = [at(t - STEP), at(t), at(t + STEP)]
    bends = np.max(sides, axis=0)[1:]
    bends[:, 0] = 0
    return sides[1][0], *bends


def lowered(weights, before):
    """Less for every function that increases from 0, and positive, negative, positive.

    Of the first ``before`` cells the first negative ones are taken together with what follows, until that is more;
    and what is positive between negative ones is left out.
    """
    rows, place = np.arange(len(weights)), np.arange(weights.shape[1])
    early = weights[:, :before] < 0
    first, some = np.argmax(early, axis=1)[:, None], early.any(axis=1)
    sums = np.cumsum(np.where(place >= first, weights, 0.0), axis=1)
    over = (sums >= 0) & (place > first)
    over[:, before - 1] = True
    last = np.argmax(over, axis=1)
    weights = np.where((place >= first) & (place < last[:, None]) & some[:, None], 0.0, weights)
    weights[rows, last] = np.where(some, sums[rows, last], weights[rows, last])
    negative = weights < 0
    begun, to_come = (np.logical_or.accumulate(one, axis=1) for one in (negative, negative[:, ::-1]))
    return np.where(begun & to_come[:, ::-1], np.minimum(weights, 0.0), weights)


def least(weights, before, values, bend):
    """What ∫WH is at least for H = φ_t, for every t and up to the next one: second derivatives are bounded."""
    weights = lowered(weights, before)
    return weights @ values.T - STEP**2 / 8 * np.abs(weights) @ bend.T


def worst(found):
    """Of every two neighbouring κ with the best ϑ for both."""
    found = np.array(found)
    return float(np.minimum(found[1:], found[:-1]).max(axis=1).min())


def two_functions(distance, limit=LARGEST, parts=8, thetas=(0.0, 0.2, 0.5, 0.75, 1.0)):
    """Step (b) of the proof: how much of ∫bH is left over, for κ ≤ e^d and for κ from there to 5.

    What is below −5 is at most (κ − 1)∫b(ϑ + Λ_d)H_d < 2e-5·κ, and as much is taken off. For x > d + 3.3 all weights
    are positive, and φ_t is next to nothing there for t > d + 6.
    """
    edges, x, w = cells(-5.0, 0.0, distance, distance + 4)
    t = np.append(-60.0, np.arange(-5, distance + 6, STEP))
    values, bend, third = steepest(x, t)
    ends = steepest(edges, t)[0]
    a, b = w * density(x) * distribution(x - distance), w * density(x - distance) * distribution(x)
    a_ends, b_ends = density(edges) * distribution(edges - distance), density(edges - distance) * distribution(edges)
    joint, before = w * density(x) * density(x - distance), int(np.searchsorted(x, distance))
    a_rises, b_rises = joint - np.sign(x) * a, joint - np.sign(x - distance) * b
    alone, highest = (limit - 1) * b - joint, np.exp(distance)
    low = np.array([alone + 2 * ratio * a * (x < 0) + b - ratio * a for ratio in (1.0, highest)])
    left = least(low, before, values, bend) / (b @ values.T)
    both, found = (values * b) @ values.T, []
    for ratio in np.geomspace(highest, min(2 * highest - 1, 5.0), parts + 1):
        apart, apart_ends = b - ratio * a, b_ends - ratio * a_ends
        kept, kept_ends = (
            np.where((at < distance) | (one > 0), one, 0.0) for at, one in ((x, apart), (edges, apart_ends))
        )
        moved = np.diff(kept_ends * ends)
        slope = np.where(kept != 0, b_rises - ratio * a_rises, 0.0)
        found.append([])
        for theta in thetas:
            plain = alone + 2 * ratio * a * (x < 0) + theta * apart
            weights = plain * values + moved
            weights -= STEP**2 / 8 * (np.abs(plain + slope) * bend + np.abs(kept) * third)
            weights[:, 0] -= 2e-5 * ratio
            allowed = theta * (ratio / highest - 1) < limit - 1.02
            found[-1].append(np.min(least(weights, before, values, bend) / both) if allowed else -np.inf)
    return min(float(left.min()), worst(found))


def one_function(distance, limit=LARGEST, lowest=0.5, parts=16, iotas=None):
    """Step (c) of the proof, for κ from ``lowest`` on: how much of ∫bH is left over.

    What is below x = −4 has positive weights. ``iotas`` are given for all d from ``distance`` on: then all is seen from
    z = −3 on, and what is below is a part of that. What lies between two ι is a mixture for one ϑ only, so each ϑ is
    as good as it is for the worst ι.
    """
    iotas, first = ([np.exp(-distance)], -distance - 4) if iotas is None else (iotas, -FAR)
    edges, z, w = cells(*([first] if first == -FAR else [first, -distance]), 0.0, 4.0)
    t, thetas = np.append(-60.0, np.arange(first, 6, STEP)), np.linspace(0, 1, 21)
    values, bend, _ = steepest(z, t)

    def parts_at(z, iota):
        up, down, below = np.exp(-np.maximum(z, 0)), np.exp(np.minimum(z, 0)), z < -distance
        lowest = np.exp(2 * z + distance) / 4
        b = np.where(z > 0, up / 2 - iota * up**2 / 4, np.where(below, lowest, down / 2 - iota / 4))
        g = np.where(z > 0, (1 - iota / 2) * (up - up**2 / 2), b * np.exp(np.clip(-z, 0, distance) / 2))
        return b, g, np.where(z > 0, iota * up**2 / 4, np.where(below, lowest, iota / 4))

    def left(ratio, iota):
        (b, g, joint), (b_ends, g_ends, _) = parts_at(z, iota), parts_at(edges, iota)
        plain = (limit - 1) * b - joint + 2 * ratio * g * (z < -distance) + thetas[:, None] * (b - ratio * g)
        weights = w * plain + np.diff(np.maximum(b_ends - ratio * g_ends, 0.0))
        if first == -FAR:
            weights[:, 0] -= 0.0076 + 0.025 * thetas * (ratio * np.exp(1.5) - 1)
        return (least(weights, int(np.searchsorted(z, 0)), values, bend) / ((b * w) @ values.T)).min(axis=1)

    return worst([np.min([left(ratio, iota) for iota in iotas], axis=0) for ratio in np.linspace(lowest, 1, parts + 1)])


def even_odds(distance, width, limit=EVEN, parts=12, thetas=9):
    """Step (e) of the proof, for κ ≤ e^d: how much of ∫bH is left over, in a cell of d."""
    _, x, w = cells(-5.0, 0.0, distance, distance + 4)
    t = np.append(-60.0, np.arange(-5, distance + 6, STEP))
    values, bend, _ = steepest(x, t)
    a, b = w * density(x) * distribution(x - distance), w * density(x - distance) * distribution(x)
    alone = (limit * np.exp(-width) - 1) * b - w * density(x) * density(x - distance)
    found = []
    for ratio in np.linspace(1, np.exp(distance + width / 2), parts + 1):
        weights = alone + 2 * ratio * a * (x < 0) + np.linspace(0, 2, thetas)[:, None] * (b - ratio * a)
        left = weights @ values.T - STEP**2 / 8 * np.abs(weights) @ bend.T
        found.append((left / (b @ values.T)).min(axis=1))
    return worst(found)


def widths(distance):
    """How wide a cell of d may be: nearly all is needed near 0, and where one function begins to do."""
    return 0.0025 if distance < 0.25 else 0.005 if distance < 0.6 else 0.01 if distance < NEAR else 0.004


def left_over(distance, width):
    limit = LARGEST * np.exp(-width)
    if distance > NEAR:
        return one_function(distance, limit)
    found = two_functions(distance, limit)
    strongest = 2 * np.exp(distance) - 1
    return found if strongest <= 5 else min(found, one_function(distance, limit, lowest=5 / strongest))


@pytest.mark.thorough
@pytest.mark.parametrize("distance", [0.00125, 1.395])
def test_scores_near_one_another(distance):
    assert left_over(distance, widths(distance)) > SLACK


@pytest.mark.slow
def test_scores_near_one_another_everywhere():
    first, found = 0.0, []
    while first < FAR:
        width = widths(first)
        found.append(left_over(first + width / 2, width))
        first += width
    assert min(found) > SLACK


def test_scores_far_from_one_another():
    assert one_function(FAR, iotas=[0.0, np.exp(-FAR)]) > SLACK


@pytest.mark.parametrize("distance", [0.805, 2.505, 2.995])
def test_losses_part_slowly_while_odds_are_even(distance):
    assert even_odds(distance, 0.01) > SLACK


@pytest.mark.slow
def test_losses_part_slowly_while_odds_are_even_everywhere():
    assert min(even_odds(distance, 0.01) for distance in np.arange(0.805, FAR, 0.01)) > SLACK


def test_what_step_e_adds_up_to():
    x = np.linspace(0, 60, 60_001)
    alone = (0.5 + x / 4) * np.exp(-x)
    assert np.all((x - np.log(1 / alone - 1))[x <= 0.8] <= 0.021)
    late = ((0.5 + x) * np.exp(-x) / 4 / (1 - (0.625 + x / 4) * np.exp(-x)))[x >= FAR]
    assert late.max() < EVEN - 1
    assert 0.001 * late.sum() < 0.065
    for eps in np.geomspace(1e-3, 100, 500):
        sides = 0.2693 + max(0.021, min((EVEN - 1) * (eps - 1.3465), 2.2 * (EVEN - 1) + 0.065))
        assert min(sides, (LARGEST - 1) * eps) <= excess(eps) <= (LARGEST - 1) * eps * (1 + 1e-12)


@pytest.mark.thorough
def test_the_computations_refuse_what_is_wrong():
    """What the steepest functions reach is 1.1939 for d = 0, 1.1818 for ½, 1.1916 for 1½, and 1.1838 as d → ∞.

    These are values of T for them, or of its bound in (c), by plain sums over a fine grid.
    """
    assert two_functions(0.00125, limit=1.1935) < 0
    assert two_functions(0.5, limit=1.181) < 0
    assert one_function(1.5, limit=1.1915) < 0
    assert one_function(FAR, limit=1.1835, iotas=[0.0]) < 0
    # found by the steepest functions, by sums
    assert even_odds(2.8, 0.0, limit=1.034) < 0


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-3, 3), min_size=1, max_size=8))
def test_no_product_is_steeper(scores):
    """The t of the φ_t that is as steep nowhere falls."""
    x = np.linspace(-6, 12, 500)
    steep = (1 / (2 * np.exp(np.maximum(x[:, None] - np.array(scores), 0.0)) - 1)).sum(axis=1)
    t = x - np.where(steep > 1, -np.log(steep) / 2, np.log((1 + 1 / steep) / 2))
    assert np.all(np.diff(t) > -1e-9)


def test_the_steepest_functions_are_as_steep_as_it_says():
    x, t, step = np.linspace(-2, 3, 101), np.array([-9.0, 0.27]), 1e-3
    value, second, third = (one[1] for one in steepest(x, t))
    near = [steepest(x + k * step, t)[0][1] for k in (-2, -1, 1, 2)]
    steep = (near[2] - near[1]) / (2 * step) / value
    z = np.exp(0.27 - x)
    assert steep == pytest.approx(np.where(z < 1, z / (2 - z), z**2), rel=2e-3)
    assert np.all(np.abs(near[1] + near[2] - 2 * value) / step**2 <= second + 1e-5)
    assert np.all(np.abs(near[3] - 2 * near[2] + 2 * near[1] - near[0]) / (2 * step**3) <= third + 1e-3)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=6, max_size=30), st.data())
def test_lowered_weights_are_less_for_all_that_increases(weights, data):
    weights, before = np.array(weights), data.draw(st.integers(1, len(weights)))
    found = lowered(weights[None], before)[0]
    tails, all_tails = np.cumsum(found[::-1]), np.cumsum(weights[::-1])
    assert np.all(tails <= all_tails + 1e-12)
    signs = np.sign(found[np.abs(found) > 1e-15])
    assert np.count_nonzero(np.diff(signs)) <= 2
    assert signs.size == 0 or np.count_nonzero(np.diff(signs)) < 2 or signs[0] > 0


def test_the_signs_are_those_of_the_proof():
    """Of the weight of H_d in step (b), whatever the others are that move with 0."""
    rng, x, found = np.random.default_rng(3), np.linspace(-6, 12, 1001), set()

    def hazard(x):
        return 1 / (2 * np.exp(np.maximum(x, 0.0)) - 1)

    for _ in range(500):
        distance = rng.uniform(0, NEAR)
        ratio = rng.uniform(np.exp(distance), max(np.exp(distance), min(2 * np.exp(distance) - 1, 5.0)))
        theta = min(rng.uniform(), 0.9 * (LARGEST - 1) / (ratio / np.exp(distance) - 1 + 1e-9))
        others = rng.choice([0.3, 1, 5, 30], size=3) @ hazard(x - rng.uniform(-5, 4, size=(3, 1)))
        apart = 1 - ratio * hazard(x) / hazard(x - distance)
        gap = theta - np.where((x > distance) & (apart < 0), 0.0, others)
        weight = LARGEST - 1 - hazard(x) + apart * gap + 2 * ratio * (x < 0)
        signs = np.sign(weight[np.abs(weight) > 1e-9])
        found.add(tuple(signs[np.append(True, np.diff(signs) != 0)].tolist()))
    assert found == {(1.0, -1.0, 1.0)}

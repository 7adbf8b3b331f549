"""The computations in step (d) of the proof of the range of Laplace noisy maxima: the odds of one who leads."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.accountants.laplace_maxima import more_than_lead

# How fast the logarithm of odds grows with the lead, at most; what a rule may be wrong by.
LARGEST, SLACK = 1.2, 1e-4
# The ζ that are tried, as distances at which a hazard is as large; steps of x0, and of the logarithm of m.
ZETAS, STEP, RATIO = np.r_[1:0.3:21j, 0.28:0.1:10j, 0.08, 0.06, 0.04, 0.02], 0.025, 1.06
DISTANCES = np.append(np.log((1 + 1 / ZETAS) / 2), np.inf)
PLACES = np.arange(-0.7, 1.0 + STEP, STEP)


def density(x):
    return 0.5 * np.exp(-np.abs(x))


def distribution(x):
    return np.where(x < 0, density(x), 1 - density(x))


def hazard(x):
    return 1 / (2 * np.exp(np.maximum(x, 0.0)) - 1)


def before(y, distance):
    """What −ln ψ/m has grown by at x0 − y ≥ 0, where ζ is the hazard at a distance."""
    zeta, near = hazard(distance), np.minimum(y, distance)
    e = np.expm1(near)
    value = e + zeta * (e**2 - e + near)
    if distance < 40:
        value += y - near + (1 - zeta) * (2 * (np.exp(y) - np.exp(near)) - (y - near))
    return value


def after(u, distance):
    """−ln ψ/m beyond x0, 0 at infinity."""
    u = np.maximum(u, 0.0)
    return np.exp(-u) if distance > 40 else -np.log(distribution(u + distance)) / hazard(distance)


def shape(u, distance):
    """−ln ψ/m at u = x − x0, and its slope downwards."""
    zeta, y = hazard(distance), np.maximum(-u, 0.0)
    e, less = np.exp(y), np.exp(-np.maximum(u, 0.0))
    slope = np.where(y <= distance, e + zeta * (2 * e - 1) * (e - 1), 1 + (1 - zeta) * (2 * e - 1))
    return after(u, distance) + before(y, distance), np.where(u > 0, less / (1 + (1 - less) * zeta), slope)


def by_zeta(u, near, far):
    """What the first two derivatives of −ln ψ/m by ζ are at most, for ζ between the hazards at two distances.

    Beyond x0 the slope is e^(−u)/(1 + (1 − e^(−u))ζ); before, what is added is linear in ζ up to the distance of ζ, and
    then has the second derivative −1/(2ζ³).
    """
    less, y = np.exp(-np.maximum(u, 0.0)), np.maximum(-u, 0.0)
    up, e = np.expm1(np.minimum(y, min(far, 40.0))), np.exp(near)
    first = np.maximum(up**2 - up + y, np.where(y > near, 2 * np.exp(y) - y - 2 * e + near, 0.0))
    with np.errstate(divide="ignore"):
        second = np.where(y > near, 1 / (2 * hazard(far) ** 3), 0.0)
    return less - less**2 / 2 + first, 2 * (less - less**2 + less**3 / 3) + second


def largest_odds(wins, loses, x, distances=DISTANCES, places=PLACES, ratio=RATIO):
    """ln of the largest ∫wins·ψ/∫loses·ψ of all ψ: between points of the grid ψ is a mixture but for its bends."""
    m = np.append(0.0, np.geomspace(1e-3, 100, 1 + int(np.ceil(np.log(1e5) / np.log(ratio)))))[:, None]
    up, down = np.append(m[1:], m[-1:] * ratio, axis=0), np.append(m[:1], m[:-1], axis=0)
    found = np.zeros(len(wins))
    for (near, far), x0 in itertools.product(itertools.pairwise(distances), places):
        u, gap = x - x0, hazard(near) - hazard(far)
        left, right = np.maximum(-u - STEP, 0.0), u + STEP
        lowest = after(right, near) + np.minimum(before(left, near), before(left, far))
        earlier, steep = np.maximum(shape(u - STEP, near), shape(u - STEP, far))
        first, second = by_zeta(u - STEP, near, far)
        # the second derivative of −ln ψ/m by x0 is at most 3e^(−u)
        bend = (
            STEP**2 * ((up * steep) ** 2 + 3 * up * np.exp(STEP - u)) + np.maximum(up - m, m - down) ** 2 * earlier**2
        )
        bend = (bend + gap**2 * ((up * first) ** 2 + up * second)) / 8
        above = np.exp(-down * lowest)
        bend = np.minimum(bend, 1.0) * above
        for distance in (near, far):
            psi = np.exp(-m * shape(u, distance)[0])
            odds = ((psi + bend) @ wins.T) / np.maximum(np.maximum(psi - bend, 0.0) @ loses.T, 1e-300)
            found = np.maximum(found, odds.max(axis=0))
    return np.log(found)


def grid(step=0.025):
    edges = step * np.arange(-round(5 / step), round(12 / step) + 1)
    return (edges[1:] + edges[:-1]) / 2


def of_leads(leads, x):
    """The density of where the leader wins, and of where the other does."""
    far = x + leads[:, None]
    return density(x) * distribution(far), density(far) * distribution(x)


def missing(leads, found):
    """How far ln of the odds is below what is said, between two leads: it rises by at most 1.2 per unit."""
    where = leads[:-1] + np.diff(found) / LARGEST
    return where + more_than_lead(where) - found[1:]


def test_some_of_the_leads_and_functions():
    """Those near the worst ones."""
    x, leads = grid(), np.array([0.99, 1.0, 1.99, 2.0, 3.99, 4.0])
    found = largest_odds(*of_leads(leads, x), x, distances=DISTANCES[18:21], places=PLACES[20:50:3])
    assert np.all(missing(leads, found)[::2] > SLACK)
    # and so near that all of them matter
    assert np.all(found > leads + more_than_lead(leads) - 0.004)


@pytest.mark.slow
def test_all_leads():
    x, leads = grid(), 0.01 * np.arange(52, 801)
    assert missing(leads, largest_odds(*of_leads(leads, x), x)).min() > SLACK
    # for the longest leads, in z
    wins, loses = density(x), np.exp(-x) / 2 * distribution(x)
    assert largest_odds(wins[None], loses[None], x)[0] < more_than_lead(8.0) - SLACK


def test_what_is_said_about_odds_is_concave():
    slopes = np.diff(more_than_lead(np.arange(0.0, 9.0, 0.01)))
    assert np.all(slopes >= 0)
    assert np.all(np.diff(slopes) < 1e-12)
    # before the first of the leads it is what T ≤ 1.2 makes of it
    assert more_than_lead(0.52) == pytest.approx((LARGEST - 1) * 0.52)
    assert more_than_lead(60.0) == 0.2693


def test_the_signs_change_where_functions_are_tried():
    leads = np.arange(0.52, 20, 0.01)
    most = np.exp(leads + more_than_lead(leads))
    assert np.log((most + 1) * np.exp(-leads) / 2).min() > PLACES[0]
    assert np.log((most - 1) / (2 * (most - np.exp(leads)))).max() < PLACES[-1]


def test_steeper_functions_than_those_that_are_tried():
    """For m > 100 what is positive from q + 1 on outweighs what is negative."""
    leads = np.append(np.arange(0.52, 8, 0.1), 20.0)
    x = np.arange(-0.7, 30, 0.005)[:, None]
    most = np.exp(leads + more_than_lead(leads))
    weight = most * density(x + leads) * distribution(x) - density(x) * distribution(x + leads)
    late = np.where(x > 2.0, weight, 0.0).sum(axis=0)
    value, _ = shape(np.array([1.7, 2.7]), 0.0)
    assert np.exp(100 * (value[0] - value[1])) > 300
    assert np.all(300 * late > -np.minimum(weight, 0.0).sum(axis=0))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-5, 3), min_size=1, max_size=8), st.floats(-0.7, 1.0))
def test_no_product_is_steeper(scores, x0):
    """Before and after a point, with the hazards at that point."""
    ours = hazard(x0 - np.array(scores))
    zeta = (ours**2).sum() / ours.sum()
    distance = max(np.log((1 + 1 / zeta) / 2), 0.0)
    u = np.linspace(-6, 8, 400)
    slope = ours.sum() * shape(u, distance)[1]
    true = hazard(x0 + u[:, None] - np.array(scores)).sum(axis=1)
    assert np.all(np.where(u < 0, slope - true, true - slope) > -1e-9 * true)


@pytest.mark.parametrize("distance", [0.05, 0.7, 2.5, np.inf])
def test_shapes_have_their_slopes(distance):
    u, step = np.linspace(-3, 4, 701) + 0.0037, 1e-5
    (earlier, _), (value, slope), (later, _) = (shape(u + by, distance) for by in (-step, 0.0, step))
    assert (earlier - later) / (2 * step) == pytest.approx(slope, rel=1e-4)
    assert np.all(np.diff(slope) < 0)
    assert np.all(-np.diff(slope) <= 3 * np.exp(-u[:-1]) * np.diff(u))
    assert value[-1] < 0.05


@pytest.mark.parametrize(("near", "far"), [(0.1, 0.2), (0.7, 0.8), (2.0, 2.1)])
def test_shapes_bend_no_more_with_zeta(near, far):
    u, zetas = np.linspace(-3, 4, 141), np.linspace(hazard(far), hazard(near), 41)
    values = np.array([shape(u, np.log((1 + 1 / zeta) / 2))[0] for zeta in zetas])
    first, second = by_zeta(u, near, far)
    step = zetas[1] - zetas[0]
    assert np.all(np.abs(np.diff(values, axis=0)) <= step * first * (1 + 1e-9) + 1e-12)
    assert np.all(np.abs(np.diff(values, 2, axis=0)) <= step**2 * second * (1 + 1e-6) + 1e-9)
    least = after(u, near) + np.minimum(*(before(np.maximum(-u, 0.0), one) for one in (near, far)))
    assert np.all(values >= least - 1e-12)


def test_powers_of_one_score_are_nearly_as_bad():
    """What others do at least: n scores that tie, n any number; the table is little above that."""
    x = grid(0.01)
    for lead in (1.0, 2.0, 4.0):
        wins, loses = of_leads(np.array([lead]), x)
        best = max(
            float(np.log((wins @ g) / (loses @ g))[0])
            for n in (3.0, 3.6, 4.2)
            for g in (distribution(x - s) ** n for s in np.arange(-1.2, 0.1, 0.1))
        )
        assert best < lead + more_than_lead(lead) < best + 0.0095

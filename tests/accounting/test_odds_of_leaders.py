"""The computations in step (d) of the proof of the range of Laplace noisy maxima: the odds of one who leads."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.accountants.laplace_maxima import more_than_lead

# How fast the logarithm of odds grows with the lead, at most; what a rule may be wrong by.
LARGEST, SLACK = 1.2, 1e-4
# The edges of the cells of ζ, as distances at which a hazard is ζ; steps of x0, and of the logarithm of m.
CELLS, STEP, RATIO = np.append(0.1 * np.arange(26), np.inf), 0.025, 1.06
PLACES = np.arange(-0.7, 1.0 + STEP, STEP)


def density(x):
    return 0.5 * np.exp(-np.abs(x))


def distribution(x):
    return np.where(x < 0, density(x), 1 - density(x))


def hazard(x):
    return 1 / (2 * np.exp(np.maximum(x, 0.0)) - 1)


def shape(u, first, last):
    """−ln ψ/m, 0 at infinity, and its slope downwards, for a cell of ζ, at u = x − x0."""
    most, least, y = hazard(first), hazard(last), np.minimum(np.maximum(-u, 0.0), 40.0)
    before, middle, beyond = np.minimum(y, first), np.clip(y, first, last), np.maximum(y, min(last, 99.0))
    e = np.expm1(before)
    value = -np.log(distribution(np.maximum(u, 0.0) + first)) / most
    value += e + most * (e**2 - e + before)
    value += 2 * (np.exp(middle) - np.exp(first)) - (middle - first)
    if last < 40:
        value += beyond - last + (1 - least) * (2 * (np.exp(beyond) - np.exp(last)) - (beyond - last))
    e = np.exp(y)
    slope = np.where(y <= first, e + most * (2 * e - 1) * (e - 1), np.where(y <= last, 2 * e - 1, 0.0))
    slope = np.where(y > last, 1 + (1 - least) * (2 * e - 1), slope)
    return value, np.where(u > 0, hazard(np.maximum(u, 0.0) + first) / most, slope)


def largest_odds(wins, loses, x, cells=CELLS, places=PLACES, ratio=RATIO):
    """ln of the largest ∫wins·ψ/∫loses·ψ of all ψ: between points of the grid ψ is a mixture but for its bends."""
    m = np.append(0.0, np.geomspace(1e-3, 100, 1 + int(np.ceil(np.log(1e5) / np.log(ratio)))))[:, None]
    up, down = np.append(m[1:], m[-1:] * ratio, axis=0), np.append(m[:1], m[:-1], axis=0)
    found = np.zeros(len(wins))
    for (first, last), x0 in itertools.product(itertools.pairwise(cells), places):
        (value, _), (later, _), (earlier, steep) = (shape(x - x0 + by, first, last) for by in (0.0, STEP, -STEP))
        psi, above = np.exp(-m * value), np.exp(-down * later)
        # the second derivative of −ln ψ/m is at most 3e^(−u)
        bend = (
            STEP**2 / 8 * ((up * steep) ** 2 + 3 * up * np.exp(STEP + x0 - x))
            + np.maximum(up - m, m - down) ** 2 / 8 * earlier**2
        )
        bend = np.minimum(bend * above, above)
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
    found = largest_odds(*of_leads(leads, x), x, cells=CELLS[6:9], places=PLACES[36:46:2])
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
    assert more_than_lead(60.0) == 0.2688


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
    value, _ = shape(np.array([1.7, 2.7]), 0.0, 0.1)
    assert np.exp(100 * (value[0] - value[1])) > 300
    assert np.all(300 * late > -np.minimum(weight, 0.0).sum(axis=0))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-5, 3), min_size=1, max_size=8), st.floats(-0.7, 1.0))
def test_no_product_is_steeper(scores, x0):
    """Before and after a point, with the hazards at that point."""
    ours = hazard(x0 - np.array(scores))
    zeta = (ours**2).sum() / ours.sum()
    distance = np.log((1 + 1 / zeta) / 2)
    at = int(np.searchsorted(CELLS, distance, side="right")) - 1
    u = np.linspace(-6, 8, 400)
    slope = ours.sum() * shape(u, *CELLS[at : at + 2])[1]
    true = hazard(x0 + u[:, None] - np.array(scores)).sum(axis=1)
    assert np.all(np.where(u < 0, slope - true, true - slope) > -1e-9 * true)


@pytest.mark.parametrize("cell", [(0.0, 0.1), (0.7, 0.8), (2.5, np.inf)])
def test_shapes_have_their_slopes(cell):
    u, step = np.linspace(-3, 4, 701) + 0.0037, 1e-5
    (before, _), (value, slope), (later, _) = (shape(u + by, *cell) for by in (-step, 0.0, step))
    assert (before - later) / (2 * step) == pytest.approx(slope, rel=1e-4)
    assert np.all(np.diff(slope) < 0)
    assert np.all(-np.diff(slope) <= 3 * np.exp(-u[:-1]) * np.diff(u))
    assert value[-1] < 0.05 / hazard(cell[0]) * hazard(0.0)


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

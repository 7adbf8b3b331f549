"""The computations in step (d) of the proof of the range of Laplace noisy maxima: the odds of one who leads."""

import itertools
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.loss.laplace_maxima import _LEADS, more_than_lead

HERE = sys.modules[__name__]
# What a rule may be wrong by.
SLACK = 1e-4
# The ζ that are tried, as distances at which a hazard is as large; steps of x0, and of the logarithm of m.
ZETAS, STEP, RATIO = np.r_[1:0.3:21j, 0.28:0.1:10j, 0.08, 0.06, 0.04, 0.02], 0.025, 1.06
DISTANCES = np.append(np.log((1 + 1 / ZETAS) / 2), np.inf)
PLACES = np.arange(-0.7, 1.0 + STEP, STEP)
# Leads that are tried, those of the table among them.
LEADS = np.r_[0.52, 0.6, 0.7, 0.8, 0.9, 1:2:0.125, 2:4:0.25, 4, 4.5, 5, 6, 7, 8]


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


def bend(u, width, near, far, low, high):
    """How far ψ may be from a mixture of its corners: x0 up to ``width`` before x − u, two ζ, and m from low to high.

    At most 1/8 of each second derivative, times the width there; ψ itself is never more than at its largest.
    """
    ends, gap, y = [shape(u, distance) for distance in (near, far)], hazard(near) - hazard(far), np.maximum(-u, 0.0)
    first, second = by_zeta(u, near, far)
    value = np.maximum(ends[0][0], ends[1][0]) + gap * first
    # where ζ = λ(y) is among them the slope is 2e^y − 1
    within = (u < 0) & (near <= y) & (y <= far)
    steep = np.where(within, 2 * np.exp(y) - 1, np.maximum(ends[0][1], ends[1][1]))
    # the second derivative of −ln ψ/m by x0 is at most 3e^(−u)
    found = width**2 * ((high * steep) ** 2 + 3 * high * np.exp(-u)) + ((high - low) * value) ** 2
    found = (found + gap**2 * ((high * first) ** 2 + high * second)) / 8
    left = np.maximum(-u - width, 0.0)
    lowest = after(u + width, near) + np.minimum(before(left, near), before(left, far))
    return np.minimum(found, 1.0) * np.exp(-low * lowest)


def counted(corners, bends):
    """Where ψ of a box are said to be at least a mixture of corners, less the bend; elsewhere they are at least 0."""
    return np.min(corners, axis=0) >= bends


def largest_odds(wins, loses, x, distances=DISTANCES, places=PLACES):
    """ln of the largest ∫wins·ψ/∫loses·ψ of all ψ, by boxes of m, x0 and ζ.

    In a box ψ is a mixture of its eight corners but for a bend. With one set of x for all corners numerator and
    denominator are bounded by the same mixture of theirs; so the ratio is at most the largest of the eight.
    """
    m = np.append(0.0, np.geomspace(1e-3, 100, 1 + int(np.ceil(np.log(1e5) / np.log(RATIO)))))[:, None]
    found = np.zeros(len(wins))
    for near, far in itertools.pairwise(distances):
        sides, some = [], [np.exp(-m * shape(x - places[0], distance)[0]) for distance in (near, far)]
        for first, last in itertools.pairwise(places):
            sides = some
            some = [np.exp(-m * shape(x - last, distance)[0]) for distance in (near, far)]
            corners = [psi[part] for psi in (*sides, *some) for part in (slice(None, -1), slice(1, None))]
            bends = bend(x - last, last - first, near, far, m[:-1], m[1:])
            kept = counted(corners, bends)
            more, less = bends @ wins.T, (bends * kept) @ loses.T
            for psi in corners:
                least = np.maximum((psi * kept) @ loses.T - less, 1e-300)
                found = np.maximum(found, ((psi @ wins.T + more) / least).max(axis=0))
    return np.log(found)


def grid(step=0.025):
    edges = step * np.arange(-round(5 / step), round(12 / step) + 1)
    return (edges[1:] + edges[:-1]) / 2


def of_leads(leads, x):
    """The density of where the leader wins, and e^lead times that of where the other does.

    Of the last row in z, for all longer leads. Added to the first is what leads between need: on a cell, where c is
    linear, W is at least the mixture of those at its ends, less width²/8 times its largest second derivative.
    """
    more, widths = more_than_lead(leads)[:, None], np.diff(leads)[:, None]
    low, high, slopes = leads[:-1, None], leads[1:, None], np.diff(more, axis=0) / widths
    towards = distribution(x) * np.minimum(np.exp(-x), np.exp(x + 2 * leads[:, None])) / 2
    curved = np.where(x < -low, (2 + slopes) ** 2, slopes**2) * np.exp(more[1:]) * towards[1:]
    curved += np.where(x > -high, density(x) * density(np.maximum(x + low, 0.0)), 0.0)
    added, none = widths**2 / 8 * curved, np.zeros((1, x.size))
    added = np.maximum(np.append(added, none, axis=0), np.append(none, added, axis=0))
    wins, far = density(x) * distribution(x + leads[:, None]) + added, distribution(x) * np.exp(-x) / 2
    return np.append(wins, density(x)[None], axis=0), np.append(towards, far[None], axis=0)


def missing(**some):
    """How far ln of the odds is below what is said, at the leads and beyond them."""
    x = grid()
    return more_than_lead(np.append(LEADS, 8.0)) - largest_odds(*of_leads(LEADS, x), x, **some)


# The worst ones, and the largest and the smallest ζ, with which the bends are as large as ψ; the last x0.
NEAR_THE_WORST = [
    {"distances": some, "places": PLACES[-4:]} for some in (DISTANCES[28:32], DISTANCES[:2], DISTANCES[-2:])
]


def test_some_of_the_functions():
    """Those near the worst ones, for all leads."""
    found = np.min([missing(**some) for some in NEAR_THE_WORST], axis=0)
    assert found.min() > SLACK
    # and so near that all of the table matters
    assert found[LEADS.searchsorted(1.0) :].max() < 0.003


@pytest.mark.slow
def test_all_functions():
    """For all leads."""
    assert missing().min() > SLACK


def test_the_computations_refuse_a_lower_table(monkeypatch):
    table = more_than_lead
    monkeypatch.setattr(HERE, "more_than_lead", lambda lead: np.where(lead < 0.95, table(lead), table(lead) - 0.003))
    assert missing(**NEAR_THE_WORST[0])[LEADS.searchsorted(1.0) :].max() < 0


def test_the_computations_refuse_bends_at_corners_that_are_left_out(monkeypatch):
    """Where nothing is left out, the bends are more than there is."""
    monkeypatch.setattr(HERE, "counted", lambda corners, bends: np.ones(bends.shape, dtype=bool))
    found = [missing(**some)[LEADS.searchsorted(4.5) :].max() for some in NEAR_THE_WORST[1:]]
    assert max(found) < 0


@pytest.mark.parametrize(
    ("near", "far", "first", "last"), [(1.2, 2.4, 0.6, 1.0), (0.0, 0.2, -0.2, 0.1), (1.2, 1.25, 0.0, 0.9)]
)
def test_functions_between_those_that_are_tried(monkeypatch, near, far, first, last):
    """No odds are larger than it says, with wide boxes; without the bends some are."""
    x, rng = grid(), np.random.default_rng(5)
    wins, loses = of_leads(LEADS, x)
    box = {"distances": [near, far], "places": [first, last]}
    most = largest_odds(wins, loses, x, **box)
    odds = np.zeros(len(wins))
    for _ in range(60):
        zeta, x0 = rng.uniform(hazard(far), hazard(near)), rng.uniform(first, last)
        m = np.geomspace(1e-3, 100, 300)[:, None] * rng.uniform(1, 1.03)
        psi = np.exp(-m * shape(x - x0, np.log((1 + 1 / zeta) / 2))[0])
        odds = np.maximum(odds, ((psi @ wins.T) / np.maximum(psi @ loses.T, 1e-300)).max(axis=0))
    assert np.all(np.log(odds) <= most)
    monkeypatch.setattr(HERE, "bend", lambda u, width, near, far, low, high: np.zeros((len(low), u.size)))
    assert np.any(np.log(odds) > largest_odds(wins, loses, x, **box))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, LEADS.size - 2), st.floats(0, 1))
def test_leads_between_those_that_are_tried(cell, share):
    x = grid()
    wins, loses = (part[cell : cell + 2] for part in of_leads(LEADS, x))
    said = np.exp(more_than_lead(LEADS[cell : cell + 2]))
    lead = LEADS[cell] + share * (LEADS[cell + 1] - LEADS[cell])
    weight = np.exp(more_than_lead(lead) + lead) * density(x + lead) * distribution(x) - density(x) * distribution(
        x + lead
    )
    least = np.array([1 - share, share]) @ (said[:, None] * loses - wins)
    assert np.all(weight >= least - 1e-12)


def test_the_leads_are_those_of_the_table_and_more():
    assert set(_LEADS[1:]) <= set(LEADS.tolist())


def test_what_is_said_about_odds_is_concave():
    slopes = np.diff(more_than_lead(np.arange(0.0, 9.0, 0.01)))
    assert np.all(slopes >= 0)
    assert np.all(np.diff(slopes) < 1e-12)
    # before the first of the leads it is what T ≤ 1.2 makes of it
    assert more_than_lead(0.52) == pytest.approx(0.2 * 0.52)
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
        assert best < more_than_lead(lead) < best + 0.0095

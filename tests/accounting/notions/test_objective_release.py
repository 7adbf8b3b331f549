"""Objective perturbation as a description: against exact minimizers in one dimension, alone and composed."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from accounting import (
    Budget,
    Gaussian,
    Ledger,
    ObjectivePerturbation,
    PoissonSubsampled,
    UnsupportedRelease,
    bound,
    compare,
    delta,
    epsilon,
    rdp,
)
from accounting.audit import recompute
from accounting.conversions import gdp_delta
from accounting.ledger.record.release_json import decode, encode
from accounting.loss.curves import pair_of_curve, pair_of_whole_curve
from accounting.loss.one_row import OneRowPair, largest_mu
from accounting.notions.perturbed_minimum import divergence


def minimizers(slope, curvature):
    """Laws of the minimizer of f + θ²/2 + bθ with b ~ N(0, 1), on a grid, for f = 0, and for f′ between ±L."""
    theta = np.linspace(-9.0, 9.0, 6001)
    laws = []
    for gradient, bend in (
        (np.zeros_like(theta), np.zeros_like(theta)),
        (np.clip(curvature * theta, -slope, slope), np.where(np.abs(curvature * theta) < slope, curvature, 0.0)),
        (np.full_like(theta, slope), np.zeros_like(theta)),
    ):
        law = np.exp(-0.5 * (theta + gradient) ** 2) * (1 + bend)
        laws.append(law / law.sum())
    return laws


@pytest.mark.parametrize(
    ("one_row", "slope", "curvature"), [(True, 0.3, 0.1), (False, 0.3, 0.1), (True, 1.0, 0.4), (False, 0.1, 0.02)]
)
def test_no_minimizer_costs_more(one_row, slope, curvature):
    release = ObjectivePerturbation(1 / slope, curvature, one_row=one_row, adjacency="add_remove")
    absent, *present = minimizers(slope, curvature)
    once = {at: delta(release, at) for at in (0.0, 0.1, 0.5, 1.5)}
    twice = {at: delta(2 * release, at) for at in (0.3, 1.0)}
    for law in present:
        for p, q in ((law, absent), (absent, law)):
            for at, cost in once.items():
                assert float(np.maximum(p - math.exp(at) * q, 0).sum()) <= cost * (1 + 1e-6) + 1e-9
            with np.errstate(divide="ignore"):
                loss = np.log(p) - np.log(q)
            # twice, over the losses' histogram
            keep = p > 1e-12
            mass, edges = np.histogram(loss[keep], bins=500, weights=p[keep])
            middle = (edges[1:] + edges[:-1]) / 2
            both = middle[:, None] + middle
            for at, cost in twice.items():
                found = float((np.outer(mass, mass) * np.maximum(0, -np.expm1(np.minimum(at - both, 0)))).sum())
                assert found <= cost * 1.02 + 1e-9


def test_values():
    # what was calibrated in closed form meets its budget, and is priced at it
    mu = largest_mu(0.2, 1.0, 1e-6, replaced=False)
    fit = ObjectivePerturbation(1 / mu, math.expm1(0.2), one_row=True, adjacency="zero_out")
    assert epsilon(fit, 1e-6) == pytest.approx(1.0, abs=1e-6)
    assert dict(compare(fit, 1e-6))["rdp"] > 1.9
    with pytest.warns(UserWarning, match="only known to lie between"):
        lower, upper = bound(5 * fit, 1e-6)
    # a linear loss is one that fits
    assert epsilon(5 * Gaussian(1 / mu), 1e-6) * (1 - 1e-6) < lower < upper < 3.3
    replaced = ObjectivePerturbation(5.066, 1 / 22.2)
    assert epsilon(replaced, 1e-6) == pytest.approx(0.978, abs=1e-3)
    assert epsilon(replaced, 1e-6) > epsilon(ObjectivePerturbation(5.066, 1 / 22.2, adjacency="add_remove"), 1e-6)


def rows(slope, curvature, rng):
    """Laws of the minimizer in one dimension with convex f, with g, and without either; their slopes rise in places."""
    theta = np.linspace(-9.0, 9.0, 6001)
    laws = []
    for _ in range(2):
        bends = curvature * (rng.random(6000) < rng.random()) * (np.abs(theta[1:] - rng.normal()) < 3 * rng.random())
        gradient = np.concatenate([[0.0], np.cumsum(bends) * (theta[1] - theta[0])]) - slope
        over = gradient > slope
        gradient, bends = np.minimum(gradient, slope), np.where(over, 0.0, np.append(bends, 0.0))
        # what is left of the rise may be anywhere
        gradient = gradient + rng.random() * (slope - gradient[-1])
        laws.append(np.diff(ndtr(theta + gradient)))
    return *laws, np.diff(ndtr(theta))


@settings(max_examples=20, deadline=None)
@given(st.floats(0.02, 1.5), st.floats(0.01, 0.6), st.integers(0, 10**6))
def test_no_row_costs_more(slope, curvature, seed):
    """Exact probabilities of cells: a law that is N(0, 1) of θ + f′(θ)."""
    first, second, none = rows(slope, curvature, np.random.default_rng(seed))
    there = ObjectivePerturbation(1 / slope, curvature, one_row=True, adjacency="add_remove")
    other = ObjectivePerturbation(1 / (2 * slope), curvature, one_row=True)
    for at in (0.0, 0.05, 0.3, 1.0):
        for p, q, release in ((first, none, there), (none, first, there), (first, second, other)):
            found = float(np.maximum(p - math.exp(at) * q, 0).sum())
            assert found <= delta(release, at, accountant="pld") * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize(
    # σ/L for 0.99 of the budget (1, 1e-6); by the tail of |N| alone 6.279, and by that of two directions 12.89
    ("replaced", "ratio"),
    [(False, 5.2496), (True, 10.689)],
)
def test_the_noise_of_objective_perturbation(replaced, ratio):
    mu = largest_mu(0.2 * 0.99, 0.99, 0.99e-6, replaced=replaced)
    assert 1 / mu == pytest.approx(ratio, abs=2e-3)
    assert OneRowPair(mu, 0.2 * 0.99, replaced).delta(0.99) <= 0.99e-6
    assert OneRowPair(mu * (1 + 1e-6), 0.2 * 0.99, replaced).delta(0.99) > 0.99e-6


def test_brackets_of_rows():
    for z, curvature, at in ((11.9, 0.286, 1e-10), (6.0, 0.2, 1e-6), (3.0, 0.5, 1e-5), (20.0, 0.02, 1e-6)):
        for adjacency in ("replace", "add_remove"):
            release = ObjectivePerturbation(z, curvature, one_row=True, adjacency=adjacency)
            with pytest.warns(UserWarning, match="only known to lie between"):
                lower, upper = bound(release, at)
            assert lower == pytest.approx(epsilon(Gaussian(z), at), rel=1e-6)
            assert 0.65 * upper < lower < upper < 0.75 * compare(release, at)["rdp"]
    replaced = ObjectivePerturbation(11.9, 0.286, one_row=True)
    assert epsilon(replaced, 1e-10) == pytest.approx(0.736, abs=2e-3)  # 6.97 of any convex functions


@settings(max_examples=30, deadline=None)
@given(st.floats(0.01, 40.0), st.floats(0.001, 0.6), st.floats(0.5, 30.0), st.booleans())
def test_the_curve_is_the_one_that_was_proved(s, curvature, z, replaced):
    adjacency = None if replaced else "add_remove"
    found = rdp(ObjectivePerturbation(z, curvature, adjacency=adjacency), [1 + s])[0]
    assert 0 < found < math.inf
    if s * curvature < 1 - 1e-9:
        proved = divergence(s, 1 / z, curvature, replaced=replaced)
        assert found <= proved * (1 + 1e-6) + 1e-12
        assert s * curvature > 0.3 or found >= proved * (1 - 1e-9)


@settings(max_examples=25, deadline=None)
@given(st.floats(0.05, 3.0), st.integers(20, 200))
def test_a_pair_of_a_curve_is_above_it_and_has_its_values(mu, points):
    at = np.linspace(0.0, mu**2 / 2 + 7 * mu, points)
    values = np.array([gdp_delta(mu, float(x)) for x in at])
    losses, p, q, _ = pair_of_curve(at, values)
    assert p.sum() == pytest.approx(1.0, abs=1e-7)
    assert p == pytest.approx(q[::-1])
    assert np.all(np.diff(losses) > 0)
    for x, value in zip(at, values, strict=True):
        found = float(np.maximum(p - math.exp(x) * q, 0).sum()) + values[-1]
        assert value * (1 - 1e-7) - 1e-15 <= found <= value * (1 + 1e-6) + 1e-15
    between = float(at[1] * 0.37)
    assert float(np.maximum(p - math.exp(between) * q, 0).sum()) + values[-1] >= gdp_delta(mu, between) * (1 - 1e-7)


@settings(max_examples=25, deadline=None)
@given(st.floats(-0.3, 0.5), st.floats(0.3, 1.0), st.integers(5, 40))
def test_a_pair_of_a_whole_curve_is_above_it_and_from_below_below_it(mean, spread, points):
    """A sum of coins on a lattice, whose curve is linear between its points and not symmetric."""
    step = spread / points
    places = np.arange(-7 * points, 6 * points + 1)
    mass = np.exp(-0.5 * ((places * step - mean) / spread) ** 2)
    mass /= mass.sum()
    others = mass * np.exp(-places * step)
    mass, others = mass / max(1.0, others.sum()), others / max(1.0, others.sum())
    rest = 1 - mass.sum()  # where the second law has nothing

    def curve(x):
        return rest + float(np.maximum(mass - math.exp(x) * others, 0).sum())

    at = places * step
    for lower in (False, True):
        losses, p, q, _ = pair_of_whole_curve(at, np.array([curve(float(x)) for x in at]), lower=lower)
        beyond = 0.0 if lower else curve(float(at[-1]))
        assert np.all(np.diff(losses) > 0)
        assert q == pytest.approx(p * np.exp(-losses))
        for x in np.linspace(1.1 * at[0], 1.1 * at[-1], 67):
            found, true = beyond + float(np.maximum(p - math.exp(x) * q, 0).sum()), curve(float(x))
            assert (found <= true * (1 + 1e-12) + 1e-15) if lower else (found >= true * (1 - 1e-12) - 1e-15)
            if rest < 1e-3 and -1.5 * spread < x < spread:
                assert found == pytest.approx(true, rel=0.03, abs=2 * rest + 1e-3)


@pytest.mark.parametrize("mu", [5.0, 15.0, 25.0])
def test_the_pair_is_above_its_curve_where_q_has_less_than_floats_hold(mu):
    pair = OneRowPair(mu, 0.5, False)
    edges = np.linspace(-mu * mu / 2 - 40 * mu, mu * mu / 2 + 40 * mu, 20_001)
    p, _ = pair.masses(edges)
    for x in (5.0, 15.0, 25.0):
        eps = mu * mu / 2 + x * mu
        assert pair.delta(eps) <= float(
            p[1:] @ np.maximum(-np.expm1(np.minimum(eps - np.append(edges[1:], np.inf), 0)), 0)
        )


def test_a_row_of_little_weight_costs_little_however_large_its_curvature():
    for mu in (0.01, 0.05):
        # what it shifts by, and the whole rise of v times the largest density
        assert OneRowPair(mu, 0.5, False).delta(0.0) <= gdp_delta(mu, 0.0) + 2.001 * mu / math.sqrt(2 * math.pi)


def test_values_that_no_pair_has_are_drawn_together():
    # it need not be convex: the hull is what is left
    pair = OneRowPair(0.1, 3.0, False)
    edges = np.linspace(-6, 6, 12_001)
    p, q = pair.masses(edges)
    assert (p.sum(), q.sum()) == pytest.approx((1.0, 1.0), abs=1e-6)
    gained = float(np.maximum(p - q, 0).sum())
    assert gained < pair.delta(0.0)
    for at in (3.2, 3.4):
        assert float(np.maximum(p - math.exp(at) * q, 0).sum()) >= pair.delta(at) * 0.999


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"curvature must be at most 0\.6"):
        ObjectivePerturbation(1.0, 0.7)
    with pytest.raises(TypeError, match="one_row must be True or False"):
        ObjectivePerturbation(1.0, 0.1, one_row="yes", adjacency="add_remove")
    with pytest.raises(UnsupportedRelease):
        epsilon(ObjectivePerturbation(1.0, 0.1), 1e-6, accountant="gdp")
    with pytest.raises(UnsupportedRelease):
        epsilon(PoissonSubsampled(ObjectivePerturbation(3.0, 0.1, adjacency="add_remove"), 0.1), 1e-6)


def test_ledgers_and_files_take_it(tmp_path):
    fit = ObjectivePerturbation(20.0, 0.02, one_row=True, adjacency="add_remove")
    assert decode(encode(fit)) == fit
    with Ledger.create(tmp_path / "spent.ledger", Budget(1.0, 1e-6, adjacency="add_remove")) as ledger:
        ledger.spend(fit + Gaussian(20.0), label="a fit")
        used = ledger.epsilon()
    with Ledger.open(tmp_path / "spent.ledger") as again:
        assert 0 < again.epsilon() == used < 0.6
        assert "ObjectivePerturbation" in recompute(again).largest_costs[0][2]

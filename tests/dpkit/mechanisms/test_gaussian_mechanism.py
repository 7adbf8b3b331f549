"""The Gaussian mechanism, in floating point and on the lattice."""

import copy
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from watched import WatchedGenerator

from accounting import AdjacencyMismatch, Budget, BudgetExceeded, Gaussian, Ledger, calibrate, gdp
from accounting.conversions import gdp_delta
from dpkit.mechanisms import GaussianMechanism


def mechanism(**parameters):
    return GaussianMechanism(**{"noise_multiplier": 1.0, "sensitivity": 1.0} | parameters)


def test_gaussian_costs_one_over_z():
    """The rounded noise at the largest distance that two rounded values can have, against the curve of μ = 1/z."""
    for z, granularity in ((0.7, 0.25), (2.0, 1.0), (1.0, 2.0**-6)):
        release = mechanism(noise_multiplier=z, exact=True, granularity=granularity)
        assert release.cost == Gaussian(z, adjacency="replace")
        assert gdp(release.cost) == 1 / z
        sigma = release.noise_std(1) / granularity
        shift = math.floor(1.0 / granularity) + 1  # ⌊s/γ + √1⌋ steps
        k = np.arange(-int(12 * sigma) - shift, int(12 * sigma) + shift + 1)
        p, q = (stats.norm.cdf((k + 0.5 - m) / sigma) - stats.norm.cdf((k - 0.5 - m) / sigma) for m in (0, shift))
        for eps in (0.0, 0.5, 1.0, 3.0):
            delta = np.maximum(p - math.exp(eps) * q, 0).sum()
            assert delta <= gdp_delta(1 / z, eps) * (1 + 1e-9)
            assert delta > 0.5 * gdp_delta(1 / z, eps)
        # with the noise of the sensitivity before rounding the cost would be higher
        narrow = z / granularity
        p, q = (stats.norm.cdf((k + 0.5 - m) / narrow) - stats.norm.cdf((k - 0.5 - m) / narrow) for m in (0, shift))
        assert np.maximum(p - q, 0).sum() > gdp_delta(1 / z, 0.0)


def test_the_secure_source_is_exact_and_a_simulation_is_not_unless_asked():
    assert mechanism().exact
    assert not mechanism(rng=np.random.default_rng(0)).exact
    assert mechanism(rng=np.random.default_rng(0), exact=True).exact
    assert not mechanism(exact=False).exact
    assert mechanism(exact=True).cost == mechanism(exact=False).cost


def test_the_ledger_knows_a_simulation_and_the_kind_of_noise():
    ledger = Ledger()
    for parameters in ({}, {"exact": False}, {"rng": np.random.default_rng(0)}):
        mechanism(ledger=ledger, **parameters).release(1.0)
    rows = list(ledger.rows())
    assert [row.simulation for row in rows] == [False, False, True]
    assert [row.release for row in rows] == [Gaussian(1.0, adjacency="replace")] * 3
    assert ["exact lattice" in row.label for row in rows] == [True, False, False]


def test_a_ledger_refuses_before_it_draws():
    rng = WatchedGenerator()
    release = GaussianMechanism.calibrated(
        budget=Budget(1.0, 1e-6), sensitivity=1.0, releases=2, rng=rng, ledger=Ledger(Budget(1.0, 1e-6))
    )
    release.release(0.0)
    release.release(0.0)
    drawn = rng.draws
    with pytest.raises(BudgetExceeded):
        release.release(0.0)
    assert rng.draws == drawn
    with pytest.raises(AdjacencyMismatch):
        mechanism(adjacency="add_remove", ledger=Ledger(Budget(9.0, 1e-6))).release(0.0)


def test_calibration_is_that_of_accounting():
    budget = Budget(0.5, 1e-8, adjacency="add_remove")
    release = GaussianMechanism.calibrated(budget=budget, sensitivity=3.0, releases=7)
    assert release.noise_multiplier == calibrate(lambda z: 7 * Gaussian(z), budget)
    assert release.cost.adjacency == "add_remove"
    assert release.sensitivity == 3.0
    with pytest.raises(ValueError, match="releases must be at least 1"):
        GaussianMechanism.calibrated(budget=budget, sensitivity=3.0, releases=0)
    with pytest.raises(TypeError, match="budget must be a Budget"):
        GaussianMechanism.calibrated(budget=(1.0, 1e-6), sensitivity=3.0)


@settings(deadline=None, max_examples=100)
@given(
    x=st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=6),
    bound=st.floats(1e-3, 1e3),
)
def test_clipping_holds_the_norm_exactly(x, bound):
    """With next to no noise the release shows what was clipped to; its norm in exact rational arithmetic."""
    release = mechanism(noise_multiplier=1e-200, sensitivity=1e-100, norm_bound=bound, clip=True, exact=False)
    out = release.release(x)
    assert sum(Fraction(float(v)) ** 2 for v in out) <= Fraction(bound) ** 2
    if math.hypot(*x) <= bound:
        np.testing.assert_allclose(out, x, rtol=1e-11, atol=1e-250)


def test_each_vector_of_a_batch_is_clipped_alone():
    release = mechanism(noise_multiplier=1e-200, sensitivity=1e-100, norm_bound=1.0, clip=True, exact=False)
    np.testing.assert_allclose(release.release([[3.0, 4.0], [0.3, 0.4]]), [[0.6, 0.8], [0.3, 0.4]], rtol=1e-9)
    assert release.release(5.0) == pytest.approx(1.0)


def test_a_norm_at_the_bound_is_not_refused_for_rounding():
    unit = np.full(3, 1 / math.sqrt(3)) * (1 + 1e-15)
    assert mechanism(norm_bound=1.0).release(unit).shape == (3,)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"noise_multiplier": 0.0}, "noise_multiplier must be positive"),
        ({"sensitivity": 0.0}, "sensitivity must be positive"),
        ({"sensitivity": -1.0}, "sensitivity must be positive"),
        ({"sensitivity": math.nan}, "sensitivity must be a number"),
        ({"granularity": 0.3}, "granularity must be a power of two"),
        ({"norm_bound": 0.0}, "norm_bound must be positive"),
        ({"clip": True}, "norm_bound must be given"),
        ({"adjacency": "swap"}, "adjacency must be one of"),
        ({"rng": 3}, "rng must be"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises((TypeError, ValueError), match=message):
        mechanism(**parameters)


def test_a_mechanism_can_be_copied_and_pickled():
    # it holds no noise: copies of a secure mechanism draw fresh values
    original = mechanism()
    for twin in (copy.deepcopy(original), pickle.loads(pickle.dumps(original))):
        assert twin.cost == original.cost
        assert twin.release(0.0) != original.release(0.0)

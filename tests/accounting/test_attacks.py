"""What an attacker can reach: against closed forms, and against what likelihood-ratio tests of real noise reach."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

from accounting import (
    ZCDP,
    ApproxDP,
    Gaussian,
    Laplace,
    ObjectivePerturbation,
    PoissonSubsampled,
    PureDP,
    RandomizedResponse,
    attacker,
    delta,
)

RATES = np.array([0.0, 1e-4, 0.001, 0.01, 0.1, 0.5, 0.9, 1.0])


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
def test_against_gaussian_noise_it_is_the_test_of_neyman_and_pearson(mu):
    found = attacker(Gaussian(1 / mu))
    exact = ndtr(ndtri(RATES) + mu)
    assert np.all(found.true_positives(RATES) >= exact - 1e-12)
    assert found.true_positives(RATES[2:-1]) == pytest.approx(exact[2:-1], rel=2e-3)
    assert found.advantage == pytest.approx(2 * ndtr(mu / 2) - 1, rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.01, 5), st.floats(0, 0.1), st.floats(0.001, 1))
def test_of_one_epsilon_and_delta_it_is_the_known_polygon(eps, fails, rate):
    release = ApproxDP(eps, fails) if fails > 0 else PureDP(eps)
    exact = min(1.0, fails + np.exp(eps) * rate, 1 - np.exp(-eps) * (1 - fails - rate))
    assert float(attacker(release).true_positives(rate)) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize(
    "release",
    [
        Laplace(2.0) + Gaussian(3.0),
        100 * PoissonSubsampled(Gaussian(1.0), 0.02),
        ZCDP(0.2),
        Laplace(5.0) + ObjectivePerturbation(1.0, 0.01),  # which no privacy loss distribution covers
        RandomizedResponse(1.0, 3),
    ],
    ids=repr,
)
def test_figures_fit_each_other(release):
    found = attacker(release)
    rates = np.linspace(0, 1, 201)
    hits = found.true_positives(rates)
    assert np.all(np.diff(hits) >= -1e-12)
    assert np.all(hits >= rates - 1e-12)
    assert np.max(hits - rates) <= found.advantage + 1e-6
    for eps in (0.1, 0.5, 1.0):  # no point is above what (ε, δ) allows
        assert np.all(hits <= np.exp(eps) * rates + delta(release, eps) + 0.02)
    assert found.posterior(0.3, 0.05) >= 0.3
    assert found.to_dict(0.3)["rates"][1]["posterior"] == found.posterior(0.3, 0.01)
    assert "true positives" in str(found)


def test_a_likelihood_ratio_test_of_two_releases_reaches_nearly_all_of_it():
    """False alarm 1e-9: six standard errors of a rate from 400,000 draws are below 0.005."""
    rng = np.random.default_rng(5)
    noise = [rng.laplace(0, 2.0, 400_000), rng.normal(0, 3.0, 400_000)]

    def loss(a, b):
        return (np.abs(a) - np.abs(a - 1)) / 2.0 + (2 * b - 1) / 18.0

    without, within = np.sort(loss(*noise)), loss(noise[0] + 1, noise[1] + 1)
    rates = (0.01, 0.1, 0.4)
    for rate, most in zip(rates, attacker(Laplace(2.0) + Gaussian(3.0)).true_positives(rates).tolist(), strict=True):
        reached = float(np.mean(within > without[int((1 - rate) * without.size)]))
        assert reached <= most + 0.005
        assert reached >= 0.97 * most - 0.005


def test_what_means_nothing_is_refused():
    with pytest.raises(TypeError, match="release must be a description"):
        attacker(1.0)
    found = attacker(PureDP(1.0))
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="false_positives must lie in"):
            found.true_positives(wrong)
    with pytest.raises(ValueError, match="prior"):
        found.posterior(0.0)

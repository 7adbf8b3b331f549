"""The best of a random number of runs: its law, its price, and what it gives away."""

import math

import numpy as np
import pytest
from chi_square import fits
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln, ndtr

from accounting import (
    BestOfPoissonRuns,
    BestOfRuns,
    Budget,
    BudgetExceeded,
    Gaussian,
    Laplace,
    Ledger,
    PureDP,
    bound,
    calibrate,
    delta,
    epsilon,
    rdp,
)
from dpkit.hyperparameters import best_of, number_of_runs
from dpkit.mechanisms import GaussianMechanism

LAWS = [
    BestOfRuns(Gaussian(1.0), 0.3),
    BestOfRuns(Gaussian(1.0), 0.2, shape=0.0),
    BestOfRuns(Gaussian(1.0), 0.3, shape=-0.5),
    BestOfRuns(Gaussian(1.0), 0.4, shape=3.0),
    BestOfPoissonRuns(Gaussian(1.0), 3.25),
]


def probabilities(law, count=400):
    """P(K = k) for k = 0, …, from the definition."""
    k = np.arange(count)
    if isinstance(law, BestOfPoissonRuns):
        log = k * math.log(law.mean) - gammaln(k + 1)
    else:
        log = k * math.log1p(-law.stop) + gammaln(np.maximum(k + law.shape, 1e-300)) - gammaln(k + 1)
        log[0] = -math.inf
    weights = np.exp(log - log.max())
    return weights / weights.sum()


# ------------------------------------------------------------------------------------------------- the law


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_the_number_of_runs_has_its_law(law):
    rng = np.random.default_rng(0)
    found = np.array([number_of_runs(law, rng) for _ in range(2000)])
    assert fits(found, np.arange(400), probabilities(law))
    assert not fits(found + 1, np.arange(400), probabilities(law))


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_the_mean_of_the_law(law):
    assert law.mean == pytest.approx(probabilities(law) @ np.arange(400), rel=1e-9)


@settings(max_examples=40)
@given(st.floats(1.001, 1e6), st.floats(-0.9, 20.0))
def test_a_law_of_a_mean(mean, shape):
    law = BestOfRuns.of_mean(Gaussian(1.0), mean, shape)
    assert law.mean >= mean
    assert law.mean == pytest.approx(mean, rel=1e-6)


# ------------------------------------------------------------------------------------------------- the price


@pytest.mark.parametrize(
    ("z", "stop", "shape"), [(5.0, 0.1, 1.0), (2.0, 0.02, 0.0), (10.0, 0.3, -0.5), (4.0, 0.1, 4.0)]
)
def test_theorem_2_of_papernot_and_steinke(z, stop, shape):
    # for a Gaussian ε_λ = λρ: (1 − 1/λ̂)λ̂ρ + ln(1/γ)/λ̂ = (λ̂ − 1)ρ + ln(1/γ)/λ̂ is smallest at λ̂ = √(ln(1/γ)/ρ)
    rho, log = 0.5 / z**2, -math.log(stop)
    best = max(1.0, math.sqrt(log / rho))
    release = BestOfRuns(Gaussian(z), stop, shape)
    for order in (1.5, 4.0, 50.0):
        expected = order * rho + (1 + shape) * ((best - 1) * rho + log / best) + math.log(release.mean) / (order - 1)
        assert rdp(release, [order])[0] == pytest.approx(expected, rel=1e-6)
        assert rdp(release, [order])[0] >= expected * (1 - 1e-12)


def test_theorem_6_of_papernot_and_steinke():
    for order in (1.5, 4.0, 50.0):
        reach = math.log(order / (order - 1))
        expected = order * 0.02 + 7.0 * delta(Gaussian(5.0), reach, accountant="rdp") + math.log(7.0) / (order - 1)
        assert rdp(BestOfPoissonRuns(Gaussian(5.0), 7.0), [order])[0] == pytest.approx(expected, rel=1e-9)


def test_corollary_3_of_papernot_and_steinke():
    for shape in (-0.5, 0.0, 1.0, 2.0):
        assert epsilon(BestOfRuns(PureDP(0.25), 1e-9, shape), 0.0) == pytest.approx((2 + shape) * 0.25)
        assert epsilon(BestOfRuns(PureDP(0.25), 0.2, shape), 0.0) < (1.7 + 0.7 * shape) * 0.25
    assert epsilon(BestOfPoissonRuns(Laplace(2.0), 3.0), 0.0) == pytest.approx(0.5 + 3 * math.tanh(0.25))


@pytest.mark.parametrize(("mean", "shape"), [(10.0, 1.0), (10.0, 0.0), (30.0, 2.0), (10.0, math.inf)])
@pytest.mark.parametrize("z", [3.0, 10.0])
def test_dp_accounting_agrees(mean, shape, z):
    pytest.importorskip("dp_accounting")
    from dp_accounting import dp_event
    from dp_accounting.rdp import RdpAccountant

    from accounting.ledger import from_dp_accounting, to_dp_accounting

    event = dp_event.RepeatAndSelectDpEvent(dp_event.GaussianDpEvent(z), mean, shape)
    peer = RdpAccountant().compose(event).get_epsilon(1e-6)
    ours = from_dp_accounting(event)
    # its orders are a grid, ours any real numbers
    by_rdp = epsilon(ours, 1e-6, accountant="rdp")
    assert 0.999 * peer < by_rdp <= peer * (1 + 1e-9)
    assert epsilon(ours, 1e-6) < 0.83 * peer
    again = from_dp_accounting(to_dp_accounting(ours))
    assert epsilon(again, 1e-6, accountant="rdp") == pytest.approx(by_rdp, rel=1e-6)


def test_a_choice_composes_and_is_bracketed():
    choice = BestOfRuns(Gaussian(8.0, adjacency="replace"), 0.1)
    assert choice.adjacency == "replace"
    orders = np.array([2.0, 9.0])
    np.testing.assert_allclose(rdp(choice + Gaussian(2.0), orders), rdp(choice, orders) + orders / 8.0)
    lower, upper = bound(choice, 1e-6)
    assert epsilon(Gaussian(8.0), 1e-6) < 0.99 * upper < lower < upper
    with pytest.warns(UserWarning, match="only known to lie between"):
        lower, upper = bound(3 * choice, 1e-6)
    assert epsilon(3 * Gaussian(8.0), 1e-6) < lower < upper


@pytest.mark.parametrize(
    "bad", [{"stop": 0.0}, {"stop": 1.0}, {"stop": 0.5, "shape": -1.0}, {"stop": 0.5, "shape": math.inf}]
)
def test_descriptions_refuse(bad):
    with pytest.raises(ValueError, match=list(bad)[-1]):
        BestOfRuns(Gaussian(1.0), **bad)
    with pytest.raises(ValueError, match="mean must be greater than 1"):
        BestOfRuns.of_mean(Gaussian(1.0), 1.0)
    with pytest.raises(ValueError, match="mean must be positive"):
        BestOfPoissonRuns(Gaussian(1.0), 0.0)


# ------------------------------------------------------------------------------------------------- the release


def given_away(z, stop, at):
    """δ at ε = ``at`` of the best noisy score alone, whose run counts 0 rows or 1: by integration.

    The largest of K scores is at most t with probability γP/(1 − (1 − γ)P), P = Φ((t − x)/z).
    """
    t = np.linspace(-40 * z, 40 * z, 400_001)
    below = [stop * p / (1 - (1 - stop) * p) for p in (ndtr(t / z), ndtr((t - 1) / z))]
    first, second = (np.diff(values) for values in below)
    return max(np.maximum(a - math.exp(at) * b, 0).sum() for a, b in ((first, second), (second, first)))


@pytest.mark.parametrize(("budget", "stop"), [(Budget(1.0, 1e-6), 0.1), (Budget(2.0, 1e-2), 0.5)])
def test_the_price_covers_the_best_score_and_half_the_noise_is_caught(budget, stop):
    z = calibrate(lambda z: BestOfRuns(Gaussian(z), stop), budget)
    assert given_away(z, stop, budget.epsilon) <= budget.delta
    assert given_away(z / 2, stop, budget.epsilon) > budget.delta


def test_the_best_score_has_its_law():
    stop, z, rng = 0.4, 2.0, np.random.default_rng(0)
    noisy = GaussianMechanism(noise_multiplier=z, sensitivity=1.0, rng=rng)
    cost = BestOfRuns(Gaussian(z), stop)
    scores = [best_of(lambda rng: (float(noisy.release(0.0)), None), cost, rng=rng).score for _ in range(2000)]
    p = ndtr(np.sort(scores) / z)
    below = stop * p / (1 - (1 - stop) * p)
    distance = np.abs(below - (np.arange(2000) + 0.5) / 2000).max()
    # Dvoretzky, Kiefer & Wolfowitz: 2e^(−2n·d²) = 1e-9 at d = 0.0732
    assert distance < 0.0735
    # a law of as many runs in the mean, but always as many, is far from it
    assert np.abs(below - p**2.5).max() > 0.0735


def test_the_winner_is_the_first_with_the_largest_score():
    outputs = iter(range(1000))
    found = best_of(lambda rng: (1.0, next(outputs)), BestOfRuns(Gaussian(1.0), 0.01), rng=np.random.default_rng(2))
    assert found == (1.0, 0)
    nothing = [best_of(lambda rng: (1.0, 0), BestOfPoissonRuns(Gaussian(1.0), 0.01), rng=np.random.default_rng(2))]
    assert nothing == [None]


def test_it_is_charged_once_and_first():
    cost, calls = BestOfRuns(Gaussian(5.0), 0.2), []
    ledger = Ledger(Budget(3.0, 1e-6))
    best_of(lambda rng: (calls.append(1) or 0.0, None), cost, rng=np.random.default_rng(0), ledger=ledger)
    assert ledger.total == cost
    assert ledger.simulation
    before = len(calls)
    with pytest.raises(BudgetExceeded):
        best_of(
            lambda rng: (calls.append(1) or 0.0, None),
            100 * cost.release and BestOfRuns(Gaussian(0.1), 0.2),
            ledger=ledger,
        )
    assert len(calls) == before


def test_what_is_refused():
    with pytest.raises(TypeError, match="cost must be a BestOfRuns"):
        best_of(lambda rng: (0.0, None), Gaussian(1.0))
    with pytest.raises(ValueError, match="score that is a number"):
        best_of(lambda rng: (math.nan, None), LAWS[0])
    with pytest.raises(ValueError, match="at most 1 or a whole number"):
        best_of(lambda rng: (0.0, None), BestOfRuns(Gaussian(1.0), 0.5, shape=1.5))

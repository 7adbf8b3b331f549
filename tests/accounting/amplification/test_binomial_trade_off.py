"""μ of shuffled binomial counts against exact privacy curves of small cases, and against the Gaussian."""

import math
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln

from accounting import Budget, Gaussian, ShuffledBinomial, calibrate, delta, epsilon, gdp
from accounting.amplification import binomial_trade_off
from accounting.amplification.binomial_trade_off import LEFT_OUT, central_mu, rounded_log_survival, rounded_mu
from accounting.compose.failures import split_failures
from accounting.conversions import gdp_delta


def law(trials, shift, size):
    """The pmf of Bin(trials, ½) plus the real ``shift`` rounded at random."""
    k = np.arange(trials + 1)
    p = np.exp(gammaln(trials + 1) - gammaln(k + 1) - gammaln(trials - k + 1) - trials * math.log(2))
    whole = math.floor(shift)
    pmf = np.zeros(size)
    pmf[whole : whole + trials + 1] = (1 - (shift - whole)) * p
    pmf[whole + 1 : whole + trials + 2] += (shift - whole) * p
    return pmf


def exact_delta(P, Q, at):
    return float(np.maximum(P - math.exp(at) * Q, 0).sum())


@pytest.mark.thorough
@settings(max_examples=75, deadline=None)
@given(
    st.sampled_from([(40, 1.0), (40, 5.0), (99, 2.2), (200, 0.5), (501, 12.0), (1000, 1.4)]),
    st.none() | st.floats(0.0, math.pi / 2),
    st.lists(st.floats(0.0, 1.0, exclude_max=True), min_size=2, max_size=2),
    st.booleans(),
    st.booleans(),
    st.floats(0.0, 4.0),
)
def test_the_bound_is_never_optimistic(case, angle, starts, opposite, whole, level):
    # every shift of that length, from every start between two integers, in one or two coordinates
    trials, length = case
    shifts = np.array([length] if angle is None else [length * math.cos(angle), length * math.sin(angle)])
    starts = np.array(starts[: len(shifts)])
    if whole:
        shifts, starts = np.floor(shifts + 0.5), 0 * starts
    norm = float(np.linalg.norm(shifts))
    if norm == 0:
        return
    size = trials + 3 + math.ceil(max(shifts) + 1)
    pairs = [(law(trials, a, size), law(trials, a + t, size)) for a, t in zip(starts, shifts, strict=True)]
    P, Q = pairs[0]
    if len(pairs) == 2:
        other = pairs[1][::-1] if opposite else pairs[1]
        P, Q = (np.outer(x, y).ravel() for x, y in ((P, other[0]), (Q, other[1])))
    for rounded in (True, False) if whole else (True,):
        release = ShuffledBinomial(trials, norm, len(shifts), rounded=rounded)
        at = level * min(gdp_or_inf(release), 3.0)
        bound = delta(release, at)
        for direction in ((P, Q), (Q, P)):
            assert exact_delta(*direction, at) <= bound * (1 + 1e-9) + 1e-13


def gdp_or_inf(release):
    return gdp(split_failures(release)[1])


@pytest.mark.parametrize(("trials", "shift", "rounded"), [(2000, 20.0, False), (20_000, 60.5, True)])
def test_the_bound_is_close_to_the_exact_curve(trials, shift, rounded):
    size = trials + 3 + math.ceil(shift)
    P, Q = law(trials, 0.0, size), law(trials, shift, size)
    for at in (0.0, 0.5, 1.0):
        exact = exact_delta(P, Q, at)
        assert exact <= delta(ShuffledBinomial(trials, shift, 1, rounded=rounded), at) <= 1.2 * exact


@pytest.mark.parametrize(
    ("trials", "share"), [(20_000, 0.02), (20_000, 0.2), (20_001, 1.0), (10**6, 1.0), (10**8, 3.0)]
)
def test_it_is_within_two_percent_of_the_gaussian(trials, share):
    shift = share * math.sqrt(trials) / 2
    assert 1.0 <= central_mu(trials, shift) / share <= 1.005
    # rounding costs a fraction of one count
    ratio = rounded_mu(trials, shift, 1) * math.sqrt(trials) / 2
    assert shift <= ratio <= 1.005 * shift + 0.2
    assert rounded_log_survival(trials, shift, 1) > -1e-28


@given(st.integers(300, 10**6), st.floats(0.01, 2.0), st.integers(1, 50))
def test_more_trials_shorter_shifts_and_fewer_coordinates_cost_less(trials, share, coordinates):
    shift = share * math.sqrt(trials) / 2
    mu = rounded_mu(trials, shift, coordinates)
    assert rounded_mu(2 * trials, shift, coordinates) < mu
    assert rounded_mu(trials, 0.9 * shift, coordinates) < mu
    assert rounded_mu(trials, shift, 4 * coordinates) > mu
    assert rounded_log_survival(trials, shift, 4 * coordinates) <= rounded_log_survival(trials, shift, coordinates)


def test_noise_that_hides_nothing_is_priced_so():
    assert rounded_mu(10, 4.0, 1) == math.inf
    assert rounded_log_survival(10, 4.0, 1) == -math.inf
    assert central_mu(10, 4.0) == math.inf
    assert delta(ShuffledBinomial(10, 4.0, 2, rounded=True), 1.0) == 1.0
    assert delta(ShuffledBinomial(10, 4.0, 1, rounded=True), 1.0) < 0.7  # of one count more is known
    assert epsilon(ShuffledBinomial(10, 4.0, 1, rounded=True), 1e-6) == math.inf
    assert central_mu(1000, 0.5) == 0.0


def test_a_shift_that_is_a_whole_number_but_for_rounding_has_the_masses_of_a_pair():
    """Its losses are nearly those of 13 and of 14, next to one another; slopes between such are of rounding alone."""
    near, whole = (ShuffledBinomial(16_224, shift, 1, rounded=True) for shift in (13.000000013000001, 13.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # that gdp answers in place of pld
        found = [float(epsilon(2 * one, 1e-5)) for one in (near, whole)]
    assert found[1] <= found[0] <= found[1] * (1 + 1e-6)


def test_it_composes_like_a_gaussian_with_rare_failures():
    release = ShuffledBinomial(100_000, 40.0, 8, rounded=True)
    mu = rounded_mu(100_000, 40.0, 8)
    failed = -100 * rounded_log_survival(100_000, 40.0, 8)
    total = delta(100 * release, 3.0)
    assert gdp_delta(10 * mu, 3.0) <= total <= gdp_delta(10 * mu, 3.0) * (1 + 1e-9) + 2 * failed
    # the noise multiplier that it needs is that of a Gaussian, and a little
    budget = Budget(1.0, 1e-6)
    needed = calibrate(lambda z: 10 * ShuffledBinomial(math.ceil((80 * z) ** 2), 40.0, 8, rounded=True), budget)
    assert 1.0 < needed / calibrate(lambda z: 10 * Gaussian(z), budget) < 1.01


def test_more_trials_than_can_be_summed_are_priced_as_fewer(monkeypatch):
    assert central_mu(2**60, 1.0) == math.inf
    monkeypatch.setattr(binomial_trade_off, "MOST_TRIALS", 10**6)
    assert rounded_mu(2**60, 300.0, 1) == rounded_mu(10**6, 300.0, 1)
    assert rounded_log_survival(2**60, 300.0, 1) == rounded_log_survival(10**6, 300.0, 1)


@pytest.mark.parametrize("trials", [10**4, 10**5, 2**24])
def test_what_lies_outside_of_any_window(trials):
    for shift in (0.5, 3.0, 40.0):
        assert LEFT_OUT / 3 < -rounded_log_survival(trials, shift, 1) <= LEFT_OUT


def test_the_most_trials_are_summed_in_little_memory():
    binomial_trade_off._increments.cache_clear()
    tracemalloc.start()
    try:
        found = rounded_mu(binomial_trade_off.MOST_TRIALS, 17.5, 25)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == pytest.approx(17.5 * 2**-17, rel=1e-4)
    assert peak < 4 * 2**20

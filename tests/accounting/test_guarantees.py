"""Conversions between guarantees: upper bounds stay upper bounds, and are tight, against 50 and more digits."""

import math

import mpmath
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from tabled import tabled

from accounting import Budget
from accounting.conversions import (
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
    pure_delta,
    pure_epsilon,
    pure_parameter,
)
from accounting.loss.concentrated_curve import zcdp_delta, zcdp_epsilon, zcdp_rho
from accounting.loss.worst_coins import worst_coin

# Every δ that is asked for lies in [1e-300, 1), every ε in [1e-6, 1e3].
log_epsilons = st.floats(-6, 3)
log_deltas = st.floats(-300, -0.01)
# A relative distance from the exact value that no bound may exceed: 1e-11 covers the rounding of e^(-690).
TIGHT = mpmath.mpf("1e-11")


def exact_gdp_delta(mu: float, epsilon: float) -> mpmath.mpf:
    """Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2) with digits to spare for what cancels."""
    with mpmath.workdps(90):
        mu_, eps_ = mpmath.mpf(mu), mpmath.mpf(epsilon)

        def upper(t: mpmath.mpf) -> mpmath.mpf:
            return mpmath.erfc(t / mpmath.sqrt(2)) / 2

        return upper(eps_ / mu_ - mu_ / 2) - mpmath.exp(eps_) * upper(eps_ / mu_ + mu_ / 2)


def exact_zcdp_log_delta(rho: float, epsilon: float) -> mpmath.mpf | None:
    """ln δ of the worst coin, from its three equations; None where no order above 1 is the worst.

    With M(α) = ln E_Q[(P/Q)^α]: M(α) = ρα(α − 1), M′(α) = ρ(2α − 1), and ε is ln dp/dq where M(α) is fixed.
    """
    if worst_coin(rho, 2e-3).epsilon > epsilon:
        return None
    highest = epsilon / rho + 60 / math.sqrt(rho)
    coin = worst_coin(rho, brentq(lambda u: worst_coin(rho, u).epsilon - epsilon, 2e-3, highest, xtol=1e-7))
    with mpmath.workdps(60):

        def laws(log_u, log_low, high):
            low = -mpmath.exp(log_low)
            p = -mpmath.expm1(low) / -mpmath.expm1(low - high)
            return 1 + mpmath.exp(log_u), low, p, p * mpmath.exp(-high)

        def equations(log_u, log_low, high):
            alpha, low, _, q = laws(log_u, log_low, high)
            heads, tails = q * mpmath.exp(alpha * high), (1 - q) * mpmath.exp(alpha * low)
            moment, u = heads + tails, alpha - 1
            rises = mpmath.exp(alpha * high) - mpmath.exp(alpha * low)
            slope = u * rises / (alpha * (mpmath.exp(u * high) - mpmath.exp(u * low)))
            return (
                mpmath.log(moment) / (rho * alpha * u) - 1,
                (heads * high + tails * low) / moment / (rho * (2 * alpha - 1)) - 1,
                mpmath.log(slope) / epsilon - 1,
            )

        start = mpmath.log(coin.eta), mpmath.log(-mpmath.mpf(coin.low)), mpmath.mpf(coin.high)
        _, _, p, q = laws(*mpmath.findroot(equations, start, tol=1e-60))
        return mpmath.log(p - mpmath.exp(mpmath.mpf(epsilon)) * q)


def exact_log(delta: float) -> mpmath.mpf:
    with mpmath.workdps(50):
        return mpmath.log(mpmath.mpf(delta))


# --------------------------------------------------------------------------------------------- reference values
# computed with mpmath at 40 digits; z is the noise multiplier, μ = 1/z


def test_reference_values_of_the_gaussian_mechanism():
    assert gdp_delta(1.0, 1.0) == pytest.approx(0.126936737506643946, rel=1e-12)
    assert gdp_delta(1.0, 0.0) == pytest.approx(0.382924922548026207, rel=1e-12)
    assert gdp_epsilon(1.0, 1e-5) == pytest.approx(4.37717809568122463, rel=1e-12)
    assert gdp_epsilon(0.1, 1e-6) == pytest.approx(0.39685737764408359, rel=1e-12)
    assert gdp_epsilon(math.sqrt(1000) / 2, 1e-6) == pytest.approx(199.284568805627848, rel=1e-12)
    assert 1 / gdp_mu(1.0, 1e-6) == pytest.approx(4.22467888932683528, rel=1e-12)
    assert 1 / gdp_mu(10.0, 1e-6) == pytest.approx(0.541086831818365981, rel=1e-12)


def test_reference_values_of_zcdp():
    assert zcdp_epsilon(0.1, 1e-6) == pytest.approx(2.141938551644465, rel=1e-12)
    assert zcdp_epsilon(125.0, 1e-6) == pytest.approx(205.8567898604484, rel=1e-12)


# ------------------------------------------------------------------------------------ never optimistic, yet tight


@settings(max_examples=60, deadline=None)
@given(log_mu=st.floats(-4, 2), log_epsilon=log_epsilons)
def test_gdp_delta_is_a_tight_upper_bound(log_mu, log_epsilon):
    mu, epsilon = 10**log_mu, 10**log_epsilon
    exact = exact_gdp_delta(mu, epsilon)
    bound = gdp_delta(mu, epsilon)
    assert exact <= bound
    if exact > 1e-300:
        assert bound <= exact * (1 + TIGHT)


@settings(max_examples=50, deadline=None)
@given(log_mu=st.floats(-4, 2), log_delta=log_deltas)
def test_gdp_epsilon_is_a_tight_upper_bound(log_mu, log_delta):
    mu, delta = 10**log_mu, 10**log_delta
    epsilon = gdp_epsilon(mu, delta)
    assume(epsilon > 1e-6)
    assert exact_gdp_delta(mu, epsilon) <= delta < exact_gdp_delta(mu, epsilon * (1 - 1e-9) - 1e-13)


@settings(max_examples=60, deadline=None)
@given(log_epsilon=log_epsilons, log_delta=log_deltas)
def test_gdp_mu_is_a_tight_lower_bound(log_epsilon, log_delta):
    epsilon, delta = 10**log_epsilon, 10**log_delta
    mu = gdp_mu(epsilon, delta)
    assert exact_gdp_delta(mu, epsilon) <= delta < exact_gdp_delta(mu * (1 + 1e-10), epsilon)


@settings(max_examples=25, deadline=None)
@given(log_rho=st.floats(-6, 2), share=st.floats(0.3, 12.0))
def test_zcdp_delta_is_that_of_the_worst_coin(log_rho, share):
    rho = 10**log_rho
    epsilon = rho + share * math.sqrt(2 * rho)
    exact = exact_zcdp_log_delta(rho, epsilon)
    assume(exact is not None)
    bound = zcdp_delta(rho, epsilon)
    assert mpmath.exp(exact) <= bound <= mpmath.exp(exact) * (1 + mpmath.mpf("1e-9"))


@pytest.mark.thorough
@settings(max_examples=25, deadline=None)
@given(log_rho=st.floats(-6, 2), log_delta=st.floats(-100, -3))
def test_zcdp_epsilon_and_rho_are_those_of_the_worst_coin(log_rho, log_delta):
    rho, delta = 10**log_rho, 10**log_delta
    epsilon = zcdp_epsilon(rho, delta)
    assume(epsilon > rho + 0.3 * math.sqrt(2 * rho))
    assert exact_zcdp_log_delta(rho, epsilon) <= exact_log(delta)
    assert exact_zcdp_log_delta(rho, epsilon * (1 - 1e-8)) > exact_log(delta)
    largest = zcdp_rho(epsilon, delta)
    assert exact_zcdp_log_delta(largest, epsilon) <= exact_log(delta)
    assert largest == pytest.approx(rho, rel=1e-8)


@settings(max_examples=200, deadline=None)
@given(log_epsilon0=log_epsilons, log_epsilon=log_epsilons)
def test_pure_delta_is_that_of_randomized_response(log_epsilon0, log_epsilon):
    epsilon0, epsilon = 10**log_epsilon0, 10**log_epsilon
    with mpmath.workdps(50):
        e0, e1 = mpmath.exp(mpmath.mpf(epsilon0)), mpmath.exp(mpmath.mpf(epsilon))
        exact = max(mpmath.mpf(0), (e0 - e1) / (1 + e0))
        assert exact <= pure_delta(epsilon0, epsilon) <= exact * (1 + TIGHT)


@pytest.mark.thorough
@settings(max_examples=200, deadline=None)
@given(log_epsilon0=log_epsilons, log_delta=log_deltas)
@example(log_epsilon0=-4.6875, log_delta=-5.0)  # two terms that cancel
@example(log_epsilon0=1.5, log_delta=-1e-14)
def test_pure_epsilon_is_a_tight_upper_bound_and_its_inverse_a_lower_one(log_epsilon0, log_delta):
    epsilon0, delta = 10**log_epsilon0, 10**log_delta
    with mpmath.workdps(330):
        inside = mpmath.exp(mpmath.mpf(epsilon0)) - mpmath.mpf(delta) * (1 + mpmath.exp(mpmath.mpf(epsilon0)))
        exact = mpmath.log(inside) if inside > 1 else mpmath.mpf(0)
        bound = pure_epsilon(epsilon0, delta)
        assert exact <= bound <= min(epsilon0, exact * (1 + TIGHT) + mpmath.mpf("1e-14"))
        largest = mpmath.log((mpmath.exp(mpmath.mpf(epsilon0)) + mpmath.mpf(delta)) / (1 - mpmath.mpf(delta)))
        assert largest * (1 - TIGHT) <= pure_parameter(epsilon0, delta) <= largest


def test_a_positive_delta_is_never_rounded_to_zero():
    # each of the exact values is about e^(-10⁶) or less
    assert gdp_delta(1e-3, 10.0) > 0
    assert zcdp_delta(1e-7, 10.0) > 0


# ----------------------------------------------------------------------------------------------------- inverses


@settings(max_examples=50, deadline=None)
@given(log_parameter=st.floats(-3, 1.5), log_delta=st.floats(-200, -0.5))
def test_delta_inverts_epsilon(log_parameter, log_delta):
    parameter, delta = 10**log_parameter, 10**log_delta
    for to_epsilon, to_delta in ((gdp_epsilon, gdp_delta), (zcdp_epsilon, zcdp_delta), (pure_epsilon, pure_delta)):
        epsilon = to_epsilon(parameter, delta)
        if epsilon > 0:
            # δ moves by at most e^ε/(1 + e^ε) when ε moves by one, and ε is right to 1e-14 of itself
            assert to_delta(parameter, epsilon) == pytest.approx(delta, rel=1e-7, abs=1e-14 * max(1, epsilon))


@settings(max_examples=50, deadline=None)
@given(log_epsilon=st.floats(-3, 2.5), log_delta=st.floats(-200, -0.5))
def test_the_largest_parameter_inverts_epsilon(log_epsilon, log_delta):
    epsilon, delta = 10**log_epsilon, 10**log_delta
    for largest, to_epsilon in ((gdp_mu, gdp_epsilon), (zcdp_rho, zcdp_epsilon), (pure_parameter, pure_epsilon)):
        parameter = largest(epsilon, delta)
        assert to_epsilon(parameter, delta) == pytest.approx(epsilon, rel=1e-8, abs=1e-12)


@settings(max_examples=50, deadline=None)
@given(log_parameter=st.floats(-3, 1.5), factor=st.floats(1.001, 10), log_epsilon=st.floats(-3, 2))
def test_monotone_in_the_parameter_and_in_epsilon(log_parameter, factor, log_epsilon):
    parameter, epsilon = 10**log_parameter, 10**log_epsilon
    for to_delta in (gdp_delta, zcdp_delta, pure_delta):
        assert to_delta(parameter, epsilon) <= to_delta(parameter * factor, epsilon) <= 1
        assert to_delta(parameter, epsilon * factor) <= to_delta(parameter, epsilon)


@settings(max_examples=50, deadline=None)
@given(log_parameter=st.floats(-3, 1.5), log_delta=st.floats(-290, -1), factor=st.floats(1.001, 10))
def test_epsilon_falls_as_delta_grows(log_parameter, log_delta, factor):
    parameter, delta = 10**log_parameter, 10**log_delta
    for to_epsilon in (gdp_epsilon, zcdp_epsilon, pure_epsilon):
        assert to_epsilon(parameter, min(0.999, delta * factor)) <= to_epsilon(parameter, delta)


def test_edges():
    assert gdp_delta(0.0, 0.0) == zcdp_delta(0.0, 0.0) == pure_delta(0.0, 0.0) == 0.0
    assert gdp_epsilon(0.0, 1e-6) == zcdp_epsilon(0.0, 1e-6) == pure_epsilon(0.0, 1e-6) == 0.0
    assert gdp_delta(math.inf, 1.0) == zcdp_delta(math.inf, 1.0) == 1.0
    assert gdp_epsilon(math.inf, 1e-6) == zcdp_epsilon(math.inf, 1e-6) == math.inf
    assert gdp_epsilon(0.1, 0.5) == 0.0  # δ(0) = 0.0399 already
    assert pure_epsilon(2.0, 0.0) == 2.0


@tabled("convert", [gdp_epsilon, zcdp_epsilon])
@tabled("delta", [0.0, 1.0, -1e-6, math.nan, 2.0])
def test_delta_outside_the_open_interval_is_refused(convert, delta):
    with pytest.raises(ValueError, match=r"delta must (lie in \(0, 1\)|be a number), got delta="):
        convert(1.0, delta)


@tabled("convert", [gdp_delta, zcdp_delta])
@tabled("epsilon", [-1.0, math.nan, math.inf])
def test_negative_or_nonfinite_epsilon_is_refused(convert, epsilon):
    with pytest.raises(ValueError, match=r"epsilon must be .*, got epsilon="):
        convert(1.0, epsilon)


@tabled("parameter", [-1.0, math.nan])
@tabled("convert", [gdp_delta, zcdp_delta, pure_delta, gdp_epsilon, zcdp_epsilon, pure_epsilon])
def test_negative_parameters_are_refused(convert, parameter):
    with pytest.raises(ValueError, match=r"(mu|rho|epsilon0) must be (nonnegative|a number), got "):
        convert(parameter, 0.5)


# ------------------------------------------------------------------------------------------------------- budget


def test_budget_is_a_value():
    assert Budget(1, 1e-6) == Budget(1.0, 1e-6, adjacency="replace", unit="row")
    assert hash(Budget(1, 1e-6)) == hash(Budget(1.0, 1e-6))
    assert Budget(1, 1e-6) != Budget(1, 1e-6, unit="person")


@tabled(
    ("arguments", "error", "message"),
    [
        ((-1.0, 1e-6), ValueError, r"epsilon must be positive and finite, got epsilon=-1.0"),
        ((math.nan, 1e-6), ValueError, r"epsilon must be a number, got epsilon=nan"),
        ((math.inf, 1e-6), ValueError, r"epsilon must be positive and finite, got epsilon=inf"),
        ((1.0, 1.0), ValueError, r"delta must lie in \[0, 1\), got delta=1.0"),
        ((1.0, -1e-9), ValueError, r"delta must lie in \[0, 1\), got delta=-1e-09"),
        (("1", 1e-6), TypeError, r"epsilon must be a number, got epsilon='1'"),
    ],
)
def test_budget_refuses(arguments, error, message):
    with pytest.raises(error, match=message):
        Budget(*arguments)


def test_budget_refuses_unknown_adjacency_and_empty_unit():
    with pytest.raises(ValueError, match=r"adjacency must be one of .*, got adjacency='swap'"):
        Budget(1.0, 1e-6, adjacency="swap")
    with pytest.raises(TypeError, match="unit must be a nonempty string, got unit=''"):
        Budget(1.0, 1e-6, unit="")

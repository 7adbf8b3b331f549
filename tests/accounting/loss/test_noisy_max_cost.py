"""Noisy maxima without Gumbel noise cost at most what Laplace noise does: the theorem on paths, exact mechanisms."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import trapezoid

from accounting import Laplace, NoisyMax, PureDP, delta, epsilon, zcdp


def permute_and_flip(weights):
    """P(i) = w_i ∫₀¹ Π_{j ≠ i} (1 − w_j v) dv with w = e^(weights − max): a polynomial, integrated exactly."""
    w = np.exp(weights - weights.max())
    nodes, mass = np.polynomial.legendre.leggauss(w.size)
    v = (nodes + 1) / 2
    factors = 1 - np.outer(v, w)
    chances = [mass @ np.delete(factors, i, axis=1).prod(axis=1) / 2 for i in range(w.size)]
    return w * np.array(chances)


def laplace_max(weights):
    grid = np.linspace(-60, weights.max() + 60, 20_001)
    x = grid[:, None] - weights
    cdf = np.where(x < 0, 0.5 * np.exp(np.minimum(x, 0)), 1 - 0.5 * np.exp(-np.maximum(x, 0)))
    pdf = 0.5 * np.exp(-np.abs(x))
    chances = [trapezoid(pdf[:, i] * np.delete(cdf, i, axis=1).prod(axis=1), grid) for i in range(weights.size)]
    return np.array(chances)


scores = st.lists(st.floats(-4, 4), min_size=2, max_size=6)


@settings(max_examples=30, deadline=None)
@given(scores, st.data(), st.floats(0.05, 4.0), st.sampled_from(["exponential", "laplace"]))
def test_no_pair_of_neighbours_passes_the_laplace_curve(base, data, eps, noise):
    # scores may rise by up to ε in all, weights are ε·score/(2Δ)
    moved = data.draw(st.lists(st.floats(0, 1) | st.sampled_from([0.0, 1.0]), min_size=len(base), max_size=len(base)))
    mechanism = permute_and_flip if noise == "exponential" else laplace_max
    if noise == "laplace" and data.draw(st.integers(0, 9)):
        return
    w = np.array(base)
    p, q = mechanism(w), mechanism(w + eps * np.array(moved))
    assert p.sum() == pytest.approx(1.0, abs=1e-4)
    for first, second in ((p, q), (q, p)):
        for at in (0.0, 0.2 * eps, 0.7 * eps):
            exact = float(np.maximum(first - math.exp(at) * second, 0).sum())
            assert exact <= delta(NoisyMax(eps, noise), at) + (1e-12 if noise == "exponential" else 1e-4)


@pytest.mark.parametrize("eps", [0.1, 1.0, 3.0])
def test_two_scores_meet_the_curve(eps):
    """The curve is not only above them all: a lower one would be wrong."""
    for at in np.linspace(0, 0.9, 4) * eps:
        worst = 0.0
        for gap in np.linspace(0, eps, 61):
            p, q = permute_and_flip(np.array([gap, 0.0])), permute_and_flip(np.array([gap - eps, 0.0]))
            worst = max(worst, float(np.maximum(p - math.exp(at) * q, 0).sum()))
        assert worst == pytest.approx(delta(NoisyMax(eps, "exponential"), at), rel=1e-3)


@pytest.mark.parametrize("noise", ["exponential", "laplace"])
def test_it_costs_less_than_pure_dp_and_as_much_at_delta_zero(noise):
    # dp-accounting 0.6 prices permute-and-flip by a Laplace pair as well
    assert epsilon(100 * Laplace(10.0), 1e-6) == pytest.approx(4.693, abs=1e-3)
    assert epsilon(100 * NoisyMax(0.1, noise), 1e-6) == pytest.approx(2.752 if noise == "laplace" else 4.693, abs=1e-3)
    assert epsilon(100 * PureDP(0.1), 1e-6) == pytest.approx(4.775, abs=1e-3)
    for eps in (1e-305, 1e-3, 0.1, 0.3, 7.7):
        assert epsilon(NoisyMax(eps, noise), 0.0) == eps
    assert zcdp(NoisyMax(2.0, noise)) == pytest.approx(zcdp(Laplace(0.5)), rel=1e-12)
    assert zcdp(NoisyMax(2.0, noise)) > zcdp(NoisyMax(2.0))

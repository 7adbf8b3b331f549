"""Neighbouring streams whose inputs depend on what was released: told apart as well as the cost says, and no better.

Each of n coordinates is a stream of its own, with inputs in [−1, 1] that follow its last estimate, but for step i,
where the neighbour's input is one sensitivity larger. All estimates A x + σB ζ together are a function of C x + σζ
with C = B⁻¹A. The exact log-likelihood ratio of the two streams given all estimates is linear in
⟨Ce_i, Cx + σζ − Cx̂⟩, x̂ the inputs that the estimates imply without the change: normal with the means 0 and ‖Ce_i‖²,
so that the test on it is the best there is, and its separation in standard deviations is the μ of Gaussian DP.
"""

import math

import numpy as np
import pytest
from factors import decoder, length

from accounting import gdp
from dpkit.continual import BinaryTree, BufferedToeplitz, Toeplitz, Unbounded, Weighted

HORIZON, COORDINATES = 12, 20_000
Z = 0.8


def make(mechanism, noise_multiplier, dimension, rng):
    known = length(mechanism, HORIZON)
    return mechanism(shape=dimension, sensitivity=1.0, noise_multiplier=noise_multiplier, rng=rng, **known)


def next_input(estimate):
    return np.tanh(3.0 * estimate)


def run(mechanism, noise_multiplier, changed, seed):
    """All estimates of the adaptive streams, with the input of step ``changed`` one larger (None: unchanged)."""
    sums = make(mechanism, noise_multiplier, COORDINATES, np.random.default_rng(seed))
    estimates = [np.zeros(COORDINATES)]
    for t in range(HORIZON):
        estimates.append(sums.add(next_input(estimates[-1]) + (t == changed)))
    return np.array(estimates)


def encoder(mechanism):
    """C of the mechanism, probed with unit vectors in place of noise."""

    sums = make(mechanism, 1.0, HORIZON, np.random.default_rng(0))
    sums.horizon = HORIZON
    B = decoder(sums, HORIZON)
    return np.linalg.solve(B, np.tril(np.ones((HORIZON, HORIZON))))


def separation(mechanism, noise_multiplier, changed):
    """The measured distance of the two streams' log-likelihood ratios, in standard deviations."""
    C = encoder(mechanism)
    decode = C @ np.linalg.inv(np.tril(np.ones((HORIZON, HORIZON))))
    direction = C[:, changed] / np.linalg.norm(C[:, changed])
    scores = []
    for seed, where in ((1, None), (2, changed)):
        estimates = run(mechanism, noise_multiplier, where, seed)
        implied = next_input(estimates[:-1])
        scores.append(direction @ (decode @ estimates[1:] - C @ implied))
    spread = math.sqrt((scores[0].var() + scores[1].var()) / 2)
    return (scores[1].mean() - scores[0].mean()) / spread


@pytest.mark.parametrize("mechanism", [BufferedToeplitz, Unbounded, Toeplitz, Weighted, BinaryTree])
@pytest.mark.parametrize("changed", [0, 5, HORIZON - 1])
def test_adaptive_neighbours_are_no_farther_apart_than_the_cost(mechanism, changed):
    # the separation's standard error is √((2 + μ²/4)/n) ≤ 0.014: 6.5 of them, false alarm below 1e-10 each
    tolerance = 6.5 * 0.014
    claim = gdp(make(mechanism, Z, 1, None).cost)
    assert separation(mechanism, Z, changed) <= claim + tolerance


@pytest.mark.parametrize("mechanism", [BufferedToeplitz, Unbounded, Toeplitz, Weighted, BinaryTree])
def test_the_cost_is_not_much_more_than_what_some_neighbours_show(mechanism):
    claim = gdp(make(mechanism, Z, 1, None).cost)
    assert separation(mechanism, Z, 0) >= 0.6 * claim


@pytest.mark.parametrize("mechanism", [BufferedToeplitz, Unbounded, Toeplitz, Weighted, BinaryTree])
def test_half_of_the_noise_is_caught(mechanism):
    claim = gdp(make(mechanism, Z, 1, None).cost)
    assert separation(mechanism, Z / 2, 0) > claim + 6.5 * 0.016

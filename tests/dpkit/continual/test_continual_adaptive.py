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
from factors import encoder, factorization_of, length

from accounting import gdp
from dpkit.continual import BinaryTree, BufferedToeplitz, Discounted, Toeplitz, Unbounded, Weighted

HORIZON, COORDINATES = 12, 10_000
Z = 0.8
MECHANISMS = [BufferedToeplitz, Unbounded, Toeplitz, Weighted, BinaryTree, Discounted]
LAGS = np.subtract.outer(np.arange(HORIZON), np.arange(HORIZON))


def make(mechanism, dimension, rng=None, noise_multiplier=Z):
    known = length(mechanism, HORIZON) | ({"discount": 0.9} if mechanism is Discounted else {})
    return mechanism(shape=dimension, sensitivity=1.0, noise_multiplier=noise_multiplier, rng=rng, **known)


def next_input(estimate):
    return np.tanh(3.0 * estimate)


def scores(mechanism, changed, others, noise_multiplier=Z):
    """The log-likelihood ratios, as normal variables, of a larger input at step ``changed``; which is made, or not."""
    C = encoder(factorization_of(make(mechanism, HORIZON)), HORIZON)
    A = np.where(LAGS >= 0, (0.9 if mechanism is Discounted else 1.0) ** np.maximum(LAGS, 0), 0.0)
    sums = make(mechanism, COORDINATES, np.random.default_rng(2 if changed in others else 1), noise_multiplier)
    estimates = [np.zeros(COORDINATES)]
    for t in range(HORIZON):
        estimates.append(sums.add(next_input(estimates[-1]) + (t in others)))
    seen = np.linalg.solve(A, np.array(estimates[1:])) - next_input(np.array(estimates[:-1]))
    return C[:, changed] / np.linalg.norm(C[:, changed]) @ C @ seen


def separation(mechanism, changed, noise_multiplier=Z):
    """The measured distance of the two streams' log-likelihood ratios, in standard deviations."""
    without, made = (scores(mechanism, changed, others, noise_multiplier) for others in ((), (changed,)))
    return (made.mean() - without.mean()) / math.sqrt((without.var() + made.var()) / 2)


# the separation's standard error is √((2 + μ²/4)/n) ≤ 0.0155 for μ = 1.25: 6.5 of them, false alarm below 1e-10 each
TOLERANCE = 6.5 * 0.0155


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_adaptive_neighbours_are_as_far_apart_as_the_cost_says_and_half_of_the_noise_is_caught(mechanism):
    claim = gdp(make(mechanism, 1).cost)
    found = [separation(mechanism, changed) for changed in (0, 5, HORIZON - 1)]
    assert max(found) <= claim + TOLERANCE
    # and some neighbours show not much less
    assert found[0] >= 0.6 * claim
    assert separation(mechanism, 0, Z / 2) > claim + TOLERANCE

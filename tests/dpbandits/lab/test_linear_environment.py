"""Linear rewards: noise of the stated law, exact moments, and the numbers that policies are told."""

import math
from itertools import pairwise

import numpy as np
import pytest
from chi_square import kolmogorov
from episodes import check_rounds, play
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import ndtr, stdtr
from tabled import tabled

from dpbandits.lab.environments import Linear

NOISES = ("gaussian", "student_t", "pareto", "symmetric_pareto")


def noise_of(environment, seed, rounds):
    return np.array([now.rewards[0] - now.means[0] for now in play(environment, seed, rounds)])


def distribution(noise, index, x):
    """P(η ≤ x) for scale 1, from the definitions."""
    if noise == "gaussian":
        return ndtr(x)
    if noise == "student_t":
        return stdtr(index, x)
    if noise == "pareto":
        return 1 - np.maximum(x + index / (index - 1), 1.0) ** -index
    tail = 0.5 * (1 + np.abs(x)) ** -index
    return np.where(x < 0, tail, 1 - tail)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("index", [1.5, 2.1])
def test_noise_has_the_stated_law(noise, index):
    # Massart's inequality: a distance times √n passes 3.45 with a chance of at most 2exp(−2·3.45²) = 9.2e-11, for
    # η and for |η|. The same sample at 0.9 and 1.1 times its scale, or of another index, must not pass.
    eta = noise_of(Linear(2, arms=1, noise=noise, df=index, tail_index=index, scale=0.5), 0, 25_000) / 0.5

    def distance(values, index):
        def law(x):
            return distribution(noise, index, x)

        return max(kolmogorov(values, law), kolmogorov(np.abs(values), lambda x: law(x) - law(-x)))

    assert distance(eta, index) < 3.45
    assert distance(0.9 * eta, index) > 3.45
    assert distance(1.1 * eta, index) > 3.45
    assert noise == "gaussian" or distance(eta, index + 0.6) > 3.45


@settings(max_examples=25, deadline=None)
@given(noise=st.sampled_from(NOISES), index=st.floats(1.2, 6.0), tail=st.floats(0.05, 1.0), scale=st.floats(0.1, 10.0))
def test_moments_are_exact(noise, index, tail, scale):
    environment = Linear(2, noise=noise, df=index, tail_index=index, scale=scale)
    order = math.inf if noise == "gaussian" else index
    if 1 + tail >= order:
        with pytest.raises(ValueError, match=r"tail must be below .* got tail="):
            environment.moment(tail)
        return
    if 1 + tail > order - 0.1:
        return  # the integral below converges too slowly
    p = 1 + tail

    # E|η|^p = ∫ p x^{p−1} P(|η| > x) dx over x = e^s
    def integrand(s):
        x = math.exp(s)
        outside = float(distribution(noise, index, -x) + (1 - distribution(noise, index, x)))
        if noise in ("pareto", "symmetric_pareto") and s > 10:  # without cancellation
            centre = index / (index - 1) if noise == "pareto" else 1.0
            outside = (x + centre) ** -index
        elif noise != "pareto":
            outside = 2 * float(distribution(noise, index, -x))
        return p * x**p * outside

    # P jumps in slope where the lower tail of the skewed law ends
    breaks = [-40.0, 0.0, 5.0, 10.0, 40.0, 300.0]
    if noise == "pareto":
        breaks = sorted([*breaks, math.log(1 / (index - 1))])
    total = sum(quad(integrand, a, b, limit=200)[0] for a, b in pairwise(breaks))
    assert environment.moment(tail) == pytest.approx(scale * total ** (1 / p), rel=1e-6)


def test_known_moments():
    # variances: n/(n − 2) for Student's t; α/((α − 1)²(α − 2)) for a Pareto; 2/((α − 1)(α − 2)) for its excess
    assert Linear(noise="student_t", df=2.1).noise_scale == pytest.approx(math.sqrt(21))
    assert Linear(noise="pareto", tail_index=3).noise_scale == pytest.approx(math.sqrt(3 / 4))
    assert Linear(noise="symmetric_pareto", tail_index=3).noise_scale == pytest.approx(1.0)
    assert Linear(scale=0.3).noise_scale == pytest.approx(0.3)
    assert Linear().moment(0.5) == pytest.approx((2**0.75 * math.gamma(1.25) / math.sqrt(math.pi)) ** (1 / 1.5))


@pytest.mark.parametrize("noise", NOISES)
def test_policies_are_told_a_finite_moment(noise):
    for index in (1.1, 1.9, 2.0, 2.5):
        environment = Linear(noise=noise, df=index, tail_index=index)
        assert environment.noise_tail == (1.0 if noise == "gaussian" or index > 2 else pytest.approx((index - 1) / 2))
        assert environment.noise_scale == environment.moment(environment.noise_tail) < math.inf


@pytest.mark.parametrize("noise", NOISES)
def test_the_range_for_private_policies_leaves_out_half_a_percent_at_either_end(noise):
    # The count beyond an end is binomial with mean 300 and standard deviation 17; by Bernstein's inequality it is off
    # by 125 with a chance below 3e-10. Quantiles for 0.25 % or 1 % would be off by 150 or 300.
    environment = Linear(2, arms=1, noise=noise, df=1.7, tail_index=1.7, theta_norm=0.8)
    low, high = environment.reward_range
    eta = noise_of(environment, 1, 60_000)
    for outside in (eta < low + 0.8, eta > high - 0.8):
        assert abs(int(outside.sum()) - 300) < 125


def test_arms_share_their_luck_and_means_come_from_a_parameter_of_the_given_norm():
    rounds = play(Linear(3, arms=4, noise="pareto", theta_norm=0.7, arm_law="cube"), 2, 30)
    for now in rounds:
        assert np.ptp(now.rewards - now.means) < 1e-9 * np.abs(now.rewards).max()
    X, means = np.concatenate([now.arms for now in rounds]), np.concatenate([now.means for now in rounds])
    theta, residual = np.linalg.lstsq(X, means, rcond=None)[:2]
    assert np.linalg.norm(theta) == pytest.approx(0.7)
    assert residual == pytest.approx(0.0, abs=1e-20)


def test_one_seed_is_one_world():
    environment = Linear(noise="student_t", arm_law="fixed_cube")
    check_rounds(environment, environment, 50)
    assert environment.name == "linear bandit, Student-t(2.1) noise (d = 2, K = 50, S = 1)"


@tabled(
    ("arguments", "message"),
    [
        ({"noise": "cauchy"}, "noise must be one of 'gaussian', .* got noise='cauchy'"),
        ({"noise": "student_t", "df": 1.0}, "df must be above 1, or the noise has no mean, got df=1"),
        ({"noise": "pareto", "tail_index": 0.9}, "tail_index must be above 1, or the noise has no mean"),
        ({"scale": 0.0}, "scale must be positive and finite, got scale=0.0"),
        ({"theta_norm": math.inf}, "theta_norm must be positive and finite"),
        ({"arms": 0}, "arms must be at least 1, got arms=0"),
        ({"arm_law": "disc"}, "arm_law must be one of"),
    ],
)
def test_bad_parameters_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Linear(**arguments)
    with pytest.raises(ValueError, match=r"tail must lie in \(0, 1\], got tail=1.5"):
        Linear().moment(1.5)

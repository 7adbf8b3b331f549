"""Simulated models: their arms, their rewards, and the same luck for every policy."""

import math

import numpy as np
import pytest
from chi_square import kolmogorov
from episodes import play
from hypothesis import given, settings
from hypothesis import strategies as st
from tabled import tabled

from dpbandits.lab.environments import GLM, Round
from dpkit.models.links import get_link

LINKS = ("logistic", "probit", "linear", "poisson")


@settings(max_examples=40, deadline=None)
@given(
    dim=st.integers(1, 8),
    arms=st.integers(1, 12),
    link=st.sampled_from(LINKS),
    law=st.sampled_from(["ball", "sphere", "cube", "fixed", "fixed_sphere", "fixed_cube"]),
    norm=st.floats(0.1, 4.0),
    seed=st.integers(0, 2**32),
)
def test_rounds_are_what_every_policy_accepts(dim, arms, link, law, norm, seed):
    environment = GLM(dim, arms=arms, link=link, theta_norm=norm, arm_law=law)
    mean = get_link(link).mean
    for now in play(environment, seed, 5):
        assert now.arms.shape == (arms, dim)
        assert now.rewards.shape == now.means.shape == (arms,)
        lengths = np.linalg.norm(now.arms, axis=1)
        assert lengths.max() <= 1
        if law.endswith("sphere"):
            assert np.allclose(lengths, 1)
        if law.endswith("cube"):
            assert np.abs(now.arms).max() <= 1 / math.sqrt(dim)
        assert mean(-norm) <= now.means.min() <= now.means.max() <= mean(norm)
        if link in ("logistic", "probit"):
            assert set(now.rewards) <= {0.0, 1.0}
        assert now.reward(arms - 1) == now.rewards[-1]


def test_one_seed_is_one_world_and_a_longer_episode_only_goes_on():
    environment = GLM(3, arms=4)
    first, again, other = play(environment, 1, 50), play(environment, 1, 2000), play(environment, 2, 50)
    for a, b in zip(first, again, strict=False):
        assert np.array_equal(a.arms, b.arms)
        assert np.array_equal(a.rewards, b.rewards)
    assert not np.array_equal(first[0].arms, other[0].arms)


@pytest.mark.parametrize("link", LINKS)
def test_means_are_those_of_a_parameter_of_the_given_norm(link):
    rounds = play(GLM(4, arms=3, link=link, theta_norm=1.7), 3, 20)
    X, means = np.concatenate([r.arms for r in rounds]), np.concatenate([r.means for r in rounds])
    from scipy.special import logit, ndtri

    inverse = {"logistic": logit, "probit": ndtri, "linear": np.asarray, "poisson": np.log}[link]
    theta = np.linalg.lstsq(X, inverse(means), rcond=None)[0]
    assert np.linalg.norm(theta) == pytest.approx(1.7, rel=1e-9)


@pytest.mark.parametrize("link", LINKS)
def test_rewards_have_the_stated_means_and_variances(link):
    # One arm, 40,000 rounds. Both statistics are sums of independent terms, compared with their own standard
    # error: |z| > 6.5 has a chance of 8e-11 each (for the skewed squares of Poisson rewards, Bernstein gives below
    # 1e-9). A scale wrong by 10 % would be z > 20 for the linear and the Poisson link.
    rounds = play(GLM(2, arms=1, link=link, theta_norm=1.0), 4, 40_000)
    m, r = np.array([n.means[0] for n in rounds]), np.array([n.rewards[0] for n in rounds])
    variance = {"logistic": m * (1 - m), "probit": m * (1 - m), "linear": np.ones_like(m), "poisson": m}[link]

    def z(terms):
        return terms.sum() / (terms.std() * math.sqrt(len(terms)))

    assert abs(z(r - m)) < 6.5
    assert abs(z((r - m) ** 2 - variance)) < 6.5
    if link in ("linear", "poisson"):
        for wrong in (0.9, 1.1):
            assert abs(z((wrong * (r - m)) ** 2 - variance)) > 6.5


def test_arms_fill_the_ball_evenly():
    # the length to the power d is uniform on [0, 1]: mean 1/2, standard deviation 1/√12. For 60,000 arms, 6.5
    # standard errors (chance 8e-11) are 0.0077; lengths drawn for d ± 1 would have a mean of 3/5 or 3/7.
    X = np.concatenate([r.arms for r in play(GLM(3, arms=20), 5, 3000)])
    assert abs((np.linalg.norm(X, axis=1) ** 3).mean() - 0.5) < 0.0077
    assert abs(X.mean()) < 6.5 / math.sqrt(X.size)


def test_arms_fill_the_cube_evenly():
    # entries times √d are uniform on [−1, 1]. Massart's inequality bounds the chance of a Kolmogorov distance above
    # 3.45/√n by 2exp(−2·3.45²) = 9.2e-11; with a cube of 0.9 or 1.1 times the size it would be 0.05 (12/√n).
    x = np.concatenate([r.arms for r in play(GLM(3, arms=20, arm_law="cube"), 5, 1000)]).ravel() * math.sqrt(3)
    for size in (0.9, 1.0, 1.1):
        assert (kolmogorov(size * x, lambda x: np.clip(0.5 * (x + 1), 0, 1)) < 3.45) == (size == 1.0)


@pytest.mark.parametrize("law", ["fixed", "fixed_sphere", "fixed_cube"])
def test_fixed_arms_stay_for_an_episode(law):
    rounds = play(GLM(3, arms=5, arm_law=law), 6, 3000)
    assert all(np.array_equal(now.arms, rounds[0].arms) for now in rounds)
    assert len({tuple(now.rewards) for now in rounds}) > 1


def test_private_policies_are_told_a_finite_range():
    for link in LINKS:
        low, high = GLM(2, link=link, theta_norm=2.0).reward_range
        assert low < get_link(link).mean(0.0) < high < math.inf


@tabled(
    ("arguments", "message"),
    [
        ({"dim": 0}, "dim must be at least 1, got dim=0"),
        ({"arms": 0}, "arms must be at least 1, got arms=0"),
        ({"link": "cauchit"}, "link must be one of .* got link='cauchit'"),
        ({"theta_norm": 0.0}, "theta_norm must be positive and finite, got theta_norm=0.0"),
        ({"theta_norm": math.nan}, "theta_norm must be a number"),
        ({"arm_law": "disc"}, "arm_law must be one of 'ball', 'sphere', .*, got arm_law='disc'"),
    ],
)
def test_bad_parameters_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        GLM(**arguments)


def test_a_round_tells_one_reward():
    assert Round(np.eye(2), np.array([0.25, 1.0])).reward(1) == 1.0

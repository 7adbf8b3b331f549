"""Parameters of fixed arms from their sums: what a link's sums are on average, their fit, and its prior."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial.hermite_e import hermegauss

from dpbandits.private.parts.block_fits import Collected, posteriors, prior_variance
from dpbandits.private.parts.block_model import Play, replay
from dpkit.geometry import smat
from dpkit.models.links import get_link
from dpkit.moments.blocks import features

LINEAR, LOGISTIC = get_link("linear"), get_link("logistic")


def collected(H: np.ndarray, b: np.ndarray, s: float, centre: float = 0.5) -> Collected:
    values, U = np.linalg.eigh(H)
    return Collected(values, U, b, s**2 + 0.25 * values, centre)


def normal_contexts(W: float, mean: np.ndarray, root: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes x, their weights, and H, for z ~ N(mean, root·rootᵀ) in two dimensions, by quadrature in both."""
    nodes, weights = hermegauss(40)
    grid = np.array(list(product(nodes, nodes)))
    shares = np.outer(weights, weights).ravel() * W / weights.sum() ** 2
    x = features(mean + grid @ root.T)
    return x, shares, (x * shares[:, None]).T @ x


@pytest.mark.parametrize("link", [LOGISTIC, get_link("probit"), LOGISTIC.at(0.1), LINEAR])
def test_what_normal_contexts_leave_on_average_follows_from_their_moments(link):
    x, shares, H = normal_contexts(300.0, np.array([0.2, -0.3]), np.array([[0.4, 0.0], [0.1, 0.2]]))
    thetas = np.array([[0.0, 0.0, 0.0], [0.5, 2.0, -1.0], [-1.0, 3.0, 3.0]])
    arms = collected(np.tile(H, (3, 1, 1)), np.zeros((3, 3)), 1.0, 0.4)
    F, jacobian = arms.expected(thetas, link)
    for k, theta in enumerate(thetas):
        np.testing.assert_allclose(F[k], (shares * (link.mean(x @ theta) - 0.4)) @ x, atol=1e-3 * 300)
        exact = (x * (shares * link.derivative(x @ theta))[:, None]).T @ x
        np.testing.assert_allclose(jacobian[k], exact, atol=1e-3 * 300)
    # the derivative is that of the sum with its nodes, and not only of its limit: steps of the fit rely on it
    for i in range(3):
        step = 1e-5 * np.eye(3)[i]
        slope = (arms.expected(thetas + step, link)[0] - arms.expected(thetas - step, link)[0]) / 2e-5
        np.testing.assert_allclose(slope, jacobian[:, :, i], atol=2e-3 * 300)


def test_under_a_linear_link_the_posteriors_are_those_of_bayes_whatever_the_contexts():
    rng = np.random.default_rng(3)
    x = features(rng.uniform(-1, 1, (2, 40, 2)) ** 3 / math.sqrt(2))
    H, b = x.transpose(0, 2, 1) @ x, rng.standard_normal((2, 3))
    mean, precision, link = np.array([0.3, 0.0, -0.1]), np.diag([4.0, 9.0, 6.0]) + 1.0, LINEAR.at(0.2)
    theta, covariance = posteriors(collected(H, b, 0.7), link, rng.standard_normal((2, 3)), mean, precision)
    for k in range(2):
        seen = H[k] @ np.linalg.inv(0.49 * np.eye(3) + 0.25 * H[k])
        at_rest = (0.2 - 0.5) * x[k].sum(axis=0)
        expected = np.linalg.solve(seen @ H[k] + precision, seen @ (b[k] - at_rest) + precision @ mean)
        np.testing.assert_allclose(theta[k], expected, atol=1e-9)
        np.testing.assert_allclose(smat(covariance[k]), np.linalg.inv(seen @ H[k] + precision), atol=1e-9)


def test_a_steep_arm_is_found_from_the_contexts_in_which_it_was_played():
    """It was played where it is good: there the best line is half as steep, and says too much of the others."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal((400_000, 2)) * 0.35
    z = z[np.linalg.norm(z, axis=1) < 1]
    x, theta = features(z), np.array([1.0, 5.0, -2.0])
    taken = rng.random(len(z)) < LOGISTIC.mean(6.0 * z[:, 0])
    x, psi = x[taken], 1 / np.linalg.norm(x[taken], axis=1)
    means = LOGISTIC.mean(x @ theta)
    arms = collected(((x * psi[:, None]).T @ x)[None], (psi * (means - 0.5)) @ x[None], 10.0)
    prior = np.zeros((1, 3)), np.zeros(3), np.eye(3) / 9.0
    found = posteriors(arms, LOGISTIC, *prior)[0][0]
    np.testing.assert_allclose(found, theta, atol=0.35)
    line = posteriors(arms, LINEAR.at(0.5), *prior)[0][0]
    others = features(np.array([[-0.5, 0.0], [-0.3, 0.2]]))
    np.testing.assert_allclose(LOGISTIC.mean(others @ found), LOGISTIC.mean(others @ theta), atol=0.03)
    assert (np.abs(0.5 + others @ line - LOGISTIC.mean(others @ theta)) > 0.06).any()


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    link=st.sampled_from(["logistic", "probit", "linear", "poisson"]),
    size=st.sampled_from([0.0, 1.0, 1e3, 1e6]),
    played=st.sampled_from([1e-9, 1.0, 1e5]),
    spread=st.sampled_from([0.1, 3.0, 60.0]),
)
def test_whatever_noise_has_made_of_sums_a_fit_is_finite_and_no_worse_than_its_start(seed, link, size, played, spread):
    rng, link = np.random.default_rng(seed), get_link(link)
    X = features(rng.uniform(-0.7, 0.7, (4, 5, 2)))
    H = played * (X.transpose(0, 2, 1) @ X + 1e-6 * np.eye(3))
    arms, start = collected(H, size * rng.standard_normal((4, 3)), 1.0), rng.standard_normal((4, 3))

    def total(theta):
        return arms.weighed(theta, link)[2] + (theta**2).sum(axis=1) / spread**2

    theta, covariance = posteriors(arms, link, start, np.zeros(3), np.eye(3) / spread**2)
    assert np.isfinite(theta).all()
    assert (total(theta) <= total(start) * (1 + 1e-7)).all()
    assert (np.linalg.eigvalsh(smat(covariance)) > 0).all()
    variance = prior_variance(arms, link, theta, np.zeros(3), spread**2, 300.0)
    assert 0 < variance <= spread**2


def test_the_fit_ends_where_nothing_pulls():
    rng = np.random.default_rng(5)
    z = rng.uniform(-0.7, 0.7, (6, 200, 2))
    x = features(z)
    b = (x * (LOGISTIC.mean(np.einsum("kni,ki->kn", x, rng.normal(0, 3, (6, 3)))) - 0.5)[:, :, None]).sum(axis=1)
    arms = collected(x.transpose(0, 2, 1) @ x, b + 3.0 * rng.standard_normal(b.shape), 3.0)
    theta, covariance = posteriors(arms, LOGISTIC, np.zeros((6, 3)), np.zeros(3), np.eye(3) / 9.0)
    gradient, information, _ = arms.weighed(theta, LOGISTIC)
    # next to what a standard deviation of θ would pull
    pull = np.einsum("kij,kj->ki", smat(covariance), gradient - theta / 9.0)
    assert (np.abs(pull) < 0.05 * np.sqrt(np.diagonal(smat(covariance), axis1=1, axis2=2))).all()
    np.testing.assert_allclose(smat(covariance), np.linalg.inv(information + np.eye(3) / 9.0), rtol=1e-6)


@pytest.mark.parametrize("link", [LINEAR, LOGISTIC])
def test_the_prior_variance_is_found_from_many_arms(link):
    """Next to θ = 0, where the logistic link is a quarter as steep; parameters have a standard deviation of a half."""
    rng = np.random.default_rng(4)
    values = rng.uniform(1, 30, (4000, 5))
    U = np.linalg.qr(rng.standard_normal((4000, 5, 5)))[0]
    arms = Collected(values, U, np.zeros((4000, 5)), 25.0 + values, float(link.mean(0.0)))
    zero = np.zeros((4000, 5))
    slope = link.derivative(0.0)
    inside = slope * values * 0.5 * rng.standard_normal(values.shape)
    inside += np.sqrt(arms.error) * rng.standard_normal(values.shape)
    arms = Collected(values, U, np.einsum("kij,kj->ki", U, inside), arms.error, arms.centre)
    # H need not be one of contexts: F vanishes at 0 and has the derivative μ̇(0)·H there
    asked = link, zero, np.zeros(5)
    assert prior_variance(arms, *asked, 9.0, 0.0) == pytest.approx(0.25, rel=0.15 if link is LINEAR else 0.4)
    assert prior_variance(arms, *asked, 0.1, 0.0) == 0.1
    assert prior_variance(arms, *asked, 9.0, 16.0) > 0.25
    nothing = Collected(np.full((2, 2), 1e-9), np.tile(np.eye(2), (2, 1, 1)), np.zeros((2, 2)), np.ones((2, 2)), 0.5)
    assert prior_variance(nothing, LOGISTIC, np.zeros((2, 2)), np.zeros(2), 9.0, 16.0) == 9.0


def test_a_batch_played_by_gaps_of_means_is_replayed_by_them():
    """Where a link is flat gaps are small, so that choices are nearly even: the replay must know."""
    rng = np.random.default_rng(1)
    z = rng.uniform(-0.5, 0.5, (4000, 1))
    theta, standing = np.array([[12.0, 0.0], [8.0, 0.0]]), (np.zeros(2), np.full(2, -1))
    shares = [
        replay(z, Play(theta, np.zeros((2, 3)), 0.3, 20.0, link), standing, (0, 9), rng)[1, 0] * 2
        for link in (LINEAR, LOGISTIC)
    ]
    # 1/(2 + 20·gap): exactly 0.017 and 0.48; of 4000 draws
    assert shares[0] < 0.05
    assert 0.4 < shares[1] < 0.55

"""MENU: its epochs against dense regressions and all pairs of groups, its constants, and arms that change."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpbandits.reference.heavy_tails.menu import MENU

ARMS = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.6]])


@pytest.mark.parametrize("parameters", ["theory", "practical"])
@pytest.mark.parametrize("eps", [0.4, 1.0])
def test_each_epoch_is_the_algorithms(parameters, eps):
    rng, S, nu, T, delta, lam = np.random.default_rng(0), 0.9, 1.5, 2000, 0.02, 0.7
    policy = MENU(
        2,
        horizon=T,
        theta_bound=S,
        tail=eps,
        noise_scale=nu,
        parameters=parameters,
        radius_scale=0.3,
        failure_probability=delta,
        ridge=lam,
    )
    k = math.ceil((24 if parameters == "theory" else 1) * math.log(math.e * T / delta))
    X, Y = np.empty((0, 2)), np.empty((0, k))
    theta, V, n = np.zeros(2), lam * np.eye(2), 0
    for _ in range(4):
        decisions, y = [], rng.standard_t(1.6, k)
        for reward in y:
            decisions.append(policy.select(ARMS))
            policy.update(decisions[-1], float(reward))
        assert len({decision.index for decision in decisions}) == 1
        # y = 3.1·C and γ, step by step from the derivation
        P = 2 * math.log(1 + n / (2 * lam))
        Q, c, ups = n ** ((1 - eps) / 2) * P ** ((1 + eps) / 2), nu ** (1 + eps), (1 - eps) / (1 + eps)
        if eps < 1 and n:
            tau = (3.1 * (1 + ups) / ups * c * Q) ** (1 / (1 + eps))
            assert ups * tau**2 == pytest.approx(3.1 * c * (1 + ups) * tau ** (1 - eps) * Q)
            noise = math.sqrt(ups) * tau + c * tau**-eps * Q
        else:
            noise = math.sqrt(3.1 * c * Q)
        beta = 3 * (noise + math.sqrt(lam) * S) * (1.0 if parameters == "theory" else 0.3)
        scores = [x @ theta + beta * math.sqrt(x @ np.linalg.solve(V, x)) for x in ARMS]
        np.testing.assert_allclose(decisions[0].scores, scores, rtol=1e-9)
        x = decisions[0].arm
        X, Y, n = np.vstack([X, x]), np.vstack([Y, y]), n + 1
        V = lam * np.eye(2) + X.T @ X
        thetas = np.array([np.linalg.solve(V, X.T @ column) for column in Y.T])
        apart = thetas[:, None] - thetas
        medians = np.median(np.einsum("jsa,ab,jsb->js", apart, V, apart), axis=1)
        theta = thetas[int(np.argmin(medians))]
        np.testing.assert_allclose(policy.theta, theta, atol=1e-10)


def test_the_constant_of_the_derivation_is_enough():
    """½ln(1 + aY) − aC at a = (½ − 1/Λ)/C and Y = ΛC is at least 1/24, at Λ = 3.1 and not at 3.0."""

    def rate(size):
        return 0.5 * math.log(1 + (0.5 - 1 / size) * size) - (0.5 - 1 / size)

    assert rate(3.1) >= 1 / 24 > rate(3.0)


def test_half_of_the_groups_hardly_ever_leave_the_radius():
    """Arms that one watches for bad luck: chosen so that most groups err, for noise with the largest allowed moment.

    An epoch fails with probability at most e^{−k/24}; at k = 664 the 10³ epochs here do with less than 1e-9.
    """
    rng, k, lam = np.random.default_rng(3), 664, 1.0
    worst = 0.0
    for _ in range(40):
        V, M = lam * np.eye(2), np.zeros((k, 2))
        for n in range(1, 26):
            # the arm along which the groups have erred most
            x = np.linalg.eigh(M.T @ M)[1][:, -1] if n > 1 else np.array([1.0, 0.0])
            V += np.outer(x, x)
            M += rng.choice([-5.0, 0.0, 5.0], p=[0.02, 0.96, 0.02], size=k)[:, None] * x  # of variance 1
            errors = np.einsum("ij,ij->i", M @ np.linalg.inv(V), M)
            worst = max(worst, float(np.quantile(errors, 0.5)) / (3.1 * 2 * math.log(1 + n / (2 * lam))))
    assert 0.05 < worst < 1.0


def test_one_monstrous_reward_moves_one_group_only():
    policy = MENU(1, horizon=1000, ridge=1e-6)
    for t in range(5 * policy.groups):
        policy.update(policy.select([[1.0]]), 1e9 if t == 3 else 0.5)
    assert policy.theta[0] == pytest.approx(0.5, rel=1e-5)


def test_an_epoch_ends_when_its_arm_is_not_offered():
    policy = MENU(2, horizon=1000)
    policy.update(policy.select([[1.0, 0.0]]), 0.7)
    second = policy.select([[0.0, 1.0]])
    assert policy.epochs == 1
    np.testing.assert_allclose(policy.theta, [0.35, 0.0])  # all groups have the one reward
    assert policy.epoch.arm.tolist() == second.arm.tolist()
    policy.select([[0.5, 0.5]])  # no reward came: nothing is learned
    assert policy.epochs == 1

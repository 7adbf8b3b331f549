"""B-GLinCB: a plain transcription plays the same arms; its constants, its batches, and its memory."""

from __future__ import annotations

import math

import numpy as np
import pytest
from regret import ball
from scipy.optimize import minimize

from dpbandits.policies import BGLinCB
from dpkit.geometry import g_optimal_design
from dpkit.models.links import get_link


def length(x, V):
    return math.sqrt(x @ np.linalg.inv(V) @ x)


def transcribed(rounds, rewards, *, link, lengths, S, R, lam, gamma, kappa, beta, seed):
    """Arms, θ_k and designs; ``beta`` is whether arms are scaled by β(x)."""
    rng, played, thetas, designs, t = np.random.default_rng(seed), [], [], [], 0
    d = rounds[0].shape[1]

    def width(x, k):
        return gamma * length(x, designs[k]) * (1.0 if k else math.sqrt(kappa))

    def scale(x):
        if not thetas:
            return 1.0
        shrunk = math.exp(R * min(2 * S, width(x, 0))) if beta else 1.0
        return float(link.derivative(x @ thetas[0])) / shrunk

    for k in range(len(lengths) + 1):
        B_k = lengths[k] if k < len(lengths) else len(rounds) - t
        batch = []
        for X, r in zip(rounds[t : t + B_k], rewards[t : t + B_k], strict=True):
            left = list(range(len(X)))
            for j in range(k):
                best = max(X[i] @ thetas[j] - width(X[i], j) for i in left)
                left = [i for i in left if X[i] @ thetas[j] + width(X[i], j) >= best]
            design = g_optimal_design([math.sqrt(scale(X[i])) * X[i] for i in left], tolerance=1.0)
            shares, uniform = dict(zip(left, design, strict=True)), rng.random(len(X))
            i = max(range(len(X)), key=lambda i: shares.get(i, 0.0) / -math.log(uniform[i]))
            batch.append((X[i], r[i]))
            played.append(i)
        t += B_k
        if k < len(lengths):
            X, r = np.array([x for x, _ in batch]), np.array([r for _, r in batch])
            V = lam * np.eye(d) + sum(scale(x) * np.outer(x, x) for x in X)

            def loss(v, X=X, r=r):
                return np.sum(link.integral(X @ v) - r * (X @ v)) + 0.5 * lam * v @ v

            inside = {"type": "ineq", "fun": lambda v: S**2 - v @ v}
            found = minimize(loss, np.zeros(d), constraints=inside, method="SLSQP", options={"ftol": 1e-15})
            designs.append(V)
            thetas.append(found.x)
    return played, thetas, designs


@pytest.mark.parametrize("parameters", ["practical", "theory"])
def test_a_plain_transcription_plays_the_same_arms(parameters):
    rng, link, T, S, lengths = np.random.default_rng(3), get_link("logistic"), 400, 2.0, [40, 80, 160]
    rounds = [ball(rng, 6, 2) for _ in range(T)]
    rewards = [(rng.random(6) < link.mean(X @ [1.5, -1.0])).astype(float) for X in rounds]
    policy = BGLinCB(2, horizon=T, theta_bound=S, batches=lengths, parameters=parameters, rng=np.random.default_rng(4))
    if parameters == "theory":
        policy.gamma = 0.6  # theory's own rules out nothing in so few rounds
        policy.ridge = 2.0
    played = []
    for X, r in zip(rounds, rewards, strict=True):
        decision = policy.select(X)
        policy.update(decision, r[decision.index])
        played.append(decision.index)
    expected, thetas, designs = transcribed(
        rounds,
        rewards,
        link=link,
        lengths=lengths,
        S=S,
        R=1.0,
        lam=policy.ridge,
        gamma=policy.gamma,
        kappa=policy.root_kappa**2,
        beta=parameters == "theory",
        seed=4,
    )
    assert played == expected
    np.testing.assert_allclose(policy.thetas, thetas, atol=1e-5)
    np.testing.assert_allclose(policy.designs, designs, rtol=1e-5)
    last = sum(decision.law.shares > 0)
    assert last < 6  # arms were ruled out


def test_theory_parameters():
    d, T, S = 3, 10_000, 2.0
    policy = BGLinCB(d, horizon=T, theta_bound=S, parameters="theory")
    log_T, kappa = math.log(T), get_link("logistic").kappa(S)
    assert policy.ridge == pytest.approx(20 * d * log_T)
    chance = math.sqrt(log_T + d) + (log_T + d) / math.sqrt(policy.ridge)
    assert policy.gamma == pytest.approx(24 * S * chance + 2 * S * math.sqrt(policy.ridge))
    assert policy.root_kappa == pytest.approx(math.sqrt(kappa))
    assert policy.ends == []  # the first batch is the whole run
    alpha = T ** (1 / (2 * (1 - 2.0**-2)))
    first = (math.sqrt(kappa) * math.exp(3 * S) * d**2 * policy.gamma**2 * alpha / S) ** (2 / 3)
    assert first > T


def test_batches_are_fixed_beforehand():
    policy = BGLinCB(2, horizon=3000)
    assert policy.ends == [32, 96, 224, 480, 992, 2016]
    assert BGLinCB(2, horizon=100, batches=[10, 20]).ends == [10, 30]
    with pytest.raises(ValueError, match="batches must be"):
        BGLinCB(2, horizon=100, batches=[0])

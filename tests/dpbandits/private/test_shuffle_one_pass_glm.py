"""The shuffle one-pass policy: its records, its users, its sensitivity, and its regret."""

from __future__ import annotations

import numpy as np
import pytest
from exact_batches import recorded
from regret import ball, regret_of

from accounting import Budget
from dpbandits.lab.environments import LinearBernoulli
from dpbandits.lab.simulation.simulate import simulate
from dpbandits.policies import OnePassPrivateGLM, ShuffleOnePassGLM
from dpbandits.private.parts.noisy_estimate import shrunken_eigenvalues
from dpkit.geometry import smat, svec
from dpkit.models.links import get_link

BUDGET = Budget(1.0, 1e-5)
LINKS = ("logistic", "probit", "linear")


def policy_with(link="logistic", dim=3, horizon=200, **parameters) -> ShuffleOnePassGLM:
    # levels that are learned are tested in test_levels.py
    known = {"budget": BUDGET, "reward_range": (0.0, 1.0), "base_rate": 0.5, "rng": np.random.default_rng(0)}
    parameters = known | parameters
    return ShuffleOnePassGLM(dim, link, horizon=horizon, **parameters)


# ------------------------------------------------------------------------------------------------- records


@pytest.mark.parametrize("link", LINKS)
def test_a_record_is_formed_at_the_released_parameter(monkeypatch, link):
    records = recorded(monkeypatch)
    rng, policy = np.random.default_rng(1), policy_with(link, horizon=120, first_batch=10, theta_bound=2.0)
    L, c = get_link(link).at(0.5), 0.5
    e = np.linspace(-2.0, 2.0, 100_000)  # without 0
    secants = (L.mean(e) - c) / e
    highest = min(float(L.derivative(0.0)), (float(L.mean(1.2)) - c) / 1.2)
    lowest = max(secants.min(), 0.2 * highest)
    for _ in range(100):
        decision = policy.select(ball(rng, 4, 3))
        r, x, e = float(rng.random()), decision.arm, float(decision.arm @ policy.theta)
        psi = min(1 / np.linalg.norm(x), 2.0)
        w = psi * np.clip((L.mean(e) - c) / e if e else L.derivative(0.0), lowest, highest)
        g = psi * (r - c)
        policy.update(decision, r)
        expected = np.concatenate([policy.sums.scales[0] * w * svec(np.outer(x, x)), policy.sums.scales[1] * g * x])
        np.testing.assert_allclose(records[-1], expected, atol=1e-8)
    assert policy.releases >= 3


def test_a_released_parameter_is_the_fit_of_the_weighted_sums(monkeypatch):
    records = recorded(monkeypatch, np.zeros(9))
    policy, rng = policy_with(horizon=91, first_batch=30, growth=2.0, theta_bound=50.0), np.random.default_rng(2)
    assert policy.schedule.ends == (30, 90)
    thetas = [np.zeros(3)]
    for _ in range(91):
        policy.update(policy.select(ball(rng, 4, 3)), float(rng.random() < 0.5))
        if len(thetas) <= policy.releases:
            thetas.append(policy.theta)
    sums = [np.sum(rows, axis=0) for rows in (records[:30], records[30:90])]
    M, m = (
        [smat(total[:6] / policy.sums.scales[0]) for total in sums],
        [total[6:] / policy.sums.scales[1] for total in sums],
    )
    theta = thetas[1]
    slope, secant = policy.record.levels.base.slopes(theta @ M[1] @ theta / 60)
    first = policy.record.levels.base.slopes(0.0)[0]
    stds, gammas = [policy.sums.batches.noise_std(0), policy.sums.batches.noise_std(1)], [first, slope]
    rhos = [policy.record.levels.base.slopes(0.0)[1], secant]
    assert rhos[1] > gammas[1]
    omega = [
        1 / (1 + (std / policy.sums.scales[1]) ** 2 * 2 * 3 / 0.25 / n) for n, std in zip((30, 60), stds, strict=True)
    ]
    H = omega[0] * first * M[0] + omega[1] * slope * M[1]
    b = omega[0] * m[0] + omega[1] * (m[1] - (secant - slope) * M[1] @ theta)
    noise_H = (
        np.linalg.norm([o * g * std for o, g, std in zip(omega, gammas, stds, strict=True)]) / policy.sums.scales[0]
    )
    noise_M = np.linalg.norm([o * r * std for o, r, std in zip(omega, rhos, stds, strict=True)]) / policy.sums.scales[0]
    noise_b = np.linalg.norm([o * std for o, std in zip(omega, stds, strict=True)]) / policy.sums.scales[1]
    eigenvalues, U = np.linalg.eigh(H)
    eigenvalues = shrunken_eigenvalues(eigenvalues, noise_H)
    # the noise of b, that of Σρ_jM_j times θ, and chance, which is 1·λ for a Bernoulli reward and its link
    r = noise_b**2 + 0.7 * noise_M**2 * (4 / 6) * (theta @ theta) + eigenvalues
    precision = eigenvalues**2 / r + 3 / 50.0**2
    np.testing.assert_allclose(policy.theta, U @ (eigenvalues / r * (U.T @ b) / precision), rtol=1e-7)
    axes = np.linalg.eigvalsh(policy.public.root @ policy.public.root.T)
    assert (axes >= 0.1 * 0.36 / precision.max() * (1 - 1e-9)).all()
    assert (axes <= 0.36 / precision.min() * (1 + 1e-9)).all()


# --------------------------------------------------------------------------------------------- batches and users


# ------------------------------------------------------------------------------------------------- privacy


# ------------------------------------------------------------------------------------------------- regret


def probit_regret(epsilon: float, S: float, seeds: int) -> float:
    """d = 3, K = 20, T = 5000, δ = 0.02."""
    return regret_of(
        lambda rng: ShuffleOnePassGLM(
            3, "probit", budget=Budget(epsilon, 0.02), horizon=5000, theta_bound=S, rng=rng
        ),
        "probit", 3, 20, S, 5000, seeds=seeds,
    )  # fmt: skip


def test_regret_on_the_probit_workload():
    assert probit_regret(4.0, 2.5, seeds=1) <= 60


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "most"), [(1.0, 90), (4.0, 45)])
@pytest.mark.parametrize("S", [2.0, 2.5, 3.0])
def test_regret_on_the_probit_workload_in_full(epsilon, most, S):
    assert probit_regret(epsilon, S, seeds=10) <= most


@pytest.mark.slow
def test_regret_with_a_fixed_set_of_arms_and_linear_rewards():
    """d = 5, K = 100, T = 20,000, ε = 1, δ = 0.1; the authors' code of shuffle-private LinUCB has 1757."""
    results = simulate(
        {
            "policy": lambda rng: ShuffleOnePassGLM(
                5, "linear", budget=Budget(1.0, 0.1), horizon=20_000, theta_bound=1.0, reward_range=(0, 1), rng=rng
            )
        },
        LinearBernoulli(),
        rounds=20_000,
        seeds=5,
        progress=False,
    )
    assert results.table()[0]["regret"] <= 1100


@pytest.mark.parametrize("kind", [ShuffleOnePassGLM, OnePassPrivateGLM])
def test_a_model_that_holds_is_no_misfit_where_chords_are_steeper_than_records(kind):
    """At e = 2.9 above a base rate of 0.04 the mean is 0.43, and w is a quarter of the chord's slope.

    A gradient m − Mθ would be taken for 0.30·B in every round; the right one leaves a quarter of B, 240 for the 1000
    rounds of the batch, by fifteen of its standard deviations of 16 or with probability below 1e-50.
    """
    policy = kind(
        1,
        budget=Budget(8.0, 1e-3),
        horizon=1200,
        first_batch=1000,
        base_rate=0.04,
        prior=([2.9], 1e6),
        rng=np.random.default_rng(0),
    )
    rng, mean = np.random.default_rng(1), float(policy.link.mean(2.9))
    for _ in range(1100):
        policy.update(policy.select([[1.0]]), float(rng.random() < mean))
    assert policy.releases == 1
    assert policy.public.misfit == 0.0

"""The published parameters: each policy beside a plain transcription of its paper's pseudo-code, which shares nothing
with it. Same arms, same regret, same state, to 1e-9.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq

from dpbandits import Policy
from dpbandits.policies import GLBOMD, HeavyOFUL, HvtUCB


def nearest_in_ball(point, H, S):
    """argmin over ‖θ‖ ≤ S of ‖θ − point‖_H, by bisection for the multiplier of the constraint."""
    if np.linalg.norm(point) <= S:
        return point

    def theta(multiplier):
        return np.linalg.solve(H + multiplier * np.eye(len(point)), H @ point)

    return theta(brentq(lambda m: np.linalg.norm(theta(m)) - S, 0.0, 1e9, xtol=1e-15, rtol=1e-15, maxiter=500))


def world(seed, T, K, d, S):
    rng = np.random.default_rng(seed)
    arms = rng.standard_normal((T, K, d))
    arms /= np.linalg.norm(arms, axis=2, keepdims=True) * (1 + 1e-12)
    arms *= rng.uniform(0.2, 1.0, (T, K, 1))
    theta = rng.standard_normal(d)
    return rng, arms, S * theta / np.linalg.norm(theta)


class GLBOMDAsPrinted:
    """Zhang et al. (2025), Algorithm 1, with η = 1 + RS, β_t(δ) of (5), and λ = d of Appendix F.1; g(τ) = 1."""

    def __init__(self, mu, slope, R, C, S, d, delta):
        self.mu, self.slope, self.R, self.C, self.S, self.d, self.delta = mu, slope, R, C, S, d, delta
        self.lam, self.eta = float(d), 1.0 + R * S
        self.theta, self.H, self.t = np.zeros(d), d * np.eye(d), 1

    def select(self, X):
        beta = math.sqrt(
            4 * self.lam * self.S**2
            + 2 * self.eta * math.log(1 / self.delta)
            + 6 * self.d * self.eta**2 * math.log(2 + 2 * self.C * self.t / self.lam)
        )
        return int(np.argmax([x @ self.theta + beta * math.sqrt(x @ np.linalg.solve(self.H, x)) for x in X]))

    def update(self, x, r):
        z = x @ self.theta
        gradient = (self.mu(z) - r) * x
        tilde = self.H + self.eta * self.slope(z) * np.outer(x, x)
        zeta = self.theta - self.eta * np.linalg.solve(tilde, gradient)
        self.theta = nearest_in_ball(zeta, tilde, self.S)
        self.H = self.H + self.slope(x @ self.theta) * np.outer(x, x)
        self.t += 1


def sigmoid(z):
    return 1 / (1 + math.exp(-z))


LINKS = {
    "logistic": (sigmoid, lambda z: sigmoid(z) * (1 - sigmoid(z)), 0.25),
    "poisson": (math.exp, math.exp, math.exp(1.5)),
}


@pytest.mark.parametrize("link", LINKS)
def test_glb_omd_is_the_printed_algorithm(link):
    T, K, d, S = 250, 6, 3, 1.5
    mu, slope, C = LINKS[link]
    rng, arms, theta = world(0, T, K, d, S)
    policy = GLBOMD(d, link, theta_bound=S, parameters="published", failure_probability=0.05)
    printed = GLBOMDAsPrinted(mu, slope, 1.0, C, S, d, 0.05)
    regrets = np.zeros(2)
    at_the_border = 0
    for X in arms:
        decision, index = policy.select(X), printed.select(X)
        means = np.array([mu(x @ theta) for x in X])
        regrets += means.max() - means[[decision.index, index]]
        reward = float(rng.random() < means[index]) if link == "logistic" else float(rng.poisson(means[index]))
        policy.update(decision, reward)
        printed.update(X[index], reward)
        np.testing.assert_allclose(policy.theta, printed.theta, rtol=0, atol=1e-9)
        np.testing.assert_allclose(policy.V.matrix, printed.H, rtol=1e-9)
        at_the_border += np.linalg.norm(printed.theta) > S * (1 - 1e-9)
    assert regrets[0] == pytest.approx(regrets[1], abs=1e-9)
    assert at_the_border > 10, "the projection is not tried"


class HvtUCBAsPrinted:
    """Wang et al. (2025), Algorithm 1, with Lemma 1 and Theorem 1: α = 4, λ = d, σ_min = 1/√T, δ = 1/(8T), L = 1."""

    def __init__(self, d, T, S, eps):
        self.d, self.T, self.S, self.eps = d, T, S, eps
        self.lam, self.alpha, self.sigma_min, self.delta = float(d), 4.0, 1 / math.sqrt(T), 1 / (8 * T)
        self.kappa = d * math.log(1 + T / (self.sigma_min**2 * self.lam * self.alpha * d))
        doubt = math.log(2 * T**2 / self.delta)
        self.tau_0 = (
            math.sqrt(2 * self.kappa) * math.log(3 * T) ** ((1 - eps) / (2 * (1 + eps))) / doubt ** (1 / (1 + eps))
        )
        self.theta, self.V, self.t = np.zeros(d), self.lam * np.eye(d), 1

    def growth(self, t):
        return t ** ((1 - self.eps) / (2 * (1 + self.eps)))

    def beta(self, t):
        doubt = math.log(2 * self.T**2 / self.delta)
        return 107 * doubt * self.tau_0 * self.growth(t) + math.sqrt(self.lam * (2 + 4 * self.S**2))

    def select(self, X):
        beta = self.beta(self.t - 1)
        return int(np.argmax([x @ self.theta + beta * math.sqrt(x @ np.linalg.solve(self.V, x)) for x in X]))

    def update(self, x, r, nu):
        t = self.t
        length = math.sqrt(x @ np.linalg.solve(self.V, x))
        sigma = max(
            nu,
            self.sigma_min,
            math.sqrt(2 * self.beta(t - 1) / (self.tau_0 * math.sqrt(self.alpha) * self.growth(t))) * length,
        )
        w = length / sigma / math.sqrt(self.alpha)
        tau = self.tau_0 * math.sqrt(1 + w**2) / w * self.growth(t)
        self.V = self.V + np.outer(x, x) / (self.alpha * sigma**2)
        z = (r - x @ self.theta) / sigma
        slope = z if abs(z) <= tau else math.copysign(tau, z)  # of the loss (7)
        self.theta = nearest_in_ball(self.theta + np.linalg.solve(self.V, slope * x / sigma), self.V, self.S)
        self.t += 1


def loud_and_quiet(t):
    """ν_t: every third round is loud."""
    return 2.0 if t % 3 == 0 else 0.05


@pytest.mark.parametrize("eps", [0.4, 1.0])
def test_hvt_ucb_is_the_printed_algorithm(eps):
    T, K, d, S = 250, 6, 3, 0.8
    rng, arms, theta = world(1, T, K, d, S)
    policy = HvtUCB(d, horizon=T, theta_bound=S, tail=eps, noise_scale=loud_and_quiet, parameters="published")
    printed = HvtUCBAsPrinted(d, T, S, eps)
    regrets = np.zeros(2)
    for t, X in enumerate(arms, start=1):
        decision, index = policy.select(X), printed.select(X)
        assert policy.width() == pytest.approx(printed.beta(t - 1), rel=1e-12)
        means = X @ theta
        regrets += means.max() - means[[decision.index, index]]
        reward = float(means[index] + loud_and_quiet(t) * rng.standard_t(2.5))
        policy.update(decision, reward)
        printed.update(X[index], reward, loud_and_quiet(t))
        np.testing.assert_allclose(policy.theta, printed.theta, rtol=0, atol=1e-9)
        np.testing.assert_allclose(policy.V.matrix, printed.V, rtol=1e-9)
    assert regrets[0] == pytest.approx(regrets[1], abs=1e-9)
    assert policy.failure_probability == pytest.approx(4 / (8 * T))


@pytest.mark.parametrize("kind", [HvtUCB, HeavyOFUL])
def test_the_scale_of_the_noise_is_that_of_the_decisions_round(kind, tmp_path):
    """However late and out of order rewards come; told as a function or as numbers, and from a state."""
    T, scales = 12, np.linspace(0.3, 4.0, 12)
    rng, arms, _ = world(2, T, 4, 2, 1.0)
    rewards = rng.standard_normal(T)
    told = {"numbers": list(scales), "a function": lambda t: scales[t - 1]}
    found = {}
    for name, noise_scale in told.items():
        policy = kind(2, horizon=T, noise_scale=noise_scale)
        decisions = [policy.select(X) for X in arms]
        for t in reversed(range(T // 2, T)):
            policy.update(decisions[t], float(rewards[t]))
        policy.save(tmp_path / name)
        policy = Policy.load(tmp_path / name)
        for t in range(T // 2):
            policy.update(decisions[t].id, float(rewards[t]))
        found[name] = policy
    np.testing.assert_array_equal(found["numbers"].V.matrix, found["a function"].V.matrix)
    np.testing.assert_array_equal(found["numbers"].theta, found["a function"].theta)
    # the loudest rounds weigh least: the weights of V are the inverse squares of the scales, or less
    most = np.eye(2) + sum(np.outer(d.arm, d.arm) / scale**2 for d, scale in zip(decisions, scales, strict=True))
    assert (np.linalg.eigvalsh(most - found["numbers"].V.matrix) >= -1e-12).all()


@pytest.mark.parametrize(
    ("noise_scale", "message"),
    [
        ([1.0, 2.0], "one number for each of horizon=3 rounds, got an array of shape \\(2,\\)"),
        ([1.0, -2.0, 1.0], "finite and at least 0 in every round, got -2.0 in round 2"),
        (lambda t: math.nan, "finite and at least 0 in every round, got nan in round 1"),
        (0.0, "noise_scale must be positive"),
    ],
)
def test_scales_that_are_none_are_refused(noise_scale, message):
    with pytest.raises(ValueError, match=message):
        HvtUCB(2, horizon=3, noise_scale=noise_scale)


def test_regret_goes_with_the_sum_of_squared_scales():
    """Theorem 1 against Corollary 1: who knows in which rounds the noise is small loses less.

    Nine rounds in ten have ν_t = 0.05, the tenth 2. Measured on seeds 100 to 119: 3.6 ± 0.3 with ν_t, and 19.3 ± 2.5
    with ν = 2 for all rounds, which was worse on every one of them.
    """
    T, K, seeds = 1000, 20, 3
    regrets = {"by round": 0.0, "one for all": 0.0}
    for seed in range(seeds):
        rng = np.random.default_rng([seed, 5])
        arms = rng.uniform(-1, 1, (K, 2)) / math.sqrt(2)
        theta = rng.standard_normal(2)
        means = arms @ (theta / np.linalg.norm(theta))
        scales = np.where(np.arange(T) % 10 == 0, 2.0, 0.05)
        noise = scales * rng.standard_normal(T)
        for name, told in (("by round", scales), ("one for all", 2.0)):
            policy = HvtUCB(2, horizon=T, noise_scale=told)
            for t in range(T):
                decision = policy.select(arms)
                policy.update(decision, float(means[decision.index] + noise[t]))
                regrets[name] += (means.max() - means[decision.index]) / seeds
    print(regrets)
    assert regrets["by round"] < 0.6 * regrets["one for all"]

"""DP-TOFW and DP-POFW as published: plain transcriptions of the printed pseudo-code make the same iterates."""

import math

import numpy as np
import pytest

from accounting.errors import NotPrivateWarning
from dpkit.geometry import LpBall, Simplex
from dpkit.optimize import glm
from dpkit.optimize.stream.published_frank_wolfe import (
    PublishedOnlineFrankWolfe,
    PublishedPolyhedralOnlineFrankWolfe,
)

pytestmark = pytest.mark.filterwarnings("ignore::accounting.errors.NotPrivateWarning")


def algorithm_4(d, q_plus, sigma_plus, rng):
    r = math.sqrt(rng.gamma(d / 2, 2 * sigma_plus))
    eps = rng.gamma(1 / q_plus, 1.0, d) ** (1 / q_plus)
    x = eps * rng.choice([-1.0, 1.0], d)
    return r * x / sum(abs(entry) ** q_plus for entry in x) ** (1 / q_plus)


class Algorithm5:
    """A tree with the leaves 1, …, 2^depth; ``value[level][i]`` is the node over the leaves from i·2^level + 1 on."""

    def __init__(self, n, d, noise):
        self.depth, self.noise = math.ceil(math.log2(n)), noise
        self.value = [[np.zeros(d) for _ in range(2 ** (self.depth - level))] for level in range(self.depth + 1)]

    def add(self, t, z):
        path = [(level, (t - 1) >> level) for level in range(self.depth + 1)]
        first_left = next(level for level, i in path if i % 2 == 0)  # the root counts as a left child
        for level, i in path:  # lines 8 to 11
            self.value[level][i] = self.value[level][i] + z
            if level <= first_left:
                self.value[level][i] = self.value[level][i] + self.noise()
        v = 0.0
        for bit, i in path:  # lines 14 to 22
            if t >> bit & 1:
                v = v + self.value[bit][i if i % 2 == 0 else i - 1]
        return v


def algorithm_1(X, y, *, p, radius, n, eps, delta, bound, c, seed):
    rng, d = np.random.default_rng(seed), X.shape[1]
    q = p / (p - 1) if math.isfinite(p) else 1.0
    K = math.ceil(math.log2(n)) + 1
    if p <= 2:
        kappa, q_plus = min(q - 1, math.e**2 * (math.log(d) - 1)), min(q - 1, math.log(d) - 1)
    else:
        kappa, q_plus = d ** (1 - 2 / p), 2.0
    sigma_plus = math.sqrt(8 * K**2 * kappa * math.log(K / delta) * bound**2 / eps**2)
    shrink = 1.0 if p <= 2 else 1 / d ** (1 / 2 - 1 / p)
    tree = Algorithm5(n, d, lambda: shrink * algorithm_4(d, q_plus, sigma_plus, rng))
    theta = [np.zeros(d), np.zeros(d)]
    for t in range(1, len(X) + 1):
        x, label = X[t - 1], y[t - 1]
        g = (t + 1) * (x @ theta[t] - label) * x - t * (x @ theta[t - 1] - label) * x
        d_t = tree.add(t, g) / (t + 1)
        if math.isinf(p):
            v = -radius * np.sign(d_t)
        else:
            v = -np.sign(d_t) * np.abs(d_t) ** (q - 1)
            v = radius * v / np.sum(np.abs(v) ** p) ** (1 / p)
        theta.append(theta[t] + min(1, c / (t + 1)) * (v - theta[t]))
    return theta[2:]


def data(n, d, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d)) / d
    return X, X @ rng.uniform(-1, 1, d) + rng.normal(0, 0.1, n)


@pytest.mark.parametrize(("p", "d", "n", "c"), [(1.5, 5, 50, 1.0), (2.0, 12, 33, 0.5), (math.inf, 4, 64, 2.0)])
def test_algorithm_1_as_printed_makes_the_same_iterates(p, d, n, c):
    X, y = data(n, d, 1)
    known = {"eps": 20.0, "delta": 1e-3, "bound": 5.0}
    printed = algorithm_1(X, y, p=p, radius=2.0, n=n, c=c, seed=2, **known)
    learner = PublishedOnlineFrankWolfe(
        glm("squared"),
        LpBall(p, d, 2.0),
        horizon=n,
        epsilon=20.0,
        delta=1e-3,
        gradient_bound=5.0,
        step_scale=c,
        rng=np.random.default_rng(2),
    )
    for x, label, expected in zip(X, y, printed, strict=True):
        np.testing.assert_allclose(learner.step(x, label), expected, atol=1e-9)


def algorithm_2(X, y, *, corners, D, n, eps, delta, bound, seed):
    rng, d = np.random.default_rng(seed), X.shape[1]
    theta, d_t = [np.mean(corners, axis=0)] * 2, None
    for t in range(1, len(X) + 1):
        x, label = X[t - 1], y[t - 1]
        now, before = (x @ theta[t] - label) * x, (x @ theta[t - 1] - label) * x
        d_t = now if t == 1 else now + (1 - 1 / (t + 1)) * (d_t - before)
        scale = 4 * D * bound * math.sqrt(math.log(n) * math.log(1 / delta)) / (eps * math.sqrt(t))
        noise = rng.laplace(0, scale, len(corners))
        v = corners[min(range(len(corners)), key=lambda k: d_t @ corners[k] + noise[k])]
        theta.append(theta[t] + (v - theta[t]) / (t + 1))
    assert len(d_t) == d
    return theta[2:]


@pytest.mark.parametrize("eps", [1.0, 500.0])
def test_algorithm_2_as_printed_makes_the_same_iterates(eps):
    n, d = 60, 6
    X, y = data(n, d, 3)
    ball = [1.5 * sign * np.eye(d)[i] for sign in (1, -1) for i in range(d)]
    for constraint, corners, D in ((LpBall(1, d, 1.5), ball, 3.0), (Simplex(d), list(np.eye(d)), 2.0)):
        printed = algorithm_2(X, y, corners=corners, D=D, n=n, eps=eps, delta=1e-3, bound=4.0, seed=4)
        learner = PublishedPolyhedralOnlineFrankWolfe(
            glm("squared"),
            constraint,
            horizon=n,
            epsilon=eps,
            delta=1e-3,
            gradient_bound=4.0,
            rng=np.random.default_rng(4),
        )
        for x, label, expected in zip(X, y, printed, strict=True):
            np.testing.assert_allclose(learner.step(x, label), expected, atol=1e-9)


def test_it_warns_and_states_no_cost():
    known = {"horizon": 4, "epsilon": 1.0, "delta": 1e-3, "gradient_bound": 5.0}
    for kind, constraint in (
        (PublishedOnlineFrankWolfe, LpBall(1.5, 3)),
        (PublishedPolyhedralOnlineFrankWolfe, LpBall(1, 3)),
    ):
        with pytest.warns(NotPrivateWarning, match="not private as claimed"):
            learner = kind(glm("squared"), constraint, **known)
        assert not hasattr(learner, "cost")
        for _ in range(4):
            learner.step(np.ones(3), 1.0)
        with pytest.raises(ValueError, match="at most horizon=4 rows"):
            learner.step(np.ones(3), 1.0)
    with pytest.raises(ValueError, match="at least 3 dimensions"):
        PublishedOnlineFrankWolfe(glm("squared"), LpBall(1.5, 2), **known)
    with pytest.raises(ValueError, match="LpBall with p > 1"):
        PublishedOnlineFrankWolfe(glm("squared"), LpBall(1, 5), **known)

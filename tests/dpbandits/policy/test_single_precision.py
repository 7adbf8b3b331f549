"""Unit vectors of float32 are taken, as such or as float64, and what is kept of them has norm 1 at most."""

import numpy as np
import pytest

from accounting import Budget
from dpbandits.policies import DisjointPrivateGLM, OnePassPrivateGLM, StandingPrivateGLM

BUDGET = Budget(2.0, 1e-6)
DIM = 5


def unit_vectors(n, dtype, seed=0):
    """Rows that are as long as single precision makes them: some are longer than 1."""
    X = np.random.default_rng(seed).normal(size=(n, DIM)).astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    lengths = np.linalg.norm(X.astype(np.float64), axis=1)
    assert 1 + 1e-8 < lengths.max() < 1 + 1e-6
    return X.astype(dtype)


def held(vectors):
    """The longest of them, exactly."""
    return max(sum(x * x for x in map(exact, row)) for row in np.atleast_2d(vectors))


def exact(x):
    from fractions import Fraction

    return Fraction(float(x))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
class TestOfFloat32:
    def test_arms(self, dtype):
        policy = OnePassPrivateGLM(DIM, budget=BUDGET, horizon=1000, rng=np.random.default_rng(0))
        X = unit_vectors(300, dtype)
        decisions = [policy.select(X[start : start + 3]) for start in range(0, 300, 3)]
        decisions += policy.select_many(X.reshape(100, 3, DIM))
        assert max(held(decision.arm) for decision in decisions) <= 1
        for decision in decisions:
            policy.update(decision, 1.0)

    def test_contexts(self, dtype):
        policy = DisjointPrivateGLM(DIM, arms=["a", "b"], budget=BUDGET, horizon=1000, rng=np.random.default_rng(0))
        X = unit_vectors(200, dtype)
        decisions = [policy.select(x) for x in X[:100]] + list(policy.select_many(X[100:]))
        assert max(held(decision.arm) for decision in decisions) <= 1
        assert max(held(policy.offer.checked(x, DIM)) for x in X if np.linalg.norm(x.astype(float)) > 1 + 1e-9) <= 1

    def test_public_arms(self, dtype):
        X = unit_vectors(40, np.float32)
        policy = StandingPrivateGLM(DIM, arms=X, budget=BUDGET, horizon=100, rng=np.random.default_rng(0))
        assert held(policy.select(X.astype(dtype)).arm) <= 1
        assert held(policy.arms) <= 1

    def test_what_is_longer_is_refused_by_its_excess(self, dtype):
        X = 1.00001 * unit_vectors(3, dtype)
        policy = OnePassPrivateGLM(DIM, budget=BUDGET, horizon=100)
        with pytest.raises(ValueError, match=r"arms must have norm at most 1, got norm 1 \+ 1e-05 in row"):
            policy.select(X)
        disjoint = DisjointPrivateGLM(DIM, arms=["a", "b"], budget=BUDGET, horizon=100)
        with pytest.raises(ValueError, match=r"context must have norm at most 1, got norm 1 \+ 1e-05: scale"):
            disjoint.select(X[0])


def test_public_arms_are_found_in_either_precision():
    X = unit_vectors(40, np.float64)
    exactly = X / np.linalg.norm(X, axis=1, keepdims=True)
    policy = StandingPrivateGLM(DIM, arms=exactly, budget=BUDGET, horizon=100, rng=np.random.default_rng(0))
    assert policy.select(exactly.astype(np.float32)[3:4]).arm.tolist() == pytest.approx(exactly[3].tolist())

"""The proximal step: optimal for points inside and outside of the ball."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from regret import ball

from dpkit.models import proximal_point


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    d=st.integers(1, 4),
    eta=st.floats(0.1, 8.0),
    radius=st.floats(0.3, 4.0),
    far=st.floats(0.0, 3.0),
    reward=st.sampled_from([0.0, 0.4, 1.0]),
)
def test_no_point_of_the_ball_is_better(seed, d, eta, radius, far, reward):
    """Optimality: ⟨∇F(v), w − v⟩ ≥ 0 for all w of the ball, so min over w is −radius·‖∇F(v)‖ − ⟨∇F(v), v⟩ ≥ 0."""
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((d, d))
    W = np.eye(d) + 5 * rng.random() * root @ root.T
    theta, x = far * radius * ball(rng, d), ball(rng, d)
    point, z = proximal_point(theta, W, x, np.linalg.solve(W, x), lambda z: 1 / (1 + np.exp(-z)) - reward, eta, radius)
    assert point @ point <= radius**2 * (1 + 1e-9)
    assert abs(z - x @ point) <= 1e-12
    gradient = W @ (point - theta) + eta * (1 / (1 + np.exp(-z)) - reward) * x
    slack = -radius * np.linalg.norm(gradient) - gradient @ point if point @ point > radius**2 * (1 - 1e-6) else None
    if slack is None:
        assert np.linalg.norm(gradient) <= 1e-7 * (1 + np.linalg.norm(W) * np.linalg.norm(theta))
    else:
        assert slack >= -1e-5 * (1 + np.linalg.norm(gradient)) * radius

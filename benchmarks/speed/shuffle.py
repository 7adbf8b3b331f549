"""Shuffled vector sums, against drawing their random bits with numpy, and against permuting them."""

from __future__ import annotations

import numpy as np

from accounting import Budget
from benchmarks.table import Row
from dpkit import randomness
from dpkit.shuffle import Randomizer, VectorSum

USERS, COORDINATES, CHUNK = 10**6, 100, 5_000
BUDGET = Budget(1.0, 1e-6)


def rows() -> list[Row]:
    X = np.random.default_rng(0).standard_normal((CHUNK, COORDINATES))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    sums, secure = VectorSum(COORDINATES, USERS, 1.0, budget=BUDGET), randomness.secure()
    randomizer = Randomizer(sums.protocol, rng=secure)

    def floor() -> None:
        """A word for the noise bits and a uniform number for the rounding, per coordinate and user."""
        secure.random(X.size)
        secure.bytes(8 * X.size)

    users = 200
    many = VectorSum(COORDINATES, users, 1.0, budget=BUDGET, rounds=20)
    x = np.full(COORDINATES, 0.05)
    bits = np.zeros(users * many.messages_per_user, dtype=np.uint8)
    rng = np.random.default_rng(0)
    return [
        Row("counts of a chunk of users, per coordinate", lambda: randomizer.tally(X), floor, "its bits", X.size),
        Row(
            "a user's message of 100 coordinates",
            lambda: many.encode(x),
            lambda: rng.permutation(bits[:100_000]),
            "permuting 10⁵ bits",
        ),
        Row(
            "encoding and shuffling it",
            lambda: many.shuffle([many.encode(x) for _ in range(users)]),
            lambda: rng.permutation(bits),
            "permuting its bits",
            users,
            1.0,
        ),
    ]

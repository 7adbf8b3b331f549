"""Rounds of environments, and what every policy accepts of them."""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

import numpy as np

from dpbandits.lab.environments import Round


def play(environment: Any, seed: int, rounds: int) -> list[Round]:
    return list(islice(environment.episode(np.random.default_rng(seed)), rounds))


def check_rounds(environment: Any, again: Any, rounds: int) -> list[Round]:
    """The rounds of a seed are what policies accept, the same in an equal world, and others than those of another."""
    first, same, other = play(environment, 1, rounds), play(again, 1, 2 * rounds), play(environment, 2, rounds)
    low, high = environment.reward_range
    assert -math.inf < low < high < math.inf
    for a, b in zip(first, same, strict=False):
        assert a.arms.shape == (len(a.rewards), environment.dim)
        assert a.means is None or a.means.shape == a.rewards.shape
        assert np.linalg.norm(a.arms, axis=1).max() <= 1 + 1e-9  # the tolerance of every policy
        assert np.array_equal(a.arms, b.arms)
        assert np.array_equal(a.rewards, b.rewards)
        assert (a.person, a.delay) == (b.person, b.delay)
    same = [np.array_equal(a.rewards, b.rewards) for a, b in zip(first, other, strict=True)]
    # rare rewards are all zero in the first rounds
    assert not all(same) or not np.array_equal(first[0].means, other[0].means)
    return first

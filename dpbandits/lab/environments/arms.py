"""The laws by which simulated environments draw arms, and the vectors that they make of rows: all of norm at most 1.

==============  =======================================================================
name            arms
==============  =======================================================================
ball            every round K new ones, uniform in the unit ball
sphere          every round K new ones, uniform on the unit sphere
cube            every round K new ones, uniform in the cube [−1, 1]^d, divided by √d
fixed           one set of K arms for the whole episode, uniform in the ball
fixed_sphere    one set, uniform on the sphere
fixed_cube      one set, uniform in the cube, divided by √d
one_hot         one set: the first K ≤ d vectors of the standard basis
==============  =======================================================================
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import numpy as np

from accounting.arrays import Array
from accounting.checks import choice

__all__ = [
    "INSIDE",
    "ArmLaw",
    "arm_blocks",
    "blocks_of",
    "checked_arm_law",
    "coins",
    "random_parameter",
    "rounds_at_once",
    "is_fixed",
    "with_constant",
    "within",
]

ArmLaw = Literal["ball", "sphere", "cube", "fixed", "fixed_sphere", "fixed_cube", "one_hot"]

# name: the shape in which arms are uniform, and whether they stay
_LAWS = {
    "ball": ("ball", False),
    "sphere": ("sphere", False),
    "cube": ("cube", False),
    "fixed": ("ball", True),
    "fixed_sphere": ("sphere", True),
    "fixed_cube": ("cube", True),
    "one_hot": ("basis", True),
}
# numbers per block in which arms are drawn: large enough for numpy, small enough for the cache
_BLOCK = 2**16
# a hair inside the unit ball, so that rounding leaves no norm above 1
INSIDE = 1 - 1e-12


def checked_arm_law(law: ArmLaw, arms: int, dim: int) -> ArmLaw:
    """The name of a law, by which ``arms`` arms of dimension ``dim`` can be drawn."""
    choice("arm_law", law, *_LAWS)
    if law == "one_hot" and arms > dim:
        raise ValueError(f"arms must be at most dim={dim} for arm_law='one_hot', got arms={arms}")
    return law


def is_fixed(law: ArmLaw) -> bool:
    """Whether the arms are one set for the whole episode."""
    return _LAWS[law][1]


def arm_blocks(law: ArmLaw, rng: np.random.Generator, arms: int, dim: int) -> Iterator[Array]:
    """Blocks of rounds, each of shape (rounds, arms, dim), without end; every block is drawn when it is asked for."""
    shape, fixed = _LAWS[law]
    size = rounds_at_once(arms * dim)
    if fixed:
        block = np.repeat(_draw(shape, rng, 1, arms, dim), size, axis=0)
        while True:
            yield block
    while True:
        yield _draw(shape, rng, size, arms, dim)


def rounds_at_once(numbers: int) -> int:
    """How many rounds of so many numbers are drawn at once."""
    return max(1, _BLOCK // numbers)


def with_constant(z: Array) -> Array:
    """(1, z)/√2, of norm at most 1, for vectors z (along the last axis) of norm at most 1."""
    return np.concatenate([np.ones((*z.shape[:-1], 1)), z], axis=-1) * (INSIDE * math.sqrt(0.5))


def within(rows: Array, bound: float = 1.0) -> Array:
    """Rows divided by ``bound``, or by their length where that is larger: of norm at most 1."""
    with np.errstate(over="ignore"):  # a row too long for floats becomes 0
        length = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(length * (1 + 1e-12), bound))


def blocks_of(x: Array, arms: int) -> Array:
    """For rows x (n, m): K vectors each, which hold x in block k and zeros else, of shape (n, K, K·m)."""
    n, m = x.shape
    blocks = np.zeros((n, arms, arms, m))
    own = np.arange(arms)
    blocks[:, own, own] = x[:, None]
    return blocks.reshape(n, arms, -1)


def coins(rng: np.random.Generator, means: Array) -> Array:
    """Rewards of 0 or 1 for rounds of means (n, K): one number per round, as the arms of a round share their luck."""
    return (rng.random((len(means), 1)) < means).astype(np.float64)


def random_parameter(rng: np.random.Generator, dim: int, norm: float) -> Array:
    """A vector of shape (dim,) of that norm, in a uniform direction."""
    direction = rng.standard_normal(dim)
    return np.asarray(norm * direction / np.linalg.norm(direction))


def _draw(shape: str, rng: np.random.Generator, rounds: int, arms: int, dim: int) -> Array:
    if shape == "basis":
        return np.repeat(INSIDE * np.eye(arms, dim)[None], rounds, axis=0)
    if shape == "cube":
        return rng.uniform(-1.0, 1.0, (rounds, arms, dim)) * (INSIDE / math.sqrt(dim))
    X = rng.standard_normal((rounds, arms, dim))
    radius: float | Array = INSIDE
    if shape == "ball":
        radius = radius * rng.random((rounds, arms, 1)) ** (1 / dim)
    return np.asarray(X * (radius / np.linalg.norm(X, axis=-1, keepdims=True)))

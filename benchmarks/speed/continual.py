"""Continual sums, against the same with noise in floating point, which is not private, and against that noise alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.table import Row
from dpkit import randomness
from dpkit.continual import BinaryTree, BufferedToeplitz, ContinualSum, Toeplitz, Unbounded
from dpkit.continual.coefficients import column_scales, sqrt_coefficients

STEPS = 2**12

MECHANISMS: dict[str, Callable[..., ContinualSum]] = {
    "BufferedToeplitz": lambda **more: BufferedToeplitz(horizon=STEPS, **more),
    "Unbounded": lambda **more: Unbounded(**more),
    "BinaryTree": lambda **more: BinaryTree(horizon=STEPS, **more),
    "BinaryTree, Honaker": lambda **more: BinaryTree(horizon=STEPS, estimator="honaker", **more),
    "Toeplitz": lambda **more: Toeplitz(horizon=STEPS, **more),
}


def in_floating_point(rng: np.random.Generator, rows: np.ndarray[Any, Any]) -> None:
    """BufferedToeplitz with float64 noise on float64 sums (docs/exact-noise.md says what their low bits tell)."""
    steps, d = rows.shape
    c = sqrt_coefficients(steps, 8 + steps.bit_length() // 4)
    buffers, noise, total = np.zeros((c.gaps.size, d)), np.zeros(d), np.zeros(d)
    feedback, rates = c.weights * c.rates, c.rates[:, None]
    scales = column_scales(c, steps).bounds(0, steps)
    for t, row in enumerate(rows):
        if not np.isfinite(np.vdot(row, row)):
            raise ValueError(row)
        w = rng.standard_normal(d)
        w -= feedback @ buffers
        buffers *= rates
        buffers += w
        w *= scales[t]
        noise += w
        total += row
        _ = total + noise


def stream(sums: ContinualSum, rows: np.ndarray[Any, Any]) -> None:
    for row in rows:
        sums.add(row)


def rows() -> list[Row]:
    secure, found = randomness.secure(), list[Row]()
    like: dict[str, Any] = {"sensitivity": 1.0, "noise_multiplier": 1.0, "rng": secure}
    for d in (1, 100):
        inputs = np.random.default_rng(0).normal(size=(STEPS, d))

        def make(name: str, d: int = d) -> ContinualSum:
            return MECHANISMS[name](shape=d, **like)

        for name in MECHANISMS:
            if name != "Toeplitz":
                found.append(
                    Row(
                        f"{name}.add, d = {d}",
                        lambda name=name, make=make, inputs=inputs: stream(make(name), inputs),
                        lambda inputs=inputs: in_floating_point(secure, inputs),
                        "BufferedToeplitz in floats",
                        STEPS,
                        3.0,
                    )
                )
            if d > 1:
                found.append(
                    Row(
                        f"{name}.add_many, d = {d}",
                        lambda name=name, make=make, inputs=inputs: make(name).add_many(inputs),
                        lambda inputs=inputs: secure.standard_normal(inputs.shape),
                        "drawing as many normals",
                        STEPS,
                    )
                )
    d, steps = 100, 256

    def matrices() -> None:
        sums = BufferedToeplitz(horizon=STEPS, shape=(d, d), symmetric=True, **like)
        for _ in range(steps):
            sums.add(np.eye(d))

    def triangles() -> None:
        for _ in range(steps):
            secure.standard_normal(d * (d + 1) // 2)

    return [*found, Row("symmetric matrices, d = 100", matrices, triangles, "drawing as many normals", steps, 5.0)]

"""The noise of the continual mechanisms against t, at the same cost: numbers, and a picture.

    python benchmarks/continual_noise.py [FILE]

How long they take: ``python -m benchmarks continual``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from accounting import gdp
from dpkit.continual import BinaryTree, BufferedToeplitz, ContinualSum, Toeplitz, Unbounded

MECHANISMS: dict[str, Callable[[int], ContinualSum]] = {
    "BufferedToeplitz": lambda horizon: BufferedToeplitz(horizon=horizon, **_ONE),
    "Unbounded": lambda horizon: Unbounded(**_ONE),
    "BinaryTree": lambda horizon: BinaryTree(horizon=horizon, **_ONE),
    "BinaryTree, Honaker": lambda horizon: BinaryTree(horizon=horizon, estimator="honaker", **_ONE),
    "Toeplitz": lambda horizon: Toeplitz(horizon=horizon, **_ONE),
}
_ONE: dict[str, Any] = {"shape": (), "sensitivity": 1.0, "noise_multiplier": 1.0}


def error_curve(name: str, horizon: int) -> np.ndarray[Any, Any]:
    """The noise of each estimate per unit of sensitivity, at rho = 1/2 for the whole stream."""
    sums = MECHANISMS[name](horizon)
    return gdp(sums.cost) * np.array([sums.noise_std(t) for t in range(1, horizon + 1)])


def errors() -> None:
    print("Noise per unit of sensitivity at rho = 1/2: worst, root mean square, last")
    for name in MECHANISMS:
        for horizon in (2**10, 2**14):
            curve = error_curve(name, horizon)
            rms = float(np.sqrt(np.mean(curve**2)))
            print(f"{name:22s} T = {horizon:6,d}  {curve.max():8.4f}  {rms:8.4f}  {curve[-1]:8.4f}")


def plot(path: str, horizon: int = 2**10) -> None:
    """Draw the errors of all mechanisms against t."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.2), layout="constrained")
    axes = figure.subplots()
    steps = np.arange(1, horizon + 1)
    for name, color, width in (
        ("BinaryTree", "#bbbbbb", 0.6),
        ("BinaryTree, Honaker", "#d9a441", 0.6),
        ("Unbounded", "#7a3b9c", 1.6),
        ("Toeplitz", "#2b7bba", 1.6),
        ("BufferedToeplitz", "#c0392b", 2.2),
    ):
        axes.plot(steps, error_curve(name, horizon), label=name, color=color, linewidth=width)
    axes.axhline(2.961, color="black", linewidth=1, linestyle=":", label="lower bound on any factorization's worst")
    axes.set_xscale("log", base=2)
    axes.set_xlabel("t")
    axes.set_ylabel("standard deviation of the noise\nper unit of sensitivity, ρ = ½")
    axes.set_ylim(bottom=0)
    axes.set_title(f"Noise in the t-th of {horizon:,} prefix sums, at the same cost")
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left")
    figure.savefig(path, dpi=95)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        plot(sys.argv[1])
    else:
        errors()

"""Noise of a shuffled sum against the number of users: numeric, paper, central and local, as a table and a picture.

python benchmarks/shuffle_noise.py docs/images/shuffle-noise.png
"""

from __future__ import annotations

import math
import sys

from accounting import Budget, Gaussian, calibrate
from dpkit.shuffle import VectorSum

BUDGET, DIMENSION = Budget(1.0, 1e-6), 10
USERS = [10, 30, 100, 300, 1000, 3000, 10**4, 3 * 10**4, 10**5, 3 * 10**5, 10**6]


def main(path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    gaussian = 2.0 * calibrate(Gaussian, BUDGET)
    curves: dict[str, list[float]] = {
        "local: every user's own Gaussian noise": [gaussian * math.sqrt(n) for n in USERS],
        "shuffle, the paper's constants": [],
        "shuffle, half of the users honest": [],
        "shuffle": [],
        "central: one Gaussian": [gaussian] * len(USERS),
    }
    print(f"{'users':>9}{'noise':>8}{'paper':>9}{'g':>7}{'b':>6}{'bits/user':>11}{'paper':>12}")
    for n in USERS:
        sums, half, paper = (
            VectorSum(DIMENSION, n, 1.0, budget=BUDGET, **options)
            for options in ({}, {"honest": 0.5}, {"analysis": "paper"})
        )
        curves["shuffle"].append(sums.noise_std)
        curves["shuffle, half of the users honest"].append(half.noise_std)
        curves["shuffle, the paper's constants"].append(paper.noise_std)
        g, b = sums.protocol.resolution, sums.protocol.noise_bits
        bits = f"{sums.messages_per_user:11d}{paper.messages_per_user:12.2e}"
        print(f"{n:9d}{sums.noise_std:8.2f}{paper.noise_std:9.0f}{g:7d}{b:6d}{bits}")
    figure, axes = plt.subplots(figsize=(7, 4.2), dpi=110)
    for (name, values), style in zip(curves.items(), ("C1-", "C3-", "C0:", "C0-", "k--"), strict=True):
        axes.loglog(USERS, values, style, label=name)
    axes.set_xlabel("users n")
    axes.set_ylabel("noise of a coordinate of the sum, in units of Δ")
    axes.set_title(f"ε = {BUDGET.epsilon:g}, δ = {BUDGET.delta:g}, D = {DIMENSION}", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Private Frank–Wolfe methods in ℓ₁ side by side: sparse linear regression over the ℓ₁ ball, d features, n rows.

``python benchmarks/sparse_frank_wolfe.py`` prints the mean excess loss relative to that of θ = 0 (0 is perfect, 1 is
useless) over ten data sets, at (ε, 10⁻⁶) for the replacement of one row. Clip norm and step scale are the best of a
small grid on two further data sets, which count as public, in the same way for all.
"""

from __future__ import annotations

import itertools

import numpy as np

from accounting import Budget
from dpkit.geometry import LpBall
from dpkit.optimize import glm, half_sample_frank_wolfe, polyhedral_online_frank_wolfe, variance_reduced_frank_wolfe

METHODS = {
    "polyhedral online": polyhedral_online_frank_wolfe,
    "half-sample": half_sample_frank_wolfe,
    "variance-reduced": variance_reduced_frank_wolfe,
}
GRID = tuple(itertools.product((0.1, 0.3, 1.0), (0.25, 0.5, 1.0, 2.0)))
CELLS = ((2000, 100, 1.0), (2000, 100, 4.0), (10_000, 100, 1.0), (10_000, 100, 4.0), (10_000, 1000, 4.0))
SEEDS, PUBLIC = 10, (1000, 1001)


def excess(name: str, n: int, d: int, epsilon: float, clip: float, scale: float, seed: int) -> float:
    """Of one run."""
    source = np.random.default_rng([seed, n, d])
    X = source.uniform(-1.0, 1.0, size=(n, d))
    truth = np.zeros(d)
    truth[:3] = 0.5, -0.3, 0.2
    y = X @ truth + 0.1 * source.normal(size=n)
    fit = METHODS[name](
        glm("squared", clip=clip),
        X,
        y,
        constraint=LpBall(1, d),
        budget=Budget(epsilon, 1e-6),
        step_scale=scale,
        rng=source,
    )
    # entries of X have variance 1/3
    return float(np.sum((fit.x - truth) ** 2) / np.sum(truth**2))


def main() -> None:
    print("| n | d | ε | " + " | ".join(METHODS) + " |")
    print("|---" * (3 + len(METHODS)) + "|")
    for n, d, epsilon in CELLS:
        shown = []
        for name in METHODS:
            tuned = {point: sum(excess(name, n, d, epsilon, *point, seed) for seed in PUBLIC) for point in GRID}
            best = min(tuned, key=tuned.__getitem__)
            found = [excess(name, n, d, epsilon, *best, seed) for seed in range(SEEDS)]
            shown.append(f"{np.mean(found):.3f} ± {np.std(found, ddof=1) / SEEDS**0.5:.3f}")
        print(f"| {n:,} | {d} | {epsilon:g} | " + " | ".join(shown) + " |", flush=True)


if __name__ == "__main__":
    main()

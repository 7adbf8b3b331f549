"""What a hundred times as many features cost the polyhedral optimizer: the excess risk at d = 10 and at d = 1000.

OPENBLAS_NUM_THREADS=1 python benchmarks/polyhedral_dimension.py
"""

from __future__ import annotations

import numpy as np

from accounting import Budget
from dpkit.geometry import LpBall
from dpkit.optimize import glm, polyhedral_online_frank_wolfe


def main(seeds: int = 5) -> None:
    """The excess risk at d = 10 and d = 1000: rows of ‖x‖_∞ = 1, two relevant features, all parameters by default."""
    for rows, epsilon in ((10_000, 1.0), (4000, 16.0)):
        risks = []
        for d in (10, 1000):
            found = []
            for seed in range(seeds):
                rng = np.random.default_rng([d, seed])
                X, theta = rng.normal(size=(rows, d)), np.zeros(d)
                X /= np.abs(X).max(axis=1, keepdims=True)
                theta[:2] = 0.5, -0.5
                fit = polyhedral_online_frank_wolfe(
                    glm("squared", clip=0.3),
                    X,
                    X @ theta + 0.05 * rng.normal(size=rows),
                    constraint=LpBall(1, d, 2.0),
                    budget=Budget(epsilon, 1 / rows),
                    rng=rng,
                )
                found.append(float(np.mean((X @ (fit.x - theta)) ** 2)))
            risks.append(np.mean(found))
        print(
            f"polyhedral, {rows} rows, ε = {epsilon:g}: excess risk {risks[0]:.3g} at d = 10, {risks[1]:.3g} at "
            f"d = 1000: x {risks[1] / risks[0]:.2f}"
        )


if __name__ == "__main__":
    main()

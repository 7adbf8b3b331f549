"""Speed of the online optimizers and of projections, beside the arithmetic that no implementation can avoid.

    OPENBLAS_NUM_THREADS=1 python benchmarks/optimize_speed.py

Processor time, the best of several. The limit of an online step is two inner products, one update and the noise in
numpy; of a polyhedral one, a Gumbel variable per vertex.
"""

from __future__ import annotations

import math
import time
import tracemalloc
from collections.abc import Callable

import numpy as np

from accounting import Budget
from dpkit.geometry import LpBall
from dpkit.optimize import OnlineFrankWolfe, PolyhedralOnlineFrankWolfe, glm, polyhedral_online_frank_wolfe

REPEATS = 5
BUDGET = Budget(1.0, 1e-6)


def best(job: Callable[[], object], count: int) -> float:
    """The smallest processor time of one of ``count`` steps, in microseconds."""
    found = math.inf
    for _ in range(REPEATS):
        start = time.process_time()
        job()
        found = min(found, 1e6 * (time.process_time() - start) / count)
    return found


def online(d: int, p: float, rows: int = 2000) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, d)) / math.sqrt(d)
    theta, noise = np.zeros(d), np.zeros((12, d))

    def ours() -> None:
        learner = OnlineFrankWolfe(
            glm("squared", clip=0.5), LpBall(p, d, 2.0), horizon=rows, budget=BUDGET, rng=np.random.default_rng(0)
        )
        for x in X:
            learner.step(x, x[0])

    def limit() -> None:
        mixing = np.full((11, 12), 0.1)
        for x in X:
            rng.standard_normal(out=noise[0])
            (mixing @ noise)[0] + (x @ theta) * x + (x @ theta) * theta

    mine, least = best(ours, rows), best(limit, rows)
    print(f"online Frank-Wolfe, d = {d}, p = {p}: {1e6 / mine:,.0f} rows/s, {mine / least:.1f} x the limit")


def polyhedral(d: int, rows: int = 200) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(rows, d))

    def ours() -> None:
        learner = PolyhedralOnlineFrankWolfe(
            glm("squared", clip=0.5), LpBall(1, d), horizon=rows, budget=BUDGET, rng=np.random.default_rng(0)
        )
        for x in X:
            learner.step(x, x[0])

    def limit() -> None:
        scores = np.zeros(2 * d)
        for _ in range(rows):
            np.argmin(scores + rng.gumbel(size=2 * d))

    mine, least = best(ours, rows), best(limit, rows)
    print(
        f"polyhedral, d = {d}, {2 * d} vertices: {1e6 / mine:,.0f} steps/s, {mine / least:.1f} x the Gumbel variables"
    )


def memory(d: int = 100) -> None:
    # the first stream of a process also loads scipy
    OnlineFrankWolfe(glm("squared", clip=0.5), LpBall(2, d), horizon=10, budget=BUDGET)
    for rows in (2**10, 2**20):
        tracemalloc.start()
        learner = OnlineFrankWolfe(glm("squared", clip=0.5), LpBall(2, d), horizon=rows, budget=BUDGET)
        for _ in range(20):
            learner.step(np.ones(d), 0.0)
        print(f"online Frank-Wolfe, horizon {rows}: {tracemalloc.get_traced_memory()[0] / 1e3:,.0f} kB")
        tracemalloc.stop()


def projections(d: int = 100) -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(50, d)) * 3
    for p in (1.0, 1.5, 2.0, 3.0, math.inf):
        ball = LpBall(p, d)
        print(
            f"projection on LpBall({p}, {d}): {best(lambda ball=ball: [ball.project(x) for x in points], 50):,.0f} us"
        )


def dimension() -> None:
    risks = []
    for d in (10, 1000):
        found = []
        for seed in range(2):
            rng = np.random.default_rng(seed)
            X, theta = rng.uniform(-1, 1, size=(8000, d)), np.zeros(d)
            theta[:2] = 0.5, -0.5
            fit = polyhedral_online_frank_wolfe(
                glm("squared", clip=0.3),
                X,
                X @ theta,
                constraint=LpBall(1, d),
                budget=Budget(16.0, 1e-6),
                schedule="constant",
                rng=rng,
            )
            found.append(float(np.sum((fit.x - theta) ** 2)) / 3)
        risks.append(np.mean(found))
    ratio = risks[1] / risks[0]
    print(f"polyhedral, 8000 rows, ε = 16: risk {risks[0]:.3g} at d = 10, {risks[1]:.3g} at d = 1000: x {ratio:.2f}")


if __name__ == "__main__":
    for p in (1.5, 2.0, math.inf):
        online(100, p)
    polyhedral(10_000)
    memory()
    projections()
    dimension()

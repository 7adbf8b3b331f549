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


def polyhedral(d: int, hold: float, rows: int = 200) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(rows, d))
    choices: list[int] = []

    def ours() -> None:
        learner = PolyhedralOnlineFrankWolfe(
            glm("squared", clip=0.5), LpBall(1, d), horizon=rows, budget=BUDGET, hold=hold, rng=np.random.default_rng(0)
        )
        choices.append(sum(learner.epsilon(t) > 0 for t in range(1, rows + 1)))
        for x in X:
            learner.step(x, x[0])

    def limit() -> None:
        scores = np.zeros(2 * d)
        for _ in range(choices[-1]):
            np.argmin(scores + rng.gumbel(size=2 * d))

    mine, least = best(ours, rows), best(limit, rows)
    print(
        f"polyhedral, d = {d}, {2 * d} vertices, hold = {hold:g}: {1e6 / mine:,.0f} steps/s, "
        f"{mine / least:.1f} x the Gumbel variables of as many choices"
    )


def memory(d: int = 100) -> None:
    # the first stream of a process also loads scipy, and the source of randomness
    OnlineFrankWolfe(glm("squared", clip=0.5), LpBall(2, d), horizon=10, budget=BUDGET).step(np.ones(d), 0.0)
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


def dimension(seeds: int = 5) -> None:
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
    for p in (1.5, 2.0, math.inf):
        online(100, p)
    polyhedral(10_000, 0.0)
    polyhedral(10_000, 0.1)
    memory()
    projections()
    dimension()

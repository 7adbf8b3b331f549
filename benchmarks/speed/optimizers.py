"""Online optimizers and projections, against the arithmetic that no implementation can avoid."""

from __future__ import annotations

import math

import numpy as np

from accounting import Budget
from benchmarks.table import Row
from dpkit.geometry import LpBall
from dpkit.optimize import OnlineFrankWolfe, PolyhedralOnlineFrankWolfe, glm

BUDGET = Budget(1.0, 1e-6)


def online(p: float, d: int = 100, rows: int = 2000) -> Row:
    X = np.random.default_rng(0).normal(size=(rows, d)) / math.sqrt(d)
    rng, theta, noise, mixing = np.random.default_rng(0), np.zeros(d), np.zeros((12, d)), np.full((11, 12), 0.1)

    def ours() -> None:
        learner = OnlineFrankWolfe(glm("squared", clip=0.5), LpBall(p, d, 2.0), horizon=rows, budget=BUDGET)
        for x in X:
            learner.step(x, x[0])

    def limit() -> None:
        for x in X:
            rng.standard_normal(out=noise[0])
            (mixing @ noise)[0] + (x @ theta) * x + (x @ theta) * theta

    return Row(f"online Frank-Wolfe, d = {d}, p = {p:g}", ours, limit, "inner products and noise", rows)


def polyhedral(d: int = 10_000, rows: int = 100) -> Row:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(rows, d))

    def ours() -> None:
        learner = PolyhedralOnlineFrankWolfe(
            glm("squared", clip=0.5), LpBall(1, d), horizon=rows, budget=BUDGET, hold=0.0
        )
        for x in X:
            learner.step(x, x[0])

    def limit() -> None:
        scores = np.zeros(2 * d)
        for _ in range(rows):
            np.argmin(scores + rng.gumbel(size=2 * d))

    return Row(f"polyhedral, {2 * d} vertices", ours, limit, "a Gumbel variable per vertex", rows)


def projection(p: float, d: int = 100) -> Row:
    points = np.random.default_rng(0).normal(size=(50, d)) * 3
    ball = LpBall(p, d)
    return Row(
        f"projection on the l_{p:g} ball, d = {d}",
        lambda: [ball.project(x) for x in points],
        lambda: [np.sort(np.abs(x)) for x in points],
        "a sort",
        50,
    )


def rows() -> list[Row]:
    projections = [projection(p) for p in (1.0, 1.5, 2.0, 3.0)]
    return [*(online(p) for p in (1.5, 2.0, math.inf)), polyhedral(), *projections]

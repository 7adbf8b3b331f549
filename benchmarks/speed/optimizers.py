"""Private optimizers and estimators, against the arithmetic that no implementation can avoid, and peers."""

from __future__ import annotations

import math
from importlib.util import find_spec

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


def estimator() -> Row:
    from sklearn.linear_model import LogisticRegression

    from dpkit.sklearn import PrivateGLMClassifier

    rng = np.random.default_rng(0)
    X = rng.normal(size=(100_000, 50)) / math.sqrt(50)
    y = (rng.random(100_000) < 1 / (1 + np.exp(-3 * X[:, 0] + X[:, 1]))).astype(int)

    def ours() -> None:
        PrivateGLMClassifier(budget=Budget(1.0, 1e-6), row_norm=1.5, classes=[0, 1]).fit(X, y)

    return Row(
        "PrivateGLMClassifier, 10⁵ × 50", ours, lambda: LogisticRegression().fit(X, y), "scikit-learn's", most=2.3
    )


def training() -> Row:
    """An epoch of DP-SGD on one hidden layer, against Opacus' own optimizer, sampler and noise."""
    import warnings

    import torch
    from opacus import PrivacyEngine

    from dpkit.optimize import dp_sgd

    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.normal(size=(4096, 32))).float()
    y = torch.from_numpy(rng.integers(0, 2, 4096))

    def model() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))

    loss = torch.nn.CrossEntropyLoss(reduction="none")

    def ours() -> None:
        dp_sgd(
            model(),
            X,
            y,
            loss=loss,
            budget=Budget(2.0, 1e-5, adjacency="add_remove"),
            clip=1.0,
            epochs=1,
            batch=256,
            public_rows=4096,
        )

    def theirs() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = model()
            data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, y), batch_size=256)
            engine = PrivacyEngine(secure_mode=False)
            module, steps, loader = engine.make_private_with_epsilon(
                module=module,
                optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
                data_loader=data,
                target_epsilon=2.0,
                target_delta=1e-5,
                epochs=1,
                max_grad_norm=1.0,
            )
            for rows, labels in loader:
                steps.zero_grad()
                torch.nn.functional.cross_entropy(module(rows), labels).backward()
                steps.step()

    return Row("dp_sgd, an epoch of 4096 rows", ours, theirs, "bare Opacus", most=1.1)


def rows() -> list[Row]:
    found = [*(online(p) for p in (1.5, 2.0, math.inf)), polyhedral(), *(projection(p) for p in (1.0, 1.5, 2.0, 3.0))]
    if find_spec("sklearn"):
        found.append(estimator())
    if find_spec("opacus"):
        found.append(training())
    return found

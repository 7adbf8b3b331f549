"""An epoch of ``dp_sgd`` and of ``dp_ftrl`` beside one of bare Opacus, and a fit of the estimators beside scikit-learn.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/training_speed.py

Processor time in one thread. What is compared takes turns, so that a busy machine slows all alike; the median of the
ratios of neighbouring turns is printed. Opacus: ``PrivacyEngine.make_private`` with its Poisson sampling and its own
noise, on the same module, rows, batch and torch optimizer.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from accounting import Budget
from dpkit.optimize import DPFTRL, dp_sgd

TURNS = 7
BUDGET = Budget(4.0, 1e-6, adjacency="add_remove")
FIXED = Budget(4.0, 1e-6, adjacency="zero_out")


def seconds(job: Callable[[], object]) -> float:
    begin = time.process_time()
    job()
    return time.process_time() - begin


def in_turns(name: str, ours: Callable[[], object], peer: Callable[[], object], turns: int = TURNS) -> None:
    """The median ratio of processor times, and both times of the best turn."""
    ours(), peer()  # what is loaded or compiled once
    pairs = [(seconds(ours), seconds(peer)) for _ in range(turns)]
    ratio = statistics.median(a / b for a, b in pairs)
    best, other = min(a for a, _ in pairs), min(b for _, b in pairs)
    print(f"{name}: {best:.3f} s, peer {other:.3f} s, ratio {ratio:.2f}", flush=True)


def table(rows: int, features: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, features)).astype(np.float32)
    return X, (X[:, 0] * X[:, 1] > 0).astype(np.int64)


def training(name: str, module: Any, rows: int, features: int, batch: int, epochs: int) -> None:
    import torch
    from opacus import PrivacyEngine

    X, y = table(rows, features)
    data = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(y))
    loss = torch.nn.functional.cross_entropy

    def opacus() -> None:
        private = torch.nn.Sequential(*(torch.nn.Linear(*shape) if shape else torch.nn.ReLU() for shape in module))
        engine = PrivacyEngine()
        private, optimizer, loader = engine.make_private(
            module=private,
            optimizer=torch.optim.SGD(private.parameters(), lr=0.1),
            data_loader=torch.utils.data.DataLoader(data, batch_size=batch),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
        )
        for _ in range(epochs):
            for x, target in loader:
                optimizer.zero_grad()
                loss(private(x), target).backward()
                optimizer.step()

    def ours() -> None:
        net = torch.nn.Sequential(*(torch.nn.Linear(*shape) if shape else torch.nn.ReLU() for shape in module))
        dp_sgd(net, X, y, loss=loss, clip=1.0, budget=BUDGET, epochs=epochs, batch=batch, public_rows=rows)

    def correlated() -> None:
        net = torch.nn.Sequential(*(torch.nn.Linear(*shape) if shape else torch.nn.ReLU() for shape in module))
        run = DPFTRL(net, X, y, loss=loss, clip=1.0, budget=FIXED, epochs=epochs, batch=batch, factorization="buffered")
        run.advance(run.horizon)

    in_turns(f"dp_sgd, {name}, {epochs} epochs", ours, opacus)
    in_turns(f"dp_ftrl (buffered), {name}, {epochs} epochs", correlated, opacus)


def estimators() -> None:
    from sklearn.linear_model import LogisticRegression

    from dpkit.sklearn import PrivateGLMClassifier

    rng = np.random.default_rng(0)
    X = rng.normal(size=(100_000, 50)) / 7.5
    y = (X @ rng.normal(size=50) + 0.3 * rng.normal(size=len(X)) > 0).astype(int)
    in_turns(
        "PrivateGLMClassifier, 100,000 x 50, beside LogisticRegression",
        lambda: PrivateGLMClassifier(Budget(1.0, 1e-6)).fit(X, y),
        lambda: LogisticRegression().fit(X, y),
    )
    in_turns(
        "the same, beside 200 plain passes",
        lambda: PrivateGLMClassifier(Budget(1.0, 1e-6)).fit(X, y),
        lambda: PrivateGLMClassifier(Budget(1.0, 1e-6), solver="gradient_descent").fit(X, y),
        turns=3,
    )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    estimators()
    training("64-64-10, 1,797 rows, batch 64", [(64, 64), (), (64, 10)], 1797, 64, 64, 5)
    training("20-256-256-2, 20,000 rows, batch 256", [(20, 256), (), (256, 256), (), (256, 2)], 20_000, 20, 256, 1)

"""Private training: networks beside bare Opacus, estimators beside scikit-learn's.

Opacus: ``PrivacyEngine.make_private`` with its Poisson sampling and its own noise, on the same module, rows, batch and
torch optimizer. Ours includes the calibration of the noise.
"""

from __future__ import annotations

import itertools
import warnings
from importlib.util import find_spec
from typing import Any

import numpy as np

from accounting import Budget
from benchmarks.speed import networks
from benchmarks.table import Row

POISSON = Budget(4.0, 1e-6, adjacency="add_remove")
FIXED = Budget(4.0, 1e-6, adjacency="zero_out")


def network(sizes: tuple[int, ...]) -> Any:
    import torch

    layers: list[Any] = []
    for width, after in itertools.pairwise(sizes):
        layers += [torch.nn.Linear(width, after), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def training(sizes: tuple[int, ...], rows: int, batch: int, epochs: int) -> list[Row]:
    import torch
    from opacus import PrivacyEngine

    from dpkit.optimize import DPFTRL, dp_sgd

    X = np.random.default_rng(0).normal(size=(rows, sizes[0])).astype(np.float32)
    y = (X[:, 0] * X[:, 1] > 0).astype(np.int64)
    data = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(y))
    loss = torch.nn.functional.cross_entropy

    def opacus() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            private = network(sizes)
            private, optimizer, loader = PrivacyEngine().make_private(
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
        fixed: dict[str, Any] = {"loss": loss, "clip": 1.0, "epochs": epochs, "batch": batch}
        dp_sgd(network(sizes), X, y, budget=POISSON, public_rows=rows, **fixed)

    def correlated() -> None:
        fixed: dict[str, Any] = {"loss": loss, "clip": 1.0, "epochs": epochs, "batch": batch}
        run = DPFTRL(network(sizes), X, y, budget=FIXED, factorization="buffered", **fixed)
        run.advance(run.horizon)

    name = "-".join(map(str, sizes))
    return [
        Row(f"dp_sgd, {name}, an epoch", ours, opacus, "bare Opacus", epochs, 1.1),
        Row(f"dp_ftrl, {name}, an epoch", correlated, opacus, "bare Opacus", epochs),
    ]


def estimators() -> list[Row]:
    from sklearn.linear_model import LogisticRegression

    from dpkit.sklearn import PrivateGLMClassifier

    rng = np.random.default_rng(0)
    X = rng.normal(size=(100_000, 50)) / 7.5
    y = (X @ rng.normal(size=50) + 0.3 * rng.normal(size=len(X)) > 0).astype(int)

    def ours() -> None:
        PrivateGLMClassifier(Budget(1.0, 1e-6)).fit(X, y)

    return [
        Row("PrivateGLMClassifier, 10⁵ × 50", ours, lambda: LogisticRegression().fit(X, y), "scikit-learn's", most=2.3)
    ]


def rows() -> list[Row]:
    found = estimators() if find_spec("sklearn") else []
    if find_spec("opacus"):
        found += training((64, 64, 10), 1797, 64, 5) + training((20, 256, 256, 2), 5000, 256, 1) + networks.rows()
    return found

"""Steps of DP-SGD for the networks that people train, beside Opacus's two quickest ways and bare torch.

Opacus: ``PrivacyEngine.make_private`` with ``grad_sample_mode="ghost"`` or ``"hooks"``, its Poisson sampling and its
own noise, on the same module, rows and batch. Bare torch: SGD on batches of the same size.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from accounting import Budget
from benchmarks.table import Row

BUDGET = Budget(4.0, 1e-6, adjacency="add_remove")
STEPS = 20


def _own(forward: Callable[[Any, Any], Any], **layers: Any) -> Any:
    """A module of one's own."""
    import torch

    class Own(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            for name, layer in layers.items():
                setattr(self, name, layer)

        def forward(self, x: Any) -> Any:
            return forward(self, x)

    return Own()


def convolutions() -> Any:
    """28 × 28 images, 20,500 parameters."""
    from torch import nn
    from torch.nn.functional import max_pool2d, relu

    return _own(
        lambda self, x: self.c(max_pool2d(relu(self.b(max_pool2d(relu(self.a(x)), 2))), 2).flatten(1)),
        a=nn.Conv2d(1, 16, 3, padding=1),
        b=nn.Conv2d(16, 32, 3, padding=1),
        c=nn.Linear(32 * 49, 10),
    )


def transformer(d: int = 64, heads: int = 4) -> Any:
    """One block over 32 tokens, attention written out, 50,600 parameters."""
    from torch import nn
    from torch.nn.functional import gelu

    def forward(self: Any, x: Any) -> Any:
        n, tokens, _ = x.shape
        parts = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (t.reshape(n, tokens, heads, d // heads).transpose(1, 2) for t in parts)
        weights = (q @ k.transpose(-1, -2) / math.sqrt(d // heads)).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(n, tokens, d))
        x = x + self.down(gelu(self.up(self.norm2(x))))
        return self.head(x.mean(1))

    return _own(
        forward, norm1=nn.LayerNorm(d), norm2=nn.LayerNorm(d), qkv=nn.Linear(d, 3 * d), out=nn.Linear(d, d),
        up=nn.Linear(d, 4 * d), down=nn.Linear(4 * d, d), head=nn.Linear(d, 10),
    )  # fmt: skip


def wrapped(stack: Any) -> Any:
    """The same layers inside a module of one's own."""
    return _own(lambda self, x: self.inner(x), inner=stack)


def private(module: Any, X: Any, y: Any, batch: int) -> Callable[[], object]:
    """A run of ours, its checks and the calibration included (which is remembered)."""
    import torch

    from dpkit.optimize import dp_sgd

    known: dict[str, Any] = {"loss": torch.nn.functional.cross_entropy, "clip": 1.0, "epochs": 1, "batch": batch}
    return lambda: dp_sgd(module, X, y, budget=BUDGET, public_rows=len(X), **known)


def opacus(module: Any, X: Any, y: Any, batch: int, mode: str) -> Callable[[], object]:
    """As many steps of Opacus."""
    import copy

    import torch
    from opacus import PrivacyEngine

    def run() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            net = copy.deepcopy(module)
            made = PrivacyEngine().make_private(
                module=net,
                optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
                criterion=torch.nn.CrossEntropyLoss(),
                data_loader=torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, y), batch_size=batch),
                noise_multiplier=1.0,
                max_grad_norm=1.0,
                grad_sample_mode=mode,
            )
            net, optimizer, loader = made[0], made[1], made[-1]
            loss = made[2] if mode == "ghost" else torch.nn.CrossEntropyLoss()
            for x, target in loader:
                optimizer.zero_grad()
                loss(net(x), target).backward()
                optimizer.step()

    return run


def bare(module: Any, X: Any, y: Any, batch: int) -> Callable[[], object]:
    """As many steps without privacy."""
    import copy

    import torch

    def run() -> None:
        net = copy.deepcopy(module)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        data = torch.utils.data.TensorDataset(X, y)
        for x, target in torch.utils.data.DataLoader(data, batch_size=batch, shuffle=True):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(x), target).backward()
            optimizer.step()

    return run


def rows() -> list[Row]:
    import torch

    from benchmarks.speed.training import network

    def data(batch: int, *shape: int) -> tuple[Any, Any]:
        X = np.random.default_rng(0).normal(size=(STEPS * batch, *shape)).astype(np.float32)
        return torch.from_numpy(X), torch.from_numpy((X.reshape(len(X), -1)[:, 0] > 0).astype(np.int64))

    found = []
    for name, module, batch, shape, peers, most in (
        ("MLP 64-256-256-10", network((64, 256, 256, 10)), 64, (64,), ("ghost",), 1.1),
        ("convolutions", convolutions(), 64, (1, 28, 28), ("hooks", "ghost"), 0.8),
        ("a transformer block", transformer(), 64, (32, 64), ("hooks", "ghost"), 0.8),
    ):
        given = (module, *data(batch, *shape), batch)
        ours = private(*given)
        for mode in peers:
            goal = most if mode == peers[0] else None
            found.append(
                Row(f"dp_sgd, {name}, a step: to {mode}", ours, opacus(*given, mode), f"Opacus, {mode}", STEPS, goal)
            )
        found.append(Row(f"dp_sgd, {name}, a step: to torch", ours, bare(*given), "bare torch", STEPS))
    stack = network((512, 1024, 1024, 1024, 1024, 10))
    X, y = (v[:500] for v in data(100, 512))
    runs = {name: private(m, X, y, 100) for name, m in (("a list", stack), ("its own module", wrapped(stack)))}
    name = "dp_sgd, 3.7 million parameters in"
    return [
        *found,
        Row(f"{name} a module, a step", runs["its own module"], runs["a list"], "the same layers in a list", 5, 1.1),
        Row(f"{name} a list, a step", runs["a list"], opacus(stack, X, y, 100, "ghost"), "Opacus, ghost", 5),
    ]

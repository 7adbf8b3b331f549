"""One network trained by two processes, each of which has half of the rows.

    torchrun --nproc-per-node 2 examples/two_processes.py [folder]        # needs the extra opacus, and torch

Rank 0 draws all noise, charges the ledger, and prints; both ranks get the same network. With a folder the ledger and a
checkpoint are kept in it: stop the script, start it again, and it goes on at no further cost.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from accounting import Budget, Ledger
from dpkit.optimize import dp_sgd

ROWS, BUDGET = 4000, Budget(4.0, 1e-6)


def rows(count: int, seed: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Two properties, and whether their signs agree."""
    X = np.random.default_rng(seed).uniform(-1, 1, (count, 2)).astype(np.float32)
    return X, (X[:, 0] * X[:, 1] > 0).astype(np.int64)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    X, y = rows(ROWS // ranks, [20, rank])  # as if they lay on this rank's host
    torch.manual_seed(0)  # the same start on every rank
    net = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
    kept = {}
    if rank == 0 and len(sys.argv) > 1:
        path = Path(sys.argv[1], "training.ledger")
        ledger = Ledger.open(path) if path.exists() else Ledger.create(path, BUDGET)
        kept = {"ledger": ledger, "checkpoint": path.with_suffix(".state")}
    elif rank == 0:
        kept = {"ledger": Ledger(BUDGET)}
    fit = dp_sgd(
        net, X, y, loss=torch.nn.functional.cross_entropy, clip=1.0, budget=BUDGET, epochs=20, batch=200,
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.03),
        progress=lambda step, steps: print(f"step {step} of {steps}") if step % 100 == 0 else None, **kept,
    )  # fmt: skip
    X, y = rows(2000, [21])  # fresh ones: how well it does on those that it was trained on is private
    right = float((fit.module(torch.from_numpy(X)).argmax(1).numpy() == y).mean())
    same = [None] * ranks
    dist.all_gather_object(same, fit.x.tobytes())
    if rank == 0:
        print(f"{fit.path}: {right:.0%} right, the same network on all ranks: {len(set(same)) == 1}")
        print(f"epsilon = {fit.epsilon:.3f}, {len(kept['ledger'].rows())} rows in the ledger")
    dist.destroy_process_group()

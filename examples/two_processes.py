"""One network trained by two processes, each of which has half of the rows.

    torchrun --nproc-per-node 2 examples/two_processes.py [ledger]        # needs the extra opacus, and torch

Rank 0 makes the ledger (a file that must not be there yet; without a path it is kept in memory), draws all noise, and
prints. Both ranks get the same network.
"""

from __future__ import annotations

import sys

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
    ledger = None
    if rank == 0:
        ledger = Ledger.create(sys.argv[1], BUDGET) if len(sys.argv) > 1 else Ledger(BUDGET)
    fit = dp_sgd(
        net, X, y, loss=torch.nn.functional.cross_entropy, clip=1.0, budget=BUDGET, epochs=20, batch=200, ledger=ledger,
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.03),
        progress=lambda step, steps: print(f"step {step} of {steps}") if step % 100 == 0 else None,
    )  # fmt: skip
    X, y = rows(2000, [21])  # fresh ones: how well it does on those that it was trained on is private
    right = float((fit.module(torch.from_numpy(X)).argmax(1).numpy() == y).mean())
    same = [None] * ranks
    dist.all_gather_object(same, fit.x.tobytes())
    if rank == 0:
        print(f"{fit.path}: {right:.0%} right, the same network on all ranks: {len(set(same)) == 1}")
        print(f"epsilon = {fit.epsilon:.3f}, {len(ledger.rows())} rows in the ledger")
    dist.destroy_process_group()

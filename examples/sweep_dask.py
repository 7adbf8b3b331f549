"""Policies for heavy-tailed rewards over many seeds, on a Dask cluster; a rerun goes on where the last one stopped.

    python -m pip install -e ".[cli,sweep]" && python examples/sweep_dask.py

The cluster here is two processes of this machine. For a real one, give ``Client`` the address of its scheduler; its
workers need this package installed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from dask.distributed import Client

from dpbandits.lab.environments import Linear
from dpbandits.lab.simulation.results import Results
from dpbandits.lab.simulation.simulate import simulate
from dpbandits.policies import CRTM, OFUL, HvtUCB
from dpbandits.policy.protocol import Policy

ROUNDS, SEEDS = 4000, 8
WORLD = Linear(dim=2, arms=50, noise="student_t", df=2.1, arm_law="cube")


def oful(rng: np.random.Generator) -> Policy:
    return OFUL(2, noise_bound=1.0, rng=rng)


def crtm(rng: np.random.Generator) -> Policy:
    return CRTM(2, horizon=ROUNDS, tail=WORLD.noise_tail, noise_scale=WORLD.noise_scale, rng=rng)


def hvt_ucb(rng: np.random.Generator) -> Policy:
    return HvtUCB(2, horizon=ROUNDS, tail=WORLD.noise_tail, noise_scale=WORLD.noise_scale, rng=rng)


def sweep(path: Path, backend: str, rounds: int = ROUNDS, seeds: int = SEEDS) -> Results:
    """All runs, of which those in ``path`` are not played again."""
    policies = {"OFUL": oful, "CRTM": crtm, "Hvt-UCB": hvt_ucb}
    return simulate(policies, WORLD, rounds=rounds, seeds=seeds, backend=backend, resume=path)


def main() -> None:
    with Client(n_workers=2, threads_per_worker=1):
        results = sweep(Path("sweep.jsonl"), "dask")
    print(results)


if __name__ == "__main__":
    main()

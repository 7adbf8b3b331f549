"""What pages of articles cost: regret of the private policy and of the references, in two click models.

python -m benchmarks.slates [rounds [seeds]]
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from accounting import Budget
from dpbandits import simulate
from dpbandits.lab.environments import Slates
from dpbandits.policies import CascadeThompson, CascadeUCB, SlatePrivateGLM

LOOKS = (1.0, 0.6, 0.4, 0.3)
WORLDS = {
    "cascade": Slates(),
    "cascade, fixed": Slates(arm_law="fixed"),
    "positions": Slates(examination=LOOKS),
    "positions, fixed": Slates(examination=LOOKS, arm_law="fixed"),
}


def main(rounds: int = 5000, seeds: int = 10) -> None:
    for name, world in WORLDS.items():
        told: dict[str, Any] = {"k": world.k, "examination": world.examination, "base_rate": world.base_rate}
        makers = {
            "CascadeUCB": partial(CascadeUCB, world.dim, **told),
            "CascadeThompson": partial(CascadeThompson, world.dim, **told),
        }
        for epsilon in (1.0, 4.0, 1000.0):
            makers[f"SlatePrivateGLM, ε = {epsilon:g}"] = partial(
                SlatePrivateGLM, world.dim, budget=Budget(epsilon, 1e-5), horizon=rounds, **told
            )
        policies = {title: lambda rng, make=make: make(rng=rng) for title, make in makers.items()}
        for row in simulate(policies, world, rounds=rounds, seeds=seeds, points=1, progress=False).table():
            print(f"{name} | {row['policy']} | {row['regret']:.0f} ± {row['regret_se']:.0f}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

"""Regret and reward of PersonPrivateGLM where people come back, beside what is asked of it.

    OPENBLAS_NUM_THREADS=1 python benchmarks/people.py                      # the table: some ten minutes
    OPENBLAS_NUM_THREADS=1 python benchmarks/people.py synthetic --seeds 5 --epsilons 1
    OPENBLAS_NUM_THREADS=1 python benchmarks/people.py untuned --seeds 5
    OPENBLAS_NUM_THREADS=1 python benchmarks/people.py speed

``synthetic``: probit, d = 3, K = 20, S = 2, T = 5000, δ = 0.02; regret, at most.
``films``: film recommendations by person, δ = 1e-5, the whole history of each; mean reward, at least.
``logistic``: d = 5, K = 20, S = 3, T = 20,000, 1,000 persons, δ = 1e-5; regret, at most.
``shuffle``: two of the first by ShufflePersonGLM, whose devices add the noise.
``untuned``: jobs for which no constant was chosen, beside OnePassPrivateGLM with one record of each person, the same
with every *round* protected instead, GLB-OMD without privacy, and uniform choices.
``speed``: one release over a million rounds, beside the product XᵀX of as many rows.

Cells are mean ± standard error over seeds, and what is asked in brackets. Everything runs in one process.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from accounting import Budget
from dpbandits import policies, simulate
from dpbandits.lab.environments import GLM, Films, People
from dpbandits.lab.environments.base import Round, Wrapper

# worlds by name: how to make one, δ, and by ε what is asked
Goals = dict[float, float]
World = tuple[Callable[[], Any], float, Goals]


def _probit(persons: int, **returns: Any) -> Callable[[], Any]:
    world = GLM(3, arms=20, link="probit", theta_norm=2.0)
    return partial(People, world, persons=persons, rounds=5000, **returns)


class Bursts(Wrapper):
    """People who come for a while, and never again: ``persons`` take turns for ``length`` rounds, then others."""

    def __init__(self, environment: Any, rounds: int, *, persons: int, length: int) -> None:
        super().__init__(environment, "bursts", rounds)
        self.persons, self.length = persons, length

    def episode(self, rng: np.random.Generator) -> Iterator[Round]:
        for t, now in enumerate(islice(self.environment.episode(rng), self.rounds)):
            yield replace(now, person=self.persons * (t // self.length) + t % self.persons)


class Rare(People):
    """Rewards that are rare, with a guess of how rare they are."""

    def __init__(self) -> None:
        super().__init__(GLM(offset=-2.5), persons=1000, rounds=5000)
        self.base_rate = 0.08


def _bursts(**visits: int) -> Bursts:
    return Bursts(GLM(3, link="probit", theta_norm=2.0), 5000, **visits)


TABLE: dict[str, dict[str, World]] = {
    "synthetic": {
        "500 persons × 10": (_probit(500), 0.02, {1: 48, 4: 30, 8: 26}),
        "1,000 × 5": (_probit(1000), 0.02, {1: 41, 4: 26, 8: 22}),
        "2,500 × 2": (_probit(2500), 0.02, {1: 40, 4: 25, 8: 21}),
        # two readings of "1,000 persons by Zipf's law, at most 100 rounds each": the first comes a hundred times, the
        # last twice; or the first eight do, and 400 come once
        "Zipf, 100 to 2 rounds": (_probit(1000, returns="zipf", exponent=0.5425), 0.02, {1: 38, 4: 23, 8: 21}),
        "Zipf, 100 to 1, exponent 1": (_probit(1000, returns="zipf", most=100), 0.02, {1: 38, 4: 23, 8: 21}),
    },
    "shuffle": {
        "shuffle, 1,000 × 5": (_probit(1000), 0.02, {}),
        "shuffle, Zipf, 100 to 2": (_probit(1000, returns="zipf", exponent=0.5425), 0.02, {}),
    },
    "films": {
        "films, d = 5": (Films, 1e-5, {1: 0.584, 4: 0.600, 8: 0.602}),
        "films, d = 24": (partial(Films, genres=True), 1e-5, {1: 0.555, 4: 0.592, 8: 0.599}),
    },
    "logistic": {
        "logistic, 1,000 × 20": (lambda: People(GLM(5), persons=1000, rounds=20_000), 1e-5, {1: 210, 4: 88}),
    },
    "untuned": {
        "linear, d = 5, 1,000 × 5": (lambda: People(GLM(5, link="linear"), persons=1000, rounds=5000), 0.02, {}),
        "poisson, d = 3, 1,000 × 5": (
            lambda: People(GLM(3, link="poisson", theta_norm=1.0), persons=1000, rounds=5000), 0.02, {},
        ),
        "probit, d = 10, 1,000 × 5": (
            lambda: People(GLM(10, link="probit", theta_norm=2.0), persons=1000, rounds=5000), 0.02, {},
        ),
        "probit, 20 × 250": (_probit(20), 0.02, {}),
        "probit, 4 persons in 40 rounds": (partial(_bursts, persons=4, length=40), 0.02, {}),
        "probit, 20 persons in 100": (partial(_bursts, persons=20, length=100), 0.02, {}),
        "logistic, rates of some 8 %": (Rare, 0.02, {}),
    },
}  # fmt: skip


# unbounded rewards are clipped to the world's range
_CLIPPED = {"on_violation": "clip"}


def _maker(kind: str, dim: int, known: dict[str, Any]) -> Callable[[np.random.Generator], Any]:
    return lambda rng: getattr(policies, kind)(dim, **known, rng=rng)


def table(group: str, seeds: int | None, epsilons: list[float]) -> None:
    for name, (make, delta, goals) in TABLE[group].items():
        world = make()
        count = seeds or {"synthetic": 20, "shuffle": 20, "untuned": 5}.get(group, 10)
        cells = []
        for epsilon in epsilons or (list(goals) or [1.0, 4.0]):
            known = {
                "link": world.link,
                "budget": Budget(epsilon, delta, unit="person"),
                "horizon": world.rounds,
                "theta_bound": world.theta_bound,
                "reward_range": world.reward_range,
                **_CLIPPED,
                "base_rate": getattr(world, "base_rate", None),
            }
            makers = {"": _maker("ShufflePersonGLM" if group == "shuffle" else "PersonPrivateGLM", world.dim, known)}
            if group == "untuned":
                makers["one record: "] = _maker("OnePassPrivateGLM", world.dim, known)
                by_round = known | {"budget": replace(known["budget"], unit="round")}
                makers["rounds: "] = _maker("OnePassPrivateGLM", world.dim, by_round)
                makers["not private: "] = _maker("GLBOMD", world.dim, {k: v for k, v in known.items() if k != "budget"})
                makers["uniform: "] = _maker("Uniform", world.dim, {"reward_range": world.reward_range} | _CLIPPED)
            results = simulate(makers, world, rounds=world.rounds, seeds=count, jobs=1, progress=False)
            for row in results.table():
                rewards = math.isnan(row["regret"])
                mean, error = (row["reward"], row["reward_se"]) if rewards else (row["regret"], row["regret_se"])
                shown = f"{mean:.4f} ± {error:.4f}" if rewards else f"{mean:.1f} ± {error:.1f}"
                goal = f" ({goals[epsilon]:g})" if epsilon in goals else ""
                cells.append(f"{row['policy']}{shown}{goal}")
        print(f"{name:28} " + "   ".join(cells), flush=True)


def speed() -> None:
    """A release of the largest job that is planned for, and what a plain product of its rows takes."""
    n, d = 10**6, 20
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True) * (1 + 1e-12)
    for persons in (1000, 100_000, 300_000, n):
        budget = Budget(1.0, 1e-6, unit="person")
        policy = policies.PersonPrivateGLM(d, budget=budget, horizon=2 * n, rng=np.random.default_rng(1))
        rounds = policy.sums.rounds
        owner = rng.permutation(n) % persons
        rounds._arm, rounds._reward, rounds._came = X, (rng.random(n) < 0.5).astype(float), np.ones(n, dtype=bool)
        rounds._person, rounds.count = owner.astype(np.int64), n
        policy.decisions = n
        start = time.process_time()
        policy.close_batch()
        took = time.process_time() - start
        start = time.process_time()
        np.einsum("ij,ij->j", X, X), X.T @ X
        product = time.process_time() - start
        print(f"{persons:>9,} persons: {took:.2f} s, {took / product:.0f} times XᵀX")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("group", nargs="?", choices=(*TABLE, "speed"), help="by default the first three")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--epsilons", default="", help="comma-separated; by default the group's own")
    arguments = parser.parse_args()
    if arguments.group == "speed":
        speed()
        return
    epsilons = [float(epsilon) for epsilon in arguments.epsilons.split(",") if epsilon]
    for group in [arguments.group] if arguments.group else ("synthetic", "films", "logistic"):
        table(group, arguments.seeds, epsilons)


if __name__ == "__main__":
    main()

"""What simulations are run with in tests: small policies, and what came out of their runs."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from accounting import Budget
from dpbandits.lab.simulation.results import Results
from dpbandits.lab.simulation.simulate import simulate
from dpbandits.policies import EpsilonGreedy, OnePassPrivateGLM, Uniform

quiet = partial(simulate, progress=False)


def uniform(rng: np.random.Generator) -> Uniform:
    return Uniform(3, rng=rng)


def greedy(rng: np.random.Generator) -> EpsilonGreedy:
    return EpsilonGreedy(3, rng=rng)


def private(rng: np.random.Generator, epsilon: float = 1.0) -> OnePassPrivateGLM:
    return OnePassPrivateGLM(3, budget=Budget(epsilon, 1e-5, unit="round"), horizon=300, rng=rng)


def curves(results: Results) -> dict[tuple[str, int], Any]:
    return {(r.policy, r.seed): (r.reward.tolist(), r.regret.tolist(), r.untold, r.privacy) for r in results.runs}

"""The policies that the commands know by name. A new policy is one line in ``POLICIES``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from accounting import Budget
from dpbandits.links import Link
from dpbandits.policy import Policy

__all__ = ["POLICIES", "Job", "factories"]


@dataclass(frozen=True)
class Job:
    """What a policy is told about its task; ``budget`` only if it is private."""

    dim: int
    link: str | Link
    theta_bound: float
    reward_range: tuple[float, float]
    horizon: int
    budget: Budget | None = None


@dataclass(frozen=True)
class _Entry:
    title: str
    private: bool
    # the class in dpbandits.policies, and its arguments besides dim and rng
    algorithm: str
    arguments: Callable[[Job], dict[str, Any]]


def _model(job: Job) -> dict[str, Any]:
    return {"link": job.link, "theta_bound": job.theta_bound}


def _private(job: Job) -> dict[str, Any]:
    known = {"budget": job.budget, "horizon": job.horizon, "reward_range": job.reward_range}
    # a reward without bound counts as the nearer end of the range
    return _model(job) | known | {"on_violation": "clip"}


POLICIES = {
    "uniform": _Entry("uniform", False, "Uniform", lambda job: {}),
    "epsilon-greedy": _Entry("ε-greedy", False, "EpsilonGreedy", _model),
    "glb-omd": _Entry("GLB-OMD", False, "GLBOMD", _model),
    "one-pass-private": _Entry("one-pass private", True, "OnePassPrivateGLM", _private),
}


@dataclass(frozen=True)
class _Factory:
    """Picklable, for worker processes."""

    name: str
    job: Job

    def __call__(self, rng: np.random.Generator) -> Policy:
        from dpbandits import policies

        entry = POLICIES[self.name]
        policy: Policy = getattr(policies, entry.algorithm)(self.job.dim, **entry.arguments(self.job), rng=rng)
        return policy


def factories(
    names: Sequence[str], epsilons: Sequence[float], delta: float, environment: Any, rounds: int
) -> dict[str, Callable[[np.random.Generator], Policy]]:
    """Policies for ``simulate``, under readable names; a private one once per ε.

    Raises
    ------
    ValueError
        For an unknown name or a budget out of range.
    """
    known = (environment.dim, environment.link, environment.theta_bound, environment.reward_range, rounds)
    budgets = [Budget(epsilon, delta, unit="round") for epsilon in epsilons]
    made: dict[str, Callable[[np.random.Generator], Policy]] = {}
    for name in names:
        if name not in POLICIES:
            raise ValueError(f"policy must be one of {', '.join(POLICIES)}, got policy={name!r}")
        title = POLICIES[name].title
        if POLICIES[name].private:
            for budget in budgets:
                made[f"{title}, ε = {budget.epsilon:g}"] = _Factory(name, Job(*known, budget))
        else:
            made[title] = _Factory(name, Job(*known))
    return made

"""The policies that the commands know by name. A new policy is one line in ``POLICIES``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from accounting import Budget
    from accounting.arrays import Array
    from dpbandits.policy.protocol import Policy
    from dpkit.models.links import Link

__all__ = ["POLICIES", "Job", "factories"]


@dataclass(frozen=True)
class Job:
    """What a policy is told about its task; ``budget`` only if it is private.

    The noise has E|η|^{1+ε} ≤ ν^{1+ε} for ε = ``noise_tail`` and ν = ``noise_scale``.
    """

    dim: int
    link: str | Link
    theta_bound: float
    reward_range: tuple[float, float]
    base_rate: float | None
    noise_tail: float
    noise_scale: float
    horizon: int
    budget: Budget | None = None
    # where a context is shown to arms that stand: how long it is, and how many arms
    contexts: tuple[int, int] | None = None


@dataclass(frozen=True)
class _Entry:
    title: str
    private: bool
    # the class in dpbandits.policies, and its arguments besides dim and rng
    algorithm: str
    arguments: Callable[[Job], dict[str, Any]]
    # whether it takes contexts, for arms that stand
    contexts: bool = False
    units: tuple[str, ...] = ("round", "person")


def _model(job: Job) -> dict[str, Any]:
    return {"link": job.link, "theta_bound": job.theta_bound, "base_rate": job.base_rate}


def _planned(job: Job) -> dict[str, Any]:
    return _model(job) | {"horizon": job.horizon}


def _bounded(job: Job) -> dict[str, Any]:
    # a reward without bound counts as the nearer end of the range
    return _model(job) | {"reward_range": job.reward_range, "on_violation": "clip"}


def _linear(job: Job) -> dict[str, Any]:
    return {"theta_bound": job.theta_bound, "noise_bound": job.noise_scale, "base_rate": job.base_rate}


def _posterior(job: Job) -> dict[str, Any]:
    return {"noise_bound": job.noise_scale, "base_rate": job.base_rate}


def _heavy(job: Job) -> dict[str, Any]:
    known = {"theta_bound": job.theta_bound, "horizon": job.horizon, "base_rate": job.base_rate}
    return known | {"tail": job.noise_tail, "noise_scale": job.noise_scale}


def _finite_variance(job: Job) -> dict[str, Any]:
    return {name: value for name, value in _heavy(job).items() if name != "tail"}


def _private(job: Job) -> dict[str, Any]:
    return _bounded(job) | {"budget": job.budget, "horizon": job.horizon}


def _without_link(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name != "link"}


def _anytime(job: Job) -> dict[str, Any]:
    limits = {"reward_range": job.reward_range, "base_rate": job.base_rate, "on_violation": "clip"}
    model = {"link": job.link, "theta_bound": job.theta_bound}
    return limits | {"budget": job.budget, "parameters": model}


def _restarting(job: Job) -> dict[str, Any]:
    return _anytime(job) | {"horizon": job.horizon, "on_change": True}


def _standing(job: Job) -> dict[str, Any]:
    return {"reward_range": job.reward_range, "base_rate": job.base_rate, "on_violation": "clip"}


def _standing_private(job: Job) -> dict[str, Any]:
    return _standing(job) | {"link": job.link, "budget": job.budget, "horizon": job.horizon}


POLICIES = {
    "uniform": _Entry("uniform", False, "Uniform", lambda job: {}),
    "epsilon-greedy": _Entry("ε-greedy", False, "EpsilonGreedy", _model),
    # generalized linear rewards
    "glb-omd": _Entry("GLB-OMD", False, "GLBOMD", _model),
    "glm-ucb": _Entry("GLM-UCB", False, "GLMUCB", _model),
    "gloc": _Entry("GLOC", False, "GLOC", _model),
    "rs-glincb": _Entry("RS-GLinCB", False, "RSGLinCB", _planned),
    "oful-log-r": _Entry("OFULog-r", False, "OFULogR", _model),
    "ecolog": _Entry("ECOLog", False, "ECOLog", _bounded),
    "ada-ofu-ecolog": _Entry("ada-OFU-ECOLog", False, "AdaOFUECOLog", _bounded),
    "oful-mlogb": _Entry("OFUL-MLogB", False, "OFULMLogB", _bounded),
    "ofu-glb": _Entry("OFUGLB", False, "OFUGLB", _model),
    "laplace-thompson": _Entry("Laplace Thompson", False, "LaplaceThompson", _model),
    # linear rewards
    "oful": _Entry("OFUL", False, "OFUL", _linear),
    "linear-thompson": _Entry("linear Thompson", False, "LinearThompson", _posterior),
    # rewards with heavy tails
    "hvt-ucb": _Entry("Hvt-UCB", False, "HvtUCB", _heavy),
    "heavy-oful": _Entry("HEAVY-OFUL", False, "HeavyOFUL", _heavy),
    "crtm": _Entry("CRTM", False, "CRTM", lambda job: _heavy(job) | {"link": job.link}),
    "crmm": _Entry("CRMM", False, "CRMM", lambda job: _heavy(job) | {"link": job.link}),
    "menu": _Entry("MENU", False, "MENU", _heavy),
    "tofu": _Entry("TOFU", False, "TOFU", _heavy),
    "crt": _Entry("CRT", False, "CRT", _heavy),
    "mom": _Entry("MoM", False, "MoM", _heavy),
    "ada-oful": _Entry("AdaOFUL", False, "AdaOFUL", _finite_variance),
    # arms that stand, with a parameter each
    "disjoint-lin-ucb": _Entry("disjoint LinUCB", False, "DisjointLinUCB", _standing, contexts=True),
    "disjoint-thompson": _Entry("disjoint Thompson", False, "DisjointThompson", _standing, contexts=True),
    # private
    "one-pass-private": _Entry("one-pass private", True, "OnePassPrivateGLM", _private),
    "person-private": _Entry("private by person", True, "PersonPrivateGLM", _private, units=("person",)),
    "one-pass-private-anytime": _Entry("one-pass private, doubling", True, "Doubling", _anytime),
    "one-pass-private-restarting": _Entry("one-pass private, restarting", True, "Restarting", _restarting),
    "private-hvt-ucb": _Entry(
        "private Hvt-UCB", True, "PrivateHvtUCB", lambda job: _heavy(job) | {"budget": job.budget}
    ),
    "joint-dp-glm": _Entry("joint DP GLM", True, "JointDPGLM", _private),
    "dp-lin-ucb": _Entry("DP LinUCB", True, "DPLinUCB", lambda job: _without_link(_private(job))),
    "ldp-glm": _Entry("local DP GLM", True, "LDPGLM", _private),
    "shuffle-one-pass": _Entry("shuffle one-pass", True, "ShuffleOnePassGLM", _private),
    "shuffle-person": _Entry("shuffle by person", True, "ShufflePersonGLM", _private, units=("person",)),
    "shuffle-glm": _Entry("shuffle GLM", True, "ShuffleGLM", _private),
    "shuffle-lin-ucb": _Entry("shuffle LinUCB", True, "ShuffleLinUCB", lambda job: _without_link(_private(job))),
    "standing-private": _Entry("standing private", True, "StandingPrivateGLM", _private),
    "disjoint-private": _Entry("disjoint private", True, "DisjointPrivateGLM", _standing_private, contexts=True),
    "disjoint-shuffle": _Entry("disjoint shuffle", True, "DisjointShuffleGLM", _standing_private, contexts=True),
}


@dataclass(frozen=True)
class _Factory:
    """Picklable, for worker processes."""

    name: str
    job: Job

    @property
    def public_arms(self) -> bool:
        """Whether it is told the arms, which stand."""
        from dpbandits import policies

        return bool(getattr(getattr(policies, POLICIES[self.name].algorithm), "public_arms", False))

    def __call__(self, rng: np.random.Generator, arms: Array | None = None) -> Policy:
        from dpbandits import policies

        entry = POLICIES[self.name]
        dim, arguments = self.job.dim, entry.arguments(self.job)
        if arms is not None:
            arguments["arms"] = arms
        if entry.contexts and self.job.contexts is not None:
            dim, arguments["arms"] = self.job.contexts
        policy: Policy = getattr(policies, entry.algorithm)(dim, **arguments, rng=rng)
        return policy


def factories(
    names: Sequence[str],
    epsilons: Sequence[float],
    delta: float,
    environment: Any,
    rounds: int,
    base_rate: float | None = None,
    unit: str = "round",
) -> dict[str, Callable[[np.random.Generator], Policy]]:
    """Policies for ``simulate``, under readable names; a private one once per ε.

    They are told ``base_rate``, or the environment's if it has one. ``unit`` is what the private ones protect, a
    "round" or a "person".

    Raises
    ------
    ValueError
        For an unknown name, a budget out of range, or a policy for arms that stand where none do.
    """
    from accounting import Budget

    low, high = environment.reward_range
    noise = getattr(environment, "noise_tail", 1.0), getattr(environment, "noise_scale", 0.5 * (high - low))
    rate = getattr(environment, "base_rate", None) if base_rate is None else base_rate
    known = (environment.dim, environment.link, environment.theta_bound, (low, high), rate, *noise, rounds)
    if unit not in ("round", "person"):
        raise ValueError(f"unit must be 'round' or 'person', got unit={unit!r}")
    budgets = [Budget(epsilon, delta, unit=unit) for epsilon in epsilons]
    contexts = (environment.context_dim, environment.n_arms) if hasattr(environment, "context_dim") else None
    made: dict[str, Callable[[np.random.Generator], Policy]] = {}
    for name in names:
        if name not in POLICIES:
            raise ValueError(f"policy must be one of {', '.join(POLICIES)}, got policy={name!r}")
        title, units = POLICIES[name].title, POLICIES[name].units
        if POLICIES[name].contexts and contexts is None:
            raise ValueError(
                f"policy must be one that chooses from changing arms in {environment.name}, which shows no contexts to "
                f"arms that stand (a world such as disjoint does, and a log with labels), got policy={name!r}"
            )
        if unit not in units:
            raise ValueError(f"unit must be {' or '.join(map(repr, units))} for policy {name!r}, got unit={unit!r}")
        if POLICIES[name].private:
            # where there is a choice of units
            whose = ", person" if unit == "person" and len(units) > 1 else ""
            for budget in budgets:
                made[f"{title}, ε = {budget.epsilon:g}{whose}"] = _Factory(name, Job(*known, budget, contexts))
        else:
            made[title] = _Factory(name, Job(*known, contexts=contexts))
    return made

"""The policies that the commands know by name. A new policy is one line in ``POLICIES``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from dpbandits.policy.protocol import Policy

__all__ = ["POLICIES", "Known", "factories", "named"]


@dataclass(frozen=True)
class Known:
    """A policy: how it is called, its class in dpbandits.policies, which parameters it is told, whom it can protect."""

    title: str
    algorithm: str
    told: tuple[str, ...] = ()
    units: tuple[str, ...] = ("round", "person")
    # it is told the number of fixed arms alone, and takes no contexts
    names_only: bool = False

    @property
    def private(self) -> bool:
        """Whether it has a budget."""
        return "budget" in self.told

    @property
    def contexts(self) -> bool:
        """Whether it takes contexts, for so many fixed arms."""
        return "arms" in self.told and not self.names_only


_MODEL = ("link", "theta_bound", "base_rate")
# a reward without bound counts as the nearer end of the range
_CLIPPED = ("reward_range", "on_violation", "base_rate")
_BOUNDED = (*_MODEL, "reward_range", "on_violation")
_LINEAR = ("theta_bound", "noise_bound", "base_rate")
_FINITE_VARIANCE = ("theta_bound", "horizon", "base_rate", "noise_scale")
_HEAVY = (*_FINITE_VARIANCE, "tail")
_PRIVATE = (*_BOUNDED, "budget", "horizon")
_PRIVATE_LINEAR = tuple(name for name in _PRIVATE if name != "link")
_ANYTIME = (*_CLIPPED, "budget", "parameters")
_STANDING = (*_CLIPPED, "arms")
_STANDING_PRIVATE = (*_STANDING, "link", "budget", "horizon")
_NAMED = ("reward_range", "on_violation", "arms")
_SLATES = ("k", "examination")
_NAMED_PRIVATE = (*_NAMED, "budget", "horizon")

POLICIES = {
    "uniform": Known("uniform", "Uniform"),
    "epsilon-greedy": Known("ε-greedy", "EpsilonGreedy", _MODEL),
    # generalized linear rewards
    "glb-omd": Known("GLB-OMD", "GLBOMD", _MODEL),
    "glm-ucb": Known("GLM-UCB", "GLMUCB", _MODEL),
    "gloc": Known("GLOC", "GLOC", _MODEL),
    "b-glincb": Known("B-GLinCB", "BGLinCB", (*_MODEL, "horizon")),
    "ol2m": Known("OL2M", "OL2M", _MODEL),
    "rs-glincb": Known("RS-GLinCB", "RSGLinCB", (*_MODEL, "horizon")),
    "oful-log-r": Known("OFULog-r", "OFULogR", _MODEL),
    "ecolog": Known("ECOLog", "ECOLog", _BOUNDED),
    "ada-ofu-ecolog": Known("ada-OFU-ECOLog", "AdaOFUECOLog", _BOUNDED),
    "oful-mlogb": Known("OFUL-MLogB", "OFULMLogB", _BOUNDED),
    "ofu-glb": Known("OFUGLB", "OFUGLB", _MODEL),
    "laplace-thompson": Known("Laplace Thompson", "LaplaceThompson", _MODEL),
    # linear rewards
    "oful": Known("OFUL", "OFUL", _LINEAR),
    "linear-thompson": Known("linear Thompson", "LinearThompson", ("noise_bound", "base_rate")),
    # rewards with heavy tails
    "hvt-ucb": Known("Hvt-UCB", "HvtUCB", _HEAVY),
    "heavy-oful": Known("HEAVY-OFUL", "HeavyOFUL", _HEAVY),
    "crtm": Known("CRTM", "CRTM", (*_HEAVY, "link")),
    "crmm": Known("CRMM", "CRMM", (*_HEAVY, "link")),
    "btc": Known("BTC", "BTC", _HEAVY),
    "bmm": Known("BMM", "BMM", _HEAVY),
    "menu": Known("MENU", "MENU", _HEAVY),
    "tofu": Known("TOFU", "TOFU", _HEAVY),
    "crt": Known("CRT", "CRT", _HEAVY),
    "mom": Known("MoM", "MoM", _HEAVY),
    "ada-oful": Known("AdaOFUL", "AdaOFUL", _FINITE_VARIANCE),
    # k arms in a round
    "cascade-ucb": Known("cascade UCB", "CascadeUCB", (*_CLIPPED, *_SLATES)),
    "cascade-thompson": Known("cascade Thompson", "CascadeThompson", (*_CLIPPED, *_SLATES)),
    # fixed arms, with a parameter each
    "disjoint-lin-ucb": Known("disjoint LinUCB", "DisjointLinUCB", _STANDING),
    "disjoint-thompson": Known("disjoint Thompson", "DisjointThompson", _STANDING),
    # fixed arms, of which nothing is known
    "kl-ucb": Known("KL-UCB", "KLUCB", _NAMED, names_only=True),
    "thompson-arms": Known("Thompson for arms", "ThompsonArms", _NAMED, names_only=True),
    # private
    "one-pass-private": Known("one-pass private", "OnePassPrivateGLM", _PRIVATE),
    "person-private": Known("private by person", "PersonPrivateGLM", _PRIVATE, units=("person",)),
    "one-pass-private-anytime": Known("one-pass private, doubling", "Doubling", _ANYTIME),
    "one-pass-private-restarting": Known(
        "one-pass private, restarting", "Restarting", (*_ANYTIME, "horizon", "on_change")
    ),
    "private-hvt-ucb": Known("private Hvt-UCB", "PrivateHvtUCB", (*_HEAVY, "budget")),
    "slate-private": Known("slates, private", "SlatePrivateGLM", (*_PRIVATE, *_SLATES)),
    "joint-dp-glm": Known("joint DP GLM", "JointDPGLM", _PRIVATE),
    "dp-lin-ucb": Known("DP LinUCB", "DPLinUCB", _PRIVATE_LINEAR),
    "ldp-glm": Known("local DP GLM", "LDPGLM", _PRIVATE),
    "shuffle-one-pass": Known("shuffle one-pass", "ShuffleOnePassGLM", _PRIVATE),
    "shuffle-person": Known("shuffle by person", "ShufflePersonGLM", _PRIVATE, units=("person",)),
    "shuffle-glm": Known("shuffle GLM", "ShuffleGLM", _PRIVATE),
    "shuffle-lin-ucb": Known("shuffle LinUCB", "ShuffleLinUCB", _PRIVATE_LINEAR),
    "private-arms": Known("private arms", "PrivateArms", (*_NAMED_PRIVATE, "base_rate"), names_only=True),
    "shuffle-arms": Known("shuffle arms", "ShuffleArms", (*_NAMED_PRIVATE, "base_rate"), names_only=True),
    "ldp-arms": Known("local DP arms", "LDPArms", (*_NAMED_PRIVATE, "base_rate"), names_only=True),
    "dpse": Known("DP-SE", "DPSE", _NAMED_PRIVATE, names_only=True),
    "adap-ucb": Known("AdaP-UCB", "AdaPUCB", _NAMED_PRIVATE, names_only=True),
    "adap-kl-ucb": Known("AdaP-KL-UCB", "AdaPUCB", (*_NAMED_PRIVATE, "index"), names_only=True),
    "standing-private": Known("standing private", "StandingPrivateGLM", _PRIVATE),
    "disjoint-private": Known("disjoint private", "DisjointPrivateGLM", _STANDING_PRIVATE),
    "disjoint-shuffle": Known("disjoint shuffle", "DisjointShuffleGLM", _STANDING_PRIVATE),
}


def named(asked: list[str] | None, unit: str, environment: Any) -> list[str]:
    """The policies to play."""
    from dpbandits.lab.environments.base import without_features

    if without_features(environment):
        return asked or ["uniform", "thompson-arms", "private-arms"]
    return asked or ["uniform", "glb-omd", "person-private" if unit == "person" else "one-pass-private"]


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
        For an unknown name, a budget out of range, or a policy for fixed arms where none do.
    """
    from accounting import Budget
    from dpbandits import policies
    from dpbandits.lab.simulation.made import Made

    if unit not in ("round", "person"):
        raise ValueError(f"unit must be 'round' or 'person', got unit={unit!r}")
    budgets = [Budget(epsilon, delta, unit=unit) for epsilon in epsilons]
    known = _task(environment, rounds, base_rate)
    made: dict[str, Callable[[np.random.Generator], Policy]] = {}
    for name in names:
        if name not in POLICIES:
            raise ValueError(f"policy must be one of {', '.join(POLICIES)}, got policy={name!r}")
        one = POLICIES[name]
        if one.names_only and "arms" not in known:
            raise ValueError(
                f"policy must be one that chooses from changing arms in {environment.name}, whose arms are not fixed "
                f"(a world such as abn has fixed ones), got policy={name!r}"
            )
        if one.contexts and not hasattr(environment, "context_dim"):
            raise ValueError(
                f"policy must be one that chooses from changing arms in {environment.name}, which shows no contexts to "
                f"fixed arms (a world such as disjoint does, and a log with labels), got policy={name!r}"
            )
        if unit not in one.units:
            raise ValueError(f"unit must be {' or '.join(map(repr, one.units))} for policy {name!r}, got unit={unit!r}")
        kind, dim = getattr(policies, one.algorithm), environment.context_dim if one.contexts else environment.dim
        # where there is a choice of units
        whose = ", person" if unit == "person" and len(one.units) > 1 else ""
        for budget in budgets if one.private else [None]:
            title = one.title if budget is None else f"{one.title}, ε = {budget.epsilon:g}{whose}"
            told = {parameter: (known | {"budget": budget})[parameter] for parameter in one.told}
            made[title] = Made(kind, () if "dim" in kind.passed_on else (dim,), told)
    return made


def _task(environment: Any, rounds: int, base_rate: float | None) -> dict[str, Any]:
    """What policies can be told, by the names of their parameters."""
    low, high = environment.reward_range
    model = {"link": environment.link, "theta_bound": environment.theta_bound}
    # E|η|^{1+ε} ≤ ν^{1+ε} of the noise η, for ε = ``tail`` and ν = ``noise_scale``
    scale = getattr(environment, "noise_scale", 0.5 * (high - low))
    noise = {"tail": getattr(environment, "noise_tail", 1.0), "noise_scale": scale, "noise_bound": scale}
    rate = getattr(environment, "base_rate", None) if base_rate is None else base_rate
    rewards = {"reward_range": (low, high), "on_violation": "clip", "base_rate": rate}
    fixed = {"arms": environment.n_arms} if hasattr(environment, "n_arms") else {}
    # ``parameters`` are those of the policy that Doubling and Restarting begin again and again
    more = {"horizon": rounds, "parameters": model, "on_change": True, "index": "kl"}
    # in a world of single choices, pages of one arm
    pages = {"k": getattr(environment, "k", 1), "examination": getattr(environment, "examination", "cascade")}
    return model | noise | rewards | fixed | pages | more

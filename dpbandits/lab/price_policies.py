"""Which policies a price is computed from: private ones, those without privacy, and how each of them is made."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

import numpy as np

from accounting import Budget
from accounting.arrays import Array
from dpbandits.lab.environments.base import Environment, without_features
from dpbandits.lab.simulation.made import Made
from dpbandits.policy.offers import NOTHING
from dpbandits.policy.private import PrivatePolicy
from dpbandits.policy.protocol import Policy

__all__ = ["FREE", "UNITS", "Priced", "free", "kinds", "private", "uniform"]

# what is played where nothing else is asked for
_PRIVATE = {"round": "OnePassPrivateGLM", "person": "PersonPrivateGLM"}
_WITHOUT_FEATURES = {"round": "PrivateArms", "person": "PrivateArms"}
# a parameter for every arm: block vectors of (1, z), of which a shared parameter would cost much more noise
_WITH_CONTEXTS = {"round": "DisjointPrivateGLM", "person": "DisjointPrivateGLM"}
UNITS = tuple(_PRIVATE)
FREE = "not private"


class Priced(Made):
    """A policy whose warning of too much noise the table takes the place of."""

    def __call__(self, rng: np.random.Generator, *arms: Array) -> Policy:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the noise for ε")
            return super().__call__(rng, *arms)

    def hopeless(self, environment: Environment) -> bool:
        arms = [next(iter(environment.episode(np.random.default_rng(0)))).arms] if self.public_arms else []
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            super().__call__(np.random.default_rng(0), *arms)
        return any(str(one.message).startswith("the noise for ε") for one in said)


def kinds(policies: Any, units: Sequence[str], environment: Environment) -> dict[str, type[Policy]]:
    """The private policies of these units, by default those that are made for such an environment."""
    if not isinstance(policies, Mapping):
        raise TypeError(f"policies must be a mapping from 'round' or 'person' to a policy, got {policies!r}")
    if wrong := [unit for unit in policies if unit not in _PRIVATE]:
        raise ValueError(f"policies must have the keys 'round' or 'person', got {wrong[0]!r}")
    usual, found = _PRIVATE, {}
    if without_features(environment):
        usual = _WITHOUT_FEATURES
    elif _parameter_per_arm(environment):
        usual = _WITH_CONTEXTS
    for unit in units:
        given = policies.get(unit, usual[unit])
        found[unit] = kind = _class(given) if isinstance(given, str) else given
        if not (isinstance(kind, type) and issubclass(kind, PrivatePolicy)):
            raise ValueError(f"policies[{unit!r}] must be a private policy of dpbandits.policies, got {given!r}")
    return found


def free(environment: Any, model: Mapping[str, Any]) -> dict[str, Priced]:
    """Policies without privacy by title, of which the better one counts: which one learns depends on the world.

    ``GLBOMD`` is greedy, so that it is stuck where arms are fixed and has little to go by where each has a parameter of
    its own; the other explores, and knows how large rewards are. Of fixed arms without features it is the only one.
    """
    told = {"reward_range": getattr(environment, "support", environment.reward_range), "on_violation": "clip"}
    if without_features(environment):
        return {FREE: Priced(_class("ThompsonArms"), (environment.n_arms,), told)}
    told["base_rate"] = model["base_rate"]
    if _parameter_per_arm(environment):
        exploring = Priced(_class("DisjointThompson"), (environment.context_dim, environment.n_arms), told)
    else:
        exploring = Priced(_class("LinearThompson"), (environment.dim,), told)
    return {FREE: Priced(_class("GLBOMD"), (environment.dim,), model), f"{FREE}, exploring": exploring}


def _parameter_per_arm(environment: Any) -> bool:
    """Whether arms are block vectors of a context."""
    return bool(environment.dim == getattr(environment, "n_arms", 0) * (getattr(environment, "context_dim", 0) + 1))


def uniform(environment: Environment) -> Priced:
    """Uniform choices."""
    return Priced(_class("Uniform"), (environment.dim,), {})


def private(kind: type[Policy], environment: Any, parameters: Mapping[str, Any], budget: Budget) -> Priced:
    """A private policy, told the dimension of arms; or that of contexts, and how many arms; or only how many arms."""
    # without a link, for a policy that is linear
    dropped = set() if "link" in signature(kind.__init__).parameters else {"link"}
    shape: tuple[int, ...] = (environment.dim,)
    if kind.offer is NOTHING:
        if not hasattr(environment, "n_arms"):
            raise ValueError(
                f"policies must choose from changing arms in {environment.name}, whose arms are not fixed, got "
                f"{kind.__name__}"
            )
        shape, dropped = (environment.n_arms,), dropped | {"theta_bound"}
    elif kind.takes == "context":
        if not hasattr(environment, "context_dim"):
            raise ValueError(
                f"policies must choose from changing arms in {environment.name}, which shows no contexts to "
                f"fixed arms (a world such as disjoint does), got {kind.__name__}"
            )
        # the bound on θ is that of all arms together, not of one
        shape, dropped = (environment.context_dim, environment.n_arms), dropped | {"theta_bound"}
    told = {name: value for name, value in parameters.items() if name not in dropped}
    return Priced(kind, shape, told | {"budget": budget})


def _class(name: str) -> Any:
    return getattr(importlib.import_module("dpbandits.policies"), name, None)

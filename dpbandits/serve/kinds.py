"""Which class of policies a service's file names, and which parameters it takes."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from inspect import Parameter, signature
from typing import Any

from dpbandits.policy.private import PrivatePolicy
from dpbandits.serve.toml import get, only

__all__ = ["policy_of"]

# constructor arguments that are not the file's to say; a decision log would keep raw data, and of the chosen arms only
_OURS = {"self", "rewards", "budget", "ledger", "label", "checkpoint", "rng", "decision_log"}


def policy_of(table: Mapping[str, Any]) -> tuple[type[PrivatePolicy[Any]], dict[str, Any]]:
    """The class, and its arguments."""
    name = get(table, "policy.class", str)
    kind = _class(name)
    allowed = _parameters(kind)
    only("policy", table, allowed | {"class"})
    for one in signature(kind).parameters.values():
        named = one.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        if named and one.default is Parameter.empty and one.name not in _OURS | table.keys():
            raise ValueError(f"policy.{one.name} must be given: {name} has no default for it")
    arguments = {key: tuple(value) if key == "reward_range" else value for key, value in table.items()}
    del arguments["class"]
    return kind, arguments


def _class(name: str) -> type[PrivatePolicy[Any]]:
    """A private policy of ours by its name, or of anybody's as "module:Class"."""
    import dpbandits.policies as policies

    module, _, own = name.rpartition(":")
    try:
        found = getattr(import_module(module) if module else policies, own, None)
    except ImportError as error:
        raise ValueError(f"policy.class must be in a module that imports, got class={name!r}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, PrivatePolicy)):
        private = [one for one in policies.__all__ if issubclass(getattr(policies, one), PrivatePolicy)]
        raise ValueError(
            f"policy.class must be a private policy, 'module:Class' or one of {', '.join(private)}, got class={name!r}"
        )
    return found


def _parameters(kind: type) -> set[str]:
    """What a policy's constructor takes, and those to which it passes further keywords."""
    names: set[str] = set()
    for one in kind.__mro__:
        if "__init__" not in vars(one) or one is object:
            continue
        found = signature(vars(one)["__init__"]).parameters.values()
        names |= {p.name for p in found if p.kind is not Parameter.VAR_KEYWORD}
        if all(p.kind is not Parameter.VAR_KEYWORD for p in found):
            break
    return names - _OURS

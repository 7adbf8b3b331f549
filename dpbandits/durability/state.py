"""A policy's state on disk: what a file holds, and how a policy is made of it again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from accounting import Budget, BudgetExceeded
from dpkit import randomness
from dpkit.models.links import Link
from dpkit.states import files
from dpkit.states.entries import conform, generator, generator_text, plain, short
from dpkit.states.run import newest

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one
    from dpbandits.durability.pending import Pending
    from dpbandits.policy.private import PrivatePolicy
    from dpbandits.policy.protocol import Policy

__all__ = [
    "Loader",
    "charged",
    "config_of",
    "constructor_arguments",
    "gathered",
    "kind_name",
    "keywords",
    "known_kind",
    "load",
    "numbers",
    "open_decision",
    "register",
    "renamed",
    "save",
    "tree_of",
    "with_names",
    "with_newer",
    "without_names",
]

# arguments that a state does not keep: they come with the one who loads it
_OF_THE_LOADER = ("rng", "ledger", "checkpoint", "decision_log")
# fields of public halves that came with the level of rewards. States of before hold the base rate that was in force
_OF_LEVELS = ("level", "levelled", "deviations", "before")
# every policy there is, by module and name: so that ``load`` finds those of users, too
_kinds: dict[str, type[Policy]] = {}


def register(kind: type[Policy]) -> None:
    """Let states of this class be loaded."""
    _kinds[kind_name(kind)] = kind


def kind_name(cls: type) -> str:
    """What a state calls a policy's class: module and name, or for ours the module that exports them all."""
    module = "dpbandits.policies" if cls.__module__.startswith("dpbandits.") else cls.__module__
    return f"{module}:{cls.__qualname__}"


def known_kind(name: str) -> type[Policy] | None:
    """The class of a :func:`kind_name`: one of ours, loaded when it is first needed, or any that is imported."""
    from dpbandits import policies

    module, _, own = name.rpartition(":")
    if module.partition(".")[0] == "dpbandits" and own in policies.__all__:
        found: type[Policy] = getattr(policies, own)
        return found
    return _kinds.get(name)


# ------------------------------------------------------------------------------------------------- what a file holds


@lru_cache(maxsize=256)
def constructor_arguments(policy: type) -> tuple[str, ...]:
    """What a constructor takes, by itself and by what it passes on; kept, for every checkpoint asks for it."""
    names: list[str] = []
    for kind in policy.__mro__:
        if "__init__" not in vars(kind):
            continue
        found = signature(vars(kind)["__init__"]).parameters.values()
        names += [p.name for p in found if p.kind not in (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL)]
        if all(p.kind is not Parameter.VAR_KEYWORD or p.name == "unknown" for p in found):
            break  # further arguments are not passed on, or refused, as Policy does with what it calls unknown
    return tuple(dict.fromkeys(names))


def keywords(policy: type[Policy]) -> list[str]:
    """What may be told to a constructor by name."""
    return [name for name in constructor_arguments(policy) if name not in ("self", "rewards", *policy.passed_on)]


def config_of(policy: Policy) -> dict[str, Any]:
    """The constructor's arguments as plain values, read from the attributes of the same names (or ``kept_as``)."""
    # a class says by ``kept_as`` what is new in it
    kept_as = {name: one for kind in type(policy).__mro__[::-1] for name, one in vars(kind).get("kept_as", {}).items()}
    names = {name: kept_as.get(name, name) for name in keywords(type(policy)) if name not in _OF_THE_LOADER}
    return {name: _plain(getattr(policy, attribute)) for name, attribute in names.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Link):
        return value.name
    if isinstance(value, Budget):
        return asdict(value)
    return {name: _plain(one) for name, one in value.items()} if isinstance(value, Mapping) else value


def tree_of(policy: Policy) -> dict[str, Any]:
    """Everything that a file holds, but for the open decisions."""
    return {
        "policy": kind_name(type(policy)),
        "config": config_of(policy),
        "learned": policy.kept(),
        "decisions": policy.decisions,
        "id": policy.waiting.run,
        "generator": generator_text(policy.rng),
        **policy.books(),
    }


def save(policy: Policy, path: str | Path) -> None:
    """Write the whole state to a file that only its owner can read; see :meth:`dpbandits.Policy.save`."""
    with policy.lock:
        if policy.decision_log is not None:
            policy.decision_log.flush()
        run = {} if policy.run is None else {"run": policy.run.state()}
        tree = {name: value for name, value in tree_of(policy).items() if name != "journal"}
        files.write(path, {**tree, "open": policy.waiting.packed(policy.arm_size, policy.notes), **run})


# ------------------------------------------------------------------------------------------ how it is made of it again


def renamed(saved: Any, names: Iterable[str]) -> Any:
    """``saved`` with the keys ``names``, of which states of older versions had some with an underscore before them."""
    if not isinstance(saved, Mapping):
        return saved
    older = {f"_{name}": name for name in names if name not in saved}
    return {older.get(name, name): value for name, value in saved.items()}


def gathered(saved: Any, names: Sequence[str]) -> Any:
    """``saved``, of which older versions had what ``sums`` keep, under these ``names``, beside the public half."""
    found = renamed(saved, names)
    if not isinstance(found, Mapping) or names[1] not in found:
        return found
    return {name: one for name, one in found.items() if name not in names} | {"sums": {n: found[n] for n in names}}


def with_names(policy: Policy, learned: dict[str, Any]) -> dict[str, Any]:
    """What is kept, with the arms where they come and go."""
    return learned if policy.catalogue is None else {"arms": policy.catalogue.kept(), "learned": learned}


def without_names(policy: Policy, saved: Any) -> Any:
    """The inverse of :func:`with_names`; the policy has room for the arms from now on."""
    if policy.catalogue is None:
        return saved
    before, learned = len(policy.catalogue), policy.catalogue.resume_with(saved, policy.dim)
    for _ in range(before, len(policy.catalogue)):
        policy.grow()
    return learned


def with_newer(policy: PrivatePolicy[Any], saved: Any) -> Any:
    """What was saved, with the fields of the public half that an earlier version did not keep, as at the start."""
    if not (isinstance(saved, Mapping) and isinstance(saved.get("public"), Mapping)):
        return saved
    start = plain(policy.public)
    learns = policy.stated_base_rate is None and not start.get("levelled", False)
    names = policy.newer if learns else policy.newer + _OF_LEVELS
    return {**saved, "public": {name: start[name] for name in names if name in start} | dict(saved["public"])}


def open_decision(policy: Policy, pending: Pending) -> Pending:
    """An open decision of this policy that was read from a file, if it could be one."""
    arm = pending.arm
    # what came in was added up in another order, perhaps: two orders of d terms differ by less than d·2⁻⁵² of them
    longest = 1.0 + policy.dim * 2.0**-52
    dropped = policy.drops_arms and not len(arm)
    if not dropped and not (len(arm) == policy.dim and float(policy.offer.length(arm)) <= longest):  # also for NaN
        raise ValueError(f"an open arm must be finite, of {policy.dim} entries and length at most 1, got others")
    if not 0 <= pending.index < (policy.count(arm) if policy.takes == "context" else math.inf):
        raise ValueError(f"an open decision's index must be that of an arm, got index={pending.index}")
    if len(pending.note) != policy.notes:
        raise ValueError(f"an open decision's note must have length {policy.notes}, got {short(pending.note)}")
    arm.setflags(write=False)
    return pending


def charged(own: Ledger, ledger: Ledger) -> Ledger:
    """The ledger that a policy is loaded with, if it holds every cost of the policy, which is in its ``own``."""
    for row in own.rows():
        if not ledger.holds(row.release, row.label):
            raise ValueError(f"ledger must hold the cost of {row.label!r}, got one without it: open the run's own")
    return ledger


@dataclass(frozen=True)
class Loader:
    """What whoever loads a state says (see :meth:`dpbandits.Policy.load`), the file's digest, and what holds it."""

    path: Path
    ledger: Ledger | None
    link: Link | None
    unattended: bool
    checkpoint: str | Path | None
    digest: str = ""
    hold: files.Hold | None = None


def load(cls: type[Policy], given: Loader) -> Policy:
    """Continue a policy of this class from a file; see :meth:`dpbandits.Policy.load`."""
    path = given.path
    if not path.is_file():
        what = "a folder is" if path.is_dir() else "nothing is"
        raise FileNotFoundError(
            f"path must be a file that {cls.__name__}.save or a checkpoint wrote, and {what} at {path}"
        )
    tree, digest = files.read(path)
    kind = known_kind(str(tree.get("policy")))
    if kind is None or not issubclass(kind, cls):
        raise ValueError(f"path must hold the state of a {cls.__name__}, got a {_class_name(tree)} in {path}")
    kept_in = None if given.checkpoint is None else Path(given.checkpoint).absolute()
    loader = replace(given, path=path.absolute(), checkpoint=kept_in, digest=digest)
    try:
        with np.errstate(all="ignore"):  # what overflows in a constructor or a check is not finite, and refused
            return _revived(kind, tree, loader)
    except (TypeError, KeyError, AttributeError, IndexError, ArithmeticError, MemoryError, BudgetExceeded) as error:
        raise ValueError(f"path must hold a state that fits together, got {path}: {error!r}") from error


def _revived(kind: type[Policy], tree: dict[str, Any], loader: Loader) -> Policy:
    """The policy of a file's tree."""
    if "journal" not in tree:
        return _continued(kind, tree, loader)
    # a checkpoint: nobody else may touch it from here on
    if loader.checkpoint not in (None, loader.path):
        raise ValueError(
            f"checkpoint must be left out for {loader.path}, which is one and goes on being kept there, got "
            f"{str(loader.checkpoint)!r}"
        )
    loader = replace(loader, checkpoint=None)
    hold = files.hold(loader.path)
    try:
        tree, digest = newest(loader.path, loader.ledger)
        return _continued(kind, tree, replace(loader, digest=digest, hold=hold))
    except BaseException:
        hold.close()
        raise


def _continued(kind: type[Policy], tree: dict[str, Any], loader: Loader) -> Policy:
    config = dict(tree["config"])
    if not kind.elements(config) <= 2 * numbers(tree["learned"]) + 2**12:
        raise ValueError(f"dim must be that of the arrays in the file, got dim={config['dim']}")
    if "budget" in config:
        config["budget"] = Budget(**config["budget"])
    if loader.link is not None:
        config["link"] = loader.link
    text = conform("generator", tree["generator"], "")
    policy = kind(**config, rng=generator(text, None))
    policy.resume(tree["learned"])
    policy.decisions = conform("decisions", tree["decisions"], 0)
    if policy.horizon is not None and policy.decisions > policy.horizon:
        raise ValueError(f"decisions must be at most horizon={policy.horizon}, got decisions={policy.decisions}")
    policy.waiting.run = conform("id", tree["id"], "")
    if randomness.is_simulation(policy.rng):  # construction may have drawn
        policy.rng.bit_generator.state = generator(text, None).bit_generator.state
    policy.resume_books(tree, loader)
    return policy


def numbers(tree: Any) -> int:
    """How many numbers the arrays of a tree hold."""
    if isinstance(tree, Mapping):
        return sum(map(numbers, tree.values()))
    if isinstance(tree, list):
        return sum(map(numbers, tree))
    return tree.size if isinstance(tree, np.ndarray) else 0


def _class_name(tree: Mapping[str, Any]) -> str:
    return str(tree.get("policy")).rpartition(":")[-1][:80]

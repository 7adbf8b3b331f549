"""A policy's state on disk: what a file holds, and how a policy is made of it again."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from accounting import Budget, BudgetExceeded
from dpbandits.durability.decision_log import DecisionLog, log_of
from dpbandits.policy.open_decisions import Waiting
from dpkit import randomness
from dpkit.models.links import Link
from dpkit.states import files
from dpkit.states.entries import conform, generator, generator_text, kept, resume

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one
    from dpbandits.policy.protocol import Policy

__all__ = ["Loadable", "Loader", "kind_name"]


@lru_cache(maxsize=256)
def _arguments(policy: type) -> tuple[str, ...]:
    """What a constructor takes, by itself and by what it passes on; kept, for every checkpoint asks for it."""
    names: list[str] = []
    for kind in policy.__mro__:
        if "__init__" not in vars(kind):
            continue
        found = signature(vars(kind)["__init__"]).parameters.values()
        names += [p.name for p in found if p.kind is not Parameter.VAR_KEYWORD]
        if all(p.kind is not Parameter.VAR_KEYWORD for p in found):
            break  # further arguments are not passed on
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class Loader:
    """What whoever loads a state says; see :meth:`Loadable.load`."""

    path: Path
    ledger: Ledger | None
    link: Link | None
    unattended: bool
    checkpoint: Path | None


class Loadable(Waiting):
    """What saves and loads itself, also where it is defined outside this package."""

    # the attributes that hold what was learned: arrays, numbers, and parts that keep and resume themselves
    _learned: ClassVar[tuple[str, ...]] = ()
    # every policy there is, by module and name: so that ``load`` finds those of users, too
    _kinds: ClassVar[dict[str, type[Policy]]] = {}
    # arguments that a state does not keep: they come with the one who loads it
    _OF_THE_LOADER: ClassVar[tuple[str, ...]] = ("rng", "ledger", "checkpoint", "decision_log")

    rng: np.random.Generator
    horizon: int | None

    def __getstate__(self) -> dict[str, Any]:
        # a copy is used by other threads than the original, and leaves the log to it
        return {name: value for name, value in vars(self).items() if name != "_lock"} | {"decision_log": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lock = threading.RLock()

    def _flush_log(self) -> None:
        if self.decision_log is not None:
            self.decision_log.flush()

    def _config(self) -> dict[str, Any]:
        """The constructor's arguments as plain values, read from the attributes of the same names."""
        skipped = ("self", "rewards", *self._OF_THE_LOADER)
        config = {name: getattr(self, name) for name in _arguments(type(self)) if name not in skipped}
        if "link" in config:
            config["link"] = config["link"].name
        if "budget" in config:
            config["budget"] = asdict(config["budget"])
        return config

    def _kept(self) -> dict[str, Any]:
        """What the algorithm has learned, as a tree of plain values and arrays."""
        return kept(self, self._learned)

    def _resume(self, saved: Any) -> None:
        """The inverse of :meth:`_kept`, checked."""
        resume(self, self._learned, saved)

    def _tree(self) -> dict[str, Any]:
        """Everything that a file holds, but for the open decisions."""
        return {
            "policy": kind_name(type(self)),
            "config": self._config(),
            "learned": self._kept(),
            "decisions": self.decisions,
            "id": self._id,
            "generator": generator_text(self.rng),
        }

    def save(self, path: str | Path) -> None:
        """Write the whole state to a file that only its owner can read.

        The file holds unreleased sums and open decisions: it is as confidential as the data. It replaces an
        older one atomically. Nothing of a secure generator is written, so noise is never drawn twice.
        """
        with self._lock:
            self._flush_log()
            files.write(path, {**self._tree(), "open": self._packed()})

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        ledger: Ledger | None = None,
        link: Link | None = None,
        unattended: bool = False,
        checkpoint: str | Path | None = None,
        decision_log: str | Path | DecisionLog | None = None,
    ) -> Policy:
        """Continue a policy from a file that ``save`` wrote, or from the checkpoint of a private one.

        Parameters
        ----------
        path : path
            The file. A checkpoint goes on being the checkpoint.
        ledger : Ledger, optional
            The ledger in which a private policy recorded its cost, if it was not its own. The cost is looked up there,
            not spent again, and older states are refused.
        link : Link, optional
            The caller's link, if the policy did not use a named one.
        unattended : bool
            Needed for a private policy without such a ledger: the caller's word that this is the newest state of its
            run and that nobody else continues it.
        checkpoint : path, optional
            Where a private policy that was saved by hand keeps its state from now on.
        decision_log : path or DecisionLog, optional
            The log of decisions that goes on, or a new one. A state does not name it: no file says where to write.

        Raises
        ------
        ValueError
            If the file is damaged, of another format, or of a policy that is not a ``cls``; if ``ledger`` does not
            hold the policy's cost; or if the state must not be continued.
        """
        tree, digest = files.read(path)
        kind = known_kind(str(tree.get("policy")))
        if kind is None or not issubclass(kind, cls):
            raise ValueError(f"path must hold the state of a {cls.__name__}, got a {_class_name(tree)} in {path}")
        kept_in = None if checkpoint is None else Path(checkpoint).absolute()
        loader = Loader(Path(path).absolute(), ledger, link, unattended, kept_in)
        try:
            with np.errstate(all="ignore"):  # what overflows in a constructor or a check is not finite, and refused
                policy = kind._revived(tree, digest, loader)
        except (TypeError, KeyError, AttributeError, IndexError, ArithmeticError, MemoryError, BudgetExceeded) as error:
            raise ValueError(f"path must hold a state that fits together, got {path}: {error!r}") from error
        if decision_log is not None:
            policy.decision_log = log_of(decision_log)
        return policy

    @classmethod
    def _revived(cls, tree: dict[str, Any], digest: str, loader: Loader) -> Self:
        """The policy of a file's tree and digest."""
        policy = cls._built(tree, loader.link)
        policy._open = policy._unpacked(tree["open"])
        return policy

    @classmethod
    def _built(cls, tree: dict[str, Any], link: Link | None) -> Self:
        """The policy of a file's tree, without its open decisions."""
        config = dict(tree["config"])
        if not cls._elements(config) <= 2 * _count(tree["learned"]) + 2**12:
            raise ValueError(f"dim must be that of the arrays in the file, got dim={config['dim']}")
        if "budget" in config:
            config["budget"] = Budget(**config["budget"])
        if link is not None:
            config["link"] = link
        text = conform("generator", tree["generator"], "")
        rng = generator(text, None)
        policy = cls(**config, rng=rng)  # type: ignore[call-arg]  # which every constructor takes
        policy._resume(tree["learned"])
        policy.decisions = conform("decisions", tree["decisions"], 0)
        if policy.horizon is not None and policy.decisions > policy.horizon:
            raise ValueError(f"decisions must be at most horizon={policy.horizon}, got decisions={policy.decisions}")
        policy._id = conform("id", tree["id"], "")
        if randomness.is_simulation(policy.rng):  # construction may have drawn
            policy.rng.bit_generator.state = generator(text, None).bit_generator.state
        return policy

    @classmethod
    def _elements(cls, config: Mapping[str, Any]) -> int:
        """How many numbers a state holds at least, so that a file cannot ask for more memory than its own size."""
        return int(conform("dim", config["dim"], 0)) ** 2


def _count(tree: Any) -> int:
    """How many numbers the arrays of a tree hold."""
    if isinstance(tree, Mapping):
        return sum(map(_count, tree.values()))
    if isinstance(tree, list):
        return sum(map(_count, tree))
    return tree.size if isinstance(tree, np.ndarray) else 0


def _class_name(tree: Mapping[str, Any]) -> str:
    return str(tree.get("policy")).rpartition(":")[-1][:80]


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
    return Loadable._kinds.get(name)

"""What a service is told: one TOML file, read strictly.

    [policy]                    # every parameter of the policy, under its own name
    class = "OnePassPrivateGLM"    # or "module:Class", of your own, or "Experiment"
    dim = 20
    horizon = 100_000

    [budget]
    epsilon = 1.0
    delta = 1e-6
    unit = "round"

    [storage]                   # beside this file, or absolute; database and ledger may be in PostgreSQL
    database = "service.sqlite"
    ledger = "service.ledger"
    checkpoint = "service.checkpoint"
    witness = "/elsewhere/service.witness"   # optional, on another volume: shows that the ledger went back

    [clients.website]           # who may ask: see dpbandits/serve/clients.py
    tokens = ["sha256:…"]       # SHA-256 of each token, as `dpbandits serve --token` prints it
    scopes = ["decide", "reward"]

    [rewards]                   # optional: after so many seconds a missing reward counts as the default
    wait = 3600.0
    default = 0.0

Everything else has a default; see :class:`Config`. An error names the file, the key, its value and what to write.
"""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, get_args

import numpy as np

from accounting import Budget, Ledger, LedgerBehind, LedgerCorrupted
from accounting.ledger.record.entry_types import check_new_scope
from accounting.postgres import is_url, place
from accounting.releases import Adjacency
from dpbandits.durability.state import config_of, constructor_arguments
from dpbandits.experiment.policy import ExperimentPolicy
from dpbandits.policy.offers import NOTHING, ROWS
from dpbandits.policy.private import PrivatePolicy
from dpbandits.policy.protocol import Policy
from dpbandits.policy.slates import SlatePolicy
from dpbandits.serve.clients import Callers, Client, Proxy, clients_of, proxy_of
from dpbandits.serve.database import Mismatch, named
from dpbandits.serve.toml import MISSING, Reader, number, of, one_of, only, read, table, whole
from dpbandits.serve.trial import arguments_of
from dpkit.features.hashed import Hashed

__all__ = [
    "Common",
    "Config",
    "Limits",
    "built",
    "callers_of",
    "common_tables",
    "opened_books",
    "places_of",
    "told_alike",
    "tree_of",
]

# who charges a run's further epochs
_LEARNER = "learner"


@dataclass(frozen=True)
class Limits:
    """Bounds on requests, and on what one worker holds for those who make them.

    Attributes
    ----------
    arms, batch, body, person : int
        Arms of one decision; decisions or rewards of one request; its bytes; letters of an id.
    bodies, connections : int
        Bytes of all bodies that are being read; open connections, beyond which the oldest that only wait are closed.
    seconds : int
        What a request's head may take to arrive, its body too, and an answer to be read.
    """

    arms: int = 1000
    batch: int = 100
    body: int = 4_000_000
    person: int = 200
    bodies: int = 64_000_000
    connections: int = 1000
    seconds: int = 10


@dataclass(frozen=True, kw_only=True)
class Common:
    """What a service of one run and one of many are told alike.

    Attributes
    ----------
    witness : Path, str or None
        A second ledger elsewhere, that every entry goes to (see :meth:`accounting.Ledger.open`).
    expected_head : str or None
        A head that the ledger must hold.
    proxy : Proxy or None
        A proxy that names clients in a header.
    host, port, workers
        Where the service listens, and with how many processes.
    admin : int or None
        The port where the supervisor answers to monitoring (:mod:`dpbandits.serve.admin`).
    log : str
        ``"text"``, or ``"json"`` for one object a line.
    traces : bool
        Whether requests make spans of OpenTelemetry (:class:`dpbandits.serve.metrics.Traces`).
    limits : Limits
    rate : float or None
        How many decisions a minute a client may take, unless it says so itself; None does not limit.
    """

    witness: Path | str | None = None
    expected_head: str | None = None
    proxy: Proxy | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 2
    admin: int | None = None
    log: str = "text"
    traces: bool = False
    limits: Limits = field(default_factory=Limits)
    rate: float | None = None


@dataclass(frozen=True)
class Config(Common):
    """A service, as its file describes it; more of it in :class:`Common`.

    Attributes
    ----------
    kind : type
        The policy's class.
    arguments : dict
        Its parameters, besides budget, ledger, label, checkpoint and generator.
    budget : Budget
    database, ledger : Path or str
        Files, or addresses of PostgreSQL databases.
    checkpoint : Path
    clients : mapping of name to Client
        Who may ask for what.
    label : str
        Names the run in the ledger.
    wait : float or None
        Seconds after which a missing reward counts as ``default``; a later one is refused.
    apprentice : bool
        Serve the choice that the request brings, and learn from it.
    curves : bool
        Keep means of raw rewards for whoever has an owner's token.
    reference : sequence of arrays
        Public arm sets (or contexts) for which the page shows what would be chosen.
    seed : int or None
        A seeded generator makes a simulation.
    features : Hashed or None
        How JSON of the wire of :mod:`dpbandits.serve.personalizer` becomes arms; None serves nothing of it.
    path : Path or None
        The file, of which the clients are read again when it changes.
    scope : str or None
        The part of the ledger's data that the run's people are (see :class:`accounting.Ledger`); None for all.
    shared : Budget or None
        The budget of a ledger that runs of a group share.
    books : Ledger or None
        The ledger, where it is open already.

    Examples
    --------
    >>> from dpbandits.serve import Config
    >>> try:
    ...     Config.read("nowhere.toml")
    ... except FileNotFoundError as error:
    ...     print(error)
    there is no file nowhere.toml
    """

    kind: type[PrivatePolicy[Any]]
    arguments: Mapping[str, Any]
    budget: Budget
    database: Path | str
    ledger: Path | str
    checkpoint: Path
    clients: Mapping[str, Client]
    label: str = "service"
    wait: float | None = None
    default: float = 0.0
    apprentice: bool = False
    curves: bool = False
    reference: Sequence[Any] = ()
    seed: int | None = None
    features: Hashed | None = None
    path: Path | None = None
    scope: str | None = None
    shared: Budget | None = None
    books: Ledger | None = None

    @classmethod
    def read(cls, path: str | Path) -> Config:
        """The one in a TOML file.

        Raises
        ------
        ValueError
            For a key that is missing or unknown, or a value that is not what it must be; naming it, and the way out.
        """
        file = Path(path).absolute()
        tree = tree_of(Path(path))
        try:
            return replace(built(tree, file.parent, needed=True), path=file)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}: {error}") from error

    def callers(self) -> Callers:
        """Who may ask, as the file has it from now on."""
        # a run of a group may have none, as those of the group may ask it
        return callers_of(self.clients, self.path, self.proxy, needed=self.shared is None)

    @property
    def experiment(self) -> bool:
        """Whether it is an experiment: it ends, and has results."""
        return issubclass(self.kind, ExperimentPolicy)

    @property
    def whole(self) -> Budget:
        """The ledger's budget."""
        return self.budget if self.shared is None else self.shared

    @property
    def together(self) -> bool:
        """Whether service and ledger are in one PostgreSQL database, where one transaction can write to both.

        With a witness they are written one after the other: nobody may see a release before the witness has its mark.
        """
        if self.witness is not None or not (isinstance(self.database, str) and isinstance(self.ledger, str)):
            return False
        return place(self.database, schema="service").address == place(self.ledger, schema="ledger").address

    def generator(self) -> np.random.Generator | None:
        """None, the secure source, unless the service is a simulation."""
        return None if self.seed is None else np.random.default_rng(self.seed)

    def probe(self, **kept: Any) -> PrivatePolicy[Any]:
        """A policy of this kind, by default with books of its own: it serves to check what comes in, unreleased."""
        return self.kind(**self.arguments, budget=self.budget, label=self.label, rng=self.generator(), **kept)

    def open_ledger(self, actor: str | None = None) -> Ledger:
        """The run's ledger; ``actor`` is named in what is recorded.

        Raises
        ------
        Mismatch
            If it is missing, behind its witness, damaged, or of another budget.
        """
        books = (
            opened_books(self.ledger, self.whole, self.witness, self.expected_head)
            if self.books is None
            else self.books
        )
        return books.acting(actor, scope=self.scope)

    def begin_policy(self, actor: str | None = None) -> PrivatePolicy[Any]:
        """A new run's policy: the ledger is charged, for ``actor``, and the first checkpoint made.

        Raises
        ------
        Mismatch
            If the ledger has charged a run of this label already.
        """
        ledger = self.open_ledger(actor)
        if any(row.label == self.label for row in ledger.rows()):
            raise Mismatch(
                f"service.label must be new, got {self.label!r}, which the ledger {named(self.ledger)} has charged: "
                f"begin a new run with another label, a new database, and budget that is left"
            )
        return self.probe(ledger=ledger, checkpoint=self.checkpoint)

    def open_policy(self) -> PrivatePolicy[Any]:
        """The run's policy, from its newest checkpoint.

        Raises
        ------
        BlockingIOError
            If another process holds the checkpoint.
        Mismatch
            If the checkpoint is missing, of other parameters than the file's, or older than its newest release.
        """
        ledger = self.open_ledger(_LEARNER)
        if not self.checkpoint.exists():
            raise Mismatch(
                f"storage.checkpoint must be that of the run {self.label!r}, got {self.checkpoint}, which is missing: "
                f"is its volume mounted? Put it back, or begin a new run with another service.label, database and "
                f"checkpoint by `dpbandits serve init`"
            )
        try:
            policy = PrivatePolicy.load(self.checkpoint, ledger=ledger)
        except ValueError as error:
            raise Mismatch(
                f"storage.checkpoint must be the newest state of its run, whole, and beside its journal: {error}. Put "
                f"the newest copy back; where there is none, `dpbandits serve restore` ends the run"
            ) from error
        assert_same(policy, self.probe())
        return policy  # type: ignore[return-value]


def callers_of(clients: Mapping[str, Client], path: Path | None, proxy: Proxy | None, *, needed: bool) -> Callers:
    """The clients that a file names, read again when it changes; ``needed`` if there must be one."""

    def again(path: Path) -> Mapping[str, Client]:
        return clients_of(tree_of(path), named_elsewhere=proxy is not None, needed=needed)

    return Callers(clients, path, again, proxy)


def opened_books(ledger: Path | str, budget: Budget, witness: Path | str | None, expected_head: str | None) -> Ledger:
    """A ledger that is there.

    Raises
    ------
    Mismatch
        If it is missing, behind its witness or opened without it, damaged, or of another budget.
    """
    try:
        books = Ledger.open(ledger, budget, witness=witness, expected_head=expected_head)
    except FileNotFoundError as error:
        raise Mismatch(f"storage.ledger and witness: {error}; `dpbandits serve init` makes a new run") from error
    except LedgerBehind as error:
        raise Mismatch(f"storage.ledger: {error}") from error
    except LedgerCorrupted as error:
        raise Mismatch(f"storage.ledger must verify: {error}") from error
    except ValueError as error:
        raise Mismatch(f"storage.ledger must be of this budget: {error}") from error
    if books.witnessed and witness is None:  # it would be refused at the first release
        books.close()
        raise Mismatch(
            "storage.witness must be named: the ledger was made with one. If it is lost, `dpkit ledger backup` "
            "makes another"
        )
    return books


def assert_same(policy: Policy, probe: Policy) -> None:
    """Refuse to go on with a run of other parameters than the file's."""
    if type(policy) is not type(probe):
        raise Mismatch(
            f"policy.class must be that of the checkpoint, {type(policy).__name__}, got {type(probe).__name__}"
        )
    saved, wanted = config_of(policy), config_of(probe)
    for name in wanted:
        if repr(saved[name]) != repr(wanted[name]):
            raise Mismatch(
                f"policy.{name} must stay what the run was begun with, {saved[name]!r}, got {wanted[name]!r}: a run's "
                f"parameters are fixed; another service.label, database, ledger and checkpoint make a new run"
            )


def tree_of(path: Path) -> dict[str, Any]:
    """What a file holds: TOML, or JSON if its name says so.

    Raises
    ------
    FileNotFoundError
    ValueError
        If it is neither.
    """
    kind = "JSON" if path.suffix == ".json" else "TOML"
    try:
        text = path.read_text(encoding="utf-8")
        found: dict[str, Any] = json.loads(text) if kind == "JSON" else tomllib.loads(text)
        return found
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {path}") from None
    except ValueError as error:  # also UnicodeDecodeError
        raise ValueError(f"{path}: must be {kind}: {error}") from error


def _traces(key: str, found: Any) -> bool:
    wanted: bool = of(bool, Common.traces)(key, found)
    if wanted and importlib.util.find_spec("opentelemetry") is None:
        raise ValueError(f"{key} needs OpenTelemetry: python -m pip install 'dpkit[serve,traces]'")
    return wanted


_limits: dict[str, Reader] = {name: whole(value, 1, 2**30) for name, value in vars(Limits()).items()}
_limits["decisions"] = number(None)

# the tables, or parts of them, of which a service of many runs has the same
common_tables: dict[str, dict[str, Reader]] = {
    "service": {
        "host": of(str, Common.host),
        "port": whole(Common.port, 0, 65535),
        "workers": whole(Common.workers, 1, 1000),
        "admin": of(int, None),
        "log": one_of("text", "json"),
        "traces": _traces,
    },
    "budget": {"epsilon": number(), "delta": number(), "unit": of(str), "adjacency": one_of(*get_args(Adjacency))},
    "storage": {name: of(str, None) for name in ("witness", "expected_head")},
    "proxy": {"secret": of(str, None), "header": of(str, "x-client")},
    "limits": _limits,
}

# all tables but [policy], whose keys are the parameters of its class, and [clients], whose are names
_FILE: dict[str, dict[str, Reader]] = {
    **common_tables,
    "service": common_tables["service"] | {"label": of(str, "service"), "mode": one_of("bandit", "apprentice")},
    "rewards": {"wait": number(None), "default": number(None)},
    "storage": common_tables["storage"]
    | {name: of(str, f"service.{name}") for name in ("database", "ledger", "checkpoint")},
    "budget": common_tables["budget"] | {"scope": of(str, None)},
    "page": {"curves": of(bool, False), "reference": of(list, ())},
    "simulation": {"seed": of(int, None)},
    "features": {"seed": whole(0, 0, 2**32 - 1), "ranges": of(dict, {})},
}


def told_alike(
    tree: Mapping[str, Any], known: Mapping[str, Mapping[str, Reader]], *further: str, needed: bool
) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """All values of ``known`` tables, and what a service of one run and one of many are told in the same words.

    ``further`` tables are somebody else's to read; ``needed`` says that somebody must be let in.
    """
    proxy = proxy_of(read({"proxy": table(tree, "proxy")}, {"proxy": known["proxy"]})["proxy"])
    clients = clients_of(tree, named_elsewhere=proxy is not None, needed=needed)
    only("", tree, {*further, "clients", *known})
    told = read(tree, known)
    rate = told["limits"].pop("decisions")
    if rate is not None and rate < 1:
        raise ValueError(f"limits.decisions must be at least 1 a minute, got decisions={rate!r}")
    return told, {"proxy": proxy, "clients": clients, "limits": Limits(**told["limits"]), "rate": rate}


def built(tree: Mapping[str, Any], folder: Path, *, needed: bool = False) -> Config:
    """The service that tables describe, with files beside ``folder``; ``needed`` says that somebody must be let in."""
    kind: type[PrivatePolicy[Any]]
    arguments: dict[str, Any]
    told, alike = told_alike(tree, _FILE, "policy", needed=needed)
    policy: Mapping[str, Any] = table(tree, "policy")
    scope = told["budget"].pop("scope")
    if scope is not None:
        check_new_scope("budget.scope", scope)
    budget = Budget(**told["budget"])
    if policy.get("class") == "Experiment":
        given = {key: value for key, value in policy.items() if key != "class"}
        kind, arguments = ExperimentPolicy, arguments_of(given, budget)
    else:
        kind, arguments = _policy(policy)
    service, rewards = told["service"], told["rewards"]
    wait, default = rewards["wait"], rewards["default"]
    if (wait is None) != (default is None):
        there = [name for name, value in rewards.items() if value is not None]
        raise ValueError(f"rewards must have both wait and default or neither, got {there}")
    if wait is not None and not wait > 0:
        raise ValueError(f"rewards.wait must be a positive number of seconds, got wait={wait!r}")
    config = Config(
        kind,
        arguments,
        budget,
        **places_of(told["storage"], folder),
        **alike,
        wait=wait,
        default=default or 0.0,
        apprentice=service.pop("mode") == "apprentice",
        scope=scope,
        **service,
        **told["page"],
        **told["simulation"],
    )
    if config.apprentice and kind.offer is NOTHING:
        raise ValueError(
            "service.mode must be 'bandit' for this class, which counts plays without noise: choices of another rule "
            "may tell of those who came, got mode='apprentice'"
        )
    if config.apprentice and issubclass(kind, SlatePolicy):
        raise ValueError(
            "service.mode must be 'bandit' for this class, which shows several arms: an apprentice's requests bring "
            "one choice, got mode='apprentice'"
        )
    # the constructor's own errors name the parameter, its value and its bound
    probe = config.probe()
    if wait is not None:
        try:
            probe.checked_reward(default)
        except ValueError as error:
            raise ValueError(f"rewards.default must be a reward: {error}") from error
    for one in config.reference:
        probe.checked_arms(one)
    return replace(config, features=_hashed(config, probe, **told["features"])) if "features" in tree else config


def _hashed(config: Config, probe: PrivatePolicy[Any], seed: int, ranges: Mapping[str, Any]) -> Hashed:
    """How JSON becomes arms, where the run can be served so."""
    if probe.offer is not ROWS:
        raise ValueError(
            f"[features] must be for a policy.class that takes any arms, got {type(probe).__name__}, which does not"
        )
    if isinstance(probe, SlatePolicy) and isinstance(probe.examination, str):
        raise ValueError(
            f"[features] must be with policy.examination = {[1.0] * probe.k} for this class, as each slot of that wire "
            f"is rewarded by itself, got examination={probe.examination!r}"
        )
    if config.apprentice:
        raise ValueError("[features] must be with service.mode = 'bandit', got mode='apprentice'")
    if config.budget.unit != "round":
        raise ValueError(
            f"[features] must be with budget.unit = 'round', got unit={config.budget.unit!r}: requests of that wire do "
            f"not say whose they are; /v1/decisions does"
        )
    if config.wait is None:
        raise ValueError(
            "[features] must be with rewards.wait and rewards.default, got neither: what is not activated by then is "
            "forgotten"
        )
    for path, bounds in ranges.items():
        found = bounds if isinstance(bounds, list) else []
        if len(found) != 2 or not all(type(one) in (int, float) for one in found):
            raise ValueError(f"features.ranges must be [low, high] by path, got {path!r}: {bounds!r}")
        if not path.startswith(("context[]", "action[]")):
            raise ValueError(f"features.ranges must be of paths below context[] and action[], got {path!r}")
    try:
        return Hashed(probe.dim, ranges=ranges, seed=seed)
    except ValueError as error:
        raise ValueError(f"features.{error}") from error


_SCHEMAS = {"database": "service", "ledger": "ledger", "witness": "ledger"}


def places_of(given: Mapping[str, str | None], folder: Path) -> dict[str, Any]:
    """Files beside the service's, or addresses; all different."""
    head = given["expected_head"]
    if head is not None and not re.fullmatch("[0-9a-f]{64}", head):
        raise ValueError(f"storage.expected_head must be 64 hexadecimal digits, got expected_head={head!r}")
    places = {
        name: text if is_url(text) else folder / text
        for name, text in given.items()
        if text is not None and name != "expected_head"
    }
    if not all(isinstance(one, Path) for one in places.values()) and importlib.util.find_spec("psycopg") is None:
        raise ValueError("storage in PostgreSQL needs psycopg 3: python -m pip install 'dpkit[serve,postgres]'")
    if not isinstance(places["checkpoint"], Path):
        raise ValueError("storage.checkpoint must be a file on the learner's own disk, got the address of a database")
    names = sorted(named(one, _SCHEMAS.get(name, "")) for name, one in places.items())
    if len(set(names)) < len(names):
        raise ValueError(f"storage must name different places, got {names}")
    return places | {"expected_head": head}


# constructor arguments that are not the file's to say; a decision log would keep raw data, and of the chosen arms only
_OURS = {"self", "rewards", "budget", "ledger", "label", "checkpoint", "rng", "decision_log"}


def _policy(table: Mapping[str, Any]) -> tuple[type[PrivatePolicy[Any]], dict[str, Any]]:
    """The class, and its arguments."""
    name = of(str)("policy.class", table.get("class", MISSING))
    kind = _class(name)
    only("policy", table, {"class", *constructor_arguments(kind)} - _OURS)
    for one in signature(kind).parameters.values():
        named = one.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        if named and one.default is Parameter.empty and one.name not in _OURS | table.keys():
            raise ValueError(f"policy.{one.name} must be given: {name} has no default for it")
    if table.get("parameters") == "published":
        raise ValueError("policy.parameters must not be 'published': an algorithm as published is not private")
    ranges = {key for key, value in table.items() if key == "reward_range" and isinstance(value, list)}
    arguments = {key: tuple(value) if key in ranges else value for key, value in table.items()}
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
            f"policy.class must be a private policy, 'module:Class' or one of Experiment, {', '.join(private)}, "
            f"got class={name!r}"
        )
    return found

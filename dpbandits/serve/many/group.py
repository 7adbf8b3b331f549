"""Many runs in one service: one file for all of them, one ledger, and a folder of each run's own.

    [runs]                      # in place of [policy]
    folder = "runs"
    most = 200

    [budget]                    # of the ledger that all runs share
    epsilon = 4.0
    delta = 1e-6
    unit = "round"

    [storage]
    ledger = "group.ledger"
    database = "postgresql://user@host/bandits"   # optional; without it, each run has an SQLite file in its folder

    [clients.ops]               # may ask every run, as their scopes say; who owns begins runs
    tokens = ["sha256:…"]
    scopes = ["own"]

A run is what it is alone: its own policy, contract, database (a file, or a schema of its own), checkpoint, trail,
lineage, learner's lease and clients. So none of what :mod:`dpbandits.serve.store` and :mod:`dpbandits.serve.lineage`
promise depends on another run, and one that is refused, closed or put back keeps no other from going on. Runs share
the ledger, in which each is a row, in a scope of its own if its people are disjoint from the others'; and its witness.

In its folder a run has

``run.json``      its description, as it was asked for (the tables of ``run.toml`` that are a run's own)
``begun``         once the ledger is charged, and all of its state made; what has none is nobody's to serve
``paused``        while an operator's command works on it: the learner lets go
``refused``       why the learner does not go on with it, in words
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accounting import Budget, Ledger
from accounting.files import write_text
from accounting.postgres import is_url, place
from dpbandits.serve import operate
from dpbandits.serve.clients import Callers, Client
from dpbandits.serve.config import (
    Common,
    Config,
    built,
    callers_of,
    common_tables,
    opened_books,
    places_of,
    told_alike,
    tree_of,
)
from dpbandits.serve.database import Mismatch, named
from dpbandits.serve.lineage import trail_of
from dpbandits.serve.store import Store
from dpbandits.serve.toml import Reader, of, only, table, whole

if sys.platform != "win32":
    import fcntl

__all__ = ["Group", "Taken", "read_any"]

log = logging.getLogger("dpbandits.serve")

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
# tables of a run's description; the others are the group's
_OWN = ("policy", "budget", "rewards", "page", "features", "simulation", "clients")
_MARK = ".group"
# seconds that a learner may take to let go of a run, and after which a command that works on one counts as dead. (Were
# it not, the run's hold on its checkpoint would still keep the learner out.)
_LET_GO, _DEAD = 30.0, 300.0

_FILE: dict[str, dict[str, Reader]] = {
    "runs": {"folder": of(str, "runs"), "most": whole(200, 1, 10_000)},
    **common_tables,
    "storage": common_tables["storage"] | {"ledger": of(str, "group.ledger"), "database": of(str, None)},
    "service": common_tables["service"] | {"learners": whole(1, 1, 1000)},
}


class Taken(ValueError):
    """There is another run of this name, or no room for one more."""


@dataclass(frozen=True)
class Group(Common):
    """A service of many runs, as its file describes it; more of it in :class:`dpbandits.serve.config.Common`.

    Attributes
    ----------
    folder : Path
        Has a folder for each run.
    most : int
        How many runs there may be.
    budget : Budget
        The ledger's.
    ledger : Path or str
    database : str or None
        The PostgreSQL database in which each run has a schema.
    clients : mapping of name to Client
        Who may ask all runs.
    learners : int
        How many processes share the runs' learners among them.
    path : Path
        The file.
    """

    folder: Path
    most: int
    budget: Budget
    ledger: Path | str
    clients: Mapping[str, Client]
    path: Path
    database: str | None = None
    learners: int = 1

    @classmethod
    def read(cls, path: str | Path) -> Group:
        """The one in a TOML file.

        Raises
        ------
        ValueError
            For a key that is missing or unknown, or a value that is not what it must be; naming it, and the way out.
        """
        file = Path(path).absolute()
        tree = tree_of(Path(path))
        try:
            return cls._built(tree, file)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}: {error}") from error

    @classmethod
    def _built(cls, tree: Mapping[str, Any], file: Path) -> Group:
        told, alike = told_alike(tree, _FILE, needed=True)
        storage = told["storage"]
        database = storage.pop("database")
        if database is not None and (not is_url(database) or place(database, schema="run").schema != "run"):
            raise ValueError(
                "storage.database must be the address of a PostgreSQL database without a schema, as each run has one "
                f"of its own, got {named(database) if is_url(database) else database!r}; without it runs have files"
            )
        kept = places_of({**storage, "checkpoint": told["runs"]["folder"]}, file.parent)
        folder = kept.pop("checkpoint")
        return cls(
            folder=folder,
            most=told["runs"]["most"],
            budget=Budget(**told["budget"]),
            path=file,
            database=database,
            **alike,
            **kept,
            **told["service"],
        )

    def callers(self) -> Callers:
        """Who may ask all runs, as the file has it from now on."""

        return callers_of(self.clients, self.path, self.proxy, needed=True)

    # ------------------------------------------------------------------------------------------------ all runs

    def init(self) -> list[str]:
        """Make the ledger and the folder of runs. Nothing else makes them.

        Raises
        ------
        FileExistsError
            If there is a group already.
        FileNotFoundError
            If the folder of one of the files is missing.
        """
        operate.check_folders(
            {"runs.folder": self.folder, "storage.ledger": self.ledger, "storage.witness": self.witness}
        )
        if (self.folder / _MARK).exists():
            raise FileExistsError(f"there is a group of runs in {self.folder} already: `dpbandits serve` starts it")
        said = [operate.ledger_for(self.ledger, self.witness, self.budget, None)]
        self.folder.mkdir(mode=0o700, exist_ok=True)
        write_text(self.folder / _MARK, "")
        return [*said, f"runs will be in {self.folder}; `POST /v1/runs` begins one"]

    def check(self) -> None:
        """Refuse to start without what :meth:`init` has made.

        Raises
        ------
        Mismatch
        """
        if not (self.folder / _MARK).exists():
            raise Mismatch(
                f"runs.folder must be that of a group, got {self.folder}: is its volume mounted? A new group is made "
                f"by `dpbandits serve init`"
            )

    def open_ledger(self) -> Ledger:
        """The ledger of all runs.

        Raises
        ------
        Mismatch
            If it is missing, behind its witness, damaged, or of another budget.
        """
        return opened_books(self.ledger, self.budget, self.witness, self.expected_head)

    def names(self) -> list[str]:
        """The runs that are described, whether they have begun or not."""
        return sorted(one.parent.name for one in self.folder.glob("*/run.json"))

    def begun(self) -> list[str]:
        """The runs that have begun."""
        return sorted(one.parent.name for one in self.folder.glob("*/begun"))

    def has_begun(self, name: str) -> bool:
        """Whether a run has."""
        return _NAME.fullmatch(name) is not None and (self.folder / name / "begun").exists()

    def doctor(self) -> tuple[bool, list[str]]:
        """Look at everything, and say what is wrong and which command mends it; whether all is well."""
        try:
            self.check()
            self.open_ledger().close()
        except (ValueError, OSError) as error:
            return False, [f"WRONG {error}"]
        well, said = True, [f"ok    {len(self.begun())} runs have begun"]
        for name in self.names():
            if not self.has_begun(name):
                said.append(f"ok    {name}: its beginning was interrupted; the same request again finishes it")
                continue
            try:
                found, lines = operate.doctor(self.config(name))
            except (ValueError, OSError) as error:
                found, lines = False, [f"WRONG {error}"]
            well &= found
            said += [f"{line[:6]}{name}: {line[6:]}" for line in lines]
        return well, said

    def adopt(self) -> list[str]:
        """Change over the databases of all runs that are of an earlier release; no learner may run."""
        said = []
        for name in self.begun():
            config = self.config(name)
            try:
                with closing(Store(config.database)):
                    said.append(f"{name}: is of this release")
            except Mismatch:
                said += [f"{name}: {line}" for line in operate.adopt(config)]
        return said

    # ------------------------------------------------------------------------------------------------- one run

    def config(self, name: str) -> Config:
        """A run, as a service of its own would have it.

        Raises
        ------
        FileNotFoundError
            If there is none of that name.
        ValueError
        """
        folder = self.folder / name
        if not _NAME.fullmatch(name) or not (folder / "run.json").exists():
            raise FileNotFoundError(f"there is no run {name!r} in {self.folder}")
        return self._config(name, tree_of(folder / "run.json"))

    def _config(self, name: str, described: Mapping[str, Any]) -> Config:
        own = {key: value for key, value in described.items() if value is not None}
        mode = own.pop("mode", "bandit")
        only("", own, _OWN)
        folder = self.folder / name
        database = "run.database" if self.database is None else _schema(self.database, name)
        storage = {"ledger": str(self.ledger), "database": database, "checkpoint": "run.checkpoint"}
        if self.witness is not None:
            storage["witness"] = str(self.witness)
        if self.expected_head is not None:
            storage["expected_head"] = self.expected_head
        arms = table(own, "policy").get("arms")
        if isinstance(arms, (int, float)) and not arms <= self.limits.arms:  # each would be given a name
            raise ValueError(f"policy.arms must be at most limits.arms, {self.limits.arms}, got arms={arms!r}")
        budget = table(own, "budget")
        only("budget", budget, ("epsilon", "delta", "scope"))
        budget = {**budget, "unit": self.budget.unit, "adjacency": self.budget.adjacency}
        proxy = {} if self.proxy is None else {"secret": self.proxy.secret, "header": self.proxy.header}
        own |= {"budget": budget, "proxy": proxy}
        tree = {**own, "storage": storage, "service": {"label": name, "mode": mode}}
        config = built(tree, folder)
        if set(config.clients) & set(self.clients):
            raise ValueError("clients of a run must have other names than the group's")
        return replace(
            config,
            path=folder / "run.json",
            shared=self.budget,
            limits=self.limits,
            rate=self.rate,
            workers=self.workers,
        )

    def begin(self, name: str, described: Mapping[str, Any], actor: str | None = None) -> bool:
        """Begin a run: describe it, charge the ledger, make its state; False if it had begun, with this description.

        Where the ledger refuses it, nothing is charged, and nothing stays. After a crash in the middle it may be called
        again.

        Raises
        ------
        ValueError
            If the description is not of a run that can be.
        Taken
            If there is another run of this name, or there are too many.
        BudgetExceeded, AdjacencyMismatch, UnsupportedRelease
            From the ledger.
        Mismatch, OSError
        """
        if not _NAME.fullmatch(name):
            raise ValueError(f"name must be of small letters, digits and '-', at most 40, got name={name!r}")
        self.check()
        config, folder = self._config(name, described), self.folder / name
        text = json.dumps(described, sort_keys=True)
        with self._turn():
            there = (folder / "run.json").exists()
            if there and _lasting(tree_of(folder / "run.json")) != _lasting(json.loads(text)):
                raise Taken(f"there is a run {name!r} already, of another description")
            if self.has_begun(name):
                return False
            if not there and len(self.names()) >= self.most:
                raise Taken(f"there are {self.most} runs already, and runs.most allows no more")
            folder.mkdir(mode=0o700, exist_ok=True)
            write_text(folder / "run.json", text)
            try:
                operate.init(config, actor)
            except FileExistsError:
                if not trail_of(config.checkpoint).exists():  # which is made last: else only the mark is missing
                    raise
            except BaseException:
                if not config.checkpoint.exists():  # there is no run: nothing was charged, or it is lost for good
                    shutil.rmtree(folder)
                raise
            write_text(folder / "begun", "")
        return True

    def let_in(self, name: str, clients: Mapping[str, Any]) -> None:
        """Give a run other clients, in place of those that it has; workers know them within a second.

        Raises
        ------
        FileNotFoundError
            If there is no such run.
        ValueError
        """
        described = self.folder / name / "run.json"
        with self._turn():
            self.config(name)
            told = {**_lasting(tree_of(described)), "clients": clients}
            self._config(name, told)
            write_text(described, json.dumps(told, sort_keys=True))

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One run is begun at a time, by whichever process."""
        number = os.open(self.folder / ".turn", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if sys.platform != "win32":
                fcntl.flock(number, fcntl.LOCK_EX)
            yield
        finally:
            os.close(number)

    def paused(self, name: str) -> bool:
        """Whether a command works on a run."""
        try:
            return time.time() < (self.folder / name / "paused").stat().st_mtime + _DEAD
        except FileNotFoundError:
            return False

    @contextmanager
    def alone(self, name: str) -> Iterator[Config]:
        """A run from which the learner keeps away meanwhile; the others go on.

        Raises
        ------
        Mismatch
            If it does not let go.
        """
        config = self.config(name)
        mark = self.folder / name / "paused"
        write_text(mark, "")
        try:
            end = time.monotonic() + _LET_GO
            while _led(config):
                if time.monotonic() > end:
                    raise Mismatch(f"the learner of {name!r} must let go, and has not in {_LET_GO:g} s")
                time.sleep(0.1)
            yield config
        finally:
            mark.unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                self.refuse(name, "")

    def refuse(self, name: str, why: str) -> None:
        """Write down why the learner does not go on with a run; an empty text if it does."""
        note = self.folder / name / "refused"
        if why:
            write_text(note, why)
        else:
            note.unlink(missing_ok=True)

    def refused(self, name: str) -> str:
        """Why the learner does not go on with a run; empty if it does."""
        try:
            return (self.folder / name / "refused").read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""


def _lasting(described: Mapping[str, Any]) -> dict[str, Any]:
    """What of a description stays: all but who may ask."""
    return {key: value for key, value in described.items() if key != "clients"}


def read_any(path: str | Path) -> Config | Group:
    """What a file describes: one run, or a group of them."""
    return Group.read(path) if "runs" in tree_of(Path(path)) else Config.read(path)


def _led(config: Config) -> bool:
    """Whether a learner has a lease that has not run out."""
    with suppress(Mismatch), closing(Store(config.database)) as store:
        return store.led(store.time())
    return False


def _schema(database: str, name: str) -> str:
    """The address of a run's schema."""
    return f"{database}{'&' if '?' in database else '?'}schema=run_{name.replace('-', '_')}"

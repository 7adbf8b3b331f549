"""What an operator does to a service: begin it, look at it, put it right after it went back, erase, end it.

Each function returns what it did, in lines for the operator. All but :func:`init` and :func:`doctor` need the learner
to be stopped, as they take its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from accounting import Budget, Ledger
from dpbandits.policy.private import PrivatePolicy
from dpbandits.serve import tables
from dpbandits.serve.config import Config, opened_books
from dpbandits.serve.contract import check, record, terms_of
from dpbandits.serve.database import Mismatch, named
from dpbandits.serve.learner import SKEW, Learner, RunClosed
from dpbandits.serve.lineage import Trail, begun, trail_of
from dpbandits.serve.store import LeaseLost, Store
from dpbandits.serve.trial import visit_key
from dpkit.states import files

__all__ = ["adopt", "check_folders", "close", "doctor", "erase", "init", "ledger_for", "restore"]

_NO_WITNESS = (
    "ledger: it has no witness, so nothing here can show that all storage was put back from one old copy. "
    "`dpkit ledger backup` makes a witness; name it as storage.witness"
)


def init(config: Config, actor: str | None = None) -> list[str]:
    """Begin a run: charge the ledger, make the first checkpoint and the database. Nothing else makes any of these.

    A ledger that is there is charged, if it has the budget; checkpoint and database must be new. After a crash in the
    middle it may be called again. The ledger's row says that ``actor`` began the run.

    Raises
    ------
    FileExistsError
        If there is a service in the database already.
    FileNotFoundError
        If the folder of one of the files is missing.
    Mismatch
        If the ledger has charged a run of this label.
    """
    check_folders(
        {f"storage.{name}": getattr(config, name) for name in ("database", "ledger", "witness", "checkpoint")}
    )
    with suppress(Mismatch), closing(Store(config.database)) as store:
        # the trail is written last; what is without is of a crash in the middle, or has lost more than that
        if store.decided() or trail_of(config.checkpoint).exists() or not config.checkpoint.exists():
            raise FileExistsError(
                f"there is a service in {named(config.database)} already: `dpbandits serve` starts it"
            )
    if config.shared is None:
        said = [ledger_for(config.ledger, config.witness, config.budget, config.scope)]
    else:  # that of a group is there, and where it is not, nobody makes it now
        with config.open_ledger():
            said = []
    if config.checkpoint.exists():  # a crash came between
        policy = config.open_policy()
        if policy.decisions:
            raise FileExistsError(
                f"{config.checkpoint} is of a run with {policy.decisions} decisions: put its database back"
            )
    else:
        policy = config.begin_policy(actor)
    try:
        with suppress(FileExistsError):
            tables.create(config.database, {"run": policy.run.id})
        with closing(Store(config.database)) as store:
            with store.writing():
                record(store, terms_of(config, policy), store.now)
                trail = Trail(trail_of(config.checkpoint), store.incarnation, 0, [begun(store.incarnation)])
                store.note("learned", trail.mark(0))
            trail.keep()
    finally:
        policy.run.release_hold()
    said.append(
        f"the run {config.label!r} is charged; its state is {config.checkpoint}, its rounds {named(config.database)}"
    )
    return said


def check_folders(places: Mapping[str, Any]) -> None:
    """Refuse before the ledger is made or charged: a missing folder may be a volume that is not mounted."""
    for name, place in places.items():
        if isinstance(place, Path) and not place.parent.is_dir():
            raise FileNotFoundError(
                f"{name} must be in a folder that exists, got {place}: is its volume mounted? "
                f"If the folder is to be new, make it first: mkdir -p {place.parent}"
            )


def ledger_for(place: Path | str, witness: Path | str | None, budget: Budget, scope: str | None) -> str:
    """Make a ledger and its witness where they are missing; in a line, what is there now.

    Raises
    ------
    Mismatch
        If the ledger alone is missing: what its witness has seen must not begin anew.
    """
    name = named(place, "ledger")
    try:
        Ledger.create(place, budget, witness=witness).close()
        return f"made the ledger {name}, with a budget of ε = {budget.epsilon:g}"
    except FileExistsError as error:
        there = str(error)
    if witness is not None:
        try:
            with suppress(FileExistsError), Ledger.open(place) as ledger:
                ledger.backup(witness)
        except FileNotFoundError:
            raise Mismatch(f"storage.ledger: {there}") from None
    with opened_books(place, budget, witness, None) as ledger:
        return f"the ledger {name} is there, with ε = {ledger.remaining(scope=scope):.6g} left"


def adopt(config: Config) -> list[str]:
    """Change over a run of an earlier release, whose database knew of no lineage; the learner must be stopped.

    Whether the database went back before, nobody can tell any more: take it over as it was left. After a crash in the
    middle it may be called again.
    """
    half = False
    with suppress(Mismatch), closing(Store(config.database)) as store:
        half = store.fact("contract") is None
    if not half and tables.widen(config.database):
        return [
            f"{named(config.database)} is of this release now; it has room for events and slates, and is else as it was"
        ]
    policy = config.open_policy()
    try:
        if not half:
            tables.adopt(config.database, {"run": policy.run.id, "learned": policy.decisions}, policy.decisions)
        with closing(Store(config.database)) as store:
            with store.writing():
                record(store, terms_of(config, policy), store.now)
                here, told = policy.decisions, store.relink(policy.decisions)
                trail = Trail(trail_of(config.checkpoint), store.incarnation, here, [told])
                store.note("learned", trail.mark(here))
            trail.keep()
    finally:
        policy.run.release_hold()
    return [f"{named(config.database)} is of this release now; ids that are out stay good, new ones are codes"]


def restore(config: Config, *, burn: bool = False) -> list[str]:
    """Put a service right whose ledger, database or checkpoint went back.

    * *Ledger behind its witness*: what was released since is charged again.
    * *Database behind the learner*: its numbers go on after those that were learned from, in a new incarnation. Rounds
      since the learner last wrote to it may be of two histories, and are dropped: their ids are answered ``closed``.
    * *Checkpoint older than the newest release*: its data were released already, and must not be noised again. Put the
      newest checkpoint back, with its journal and trail; with ``burn`` the run ends instead. What was released stays,
      and is charged; nothing more is learned.
    """
    said = []
    with closing(Store(config.database)) as store:
        if (closed := store.fact("closed")) is not None:
            raise Mismatch(f"the run is closed already ({closed['reason']})")
        check(store, terms_of(config))
    if config.witness is not None:
        added = Ledger.catch_up(config.ledger, config.witness)
        said.append(f"the ledger has {added} entries again that it had forgotten" if added else "the ledger is whole")
    config.open_ledger().close()  # what is wrong with it, or with the file, is no reason to burn the run
    try:
        policy = config.open_policy()
    except BlockingIOError:
        raise Mismatch("the service must be stopped, and a learner runs: stop it first") from None
    except Mismatch as error:
        if not burn:
            raise Mismatch(
                f"{error}. Its data were released already. With --burn the run ends: what was released stays, and is "
                f"charged, and nothing more is learned"
            ) from error
        with closing(Store(config.database)) as store:
            said += _ended(config, store, "its state went back behind its releases")
        return said
    try:
        with closing(Store(config.database)) as store:
            said += _relearned(config, store, policy)
    finally:
        policy.run.release_hold()
    return said


def _relearned(config: Config, store: Store, policy: PrivatePolicy[Any]) -> list[str]:
    """Let a database go on from what was learned."""
    if store.fact("run") != policy.run.id:
        raise Mismatch(f"{named(config.database)} is of another run than {config.checkpoint}")
    here, path = policy.decisions, trail_of(config.checkpoint)
    if _goes_on(store, path, here):
        return ["the database goes on from what was learned"]
    kept, marks, point = 0, [], store.fact("learned")
    with suppress(FileNotFoundError, ValueError):
        if (known := Trail.read(path)).shares(point) and point["number"] <= here:
            kept, marks = point["number"], [one for one in known.marks if one[0] <= point["number"]]
    count = store.decided()
    incarnation, digest = store.renew(here, kept)
    trail = Trail(path, incarnation, here, [digest], [*marks, (here, digest)])
    trail.keep()
    with store.writing():
        store.note("learned", trail.mark(here))
    return [
        f"the database had {count} decisions, of which {kept} are surely those that were learned from; it goes on "
        f"after {here}, in a new incarnation. Rewards for rounds in between are answered 'closed' or 'unknown'"
    ]


def _goes_on(store: Store, path: Path, here: int) -> bool:
    """Whether a database goes on from what was learned, as the learner's trail has it."""
    try:
        trail = Trail.read(path)
    except (FileNotFoundError, ValueError):
        return False
    count, newest, incarnation, _ = store.chain()
    if incarnation != trail.incarnation or count < here or not trail.follow(here, store.next_link(here)):
        return False
    if store.erased_after(here) and store.next_link(here):
        return False
    return count > here or newest == trail.at(here)


def close(config: Config, reason: str = "its owner closed it") -> list[str]:
    """End a run: take in what has come, make the last release if one is due, and erase all raw data.

    An experiment releases its open batches. Other policies release by a schedule that is fixed in advance: what has
    come since the last release is erased unreleased.
    """
    with closing(_in_its_place(config)) as learner:
        with learner.store.writing():
            learner.store.end(reason)
        while learner.step():
            pass
        learner.settle()
        released = learner.policy.released().number
        said = _ended(config, learner.store, reason)
    return [f"the newest release is {released}", *said]


def _in_its_place(config: Config) -> Learner:
    """The learner, where none runs."""
    try:
        return Learner(config)
    except (LeaseLost, BlockingIOError):
        raise Mismatch(
            "the learner must be stopped, and one runs: stop the service (after a crash its lease runs out in seconds)"
        ) from None
    except RunClosed as error:
        raise Mismatch(f"the run is closed already ({error})") from None


def _ended(config: Config, store: Store, reason: str) -> list[str]:
    with store.writing():
        store.end(reason)
        store.note("closed", {"reason": reason, "at": store.now})
    tables.erase_all(store.database)
    store.database.clear()
    _erase_files(config)
    return [
        "the run is closed: decisions are made by the newest release, and count for nothing",
        "open rounds, rewards, persons and the learner's state are erased; on disks that keep what is overwritten "
        "(snapshots, backups, PostgreSQL's log) erase them there, too",
        "what was released stays, and so does its charge in the ledger",
    ]


def _erase_files(config: Config) -> None:
    for path in [*files.beside(config.checkpoint, "journal"), *files.drafts(config.checkpoint)]:
        path.unlink(missing_ok=True)
    config.checkpoint.unlink(missing_ok=True)
    trail_of(config.checkpoint).unlink(missing_ok=True)


def erase(config: Config, person: str) -> list[str]:
    """Erase what is kept of a person: open rounds, rewards that wait, and the journal's records of them.

    What was released stays: no noise can be taken back, and its price covers it. What has entered the open sums stays
    until they are released with noise. Where persons are protected, a keyed hash stays with the learner, which keeps
    the person from teaching more often than was promised to everybody.
    """
    with closing(_in_its_place(config)) as learner:
        while learner.step():
            pass
        policy, store = learner.policy, learner.store
        rounds = set(policy.open_decisions)
        theirs = {number - 1 for number in tables.rounds_of(store.database, person)}
        if policy.persons is not None:
            key = policy.persons.key(person)
            theirs |= {round for round in rounds if policy.waiting[round].person == key}
        numbers = sorted(round + 1 for round in theirs if round < policy.decisions)
        with learner.leading():
            tables.erase(store.database, numbers, visit_key(person, str(store.fact("key"))))
        for round in theirs & rounds:
            policy.forget(round)
        learner.renew()
    return [
        f"{len(numbers)} {'round' if len(numbers) == 1 else 'rounds'} of this person erased, with the learner's records"
        if numbers
        else "no round of this person is kept: either none is left, or the name is not written as requests had it",
        "what was released stays, and what has entered the open sums, until noise covers it",
        "if persons are protected, a keyed hash stays, without which the person could teach again",
    ]


def doctor(config: Config) -> tuple[bool, list[str]]:
    """Look at everything, and say what is wrong and which command mends it; whether all is well."""
    findings: list[tuple[bool, str]] = []

    @contextmanager
    def looking(what: str) -> Iterator[None]:
        try:
            yield
        except BlockingIOError:
            findings.append((True, f"{what}: held by a learner that runs"))
        except (OSError, ValueError, RuntimeError) as error:
            findings.append((False, f"{what}: {error}"))

    with looking("ledger"), config.open_ledger() as ledger:
        head = ledger.verify()
        left = max(0.0, round(ledger.remaining(scope=config.scope), 9))
        findings.append((True, f"ledger: {ledger.entries} entries verify, ε = {left:g} left, head {head}"))
        if config.witness is None:
            findings.append((True, _NO_WITNESS))
    with looking("database"), closing(Store(config.database)) as store:
        findings.append((True, f"database: {store.decided()} decisions, newest release {store.newest()}"))
        with looking("contract"):
            changed = check(store, terms_of(config))
            may = f"; changed, as it may be: {', '.join(changed)}" if changed else ""
            findings.append((True, f"contract: as the run was begun{may}"))
        store.time()
        agrees = abs(store.skew) <= SKEW
        way = "" if agrees else ": set the clocks right"
        findings.append((agrees, f"clock: the database's and this machine's differ by {abs(store.skew):.1f} s{way}"))
        if (closed := store.fact("closed")) is not None:
            findings.append((True, f"run: closed ({closed['reason']})"))
        else:
            with looking("learner"):
                findings.append(_learner(config, store))
    return all(well for well, _ in findings), [f"{'ok   ' if well else 'WRONG'} {text}" for well, text in findings]


def _learner(config: Config, store: Store) -> tuple[bool, str]:
    """Whether checkpoint and database belong together, and what to do if not."""
    policy = config.open_policy()
    try:
        if store.fact("run") != policy.run.id:
            return False, f"learner: {named(config.database)} is of another run than {config.checkpoint}"
        if not _goes_on(store, trail_of(config.checkpoint), policy.decisions):
            return False, (
                f"learner: the database has {store.decided()} decisions and does not go on from the "
                f"{policy.decisions} that were learned from: it went back. `dpbandits serve restore` mends it"
            )
        return True, f"learner: {policy.decisions} decisions are learned from, and the database goes on from there"
    finally:
        policy.run.release_hold()

"""A service in one process, on a seeded scheduler: workers, learners, database, disks, witness and clocks.

Real are the store and its statements (in SQLite), ids, the chain and the trail, the learner, the witness's watch and
what an operator's ``restore`` does to the database. Stand-ins: the policy, which notes whose data it learns and
releases, the ledger, a list of marks, and the disks, which can be copied and put back.

What a person sends is the person's own number, so that whoever learns it knows whose it was. What was told to clients
is kept outside, and compared with what was learned after every step (:meth:`World.check`). A schedule that takes more
steps than any should, as it waits for what never comes, is a failure like others.
"""

import copy
import random
import sqlite3
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from accounting import LedgerCorrupted
from accounting.ledger.storage.store import Position
from accounting.ledger.storage.witness import Watch
from dpbandits.serve import learner, lineage, operate, store, tables
from dpbandits.serve.database import Mismatch, Sqlite, _named
from dpbandits.serve.store import Choice

BATCH = 4
WORKERS = 2
# of a schedule, where those of good ones take up to some 1,200
MOST_STEPS = 10_000


class Killed(BaseException):
    """What happens to a process at any of its steps."""


class Violated(AssertionError):
    """An invariant does not hold."""


class Unfinished(BaseException):
    """A schedule has had more steps than any needs; no error of the service, which it must not handle."""


class Database(Sqlite):
    """The one connection that everybody shares, as nobody runs at the same time."""

    def __init__(self, world):
        self.world = world

    def execute(self, statement, *values):
        self.world.step()
        if self.world.era != self._era:
            raise OSError("the connection is gone")
        with _named(sqlite3.Error):
            return self._db.execute(statement, values)

    @contextmanager
    def writing(self):
        self.execute("BEGIN")
        try:
            yield
            self.world.step()
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")
        self.world.step()

    def clear(self):
        pass

    def close(self):
        pass


class Shelf:
    """A list of entries: a ledger's, or its witness's."""

    def __init__(self, world, name):
        self.world, self.name, self.entries = world, name, [(0, "{}", "h0")]

    def head(self):
        return Position(len(self.entries), self.entries[-1][2])

    def newest(self):
        return self.head()

    def rows(self, first):
        return self.entries[first:]

    def add(self, rows):
        self.world.step()
        for row in rows:
            if row[0] < len(self.entries):
                if self.entries[row[0]] != row:
                    raise LedgerCorrupted("another entry")
            else:
                self.entries.append(row)
        self.world.step()

    def close(self):
        pass


class Policy:
    """Counts rounds, learns values, and releases what a batch of rounds has learned."""

    takes, horizon, expire_after, kind, persons = "context", None, None, "policy", None

    def __init__(self, world, state):
        self.world = world
        self.rounds, self.learned, self.waiting_batch, self.step_count = copy.deepcopy(state)
        self.run = SimpleNamespace(id="run", step=self.step_count, also=None, release_hold=self.let_go)
        self.budget = SimpleNamespace(epsilon=1.0, delta=0.0)
        self.ledger = SimpleNamespace(head="h", entries=0)
        self.public = None

    def let_go(self):
        self.world.held = False

    @property
    def decisions(self):
        return len(self.rounds)

    def state(self):
        return copy.deepcopy((self.rounds, self.learned, self.waiting_batch, self.step_count))

    @contextmanager
    def together(self):
        yield
        self.world.save(self.state())

    def update(self, round, value):
        if round >= len(self.rounds) or round in self.learned:
            raise ValueError("not waited for")
        self.learned[round] = value
        self.waiting_batch.append((round, value))
        self.world.learns(self.rounds[round], value)

    def register(self, arm, chosen, person, probability=None):
        if self.rounds and len(self.rounds) % BATCH == 0 and self.step_count < len(self.rounds) // BATCH:
            self.release()
        self.rounds.append(person)

    def release(self):
        self.step_count += 1
        batch, self.waiting_batch = self.waiting_batch, []
        self.world.mark(self.step_count, self.state())
        self.run.step = self.step_count
        self.world.publishes(self.step_count, batch)

    def released(self):
        number = self.step_count
        text = f'{{"run": "run", "number": {number}, "public": null}}'
        return SimpleNamespace(number=number, probabilities=None, to_json=lambda: text)

    def privacy(self, delta):
        return SimpleNamespace(
            epsilon=1.0, delta=0.0, left=0.0, unit="person", adjacency="replace", trust="x", simulation=True
        )


class World:
    """Everything, and what clients were told."""

    def __init__(self, seed, patch):
        self.luck = random.Random(seed)
        self.db = sqlite3.connect(":memory:", isolation_level=None)
        self.era, self.fuse, self.skew = 0, None, 0.0
        self.steps = 0
        self.held = False
        self.now = 1e9
        self.ledger, self.witness = Shelf(self, "ledger"), Shelf(self, "witness")
        self.disk = {"state": ([], {}, [], 0), "trail": None}
        self.learner = None
        self.workers = [None] * WORKERS
        # of what clients were told: the ids, and whose rewards were accepted since something went back
        self.ids, self.safe, self.people = {}, set(), 0
        self.closed = False
        self.steady = seed % 3 == 0  # nothing goes back in these
        self.released_ever, self.known = set(), {}
        self.restores = self.kills = self.releases = self.backwards = self.accepted = 0
        patch.setattr(store, "opened", self.opened)
        patch.setattr(tables, "opened", lambda where, create=False: self.opened(where))
        patch.setattr(learner, "amend", lambda *_: None)
        patch.setattr(learner, "terms_of", lambda *_: {})
        patch.setattr(learner, "log", _Silent)
        patch.setattr(lineage.Trail, "read", classmethod(lambda cls, path: self.read_trail(cls, path)))
        patch.setattr(lineage.Trail, "keep", lambda trail: self.keep_trail(trail))
        patch.setattr(operate, "trail_of", lambda path: path)
        patch.setattr(learner, "trail_of", lambda path: path)
        self.config = SimpleNamespace(
            database=Path("db"), checkpoint=Path("trail"), wait=None, default=0.0, curves=False, together=False,
            reference=(), open_policy=self.open_policy, witness="witness", ledger="ledger", label="run",
        )  # fmt: skip
        tables.create(Path("db"), {"run": "run"})
        with self.quietly():
            first = store.Store(Path("db"))
            with first.writing():
                first.note("learned", {"number": 0, "digest": lineage.begun(first.incarnation)})
        self.disk["trail"] = (first.incarnation, 0, [lineage.begun(first.incarnation)])
        self.copies = [self.copied()]

    # ------------------------------------------------------------------------------------------- the stand-ins

    def opened(self, where, create=False):
        database = Database(self)
        database._db, database._era = self.db, self.era
        return database

    @contextmanager
    def quietly(self):
        fuse, self.fuse = self.fuse, None
        try:
            yield
        finally:
            self.fuse = fuse

    def step(self):
        """A step of whoever runs, at which it may be killed."""
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise Unfinished
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse == 0:
                raise Killed

    def read_trail(self, cls, path):
        if self.disk["trail"] is None:
            raise FileNotFoundError
        return cls(path, *copy.deepcopy(self.disk["trail"]))

    def keep_trail(self, trail):
        self.step()
        self.disk["trail"] = trail.incarnation, trail.first, list(trail.digests), list(trail.marks)
        self.step()

    def save(self, state):
        self.step()
        self.disk["state"] = state
        self.step()

    def watch(self):
        return Watch("witness", self.witness, self.ledger)

    def open_policy(self):
        if self.held:
            raise BlockingIOError
        try:
            self.watch().check()
        except LedgerCorrupted as error:  # behind its witness, too
            raise Mismatch(str(error)) from None
        if len(self.ledger.entries) - 1 != self.disk["state"][3]:
            raise Mismatch("must be the newest state of its run")
        self.held = True
        return Policy(self, self.disk["state"])

    def mark(self, step, state):
        """Durable before anybody sees it: the mark, the witness, the state."""
        self.step()
        if step != len(self.ledger.entries):
            raise Violated("a mark that is not the next one")
        self.ledger.entries.append((step, "{}", f"{self.luck.random()}"))
        self.disk["state"] = state  # the draft with the marked digest is moved by whoever comes next
        self.step()
        self.watch().follow()

    # ------------------------------------------------------------------------------------------- the invariants

    def learns(self, person, value):
        if person is None:
            raise Violated(f"what person {value:g} sent was learned for a round that was erased")
        if value != float(person.split()[1]):
            raise Violated(f"what person {value:g} sent was learned for {person}")

    def publishes(self, number, batch):
        """Somebody may see it from now on."""
        self.releases += 1
        if len(self.witness.entries) <= number:
            raise Violated("a release that the witness has no mark of")
        for _, value in batch:
            if value in self.released_ever:
                raise Violated(f"what person {value:g} sent was released twice")
            self.released_ever.add(value)
        if number in self.known:
            raise Violated(f"release {number} was made twice")
        self.known[number] = batch

    def check(self):
        _, learned, _, _ = self.disk["state"]
        values = list(learned.values())
        if len(set(values)) < len(values):
            raise Violated("a reward was learned twice")

    def settle(self):
        """At the end: what was acknowledged since anything went back is learned."""
        if self.closed:
            return
        self.learner, self.held = None, False
        for _ in range(200):
            self.now += 6.0  # a lease runs out
            try:
                self.lead()
                while self.learner.step():
                    pass
                break
            except Mismatch:
                self.operator()
                if self.closed:
                    return
            except store.LeaseLost:
                self.learner = None
            except (OSError, LedgerCorrupted):  # it waits, and so does this
                return
        else:
            raise Violated("the service does not start again")
        missing = self.safe - set(self.disk["state"][1].values())
        if missing:
            raise Violated(f"rewards were acknowledged and are lost: {sorted(missing)}")

    # ------------------------------------------------------------------------------------------- what may happen

    def lead(self):
        if self.learner is None:
            self.learner = learner.Learner(self.config, clock=lambda: self.now)

    def work(self, number):
        """A worker that is connected, and confirmed; None if it is not."""
        if self.workers[number] is None:
            made = store.Store(Path("db"), clock=lambda: self.now)
            made.knock()
            self.workers[number] = made
        return self.workers[number]

    def decides(self):
        number = self.luck.randrange(WORKERS)
        worker = self.work(number)
        person, self.people = self.people, self.people + 1
        with worker.writing():
            if not worker.confirmed:
                return
            (id,) = worker.decide([Choice(0, None, np.ones(1), f"person {person}")], self.now, None)
        self.ids[id] = float(person)

    def rewards(self):
        if not self.ids:
            return
        worker = self.work(self.luck.randrange(WORKERS))
        id = self.luck.choice(list(self.ids))
        with worker.writing():
            if not worker.confirmed:
                return
            (status,) = worker.reward([(id, self.ids[id])], self.now, None)
        if status == "accepted":
            if self.ids[id] in self.safe:
                raise Violated("a reward was accepted twice")
            self.safe.add(self.ids[id])
            self.accepted += 1

    def learns_some(self):
        self.lead()
        self.learner.step()

    def copied(self):
        return _like(self.db), copy.deepcopy(self.disk), list(self.ledger.entries)

    def copies_all(self):
        self.copies.append(self.copied())

    def database_goes_back(self):
        """A standby is promoted that was behind: connections are gone, and the learner's disk is as new."""
        self.backwards += 1
        self.safe.clear()
        self.db = _like(self.luck.choice(self.copies)[0])
        self.era += 1
        self.learner, self.held = None, False
        self.workers = [None] * WORKERS

    def volume_goes_back(self):
        self.backwards += 1
        self.safe.clear()
        database, disk, entries = self.luck.choice(self.copies)
        self.db = _like(database)
        self.disk, self.ledger.entries = copy.deepcopy(disk), list(entries)
        self.era += 1
        self.learner, self.held = None, False
        self.workers = [None] * WORKERS

    def clock_jumps(self):
        self.now += self.luck.choice([-600.0, 3.0, 6.0, 600.0])

    def a_second_learner(self):
        with suppress(store.LeaseLost, BlockingIOError):
            second = learner.Learner(self.config, clock=lambda: self.now)
            second.close()

    def operator(self):
        """What the runbook says."""
        self.restores += 1
        self.learner, self.held = None, False
        self.watch().give_back()
        try:
            policy = self.open_policy()
        except Mismatch:
            self.closed = True  # burnt: nothing more is learned
            return
        try:
            operate._relearned(self.config, store.Store(Path("db"), clock=lambda: self.now), policy)
        finally:
            policy.run.release_hold()

    def play(self, steps):
        """A schedule; the invariants hold after every step."""
        acts = [self.decides] * 16 + [self.rewards] * 16 + [self.learns_some] * 12
        acts += [self.copies_all] * 3 + [self.clock_jumps, self.a_second_learner]
        if not self.steady:
            acts += [self.database_goes_back] * 2 + [self.volume_goes_back]
        for _ in range(steps):
            if self.closed:
                break
            act = self.luck.choice(acts)
            self.now += 0.3
            self.fuse = self.luck.randrange(1, 40) if self.luck.random() < 0.1 else None
            try:
                act()
            except Killed:
                self.kills += 1
                self.fuse = None
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK")
                self.learner, self.held = None, False
                self.workers = [None] * WORKERS
            except Mismatch:
                self.fuse = None
                self.learner, self.held = None, False
                with suppress(OSError):
                    self.operator()
            except (OSError, LedgerCorrupted, store.LeaseLost):
                self.learner, self.held = None, False
                self.workers = [None] * WORKERS
            self.fuse = None
            self.check()
        self.settle()


class _Silent:
    @staticmethod
    def error(*_):
        pass

    info = warning = error


def _like(db):
    """A copy of a database in memory."""
    made = sqlite3.connect(":memory:", isolation_level=None)
    db.backup(made)
    return made


def outcome(seed, patch, steps=80):
    """What became of a schedule: a world, or the violation with its seed."""
    world = World(seed, patch)
    try:
        world.play(steps)
    except Unfinished:
        raise Violated(f"seed {seed}: did not finish in {MOST_STEPS:,} steps") from None
    except Exception as error:
        raise Violated(f"seed {seed}: {error}") from error
    return world

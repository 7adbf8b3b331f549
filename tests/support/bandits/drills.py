"""Drills of what goes wrong with a service's storage, at moments drawn by a seed, as the runbooks say what to do then.

Everything is real but the processes: database, ledger, witness, checkpoint, trail, learner and commands. What a visitor
is, is in the arm that is shown to them and in their reward, so that the policy sees whether a reward came to the round
of somebody else; and the policy notes in which release each one's reward is, so that nobody's is in two.
"""

import random
import shutil
import sqlite3
from contextlib import closing, suppress

import numpy as np
from serving import SCOPES, TOKENS, clients_table, configured, drain

from accounting import Ledger
from dpbandits.policies import OnePassPrivateGLM
from dpbandits.serve import operate
from dpbandits.serve.clients import digest
from dpbandits.serve.database import Mismatch
from dpbandits.serve.learner import Learner, RunClosed
from dpbandits.serve.store import Choice, Store

VISITORS = 512
POLICY = 'class = "drills:Matching"\ndim = 3\nhorizon = 300\nfirst_batch = 5'


class Violated(AssertionError):
    """A drill has shown something that must not be."""


class Matching(OnePassPrivateGLM):
    """Notes of each visitor in which release the reward is, and how many rewards came to another one's round."""

    secret = ("sums", "number_of", "wrong")

    def __init__(self, dim, link="logistic", *, horizon, **options):
        self.number_of = np.zeros(VISITORS, dtype=np.int64)
        self.wrong = 0
        super().__init__(dim, link, horizon=horizon, **options)

    def learn(self, pending, reward):
        visitor = round(reward * VISITORS)
        self.wrong += abs(pending.arm[0] - reward) > 1e-9 or self.number_of[visitor] > 0
        self.number_of[visitor] = self.releases + 1
        super().learn(pending, reward)


class Service:
    """A service in a folder, its witness in another one, and what visitors were told."""

    def __init__(self, folder, seed):
        self.luck, self.home = random.Random(seed), folder / "home"
        self.elsewhere = folder / "elsewhere"
        self.home.mkdir()
        self.elsewhere.mkdir()
        storage = f'witness = "{self.elsewhere / "witness"}"'
        self.config = configured(self.home, policy=POLICY, storage=storage)
        self.ids, self.told, self.visitors = {}, set(), 0
        self.released = {}  # by number: what is public, and whose rewards are in it
        self.outcomes = []

    # ---------------------------------------------------------------------------------------------- what happens

    def goes_on(self, steps, learner=None):
        """Visitors come, and some rewards; now and then the learner takes a step."""
        with closing(Store(self.config.database, clock=lambda: 1e9)) as store:
            for _ in range(steps):
                with store.writing():
                    count = min(self.luck.randrange(1, 6), VISITORS - 1 - self.visitors)
                    news = range(self.visitors + 1, self.visitors + 1 + count)
                    arms = [np.array([one / VISITORS, 0.0, 0.0]) for one in news]
                    ids = store.decide([Choice(0, 0.5, arm) for arm in arms], 1e9, 300)
                self.visitors += count
                self.ids |= {one: id for one, id in zip(news, ids, strict=True) if not id.startswith("0-")}
                self.rewards(store, self.luck.sample(sorted(self.ids), min(4, len(self.ids))))
                if learner is not None and self.luck.random() < 0.5:
                    learner.step()
                    self.look(learner)

    def rewards(self, store, visitors):
        with store.writing():
            statuses = store.reward([(self.ids[one], one / VISITORS) for one in visitors], 1e9, None)
        for one, status in zip(visitors, statuses, strict=True):
            if status == "accepted":
                self.told.add(one)

    def look(self, learner):
        """What must hold whenever somebody looks."""
        policy = learner.policy
        if policy.wrong:
            raise Violated("a reward came to somebody else's round, or twice")
        for release in learner.store.history():
            number = release["number"]
            public = learner.store.released(number)
            whose = frozenset(np.flatnonzero(policy.number_of == number).tolist() if number else ())
            if number in self.released:
                if self.released[number][0] != public:
                    raise Violated(f"release {number} was made twice")
                continue
            again = {one for _, others in self.released.values() for one in others} & whose
            if again:
                raise Violated(f"what visitors {sorted(again)} sent was released again")
            self.released[number] = public, whose
        with Ledger.open(self.config.ledger, witness=self.config.witness) as ledger:
            mark = ledger.newest_mark(policy.run.id)
            if policy.releases and (mark is None or mark.step < policy.run.step):
                raise Violated("a release that the ledger has no mark of")

    def plays(self, steps):
        """The service runs, as far as it does; whether it does."""
        try:
            learner = Learner(self.config)
        except (Mismatch, RunClosed) as error:
            self.outcomes.append(str(error)[:60])
            return False
        with closing(learner):
            self.look(learner)
            self.goes_on(steps, learner)
            drain(learner)
            self.look(learner)
        return True

    def all_is_learned(self):
        """What was acknowledged, with nothing lost in between, is learned."""
        with closing(Learner(self.config)) as learner:
            drain(learner)
            self.look(learner)
            if missing := self.told - set(np.flatnonzero(learner.policy.number_of).tolist()):
                raise Violated(f"what visitors {sorted(missing)} sent was acknowledged and is lost")

    # ---------------------------------------------------------------------------------------------- copies

    def copy(self, *names):
        """Files of the volume as they are now, by their names; all by default."""
        with closing(sqlite3.connect(self.config.database)) as db:  # so that the file alone is the database
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        kept = self.elsewhere / f"copy-{self.luck.random()}"
        kept.mkdir()
        for path in self.files(*names):
            shutil.copy(path, kept / path.name)
        return kept

    def files(self, *names):
        found = [path for path in self.home.iterdir() if path.is_file() and path.name != "run.toml"]
        return [one for one in found if not names or any(name in one.name for name in names)]

    def put_back(self, kept, *names):
        """A copy takes the place of what is there."""
        for path in self.files(*names):
            path.unlink()
        for path in kept.iterdir():
            if not names or any(name in path.name for name in names):
                shutil.copy(path, self.home / path.name)
        with closing(sqlite3.connect(self.config.database, isolation_level=None)) as db:
            db.execute("DELETE FROM lease")  # it has run out

    def mends(self):
        """What the runbooks say; False if the run is at its end."""
        well, _ = operate.doctor(self.config)
        if well:
            return True
        self.told.clear()  # what came in between may be lost, as it is said
        try:
            operate.restore(self.config)
        except Mismatch as error:
            self.outcomes.append(f"burnt: {str(error)[:60]}")
            with suppress(Mismatch):
                operate.restore(self.config, burn=True)
            return False
        if not operate.doctor(self.config)[0]:
            raise Violated("restore has not mended what doctor found")
        return True


def failover(service):
    """A standby is promoted that was behind: the database goes back, and nothing else."""
    service.plays(service.luck.randrange(1, 8))
    kept = service.copy("service.database")
    service.plays(service.luck.randrange(0, 8))
    service.put_back(kept, "service.database")
    service.told.clear()
    if service.luck.random() < 0.5:  # workers that nothing keeps from writing, as a fault would let them
        service.goes_on(service.luck.randrange(1, 20))
    service.told.clear()
    if not service.mends() or not service.plays(5):
        raise Violated("a database that went back ends no run")
    service.all_is_learned()


def snapshot(service):
    """The whole volume goes back to one moment."""
    service.plays(service.luck.randrange(1, 8))
    kept = service.copy()
    service.plays(service.luck.randrange(0, 10))
    service.put_back(kept)
    service.told.clear()
    if service.mends() and service.plays(5):
        service.all_is_learned()


def volume_loss(service):
    """Some of the files are lost; of others there are copies of different age."""
    service.plays(service.luck.randrange(1, 6))
    old = service.copy()
    service.plays(service.luck.randrange(1, 6))
    newer = service.copy()
    service.plays(service.luck.randrange(0, 6))
    for name in ("service.database", "service.ledger", "service.checkpoint"):
        way = service.luck.choice(["stays", "stays", "old", "newer"])
        if way != "stays":
            service.put_back(old if way == "old" else newer, name)
    service.told.clear()
    if service.mends() and service.plays(5):
        service.all_is_learned()


def rotation(service):
    """Tokens are added, given out and taken away while clients ask; a file that is half written changes nothing."""
    path, luck = service.home / "run.toml", service.luck
    before = path.read_text(encoding="utf-8")
    tokens = {name: [token] for name, token in TOKENS.items()}
    callers = service.config.callers()

    def ask(token):
        callers._next = 0.0  # a second later
        found = callers.who({b"authorization": f"Bearer {token}".encode()}, now=0.0)
        return None if found is None else found.name

    old = set()
    for number in range(luck.randrange(3, 12)):
        name = luck.choice(sorted(SCOPES))
        if len(tokens[name]) > 1 or luck.random() < 0.4:
            old.add(tokens[name].pop(0) if len(tokens[name]) > 1 else "never-was")
        else:
            tokens[name].append(f"{name}-{number}")
        text = before
        for one, found in tokens.items():
            text = text.replace(f'["{digest(TOKENS[one])}"]', "[" + ", ".join(f'"{digest(t)}"' for t in found) + "]")
        if luck.random() < 0.3:
            known = {token: ask(token) for found in tokens.values() for token in found}
            path.write_text(luck.choice(["", text[:-1] + "[[", text.replace("sha256:", "", 1)]), encoding="utf-8")
            if known != {token: ask(token) for token in known}:
                raise Violated("a file that is half written has let somebody in or out")
        draft = service.home / "draft"
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
        for one, found in tokens.items():
            if {ask(token) for token in found} != {one}:
                raise Violated("a token that was given out is refused")
        if any(ask(token) for token in old):
            raise Violated("a token that was taken away is accepted")
    if clients_table(SCOPES) not in before:
        raise Violated("the drill rotates nothing")
    service.plays(4)
    service.all_is_learned()


def upgrade(service):
    """The database is of an earlier release, of any format; what was acknowledged before is learned after."""
    service.plays(service.luck.randrange(1, 8))
    service.goes_on(service.luck.randrange(0, 4))  # what no learner has seen
    format = service.luck.choice((2, 3, 4))
    with closing(sqlite3.connect(service.config.database, isolation_level=None)) as db:
        db.execute("ALTER TABLE rewards DROP COLUMN positions")
        db.execute(f"UPDATE facts SET value = '{format}' WHERE name = 'format'")
        if format < 4:
            db.execute("DROP TABLE events")
        if format < 3:
            db.execute("ALTER TABLE decisions DROP COLUMN digest")
            for name in ("digest", "incarnation", "knocks", "confirmed"):
                db.execute(f"ALTER TABLE counts DROP COLUMN {name}")
            db.execute("DELETE FROM facts WHERE name IN ('run', 'learned', 'contract', 'incarnations')")
    if format < 3:
        service.config.checkpoint.with_name("service.checkpoint.trail").unlink()
        service.ids = {one: "-".join(id.split("-")[:2]) for one, id in service.ids.items()}
    if service.plays(1):
        raise Violated("a database of an earlier release is served without a word")
    operate.adopt(service.config)
    if not service.plays(5):
        raise Violated("a database that was taken over is not served")
    service.all_is_learned()


DRILLS = {one.__name__: one for one in (failover, snapshot, volume_loss, rotation, upgrade)}


def drilled(name, folder, seed):
    """What became of a drill: how it ended."""
    service = Service(folder, seed)
    try:
        DRILLS[name](service)
    except Exception as error:
        raise Violated(f"{name}, seed {seed}: {type(error).__name__} {error}") from error
    return service

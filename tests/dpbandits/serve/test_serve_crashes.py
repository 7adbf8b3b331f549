"""A learner that dies before or after any step towards the disk: the next one goes on as if nothing had been."""

import json
import random

import pytest
from serving import Clock, configured, drain, filled, finished

from accounting import Ledger
from dpbandits.durability.journal import Journal
from dpbandits.serve import __main__ as process
from dpbandits.serve.database import Mismatch, Postgres, Sqlite
from dpbandits.serve.learner import Learner
from dpbandits.serve.store import Store
from dpkit.states import files

ROUNDS = 60
STEPS = [(Journal, "_append"), (Journal, "sync"), (files, "draft"), (files, "place"), (Ledger, "mark")]
STEPS += [(Store, name) for name in ("publish", "taken", "forget", "note")]
STEPS += [(Sqlite, "clear"), (Postgres, "clear")]


class Killed(BaseException):
    pass


class Fuse:
    """Counts the steps, half of them before and half of them after they are done, and dies at one of them."""

    def __init__(self, monkeypatch):
        self.left = None
        self.passed = 0
        for owner, name in STEPS:
            self._wrap(monkeypatch, owner, name)

    def _wrap(self, monkeypatch, owner, name):
        step = getattr(owner, name)

        def wrapped(*arguments, **keywords):
            self._burn()
            result = step(*arguments, **keywords)
            self._burn()
            return result

        monkeypatch.setattr(owner, name, wrapped)

    def _burn(self):
        self.passed += 1
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                raise Killed


def begun(folder, storage=""):
    """A service with the first checkpoint, before anything is served."""
    config = filled(folder, ROUNDS, storage)
    config.open_policy().run._hold.close()
    return config


def die(learner):
    """What the system does for a process that was killed; its lease stays."""
    learner.store.close()
    learner.policy.run._hold.close()


@pytest.mark.thorough
def test_a_learner_may_die_anywhere(tmp_path, monkeypatch, storage):
    fuse = Fuse(monkeypatch)
    monkeypatch.setattr("dpbandits.serve.learner.MOST_ERASED", 4)
    luck = random.Random(0)
    total = None
    for trial in range(8):
        folder = tmp_path / str(trial)
        folder.mkdir()
        config, clock = begun(folder, storage()), Clock()
        fuse.passed = 0
        deaths = 0
        while True:
            clock.now += 1000.0
            # the first trial counts the steps; the others die again and again on their way through them
            fuse.left = luck.randrange(1, total) if total and deaths < 3 else None
            learner = None
            try:
                learner = Learner(config, clock=clock)
                drain(learner)
                break
            except Killed:
                deaths += 1
                if learner is not None:
                    die(learner)
        fuse.left = None
        total = total or fuse.passed
        policy = learner.policy
        finished(config, learner)
        assert policy.releases > 2
        assert learner.store.rewards(9) == []
        made = policy.schedule.start(policy.releases)
        kept = "SELECT number FROM decisions WHERE number <= ? AND (rewarded = 1 OR arm IS NOT NULL)"
        assert learner.store.database.execute(kept, made).fetchall() == []
        learner.close()
        policy.run._hold.close()
    assert total > 100


def test_the_last_words_of_a_learner_hold_no_data(tmp_path, monkeypatch):
    def failing(*_):
        raise ValueError("reward 0.98765 of ann")

    monkeypatch.setattr("dpbandits.serve.learner.learn", failing)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with pytest.raises(SystemExit, match=r"^learner: ValueError in test_serve_crashes\.py, line \d+$"):
        process.learner(configured(tmp_path))


def test_a_second_release_of_one_number_is_refused(tmp_path):
    """Whoever puts another run's checkpoint beside the database cannot release with it."""
    config = begun(tmp_path)
    learner = Learner(config, clock=Clock(0.0))
    tree = json.loads(learner.policy.released().to_json())
    other = json.dumps(tree | {"run": "0" * 32})
    with pytest.raises(ValueError, match="release 0 must be made once, got a second one"), learner.leading():
        learner.store.publish(0, 0.0, 0, other, "{}")
    learner.close()
    for path in (config.ledger, config.checkpoint):
        for one in tmp_path.glob(f"*{path.name}*"):
            one.unlink()
    Ledger.create(config.ledger, config.budget).close()
    config.begin_policy().run._hold.close()
    with pytest.raises(Mismatch, match="must be of the checkpoint's run"):
        Learner(config, clock=Clock())


@pytest.mark.parametrize("early", [False, True])
def test_the_test_would_see_a_reward_that_was_deleted_too_early(tmp_path, early):
    learner = Learner(begun(tmp_path), clock=Clock())
    if early:
        with learner.leading():
            learner.store.taken(learner.store.rewards(999), None)
    drain(learner)
    assert learner.policy.learned.sum() == (0 if early else ROUNDS * 4 // 5)
    learner.close()

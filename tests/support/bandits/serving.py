"""A service for tests: its file, its tokens, its workers in this process, and a clock that is told the time."""

import json
import time
from contextlib import contextmanager, suppress

import numpy as np

from accounting import Ledger
from dpbandits.serve import operate, writer
from dpbandits.serve.clients import digest
from dpbandits.serve.config import Config
from dpbandits.serve.learner import Learner
from dpbandits.serve.store import Choice, Store

# a machine that stands still for some seconds is no database that is away
writer.PATIENCE = 60.0

TOKENS = {"decider": "token-of-a-decider", "learner": "token-of-a-learner", "owner": "token-of-the-owner"}
SCOPES = {"decider": ["decide", "read"], "learner": ["reward", "read"], "owner": ["own"]}


ONE_PASS = 'class = "OnePassPrivateGLM"\ndim = 3\nhorizon = 300'


def clients_table(scopes):
    tables = (
        f'[clients.{name}]\ntokens = ["{digest(TOKENS[name])}"]\nscopes = {json.dumps(found)}'
        for name, found in scopes.items()
    )
    return "\n".join(tables)


def written(folder, policy=ONE_PASS, unit="round", more="", epsilon=1.0, delta=1e-6, storage=""):
    lines = clients_table(SCOPES)
    path = folder / "run.toml"
    path.write_text(
        f'[policy]\n{policy}\n[budget]\nepsilon = {epsilon}\ndelta = {delta}\nunit = "{unit}"\n[storage]\n'
        f"{storage}\n{lines}\n{more}\n",
        encoding="utf-8",
    )
    return path


def configured(folder, **arguments):
    return begun(Config.read(written(folder, **arguments)))


def begun(config):
    """A service whose run has begun: now, if it had not."""
    with suppress(FileExistsError):
        operate.init(config)
    return config


def confirmed(config):
    """What the learner does for workers that have knocked, where a test has none that runs."""
    store = Store(config.database)
    with store.writing():
        store.confirm()
    store.close()


class Clock:
    def __init__(self, now=1e9):
        self.now = now

    def __call__(self):
        return self.now


class Browser:
    """Requests with a role's token, to an application in this process."""

    def __init__(self, client, config):
        self._client, self.config = client, config

    def send(self, method, path, role=None, **arguments):
        headers = {"Content-Type": "application/json"}
        if role is not None:
            headers["Authorization"] = f"Bearer {TOKENS[role]}"
        return self._client.request(method, path, headers=headers | arguments.pop("headers", {}), **arguments)

    def decide(self, *asked, **more):
        answer = self.send("POST", "/v1/decisions", "decider", json={"decisions": list(asked)} | more)
        assert answer.status_code == 200, answer.text
        return answer.json()["decisions"]

    def slates(self, *asked, **more):
        answer = self.send("POST", "/v1/slates", "decider", json={"slates": list(asked)} | more)
        assert answer.status_code == 200, answer.text
        return answer.json()["slates"]

    def activate(self, *tickets):
        answer = self.send("POST", "/v1/activations", "decider", json={"tickets": list(tickets)})
        assert answer.status_code == 200, answer.text
        return answer.json()["activations"]

    def reward(self, *pairs):
        rewards = [{"id": id, "reward": reward} for id, reward in pairs]
        answer = self.send("POST", "/v1/rewards", "learner", json={"rewards": rewards})
        assert answer.status_code == 200, answer.text
        return [one["status"] for one in answer.json()["rewards"]]


@contextmanager
def worker(config, **arguments):
    from starlette.testclient import TestClient

    from dpbandits.serve.app import create

    before = knocks(config)
    with TestClient(create(config, **arguments), raise_server_exceptions=False) as client:
        wait_until(lambda: knocks(config) > before)
        confirmed(config)
        yield Browser(client, config)


def knocks(config):
    store = Store(config.database)
    (found,) = store.database.execute("SELECT knocks FROM counts").fetchone()
    store.close()
    return found


@contextmanager
def served(config, clock=None):
    """A learner, and a worker that knows its first release."""
    learner = Learner(config, clock=clock)
    with worker(config, clock=clock) as browser:
        refresh(browser, 0)
        yield learner, browser
    learner.close()


def drain(learner):
    """Take in all that has come."""
    while learner.step():
        pass


def counting(rounds):
    """A policy that counts what it learns."""
    return f'class = "counting:Counting"\ndim = 3\nhorizon = {rounds}\nfirst_batch = 10'


def filled(folder, rounds, storage=""):
    """A service with decisions, and rewards of four in five of them, that no learner has seen."""
    config = configured(folder, policy=counting(rounds), storage=storage)
    store = Store(config.database)
    rng = np.random.default_rng(0)
    for _ in range(rounds // 5):
        with store.writing():
            ids = store.decide([Choice(0, 0.5, one) for one in np.eye(3)[rng.integers(3, size=5)]], 0.0, rounds)
        with store.writing():
            assert set(store.reward([(id, float(rng.random())) for id in ids[:4]], 0.0, None)) == {"accepted"}
    store.close()
    return config


def finished(config, learner):
    """All that was told is learned once, and every release is there once."""
    drain(learner)
    policy = learner.policy
    assert policy.learned.tolist() == [1, 1, 1, 1, 0] * (policy.horizon // 5)
    assert policy.releases == len(policy.schedule.ends) > 1
    history = learner.store.history()
    assert [one["number"] for one in history] == list(range(len(history)))
    assert [one["decisions"] for one in history] == [0, *policy.schedule.ends]
    assert learner.store.released(policy.releases) == policy.released().to_json()
    ledger = Ledger.open(config.ledger)
    assert ledger.epsilon(1e-6) <= 1.0
    assert ledger.newest_mark(policy.run.id).step == policy.releases
    ledger.verify()


def wait_until(true):
    """Until it is true, however slow the machine; for ever would hide that it never will be."""
    end = time.monotonic() + 120.0
    while not true():
        assert time.monotonic() < end, "it must become true"
        time.sleep(0.01)


def refresh(browser, number):
    """Wait until the worker knows a release."""

    def known():
        answer = browser.send("GET", "/healthz")
        return answer.status_code == 200 and answer.json()["release"] >= number

    wait_until(known)


def there(browser):
    """Wait until the worker's database answers, and is confirmed."""

    def true():
        found = browser.send("GET", "/healthz").json().get("database")
        if found == "unconfirmed":
            confirmed(browser.config)
        return found == "there"

    wait_until(true)

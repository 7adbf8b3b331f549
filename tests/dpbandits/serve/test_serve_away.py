"""A database that goes away and comes back, and clocks that jump: nothing is lost, and decisions go on."""

import os
import threading
import time

import numpy as np
import pytest
from postgres import on_server, running
from serving import TOKENS, Clock, configured, drain, refresh, served, there, wait_until, worker, written

from accounting import Ledger
from dpbandits.serve import operate
from dpbandits.serve.client import Client
from dpbandits.serve.config import Config
from dpbandits.serve.database import Unavailable
from dpbandits.serve.learner import Learner
from dpbandits.serve.store import LeaseLost, Store
from dpbandits.serve.supervise import Service

ARMS = np.eye(3).tolist()
# seconds for which the database is away in the slow test
AWAY = float(os.environ.get("AWAY", "60"))


@pytest.mark.thorough
def test_decisions_go_on_while_the_database_is_away(tmp_path):
    with running() as server:
        config = configured(tmp_path, storage=on_server(server))
        learner = Learner(config)
        with worker(config) as browser:
            refresh(browser, 0)
            before = browser.decide(*[{"arms": ARMS}] * 30)
            browser.reward(*((one["id"], 1.0) for one in before[:20]))
            drain(learner)
            number = learner.policy.releases
            refresh(browser, number)
            server.kill()
            found = browser.decide(*[{"arms": ARMS}] * 10)
            assert {(one["id"], one["release"], one["learned"]) for one in found} == {(None, number, False)}
            rewards = {"rewards": [{"id": before[20]["id"], "reward": 1.0}]}
            assert browser.send("POST", "/v1/rewards", "learner", json=rewards).status_code == 503
            tickets = {"tickets": [found[0]["ticket"]]}
            assert browser.send("POST", "/v1/activations", "decider", json=tickets).status_code == 503
            assert browser.send("GET", "/healthz").json() == {"release": number, "database": "away"}
            assert browser.send("GET", "/metrics").status_code == 503
            with pytest.raises(Unavailable):
                learner.step()
            learner.close()
            with pytest.raises(Unavailable):
                Learner(config)
            server.start()
            there(browser)
            late = browser.activate(*(one["ticket"] for one in found))
            assert {one["status"] for one in late} == {"accepted"}
            waiting = [one["id"] for one in before[20:]] + [one["id"] for one in late]
            assert set(browser.reward(*((id, 1.0) for id in waiting))) == {"accepted"}
            learner = Learner(config, clock=Clock(time.time() + 100.0))  # the lease of the first one has run out
            drain(learner)
            assert learner.policy.decisions == 40
            assert learner.policy.open_decisions == []
            learner.close()


@pytest.mark.thorough
def test_mark_and_release_are_one_transaction(tmp_path, postgres, monkeypatch):
    class Killed(BaseException):
        pass

    config = configured(tmp_path, storage=on_server(postgres))
    assert config.together
    learner = Learner(config)
    with worker(config) as browser:
        refresh(browser, 0)
        found = browser.decide(*[{"arms": ARMS}] * 20)
        browser.reward(*((one["id"], 1.0) for one in found))
        run = learner.policy.run.id
        seen = []

        def killed(self, *arguments):
            seen.append(self.database.execute("SELECT count(*) FROM releases").fetchone()[0])
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(Store, "note", killed)  # what comes after the release
            with pytest.raises(Killed):
                learner.step()
        assert seen == [2]  # it was written, in the transaction
        assert Ledger.open(config.ledger).newest_mark(run) is None
        assert learner.store.newest() == 0
        assert len(learner.store.database.execute("SELECT 1 FROM decisions WHERE arm IS NULL").fetchall()) == 0
        with pytest.raises(Exception, match="stopped at release 1"):
            learner.policy.released()
        learner.close()
        learner = Learner(config)
        drain(learner)
        assert learner.store.newest() == learner.policy.releases == 1
        assert Ledger.open(config.ledger).newest_mark(run).step == 1
        learner.close()


@pytest.mark.parametrize("jump", [1e7, -1e7, 40.0, -40.0])
def test_clocks_that_jump_change_no_release(tmp_path, jump):
    config = configured(tmp_path, more="[simulation]\nseed = 5")
    alone = config.probe()
    clock = Clock()
    with served(config, clock=clock) as (learner, browser):
        for part in range(6):
            clock.now += jump * (-1) ** part
            found = browser.decide(*[{"arms": ARMS}] * 10)
            assert set(browser.reward(*((one["id"], 1.0) for one in found))) == {"accepted"}
            for decision in [alone.register(np.eye(3), one["index"]) for one in found]:
                alone.update(decision, 1.0)
            drain(learner)
            # a second one, by a clock of its own, gets neither the lease nor the checkpoint
            with pytest.raises((LeaseLost, BlockingIOError)):
                Learner(config, clock=Clock(clock.now + 3.0))
    assert learner.policy.releases == alone.releases > 1
    np.testing.assert_array_equal(learner.policy.theta, alone.theta)


@pytest.mark.parametrize("learners", [2])
def test_of_two_learners_one_wins(tmp_path, storage, learners):
    """Whoever has the lease; and where clocks disagree about that, whoever holds the checkpoint."""
    config = configured(tmp_path, storage=storage())
    # no lease runs out meanwhile
    won, lost, together, clock = [], [], threading.Barrier(learners), Clock()

    def race():
        together.wait()
        try:
            won.append(Learner(config, clock=clock))
        except (LeaseLost, BlockingIOError) as error:
            lost.append(error)

    for _ in range(5):
        threads = [threading.Thread(target=race) for _ in range(learners)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(won), len(lost)) == (1, learners - 1)
        won.pop().close()
        lost.clear()


@pytest.mark.slow
def test_a_database_that_is_away_for_a_minute(tmp_path):
    """Real processes and a crowd that does not stop: every decision is answered, and every reward arrives once."""
    with running() as server:
        path = written(
            tmp_path,
            policy='class = "OnePassPrivateGLM"\ndim = 3\nhorizon = 100000',
            more="[service]\nport = 0",
            storage=on_server(server),
        )
        operate.init(Config.read(path))
        service = Service(path)
        thread = threading.Thread(target=service.run)
        thread.start()
        try:
            decider = Client(service.url, TOKENS["decider"], patience=30.0)
            teller = Client(service.url, TOKENS["learner"], patience=30.0)
            ids, tickets, slowest = [], [], 0.0
            begun = time.monotonic()
            end = begun + AWAY + 20.0
            killed = started = False
            while time.monotonic() < end:
                since = time.monotonic() - begun
                if since > 10.0 and not killed:
                    killed = not server.kill()
                if since > 10.0 + AWAY and not started:
                    started = not server.start()
                asked = time.monotonic()
                found = decider.decide({"arms": ARMS})
                if killed and not started:
                    slowest = max(slowest, time.monotonic() - asked)
                for one in found:
                    (tickets if one["id"] is None else ids).append(one["ticket"] if one["id"] is None else one["id"])
                time.sleep(0.02)
            wait_until(lambda: decider.send("GET", "/healthz")["database"] == "there")
            for start in range(0, len(tickets), 50):
                ids += [one["id"] for one in decider.activate(*tickets[start : start + 50])]
            for start in range(0, len(ids), 50):
                assert set(teller.reward(*((id, 1.0) for id in ids[start : start + 50]))) == {"accepted"}
            wait_until(lambda: Client(service.url, TOKENS["owner"]).send("GET", "/v1/privacy")["decisions"] == len(ids))
            time.sleep(3.0)
        finally:
            service.stop()
            thread.join()
        print(f"{len(tickets)} decisions by tickets, slowest {1000 * slowest:.0f} ms; {len(ids)} rewards")
        assert len(tickets) > AWAY  # as many as a machine that does much else makes
        learner = Learner(Config.read(path), clock=Clock(time.time() + 100.0))
        drain(learner)
        assert learner.policy.decisions == len(ids)
        assert learner.policy.open_decisions == []
        learner.close()

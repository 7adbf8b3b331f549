"""A commit whose answer does not come: it may have happened, may still happen, or never will, and nobody assumes any.

A wire between service and database holds, cuts or delays it; nothing here depends on how long anything takes.
"""

import threading
import time
from contextlib import suppress

import numpy as np
import psycopg
import pytest
from postgres import on_server
from serving import Clock, configured, counting, drain, filled, finished, refresh, there, worker
from wire import wired

from dpbandits.serve import writer
from dpbandits.serve.learner import Learner, learn
from dpbandits.serve.store import Choice, LeaseLost, Store
from dpkit.states import RunStopped

ARMS = np.eye(3).tolist()
COMMIT = b"COMMIT\0"  # and not COMMITTED


@pytest.fixture
def wire(postgres, monkeypatch):
    # else statements would go by numbers, and could not be told apart
    monkeypatch.setattr("psycopg._preparing.PrepareManager.prepare_threshold", None)
    with wired(postgres) as found:
        yield found


def rows(store):
    return store.database.execute("SELECT number, token, arm IS NOT NULL FROM decisions ORDER BY number").fetchall()


SLATES = {"policy": 'class = "SlatePrivateGLM"\ndim = 3\nk = 2\nhorizon = 300'}


@pytest.mark.parametrize("slates", [False, True])
@pytest.mark.parametrize("patient", [False, True])
@pytest.mark.parametrize(("through", "answered"), [(True, True), (True, False), (False, False)])
def test_a_ticket_of_a_decision_that_may_be_written_makes_one_round_of_it(
    tmp_path, postgres, wire, monkeypatch, through, answered, patient, slates
):
    """Else one visit is two rounds of a person, and the budget holds for one."""
    (wire, by_wire) = wire
    storage, policy = on_server(postgres), SLATES if slates else {}
    direct = configured(tmp_path, storage=storage, **policy)
    learner = Learner(direct)
    found = []
    with worker(configured(tmp_path, storage=by_wire(storage), **policy)) as browser:
        refresh(browser, 0)
        held = wire.at(COMMIT)
        asked = {"names": ["a", "b", "c"], "arms": ARMS} if slates else {"arms": ARMS}
        ask = browser.slates if slates else browser.decide
        asking = threading.Thread(target=lambda: found.extend(ask(asked, asked)))
        asking.start()
        held.wait()
        if not patient:
            with monkeypatch.context() as patch:
                patch.setattr(writer, "PATIENCE", 0.0)
                asking.join()  # with tickets, while the commit is on its way
        held.go(through=through, answered=answered)
        asking.join()
    assert [one["id"] is None for one in found] == [not (patient and answered)] * 2
    assert [len(one["slate"]) for one in found if slates] == [2] * 2 * slates
    if patient and answered:
        learner.close()
        return
    # by another worker, which waits for that commit, whatever becomes of it
    with worker(direct) as browser:
        refresh(browser, 0)
        tickets = [one["ticket"] for one in found]
        made = browser.activate(*tickets, tickets[0])
        assert [one["status"] for one in made] == ["accepted", "accepted", "duplicate"]
        assert browser.activate(*tickets) == [one | {"status": "duplicate"} for one in made[:2]]
        assert [int(one["id"].partition("-")[0]) for one in made] == [1, 2, 1]
        assert set(browser.reward(*((one["id"], [0.0, 1.0] if slates else 1.0) for one in made[:2]))) == {"accepted"}
    assert learner.store.decided() == 2
    drain(learner)
    assert learner.policy.decisions == 2
    assert learner.policy.open_decisions == []
    learner.close()


def test_whoever_is_turned_away_before_the_commit_is_not_in_it(tmp_path, monkeypatch):
    config = configured(tmp_path)
    learner = Learner(config)
    decide, begun, go = Store.decide, threading.Event(), threading.Event()

    def slow(self, *arguments):
        found = decide(self, *arguments)
        begun.set()
        assert go.wait(60.0)
        return found

    monkeypatch.setattr(Store, "decide", slow)
    found = []
    with worker(config) as browser:
        refresh(browser, 0)
        asking = threading.Thread(target=lambda: found.extend(browser.decide({"arms": ARMS})))
        asking.start()
        assert begun.wait(60.0)
        with monkeypatch.context() as patch:
            patch.setattr(writer, "PATIENCE", 0.0)
            asking.join()
        go.set()
        there(browser)
        assert found[0]["id"] is None
        assert learner.store.decided() == 0
        (made,) = browser.activate(found[0]["ticket"])
        assert made["id"].startswith("1-")
    assert learner.store.decided() == 1
    learner.close()


def test_what_nobody_can_tell_any_more_is_not_written(tmp_path, storage):
    store = Store(configured(tmp_path, storage=storage()).database)

    def activated(token, maybe):
        with store.writing():
            return store.activate([Choice(0, None, np.ones(3), token=token, maybe=maybe)], 0.0, 100)

    with store.writing():
        ids = store.decide([Choice(0, None, np.ones(3))] * 4, 0.0, 100)
    tokens = [id.split("-")[1] for id in ids]
    with store.writing():
        store.reward([(ids[2], 1.0)], 0.0, None)
        store.forget(4, 0, 9)
    assert activated(tokens[0], 1) == [(ids[0], True)]  # it stands there
    assert activated(tokens[0], 1) == [(ids[0], False)]
    assert activated("ab", 2) == [(store.ids.made(5, "ab"), True)]  # another one has the number
    assert activated("ab", 2) == [(store.ids.made(5, "ab"), False)]
    assert activated("cd", 3) == [(None, False)]  # whose it was is erased
    assert activated("ef", 9) == [(store.ids.made(6, "ef"), True)]  # a number that nobody has got
    assert len(rows(store)) == 5
    store.close()


def waits(server):
    """Whether anybody waits for a lock on the server."""
    with psycopg.connect(server.url().partition("?")[0]) as connection:
        return connection.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()[0] > 0


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("through", [True, False])
def test_a_learner_that_takes_over_waits_for_a_mark_that_is_on_its_way(tmp_path, postgres, wire, together, through):
    """Its commit lies in the network, and its learner is dead: the next one sees what became of it, and goes on."""
    (wire, by_wire) = wire
    storage = on_server(postgres) if together else f'ledger = "{postgres.url()}"'
    config = filled(tmp_path, 40, storage)
    first = Learner(configured(tmp_path, policy=counting(40), storage=by_wire(storage)), clock=Clock())
    # a mark that is made in the transaction of a release, or by itself
    held = wire.at(COMMIT, after=b"INSERT INTO releases" if together else b'"mark"')
    failed = []

    def dies():
        try:
            drain(first)
        except OSError as error:
            failed.append(error)

    dying = threading.Thread(target=dies)
    dying.start()
    held.wait()
    held.cut_off_client()
    dying.join()
    assert len(failed) == 1
    # as the system does it for a process that is gone
    first.store.close()
    first.policy.run.release_hold()
    second = []

    def takes_over():
        while not second:
            with suppress(OSError):  # it has waited for long enough, and comes again
                second.append(Learner(config, clock=Clock(2e9)))

    taking_over = threading.Thread(target=takes_over)
    taking_over.start()
    while taking_over.is_alive() and not waits(postgres):
        time.sleep(0.01)
    assert second == []
    held.go(through=through, answered=False)
    taking_over.join()
    finished(config, second[0])
    second[0].close()


@pytest.mark.thorough
@pytest.mark.parametrize("together", [True, False])
def test_of_two_learners_whose_connections_are_cut_all_the_time_one_learns(
    tmp_path, postgres, wire, monkeypatch, together
):
    # so that most cuts hit one that does something: a lease that was cut off is soon over, and seldom asked for
    monkeypatch.setattr("dpbandits.serve.learner.LEASE", 1.0)
    monkeypatch.setattr("dpbandits.serve.learner.AGAIN", 0.03)
    (wire, by_wire) = wire
    storage = on_server(postgres)
    if not together:  # the ledger elsewhere
        storage = storage.split("\n")[0]
    config = filled(tmp_path, 40, storage)
    store = Store(config.database)
    stop = threading.Event()
    cut = configured(tmp_path, policy=counting(40), storage=by_wire(storage))

    def races():
        while not stop.is_set():
            with suppress(LeaseLost, RunStopped):  # as for a process that is started again
                learn(cut, stop)

    racing = [threading.Thread(target=races) for _ in range(2)]
    for one in racing:
        one.start()
    ends = config.probe().schedule.ends
    luck = np.random.default_rng(0)
    cuts = 0
    begun = time.monotonic()
    while (cuts < 8 or store.newest() < len(ends)) and time.monotonic() < begun + 300.0:
        time.sleep(luck.uniform(0.0, 0.1 * 1.2**cuts))  # so that a slow machine gets through, too
        wire.cut()
        cuts += 1
    stop.set()
    for one in racing:
        one.join()
    store.close()
    learner = Learner(config, clock=Clock(time.time() + 1000.0))
    finished(config, learner)
    learner.close()

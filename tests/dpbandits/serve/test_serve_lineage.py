"""State that goes back: a database, a volume, a ledger. Nothing is released twice, nobody charged for another."""

import json
import logging
import shutil
import sqlite3
import time
from contextlib import closing
from dataclasses import replace

import numpy as np
import psycopg
import pytest
from serving import Clock, configured, counting, drain, served, wait_until, worker, written

from accounting import Ledger
from dpbandits.serve import operate
from dpbandits.serve.config import Config
from dpbandits.serve.database import Mismatch
from dpbandits.serve.learner import Learner
from dpbandits.serve.lineage import Ids, Trail, linked, trail_of
from dpbandits.serve.store import Choice, Store, WentBack

ARMS = np.eye(3).tolist()
PERSONAL = 'class = "counting:Counting"\ndim = 3\nhorizon = 400\nfirst_batch = 10\nrounds_per_person = 1'


@pytest.fixture
def snapshot(tmp_path, request):
    """Take a copy of a service's database, and put it back."""

    def take(config):
        if not isinstance(config.database, str):
            copy = tmp_path / "snapshot"
            with closing(sqlite3.connect(config.database)) as source, closing(sqlite3.connect(copy)) as target:
                source.backup(target)

            def back():
                for end in ("-wal", "-shm"):
                    config.database.with_name(config.database.name + end).unlink(missing_ok=True)
                shutil.copy(copy, config.database)

            return back
        address, _, schema = config.database.partition("?schema=")
        with psycopg.connect(address, autocommit=True) as server:
            asked = "SELECT tablename FROM pg_tables WHERE schemaname = %s"
            tables = [name for (name,) in server.execute(asked, [schema]).fetchall()]
            kept = {}
            for name in tables:
                kept[name] = server.execute(f'SELECT * FROM "{schema}"."{name}"').fetchall()

        def back():
            with psycopg.connect(address) as server:
                for name, rows in kept.items():
                    server.execute(f'DELETE FROM "{schema}"."{name}"')
                    if rows:
                        marks = ", ".join(["%s"] * len(rows[0]))
                        server.cursor().executemany(f'INSERT INTO "{schema}"."{name}" VALUES ({marks})', rows)

        return back

    return take


def lapsed(config):
    """The lease of the learner that was there when the copy was made has run out."""
    with closing(sqlite3.connect(config.database, isolation_level=None)) as db:
        db.execute("DELETE FROM lease")


def people(first, last):
    return [{"arms": ARMS, "person": f"person {n}"} for n in range(first, last)]


@pytest.mark.thorough
def test_a_database_that_went_back_charges_nobody_for_another(tmp_path, storage, snapshot, caplog):
    """A standby is promoted that was 50 decisions behind; workers go on, and the same numbers are given out again."""
    config = configured(tmp_path, policy=PERSONAL, unit="person", storage=storage())
    with served(config) as (learner, browser):
        before = browser.decide(*people(0, 40))
        drain(learner)
        learner._renewed = 0.0  # a second later
        drain(learner)
        back = snapshot(config)
        lost = browser.decide(*people(40, 90))
        drain(learner)
        assert learner.policy.decisions == 90
    back()
    with worker(config) as browser:  # without a learner that has looked at it, this is what a fault would confirm
        again = browser.decide(*people(100, 160))
        assert [int(one["id"].split("-")[0]) for one in again] == list(range(41, 101))
        # an id of the history that is gone takes no reward of this one's rounds
        assert set(browser.reward(*((one["id"], 1.0) for one in lost))) == {"unknown"}
        assert set(browser.reward(*((one["id"], 1.0) for one in again))) == {"accepted"}
    with closing(Store(config.database)) as store, store.writing():
        store.database.execute("DELETE FROM lease")
    for _ in range(3):  # and the count, which has passed the learner's, heals nothing
        with pytest.raises(Mismatch, match=r"90 decisions, got .* with 100 and another history: it .* went back"):
            Learner(config)
    assert "the database has 100 decisions, and the learner knows 90 of another history" in caplog.text
    well, lines = operate.doctor(config)
    assert not well
    assert any("`dpbandits serve restore` mends it" in line for line in lines)
    (line,) = operate.restore(config)
    assert "the database had 100 decisions, of which 40 are surely" in line
    assert operate.doctor(config)[0]
    with served(config) as (learner, browser):
        assert learner.policy.learned.sum() == 0
        told = []
        for some in (before, lost, again):
            told += browser.reward(*((one["id"], 1.0) for one in some))
        assert told[:40] == ["accepted"] * 40
        assert set(told[40:]) <= {"closed", "unknown"}
        new = browser.decide(*people(200, 210))
        assert [int(one["id"].split("-")[0]) for one in new] == list(range(91, 101))
        assert set(browser.reward(*((one["id"], 1.0) for one in new))) == {"accepted"}
        drain(learner)
        assert np.flatnonzero(learner.policy.learned).tolist() == [*range(40), *range(90, 100)]
    assert operate.restore(config) == ["the database goes on from what was learned"]


def test_no_worker_writes_before_the_learner_has_looked(tmp_path, storage):
    config = configured(tmp_path, storage=storage())
    Learner(config).close()
    with worker(config) as browser:
        wait_until(lambda: browser.send("GET", "/healthz").json()["database"] == "there")
    # what a database remembers of earlier confirmations is older than the knock of whoever connects
    store = Store(config.database)
    store.knock()
    assert not store.is_confirmed()
    with store.writing():
        assert not store.confirmed
        store.confirm()
    assert store.is_confirmed()
    with store.writing():
        assert store.confirmed
    store.close()


def test_a_worker_that_is_not_confirmed_answers_with_tickets(tmp_path, monkeypatch):
    config = configured(tmp_path)
    with closing(Learner(config)) as learner:
        monkeypatch.setattr("serving.confirmed", lambda config: None)
        with worker(config) as browser:
            wait_until(lambda: browser.send("GET", "/healthz").json().get("database") == "unconfirmed")
            (one,) = browser.decide({"arms": ARMS})
            assert one["id"] is None
            assert (
                browser.send("POST", "/v1/activations", "decider", json={"tickets": [one["ticket"]]}).status_code == 503
            )
            assert learner.store.decided() == 0
            learner.step()  # which sees the knock
            wait_until(lambda: browser.send("GET", "/healthz").json()["database"] == "there")
            assert browser.activate(one["ticket"])[0]["status"] == "accepted"


def test_a_worker_notices_that_the_database_holds_less_than_it_has_seen(tmp_path, storage, snapshot):
    config = configured(tmp_path, storage=storage())
    back = snapshot(config)
    store = Store(config.database)
    with store.writing():
        store.decide([Choice(0, None, np.ones(3))] * 3, 0.0, None)
    store.database.close()
    back()
    seen, store = store._seen, Store(config.database)
    store._seen = seen  # the same process, by a new connection
    with pytest.raises(WentBack), store.writing():
        pass
    with store.database.writing():
        store.database.execute("UPDATE counts SET decisions = 3")
    with pytest.raises(WentBack), store.writing():  # as many, and others
        pass
    store.close()


# ------------------------------------------------------------------------------------------------------- ledger, volume


def volume(config, folder):
    """A copy of everything that is on the service's volume, and how to put it back."""
    kept = folder / "kept"
    kept.mkdir()
    for path in config.checkpoint.parent.iterdir():
        if path.is_file():
            shutil.copy(path, kept / path.name)

    def back():
        for path in config.checkpoint.parent.iterdir():
            if path.is_file() and not path.name.startswith("run.toml"):
                path.unlink()
        for path in kept.iterdir():
            shutil.copy(path, config.checkpoint.parent / path.name)

    return back


def released(learner, browser, number):
    """Go on until so many releases are made."""
    while learner.policy.releases < number:
        for one in browser.decide(*[{"arms": ARMS}] * 5):
            assert browser.reward((one["id"], 0.5)) == ["accepted"]
        drain(learner)


@pytest.mark.parametrize("witness", ["file", "server", None])
def test_a_volume_that_is_put_back_releases_nothing_again(tmp_path, witness, request):
    """Database, ledger and checkpoint all go back together, as of a release that three others have followed."""
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    places = {"file": str(elsewhere / "witness"), None: None}
    place = places[witness] if witness in places else request.getfixturevalue("postgres").url()
    storage = "" if place is None else f'witness = "{place}"'
    config = configured(home, policy=counting(400), storage=storage)
    with served(config) as (learner, browser):
        released(learner, browser, 1)
        browser.decide(*[{"arms": ARMS}] * 3)
        drain(learner)
        learner.store.database.clear()
        back = volume(config, tmp_path)
        released(learner, browser, 3)
        public = learner.policy.released().to_json()
        spent = Ledger.open(config.ledger).head
    back()
    lapsed(config)
    if witness is None:  # nobody can tell: this is what a witness is for
        Learner(config).close()
        return
    with pytest.raises(Mismatch, match=r"storage\.witness must be named"):
        Learner(replace(config, witness=None))
    with pytest.raises(Mismatch, match=r"holds \d+ entries, and its witness .* has seen \d+.*dpbandits serve restore"):
        Learner(config)
    with pytest.raises(Mismatch, match=r"newest state of its run.*With --burn the run ends"):
        operate.restore(config)
    assert Ledger.open(config.ledger, witness=place).head == spent  # what was released is charged again
    with pytest.raises(Mismatch, match="must be the newest state of its run"):
        Learner(config)
    lines = operate.restore(config, burn=True)
    assert "what was released stays, and so does its charge in the ledger" in lines
    assert not config.checkpoint.exists()
    store = Store(config.database)
    assert store.fact("closed")["reason"] == "its state went back behind its releases"
    assert [
        tuple(store.database.execute(f"SELECT count(*) FROM {name}").fetchone()) for name in ("decisions", "rewards")
    ] == [(0,), (0,)]
    assert store.history()[-1]["number"] < json.loads(public)["number"]
    store.close()


def test_a_volume_that_is_put_back_with_its_newest_checkpoint_goes_on(tmp_path):
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    config = configured(home, policy=counting(400), storage=f'witness = "{elsewhere / "witness"}"')
    with served(config) as (learner, browser):
        released(learner, browser, 1)
        learner.store.database.clear()
        back = volume(config, tmp_path)
        released(learner, browser, 3)
        here, learned = learner.policy.decisions, learner.policy.learned.sum()
    newest = {path.name: path.read_bytes() for path in home.glob("*service.checkpoint*") if path.is_file()}
    back()
    lapsed(config)
    for path in home.glob("*service.checkpoint*"):
        path.unlink()
    for name, data in newest.items():
        (home / name).write_bytes(data)
    lines = operate.restore(config)
    assert "entries again that it had forgotten" in lines[0]
    assert f"it goes on after {here}" in lines[1]
    with served(config) as (learner, browser):
        assert (learner.policy.decisions, learner.policy.learned.sum()) == (here, learned)
        released(learner, browser, 4)
        assert learner.policy.learned.max() == 1
    with Ledger.open(config.ledger, witness=config.witness) as ledger:
        assert ledger.newest_mark(learner.policy.run.id).step == learner.policy.run.step


def test_a_ledger_that_is_lost_does_not_begin_anew_beside_its_witness(tmp_path):
    config = configured(tmp_path, policy=counting(400), storage=f'witness = "{tmp_path / "witness"}"')
    for path in tmp_path.glob("service.*"):
        path.unlink()
    for _ in range(2):
        with pytest.raises(Mismatch, match=r"storage\.ledger: there is a witness .*Ledger\.restore"):
            operate.init(config)
        assert not config.ledger.exists()
    Ledger.restore(config.witness, config.ledger).close()
    assert len(Ledger.open(config.ledger, witness=config.witness).rows()) == 1


def test_the_ledgers_head_is_published_and_may_be_expected(tmp_path, storage, caplog):
    caplog.set_level(logging.INFO, "dpbandits.serve")
    config = configured(tmp_path, policy=counting(400), storage=storage())
    with served(config) as (learner, browser):
        released(learner, browser, 1)
        told = browser.send("GET", "/v1/privacy", "owner").json()["ledger"]
        with Ledger.open(config.ledger, expected_head=told["head"]) as ledger:
            assert 0 <= ledger.entries - told["entries"] <= 1
        shown = browser.send("GET", "/metrics").text
        assert f'dpbandits_ledger_entries{{head="{told["head"]}"}} {told["entries"]}' in shown
        assert f"head {told['head']}" in caplog.text
    Learner(replace(config, expected_head=told["head"])).close()
    with pytest.raises(Mismatch, match="does not contain the expected head"):
        Learner(replace(config, expected_head="ab" * 32))
    with pytest.raises(ValueError, match=r"storage\.expected_head must be 64 hexadecimal digits"):
        configured(tmp_path / "..", storage='expected_head = "abc"')


def test_nothing_is_made_but_by_init(tmp_path, storage):
    """A volume that is not mounted, and a path with a letter too many."""
    path = written(tmp_path, storage=storage())
    config = Config.read(path)
    for refused in (lambda: Learner(config), lambda: Store(config.database), config.open_policy):
        with pytest.raises(Mismatch, match="dpbandits serve init"):
            refused()
    assert [one.name for one in tmp_path.iterdir() if one.name != "run.toml"] == []
    assert not operate.doctor(config)[0]
    for name in ("database", "ledger", "checkpoint", "witness"):
        elsewhere = replace(config, **{name: tmp_path / "unmounted" / name})
        with pytest.raises(FileNotFoundError, match=rf"storage\.{name} must be in a folder that exists.*mkdir -p"):
            operate.init(elsewhere)
    assert [one.name for one in tmp_path.iterdir() if one.name != "run.toml"] == []
    lines = operate.init(config)
    assert "made the ledger" in lines[0]
    assert operate.doctor(config)[0]
    with pytest.raises(FileExistsError, match="there is a service"):
        operate.init(config)
    Learner(config).close()
    # one of the three is lost
    if not isinstance(config.ledger, str):
        config.ledger.rename(tmp_path / "moved")
        with pytest.raises(Mismatch, match="there is no ledger"):
            Learner(config)
        (tmp_path / "moved").rename(config.ledger)
    trail_of(config.checkpoint).unlink()
    with pytest.raises(Mismatch, match=r"service\.checkpoint\.trail must be beside its checkpoint, and is missing"):
        Learner(config)
    operate.restore(config)
    Learner(config).close()
    config.checkpoint.unlink()
    with pytest.raises(Mismatch, match="is its volume mounted"):
        Learner(config)


def test_a_mistake_in_the_file_burns_no_run(tmp_path):
    """`restore` said of anything that kept the checkpoint from being opened that its data were released already."""
    path = written(tmp_path)
    config = Config.read(path)
    operate.init(config)
    for wrong in (replace(config, expected_head="0" * 64), Config.read(written(tmp_path, policy=counting(400)))):
        with pytest.raises(Mismatch, match=r"expected head|must stay what the run was begun with") as refused:
            operate.restore(wrong, burn=True)
        assert "--burn" not in str(refused.value)
    assert operate.doctor(config)[0]
    operate.close(config)
    with pytest.raises(Mismatch, match="the run is closed already"):
        operate.restore(config, burn=True)


def killed(monkeypatch, place, name, work, *arguments):
    """Begin something, and be killed in place of a step."""

    def kill(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(place, name, kill)
        with pytest.raises(KeyboardInterrupt):
            work(*arguments)


@pytest.mark.parametrize("step", ["tables.create", "record", "Trail"])
def test_an_init_that_was_killed_is_finished_by_the_next(tmp_path, step, monkeypatch):
    """The budget was charged, and neither `init` nor `restore` made a run of it."""
    config = Config.read(written(tmp_path))
    place, name = (operate.tables, "create") if step == "tables.create" else (operate, step)
    killed(monkeypatch, place, name, operate.init, config)
    for tried in (Learner, operate.restore) if step == "record" else ():
        with pytest.raises(Mismatch, match=r"interrupted: call it again|must be beside"):
            tried(config)
    assert not operate.doctor(config)[0]
    operate.init(config)
    assert operate.doctor(config)[0]
    assert len(Ledger.open(config.ledger).rows()) == 1
    Learner(config).close()
    with pytest.raises(FileExistsError, match="there is a service"):
        operate.init(config)


# ------------------------------------------------------------------------------------------------------------ ids, time


def test_an_id_that_nobody_was_given_tells_nothing(tmp_path, storage, monkeypatch):
    """Whether a round's reward has come, or was released, or there is none: one answer, and nothing is looked up."""
    config = configured(tmp_path, policy=counting(400), storage=storage())
    with served(config) as (learner, browser):
        released(learner, browser, 1)
        found = browser.decide(*[{"arms": ARMS}] * 4)
        assert browser.reward((found[0]["id"], 1.0)) == ["accepted"]
        real = [one["id"] for one in found]
        guesses = [f"{n}-x" for n in (0, 1, 5, *(int(id.split("-")[0]) for id in real), 999)]
        guesses += [id[:-1] + ("0" if id[-1] != "0" else "1") for id in real]
        guesses += [f"{n}-{'-'.join(real[0].split('-')[1:])}" for n in (1, 2, 3)] + [f"0{real[0]}", real[0] + "é"]
        asked = []
        among = type(learner.store.database).among
        monkeypatch.setattr(
            type(learner.store.database),
            "among",
            lambda self, text, values: asked.append(values) or among(self, text, values),
        )
        assert browser.reward(*((one, 1.0) for one in guesses)) == ["unknown"] * len(guesses)
        assert [values for values in asked if values] == []
        # whoever has the id is told
        assert browser.reward((real[0], 1.0), (real[1], 1.0)) == ["duplicate", "accepted"]


def test_an_id_names_one_round_of_one_incarnation():
    ids = Ids("ab" * 32, [{"id": "one", "after": 0}, {"id": "two", "after": 50}])
    for number in (0, 1, 50, 51, 10**15):
        assert ids.read(ids.made(number, "beef"))[:2] == (number, "beef")
    old = Ids("ab" * 32, [{"id": "one", "after": 0}])
    assert ids.read(old.made(50, "beef")) is not None
    assert ids.read(old.made(51, "beef")) is None
    assert Ids("cd" * 32, [{"id": "one", "after": 0}]).read(old.made(50, "beef")) is None


def test_a_defaulted_round_is_told_as_such_by_the_databases_clock(tmp_path, storage, monkeypatch):
    """A learner's clock that is eleven minutes ahead gives no round up."""
    config = configured(tmp_path, storage=storage(), more="[rewards]\nwait = 60.0\ndefault = 0.0")
    with served(config) as (learner, browser):
        (one, other) = browser.decide({"arms": ARMS}, {"arms": ARMS})
        ahead = time.time
        monkeypatch.setattr(time, "time", lambda: ahead() + 660.0)
        learner._renewed = 0.0
        drain(learner)
        assert browser.reward((one["id"], 1.0)) == ["accepted"]
        assert learner.policy.open_decisions == [0, 1]
        drain(learner)
        assert learner.policy.open_decisions == [1]
        monkeypatch.undo()
        with learner.leading():
            assert learner.store.default(learner.store.now + 1.0, 0.0, 9) == 1
        assert browser.reward((other["id"], 1.0), (one["id"], 1.0)) == ["defaulted", "duplicate"]


def test_no_reward_is_defaulted_while_the_clocks_disagree(tmp_path, caplog, monkeypatch):
    config = configured(tmp_path, more="[rewards]\nwait = 1.0\ndefault = 0.0")
    clock = Clock()
    with served(config, clock=clock) as (learner, browser):
        browser.decide({"arms": ARMS})
        drain(learner)
        clock.now += 100.0
        dated = Store._dated

        def skewed(self, now):
            dated(self, now)
            self.skew = -660.0

        with monkeypatch.context() as patch:
            patch.setattr(Store, "_dated", skewed)
            drain(learner)
            assert "clock and this machine's differ by 660 s" in caplog.text
            assert learner.policy.open_decisions == [0]
        clock.now += 100.0
        drain(learner)
        assert learner.policy.open_decisions == []


# ------------------------------------------------------------------------------------------------------------- contract


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ("[rewards]\nwait = 60.0\ndefault = 1.0", "rewards.default"),
        ("[rewards]\nwait = 61.0\ndefault = 0.0", "rewards.wait"),
        ("", "rewards.wait"),
        ('[rewards]\nwait = 60.0\ndefault = 0.0\n[service]\nmode = "apprentice"', "service.mode"),
        ("[rewards]\nwait = 60.0\ndefault = 0.0\n[simulation]\nseed = 3", "simulation.seed"),
    ],
)
def test_what_a_run_was_begun_with_stays(tmp_path, more, name):
    configured(tmp_path, more="[rewards]\nwait = 60.0\ndefault = 0.0")
    changed = Config.read(written(tmp_path, more=more))
    with pytest.raises(Mismatch, match=f"{name} must stay what the run was begun with"):
        Learner(changed)
    well, lines = operate.doctor(changed)
    assert not well
    assert any(line.startswith("WRONG contract: ") for line in lines)


def test_what_may_change_is_written_down(tmp_path, caplog):
    configured(tmp_path)
    for _ in range(2):
        Learner(Config.read(written(tmp_path, more="[page]\ncurves = true"))).close()
    store = Store(tmp_path / "service.database")
    first, second = store.fact("contract")
    store.close()
    assert (first["version"], second["version"]) == (1, 2)
    assert (first["terms"]["page.curves"], second["terms"]["page.curves"]) == ("False", "True")
    assert "version 2 of the run's contract" in caplog.text


def test_a_worker_of_another_contract_writes_nothing(tmp_path, caplog):
    config = configured(tmp_path)
    Learner(config).close()
    other = Config.read(written(tmp_path, more="[rewards]\nwait = 60.0\ndefault = 1.0"))
    from starlette.testclient import TestClient

    from dpbandits.serve.app import create

    with TestClient(create(other), raise_server_exceptions=False):
        wait_until(lambda: "rewards.wait must stay what the run was begun with" in caplog.text)


# ------------------------------------------------------------------------------------------------ close, erase, earlier


def test_a_closed_run_keeps_nothing_raw(tmp_path, storage):
    config = configured(tmp_path, policy=PERSONAL, unit="person", storage=storage(), more="[page]\ncurves = true")
    with served(config) as (learner, browser):
        found = browser.decide(*people(0, 29))
        for one in found[:11]:
            browser.reward((one["id"], 0.5))
        number = learner.policy.released().number
    lines = operate.close(config)
    assert int(lines[0].rpartition(" ")[2]) > number  # the batch of ten that was due
    with closing(Store(config.database)) as store:
        for table in ("decisions", "rewards", "tickets", "curve", "apprentice"):
            assert store.database.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
        assert store.newest() == int(lines[0].rpartition(" ")[2])
        assert store.fact("privacy")["ledger"]["head"]
    assert [path.name for path in tmp_path.iterdir() if "checkpoint" in path.name] == [".service.checkpoint.lock"]
    for path in tmp_path.iterdir():
        assert b"person 2" not in path.read_bytes()
    with worker(config) as browser:
        wait_until(lambda: browser.send("GET", "/healthz").status_code == 200)
        (one,) = browser.decide(*people(50, 51))
        assert not one["learned"]
        assert browser.reward((found[20]["id"], 1.0)) == ["closed"]
    assert operate.doctor(config)[0]


def test_erasing_a_person_leaves_nothing_of_them_that_is_open(tmp_path, storage):
    config = configured(tmp_path, policy=PERSONAL, unit="person", storage=storage())
    with served(config) as (learner, browser):
        released(learner, browser_of(browser), 1)
        theirs, other = browser.decide({"arms": ARMS, "person": "ann"}, {"arms": ARMS, "person": "bob"})
        drain(learner)
        here = int(theirs["id"].split("-")[0]) - 1
        assert here in learner.policy.open_decisions
    journal = next(tmp_path.glob(".service.checkpoint.*.journal")).read_text()
    lines = operate.erase(config, "ann")
    assert lines[0].startswith("1 round of this person erased")
    assert "what was released stays" in lines[1]
    assert operate.erase(config, "Ann")[0].startswith("no round of this person is kept")
    with served(config) as (learner, browser):
        assert here not in learner.policy.open_decisions
        assert here + 1 in learner.policy.open_decisions
        assert browser.reward((theirs["id"], 1.0), (other["id"], 1.0)) == ["closed", "accepted"]
        drain(learner)
        assert learner.policy.learned[here] == 0
        assert learner.policy.learned[here + 1] == 1
    renewed = next(tmp_path.glob(".service.checkpoint.*.journal")).read_text()
    assert f'["d",{here},' in journal
    assert f'["d",{here},' not in renewed
    if not isinstance(config.database, str):
        assert b"ann" not in config.database.read_bytes()


class browser_of:  # noqa: N801
    """Each time other persons."""

    count = 0

    def __init__(self, browser):
        self.browser, self.reward = browser, browser.reward

    def decide(self, *asked):
        browser_of.count += len(asked)
        return self.browser.decide(*({"arms": ARMS, "person": f"n {browser_of.count - n}"} for n in range(len(asked))))


def earlier(config):
    """Make of a database one of the last format: what the release before this one has left."""
    with closing(sqlite3.connect(config.database, isolation_level=None)) as db:
        for statement in (
            "ALTER TABLE decisions DROP COLUMN digest",
            "ALTER TABLE rewards DROP COLUMN positions",
            *(f"ALTER TABLE counts DROP COLUMN {name}" for name in ("digest", "incarnation", "knocks", "confirmed")),
            "DELETE FROM facts WHERE name IN ('run', 'learned', 'contract', 'incarnations')",
            "UPDATE facts SET value = '2' WHERE name = 'format'",
            "DROP INDEX served",
            "CREATE INDEX served ON decisions (number) WHERE rewarded = 1",
        ):
            db.execute(statement)
    trail_of(config.checkpoint).unlink()


def test_a_run_of_an_earlier_release_is_taken_over_by_a_command(tmp_path, monkeypatch):
    config = configured(tmp_path, policy=counting(400))
    with served(config) as (learner, browser):
        old = [one["id"] for one in browser.decide(*[{"arms": ARMS}] * 6)]
        drain(learner)
        more = [one["id"] for one in browser.decide(*[{"arms": ARMS}] * 2)]  # not taken in yet
    short = ["-".join(id.split("-")[:2]) for id in [*old, *more]]
    earlier(config)
    with pytest.raises(Mismatch, match=r"of format 5, got .* of format 2: `dpbandits serve init run.toml --adopt`"):
        Learner(config)
    killed(monkeypatch, operate, "record", operate.adopt, config)
    operate.adopt(config)
    with pytest.raises(Mismatch, match="of format 2 to be adopted"):
        operate.adopt(config)
    assert operate.doctor(config)[0]
    with served(config) as (learner, browser):
        new = browser.decide({"arms": ARMS})[0]["id"]
        assert len(new.split("-")) == 3
        told = browser.reward(*((id, 0.5) for id in [*short, new]))
        assert told == ["accepted"] * 9
        assert browser.reward((f"{short[0]}x", 0.5), ("3-ab", 0.5)) == ["unknown"] * 2
        drain(learner)
        assert learner.policy.learned.sum() == 9


# ------------------------------------------------------------------------------------------------------------ the trail


def test_a_trail_follows_one_history(tmp_path):
    trail = Trail(tmp_path / "trail", "one", 5, ["ab"])
    first = linked("ab", 6, "x")
    rows = [(6, "x", first), (7, "y", linked(first, 7, "y"))]
    assert not trail.follow(4, rows)
    assert not trail.follow(5, [(6, "z", first)])
    assert not trail.follow(5, [(7, "x", first)])
    assert trail.follow(5, rows)
    trail.keep()
    again = Trail.read(trail.path)
    assert [again.at(n) for n in (4, 5, 6, 7, 8)] == [None, "ab", first, rows[1][2], None]
    assert again.follow(7, [])
    (tmp_path / "trail").write_text("{}")
    with pytest.raises(ValueError, match="must be a learner's trail"):
        Trail.read(tmp_path / "trail")


def test_the_last_words_of_a_refusal_reach_the_log(tmp_path, capsys, monkeypatch):
    from dpbandits.serve import __main__ as process
    from dpbandits.serve import supervise

    config = configured(tmp_path)
    earlier(config)
    monkeypatch.setattr(process.signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        process.learner(config)
    assert ended.value.code == supervise.MISFIT
    assert "learner: storage.database must be of format 5" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        process.worker(config, None)
    assert ended.value.code == supervise.MISFIT
    assert "worker: storage.database must be of format 5" in capsys.readouterr().err

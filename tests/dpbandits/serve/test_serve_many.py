"""Many runs in one service: each is what it is alone, and none keeps another from going on."""

import json
import os
import re
import shutil
import signal
import threading
import time
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from serving import TOKENS, Clock, clients_table, drain, wait_until
from typer.testing import CliRunner

from accounting import Ledger
from dpbandits.cli import app
from dpbandits.serve import operate
from dpbandits.serve.answers import Begin
from dpbandits.serve.app import create
from dpbandits.serve.client import Client
from dpbandits.serve.clients import digest
from dpbandits.serve.database import opened
from dpbandits.serve.learner import Learner
from dpbandits.serve.lineage import trail_of
from dpbandits.serve.many import front, pool
from dpbandits.serve.many.group import Group, Taken
from dpbandits.serve.many.pool import Pool
from dpbandits.serve.store import LeaseLost
from dpbandits.serve.supervise import Service

ARMS = np.eye(3).tolist()
POLICY = {"class": "OnePassPrivateGLM", "dim": 3, "horizon": 300}


def file_of(folder, epsilon=4.0, storage="", more="", clients=None):
    path = folder / "group.toml"
    table = clients_table(clients or {"decider": ["decide", "reward"], "owner": ["own"]})
    path.write_text(
        f"[runs]\nmost = 20\n[budget]\nepsilon = {epsilon}\ndelta = 1e-6\nunit = 'round'\n[storage]\n{storage}\n"
        f"{table}\n{more}\n"
    )
    return path


@pytest.fixture
def group(tmp_path):
    found = Group.read(file_of(tmp_path))
    found.init()
    return found


def described(epsilon=1.0, delta=1e-7, scope=None, **more):
    budget = {"epsilon": epsilon, "delta": delta} | ({} if scope is None else {"scope": scope})
    return {"policy": POLICY, "budget": budget, **more}


class Asked:
    def __init__(self, client):
        self._client = client

    def __call__(self, method, path, role=None, token=None, **more):
        token = TOKENS.get(role, token)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return self._client.request(method, path, headers=headers, **more)

    def begin(self, name, role="owner", **more):
        return self("POST", "/v1/runs", role, json={"name": name, **described(**more)})

    def state(self, name):
        found = {one["name"]: one for one in self("GET", "/v1/runs", "owner").json()["runs"]}
        return found[name]["state"]

    def decide(self, name, *asked, **more):
        body = {"decisions": list(asked or [{"arms": ARMS}])}
        answer = self("POST", f"/v1/runs/{name}/decisions", **({"role": "decider"} | more), json=body)
        return answer.json()["decisions"] if answer.status_code == 200 else answer.status_code

    def reward(self, name, *pairs):
        body = {"rewards": [{"id": id, "reward": value} for id, value in pairs]}
        answer = self("POST", f"/v1/runs/{name}/rewards", "decider", json=body)
        return [one["status"] for one in answer.json()["rewards"]]


@contextmanager
def learning(group, **more):
    """The learners of a group, in a thread."""
    found, stop = Pool(group, **more), threading.Event()

    def run():
        while not stop.is_set():
            stop.wait(min(found.turn(), 0.02))
        found.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()


@contextmanager
def served(group):
    from starlette.testclient import TestClient

    with TestClient(create(group), raise_server_exceptions=False) as client:
        yield Asked(client)


@pytest.fixture
def service(group, monkeypatch):
    monkeypatch.setattr(front, "_LOOK", 0.05)
    monkeypatch.setattr(pool, "_LOOK", 0.05)
    with learning(group) as learners, served(group) as ask:
        yield group, learners, ask


def test_runs_begin_decide_learn_and_end_each_for_itself(service):
    group, learners, ask = service
    assert ask("GET", "/v1/runs", "owner").json() == {"runs": []}
    for name in ("north", "south"):
        answer = ask.begin(name, scope=name)
        assert answer.status_code == 201, answer.text
        assert answer.json()["policy"] == "OnePassPrivateGLM"
        assert answer.json()["epsilon"] == 1.0
    wait_until(lambda: [ask.state(name) for name in ("north", "south")] == ["running"] * 2)
    decided = ask.decide("north", *[{"arms": ARMS}] * 50)
    assert ask.reward("north", *((one["id"], 1.0) for one in decided)) == ["accepted"] * 50
    # an id of one run is none of another's
    ask.decide("south")
    assert ask.reward("south", (decided[0]["id"], 1.0)) == ["unknown"]
    wait_until(lambda: ask("GET", "/v1/runs/north/privacy", "owner").json()["releases"] >= 1)
    told = {one["name"]: one for one in ask("GET", "/v1/runs", "owner").json()["runs"]}
    assert (told["north"]["decisions"], told["south"]["decisions"], told["south"]["releases"]) == (50, 1, 0)
    assert told["north"]["scope"] == "north"
    # each is a row in the ledger, with who began it; disjoint people compose in parallel
    ledger = group.open_ledger()
    assert [(row.label, row.scope, row.actor) for row in ledger.rows()] == [
        ("north", "north", "client owner"), ("south", "south", "client owner"),
    ]  # fmt: skip
    assert ledger.epsilon(1e-7) == pytest.approx(1.0, abs=1e-6)
    # one ends, the other goes on
    assert "the run is closed" in " ".join(ask("POST", "/v1/runs/north/close", "owner").json()["said"])
    assert ask.state("north") == "closed"
    assert ask("POST", "/v1/runs/north/close", "owner").status_code == 409
    assert ask.decide("north")[0]["learned"] is False
    assert ask.decide("south")[0]["learned"] is True
    wait_until(lambda: learners.gauges().get('rounds{run="south"}') == 2)
    # nobody is called because a run that has ended has no learner
    wait_until(lambda: 'leads{run="north"}' not in learners.gauges())


def test_a_run_s_clients_are_its_own_and_the_group_s_may_ask_all(service):
    _, _, ask = service
    clients = {"shop": {"tokens": [digest("of-the-shop")], "scopes": ["decide"]}}
    assert ask.begin("one", clients=clients).status_code == 201
    assert ask.begin("two").status_code == 201
    wait_until(lambda: ask.state("one") == ask.state("two") == "running")
    assert ask.decide("one", token="of-the-shop")[0]["learned"]
    assert ask.decide("one")[0]["learned"]
    assert ask.decide("two", role=None, token="of-the-shop") == 401
    asked = [
        (("GET", "/v1/runs", None), 401),
        (("GET", "/v1/runs", "decider"), 403),
        (("POST", "/v1/runs", "decider"), 403),
        (("POST", "/v1/runs/one/close", "decider"), 403),
        (("GET", "/v1/runs/none/privacy", None), 401),
        (("GET", "/v1/runs/none/privacy", "owner"), 404),
        (("GET", "/v1/runs/..%2f..%2fgroup/privacy", "owner"), 404),
        (("POST", "/v1/runs/none/close", "owner"), 404),
        (("PUT", "/v1/runs", "owner"), 405),
        (("GET", "/v1/privacy", "owner"), 404),
        (("GET", "/livez", None), 200),
        (("GET", "/readyz", None), 200),
        (("GET", "/v1/runs/one/readyz", None), 200),
        (("GET", "/v1/runs/one/", None), 200),
        (("GET", "/docs", None), 200),
    ]
    for (method, path, role), status in asked:
        assert ask(method, path, role).status_code == status, (method, path, role)
    assert ask("POST", "/v1/runs", None, token="of-the-shop", content=b"{").status_code == 401


def test_that_a_reward_came_is_told_to_the_owner_of_all_runs_alone(service):
    """Not to the owner of another run, nor to everybody where the run that it is for is not open."""
    _, _, ask = service
    clients = {"boss": {"tokens": [digest("of-the-boss")], "scopes": ["own"]}}
    assert ask.begin("one", clients=clients).status_code == 201
    more = {"rewards": {"wait": 60.0, "default": 0.0}, "features": {"seed": 1}}
    assert ask.begin("two", **more).status_code == 201
    wait_until(lambda: ask.state("one") == ask.state("two") == "running")
    ask.reward("two", ("unknown", 1.0))
    at = "/personalizer/v1.0/events/any/reward"
    assert ask("POST", f"/v1/runs/two{at}", "decider", json={"value": 1.0}).status_code == 204
    assert ask("POST", "/v1/runs/none/rewards", "decider", json={}).status_code == 404
    told = [ask("GET", "/v1/runs/one/metrics", token=token).text for token in (None, "of-the-boss")]
    told += [ask("GET", "/metrics", token=token).text for token in (None, "of-the-boss", TOKENS["decider"])]
    assert all("dpbandits_" in one for one in told)
    assert [route for one in told for route in ("/reward", 'route="/v1/runs/{run}"') if route in one] == []
    owners = ask("GET", "/metrics", "owner").text
    assert all(f'route="{one}"' in owners for one in ("/v1/rewards", "/v1/runs/{run}"))
    assert "/events/{eventId}/reward" in owners


def test_a_request_for_a_run_that_is_not_open_makes_no_span(tmp_path, monkeypatch):
    from opentelemetry import trace

    class Tracer:
        def start_span(self, name, *_):
            names.append(name)
            return trace.INVALID_SPAN

    names: list[str] = []
    monkeypatch.setattr(trace, "get_tracer", lambda *_: Tracer())
    group = Group.read(file_of(tmp_path, more="[service]\ntraces = true"))
    group.init()
    with served(group) as ask:
        assert ask("GET", "/v1/runs", "owner").status_code == 200
        assert ask("POST", "/v1/runs/none/rewards", "decider", json={}).status_code == 404
    assert names == ["GET /v1/runs"]


def test_a_run_s_clients_are_changed_by_request(service, monkeypatch):
    _, _, ask = service
    monkeypatch.setattr("dpbandits.serve.clients._LOOK", 0.0)
    clients = {"shop": {"tokens": [digest("old")], "scopes": ["decide"]}}
    assert ask.begin("one", clients=clients).status_code == 201
    wait_until(lambda: ask.state("one") == "running")
    new = {"shop": {"tokens": [digest("new")], "scopes": ["decide"], "expires": "2099-01-01"}}
    assert ask.decide("one", role=None, token="old")[0]["learned"]
    wait_until(lambda: ask("PUT", "/v1/runs/one/clients", "owner", json={"clients": new}).status_code == 200)
    wait_until(lambda: ask.decide("one", role=None, token="old") == 401)
    assert ask.decide("one", role=None, token="new")[0]["learned"]
    # who asks for the same run again does not undo it, and all else of a run stays
    assert ask.begin("one", clients=clients).status_code == 201
    assert ask.decide("one", role=None, token="old") == 401
    for body, status in (
        ({"clients": {"owner": new["shop"]}}, 422),
        ({"clients": {"shop": {"scopes": ["decide"]}}}, 422),
        ({"clients": {"shop": {"tokens": ["pasted"], "scopes": ["decide"]}}}, 422),
        ({"clients": new, "policy": {}}, 422),
    ):
        answer = ask("PUT", "/v1/runs/one/clients", "owner", json=body)
        assert answer.status_code == status
        assert "pasted" not in answer.text
    assert ask("PUT", "/v1/runs/two/clients", "owner", json={"clients": {}}).status_code == 404
    assert ask("PUT", "/v1/runs/one/clients", "decider", json={"clients": {}}).status_code == 403
    assert ask.decide("one", role=None, token="new")[0]["learned"]
    # and all of them may go
    assert ask("PUT", "/v1/runs/one/clients", "owner", json={"clients": {}}).status_code == 200
    assert ask.decide("one", role=None, token="new") == 401
    assert ask.decide("one")[0]["learned"]


def test_a_proxy_names_clients_of_runs_and_of_the_group(tmp_path, monkeypatch):
    monkeypatch.setattr(front, "_LOOK", 0.05)
    found = Group.read(file_of(tmp_path, more=f'[proxy]\nsecret = "{digest("s")}"\n[clients.ann]\nscopes = ["read"]'))
    found.init()
    found.begin("one", described(clients={"shop": {"scopes": ["read"]}}))
    with served(found) as ask:
        wait_until(lambda: ask("GET", "/v1/runs/one/releases", "owner").status_code == 200)
        for secret, name, path, status in (
            ("s", "shop", "/v1/runs/one/releases", 200),
            ("s", "ann", "/v1/runs/one/releases", 200),
            ("s", "ann", "/v1/runs", 200),
            ("s", "shop", "/v1/runs", 401),
            ("x", "shop", "/v1/runs/one/releases", 401),
        ):
            headers = {"X-Proxy-Secret": secret, "X-Client": name}
            assert ask._client.get(path, headers=headers).status_code == status, (secret, name, path)


def test_what_is_refused_charges_nothing_and_leaves_nothing(service):
    group, _, ask = service
    assert ask.begin("first", epsilon=3.5).status_code == 201
    assert ask.begin("first", epsilon=3.5).status_code == 201  # the same again is no second one
    refused = [
        (ask.begin("first"), 409, "another description"),
        (ask.begin("second", epsilon=3.5), 409, "asks for"),
        (ask.begin("Second"), 422, "schema"),
        (ask.begin("second", policy=POLICY | {"dim": 0}), 422, "dim must be"),
        (ask.begin("second", policy=POLICY | {"class": "json:JSONDecoder"}), 422, "no other modules"),
        (ask.begin("second", policy=POLICY | {"class": "Uniform"}), 422, "must be a private policy"),
        (ask.begin("second", policy={"class": "PrivateArms", "arms": 1e308, "horizon": 9}), 422, "at most limits.arms"),
        (ask.begin("second", clients={"owner": {"tokens": [digest("x")], "scopes": ["read"]}}), 422, "other names"),
        (ask.begin("second", clients={"a": {"scopes": ["read"]}}), 422, "at least one"),
        (ask.begin("second", rewards={"wait": -1.0, "default": 0.0}), 422, "rewards.wait"),
    ]
    for answer, status, words in refused:
        assert answer.status_code == status, answer.text
        assert words in answer.text
    assert group.names() == ["first"]
    assert len(group.open_ledger().rows()) == 1


def test_a_ledger_or_a_folder_that_is_missing_is_not_made(group):
    group.begin("one", described())
    group.ledger.rename(group.ledger.with_name("elsewhere"))
    with pytest.raises(ValueError, match="there is no ledger"):
        group.begin("two", described())
    assert not group.ledger.exists()
    assert group.names() == ["one"]
    (group.folder / ".group").unlink()
    with pytest.raises(ValueError, match=r"runs\.folder must be that of a group.*is its volume mounted"):
        group.begin("two", described())


@pytest.mark.parametrize("step", ["dpbandits.serve.tables.create", "dpbandits.serve.lineage.Trail.keep"])
def test_a_beginning_that_was_interrupted_is_finished_by_the_same_request(group, monkeypatch, step):
    with monkeypatch.context() as patch:
        patch.setattr(step, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            group.begin("one", described())
    assert (group.names(), group.begun()) == (["one"], [])
    with pytest.raises(Taken):
        group.begin("one", described(epsilon=0.5))
    assert group.begin("one", described())
    assert not group.begin("one", described())
    assert group.begun() == ["one"]
    assert len(group.open_ledger().rows()) == 1
    Learner(group.config("one")).close()


@pytest.mark.thorough
def test_what_stops_one_run_stops_no_other(group, monkeypatch):
    """Its database went back, or its description was changed: it is refused, in words, and can be put right."""
    monkeypatch.setattr(pool, "_LOOK", 0.02)
    monkeypatch.setattr(pool, "_REFUSED", 0.2)
    for name in ("good", "behind", "changed"):
        group.begin(name, described(0.5))
    behind = group.config("behind").database
    copy = behind.read_bytes()
    with learning(group), served(group) as ask:
        wait_until(lambda: ask.state("behind") == "running")
        ask.decide("behind", *[{"arms": ARMS}] * 5)
        wait_until(lambda: ask("GET", "/v1/runs/behind/metrics").status_code == 200)
    config = group.config("behind")
    learner = Learner(config)
    drain(learner)
    assert learner.policy.decisions == 5
    learner.close()
    behind.write_bytes(copy)
    for more in ("-wal", "-shm"):
        behind.with_name(behind.name + more).unlink(missing_ok=True)
    description = group.folder / "changed" / "run.json"
    description.write_text(description.read_text().replace('"epsilon": 0.5', '"epsilon": 0.25'))
    with learning(group) as learners, served(group) as ask:
        wait_until(lambda: ask.state("good") == "running" and group.refused("behind") and group.refused("changed"))
        assert "must go on from what was learned" in group.refused("behind")
        assert "must stay what the run was begun with" in group.refused("changed")
        assert ask.state("behind") == "refused"
        assert learners.names() == ["good"]
        assert ask.decide("good")[0]["learned"]
        well, said = group.doctor()
        assert not well
        assert any(line.startswith("WRONG behind: learner:") for line in said)
        # put right while the other goes on, between two times that the pool looks whether it is

        def restored():
            found = CliRunner().invoke(app, ["serve", "restore", str(group.path), "--run", "behind"])
            assert found.exit_code == 0 or "a learner runs" in found.output, found.output
            return found.exit_code == 0

        wait_until(restored)
        wait_until(lambda: ask.state("behind") == "running")
        assert ask.decide("behind")[0]["id"].startswith("6-")


def test_runs_of_an_earlier_release_are_taken_over_by_one_command(group):
    for name in ("old", "new"):
        group.begin(name, described(0.5))
    with closing(opened(group.config("old").database)) as database, database.writing():
        database.execute("ALTER TABLE rewards DROP COLUMN positions")
        database.execute("UPDATE facts SET value = '4' WHERE name = 'format'")
    assert not group.doctor()[0]
    found = CliRunner().invoke(app, ["serve", "init", str(group.path), "--adopt"])
    assert (found.exit_code, "new: is of this release" in found.output) == (0, True), found.output
    assert group.doctor()[0]


@pytest.mark.thorough
def test_a_volume_that_is_put_back_releases_nothing_again_and_ends_only_what_must_end(tmp_path, monkeypatch):
    """Ledger and runs go back together: one run has released since, the other has not."""
    monkeypatch.setattr(pool, "_LOOK", 0.02)
    monkeypatch.setattr(pool, "_REFUSED", 0.1)
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    found = Group.read(file_of(home, storage=f'witness = "{elsewhere / "witness"}"'))
    found.init()
    for name in ("busy", "calm"):
        found.begin(name, described(0.5, policy=POLICY | {"first_batch": 5}))

    def plays(count):
        with learning(found) as learners, served(found) as ask:
            wait_until(lambda: ask.state("busy") == ask.state("calm") == "running")
            ids = [one["id"] for one in ask.decide("busy", *[{"arms": ARMS}] * count)]
            ask.reward("busy", *((id, 1.0) for id in ids))
            wait_until(lambda: learners.gauges().get('rounds{run="busy"}', 0) >= count)
            return learners.gauges()['releases{run="busy"}']

    before = plays(6)
    shutil.copytree(home, tmp_path / "copy")
    assert plays(60) > before
    shutil.rmtree(home)
    shutil.copytree(tmp_path / "copy", home)
    run = CliRunner().invoke
    with learning(found), served(found) as ask:
        wait_until(lambda: all("its witness" in found.refused(name) for name in ("busy", "calm")))
        wait_until(lambda: ask.state("busy") == ask.state("calm") == "refused")
    refused = run(app, ["serve", "restore", str(found.path), "--run", "busy"])
    assert refused.exit_code != 0
    assert "With --burn the run ends" in " ".join(refused.output.split())
    with learning(found), served(found) as ask:  # the ledger is whole again
        wait_until(lambda: ask.state("calm") == "running" and "newest state of its run" in found.refused("busy"))
        assert ask.decide("calm")[0]["learned"]
        assert run(app, ["serve", "restore", str(found.path), "--run", "busy", "--burn"]).exit_code == 0
        wait_until(lambda: ask.state("busy") == "closed")
        assert ask.decide("calm")[0]["learned"]
    assert found.doctor()[0]


def test_a_pool_shares_runs_and_takes_over_those_of_one_that_died(group, monkeypatch):
    monkeypatch.setattr(pool, "_LOOK", 0.0)
    names = ["a", "b", "c", "d", "e", "f"]
    for name in names:
        group.begin(name, described(0.1))
    clock = Clock(0.0)
    first, second = (Pool(group, number, 2, holder=f"holder-{number}", clock=clock) for number in (0, 1))
    for _ in names:
        first.turn()
        second.turn()
    assert sorted(first.names() + second.names()) == names
    assert first.names()
    assert second.names()
    # a lease keeps another one out, also where the first has let go of its checkpoint only
    mine = first.names()[0]
    with pytest.raises((LeaseLost, BlockingIOError)):
        Learner(group.config(mine))
    # the first dies: whoever is started in its place goes on at once, by its name in the leases
    for one in first._led.values():
        one.learner.policy.run.release_hold()
    again = Pool(group, 0, 2, holder="holder-0", clock=clock)
    for _ in names:
        again.turn()
    assert again.names() == first.names()
    # it ends for good: after a while the second has all
    again.close()
    clock.now += pool._OTHERS
    for _ in names:
        second.turn()
    assert second.names() == names
    second.close()


def test_a_paused_run_is_let_go(group, monkeypatch):
    monkeypatch.setattr(pool, "_LOOK", 0.0)
    group.begin("one", described())
    found = Pool(group)
    found.turn()
    assert found.names() == ["one"]
    monkeypatch.setattr("dpbandits.serve.many.group._LET_GO", 0.0)
    with pytest.raises(ValueError, match="must let go"), group.alone("one"):
        pass
    assert not group.paused("one")
    monkeypatch.undo()
    monkeypatch.setattr(pool, "_LOOK", 0.0)
    (group.folder / "one" / "paused").touch()
    found.turn()
    assert found.names() == []
    with group.alone("one") as config:
        Learner(config).close()
    # a command that was killed keeps nobody away for good
    mark = group.folder / "one" / "paused"
    mark.touch()
    clock = Clock(0.0)
    again = Pool(group, clock=clock)
    again.turn()
    assert again.names() == []
    os.utime(mark, (0, 0))
    clock.now += 1.0
    again.turn()
    assert again.names() == ["one"]
    again.close()
    found.close()


def test_idle_runs_are_looked_at_ever_more_rarely(group):
    for name in ("busy", "idle"):
        group.begin(name, described(0.5))
    clock = Clock(0.0)
    found = Pool(group, clock=clock)
    steps = {"busy": 0, "idle": 0}
    for _ in range(3):
        clock.now += 1.0
        found.turn()
    for name, one in found._led.items():
        step = one.learner.step

        def counted(name=name, step=step):
            steps[name] += 1
            step()
            return int(name == "busy")

        one.learner.step = counted
    for _ in range(1000):
        clock.now += 0.01
        found.turn()
    assert steps["busy"] > 150  # every twentieth of a second
    assert steps["idle"] < 25
    found.close()


def test_the_commands_of_a_group(tmp_path):
    path = file_of(tmp_path)
    run = CliRunner().invoke
    assert run(app, ["serve", "doctor", str(path)]).exit_code == 1
    found = run(app, ["serve", "init", str(path)])
    assert found.exit_code == 0, found.output
    assert "POST /v1/runs" in found.output
    assert run(app, ["serve", "init", str(path)]).exit_code != 0
    group = Group.read(path)
    group.begin("one", described(mode="apprentice"))
    assert group.config("one").apprentice
    assert run(app, ["serve", "doctor", str(path)]).exit_code == 0
    assert "--run must name a run" in run(app, ["serve", "close", str(path)]).output
    assert run(app, ["serve", "erase", str(path), "ann", "--run", "one"]).exit_code == 0
    assert run(app, ["serve", "close", str(path), "--run", "one"]).exit_code == 0
    assert not trail_of(group.config("one").checkpoint).exists()
    assert "closed" in run(app, ["serve", "doctor", str(path), "--run", "one"]).output


def test_a_group_s_file_is_read_strictly(tmp_path):
    for storage, more, message in (
        ("database = 'x'", "", "must be the address of a PostgreSQL database without a schema"),
        ("database = 'postgresql://h/d?schema=s'", "", "without a schema"),
        ("checkpoint = 'x'", "", "storage.checkpoint is no key"),
        ("", "[policy]\nclass = 'Experiment'", "policy is no key of the file"),
        ("", "[service]\nlearners = 0", "service.learners must lie in 1"),
        ("", "[service]\nlabel = 'x'", "service.label is no key"),
        ("", "[limits]\ndecisions = 0.5", "limits.decisions must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            Group.read(file_of(tmp_path, storage=storage, more=more))
    Ledger.create(tmp_path / "l", None).close()
    assert json.loads(json.dumps(described()))["policy"] == POLICY


def test_the_example_can_be_begun(tmp_path):
    examples = Path(__file__).resolve().parents[3] / "examples" / "serve"
    (tmp_path / "data").mkdir()
    path = tmp_path / "group.toml"
    path.write_text((examples / "group.toml").read_text())
    found = Group.read(path)
    found.init()
    body = Begin.model_validate_json((examples / "run.json").read_text())
    assert found.begin(body.name, body.described(), actor="client owner")
    config = found.config("homepage")
    assert (config.wait, config.scope, config.clients["website"].scopes) == (600.0, "website", {"decide", "reward"})


@pytest.mark.thorough
def test_runs_share_a_database(tmp_path, storage, monkeypatch):
    """In PostgreSQL each has a schema; a ledger in the same one has its marks in the transaction of the release."""
    monkeypatch.setattr(pool, "_LOOK", 0.02)
    places = dict(re.findall(r'^(\w+) = "(.*)"$', storage(), flags=re.MULTILINE))
    on_server = "database" in places
    lines = "\n".join(
        f'{name} = "{re.sub(r"[?&]schema=[a-z0-9_]+", "", place) if name == "database" else place}"'
        for name, place in places.items()
    )
    found = Group.read(file_of(tmp_path, storage=lines))
    found.init()
    for name in ("a-1", "a-2"):
        found.begin(name, described(scope=name))
    assert found.config("a-1").together is on_server
    with learning(found), served(found) as ask:
        wait_until(lambda: [ask.state(name) for name in ("a-1", "a-2")] == ["running"] * 2)
        for name, count in (("a-1", 60), ("a-2", 3)):
            decided = ask.decide(name, *[{"arms": ARMS}] * count)
            assert ask.reward(name, *((one["id"], 1.0) for one in decided)) == ["accepted"] * count
        wait_until(lambda: ask("GET", "/v1/runs/a-1/privacy", "owner").json()["releases"] >= 1)
        assert ask("GET", "/v1/runs/a-2/privacy", "owner").json()["decisions"] == 3
    with found.open_ledger() as ledger:
        ledger.verify()
        assert [row.label for row in ledger.rows()] == ["a-1", "a-2"]
        run = found.config("a-1").open_policy().run
        assert ledger.newest_mark(run.id).step >= 1
        run.release_hold()
    with found.alone("a-1") as config:
        assert "the run is closed" in " ".join(operate.close(config))
    assert found.doctor()[0]


@pytest.mark.slow
def test_a_client_of_one_run(tmp_path):
    """Real processes: begun, served, stopped within seconds; nothing that was answered is lost."""
    path = file_of(tmp_path, more="[service]\nport = 0\nworkers = 1\nadmin = 0")
    found = Group.read(path)
    found.init()
    service = Service(path)
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        owner = Client(service.url, TOKENS["owner"], patience=120.0)
        body = {"name": "one", **described(), "clients": {"shop": {"tokens": [digest("t")], "scopes": ["decide"]}}}
        assert owner.send("POST", "/v1/runs", body)["name"] == "one"
        decided = Client(service.url, "t", run="one", patience=120.0).decide(*[{"arms": ARMS}] * 7)
        teller = Client(service.url, TOKENS["decider"], run="one", patience=120.0)
        if decided[0]["id"] is None:  # the learner had not confirmed the database yet
            decided = teller.activate(*(one["ticket"] for one in decided))
        assert set(teller.reward(*((one["id"], 1.0) for one in decided))) == {"accepted"}
        figure = 'dpbandits_learner_rounds{run="one"} 7'
        wait_until(lambda: figure in service._board.text())
        text = service._board.text()
        assert text.count("# TYPE dpbandits_learner_rounds gauge") == 1
        # a learner that is killed: the one in its place goes on at once, by its name in the leases
        (learner,) = service.processes("learner")
        os.kill(learner, signal.SIGKILL)
        begin = time.monotonic()
        wait_until(lambda: service.processes("learner") not in ([], [learner]))
        (again,) = teller.decide({"arms": ARMS})
        wait_until(lambda: 'dpbandits_learner_rounds{run="one"} 8' in service._board.text())
        assert again["learned"]
        assert time.monotonic() - begin < 60.0  # two seconds, on a machine that stands still for none
    finally:
        service.stop()
        thread.join()
    learner = Learner(found.config("one"))
    drain(learner)
    assert (learner.policy.decisions, len(learner.policy.open_decisions)) == (8, 1)
    learner.close()

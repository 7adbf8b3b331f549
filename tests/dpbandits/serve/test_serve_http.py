"""One worker and one learner in this process: what requests do, and what is refused."""

import json
import logging
import re
import shutil
import sqlite3

import numpy as np
import pytest
from pydantic import ValidationError
from serving import Clock, configured, drain, refresh, served, there
from tabled import tabled

from accounting import Ledger
from dpbandits import Released
from dpbandits.lab.evaluate import ips, snips
from dpbandits.serve import endpoints, writer
from dpbandits.serve.apprentice import report, sums
from dpbandits.serve.client import Client
from dpbandits.serve.config import Mismatch
from dpbandits.serve.learner import Learner
from dpbandits.serve.messages import Asked, Rewards, Tickets, bounded
from dpbandits.serve.store import Choice, LeaseLost
from dpbandits.serve.tickets import punched, read

ARMS = np.eye(3).tolist()


@pytest.fixture
def service(tmp_path, storage):
    config = configured(tmp_path, storage=storage())
    with served(config) as (learner, browser):
        yield config, learner, browser


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory):
    """One for all tests in which nothing is decided."""
    with served(configured(tmp_path_factory.mktemp("unchanged"))) as found:
        yield found


def test_the_whole_way(service):
    config, learner, browser = service
    for _ in range(6):
        found = browser.decide(*[{"arms": ARMS}] * 55)
        assert browser.reward(*((one["id"], 1.0) for one in found)) == [
            "accepted" if one["learned"] else "closed" for one in found
        ]
        drain(learner)
    # 330 were asked for; the horizon is 300
    policy = learner.policy
    assert policy.decisions == 300
    assert policy.open_decisions == []
    assert policy.releases == len(policy.schedule.ends)
    refresh(browser, policy.released().number)
    assert browser.decide({"arms": ARMS})[0]["learned"] is False
    # the total is the budget, and what is public is what the policy says
    told = browser.send("GET", "/v1/privacy", "owner").json()
    assert told["spent"]["epsilon"] == pytest.approx(1.0, abs=1e-9)
    assert Ledger.open(config.ledger).epsilon(1e-6) <= 1.0
    text = browser.send("GET", "/v1/released", "decider").text
    assert text == policy.released().to_json()
    assert Released.from_json(text).number == policy.releases
    history = browser.send("GET", "/v1/releases", "owner").json()["releases"]
    assert [one["decisions"] for one in history] == [0, *policy.schedule.ends]
    assert history[-1]["theta"] == policy.theta.tolist()


def test_decisions_say_with_which_probability(service):
    _, _, browser = service
    found = browser.decide(*[{"arms": ARMS}] * 100, *[])
    probabilities = [one["probability"] for one in found]
    assert probabilities == pytest.approx([1 / 3] * 100, abs=0.05)
    assert {one["release"] for one in found} == {0}
    body = {"decisions": [{"arms": ARMS}] * 90, "probabilities": False}
    found = browser.send("POST", "/v1/decisions", "decider", json=body).json()["decisions"]
    assert {one["probability"] for one in found} == {None}
    # three arms alike: one of them is missed with a chance of 3·(2/3)⁹⁰ < 1e-15
    assert {one["index"] for one in found} == {0, 1, 2}


def test_a_reward_counts_once(service):
    _, learner, browser = service
    first, second, third = (one["id"] for one in browser.decide(*[{"arms": ARMS}] * 3))
    assert browser.reward((first, 1.0), (first, 0.0)) == ["accepted", "duplicate"]
    assert browser.reward((first, 1.0)) == ["duplicate"]
    learner.step()
    assert browser.reward((first, 1.0), (second[:-1] + "x", 1.0), ("x", 0.0), ("9-9", 1.0)) == [
        "duplicate", "unknown", "unknown", "unknown"
    ]  # fmt: skip
    assert browser.reward((third, 1.0)) == ["accepted"]
    learner.step()
    assert learner.policy.open_decisions == [1]


def test_batches_hold_what_one_process_would_put_into_them(tmp_path):
    """However late the learner is, its sums are those of the policy that saw everything in order."""
    # a policy beside it, with the same seed
    config = configured(tmp_path, more="[simulation]\nseed = 5")
    alone = config.probe()
    rng = np.random.default_rng(0)
    with served(config) as (learner, browser):
        waiting = []
        for t in range(30):
            arms = rng.normal(size=(4, 4, 3))
            arms /= np.linalg.norm(arms, axis=-1, keepdims=True)
            found = browser.decide(*({"arms": one.tolist()} for one in arms))
            for one, answer in zip(arms, found, strict=True):
                waiting.append((answer["id"], alone.register(one, answer["index"])))
            rng.shuffle(waiting)
            told = [(*waiting.pop(), float(rng.random() < 0.5)) for _ in range(len(waiting) // 2)]
            assert set(browser.reward(*((id, reward) for id, _, reward in told))) == {"accepted"}
            for _, decision, reward in told:
                alone.update(decision, reward)
            if t % 7 == 0:
                learner.step()
        drain(learner)
        assert learner.policy.releases == alone.releases > 3
        np.testing.assert_array_equal(learner.policy.theta, alone.theta)
        assert sorted(learner.policy.open_decisions) == sorted(alone.open_decisions)


def test_missing_rewards_count_as_the_default_and_late_ones_not_at_all(tmp_path):
    clock = Clock()
    config = configured(tmp_path, more="[rewards]\nwait = 60.0\ndefault = 0.25\n[page]\ncurves = true")
    with served(config, clock=clock) as (learner, browser):
        told, untold = (one["id"] for one in browser.decide({"arms": ARMS}, {"arms": ARMS}))
        clock.now += 59.0
        assert browser.reward((told, 1.0)) == ["accepted"]
        learner.step()
        assert learner.policy.open_decisions == [1]
        clock.now += 1.0
        assert browser.reward((untold, 1.0)) == ["late"]
        learner.step()
        clock.now += 1.5
        learner.step()
        learner.step()
        assert learner.policy.open_decisions == []
        assert browser.reward((untold, 1.0)) == ["defaulted"]
        curve = browser.send("GET", "/v1/raw/curve", "owner").json()["curve"]
        assert [(one["rewards"], one["mean"]) for one in curve] == [(2, 0.625)]
        assert browser.send("GET", "/v1/raw/curve", "decider").status_code == 403


def test_an_apprentice_serves_the_old_rule_and_learns_from_it(tmp_path):
    config = configured(
        tmp_path,
        policy='class = "DisjointPrivateGLM"\ndim = 2\narms = ["a", "b", "c"]\nhorizon = 200',
        more="[service]\nmode = 'apprentice'",
    )
    with served(config) as (learner, browser):
        (found,) = browser.decide({"context": [0.5, -0.5], "chosen": 2, "probability": 0.25})
        assert (found["index"], found["probability"], found["learned"]) == (2, 0.25, True)
        assert found["bandit"] in (0, 1, 2)
        learner.step()
        assert learner.policy.waiting[0].index == 2
        for wrong in ({"context": [0.5, -0.5]}, {"context": [0.5, -0.5], "chosen": 3}, {"arms": ARMS, "chosen": 0}):
            answer = browser.send("POST", "/v1/decisions", "decider", json={"decisions": [wrong]})
            assert answer.status_code == 422


def test_what_an_apprentice_would_have_got(tmp_path):
    """The service's sums are those of the estimators on a log that is kept."""
    more = "[service]\nmode = 'apprentice'\n[page]\ncurves = true"
    config = configured(
        tmp_path, policy='class = "DisjointPrivateGLM"\ndim = 2\narms = ["a", "b", "c"]\nhorizon = 200', more=more
    )
    rng = np.random.default_rng(0)
    rows = []
    with served(config) as (learner, browser):
        for probability in (0.25, 0.5, None):
            asked = [{"context": [0.5, -0.5], "chosen": int(rng.integers(3))} for _ in range(60)]
            asked = [one if probability is None else one | {"probability": probability} for one in asked]
            found = browser.decide(*asked)
            told = [(one["id"], float(rng.random())) for one in found]
            browser.reward(*told)
            rows += [(one["bandit"] == one["index"], probability, r) for one, (_, r) in zip(found, told, strict=True)]
            learner.step()
        assert browser.send("GET", "/v1/raw/apprentice", "decider").status_code == 403
        *parts, whole = browser.send("GET", "/v1/raw/apprentice", "owner").json()["apprentice"]
    agreed, _, rewards = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    assert sum(part["rounds"] for part in parts) == whole["rounds"] == 180
    assert whole["agreement"] == pytest.approx(agreed.mean())
    assert 0.1 < whole["agreement"] < 0.6
    assert whole["incumbent"] == pytest.approx(rewards.mean())
    known = np.array([p for _, p, _ in rows if p is not None])
    target = agreed[: len(known)]
    for name, estimator in (("ips", ips), ("snips", snips)):
        same = estimator(rewards[: len(known)], known, target)
        assert whole["bandit"][name] == pytest.approx(same.value, rel=1e-9)
        assert whole["bandit"][f"{name}_error"] == pytest.approx(same.std_error, rel=0.02)
    assert whole["bandit"]["rounds"] == len(known)


def test_a_ticket_is_learned_once_it_is_activated(service):
    _, learner, browser = service
    first, second, third = browser.decide(*[{"arms": ARMS}] * 3, activate=False)
    assert {one["id"] for one in (first, second, third)} == {None}
    assert not any(one["learned"] for one in (first, second, third))
    learner.step()
    assert learner.policy.decisions == 0  # nothing is known of it
    (late,) = browser.activate(third["ticket"])
    assert (late["status"], late["learned"]) == ("accepted", True)
    same, new, twice = browser.activate(third["ticket"], first["ticket"], first["ticket"])
    assert (same["status"], same["id"]) == ("duplicate", late["id"])
    assert (new["status"], twice["status"]) == ("accepted", "duplicate")
    assert new["id"] == twice["id"] != late["id"]
    assert browser.reward((late["id"], 1.0)) == ["accepted"]
    learner.step()
    assert learner.policy.decisions == 2
    assert learner.policy.open_decisions == [1]
    assert browser.activate(third["ticket"])[0]["status"] == "duplicate"
    np.testing.assert_array_equal(learner.policy.waiting[1].arm, np.eye(3)[first["index"]])
    ticket = second["ticket"]
    changed = [ticket[:at] + ("B" if ticket[at] == "A" else "A") + ticket[at + 1 :] for at in (0, 10, 40, 80)]
    for wrong in (*changed, "x", "é", "A" * 400, ticket[:-4]):
        assert browser.activate(wrong) == [{"id": None, "status": "unknown", "learned": False}]


def test_persons_are_needed_where_they_are_protected_and_kept_nowhere_else(tmp_path):
    config = configured(tmp_path, unit="person")
    with served(config) as (learner, browser):
        for wrong in ({"arms": ARMS}, {"arms": ARMS, "person": "x" * 201}, {"arms": ARMS, "person": "\ud800"}):
            content = json.dumps({"decisions": [wrong]})
            answer = browser.send("POST", "/v1/decisions", "decider", content=content)
            assert answer.status_code == 422, wrong
        ids = [one["id"] for one in browser.decide(*[{"arms": ARMS, "person": "ann"}] * 3)]
        browser.reward(*((id, 1.0) for id in ids))
        learner.step()
        assert len(learner.policy.persons) == 1
    (tmp_path / "rounds").mkdir()
    config = configured(tmp_path / "rounds")
    with served(config) as (learner, browser):
        browser.decide({"arms": ARMS, "person": "ann"})
        assert learner.store.decisions(0, 9)[0][1].person is None


def test_raw_rows_are_forgotten_after_the_release_that_covers_them(service):
    _, learner, browser = service
    found = browser.decide(*[{"arms": ARMS}] * 100)
    browser.reward(*((one["id"], 1.0) for one in found[::2]))
    learner.step()
    covered = learner.policy.schedule.start(learner.policy.releases)
    assert 0 < covered < 100
    rows = learner.store.database.execute("SELECT number, rewarded, arm FROM decisions").fetchall()
    assert [n for n, rewarded, _ in rows if rewarded] == list(range(covered + 1, 101))[covered % 2 :: 2]
    assert all((arm is None) == (n <= covered) for n, _, arm in rows)
    assert learner.store.rewards(999) == []
    assert browser.reward((found[0]["id"], 1.0), (found[1]["id"], 1.0)) == ["closed", "accepted"]
    learner.step()
    assert 1 not in learner.policy.open_decisions


def test_roles(service):
    _, _, browser = service
    decision = {"json": {"decisions": [{"arms": ARMS}]}}
    reward = {"json": {"rewards": [{"id": "1-a", "reward": 1.0}]}}
    allowed = {
        ("POST", "/v1/decisions"): ({"decider"}, decision),
        ("POST", "/v1/rewards"): ({"learner"}, reward),
        ("POST", "/v1/activations"): ({"decider"}, {"json": {"tickets": ["x"]}}),
        ("GET", "/v1/released"): ({"decider", "learner", "owner"}, {}),
        ("GET", "/v1/privacy"): ({"decider", "learner", "owner"}, {}),
        ("GET", "/v1/releases"): ({"decider", "learner", "owner"}, {}),
    }
    for (method, path), (roles, arguments) in allowed.items():
        assert browser.send(method, path, **arguments).status_code == 401
        wrong = {"Authorization": "Bearer wrong"}
        assert browser.send(method, path, headers=wrong, **arguments).status_code == 401
        for role in ("decider", "learner", "owner"):
            assert browser.send(method, path, role, **arguments).status_code == (200 if role in roles else 403)
    for path in ("/", "/healthz", "/metrics", "/docs", "/openapi.json"):
        assert browser.send("GET", path).status_code == 200


@tabled(
    ("content", "status"),
    [
        (b"", 422),
        (b"{", 422),
        (b"[" * 100_000, 422),
        (b'{"decisions": []}', 422),
        (b'{"decisions": [{}]}', 422),
        (b'{"decisions": [{"arms": []}]}', 422),
        (b'{"decisions": [{"arms": [[1, 2], [1]]}]}', 422),
        (b'{"decisions": [{"arms": [[1, 1, 1]]}]}', 422),
        (b'{"decisions": [{"arms": [[NaN, 0, 0]]}]}', 422),
        (b'{"decisions": [{"arms": [[1e999, 0, 0]]}]}', 422),
        (b'{"decisions": [{"arms": [[1' + b"0" * 400 + b", 0, 0]]}]}", 422),
        (b'{"decisions": [{"arms": [[' + b"1" * 5000 + b", 0, 0]]}]}", 422),
        (b'{"decisions": [{"arms": [["1", 0, 0]]}]}', 422),
        (b'{"decisions": [{"arms": [[true, 0, 0]]}]}', 422),
        (b'{"decisions": [{"context": [1, 0, 0]}]}', 422),
        (b'{"decisions": [{"arms": [[1, 0, 0]], "chosen": 0}]}', 422),
        (b"\xff\xfe", 422),
        (b" " * 5_000_000, 413),
    ],
)
def test_bad_requests_are_clear_and_change_nothing(unchanged, content, status):
    learner, browser = unchanged
    answer = browser.send("POST", "/v1/decisions", "decider", content=content)
    # what is no JSON at all may be 400
    assert answer.status_code in ({status, 400} if status == 422 else {status})
    assert set(answer.json()) == {"error", "where"}
    assert learner.store.decided() == 0


def test_a_body_of_unknown_length_is_bounded_too(unchanged):
    _, browser = unchanged
    answer = browser.send("POST", "/v1/decisions", "decider", content=(b" " * 10_000 for _ in range(1000)))
    assert answer.status_code == 413


def test_one_learner_at_a_time(tmp_path):
    clock = Clock()
    config = configured(tmp_path)
    first = Learner(config, clock=clock)
    with pytest.raises(LeaseLost):
        Learner(config, clock=clock)
    clock.now += 100.0  # the lease has run out, but the first one still holds the checkpoint
    with pytest.raises(BlockingIOError):
        Learner(config, clock=clock)
    first.close()
    del first
    Learner(config, clock=clock).close()


def test_a_learner_without_its_lease_writes_nothing(service):
    _, learner, browser = service
    (found,) = browser.decide({"arms": ARMS})
    browser.reward((found["id"], 1.0))
    with learner.store.writing():
        learner.store.database.execute("UPDATE lease SET holder = 'another'")
    with pytest.raises(LeaseLost):
        learner.step()
    assert len(learner.store.rewards(9)) == 1


def test_nothing_of_a_request_is_written_anywhere_but_in_the_data(service, caplog, capfd, tmp_path, request):
    """Planted arms, rewards and persons are found in no error, metric, log, output or page; the database is data."""
    config, learner, browser = service
    caplog.set_level(logging.DEBUG)
    arm, reward, person = "0.123456789012", "0.98765432101", "planted-person"
    good = f'{{"decisions": [{{"arms": [[{arm}, 0, 0]], "person": "{person}"}}]}}'
    bad = [
        good.replace("[[", '[["x", '),
        good.replace(", 0, 0", ", 0"),
        good.replace(", 0, 0", ", 1, 1"),
        good.replace('"person"', f'"{person}"'),
        good[:-1],
        good.replace('"arms"', '"context"'),
    ]
    answers = [browser.send("POST", "/v1/decisions", "decider", content=text) for text in [good, *bad]]
    id = answers[0].json()["decisions"][0]["id"]
    sent = f'{{"rewards": [{{"id": "{id}", "reward": {reward}}}]}}'
    wrong = [sent.replace(reward, reward.replace("0.", "7.")), sent.replace('"id"', f'"{reward}"'), sent[:-2]]
    answers += [browser.send("POST", "/v1/rewards", "learner", content=text) for text in [sent, *wrong]]
    assert [one.status_code for one in answers if one.status_code >= 500] == []
    assert sum(one.status_code == 200 for one in answers) == 2
    learner.step()
    tickets = browser.send("POST", "/v1/activations", "decider", content=sent.replace("rewards", "tickets"))
    answers += [tickets, browser.send("GET", "/openapi.json"), browser.send("GET", "/docs")]
    paths = ("/metrics", "/healthz", "/v1/privacy", "/v1/releases", "/v1/released", f"/{person}?x={arm}")
    answers += [browser.send("GET", path, "owner") for path in paths]
    written = "".join(one.text + str(one.headers) for one in answers) + caplog.text.replace(f"/{person}?x={arm}", "")
    written = "\n".join(line for line in written.splitlines() if "HTTP Request" not in line)  # the client's own log
    shown = capfd.readouterr()
    for planted in (arm, reward[2:], person, "123456789", "98765432"):
        assert planted not in written + shown.out + shown.err
    # persons are not protected here, so that they are in no file either
    assert all(person.encode() not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    if isinstance(config.database, str):
        log = (request.getfixturevalue("postgres").folder / "log").read_text()
        assert log
        assert not any(planted in log for planted in (arm, reward[2:], person, "123456789", "98765432"))


@pytest.mark.parametrize("path", ["/docs", "/"])
def test_pages_load_nothing_from_elsewhere_and_hold_no_data(unchanged, path):
    _, browser = unchanged
    answer = browser.send("GET", path)
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    addresses = re.findall(r"""(?:https?:)?//[^\s"'`<]+""", answer.text)
    assert {one for one in addresses if "w3.org/2000/svg" not in one and not one.startswith("// ")} == set()
    if path == "/docs":
        assert all(name in answer.text for name in browser.send("GET", "/openapi.json").json()["paths"])
        return
    assert "<label" in answer.text
    assert "prefers-color-scheme: dark" in answer.text


def test_metrics_say_nothing_of_rewards_but_to_the_owner(service):
    _, _, browser = service
    before = browser.send("GET", "/metrics").text
    found = browser.decide({"arms": ARMS}, {"arms": ARMS})
    middle = browser.send("GET", "/metrics").text
    browser.reward((found[0]["id"], 1.0))
    after = browser.send("GET", "/metrics").text

    def counted(text):
        return [line for line in text.splitlines() if "/metrics" not in line]

    assert counted(before) != counted(middle) == counted(after)
    owners = browser.send("GET", "/metrics", "owner").text
    assert "dpbandits_rewards_waiting 1" in owners
    assert 'route="/v1/rewards"' in owners


@tabled("probability", [5e-324, 1e-200, 1e-160, 1e-12, 1.0])
@tabled("reward", [0.0, 1.0, -1e3])
def test_no_probability_makes_a_sum_that_is_no_number(probability, reward):
    """They stopped the learner for good, or the worker that was asked for the report."""
    added = sums(reward, 1, probability)
    assert np.isfinite(added).all()
    json.dumps(report(added), allow_nan=False)
    assert added[3] == (probability >= 1e-12)  # else it counts as unknown


def test_no_person_turns_others_away_and_an_error_inside_is_an_answer(tmp_path, monkeypatch):
    config = configured(tmp_path, unit="person")
    with served(config) as (_, browser):
        asked = {"decisions": [{"arms": ARMS, "person": "a\0b"}]}
        answer = browser.send("POST", "/v1/decisions", "decider", json=asked)
        assert (answer.status_code, answer.json()["error"]) == (422, "person must not hold the character NUL")

        def broken(*_, **__):
            raise ZeroDivisionError("of a person")

        monkeypatch.setattr(endpoints.Endpoints, "_drawn", broken)
        asked["decisions"][0]["person"] = "ab"
        answer = browser.send("POST", "/v1/decisions", "decider", json=asked)
        assert (answer.status_code, answer.json()["error"]) == (500, "an error inside the service")
        assert 'route="/v1/decisions",status="5xx"} 1' in browser.send("GET", "/metrics").text


@tabled(
    ("model", "name", "part"),
    [
        (Asked, "decisions", 1),
        (Asked, "decisions", {"arms": [["a"] * 9] * 9}),
        (Rewards, "rewards", {}),
        (Tickets, "tickets", ""),
    ],
)
@tabled("count", [9, 100])
def test_the_first_error_of_a_list_is_enough(model, name, part, count):
    """Four megabytes of errors took twenty seconds, in which a worker answers nobody."""
    with pytest.raises(ValidationError) as caught:
        bounded(model, name, 10).model_validate_json(json.dumps({name: [part] * count}))
    assert caught.value.error_count() <= 2
    with pytest.raises(ValidationError, match="too_long"):
        bounded(Asked, "decisions", 10).model_validate_json(json.dumps({"decisions": [{}] * 11}))


@pytest.mark.parametrize("more", ["AAAA", "=", "\n", "*"])
def test_a_ticket_is_one_text(more):
    key = "5e" * 32
    ticket = punched(Choice(0, 0.5, np.ones(1)), key)
    assert read(ticket, key).probability == 0.5
    assert read(ticket + more, key) is None
    assert read(more + ticket, key) is None


def test_a_decision_that_was_answered_with_a_ticket_is_not_written_as_well(tmp_path, monkeypatch):
    """Else one visit is two rounds, one of them with a default reward, and the budget holds for one."""
    monkeypatch.setattr(writer, "PATIENCE", 0.1)
    config = configured(tmp_path)
    with served(config) as (learner, browser):
        with learner.store.writing():  # a writer that takes long
            (found,) = browser.decide({"arms": ARMS})
        assert found["id"] is None
        monkeypatch.undo()  # what follows may take as long as it takes
        there(browser)
        assert learner.store.decided() == 0
        (made,) = browser.activate(found["ticket"])
        assert made["id"].startswith("1-")
        assert learner.store.decided() == 1


def test_a_database_that_is_older_than_the_checkpoint_is_refused(tmp_path):
    """Numbers were given twice, and rewards learned for the arms of others."""
    config = configured(tmp_path)
    copy = tmp_path / "copy"

    def decide():
        with served(config) as (learner, browser):
            browser.decide(*[{"arms": ARMS}] * 3)
            drain(learner)

    decide()
    with sqlite3.connect(config.database) as source, sqlite3.connect(copy) as target:
        source.backup(target)
    source.close()
    target.close()
    decide()
    for end in ("-wal", "-shm"):
        config.database.with_name(config.database.name + end).unlink(missing_ok=True)
    shutil.copy(copy, config.database)
    with pytest.raises(Mismatch, match=r"go on from what was learned, 6 decisions, got .* with 3 and another"):
        Learner(config)


def test_the_decisions_of_a_list_are_chosen_together_and_as_likely_as_one_by_one(tmp_path):
    """One shape or several; each has a draw of its own, and the first wrong one is named, and nothing written."""
    policy = 'class = "OnePassPrivateGLM"\ndim = 3\nhorizon = 300\nexploration = "inverse_gap"'
    config = configured(tmp_path, policy=policy)
    rng = np.random.default_rng(3)
    same = [{"arms": rng.dirichlet(np.ones(3), size=4).tolist()} for _ in range(60)]
    mixed = [{"arms": rng.dirichlet(np.ones(3), size=2 + i % 3).tolist()} for i in range(30)]
    with served(config) as (learner, browser):
        released = learner.policy.released()
        for asked in (same, mixed):
            found = browser.decide(*asked)
            for ask, one in zip(asked, found, strict=True):
                assert one["probability"] == pytest.approx(released.probability(ask["arms"], one["index"]))
            assert len({one["id"] for one in found}) == len(asked)
            assert len({one["index"] for one in found}) > 1
            quiet = browser.decide(*asked, probabilities=False)
            assert {one["probability"] for one in quiet} == {None}
        rows = [choice for _, choice, _ in learner.store.decisions(0, 90)]
        for ask, row in zip([*same, *same][:90], rows, strict=True):
            assert row.arm == pytest.approx(np.array(ask["arms"])[row.chosen])
        for wrong in ([[9.0, 0.0, 0.0]] * 4, [[1.0, 0.0]] * 4, [[1.0, 0.0, 0.0], [1.0]], [[0.1, 0.0, 0.0], [10**400]]):
            asked = [*same[:5], {"arms": wrong}, *same[:5]]
            before = learner.store.counts()
            answer = browser.send("POST", "/v1/decisions", "decider", content=json.dumps({"decisions": asked}))
            assert answer.status_code == 422
            assert answer.json()["where"][0].startswith("decisions.5")
            assert learner.store.counts() == before


def test_a_reward_of_a_decision_without_an_id_says_why_there_is_none():
    with pytest.raises(ValueError, match=r"activate\(ticket\).*its run has ended"):
        Client("http://127.0.0.1:9", "token").reward((None, 1.0))

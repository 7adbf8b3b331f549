"""Pages of several arms over HTTP: names go in and out, and clicks by position are learned once, whatever dies."""

import importlib.util
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from serving import TOKENS, Clock, begun, configured, drain, refresh, served, worker, written

from dpbandits import Released
from dpbandits.durability.journal import Journal
from dpbandits.serve import demo, operate
from dpbandits.serve.client import Client, Refused
from dpbandits.serve.config import Config, Mismatch
from dpbandits.serve.database import opened
from dpbandits.serve.learner import Learner
from dpbandits.serve.store import Choice, Store
from dpbandits.serve.supervise import Service
from dpbandits.serve.tickets import punched, read

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "serve"
NAMES = ["storm", "derby", "opera", "recipe", "gossip"]
SOUND = {"names": NAMES[:3], "arms": np.eye(3).tolist()}


def pages(examination='"cascade"', k=3, horizon=300):
    return f'class = "SlatePrivateGLM"\ndim = 3\nk = {k}\nhorizon = {horizon}\nexamination = {examination}'


def candidates(rng, count):
    arms = rng.normal(size=(count, 3))
    arms /= np.linalg.norm(arms, axis=1)[:, None]
    return {"names": [f"article {n}" for n in rng.permutation(count)], "arms": arms.tolist()}


def rows(asked, answer):
    """The arms that were shown."""
    return [asked["names"].index(name) for name in answer["slate"]]


@pytest.fixture
def service(tmp_path, storage):
    config = configured(tmp_path, policy=pages(), storage=storage())
    with served(config) as (learner, browser):
        yield config, learner, browser


@pytest.fixture(scope="module")
def lasting(tmp_path_factory):
    """One for all tests of refusals."""
    with served(configured(tmp_path_factory.mktemp("lasting"), policy=pages())) as found:
        yield found


# a run of one process beside the service, of the same seed: what it is told in order, the service learns in parts
@pytest.mark.thorough
@pytest.mark.parametrize("examination", ['"cascade"', "[1.0, 0.5, 0.25]"])
def test_the_service_learns_what_one_process_would(tmp_path, storage, examination):
    """Ragged candidates, clicks of several lengths, late ones, and a learner and a worker that are replaced midway."""
    config = configured(tmp_path, policy=pages(examination), storage=storage(), more="[simulation]\nseed = 5")
    alone, rng, waiting = config.probe(), np.random.default_rng(0), []
    for life in range(3):
        with served(config, Clock(1e9 + 1e4 * life)) as (learner, browser):
            refresh(browser, learner.policy.releases)
            for t in range(8):
                asked = [candidates(rng, count) for count in rng.integers(3, 9, size=4)]
                for one, answer in zip(asked, browser.slates(*asked), strict=True):
                    assert len(set(answer["slate"])) == 3
                    assert answer["learned"]
                    waiting.append((answer["id"], alone.register(one["arms"], rows(one, answer))))
                rng.shuffle(waiting)
                told = [(*waiting.pop(), (rng.random(rng.integers(0, 4)) < 0.4).astype(float).tolist()) for _ in "ab"]
                assert set(browser.reward(*((id, clicks) for id, _, clicks in told))) == {"accepted"}
                for _, decision, clicks in told:
                    alone.update(decision, clicks)
                if t % 3 == life:
                    learner.step()  # else the next learner finds them
            if life == 2:
                drain(learner)
                assert learner.policy.releases == alone.releases > 1
                np.testing.assert_array_equal(learner.policy.theta, alone.theta)
                np.testing.assert_array_equal(learner.policy.sums.batch, alone.sums.batch)
                assert sorted(learner.policy.open_decisions) == sorted(alone.open_decisions)


def test_what_is_shown_is_what_the_release_says(service):
    """Workers draw as a release does wherever it is."""
    *_, browser = service
    asked = {"names": NAMES, "arms": np.vstack([np.eye(3), [[0.6, 0.8, 0.0], [0.0, 0.6, -0.8]]]).tolist()}
    shown = [one["slate"] for _ in range(5) for one in browser.slates(*[asked] * 20)]
    assert {len(set(one)) for one in shown} == {3}
    assert {name for one in shown for name in one} == set(NAMES)
    released = Released.from_json(browser.send("GET", "/v1/released", "decider").text)
    own = [tuple(NAMES[i] for i in released.choose(asked["arms"]).indices) for _ in range(400)]
    first = [sum(one[0] == name for one in own) / 400 for name in NAMES]
    of_service = [sum(one[0] == name for one in shown) / 100 for name in NAMES]
    # |difference| of two frequencies: 6 standard errors of at most √(1/4·(1/100 + 1/400))
    assert np.abs(np.array(first) - of_service).max() < 6 * 0.056


def test_clicks_count_once(service):
    _, learner, browser = service
    first, second, third = (one["id"] for one in browser.slates(*[SOUND] * 3))
    assert browser.reward((first, [0.0, 1.0]), (first, [1.0])) == ["accepted", "duplicate"]
    learner.step()
    assert browser.reward((first, [0, 0, 0]), (second[:-1] + "x", [1.0]), ("x", []), ("9-9", [1.0])) == [
        "duplicate", "unknown", "unknown", "unknown"
    ]  # fmt: skip
    assert browser.reward((third, [])) == ["accepted"]  # nobody has looked
    drain(learner)
    assert learner.policy.open_decisions == [1]


@pytest.mark.parametrize(
    ("reward", "why"),
    [
        ([0, 0, 0, 1], "a list of at most k=3, one for each position that was seen"),
        ([0, 2], "in the policy's reward_range"),
        ([0, -1e-9], "in the policy's reward_range"),
        (1.0, "a list of at most k=3"),
        ([0, None], "not of the schema"),
        (None, "not of the schema"),
        (["1"], "not of the schema"),
        ([[1.0]], "not of the schema"),
        ([0.0] * 1001, "not of the schema"),
    ],
)
def test_wrong_clicks_are_refused_before_anything_is_written(lasting, reward, why):
    learner, browser = lasting
    first, second = (one["id"] for one in browser.slates(SOUND, SOUND))
    body = {"rewards": [{"id": first, "reward": [1.0]}, {"id": second, "reward": reward}]}
    answer = browser.send("POST", "/v1/rewards", "learner", json=body)
    assert answer.status_code == 422
    assert why in answer.json()["error"]
    assert any(one.startswith("rewards.1") for one in answer.json()["where"])
    assert learner.store.rewards(9) == []  # not the first one, either
    assert browser.reward((first, [1.0]), (second, [1.0])) == ["accepted"] * 2
    learner.step()


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"names": NAMES[:2], "arms": np.eye(3)[:2].tolist()}, "names must be k=3 or more"),
        ({"names": NAMES[:4], "arms": np.eye(3).tolist()}, "one for each arm"),
        ({"names": ["a", "b", "a"], "arms": np.eye(3).tolist()}, "all different"),
        ({"names": NAMES[:3], "arms": np.eye(4).tolist()[:3]}, "rows of 3 numbers"),
        ({"names": NAMES[:3], "arms": [[1, 0, 0], [0, 1, 0], [0, 0]]}, "rows of 3 numbers"),
        ({"names": NAMES[:3], "arms": (2 * np.eye(3)).tolist()}, "of norm at most 1"),
        ({"names": ["", "b", "c"], "arms": np.eye(3).tolist()}, "not of the schema"),
        ({"names": NAMES[:3]}, "not of the schema"),
        (SOUND | {"index": 1}, "not of the schema"),
        ({"names": [f"{n}" for n in range(1001)], "arms": [[1, 0, 0]] * 1001}, "at most 1000 arms"),
    ],
)
def test_wrong_candidates_are_refused_before_anything_is_written(lasting, asked, why):
    learner, browser = lasting
    before = learner.store.decided()
    answer = browser.send("POST", "/v1/slates", "decider", json={"slates": [SOUND, asked]})
    assert answer.status_code == 422
    assert why in answer.json()["error"]
    assert all(one.startswith("slates.1") for one in answer.json()["where"])
    assert "storm" not in answer.text
    assert learner.store.decided() == before


def test_each_kind_of_policy_refuses_what_the_other_takes(tmp_path, lasting):
    """And says where to ask."""
    learner, browser = lasting
    before = learner.store.decided()
    body = {"decisions": [{"arms": np.eye(3).tolist()}]}
    answer = browser.send("POST", "/v1/decisions", "decider", json=body)
    assert (answer.status_code, answer.json()["error"]) == (
        422, "this policy shows k=3 arms: ask for them at /v1/slates"
    )  # fmt: skip
    assert learner.store.decided() == before
    with served(configured(tmp_path)) as (single, other):
        answer = other.send("POST", "/v1/slates", "decider", json={"slates": [SOUND]})
        assert (answer.status_code, answer.json()["error"]) == (
            422, "this policy shows one arm: ask for it at /v1/decisions"
        )  # fmt: skip
        (one,) = other.decide({"arms": np.eye(3).tolist()})
        body = {"rewards": [{"id": one["id"], "reward": [1.0]}]}
        answer = other.send("POST", "/v1/rewards", "learner", json=body)
        assert (answer.status_code, "must be a number" in answer.json()["error"]) == (422, True)
        assert single.store.rewards(9) == []


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ('[service]\nmode = "apprentice"', "service.mode must be 'bandit' for this class, which shows several arms"),
        ("[features]\nseed = 1", r"\[features\] must be with policy.examination = \[1.0, 1.0, 1.0\] for this class"),
    ],
)
def test_what_serves_one_choice_only_is_refused_for_slates(tmp_path, more, words):
    with pytest.raises(ValueError, match=words):
        Config.read(written(tmp_path, policy=pages(), more=more))


def test_a_ticket_holds_the_page(service):
    _, learner, browser = service
    asked = candidates(np.random.default_rng(1), 7)
    first, second = browser.slates(asked, asked, activate=False)
    assert (first["id"], first["learned"], learner.store.decided()) == (None, False, 0)
    told = browser.activate(first["ticket"], first["ticket"], first["ticket"][:-4] + "AAAA")
    assert [one["status"] for one in told] == ["accepted", "duplicate", "unknown"]
    assert browser.reward((told[0]["id"], [0, 0, 1])) == ["accepted"]
    learner.step()
    assert learner.policy.open_decisions == []
    (later,) = browser.activate(second["ticket"])
    learner.step()
    kept = learner.policy.rows(learner.policy.waiting[1])
    np.testing.assert_allclose(kept, np.array(asked["arms"])[rows(asked, second)], rtol=1e-12)
    assert browser.reward((later["id"], [0, 1])) == ["accepted"]


def test_a_ticket_is_as_long_as_its_page():
    choice = Choice(4, None, np.arange(6.0).reshape(2, 3), "ann", token="ab")
    found = read(punched(choice, "00" * 32), "00" * 32)
    np.testing.assert_array_equal(found.arm.reshape(2, 3), choice.arm)
    assert (found.chosen, found.probability, found.person) == (4, None, "ann")


@pytest.mark.parametrize("examination", ['"cascade"', "[1.0, 0.5, 0.25]"])
def test_a_page_without_clicks_after_the_wait_is_one_that_was_not_clicked(tmp_path, examination):
    clock = Clock()
    more = "[rewards]\nwait = 60.0\ndefault = 0.0\n[page]\ncurves = true\n[simulation]\nseed = 1"
    config = configured(tmp_path, policy=pages(examination), more=more)
    alone = config.probe()
    with served(config, clock=clock) as (learner, browser):
        told, untold = browser.slates(SOUND, SOUND)
        clock.now += 30.0
        assert browser.reward((told["id"], [0, 1])) == ["accepted"]
        learner.step()
        clock.now += 31.0
        assert browser.reward((untold["id"], [1])) == ["late"]
        learner.step()
        drain(learner)
        assert browser.reward((untold["id"], [1])) == ["defaulted"]
        for one, clicks in ((told, [0, 1]), (untold, [0, 0, 0])):
            alone.update(alone.register(SOUND["arms"], rows(SOUND, one)), clicks)
        np.testing.assert_array_equal(learner.policy.sums.batch, alone.sums.batch)
        curve = browser.send("GET", "/v1/raw/curve", "owner").json()["curve"]
        assert sum(one["rewards"] * one["mean"] for one in curve) == 1  # clicks, on two pages


class Killed(BaseException):
    pass


@pytest.mark.parametrize("owner", ["journal", "database"])
def test_a_crash_while_clicks_are_learned_learns_them_once(tmp_path, monkeypatch, owner):
    """Before the journal has them, and after it, before the database forgets them."""
    config = configured(tmp_path, policy=pages(), more="[simulation]\nseed = 1")
    alone, clock = config.probe(), Clock()
    with worker(config, clock=clock) as browser:
        learner = Learner(config, clock=clock)
        refresh(browser, 0)
        answers = browser.slates(*[SOUND] * 4)
        assert set(browser.reward(*((one["id"], [0.0, float(i % 2)]) for i, one in enumerate(answers)))) == {"accepted"}

        def dies(*_, **__):
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(*((Journal, "sync") if owner == "journal" else (Store, "taken")), dies)
            with pytest.raises(Killed):
                learner.step()
        learner.store.close()
        learner.policy.run._hold.close()
        clock.now += 1000.0
        learner = Learner(config, clock=clock)
        drain(learner)
        for i, one in enumerate(answers):
            alone.update(alone.register(SOUND["arms"], rows(SOUND, one)), [0.0, float(i % 2)])
        np.testing.assert_array_equal(learner.policy.sums.batch, alone.sums.batch)
        assert learner.policy.open_decisions == []
        assert browser.reward((answers[0]["id"], [1.0])) == ["duplicate"]
        learner.close()


def test_a_database_without_slates_is_taken_over_by_a_command(tmp_path, storage):
    """What was acknowledged before is learned after."""
    config = configured(tmp_path, storage=storage())
    with served(config) as (_, browser):
        (one,) = browser.decide({"arms": np.eye(3).tolist()})
        assert browser.reward((one["id"], 1.0)) == ["accepted"]
    with closing(opened(config.database)) as database, database.writing():
        database.execute("ALTER TABLE rewards DROP COLUMN positions")
        database.execute("UPDATE facts SET value = '4' WHERE name = 'format'")
    with pytest.raises(Mismatch, match=r"of format 4: `dpbandits serve init run.toml --adopt`"):
        Store(config.database)
    operate.adopt(config)
    learner = Learner(config, clock=Clock(1e12))
    drain(learner)
    assert (learner.policy.decisions, learner.policy.open_decisions) == (1, [])
    learner.close()
    assert operate.doctor(config)[0]


def test_erased_pages_leave_nothing(tmp_path):
    config = configured(tmp_path, policy=pages() + "\nrounds_per_person = 5", unit="person")
    with served(config) as (learner, browser):
        ann, bob = browser.slates(SOUND | {"person": "ann"}, SOUND | {"person": "bob"})
        assert browser.reward((ann["id"], [0, 0, 1])) == ["accepted"]
        answer = browser.send("POST", "/v1/slates", "decider", json={"slates": [SOUND]})
        assert (answer.status_code, "person is needed" in answer.json()["error"]) == (422, True)
    assert operate.erase(config, "ann")[0].startswith("1 round of this person erased")
    with served(config) as (learner, browser):
        assert browser.reward((ann["id"], [1]), (bob["id"], [1])) == ["closed", "accepted"]
        drain(learner)
        assert learner.policy.open_decisions == []


# ------------------------------------------------------------------------------------- processes, and the two clients


@pytest.mark.parametrize(
    ("crowd", "shown"), [("visitors", {}), ("readers", {"kind": "SlatePrivateGLM", "policy": "k = 3"})]
)
def test_the_demonstrations_crowd_is_served(tmp_path, crowd, shown):
    path = tmp_path / "run.toml"
    path.write_text(demo.configuration(TOKENS, dim=5, horizon=100, **shown))
    with served(begun(Config.read(path))) as (learner, browser):
        people = getattr(demo, crowd)(browser, browser)
        assert all(0.0 < one < 10.0 for _ in range(2) for one in next(people))
        drain(learner)
        assert (learner.policy.decisions, learner.policy.open_decisions) == (20, [])


def readers():
    """The example's."""
    spec = importlib.util.spec_from_file_location("readers", EXAMPLES / "readers.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.thorough
def test_pages_wait_for_their_clicks_while_all_processes_end(tmp_path, capsys):
    """The example's service: two workers and a learner. What was shown in the first life is learned in the second."""
    path = tmp_path / "pages.toml"
    path.write_text(f"{(EXAMPLES / 'pages.toml').read_text()}\n[service]\nport = 0\n")
    (tmp_path / "data").mkdir()
    operate.init(Config.read(path))
    asked = {"names": NAMES, "arms": np.eye(5).tolist()}
    ids = []
    for life in range(2):
        service = Service(path)
        running = threading.Thread(target=service.run)
        running.start()
        try:
            decider, teller = Client(service.url, "decider"), Client(service.url, "learner")
            answers = decider.slates(asked, asked)
            assert [len(set(one["slate"])) for one in answers] == [3, 3]
            # a database that is slow on a busy machine counts as away: then there is a ticket
            shown = [one["id"] or decider.activate(one["ticket"])[0]["id"] for one in answers]
            if life == 1:
                assert teller.reward((ids[0], [0.0, 0.0, 1.0]), (ids[1], [])) == ["accepted"] * 2
                assert teller.reward((ids[0], [1.0])) == ["duplicate"]
                readers().main(service.url, 20)
            with pytest.raises(Refused, match="at most k=3"):
                teller.reward((shown[0], [0.0, 0.0, 0.0, 1.0]))
            ids += shown
        finally:
            service.stop()
            running.join()
    assert capsys.readouterr().out.startswith("clicks on a page 0.")
    learner = Learner(Config.read(path), clock=Clock(0.0))
    drain(learner)
    assert (learner.policy.decisions, learner.policy.open_decisions) == (24, [2, 3])
    learner.close()

"""Rank, reward and activate on the wire of a retired service: as its clients speak it, and what is kept of it."""

import json
import sqlite3
import threading
from contextlib import closing, contextmanager
from urllib.parse import quote

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving import TOKENS, Clock, begun, configured, counting, drain, served, wait_until, written

from dpbandits.policy.choices import Independent
from dpbandits.serve import operate, tables
from dpbandits.serve.config import Config
from dpbandits.serve.database import Mismatch, opened
from dpbandits.serve.events import Ranked, rank
from dpbandits.serve.personalizer import chances_told, placed
from dpbandits.serve.store import Choice, Store
from dpbandits.serve.supervise import Service

FEATURES = '[rewards]\nwait = 100.0\ndefault = 0.25\n[features]\nranges = { "context[]/age" = [0, 100] }'
CONTEXT = [{"timeOfDay": "morning", "age": 31}, {"device": {"mobile": True}}]
ACTIONS = [
    {"id": "news", "features": [{"kind": "news", "length": 0.2}]},
    {"id": "sports", "features": [{"kind": "sports"}, {"live": True}]},
    {"id": "films", "features": [{"kind": "films"}]},
]


class Wire:
    """One of the service's clients, with the header that they send."""

    def __init__(self, browser, version="v1.0", role="decider"):
        self.browser, self.at, self.key = browser, f"/personalizer/{version}", TOKENS[role]

    def post(self, path, body=None, **headers):
        told = {"Ocp-Apim-Subscription-Key": self.key} | headers
        content = b"" if body is None else json.dumps(body).encode()
        return self.browser.send("POST", self.at + path, headers=told, content=content)

    def rank(self, **more):
        answer = self.post("/rank", {"contextFeatures": CONTEXT, "actions": ACTIONS} | more)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def reward(self, event, value=1.0):
        return self._done(self.post(f"/events/{quote(event, safe='')}/reward", {"value": value}))

    def activate(self, event):
        return self._done(self.post(f"/events/{quote(event, safe='')}/activate"))

    def _done(self, answer):
        assert (answer.status_code, answer.content) == (204, b""), answer.text
        assert not {"content-type", "content-length"} & set(answer.headers)
        return dict(answer.headers)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One for all tests that need no service of their own."""
    with served(configured(tmp_path_factory.mktemp("shared"), policy=counting(100), more=FEATURES)) as (_, browser):
        yield Wire(browser)


@pytest.fixture
def both(tmp_path, storage):
    """In files, and on a server."""
    with run(tmp_path, storage()) as found:
        yield found


@pytest.fixture
def service(tmp_path):
    with run(tmp_path) as found:
        yield found


@contextmanager
def run(folder, storage=""):
    config = configured(folder, policy=counting(40), storage=storage, more=FEATURES)
    clock = Clock()
    with served(config, clock) as (learner, browser):
        yield config, learner, browser, clock


def rows(config, table="events"):
    database = opened(config.database)
    found = database.execute(f"SELECT * FROM {table}").fetchall()
    database.close()
    return found


def test_the_whole_way(both):
    config, learner, browser, _ = both
    wire, later = Wire(browser), Wire(browser, "v1.1-preview.3")
    first, second = wire.rank(), later.rank(eventId="mine: a/b ü")
    for found in (first, second):
        assert sorted(one["id"] for one in found["ranking"]) == ["films", "news", "sports"]
        assert found["ranking"][0]["id"] == found["rewardActionId"]
        chances = [one["probability"] for one in found["ranking"]]
        assert sum(chances) == pytest.approx(1.0, abs=0.02)  # by quadrature
        assert chances[1] >= chances[2]
    assert second["eventId"] == "mine: a/b ü"
    # a reward counts once, by whichever version and key it comes
    assert wire.reward(first["eventId"], 0.75) == later.reward(first["eventId"], 0.5)
    Wire(browser, role="learner").reward(second["eventId"], 1.0)
    assert browser.reward((rows(config)[0][5], 0.5)) == ["duplicate"]
    drain(learner)
    assert learner.policy.learned.tolist() == [1, 1] + [0] * 38
    assert learner.policy.total == 1 * 0.75 + 2 * 1.0


def test_what_is_learned_from_is_the_public_row_of_the_chosen_action(shared):
    config = shared.browser.config
    found = shared.rank()
    hashed = config.features
    wanted = hashed.arms(CONTEXT, [one["features"] for one in ACTIONS])
    with closing(Store(config.database)) as store:
        _, choice, _ = store.decisions(0, 100)[-1]
    assert ACTIONS[choice.chosen]["id"] == found["rewardActionId"]
    assert np.array_equal(choice.arm, wanted[choice.chosen])
    assert choice.probability == found["ranking"][0]["probability"]


@given(
    st.lists(st.tuples(st.booleans(), st.floats(0, 1)), min_size=1).filter(lambda found: any(a for a, _ in found)),
    st.data(),
)
def test_excluded_actions_keep_their_places(found, data):
    offered = [i for i, (there, _) in enumerate(found) if there]
    index = data.draw(st.integers(0, len(offered) - 1))
    chances = [found[i][1] for i in offered]
    order, told = placed(len(found), offered, index, chances)
    assert sorted(order) == list(range(len(found)))
    places = [i for i, (there, _) in enumerate(found) if there]
    assert all(order[i] == i and told[i] == 0.0 for i in range(len(found)) if i not in places)
    ranked = [order[i] for i in places]
    assert ranked[0] == offered[index]
    assert [found[i][1] for i in ranked[1:]] == sorted((found[i][1] for i in ranked[1:]), reverse=True)
    assert [told[i] for i in places] == [found[i][1] for i in ranked]


@pytest.mark.parametrize("count", [4, 30])
def test_of_many_actions_the_chances_that_are_told_are_near(count):
    rng = np.random.default_rng(count)
    law = Independent(rng.normal(size=count), np.full(count, 0.7))
    index = int(law.draw(rng).argmax())
    told, wanted = chances_told(law, index, rng), law.chances()
    assert told[index] == pytest.approx(wanted[index], abs=1e-12)
    assert told.sum() == pytest.approx(1.0)
    # 4 standard errors of 512 draws; of 30 arms one is farther off with a chance of 2e-3, and the seed is fixed
    assert np.abs(told - wanted).max() < (1e-9 if count == 4 else 4 * 0.5 / np.sqrt(512))
    assert (told > 0).all()


def test_excluded_actions_are_not_offered(shared):
    for excluded, left in ((["news"], {"sports", "films"}), (["news", "films", "no such"], {"sports"})):
        found = shared.rank(excludedActions=excluded)
        assert found["rewardActionId"] in left
        assert found["ranking"][0] == {"id": "news", "probability": 0.0}
        assert sum(one["probability"] for one in found["ranking"]) == pytest.approx(1.0)
        assert all((one["probability"] > 0) == (one["id"] in left) for one in found["ranking"])


def test_an_event_is_ranked_once(service):
    config, learner, browser, _ = service
    wire = Wire(browser)
    first = wire.rank(eventId="once")
    assert all(wire.rank(eventId="once") == first for _ in range(20))
    assert len(rows(config)) == len(rows(config, "decisions")) == 1
    other = {"contextFeatures": [], "actions": ACTIONS, "eventId": "once"}
    answer = wire.post("/rank", other)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "409")
    assert "once" not in answer.text
    # of two in one commit, too
    choices = [Choice(i, 0.5, np.eye(3)[i]) for i in (0, 1, 2)]
    with closing(Store(config.database)) as store, store.writing():
        pair = [Ranked("e", "r", str(i), one) for i, one in enumerate(choices[:2])]
        assert rank(store, [*pair, Ranked("e", "other", "2", choices[2])], 0.0, 40) == ["0", "0", None]
    drain(learner)
    assert learner.policy.decisions == 2


def test_a_rank_may_wait_for_its_activation(service):
    config, learner, browser, clock = service
    wire = Wire(browser)
    first = wire.rank(eventId="shown", deferActivation=True)
    wire.rank(eventId="never", deferActivation=True)
    wire.reward("shown", 0.5)  # too early: there is nothing yet
    assert rows(config, "decisions") == []
    clock.now += 60.0
    assert wire.activate("shown") == wire.activate("shown")
    assert wire.rank(eventId="shown", deferActivation=True) == first
    clock.now += 60.0  # the wait for the reward began with the activation
    wire.reward("shown", 0.75)
    wire.activate("never")  # later than that a reward would have come
    assert len(rows(config, "decisions")) == 1
    drain(learner)
    assert learner.policy.decisions == 1
    assert learner.policy.total == 0.75
    # and what waited is erased
    assert [row[4] for row in rows(config)] == [1]


def test_no_answer_tells_of_rewards(service):
    _, learner, browser, clock = service
    wire = Wire(browser)
    events = [wire.rank()["eventId"] for _ in range(3)]
    told = [wire.reward(events[0]), wire.reward(events[0]), wire.reward("no such"), wire.activate("no such")]
    clock.now += 101.0
    told += [wire.reward(events[1])]
    drain(learner)
    told += [wire.reward(events[1]), wire.reward(events[2]), wire.activate(events[2])]
    assert told == [told[0]] * len(told)
    # the default in place of what did not come
    assert learner.policy.learned[:3].tolist() == [1, 1, 1]
    assert learner.policy.total == 1 * 1.0 + 2 * 0.25 + 3 * 0.25
    text = browser.send("GET", "/metrics").text
    assert "/personalizer/v1.0/rank" in text
    assert "/reward" not in text
    assert "/personalizer/v1.0/events/{eventId}/reward" in browser.send("GET", "/metrics", "owner").text


def test_events_are_kept_for_the_wait_whatever_comes(both):
    config, learner, browser, clock = both
    wire = Wire(browser)
    first, other = wire.rank(eventId="first"), wire.rank(eventId="other")
    for _ in range(10):  # the first batch has 10
        wire.reward(wire.rank()["eventId"])
    wire.reward("first")
    drain(learner)
    assert learner.policy.releases == 1
    # the release has covered it, its decision is forgotten, and whoever ranks cannot see it
    assert {1, 2} & {row[0] for row in rows(config, "decisions")} == {2}
    assert len(rows(config)) == 12
    assert (wire.rank(eventId="first"), wire.rank(eventId="other")) == (first, other)
    clock.now += 101.0
    drain(learner)
    assert rows(config) == []


def test_beyond_the_horizon_nothing_is_kept(service):
    config, _, browser, _ = service
    wire = Wire(browser)
    for _ in range(45):
        last = wire.rank()
    wire.reward(last["eventId"])
    wire.rank(eventId="never shown", deferActivation=True)
    assert len(rows(config)) == 40
    wire.activate("never shown")
    assert sorted(row[4] for row in rows(config)) == list(range(1, 41))
    database = opened(config.database)
    with database.writing():
        tables.erase(database, [1, 2], "")
    assert sorted(row[4] for row in rows(config)) == list(range(3, 41))
    database.close()


def test_a_database_that_went_back_drops_the_events_in_doubt(service):
    config, _, browser, _ = service
    wire = Wire(browser)
    for name in "abc":
        wire.rank(eventId=name)
    wire.rank(eventId="waits", deferActivation=True)
    with closing(Store(config.database)) as store:
        store.renew(5, 2)
    assert sorted(row[4] for row in rows(config)) == [1, 2]
    tables.erase_all(opened(config.database))
    assert rows(config) == []


def test_names_of_events_are_not_kept(tmp_path):
    config = configured(tmp_path, policy=counting(300), more=FEATURES)
    with served(config) as (_, browser):
        wire = Wire(browser)
        wire.rank(eventId="ann-smith-17")
        wire.rank(eventId="ann-smith-18", deferActivation=True)
    for path in tmp_path.iterdir():
        assert b"ann-smith" not in path.read_bytes()
        assert b"sports" not in path.read_bytes()


def test_while_the_database_is_away_nothing_is_ranked(tmp_path, monkeypatch):
    config = configured(tmp_path, policy=counting(300), more=FEATURES)
    with served(config) as (_, browser):
        wire = Wire(browser)
        wire.rank()

        def full(*_):
            raise OSError("the disk is full")

        with monkeypatch.context() as away:
            away.setattr(Store, "writing", full)
            answer = wire.post("/rank", {"actions": ACTIONS, "eventId": "again"})
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "503")
            assert answer.headers["retry-after"] == "1"
            assert wire.post("/events/again/reward", {"value": 1.0}).status_code == 503
            assert wire.post("/events/again/activate").status_code == 503
        wait_until(lambda: browser.send("GET", "/healthz").json()["database"] != "away")
        assert len(rows(config)) == 1


BAD = [
    {},
    {"actions": []},
    {"actions": [{"id": "secret"}]},
    {"actions": [{"id": "secret", "features": {"a": 1}}]},
    {"actions": [{"id": "secret", "features": []}] * 2},
    {"actions": [{"id": "secret", "features": []}], "excludedActions": ["secret"]},
    {"actions": [{"id": "secret" * 50, "features": []}]},
    {"actions": [{"id": "secret", "features": []}], "eventId": "secret" * 50},
    {"actions": [{"id": "secret", "features": []}], "deferActivation": "yes"},
    {"actions": [{"id": str(i), "features": []} for i in range(1001)]},
    {"actions": [{"id": "secret", "features": [{"secret": 10**400}]}]},
    {"actions": [{"id": "secret", "features": [{"secret": float("nan")}]}]},
    {"actions": [{"id": "secret", "features": [{"a": [1] * 1000}]}], "contextFeatures": [{"b": [1] * 1000}]},
]


@pytest.mark.parametrize("body", BAD)
def test_what_is_not_of_the_schema_is_refused_without_its_words(shared, body):
    before = rows(shared.browser.config)
    answer = shared.post("/rank", body)
    assert answer.status_code == 400
    assert set(answer.json()) == {"error"}
    assert answer.json()["error"]["code"] == "BadRequest"
    assert answer.json()["error"]["message"]
    assert "secret" not in answer.text
    assert rows(shared.browser.config) == before


def test_other_refusals(shared):
    deep = b'{"actions": [{"id": "a", "features": [' + b'{"a":' * 40 + b"1" + b"}" * 40 + b"]}]}"
    headers = {"Ocp-Apim-Subscription-Key": TOKENS["decider"]}
    send = shared.browser.send
    assert send("POST", "/personalizer/v1.0/rank", headers=headers, content=deep).status_code == 400
    for body in ({"value": 2.0}, {"value": "1"}, {}, {"value": None}):
        assert shared.post("/events/e/reward", body).status_code == 400
    assert shared.post(f"/events/{'e' * 257}/reward", {"value": 1.0}).status_code == 400
    for path in ("/rank", "/events/e/reward", "/events/e/activate"):
        answer = shared.post(path, {}, **{"Ocp-Apim-Subscription-Key": "wrong"})
        assert answer.status_code == 401
        assert "Ocp-Apim-Subscription-Key" in answer.json()["error"]["message"]
    assert Wire(shared.browser, role="learner").post("/rank", {}).status_code == 403
    assert send("POST", "/personalizer/v1.0/events/e/reward", "owner", json={"value": 1.0}).status_code == 403
    assert send("POST", "/personalizer/v1.0/events/e/reward", "decider", json={"value": 1.0}).status_code == 204
    for path in ("/multislot/rank", "/events//reward", "/events/e/other", "/events/{eventId}"):
        answer = shared.post(path, {})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "ResourceNotFound")
    assert send("GET", "/personalizer/v1.0/rank").status_code == 405
    # this key opens nothing else
    assert send("POST", "/v1/decisions", headers=headers, json={}).status_code == 401


def test_ranks_are_decisions_of_a_minute(tmp_path):
    config = configured(tmp_path, more=FEATURES + "\n[limits]\ndecisions = 4")  # of two workers
    with served(config) as (_, browser):
        wire = Wire(browser)
        for _ in range(2):
            wire.rank()
        answer = wire.post("/rank", {"actions": ACTIONS})
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "429")
        assert int(answer.headers["retry-after"]) > 0


def test_without_features_there_is_no_such_wire(tmp_path):
    with served(configured(tmp_path)) as (_, browser):
        answer = Wire(browser).post("/rank", {"actions": ACTIONS})
        assert (answer.status_code, answer.json()["error"]) == (404, "there is no such page")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"more": "[features]"}, "must be with rewards.wait"),
        ({"more": FEATURES + "\n[service]\nmode = 'apprentice'"}, "must be with service.mode"),
        ({"more": FEATURES.replace("ranges", "dim")}, "features.dim is no key"),
        ({"more": FEATURES.replace("[0, 100]", "[100, 0]")}, "features.ranges must be finite and increasing"),
        ({"more": FEATURES.replace("[0, 100]", "[0]")}, r"features.ranges must be \[low, high\]"),
        ({"more": FEATURES.replace("context[]", "context")}, r"features.ranges must be of paths below context\[\]"),
        (
            {"more": FEATURES, "policy": 'class = "DisjointPrivateGLM"\ndim = 2\nhorizon = 100\narms = ["a", "b"]'},
            "takes any arms, got DisjointPrivateGLM",
        ),
        (
            {"more": FEATURES, "unit": "person", "policy": 'class = "OnePassPrivateGLM"\ndim = 3\nhorizon = 300'},
            "must be with budget.unit = 'round'",
        ),
    ],
)
def test_a_run_that_cannot_be_served_so_is_refused(tmp_path, arguments, words):
    with pytest.raises(ValueError, match=words):
        Config.read(written(tmp_path, **arguments))


def test_the_rule_for_features_is_part_of_the_contract(tmp_path):
    configured(tmp_path, more=FEATURES)
    changed = Config.read(written(tmp_path, more=FEATURES.replace("100]", "90]")))
    assert [text for text in operate.doctor(changed)[1] if "features must stay what the run was begun with" in text]


def test_a_database_without_events_is_taken_over_by_a_command(tmp_path):
    config = configured(tmp_path, policy=counting(300), more=FEATURES)
    with closing(sqlite3.connect(config.database, isolation_level=None)) as database:
        database.execute("DROP TABLE events")
        database.execute("ALTER TABLE rewards DROP COLUMN positions")
        database.execute("UPDATE facts SET value = '3' WHERE name = 'format'")
    with pytest.raises(Mismatch, match=r"of format 3: `dpbandits serve init run.toml --adopt`"):
        Store(config.database)
    operate.adopt(config)
    with served(config) as (_, browser):
        Wire(browser).rank()


# ------------------------------------------------------------------------------------------------------- real clients


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A service in processes of its own."""
    path = written(tmp_path_factory.mktemp("real"), more=FEATURES + "\n[service]\nport = 0\nworkers = 1")
    begun(Config.read(path))
    service = Service(path)
    running = threading.Thread(target=service.run)
    running.start()
    wait_until(lambda: _ready(service.url))
    yield service.url, Config.read(path)
    service.stop()
    running.join()


def _ready(url):
    try:
        return httpx.get(f"{url}/readyz").status_code == 200
    except httpx.HTTPError:
        return False


@pytest.mark.parametrize("version", ["/v1.1-preview.3", ""])
def test_over_http(real, version):
    url, config = real
    query = {} if version else {"api-version": "2022-09-01-preview"}
    with httpx.Client(headers={"Ocp-Apim-Subscription-Key": TOKENS["decider"]}, params=query) as client:
        at = f"{url}/personalizer{version}"
        body = {"contextFeatures": CONTEXT, "actions": ACTIONS, "eventId": "a/b c%2F"}
        answer = client.post(f"{at}/rank", json=body)  # the second of the two asks again
        assert (answer.status_code, answer.json()["eventId"]) == (201, "a/b c%2F")
        for _ in range(3):  # the connection stays open after an answer without content
            answer = client.post(f"{at}/events/a%2Fb%20c%252F/reward", json={"value": 1.0})
            assert (answer.status_code, answer.content) == (204, b"")
            assert "content-length" not in answer.headers
        assert client.post(f"{at}/events/a%2Fb%20c%252F/activate").status_code == 204
    assert [row[8] for row in rows(config, "decisions")] == [1]  # it has its reward


def test_with_the_last_client_for_python(real):
    personalizer = pytest.importorskip("azure.cognitiveservices.personalizer")
    from azure.cognitiveservices.personalizer import models
    from msrest.authentication import CognitiveServicesCredentials
    from msrest.exceptions import HttpOperationError

    client = personalizer.PersonalizerClient(real[0], CognitiveServicesCredentials(TOKENS["decider"]))
    actions = [models.RankableAction(id=one["id"], features=one["features"]) for one in ACTIONS]
    request = models.RankRequest(actions=actions, context_features=CONTEXT, excluded_actions=["sports"])
    response = client.rank(rank_request=request)
    assert response.reward_action_id in {"news", "films"}
    assert [(one.id, one.probability) for one in response.ranking][1] == ("sports", 0.0)
    client.events.reward(event_id=response.event_id, value=1.0)
    request = models.RankRequest(actions=actions, event_id="a later one", defer_activation=True)
    assert client.rank(request).event_id == "a later one"
    client.events.activate(event_id="a later one")
    client.events.reward(event_id="a later one", value=0.0)
    with pytest.raises(HttpOperationError) as refused:
        client.events.reward(event_id="a later one", value=7.0)
    assert refused.value.response.status_code == 400
    with pytest.raises(models.ErrorResponseException) as refused:
        client.rank(models.RankRequest(actions=[], event_id="none"))
    assert refused.value.error.error.code == "BadRequest"


@pytest.mark.thorough
def test_with_the_client_that_names_its_version_in_the_query(real):
    personalizer = pytest.importorskip("azure.ai.personalizer")
    from azure.core.credentials import AzureKeyCredential
    from azure.core.exceptions import HttpResponseError

    client = personalizer.PersonalizerClient(real[0], AzureKeyCredential(TOKENS["decider"]))
    request = {"actions": ACTIONS, "contextFeatures": CONTEXT, "excludedActions": ["sports"]}
    found = client.rank(request | {"eventId": "by the query", "deferActivation": True})
    assert found["rewardActionId"] in {"news", "films"}
    client.activate("by the query")
    client.reward("by the query", {"value": 1.0})
    with pytest.raises(HttpResponseError) as refused:
        client.rank({"actions": []})
    assert refused.value.error.code == "BadRequest"

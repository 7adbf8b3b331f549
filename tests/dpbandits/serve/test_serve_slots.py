"""Several slots on the wire of a retired service: each is filled with another action, and rewarded by its own id."""

import json
from itertools import permutations
from urllib.parse import quote

import numpy as np
import pytest
from serving import TOKENS, Clock, configured, drain, refresh, served

from dpbandits.policies import SlatePrivateGLM
from dpbandits.serve.database import opened
from dpbandits.serve.personalizer import TOLD_NOBODY

FEATURES = '[rewards]\nwait = 100.0\ndefault = 0.25\n[features]\nranges = { "context[]/age" = [0, 100] }'
SLATES = 'class = "SlatePrivateGLM"\ndim = 4\nk = 3\nhorizon = 200\nexamination = [1.0, 1.0, 1.0]'
SEEDED = f"{FEATURES}\n[simulation]\nseed = 3"
CONTEXT = [{"timeOfDay": "morning", "age": 31}]
ACTIONS = [{"id": name, "features": [{"kind": name}, {"long": len(name) / 10}]} for name in ("news", "sports", "films")]
TOP, SIDE = "Main Article", "Side Bar"
SLOTS = [
    {"id": TOP, "features": [{"size": "large"}], "baselineAction": "news"},
    {"id": SIDE, "features": [{"size": "small"}], "baselineAction": "films", "excludedActions": ["sports", "unknown"]},
]


class Wire:
    """As the last clients send it."""

    def __init__(self, browser, version="v1.1-preview.3"):
        # "" as the last clients send it: with the version in the query
        self.browser, self.at = browser, "/".join(filter(None, ("/personalizer", version, "multislot")))

    def post(self, path, body=None):
        content = b"" if body is None else json.dumps(body).encode()
        key = {"Ocp-Apim-Subscription-Key": TOKENS["decider"]}
        query = "?api-version=2022-09-01-preview" if self.at == "/personalizer/multislot" else ""
        return self.browser.send("POST", self.at + path + query, headers=key, content=content)

    def rank(self, **more):
        answer = self.post("/rank", {"contextFeatures": CONTEXT, "actions": ACTIONS, "slots": SLOTS} | more)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def reward(self, event, **values):
        told = [{"slotId": slot.replace("_", " "), "value": value} for slot, value in values.items()]
        answer = self.post(f"/events/{quote(event, safe='')}/reward", {"reward": told})
        assert (answer.status_code, answer.content) == (204, b""), answer.text

    def activate(self, event):
        assert self.post(f"/events/{event}/activate").status_code == 204


def shown(config, answer, slots=SLOTS):
    """The rows of what was shown, by the public rule."""
    actions = {one["id"]: one["features"] for one in ACTIONS}
    return np.concatenate(
        [
            config.features.arms([*CONTEXT, {"slot": slot.get("features", [])}], [actions[told["rewardActionId"]]])
            for slot, told in zip(slots, answer["slots"], strict=True)
        ]
    )


@pytest.fixture(scope="module")
def lasting(tmp_path_factory):
    """One for all tests of refusals."""
    with served(configured(tmp_path_factory.mktemp("lasting"), policy=SLATES, more=FEATURES)) as (learner, browser):
        yield learner, Wire(browser)


def test_the_whole_way(tmp_path, storage):
    """What is learned is what one process would, of rewards in any order; a slot that is left out has the default."""
    config, clock = configured(tmp_path, policy=SLATES, storage=storage(), more=SEEDED), Clock()
    alone = config.probe()
    with served(config, clock) as (learner, browser):
        wire, older, last = Wire(browser), Wire(browser, "v1.1-preview.1"), Wire(browser, "")
        first, second = wire.rank(eventId="mine: a/b ü"), last.rank()
        assert first["eventId"] == "mine: a/b ü"
        assert older.rank(eventId="mine: a/b ü") == first
        for found in (first, second):
            assert [one["id"] for one in found["slots"]] == [TOP, SIDE]
            top, side = (one["rewardActionId"] for one in found["slots"])
            assert top in {"news", "sports", "films"} - {side}
            assert side in {"news", "films"}
        last.reward(first["eventId"], Side_Bar=1.0, Main_Article=0.5)
        wire.reward(first["eventId"], Main_Article=1.0)  # once
        wire.reward(second["eventId"], Attic=1.0)  # no slot of it: it stays open
        older.reward(second["eventId"], Main_Article=1.0, Attic=0.0)
        wire.reward("unknown", Main_Article=1.0)
        drain(learner)
        for found, values in ((first, [0.5, 1.0]), (second, [1.0, 0.25])):
            alone.update(alone.register(shown(config, found), range(2)), values)
        np.testing.assert_array_equal(learner.policy.sums.batch, alone.sums.batch)
        assert learner.policy.open_decisions == []


def test_an_event_that_waits_for_activation_outlives_its_processes(tmp_path):
    config, clock = configured(tmp_path, policy=SLATES, more=SEEDED), Clock()
    alone = config.probe()
    with served(config, clock) as (learner, browser):
        found = Wire(browser).rank(eventId="e", deferActivation=True)
        Wire(browser).reward("e", Main_Article=1.0)  # before it is shown: ignored
        assert learner.store.decided() == 0
    clock.now += 10.0
    with served(config, clock) as (learner, browser):
        refresh(browser, 0)
        wire = Wire(browser)
        assert wire.rank(eventId="e", deferActivation=True) == found
        wire.activate("e")
        wire.activate("e")
        wire.reward("e", Side_Bar=1.0)
        drain(learner)
        alone.update(alone.register(shown(config, found), range(2)), [0.25, 1.0])
        np.testing.assert_array_equal(learner.policy.sums.batch, alone.sums.batch)
        assert learner.policy.decisions == 1


def test_after_the_wait_every_slot_has_the_default(tmp_path):
    config, clock = configured(tmp_path, policy=SLATES, more=SEEDED), Clock()
    alone = config.probe()
    with served(config, clock) as (learner, browser):
        found = Wire(browser).rank()
        clock.now += 102.0
        learner.step()
        drain(learner)
        # the two that were shown, of k = 3
        alone.update(alone.register(shown(config, found), range(2)), [0.25, 0.25])
        np.testing.assert_array_equal(learner.policy.sums.batch, alone.sums.batch)
        assert learner.policy.open_decisions == []


def test_slots_are_filled_with_the_actions_whose_sum_is_the_largest(lasting, monkeypatch):
    """Against all assignments, with exclusions."""
    _, wire = lasting
    rng = np.random.default_rng(0)
    for trial in range(30):
        scores = rng.normal(size=(2, 3))
        monkeypatch.setattr(SlatePrivateGLM, "score_elsewhere", lambda self, X, scores=scores: scores.ravel())
        found = wire.rank(eventId=f"trial {trial}")
        names = [one["id"] for one in ACTIONS]
        best = max((one for one in permutations(range(3), 2) if one[1] != 1), key=lambda one: scores[[0, 1], one].sum())
        assert [one["rewardActionId"] for one in found["slots"]] == [names[i] for i in best]


def test_the_same_event_has_one_answer(lasting):
    _, wire = lasting
    found = [wire.rank(eventId="again") for _ in range(8)]
    assert found == [found[0]] * 8
    other = {"contextFeatures": CONTEXT, "actions": ACTIONS, "slots": SLOTS[:1], "eventId": "again"}
    assert wire.post("/rank", other).status_code == 409


def test_no_name_is_kept(lasting):
    _, wire = lasting
    wire.rank(eventId="an event of ann's")
    database = opened(wire.browser.config.database)
    kept = str(database.execute("SELECT * FROM events").fetchall())
    database.close()
    assert not [text for text in (TOP, SIDE, "news", "films", "sports", "ann", "large", "morning") if text in kept]
    assert {f"/personalizer/{version}/multislot/events/{{eventId}}/reward" for version in ("v1.1-preview.3",)} <= (
        TOLD_NOBODY
    )


EACH_OTHERS = [{"id": f"slot {n}", "excludedActions": ["news", "films"]} for n in range(2)]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"slots": [{"id": f"{n}"} for n in range(4)]}, "at most k=3 slots"),
        ({"slots": [{"id": "a"}, {"id": "a"}]}, "ids of slots must differ"),
        ({"actions": [ACTIONS[0], ACTIONS[0]]}, "ids of actions must differ"),
        ({"actions": ACTIONS[:1]}, "every slot must have an action that is not excluded, all different"),
        ({"slots": EACH_OTHERS}, "every slot must have an action that is not excluded, all different"),
        ({"excludedActions": ["news", "films"]}, "every slot must have an action"),
        ({"slots": []}, "not of the schema"),
        ({"slots": [{"features": []}]}, "not of the schema"),
        ({"slots": [{"id": "a", "features": [{"x": [1.0] * 2**17}]}]}, "too many features"),
    ],
)
def test_what_cannot_be_filled_is_refused_before_anything_is_written(lasting, more, why):
    learner, wire = lasting
    before = learner.store.decided()
    answer = wire.post("/rank", {"contextFeatures": CONTEXT, "actions": ACTIONS, "slots": SLOTS} | more)
    assert answer.status_code == 400
    assert why in answer.json()["error"]["message"]
    assert learner.store.decided() == before


@pytest.mark.parametrize(
    ("reward", "why"),
    [
        ([{"slotId": TOP, "value": 1.5}], "value must lie in the policy's reward_range (reward.0)"),
        ([{"slotId": SIDE, "value": 0}, {"slotId": TOP, "value": -0.1}], "reward_range (reward.1)"),
        ([{"slotId": f"{i}", "value": 1} for i in range(1001)], "not of the schema at /docs (reward: too_long)"),
        ([{"slotId": TOP, "value": 1}, {"slotId": TOP, "value": 0}], "ids of reward must differ"),
        ([], "not of the schema"),
        ([{"slotId": TOP}], "not of the schema"),
        (1.0, "not of the schema"),
    ],
)
def test_wrong_rewards_are_refused_before_anything_is_written(lasting, reward, why):
    learner, wire = lasting
    event = wire.rank()["eventId"]
    answer = wire.post(f"/events/{event}/reward", {"reward": reward})
    assert answer.status_code == 400
    assert why in answer.json()["error"]["message"]
    assert learner.store.rewards(9) == []


def test_each_kind_of_policy_says_where_to_ask(tmp_path, lasting):
    _, wire = lasting
    at, rank = "/personalizer/v1.1-preview.3", {"actions": ACTIONS, "slots": SLOTS}
    key = {"Ocp-Apim-Subscription-Key": TOKENS["decider"]}

    def refused(browser, path, body):
        answer = browser.send("POST", at + path, headers=key, json=body)
        assert answer.status_code == 400
        return answer.json()["error"]["message"].split(" (")[0]

    assert refused(wire.browser, "/rank", rank) == "this policy fills slots: rank at multislot/rank"
    told = refused(wire.browser, "/events/e/reward", {"value": 1.0})
    assert told == "this policy fills slots: tell rewards at multislot/events"
    one_arm = 'class = "OnePassPrivateGLM"\ndim = 4\nhorizon = 200'
    with served(configured(tmp_path, policy=one_arm, more=FEATURES)) as (_, browser):
        assert refused(browser, "/multislot/rank", rank) == "this policy chooses one action: rank at /rank"
        told = refused(browser, "/multislot/events/e/reward", {"reward": [{"slotId": "a", "value": 1.0}]})
        assert told == "this policy chooses one action: tell rewards at /events"

"""What the library promises holds through the service's own database: of every private policy."""

import numpy as np
import pytest
from private_policies import OF_PERSONS
from serving import Clock, configured, drain, refresh, worker

import accounting
from accounting import Budget, Ledger
from dpbandits import PrivatePolicy, Released, policies
from dpbandits.lab.environments import GLM
from dpbandits.serve.learner import Learner
from dpbandits.serve.store import Choice

ROUNDS, TOGETHER, EPSILON, DELTA = 240, 6, 4.0, 1e-6


@pytest.mark.thorough
def test_a_run_through_http_is_the_librarys_choice_by_choice(tmp_path, monkeypatch, storage):
    """On the same seeds, with the same people: the same choices, probabilities, regret, releases and price."""
    seed = 0
    policy = f'class = "OnePassPrivateGLM"\ndim = 4\nhorizon = {ROUNDS}\nfirst_batch = 30'
    simulated = f"[simulation]\nseed = {seed}"
    config = configured(tmp_path, policy=policy, epsilon=EPSILON, storage=storage(), more=simulated)
    # what a worker draws choices with
    monkeypatch.setattr("dpbandits.serve.endpoints.secure", lambda: np.random.default_rng(100 + seed))
    draws, alone = np.random.default_rng(100 + seed), config.probe()
    source = GLM(4, arms=8).episode(np.random.default_rng(seed))
    learner, lost = Learner(config), {"library": [], "service": []}
    with worker(config) as browser:
        for _ in range(ROUNDS // TOGETHER):
            people = [next(source) for _ in range(TOGETHER)]
            refresh(browser, learner.policy.run.step)
            told = browser.decide(*({"arms": one.arms.tolist()} for one in people))
            released = alone.released()
            assert {one["release"] for one in told} == {released.number}
            made = [released.choose(one.arms, draws) for one in people]
            assert [(one["index"], one["probability"]) for one in told] == made
            decisions = [alone.register(one.arms, index) for one, (index, _) in zip(people, made, strict=True)]
            rewards = [one.reward(index) for one, (index, _) in zip(people, made, strict=True)]
            browser.reward(*((one["id"], reward) for one, reward in zip(told, rewards, strict=True)))
            for decision, reward in zip(decisions, rewards, strict=True):
                alone.update(decision, reward)
            for name, chosen in (("library", [index for index, _ in made]), ("service", [o["index"] for o in told])):
                lost[name] += [float(p.means.max() - p.means[k]) for p, k in zip(people, chosen, strict=True)]
            drain(learner)
    assert learner.policy.releases == alone.releases == len(alone.schedule.ends) > 3
    np.testing.assert_array_equal(learner.policy.theta, alone.theta)
    assert len(lost["service"]) == ROUNDS
    assert sum(lost["service"]) == sum(lost["library"]) > 0
    # all that was asked for is spent, and no more
    spent = Ledger.open(config.ledger).epsilon(DELTA)
    assert EPSILON * (1 - 1e-6) <= spent <= EPSILON
    assert spent == alone.privacy(DELTA).epsilon
    learner.close()


BUDGET = Budget(4.0, 1e-2, unit="person")
PERSONAL = 'class = "PersonPrivateGLM"\ndim = 2\nhorizon = 9\nfirst_batch = 4\ngrowth = 1.02'
EAST, WEST = [1.0, 0.0], [-1.0, 0.0]


def totals(folder, storage, arm, names, dictated=None):
    """The sums that the learner would have released without noise, what it did release, and the shift that was paid.

    One person comes four times, to an arm of its own, between others; ``dictated`` are the releases to go on from.
    """
    folder.mkdir()
    learner = Learner(configured(folder, policy=PERSONAL, unit="person", epsilon=BUDGET.epsilon, storage=storage))
    sums, store = learner.policy.sums, learner.store
    exact, released, noised = [], [], sums._noised

    def spied(total):
        exact.append(total.copy())
        released.append(noised(total) if dictated is None else dictated[len(released)])
        return released[-1]

    sums._noised = spied
    for number, name in enumerate(names):
        with store.writing():
            ids = store.decide([Choice(0, None, np.array(arm), name)], 0.0, None)
            ids += store.decide([Choice(0, None, np.array([0.0, 1.0]), f"other {number}")], 0.0, None)
        with store.writing():
            assert store.reward([(ids[0], 1.0), (ids[1], 0.0)], 0.0, None) == ["accepted"] * 2
    with store.writing():
        store.decide([Choice(0, None, np.array([0.0, 1.0]), "the last")], 0.0, None)
    drain(learner)
    assert len(exact) == learner.policy.releases == 2
    paid = sums.noise * sums._unit * accounting.gdp(sums.cost)
    learner.close()
    return np.array(exact), released, paid


def test_one_person_moves_what_is_released_no_further_than_was_paid_for(tmp_path, storage):
    """The audit by persons, through the tables: all that one person did is replaced, and others are as they were.

    Given the same earlier releases, a release is its sums plus Gaussian noise; so the squared shifts of all releases
    together say what the run shows of the person (fully adaptive Gaussian composition).
    """
    shifts = {}
    for case, names in {"one": ["me"] * 4, "unknown": ["me", "me again", "and again", "and once more"]}.items():
        east, outputs, paid = totals(tmp_path / f"{case} east", storage(), EAST, names)
        west, _, _ = totals(tmp_path / f"{case} west", storage(), WEST, names, dictated=outputs)
        shifts[case] = ((east - west) ** 2).sum() / paid**2
    assert 0.5 < shifts["one"] <= 1.0
    # the test would see it if the service lost track of who came
    assert shifts["unknown"] > 1.0


_PLAIN = "dim = 2\nhorizon = 60"
_INNER = 'dim = 2\nalgorithm = "OnePassPrivateGLM"'
ARGUMENTS = {
    "DPHDB": f"{_PLAIN}\nn_arms = 3",
    "DisjointPrivateGLM": f"{_PLAIN}\narms = 3",
    "DisjointShuffleGLM": f"{_PLAIN}\narms = 3",
    "Doubling": _INNER,
    "LDPArms": "horizon = 60\narms = 3",
    "PrivateArms": "horizon = 60\narms = 3",
    "ShuffleArms": "horizon = 60\narms = 3",
    "AdaPUCB": "horizon = 60\narms = 3",
    "DPSE": "horizon = 60\narms = 3\nfirst_batch = 2",
    "SlatePrivateGLM": f"{_PLAIN}\nk = 2",
    "StandingPrivateGLM": f"{_PLAIN}\narms = [[1.0, 0.0], [0.0, 1.0]]",
    "Restarting": f"{_INNER}\nhorizon = 60\nevery = 20",
}
PRIVATE = [name for name in policies.__all__ if issubclass(getattr(policies, name), PrivatePolicy)]


@pytest.mark.parametrize("name", PRIVATE)
def test_every_private_policy_can_be_served(tmp_path, name):
    person = name in OF_PERSONS
    policy = f'class = "{name}"\n{ARGUMENTS.get(name, _PLAIN)}'
    config = configured(tmp_path, policy=policy, unit="person" if person else "round")
    learner = Learner(config, clock=Clock())
    for part in range(4):
        released = Released.from_json(learner.store.released(learner.store.newest()))
        asked = np.full(2, 0.5) if released.takes == "context" else np.eye(2)
        choices = []
        for i in range(15):
            index, probability = released.choose(asked)
            arm = asked if released.takes == "context" else asked[index]
            choices.append(Choice(index, min(1.0, probability) or None, arm, f"{part} {i}" if person else None))
        with learner.store.writing():
            ids = learner.store.decide(choices, 0.0, None)
            learner.store.reward([(id, 0.5) for id in ids], 0.0, None)
        drain(learner)
        if part == 1:
            learner.close()
            learner.policy.run._hold.close()
            learner = Learner(config, clock=Clock())
    assert learner.policy.decisions == 60
    assert learner.store.newest() > 1
    assert learner.store.rewards(9) == []
    learner.close()

"""A budget for persons: who must be named, what is learned of whom, and that none of it is lost with a process."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from private_policies import CAPPED, offered, small
from tabled import tabled

from accounting import AdjacencyMismatch, Budget, Ledger
from dpbandits import Policy, policies
from dpbandits.durability.state import tree_of
from dpbandits.policy.protocol import PrivacyReport
from dpkit.states.registry import NOBODY

PERSON = Budget(4.0, 1e-5, unit="person")
names = pytest.mark.parametrize("name", CAPPED)


def watched(policy):
    """The persons whose records are learned, as pairs of their ids and the open batch."""
    learned, learn = [], policy.learn

    def note(pending, reward):
        learned.append((pending.person, policy.counting.batch(policy)))
        learn(pending, reward)

    policy.learn = note
    return learned


def one_round(policy, person, reward=1.0):
    decision = policy.select(offered(policy), person=person)
    policy.update(decision, reward)


def snapshot(policy):
    return repr(tree_of(policy)), policy.open_decisions, repr(policy.ledger.rows())


# ------------------------------------------------------------------------------------------------- who comes


@names
def test_a_person_must_be_named_and_nothing_happens_where_none_is(name):
    policy = small(name, budget=PERSON)
    one_round(policy, "ann")
    before = snapshot(policy)
    with pytest.raises(ValueError, match=r"person must be given .* select\(arms, person=id\).*unit='round'"):
        policy.select(offered(policy))
    for bad in (7, b"ann", True, 1.0, None, ["ann"]):
        with pytest.raises(ValueError, match="person must"):
            policy.select(offered(policy), person=bad)
    with pytest.raises(ValueError, match="must"):
        policy.select(np.full((1, 3), 9.0), person="ben")
    assert snapshot(policy) == before


@names
def test_a_budget_for_rounds_needs_no_person_and_keeps_none(name):
    policy = small(name)
    policy.select(offered(policy))
    policy.select(offered(policy), person="ann")
    policy.select(offered(policy), person=7)
    assert {pending.person for pending in policy.waiting.values()} == {NOBODY}
    assert "persons" not in tree_of(policy)
    with pytest.raises(ValueError, match="person must be an id"):
        policy.select(offered(policy), person=1.5)
    with pytest.raises(ValueError, match=r"rounds_per_person must not be given .*Budget\(\.\.\., unit='person'\)"):
        small(name, rounds_per_person=1)


def test_reference_policies_look_at_the_type_only():
    policy = policies.Uniform(2)
    policy.select(np.eye(2), person="ann")
    policy.select(np.eye(2), 7)
    with pytest.raises(ValueError, match="person must be an id of type str, bytes or int"):
        policy.select(np.eye(2), person=3.0)
    assert policy.decisions == 2


@names
@tabled(("rounds", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError), (2**40, ValueError)])
def test_a_cap_that_is_none(name, rounds, error):
    with pytest.raises(error, match="rounds_per_person must"):
        small(name, budget=PERSON, rounds_per_person=rounds)


@names
def test_the_report_and_the_ledger_say_what_is_protected(name):
    ledger = Ledger(PERSON)
    policy = small(name, budget=PERSON, ledger=ledger)
    report = policy.privacy()
    assert isinstance(report, PrivacyReport)
    assert report.unit == "person"
    assert report.epsilon <= 4.0
    assert {row.unit for row in ledger.rows()} == {"person"}
    with pytest.raises(AdjacencyMismatch, match="one person"):
        small(name, budget=PERSON, ledger=Ledger(Budget(4.0, 1e-5, unit="round")))
    with pytest.raises(AdjacencyMismatch, match="one person"):
        small(name, ledger=Ledger(PERSON))


# ------------------------------------------------------------------------------------------ who is learned from


@names
def test_everyone_is_served_and_teaches_once(name):
    policy = small(name, budget=PERSON)
    learned = watched(policy)
    for t in range(40):
        one_round(policy, t % 7)
    taught = [person for person, _ in learned]
    assert policy.decisions == 40
    assert len(set(taught)) == len(taught)
    # a shuffled or an epoch's last batch, and what is dropped from it, depends on the decisions alone
    assert len(taught) == 7


@names
def test_of_a_person_whose_rewards_are_late_one_record_is_learned(name):
    policy = small(name, budget=PERSON)
    learned = watched(policy)
    waiting = []
    for t in range(39):
        waiting.append(policy.select(offered(policy), person=t % 3))
        if t % 10 == 9:
            for decision in waiting[::-1]:
                policy.update(decision, 1.0)
            waiting.clear()
    taught = [person for person, _ in learned]
    assert len(set(taught)) == len(taught) <= 3


@pytest.mark.parametrize("name", ["OnePassPrivateGLM", "ShuffleOnePassGLM"])
def test_a_reward_that_does_not_come_leaves_room_only_where_rewards_count(name):
    """In the shuffle model a person is in the batch of its first decision, whether or not a reward comes."""
    policy = small(name, budget=PERSON)
    learned = watched(policy)
    policy.forget(policy.select(offered(policy), person="ann"))
    one_round(policy, "ann")
    assert len(learned) == (1 if name == "OnePassPrivateGLM" else 0)


def test_persons_of_an_earlier_epoch_do_not_teach_in_a_later_one():
    policy = small("Doubling", budget=PERSON, parameters={"first_batch": 4})
    learned = watched(policy)
    for t in range(40):
        one_round(policy, t if t < 20 else t - 10)
    assert policy.epoch == 1
    assert len(learned) == 30


PRICED = [name for name in CAPPED if getattr(policies, name).prices_persons]


# of shufflers three records take a second to price
@pytest.mark.parametrize(("name", "m"), [(name, 2 if "Shuffle" in name else 3) for name in PRICED])
def test_everyone_teaches_m_times_in_m_batches(name, m):
    """Rewards come at once, late, or never; the price is the same, and more of them are noisier."""
    policy = small(name, budget=PERSON, rounds_per_person=m)
    learned = watched(policy)
    waiting = []
    for t in range(40):
        decision = policy.select(offered(policy), person=t % 5)
        if t % 3 == 0:
            policy.update(decision, 1.0)
        elif t % 3 == 1:
            waiting.append(decision)
        if t % 9 == 8:
            for late in waiting:
                policy.update(late, 1.0)
            waiting.clear()
    assert len(set(learned)) == len(learned) > 1
    for person in {person for person, _ in learned}:
        assert sum(one == person for one, _ in learned) <= m
    assert policy.privacy().epsilon <= PERSON.epsilon * (1 + 1e-9)


@pytest.mark.parametrize("name", ["OnePassPrivateGLM", "PrivateHvtUCB", "DPLinUCB"])
@pytest.mark.parametrize("adjacency", ["replace", "zero_out"])
def test_more_records_of_a_person_cost_more_noise_each_and_one_costs_what_a_round_does(name, adjacency):
    def noise(unit, m=None):
        budget = Budget(4.0, 1e-5, adjacency=adjacency, unit=unit)
        return small(name, budget=budget, rounds_per_person=m).sums.noise(3)[0]

    assert noise("person") == noise("round")
    assert 1.7 * noise("round") < noise("person", 2) < 2.3 * noise("round")
    assert 1.2 * noise("person", 2) < noise("person", 3) < 1.6 * noise("person", 2)


def test_several_records_are_refused_where_nobody_has_priced_them():
    class Own(policies.OnePassPrivateGLM):
        prices_persons = False

    assert Own(2, budget=PERSON, horizon=9).rounds_per_person == 1
    for make in (Own, policies.Doubling):
        with pytest.raises(ValueError, match=f"rounds_per_person must be 1 for {make.__name__}, got"):
            make(2, budget=PERSON, horizon=9, rounds_per_person=2)
    with pytest.raises(ValueError, match="rounds_per_person must be 1 with analysis='paper'"):
        policies.ShuffleGLM(2, budget=PERSON, horizon=90, rounds_per_person=2, analysis="paper")


# ------------------------------------------------------------------------------------------------- states


@pytest.mark.parametrize(
    ("name", "how"), [*((name, "checkpoint") for name in CAPPED), ("ShuffleLinUCB", "saved"), ("Doubling", "saved")]
)
def test_the_registry_survives_with_the_state(name, how, tmp_path):
    """At every round in turn the process is gone; one that never stops learns from the same persons."""
    rounds = [(t * 5) % 11 for t in range(24)]
    steady, expected = small(name, budget=PERSON), []
    learned = watched(steady)
    for person in rounds:
        one_round(steady, f"p{person}")
        expected.append(len(learned))
    path = tmp_path / "state"
    held = [small(name, budget=PERSON, checkpoint=path if how == "checkpoint" else None)]
    found = 0
    for t, person in enumerate(rounds):
        decision = held[0].select(offered(held[0]), person=f"p{person}")
        if t == 11:  # gone between the decision and its reward
            restart(held, path, how)
        learned = watched(held[0])
        held[0].update(decision, 1.0)
        del held[0].__dict__["learn"]
        found += len(learned)
        assert found == expected[t]
        if t in (0, 9):
            restart(held, path, how)
            assert held[0].persons.kind == "str"
            with pytest.raises(ValueError, match="of type str"):
                held[0].select(offered(held[0]), person=3)


def restart(held, path, how):
    if how == "saved":
        held[0].save(path)
    held.clear()
    gc.collect()
    held.append(Policy.load(path, unattended=True))


def test_a_state_whose_registry_is_missing_or_of_later_batches_is_refused(tmp_path):
    from dpkit.states import files

    policy = small("OnePassPrivateGLM", budget=PERSON)
    for t in range(6):
        one_round(policy, t)
    policy.save(tmp_path / "a")
    tree, _ = files.read(tmp_path / "a")
    lacking = {name: value for name, value in tree.items() if name != "persons"}
    later = tree | {"persons": tree["persons"] | {"marks": tree["persons"]["marks"] + 5}}
    greedy = tree | {"config": tree["config"] | {"rounds_per_person": None}}
    twice = tree | {"persons": tree["persons"] | {"marks": tree["persons"]["marks"] + (1 << 32)}}
    for bad in (lacking, later, twice):
        files.write(tmp_path / "b", bad)
        with pytest.raises(ValueError, match="must"):
            Policy.load(tmp_path / "b", unattended=True)
    files.write(tmp_path / "b", greedy)  # one is the default
    assert Policy.load(tmp_path / "b", unattended=True).rounds_per_person == 1


def test_the_state_holds_no_id(tmp_path):
    policy = small("OnePassPrivateGLM", budget=PERSON, checkpoint=tmp_path / "c")
    for _ in range(6):
        one_round(policy, "a rather unusual name")
    for file in tmp_path.iterdir():
        assert b"unusual" not in file.read_bytes()

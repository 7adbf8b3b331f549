"""``learn_log``: rows of a log are rounds of the policy's own, wherever they come from."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from private_policies import SMALL, budget_of, offered, play, small
from tabled import tabled

from accounting import Ledger
from dpbandits import Policy, policies
from dpbandits.durability.state import tree_of
from dpbandits.lab.evaluate import LoggedRound


def seeded(name: str, **more):
    return small(name, rng=np.random.default_rng(3), **more)


def choices(name: str, rounds: int) -> list[LoggedRound]:
    """What a policy of this kind chose, told at once."""
    policy, made = seeded(name), []
    for t in range(rounds):
        person = t % 3
        decision = policy.select(offered(policy), person=person)
        made.append(LoggedRound(offered(policy), decision.index, float(t % 2), person=person))
        policy.update(decision, made[-1].reward)
    return made


# logs: arms that others chose may tell of those who came, or rewards are known already
REFUSE = {"StandingPrivateGLM", "PrivateArms", "ShuffleArms", "LDPArms", "DPSE", "AdaPUCB"}


@pytest.mark.parametrize("name", sorted(set(SMALL) - REFUSE))
def test_rows_count_as_rounds(name, tmp_path):
    """The schedule, the releases, the open batch: all as if the policy had chosen what was logged."""
    rows = choices(name, 30)
    ledger = Ledger(budget_of(name))
    policy = seeded(name, ledger=ledger)
    spent = ledger.epsilon(1e-5)
    assert policy.learn_log(rows) == policy.decisions == 30
    assert policy.open_decisions == []
    assert ledger.epsilon(1e-5) >= spent  # epochs are charged as they begin, the rest nothing
    twin = seeded(name)
    for row in rows:
        key = twin.decisions
        twin.prepare(row.arms)
        arm = twin.chosen(row.arms, row.index)
        assert twin.admit_choice(arm, row.index, twin.who(row.person)) == key
        twin.update(key, row.reward)
    assert policy.releases == twin.releases > 0
    assert repr(policy.kept()) == repr(twin.kept())


@pytest.mark.parametrize("name", ["GLBOMD", "OFUL", "LinearThompson", "EpsilonGreedy", "DisjointThompson"])
def test_reference_policies_learn_logs(name):
    standing = {"arms": 2} if name.startswith("Disjoint") else {}
    policy = getattr(policies, name)(2, **standing, rng=np.random.default_rng(0))
    arms = offered(policy)
    policy.learn_log([LoggedRound(arms, t % 2, float(t % 2)) for t in range(200)])
    assert policy.decisions == 200
    assert policy.select(arms).index == 1


def test_a_log_is_worth_what_rounds_are_worth():
    """After 400 rows of random choices a policy of a tight budget knows the better arm of two."""
    rng = np.random.default_rng(0)
    policy = policies.OnePassPrivateGLM(2, budget=budget_of("OnePassPrivateGLM"), horizon=500, rng=rng)
    rows = [(np.eye(2)[k], float(rng.random() < (0.2, 0.8)[k])) for k in rng.integers(2, size=400)]
    policy.learn_log(rows)
    assert sum(policy.select(np.eye(2)).index for _ in range(50)) > 45


@pytest.mark.parametrize(
    "name", ["OnePassPrivateGLM", "PersonPrivateGLM", "DisjointPrivateGLM", "ShuffleOnePassGLM", "ShufflePersonGLM"]
)
def test_a_crash_in_the_middle_loses_nothing_that_was_counted(name, tmp_path, monkeypatch):
    rows = choices(name, 30)
    path = tmp_path / "c"
    policy = seeded(name, checkpoint=path)
    taught = []
    learn = type(policy).learn

    def crash(self, pending, reward):
        if len(taught) == 17:
            raise KeyboardInterrupt
        taught.append(reward)
        learn(self, pending, reward)

    monkeypatch.setattr(type(policy), "learn", crash)
    with pytest.raises(KeyboardInterrupt):
        policy.learn_log(rows)
    monkeypatch.undo()
    del policy
    gc.collect()
    policy = Policy.load(path, unattended=True)
    assert 17 < policy.decisions < 30  # the row at which it stopped is in the journal, too
    policy.learn_log(rows[policy.decisions :])
    assert policy.decisions == 30
    play(policy, 5)


def test_rows_are_durable_when_it_returns(tmp_path):
    policy = seeded("OnePassPrivateGLM", checkpoint=tmp_path / "c")
    policy.learn_log([(arm, 1.0) for arm in np.eye(2)])
    kept = repr(policy.kept())
    del policy
    gc.collect()
    again = Policy.load(tmp_path / "c", unattended=True)
    assert again.decisions == 2
    assert repr(again.kept()) == kept


GOOD = ([1.0, 0.0], 1.0)
BAD = {
    "no rows": ([], "rows must hold at least one row"),
    "text": ("abc", "rows must be an iterable"),
    "a number": (3, "rows must be an iterable"),
    "a short row": ([GOOD, ([1.0, 0.0],)], r"rows\[1\]: a row must be \(arm, reward\)"),
    "no row": ([GOOD, 7], r"rows\[1\]: a row must be"),
    "a wrong shape": ([GOOD, ([1.0], 1.0)], r"rows\[1\]: arms must have shape"),
    "a long arm": ([GOOD, ([1.0, 1.0], 1.0)], r"rows\[1\]: arms must have norm at most 1"),
    "NaN in an arm": ([GOOD, ([np.nan, 1.0], 1.0)], r"rows\[1\]: arms must be finite"),
    "a reward outside": ([GOOD, ([1.0, 0.0], 2.0)], r"rows\[1\]: reward must be"),
    "NaN for a reward": ([GOOD, ([1.0, 0.0], np.nan)], r"rows\[1\]: reward must be"),
    "no reward": ([GOOD, ([1.0, 0.0], None)], r"rows\[1\]: reward must be a number in a log.*leave the row out"),
    "no such arm": ([LoggedRound(np.eye(2), 2, 1.0)], r"rows\[0\]: index must be that of one of 2 arms"),
    "a negative arm": ([LoggedRound(np.eye(2), -1, 1.0)], r"rows\[0\]: index must be"),
    "a fraction of an arm": ([LoggedRound(np.eye(2), 0.5, 1.0)], r"rows\[0\]: index must be"),
    "a person who is no id": ([GOOD, (*GOOD, 1.5)], "person must be an id"),
    "too many": ([GOOD] * 41, r"rows must be at most 40, what is left of horizon=40, got 41"),
}


@tabled("case", sorted(BAD))
def test_bad_rows_are_refused_before_anything_is_learned(case):
    rows, message = BAD[case]
    policy = seeded("OnePassPrivateGLM")
    before = repr(tree_of(policy))
    with pytest.raises(ValueError, match=message):
        policy.learn_log(rows)
    assert repr(tree_of(policy)) == before


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([GOOD], r"rows\[0\]: person must be given"),
        ([(*GOOD, "a"), (*GOOD, 1)], r"rows\[1\]: person must be of one type"),
        ([(*GOOD, "a"), (*GOOD, True)], r"rows\[1\]: person must be an id"),
    ],
)
def test_persons_must_be_known(rows, message):
    policy = policies.PersonPrivateGLM(
        2, budget=budget_of("PersonPrivateGLM"), horizon=40, rng=np.random.default_rng(0)
    )
    with pytest.raises(ValueError, match=message):
        policy.learn_log(rows)
    assert policy.decisions == 0
    policy.learn_log([(*GOOD, "a")])
    with pytest.raises(ValueError, match="person must be of type str"):
        policy.learn_log([(*GOOD, 1)])
    assert policy.decisions == 1


def test_contexts_need_to_say_which_arm():
    policy = seeded("DisjointPrivateGLM")
    with pytest.raises(ValueError, match=r"rows\[0\]: a row must say which arm was chosen"):
        policy.learn_log([([0.5, 0.5], 1.0)])

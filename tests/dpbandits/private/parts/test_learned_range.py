"""reward_range="learned": what a round may touch, what a run costs, states, crashes, refusals, and that it learns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from interrupts import interrupted

from accounting import Budget, Laplace, Ledger
from dpbandits import Policy, Released
from dpbandits.durability.checkpoint import Checkpoint
from dpbandits.policies import (
    DPHDB,
    DisjointPrivateGLM,
    Doubling,
    DPLinUCB,
    OnePassPrivateGLM,
    PersonPrivateGLM,
    PrivateArms,
    ShuffleOnePassGLM,
    ShufflePersonGLM,
    StandingPrivateGLM,
)
from dpbandits.policy.learned_range import LearnedRange
from dpkit.moments.arm_batches import ArmBatches
from dpkit.moments.windows import RecordWindow
from dpkit.states import RunStopped

LARGE = 400.0  # at which twelve rounds tell a range


def seeded(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def made(kind: Any = PrivateArms, **more: Any) -> Any:
    """A policy of 120 rounds, of which twelve tell the range."""
    pure = kind is PrivateArms
    given = {"budget": Budget(LARGE, 0.0 if pure else 1e-6), "horizon": 120, "rng": seeded(), "reward_range": "learned"}
    sizes: tuple[Any, ...] = (2,)
    if kind is PrivateArms:
        given["first_batch"] = 4
    elif kind is PersonPrivateGLM:
        given["budget"] = Budget(LARGE, 1e-6, unit="person")
        given["first_batch"] = 4
    else:
        given["first_batch"] = 4
        sizes = (2, 2) if kind is DisjointPrivateGLM else (2, np.eye(2)) if kind is StandingPrivateGLM else (2,)
    return kind(*sizes, **given | more)


KINDS = [PrivateArms, OnePassPrivateGLM, StandingPrivateGLM, DisjointPrivateGLM, PersonPrivateGLM]


def offered(policy: Any) -> Any:
    if isinstance(policy, PrivateArms):
        return np.zeros(1)
    return np.array([0.6, -0.8]) if policy.takes == "context" else np.eye(2)


def chosen(policy: Any, person: int | None = None) -> Any:
    if policy.persons is not None and person is None:
        person = policy.decisions
    return policy.select(offered(policy), person)


# ------------------------------------------------------------------------------------------------- what it costs


@pytest.mark.parametrize("kind", KINDS)
def test_it_costs_what_a_stated_range_costs(kind):
    learned, stated = made(kind), made(kind, reward_range=(0.0, 1.0))
    assert learned.scale.rounds == 12
    assert [row.release for row in learned.ledger.rows()] == [row.release for row in stated.ledger.rows()]


def test_the_window_is_priced_by_the_cost_of_the_run():
    policy = made(budget=Budget(2.0, 0.0), horizon=2000)
    assert policy.sums.cost == Laplace(0.5, adjacency="replace")
    assert policy.scale._window.choice == RecordWindow(policy.sums.cost).choice


# ----------------------------------------------------------------------------- what a round, or a person, may touch


def touched(told: dict[int, tuple[float, int]], monkeypatch, persons: list[int] | None = None) -> tuple[Any, Any]:
    """What the window and the sums take in, of a run of thirty rounds: rewards, and after how many rounds they come.

    The range is the same whatever is told, as in the proof.
    """
    window, sums = [], []
    budget = Budget(LARGE, 0.0, unit="round" if persons is None else "person")
    with monkeypatch.context() as patch:
        patch.setattr(RecordWindow, "add", lambda self, end, r: window.append((end, r)))
        patch.setattr(RecordWindow, "release", lambda self, sizes: window.append(sizes) or (0.0, 8.0))
        patch.setattr(ArmBatches, "add", lambda self, arm, r: sums.append((self.turns.decisions, arm, r)))
        policy = made(budget=budget)
        assert policy.scale.rounds == 12
        due: dict[int, list[tuple[int, float]]] = {}
        for t in range(30):
            policy.register(np.zeros(1), t % 2, None if persons is None else persons[t])
            reward, late = told.get(t, (1.0, 0))
            due.setdefault(t + late, []).append((t, reward))
            for key, value in due.pop(t, []):
                policy.update(key, value)
    assert policy.scale.found == (0.0, 8.0)
    return sorted(window), sorted(sums)


# 99 is never
TOLD = [(r, late) for r in (1.0, 5.0) for late in (0, 1, 4, 15, 99)]


def differences(changed: list[int], monkeypatch, persons: list[int] | None = None) -> set[tuple[int, int]]:
    """In how many entries window and sums differ, at most, between a run and those that differ in these rounds."""
    found = [touched(dict.fromkeys(changed, told), monkeypatch, persons) for told in TOLD]
    if len(changed) > 1:  # the first of the rounds tells, or the others
        found += [touched(dict.fromkeys(changed[:1], (1.0, 99)), monkeypatch, persons)]
        found += [touched(dict.fromkeys(changed[1:], (1.0, 99)), monkeypatch, persons)]

    def apart(one: list[Any], other: list[Any]) -> int:
        return max(sum(x not in other for x in one), sum(x not in one for x in other))

    return {(apart(a[0], b[0]), apart(a[1], b[1])) for a in found for b in found}


@pytest.mark.parametrize(("changed", "most"), [(0, (1, 0)), (3, (1, 0)), (11, (1, 0)), (12, (0, 1)), (20, (0, 1))])
def test_a_round_touches_the_range_or_the_sums(changed, most, monkeypatch):
    """Another reward, late by any number of rounds, or never: every pair of neighbouring runs."""
    found = differences([changed], monkeypatch)
    assert {max(one) for one in zip(*found, strict=True)} == {0, 1}
    assert all(a <= most[0] and b <= most[1] for a, b in found)


def test_late_rewards_of_the_first_rounds_in_the_sums_are_caught(monkeypatch):
    takes = LearnedRange.takes
    monkeypatch.setattr(LearnedRange, "takes", lambda self, p, r: False if self.found else takes(self, p, r))
    assert any(a and b for a, b in differences([3], monkeypatch))


# person 7 has these rounds, and all others one each
HIS = [3, 6, 8, 14, 21]
WHOSE = [7 if t in HIS else 100 + t for t in range(30)]


def test_a_person_of_the_first_rounds_tells_one_end_of_the_range_once_and_nothing_more(monkeypatch):
    found = differences(HIS, monkeypatch, WHOSE)
    assert max(found) == (1, 0)
    window, sums = touched({}, monkeypatch, WHOSE)
    # of twelve rounds three are his, by the first of which he tells the lower end, as five others do
    assert (4, 6) in window
    assert len(window) == 11
    assert len(sums) == 18 - 2


def test_a_person_who_tells_both_ends_or_the_sums_too_is_caught(monkeypatch):
    def by_round(self, pending, reward):
        if self.found is None:
            self._window.add(pending.round % 2, reward)
        return pending.round < self.rounds

    monkeypatch.setattr(LearnedRange, "takes", by_round)
    monkeypatch.setattr(LearnedRange, "idle", lambda self, pending: pending.round < self.rounds)
    found = differences(HIS, monkeypatch, WHOSE)
    assert max(a for a, _ in found) > 1
    assert any(a and b for a, b in found)


def test_decisions_of_which_nothing_will_be_learned_do_not_count_for_the_arms():
    policy = made(budget=Budget(LARGE, 0.0, unit="person"), first_batch=50)
    for t in range(30):
        policy.update(policy.register(np.zeros(1), t % 2, WHOSE[t]), 1.0)
    later = [t % 2 for t in range(12, 30) if WHOSE[t] != 7]
    assert policy.sums.turns.counts(policy.clock).tolist() == [later.count(0), later.count(1)]


def test_a_person_who_comes_later_teaches_as_ever(monkeypatch):
    whose = [7 if t in (14, 21) else 100 + t for t in range(30)]
    assert max(differences([14, 21], monkeypatch, whose)) == (0, 1)


# ---------------------------------------------------------------------------------------------- state and crashes


def rounds(policy: Any, first: int, last: int) -> list[Any]:
    out = []
    for t in range(first, last):
        decision = chosen(policy)
        out.append((decision.index, np.asarray(decision.scores).tolist()))
        if t % 5:
            policy.update(decision, 100.0 * (t % 3))
        if t % 7 == 6 and policy.open_decisions:
            policy.update(policy.open_decisions[0], 100.0)
    return out


@pytest.mark.parametrize(("kind", "when"), [(PrivateArms, 12), *[(kind, when) for kind in KINDS for when in (5, 13)]])
def test_a_state_goes_on_bit_for_bit(kind, when, tmp_path):
    policy = made(kind)
    rounds(policy, 0, when)
    assert (policy.learned_range is None) == (when <= 12)
    policy.save(tmp_path / "state")
    again = Policy.load(tmp_path / "state", unattended=True)
    assert again.learned_range == policy.learned_range
    assert again.stated_range == "learned"
    assert rounds(again, when, 60) == rounds(policy, when, 60)
    assert policy.learned_range == again.learned_range
    assert policy.learned_range is not None
    assert policy.releases > 0


@pytest.mark.parametrize("when", [7, 12, 13, 20])
def test_a_crash_loses_no_reward_of_the_first_rounds(when, tmp_path):
    ledger = Ledger(Budget(LARGE, 0.0))
    policy = made(checkpoint=tmp_path / "run", ledger=ledger)
    rounds(policy, 0, when)
    kept = policy.scale.kept(), policy.kept()
    policy.run.release_hold()
    again = Policy.load(tmp_path / "run", ledger=ledger)
    assert repr((again.scale.kept(), again.kept())) == repr(kept)
    assert rounds(again, when, 40)
    assert again.learned_range is not None


def test_a_range_that_is_not_durable_is_seen_by_nobody(tmp_path, monkeypatch):
    ledger = Ledger(Budget(LARGE, 0.0))
    policy = made(checkpoint=tmp_path / "run", ledger=ledger)
    rounds(policy, 0, 12)
    with monkeypatch.context() as patch:

        def full(self, tree, waiting):
            raise OSError("the disk is full")

        patch.setattr(Checkpoint, "keep", full)
        with pytest.raises(OSError, match="the disk is full"):
            chosen(policy)
    assert policy.learned_range is None
    with pytest.raises(ValueError, match="no information yet"):
        policy.means()
    for call in (lambda: chosen(policy), policy.released, lambda: policy.save(tmp_path / "other")):
        with pytest.raises(RunStopped):
            call()
    policy.run.release_hold()
    again = Policy.load(tmp_path / "run", ledger=ledger)
    assert again.learned_range is None
    rounds(again, 12, 20)
    assert again.learned_range is not None


@pytest.mark.thorough
def test_a_range_that_was_seen_is_never_drawn_again(tmp_path):
    """KeyboardInterrupt at lines all over its release; the checkpoint goes on."""
    seen = stopped = 0
    for n in [*range(1, 200, 19), *range(200, 2600, 83)]:
        path, ledger = tmp_path / f"run{n}", Ledger(Budget(LARGE, 0.0))
        policy = made(checkpoint=path, ledger=ledger)
        rounds(policy, 0, 12)
        interrupted(lambda policy=policy: chosen(policy), n)
        shown = policy.learned_range
        if policy.run.stopped is not None:
            stopped += 1
            with pytest.raises(RunStopped):
                chosen(policy)
        policy.run.release_hold()
        again = Policy.load(path, ledger=ledger)
        if shown is not None:
            seen += 1
            assert again.learned_range == shown
        assert rounds(again, again.decisions, 15)
        assert again.learned_range is not None
    assert seen > 2
    assert stopped > 10


def test_a_release_is_the_same_anywhere():
    policy = made()
    for last in (5, 40):
        rounds(policy, policy.decisions, last)
        found = Released.from_json(policy.released().to_json())
        assert found.probabilities(np.zeros(1)).tolist() == policy.score(np.zeros(1)).chances().tolist()
    assert policy.last_release() > 12


def test_damaged_states_are_refused():
    scale = made(budget=Budget(LARGE, 0.0, unit="person")).scale
    good = scale.kept()
    one = np.array([1], np.int64)
    for bad in (
        {"telling": 11},
        {"found": np.array([1.0, 1.0])},
        {"found": np.array([1.0, math.nan])},
        {"persons": np.array([2, 1], np.int64), "ends": np.array([0, 0], np.int64)},
        {"persons": one, "ends": 4 * one},
        {"persons": one},
        {"window": {}},
    ):
        with pytest.raises(ValueError, match=r"must"):
            scale.resume(good | bad)
    with pytest.raises(ValueError, match="scale must hold the entries"):
        scale.resume({"telling": 12})
    scale.resume(good | {"persons": one, "ends": one})


# --------------------------------------------------------------------------------------------------------- refusals


def test_bad_input_is_refused_before_anything_is_spent(tmp_path):
    ledger = Ledger(Budget(2.0, 1e-6))
    budget = {"budget": Budget(2.0, 1e-6), "horizon": 5000, "ledger": ledger, "reward_range": "learned"}
    person = {"budget": Budget(2.0, 1e-6, unit="person"), "ledger": None}
    for kind, sizes, more, text in (
        (OnePassPrivateGLM, (2,), {"reward_range": "learnt"}, r"reward_range must be \(low, high\) or 'learned'"),
        (OnePassPrivateGLM, (2,), {"base_rate": 4.0}, r"base_rate must lie strictly inside reward_range, \(0, 1\)"),
        (OnePassPrivateGLM, (2,), {"horizon": 500}, "horizon must be at least|or horizon be at least"),
        (OnePassPrivateGLM, (2, "poisson"), {}, "reward_range must be stated for a link over counts"),
        (DPLinUCB, (2,), {}, "reward_range must be stated for DPLinUCB"),
        (DPHDB, (2, 2), {}, "reward_range must be stated for DPHDB"),
        (ShuffleOnePassGLM, (2,), {}, "reward_range must be stated for ShuffleOnePassGLM"),
        (ShufflePersonGLM, (2,), person, "reward_range must be stated for ShufflePersonGLM"),
        (Doubling, (2,), {"horizon": None}, "reward_range must be stated for Doubling"),
    ):
        given = {name: value for name, value in (budget | more).items() if value is not None}
        with pytest.raises(ValueError, match=text):
            kind(*sizes, **given, checkpoint=tmp_path / "run")
    assert not ledger.rows()
    assert not list(tmp_path.iterdir())


def test_rewards_that_are_no_finite_numbers_are_refused():
    policy = made()
    decision = chosen(policy)
    for reward in (math.nan, math.inf, -math.inf, "1", [1.0]):
        with pytest.raises(ValueError, match="reward must be"):
            policy.update(decision, reward)
    assert policy.open_decisions == [0]
    policy.update(decision, 1e300)  # any other is taken, and cut
    assert policy.open_decisions == []


def test_a_known_delay_is_waited_for():
    policy = made(StandingPrivateGLM, delay=20)
    assert (policy.scale.telling, policy.scale.rounds) == (12, 32)
    for t in range(40):
        chosen(policy)
        if t >= 20:
            policy.update(t - 20, 6.0)
    assert policy.learned_range == (4.0 * math.sqrt(2.0), 8.0)
    assert policy.last_release() == 36


def test_rewards_of_nothing_leave_the_signs_and_say_so():
    policy = made()
    for _ in range(12):
        policy.update(chosen(policy), 0.0)
    with pytest.warns(UserWarning, match="no more than the sign counts"):
        chosen(policy)
    assert policy.learned_range == (-(2.0**-40), 2.0**-40)
    assert [policy.scale.scaled(r) for r in (-7.0, 0.0, 7.0, 1e308, -1e308)] == [0.0, 0.5, 1.0, 1.0, 0.0]


# -------------------------------------------------------------------------------------------------------- it learns


@pytest.mark.thorough
def test_it_learns_in_any_unit_and_says_means_in_it():
    """Rewards of 0 or 2,000 at ε = 2, from a range that nobody states; seeds that chose nothing."""
    means, lost = [0.2, 0.5, 0.8], []
    for seed in range(3):
        rng = seeded(seed)
        policy = PrivateArms(3, budget=Budget(2.0, 0.0), horizon=3000, reward_range="learned", rng=rng)
        regret = 0.0
        for _ in range(3000):
            decision = policy.select()
            policy.update(decision, 2000.0 * (rng.random() < means[decision.index]))
            regret += 0.8 - means[decision.index]
        lost.append(regret / 3000 / 0.3)
        low, high = policy.interval("2")
        assert low < 1600 < high
        assert policy.means()["2"] == pytest.approx(1600, abs=200)
    assert np.mean(lost) < 0.15


def test_a_seed_leads_to_the_same_choices_in_another_unit():
    """A power of two is a unit and nothing else, also in the first rounds."""
    runs = []
    for unit in (1.0, 2.0**10):
        policy, arms, coins = made(OnePassPrivateGLM, rng=seeded(3)), [], seeded(9).random((120, 2))
        for coin in coins:
            decision = chosen(policy)
            policy.update(decision, unit * (coin[0] < 0.3 + 0.4 * decision.index) * (1.0 + coin[1]))
            arms.append(decision.index)
        runs.append((arms, np.array(policy.learned_range) / unit))
    assert runs[0][0] == runs[1][0]
    assert runs[0][1].tolist() == runs[1][1].tolist()

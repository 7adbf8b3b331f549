"""ShuffleArms and LDPArms: what leaves a device and a shuffler, exactly; what they cost; and that they learn."""

from __future__ import annotations

import gc
import itertools
import math
from collections import Counter

import numpy as np
import pytest
from continued import goes_on
from hypothesis import given
from hypothesis import strategies as st

from accounting import Budget, Gaussian, Laplace, Ledger, LocalShuffled, PureDP, calibrate, delta, epsilon
from dpbandits import Policy, Released
from dpbandits.policies import Doubling, LDPArms, PrivateArms, Restarting, ShuffleArms
from dpkit.moments import ArmMessages, ShuffledArms
from dpkit.moments.reports import Reports
from dpkit.moments.shuffled_arms import _plans

TWINS = {ShuffleArms: Budget(4.0, 1e-5), LDPArms: Budget(4.0, 0.0)}
twins = pytest.mark.parametrize("kind", TWINS)


def seeded(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def made(kind, arms=2, **more):
    return kind(
        arms, **{"budget": TWINS[kind], "horizon": 60, "first_batch": 3, "growth": 1.0, "rng": seeded(), **more}
    )


# ------------------------------------------------------------------------------------------------- what a device sends


@given(st.floats(0.05, 12.0), st.integers(2, 12))
def test_a_report_is_epsilon_dp_and_right_on_average(epsilon, levels):
    reports = Reports(epsilon, levels)
    ratio = reports.chances[:, None] / reports.chances[None]
    assert ratio.max() <= math.exp(epsilon) * (1 + 1e-9)
    assert ratio.max() >= math.exp(epsilon) * (1 - 1e-9)
    assert reports.chances.sum(axis=1) == pytest.approx(np.ones(levels))
    exact = np.linspace(-0.5, 0.5, levels)
    assert reports.chances @ reports.values == pytest.approx(exact, abs=1e-6 * abs(reports.values).max())
    # of a number at an end, beyond the spread of numbers themselves
    assert reports.noise == pytest.approx(math.sqrt(reports.chances[-1] @ (reports.values - 0.5) ** 2))


@given(st.floats(0.1, 12.0))
def test_two_levels_have_the_least_noise_for_ends(epsilon):
    """Also less than Laplace noise; for numbers that are spread out and ε = 4 more levels have less."""
    found = [Reports(epsilon, levels).noise for levels in (2, 3, 4, 8)]
    assert found == sorted(found)
    assert found[0] == pytest.approx(0.5 / math.sinh(epsilon / 2))
    assert found[-1] < math.sqrt(2) / epsilon


@pytest.mark.parametrize(("budget", "m"), [(Budget(1.0, 1e-6), 1), (Budget(4.0, 1e-2), 5), (Budget(0.5, 1e-4), 20)])
def test_reports_have_no_more_noise_than_gaussian_ones(budget, m):
    sums = ArmMessages(2, 0.0, 1.0, budget=budget, records=m)
    assert sums.noise < calibrate(lambda z: m * Gaussian(z), budget)


@pytest.mark.parametrize(("levels", "x"), [(2, 0.25), (4, 0.8)])
def test_devices_draw_with_the_stated_chances(levels, x):
    """A sound one is failed by another seed with probability 1e-9 at most: six and a half deviations."""
    reports, n = Reports(1.2, levels, rng=seeded(3)), 20_000
    place = x * (levels - 1)
    low, up = int(place), place - int(place)
    expected = n * ((1 - up) * reports.chances[low] + up * reports.chances[min(low + 1, levels - 1)])
    found = np.bincount([reports.draw(x) for _ in range(n)], minlength=levels)
    assert (np.abs(found - expected) < 6.5 * np.sqrt(expected)).all()


# -------------------------------------------------------------------------------------------- what a shuffler lets out


def law_of_ones(plan, ends) -> np.ndarray:
    """The chance of every number of ones that users let out who have records at these ends, 0 or 1."""
    if plan.protocol is None:
        found = np.ones(1)
        for end in ends:
            found = np.convolve(found, Reports(plan.epsilon).chances[end])
        return found
    n, g, b = len(ends), plan.protocol.resolution, plan.protocol.noise_bits
    k = np.arange(n * b + 1)
    logs = np.array([math.lgamma(n * b + 1) - math.lgamma(i + 1) - math.lgamma(n * b - i + 1) for i in k])
    found = np.zeros(n * (g + b) + 1)
    found[sum(ends) * g + k] = np.exp(logs - n * b * math.log(2))
    return found


def hockey_stick(p, q, epsilon) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


@pytest.mark.parametrize(
    ("budget", "users"), [(Budget(4.0, 1e-3), 6), (Budget(1.0, 1e-3), 12), (Budget(1.0, 1e-2), 30)]
)
def test_what_is_let_out_of_a_batch_meets_the_budget_exactly(budget, users):
    """All inputs of the others; and half the noise is caught."""
    (plan,) = _plans((users,), budget, 1)
    for ones in range(users):
        rest = [1] * ones + [0] * (users - 1 - ones)
        p, q = law_of_ones(plan, [0, *rest]), law_of_ones(plan, [1, *rest])
        assert max(hockey_stick(p, q, budget.epsilon), hockey_stick(q, p, budget.epsilon)) <= budget.delta * (1 + 1e-9)
    if plan.protocol is None:
        worse = _plans((users,), Budget(2 * budget.epsilon, budget.delta), 1)[0]
        p, q = law_of_ones(worse, [0] * users), law_of_ones(worse, [1] + [0] * (users - 1))
        assert hockey_stick(p, q, budget.epsilon) > 5 * budget.delta


@pytest.mark.thorough
def test_batches_take_the_messages_with_less_noise():
    budget = Budget(4.0, 1e-6)
    sums = ShuffledArms(2, 0.0, 1.0, [8, 64, 512], budget=budget)
    assert sums.kinds == ["response", "response", "sum"]
    assert sums.noise[0] == pytest.approx(math.sqrt(8) * 0.5 / math.sinh(2.0), rel=1e-3)
    for plan in _plans((8, 64, 512), budget, 1):
        assert delta(plan.cost, 4.0) <= 1e-6 * (1 + 1e-9)
    # a record that counts for nothing is half as far
    halved = ShuffledArms(2, 0.0, 1.0, [512], budget=Budget(4.0, 1e-6, adjacency="zero_out"))
    assert halved.noise[0] == pytest.approx(sums.noise[-1] / 2, rel=0.02)
    # shuffled Laplace noise on records costs more where it is as small
    users = 300
    (plan,) = _plans((users,), Budget(1.0, 1e-6), 1)
    same = Laplace(plan.noise / math.sqrt(2 * users))
    assert epsilon(LocalShuffled(same, users=users), 1e-6) > 1.2


@pytest.mark.thorough
def test_a_sum_is_right_on_average_and_as_noisy_as_stated():
    """Missing records count as the middle. False alarms under other seeds: 1e-9 (six and a half deviations)."""
    for length, kind in ((8, "response"), (100, "sum")):
        sums, found, t = ShuffledArms(2, -1.0, 3.0, [length] * 40, budget=Budget(4.0, 1e-6), rng=seeded(length)), [], 0
        assert sums.kinds[0] == kind
        for _ in range(40):
            for i in range(length):
                sums.turns.decided(t, 1)
                t += 1
                if i % 4:
                    sums.add(1, 3.0 if i % 4 == 1 else -1.0)
            found.append(sums.release(1, t))
            assert sums.absent == 0.25
        # what is missing is the middle, of which a response is a coin
        std = math.sqrt(sums.noise[0] ** 2 + (kind == "response") * length / 4 * 4.0)
        assert abs(np.mean(found) + length / 2) < 6.5 * std / math.sqrt(40)
        assert 0.4 * std < np.std(found) < 1.8 * std


# -------------------------------------------------------------------------------------------- what it costs, and whom


def test_costs():
    ledger = Ledger(Budget(2.0, 1e-6))
    policy = made(ShuffleArms, budget=Budget(2.0, 1e-6), ledger=ledger)
    assert ledger.epsilon(1e-6) <= 2.0 * (1 + 1e-9)
    ledger = Ledger(Budget(2.0, 0.0, unit="person"))
    policy = made(LDPArms, budget=Budget(2.0, 0.0, unit="person"), rounds_per_person=4, ledger=ledger)
    assert policy.sums.cost == 4 * PureDP(0.5, adjacency="replace")
    assert ledger.epsilon(0.0) == pytest.approx(2.0)
    assert policy.privacy().trust == "local"
    with pytest.raises(ValueError, match="delta must be positive"):
        made(ShuffleArms, budget=Budget(1.0, 0.0))


def messages_of(policy, monkeypatch):
    """What users of each batch put in, by arm and batch; devices draw nothing, and no release tells anything."""
    told: dict[tuple[int, int], list[float]] = {}
    at = []

    def note(sums, plan, g, users):
        told.setdefault((at[-1], int(sums.released[at[-1]])), []).extend([g] * users)
        return 0

    def add(sums, arm, r):
        at.append(arm)
        added(sums, arm, r)

    def release(sums, arm, decisions):
        at.append(arm)
        released(sums, arm, decisions)
        return 0.0

    added, released = ShuffledArms.add, ShuffledArms.release
    monkeypatch.setattr(ShuffledArms, "_sent", note)
    monkeypatch.setattr(ShuffledArms, "add", add)
    monkeypatch.setattr(ShuffledArms, "release", release)
    return told


ROUND = [(0.0, 0), (1.0, 0), (1.0, 2), (0.0, 5), (1.0, 99)]


def play(policy, world, people=None):
    due: dict[int, list[tuple[int, float]]] = {}
    for t, (reward, late) in enumerate(world):
        policy.select(person=None if people is None else people[t])
        due.setdefault(t + late, []).append((t, reward))
        for key, value in due.pop(t, []):
            policy.update(key, value)
    policy.settle()


@pytest.mark.parametrize("m", [None, 1, 2])
def test_one_unit_changes_one_message_of_each_of_m_batches_at_most(m, monkeypatch):
    """By all that a round may be, or a person with four rounds; and each batch has the users that it should."""
    people = None if m is None else [0, 1, 2, 3, 4, 0, 5, 6, 0, 7, 8, 0, 9, 10]
    mine = [3] if m is None else [t for t, one in enumerate(people) if one == 0]
    runs = []
    for own in ROUND:
        policy = made(
            ShuffleArms,
            budget=Budget(4.0, 1e-3, unit="round" if m is None else "person"),
            horizon=40,
            **({} if m is None else {"rounds_per_person": m}),
        )
        with monkeypatch.context() as patch:
            told = messages_of(policy, patch)
            play(policy, [own if t in mine else ROUND[t % 2] for t in range(14)], people)
        runs.append({key: sorted(sent) for key, sent in told.items() if key[1] < policy.public.closed[key[0]]})
    assert len({tuple(sorted(run)) for run in runs}) == 1  # the same batches
    assert all(len(sent) == 3 for run in runs for sent in run.values())
    worst = 0
    for one, other in itertools.combinations(runs, 2):
        moved = [sum((Counter(one[key]) - Counter(other[key])).values()) for key in one]
        assert max(moved) <= 1  # one message of a batch
        worst = max(worst, sum(moved))
    assert worst == (m or 1)


# ------------------------------------------------------------------------------------------------------ they learn


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "budget"), [(ShuffleArms, Budget(4.0, 1e-6)), (LDPArms, Budget(4.0, 0.0))])
def test_they_find_the_better_one(kind, budget):
    lost, held = 0.0, []
    for seed in range(2):
        rng, means = seeded(seed), [0.2, 0.5, 0.3]
        policy = kind(3, budget=budget, horizon=1500, rng=rng)
        for _ in range(1500):
            decision = policy.select()
            policy.update(decision, float(rng.random() < means[decision.index]))
            lost += 0.5 - means[decision.index]
        for arm, mean in enumerate(means):
            low, high = policy.interval(str(arm), 0.99)
            held.append(low <= mean <= high)
    assert lost / 2 < 110  # by chance 250
    assert sum(held) >= 5


@twins
def test_arms_come_and_go_and_states_go_on(kind, tmp_path):
    for when in (0, 13, 41):
        policy = goes_on(made(kind, ["a", "b"]), when, tmp_path / "state")
        assert set(policy.means()) == {"b", "c"}
        found = Released.from_json(policy.released().to_json())
        assert found.probabilities(np.zeros(1)).tolist() == policy.score(np.zeros(1)).chances().tolist()


def test_reports_that_come_all_at_once_count_by_their_mean():
    policy = made(LDPArms, horizon=400)
    decisions = [policy.select() for _ in range(40)]
    for decision in decisions:
        policy.update(decision, float(decision.index))
    policy.settle()
    assert policy.releases == 2
    assert policy.means()["0"] < 0.35 < 0.65 < policy.means()["1"]


@twins
@pytest.mark.parametrize("epochs", [Doubling, Restarting])
def test_they_start_anew_in_epochs(kind, epochs, tmp_path):
    length = {"first_epoch": 20} if epochs is Doubling else {"every": 20}
    inner = {"arms": ["a", "b"], "first_batch": 4}
    policy = epochs(1, kind.__name__, budget=TWINS[kind], parameters=inner, rng=seeded(), **length)
    for t in range(70):
        decision = policy.select()
        policy.update(decision, float(decision.name == "b"))
        if t == 25:
            policy.save(tmp_path / "state")
            policy = Policy.load(tmp_path / "state", unattended=True)
    assert policy.epoch >= 1
    assert policy.trust == kind.trust
    assert policy.privacy().epsilon <= 4.0 * (1 + 1e-9)


def test_late_rewards_of_a_shuffler_are_warned_of():
    policy = made(ShuffleArms, horizon=200)
    for t in range(4):
        decision = policy.select()
        if t == 0:
            policy.update(decision, 1.0)
    while (policy.sums.turns.counts(policy.decisions) < 3).all():
        policy.select()
    with pytest.warns(UserWarning, match=r"% of the rewards of a batch had not come .* take a first_batch"):
        policy.settle()


@pytest.mark.parametrize("kind", [PrivateArms, ShuffleArms])
def test_nothing_of_persons_is_lost_with_a_process(kind, tmp_path):
    """A policy whose process is gone after every fourth round knows what one knows that never stops."""

    def fresh(**more):
        budget = Budget(4.0, 1e-3, unit="person")
        return kind(2, budget=budget, rounds_per_person=2, horizon=60, first_batch=3, growth=1.0, **more)

    def who_is_in(policy):
        known = policy.sums.turns.kept()
        return [known[name].tolist() for name in ("counted", "asked", "told")]

    def taught(policy):
        return sorted(policy.persons.kept()["marks"].tolist())

    steady, held = fresh(), [fresh(checkpoint=tmp_path / "c")]
    steady.persons._salt = held[0].persons._salt  # the same hashes
    for t in range(32):
        person, arm = (5 * t) % 7, t % 5 % 2
        for policy in (steady, *held):
            policy.register(np.zeros(1), arm, person=person)
            for key in [key for key in (t, t - 5) if key % 3 == key // 3 % 2 and key in policy.open_decisions]:
                policy.update(key, float(t % 2))
        del policy
        assert who_is_in(held[0]) == who_is_in(steady)
        assert taught(held[0]) == taught(steady)
        if t % 4 == 2:
            held.clear()
            gc.collect()
            held.append(Policy.load(tmp_path / "c", unattended=True))
    assert steady.releases == held[0].releases >= 4
    assert max(taught(steady)) >> 32 == 2


@pytest.mark.parametrize("kind", [PrivateArms, *TWINS])
def test_bad_input_is_refused_plainly_and_nothing_is_spent(kind):
    budget = TWINS.get(kind, Budget(2.0, 0.0))
    ledger = Ledger(budget)
    for bad, words in [
        ({"arms": 1}, "arms must be at least two"),
        ({"arms": ["a"]}, "arms must be at least two"),
        ({"arms": ["a", "b", "a"]}, "name must be that of no other arm .* got name='a' twice"),
        ({"reward_range": (0.0, math.inf)}, "reward_range must be finite"),
        ({"first_batch": 0}, "first_batch must be at least 1"),
        ({"growth": 0.5}, "growth must be at least 1"),
        ({"exploration": -1.0}, "exploration must"),
        ({"horizon": 0}, "horizon must be at least 1"),
    ]:
        with pytest.raises(ValueError, match=words):
            kind(**{"arms": 2, "budget": budget, "horizon": 60, "ledger": ledger, **bad})
    assert not ledger.rows()
    policy = kind(["a", "b"], budget=budget, horizon=60, first_batch=3, rng=seeded())
    with pytest.raises(ValueError, match="no information yet: no active arm has completed its first batch"):
        policy.means()
    with pytest.raises(ValueError, match="no information yet: arm 'a' has not completed its first batch"):
        policy.interval("a")
    with pytest.raises(ValueError, match=r"arm must be one of \['a', 'b'\]"):
        policy.interval("c")
    decision = policy.select()
    for reward in (1.5, -0.1, math.nan, "much"):
        with pytest.raises(ValueError, match="reward must be"):
            policy.update(decision, reward)
    policy.update(decision, 1.0)
    assert policy.decisions == 1
    with pytest.raises(ValueError, match="rows must"):
        policy.learn_log([])


def test_parts_refuse_what_they_cannot_take():
    with pytest.raises(ValueError, match="levels must be at most 64"):
        LDPArms(2, budget=Budget(1.0, 0.0), horizon=60, levels=65)
    with pytest.raises(ValueError, match="lengths must ascend"):
        ShuffledArms(2, 0.0, 1.0, [8, 4], budget=Budget(1.0, 1e-5))
    sums = ShuffledArms(2, 0.0, 1.0, [1], budget=Budget(4.0, 1e-5), rng=seeded())
    for r in (1.1, math.nan):
        with pytest.raises(ValueError, match="r must be from 0"):
            sums.add(0, r)
        with pytest.raises(ValueError, match="r must be from 0"):
            ArmMessages(2, 0.0, 1.0, budget=Budget(1.0, 0.0)).add(0, r)
    sums.turns.decided(0, 0)
    sums.release(0, 1)
    sums.add(0, 1.0)  # dropped, unseen
    assert not sums.users.any()
    with pytest.raises(ValueError, match="at most 1 batches"):
        sums.release(0, 1)

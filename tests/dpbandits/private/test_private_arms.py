"""PrivateArms: what it costs, how far a round moves what is released, and that it learns; arms that come and go."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from continued import goes_on

from accounting import Budget, Gaussian, Laplace, Ledger, delta
from dpbandits import Policy, Released
from dpbandits.policies import Doubling, PrivateArms, Restarting, StandingPrivateGLM
from dpkit.moments import arm_batches
from dpkit.moments.arm_batches import ArmBatches
from dpkit.moments.arm_turns import ArmTurns

EPSILON = 2.0


def seeded(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def made(arms=2, **more) -> PrivateArms:
    given = {"budget": Budget(EPSILON, 0.0), "horizon": 60, "first_batch": 3, "growth": 1.0, "rng": seeded(), **more}
    return PrivateArms(arms, **given)


# --------------------------------------------------------------------------------------------------- what it costs


@pytest.mark.parametrize("adjacency", ["replace", "zero_out"])
def test_the_run_costs_one_laplace_of_the_budget(adjacency):
    budget = Budget(EPSILON, 0.0, adjacency=adjacency)
    ledger = Ledger(budget)
    policy = made(budget=budget, ledger=ledger)
    assert [row.release for row in ledger.rows()] == [Laplace(1 / EPSILON, adjacency=adjacency)]
    for t in range(60):
        policy.update(policy.select(), float(t % 2))
    assert policy.releases > 15
    assert len(ledger.rows()) == 1
    assert ledger.epsilon(0.0) == pytest.approx(EPSILON)
    # a reward that never comes moves a sum by half the range only
    assert policy.sums.noise == pytest.approx(math.sqrt(2) / EPSILON / (1 if adjacency == "replace" else 2))


@pytest.mark.parametrize("budget", [Budget(1.0, 0.0), Budget(4.0, 1e-5), Budget(0.1, 0.3), Budget(0.5, 1e-6)])
def test_noise_is_the_least_of_both_laws(budget):
    policy = made(budget=budget)
    law, other = (Laplace, Gaussian) if isinstance(policy.sums.cost, Laplace) else (Gaussian, Laplace)
    stds = {Laplace: math.sqrt(2), Gaussian: 1.0}

    def meets(kind, std):  # without δ no Gaussian noise does
        pure = budget.delta == 0.0 and kind is Gaussian
        return not pure and delta(kind(std / stds[kind]), budget.epsilon) <= budget.delta

    assert policy.sums.noise == pytest.approx(policy.sums.cost.noise_multiplier * stds[law])
    assert meets(law, 1.000001 * policy.sums.noise)
    assert not meets(law, 0.999 * policy.sums.noise)
    assert not meets(other, 0.999 * policy.sums.noise)


# ------------------------------------------------------------------------------------------------------ sensitivity

RANGE = (-1.0, 3.0)
# of each of four rounds: its reward, and after which round it comes (4 is never)
TOLD = [(r, late) for r in (-1.0, 0.3, 3.0) for late in (0, 1, 4)]


def released_sums(told, monkeypatch) -> np.ndarray:
    """What is released, before its noise, of a run whose choices do not depend on noise: arms take turns."""
    outputs = []

    def quiet(self, arm, decisions):
        outputs.append((arm, int(self.sums[arm])))
        scale, self._scale = self._scale, 2.0**-40
        with monkeypatch.context() as patch:
            patch.setattr(arm_batches, "rounded_laplace", lambda scale, rng: np.zeros((), np.int64))
            total = release(self, arm, decisions)
        self._scale = scale
        return total

    release = ArmBatches.release
    policy = made(reward_range=RANGE, horizon=20, first_batch=1)
    with monkeypatch.context() as patch:
        patch.setattr(ArmBatches, "release", quiet)
        due: dict[int, list[tuple[int, float]]] = {}
        for t in range(6):
            policy.register(np.zeros(1), t % 2)
            if t < len(told):
                due.setdefault(t + told[t][1], []).append((t, told[t][0]))
            for key, reward in due.pop(t, []) if t < 4 else []:
                policy.update(key, reward)
        policy.settle()
    assert [arm for arm, _ in outputs] == [0, 1, 0, 1, 0, 1]
    return np.array([total for _, total in outputs])


def test_a_round_moves_the_sums_by_the_range_at_most_in_l1(monkeypatch):
    """By search: another reward, a late one, one that never comes, one in another batch of its arm."""
    rng = seeded(1)
    worst = missing = moved = 0
    for changed in range(4):
        rest = [TOLD[i] for i in rng.integers(len(TOLD), size=4)]
        found = []
        for told in TOLD:
            run = list(rest)
            run[changed] = told
            found.append((released_sums(run, monkeypatch), told))
        for (one, a), (other, b) in itertools.combinations(found, 2):
            apart = int(np.abs(one - other).sum())
            worst = max(worst, apart)
            moved = max(moved, np.count_nonzero(one - other))
            if 4 in (a[1], b[1]):
                missing = max(missing, apart)
    steps = arm_batches.steps_apart("replace")
    assert worst == steps  # it is reached, and not passed
    assert missing == steps // 2 == arm_batches.steps_apart("zero_out")
    assert moved == 2


# --------------------------------------------------------------------------------------- exact likelihood ratios


def log_chance(scale: float, k: int) -> float:
    """Of the nearest integer to a Laplace variable, exactly."""
    if k == 0:
        return math.log(-math.expm1(-0.5 / scale))
    return -(abs(k) - 0.5) / scale + math.log(-math.expm1(-1.0 / scale)) - math.log(2.0)


def audited(policy: PrivateArms, shifts: tuple[int, ...]) -> float:
    """The largest log-likelihood ratio of what two runs release whose sums differ by these shifts, noise as drawn."""
    draws = []

    def watched(scale, rng):
        draws.append(scale)
        return np.zeros((), np.int64)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arm_batches, "rounded_laplace", watched)
        policy.sums.release(0, 0)
    (scale,) = draws
    ratio = 0.0
    for shift in shifts:
        ratio += max(log_chance(scale, k) - log_chance(scale, k - shift) for k in range(-3 * abs(shift), 1))
    return ratio


STEPS = arm_batches.steps_apart("replace")


@pytest.mark.parametrize("shifts", [(STEPS,), (STEPS // 2, -STEPS // 2), (STEPS // 2,)])
def test_likelihood_ratios_are_within_epsilon(shifts):
    found = audited(made(), shifts)
    total = float(Fraction(sum(map(abs, shifts)), STEPS)) * EPSILON
    assert 0.99 * total <= found <= total * (1 + 1e-9)


def test_half_of_the_noise_is_caught():
    policy = made()
    policy.sums._scale /= 2
    assert audited(policy, (STEPS,)) > 1.9 * EPSILON
    assert audited(policy, (STEPS // 2, STEPS // 2)) > 1.9 * EPSILON


def test_two_halves_are_not_easier_to_tell_than_a_whole():
    """At every ε, not only at the largest: a moved reward costs no more than one Laplace under any accountant."""
    x, step = np.linspace(-14, 15, 1451, retstep=True)

    def density(at):
        return 0.5 * np.exp(-np.abs(x - at))

    p = np.outer(density(0), density(0))
    for share in (0.2, 0.5):
        q = np.outer(density(share), density(1 - share))
        for epsilon in np.linspace(0, 0.95, 6):
            two = np.maximum(p - math.exp(epsilon) * q, 0).sum() * step**2
            assert two <= -math.expm1((epsilon - 1) / 2) + 1e-3


def test_plays_and_the_ends_of_batches_do_not_look_at_rewards():
    """Whether rewards come or not, and what they are, between two releases."""
    runs = []
    for way in range(3):
        policy, arms = made(3, first_batch=30, rng=seeded(4)), []
        for t in range(25):
            decision = policy.select()
            arms.append(decision.index)
            if way and (way == 1 or t % 2):
                policy.update(decision, float(t % way))
        runs.append((arms, policy.sums.turns.counts(25).tolist()))
    assert runs[0] == runs[1] == runs[2]


# ------------------------------------------------------------------------------------------------------ it learns


def regret(means, horizon, epsilon, seed) -> tuple[float, PrivateArms]:
    rng = seeded(seed)
    policy = PrivateArms(len(means), budget=Budget(epsilon, 0.0), horizon=horizon, rng=rng)
    lost = 0.0
    for _ in range(horizon):
        decision = policy.select()
        policy.update(decision, float(rng.random() < means[decision.index]))
        lost += max(means) - means[decision.index]
    return lost, policy


@pytest.mark.thorough
def test_it_finds_the_better_of_five_rare_ones_without_a_hint():
    """Four arms at 10 % and one at 15 %: chance costs 320 here."""
    lost = [regret([0.1, 0.1, 0.15, 0.1, 0.1], 8000, 1.0, seed)[0] for seed in range(2)]
    assert np.mean(lost) < 130


@pytest.mark.thorough
def test_intervals_hold_at_the_end():
    means, held, widths = [0.3, 0.5, 0.7], [], []
    for seed in range(20):
        _, policy = regret(means, 800, 2.0, 100 + seed)
        for arm, mean in enumerate(means):
            low, high = policy.interval(str(arm))
            held.append(low <= mean <= high)
            widths.append(high - low)
            assert low <= policy.means()[str(arm)] <= high
            narrow = policy.interval(str(arm), 0.5)
            assert low <= narrow[0] <= narrow[1] <= high
    assert np.mean(held) >= 0.9
    assert np.min(widths) < 0.25
    with pytest.raises(ValueError, match=r"arm must be one of \['0', '1', '2'\], got arm='4'"):
        policy.interval("4")
    with pytest.raises(ValueError, match="confidence"):
        policy.interval("0", 1.0)


def test_a_range_is_a_unit_and_nothing_else():
    """Rewards in another unit lead to the same choices."""
    chosen = []
    for low, high in ((0.0, 1.0), (-8.0, 8.0)):
        policy, arms = made(reward_range=(low, high), rng=seeded(3)), []
        coins = seeded(9).random(60)
        for coin in coins:
            decision = policy.select()
            policy.update(decision, high if coin < 0.3 + 0.4 * decision.index else low)
            arms.append(decision.index)
        chosen.append(arms)
    assert chosen[0] == chosen[1]


# -------------------------------------------------------------------------------------------- arms, state, others


def test_arms_come_and_go():
    policy = made(["a", "b"], horizon=400, first_batch=8, growth=1.3)
    worth = {"a": 0.2, "b": 0.4, "c": 0.9}
    for t in range(400):
        if t == 100:
            policy.add_arm("c")
        if t == 150:
            policy.retire_arm("a")
        decision = policy.select()
        assert decision.name in policy.standing
        policy.update(decision, worth[decision.name])
    assert decision.name == "c"
    assert set(policy.means()) == {"b", "c"}
    assert policy.interval("a")[1] > 0.0


@pytest.mark.parametrize("when", [0, 7, 31, 45])
def test_a_state_goes_on_bit_for_bit(when, tmp_path):
    """Also after arms have come and gone, with open decisions and in the middle of batches."""
    goes_on(made(["a", "b"]), when, tmp_path / "state")


def test_what_is_released_chooses_as_the_policy_does():
    policy = made(["a", "b", "c"])
    for t in range(30):
        policy.update(policy.select(), float(t % 2))
    policy.add_arm("d")
    policy.retire_arm("b")
    found = Released.from_json(policy.released().to_json())
    assert found.probabilities(np.zeros(1)).tolist() == policy.score(np.zeros(1)).chances().tolist()
    assert found.probabilities(np.zeros(1))[1] == 0.0
    text = policy.released().to_json().replace(f'"releases": {policy.releases}', '"releases": 900')
    with pytest.raises(ValueError, match="releases must be at most"):
        Released.from_json(text)


def test_a_decision_that_is_made_once_more_counts_once():
    sums = ArmTurns(2)
    sums.decided(0, 0)
    sums.decided(0, 1)  # the first was left unmade
    assert sums.counts(0).tolist() == [0, 0]
    assert sums.counts(1).tolist() == [0, 1]
    sums.decided(1, 1)
    assert sums.counts(2).tolist() == [0, 2]


def test_records_outside_of_the_range_are_refused():
    sums = ArmBatches(1, 0.0, 1.0, budget=Budget(1.0, 0.0), rng=seeded())
    for r in (1.1, -0.1, math.nan, math.inf):
        with pytest.raises(ValueError, match="r must be from 0"):
            sums.add(0, r)
    assert sums.sums.tolist() == [0]


@pytest.mark.parametrize("kind", [Doubling, Restarting])
@pytest.mark.parametrize("unit", ["round", "person"])
def test_it_starts_anew_in_epochs_without_delta(kind, unit, tmp_path):
    length = {"first_epoch": 20} if kind is Doubling else {"every": 20, "horizon": 60}
    budget = Budget(EPSILON, 0.0, unit=unit)
    inner, ledger = {"arms": ["a", "b"], "first_batch": 4}, Ledger(budget)
    policy = kind(1, "PrivateArms", budget=budget, parameters=inner, rng=seeded(), ledger=ledger, **length)
    names = []
    for t in range(50):
        decision = policy.select(person=t)
        names.append(decision.name)
        policy.update(decision, float(decision.name == "b"))
        if t == 25:
            policy.save(tmp_path / "state")
            policy = Policy.load(tmp_path / "state", ledger=ledger)
    assert policy.epoch >= 1
    assert set(names) == {"a", "b"}
    assert len(ledger.rows()) == policy.epoch + 1  # disjoint rounds, which cost what one epoch does
    assert ledger.epsilon(0.0) == pytest.approx(EPSILON)
    with pytest.raises(ValueError, match="delta must be positive for Gaussian noise"):
        kind(1, "OnePassPrivateGLM", budget=budget, **length)


def test_a_world_that_moves_is_seen_and_one_that_does_not_is_not():
    """False alarms have a probability of 1e-5 in each batch."""
    epochs = []
    for moves in (False, True):
        policy = Restarting(
            1,
            "PrivateArms",
            budget=Budget(EPSILON, 0.0),
            on_change=True,
            horizon=3000,
            parameters={"arms": 3},
            rng=seeded(5),
        )
        rng, gained = seeded(6), 0.0
        for t in range(3000):
            means = (0.2, 0.8, 0.5) if t < 1500 or not moves else (0.8, 0.2, 0.5)
            decision = policy.select()
            policy.update(decision, float(rng.random() < means[decision.index]))
            gained += means[decision.index]
        epochs.append(policy.epoch)
        assert gained / 3000 > 0.7
    assert epochs == [0, 1]


def test_logs_are_refused_and_contexts_not_looked_at():
    policy = made(2)
    with pytest.raises(ValueError, match="PrivateArms counts plays without noise"):
        policy.learn_log([])
    policy.select([0.3, 7.0])
    policy.select(person="ann")
    for bad in ("ann", [[1.0, 0.0]], [math.nan]):
        with pytest.raises(ValueError, match="context must be"):
            policy.select(bad)
    with pytest.raises(ValueError, match="delta must be positive"):
        StandingPrivateGLM(2, np.eye(2), budget=Budget(1.0, 0.0), horizon=40)


def test_doubling_remembers_what_earlier_epochs_have_released(tmp_path):
    """And a state goes on bit for bit; one of before this was so goes on without."""

    def played(policy, first, last):
        out = []
        for t in range(first, last):
            decision = policy.select()
            out.append((decision.index, decision.scores.tolist()))
            policy.update(decision, float((t % 3 == 0) if decision.index else (t % 3 > 0)))
        return out

    inner = {"arms": 3, "first_batch": 4}
    policy = Doubling(1, "PrivateArms", budget=Budget(4.0, 0.0), parameters=inner, first_epoch=100, rng=seeded(2))
    played(policy, 0, 100)
    before = policy.policy.means()
    policy.update(policy.select(), 1.0)
    assert policy.epoch == 1
    assert policy.policy.means() == pytest.approx(before)
    assert policy.policy.interval("0")[1] - policy.policy.interval("0")[0] < 0.5
    played(policy, 101, 330)
    policy.save(tmp_path / "state")
    again = Policy.load(tmp_path / "state", unattended=True)
    assert played(again, 330, 400) == played(policy, 330, 400)
    assert repr(again.kept()) == repr(policy.kept())
    tree = policy.kept()
    lacking = {name: value for name, value in tree.items() if name != "told"}
    fresh = Doubling(1, "PrivateArms", budget=Budget(4.0, 0.0), parameters=inner, first_epoch=100, rng=seeded(2))
    fresh.resume(lacking)
    assert not fresh.told.any()
    for bad in (tree | {"told": -tree["told"]}, tree | {"told": tree["told"][:1]}, tree | {"epoch": 0}):
        fresh = Doubling(1, "PrivateArms", budget=Budget(4.0, 0.0), parameters=inner, first_epoch=100, rng=seeded(2))
        with pytest.raises(ValueError, match="must"):
            fresh.resume(bad)

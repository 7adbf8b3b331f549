"""References for K named arms: the papers' indices, widths and rules, what they cost, and where they are played."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from continued import goes_on
from scipy.optimize import brentq
from simulations import quiet
from tabled import tabled

from accounting import Budget, Gaussian, Laplace, Ledger
from dpbandits import Released
from dpbandits.lab.environments import GLM, Arms, Delayed, Disjoint
from dpbandits.lab.price import price_of_privacy
from dpbandits.policies import (
    DPSE,
    KLUCB,
    OFUL,
    AdaPUCB,
    DisjointThompson,
    EpsilonGreedy,
    PrivateArms,
    StandingPrivateGLM,
    ThompsonArms,
)
from dpbandits.policy.choices import Betas
from dpkit.models.bernoulli import divergence
from dpkit.moments import arm_batches
from dpkit.moments.arm_batches import ArmBatches

EPSILON = 2.0
PURE = Budget(EPSILON, 0.0)


def seeded(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def made(kind, arms=3, **more):
    private = {"budget": PURE, "horizon": 400} if kind in (DPSE, AdaPUCB, PrivateArms) else {}
    return kind(arms, **{"rng": seeded(), **private, **more})


@pytest.fixture
def quiet_noise(monkeypatch):
    """Sums are released as they are."""
    monkeypatch.setattr(arm_batches, "rounded_laplace", lambda scale, rng: np.zeros((), np.int64))


# ---------------------------------------------------------------------------------------------------------- KL-UCB


@pytest.mark.parametrize("parameters", ["practical", "theory"])
def test_kl_ucb_plays_the_papers_index(parameters):
    """Garivier & Cappé 2011, Algorithm 1, each index by a root finder of its own; rewards in another unit."""
    policy = made(KLUCB, 4, reward_range=(-1.0, 3.0), parameters=parameters)
    rng, n, s = seeded(1), np.zeros(4), np.zeros(4)
    for t in range(150):
        decision = policy.select()
        if t < 4:
            assert n[decision.index] == 0
        else:
            bound = math.log(t) + (3.0 if parameters == "theory" else 0.0) * math.log(math.log(t))
            index = []
            for count, total in zip(n, s, strict=True):
                p = total / count
                over = lambda q, p=p, count=count, bound=bound: count * float(divergence(p, q)) - bound  # noqa: E731
                index.append(1.0 if p == 1 else brentq(over, p, 1 - 1e-15) if over(1 - 1e-15) > 0 else 1.0)
            np.testing.assert_allclose(decision.law.scores, index, atol=1e-9)
            assert index[decision.index] >= max(index) - 1e-8
        x = float(rng.choice([0.0, 0.3, 1.0], p=[0.5, 0.2, 0.3]))
        n[decision.index] += 1
        s[decision.index] += x
        policy.update(decision, 4.0 * x - 1.0)
    np.testing.assert_allclose(policy.means(), 4.0 * s / n - 1.0)


# -------------------------------------------------------------------------------------------------------- Thompson


def test_of_two_beta_variables_the_larger_one_is_known():
    """P(X > Y) for whole parameters is a sum of ratios of binomial coefficients."""
    rng = seeded(2)
    for _ in range(20):
        a, b, c, d = (int(k) for k in rng.integers(1, 40, 4))
        exact = Fraction(0)
        for i in range(c, c + d):  # Y ≤ x where at least c of c + d − 1 uniform numbers are at most x
            below = Fraction(math.comb(c + d - 1, i) * math.comb(a + b - 2, a - 1) * (a + b - 1))
            exact += below / (math.comb(a + b + c + d - 3, a - 1 + i) * (a + b + c + d - 2))
        law = Betas(np.array([a, c], float), np.array([b, d], float), np.ones(2, np.bool_))
        assert law.chance(0)[0] == pytest.approx(float(exact), rel=1e-9)
        assert law.chances().sum() == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("parameters", ["practical", "theory"])
def test_thompson_counts_successes(parameters):
    """Whole ones as they are; parts by a coin of their own (Algorithm 2), or as parts."""
    policy = made(ThompsonArms, 2, parameters=parameters, reward_range=(0.0, 10.0))
    told = [[], []]
    for t in range(400):
        decision = policy.select()
        told[decision.index].append((0.0, 3.0, 10.0)[t % 3])
        policy.update(decision, told[decision.index][-1])
    n, sums = np.array([len(one) for one in told]), np.array([sum(one) / 10 for one in told])
    np.testing.assert_allclose(policy.successes + policy.failures, n)
    if parameters == "practical":
        np.testing.assert_allclose(policy.successes, sums)
    else:
        assert (policy.successes == np.round(policy.successes)).all()
        # 134 coins of 0.3: 6.5 standard deviations, once in 10¹⁰
        assert abs(policy.successes.sum() - sums.sum()) < 6.5 * math.sqrt(134 * 0.21)
        assert policy.successes.sum() != pytest.approx(sums.sum(), abs=1e-9)
    law = policy.score(np.zeros(1))
    np.testing.assert_allclose(law.a, 1 + policy.successes)
    np.testing.assert_allclose(law.b, 1 + policy.failures)


# ------------------------------------------------------------------------------------------------------------ DP-SE


@pytest.mark.parametrize(("adjacency", "scale"), [("replace", 1.0), ("zero_out", 0.5)])
def test_epochs_are_the_papers(adjacency, scale):
    """Sajed & Sheffet 2019, Algorithm 2: R_e, and 4h_e + 4c_e ≤ Δ_e, which is what their proof needs of it."""
    epsilon, beta = 0.3, 0.01
    budget, scale = Budget(epsilon, 0.0, adjacency=adjacency), scale / epsilon
    both = [
        made(DPSE, 5, budget=budget, failure_probability=beta, parameters=one, horizon=10**6)
        for one in ("theory", "practical")
    ]
    for S, e in itertools.product((2, 5), (1, 2, 6, 9)):
        gap = 2.0**-e
        deviation, noise = math.log(8 * S * e**2 / beta), math.log(4 * S * e**2 / beta)
        paper = max(32 * deviation / gap**2, 8 * noise * scale / gap) + 1
        theory, practical = (one._rounds(S, e) for one in both)
        assert theory == math.ceil(paper)

        def width(R, deviation=deviation, noise=noise):
            return 2 * math.sqrt(deviation / (2 * R)) + 2 * noise * scale / R

        assert both[0]._width(S, e, theory) == pytest.approx(width(theory), rel=1e-6)
        assert 2 * width(theory) <= gap
        assert 2 * width(practical) <= gap * (1 + 1e-9) < 2 * width(practical - 1)
        assert theory / 4.3 < practical < theory


def test_elimination_is_by_the_widths(quiet_noise):
    """Arms in turn; then those that are too far below the best are gone, and what was learned is forgotten."""
    policy = made(DPSE, ["a", "b", "c"], horizon=10**5, reward_range=(0.0, 2.0))
    R, width = policy.public.length, policy._width(3, 1, policy.public.length)
    near = math.floor(R * (1.0 - width)) + 1  # successes of "b": just within; one less of "c" is just beyond
    assert 1.0 - (near - 2) / R > width > 1.0 - near / R
    worth = {"a": R, "b": near, "c": near - 2}
    played = dict.fromkeys(worth, 0)
    for t in range(3 * R):
        decision = policy.select()
        assert decision.index == t % 3
        policy.update(decision, 2.0 * (played[decision.name] < worth[decision.name]))
        played[decision.name] += 1
    assert policy.left == ["a", "b", "c"]
    policy.settle()
    assert policy.left == ["a", "b"]
    assert (policy.public.epoch, policy.public.length) == (2, policy._rounds(2, 2))
    assert policy.releases == 1
    names = [policy.select().name for _ in range(4)]
    assert names == ["a", "b", "a", "b"]
    assert Released.from_json(policy.released().to_json()).probabilities().tolist() == [0.5, 0.5, 0.0]
    policy.retire_arm("a")
    assert policy.left == ["b"]
    assert {policy.select().name for _ in range(50)} == {"b"}
    policy.add_arm("d")
    assert policy.left == ["b", "d"]
    policy.retire_arm("b")
    policy.retire_arm("d")
    assert policy.left == ["c"]  # nobody else is left


def test_the_best_arm_stays_and_others_go():
    """β = 10⁻⁹: the far arm does not outlive the first epoch, so that its regret is 0.8·R_1, but once in 10⁹ runs."""
    policy = made(DPSE, 2, failure_probability=1e-9, horizon=4000, budget=Budget(1.0, 0.0))
    rng, R, plays = seeded(5), policy.public.length, []
    for _ in range(4000):
        decision = policy.select()
        policy.update(decision, float(rng.random() < (0.1, 0.9)[decision.index]))
        plays.append(decision.index)
    assert plays.count(0) == R < 1100


# --------------------------------------------------------------------------------------------------------- AdaP-UCB


@pytest.mark.parametrize("index", ["ucb", "kl"])
@pytest.mark.parametrize("parameters", ["practical", "theory"])
def test_ada_p_ucb_plays_the_papers_index(index, parameters, quiet_noise):
    """Azize & Basu 2022, Algorithm 1 and (7), with a noise of 0: episodes double, and only the last one counts."""
    policy = made(AdaPUCB, 3, index=index, parameters=parameters, horizon=500, reward_range=(0.0, 2.0))
    alpha, rng = {"practical": 1.0, "theory": 3.1}[parameters], seeded(3)
    last, total, current, left = [[], [], []], [0, 0, 0], None, 0
    for t in range(500):
        decision = policy.select()
        if t < 3:
            assert decision.index == t
            last[t] = []
        elif not left:
            values = []
            for rewards in last:
                n, m = len(rewards), float(np.mean(rewards))
                c = alpha * math.log(t + 1) / n
                if index == "ucb":
                    values.append(m + math.sqrt(c / 2) + c / EPSILON)
                else:
                    cut = min(max(m + c / EPSILON, 0.0), 1.0)
                    beyond = cut == 1 or divergence(cut, 1 - 1e-15) < c
                    values.append(1.0 if beyond else brentq(lambda q: float(divergence(cut, q)) - c, cut, 1 - 1e-15))  # noqa: B023
            np.testing.assert_allclose(decision.scores, values, rtol=1e-9)
            current = decision.index
            assert values[current] >= max(values) - 1e-9
            left, last[current] = total[current], []
        if t >= 3:
            assert decision.index == current
            left -= 1
        x = float(rng.random() < (0.3, 0.5, 0.7)[decision.index])
        last[decision.index].append(x)
        total[decision.index] += 1
        policy.update(decision, 2.0 * x)
    assert policy.releases > 8


def test_an_arm_that_comes_is_tried_and_one_that_goes_is_not():
    policy = made(AdaPUCB, ["a", "b"])
    for _ in range(30):
        policy.update(policy.select(), 1.0)
    policy.add_arm("c")
    assert policy.select().name == "c"
    gone = policy.select().name
    policy.retire_arm(gone)
    assert gone not in {policy.select().name for _ in range(40)}


# ---------------------------------------------------------------------------------------------------------- privacy


@pytest.mark.parametrize("kind", [DPSE, AdaPUCB])
@pytest.mark.parametrize("adjacency", ["replace", "zero_out"])
@pytest.mark.parametrize(("epsilon", "delta"), [(2.0, 0.0), (0.1, 0.3)])
def test_the_run_costs_one_laplace(kind, adjacency, epsilon, delta):
    """Also where Gaussian noise, which PrivateArms takes, would be less."""
    budget = Budget(epsilon, delta, adjacency=adjacency)
    ledger = Ledger(budget)
    assert isinstance(made(PrivateArms, budget=budget).sums.cost, Laplace if delta == 0.0 else Gaussian)
    policy = made(kind, budget=budget, ledger=ledger, first_batch=2)
    (row,) = ledger.rows()
    assert isinstance(row.release, Laplace)
    assert ledger.epsilon(delta) == pytest.approx(epsilon)
    for t in range(100):
        policy.update(policy.select(), float(t % 2))
    assert policy.releases > 1
    assert len(ledger.rows()) == 1


def log_chance(scale: float, k: int) -> float:
    """Of the nearest integer to a Laplace variable, exactly."""
    if k == 0:
        return math.log(-math.expm1(-0.5 / scale))
    return -(abs(k) - 0.5) / scale + math.log(-math.expm1(-1.0 / scale)) - math.log(2.0)


# of each of four rounds: its reward, and after which round it comes (99 is never)
TOLD = [(r, late) for r in (0.0, 0.3, 1.0) for late in (0, 1, 99)]
SMALL = {DPSE: {"first_batch": 1, "horizon": 20}, AdaPUCB: {"horizon": 20}}


def likelihood(kind, told, outputs) -> tuple[float, list[int]]:
    """The log-probability that a run releases these whole numbers, its noise as the policy draws it, and the plays."""
    logs, arms, due = [], [], {}

    def forced(self, arm, decisions):
        noise = int(outputs[len(logs)]) - int(self.sums[arm])

        def drawn(scale, rng):
            logs.append(log_chance(scale, noise))
            return np.int64(noise)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(arm_batches, "rounded_laplace", drawn)
            return release(self, arm, decisions)

    release = ArmBatches.release
    policy = made(kind, 2, **SMALL[kind])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ArmBatches, "release", forced)
        for t in range(12):
            decision = policy.select()
            arms.append(decision.index)
            reward, late = told[t] if t < len(told) else (0.5, 0)
            due.setdefault(t + late, []).append((decision, reward))
            for one, value in due.pop(t, []):
                policy.update(one, value)
        policy.settle()
    assert len(logs) >= (4 if kind is AdaPUCB else 2)
    return sum(logs), arms


def worst(kind, searches: int) -> float:
    """The largest log-likelihood ratio that a search finds over what is released, and over neighbours."""
    rng, found = seeded(6), 0.0
    steps = arm_batches.steps_apart("replace")
    for _ in range(searches):
        outputs = np.round(rng.laplace(0.0, 2.0 * steps, 40)).astype(int)
        rest = [TOLD[i] for i in rng.integers(len(TOLD), size=4)]
        for changed in range(4):
            runs = [likelihood(kind, [*rest[:changed], told, *rest[changed + 1 :]], outputs) for told in TOLD]
            assert all(arms == runs[0][1] for _, arms in runs)  # plays are no secret
            logs = [log for log, _ in runs]
            found = max(found, max(logs) - min(logs))
    return found


@pytest.mark.parametrize("kind", [DPSE, AdaPUCB])
def test_likelihood_ratios_are_within_epsilon(kind):
    """Exactly, over a reward replaced, late, later or never there; and the bound is reached."""
    assert 0.97 * EPSILON < worst(kind, 3) <= EPSILON * (1 + 1e-9)


@pytest.mark.parametrize("kind", [DPSE, AdaPUCB])
def test_sums_that_are_not_forgotten_are_caught(kind, monkeypatch):
    """A batch that is released again with the next one costs more."""

    def kept(self, arm, decisions):
        before = int(self.sums[arm])
        out = release(self, arm, decisions)
        self.sums[arm] = before
        return out

    release = ArmBatches.release
    monkeypatch.setattr(ArmBatches, "release", kept)
    assert worst(kind, 1) > 1.4 * EPSILON


# ------------------------------------------------------------------------------------------------------- it learns


@pytest.mark.parametrize(("kind", "more"), [(KLUCB, {}), (ThompsonArms, {}), (AdaPUCB, {}), (AdaPUCB, {"index": "kl"})])
def test_regret_is_far_below_chance(kind, more):
    """Chance costs 480 ± 14; 100 other runs cost 3 ± 1 twice, 25 ± 4 and 21 ± 6, so that 160 is 20 of their deviations
    away."""
    policy, rng, lost = made(kind, 2, horizon=1200, rng=seeded(8), **more), seeded(9), 0.0
    for _ in range(1200):
        decision = policy.select()
        policy.update(decision, float(rng.random() < (0.1, 0.9)[decision.index]))
        lost += 0.8 * (decision.index == 0)
    assert 0 < lost < 160


# ---------------------------------------------------------------------------------------------------------- worlds


def first_rounds(world, seed, count):
    return list(itertools.islice(world.episode(seeded(seed)), count))


@pytest.mark.parametrize(
    ("rewards", "more", "law"),
    [
        ("bernoulli", {}, lambda r, mu: set(np.unique(r)) <= {0.0, 1.0}),
        ("uniform", {"reward_range": (0.0, 50.0)}, lambda r, mu: r.max() <= 2 * mu and r.std() < 0.6 * mu),
        ("pareto", {"tail_index": 5.0}, lambda r, mu: r.min() >= 0.8 * mu),
    ],
)
def test_rewards_have_their_means_and_laws(rewards, more, law):
    """Six standard errors of a mean of 20,000, of each of three arms: once in 10⁸."""
    means = [0.2, 0.5, 0.7]
    world = Arms(means, rewards=rewards, **more)
    rounds = first_rounds(world, 1, 20_000)
    assert sorted(rounds[0].means) == means
    assert all(now.means is rounds[0].means for now in rounds[:50])
    table = np.array([now.rewards for now in rounds])
    for column, mu in zip(table.T, rounds[0].means, strict=True):
        assert abs(column.mean() - mu) < 6 * column.std() / math.sqrt(len(column))
        assert law(column, mu)
        assert column.std() <= 1.1 * world.noise_scale
    orders = {tuple(first_rounds(world, seed, 1)[0].means) for seed in range(40)}
    assert len(orders) == 6  # each misses 40 seeds with probability 7e-4; the seeds are fixed


def test_a_number_of_arms_draws_means():
    rounds = [first_rounds(Arms(50), seed, 1)[0] for seed in (1, 2)]
    assert rounds[0].means.shape == (50,)
    assert (rounds[0].means != rounds[1].means).all()
    assert 0.0 <= rounds[0].means.min() < 0.2 < 0.8 < rounds[0].means.max() < 1.0


@tabled(
    ("arguments", "message"),
    [
        (([],), "means must be numbers"),
        (([0.1, -0.1],), "means must be numbers"),
        (([[0.1]],), "means must be numbers"),
        (([math.nan],), "means must be numbers"),
        (([1.5],), "means must be at most 1"),
        ((0,), "means must be at least 1"),
        (([0.5], "coins"), "rewards must be 'bernoulli', 'uniform' or 'pareto'"),
        (([0.5], "pareto", (0.0, math.inf)), "reward_range must be finite"),
        (([0.5], "pareto", (1.0, 0.0)), "reward_range must be finite and increasing"),
        (([0.5], "pareto", (0.0, 1.0), 1.0), "tail_index must be above 1"),
    ],
)
def test_bad_worlds_are_refused(arguments, message):
    names = ("means", "rewards", "reward_range", "tail_index")
    with pytest.raises((ValueError, TypeError), match=message):
        Arms(arguments[0], **dict(zip(names[1:], arguments[1:], strict=False)))


def standing(rng, arms):
    return StandingPrivateGLM(3, arms, budget=Budget(4.0, 1e-5), horizon=120, rng=rng)


standing.public_arms = True
PLAYERS = {
    "named": lambda rng: made(PrivateArms, ["x", "y", "z"], horizon=120, rng=rng),
    "kl": lambda rng: made(KLUCB, rng=rng),
    "thompson": lambda rng: made(ThompsonArms, rng=rng),
    "dpse": lambda rng: made(DPSE, rng=rng),
    "adap": lambda rng: made(AdaPUCB, rng=rng),
    "rows": lambda rng: EpsilonGreedy(3, rng=rng),
    "standing": standing,
    "contexts": lambda rng: DisjointThompson(1, 3, rng=rng),
}


def test_policies_of_all_kinds_play_one_world():
    """A name's index is the world's row, and luck is the same for all: as in a loop by hand."""
    world = Arms([0.2, 0.5, 0.9])
    results = quiet(PLAYERS, world, rounds=120, seeds=2)
    assert results.policies == list(PLAYERS)
    for run in results.runs:
        assert 0 < run.regret[-1] < 0.7 * 120
    from dpbandits.lab.simulation.play import generator

    policy, episode, regret = PLAYERS["kl"](generator(1, "kl")), world.episode(generator(1)), 0.0
    for now in itertools.islice(episode, 120):
        decision = policy.select()
        policy.update(decision, now.reward(decision.index))
        regret += float(now.means.max() - now.means[decision.index])
    assert next(run for run in results.runs if (run.policy, run.seed) == ("kl", 1)).regret[-1] == pytest.approx(regret)


def test_names_are_played_where_arms_are_fixed_and_nowhere_else():
    known = {name: PLAYERS[name] for name in ("named", "kl", "dpse")}
    for world in (GLM(2, arms=3, arm_law="fixed_sphere"), Disjoint(2, arms=3), Delayed(Arms([0.1, 0.2, 0.3]), delay=7)):
        assert quiet(known, world, rounds=50, seeds=1).complete
    with pytest.raises(ValueError, match="must have fixed arms for a policy that knows their names only"):
        quiet(known, GLM(2, arms=3), rounds=50, seeds=1)
    with pytest.raises(ValueError, match=r"policies\['kl'\] must have the 4 arms of the environment, got 3"):
        quiet({"kl": PLAYERS["kl"]}, Arms(4), rounds=50, seeds=1)


def test_prices_are_over_a_reference_that_explores():
    world = Arms([2.0, 6.0], rewards="uniform", reward_range=(0.0, 100.0))
    table = price_of_privacy(world, [4.0], rounds=400, seeds=2, progress=False)
    assert table.rows[0].policy == "PrivateArms"
    assert "policies believed" not in table.sentence()
    own = {"not private": lambda rng: ThompsonArms(2, reward_range=(0.0, 12.0), on_violation="clip", rng=rng)}
    (row,) = quiet(own, world, rounds=400, seeds=2).table()
    assert table.free == row["reward"]
    with pytest.raises(ValueError, match="whose arms are not fixed, got AdaPUCB"):
        price_of_privacy(GLM(2), [4.0], policies={"round": "AdaPUCB"}, rounds=50, seeds=1, progress=False)


# ------------------------------------------------------------------------------------------------------- bad input


@tabled("kind", [KLUCB, ThompsonArms, DPSE, AdaPUCB])
@tabled(
    ("more", "message"),
    [
        ({"arms": 0}, "arms must be at least 1"),
        ({"arms": []}, "arms must be at least one"),
        ({"arms": "ab"}, "arms must be a number or a list of names"),
        ({"arms": ["a", "a"]}, "got name='a' twice"),
        ({"reward_range": (0.0, math.inf)}, "reward_range must be finite"),
        ({"parameters": "paper"}, "parameters must be"),
        ({"reward_range": (1.0, 0.0)}, "reward_range must be increasing"),
    ],
)
def test_bad_parameters_are_refused(kind, more, message):
    with pytest.raises((ValueError, TypeError), match=message):
        made(kind, **more)


@tabled(
    ("kind", "more", "message"),
    [
        (DPSE, {"failure_probability": 0.0}, "failure_probability must lie in"),
        (DPSE, {"failure_probability": 1.0}, "failure_probability must lie in"),
        (DPSE, {"first_batch": 0}, "first_batch must be at least 1"),
        (DPSE, {"horizon": 0}, "horizon must be at least 1"),
        (AdaPUCB, {"index": "moss"}, "index must be"),
        (AdaPUCB, {"first_batch": 0}, "first_batch must be at least 1"),
        (AdaPUCB, {"budget": Budget(1.0, 0.0, adjacency="add_remove")}, "replaced or zeroed out"),
    ],
)
def test_nothing_is_charged_for_what_is_refused(kind, more, message):
    ledger = Ledger(Budget(50.0, 0.0))
    with pytest.raises(ValueError, match=message):
        made(kind, ledger=ledger, **more)
    assert ledger.rows() == []


def test_nothing_need_be_offered_to_those_who_look_at_nothing():
    for policy in (made(KLUCB), made(PrivateArms), OFUL(2)):
        if policy.takes == "arms":
            with pytest.raises(ValueError, match="arms must be given, got arms=None"):
                policy.select()
            continue
        assert policy.select().index in range(3)
        assert policy.select([0.4, 9.0], person="ann").index in range(3)
        with pytest.raises(ValueError, match="context must be"):
            policy.select([[1.0]])
    with pytest.raises(ValueError, match="context must be given"):
        DisjointThompson(1, 2).select()
    policy = made(PrivateArms)
    index, probability = policy.released().choose(rng=seeded())
    policy.register(None, index, probability=probability)
    assert policy.decisions == 1


@tabled(
    ("kind", "part", "value"),
    [
        (KLUCB, "plays", np.array([3, -1, 0])),
        (ThompsonArms, "successes", np.array([1.0, -1.0, 0.0])),
        (ThompsonArms, "failures", np.array([1.0, math.nan, 0.0])),
        (KLUCB, "total", np.zeros(2)),
    ],
)
def test_states_that_cannot_be_are_refused(kind, part, value):
    policy = made(kind)
    saved = policy.kept()
    saved["learned"][part] = value
    with pytest.raises(ValueError, match=part):
        policy.resume(saved)


@pytest.mark.parametrize("kind", [DPSE, AdaPUCB, KLUCB, ThompsonArms])
def test_a_state_goes_on_bit_for_bit(kind, tmp_path):
    """After arms have come and gone, with open decisions and in the middle of a batch."""
    goes_on(made(kind, ["a", "b"], **{"first_batch": 2} if kind is DPSE else {}), 33, tmp_path / "state", rounds=90)

"""Private optimism with two estimators: its streams, its switches, its sensitivities, its cost and its regret."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from factors import toeplitz_factor
from hypothesis import given, settings
from hypothesis import strategies as st
from regret import ball, regret_of

from accounting import Budget, Gaussian, Ledger, TreeAggregation, epsilon, gdp
from dpbandits.policies import JointDPGLM
from dpbandits.policy.protocol import Pending
from dpbandits.private.parts import capped_calls
from dpbandits.private.parts.two_designs import Levels
from dpkit import optimize
from dpkit.continual import BinaryTree, BufferedToeplitz
from dpkit.geometry import svec
from dpkit.models.links import get_link

BUDGET = Budget(4.0, 1e-3)
LINKS = ("logistic", "probit", "linear")


def policy_with(link="logistic", dim=3, horizon=200, **parameters) -> JointDPGLM:
    parameters = {"budget": BUDGET, "reward_range": (0.0, 1.0), "rng": np.random.default_rng(0)} | parameters
    return JointDPGLM(dim, link, horizon=horizon, **parameters)


@pytest.fixture
def spied(monkeypatch):
    """Every input of every continual sum, and the cost of every call of an optimizer, in order."""
    inputs: list[np.ndarray] = []
    costs: list = []
    add, descend = BufferedToeplitz.add, optimize.noisy_gradient_descent

    def spying_add(self, x):
        inputs.append(np.array(x))
        return add(self, x)

    def spying_descend(*arguments, **parameters):
        fit = descend(*arguments, **parameters)
        costs.append((fit.cost, parameters))
        return fit

    monkeypatch.setattr(BufferedToeplitz, "add", spying_add)
    monkeypatch.setattr(optimize, "noisy_gradient_descent", spying_descend)
    return inputs, costs


def play(policy: JointDPGLM, rounds: int, seed: int = 1) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        policy.update(policy.select(ball(rng, 5, policy.dim)), float(rng.random() < 0.6))


# ------------------------------------------------------------------------------------------------- one round


@pytest.mark.parametrize("link", LINKS)
def test_every_round_follows_its_criterion_and_leaves_one_record(spied, link):
    """Exploring rounds play the most uncertain arm; the others one that is not eliminated, by its upper bound."""
    inputs, _ = spied
    rng, policy = np.random.default_rng(1), policy_with(link, horizon=400, theta_bound=2.0, ridge=3.0)
    L, sets = get_link(link), [0, 0]
    V, H = np.zeros((3, 3)), np.zeros((3, 3))
    for t in range(400):
        before, arms = len(inputs), ball(rng, 6, 3)
        decision = policy.select(arms)
        if len(inputs) > before:  # this decision closed a batch
            np.testing.assert_allclose(
                inputs[-1], np.concatenate([svec(V), svec(H) / policy.sums.W]), atol=400 * 2.0**-31
            )
            V, H = np.zeros((3, 3)), np.zeros((3, 3))
        known = policy.public
        x, unknown = decision.arm, np.sqrt(np.einsum("ij,jk,ik->i", arms, known.V_inverse, arms))
        explores = t < policy.first_batch or unknown.max() ** 2 >= policy.levels.threshold
        if explores:
            assert decision.index == unknown.argmax()
            V += np.outer(x, x)
        else:
            low = (arms @ known.theta_o - policy.levels.gamma * unknown).max()
            kept = arms @ known.theta_o + policy.levels.gamma * unknown >= low
            bounds = arms @ known.theta + policy.levels.beta * np.sqrt(
                np.einsum("ij,jk,ik->i", arms, known.H_inverse, arms)
            )
            assert decision.index == np.where(kept, bounds, -np.inf).argmax()
            H += min(float(L.derivative(x @ known.theta_o)) / math.e, policy.sums.W) * np.outer(x, x)
        sets[int(explores)] += 1
        policy.update(decision, float(rng.random() < 0.5))
    assert (policy.sums.others.count, policy.sums.explored.count) == tuple(sets)
    assert min(sets) > 20


def test_a_late_reward_enters_the_set_of_its_own_round():
    policy = policy_with(horizon=300)
    late = policy.select(np.eye(3))  # the first batch explores
    play(policy, 250)
    assert policy.sums.others.count > 0
    before = policy.sums.explored.count
    policy.update(late, 1.0)
    assert policy.sums.explored.count == before + 1


# ------------------------------------------------------------------------------------------------- switches


@pytest.mark.thorough
@settings(deadline=None, max_examples=5)
@given(seed=st.integers(0, 2**32 - 1), moment=st.integers(0, 89))
def test_what_a_round_shows_changes_nothing_later_unless_its_reward_comes(seed, moment):
    """Neither a round's exploring nor its arms have any effect but through its record: bit for bit."""
    twins = [policy_with(horizon=120, rng=np.random.default_rng(seed)) for _ in range(2)]
    rng = np.random.default_rng(seed + 1)
    for t in range(120):
        arms, reward = ball(rng, 4, 3), float(rng.random() < 0.5)
        if t == moment:  # long arms explore where short ones do not
            twins[0].select(np.eye(3))
            twins[1].select(0.01 * np.eye(3))
            continue
        decisions = [policy.select(arms) for policy in twins]
        assert decisions[0].index == decisions[1].index
        for policy, decision in zip(twins, decisions, strict=True):
            policy.update(decision, reward)
    a, b = (policy.public for policy in twins)
    assert np.array_equal(a.theta_o, b.theta_o)
    assert np.array_equal(a.theta, b.theta)
    assert np.array_equal(a.V, b.V)
    assert (a.calls_o, a.calls) == (b.calls_o, b.calls)


def test_estimates_change_at_public_times_where_a_matrix_has_outgrown_and_stay_in_their_sets():
    policy, rng = policy_with(horizon=2000, theta_bound=1.5), np.random.default_rng(3)
    for t in range(2000):
        was = policy.public
        decision = policy.select(ball(rng, 5, 3))
        known = policy.public
        if known.calls > was.calls:
            H = np.linalg.inv(known.H_inverse)
            assert np.linalg.eigvalsh(was.H_root.T @ H @ was.H_root)[-1] > 2
        else:
            assert np.array_equal(known.theta, was.theta)
        if known.calls_o > was.calls_o:
            assert np.linalg.eigvalsh(was.V_root.T @ known.V @ was.V_root)[-1] > 2
        else:
            assert np.array_equal(known.theta_o, was.theta_o)
        if (known.calls_o, known.calls) != (was.calls_o, was.calls):
            assert t in policy.schedule.ends
        assert np.linalg.norm(known.theta_o) <= 1.5 * (1 + 1e-9)
        assert np.linalg.norm(known.theta) <= 1.5 * (1 + 1e-9)
        policy.update(decision, float(rng.random() < 0.6))
    assert policy.public.calls_o >= 1
    assert policy.public.calls >= 3


# ------------------------------------------------------------------------------------------------- sensitivity


def stream(policy: JointDPGLM, inputs: list[np.ndarray], arms, inverses, arrival, theta) -> np.ndarray:
    """The batch sums of one run, with what was released held fixed: V⁻¹ decides who explores, θ_o weighs."""
    inputs.clear()
    waiting: dict[int, list] = {}
    for t in range(len(arms)):
        policy.select([arms[t]])
        policy.public = replace(policy.public, theta_o=theta)
        explores = arms[t] @ inverses[t] @ arms[t] >= policy.levels.threshold
        policy.waiting[t] = replace(policy.waiting[t], note=(int(explores),))
        if arrival[t] is not None:
            waiting.setdefault(t + arrival[t], []).append(t)
        for each in waiting.pop(t, []):
            policy.update(each, 1.0)
    return np.array(inputs)


@settings(deadline=None, max_examples=35)
@given(
    link=st.sampled_from(LINKS),
    seed=st.integers(0, 2**32 - 1),
    moves=st.booleans(),
    adjacency=st.sampled_from(["replace", "zero_out"]),
    delays=st.tuples(*2 * [st.sampled_from([0, 0, 3, 6, None])]),
)
def test_no_pair_of_neighbouring_runs_is_farther_apart_than_declared(link, seed, moves, adjacency, delays):
    """One round's arm, set and reward's arrival change; both streams together stay within the sensitivity."""
    rng, inputs = np.random.default_rng(seed), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BufferedToeplitz, "add", lambda self, x: (inputs.append(np.array(x)), np.zeros_like(x))[1])
        d, T, changed = int(rng.integers(1, 4)), 12, int(rng.integers(0, 6))
        theta = rng.standard_normal(d) * rng.choice([0.0, 1.0])
        x, y = rng.standard_normal((2, d))
        arms = ball(rng, T, d)
        streams = []
        for arm, explores, delay in ((x, True, delays[0]), (y, not moves, delays[1])):
            policy = policy_with(
                link, dim=d, horizon=T, first_batch=2, growth=1.0, budget=Budget(4.0, 1e-3, adjacency=adjacency)
            )
            mine, arrival = arms.copy(), [0] * T
            mine[changed], arrival[changed] = arm / np.linalg.norm(arm) * rng.choice([1.0, 0.7]), delay
            if adjacency == "zero_out" and arm is y:
                arrival[changed] = None
            inverses = [np.eye(d) * 10.0 ** (9 if t % 3 else -9) for t in range(T)]
            inverses[changed] = np.eye(d) * (1e9 if explores else 1e-9)
            streams.append(stream(policy, inputs, mine, inverses, arrival, theta))
    distance = np.linalg.norm(toeplitz_factor(policy.sums.sums.coefficients) @ (streams[0] - streams[1]))
    assert distance <= policy.sums.sums.sensitivity * (1 + 1e-9)


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32 - 1), link=st.sampled_from(LINKS), r=st.sampled_from([0.0, 0.3, 1.0]))
def test_a_moved_round_moves_each_optimizer_by_half_of_what_its_noise_covers(seed, link, r):
    rng, policy = np.random.default_rng(seed), policy_with(link, clip=0.4)
    x, y, theta = ball(rng, 1, 3), ball(rng, 1, 3), 9 * rng.standard_normal(3)
    gradient, other = (policy.calls.objective.gradient_sum(theta, row, [r]) for row in (x, y))
    assert np.linalg.norm(gradient) <= 0.4
    assert np.linalg.norm(other) <= 0.4
    assert np.linalg.norm(gradient - other) <= 0.8


# ------------------------------------------------------------------------------------------------- cost


@pytest.mark.parametrize("adjacency", ["replace", "zero_out"])
def test_the_streams_and_every_call_spend_what_was_recorded(spied, adjacency):
    """All calls of either optimizer together cost no more than the optimizers' part of the recorded release."""
    _, costs = spied
    ledger = Ledger(Budget(4.0, 1e-3, adjacency=adjacency))
    policy = policy_with(
        budget=ledger.budget, ledger=ledger, horizon=4000, exploration_calls=3, policy_calls=4, stream_share=0.3
    )
    (row,) = ledger.rows()
    play(policy, 3000)
    by_call = dict.fromkeys(["ball", "both"], 0.0)
    for cost, parameters in costs:
        kind = "ball" if "LpBall" in repr(parameters["constraint"]) else "both"
        by_call[kind] += gdp(cost) ** 2
        assert cost.adjacency == adjacency
    assert policy.public.calls == 4  # all of them
    assert by_call["both"] == pytest.approx(policy.calls.z**-2, rel=1e-6)
    assert max(by_call.values()) <= policy.calls.z**-2
    # a fiftieth is the level's
    assert gdp(policy.sums.sums.cost) ** 2 / gdp(row.release) ** 2 == pytest.approx(0.3 * 0.98)
    level = Gaussian(policy.switches.numbers.z, adjacency=adjacency)
    assert row.release == policy.sums.sums.cost + Gaussian(policy.calls.z, adjacency=adjacency) + level
    assert gdp(level) ** 2 / gdp(row.release) ** 2 == pytest.approx(0.02)
    assert ledger.epsilon() == pytest.approx(4.0, rel=1e-9)


@pytest.mark.parametrize("budget", [Budget(1e-3, 1e-9), Budget(300.0, 0.1)])
def test_extreme_budgets_are_met_call_by_call(spied, monkeypatch, budget):
    _, costs = spied
    monkeypatch.setattr(capped_calls, "outgrown", lambda matrix, root: True)
    policy = policy_with(budget=budget, horizon=200)
    play(policy, 200)
    known, most = policy.public, min(policy.policy_calls, policy.releases)
    assert (known.calls_o, known.calls) == (policy.exploration_calls, most)
    in_ball = [gdp(cost) ** 2 for cost, known in costs if known["constraint"].__class__.__name__ == "LpBall"]
    assert sum(in_ball) <= policy.calls.z**-2
    assert sum(in_ball) == pytest.approx(policy.calls.z**-2, rel=1e-6)


@pytest.mark.thorough
def test_past_its_cap_an_estimate_stays():
    policy = policy_with(horizon=3000, exploration_calls=1, policy_calls=1)
    seen = set()
    rng = np.random.default_rng(1)
    for _ in range(3000):
        policy.update(policy.select(ball(rng, 5, 3)), 1.0)
        seen.add((policy.public.theta_o.tobytes(), policy.theta.tobytes()))
    assert (policy.public.calls_o, policy.public.calls) == (1, 1)
    assert len(seen) <= 3


def test_the_tree_costs_the_same_and_every_round_is_released():
    policy = policy_with(horizon=64, sums="tree", release="every_round")
    assert isinstance(policy.sums.sums, BinaryTree)
    (row,) = policy.ledger.rows()
    assert any(isinstance(part, TreeAggregation) for part, _ in row.release.parts)
    assert epsilon(row.release, 1e-3) == pytest.approx(4.0, rel=1e-9)
    play(policy, 64)
    assert policy.releases == 63


def test_theory_follows_the_papers_constants():
    """λ, γ√κ, β of section J.1 at d = 2, T = 1000, ζ = 0.01, S = 1, ε = 2, δ = e^−4; logistic: R = 1, κ* = 4."""
    policy = policy_with(dim=2, horizon=1000, theta_bound=1.0, budget=Budget(2.0, math.exp(-4)), parameters="theory")
    in_T, kappa = math.log(1e5), get_link("logistic").kappa(1.0)
    lam = 2.5 * in_T + 100 * math.sqrt(2) * 4 * math.log(1001) * (math.sqrt(in_T) + math.sqrt(2)) / 8
    assert policy.levels.shift_v == pytest.approx(lam)
    joint = 2**0.25 * math.sqrt(in_T) * 2 * (2 + in_T) ** 0.25
    assert policy.levels.beta == pytest.approx(math.sqrt(2 * in_T) + joint / math.sqrt(2))
    gamma = math.sqrt(2 * in_T) + joint / math.sqrt(8) + 2 * math.sqrt(kappa) * in_T * 2 / 2
    assert policy.levels.gamma == pytest.approx(gamma * math.sqrt(kappa))
    assert policy.levels.threshold == pytest.approx(1 / (gamma**2 * kappa))
    assert policy.exploration_calls == policy.policy_calls == math.ceil(2 * math.log1p(500 / lam) / math.log(11 / 8))
    play_once = policy.select(np.eye(2))
    policy.update(play_once, 1.0)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"sums": "pile"}, "sums must be 'buffered' or 'tree', got sums='pile'"),
        ({"release": "never"}, "release must be 'scheduled' or 'every_round', got release='never'"),
        ({"growth": 0.5}, "growth must be at least 1, got growth=0.5"),
        ({"stream_share": 0.0}, r"stream_share must lie in \(0, 1\), got stream_share=0.0"),
        ({"exploration_calls": 0}, "exploration_calls must be at least 1, got exploration_calls=0"),
        ({"policy_calls": 0}, "policy_calls must be at least 1, got policy_calls=0"),
        ({"clip": -1.0}, "clip must be positive"),
        ({"ridge": 0.0}, "ridge must be positive"),
        ({"parameters": "best"}, "parameters must be 'practical' or 'theory', got parameters='best'"),
        ({"link": "poisson", "reward_range": None}, "reward_range must be finite for a private policy"),
    ],
)
def test_bad_parameters_spend_nothing(parameters, message):
    ledger = Ledger(BUDGET)
    with pytest.raises(ValueError, match=message):
        policy_with(**({"ledger": ledger} | parameters))
    assert ledger.rows() == []


# ------------------------------------------------------------------------------------------------- regret


def regret(eps: float, S: float, seeds: int, **parameters) -> float:
    return regret_of(
        lambda rng: JointDPGLM(
            3, "probit", budget=Budget(eps, 0.02), horizon=5000, theta_bound=S, rng=rng, **parameters
        ),
        "probit", 3, 20, S, 5000, seeds,
    )  # fmt: skip


def slow(*values) -> object:
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.thorough
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("eps", "S", "seeds", "more", "most"),
    [
        (4.0, 2.5, 1, {}, 250),
        # Table 2 of the paper
        *[slow(4.0, S, 10, {}, most) for S, most in ((2.0, 674), (2.5, 721), (3.0, 744))],
        *[slow(8.0, S, 10, {}, most) for S, most in ((2.0, 426), (2.5, 445), (3.0, 453))],
        # with the paper's streams
        slow(8.0, 2.5, 3, {"sums": "tree"}, 445),
        slow(8.0, 2.5, 3, {"sums": "tree", "release": "every_round"}, 445),
    ],
)
def test_regret_on_the_probit_workload(eps, S, seeds, more, most):
    """d = 3, K = 20, T = 5000, δ = 0.02."""
    assert regret(eps, S, seeds, **more) <= most


def test_a_custom_links_negative_slope_does_not_enter():
    """The sensitivity is for weights in [0, W]; with a slope of −42 below 0 one round would move H by far more."""
    base = get_link("logistic")
    link = replace(base, name="mine", derivative=lambda z: np.where(np.asarray(z) < 0.0, -42.0, 0.25)[()])
    policy = JointDPGLM(2, link, budget=Budget(1.0, 1e-6), horizon=100, first_batch=4, rng=np.random.default_rng(0))
    policy.public = replace(policy.public, theta_o=np.array([-1.0, 0.0]))
    policy.learn(Pending(np.array([1.0, 0.0]), 0, 0, (0,)), 1.0)
    assert 0.0 <= policy.sums.batch_H[0, 0] <= policy.sums.W


def test_the_theorys_parameters_do_not_meet_the_conditions_of_the_theorem():
    """The figures of the module's text: (72) with ν₂ = 0, (61) with ν₁ of (56), the missing ridge."""
    d, S, T, eps, delta, zeta, link = 3, 2.0, 5000, 4.0, 0.02, 0.01, get_link("probit")
    levels = Levels.theory(link, S, 1.0, Budget(eps, delta), zeta, d, T)
    R, kappa, lam, root = S, link.kappa(S), levels.shift_v, math.sqrt(d)  # the probit's self-concordance is S
    most, least = (4 * root + 2) / (4 * root + 1) * lam, 4 * root / (4 * root + 1) * lam
    beta = 4 * R * most / math.sqrt(least)
    beta += 7 * d / (R * math.sqrt(least)) * math.log(16 * T / (zeta * R**2 * d * least))
    assert (round(levels.beta), round(beta)) == (50, 540)
    gamma, log_T = levels.gamma / math.sqrt(kappa), math.log(T)
    nu = R**2 * S**2 * gamma / eps * math.sqrt(d * kappa * log_T * math.log(8 / delta)) * math.sqrt(d * log_T)
    due = 4 * R**2 * S * math.sqrt(most) + 7 * S * d / math.sqrt(most) * math.log(16 * T / (zeta * R**2 * d * most))
    assert (round(gamma, -2), round(due + 4 * R * S * math.sqrt(nu), -3)) == (21_500, 79_000)
    assert round(S * math.sqrt(most / 2)) == 84

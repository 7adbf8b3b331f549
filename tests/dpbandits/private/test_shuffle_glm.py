"""ShuffleGLM: designs, elimination, what a batch releases and costs, half-widths, and regret."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from regret import ball, regret_of

from accounting import Budget, BudgetExceeded, Ledger, epsilon, parallel
from dpbandits.policies import ShuffleGLM
from dpbandits.private.parts.half_widths import surviving
from dpkit import optimize
from dpkit.geometry import svec
from dpkit.models.ellipsoid import norms
from dpkit.models.links import get_link
from dpkit.shuffle import Analyzer, Randomizer

BUDGET = Budget(4.0, 1e-5)


def policy_with(link="logistic", dim=3, horizon=121, **parameters) -> ShuffleGLM:
    """Where noise does not matter, with the paper's analysis, which needs no calibration."""
    parameters = {
        "budget": BUDGET,
        "reward_range": (0.0, 1.0),
        "batches": [40, 80],
        "rng": np.random.default_rng(0),
    } | parameters
    return ShuffleGLM(dim, link, horizon=horizon, **parameters)


def play(policy: ShuffleGLM, rounds: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    X, r = np.zeros((rounds, policy.dim)), np.zeros(rounds)
    for t in range(rounds):
        decision = policy.select(ball(rng, 5, policy.dim))
        X[t], r[t] = decision.arm, float(rng.random() < 0.5)
        policy.update(decision, r[t])
    return X, r


def with_estimates(policy: ShuffleGLM, thetas, shapes) -> ShuffleGLM:
    """As after some releases."""
    known, policy.releases = policy.public, len(thetas)
    known.thetas[: len(thetas)], known.shapes[: len(thetas)] = thetas, shapes
    policy.decisions = policy.schedule.ends[len(thetas) - 1]
    return policy


# ------------------------------------------------------------------------------------------------ choices


def test_the_first_batch_plays_a_g_optimal_design():
    """Two of three arms, each half of the time: 1000 draws stray by 0.1 with probability below 1e-9 (6.3 σ)."""
    policy = policy_with(dim=2, horizon=1001, batches=[1000])
    arms = [[1.0, 0.0], [0.0, 0.5], [0.1, 0.1]]
    counts = np.bincount([policy.select(arms).index for _ in range(1000)], minlength=3) / 1000
    assert counts[2] == 0
    assert abs(counts[0] - 0.5) <= 0.1


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), width=st.floats(0.0, 2.0))
def test_arms_are_eliminated_by_every_earlier_batch_in_turn(seed, width):
    rng = np.random.default_rng(seed)
    shapes = [width * np.diag(rng.random(3)), width * np.eye(3)]
    policy = with_estimates(policy_with(analysis="paper"), rng.standard_normal((2, 3)), shapes)
    arms = ball(rng, 12, 3)
    left = list(range(12))
    for theta, shape in zip(policy.thetas, shapes, strict=True):
        half = {i: math.sqrt(arms[i] @ shape @ arms[i]) for i in left}
        best = max(arms[i] @ theta - half[i] for i in left)
        left = [i for i in left if arms[i] @ theta + half[i] >= best]
    assert surviving(arms, policy.thetas, policy.public.shapes[: policy.releases]).tolist() == left
    decision = policy.select(arms)
    assert decision.index in left
    assert set(np.flatnonzero(decision.scores > 0)) <= set(left)


@settings(deadline=None, max_examples=20)
@given(
    link=st.sampled_from(["logistic", "probit", "linear"]),
    parameters=st.sampled_from(["practical", "theory"]),
    size=st.sampled_from([0.0, 2.0, 50.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_weights_never_pass_the_bound_of_the_matrix_sum(link, parameters, size, seed):
    """Not even for a θ_1 that no fit can give."""
    rng = np.random.default_rng(seed)
    policy = policy_with(link, parameters=parameters, theta_bound=2.0, analysis="paper")
    with_estimates(policy, [size * rng.standard_normal(3)], [0.1 * np.eye(3)])
    X = ball(rng, 20, 3)
    weights = policy.design.weights(policy.public, X, 40)
    assert weights.min() >= 0
    assert weights.max() <= policy.rows.plans[1].matrix.bound
    if parameters == "theory":
        L = get_link(link)
        beta = np.exp(max(1.0, L.self_concordance(2.0)) * np.minimum(4.0, norms(X, policy.public.shapes[0])))
        expected = np.minimum(L.derivative(X @ policy.thetas[0]) / beta, L.lipschitz(2.0))
        np.testing.assert_allclose(weights, expected, rtol=1e-12)


# ------------------------------------------------------------------------------------------------ a batch


@pytest.mark.parametrize("parameters", ["practical", "theory"])
def test_what_a_batch_sends_and_what_follows_from_it(monkeypatch, parameters):
    """The matrix rows, the fit's rows, and Q_k computed from exact sums."""
    rows, fits, exact = [], [], []
    tally, fit = Randomizer.tally, optimize.shuffle_gradient_descent

    def recorded_tally(self, X):
        rows.append(np.array(X))
        return tally(self, X)

    def recorded_fit(objective, X, y, **known):
        count = len(rows)
        result = fit(objective, X, y, **known)
        fits.append((np.array(X), np.array(y), known, result, rows[count - 1]))
        del rows[count:]
        return result

    decode = Analyzer.decode

    def exact_matrix(self, *arguments):
        estimate = decode(self, *arguments)
        if self.protocol.rounds > 1:
            return estimate
        exact.append(rows[-1].sum(axis=0))
        return exact[-1]

    monkeypatch.setattr(Randomizer, "tally", recorded_tally)
    monkeypatch.setattr(optimize, "shuffle_gradient_descent", recorded_fit)
    monkeypatch.setattr(Analyzer, "decode", exact_matrix)
    policy = policy_with(parameters=parameters, theta_bound=2.0, base_rate=0.5)
    X, r = play(policy, 40, np.random.default_rng(3))
    for _ in range(80):
        policy.select(np.eye(3))  # never answered
    policy.select(np.eye(3))
    assert policy.releases == 2
    for k, (users, weights) in enumerate([(40, np.ones(40)), (80, np.zeros(80))]):
        sent, told, known, result, matrix_rows = fits[k]
        np.testing.assert_array_equal(sent, X if k == 0 else np.zeros((users, 3)))
        np.testing.assert_array_equal(told, r if k == 0 else np.zeros(users))
        np.testing.assert_allclose(matrix_rows, weights[:, None] * svec(sent[:, :, None] * sent[:, None, :]))
        assert known["ledger"].total == result.cost
        np.testing.assert_array_equal(policy.thetas[k], result.x)
        V = (weights[:, None] * sent).T @ sent
        sigma, S, R, d, T = policy.rows.plans[k].matrix.noise_std(users), 2.0, 1.0, 3, 121
        if parameters == "practical":
            H = V + (1 + sigma * math.sqrt(2 * d)) * np.eye(3)
            H *= (2 / (1 + math.exp(-S)) - 1) / (2 * S) if k == 0 else 1.0
            inverse = np.linalg.inv(H)
            noise = (result.noise_std * users) ** 2 * 2 / result.nit
            expected = 0.25 / 0.25 * inverse + noise * inverse @ inverse
        else:
            spread = math.sqrt(math.log(2 * d * 2 * T / 0.01))
            reach = sigma * (4 * math.sqrt(d) + 2 * spread)
            lam = 20 * d * R * math.log(T) + reach
            error = (2 * S) ** 2 / (result.step_size * result.nit) + result.step_size * d * result.noise_std**2 / 2
            nu = users * error + (lam + reach) * S**2 / 2
            gamma = 24 * R * S * (math.sqrt(math.log(T) + d) + R * (math.log(T) + d) / math.sqrt(lam - reach))
            gamma += 2 * S * math.sqrt(lam + reach) + math.sqrt(4 * R * S * nu)
            kappa = (1 + math.exp(S)) ** 2 / math.exp(S) if k == 0 else 1.0
            expected = gamma**2 * kappa * np.linalg.inv(V + lam * np.eye(3))
        np.testing.assert_allclose(policy.public.shapes[k], expected, rtol=1e-8)


def test_the_theorys_batches_are_those_of_equations_6_and_7():
    """Written out for d = 1, S = 0.1, κ = R = κ* = 1, ε = 10, δ = 0.1, T = 1000, three batches."""
    policy = policy_with(
        "linear", 1, 1000, batches=None, parameters="theory", theta_bound=0.1, budget=Budget(10.0, 0.1)
    )
    sigma = math.log(1 / 0.1) / 10
    lam = 20 * math.log(1000) + sigma * (2 * math.sqrt(math.log(2 * 3 * 1000 / 0.01)) + 4)
    nu = 0.1**2 / 10 * math.log(1000 / 0.1) ** 1.5
    gamma = 0.1 * math.sqrt(lam) + math.sqrt(4 * 0.1 * nu)
    alpha = 1000 ** (2 / 3)
    first = math.ceil((math.exp(0.3) * gamma**2 * alpha / 0.1) ** (2 / 3))
    assert policy.schedule.ends == (first, first + math.ceil(alpha))


@pytest.mark.slow
def test_default_batches_double_and_the_theorys_explore_all_the_time():
    policy = policy_with(horizon=5000, batches=None, analysis="paper")  # whose noise needs no calibration
    assert policy.schedule.ends == (96, 288, 672, 1440, 2976)
    theory = policy_with(horizon=5000, batches=None, parameters="theory")
    assert theory.schedule.ends == ()
    assert theory.privacy().epsilon == 0


# ------------------------------------------------------------------------------------------------ privacy


@pytest.mark.thorough
@pytest.mark.parametrize(("adjacency", "batches"), [("replace", [40]), ("zero_out", [40, 80])])
def test_matrix_and_descent_are_composed_and_use_up_the_budget(adjacency, batches):
    budget = Budget(1.0, 0.02, adjacency=adjacency)
    ledger = Ledger(budget)
    policy = policy_with(budget=budget, ledger=ledger, link="probit", theta_bound=2.0, batches=batches)
    (row,) = ledger.rows()
    levels = [plan.numbers.cost for plan in policy.rows.plans if plan.numbers is not None]
    totals = [plan.matrix.cost + plan.descent for plan in policy.rows.plans]
    assert len(levels) == (adjacency == "zero_out")  # under replace, noise would be too large for so few users
    totals[: len(levels)] = [totals[0] + level for level in levels]
    assert row.release == parallel(*totals)
    for total in totals:
        assert 0.97 <= epsilon(total, 0.02) <= 1.0
    if adjacency == "replace":  # the two halves of ε that the paper would give leave more noise in the gradients
        known = {"link": "probit", "theta_bound": 2.0, "batches": batches, "horizon": 41}
        half = policy_with(budget=Budget(0.5, 0.01), matrix_share=0.01, **known)
        assert policy.rows.plans[0].budget.epsilon > half.rows.plans[0].budget.epsilon
    play(policy, 121, np.random.default_rng(1))
    assert ledger.total == row.release


@pytest.mark.slow
def test_the_papers_analysis_runs_within_the_budget_with_far_more_noise():
    paper = policy_with(dim=2, analysis="paper", batches=[12], horizon=13)
    assert 0.99 * BUDGET.epsilon <= paper.privacy().epsilon <= BUDGET.epsilon
    numeric = policy_with(dim=2, batches=[12], horizon=13)
    assert paper.rows.plans[0].matrix.noise_std(12) > 50 * numeric.rows.plans[0].matrix.noise_std(12)
    play(paper, 13, np.random.default_rng(1))
    assert paper.releases == 1


def test_a_fit_that_was_not_priced_is_refused(monkeypatch):
    """The descent may not take more rounds, or other noise, than the policy paid for."""
    policy = policy_with()
    plan = policy.rows.plans[0]
    policy.rows.plans[0] = replace(plan, rounds=plan.rounds + 1)
    play(policy, 40, np.random.default_rng(1))
    with pytest.raises(BudgetExceeded):
        policy.select(np.eye(3))


@settings(deadline=None, max_examples=25)
@given(
    link=st.sampled_from(["logistic", "probit", "linear"]),
    seed=st.integers(0, 2**32 - 1),
    S=st.sampled_from([0.5, 3.0]),
)
def test_no_gradient_in_the_ball_is_longer_than_the_clip(link, seed, S):
    """So clipping, which keeps the sensitivity whatever happens, changes nothing."""
    rng = np.random.default_rng(seed)
    policy = policy_with(link, theta_bound=S, analysis="paper")
    theta = S * ball(rng, 3)
    X, r = ball(rng, 50, 3), rng.choice([0.0, 1.0], size=50)
    gradients = policy.rows.objective(0.0)[0].gradients(theta, X, r)
    assert np.linalg.norm(gradients, axis=1).max() <= policy.rows.clip
    np.testing.assert_allclose(gradients, (policy.link.mean(X @ theta) - r)[:, None] * X, rtol=1e-9)


# ------------------------------------------------------------------------------------------------- regret


def probit_regret(T: int, seeds: int) -> float:
    """d = 3, K = 20, S = 2.5, ε = 4, δ = 0.02."""
    return regret_of(
        lambda rng: ShuffleGLM(3, "probit", budget=Budget(4.0, 0.02), horizon=T, theta_bound=2.5, rng=rng),
        "probit", 3, 20, 2.5, T, seeds=seeds,
    )  # fmt: skip


@pytest.mark.slow
def test_regret_on_the_probit_workload():
    """Uniform choice has about 700 in 1500 rounds."""
    assert probit_regret(1500, 1) <= 120


@pytest.mark.slow
def test_regret_on_the_probit_workload_in_full():
    """The published joint-private figure is 721."""
    assert probit_regret(5000, 10) <= 200

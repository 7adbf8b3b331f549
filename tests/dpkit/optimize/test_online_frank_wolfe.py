"""Online Frank–Wolfe: the stream's sensitivity, its three noises, and the paper's recursion without noise."""

import math

import numpy as np
import pytest
from any_label import for_any_label
from hypothesis import given, settings
from hypothesis import strategies as st
from learners import quiet, sums_of

from accounting import Budget, Gaussian, Ledger
from dpkit.continual import BinaryTree, BufferedToeplitz
from dpkit.geometry import Box, LpBall
from dpkit.optimize import OnlineFrankWolfe, glm, online_frank_wolfe

BUDGET = Budget(1.0, 1e-5)
numbers = st.floats(-1e300, 1e300)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=6),
    noise=st.sampled_from(["gaussian", "generalized_gaussian", "paper"]),
    loss=st.sampled_from(["squared", "logistic", "poisson"]),
)
def test_no_row_moves_the_sums_by_more_than_their_sensitivity(rows, noise, loss):
    taken = []
    kind = BufferedToeplitz if noise == "gaussian" else BinaryTree
    add = kind.add

    def spy(self, x):
        taken.append((np.array(x), self.sensitivity, getattr(self, "q", 2.0)))
        return add(self, x)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "add", spy)
        learner = OnlineFrankWolfe(
            for_any_label(loss, clip=0.3),
            LpBall(1.5, 2),
            horizon=8,
            budget=BUDGET,
            noise=noise,
            rng=np.random.default_rng(0),
        )
        for a, b, y in rows:
            assert learner.constraint.contains(learner.step([a, b], y))
    assert len(taken) == len(rows)
    for g, sensitivity, q in taken:
        assert np.linalg.norm(g, q) <= 0.3
        assert sensitivity == 2 * 0.3
        assert q == (2.0 if noise == "gaussian" else 3.0)


def test_the_zero_out_sensitivity_is_half():
    budget = Budget(1.0, 1e-5, adjacency="zero_out")
    learner = OnlineFrankWolfe(glm("squared", clip=0.3), LpBall(2, 2), horizon=8, budget=budget)
    assert learner.cost.adjacency == "zero_out"


def test_nearly_without_noise_it_is_the_recursion_of_the_paper():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 3)), rng.normal(size=50)
    objective, ball = glm("squared", clip=1e6), LpBall(1.5, 3, 2.0)

    learner = OnlineFrankWolfe(objective, ball, horizon=50, budget=BUDGET, forgetting=1.0, step_rule="open")
    quiet(learner)
    before = theta = np.zeros(3)
    d_t = None
    for t in range(1, 51):
        x, label = X[t - 1], y[t - 1]
        now, old = (x @ theta - label) * x, (x @ before - label) * x
        # the recursion (not the sum): d_t = ∇f(θ_t) + (1 − ρ_t)(d_{t−1} − ∇f(θ_{t−1})), where d_0 = ∇f(θ_0)/… drops out
        d_t = (2 * now - old) / 2 if t == 1 else now + (1 - 1 / (t + 1)) * (d_t - old)
        before, theta = theta, theta + (ball.linear_minimizer(d_t) - theta) / (t + 1)
        assert np.allclose(learner.step(x, label), theta, atol=1e-9)
    assert learner.clipped == 0


@pytest.mark.parametrize(
    ("ball", "noise"),
    [
        (LpBall(1.5, 3, 2.0), "gaussian"),
        (LpBall(1.5, 3, 2.0), "generalized_gaussian"),
        (LpBall(math.inf, 3, 2.0), "generalized_gaussian"),
        (Box([-1.0, -2.0, -1.0], [1.0, 1.0, 3.0]), "gaussian"),
    ],
)
def test_without_noise_it_is_what_the_module_says(ball, noise):
    rng = np.random.default_rng(0)
    n, clip, scale = 40, 1e3, 2e4
    X, y = rng.normal(size=(n, 3)), rng.normal(size=n)
    learner = OnlineFrankWolfe(
        glm("squared", clip=clip), ball, horizon=n, budget=BUDGET, noise=noise, step_scale=scale, start=[0.1, 0, 0]
    )
    quiet(learner)
    norm = 2.0 if noise == "gaussian" else ball.p
    before = theta = np.array([0.1, 0.0, 0.0])
    weighted, lengths = np.zeros(3), []
    for t in range(1, n + 1):
        x, label = X[t - 1], y[t - 1]
        now, old = (x @ theta - label) * x, (x @ before - label) * x
        # r = 2: row i has weight i, and d_t is the weighted mean
        weighted += t * (now + (t - 1) / 2 * (now - old))
        d_t = weighted / (t * (t + 1) / 2)
        direction = ball.linear_minimizer(d_t) - theta
        squared = np.linalg.norm(direction, norm) ** 2
        gap = max(0.0, -(d_t @ direction))
        step = scale * ball.diameter(norm) * gap / (8 * clip * math.sqrt(n) * squared) if squared else 0.0
        lengths.append(min(1.0, step))
        before, theta = theta, theta + lengths[-1] * direction
        assert np.allclose(learner.step(x, label), theta, atol=1e-9)
    assert learner.clipped == 0
    assert max(lengths) == 1.0
    assert sum(0.0 < length < 1.0 for length in lengths) > 20


def test_to_forget_early_rows_costs_less_noise_than_weight():
    rng = np.random.default_rng(0)
    sums = BufferedToeplitz(horizon=1000, shape=4000, sensitivity=1.0, noise_multiplier=1.0, rng=rng)
    even, late, before = np.zeros((3, 4000))
    for t in range(1, 1001):
        total = sums.add(np.zeros(4000))
        even += (total - before - even) / (t + 1)
        late += min(1.0, 2 / (t + 1)) * (total - before - late)
        before = total
    # one standard deviation of the ratio of two such estimates is below 1.6 %
    assert late.std() / even.std() == pytest.approx(1.67, rel=0.06)


def test_steps_fade_at_an_optimum_within_the_set():
    # one parameter: v jumps between the ends of [−1, 1], and steps of 1/(t + 1) would go on for ever
    learner = OnlineFrankWolfe(glm("squared", clip=1.0), Box([-1.0], [1.0]), horizon=4000, budget=BUDGET)
    quiet(learner)
    path = np.array([learner.step([1.0], 0.3)[0] for _ in range(4000)])
    assert abs(path[-1] - 0.3) < 1e-6
    assert np.abs(np.diff(path[-100:])).max() * 4000 < 1e-3


def test_streaming_and_one_call_agree():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), rng.normal(size=40)
    common = {"budget": BUDGET, "step_scale": 0.7}
    result = online_frank_wolfe(
        glm("squared", clip=1.0), X, y, constraint=LpBall(1.5, 3), rng=np.random.default_rng(5), **common
    )
    learner = OnlineFrankWolfe(
        glm("squared", clip=1.0), LpBall(1.5, 3), horizon=40, rng=np.random.default_rng(5), **common
    )
    for x, label in zip(X, y, strict=True):
        theta = learner.step(x, label)
    assert np.array_equal(result.x, theta)
    assert (result.nit, result.clipped, result.cost) == (40, learner.clipped, learner.cost)


def test_published_noise_is_dearer_than_what_the_budget_needs():
    common = {"horizon": 1024, "budget": BUDGET}
    objective, ball = glm("squared", clip=1.0), LpBall(1.5, 5)
    own = OnlineFrankWolfe(objective, ball, **common)
    tree = OnlineFrankWolfe(objective, ball, noise="generalized_gaussian", **common)
    paper = OnlineFrankWolfe(objective, ball, noise="paper", **common)
    assert isinstance(own.cost, Gaussian)
    # σ₊ = √8·K·√(κ ln(K/δ))·clip/ε with K = ⌈log₂ n⌉ + 1 = 11, that is z = √(2 ln(K/δ))·K/ε for a sensitivity of 2·clip
    ((release, levels),) = paper.cost.parts
    assert levels == 11
    assert release.noise_multiplier == pytest.approx(11 * math.sqrt(2 * math.log(11 / 1e-5)))
    assert release.noise_multiplier > 3 * tree.cost.parts[0][0].noise_multiplier


def test_other_sets_and_refusals():
    objective = glm("squared", clip=1.0)
    box = Box([-1.0, -1.0], [1.0, 1.0])
    learner = OnlineFrankWolfe(objective, box, horizon=2, budget=BUDGET, start=[0.5, 0.5])
    state = learner.theta.copy()
    for x, y, error in (
        ([np.nan, 0.0], 0.0, ValueError),
        ([1.0], 0.0, ValueError),
        ([1.0, 0.0], np.inf, ValueError),
        (["a", "b"], 0.0, TypeError),
    ):
        with pytest.raises(error):
            learner.step(x, y)
    assert learner.steps == 0
    assert np.array_equal(learner.theta, state)
    learner.step([1.0, 0.0], 0.0)
    learner.step([1.0, 0.0], 0.0)
    with pytest.raises(ValueError, match="at most horizon=2 rows"):
        learner.step([1.0, 0.0], 0.0)
    ledger = Ledger()
    for change, message in (
        ({"noise": "paper"}, "LpBall with p > 1"),
        ({"noise": "laplace"}, "LpBall with p > 1|noise must be"),
        ({"horizon": 0}, "horizon must be at least 1, got horizon=0"),
        ({"forgetting": 0.5}, "forgetting must be at least 1, got forgetting=0.5"),
        ({"step_rule": "line"}, "step_rule must be 'short' or 'open', got step_rule='line'"),
    ):
        with pytest.raises(ValueError, match=message):
            OnlineFrankWolfe(objective, box, **{"horizon": 2, "budget": BUDGET, "ledger": ledger} | change)
    assert not ledger.rows()


def test_memory_does_not_grow_with_the_stream():
    sizes = []
    for horizon in (2**8, 2**16):
        learner = OnlineFrankWolfe(glm("squared", clip=1.0), LpBall(2, 50), horizon=horizon, budget=BUDGET)
        sizes.append(sum(np.size(a) for a in sums_of(learner).kept().values()))
    assert sizes[1] <= 2 * sizes[0]

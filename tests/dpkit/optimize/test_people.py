"""People with several rows: one of them moves what is released by no more than one row did, whatever the rows are."""

import importlib
import math
from fractions import Fraction

import numpy as np
import pytest
import white_box
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tabled import tabled
from watched import recorded_releases

from accounting import Budget
from dpkit import optimize
from dpkit.geometry import LpBall, pair_sensitivity
from dpkit.optimize import GLM, glm
from dpkit.training.groups import Groups, GroupSums
from dpkit.training.rows import GradientSums

BUDGET = Budget(1.0, 1e-5, unit="person")
OBJECTIVE = glm("squared", clip=0.5)
NAMES = [
    "noisy_gradient_descent",
    "noisy_sgd",
    "localized_mirror_descent",
    "noisy_stochastic_frank_wolfe",
    "sufficient_statistics",
]


def fit(name, X, y, *, budget=BUDGET, objective=OBJECTIVE, **more):
    more.setdefault("rng", np.random.default_rng(0))
    more.setdefault("constraint", LpBall(1.5, 3, 2.0))
    if name == "sufficient_statistics":
        return optimize.sufficient_statistics(X, y, budget=budget, label_bound=1.0, **more)
    return getattr(optimize, name)(objective, X, y, budget=budget, **more)


def problem(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) / math.sqrt(3)
    return X, X @ [0.8, -0.6, 0.0] + 0.05 * rng.normal(size=n)


@pytest.mark.parametrize("name", NAMES)
def test_people_of_one_row_are_rows(name):
    X, y = problem(200)
    rows = fit(name, X, y, budget=Budget(1.0, 1e-5))
    people = fit(name, X, y, groups=np.arange(200))
    assert people.cost == rows.cost
    np.testing.assert_allclose(people.x, rows.x, atol=1e-4)
    assert people.nfev == rows.nfev


@pytest.mark.parametrize("name", NAMES)
def test_what_counts_is_the_mean_of_a_person(name):
    X, y = problem(120)
    times = np.random.default_rng(1).integers(1, 6, 120)
    order = np.random.default_rng(2).permutation(int(times.sum()))
    groups = np.repeat([f"{i:03}" for i in range(120)], times)[order]
    many = fit(name, np.repeat(X, times, axis=0)[order], np.repeat(y, times)[order], groups=groups)
    once = fit(name, X, y, groups=np.arange(120))
    np.testing.assert_allclose(many.x, once.x, atol=2e-4)
    assert many.cost == once.cost


@pytest.mark.parametrize("name", NAMES)
def test_people_are_fitted(name):
    X, y = problem(3000)
    groups = np.random.default_rng(3).integers(0, 1500, 3000)
    x = fit(name, X, y, groups=groups, budget=Budget(8.0, 1e-5, unit="person")).x
    assert np.mean((X @ x - y) ** 2) < 0.7 * np.mean(y**2)


values = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def neighbours(draw):
    """Rows of three people, and others for the one in the middle."""
    X = draw(arrays(np.float64, st.tuples(st.integers(3, 6), st.just(3)), elements=values))
    groups = np.array([0, 2, *draw(st.lists(st.sampled_from([0, 1, 2]), min_size=len(X) - 3, max_size=len(X) - 3)), 1])
    theirs = draw(arrays(np.float64, st.tuples(st.integers(1, 4), st.just(3)), elements=values))
    labels = st.floats(-1e300, 1e300)
    y = draw(arrays(np.float64, len(X), elements=labels))
    keep = groups != 1
    other = (
        np.vstack([theirs, X[keep]]),
        np.concatenate([draw(arrays(np.float64, len(theirs), elements=labels)), y[keep]]),
    )
    return (X, y, groups), (*other, np.concatenate([np.ones(len(theirs), int), groups[keep]]))


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(neighbours(), st.floats(1e-3, 1e3), arrays(np.float64, 3, elements=st.floats(-1e3, 1e3)))
def test_no_person_moves_a_sum_by_more_than_the_sensitivity(pair, clip, theta):
    objective = glm("squared", clip=clip)
    sums = [GroupSums(objective, X, y, Groups(groups)) for X, y, groups in pair]
    first, second = (one.at(theta) for one in sums)
    absent = sums[0].at(theta, np.array([0, 2]))  # position 1 is the person in the middle
    for other, adjacency in ((second, "replace"), (absent, "add_remove")):
        moved = sum((Fraction(float(a)) - Fraction(float(b))) ** 2 for a, b in zip(first, other, strict=True))
        assert moved <= Fraction(sums[0].sensitivity(adjacency)) ** 2


@settings(max_examples=50, deadline=None)
@given(neighbours(), st.floats(1e-3, 1e3))
def test_no_person_moves_second_moments_by_more_than_the_sensitivity(pair, bound):
    module = importlib.import_module(optimize.sufficient_statistics.__module__)
    known = {"constraint": LpBall(2, 3), "budget": BUDGET, "label_bound": bound, "row_norm": bound}
    with pytest.MonkeyPatch.context() as patch:
        released = recorded_releases(patch, module)
        for X, y, groups in pair:
            optimize.sufficient_statistics(X, y, groups=groups, **known)
    (sensitivity, first), (_, second) = released
    moved = sum((Fraction(float(a)) - Fraction(float(b))) ** 2 for a, b in zip(first, second, strict=True))
    assert moved <= Fraction(sensitivity) ** 2
    assert sensitivity < 1.0001 * pair_sensitivity(1.0, 1.0, 0.9, 1.0, "replace", least=1.0)


@pytest.mark.thorough
def test_an_audit_finds_the_claim_and_catches_rows_that_are_counted_one_by_one():
    # a person's 20 rows all have the gradient −x, its neighbour's the gradient x
    budget = Budget(1.0, 1e-2, unit="person")
    constant = GLM("linear", lambda eta, y: -y * eta, lambda eta, y: -y, 1.0, 0.0, clip=1.0)
    X, groups = np.tile([[1.0]], (24, 1)), np.array([0, 1, 2, 3] + [4] * 20)
    rng = np.random.default_rng(5)

    def step(y, **more):
        return optimize.noisy_gradient_descent(
            constant, X, y, constraint=LpBall(2, 1, 1e6), steps=1, step_scale=0.1, iterate="last", rng=rng, **more
        ).x[0]

    ones = np.concatenate([np.ones(4), np.full(20, 1.0)])
    other = np.concatenate([np.ones(4), np.full(20, -1.0)])
    for more, trials, sound in (
        # with half the noise these show ε = 1.5
        ({"budget": budget, "groups": groups}, 800, True),
        ({"budget": Budget(1.0, 1e-2)}, 200, False),
    ):
        found = white_box.lower_bound(
            lambda y, count, more=more: np.array([step(y, **more) for _ in range(count)]),
            ones,
            other,
            trials=trials,
            delta=1e-2,
            confidence=1 - 1e-9,
            score=lambda outputs: outputs,
        )
        assert (found.epsilon <= 1.0) == sound


@pytest.mark.parametrize("name", [*NAMES, "objective_perturbation"])
@tabled(
    ("change", "error", "message"),
    [
        ({"groups": None}, ValueError, r"groups must be given where budget\.unit is 'person'"),
        ({"budget": Budget(1.0, 1e-5)}, ValueError, r"budget\.unit must be 'person' where groups are given"),
        ({"groups": np.zeros(7, int)}, ValueError, r"groups must have shape \(8,\)"),
        ({"groups": np.full(8, np.nan)}, TypeError, "groups must be integers or strings"),
        ({"groups": [None] * 8}, TypeError, "groups must be integers or strings"),
    ],
)
def test_refusals(name, change, error, message):
    with pytest.raises(error, match=message):
        fit(name, *problem(8), **({"groups": np.arange(8) // 2} | change))


@pytest.mark.parametrize("adjacency", ["replace", "add_remove", "zero_out"])
def test_a_perturbed_objective_sums_the_mean_losses_of_people(adjacency):
    """With a budget that leaves no noise the fit minimises Σ_p mean + (Λ/2)‖θ‖²."""
    X, y = problem(60)
    groups = np.random.default_rng(1).integers(0, 12, 60)
    budget = Budget(500.0, 0.5, adjacency=adjacency, unit="person")
    found = fit("objective_perturbation", X, y, budget=budget, groups=groups, objective=glm("squared", clip=50.0))
    weights = 1.0 / np.bincount(groups)[groups]
    gram = (weights[:, None] * X).T @ X + found.ridge * np.eye(3)
    exact = np.linalg.solve(gram, (weights * y) @ X)
    spread = found.noise_std / np.linalg.eigvalsh(gram)[0]
    assert np.abs(found.x - exact).max() <= 7.0 * spread  # 3 normal variables: a false alarm in 1e11 seeds
    # rows that one person repeats change nothing
    order = np.r_[np.arange(60), np.flatnonzero(groups == 3), np.flatnonzero(groups == 3)]
    again = fit("objective_perturbation", X[order], y[order], budget=budget, groups=groups[order],
                objective=glm("squared", clip=50.0))  # fmt: skip
    assert again.noise_std == found.noise_std
    np.testing.assert_allclose(again.x, found.x, atol=1e-4)


@pytest.mark.parametrize("replaced", [True, False])
def test_a_person_in_a_perturbed_objective_shows_no_more_than_the_budget(replaced):
    """d = 1, the densities of the exact minimizer: one person's rows, at will, beside two others."""
    ε, δ = 1.5, 1e-3
    budget = Budget(ε, δ, adjacency="replace" if replaced else "zero_out", unit="person")
    known = {"constraint": LpBall(2, 1, 5.0), "budget": budget, "objective": glm("squared", clip=0.5)}
    run = fit("objective_perturbation", np.ones((4, 1)), np.zeros(4), groups=[0, 0, 1, 2], **known)

    def density(rows, sigma):
        b = -run.ridge * theta
        for x, label, weight in [(1.0, 0.2, 1.0), (0.6, -1.0, 1.0), *rows]:
            b = b - weight * np.clip(x * theta - label, -0.5 / abs(x), 0.5 / abs(x)) * x
        return np.exp(-0.5 * (b / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi)) * np.abs(np.gradient(b, theta))

    theta = np.linspace(-12, 12, 200_001) * run.noise_std / run.ridge

    def worst(sigma):
        # all rows on one side of every θ, in two places, and both sides of 0
        deeds = [[(1.0, 9e9, 1.0)], [(1.0, 1.0, 0.5), (-0.5, 2.0, 0.5)], [(1.0, 0.4, 0.5), (1.0, -0.4, 0.5)]]
        others = [[(1.0, -9e9, 1.0)], deeds[2]] if replaced else [[]]
        p, q = ([density(rows, sigma) for rows in which] for which in (deeds, others))
        step = theta[1] - theta[0]
        return max(np.maximum(a - math.exp(ε) * b, 0).sum() * step for f in p for g in q for a, b in ((f, g), (g, f)))

    assert worst(run.noise_std) <= δ
    assert worst(run.noise_std / 2) > δ


@pytest.mark.thorough
def test_people_under_add_remove_ask_for_their_public_number():
    budget = Budget(1.0, 1e-5, adjacency="add_remove", unit="person")
    groups = np.arange(40) // 4
    for name in ("noisy_gradient_descent", "noisy_sgd"):
        with pytest.raises(ValueError, match="public_rows must be given"):
            fit(name, *problem(40), budget=budget, groups=groups)
        assert fit(name, *problem(40), budget=budget, groups=groups, public_rows=10).cost.adjacency == "add_remove"


def test_dp_sgd_by_person():
    torch = pytest.importorskip("torch")
    pytest.importorskip("opacus")
    from dpkit.optimize import dp_sgd

    module = importlib.import_module("dpkit.torch.dp_sgd")
    X, y = problem(12)
    groups = np.array([0, 1, 2, 2, 2, 0, 3, 3, 1, 2, 2, 2])
    budget = Budget(2.0, 1e-5, unit="person")

    # everybody is sampled
    draw = np.random.default_rng(0)
    everybody = type("Everybody", (np.random.Generator,), {"random": lambda self, size=None: np.zeros(size)})

    def run(X, y, groups, **more):
        released.clear()
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 1, dtype=torch.float64)
        known = {"budget": budget, "epochs": 1, "batch": 4, "rng": everybody(draw.bit_generator)} | more
        dp_sgd(model, X, y, loss=lambda o, t: (o[:, 0] - t) ** 2 / 2, clip=0.4, groups=groups, **known)
        return model, released[0][1]

    with pytest.MonkeyPatch.context() as patch:
        released = recorded_releases(patch, module)
        model, total = run(X, y, groups)
        weight, bias = model.weight.detach().numpy()[0], float(model.bias.detach())
        residuals = X @ weight + bias - y
        gradients = residuals[:, None] * np.column_stack([X, np.ones(12)])
        means = np.stack([gradients[groups == p].mean(axis=0) for p in range(4)])
        expected = (means * np.minimum(1.0, 0.4 / np.linalg.norm(means, axis=1))[:, None]).sum(axis=0)
        np.testing.assert_allclose(total, expected, atol=1e-6)
        np.testing.assert_allclose(run(X, y, groups, rows_at_once=2)[1], total, atol=1e-12)
        X[groups == 2] *= 1e3
        assert np.linalg.norm(run(X, y, groups)[1] - total) <= 0.8
    with pytest.raises(ValueError, match=r"budget\.unit must be 'person'"):
        dp_sgd(glm("squared", clip=1.0), X, y, budget=Budget(1.0, 1e-5), groups=groups)


def test_a_scikit_learn_fit_by_person():
    pytest.importorskip("sklearn")
    from dpkit.sklearn import PrivateGLMClassifier, PrivateGLMRegressor

    X, y = problem(2000)
    groups = np.arange(2000) // 2
    budget = Budget(4.0, 1e-6, unit="person")
    classifier = PrivateGLMClassifier(budget).fit(X, (y > 0).astype(int), groups=groups)
    assert classifier.score(X, (y > 0).astype(int)) > 0.85
    regressor = PrivateGLMRegressor(budget, target_range=(-2.0, 2.0)).fit(X, y, groups)
    assert regressor.score(X, y) > 0.5
    with pytest.raises(ValueError, match="groups must be given"):
        PrivateGLMClassifier(budget).fit(X, (y > 0).astype(int))


def test_rows_and_people_have_the_same_sums_but_for_the_mean():
    X, y = problem(30)
    theta = np.array([0.3, 0.1, -0.2])
    rows = GradientSums(OBJECTIVE, X, y)
    people = GroupSums(OBJECTIVE, X, y, Groups(np.arange(30)))
    np.testing.assert_allclose(rows.at(theta), people.at(theta), atol=1e-3)
    some = np.array([3, 7, 8])
    np.testing.assert_allclose(rows.at(theta, some), people.at(theta, some), atol=1e-4)
    assert not people.at(theta, np.array([], dtype=int)).any()
    half = slice(5, 20)
    np.testing.assert_allclose(
        rows.difference(theta, 0.5 * theta, 0.9, half, 0.1),
        people.difference(theta, 0.5 * theta, 0.9, half, 0.1),
        atol=1e-4,
    )


@pytest.mark.parametrize(
    ("name", "adjacency", "more"),
    [
        *((name, "zero_out", {}) for name in [*NAMES, "objective_perturbation"] if name != "noisy_sgd"),
        # where there is no telling how many people there are, an error would tell that there are none
        ("noisy_gradient_descent", "add_remove", {"public_rows": 10}),
        ("noisy_sgd", "add_remove", {"public_rows": 10}),
        ("objective_perturbation", "add_remove", {}),
    ],
)
def test_nobody_may_be_an_empty_list(name, adjacency, more):
    budget = Budget(1.0, 1e-5, adjacency=adjacency, unit="person")
    assert np.isfinite(fit(name, np.empty((0, 3)), [], groups=[], budget=budget, **more).x).all()


@tabled(
    ("name", "more"),
    [
        ("phased_sgd", {"row_norm": 1.0}),
        ("half_sample_frank_wolfe", {"constraint": LpBall(1, 3)}),
        ("variance_reduced_frank_wolfe", {"constraint": LpBall(1, 3)}),
        ("online_frank_wolfe", {}),
        ("follow_the_regularized_leader", {}),
    ],
)
def test_where_rows_are_units_people_are_refused_and_told_who_knows_them(name, more):
    with pytest.raises(ValueError, match=r"budget\.unit must not be 'person' where every row") as refused:
        fit(name, *problem(50), **more)
    assert "take an optimizer with groups=, such as noisy_gradient_descent" in str(refused.value)

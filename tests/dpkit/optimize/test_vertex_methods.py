"""Batch Frank–Wolfe methods in ℓ₁: what one row spends over all choices, what they compute, and audits."""

from __future__ import annotations

import importlib
import math

import numpy as np
import pytest
from any_label import for_any_label
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import ZCDP, Budget, Ledger, PureDP, audit, epsilon
from dpkit.geometry import LpBall, Simplex
from dpkit.optimize import glm, half_sample_frank_wolfe, variance_reduced_frank_wolfe
from dpkit.optimize.parts.vertex_choices import largest_rho

BUDGET = Budget(1.0, 1e-5)
METHODS = {"half": half_sample_frank_wolfe, "trees": variance_reduced_frank_wolfe}
each_method = pytest.mark.parametrize("name", METHODS)
numbers = st.floats(-1e300, 1e300)


def watched(name, patch, along=None):
    """Choices of a generator, not of the data (or to and fro on one axis); what they were given is written down."""
    seen = []
    rng = np.random.default_rng(0)
    module = importlib.import_module(METHODS[name].__module__)

    def choose(constraint, d, scale, source):
        scores = constraint.vertex_scores(d)
        seen.append((scores, scale))
        if along is not None:
            return constraint.linear_minimizer((-1.0) ** len(seen) * np.eye(len(d))[along])
        return constraint.vertex(int(rng.integers(len(scores))))

    patch.setattr(module, "choose", choose)
    return seen


def spent(name, first, second, y, labels, *, along=None, **more):
    """What the row in which two data sets differ spends, by zCDP, for the same choices; and ρ."""
    runs = []
    for X, targets in ((first, y), (second, labels)):
        with pytest.MonkeyPatch.context() as patch:
            runs.append(watched(name, patch, along))
            fit = METHODS[name](X=X, y=targets, **more)
    total = 0.0
    for (one, scale), (other, same) in zip(*runs, strict=True):
        assert scale == same
        total += float(np.abs(one - other).max()) ** 2 / (2 * scale**2)
    return total, fit.cost.rho


@settings(max_examples=50, deadline=None)
@given(
    name=st.sampled_from(sorted(METHODS)),
    n=st.integers(1, 24),
    place=st.integers(0, 23),
    row=st.tuples(numbers, numbers, numbers),
    other=st.tuples(numbers, numbers, numbers),
    loss=st.sampled_from(["squared", "logistic", "poisson", "linear"]),
    adjacency=st.sampled_from(["replace", "zero_out"]),
    more=st.sampled_from([{}, {"drift": 0.3}, {"drift": 9.0}, {"step_scale": 3.0}]),
    ball=st.sampled_from([LpBall(1, 2, 1.5), Simplex(2, 0.5)]),
)
def test_no_row_spends_more_than_the_cost(name, n, place, row, other, loss, adjacency, more, ball):
    rng = np.random.default_rng(n)
    X, y = rng.normal(size=(n, 2)), rng.normal(size=n)
    neighbour, labels = X.copy(), y.copy()
    X[place % n], y[place % n] = row[:2], row[2]
    neighbour[place % n], labels[place % n] = ((0.0, 0.0), 0.0) if adjacency == "zero_out" else (other[:2], other[2])
    budget = Budget(1.0, 1e-5, adjacency=adjacency)
    total, rho = spent(
        name, X, neighbour, y, labels, objective=for_any_label(loss, clip=0.3), constraint=ball, budget=budget, **more
    )
    assert total <= rho


@each_method
@pytest.mark.parametrize("n", [1, 40, 400])
def test_some_row_spends_nearly_all_of_it(name, n):
    # linear losses of opposite rows differ by twice what they are clipped to; the most expensive row is looked for
    found = []
    for place in range(n) if n <= 40 else [0, n // 3, (n + 1) // 2, (n + 1) // 2 + 1]:
        X, y = np.zeros((n, 2)), np.zeros(n)
        X[place], y[place] = (1.0, 0.0), 1.0
        # next to no drift, so that the first gradient is what counts
        known = {"objective": glm("linear", clip=0.3), "constraint": LpBall(1, 2), "budget": BUDGET, "drift": 1e-9}
        found.append(spent(name, X, X, y, -y, **known))
    largest, rho = max(found)
    assert 0.9 * rho <= largest <= rho


@each_method
def test_some_row_of_a_difference_spends_nearly_all_of_it(name):
    # Iterates move along the first axis. A long row (1, ±1) then has a difference that is clipped in both entries: the
    # first has the sign of the step for both rows, the second is opposite.
    found, n = [], 100
    for place in range(n):
        X, y = np.zeros((n, 2)), np.zeros(n)
        X[place] = 1e6
        known = {"objective": glm("squared", clip=0.3), "constraint": LpBall(1, 2), "budget": BUDGET, "drift": 2.0}
        found.append(spent(name, X, X * [1.0, -1.0], y, y, along=0, start=[0.5, 0.0], **known))
    largest, rho = max(found)
    assert 0.9 * rho <= largest <= rho


def without_noise(name, monkeypatch, **more):
    """A fit whose choices are the minimizers, its iterates, and what it was made of."""
    rng = np.random.default_rng(0)
    X, y, objective, ball = rng.normal(size=(60, 3)), rng.normal(size=60), glm("squared", clip=1e6), LpBall(1, 3, 2.0)
    module, seen = importlib.import_module(METHODS[name].__module__), []
    monkeypatch.setattr(module, "choose", lambda constraint, d, scale, source: constraint.linear_minimizer(d))
    fit = METHODS[name](objective, X, y, constraint=ball, budget=BUDGET, callback=seen.append, **more)
    return fit, seen, X, y, objective, ball


def test_half_sample_without_noise_is_the_recursion(monkeypatch):
    fit, seen, X, y, objective, ball = without_noise("half", monkeypatch, batch=5, drift=2.0)
    eta = 0.5 * math.log(7) / 6
    theta = before = np.zeros(3)
    d = objective.gradient_sum(theta, X[:30], y[:30]) / 30
    for t in range(7):
        if t:
            part = slice(25 + 5 * t, 30 + 5 * t)
            now, old = (objective.gradient_sum(at, X[part], y[part]) / 5 for at in (theta, before))
            d = (1 - eta) * (d - old) + now
        before, theta = theta, theta + eta * (ball.linear_minimizer(d) - theta)
        assert np.allclose(seen[t], theta, atol=1e-12)
    assert (fit.nit, fit.nfev, fit.clipped) == (7, 30 + 60, 0)


def test_trees_without_noise_walk_as_the_module_says(monkeypatch):
    fit, seen, X, y, objective, ball = without_noise("trees", monkeypatch, phases=2, drift=9.0)
    # by hand: tree 1 has the nodes ∅, 0, 1, and tree 2 has ∅, 0, 00, 01, 1, 10, 11
    rows = iter(range(60))

    def gradient(theta, part):
        return objective.gradient_sum(theta, X[part], y[part]) / len(part)

    def take(count):
        return [next(rows) for _ in range(count)]

    b = max(b for b in range(60) if b + b // 2 + b + b // 2 + 2 * (b // 4) <= 60)
    path = [np.zeros(3)]

    def leaf(d, t, i):
        path.append(path[-1] + min(1.0, 2 / (2 ** (t - 1) + i + 1)) * (ball.linear_minimizer(d) - path[-1]))

    at = path[-1]
    root = gradient(at, take(b))
    leaf(root, 1, 0)
    part = take(b // 2)
    leaf(root + gradient(path[-1], part) - gradient(at, part), 1, 1)
    at = path[-1]
    root = gradient(at, take(b))
    leaf(root, 2, 0)
    part = take(b // 4)
    leaf(root + gradient(path[-1], part) - gradient(at, part), 2, 1)
    part = take(b // 2)
    here = path[-1]
    right = root + gradient(here, part) - gradient(at, part)
    leaf(right, 2, 2)
    part = take(b // 4)
    leaf(right + gradient(path[-1], part) - gradient(here, part), 2, 3)
    assert np.allclose(seen, path[1:], atol=1e-9)
    assert (fit.nit, fit.nfev) == (6, 2 * b + 4 * (b // 2) + 4 * (b // 4))


@each_method
def test_cost_and_refusals(name):
    ledger = Ledger(BUDGET)
    X, y = np.ones((9, 2)), np.ones(9)
    common = {"budget": BUDGET, "ledger": ledger}
    fit = METHODS[name](glm("squared", clip=1.0), X, y, constraint=LpBall(1, 2), **common)
    assert fit.cost == ledger.total == ZCDP(largest_rho(BUDGET), adjacency="replace")
    assert epsilon(fit.cost, 1e-5) == pytest.approx(1.0)
    for change, error, message in (
        ({"constraint": LpBall(2, 2)}, ValueError, "p = 1|p=1|vertices"),
        ({"constraint": None}, TypeError, "constraint must have vertices"),
        ({"drift": 0.0}, ValueError, "drift must be positive"),
        ({"budget": Budget(1.0, 1e-5, adjacency="add_remove")}, ValueError, r"budget\.adjacency must be one of"),
    ):
        with pytest.raises(error, match=message):
            METHODS[name](glm("squared", clip=1.0), X, y, **({"constraint": LpBall(1, 2)} | common | change))
    if name == "trees":
        with pytest.raises(ValueError, match=r"phases must leave a row for every leaf of the last tree, got phases=4"):
            METHODS[name](glm("squared", clip=1.0), X, y, constraint=LpBall(1, 2), phases=4, **common)
    assert len(ledger.rows()) == 1


@each_method
def test_hundreds_of_features_cost_their_logarithm(name):
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(4000, 300))
    y = 0.8 * X[:, 7]
    known = {"constraint": LpBall(1, 300), "budget": Budget(8.0, 1e-6), "rng": np.random.default_rng(0)}
    fit = METHODS[name](glm("squared", clip=0.5), X, y, **known)
    assert np.mean((X @ fit.x - y) ** 2) < 0.5 * np.mean(y**2)


@each_method
@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_an_audit_finds_the_range_of_a_choice_and_catches_half_the_noise(name, factor, monkeypatch):
    # One row, one choice among eight, whose privacy loss has range 2Δ/τ = √(8ρ). The rarest vertex of one side is
    # likelier on the other: by 1.7 of the 2 that are claimed, and by 3.3 with half the noise.
    budget = Budget(4.78, 1e-5)
    module = importlib.import_module(METHODS[name].__module__)
    choose, source, given = module.choose, np.random.default_rng(3), []
    monkeypatch.setattr(module, "choose", lambda *arguments: given.append(arguments) or choose(*arguments))
    for sign in (1.0, -1.0):
        row = sign * np.array([[1.0] + [-1.0] * 7])
        METHODS[name](glm("linear", clip=1.0), row, [1.0], constraint=Simplex(8), budget=budget)
    assert len(given) == 2

    def again(arguments, trials):
        constraint, d, scale, _ = arguments
        return np.array([choose(constraint, d, factor * scale, source)[0] for _ in range(trials)])

    claim = PureDP(math.sqrt(8 * largest_rho(budget)))
    assert claim.epsilon == pytest.approx(2.0, rel=0.02)
    bound = audit.lower_bound(
        again, *given, trials=5000, delta=0.0, confidence=1 - 1e-9, score=lambda s: s, batched=True
    )
    if factor == 1.0:
        bound.check(claim)
        assert bound.epsilon > 1.0
    else:
        assert bound.contradicts(claim)

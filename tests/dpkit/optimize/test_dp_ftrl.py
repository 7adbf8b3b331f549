"""DP-FTRL: against the plain recursion, its noise in closed form, the exact likelihood ratio, and what may go wrong."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
from factors import encoder, factorization_of, triangle
from learners import gradients_by, gradients_of, loud, position_of, quiet, sums_of
from tabled import tabled

from accounting import Budget, BudgetExceeded, Gaussian, Ledger, calibrate, gdp
from dpkit.continual import inverse_root
from dpkit.continual.banded import root_mean_square_error
from dpkit.geometry import LpBall
from dpkit.optimize import DPFTRL, dp_ftrl, glm
from dpkit.states import RunStopped

BUDGET = Budget(2.0, 1e-6)
LOGISTIC = glm("logistic", clip=0.5)


def rows(n=60, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) / math.sqrt(d)
    return X, (X[:, 0] > 0).astype(float)


def made(n=60, d=4, **more):
    X, y = rows(n, d)
    known = {"epochs": 3, "batch": 13, "learning_rate": 0.7, "rng": np.random.default_rng(1)}
    return DPFTRL(LOGISTIC, X, y, budget=BUDGET, **{**known, **more})


def blank(d, seed, **more):
    """A run on eight rows of zeros."""
    rng = np.random.default_rng(seed)
    return DPFTRL(LOGISTIC, np.zeros((8, d)), np.zeros(8), budget=BUDGET, rng=rng, **more)


# -------------------------------------------------------------------------------------------------- what it computes


@tabled("kind", ["banded", "buffered", "independent"])
@tabled("iterate", ["last", "tail", "average"])
def test_without_noise_it_is_sgd_in_a_fixed_order(kind, iterate):
    X, y = rows(60)
    run = quiet(made(factorization=kind, momentum=0.6, cooldown=0.5, iterate=iterate, order_seed=3))
    order = np.array_split(np.random.default_rng(3).permutation(60), 5)
    theta, velocity, seen = np.zeros(4), np.zeros(4), []
    for t in range(15):
        part = order[t % 5]
        gradient = LOGISTIC.gradient_sum(theta, X[part], y[part]) / 12
        velocity = 0.6 * velocity + gradient
        theta = theta - 0.7 * min(1.0, (15 - t) / 7.5) * velocity
        seen.append(theta)
    expected = {"last": seen[-1], "tail": np.mean(seen[7:], axis=0), "average": np.mean(seen, axis=0)}
    for _ in range(3):
        found = run.advance()
    np.testing.assert_allclose(found, expected[iterate], atol=1e-3)


def test_projection_is_lazy():
    run = quiet(made(constraint=LpBall(2, 4, 0.1), learning_rate=5.0, factorization="independent"))
    while run.steps < run.horizon:
        assert np.linalg.norm(run.advance(1)) <= 0.1 + 1e-12
    assert np.linalg.norm(position_of(run)) > 1.0


@pytest.mark.parametrize(("momentum", "cooldown"), [(0.0, 0.0), (0.8, 0.6)])
@pytest.mark.parametrize("kind", ["banded", "independent"])
def test_noise_in_the_last_iterate_is_what_the_matrices_say(kind, momentum, cooldown):
    d, T = 20_000, 12
    known = {"epochs": 3, "batch": 2, "learning_rate": 1.0, "momentum": momentum, "cooldown": cooldown}
    run = blank(d, 2, factorization=kind, **known)
    while run.steps < T:
        theta = run.advance()
    factorization = factorization_of(sums_of(run))
    rates = np.minimum(1.0, (T - np.arange(T)) / (cooldown * T)) if cooldown else np.ones(T)
    steps = triangle(momentum ** np.arange(T), T) * rates[:, None]
    inverse = np.linalg.inv(encoder(factorization, T))
    deviation = np.linalg.norm((np.tril(np.ones((T, T))) @ steps @ inverse)[-1])
    deviation *= calibrate(Gaussian, BUDGET) * 2 * 0.5 * factorization.joint_norm(3, 4) / 2
    # 20,000 squares: a standard deviation is right within 0.5 %, and 6.5 of these have a false alarm of 1e-10
    assert theta.std() == pytest.approx(deviation, rel=0.034)


def test_factorizations_are_made_for_the_workload():
    plain, moving = (factorization_of(sums_of(made(n=400, batch=10, epochs=4, momentum=m))) for m in (0.0, 0.9))
    known = {"participations": 4, "min_separation": 40, "momentum": 0.9}
    assert root_mean_square_error(moving, **known) < 0.98 * root_mean_square_error(plain, **known)


@pytest.mark.parametrize("kind", ["banded", "buffered", "tree"])
def test_correlated_noise_is_smaller_in_the_sums(kind):
    known = {"n": 400, "batch": 4, "epochs": 4}
    alone, found = (sums_of(made(factorization=one, **known)).noise_std(400) for one in ("independent", kind))
    assert found < 0.5 * alone


# ------------------------------------------------------------------------------------------------------------- privacy


class Shifted:
    """Gradients that follow θ, coordinate by coordinate; those of batches with unit 0 are one sensitivity larger."""

    def __init__(self, run, present):
        sums = gradients_of(run)
        self.units, self.clip, self.clipped, self.nfev = sums.units, 1.0, 0, 0
        self.size = sums.sensitivity("replace") if present else 0.0

    def at(self, theta, part):
        return np.tanh(3.0 * theta) + self.size * (0 in part)


WIDE = 20_000


def separation(kind, *, factor=1.0, extra=0):
    """How far the log-likelihood ratios of neighbouring runs are apart, in standard deviations.

    Every coordinate is an experiment: gradients follow θ, and unit 0 adds one sensitivity in each epoch. All that is
    released is a function of Cx + noise with x the gradients, so that the ratio is linear in ⟨Σ_j Ce_j, C(x̂ − x̂(θ))⟩,
    x̂ what the iterates imply and x̂(θ) what they follow without unit 0.
    """
    scores, T = [], 12
    for seed, present in ((1, False), (2, True)):
        known = {"epochs": 3, "batch": 2, "learning_rate": 0.5, "momentum": 0.5, "order_seed": None}
        run = blank(WIDE, seed, factorization=kind, **known)
        factorization = factorization_of(sums_of(run))
        # ``extra``: priced for fewer participations than there are
        loud(run, factor * factorization.joint_norm(3 - extra, 4) / factorization.joint_norm(3, 4))
        gradients_by(run, Shifted(run, present))
        thetas = [np.zeros(WIDE)]
        while run.steps < T:
            thetas.append(run.advance(1))
        moved = -np.diff(thetas, axis=0) / 0.5 * 2  # rows of a batch
        implied = moved - 0.5 * np.vstack([np.zeros(WIDE), moved[:-1]])
        C = encoder(factorization, T)
        direction = C[:, [0, 4, 8]].sum(axis=1)
        scores.append((direction / np.linalg.norm(direction)) @ C @ (implied - np.tanh(3.0 * np.array(thetas[:-1]))))
    spread = math.sqrt((scores[0].var() + scores[1].var()) / 2)
    return (scores[1].mean() - scores[0].mean()) / spread


CLAIM = gdp(Gaussian(calibrate(Gaussian, BUDGET)))
# the separation's standard error is √((2 + μ²/4)/n) ≤ 0.0105 for μ ≤ 1: 6.5 of them, false alarm below 1e-10 each
TOLERANCE = 6.5 * 0.0105


@pytest.mark.parametrize("kind", ["banded", "buffered", "independent"])
def test_adaptive_neighbours_are_no_farther_apart_than_the_cost(kind):
    found = separation(kind)
    assert found <= CLAIM + TOLERANCE
    assert found >= (0.9 if kind == "buffered" else 0.98) * CLAIM - TOLERANCE


@pytest.mark.parametrize("kind", ["banded", "independent"])
def test_half_of_the_noise_is_caught(kind):
    assert separation(kind, factor=0.5) > CLAIM + TOLERANCE


@pytest.mark.parametrize("kind", ["banded", "independent"])
def test_one_participation_too_many_is_caught(kind):
    assert separation(kind, extra=1) > CLAIM + TOLERANCE


def test_the_sensitivity_is_that_of_the_relation():
    replaced = sums_of(made()).sensitivity
    X, y = rows()
    blanked = DPFTRL(LOGISTIC, X, y, budget=Budget(2.0, 1e-6, adjacency="zero_out"), epochs=3, batch=13)
    assert sums_of(blanked).sensitivity == pytest.approx(replaced / 2, rel=1e-3)
    assert blanked.cost == Gaussian(blanked.noise_multiplier, adjacency="zero_out")
    with pytest.raises(ValueError, match="sampling must be 'cyclic_balls_in_bins' or"):
        DPFTRL(LOGISTIC, X, y, budget=Budget(2.0, 1e-6, adjacency="add_remove"))


@pytest.mark.parametrize("kind", ["banded", "buffered", "tree", "independent"])
def test_the_stream_costs_what_the_run_says(kind):
    run = made(factorization=kind)
    stream = sums_of(run)
    assert (stream.participations, stream.min_separation, stream.horizon) == (3, 5, 15)
    assert gdp(stream.cost) <= gdp(run.cost) * (1 + 1e-12)
    assert run.cost == Gaussian(calibrate(Gaussian, BUDGET), adjacency="replace")


def test_the_ledger_is_charged_once_and_may_refuse():
    ledger = Ledger(BUDGET)
    X, y = rows()
    fit = dp_ftrl(LOGISTIC, X, y, budget=BUDGET, epochs=2, batch=20, ledger=ledger)
    assert ledger.total == fit.cost
    assert fit.epsilon == pytest.approx(2.0)
    with pytest.raises(BudgetExceeded):
        dp_ftrl(LOGISTIC, X, y, budget=BUDGET, epochs=2, batch=20, ledger=ledger)
    assert len(list(ledger.rows())) == 1


def test_people():
    X, y = rows(60)
    budget, groups = Budget(2.0, 1e-6, unit="person"), np.arange(60) // 4
    fit = dp_ftrl(LOGISTIC, X, y, budget=budget, groups=groups, epochs=2, batch=5)
    assert (fit.nit, fit.nfev) == (6, 30)
    with pytest.raises(ValueError, match="groups"):
        dp_ftrl(LOGISTIC, X, y, budget=budget)


# -------------------------------------------------------------------------------------------------------------- states


@pytest.mark.parametrize("kind", ["banded", "buffered", "tree", "independent"])
def test_a_state_goes_on_bit_for_bit(kind):
    X, y = rows()
    more = {"factorization": kind, "momentum": 0.5, "cooldown": 0.3, "iterate": "tail"}
    run = made(**more)
    run.advance(4)
    again = DPFTRL.restore(run.state(), LOGISTIC, X, y)
    assert again.steps == 4
    for _ in range(3):
        np.testing.assert_array_equal(run.advance(4), again.advance(4))
    with pytest.raises(ValueError, match="one more"):
        again.advance()


def test_a_factorization_of_ones_own():
    X, y = rows()
    own = inverse_root(15, bands=3)
    run = made(factorization=own)
    run.advance()
    state = run.state()
    with pytest.raises(ValueError, match="factorization"):
        DPFTRL.restore(state, LOGISTIC, X, y)
    again = DPFTRL.restore(state, LOGISTIC, X, y, factorization=inverse_root(15, bands=3))
    np.testing.assert_array_equal(run.advance(), again.advance())
    with pytest.raises(ValueError, match="horizon"):
        made(factorization=inverse_root(14, bands=3))


def test_of_a_private_run_only_the_newest_state_goes_on():
    X, y = rows()
    ledger = Ledger(BUDGET)
    run = made(rng=None, ledger=ledger)
    run.advance()
    old = run.state()
    run.advance()
    with pytest.raises(ValueError, match="newest"):
        DPFTRL.restore(old, LOGISTIC, X, y, ledger=ledger)
    state = run.state()
    again = DPFTRL.restore(state, LOGISTIC, X, y, ledger=ledger)
    with pytest.raises(ValueError, match="newest"):
        DPFTRL.restore(state, LOGISTIC, X, y, ledger=ledger)
    with pytest.raises(RunStopped):
        run.advance()
    again.advance()
    assert again.steps == again.horizon
    with pytest.raises(ValueError, match="ledger"):
        DPFTRL.restore(state, LOGISTIC, X, y)


def interrupting(run, at):
    """Raise KeyboardInterrupt within the step number ``at`` from now."""
    sums, calls = gradients_of(run), []
    inner = sums.at

    def at_(theta, part):
        calls.append(1)
        if len(calls) == at:
            raise KeyboardInterrupt
        return inner(theta, part)

    sums.at = at_


def test_an_interrupted_run_is_closed_and_its_checkpoint_goes_on(tmp_path):
    X, y = rows()
    ledger = Ledger.create(tmp_path / "ledger", BUDGET)
    path = tmp_path / "run"
    run = made(rng=None, ledger=ledger, checkpoint=path)
    released = run.advance()
    interrupting(run, 3)
    with pytest.raises(KeyboardInterrupt):
        run.advance()
    with pytest.raises(RunStopped):
        run.advance()
    np.testing.assert_array_equal(run.theta, released)
    again = DPFTRL.load(path, LOGISTIC, X, y, ledger=ledger)
    assert again.steps == 5
    np.testing.assert_array_equal(again.theta, released)
    again.advance()
    again.advance()
    assert again.steps == 15
    assert len([row for row in ledger.rows() if row.release == again.cost]) == 1


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("learner", "OnlineFrankWolfe"),
        ("problem", {"units": 61, "dimension": 4, "clip": 0.5}),
        ("parameters", {"epochs": 3}),
        ("sums", {}),
        ("learned", {}),
        ("factorization", "given"),
        ("coefficients", np.array([1.0, -0.5])),
        ("run", None),
    ],
)
def test_states_that_are_no_states_are_refused(entry, value):
    X, y = rows()
    run = made()
    run.advance(2)
    state = run.state()
    with pytest.raises((ValueError, TypeError)):
        DPFTRL.restore({**state, entry: value}, LOGISTIC, X, y)
    DPFTRL.restore(state, LOGISTIC, X, y)


def test_coefficients_that_would_need_more_noise_are_refused():
    """The run and its stream agree on them; the step of the stream's inputs is what speaks against them."""
    X, y = rows()
    run = made()
    run.advance(2)
    state = run.state()
    moved = state["coefficients"] * np.array([1.0, *[1.001] * (len(state["coefficients"]) - 1)])
    sums = state["sums"] | {"coefficients": moved}
    with pytest.raises(ValueError, match="gamma must be"):
        DPFTRL.restore(state | {"coefficients": moved, "sums": sums}, LOGISTIC, X, y)


def test_other_rows_are_refused():
    run = made()
    with pytest.raises(ValueError, match="model and X"):
        DPFTRL.restore(run.state(), LOGISTIC, *rows(61))
    with pytest.raises(ValueError, match="model and X"):
        DPFTRL.restore(run.state(), glm("logistic", clip=0.6), *rows(60))


@tabled(
    "bad",
    [
        {"epochs": 0},
        {"batch": 61},
        {"learning_rate": 0.0},
        {"momentum": 1.0},
        {"cooldown": 1.5},
        {"iterate": "best"},
        {"factorization": "dense"},
        {"order_seed": -1},
        {"step_scale": -1.0},
        {"rows_at_once": 0},
        {"constraint": LpBall(2, 3, 1.0)},
        {"loss": abs},
    ],
)
def test_bad_parameters_charge_nothing(bad):
    ledger = Ledger(BUDGET)
    with pytest.raises((ValueError, TypeError), match=next(iter(bad))):
        made(ledger=ledger, **bad)
    assert not list(ledger.rows())


def test_it_cannot_be_copied():
    with pytest.raises(TypeError, match="copied"):
        copy.deepcopy(made())


# --------------------------------------------------------------------------------------------------------------- torch


def test_a_module_is_trained_as_the_objective_is():
    torch = pytest.importorskip("torch")
    X, y = rows(40)
    layer = torch.nn.Linear(4, 1, bias=False, dtype=torch.float64)
    torch.nn.init.zeros_(layer.weight)
    known = {"budget": BUDGET, "epochs": 2, "batch": 10, "learning_rate": 0.7, "momentum": 0.3}

    def loss(outputs, targets):
        return torch.nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], targets)

    run = DPFTRL(layer, X, y, loss=loss, clip=0.5, rows_at_once=3, **known)
    other = DPFTRL(LOGISTIC, X, y, **known)
    for one in (quiet(run), quiet(other)):
        one.advance()
    np.testing.assert_allclose(run.advance(), other.advance(), atol=1e-4)
    fit = run.result()
    np.testing.assert_array_equal(fit.module.weight.detach().numpy()[0], fit.x)
    assert not layer.weight.any()
    run = DPFTRL(layer, X, y, loss=loss, clip=0.5, **known)
    run.advance()
    again = DPFTRL.restore(run.state(), layer, X, y, loss=loss, unattended=True)
    np.testing.assert_array_equal(again.theta, run.theta)


def test_people_of_a_module():
    torch = pytest.importorskip("torch")
    X, y = rows(40)
    layer = torch.nn.Linear(4, 2)
    known = {"budget": Budget(2.0, 1e-6, unit="person"), "groups": np.arange(40) // 4, "epochs": 2, "batch": 5}
    fit = dp_ftrl(layer, X, y.astype(int), loss=torch.nn.functional.cross_entropy, clip=1.0, **known)
    assert (fit.nit, fit.nfev, fit.x.shape) == (4, 20, (10,))


# ------------------------------------------------------------------------------------------------------ the comparison


@pytest.mark.thorough
def test_the_comparison_is_run_written_and_gone_on_with(monkeypatch, tmp_path):
    pytest.importorskip("sklearn")
    from dpkit.reproduce import dp_ftrl as comparison

    monkeypatch.setattr(comparison, "RATES", (4.0,))
    monkeypatch.setattr(comparison, "TUNING", 1)
    known = {"tables": ("cancer",), "relations": ("presence",), "epsilons": (8.0,), "seeds": 2}
    known["algorithms"] = ("DP-FTRL", "DP-SGD, fixed order")
    seen = []
    rows_ = comparison.run(**known, progress=lambda part, total: seen.append((len(part), total)))
    assert seen == [(1, 2), (2, 2)]
    correlated, alone = rows_
    assert correlated.loss < alone.loss < 2.0
    assert all(row.accuracy > 0.8 for row in (correlated, alone))
    again = comparison.from_csv(comparison.to_csv(rows_))
    assert again == rows_
    assert comparison.run(**known, done=again) == rows_
    assert "| cancer | presence | 8 | **" in comparison.to_markdown(rows_)
    comparison.picture(rows_, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000
    with pytest.raises(ValueError, match="seeds"):
        comparison.run(**{**known, "seeds": 3}, done=again)

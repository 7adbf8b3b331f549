"""Banded noise with cyclic batches: who joins which steps, prices against exact mixtures, an audit of runs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from factors import triangle
from hypothesis import given
from hypothesis import strategies as st
from learners import gradients_by, gradients_of, loud, quiet, sums_of
from tabled import tabled

from accounting import Budget, BudgetExceeded, Gaussian, Ledger, PoissonSubsampled, RandomAllocated, delta, epsilon
from accounting.releases import Composed
from dpkit.continual import Banded, inverse_root, optimal
from dpkit.continual.banded import root_mean_square_error
from dpkit.optimize import DPFTRL, dp_ftrl, glm
from dpkit.optimize.parts.cyclic_batches import CyclicBatches, Schedule, chosen_bands

KINDS = ("cyclic_poisson", "cyclic_balls_in_bins")
BUDGET = Budget(2.0, 1e-6, adjacency="add_remove")
LOGISTIC = glm("logistic", clip=0.5)
schedules = st.integers(1, 12).flatmap(
    lambda K: st.builds(Schedule, st.sampled_from(KINDS), st.integers(1, K), st.integers(1, 4), st.just(K))
)


def rows(n=60, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) / math.sqrt(d)
    return X, (X[:, 0] > 0).astype(float)


def made(kind="cyclic_poisson", n=60, **more):
    X, y = rows(n)
    known = {"budget": BUDGET, "epochs": 3, "batch": 5, "learning_rate": 0.7, "bands": 3, "public_rows": 60}
    return DPFTRL(LOGISTIC, X, y, sampling=kind, **{**known, "rng": np.random.default_rng(1), **more})


# ------------------------------------------------------------------------------------------------------------- batches


@pytest.mark.thorough
@given(schedules, st.integers(0, 2**32 - 1))
def test_a_unit_comes_back_in_steps_of_its_subset_only(schedule, seed):
    source = np.random.default_rng(seed)
    batches = CyclicBatches.drawn(schedule, 20, source)
    joined = np.zeros((20, schedule.horizon), dtype=int)
    for t in range(schedule.horizon):
        units = batches.at(t, source)
        assert (batches.subsets[units] == t % schedule.bands).all()
        joined[units, t] += 1
    assert joined.max() <= 1
    if schedule.sampling == "cyclic_balls_in_bins":  # once in each run, of which the price knows no shorter ones
        assert (joined.sum(axis=1) == schedule.epochs).all()
        for subset in range(schedule.bands):
            runs = [schedule.run_of(t) for t in range(subset, schedule.horizon, schedule.bands)]
            assert [own for own, (first, length) in enumerate(runs) if not first <= own < first + length] == []
            for first, length in set(runs):
                assert runs.count((first, length)) == length
                inside = joined[batches.subsets == subset, subset :: schedule.bands][:, first : first + length]
                assert (inside.sum(axis=1) == 1).all()
            lengths = sorted(length for _, length in set(runs))
            priced = priced_runs(schedule)
            assert len(lengths) == len(priced) == schedule.epochs
            assert all(found >= least for found, least in zip(lengths, priced, strict=True))


def priced_runs(schedule):
    """The lengths of the runs that the price knows."""
    cost = schedule.price(1.0, "add_remove")
    parts = cost.parts if isinstance(cost, Composed) else ((cost, 1),)
    return sorted(part.steps for part, count in parts for _ in range(count))


@pytest.mark.parametrize("kind", KINDS)
def test_batches_have_the_stated_law(kind):
    n, source = 30_000, np.random.default_rng(5)
    schedule = Schedule(kind, bands=3, epochs=2, batches=12)
    batches = CyclicBatches.drawn(schedule, n, source)
    joined = np.zeros((n, schedule.horizon), dtype=bool)
    for t in range(schedule.horizon):
        joined[batches.at(t, source), t] = True
    # of n units each third has 10,000 ± 82, and of a subset a quarter joins a step, ± 44: seven of these, each 3e-12
    sizes = np.bincount(batches.subsets)
    assert np.abs(sizes - n / 3).max() < 7 * math.sqrt(n * 2 / 9)
    for subset, size in enumerate(sizes):
        own = joined[batches.subsets == subset, subset::3]
        assert np.abs(own.sum(axis=0) - size / 4).max() < 7 * math.sqrt(size * 3 / 16)
        together = (own[:, 0] & own[:, 1]).mean()
        if kind == "cyclic_poisson":
            assert abs(together - 1 / 16) < 7 * math.sqrt(15 / 256 / size)
        else:
            assert together == 0.0


# -------------------------------------------------------------------------------------------------------------- prices


def coins(schedule):
    """What a unit of the first subset may join, of its own steps, and with which probability."""
    own = -(-schedule.horizon // schedule.bands)
    if schedule.sampling == "cyclic_poisson":
        q = schedule.rate
        return [(b, q ** sum(b) * (1 - q) ** (own - sum(b))) for b in itertools.product((0, 1), repeat=own)]
    runs = sorted({schedule.run_of(t) for t in range(0, schedule.horizon, schedule.bands)})
    found = []
    for joined in itertools.product(*(range(first, first + length) for first, length in runs)):
        found.append((tuple(int(i in joined) for i in range(own)), math.prod(1 / length for _, length in runs)))
    return found


def exact_delta(C, schedule, z, eps):
    """δ of the whole mixture in T dimensions, either way, by the trapezoidal rule in the span of its means."""
    steps = range(0, schedule.horizon, schedule.bands)
    terms = coins(schedule)
    means = np.array([sum(C[:, s] * b for s, b in zip(steps, joined, strict=True)) for joined, _ in terms])
    basis = np.linalg.svd(means)[2][: len(steps)]
    centres = means @ basis.T / z
    size = {1: 4001, 2: 401, 3: 81}[len(steps)]
    axis = np.linspace(-7.0, 7.0, size)
    grid = np.meshgrid(*[axis + centres[:, i].max() / 2 for i in range(len(steps))], indexing="ij")
    below = np.exp(-sum(x**2 for x in grid) / 2) / (2 * math.pi) ** (len(steps) / 2)
    above = sum(
        chance * np.exp(-sum((x - m) ** 2 for x, m in zip(grid, mean, strict=True)) / 2)
        for mean, (_, chance) in zip(centres, terms, strict=True)
    ) / (2 * math.pi) ** (len(steps) / 2)
    cell = (axis[1] - axis[0]) ** len(steps)
    tilt = math.exp(eps)
    return max(np.maximum(above - tilt * below, 0).sum(), np.maximum(below - tilt * above, 0).sum()) * cell


def normal_banded(bands, T):
    """C with this many bands, and columns of norm 1 in the middle."""
    first = 0.6 ** np.arange(bands)
    return triangle(first / np.linalg.norm(first), T)


CASES = [
    (Schedule("cyclic_poisson", 2, 1, 4), 1.0),
    (Schedule("cyclic_poisson", 2, 2, 3), 0.8),
    (Schedule("cyclic_balls_in_bins", 2, 1, 4), 0.7),
    (Schedule("cyclic_balls_in_bins", 2, 1, 6), 0.9),
    (Schedule("cyclic_balls_in_bins", 2, 2, 3), 1.0),
]


@pytest.mark.thorough
@tabled(("schedule", "z"), CASES)
@tabled("eps", [0.2, 1.0])
def test_the_price_is_the_exact_mixture(schedule, z, eps):
    T, b = schedule.horizon, schedule.bands
    exact = exact_delta(np.pad(normal_banded(b, T + b), 0)[:, :T], schedule, z, eps)
    assert exact == pytest.approx(delta(schedule.price(z, "add_remove"), eps), rel=2e-3)
    # and columns that are cut off at the end cost no more
    assert exact_delta(normal_banded(b, T), schedule, z, eps) <= delta(schedule.price(z, "add_remove"), eps) * 1.002


@tabled(("schedule", "z"), CASES)
def test_a_band_too_many_is_no_longer_covered(schedule, z):
    T = schedule.horizon
    wide = normal_banded(schedule.bands + 2, T + schedule.bands + 1)[:, :T]
    assert exact_delta(wide, schedule, z, 1.0) > 1.1 * delta(schedule.price(z, "add_remove"), 1.0)


@tabled("kind", KINDS)
def test_one_band_is_dp_sgd_and_a_whole_epoch_of_bands_is_a_fixed_order(kind):
    one = Gaussian(1.3, adjacency="add_remove")
    alone = Schedule(kind, bands=1, epochs=3, batches=20).price(1.3, "add_remove")
    expected = {
        "cyclic_poisson": 60 * PoissonSubsampled(one, 1 / 20),
        "cyclic_balls_in_bins": 3 * RandomAllocated(one, 20),
    }
    assert alone == expected[kind]
    whole = Schedule(kind, bands=20, epochs=3, batches=20)
    assert epsilon(whole.price(1.3, "add_remove"), 1e-6) == pytest.approx(epsilon(3 * Gaussian(1.3), 1e-6), rel=1e-6)
    swap = epsilon(whole.price(1.3, "replace"), 1e-6)
    assert swap == pytest.approx(epsilon(3 * Gaussian(0.65), 1e-6), rel=1e-6)


def test_longer_runs_cost_less():
    one = Gaussian(1.0, adjacency="add_remove")
    three, two = RandomAllocated(one, 3), RandomAllocated(one, 2)
    assert Schedule("cyclic_balls_in_bins", bands=3, epochs=2, batches=10).price(1.0, "add_remove") == 2 * three
    uneven = Schedule("cyclic_balls_in_bins", bands=4, epochs=2, batches=10).price(1.0, "add_remove")
    assert uneven == three + two
    assert epsilon(2 * three, 1e-3) < epsilon(uneven, 1e-3) < epsilon(2 * two, 1e-3)


# --------------------------------------------------------------------------------------------------------------- runs

WIDE = 20_000


class OneEach:
    """Unit i adds one sensitivity to coordinate i, if ``present``; all gradients follow θ, coordinate by coordinate."""

    def __init__(self, present):
        self.units, self.clip, self.clipped, self.nfev = WIDE, 0.5, 0, 0
        self.present = present

    def at(self, theta, part):
        found = np.tanh(3.0 * theta)
        if self.present:
            found[part] += self.clip
        return found


def advantage(kind, *, factor=1.0, rate=1.0):
    """P(L > 0) − Q(L > 0) of the exact likelihood ratio, with each coordinate an experiment of its own, and δ(0)."""
    found, b = [], 2
    for seed, present in ((1, False), (2, True)):
        source = np.random.default_rng(seed)
        run = DPFTRL(
            LOGISTIC, np.zeros((8, WIDE)), np.zeros(8), budget=Budget(8.0, 1e-2, adjacency="add_remove"), epochs=3,
            batch=2, learning_rate=0.5, sampling=kind, bands=b, public_rows=8, rng=source,
        )  # fmt: skip
        schedule = run._cycle.schedule
        C = triangle(sums_of(run)._factorization.coefficients, schedule.horizon)
        sigma = run.noise_multiplier * 0.5 * np.linalg.norm(C, axis=0).max()
        loud(run, factor)
        gradients_by(run, OneEach(present))
        run._cycle = CyclicBatches.drawn(schedule, WIDE, source)
        if rate != 1.0:
            drawn, run._cycle.at = run._cycle.at, lambda t, source: drawn(t, Eager(source, rate))  # noqa: B023
        thetas = [np.zeros(WIDE)]
        while run.steps < run.horizon:
            thetas.append(run.advance(1))
        sums = -np.diff(thetas, axis=0) / 0.5 * 2  # rows of a batch
        w = C @ (sums - np.tanh(3.0 * np.array(thetas[:-1])))
        scores = np.empty(WIDE)
        for subset in range(b):
            steps = range(subset, schedule.horizon, b)
            columns = 0.5 * C[:, list(steps)] / sigma
            logs = columns.T @ w / sigma - (columns**2).sum(axis=0)[:, None] / 2
            mine = run._cycle.subsets == subset
            own = np.exp(logs[:, mine])
            if kind == "cyclic_poisson":
                scores[mine] = np.log(1 + schedule.rate * (own - 1)).sum(axis=0)
            else:
                runs = sorted({schedule.run_of(t) for t in steps})
                scores[mine] = sum(np.log(own[first : first + length].mean(axis=0)) for first, length in runs)
        found.append((scores > 0).mean())
        claim = delta(run.cost, 0.0)
    return found[1] - found[0], claim


class Eager:
    """A source of uniform numbers that makes samples as many times as large."""

    def __init__(self, source, rate):
        self._source, self._rate = source, rate

    def random(self, count):
        return self._source.random(count) / self._rate


# two shares of 20,000 are off by at most 0.005 in the mean: 6.5 of these have a false alarm below 1e-10
TOLERANCE = 0.0325


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_runs_tell_as_much_as_they_cost(kind):
    found, claim = advantage(kind)
    assert 0.2 < claim < 0.8
    assert found <= claim + TOLERANCE
    assert found >= claim - TOLERANCE - 0.02  # the last column is cut off


@pytest.mark.parametrize("kind", KINDS)
def test_half_of_the_noise_is_caught(kind):
    found, claim = advantage(kind, factor=0.5)
    assert found > claim + TOLERANCE


def test_samples_twice_as_large_are_caught():
    found, claim = advantage("cyclic_poisson", rate=2.0)
    assert found > claim + TOLERANCE


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_without_noise_it_is_sgd_on_the_batches(kind):
    X, y = rows()
    run, seen = quiet(made(kind, momentum=0.6, cooldown=0.5)), []
    inner = gradients_of(run).at
    gradients_of(run).at = lambda theta, part: seen.append(part) or inner(theta, part)
    theta, velocity = np.zeros(4), np.zeros(4)
    while run.steps < run.horizon:
        found = run.advance()
    for t, part in enumerate(seen):
        velocity = 0.6 * velocity + LOGISTIC.gradient_sum(theta, X[part], y[part]) / 5
        theta = theta - 0.7 * min(1.0, (36 - t) / 18) * velocity
    np.testing.assert_allclose(found, theta, atol=1e-3)


@pytest.mark.thorough
@tabled(("kind", "adjacency"), [("cyclic_poisson", "replace"), ("cyclic_balls_in_bins", "add_remove")])
def test_the_ledger_says_how_batches_were_made(kind, adjacency):
    X, y = rows()
    budget = Budget(2.0, 1e-6, adjacency=adjacency)
    ledger = Ledger(budget)
    known = {"budget": budget, "epochs": 2, "batch": 10, "sampling": kind, "bands": 2, "public_rows": 60}
    fit = dp_ftrl(LOGISTIC, X, y, ledger=ledger, **known)
    assert ledger.total == fit.cost == Schedule(kind, 2, 2, 6).price(fit.noise_multiplier, adjacency)
    assert fit.epsilon == pytest.approx(2.0, rel=1e-4)
    said = {"cyclic_poisson": "cyclic Poisson samples", "cyclic_balls_in_bins": "cyclic balls in bins"}[kind]
    assert [row.label for row in ledger.rows()] == [f"DP-FTRL, {said} with 2 bands"]
    with pytest.raises(BudgetExceeded):
        dp_ftrl(LOGISTIC, X, y, ledger=ledger, **known)


@pytest.mark.thorough
def test_the_noise_is_that_of_one_unit_once():
    for adjacency in ("add_remove", "replace"):
        run = made(factorization="independent", bands=None, budget=Budget(2.0, 1e-6, adjacency=adjacency))
        assert sums_of(run).noise_std(1) == pytest.approx(0.5 * run.noise_multiplier, rel=2e-3)
        assert run._cycle.schedule.bands == 1


def test_what_is_said_of_a_run_does_not_depend_on_how_many_rows_there_are():
    fits = [made(n=n) for n in (0, 1, 60)]
    for run in fits:
        run.advance()
    assert {(run.nfev, run.horizon, run.noise_multiplier, run.cost) for run in fits} == {
        (60, 36, fits[0].noise_multiplier, fits[0].cost)
    }


@pytest.mark.thorough
def test_people_and_modules():
    torch = pytest.importorskip("torch")
    X, y = rows(40)
    budget = Budget(2.0, 1e-6, adjacency="add_remove", unit="person")
    known = {"budget": budget, "groups": np.arange(40) // 4, "public_rows": 10, "epochs": 2, "batch": 1, "bands": 2}
    fit = dp_ftrl(LOGISTIC, X, y, sampling="cyclic_poisson", **known)
    assert (fit.nit, fit.nfev) == (20, 20)
    loss = torch.nn.functional.cross_entropy
    fit = dp_ftrl(torch.nn.Linear(4, 2), X, y.astype(int), loss=loss, clip=1.0, sampling="cyclic_poisson", **known)
    assert (fit.nit, fit.nfev, fit.x.shape) == (20, 20, (10,))


# -------------------------------------------------------------------------------------------------------------- states


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_goes_on_bit_for_bit(kind):
    X, y = rows()
    run = made(kind, momentum=0.5, cooldown=0.3, iterate="tail")
    run.advance(7)
    again = DPFTRL.restore(run.state(), LOGISTIC, X, y)
    assert again.cost == run.cost
    while run.steps < run.horizon:
        np.testing.assert_array_equal(run.advance(5), again.advance(5))


def test_a_run_of_balls_in_bins_goes_on_with_the_same_bins(tmp_path):
    X, y = rows()
    ledger = Ledger.create(tmp_path / "ledger", BUDGET)
    run = made("cyclic_balls_in_bins", rng=None, ledger=ledger, checkpoint=tmp_path / "run")
    seen = []

    def watched(run):
        inner = gradients_of(run).at
        gradients_of(run).at = lambda theta, part: seen.append(part) or inner(theta, part)

    watched(run)
    run.advance(5)
    del run
    again = DPFTRL.load(tmp_path / "run", LOGISTIC, X, y, ledger=ledger)
    watched(again)
    while again.steps < again.horizon:
        again.advance(5)
    assert np.bincount(np.concatenate(seen), minlength=60).tolist() == [3] * 60  # 36 steps are three epochs
    assert len(list(ledger.rows())) == 1


@tabled(
    ("entry", "value"),
    [
        ("version", 1),
        ("samples", {}),
        ("samples", {"units": 60, "sampling": "fixed_order", "bands": 3}),
        ("samples", None),
        ("coefficients", np.array([1.0, 0.5, 0.3, 0.2])),
        ("factorization", "buffered"),
        ("budget", {"epsilon": 2.0, "delta": 1e-6, "adjacency": "zero_out", "unit": "row"}),
    ],
)
def test_states_that_are_no_states_are_refused(entry, value):
    X, y = rows()
    run = made("cyclic_balls_in_bins")
    run.advance(2)
    state = run.state()
    with pytest.raises((ValueError, TypeError)):
        DPFTRL.restore({**state, entry: value}, LOGISTIC, X, y)
    for name in ("subsets", "joined", "bands", "sampling"):
        kept = {**state["samples"], name: state["samples"].get("units")}
        with pytest.raises(ValueError, match=name if name != "bands" else "bands|subsets"):
            DPFTRL.restore({**state, "samples": kept}, LOGISTIC, X, y)
    with pytest.raises(ValueError, match="version"):
        DPFTRL.restore({name: kept for name, kept in state.items() if name != "samples"}, LOGISTIC, X, y)


# ------------------------------------------------------------------------------------------------------------- choices


def errors_of(kind, eps, tried):
    """The error of runs with so many bands, and with those that are chosen."""
    budget = Budget(eps, 1e-6, adjacency="add_remove")
    found = {}
    for b in (*tried, None):
        run = made(kind, n=120, batch=5, epochs=4, bands=b, budget=budget, public_rows=120)
        factors = optimal(96, bands=run._cycle.schedule.bands)
        found[b] = run.noise_multiplier * root_mean_square_error(factors)
    return found


@pytest.mark.thorough
def test_the_bands_are_few_and_close_to_the_best():
    errors = errors_of("cyclic_poisson", 2.0, (1, 2, 12))
    assert errors[None] <= 1.05 * min(errors.values()) < min(errors[1], errors[12])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("eps", [0.5, 2.0, 8.0])
def test_the_bands_are_close_to_the_best_of_all(kind, eps):
    errors = errors_of(kind, eps, (1, 2, 3, 4, 6, 8, 12, 16, 24))
    assert errors[None] <= 1.07 * min(errors.values())


@pytest.mark.thorough
def test_more_budget_has_more_bands():
    budgets = (Budget(eps, 1e-6, adjacency="add_remove") for eps in (0.2, 2.0, 16.0))
    few, more, many = (chosen_bands("cyclic_poisson", budget, 2, 30) for budget in budgets)
    assert few == 1 < more < many


@tabled(
    "bad",
    [
        {"bands": 0},
        {"bands": 13},
        {"sampling": "poisson"},
        {"sampling": "fixed_order", "said": "adjacency"},
        {"factorization": "tree"},
        {"factorization": "buffered"},
        {"factorization": inverse_root(36, bands=2)},
        {"factorization": Banded([1.0, 0.5], 35, inverse=False)},
        {"factorization": Banded([1.0, 0.5, 0.2, 0.1], 36, inverse=False)},
        {"public_rows": None},
        {"batch": 61},
        {"budget": Budget(2.0, 1e-6, adjacency="zero_out")},
        {"sampling": "cyclic_balls_in_bins", "budget": Budget(60.0, 1e-6), "said": "sampling must be 'cyclic_poisson'"},
    ],
)
def test_bad_parameters_charge_nothing(bad):
    ledger = Ledger(BUDGET)
    X, y = rows()
    bad, known = dict(bad), {"budget": BUDGET, "sampling": "cyclic_poisson", "bands": 3, "public_rows": 60}
    known |= {"epochs": 3, "batch": 5}
    said = bad.pop("said", next(iter(bad)))
    with pytest.raises((ValueError, TypeError, BudgetExceeded), match=said):
        DPFTRL(LOGISTIC, X, y, ledger=ledger, **{**known, **bad})
    assert not list(ledger.rows())


@pytest.mark.thorough
def test_a_banded_factorization_of_ones_own():
    own = Banded([1.0, 0.5], 36, inverse=False)
    run = made("cyclic_balls_in_bins", bands=None, factorization=own)
    assert run._cycle.schedule.bands == 2
    X, y = rows()
    run.advance(5)
    state, released = run.state(), run.advance()
    for second in (0.5, 0.4):  # the saved coefficients go on
        given = Banded([1.0, second], 36, inverse=False)
        np.testing.assert_array_equal(DPFTRL.restore(state, LOGISTIC, X, y, factorization=given).advance(), released)
    with pytest.raises(ValueError, match="inputs must be finite, float64 and of shape"):
        DPFTRL.restore(state, LOGISTIC, X, y, factorization=Banded([1.0], 36, inverse=False))

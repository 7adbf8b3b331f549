"""What all continual mechanisms have in common: shapes, refusals, cost and ledger, saved states."""

import copy
import io
import math
import pickle
import tracemalloc

import numpy as np
import pytest
from factors import noise_of
from hypothesis import given, settings
from hypothesis import strategies as st
from interrupts import at_once
from streams import CASES, arguments, make
from tabled import tabled
from watched import refused

from accounting import (
    AdjacencyMismatch,
    Budget,
    BudgetExceeded,
    DiscreteGaussian,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    Ledger,
    TreeAggregation,
    delta,
)
from dpkit import randomness
from dpkit.continual import BinaryTree
from dpkit.states import Run, RunStopped, files

each_case, in_each_case = pytest.mark.parametrize("case", CASES), tabled("case", CASES)
in_each_bounded_case = tabled("case", [case for case in CASES if case != "unbounded"])


def entries(state):
    """A comparable copy of a state (each is of a run of its own); a simulation's has the generator's state."""
    return {name: np.array(value).tolist() for name, value in state.items() if not name.startswith("run_")}


# ------------------------------------------------------------------------------------- inputs and outputs


@in_each_case
@tabled("shape", [3, (3,), (), (2, 3), (1, 1, 2)])
def test_estimates_have_the_shape_of_the_inputs_and_are_new(case, shape):
    sums = make(case, shape=shape)
    x = np.ones(shape)
    first = sums.add(x)
    kept = first.copy()
    second = sums.add(x)
    assert first.shape == second.shape == x.shape == sums.shape
    first += 1000.0
    np.testing.assert_allclose(sums.add(x) - second, second - kept, atol=100)
    assert sums.add_many(np.ones((2, *sums.shape))).shape == (2, *sums.shape)
    assert sums.add_many(np.ones((0, *sums.shape))).shape == (0, *sums.shape)
    assert sums.steps == 5


@tabled("case", [*CASES, "integers"])
@tabled(
    "layout",
    [
        np.asfortranarray,
        lambda x: np.repeat(x, 2, axis=1)[:, ::2],
        lambda x: x[::-1].copy()[::-1],
        lambda x: x.view(np.recarray),
    ],
)
def test_without_much_noise_the_estimates_are_the_sums_in_whatever_order_inputs_lie_in_memory(case, layout):
    x = np.random.default_rng(4).integers(-9, 10, size=(70, 3))
    if case == "integers":
        case, exact = "tree", {"noise": "discrete_gaussian", "noise_multiplier": 1e-3}
    else:
        x, exact = x.astype(float), {"noise_multiplier": 1e-9}
    sums = make(case, horizon=140, **exact)
    expected = np.cumsum(x, axis=0)
    np.testing.assert_allclose(sums.add_many(layout(x)), expected, atol=1e-7)
    np.testing.assert_allclose([sums.add(np.ravel(row)) for row in layout(x)], expected[-1] + expected, atol=1e-7)


@in_each_case
@tabled("dtype", [np.float32, np.int64, np.uint8, np.uint64, bool])
def test_real_numbers_of_any_type_are_taken(case, dtype):
    sums = make(case, noise_multiplier=1e-9)
    np.testing.assert_allclose(sums.add(np.ones(3, dtype=dtype)), np.ones(3), atol=1e-6)
    np.testing.assert_allclose(sums.add_many([[1, 1, 1], [1, 1, 1]])[-1], 3 * np.ones(3), atol=1e-6)


@pytest.mark.parametrize("case", ["buffered", "unbounded", "toeplitz", "tree", "honaker"])
@tabled("many", [False, True])
def test_symmetric_matrices_come_out_symmetric_with_half_variance_off_the_diagonal(case, many):
    # 6.5 standard errors of a standard deviation: false alarm below 1e-10 per comparison
    d, horizon = 60, 4
    samples = []
    for seed in range(10):
        sums = make(case, horizon=horizon, shape=(d, d), symmetric=True, sensitivity=2.0, seed=seed)
        x = np.tile(np.eye(d), (horizon, 1, 1))
        estimate = sums.add_many(x)[-1] if many else [sums.add(row) for row in x][-1]
        np.testing.assert_array_equal(estimate, estimate.T)
        samples.append(estimate - horizon * np.eye(d))
    off = np.array([sample[np.triu_indices(d, 1)] for sample in samples]).ravel()
    on = np.array([np.diag(sample) for sample in samples]).ravel()
    for values, scale in [(off, math.sqrt(0.5)), (on, 1.0)]:
        expected = scale * sums.noise_std(horizon)
        assert abs(values.std() / expected - 1) < 6.5 / math.sqrt(2 * values.size)


@in_each_case
@tabled("many", [False, True])
@tabled(
    ("x", "message"),
    [
        ([1.0, math.nan, 0.0], "x with [12] entries that are NaN or infinite"),
        ([math.inf, -math.inf, 0.0], "x with [24] entries that are NaN or infinite"),
        ([1e200, 0.0, 0.0], "x with entries above 1e150"),
        ([1.0, 2.0], r"x must have shape \(.*3,?\), got x.shape=\(.*2,?\)"),
        (1.0, r"x must have shape \(.*3,?\)"),
        ([[1.0, 2.0, 3.0]], r"x must have shape \(.*3,?\)"),
    ],
)
def test_bad_inputs_are_refused_and_change_nothing(case, x, message, many):
    sums = make(case)
    sums.add(np.ones(3))
    before = entries(sums.state())
    with pytest.raises(ValueError, match=message):
        sums.add_many([x, x]) if many else sums.add(x)
    assert entries(sums.state()) == before


@in_each_case
@tabled("x", [["a", "b", "c"], [1j, 0, 0], [None, 0, 0]])
def test_inputs_that_are_not_real_numbers_are_refused(case, x):
    sums = make(case)
    for call in (lambda: sums.add(x), lambda: sums.add_many([x])):
        with pytest.raises(TypeError, match="x must be an array of real numbers"):
            call()
    assert sums.steps == 0


@pytest.mark.parametrize("x", [0.5, np.uint64(3), True + 0.0, "1"])
def test_inputs_of_an_integer_stream_that_are_not_integers_are_refused(x):
    sums = BinaryTree(horizon=3, shape=(), sensitivity=1.0, noise_multiplier=1.0, noise="discrete_gaussian")
    with pytest.raises(TypeError, match="x must be an array of integers"):
        sums.add(x)
    assert sums.add(np.int8(3)).dtype == np.int64


@in_each_case
def test_a_matrix_that_is_not_symmetric_is_refused(case):
    sums = make(case, shape=(2, 2), symmetric=True)
    with pytest.raises(ValueError, match="x must be symmetric"):
        sums.add([[1.0, 2.0], [2.1, 1.0]])
    with pytest.raises(ValueError, match="x must be symmetric"):
        sums.add_many([np.eye(2), [[1.0, 2.0], [2.1, 1.0]]])
    sums.add([[1.0, 2.0], [2.0 + 1e-12, 1.0]])
    assert sums.steps == 1


@in_each_bounded_case
def test_the_horizon_cannot_be_exceeded(case):
    sums = make(case, horizon=2)
    sums.add(np.ones(3))
    before = entries(sums.state())
    with pytest.raises(ValueError, match="at most horizon=2 inputs may be added, got input 3"):
        sums.add_many(np.ones((2, 3)))
    assert entries(sums.state()) == before
    sums.add(np.ones(3))
    before = entries(sums.state())
    with pytest.raises(ValueError, match="at most horizon=2 inputs may be added, got input 3"):
        sums.add(np.ones(3))
    assert entries(sums.state()) == before
    for t in (0, 3):
        with pytest.raises(ValueError, match="t must be at"):
            sums.noise_std(t)


@in_each_case
@tabled("error", [KeyboardInterrupt, MemoryError])
@tabled("many", [False, True])
def test_a_call_that_is_interrupted_while_it_draws_stops_the_stream(case, error, many, monkeypatch):
    sums = make(case)
    sums.add_many(np.ones((3, 3)))
    before = sums.kept()

    def fails(*_):
        raise error

    monkeypatch.setattr(noise_of(sums), "add_to", fails)
    with pytest.raises(error):
        sums.add_many(np.ones((2, 3))) if many else sums.add(np.ones(3))
    monkeypatch.undo()
    for call in (lambda: sums.add(np.ones(3)), lambda: sums.add_many(np.ones((2, 3))), sums.state):
        with pytest.raises(RunStopped, match="must not be noised again"):
            call()
    # another one goes on from before, as its owner's checkpoint would
    other = make(case)
    other.resume(before)
    assert other.add(np.ones(3)).shape == (3,)


# ------------------------------------------------------------------------------------- parameters and cost


@in_each_case
@tabled(
    ("parameters", "error", "message"),
    [
        ({"shape": (0,)}, ValueError, "shape must be at least 1"),
        ({"shape": 2.5}, TypeError, "shape must be a whole number"),
        ({"shape": (2, 3), "symmetric": True}, ValueError, "shape must be"),
        ({"shape": 3, "symmetric": True}, ValueError, "shape must be"),
        ({"sensitivity": 0.0}, ValueError, "sensitivity must be positive"),
        ({"sensitivity": -1.0}, ValueError, "sensitivity must be positive"),
        ({"sensitivity": math.nan}, ValueError, "sensitivity must be a number"),
        ({"noise_multiplier": 0.0}, ValueError, "noise_multiplier must be positive"),
        ({"noise_multiplier": 1e-200, "sensitivity": 1e-200}, ValueError, r"noise_multiplier \* sensitivity must be"),
        ({"noise_multiplier": 1e200, "sensitivity": 1e200}, ValueError, r"noise_multiplier \* sensitivity must be"),
        ({"noise_multiplier": math.inf}, ValueError, "noise_multiplier must be positive"),
        ({"noise": "cauchy", "q": 2.0}, ValueError, "noise must be one of"),
        ({"adjacency": "swap"}, ValueError, "adjacency must be one of"),
        ({"adjacency": None}, ValueError, "adjacency must be one of"),
        ({"rng": 7}, TypeError, "rng must be"),
    ],
)
def test_bad_parameters_are_refused_and_nothing_is_charged(case, parameters, error, message):
    ledger = Ledger()
    if "q" in parameters and CASES[case][0] is not BinaryTree:
        parameters = {"noise": parameters["noise"]}
    with pytest.raises(error, match=message):
        make(case, ledger=ledger, **parameters)
    assert ledger.rows() == []


@tabled("case", [case for case in CASES if case not in ("unbounded", "discounted", "weighted")])
@tabled(
    ("horizon", "error"),
    [(0, ValueError), (-3, ValueError), (2**62 + 1, ValueError), (2.5, TypeError), (None, TypeError)],
)
def test_bad_horizons_are_refused(case, horizon, error):
    with pytest.raises(error, match="horizon must be"):
        make(case, horizon=horizon)
    mechanism, known = arguments(case, horizon=horizon)
    with pytest.raises(error, match="horizon must be"):
        mechanism.calibrated(budget=Budget(1.0, 1e-6), **known)


@tabled(
    ("parameters", "message"),
    [
        ({"estimator": "best"}, "estimator must be one of"),
        ({"noise": "generalized_gaussian", "q": 0.5}, "q must be at least 1, got q=0.5"),
        (
            {"noise": "discrete_gaussian", "noise_multiplier": 2.0**41},
            r"noise_multiplier \* sensitivity must lie in",
        ),
        ({"q": 3.0}, "q must be 2 with noise='gaussian', got q=3.0"),
        ({"noise": "discrete_gaussian", "estimator": "honaker"}, "noise='discrete_gaussian' must go with"),
        ({"noise": "discrete_gaussian", "symmetric": True, "shape": (2, 2)}, "noise='discrete_gaussian' must go with"),
    ],
)
def test_parameters_of_trees_that_do_not_go_together_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        make("tree", **parameters)


@in_each_case
def test_the_ledger_is_charged_the_whole_stream_once_at_construction(case):
    ledger = Ledger()
    sums = make(case, ledger=ledger, label="clicks", rng=None)
    (row,) = ledger.rows()
    assert (row.label, row.release, row.simulation) == ("clicks", sums.cost, False)
    assert row.release.adjacency == "replace"
    for _ in range(9):
        sums.add(np.ones(3))
    CASES[case][0].restore(sums.state(), ledger=ledger).add(np.ones(3))
    assert ledger.rows() == [row]
    make(case, ledger=ledger)
    assert ledger.rows()[1].simulation


@in_each_case
def test_a_ledger_that_refuses_prevents_the_mechanism_and_every_draw(case):
    with refused(BudgetExceeded, "asks for", Ledger(Budget(0.5, 1e-6))) as known:
        make(case, **known)


@pytest.mark.parametrize("case", [case for case in CASES if case != "laplace"])
@given(
    epsilon=st.floats(0.05, 20),
    exponent=st.integers(2, 12),
    horizon=st.integers(1, 10**4),
    adjacency=st.sampled_from(["replace", "add_remove", "zero_out"]),
)
@settings(max_examples=8, deadline=None)
def test_calibrated_spends_the_budget_and_no_more(case, epsilon, exponent, horizon, adjacency):
    budget = Budget(epsilon, 10.0**-exponent, adjacency=adjacency)
    mechanism, known = arguments(case, horizon=horizon, shape=1)
    sums = mechanism.calibrated(budget=budget, ledger=Ledger(budget), **known)
    spent = delta(sums.cost, budget.epsilon)
    assert spent <= budget.delta
    assert spent == pytest.approx(budget.delta, rel=1e-6)
    assert sums.cost.adjacency == adjacency


@in_each_case
def test_calibrated_refuses_another_adjacency(case):
    mechanism, known = arguments(case, adjacency="add_remove")
    with pytest.raises(AdjacencyMismatch):
        mechanism.calibrated(budget=Budget(1.0, 1e-6), **known)


def test_a_laplace_tree_meets_a_budget_of_pure_privacy():
    sums = BinaryTree.calibrated(
        budget=Budget(1.0, 0.0), horizon=1000, shape=2, sensitivity=1.0, noise="laplace", rng=np.random.default_rng(0)
    )
    assert sums.noise_multiplier == pytest.approx(10.0, rel=1e-9)


def test_costs_are_one_gaussian_or_one_node_for_each_level():
    for case in ("buffered", "unbounded", "toeplitz"):
        assert make(case, noise_multiplier=3.0).cost == Gaussian(3.0, adjacency="replace")
    for horizon in (1, 7, 8, 9):
        tree = make("tree", noise_multiplier=3.0, horizon=horizon)
        assert tree.cost == TreeAggregation(3.0, horizon, adjacency="replace")
    # without a root for a power of two
    assert [make("honaker", horizon=h).cost.levels for h in (1, 2, 7, 8, 9, 1024)] == [1, 1, 3, 3, 4, 10]
    for noise, release in (("laplace", Laplace), ("discrete_gaussian", DiscreteGaussian)):
        tree = make("tree", noise=noise, noise_multiplier=2.0, horizon=9, adjacency="zero_out")
        assert tree.cost == 4 * release(2.0, adjacency="zero_out")
    assert make("generalized", horizon=4).cost == 3 * GeneralizedGaussian(1.0, adjacency="replace")


# ------------------------------------------------------------------------------------------------- states


def through_a_file(state):
    file = io.BytesIO()
    np.savez(file, **state)
    file.seek(0)
    return np.load(file, allow_pickle=False)


@pytest.mark.parametrize("case", [*CASES, "integers"])
@given(taken=st.integers(0, 12), left=st.integers(0, 12), shape=st.sampled_from([(), 3, (2, 2)]))
@settings(max_examples=6, deadline=None)
def test_a_restored_simulation_continues_bit_for_bit(case, taken, left, shape):
    case, own = ("tree", {"noise": "discrete_gaussian"}) if case == "integers" else (case, {})
    sums = make(case, horizon=24, shape=shape, **own)
    x = np.random.default_rng(5).integers(-3, 4, size=(taken + left, *sums.shape))
    for row in x[:taken]:
        sums.add(row)
    restored = type(sums).restore(through_a_file(sums.state()))
    for row in x[taken:]:
        np.testing.assert_array_equal(sums.add(row), restored.add(row))
    assert entries(sums.state()) == entries(restored.state())
    assert restored.cost == sums.cost
    assert [restored.noise_std(t) for t in (1, 7, 24)] == [sums.noise_std(t) for t in (1, 7, 24)]


@in_each_case
@tabled("bits", [np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64])
def test_every_bit_generator_of_numpy_is_restored(case, bits):
    sums = make(case, rng=np.random.Generator(bits(3)))
    sums.add(np.ones(3))
    restored = type(sums).restore(through_a_file(sums.state()))
    np.testing.assert_array_equal(sums.add(np.ones(3)), restored.add(np.ones(3)))


@in_each_case
def test_a_restored_private_stream_never_draws_the_same_noise_again(case):
    sums = make(case, rng=None)
    released = [sums.add(np.zeros(3)) for _ in range(4)]
    state = through_a_file(sums.state())
    assert state["generator"].item() == ""
    restored = [type(sums).restore(state, rng=rng, unattended=True) for rng in (None, randomness.secure())]
    streams = [sums, *restored]
    following = np.array([[stream.add(np.zeros(3)) - released[-1] for _ in range(4)] for stream in streams])
    assert np.unique(following).size == following.size


@in_each_case
def test_a_restored_stream_keeps_the_noise_that_was_released(case):
    # The tenth estimate of n independent coordinates must be as correlated with the ninth, before the state was taken,
    # as without a restoration. A correlation's standard error is at most 1/√n: 6.5 of them, false alarm below 1e-10.
    n = 20_000
    sums = make(case, shape=n, rng=None)
    before = [sums.add(np.zeros(n)) for _ in range(9)][-1]
    restored = type(sums).restore(sums.state(), unattended=True).add(np.zeros(n))
    going_on = sums.add(np.zeros(n))
    correlations = [np.corrcoef(before, after)[0, 1] for after in (restored, going_on)]
    assert abs(correlations[0] - correlations[1]) < 6.5 * math.sqrt(2 / n)
    assert correlations[0] > 0.3
    assert abs(restored.std() / sums.noise_std(10) - 1) < 6.5 * math.sqrt(5 / (4 * n))


@in_each_case
def test_a_simulation_may_continue_with_a_generator_of_the_caller(case):
    rng = np.random.default_rng(3)
    sums = make(case, rng=rng)
    state = sums.state()
    own = np.random.default_rng()
    own.bit_generator.state = rng.bit_generator.state
    restored = type(sums).restore(state, rng=own)
    np.testing.assert_array_equal(sums.add(np.ones(3)), restored.add(np.ones(3)))


@in_each_case
@tabled("seed", [0, None])
def test_the_ledger_refuses_a_second_an_older_and_an_unknown_state(case, seed):
    ledger = Ledger()
    mechanism = CASES[case][0]
    sums = make(case, ledger=ledger, rng=None if seed is None else np.random.default_rng(seed))
    older = through_a_file(sums.state())
    sums.add(np.ones(3))
    newer = through_a_file(sums.state())
    with pytest.raises(ValueError, match="the state must be the newest of its run"):
        mechanism.restore(older, ledger=ledger)
    restored = mechanism.restore(newer, ledger=ledger)
    for state in (older, newer):
        with pytest.raises(ValueError, match="the state must be the newest of its run"):
            mechanism.restore(state, ledger=ledger)
    with pytest.raises(RunStopped, match="another process goes on"):
        sums.add(np.ones(3))
    restored.add(np.ones(3))
    last = restored.state()
    with pytest.raises(ValueError, match="the state must be the newest of its run"):
        mechanism.restore(last | {"run_anchor": "0" * 64}, ledger=ledger)
    mechanism.restore(last, ledger=ledger).add(np.ones(3))
    assert len(ledger.rows()) == 1
    assert ledger.total == sums.cost


@tabled(
    "damage",
    [
        *({"id": value} for value in ("0" * 31, "g" * 32, 3)),
        *({"anchor": value} for value in ("0" * 63, "G" * 64, None)),
        *({"step": value} for value in (-1, 2**62, 1.0, True, "1")),
        *({"ledger": value} for value in (0, "no", None)),
    ],
)
def test_a_run_that_cannot_be_is_refused(damage):
    saved = Run("sums").state()
    Run("sums").resume(saved, ledger=None, unattended=True)
    with pytest.raises(ValueError, match=f"{next(iter(damage))} must be"):
        Run("sums").resume(saved | damage, ledger=None, unattended=True)


@in_each_case
@tabled(
    ("made", "restored", "message"),
    [
        # a private stream is not continued by a seeded generator
        ({"rng": None}, {"rng": np.random.default_rng(0)}, "rng must be None or secure"),
        # without a ledger it needs a word, and with one that ledger, which must have paid
        ({"rng": None}, {}, "unattended=True"),
        ({"rng": None, "ledger": Ledger()}, {}, "ledger must be given for a state that was made with one"),
        ({"rng": None, "ledger": Ledger()}, {"unattended": True}, "ledger must be given for a state that was made"),
        ({}, {"ledger": Ledger()}, "ledger must hold the cost of what is restored"),
    ],
)
def test_who_may_restore_a_state(case, made, restored, message):
    with pytest.raises(ValueError, match=message):
        CASES[case][0].restore(make(case, **made).state(), **restored)
    assert not restored.get("ledger", Ledger()).rows()
    for others in (make(case, rng=None), make(case)):
        CASES[case][0].restore(others.state(), unattended=True).add(np.ones(3))
    CASES[case][0].restore(make(case).state()).add(np.ones(3))


@in_each_case
def test_a_stream_cannot_be_copied_or_pickled(case):
    sums = make(case)
    for repeat in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            repeat(sums)


@pytest.mark.parametrize("case", ["buffered", "toeplitz", "tree", "honaker"])
def test_threads_lose_no_step_and_share_no_noise(case):
    threads, each = 4, 150
    sums = make(case, horizon=threads * each, shape=8, noise_multiplier=1e-3, rng=None)
    estimates = []

    def work():
        estimates.extend(sums.add(np.ones(8)) for _ in range(each))

    at_once(threads * [work])
    assert sums.steps == threads * each
    counts = np.round(np.mean(estimates, axis=1))  # the noise is below 0.3 with probability 1 − 10⁻¹⁰⁰
    assert sorted(counts) == list(range(1, threads * each + 1))
    # steps with the same noise would have the same estimates but for their counts
    assert len(np.unique(np.round(np.array(estimates) - counts[:, None], 9), axis=0)) == threads * each


@in_each_case
@tabled(
    ("change", "message"),
    [
        ({"mechanism": "Other"}, "state must come from"),
        ({"version": 0}, "state must come from"),
        ({"steps": 2**50}, "steps must be at most horizon="),
        ({"steps": -1}, "steps must be at least 0"),
        ({"sensitivity": 0.0}, "sensitivity must be positive"),
        ({"generator": '{"bit_generator": "seed"}'}, "bit_generator must be one of numpy's"),
    ],
)
def test_a_state_that_is_not_one_is_refused(case, change, message):
    with pytest.raises(ValueError, match=message):
        CASES[case][0].restore(make(case).state() | change)


@in_each_case
def test_a_state_with_a_missing_or_misshapen_entry_is_refused(case):
    mechanism, state = CASES[case][0], make(case).state()
    ledger = Ledger()
    make(case, ledger=ledger)
    for name in state.keys() - {"gamma", "noise_std"}:  # which an earlier version did not keep
        with pytest.raises(ValueError, match=f"state must have an entry '{name}'"):
            mechanism.restore({key: value for key, value in state.items() if key != name}, ledger=ledger)
    for name, value in state.items():
        if isinstance(value, np.ndarray) and value.size and name not in ("shape", "weights"):
            for wrong in (value[..., :-1], np.full(value.shape, np.nan), value.astype(np.float32)):
                with pytest.raises(ValueError, match=f"{name} must be finite, {value.dtype} and of shape"):
                    mechanism.restore(state | {name: wrong})
    assert len(ledger.rows()) == 1


@pytest.mark.parametrize("case", ["buffered", "unbounded", "tree", "honaker"])
def test_a_million_steps_need_less_than_four_megabytes(case):
    x = np.zeros((500, 100))
    tracemalloc.start()
    try:
        sums = make(case, horizon=2**20, shape=100, rng=None)
        sums.add_many(x)
        before, _ = tracemalloc.get_traced_memory()
        sums.add_many(x)
        for row in x:
            sums.add(row)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # besides the estimates, of the size of the input
    assert peak - x.nbytes < 4e6
    assert after - before < 1e5


# vectors of 8 bytes per coordinate, as the modules state them: buffers b = 13 of a horizon of 2**20, 20 without one
VECTORS = {"buffered": 4 * 13 + 6, "unbounded": 4 * 20 + 6, "tree": 2 * 20 + 6, "honaker": 3 * 20 + 4}


def live_memory(case, x, **known):
    """Vectors of 8 bytes per coordinate that a stream holds when it has taken the rows of ``x``, all at once."""
    make(case, **known, rng=None).add_many(x)  # what all streams share: tables, random words
    tracemalloc.start()
    try:
        sums = make(case, **known, rng=None)
        sums.add_many(x)
        assert sums.steps == len(x)
        return tracemalloc.get_traced_memory()[0] / (8 * x.shape[1])
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("case", VECTORS)
def test_live_memory_is_what_the_documentation_says(case):
    d = 5000
    live = live_memory(case, np.zeros((3, d)), horizon=2**20, shape=d) - 2**16 // (8 * d)  # noise ahead, whole vectors
    assert VECTORS[case] - 3 <= live <= VECTORS[case] + 0.5


def test_live_memory_of_the_square_root_is_two_vectors_for_each_input():
    # blocks of 64 rows of both factors, and noise ahead
    assert 2 * 1000 <= live_memory("toeplitz", np.zeros((100, 500)), horizon=1000, shape=500) <= 2 * 1000 + 160


# ------------------------------------------------------------------- streams that live inside another object


@pytest.mark.thorough
@tabled("case", [*CASES, "integers"])
@tabled(("ahead", "steps"), [(1, 0), (1, 12), (100, 0), (100, 1), (100, 60)])
def test_a_stream_that_is_elsewhere_resumes_in_place_with_the_noise_of_the_step(case, ahead, steps):
    """Nothing that later steps have worked out for themselves, such as a smaller scale, is left over."""
    case, own = ("tree", {"noise": "discrete_gaussian"}) if case == "integers" else (case, {})
    x = np.random.default_rng(5).integers(-3, 4, (120, 3))
    rng, other_rng = np.random.default_rng(1), np.random.default_rng(2)
    sums, other = (make(case, horizon=120, rng=source, **own) for source in (rng, other_rng))
    for row in x[:ahead]:
        other.add(row)
    for row in x[:steps]:
        sums.add(row)
    files.decode(files.encode(sums.kept()))  # of types that a state file takes
    other.resume(sums.kept())
    other_rng.bit_generator.state = rng.bit_generator.state
    for row in x[steps:]:
        np.testing.assert_array_equal(sums.add(row), other.add(row))
    assert entries(sums.kept()) == entries(other.kept())


@in_each_case
def test_what_is_not_kept_by_such_a_stream_is_refused_and_changes_nothing(case):
    sums = make(case)
    sums.add_many(np.ones((3, 3)))
    saved = sums.kept()
    wrong = [
        None,
        3.0,
        {},
        saved | {"steps": 2**50},
        saved | {"steps": -1},
        saved | {"steps": 2.0},
        saved | {"more": 1},
    ]
    for name in ("gamma", "noise_std"):
        wrong += [saved | {name: value} for value in (None, math.nan, 0.0, saved[name] * (1.0 + 1e-4))]
    for name, value in saved.items():
        if name not in ("gamma", "noise_std"):  # which an earlier version did not keep
            wrong.append({key: one for key, one in saved.items() if key != name})
        if isinstance(value, np.ndarray) and value.size:
            wrong += [saved | {name: part} for part in (value[..., :-1], np.full(value.shape, np.nan), 1.0)]
    sums.add(np.ones(3))
    before = entries(sums.kept())
    for state in wrong:
        with pytest.raises(ValueError, match="must"):
            sums.resume(state)
        assert entries(sums.kept()) == before


@pytest.mark.parametrize("shape", [(), (2,)])
def test_masked_arrays_are_refused(shape):
    sums = BinaryTree(horizon=4, shape=shape, sensitivity=1.0, noise_multiplier=1.0)
    one = np.ma.masked_array(np.ones(shape), mask=np.ones(shape, bool))
    for call in (lambda: sums.add(one), lambda: sums.add_many(np.ma.masked_array(np.ones((3, *shape))))):
        with pytest.raises(TypeError, match="x must not be masked"):
            call()
    assert sums.steps == 0


@in_each_case
def test_the_state_of_a_stream_with_other_noise_is_refused(case):
    # where noise is twice as large in steps, or steps are powers of two, γ is the same
    sums = make(case)
    sums.add(np.ones(sums.shape))
    saved = sums.state()
    for factor in (0.5, 1.25, 2.0):
        with pytest.raises(ValueError, match=r"(gamma|noise_std) must be"):
            CASES[case][0].restore(saved | {"noise_multiplier": factor * sums.noise_multiplier})

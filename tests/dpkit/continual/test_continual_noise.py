"""The noise of the continual mechanisms, against the dense matrices they stand for and against published values."""

import math

import numpy as np
import pytest
from factors import Given, decoder, encoder, factorization_of, length, noise_by, noise_of, step_of
from hypothesis import given, settings
from hypothesis import strategies as st
from tabled import tabled

from accounting import gdp
from dpkit.continual import BinaryTree, BufferedToeplitz, Discounted, Toeplitz, Unbounded, Weighted
from dpkit.continual.coefficients import (
    column_scales,
    prefix_sum_errors,
    sqrt_coefficients,
    square_summable_coefficients,
)
from dpkit.geometry import best_norm

# Standard deviations per unit of sensitivity at zCDP rho = 1/2, computed independently in float64: the binary tree
# (worst step: ⌊log₂T⌋ + 1 nodes of budget, ⌊log₂T⌋ of them in the sum); Honaker's estimator with ⌈log₂T⌉ nodes of
# budget, √(⌈log₂T⌉ Σ_h 2^h/(2^(h+1) − 1)); the square-root factorization of Fichtenberger, Henzinger & Upadhyay (2023),
# Σ_k (binom(2k,k)/4^k)²; a lower bound on any factorization from a dual certificate.
TREE = {1024: 10.488, 16384: 14.491}
HONAKER = {1024: 7.62, 16384: 10.46}
SQRT_TOEPLITZ = {1024: 3.2725541502731326, 16384: 4.1552, 2**20: 5.479}
SQRT_TOEPLITZ_RMS = {1024: 3.1098, 16384: 3.9929}
OPTIMUM_AT_LEAST = {1024: 2.961, 16384: 3.791}


def noise_matrix(mechanism, horizon, draws, splits=None, **parameters):
    """B such that the t-th estimate has the noise (Bζ)_t: rows are estimates, columns are draws, in order."""
    parameters |= length(mechanism, horizon)
    sums = mechanism(shape=draws, sensitivity=1.0, noise_multiplier=1.0, rng=np.random.default_rng(0), **parameters)
    if mechanism is Unbounded:
        sums.horizon = horizon
    return sums, decoder(sums, draws, splits)


def lower_triangle(coefficients, horizon):
    lags = np.subtract.outer(np.arange(horizon), np.arange(horizon))
    return np.where(lags >= 0, coefficients[np.maximum(lags, 0)], 0.0)


def tree_nodes(horizon, levels, every_node):
    """One row per drawn node, in order, with a 1 for each input in it."""
    nodes = []
    for t in range(1, horizon + 1):
        top = min((t & -t).bit_length(), levels)
        for h in range(top) if every_node else [top - 1]:
            nodes.append(np.isin(np.arange(1, horizon + 1), np.arange(t - 2**h + 1, t + 1)))
    return np.array(nodes, dtype=float)


horizons = pytest.mark.parametrize("horizon", [1, 2, 3, 8, 21, 64, 97])
UNIT = {"shape": 1, "sensitivity": 1.0, "noise_multiplier": 1.0}
PLAIN = [(kind, {}) for kind in (BufferedToeplitz, Unbounded, Toeplitz, Weighted, BinaryTree)]


@horizons
@tabled("mechanism", [BufferedToeplitz, Unbounded, Toeplitz, Weighted])
def test_factorizations_are_the_dense_matrix_mechanism_with_columns_of_norm_at_most_one(mechanism, horizon):
    sums, B = noise_matrix(mechanism, horizon, horizon)
    A = np.tril(np.ones((horizon, horizon)))
    # The estimates are A x + B ζ = B (C x + ζ), so one changed input moves what is released by a column of C
    C = np.linalg.solve(B, A)
    factorization = factorization_of(sums)
    norms = np.linalg.norm(C, axis=0) / factorization.column_norm
    assert norms.max() <= 1
    np.testing.assert_allclose(encoder(factorization, horizon), C, atol=1e-11)
    assert C.min() >= -1e-12
    if mechanism in (BufferedToeplitz, Weighted):
        assert norms.min() >= 0.998  # so nothing of the budget is wasted on short columns
    if mechanism is BufferedToeplitz:
        # the Toeplitz matrix has ones on its diagonal
        np.testing.assert_allclose(C, lower_triangle(sums.coefficients, horizon) * np.diag(C), atol=1e-11)
    if mechanism is Toeplitz:
        np.testing.assert_allclose(C, lower_triangle(sums.coefficients, horizon), atol=1e-12)
    # rounding adds a thousandth at most, and nothing is taken away
    stated = np.array([sums.noise_std(t + 1) for t in range(horizon)])
    added = stated / (np.linalg.norm(B, axis=1) * factorization.column_norm)
    assert added.min() >= 1
    assert added.max() <= 1.001


@tabled("mechanism", [BufferedToeplitz, Unbounded, Toeplitz, Weighted, BinaryTree])
@tabled("dimension", [1, 100, 1500])
@tabled("many", [False, True])
def test_streams_of_any_dimension_are_the_dense_matrix_mechanism(mechanism, dimension, many):
    horizon = 50
    _, B = noise_matrix(mechanism, horizon, horizon)
    x = np.random.default_rng(1).normal(size=(horizon, dimension))
    known = length(mechanism, horizon)
    sums = mechanism(shape=dimension, sensitivity=0.5, noise_multiplier=3.0, rng=np.random.default_rng(7), **known)
    step = step_of(sums)
    noise = np.rint(np.random.default_rng(7).normal(0, 1.5 / step, size=(horizon, dimension))).astype(np.int64)
    noise_by(sums, Given(noise))
    estimates = sums.add_many(x) if many else [sums.add(row) for row in x]
    # encoded rows are right within two steps; a tree's inputs within half a step
    slack = 2.0 * step * (horizon if mechanism is BinaryTree else np.abs(B).sum(axis=1).max())
    np.testing.assert_allclose(estimates, np.cumsum(x, axis=0) + B @ (step * noise), atol=slack)


@horizons
@tabled("estimator", ["standard", "honaker"])
def test_trees_are_functions_of_noisy_nodes_of_which_an_input_sits_in_no_more_than_the_cost_says(horizon, estimator):
    levels = (horizon - 1).bit_length() or 1 if estimator == "honaker" else horizon.bit_length()
    nodes = tree_nodes(horizon, levels, every_node=estimator == "honaker")
    sums, B = noise_matrix(BinaryTree, horizon, len(nodes), estimator=estimator)
    np.testing.assert_allclose(B @ nodes, np.tril(np.ones((horizon, horizon))), atol=1e-12)
    assert math.sqrt(nodes.sum(axis=0).max()) <= gdp(sums.cost) * (1 + 1e-12)
    np.testing.assert_allclose([sums.noise_std(t + 1) for t in range(horizon)], np.linalg.norm(B, axis=1), rtol=1e-3)


@tabled("horizon", [1, 16, 33, 100])
def test_honakers_weights_are_the_best_linear_ones_for_each_node_from_below(horizon):
    levels = (horizon - 1).bit_length() or 1
    _, B = noise_matrix(BinaryTree, horizon, len(tree_nodes(horizon, levels, True)), estimator="honaker")
    for t in (2**h for h in range(levels)):
        nodes = tree_nodes(t, levels, True)
        # least squares: Var of the best unbiased estimate of the sum of the first t inputs from the nodes within them
        best = np.ones(t) @ np.linalg.pinv(nodes.T @ nodes) @ np.ones(t)
        assert B[t - 1] @ B[t - 1] == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize(("mechanism", "parameters"), [*PLAIN, (BinaryTree, {"estimator": "honaker"})])
@given(data=st.data(), horizon=st.integers(1, 130))
@settings(max_examples=12, deadline=None)
def test_add_many_is_as_many_calls_of_add(mechanism, parameters, data, horizon):
    splits = data.draw(st.lists(st.integers(0, horizon), max_size=4))
    draws = 2 * horizon
    _, expected = noise_matrix(mechanism, horizon, draws, **parameters)
    _, B = noise_matrix(mechanism, horizon, draws, splits, **parameters)
    np.testing.assert_allclose(B, expected, atol=1e-12)


@pytest.mark.parametrize("noise", ["gaussian", "laplace", "generalized_gaussian", "discrete_gaussian"])
def test_trees_of_long_streams_add_many_across_chunks(noise):
    parameters = {"horizon": 2300, "shape": 120, "sensitivity": 1.0, "noise_multiplier": 1e-3, "noise": noise}
    x = np.random.default_rng(2).integers(-5, 6, size=(2300, 120))
    one, many = (BinaryTree(rng=np.random.default_rng(3), **parameters) for _ in range(2))
    together = np.vstack([many.add_many(x[:700]), [many.add(x[700])], many.add_many(x[701:])])
    np.testing.assert_allclose(together, np.cumsum(x, axis=0), atol=0.2)
    np.testing.assert_allclose([one.add(row) for row in x], np.cumsum(x, axis=0), atol=0.2)


# ------------------------------------------------------------------------------- the level of the noise


def only_at_the_stated_scale(measured, stated, tolerance):
    """Whether that is what standard deviations are, and 0.9 and 1.1 of it are not."""
    return all(
        set(np.ravel(np.abs(measured / (wrong * stated) - 1) < tolerance)) == {wrong == 1.0}
        for wrong in (0.9, 1.0, 1.1)
    )


@pytest.mark.parametrize(
    ("mechanism", "parameters"),
    [
        *PLAIN,
        (Discounted, {"discount": 0.8}),
        (BinaryTree, {"estimator": "honaker"}),
        (BinaryTree, {"noise": "laplace"}),
        (BinaryTree, {"noise": "laplace", "estimator": "honaker"}),
        (BinaryTree, {"noise": "discrete_gaussian"}),
    ],
)
@pytest.mark.parametrize("secure", [False, True])
def test_measured_noise_has_the_stated_standard_deviation(mechanism, parameters, secure):
    # Relative standard error of a standard deviation over n values of kurtosis at most 6: √(5/(4n)). Eleven
    # comparisons at 6.5 standard errors: false alarm below 1e-9. A scale off by a tenth is 12 standard errors away.
    n, horizon = 20_000, 11
    known = {"shape": n, "sensitivity": 3.0, "noise_multiplier": 0.7} | parameters | length(mechanism, horizon)
    sums = mechanism(rng=None if secure else np.random.default_rng(11), **known)
    measured = np.array([sums.add(np.zeros(n, dtype=int)).std() for _ in range(horizon)])
    stated = np.array([sums.noise_std(t + 1) for t in range(horizon)])
    assert only_at_the_stated_scale(measured, stated, 6.5 * math.sqrt(5 / (4 * n)))


@pytest.mark.parametrize(
    ("parameters", "dimension"),
    [
        ({"noise": "generalized_gaussian", "q": 4.0}, 5),
        ({"noise": "generalized_gaussian", "q": math.inf}, 40),
        ({"noise": "generalized_gaussian", "q": 1.5}, 3),
        ({"noise": "discrete_gaussian"}, 2),
        ({"noise": "laplace"}, 2),
    ],
)
@pytest.mark.parametrize("noise_multiplier", [0.45, 6.0])
def test_measured_node_noise_has_the_stated_standard_deviation(parameters, dimension, noise_multiplier):
    # at odd steps a new node of level 0 is added to the last sum: 2¹⁴ independent rows, kurtosis at most 6
    horizon = 2**15 - 1
    known = {"horizon": horizon, "shape": dimension, "sensitivity": 1.0, "noise_multiplier": noise_multiplier}
    sums = BinaryTree(rng=np.random.default_rng(5), **known, **parameters)
    estimates = sums.add_many(np.zeros((horizon, dimension), dtype=int))
    nodes = estimates[0::2] - np.vstack([np.zeros((1, dimension)), estimates[1:-1:2]])
    assert only_at_the_stated_scale(nodes.std(), sums.noise_std(1), 6.5 * math.sqrt(5 / (4 * 2**14)))


def test_generalized_gaussian_nodes_have_the_law_of_their_norm():
    # ‖n‖_r² / σ₊² follows χ²_d: its mean is d with standard error √(2d/n), at 6.5 of them a false alarm below 1e-10
    d, n, z, s = 6, 20_000, 2.0, 0.5
    r, kappa = best_norm(math.inf, d)
    known = {"shape": d, "sensitivity": s, "noise_multiplier": z, "noise": "generalized_gaussian", "q": math.inf}
    sums = BinaryTree(horizon=n, **known, rng=np.random.default_rng(2))
    estimates = np.vstack([np.zeros((1, d)), sums.add_many(np.zeros((n, d)))])
    nodes = estimates[1::2] - estimates[0:-1:2]
    squares = np.linalg.norm(nodes, r, axis=1) ** 2 / (kappa * (z * s) ** 2)
    assert abs(squares.mean() - d) < 6.5 * math.sqrt(2 * d / len(squares))


# --------------------------------------------------------------------------------- published values


@tabled("horizon", sorted(SQRT_TOEPLITZ))
def test_buffered_toeplitz_is_below_the_square_root_factorization_and_above_the_optimum(horizon):
    sums = BufferedToeplitz(horizon=horizon, **UNIT)
    worst = max(map(sums.noise_std, range(horizon // 4, horizon + 1, max(1, horizon // 4096))))
    assert worst <= 0.965 * SQRT_TOEPLITZ[horizon]
    assert sums.noise_std(horizon) <= 0.81 * SQRT_TOEPLITZ[horizon]
    assert worst >= OPTIMUM_AT_LEAST.get(horizon, 0.0)


@tabled("horizon", [1, 2, 10, 25, 333, 1024])
def test_at_no_step_has_buffered_toeplitz_more_noise_than_the_square_root_factorization(horizon):
    known = {"horizon": horizon, **UNIT}
    ours, reference = BufferedToeplitz(**known), Toeplitz(**known)
    for t in range(1, horizon + 1):
        assert ours.noise_std(t) <= reference.noise_std(t) * (1 + 2e-3)


@tabled("horizon", sorted(SQRT_TOEPLITZ_RMS))
def test_toeplitz_has_its_published_errors(horizon):
    sums = Toeplitz(horizon=horizon, **UNIT)
    errors = np.array([sums.noise_std(t) for t in range(1, horizon + 1)])
    assert SQRT_TOEPLITZ[horizon] * 0.99999 <= errors.max() <= SQRT_TOEPLITZ[horizon] * 1.001
    assert 0.9999 <= math.sqrt((errors**2).mean()) / SQRT_TOEPLITZ_RMS[horizon] <= 1.001


@tabled("horizon", sorted(TREE))
def test_binary_trees_have_their_published_worst_errors(horizon):
    for estimator, bound in (("standard", TREE), ("honaker", HONAKER)):
        tree = BinaryTree(horizon=horizon, **UNIT, estimator=estimator)
        # at rho = 1/2 the noise multiplier of a node is √levels
        worst = gdp(tree.cost) * max(map(tree.noise_std, range(1, horizon + 1)))
        assert bound[horizon] * 0.998 <= worst <= bound[horizon] * 1.001


@tabled(
    ("horizon", "buffers", "ratio"),
    [(1024, 8, 1.0025), (1024, 12, 1.00013), (1024, 16, 1.00009), (16384, 8, 1.0072), (16384, 12, 1.00025)],
)
def test_the_quadrature_has_its_published_accuracy(horizon, buffers, ratio):
    c = sqrt_coefficients(horizon, buffers)
    error = math.sqrt(c.squared_norm(horizon) * prefix_sum_errors(c).squared_norm(horizon))
    assert error / SQRT_TOEPLITZ[horizon] == pytest.approx(ratio, abs=6e-5)


def test_an_unknown_horizon_costs_at_most_a_factor_of_1_8_at_every_length():
    unbounded = Unbounded(**UNIT)
    for t in sorted({round(2 ** (k / 2)) for k in range(0, 81, 2)}):
        known = BufferedToeplitz(horizon=t, **UNIT)
        assert unbounded.noise_std(t) <= 1.8 * known.noise_std(t)
    assert unbounded.horizon == 2**40


# ------------------------------------------------------------------------------------------- rounding


@tabled("horizon", [1, 3, 1000, 2**20, 2**30])
def test_column_norms_are_never_rounded_down(horizon):
    mpmath = pytest.importorskip("mpmath")
    known, unknown = sqrt_coefficients(horizon, 8 + horizon.bit_length() // 4), square_summable_coefficients()
    # the first estimate has the noise of one ζ, at the scale of the first column
    for c, n, used in (
        (known, horizon, column_scales(known, horizon).error(1)),
        (unknown, 2**40, column_scales(unknown, 2**40, constant=True).error(1)),
    ):
        with mpmath.workdps(60):
            w = [mpmath.mpf(float(value)) for value in c.weights]
            r = [mpmath.mpf(float(value)) for value in c.rates]
            square = mpmath.fsum(
                a * b * (1 - (p * q) ** n) / (1 - p * q)
                for a, p in zip(w, r, strict=True)
                for b, q in zip(w, r, strict=True)
            )
            assert mpmath.sqrt(square) <= used <= mpmath.sqrt(square) * (1 + mpmath.mpf(10) ** -11)


@tabled("horizon", [1, 2, 25, 1000, 20_000])
def test_coefficients_are_nonnegative_and_begin_with_one(horizon):
    for mechanism in (BufferedToeplitz, Toeplitz):
        c = mechanism(horizon=horizon, **UNIT).coefficients
        assert c.shape == (horizon,)
        assert (c >= 0).all()
        assert c[0] == pytest.approx(1.0, abs=1e-15)


def test_integers_are_exact_far_beyond_the_precision_of_floats():
    parameters = {"horizon": 6, "shape": 3, "sensitivity": 1.0, "noise_multiplier": 5.0, "noise": "discrete_gaussian"}
    zero, far = (BinaryTree(rng=np.random.default_rng(4), **parameters) for _ in range(2))
    x = np.array([2**59 + 1, -(2**59) - 3, 7])
    for t in range(1, 7):
        difference = far.add(x) - zero.add(np.zeros(3, dtype=int))
        assert difference.dtype == np.int64
        assert difference.tolist() == [t * int(v) for v in x]


@tabled("many", [False, True])
@tabled(("x", "message"), [(2**61 + 1, "x must be at most"), (-(2**63), "x must be"), (2**61, "the sum")])
def test_integers_that_could_overflow_are_refused(x, message, many):
    sums = BinaryTree(horizon=5, shape=(), sensitivity=1.0, noise_multiplier=1.0, noise="discrete_gaussian")
    sums.add_many([2**61, 2**61 - 5])
    before = sums.kept()
    with pytest.raises(ValueError, match=message):
        sums.add_many([x]) if many else sums.add(x)
    assert sums.steps == 2
    assert [str(value) for value in sums.kept().values()] == [str(value) for value in before.values()]
    assert before["sums"].max() == 2**62 - 5


@pytest.mark.parametrize("mechanism", [BufferedToeplitz, Unbounded, Toeplitz, BinaryTree])
def test_the_noise_of_single_numbers_is_that_of_rows_each_used_once_and_overwritten(mechanism):
    known = {} if mechanism is Unbounded else {"horizon": 900}
    known |= {"shape": (), "sensitivity": 0.5, "noise_multiplier": 3.0}
    streams = [mechanism(rng=np.random.default_rng(7), **known) for _ in range(2)]
    numbers, rows = map(noise_of, streams)
    drawn = [numbers.one(10**6) for _ in range(900)]
    assert drawn == [int(rows.add_to(np.array([[10**6]]))[0, 0]) for _ in range(900)]
    assert len(set(drawn)) > 800
    kept = streams[0].kept()
    assert not kept["ahead"][: kept["ahead_used"]].any()

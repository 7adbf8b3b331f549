"""Banded factorizations: against dense matrices, other people's numbers, and every set of steps and signs by force."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from factors import decoder, encoder, triangle, worst_unit
from hypothesis import given, settings
from hypothesis import strategies as st
from tabled import tabled

from accounting import Budget, Gaussian
from dpkit.continual import Banded, ContinualSum, inverse_root, optimal
from dpkit.continual._optimal_bands import mean_square, squared_sensitivity
from dpkit.continual._series import inverse_series
from dpkit.continual.banded import lowest_error, root_mean_square_error

SCALAR = {"shape": (), "sensitivity": 1.0, "noise_multiplier": 1.0}


def dense(banded: Banded) -> np.ndarray:
    """C."""
    a = triangle(banded.coefficients, banded.horizon)
    return np.linalg.inv(a) if banded.inverse else a


def some(data, T: int) -> Banded:
    """Any banded factorization of T steps."""
    p = data.draw(st.integers(1, T))
    inverse = data.draw(st.booleans())
    off = np.array(data.draw(st.lists(st.floats(0, 1, allow_subnormal=False), min_size=p - 1, max_size=p - 1)))
    if inverse and off.size:
        off = -off / max(1.0, off.sum() * (1 + 1e-9))
    return Banded(np.concatenate([[1.0], off]), T, inverse=inverse)


# ---------------------------------------------------------------------------------------------- other people's numbers


@tabled("power", [Fraction(1, 2), Fraction(7, 8), Fraction(1)])
def test_closed_form(power):
    """Kalinin, McKenna, Upadhyay & Lampert (2025) for 1/2: r_0 = 1, r_k = r_{k−1}(k − 3/2)/k."""
    exact = [Fraction(1)]
    for k in range(1, 12):
        exact.append(exact[-1] * (k - 1 - power) / k)
    found = inverse_root(50, bands=12, power=float(power)).coefficients
    np.testing.assert_allclose(found, [float(r) for r in exact], rtol=1e-14)


def test_other_roots_are_better_where_bands_are_few_and_none_is_better_than_the_optimum():
    known = {"participations": 10, "min_separation": 100}
    for bands in (2, 8):
        root, other = (
            root_mean_square_error(inverse_root(1000, bands=bands, power=power), **known)
            for power in (0.5, 0.95 if bands == 2 else 0.77)
        )
        best = root_mean_square_error(optimal(1000, bands=bands, inverse=True, **known), **known)
        assert best * 0.999 < other < 0.7 * root
    assert best < 0.94 * other  # of eight
    with pytest.raises(ValueError, match="power"):
        inverse_root(50, bands=3, power=0.8, momentum=0.5)


@tabled("beta", [0.0, 0.3, 0.9])
def test_all_bands_are_the_square_root_of_the_workload(beta):
    T = 40
    workload = triangle(np.ones(T), T) @ triangle(beta ** np.arange(T), T)
    C = dense(inverse_root(T, bands=T, momentum=beta))
    np.testing.assert_allclose(C @ C, workload, rtol=1e-10, atol=1e-12)


# jax-privacy (github.com/google-deepmind/jax_privacy, matrix_factorization.toeplitz, float64): the root of the product
# of minsep_sensitivity_squared and the mean of per_query_error, for banded_inverse_square_root_noising_coefs(p) …
BISR = {
    (1000, 64, 10, 100): 12.365843666565494,
    (1000, 16, 10, 100): 15.986812552708606,
    (2000, 100, 20, 100): 21.918217526025604,
    (10_000, 64, 10, 1000): 26.42535237400947,
}
# … for optimize_banded_toeplitz(n, p), one participation …
BANDED = {
    (1000, 8): 8.351642329405193,
    (1000, 64): 4.03486784154247,
    (2000, 100): 4.518353930753955,
    (10_000, 64): 9.852662665362258,
}
# … and for optimize_banded_inverse_toeplitz, 250 steps, of which coefficients may have any sign
INVERSE = {(1000, 64, 10, 100): 12.07041534894563, (1000, 16, 10, 100): 12.22607929292399}


@tabled(("n", "p", "k", "b"), sorted(BISR))
def test_closed_form_has_the_published_error(n, p, k, b):
    found = root_mean_square_error(inverse_root(n, bands=p), participations=k, min_separation=b)
    assert found == pytest.approx(BISR[n, p, k, b], rel=1e-8)


@tabled(("n", "p"), sorted(BANDED))
def test_optimal_bands_have_the_published_error(n, p):
    assert root_mean_square_error(optimal(n, bands=p)) == pytest.approx(BANDED[n, p], rel=1e-6)


@pytest.mark.parametrize(("n", "p", "k", "b"), sorted(INVERSE))
def test_optimal_inverse_bands_are_within_a_hundredth_of_the_published_error(n, p, k, b):
    known = {"participations": k, "min_separation": b}
    found = root_mean_square_error(optimal(n, bands=p, inverse=True, **known), **known)
    assert found <= 1.01 * INVERSE[n, p, k, b]
    assert found < 0.99 * root_mean_square_error(inverse_root(n, bands=p), **known)


# -------------------------------------------------------------------------------------------------------- the matrices


@settings(max_examples=60, deadline=None)
@given(T=st.integers(1, 12), data=st.data())
def test_streams_are_the_dense_mechanism(T, data):
    banded = some(data, T)
    sums = ContinualSum(banded, shape=T, sensitivity=1.0, noise_multiplier=1.0, rng=np.random.default_rng(0))
    C, A = dense(banded), np.tril(np.ones((T, T)))
    B = decoder(sums, T)
    np.testing.assert_allclose(B @ C, A, atol=1e-6)
    np.testing.assert_allclose([banded.error(t) for t in range(1, T + 1)], np.linalg.norm(B, axis=1), rtol=1e-6)
    assert np.linalg.norm(C, axis=0).max() <= banded.column_norm
    np.testing.assert_allclose(encoder(banded, T), C, atol=0.6 * 2.0**-20)


@settings(max_examples=40, deadline=None)
@given(T=st.integers(1, 2000), p=st.integers(1, 40), data=st.data())
def test_series(T, p, data):
    off = np.array(data.draw(st.lists(st.floats(-1, 0, allow_subnormal=False), min_size=p - 1, max_size=p - 1)))
    a = np.concatenate([[1.0], off / max(1.0, -off.sum())])
    c = inverse_series(a, T)
    residual = np.convolve(a, c)[:T]
    residual[0] -= 1.0
    assert np.abs(residual).max(initial=0.0) <= 1e-14
    assert (c >= 0).all()
    assert (c <= 1 + 1e-12).all()


# ------------------------------------------------------------------------------------------------------- sensitivities


@settings(max_examples=50, deadline=None)
@given(T=st.integers(1, 8), m=st.integers(1, 4), b=st.integers(1, 4), data=st.data())
def test_no_unit_moves_a_stream_farther_than_the_joint_norm(T, m, b, data):
    banded = some(data, T)
    most = worst_unit(dense(banded), min(m, -(-T // b)), b)
    claimed = banded.joint_norm(m, b)
    assert most <= claimed * (1 + 1e-12)
    falls = (np.diff(dense(banded)[:, 0]) <= 0).all()
    if falls or (not banded.inverse and banded.bands <= b) or min(m, -(-T // b)) == 1:
        assert claimed <= most * (1 + 1e-9)


@tabled("inverse", [False, True])
@tabled(("T", "m", "b"), [(60, 1, 1), (60, 6, 10), (64, 4, 16)])
def test_what_is_made_has_exact_sensitivities(T, m, b, inverse):
    known = {"participations": m, "min_separation": b}
    banded = optimal(T, bands=8, inverse=inverse, **known) if not inverse else inverse_root(T, bands=8)
    C = dense(banded)
    exact = np.linalg.norm(C[:, [j * b for j in range(m)]].sum(axis=1))
    assert banded.joint_norm(m, b) == pytest.approx(exact, rel=1e-9)


def test_one_participation_more_costs_more():
    banded = inverse_root(100, bands=8)
    assert banded.joint_norm(5, 20) > 1.1 * banded.joint_norm(4, 20)
    # there is no room for a sixth
    assert banded.joint_norm(6, 20) == banded.joint_norm(5, 20)


# ---------------------------------------------------------------------------------------------------------- the search


@pytest.mark.parametrize("beta", [0.0, 0.8])
@pytest.mark.parametrize("rates", [None, np.linspace(1.0, 0.1, 30)])
def test_errors_and_gradients(beta, rates):
    T = 30
    rng = np.random.default_rng(0)
    n = np.concatenate([[1.0], -rng.random(T - 1) / T])
    eta = np.ones(T) if rates is None else rates
    workload = np.tril(np.ones((T, T))) @ np.diag(eta) @ triangle(beta ** np.arange(T), T)
    squares = np.sum((workload @ triangle(n, T)) ** 2, axis=1)
    value, gradient = mean_square(n, beta, rates)
    rows = np.arange(T) if rates is None else np.unique(np.ceil(np.linspace(0, T, 25)[1:]).astype(int)) - 1
    assert value == pytest.approx(squares[rows].mean(), rel=1e-9)
    step = 1e-6 * rng.normal(size=T)
    moved = mean_square(n + step, beta, rates)[0] - mean_square(n - step, beta, rates)[0]
    assert moved == pytest.approx(2 * gradient @ step, rel=1e-5)
    c = inverse_series(n, T)
    value, gradient = squared_sensitivity(c, 3, 7)
    assert value == pytest.approx(np.linalg.norm(triangle(c, T)[:, [0, 7, 14]].sum(axis=1)) ** 2)
    moved = squared_sensitivity(c + step, 3, 7)[0] - squared_sensitivity(c - step, 3, 7)[0]
    assert moved == pytest.approx(2 * gradient @ step, rel=1e-6)


@pytest.mark.parametrize("more", [{}, {"momentum": 0.9}, {"rates": np.linspace(1.0, 0.01, 400)}])
def test_what_is_searched_for_is_better_than_the_closed_form(more):
    known = {"participations": 4, "min_separation": 100, **more}
    closed = inverse_root(400, bands=32, momentum=more.get("momentum", 0.0))
    found = lowest_error(400, bands=32, **known)
    assert root_mean_square_error(found, **known) < root_mean_square_error(closed, **known)
    if more:  # made for another workload it is worse
        other = lowest_error(400, bands=32, participations=4, min_separation=100)
        assert root_mean_square_error(found, **known) < 0.9999 * root_mean_square_error(other, **known)


def test_ten_thousand_steps():
    known = {"participations": 10, "min_separation": 1000}
    found = lowest_error(10_000, bands=64, **known)
    assert root_mean_square_error(found, **known) == pytest.approx(15.26, rel=2e-3)


# --------------------------------------------------------------------------------------------------------- as a stream


def test_states_go_on_with_the_same_coefficients():
    banded = inverse_root(20, bands=4)
    sums = ContinualSum(banded, **SCALAR, participations=2, min_separation=10, rng=np.random.default_rng(0))
    for x in np.linspace(-1, 1, 7):
        sums.add(x)
    state = sums.state()
    # which coefficients are given does not matter; γ is told by all versions but the first
    other = Banded([1.0, -0.5, -0.1, 0.0], 20, inverse=True)
    without = {name: value for name, value in state.items() if name != "gamma"}
    pairs = [(state, inverse_root(20, bands=4)), (state, other), (without, inverse_root(20, bands=4))]
    restored = [ContinualSum.restore(saved, factorization=factorization) for saved, factorization in pairs]
    expected = [sums.add(0.5) for _ in range(13)]
    for again in restored:
        assert [again.add(0.5) for _ in range(13)] == expected
        assert again.noise_std(20) == sums.noise_std(20)
    with pytest.raises(ValueError, match="inputs"):
        ContinualSum.restore(state | {"inputs": np.full((3, 1), 1e30)}, factorization=inverse_root(20, bands=4))


ELSEWHERE = """
import sys, numpy as np
from dpkit.continual import ContinualSum, optimal
sums = ContinualSum(
    optimal(100, bands=32, inverse=True, participations=5, min_separation=20), shape=2, sensitivity=1.0,
    noise_multiplier=2.0, participations=5, min_separation=20, rng=np.random.default_rng(0),
)
sums.add_many(np.ones((50, 2)))
np.savez(sys.argv[1], **sums.state())
"""


@pytest.mark.thorough
def test_a_stream_goes_on_where_linear_algebra_rounds_otherwise(tmp_path):
    """Saved with kernels that any x86 processor has: where it has others as well, the search ends elsewhere there."""
    path = tmp_path / "state.npz"
    environment = os.environ | {"OPENBLAS_CORETYPE": "Prescott"}
    subprocess.run([sys.executable, "-c", ELSEWHERE, str(path)], check=True, env=environment)
    with np.load(path) as file:
        state = dict(file)
    known = {"participations": 5, "min_separation": 20}
    here = optimal(100, bands=32, inverse=True, **known)
    again = ContinualSum.restore(state, factorization=here)
    saved = Banded(state["coefficients"], 100, inverse=True)
    np.testing.assert_allclose(here.coefficients, saved.coefficients, atol=1e-4)
    # as the stream that was made with the saved coefficients, and never stopped
    through = ContinualSum(saved, shape=2, sensitivity=1.0, noise_multiplier=2.0, **known, rng=np.random.default_rng(0))
    through.add_many(np.ones((50, 2)))
    np.testing.assert_allclose(again.add_many(np.ones((50, 2))), through.add_many(np.ones((50, 2))), rtol=1e-12)
    assert [again.noise_std(t) for t in (1, 100)] == [through.noise_std(t) for t in (1, 100)]
    np.testing.assert_array_equal(again.kept()["coefficients"], state["coefficients"])


def covers(sums: ContinualSum, factorization: Banded) -> bool:
    """Whether noise in encoded rows is at least z times their distance, for inputs in units of γ."""
    norm = factorization.joint_norm(sums.participations, sums.min_separation)
    steps = norm * sums.sensitivity / sums.kept()["gamma"] + factorization.excess(1, 2)
    return 2.0**sums._law.bits >= sums.noise_multiplier * steps * (1.0 - 1e-12)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_noise_of_a_restored_stream_is_that_of_its_saved_coefficients(data):
    """Whatever factorization is given; and with other coefficients, which may need more noise, the state is refused."""
    T, m, b = data.draw(st.integers(2, 20)), data.draw(st.integers(1, 3)), data.draw(st.integers(1, 6))
    saved, other = some(data, T), some(data, T)
    options = SCALAR | {"participations": m, "min_separation": b}
    sums = ContinualSum(saved, **options, rng=np.random.default_rng(0))
    sums.add(1.0)
    state = sums.state()
    if (other.bands, other.inverse) == (saved.bands, saved.inverse):
        again = ContinualSum.restore(state, factorization=other)
        assert again.noise_std(T) == sums.noise_std(T)
        assert covers(again, saved)
        moved = state | {"coefficients": other.coefficients}
        if abs(other.joint_norm(m, b) / saved.joint_norm(m, b) - 1.0) > 1e-11:
            with pytest.raises(ValueError, match="gamma must be"):
                ContinualSum.restore(moved, factorization=saved)
            # nor in a state of a version that kept no γ, for which the given factorization speaks
            moved.pop("gamma")
            with pytest.raises(ValueError, match="gamma must be"):
                ContinualSum.restore(moved, factorization=saved)
        else:
            assert covers(ContinualSum.restore(moved, factorization=saved), other)
    else:
        with pytest.raises(ValueError, match="must"):
            ContinualSum.restore(state, factorization=other)


@tabled(
    ("change", "word"),
    [
        ({"coefficients": np.array([1.0, -0.5, -0.125, -0.0626])}, "gamma"),
        ({"coefficients": np.array([1.0, -0.5, -0.125, 0.0])}, "gamma"),
        ({"coefficients": np.array([1.0, -0.5, -0.125, 0.1])}, "coefficients"),
        ({"coefficients": np.array([1.0, -0.5, -0.4, -0.4])}, "coefficients"),
        ({"coefficients": np.array([1.0, -0.5, -0.125, math.inf])}, "coefficients"),
        ({"coefficients": np.array([1.0, -0.5, -0.125])}, "coefficients"),
        ({"coefficients": np.array([0.9, -0.5, -0.125, -0.0625])}, "coefficients"),
        ({"gamma": 1e-30}, "gamma"),
        ({"sensitivity": 0.5}, "gamma"),
        ({"noise_multiplier": 3.0}, "gamma"),
        ({"noise_multiplier": SCALAR["noise_multiplier"] / 4}, "noise_std"),
        ({"participations": 1}, "gamma"),
    ],
)
def test_a_state_in_which_one_entry_belies_the_noise_is_refused(change, word):
    sums = ContinualSum(
        inverse_root(20, bands=4), **SCALAR, participations=2, min_separation=10, rng=np.random.default_rng(0)
    )
    sums.add(1.0)
    with pytest.raises(ValueError, match=f"{word} .*must be"):
        ContinualSum.restore(sums.state() | change, factorization=inverse_root(20, bands=4))


def test_a_stream_goes_on_with_no_longer_horizon():
    """Its noise was for shorter columns."""
    sums = ContinualSum(inverse_root(20, bands=4), **SCALAR, rng=np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"gamma must be .* give the factorization"):
        ContinualSum.restore(sums.state(), factorization=inverse_root(40, bands=4))


def test_calibration():
    budget = Budget(1.0, 1e-6)
    known = {"shape": 2, "sensitivity": 1.0, "participations": 5, "min_separation": 20}
    sums = ContinualSum.calibrated(budget=budget, factorization=inverse_root(100, bands=16), **known)
    assert isinstance(sums.cost, Gaussian)
    expected = (
        sums.noise_multiplier * inverse_root(100, bands=16).joint_norm(5, 20) * inverse_root(100, bands=16).error(100)
    )
    assert sums.noise_std(100) == pytest.approx(expected, rel=2e-3)


@tabled(
    ("bad", "word"),
    [
        (lambda: Banded([0.5], 3, inverse=False), "coefficients"),
        (lambda: Banded([1.0, 0.5], 3, inverse=True), "coefficients"),
        (lambda: Banded([1.0, -0.7, -0.4], 3, inverse=True), "coefficients"),
        (lambda: Banded([1.0, -0.1], 3, inverse=False), "coefficients"),
        (lambda: Banded([1.0, math.nan], 3, inverse=False), "coefficients"),
        (lambda: Banded([1.0] * 4, 3, inverse=False), "coefficients"),
        (lambda: Banded([1.0], 2**30, inverse=False), "horizon"),
        (lambda: inverse_root(10, bands=2, momentum=1.0), "momentum"),
        (lambda: optimal(10, bands=6, participations=2, min_separation=5), "min_separation"),
        (lambda: optimal(10, rates=[1.0]), "rates"),
    ],
)
def test_bad_parameters(bad, word):
    with pytest.raises(ValueError, match=word):
        bad()


def test_several_inputs_at_once_have_their_own_sums():
    x = np.random.default_rng(0).normal(size=(9, 2))
    for inverse in (False, True):
        sums = ContinualSum(
            Banded([1.0, -0.5 if inverse else 0.5], 9, inverse=inverse), shape=2, sensitivity=1.0, noise_multiplier=1e-9
        )
        np.testing.assert_allclose(sums.add_many(x), np.cumsum(x, axis=0), atol=1e-7)

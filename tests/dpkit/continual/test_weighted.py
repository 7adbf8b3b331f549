"""The best factor for weighted sums: how near it is to what any can have, its signs, its states."""

from __future__ import annotations

import math

import numpy as np
import pytest
from factors import decoder, factorization_of, row_std
from hypothesis import given, settings
from hypothesis import strategies as st

from dpkit.continual import BufferedToeplitz, Weighted, weighted

SCALAR = {"shape": (), "sensitivity": 1.0, "noise_multiplier": 1.0}

# as those of a bandit's releases, alike, and of no order at all
WEIGHTS = st.one_of(
    st.tuples(st.integers(1, 40), st.floats(0.0, 2.5), st.floats(1.0, 1.5), st.integers(0, 39)).map(
        lambda drawn: (
            drawn[2] ** np.arange(drawn[0]) / np.maximum(drawn[2] ** np.arange(drawn[0]), 1.2 ** drawn[3]) ** drawn[1]
        )
    ),
    st.lists(st.floats(-4.0, 4.0), min_size=1, max_size=25).map(lambda logs: np.exp(np.array(logs))),
)


def weighted_noise(C, w):
    """tr(W A X⁻¹ Aᵀ), X = CᵀC."""
    B = np.linalg.solve(C.T, np.tril(np.ones(C.shape)).T).T
    return float(w @ (B**2).sum(axis=1))


def least(C, w):
    """A lower bound on :func:`weighted_noise` of every factor with columns of norm at most 1, from a dual V."""
    A = np.tril(np.ones(C.shape))
    G, X = A.T @ (w[:, None] * A), C.T @ C
    inverse = np.linalg.inv(X)
    v = np.diag(inverse @ G @ inverse)
    r = np.sqrt(v)
    eigenvalues = np.linalg.eigvalsh(r[:, None] * G * r)
    return 2.0 * float(np.sqrt(np.maximum(eigenvalues, 0.0)).sum()) - float(v.sum())


@settings(max_examples=60, deadline=None)
@given(weights=WEIGHTS)
def test_no_factor_has_less_noise_by_more_than_a_hundredth(weights):
    C, w = Weighted(weights=weights, **SCALAR).factor, weights / weights.max()
    assert C.min() >= 0.0
    assert not np.triu(C, 1).any()
    np.testing.assert_allclose(np.linalg.norm(C, axis=0), 1.0, rtol=1e-12)
    assert 1.0 - 1e-9 <= weighted_noise(C, w) / least(C, w) <= 1.01


def test_the_factor_of_a_bandit_is_within_a_thousandth_of_the_best():
    t = np.cumsum(20.0 * 1.2 ** np.arange(25))
    for start in (1.0, 100.0, 1000.0, 1e5):
        w = 1.2 ** np.arange(25) / np.maximum(t, start) ** 1.5
        C = Weighted(weights=w, **SCALAR).factor
        assert weighted_noise(C, w) <= 1.001 * least(C, w)


def test_two_sums_in_closed_form():
    """C = ((cos φ, 0), (sin φ, 1)) has the variances 1/cos²φ and 1 + ((1 − sin φ)/cos φ)²: best by a fine grid."""
    phi = np.linspace(0.0, 1.4, 200_001)
    for w in ([1.0, 1.0], [1.0, 5.0], [3.0, 1.0]):
        of_each = np.array([1.0 / np.cos(phi) ** 2, 1.0 + ((1.0 - np.sin(phi)) / np.cos(phi)) ** 2])
        C = Weighted(weights=w, **SCALAR).factor
        assert weighted_noise(C, np.array(w)) == pytest.approx(float((w @ of_each).min()), rel=1e-6)


def test_noise_goes_where_it_matters_least():
    w = np.ones(20)
    w[8:12] = 50.0
    sums, plain = Weighted(weights=w, **SCALAR), BufferedToeplitz(horizon=20, **SCALAR)
    of_each = np.array([[one.noise_std(t) for t in range(1, 21)] for one in (sums, plain)])
    assert (of_each[0, 8:12] < 0.8 * of_each[1, 8:12]).all()
    assert of_each[0, -1] > of_each[1, -1]


@pytest.mark.parametrize("T", [1, 2, 7, 30])
def test_differences_have_the_stated_noise(T):
    sums = Weighted(
        weights=1.0 + np.arange(T) % 3, shape=T, sensitivity=1.0, noise_multiplier=1.0, rng=np.random.default_rng(0)
    )
    stated = [[one(t) for t in range(1, T + 1)] for one in (sums.noise_std, sums.difference_std)]
    B = decoder(sums, T)
    differences = np.diff(B, axis=0, prepend=np.zeros((1, T)))
    np.testing.assert_allclose(
        stated, [row_std(sums) * np.linalg.norm(one, axis=1) for one in (B, differences)], rtol=1e-9
    )


@settings(max_examples=40, deadline=None)
@given(weights=WEIGHTS, m=st.integers(1, 8), b=st.integers(1, 5), data=st.data())
def test_no_set_of_columns_is_longer_than_the_joint_norm(weights, m, b, data):
    sums = Weighted(weights=weights, participations=m, min_separation=b, **SCALAR)
    T = sums.horizon
    steps = np.cumsum(data.draw(st.lists(st.integers(b, b + 6), min_size=m, max_size=m))) - b
    start = data.draw(st.integers(0, T - 1))
    C = sums.factor
    for chosen in (steps, start + steps, T - 1 - np.arange(m) * b):
        inside = chosen[(chosen >= 0) & (chosen < T)]
        assert np.linalg.norm(C[:, inside].sum(axis=1)) <= factorization_of(sums).joint_norm(m, b)
    assert factorization_of(sums).joint_norm(m, b) <= m * (1 + 1e-4)


# ------------------------------------------------------------------------------------------------ states


def test_a_state_goes_on_with_its_own_factor_and_no_other():
    """Another machine's eigenvalues: the same stream but for the last digits of C; other weights are refused."""
    known = {"shape": 3, "sensitivity": 1.0, "noise_multiplier": 1.0}
    one, other = (Weighted(weights=np.arange(1.0, 9.0), rng=np.random.default_rng(seed), **known) for seed in (0, 1))
    one.add_many(np.ones((4, 3)))
    kept = one.kept()
    moved = kept | {"factor": kept["factor"] * (1.0 - 2.0**-30)}
    other.resume(moved)
    np.testing.assert_array_equal(other.kept()["factor"], moved["factor"])
    column = np.linalg.norm(moved["factor"], axis=0).max()
    assert column <= factorization_of(other).column_norm
    before = other.kept()
    elsewhere = Weighted(weights=np.ones(8), **known)
    for factor in (kept["factor"] * 1.001, kept["factor"] + 1e-9, elsewhere.factor):
        with pytest.raises(ValueError, match="factor must be that of the weights"):
            other.resume(kept | {"factor": factor})
        np.testing.assert_array_equal(other.kept()["factor"], before["factor"])
    with pytest.raises(ValueError, match="factor must be that of the weights"):
        elsewhere.resume(kept)


@pytest.mark.parametrize(("place", "entry"), [((0, 1), 1e-12), ((1, 0), -1e-12)])
def test_a_saved_factor_has_nothing_above_the_diagonal_or_below_zero(place, entry):
    """However little: rows above the diagonal would read inputs to come, and moved records need C ≥ 0."""
    factorization = weighted._Dense(np.eye(2))
    saved = {"inputs": np.zeros((0, 1)), "factor": np.eye(2)}
    factorization.check_saved(saved)
    saved["factor"][place] = entry
    with pytest.raises(ValueError, match="factor must be that of the weights"):
        factorization.check_saved(saved)


@pytest.mark.parametrize("factor", [np.eye(3), np.eye(2, dtype=np.float32), np.array([[1.0, 0.0], [math.nan, 1.0]])])
def test_a_saved_factor_of_another_shape_or_type_or_without_a_number_is_refused(factor):
    sums = Weighted(weights=[1.0, 1.0], **SCALAR)
    with pytest.raises(ValueError, match="factor must be finite, float64 and of shape"):
        sums.resume(sums.kept() | {"factor": factor})


@pytest.mark.parametrize("T", [3, 100])
@pytest.mark.parametrize("fall", ["at once", "steadily"])
def test_the_last_digits_of_another_machine_hardly_change_the_factor(T, fall, monkeypatch):
    """Weights as far apart as they may be, and singular values of a matrix that differs by some roundings."""
    w = np.where(np.arange(T) < T // 2, 1.0, 1e-5) if fall == "at once" else np.geomspace(1.0, 1e-5, T)
    here, rng, svd = Weighted(weights=w, **SCALAR).factor, np.random.default_rng(0), np.linalg.svd
    weighted._best.cache_clear()
    monkeypatch.setattr(
        np.linalg, "svd", lambda F: svd(F + 2.0**-52 * np.linalg.norm(F, 2) * rng.standard_normal(F.shape))
    )
    there = Weighted(weights=w, **SCALAR).factor
    weighted._best.cache_clear()
    assert 0.0 < np.abs(there - here).max() < 2.0**-25


def test_factors_within_the_tolerance_stay_below_the_stated_norms():
    """The farthest ones: every entry larger by 2⁻²⁴."""
    sums = Weighted(weights=1.0 + np.arange(60) % 7, participations=3, **SCALAR)
    factorization = factorization_of(sums)
    farthest = np.tril(sums.factor + 2.0**-24)
    assert np.linalg.norm(farthest, axis=0).max() <= factorization.column_norm
    gram = farthest.T @ farthest
    worst = max(gram[np.ix_(s, s)].sum() for s in np.random.default_rng(0).integers(0, 60, (2000, 3)))
    assert math.sqrt(worst) <= factorization.joint_norm(3) * 1.0


@pytest.mark.parametrize(
    "weights", [[], [1.0, 0.0], [1.0, -1.0], [1.0, math.nan], [math.inf], [[1.0]], np.ones(257), 1.0]
)
def test_bad_weights_are_refused(weights):
    with pytest.raises(ValueError, match="weights must be 1 to 256 positive numbers"):
        Weighted(weights=weights, **SCALAR)


def test_only_ratios_of_weights_count_and_no_sum_is_left_to_drown():
    one, other = (Weighted(weights=np.array([1.0, 4.0, 2.0]) * factor, **SCALAR) for factor in (1.0, 1e-200))
    np.testing.assert_allclose(one.factor, other.factor, rtol=1e-9)
    last = Weighted(weights=[1.0] * 20 + [1e-300], **SCALAR)
    assert last.noise_std(21) < 60.0

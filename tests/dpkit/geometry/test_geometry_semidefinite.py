import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpkit.geometry import nearest_psd, ridge_shift, smat

matrices = st.integers(1, 6).flatmap(lambda d: arrays(np.float64, (d, d), elements=st.floats(-100, 100)))


@settings(max_examples=40)
@given(matrices, st.integers(0, 2**32))
def test_nearest_psd_is_a_projection_and_nothing_is_closer(M, seed):
    M = M + M.T
    repaired = nearest_psd(M)
    np.testing.assert_array_equal(repaired, repaired.T)
    assert np.linalg.eigvalsh(repaired).min() >= -1e-9
    np.testing.assert_allclose(nearest_psd(repaired), repaired, atol=1e-9)
    factor = np.random.default_rng(seed).normal(size=M.shape)
    for other in (factor @ factor.T, repaired + 0.01 * factor @ factor.T):
        assert np.linalg.norm(M - repaired) <= np.linalg.norm(M - other) + 1e-9


@settings(max_examples=40)
@given(matrices)
def test_nearest_psd_takes_the_symmetric_part_and_batches(M):
    batch = nearest_psd(np.stack([M, M.T, (M + M.T) / 2]))
    for repaired in batch:
        np.testing.assert_allclose(repaired, batch[0], atol=1e-9)


@pytest.mark.parametrize("bad", [[1.0], [[1.0, 2.0]], [[math.nan]], [[math.inf]]])
def test_nearest_psd_refuses_what_is_no_finite_square(bad):
    with pytest.raises(ValueError, match="M must"):
        nearest_psd(bad)


def test_the_ridge_shift_makes_noise_positive_and_half_of_it_does_not():
    # 200 draws at a stated failure probability of 1e-12: false alarm below 1e-9
    d, sigma = 30, 1.7
    noise = smat(sigma * np.random.default_rng(8).standard_normal((200, d * (d + 1) // 2)))
    smallest = np.linalg.eigvalsh(noise)[:, 0]
    assert (smallest >= -ridge_shift(sigma, d, 1e-12)).all()
    assert (smallest < -0.5 * ridge_shift(sigma, d, 0.5)).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((-1.0, 3, 0.1), "noise_std"), ((1.0, 0, 0.1), "dimension"), ((1.0, 3, 0.0), "failure_probability")],
)
def test_ridge_shift_refuses_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=f"{message} must"):
        ridge_shift(*arguments)

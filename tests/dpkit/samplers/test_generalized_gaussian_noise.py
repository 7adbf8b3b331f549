"""The generalized Gaussian: radius, direction and scale."""

import numpy as np
import pytest
from scipy import stats

from dpkit.samplers import generalized_gaussian

# Kolmogorov–Smirnov tests at this p-value: the false-alarm rate under reseeding.
ALARM = 1e-10


@pytest.mark.parametrize(("norm", "dimension"), [(2.0, 3), (3.0, 1), (3.0, 2), (9.2, 100), (1.0, 4)])
def test_the_squared_norm_is_chi_square_and_no_other_scale(norm, dimension):
    z = generalized_gaussian(norm, 1.5, dimension, 20_000, rng=np.random.default_rng(5))
    squares = np.sum(np.abs(z) ** norm, axis=-1) ** (2 / norm) / 1.5**2
    law = stats.chi2(dimension)
    assert stats.kstest(squares, law.cdf, method="asymp").pvalue > ALARM
    for wrong in (0.9, 1.1):
        assert stats.kstest(wrong**2 * squares, law.cdf, method="asymp").pvalue < ALARM


@pytest.mark.parametrize(("norm", "dimension"), [(3.0, 2), (9.2, 100)])
def test_the_direction_follows_the_cone_measure(norm, dimension):
    """|x_1|^r/‖x‖_r^r ~ Beta(1/r, (d − 1)/r), with independent fair signs."""
    z = generalized_gaussian(norm, 1.0, dimension, 20_000, rng=np.random.default_rng(6))
    powers = np.abs(z) ** norm
    share = powers[:, 0] / powers.sum(axis=-1)
    assert stats.kstest(share, stats.beta(1 / norm, (dimension - 1) / norm).cdf, method="asymp").pvalue > ALARM
    assert stats.kstest(share, stats.beta(1.3 / norm, (dimension - 1) / norm).cdf, method="asymp").pvalue < ALARM
    signs = np.sign(z[:, :2]) @ [2, 1]
    assert stats.chisquare(np.unique(signs, return_counts=True)[1]).pvalue > ALARM
    radius = powers.sum(axis=-1)
    # direction and radius are independent; a correlation of 6.5/√n has probability below 1e-10
    assert abs(np.corrcoef(share, radius)[0, 1]) < 6.5 / np.sqrt(len(z))


def test_norm_two_is_the_ordinary_gaussian():
    z = generalized_gaussian(2.0, 3.0, 4, 20_000, rng=np.random.default_rng(7))
    assert stats.kstest(z.ravel() / 3, stats.norm.cdf, method="asymp").pvalue > ALARM


def test_a_norm_near_two_is_close_to_it():
    # the sampler of r > 2, not the shortcut
    z = generalized_gaussian(2.0000001, 3.0, 4, 20_000, rng=np.random.default_rng(7))
    assert stats.kstest(z.ravel() / 3, stats.norm.cdf, method="asymp").pvalue > ALARM


def test_shapes_and_extremes():
    assert generalized_gaussian(3.0, 1.0, 4).shape == (4,)
    assert generalized_gaussian(3.0, 1.0, 4, (2, 5)).shape == (2, 5, 4)
    assert generalized_gaussian(3.0, 1.0, 4, (2, 0)).shape == (2, 0, 4)
    assert np.all(np.isfinite(generalized_gaussian(1000.0, 1.0, 3, 5000)))  # secure source


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.5, 1.0, 3), "norm must be at least 1"),
        ((float("inf"), 1.0, 3), "norm must be positive and finite"),
        ((3.0, 0.0, 3), "sigma must be positive"),
        ((3.0, 1.0, 0), "dimension must be at least 1"),
    ],
)
def test_bad_parameters_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        generalized_gaussian(*arguments)

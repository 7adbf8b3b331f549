"""Binomial(m, ½) by counting bits."""

import numpy as np
import pytest
from chi_square import fits
from scipy import stats

from dpkit.samplers import binomial, binomial_half


@pytest.mark.parametrize("trials", [1, 5, 8, 9, 31, 64, 65, 130])
def test_the_law_is_binomial_and_no_other_number_of_trials(trials):
    sample = binomial_half(trials, 60_000, rng=np.random.default_rng(trials))
    cells = np.arange(trials + 1)
    assert fits(sample, cells, stats.binom.pmf(cells, trials, 0.5))
    other = np.arange(trials + 2)
    assert not fits(sample, other, stats.binom.pmf(other, trials + 1, 0.5))


def test_more_trials_than_one_block_holds():
    trials = 64 * 8192 * 2 + 77
    sample = binomial_half(trials, 40, rng=np.random.default_rng(0))
    # the mean of 40 deviates by more than 6.5 standard deviations with probability below 1e-10
    assert abs(sample.mean() - trials / 2) < 6.5 * np.sqrt(trials / 4 / 40)
    assert 0.3 < sample.var() / (trials / 4) < 2.5


def test_edges_shapes_and_types():
    assert not binomial_half(0, (3, 2)).any()
    assert binomial_half(7).shape == ()
    assert binomial_half(200, (3, 0)).shape == (3, 0)
    assert binomial_half(200, (3, 4)).dtype == np.int64


@pytest.mark.parametrize("trials", [3, 50, 64, 1000])
def test_counting_without_the_vector_instruction_is_the_same(trials, monkeypatch):
    expected = binomial_half(trials, 1000, rng=np.random.default_rng(4))
    monkeypatch.setattr(binomial, "_popcount", binomial._popcount_arithmetic)
    assert np.array_equal(expected, binomial_half(trials, 1000, rng=np.random.default_rng(4)))


@pytest.mark.parametrize("trials", [-1, 2.5, True, "3"])
def test_bad_trials_are_refused(trials):
    with pytest.raises((TypeError, ValueError), match="trials must be"):
        binomial_half(trials)


def test_more_bits_than_can_be_drawn_are_refused():
    for trials in (2**34 + 1, 2**63, 10**30):
        with pytest.raises(ValueError, match=r"trials must be at most 2\*\*34"):
            binomial_half(trials)

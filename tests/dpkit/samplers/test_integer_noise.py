"""Discrete and rounded Laplace and Gaussian integers against their exact laws."""

import tracemalloc
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from chi_square import ALARM, fits
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tabled import tabled

from dpkit.samplers import (
    _boxes,
    _exact,
    _filtered,
    bernoulli_exp,
    discrete_gaussian,
    discrete_laplace,
    rounded_gaussian,
    rounded_laplace,
)

COUNT = 200_000


def between(cdf, scale):
    return lambda k: cdf((k + 0.5) / scale) - cdf((k - 0.5) / scale)


def normalised(weight, scale):
    reach = np.arange(-60 * int(scale + 1), 60 * int(scale + 1) + 1)
    total = weight(reach, scale).sum()
    return lambda k: weight(k, scale) / total


LAWS = {
    discrete_laplace: lambda t: normalised(lambda k, t: np.exp(-np.abs(k) / t), t),
    discrete_gaussian: lambda s: normalised(lambda k, s: np.exp(-((k / s) ** 2) / 2), s),
    rounded_laplace: lambda t: between(stats.laplace.cdf, t),
    rounded_gaussian: lambda s: between(stats.norm.cdf, s),
}
LIMITS = {discrete_laplace: stats.laplace, rounded_laplace: stats.laplace}

each_sampler = pytest.mark.parametrize("sampler", list(LAWS), ids=lambda sampler: sampler.__name__)


@each_sampler
@pytest.mark.parametrize("scale", [0.3, 0.5, 1.0, 2.7, 12.0])
def test_the_law_is_the_stated_one_and_no_other_scale(sampler, scale):
    cells = np.arange(-int(10 * scale + 3), int(10 * scale + 3) + 1)
    sample = sampler(scale, COUNT, rng=np.random.default_rng(7))
    assert fits(sample, cells, LAWS[sampler](scale)(cells))
    for wrong in (0.9, 1.1):
        assert not fits(sample, cells, LAWS[sampler](wrong * scale)(cells))


@each_sampler
@pytest.mark.parametrize("scale", [1e3, 1e6, 1e9, 2.0**38])
def test_large_scales_have_the_continuous_limit_and_all_residues(sampler, scale):
    sample = sampler(scale, 40_000, rng=np.random.default_rng(3))
    limit = LIMITS.get(sampler, stats.norm)
    # the lattice moves the distribution function by at most 1/scale
    assert stats.kstest(sample / scale, limit.cdf, method="asymp").pvalue > ALARM
    for wrong in (0.9, 1.1):
        assert stats.kstest(wrong * sample / scale, limit.cdf, method="asymp").pvalue < ALARM
    assert stats.chisquare(np.bincount(sample % 16, minlength=16)).pvalue > ALARM


@each_sampler
def test_tiny_scales_give_zero(sampler):
    # P(k ≠ 0) is below exp(−30) for every law
    assert not sampler(0.01, 1000, rng=np.random.default_rng(0)).any()


@each_sampler
@settings(deadline=None, max_examples=15)
@given(log_scale=st.floats(-12, 35), seed=st.integers(0, 2**32))
def test_every_decision_in_double_precision_is_the_exact_one(sampler, log_scale, seed):
    """With the error bounds widened to everything, each value is decided in exact arithmetic from the same bits."""
    scale = 2.0**log_scale
    fast = sampler(scale, 25, rng=np.random.default_rng(seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_filtered, "LOG_ERROR", 4.0)
        patch.setattr(_filtered, "EXP_ERROR", 4.0)
        patch.setattr(_boxes, "_ERROR", 4.0)
        patch.setattr(_boxes, "_PLACE_ERROR", 1e9)
        assert np.array_equal(fast, sampler(scale, 25, rng=np.random.default_rng(seed)))


@pytest.mark.parametrize("sampler", [discrete_laplace, rounded_laplace], ids=lambda sampler: sampler.__name__)
@pytest.mark.parametrize("scale", [2.0**-30, 0.3, 2.7, 1e4, 1e9, 2.0**40])
def test_single_values_are_those_of_arrays(sampler, scale):
    """From the same bits: the short way for a few values decides as arrays do."""
    one_by_one = np.random.default_rng(5)
    singles = [int(sampler(scale, rng=one_by_one)) for _ in range(200)]
    assert singles == sampler(scale, 200, rng=np.random.default_rng(5)).tolist()


@each_sampler
@pytest.mark.parametrize("scale", [0.5, 2.7])
@pytest.mark.parametrize("secure", [False, True])
def test_single_values_have_the_law(sampler, scale, secure):
    rng = None if secure else np.random.default_rng(2)
    sample = np.concatenate([sampler(scale, 3, rng=rng) for _ in range(1000)])
    cells = np.arange(-int(10 * scale + 3), int(10 * scale + 3) + 1)
    assert fits(sample, cells, LAWS[sampler](scale)(cells))
    assert not fits(sample, cells, LAWS[sampler](1.3 * scale)(cells))


@each_sampler
@settings(max_examples=7)
@given(log_scale=st.floats(-12, 35), seed=st.integers(0, 2**32))
def test_every_single_decision_is_the_exact_one(sampler, log_scale, seed):
    scale = 2.0**log_scale
    fast = [int(sampler(scale, rng=np.random.default_rng(seed + i))) for i in range(10)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_filtered, "LOG_ERROR", 4.0)
        patch.setattr(_filtered, "EXP_ERROR", 4.0)
        assert fast == [int(sampler(scale, rng=np.random.default_rng(seed + i))) for i in range(10)]


@settings(deadline=None, max_examples=60)
@given(words=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20), log_scale=st.floats(-30, 30))
def test_the_bound_on_the_logarithm_holds(words, log_scale):
    """Both ends of −ln U, at 60 digits, lie within the bound."""
    offset = 2.0**-log_scale
    y, error = _filtered.log_block(np.array(words, dtype=np.uint64), offset)
    with mpmath.workdps(60):
        for word, value, bound in zip(words, y, error, strict=True):
            u = word >> 1
            if np.isinf(bound):
                assert u == 0
                continue
            for end in (u, u + 1):
                exact = offset - mpmath.log(mpmath.mpf(end) / 2**63)
                assert abs(exact - value) <= bound


class Bits(np.random.Generator):
    """A generator whose words are given: for decisions that random bits almost never lead to."""

    def __init__(self, *words):
        super().__init__(np.random.PCG64(0))
        self.words = list(words)

    def integers(self, low, high=None, size=None, dtype=np.int64, endpoint=False):
        return np.array([self.words.pop(0) for _ in range(size)], dtype=np.uint64)


def test_exact_small_cases():
    """The magnitude at the very ends of an interval of the uniform, against values at 60 digits."""
    with mpmath.workdps(60):
        for t in (Fraction(1, 2), Fraction(3), Fraction(10**9)):
            scale = mpmath.mpf(t.numerator) / t.denominator
            q = mpmath.exp(-1 / scale)
            for k in (1, 2, int(5 * t) + 1):
                # |X| ≥ k exactly while U ≤ 2q^k/(1 + q)
                edge = int(mpmath.floor(2 * q**k / (1 + q) * 2**63))
                for u, bits in ((edge - 1, []), (edge + 1, []), (edge, [0]), (edge, [2**64 - 1])):
                    value = int(discrete_laplace(float(t), 1, rng=Bits(2 * u, *bits, *bits, *bits))[0])
                    uniform = mpmath.mpf(u) / 2**63 + (mpmath.mpf(bits[0]) / 2**127 if bits else 0)
                    assert value == int(mpmath.floor(scale * (mpmath.log(2 / (1 + q)) - mpmath.log(uniform))))


@tabled("kind", [np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64, np.random.MT19937])
def test_words_are_those_of_the_generator(kind):
    ours, theirs = (np.random.Generator(kind(7)) for _ in range(2))
    for count in (1, 5, 200):
        words = theirs.integers(0, 2**64 - 1, size=count, dtype=np.uint64, endpoint=True)
        np.testing.assert_array_equal(_exact.random_words(ours, count), words)
    assert ours.random() == theirs.random()


def test_a_uniform_of_64_zero_bits_is_extended():
    # −ln U is at least 63 ln 2 = 43.7 when the leading 63 bits are zero, and here 64 further bits decide it
    value = discrete_laplace(1.0, 1, rng=Bits(1, 2**63))[0]
    assert value == -int(np.floor(np.log(2 / (1 + np.exp(-1))) + 64 * np.log(2)))
    assert rounded_laplace(1.0, 1, rng=Bits(0, 0, 1, 0))[0] == round(191 * np.log(2))


def test_bernoulli_exp_has_its_probability():
    x = np.array([0.0, 1e-3, 0.5, 1.0, 3.0])
    hits = bernoulli_exp(np.broadcast_to(x, (100_000, 5)), rng=np.random.default_rng(2)).sum(axis=0)
    assert hits[0] == 100_000
    for count, exponent in zip(hits[1:], x[1:], strict=True):
        assert stats.binomtest(int(count), 100_000, np.exp(-exponent)).pvalue > ALARM
        assert stats.binomtest(int(count), 100_000, np.exp(-exponent) * 0.9).pvalue < ALARM
    assert bernoulli_exp(np.zeros((0, 3))).shape == (0, 3)


def test_bernoulli_exp_decides_beyond_64_bits():
    assert bernoulli_exp(np.array([50.0]), rng=Bits(0, 0))[0]  # U < 2⁻¹²⁸ < exp(−50)
    assert not bernoulli_exp(np.array([50.0]), rng=Bits(0, 2**63))[0]  # exp(−50) = 3554.3·2⁻⁸⁴ < 2⁻⁶⁵
    edge = int(mpmath.floor(mpmath.exp(-1) * 2**64))
    with mpmath.workdps(60):
        rest = mpmath.exp(-1) * 2**64 - int(mpmath.floor(mpmath.exp(-1) * 2**64))
        edge, below = int(mpmath.floor(mpmath.exp(-1) * 2**64)), int(mpmath.floor(rest * 2**64))
    assert bernoulli_exp(np.array([1.0]), rng=Bits(edge, below - 1))[0]
    assert not bernoulli_exp(np.array([1.0]), rng=Bits(edge, below + 1))[0]


def test_comparison_with_an_exponential_at_its_edges():
    assert _exact.below_exponential(_exact.LazyUniform(2**64 - 1, 64, Bits()), Fraction(0))
    assert not _exact.below_exponential(_exact.LazyUniform(2**64 - 1, 64, Bits()), Fraction(1, 2**60))
    assert _exact.below_exponential(_exact.LazyUniform(0, 64, Bits()), Fraction(44))


@each_sampler
def test_shapes_and_the_secure_default(sampler):
    assert sampler(3.0).shape == ()
    assert sampler(3.0, 0).shape == (0,)
    noise = sampler(3.0, (200, 300))
    assert noise.shape == (200, 300)
    assert noise.dtype == np.int64
    cells = np.arange(-30, 31)
    assert fits(noise.ravel(), cells, LAWS[sampler](3.0)(cells))  # fails with probability 1e-10


@each_sampler
def test_memory_is_that_of_the_result(sampler):
    sampler(3.0, 10)
    tracemalloc.start()
    sampler(3.0, 500_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 500_000 + 2_000_000


@each_sampler
@tabled("scale", [0.0, -1.0, float("nan"), float("inf"), 2.0**41, 2.0**-41])
def test_bad_scales_are_refused(sampler, scale):
    with pytest.raises(ValueError, match=r"must (be|lie in)"):
        sampler(scale, 3)


def test_bad_exponents_are_refused():
    for wrong in ([-1.0], [float("nan")], [float("inf")]):
        with pytest.raises(ValueError, match="x must be nonnegative and finite"):
            bernoulli_exp(wrong)

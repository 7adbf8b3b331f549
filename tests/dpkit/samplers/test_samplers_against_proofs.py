"""Samplers against transcriptions of proved ones from the same bits, and their laws by all strings of bits."""

import math
from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest
import verified_samplers as plain
from verified_samplers import Logged, Words, law_by_bits

from dpkit.samplers import (
    _boxes,
    binomial_half,
    discrete,
    discrete_gaussian,
    discrete_laplace,
    rounded,
    rounded_laplace,
)
from dpkit.samplers._filtered import BLOCK
from dpkit.samplers.noisy_order import largest_of_few

SCALES = (0.3, 1.0, 2.7, 100.25, 1e6 / 3, 2.0**39 + 0.5)
extended = pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="needs a long double of 64 bits")


# --------------------------------------------------------------------------------------------------- the same bits


def agrees(found, parts, count):
    """Bit for bit; but that a value which 63 digits of its uniform leave open may be the next one."""
    values, open_ = (np.concatenate(part)[:count] for part in zip(*parts, strict=True))
    assert np.count_nonzero(open_) <= 1 + count // 10**5
    np.testing.assert_array_equal(np.where(open_ & (found != values), found - open_, found), values)


def check_laplace(sampler, offset, scale, count, seed):
    source = Logged(seed)
    found = sampler(scale, count, rng=source)
    agrees(found, [plain.laplace_of_words(words, scale, offset) for words in source.blocks()], count)


def check_gaussian(sigma, count, seed):
    source = Logged(seed)
    found = discrete_gaussian(sigma, count, rng=source)
    blocks = source.blocks()
    pairs = zip(blocks[::2], blocks[1::2], strict=True)
    agrees(found, [plain.gaussian_of_words(sigma, *pair) for pair in pairs], count)


def to_nearest(t):
    return 1 / (2 * t)


@extended
@pytest.mark.parametrize("scale", SCALES)
def test_from_the_same_bits(scale):
    """Algorithm 3 with proposals by inversion, bit for bit; the two laws by inversion alone."""
    check_gaussian(scale, 5000, 1)
    check_laplace(discrete_laplace, plain.share_zero, scale, 5000, 2)
    check_laplace(rounded_laplace, to_nearest, scale, 5000, 3)


@extended
def test_another_rule_would_be_seen():
    with pytest.raises(AssertionError):
        check_laplace(discrete_laplace, to_nearest, 2.7, 5000, 2)


@extended
@pytest.mark.slow
@pytest.mark.parametrize("scale", SCALES)
def test_from_the_same_bits_for_a_hundred_million_draws(scale):
    """Six scales, three samplers, six million draws of each."""
    for seed in range(6):
        check_gaussian(scale, 10**6, 3 * seed + 100)
        check_laplace(discrete_laplace, plain.share_zero, scale, 10**6, 3 * seed + 101)
        check_laplace(rounded_laplace, to_nearest, scale, 10**6, 3 * seed + 102)


# ------------------------------------------------------------------------------------- laws by all strings of bits


def fraction(value):
    """A number of 40 digits as it is."""
    return Fraction(int(mpmath.floor(value * 2**130)), 2**130)


def normalised(weight, reach=60):
    """P(k) ∝ weight(k) for |k| ≤ 5; what is beyond ``reach`` is below 1e-30."""
    with mpmath.workdps(40):
        total = mpmath.fsum(weight(k) for k in range(-reach, reach + 1))
        return {k: fraction(weight(k) / total) for k in range(-5, 6)}


def laplace_law(t):
    return normalised(lambda k: mpmath.exp(-abs(k) / mpmath.mpf(t)), 200)


def gaussian_law(variance):
    return normalised(lambda k: mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * mpmath.mpf(variance))))


def rounded_law(cdf):
    with mpmath.workdps(40):
        half = mpmath.mpf(1) / 2
        return {k: fraction(cdf(k + half) - cdf(k - half)) for k in range(-5, 6)}


def enclosed(found, open_, law):
    """Of the outputs of trials that keep some, every probability is at least what is certain, and at most that and all
    that is open; of trials that keep every one, ``found`` and ``open_`` add up to 1."""
    certain = sum(found.values())
    for output, probability in law.items():
        low = found.get(output, Fraction(0))
        assert low / (certain + open_) <= probability <= (low + open_) / (certain + open_), output


def shares(outputs, trials, *, times=1):
    values, counts = np.unique(outputs, return_counts=True)
    return {int(k): Fraction(int(n) * times, trials) for k, n in zip(values, counts, strict=True)}


@pytest.mark.parametrize("depth", [11, pytest.param(15, marks=pytest.mark.slow)])
def test_the_transcriptions_have_their_laws(depth):
    """All strings of single bits."""
    found, open_ = law_by_bits(lambda bit: plain.bernoulli_exp(Fraction(3, 2), bit), depth)
    with mpmath.workdps(40):
        enclosed(found, open_, {True: fraction(mpmath.exp(-1.5)), False: fraction(1 - mpmath.exp(-1.5))})
    assert open_ < 0.1
    found, open_ = law_by_bits(lambda bit: plain.discrete_laplace(Fraction(3, 2), bit), depth)
    enclosed(found, open_, laplace_law(1.5))
    assert open_ < 0.7
    found, open_ = law_by_bits(lambda bit: plain.discrete_gaussian(Fraction(1, 2), bit), depth)
    enclosed(found, open_, gaussian_law(0.5))
    assert open_ < 0.7
    with pytest.raises(AssertionError):
        enclosed(found, open_ / 20, gaussian_law(2.0))


def prefixes(depth):
    """All strings of ``depth`` bits as the beginnings of words: the smallest and the largest word of each."""
    first = np.arange(2**depth, dtype=np.uint64) << np.uint64(64 - depth)
    # the last bit is a sign; and a uniform of which all digits are 0 has no logarithm
    return first | np.uint64(2), first | np.uint64(2 ** (64 - depth) - 2)


ENDS = ((0, 2), (1, 2**64 - 1))  # of a string of bits: which of the two words, and what further digits repeat


@pytest.mark.parametrize("depth", [12, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("scale", [0.7, 1.5])
def test_laplace_laws_by_enumeration(depth, scale):
    """A magnitude falls with its uniform: a string of bits decides where both ends of what may follow agree."""
    words = prefixes(depth)
    with mpmath.workdps(40):
        t = mpmath.mpf(scale)
        rounded = rounded_law(lambda x: mpmath.exp(x / t) / 2 if x < 0 else 1 - mpmath.exp(-x / t) / 2)
    for sampler, law in ((discrete_laplace, laplace_law(scale)), (rounded_laplace, rounded)):
        low, high = (
            sampler(scale, 2**depth, rng=Words(*np.split(words[end], max(1, 2**depth // BLOCK)), further=rest))
            for end, rest in ENDS
        )
        open_ = Fraction(int((low != high).sum()), 2**depth)
        assert open_ < Fraction(30, 2**12)
        # those with a last bit of 1 have the other sign
        positive, negative = (shares(sign * low[low == high], 2 ** (depth + 1)) for sign in (1, -1))
        found = {k: positive.get(k, 0) + negative.get(k, 0) for k in positive.keys() | negative.keys()}
        enclosed(found, open_, law)
        with pytest.raises(AssertionError):
            enclosed(found, open_, laplace_law(1.1 * scale))


REJECTED = 10**9


def gaussian_trial(sigma, first, second, rest):
    """What one trial of the discrete Gaussian keeps, for each pair of words."""
    variance, t = Fraction(sigma) ** 2, math.floor(sigma) + 1
    proposals = discrete._laplace_block(t, first.size, Words(first, further=rest[0]))
    x = (np.abs(proposals) - float(variance / t)) ** 2 / (2 * sigma * sigma)

    def exact(i):
        return (abs(int(proposals[i])) - variance / t) ** 2 / (2 * variance)

    kept = discrete.bernoulli_exp_block(x, exact, Words(second, further=rest[1]))
    return np.where(kept, proposals, REJECTED)


def half_normal_trial(sigma, first, second, rest):
    """What one trial for a single rounded Gaussian keeps, for each pair of words."""
    # all further digits are the uniform's: the height's decide with them, and in the same way
    found = (
        rounded.half_normal_trial(sigma, word, height, Words(further=rest[0]))
        for word, height in zip(first.tolist(), second.tolist(), strict=True)
    )
    return np.array([REJECTED if value is None else value for value in found])


def corners(trial, sigma, depth):
    """Outputs of one trial for all pairs of strings: those that are certain, as corners agree, and what is open."""
    words = prefixes(depth)
    found = []
    for (one, rest), (two, more) in product(ENDS, repeat=2):
        first, second = np.meshgrid(words[one], words[two], indexing="ij")
        found.append(trial(sigma, first.reshape(-1), second.reshape(-1), (rest, more)))
    same = np.all([found[0] == other for other in found[1:]], axis=0)
    return found[0][same & (found[0] != REJECTED)], Fraction(int((~same).sum()), 4**depth)


def both_signs(magnitudes, trials):
    positive, negative = (shares(sign * magnitudes, 2 * trials) for sign in (1, -1))
    return {k: positive.get(k, 0) + negative.get(k, 0) for k in positive.keys() | negative.keys()}


@pytest.mark.parametrize("depth", [8, pytest.param(11, marks=pytest.mark.slow)])
@pytest.mark.parametrize("sigma", [0.8, 2.0])
def test_discrete_gaussian_law_by_enumeration(depth, sigma):
    kept, open_ = corners(gaussian_trial, sigma, depth)
    assert open_ < Fraction(16, 2**depth)
    found = both_signs(kept, 4**depth)
    enclosed(found, open_, gaussian_law(sigma**2))
    with pytest.raises(AssertionError):
        enclosed(found, open_, gaussian_law((1.2 * sigma) ** 2))


@pytest.mark.parametrize("depth", [5, pytest.param(7, marks=pytest.mark.slow)])
def test_rounded_gaussian_law_by_enumeration(depth):
    kept, open_ = corners(half_normal_trial, 1.3, depth)
    assert open_ < Fraction(10, 2**depth)
    enclosed(both_signs(kept, 4**depth), open_, rounded_law(lambda x: mpmath.ncdf(x / mpmath.mpf(1.3))))


def box_trials(scale):
    """Trials of boxes with integers by shifts, for whole ``scale``, and in double precision otherwise."""
    if isinstance(scale, int):
        return 12, lambda out, rng: _boxes._trials(scale.bit_length() - 1, out, rng)
    return 13, lambda out, rng: _boxes.scaled_trials(scale, out, np.empty((2, out.size)), rng)


@pytest.mark.parametrize(("near", "high"), [(4, 4), pytest.param(5, 6, marks=pytest.mark.slow)])
@pytest.mark.parametrize("scale", [4, 4.0, 3.3])
def test_law_of_boxes_by_enumeration(near, high, scale):
    """All 2¹² boxes but that of the tail, all ``near`` bits of a place in it, and ``high`` bits of a height."""
    width, trials = box_trials(scale)
    tail_box = 2 * _boxes._LAST_BOX if width == 13 else _boxes._TAIL_BOX  # on the right, where both sides are boxes
    boxes = np.setdiff1d(np.arange(2**13, step=2) if width == 13 else np.arange(2**12), [tail_box]).astype(np.uint64)
    place = np.arange(2**near, dtype=np.uint64) << np.uint64(64 - near)
    words = (place[:, None] | boxes).reshape(-1)
    total, certain, open_ = words.size * 2**high, [], 0
    for height in range(2**high):
        found = []
        for (end, _), (top, _) in product(ENDS, repeat=2):
            rest = (height << (64 - high)) | (top * (2 ** (64 - high) - 1))
            # neither all digits 0 nor all 1: what follows repeats, and could leave open for ever on which side they are
            given = words | np.uint64((2**13, 2 ** (64 - near) - 2**14)[end])
            out = np.empty(given.size, np.int64)
            rejected = trials(out, Words(given, further=rest))
            out[rejected] = REJECTED
            found.append(out)
        same = np.all([found[0] == other for other in found[1:]], axis=0)
        certain.append(found[0][same & (found[0] != REJECTED)])
        open_ += int((~same).sum())
    tail = Fraction(1, 2**12)
    found = both_signs(np.concatenate(certain), total)
    assert Fraction(open_, total) < Fraction(1, 10)
    enclosed(found, Fraction(open_, total) + tail, rounded_law(lambda x: mpmath.ncdf(x / mpmath.mpf(scale))))
    with pytest.raises(AssertionError):
        enclosed(found, Fraction(open_, total) + tail, rounded_law(lambda x: mpmath.ncdf(x / mpmath.mpf(scale + 1))))


def test_the_left_side_of_boxes_is_the_right_one_reflected():
    """The same box on the other side, and the complements of all digits: the same value with the other sign."""
    words = np.random.default_rng(4).integers(0, 2**64 - 1, 100_000, dtype=np.uint64, endpoint=True)
    flipped = words ^ np.uint64(2**64 - 2**13 + 1)
    found = []
    for given in (words, flipped):
        out = np.empty(given.size, np.int64)
        out[_boxes.scaled_trials(1e5 / 3, out, np.empty((2, out.size)), Words(given, further=2**62))] = REJECTED
        found.append(out)
    kept = found[0] != REJECTED
    np.testing.assert_array_equal(kept, found[1] != REJECTED)
    # next to a multiple and a half double precision may see neither of both
    np.testing.assert_array_equal(found[0][kept], -found[1][kept])


GAP = 0.75
CHANCES = {
    "gumbel": lambda g: 1 / (1 + mpmath.exp(-g)),
    "exponential": lambda g: 1 - mpmath.exp(-g) / 2,
    "laplace": lambda g: 1 - mpmath.exp(-g) * (2 + g) / 4,
}


@pytest.mark.parametrize("depth", [4, pytest.param(7, marks=pytest.mark.slow)])
@pytest.mark.parametrize("noise", CHANCES)
def test_noisy_order_by_enumeration(noise, depth):
    """Of two candidates; the noise is monotone in a uniform, so that the corners decide, under each sign."""
    words = [end.tolist() for end in prefixes(depth)]
    signs = (0, 1) if noise == "laplace" else (0,)
    won, open_, trials = 0, 0, 4**depth * len(signs) ** 2
    weights = [0.0, -GAP]
    for i, j, s, t in product(range(2**depth), range(2**depth), signs, signs):
        winners = {
            largest_of_few(
                weights,
                lambda k: Fraction(weights[k]),
                noise,
                Words([words[a][i] | s, words[b][j] | t], further=ENDS[1][1] // 3),
            )
            for a, b in product((0, 1), repeat=2)
        }
        won += winners == {0}
        open_ += len(winners) > 1
    with mpmath.workdps(40):
        chance = fraction(CHANCES[noise](mpmath.mpf(GAP)))
    assert Fraction(won, trials) <= chance <= Fraction(won + open_, trials)
    assert open_ < 4 * trials / 2**depth


def test_binomial_law_by_enumeration():
    """Every string of so many bits once: exactly C(n, k)."""
    for trials, size in ((8, 8), (10, 16), (16, 16)):
        words = np.arange(2**size, dtype=f"u{size // 8}").view(np.uint64)
        source = Words(*np.split(words, max(1, words.size // 2**13)))
        found = np.bincount(binomial_half(trials, 2**size, rng=source))
        assert found.tolist() == [math.comb(trials, k) * 2 ** (size - trials) for k in range(trials + 1)]

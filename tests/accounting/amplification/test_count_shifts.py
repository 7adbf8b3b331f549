"""Shifted binomial counts against exact sums of small cases: starts between integers, all splits, both directions."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom

from accounting import Gaussian, Laplace, ShuffledBinomial, bound, delta, epsilon
from accounting.amplification import count_shifts
from accounting.amplification.count_shifts import count_curve, is_listed, vector_rows
from accounting.amplification.shuffled_binomial import window
from accounting.compose.failures import split_failures
from accounting.loss.count_vectors import CountsPair, ShiftPair, pair_of_counts
from accounting.releases import compose


def law(trials, at, size):
    """Bin(trials, ½) and ``at``, rounded at random."""
    whole = math.floor(at)
    shifted = [binom.pmf(np.arange(size) - k, trials, 0.5) for k in (whole, whole + 1)]
    return (1 - (at - whole)) * shifted[0] + (at - whole) * shifted[1]


def divergence(pairs, at):
    """H of the product, exactly."""
    p, q = np.ones(1), np.ones(1)
    for one, other in pairs:
        p, q = np.multiply.outer(p, one).ravel(), np.multiply.outer(q, other).ravel()
    return float(np.maximum(p - math.exp(at) * q, 0.0).sum())


def moved(trials, starts, shifts):
    size = trials + 3 + math.ceil(max(a + t for a, t in zip(starts, shifts, strict=True)))
    return [(law(trials, a + t, size), law(trials, a, size)) for a, t in zip(starts, shifts, strict=True)]


@pytest.mark.parametrize(("trials", "shift"), [(20, 1.0), (31, 3.0), (30, 0.4), (31, 2.7), (200, 7.5)])
def test_one_count_is_exact(trials, shift):
    # of all starts, those at which the count is an integer before or after
    for at in np.array([0.0, 0.3, 1.0, 2.0, 4.0]) * 2 * shift / math.sqrt(trials):
        exact = [
            divergence([pair if up else pair[::-1]], at)
            for start in np.linspace(0.0, 1.0, 9)
            for up in (True, False)
            for pair in moved(trials, [start], [shift]) + moved(trials, [math.ceil(shift) - shift], [shift])
        ]
        found = ShiftPair(trials, shift).delta(at)
        # between its corners a curve of two is rounded up
        assert max(exact) * (1 - 1e-12) - 1e-16 <= found <= max(exact) * (1.005 if shift % 1 else 1 + 1e-8) + 1e-15


def test_what_has_no_other_explanation_counts_as_infinite():
    pair = ShiftPair(30, 3.0)
    assert pair.infinite == pytest.approx((1 + 30 + 435) / 2**30, rel=1e-8)
    assert pair.delta(80.0) == pytest.approx(pair.infinite, rel=1e-8)
    assert epsilon(ShuffledBinomial(30, 3.0, 1), 1e-7) == math.inf
    # of three rounds, what any tells for certain
    pair = ShiftPair(4, 1.0)
    assert sum(map(float, pair.atoms()[1])) + pair.infinite == pytest.approx(1.0, abs=1e-7)
    one = np.array([1.0, 4.0, 6.0, 4.0, 1.0, 0.0]) / 16
    exact = divergence(3 * [(one[::-1], one)], 1.0)
    assert exact <= delta(3 * ShuffledBinomial(4, 1.0, 1), 1.0) <= exact * (1 + 1e-6)
    # what was cut off may be far less likely than δ: N = 50 hides a unit well below 1e-12
    assert 2.7 < epsilon(ShuffledBinomial(50, 1.0, 1), 1e-12) < 2.8


@pytest.mark.parametrize(
    ("trials", "norm", "entries"),
    [(60, 2.9, 2), (200, 5.0, 2), (200, 7.1, 2), (400, 3.0, 2), (24, 1.8, 3)],
)
def test_no_integer_vector_is_worse(trials, norm, entries):
    rows, mu = vector_rows(trials, norm, entries, False), 2 * norm / math.sqrt(trials)
    whole = range(math.floor(norm) + 1)
    vectors = [v for v in itertools.combinations_with_replacement(whole, entries) if 0 < np.dot(v, v) <= norm**2]
    pairs = [moved(trials, [0] * entries, v) for v in vectors]
    for z in (0.0, 0.5, 1.0, 2.0, 3.5, 5.0, 7.0):
        at = mu * (z + mu / 2)
        worst = max(divergence(pair, at) for pair in pairs)
        found = float(rows.deltas(np.array(at)))
        assert found >= worst * (1 - 1e-9)
        if trials >= 200 and 3e-16 < worst < 0.1:
            assert found <= 1.5 * worst


@pytest.mark.parametrize(("trials", "norm"), [(60, 0.8), (200, 1.0), (150, 4.6)])
def test_no_rounded_vector_is_worse(trials, norm):
    rows, mu = vector_rows(trials, norm, 2, True), 2 * norm / math.sqrt(trials)
    starts, pairs = (0.0, math.sqrt(0.5)), []
    for angle in np.linspace(0.0, math.pi / 4, 4):
        shifts = norm * math.cos(angle), norm * math.sin(angle)
        for first, second in itertools.product(*([*starts, math.ceil(t) - t] for t in shifts)):
            one, other = moved(trials, [first, second], shifts)
            pairs += [(one, other), (one[::-1], other[::-1])]
    for z in (0.0, 1.0, 2.0, 3.5, 5.0, 7.0):
        at = mu * (z + mu / 2)
        worst = max(divergence(pair, at) for pair in pairs)
        found = float(rows.deltas(np.array(at)))
        assert found >= worst * (1 - 1e-9)
        if trials >= 200 and 3e-16 < worst < 0.1:
            assert found <= 2.0 * worst


@pytest.mark.parametrize("rounded", [False, True])
def test_many_trials_cost_what_gaussian_noise_does(rounded):
    for z in (1.0, 3.0, 6.0):
        mu = 2 * 30.0 / math.sqrt(10**6)
        at = z * mu
        found = CountsPair(10**6, 30.0, 3, rounded).delta(at)
        exact = float(delta(Gaussian(1 / mu), at))
        assert exact <= found <= 1.25 * exact


def test_pairs_are_those_of_the_curves():
    for pair in (ShiftPair(1000, 2.5), CountsPair(1000, 2.5, 3, True), CountsPair(1000, 2.9, 3, False)):
        _, p, q, beyond = pair.atoms()
        assert float(p.sum()) + beyond == pytest.approx(1.0, abs=1e-8)
        assert float(q.sum()) == pytest.approx(1.0, abs=1e-8)
        for at in (0.0, 0.1, 0.3, 0.6):
            by_atoms = float(np.maximum(p - math.exp(at) * q, 0.0).sum()) + beyond
            assert pair.delta(at) * 0.995 <= by_atoms <= pair.delta(at) * 1.01
        assert pair.delta(-0.1) == pytest.approx(1 - math.exp(-0.1) + math.exp(-0.1) * pair.delta(0.1))


@pytest.mark.parametrize("trials", [20, 1000])
@pytest.mark.parametrize("shift", [1e-3, 1e-8, 1e-14, 1e-20])
def test_small_shifts_keep_their_digits(trials, shift):
    b = binom.pmf(np.arange(-1, trials + 2), trials, 0.5)
    steps = b[:-1] - b[1:]
    for c in np.array([0.0, 0.5, 2.0, 4.0]) * 2 / math.sqrt(trials):
        # P − (1 + tc)Q is t times this, forth and back
        forth = np.maximum(steps - c * b[1:], 0.0).sum()
        back = np.maximum(-steps - c * (b[1:] + shift * steps), 0.0).sum()
        found = ShiftPair(trials, shift).delta(math.log1p(shift * c))
        assert found == pytest.approx(shift * max(forth, back), rel=1e-8)
        assert found >= shift * max(forth, back) * (1 - 1e-12)


@pytest.mark.parametrize("norm", [1e-3, 1e-6])
def test_vectors_of_small_shifts_keep_their_digits(norm):
    b = binom.pmf(np.arange(501), 500, 0.5)
    u, t = np.arange(501) / np.arange(501, 0, -1.0) - 1, norm / math.sqrt(2)
    for c in np.array([0.0, 0.5, 2.0, 4.0]) * 2 / math.sqrt(500):
        gain = t * np.add.outer(u, u) + t * t * np.multiply.outer(u, u) - norm * c
        exact = float(b @ np.maximum(gain, 0.0) @ b)
        found = float(vector_rows(500, norm, 2, True).deltas(np.array(math.log1p(norm * c))))
        # other vectors are worse
        assert exact <= found <= 2.5 * exact
    once, twice = (delta(count * ShuffledBinomial(500, 1e-12, 2, rounded=True), 0.0) for count in (1, 2))
    assert 1e-13 < once < twice < 1e-6


@pytest.mark.parametrize(("trials", "norm", "coordinates"), [(8, 0.3, 20), (18, 1.9, 1000)])
def test_counts_that_hide_nothing_have_no_pair(trials, norm, coordinates):
    release = ShuffledBinomial(trials, norm, coordinates, rounded=True)
    assert not is_listed(trials, norm, coordinates, rounded=True)
    assert delta(2 * release, 1.0) == 1.0
    assert epsilon(release + Laplace(5.0), 1e-6) == math.inf


# ------------------------------------------------------------------------------------------------ parts of the proof


def images(counts, trials, shift, tilt, frequencies):
    """Of both directions M below the cut, exactly, of few trials, and what P has above; shape (2, frequencies)."""
    assert window(trials, 1)[0] == 0
    assert counts._block == 1
    noise = np.arange(counts._cuts[tilt])
    b = lambda x: binom.pmf(x, trials, 0.5)  # noqa: E731
    whole, up = math.floor(shift), shift % 1
    forth = (1 - up) * b(noise) + up * b(noise - 1), b(noise + whole)
    back = b(noise), (1 - up) * b(noise + whole) + up * b(noise + whole + 1)
    powers = counts.tilts[tilt] + 1j * np.asarray(frequencies)
    return np.array([np.abs(np.exp(np.multiply.outer(powers, np.log(p / q))) @ p) for p, q in (forth, back)])


@pytest.mark.parametrize("shift", [0.4, 1.0, 1.7])
def test_images_are_bounded_both_ways_and_between_nodes(shift):
    counts = count_shifts._Counts(60, 2, 2 * shift / math.sqrt(60), 1)
    found = np.exp(counts.log_image(shift))
    nodes = counts.frequencies
    for tilt in range(0, counts.tilts.size, 3):
        for share in (0.0, 0.2, 0.5, 0.8):
            at = nodes[:-1] + share * np.diff(nodes)
            chord = (1 - share) * found[tilt, :-1] + share * found[tilt, 1:]
            assert np.all(images(counts, 60, shift, tilt, at).max(axis=0) <= chord)


def recorded(monkeypatch, trials, norm, coordinates, rounded):
    """The counts and the logs of products that are integrated, and what they are made of."""
    seen = {"images": {}}
    integrals, image = count_shifts._Counts.integrals, count_shifts._Counts.log_image

    def keep(self, logs):
        seen.update(counts=self, logs=logs)
        return integrals(self, logs)

    def keep_image(self, shift):
        seen["images"][shift] = image(self, shift)
        return seen["images"][shift]

    monkeypatch.setattr(count_shifts._Counts, "integrals", keep)
    monkeypatch.setattr(count_shifts._Counts, "log_image", keep_image)
    rows = vector_rows.__wrapped__(trials, norm, coordinates, rounded)
    return rows, seen["counts"], seen["logs"], seen["images"]


@pytest.mark.parametrize(("norm", "vectors"), [(math.sqrt(7), [(2, 1)]), (2.9, [(2, 2), (2, 1)]), (1.5, [(1, 1)])])
def test_products_are_bounded_for_every_integer_vector(norm, vectors, monkeypatch):
    rows, counts, logs, _ = recorded(monkeypatch, 60, norm, 2, False)
    for tilt in range(0, counts.tilts.size, 5):
        for v in vectors:
            exact = np.prod([images(counts, 60, t, tilt, counts.frequencies)[0] for t in v], axis=0)
            assert np.all(np.log(exact) <= logs[tilt])
        one = binom.sf(counts._cuts[tilt] - 1, 60, 0.5)
        assert rows.failed[tilt] >= -math.expm1(2 * math.log1p(-one)) * (1 - 1e-12)


def test_chords_between_nodes_are_bounded(monkeypatch):
    norm = 1.7
    _, _, logs, images = recorded(monkeypatch, 60, norm, 2, True)
    k = np.max([image / node**2 for node, image in images.items()], axis=0)
    most = logs / norm**2 / np.where(logs > 0, 1 + count_shifts._RAISED**2, 1.0)
    some = np.abs(k) < 30
    for a, b in itertools.pairwise(sorted(images)):
        for share in (0.1, 0.5, 0.9):
            t = a + share * (b - a)
            chord = (1 - share) * np.exp(k[some] * a * a) + share * np.exp(k[some] * b * b)
            assert np.all(np.log(chord) <= most[some] * t * t + 1e-12)


def test_which_counts_have_their_own_pair():
    assert pair_of_counts(900, 1.8, 5, rounded=False) == (ShiftPair(900, 1.0), 3)
    assert pair_of_counts(900, 1.8, 2, rounded=False) == (ShiftPair(900, 1.0), 2)
    assert pair_of_counts(900, 2.9, 1, rounded=False) == (ShiftPair(900, 2.0), 1)
    assert pair_of_counts(900, 2.9, 1, rounded=True) == (ShiftPair(900, 2.9), 1)
    assert pair_of_counts(900, 2.9, 2, rounded=True) == (CountsPair(900, 2.9, 2, True), 1)
    assert not is_listed(900, 0.5, 2, rounded=False)  # nothing moves
    assert is_listed(900, 0.5, 2, rounded=True)
    assert not is_listed(10, 5.0, 1, rounded=False)  # nothing is hidden
    assert not is_listed(20, 9.5, 1, rounded=True)
    assert not is_listed(20, 3.0, 2, rounded=False)
    assert not is_listed(10**6, 40.0, 3, rounded=False)  # Gaussian noise is as good
    assert count_curve(900, 1.0)[1][0] == pytest.approx(math.sqrt(2 / math.pi / 900), rel=1e-2)


def test_many_kinds_of_counts_are_gaussian_noise():
    vectors = [ShuffledBinomial(1000 + k, 2.0, 3, rounded=True) for k in range(5)]
    single = [ShuffledBinomial(1000 + k, 2.0, 1) for k in range(9)]
    as_good = [ShuffledBinomial(10**9 + k, 1.0, 1) for k in range(9)]
    for parts in (vectors, single):
        few, many = (split_failures(compose((p, 1) for p in some), whole_counts=True) for some in (parts[1:], parts))
        assert few[0] == 0 > many[0]
        assert "CountsInWindows" in repr(many[1])
        assert "CountsInWindows" not in repr(few[1])
    # those that are Gaussian noise anyway do not count
    parts = compose((p, 1) for p in single[1:] + as_good)
    assert "ShiftPair" in repr(split_failures(parts, whole_counts=True)[1])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "release",
    [
        ShuffledBinomial(50, 1.0, 4),
        ShuffledBinomial(300, 5.0, 3),
        ShuffledBinomial(1000, 1.0, 4, rounded=True),
        ShuffledBinomial(3000, 20.0, 3, rounded=True),
        5 * ShuffledBinomial(1000, 2.0, 3) + Gaussian(5.0) + Laplace(2.0),
        20 * ShuffledBinomial(200, 1.5, 1, rounded=True),
        2 * ShuffledBinomial(2000, 60.0, 1),
    ],
    ids=repr,
)
def test_brackets_are_narrow(release):
    for at in (1e-5, 1e-14):
        lower, upper = bound(release, at)
        assert 0 < lower <= upper <= lower / 0.99

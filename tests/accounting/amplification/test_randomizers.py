"""Shuffled messages of known randomizers: against all multisets of small groups, and what their compositions cost."""

import itertools
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from accounting import (
    Budget,
    Laplace,
    Ledger,
    LocalShuffled,
    RandomizedResponse,
    UnaryEncoding,
    bound,
    delta,
    epsilon,
    gdp,
    rdp,
    zcdp,
)
from accounting.amplification.blanket import response_delta, same_delta_at_least
from accounting.amplification.lattice_sums import mean_positive_part, sums_of_values
from accounting.amplification.local_laplace import local_laplace_delta, local_laplace_delta_at_least
from accounting.amplification.shuffling import shuffled_delta
from accounting.amplification.unary import unary_bits, unary_delta, unary_delta_at_least, unary_thirds
from accounting.ledger.record.release_json import decode, encode
from accounting.loss.counts import DifferencePair
from accounting.loss.randomizers import curve_atoms, epsilon_at_least
from accounting.loss.responses import Coins
from accounting.releases.shuffling import randomizer_of


def multisets(laws):
    """The law of the multiset of independent messages, one from each law."""
    found = {}
    for messages in itertools.product(*(range(law.size) for law in laws)):
        key = tuple(sorted(messages))
        found[key] = found.get(key, 0.0) + math.prod(law[m] for law, m in zip(laws, messages, strict=True))
    return found


def divergence(p, q, at):
    return math.fsum(max(0.0, p[key] - math.exp(at) * q[key]) for key in p)


# ------------------------------------------------------------------------------------------------------ unary


def unary_law(value, epsilon0, optimized):
    p, q = unary_bits(epsilon0, optimized)
    chances = [p if i == value else q for i in range(3)]
    return np.array(
        [
            math.prod(c if bit else 1 - c for c, bit in zip(chances, bits, strict=True))
            for bits in itertools.product((0, 1), repeat=3)
        ]
    )


@pytest.mark.parametrize("optimized", [True, False])
@pytest.mark.parametrize("epsilon0", [0.5, 2.0])
def test_unary_encodings_by_brute_force(epsilon0, optimized):
    laws = [unary_law(value, epsilon0, optimized) for value in range(3)]
    for at in (0.0, 0.1, 0.4 * epsilon0, 0.8 * epsilon0):
        exact = {}
        for others in itertools.combinations_with_replacement(range(3), 2):
            p, q = (multisets([laws[value], *(laws[i] for i in others)]) for value in (0, 1))
            exact[others] = divergence(p, q, at)
        assert max(exact.values()) <= unary_delta(epsilon0, optimized, 3, at) * (1 + 1e-9) + 1e-15
        lower = unary_delta_at_least(epsilon0, optimized, 3, at)
        assert max(exact[2, 2] * 0.99, exact[0, 0] * (1 - 1e-9)) <= lower <= max(exact.values()) * (1 + 1e-12)
        three = merged_delta(unary_thirds(epsilon0, optimized), 2, at)
        assert three * (1 - 1e-9) <= lower
        assert same_delta_at_least(epsilon0, math.prod(flips(epsilon0, optimized)), 3, at) == pytest.approx(exact[0, 0])


def flips(epsilon0, optimized):
    """The probabilities of a bit that is 1 and should be 0, and of the other way round."""
    p, q = unary_bits(epsilon0, optimized)
    return q, 1 - p


def merged_delta(thirds, others, at):
    """Where only messages for 0, for 1 and the others are told apart."""
    rate, first, second = thirds
    rest = [np.array([rate, rate, 1 - 2 * rate])] * others
    p, q = (multisets([np.array([a, b, 1 - a - b]), *rest]) for a, b in ((first, second), (second, first)))
    return divergence(p, q, at)


@settings(max_examples=30, deadline=None)
@given(st.floats(0.1, 5.0), st.booleans(), st.integers(2, 60), st.floats(0.0, 1.0))
def test_unary_values_are_sums_over_two_binomial_counts(epsilon0, optimized, users, share):
    (p, q), e, at = unary_bits(epsilon0, optimized), math.exp(epsilon0), 0.9 * share * epsilon0
    blanket = (1 - p) / (1 - q)

    def of(messages):
        c = np.arange(messages + 1)
        mass = binom.pmf(c, messages, q)
        gain = (e - 1) * c[:, None] - math.exp(at) * (e - 1) * c - math.expm1(at) * messages
        return blanket / messages * float(mass @ np.maximum(gain, 0) @ mass)

    mixed = sum(binom.pmf(n, users - 1, blanket) * of(n + 1) for n in range(users))
    assert mixed * (1 - 1e-9) <= unary_delta(epsilon0, optimized, users, at) <= mixed * 1.02 + 1e-15


@pytest.mark.parametrize("optimized", [True, False])
def test_a_unary_message_alone_costs_what_its_pair_of_bits_does(optimized):
    release = UnaryEncoding(1.3, 20, optimized=optimized)
    p, q = unary_bits(1.3, optimized)
    assert p * (1 - q) / (q * (1 - p)) == pytest.approx(math.exp(1.3))
    masses = np.array([q * (1 - p), p * q + (1 - p) * (1 - q), p * (1 - q)])
    at = Coins(1.3, release.as_many_as).atoms()[1]
    assert at == pytest.approx(masses)
    order = 3.0
    moment = math.log(float(np.sum(masses**order * masses[::-1] ** (1 - order)))) / (order - 1)
    assert rdp(release, [order])[0] == pytest.approx(moment, rel=1e-9)
    assert zcdp(release) >= moment / order
    for level in (0.0, 1e-3):
        lower, upper = bound(release, level)
        assert upper * (1 - 1e-6) <= lower <= upper <= 1.3
    assert gdp(release) < gdp(RandomizedResponse(1.3, 2))
    assert delta(release, 0.2) == pytest.approx(float(np.maximum(masses - math.exp(0.2) * masses[::-1], 0).sum()))


# ---------------------------------------------------------------------------------------------------- local Laplace


def laplace_law(x, epsilon0, edges):
    at = epsilon0 * (np.append(edges, np.inf) - x)
    below = np.where(at < 0, 0.5 * np.exp(np.minimum(at, 0)), 1 - 0.5 * np.exp(-np.maximum(at, 0)))
    return np.diff(below, prepend=0.0)


@settings(max_examples=25, deadline=None)
@given(
    x=st.floats(0, 1) | st.sampled_from([0.0, 1.0]),
    other_x=st.floats(0, 1) | st.sampled_from([0.0, 1.0]),
    others=st.lists(st.floats(0, 1) | st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=2),
    epsilon0=st.floats(0.2, 4.0),
    share=st.floats(0.0, 0.95),
)
def test_no_group_passes_the_curve_of_local_laplace_noise(x, other_x, others, epsilon0, share):
    edges = np.linspace(-0.2, 1.2, 15)
    rest = [laplace_law(at, epsilon0, edges) for at in others]
    p, q = (multisets([laplace_law(at, epsilon0, edges), *rest]) for at in (x, other_x))
    at = share * epsilon0
    assert divergence(p, q, at) <= local_laplace_delta(epsilon0, 1 + len(others), at) * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize(("epsilon0", "users", "at"), [(1.0, 2, 0.3), (3.0, 2, 1.0), (1.0, 3, 0.2)])
def test_where_the_others_hold_the_middle_the_lower_curve_is_exact(epsilon0, users, at):
    """Finer and finer messages tell more and more, up to the curve."""
    found = []
    for cells in (20, 60) if users == 3 else (40, 160):
        edges = np.linspace(0.0, 1.0, cells + 1)
        middle = laplace_law(0.5, epsilon0, edges)
        ends = [laplace_law(x, epsilon0, edges) / middle for x in (0.0, 1.0)]
        gain = ends[0] - math.exp(at) * ends[1]
        sums, mass = gain, middle
        for _ in range(users - 1):
            sums, mass = np.add.outer(sums, gain).ravel(), np.multiply.outer(mass, middle).ravel()
        found.append(float(mass @ np.maximum(sums, 0)) / users)
    lower = local_laplace_delta_at_least(epsilon0, users, at)
    assert found[0] < found[1] < local_laplace_delta(epsilon0, users, at)
    # the finer one is short by a part in a thousand at most, as is the lower value
    assert lower == pytest.approx(found[1], rel=2e-3)


@pytest.mark.parametrize(("epsilon0", "users"), [(1.0, 10_000), (0.1, 3_000), (4.0, 300)])
def test_many_local_laplace_messages_come_near_to_gaussian_differential_privacy(epsilon0, users):
    # E[(R₀ − R₁)²/ω²] in closed form, over the number of messages that are known to come from ω
    half = epsilon0 / 2
    variance = 4 / 3 * (math.exp(half) - 3 * math.exp(-half) + 2 * math.exp(-2 * half))
    for found, messages in (
        (local_laplace_delta(epsilon0, users, 0.0), users * math.exp(-half)),
        (local_laplace_delta_at_least(epsilon0, users, 0.0), users),
    ):
        assert found == pytest.approx(math.sqrt(variance / messages / (2 * math.pi)), rel=0.02)


@settings(max_examples=20, deadline=None)
@given(
    values=st.lists(st.floats(-3, 3), min_size=2, max_size=4, unique=True),
    weights=st.lists(st.floats(0.05, 1.0), min_size=4, max_size=4),
    count=st.integers(1, 7),
)
def test_sums_of_values_off_the_grid_are_bracketed(values, weights, count):
    mass = np.array(weights[: len(values)]) / sum(weights[: len(values)])
    x = np.array(values) - float(mass @ np.array(values)) - 0.05
    if x.max() <= 0.01:
        return
    sums, law = np.zeros(1), np.ones(1)
    for _ in range(count):
        sums, law = np.add.outer(sums, x).ravel(), np.multiply.outer(law, mass).ravel()
    exact = math.fsum(law * np.maximum(sums, 0))
    low, high = (sums_of_values(x, mass, count, 1 << 14, sign) for sign in (-1.0, 1.0))
    assert low <= exact * (1 + 1e-12) <= high * (1 + 2e-12)
    assert high - low <= 0.02 * exact


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0.01, 1.0), min_size=2, max_size=6), st.integers(1, 60), st.floats(0.05, 0.95))
def test_sums_on_a_grid_are_bracketed(weights, count, share):
    law = np.array(weights) / sum(weights)
    points = np.arange(law.size) - share * (law.size - 1)
    points -= max(0.0, float(law @ points))  # a mean of at most 0
    exact_law = np.ones(1)
    for _ in range(count):
        exact_law = np.convolve(exact_law, law)
    sums = count * points[0] + np.arange(exact_law.size)
    exact = math.fsum(exact_law * np.maximum(sums, 0))
    low, high = (mean_positive_part(points, law, count, 1 << 12, sign) for sign in (-1.0, 1.0))
    assert low <= exact * (1 + 1e-12) <= high * (1 + 2e-12)
    assert high - low <= 1e-6 * exact + 1e-300


# ------------------------------------------------------------------------------------------------------ compositions

KNOWN = [
    RandomizedResponse(1.0, 10),
    UnaryEncoding(1.0, 10),
    UnaryEncoding(2.0, 5, optimized=False),
    Laplace(1.0),
    RandomizedResponse(2.0, 2),
]


@pytest.mark.slow
@pytest.mark.parametrize("randomizer", KNOWN, ids=repr)
def test_the_pair_of_a_curve_dominates_it_and_is_hardly_above(randomizer):
    local = randomizer_of(randomizer)
    losses, p, q, _ = curve_atoms(local, 2000)
    assert p.sum() == pytest.approx(1.0, abs=1e-8)
    assert p == pytest.approx(q[::-1])
    for at in np.linspace(0.0, 5.0, 6) * math.sqrt(2 * math.pi) * local.delta_at_most(2000, 0.0):
        found = float(np.maximum(p - math.exp(at) * q, 0.0).sum())
        true = local.delta_at_most(2000, float(at))
        assert local.delta_at_least(2000, float(at)) <= found
        assert true * 0.985 <= found <= true * 1.04 + 1e-9
    assert np.all(np.diff(losses) > 0)


# of the third, large differences are rarer than what a transform is off by
@pytest.mark.parametrize(
    ("trials", "rate", "first", "second"), [(40, 0.2, 0.5, 0.1), (25, 0.5, 0.7, 0.3), (1000, 0.2, 0.6, 0.2)]
)
def test_the_difference_of_two_counts_is_rounded_down_and_hardly_so(trials, rate, first, second):
    step = np.array([rate, 1 - 2 * rate, rate])
    g = np.ones(1)
    for _ in range(trials):
        g = np.convolve(g, step)
    p, q = (np.convolve(g, [b, 1 - first - second, a]) for a, b in ((first, second), (second, first)))
    pair = DifferencePair(trials, rate, first, second)
    for at in (0.0, 0.1, 0.3):
        exact = float(np.maximum(p - math.exp(at) * q, 0).sum())
        assert exact * (1 - 1e-9) - 1e-9 <= pair.delta(at) <= exact


@pytest.mark.parametrize("randomizer", KNOWN, ids=repr)
def test_the_third_of_a_message_is_what_the_witness_says(randomizer):
    others, first, second = randomizer_of(randomizer).thirds()
    assert 0 < second < first < 1
    assert first / others <= math.exp(
        1.0 / getattr(randomizer, "noise_multiplier", 1.0 / getattr(randomizer, "epsilon", 1.0))
    ) * (1 + 1e-12)


@pytest.mark.slow
def test_few_unary_encodings_cost_what_they_do_where_the_others_hold_the_same():
    for local, users, level in ((UnaryEncoding(6.0, 5), 5, 1e-3), (UnaryEncoding(6.0, 5, optimized=False), 30, 1e-6)):
        found = bound(LocalShuffled(local, users), level)
        assert found.upper * (1 - 1e-3) <= found.lower <= found.upper
    # and many, of which few say that bit 2 is not 1, where only three messages are told apart
    found = bound(LocalShuffled(UnaryEncoding(6.0, 5), 10**5), 1e-9)
    assert found.upper * (1 - 3e-3) <= found.lower <= found.upper


@pytest.mark.slow
def test_what_shuffled_messages_cost():
    narrow = LocalShuffled(RandomizedResponse(1.0, 10), 10_000)
    for count, about in ((1, 0.02326), (20, 0.11653)):
        lower, upper = bound(count * narrow, 1e-6)
        assert upper == pytest.approx(about, rel=2e-3)
        assert upper * 0.995 < lower <= upper
    # beside 0.0432 and 0.2151 for any 1-DP randomizer
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for randomizer, once, often in (
            (UnaryEncoding(1.0, 10), (0.0268, 0.02975), (0.1256, 0.1487)),
            (UnaryEncoding(1.0, 10, optimized=False), (0.0264, 0.03070), None),
            (Laplace(1.0), (0.02890, 0.03784), (0.1412, 0.1887)),
        ):
            release = LocalShuffled(randomizer, 10_000)
            assert bound(release, 1e-6) == pytest.approx(once, rel=3e-3)
            assert often is None or bound(20 * release, 1e-6) == pytest.approx(often, rel=3e-3)
            assert epsilon(release, 0.0) == 1.0


@pytest.mark.parametrize(
    ("release", "width"),
    [
        (20 * LocalShuffled(RandomizedResponse(1.0, 2), 10_000), 3e-3),
        (20 * LocalShuffled(RandomizedResponse(1.0, 2), 10**9), 3e-3),
        # of few lies: the others hold the same value
        (2 * LocalShuffled(5.0, 1000), 1e-3),
        (2 * LocalShuffled(RandomizedResponse(5.0, 3), 1000), 3e-3),
    ],
)
def test_compositions_of_responses_are_known_from_both_sides(release, width):
    lower, upper = bound(release, 1e-6)
    assert upper * (1 - width) <= lower <= upper


@pytest.mark.thorough
def test_more_users_hide_more_and_no_number_is_too_large():
    found = [float(epsilon(LocalShuffled(KNOWN[1], n), 1e-6)) for n in (10, 100, 10**9)]
    assert found == sorted(found, reverse=True)


@pytest.mark.thorough
def test_what_is_refused_and_stored():
    with pytest.raises(ValueError, match="categories must be at least 3"):
        UnaryEncoding(1.0, 2)
    with pytest.raises(TypeError, match="optimized must be True or False"):
        UnaryEncoding(1.0, 3, optimized=1)
    with pytest.raises(ValueError, match=r"epsilon must be that of Laplace"):
        LocalShuffled(1.0, 10, randomizer=Laplace(2.0))
    release = LocalShuffled(UnaryEncoding(0.5, 9, optimized=False), 500)
    assert decode(encode(release)) == release
    ledger = Ledger(Budget(1.0, 1e-6))
    ledger.spend(release + LocalShuffled(Laplace(2.0), 1000))
    assert 0 < ledger.epsilon() < 1


@pytest.mark.parametrize("local", [UnaryEncoding(1e-6, 3), Laplace(1e6), UnaryEncoding(30.0, 3)])
def test_a_lower_value_of_nothing_is_found_at_once(local, monkeypatch):
    """Where δ is met at ε = 0, or nothing is known, bisection has no positive end."""
    randomizer, asked = randomizer_of(local), []
    least = type(randomizer).delta_at_least

    def counted(*given):
        asked.append(given)
        return least(*given)

    monkeypatch.setattr(type(randomizer), "delta_at_least", counted)
    assert epsilon_at_least(randomizer, 1000, 0.5) == 0.0
    assert 0 < len(asked) < 60


@pytest.mark.parametrize("epsilon0", [32.0, 36.0, 60.0, 300.0])
def test_nothing_hides_what_is_hardly_randomized(epsilon0):
    """All others hold the other value, which nobody reports by mistake: then the message's own loss is seen."""
    for local in (epsilon0, RandomizedResponse(epsilon0, 2), UnaryEncoding(epsilon0, 3), Laplace(1 / epsilon0)):
        for total in (epsilon(LocalShuffled(local, 10), 1e-6), epsilon(2 * LocalShuffled(local, 10), 1e-6) / 2):
            assert total >= 0.999 * epsilon0
    for found in (shuffled_delta(epsilon0, 10, epsilon0 - 1), response_delta(epsilon0, 3, 10, epsilon0 - 1)):
        assert found >= 0.999 * (1 - math.exp(-1))

"""Shuffled messages of a local randomizer, and shuffled counts under binomial noise."""

import itertools
import math
import warnings

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from tabled import tabled

from accounting import (
    AdjacencyMismatch,
    Budget,
    Gaussian,
    Ledger,
    LocalShuffled,
    PoissonSubsampled,
    PureDP,
    RandomizedResponse,
    ShuffledBinomial,
    UnsupportedRelease,
    bound,
    calibrate,
    compare,
    delta,
    epsilon,
    rdp,
)
from accounting.amplification import binary, blanket
from accounting.amplification.binary import binary_delta, binary_delta_at_least
from accounting.amplification.blanket import (
    positive_part,
    response_delta,
    response_delta_at_least,
    response_local_epsilon,
)
from accounting.amplification.shuffled_binomial import central_rdp, log_survival
from accounting.amplification.shuffling import local_epsilon, shuffled_delta
from accounting.compose.failures import split_failures

# ------------------------------------------------------------------------------------------------------- adjacency


@pytest.mark.parametrize(
    "make", [lambda **a: LocalShuffled(0.5, 1000, **a), lambda **a: ShuffledBinomial(900, 3.0, 2, **a)]
)
def test_shuffled_messages_do_not_hide_who_took_part(make):
    assert make().adjacency == "replace"
    assert make(adjacency="zero_out").adjacency == "zero_out"
    with pytest.raises(AdjacencyMismatch, match="the number of messages is seen, got adjacency='add_remove'"):
        make(adjacency="add_remove")
    with pytest.raises(AdjacencyMismatch, match=r"got release\.adjacency='replace'"):
        PoissonSubsampled(make(), 0.1)
    with pytest.raises(AdjacencyMismatch):
        Ledger(Budget(3.0, 1e-5, adjacency="add_remove")).spend(make())


# ------------------------------------------------------------------------------------------------- single messages


@pytest.mark.parametrize(
    ("users", "at_least", "best_known", "clones"),
    [
        (1000, 0.126614480961, 0.148670732975, 0.1824123478),
        (10_000, 0.035658815298, 0.0432064831257, 0.0530053172),
    ],
)
def test_reference_values(users, at_least, best_known, clones):
    # at ε₀ = 1, δ = 1e-6: a lower bound, a variation-ratio bound rounded up, the clones of Feldman et al. (2021)
    found = epsilon(LocalShuffled(1.0, users), 1e-6)
    assert at_least < found < clones
    assert found <= best_known
    assert found == pytest.approx(best_known, rel=1e-5)


def views(users: int, messages: list[list[float]]) -> dict[tuple[int, ...], float]:
    """The law of the multiset of messages, as counts per message, given every user's law."""
    law = {(0,) * len(messages[0]): 1.0}
    for user in messages:
        following: dict[tuple[int, ...], float] = {}
        for counts, mass in law.items():
            for i, share in enumerate(user):
                seen = (*counts[:i], counts[i] + 1, *counts[i + 1 :])
                following[seen] = following.get(seen, 0.0) + mass * share
        law = following
    return law


def hockey_stick(P, Q, eps):
    return math.fsum(max(0.0, P.get(view, 0.0) - math.exp(eps) * Q.get(view, 0.0)) for view in {*P, *Q})


@tabled("eps0", [0.3, 1.0, 3.0])
@tabled("users", [1, 2, 5, 12])
def test_the_curve_is_that_of_the_pair(eps0, users):
    lie = 1 / (math.exp(eps0) + 1)
    others = [[lie, lie, 1 - 2 * lie]] * (users - 1)
    P, Q = views(users, [[1 - lie, lie, 0.0], *others]), views(users, [[lie, 1 - lie, 0.0], *others])
    for share in (0.0, 0.1, 0.5, 0.9):
        exact = hockey_stick(P, Q, share * eps0)
        assert exact * (1 - 1e-9) <= shuffled_delta(eps0, users, share * eps0) <= exact * (1 + 1e-9) + 1e-30


@pytest.mark.parametrize(("eps0", "users"), [(1.0, 10**6), (0.5, 3000), (4.0, 10**5)])
def test_the_renyi_curve_of_shuffled_messages_has_no_flat_tail(eps0, users):
    # with 1e-40 of flat mass at the largest loss this was 0.174 where 0.0056 is exact
    bounds = compare(LocalShuffled(eps0, users), 1e-9)
    assert bounds["pld"] <= bounds["rdp"] <= 1.1 * bounds["pld"]


@pytest.mark.parametrize("eps0", [0.5, 2.0])
@pytest.mark.parametrize("users", [2, 6, 40])
def test_the_renyi_curve_is_at_least_that_of_the_pair(eps0, users):
    lie = 1 / (math.exp(eps0) + 1)
    others = [[lie, lie, 1 - 2 * lie]] * (users - 1)
    P, Q = views(users, [[1 - lie, lie, 0.0], *others]), views(users, [[lie, 1 - lie, 0.0], *others])
    for alpha in (1.5, 4.0, 20.0):
        exact = math.log(math.fsum(P[v] * (P[v] / Q[v]) ** (alpha - 1) for v in P if P[v] > 0)) / (alpha - 1)
        found = rdp(LocalShuffled(eps0, users), [alpha])[0]
        assert exact * (1 - 1e-9) <= found <= exact * 1.02


@pytest.mark.parametrize("categories", [2, 3, 5])
@pytest.mark.parametrize(("eps0", "users"), [(0.7, 2), (1.0, 4), (2.5, 6)])
def test_shuffled_responses_by_brute_force(categories, eps0, users):
    low = 1 / (math.exp(eps0) + categories - 1)

    def says(value):
        return [low * math.exp(eps0) if i == value else low for i in range(categories)]

    release = LocalShuffled(RandomizedResponse(eps0, categories), users)
    for eps in (0.0, 0.2 * eps0, 0.6 * eps0):
        worst = 0.0
        for held in itertools.combinations_with_replacement(range(categories), users - 1):
            others = [says(value) for value in held]
            P, Q = views(users, [says(0), *others]), views(users, [says(1), *others])
            worst = max(worst, hockey_stick(P, Q, eps), hockey_stick(Q, P, eps))
        assert response_delta_at_least(eps0, categories, users, eps) <= worst * (1 + 1e-9)
        assert worst <= delta(release, eps) * (1 + 1e-9) + 1e-15


@pytest.mark.slow
@pytest.mark.parametrize(
    ("eps0", "categories", "lower", "upper"),
    [  # at n = 10⁴ and δ = 1e-6; an independent computation by transforms of the blanket's law
        (1.0, 10, 0.0232, 0.0233),
        (3.0, 100, 0.0889, 0.0890),
        (1.0, 2, 0.0356, 0.0357),
        (3.0, 2, 0.1692, 0.1696),
        (5.0, 2, 0.600, 0.6015),
    ],
)
def test_brackets_of_shuffled_responses(eps0, categories, lower, upper):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = bound(LocalShuffled(RandomizedResponse(eps0, categories), 10_000), 1e-6)
    assert found.lower == pytest.approx(lower, rel=0.004)
    assert found.upper == pytest.approx(upper, rel=0.004)
    assert found.upper <= epsilon(LocalShuffled(eps0, 10_000), 1e-6)


def binary_views(eps0, ones, zeros):
    """The laws of how many say 1, for either value of one user."""
    truth, lie = 1 / (1 + math.exp(-eps0)), 1 / (1 + math.exp(eps0))
    s = np.convolve(binom.pmf(np.arange(ones + 1), ones, truth), binom.pmf(np.arange(zeros + 1), zeros, lie))
    one, none = np.append(0, s), np.append(s, 0)
    return truth * one + lie * none, lie * one + truth * none


def worst_of_binary(eps0, users, eps):
    found = (binary_views(eps0, ones, users - 1 - ones) for ones in range(users))
    return max(float(np.maximum(P - math.exp(eps) * Q, 0).sum()) for P, Q in found)


@settings(max_examples=40, deadline=None)
@given(
    eps0=st.floats(0.05, 6) | st.floats(6, 28),
    users=st.integers(1, 70),
    share=st.floats(0, 0.98) | st.sampled_from([0.0, 1e-9]),
)
def test_binary_responses_of_few_users_are_exact(eps0, users, share):
    exact = worst_of_binary(eps0, users, share * eps0)
    upper, lower = (delta(eps0, users, share * eps0) for delta in (binary_delta, binary_delta_at_least))
    assert exact * (1 - 1e-9) <= upper
    assert upper * (1 - 1e-9) <= lower <= exact * (1 + 1e-9)


@pytest.mark.parametrize(
    ("stretches", "eps0", "eps"),
    [(1, 4.0, 0.2), (2, 0.4, 0.05), (2, 2.0, 0.9), (7, 4.0, 0.1), (7, 8.0, 7.0), (100, 2.0, 0.3), (100, 4.0, 0.2)],
)
def test_stretches_of_inputs_are_priced_from_above(stretches, eps0, eps, monkeypatch):
    exact, fewer = (worst_of_binary(eps0, users, eps) for users in (150, 150 - math.ceil(150 / stretches) + 1))
    monkeypatch.setattr(binary, "_STRETCHES", stretches)
    monkeypatch.setattr(binary, "_TOGETHER", 3)
    upper, lower = binary_delta(eps0, 150, eps), binary_delta_at_least(eps0, 150, eps)
    assert exact * (1 - 1e-9) <= upper <= fewer * (1 + 1e-9)
    P, Q = binary_views(eps0, 149, 0)
    same = float(np.maximum(P - math.exp(eps) * Q, 0).sum())
    assert same * (1 - 1e-9) <= lower <= exact * (1 + 1e-9)


@pytest.mark.parametrize(
    ("eps0", "users", "eps"),
    [(1.0, 3000, 0.07), (3.0, 3000, 0.4), (0.3, 2000, 0.08), (5.0, 2000, 1.2), (1.0, 1500, 0.5), (0.5, 800, 0.45)],
)
def test_many_binary_responses_cost_what_the_worst_inputs_do(eps0, users, eps):
    some = {*np.linspace(0, users - 1, 40).astype(int).tolist(), users - 2}
    found = (binary_views(eps0, ones, users - 1 - ones) for ones in some)
    exact = max(float(np.maximum(P - math.exp(eps) * Q, 0).sum()) for P, Q in found)
    upper, lower = binary_delta(eps0, users, eps), binary_delta_at_least(eps0, users, eps)
    assert exact * (1 - 1e-9) <= upper
    assert binary_delta(eps0, users, 1.002 * eps) <= lower <= upper


@pytest.mark.parametrize("users", [10**6, 10**9])
def test_no_number_of_binary_responses_is_too_large(users):
    for eps0, eps in ((1.0, 5 / math.sqrt(users)), (4.0, 40 / math.sqrt(users))):
        upper, lower = binary_delta(eps0, users, eps), binary_delta_at_least(eps0, users, eps)
        # all others hold the same, by an incomplete beta function
        n, e, grown = np.array([float(users)]), math.exp(eps0), math.exp(eps)
        slope = 1 - grown / e + e * grown - 1
        gained, lost = positive_part(n, slope, n * (e * grown - 1), e / (e + 1), 1 / (e + 1))
        assert (gained - lost)[0] / users * (1 - 1e-4) <= lower <= upper
        assert binary_delta(eps0, users, 1.001 * eps) < lower
        assert binary_delta(eps0, 10 * users, eps) < upper or users == 10**9
    assert binary_delta(1.0, 10**12, 1e-4) == binary_delta(1.0, 10**9, 1e-4)
    assert binary_delta_at_least(1.0, 10**12, 1e-4) == 0


@pytest.mark.parametrize(
    ("eps0", "categories", "users", "level"), [(1.0, 3, 5, 1e-3), (3.0, 5, 8, 1e-3), (3.0, 10, 30, 1e-9)]
)
def test_few_responses_cost_what_they_do_where_the_others_hold_the_same(eps0, categories, users, level):
    found = bound(LocalShuffled(RandomizedResponse(eps0, categories), users), level)
    assert found.upper * (1 - 1e-6) <= found.lower <= found.upper


def test_the_randomizer_is_checked():
    release = LocalShuffled(RandomizedResponse(1.0, 4), 100)
    assert (release.epsilon, release.users, release.randomizer) == (1.0, 100, RandomizedResponse(1.0, 4))
    assert epsilon(3 * release, 1e-6) <= epsilon(3 * LocalShuffled(1.0, 100), 1e-6)
    with pytest.raises(
        UnsupportedRelease, match="epsilon must be a number, a RandomizedResponse, a UnaryEncoding or a Laplace"
    ):
        LocalShuffled(PureDP(1.0), 100)
    with pytest.raises(ValueError, match="epsilon must be that of RandomizedResponse"):
        LocalShuffled(2.0, 100, randomizer=RandomizedResponse(1.0, 4))


@pytest.mark.parametrize("eps0", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("users", [2, 4, 8])
def test_no_extremal_randomizer_is_less_private(eps0, users):
    e = math.exp(eps0)
    worst = {share: shuffled_delta(eps0, users, share * eps0) * (1 + 1e-9) for share in (0.05, 0.3, 0.8)}
    laws = []
    # k-ary randomized response, the others telling either truth or a third one
    for k in (2, 3, 6):
        rr = (np.ones((k, k)) + (e - 1) * np.eye(k)) / (e + k - 1)
        laws += [(rr[0], rr[1], rr[i]) for i in range(min(k, 3))]
    # outcomes that are likely under both inputs of the one user and rare under all others
    for h in np.linspace(0, 1 / (e + 1), 4):
        a = (1 - (e + 1) * h) / (e + 2)
        laws.append(([e * a, a, e * h, a + h], [a, e * a, e * h, a + h], [a, a, h, e * (a + h)]))
    for one, other, rest in laws:
        others = [list(rest)] * (users - 1)
        P, Q = views(users, [list(one), *others]), views(users, [list(other), *others])
        for share, most in worst.items():
            assert hockey_stick(P, Q, share * eps0) <= most


def messages_epsilon(eps0, users, level):
    return epsilon(LocalShuffled(eps0, users), level, accountant="pld")


@pytest.mark.thorough
@settings(max_examples=12, deadline=None)
@given(log_eps0=st.floats(-3, 1.2), log_users=st.floats(0, 5), log_level=st.floats(-15, -2))
def test_epsilon_inverts_delta_and_shuffling_never_hurts(log_eps0, log_users, log_level):
    eps0, users, level = 10**log_eps0, int(10**log_users), 10**log_level
    found = messages_epsilon(eps0, users, level)
    assert 0 <= found <= eps0
    if found > 0:
        assert shuffled_delta(eps0, users, found) <= level
        assert shuffled_delta(eps0, users, found * (1 - 1e-7)) > level * (1 - 1e-9)
    assert messages_epsilon(eps0, 3 * users, level) <= found * (1 + 1e-9)
    assert messages_epsilon(eps0 * 1.1, users, level) >= found
    assert found <= epsilon(PureDP(eps0), level) * (1 + 1e-9)


@settings(max_examples=8, deadline=None)
@given(log_eps=st.floats(-2, 0.5), users=st.integers(1, 100_000), log_level=st.floats(-10, -3))
def test_the_largest_local_epsilon(log_eps, users, log_level):
    eps, level = 10**log_eps, 10**log_level
    eps0 = local_epsilon(users, eps, level)
    assert eps0 >= eps
    assert shuffled_delta(eps0, users, eps) <= level
    if eps0 < 500:
        assert shuffled_delta(eps0 * (1 + 1e-6), users, eps) > level


@pytest.mark.parametrize(
    ("categories", "users", "eps"), [(2, 100, 0.5), (2, 10_000, 0.5), (2, 20, 3.0), (5, 10_000, 0.5)]
)
def test_the_largest_local_epsilon_of_responses(categories, users, eps):
    eps0 = response_local_epsilon(categories, users, eps, 1e-6)
    assert eps0 >= local_epsilon(users, eps, 1e-6)
    assert (
        response_delta(eps0, categories, users, eps) <= 1e-6 < response_delta(eps0 * (1 + 1e-5), categories, users, eps)
    )


@pytest.mark.thorough
def test_calibration_finds_the_same_local_epsilon():
    z = calibrate(lambda z: LocalShuffled(1 / z, 5000), Budget(0.3, 1e-6))
    assert 1 / z == pytest.approx(local_epsilon(5000, 0.3, 1e-6), rel=1e-8)


def test_several_rounds_cost_less_than_their_sum():
    one, ten = (epsilon(n * LocalShuffled(1.0, 2000), 1e-6) for n in (1, 10))
    assert one < ten < 10 * one
    assert ten <= epsilon(10 * LocalShuffled(1.0, 2000), 1e-6, accountant="rdp")


def test_a_billion_users():
    assert 5e-5 < messages_epsilon(1.0, 10**9, 1e-6) < 1e-4
    assert shuffled_delta(1.0, 10**12, 1e-4) == shuffled_delta(1.0, 10**9, 1e-4)


def test_edges_of_single_messages():
    assert epsilon(LocalShuffled(2.0, 100), 0.0) == 2.0
    assert shuffled_delta(2.0, 100, 2.0) == 0.0
    assert messages_epsilon(1e-3, 100, 0.4) == 0.0
    assert local_epsilon(1000, 0.5, 0.0) == 0.5
    with pytest.raises(ValueError, match="users must be at least 1, got users=0"):
        LocalShuffled(1.0, 0)
    with pytest.raises(ValueError, match=r"epsilon must be positive and finite, got epsilon=-1\.0"):
        LocalShuffled(-1.0, 10)
    with pytest.raises(ValueError, match=r"local_epsilon must be positive and finite, got local_epsilon=0\.0"):
        shuffled_delta(0.0, 10, 0.1)


# -------------------------------------------------------------------------------------------------- binomial counts


def pmf(trials: int) -> np.ndarray:
    with mpmath.workdps(30):
        return np.array([float(mpmath.binomial(trials, k) / mpmath.mpf(2) ** trials) for k in range(trials + 1)])


def shifted(trials: int, shifts: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The laws of the counts before and after the shift, over all outcomes of either."""
    P = Q = np.ones(1)
    one = pmf(trials)
    for v in shifts:
        P = np.multiply.outer(P, np.pad(one, (0, v))).ravel()
        Q = np.multiply.outer(Q, np.pad(one, (v, 0))).ravel()
    return P, Q


@pytest.mark.parametrize(
    ("trials", "norm", "coordinates"),
    [(30, 2.0, 1), (100, 3.0, 2), (101, math.sqrt(2), 2), (400, 5.0, 1), (60, 2.5, 2)],
)
def test_no_integer_shift_is_dearer(trials, norm, coordinates):
    release = ShuffledBinomial(trials, norm, coordinates)
    largest, costs = int(norm), {eps: delta(release, eps) for eps in (0.2, 1.0, 3.0)}
    for shifts in itertools.product(range(largest + 1), repeat=coordinates):
        if not 0 < sum(v * v for v in shifts) <= norm**2 + 1e-9:
            continue
        P, Q = shifted(trials, shifts)
        for eps, cost in costs.items():
            exact = max(np.maximum(P - math.exp(eps) * Q, 0).sum(), np.maximum(Q - math.exp(eps) * P, 0).sum())
            assert exact <= cost


@pytest.mark.slow
@pytest.mark.parametrize("norm", [1.0, 3.0, 6.0])
def test_no_integer_shift_of_two_thousand_trials_is_dearer(norm):
    release, bounds = ShuffledBinomial(2000, norm, 2), {}
    for shifts in itertools.product(range(int(norm) + 1), repeat=2):
        if 0 < sum(v * v for v in shifts) <= norm**2:
            P, Q = shifted(2000, shifts)
            for eps in (0.1, 0.5, 2.0):
                exact = np.maximum(P - math.exp(eps) * Q, 0).sum()
                assert exact <= bounds.setdefault(eps, delta(release, eps))


@tabled(("trials", "shift"), [(50, 1), (50, 4), (120, 3)])
@tabled("alpha", [1.5, 2.0, 7.3])
def test_the_curve_on_the_window_is_exact_for_one_count(trials, shift, alpha):
    survival = math.exp(log_survival(trials, shift, 1))
    one = pmf(trials)
    outside = one[: int(np.argmax(np.cumsum(one) > (1 - survival) * 0.999)) + 1].sum()
    assert outside == pytest.approx(1 - survival, rel=1e-6)  # all is kept of so few trials but the ends
    p, q = one[shift:], one[:-shift]
    moment = np.sum(p**alpha * q ** (1 - alpha)) / p.sum()
    exact = math.log(moment) / (alpha - 1)
    assert central_rdp(trials, shift, 1, np.array([alpha]))[0] == pytest.approx(exact, rel=1e-9)


@tabled(("trials", "norm"), [(20_000, 5.0), (20_000, 80.0), (50_000, 80.0), (10**6, 300.0), (10**9, 4e3)])
def test_many_trials_cost_like_the_gaussian_of_the_same_variance(trials, norm):
    orders = np.array([1.5, 2.0, 4.0, 8.0])
    gaussian = orders * norm**2 / (2 * trials / 4)
    curve = central_rdp(trials, norm, 6, orders)
    assert np.all(curve >= gaussian * 0.999)
    assert np.all(curve <= gaussian * 1.02)
    equivalent = Gaussian(math.sqrt(trials) / 2 / norm)
    found = epsilon(ShuffledBinomial(trials, norm, 6), 1e-6, accountant="rdp")
    assert found <= epsilon(equivalent, 1e-6, accountant="zcdp") * 1.02


@settings(max_examples=10, deadline=None)
@given(trials=st.integers(300, 3000), norm=st.floats(1, 8), coordinates=st.integers(1, 20))
def test_more_noise_and_smaller_shifts_cost_less(trials, norm, coordinates):
    found = epsilon(ShuffledBinomial(trials, norm, coordinates), 1e-5)
    assert epsilon(ShuffledBinomial(2 * trials, norm, coordinates), 1e-5) <= found * (1 + 1e-6)
    assert epsilon(ShuffledBinomial(trials, norm + 1, coordinates), 1e-5) >= found * (1 - 1e-6)


@pytest.mark.parametrize("shift", [0.4, 1.0, 2.7])
def test_no_shift_of_a_rounded_count_is_dearer(shift):
    trials = 300
    release = ShuffledBinomial(trials, shift, 1, rounded=True)

    def rounded(a):
        whole, part = int(a), a - int(a)
        law = np.zeros(trials + 8)
        for start, weight in ((whole, 1 - part), (whole + 1, part)):
            law[start : start + trials + 1] += weight * pmf(trials)
        return law

    pairs = [(rounded(fraction), rounded(fraction + shift)) for fraction in (0.0, 0.3, 0.5)]
    for eps in (0.01, 0.1, 0.5):
        cost = delta(release, eps)
        for one, other in [*pairs, *(pair[::-1] for pair in pairs)]:
            assert np.maximum(one - math.exp(eps) * other, 0).sum() <= cost


def test_binomial_noise_is_nearly_gaussian():
    # the trade-off of a count against its shift is that of a Gaussian to a part in a thousand
    for rounded in (False, True):
        found = epsilon(ShuffledBinomial(10**6, 300.0, 6, rounded=rounded), 1e-6)
        exact = epsilon(Gaussian(math.sqrt(10**6) / 2 / 300.0), 1e-6)
        assert exact * 0.999 <= found <= exact * 1.005
        assert found.accountant == "gdp"


def test_failures_of_the_window():
    log_s, rest = split_failures(3 * ShuffledBinomial(40, 3.0, 2))
    # of 40 flips fewer than 3 come up heads; two counts move, three times
    ends = sum(math.comb(40, k) for k in range(3)) / 2.0**40
    assert log_s == pytest.approx(6 * math.log1p(-ends), rel=1e-6)
    assert "CountsInWindows" in repr(rest)
    assert math.expm1(split_failures(ShuffledBinomial(20_000, 80.0, 6))[0]) > -1e-38


def test_edges_of_counts():
    assert epsilon(ShuffledBinomial(100, 0.9, 3), 1e-6) == 0.0  # no integer vector is that short
    assert epsilon(ShuffledBinomial(4, 5.0, 1), 1e-6) == math.inf  # the supports do not meet
    # a norm of √50 that was rounded down still allows a shift of (7, 1)
    low, exact = math.nextafter(math.sqrt(50), 0), math.sqrt(50)
    for accountant in ("gdp", "rdp"):
        bound = epsilon(ShuffledBinomial(900, exact, 2), 1e-6, accountant=accountant)
        assert epsilon(ShuffledBinomial(900, low, 2), 1e-6, accountant=accountant) == pytest.approx(bound, rel=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1.0, 1), "trials must be at least 1, got trials=0"),
        ((10, 0.0, 1), "shift_norm must be positive and finite, got shift_norm=0.0"),
        ((10, math.nan, 1), "shift_norm must be a number, got shift_norm=nan"),
        ((10, 1.0, 0), "coordinates must be at least 1, got coordinates=0"),
    ],
)
def test_bad_counts_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        ShuffledBinomial(*arguments)
    with pytest.raises(TypeError, match="rounded must be True or False, got rounded=1"):
        ShuffledBinomial(10, 1.0, 1, rounded=1)


@pytest.mark.thorough
def test_stretches_of_counts_are_priced_from_above(monkeypatch):
    cases = [(1.0, 10, 300_000, 3e-3), (3.0, 4, 10**6, 1e-2), (0.2, 3, 10**5, 1e-3)]
    found = [response_delta(*case) for case in cases]
    response_delta.cache_clear()
    monkeypatch.setattr(blanket, "_STRETCH", 0.0)
    exact = [response_delta(*case) for case in cases]
    response_delta.cache_clear()
    for quick, slow in zip(found, exact, strict=True):
        assert slow < quick < 1.001 * slow

"""Report noisy max: exact laws of the winner, its cost, blocks, refusals."""

import math
from functools import partial
from itertools import permutations

import numpy as np
import pytest
from chi_square import fits
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tabled import tabled
from watched import refused

from accounting import Budget, BudgetExceeded, Ledger, NoisyMax, audit, epsilon
from dpkit.mechanisms import report_noisy_max
from dpkit.samplers import noisy_order

# χ² tests at this p-value: the false-alarm rate under reseeding.
ALARM = 1e-10
NOISES = ["gumbel", "exponential", "laplace"]
each_noise = pytest.mark.parametrize("noise", NOISES)


# -------------------------------------------------------------------------------- the laws, computed independently


def exponential_mechanism(w):
    p = np.exp(w - np.max(w))
    return p / p.sum()


def permute_and_flip(w):
    """McKenna & Sheldon (2020), Algorithm 1, over all orders: the first coin of bias exp(w_i − w*) to show heads."""
    heads = np.exp(w - np.max(w))
    p = np.zeros(len(w))
    for order in permutations(range(len(w))):
        left = 1.0
        for i in order:
            p[i] += left * heads[i]
            left *= 1 - heads[i]
    return p / math.factorial(len(w))


def laplace_max(w):
    """∫ f(x − w_i) Π F(x − w_j) dx by the midpoint rule with nodes on both sides of every kink."""
    h = 1e-3
    x = (np.arange(round((min(w) - 25) / h), round((max(w) + 25) / h)) + 0.5) * h
    tails = np.exp(-np.abs(x - np.asarray(w)[:, None]))
    cdf = np.where(x > np.asarray(w)[:, None], 1 - tails / 2, tails / 2)
    return (tails / 2 / cdf * np.prod(cdf, axis=0)).sum(axis=1) * h


LAWS = {"gumbel": exponential_mechanism, "exponential": permute_and_flip, "laplace": laplace_max}


def draw(scores, count, **parameters):
    return [report_noisy_max(scores, **parameters) for _ in range(count)]


def check_law(noise, scores, weights, count=3000, **parameters):
    wins = np.array(draw(scores, count, noise=noise, rng=np.random.default_rng(8), **parameters))
    for wrong in (0.7, 1.0, 1.4):
        assert fits(wins, range(len(scores)), LAWS[noise](wrong * weights)) == (wrong == 1.0)


SCORES = np.array([3.0, 2.0, 2.0, 0.5, -4.0])


@each_noise
def test_noisy_max_follows_its_law_and_monotone_scores_take_half_the_noise(noise):
    check_law(noise, SCORES, SCORES * 3.0 / (2 * 1.5), sensitivity=1.5, epsilon=3.0)
    check_law(noise, SCORES, SCORES * 1.5, sensitivity=1.0, epsilon=1.5, monotone=True)


@each_noise
def test_minimise_is_the_maximum_of_the_negated_scores(noise):
    run = partial(report_noisy_max, sensitivity=1.0, epsilon=1.0, noise=noise)
    for seed in range(50):
        lowest = run(SCORES, minimise=True, rng=np.random.default_rng(seed))
        assert lowest == run(-SCORES, rng=np.random.default_rng(seed))


@settings(deadline=None, max_examples=40)
@given(
    noise=st.sampled_from(NOISES),
    scores=st.lists(st.floats(-4, 4), min_size=3, max_size=4),
    moves=st.lists(st.floats(-1, 1), min_size=4, max_size=4),
    monotone=st.booleans(),
)
def test_noisy_max_costs_epsilon(noise, scores, moves, monotone):
    """No winner's probability changes by more than a factor e^ε, in the laws that the sampler was tested against."""
    weights = np.array(scores)
    moved = weights + (np.abs(moves) if monotone else np.array(moves))[: len(weights)]
    rate = 1.0 if monotone else 0.5  # ε = Δ = 1
    p, q = LAWS[noise](rate * weights), LAWS[noise](rate * moved)
    assert np.abs(np.log(p) - np.log(q)).max() <= 1 + 1e-6


def test_the_cost_in_the_ledger_is_the_whole_epsilon():
    ledger = Ledger(Budget(1.0, 0.0))
    report_noisy_max([1.0, 2.0], 1.0, 0.6, "laplace", ledger=ledger)
    assert next(iter(ledger.rows())).release == NoisyMax(0.6, "laplace", adjacency="replace")
    assert not ledger.simulation
    with refused(BudgetExceeded, "asks for", ledger) as known:
        report_noisy_max([1.0, 2.0], 1.0, 0.6, "laplace", **known)


# ----------------------------------------------------------------------------------------------- exactness


@each_noise
@pytest.mark.parametrize("size", [12, 60], ids=["few", "array"])
def test_every_comparison_in_double_precision_is_the_exact_one(noise, size, monkeypatch):
    """With a window that lets no candidate pass unexamined, the winner comes from exact arithmetic on the same bits."""
    scores = np.random.default_rng(0).normal(scale=2.0, size=size)
    scores[::7] = -math.inf

    def winners():
        return [report_noisy_max(scores, 1.0, 2.0, noise, rng=np.random.default_rng(seed)) for seed in range(12)]

    fast = winners()
    monkeypatch.setattr(noisy_order, "WINDOW", 1e9)
    assert winners() == fast
    # and where nothing is left to double precision at all
    monkeypatch.setattr(noisy_order, "LARGEST", -1.0)
    assert winners() == fast


class Words(np.random.Generator):
    """A generator whose words are given."""

    def __init__(self, *words):
        super().__init__(np.random.PCG64(0))
        self.words = list(words)

    def integers(self, low, high=None, size=None, dtype=np.int64, endpoint=False):
        return np.array([self.words.pop(0) for _ in range(size)], dtype=np.uint64)


@each_noise
def test_equal_bits_are_told_apart_by_further_ones(noise):
    word = 2**62 + 2  # even: positive Laplace noise
    # large exponential and Laplace noise means a small uniform; large Gumbel noise a large one
    first, second = (5, 9) if noise != "gumbel" else (9, 5)
    assert report_noisy_max([1.0, 1.0], 1.0, 1.0, noise, rng=Words(word, word, first, second)) == 0
    assert report_noisy_max([1.0, 1.0], 1.0, 1.0, noise, rng=Words(word, word, second, first)) == 1
    assert report_noisy_max([1.0, 1.0], 1.0, 1.0, noise, rng=Words(word, word, 7, 7, first, second)) == 0
    # a score that is larger by 1e-13 moves the weight by less than the window, and decides
    assert report_noisy_max([1.0, 1.0 + 1e-13], 1.0, 1.0, noise, rng=Words(word, word, first, second)) == 1


@each_noise
@pytest.mark.parametrize("word", [0, 2**64 - 2, 2**64 - 1, 1])
def test_extreme_bits_are_resolved(noise, word):
    scores = [0.0, 0.5]
    winner = report_noisy_max(scores, 1.0, 1.0, noise, rng=Words(word, 2**62, *[3**40] * 40))
    largest = (word > 2**63) if noise == "gumbel" else (word < 2)
    if noise == "laplace" and word % 2:
        largest = False
    assert winner == (0 if largest else 1)


# ------------------------------------------------------------------------------------------- shapes and blocks


@each_noise
@pytest.mark.parametrize("sizes", [(1,), (3, 0, 5), (8192, 8193, 10)])
def test_blocks_give_what_the_whole_gives(noise, sizes):
    blocks = [np.random.default_rng(i).normal(size=size) for i, size in enumerate(sizes)]
    for seed in range(5):
        whole = report_noisy_max(np.concatenate(blocks), 1.0, 9.0, noise, rng=np.random.default_rng(seed))
        parts = report_noisy_max(lambda: iter(blocks), 1.0, 9.0, noise, rng=np.random.default_rng(seed))
        assert whole == parts


def test_blocks_that_change_are_refused():
    for second in ([np.ones(3)], [np.zeros(2)], [], [np.full(3, math.nan)]):
        answers = iter([[np.zeros(3)], second])
        with pytest.raises(ValueError, match="scores must be the same each time"):
            report_noisy_max(lambda answers=answers: next(answers), 1.0, 1.0)


@each_noise
def test_minus_infinity_is_never_chosen_unless_all_are(noise):
    scores = np.full(50, -math.inf)
    scores[[3, 20]] = 0.0, -1e5
    assert set(draw(scores, 40, sensitivity=1.0, epsilon=1e-3, noise=noise)) == {3}
    winners = draw(np.full(4, -math.inf), 800, sensitivity=1.0, epsilon=1.0, noise=noise, rng=np.random.default_rng(0))
    assert stats.chisquare(np.bincount(winners, minlength=4)).pvalue > ALARM


def test_integer_scores_and_large_ones():
    assert report_noisy_max(np.array([1, 10**6, 3]), 1, 1) == 1
    assert report_noisy_max([1e300, -1e300, 0.0], 1.0, 1.0) == 0
    assert report_noisy_max([1e18, 1e18 - 1e6], 1.0, 1.0) == 0
    assert report_noisy_max([5.0], 1.0, 1.0) == 0


@tabled(
    ("arguments", "message"),
    [
        (([1.0, math.nan], 1.0, 1.0), "scores must be numbers, got NaN"),
        (([1.0, math.inf], 1.0, 1.0), "scores must not be infinite above"),
        (([1.0, 2e300], 1.0, 1.0), "beyond 1e300"),
        (([], 1.0, 1.0), "at least one candidate"),
        (([[1.0, 2.0]], 1.0, 1.0), "scores must be one-dimensional"),
        (1.0, "scores must be one-dimensional"),
        ((["a"], 1.0, 1.0), "scores must be an array of real numbers"),
        ((lambda: [np.zeros(2), [math.nan]], 1.0, 1.0), "scores must be numbers, got NaN"),
        (([1.0], 0.0, 1.0), "sensitivity must be positive"),
        (([1.0], -1.0, 1.0), "sensitivity must be positive"),
        (([1.0], 1.0, 0.0), "epsilon must be positive"),
        (([1.0], 1e-200, 1e200), "epsilon/sensitivity must lie in"),
        (([1.0], 1.0, 1.0, "normal"), "noise must be"),
    ],
)
def test_noisy_max_refuses_before_it_draws(arguments, message):
    arguments = arguments if isinstance(arguments, tuple) else (arguments, 1.0, 1.0)
    with refused((TypeError, ValueError), message) as known:
        report_noisy_max(*arguments, **known)


def test_minimising_refuses_minus_infinity():
    with pytest.raises(ValueError, match="infinite below"):
        report_noisy_max([1.0, -math.inf], 1.0, 1.0, minimise=True)


# ----------------------------------------------------------------------------------------------------- audit


@each_noise
def test_the_audit_finds_less_than_the_claim_and_catches_half_the_noise(noise):
    rng = np.random.default_rng(1)

    def audited(eps):
        # ε = 2 is claimed; a sound mechanism is flagged with probability at most 1e-9
        return audit.lower_bound(
            lambda scores: float(report_noisy_max(scores, 1.0, eps, noise, rng=rng)),
            [1.0, 0.0, 0.0],
            [0.0, 1.0, 1.0],
            trials=1200,
            delta=0.0,
            confidence=1 - 1e-9,
            score=lambda index: -index,
        )

    bound = audited(2.0)
    bound.check(epsilon(NoisyMax(2.0, noise), 0.0))
    assert bound.epsilon > 0.5
    assert audited(8.0).contradicts(2.0)

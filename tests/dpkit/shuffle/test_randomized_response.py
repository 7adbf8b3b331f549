"""Shuffled randomized response and the shuffled scalar mean: laws, intervals, refusals."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tabled import tabled

from accounting import Budget, BudgetExceeded, Ledger, LocalShuffled, RandomizedResponse, delta
from dpkit.shuffle import MessageError, ScalarMean, ShuffledRandomizedResponse, VectorSum, wire

BUDGET = Budget(0.5, 1e-6)


@pytest.mark.parametrize(("users", "honest"), [(1, 1.0), (200, 0.5), (10_000, 1.0)])
def test_the_local_epsilon_is_the_largest_that_meets_the_budget(users, honest):
    response = ShuffledRandomizedResponse(3, users, budget=BUDGET, honest=honest)
    counted = math.floor(users * honest)
    assert response.local_epsilon >= 0.5
    assert response.cost == LocalShuffled(RandomizedResponse(response.local_epsilon, 3), counted)
    assert delta(response.cost, 0.5) <= 1e-6
    assert delta(LocalShuffled(RandomizedResponse(1.001 * response.local_epsilon, 3), counted), 0.5) > 1e-6


@tabled("categories", [2, 3, 17])
def test_messages_tell_the_truth_as_often_as_the_local_epsilon_allows(categories):
    response = ShuffledRandomizedResponse(categories, 40, budget=Budget(2.0, 1e-3), rng=np.random.default_rng(1))
    p, q = response.truth_probability, response.lie_probability
    assert p + (categories - 1) * q == pytest.approx(1.0)
    assert math.exp(response.local_epsilon) * (1 - 1e-9) < p / q <= math.exp(response.local_epsilon)
    # 17 counts among 40000 messages at 6.8 standard deviations: below 2e-10; at 0.9 p they would be far outside
    m = 40_000
    sent = wire.read(response.tally(np.full(m, 1)), response.fingerprint)
    counts = sent.fields(categories, m.bit_length()).astype(int)
    assert counts.sum() == sent.users == m
    expected = np.where(np.arange(categories) == 1, p, q)
    slack = 6.8 * np.sqrt(m * expected * (1 - expected))
    assert np.all(np.abs(counts - m * expected) < slack)
    assert abs(counts[1] - 0.9 * m * p) > slack[1]


@pytest.mark.thorough
def test_estimates_are_unbiased_and_intervals_cover():
    # 300 runs; a 99 % interval misses at most as often as Bin(300, 0.01), which passes 20 with probability below 1e-10
    rng = np.random.default_rng(3)
    values = np.repeat([0, 1, 2], [900, 600, 0])
    truth = np.array([0.6, 0.4, 0.0])
    estimates, missed, widths = [], 0, []
    for _ in range(300):
        response = ShuffledRandomizedResponse(3, 1500, budget=BUDGET, rng=rng)
        shares = response.decode(response.shuffle_tallies(response.tally(values)), confidence=0.99)
        estimates.append(shares.estimate)
        missed += not (shares.low[0] <= truth[0] <= shares.high[0])
        widths.append(shares.high[0] - shares.low[0])
        assert shares.users == 1500
        assert shares.estimate.sum() == pytest.approx(1.0)
    assert missed <= 20
    errors = np.array(estimates) - truth
    assert np.all(np.abs(errors.mean(axis=0)) < 6.5 * response.noise_std / math.sqrt(300))
    # the stated standard deviation is an upper bound, and not a loose one for the most frequent category
    spread = errors.std(axis=0)
    assert np.all(spread < response.noise_std * (1 + 6.5 / math.sqrt(600)))
    assert spread[0] > 0.6 * response.noise_std
    # intervals are about ±2.58 standard deviations of the share among users who were drawn at random
    p, q = response.truth_probability, response.lie_probability
    theta = q + (p - q) * 0.6
    assert np.mean(widths) < 1.1 * 2 * 2.58 * math.sqrt(theta * (1 - theta) / 1500) / (p - q)


@settings(max_examples=25)
@given(st.integers(2, 9), st.integers(1, 40), st.data())
def test_shares_are_estimated_from_any_messages(categories, users, data):
    response = ShuffledRandomizedResponse(categories, users, budget=Budget(8.0, 1e-3))
    values = data.draw(st.lists(st.integers(0, categories - 1), min_size=users, max_size=users))
    messages = [response.encode(values[i]) for i in range(users)]
    shares = response.decode(response.shuffle(messages))
    assert shares.estimate.shape == (categories,)
    assert np.all((shares.low >= 0) & (shares.low <= shares.high) & (shares.high <= 1))


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        (3, ValueError, r"values must lie in \[0, 2\], got 3 to 3"),
        ([0, -1], ValueError, "got -1 to 0"),
        ([0.5], TypeError, "values must be integers"),
        ([], TypeError, "values must be integers"),
        (np.zeros((2, 2), dtype=int), ValueError, "values must be a category or a vector"),
    ],
)
def test_values_that_are_no_categories_are_refused(values, error, message):
    with pytest.raises(error, match=message):
        ShuffledRandomizedResponse(3, 10, budget=BUDGET).tally(values)


def test_a_device_sends_for_one_user():
    response, mean = ShuffledRandomizedResponse(3, 10, budget=BUDGET), ScalarMean(10, budget=BUDGET)
    with pytest.raises(ValueError, match="value must be one user's category"):
        response.encode([0, 1])
    with pytest.raises(ValueError, match="x must be one user's number"):
        mean.encode([0.5, 0.5])
    for bad in (3, -1):
        with pytest.raises(ValueError, match=r"must lie in \[0, 2\]"):
            response.encode(bad)
    tallies = [response.tally([0] * 10), mean.tally([0.5] * 10)]
    for each, tally in zip((response, mean), tallies, strict=True):
        with pytest.raises(ValueError, match=r"got 0 and refused messages: {'kind': 1}"):
            each.shuffle([tally])
        assert each.refused == {"kind": 1}


@settings(max_examples=20)
@given(st.integers(1, 60), st.integers(2, 5), st.integers(0, 2**32))
def test_devices_and_workers_are_counted_alike(users, categories, seed):
    """A device's category and a worker's tally of it have the same law: here draw by draw."""
    values = np.random.default_rng(seed).integers(0, categories, users)
    one, other = (
        ShuffledRandomizedResponse(
            categories, users, budget=Budget(8.0, 1e-3), rng=np.random.default_rng(seed), session="s"
        )
        for _ in range(2)
    )
    sent = [one.encode(value) for value in values]
    counts = np.bincount(
        [int(wire.read(data, one.fingerprint).fields(1, (categories - 1).bit_length())[0]) for data in sent],
        minlength=categories,
    )
    width = users.bit_length()
    np.testing.assert_array_equal(wire.read(one.shuffle(sent), one.fingerprint).fields(categories, width), counts)
    whole = wire.read(other.shuffle_tallies(map(other.tally, values[:, None])), one.fingerprint)
    assert whole.users == whole.fields(categories, width).sum() == users


def test_messages_that_do_not_count_are_skipped_and_there_is_one_release():
    ledger = Ledger(Budget(0.5, 1e-6))
    response = ShuffledRandomizedResponse(3, 4, budget=BUDGET, rng=np.random.default_rng(0), ledger=ledger)
    good = [response.encode(value) for value in (0, 1, 2, 2)]
    other = ShuffledRandomizedResponse(4, 4, budget=BUDGET).encode(0)
    twin = ShuffledRandomizedResponse(3, 4, budget=BUDGET).encode(0)  # of another session
    impossible = wire.write(wire.Kind.DEVICE, response.fingerprint, np.array([3]), 2, nonce=b"0123456789abcdef")
    late = wire.write(wire.Kind.DEVICE, response.fingerprint, np.array([1]), 2, round=1)
    bad = [b"", good[0][:-1], other, twin, impossible, late, good[1], response.tally([0, 1, 2])]
    with pytest.raises(ValueError, match="at least users=4 users, whose noise protects each of them, got 3"):
        response.shuffle([*good[:3], *bad])
    for tallies in (good, bad[-1], [bad[-1], b""]):
        with pytest.raises(ValueError, match=r"must be of kind WORKER|at least users=4|at least 42 bytes"):
            response.shuffle_tallies(tallies)
    wrong = wire.write(wire.Kind.WORKER, response.fingerprint, np.array([3, 3, 3]), 3, users=7)
    with pytest.raises(MessageError, match="counts must add up to the number of users, 7"):
        response.shuffle_tallies(wrong)
    assert (ledger.rows(), response.released) == ([], False)
    released = response.shuffle([*bad[:6], *good, *bad[6:]])
    assert response.refused == {"malformed": 3, "protocol": 2, "round": 1, "duplicate": 1, "kind": 1}
    assert response.decode(released).users == 4
    (row,) = ledger.rows()
    assert (row.release, row.simulation) == (response.cost, True)
    for again in (response.shuffle, response.shuffle_tallies):
        with pytest.raises(ValueError, match="at most rounds=1 releases"):
            again(good)
    with pytest.raises(MessageError, match="must be of kind SHUFFLED"):
        response.decode(good[0])
    with pytest.raises(ValueError, match="confidence must be at least"):
        response.decode(released, confidence=0.1)
    spent = ShuffledRandomizedResponse(3, 4, budget=BUDGET, ledger=ledger)
    with pytest.raises(BudgetExceeded):
        spent.shuffle_tallies(spent.tally([0, 1, 2, 2]))
    assert not spent.released


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"categories": 1}, "categories must be at least 2"),
        ({"users": 0}, "users must be at least 1"),
        ({"honest": 0}, "honest must lie in"),
        ({"budget": Budget(1.0, 1e-6, adjacency="zero_out")}, "must have adjacency 'replace'"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        ShuffledRandomizedResponse(**{"categories": 2, "users": 10, "budget": BUDGET} | parameters)
    if "categories" not in parameters:
        with pytest.raises(ValueError, match=message):
            ScalarMean(**{"users": 10, "budget": BUDGET} | parameters)


def test_the_scalar_mean_is_unbiased_and_has_the_stated_error():
    # 400 means of 500 users at 6.5 standard errors: below 1e-9
    x = np.linspace(0, 1, 500) ** 2
    estimates, missed = [], 0
    for _ in range(400):
        mean = ScalarMean(500, budget=Budget(6.0, 1e-2), rng=np.random.default_rng(len(estimates)))
        estimate, low, high = mean.decode(mean.shuffle_tallies(mean.tally(x)), confidence=0.99)
        estimates.append(estimate)
        missed += not low <= x.mean() <= high
    assert abs(np.mean(estimates) - x.mean()) < 6.5 * mean.noise_std / 20
    assert np.std(estimates) < mean.noise_std * (1 + 6.5 / math.sqrt(800))
    assert missed <= 24
    for wrong in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="x must"):
            mean.tally([0.5, wrong])


def test_one_message_per_user_costs_accuracy():
    # the same budget and users: the mean from many messages has the error 1/n, from one message 1/√n
    n = 10_000
    single = ScalarMean(n, budget=BUDGET).noise_std
    many = VectorSum(1, n, 0.5, budget=BUDGET).noise_std / n
    assert 4 < single / many < 40

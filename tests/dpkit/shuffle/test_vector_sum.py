"""Shuffled vector sums: calibration, encodings, refusals. The tests of VectorSum's guarantees bear their names."""

import dataclasses
import functools
import itertools
import math
import pickle

import numpy as np
import pytest
from chi_square import fits
from hypothesis import given, settings
from hypothesis import strategies as st
from tabled import tabled

from accounting import (
    ApproxDP,
    Budget,
    BudgetExceeded,
    Gaussian,
    Ledger,
    PureDP,
    ShuffledBinomial,
    calibrate,
    delta,
)
from dpkit.shuffle import Analyzer, MessageError, Randomizer, Shuffler, SumProtocol, Tally, VectorSum, wire

BUDGET = Budget(1.0, 1e-6)


def protocol(**changes):
    """Small constants whose laws can be written down; nothing is claimed about their cost."""
    constants = {"dimension": 2, "users": 3, "bound": 1.5, "resolution": 5, "noise_bits": 4, "cost": PureDP(1.0)}
    return SumProtocol(**constants | changes)


class CountingGenerator(np.random.Generator):
    """Counts its draws, to show that a refusal draws nothing."""

    draws = 0

    def __getattribute__(self, name):
        if name in ("integers", "random", "bytes"):
            CountingGenerator.draws += 1
        return super().__getattribute__(name)


# ------------------------------------------------------------------------------------------------- calibration


@pytest.mark.parametrize(
    ("budget", "D", "n", "most", "gaussian"),
    [
        # The published constants give a standard deviation of 880 and 1.65e7 bits at the first; Rényi composition with
        # shifts rounded up gives 2.64 and 17.9. The last column is exact Gaussian noise at the same budget.
        (Budget(2.0, 0.01), 6, 1666, 2.30, 2.2325),
        (Budget(0.5, 1e-6), 55, 20_000, 16.6, 16.1152),
    ],
)
def test_noise_is_within_a_few_percent_of_the_gaussian(budget, D, n, most, gaussian):
    sums = VectorSum(D, n, 1.0, budget=budget)
    assert 2.0 * calibrate(Gaussian, budget) == pytest.approx(gaussian, abs=1e-4)
    assert gaussian < sums.noise_std < most
    assert sums.protocol.noise_bits <= 60
    assert sums.messages_per_user == D * (sums.protocol.resolution + sums.protocol.noise_bits)


@settings(max_examples=20, deadline=None)
@given(
    st.floats(0.1, 4.0),
    st.sampled_from([0.05, 1e-4, 1e-9]),
    st.integers(1, 40),
    st.integers(1, 3000),
    st.sampled_from([1, 3, 50]),
    st.sampled_from([1.0, 0.5]),
    st.sampled_from(["replace", "zero_out"]),
)
def test_cost_meets_the_budget(epsilon, delta_, D, n, rounds, honest, adjacency):
    budget = Budget(epsilon, delta_, adjacency=adjacency)
    sums = VectorSum(D, n, 0.7, budget=budget, rounds=rounds, honest=honest)
    assert delta(rounds * sums.cost, epsilon, accountant="gdp") <= delta_
    assert isinstance(sums.cost, ShuffledBinomial)
    assert sums.cost.adjacency == adjacency
    # the noise bits of honest users only, and the whole distance of two inputs
    counted = max(1, math.floor(honest * n))
    assert sums.cost.trials == counted * sums.protocol.noise_bits
    assert sums.cost.shift_norm >= sums.protocol.resolution / (2.0 if adjacency == "zero_out" else 1.0)
    assert sums.cost.coordinates == D
    # one bit less would not do
    fewer = dataclasses.replace(sums.cost, trials=counted * (sums.protocol.noise_bits - 1))
    assert delta(rounds * fewer, epsilon, accountant="gdp") > delta_


@tabled(
    ("more", "ratio"),
    [
        # dishonest users add none, and closer inputs need less; rounds share the budget like Gaussian releases
        ({"honest": 0.5}, math.sqrt(2)),
        ({"positive": True}, 1 / math.sqrt(2)),
        ({"distance": 0.5}, 1 / 4),
        ({"rounds": 100}, 10),
    ],
)
def test_how_much_noise_there_is(more, ratio):
    plain, other = (VectorSum(4, 2000, 1.0, budget=BUDGET, **known).noise_std for known in ({}, more))
    assert other / plain == pytest.approx(ratio, rel=0.02)
    # no two inputs are farther apart than 2Δ, whatever the caller says
    assert VectorSum(4, 2000, 1.0, budget=BUDGET, distance=9.0).noise_std == plain


def test_the_constants_of_the_paper():
    sums = VectorSum(6, 1666, 1.0, budget=Budget(2.0, 0.01), analysis="paper")
    # arXiv:2602.00417, Equation 122
    assert sums.protocol.resolution == 82
    assert sums.protocol.noise_bits == math.ceil(24e4 * 82**2 * math.log(4 * 7 / 0.01) ** 2 / (4 * 1666))
    # √(24·10⁴·3/16)·2·ln(4(D + 1)/δ)/ε; the printed scale of the entries, which does not fit into g bits, is half of it
    assert sums.noise_std == pytest.approx(424.26 * math.log(4 * 7 / 0.01) / 2.0, rel=1e-3)
    assert sums.noise_std > 700 * VectorSum(6, 1666, 1.0, budget=Budget(2.0, 0.01)).noise_std
    assert sums.cost == ApproxDP(2.0, 0.01, adjacency="replace")
    split = VectorSum(6, 1666, 1.0, budget=Budget(2.0, 0.01), analysis="paper", rounds=10).cost
    assert split == ApproxDP(2.0 / (2 * math.sqrt(20 * math.log(100))), 0.01 / 11, adjacency="replace")


@tabled(
    ("parameters", "error", "message"),
    [
        ({"dimension": 0}, ValueError, "dimension must be at least 1, got dimension=0"),
        ({"users": 0}, ValueError, "users must be at least 1, got users=0"),
        ({"users": 2.5}, TypeError, "users must be a whole number"),
        ({"bound": 0.0}, ValueError, "bound must be positive"),
        ({"bound": math.inf}, ValueError, "bound must be positive and finite"),
        ({"rounds": 0}, ValueError, "rounds must be at least 1"),
        ({"honest": 0.0}, ValueError, r"honest must lie in \(0, 1\]"),
        ({"honest": 1.5}, ValueError, r"honest must lie in \(0, 1\]"),
        ({"distance": -1.0}, ValueError, "distance must be positive"),
        ({"budget": 1.0}, TypeError, "budget must be a Budget"),
        ({"budget": Budget(1.0, 0.0)}, ValueError, "budget must have a positive delta"),
        ({"budget": Budget(1.0, 1e-6, adjacency="add_remove")}, ValueError, "who sends messages is public"),
        ({"analysis": "exact"}, ValueError, "analysis must be 'numeric' or 'paper'"),
        ({"analysis": "paper", "honest": 0.5}, ValueError, "analysis='paper' must go with honest=1"),
        ({"analysis": "paper", "budget": Budget(16.0, 1e-6)}, ValueError, "epsilon <= 15"),
        ({"rng": 7}, TypeError, "rng must be"),
        ({"session": 7}, TypeError, "session must be a string"),
    ],
)
def test_bad_parameters_are_refused(parameters, error, message):
    with pytest.raises(error, match=message):
        VectorSum(**{"dimension": 2, "users": 100, "bound": 1.0, "budget": BUDGET} | parameters)


# ----------------------------------------------------------------------------------------------------- privacy


@st.composite
def pairs(draw):
    """Two inputs of norm at most 1, extreme ones among them."""
    D = draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    x, other = rng.standard_normal((2, D))
    match draw(st.sampled_from(["apart", "opposite", "near", "zero"])):
        case "opposite":
            other = -x
        case "near":
            other = x + 1e-6 * other
        case "zero":
            other = np.zeros(D)
    scale = [draw(st.sampled_from([1.0, 0.5, 1e-9])) for _ in range(2)]
    return [s * v / max(np.linalg.norm(v), 1e-300) for s, v in zip(scale, (x, other), strict=True)]


@given(pairs())
def test_inputs_never_differ_by_more_than_the_shift(pair):
    x, other = pair
    D = len(x)
    for parameters in ({}, {"positive": True}):
        a, b = (np.abs(v) if parameters else v for v in (x, other))
        sums = calibrated(D, *parameters)
        # the numbers that are rounded: w = (x + Δ)g/(2Δ)
        moved = np.linalg.norm(a - b) / sums.protocol.step
        assert moved <= sums.cost.shift_norm


@functools.cache
def calibrated(D, *options):
    return VectorSum(D, 50, 1.0, budget=BUDGET, **dict.fromkeys(options, True))


def test_positive_matrices_never_differ_by_more_than_the_shift():
    sums = VectorSum(3, 50, 1.0, budget=BUDGET, symmetric=True, positive=True)
    rng = np.random.default_rng(0)
    worst = 0.0
    for _ in range(500):
        A, B = (M @ M.T for M in rng.standard_normal((2, 3, rng.integers(1, 4))))
        apart = np.linalg.norm(A / np.linalg.norm(A) - B / np.linalg.norm(B)) / sums.protocol.step
        worst = max(worst, apart / sums.cost.shift_norm)
    e1, e2 = np.diag([1.0, 0, 0]), np.diag([0, 1.0, 0])
    assert worst <= np.linalg.norm(e1 - e2) / sums.protocol.step / sums.cost.shift_norm <= 1.0
    sums.tally(np.array([e1, e2, np.outer([0.6, 0.8, 0], [0.6, 0.8, 0])]))


@tabled(
    ("parameters", "x", "message"),
    [
        ({}, [0.8, 0.8], r"x must have norm at most bound=1\.0, got one of norm 1\."),
        ({}, [math.nan, 0.0], "must be finite"),
        ({}, [math.inf, 0.0], "must be finite"),
        ({"clip": True}, [math.nan, 0.0], "must be finite"),
        ({"positive": True}, [0.5, -0.1], "must have nonnegative entries"),
        ({"symmetric": True}, np.eye(2), r"x must have norm at most bound=1\.0, got one of norm 1\."),
        ({"symmetric": True, "positive": True}, [[0.1, 0.5], [0.5, 0.1]], "must have nonnegative eigenvalues"),
        ({}, [0.1, 0.2, 0.3], r"x must have shape \(2,\), got x.shape=\(3,\)"),
        ({"symmetric": True}, [0.1, 0.2], r"x must have shape \(2, 2\)"),
        ({}, [[[0.1, 0.2]]], "x must have shape"),
    ],
)
def test_bad_inputs_are_refused_before_anything_is_drawn(parameters, x, message):
    clip = parameters.pop("clip", False)
    randomizer = Randomizer(protocol(bound=1.0, **parameters), clip=clip, rng=CountingGenerator(np.random.PCG64(0)))
    CountingGenerator.draws = 0
    for send, value in ((randomizer.encode, x), (randomizer.tally, [x]), (randomizer.ones, [x])):
        with pytest.raises(ValueError, match="x must have shape" if "shape" in message else message):
            send(value)
    with pytest.raises(ValueError, match=message):
        randomizer.encode(x)
    assert CountingGenerator.draws == 0


def test_inputs_that_are_not_real_numbers_are_refused():
    with pytest.raises(TypeError, match="x must be an array of real numbers"):
        Randomizer(protocol()).encode(["a", "b"])
    with pytest.raises(ValueError, match="x must have shape"):
        Randomizer(protocol()).tally(np.zeros((0, 2)))


def test_longer_inputs_are_scaled_back_with_clip():
    constants = protocol(bound=1.0, resolution=10**6)
    ones = Randomizer(constants, clip=True, rng=np.random.default_rng(0)).ones([[30.0, 40.0]])
    x = Analyzer(constants).decode(Tally(constants, 1, ones[0]).to_bytes(kind=wire.Kind.SHUFFLED))
    np.testing.assert_allclose(x, [0.6, 0.8], atol=1e-4)


# --------------------------------------------------------------------------------------------- law of the output


def exact_law(constants, x):
    """The pmf of the total number of ones for one coordinate with the users' inputs ``x``, by convolution."""
    g, b, p = constants.resolution, constants.noise_bits, constants.noise_rate
    law = np.ones(1)
    noise = np.array([math.comb(b, k) * p**k * (1 - p) ** (b - k) for k in range(b + 1)])
    for value in x:
        w = (value + constants.bound) * g / (2 * constants.bound)
        rounded = np.zeros(g + 1)
        rounded[math.floor(w)] += 1 - (w - math.floor(w))
        rounded[min(g, math.floor(w) + 1)] += w - math.floor(w)
        law = np.convolve(np.convolve(law, rounded), noise)
    return law


@pytest.mark.parametrize("noise_rate", [0.5, 0.25])
@pytest.mark.parametrize("encoding", ["bits", "counts"])
def test_both_encodings_have_the_same_law(encoding, noise_rate):
    constants = protocol(dimension=1, users=2, resolution=3, noise_bits=5, noise_rate=noise_rate, rounds=10**6)
    x = np.array([[0.4], [-1.3]])
    rng = np.random.default_rng(5)
    randomizer, shuffler, analyzer = Randomizer(constants, rng=rng), Shuffler(constants, rng=rng), Analyzer(constants)
    totals = []
    for i in range(1000):
        if encoding == "bits":
            sent = shuffler.shuffle([randomizer.encode(row, round=i) for row in x])
        else:
            sent = shuffler.shuffle_tallies(randomizer.tally(x))
        totals.append(analyzer.decode(sent, 2)[0])
    # back from the estimate to the number of ones
    ones = np.rint(np.array(totals) / constants.step + 2 * (1.5 + 5 * noise_rate)).astype(int)
    # the law of one noise bit less, or of another input, is told apart
    fewer = dataclasses.replace(constants, noise_bits=4)
    for law_of, y, right in ((constants, x, True), (fewer, x, False), (constants, x + 0.25, False)):
        law = exact_law(law_of, y[:, 0])
        assert fits(ones, range(len(law)), law) == right


@pytest.mark.parametrize("symmetric", [False, True])
def test_bits_and_counts_of_one_user_agree_draw_by_draw(symmetric):
    constants = protocol(dimension=3, symmetric=symmetric, users=1)
    x = np.diag([0.5, -0.2, 0.1]) if symmetric else np.array([0.5, -0.2, 0.1])
    data = Randomizer(constants, rng=np.random.default_rng(1)).encode(x)
    ones = Randomizer(constants, rng=np.random.default_rng(1)).ones(x[None])[0]
    fields = wire.read(data, constants.fingerprint).fields(constants.coordinates, constants.count_width(1))
    np.testing.assert_array_equal(fields, ones)


@pytest.mark.thorough
def test_estimates_are_unbiased():
    # 4000 releases of 40 users: the mean error is within 6.5 of its standard errors; four coordinates: below 1e-9
    x = np.random.default_rng(2).uniform(-0.5, 0.5, size=(40, 4))
    constants = protocol(dimension=4, users=40, resolution=2)
    randomizer, analyzer = Randomizer(constants, rng=np.random.default_rng(4)), Analyzer(constants)
    estimates = np.array([analyzer.decode(randomizer.tally(x).to_bytes(kind=wire.Kind.SHUFFLED)) for _ in range(4000)])
    standard_error = constants.noise_std(40) / math.sqrt(4000)
    assert np.abs(estimates.mean(axis=0) - x.sum(axis=0)).max() < 6.5 * standard_error
    # rounding to the nearest number of ones instead of at random would be seen
    nearest = np.rint((x + constants.bound) / constants.step) * constants.step - constants.bound
    assert np.abs(nearest.sum(axis=0) - x.sum(axis=0)).max() > 20 * standard_error


def test_noise_has_the_stated_scale():
    # Entries of fraction ½ have the largest rounding noise. Relative standard error of a standard deviation over
    # 8000 values: 0.0079; 6.5 of them are 0.051, so 1e-10, and 0.9 and 1.1 are seen.
    sums = VectorSum(8000, 30, 1.0, budget=Budget(8.0, 1e-3))
    constants = dataclasses.replace(sums.protocol, resolution=1)
    values = Randomizer(constants, rng=np.random.default_rng(6)).tally(np.zeros((30, 8000)))
    estimate = Analyzer(constants).decode(values.to_bytes(kind=wire.Kind.SHUFFLED))
    for wrong in (0.9, 1.0, 1.1):
        agrees = abs(estimate.std() / (wrong * constants.noise_std(30)) - 1) < 6.5 / math.sqrt(2 * 8000)
        assert agrees == (wrong == 1.0)


def test_matrices_have_half_the_variance_off_the_diagonal():
    # 300 × 3 values on and off the diagonal: relative standard error 0.024, 6.5 of them 0.153 < 1 − 1/√2
    sums = VectorSum(3, 20, 1.0, budget=Budget(4.0, 1e-3), symmetric=True, rounds=300, rng=np.random.default_rng(8))
    X = np.zeros((20, 3, 3))
    estimates = np.array([sums.release(X) for _ in range(300)])
    np.testing.assert_array_equal(estimates, estimates.transpose(0, 2, 1))
    on = estimates[:, range(3), range(3)].std() / sums.noise_std
    off = estimates[:, [0, 0, 1], [1, 2, 2]].std() / sums.noise_std
    assert abs(on - 1) < 0.16
    assert abs(off * math.sqrt(2) - 1) < 0.16


def test_with_little_noise_the_sum_comes_out():
    rng = np.random.default_rng(1)
    constants = protocol(dimension=4, users=5, bound=2.0, resolution=10**7, noise_bits=1, symmetric=True, rounds=2)
    M = rng.standard_normal((5, 4, 4))
    M = (M + M.transpose(0, 2, 1)) / 20
    for send in (
        lambda s, r: s.shuffle([r.encode(m) for m in M[:, :2, :2]]),
        lambda s, r: s.shuffle_tallies(r.tally(M[:, :2, :2])),
    ):
        small = dataclasses.replace(constants, dimension=2, resolution=10**4)
        r = Randomizer(small, rng=rng)
        estimate = Analyzer(small).decode(send(Shuffler(small, rng=rng), r), 5)
        np.testing.assert_allclose(estimate, M[:, :2, :2].sum(axis=0), atol=20 * small.step)
    estimate = Analyzer(constants).decode(Randomizer(constants, rng=rng).tally(M).to_bytes(kind=wire.Kind.SHUFFLED))
    np.testing.assert_allclose(estimate, M.sum(axis=0), atol=20 * constants.step)


@settings(max_examples=25)
@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.randoms(use_true_random=False), st.integers(0, 2**32))
def test_tallies_merge_in_any_order(sizes, order, seed):
    rng = np.random.default_rng(seed)
    randomizer = Randomizer(protocol(users=1), rng=rng)
    parts = [randomizer.tally(rng.uniform(-1, 1, size=(m, 2))) for m in sizes]
    whole = sum(parts)
    assert whole.users == sum(sizes)
    np.testing.assert_array_equal(whole.ones, np.sum([part.ones for part in parts], axis=0))
    a, b, *rest = order.sample(parts, len(parts))
    assert a + b == b + a
    for c in rest:
        assert (a + b) + c == a + (b + c)
    assert sum(order.sample(parts, len(parts))) == whole
    # through bytes as well
    assert Tally.from_worker(whole.protocol, whole.to_bytes()) == whole


def test_tallies_of_different_protocols_do_not_merge():
    a, b = (Randomizer(protocol(bound=bound)).tally(np.zeros((3, 2))) for bound in (1.0, 1.5))
    with pytest.raises(ValueError, match="of the same protocol"):
        a + b
    with pytest.raises(TypeError):
        a + 1
    assert a != b
    assert a != "a"
    for ones in (np.zeros(3, dtype=np.int64), np.zeros(2), np.full(2, 28), np.full(2, -1)):
        with pytest.raises(ValueError, match="ones must"):
            Tally(protocol(), 3, ones)
    with pytest.raises(ValueError, match="fewer than 2\\*\\*62 bits"):
        Tally(protocol(), 2**60, np.zeros(2, dtype=np.int64))


def test_objects_travel_to_other_processes():
    sums = VectorSum(2, 10, 1.0, budget=BUDGET)
    randomizer, analyzer = pickle.loads(pickle.dumps((sums.randomizer, sums.analyzer)))
    assert analyzer.decode(sums.shuffle_tallies(randomizer.tally(np.zeros((10, 2))))).shape == (2,)


# ------------------------------------------------------------------------------------------------------- rounds


def fresh(**changes):
    """A shuffler with a ledger, and messages of three devices for its rounds."""
    constants = protocol(**changes)
    ledger = Ledger(Budget(1.5, 1e-6))
    shuffler = Shuffler(constants, rng=CountingGenerator(np.random.PCG64(0)), ledger=ledger)
    randomizer = Randomizer(constants, rng=np.random.default_rng(1))

    def devices(count=3):
        return [randomizer.encode(x, round=shuffler.round) for x in np.zeros((count, 2))]

    return constants, ledger, shuffler, randomizer, devices


def test_nothing_is_released_before_enough_users_took_part():
    _, ledger, shuffler, randomizer, devices = fresh()
    for messages in ([], devices(2)):
        with pytest.raises(ValueError, match="at least users=3 users"):
            shuffler.shuffle(messages)
    for tallies in ([], randomizer.tally(np.zeros((2, 2)))):
        with pytest.raises(ValueError, match="at least users=3 users"):
            shuffler.shuffle_tallies(tallies)
    for stranger in ([0.0, 1.0, 2.0], [*devices(), None], [randomizer.tally(np.zeros((3, 2)))]):
        with pytest.raises(TypeError, match="a message must be bytes"):
            shuffler.shuffle(stranger)
    assert (ledger.rows(), shuffler.rounds_left) == ([], 1)
    # more than enough is fine, and the estimate covers them all
    assert Analyzer(shuffler.protocol).decode(shuffler.shuffle(devices(6)), 6).shape == (2,)


def test_releases_are_charged_and_end_with_the_rounds():
    constants, ledger, shuffler, randomizer, devices = fresh(rounds=3, cost=PureDP(0.5))
    for left in (2, 1, 0):
        sent = devices()
        released = shuffler.shuffle(sent)
        (row,) = ledger.rows()
        assert (row.release, row.simulation) == (3 * constants.cost, True)
        assert (shuffler.rounds_left, shuffler.round) == (left, 3 - left)
    with pytest.raises(ValueError, match="at most rounds=3 releases"):
        shuffler.shuffle(sent)
    with pytest.raises(ValueError, match="at most rounds=3 releases"):
        shuffler.shuffle_tallies(randomizer.tally(np.zeros((3, 2))))
    another = Shuffler(constants, ledger=ledger)
    for _ in range(2):
        with pytest.raises(BudgetExceeded):
            another.shuffle_tallies(randomizer.tally(np.zeros((3, 2))))
    assert (len(ledger.rows()), another.rounds_left) == (1, 3)
    with pytest.raises(ValueError, match="users must be the number of users in the message, 3, got users=4"):
        Analyzer(constants).decode(released, 4)
    for message in (sent[0], randomizer.tally(np.zeros((3, 2))).to_bytes()):
        with pytest.raises(MessageError, match="must come from the shuffler"):
            Analyzer(constants).decode(message)
    ledger = Ledger(BUDGET)
    secure = VectorSum(2, 3, 1.0, budget=BUDGET, rounds=20, ledger=ledger, label="heights")
    for _ in range(20):
        secure.release(np.zeros((3, 2)))
    (row,) = ledger.rows()
    assert (row.label, row.release, row.simulation) == ("heights", 20 * secure.cost, False)


@settings(max_examples=40)
@given(st.permutations(range(5)), st.integers(0, 2**32))
def test_what_is_released_says_nothing_about_who_sent_what(order, seed):
    """It is the same, to the byte, when messages come in another order or users exchange bits of a label."""
    constants = protocol(users=5)
    randomizer = Randomizer(constants, rng=np.random.default_rng(seed))
    sent = [randomizer.encode(x) for x in np.linspace(-1, 1, 10).reshape(5, 2)]
    released = Shuffler(constants).shuffle(sent)
    assert Shuffler(constants).shuffle([sent[i] for i in order]) == released
    width, most = constants.count_width(1), constants.messages_per_coordinate
    ones = np.array([wire.read(data, constants.fingerprint).fields(2, width) for data in sent], dtype=int)
    moved = min(ones[0, 0], most - ones[1, 0])
    ones[0, 0], ones[1, 0] = ones[0, 0] - moved, ones[1, 0] + moved
    others = [
        wire.write(wire.Kind.DEVICE, constants.fingerprint, row, width, nonce=bytes([i] * wire.NONCE))
        for i, row in enumerate(ones)
    ]
    assert Shuffler(constants).shuffle(others) == released


def test_too_many_rounds_or_users_are_refused_at_once():
    for rounds in (10**6 + 1, 10**30):
        with pytest.raises(ValueError, match="rounds must be at most 1000000"):
            VectorSum(2, 10, 1.0, budget=BUDGET, rounds=rounds)
    with pytest.raises(ValueError, match=r"below 2\*\*62 to be counted"):
        protocol(users=2**60)
    assert VectorSum(2, 10, 1.0, budget=BUDGET, rounds=10**6).noise_std > 0
    with pytest.raises(ValueError, match="round must be below rounds=1, got round=1"):
        Randomizer(protocol()).encode([0.0, 0.0], round=1)


@tabled(
    ("name", "value", "message"),
    [
        ("users", 0, "users must be at least 1"),
        ("resolution", 0, "resolution must be at least 1"),
        ("noise_bits", 0, "noise_bits must be at least 1"),
        ("bound", -1.0, "bound must be positive"),
        ("noise_rate", 0.3, "noise_rate must be 0.25 or 0.5"),
    ],
)
def test_bad_constants_are_refused(name, value, message):
    with pytest.raises(ValueError, match=message):
        protocol(**{name: value})


def test_every_constant_is_in_the_fingerprint():
    changes = [
        {},
        {"dimension": 3},
        {"users": 4},
        {"bound": 2.0},
        {"resolution": 6},
        {"noise_bits": 5},
        {"rounds": 2},
        {"noise_rate": 0.25},
        {"symmetric": True},
        {"positive": True},
        {"session": "another"},
    ]
    prints = [protocol(**change).fingerprint for change in changes]
    assert all(a != b for a, b in itertools.combinations(prints, 2))

"""The shuffler's trust boundary: what a malicious device can do at most, measured.

Everything a device can send is tried: forged numbers of users, duplicates, replays, messages of other protocols, and
every well-formed content. What is released changes by at most what one device may change.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shuffled_counts import resealed, response_of
from tabled import tabled

from accounting import Budget, PureDP
from dpkit.shuffle import (
    Analyzer,
    MessageError,
    Randomizer,
    ScalarMean,
    ShuffledRandomizedResponse,
    Shuffler,
    SumProtocol,
    VectorSum,
    wire,
)

BUDGET = Budget(1.0, 1e-6)
USERS = 200
SUMS = VectorSum(3, USERS, 1.0, budget=BUDGET, session="trust")
PROTOCOL = SUMS.protocol
HONEST = [Randomizer(PROTOCOL).encode(x) for x in np.random.default_rng(0).uniform(-0.5, 0.5, (USERS, 3))]
# what a device of the protocol may change: the range of its message, g + b ones in each coordinate
ONE_DEVICE = PROTOCOL.step * PROTOCOL.messages_per_coordinate


def shuffler(**changes):
    return Shuffler(PROTOCOL, **changes)


def device(ones, *, nonce=b"a malicious one!", protocol=PROTOCOL, kind=wire.Kind.DEVICE, **header):
    width = protocol.count_width(header.get("users", 1))
    return wire.write(kind, protocol.fingerprint, np.asarray(ones), width, nonce=nonce, **header)


def tallied(users, ones):
    """What used to pass: counts, or bits, that claim to come from many users."""
    return device(ones, kind=wire.Kind.WORKER, users=users)


MOST = [PROTOCOL.messages_per_coordinate] * 3
REFUSED = {
    "of 199 users": (tallied(199, [0, 0, 0]), "kind"),
    "of 5000 users": (tallied(5000, [5000 * m for m in MOST]), "kind"),
    "of 2**40 users": (tallied(2**40, [2**40 * m for m in MOST]), "kind"),
    "from the shuffler": (device(MOST, kind=wire.Kind.SHUFFLED, users=199), "kind"),
    "a count too large": (device([m + 1 for m in MOST]), "malformed"),
    "a field too many": (wire.write(wire.Kind.DEVICE, PROTOCOL.fingerprint, np.zeros(4, int), 7), "malformed"),
    "of an earlier round": (device(MOST, round=1), "round"),
    "of another session": (
        Randomizer(VectorSum(3, USERS, 1.0, budget=BUDGET).protocol).encode([0.0, 0.0, 0.0]),
        "protocol",
    ),
    "of randomized response": (ShuffledRandomizedResponse(3, USERS, budget=BUDGET).encode(1), "protocol"),
    "a duplicate": (HONEST[7], "duplicate"),
    "a duplicate's nonce": (device(MOST, nonce=wire.read(HONEST[7], PROTOCOL.fingerprint).stamp), "duplicate"),
    "of the first version": (resealed(HONEST[7][:4] + b"\1" + HONEST[7][5:]), "malformed"),
    "damaged": (HONEST[7][:-1] + bytes([HONEST[7][-1] ^ 1]), "malformed"),
    "empty": (b"", "malformed"),
}


@tabled("attack", REFUSED)
def test_messages_that_do_not_count_change_nothing(attack):
    message, reason = REFUSED[attack]
    receiver, other = shuffler(), shuffler()
    assert receiver.shuffle([*HONEST, message]) == other.shuffle(HONEST)
    assert (receiver.refused, other.refused) == ({reason: 1}, {})
    # nor does it take the place of an honest user
    receiver = shuffler()
    with pytest.raises(ValueError, match=f"users={USERS} users.* got {USERS - 1} and refused messages"):
        receiver.shuffle([*HONEST[:-1], message])
    assert (receiver.rounds_left, receiver.refused) == (1, {reason: 1})


@settings(max_examples=50)
@given(st.lists(st.integers(0, PROTOCOL.messages_per_coordinate), min_size=3, max_size=3), st.integers(0, USERS - 1))
def test_a_device_moves_a_sum_by_what_one_device_may(ones, who):
    analyzer, truth = Analyzer(PROTOCOL), shuffler().shuffle(HONEST)
    honest = analyzer.decode(truth)
    instead = analyzer.decode(shuffler().shuffle([*HONEST[:who], device(ones), *HONEST[who + 1 :]]))
    assert np.abs(instead - honest).max() <= ONE_DEVICE * (1 + 1e-12)
    # one more than was asked for: its input and noise, from the middle
    besides = analyzer.decode(shuffler().shuffle([*HONEST, device(ones)]))
    assert np.abs(besides - honest).max() <= ONE_DEVICE / 2 * (1 + 1e-12)


def test_the_bound_is_the_documented_one_and_is_met():
    assert pytest.approx(2.0 * (1.0 + PROTOCOL.noise_bits / PROTOCOL.resolution)) == ONE_DEVICE
    analyzer = Analyzer(PROTOCOL)
    low, high = (
        analyzer.decode(shuffler().shuffle([*HONEST[1:], device([k] * 3)]))
        for k in (0, PROTOCOL.messages_per_coordinate)
    )
    np.testing.assert_allclose(high - low, ONE_DEVICE)


def test_what_is_believed_of_a_worker_is_more():
    """Why tallies have a method of their own: the forgery that a device may not send, on a caller's word."""
    receiver, forged = shuffler(), tallied(5000, [5000 * m for m in MOST])
    moved = Analyzer(PROTOCOL).decode(receiver.shuffle_tallies([SUMS.tally(np.zeros((USERS, 3))), forged]))
    assert np.abs(moved).min() > 1000 * ONE_DEVICE
    # devices' messages are no tallies
    receiver = shuffler()
    with pytest.raises(MessageError, match="must come from a worker, got DEVICE"):
        receiver.shuffle_tallies(HONEST)
    other = VectorSum(3, USERS, 1.0, budget=BUDGET)
    for tally, why in (
        (other.tally(np.zeros((USERS, 3))), "other public constants"),
        (other.tally(np.zeros((USERS, 3))).to_bytes(), "other public constants"),
        (SUMS.tally(np.zeros((USERS, 3))).to_bytes(round=1), "for round 0, got round 1"),
        (resealed(forged[:22] + (2**62).to_bytes(16, "big") + forged[38:]), "fewer than 2\\*\\*62 bits"),
    ):
        with pytest.raises(MessageError, match=why):
            receiver.shuffle_tallies([tally])
    assert receiver.rounds_left == 1


def test_messages_of_a_round_count_in_that_round_only():
    constants = SumProtocol(1, 2, 1.0, resolution=3, noise_bits=4, cost=PureDP(1.0), rounds=3, session="rounds")
    randomizer, receiver = Randomizer(constants), Shuffler(constants)
    sent = [[randomizer.encode([0.0], round=t) for _ in range(2)] for t in range(3)]
    for t in range(3):
        everything = [message for messages in sent for message in messages]
        released = wire.read(receiver.shuffle(everything), constants.fingerprint)
        assert (released.users, released.round, receiver.refused) == (2, t, {"round": 4})


def test_nobody_can_veto_a_round():
    """More nonsense than messages: the round takes place, and the nonsense is counted."""
    nonsense = [message for message, _ in REFUSED.values()] * 50
    receiver = shuffler()
    mixed = list(np.random.default_rng(1).permutation(np.array([*HONEST, *nonsense], dtype=object)))
    # a duplicate that comes before the message that it copies is taken in its place: the same bytes, once
    mixed = [m for m in mixed if m != REFUSED["a duplicate's nonce"][0]]
    assert receiver.shuffle(mixed) == shuffler().shuffle(HONEST)
    assert receiver.refused.total() == 50 * (len(REFUSED) - 1)


def test_a_device_moves_a_share_by_what_one_device_may():
    response = ShuffledRandomizedResponse(4, 50, budget=BUDGET, session="s")
    honest = [response.encode(i % 4) for i in range(50)]
    step = 1.0 / ((response.truth_probability - response.lie_probability) * 50)
    estimates = []
    for sent in range(4):
        one = wire.write(wire.Kind.DEVICE, response.fingerprint, np.array([sent]), 2, nonce=b"a malicious one!")
        again = ShuffledRandomizedResponse(4, 50, budget=BUDGET, session="s")
        estimates.append(again.decode(again.shuffle([*honest[1:], one, one, one, again.tally([0] * 49)])).estimate)
        assert again.refused == {"duplicate": 2, "kind": 1}
    differences = [np.abs(a - b).max() for a in estimates for b in estimates]
    assert max(differences) == pytest.approx(step)


def test_a_device_moves_a_mean_by_what_one_device_may():
    bits = [ScalarMean(50, budget=BUDGET, session="s").encode(0.5) for _ in range(49)]
    estimates = []
    for sent in (0, 1):
        mean = ScalarMean(50, budget=BUDGET, session="s")
        response = response_of(mean)
        one = wire.write(wire.Kind.DEVICE, response.fingerprint, np.array([sent]), 1, nonce=b"a malicious one!")
        estimates.append(mean.decode(mean.shuffle([*bits, one, one, mean.tally([1.0] * 40)]))[0])
        assert mean.refused == {"duplicate": 1, "kind": 1}
    step = 1.0 / ((response.truth_probability - response.lie_probability) * 50)
    assert estimates[1] - estimates[0] == pytest.approx(step)
    assert math.isfinite(step)

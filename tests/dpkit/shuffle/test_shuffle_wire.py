"""The message format: what was written is read back, and nothing else is taken for a message."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shuffled_counts import resealed

from dpkit.shuffle import MessageError, wire

FINGERPRINT = b"12345678"


@st.composite
def messages(draw):
    width = draw(st.integers(1, 40))
    values = draw(st.lists(st.integers(0, 2**width - 1), min_size=1, max_size=70))
    kind = draw(st.sampled_from(list(wire.Kind)))
    stamp = {"nonce": draw(st.binary(min_size=16, max_size=16))} if kind == wire.Kind.DEVICE else {}
    users = {} if stamp else {"users": draw(st.integers(1, 2**64 - 1))}
    header = {"round": draw(st.integers(0, 2**64 - 1)), **stamp, **users}
    return kind, header, np.array(values, dtype=np.uint64), width


@given(messages())
def test_messages_are_read_back_as_written(message):
    kind, header, values, width = message
    data = wire.write(kind, FINGERPRINT, values, width, **header)
    assert len(data) == wire.header_size() + -(-values.size * width // 8)
    back = wire.read(data, FINGERPRINT)
    assert (back.kind, back.users, back.round) == (kind, header.get("users", 1), header["round"])
    if kind == wire.Kind.DEVICE:
        assert back.stamp == header["nonce"]
    np.testing.assert_array_equal(back.fields(values.size, width), values)


def test_long_messages_are_packed_without_gaps():
    values = np.random.default_rng(0).integers(0, 2**13, size=100_003)
    data = wire.write(wire.Kind.WORKER, FINGERPRINT, values, 13)
    assert len(data) == wire.header_size() + -(-values.size * 13 // 8)
    # the documented layout: big-endian, most significant bit first
    body = int.from_bytes(data[38:-4], "big") >> (8 * len(data[38:-4]) - values.size * 13)
    assert body & (2**13 - 1) == values[-1]
    assert body >> (13 * (values.size - 1)) == values[0]
    np.testing.assert_array_equal(wire.read(data, FINGERPRINT).fields(values.size, 13), values)


@given(messages(), st.data())
def test_a_changed_byte_is_refused(message, data):
    kind, header, values, width = message
    written = bytearray(wire.write(kind, FINGERPRINT, values, width, **header))
    written[data.draw(st.integers(0, len(written) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(MessageError):
        wire.read(bytes(written), FINGERPRINT)


@given(messages(), st.data())
def test_a_changed_length_is_refused(message, data):
    kind, header, values, width = message
    written = wire.write(kind, FINGERPRINT, values, width, **header)
    cut = data.draw(st.integers(0, len(written) - 1))
    for wrong in (written[:cut], written + data.draw(st.binary(min_size=1, max_size=9))):
        with pytest.raises(MessageError):
            wire.read(wrong, FINGERPRINT)
    # also where the checksum was made to fit
    for wrong in (resealed(written[:38] + written[39:]), resealed(written[:-4] + b"\0" + written[-4:])):
        with pytest.raises(MessageError, match="must hold"):
            wire.read(wrong, FINGERPRINT).fields(values.size, width)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_message_are_refused(data):
    with pytest.raises(MessageError):
        wire.read(data, FINGERPRINT)
    if len(data) >= 42:
        with pytest.raises(MessageError):
            wire.read(resealed(wire.MAGIC + data[4:]), FINGERPRINT)


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (0, b"X", "must start with b'dpSh'"),
        (4, b"\1", "must be of version 2, got version 1"),
        (5, b"\0", "must be of a kind from 1 to 3, got kind 0"),
        (5, b"\4", "must be of a kind from 1 to 3, got kind 4"),
        (6, b"0", "made for a protocol with other public constants"),
        (22, b"\0" * 16, "must come from at least 1 user, got 0"),
    ],
)
def test_a_refusal_says_what_is_wrong(position, value, message):
    data = wire.write(wire.Kind.WORKER, FINGERPRINT, np.arange(4), 2)
    wrong = resealed(data[:position] + value + data[position + len(value) :])
    with pytest.raises(MessageError, match=message):
        wire.read(wrong, FINGERPRINT)


def test_padding_that_is_not_zero_is_refused():
    data = wire.write(wire.Kind.WORKER, FINGERPRINT, np.arange(3), 2)
    message = wire.read(resealed(data[:38] + bytes([data[38] | 1]) + data[39:]), FINGERPRINT)
    with pytest.raises(MessageError, match="padded with zero bits"):
        message.fields(3, 2)


@pytest.mark.parametrize("data", ["text", None, 7, [1, 2]])
def test_what_is_not_bytes_is_refused(data):
    with pytest.raises(TypeError, match="a message must be bytes"):
        wire.read(data, FINGERPRINT)


@given(st.integers(1, 64), st.integers(1, 9), st.integers(1, 40), st.integers(0, 2**32))
def test_many_messages_are_unpacked_like_one_by_one(width, count, messages, seed):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 2**width - 1, (messages, count), dtype=np.uint64, endpoint=True)
    size = -(-count * width // 8)
    packed = np.frombuffer(
        b"".join(wire.write(wire.Kind.WORKER, FINGERPRINT, row, width)[38:-4] for row in values), dtype=np.uint8
    ).reshape(messages, size)
    back, padded = wire.unpacked(packed, count, width)
    np.testing.assert_array_equal(back, values)
    assert padded.all()
    if 8 * size > count * width:
        packed = packed.copy()
        packed[-1, -1] |= 1
        assert wire.unpacked(packed, count, width)[1].tolist() == [True] * (messages - 1) + [False]

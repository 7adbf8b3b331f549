"""The message format: what was written is read back, and nothing else is taken for a message."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpkit.shuffle import MessageError, wire

FINGERPRINT = b"12345678"


@st.composite
def messages(draw):
    width = draw(st.integers(1, 40))
    values = draw(st.lists(st.integers(0, 2**width - 1), min_size=1, max_size=70))
    kind = draw(st.sampled_from(list(wire.Kind)))
    users = draw(st.integers(1, 2**64 - 1))
    return kind, users, np.array(values, dtype=np.uint64), width


def resealed(data):
    """The same bytes with the checksum that they should have."""
    return data[:-4] + zlib.crc32(data[:-4]).to_bytes(4, "big")


@given(messages())
def test_messages_are_read_back_as_written(message):
    kind, users, values, width = message
    data = wire.write(kind, FINGERPRINT, users, values, width)
    assert len(data) == wire.header_size() + -(-values.size * width // 8)
    back = wire.read(data, FINGERPRINT)
    assert (back.kind, back.users) == (kind, users)
    np.testing.assert_array_equal(back.fields(values.size, width), values)


def test_long_messages_are_packed_without_gaps():
    values = np.random.default_rng(0).integers(0, 2**13, size=100_003)
    data = wire.write(wire.Kind.BITS, FINGERPRINT, 1, values, 13)
    assert len(data) == wire.header_size() + -(-values.size * 13 // 8)
    # the documented layout: big-endian, most significant bit first
    body = int.from_bytes(data[22:-4], "big") >> (8 * len(data[22:-4]) - values.size * 13)
    assert body & (2**13 - 1) == values[-1]
    assert body >> (13 * (values.size - 1)) == values[0]
    np.testing.assert_array_equal(wire.read(data, FINGERPRINT).fields(values.size, 13), values)


@given(messages(), st.data())
def test_a_changed_byte_is_refused(message, data):
    kind, users, values, width = message
    written = bytearray(wire.write(kind, FINGERPRINT, users, values, width))
    written[data.draw(st.integers(0, len(written) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(MessageError):
        wire.read(bytes(written), FINGERPRINT)


@given(messages(), st.data())
def test_a_changed_length_is_refused(message, data):
    kind, users, values, width = message
    written = wire.write(kind, FINGERPRINT, users, values, width)
    cut = data.draw(st.integers(0, len(written) - 1))
    for wrong in (written[:cut], written + data.draw(st.binary(min_size=1, max_size=9))):
        with pytest.raises(MessageError):
            wire.read(wrong, FINGERPRINT)
    # also where the checksum was made to fit
    for wrong in (resealed(written[:22] + written[23:]), resealed(written[:-4] + b"\0" + written[-4:])):
        with pytest.raises(MessageError, match="must hold"):
            wire.read(wrong, FINGERPRINT).fields(values.size, width)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_message_are_refused(data):
    with pytest.raises(MessageError):
        wire.read(data, FINGERPRINT)
    if len(data) >= 26:
        with pytest.raises(MessageError):
            wire.read(resealed(wire.MAGIC + data[4:]), FINGERPRINT)


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (0, b"X", "must start with b'dpSh'"),
        (4, b"\2", "must be of version 1, got version 2"),
        (5, b"\0", "must be of a kind from 1 to 6, got kind 0"),
        (5, b"\7", "must be of a kind from 1 to 6, got kind 7"),
        (6, b"0", "made for a protocol with other public constants"),
        (14, b"\0" * 8, "must come from at least 1 user, got 0"),
    ],
)
def test_a_refusal_says_what_is_wrong(position, value, message):
    data = wire.write(wire.Kind.BITS, FINGERPRINT, 1, np.arange(4), 2)
    wrong = resealed(data[:position] + value + data[position + len(value) :])
    with pytest.raises(MessageError, match=message):
        wire.read(wrong, FINGERPRINT)


def test_padding_that_is_not_zero_is_refused():
    data = wire.write(wire.Kind.BITS, FINGERPRINT, 1, np.arange(3), 2)
    message = wire.read(resealed(data[:22] + bytes([data[22] | 1]) + data[23:]), FINGERPRINT)
    with pytest.raises(MessageError, match="padded with zero bits"):
        message.fields(3, 2)


@pytest.mark.parametrize("data", ["text", None, 7, [1, 2]])
def test_what_is_not_bytes_is_refused(data):
    with pytest.raises(TypeError, match="a message must be bytes"):
        wire.read(data, FINGERPRINT)

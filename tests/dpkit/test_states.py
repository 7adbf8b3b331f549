"""What states keep: trees of arrays that nobody changes, files that hold what they say, and ids that stay the same."""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest

from dpkit.states.entries import freeze
from dpkit.states.files import hold, restored
from dpkit.states.registry import Registry


@dataclass(frozen=True)
class Estimate:
    theta: np.ndarray
    steps: int = 3


def test_no_array_of_a_frozen_tree_can_be_written() -> None:
    arrays = [np.zeros(2) for _ in range(5)]
    freeze([arrays[0], {"a": arrays[1], "b": (arrays[2], Estimate(arrays[3]))}, Estimate(arrays[4]), 7, "text", None])
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0


@pytest.mark.parametrize("data", [b"\x02\x00", b"\x00\x02", b"\x01\xff"])
def test_truth_values_are_zeros_and_ones(data: bytes) -> None:
    def read(held: bytes) -> np.ndarray:
        return restored({"__array__": ["b1", [2], 0]}, lambda place, size: held)

    assert read(b"\x01\x00").tolist() == [True, False]
    with pytest.raises(ValueError, match="zeros and ones"):
        read(data)


@pytest.mark.parametrize("number", [0, 7, -7, 127, 128, -129, 2**63, 10**30])
def test_a_number_is_hashed_by_the_same_bytes_in_every_version(number: int) -> None:
    """A state that an earlier version saved would know nobody by another hash, and everyone would teach anew."""
    registry = Registry(1)
    data = number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)
    expected = blake2b(data, digest_size=8, key=bytes.fromhex(registry.kept()["salt"])).digest()
    assert registry.key(number) == int.from_bytes(expected, "little", signed=True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_the_child_of_a_fork_keeps_no_one_from_a_checkpoint(tmp_path: Path) -> None:
    """It inherits the open file, and with it the lock, which would outlive the parent."""
    held = hold(tmp_path / "c")
    ready, done = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(ready[1], b"x")
            os.close(done[1])
            os.read(done[0], 1)  # until the parent is through
        finally:
            os._exit(0)
    try:
        os.read(ready[0], 1)
        held.close()
        hold(tmp_path / "c").close()
    finally:
        os.write(done[1], b"x")
        os.waitpid(child, 0)
        for end in (*ready, *done):
            os.close(end)

"""What states keep: trees of arrays that nobody changes, files that hold what they say, and ids that stay the same."""

from __future__ import annotations

import math
import os
import stat
from dataclasses import dataclass
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpkit.states.entries import conform, freeze, taken
from dpkit.states.files import MAGIC, decode, encode, hold, read, restored, write
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


def test_a_file_is_whole_on_the_disk_before_it_takes_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash in between leaves the older one, and no part of the new one."""
    path, events, move = tmp_path / "sums.state", [], os.replace

    def sync(handle: int) -> None:
        held = os.fstat(handle)
        events.append(("folder", 0) if stat.S_ISDIR(held.st_mode) else ("file", held.st_size))

    def moved(*of: Any) -> None:
        events.append(("moved", 0))
        move(*of)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", moved)
    write(path, {"total": np.arange(5.0)})
    assert events == [("file", path.stat().st_size), ("moved", 0), ("folder", 0)]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read(path)[0]["total"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_what_cannot_be_written_leaves_the_older_file_and_nothing_beside_it(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*of: Any) -> None:
        raise OSError("no space left")

    path = tmp_path / "sums.state"
    write(path, {"steps": 3})
    with monkeypatch.context() as patch:
        patch.setattr(os, failing, full)
        with pytest.raises(OSError, match="no space left"):
            write(path, {"steps": 4})
    assert read(path)[0] == {"steps": 3}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("number", [-1, 2**62, 3**62, True, 1.0, "1", None, np.int64(1)])
def test_a_count_is_a_number_of_its_size(number: Any) -> None:
    with pytest.raises(ValueError, match="releases must be a number of the size of a count"):
        conform("releases", number, like=3)
    assert [conform("releases", count, like=3) for count in (0, 2**62 - 1)] == [0, 2**62 - 1]


@dataclass(frozen=True)
class Both:
    theta: np.ndarray
    name: str | None = None


LIKE = {"steps": 3, "scale": 0.5, "done": False, "name": "a", "none": None, "theta": np.zeros(2), "pair": (1, 2.0)}
GOOD = {**LIKE, "theta": np.ones(2), "pair": [4, 5]}


def test_what_is_taken_over_is_of_the_types_that_it_has_here() -> None:
    found = taken("state", GOOD, LIKE)
    assert (found["pair"], type(found["pair"][1])) == ((4, 5.0), float)
    assert found["theta"] is not GOOD["theta"]
    assert {name: found[name] for name in LIKE if name not in ("theta", "pair")} == {
        name: LIKE[name] for name in LIKE if name not in ("theta", "pair")
    }
    made = taken("state", {"theta": np.ones(2), "name": None}, Both(np.zeros(2)))
    assert (made.theta.tolist(), made.name) == ([1.0, 1.0], None)
    assert taken("state", [1, 2], [3, 4]) == [1, 2]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("steps", [-1, 2**62, True, 1.0, "1", None, [1], np.int64(1)]),
        ("scale", [math.nan, math.inf, -math.inf, True, "0.5", None, np.zeros(())]),
        ("done", [0, 1, None, "False"]),
        ("name", [None, 1, b"a"]),
        ("none", [0, "", False]),
        ("theta", [np.ones(3), np.ones((2, 1)), np.ones(2, int), np.ones(2, "f4"), [1.0, 1.0], np.array([0, np.nan])]),
        ("pair", [[4], [4, 5, 6], (4, 5), {"0": 4, "1": 5}, None, [4.5, 5], np.array([4, 5])]),
    ],
)
def test_what_is_of_another_type_is_refused_and_named(name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ValueError, match=rf"state\.{name}"):
            taken("state", {**GOOD, name: value}, LIKE)
    with pytest.raises(ValueError, match="must hold the entries"):
        taken("state", {key: value for key, value in GOOD.items() if key != name}, LIKE)


@pytest.mark.parametrize("saved", [7, None, "steps", [3], GOOD | {"more": 1}, {}, {1: 2}])
@pytest.mark.parametrize("like", [LIKE, Both(np.zeros(2))])
def test_what_is_no_such_tree_is_refused(saved: Any, like: Any) -> None:
    with pytest.raises(ValueError, match="state must hold the entries"):
        taken("state", saved, like)


def file_of(document: str, payload: bytes = b"", *, magic: bytes = MAGIC, length: int | None = None) -> bytes:
    text = document.encode()
    body = magic + (len(text) if length is None else length).to_bytes(8, "big") + text + payload
    return body + sha256(body).digest()


def nested(depth: int) -> str:
    return '{"a": ' * depth + "1" + "}" * depth


ONE = bytes(np.ones(1).tobytes())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (file_of("{}", magic=b"dpkit-state 1\n"), "not a state file of format 2"),
        (file_of("{}")[:53], "not a state file of format 2"),
        (b"", "not a state file of format 2"),
        (file_of('{"a": 1}')[:-1] + b"\0", "checksum"),
        (file_of("{}", length=3), "longer than the file"),
        (file_of('{"a": 1}', length=2**63), "longer than the file"),
        (file_of('{"a": 1}', length=7), "cannot be read"),
        (file_of('{"a": 1}', ONE), "all of its bytes"),
        (file_of("[1]"), "all of its bytes"),
        (file_of('{"a": NaN}'), "NaN is no value"),
        (file_of("[" * 10**5), "cannot be read|too deep"),
        (file_of(nested(21)), "too deep"),
        (file_of('{"a": "%s"}' % ("x" * (2**16 + 1))), "at most 65536 characters"),
        (file_of('{"a": {"__array__": ["f8", [1], 1]}}', b"\0" + ONE), "where the last one ends"),
        (file_of('{"a": {"__array__": ["f8", [1], 0]}, "b": {"__array__": ["f8", [1], 0]}}', ONE), "where the last"),
        (file_of('{"a": {"__array__": ["f8", [2], 0]}}', ONE), "within the file"),
        (file_of('{"a": {"__array__": ["f8", [1], 0]}}', ONE[:-1]), "within the file"),
        (file_of('{"a": {"__array__": ["f8", [1], false]}}', ONE), "where the last one ends"),
        (file_of('{"a": {"__array__": ["f8", [1], 0.0]}}', ONE), "where the last one ends"),
        (file_of('{"a": {"__array__": ["f4", [1], 0]}}', ONE), "must be"),
        (file_of('{"a": {"__array__": ["f8", 1, 0]}}', ONE), "must be"),
        (file_of('{"a": {"__array__": ["f8", [1], 0], "b": 1}}', ONE), "must be"),
        (file_of('{"a": {"__array__": ["f8", [-1], 0]}}', ONE), "must have a shape"),
        (file_of('{"a": {"__array__": ["f8", [true], 0]}}', ONE), "must have a shape"),
        (file_of(f'{{"a": {{"__array__": ["f8", [0, {2**40}], 0]}}}}'), "must have a shape"),
        (file_of('{"a": {"__array__": ["f8", [1, 1, 1, 1, 1, 1, 1, 1, 1], 0]}}', ONE), "must have a shape"),
        (file_of('{"a": {"__array__": ["b1", [8], 0]}}', ONE), "zeros and ones"),
        (file_of('{"a": {"__float__": "nan"}}'), "must be finite, 'inf' or '-inf'"),
    ],
)
def test_files_that_say_something_else_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode(data)


def test_what_is_just_allowed_is_read() -> None:
    assert decode(file_of("{}")) == {}
    assert decode(file_of(nested(20)))["a"]["a"]["a"] != 1
    assert decode(file_of('{"a": "%s"}' % ("x" * 2**16))) == {"a": "x" * 2**16}
    assert decode(file_of('{"a": Infinity, "b": {"__float__": "-inf"}}')) == {"a": math.inf, "b": -math.inf}
    document = '{"a": {"__array__": ["f8", [1, 1, 1, 1, 1, 1, 1, 1], 0]}, "b": {"__array__": ["i8", [0, %d], 8]}}'
    found = decode(file_of(document % (2**40 - 1), ONE))
    assert (found["a"].shape, found["b"].shape) == ((1,) * 8, (0, 2**40 - 1))
    found["a"][:] = 2.0  # an array of one's own
    tree = {"a": [np.arange(3), np.array([True, False])], "b": {"c": 0.1, "d": None, "e": [1, "x"]}}
    again = decode(encode(tree))
    assert (again["a"][0].tolist(), again["a"][1].tolist(), again["b"]) == ([0, 1, 2], [True, False], tree["b"])


def with_hashes(hashes: list[int], marks: list[int] | None = None, batch: int = 0) -> Registry:
    registry = Registry(2)
    held = {
        "kind": "int",
        "salt": registry.kept()["salt"],
        "hashes": np.array(hashes, np.uint64).view(np.int64),
        "marks": np.array([1 << 32] * len(hashes) if marks is None else marks, np.int64),
    }
    registry.resume(held, batch=batch)
    return registry


@pytest.mark.parametrize("count", [1, 50, 128])
def test_hashes_that_begin_alike_lie_one_after_the_other_up_to_the_end(count: int) -> None:
    top = 2**64 - 2 - np.arange(count, dtype=object)[::-1]
    registry = with_hashes(top.tolist())
    assert len(registry) == count
    for known in top[:: max(1, count // 5)]:
        assert not registry.may_teach(int(known) - 2**64, 0)  # in this batch already
        assert registry.may_teach(int(known) - 2**64, 1)
    assert registry.may_teach(int(top[0]) - 1 - 2**64, 0)  # who has not taught
    kept = registry.kept()
    assert kept["hashes"].view(np.uint64).tolist() == top.tolist()


def test_more_hashes_that_begin_alike_than_chance_makes_are_refused() -> None:
    with pytest.raises(ValueError, match="spread like random numbers"):
        with_hashes((2**64 - 2 - np.arange(129, dtype=object)[::-1]).tolist())


@pytest.mark.parametrize("hashes", [[3, 2], [1, 2, 2], [1, 5, 4, 9], [5, 2**64 - 1]])
def test_hashes_that_do_not_ascend_or_are_nobodys_are_refused(hashes: list[int]) -> None:
    with pytest.raises(ValueError, match="ascend and be none of nobody"):
        with_hashes(hashes)


@pytest.mark.parametrize(("taught", "last"), [(0, 0), (3, 0), (1, 8), (2, 2**32 - 1)])
def test_marks_of_too_many_records_or_of_batches_to_come_are_refused(taught: int, last: int) -> None:
    good, bad = (1 << 32) + 7, (taught << 32) + last
    assert len(with_hashes([1, 2], [good, (2 << 32) + 7], batch=7)) == 2
    for marks in ([good, bad], [bad, good]):
        with pytest.raises(ValueError, match="marks must be of 1, …, 2 records and of batches up to 7"):
            with_hashes([1, 2], marks, batch=7)


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

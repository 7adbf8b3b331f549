"""State files: a tree of plain values and arrays in one file, written atomically, read strictly and without pickle.

======================  ======================================================================================
bytes                   content
======================  ======================================================================================
14                      ``b"dpkit-state 2\\n"``
8                       length of the text, big-endian
…                       JSON; an array is ``{"__array__": [type, shape, offset]}``
…                       the arrays, little-endian, C order, one after the other from offset 0
32                      SHA-256 of everything before
======================  ======================================================================================

The SHA-256 finds accidents; it is no signature. A reader trusts nothing that follows from it: every length is compared
with the bytes that are there before anything is allocated, and what a value may be is checked by whoever asked for it
(:func:`dpkit.states.entries.conform`).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from accounting.files import sync_directory
from dpkit.states.entries import short

__all__ = ["Hold", "beside", "digest_of", "draft", "drafts", "hold", "place", "read", "restored", "write", "written"]

MAGIC = b"dpkit-state 2\n"
_TYPES = {"f8": np.dtype("<f8"), "i8": np.dtype("<i8"), "b1": np.dtype("|b1")}
# trees of states are shallow; deeper ones would end in a RecursionError
_DEEPEST = 20
# names, labels and the states of generators; what is longer would come back in messages, several times
_LONGEST_TEXT = 2**16


def encode(tree: Mapping[str, Any]) -> bytes:
    """The bytes of a file that holds ``tree``: dictionaries, lists, arrays, numbers, strings and None."""
    arrays: list[bytes] = []
    length = 0

    def keep(data: bytes) -> int:
        nonlocal length
        arrays.append(data)
        start, length = length, length + len(data)
        return start

    text = json.dumps(written(tree, keep)).encode()
    body = b"".join([MAGIC, len(text).to_bytes(8, "big"), text, *arrays])
    return body + hashlib.sha256(body).digest()


def decode(data: bytes) -> dict[str, Any]:
    """The tree of :func:`encode`; needs about as much memory as ``data``.

    Raises
    ------
    ValueError
        If ``data`` is anything else.
    """
    start = len(MAGIC) + 8
    if data[: len(MAGIC)] != MAGIC or len(data) < start + 32:
        raise ValueError("not a state file of format 2")
    body = memoryview(data)[:-32]
    if hashlib.sha256(body).digest() != data[-32:]:
        raise ValueError("its checksum does not match: the file is damaged")
    length = int.from_bytes(data[len(MAGIC) : start], "big")
    if length > len(body) - start:
        raise ValueError("its text is longer than the file")
    try:
        document = json.loads(str(body[start : start + length], "utf-8"), parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its text cannot be read: {error}") from None
    payload, used = body[start + length :], 0

    def taken(offset: Any, size: int) -> memoryview:
        nonlocal used
        # one after the other: no byte is read twice, so that a small file cannot become large
        if type(offset) is not int or offset != used or offset + size > len(payload):
            raise ValueError(f"an array must lie where the last one ends, within the file, got {short(offset)}")
        used = offset + size
        return payload[offset:used]

    tree = restored(document, taken)
    if not isinstance(tree, dict) or used != len(payload):
        raise ValueError("its tree does not account for all of its bytes")
    return tree


def _constant(text: str) -> float:
    if text == "NaN":
        raise ValueError("NaN is no value of a state")
    return float(text)


def written(node: Any, keep: Callable[[bytes], Any], *, finite: bool = False) -> Any:
    """A tree as JSON has it: every array as its type, its shape and what ``keep`` says of its bytes.

    Infinite numbers are ``{"__float__": "inf"}`` where JSON must be ``finite``, as its standard is.

    Examples
    --------
    >>> from dpkit.states.files import restored, written
    >>> kept = []
    >>> tree = written({"steps": 3}, lambda data: kept.append(data) or len(kept))
    >>> restored(tree, lambda what, size: kept[what - 1])
    {'steps': 3}
    """
    if isinstance(node, np.ndarray):
        name = f"{node.dtype.kind}{node.dtype.itemsize}"
        if name not in _TYPES:
            raise TypeError(f"a state holds arrays of float64, int64 or bool, got one of {node.dtype}")
        return {"__array__": [name, list(node.shape), keep(np.ascontiguousarray(node, _TYPES[name]).tobytes())]}
    if isinstance(node, Mapping):
        return {str(key): written(value, keep, finite=finite) for key, value in node.items()}
    if isinstance(node, (list, tuple)):
        return [written(value, keep, finite=finite) for value in node]
    value = node.item() if isinstance(node, np.generic) else node
    return {"__float__": repr(value)} if finite and isinstance(value, float) and math.isinf(value) else value


def restored(node: Any, taken: Callable[[Any, int], Any], depth: int = 0) -> Any:
    """The inverse of :func:`written`, of what may be anything; ``taken`` gives so many bytes, or refuses.

    Raises
    ------
    ValueError
        If it is no such tree.

    Examples
    --------
    >>> from dpkit.states.files import restored
    >>> restored({"steps": 3}, lambda what, size: b"")
    {'steps': 3}
    """
    if depth > _DEEPEST:
        raise ValueError("its tree is too deep")
    if isinstance(node, list):
        return [restored(value, taken, depth + 1) for value in node]
    if isinstance(node, str) and len(node) > _LONGEST_TEXT:
        raise ValueError(f"its texts must have at most {_LONGEST_TEXT} characters, got {len(node)}")
    if not isinstance(node, dict):
        return node
    if "__float__" in node:
        if node not in ({"__float__": "inf"}, {"__float__": "-inf"}):
            raise ValueError(f"a number must be finite, 'inf' or '-inf', got {short(node)}")
        return float(node["__float__"])
    if "__array__" not in node:
        return {key: restored(value, taken, depth + 1) for key, value in node.items()}
    match node:
        case {"__array__": [str(kind), list(shape), place], **more} if kind in _TYPES and not more:
            if not (len(shape) <= 8 and all(type(size) is int and 0 <= size < 2**40 for size in shape)):
                raise ValueError(f"an array must have a shape, got {short(shape)}")
            data = taken(place, math.prod(shape) * _TYPES[kind].itemsize)
            if kind == "b1" and max(data, default=0) > 1:
                raise ValueError("an array of truth values must hold zeros and ones")
            flat = np.frombuffer(data, _TYPES[kind])
            return flat.reshape(shape).astype(flat.dtype.newbyteorder("="), copy=True)
    raise ValueError(f"an array must be [type, shape, base64 or offset], got {short(node)}")


def digest_of(data: bytes) -> str:
    """What a mark holds of a file: the SHA-256 of its bytes, in hexadecimal.

    Examples
    --------
    >>> from dpkit.states.files import digest_of
    >>> digest_of(b"")[:8]
    'e3b0c442'
    """
    return hashlib.sha256(data).hexdigest()


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], str]:
    """The tree in a file, and the file's digest.

    Raises
    ------
    ValueError
        If it is not a state file, naming what is wrong with it.

    Examples
    --------
    >>> from dpkit.states.files import read
    >>> try:
    ...     read("nowhere.state")
    ... except (ValueError, FileNotFoundError):
    ...     print("no such state")
    no such state
    """
    data = Path(path).read_bytes()
    try:
        return decode(data), digest_of(data)
    except ValueError as error:
        raise ValueError(f"path must hold a state file, got {path}: {error}") from None


def write(path: str | os.PathLike[str], tree: Mapping[str, Any]) -> None:
    """Write ``tree`` to ``path``, readable by its owner only; an older file stays until the new one is whole.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from dpkit.states.files import read, write
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(Path(folder) / "sums.state", {"steps": 3})
    ...     tree, digest = read(Path(folder) / "sums.state")
    >>> tree
    {'steps': 3}
    """
    target = Path(path)
    made, _ = draft(target, tree)
    try:
        place(made, target)
    except BaseException:
        made.unlink(missing_ok=True)
        raise


def draft(path: Path, tree: Mapping[str, Any]) -> tuple[Path, str]:
    """Write ``tree`` durably beside ``path``, readable by its owner only; the draft and its digest.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from dpkit.states.files import draft, place, read
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "sums.state"
    ...     made, digest = draft(path, {"steps": 3})  # now a ledger can be told the digest
    ...     place(made, path)
    ...     read(path) == ({"steps": 3}, digest)
    True
    """
    data = encode(tree)
    made = path.with_name(f".{path.name}.{secrets.token_hex(8)}.draft")
    handle = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        made.unlink(missing_ok=True)
        raise
    return made, digest_of(data)


def drafts(path: Path) -> list[Path]:
    """The drafts that were left beside ``path``, by processes that died or whose mark failed.

    Examples
    --------
    >>> from pathlib import Path
    >>> from dpkit.states.files import drafts
    >>> drafts(Path("nowhere/policy.npz"))
    []
    """
    return beside(path, "draft")


def place(made: Path, path: Path) -> None:
    """Move a draft to its place, in one step, durably.

    Examples
    --------
    See :func:`draft`.

    >>> from dpkit.states.files import place
    >>> callable(place)
    True
    """
    os.replace(made, path)
    sync_directory(path.parent)


def beside(path: Path, kind: str) -> list[Path]:
    """The files of this kind that belong to ``path``; those of its neighbour ``path.1`` do not.

    Examples
    --------
    >>> from pathlib import Path
    >>> from dpkit.states.files import beside
    >>> beside(Path("nowhere/policy.npz"), "draft")
    []
    """
    name = "".join(f"[{c}]" if c in "*?[" else c for c in path.name)
    return sorted(path.parent.glob(f".{name}.{16 * '[0-9a-f]'}.{kind}"))


class Hold:
    """The right to write one checkpoint: a lock of the operating system, which ends with the process.

    ``given_up`` says whether the object that has it will write no more.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from dpkit.states.files import Hold, hold
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     isinstance(hold(Path(folder) / "policy.npz"), Hold)
    True
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.given_up: Callable[[], bool] = lambda: False
        self._file: BinaryIO | None = None
        self._file = open(path.with_name(f".{path.name}.lock"), "ab")  # noqa: SIM115
        try:
            _lock(self._file)
        except OSError as error:
            self.close()
            raise BlockingIOError(
                f"{path} must be used by one object at a time, got a second one: go on with the first, or delete it"
            ) from error
        _holds.add(self)

    def close(self) -> None:
        """Give the right back."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __del__(self) -> None:
        self.close()


def hold(path: Path) -> Hold:
    """The right to write the checkpoint ``path``.

    An object of this process that was interrupted lets go of it: it is still there, in a notebook for as long as its
    traceback, and what its refusal says is to load the checkpoint.

    Raises
    ------
    BlockingIOError
        If another object, in this process or in another one, has it.
    FileNotFoundError
        If the folder does not exist.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from dpkit.states.files import hold
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     held = hold(Path(folder) / "policy.npz")
    ...     bool(held.given_up())
    False
    """
    for other in list(_holds):
        if other.given_up() and same(other.path, path):
            other.close()
    return Hold(path)


def same(one: Path, other: Path) -> bool:
    """Whether two paths are of one file, which need not be there."""
    return one.resolve() == other.resolve()


def _lock(file: BinaryIO) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        return
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


# A fork inherits the open file and with it the lock: the child lets go at once, so that it ends with the parent.
_holds: weakref.WeakSet[Hold] = weakref.WeakSet()


def _let_go() -> None:
    for one in list(_holds):
        one.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)

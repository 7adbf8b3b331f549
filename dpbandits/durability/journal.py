"""The journal beside a checkpoint: decisions and rewards, so that a crash loses nothing that was acknowledged.

One record per line: its CRC-32 as eight hexadecimal digits, a space, JSON.

================================================  =========================================================
record                                            meaning
================================================  =========================================================
``["of", run, name]``                             the first one: whose journal this is
``["d", round, index, arm, note, person]``        a decision; the arm as hexadecimal bytes, little-endian
``["r", id, reward]``                             its reward, or a list of several values
``["f", id]``                                     nobody waits for its reward any more
``["D", rounds, indices, arms, notes, persons]``  decisions that were made together: of ``"d"`` all in one
``["R", ids, rewards]``                           what came together; null where nobody waits any more
``["p", kind]``                                   of which type all persons' ids are
================================================  =========================================================

A checkpoint names its journal and how much of it it has seen. Records before that place only tell which decisions were
open then; what follows is done again. So a checkpoint need not hold the open decisions, and its size does not depend on
how many rewards are late. When most records are of no use to anybody, a new journal begins with the open decisions.

Rewards are written through to the disk before they are acknowledged; a decision is, with the first reward that follows.
A last line that is not whole is of a write that nobody was told had succeeded. What could not be written, or not be
written through, is taken back (:meth:`Journal.cut`), so that no record tells of what was never done. A system whose
write failed may count as written what it has lost: what may not be on the disk is then written once more, in place,
before anything else counts as written through; also by whoever goes on with a journal.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import weakref
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, repeat
from pathlib import Path
from typing import Any

import numpy as np

from dpbandits.durability.pending import Pending, Together
from dpkit.states import files
from dpkit.states.entries import short
from dpkit.states.registry import NOBODY

__all__ = ["Entry", "Journal"]

# a decision; its id and reward, or several values; the id of one for whose reward nobody waits any more; the type of
# all persons' ids
Entry = Pending | tuple[int, float | tuple[float, ...]] | int | str

_NAME = re.compile(r"[0-9a-f]{16}")
# of how many entries one record is at most: whoever reads it holds all of them
_MOST = 1024
_encode = json.JSONEncoder(separators=(",", ":")).encode


class Journal:
    """An append-only file of decisions and rewards.

    Attributes
    ----------
    records : int
        How many decisions, rewards and others it holds.
    doubtful : bool
        Whether something may be on the disk that was taken back, or not be there although the system counts it as
        written: then the next entry is written through, whatever it is.
    """

    def __init__(self, checkpoint: Path, run: str, name: str, seen: int) -> None:
        self._checkpoint = checkpoint
        self._first = ["of", run, name]
        self._name = name
        self._seen = self._through = seen  # the latter is how much is on the disk for certain
        self.records = 0
        self.doubtful = seen > 0
        self.path = _path(checkpoint, name)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
        self._file = os.fdopen(os.open(self.path, flags, 0o600), "r+b", buffering=0)
        weakref.finalize(self, self._file.close)  # whoever drops a policy closes its file

    @classmethod
    def fresh(cls, checkpoint: Path, run: str, waiting: Mapping[int, Pending]) -> Journal:
        """A new one of this run, which begins with the open decisions."""
        journal = cls(checkpoint, run, secrets.token_hex(8), 0)
        journal._append([_encode(journal._first), *_texts(waiting.values())])
        journal.records = 1 + len(waiting)
        journal.sync()
        return journal

    @classmethod
    def reopened(cls, checkpoint: Path, run: str, place: Any) -> Journal:
        """The one that a checkpoint names.

        Raises
        ------
        ValueError
            If it is not there, or shorter than the checkpoint says.
        """
        if not isinstance(place, dict) or set(place) != {"name", "bytes"}:
            raise ValueError(f"journal must hold the entries 'name' and 'bytes', got {short(place)}")
        name, seen = place["name"], place["bytes"]
        if not isinstance(name, str) or not _NAME.fullmatch(name) or type(seen) is not int or seen < 0:
            raise ValueError(f"journal must be a name and a length, got {short(place)}")
        path = _path(checkpoint, name)
        if not path.is_file() or path.stat().st_size < seen:
            raise ValueError(f"the journal {path} must be beside its checkpoint, whole, got a missing or shorter one")
        return cls(checkpoint, run, name, seen)

    def place(self) -> dict[str, Any]:
        """What a checkpoint keeps: that it has seen all of this journal."""
        return {"name": self._name, "bytes": self._file.seek(0, os.SEEK_END)}

    def add(self, entries: Sequence[Entry]) -> None:
        """Write down entries in one piece; on disk when :meth:`sync` was called."""
        self._append([*_texts(entries)])
        self.records += len(entries)

    def sync(self) -> None:
        """Write through to the disk."""
        end = self._file.seek(0, os.SEEK_END)
        if self.doubtful:
            with self.path.open("r+b") as file:  # which does not append, as the journal's own does
                file.seek(self._through)
                rest = file.read()
                file.seek(self._through)
                file.write(rest)
        self.doubtful = True
        getattr(os, "fdatasync", os.fsync)(self._file.fileno())
        self._through, self.doubtful = end, False

    def extent(self) -> tuple[int, int]:
        """How long it is, in bytes and in records, for :meth:`cut`."""
        return self._file.seek(0, os.SEEK_END), self.records

    def cut(self, extent: tuple[int, int]) -> None:
        """Take back what was added since it was as long as that: it was not written as it should be."""
        self.doubtful = True
        end, self.records = extent
        self._file.truncate(end)
        self._through = min(self._through, end)

    def only_this_one(self) -> None:
        """Delete the journals of earlier checkpoints; the raw data in them has served."""
        for path in files.beside(self._checkpoint, "journal"):
            if path != self.path:
                path.unlink(missing_ok=True)

    def entries(self) -> Iterator[tuple[bool, Entry]]:
        """The entries, and whether the checkpoint has seen each.

        A last line that is not whole is cut off.

        Raises
        ------
        ValueError
            For any other line that is not a record, and for the journal of another run.
        """
        self._file.seek(0)
        start = 0
        for line in self._file.read().splitlines(keepends=True):
            record = _record(line)
            if record is None:
                if start + len(line) < self._file.seek(0, os.SEEK_END) or start < self._seen:
                    raise ValueError(f"the journal {self.path} is damaged at byte {start}")
                self._file.truncate(start)
                return
            if start:
                for entry in _entries(record):
                    self.records += 1
                    yield start < self._seen, entry
            elif record == self._first:
                self.records += 1
            else:
                raise ValueError(f"the journal {self.path} must be of this checkpoint's run, got that of another one")
            start += len(line)

    def _append(self, records: list[str]) -> None:
        """Write records in one piece, or nothing: what a full disk left is cut off again."""
        lines = []
        for record in records:
            text = record.encode()
            lines.append(b"%08x %s\n" % (zlib.crc32(text), text))
        data = b"".join(lines)
        end = self._file.seek(0, os.SEEK_END)
        try:
            if data and self._file.write(data) != len(data):
                raise OSError(f"{self.path} could not be written: is the disk full?")
        except BaseException:
            self._file.truncate(end)
            raise


def _texts(entries: Iterable[Entry]) -> Iterator[str]:
    """The records of entries: where many of one kind follow one another, some of them are one record."""
    groups: Iterable[Sequence[Entry]] = (list(alike) for _, alike in groupby(entries, _kind))
    if isinstance(entries, Together) and isinstance(entries.arms, np.ndarray):
        groups = [entries]
    for some in groups:
        for part in (some[start : start + _MOST] for start in range(0, len(some), _MOST)):
            yield _text(part[0]) if len(part) == 1 or isinstance(part[0], str) else _text_of_many(part)


def _kind(entry: Entry) -> int:
    """Of a decision the length of its arm, as arms of one length are one array; -1 of what closes one."""
    return len(entry.arm) if isinstance(entry, Pending) else -2 if isinstance(entry, str) else -1


def _text(entry: Entry) -> str:
    """The record of an entry; of a decision for a third of what an encoder takes."""
    match entry:
        case Pending():
            arm = entry.arm.astype("<f8").tobytes().hex()
            note = ",".join(map(str, map(int, entry.note)))
            return f'["d",{int(entry.round)},{int(entry.index)},"{arm}",[{note}],{int(entry.person)}]'
        case (id, reward):
            return _encode(["r", id, reward])
        case str():
            return _encode(["p", entry])
    return _encode(["f", entry])


def _text_of_many(entries: Sequence[Any]) -> str:
    """The record of entries of one kind."""
    if not isinstance(entries[0], Pending):
        told = [one if isinstance(one, tuple) else (one, None) for one in entries]
        return _encode(["R", *zip(*told, strict=True)])
    made = entries if isinstance(entries, Together) else Together.gathered(entries)
    arms = made.rows().astype("<f8", copy=False).tobytes().hex()
    rounds, indices = _encode([*map(int, made.rounds)]), _encode([*map(int, made.indices)])
    notes = _encode([[*map(int, note)] for note in made.notes] or len(made) * [[]])
    persons = _encode([*map(int, made.persons)] or len(made) * [NOBODY])
    return f'["D",{rounds},{indices},"{arms}",{notes},{persons}]'


def _record(line: bytes) -> list[Any] | None:
    """The record in a line, or None if it is not whole."""
    try:
        if not line.endswith(b"\n") or int(line[:8], 16) != zlib.crc32(line[9:-1]):
            return None
        record = json.loads(line[9:-1].decode())  # which need not guess the encoding
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, list) else None


def _entries(record: list[Any]) -> Iterator[Entry]:
    """What a record says, of one thing or of many."""
    match record:
        case ["D", list() as rounds, list() as indices, str() as text, list() as notes, list() as persons]:
            size, rest = divmod(len(text), max(1, len(rounds)))
            if not rest and len(rounds) == len(indices) == len(notes) == len(persons):
                arms = [text[k * size : (k + 1) * size] for k in range(len(rounds))]
                yield from map(_entry, map(list, zip(repeat("d"), rounds, indices, arms, notes, persons)))
                return
        case ["R", list() as ids, list() as rewards] if len(ids) == len(rewards):
            for id, reward in zip(ids, rewards, strict=True):
                yield _entry(["f", id] if reward is None else ["r", id, reward])
            return
    yield _entry(record)


def _entry(record: list[Any]) -> Entry:
    if len(record) == 6 and record[0] == "d":  # most are; a pattern would take as long as all the rest
        _, round, index, text, note, person = record
        kinds = type(round) is int and type(index) is int and type(person) is int
        if kinds and type(text) is str and type(note) is list and -(2**63) <= person < 2**63:
            arm = np.frombuffer(bytes.fromhex(text), "<f8").astype(np.float64)
            if not note or all(type(n) is int for n in note):
                return Pending(arm, index, round, tuple(note), person)
    match record:
        case ["r", int(id), float() | int() as reward] if math.isfinite(reward):
            return id, float(reward)
        case ["r", int(id), list() as values] if all(type(one) is float and math.isfinite(one) for one in values):
            return id, tuple(values)
        case ["f", int(id)]:
            return id
        case ["p", str(kind)]:
            return kind
    raise ValueError(f"the journal must hold records of decisions and rewards, got {short(record)}")


def _path(checkpoint: Path, name: str) -> Path:
    return checkpoint.with_name(f".{checkpoint.name}.{name}.journal")

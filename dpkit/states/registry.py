"""Who has taught a learner how often: the cap on what one person contributes to a run.

A learner whose unit is a person serves everyone every time and learns at most m records of each, at most one in a
batch. Which rounds are whose is public; how many of them have *taught* is not, where it depends on when outcomes came.
So the registry belongs to the secret half of a learner. It holds hashes in place of ids: BLAKE2b of 64 bits, keyed with
a salt that is drawn for the run and kept with it. (Whoever has the state has the salt and may try ids; whoever has not
learns nothing.) Two persons with one hash, a chance of n²/2⁶⁵ for n of them, share one allowance: then records are
dropped, and nobody is protected less.

The table is an open-addressed one in two arrays, at most half full and at least a quarter: up to 64 bytes per person,
and for the moment in which it doubles half as much again. A hash lies at its leading digits or soon after, so that
sorted hashes are placed all at once.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpkit.states.entries import short

__all__ = ["NOBODY", "Registry", "kind_of"]

# stands for a person where there is none; no hash is equal to it
NOBODY = -1

_KINDS: dict[type, str] = {str: "str", bytes: "bytes", int: "int"}
_SALT = 32  # hexadecimal digits
_WORD = 2**64 - 1
# slots after the last leading digits, so that no run of full slots has to go round the corner
_SPARE = 128
_SMALLEST, _MOST_DOUBLINGS = 8, 2
# what one number holds: how many records, and the last batch in so many digits
_BATCH = 32


def kind_of(person: object) -> str:
    """The type of an id, "str", "bytes" or "int".

    Raises
    ------
    ValueError
        For anything else: True is 1 and 1.0 is 1 in some tables and not in others, and None is nobody.

    Examples
    --------
    >>> from dpkit.states.registry import kind_of
    >>> kind_of("ann"), kind_of(7)
    ('str', 'int')
    """
    kind = _KINDS.get(type(person))
    if kind is not None:
        return kind
    for base, name in _KINDS.items():  # also of numpy, and of enumerations
        if isinstance(person, base) and not isinstance(person, bool):
            return name
    if isinstance(person, np.integer):
        return "int"
    raise ValueError(f"person must be an id of type str, bytes or int, got {short(person)}")


class Registry:
    """How many records every person has taught, and in which batch the last one.

    Parameters
    ----------
    most : int
        m, the number of records that a person may teach.

    Examples
    --------
    >>> registry = Registry(2)
    >>> ann = registry.key("ann")
    >>> [registry.admit(ann, batch) for batch in (0, 0, 1, 2)]
    [True, False, True, False]
    >>> len(registry)
    1
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.kind = ""  # of all ids of the run; the first one's
        self._salt = secrets.token_hex(_SALT // 2)
        self._place(np.empty(0, np.uint64), np.empty(0, np.int64), bits=_SMALLEST)

    def __len__(self) -> int:
        """How many persons have taught."""
        return self._count

    def key(self, person: object) -> int:
        """The hash of an id, a signed number of 64 bits that is not ``NOBODY``.

        Raises
        ------
        ValueError
            If it is no id, or of another type than earlier ones: 7 and "7" would count as two persons.
        """
        kind = kind_of(person)
        if kind != (self.kind or kind):
            raise ValueError(f"person must be of type {self.kind}, like the run's first one, got {short(person)}")
        if isinstance(person, str):
            data = person.encode("utf-8", "surrogatepass")
        elif isinstance(person, bytes):
            data = bytes(person)
        else:
            number = int(person)  # type: ignore[call-overload]
            data = number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)
        hashed = blake2b(data, digest_size=8, key=bytes.fromhex(self._salt)).digest()
        key = int.from_bytes(hashed, "little", signed=True)
        return key if key != NOBODY else 0

    def may_teach(self, key: int, batch: int) -> bool:
        """Whether a record of this person would enter the batch that is open."""
        return self._may(self._marks.item(self._slot(key)), batch)

    def admit(self, key: int, batch: int) -> bool:
        """Whether a record of this person enters the batch that is open; if so, it is counted."""
        slot = self._slot(key)
        mark = self._marks.item(slot)
        if not self._may(mark, batch):
            return False
        if not mark:
            # at most half full, and the last slot stays empty
            if slot == len(self._marks) - 1 or self._count >> (63 - self._shift):
                self._place(*self._entries(), bits=65 - self._shift)
                slot = self._slot(key)
            self._hashes[slot] = key & _WORD
            self._count += 1
        self._marks[slot] = ((mark >> _BATCH) + 1 << _BATCH) + batch
        return True

    def _may(self, mark: int, batch: int) -> bool:
        taught = mark >> _BATCH
        return not taught or (taught < self.most and mark - (taught << _BATCH) != batch)

    def _slot(self, key: int) -> int:
        """Where this person stands, or would stand."""
        found = key & _WORD
        slot = found >> self._shift
        marks, hashes = self._marks, self._hashes
        while marks.item(slot) and hashes.item(slot) != found:
            slot += 1
        return slot

    def _entries(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Hashes and marks, by ascending hash: in no order that tells who came first."""
        full = np.flatnonzero(self._marks)
        order = full[np.argsort(self._hashes[full])]
        return self._hashes[order], self._marks[order]

    def _place(self, hashes: NDArray[np.uint64], marks: NDArray[np.int64], *, bits: int) -> None:
        """A table of 2^bits slots and some more, or of twice as many, with these entries, by ascending hash."""
        for shift in range(64 - bits, 63 - bits - _MOST_DOUBLINGS, -1):
            home = (hashes >> np.uint64(shift)).astype(np.int64)
            rank = np.arange(len(home))
            # each at its leading digits, or after the one before
            slots = rank + np.maximum.accumulate(home - rank)
            size = 2 ** (64 - shift) + _SPARE
            if slots.max(initial=0) < size - 1:
                break
        else:
            raise ValueError("hashes must be spread like random numbers, got too many that are alike")
        self._hashes, self._marks = np.zeros(size, np.uint64), np.zeros(size, np.int64)
        self._hashes[slots], self._marks[slots] = hashes, marks
        self._shift, self._count = shift, len(hashes)

    # ---------------------------------------------------------------------------------------------- state

    def kept(self) -> dict[str, Any]:
        """For a state file; as confidential as the ids."""
        hashes, marks = self._entries()
        return {"kind": self.kind, "salt": self._salt, "hashes": hashes.view(np.int64), "marks": marks}

    def resume(self, saved: Any, *, batch: int) -> None:
        """The inverse of :meth:`kept`, checked; ``batch`` is the open one.

        Raises
        ------
        ValueError
            For anything that :meth:`kept` does not return.
        """
        if not isinstance(saved, Mapping) or set(saved) != {"kind", "salt", "hashes", "marks"}:
            raise ValueError(f"persons must hold the entries 'kind', 'salt', 'hashes' and 'marks', got {short(saved)}")
        kind, salt, hashes, marks = (saved[name] for name in ("kind", "salt", "hashes", "marks"))
        if not isinstance(kind, str) or kind not in ("", *_KINDS.values()):
            raise ValueError(f"kind must be that of ids, got {short(kind)}")
        if not isinstance(salt, str) or len(salt) != _SALT or not set(salt) <= set("0123456789abcdef"):
            raise ValueError(f"salt must be {_SALT} hexadecimal digits, got {short(salt)}")
        for name, column in (("hashes", hashes), ("marks", marks)):
            if not isinstance(column, np.ndarray) or column.dtype != np.int64 or column.shape != (len(hashes),):
                raise ValueError(f"{name} must be a vector of int64, one per person, got {short(column)}")
        hashes = hashes.view(np.uint64)
        if not (hashes[:-1] < hashes[1:]).all() or (hashes[-1:] == NOBODY & _WORD).any():
            raise ValueError("hashes must ascend and be none of nobody, got others")
        taught, last = marks >> _BATCH, marks & (2**_BATCH - 1)
        if len(marks) and not (taught.min() >= 1 and taught.max() <= self.most and last.max() <= batch):
            raise ValueError(
                f"marks must be of 1, …, {self.most} records and of batches up to {batch}, got {taught.min()} to "
                f"{taught.max()} records and batches up to {last.max()}"
            )
        if len(marks) and not kind:
            raise ValueError("kind must be that of the ids of persons who have taught, got ''")
        self._place(hashes, marks.copy(), bits=max(_SMALLEST, (2 * len(hashes)).bit_length()))
        self.kind, self._salt = kind, salt

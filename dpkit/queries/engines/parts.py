"""The same rows as ``bounded`` keeps, found by numpy: several times as fast as windows, in memory that is bounded.

DuckDB hands out persons, groups and whole numbers in batches; they are written into a file for each part of the
persons, and one part after another is sorted in memory. Tables whose persons are whole numbers, by groups that are
listed if by any, go this way; all others by windows, with the same result.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpkit.queries._units import Share

__all__ = ["PRIME", "kept_by_numpy", "linear", "mixed"]

PRIME = (1 << 31) - 1
_WHOLE = NDArray[np.int64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_NONE = np.iinfo(np.int64).max
# up to so many rows of a person the smallest are found one after another, and by sorting beyond
_FEW = 16
_BLOCK = 1 << 14


def linear(pieces: Sequence[_WHOLE | None], form: Sequence[int]) -> _WHOLE:
    """The linear form of ``bounded.Key``, in numpy; None is 0."""
    known = [(piece, a) for piece, a in zip(pieces, form[1:], strict=False) if piece is not None]
    out = np.full(known[0][0].size, form[0])
    for block in _blocks(out):
        total = out[block]
        for piece, a in known:
            total += _folded(piece[block] * a)  # of a product below 2⁶², a number below 2³²
        _residue(_folded(total))
    return out


def mixed(t: _WHOLE, polynomial: Sequence[int]) -> _WHOLE:
    """The polynomial of ``bounded.Key``, in numpy."""
    out = np.full(t.size, polynomial[0])
    for block in _blocks(out):
        h, place = out[block], t[block]
        for coefficient in polynomial[1:]:
            h *= place
            h += coefficient
            _folded(_folded(h))
        _residue(h)
    return out


def _blocks(column: _WHOLE) -> Iterator[slice]:
    """Parts whose steps stay in the processor's cache."""
    return (slice(start, start + _BLOCK) for start in range(0, column.size, _BLOCK))


def _folded(x: _WHOLE) -> _WHOLE:
    """The same modulo 2³¹ − 1, in place and without division: below 2³³ of x < 2⁶³, at most 2³¹ + 2 of x < 2³³."""
    high = x >> 31
    x &= PRIME
    x += high
    return x


def _residue(x: _WHOLE) -> None:
    """The least residue of what is below 2³² − 2, in place."""
    np.subtract(x, PRIME, out=x, where=x >= PRIME)


def pieces_of(whole: _WHOLE) -> list[_WHOLE | None]:
    """Bits 0 to 30, and 31 to 61; None where they are all 0."""
    if whole.min() >= 0 and whole.max() <= PRIME:
        return [whole, None]
    return [whole & PRIME, (whole & (PRIME << 31)) >> 31]


def kept_by_numpy(
    batches: Generator[list[NDArray[Any]], None, None],
    share: Share,
    form: Sequence[int],
    polynomial: Sequence[int],
    *,
    parts: int,
    grouped: bool,
    keyed: bool,
) -> Iterator[list[_WHOLE]]:
    """The used rows of each part: the group's number (0 without groups), and the whole numbers.

    A batch has the columns p, g (if ``grouped``), v0, v1, … and k (if ``keyed``); what hands them out is closed.
    """
    with tempfile.TemporaryDirectory(prefix="dpkit-") as folder:
        width = 0
        with closing(batches):
            for batch in batches:
                columns = [np.asarray(column, np.int64) for column in batch]
                width = len(columns)
                # Fibonacci hashing; which part a person is in changes nothing
                of = ((columns[0].view(np.uint64) * _GOLDEN) >> np.uint64(32)) * np.uint64(parts) >> np.uint64(32)
                order = np.argsort(of.astype(np.uint16), kind="stable")
                ends = np.searchsorted(of[order], np.arange(parts + 1))
                ordered = np.stack([column[order] for column in columns], axis=1)
                for i in np.flatnonzero(np.diff(ends)).tolist():
                    with open(Path(folder) / str(i), "ab") as file:
                        ordered[ends[i] : ends[i + 1]].tofile(file)
        for i in range(parts):
            path = Path(folder) / str(i)
            if path.exists():
                rows = np.fromfile(path, np.int64).reshape(-1, width)
                path.unlink()
                yield _kept(
                    [np.ascontiguousarray(column) for column in rows.T], share, form, polynomial, grouped, keyed
                )


def _kept(
    columns: list[_WHOLE], share: Share, form: Sequence[int], polynomial: Sequence[int], grouped: bool, keyed: bool
) -> list[_WHOLE]:
    if keyed and not grouped:
        return _kept_by_key(columns, share, form, polynomial)
    p, *others = _by_content(columns, 1 + grouped)
    g = others.pop(0) if grouped else np.zeros(p.size, np.int64)
    last = others.pop() if keyed else _numbered([p, g, *others])
    # ties are settled by the place, which is the order of the values
    h = mixed(linear([piece for key in [p, *others, last] for piece in pieces_of(key)], form), polynomial)
    starts = _starts([p, g])
    kept = _smallest(h, starts, share.per_group)
    if grouped:
        first_p, first_g = p[starts], g[starts]
        h_group = mixed(linear([*pieces_of(first_p), first_g], form), polynomial)
        chosen = np.zeros(starts.size, np.bool_)
        chosen[_smallest(h_group, _starts([first_p]), share.groups)] = True
        of_row = np.repeat(chosen, np.diff(np.append(starts, p.size)))
        kept = kept[of_row[kept]]
    return [g[kept], *(column[kept] for column in others)]


def _kept_by_key(columns: list[_WHOLE], share: Share, form: Sequence[int], polynomial: Sequence[int]) -> list[_WHOLE]:
    """Without groups: every row has a hash of its own from the start, and one order of places does it all."""
    p, *values = columns
    h = mixed(linear([piece for column in columns for piece in pieces_of(column)], form), polynomial)
    low = int(p.min())
    if (int(p.max()) - low).bit_length() <= 32:
        packed = ((p - low) << 31) | h
        order = np.argsort(packed)
        tied = packed[order][1:] == packed[order][:-1]
    if (int(p.max()) - low).bit_length() > 32 or tied.any():
        order = np.lexsort([*values[::-1], h, p])
    starts = _starts([p[order]])
    sizes = np.diff(np.append(starts, p.size))
    kept = order[np.arange(p.size) - np.repeat(starts, sizes) < share.per_group]
    return [np.zeros(kept.size, np.int64), *(column[kept] for column in values[:-1])]


def _by_content(columns: list[_WHOLE], names: int) -> list[_WHOLE]:
    """All columns, in the order of persons, groups, and then of the values (a row key, if there is one, comes last)."""
    if len(columns) == 2 and names == 1:
        low, high = int(columns[0].min()), int(columns[0].max())
        smallest, largest = int(columns[1].min()), int(columns[1].max())
        bits = (largest - smallest).bit_length()
        if (high - low).bit_length() + bits <= 63:
            # both in one number, which sorts in a tenth of the time of places
            packed = ((columns[0] - low) << bits) | (columns[1] - smallest)
            packed.sort()
            return [(packed >> bits) + low, (packed & ((1 << bits) - 1)) + smallest]
    order = np.lexsort(columns[:names][::-1]) if len(columns) == names else np.lexsort([
        *columns[names:][::-1], *columns[:names][::-1],
    ])  # fmt: skip
    return [column[order] for column in columns]


def _starts(columns: list[_WHOLE]) -> NDArray[np.intp]:
    """Where a run of equal entries begins, in columns that are sorted by them."""
    new = np.zeros(columns[0].size, np.bool_)
    new[:1] = True
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(new)


def _numbered(columns: list[_WHOLE]) -> _WHOLE:
    """1, 2, … within every run of rows that agree."""
    starts = _starts(columns)
    return np.arange(1, columns[0].size + 1) - np.repeat(starts, np.diff(np.append(starts, columns[0].size)))


def _smallest(h: _WHOLE, starts: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """The places of the ``most`` smallest entries of every run, of equal ones the first."""
    # 31 bits of hash above 32 bits of place
    packed = (h << 32) | np.arange(h.size)
    if most <= _FEW:
        found = []
        for _ in range(most):
            least = np.minimum.reduceat(packed, starts)
            places = least[least != _NONE] & 0xFFFFFFFF
            if not places.size:
                break
            packed[places] = _NONE
            found.append(places)
        return np.concatenate(found)
    run = np.repeat(np.arange(starts.size), np.diff(np.append(starts, h.size)))
    order = np.lexsort([packed, run])
    return order[np.arange(h.size) - starts[run] < most]

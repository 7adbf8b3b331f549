"""The groups of an answer: the values of one column, or the cells of a cross-table of several.

A cell of a cross-table is one group like any other: a row is in one of them, so that what one person can change is
bounded by ``max_groups`` (now of cells) and ``max_per_group`` as before.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpkit.queries._columns import coded_by, codes, is_column, labels, name_of, size
from dpkit.queries._dates import as_dates
from dpkit.queries._drawn import shown
from dpkit.queries._units import Share
from dpkit.queries._where import kind_of, missing

__all__ = ["by", "fitting_keys", "group_names", "grouped_by", "known_labels", "listed", "uses"]


def grouped_by(
    data: Any, groups: Any, keys: Any, rows: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.int64] | None, list[Any]]:
    """The group of each row, −1 for none, and the groups' names; outside ``rows`` it need not be known.

    Names are the column's values, and of several columns tuples of them.
    """
    if groups is None:
        return None, []
    columns = _columns_of(data, groups)
    if columns is not None and len(columns) > 1:
        return _crossed(data, columns, keys, rows)
    found = known_labels(data, groups if columns is None else columns[0], rows)
    if keys is None:
        return codes(found)
    names = listed(keys, group_names(data, groups))
    return coded_by(found, fitting_keys(found, names)), names


def known_labels(data: Any, column: Any, rows: NDArray[np.bool_] | None, what: str = "groups") -> NDArray[Any]:
    """The labels of a column; of dates texts like 2026-01-31, or 2026-01-31 08:30 where the day has a time."""
    found = labels(data, column, what, rows)
    if found.dtype.kind == "O" and any(issubclass(kind, datetime.date) for kind in set(map(type, found.tolist()))):
        found = as_dates(what, found)
    if found.dtype.kind != "M":
        return found
    if (np.isnat(found) if rows is None else np.isnat(found) & rows).any():
        raise ValueError(
            f"{what} must be known for every row that is asked about, got dates that are missing: leave these rows "
            "out by where="
        )
    days, place = np.unique(found, return_inverse=True)
    return np.array([shown(day) for day in days.astype("datetime64[s]")] or [""], object)[place]


def fitting_keys(found: NDArray[Any], keys: list[Any]) -> list[Any]:
    """Keys in the form that labels have, or a refusal where they are of another kind and could not be found."""
    if any(isinstance(key, (datetime.date, np.datetime64)) for key in keys):
        keys = [shown(as_dates("keys", [key], private=False)[0].astype("datetime64[s]")) for key in keys]
    if not found.size:
        return keys
    held = _held(found)
    texts = [isinstance(key, str) for key in keys]
    if held == "numbers" and any(texts):
        raise TypeError(f"keys must be numbers, as the column is, got {keys[texts.index(True)]!r}")
    if held == "texts" and not all(texts):
        raise TypeError(f"keys must be texts, as the column is, got {keys[texts.index(False)]!r}")
    if held == "truth" and (strange := [key for key in keys if not _is_truth(key)]):
        raise TypeError(f"keys must be True and False without quotes, as the column is, got {strange[0]!r}")
    return keys


def _is_truth(key: Any) -> bool:
    return kind_of(type(key)) in ("truth", "numbers") and key in (True, False)


def _held(found: NDArray[Any]) -> str:
    """What all known labels are, numbers, texts or truth; nothing where they are of several kinds or of another."""
    kind = found.dtype.kind
    if kind != "O":
        return {"b": "truth", "i": "numbers", "u": "numbers", "f": "numbers", "U": "texts", "T": "texts"}.get(kind, "")
    kinds = {kind_of(one) for one in set(map(type, found[~missing(found)].tolist()))}
    return kinds.pop() if len(kinds) == 1 else ""


def listed(keys: Any, names: Sequence[str]) -> list[Any]:
    """The groups that ``keys`` lists: values of one column, or tuples of a value of each of several."""
    if isinstance(keys, Mapping):
        stated = _by_column(keys, tuple(names))
        return stated[0] if len(stated) == 1 else list(itertools.product(*stated))
    wanted = _several(keys)
    if not wanted:
        raise ValueError("keys must list at least one group, got none")
    if len(names) > 1 and not all(isinstance(key, tuple) and len(key) == len(names) for key in wanted):
        raise ValueError(
            f"keys must be tuples with a value of each of {list(names)!r}, or the values of each column as in "
            f"{{{names[0]!r}: [...], {names[1]!r}: [...]}}, got keys={keys!r}"
        )
    if len(set(wanted)) < len(wanted):
        raise ValueError(f"keys must be distinct, got {len(wanted) - len(set(wanted))} repeated among {len(wanted)}")
    return wanted


def group_names(data: Any, groups: Any) -> tuple[str, ...]:
    """What the columns of the groups are called."""
    columns = _columns_of(data, groups)
    if columns is None or len(columns) == 1:
        return (name_of(data, groups if columns is None else columns[0], "group"),)
    return tuple(name_of(data, column, f"group {i + 1}") for i, column in enumerate(columns))


def by(data: Any, groups: Any) -> str:
    """ " by region and sex", and without groups nothing."""
    if groups is None:
        return ""
    names = group_names(data, groups)
    return " by " + (names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}")


def uses(share: Share, person: Any, unit: str, group: str = "") -> str:
    """How much of one unit is in an answer, in words; nothing where all of it is."""
    if person is None:
        return ""
    rows = f"at most {share.per_group} row{'s' * (share.per_group > 1)} of one {unit}"
    if not group:
        return rows
    what, _, columns = group.partition(" ")
    return f"{rows} in each of at most {share.groups} {what}{'s' * (share.groups > 1)}{columns and f' {columns}'}"


def _columns_of(data: Any, groups: Any) -> list[Any] | None:
    """The columns that a list names or holds; None where it is a column itself, one label for each row."""
    if not isinstance(groups, (list, tuple)) or not groups:
        return None
    if all(not isinstance(one, str) and np.ndim(one) == 1 for one in groups):
        return list(groups)
    if not all(isinstance(one, str) for one in groups):
        return None
    named = [is_column(data, one) for one in groups]
    if all(named) or (any(named) and len(groups) != size(data)):
        if len(set(groups)) < len(groups):
            raise ValueError(f"groups must name each column once, got groups={list(groups)!r}")
        return list(groups)  # a name that is no column is refused when it is read
    return None


def _several(keys: Any) -> list[Any]:
    """Keys one by one; a text alone would be its letters."""
    if isinstance(keys, (str, bytes)):
        raise TypeError(f"keys must be a list of groups, got the text {keys!r}: write [{keys!r}]")
    return list(keys)


def _by_column(keys: Mapping[Any, Any], names: Sequence[str]) -> list[list[Any]]:
    """The stated values of each column."""
    if set(keys) != set(names):
        raise ValueError(f"keys must have the values of each column of groups, {list(names)!r}, got {list(keys)!r}")
    stated = [_several(keys[name]) for name in names]
    if not all(stated):
        raise ValueError("keys must list at least one value of each column, got none of one")
    return stated


def _crossed(
    data: Any, columns: list[Any], keys: Any, rows: NDArray[np.bool_] | None
) -> tuple[NDArray[np.int64], list[tuple[Any, ...]]]:
    found = [known_labels(data, column, rows) for column in columns]
    names = group_names(data, columns)
    if isinstance(keys, Mapping):
        stated = _by_column(keys, names)
        place = np.zeros(found[0].size, np.int64)
        for array, values in zip(found, stated, strict=True):
            own = coded_by(array, fitting_keys(array, values))
            place = np.where((place < 0) | (own < 0), -1, place * len(values) + own)
        return place, list(itertools.product(*stated))
    place = np.zeros(found[0].size, np.int64)
    cells: list[tuple[Any, ...]] = [()]
    unknown = np.zeros(place.size, np.bool_)
    for array in found:
        own, values = codes(array)
        unknown |= own < 0  # what is missing in a row that nobody asks about
        own = np.maximum(own, 0)
        # as dense numbers after each column, which so many columns cannot overflow
        pairs, place = np.unique(place * max(1, len(values)) + own, return_inverse=True)
        parts = [divmod(int(pair), max(1, len(values))) for pair in pairs]
        cells = [(*cells[before], values[value] if values else None) for before, value in parts]
    place = np.where(unknown, -1, place)
    if keys is None:
        return place, cells
    wanted = listed(keys, names)
    by_column = [fitting_keys(array, [key[i] for key in wanted]) for i, array in enumerate(found)]
    position = {key: i for i, key in enumerate(zip(*by_column, strict=True))}
    place_of = np.array([position.get(cell, -1) for cell in cells] or [-1], np.int64)
    return np.where(place < 0, -1, place_of[place]), wanted

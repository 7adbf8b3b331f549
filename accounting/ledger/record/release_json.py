"""Release descriptions as JSON: generic over the frozen dataclasses of ``accounting``, versioned, closed to others.

A description becomes ``{"type": its class name, field: value, …}``; nested descriptions and tuples follow. Only
classes that this distribution defines are read back, through their own constructors, so that nothing that a
constructor refuses can come out of a file.

Descriptions from outside become ``{"type": "Outside", "kind": "module:Class", "fields": …, "weaker": …}``. Reading
never imports anything: where the class is loaded already, and says the same weaker description as was stored, its
instance comes back; elsewhere an :class:`Outside`, which every accountant prices by the stored one. The two are
stored alike, so a ledger verifies in both places.
"""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from typing import Any

from accounting.checks import integer
from accounting.errors import UnsupportedRelease
from accounting.releases import Composed, Parallel, Release, check_release, compose, parallel
from accounting.releases.base import said

__all__ = ["VERSION", "alike", "canonical", "decode", "encode"]

VERSION = 1

_encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def canonical(value: Any) -> str:
    """The one JSON text of a value: sorted keys, no blanks, ASCII, shortest floats that read back the same."""
    return _encoder.encode(value)


def alike(one: Any, other: Any) -> bool:
    """Whether two descriptions, or what is stored of them, are the same but for last digits: 10⁻⁹ of a number.

    Calibrations of the same run by two versions, or on two machines, may differ by as much.
    """
    if isinstance(one, Release) and isinstance(other, Release):
        return one == other or (type(one) is type(other) and alike(encode(one), encode(other)))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return bool(one == other)


def encode(release: Release) -> dict[str, Any]:
    """A description as a dictionary of plain JSON values.

    Raises
    ------
    TypeError
        If it holds something that has no place in JSON.

    Examples
    --------
    >>> from accounting import Gaussian, TreeAggregation
    >>> stored = encode(2 * Gaussian(3.0, adjacency="replace") + TreeAggregation(5.0, steps=16))
    >>> decode(stored)
    (2 * Gaussian(noise_multiplier=3.0, adjacency='replace') + TreeAggregation(noise_multiplier=5.0, steps=16))
    """
    check_release(release)
    name = type(release).__name__
    if isinstance(release, Outside):
        return {**json.loads(release.stored), "weaker": encode(release.stand_in)}
    if not _own(type(release)):
        return _encode_outside(release)
    stored: dict[str, Any] = {"type": name}
    for field in fields(release):
        value = getattr(release, field.name)
        # defaults are left out, so that a field that is added later changes no text that exists
        if field.init and (field.default is MISSING or value != field.default):
            stored[field.name] = _plain(name, field.name, value)
    return stored


def decode(stored: Any) -> Release:
    """The description of a dictionary that :func:`encode` made.

    Raises
    ------
    ValueError
        If a name or a field is unknown, or the description's constructor refuses a value.
    """
    if not isinstance(stored, dict) or not isinstance(stored.get("type"), str):
        raise ValueError(f"expected a stored release with its type, got {stored!r}")
    name = stored["type"]
    if name == "Outside":
        return _decode_outside(stored)
    cls = _known(name)
    if cls is None:
        raise ValueError(f"unknown release {name!r}: it was written by another version or by something else")
    values = {key: _value(value) for key, value in stored.items() if key != "type"}
    unknown = set(values) - {field.name for field in fields(cls) if field.init}
    if unknown:
        raise ValueError(f"unknown field {min(unknown)!r} of release {name!r}")
    try:
        # the two combinators are rebuilt by their own rules, which check counts and restore the canonical order
        if cls is Composed:
            parts = values.get("parts", ())
            return compose((_release(part), integer("count", count, at_least=1)) for part, count in parts)
        if cls is Parallel:
            return parallel(*map(_release, values.get("branches", ())))
        return cls(**values)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"a stored {name!r} does not hold what it must: {error}") from None


@dataclass(frozen=True, repr=False)
class Outside(Release):
    """A description whose class is not loaded here: what was stored of it, and the description that prices it."""

    stored: str
    stand_in: Release

    def __repr__(self) -> str:
        given = json.loads(self.stored)
        values = [f"{name}={value!r}" for name, value in given["fields"].items() if name != "adjacency"]
        if self.adjacency is not None:
            values.append(f"adjacency={self.adjacency!r}")
        return f"{given['kind'].rpartition('.')[2].rpartition(':')[2]}({', '.join(values)})"

    def weaker(self) -> Release:
        """The description that was stored with it, which costs at least as much."""
        return self.stand_in


def _encode_outside(release: Release) -> dict[str, Any]:
    cls = type(release)
    weaker = said(release, "weaker")  # and not that of the class that it is derived from
    if weaker is None:
        raise UnsupportedRelease(
            f"a description from outside accounting is stored with what weaker() says of it, and {release!r} has none"
        )
    stand_in = weaker()
    if not isinstance(stand_in, Release) or type(stand_in) is cls:
        raise TypeError(f"weaker() must return another description, got {stand_in!r} from {release!r}")
    values = {f.name: _plain(cls.__name__, f.name, getattr(release, f.name)) for f in fields(release) if f.init}
    kind = f"{cls.__module__}:{cls.__qualname__}"
    return {"type": "Outside", "kind": kind, "fields": values, "weaker": encode(stand_in)}


def _decode_outside(stored: dict[str, Any]) -> Release:
    if {*stored} != {"type", "kind", "fields", "weaker"} or not isinstance(stored["fields"], dict):
        raise ValueError(f"a stored description from outside does not hold what it must: {sorted(stored)}")
    kind, stand_in = stored["kind"], decode(stored["weaker"])
    if not isinstance(kind, str) or ":" not in kind:
        raise ValueError(f"kind must be 'module:Class', got {kind!r}")
    for cls in _subclasses():
        if f"{cls.__module__}:{cls.__qualname__}" == kind and not _own(cls):
            try:
                found = cls(**{name: _value(value) for name, value in stored["fields"].items()})
                if encode(found) == stored:
                    return found
            except (TypeError, ValueError, UnsupportedRelease):
                break  # another version of the class: what was stored with it still holds
    text = canonical({name: stored[name] for name in ("type", "kind", "fields")})
    return Outside(text, stand_in, adjacency=stand_in.adjacency)


def _subclasses() -> Iterator[type[Release]]:
    waiting = list(Release.__subclasses__())
    while waiting:
        cls = waiting.pop()
        waiting.extend(cls.__subclasses__())
        yield cls


_classes: dict[str, type[Release]] = {}


def _known(name: str) -> type[Release] | None:
    """The description that this distribution defines by a name."""
    if name not in _classes:
        _classes.update({cls.__name__: cls for cls in _subclasses() if _own(cls) and cls is not Outside})
    return _classes.get(name)


def _own(cls: type[Release]) -> bool:
    return cls.__module__.partition(".")[0] == "accounting"


def _release(value: Any) -> Release:
    if not isinstance(value, Release):
        raise TypeError(f"{value!r} is not a release")
    return value


def _plain(name: str, field: str, value: Any) -> Any:
    if isinstance(value, Release):
        return encode(value)
    if isinstance(value, tuple):
        return [_plain(name, field, item) for item in value]
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    raise TypeError(f"{name}.{field} cannot be stored as JSON, got {field}={value!r}")


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return decode(value)
    if isinstance(value, list):
        return tuple(map(_value, value))
    return value

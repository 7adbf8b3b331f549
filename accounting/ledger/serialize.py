"""Release descriptions as JSON: generic over the frozen dataclasses of ``accounting``, versioned, closed to others.

A description becomes ``{"type": its class name, field: value, …}``; nested descriptions and tuples follow. Only
classes that this distribution defines are read back, through their own constructors, so that nothing that a
constructor refuses can come out of a file.
"""

from __future__ import annotations

import json
import numbers
from dataclasses import MISSING, fields
from typing import Any

from accounting.checks import integer
from accounting.releases import Composed, Parallel, Release, compose, parallel

__all__ = ["VERSION", "canonical", "decode", "dumps", "encode", "loads"]

VERSION = 1

_encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def canonical(value: Any) -> str:
    """The one JSON text of a value: sorted keys, no blanks, ASCII, shortest floats that read back the same."""
    return _encoder.encode(value)


def dumps(release: Release) -> str:
    """A description as canonical JSON text that states the version of the format.

    Raises
    ------
    TypeError
        If it holds something that has no place in JSON.

    Examples
    --------
    >>> from accounting import Gaussian, TreeAggregation
    >>> text = dumps(2 * Gaussian(3.0, adjacency="replace") + TreeAggregation(5.0, steps=16))
    >>> loads(text)
    (2 * Gaussian(noise_multiplier=3.0, adjacency='replace') + TreeAggregation(noise_multiplier=5.0, steps=16))
    """
    return canonical({"version": VERSION, "release": encode(release)})


def loads(text: str) -> Release:
    """The description that :func:`dumps` wrote.

    Raises
    ------
    ValueError
        If the version, a name or a field is unknown, or the description's constructor refuses a value.
    """
    document = json.loads(text)
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise ValueError(f"expected a release of format version {VERSION}, got {text[:80]!r}")
    return decode(document.get("release"))


def encode(release: Release) -> dict[str, Any]:
    """A description as a dictionary of plain JSON values."""
    if not isinstance(release, Release):
        raise TypeError(f"release must be a description such as Gaussian(1.0), got release={release!r}")
    name = type(release).__name__
    if not _own(type(release)):
        raise TypeError(f"only descriptions defined in accounting can be stored, got {release!r}")
    stored: dict[str, Any] = {"type": name}
    for field in fields(release):
        value = getattr(release, field.name)
        # defaults are left out, so that a field that is added later changes no text that exists
        if field.init and (field.default is MISSING or value != field.default):
            stored[field.name] = _plain(name, field.name, value)
    return stored


def decode(stored: Any) -> Release:
    """The description of a dictionary that :func:`encode` made."""
    if not isinstance(stored, dict) or not isinstance(stored.get("type"), str):
        raise ValueError(f"expected a stored release with its type, got {stored!r}")
    name = stored["type"]
    cls = _known().get(name)
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


def _known() -> dict[str, type[Release]]:
    """Every description that this distribution defines, by name."""
    found: dict[str, type[Release]] = {}
    waiting = list(Release.__subclasses__())
    while waiting:
        cls = waiting.pop()
        waiting.extend(cls.__subclasses__())
        if _own(cls):
            found[cls.__name__] = cls
    return found


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

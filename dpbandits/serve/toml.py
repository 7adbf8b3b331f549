"""Strict reading of TOML tables: a key that is unknown, missing or of another kind is an error that names it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["get", "number", "only", "table", "whole"]

_MISSING: Any = object()


def only(table: str, found: Mapping[str, Any], known: set[str]) -> None:
    """Refuse a key that is none of ``known``."""
    for name in found:
        if name not in known:
            key = f"{table}.{name}" if table else name
            raise ValueError(f"{key} is no key of the file: it must be one of {', '.join(sorted(known))}")


def table(tree: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The table of that name, empty if there is none."""
    found = tree.get(name, {})
    if not isinstance(found, dict):
        raise ValueError(f"{name} must be a table, [{name}], got {name}={found!r}")
    return found


def get(table: Mapping[str, Any], key: str, kind: type, default: Any = _MISSING) -> Any:
    """The value of a key ``table.name``, of that very type."""
    name = key.rpartition(".")[-1]
    if name not in table:
        if default is _MISSING:
            raise ValueError(f"{key} must be given, got none: add it under [{key.rpartition('.')[0]}]")
        return default
    found = table[name]
    if type(found) is not kind:
        raise ValueError(f"{key} must be of type {kind.__name__}, got {name}={found!r}")
    return found


def number(table: Mapping[str, Any], key: str) -> float:
    """A finite number, which must be given."""
    name = key.rpartition(".")[-1]
    found = table.get(name)
    if type(found) not in (int, float) or not math.isfinite(found):  # type: ignore[arg-type]
        raise ValueError(f"{key} must be a finite number, got {name}={found!r}")
    return float(found)  # type: ignore[arg-type]


def whole(table: Mapping[str, Any], key: str, default: int, least: int, most: int) -> int:
    """A whole number within bounds."""
    found: int = get(table, key, int, default)
    if not least <= found <= most:
        raise ValueError(f"{key} must lie in {least}, …, {most}, got {key.rpartition('.')[-1]}={found!r}")
    return found

"""Strict reading of TOML: a key that is unknown, missing or of another kind is an error that names it.

What a file may hold is written down as a table of tables, with a reader for each key:

>>> known = {"service": {"port": whole(8000, 0, 65535), "host": of(str, "localhost")}}
>>> read({"service": {"port": 80}}, known)
{'service': {'port': 80, 'host': 'localhost'}}
>>> read({"service": {"prot": 80}}, known)
Traceback (most recent call last):
ValueError: service.prot is no key of the file: it must be one of host, port
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

__all__ = ["MISSING", "Reader", "number", "of", "one_of", "only", "read", "table", "whole"]

MISSING: Any = object()
# of a key's full name, and what was found there or MISSING, the value
Reader = Callable[[str, Any], Any]


def read(tree: Mapping[str, Any], known: Mapping[str, Mapping[str, Reader]]) -> dict[str, dict[str, Any]]:
    """All values of some tables, in the order of ``known``."""
    told = {}
    for name, keys in known.items():
        found = table(tree, name)
        only(name, found, keys)
        told[name] = {key: reader(f"{name}.{key}", found.get(key, MISSING)) for key, reader in keys.items()}
    return told


def only(table: str, found: Mapping[str, Any], known: Iterable[str]) -> None:
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


def of(kind: type, default: Any = MISSING) -> Reader:
    """A value of that very type."""

    def value(key: str, found: Any) -> Any:
        table, _, name = key.rpartition(".")
        if found is MISSING:
            if default is MISSING:
                raise ValueError(f"{key} must be given, got none: add it under [{table}]")
            return default
        if type(found) is not kind:
            raise ValueError(f"{key} must be of type {kind.__name__}, got {name}={found!r}")
        return found

    return value


def one_of(*allowed: str) -> Reader:
    """One of some texts, the first by default."""

    def value(key: str, found: Any) -> str:
        text: str = of(str, allowed[0])(key, found)
        if text not in allowed:
            raise ValueError(f"{key} must be {' or '.join(map(repr, allowed))}, got {_named(key)}={text!r}")
        return text

    return value


def number(default: Any = MISSING) -> Reader:
    """A finite number."""

    def value(key: str, found: Any) -> Any:
        if found is MISSING and default is not MISSING:
            return default
        found = None if found is MISSING else found
        if type(found) not in (int, float) or not math.isfinite(found):
            raise ValueError(f"{key} must be a finite number, got {_named(key)}={found!r}")
        return float(found)

    return value


def whole(default: int, least: int, most: int) -> Reader:
    """A whole number within bounds."""

    def value(key: str, found: Any) -> int:
        count: int = of(int, default)(key, found)
        if not least <= count <= most:
            raise ValueError(f"{key} must lie in {least}, …, {most}, got {_named(key)}={count!r}")
        return count

    return value


def _named(key: str) -> str:
    return key.rpartition(".")[-1]

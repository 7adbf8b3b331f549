"""Names of a package that are loaded when they are first asked for (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module

__all__ = ["attributes_of"]


def attributes_of(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package whose names are found in, or are, the modules ``homes``."""
    module = sys.modules[package]

    def getattribute(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = import_module(homes[name])
        # a module of the name's may hold a thing of that name, as that of ``simulate`` does
        found = home if homes[name].endswith(f".{name}") and not hasattr(home, name) else getattr(home, name)
        setattr(module, name, found)
        return found

    return getattribute, lambda: sorted({*vars(module), *homes})

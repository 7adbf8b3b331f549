"""Packages that only some uses need: imported on first use, with a clear message where they are missing."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["need"]


def need(module: str, purpose: str, extra: str = "cli") -> Any:
    """Import ``module``.

    Raises
    ------
    ImportError
        Saying what it is for and how to install it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        raise ImportError(f'{purpose} needs {package}: python -m pip install "dpkit[{extra}]"') from error

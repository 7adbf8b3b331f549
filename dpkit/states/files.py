"""State files: a tree of plain values and arrays in one ``.npz``, written atomically, read without pickle."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["read", "write"]

_FORMAT = "dpbandits-state-1"


def write(path: str | Path, tree: dict[str, Any]) -> None:
    """Write ``tree`` to ``path``, readable by its owner only; an older file stays until the new one is whole."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}

    def plain(node: Any) -> Any:
        if isinstance(node, np.ndarray):
            arrays[f"a{len(arrays)}"] = node
            return {"__array__": f"a{len(arrays) - 1}"}
        if isinstance(node, dict):
            return {str(key): plain(value) for key, value in node.items()}
        if isinstance(node, (list, tuple)):
            return [plain(value) for value in node]
        if isinstance(node, np.generic):
            return node.item()
        return node

    text = json.dumps({"format": _FORMAT, "tree": plain(tree)})
    target = Path(path)
    # mkstemp makes the file readable by its owner only
    handle, name = tempfile.mkstemp(dir=target.parent or ".", prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, allow_pickle=False, json=np.array(text), **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read(path: str | Path) -> dict[str, Any]:
    """The tree that :func:`write` wrote.

    Raises
    ------
    ValueError
        If the file is damaged or of another format.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            document = json.loads(str(file["json"]))
            arrays = {key: file[key] for key in file.files if key != "json"}
    except (KeyError, zipfile.BadZipFile, json.JSONDecodeError, EOFError, AttributeError, ValueError) as error:
        raise ValueError(f"path must hold a state file, got {path}: {error}") from error
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise ValueError(f"path must hold a state file of format {_FORMAT!r}, got {path}")

    def full(node: Any) -> Any:
        if isinstance(node, dict):
            return arrays[node["__array__"]] if "__array__" in node else {k: full(v) for k, v in node.items()}
        return [full(value) for value in node] if isinstance(node, list) else node

    tree: dict[str, Any] = full(document["tree"])
    return tree

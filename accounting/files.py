"""Files that outlive a crash: whole, and under their name, or not there at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

__all__ = ["sync_directory", "write_text"]


def sync_directory(directory: Path) -> None:
    """Make a new name durable (elsewhere than on POSIX systems, directories cannot be synced)."""
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Replace a file by one that its owner alone may read, durably; a crash leaves the old one or the new one."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)

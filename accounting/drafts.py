"""Unfinished copies of a file, named after the process that makes one: the next finds what a killed one left."""

from __future__ import annotations

import glob
import os
from contextlib import suppress
from pathlib import Path

__all__ = ["remove", "remove_drafts", "sync_directory"]


def _drafts(path: Path) -> list[Path]:
    """The unfinished copies of a file, by whichever process."""
    return [p for p in path.parent.glob(f".{glob.escape(path.name)}.*.*") if _maker(path, p) is not None]


def _maker(path: Path, draft: Path) -> int | None:
    """The process that makes a draft; None if it is no draft."""
    number, _, token = draft.name[len(path.name) + 2 :].partition(".")
    return int(number) if number.isdecimal() and len(token) == 16 and set(token) <= set("0123456789abcdef") else None


def remove_drafts(path: Path) -> None:
    """Remove what killed processes left half made, and second names of the finished file."""
    for draft in _drafts(path):
        with suppress(FileNotFoundError):
            if path.exists() and draft.samefile(path):
                remove(draft)  # its maker has nothing left to do but this
                continue
        maker = _maker(path, draft)
        if maker is None or maker == os.getpid() or os.name != "posix":
            continue
        try:
            os.kill(maker, 0)
        except ProcessLookupError:
            remove(draft)
        except OSError:
            continue


def remove(draft: Path) -> None:
    # the draft itself last: as long as it is there, the rest is found
    for name in (f"{draft.name}-wal", f"{draft.name}-shm", f"{draft.name}-journal", draft.name):
        draft.with_name(name).unlink(missing_ok=True)


def sync_directory(directory: Path) -> None:
    """Make a new name durable (elsewhere than on POSIX systems, directories cannot be synced)."""
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

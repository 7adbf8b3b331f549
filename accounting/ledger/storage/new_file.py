"""A new file, complete or not at all: made as a draft, which is named after the process that makes it, then placed.

The next process finds and removes the drafts that a killed one left.
"""

from __future__ import annotations

import errno
import glob
import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from accounting.files import sync_directory

__all__ = ["make_file", "remove_drafts"]

# a file system without hard links: exFAT, some mounts into containers
_NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
_LONGEST_CLAIM = 30.0


def make_file(path: Path, fill: Callable[[Path], None]) -> bool:
    """Make a file by ``fill(draft)``; False if there is one already."""
    remove_drafts(path)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(8)}")
    try:
        fill(draft)
        _place(draft, path)
    except FileExistsError:
        return False
    finally:
        _remove(draft)
    sync_directory(path.parent)
    return True


def _place(draft: Path, path: Path) -> None:
    """Give the draft its name; a ``FileExistsError`` where another process has made one in the meantime."""
    try:
        os.link(draft, path)  # unlike a rename, it never replaces anything
        return
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
    # a folder, which only one process can make, is then the right to rename
    claim, begun = path.with_name(f".{path.name}.claim"), time.monotonic()
    while True:
        try:
            claim.mkdir()
            break
        except FileExistsError:
            if path.exists():
                raise
            if time.monotonic() - begun > _LONGEST_CLAIM:
                raise OSError(
                    errno.EBUSY, "another process stopped while it made this ledger: remove the folder", str(claim)
                ) from None
            time.sleep(0.01)
    try:
        if path.exists():
            raise FileExistsError(errno.EEXIST, "a ledger was made in the meantime", str(path))
        os.rename(draft, path)
    finally:
        claim.rmdir()


def remove_drafts(path: Path) -> None:
    """Remove what killed processes left half made, and second names of the finished file."""
    for draft in path.parent.glob(f".{glob.escape(path.name)}.*.*"):
        number, _, token = draft.name[len(path.name) + 2 :].partition(".")
        if not (number.isdecimal() and len(token) == 16 and set(token) <= set("0123456789abcdef")):
            continue
        with suppress(FileNotFoundError):
            if path.exists() and draft.samefile(path):
                _remove(draft)  # its maker has nothing left to do but this
                continue
        if int(number) == os.getpid() or os.name != "posix":
            continue
        try:
            os.kill(int(number), 0)
        except ProcessLookupError:
            _remove(draft)
        except OSError:
            continue


def _remove(draft: Path) -> None:
    # the draft itself last: as long as it is there, the rest is found
    for name in (f"{draft.name}-wal", f"{draft.name}-shm", f"{draft.name}-journal", draft.name):
        draft.with_name(name).unlink(missing_ok=True)

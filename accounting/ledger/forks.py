"""Ledgers that cross a fork.

A fork copies locks in whatever state they are, and connections must not cross it at all. So the forking thread waits
for every ledger to be at rest, closes the connections, and lets go on both sides.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accounting.ledger.keeper import Keeper

__all__ = ["register"]

_ledgers: weakref.WeakSet[Keeper] = weakref.WeakSet()
_registry_lock = threading.RLock()
_held: list[Keeper] = []


def register(ledger: Keeper) -> None:
    """Bring a ledger safely over every fork to come."""
    with _registry_lock:
        _ledgers.add(ledger)


def _before_fork() -> None:
    _registry_lock.acquire()
    for ledger in list(_ledgers):
        ledger._lock.acquire()
        _held.append(ledger)
        ledger._journal.disconnect()


def _after_fork() -> None:
    while _held:
        _held.pop()._lock.release()
    _registry_lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)

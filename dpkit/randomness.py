"""Where noise comes from: a secure source by default, a seeded generator only as a marked simulation.

* ``secure()``: a generator keyed from the operating system, with a new key in every forked child, whose state
  cannot be saved. This is what ``rng=None`` means everywhere.
* any other ``numpy.random.Generator``: reproducible, hence predictable, hence a *simulation*. Mechanisms accept it,
  and record in the ledger that their output is not a private release.

Examples
--------
>>> import numpy as np
>>> from dpkit import randomness
>>> randomness.is_simulation(randomness.secure()), randomness.is_simulation(np.random.default_rng(0))
(False, True)
"""

from __future__ import annotations

import os
import weakref
from typing import NoReturn

import numpy as np

__all__ = ["is_simulation", "resolve", "secure"]


class SecureGenerator(np.random.Generator):
    """A ``numpy.random.Generator`` keyed from the operating system and re-keyed after a fork; never pickled."""

    def __init__(self) -> None:
        super().__init__(np.random.Philox(np.random.SeedSequence()))
        _live.add(self)

    def rekey(self) -> None:
        """Replace the key by fresh entropy from the operating system."""
        self.bit_generator.state = np.random.Philox(np.random.SeedSequence()).state

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secure generator cannot be copied, pickled or saved: noise must never be replayed")


_live: weakref.WeakSet[SecureGenerator] = weakref.WeakSet()


def _rekey_all() -> None:
    for generator in list(_live):
        generator.rekey()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_rekey_all)


def secure() -> np.random.Generator:
    """A new generator keyed from the operating system; safe across forks."""
    return SecureGenerator()


def is_simulation(rng: np.random.Generator) -> bool:
    """Whether noise from ``rng`` is a simulation (true for every generator but a secure one)."""
    return not isinstance(rng, SecureGenerator)


def resolve(rng: np.random.Generator | None) -> np.random.Generator:
    """The generator that ``rng=`` means: a new secure one for None, else the caller's."""
    if rng is None:
        return secure()
    if not isinstance(rng, np.random.Generator):
        raise TypeError(f"rng must be a numpy.random.Generator or None (secure), got rng={rng!r}")
    return rng

"""Where noise comes from: a cryptographic source by default, a seeded generator only as a marked simulation.

* ``secure()``: a cryptographic generator. This is what ``rng=None`` means everywhere.
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

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpkit.randomness.generator import SecureGenerator

__all__ = ["is_simulation", "resolve", "secure", "simulation_from"]

_shared: list[SecureGenerator] = []


def secure() -> np.random.Generator:
    """The process's cryptographic generator: safe across forks and threads, never saved (its class says more).

    Examples
    --------
    >>> from dpkit import randomness
    >>> randomness.secure().standard_normal((2, 3)).shape
    (2, 3)
    """
    if not _shared:
        _shared.append(SecureGenerator())
    return _shared[0]


def is_simulation(rng: np.random.Generator) -> bool:
    """Whether noise from ``rng`` is a simulation (true for every generator but a secure one).

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.randomness import is_simulation, secure
    >>> is_simulation(secure()), is_simulation(np.random.default_rng(0))
    (False, True)
    """
    return not isinstance(rng, SecureGenerator)


def resolve(rng: np.random.Generator | None) -> np.random.Generator:
    """The generator that ``rng=`` means: the secure one for None, else the caller's.

    Examples
    --------
    >>> from dpkit.randomness import is_simulation, resolve
    >>> is_simulation(resolve(None))
    False
    """
    if rng is None:
        return secure()
    if not isinstance(rng, np.random.Generator):
        raise TypeError(f"rng must be a numpy.random.Generator or None (secure), got rng={rng!r}")
    return rng


def simulation_from(saved: Mapping[str, Any]) -> np.random.Generator:
    """The generator that goes on where another one's ``bit_generator.state`` was taken: a simulation.

    Raises
    ------
    ValueError
        If the state names no bit generator of numpy's.

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit import randomness
    >>> rng = np.random.default_rng(0)
    >>> other = randomness.simulation_from(rng.bit_generator.state)
    >>> bool(rng.random() == other.random())
    True
    """
    kind = getattr(np.random, str(saved["bit_generator"]), None)
    if not (isinstance(kind, type) and issubclass(kind, np.random.BitGenerator)):
        raise ValueError(f"bit_generator must be one of numpy's, got bit_generator={saved['bit_generator']!r}")
    bits = kind()
    bits.state = saved
    return np.random.Generator(bits)

"""What may be spent: (ε, δ), for one unit under one adjacency."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from types import FrameType

from accounting.checks import fraction, positive
from accounting.releases import Adjacency, check_adjacency

__all__ = ["Budget"]


@dataclass(frozen=True)
class Budget:
    """The (ε, δ) that may be spent, for neighbours that differ in one ``unit`` in the sense of ``adjacency``.

    Parameters
    ----------
    epsilon : float
        Positive and finite.
    delta : float
        In [0, 1); 0 asks for pure differential privacy.
    adjacency : {"replace", "add_remove", "zero_out"}
        How two neighbouring inputs differ.
    unit : str
        What one change covers: ``"row"``, ``"round"``, ``"person"``, …

    Warns
    -----
    UserWarning
        If it hardly protects anybody: ε from 100 on, or δ from 0.01 on.

    Examples
    --------
    >>> Budget(1.0, 1e-6)
    Budget(epsilon=1.0, delta=1e-06, adjacency='replace', unit='row')
    >>> Budget(0.0, 1e-6)
    Traceback (most recent call last):
        ...
    ValueError: epsilon must be positive and finite, got epsilon=0.0
    """

    epsilon: float
    delta: float
    adjacency: Adjacency = "replace"
    unit: str = "row"

    def __init__(
        self, epsilon: float, delta: float | None = None, *, adjacency: Adjacency = "replace", unit: str = "row"
    ) -> None:
        if delta is None:
            raise TypeError(
                f"delta must be given: Budget({epsilon!r}, 0.0) for pure differential privacy (Laplace noise), or "
                f"Budget({epsilon!r}, 1e-6) to allow Gaussian noise, with delta well below 1 over the number of units"
            )
        object.__setattr__(self, "epsilon", positive("epsilon", epsilon))
        object.__setattr__(self, "delta", fraction("delta", delta, include_zero=True))
        if not _derived(sys._getframe(1)):
            _warn(self)
        check_adjacency(adjacency)
        object.__setattr__(self, "adjacency", adjacency)
        if not isinstance(unit, str) or not unit:
            raise TypeError(f"unit must be a nonempty string, got unit={unit!r}")
        object.__setattr__(self, "unit", unit)


# From here on an attacker who thinks something of a unit improbable, one in 10⁴⁰, is convinced of it; and one unit in a
# hundred may be shown whole.
_WEAK_EPSILON, _WEAK_DELTA = 100.0, 0.01


def _derived(caller: FrameType) -> bool:
    """Whether a budget comes from another one, by code of these packages, and not from whoever states what to spend."""
    package, _, module = str(caller.f_globals.get("__name__", "")).partition(".")
    return package in ("accounting", "dpkit", "dpbandits", "dataclasses") and not module.startswith("cli")


def _warn(budget: Budget) -> None:
    if budget.epsilon >= _WEAK_EPSILON:
        warnings.warn(
            f"epsilon is so large that it hardly protects anybody, got epsilon={budget.epsilon:g}: at most 10 is "
            "usual, and more is for tests and simulations",
            stacklevel=3,
        )
    if budget.delta >= _WEAK_DELTA:
        way = "; are epsilon and delta swapped?" if budget.epsilon < budget.delta else ""
        warnings.warn(
            f"delta is so large that it hardly protects anybody, got delta={budget.delta:g}: with that probability "
            f"all of a unit's data may be shown; take far less than 1 over the number of units{way}",
            stacklevel=3,
        )

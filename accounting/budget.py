"""What may be spent: (ε, δ), for one unit under one adjacency."""

from __future__ import annotations

from dataclasses import dataclass

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
        check_adjacency(adjacency)
        object.__setattr__(self, "adjacency", adjacency)
        if not isinstance(unit, str) or not unit:
            raise TypeError(f"unit must be a nonempty string, got unit={unit!r}")
        object.__setattr__(self, "unit", unit)

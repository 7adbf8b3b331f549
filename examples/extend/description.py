"""A description of your own: staircase noise, in the ledger and under every accountant.

A description is a frozen dataclass that says what left, and nothing about its price. ``weaker`` names one that the
accountants know and that costs at least as much; with it they price this one, alone and in any composition, and a
ledger stores it, and shows it where this file does not exist.

    >>> from accounting import Budget, Gaussian, Ledger, epsilon
    >>> ledger = Ledger(Budget(1.0, 1e-6))
    >>> row = ledger.spend(Staircase(0.5, sensitivity=10) + Gaussian(20.0), label="survey")
    >>> print(f"{epsilon(ledger.total, delta=1e-6):.3f}")
    0.684
"""

from __future__ import annotations

from dataclasses import dataclass

from accounting import PureDP, Release
from accounting.checks import integer, positive

__all__ = ["Staircase"]


@dataclass(frozen=True, repr=False)
class Staircase(Release):
    """Staircase noise (Geng & Viswanath 2014, arXiv:1212.1186) of ``epsilon`` on a whole number."""

    epsilon: float
    sensitivity: int = 1

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)
        integer("sensitivity", self.sensitivity, at_least=1)

    def weaker(self) -> Release:
        return PureDP(self.epsilon, adjacency=self.adjacency)

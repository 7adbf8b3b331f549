"""What a filter counts: fixed before the first release leaves, and stored with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from accounting.arrays import UNIT_ROUNDOFF
from accounting.releases import Release

__all__ = ["Measure", "Rule", "without_failures"]

Measure = Literal["gdp", "mixed", "pure", "rdp", "zcdp"]


@dataclass(frozen=True)
class Rule:
    """What a filter counts.

    Parameters
    ----------
    accountant : {"gdp", "mixed", "pure", "rdp", "zcdp", "plan"}
    failure_delta : float
        The part of the budget's δ that is kept for releases that may fail outright.
    order, limit : float, optional
        The Rényi order, and what ε_α may add up to there (``"rdp"`` only).
    plan : Release, optional
        Everything that may be released (``"plan"`` only).
    orders, shares : tuple of float
        The Rényi orders, and the shares of what is left of δ: of Gaussian DP, then of every order (``"mixed"`` only).
    reserves : tuple of float
        What releases that are not Gaussian leave of μ² for smoothing, as shares of it; any of them may be left
        (``"mixed"`` only).
    left_out : float
        The share of the δ of Gaussian DP for what smoothing leaves out (``"mixed"`` only).
    tilt : tuple of float
        Of the exponential term of :mod:`accounting.ledger.filters.reserve_costs`: its share of the δ of Gaussian DP,
        its order η and its rate ρ (``"mixed"`` only).
    levels : tuple of float
        The shares of μ² at which a release is charged by how much is left when it comes
        (:mod:`accounting.ledger.filters.level_charges`; ``"mixed"`` only). None in files before there were any.
    heavy : tuple of float
        For large and rare losses: a share of what is left of δ for a second sum with reserves, the part of it for what
        smoothing leaves out, and the reserves (``"mixed"`` only).
    heavy_tilt, heavy_levels : tuple of float
        The exponential term and the levels of that second sum (``"mixed"`` only).
    kind, kind_share : Release and float, optional
        What the first release is made of, and a share of what is left of δ for it alone
        (:mod:`accounting.ledger.filters.copies_of_first`; ``"mixed"`` only).
    """

    accountant: Measure | Literal["plan"]
    failure_delta: float = 0.0
    order: float | None = None
    limit: float | None = None
    plan: Release | None = None
    orders: tuple[float, ...] = ()
    shares: tuple[float, ...] = ()
    reserves: tuple[float, ...] = ()
    left_out: float = 0.0
    tilt: tuple[float, ...] = ()
    levels: tuple[float, ...] = ()
    heavy: tuple[float, ...] = ()
    heavy_tilt: tuple[float, ...] = ()
    heavy_levels: tuple[float, ...] = ()
    kind: Release | None = None
    kind_share: float = 0.0


def without_failures(delta: float, failure_delta: float) -> float:
    """What is left of δ for the releases that do not fail, (δ − f)/(1 − f), rounded down."""
    if failure_delta == 0:
        return delta
    return max(0.0, (delta - failure_delta) / (1 - failure_delta) * (1 - 4 * UNIT_ROUNDOFF))

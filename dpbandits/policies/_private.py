"""What the private policies share: the budgets they take, their public schedule of batches, and marks of releases."""

from __future__ import annotations

import numpy as np

from accounting import AdjacencyMismatch, Budget, Ledger
from accounting.releases import Composed
from dpkit import randomness

__all__ = ["batch_ends", "checked_budget", "mark_release", "refuse_older_state"]


def checked_budget(budget: Budget, *, units: tuple[str, ...] = ("row", "round")) -> Budget:
    """A budget that Gaussian or binomial noise can meet, for one round (or user) replaced or zeroed out.

    Raises
    ------
    TypeError, ValueError
        If it is no :class:`~accounting.Budget`, or its δ is 0.
    AdjacencyMismatch
        If it counts rows added or removed, or a unit that is not among ``units``.
    """
    if not isinstance(budget, Budget):
        raise TypeError(f"budget must be a Budget such as Budget(1.0, 1e-6), got budget={budget!r}")
    if budget.delta == 0:
        raise ValueError("delta must be positive for Gaussian noise, got delta=0.0")
    if budget.adjacency == "add_remove":
        raise AdjacencyMismatch("a bandit's rounds are replaced or zeroed out, got adjacency='add_remove'")
    if budget.unit not in units:
        raise AdjacencyMismatch(f"this policy protects one {units[-1]}, got a budget with unit={budget.unit!r}")
    return budget


def batch_ends(horizon: int, first: int, growth: float) -> list[int]:
    """The numbers of decisions after which a batch ends; the last batch, which no decision follows, has no end."""
    ends, length = [first], float(first)
    while ends[-1] < horizon:
        length *= growth
        ends.append(ends[-1] + round(length))
    return ends[:-1]


def mark_release(ledger: Ledger, label: str, release: int, rng: np.random.Generator) -> None:
    """Note in a ledger that outlives the policy, at no cost, that ``release`` has been made."""
    ledger.spend(Composed(), label=f"{label}: release {release}", simulation=randomness.is_simulation(rng))


def refuse_older_state(ledger: Ledger, label: str, releases: int) -> None:
    """Refuse a state with ``releases`` releases if the ledger shows later ones.

    An older state would release sums a second time, with fresh noise: that is not what was paid for.
    """
    mark = f"{label}: release "
    newest = max((int(row.label.removeprefix(mark)) for row in ledger.rows() if row.label.startswith(mark)), default=0)
    if newest > releases:
        raise ValueError(
            f"path must hold the newest state: {label!r} has made release {newest}, got a state at release {releases}"
        )

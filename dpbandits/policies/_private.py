"""What the private policies share: the budgets they take, their public schedule of batches, and marks of releases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from accounting import AdjacencyMismatch, Budget, Ledger
from accounting._checks import positive
from accounting.releases import Composed
from dpkit import randomness

__all__ = [
    "batch_ends",
    "bounded_rewards",
    "checked_budget",
    "keep_release",
    "refuse_older_state",
    "release_ends",
]


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


def bounded_rewards(reward_range: tuple[float, float]) -> tuple[float, float]:
    """``reward_range``, which must be finite: sensitivities are computed from it."""
    low, high = reward_range
    if math.isinf(low) or math.isinf(high):
        raise ValueError(f"reward_range must be finite for a private policy, got reward_range={reward_range}")
    return low, high


def release_ends(horizon: int, release: str, first: int, growth: float) -> Sequence[int]:
    """After which numbers of decisions sums are released: of :func:`batch_ends`, or of every decision but the last."""
    if release not in ("scheduled", "every_round"):
        raise ValueError(f"release must be 'scheduled' or 'every_round', got release={release!r}")
    positive("growth", growth)
    if growth < 1:
        raise ValueError(f"growth must be at least 1, got growth={growth!r}")
    return range(1, horizon) if release == "every_round" else batch_ends(horizon, first, growth)


def batch_ends(horizon: int, first: int, growth: float) -> list[int]:
    """The numbers of decisions after which a batch ends; the last batch, which no decision follows, has no end."""
    ends, length = [first], float(first)
    while ends[-1] < horizon:
        length *= growth
        ends.append(ends[-1] + round(length))
    return ends[:-1]


class Releasing(Protocol):
    """What a policy has that makes releases one after the other."""

    label: str
    releases: int
    decisions: int
    horizon: int | None
    checkpoint: str | None
    ledger: Ledger | None
    rng: np.random.Generator
    # whether the ledger outlives the policy, so that marks in it tell an old state from the newest
    _marks: bool

    def save(self, path: str | Path) -> None:
        """Write the whole state."""


def keep_release(policy: Releasing) -> None:
    """Save the state with the release that was just made, if there is a checkpoint, and note in the ledger, at no cost,
    that it was made.

    Raises
    ------
    ValueError
        If the ledger knows this release already: another process continues the same run. A second release of the same
        sums is not paid for, so nothing is saved and the policy takes part in no more rounds.
    """
    ledger = policy.ledger if policy._marks else None
    mark = f"{policy.label}: release {policy.releases}"
    try:
        if ledger is not None and any(row.label == mark for row in ledger.rows()):
            raise ValueError(f"ledger must not know release {policy.releases} of {policy.label!r} yet")
        if policy.checkpoint is not None:
            policy.save(policy.checkpoint)
        if ledger is not None:
            ledger.spend(Composed(), label=mark, simulation=randomness.is_simulation(policy.rng), unique=True)
    except ValueError as error:
        policy.horizon = policy.decisions
        raise ValueError(f"the run {policy.label!r} cannot go on here: {error}") from error


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

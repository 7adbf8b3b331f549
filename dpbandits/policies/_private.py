"""What the private policies share: the budgets they take, their public schedule of batches, the books of releases."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence

from accounting import AdjacencyMismatch, Budget, Ledger
from accounting.checks import positive
from accounting.releases import Composed
from dpbandits.policy import Policy
from dpkit import randomness

__all__ = [
    "ReleasingPolicy",
    "batch_ends",
    "bounded_rewards",
    "checked_budget",
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


class ReleasingPolicy(Policy):
    """The books of a policy that makes one release after the other: a named run, its checkpoint and its marks.

    Every release leaves a mark in a ledger that outlives the policy. It tells an old state from the newest, and stops
    the second of two processes that continue the same run.
    """

    label: str
    checkpoint: str | None
    releases: int
    # whether the ledger outlives the policy
    _marks: bool

    def _open_run(self, budget: Budget, ledger: Ledger | None, label: str | None, checkpoint: str | None) -> Ledger:
        """Name the run; the ledger that is to be charged with it, by default one of its own."""
        self.label = label or f"{type(self).__name__} {secrets.token_hex(4)}"
        self.checkpoint = None if checkpoint is None else str(checkpoint)
        self._marks = ledger is not None
        self.ledger = Ledger(budget) if ledger is None else ledger
        return self.ledger

    def _keep_release(self) -> None:
        """Save the state with the release that was just made, if there is a checkpoint, and mark the release.

        Raises
        ------
        ValueError
            If the ledger knows this release already: another process continues the same run. A second release of the
            same sums is not paid for, so nothing is saved and the policy takes part in no more rounds.
        """
        ledger = self.ledger if self._marks else None
        mark = f"{self.label}: release {self.releases}"
        try:
            if ledger is not None and any(row.label == mark for row in ledger.rows()):
                raise ValueError(f"ledger must not know release {self.releases} of {self.label!r} yet")
            if self.checkpoint is not None:
                self.save(self.checkpoint)
            if ledger is not None:
                ledger.spend(Composed(), label=mark, simulation=randomness.is_simulation(self.rng), unique=True)
        except ValueError as error:
            self.horizon = self.decisions
            raise ValueError(f"the run {self.label!r} cannot go on here: {error}") from error

    def _attach(self, ledger: Ledger) -> None:
        """And refuse an older state: it would release sums a second time, with fresh noise that was not paid for."""
        super()._attach(ledger)
        mark = f"{self.label}: release "
        made = (int(row.label.removeprefix(mark)) for row in ledger.rows() if row.label.startswith(mark))
        newest = max(made, default=0)
        if newest > self.releases:
            raise ValueError(
                f"path must hold the newest state: {self.label!r} has made release {newest}, "
                f"got a state at release {self.releases}"
            )
        self._marks = True

"""What the private policies that release one estimate θ at the ends of batches have in common."""

from __future__ import annotations

from typing import Protocol, TypeVar

from accounting.arrays import Array
from accounting.checks import integer
from dpbandits.policy.private import PrivatePolicy, Schedule

__all__ = ["EstimatingPolicy"]


class _Estimate(Protocol):
    @property
    def theta(self) -> Array: ...


E = TypeVar("E", bound=_Estimate)


class EstimatingPolicy(PrivatePolicy[E]):
    """Base of the policies whose public half holds a ``theta``."""

    @property
    def theta(self) -> Array:
        """θ as released."""
        return self.public.theta

    def _batches(
        self,
        first: int | None,
        typical: int,
        growth: float,
        release: str = "scheduled",
        *,
        longest: int | None = None,
        lag: int = 0,
    ) -> int:
        """Fix the schedule; the first batch is by default ``typical`` rounds, at most T/20. Returns T."""
        T = integer("horizon", self.horizon, at_least=1)
        self.first_batch = integer("first_batch", min(typical, -(-T // 20)) if first is None else first, at_least=1)
        self.release, self.growth = release, growth
        self.schedule = Schedule.of(release, T, self.first_batch, growth, longest, lag=lag)
        return T

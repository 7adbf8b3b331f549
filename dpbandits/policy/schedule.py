"""After which decisions a policy releases: public, and fixed in advance."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

from accounting.checks import choice, integer, positive

__all__ = ["Schedule", "first_length", "rare_batches", "rare_lengths"]

# batches of one length, and growing ones, whose ends are listed: more take too much time and memory
_MOST_BATCHES, _MOST_GROWING = 2**20, 2**17


@dataclass(frozen=True)
class Schedule:
    """After which numbers of decisions there is a release: public, and fixed in advance.

    Examples
    --------
    >>> Schedule.batches(100, first=10, growth=2.0).ends
    (10, 30, 70)
    >>> Schedule.of("every_round", 4, first=1, growth=1.0).ends
    range(1, 4)
    """

    ends: Sequence[int]
    lag: int = 0  # a batch is released so many decisions after its end, when late rewards have come

    @classmethod
    def batches(cls, horizon: int, first: int, growth: float, longest: int | None = None, *, lag: int = 0) -> Schedule:
        """A first batch, and each further one ``growth`` times as long, up to ``longest``.

        What would be released after the last decision is not.
        """
        integer("horizon", horizon, at_least=1)
        integer("first_batch", first, at_least=1)  # also where a file says so: else there would be no end
        if positive("growth", growth) < 1:
            raise ValueError(f"growth must be at least 1, got growth={growth!r}")
        count = min(horizon / first, math.inf if growth == 1.0 else math.log(horizon) / math.log(growth))
        if longest is not None and growth > 1.0:
            count += horizon / max(longest, first)
        most = _MOST_BATCHES if growth == 1.0 else _MOST_GROWING
        if count > most:
            raise ValueError(f"growth must be such that there are at most {most} releases, got growth={growth!r}")
        if growth == 1.0:
            return cls(range(first, horizon - lag, first), lag)
        ends, length = [first], float(first)
        while ends[-1] < horizon:
            length = max(length, min(length * growth, math.inf if longest is None else longest))
            ends.append(ends[-1] + round(length))
        return cls(tuple(end for end in ends if end + lag < horizon), lag)

    @classmethod
    def of(
        cls, release: str, horizon: int, first: int, growth: float, longest: int | None = None, *, lag: int = 0
    ) -> Schedule:
        """The one that ``release`` names: ``"scheduled"``, or ``"every_round"``, after all decisions but the last."""
        choice("release", release, "scheduled", "every_round")
        batches = cls.batches(horizon, first, growth, longest, lag=lag)
        return cls(range(1, horizon)) if release == "every_round" else batches

    def due(self, releases: int, decisions: int) -> bool:
        """Whether the next release is to be made before the next decision."""
        return releases < len(self.ends) and decisions >= self.ends[releases] + self.lag

    def start(self, releases: int) -> int:
        """The first decision of the open batch."""
        return self.ends[releases - 1] if releases else 0

    def batch(self, round: int) -> int:
        """The number of the batch that a decision is in, from 0."""
        return bisect.bisect_right(self.ends, round)


def first_length(first: int | None, typical: int, horizon: int) -> int:
    """How many rounds the first batch has: those that were asked for, or ``typical`` ones, at most T/20.

    Examples
    --------
    >>> first_length(None, 40, 1000), first_length(None, 40, 300), first_length(7, 40, 300)
    (40, 15, 7)
    """
    return integer("first_batch", min(typical, -(-horizon // 20)) if first is None else first, at_least=1)


def rare_batches(horizon: int) -> int:
    """M = ⌊log₂ log₂ T⌋, at least 2: how many batches suffice where a policy changes as seldom as it may."""
    return max(2, math.floor(math.log2(max(2.0, math.log2(max(2, horizon))))))


def rare_lengths(horizon: int, kappa: float, theta_bound: float, dim: int, gamma: float) -> list[int]:
    """B_1 = (√κ e^{3S} d²γ²α/S)^{2/3}, at most T, B_2 = α = T^{1/(2(1 − 2^{1−M}))}, and then B_i = α √B_{i−1}."""
    M = rare_batches(horizon)
    alpha = horizon ** (1.0 / (2.0 * (1.0 - 2.0 ** (1 - M))))
    S = theta_bound
    first = (math.sqrt(kappa) * math.exp(3.0 * S) * dim**2 * gamma**2 * alpha / S) ** (2.0 / 3.0)
    lengths = [min(float(horizon), first), alpha]
    while len(lengths) < M:
        lengths.append(alpha * math.sqrt(lengths[-1]))
    return [math.ceil(length) for length in lengths]

"""The parts of a private policy: what a record, noisy sums, a rule and a refit are.

They are plain functions or small frozen dataclasses, but for the sums, which hold the secret half. What each may see is
the proof: records see one round and the public half, sums see records and draw the noise, and rule and refit see only
what was released. ``examples/extend/policy.py`` has a policy of one page that is made of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypedDict, TypeVar

import numpy as np

from accounting import Budget, Release
from accounting.arrays import Array
from dpbandits.durability.pending import Pending
from dpbandits.policy.choices import Law

__all__ = ["NoisySums", "Record", "Refit", "Rule", "Terms"]

Public = TypeVar("Public")
Told = TypeVar("Told", contravariant=True)


class Record(Protocol[Told]):
    """What one round tells, at the public half that is in force; within bounds that the sums were made with."""

    def __call__(self, pending: Pending, reward: float, public: Told, /) -> tuple[Any, ...]:
        """What ``sums.add`` takes."""


class NoisySums(Protocol):
    """The secret half: the open batch of records and the sum of all batches, released with noise."""

    @property
    def cost(self) -> Release:
        """What all releases together cost."""

    def add(self, *record: Any) -> None:
        """Take in one record."""

    def release(self) -> Any:
        """Close the batch, and return the noisy sums with what is public of their noise."""

    def kept(self) -> dict[str, Any]:
        """For a state file."""

    def resume(self, saved: Any) -> None:
        """The inverse of :meth:`kept`, checked."""


class Terms(TypedDict):
    """What running sums are told of a run: what all of it may cost, how long it is, and where noise comes from."""

    budget: Budget
    releases: int
    horizon: int
    rng: np.random.Generator


class Rule(Protocol[Told]):
    """How arms are chosen from what is public; it may name in ``reads`` the fields that it looks at."""

    def __call__(self, public: Told, arms: Array, since: int, /) -> Array | Law:
        """What is maximised, or the law of the choice; the last release came after ``since`` rounds, 0 if none."""


class Refit(Protocol[Public]):
    """The next public half: post-processing of what was released."""

    def __call__(self, public: Public, released: Any, ends: Sequence[int], /) -> Public:
        """From the last one, what the sums released, and after how many rounds the batches so far ended."""

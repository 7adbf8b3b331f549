"""Rounds whose choice was made elsewhere, such as by a :class:`~dpbandits.Released`: what ``register`` begins with."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from accounting.arrays import Array
from accounting.checks import fraction, integer
from dpbandits.policy.choices import Told

if TYPE_CHECKING:
    from dpbandits.policy.protocol import Policy

__all__ = ["made_elsewhere"]


@contextmanager
def made_elsewhere(
    policy: Policy, arms: Array, count: int, person: object, probability: float | None, release: int | None
) -> Iterator[tuple[Told, tuple[object, int], int]]:
    """Under the policy's lock: the law of the choice, whose round it is, and from which release it was made.

    Parameters
    ----------
    policy : Policy
    arms : ndarray
        What was offered, checked.
    count : int
        How many there were to choose from.
    person, probability, release
        As for :meth:`dpbandits.Policy.register`, also for errors.
    """
    chance = math.nan if probability is None else fraction("probability", probability, include_one=True)
    policy.check_process()
    with policy.lock:
        who = policy.admitted(person)
        newest = policy.number()
        if release is not None and integer("release", release, at_least=0) > newest:
            raise ValueError(f"release must be at most {newest}, the newest there is, got release={release!r}")
        policy.prepare(arms)
        yield Told(chance, count), (person, who), policy.number() if release is None else release

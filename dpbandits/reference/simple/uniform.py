"""Uniform: every arm with the same probability. It reads no data; the floor that every other policy must beat."""

from __future__ import annotations

from typing import Unpack

import numpy as np

from accounting.arrays import Array
from dpbandits.policy.choices import Law, Shares
from dpbandits.policy.many import Laws, Repeated, Rounds
from dpbandits.policy.protocol import Options, Pending, Policy

__all__ = ["Uniform"]


class Uniform(Policy):
    """Choose an arm uniformly at random.

    Parameters
    ----------
    dim : int
        Dimension of an arm.
    **options
        ``reward_range``, ``base_rate``, ``on_violation``, ``horizon``, ``expire_after``, ``rng``: see
        :class:`dpbandits.Policy`.

    Examples
    --------
    >>> import numpy as np
    >>> Uniform(dim=2, rng=np.random.default_rng(0)).select(np.eye(2)).index in (0, 1)
    True
    """

    def __init__(
        self,
        dim: int,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(dim, **options)

    def score(self, arms: Array) -> Law:
        return Shares(np.full(len(arms), 1.0 / len(arms)))

    lasting = True

    def score_many(self, rounds: Rounds) -> Laws:
        n = len(rounds)
        return Repeated(self.score(rounds[0]), n) if isinstance(rounds, np.ndarray) else super().score_many(rounds)

    def learn(self, pending: Pending, reward: float) -> None:
        """Nothing: the choice never depends on rewards."""

"""Uniform: every arm with the same probability. It reads no data; the floor that every other policy must beat."""

from __future__ import annotations

from typing import Literal

import numpy as np

from dpbandits.policy import Array, Policy

__all__ = ["Uniform"]


class Uniform(Policy):
    """Choose an arm uniformly at random.

    Parameters
    ----------
    dim : int
        Dimension of an arm.
    reward_range, on_violation, horizon, rng
        See :class:`dpbandits.policy.Policy`.

    Examples
    --------
    >>> import numpy as np
    >>> Uniform(dim=2, rng=np.random.default_rng(0)).select(np.eye(2)).index in (0, 1)
    True
    """

    def __init__(
        self,
        dim: int,
        *,
        reward_range: tuple[float, float] = (-np.inf, np.inf),
        on_violation: Literal["raise", "clip"] = "raise",
        horizon: int | None = None,
        rng: np.random.Generator | None = None,
    ) -> None:
        super().__init__(dim, reward_range=reward_range, on_violation=on_violation, horizon=horizon, rng=rng)

    def _score(self, arms: Array) -> Array:
        return self.rng.random(len(arms))

    def _learn(self, arm: Array, reward: float) -> None:
        """Nothing: the choice never depends on rewards."""

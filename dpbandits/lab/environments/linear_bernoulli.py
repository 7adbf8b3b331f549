"""Rewards of 0 or 1 whose probability is linear in a fixed set of arms: the simulation of shuffle-private LinUCB.

Source: the public simulation of Chowdhury & Zhou (2022), "Shuffle Private Linear Contextual Bandits". K arms of
dimension d: d − 1 entries on the unit sphere and a last entry 1, and θ* with d − 1 entries of norm ½ and a last
entry ½, so that xᵀθ* = ½ + ½cos lies in [0, 1]. The first d arms are (eᵢ, 1), i < d, and (0, 1). Here arms are divided
by √2 and θ* is multiplied by it, which leaves the means as they are and the arms in the unit ball.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from accounting.checks import integer
from dpbandits.lab.environments.arms import INSIDE
from dpbandits.lab.environments.base import Named, Round

__all__ = ["LinearBernoulli"]

# rounds whose luck is drawn at once
_BLOCK = 4096


class LinearBernoulli(Named):
    """A linear bandit with rewards of 0 or 1, and fresh arms and θ* for every seed.

    Parameters
    ----------
    dim : int
        Dimension d of an arm, at least 2.
    arms : int
        K ≥ d.

    Raises
    ------
    ValueError
        For a parameter out of range.

    Examples
    --------
    >>> import numpy as np
    >>> first = next(LinearBernoulli().episode(np.random.default_rng(0)))
    >>> first.arms.shape, bool(0 <= first.means.min() < first.means.max() <= 1)
    ((100, 5), True)
    """

    def __init__(self, dim: int = 5, *, arms: int = 100) -> None:
        d = integer("dim", dim, at_least=2)
        self.arms = integer("arms", arms, at_least=d)
        super().__init__(f"linear Bernoulli bandit (d = {d}, K = {self.arms})", d, "linear", 1.0)

    def episode(self, rng: np.random.Generator) -> Iterator[Round]:
        """Rounds without end."""
        d = self.dim
        X = np.ones((self.arms, d))
        sphere = rng.standard_normal((self.arms, d - 1))
        X[:, :-1] = sphere / np.linalg.norm(sphere, axis=1, keepdims=True)
        X[:d, :-1] = np.eye(d, d - 1)
        theta = rng.standard_normal(d)
        theta[:-1] *= 0.5 / np.linalg.norm(theta[:-1])
        theta[-1] = 0.5
        means = np.clip(X @ theta, 0.0, 1.0)
        X *= INSIDE / math.sqrt(2)
        while True:
            for luck in rng.random(_BLOCK):
                # one number per round: the arms of a round share their luck
                yield Round(X, (luck < means).astype(np.float64), means)

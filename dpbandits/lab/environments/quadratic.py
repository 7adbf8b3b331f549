"""A mean that is quadratic in the features: no generalized linear model is right, and one with a constant is nearly so.

Law. Arms are x uniform in the unit ball of R^d, new in every round; v is uniform on the unit sphere, new for every
seed; E[r | x] = ((1 + xᵀv)/2)² = ¼ + ½xᵀv + ¼(xᵀv)², and rewards are 0 or 1.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from accounting.checks import integer
from dpbandits.lab.environments.arms import ArmLaw, arm_blocks, checked_arm_law, coins, random_parameter
from dpbandits.lab.environments.base import Named, Round

__all__ = ["Quadratic"]


class Quadratic(Named):
    """Rewards of 0 or 1 with a quadratic mean, and a fresh v for every seed.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    arms : int
        K.
    arm_law : str
        See :mod:`dpbandits.lab.environments.arms`.

    Attributes
    ----------
    link : str
        Logistic, which is advised and wrong.

    Examples
    --------
    >>> import numpy as np
    >>> first = next(Quadratic(dim=3).episode(np.random.default_rng(0)))
    >>> first.arms.shape, bool(0 <= first.means.min() < first.means.max() <= 1)
    ((20, 3), True)
    """

    def __init__(self, dim: int = 5, *, arms: int = 20, arm_law: ArmLaw = "ball") -> None:
        d = integer("dim", dim, at_least=1)
        self.arms = integer("arms", arms, at_least=1)
        self.arm_law = checked_arm_law(arm_law, self.arms, d)
        super().__init__(f"bandit with a quadratic mean (d = {d}, K = {self.arms})", d, "logistic", 3.0)

    def episode(self, rng: np.random.Generator) -> Iterator[Round]:
        """Rounds without end."""
        v = random_parameter(rng, self.dim, 1.0)
        for arms in arm_blocks(self.arm_law, rng, self.arms, self.dim):
            means = np.square((1.0 + arms @ v) / 2.0)
            yield from map(Round, arms, coins(rng, means), means)

"""Linear rewards that lie in [0, 1]: satisfaction, shares, ratings on a scale.

Law. An arm is x = (1, z)/√2 with z uniform in the unit ball of R^(d−1), new in every round, and θ* = (1, v)/√2 with v
uniform on the unit sphere, so that xᵀθ* = ½ + ½zᵀv lies in [0, 1]. The reward is m + s·min(m, 1 − m)·U, where m is that
mean and U is uniform in [−1, 1]: never outside of [0, 1], and without clipping.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from accounting.checks import fraction, integer
from dpbandits.lab.environments.arms import arm_blocks, random_parameter, with_constant
from dpbandits.lab.environments.base import Named, Round

__all__ = ["UnitLinear"]


class UnitLinear(Named):
    """A linear bandit with continuous rewards in [0, 1] and a fresh θ* for every seed.

    Parameters
    ----------
    dim : int
        Dimension d of an arm, its constant included; at least 2.
    arms : int
        K.
    spread : float
        s in (0, 1].

    Attributes
    ----------
    noise_scale : float
        The largest standard deviation of a reward, s/(2√3).

    Examples
    --------
    >>> import numpy as np
    >>> first = next(UnitLinear().episode(np.random.default_rng(0)))
    >>> first.arms.shape, bool(0 <= first.rewards.min() < first.rewards.max() <= 1)
    ((20, 5), True)
    """

    def __init__(self, dim: int = 5, *, arms: int = 20, spread: float = 1.0) -> None:
        d = integer("dim", dim, at_least=2)
        self.arms = integer("arms", arms, at_least=1)
        self.spread = fraction("spread", spread, include_one=True)
        self.noise_scale = self.spread / (2.0 * math.sqrt(3.0))
        super().__init__(f"linear bandit with rewards in [0, 1] (d = {d}, K = {self.arms})", d, "linear", 1.0)

    def episode(self, rng: np.random.Generator) -> Iterator[Round]:
        """Rounds without end."""
        v = random_parameter(rng, self.dim - 1, 1.0)
        for z in arm_blocks("ball", rng, self.arms, self.dim - 1):
            means = np.clip(0.5 + 0.5 * (z @ v), 0.0, 1.0)
            # one number per round: the arms of a round share their luck
            luck = rng.uniform(-self.spread, self.spread, (len(z), 1))
            yield from map(Round, with_constant(z), means + luck * np.minimum(means, 1.0 - means), means)

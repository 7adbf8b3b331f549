"""LinUCB with a parameter for every arm: optimism over K ridge regressions. Not private.

Source: Li, Chu, Langford & Schapire, "A Contextual-Bandit Approach to Personalized News Article Recommendation" (WWW
2010), Algorithm 1 (disjoint linear models): A_k = I + Σx xᵀ, b_k = Σr·x, argmax xᵀA_k⁻¹b_k + α√(xᵀA_k⁻¹x). Here the
features are x = (1, z)/√2 for the context z, as in :class:`~dpbandits.policies.DisjointPrivateGLM`, whose reference
this is; rewards are counted from ``base_rate``, which is what an arm is thought to give before anything is known of it.

A round costs O(Kd²) to select and O(d³) to update, memory O(Kd²).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Unpack

from accounting.arrays import Array
from accounting.checks import positive
from dpbandits.policy.catalogue import Catalogue
from dpbandits.policy.choices import Law, Ties, inverse_gap
from dpbandits.policy.offers import BALL
from dpbandits.policy.parameters import Exploration, checked_exploration
from dpbandits.policy.protocol import Options, Pending, Policy
from dpbandits.reference.simple.ridge_blocks import RidgeBlocks
from dpkit.moments.blocks import features

__all__ = ["DisjointLinUCB"]


class DisjointLinUCB(Policy):
    """LinUCB with parameters of its own for every arm: E[r | z, k] = base_rate + xᵀθ_k.

    Parameters
    ----------
    dim : int
        m, the dimension of a context z, ‖z‖ ≤ 1; the constant is added here.
    arms : int or list of str
        The names of the arms at the start; a number K stands for "0", …, str(K − 1).
    exploration : float or "inverse_gap"
        α ≥ 0. Or arms are drawn by the gaps of the xᵀθ_k (Foster & Rakhlin 2020), at the rate ``gamma_scale``·√t.
    gamma_scale : float
        By default that of Vowpal Wabbit.
    ridge : float
        λ > 0, the paper's 1.
    **options
        ``reward_range``, ``base_rate``, ``on_violation``, ``horizon``, ``expire_after``, ``rng``: see
        :class:`dpbandits.Policy`.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range.

    Examples
    --------
    >>> import numpy as np
    >>> policy = DisjointLinUCB(1, ["left", "right"], reward_range=(0, 1), rng=np.random.default_rng(0))
    >>> for t in range(100):
    ...     decision = policy.select([(-1) ** t])
    ...     policy.update(decision, float((decision.name == "left") == (t % 2 == 1)))
    >>> policy.select([0.9]).name, policy.select([-0.9]).name
    ('right', 'left')
    """

    offer = BALL
    catalogue: Catalogue
    learned = ("model",)

    def __init__(
        self,
        dim: int,
        arms: int | Sequence[str],
        *,
        exploration: Exploration = 0.5,
        gamma_scale: float = 10.0,
        ridge: float = 1.0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(dim, **options)
        self.catalogue = Catalogue(arms)
        self.arms = list(self.catalogue.names)
        self.exploration, self._width = checked_exploration(exploration)
        self.gamma_scale = positive("gamma_scale", gamma_scale)
        self.ridge = positive("ridge", ridge)
        self.model = RidgeBlocks(self.dim + 1, len(self.catalogue), self.ridge)

    def grow(self) -> None:
        self.model.grow()

    def score(self, context: Array) -> Law:
        x = features(context)
        means = self.model.theta @ x
        if self.exploration == "inverse_gap":
            return inverse_gap(self.catalogue.offered(means), self.gamma_scale * math.sqrt(self.decisions))
        # arms of which the same is known are equally good
        return Ties(self.catalogue.offered(means + self._width * self.model.norms(x)))

    def learn(self, pending: Pending, reward: float) -> None:
        self.model.add(pending.index, features(pending.arm), reward - self.base_rate)

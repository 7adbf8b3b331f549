"""Thompson sampling with a parameter for every arm: K posteriors, one draw each. Not private.

Source: Agrawal & Goyal, "Thompson Sampling for Contextual Bandits with Linear Payoffs" (ICML 2013), Algorithm 1, with a
regression for every arm as in the disjoint model of Li, Chu, Langford & Schapire (WWW 2010): θ̃_k ~ N(θ_k, v²V_k⁻¹),
argmax xᵀθ̃_k. As the draws of different arms are independent, xᵀθ_k + v‖x‖_{V_k⁻¹}·ξ_k has the same law. Features are
x = (1, z)/√2 for the context z, as in :class:`~dpbandits.policies.DisjointPrivateGLM`, whose reference this is.

A round costs O(Kd²) to select and O(d³) to update, memory O(Kd²).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from accounting.arrays import Array
from accounting.checks import positive
from dpbandits.policy.catalogue import Catalogue
from dpbandits.policy.choices import Independent, Law
from dpbandits.policy.offers import BALL
from dpbandits.policy.protocol import Options, Pending, Policy
from dpbandits.reference.simple.ridge_blocks import RidgeBlocks
from dpkit.moments.blocks import features

__all__ = ["DisjointThompson"]


class DisjointThompson(Policy):
    """Thompson sampling with parameters of its own for every arm: E[r | z, k] = base_rate + xᵀθ_k.

    Parameters
    ----------
    dim : int
        m, the dimension of a context z, ‖z‖ ≤ 1; the constant is added here.
    arms : int or list of str
        The names of the arms at the start; a number K stands for "0", …, str(K − 1).
    width : float
        v > 0, the standard deviation of the noise in a reward for the exact posterior.
    ridge : float
        λ > 0: the prior is N(0, (v²/λ)I).
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
    >>> policy = DisjointThompson(1, 2, reward_range=(0, 1), rng=np.random.default_rng(0))
    >>> for t in range(200):
    ...     decision = policy.select([(-1) ** t])
    ...     policy.update(decision, float((decision.index == 0) == (t % 2 == 1)))
    >>> policy.select([0.9]).name, policy.select([-0.9]).name
    ('1', '0')
    """

    offer = BALL
    catalogue: Catalogue
    learned = ("model",)

    def __init__(
        self,
        dim: int,
        arms: int | Sequence[str],
        *,
        width: float = 0.3,
        ridge: float = 0.3,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(dim, **options)
        self.catalogue = Catalogue(arms)
        self.arms = list(self.catalogue.names)
        self.width = positive("width", width)
        self.ridge = positive("ridge", ridge)
        self.model = RidgeBlocks(self.dim + 1, len(self.catalogue), self.ridge)

    def grow(self) -> None:
        self.model.grow()

    def score(self, context: Array) -> Law:
        x = features(context)
        return Independent(self.catalogue.offered(self.model.theta @ x), self.width * self.model.norms(x))

    def learn(self, pending: Pending, reward: float) -> None:
        self.model.add(pending.index, features(pending.arm), reward - self.base_rate)

"""Policies whose arms have parameters of their own: one context per round, K arms that stay.

The reward of arm k in a round with context X has mean μ(Xᵀθ_k). ``select`` is given the context, and the decision's
index is the arm. All the rest is as for every policy.

>>> import numpy as np
>>> class First(PerArmPolicy):
...     def _score(self, context):
...         return np.array([1.0, 0.0, 0.0])
...     def _learn_arm(self, index, context, reward):
...         print(f"arm {index} gave {reward} in context {context.tolist()}")
>>> policy = First(dim=2, n_arms=3)
>>> decision = policy.select([0.5, -1.0])           # context: (d,), entries in [-1, 1]
>>> policy.update(decision, reward=1.0)
arm 0 gave 1.0 in context [0.5, -1.0]
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from accounting.checks import integer
from dpbandits.policy import Array, Decision, Policy

__all__ = ["PerArmPolicy"]


class PerArmPolicy(Policy):
    """Base of the policies that take one context per round; the algorithm is in ``_score`` and ``_learn_arm``.

    Parameters
    ----------
    dim : int
        Dimension d of the context.
    n_arms : int
        K.
    **parameters
        Those of :class:`dpbandits.policy.Policy`.
    """

    takes: ClassVar[Literal["arms", "context"]] = "context"

    def __init__(self, dim: int, n_arms: int, **parameters: Any) -> None:
        super().__init__(dim, **parameters)
        self.n_arms = integer("n_arms", n_arms, at_least=1)

    def select(self, context: ArrayLike) -> Decision:
        """Choose an arm for ``context``.

        Parameters
        ----------
        context : array_like of shape (d,)
            Finite entries in [−1, 1].

        Raises
        ------
        ValueError
            If the context is not such a vector, or the horizon is used up. The policy's state is as it was.
        """
        return super().select(context)

    @abstractmethod
    def _score(self, context: Array) -> Array:
        """The quantity to maximise, of shape (K,), for a context that has been checked."""

    @abstractmethod
    def _learn_arm(self, index: int, context: Array, reward: float) -> None:
        """Take in one checked reward of arm ``index``."""

    def _learn(self, kept: Array, reward: float) -> None:
        self._learn_arm(int(kept[-1]), kept[:-1], reward)

    def _chosen(self, context: Array, index: int) -> Array:
        return context.copy()

    def _kept(self, decision: Decision) -> Array:
        return np.append(decision.arm, decision.index)

    def _checked_arms(self, context: ArrayLike) -> Array:
        X = np.asarray(context, dtype=np.float64)
        if X.shape != (self.dim,):
            raise ValueError(f"context must have shape ({self.dim},), got shape {X.shape}")
        if not (np.abs(X) <= 1.0).all():  # also false for NaN
            worst = X[~(np.abs(X) <= 1.0)][0]
            raise ValueError(f"context must have finite entries in [-1, 1], got {worst:g}")
        return X

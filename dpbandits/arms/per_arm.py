"""Policies whose arms have parameters of their own: one context per round, K arms that stay.

The reward of arm k in a round with context X has mean μ(Xᵀθ_k). ``select`` is given the context, and the decision's
index is the arm. All the rest is as for every policy.

>>> import numpy as np
>>> class First(PerArm):
...     def _score(self, context):
...         return np.array([1.0, 0.0, 0.0])
...     def _learn(self, pending, reward):
...         print(f"arm {pending.index} gave {reward} in context {pending.arm.tolist()}")
>>> policy = First(dim=2)
>>> decision = policy.select([0.5, -1.0])           # context: (d,), entries in [-1, 1]
>>> policy.update(decision, reward=1.0)
arm 0 gave 1.0 in context [0.5, -1.0]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from accounting.arrays import Array
from dpbandits.policy.protocol import Decision, Policy, real_array
from dpkit.states.entries import conform

__all__ = ["PerArm"]


class PerArm(Policy):
    """What differs where a policy takes one context per round; a policy derives from this and from its other base."""

    takes: ClassVar[Literal["arms", "context"]] = "context"
    n_arms: int

    def select(self, context: ArrayLike, person: str | bytes | int | None = None) -> Decision:
        """Choose an arm for ``context``.

        Parameters
        ----------
        context : array_like of shape (d,)
            Finite entries in [−1, 1].
        person : str, bytes or int, optional
            Whose round it is; see :meth:`dpbandits.Policy.select`, also for errors.
        """
        return super().select(context, person)

    def register(
        self,
        context: ArrayLike,
        index: int,
        person: str | bytes | int | None = None,
        *,
        probability: float | None = None,
        release: int | None = None,
    ) -> Decision:
        """Write down a choice that was made elsewhere; see :meth:`dpbandits.Policy.register`."""
        return super().register(context, index, person, probability=probability, release=release)

    def _chosen(self, context: Array, index: int) -> Array:
        # NaN, too, if the caller's array was changed meanwhile
        chosen: Array = np.nan_to_num(np.clip(context, -1.0, 1.0))
        chosen.setflags(write=False)
        return chosen

    def _checked_arms(self, context: ArrayLike) -> Array:
        X = real_array("context", context)
        if X.shape != (self.dim,):
            raise ValueError(f"context must have shape ({self.dim},), got shape {X.shape}")
        if not (np.abs(X) <= 1.0).all():  # also false for NaN
            worst = X[~(np.abs(X) <= 1.0)][0]
            raise ValueError(f"context must have finite entries in [-1, 1], got {worst:g}")
        return X

    @staticmethod
    def _length(arms: Array) -> Array:
        return np.asarray(np.abs(arms).max(axis=-1))

    @classmethod
    def _elements(cls, config: Mapping[str, Any]) -> int:
        return int(conform("dim", config["dim"], 0))

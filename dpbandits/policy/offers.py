"""What is offered in a round: rows of arms, or one context for arms that have parameters of their own.

A policy says by its class attribute ``offer`` what it takes:

* :data:`ROWS`: an array of arms, rows of Euclidean norm at most 1; the index of a decision is a row;
* :data:`CUBE`: one context X with entries in [−1, 1]; the index k of a decision is an arm, of mean reward μ(Xᵀθ_k);
* :data:`BALL`: one context of Euclidean norm at most 1, for arms of a ``catalogue``;
* :class:`PublicArms`: rows of an array that is public and stands;
* :data:`NOTHING`: nothing (``select()``), for arms of a ``catalogue`` of which no more is known than their names.

>>> import numpy as np
>>> from dpbandits import Policy
>>> class First(Policy):
...     offer = CUBE
...     n_arms = 3
...     def score(self, context):
...         return np.array([1.0, 0.0, 0.0])
...     def learn(self, pending, reward):
...         print(f"arm {pending.index} gave {reward} in context {pending.arm.tolist()}")
>>> policy = First(dim=2)
>>> decision = policy.select([0.5, -1.0])
>>> policy.update(decision, reward=1.0)
arm 0 gave 1.0 in context [0.5, -1.0]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.arrays import Array
from dpbandits.policy.checks import (
    NORM_TOLERANCE,
    length_text,
    real_array,
    unit_picks,
    unit_row,
    unit_rows,
    unit_stack,
)
from dpkit.states.entries import conform

__all__ = ["BALL", "CUBE", "NOTHING", "ROWS", "Offer", "PublicArms"]

# public arms are the same if no entry differs by more
_SAME = 1e-6
# of a norm, by rounding in float64
_LAST_DIGITS = 1e-9


class Offer(Protocol):
    """What ``select`` is given, how it is checked, and what is kept of it."""

    takes: Literal["arms", "context"]

    def checked(self, offered: ArrayLike | None, dim: int) -> Array:
        """What was given, as an array, if it is what a round may offer.

        Raises
        ------
        ValueError
            If it is not.
        """

    def chosen(self, offered: Array, index: int) -> Array:
        """What is kept of a choice: a read-only copy within the bounds, whatever happens to the caller's array."""

    def checked_many(self, offered: Array, dim: int) -> Array | None:
        """Of many requests, shape (n, K, dim) or (n, dim), checked at once; None where one by one they have to be."""

    def chosen_many(self, offered: Array, picks: NDArray[np.int64]) -> Array | Sequence[Array] | None:
        """What is kept of choices among offers of one shape, all at once; None where it has to be one by one."""

    def length(self, arms: Array) -> Array:
        """How long arms (or contexts) are, in the norm in which they must be at most 1."""

    def numbers(self, config: Mapping[str, Any]) -> int:
        """How many numbers a state of a policy with these arguments has at least: no file of another size is read."""


class _Rows:
    takes: Literal["arms", "context"] = "arms"

    def checked(self, offered: ArrayLike | None, dim: int) -> Array:
        return unit_rows(offered, dim)

    def chosen(self, offered: Array, index: int) -> Array:
        return unit_row(offered[index])

    def checked_many(self, offered: Array, dim: int) -> Array | None:
        return unit_stack(offered, dim)

    def chosen_many(self, offered: Array, picks: NDArray[np.int64]) -> Array | Sequence[Array] | None:
        return unit_picks(offered[np.arange(len(picks)), picks])

    def length(self, arms: Array) -> Array:
        return np.asarray(np.sqrt(np.einsum("...j,...j->...", arms, arms)))

    def numbers(self, config: Mapping[str, Any]) -> int:
        return _dim(config) ** 2


class _Cube:
    takes: Literal["arms", "context"] = "context"

    def checked(self, offered: ArrayLike | None, dim: int) -> Array:
        X = _one(offered, dim)
        if not (np.abs(X) <= 1.0).all():  # also false for NaN
            worst = X[~(np.abs(X) <= 1.0)][0]
            raise ValueError(f"context must have finite entries in [-1, 1], got {worst:g}")
        return X

    def chosen(self, offered: Array, index: int) -> Array:
        # NaN, too, if the caller's array was changed meanwhile
        chosen: Array = np.nan_to_num(np.clip(offered, -1.0, 1.0))
        chosen.setflags(write=False)
        return chosen

    def checked_many(self, offered: Array, dim: int) -> Array | None:
        return None

    def chosen_many(self, offered: Array, picks: NDArray[np.int64]) -> Array | Sequence[Array] | None:
        return None

    def length(self, arms: Array) -> Array:
        return np.asarray(np.abs(arms).max(axis=-1))

    def numbers(self, config: Mapping[str, Any]) -> int:
        return _dim(config) * int(conform("n_arms", config.get("n_arms", 1), 0))


class _Ball(_Rows):
    takes: Literal["arms", "context"] = "context"

    def checked(self, offered: ArrayLike | None, dim: int) -> Array:
        z = _one(offered, dim)
        if not np.isfinite(z).all():
            raise ValueError(f"context must be finite, got {z[~np.isfinite(z)][0]}")
        with np.errstate(over="ignore"):  # what is so long is refused
            length = float(np.linalg.norm(z))
        if length > 1.0 + NORM_TOLERANCE:
            raise ValueError(
                f"context must have norm at most 1, got norm {length_text(length)}: scale it by a public number"
            )
        # what passes 1 by the last digits of float64 is scaled back where it is kept, by those of float32 here already
        return z if length <= 1.0 + _LAST_DIGITS else unit_row(z)

    def chosen(self, offered: Array, index: int) -> Array:
        # one whose norm passes 1 by rounding, or that was changed meanwhile, is scaled back
        return unit_row(offered)

    def checked_many(self, offered: Array, dim: int) -> Array | None:
        if offered.ndim != 2 or offered.shape[1] != dim:
            return None
        # also false for NaN
        return offered if (np.einsum("nd,nd->n", offered, offered) <= 1.0 + _LAST_DIGITS).all() else None

    def chosen_many(self, offered: Array, picks: NDArray[np.int64]) -> Array | Sequence[Array] | None:
        return unit_picks(offered.copy())

    def numbers(self, config: Mapping[str, Any]) -> int:
        return _dim(config) * len(config.get("arms", [""]))


class _Nothing(_Cube):
    # as a context whose one entry is 0

    def checked(self, offered: ArrayLike | None, dim: int) -> Array:
        if offered is None:
            return _NONE
        # so that it can be played where others are given contexts: what would be wrong for them is wrong here
        z = real_array("context", offered)
        if z.ndim != 1 or not np.isfinite(z).all():
            raise ValueError(f"context must be one finite row, or not given, got an array of shape {z.shape}")
        return _NONE

    def chosen(self, offered: Array, index: int) -> Array:
        return _NONE

    def chosen_many(self, offered: Array, picks: NDArray[np.int64]) -> Array | Sequence[Array] | None:
        return np.broadcast_to(_NONE, (len(picks), 1))

    def numbers(self, config: Mapping[str, Any]) -> int:
        arms = config["arms"]
        return arms if isinstance(arms, int) else len(arms)


# what is kept of a choice among arms that are no vectors
_NONE: Array = np.zeros(1)
_NONE.setflags(write=False)


class PublicArms(_Rows):
    """The rows of an array, found again in O(d), or in O(Kd) where a row differs in its last digits.

    Examples
    --------
    >>> PublicArms(np.eye(3)).which(np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 1e-12]]))
    [2, 0]
    """

    def __init__(self, rows: Array) -> None:
        self.rows = rows
        # of two arms that are the same, the first
        self._numbers = {row.tobytes(): k for k, row in reversed(list(enumerate(rows)))}

    @classmethod
    def of(cls, arms: ArrayLike, dim: int) -> PublicArms:
        """Of a copy of an array of arms that a round may offer."""
        rows = np.array(unit_rows(arms, dim))
        rows.setflags(write=False)
        return cls(rows)

    def checked(self, offered: ArrayLike | None, dim: int) -> Array:
        if offered is None or offered is self.rows:
            return self.rows
        return self.rows[self.which(super().checked(offered, dim))]

    def checked_many(self, offered: Array, dim: int) -> Array | None:
        return None

    def which(self, offered: Array) -> list[int]:
        """The number of each row that is offered.

        Raises
        ------
        ValueError
            If a row is none of the arms.
        """
        data, size = offered.tobytes(), offered.itemsize * offered.shape[1]
        found = [self._numbers.get(data[start : start + size]) for start in range(0, len(data), size)]
        return [self._which(offered[i], i) if one is None else one for i, one in enumerate(found)]

    def _which(self, row: Array, number: int) -> int:
        """The arm of a row that differs from it in its last digits."""
        apart = np.abs(self.rows - row).max(axis=1)
        found = int(apart.argmin())
        if apart[found] > _SAME:
            raise ValueError(
                f"arms must be among the {len(self.rows)} that the policy was made with, got row {number}, which "
                "is none of them: StandingPrivateGLM is for fixed arms, OnePassPrivateGLM for arms that change"
            )
        return found


def _dim(config: Mapping[str, Any]) -> int:
    return int(conform("dim", config["dim"], 0))


def _one(context: ArrayLike | None, dim: int) -> Array:
    found = real_array("context", context)
    if found.shape != (dim,):
        raise ValueError(f"context must have shape ({dim},), got shape {found.shape}")
    return found


ROWS: Offer = _Rows()
CUBE: Offer = _Cube()
BALL: Offer = _Ball()
NOTHING: Offer = _Nothing()

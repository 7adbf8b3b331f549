"""Does a model of a log agree with the log? Three policies are valued by it, and corrected by what was seen.

A uniform choice, the item that is best for all, and whatever the model likes best for the visitor: for each of them, on
rows that its model was not fitted to,

    by the model:   the mean of Σ_a π(a)·q(a)
    by the log:     that, and Σw·(r − q(chosen))/Σw,    w = π/p,

the second a doubly robust estimate with self-normalised weights. Their difference is what the log says against the
model, and its standard error that of the correction alone: a much sharper test than two estimates side by side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array
from dpbandits.lab.evaluate.estimate import summed
from dpbandits.lab.evaluate.reward_model import means

__all__ = ["Agreement", "CrossFitted"]

# rows whose items are valued at a time
_NUMBERS = 2**21
# effective rows, (Σw)²/Σw², below which a standard error is none
_WORTH = 30.0


@dataclass(frozen=True)
class Agreement:
    """What one policy earns per round by the model, and by the log.

    Attributes
    ----------
    policy : str
    model, log : float
    error : float
        Standard error of their difference; infinite where fewer than 30 rows, or what they are worth, say anything.
    """

    policy: str
    model: float
    log: float
    error: float

    @property
    def errors(self) -> float:
        """By how many standard errors they differ."""
        return (
            abs(self.model - self.log) / self.error if self.error > 0 else 0.0 if self.model == self.log else math.inf
        )

    def __str__(self) -> str:
        return f"{self.policy}: {self.model:.4f} by the model, {self.log:.4f} ± {self.error:.4f} by the log"


class CrossFitted:
    """Collects, fold by fold, what the models of other folds say of rows; then compares.

    Parameters
    ----------
    rewards, probabilities : ndarray of shape (n,)
    chosen : ndarray of shape (n,)
    offered : ndarray of shape (K,)
        The law by which an item is drawn where nothing is known; uniform, where all items were always there.
    persons : sequence or None
    """

    def __init__(
        self,
        rewards: Array,
        probabilities: Array,
        chosen: NDArray[np.int64],
        offered: Array,
        persons: Sequence[Any] | None,
    ) -> None:
        self.rewards, self.probabilities, self.chosen = rewards, probabilities, chosen
        self.offered, self.persons = offered, persons
        n = len(rewards)
        self.means = np.zeros(n)
        self._model, self._weights = np.zeros((3, n)), np.zeros((3, n))

    def add(self, test: NDArray[np.int64], best: int, described: Array, coefficients: Array) -> None:
        """Rows of one fold.

        Parameters
        ----------
        test : ndarray of int
            Which rows.
        best : int
            The item that is best for all by the model of the other folds.
        described : ndarray of shape (n, p)
            All rows, as that model takes them.
        coefficients : ndarray of shape (K, p)
            Of that model.
        """
        size = max(1, _NUMBERS // len(self.offered))
        for start in range(0, len(test), size):
            rows = test[start : start + size]
            q, own, picked = means(described[rows], coefficients), np.arange(len(rows)), self.chosen[rows]
            liked = q.argmax(axis=1)
            self.means[rows] = q[own, picked]
            self._model[:, rows] = q @ self.offered, q[:, best], q[own, liked]
            self._weights[:, rows] = self.offered[picked], picked == best, picked == liked

    def deviance(self) -> float:
        """How unlikely the rewards are by the models of other folds: minus the sum of r·ln q + (1 − r)·ln(1 − q)."""
        r, q = self.rewards, self.means
        return float(-(r * np.log(q) + (1 - r) * np.log1p(-q)).sum())

    def agreements(self) -> tuple[Agreement, ...]:
        """The three comparisons."""
        names = ("a random item", "the best item for all", "the model's choice")
        left, found = self.rewards - self.means, []
        for name, model, pi in zip(names, self._model, self._weights, strict=True):
            w, value = pi / self.probabilities, float(model.mean())
            if w.sum() ** 2 < _WORTH * (w**2).sum():
                found.append(Agreement(name, value, value, math.inf))
                continue
            off = float((w * left).sum() / w.sum())
            terms = off + w * (left - off) * (len(w) / w.sum())
            found.append(Agreement(name, value, value + off, summed("", terms, w, off, self.persons).std_error))
        return tuple(found)

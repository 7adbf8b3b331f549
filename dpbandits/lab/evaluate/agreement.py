"""Does a model of a log agree with the log? Three policies are valued by it, and corrected by what was seen.

A random item, the item that is best for all, and whatever the model likes best for the visitor (of many items, of which
a round offers one in s, any of the s best, since single ones have few rows): for each of them, on rows that its model
was not fitted to,

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
from dpbandits.lab.evaluate.support import Support, supported

__all__ = ["Agreement", "CrossFitted", "liked"]

# rows whose items are valued at a time
_NUMBERS = 2**21
# effective rows, (Σw)²/Σw², below which a standard error is none
_WORTH = 30.0
# of a policy, that a log may lack: items come and go
_UNHELD = 0.2


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
    some : int
        s, how many of the best items are taken together.
    persons : sequence or None
    """

    def __init__(
        self,
        rewards: Array,
        probabilities: Array,
        chosen: NDArray[np.int64],
        offered: Array,
        some: int,
        persons: Sequence[Any] | None,
    ) -> None:
        self.rewards, self.probabilities, self.chosen = rewards, probabilities, chosen
        self.offered, self.some, self.persons = offered, some, persons
        n = len(rewards)
        self.means = np.zeros(n)
        self._model, self._weights = np.zeros((3, n)), np.zeros((3, n))

    def add(self, train: NDArray[np.int64], test: NDArray[np.int64], described: Array, coefficients: Array) -> None:
        """Rows of one fold.

        Parameters
        ----------
        train : ndarray of int
            Some rows of the other folds, by which it is seen what is best for all.
        test : ndarray of int
            The rows of this one.
        described : ndarray of shape (n, p)
            All rows, as that model takes them.
        coefficients : ndarray of shape (K, p)
            Of that model.
        """
        size = max(1, _NUMBERS // len(self.offered))
        best = liked(means(described[train], coefficients).mean(axis=0)[None], self.some)[0]
        for start in range(0, len(test), size):
            rows = test[start : start + size]
            q, own, picked = means(described[rows], coefficients), np.arange(len(rows)), self.chosen[rows]
            mine = liked(q, self.some)
            self.means[rows] = q[own, picked]
            best_of_all = q[:, best].mean(axis=1)
            self._model[:, rows] = q @ self.offered, best_of_all, np.take_along_axis(q, mine, axis=1).mean(axis=1)
            taken = [(among == picked[:, None]).any(axis=1) / self.some for among in (best[None], mine)]
            self._weights[:, rows] = self.offered[picked], *taken

    def deviance(self) -> float:
        """How unlikely the rewards are by the models of other folds: minus the sum of r·ln q + (1 − r)·ln(1 − q)."""
        r, q = self.rewards, self.means
        return float(-(r * np.log(q) + (1 - r) * np.log1p(-q)).sum())

    def unheld(self) -> tuple[str, Support] | None:
        """The first of the three policies of which the log lacks a fifth, where every item was always there."""
        for name, pi in zip(self._names(), self._weights, strict=True):
            support = supported(self.probabilities, pi, pi / self.probabilities, self.persons)
            if support.verdict != "held" and abs(1.0 - support.share) > _UNHELD:
                return name, support
        return None

    def _names(self) -> list[str]:
        if self.some > 1:
            return ["a random item", f"the best {self.some} items for all", f"the model's best {self.some} items"]
        return ["a random item", "the best item for all", "the model's choice"]

    def agreements(self) -> tuple[Agreement, ...]:
        """The three comparisons."""
        left, found = self.rewards - self.means, []
        for name, model, pi in zip(self._names(), self._model, self._weights, strict=True):
            w, value = pi / self.probabilities, float(model.mean())
            worth = float(w.sum() ** 2 / (w**2).sum()) if w.any() else 0.0
            if worth < _WORTH:
                found.append(Agreement(name, value, value, math.inf))
                continue
            off = float((w * left).sum() / w.sum())
            terms = off + w * (left - off) * (len(w) / w.sum())
            # where no reward was seen at all, or every one, there may still be one in so many rows
            error = max(summed("", terms, w, off, self.persons).std_error, 1 / worth)
            found.append(Agreement(name, value, value + off, error))
        return tuple(found)


def liked(q: Array, some: int) -> NDArray[np.int64]:
    """The ``some`` items with the largest means in every row, of shape (n, some)."""
    if some == 1:
        return np.asarray(q.argmax(axis=1))[:, None]
    return np.asarray(np.argpartition(-q, some - 1, axis=1)[:, :some])

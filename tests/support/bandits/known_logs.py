"""Logs of choices whose truth is known, and the worlds that they come from.

Visitors x are uniform in a ball of R^m, and item k pays 1 with probability 1/(1 + exp(−a_k − xᵀθ_k − c_k(t))), t the
share of the log that is over. What differs is how the log's policy chose:

* confounded: mostly what the visitor likes best, so that the rows of an item are those of people who like it;
* weakly covered: one favourite of each visitor's segment in 19 rounds of 20, in the other an item by chance;
* drifting: as confounded, but milder, and c_k is a wave of its own for every item.
"""

from __future__ import annotations

import math

import numpy as np

from dpbandits.lab.environments.arms import arm_blocks, blocks_of, with_constant
from dpbandits.lab.environments.base import Named, Round
from dpbandits.lab.evaluate import Log

__all__ = ["KINDS", "KnownWorld"]

KINDS = ("confounded", "weakly covered", "drifting")


class KnownWorld(Named):
    """A world to be played, and :meth:`log`, a log that some policy made in it.

    Parameters
    ----------
    kind : one of ``KINDS``
    features : bool
        Whether policies, and the log, have the visitor's features; else those of the visitors stay hidden.
    explored : float
        Of "weakly covered": the share of rounds in which an item is chosen by chance.
    """

    def __init__(
        self, kind: str, *, items: int = 6, dim: int = 2, rounds: int = 20_000, features: bool = True, seed: int = 0,
        explored: float = 0.05,
    ) -> None:  # fmt: skip
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {KINDS}, got {kind!r}")
        own = np.random.default_rng(seed)
        self.kind, self.n_arms, self.m, self.explored = kind, items, dim, explored
        self.level = own.normal(-1.5, 0.5, items)
        slopes = own.normal(0.0, 1.0, (items, dim))
        self.slopes = 2.5 * slopes / np.linalg.norm(slopes, axis=1, keepdims=True)
        self.phase = own.uniform(0, 2 * math.pi, items)
        self.features = features
        if features:
            self.context_dim = dim
        super().__init__(kind, items * (dim + 1) if features else items, "logistic", 5.0, rounds=rounds)

    def visitors(self, rng: np.random.Generator, rows: int):
        found = [next(arm_blocks("ball", rng, 1, self.m))[:, 0]]
        while sum(map(len, found)) < rows:
            found.append(next(arm_blocks("ball", rng, 1, self.m))[:, 0])
        return np.concatenate(found)[:rows]

    def scores(self, x, share):
        """Of every item, of shape (n, K): the logits of the truth."""
        scores = self.level + x @ self.slopes.T
        if self.kind == "drifting":
            scores = scores + 1.2 * np.sin(2 * math.pi * np.asarray(share)[:, None] + self.phase)
        return scores

    def means(self, x, share):
        return 1 / (1 + np.exp(-self.scores(x, share)))

    def law(self, x, share):
        """The probability with which the log's policy chooses each item, of shape (n, K)."""
        n, K = len(x), self.n_arms
        if self.kind == "weakly covered":
            segment = (np.arctan2(x[:, -1], x[:, 0]) // (2 * math.pi / 3)).astype(int) % 3
            favourite = np.eye(K)[segment % K]
            return (1 - self.explored) * favourite + self.explored / K
        weights = np.exp((1.5 if self.kind == "confounded" else 0.7) * self.scores(x, np.zeros(n)))
        return 0.1 / K + 0.9 * weights / weights.sum(axis=1, keepdims=True)

    def log(self, rng: np.random.Generator, rows: int | None = None) -> Log:
        n = self.rounds if rows is None else rows
        share = (np.arange(n) + 0.5) / n
        x = self.visitors(rng, n)
        law, means = self.law(x, share), self.means(x, share)
        chosen = (rng.random((n, 1)) > np.cumsum(law, axis=1)).sum(axis=1).clip(max=self.n_arms - 1)
        own = np.arange(n)
        rewards = (rng.random(n) < means[own, chosen]).astype(float)
        X = x if self.features else None
        return Log.of(rewards, law[own, chosen], chosen, features=X, arms=range(self.n_arms))

    def episode(self, rng: np.random.Generator):
        n = self.rounds
        share = (np.arange(n) + 0.5) / n
        x = self.visitors(rng, n)
        means = self.means(x, share)
        rewards = (rng.random((n, 1)) < means).astype(float)
        for start in range(0, n, 256):
            rows = slice(start, start + 256)
            if self.features:
                z = x[rows]
                yield from map(Round, blocks_of(with_constant(z), self.n_arms), rewards[rows], means[rows], z)
            else:
                for told, mean in zip(rewards[rows], means[rows], strict=True):
                    yield Round(np.eye(self.n_arms), told, mean)

"""One set of runs that audits every round of a policy with noisy sums, and shows what half the noise would show.

Audited one by one, each round that may differ takes two sets of runs of its own, and a version with too little noise
two more. Here each round of each run is one of two, by a coin of its own, and all combinations of coins are played as
often. The encoded sums are C·x + σζ around a mean that depends on the coins alone, and that runs without noise show.
For each round the runs with a 0 and those with a 1 are runs of neighbours, as the coins of the other rounds are data
that both have. The score is the exact log-likelihood ratio, given those; of sound noise it has the same law whatever
they are, so its hits are binomial, and all bounds hold as they do for two sets of runs.

With half the noise the same run would have released the mean plus half of the distance from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import white_box

from accounting import Budget, audit
from dpkit.continual import ContinualSum

# a sound mechanism is flagged with probability at most this for each round
CONFIDENCE = 1 - 1e-9


def released_by(monkeypatch, kind: type[ContinualSum]) -> list[np.ndarray]:
    """A list to which all that sums of this kind release is added from now on."""
    collected: list[np.ndarray] = []
    original = kind.add

    def add(self, x):
        collected.append(original(self, x))
        return collected[-1]

    monkeypatch.setattr(kind, "add", add)
    return collected


class Tossed:
    """Runs of a policy, which is left without noise.

    Parameters
    ----------
    play : callable
        ``play(coins)`` is a run in which the rounds show what their coins say; the released sums, a row for each.
    sums : ContinualSum
        That of the policy.
    factor : array of shape (n, n)
        Its encoder C, for n releases.
    rounds : int
        How many have a coin.
    trials : int
        At least so many for either side of each coin.
    """

    def __init__(
        self, play: Callable[[Sequence[int]], np.ndarray], sums, factor: np.ndarray, rounds: int, trials: int
    ) -> None:
        combinations = list(product((0, 1), repeat=rounds))
        again = -(-2 * trials // len(combinations))
        decode = factor @ np.linalg.inv(np.tril(np.ones(factor.shape)))
        seen = decode @ np.array([play(coins) for coins in again * combinations])
        law = sums._law
        self.std = law.std
        law.draw = lambda rng, *shape: np.zeros(shape, law.dtype)
        means = decode @ np.array([play(coins) for coins in combinations])
        self._coins = np.array(combinations)
        # by combination and run
        self._noise = np.moveaxis(seen.reshape(again, *means.shape), 0, 1) - means[:, None]
        self._means = means

    def _shifts(self, changed: int) -> np.ndarray:
        """From each combination's mean to that of its neighbour with the other coin in that round, from 0 to 1."""
        other = self._coins.copy()
        other[:, changed] ^= 1
        neighbours = self._means[other @ (1 << np.arange(other.shape[1])[::-1])]
        return (neighbours - self._means) * (1 - 2 * self._coins[:, changed])[:, None, None]

    def distance(self, changed: int) -> float:
        """How far apart the runs of that round are at most, in standard deviations of the noise."""
        return float(np.sqrt((self._shifts(changed) ** 2).sum(axis=(1, 2)).max()) / self.std)

    def lower_bound(self, changed: int, budget: Budget, noise: float = 1.0) -> audit.LowerBound:
        """What the runs show of that round; or would, with so much of the noise."""
        shifts, ones = self._shifts(changed), self._coins[:, changed] == 1
        middle = self._means + np.where(ones, -0.5, 0.5)[:, None, None] * shifts
        seen = self._means[:, None] + noise * self._noise
        ratio = np.einsum("cnjk,cjk->cn", middle[:, None] - seen, shifts)  # of 0 to 1, up to a positive factor
        sides = [ratio[ones == one].T.ravel() for one in (False, True)]
        return white_box.lower_bound(
            lambda coin, trials: sides[coin],
            0,
            1,
            trials=len(sides[0]),
            delta=budget.delta,
            confidence=CONFIDENCE,
            score=lambda ratios: ratios,
        )

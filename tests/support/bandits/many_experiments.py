"""Many experiments at once, batch by batch: which arm releases next may depend on all that was released before."""

from __future__ import annotations

import numpy as np

from accounting import Laplace
from dpbandits.experiment.batches import batch_ends
from dpbandits.experiment.sequences import Evidence, Sequences
from dpkit.moments.trial_batches import STEPS
from dpkit.samplers.rounded import rounded_laplace


def sequences(epsilon: float, horizon: int, arms: int, balanced: bool) -> tuple[Sequences, np.ndarray]:
    """The sequences of an experiment at this ε, and the ends of its batches."""
    noise = np.sqrt(2.0) / epsilon
    ends = np.array(batch_ends(horizon, arms, noise))
    return Sequences(Laplace(1.0), STEPS / epsilon, STEPS, horizon, balanced), ends


class Worlds:
    """R experiments with K arms, as what was released of them: ``evidence`` of shape (R, K).

    Values of a batch have the arm's mean and one of four laws: 0 and 1; 0 and twice the mean, or its mirror image; the
    mean itself. Which, may depend on what was released.
    """

    def __init__(self, runs: int, means, epsilon: float, ends: np.ndarray, seed: int) -> None:
        self.means, self.ends, self.epsilon = np.asarray(means), ends, epsilon
        self.rng = np.random.default_rng(seed)
        shape = runs, len(self.means)
        self.evidence = Evidence(np.zeros(shape), np.zeros(shape), np.zeros(shape))

    def release(self, arms: np.ndarray, laws: np.ndarray) -> None:
        """One more batch of an arm of each run; of runs whose arm has none left nothing."""
        rows = np.arange(len(arms))
        known = self.evidence
        j = known.releases[rows, arms].astype(int)
        going = j < len(self.ends)
        j = np.minimum(j, len(self.ends) - 1)
        n = np.diff(self.ends, prepend=0)[j]
        mu = self.means[arms]
        wide = np.where(mu <= 0.5, 2.0 * mu, 2.0 * mu - 1.0)
        binary = self.rng.binomial(n, mu)
        twice = np.where(mu <= 0.5, wide * self.rng.binomial(n, 0.5), n * wide + (1 - wide) * self.rng.binomial(n, 0.5))
        values = np.choose(laws, [binary, twice, n * mu])
        noise = rounded_laplace(STEPS / self.epsilon, len(arms), rng=self.rng) / STEPS
        known.total[rows, arms] += np.where(going, values + noise, 0.0)
        known.count[rows, arms] += np.where(going, n, 0)
        known.releases[rows, arms] += going


def adversary(worlds: Worlds) -> tuple[np.ndarray, np.ndarray]:
    """Mostly the arm that looks worst, and values that spread where the arm has been lucky."""
    runs, K = worlds.evidence.total.shape
    untried = worlds.evidence.releases == 0
    guess = np.where(untried, -1.0, worlds.evidence.total / np.maximum(worlds.evidence.count, 1.0))
    arms = np.where(worlds.rng.random(runs) < 0.7, guess.argmin(axis=1), worlds.rng.integers(K, size=runs))
    lucky = (guess > worlds.means)[np.arange(runs), arms]
    return arms, np.where(lucky, 0, worlds.rng.integers(3, size=runs))


def in_turn(worlds: Worlds) -> tuple[np.ndarray, np.ndarray]:
    """A fixed split of values 0 and 1."""
    runs = len(worlds.evidence.total)
    return worlds.evidence.releases.argmin(axis=1), np.zeros(runs, dtype=int)

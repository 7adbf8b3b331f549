"""A world made of a log of choices: what was chosen, what came of it, and a model of what else might have.

A log with one chosen item per row tells nothing of the items that were not chosen; so a policy that learns cannot be
replayed on it without a model. Here every row is *a thing that might be offered*, described by its features, and

* its mean reward q is that of a ridge regression on the features plus an effect of its item (the mean residual of the
  item's other rows, drawn to 0), cross-fitted: no row, and no row of the same person, is in the fit of its own fold;
* a round is a row of the log, in an order drawn by the seed, with its person; offered are the row and ``offered`` − 1
  others of the log, drawn by the seed with weights 1/probability, so that what the log's policy preferred is not
  offered more often;
* rewards are drawn around q: 0 or 1 where the log's are, else q plus a residual of the log.

The answer is as good as q. It is for planning, such as for :func:`dpbandits.price_of_privacy`; to value one fixed
policy use ``dpbandits.lab.evaluate``, which corrects its model by what was seen.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from accounting.arrays import Array
from accounting.checks import integer, positive
from dpbandits.lab.environments.arms import with_constant, within
from dpbandits.lab.environments.base import Named, Round
from dpbandits.lab.evaluate.logs import Log
from dpbandits.lab.tables import finite_range

__all__ = ["ChosenLog"]

_FOLDS = 5
# rows of zeros that an item's effect, and the regression, are fitted with
_ITEM_RIDGE, _RIDGE = 10.0, 1.0
# without features every item is a direction
_MOST_ITEMS = 200
# rows whose slates are drawn at a time
_BLOCK = 512


class ChosenLog(Named):
    """Rounds simulated on a cross-fitted model of a log of choices.

    Parameters
    ----------
    log : dpbandits.lab.evaluate.Log
        With features that describe what was chosen; without features every item is an arm with a direction of its own,
        for at most 200 items.
    offered : int
        K, the number of arms in a round.
    feature_bound : float
        The public length to which a row of features is allowed; longer ones are scaled to it.
    reward_range : (float, float)
        Of the rewards; by default [0, 1]. Policies are told of [0, 1], to which it is mapped.
    theta_bound : float
        S, the bound on ‖θ‖ that policies are told.

    Attributes
    ----------
    means : ndarray of shape (n,)
        q of every row, on the scale of [0, 1].

    Raises
    ------
    ValueError
        For a parameter out of range, a reward outside ``reward_range``, fewer than two items, or too many without
        features.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> items = rng.integers(3, size=3000)
    >>> clicks = (rng.random(3000) < np.array([0.1, 0.5, 0.9])[items]).astype(float)
    >>> world = ChosenLog(Log.of(clicks, np.full(3000, 1 / 3), items))
    >>> [round(float(world.means[items == item].mean()), 1) for item in range(3)]
    [0.1, 0.5, 0.9]
    """

    rounds: int

    def __init__(
        self,
        log: Log,
        *,
        offered: int = 10,
        feature_bound: float = 1.0,
        reward_range: tuple[float, float] = (0.0, 1.0),
        theta_bound: float = 5.0,
    ) -> None:
        if not isinstance(log, Log):
            raise TypeError(f"log must be a dpbandits.lab.evaluate.Log, got a {type(log).__name__}")
        low, high = finite_range("reward_range", reward_range)
        outside = np.flatnonzero((log.rewards < low) | (log.rewards > high))
        if len(outside):
            raise ValueError(
                f"rewards must lie in reward_range=({low:g}, {high:g}), got {log.rewards[outside[0]]:g} in row "
                f"{outside[0]}: state the range (reward_range=, --reward-range)"
            )
        K = integer("offered", offered, at_least=2)
        bound = positive("feature_bound", feature_bound)
        items = len(np.unique(log.chosen))
        if items < 2:
            raise ValueError(f"log must hold choices of at least two items, got {items}")
        if log.features is None and len(log.arms) > _MOST_ITEMS:
            raise ValueError(
                f"features must be given for a log of more than {_MOST_ITEMS} items, got {len(log.arms):,} items and "
                "none: name the columns that describe what was chosen (features=, --feature)"
            )
        self.log, self.offered = log, K
        if log.features is None:
            self._vectors = np.eye(len(log.arms))[log.chosen]
        else:
            self._vectors = with_constant(within(log.features, bound))
        dim, rounds = self._vectors.shape[1], len(log.rewards)
        name = f"model of a log of {rounds:,} choices among {items:,} items"
        super().__init__(name, dim, "logistic", positive("theta_bound", theta_bound), rounds=rounds)
        rewards = (log.rewards - low) / (high - low)
        self._binary = bool(np.isin(rewards, (0.0, 1.0)).all())
        self.means = _cross_fitted(log, self._vectors, rewards)
        self._residuals = rewards - self.means
        # the inverse of a probability, but for those that nearly nothing is known of
        weights = 1.0 / np.maximum(log.probabilities, 0.1 * float(np.median(log.probabilities)))
        self._cumulative = np.cumsum(weights / weights.sum())

    def episode(self, rng: np.random.Generator) -> Iterator[Round]:
        """Every row of the log once, with others beside it."""
        n, persons = len(self.means), self.log.persons
        order = rng.permutation(n)
        for start in range(0, n, _BLOCK):
            rows = order[start : start + _BLOCK]
            drawn = np.searchsorted(self._cumulative, rng.random((len(rows), self.offered - 1)))
            slates = np.column_stack([rows, np.minimum(drawn, n - 1)])
            means = self.means[slates]
            if self._binary:
                rewards = (rng.random(means.shape) < means).astype(np.float64)
            else:
                errors = self._residuals[rng.integers(n, size=means.shape)]
                rewards = np.clip(means + errors, 0.0, 1.0)
            for row, slate, told, mean in zip(rows.tolist(), slates, rewards, means, strict=True):
                yield Round(self._vectors[slate], told, mean, person=None if persons is None else persons[row])


def _cross_fitted(log: Log, X: Array, rewards: Array) -> Array:
    """q of every row's own item, from the rows of other folds, in [0, 1]."""
    n, d = X.shape
    groups = np.arange(n) if log.persons is None else np.unique(np.asarray(log.persons), return_inverse=True)[1]
    # people (or rows) are dealt out at random, by a fixed deal: logs are often sorted
    fold = (np.random.default_rng(0).permutation(int(groups.max()) + 1) % _FOLDS)[groups]
    found = np.zeros(n)
    for f in range(_FOLDS):
        train, test = fold != f, fold == f
        mean = float(rewards[train].mean()) if train.any() else float(rewards.mean())
        A = X[train]
        beta = np.linalg.solve(A.T @ A + _RIDGE * np.eye(d), A.T @ (rewards[train] - mean))
        residuals = rewards[train] - mean - A @ beta
        size = len(log.arms)
        sums, counts = (np.bincount(log.chosen[train], w, minlength=size) for w in (residuals, None))
        found[test] = mean + X[test] @ beta + (sums / (counts + _ITEM_RIDGE))[log.chosen[test]]
    return np.asarray(np.clip(found, 0.0, 1.0))

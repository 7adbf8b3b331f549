"""A world made of a log of choices: a visitor comes, and a model says what every item would have paid.

A log with one chosen item per row tells nothing of the items that were not chosen; so a policy that learns cannot be
replayed on it without a model. Here

* a round is a row of the log, with its visitor and person: in the order of the log where something drifts, else in an
  order drawn by the seed;
* columns of the visitor and of the item are told apart (:mod:`dpbandits.lab.evaluate.columns`). With the visitor's
  alone every item has a parameter of its own; with the item's alone they are its vector; with both their products are;
  with neither an item is a name;
* what an item pays is a hierarchical model, corrected by the log's probabilities
  (:mod:`dpbandits.lab.evaluate.reward_model`). Every seed plays a draw from its posterior: items of a posterior's mean
  are more alike than in truth, and a draw for each seed makes ± hold what the log does not know;
* the model is compared with the log on three policies (:mod:`dpbandits.lab.evaluate.agreement`);
* rewards are drawn around the model's means: 0 or 1 where the log's are, else with a residual of the log.

A log is refused, with the reason,

* if more than a tenth of its rows were logged with probability 1;
* if its weights show that it does not hold what those three policies choose (:mod:`dpbandits.lab.evaluate.support`);
* if the model differs from it by more than four standard errors and a tenth of what there is to gain, or if that gain
  is not known to a fifth. Beyond two standard errors it is told.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array
from accounting.checks import integer, positive
from dpbandits.lab.environments.arms import with_constant, within
from dpbandits.lab.environments.base import Named, Round
from dpbandits.lab.evaluate.agreement import CrossFitted, liked
from dpbandits.lab.evaluate.columns import availability, told_apart
from dpbandits.lab.evaluate.logs import Log
from dpbandits.lab.evaluate.reward_model import Described, described, fit, means
from dpbandits.lab.evaluate.support import REMEDY, without_chance
from dpbandits.lab.tables import finite_range
from dpkit.features import PublicScaler

__all__ = ["ChosenLog"]

_FOLDS = 5
# rows that may be longer than the bound, and the share of values cut at either end of a range
_CUT, _TAIL = 0.01, 0.005
# the share of rows that were left no choice, beyond which a log is refused
_SURE = 0.1
# without features every item is a direction; a parameter has so many entries at most
_MOST_ITEMS, _MOST_DIM = 200, 400
# items that are all offered, and how many of more are
_ALL, _SOME = 50, 10
# pieces of time, and how many rows a piece has at least
_PIECES, _PIECE = 8, 500
# by how much rows that a model was not fitted to must be likelier (in nats) with time than without it
_BETTER = 3.0
# rounds that are prepared at a time
_BLOCK = 512
# draws, and rows, by which it is seen how well the gain is known
_DRAWS, _ROWS = 40, 1000


class ChosenLog(Named):
    """Rounds simulated on a model of a log of choices.

    Parameters
    ----------
    log : dpbandits.lab.evaluate.Log
        In the order of time. Without features for at most 200 items.
    offered : int, optional
        K, how many items are offered in a round, drawn by the seed. By default all of up to 50 (without features, of
        200) and 10 of more; but as many as Σ1/p says that there were to choose from, where those were fewer.
    feature_bound : float
        The public length to which a row of features is allowed. Where more than one in a hundred is longer, columns
        are in units of their own: they are centred and scaled by the ranges that they have in the log, as
        :class:`dpkit.features.PublicScaler` does it for a policy by public ones.
    reward_range : (float, float)
        Of the rewards; by default [0, 1]. Policies are told of [0, 1], to which it is mapped.
    theta_bound : float
        S, the bound on ‖θ‖ that policies are told.

    Attributes
    ----------
    means : ndarray of shape (n,)
        What the model expects of every row's own item, on the scale of [0, 1], fitted without the row's fold.
    agreements : tuple of Agreement
        What three policies earn by the model and by the log.
    visitor, item, unused : tuple of str
        Names of columns, by what they describe; unused ones are constant.
    ranges : dict
        By name, the ranges by which columns were scaled.
    drifts : bool
        Whether rounds are played in the order of the log.

    Raises
    ------
    ValueError
        For a parameter out of range, a reward outside ``reward_range``, fewer than two items, or too many without
        features; and where the log cannot support a forecast.

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
    drifts = False

    def __init__(
        self,
        log: Log,
        *,
        offered: int | None = None,
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
        asked = None if offered is None else integer("offered", offered, at_least=2)
        bound = positive("feature_bound", feature_bound)
        seen, chosen = np.unique(log.chosen, return_inverse=True)
        items, n = len(seen), len(chosen)
        if items < 2:
            raise ValueError(f"log must hold choices of at least two items, got {items}")
        if log.features is None and items > _MOST_ITEMS:
            raise ValueError(
                f"features must be given for a log of more than {_MOST_ITEMS} items, got {items:,} items and "
                "none: name the columns that describe what was chosen (features=, --feature)"
            )
        self.log, self._chosen, self._items = log, chosen, items
        columns = told_apart(log, chosen, items)
        self.visitor, self.item, self.unused = (
            tuple(log.columns[j] for j in some) for some in (columns.visitor, columns.item, columns.constant)
        )
        X = np.zeros((n, 0)) if log.features is None else log.features[:, columns.visitor]
        firsts = np.unique(chosen, return_index=True)[1]
        Z = np.zeros((items, 0)) if log.features is None else log.features[firsts][:, columns.item]
        _by_chance(log, items)
        self._share, there = availability(log, chosen, items)
        self._everywhere = there == items
        self.offered = min(items, there, asked or items)
        if asked is None and self.offered > _ALL and log.features is not None:
            self.offered = _SOME
        self._some = max(1, round(items / self.offered))
        self.ranges: dict[str, tuple[float, float]] = {}
        shape = self._vectors(self._within(X, self.visitor, bound), self._within(Z, self.item, bound))
        name = f"model of a log of {n:,} choices among {items:,} items"
        super().__init__(name, shape, "logistic", positive("theta_bound", theta_bound), rounds=n)
        self._fit(X, Z, (log.rewards - low) / (high - low))
        self._supported()

    def _within(self, rows: Array, names: tuple[str, ...], bound: float) -> Array:
        """Rows of length at most 1: as they are, or, where that would cut them, centred and scaled by their ranges."""
        if not names or float((np.linalg.norm(rows, axis=1) > bound).mean()) <= _CUT:
            return within(rows, bound)
        low, high = np.quantile(rows, [_TAIL, 1 - _TAIL], axis=0)
        flat = ~(low < high)  # rarely anything else than one value
        low[flat], high[flat] = rows.min(axis=0)[flat], rows.max(axis=0)[flat]
        self.ranges |= {name: (float(a), float(b)) for name, a, b in zip(names, low, high, strict=True)}
        return PublicScaler(low=low, high=high).transform(rows)

    def _vectors(self, X: Array, Z: Array) -> int:
        """What policies are shown; returns the dimension of an arm."""
        items, every = self._items, self.offered == self._items
        self._x = with_constant(X) if self.visitor else None
        self._z = with_constant(Z) if self.item else np.eye(items)
        self._contexts = None
        if every and not self.item:
            self.n_arms = items
            if self.visitor:
                self._contexts = X
                self.context_dim = X.shape[1]
        dim = int(self._z.shape[1]) * (1 if self._x is None else int(self._x.shape[1]))
        if dim > _MOST_DIM:
            what = "the visitor's and the item's" if self.item else f"the visitor's columns for each of {items:,} items"
            raise ValueError(
                f"features must make at most {_MOST_DIM} products, got {dim:,} of {what}: name fewer columns, or some "
                "that describe the item"
            )
        return dim

    def _fit(self, X: Array, Z: Array, rewards: Array) -> None:
        log, n = self.log, len(rewards)
        self._binary = bool(np.isin(rewards, (0.0, 1.0)).all())
        groups = np.arange(n) if log.persons is None else np.unique(np.asarray(log.persons), return_inverse=True)[1]
        # people (or rows) are dealt out at random, by a fixed deal: logs are often sorted
        fold = (np.random.default_rng(0).permutation(int(groups.max()) + 1) % _FOLDS)[groups]
        told = described(X, Z, 1)
        folds = self._folds(told, rewards, fold)
        pieces = min(_PIECES, n // _PIECE) if _in_time(log) else 1
        if pieces > 1:
            moving = described(X, Z, pieces)
            drifting = self._folds(moving, rewards, fold)
            self.drifts = folds.deviance() - drifting.deviance() > _BETTER
            if self.drifts:
                told, folds = moving, drifting
        self._rows, self._model = told.rows, fit(told, rewards, self._chosen, log.probabilities)
        self.means, self.agreements = folds.means, folds.agreements()
        self._unheld = folds.unheld() if self._everywhere else None
        self._residuals = rewards - self.means

    def _folds(self, told: Described, rewards: Array, fold: NDArray[np.int64]) -> CrossFitted:
        """What models of the other folds say of each."""
        log, chosen = self.log, self._chosen
        found = CrossFitted(rewards, log.probabilities, chosen, self._share, self._some, log.persons)
        for f in range(_FOLDS):
            train, test = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
            if not len(train) or not len(test):
                continue
            own = fit(told.of(train), rewards[train], chosen[train], log.probabilities[train]).coefficients
            found.add(train[:: max(1, len(train) // _ROWS)], test, told.rows, own)
        return found

    def _supported(self) -> None:
        """Refuse a log that does not say what there is to gain, or that says otherwise than the model."""
        rng, some = np.random.default_rng(0), self._rows[:: max(1, len(self._rows) // _ROWS)]
        best = liked(means(some, self._model.coefficients), self._some)
        gains, known = [], []
        for _ in range(_DRAWS):
            q = means(some, self._model.drawn(rng))
            chance = float((q @ self._share).mean())
            gains.append(float(np.take_along_axis(q, liked(q, self._some), axis=1).mean()) - chance)
            known.append(float(np.take_along_axis(q, best, axis=1).mean()) - chance)
        gain = float(np.mean(gains))
        if self._unheld is not None:
            name, support = self._unheld
            raise ValueError(f"log must hold what policies may choose, got {name}: {support}")
        random, _, choice = self.agreements
        # by the model, and by the rows that have what it likes
        spread = max(float(np.std(gains)), math.hypot(random.error, choice.error))
        if gain + 2 * spread <= 0.05 * random.model:
            return  # there is nothing to learn, and that is known
        share = float(np.mean(known)) / gain if gain > 0 else 0.0
        if spread > gain / 5 or share < 0.75:
            how = f"{gain:.3g} ± {spread:.3g} per round"
            if not math.isfinite(spread):
                how = f"{gain:.3g} per round by a model that too few rows test"
            raise ValueError(
                f"log must tell what there is to gain over a random item, which pays {random.log:.3g}: by this log it "
                f"is {how}, and the choices that it suggests get {100 * max(0.0, share):.0f} % of that. Too few rows "
                "have an item, or a probability, that says more: log more rows, or choose by chance more often; or "
                "name fewer columns and items"
            )
        for one in self.agreements:
            if one.errors > 4 and abs(one.model - one.log) > 0.1 * max(gain, choice.log - random.log):
                raise ValueError(
                    f"log must agree with its model, got {one}, {one.errors:.1f} standard errors apart: rewards depend "
                    "on the columns in another way than a logistic curve, or the probabilities are not those of the "
                    "choices. Name other columns (features=, --feature), or leave some out"
                )

    def episode(self, rng: np.random.Generator) -> Iterator[Round]:
        """Every row of the log once, with the items that are offered."""
        n, persons = len(self.means), self.log.persons
        coefficients = self._model.drawn(rng)
        order = np.arange(n) if self.drifts else rng.permutation(n)
        every, logs = np.arange(self._items), np.log(self._share)
        for start in range(0, n, _BLOCK):
            rows = order[start : start + _BLOCK]
            mean = means(self._rows[rows], coefficients)
            slates = np.broadcast_to(every, mean.shape)
            if self.offered < self._items:  # without replacement, by the largest of perturbed logarithms
                keys = logs + rng.gumbel(size=mean.shape)
                slates = np.argpartition(-keys, self.offered - 1, axis=1)[:, : self.offered]
                mean = np.take_along_axis(mean, slates, axis=1)
            if self._binary:
                rewards = (rng.random(mean.shape) < mean).astype(np.float64)
            else:
                errors = self._residuals[rng.integers(n, size=mean.shape)]
                rewards = np.clip(mean + errors, 0.0, 1.0)
            for i, row in enumerate(rows.tolist()):
                arms = self._z[slates[i]]
                if self._x is not None:
                    arms = (arms[:, :, None] * self._x[row]).reshape(self.offered, -1)
                context = None if self._contexts is None else self._contexts[row]
                person = None if persons is None else persons[row]
                yield Round(arms, rewards[i], mean[i], context, person=person)


def _by_chance(log: Log, items: int) -> None:
    """Refuse a log in which too many rows were left no choice: they say nothing of any other item."""
    share = float(np.asarray(without_chance(log.probabilities)).mean())
    if share > _SURE:
        raise ValueError(
            f"log must hold choices made by chance, got probability 1 in {100 * share:.0f} % of its rows: for them no "
            f"weight tells what any other of {items:,} items would have paid. {REMEDY}; rows in which one item alone "
            "was on offer are to be left out"
        )


def _in_time(log: Log) -> bool:
    """Whether rows may be in the order of time: not sorted by what was chosen, by its reward or by who came."""
    sorted_by = [log.chosen, log.rewards]
    if log.persons is not None:
        sorted_by.append(np.unique(np.asarray(log.persons), return_inverse=True)[1])
    return not any((np.diff(one) >= 0).all() or (np.diff(one) <= 0).all() for one in sorted_by)

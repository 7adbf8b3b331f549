"""A random search whose choice is private: one budget for all settings that are tried.

Source: Papernot & Steinke (2022), arXiv:2110.03620, by :func:`dpkit.hyperparameters.best_of`. A public permutation puts
every row, by its place, into the part to train on or into the one to score on. A run draws a setting from the grid,
fits on the first part, and scores on the second: the number of right answers, or of the regressor the negative sum of
squared errors within the target range, over the square of its length, with Gaussian noise.

Privacy. Unit: one row, replaced or blanked in its place, or with ``groups`` one person, all of whose rows are in one
part and count there as one, with their mean score. A unit is in one of the two parts, so a run costs the more
expensive one of
two releases, Gaussian(z) for the fit and Gaussian(z) for the score (one unit moves it by at most 1); the whole search
costs BestOfRuns(Gaussian(z)), z calibrated to the budget. Under add_remove a row that goes would move the others to
other places: who must protect the number of rows too splits them by a public trait, and fits by hand.

The fitted estimator of the best run is released with its setting and its noisy score. The grid, the parts and the law
of the number of runs are public. Runs warn of nothing and are not counted among an estimator's fits, for nobody may
hear of those that lost; for the same reason the time that a search takes should stay with its maker.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import MetaEstimatorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from accounting import BestOfRuns, Budget, Gaussian, Ledger, calibrate, epsilon
from accounting.checks import fraction, positive
from dpkit import randomness
from dpkit.hyperparameters import best_of
from dpkit.mechanisms import GaussianMechanism
from dpkit.sklearn._classifier import PrivateGLMClassifier
from dpkit.sklearn._estimator import KeepsLedger, as_a_whole, checked_ledger, generator_of
from dpkit.sklearn._regressor import PrivateGLMRegressor
from dpkit.training.groups import checked_groups
from dpkit.training.rows import checked_budget

__all__ = ["PrivateSearch"]

# what is not for a run to choose: what it spends and draws from, and what its score is measured in
_SHARED = {"budget", "ledger", "random_state", "classes", "target_range"}


class PrivateSearch(MetaEstimatorMixin, KeepsLedger):  # type: ignore[misc]
    """Fit an estimator at settings from a grid, and release the best fit, all under one budget.

    Parameters
    ----------
    estimator : PrivateGLMClassifier or PrivateGLMRegressor
        Its own ``budget`` and ``ledger`` are not used.
    parameters : mapping from names to sequences
        The grid; a run draws one value of each, evenly. It cannot hold ``classes`` or ``target_range``.
    budget : Budget
        For all of it; counted by "replace" or "zero_out", with δ > 0, for a row, or a person where ``fit`` gets groups.
    runs : float
        How many runs there are in the mean; more than 1.
    shape : float
        η of their law, see :class:`accounting.BestOfRuns`: 1 is the geometric law, 0 a heavier tail at a lower price.
    validation : float
        The share of rows, or people, to score on.
    ledger : Ledger, optional
        Charged once, before the first run. ``clone`` keeps it, and pickling leaves it behind, as for the estimators.
    random_state : int, Generator or RandomState, optional
        None draws from the secure source; anything else gives a simulation.

    Attributes
    ----------
    best_estimator_ : estimator
        Fitted on the part to train on, with the setting that won.
    best_params_ : dict
    best_score_ : float
        The noisy score over the number of rows, or people, that it counts: an accuracy, or minus an error.
    cost_ : BestOfRuns
    n_features_in_ : int
    feature_names_in_ : ndarray, where X had names

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget, epsilon
    >>> from dpkit.sklearn import PrivateGLMClassifier, PrivateSearch
    >>> X = np.random.default_rng(0).normal(size=(5000, 3)) / 3
    >>> y = (X @ [1.0, -1.0, 0.0] > 0).astype(int)
    >>> search = PrivateSearch(
    ...     PrivateGLMClassifier(), {"radius": [0.1, 5.0, 50.0]}, budget=Budget(2.0, 1e-6), random_state=0
    ... ).fit(X, y)
    >>> search.best_score_ > 0.9, round(float(epsilon(search.cost_, 1e-6)), 6)
    (True, 2.0)
    """

    def __init__(
        self,
        estimator: Any,
        parameters: Mapping[str, Sequence[Any]],
        *,
        budget: Budget | None = None,
        runs: float = 10.0,
        shape: float = 1.0,
        validation: float = 0.2,
        ledger: Ledger | None = None,
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
    ) -> None:
        self.estimator = estimator
        self.parameters = parameters
        self.budget = budget
        self.runs = runs
        self.shape = shape
        self.validation = validation
        self.ledger = ledger
        self.random_state = random_state

    @as_a_whole
    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Spend the budget on a search.

        Parameters
        ----------
        X : (n, d) array_like
        y : (n,) array_like
        groups : (n,) array_like of int or str, optional
            Whose row each one is; then the budget's ``unit`` must be "person". Who there is counts as public.

        Raises
        ------
        ValueError, TypeError
            For a parameter out of range, or a label that is not among the estimator's classes. A value in the grid that
            a fit refuses is found when it is drawn: then the budget is spent.
        BudgetExceeded
            If the ledger refuses.
        """
        estimator, ledger = self.estimator, checked_ledger(self.ledger)
        if not isinstance(estimator, PrivateGLMClassifier | PrivateGLMRegressor):
            raise TypeError(
                f"estimator must be a PrivateGLMClassifier or a PrivateGLMRegressor, got estimator={estimator!r}"
            )
        if self.budget is None:
            raise ValueError("budget must be given, budget=Budget(1.0, 1e-6) say, got budget=None")
        if isinstance(self.budget, Budget) and self.budget.adjacency == "add_remove":
            raise ValueError(
                "budget.adjacency must be one of ('replace', 'zero_out'), under which places in the table are public, "
                "got 'add_remove': a fit without a search takes it, with public_rows="
            )
        budget = checked_budget(self.budget, allowed=("replace", "zero_out"), people=True)
        if budget.delta == 0:
            raise ValueError("budget must have delta > 0, got delta=0")
        grid = {name: list(values) for name, values in self.parameters.items()}
        known = sorted(set(estimator.get_params()) - _SHARED)
        if not all(grid.values()) or not set(grid) <= set(known):
            raise ValueError(
                f"parameters must be lists of values of {', '.join(known)}, at least one of each, "
                f"got {self.parameters!r}"
            )
        share = fraction("validation", self.validation)
        regression = isinstance(estimator, PrivateGLMRegressor)
        rows, labels = validate_data(self, X, y, dtype=np.float64, y_numeric=regression)
        # both before anything is spent; the classes of all rows, for a part may lack one
        fixed: dict[str, Any] = estimator.get_params(deep=False) | {"ledger": None}
        if isinstance(estimator, PrivateGLMRegressor):
            estimator.scale()
        else:
            fixed["classes"] = estimator.checked_labels(labels)[0]
        checked_groups(budget, groups, len(rows))
        # a unit is a row, or all rows of a person
        unit = np.arange(len(rows)) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
        units = int(unit.max(initial=-1)) + 1
        count = round(share * units)
        if not 0 < count < units:
            raise ValueError(f"validation must leave rows in both parts, got {share!r} of {units} units")
        place = np.random.default_rng(0).permutation(units)[unit]
        held, train = np.flatnonzero(place < count), np.flatnonzero(place >= count)
        whose = {} if groups is None else {"groups": np.asarray(groups)[train]}

        def cost(z: float) -> BestOfRuns:
            return BestOfRuns.of_mean(Gaussian(z, adjacency=budget.adjacency), positive("runs", self.runs), self.shape)

        z = calibrate(cost, budget)
        one = Gaussian(z, adjacency=budget.adjacency)
        # a little less than that costs, for what rounding does to the way there and back
        each = replace(budget, epsilon=epsilon(one, budget.delta) * (1.0 - 1e-9))
        fixed["budget"] = each
        source = randomness.resolve(generator_of(self.random_state))

        def run(rng: np.random.Generator) -> tuple[float, tuple[Any, dict[str, Any]]]:
            chosen = {name: values[int(rng.integers(len(values)))] for name, values in grid.items()}
            # no clone, which would be counted with the estimator: its warnings would tell how many runs there were
            model = type(estimator)(**fixed | chosen | {"random_state": rng})
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(rows[train], labels[train], **whose)
            noise = GaussianMechanism(noise_multiplier=z, sensitivity=1.0, adjacency=budget.adjacency, rng=rng)
            return float(noise.release(_score(model, rows[held], labels[held], place[held]))), (model, chosen)

        best = best_of(run, cost(z), rng=source, ledger=ledger)
        if best is None:
            raise RuntimeError("a number of runs that is at least 1 must give an output, got none")
        self.best_estimator_, self.best_params_ = best.output
        self.best_estimator_.set_params(random_state=None)
        if hasattr(self, "feature_names_in_"):
            self.best_estimator_.feature_names_in_ = self.feature_names_in_
        self.best_score_, self.cost_ = best.score / count, cost(z)
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """What the best estimator predicts."""
        check_is_fitted(self)
        return np.asarray(self.best_estimator_.predict(X))


def _score(model: Any, X: NDArray[Any], y: NDArray[Any], unit: NDArray[np.intp]) -> float:
    """A sum over units of the means of their rows' numbers in [0, 1], or in [−1, 0]."""
    found = model.predict(X)
    worth, sign = (found == y).astype(np.float64), 1.0
    if isinstance(model, PrivateGLMRegressor):
        middle, half = model.scale()
        with np.errstate(all="ignore"):  # what overflows is cut
            ends = [np.clip((values - middle) / half, -1.0, 1.0) for values in (y, found)]
        worth, sign = np.square(np.nan_to_num(0.5 * (ends[0] - ends[1]), nan=1.0)), -1.0
    # of a unit from its own rows alone, in their order
    means = np.bincount(unit, worth) / np.maximum(np.bincount(unit), 1)
    # whole multiples of 2⁻²⁶, so that the sum over up to 2²⁶ units is exact
    return sign * float(np.floor(np.minimum(means, 1.0) * 2.0**26).sum()) * 2.0**-26

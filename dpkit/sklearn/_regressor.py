"""Regression: of values, linear, and of counts, by the Poisson likelihood."""

from __future__ import annotations

import math
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from accounting import Budget, Ledger
from accounting.arrays import Array
from accounting.checks import positive
from dpkit.models.capped_counts import CAPPED_POISSON, START
from dpkit.optimize import glm
from dpkit.sklearn._estimator import PrivateGLM, as_a_whole

__all__ = ["PrivateGLMRegressor"]


class PrivateGLMRegressor(RegressorMixin, PrivateGLM):  # type: ignore[misc]
    """Regression by a private generalized linear model: linear, with squared or Huber loss, or of counts.

    With ``link="poisson"`` the model is E[y] = exp(x·coef_ + intercept_), fitted by the Poisson likelihood. Its
    gradient has no bound of its own; targets are cut to ``target_range`` = (0, top), and the mean counts as the top
    where the model says more, which bounds the gradient of every row by R√2 whatever the data and the model are
    (``dpkit.models.capped_counts`` has the proof). So the top should be above what is expected of any row.

    Parameters
    ----------
    budget : Budget
        Of one fit; of any adjacency. It must be given.
    target_range : (float, float)
        Public: targets are cut to it, and scaled to [−1, 1] within ``fit``. It must be given.
    link : {"linear", "poisson"}
    loss : {"squared", "huber"}, optional
        Of the linear link, by default "squared"; the Poisson link has its own.
    threshold : float, optional
        Of Huber's loss, in the unit of y; by default a tenth of the range.
    row_norm, fit_intercept, solver, max_iter, epochs, step_scale, public_rows, ledger, random_state
        As in :class:`PrivateGLMClassifier`.
    radius : float
        Bounds the length of (R·coef_, intercept_ − middle of the range), in halves of the range; of the Poisson link
        that of (R·coef_, intercept_ − ln(top/5)).
    clip : float, optional
        The L2 norm to which gradients of rows are cut, where y has been scaled. By default R√2 (R without intercept)
        times 1 for the squared loss and for counts, or the scaled threshold for Huber's.

    Attributes
    ----------
    coef_ : (d,) ndarray
    intercept_ : float
    cost_, n_iter_, n_features_in_, feature_names_in_
        As in :class:`PrivateGLMClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.sklearn import PrivateGLMRegressor
    >>> X = np.random.default_rng(0).normal(size=(5000, 3)) / 3
    >>> y = 10.0 + X @ [4.0, -4.0, 0.0]
    >>> model = PrivateGLMRegressor(budget=Budget(1.0, 1e-6), target_range=(0.0, 20.0)).fit(X, y)
    >>> bool(model.score(X, y) > 0.8)
    True
    >>> counts = np.random.default_rng(1).poisson(np.exp(1.0 + X @ [1.0, -1.0, 0.0]))
    >>> budget = Budget(4.0, 1e-6)
    >>> model = PrivateGLMRegressor(budget=budget, link="poisson", target_range=(0, 20)).fit(X, counts)
    >>> bool(abs(model.predict(X).mean() - counts.mean()) < 0.3)
    True
    """

    def __init__(
        self,
        budget: Budget | None = None,
        *,
        target_range: tuple[float, float] | None = None,
        link: Literal["linear", "poisson"] = "linear",
        loss: Literal["squared", "huber"] | None = None,
        threshold: float | None = None,
        row_norm: float = 1.0,
        radius: float = 10.0,
        clip: float | None = None,
        fit_intercept: bool = True,
        solver: Literal["preconditioned", "gradient_descent", "dp_ftrl"] = "preconditioned",
        max_iter: int | None = None,
        epochs: int = 10,
        step_scale: float = 1.0,
        public_rows: int | None = None,
        ledger: Ledger | None = None,
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
    ) -> None:
        self.budget = budget
        self.target_range = target_range
        self.link = link
        self.loss = loss
        self.threshold = threshold
        self.row_norm = row_norm
        self.radius = radius
        self.clip = clip
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.max_iter = max_iter
        self.epochs = epochs
        self.step_scale = step_scale
        self.public_rows = public_rows
        self.ledger = ledger
        self.random_state = random_state

    @as_a_whole
    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Spend the budget on a fit.

        Parameters
        ----------
        X : (n, d) array_like
        y : (n,) array_like
        groups : (n,) array_like of int or str, optional
            As in :meth:`PrivateGLMClassifier.fit`.

        Raises
        ------
        ValueError, TypeError
            For a parameter out of range, or rows that are not finite. Nothing is drawn or charged.
        BudgetExceeded
            If the ledger refuses.
        """
        rows, targets = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        middle, half = self.scale()
        if self.link not in ("linear", "poisson"):
            raise ValueError(f"link must be 'linear' or 'poisson', got link={self.link!r}")
        if self.link == "poisson":
            return self._fit_counts(rows, np.asarray(targets, dtype=np.float64), groups, top=middle + half)
        if self.loss in (None, "squared"):
            if self.threshold is not None:
                raise ValueError(f"threshold is for the loss 'huber' only, got threshold={self.threshold!r}")
            objective = glm("squared")
        elif self.loss == "huber":
            threshold = 0.2 * half if self.threshold is None else positive("threshold", self.threshold)
            objective = glm("huber", threshold=threshold / half)
        else:
            raise ValueError(f"loss must be 'squared' or 'huber', got loss={self.loss!r}")
        scaled = np.clip((np.asarray(targets, dtype=np.float64) - middle) / half, -1.0, 1.0)
        theta, offset = self._descend(objective, rows, scaled, groups)
        self.coef_, self.intercept_ = half * theta[0], middle + half * float(offset[0])
        return self

    def _fit_counts(self, X: Array, y: Array, groups: ArrayLike | None, *, top: float) -> Self:
        if self.loss is not None or self.threshold is not None:
            raise ValueError(
                "loss and threshold are for the link 'linear', got "
                f"loss={self.loss!r}, threshold={self.threshold!r} with link='poisson': leave them out"
            )
        if self.scale()[0] != 0.5 * top:
            raise ValueError(
                "target_range must start at 0 with link='poisson', whose means are positive, got "
                f"target_range={self.target_range!r}"
            )
        theta, offset = self._descend(CAPPED_POISSON, X, np.clip(y / top, 0.0, 1.0), groups)
        self.coef_, self.intercept_ = theta[0], math.log(top) - START + float(offset[0])
        return self

    def predict(self, X: ArrayLike) -> Array:
        """The fitted mean of every row, shortened to ``row_norm``, of counts at most the top: shape (n,)."""
        rows = self._checked_rows(X)
        eta = np.asarray(rows @ self.coef_ + self.intercept_)
        if self.link == "linear":
            return eta
        middle, half = self.scale()
        return np.asarray(np.exp(np.minimum(eta, math.log(middle + half))))

    def scale(self) -> tuple[float, float]:
        """The middle of the target range and half of its length."""
        if self.target_range is None:
            raise ValueError("target_range must be given, got target_range=None")
        low, high = (float(end) for end in self.target_range)
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"target_range must be two increasing numbers, got target_range={self.target_range!r}")
        return 0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low

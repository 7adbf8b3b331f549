"""scikit-learn estimators for private generalized linear models, over noisy gradient descent or DP-FTRL.

For whoever has a scikit-learn pipeline and wants its last step private. Needs the extra ``learn``. Source of the method
and of its proof: :mod:`dpkit.optimize.noisy_gradient_descent`, :mod:`dpkit.optimize.dp_ftrl`.

Privacy. Unit: one row, or one person where ``fit`` is given ``groups``. A fit costs what ``cost_`` says and meets
``budget``; it releases ``coef_`` and ``intercept_``. Everything else that an estimator holds is public, so it may be
pickled and handed on: the hyperparameters, the number and the names of the features, and the classes. What the proof
asks for is public too, and held by cutting: rows are shortened to ``row_norm``, targets cut to ``target_range``, labels
must be among ``classes``.

**Every fit spends.** A cross-validation of k folds costs k fits, a grid of m points in it k·m of them, whichever is
picked; a shared ``ledger`` counts them and refuses the one that passes its budget. ``clone`` keeps the ledger, where
scikit-learn would copy it. Pickling does not take it along once a model is fitted, nor ever if it is in memory: such a
copy refuses to be fitted until it is given a ledger (or None). For parallel jobs take a ledger in a file, which all
processes share. Scores on held-out rows, and transformers that learn from data (a ``StandardScaler``), are not covered
by any of this.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ModuleNotFoundError as error:
    raise ImportError('dpkit.sklearn needs scikit-learn: python -m pip install "dpkit[learn]"') from error

from accounting import Budget, Ledger
from accounting.checks import positive
from dpkit.clipping import shortened
from dpkit.geometry import LpBall
from dpkit.optimize import dp_ftrl, glm, noisy_gradient_descent
from dpkit.optimize.objectives import GLM

if TYPE_CHECKING:
    from sklearn.utils import Tags

__all__ = ["PrivateGLMClassifier", "PrivateGLMRegressor"]

Array = NDArray[np.float64]

# stands for a ledger that stayed behind; fit refuses it, as it refuses everything that is no ledger
_LEFT_BEHIND = "left behind when this copy was made: set_params(ledger=...) first"


class _PrivateGLM(BaseEstimator):  # type: ignore[misc]
    """What the two estimators share: η = x·θ + offset by noisy gradient descent over rows of length at most R."""

    budget: Budget | None
    row_norm: float
    radius: float
    clip: float | None
    fit_intercept: bool
    solver: str
    max_iter: int
    epochs: int
    step_scale: float
    public_rows: int | None
    ledger: Ledger | None
    random_state: int | np.random.Generator | np.random.RandomState | None

    def _descend(self, objective: GLM, X: Array, y: Array, groups: ArrayLike | None) -> tuple[Array, float]:
        """θ and the offset."""
        if self.budget is None:
            raise ValueError("budget must be given, got budget=None")
        if not (self.ledger is None or isinstance(self.ledger, Ledger)):
            raise TypeError(f"ledger must be a Ledger or None, got ledger={self.ledger!r}")
        R, radius = positive("row_norm", self.row_norm), positive("radius", self.radius)
        d = X.shape[1]
        rows = shortened(X, R)[0]
        if self.fit_intercept:
            # the constant feature is as long as a row, so that neither drowns in the noise of the other
            rows = np.column_stack([rows, np.full(len(rows), R)])
        clip = self.clip
        if clip is None:
            # the slope of the squared loss has no bound: 1 is that of η = 0 at the end of the range
            clip = min(objective.slope_bound, 1.0) * R * math.sqrt(2.0 if self.fit_intercept else 1.0)
        known: dict[str, Any] = {
            "constraint": LpBall(2, rows.shape[1], radius / R),
            "budget": self.budget,
            "step_scale": self.step_scale,
            "groups": groups,
            "rng": _generator(self.random_state),
            "ledger": self.ledger,
        }
        clipped = replace(objective, clip=clip)
        if self.solver == "gradient_descent":
            fit = noisy_gradient_descent(
                clipped, rows, y, max_iterations=self.max_iter, public_rows=self.public_rows, **known
            )
        elif self.solver == "dp_ftrl":
            if self.public_rows is not None:
                raise ValueError(
                    "public_rows must be None with solver='dp_ftrl', whose rows are counted in public, "
                    f"got public_rows={self.public_rows!r}"
                )
            fit = dp_ftrl(clipped, rows, y, epochs=self.epochs, iterate="tail", **known)
        else:
            raise ValueError(f"solver must be 'gradient_descent' or 'dp_ftrl', got solver={self.solver!r}")
        self.cost_ = fit.cost
        self.n_iter_ = fit.nit
        return fit.x[:d], float(fit.x[d] * R) if self.fit_intercept else 0.0

    def _checked_rows(self, X: ArrayLike) -> Array:
        """The rows to predict for, shortened as those of the fit were."""
        check_is_fitted(self)
        rows: Array = validate_data(self, X, dtype=np.float64, reset=False)
        return shortened(rows, self.row_norm)[0]

    def __sklearn_clone__(self) -> Self:
        """An unfitted copy that spends from the same ledger."""
        twin: Self = super().__sklearn_clone__()
        twin.ledger = self.ledger
        return twin

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        ledger = state.get("ledger")
        if isinstance(ledger, Ledger) and (ledger.path is None or "cost_" in state):
            # a copy of a ledger in memory would count by itself, and a model must not carry its makers' books
            state = state | {"ledger": _LEFT_BEHIND}
        return state


class PrivateGLMClassifier(ClassifierMixin, _PrivateGLM):  # type: ignore[misc]
    """Binary classification by a private generalized linear model.

    For more classes, ``OneVsRestClassifier`` around it fits one model per class; each has the ``budget``, and a common
    ``ledger`` holds them together.

    Parameters
    ----------
    budget : Budget
        Of one fit; of any adjacency. It must be given.
    classes : pair, or "observed", optional
        The two labels, public; by default (0, 1). ``fit`` refuses any other label. "observed" takes the labels
        that occur in y for public knowledge, which no cost covers.
    loss : {"logistic", "probit"}
    row_norm : float
        R, public: longer rows are shortened to it, in ``fit`` and in prediction. Scale features by public constants,
        so that most rows are about as long.
    radius : float
        Bounds ‖(R·coef_, intercept_)‖₂, and thus |η|/√2.
    clip : float, optional
        The L2 norm to which gradients of rows are cut; by default R√2 (R without intercept), which cuts no row of the
        logistic loss.
    fit_intercept : bool
        By a constant feature of size R.
    solver : {"gradient_descent", "dp_ftrl"}
        Full passes with independent noise; or :func:`dpkit.optimize.dp_ftrl`, whose steps take √n rows each, in an
        order that is public: fewer passes, for "replace" and "zero_out" only.
    max_iter : int
        The largest number of steps of gradient descent.
    epochs : int
        The number of passes of DP-FTRL.
    step_scale : float
        Multiplies the step of the solver.
    public_rows : int, optional
        The number that sums are divided by. Required under add_remove.
    ledger : Ledger, optional
        Charged by every ``fit``, before any noise is drawn.
    random_state : int, Generator or RandomState, optional
        None draws from the secure source; anything else gives a simulation.

    Attributes
    ----------
    coef_ : (1, d) ndarray
    intercept_ : (1,) ndarray
    classes_ : (2,) ndarray
        Sorted.
    cost_ : Release
        What the last fit cost.
    n_iter_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray, where X had names

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget, epsilon
    >>> from dpkit.sklearn import PrivateGLMClassifier
    >>> X = np.random.default_rng(0).normal(size=(5000, 3)) / 3
    >>> y = np.where(X @ [1.0, -1.0, 0.0] > 0, "yes", "no")
    >>> model = PrivateGLMClassifier(budget=Budget(1.0, 1e-6), classes=("no", "yes")).fit(X, y)
    >>> bool(model.score(X, y) > 0.9), round(float(epsilon(model.cost_, 1e-6)), 9)
    (True, 1.0)
    """

    def __init__(
        self,
        budget: Budget | None = None,
        *,
        classes: Sequence[Any] | Literal["observed"] | None = None,
        loss: Literal["logistic", "probit"] = "logistic",
        row_norm: float = 1.0,
        radius: float = 5.0,
        clip: float | None = None,
        fit_intercept: bool = True,
        solver: Literal["gradient_descent", "dp_ftrl"] = "gradient_descent",
        max_iter: int = 200,
        epochs: int = 10,
        step_scale: float = 1.0,
        public_rows: int | None = None,
        ledger: Ledger | None = None,
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
    ) -> None:
        self.budget = budget
        self.classes = classes
        self.loss = loss
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

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Spend the budget on a fit.

        Parameters
        ----------
        X : (n, d) array_like
        y : (n,) array_like
            Labels, all of them among ``classes``.
        groups : (n,) array_like of int or str, optional
            Whose row each one is. Then the budget is spent on people, each with any number of rows, and its ``unit``
            must be "person"; ``public_rows`` counts people.

        Raises
        ------
        ValueError, TypeError
            For a parameter out of range, rows that are not finite, or a label that is not among ``classes``. Nothing
            is drawn or charged.
        BudgetExceeded
            If the ledger refuses.
        """
        if self.loss not in ("logistic", "probit"):
            raise ValueError(f"loss must be 'logistic' or 'probit', got loss={self.loss!r}")
        rows, labels = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        classes = self._public_classes(labels)
        if not np.isin(labels, classes).all():
            raise ValueError(f"y must hold labels of classes={classes.tolist()!r} only, got others")
        theta, offset = self._descend(glm(self.loss), rows, (labels == classes[1]).astype(np.float64), groups)
        self.classes_ = classes
        self.coef_, self.intercept_ = theta[None, :], np.array([offset])
        return self

    def decision_function(self, X: ArrayLike) -> Array:
        """η of every row, shortened to ``row_norm``: shape (n,); positive for ``classes_[1]``."""
        rows = self._checked_rows(X)
        return np.asarray(rows @ self.coef_[0] + self.intercept_[0])

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The likelier label of every row, shape (n,)."""
        upper = self.decision_function(X) > 0
        return np.asarray(self.classes_[upper.astype(int)])

    def predict_proba(self, X: ArrayLike) -> Array:
        """The probabilities of ``classes_`` for every row, shape (n, 2)."""
        from scipy.special import expit, ndtr

        eta = self.decision_function(X)
        mean = expit if self.loss == "logistic" else ndtr
        return np.column_stack([mean(-eta), mean(eta)])

    def _public_classes(self, y: NDArray[Any]) -> NDArray[Any]:
        if isinstance(self.classes, str) and self.classes == "observed":
            labels = np.unique(y)
            if len(labels) != 2:
                raise ValueError(
                    f"Only binary classification is supported: y must hold two classes, got {len(labels)} class(es)"
                )
            return labels
        labels = np.unique(np.asarray((0, 1) if self.classes is None else self.classes))
        if isinstance(self.classes, str) or len(labels) != 2:
            raise ValueError(f"classes must be two labels or 'observed', got classes={self.classes!r}")
        return labels

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


class PrivateGLMRegressor(RegressorMixin, _PrivateGLM):  # type: ignore[misc]
    """Linear regression by a private generalized linear model, with squared or Huber loss.

    Parameters
    ----------
    budget : Budget
        Of one fit; of any adjacency. It must be given.
    target_range : (float, float)
        Public: targets are cut to it, and scaled to [−1, 1] within ``fit``. It must be given.
    loss : {"squared", "huber"}
    threshold : float, optional
        Of Huber's loss, in the unit of y; by default a tenth of the range.
    row_norm, fit_intercept, max_iter, step_scale, public_rows, ledger, random_state
        As in :class:`PrivateGLMClassifier`.
    radius : float
        Bounds the length of (R·coef_, intercept_ − middle of the range), in halves of the range.
    clip : float, optional
        The L2 norm to which gradients of rows are cut, where y has been scaled. By default R√2 (R without intercept)
        times 1 for the squared loss or the scaled threshold for Huber's.

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
    """

    def __init__(
        self,
        budget: Budget | None = None,
        *,
        target_range: tuple[float, float] | None = None,
        loss: Literal["squared", "huber"] = "squared",
        threshold: float | None = None,
        row_norm: float = 1.0,
        radius: float = 2.0,
        clip: float | None = None,
        fit_intercept: bool = True,
        solver: Literal["gradient_descent", "dp_ftrl"] = "gradient_descent",
        max_iter: int = 200,
        epochs: int = 10,
        step_scale: float = 1.0,
        public_rows: int | None = None,
        ledger: Ledger | None = None,
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
    ) -> None:
        self.budget = budget
        self.target_range = target_range
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
        middle, half = self._scale()
        if self.loss == "squared":
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
        self.coef_, self.intercept_ = half * theta, middle + half * offset
        return self

    def predict(self, X: ArrayLike) -> Array:
        """The fitted mean of every row, shortened to ``row_norm``: shape (n,)."""
        rows = self._checked_rows(X)
        return np.asarray(rows @ self.coef_ + self.intercept_)

    def _scale(self) -> tuple[float, float]:
        """The middle of the target range and half of its length."""
        if self.target_range is None:
            raise ValueError("target_range must be given, got target_range=None")
        low, high = (float(end) for end in self.target_range)
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"target_range must be two increasing numbers, got target_range={self.target_range!r}")
        return 0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low


def _generator(random_state: object) -> np.random.Generator | None:
    """What ``rng=`` of an optimizer takes; None stays None, which is secure."""
    if random_state is None or isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31, size=4))
    if isinstance(random_state, numbers.Integral):
        return np.random.default_rng(int(random_state))
    raise TypeError(f"random_state must be an int, a Generator, a RandomState or None, got {random_state!r}")

"""Classification, into two classes or more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from accounting import Budget, Ledger
from accounting.arrays import Array
from accounting.checks import choice
from dpkit.optimize import glm, softmax
from dpkit.optimize.parts.softmax import softmax_probabilities
from dpkit.sklearn._estimator import PrivateGLM, as_a_whole

__all__ = ["PrivateGLMClassifier"]


class PrivateGLMClassifier(ClassifierMixin, PrivateGLM):  # type: ignore[misc]
    """Classification by a private generalized linear model, multinomial for more than two classes.

    However many classes there are, a fit spends one ``budget``: see :mod:`dpkit.optimize.softmax`.

    Parameters
    ----------
    budget : Budget
        Of one fit; of any adjacency. It must be given.
    classes : sequence, or "observed", optional
        The labels, public, two or more. ``fit`` refuses any other label. By default (False, True) for booleans,
        (−1, 1) where y has a −1, and else (0, 1); for texts no and yes, n and y, false and true, f and t, negative and
        positive, neg and pos, or 0 and 1, all small, all large or with a capital: how two classes are written counts as
        public, and which of these it is follows from any single label. Others must be named. "observed" takes the
        labels that occur in y for public knowledge, which no cost covers.
    loss : {"logistic", "probit"}
        For more than two classes "logistic".
    row_norm : float
        R, public: longer rows are shortened to it, in ``fit`` and in prediction. Scale features by public constants,
        so that most rows are about as long.
    radius : float
        Bounds ‖(R·coef_, intercept_)‖, and thus |η|/√2. The default solver is made for models of about a fifth of it.
    clip : float, optional
        The L2 norm to which gradients of rows are cut; by default R√2 (R without intercept), which cuts no row of the
        logistic loss, and √2 times that for more classes.
    fit_intercept : bool
        By a constant feature of size R.
    solver : {"preconditioned", "gradient_descent", "dp_ftrl"}
        :func:`dpkit.optimize.preconditioned_descent`, of whose budget one 500th tells whether most rows were shortened;
        full passes without a metric; or :func:`dpkit.optimize.dp_ftrl`, whose steps take √n rows each, in an
        order that is public, for "replace" and "zero_out" only.
    max_iter : int, optional
        The largest number of passes of the first (24 at most) or the second (by default 200).
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
    coef_ : (1, d) or (K, d) ndarray
        One row for two classes, and one per class for K > 2.
    intercept_ : (1,) or (K,) ndarray
    classes_ : (K,) ndarray
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
        radius: float = 50.0,
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

    @as_a_whole
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
        choice("loss", self.loss, "logistic", "probit")
        rows, labels = validate_data(self, X, y, dtype=np.float64)
        classes, position = self.checked_labels(labels)
        if len(classes) == 2:
            objective: Any = glm(self.loss)
        elif self.loss == "logistic":
            objective = softmax(len(classes), clip=1.0)
        else:
            raise ValueError(f"loss must be 'logistic' for {len(classes)} classes, got loss={self.loss!r}")
        self.coef_, self.intercept_ = self._descend(objective, rows, position.astype(np.float64), groups)
        self.classes_ = classes
        return self

    def decision_function(self, X: ArrayLike) -> Array:
        """η of every row, shortened to ``row_norm``: shape (n,), positive for ``classes_[1]``; or (n, K) for K > 2."""
        eta = self._checked_rows(X) @ self.coef_.T + self.intercept_
        return np.asarray(eta[:, 0] if len(self.classes_) == 2 else eta)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The likeliest label of every row, shape (n,)."""
        eta = self.decision_function(X)
        return np.asarray(self.classes_[(eta > 0).astype(int) if eta.ndim == 1 else eta.argmax(axis=1)])

    def predict_proba(self, X: ArrayLike) -> Array:
        """The probabilities of ``classes_`` for every row, shape (n, K)."""
        from scipy.special import expit, ndtr

        eta = self.decision_function(X)
        if eta.ndim == 2:
            return softmax_probabilities(eta)
        mean = expit if self.loss == "logistic" else ndtr
        return np.column_stack([mean(-eta), mean(eta)])

    def checked_labels(self, y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
        """The classes, and which of them every label is."""
        check_classification_targets(y)
        classes = self._public_classes(y)
        position = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
        if not (classes[position] == y).all():
            raise ValueError(
                f"y must hold labels of classes={classes.tolist()!r} only, got others: name all of them in classes"
            )
        return classes, position

    def _public_classes(self, y: NDArray[Any]) -> NDArray[Any]:
        if self.classes is None:
            if y.dtype.kind == "b":
                return np.array([False, True])
            if all(isinstance(label, str) for label in set(y.tolist())):
                return _written(y)
            return np.array([-1, 1] if y.dtype.kind in "if" and (y == -1).any() else [0, 1])
        if isinstance(self.classes, str) and self.classes == "observed":
            labels = np.unique(y)
            if len(labels) < 2:
                raise ValueError(f"y must hold at least two classes, got {len(labels)} class")
            return labels
        labels = np.unique(np.asarray(self.classes))
        if isinstance(self.classes, str) or len(labels) < 2:
            raise ValueError(f"classes must be two or more labels or 'observed', got classes={self.classes!r}")
        return labels


# Pairs that share no label: the first row tells which one it is, and all others agree or are refused.
_PAIRS = (
    ("no", "yes"), ("n", "y"), ("false", "true"), ("f", "t"), ("negative", "positive"), ("neg", "pos"), ("0", "1"),
)  # fmt: skip


def _written(y: NDArray[Any]) -> NDArray[Any]:
    """The pair of texts that all labels are of."""
    said = set(y.tolist())
    for pair in _PAIRS:
        for written in (pair, tuple(map(str.capitalize, pair)), tuple(map(str.upper, pair))):
            if said and said <= set(written):
                return np.array(written)
    raise ValueError(
        "classes must name the labels, classes=('cold', 'warm') say, where they are texts other than no and yes, false "
        "and true, negative and positive, or their initials, got classes=None: which texts occur is not public"
    )

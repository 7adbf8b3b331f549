"""What the estimators share: how rows are prepared and fitted, what is checked, and what travels with a copy."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, Self, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from accounting import Budget, Ledger
from accounting.arrays import Array
from accounting.checks import integer, positive
from dpkit.clipping import shortened
from dpkit.geometry import LpBall
from dpkit.models.losses import GLM
from dpkit.optimize import DPFTRL, noisy_gradient_descent, preconditioned_descent
from dpkit.optimize.parts.softmax import Softmax
from dpkit.sklearn._notices import Fits, warn_of_shortened
from dpkit.sklearn._pipelines import warn_of_unprotected_steps

__all__ = ["CountsFits", "KeepsLedger", "PrivateGLM", "as_a_whole", "checked_ledger", "generator_of"]


# of preconditioned descent: more of them would change little but the time
_STEPS = 24
# stands for a ledger that stayed behind; fit refuses it, as it refuses everything that is no ledger
_LEFT_BEHIND = "left behind when this copy was made"


Fit = TypeVar("Fit", bound=Callable[..., Any])


def as_a_whole(fit: Fit) -> Fit:
    """A ``fit`` that is made apart and put in place at once: whatever ends it leaves the estimator as it was."""

    @wraps(fit)
    def whole(self: Any, *args: Any, **more: Any) -> Any:
        made: Any = object.__new__(type(self))
        vars(made).update(vars(self))
        warn_of_unprotected_steps(KeepsLedger)
        fit(made, *args, **more)
        self.__dict__ = vars(made)
        return self

    return cast("Fit", whole)


class KeepsLedger(BaseEstimator):  # type: ignore[misc]
    """Clones spend from the same ledger, where scikit-learn would copy it, and its expenses with it."""

    ledger: Ledger | None

    def __sklearn_clone__(self) -> Self:
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


def checked_ledger(ledger: object) -> Ledger | None:
    """The ledger to spend from, or None for none."""
    if ledger == _LEFT_BEHIND:
        raise TypeError(
            f"ledger must be a Ledger or None, got ledger={ledger!r}: copies that other processes make (n_jobs=) "
            "share a ledger in a file, Ledger.create(path, budget), and none in memory, which each would count by "
            "itself; a copy of your own takes one by set_params(ledger=...)"
        )
    if not (ledger is None or isinstance(ledger, Ledger)):
        raise TypeError(f"ledger must be a Ledger or None, got ledger={ledger!r}")
    return ledger


class CountsFits(KeepsLedger):
    """An estimator whose clones are counted with it, to warn of a search that spends a budget with each fit."""

    budget: Budget | None
    random_state: int | np.random.Generator | np.random.RandomState | None

    def fits(self) -> Fits:
        """The count of what this estimator and its clones have fitted."""
        found: Fits = self.__dict__.setdefault("_fits", Fits())
        return found

    def __sklearn_clone__(self) -> Self:
        """An unfitted copy that spends from the same ledger, and is counted with this one."""
        twin = super().__sklearn_clone__()
        twin._fits = self.fits()
        twin._cloned = True
        return twin


class PrivateGLM(CountsFits):
    """What the two estimators share: η = x·θ + offset over rows of length at most R."""

    row_norm: float
    radius: float
    clip: float | None
    fit_intercept: bool
    solver: str
    max_iter: int | None
    epochs: int
    step_scale: float
    public_rows: int | None

    def _descend(self, objective: GLM | Softmax, X: Array, y: Array, groups: ArrayLike | None) -> tuple[Array, Array]:
        """θ and the offset, a row and an entry for each η."""
        if self.budget is None:
            raise ValueError("budget must be given, budget=Budget(1.0, 1e-6) say, got budget=None")
        ledger = checked_ledger(self.ledger)
        if self.solver not in ("preconditioned", "gradient_descent", "dp_ftrl"):
            raise ValueError(
                f"solver must be 'preconditioned', 'gradient_descent' or 'dp_ftrl', got solver={self.solver!r}"
            )
        R, radius = positive("row_norm", self.row_norm), positive("radius", self.radius)
        clip = self.clip
        if clip is None:
            # the slope of the squared loss has no bound: 1 is that of η = 0 at the end of the range
            bound = 1.0 if isinstance(objective, GLM) else objective.slope_bound
            clip = min(objective.slope_bound, bound) * R * math.sqrt(2.0 if self.fit_intercept else 1.0)
        # the constant feature is as long as a row, so that neither drowns in the noise of the other
        constant = R if self.fit_intercept else 0.0
        known: dict[str, Any] = {
            "budget": self.budget,
            "step_scale": self.step_scale,
            "groups": groups,
            "rng": generator_of(self.random_state),
            "ledger": ledger,
        }
        clipped: Any = replace(objective, clip=clip)
        steps: dict[str, Any] = {} if self.max_iter is None else {"max_iterations": self.max_iter}
        if self.solver == "preconditioned":
            fit = preconditioned_descent(
                clipped,
                X,
                y,
                radius=radius / R,
                row_norm=R,
                constant=constant,
                steps=_STEPS if self.max_iter is None else min(_STEPS, integer("max_iter", self.max_iter, at_least=1)),
                public_rows=self.public_rows,
                **known,
            )
            warn_of_shortened(fit.shortened, fit.shortened_std, R)
        else:
            if isinstance(objective, Softmax):
                raise ValueError(
                    f"solver must be 'preconditioned' for more than two classes, got solver={self.solver!r}"
                )
            rows = np.full((len(X), X.shape[1] + self.fit_intercept), constant)
            shortened(X, R, out=rows[:, : X.shape[1]])
            known["constraint"] = LpBall(2, rows.shape[1], radius / R)
            if self.solver == "gradient_descent":
                fit = noisy_gradient_descent(clipped, rows, y, public_rows=self.public_rows, **known, **steps)
            elif self.public_rows is not None:
                raise ValueError(
                    "public_rows must be None with solver='dp_ftrl', whose rows are counted in public, "
                    f"got public_rows={self.public_rows!r}"
                )
            else:
                # not by the function, which returns what Ctrl-C left of a run: a fit is whole, or none
                run = DPFTRL(clipped, rows, y, epochs=self.epochs, iterate="tail", **known)
                run.advance(run.horizon)
                fit = run.result()
        self.cost_, self.n_iter_ = fit.cost, fit.nit
        self.fits().note(self.budget, self.ledger, clone="_cloned" in self.__dict__)
        theta = np.atleast_2d(fit.x)
        d = X.shape[1]
        return theta[:, :d], theta[:, d] * R if self.fit_intercept else np.zeros(len(theta))

    def _checked_rows(self, X: ArrayLike) -> Array:
        """The rows to predict for, shortened as those of the fit were."""
        check_is_fitted(self)
        rows: Array = validate_data(self, X, dtype=np.float64, reset=False)
        return shortened(rows, self.row_norm)[0]


def generator_of(random_state: object) -> np.random.Generator | None:
    """What ``rng=`` of an optimizer takes; None stays None, which is secure."""
    if random_state is None or isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31, size=4))
    if isinstance(random_state, numbers.Integral):
        return np.random.default_rng(int(random_state))
    raise TypeError(f"random_state must be an int, a Generator, a RandomState or None, got {random_state!r}")

"""What the optimizers minimise: losses of generalized linear models, with gradients that are clipped row by row.

An objective is a loss ℓ(θ; x, y) of one row. The optimizers minimise its mean over n rows, n public, and see the data
only through sums of per-row gradients. With η = xᵀθ the gradient of a generalized linear model is ψ(η, y)·x.

========  ==========================================  ===============================  ==========  ============
name      ℓ                                           ψ = ∂ℓ/∂η                        |ψ| at most  ∂ψ/∂η at most
========  ==========================================  ===============================  ==========  ============
logistic  ln(1 + e^η) − yη                            1/(1 + e^−η) − y                 1           ¼
probit    −y ln Φ(η) − (1 − y) ln Φ(−η)               (1 − y)φ/Φ(−η) − yφ/Φ(η)         ∞           1
squared   ½(η − y)²                                   η − y                            ∞           1
huber     ½r² if |r| ≤ k else k|r| − ½k², r = η − y   r cut to [−k, k]                 k           1
poisson   e^η − yη                                    e^η − y                          ∞           ∞
linear    yη                                          y                                ∞           0
========  ==========================================  ===============================  ==========  ============

Responses: logistic and probit in [0, 1], poisson nonnegative, squared, huber and linear any. The optimizers refuse
others (``response_range``), as no such model fits them: for y = −1 the logistic loss falls without end. No claim of
privacy rests on that: where y is outside, ψ is what the formula says, and clipping bounds it all the same.

Huber's k is the ``threshold`` (Huber 1964): the loss is the squared one up to there and grows linearly beyond, so that
one far response pulls no harder than one at a distance of k. The linear loss is for online learning: with y = 1 the row
is the vector of losses. It has nothing to do with the link of that name, whose loss is the squared one.
:func:`matching_loss` makes the loss of any other link.

Privacy needs a bound on every row's gradient: ``clip`` scales longer ones back to that L2 norm, so the bound holds
whatever the data are. Where no gradient is longer (‖x‖₂·|ψ| ≤ clip) it changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
from numpy.typing import ArrayLike

from accounting.arrays import Array
from accounting.checks import positive
from dpkit.clipping import clipped, lengths
from dpkit.models.links import Link, get_link

__all__ = ["GLM", "glm", "matching_loss"]


@dataclass(frozen=True)
class GLM:
    """The loss of a generalized linear model; :func:`glm` makes the usual ones.

    Parameters
    ----------
    name : str
    loss, slope : callable
        (η, y) → ℓ and ψ, elementwise on arrays.
    slope_bound, curvature_bound : float
        What bounds |ψ| and ∂ψ/∂η; infinite if nothing does.
    clip : float, optional
        The L2 norm to which longer gradients of single rows are scaled back.
    response_range : (float, float)
        The labels that the model allows; by default any.

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.models import glm
    >>> loss = glm("logistic", clip=1.0)
    >>> round(float(loss.loss(np.array(0.0), np.array(1.0))), 4)  # ln 2
    0.6931
    """

    name: str
    loss: Callable[[Array, Array], Array]
    slope: Callable[[Array, Array], Array]
    slope_bound: float
    curvature_bound: float
    clip: float | None = None
    response_range: tuple[float, float] = (-math.inf, math.inf)

    def __post_init__(self) -> None:
        if self.clip is not None:
            object.__setattr__(self, "clip", positive("clip", self.clip))

    def __repr__(self) -> str:
        return (
            f"GLM({self.name!r}, clip={self.clip!r}, slope_bound={self.slope_bound:g}, "
            f"curvature_bound={self.curvature_bound:g})"
        )

    def values(self, theta: ArrayLike, X: ArrayLike, y: ArrayLike) -> Array:
        """ℓ of each row.

        Parameters
        ----------
        theta : (d,) array_like
        X : (n, d) array_like
        y : (n,) array_like

        Returns
        -------
        (n,) ndarray
        """
        theta, X, y = _rows(theta, X, y)
        return self.loss(X @ theta, y)

    def mean(self, theta: ArrayLike, X: ArrayLike, y: ArrayLike) -> float:
        """The mean of :meth:`values`; 0 for no rows. Not private."""
        values = self.values(theta, X, y)
        return float(values.mean()) if values.size else 0.0

    def gradients(self, theta: ArrayLike, X: ArrayLike, y: ArrayLike) -> Array:
        """ψ·x of each row, clipped; shape (n, d)."""
        theta, X, y = _rows(theta, X, y)
        return self._slopes(theta, X, y)[:, None] * X

    def gradient_sum(self, theta: ArrayLike, X: ArrayLike, y: ArrayLike) -> Array:
        """The sum of :meth:`gradients` over the rows, shape (d,), without holding them."""
        theta, X, y = _rows(theta, X, y)
        return np.asarray(self._slopes(theta, X, y) @ X)

    def lipschitz(self, row_norm: float) -> float:
        """A bound on the L2 norm of the gradient of a row with ‖x‖₂ ≤ ``row_norm``."""
        bound = self.slope_bound * positive("row_norm", row_norm)
        return bound if self.clip is None else min(bound, self.clip)

    def smoothness(self, row_norm: float) -> float:
        """A bound β on the curvature of the loss of such a row in L2, before clipping."""
        return self.curvature_bound * positive("row_norm", row_norm) ** 2

    def slope_rounding(self, eta: float) -> float:
        """How far a computed ψ may be off for |η| ≤ ``eta``, in units of 2⁻⁵³, beside a relative error of one unit.

        8 for the logistic function, and for differences none; the densities of probit are exponentials of −η²/2 and
        ln Φ, whose errors are relative: (8 + η²)(1 + |η|) in all. The same is taken for losses that are not of the
        table.

        Examples
        --------
        >>> from dpkit.optimize import glm
        >>> glm("logistic").slope_rounding(3.0), glm("probit").slope_rounding(3.0)
        (8.0, 68.0)
        """
        return 8.0 if self.name in ("logistic", "squared", "huber", "linear") else (8.0 + eta * eta) * (1.0 + abs(eta))

    def _slopes(self, theta: Array, X: Array, y: Array) -> Array:
        """ψ, cut so that ‖ψ·x‖₂ ≤ clip."""
        if self.clip is None:
            return self.slope(X @ theta, y)
        with np.errstate(all="ignore"):  # what overflows is clipped
            return clipped(self.slope(X @ theta, y), lengths(X), self.clip)[0]


def _rows(theta: ArrayLike, X: ArrayLike, y: ArrayLike) -> tuple[Array, Array, Array]:
    theta, X, y = (np.asarray(value, dtype=np.float64) for value in (theta, X, y))
    if X.ndim != 2 or theta.shape != X.shape[1:] or y.shape != X.shape[:1]:
        raise ValueError(
            f"theta, X and y must have shapes (d,), (n, d) and (n,), got {theta.shape}, {X.shape} and {y.shape}"
        )
    return theta, X, y


def _matching_loss(eta: Array, y: Array, integral: Callable[[Array], Array]) -> Array:
    return np.asarray(integral(eta) - y * eta)


def _matching_slope(eta: Array, y: Array, mean: Callable[[Array], Array]) -> Array:
    return np.asarray(mean(eta) - y)


def _matching(link: Link, slope_bound: float, curvature_bound: float) -> GLM:
    loss, slope = partial(_matching_loss, integral=link.integral), partial(_matching_slope, mean=link.mean)
    return GLM(
        link.name,
        loss,
        slope,
        slope_bound=slope_bound,
        curvature_bound=curvature_bound,
        response_range=link.reward_range,
    )


def _probit_loss(eta: Array, y: Array) -> Array:
    from scipy.special import log_ndtr

    return np.asarray(-y * log_ndtr(eta) - (1.0 - y) * log_ndtr(-eta))


def _probit_slope(eta: Array, y: Array) -> Array:
    from scipy.special import log_ndtr

    log_density = -0.5 * np.square(eta) - 0.5 * math.log(2.0 * math.pi)
    return np.asarray((1.0 - y) * np.exp(log_density - log_ndtr(-eta)) - y * np.exp(log_density - log_ndtr(eta)))


# e^η stays finite, and its products with y and x do, up to here
_LARGEST_EXPONENT = 300.0


def _finite_exp(eta: Array) -> Array:
    return np.asarray(np.exp(np.minimum(eta, _LARGEST_EXPONENT)))


def _huber_loss(eta: Array, y: Array, threshold: float) -> Array:
    cut = _huber_slope(eta, y, threshold)
    return np.asarray(cut * (eta - y - 0.5 * cut))


def _huber_slope(eta: Array, y: Array, threshold: float) -> Array:
    return np.asarray(np.clip(eta - y, -threshold, threshold))


@lru_cache(maxsize=64)  # so that two objectives of the same threshold are equal, as those of the other losses are
def _huber(threshold: float) -> GLM:
    return GLM(
        "huber",
        partial(_huber_loss, threshold=threshold),
        partial(_huber_slope, threshold=threshold),
        slope_bound=threshold,
        curvature_bound=1.0,
    )


_LOSSES = {
    "logistic": _matching(get_link("logistic"), slope_bound=1.0, curvature_bound=0.25),
    "probit": GLM(
        "probit",
        _probit_loss,
        _probit_slope,
        slope_bound=math.inf,
        curvature_bound=1.0,
        response_range=(0.0, 1.0),
    ),
    "squared": GLM(
        "squared",
        lambda eta, y: 0.5 * np.square(eta - y),
        lambda eta, y: eta - y,
        slope_bound=math.inf,
        curvature_bound=1.0,
    ),
    "linear": GLM(
        "linear",
        lambda eta, y: y * eta,
        lambda eta, y: y * np.ones_like(eta),
        slope_bound=math.inf,
        curvature_bound=0.0,
    ),
    "poisson": _matching(
        replace(get_link("poisson"), mean=_finite_exp, integral=_finite_exp),
        slope_bound=math.inf,
        curvature_bound=math.inf,
    ),
}


def glm(loss: str, *, threshold: float | None = None, clip: float | None = None) -> GLM:
    """The loss of a generalized linear model by its name, "logistic" say; the module's table has the names.

    Parameters
    ----------
    loss : {"logistic", "probit", "squared", "poisson", "huber", "linear"}
    threshold : float, optional
        Where Huber's loss turns from quadratic to linear, in the unit of y; by default 1. For "huber" only.
    clip : float, optional
        The L2 norm to which longer gradients of single rows are scaled back.

    Raises
    ------
    ValueError
        For an unknown loss, a ``threshold`` or ``clip`` that is not positive, or a ``threshold`` of another loss.

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.optimize import glm
    >>> objective = glm("logistic", clip=0.5)
    >>> X, y = np.array([[0.6, 0.8], [3.0, 4.0]]), np.array([1.0, 0.0])
    >>> objective.gradients(np.zeros(2), X, y).round(3)
    array([[-0.3, -0.4],
           [ 0.3,  0.4]])
    >>> round(objective.mean(np.zeros(2), X, y), 4), objective.smoothness(1.0)
    (0.6931, 0.25)
    >>> glm("huber", threshold=0.5).lipschitz(2.0)
    1.0
    """
    if loss == "huber":
        found = _huber(1.0 if threshold is None else positive("threshold", threshold))
    else:
        try:
            found = _LOSSES[loss]
        except (KeyError, TypeError):
            names = ", ".join(map(repr, sorted([*_LOSSES, "huber"])))
            raise ValueError(f"loss must be one of {names}, got loss={loss!r}") from None
        if threshold is not None:
            raise ValueError(f"threshold is for the loss 'huber' only, got threshold={threshold!r}, loss={loss!r}")
    return found if clip is None else replace(found, clip=clip)


def matching_loss(link: str | Link, theta_bound: float, *, clip: float | None = None) -> GLM:
    """The loss m(η) − yη of a link μ = m′, whose slope is μ(η) − y, for any link.

    For the canonical links it is the negative log-likelihood up to a constant: logistic, linear (half the square) and
    poisson. For others it is convex all the same, as μ increases (Auer, Herbster & Warmuth 1995).

    Parameters
    ----------
    link : str or Link
    theta_bound : float
        S: its ``curvature_bound`` is the largest slope of the link over |η| ≤ S.
    clip : float, optional
        The L2 norm to which longer gradients of single rows are scaled back.

    Raises
    ------
    ValueError
        For an unknown link, or a ``theta_bound`` or ``clip`` that is not positive.

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.models import matching_loss
    >>> objective = matching_loss("probit", theta_bound=2.0, clip=1.0)
    >>> objective.gradients(np.zeros(2), [[0.6, 0.8]], [1.0]).round(3)
    array([[-0.3, -0.4]])
    """
    known = get_link(link)
    found = _matching(known, slope_bound=math.inf, curvature_bound=known.lipschitz(theta_bound))
    return found if clip is None else replace(found, clip=clip)

"""Principal components of a noisy second moment.

Source: "Analyze Gauss" (Dwork, Talwar, Thakurta & Zhang 2014): the eigenvectors of a second moment with symmetric
Gaussian noise. With c the public centre, R = ``row_norm``, h = R/√8 and x_i the rows less c, shortened to R,

    G = Σ w_i·w_iᵀ + noise,  w_i = (x_i, h),      m = G_{x,h}/(n·h),      C = G_xx/n − m·mᵀ.

One release has the second moment, the sum and the number of rows. The h was chosen for a mean of up to about R/2: a
longer h would put more noise into the moment, (1 + h²/R²) times as much, a shorter one into the mean, whose noise has
the standard deviation (R² + h²)/(√2·h·n) times that of G in units of R² + h².

Privacy. Unit: one row, or with ``groups`` one person, who contributes the mean of w·wᵀ over any number of rows. In
Frobenius norm a unit moves Σ w·wᵀ by at most √2·(R² + h²) under replace, else by R² + h²; half-vectors have the same
norm. That costs Gaussian(z), z calibrated to the budget. The rest is computed from what was released, and n, which is
public except under add_remove, where it is G_hh/h². Sums and noise are exact.

Cost: n·d² for the sums, and an eigendecomposition.
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from accounting import Budget, Ledger
from accounting.arrays import Array
from accounting.checks import integer, positive
from dpkit.mechanisms._checked import charged
from dpkit.sklearn._estimator import CountsFits, as_a_whole
from dpkit.sklearn._moments import asked, calibrate_gaussian, noisy_second_moment, public_box

__all__ = ["PrivatePCA"]

# h/R
_CONSTANT = math.sqrt(0.125)


class PrivatePCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, CountsFits):  # type: ignore[misc]
    """Principal component analysis from one noisy second moment.

    Parameters
    ----------
    n_components : int, optional
        How many components are kept; by default all of them.
    budget : Budget
        Of one fit; of any adjacency, with δ > 0. It must be given.
    bounds : (low, high), optional
        Public, each a number or one per feature: values are cut to them. Their middle is the public centre.
    row_norm : float, optional
        R, public: rows that are farther from the centre are pulled to this distance. By default half of the diagonal of
        ``bounds``. Noise grows as R²: choose the smallest R that leaves most rows as they are. One of the two must be
        given; without ``bounds`` the centre is 0.
    ledger : Ledger, optional
        Charged by every ``fit``, before any noise is drawn.
    random_state : int, Generator or RandomState, optional
        None draws from the secure source; anything else gives a simulation.

    Attributes
    ----------
    components_ : (n_components, d) ndarray
        Orthonormal rows, the largest variance first; in each the largest entry is positive.
    explained_variance_ : (n_components,) ndarray
        The eigenvalues of C; those below 0 count as 0. Noise makes the largest ones too large: by about
        ``noise_std_``·√(2d) where the true ones are much smaller than that.
    explained_variance_ratio_ : (n_components,) ndarray
        Over the sum of all eigenvalues above 0.
    mean_ : (d,) ndarray
        The noisy mean of the rows.
    noise_std_ : float
        The standard deviation of the noise in a diagonal entry of G_xx/n.
    cost_ : Gaussian
        What the last fit cost.
    n_components_, n_features_in_ : int
    feature_names_in_ : ndarray, where X had names

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.sklearn import PrivatePCA
    >>> X = np.random.default_rng(0).normal(size=(5000, 3)) * [5.0, 1.0, 1.0] + 20.0
    >>> pca = PrivatePCA(1, budget=Budget(1.0, 1e-6), bounds=(0.0, 40.0), row_norm=15.0).fit(X)
    >>> bool(abs(pca.components_[0, 0]) > 0.95), pca.transform(X).shape
    (True, (5000, 1))
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        budget: Budget | None = None,
        bounds: tuple[ArrayLike, ArrayLike] | None = None,
        row_norm: float | None = None,
        ledger: Ledger | None = None,
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
    ) -> None:
        self.n_components = n_components
        self.budget = budget
        self.bounds = bounds
        self.row_norm = row_norm
        self.ledger = ledger
        self.random_state = random_state

    @as_a_whole
    def fit(self, X: ArrayLike, y: Any = None, groups: ArrayLike | None = None) -> Self:
        """Spend the budget on a fit.

        Parameters
        ----------
        X : (n, d) array_like
        y : None
            Not used.
        groups : (n,) array_like of int or str, optional
            Whose row each one is. Then the budget's ``unit`` must be "person".

        Raises
        ------
        ValueError, TypeError
            For a parameter out of range, or rows that are not finite. Nothing is drawn or charged.
        BudgetExceeded
            If the ledger refuses.
        """
        given = asked(self, X, groups)
        rows, d = given.rows, given.rows.shape[1]
        kept = d if self.n_components is None else integer("n_components", self.n_components, at_least=1)
        if kept > d:
            raise ValueError(f"n_components must be at most the number of features, {d}, got n_components={kept}")
        if self.bounds is None and self.row_norm is None:
            raise ValueError("row_norm or bounds must be given, got None for both: they must be public")
        centre = np.zeros(d)
        R = 1.0 if self.row_norm is None else positive("row_norm", self.row_norm)
        if not 1e-100 <= R <= 1e100:
            raise ValueError(f"row_norm must lie in [1e-100, 1e100], got row_norm={R!r}")
        if self.bounds is not None:
            centre, half = public_box(self.bounds, d)
            rows = np.clip(rows, centre - half, centre + half)
            if self.row_norm is None:
                R = float(np.linalg.norm(half)) * (1.0 + 2.0**-30)
        h = _CONSTANT * R
        cost = calibrate_gaussian(given.budget)

        with charged(given.ledger, cost, "PrivatePCA", given.source), np.errstate(over="ignore"):
            moment, mechanism = noisy_second_moment(given, rows - centre, R, h, cost.noise_multiplier)
        moment = moment * (R * R + h * h)
        n = given.divisor(float(moment[d, d]) / (h * h))
        offset = moment[:d, d] / (n * h)
        length = float(np.linalg.norm(offset))
        offset *= min(1.0, R / length) if length > 0 else 1.0  # a mean of shortened rows is no longer than they are
        values, vectors = np.linalg.eigh(moment[:d, :d] / n - np.outer(offset, offset))
        values, components = np.maximum(values[::-1], 0.0), vectors[:, ::-1].T[:kept]
        largest = np.abs(components).argmax(axis=1)
        self.components_ = components * np.sign(components[np.arange(kept), largest])[:, None]
        self.explained_variance_ = values[:kept]
        self.explained_variance_ratio_ = values[:kept] / max(float(values.sum()), 5e-324)
        self.mean_ = centre + offset
        self.noise_std_ = mechanism.noise_std((d + 1) * (d + 2) // 2) * (R * R + h * h) / n
        self.n_components_, self.cost_ = kept, cost
        self.fits().note(given.budget, given.ledger, clone="_cloned" in self.__dict__)
        return self

    def transform(self, X: ArrayLike) -> Array:
        """The coordinates of rows, which are not cut, along the components: shape (n, n_components)."""
        check_is_fitted(self)
        rows: Array = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray((rows - self.mean_) @ self.components_.T)

    def inverse_transform(self, X: ArrayLike) -> Array:
        """The points (n, d) that have these coordinates (n, n_components)."""
        check_is_fitted(self)
        coordinates = np.asarray(X, dtype=np.float64)
        if coordinates.ndim != 2 or coordinates.shape[1] != self.n_components_:
            raise ValueError(f"X must have shape (n, {self.n_components_}), got X.shape={coordinates.shape}")
        return np.asarray(coordinates @ self.components_ + self.mean_)

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)

"""Standard scaling by a mean and a variance of every feature, released with noise.

With u ∈ [−1, 1]^d the place of a row between its public bounds, one release has Σ u_j and Σ u_j² of all features (and,
under add_remove, the number of rows).

Privacy. Unit: one row, or with ``groups`` one person, who contributes the mean over any number of rows. The vector
(u, a·u²) of a row has a length of at most √(d(1 + a²)): so far does a row move the sums that comes, goes or is blanked,
with a = 1. A number of rows is counted by a further entry ½√d. Where a row is replaced, a² = 2, and feature j moves by

    (u − v)²(1 + 2(u + v)²) ≤ δ²(1 + 2(2 − δ)²) ≤ 4,        δ = |u − v|,  |u + v| ≤ 2 − δ.

The last step is 2δ²(2 − δ) ≤ 2 + δ: its left side is at most 64/27 (at δ = 4/3), and at most 4δ² < 2 for δ < 0.7. So
the squares are free, and all features move by at most 2√d. Squares are cut off to whole multiples of 2⁻¹⁸, by which two
of them differ by less than 2⁻¹⁸ more. The release costs Gaussian(z), z calibrated to the budget. Sums and noise are
exact.

Cost: O(n·d).
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from accounting import Budget, Ledger
from accounting.arrays import Array
from dpkit.mechanisms._checked import charged
from dpkit.sklearn._estimator import CountsFits, as_a_whole
from dpkit.sklearn._moments import asked, calibrate_gaussian, noisy_sums, public_box
from dpkit.training.whole_rows import BITS

__all__ = ["PrivateScaler"]


class PrivateScaler(OneToOneFeatureMixin, TransformerMixin, CountsFits):  # type: ignore[misc]
    """Scale features by a noisy mean and standard deviation: a ``StandardScaler`` that is paid for.

    With public knowledge of the scales :class:`dpkit.features.PublicScaler` costs nothing, and with bounds that may be
    ten times too wide the quantiles of :func:`dpkit.features.private_scaler` do better.

    Parameters
    ----------
    budget : Budget
        Of one fit; of any adjacency, with δ > 0. It must be given.
    bounds : (low, high)
        Public, each a number or one per feature. Values are cut to them, in ``transform`` too. They must be given.
    ledger : Ledger, optional
        Charged by every ``fit``, before any noise is drawn.
    random_state : int, Generator or RandomState, optional
        None draws from the secure source; anything else gives a simulation.

    Attributes
    ----------
    mean_, scale_ : (d,) ndarray
        The mean lies within ``bounds``. A scale is at most half of the bounds' width; a variance that is smaller than
        the standard deviation of its noise counts as that.
    cost_ : Gaussian
        What the last fit cost.
    n_features_in_ : int
    feature_names_in_ : ndarray, where X had names

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.sklearn import PrivateScaler
    >>> X = np.random.default_rng(0).normal([170.0, 30.0], [10.0, 5.0], size=(10_000, 2))
    >>> scaler = PrivateScaler(budget=Budget(1.0, 1e-6), bounds=([120, 0], [220, 60])).fit(X)
    >>> bool(np.abs(scaler.transform(X).mean(axis=0)).max() < 0.05), scaler.scale_.round().tolist()
    (True, [10.0, 5.0])
    """

    def __init__(
        self,
        *,
        budget: Budget | None = None,
        bounds: tuple[ArrayLike, ArrayLike] | None = None,
        ledger: Ledger | None = None,
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
    ) -> None:
        self.budget = budget
        self.bounds = bounds
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
        n, d = given.rows.shape
        middle, half = public_box(self.bounds, d)
        u = (np.clip(given.rows, middle - half, middle + half) - middle) / half
        first = np.clip(np.trunc(u * 2.0**BITS), -(2.0**BITS), 2.0**BITS)
        second = np.floor(first**2 * 2.0**-BITS)
        adjacency = given.budget.adjacency
        a = math.sqrt(2.0) if adjacency == "replace" else 1.0
        counted = 0.25 * d if adjacency == "add_remove" else 0.0
        moves = 2.0 * math.sqrt(d) if adjacency == "replace" else math.sqrt(d * (1.0 + a * a) + counted)
        cost = calibrate_gaussian(given.budget)
        weights = np.concatenate([np.ones(d), np.full(d, a), np.full(int(counted > 0), math.sqrt(counted))])
        ones = np.full((n, int(counted > 0)), 2.0**BITS)

        with charged(given.ledger, cost, "PrivateScaler", given.source):
            whole = np.column_stack([first, second, ones])
            sums, mechanism = noisy_sums(
                given,
                np.ones((n, 1)),
                whole,
                moves + a * math.sqrt(d) * 2.0**-BITS,
                cost.noise_multiplier,
                weights=weights,
            )
        noisy = sums[0] / weights
        count = given.divisor(float(noisy[-1]))
        mean = np.clip(noisy[:d] / count, -1.0, 1.0)
        least = mechanism.noise_std(sums.size) / (a * count)
        variance = np.clip(noisy[d : 2 * d] / count - mean**2, min(least, 1.0), 1.0)
        self.mean_, self.scale_ = middle + half * mean, half * np.sqrt(variance)
        self.cost_ = cost
        self.fits().note(given.budget, given.ledger, clone="_cloned" in self.__dict__)
        return self

    def transform(self, X: ArrayLike) -> Array:
        """(x − mean_)/scale_ for x within the bounds: shape (n, d)."""
        check_is_fitted(self)
        rows: Array = validate_data(self, X, dtype=np.float64, reset=False)
        middle, half = public_box(self.bounds, rows.shape[1])
        return np.asarray((np.clip(rows, middle - half, middle + half) - self.mean_) / self.scale_)

    def inverse_transform(self, X: ArrayLike) -> Array:
        """The rows (n, d), cut to the bounds, that :meth:`transform` made these from."""
        check_is_fitted(self)
        scaled = np.asarray(X, dtype=np.float64)
        if scaled.ndim != 2 or scaled.shape[1] != len(self.mean_):
            raise ValueError(f"X must have shape (n, {len(self.mean_)}), got X.shape={scaled.shape}")
        return np.asarray(scaled * self.scale_ + self.mean_)

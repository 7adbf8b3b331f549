"""k-means by Lloyd's iterations on noisy counts and sums, from a start that a noisy second moment gives.

Sources: Lloyd's iterations with noise, Blum, Dwork, McSherry & Nissim (2005) and Su, Cao, Li, Bertino & Jin (2016).
What is different here: the start, what a release holds, and that a centre moves only as far as its noise allows.

Coordinates. r_j is half of the length of the public range of feature j. Rows are cut to these, counted from the middle
and divided by √r_j, so that ‖u‖² ≤ S = Σ r_j. Isotropic noise on u is noise of variance r_j·S (per unit of σ²) on
feature j, S² in all: the least of all scales s_j for which noise on feature j has the standard deviation s_j·(Σ
r_i²/s_i²)^½, by the inequality of Cauchy and Schwarz. (Scaled to a cube it would be d·Σ r_j².)

1. Start: the noisy second moment of (u, h), as in :class:`PrivatePCA`, for a mean and a covariance. Each entry is drawn
   towards a public prior (rows about the middle, of variance 0.15·r_j in u_j, uncorrelated) by the weight that its
   noise leaves it. The centres are those of ordinary k-means on points drawn from the normal law with that mean and
   covariance, cut to the ranges, by a public seed. Where noise drowns the moment, they are spread over the middle of
   the bounds.
2. T times: the sum of (u, c) over the rows that are nearest to each centre, with noise. Centre k moves by w·(Σu −
   Σc/c·before)/n_k, with the weight w = τ²/(τ² + noise²) of a normal prior; τ² is a tenth of the variance of a feature.

T, from 1 to 6, is chosen by what the start released: as many as keep the noise of a centre below half of the spread of
rows, and at least one.

Privacy. Unit: one row, or with ``groups`` one person, who contributes the mean of what the person's rows would. The
start moves as in :class:`PrivatePCA`. In an iteration a row adds one vector (u, c) to one of k cells, ‖(u, c)‖² ≤ L² =
S + c². It moves all cells together by at most L where it comes, goes or is blanked. Where it is replaced, by at most
√2·L into another cell, and by at most ‖u − u′‖ ≤ 2√S in the same, where c cancels. With c² = S under replace both are
2√S: the counts are free. Else c² = ½(Σ r_j²)^½, which is near the least noise of a centre, S(S + c²) + M(S + c²)/c²,
for one at the squared distance M = ¼Σ r_j² from the middle. The start costs Gaussian(z/√s), s = 0.5, and T iterations
cost T times Gaussian(z√(T/(1 − s))), whichever T is chosen once the start is known: Gaussian(z/√(1 − s)), which is what
is charged. Together that is Gaussian(z), z calibrated to the budget. Which centre is nearest is computed for each row
from this row alone. Sums and noise are exact.

Cost: n·d² for the start, and 2·n·d·k for an iteration.
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.cluster import KMeans
from sklearn.utils.validation import check_is_fitted, validate_data

from accounting import Budget, Gaussian, Ledger, Release, calibrate
from accounting.arrays import Array
from accounting.checks import integer
from dpkit.geometry import nearest_psd
from dpkit.mechanisms._checked import charged
from dpkit.sklearn._estimator import CountsFits, as_a_whole
from dpkit.sklearn._moments import Asked, asked, noisy_second_moment, noisy_sums, public_box
from dpkit.training.whole_rows import BITS, UnitRows

__all__ = ["PrivateKMeans"]

# s
_START = 0.5
# T at most
_MOST = 6
# of a feature's variance: τ²
_PRIOR = 0.1
# of a squared half-range: the variance of rows, and of their mean, that is expected beforehand
_SPREAD = 0.15
_MEAN = 0.1
# points that the centres of a normal law are found on
_POINTS = 2000


class PrivateKMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, CountsFits):  # type: ignore[misc]
    """k-means from noisy counts and sums.

    The labels of the training rows are not private, so a fit keeps none: there is no ``labels_`` and no ``inertia_``.

    Parameters
    ----------
    n_clusters : int
        k.
    budget : Budget
        Of one fit; of any adjacency, with δ > 0. It must be given.
    bounds : (low, high)
        Public, each a number or one per feature: values are cut to them. They must be given. Noise grows with their
        width, so one feature with a range that is far too wide harms the others, too.
    ledger : Ledger, optional
        Charged by every ``fit``, before any noise is drawn.
    random_state : int, Generator or RandomState, optional
        None draws from the secure source; anything else gives a simulation.

    Attributes
    ----------
    cluster_centers_ : (k, d) ndarray
        Within ``bounds``.
    n_iter_ : int
        T.
    cost_ : Release
        What the last fit cost.
    n_features_in_ : int
    feature_names_in_ : ndarray, where X had names

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.sklearn import PrivateKMeans
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(3000, 2)) + 10.0 * np.array([[0, 0], [1, 1], [2, 0]])[rng.integers(3, size=3000)]
    >>> model = PrivateKMeans(3, budget=Budget(1.0, 1e-6), bounds=(-5.0, 25.0)).fit(X)
    >>> model.cluster_centers_[model.predict([[0.0, 0.0], [10.0, 10.0], [20.0, 0.0]])].round(-1).astype(int).tolist()
    [[0, 0], [10, 10], [20, 0]]
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        budget: Budget | None = None,
        bounds: tuple[ArrayLike, ArrayLike] | None = None,
        ledger: Ledger | None = None,
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
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
        k, d = integer("n_clusters", self.n_clusters, at_least=1), given.rows.shape[1]
        middle, half = public_box(self.bounds, d)
        unit = np.sqrt(half)
        shifted = np.clip(given.rows, middle - half, middle + half) - middle
        u = np.clip(shifted / unit, -unit, unit)
        budget = given.budget

        def costs(z: float) -> Release:
            one = [Gaussian(z / math.sqrt(share), adjacency=budget.adjacency) for share in (_START, 1.0 - _START)]
            return one[0] + one[1]

        z = calibrate(costs, budget)
        cost = costs(z)
        with charged(given.ledger, cost, "PrivateKMeans", given.source):
            law = _Law(given, u, unit, z / math.sqrt(_START))
            centres = law.centres(unit, k)
            cells = _Cells(given, u, UnitRows(shifted), unit, k)
            T = cells.iterations(z / math.sqrt(1.0 - _START), law)
            for _ in range(T):
                centres = cells.moved(centres, z * math.sqrt(T / (1.0 - _START)), law)
        self.cluster_centers_ = middle + centres * unit
        self.n_iter_, self.cost_ = T, cost
        self.fits().note(budget, given.ledger, clone="_cloned" in self.__dict__)
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.intp]:
        """Which centre is nearest to each row: shape (n,)."""
        return np.asarray(self.transform(X).argmin(axis=1))

    def transform(self, X: ArrayLike) -> Array:
        """The distances (n, k) from the centres."""
        check_is_fitted(self)
        rows: Array = validate_data(self, X, dtype=np.float64, reset=False)
        return np.column_stack([np.linalg.norm(rows - centre, axis=1) for centre in self.cluster_centers_])

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)


class _Law:
    """A normal law of u, from a noisy second moment."""

    def __init__(self, given: Asked, u: Array, unit: Array, z: float) -> None:
        d = len(unit)
        R = float(np.linalg.norm(unit)) * (1.0 + 2.0**-30)
        h = math.sqrt(0.125) * R  # as in PrivatePCA
        moment, mechanism = noisy_second_moment(given, u, R, h, z)
        moment *= R * R + h * h
        noise = mechanism.noise_std((d + 1) * (d + 2) // 2) * (R * R + h * h)
        self.count = given.divisor(float(moment[d, d]) / (h * h))
        # a prior of rows that lie loosely within the bounds, which is all that is left where noise drowns the moment
        mean = moment[:d, d] / (self.count * h)
        off = 0.5 * (noise / (self.count * h)) ** 2
        self.mean = np.clip(mean * (_MEAN * unit**2) / (_MEAN * unit**2 + off), -unit, unit)
        found = moment[:d, :d] / self.count - np.outer(self.mean, self.mean)
        prior, usual = _SPREAD * np.diag(unit**2), (_SPREAD * np.outer(unit, unit)) ** 2
        entries = (noise / self.count) ** 2 * (0.5 + 0.5 * np.eye(d))
        self.covariance = nearest_psd(prior + (found - prior) * usual / (usual + entries))
        values, basis = np.linalg.eigh(self.covariance)
        self.root = basis * np.sqrt(np.maximum(values, 0.0))
        # no variance of numbers within ±√r is above r
        self.variance = np.clip(self.covariance.diagonal(), 1e-3 * unit**2, unit**2)

    def centres(self, unit: Array, k: int) -> Array:
        """The k centres of this law: shape (k, d)."""
        public = np.random.default_rng(0)
        points = np.clip(
            self.mean + public.standard_normal((max(_POINTS, 50 * k), len(unit))) @ self.root.T, -unit, unit
        )
        found = KMeans(k, n_init=1, random_state=0).fit(points * unit).cluster_centers_ / unit
        return np.asarray(np.clip(found, -unit, unit))


class _Cells:
    """Noisy sums over the rows that are nearest to each centre."""

    def __init__(self, given: Asked, u: Array, shifted: UnitRows, unit: Array, k: int) -> None:
        S = float((unit**2).sum())
        replaced = given.budget.adjacency == "replace"
        self.c = math.sqrt(S if replaced else 0.5 * float(np.linalg.norm(unit**2)))
        self.moves = math.sqrt(2.0) if replaced else 1.0
        self.L = math.hypot(math.sqrt(S), self.c) * (1.0 + 2.0**-40)
        whole = np.column_stack([u, np.full(len(u), self.c)])
        self.whole = np.trunc(whole * (2.0**BITS / self.L))
        self.given, self.shifted, self.unit, self.k = given, shifted, unit, k

    def iterations(self, z: float, law: _Law) -> int:
        """T: noise of a centre, of variance T·``noise``, stays below a quarter of the variance of rows."""
        noise = (z * self.moves * self.L * self.k / law.count) ** 2 * float((self.unit**2).sum())
        return int(min(_MOST, max(1.0, 0.25 * float(self.unit**2 @ law.variance) / noise)))

    def moved(self, centres: Array, z: float, law: _Law) -> Array:
        """The centres after one iteration."""
        places = centres * self.unit
        # of a row from this row alone: the products are exact
        nearest = (self.shifted.products(places) - 0.5 * (places**2).sum(axis=1)).argmax(axis=1)
        parts = (nearest[:, None] == np.arange(self.k)).astype(np.float64)
        sums, mechanism = noisy_sums(self.given, parts, self.whole, self.moves, z)
        noise = mechanism.noise_std(sums.size) * self.L
        counts = sums[:, -1:] * (self.L / self.c)
        known = np.maximum(counts, noise / self.c)
        step = (sums[:, :-1] * self.L - counts * centres) / known
        variance = (noise / known) ** 2 * (1.0 + (centres / self.c) ** 2)
        prior = _PRIOR * law.variance
        return np.asarray(np.clip(centres + step * prior / (prior + variance), -self.unit, self.unit))

"""Columns into the unit ball, by bounds that say nothing about the data: public ones, or quantiles with noise.

For whoever has columns in their own units and a policy or model that wants rows of norm at most 1. A feature is cut to
[low, high], counted from its centre c, and divided by its largest distance from there; the row of d such numbers in
[−1, 1] is divided by √d:

    x_i = (min(max(f_i, low_i), high_i) − c_i) / (√d · max(high_i − c_i, c_i − low_i)),        ‖x‖ ≤ 1.

Why centred: features in [0, 1] mostly share one direction, in which all arms look alike; it takes up the length of x
and the privacy noise, and decides nothing.

Privacy. ``PublicScaler`` knows its bounds from public knowledge (an age lies between 0 and 110), never from the data
that is to be protected: a minimum of the data is somebody's value. ``private_scaler`` releases quantiles with noise; it
costs what its ledger is charged. Unit: one row, or one person where ``person`` says whose row it is. What a scaler
holds is public either way.

Cost: O(d) per row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Budget
from accounting.arrays import Array
from accounting.checks import fraction
from dpkit.queries import quantile

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["PublicScaler", "private_scaler"]

Bound = ArrayLike | Mapping[str, float]


class PublicScaler:
    """A transform of features with public bounds into the unit ball, in the manner of scikit-learn.

    Parameters
    ----------
    low, high : float, sequence of d floats, or mapping from column names to floats
        Public bounds; values outside are cut to them. With names, tables are read by these columns, in this order.
    centre : as ``low``, optional
        What becomes 0; by default the middle of the bounds. Between them, and public as they are.
    constant : bool
        Put a constant feature before the others, as long as the longest of them, √(d + 1) in place of √d: for models
        without an intercept. (A constant that is longer takes up privacy noise, and decides nothing.)

    Raises
    ------
    ValueError
        If a bound is not finite, they are not increasing, or a centre is outside; from ``transform`` for NaN, and for
        rows of another length.

    Examples
    --------
    >>> scaler = PublicScaler(low=[0, 1900], high=[10, 2100])
    >>> scaler.transform([[5, 2000], [10, 2100], [-3, 1950]]).round(3).tolist()
    [[0.0, 0.0], [0.707, 0.707], [-0.707, -0.354]]
    """

    def __init__(self, *, low: Bound, high: Bound, centre: Bound | None = None, constant: bool = False) -> None:
        self.low, self.high, self.centre, self.constant = low, high, centre, bool(constant)
        names = [list(bound) for bound in (low, high, centre) if isinstance(bound, Mapping)]
        self.columns: list[str] | None = names[0] if names else None
        if any(set(found) != set(names[0]) for found in names):
            raise ValueError(f"low, high and centre must name the same columns, got {names}")
        bottom, top = self._numbers("low", low), self._numbers("high", high)
        given = None if centre is None else self._numbers("centre", centre)
        try:
            middle = 0.5 * bottom + 0.5 * top if given is None else given
            self._low, self._high, self._centre = (b.copy() for b in np.broadcast_arrays(bottom, top, middle))
        except ValueError as error:
            raise ValueError("low, high and centre must have one entry per feature, got several lengths") from error
        if not (self._low < self._high).all():
            raise ValueError(f"low must be below high for every feature, got low={low!r} and high={high!r}")
        if not ((self._low <= self._centre) & (self._centre <= self._high)).all():
            raise ValueError(f"centre must lie between low and high for every feature, got centre={centre!r}")
        self._reach = np.maximum(self._high - self._centre, self._centre - self._low)

    def _numbers(self, name: str, bound: Bound) -> Array:
        if isinstance(bound, Mapping):
            bound = [bound[column] for column in self.columns or ()]
        found = np.atleast_1d(np.asarray(bound, dtype=np.float64))
        if found.ndim != 1 or not np.isfinite(found).all():
            raise ValueError(f"{name} must be finite, one number per feature, got {name}={bound!r}")
        return found

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Nothing is learned: bounds are public. For pipelines."""
        return self

    def transform(self, X: Any) -> Array:
        """Rows of norm at most 1.

        Parameters
        ----------
        X : array, or table of pandas, polars or pyarrow, of shape (n, d); or one row of shape (d,)

        Returns
        -------
        ndarray of the same shape, with one column more if ``constant``
        """
        rows = self._rows(X)
        d = rows.shape[-1]
        if self._low.size not in (1, d) or rows.ndim not in (1, 2):
            raise ValueError(f"X must have rows of {self._low.size} features, got shape {rows.shape}")
        if np.isnan(rows).any():
            column = int(np.argwhere(np.isnan(rows))[0][-1])
            raise ValueError(
                f"X must not hold NaN: fill missing values with a number that does not depend on the data, got one in "
                f"column {column if self.columns is None else self.columns[column]!r}"
            )
        # one spare rounding step, so that rows are at most 1 long and not just about 1
        length = np.sqrt(d + self.constant) * (1.0 + 2.0**-50)
        scaled: Array = (np.clip(rows, self._low, self._high) - self._centre) / (self._reach * length)
        if self.constant:
            ones = np.full((*scaled.shape[:-1], 1), 1.0 / length)
            scaled = np.concatenate([ones, scaled], axis=-1)
        return scaled

    def fit_transform(self, X: Any, y: Any = None) -> Array:
        """:meth:`transform`."""
        return self.transform(X)

    def _rows(self, X: Any) -> Array:
        if self.columns is not None and (isinstance(X, Mapping) or hasattr(X, "columns")):
            X = np.stack([np.asarray(X[column], dtype=np.float64) for column in self.columns], axis=-1)
        try:
            return np.asarray(X, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"X must be rows of real numbers of the same length, got {type(X).__name__}") from error

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> NDArray[np.object_]:
        """The names of the columns, the constant one first."""
        names = self.columns or list(input_features or [f"x{i}" for i in range(self._low.size)])
        return np.array((["constant"] if self.constant else []) + names, dtype=object)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments, for ``sklearn.base.clone``."""
        return {"low": self.low, "high": self.high, "centre": self.centre, "constant": self.constant}

    def set_params(self, **parameters: Any) -> Self:
        """Other arguments of the constructor."""
        self.__init__(**(self.get_params() | parameters))  # type: ignore[misc]
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(),
            input_tags=InputTags(),
            requires_fit=False,
        )

    def __repr__(self) -> str:
        return "PublicScaler(" + ", ".join(f"{name}={value!r}" for name, value in self.get_params().items()) + ")"


def private_scaler(
    data: Any,
    columns: Sequence[str] | None = None,
    *,
    bounds: tuple[Bound, Bound],
    share: float = 0.96,
    constant: bool = False,
    person: Any = None,
    max_contributions: int | None = None,
    budget: Budget,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> PublicScaler:
    """A scaler whose bounds and centres are quantiles of ``data``, released with noise.

    Parameters
    ----------
    data : array of shape (n, d), or table
    columns : sequence of str, optional
        Of a table: which; by default those that ``bounds`` name.
    bounds : (low, high)
        Public bounds, as of :class:`PublicScaler`, which may be ten times too wide: that costs little here.
    share : float
        In (0, 1): of every feature about this share of rows lies between the new bounds.
    constant : bool
        As in :class:`PublicScaler`.
    person, max_contributions, rng
        As in :func:`dpkit.queries.quantile`.
    budget : Budget
        What all of it may cost; every feature gets an equal part of ε and of δ.
    ledger : Ledger, optional
        Charged with every feature's quantiles before they are drawn.

    Notes
    -----
    Where the quantiles of a feature coincide (one with two values, say), its public bounds are kept.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Ledger
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> budget = Budget(1.0, 0.0)
    >>> data, ledger = rng.normal(170, 10, size=(5000, 1)), Ledger(budget)
    >>> scaler = private_scaler(data, bounds=(0, 1000), budget=budget, rng=rng, ledger=ledger)
    >>> np.round([scaler.low[0], scaler.centre[0], scaler.high[0]], -1), ledger.epsilon(0.0) <= 1
    (array([150., 170., 190.]), True)
    """
    tail = 0.5 * (1.0 - fraction("share", share))
    wide = PublicScaler(low=bounds[0], high=bounds[1])
    names = list(columns) if columns is not None else wide.columns
    d = np.shape(data)[1] if names is None else len(names)
    lows, highs = (np.broadcast_to(bound, d) for bound in (wide._low, wide._high))
    part = replace(budget, epsilon=budget.epsilon / d, delta=budget.delta / d)
    known: dict[str, Any] = {"person": person, "max_contributions": max_contributions, "rng": rng, "ledger": ledger}
    found = []
    for i, (low, high) in enumerate(zip(lows, highs, strict=True)):
        values = np.asarray(data[names[i]]) if names is not None else np.asarray(data)[:, i]
        answer = quantile(values, q=(tail, 0.5, 1 - tail), bounds=(float(low), float(high)), budget=part, **known)
        bottom, middle, top = map(float, answer.value)
        found.append((bottom, middle, top) if bottom < top else (float(low), float(low + high) / 2, float(high)))
    new = [list(column) for column in zip(*found, strict=True)]
    if names is None:
        return PublicScaler(low=new[0], centre=new[1], high=new[2], constant=constant)
    named = [dict(zip(names, column, strict=True)) for column in new]
    return PublicScaler(low=named[0], centre=named[1], high=named[2], constant=constant)

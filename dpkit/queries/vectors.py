"""The mean of several columns at once: of vectors that are cut to a ball.

Rows x are cut to the ball of radius R around a public centre, and v = (x − centre)/R, ‖v‖₂ ≤ 1, is rounded towards 0 to
a lattice, which makes it no longer; lengths are rounded up (``dpkit.clipping``), for radii from 1e-150 to 1e150. Where
the number of rows is private, each of them counts 1 in a cell of its own. Gaussian noise of one scale is added to the d
sums (and to the count).

Sensitivity in L2, with at most m rows of one unit. Where n is public: 2 for a swap, 1 for a null contribution, at the
centre. Where it is private: a unit with j ≤ m rows adds a vector of norm at most j to the sums and j to the count, so
that one that appears or vanishes moves all by at most √2·m, and a swap of j rows for j′ by at most
√((j + j′)² + (j − j′)²) ≤ 2m.

A radius that nobody knows is a private quantile of the distances from the centre (``quantiles``), between 0 and a
public bound that may be generous: error grows with its logarithm only. It takes a tenth of ε, and the noise what is
left of the budget when both are composed.

Intervals are Fieller's, as for a mean of one column (``moments``), each coordinate for itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Budget, Gaussian, NoisyMax, Release, calibrate
from accounting.arrays import Array
from accounting.checks import fraction, positive
from dpkit import randomness
from dpkit.clipping import lengths, real_array
from dpkit.mechanisms._checked import settle
from dpkit.queries._columns import mask, numbers
from dpkit.queries._groups import uses
from dpkit.queries._moment import fieller
from dpkit.queries._noise import Noise, range_per_round, spend, with_noise
from dpkit.queries._units import Share, check_spending, checked_share, kept_rows, owners
from dpkit.queries.answer import Answer
from dpkit.queries.quantiles import quantile

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["mean_vector"]


# of ε, for a radius
_SHARE_OF_RADIUS = 0.1
_BITS = 30
# Between them squares and products of lengths neither over- nor underflow.
_LEAST, _MOST = 1e-150, 1e150
_BLOCK = 1 << 14


def mean_vector(
    data: Any,
    columns: Sequence[str] | None = None,
    *,
    radius: float | None = None,
    largest: float | None = None,
    inside: float = 0.9,
    center: ArrayLike | None = None,
    where: Any = None,
    person: Any = None,
    max_contributions: int | None = None,
    budget: Budget | None = None,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> Answer:
    """The means of d columns, with noise that grows as √d and not as d.

    Parameters
    ----------
    data : array of shape (n, d), or table
    columns : sequence of str, optional
        Must be given with a table. Entries farther than 1e150 from the centre's are cut to that.
    radius : float, optional
        R: rows farther from the centre are cut to it. It must not come from the data. By default it is found privately.
    largest : float, optional
        Must be given without ``radius``: no radius beyond it is of interest. It may be generous.
    inside : float
        The share of rows that a radius found privately is to hold.
    center : array_like of shape (d,), optional
        Public; by default 0. The nearer to the rows, the smaller R may be.
    where, person, max_contributions, rng, ledger
        As in :func:`dpkit.queries.count`.
    budget : Budget
        As in :func:`dpkit.queries.count`, with delta > 0.

    Returns
    -------
    Answer
        ``keys`` are the columns; the centre where the noise leaves no row.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit import queries
    >>> x = np.random.default_rng(0).normal([3.0, -1.0], 1.0, size=(10_000, 2))
    >>> answer = queries.mean_vector(x, largest=1e6, budget=Budget(2.0, 1e-6))
    >>> bool(np.abs(answer.value - [3.0, -1.0]).max() < 0.2)
    True
    """
    budget = check_spending(budget, ledger)
    if budget.delta == 0:
        raise ValueError(
            f"mean_vector needs budget.delta > 0 for Gaussian noise, got {budget!r}: allow 1e-6, say, or ask for the "
            "mean of each column"
        )
    if (radius is None) == (largest is None):
        raise TypeError(
            "mean_vector needs radius=, a bound on rows that is known without the data, or largest=, within which one "
            f"is found privately, and not both, got radius={radius!r}, largest={largest!r}"
        )
    R = 1.0 if radius is None else _size("radius", radius)
    top = None if largest is None else _size("largest", largest)
    fraction("inside", inside)
    share = checked_share(
        budget, person=person, grouped=False, max_contributions=max_contributions, max_groups=None, max_per_group=None
    )
    rows = None if where is None else mask(data, where)
    X, names = _rows(data, columns, rows)
    middle = np.zeros(X.shape[1]) if center is None else real_array("center", center).astype(np.float64)
    if middle.shape != (X.shape[1],) or not np.isfinite(middle).all():
        raise ValueError(f"center must be finite, of shape ({X.shape[1]},), got shape {middle.shape}")
    owner = owners(data, person, rows)
    public = share.alone and rows is None and budget.adjacency != "add_remove"
    if public and not len(X):
        raise ValueError("data must have at least one row where their number is public, got none")
    source = randomness.resolve(rng)
    asked = Budget(budget.epsilon * _SHARE_OF_RADIUS, 0.0, adjacency=budget.adjacency, unit=budget.unit)
    law, also = _law(share, budget, public, None if radius is not None else asked)
    query = f"means of {len(names)} columns"
    cost, row = spend(law, query, source, ledger, also)

    with np.errstate(over="ignore"):
        X = np.clip(X - middle, -_MOST, _MOST)
    sizes = lengths(X)
    if top is not None:
        found = quantile(
            sizes, q=inside, bounds=(0.0, top), where=rows, person=owner, max_contributions=max_contributions,
            budget=asked, rng=source,
        )  # fmt: skip
        R = max(float(found.value), top * 2.0**-40)
    kept = kept_rows(owner, None, share, rows, source)
    if kept is not None:
        X, sizes = X[kept], sizes[kept]
    cells = _sums(X, sizes, R, 1 / law.step)
    noisy = with_noise(cells[:-1] if public else cells, law, source) * law.step
    settle(ledger, row)
    n = np.full(len(names), float(len(X)) if public else noisy[-1])
    # (1 + mean of v)/2 lies in [0, 1]; its numerator is the mean of both
    half = 0.5 * (noisy[: len(names)] + n)
    place = np.where(n > 0, np.clip(half / np.where(n > 0, n, 1.0), 0.0, 1.0), 0.5)

    def parts(u: Array) -> Array:
        """How much of the noise of each cell is in half − u·n."""
        own = np.full((*u.shape, 1), 0.5)
        return own if public else np.concatenate([own, 0.5 - u[..., None]], axis=-1)

    def interval(confidence: float) -> tuple[Array, Array]:
        low, high = fieller(half, n, place, parts, law, confidence, sampling=False)
        return middle + R * (2 * low - 1), middle + R * (2 * high - 1)

    return Answer(
        middle + R * (2 * place - 1),
        cost,
        f"{query}, rows within {R:.6g} of the centre",
        budget,
        keys=tuple(names),
        noise_std=2 * R * law.std * np.sqrt((parts(place) ** 2).sum(axis=-1)) / np.maximum(n, 1.0),
        noise_interval=interval,
        columns=("column",),
        uses=uses(share, person, budget.unit),
    )


def _rows(data: Any, columns: Sequence[str] | None, rows: Any = None) -> tuple[Array, list[str]]:
    """The rows, and what their columns are called; outside ``rows`` values may be missing, and are 0."""
    if columns is not None:
        if isinstance(columns, str) or not len(columns):
            raise TypeError(f"columns must be a list of at least one column, got columns={columns!r}")
        names = [str(name) for name in columns]
        return np.column_stack([numbers(data, name, rows).astype(np.float64) for name in names]), names
    X = np.asanyarray(data) if hasattr(data, "__array__") or isinstance(data, Sequence) else None
    if X is None or X.ndim != 2 or not X.shape[1] or hasattr(data, "columns"):
        raise TypeError("columns must list the columns to average where the data is no array of shape (n, d)")
    if rows is not None and X.dtype.kind == "f" and len(rows) == len(X) and not isinstance(X, np.ma.MaskedArray):
        X = np.where(rows[:, None], X, 0)
    return real_array("data", X).astype(np.float64), [str(j) for j in range(X.shape[1])]


def _size(name: str, value: float) -> float:
    """A radius whose square is neither 0 nor infinite."""
    size = positive(name, value)
    if not _LEAST <= size <= _MOST:
        raise ValueError(f"{name} must lie in [{_LEAST:g}, {_MOST:g}], got {name}={value!r}: scale the columns")
    return size


def _law(share: Share, budget: Budget, public: bool, asked: Budget | None) -> tuple[Noise, Release | None]:
    """Gaussian noise for all cells, and what a radius costs beside it."""
    m = share.per_group
    l2 = 2.0 * m if share.swapped else (1.0 if public else math.sqrt(2.0) * m)
    also = None if asked is None else NoisyMax(range_per_round(1, asked), "gumbel", adjacency=budget.adjacency)

    z = _beside(also, budget)
    bits = min(_BITS, 38 - max(0, math.ceil(math.log2(z * l2))))
    if bits < 4:
        raise ValueError(
            f"the noise of {m} rows of a {budget.unit} does not fit into 64 bits, got {budget!r}: choose a larger "
            "epsilon, or smaller max_contributions"
        )
    step = 2.0**-bits
    return Noise("gaussian", z, z * l2 * (1 + 2.0**-50), step, False, Gaussian(z, adjacency=budget.adjacency)), also


@lru_cache(maxsize=256)
def _beside(also: Release | None, budget: Budget) -> float:
    """The multiplier of Gaussian noise beside another release (the calibration, a second of time, is kept)."""

    def both(z: float) -> Release:
        noise = Gaussian(z, adjacency=budget.adjacency)
        return noise if also is None else noise + also

    return calibrate(both, budget)


def _sums(X: Array, sizes: Array, radius: float, steps: float) -> NDArray[np.int64]:
    """The sums of v on the lattice of so many steps, and how many there are; ``sizes`` are the lengths, rounded up."""
    # a hair shorter than 1, for the rounding of the division
    factor = steps * (1 - 2.0**-40) / np.maximum(sizes, radius)
    cells = np.zeros(X.shape[1] + 1, np.int64)
    for start in range(0, len(X), _BLOCK):
        part = X[start : start + _BLOCK] * factor[start : start + _BLOCK, None]
        cells[:-1] += np.trunc(part).astype(np.int64).sum(axis=0)
    cells[-1] = len(X) * round(steps)
    return cells

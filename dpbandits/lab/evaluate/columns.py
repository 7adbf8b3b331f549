"""Which columns of a log describe the visitor and which the item, and whether the log bears that out.

A column that is the same in all rows of an item, and differs between items, is the item's. Any other is taken to be the
visitor's: known before the choice, whatever was chosen then. Of such a column the mean over the rows of an item, with
weights 1/p, is its mean over all rows, whatever the log's policy preferred; where it is far from that, the column
describes what was chosen after all (a price that changes), or the probabilities are not those of the choices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array
from dpbandits.lab.evaluate.logs import Log

__all__ = ["Columns", "availability", "told_apart"]

# of z-scores among items and columns, and in standard deviations of the column: what no luck explains
_SCORE, _APART = 6.0, 0.25
# rows that an item must be worth for such a comparison
_WORTH = 50.0


@dataclass(frozen=True)
class Columns:
    """Numbers of columns by what they describe."""

    visitor: tuple[int, ...]
    item: tuple[int, ...]
    constant: tuple[int, ...]


def told_apart(log: Log, chosen: NDArray[np.int64], items: int) -> Columns:
    """The columns of ``log.features``, told apart.

    Parameters
    ----------
    log : Log
    chosen : ndarray of shape (n,)
        Numbers of the items that were chosen at least once.
    items : int

    Raises
    ------
    ValueError
        If a visitor's column depends on what was chosen.
    """
    if log.features is None:
        return Columns((), (), ())
    visitor: list[int] = []
    item: list[int] = []
    constant: list[int] = []
    order = np.argsort(chosen, kind="stable")
    starts = np.flatnonzero(np.diff(chosen[order], prepend=-1))
    for j, column in enumerate(log.features.T):
        grouped = column[order]
        low, high = np.minimum.reduceat(grouped, starts), np.maximum.reduceat(grouped, starts)
        if low.min() == high.max():
            constant.append(j)
        else:
            (item if (low == high).all() else visitor).append(j)
    for j in visitor:
        _balanced(log, log.features[:, j], log.columns[j], chosen, items)
    return Columns(tuple(visitor), tuple(item), tuple(constant))


def _balanced(log: Log, column: Array, name: str, chosen: NDArray[np.int64], items: int) -> None:
    w = 1.0 / log.probabilities
    mean, spread = float(column.mean()), float(column.std())
    total, square = np.bincount(chosen, w, items), np.bincount(chosen, w * w, items)
    off = np.bincount(chosen, w * (column - mean), items)
    error = np.sqrt(np.bincount(chosen, (w * (column - mean)) ** 2, items))
    apart = np.where(total**2 / square >= _WORTH, off / total / spread, 0.0)
    bad = (np.abs(apart) > _APART) & (np.abs(off) > _SCORE * error)
    if not bad.any():
        return
    k = int(np.argmax(np.where(bad, np.abs(apart), 0.0)))
    own = log.arms[int(log.chosen[np.flatnonzero(chosen == k)[0]])]
    score = abs(float(off[k])) / max(float(error[k]), math.ulp(1.0))
    raise ValueError(
        f"column {name!r} must be known before the choice: it differs between rows of one item, so that it "
        f"was taken to describe the visitor, but with weights 1/probability its mean in rows of {own!r} is "
        f"{mean + float(apart[k]) * spread:.4g}, and {mean:.4g} in all ({score:.1f} standard errors apart). It "
        "describes what was chosen, or the item was not offered to everybody, or the probabilities are not those of "
        "the choices: leave the column out, or correct them"
    )


def availability(log: Log, chosen: NDArray[np.int64], items: int) -> tuple[Array, int]:
    """The law of an item drawn at random from what there was to choose from, and how many items that were.

    In mean a row with the inverse of its probability counts every item once that was there.
    """
    inverse = 1.0 / log.probabilities
    count, error = float(inverse.mean()), float(inverse.std()) / np.sqrt(len(inverse))
    if count < 0.8 * items and count + 4 * error < items:
        found = np.bincount(chosen, inverse, items)
        return found / found.sum(), max(2, round(count))
    # of so many items with so many rows nearly all would have been seen
    if count - 6 * error > 1.2 * items and len(chosen) > 10 * count:
        raise ValueError(
            f"probabilities must be those of the choices: by the mean of 1/probability there were {count:.4g} items to "
            f"choose from in a round, and {items:,} were ever chosen in {len(chosen):,} rows"
        )
    return np.full(items, 1 / items), items

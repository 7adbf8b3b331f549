"""Replay of a user's own log: a table in which the reward of every arm that was shown is known.

Two layouts, as CSV (with a header), Parquet or a pandas ``DataFrame``:

``long``: one row per round and arm. All rows of a round stand together; rounds may differ in their number of arms.

    round,reward,price,rating
    1,0,0.30,0.9
    1,1,0.10,0.7
    2,1,0.20,0.8
    …

``labels``: one row per round; every label is an arm, and the arm that is the row's label gives reward 1, all others 0
(a classification table as a bandit). Arm k has its own parameter: its vector is the row's features in block k and zeros
elsewhere, so that d = K·(number of features + 1).

    label,width,height
    cat,0.2,0.4
    dog,0.7,0.9
    …

Scale
-----
A row of features is divided by ``feature_bound``, and a row that is still longer than 1 is scaled to length 1. The
bound must be a number that you know without looking at the data: a maximum that is computed from the rows would give
away the largest of them, and the privacy guarantee would not cover that. Then comes an intercept: the vector of an
arm is (1, features)/√2. Rewards are mapped from ``reward_range`` to [0, 1]; a reward outside of it is refused.

What stays public: the number of rounds and of arms, the names of the columns and the set of labels; and, with
``person_column``, which rounds are of one person.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from accounting.checks import choice, positive
from dpbandits.lab.environments.arms import blocks_of, with_constant, within
from dpbandits.lab.environments.base import Named, Round
from dpbandits.lab.tables import Table, finite_range

__all__ = ["LogReplay"]

# columns that a log of decisions has, and that tell of the choice or of the person rather than of an arm
_NO_FEATURE = re.compile(r"propensit|probabilit|pscore|^prob$|user|person|customer|visitor|session", re.IGNORECASE)


class LogReplay(Named):
    """Rounds from a log in which the reward of every shown arm is known.

    Parameters
    ----------
    source : path or pandas.DataFrame
        A ``.csv`` or ``.parquet`` file, or a frame. In messages the rows of a CSV file are counted as a spreadsheet
        does (the header is row 1); other rows are counted from 1.
    layout : {"long", "labels"}
        See the module.
    round_column, reward_column : str
        Layout ``long``: what tells rounds apart, and the reward of the row's arm.
    arm_column : str
        Layout ``long``: the name of the arm, if there is such a column. It is no feature; it serves to find an arm that
        stands twice in a round.
    label_column : str
        Layout ``labels``: the right arm.
    person_column : str, optional
        Who came: the same in all rows of a round. It is no feature; rounds have it as ``person``, as text.
    features : sequence of str, optional
        The columns that describe an arm; by default all other columns, if none of them is called like a probability or
        a person.
    reward_range : (float, float)
        Layout ``long``: the range of rewards; finite and public.
    feature_bound : float
        The public length to which a row of features is allowed.
    shuffle : bool
        Play the rounds in an order drawn by the seed, or in the order of the log.
    theta_bound : float
        S, the bound on ‖θ‖ that policies are told.
    base_rate : float, optional
        What policies are told the mean reward of an arm taken at random to be, strictly inside ``reward_range``: a
        public guess, not the mean of this log. By default the middle; for ``labels`` 1 over their number.

    Attributes
    ----------
    base_rate : float
        On the scale of the rewards that are played, [0, 1].
    rescaled : int
        How many rows were longer than ``feature_bound``. It depends on the data and is for the owner of the log alone.

    Raises
    ------
    ValueError
        If every round has one arm; or naming row and column of the first bad value: empty, not a number, infinite, a
        reward out of its range, an arm twice in a round, a round in two places or of two persons.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> log = pd.DataFrame({"round": [1, 1, 2, 2], "reward": [0, 1, 1, 0], "price": [0.3, 0.1, 0.2, 0.4]})
    >>> environment = LogReplay(log, shuffle=False)
    >>> first = next(environment.episode(np.random.default_rng(0)))
    >>> first.arms.round(3).tolist(), first.rewards.tolist()
    ([[0.707, 0.212], [0.707, 0.071]], [0.0, 1.0])
    """

    rounds: int

    def __init__(
        self,
        source: str | Path | Any,
        *,
        layout: Literal["long", "labels"] = "long",
        round_column: str = "round",
        reward_column: str = "reward",
        arm_column: str = "arm",
        label_column: str = "label",
        person_column: str | None = None,
        features: Sequence[str] | None = None,
        reward_range: tuple[float, float] = (0.0, 1.0),
        feature_bound: float = 1.0,
        shuffle: bool = True,
        theta_bound: float = 5.0,
        base_rate: float | None = None,
    ) -> None:
        choice("layout", layout, "long", "labels")
        low, high = finite_range("reward_range", reward_range)
        bound = positive("feature_bound", feature_bound)
        if base_rate is not None and not low < base_rate < high:
            inside = f"({low:g}, {high:g})"
            raise ValueError(f"base_rate must lie strictly inside reward_range, {inside}, got base_rate={base_rate!r}")
        table = Table(source)
        special = [label_column] if layout == "labels" else [round_column, reward_column]
        named = layout == "long" and arm_column in table.columns
        special += [arm_column] * named + ([] if person_column is None else [person_column])
        if features is None:
            features = [column for column in table.columns if column not in special]
            told = next((column for column in features if _NO_FEATURE.search(column)), None)
            if told is not None:
                raise ValueError(
                    f"{table.name}: column {told!r} does not look like a feature of an arm: name the features "
                    "(features=, --feature), and the persons' column, if it is one (person_column=, --person); a log "
                    "with one choice per row and its probability is for `dpbandits price --probability COLUMN` and "
                    "`dpbandits evaluate`"
                )
        table.require([*special, *features])
        if not features:
            raise ValueError(f"{table.name}: there must be at least one column of features, got {table.listed}")
        twice = [column for column in features if column in special]
        if twice:
            raise ValueError(f"{table.name}: column {twice[0]!r} cannot be a feature, got features={list(features)!r}")

        self.labels: list[str] | None = None
        if layout == "labels":
            self._label, self.labels = table.codes(label_column)
            starts = np.arange(len(self._label))
        else:
            codes, _ = table.codes(round_column)
            new = np.concatenate([[True], codes[1:] != codes[:-1]])
            starts = np.flatnonzero(new)
            again = starts[_repeats(codes[starts])]
            table.check(round_column, again, "was seen before: the rows of a round must stand together")
            if named:
                arms, names = table.codes(arm_column)
                again = np.flatnonzero(_repeats(np.cumsum(new) * len(names) + arms))
                table.check(arm_column, again, "stands twice in its round")
        self._persons = None if person_column is None else table.persons(person_column, starts)
        if layout == "long":
            rewards = table.numbers([reward_column])[:, 0]
            outside = np.flatnonzero((rewards < low) | (rewards > high))
            table.check(reward_column, outside, f"must lie in [{low:g}, {high:g}]")
            self._rewards = (rewards - low) / (high - low)
        X = table.numbers(features)
        table.complain()
        if self.labels is not None and len(self.labels) < 2:
            raise ValueError(f"{table.name}: column {label_column!r} must hold at least two labels, got one")
        if self.labels is None and len(starts) == len(X):
            raise ValueError(
                f"{table.name}: every round has one arm, so nothing can be chosen. If these are the choices that "
                "were made, with their rewards, `dpbandits evaluate` values other policies on them"
            )
        self._starts = np.append(starts, len(X))
        with np.errstate(over="ignore"):
            self.rescaled = int((np.linalg.norm(X, axis=1) > bound).sum())
        self._features = with_constant(within(X, bound))
        self.features, self.rows, self.shuffle = list(features), len(X), bool(shuffle)
        K = 1 if self.labels is None else len(self.labels)
        if self.labels is not None:
            self.context_dim, self.n_arms = len(features), K
        usual = 0.5 if self.labels is None else 1.0 / K
        self.base_rate = usual if base_rate is None else (base_rate - low) / (high - low)
        dim, longest = self._features.shape[1] * K, positive("theta_bound", theta_bound)
        super().__init__(f"replay of {table.name}", dim, "logistic", longest, rounds=len(starts))

    def episode(self, rng: np.random.Generator) -> Iterator[Round]:
        """Every round of the log once."""
        count = len(self._starts) - 1
        for t in rng.permutation(count) if self.shuffle else range(count):
            rows = slice(self._starts[t], self._starts[t + 1])
            X, person = self._features[rows], None if self._persons is None else self._persons[t]
            if self.labels is None:
                yield Round(X, self._rewards[rows], person=person)
            else:
                K = len(self.labels)
                right = (np.arange(K) == self._label[t]).astype(np.float64)
                yield Round(blocks_of(X, K)[0], right, context=X[0, 1:] / X[0, 0], person=person)


def _repeats(values: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which values are equal to an earlier one."""
    repeated = np.ones(len(values), dtype=bool)
    repeated[np.unique(values, return_index=True)[1]] = False
    return repeated

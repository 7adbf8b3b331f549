"""A log with one choice per row: read from a table, and exchanged with Open Bandit Pipeline and Vowpal Wabbit.

| column | |
|---|---|
| chosen arm | any value that names it |
| probability | with which the policy at the time chose it, in (0, 1] |
| reward | what came of it |
| person (optional) | whose row it is |
| features (optional) | what was known before the choice |
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.arrays import Array
from dpbandits.lab.evaluate.off_policy import checked_log
from dpbandits.lab.tables import Table
from dpbandits.policy.checks import real_array

if TYPE_CHECKING:
    from dpbandits.policy.released import Released

__all__ = ["Log"]


@dataclass(frozen=True, eq=False)
class Log:
    """Logged choices, checked.

    Parameters
    ----------
    rewards, probabilities : ndarray of shape (n,)
    chosen : ndarray of shape (n,)
        Numbers of arms, from 0.
    arms : tuple of str
        Their names.
    features : ndarray of shape (n, m) or None
    persons : sequence of shape (n,) or None
    columns : tuple of m str
        Names of the features; by default x0, x1, …
    offered : sequence of ndarray, or None
        What there was to choose from, and in ``indices``, of shape (n,), which row was chosen.

    Raises
    ------
    ValueError
        If they do not fit together.

    Examples
    --------
    >>> from dpbandits import evaluate
    >>> log = evaluate.Log.of([1, 0, 1], [0.5, 0.25, 0.5], ["tea", "coffee", "tea"])
    >>> log.arms, log.always("tea").tolist(), log.uniform().tolist()
    (('coffee', 'tea'), [1.0, 0.0, 1.0], [0.5, 0.5, 0.5])
    >>> evaluate.snips(log.rewards, log.probabilities, log.always("tea")).value
    1.0
    >>> print(*log.to_vowpal_wabbit(), sep=chr(10))
    2:-1:0.5 |
    1:0:0.25 |
    2:-1:0.5 |
    """

    rewards: Array
    probabilities: Array
    chosen: NDArray[np.int64]
    arms: tuple[str, ...]
    features: Array | None = None
    persons: Sequence[Any] | None = None
    offered: Sequence[Array] | None = None
    indices: NDArray[np.int64] | None = None
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        checked_log(self.rewards, self.probabilities)
        n = len(self.rewards)
        if self.chosen.shape != (n,) or not (self.chosen.min() >= 0 and self.chosen.max() < len(self.arms)):
            raise ValueError(f"chosen must hold {n} numbers from 0 to {len(self.arms) - 1}, got others")
        if self.features is not None and (len(self.features) != n or not np.isfinite(self.features).all()):
            raise ValueError(f"features must be finite, with {n} rows, got shape {self.features.shape} or others")
        if self.persons is not None and len(self.persons) != n:
            raise ValueError(f"persons must have {n} entries, got {len(self.persons)}")
        width = 0 if self.features is None else self.features.shape[1]
        if not self.columns:
            object.__setattr__(self, "columns", tuple(f"x{j}" for j in range(width)))
        if len(self.columns) != width:
            raise ValueError(f"columns must name {width} features, got {self.columns!r}")

    def __repr__(self) -> str:
        persons = "" if self.persons is None else f" of {len(set(self.persons)):,} persons"
        mean = float(self.rewards.mean())
        return f"Log: {len(self.rewards):,} choices among {len(self.arms):,} arms{persons}, mean reward {mean:.6g}"

    @classmethod
    def of(
        cls,
        rewards: ArrayLike,
        probabilities: ArrayLike,
        chosen: Iterable[Any],
        *,
        arms: Sequence[Any] | None = None,
        features: ArrayLike | None = None,
        persons: Sequence[Any] | None = None,
        columns: Sequence[str] = (),
    ) -> Log:
        """A log of arrays; ``chosen`` holds names, by default sorted by their text for ``arms``."""
        texts = [str(name) for name in chosen]
        names = tuple(map(str, arms)) if arms is not None else tuple(sorted(set(texts)))
        place = {name: k for k, name in enumerate(names)}
        missing = next((text for text in texts if text not in place), None)
        if missing is not None or len(place) < len(names):
            raise ValueError(f"arms must be different names that hold every choice, got {missing or names!r}")
        return cls(
            real_array("rewards", rewards),
            real_array("probabilities", probabilities),
            np.array([place[text] for text in texts], dtype=np.int64),
            names,
            None if features is None else real_array("features", features),
            persons,
            columns=tuple(columns),
        )

    @classmethod
    def read(
        cls,
        source: str | Path | Any,
        *,
        reward: str = "reward",
        probability: str = "probability",
        arm: str = "arm",
        person: str | None = None,
        features: Sequence[str] = (),
        default_reward: float | None = None,
        offered: str | None = None,
        index: str = "index",
    ) -> Log:
        """The columns of a ``.csv`` or ``.parquet`` file, or of a pandas frame; also a policy's own log of decisions.

        Parameters
        ----------
        source : path or pandas.DataFrame
        reward, probability, arm, person, features
            Names of columns.
        default_reward : float, optional
            What a missing reward counts as; by default it is refused.
        offered : str, optional
            A column with what was offered, as JSON, and ``index`` with the row that was chosen: for :meth:`under`. A
            policy's log of decisions calls it "arms".

        Raises
        ------
        ValueError
            Naming row and column of the first bad value.
        """
        if default_reward is not None and not math.isfinite(default_reward):
            raise ValueError(f"default_reward must be finite, got default_reward={default_reward!r}")
        table = Table(source)
        further = [*([person] if person else []), *([offered, index] if offered else []), *features]
        table.require([reward, probability, arm, *further])
        chosen, names = table.codes(arm)
        persons = None if person is None else table.persons(person)
        way = ": default_reward must say what a reward that never came counts as"
        rewards = table.numbers([reward], default=default_reward, way=way)
        numbers = np.hstack([rewards, table.numbers([probability, *features])])
        indices = table.numbers([index])[:, 0] if offered else None
        outside = np.flatnonzero(~((numbers[:, 1] > 0) & (numbers[:, 1] <= 1)))
        table.check(probability, outside, "must be in (0, 1]: what was chosen had some probability")
        table.complain()
        X = numbers[:, 2:] if features else None
        log = cls(numbers[:, 0], numbers[:, 1], chosen, tuple(names), X, persons, columns=tuple(features))
        if offered is None or indices is None:
            return log
        try:
            arms = [real_array(offered, json.loads(text)) for text in table.texts(offered)]
        except ValueError as error:
            raise ValueError(f"column {offered!r} must hold what was offered, as JSON: {error}") from error
        return replace(log, offered=arms, indices=indices.astype(np.int64))

    # -------------------------------------------------------------------------------- policies to be valued

    def always(self, arm: str) -> Array:
        """How probable the logged choices are under "always this arm", shape (n,)."""
        if arm not in self.arms:
            raise ValueError(f"arm must be one of {self.arms[:20]!r}, got {arm!r}")
        return np.asarray(self.chosen == self.arms.index(arm), dtype=np.float64)

    def under(self, policy: Released) -> Array:
        """How probable the logged choices are under what a private policy has released, shape (n,).

        Raises
        ------
        TypeError
            For a policy itself, which learns and has no law of choices that stays: give ``policy.released()``.
        ValueError
            If the log was read without what was offered, or it was offered to a policy of another kind.
        """
        if self.offered is None or self.indices is None:
            raise ValueError('the log must hold what was offered: Log.read(path, offered="arms")')
        if not callable(getattr(policy, "probability", None)):
            way = ": give policy.released(), what it would choose by" if hasattr(policy, "released") else ""
            raise TypeError(f"policy must be a Released, got a {type(policy).__name__}{way}")
        pairs = zip(self.offered, self.indices.tolist(), strict=True)
        return np.array([policy.probability(arms, index) for arms, index in pairs])

    def uniform(self) -> Array:
        """How probable they are under a uniform choice, shape (n,)."""
        return np.full(len(self.rewards), 1 / len(self.arms))

    # ----------------------------------------------------------------------------------- other people's logs

    @classmethod
    def from_open_bandit(cls, feedback: Mapping[str, Any]) -> Log:
        """The ``bandit_feedback`` dictionary of Open Bandit Pipeline.

        It must hold ``action``, ``reward`` and ``pscore``; ``n_actions`` and ``context`` are taken too. Positions are
        refused: give the rows of one position.
        """
        missing = [key for key in ("action", "reward", "pscore") if feedback.get(key) is None]
        if missing:
            raise ValueError(f"feedback must hold {missing[0]!r}, got the keys {sorted(feedback)}")
        position = feedback.get("position")
        if position is not None and len(set(np.asarray(position).tolist())) > 1:
            raise ValueError("feedback must have one position only: select its rows, one log for each")
        chosen = np.asarray(feedback["action"])
        if chosen.dtype.kind not in "iu":
            raise ValueError(f"feedback['action'] must be whole numbers, got an array of type {chosen.dtype}")
        count = int(feedback.get("n_actions") or chosen.max(initial=0) + 1)
        context = feedback.get("context")
        return cls(
            real_array("reward", feedback["reward"]),
            real_array("pscore", feedback["pscore"]),
            chosen.astype(np.int64),
            tuple(map(str, range(count))),
            None if context is None else real_array("context", context),
        )

    def to_open_bandit(self) -> dict[str, Any]:
        """The dictionary that Open Bandit Pipeline's estimators take."""
        return {
            "n_rounds": len(self.rewards),
            "n_actions": len(self.arms),
            "context": self.features,
            "action": self.chosen,
            "position": None,
            "reward": self.rewards,
            "pscore": self.probabilities,
        }

    @classmethod
    def from_vowpal_wabbit(cls, lines: Iterable[str]) -> Log:
        """Lines of ``--cb`` format, ``action:cost:probability | features``; the reward is −cost.

        Arms are counted from 1. Features are ``name:value`` or ``name`` for 1; a name that stands in no namespace or in
        several is one column.
        """
        chosen, costs, probabilities, rows = [], [], [], []
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            labels, bar, text = line.partition("|")
            named = [label for label in labels.split() if label.count(":") == 2]
            if not bar or len(named) != 1:
                raise ValueError(
                    f"line {number} must be 'action:cost:probability | features', got {line.strip()[:80]!r}"
                )
            try:
                action, cost, probability = named[0].split(":")
                chosen.append(int(action) - 1)
                costs.append(float(cost))
                probabilities.append(float(probability))
                rows.append(dict(_vowpal_features("|" + text)))
            except ValueError as error:
                raise ValueError(f"line {number} must hold numbers, got {line.strip()[:80]!r}") from error
        if min(chosen, default=-1) < 0:
            raise ValueError("lines must hold at least one row, of actions counted from 1")
        names = sorted({name for row in rows for name in row})
        X = np.array([[row.get(name, 0.0) for name in names] for row in rows]) if names else None
        count = max(chosen) + 1
        return cls(
            -np.array(costs), np.array(probabilities), np.array(chosen, dtype=np.int64),
            tuple(str(k + 1) for k in range(count)), X,
        )  # fmt: skip

    def to_vowpal_wabbit(self) -> Iterator[str]:
        """One line per row in ``--cb`` format; features are called x0, x1, …"""
        for i, k in enumerate(self.chosen):
            row = [] if self.features is None else [f" x{j}:{x!r}" for j, x in enumerate(self.features[i].tolist())]
            cost = -float(self.rewards[i]) or 0.0
            yield f"{k + 1}:{cost:.17g}:{self.probabilities[i]:.17g} |{''.join(row)}"


def _vowpal_features(text: str) -> Iterator[tuple[str, float]]:
    for part in text.split("|")[1:]:
        # a namespace follows the bar at once
        words = part.split()
        if part[:1].strip():
            words = words[1:]
        for word in words:
            name, colon, value = word.partition(":")
            number = float(value) if colon else 1.0
            if not math.isfinite(number):
                raise ValueError(f"features must be finite, got {word!r}")
            yield name, number

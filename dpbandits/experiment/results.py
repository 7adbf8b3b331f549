"""What an experiment has found so far: a value made of what was released, for people, programs and pages.

It holds noisy sums and public numbers only, so that reading, printing, storing or sending it costs nothing more.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array
from accounting.printed import as_html, as_text
from dpbandits.experiment import written
from dpbandits.experiment.sequences import Evidence
from dpbandits.experiment.setting import Setting
from dpbandits.experiment.stopping import best_arm, chances

__all__ = ["ExperimentResults"]


@dataclass(frozen=True, eq=False)
class ExperimentResults:
    """Means, intervals and decisions at a moment; of :meth:`dpbandits.Experiment.results`.

    All statements hold at all times: however often anybody looks, and also if the experiment is stopped because of what
    was seen, each of these three is wrong, ever, with probability at most α. All ``intervals`` together hold the arms'
    means. All ``difference`` intervals together hold the differences of two means. ``best`` is the one best arm.

    A mean is that of the values of decisions in released batches: of a value if it came in time, of ``missing``
    otherwise. Values of different decisions must be independent, and have the same mean for all decisions of an arm
    (where it drifts, an interval holds for its average over the decisions of the arm).

    Attributes
    ----------
    setting : Setting
    assigned : dict of str to int
        How many decisions each arm has had.
    sums, counts, when : (K, J) ndarray of int
        Of each arm and batch: the noisy sum of values above ``missing`` in steps; decisions; and after how many
        decisions of all arms it was released. Zero where there was none.
    spread : (K,) ndarray
        Of a model's posterior of each arm's mean, the standard deviation, in lengths of the range; ``center`` its mean.
    spent : str
        What the whole experiment costs.
    simulation : bool
        Whether the noise came from a seeded generator, so that nothing here is a private release.
    best : str or None
        The arm that is known to be the only best one, at level α; None while none is.
    stopped : str
        Why the experiment has ended; empty while it runs.
    others : tuple of ExperimentResults
        Of further metrics. What is said of each holds at level α for that metric by itself.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpbandits import Experiment
    >>> test = Experiment(["old", "new"], budget=Budget(1.0, 0.0, unit="person"), horizon=1000)
    >>> results = test.results()
    >>> results.best is None  # nothing is known yet
    True
    """

    setting: Setting
    assigned: dict[str, int]
    sums: NDArray[np.int64]
    counts: NDArray[np.int64]
    when: NDArray[np.int64]
    center: Array
    spread: Array
    spent: str
    simulation: bool
    stopped: str
    best: str | None = None
    others: tuple[ExperimentResults, ...] = ()

    # ------------------------------------------------------------------------------------------------- numbers

    @property
    def arms(self) -> tuple[str, ...]:
        """Their names."""
        return self.setting.arms

    @property
    def metrics(self) -> dict[str, ExperimentResults]:
        """The results by metric, of which this one is the first."""
        return {one.setting.metric: one for one in (self, *self.others)}

    @cached_property
    def evidence(self) -> Evidence:
        """The released sums of all batches, in lengths of the range."""
        return self._evidence(self.sums.sum(axis=1), self.counts.sum(axis=1), (self.counts > 0).sum(axis=1))

    def _evidence(self, sums: NDArray[np.int64], counts: NDArray[np.int64], releases: NDArray[np.int64]) -> Evidence:
        own = self.setting
        missing = (own.missing - own.low) / (own.high - own.low)
        return Evidence(sums / own.steps + counts * missing, counts.astype(np.float64), releases.astype(np.float64))

    @property
    def informed(self) -> bool:
        """Whether anything was released."""
        return bool((self.counts > 0).any())

    @property
    def counted(self) -> dict[str, int]:
        """How many decisions of each arm are in released batches."""
        return dict(zip(self.arms, self.counts.sum(axis=1).tolist(), strict=True))

    @cached_property
    def means(self) -> dict[str, float]:
        """Of each arm the mean of its released batches, within the range; NaN where there is none."""
        own, found = self.setting, self.evidence
        values = np.where(found.count > 0, own.low + (own.high - own.low) * found.mean, math.nan)
        return dict(zip(self.arms, values.tolist(), strict=True))

    @cached_property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """Of each arm (low, high): together they hold all means, at all times, with probability 1 − α."""
        own, sequences = self.setting, self.setting.sequences
        side = own.alpha / (2 * len(self.arms))
        ends = sequences.lower(self.evidence, side), sequences.upper(self.evidence, side)
        low, high = (own.low + (own.high - own.low) * end for end in ends)
        return dict(zip(self.arms, zip(low.tolist(), high.tolist(), strict=True), strict=True))

    def difference(self, a: str, b: str) -> tuple[float, float]:
        """(low, high) of the mean of ``a`` less that of ``b``; of all pairs together they hold at all times.

        Raises
        ------
        ValueError
            If there is no such arm, or both are the same.
        """
        for name, arm in (("a", a), ("b", b)):
            if arm not in self.arms:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, self.arms))}, got {name}={arm!r}")
        if a == b:
            raise ValueError(f"a and b must be two arms, got {a!r} twice")
        return self._differences([a], [b])[0]

    def _differences(self, ones: Sequence[str], others: Sequence[str]) -> list[tuple[float, float]]:
        K, own = len(self.arms), self.setting
        first, second = ([self.arms.index(arm) for arm in arms] for arms in (ones, others))
        a, b = self.evidence.of(np.array([*first, *second])), self.evidence.of(np.array([*second, *first]))
        least = own.sequences.least_difference(a, b, own.alpha / (K * (K - 1))) * (own.high - own.low)
        return list(zip(least[: len(first)].tolist(), (-least[len(first) :]).tolist(), strict=True))

    @cached_property
    def differences(self) -> dict[str, tuple[float, float]]:
        """Of each arm but the baseline (low, high) of its mean less the baseline's; see :meth:`difference`."""
        others = [arm for arm in self.arms if arm != self.setting.baseline]
        found = self._differences(others, len(others) * [self.setting.baseline])
        return dict(zip(others, found, strict=True))

    @cached_property
    def e_values(self) -> dict[str, float]:
        """Of each arm but the baseline, for "it is not better than the baseline"; 0 where it does not seem better.

        If that is true, an e-value ever reaches 1/α with probability at most α: one arm's, whenever it is looked at.
        """
        others = [k for k, arm in enumerate(self.arms) if arm != self.setting.baseline]
        base = np.full(len(others), self.arms.index(self.setting.baseline))
        against = self.setting.sequences.log_evidence_better(self.evidence.of(np.array(others)), self.evidence.of(base))
        # beyond what a number holds, so that it can be written
        values = np.exp(np.minimum(against, 700.0))
        return {self.arms[k]: value for k, value in zip(others, values.tolist(), strict=True)}

    @cached_property
    def chance_of_best(self) -> dict[str, float]:
        """Of each arm the probability to be best, as a model has it: normal posteriors of means that are alike.

        A word of that model, for those who decide before ``best`` is known; no error rate is promised for it.
        """
        return dict(zip(self.arms, chances(self.center, self.spread).tolist(), strict=True))

    def with_best(self) -> ExperimentResults:
        """With the best arm, if what was released says which it is."""
        found = best_arm(self.setting.sequences, self.evidence, self.setting.alpha)
        return replace(self, best=self.arms[found - 1] if found else None)

    def history(self) -> dict[str, dict[str, list[float]]]:
        """Of each arm, after each of its releases: ``decisions`` of all arms, ``mean``, ``low`` and ``high``."""
        sums, counts = self.sums.cumsum(axis=1), self.counts.cumsum(axis=1)
        releases = np.broadcast_to(np.arange(1, sums.shape[1] + 1), sums.shape)
        found, own = self._evidence(sums, counts, releases), self.setting
        side = own.alpha / (2 * len(self.arms))
        columns = found.mean, own.sequences.lower(found, side), own.sequences.upper(found, side)
        mean, low, high = (own.low + (own.high - own.low) * column for column in columns)
        named = {"decisions": self.when.astype(np.float64), "mean": mean, "low": low, "high": high}
        return {
            arm: {name: column[k][self.counts[k] > 0].tolist() for name, column in named.items()}
            for k, arm in enumerate(self.arms)
        }

    # ------------------------------------------------------------------------------------------- words and tables

    @property
    def verdict(self) -> str:
        """One sentence."""
        own = self.setting
        if not self.informed:
            return "No information yet: no batch was released."
        if self.best is not None:
            return f"{self.best} is best (wrong with probability at most {own.alpha:g}, however often anybody looks)."
        if self.stopped:
            return f"Ended without a best arm: {self.stopped}."
        return f"No arm is known to be best at level {own.alpha:g} yet."

    def cells(self) -> list[list[str]]:
        """A table with a head: of each arm its decisions, mean, interval, difference to the baseline, e-value, chance.

        Where the text says "model", it is a model's word.
        """
        own = self.setting
        rows = [["arm", "decisions", "released", "mean", "interval", f"less {own.baseline}", "e-value", "best (model)"]]
        for arm in self.arms:
            shown, base = self.informed and self.counted[arm] > 0, arm == own.baseline
            low, high = self.intervals[arm]
            least, most = (0.0, 0.0) if base else self.differences[arm]
            row = [arm, f"{self.assigned[arm]:,}", f"{self.counted[arm]:,}", f"{self.means[arm]:.4g}" if shown else "–"]
            row += [f"[{low:.3g}, {high:.3g}]", "baseline" if base else f"[{least:+.3g}, {most:+.3g}]"]
            rows.append([*row, "" if base else f"{self.e_values[arm]:.3g}", f"{self.chance_of_best[arm]:.3g}"])
        return rows

    def __str__(self) -> str:
        further = "".join(f"\n{one.setting.metric}: {one.verdict}\n{as_text(one.cells())}" for one in self.others)
        return f"{self.verdict}\n{as_text(self.cells())}{further}\n{self.spent}"

    def __repr__(self) -> str:
        return f"ExperimentResults({sum(self.assigned.values()):,} decisions: {self.verdict})"

    def _repr_html_(self) -> str:
        return as_html(f"{self.verdict} {self.spent}", self.cells())

    # ------------------------------------------------------------------------------------------------------ JSON

    def to_dict(self) -> dict[str, Any]:
        """Plain values: what people read, and under "released" all that the value is made of."""
        return written.tree_of(self)

    def to_json(self, path: str | Path | None = None) -> str:
        """JSON, also written to a file if there is a path."""
        text = json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any]) -> ExperimentResults:
        """The inverse of :meth:`to_dict`; what people read is computed again.

        Raises
        ------
        ValueError
            If it is of another format or version, or does not fit together.
        """
        return cls(**written.parts_of(tree, cls.from_dict))

    @classmethod
    def from_json(cls, text: str | bytes) -> ExperimentResults:
        """The inverse of :meth:`to_json`."""
        tree = json.loads(text)
        if not isinstance(tree, dict):
            raise ValueError("results must be a JSON object, got another value")
        return cls.from_dict(tree)

    # ---------------------------------------------------------------------------------------------------- pictures

    def plot(self, target: Any = None) -> Any:
        """Each arm's interval as it became shorter, release by release.

        Parameters
        ----------
        target : path, matplotlib Axes or None
            Where to draw; None makes a new figure.

        Returns
        -------
        matplotlib Axes, or the path
        """
        from dpbandits.experiment.page import drawn

        return drawn(self, target)

    def to_html(self, path: str | Path) -> Path:
        """Write a page that needs nothing else: the verdict, the table, a picture, what it means and what it cost."""
        from dpbandits.experiment.page import page

        target = Path(path)
        target.write_text(page(self), encoding="utf-8")
        return target

"""How many persons does an experiment need? For each ε, and without privacy beside it.

The question is answered for the test that the experiment will make: a fixed split, a look at every release, and the end
when the best arm is known. At each look j the e-value of two arms at the expected level reaches its threshold at some
difference D_j of their sums, which is found by bisection; with those, random sums are drawn and it is counted by which
look a share ``power`` of experiments has found the better arm. All others have the baseline's mean. (The level at which
sums are compared is its expectation: the answer is right to a few per cent, as ``tests`` hold it to by whole runs.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from accounting import Budget
from accounting.arrays import Array
from accounting.checks import fraction, integer, positive
from accounting.printed import as_html, as_text
from dpbandits.experiment.batches import batch_ends
from dpbandits.experiment.sequences import Evidence, Sequences
from dpkit.moments.trial_batches import STEPS, TrialBatches

__all__ = ["Plan", "PlanRow", "plan"]

# of random experiments, always the same ones; of bisections; of looks at which they are made; of horizons
_RUNS, _STEPS, _LOOKS, _PASSES = 2000, 20, 16, 5
# nats that a mixture over λ costs, for the first guess
_MIXED = 2.5
# decisions for an arm, beyond which nobody plans
_MOST = 2**33
# Simulated side by side.
_MOST_ARMS = 1000


@dataclass(frozen=True)
class PlanRow:
    """What one ε needs.

    Attributes
    ----------
    epsilon : float
        Infinite without privacy.
    persons : int
        For each arm.

    Examples
    --------
    >>> from dpbandits import Experiment
    >>> row = Experiment.plan(0.10, 0.05, epsilon=[1.0]).rows[0]
    >>> row.persons > 500
    True
    """

    epsilon: float
    persons: int


@dataclass(frozen=True)
class Plan:
    """How many persons an experiment needs.

    Attributes
    ----------
    baseline, effect : float
        The mean of all arms but one, and by how much that one is better.
    alpha, power : float
        How probably anything is ever called best that is not, and how probably the best arm is found in time.
    arms : int
        K.
    rows : tuple of PlanRow
        For each ε that was asked for, and the last one without privacy.

    Examples
    --------
    >>> from dpbandits import Experiment
    >>> plan = Experiment.plan(0.10, 0.05, epsilon=[1.0])
    >>> plan.arms, plan.rows[0].epsilon
    (2, 1.0)
    """

    baseline: float
    effect: float
    alpha: float
    power: float
    arms: int
    rows: tuple[PlanRow, ...]

    @property
    def persons(self) -> int:
        """For each arm, at the first ε that was asked for."""
        return self.rows[0].persons

    @property
    def horizon(self) -> int:
        """For all arms together, at the first ε that was asked for: what an experiment is told."""
        return self.arms * self.persons

    @property
    def without_privacy(self) -> int:
        """For each arm."""
        return self.rows[-1].persons

    def cells(self) -> list[list[str]]:
        """A table with a head."""
        cells = [["ε", "persons per arm", "in all", "over no privacy"]]
        for row in self.rows:
            name = f"{row.epsilon:g}" if math.isfinite(row.epsilon) else "no privacy"
            ratio = f"{row.persons / self.without_privacy:.2f}"
            cells.append([name, f"{row.persons:,}", f"{self.arms * row.persons:,}", ratio])
        return cells

    @property
    def sentence(self) -> str:
        """What was asked."""
        return (
            f"{self.baseline:g} against {self.baseline + self.effect:g}, {self.arms} arms, found with probability "
            f"{self.power:g}, level {self.alpha:g} at all times"
        )

    def __str__(self) -> str:
        return f"{self.sentence}\n{as_text(self.cells())}"

    def _repr_html_(self) -> str:
        return as_html(self.sentence, self.cells())

    def to_dict(self) -> dict[str, Any]:
        """Plain values; ε is None without privacy."""
        rows = [
            {"epsilon": row.epsilon if math.isfinite(row.epsilon) else None, "persons": row.persons}
            for row in self.rows
        ]
        return {**vars(self), "rows": rows}


def plan(
    baseline: float,
    effect: float,
    *,
    epsilon: float | Sequence[float] = 1.0,
    delta: float = 0.0,
    alpha: float = 0.05,
    power: float = 0.8,
    arms: int = 2,
    metric_range: tuple[float, float] = (0.0, 1.0),
    std: float | None = None,
) -> Plan:
    """How many persons each arm needs, so that a better arm is found with probability ``power``.

    For a fixed split that is ended when the best arm is known; many experiments end earlier.

    Parameters
    ----------
    baseline : float
        The mean of all arms but the better one.
    effect : float
        By how much that is better, positive.
    epsilon : float or sequence of float
        Of the whole experiment, for one person replaced; several make a table.
    delta : float
        Of the budget.
    alpha, power : float
        In (0, 1).
    arms : int
        K, from 2 to 1,000.
    metric_range : (float, float)
        That of the experiment.
    std : float, optional
        Of a person's value, at most half the range; by default the largest there is at this mean, as of values at the
        range's ends.

    Returns
    -------
    Plan

    Raises
    ------
    ValueError
        For a mean outside of the range, or a number of persons beyond 2³³.

    Examples
    --------
    >>> from dpbandits import Experiment
    >>> found = Experiment.plan(0.1, 0.05, epsilon=[0.5, 2.0])
    >>> [row.epsilon for row in found.rows]
    [0.5, 2.0, inf]
    >>> found.persons > found.without_privacy > 1000
    True
    """
    low, high = map(float, metric_range)
    length = positive("the length of metric_range", high - low)
    share, step = (float(baseline) - low) / length, positive("effect", effect) / length
    if not 0.0 <= share < share + step <= 1.0:
        raise ValueError(
            f"baseline and baseline + effect must lie in metric_range, [{low:g}, {high:g}], got baseline={baseline!r} "
            f"and effect={effect!r}: write 10 % as 0.1, or state the metric_range of values that are no shares"
        )
    spread = None if std is None else positive("std", std) / length
    if spread is not None and spread > 0.5 * (1 + 1e-9):  # Popoviciu's inequality
        raise ValueError(
            f"std must be at most half the range, {length / 2:g}, as no values in [{low:g}, {high:g}] spread more, got "
            f"std={std!r}: state it in the units of metric_range"
        )
    level = fraction("alpha", alpha), fraction("power", power)
    K = integer("arms", arms, at_least=2, at_most=_MOST_ARMS)
    wanted = [epsilon] if isinstance(epsilon, (int, float)) else list(epsilon)
    if not wanted:
        raise ValueError("epsilon must be at least one number, got none")
    rows = [PlanRow(one, _persons(Budget(one, delta), share, step, *level, K, spread)) for one in map(float, wanted)]
    rows.append(PlanRow(math.inf, _persons(None, share, step, *level, K, spread)))
    return Plan(float(baseline), float(effect), *level, K, tuple(rows))


def _persons(
    budget: Budget | None, p: float, step: float, alpha: float, power: float, K: int, spread: float | None
) -> int:
    """For each arm, for means p and p + step."""
    sums = None if budget is None else TrialBatches(1, [(0.0, 1.0)], [0.0], [1], budget=budget)
    cost, scale, noise = (None, 1.0, 0.0) if sums is None else (sums.cost, sums.scale, sums.noise)
    middle = p + 0.5 * step
    needed = math.sqrt(2.0 * (math.log(K / alpha) + _MIXED)) + max(0.0, NormalDist().inv_cdf(power))
    found = math.ceil(2.0 * needed**2 * middle * (1.0 - middle) / step**2)
    for _ in range(_PASSES):
        horizon = min(max(found, 64), _MOST) * K
        ends = np.array(batch_ends(horizon, K, noise))
        sequences = Sequences(cost, scale, STEPS, horizon, True)
        critical = _critical(sequences, ends.astype(np.float64), 2.0 * p + step, math.log(K / alpha))
        before, found = found, _first(critical, ends, p, step, noise, power, K, spread)
        if found > _MOST:
            raise ValueError(
                f"effect must be one that at most 2**33 persons per arm can show, got {step:g} of the range"
            )
        if abs(found - before) <= 0.03 * found:
            break
    return found


def _critical(sequences: Sequences, ends: Array, level: float, wanted: float) -> Array:
    """At each look the smallest difference of two sums that is enough, where both together are as expected."""
    at = np.unique(np.round(np.geomspace(1.0, len(ends), _LOOKS))).astype(np.int64)
    count, releases = ends[at - 1], at.astype(np.float64)
    low, high = np.zeros(len(at)), np.ones(len(at))
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        a, b = (Evidence(0.5 * count * (level + side * middle), count, releases) for side in (1.0, -1.0))
        enough = sequences.log_evidence_better(a, b) >= wanted
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    # over √n it is nearly a straight line in log n
    return np.asarray(np.sqrt(ends) * np.interp(np.log(ends), np.log(count), high * np.sqrt(count)))


def _first(
    critical: Array, ends: Array, p: float, step: float, noise: float, power: float, K: int, spread: float | None
) -> int:
    """By which look enough random experiments have found the better arm; twice the last one, if none is enough."""
    rng, lengths = np.random.default_rng(0), np.diff(ends, prepend=0)
    waiting = np.ones(_RUNS, dtype=np.bool_)
    totals = np.zeros((_RUNS, K))
    means = np.full(K, p)
    means[0] += step
    for look, length in enumerate(lengths.tolist()):
        if spread is None:
            values = rng.binomial(length, means, size=(_RUNS, K)).astype(np.float64)
        else:
            values = length * means + math.sqrt(length) * spread * rng.standard_normal((_RUNS, K))
        # the noise of many batches is about normal
        totals += values + noise * rng.standard_normal((_RUNS, K))
        waiting &= (totals[:, :1] - totals[:, 1:] < critical[look]).any(axis=1)
        if waiting.mean() <= 1.0 - power:
            return int(ends[look])
    return 2 * int(ends[-1])

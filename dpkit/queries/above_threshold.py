"""The first of many queries that is above a threshold, for the price of one.

For anyone who watches a stream of statistics and wants to know when one passes a limit; all answers "below" are free.

Algorithm (Dwork & Roth 2014, Algorithm 1; Lyu, Su & Li 2017, Algorithm 1): the threshold gets noise once, every query
gets fresh noise, and the first noisy query at or above the noisy threshold ends it.

Privacy. Every query has sensitivity at most Δ. Queries and threshold are rounded to a lattice of step γ, on which the
sensitivity is at most d = ⌊Δ/γ⌋ + 1 steps. Discrete Laplace noise has scale 2d/ε for the threshold and 4d/ε for queries
(2d/ε if all queries move the same way between any two neighbours, ``monotone``). The proof is the one in the
textbook, on whole numbers: for given noise of the queries below, moving the threshold's noise by d steps (probability
factor e^(ε/2)) keeps them below, and moving the last query's by 2d steps (d, if monotone; factor e^(ε/2) at its scale)
keeps it above. The whole run is ε-DP, however many queries there are. Sums over whole numbers are exact, and so are the
samplers: nothing is left to floating point. Cost: one random number per query.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from accounting import Budget, PureDP
from accounting.checks import positive
from dpkit import randomness
from dpkit.mechanisms._checked import charge
from dpkit.queries._units import check_spending
from dpkit.samplers import discrete_laplace
from dpkit.samplers.lattice import default_granularity, lattice_step

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["AboveThreshold", "error_bound", "scales"]


class AboveThreshold:
    """Ask one query after the other until one is above the threshold.

    Parameters
    ----------
    threshold : float
        Public.
    sensitivity : float
        Δ > 0, of every query.
    budget : Budget
        What the whole run may spend; its ε is used, as pure differential privacy.
    monotone : bool
        Between two neighbours all queries move the same way (counts under ``add_remove``): half the noise.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.
    ledger : Ledger, optional
        The run is recorded in it, or refused by it, when it starts.

    Raises
    ------
    RuntimeError
        By :meth:`ask`, after the first query above the threshold.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit.queries import AboveThreshold
    >>> alarm = AboveThreshold(100.0, sensitivity=1.0, budget=Budget(50.0, 0.0), monotone=True)
    >>> [alarm.ask(cases) for cases in (3.0, 20.0, 400.0)]
    [False, False, True]
    """

    def __init__(
        self,
        threshold: float,
        *,
        sensitivity: float,
        budget: Budget | None = None,
        monotone: bool = False,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.budget = check_spending(budget, ledger)
        size = positive("sensitivity", sensitivity)
        self._step, scale, self._query_scale = scales(size, self.budget.epsilon, monotone)
        level = lattice_step(float(threshold), self._step)
        self.cost = PureDP(self.budget.epsilon, adjacency=self.budget.adjacency)
        self._rng = randomness.resolve(rng)
        charge(ledger, self.cost, "queries.AboveThreshold", self._rng)
        self._level = level + int(discrete_laplace(scale, rng=self._rng))
        self.done = False

    def __repr__(self) -> str:
        return f"AboveThreshold: {'ended' if self.done else 'open'}, costs {self.cost!r}"

    def ask(self, value: float) -> bool:
        """Whether this query is above the threshold, as far as the noise lets it be seen."""
        if self.done:
            raise RuntimeError("the run ended with its first query above the threshold: start another one, at its cost")
        step = lattice_step(float(value), self._step)
        self.done = step + int(discrete_laplace(self._query_scale, rng=self._rng)) >= self._level
        return self.done


def error_bound(sensitivity: float, epsilon: float, queries: int, probability: float) -> float:
    """α: but for this ``probability``, of so many ``queries`` those said to be below are at most α above the threshold.

    And the one said to be above is at most α below it. For runs that are not ``monotone``. Discrete Laplace noise of
    scale s has P(|k| > j) = 2e^{−(j + 1)/s}/(1 + e^{−1/s}); the threshold has half of the probability, and the queries
    share the other half.
    """
    step, of_threshold, of_query = scales(sensitivity, epsilon, monotone=False)
    reach = of_threshold * math.log(4 / probability), of_query * math.log(4 * queries / probability)
    # queries and threshold are rounded to the lattice
    return (math.ceil(reach[0]) + math.ceil(reach[1]) + 1) * step


def scales(sensitivity: float, epsilon: float, monotone: bool) -> tuple[float, float, float]:
    """The lattice's step, and the scales of the noise of the threshold and of queries, in steps; for exact samplers."""
    step = default_granularity(sensitivity, 1, norm=1)
    moved = math.floor(sensitivity / step) + 1
    scale = 2 * moved / epsilon * (1 + 2.0**-50)
    of_query = scale if monotone else 2 * scale
    if not (scale >= 2.0**-40 and of_query <= 2.0**40):
        small = "small" if scale > 1 else "large"
        raise ValueError(f"budget.epsilon is too {small} for noise in 64 bits, got epsilon={epsilon:g} for one run")
    return step, scale, of_query

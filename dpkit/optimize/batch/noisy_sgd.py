"""Noisy mini-batch SGD, by default with Poisson sampling: many cheap steps on random parts of the data.

For large n, where a full pass per step is too slow. Sources: Bassily, Feldman, Guha Thakurta & Talwar (2019), "Private
stochastic convex optimization with optimal rates", arXiv:1908.09970, Algorithm 1; Bassily, Feldman, Guzmán & Talwar
(2020), "Stability of stochastic gradient descent on nonsmooth convex losses", arXiv:2006.06914, Algorithm 2; Abadi et
al. (2016), arXiv:1607.00133. The papers draw mini-batches with replacement, and price replaced rows by an accountant of
Poisson samples with rows that come or go; here every row joins a batch independently with probability q = batch/n,
which is what is priced, for a swap where the budget counts swaps:

    θ_{t+1} = Π(θ_t − η·(1/batch)(Σ_{i∈B_t} ∇ℓ(θ_t; x_i) + noise)),    t = 1 … T,    result: the mean iterate.

Privacy. Unit: one row, or with ``groups`` one person and the mean gradient of that person's rows. Gradients are
clipped to L = ``objective.clip`` in ℓ₂, so one row moves a sum by at most L when it comes or goes; the noise is
Gaussian of z·L. The run costs T × PoissonSubsampled(Gaussian(z), q), under add_remove or for a swap, whichever the
budget counts (``accounting.amplification.subsampling`` has the proofs). Batches made otherwise have other prices, by
whole epochs of ⌈n/batch⌉ steps (:mod:`dpkit.training.batches`). n is public: the number of rows under
replace, the caller's ``public_rows`` under add_remove. Sums are exact
(:class:`dpkit.training.whole_rows.UnitRows`), and so is the noise.

Where ``steps`` is None the schedule is that of 2019 for smooth losses, of linear time (T steps on batches of m rows):

    T = min(n/8, n²ε²/(32d·ln(1/δ))),    m = max(n√(ε/(4T)), 1).

Cost per step: batch gradients and one projection.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Budget, Release, calibrate
from accounting.checks import integer, positive
from dpkit import randomness
from dpkit.geometry import ConvexSet
from dpkit.mechanisms import GaussianMechanism
from dpkit.mechanisms._checked import charged
from dpkit.models.losses import GLM
from dpkit.training.batches import Batches, Sampling, checked_batches
from dpkit.training.groups import checked_groups, gradient_sums
from dpkit.training.result import NOTHING, outcome
from dpkit.training.rows import (
    checked_budget,
    checked_data,
    checked_start,
    public_count,
)

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

    from accounting import Ledger  # loaded by whoever has one

__all__ = ["noisy_sgd"]


def noisy_sgd(
    objective: GLM,
    X: ArrayLike,
    y: ArrayLike,
    *,
    constraint: ConvexSet,
    budget: Budget,
    steps: int | None = 1000,
    batch: int | None = None,
    sampling: Sampling = "poisson",
    max_batch: int | None = None,
    step_scale: float = 1.0,
    public_rows: int | None = None,
    groups: ArrayLike | None = None,
    start: ArrayLike | None = None,
    callback: Callable[[NDArray[np.float64]], object] | None = None,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> OptimizeResult:
    """Minimise the mean loss over a convex set by T noisy steps on random batches.

    Parameters
    ----------
    objective : GLM
        With a ``clip``: L.
    X : (n, d) array_like
    y : (n,) array_like
    constraint : ConvexSet
        Public.
    budget : Budget
        With δ > 0, counted by "add_remove" or "replace".
    steps : int, optional
        T. None takes that of the module's text.
    batch : int, optional
        The expected number of rows in a batch, at most n; by default √n, or m if ``steps`` is None.
    sampling : {"poisson", "balls_in_bins", "shuffle"}
        How batches are made (:mod:`dpkit.training.batches`), which decides what they cost: each row in each batch with
        one probability, each in one batch of every epoch, or batches of one size from a shuffled order. The last has no
        amplification that is proved, costs several times the noise, and is for "replace" only.
    max_batch : int, optional
        The most rows of a batch, of which larger ones keep so many, drawn evenly; under "replace" only. That a batch
        would be larger costs δ.
    step_scale : float
        Multiplies η = D/√(T(L² + dσ²)), with σ the noise in each coordinate of a step's mean gradient.
    public_rows : int, optional
        n; by default the number of rows. Required under add_remove.
    groups : (n,) array_like of int or str, optional
        Whose row each one is, public. Then the unit is a person, with any number of rows: what is clipped and summed is
        the mean gradient of a person's rows, n counts people, and ``budget.unit`` must be "person".
    start : (d,) array_like, optional
        θ_1; by default the set's centre.
    callback : callable, optional
        Called with every iterate; each of them is covered by the cost.
    rng : numpy.random.Generator, optional
        None draws samples and noise from the secure source; a seeded generator gives a simulation.
    ledger : Ledger, optional
        Charged with the whole run before anything is drawn.

    Returns
    -------
    OptimizeResult
        See :func:`dpkit.training.result.outcome`. Without rows ``x`` is the start, at no cost.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range, rows that are not finite, labels that the objective is not for, or a start outside
        the set. Nothing is drawn or charged.
    BudgetExceeded
        If the ledger refuses, or δ is 0.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.geometry import LpBall
    >>> from dpkit.optimize import glm, noisy_sgd
    >>> X = np.random.default_rng(0).normal(size=(5000, 3)) / 3
    >>> y = (X @ [1.0, -1.0, 0.0] > 0).astype(float)
    >>> budget = Budget(1.0, 1e-6, adjacency="add_remove")
    >>> fit = noisy_sgd(
    ...     glm("logistic", clip=1.0), X, y, constraint=LpBall(2, 3, 2.0), budget=budget, steps=100, public_rows=5000
    ... )
    >>> fit.nit, bool(fit.x[0] > 0.3 > -0.3 > fit.x[1])
    (100, True)
    """
    d = constraint.dimension
    X, y = checked_data(X, y, d, objective)
    theta = checked_start(constraint, start)
    checked_budget(budget, allowed=("replace", "add_remove"), people=True)
    sums = gradient_sums(objective, X, y, checked_groups(budget, groups, len(X)))
    n = public_count(sums.units, public_rows, budget.adjacency)
    T, expected = _schedule(n, d, budget) if steps is None else (steps, max(1, math.isqrt(n)))
    T = integer("steps", T, at_least=1)
    scale = positive("step_scale", step_scale)
    expected = expected if batch is None else integer("batch", batch, at_least=1)
    source = randomness.resolve(rng)
    if n == 0:
        return outcome(theta, NOTHING, nit=0, nfev=0, message="no rows: the start is returned", clipped=0)
    if expected > n:
        raise ValueError(f"batch must be at most the number of rows {n}, got batch={batch!r}")
    batches = checked_batches(sampling, n, expected, max_batch, count=sums.units, steps=T, budget=budget)
    z, cost = _calibrated(budget, T, batches)
    noisy = GaussianMechanism(
        noise_multiplier=z, sensitivity=sums.sensitivity("add_remove"), adjacency="add_remove", rng=source
    )
    sigma = z * sums.clip / expected
    eta = scale * constraint.diameter() / math.sqrt(T * (sums.clip**2 + d * sigma**2))

    with charged(ledger, cost, f"noisy SGD, {batches.said}", source):
        mean = np.zeros(d)
        for chosen in islice(_endless(batches, source, sums.units), T):
            mean += theta / T
            theta = constraint.project(theta - eta * noisy.release(sums.at(theta, chosen)) / expected)
            if callback is not None:
                callback(theta.copy())
        return outcome(
            mean,
            cost,
            nit=T,
            # the expected number: the realised one would tell what the samples were, which the cost counts as hidden
            nfev=T * expected,
            message=f"{T} steps on {batches.said} of {expected} rows in the mean",
            clipped=sums.clipped,
        )


def _schedule(n: int, d: int, budget: Budget) -> tuple[int, int]:
    """T and m where neither is given; for δ = 0, which the ledger's accountants refuse, as for δ = 1e-300."""
    logarithm = math.log(1.0 / max(budget.delta, 1e-300))
    T = max(1, math.floor(min(n / 8.0, (n * budget.epsilon) ** 2 / (32.0 * d * max(logarithm, 1e-9)))))
    return T, max(1, min(n, round(n * math.sqrt(budget.epsilon / (4.0 * T)))))


def _endless(batches: Batches, source: np.random.Generator, units: int) -> Iterator[NDArray[np.intp]]:
    while True:
        yield from batches.epoch(source, units)


@lru_cache(maxsize=64)
def _calibrated(budget: Budget, steps: int, batches: Batches) -> tuple[float, Release]:
    """z and what the run costs; kept, for it takes a second, and a search for a clip norm asks for the same."""

    def run(z: float) -> Release:
        return batches.price(z, steps=steps, adjacency=budget.adjacency)

    z = calibrate(run, budget)
    return z, run(z)

"""Projected gradient descent on data that never leave their owners unprotected: every gradient sum is shuffled.

For a server that fits a model to users who trust a shuffler but not the server. In each round every user computes the
gradient of its own row at the current iterate, which is public, clips it and sends it through the shuffled vector sum;
the server sees the noisy sum and takes a step.

Source: Cheu, Joseph, Mao & Peng (2022), "Shuffle private stochastic convex optimization", Section 4, as restated by
Sarmasarkar (2026, arXiv:2602.00417), Algorithm 7.

    ḡ_t = (1/n)·(noisy Σᵢ ∇ℓ(θ_t; x_i)),    θ_{t+1} = Π(θ_t − η·ḡ_t)

Privacy. Unit: one user (one row), replaced by any other; n and who takes part are public. A row's clipped gradients
are at most 2L apart, L the objective's ``clip``. Each round is one release of a :class:`~dpkit.shuffle.VectorSum`,
and the rounds compose adaptively.

Two schedules. D is the diameter of the constraint set, s(T) the standard deviation of the noise in a coordinate of ḡ
when T rounds share the budget, which grows like √T.

* ``"numeric"``: all T rounds together meet the budget; the result is the mean of the last half of the iterates, whose
  excess loss is at most D²/(ηT) + ηG²/2 in expectation. G² = L² + d·s(T)² for any convex loss; d·s(T)² for one whose
  mean has curvature at most β, if η ≤ 1/β as well (Lan 2012, "An optimal method for stochastic composite
  optimization", up to the constant). η is the best under that bound. It falls with T towards a limit and is within √2
  of it once T ≥ L²/(d·s(1)²): that is T, up to ``max_iterations``.
* ``"paper"``: T = ε²n²/(d ln³(nd/δ)), η = 2D/(L√T), and each round meets (ε/(2√(2T ln(1/δ))), δ/(T + 1)); the result is
  the mean of all iterates. The noise of a round is calibrated numerically all the same.

Cost per round: one gradient and D·(g + b) bits per user.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike

from accounting import Budget, Gaussian, calibrate
from accounting.arrays import Array
from accounting.checks import integer, positive
from dpkit import randomness
from dpkit.clipping import clipped, lengths
from dpkit.geometry import ConvexSet
from dpkit.mechanisms._checked import charged
from dpkit.models.losses import GLM
from dpkit.shuffle import Analyzer, Randomizer, Shuffler, SumProtocol, VectorSum
from dpkit.training.result import NOTHING, outcome
from dpkit.training.rows import checked_budget, checked_data, checked_start, clip_of

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

    from accounting import Ledger  # loaded by whoever has one

__all__ = ["shuffle_gradient_descent"]


def shuffle_gradient_descent(
    objective: GLM,
    X: ArrayLike,
    y: ArrayLike,
    *,
    constraint: ConvexSet,
    budget: Budget,
    schedule: Literal["numeric", "paper"] = "numeric",
    max_iterations: int = 200,
    smoothness: float | None = None,
    step_size: float | None = None,
    start: ArrayLike | None = None,
    honest: float = 1.0,
    callback: Callable[[Array], object] | None = None,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> OptimizeResult:
    """Minimise the mean loss of n users' rows over a convex set, in the shuffle model.

    Parameters
    ----------
    objective : GLM
        With a ``clip``: L, the bound on every row's gradient.
    X : (n, d) array_like
    y : (n,) array_like
        The users' rows; this function plays all parties.
    constraint : ConvexSet
        The set to which iterates are projected, such as ``geometry.LpBall(2, d)``; public.
    budget : Budget
        What the whole descent may cost one user.
    schedule : {"numeric", "paper"}
        How the number of rounds, the step size and the noise are chosen; see the module's text.
    max_iterations : int
        The largest number of rounds, of either schedule.
    smoothness : float, optional
        β, a public bound on the curvature of the mean loss, such as ``objective.smoothness(1.0)`` for rows that are
        known to be of norm at most 1. It allows the numeric schedule far longer steps; privacy does not depend on it.
    step_size : float, optional
        η, instead of the schedule's.
    start : (d,) array_like, optional
        θ_0; by default the set's centre.
    honest : float
        The fraction of users that is counted on for noise.
    callback : callable, optional
        Called with every iterate θ_{t+1}.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.
    ledger : Ledger, optional
        Charged with the whole run before any noise is drawn.

    Returns
    -------
    OptimizeResult
        See :func:`dpkit.training.result.outcome`; also ``noise_std`` (of a coordinate of ḡ), ``step_size`` (η)
        and ``messages_per_user`` (labelled bits, over all rounds). Without rows ``x`` is the start, at no cost.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range, an objective without clip, rows that are not finite, labels that the objective is
        not for, or a start outside the set. Nothing is drawn or charged.
    BudgetExceeded
        If the ledger refuses.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.geometry import LpBall
    >>> from dpkit.optimize import glm, shuffle_gradient_descent
    >>> X = np.random.default_rng(0).normal(size=(5000, 3)) / 3
    >>> y = (X @ [1.0, -1.0, 0.0] > 0).astype(float)
    >>> fit = shuffle_gradient_descent(
    ...     glm("logistic", clip=1.0), X, y, constraint=LpBall(2, 3, 2.0), budget=Budget(1.0, 1e-6), max_iterations=20
    ... )
    >>> fit.nit, bool(fit.x[0] > 0.3 > -0.3 > fit.x[1])
    (20, True)
    """
    d = constraint.dimension
    X, y = checked_data(X, y, d, objective)
    L, D = clip_of(objective), constraint.diameter()
    theta = checked_start(constraint, start)
    checked_budget(budget, allowed=("replace", "zero_out"), people=True)
    if budget.delta == 0:
        raise ValueError("budget must have a positive delta: binomial noise gives no pure differential privacy")
    T_max = integer("max_iterations", max_iterations, at_least=1)
    source = randomness.resolve(rng)
    n = len(X)
    if n == 0:
        return outcome(theta, NOTHING, nit=0, nfev=0, message="no rows: the start is returned", clipped=0)
    if schedule == "numeric":
        protocol, eta = _numeric(n, d, L, D, budget, honest, T_max, smoothness)
    elif schedule == "paper":
        protocol, eta = _paper(n, d, L, D, budget, honest, T_max)
    else:
        raise ValueError(f"schedule must be 'numeric' or 'paper', got schedule={schedule!r}")
    if step_size is not None:
        eta = positive("step_size", step_size)
    T, cost = protocol.rounds, protocol.rounds * protocol.cost
    users, shuffler, server = (
        Randomizer(protocol, clip=True, rng=source),
        Shuffler(protocol, rng=source),
        Analyzer(protocol),
    )
    row_lengths = lengths(X)
    first = T // 2 if schedule == "numeric" else 0
    mean, cut = np.zeros(d), 0

    with charged(ledger, cost, "shuffle gradient descent", source):
        for t in range(T):
            if t >= first:
                mean += theta / (T - first)
            with np.errstate(all="ignore"):  # what overflows is clipped
                slopes, count = clipped(objective.slope(X @ theta, y), row_lengths, L)
            cut += count
            shuffled = shuffler.shuffle_tallies(users.tally(slopes[:, None] * X))
            theta = constraint.project(theta - eta * server.decode(shuffled, n) / n)
            if callback is not None:
                callback(theta.copy())
        return outcome(
            constraint.project(mean),
            cost,
            nit=T,
            nfev=T * n,
            message=f"{T} rounds of the {schedule} schedule",
            clipped=cut,
            noise_std=protocol.noise_std(n) / n,
            step_size=eta,
            messages_per_user=T * protocol.messages_per_user,
        )


def _numeric(
    n: int, d: int, L: float, D: float, budget: Budget, honest: float, T_max: int, smoothness: float | None
) -> tuple[SumProtocol, float]:
    beta = None if smoothness is None else positive("smoothness", smoothness)
    # s(1) of exact Gaussian noise, which is close enough to choose T
    s1 = 2.0 * L * calibrate(Gaussian, budget) / n
    T = min(T_max, max(1, math.ceil(L**2 / (d * s1**2))))
    protocol = VectorSum(d, n, L, budget=budget, rounds=T, honest=honest).protocol
    noise = d * (protocol.noise_std(n) / n) ** 2
    if beta is None:
        return protocol, D * math.sqrt(2.0 / (T * (L**2 + noise)))
    return protocol, min(1.0 / beta, D * math.sqrt(2.0 / (T * noise)))


def _paper(n: int, d: int, L: float, D: float, budget: Budget, honest: float, T_max: int) -> tuple[SumProtocol, float]:
    epsilon, delta = budget.epsilon, budget.delta
    T = min(T_max, max(1, math.floor((epsilon * n) ** 2 / (d * math.log(n * d / delta) ** 3))))
    share = Budget(
        epsilon / (2.0 * math.sqrt(2.0 * T * math.log(1.0 / delta))), delta / (T + 1), adjacency=budget.adjacency
    )
    protocol = VectorSum(d, n, L, budget=share, honest=honest).protocol
    return replace(protocol, rounds=T), 2.0 * D / (L * math.sqrt(T))

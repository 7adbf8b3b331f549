"""Variance-reduced Frank–Wolfe in ℓ₁: noisy choices of vertices by gradients that are corrected along binary trees.

For a batch of rows, sparse models and many features: among the private methods in ℓ₁ the one of the best rate,
√(ln d/n) + (ln d/(εn))^{2/3}, in linear time. Source: Asi, Feldman, Koren & Talwar (2021), "Private stochastic convex
optimization: optimal rates in ℓ₁ geometry", arXiv:2103.01516, the algorithm of Theorem 7:

    phase t = 1 … T walks a binary tree of depth t, whose 2^t leaves are Frank–Wolfe steps, from left to right. Its
    root estimates the gradient at the current iterate from b rows; a left child takes its parent's estimate over; the
    right child of s, of depth ℓ, adds to it the mean over ⌊b/2^ℓ⌋ fresh rows of ∇ℓ(θ; ·) − ∇ℓ(θ_s; ·), θ the current
    iterate and θ_s that at which s was estimated. A leaf with the estimate d, the i-th (from 0), sets
    θ ← θ + η(v − θ),  v = report-noisy-min over the vertices of ⟨d, v⟩,  η = 2c/(2^(t−1) + i + 1).

Privacy. Unit: one row; n and the order of the rows are public. Each row is in one node s, and moves the choices at the
2^{t−ℓ} leaves below it only. Gradients are clipped in ℓ_∞ to L = ``objective.clip``, differences at depth ℓ to
min(2, drift·2^{−ℓ})·L, as the iterate has moved by about 2^{−ℓ} of the diameter. So, given the choices before, another
row moves a score by at most a_0 = 2LR/b at the root and a_ℓ = 2LR·min(2, drift·2^{−ℓ})/⌊b/2^ℓ⌋ at depth ℓ, about as
much; R is the largest ‖v‖₁ (halves of these under zero_out). The choices of a phase have Gumbel noise of one scale τ_t,
so with ``dpkit.optimize.parts.vertex_choices`` a row of that phase spends

    2^{t−ℓ}(a_ℓ + κ)²/(2τ_t²) ≤ ρ,

τ_t the smallest for which that holds at every depth; the phases read different rows, so the run costs ρ. (The paper
bounds a difference by smoothness alone, which its privacy then assumes; here it is cut. Its Laplace noise pays for 2^t
choices by strong composition.) κ covers rounding: means of m terms up to s are off by at most (m + 4)us in float64,
u = 2⁻⁵³, sums of up to t + 1 of them by 4(t + 1)uL, and a score by 4duLR more, so that two runs on neighbours come
within κ = 2uLR(Σ_ℓ (m_ℓ + 4)s_ℓ/L + 4(t + 1) + 4d) of the exact difference.

Cost: at most 2n gradients, and 2^{T+1} − 2 choices of one random number per vertex.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import ZCDP, Budget
from accounting.checks import integer, positive
from dpkit import randomness
from dpkit.geometry import PolyhedralSet
from dpkit.mechanisms._checked import charged
from dpkit.models.losses import GLM
from dpkit.optimize.parts.vertex_choices import BoundedMeans, check_vertices, choose, largest_rho
from dpkit.training.result import NOTHING, outcome
from dpkit.training.rows import checked_budget, checked_data, checked_start, row_sensitivity

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

    from accounting import Ledger  # loaded by whoever has one

__all__ = ["variance_reduced_frank_wolfe"]

Vector = NDArray[np.float64]


def variance_reduced_frank_wolfe(
    objective: GLM,
    X: ArrayLike,
    y: ArrayLike,
    *,
    constraint: PolyhedralSet,
    budget: Budget,
    phases: int | None = None,
    step_scale: float = 1.0,
    drift: float = 2.0,
    start: ArrayLike | None = None,
    callback: Callable[[Vector], object] | None = None,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> OptimizeResult:
    """Minimise the mean loss over the hull of few vertices by one pass of variance-reduced Frank–Wolfe.

    Parameters
    ----------
    objective : GLM
        With a ``clip``: L, here the bound on every row's gradient in ℓ_∞.
    X : (n, d) array_like
    y : (n,) array_like
    constraint : PolyhedralSet
        Public: ``LpBall(1, d, radius)`` or ``Simplex(d, mass)``.
    budget : Budget
        With δ > 0, counted by "replace" or "zero_out".
    phases : int, optional
        T; by default that for which 2LR/2^T + τ_T·ln(number of vertices), about what is left to descend and the noise
        of a choice, is least. b is the largest for which the rows suffice.
    step_scale : float
        c, positive; 1 is the paper's.
    drift : float
        How much a gradient may turn, over L, while the iterate crosses the set; 2 is enough where βD ≤ 2L, D the
        diameter in ℓ₁.
    start : (d,) array_like, optional
        The first iterate; by default the set's centre.
    callback : callable, optional
        Called with every iterate; each of them is covered by the cost.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.
    ledger : Ledger, optional
        Charged with the whole run before any noise is drawn.

    Returns
    -------
    OptimizeResult
        See :func:`dpkit.training.result.outcome`. Without rows ``x`` is the start, at no cost.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range, another set, rows that are not finite, labels that the objective is not for, too
        few rows for the ``phases``, or a start outside the set. Nothing is drawn or charged.
    BudgetExceeded
        If the ledger refuses, or δ is 0.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.geometry import LpBall
    >>> from dpkit.optimize import glm, variance_reduced_frank_wolfe
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(4000, 100))
    >>> fit = variance_reduced_frank_wolfe(
    ...     glm("squared", clip=0.5), X, 0.8 * X[:, 7], constraint=LpBall(1, 100), budget=Budget(2.0, 1e-6)
    ... )
    >>> int(np.argmax(fit.x)), fit.message
    (7, '3 trees with 667 rows at the root, among 200 vertices')
    """
    vertices = check_vertices(constraint)
    d = constraint.dimension
    X, y = checked_data(X, y, d, objective)
    theta = checked_start(constraint, start)
    checked_budget(budget, allowed=("replace", "zero_out"))
    means = BoundedMeans(objective, X, y)
    c, turn = positive("step_scale", step_scale), positive("drift", drift)
    given = None if phases is None else integer("phases", phases, at_least=1)
    n = len(X)
    source = randomness.resolve(rng)
    if n == 0:
        return outcome(theta, NOTHING, nit=0, nfev=0, message="no rows: the start is returned", clipped=0)
    rho = largest_rho(budget)
    cost = ZCDP(rho, adjacency=budget.adjacency)
    change = row_sensitivity(means.clip, budget.adjacency) * constraint.radius_in(1.0)
    if given is None:
        reach = 2.0 * means.clip * constraint.radius_in(1.0)
        possible = [T for T in range(1, n.bit_length()) if _root_rows(n, T) >= 2**T] or [0]  # 0: a root that is a leaf
        T = min(
            possible,
            key=lambda T: reach / 2**T + _scale(change, T, _root_rows(n, T), turn, d, rho) * math.log(vertices + 1),
        )
    else:
        T = given
    b = _root_rows(n, T)
    if b < 2**T:
        raise ValueError(f"phases must leave a row for every leaf of the last tree, got phases={T} with {n} rows")
    trees = range(min(1, T), T + 1)
    scales = {t: _scale(change, t, b, turn, d, rho) for t in trees}

    with charged(ledger, cost, "variance-reduced Frank-Wolfe", source):
        begin = steps = 0

        def fresh(count: int) -> slice:
            nonlocal begin
            begin += count
            return slice(begin - count, begin)

        def visit(t: int, depth: int, estimate: Vector, at: Vector) -> None:
            """The leaves below a node of tree t, whose estimate was made at the iterate ``at``."""
            nonlocal theta, steps
            if depth == t:
                vertex = choose(constraint, estimate, scales[t], source)
                leaf = steps - (2**t - 2)  # i: the trees before had 2^t − 2 leaves
                theta = theta + min(1.0, 2.0 * c / (2.0 ** (t - 1) + leaf + 1)) * (vertex - theta)
                steps += 1
                if callback is not None:
                    callback(theta.copy())
                return
            visit(t, depth + 1, estimate, at)
            here, bound = theta, means.clip * _share(turn, depth + 1)
            moved = means.difference(here, at, 1.0, fresh(_node_rows(b, depth + 1)), bound)
            visit(t, depth + 1, estimate + moved, here)

        for t in trees:
            visit(t, 0, means.at(theta, fresh(b)), theta)
        return outcome(
            theta,
            cost,
            nit=steps,
            nfev=means.nfev,
            message=f"{T} trees with {b} rows at the root, among {vertices} vertices",
            clipped=means.clipped,
        )


def _node_rows(b: int, depth: int) -> int:
    return max(1, b >> depth)


def _share(drift: float, depth: int) -> float:
    """The clip norm of a node's terms over L."""
    return 1.0 if depth == 0 else min(2.0, drift * 2.0**-depth)


def _rows(b: int, t: int) -> int:
    """The rows that tree t reads: b at the root, and of every depth half of the nodes."""
    return b + sum((1 << (depth - 1)) * _node_rows(b, depth) for depth in range(1, t + 1))


def _root_rows(n: int, T: int) -> int:
    """The largest b for which T trees read at most n rows; 0 if there is none."""
    if T == 0:
        return n
    low, high = 0, n + 1  # ``low`` rows are few enough
    while high - low > 1:
        b = (low + high) // 2
        low, high = (b, high) if sum(_rows(b, t) for t in range(1, T + 1)) <= n else (low, b)
    return low


def _scale(change: float, t: int, b: int, drift: float, d: int, rho: float) -> float:
    """τ_t, for scores ⟨g, v⟩ of single gradients that a row moves by ``change``."""
    depths = range(t + 1)
    off = sum((_node_rows(b, depth) + 4.0) * _share(drift, depth) for depth in depths)
    kappa = 2.0**-52 * change * (off + 4.0 * (t + 1) + 4.0 * d)
    largest = max(
        2.0 ** (t - depth) * (change * _share(drift, depth) / _node_rows(b, depth) + kappa) ** 2 for depth in depths
    )
    # rounded up, so that no row spends more than ρ
    return math.sqrt(largest / (2.0 * rho)) * (1.0 + 1e-9)

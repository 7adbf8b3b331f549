"""Private least squares from its sufficient statistics: one release, then any solver.

For squared loss and few features, the strong simple baseline. Source: Vu & Slavković (2009); Wang (2018), "Revisiting
differentially private linear regression", arXiv:1803.02596 (SSP).

    A = Σ x_i x_iᵀ + noise (in the half-vector),    b = Σ y_i x_i + noise,    θ = argmin_{θ∈C} ½θᵀ(A₊ + ridge·I)θ − bᵀθ,

with A₊ the nearest positive semidefinite matrix to A.

Privacy. Unit: one row. Rows are shortened to ‖x‖₂ ≤ R and labels cut to |y| ≤ B, so the pair (xxᵀ/R², c·yx/(RB))
moves by at most :func:`dpkit.geometry.pair_sensitivity` with ``least=1``, as ‖yx‖/B ≤ ‖x‖ and ‖xxᵀ‖ = ‖x‖²; both parts
get Gaussian noise of z times that, and cost one Gaussian(z). Everything after it is post-processing. No number of rows
is used. The sums are exact: x/R and y/B are held as whole multiples of 2⁻¹⁸, the former cut off towards 0, and the sums
of their products are rounded once, to multiples of q = 2⁻²⁷. That moves an entry by at most q/2, and D entries of two
neighbours apart by at most q√D, which is added to the sensitivity.

People. With ``groups`` the unit is a person, who contributes the mean of such pairs over any number of rows. It lies in
the convex hull of single pairs, and no two points of a hull are farther apart than two that span it: the sensitivity is
the same. (A row of a person with m rows is held as x/√m, its label as y/√m.)

Cost: n·d² for the sums.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Budget, Gaussian, calibrate
from accounting.checks import nonnegative, positive
from dpkit import randomness
from dpkit.clipping import shortened
from dpkit.geometry import ConvexSet, nearest_psd, pair_sensitivity, smat
from dpkit.mechanisms import GaussianMechanism
from dpkit.mechanisms._checked import charged
from dpkit.optimize.parts.exact_products import LAST_DIGIT, half_vector, rounded_once
from dpkit.training.groups import checked_groups
from dpkit.training.result import NOTHING, outcome
from dpkit.training.rows import checked_budget, checked_data, checked_start
from dpkit.training.whole_rows import BITS, check_rows, whole_product

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

    from accounting import Ledger  # loaded by whoever has one

__all__ = ["sufficient_statistics"]

# c: near the minimum of Δ(c)²(1 + 1/c²), the noise in A times a parameter of length B/R plus that in b
_BALANCE = 0.9
_ITERATIONS = 2000


def sufficient_statistics(
    X: ArrayLike,
    y: ArrayLike,
    *,
    constraint: ConvexSet,
    budget: Budget,
    label_bound: float,
    row_norm: float = 1.0,
    ridge: float | None = None,
    groups: ArrayLike | None = None,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> OptimizeResult:
    """Least squares over a convex set from noisy second moments.

    Parameters
    ----------
    X : (n, d) array_like
    y : (n,) array_like
    constraint : ConvexSet
        Public.
    budget : Budget
        Of any adjacency.
    label_bound, row_norm : float
        B and R, public: what is longer is cut.
    ridge : float, optional
        At least 0; by default the noise's standard deviation in a diagonal entry of A.
    groups : (n,) array_like of int or str, optional
        Whose row each one is, public. Then the unit is a person, and ``budget.unit`` must be "person".
    rng : numpy.random.Generator, optional
        None draws from the secure source, on a lattice; a seeded generator gives a simulation.
    ledger : Ledger, optional
        Charged before any noise is drawn.

    Returns
    -------
    OptimizeResult
        See :func:`dpkit.training.result.outcome`; ``clipped`` counts the rows that were shortened or had their
        label cut. Without rows (unless their number is private) ``x`` is the set's centre, at no cost.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range, or rows that are not finite. Nothing is drawn or charged.
    BudgetExceeded
        If the ledger refuses.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.geometry import LpBall
    >>> from dpkit.optimize import sufficient_statistics
    >>> X = np.random.default_rng(0).normal(size=(5000, 3)) / 3
    >>> fit = sufficient_statistics(
    ...     X, X @ [1.0, -1.0, 0.0], constraint=LpBall(2, 3, 2.0), budget=Budget(1.0, 1e-6), label_bound=1.0
    ... )
    >>> bool(np.abs(fit.x - [1.0, -1.0, 0.0]).max() < 0.3)
    True
    """
    d = constraint.dimension
    X, y = checked_data(X, y, d)
    check_rows(len(X))
    checked_budget(budget, allowed=("replace", "add_remove", "zero_out"), people=True)
    people = checked_groups(budget, groups, len(X))
    B, R = positive("label_bound", label_bound), positive("row_norm", row_norm)
    source = randomness.resolve(rng)
    start = checked_start(constraint, None)
    if len(X) == 0 and budget.adjacency != "add_remove":
        return outcome(start, NOTHING, nit=0, nfev=0, message="no rows: the centre is returned", clipped=0)
    z = calibrate(lambda z: Gaussian(z, adjacency=budget.adjacency), budget)
    cost = Gaussian(z, adjacency=budget.adjacency)
    split = d * (d + 1) // 2
    sensitivity = pair_sensitivity(1.0, 1.0, _BALANCE, 1.0, budget.adjacency, least=1.0) * (1.0 + 2.0**-40)
    sensitivity += LAST_DIGIT * math.sqrt(split + d)
    noise = GaussianMechanism(noise_multiplier=z, sensitivity=sensitivity, rng=source)
    weight = z * sensitivity * R**2 if ridge is None else nonnegative("ridge", ridge)
    short, _ = shortened(X, R)
    labels = np.clip(y, -B, B)
    cut = int(np.count_nonzero((short != X).any(axis=1) | (labels != y)))
    share = np.ones(len(X)) if people is None else people.root_shares()
    U = np.trunc(short * (share * (2.0**BITS / R))[:, None])
    pair = _exact_pair(U, np.trunc(labels * (share * (2.0**BITS / B))))

    with charged(ledger, cost, "sufficient statistics of least squares", source):
        released = noise.release(pair)
        A = nearest_psd(smat(released[:split])) * R**2 + weight * np.eye(d)
        b = released[split:] * (R * B / _BALANCE)
        theta, steps = _quadratic_minimum(A, b, constraint, start)
        return outcome(
            theta, cost, nit=steps, nfev=len(X), message="noisy second moments, then projection", clipped=cut
        )


def _exact_pair(U: NDArray[np.float64], c: NDArray[np.float64]) -> NDArray[np.float64]:
    """(svec(UᵀU), balance·Uᵀc) of whole numbers, in units of 2³⁶, rounded once to a multiple of ``LAST_DIGIT``.

    √2 and the balance are rounded down to multiples of 2⁻⁴⁰.
    """
    balance = math.floor(_BALANCE * 2.0**40)
    return rounded_once([*half_vector(whole_product(U, U)), (whole_product(U, c), balance)])


def _quadratic_minimum(
    A: NDArray[np.float64], b: NDArray[np.float64], constraint: ConvexSet, start: NDArray[np.float64]
) -> tuple[NDArray[np.float64], int]:
    """argmin ½θᵀAθ − bᵀθ over the set, by accelerated projected gradient steps with restarts; and their number."""
    if np.linalg.eigvalsh(A)[0] > 0:
        free = np.linalg.solve(A, b)
        if constraint.contains(free, 0.0):
            return np.asarray(free, dtype=np.float64), 0
    rate = 1.0 / max(float(np.linalg.eigvalsh(A)[-1]), np.finfo(np.float64).tiny)
    theta = ahead = start
    momentum = 1.0
    for step in range(1, _ITERATIONS + 1):
        after = constraint.project(ahead - rate * (A @ ahead - b))
        if float(np.abs(after - theta).max()) <= 1e-12 * (1.0 + float(np.abs(after).max())) and step > 1:
            return after, step
        # restart where the momentum points uphill (O'Donoghue & Candès 2015)
        if float((ahead - after) @ (after - theta)) > 0:
            momentum = 1.0
        following = (1.0 + math.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        ahead = after + (momentum - 1.0) / following * (after - theta)
        theta, momentum = after, following
    return theta, _ITERATIONS

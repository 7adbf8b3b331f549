"""An optimizer of your own: AdaGrad on noisy full-batch gradients, for features of very different scales.

Step t adds Gaussian noise to the sum g_t of all rows' clipped gradients, and moves every coordinate by its own step,

    G_t = G_(t−1) + ĝ_t²,    θ_t = Π(θ_(t−1) − η·ĝ_t/√G_t),    ĝ_t = (g_t + noise)/n,

Π the projection onto the set (Duchi, Hazan & Singer 2011). All but the noisy gradients is post-processing, so rates and
G_t cost nothing.

Privacy. Unit: one row, replaced or zeroed out (n is public). ``GradientSums`` cuts every gradient to the objective's
clip norm and adds them as whole numbers, so that one row moves a sum by at most ``sensitivity`` also in floating point.
T steps are T Gaussian releases, calibrated to the budget together and charged before the first is drawn.

    >>> from accounting import Budget
    >>> from dpkit.geometry import LpBall
    >>> from dpkit.optimize import glm
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> X = rng.normal(size=(5000, 3)) * [1.0, 0.1, 0.01]
    >>> y = (X @ [2.0, 20.0, 0.0] + rng.logistic(size=5000) > 0).astype(float)
    >>> objective, ball = glm("logistic", clip=1.0), LpBall(2, 3, radius=25.0)
    >>> found = noisy_adagrad(objective, X, y, constraint=ball, budget=Budget(1.0, 1e-6), rng=rng)
    >>> bool(np.mean((X @ found.x > 0) == y) > 0.75), found.nit
    (True, 50)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from accounting import Budget, Gaussian, Ledger, calibrate
from accounting.checks import integer, positive
from dpkit import randomness
from dpkit.geometry import ConvexSet
from dpkit.mechanisms import GaussianMechanism
from dpkit.optimize import GLM
from dpkit.training.result import outcome
from dpkit.training.rows import GradientSums, checked_budget, checked_data, checked_start

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

__all__ = ["noisy_adagrad"]


def noisy_adagrad(
    objective: GLM,
    X: ArrayLike,
    y: ArrayLike,
    *,
    constraint: ConvexSet,
    budget: Budget,
    steps: int = 50,
    rate: float = 1.0,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> OptimizeResult:
    """See the module. ``steps`` is T, and η is ``rate`` times the set's diameter over √(dT)."""
    T, rate = integer("steps", steps, at_least=1), positive("rate", rate)
    rows, labels = checked_data(X, y, constraint.dimension, objective)
    adjacency = checked_budget(budget, allowed=("replace", "zero_out")).adjacency
    theta, source = checked_start(constraint, None), randomness.resolve(rng)
    sums, n = GradientSums(objective, rows, labels), max(1, len(rows))

    cost = T * Gaussian(calibrate(lambda z: T * Gaussian(z, adjacency=adjacency), budget), adjacency=adjacency)
    noisy = GaussianMechanism.calibrated(budget=budget, sensitivity=sums.sensitivity(adjacency), releases=T, rng=source)
    if ledger is not None:  # before anything is drawn
        ledger.spend(cost, label="noisy AdaGrad", simulation=randomness.is_simulation(source))
    eta, squares = rate * constraint.diameter() / np.sqrt(len(theta) * T), np.zeros_like(theta)
    for _ in range(T):
        gradient = noisy.release(sums.at(theta)) / n
        squares += gradient**2
        theta = constraint.project(theta - eta * gradient / np.sqrt(squares))
    return outcome(theta, cost, nit=T, nfev=sums.nfev, message=f"{T} AdaGrad steps", clipped=sums.clipped)

"""The open batch of ShuffleGLM: rows that users hold until it ends, a shuffled matrix sum, and a shuffled descent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from accounting import Ledger
from accounting.arrays import Array
from dpbandits.private.parts.batch_plans import Plan
from dpkit.geometry import LpBall, smat, svec
from dpkit.models.likelihood import Rows
from dpkit.shuffle import Analyzer, Randomizer, Shuffler

if TYPE_CHECKING:
    from dpkit.models.losses import GLM

__all__ = ["BatchFit", "HeldRows"]


@dataclass(frozen=True)
class BatchFit:
    """What a batch has released, and what is public of its noise.

    Attributes
    ----------
    theta : (d,) ndarray
    matrix : (d, d) ndarray
    users, rounds : int
        Of the batch, and of the descent.
    step : float
        Of the descent.
    matrix_noise, gradient_noise : float
        Standard deviations in a coordinate of the sum of the matrix, and of that of gradients.
    """

    theta: Array
    matrix: Array
    users: int
    rounds: int
    step: float
    matrix_noise: float
    gradient_noise: float


class HeldRows:
    """x and r of the open batch. Users keep them until it ends, since every gradient is asked for at a new θ.

    Parameters
    ----------
    dim : int
    plans : sequence of Plan
        Of all batches.
    objective : GLM
    theta_bound, smoothness : float
        S, and the largest slope of the link.
    analysis : {"numeric", "paper"}
    rng : numpy.random.Generator
    """

    def __init__(
        self,
        dim: int,
        plans: Sequence[Plan],
        objective: GLM,
        theta_bound: float,
        smoothness: float,
        analysis: Literal["numeric", "paper"],
        rng: np.random.Generator,
    ) -> None:
        self.plans, self.objective, self.ball = list(plans), objective, LpBall(2, dim, theta_bound)
        self.smoothness, self.analysis, self.rng = smoothness, analysis, rng
        self._rows = Rows(dim + 1, bound=1.0)

    @property
    def count(self) -> int:
        """How many there are."""
        return self._rows.count

    def add(self, x: Array, r: float) -> None:
        """Take in one record."""
        self._rows.append([*x, r])

    def release(self, batch: int, weights: Callable[[Array], Array]) -> BatchFit:
        """Close the batch: sum w·x xᵀ, with the weights of these rows, and fit θ."""
        plan, d = self.plans[batch], self.ball.dimension
        matrix, users = plan.matrix, plan.matrix.users
        rows = np.zeros((users, d + 1))  # users without a reward send zeros
        rows[: self._rows.count] = self._rows.array
        self._rows = Rows(d + 1, bound=1.0)
        X, r = rows[:, :d], rows[:, d]
        records = weights(X)[:, None] * svec(X[:, :, None] * X[:, None, :])
        tally = Randomizer(matrix, rng=self.rng).tally(records)
        noisy = smat(Analyzer(matrix).decode(Shuffler(matrix, rng=self.rng).shuffle_tallies(tally)))
        from dpkit.optimize import shuffle_gradient_descent

        fit = shuffle_gradient_descent(
            self.objective,
            X,
            r,
            constraint=self.ball,
            budget=plan.budget,
            schedule=self.analysis,
            max_iterations=plan.rounds,
            smoothness=self.smoothness,
            rng=self.rng,
            # refuses to draw anything but what was priced when the policy was made
            ledger=None if plan.descent is None else Ledger(plan.budget, plan=plan.descent),
        )
        return BatchFit(fit.x, noisy, users, fit.nit, fit.step_size, matrix.noise_std(users), fit.noise_std * users)

    def kept(self) -> Array:
        """For a state file."""
        return self._rows.kept()

    def resume(self, saved: Any) -> None:
        """The inverse of :meth:`kept`, checked."""
        self._rows.resume(saved)

"""The open batch of ShuffleGLM: rows that users hold until it ends, a shuffled matrix sum, and a shuffled descent."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from accounting import Ledger
from accounting.arrays import Array
from dpbandits.private.parts.batch_plans import Plan
from dpbandits.private.parts.records import deviations, level_of
from dpkit.geometry import LpBall, smat, svec
from dpkit.models.likelihood import Rows
from dpkit.models.links import Link
from dpkit.models.losses import GLM, matching_loss
from dpkit.shuffle import Analyzer, Randomizer, Shuffler, SumProtocol

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
    level : float
        Of rewards, on the link's scale, at which θ was fitted.
    """

    theta: Array
    matrix: Array
    users: int
    rounds: int
    step: float
    matrix_noise: float
    gradient_noise: float
    level: float


class HeldRows:
    """x and r of the open batch. Users keep them until it ends, since every gradient is asked for at a new θ.

    Parameters
    ----------
    dim : int
    plans : sequence of Plan
        Of all batches.
    link : Link
    theta_bound : float
        S.
    clip : float
        L, the length of a gradient at most.
    reward_range : (float, float)
    analysis : {"numeric", "paper"}
    rng : numpy.random.Generator
    """

    def __init__(
        self,
        dim: int,
        plans: Sequence[Plan],
        link: Link,
        theta_bound: float,
        clip: float,
        reward_range: tuple[float, float],
        analysis: Literal["numeric", "paper"],
        rng: np.random.Generator,
    ) -> None:
        self.plans, self.ball = list(plans), LpBall(2, dim, theta_bound)
        self.link, self.theta_bound, self.clip, self.reward_range = link, theta_bound, clip, reward_range
        self.analysis, self.rng = analysis, rng
        self._rows = Rows(dim + 1, bound=1.0)

    @property
    def count(self) -> int:
        """How many there are."""
        return self._rows.count

    def add(self, x: Array, r: float) -> None:
        """Take in one record."""
        self._rows.append([*x, r])

    def objective(self, level: float) -> tuple[GLM, float]:
        """The loss at this level of rewards, and the largest slope of the link there.

        For any label: rewards were checked when they came, and the 0 of a user without one may be none of the link's.
        """
        link, S = self.link.shifted(level), self.theta_bound
        loss = matching_loss(link, S, clip=self.clip)
        return replace(loss, response_range=(-math.inf, math.inf)), link.lipschitz(S)

    def release(self, batch: int, weights: Callable[[Array], Array], level: float) -> BatchFit:
        """Close the batch: sum w·x xᵀ, with the weights of these rows, and fit θ at the level, or at that of the batch.

        Whoever has no reward adds 0 to every sum, also to that of which the level is told.
        """
        plan, d = self.plans[batch], self.ball.dimension
        matrix, users = plan.matrix, plan.matrix.users
        rows = np.zeros((users, d + 1))  # users without a reward send zeros
        rewarded = self._rows.count
        rows[:rewarded] = self._rows.array
        self._rows = Rows(d + 1, bound=1.0)
        X, r = rows[:, :d], rows[:, d]
        records = weights(X)[:, None] * svec(X[:, :, None] * X[:, None, :])
        noisy = smat(self._summed(matrix, records))
        if plan.numbers is not None:
            far, noise = np.zeros((users, 1)), plan.numbers.noise_std(users)
            far[:rewarded, 0] = deviations(r[:rewarded], self.reward_range)
            level = level_of(self.link, self.reward_range, float(self._summed(plan.numbers, far)[0]), noise, users)
        objective, smoothness = self.objective(level)
        from dpkit.optimize import shuffle_gradient_descent

        fit = shuffle_gradient_descent(
            objective,
            X,
            r,
            constraint=self.ball,
            budget=plan.budget,
            schedule=self.analysis,
            max_iterations=plan.rounds,
            smoothness=smoothness,
            rng=self.rng,
            # refuses to draw anything but what was priced when the policy was made
            ledger=None if plan.descent is None else Ledger(plan.budget, plan=plan.descent),
        )
        noises = matrix.noise_std(users), fit.noise_std * users
        return BatchFit(fit.x, noisy, users, fit.nit, fit.step_size, *noises, level)

    def _summed(self, protocol: SumProtocol, records: Array) -> Array:
        """Records of all users of the batch, through randomizers, shuffler and analyzer."""
        tally = Randomizer(protocol, rng=self.rng).tally(records)
        return Analyzer(protocol).decode(Shuffler(protocol, rng=self.rng).shuffle_tallies(tally))

    def kept(self) -> Array:
        """For a state file."""
        return self._rows.kept()

    def resume(self, saved: Any) -> None:
        """The inverse of :meth:`kept`, checked."""
        self._rows.resume(saved)

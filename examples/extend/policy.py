"""A private policy of your own: optimism coordinate by coordinate, on noisy counts and sums.

For arms that are one-hot, or nearly so (categories, slots, a catalogue of a few hundred): the d×d matrix of a linear
bandit is then diagonal, and its noise is what private linear bandits pay for. With the running sums

    n = Σ x∘x + noise,    b = Σ r·x + noise,    θ = b/(n + λ),

every round plays argmax xᵀθ + β·√(Σ x_j²·(1/(n_j + λ) + σ²/(n_j + λ)²)), σ the standard deviation of the noise of b.

Guarantee
---------
* Unit: one round, its arm set and its reward, replaced. Joint privacy, as for all policies that learn from all rounds
  and show each its own choice only (the billboard lemma of Hsu et al. 2014).
* One round enters one batch by one record (x∘x, r·x), ‖x‖ ≤ 1 and |r| ≤ 1. The first halves of two records are
  nonnegative, at most 1 long, so at most √2 apart, also where the mechanism's nonnegative factor moves one into another
  batch; the second halves at most 2. Together √6, and 2√(2d)·2^−30 for the rounding of a record to multiples of 2^−30,
  as which records are summed exactly (2²² of them fit).
* All releases together are one continual sum with exact Gaussian noise, calibrated to the budget and charged when the
  policy is made.

Cost per round: O(Kd); memory O(d).

    >>> from accounting import Budget
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> policy = CoordinateUCB(3, budget=Budget(2.0, 1e-6), horizon=3000, rng=rng)
    >>> chosen = []
    >>> for _ in range(3000):
    ...     decision = policy.select(np.eye(3))
    ...     policy.update(decision, float(rng.random() < (0.2, 0.4, 0.8)[decision.index]))
    ...     chosen.append(decision.index)
    >>> sum(index == 2 for index in chosen[-500:]) > 400
    True
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from accounting import Budget
from accounting.checks import integer, nonnegative, positive
from dpbandits.policy.private import PrivateOptions, PrivatePolicy, Schedule
from dpbandits.policy.protocol import Pending
from dpkit.continual import BufferedToeplitz

__all__ = ["CoordinateUCB"]

Array = NDArray[np.float64]
# a batch of so many records is a whole number below 2⁵²
_UNIT, _MOST = 2.0**30, 2**22


@dataclass(frozen=True)
class Estimate:
    """The public half: θ, and the variance of each of its entries."""

    theta: Array
    variance: Array


class CoordinateUCB(PrivatePolicy[Estimate]):
    """See the module. ``width`` is β, ``ridge`` is λ; everything else as for every private policy."""

    trust: ClassVar[Literal["joint"]] = "joint"
    secret = ("sums", "_batch")

    def __init__(
        self,
        dim: int,
        *,
        budget: Budget,
        horizon: int,
        width: float = 1.0,
        ridge: float = 1.0,
        growth: float = 1.2,
        **options: Unpack[PrivateOptions],
    ) -> None:
        if integer("horizon", horizon, at_least=1) > _MOST:
            raise ValueError(f"horizon must be at most {_MOST}, got horizon={horizon}")
        super().__init__(dim, (0.0, 1.0), budget=budget, horizon=horizon, **options)
        self.width, self.ridge = nonnegative("width", width), positive("ridge", ridge)
        self.growth = positive("growth", growth)
        if max(abs(end) for end in self.reward_range) > 1:
            raise ValueError(f"reward_range must lie in [-1, 1], got reward_range={self.reward_range}")
        self.schedule = Schedule.batches(horizon, first=max(1, min(4 * dim, horizon // 20)), growth=growth)
        self.sums = BufferedToeplitz.calibrated(
            budget=budget,
            horizon=max(1, len(self.schedule.ends)),
            shape=2 * dim,
            sensitivity=math.sqrt(6) + 2 * math.sqrt(2 * dim) / _UNIT,
            rng=self.rng,
        )
        self._batch = np.zeros((2, dim))  # whole numbers
        self.public = Estimate(np.zeros(dim), np.full(dim, 1 / self.ridge))
        self.open_run(self.sums.cost)

    def score(self, arms: Array) -> Array:
        return np.asarray(arms @ self.public.theta + self.width * np.sqrt(arms**2 @ self.public.variance))

    def learn(self, pending: Pending, reward: float) -> None:
        self._batch += np.rint(_UNIT * np.outer((1.0, reward), pending.arm) * (pending.arm, np.ones(self.dim)))

    def close_batch(self) -> Estimate:
        n, b = self.sums.add(self._batch.ravel() / _UNIT).reshape(2, self.dim)
        self._batch = np.zeros((2, self.dim))
        noise, n = self.sums.noise_std(self.releases + 1), np.maximum(n, 0.0) + self.ridge
        return Estimate(b / n, 1 / n + (noise / n) ** 2)

"""A private policy of your own: optimism coordinate by coordinate, on noisy counts and sums.

For arms that are one-hot, or nearly so (categories, slots, a catalogue of a few hundred): the d×d matrix of a linear
bandit is then diagonal, and its noise is what private linear bandits pay for. With the running sums

    n = Σ x∘x + noise,    b = Σ r·x + noise,    θ = b/(n + λ),

every round plays argmax xᵀθ + β·√(Σ x_j²·(1/(n_j + λ) + σ²/(n_j + λ)²)), σ the standard deviation of the noise of b.

Guarantee
---------
* Unit: one round, its arm set and its reward, replaced. Joint privacy, as for all policies that learn from all rounds
  and show each its own choice only (the billboard lemma of Hsu et al. 2014).
* One round leaves one record (x∘x, r·x), ‖x‖ ≤ 1 and |r| ≤ 1. The first halves of two records are nonnegative and at
  most 1 long, so at most √2 apart; the second halves at most 2. Together √6; and two records, of length √2 at most, are
  2 long together (``dpkit.moments.records`` says why both count).
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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from accounting import Budget
from accounting.checks import integer, nonnegative, positive
from dpbandits.policy.private import PrivateOptions, PrivatePolicy
from dpbandits.policy.protocol import Pending
from dpbandits.policy.schedule import Schedule, first_length
from dpkit.moments.records import NoisyRecords, RecordSums

__all__ = ["CoordinateUCB"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """The public half: θ, and the variance of each of its entries."""

    theta: Array
    variance: Array


@dataclass(frozen=True)
class Record:
    """(x∘x, r·x): what one round tells."""

    sensitivity: float = math.sqrt(6)

    def __call__(self, pending: Pending, reward: float, public: Estimate) -> tuple[Array]:
        return (np.concatenate([pending.arm**2, reward * pending.arm]),)


@dataclass(frozen=True)
class Rule:
    """The upper bound of xᵀθ."""

    width: float

    def __call__(self, public: Estimate, arms: Array, since: int) -> Array:
        return np.asarray(arms @ public.theta + self.width * np.sqrt(arms**2 @ public.variance))


@dataclass(frozen=True)
class Refit:
    """θ and its variance, from noisy n and b."""

    ridge: float

    def __call__(self, public: Estimate, released: NoisyRecords, ends: Sequence[int]) -> Estimate:
        n, b = np.split(released.sums, 2)
        n = np.maximum(n, 0.0) + self.ridge
        return Estimate(b / n, 1 / n + (released.noise / n) ** 2)


class CoordinateUCB(PrivatePolicy[Estimate]):
    """See the module. ``width`` is β, ``ridge`` is λ; everything else as for every private policy."""

    trust: ClassVar[Literal["joint"]] = "joint"

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
        super().__init__(dim, (0.0, 1.0), budget=budget, horizon=horizon, **options)
        self.width, self.ridge = nonnegative("width", width), positive("ridge", ridge)
        self.growth, T = positive("growth", growth), integer("horizon", horizon, at_least=1)
        if max(abs(end) for end in self.reward_range) > 1:
            raise ValueError(f"reward_range must lie in [-1, 1], got reward_range={self.reward_range}")
        self.schedule = Schedule.batches(T, first_length(None, 4 * dim, T), growth)
        self.record, self.rule, self.refit = Record(), Rule(self.width), Refit(self.ridge)
        self.sums = RecordSums(2 * dim, self.record.sensitivity, **self.terms())
        self.public = Estimate(np.zeros(dim), np.full(dim, 1 / self.ridge))
        self.open_run(self.sums.cost)

"""ShuffleLinUCB: linear bandits in the shuffle model, by one vector summation per batch.

For linear rewards of people who trust a shuffler, but not the server. Rounds come in batches of public length; the
users of a batch send their outer products x xᵀ and vectors r·x, r the reward less the base rate, through the shuffled
vector sum, and the server, after m batches, plays LinUCB on what it has:

    argmax xᵀθ + β_m‖x‖_Q,   H = Σ x xᵀ + noise + ridge·I,   θ = H⁻¹(Σ r·x + noise),

with Q = H⁻¹ and the β_m of a confidence ellipsoid, or what is much narrower in practice (see ``parameters``).

Source: Chowdhury & Zhou (2022), "Shuffle Private Linear Contextual Bandits" (ICML), Algorithm 1 with their protocol for
vector summation (there with batches of one size; here they may grow, so that the noise of fewer batches adds up). Two
things differ. One sum of the stacked pair takes the whole budget and is calibrated numerically, where the paper sums
matrices and vectors apart. And the first batch, in which the paper's rule would play the longest arm again and again,
plays the best arm in random directions.

Guarantee
---------
* Unit: one round, that is its arm set and its reward: one user. Neighbours: two runs in which one round differs
  ("replace"), or counts for nothing ("zero_out").
* Every user is in exactly one batch, fixed by the number of decisions alone, and sends exactly one record: the null
  record if its reward does not come before the batch ends. Later rewards are accepted and count for nothing.
* With |r| ≤ B (checked or clipped, always) and ‖x‖ ≤ 1, two records (a·svec(x xᵀ), c·r·x) of a user differ by at
  most ``dpkit.geometry.pair_sensitivity(a, 1, c, B, least=1)``. A batch of n users is one
  :class:`~dpkit.shuffle.VectorSum` over n users, calibrated to the whole budget; batches compose in parallel.
* The choice of the arm is post-processing of released sums and the user's own arms. Privacy holds in both settings of
  ``parameters``; they only move the ridge and the width.
* An older state is refused after a crash, as in :class:`~dpbandits.policies.ShuffleOnePassGLM`.

Cost per round: O(Kd²) to select, O(d²) to update, with a fixed number of random bits for each of d(d + 3)/2
coordinates; O(d³) per batch; memory O(d²).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Unpack

import numpy as np

from accounting import Budget
from accounting.arrays import Array
from accounting.checks import fraction, integer, nonnegative, positive
from dpbandits.policy.choices import Law, Perturbed
from dpbandits.policy.parameters import Parameters, checked_parameters
from dpbandits.policy.private import PrivateOptions, PrivatePolicy, finite_rewards
from dpbandits.policy.protocol import Pending
from dpbandits.policy.schedule import Schedule, first_length
from dpbandits.private.parts.ridge import lifted, surely_lifted, theory_width
from dpkit.models.ellipsoid import norms
from dpkit.moments.shuffled_pairs import NoisyBatch, PairBatches

__all__ = ["ShuffleLinUCB"]


@dataclass(frozen=True)
class Estimate:
    """The public half: θ, β_m²·Q, Σ x xᵀ and Σ r·x as released, and the variance of the noise in the scaled records."""

    theta: Array
    shape: Array
    H: Array
    b: Array
    noise: float


def rule(public: Estimate, arms: Array, since: int) -> Array | Law:
    """Argmax of xᵀθ + β_m‖x‖_Q."""
    if since == 0:
        # nothing is known yet: a random direction takes informative (long) arms and looks everywhere
        return Perturbed(arms)
    return arms @ public.theta + norms(arms, public.shape)


@dataclass(frozen=True)
class Refit:
    """The ridge fit of all batches, and its width by the practical parameters or the theory's."""

    parameters: Parameters
    exploration: float
    failure_probability: float
    theta_bound: float
    reward_range: tuple[float, float]

    def __call__(self, last: Estimate, sums: NoisyBatch, ends: Sequence[int]) -> Estimate:
        H, b, noise, (a, c) = last.H + sums.H, last.b + sums.b, last.noise + sums.std**2, sums.scales
        d, m, spread = len(b), len(ends), 0.5 * (self.reward_range[1] - self.reward_range[0])
        sigma, sigma_b = math.sqrt(noise) / a, math.sqrt(noise) / c
        eigenvalues, U = np.linalg.eigh(H)
        if self.parameters == "practical":
            eigenvalues = lifted(eigenvalues, sigma)
            axes = self.exploration**2 * (spread**2 / eigenvalues + (sigma_b / eigenvalues) ** 2)
        else:
            # xᵀNx is σ-sub-Gaussian for every unit x, uᵀn is σ′-sub-Gaussian; nets of 9^d and 5^d points cover
            # the sphere
            failure = math.log(8.0 * m * m / self.failure_probability)
            half = max(2.0 * sigma * math.sqrt(2.0 * (d * math.log(9.0) + failure)), 0.5)
            gamma = 2.0 * sigma_b * math.sqrt(2.0 * (d * math.log(5.0) + failure))
            growth = d * math.log(1.0 + ends[-1] / (d * half))
            beta = theory_width(spread, 3.0 / self.failure_probability, growth, self.theta_bound, half, gamma)
            eigenvalues = surely_lifted(eigenvalues, half)
            axes = beta**2 / eigenvalues
        return Estimate(U @ ((U.T @ b) / eigenvalues), (U * axes) @ U.T, H, b, noise)


class ShuffleLinUCB(PrivatePolicy[Estimate]):
    """A private linear bandit through a shuffler: LinUCB on noisy sums over batches.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    budget : Budget
        What the whole run may cost one user (or person), replaced or zeroed out; δ > 0.
    horizon : int
        T, the number of rounds that the policy will take part in.
    theta_bound : float
        S ≥ ‖θ*‖.
    growth : float
        Length of a batch over the length of the one before; 1 for the paper's batches of one size.
    first_batch : int, optional
        Length of the first batch. By default 8d, at most T/20.
    delay : int
        After how many rounds nearly all rewards have come, as announced: each batch is released so many rounds after
        its last one, and the first is half as long by default, if that is longer. Later records count for nothing.
    reward_share : float
        Share, in (0, 1), of the squared sensitivity that is given to r·x rather than to x xᵀ.
    parameters : {"practical", "theory"}
        How ridge and width follow from the noise. ``"theory"``: with probability 1 − ζ the operator norm of the
        noise is at most Υ = 2σ√(2(d ln 9 + ln(8m²/ζ))), and the length of the noise in Σ r·x at most
        γ = 2σ′√(2(d ln 5 + ln(8m²/ζ))), where σ and σ′ are the standard deviations in m batches together; the ridge
        is 2Υ, at least 1, and β_m = ½(r_max − r_min)·√(2 ln(3/ζ) + d ln(1 + n/(d·ridge/2))) + √(3·ridge/2)·S +
        γ/√(ridge/2) covers θ* for all batches at once. ``"practical"``: the ridge is 1 + σ√(2d), which the noise seldom
        exceeds, β the ``exploration``, and Q = ¼(r_max − r_min)²·H⁻¹ + σ′²·H⁻² the variance of chance and noise.
    exploration : float
        β of the practical parameters.
    failure_probability : float
        ζ of the theory's.
    **options
        ``reward_range`` (by default [0, 1]; it must be finite), ``base_rate``, ``on_violation``,
        ``expire_after``, ``rng``, ``ledger``, ``label``, ``checkpoint``, ``rounds_per_person``: see
        :class:`dpbandits.PrivatePolicy`, also for errors.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> policy = ShuffleLinUCB(dim=2, budget=Budget(1.0, 1e-6), horizon=2000, rng=rng)
    >>> reward = 0.0
    >>> for _ in range(2000):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, float(rng.random() < (0.2, 0.8)[decision.index]))
    ...     reward += (0.2, 0.8)[decision.index]
    >>> reward / 2000 > 0.7
    True
    """

    trust: ClassVar[Literal["shuffle"]] = "shuffle"
    by_rows = True
    prices_persons = True
    choices_read = ("theta", "shape")

    def __init__(
        self,
        dim: int,
        *,
        budget: Budget,
        horizon: int,
        theta_bound: float = 1.0,
        growth: float = 1.7,
        first_batch: int | None = None,
        delay: int = 0,
        reward_share: float = 0.75,
        parameters: Parameters = "practical",
        exploration: float = 1.5,
        failure_probability: float = 0.01,
        **options: Unpack[PrivateOptions],
    ) -> None:
        super().__init__(dim, (0.0, 1.0), budget=budget, horizon=horizon, **options)
        low, high = finite_rewards(self.reward_range)
        self.theta_bound = positive("theta_bound", theta_bound)
        self.delay = integer("delay", delay, at_least=0)
        T = integer("horizon", horizon, at_least=1)
        self.first_batch = first_length(first_batch, max(8 * dim, self.delay // 2), T)
        self.growth = growth
        self.schedule = Schedule.batches(T, self.first_batch, growth, lag=self.delay)
        self.reward_share = fraction("reward_share", reward_share)
        self.parameters = checked_parameters(parameters)
        self.exploration = nonnegative("exploration", exploration)
        self.failure_probability = fraction("failure_probability", failure_probability)

        self.sums = PairBatches(
            self.schedule.ends,
            dim,
            1.0,
            max(high - self.base_rate, self.base_rate - low),
            self.reward_share,
            budget=budget,
            rng=self.rng,
            records=self.rounds_per_person,
            least=1.0,
        )
        self.rule = rule
        known = self.parameters, self.exploration, self.failure_probability, self.theta_bound, self.reward_range
        self.refit = Refit(*known)
        zero = np.zeros((dim, dim))
        self.public = Estimate(np.zeros(dim), zero, zero, np.zeros(dim), 0.0)
        self.open_run(self.sums.cost)

    def learn(self, pending: Pending, reward: float) -> None:
        # the record (x, 1, r), r less the base rate, in the batch of its round
        self.sums.add(pending.arm, 1.0, reward - self.base_rate, self.schedule.batch(pending.round))

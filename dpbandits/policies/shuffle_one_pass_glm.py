"""ShuffleOnePassGLM: a shuffle-private generalized linear bandit whose state is one noisy sum.

For whoever runs a bandit on people who trust a shuffler, but not the server. The horizon is cut into batches of
growing, public length; each round is one user of its batch. Once the reward is known the user forms one record at the
parameter θ that was last released: with e = xᵀθ, w = clip(μ̇(e), w_min, W) and g = clip(w·e + r − μ(e), ±B), it is the
pair (w·x xᵀ, g·x), which is randomized before it leaves. When batch k of n_k rounds ends, the shuffled sums H_k, b_k of
its records are added to those of earlier batches, and the next batch is played with

    H̃ = Σ_k ω_k H_k repaired to be positive definite,   θ = argmin over ‖θ‖ ≤ S of ½θᵀH̃θ − θᵀΣ_k ω_k b_k,
    Σ = v·H̃⁻¹ + Σ_k ω_k²σ_k²·H̃⁻²,   argmax xᵀ(θ + ½β·ξ) + β‖x‖_Σ,   ξ ~ N(0, Σ) in every round afresh.

σ_k is the standard deviation of the noise in b_k, v = (r_max − r_min)²/4 bounds the variance of a reward, and
ω_k = 1/(1 + n_0/n_k), where n_0 is the length at which the noise in b_k is as large as what rewards add to it: the
weights of least variance. All of them are public. Σ counts the noise besides chance, so that optimism covers both. The
perturbation ξ is what makes long batches work where the same arms come in every round: without it, a whole batch
plays a single arm.

Guarantee
---------
* Unit: one round, that is its arm set and its reward: one user. Neighbours: two runs in which one round differs
  ("replace"), or counts for nothing ("zero_out").
* Every user is in exactly one batch, which is fixed by the number of *decisions* alone, and sends exactly one record:
  the null record if its reward does not come before the batch ends. Later rewards are accepted and count for nothing.
* With the pair scaled to (a·svec(w·x xᵀ), c·g·x), 0 ≤ w ≤ W, |g| ≤ B and ‖x‖ ≤ 1 (checked or clipped, always), two
  records of a user differ by at most ``dpkit.geometry.pair_sensitivity(a, W, c, B)``, and so do a record and the null
  record. A batch of n users is one :class:`~dpkit.shuffle.VectorSum` over n users, calibrated to the whole budget.
* What the server sees of earlier batches fixes θ, hence what the users of a batch send as a function of their own
  data: the batches compose in parallel, adaptively. The run costs what its dearest batch costs; this is recorded when
  the policy is made.
* Shuffle privacy protects every user against the server; the rounds that others play are post-processing of what the
  shuffler lets out (the billboard lemma of Hsu, Huang, Roth, Roughgarden & Wu 2014).
* After a crash, the newest state goes on and an older one is refused (see ``checkpoint``), because it would release
  a batch again with fresh noise. This needs a ledger that survives, too. A saved state holds, of the open batch,
  randomized counts only, and the arms of decisions that wait for their reward.

Cost per round: O(Kd²) to select, O(d²) to update, with a fixed number of random bits for each of d(d + 3)/2
coordinates; O(d³) at each of about ln(T)/ln(growth) releases; memory O(d²).

This policy belongs to this package. Its ingredients: :class:`~dpbandits.policies.OnePassPrivateGLM` for the records;
Cheu, Joseph, Mao & Peng (2022) for the shuffled sum; Chowdhury & Zhou (2022) for batches of users.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Unpack

import numpy as np

from accounting import Budget
from accounting.checks import fraction, nonnegative, positive
from dpbandits.mathematics.ellipsoid import ball_constrained_minimizer, norms
from dpbandits.mathematics.links import Link, get_link
from dpbandits.policies._estimating import EstimatingPolicy
from dpbandits.policies._records import GLMRecord
from dpbandits.policies._shuffled import PairBatches, ShufflePolicy
from dpbandits.policy import Array, Pending
from dpbandits.private_policy import PrivateOptions, finite_rewards

__all__ = ["ShuffleOnePassGLM"]


@dataclass(frozen=True)
class Estimate:
    """The public half: θ, β²Σ, a root of ¼β²Σ, and the weighted sums that they follow from.

    H = Σ ω_k H_k, b = Σ ω_k b_k, and ``noise`` = Σ (ω_k × the noise of the scaled records in batch k)².
    """

    theta: Array
    shape: Array
    root: Array
    H: Array
    b: Array
    noise: float


class ShuffleOnePassGLM(EstimatingPolicy[Estimate], ShufflePolicy[Estimate]):
    """Optimism over noise-weighted sums of one-pass statistics, each shuffled batch summed once.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    link : str or Link
        μ in E[r | x] = μ(xᵀθ).
    budget : Budget
        What the whole run may cost one user (or person), replaced or zeroed out; δ > 0.
    horizon : int
        T, the number of rounds that the policy will take part in.
    theta_bound : float
        S ≥ ‖θ‖.
    growth : float
        Length of a batch over the length of the one before, at least 1.
    first_batch : int, optional
        Rounds before the first release, which play the best arm in a random direction. By default 8d, at most T/20.
    gradient_share : float
        Share, in (0, 1), of the squared sensitivity that is given to g·x rather than to w·x xᵀ.
    clip : float, optional
        B. By default 1.2 × the largest |r − μ(0)|, or the largest |w·e + r − μ(e)| where that is smaller.
    exploration : float
        β ≥ 0.
    ridge : float
        Added to H besides a bound on the operator norm of its noise.
    **options
        ``reward_range`` (by default that of the link; it must be finite), ``base_rate``, ``on_violation``,
        ``expire_after``, ``rng``, ``ledger``, ``label``, ``checkpoint``, ``rounds_per_person``: see
        :class:`dpbandits.private_policy.PrivatePolicy`, also for errors.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> policy = ShuffleOnePassGLM(dim=2, budget=Budget(1.0, 1e-6), horizon=2000, rng=rng)
    >>> reward = 0.0
    >>> for _ in range(2000):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, float(rng.random() < (0.2, 0.8)[decision.index]))
    ...     reward += (0.2, 0.8)[decision.index]
    >>> reward / 2000 > 0.7
    True
    >>> report = policy.privacy()
    >>> report.trust, report.epsilon <= 1.0
    ('shuffle', True)
    """

    _secret = ("_sums",)

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        budget: Budget,
        horizon: int,
        theta_bound: float = 3.0,
        growth: float = 1.7,
        first_batch: int | None = None,
        gradient_share: float = 0.75,
        clip: float | None = None,
        exploration: float = 1.0,
        ridge: float = 1.0,
        **options: Unpack[PrivateOptions],
    ) -> None:
        self.link = get_link(link)
        super().__init__(dim, self.link.reward_range, budget=budget, horizon=horizon, **options)
        S = self.theta_bound = positive("theta_bound", theta_bound)
        self._batches(first_batch, 8 * dim, growth)
        self.gradient_share = fraction("gradient_share", gradient_share)
        self.exploration = nonnegative("exploration", exploration)
        self.ridge = positive("ridge", ridge)
        self._record = GLMRecord.of(self.link, S, finite_rewards(self.reward_range), clip)
        self.clip = self._record.B

        ends, W = self.schedule.ends, self._record.W
        records = self.rounds_per_person
        self._sums = PairBatches(
            ends, dim, W, self.clip, self.gradient_share, budget=budget, rng=self.rng, records=records
        )
        zero = np.zeros((dim, dim))
        self.public = Estimate(np.zeros(dim), zero, zero, zero, np.zeros(dim), 0.0)
        self._open_run(self._sums.cost)

    # ---------------------------------------------------------------------------------------------- choose

    def _score(self, arms: Array) -> Array:
        xi = self.rng.standard_normal(self.dim)
        if self.releases == 0:
            # nothing is known yet: a random direction takes informative (long) arms and looks everywhere
            return np.asarray(arms @ xi)
        return arms @ (self.public.theta + self.public.root @ xi) + norms(arms, self.public.shape)

    # ----------------------------------------------------------------------------------------------- learn

    def _learn(self, pending: Pending, reward: float) -> None:
        arm = pending.arm
        self._sums.add(np.concatenate([arm, self._record.weigh(float(arm @ self.public.theta), reward)]))

    # --------------------------------------------------------------------------------------------- release

    def _release(self) -> Estimate:
        """Close the batch and refit. All but the shuffled sum itself is public, or post-processing."""
        last, std, users = self.public, self._sums.noise_std(self.releases), self._sums.protocols[self.releases].users
        v = 0.25 * (self.reward_range[1] - self.reward_range[0]) ** 2
        # noise against the chance in a coordinate of b, for x of which the mean square of a coordinate is 1/d, and
        # rewards of half the variance v
        n_0 = (std / self._sums.c) ** 2 * 2.0 * self.dim / v
        weight = 1.0 / (1.0 + n_0 / users)
        H, b = self._sums.release_pair(weight)
        H, b = last.H + H, last.b + b
        noise = last.noise + (weight * std) ** 2
        # E‖N‖ ≤ σ√(2d) for the noise N of H: with that much ridge, H̃ is seldom indefinite
        ridge = self.ridge + math.sqrt(2 * self.dim * noise) / self._sums.a
        eigenvalues, U = np.linalg.eigh(H)
        eigenvalues = np.maximum(eigenvalues + ridge, self.ridge)
        theta = ball_constrained_minimizer(eigenvalues, U, b, self.theta_bound)
        axes = self.exploration**2 * (v / eigenvalues + noise / (self._sums.c * eigenvalues) ** 2)
        return Estimate(theta, (U * axes) @ U.T, U * (0.5 * np.sqrt(axes)), H, b, noise)

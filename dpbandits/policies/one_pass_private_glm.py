"""OnePassPrivateGLM: a jointly differentially private generalized linear bandit whose state is one noisy sum.

For whoever runs a bandit on people's data behind a trusted server. Every round leaves one record, formed at the
parameter θ that was last released: with e = xᵀθ, w = clip(μ̇(e), w_min, W) and g = clip(w·e + r − μ(e), ±B), it is the
pair (w·x xᵀ, g·x). Records are summed over batches of growing, public length; a continual mechanism over the *batches*
releases the running sums H and b; and until the next release every round plays

    argmax xᵀθ + β‖x‖_{H̃⁻¹},   H̃ = H repaired to be positive definite,   θ = argmin over ‖θ‖ ≤ S of ½θᵀH̃θ − bᵀθ.

Guarantee
---------
* Unit: one round, that is its arm set and its reward. Neighbours: two runs in which one round differs
  ("replace"), or counts for nothing ("zero_out").
* One round enters one batch, by one record. With the pair scaled to (a·svec(w·x xᵀ), c·g·x), 0 ≤ w ≤ W, |g| ≤ B and
  ‖x‖ ≤ 1 (checked or clipped, always), its L2 sensitivity is ``dpkit.geometry.pair_sensitivity(a, W, c, B)``.
* All releases together are one continual Gaussian sum under adaptive inputs, so the whole run costs one
  ``Gaussian(z)``, calibrated to the budget exactly and recorded when the policy is made.
* Joint privacy: what round s sees of any other round t is post-processing of these releases, applied to s's own
  arms (the billboard lemma of Hsu, Huang, Roth, Roughgarden & Wu 2014).
* Rewards may be late, out of order or missing. Batches end after a fixed number of *decisions*; a record enters the
  batch in which its reward comes. A change of one round may then also move its record to another batch, or make it
  appear or vanish. With ϱ = ⟨Ceᵢ, Ceⱼ⟩ ∈ [0, 1] for two columns of the mechanism's factor C (nonnegative, columns of
  norm at most 1), the squared distance of the two streams is at most 2a²W²(1 − s²ϱ) + 2c²B²(1 + sϱ), linear in ϱ,
  where s is the cosine of the two arms; at both ends of the interval it stays within the stated sensitivity.
* After a crash, the newest state goes on and an older one is refused (see ``checkpoint``), because it would release
  sums again with fresh noise. This needs a ledger that survives, too.
* It holds for the program as it runs: records are summed as whole numbers, and noise is exact (``dpkit.continual``).

Cost per round: O(Kd²) to select, O(d²) to update, O(d³) at each of about ln(T)/ln(growth) releases; memory O(d²).

This policy belongs to this package. Its ingredients: Shariff & Sheffet (2018) for joint privacy by noisy sums;
Zhang et al. (2025) for one-pass generalized linear bandits; Dvijotham et al. (2024) for the noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, Unpack

import numpy as np

from accounting import Budget
from accounting.checks import fraction, nonnegative, positive
from dpbandits.mathematics.ellipsoid import ball_constrained_minimizer, norms
from dpbandits.mathematics.links import Link, get_link
from dpbandits.policies._estimating import EstimatingPolicy
from dpbandits.policies._records import GLMRecord
from dpbandits.policies._sums import PairSums
from dpbandits.policy import Array, Pending
from dpbandits.private_policy import PrivateOptions, finite_rewards

__all__ = ["OnePassPrivateGLM"]


@dataclass(frozen=True)
class Estimate:
    """The public half: θ, and H̃⁻¹."""

    theta: Array
    inverse: Array


class OnePassPrivateGLM(EstimatingPolicy[Estimate]):
    """Optimism over noisy one-pass statistics, released on a public schedule.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    link : str or Link
        μ in E[r | x] = μ(xᵀθ).
    budget : Budget
        What the whole run may cost, for one round, or one person, replaced (or zeroed out); δ > 0.
    horizon : int
        T, the number of rounds that the policy will take part in.
    theta_bound : float
        S ≥ ‖θ‖.
    release : {"scheduled", "every_round"}
        Release after batches of growing length, or after every decision (noisier and slower).
    growth : float
        Length of a batch over the length of the one before, at least 1.
    first_batch : int, optional
        Rounds before the first release, which play the best arm in a random direction. By default 4d, at most T/20.
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
    >>> policy = OnePassPrivateGLM(dim=2, budget=Budget(1.0, 1e-6), horizon=2000, rng=rng)
    >>> reward = 0.0
    >>> for _ in range(2000):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, float(rng.random() < (0.2, 0.8)[decision.index]))
    ...     reward += (0.2, 0.8)[decision.index]
    >>> reward / 2000 > 0.7
    True
    >>> print(policy.privacy())
    (1, 1e-06)-DP joint, one round under replace, ε left 0 (SIMULATION: the noise came from a seeded generator...)
    """

    trust: ClassVar[Literal["joint"]] = "joint"
    _secret = ("_sums",)
    _prices_persons = True

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        budget: Budget,
        horizon: int,
        theta_bound: float = 3.0,
        release: Literal["scheduled", "every_round"] = "scheduled",
        growth: float = 1.2,
        first_batch: int | None = None,
        gradient_share: float = 0.75,
        clip: float | None = None,
        exploration: float = 0.5,
        ridge: float = 1.0,
        **options: Unpack[PrivateOptions],
    ) -> None:
        self.link = get_link(link)
        super().__init__(dim, self.link.reward_range, budget=budget, horizon=horizon, **options)
        S = self.theta_bound = positive("theta_bound", theta_bound)
        T = self._batches(first_batch, 4 * dim, growth, release)
        self.gradient_share = fraction("gradient_share", gradient_share)
        self.exploration = nonnegative("exploration", exploration)
        self.ridge = positive("ridge", ridge)
        self._record = GLMRecord.of(self.link, S, finite_rewards(self.reward_range), clip)
        self.clip = self._record.B

        self._sums = PairSums(
            self.dim,
            self._record.W,
            self.clip,
            self.gradient_share,
            budget=budget,
            releases=len(self.schedule.ends),
            horizon=T,
            rng=self.rng,
            records=self.rounds_per_person,
        )
        self.public = Estimate(np.zeros(dim), np.eye(dim) / self.ridge)
        self._open_run(self._sums.cost)

    # ---------------------------------------------------------------------------------------------- choose

    def _score(self, arms: Array) -> Array:
        if self.releases == 0:
            # nothing is known yet: a random direction takes informative (long) arms and looks everywhere
            return np.asarray(arms @ self.rng.standard_normal(self.dim))
        return arms @ self.public.theta + self.exploration * norms(arms, self.public.inverse)

    # ----------------------------------------------------------------------------------------------- learn

    def _learn(self, pending: Pending, reward: float) -> None:
        arm = pending.arm
        self._sums.add(arm, *self._record.weigh(float(arm @ self.public.theta), reward))

    # --------------------------------------------------------------------------------------------- release

    def _release(self) -> Estimate:
        """Close the batch: release the running sums and refit on them. All that follows is post-processing."""
        H, b = self._sums.release()
        # E‖N‖ ≤ σ√(2d) for the noise N of H: with that much ridge, H̃ is seldom indefinite
        noise = self._sums.noise(self.releases + 1)[0] * math.sqrt(2 * self.dim)
        eigenvalues, U = np.linalg.eigh(H)
        eigenvalues = np.maximum(eigenvalues + self.ridge + noise, self.ridge)
        theta = ball_constrained_minimizer(eigenvalues, U, b, self.theta_bound)
        return Estimate(theta, (U / eigenvalues) @ U.T)

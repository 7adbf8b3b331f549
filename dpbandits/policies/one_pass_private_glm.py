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
* The guarantee is for real arithmetic: noise is drawn and added in float64.

Cost per round: O(Kd²) to select, O(d²) to update, O(d³) at each of about ln(T)/ln(growth) releases; memory O(d²).

This policy belongs to this package. Its ingredients: Shariff & Sheffet (2018) for joint privacy by noisy sums;
Zhang et al. (2025) for one-pass generalized linear bandits; Dvijotham et al. (2024) for the noise.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import numpy as np

from accounting import Budget, Ledger
from accounting.checks import fraction, integer, nonnegative, positive
from dpbandits.mathematics.ellipsoid import ball_constrained_minimizer, norms
from dpbandits.mathematics.links import Link, get_link
from dpbandits.policies._private import (
    ReleasingPolicy,
    bounded_rewards,
    checked_budget,
    release_ends,
)
from dpbandits.policies._records import GLMRecord, pair_scales
from dpbandits.policy import Array
from dpkit.continual import BufferedToeplitz
from dpkit.geometry import pair_sensitivity, smat, svec

__all__ = ["OnePassPrivateGLM"]


class OnePassPrivateGLM(ReleasingPolicy):
    """Optimism over noisy one-pass statistics, released on a public schedule.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    link : str or Link
        μ in E[r | x] = μ(xᵀθ).
    budget : Budget
        What the whole run may cost, for one round replaced (or zeroed out); δ > 0.
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
    reward_range : (float, float), optional
        By default that of the link; it must be finite.
    on_violation, rng
        See :class:`dpbandits.policy.Policy`.
    ledger : Ledger, optional
        Charged once, here; by default a ledger of the policy's own with the same budget.
    label : str, optional
        Names the run in the ledger; by default a fresh one.
    checkpoint : path, optional
        Where the state is saved at every release, before anything that was released is used. After a crash,
        ``Policy.load(checkpoint, ledger=ledger)`` goes on: the rewards since then are lost, the budget is not.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range.
    AdjacencyMismatch
        If the budget counts rows added or removed, or a unit other than a round.
    BudgetExceeded
        If the ledger has not enough left.

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
    _learned = ("theta", "inverse", "batch_H", "batch_b", "releases")

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
        reward_range: tuple[float, float] | None = None,
        on_violation: Literal["raise", "clip"] = "raise",
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
        label: str | None = None,
        checkpoint: str | None = None,
    ) -> None:
        self.link = get_link(link)
        reward_range = self.link.reward_range if reward_range is None else reward_range
        super().__init__(
            dim, reward_range=reward_range, on_violation=on_violation, horizon=horizon, rng=rng, ledger=ledger
        )
        self.budget = checked_budget(budget)
        low, high = bounded_rewards(self.reward_range)
        S = self.theta_bound = positive("theta_bound", theta_bound)
        self.release, self.growth = release, growth
        T = integer("horizon", horizon, at_least=1)
        self.first_batch = (
            min(4 * dim, -(-T // 20)) if first_batch is None else integer("first_batch", first_batch, at_least=1)
        )
        self.gradient_share = fraction("gradient_share", gradient_share)
        self.exploration = nonnegative("exploration", exploration)
        self.ridge = positive("ridge", ridge)
        self._open_run(budget, ledger, label, checkpoint)

        self._record = GLMRecord.of(self.link, S, (low, high), clip)
        self.clip = self._record.B
        self._a, self._c = pair_scales(self._record.W, self.clip, self.gradient_share)
        self._ends = release_ends(T, release, self.first_batch, growth)
        self._sums = BufferedToeplitz.calibrated(
            budget=budget,
            horizon=max(1, len(self._ends)),
            shape=dim * (dim + 1) // 2 + dim,
            sensitivity=pair_sensitivity(self._a, self._record.W, self._c, self.clip, budget.adjacency),
            rng=self.rng,
            ledger=self.ledger,
            label=self.label,
        )
        self.batch_H = np.zeros((dim, dim))  # the open batch: not released
        self.batch_b = np.zeros(dim)
        self.theta = np.zeros(dim)
        self.inverse = np.eye(dim) / self.ridge  # H̃⁻¹
        self.releases = 0

    def _score(self, arms: Array) -> Array:
        if self.releases < len(self._ends) and self.decisions == self._ends[self.releases]:
            self._release()
        if self.releases == 0:
            # nothing is known yet: a random direction takes informative (long) arms and looks everywhere
            return np.asarray(arms @ self.rng.standard_normal(self.dim))
        return arms @ self.theta + self.exploration * norms(arms, self.inverse)

    def _learn(self, arm: Array, reward: float) -> None:
        w, g = self._record.weigh(float(arm @ self.theta), reward)
        self.batch_H += (w * arm)[:, None] * arm
        self.batch_b += g * arm

    def _release(self) -> None:
        """Close the batch: release the running sums and refit on them. All that is public here is post-processing."""
        D = self.dim * (self.dim + 1) // 2
        noisy = self._sums.add(np.concatenate([self._a * svec(self.batch_H), self._c * self.batch_b]))
        self.batch_H[:] = 0.0
        self.batch_b[:] = 0.0
        self.releases += 1
        H, b = smat(noisy[:D] / self._a), noisy[D:] / self._c
        # E‖N‖ ≤ σ√(2d) for the noise N of H: with that much ridge, H̃ is seldom indefinite
        noise = self._sums.noise_std(self.releases) / self._a * math.sqrt(2 * self.dim)
        eigenvalues, U = np.linalg.eigh(H)
        eigenvalues = np.maximum(eigenvalues + self.ridge + noise, self.ridge)
        self.theta = ball_constrained_minimizer(eigenvalues, U, b, self.theta_bound)
        self.inverse = (U / eigenvalues) @ U.T
        self._keep_release()

    def _state(self) -> dict[str, Any]:
        return super()._state() | {"sums": self._sums.state()}

    def _restore(self, state: dict[str, Any]) -> None:
        super()._restore(state)
        self._sums = BufferedToeplitz.restore(state["sums"], rng=self.rng)

"""PrivateHvtUCB: a jointly differentially private linear bandit for rewards without bounds, by Huber's clip.

For whoever runs a linear bandit on people's data whose rewards have heavy tails or no known range. Hvt-UCB clips every
residual for robustness; here the same clip bounds what a round can do, whatever its reward. Every round leaves one
record, formed at the parameter θ̂ that was last released: with z = r − c₀ − xᵀθ̂, c₀ the base rate, it is the gradient
and the Hessian of Huber's loss, clip(z, ±τ)·x and w·x xᵀ, w = 1 if |z| ≤ τ and else 0. Records are summed over batches
of growing, public length; a continual mechanism over the *batches* releases the running sums G_k of the gradients and
H_k of the Hessians, and

    θ̂_{k+1} = argmin over ‖θ‖ ≤ S of ½θᵀH̃_kθ − (Σ_{j≤k} (H_j − H_{j−1})θ̂_j + G_k)ᵀθ,   H̃_k = H_k repaired,

where θ̂_j was in force during batch j. So only the clipped residual is in the noisy record and not xᵀθ̂, whose part
is known from what was released, and the noise of H counts only so far as θ̂ still moves. Until the next release a
round plays argmax xᵀθ̃ with a θ̃ of its own, Gaussian around θ̂ with covariance β²(ν²H̃⁻¹ + σ²H̃⁻²), σ being the noise
of G: within a batch every round would otherwise take the same arm.

Guarantee
---------
* Unit: one round, that is its arm set and its reward. Neighbours: two runs in which one round differs
  ("replace"), or counts for nothing ("zero_out"). Rewards need no range.
* One round enters one batch, by one record. With the pair scaled to (a·svec(w·x xᵀ), c·g·x), 0 ≤ w ≤ 1, |g| ≤ τ and
  ‖x‖ ≤ 1 (checked or clipped, always), its L2 sensitivity is ``dpkit.geometry.pair_sensitivity(a, 1, c, τ)``. θ̂ and τ
  are functions of earlier releases and of public numbers.
* All releases together are one continual Gaussian sum under adaptive inputs, so the whole run costs one
  ``Gaussian(z)``, calibrated to the budget exactly and recorded when the policy is made.
* Joint privacy: what round s sees of any other round t is post-processing of these releases and of draws of its own,
  applied to s's own arms (the billboard lemma of Hsu, Huang, Roth, Roughgarden & Wu 2014).
* Rewards may be late, out of order or missing. Batches end after a fixed number of *decisions*; a record is formed,
  with the θ̂ and in the batch of the moment, when its reward comes. A change of one round that moves its record to
  another batch is covered (see ``dpkit.geometry.pair_sensitivity``).
* After a crash, the newest state goes on and an older one is refused (see ``checkpoint``).
* It holds for the program as it runs: records are summed as whole numbers, and noise is exact (``dpkit.continual``).

Cost per round: O(Kd + d²) to select and to update, O(d³) at each of about ln(T)/ln(growth) releases; memory O(d²).

This policy belongs to this package. Its ingredients: Wang, Zhang, Zhao & Zhou, "Heavy-Tailed Linear Bandits: Huber
Regression with One-Pass Update" (ICML 2025, arXiv:2503.00419), whose clip depends on the arm's width while this one is
public; Shariff & Sheffet (2018) for joint privacy by noisy sums; Dvijotham et al. (2024) for the noise.
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
from dpbandits.policy.private import PrivateOptions, PrivatePolicy
from dpbandits.policy.protocol import Pending
from dpbandits.policy.schedule import Schedule, first_length
from dpkit.models.ellipsoid import ball_constrained_minimizer
from dpkit.moments.pairs import NoisyPair, PairSums

__all__ = ["PrivateHvtUCB"]


@dataclass(frozen=True)
class Estimate:
    """The public half: θ̂, a root such that θ̃ = θ̂ + root·(standard Gaussian), H_k, and Σ (H_j − H_{j−1})θ̂_j."""

    theta: Array
    root: Array
    H: Array
    anchor: Array


@dataclass(frozen=True)
class Record:
    """(x, w, clip(z, ±τ)/τ) with z = r − c₀ − xᵀθ̂ and w = 1 if |z| ≤ τ, else 0: in units of τ, |g| ≤ 1."""

    base_rate: float
    clip: float

    def __call__(self, pending: Pending, reward: float, public: Estimate) -> tuple[Array, float, float]:
        z = (reward - self.base_rate - float(pending.arm @ public.theta)) / self.clip
        return pending.arm, float(abs(z) <= 1.0), min(max(z, -1.0), 1.0)


def rule(public: Estimate, arms: Array, since: int) -> Law:
    """argmax xᵀθ̃; before the first release a random direction takes informative (long) arms and looks everywhere."""
    return Perturbed(arms, public.theta, public.root) if since else Perturbed(arms)


@dataclass(frozen=True)
class Refit:
    """θ̂_{k+1}, and how widely to draw around it: all of it is post-processing of the released running sums."""

    clip: float
    theta_bound: float
    ridge: float
    noise_scale: float
    exploration: float

    def __call__(self, last: Estimate, released: NoisyPair, ends: Sequence[int]) -> Estimate:
        H, G, (noise_H, noise_g) = released.H, self.clip * released.b, released.noise
        anchor = last.anchor + (H - last.H) @ last.theta
        # E‖N‖ ≤ σ√(2d) for the noise N of H: with that much ridge, H̃ is seldom indefinite
        eigenvalues, U = np.linalg.eigh(H)
        eigenvalues = np.maximum(eigenvalues + self.ridge + noise_H * math.sqrt(2 * len(G)), self.ridge)
        theta = ball_constrained_minimizer(eigenvalues, U, anchor + G, self.theta_bound)
        # β(ν²H̃⁻¹ + σ²H̃⁻²)^{1/2}: the errors by the rewards' noise and by the gradients'
        deviations = np.sqrt(self.noise_scale**2 * eigenvalues + (noise_g * self.clip) ** 2) / eigenvalues
        return Estimate(theta, (U * (self.exploration * deviations)) @ U.T, H, anchor)


class PrivateHvtUCB(PrivatePolicy[Estimate]):
    """A private linear bandit for heavy-tailed rewards, E[r | x] = base_rate + xᵀθ, behind a trusted server.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    budget : Budget
        What the whole run may cost, for one round, or one person, replaced (or zeroed out); δ > 0.
    horizon : int
        T, the number of rounds that the policy will take part in.
    theta_bound : float
        S ≥ ‖θ‖.
    tail : float
        ε in (0, 1]: the noise η has E|η|^{1+ε} ≤ ν^{1+ε}.
    noise_scale : float
        ν.
    parameters : {"practical", "theory"}
        How τ is chosen where ``clip`` is not given. ``"practical"``: 1.5ν, which suits noise that is about symmetric,
        whatever its moments, with ν about its interquartile range; ``tail`` plays no part. ``"theory"``: for noise
        that may be skewed, the τ at which the largest bias of T clipped rewards, Tν^{1+ε}/τ^ε, and the noise of their
        private sum, τs√d with the public s, add up to the least: τ = ν(εT/(s√d))^{1/(1+ε)}. That is wide,
        tens of ν, with noise in proportion.
    clip : float, optional
        τ.
    growth : float
        Length of a batch over the length of the one before, at least 1.
    first_batch : int, optional
        Rounds before the first release, which play the best arm in a random direction. By default 16d, at most T/20.
    gradient_share : float
        Share, in (0, 1), of the squared sensitivity that is given to the gradients rather than to the Hessians.
    exploration : float
        β ≥ 0.
    ridge : float
        Added to H besides a bound on the operator norm of its noise.
    **options
        ``reward_range`` (by default every number), ``base_rate``, ``on_violation``, ``expire_after``, ``rng``,
        ``ledger``, ``label``, ``checkpoint``, ``rounds_per_person``: see
        :class:`dpbandits.PrivatePolicy`, also for errors.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> policy = PrivateHvtUCB(dim=2, budget=Budget(1.0, 1e-6), horizon=5000, rng=rng)
    >>> chosen = np.zeros(5000, dtype=int)
    >>> for t in range(5000):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, (0.1, 0.9)[decision.index] + rng.standard_t(1.5))
    ...     chosen[t] = decision.index
    >>> bool(chosen[-1000:].mean() > 0.9)
    True
    """

    trust: ClassVar[Literal["joint"]] = "joint"
    by_rows = True
    prices_persons = True
    choices_read = ("theta", "root")

    def __init__(
        self,
        dim: int,
        *,
        budget: Budget,
        horizon: int,
        theta_bound: float = 1.0,
        tail: float = 1.0,
        noise_scale: float = 1.0,
        parameters: Parameters = "practical",
        clip: float | None = None,
        growth: float = 1.15,
        first_batch: int | None = None,
        gradient_share: float = 0.75,
        exploration: float = 0.7,
        ridge: float = 1.0,
        **options: Unpack[PrivateOptions],
    ) -> None:
        super().__init__(dim, (-math.inf, math.inf), budget=budget, horizon=horizon, **options)
        self.theta_bound = positive("theta_bound", theta_bound)
        self.tail = fraction("tail", tail, include_one=True)
        self.noise_scale = positive("noise_scale", noise_scale)
        self.parameters = checked_parameters(parameters)
        T = integer("horizon", horizon, at_least=1)
        self.first_batch = first_length(first_batch, 16 * dim, T)
        self.growth = growth
        self.schedule = Schedule.batches(T, self.first_batch, growth)
        self.gradient_share = fraction("gradient_share", gradient_share)
        self.exploration = nonnegative("exploration", exploration)
        self.ridge = positive("ridge", ridge)
        if clip is not None:
            positive("clip", clip)

        # of (w·x xᵀ, (g/τ)·x): τ may depend on the noise
        releases = len(self.schedule.ends)
        self.sums = PairSums(self.dim, 1.0, 1.0, self.gradient_share, **self.terms(), records=self.rounds_per_person)
        if clip is not None:
            self.clip = float(clip)
        elif parameters == "practical":
            self.clip = 1.5 * self.noise_scale
        else:
            s = self.sums.noise(max(1, releases))[1]
            self.clip = self.noise_scale * (self.tail * T / (s * math.sqrt(self.dim))) ** (1.0 / (1.0 + self.tail))
        self.record, self.rule = Record(self.base_rate, self.clip), rule
        self.refit = Refit(self.clip, self.theta_bound, self.ridge, self.noise_scale, self.exploration)
        square = np.zeros((self.dim, self.dim))
        self.public = Estimate(np.zeros(self.dim), square, square, np.zeros(self.dim))
        self.open_run(self.sums.cost)

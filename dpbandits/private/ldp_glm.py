"""LDPGLM: generalized linear bandits in the local model, where every user randomizes its own record.

For whoever learns from people who trust no server. The server publishes θ and H⁻¹; a user's device chooses the arm,
sees the reward, and sends *one* noisy record. The setting is that of Han, Liang, Wang & Zhang (2021), "Generalized
Linear Bandits with Local Differential Privacy", arXiv:2106.03365. Their LDP-SGD sends a randomized gradient and plays
greedily, their LDP-GLOC sends noisy second moments and plays optimistically. Here one record carries both: with
e = xᵀθ, w = clip(μ̇(e), w_min, W) and g = clip(w·e + r − μ(e), ±B), it is the pair (w·x xᵀ, g·x), randomized. The server
adds the records up, and refits on a public schedule: H is the first sum plus a ridge as large as the sum's noise, and
θ = argmin over ‖θ‖ ≤ S of ½θᵀHθ − bᵀθ. Devices play

    argmax xᵀθ + β√(xᵀH⁻¹(H + n·s²I)H⁻¹x),

s² the variance of one record's noise in a coordinate of g·x: in the local model this noise, not the rewards', makes
most of θ's error, and it is what has to be explored against. The first rounds play the best arm in random directions.

Randomizers
-----------
* ``"sphere"``: that of Duchi, Jordan & Wainwright (2018), pure ε-DP;
* ``"gaussian"``: the record plus Gaussian noise, calibrated to its joint L2 sensitivity
  (:mod:`dpkit.moments.local` has both).

By default the one with less variance, which is a public choice: the sphere at small ε, the Gaussian at large.

Guarantee
---------
* Unit: one round, that is its user's arm set and reward. Neighbours: one user's round differs ("replace"), or its
  record is the null one ("zero_out"; for the sphere at the price of "replace").
* What leaves a device is the randomized record and nothing else. Scaled to (a·svec(w·x xᵀ), c·g·x), 0 ≤ w ≤ W, |g| ≤ B
  and ‖x‖ ≤ 1 (checked or clipped, always), two records are at most
  ``dpkit.geometry.pair_sensitivity(a, W, c, B)`` apart and none is longer than √(a²W² + c²B²). So each message meets
  the budget by itself, against a server that is not trusted, all other users, and whoever sees the messages.
* Each user sends one message: users compose in parallel, and the ledger holds the cost of one message, recorded when
  the policy is made. Later users' messages depend on earlier ones (sequential interaction); that costs nothing, since θ
  and H are post-processing of messages.
* Not protected: whether and when a device sends. Where a reward's arrival is itself private, a device must send at a
  time that does not depend on it, a record of zeros if there is no reward.
* It holds for the program as it runs: Gaussian messages are on a lattice, with exact noise. A message from the sphere
  is one float vector or its negative, and which of the two is chosen with the stated odds, whatever the rounding.

This object simulates both sides. ``select`` and ``update`` are the device's; what they pass to the server is the
message. The saved state holds the server's sums, and the arms of open decisions; in a deployment these stay on the
devices.

Regret: Han et al. prove Õ(√T/ε) for greedy play where the played arms' second moment is bounded from below; nothing is
proved for this policy.

Cost per round: O(Kd²) to select, O(d²) to update, O(d³) at each refit; memory O(d²).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Unpack

import numpy as np

from accounting import Budget
from accounting.arrays import Array
from accounting.checks import fraction, integer, nonnegative, positive
from dpbandits.durability.state import renamed
from dpbandits.policy.choices import Law, Perturbed
from dpbandits.policy.private import PrivateOptions, PrivatePolicy, finite_rewards
from dpbandits.policy.progress import Found, found_along
from dpbandits.policy.protocol import Pending
from dpbandits.policy.schedule import Schedule, first_length
from dpbandits.private.parts.records import GLMRecord
from dpbandits.private.parts.ridge import lifted
from dpkit.models.ellipsoid import ball_constrained_minimizer, norms
from dpkit.models.links import Link, get_link
from dpkit.models.prior import Prior
from dpkit.moments.local import PairMessages
from dpkit.moments.pairs import NoisyPair

__all__ = ["LDPGLM"]


@dataclass(frozen=True)
class Estimate:
    """The public half: θ, and H⁻¹(H + n·s²I)H⁻¹."""

    theta: Array
    uncertainty: Array


@dataclass(frozen=True)
class Record:
    """(x, w, g) on the device, at the θ in force."""

    tangent: GLMRecord

    def __call__(self, pending: Pending, reward: float, public: Estimate) -> tuple[Array, float, float]:
        x = pending.arm
        return x, *self.tangent.weigh(float(x @ public.theta), reward)


@dataclass(frozen=True)
class Rule:
    """argmax xᵀθ + β√(xᵀH⁻¹(H + n·s²I)H⁻¹x)."""

    exploration: float

    def __call__(self, public: Estimate, arms: Array, since: int) -> Array | Law:
        if since == 0:
            # nothing is known yet: a random direction takes informative (long) arms and looks everywhere
            return Perturbed(arms)
        return arms @ public.theta + self.exploration * norms(arms, public.uncertainty)


@dataclass(frozen=True)
class Refit:
    """θ fitted to the messages so far: post-processing of what the server has anyway."""

    ridge: float
    theta_bound: float

    def __call__(self, last: Estimate, sums: NoisyPair, ends: Sequence[int]) -> Estimate:
        noise_H, noise_b = sums.noise
        eigenvalues, U = np.linalg.eigh(sums.H)
        eigenvalues = lifted(eigenvalues, noise_H, self.ridge, left=0.5)
        theta = ball_constrained_minimizer(eigenvalues, U, sums.b, self.theta_bound)
        return Estimate(theta, (U * (1.0 / eigenvalues + (noise_b / eigenvalues) ** 2)) @ U.T)


class LDPGLM(PrivatePolicy[Estimate]):
    """Optimism over sums of locally randomized records.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    link : str or Link
        μ in E[r | x] = μ(xᵀθ).
    budget : Budget
        What each user's message may cost, or all messages of a person; δ > 0.
    horizon : int
        T, the number of rounds that the policy will take part in.
    theta_bound : float
        S ≥ ‖θ‖.
    randomizer : {"sphere", "gaussian"}, optional
        See the module. By default the one with less variance.
    growth : float
        The server refits after numbers of rounds that grow by this factor, at least 1.
    first_batch : int, optional
        Rounds before the first fit. By default T/100, at least 4d and at most T/20.
    gradient_share : float
        Share, in (0, 1), of the squared sensitivity that is given to g·x rather than to w·x xᵀ.
    clip : float, optional
        B. By default the largest |r − μ(0)|.
    exploration : float
        β ≥ 0, in standard deviations of θ's error.
    ridge : float
        Added to H besides a bound on the operator norm of its noise.
    **options
        ``reward_range`` (by default that of the link; it must be finite), ``base_rate``, ``on_violation``,
        ``expire_after``, ``rng``, ``ledger``, ``label``, ``checkpoint``, ``rounds_per_person``: see
        :class:`dpbandits.PrivatePolicy`, also for errors.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> policy = LDPGLM(dim=2, budget=Budget(4.0, 1e-6), horizon=1500, rng=rng)
    >>> reward = 0.0
    >>> for _ in range(1500):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, float(rng.random() < (0.2, 0.8)[decision.index]))
    ...     reward += (0.2, 0.8)[decision.index]
    >>> reward / 1500 > 0.7
    True
    >>> print(policy.privacy())
    (4, 1e-06)-DP local, one round under replace, ε left 0 (SIMULATION: the noise came from a seeded generator...)
    """

    trust: ClassVar[Literal["local"]] = "local"
    by_rows = True
    prices_persons = True

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        budget: Budget,
        horizon: int,
        theta_bound: float = 3.0,
        randomizer: Literal["sphere", "gaussian"] | None = None,
        growth: float = 1.1,
        first_batch: int | None = None,
        gradient_share: float = 0.95,
        clip: float | None = None,
        exploration: float = 2.0,
        ridge: float = 1.0,
        **options: Unpack[PrivateOptions],
    ) -> None:
        self.link = get_link(link)
        super().__init__(dim, self.link.reward_range, budget=budget, horizon=horizon, **options)
        low, high = finite_rewards(self.reward_range)
        S = self.theta_bound = positive("theta_bound", theta_bound)
        T = integer("horizon", horizon, at_least=1)
        self.first_batch = first_length(first_batch, max(4 * dim, T // 100), T)
        self.growth = growth
        self.schedule = Schedule.batches(T, self.first_batch, growth)
        self.gradient_share = fraction("gradient_share", gradient_share)
        centre = float(self.link.mean(0.0))
        default = max(abs(low - centre), abs(high - centre))
        tangent = GLMRecord.of(self.link, S, (low, high), default if clip is None else clip)
        self.clip = tangent.B
        self.exploration = nonnegative("exploration", exploration)
        self.ridge = positive("ridge", ridge)

        self.record = Record(tangent)
        self.sums = PairMessages(
            dim,
            tangent.W,
            self.clip,
            self.gradient_share,
            budget=budget,
            rng=self.rng,
            records=self.rounds_per_person,
            randomizer=randomizer,
        )
        self.randomizer = self.sums.randomizer
        self.rule = Rule(self.exploration)
        self.refit = Refit(self.ridge, S)
        self.public = Estimate(np.zeros(dim), np.eye(dim) / self.ridge)
        self.open_run(self.sums.cost)

    @property
    def theta(self) -> Array:
        """θ as released."""
        return self.public.theta

    def found(self) -> Found:
        # no prior that would say anything: the share of the data is 1
        return found_along(
            self.public.theta, self.public.uncertainty, Prior(np.zeros(self.dim), 1e-9 * np.eye(self.dim)), None
        )

    def resume(self, saved: Any) -> None:
        names = ("sums", "messages")
        saved = renamed(saved, names)
        if isinstance(saved, Mapping) and "messages" in saved:  # older states have both beside the public half
            rest = {name: value for name, value in saved.items() if name not in names}
            saved = {**rest, "sums": {name: saved[name] for name in names}}
        super().resume(saved)

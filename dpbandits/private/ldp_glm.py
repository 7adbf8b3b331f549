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
* ``"sphere"``: the ℓ₂ mechanism of Duchi, Jordan & Wainwright (2018), "Minimax Optimal Procedures for Locally Private
  Estimation", section 4.2.3. A record v of length at most ϱ becomes ±ϱv/‖v‖, + with probability ½ + ‖v‖/(2ϱ); the
  message is uniform on the half of a sphere around it with probability e^ε/(1 + e^ε), else on the other half. The
  sphere's radius makes it unbiased. Pure ε-DP: given the sign, a message's density has one of two values whatever v is.
* ``"gaussian"``: the record plus Gaussian noise, calibrated to its joint L2 sensitivity.

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

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, Unpack

import numpy as np

from accounting import Budget, Gaussian, PureDP, Release, calibrate
from accounting.arrays import Array
from accounting.checks import fraction, integer, nonnegative, positive
from dpbandits.policy.choices import Law, Perturbed
from dpbandits.policy.private import PrivateOptions, PrivatePolicy, finite_rewards
from dpbandits.policy.protocol import Pending
from dpbandits.policy.schedule import Schedule, first_length
from dpbandits.private.parts.records import GLMRecord
from dpkit.geometry import pair_sensitivity, smat
from dpkit.mechanisms import GaussianMechanism
from dpkit.models.ellipsoid import ball_constrained_minimizer, norms
from dpkit.models.links import Link, get_link
from dpkit.moments.pairs import pair_scales

__all__ = ["LDPGLM"]


@dataclass(frozen=True)
class Estimate:
    """The public half: θ, and H⁻¹(H + n·s²I)H⁻¹."""

    theta: Array
    uncertainty: Array


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
    >>> policy = LDPGLM(dim=2, budget=Budget(2.0, 1e-6), horizon=5000, rng=rng)
    >>> reward = 0.0
    >>> for _ in range(5000):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, float(rng.random() < (0.2, 0.8)[decision.index]))
    ...     reward += (0.2, 0.8)[decision.index]
    >>> reward / 5000 > 0.7
    True
    >>> print(policy.privacy())
    (2, 1e-06)-DP local, one round under replace, ε left 0 (SIMULATION: the noise came from a seeded generator...)
    """

    trust: ClassVar[Literal["local"]] = "local"
    secret = ("sums", "messages")
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
        if randomizer not in (None, "sphere", "gaussian"):
            raise ValueError(f"randomizer must be 'sphere' or 'gaussian', got randomizer={randomizer!r}")
        T = integer("horizon", horizon, at_least=1)
        self.first_batch = first_length(first_batch, max(4 * dim, T // 100), T)
        self.growth = growth
        self.schedule = Schedule.batches(T, self.first_batch, growth)
        self.gradient_share = fraction("gradient_share", gradient_share)
        centre = float(self.link.mean(0.0))
        default = max(abs(low - centre), abs(high - centre))
        self._record = GLMRecord.of(self.link, S, (low, high), default if clip is None else clip)
        self.clip = self._record.B
        self.exploration = nonnegative("exploration", exploration)
        self.ridge = positive("ridge", ridge)

        self._a, self._c = pair_scales(self._record.W, self.clip, self.gradient_share)
        self._longest = math.hypot(self._a * self._record.W, self._c * self.clip)
        # positions and factors of a half-vector, which ``svec`` would find anew in every round
        rows, columns = np.triu_indices(dim, 1)
        self._rows = np.concatenate([np.arange(dim), rows])
        self._columns = np.concatenate([np.arange(dim), columns])
        self._isometry = np.where(self._rows == self._columns, 1.0, math.sqrt(2.0))
        size = len(self._rows) + dim

        # either randomizer at this budget, and the standard deviation of its noise in one coordinate (the sphere's is
        # at most its root mean square)
        m = self.rounds_per_person or 1  # messages of one person
        z = calibrate(lambda z: m * Gaussian(z, adjacency=budget.adjacency), budget)
        gaussian = z * pair_sensitivity(self._a, self._record.W, self._c, self.clip, budget.adjacency)
        # beyond e^−30 the chance of the other half sphere nears the resolution of a random number, and would be lost
        pure = min(30.0, 1.0 / calibrate(lambda z: m * PureDP(1.0 / z, adjacency=budget.adjacency), budget))
        self._radius = self._longest * _sphere_radius(size, pure)
        sphere = self._radius / math.sqrt(size)
        self.randomizer = randomizer or ("sphere" if sphere < gaussian else "gaussian")
        self._mechanism = GaussianMechanism(
            noise_multiplier=z, sensitivity=gaussian / z, adjacency=budget.adjacency, rng=self.rng
        )
        self._away = 1.0 / (1.0 + math.exp(pure))
        self._noise = sphere if self.randomizer == "sphere" else gaussian
        cost: Release = PureDP(pure, adjacency=budget.adjacency)
        if self.randomizer == "gaussian":
            cost = Gaussian(z, adjacency=budget.adjacency)
        cost = m * cost
        self.sums = np.zeros(size)  # of messages
        self.messages = 0
        self.public = Estimate(np.zeros(dim), np.eye(dim) / self.ridge)
        self.open_run(cost)

    @property
    def theta(self) -> Array:
        """θ as released."""
        return self.public.theta

    # ---------------------------------------------------------------------------------------------- choose

    def score(self, arms: Array) -> Array | Law:
        if self.releases == 0:
            # nothing is known yet: a random direction takes informative (long) arms and looks everywhere
            return Perturbed(arms)
        return arms @ self.public.theta + self.exploration * norms(arms, self.public.uncertainty)

    # ----------------------------------------------------------------------------------------------- learn

    def learn(self, pending: Pending, reward: float) -> None:
        # on the device
        arm = pending.arm
        w, g = self._record.weigh(float(arm @ self.public.theta), reward)
        moments = (self._a * w) * self._isometry * arm[self._rows] * arm[self._columns]  # a·svec(w·x xᵀ)
        message = self._randomize(np.concatenate([moments, (self._c * g) * arm]))
        # on the server
        self.sums += message
        self.messages += 1

    def _randomize(self, record: Array) -> Array:
        """One message: all that leaves a device."""
        if self.randomizer == "gaussian":
            return np.asarray(self._mechanism.release(record))
        draws = self.rng.standard_normal(len(record) + 2)  # one draw is faster than two
        noise, normals = draws[:-2], draws[-2:]
        length = math.sqrt(record @ record)
        toward_record, away = (0.5 * math.erfc(-float(z) * math.sqrt(0.5)) for z in normals)  # uniform
        # + or − the record's direction (any direction does for the null record: either sign is then as likely)
        side = 1.0 if toward_record < 0.5 + 0.5 * min(1.0, length / self._longest) else -1.0
        along = float(noise @ record) if length > 0 else float(noise[0])
        scale = self._radius / math.sqrt(noise @ noise)
        return np.asarray(noise * (scale if (along * side > 0) == (away >= self._away) else -scale))

    # --------------------------------------------------------------------------------------------- release

    def close_batch(self) -> Estimate:
        """Fit θ to the messages so far: post-processing of what the server has anyway."""
        d, D = self.dim, self.dim * (self.dim + 1) // 2
        H, b = smat(self.sums[:D] / self._a), self.sums[D:] / self._c
        # E‖N‖ ≤ σ√(2d) for the noise N of H: with that much ridge, H is seldom indefinite
        spread = math.sqrt(self.messages) * self._noise
        level = spread / self._a * math.sqrt(2 * d)
        eigenvalues, U = np.linalg.eigh(H)
        eigenvalues = np.maximum(eigenvalues + self.ridge + level, self.ridge + 0.5 * level)
        theta = ball_constrained_minimizer(eigenvalues, U, b, self.theta_bound)
        return Estimate(theta, (U * (1.0 / eigenvalues + (spread / self._c / eigenvalues) ** 2)) @ U.T)


def _sphere_radius(size: int, epsilon: float) -> float:
    """The radius B at which the sphere's message is unbiased for unit vectors of that size (Duchi et al. 2018, (26)).

    The half sphere around u has mean u·B·c with c = Γ(size/2)/(√π·Γ((size + 1)/2)), and the two halves' probabilities
    differ by tanh(ε/2).
    """
    log_c = math.lgamma(size / 2) - math.lgamma((size + 1) / 2) - 0.5 * math.log(math.pi)
    return math.exp(-log_c) / math.tanh(epsilon / 2)

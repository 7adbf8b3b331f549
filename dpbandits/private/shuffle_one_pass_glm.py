"""ShuffleOnePassGLM: a shuffle-private generalized linear bandit whose state is one noisy sum.

For whoever runs a bandit on people who trust a shuffler, but not the server. The horizon is cut into batches of
growing, public length; each round is one user of its batch. Once the reward is known the user forms one record at the
parameter θ that was last released: with e = xᵀθ, c₀ the base rate, the secant slope s = (μ(e) − c₀)/e cut to
[s_min, W], g = clip(r − c₀, ±B) and ψ = min(1/‖x‖, 2), it is the pair (ψs·x xᵀ, ψg·x), which is randomized before it
leaves. When batch j of n_j rounds ends, the shuffler lets out the sums M_j, m_j of its records, and with θ_j the
parameter in force in it, ρ_j and γ_j ≤ ρ_j the slopes of the secant and of the curve over that which was recorded,

    H = Σω_jγ_jM_j,   b = Σω_j(m_j − (ρ_j − γ_j)M_jθ_j),   ω_j = 1/(1 + n_0/n_j),

where n_0 is the length at which the noise in b_j is as large as what rewards add to it: the weights of least variance.
H is shrunk for its noise, and θ weighs b along every eigenvector of H by what there is to know, as in
:class:`~dpbandits.policies.OnePassPrivateGLM`. The next batch is played with argmax xᵀ(θ + β·U diag(√(f/p))ξ), ξ fresh
and Gaussian, with posterior precisions p and 0.1 ≤ f ≤ 1, larger where information has stopped growing. A
perturbation is what makes long batches work where the same arms come in every round: without it, a whole batch plays a
single arm.

Guarantee
---------
* Unit: one round, that is its arm set and its reward: one user. Neighbours: two runs in which one round differs
  ("replace"), or counts for nothing ("zero_out").
* Every user is in exactly one batch, which is fixed by the number of *decisions* alone, and sends exactly one record:
  the null record if its reward does not come before the batch ends. Later rewards are accepted and count for nothing.
* With x = ‖x‖u and q = ψ‖x‖ ≤ 1 a record is (ω·u uᵀ, γ·u) with ω = ψs‖x‖² ≤ W, |γ| = |ψg|‖x‖ ≤ qB and ω ≥ mq²,
  m = ½s_min, as q/2 ≤ ‖x‖ ≤ 1, and s and g are cut (always). So two scaled records (a·svec(ω·u uᵀ), c·γ·u) of a user
  differ by at most ``dpkit.geometry.pair_sensitivity(a, W, c, B, least=m)``, and so do a record and the null record. A
  batch of n users is one :class:`~dpkit.shuffle.VectorSum` over n users, calibrated to the whole budget.
* What the server sees of earlier batches fixes θ, hence what the users of a batch send as a function of their own
  data: the batches compose in parallel, adaptively. The run costs what its dearest batch costs; this is recorded when
  the policy is made.
* Shuffle privacy protects every user against the server; the rounds that others play are post-processing of what the
  shuffler lets out (the billboard lemma of Hsu, Huang, Roth, Roughgarden & Wu 2014).
* After a crash, the newest state goes on and an older one is refused (see ``checkpoint``), because it would release
  a batch again with fresh noise. This needs a ledger that survives, too. A saved state holds, of the open batch,
  randomized counts only, and the arms of decisions that wait for their reward.

Cost per round: O(Kd + d²) to select, O(d²) to update, with a fixed number of random bits for each of d(d + 3)/2
coordinates; O(d³) at each of about ln(T)/ln(growth) releases; memory O(d²).

This policy belongs to this package. Its ingredients: :class:`~dpbandits.policies.OnePassPrivateGLM` for the records;
Cheu, Joseph, Mao & Peng (2022) for the shuffled sum; Chowdhury & Zhou (2022) for batches of users.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Unpack

import numpy as np

from accounting import Budget
from accounting.arrays import Array
from accounting.checks import fraction, integer, positive
from dpbandits.policy.choices import Law, Perturbed, inverse_gap
from dpbandits.policy.parameters import Exploration, checked_exploration
from dpbandits.policy.private import PrivateOptions, PrivatePolicy, finite_rewards
from dpbandits.policy.protocol import Pending
from dpbandits.policy.schedule import Schedule, first_length
from dpbandits.private.parts.cold_start import clarity, warn_of_cold_start
from dpbandits.private.parts.noisy_estimate import errors, precisions, shrunken_eigenvalues, stalled
from dpbandits.private.parts.progress import Past, misfit, warn_of_misfit
from dpbandits.private.parts.records import SecantRecord, balanced_share
from dpkit.models.links import Link, get_link
from dpkit.models.prior import Prior, PriorLike, checked_prior, posterior
from dpkit.moments.shuffled import PairBatches

__all__ = ["ShuffleOnePassGLM"]

# the least f: batches are long
_LEAST = 0.1


@dataclass(frozen=True)
class Estimate:
    """The public half.

    θ; a root such that θ + root·ξ is what plays; H and b, with the variances of the noise in scaled records of H, of
    Σω_jρ_jM_j, and of b; Σθ_jᵀM_jθ_j; and the mean residual of the last batch over B where it is far from 0, else 0.
    """

    theta: Array
    root: Array
    H: Array
    b: Array
    noise: tuple[float, float, float]
    squares: float
    past: Past
    misfit: float


class ShuffleOnePassGLM(PrivatePolicy[Estimate]):
    """A posterior under noise-weighted sums of one-pass statistics, each shuffled batch summed once.

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
    delay : int
        After how many rounds nearly all rewards have come, as announced: each batch is released so many rounds after
        its last one, and the first is half as long by default, if that is longer. Later records count for nothing.
    gradient_share : float, optional
        Share, in (0, 1), of the squared sensitivity that is given to ψg·x rather than to ψs·x xᵀ. By default from 0.65
        to 0.8, more where rewards are rare (``private.parts.records.balanced_share``).
    clip : float, optional
        B. By default the largest |r − c₀|, so that nothing is cut off; for counts at most 0.8 × a typical |r − c₀|.
    exploration : float or "inverse_gap"
        β ≥ 0. Or arms are drawn by the gaps of their predicted rewards; see
        :class:`~dpbandits.policies.OnePassPrivateGLM`.
    gamma_scale : float
        Of "inverse_gap".
    ridge : float
        Precision of the prior of θ, times S²/d: a priori ‖θ‖² is S² on average at 1.
    prior : (array_like, array_like), optional
        Mean and precision of a normal prior of θ, public knowledge, by which the first batch plays, too; see
        :class:`~dpbandits.policies.OnePassPrivateGLM`.
    **options
        ``reward_range`` (by default that of the link; it must be finite), ``base_rate``, ``on_violation``,
        ``expire_after``, ``rng``, ``ledger``, ``label``, ``checkpoint``, ``rounds_per_person``: see
        :class:`dpbandits.PrivatePolicy`, also for errors.

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

    trust: ClassVar[Literal["shuffle"]] = "shuffle"
    prices_persons = True
    choices_read = ("theta", "root")

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
        delay: int = 0,
        gradient_share: float | None = None,
        clip: float | None = None,
        exploration: Exploration = 0.6,
        gamma_scale: float = 10.0,
        ridge: float = 1.0,
        prior: PriorLike | None = None,
        **options: Unpack[PrivateOptions],
    ) -> None:
        self.link = get_link(link)
        super().__init__(dim, self.link.reward_range, budget=budget, horizon=horizon, **options)
        S = self.theta_bound = positive("theta_bound", theta_bound)
        self.delay = integer("delay", delay, at_least=0)
        T = integer("horizon", horizon, at_least=1)
        self.first_batch = first_length(first_batch, max(8 * dim, self.delay // 2), T)
        self.growth = growth
        self.schedule = Schedule.batches(T, self.first_batch, growth, lag=self.delay)
        self.exploration, self._width = checked_exploration(exploration)
        self.gamma_scale = positive("gamma_scale", gamma_scale)
        self.ridge = positive("ridge", ridge)
        self.prior = checked_prior(prior, self.dim, S)
        self._prior = Prior.of(self.prior, self.dim, self.ridge * self.dim / S**2, S)
        self._record = SecantRecord.of(self.link, S, finite_rewards(self.reward_range), clip)
        self.clip = self._record.B
        share = balanced_share(self._record.W, self.clip, S, self.dim) if gradient_share is None else gradient_share
        self.gradient_share = fraction("gradient_share", share)

        ends, W = self.schedule.ends, self._record.W
        more: dict[str, Any] = {"records": self.rounds_per_person, "least": self._record.least}
        self.sums = PairBatches(ends, dim, W, self.clip, self.gradient_share, budget=budget, rng=self.rng, **more)
        self._warned = False
        zero, square = np.zeros(dim), np.zeros((dim, dim))
        root = square if self.prior is None else self._width * self._prior.root
        self.public = Estimate(self._prior.mean, root, square, zero, (0.0, 0.0, 0.0), 0.0, Past.empty(dim), 0.0)
        # of all batches, each with noise of its own
        noise = math.sqrt(sum(self.sums.noise_std(batch) ** 2 for batch in range(len(ends))))
        T = integer("horizon", horizon, at_least=1)
        clear = clarity(self.dim, T, W, S, noise / self.sums.c, noise / self.sums.a)
        if self.prior is None:
            warn_of_cold_start(clear, self.dim, T, budget)
        self.open_run(self.sums.cost)

    @property
    def theta(self) -> Array:
        """θ as released."""
        return self.public.theta

    # ---------------------------------------------------------------------------------------------- choose

    def prepare(self, arms: Array) -> None:
        super().prepare(arms)
        if self.public.misfit and not self._warned:
            self._warned = True
            warn_of_misfit(self.public.misfit, self.base_rate)

    def score(self, arms: Array) -> Law:
        if self.exploration == "inverse_gap":
            rounds = self.schedule.start(self.releases)
            return inverse_gap(self.link.mean(arms @ self.public.theta), self.gamma_scale * math.sqrt(rounds))
        if self.releases == 0 and self.prior is None:
            # nothing is known yet: a random direction takes informative (long) arms and looks everywhere
            return Perturbed(arms)
        return Perturbed(arms, self.public.theta, self.public.root)

    # ----------------------------------------------------------------------------------------------- learn

    def learn(self, pending: Pending, reward: float) -> None:
        arm = pending.arm
        record = self._record.weigh(arm, float(arm @ self.public.theta), reward)
        self.sums.add(np.concatenate([arm, record]), self.schedule.batch(pending.round))

    # --------------------------------------------------------------------------------------------- release

    def close_batch(self) -> Estimate:
        """Close the batch and refit. All but the shuffled sum itself is public, or post-processing."""
        (M, m), last = self.sums.release_pair(), self.public
        d, S, k, rounds = self.dim, self.theta_bound, self.releases + 1, self.schedule.ends[self.releases]
        theta = last.theta
        std, users = self.sums.noise_std(self.releases), self.sums.protocols[self.releases].users
        # noise against the chance in a coordinate of b, for x of which the mean square of a coordinate is 1/d, and
        # rewards of half the largest variance
        n_0 = (std / self.sums.c) ** 2 * 8.0 * d / (self.reward_range[1] - self.reward_range[0]) ** 2
        weight = 1.0 / (1.0 + n_0 / users)

        # γ_k and ρ_k, from the mean of w·e² over the newer rounds; in the first batch e is 0, unless there is a prior
        guessed = k > 1 or self.prior is not None
        squares = last.squares + (float(theta @ M @ theta) if guessed else 0.0)
        slope, secant = self._record.slopes(0.0)
        if guessed:
            since, _, until = last.past.before(max(0.25 * rounds, self.schedule.ends[0]))
            slope, secant = self._record.slopes((squares - until) / (rounds - since))
        H = last.H + weight * slope * M
        b = last.b + weight * (m - (secant - slope) * (M @ theta))
        of_H, of_secants, of_b = (
            before + (weight * times * std) ** 2 for before, times in zip(last.noise, (slope, secant, 1.0), strict=True)
        )
        noise_H, noise_secants = math.sqrt(of_H) / self.sums.a, math.sqrt(of_secants) / self.sums.a
        noise_b = math.sqrt(of_b) / self.sums.c

        eigenvalues, U = np.linalg.eigh(H)
        eigenvalues = shrunken_eigenvalues(eigenvalues, noise_H)
        length = min(float(theta @ theta), S**2) if guessed else 0.25 * S**2
        # b − Hθ has the noise of Σω_jρ_jM_jθ: as (ρ − γ)Mθ is taken from b, and γMθ by H
        variances = errors(eigenvalues, noise_secants, noise_b, length, self._record.chance)
        gains, precision = precisions(eigenvalues, variances)
        known = posterior(self._prior, precision, U, gains * (U.T @ b), S)

        # look around, most where information stands still
        since, earlier, _ = last.past.before(0.55 * rounds)
        growth = np.einsum("ij,ij->j", U, (H - earlier) @ U)
        f = stalled(eigenvalues, growth, 1.0 - since / rounds, noise_H) if since else np.ones(d)
        root = known.root @ (U * (self._width * np.sqrt(np.maximum(f, _LEAST))))
        past = last.past.followed_by(rounds, H, squares)
        variance = (std / self.sums.c) ** 2 + (secant * std / self.sums.a) ** 2 * float(theta @ theta)
        found = misfit(m - secant * M @ theta, theta, variance, users, self.clip)
        return Estimate(known.mean, root, H, b, (of_H, of_secants, of_b), squares, past, found)

"""ShuffleOnePassGLM: a shuffle-private generalized linear bandit whose state is one noisy sum.

For whoever runs a bandit on people who trust a shuffler, but not the server. The horizon is cut into batches of
growing, public length; each round is one user of its batch. Once the reward is known the user forms one record at the
parameter θ that was last released: with e = xᵀθ, c₀ the base rate, the secant slope s = (μ(e) − c₀)/e cut to
[s_min, W], g = clip(r − c₀, ±B), v = A x for the public metric A of the batch and ψ = min(1/‖v‖, 1/‖v‖², 2), it is the
pair (ψs·v vᵀ, ψg·v), which is randomized before it leaves. When batch j of n_j rounds ends, the shuffler lets out the
sum of its records. With M_j, m_j these sums back in terms of x, by A⁻¹, θ_j the parameter in force in the batch, ρ_j
and γ_j ≤ ρ_j the slopes of the secant and of the curve over that which was recorded,

    H = Σω_jγ_jM_j,   b = Σω_j(m_j − (ρ_j − γ_j)M_jθ_j),   ω_j = 1/(1 + n_0/n_j),

where n_0 is the length at which the noise in b_j is as large as what rewards add to it: the weights of least variance.
H is shrunk for its noise, and θ weighs b along every eigenvector of H by what there is to know, as in
:class:`~dpbandits.policies.OnePassPrivateGLM`. The next batch is played with argmax xᵀ(θ + β·U diag(√(f/p))ξ), ξ fresh
and Gaussian, with posterior precisions p and 0.1 ≤ f ≤ 1, larger where information has stopped growing. A
perturbation is what makes long batches work where the same arms come in every round: without it, a whole batch plays a
single arm.

A is I at first, and learned as in :class:`~dpbandits.policies.OnePassPrivateGLM`, from what was released: all batches
that had not begun by a release have the metric that it made. The first batch is so long that what it says may exceed
its noise, which is public; in an earlier release noise would choose the next batch's arms.

Where no base rate is stated, c₀ begins at the middle of the range of rewards, and the level is learned, as in
:class:`~dpbandits.policies.OnePassPrivateGLM`: while it is not settled a record is scaled by √(1 − ¾·0.1), and its user
sends (r − middle)/(high − low) in one more coordinate. All noise is 1 % larger for it. Batches are played at random as
long as rewards seem rare and the level has not moved. As long as c₀ is the middle, and arms are fresh, it may be that
rewards are less, batch after batch, than c₀ and θ_j say, by more than chance, noise and what is not known of θ explain.
Then m_j is freed of the difference along M_jθ_j: in long batches it would turn errors of θ_j round, again and again
(``private.parts.progress.turned_round``).

Guarantee
---------
* Unit: one round, that is its arm set and its reward: one user. Neighbours: two runs in which one round differs
  ("replace"), or counts for nothing ("zero_out").
* Every user is in exactly one batch, which is fixed by the number of *decisions* alone, and sends exactly one record:
  the null record if its reward does not come before the batch ends. Later rewards are accepted and count for nothing.
* Records are cut after the metric. With v = ‖v‖u and q = ψ‖v‖ ≤ 1 a record is (ω·u uᵀ, γ·u) with ω = ψs‖v‖² and
  γ = ψg‖v‖. As ψ‖v‖² ≤ 1, and s and g are cut (always), 0 ≤ ω ≤ W and |γ| ≤ qB, and ‖v‖ ≥ q/2 says that ω ≥ mq²,
  m = ½s_min. So two scaled records (a·svec(ω·u uᵀ), c·γ·u) of a user differ by at most
  ``dpkit.geometry.pair_sensitivity(a, W, c, B, least=m)``, and so do a record and the null record, whatever A is: no
  map of features moves the sum any further. A batch of n users is one :class:`~dpkit.shuffle.VectorSum` over n users,
  calibrated to the whole budget.
* With the level's coordinate the squared distance is 1 + 0.1/4 times that, also between a record that has it and one
  that has not (``dpkit.moments.PairSums``). Records at another level are summed in units of the first one's W and B,
  with ω ≥ mq² for m = min(½s_min, ¼W): within the same bounds.
* What the server sees of earlier batches fixes θ and A, hence what the users of a batch send as a function of their own
  data: the batches compose in parallel, adaptively. The run costs what its most expensive batch costs; this is
  recorded when the policy is made.
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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Unpack

from accounting import Budget, Gaussian, calibrate
from accounting.arrays import Array
from accounting.checks import integer, positive
from dpbandits.policy.parameters import Exploration
from dpbandits.policy.private import PrivateOptions, PrivatePolicy
from dpbandits.policy.protocol import Pending
from dpbandits.policy.schedule import Schedule, first_length
from dpbandits.private.parts.cold_start import clarity, warn_of_cold_start
from dpbandits.private.parts.one_pass_batches import Estimate, Refit
from dpbandits.private.parts.posterior_rule import PosteriorRule
from dpbandits.private.parts.records import Levels
from dpkit.geometry import pair_sensitivity
from dpkit.models.links import Link, get_link
from dpkit.models.prior import Prior, PriorLike, checked_prior
from dpkit.moments.pairs import pair_scales
from dpkit.moments.shuffled_pairs import PairBatches

__all__ = ["ShuffleOnePassGLM"]


# the clarity of the first batch, where that takes more than 8d rounds: after a shorter one noise alone would play the
# second. Where rewards are rare, 2 would lose a tenth at ε = 4
_TOLD = 1.25


@dataclass(frozen=True)
class Record:
    """(v, ψs, ψg), v = A x, at the θ, A and level that are in force, the round's batch, and the reward's deviation."""

    levels: Levels
    schedule: Schedule

    def __call__(
        self, pending: Pending, reward: float, public: Estimate
    ) -> tuple[Array, float, float, int, float | None]:
        batch = self.schedule.batch(pending.round)
        v = public.metric_of(batch) @ pending.arm
        pair = self.levels.at(public.level).weigh(v, float(pending.arm @ public.theta), reward)
        return v, *pair, batch, None if public.levelled else self.levels.deviation(reward)


class ShuffleOnePassGLM(PrivatePolicy[Estimate]):
    """A private bandit on features of arms, through a shuffler; each batch is summed once.

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
        S ≥ ‖θ‖, which the level of rewards is not part of.
    growth : float
        Length of a batch over the length of the one before, at least 1.
    first_batch : int, optional
        Rounds before the first release, which play the best arm in a random direction. By default 8d, or, without a
        prior, so many that what they say may exceed the noise, if that is more; at most T/20.
    delay : int
        After how many rounds nearly all rewards have come, as announced: each batch is released so many rounds after
        its last one, and the first is half as long by default, if that is longer. Later records count for nothing.
    gradient_share : float, optional
        Share, in (0, 1), of the squared sensitivity that is given to ψg·x rather than to ψs·x xᵀ. By default from 0.65
        to 0.8, more where rewards are rare (``private.parts.records.Levels.gradient_share``).
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
        ``reward_range`` (by default that of the link; it must be finite), ``base_rate`` (by default learned where
        rewards are well below the middle of their range; not for counts), ``on_violation``, ``expire_after``, ``rng``,
        ``ledger``, ``label``, ``checkpoint``, ``rounds_per_person``: see :class:`dpbandits.PrivatePolicy`, also for
        errors.

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
    kept_as: ClassVar[Mapping[str, str]] = {"clip": "stated_clip"}
    # states of before the metric was learned have none of it, nor those without θ's covariance
    newer = ("metric", "later", "turn", "settled", "covariance", "scores")

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        budget: Budget,
        horizon: int,
        theta_bound: float = 3.0,
        growth: float = 1.5,
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
        self.ridge, self.prior = positive("ridge", ridge), checked_prior(prior, self.dim, S)

        # records at the base rate; whether the level is learned is known with the batches
        base = Levels.of(self, clip, able=False)
        self.stated_clip, self.clip, W = clip, base.base.B, base.base.W
        self.gradient_share = base.gradient_share(gradient_share, self.dim)
        typical, self.growth = max(8 * dim, self.delay // 2), growth
        if first_batch is None and prior is None:
            batches = max(1, min(self.rounds_per_person or 1, len(Schedule.batches(T, typical, growth).ends)))
            one = _clarity_of_one(self.dim, base, self.gradient_share, budget, batches)
            typical = max(typical, T if one * T <= _TOLD else math.ceil(_TOLD / one))
        self.first_batch = first_length(first_batch, typical, T)
        self.schedule = Schedule.batches(T, self.first_batch, growth, lag=self.delay)

        levels = Levels.of(self, clip, early=prior is None)
        self.record = Record(levels, self.schedule)
        self.sums = PairBatches(
            self.schedule.ends,
            *(dim, W, self.clip, self.gradient_share),
            budget=budget,
            rng=self.rng,
            records=self.rounds_per_person,
            least=levels.least,
            level=levels.share,
        )

        given, known = prior is not None, Prior.of(self.prior, self.dim, self.ridge * self.dim / S**2, S)
        rule = PosteriorRule.of(self.link, exploration, gamma_scale, given=given, levels=levels.learned)
        self.rule, self.exploration, self.gamma_scale = rule, rule.exploration, rule.gamma_scale
        self.refit = refit = Refit(levels, known, rule, self.schedule)
        self.public = refit.nothing()
        noise_H, noise_b = self.sums.noise
        warn_of_cold_start(self, clarity(self.dim, T, W, S, noise_b, noise_H))
        self.open_run(self.sums.cost)


def _clarity_of_one(dim: int, levels: Levels, share: float, budget: Budget, batches: int) -> float:
    """The clarity of a single round, where one batch costs so much that so many meet the budget.

    The noise of a batch is nearly that of a Gaussian at the same price.
    """
    W, B = levels.base.W, levels.base.B
    a, c = pair_scales(W, B, share)
    z = calibrate(lambda z: batches * Gaussian(z, adjacency=budget.adjacency), budget)
    noise = z * pair_sensitivity(a, W, c, B, budget.adjacency, least=levels.least)
    return clarity(dim, 1.0, W, levels.theta_bound, noise / c, noise / a)

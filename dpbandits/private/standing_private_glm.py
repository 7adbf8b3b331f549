"""StandingPrivateGLM: a jointly differentially private bandit on public, fixed arms.

For whoever offers everybody the same few things every day: treatments, prices, layouts, answers. The arms x_1, …, x_K
are public numbers and do not change, E[r | k] = μ(o + x_kᵀθ), and all that is anybody's secret is the reward. (One-hot
arms make it a bandit of K arms that have nothing in common.) Where arms are described by features of the person who
comes, take :class:`~dpbandits.policies.OnePassPrivateGLM`, or
:class:`~dpbandits.policies.DisjointPrivateGLM`.

Which arm a round plays follows from what was released before and from the policy's own draws. So how often each arm was
played costs nothing to know, and is known exactly: the whole budget goes to sums of rewards, g = clip(r − c₀, ±B), c₀
the base rate. At first, if K > d, they are summed by directions, g·x; and from the batch on in which plays are spread
over three arms at most (the sum of n, squared, over that of n²), for each arm by itself. They leave after batches of
growing, public length, by one continual mechanism. All releases together, weighed by the covariance of their noise, say
what each arm pays, and how precisely; from that follows the normal posterior of θ, N(θ̂, V), to first order
(``private.parts.standing``, step by step), together with the level o, which is learned where no base rate is stated: it
moves all arms alike, ‖θ‖ ≤ S does not bound it, and it costs nothing, as plays are known and c₀ stays. Until the next
release every round plays

    argmax_k x_kᵀ(θ̂ + β·f·V^{1/2}ξ),  ξ ~ N(0, I) afresh,  f = min(1, √(2(1 − t/T))),

Thompson's draws from a posterior that knows of the noise; f, since an arm that is found late is worth little.

Guarantee
---------
* Unit: one round, that is its reward, whether that comes, and when; or one person, of whom the first reward that comes
  is learned. Neighbours: two runs in which one round differs ("replace"), or its reward never comes ("zero_out").
* Plays are no secret. Let y_j be the j-th release, and ω the draws by which arms are chosen, not the noise. What is
  played in batch j + 1 is a function of (y_1, …, y_j, ω), *the same one* in both runs: no reward enters it otherwise.
  For every ω, y is the output of a continual Gaussian sum under adaptive inputs, in which two runs differ by one
  record; plays, choices and estimates are computed from (y, ω). ``learn_log`` is refused: arms that others chose may
  tell of those who came.
* A record enters the batch in which its reward comes: g·x or g in the sum of the arm that was played, and one in the
  number of rewards that have come. It moves all sums by at most ``moments.arms.reward_sensitivity``, also where
  it comes into another batch, or not at all. Where c₀ is the middle of the range that is the length of the range
  alone: no share of the budget is spent on second moments, or on that number.
* The whole run costs one ``Gaussian(z)``, calibrated to the budget exactly and recorded when the policy is made.
* Joint privacy: what round s sees of any other round t is post-processing of these releases (the billboard lemma of
  Hsu, Huang, Roth, Roughgarden & Wu 2014).
* After a crash, the newest state goes on and an older one is refused (see ``checkpoint``).
* It holds for the program as it runs: records are summed as whole numbers, and noise is exact (``dpkit.continual``).

Rewards that never come, or come late: plays are scaled by the share of rewards that has come so far, by the released
number (``arrived``), and by that of each batch where the unit is a person, as nothing is learned of those who come
back. So where they are missing by chance, alike for all arms, nothing is biased. An arm for which more are missing than
for others is taken for one nearer to the base rate than it is. So is, for a while, one that was tried of late where
rewards come late: announce it (``delay``), and plays are counted when their rewards come.

Cost per round: O(Kd + d²) to select, O(d) to update; O(Kk³ + J³d³ + K²d) at the k-th of about ln(T)/ln(growth)
releases, J of them by directions, ten or so. Memory O((K + d)k + K² + d²).

This policy belongs to this package. Its ingredients: Thompson (1933) and Agrawal & Goyal (2013) for the draws;
Denisov et al. (2022) for the noise; Aitken (1936) for the weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Unpack

import numpy as np
from numpy.typing import ArrayLike

from accounting import Budget
from accounting.arrays import Array
from accounting.checks import integer, positive
from dpbandits.durability.pending import Together
from dpbandits.policy.logs import refuse_where_plays_are_counted
from dpbandits.policy.offers import PublicArms
from dpbandits.policy.parameters import Exploration
from dpbandits.policy.private import PrivateOptions, PrivatePolicy, finite_rewards
from dpbandits.policy.progress import Found, found_along
from dpbandits.policy.protocol import Pending
from dpbandits.policy.schedule import Schedule, first_length
from dpbandits.private.parts.arm_fits import LevelPrior
from dpbandits.private.parts.cold_start import clarity, release_weights, warn_of_cold_start
from dpbandits.private.parts.posterior_rule import PosteriorRule
from dpbandits.private.parts.records import SecantRecord, never_cut
from dpbandits.private.parts.standing import Estimate, Refit, Told
from dpkit.models.links import Link, get_link
from dpkit.models.prior import Prior, PriorLike, checked_prior
from dpkit.moments.arms import ArmSums

__all__ = ["StandingPrivateGLM"]

# the factor of more takes seconds to find, and a release as long
_MOST_RELEASES = 128


class StandingPrivateGLM(PrivatePolicy[Estimate]):
    """A private bandit on arms that are public and do not change, behind a trusted server.

    A round offers all arms, or some of them in any order. What is offered must be public: a choice among some arms
    *because of the person who comes* is not protected. And what ``register`` writes down must be a choice by what
    ``released()`` gives and fresh draws, and nothing else: it is counted without noise, so that one by anything that is
    known of a person would not be protected.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    arms : array_like of shape (K, d)
        All of them, rows of norm at most 1. They are public: nothing of this data may be in them.
    link : str or Link
        μ in E[r | k] = μ(x_kᵀθ).
    budget : Budget
        What the whole run may cost, for one round, or one person, replaced (or zeroed out); δ > 0.
    horizon : int
        T, the number of rounds that the policy will take part in.
    theta_bound : float
        S ≥ ‖θ‖. It bounds by how much arms differ, on the link's scale, and not the level of rewards.
    growth : float
        Length of a batch over the length of the one before; such that there are at most 128 releases.
    first_batch : int, optional
        Rounds before the first release, which play by the prior. By default 4d, at most T/20.
    delay : int
        By how many rounds all rewards come late, from public knowledge: plays are counted so many rounds later. Where
        some come much earlier than others, or in doubt, leave it out: one that is twice too long is worse than none.
    clip : float, optional
        B. By default the largest |r − c₀|, so that nothing is cut off; for counts at most 0.8 × a typical |r − c₀|.
    exploration : float or "inverse_gap"
        β ≥ 0. At 0.85 regret is a little lower and more runs miss the best arm. Or arms are drawn by the gaps of their
        predicted rewards; see :class:`~dpbandits.policies.OnePassPrivateGLM`.
    gamma_scale : float
        Of "inverse_gap", by default that of Vowpal Wabbit.
    prior : (array_like, array_like), optional
        Mean and precision of a normal prior of θ, which must be public knowledge. By default 0 and d/S².
    **options
        ``reward_range`` (by default that of the link; finite, or "learned"), ``base_rate`` (taken for the level; by
        default that is learned), ``on_violation``, ``expire_after``, ``rng``, ``ledger``, ``label``, ``checkpoint``,
        ``rounds_per_person`` (1): see
        :class:`dpbandits.PrivatePolicy`, also for errors.

    Examples
    --------
    Three layouts of a page, of which nothing is known beforehand:

    >>> import numpy as np
    >>> from accounting import Budget
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> policy = StandingPrivateGLM(3, np.eye(3), budget=Budget(1.0, 1e-6), horizon=2000, rng=rng)
    >>> reward = 0.0
    >>> for _ in range(2000):
    ...     decision = policy.select()
    ...     policy.update(decision, float(rng.random() < (0.2, 0.5, 0.8)[decision.index]))
    ...     reward += (0.2, 0.5, 0.8)[decision.index]
    >>> reward / 2000 > 0.7
    True
    >>> print(policy.privacy())
    (1, 1e-06)-DP joint, one round under replace, ε left 0 (SIMULATION: the noise came from a seeded generator...)
    """

    trust: ClassVar[Literal["joint"]] = "joint"
    offer: PublicArms
    # which arm it was
    notes = 1
    learns_range = True
    refit: Refit
    # a simulation tells it the arms when it is made (``dpbandits.lab.simulation.play``)
    public_arms: ClassVar[bool] = True

    def __init__(
        self,
        dim: int,
        arms: ArrayLike,
        link: str | Link = "logistic",
        *,
        budget: Budget,
        horizon: int,
        theta_bound: float = 3.0,
        growth: float = 1.2,
        first_batch: int | None = None,
        delay: int = 0,
        clip: float | None = None,
        exploration: Exploration = 1.0,
        gamma_scale: float = 10.0,
        prior: PriorLike | None = None,
        **options: Unpack[PrivateOptions],
    ) -> None:
        self.link = get_link(link)
        super().__init__(dim, self.link.reward_range, budget=budget, horizon=horizon, **options)
        self.offer = PublicArms.of(arms, self.dim)
        self.arms = self.offer.rows
        S = self.theta_bound = positive("theta_bound", theta_bound)
        T = integer("horizon", horizon, at_least=1)
        self.growth, self.first_batch = growth, first_length(first_batch, 4 * self.dim, T)
        self.schedule = Schedule.batches(T, self.first_batch, growth)
        m = len(self.schedule.ends)
        if m > _MOST_RELEASES:
            most = f"there are at most {_MOST_RELEASES} releases"
            raise ValueError(f"growth must be such that {most}, got growth={growth!r}, by which there are {m}")
        self.delay = integer("delay", delay, at_least=0)
        if self.delay >= T:
            raise ValueError(f"delay must be below the horizon of {T} rounds, got delay={delay!r}")
        self.prior = checked_prior(prior, self.dim, S)

        low, high = finite_rewards(self.reward_range)
        levels = self.levels = SecantRecord.of(self.link, S, (low, high), clip)
        self.clip = levels.B

        def weigh(noise: float) -> Array:
            """How much the noise of each release matters, where that of a single one is this."""
            return release_weights(self.schedule.ends, clarity(self.dim, 1.0, levels.W, S, noise))

        extremes = max(-self.clip, low - levels.centre), min(self.clip, high - levels.centre)
        self.sums = ArmSums(self.arms, *extremes, **self.terms(), weigh=weigh, delay=self.delay)

        level = LevelPrior.of(self.link, low, high) if self.stated_base_rate is None else None
        rule = PosteriorRule.of(self.link, exploration, gamma_scale, given=True, levels=level is not None)
        self.rule, self.exploration, self.gamma_scale = rule, rule.exploration, rule.gamma_scale
        known, once = Prior.of(self.prior, self.dim, self.dim / S**2, S), self.persons is not None
        self.refit = Refit(self.arms, levels, known, S, rule.width, T, self.delay, once, level)
        self.public = self.refit.nothing(m)
        warn_of_cold_start(self, clarity(self.dim, T, levels.W, S, self.sums.noise_of_sums(max(1, m))))
        self.open_run(self.sums.cost, delay=self.delay)

    @property
    def arrived(self) -> float:
        """The share of rewards that has come, as last released; 1 where that cannot be told from all."""
        return self.public.arrived

    def found(self) -> Found:
        found = found_along(self.public.theta, self.public.covariance, self.refit.prior, never_cut(self))
        predicted, seen = self.refit.means(self.public, self.releases)
        return replace(found, predicted=predicted, seen=seen, missing={})

    def check_log(self) -> None:
        refuse_where_plays_are_counted(self)

    def note(self, arm: Array, index: int) -> tuple[int, ...]:
        return tuple(self.offer.which(arm[None]))

    def note_many(self, arms: Sequence[Array] | Array, indices: Sequence[int]) -> Iterable[tuple[int, ...]]:
        return [(number,) for number in self.offer.which(np.asarray(arms))]

    def checked_pending(self, pending: Pending) -> Pending:
        found = super().checked_pending(pending)
        if not 0 <= found.note[0] < len(self.arms):
            raise ValueError(f"an open decision's note must be the number of an arm, got {found.note[0]}")
        return found

    def resume(self, saved: Any) -> None:
        super().resume(saved)
        self.public.check()

    def decided(self, pending: Pending) -> None:
        # as it is decided, live or from the journal: whether its reward comes is a secret
        self.sums.decided(pending.round, pending.note[0])

    def decided_many(self, made: Together) -> None:
        self.sums.decided_many(made.rounds[0], np.array([note[0] for note in made.notes]))

    def learn(self, pending: Pending, reward: float) -> None:
        g = min(max(-self.clip, reward - self.levels.centre), self.clip)
        self.sums.add(pending.note[0], g, together=self.public.together > self.releases)

    def learn_many(self, made: Together, rewards: Sequence[float]) -> None:
        numbers, together = np.array([note[0] for note in made.notes]), self.public.together > self.releases
        g = np.clip(np.array(rewards) - self.levels.centre, -self.clip, self.clip)
        self.sums.add_many(numbers, g, together=together)

    def close_batch(self) -> Estimate:
        k = self.releases + 1
        return self.refit(self.public, Told.of(self.sums, k), self.schedule.ends[:k])

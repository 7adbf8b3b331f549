"""PersonPrivateGLM: a generalized linear bandit that protects all that a person does in it.

For whoever runs a bandit, behind a trusted server, on people who come back. A policy that protects single rounds
protects a person with m rounds m times less. This one protects the person, for a price that is a *total*: every release
forms what each person contributes anew, from all rounds that the person has had so far and at the parameter θ that was
last released, and takes from each person a share of what that person has left.

Release j, after a public number of decisions. Person p has had n_p rounds. Over those whose reward came, with e = xᵀθ,
the secant weight w = clip((μ(e) − μ(0))/e, W/5, W) and g = r − μ(e) + η·w·e,

    M_p = mean of w·x xᵀ, cut to ‖M_p‖_F ≤ F,     b_p = mean of g·x, cut to ‖b_p‖ ≤ B_p,
    H_j = Σ ω_p M_p + noise/a,     G_j = Σ ω_p b_p + noise,     ω_p = α_p/Δ_p,     α_p² = κ·(what p has left).

While people have had fewer than 1.4 rounds on average, η = 1: then g does not depend on θ, and to cut it does not lock
a run in. Afterwards η = 0, and B_p = R·(0.1 + 0.6/√n_p) can be small; R is the largest |r − μ(0)|, μ(0) the base rate.
F is in proportion to the secant weight at |e| = S, near which good arms are: a larger one would be paid for by all.
κ is large while newcomers come, small when nobody new does, and 1 at the last release.

What follows is post-processing of all releases so far. Where good arms are played the link is flatter than its secant,
by a factor γ_j that θ_jᵀH_jθ_j tells. So G_j + (γ_j − η_j)H_jθ_j estimates γ_jH_jθ*, but for the common factor Σω_p.
Such pairs are averaged with the weights of the best linear unbiased estimate, the curvature is raised by its noise, θ
is the minimiser over ‖θ‖ ≤ S, and until the next release every round plays argmax xᵀθ + β‖x‖_{P⁻¹} with the precision P
of θ.

Where no base rate is stated it begins at the middle of the range of rewards, and the level is learned
(``private.parts.records``): until it is settled, a release also sums √0.1·α_p·f_p, f_p the mean of
(r − middle)/(high − low) over p's rounds, and (a·M_p, b_p) is scaled by √0.9 there. Later contributions are formed anew
at the level. Releases of before do not count if the arms that were chosen have a mean in common; else they are carried
along, as Σ of (r − c₀)x.

Guarantee
---------
* Unit: one person, that is everything in all rounds of that person: arm sets, rewards, their times, and whether they
  come at all. Which rounds a person has is public. Neighbours: two runs in which one person differs ("replace"), or
  counts for nothing ("zero_out").
* Δ_p bounds how far (a·M_p, b_p) moves: √(2a²F² + 4B_p²) under replace, since M_p and its replacement are positive
  semidefinite, and ``dpkit.geometry.pair_sensitivity(a, F, 1, B_p)`` where n_p = 1; √(a²F² + B_p²) under zero_out.
* With f_p ∈ [−½, ½] the shift is as large: 0.9·Δ_p² + 0.1·Δ_p²(f_p − f_p′)² ≤ Δ_p².
* So release j shifts by at most α_p, a function of public numbers of *decisions*, and Σ_j α²_{p,j} ≤ 1 for everybody.
  The run costs one ``Gaussian(z)`` (docs/privacy-proofs.md), calibrated to the budget exactly and recorded when the
  policy is made.
* Joint privacy: what others see of a person is post-processing of these releases, applied to their own arms (the
  billboard lemma of Hsu, Huang, Roth, Roughgarden & Wu 2014).
* Rewards may be late, out of order or missing: a person whose rewards have not come pays as if they had, and
  contributes less.
* After a crash, the newest state goes on and an older one is refused (see ``checkpoint``).
* It holds for the program as it runs: contributions are rounded to whole numbers, and noise is exact (``_people``).

Cost per round: O(Kd²) to select and O(d) to update. A release takes O(Td²) for the T rounds so far. Memory O(Td): raw
rounds are kept, and are in the state. With a checkpoint every release writes all of them, 8d + 17 bytes a round, and 8
bytes for each person: over a run, with batches that grow by 1.2, six times the last state.

This policy belongs to this package. Its ingredients: Hsu et al. (2014) and Shariff & Sheffet (2018) for joint privacy
by noisy sums; Smith & Thakurta (2022) and Koskela, Tobaben & Honkela (2023) for totals that are spent adaptively.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Unpack

from accounting import Budget
from accounting.checks import fraction, integer, nonnegative, positive
from dpbandits.policy.private import PrivateOptions, PrivatePolicy, checked_budget
from dpbandits.policy.progress import Found, found_along
from dpbandits.policy.protocol import Pending
from dpbandits.policy.schedule import Schedule
from dpbandits.private.parts.cold_start import warn_of_cold_start
from dpbandits.private.parts.records import Levels
from dpbandits.private.parts.refreshed import (
    Estimate,
    Refit,
    Rule,
    check_rounds,
    first_release,
    record_at,
    refreshed,
)
from dpkit.models.links import Link, get_link
from dpkit.models.prior import Prior, PriorLike, checked_prior
from dpkit.moments.people import PersonSums
from dpkit.moments.shuffled_people import ShuffledPersonSums

__all__ = ["PersonPrivateGLM"]


class PersonPrivateGLM(PrivatePolicy[Estimate]):
    """A private bandit on features of arms, behind a trusted server, for persons who come back many times.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    link : str or Link
        μ in E[r | x] = μ(xᵀθ).
    budget : Budget
        What the whole run may cost, for one person replaced (or zeroed out); ``unit="person"``, δ > 0.
    horizon : int
        T, the number of rounds that the policy will take part in.
    theta_bound : float
        S ≥ ‖θ‖, which the level of rewards is not part of.
    growth : float
        Length of a batch over the length of the one before, at least 1.02.
    first_batch : int, optional
        Rounds before the first release, which play the best arm in a random direction. By default (1 + 2z)d, z the
        noise multiplier of the run, from 2d to 4d and at most T/20.
    spending : float
        In (0, 1): κ while every round is a newcomer's; κ falls to a quarter of it when nobody new comes.
    exploration : float
        β ≥ 0.
    prior : (array_like, array_like), optional
        Mean and precision of a normal prior of θ, public knowledge, by which the first batch plays, too; see
        :class:`~dpbandits.policies.OnePassPrivateGLM`. By default 0 and d/S².
    **options
        ``reward_range`` (by default that of the link; finite, or "learned"), ``base_rate`` (by default learned where
        rewards are well below the middle of their range; not for counts), ``on_violation``, ``expire_after``, ``rng``,
        ``ledger``, ``label``, ``checkpoint``: see :class:`dpbandits.PrivatePolicy`, also for errors.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> policy = PersonPrivateGLM(dim=2, budget=Budget(1.0, 1e-6, unit="person"), horizon=2000, rng=rng)
    >>> reward = 0.0
    >>> for t in range(2000):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]], person=t % 200)
    ...     policy.update(decision, float(rng.random() < (0.2, 0.8)[decision.index]))
    ...     reward += (0.2, 0.8)[decision.index]
    >>> reward / 2000 > 0.7
    True
    """

    trust: ClassVar[Literal["joint", "shuffle"]] = "joint"
    by_rows = True
    # where the sums come from, which is all that the shuffled twin has otherwise
    sums_of: ClassVar[type[PersonSums | ShuffledPersonSums]] = PersonSums
    learns_range = True
    refit: Refit
    choices_read = ("theta", "inverse")
    prices_totals = True

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        budget: Budget,
        horizon: int,
        theta_bound: float = 3.0,
        growth: float = 1.2,
        first_batch: int | None = None,
        spending: float = 0.3,
        exploration: float = 0.5,
        prior: PriorLike | None = None,
        **options: Unpack[PrivateOptions],
    ) -> None:
        self.link = get_link(link)
        checked_budget(budget, units=("person",))
        super().__init__(dim, self.link.reward_range, budget=budget, horizon=horizon, **options)
        S, T = positive("theta_bound", theta_bound), integer("horizon", horizon, at_least=1)
        self.theta_bound, self.growth = S, positive("growth", growth)
        if self.growth < 1.02:
            raise ValueError(f"growth must be at least 1.02, as every release is kept, got growth={growth!r}")
        self.first_batch = first_release(first_batch, self.dim, T, budget)
        self.schedule = Schedule.batches(T, self.first_batch, growth)
        self.spending = fraction("spending", spending)
        self.exploration = nonnegative("exploration", exploration)
        self.prior = checked_prior(prior, self.dim, S)

        m = len(self.schedule.ends)
        self.contributions = Levels.of(self, None, early=prior is None)
        self.contribution = record_at(self.contributions, 0.0)
        self.sums = self.sums_of(self.dim, **self.terms(), level=self.contributions.share)
        self.rule = Rule(self.exploration, self.prior is not None)
        self.refit = Refit(self.contributions, Prior.of(self.prior, self.dim, self.dim / S**2, S))
        self.public = self.refit.nothing(m)
        warn_of_cold_start(self, self.contribution.clarity(self.dim, T, self.sums))
        self.open_run(self.sums.cost)

    def found(self) -> Found:
        return found_along(self.public.theta, self.public.inverse, self.refit.prior, None)

    def decided(self, pending: Pending) -> None:
        self.sums.rounds.decided(pending.round, pending.person)

    def learn(self, pending: Pending, reward: float) -> None:
        self.sums.rounds.rewarded(pending.round, pending.arm, reward)

    def close_batch(self) -> Estimate:
        batch = self.schedule.start(self.releases), self.clock
        left = len(self.schedule.ends) - self.releases
        told = refreshed(self.sums, self.contributions, self.public, self.spending, batch=batch, left=left)
        return self.refit(self.public, told, self.schedule.ends[: self.releases + 1])

    def check_releases(self) -> None:
        super().check_releases()
        check_rounds(self.sums, self.clock, self.schedule.start(self.releases))

    @classmethod
    def elements(cls, config: Mapping[str, Any]) -> int:
        schedule = Schedule.batches(config["horizon"], config["first_batch"], config["growth"])
        return super().elements(config) * len(schedule.ends)

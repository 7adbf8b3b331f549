"""ShufflePersonGLM: :class:`PersonPrivateGLM` for people who trust a shuffler, but not the server.

For whoever runs a bandit on people who come back, and leaves their data with them: everybody's rounds stay on the
person's own device. Choices, schedule, statistics and what is made of them are those of
:class:`~dpbandits.policies.PersonPrivateGLM`. At release j the server publishes θ, and every device that has had a
round forms its person's contribution

    ω_p·(a·svec M_p, b_p),    ω_p = α_p/Δ_p,    α_p² = κ·(what p has left),

from all rounds of the person so far, rounds it at random to counts, adds b fair bits to each coordinate, and sends it
through the shuffler, which lets out the sum alone. A device none of whose rewards has come sends the null vector.

Guarantee
---------
* Unit: one person, that is everything in all rounds of that person: arm sets, rewards, their times, and whether they
  come at all. Which rounds a person has is public, and so is who takes part in a release. Neighbours: two runs in which
  one person differs ("replace"), or counts for nothing ("zero_out").
* The Δ_p of :class:`~dpbandits.policies.PersonPrivateGLM` bounds how far (a·M_p, b_p) moves, so that release j moves by
  at most α_p, a function of public numbers, and Σ_j α²_{p,j} ≤ 1 for everybody.
* Given earlier releases, hence θ, what other devices send is the same in both worlds but for their coins. So release j
  is one sum of binomial noise in which one input moves by α_p, which is Gaussian differential privacy in proportion to
  α_p (``_shuffled_people``, with the proof), and μ² adds up to that of ``Gaussian(z)`` whoever pays when; that, with a
  probability of 1e-20 for all that may fail, meets the budget and is recorded when the policy is made.
* Shuffle privacy: people are protected against the server as well, which sees what the shuffler lets out. All devices
  follow the protocol, and messages of one release must not get into another. What others see of a person is
  post-processing (the billboard lemma of Hsu, Huang, Roth, Roughgarden & Wu 2014).
* After a crash, the newest state goes on and an older one is refused (see ``checkpoint``). This object plays server,
  shuffler and devices: its state holds what the devices would keep, everybody's rounds.

Cost per round: O(Kd) to select and O(d) to update. A release takes O(Td²) for the T rounds so far, on the devices.
Each sends, for each of d(d + 3)/2 coordinates, the count of g + b bits, b being 100 or, where that is more, about
3600·z·d·√releases over the number of devices. Memory O(Td).

This policy belongs to this package. Its ingredients: :class:`~dpbandits.policies.PersonPrivateGLM`; Cheu, Joseph, Mao &
Peng (2022) for the shuffled sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Unpack

from accounting import Budget
from accounting.arrays import Array
from accounting.checks import fraction, integer, nonnegative, positive
from dpbandits.policy.private import PrivateOptions, PrivatePolicy, checked_budget, finite_rewards
from dpbandits.policy.protocol import Pending
from dpbandits.policy.schedule import Schedule
from dpbandits.private.parts.cold_start import warn_of_cold_start
from dpbandits.private.parts.refreshed import (
    Estimate,
    PersonRecord,
    Refit,
    Rule,
    check_rounds,
    first_release,
    refreshed,
)
from dpkit.models.links import Link, get_link
from dpkit.models.prior import Prior, PriorLike, checked_prior
from dpkit.moments.shuffled_people import ShuffledPersonSums

__all__ = ["ShufflePersonGLM"]


class ShufflePersonGLM(PrivatePolicy[Estimate]):
    """Optimism over everybody's refreshed statistics, summed by a shuffler, with a person as the unit.

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
        S ≥ ‖θ‖.
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
        ``reward_range`` (by default that of the link; it must be finite), ``base_rate``, ``on_violation``,
        ``expire_after``, ``rng``, ``ledger``, ``label``, ``checkpoint``: see
        :class:`dpbandits.PrivatePolicy`, also for errors.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> policy = ShufflePersonGLM(dim=2, budget=Budget(1.0, 1e-6, unit="person"), horizon=2000, rng=rng)
    >>> reward = 0.0
    >>> for t in range(2000):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]], person=t % 200)
    ...     policy.update(decision, float(rng.random() < (0.2, 0.8)[decision.index]))
    ...     reward += (0.2, 0.8)[decision.index]
    >>> reward / 2000 > 0.7
    True
    """

    trust: ClassVar[Literal["shuffle"]] = "shuffle"
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
        self.contribution = PersonRecord.of(self.link, S, finite_rewards(self.reward_range))
        self.sums = ShuffledPersonSums(self.dim, budget=budget, releases=m, horizon=T, rng=self.rng)
        self.rule = Rule(self.exploration, self.prior is not None)
        self.refit = Refit(self.contribution, Prior.of(self.prior, self.dim, self.dim / S**2, S))
        self.public = self.refit.nothing(m)
        if self.prior is None:
            warn_of_cold_start(self.contribution.clarity(self.dim, T, self.sums), self.dim, T, budget)
        self.open_run(self.sums.cost)

    @property
    def theta(self) -> Array:
        """θ as released."""
        return self.public.theta

    def decided(self, pending: Pending) -> None:
        self.sums.rounds.decided(pending.round, pending.person)

    def learn(self, pending: Pending, reward: float) -> None:
        self.sums.rounds.rewarded(pending.round, pending.arm, reward)

    def close_batch(self) -> Estimate:
        batch = self.schedule.start(self.releases), self.decisions
        left = len(self.schedule.ends) - self.releases
        told = refreshed(self.sums, self.contribution, self.public.theta, self.spending, batch=batch, left=left)
        return self.refit(self.public, told, self.schedule.ends[: self.releases + 1])

    def check_releases(self) -> None:
        super().check_releases()
        check_rounds(self.sums, self.decisions, self.schedule.start(self.releases))

    @classmethod
    def elements(cls, config: Mapping[str, Any]) -> int:
        schedule = Schedule.batches(config["horizon"], config["first_batch"], config["growth"])
        return super().elements(config) * len(schedule.ends)

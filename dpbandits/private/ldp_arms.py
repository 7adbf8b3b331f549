"""LDPArms: named arms without features, for people who trust no server: every device randomizes its own reward.

The local twin of :class:`~dpbandits.policies.PrivateArms`, for whoever shows everybody one of a few things to learn
which is liked, from people whose rewards nobody may see. Which arm is shown is public. A device rounds its reward at
random to one of a few levels, by default to an end of the range, and sends a randomized level
(:mod:`dpkit.moments.reports`): with two levels that is randomized response. The server counts reports. When an arm has
a certain number of new ones, all posteriors are formed anew, as in ``PrivateArms``
(``private.parts.arm_posteriors``), and until then every round plays

    argmax_k m_k + α·√(1 − t/T)·s_k·ξ_k,    ξ_k ~ N(0, 1) afresh.

Guarantee
---------
* Unit: one round, that is its reward; or one person, of whom at most m = ``rounds_per_person`` rewards are reported.
  Neighbours: the reward differs ("replace"), or is the middle of the range ("zero_out", at the price of "replace").
* What leaves a device is one report, ε₀-DP by itself, against everybody: the server, all other users, whoever sees the
  messages. Users compose in parallel, a person's m reports in sequence: the run costs m ``PureDP(ε₀)``, calibrated to
  the budget (δ = 0 is possible: ε₀ = ε/m) and recorded when the policy is made. That later arms depend on earlier
  reports costs nothing: they are post-processing.
* Not protected: which arm was shown, and whether and when a report comes. Where that is private, a device must report
  at a time that does not depend on it, the middle of the range if there is no reward.
* It holds for the program as it runs: levels are whole numbers, and noise is exact.

Which randomizer: that with the least noise for rewards of which nothing is known but their mean, the worst of which lie
at the ends of the range. There two levels have less noise than more of them and than Laplace noise, at every ε; than
Gaussian noise, too, but for large δ and many reports of a person, where both are alike (calculated for δ ≤ 10⁻², up to
20 reports: from 0.03 to 1.04 of the Gaussian standard deviation). For rewards that lie inside of the range (prices,
ratings), more ``levels`` have less at ε of 2 and more.

This object simulates both sides. ``select`` and ``update`` are the device's; what they pass to the server is the
report. The saved state holds counts of reports.

Cost per round: O(K) to select, O(1) to update; O(K·J) at each of about K·J refits. Memory O(K·J).

This policy belongs to this package. Its ingredients: Warner (1965) for randomized response; Ghosh, Roughgarden &
Sundararajan (2012) for more levels; Ren, Zhou, Liu & Shroff (2020), "Multi-armed bandits with local differential
privacy", arXiv:2007.03121, for the setting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Unpack

import numpy as np

from accounting import Budget
from accounting.arrays import Array
from accounting.checks import integer, nonnegative
from dpbandits.durability.pending import Pending
from dpbandits.policy.catalogue import Catalogue
from dpbandits.policy.choices import Independent, Law
from dpbandits.policy.many import Laws, Repeated, Rounds
from dpbandits.policy.offers import NOTHING
from dpbandits.policy.private import PrivateOptions, PrivatePolicy, Schedule, finite_rewards
from dpbandits.policy.progress import Found
from dpbandits.private.parts.arm_posteriors import Estimate, Posteriors, first_length
from dpkit.moments.arm_messages import ArmMessages

__all__ = ["LDPArms"]


class LDPArms(PrivatePolicy[Estimate]):
    """A private A/B/n test without a trusted server: every device randomizes its own report.

    Parameters
    ----------
    arms : int or list of str
        The names of the arms at the start, at least two; a number K stands for "0", …, str(K − 1).
    budget : Budget
        What each user's report may cost, or all reports of a person. δ may be 0.
    horizon : int
        T, the number of rounds that the policy will take part in.
    reward_range : (float, float)
        Finite, and public.
    levels : int
        Of a report, from 2 to 64: see the module.
    first_batch : int, optional
        Reports of an arm before its first posterior: by default 8, and no more than T/(8K).
    growth : float
        Reports of an arm until the next one over those until the last, at least 1.
    exploration : float
        α ≥ 0.
    **options
        ``base_rate`` (here: around which the arms' common level is expected, with a standard deviation of half the
        range; by default its middle), ``on_violation``, ``expire_after``, ``decision_log``, ``rng``, ``ledger``,
        ``label``, ``checkpoint``, ``rounds_per_person``: see :class:`dpbandits.PrivatePolicy`, also for errors.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> policy = LDPArms(["plain", "witty", "loud"], budget=Budget(2.0, 0.0), horizon=3000, rng=rng)
    >>> liked = {"plain": 0.1, "witty": 0.4, "loud": 0.15}
    >>> for _ in range(3000):
    ...     decision = policy.select()
    ...     policy.update(decision, float(rng.random() < liked[decision.name]))
    >>> max(policy.means(), key=policy.means().get)
    'witty'
    >>> print(policy.privacy())
    (2, 0)-DP local, one round under replace, ε left 0 (SIMULATION: the noise came from a seeded generator...)
    """

    trust: ClassVar[Literal["local"]] = "local"
    lasting = True  # batches end with rewards
    offer = NOTHING
    catalogue: Catalogue
    choices_read = ("mean", "width")
    public_parts = ("catalogue",)
    passed_on = ("dim",)
    takes_pure = True
    prices_persons = True
    sums: ArmMessages

    def __init__(
        self,
        arms: int | Sequence[str],
        *,
        budget: Budget,
        horizon: int,
        levels: int = 2,
        first_batch: int | None = None,
        growth: float = 1.3,
        exploration: float = 0.8,
        **options: Unpack[PrivateOptions],
    ) -> None:
        super().__init__(1, (0.0, 1.0), budget=budget, horizon=horizon, **options)
        self.catalogue = Catalogue.of_several(arms)
        self.arms = list(self.catalogue.names)
        K, T, m = len(self.arms), integer("horizon", horizon, at_least=1), self.rounds_per_person or 1
        low, high = finite_rewards(self.reward_range)
        self.sums = ArmMessages(K, low, high, budget=budget, levels=levels, records=m, rng=self.rng)
        self.levels, self.first_batch = levels, first_length(first_batch, 0.0, T, K)
        self.growth, self.exploration = growth, nonnegative("exploration", exploration)
        # of an arm, by the number of its reports
        self.schedule = Schedule.batches(T, self.first_batch, growth)
        lengths = np.diff(np.array([0, *self.schedule.ends], dtype=np.float64))
        noise = np.sqrt(lengths) * self.sums.noise
        self.posteriors = Posteriors(low, high, self.base_rate, lengths, noise, self.exploration, T)
        self.public = self.posteriors.nothing(K)
        self.open_run(self.sums.cost)

    def means(self) -> dict[str, float]:
        """Of the active arms, the mean reward by the arm's reports; see :meth:`PrivateArms.means`."""
        with self.lock:
            return self.public.means(self.catalogue, self.reward_range)

    def interval(self, arm: str, confidence: float = 0.95) -> tuple[float, float]:
        """Where the mean reward of an arm lies, by its reports; see :meth:`PrivateArms.interval`."""
        with self.lock:
            return self.public.interval(self.catalogue, self.reward_range, arm, confidence, laplace=False)

    def found(self) -> Found:
        return self.posteriors.found(self.public, self.catalogue)

    def check_log(self) -> None:
        """Refuse logs: their rewards are known already."""
        raise ValueError("rows must not be learned by LDPArms, whose rewards no server has seen, got a log of them")

    def with_room(self, public: Estimate) -> Estimate:
        return self.posteriors.with_room(public, len(self.catalogue))

    def score(self, nothing: Array) -> Law:
        return Independent(self.catalogue.offered(self.public.mean), self.public.width)

    def score_many(self, rounds: Rounds) -> Laws:
        return Repeated(self.score(rounds[0]), len(rounds))

    def learn(self, pending: Pending, reward: float) -> None:
        self.sums.add(pending.index, reward)

    def last_release(self) -> int:
        return self.public.since

    def due(self) -> bool:
        return self.posteriors.full(self.public, self.sums.counts()) is not None

    def close_batch(self) -> Estimate:
        arm = self.posteriors.full(self.public, self.sums.counts())
        if arm is None:
            raise RuntimeError("no batch is due")
        total, reports = self.sums.release(arm)
        # late reports may have come all at once, and make it longer than was planned: its mean is what counts
        planned = self.posteriors.lengths[self.public.closed[arm]]
        return self.posteriors(self.public, arm, total * planned / reports, self.decisions)

    def most_releases(self) -> int:
        return len(self.catalogue) * len(self.schedule.ends)

    def resume(self, saved: Any) -> None:
        super().resume(saved)
        self.public.check()

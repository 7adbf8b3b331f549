"""SlatePrivateGLM: k arms in every round, such as a page of articles, learned from clicks by position, for one price.

:class:`~dpbandits.policies.OnePassPrivateGLM` for slates. A round shows k of its arms, the best ones for a draw from
what was released: argmax xᵀ(θ + β·root·ξ), ξ fresh and Gaussian, then the second best, and so on. It leaves up to k
secant records, one for each position that was seen, which are summed and clipped as one vector
(:mod:`dpbandits.private.parts.slates`): so a round costs what a round costs, not k of them. Sums over batches of
growing, public length are released by one continual mechanism, and θ is fitted to them as there. Where every slot of a
page has arms of its own (``select`` with an array of shape (k, K, d)), all share θ, and each shows its best.

Guarantee
---------
* Unit: one round, that is all arms that it offers, the slate, its clicks, and how far people looked. Neighbours: two
  runs in which one round differs ("replace"), or counts for nothing ("zero_out"). Or a person, with up to m rounds.
* One round enters one batch, by one record (M, b) = (Σω·u uᵀ, Σγ·u) over the positions that were seen, scaled to
  (aM, cb). M is positive semidefinite, and √(a²‖M‖_F² + p·c²‖b‖²) ≤ R = √(a²W² + p·c²B²), p = 2 for replace and 1 for
  zero_out: ``PairSums`` refuses any other. So its L2 sensitivity is √p·R, ``dpkit.geometry.summed_pairs_sensitivity``
  (proof there), whatever k is; the number of positions that were seen, which is private, is covered by it. A pair
  at its bounds W and B fits whole. (Its own sensitivity is up to an eighth less: for k = 1 take ``OnePassPrivateGLM``.)
* With the level's coordinate, of the first position, the squared sensitivity is 1 + 0.1/4 times that
  (``dpkit.moments.PairSums``).
* All releases together are one continual Gaussian sum under adaptive inputs: the whole run costs one ``Gaussian(z)``,
  calibrated to the budget and recorded when the policy is made. Joint privacy, late and missing clicks, crashes and
  exact noise are as in ``OnePassPrivateGLM``.

Cost per round: O(Kd + kd²) to select and to update, O(d³) at each of about ln(T)/ln(growth) releases.

This policy belongs to this package. Source of the click models: Craswell, Zoeter, Taylor & Ramsey (2008); Richardson,
Dominowska & Ragno (2007). Of bandits without privacy in them: Kveton, Szepesvári, Wen & Ashkan (2015); Zong, Ni, Sung,
Ke, Wen & Kveton (2016); Lagrée, Vernade & Cappé (2016).
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Unpack

import numpy as np

from accounting import Budget
from accounting.checks import integer, nonnegative, positive
from dpbandits.policy.private import PrivateOptions, PrivatePolicy
from dpbandits.policy.progress import Found, found_along
from dpbandits.policy.schedule import Schedule, first_length
from dpbandits.policy.slates import Examination, SlatePolicy
from dpbandits.private.parts.cold_start import clarity, release_weights, warn_of_cold_start
from dpbandits.private.parts.one_pass import Estimate, Refit
from dpbandits.private.parts.posterior_rule import PosteriorRule
from dpbandits.private.parts.records import Levels, never_cut
from dpbandits.private.parts.slates import SlateRecord, SlateRefit, looks, weight_of_round
from dpkit.models.links import Link, get_link
from dpkit.models.prior import Prior, PriorLike, checked_prior
from dpkit.moments.pairs import PairSums

__all__ = ["SlatePrivateGLM"]


class SlatePrivateGLM(SlatePolicy, PrivatePolicy[Estimate]):
    """A private bandit for pages of k arms with clicks by position, behind a trusted server.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    k : int
        The number of positions, at most 10,000.
    link : str or Link
        μ in E[r | x] = μ(xᵀθ), of an arm that is seen.
    budget : Budget
        What the whole run may cost, for one round, or one person, replaced (or zeroed out); δ > 0.
    horizon : int
        T, the number of rounds that the policy will take part in.
    examination : "cascade" or sequence of float
        How people look: from the top until the first click; or, of each position, the known chance that it is looked
        at, relative to the first one, so that a click has the mean q_j·μ(xᵀθ). Ones: all clicks are told.
    theta_bound : float
        S ≥ ‖θ‖, which the level of rewards is not part of.
    growth : float
        Length of a batch over the length of the one before, at least 1.
    first_batch : int, optional
        Rounds before the first release, which play the best arms in a random direction. By default 4d, at most T/20.
    gradient_share : float, optional
        Share, in (0, 1), of the squared sensitivity that is given to Σγ·u rather than to Σω·u uᵀ.
    exploration : float
        β ≥ 0. Less than of single choices, since the k best arms of a draw look around by themselves.
    ridge : float
        Precision of the prior of θ, times S²/d.
    prior : (array_like, array_like), optional
        Mean and precision of a normal prior of θ, from public knowledge alone, in place of the default one.
    **options
        ``reward_range`` (of one position; by default that of the link; finite), ``base_rate`` (of an arm taken at
        random, if it is seen; by default learned where rewards are well below the middle of their range),
        ``on_violation``, ``expire_after``, ``rng``, ``ledger``, ``label``, ``checkpoint``, ``rounds_per_person``: see
        :class:`dpbandits.PrivatePolicy`, also for errors.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> policy = SlatePrivateGLM(dim=3, k=2, budget=Budget(2.0, 1e-6), horizon=3000, rng=rng)
    >>> attraction = np.array([0.1, 0.5, 0.7])
    >>> for _ in range(2999):
    ...     decision = policy.select(np.eye(3))
    ...     clicks = rng.random(2) < attraction[list(decision.indices)]
    ...     policy.update(decision, clicks)        # what comes after the first click was not seen
    >>> sorted(policy.select(np.eye(3)).indices)
    [1, 2]
    >>> print(policy.privacy())
    (2, 1e-06)-DP joint, one round under replace, ε left 0 (SIMULATION: the noise came from a seeded generator...)
    """

    trust: ClassVar[Literal["joint"]] = "joint"
    prices_persons = True
    refit: SlateRefit

    def __init__(
        self,
        dim: int,
        k: int,
        link: str | Link = "logistic",
        *,
        budget: Budget,
        horizon: int,
        examination: Examination = "cascade",
        theta_bound: float = 3.0,
        growth: float = 1.2,
        first_batch: int | None = None,
        gradient_share: float | None = None,
        exploration: float = 0.3,
        ridge: float = 1.0,
        prior: PriorLike | None = None,
        **options: Unpack[PrivateOptions],
    ) -> None:
        self.link = get_link(link)
        super().__init__(dim, self.link.reward_range, budget=budget, horizon=horizon, **options)
        self.show(k, examination)
        S, T = positive("theta_bound", theta_bound), integer("horizon", horizon, at_least=1)
        self.theta_bound, self.growth = S, growth
        self.first_batch = first_length(first_batch, 4 * dim, T)
        self.schedule = Schedule.batches(T, self.first_batch, growth)
        ends = self.schedule.ends
        self.exploration, self.ridge = nonnegative("exploration", exploration), positive("ridge", ridge)
        self.prior = checked_prior(prior, self.dim, S)
        levels = Levels.of(self, None, able=(self.rounds_per_person or 1) == 1)
        self.clip, W = levels.base.B, levels.base.W
        self.gradient_share = levels.gradient_share(gradient_share, self.dim)
        weight = weight_of_round(looks(self.examination, self.k, levels.base, levels.reward_range))

        def clear(noise_b: float, noise_H: float) -> float:
            """The signal over the noise after one round."""
            return clarity(self.dim, weight, W, S, noise_b, noise_H)

        self.sums = PairSums(
            *(self.dim, W, self.clip, self.gradient_share),
            **self.terms(),
            records=self.rounds_per_person,
            weigh=lambda noise_b, noise_H: release_weights(ends, clear(noise_b, noise_H)),
            level=levels.share,
            together=True,
        )
        self.record = SlateRecord(levels, self.sums.bounds, self.k, self.examination)  # type: ignore[assignment]
        known = Prior.of(self.prior, self.dim, self.ridge * self.dim / S**2, S)
        self.rule = rule = PosteriorRule(self.link, self.exploration, 1.0, self.prior is not None)
        self.refit = SlateRefit(Refit(levels, known, rule, np.ones((dim, dim)), T, None, shapes=True), weight)
        self.public = self.refit.nothing()
        noise_H, noise_b = self.sums.noise(max(1, len(ends)))
        warn_of_cold_start(self, T * clear(noise_b, noise_H))
        self.open_run(self.sums.cost)

    def learn(self, pending: Any, reward: Any) -> None:
        self.sums.add_sum(*self.record(pending, reward, self.public))

    def found(self) -> Found:
        return found_along(self.public.theta, self.public.covariance, self.refit.single.prior, never_cut(self))

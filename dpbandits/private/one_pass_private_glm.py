"""OnePassPrivateGLM: a jointly differentially private generalized linear bandit whose state is one noisy sum.

For whoever runs a bandit on people's data behind a trusted server. Every round leaves one record, formed at the
parameter θ that was last released: with e = xᵀθ, c₀ the base rate, the secant slope s = (μ(e) − c₀)/e cut to
[s_min, W], g = clip(r − c₀, ±B), v = A x for a public metric A and ψ = min(1/‖v‖, 1/‖v‖², 2), it is the pair
(ψs·v vᵀ, ψg·v). Records are summed over batches of growing, public length; a continual mechanism over the *batches*
releases the running sums. Let M_j, m_j be their differences, the noisy sums over batch j (back in terms of x, by A⁻¹),
and θ_j the parameter in force in it. With ρ_j the slope of the secant over that which was recorded, ρ_jM_jθ_j is about
Σψ(μ(xᵀθ_j) − c₀)x, so m_j − ρ_jM_jθ_j is a gradient, and with γ_j ≤ ρ_j the slope of the curve over the recorded one

    H = Σγ_jM_j,   b = Σm_j − Σ(ρ_j − γ_j)M_jθ_j,   Hθ* ≈ b.

H is shrunk for its noise, and θ weighs b along every eigenvector of H by what there is to know (step by step in
``private.parts.one_pass``). Until the next release every round plays argmax xᵀ(θ + β·U diag(√(f/p))ξ), ξ fresh and
Gaussian, with posterior precisions p, and f > 0 only along eigenvectors of which little is known, or where information
has stopped growing: that frees runs that are stuck on a few arms. Whether arms stand is told by the spectrum of what H
has grown by (``private.parts.noisy_estimate.standing``): f is larger if they do, and smaller as long as they need not.

The noise of releases is the least on average with public weights: what a release's noise costs a bandit is most where
there begins to be more signal than noise (``private.parts.cold_start``, ``dpkit.continual.Weighted``). Runs that
are discounted, that release in every round or more than 64 times, or of persons with several records have other
factors.

A is I at first. In early batches it shortens what stands out of H and is not along θ, so that what all arms share takes
up less of the noise; as it changes, H and b are carried along, so that b has no more noise than if all records had been
formed in the newest A (``private.parts.metric``). It is a function of what was released, as θ is.

Where no base rate is stated, c₀ begins at the middle of the range of rewards, and the level is learned: while it is not
settled a round's pair is scaled by √(1 − ¾·0.1), and Σ(r − middle)/(high − low) is one more coordinate of the sums. A
mean reward far below the middle moves c₀, and with it W and B (``private.parts.records.Levels``). Until it does, and
seems to be so, arms are played at random, so that their records say something at the new level, too.

Guarantee
---------
* Unit: one round, that is its arm set and its reward. Neighbours: two runs in which one round differs
  ("replace"), or counts for nothing ("zero_out").
* One round enters one batch, by one record. With v = ‖v‖u, ω = ψs‖v‖² and γ = ψg‖v‖ it is (ω·u uᵀ, γ·u). Let
  q = ψ‖v‖ ≤ 1. As ψ‖v‖² ≤ 1, and s and g are cut (always), 0 ≤ ω ≤ W and |γ| ≤ qB, and ‖v‖ ≥ q/2 says that ω ≥ mq²,
  m = ½s_min: no large gradient comes with a small matrix. So the pair, scaled to (a·svec(ω·u uᵀ), c·γ·u), has the L2
  sensitivity ``dpkit.geometry.pair_sensitivity(a, W, c, B, least=m)``, whatever A is.
* With the level's coordinate the squared sensitivity is 1 + 0.1/4 times that (``dpkit.moments.PairSums``). Records at
  another level are summed in units of the first one's W and B, with ω ≥ mq² for m = min(½s_min, ¼W): within the same
  bounds.
* All releases together are one continual Gaussian sum under adaptive inputs, so the whole run costs one
  ``Gaussian(z)``, calibrated to the budget exactly and recorded when the policy is made.
* Joint privacy: what round s sees of any other round t is post-processing of these releases, applied to s's own
  arms (the billboard lemma of Hsu, Huang, Roth, Roughgarden & Wu 2014).
* Rewards may be late, out of order or missing. Batches end after a fixed number of *decisions*; a record enters the
  batch in which its reward comes. A change of one round may then also move its record to another batch, or make it
  appear or vanish. With ϱ = ⟨Ceᵢ, Ceⱼ⟩ ∈ [0, 1] for two columns of the mechanism's factor C (nonnegative, columns of
  norm at most 1), the inner products in the squared distance of the two streams are multiplied by ϱ: it is linear in ϱ,
  and at both ends of the interval within the stated sensitivity.
* After a crash, the newest state goes on and an older one is refused (see ``checkpoint``), because it would release
  sums again with fresh noise. This needs a ledger that survives, too.
* It holds for the program as it runs: records are summed as whole numbers, and noise is exact (``dpkit.continual``).

Fixed arms without features (five one-hot rows, 15 % against 10 %, ε = 1): by noise, 2 runs of 39 end with a wrong arm,
and none of ``PrivateArms``, which is for that.

Cost per round: O(Kd + d²) to select, O(d²) to update, O(d³) at each of about ln(T)/ln(growth) releases; memory O(d²).

This policy belongs to this package. Its ingredients: Shariff & Sheffet (2018) for joint privacy by noisy sums;
Zhang et al. (2025) for one-pass generalized linear bandits; Dvijotham et al. (2024) for the noise; Ledoit & Wolf (2012)
for shrinking eigenvalues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Unpack

from numpy.typing import ArrayLike

from accounting import Budget
from accounting.arrays import Array
from accounting.checks import choice, fraction, integer, positive
from dpbandits.durability.pending import Together
from dpbandits.policy.parameters import Exploration, batch_discount
from dpbandits.policy.private import PrivateOptions, PrivatePolicy
from dpbandits.policy.progress import Found, found_along
from dpbandits.policy.protocol import Pending
from dpbandits.policy.schedule import Schedule, first_length
from dpbandits.private.parts.cold_start import clarity, release_weights, warn_of_cold_start
from dpbandits.private.parts.groups import FeatureGroups
from dpbandits.private.parts.one_pass import Estimate, Refit
from dpbandits.private.parts.posterior_rule import PosteriorRule
from dpbandits.private.parts.progress import surprise_bound
from dpbandits.private.parts.records import Levels, never_cut
from dpkit.models.links import Link, get_link
from dpkit.models.prior import Prior, PriorLike, checked_prior
from dpkit.moments.pairs import PairSums

__all__ = ["OnePassPrivateGLM"]


@dataclass(frozen=True)
class Record:
    """(v, ψs, ψg) with v = A x, at the θ and A that are in force."""

    levels: Levels

    def __call__(self, pending: Pending, reward: float, public: Estimate) -> tuple[Array, float, float, float | None]:
        v = public.metric @ pending.arm
        pair = self.levels.at(public.level).weigh(v, float(pending.arm @ public.theta), reward)
        return v, *pair, None if public.levelled else self.levels.deviation(reward)

    def many(self, made: Together, rewards: Array, public: Estimate) -> tuple[Array, Array, Array, Array | None]:
        """The same for many rounds."""
        arms = made.rows()
        V = arms @ public.metric.T
        pairs = self.levels.at(public.level).weigh_many(V, arms @ public.theta, rewards)
        return V, *pairs, None if public.levelled else self.levels.deviations(rewards)


class OnePassPrivateGLM(PrivatePolicy[Estimate]):
    """A private bandit on features of arms, behind a trusted server; all that it keeps is one noisy sum.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    link : str or Link
        μ in E[r | x] = μ(xᵀθ).
    budget : Budget
        What the whole run may cost, for one round, or one person, replaced (or zeroed out); δ > 0.
    horizon : int
        T, the number of rounds that the policy will take part in.
    theta_bound : float
        S ≥ ‖θ‖, which the level of rewards is not part of.
    release : {"scheduled", "every_round"}
        Release after batches of growing length, or after every decision (noisier and slower).
    growth : float
        Length of a batch over the length of the one before, at least 1; without a meaning for discounted sums.
    first_batch : int, optional
        Rounds before the first release, which play the best arm in a random direction. By default 4d, at most T/20.
        Of discounted sums every batch has that length, by default 1/(20(1 − discount)), at most T/20.
    longest_batch : int, optional
        Batches grow no further than to so many rounds. By default without limit.
    discount : float, optional
        γ in (0, 1): a round of k rounds ago counts γ^k of what the newest one does (up to a batch's length), so that
        about 1/(1 − γ) rounds are remembered. For a world that drifts; by default nothing is forgotten.
    groups : sequence of sequences of int, optional
        Public sets of features, of which every arm has those of one set and zeros else. What noise adds to products of
        features that are in no set together is then dropped. For arms with a parameter each beside features that all
        share: with x_k = (0, …, z, …, 0, y_k)/√2, z in block k, the sets are the blocks, each with the features of y.
    gradient_share : float, optional
        Share, in (0, 1), of the squared sensitivity that is given to ψg·x rather than to ψs·x xᵀ. By default from 0.65
        to 0.8, more where rewards are rare (``private.parts.records.Levels.gradient_share``).
    clip : float, optional
        B. By default the largest |r − c₀|, so that nothing is cut off; for counts at most 0.8 × a typical |r − c₀|.
    metric : {"learned", "plain"}
        What A is: learned as above, or I, as it always is with ``discount`` or ``groups``. With "plain", features that
        are not centred cost three quarters more regret, and what all arms share a tenth to a third; fixed arms
        gain nothing.
    exploration : float or "inverse_gap"
        β ≥ 0; at 0, runs with fixed arms get stuck. Or arms are drawn by the gaps of their predicted rewards from
        the best (Foster & Rakhlin 2020): a has probability 1/(K + γ·gap_a), and the best the rest, with
        γ = ``gamma_scale``·√t after a release at round t: no arm is ever without a chance, as the evaluation of other
        policies on the log needs it. (Before the first release γ = 0, and all arms are alike, also where there is a
        prior.)
    gamma_scale : float
        By default that of Vowpal Wabbit.
    ridge : float
        Precision of the prior of θ, times S²/d: a priori ‖θ‖² is S² on average at 1.
    prior : (array_like, array_like), optional
        Mean and precision (the inverse of the covariance, or a number times the identity) of a normal prior of θ, in
        place of the default one, 0 and ``ridge``·d/S². It must be public knowledge: nothing of this data may be in it.
        Then the first batch plays by the prior, too.
    **options
        ``reward_range`` (by default that of the link; finite, or "learned"), ``base_rate`` (by default learned where
        rewards are well below the middle of their range; not for counts, with ``discount``, ``release="every_round"``
        or several rounds per person), ``on_violation``, ``expire_after``, ``rng``, ``ledger``, ``label``,
        ``checkpoint``, ``rounds_per_person``: see
        :class:`dpbandits.PrivatePolicy`, also for errors.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> policy = OnePassPrivateGLM(dim=2, budget=Budget(1.0, 1e-6), horizon=2000, rng=rng)
    >>> reward = 0.0
    >>> for _ in range(2000):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, float(rng.random() < (0.2, 0.8)[decision.index]))
    ...     reward += (0.2, 0.8)[decision.index]
    >>> reward / 2000 > 0.7
    True
    >>> print(policy.privacy())
    (1, 1e-06)-DP joint, one round under replace, ε left 0 (SIMULATION: the noise came from a seeded generator...)
    """

    trust: ClassVar[Literal["joint"]] = "joint"
    learns_range = True
    refit: Refit
    kept_as: ClassVar[Mapping[str, str]] = {"clip": "stated_clip"}
    prices_persons = True

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        budget: Budget,
        horizon: int,
        theta_bound: float = 3.0,
        release: Literal["scheduled", "every_round"] = "scheduled",
        growth: float = 1.2,
        first_batch: int | None = None,
        longest_batch: int | None = None,
        discount: float | None = None,
        groups: Sequence[Sequence[int]] | None = None,
        gradient_share: float | None = None,
        clip: float | None = None,
        metric: Literal["learned", "plain"] = "learned",
        exploration: Exploration = 0.5,
        gamma_scale: float = 10.0,
        ridge: float = 1.0,
        prior: PriorLike | None = None,
        **options: Unpack[PrivateOptions],
    ) -> None:
        self.link = get_link(link)
        super().__init__(dim, self.link.reward_range, budget=budget, horizon=horizon, **options)
        S = self.theta_bound = positive("theta_bound", theta_bound)
        T = integer("horizon", horizon, at_least=1)
        self.discount = None if discount is None else fraction("discount", discount)
        self.longest_batch = None if longest_batch is None else integer("longest_batch", longest_batch, at_least=1)
        typical = 4 * dim if self.discount is None else max(1, round(0.05 / (1 - self.discount)))
        self.release, self.growth, self.first_batch = release, growth, first_length(first_batch, typical, T)
        # sums that lose the same factor at every release need batches of one length
        pace = growth if self.discount is None else 1.0
        self.schedule = Schedule.of(release, T, self.first_batch, pace, self.longest_batch)
        ends = self.schedule.ends
        self.ridge, self.prior = positive("ridge", ridge), checked_prior(prior, self.dim, S)
        self.metric = choice("metric", metric, "learned", "plain")
        self._features = FeatureGroups.of(groups, self.dim)
        self.groups = self._features.sets

        # what is learned is how far rewards are from the middle; counts begin at μ(0). A drifting world has no level
        # that could be settled, and where the unit has several records they would have to share its coordinate, too
        able = discount is None and release == "scheduled" and (self.rounds_per_person or 1) == 1
        levels = Levels.of(self, clip, able=able, early=prior is None, sure=prior is None)
        self.stated_clip, self.clip, W = clip, levels.base.B, levels.base.W
        self.gradient_share = levels.gradient_share(gradient_share, self.dim)
        self.record = Record(levels)

        def weigh(noise_b: float, noise_H: float) -> Array:
            """How much the noise of each release matters, where that of a single one is this."""
            return release_weights(ends, clarity(self.dim, 1.0, W, S, noise_b, noise_H))

        self.sums = PairSums(
            *(self.dim, W, self.clip, self.gradient_share),
            **self.terms(),
            records=self.rounds_per_person,
            discount=batch_discount(self.discount, 1 if release == "every_round" else self.first_batch),
            least=levels.least,
            weigh=weigh if release == "scheduled" else None,
            level=levels.share,
        )

        given, known = prior is not None, Prior.of(self.prior, self.dim, self.ridge * self.dim / S**2, S)
        rule = PosteriorRule.of(self.link, exploration, gamma_scale, given=given, levels=levels.learned)
        self.rule, self.exploration, self.gamma_scale = rule, rule.exploration, rule.gamma_scale
        shapes = metric == "learned" and groups is None and discount is None
        self.refit = Refit(levels, known, rule, self._features.together, T, self.discount, shapes)
        self.public = self.refit.nothing()
        noise_H, noise_b = self.sums.noise(max(1, len(ends)))
        remembered = T if self.discount is None else min(T, 1 / (1 - self.discount))
        warn_of_cold_start(self, clarity(self.dim, remembered, W, S, noise_b, noise_H))
        self.open_run(self.sums.cost)

    @property
    def changed(self) -> bool:
        """Whether the last batch contradicts what was released before it: the world moved, or the model is wrong.

        Without a change that is so once in 10⁵ batches, if the model holds. Post-processing, so it costs nothing.
        """
        return self.public.surprise > surprise_bound(self.dim, 1e-5)

    def found(self) -> Found:
        # where the level has moved, a stated clip is another one
        cut = never_cut(self) if self.stated_clip is None else None
        return found_along(self.public.theta, self.public.covariance, self.refit.prior, cut)

    def checked_arms(self, arms: ArrayLike | None) -> Array:
        return self._features.checked(super().checked_arms(arms))

    def checked_many(self, arms: Array) -> Array | None:
        return self.offer.checked_many(arms, self.dim) if self.groups is None else None

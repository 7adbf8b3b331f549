"""JointDPGLM: two estimators, two design matrices and rarely switched policies, under joint privacy.

For whoever wants Algorithm 2 of Sarmasarkar (2026), "Shuffle and Joint Differential Privacy for Generalized Linear
Contextual Bandits", arXiv:2602.00417, the private form of the batched algorithm of Sawarni et al. (2024). The policy
``OnePassPrivateGLM`` is simpler and regrets less in practice. The paper proves a regret bound whose leading term is
free of κ for its own algorithm, with constants that it does not state. No regret theorem is claimed for this one (see
below).

A round whose longest arm in the norm of V⁻¹ reaches a threshold plays that arm and joins the exploration set (criterion
I). Any other round drops the arms that the exploration estimate θ_o rules out, and plays argmax xᵀθ_τ + β‖x‖_{H_τ⁻¹}.

    V = λI + Σ x xᵀ over the exploration set,        H = λI + Σ (μ̇(xᵀθ_o)/e)·x xᵀ over all other rounds.

Both sums are released, with noise, at the ends of public batches. There, and only there, θ_o is estimated anew if V has
outgrown twice what it was at the last estimate (V ⋠ 2V_o), and so is θ_τ if H ⋠ 2H_τ (criterion II): both by noisy
projected gradient descent, θ_o over {‖θ‖ ≤ S} from the exploration set, θ_τ over {‖θ − θ_o‖_V ≤ γ√κ, ‖θ‖ ≤ S} from the
rest. No ridge is added to the losses: the noise and the number of steps are chosen in public, and the sets are bounded.

Where no base rate is stated the level of rewards is released once, early, at a fiftieth of μ²
(``private.parts.records.level_of``). If rewards are far below the middle of their range, both estimates are made anew
at that level, from all rounds.

Where this differs from the paper, and why
------------------------------------------
* The paper estimates θ_o anew in every round of criterion I, so that when θ_o changes tells who explored; no ε covers
  that (``docs/errata.md``). Likewise criterion II was looked at only in rounds that did not explore. Here both depend
  on released matrices alone, at public times.
* A replaced round may leave one set for the other. What it can move is then counted in both (see below).
* All sensitivities hold always, by clipping: none is conditional on a likely event. V's records have norm up to 1, not
  1/κ*; noise is isotropic on half-vectors, so the Frobenius norm is what it has to cover.
* Nothing is spent on the switching indicators: those of the other rounds are post-processing.

Where not to take it
--------------------
For fixed arms. With the practical parameters the best of five one-hot arms, 15 % against 10 %, is ruled out or left
for good in 9 runs of 39 at ε = 1, and in 13 of 39 at ε = 1,000: not by noise, but because some twenty rounds of an arm
with rare rewards leave its logit unknown to about the half-width of its bounds. ``PrivateArms`` and
``StandingPrivateGLM`` end with the best arm in all of these runs.

No regret theorem
-----------------
``parameters="theory"`` has λ, γ and β of section J.1 with C = 1, and does not meet the conditions of Theorem K.1. For
probit rewards, d = 3, S = 2, T = 5,000, ε = 4, δ = 0.02 and ζ = 0.01:

* (72) asks for β ≥ 540 even with ν₂ = 0; section J.1 with C = 1 gives 50.
* (61) with the paper's own ν₁, that is (56) with a constant of 1, asks for γ ≥ 79,000; it is 21,500.
* The losses have no ridge, for which Assumption J.2 would have to charge up to ½λ_max·S² to ν: alone S√(λ_max/2) = 84
  of the width.
* ν₁ and ν₂ hold with high probability in the paper; of the fits here no such bound is proved.
* Criterion I is read at batch ends. Rounds in between explore by a V that is older than the proof's, and their number
  may pass Lemma Q.2's by up to a batch at each end.

``parameters="published"`` is the paper's Algorithm 2 to the letter. It is **not private as claimed**, has no
``privacy()``, and is another class, :class:`~dpbandits.reference.published.joint_dp_glm.PublishedJointDPGLM`, which
says why.

Guarantee
---------
* Unit: one round, that is its arm set and its reward. Neighbours: two runs in which one round differs ("replace"), or
  counts for nothing ("zero_out").
* A round leaves one record, x xᵀ in the stream of V or w·x xᵀ with w ≤ W = sup μ̇/e in that of H. Stacked as
  (svec V, svec(H)/W), a record has norm at most 1 and two records have a nonnegative inner product. So both streams
  together have sensitivity √2 (zero_out: 1), wherever the two records are, and cost one continual Gaussian sum, μ_s.
* A gradient, clipped to L, moves a sum over one of the two sets by L if the round enters or leaves the set, and by 2L
  if it changes in it. The calls of one optimizer together cost μ_o² if every one of them is moved by 2L (zero_out: L).
  A round that stays in its set moves one optimizer's sums, and costs μ_o²; one that changes sets moves both by L, and
  costs μ_o²/4 + μ_o²/4. Which of these it is, and in which order calls and streams are released, follows from
  the round's own arms in the two runs and from what was released before. But always do the squares of all shifts, over
  that of the noise, total at most μ_s² + μ_o², and fully adaptive composition asks for no more (Smith & Thakurta 2022;
  Koskela, Tobaben & Honkela 2023).
* The level is one sum of numbers in [−½, ½], one of each round whose reward has come: a replaced round moves it by at
  most 1 (zero_out: ½), in whichever set it is, and it costs μ_l² beside these, at a time that is public.
* The numbers of calls are capped in public, and the whole cost is recorded when the policy is made. The k-th call costs
  a fixed share, so that only its time depends on what was released; calls that are never made count as spent.
* Sums are divided by public numbers: of decisions, or of what the released V says about the exploration set's size.
* Joint privacy: what round s sees of any other round is post-processing of these releases, applied to its own arms (the
  billboard lemma of Hsu, Huang, Roth, Roughgarden & Wu 2014).
* Rewards may be late, out of order or missing: a round enters streams and sets when its reward comes. The bounds above
  do not depend on when that is.
* It holds for the program as it runs: records are summed as whole numbers (:mod:`dpkit.moments.pairs`), and the
  noise of the sums and of the optimizers is exact.

Cost per round: O(Kd²) to select, O(d²) to update; O(d³) at each release; O(steps·n·d) at each call over n rounds.
Memory: O(d²) and all rounds' (x, r), which the optimizers read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Unpack, cast

import numpy as np

from accounting import Budget
from accounting.arrays import Array
from accounting.checks import choice, fraction, integer, nonnegative, positive
from dpbandits.durability.state import gathered
from dpbandits.policy.as_published import as_published
from dpbandits.policy.parameters import Parameters, checked_parameters, no_prior
from dpbandits.policy.private import PrivateOptions, PrivatePolicy, finite_rewards
from dpbandits.policy.protocol import Pending, Policy
from dpbandits.policy.schedule import Schedule, first_length
from dpbandits.private.parts.capped_calls import Calls, Estimates, Numbers, Switches
from dpbandits.private.parts.cold_start import clarity, warn_of_cold_start
from dpbandits.private.parts.records import begins_in_the_middle
from dpbandits.private.parts.two_designs import Designs, Levels, Price
from dpkit.models.ellipsoid import norms
from dpkit.models.links import Link, get_link

__all__ = ["JointDPGLM"]


@dataclass(frozen=True)
class Record:
    """(whether the round explored, x, w, r) with w = μ̇(xᵀθ_o)/e."""

    link: Link
    W: float

    def __call__(self, pending: Pending, reward: float, public: Estimates) -> tuple[bool, Array, float, float]:
        x, (explores,) = pending.arm, pending.note
        # whatever a caller's link says, a weight lies in [0, W]
        e = public.level + float(x @ public.theta_o)
        w = min(max(0.0, float(self.link.derivative(e)) / math.e), self.W)
        return bool(explores), x, w, reward


@dataclass(frozen=True)
class Rule:
    """Explore, or keep x with UCB_o(x) ≥ max LCB_o, and play argmax xᵀθ_τ + β‖x‖_{H_τ⁻¹} of them."""

    levels: Levels

    def explores(self, unknown: float, since: int) -> bool:
        """Criterion I, for the largest ‖x‖_{V⁻¹}; the last release came after ``since`` rounds, 0 if none."""
        return since == 0 or unknown**2 >= self.levels.threshold

    def __call__(self, public: Estimates, arms: Array, since: int) -> Array:
        unknown = norms(arms, public.V_inverse)
        if self.explores(float(unknown.max()), since):
            return unknown
        center, width = arms @ public.theta_o, self.levels.gamma * unknown
        kept = center + width >= (center - width).max()
        return np.where(kept, arms @ public.theta + self.levels.beta * norms(arms, public.H_inverse), -np.inf)


def _published() -> type[Policy]:
    from dpbandits.reference.published.joint_dp_glm import PublishedJointDPGLM

    return PublishedJointDPGLM


@as_published(_published)
class JointDPGLM(PrivatePolicy[Estimates]):
    """A private generalized linear bandit behind a trusted server: a paper's algorithm, kept for comparison.

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
    sums : {"buffered", "tree"}
        The continual mechanism of V and H: a buffered Toeplitz factorization, or the paper's binary tree (noisier).
    release : {"scheduled", "every_round"}
        Release V and H after batches of growing length, or after every decision as in the paper (noisier and slower).
    growth : float
        Length of a batch over the length of the one before, at least 1.
    first_batch : int, optional
        Rounds before the first release, all of which explore. By default 4d, at most T/20.
    stream_share : float
        Share, in (0, 1), of the budget's μ² that is given to V and H; the rest is the optimizers'.
    exploration_calls, policy_calls : int, optional
        How often θ_o and θ_τ are estimated at most. By default 4 and 2 log₂ T; for the theory's parameters
        d·log_{11/8}(1 + T/(dλ)), the paper's Lemma P.4.
    clip : float, optional
        L, the bound on a gradient. By default 1.2 × the largest |r − μ(0)|.
    exploration : float
        β ≥ 0 of the practical parameters.
    ridge : float
        Of the practical parameters: added to the bound on the operator norm of the noise to make λ.
    parameters : {"practical", "theory", "published"}
        λ, γ and β. Practical: λ as above, the threshold 1/(2λ), half-widths 2 at the threshold (γ√κ = √(8λ)), and λW
        for H. Theory: those of the paper's section J.1 with C = 1; they explore for longer than any run lasts, and do
        not meet all conditions of its theorem. Published: not private, see the module's text; of the parameters here it
        takes ``ridge`` (λ), ``exploration`` (β), ``exploration_calls``, ``policy_calls`` and ``failure_probability``,
        and also ``gamma`` (γ).
    failure_probability : float
        ζ of the theory's parameters.
    prior : None
        Not taken: which rounds explore, what they rule out and when θ is estimated anew are read off V and H, in which
        a prior that is wrong could rule the best arm out for good.
    **options
        ``reward_range`` (by default that of the link; it must be finite), ``base_rate`` (by default learned where
        rewards are well below the middle of their range, if noise lets it be known in a tenth of the rounds; not for
        counts, nor with the theory's parameters), ``on_violation``, ``expire_after``, ``rng``, ``ledger``, ``label``,
        ``checkpoint``, ``rounds_per_person``: see :class:`dpbandits.PrivatePolicy`, also for errors.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> policy = JointDPGLM(dim=2, budget=Budget(4.0, 1e-6), horizon=600, rng=rng)
    >>> reward = 0.0
    >>> for _ in range(600):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, float(rng.random() < (0.2, 0.8)[decision.index]))
    ...     reward += (0.2, 0.8)[decision.index]
    >>> reward / 600 > 0.7
    True
    >>> print(policy.privacy())
    (4, 1e-06)-DP joint, one round under replace, ε left 0 (SIMULATION: the noise came from a seeded generator...)
    """

    trust: ClassVar[Literal["joint"]] = "joint"
    notes = 1
    sums: Designs
    rule: Rule
    kept_as: ClassVar[Mapping[str, str]] = {"sums": "mechanism", "clip": "stated_clip"}
    prices_persons = True
    choices_read = ("theta_o", "V_inverse", "theta", "H_inverse")

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        budget: Budget,
        horizon: int,
        theta_bound: float = 3.0,
        sums: Literal["buffered", "tree"] = "buffered",
        release: Literal["scheduled", "every_round"] = "scheduled",
        growth: float = 1.1,
        first_batch: int | None = None,
        stream_share: float = 0.25,
        exploration_calls: int | None = None,
        policy_calls: int | None = None,
        clip: float | None = None,
        exploration: float = 0.3,
        ridge: float = 1.0,
        parameters: Parameters | Literal["published"] = "practical",
        failure_probability: float = 0.01,
        prior: None = None,
        **options: Unpack[PrivateOptions],
    ) -> None:
        self.link = get_link(link)
        super().__init__(dim, self.link.reward_range, budget=budget, horizon=horizon, **options)
        low, high = finite_rewards(self.reward_range)
        S = self.theta_bound = positive("theta_bound", theta_bound)
        T = integer("horizon", horizon, at_least=1)
        self.release, self.growth, self.first_batch = release, growth, first_length(first_batch, 4 * dim, T)
        self.schedule = Schedule.of(release, T, self.first_batch, growth)
        self.mechanism = choice("sums", sums, "buffered", "tree")
        self.stream_share = fraction("stream_share", stream_share)
        self.exploration, self.ridge = nonnegative("exploration", exploration), positive("ridge", ridge)
        self.parameters = checked_parameters(cast(Parameters, parameters))
        self.failure_probability = fraction("failure_probability", failure_probability)
        self.prior = prior
        no_prior(prior, "JointDPGLM", "whose exploration rules arms out for good by what was observed alone")

        # the noise: one multiplier for the streams, one for all calls of either optimizer together
        ends, m = self.schedule.ends, self.rounds_per_person or 1
        price = Price(self.mechanism, self.stream_share, max(1, len(ends)), budget.adjacency, m)
        wanted = parameters == "practical" and begins_in_the_middle(self)
        price, z, numbers = Numbers.planned(price, budget, ends, T, wanted=wanted)
        self.calls = Calls(self.link, S, (low, high), clip, price.calls(z), budget.adjacency)
        self.stated_clip, self.clip, slope = clip, self.calls.clip, self.calls.slope
        self.sums = Designs(dim, slope / math.e, price, z, horizon=T, rng=self.rng)

        if parameters == "theory":
            self.levels = Levels.theory(self.link, S, high - low, budget, self.failure_probability, dim, T)
        else:
            self.levels = Levels.practical(self.ridge, self.sums.noise(), self.sums.W, self.exploration, dim, T)
        self.exploration_calls, self.policy_calls = caps = self.levels.caps(exploration_calls, policy_calls)

        self.record, self.rule = Record(self.link, self.sums.W), Rule(self.levels)
        self.switches = Switches(self.calls, caps, self.levels, self.ridge, numbers)
        self.public = Estimates.nothing(dim, self.levels, numbers is None)
        # a gradient of all rounds, with the noise of the call that has the largest share
        noise = self.calls.multiplier(0, min(caps)) * self.calls.sensitivity
        warn_of_cold_start(self, clarity(dim, T, slope, S, noise))
        self.open_run(price(z))

    def note(self, arm: Array, index: int) -> tuple[int, ...]:
        # an arm that was chosen by criterion I is the one of largest norm
        unknown = float(norms(arm[None], self.public.V_inverse)[0])
        return (int(self.rule.explores(unknown, self.schedule.start(self.releases))),)

    def close_batch(self) -> Estimates:
        return self.switches(self.public, self.sums, self.decisions, self.rng)

    def resume(self, saved: Any) -> None:
        super().resume(gathered(saved, Designs.KEPT))

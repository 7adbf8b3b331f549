"""DPLinUCB: linear UCB on noisy running sums, under joint privacy.

For whoever wants the classical private linear bandit, of Shariff & Sheffet (2018), "Differentially Private Contextual
Linear Bandits", arXiv:1810.00068: Algorithm 1 with the Gaussian noise and the shifted regularizer of section 4. With

    V = ρI + Σ x xᵀ + noise,        u = Σ r x + noise,        θ = V⁻¹u,

r the reward less the base rate, every round plays argmax xᵀθ + β‖x‖_{V⁻¹}. The shift ρ keeps V positive definite in
spite of its noise. With the practical parameters the width counts the noise of u besides, σ in each coordinate, and θ
is perturbed in every round afresh:

    Σ = V⁻¹ + ¼σ²V⁻²,        argmax xᵀ(θ + ½β·ξ) + β‖x‖_Σ,        ξ ~ N(0, Σ).

Where there is a prior (practical parameters) it takes the place of the shift: eigenvalues of V are shrunk for their
noise instead, θ is the mean of the posterior (``private.parts.noisy_estimate``), and Σ its covariance over R², R the
sub-Gaussian constant of rewards.

The perturbation is what makes long batches work where the same arms come in every round: without it a whole batch plays
a single arm, and about one run in thirty stays with a bad one.

Where this differs from the paper
---------------------------------
* The paper releases the sum of (x; r)(x; r)ᵀ. Its corner Σr² is used nowhere, so it is left out; and x xᵀ and r x are
  scaled separately, so that either gets the noise that serves it.
* Noise is isotropic on half-vectors, and calibrated to the joint L2 sensitivity of the two parts exactly; the paper
  bounds a Frobenius norm by 1 + B² and composes the tree's levels by a loose formula.
* By default the sums are released on a public schedule of growing batches by a buffered Toeplitz factorization, and the
  shift and the width are practical; ``parameters="theory"`` is the paper's tree, released in every round, with its
  shift and width computed from the noise that is really there.

Guarantee
---------
* Unit: one round, that is its arm set and its reward. Neighbours: two runs in which one round differs ("replace"), or
  counts for nothing ("zero_out").
* One round enters one batch, by one record (a·svec(x xᵀ), c·r x) with ‖x‖ ≤ 1 and |r| ≤ B, B the largest
  |reward − base_rate| in the declared range (checked or clipped, always). As ‖r x‖ ≤ ‖x‖B and ‖x xᵀ‖ = ‖x‖², its L2
  sensitivity is ``dpkit.geometry.pair_sensitivity(a, 1, c, B, least=1)``.
* All releases together are one continual Gaussian sum under adaptive inputs, calibrated to the budget exactly and
  recorded when the policy is made.
* Joint privacy: what round s sees of any other round is post-processing of these releases, applied to its own arms (the
  billboard lemma of Hsu, Huang, Roth, Roughgarden & Wu 2014).
* Rewards may be late, out of order or missing: batches end after fixed numbers of *decisions*, and a record enters the
  batch in which its reward comes. The sensitivity covers a record that moves to another batch, appears or vanishes,
  as long as the mechanism's factor is nonnegative; both mechanisms' factors are.
* It holds for the program as it runs: records are summed as whole numbers, and noise is exact (``dpkit.continual``).

Regret: Õ(d√T + √(T/ε)·d^(3/4)) with the theory's parameters (the paper's Theorem 1 and section 4), for the tree.

Cost per round: O(Kd²) to select, O(d²) to update, O(d³) at each release; memory O(d²), with the tree O(d² log T).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Unpack

import numpy as np

from accounting import Budget
from accounting.arrays import Array
from accounting.checks import choice, fraction, integer, nonnegative, positive
from dpbandits.policy.choices import Law, Perturbed
from dpbandits.policy.parameters import Parameters, checked_parameters, noise_level, not_in_theory
from dpbandits.policy.private import PrivateOptions, PrivatePolicy, finite_rewards
from dpbandits.policy.protocol import Pending
from dpbandits.policy.schedule import Schedule, first_length
from dpbandits.private.parts.cold_start import clarity, warn_of_cold_start
from dpbandits.private.parts.linear import Estimate, Practical, Theory, UnderPrior
from dpkit.models.ellipsoid import norms
from dpkit.models.prior import Prior, PriorLike, checked_prior
from dpkit.moments.pairs import PairSums

__all__ = ["DPLinUCB"]


@dataclass(frozen=True)
class Record:
    """(x, 1, r), r less the base rate."""

    base_rate: float

    def __call__(self, pending: Pending, reward: float, public: Estimate) -> tuple[Array, float, float]:
        return pending.arm, 1.0, reward - self.base_rate


@dataclass(frozen=True)
class Rule:
    """argmax xᵀθ + β‖x‖_{V⁻¹} by the theory, and xᵀ(θ + ½β·ξ) + β‖x‖_Σ in practice."""

    theory: bool
    given: bool  # whether there is a prior

    def __call__(self, public: Estimate, arms: Array, since: int) -> Array | Law:
        if since == 0 and not self.given:
            # nothing is known yet: a random direction takes informative (long) arms and looks everywhere
            return Perturbed(arms)
        if self.theory:
            return arms @ public.theta + public.beta * norms(arms, public.inverse)
        return Perturbed(arms, public.theta, public.root, norms(arms, public.shape))


class DPLinUCB(PrivatePolicy[Estimate]):
    """A private linear bandit behind a trusted server: LinUCB on noisy second moments and sums of rewards.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    budget : Budget
        What the whole run may cost, for one round, or one person, replaced (or zeroed out); δ > 0.
    horizon : int
        T, the number of rounds that the policy will take part in.
    theta_bound : float
        S ≥ ‖θ‖.
    sums : {"buffered", "tree"}, optional
        The continual mechanism: a buffered Toeplitz factorization, or a binary tree. By default the parameters' own.
    release : {"scheduled", "every_round"}, optional
        Release after batches of growing length, or after every decision. By default the parameters' own.
    growth : float
        Length of a batch over the length of the one before, at least 1.
    first_batch : int, optional
        Rounds before the first scheduled release, which play the best arm in a random direction. By default 4d, at
        most T/20.
    reward_share : float
        Share, in (0, 1), of the squared sensitivity that is given to r x rather than to x xᵀ.
    exploration : float
        β ≥ 0 of the practical parameters; 0.7 by default.
    ridge : float
        Of the practical parameters: added to the expected operator norm of the noise to make ρ.
    parameters : {"practical", "theory"}
        Practical: ρ and β as above, θ in the ball of radius S. Theory: the tree, released in every round; the noise of
        V has operator norm at most Υ in all releases with high probability, ρ = 2Υ, and
        β = σ√(2 ln(2/α) + ln det V − d ln Υ) + S√(3Υ) + ‖noise of u‖/√Υ, the last bounded likewise.
    failure_probability : float
        α of the theory's parameters.
    noise_bound : float, optional
        σ, the sub-Gaussian constant of the rewards; by default half the length of their range.
    prior : (array_like, array_like), optional
        Mean and precision of a normal prior of θ, public knowledge, by which the first batch plays, too; see
        :class:`~dpbandits.policies.OnePassPrivateGLM`. Practical parameters only.
    **options
        ``reward_range`` (by default [−1, 1]; it must be finite), ``base_rate``, ``on_violation``,
        ``expire_after``, ``rng``, ``ledger``, ``label``, ``checkpoint``, ``rounds_per_person``: see
        :class:`dpbandits.PrivatePolicy`, also for errors.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> policy = DPLinUCB(dim=2, budget=Budget(1.0, 1e-6), horizon=3000, reward_range=(0, 1), rng=rng)
    >>> reward = 0.0
    >>> for _ in range(3000):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, float(rng.random() < (0.2, 0.8)[decision.index]))
    ...     reward += (0.2, 0.8)[decision.index]
    >>> reward / 3000 > 0.7
    True
    >>> print(policy.privacy())
    (1, 1e-06)-DP joint, one round under replace, ε left 0 (SIMULATION: the noise came from a seeded generator...)
    """

    trust: ClassVar[Literal["joint"]] = "joint"
    by_rows = True
    prices_persons = True
    kept_as: ClassVar[Mapping[str, str]] = {"sums": "mechanism"}

    def __init__(
        self,
        dim: int,
        *,
        budget: Budget,
        horizon: int,
        theta_bound: float = 1.0,
        sums: Literal["buffered", "tree"] | None = None,
        release: Literal["scheduled", "every_round"] | None = None,
        growth: float = 1.2,
        first_batch: int | None = None,
        reward_share: float = 0.75,
        exploration: float = 0.7,
        ridge: float = 1.0,
        parameters: Parameters = "practical",
        failure_probability: float = 0.01,
        noise_bound: float | None = None,
        prior: PriorLike | None = None,
        **options: Unpack[PrivateOptions],
    ) -> None:
        super().__init__(dim, (-1.0, 1.0), budget=budget, horizon=horizon, **options)
        low, high = finite_rewards(self.reward_range)
        self.theta_bound = positive("theta_bound", theta_bound)
        self.parameters = checked_parameters(parameters)
        theory = parameters == "theory"
        self.mechanism = choice("sums", sums or ("tree" if theory else "buffered"), "buffered", "tree")
        T = integer("horizon", horizon, at_least=1)
        self.first_batch = first_length(first_batch, 4 * dim, T)
        self.release, self.growth = release or ("every_round" if theory else "scheduled"), growth
        self.schedule = Schedule.of(self.release, T, self.first_batch, growth)
        self.reward_share = fraction("reward_share", reward_share)
        self.exploration = nonnegative("exploration", exploration)
        self.ridge = positive("ridge", ridge)
        self.failure_probability = fraction("failure_probability", failure_probability)
        self.noise_bound = noise_level(noise_bound, self.reward_range, parameters, 1.0)

        not_in_theory(prior, parameters)
        self.prior = checked_prior(prior, self.dim, self.theta_bound)

        self.record = Record(self.base_rate)
        self.sums = PairSums(
            *(self.dim, 1.0, max(high - self.base_rate, self.base_rate - low), self.reward_share),
            **self.terms(),
            records=self.rounds_per_person,
            mechanism=self.mechanism,
            least=1.0,
        )
        self.rule = Rule(theory, self.prior is not None)
        zero, noises = np.zeros((dim, dim)), [self.sums.noise(k + 1) for k in range(max(1, len(self.schedule.ends)))]
        self.public = Estimate(np.zeros(dim), np.eye(dim) / self.ridge, 0.0, zero, zero)
        if theory:
            self.refit = Theory.of(noises, dim, self.failure_probability, self.noise_bound, self.theta_bound)
        elif self.prior is None:
            self.refit = Practical(self.ridge, self.exploration, self.theta_bound)
        else:
            known = Prior.of(self.prior, self.dim, 0.0, self.theta_bound)
            self.refit = under_prior = UnderPrior(known, self.exploration, self.noise_bound, self.theta_bound)
            self.public = under_prior.nothing()
        warn_of_cold_start(self, clarity(self.dim, T, 1.0, self.theta_bound, noises[-1][1], noises[-1][0]))
        self.open_run(self.sums.cost)

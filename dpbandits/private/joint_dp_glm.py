"""JointDPGLM: two estimators, two design matrices and rarely switched policies, under joint privacy.

For whoever wants Algorithm 2 of Sarmasarkar (2026), "Shuffle and Joint Differential Privacy for Generalized Linear
Contextual Bandits", arXiv:2602.00417, the private form of the batched algorithm of Sawarni et al. (2024). The policy
``OnePassPrivateGLM`` is simpler and regrets less in practice; for this one the paper proves a regret bound, with its
own switches, whose leading term is free of κ.

A round whose longest arm in the norm of V⁻¹ reaches a threshold plays that arm and joins the exploration set (criterion
I). Any other round drops the arms that the exploration estimate θ_o rules out, and plays argmax xᵀθ_τ + β‖x‖_{H_τ⁻¹}.

    V = λI + Σ x xᵀ over the exploration set,        H = λI + Σ (μ̇(xᵀθ_o)/e)·x xᵀ over all other rounds.

Both sums are released, with noise, at the ends of public batches. There, and only there, θ_o is estimated anew if V has
outgrown twice what it was at the last estimate (V ⋠ 2V_o), and so is θ_τ if H ⋠ 2H_τ (criterion II): both by noisy
projected gradient descent, θ_o over {‖θ‖ ≤ S} from the exploration set, θ_τ over {‖θ − θ_o‖_V ≤ γ√κ, ‖θ‖ ≤ S} from the
rest. No ridge is added to the losses: the noise and the number of steps are chosen in public, and the sets are bounded.

Where this differs from the paper, and why
------------------------------------------
* The paper estimates θ_o anew in every round of criterion I, which depends on that round's own arms, without noise.
  Whether θ_o changed then tells everybody later whether the round explored: with one arm set it surely changed, with
  another it surely did not, and no ε covers that (Lemma 6.1 is about the *other* rounds' choices). Likewise criterion
  II was looked at only in rounds that did not explore. Here both depend on released matrices alone, at public times.
* A replaced round may leave one set for the other. What it can move is then counted in both (see below).
* All sensitivities hold always, by clipping: none is conditional on a likely event. V's records have norm up to 1, not
  1/κ*; noise is isotropic on half-vectors, so the Frobenius norm is what it has to cover.
* Nothing is spent on the switching indicators: those of the other rounds are post-processing.

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
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Unpack

import numpy as np

from accounting import Budget, Gaussian, Release, TreeAggregation, calibrate
from accounting import delta as delta_of
from accounting.amplification.participation import group
from accounting.arrays import Array
from accounting.checks import choice, fraction, integer, nonnegative, positive
from dpbandits.policy.parameters import Parameters, checked_parameters
from dpbandits.policy.priors import no_prior
from dpbandits.policy.private import PrivateOptions, PrivatePolicy, finite_rewards
from dpbandits.policy.protocol import Pending
from dpbandits.policy.schedule import Schedule, first_length
from dpbandits.private.parts.cold_start import clarity, warn_of_cold_start
from dpkit.continual import BinaryTree, BufferedToeplitz
from dpkit.geometry import ConvexSet, Ellipsoid, EllipsoidBall, LpBall, outer_product_sensitivity, smat, svec
from dpkit.models.ellipsoid import norms
from dpkit.models.likelihood import Rows
from dpkit.models.links import Link, get_link
from dpkit.models.losses import matching_loss
from dpkit.moments.pairs import whole_digits

__all__ = ["JointDPGLM"]

# gradient steps of a call: after so many, of which half are averaged, more do not help
_STEPS = 40
# The k-th call gets a share ∝ 0.9^k of its optimizer's μ²: early calls have few rounds to hide their noise in
_DECAY = 0.9


@dataclass(frozen=True)
class Estimates:
    """The public half. M with MᵀAM = I for A = V and H at the last estimates is ``V_root`` and ``H_root``."""

    theta_o: Array
    V: Array
    V_inverse: Array
    V_root: Array
    calls_o: int
    theta: Array  # θ_τ
    H_inverse: Array  # of H_τ
    H_root: Array
    calls: int


class JointDPGLM(PrivatePolicy[Estimates]):
    """Private optimism with an exploration set, elimination, and estimates at capped numbers of switches.

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
        S ≥ ‖θ‖.
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
    parameters : {"practical", "theory"}
        λ, γ and β. Practical: λ as above, the threshold 1/(2λ), half-widths 2 at the threshold (γ√κ = √(8λ)), and λW
        for H. Theory: those of the paper's section J.1 with C = 1; they explore for longer than any run lasts.
    failure_probability : float
        ζ of the theory's parameters.
    prior : None
        Not taken: which rounds explore, what they rule out and when θ is estimated anew are read off V and H, in which
        a prior that is wrong could rule the best arm out for good.
    **options
        ``reward_range`` (by default that of the link; it must be finite), ``base_rate``, ``on_violation``,
        ``expire_after``, ``rng``, ``ledger``, ``label``, ``checkpoint``, ``rounds_per_person``: see
        :class:`dpbandits.PrivatePolicy`, also for errors.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> policy = JointDPGLM(dim=2, budget=Budget(4.0, 1e-6), horizon=2000, rng=rng)
    >>> reward = 0.0
    >>> for _ in range(2000):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, float(rng.random() < (0.2, 0.8)[decision.index]))
    ...     reward += (0.2, 0.8)[decision.index]
    >>> reward / 2000 > 0.7
    True
    >>> print(policy.privacy())
    (4, 1e-06)-DP joint, one round under replace, ε left 0 (SIMULATION: the noise came from a seeded generator...)
    """

    trust: ClassVar[Literal["joint"]] = "joint"
    secret = ("sums", "batch_V", "batch_H", "explored", "others")
    notes = 1
    kept_as: ClassVar[Mapping[str, str]] = {"sums": "mechanism"}
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
        parameters: Parameters = "practical",
        failure_probability: float = 0.01,
        prior: None = None,
        **options: Unpack[PrivateOptions],
    ) -> None:
        self.link = get_link(link)
        super().__init__(dim, self.link.reward_range, budget=budget, horizon=horizon, **options)
        low, high = finite_rewards(self.reward_range)
        S = self.theta_bound = positive("theta_bound", theta_bound)
        self.mechanism = choice("sums", sums, "buffered", "tree")
        T = integer("horizon", horizon, at_least=1)
        self.first_batch = first_length(first_batch, 4 * dim, T)
        self.release, self.growth = release, growth
        self.schedule = Schedule.of(release, T, self.first_batch, growth)
        self.stream_share = fraction("stream_share", stream_share)
        centre = float(self.link.mean(0.0))
        default = 1.2 * max(abs(low - centre), abs(high - centre))
        self.clip = default if clip is None else positive("clip", clip)
        self.exploration = nonnegative("exploration", exploration)
        self.ridge = positive("ridge", ridge)
        self.parameters = checked_parameters(parameters)
        self.failure_probability = fraction("failure_probability", failure_probability)
        self.prior = prior
        no_prior(prior, "JointDPGLM", "whose exploration rules arms out for good by what was observed alone")

        # the noise: one multiplier for the streams, one for all calls of either optimizer together
        self._W = self.link.lipschitz(S) / math.e
        steps = max(1, len(self.schedule.ends))
        z = calibrate(lambda z: self._cost(z, steps), budget)
        self._z = z / math.sqrt(1.0 - self.stream_share)
        digits, slack = whole_digits(T, dim * (dim + 1))
        self._unit = 2.0**digits
        kind = BufferedToeplitz if sums == "buffered" else BinaryTree
        self.sums = kind(
            horizon=steps,
            shape=dim * (dim + 1),
            sensitivity=outer_product_sensitivity(1.0, budget.adjacency) + slack,
            noise_multiplier=z / math.sqrt(self.stream_share),
            adjacency=budget.adjacency,
            participations=self.rounds_per_person or 1,
            rng=self.rng,
        )

        # λ, the threshold 1/(γ²κR²), γ√κ, β
        if parameters == "theory":
            self._shift, self._threshold, self.gamma, self.beta = self._theory()
            self._shift_H = self._shift
            default_calls = 2 * (math.ceil(dim * math.log1p(T / (dim * self._shift)) / math.log(11 / 8)),)
        else:
            # E‖N‖ ≤ σ√(2d) for the noise N of V
            self._shift = self.ridge + max(map(self.sums.noise_std, range(1, steps + 1))) * math.sqrt(2 * dim)
            self._shift_H = self._W * self._shift
            self._threshold = 0.5 / self._shift
            self.gamma, self.beta = 2.0 / math.sqrt(self._threshold), self.exploration
            default_calls = 4, math.ceil(2 * math.log2(T + 1))
        most_o = default_calls[0] if exploration_calls is None else exploration_calls
        most = default_calls[1] if policy_calls is None else policy_calls
        self.exploration_calls = integer("exploration_calls", most_o, at_least=1)
        self.policy_calls = integer("policy_calls", most, at_least=1)

        self._objective = matching_loss(self.link, S, clip=self.clip)
        # of the open batch: whole numbers, in units of 2^−digits (H of its largest weight W)
        self.batch_V, self.batch_H = np.zeros((dim, dim)), np.zeros((dim, dim))
        self.explored, self.others = Rows(dim + 1, bound=1.0), Rows(dim + 1, bound=1.0)  # (x, r)
        zero, identity = np.zeros(dim), np.eye(dim)
        shift, shift_H = self._shift, self._shift_H
        self.public = Estimates(
            *(zero, shift * identity, identity / shift, identity / math.sqrt(shift), 0),
            *(zero, identity / shift_H, identity / math.sqrt(shift_H), 0),
        )
        # a gradient of all rounds, with the noise of the call that has the largest share
        largest = (1.0 - _DECAY) / (1.0 - _DECAY ** min(self.policy_calls, self.exploration_calls))
        noise = self._z / math.sqrt(largest) * self.clip * (2.0 if budget.adjacency == "replace" else 1.0)
        warn_of_cold_start(clarity(dim, T, self.link.lipschitz(S), S, noise), dim, T, budget)
        self.open_run(self._cost(z, steps))

    @property
    def theta(self) -> Array:
        """θ as released."""
        return self.public.theta

    def _cost(self, z: float, steps: int) -> Release:
        """Of V and H together, and of all calls of the optimizer that costs most."""
        streams, calls = z / math.sqrt(self.stream_share), z / math.sqrt(1.0 - self.stream_share)
        adjacency = self.budget.adjacency
        m = self.rounds_per_person or 1
        optimizers = group(Gaussian(calls, adjacency=adjacency), m)
        if self.mechanism == "tree":
            tree = TreeAggregation(streams, steps, adjacency=adjacency)
            return (tree if m == 1 else group(tree, m)) + optimizers
        return Gaussian(streams, adjacency=adjacency) + optimizers

    def _theory(self) -> tuple[float, float, float, float]:
        """λ, 1/(γ²κR²), γ√κ and β of section J.1 with C = 1; R bounds rewards and self-concordance together."""
        d, T, S, eps = self.dim, self.horizon or 1, self.theta_bound, self.budget.epsilon
        R = max(1.0, self.link.self_concordance(S), self.reward_range[1] - self.reward_range[0])
        kappa, kappa_star = self.link.kappa(S), self.link.kappa_star(S)
        in_T, in_delta = math.log(T / self.failure_probability), math.log(1.0 / self.budget.delta)
        size, joint = math.sqrt(d * in_T), d**0.25 * (in_T * in_delta) ** 0.5 * (d + in_T) ** 0.25
        ridge = 1.25 * d * in_T
        ridge += 100 * math.sqrt(d) * in_delta * math.log(T + 1) * (math.sqrt(in_T) + math.sqrt(d)) / (eps * kappa_star)
        beta = R * size + R * S * joint / math.sqrt(eps * min(kappa_star, 1.0))
        gamma = R**2 * S * (size + joint / math.sqrt(eps * kappa_star))
        gamma += R**4 * S**4 * d * math.sqrt(kappa) * in_T * math.sqrt(in_delta) / eps
        return ridge, 1.0 / (gamma**2 * kappa * R**2), gamma * math.sqrt(kappa), beta

    # ---------------------------------------------------------------------------------------------- choose

    def score(self, arms: Array) -> Array:
        known = self.public
        unknown = norms(arms, known.V_inverse)
        if self._explores(float(unknown.max())):
            return unknown
        # keep x with UCB_o(x) ≥ max LCB_o, and play argmax xᵀθ_τ + β‖x‖_{H_τ⁻¹} of them
        center, width = arms @ known.theta_o, self.gamma * unknown
        kept = center + width >= (center - width).max()
        return np.where(kept, arms @ known.theta + self.beta * norms(arms, known.H_inverse), -np.inf)

    def _explores(self, unknown: float) -> bool:
        """Criterion I, for the largest ‖x‖_{V⁻¹}."""
        return self.releases == 0 or unknown**2 >= self._threshold

    def note(self, arm: Array, index: int) -> tuple[int, ...]:
        # an arm that was chosen by criterion I is the one of largest norm
        return (int(self._explores(float(norms(arm[None], self.public.V_inverse)[0]))),)

    # ----------------------------------------------------------------------------------------------- learn

    def learn(self, pending: Pending, reward: float) -> None:
        arm, (explores,) = pending.arm, pending.note
        if explores:
            self.explored.append([*arm, reward])
            self.batch_V += np.rint((self._unit * arm)[:, None] * arm)
        else:
            self.others.append([*arm, reward])
            # whatever a caller's link says, a weight lies in [0, W]
            w = min(max(0.0, float(self.link.derivative(float(arm @ self.public.theta_o))) / math.e), self._W)
            self.batch_H += np.rint((self._unit * w / self._W * arm)[:, None] * arm)

    # --------------------------------------------------------------------------------------------- release

    def close_batch(self) -> Estimates:
        """Close the batch: release V and H, and estimate anew where one of them has outgrown its last estimate."""
        half = self.dim * (self.dim + 1) // 2
        batch = np.concatenate([svec(self.batch_V), svec(self.batch_H)]) / self._unit
        self.batch_V, self.batch_H = np.zeros_like(self.batch_V), np.zeros_like(self.batch_H)
        noisy = self.sums.add(batch)
        v, U = self._repaired(noisy[:half], self._shift, self.ridge)
        known = replace(self.public, V=(U * v) @ U.T, V_inverse=(U / v) @ U.T)
        if known.calls_o < self.exploration_calls and _outgrown(known.V, known.V_root):
            # all that is public about the size of the exploration set and about its loss's curvature
            rows = max(1, round(float(v.sum()) - self.dim * self._shift))
            ball = LpBall(2, self.dim, self.theta_bound)
            curvature = self.link.lipschitz(self.theta_bound) * float(v[-1])
            theta_o = self._estimate(
                self.explored, ball, known.theta_o, rows, curvature, known.calls_o, self.exploration_calls
            )
            known = replace(known, V_root=U / np.sqrt(v), theta_o=theta_o, calls_o=known.calls_o + 1)
        h, U = self._repaired(noisy[half:] * self._W, self._shift_H, self._W * self.ridge)
        if known.calls < self.policy_calls and _outgrown((U * h) @ U.T, known.H_root):  # criterion II: τ = t
            both = EllipsoidBall(Ellipsoid(known.V, self.gamma, known.theta_o), self.theta_bound)
            theta = self._estimate(
                self.others, both, known.theta, self.decisions, math.e * float(h[-1]), known.calls, self.policy_calls
            )
            H_inverse, H_root = (U / h) @ U.T, U / np.sqrt(h)
            known = replace(known, theta=theta, H_inverse=H_inverse, H_root=H_root, calls=known.calls + 1)
        return known

    def _repaired(self, noisy: Array, shift: float, least: float) -> tuple[Array, Array]:
        """Eigenvalues, at least ``least``, and eigenvectors of a noisy sum plus shift·I."""
        eigenvalues, U = np.linalg.eigh(smat(noisy))
        return np.maximum(eigenvalues + shift, least), U

    def _estimate(
        self, data: Rows, constraint: ConvexSet, start: Array, count: int, curvature: float, call: int, calls: int
    ) -> Array:
        """One call of an optimizer on the rows of one set, at its share of the optimizers' cost.

        ``count`` is public, and so is ``curvature``, the estimated largest eigenvalue of the loss's Hessian (a sum over
        rows), whose inverse is the length of a step.
        """
        share = _DECAY**call * (1.0 - _DECAY) / (1.0 - _DECAY**calls)
        z = self._z / math.sqrt(share)
        # the optimizer takes a budget: a point of this Gaussian's curve where δ is far from 0 and 1, a hair inside for
        # the rounding
        epsilon = max(1.0 / z, 0.5 / z**2)
        budget = Budget((1.0 - 1e-9) * epsilon, delta_of(Gaussian(z), epsilon), adjacency=self.budget.adjacency)
        sensitivity = self.clip * (2.0 if self.budget.adjacency == "replace" else 1.0)
        noise = z * math.sqrt(_STEPS) * sensitivity / count
        default_step = constraint.diameter() / math.sqrt(_STEPS * (self.clip**2 + self.dim * noise**2))
        rows = data.array
        from dpkit.optimize import noisy_gradient_descent

        fit = noisy_gradient_descent(
            self._objective,
            rows[:, :-1],
            rows[:, -1],
            constraint=constraint,
            budget=budget,
            steps=_STEPS,
            step_scale=count / curvature / default_step,
            iterate="tail",
            public_rows=count,
            start=start if constraint.contains(start) else None,
            rng=self.rng,
        )
        return np.asarray(fit.x)


def _outgrown(matrix: Array, root: Array) -> bool:
    """Whether A ⋠ 2·A_0, for ``root``ᵀA_0 ``root`` = I."""
    return bool(np.linalg.eigvalsh(root.T @ matrix @ root)[-1] > 2.0)

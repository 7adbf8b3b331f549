"""GLB-OMD: a generalized linear bandit with one online mirror descent step per round. Not private.

Each round costs O(d²) (O(d³) in the rounds in which the step leaves the ball), and memory O(d²), whatever the number of
rounds played.

Source: Zhang, Xu, Zhao & Sugiyama, "Generalized Linear Bandits: Almost Optimal Regret with One-Pass Update"
(2025), Algorithm 1; the confidence radius is its Theorem 1, the published parameters those of its Appendix F.1. The
step's Hessian H̃ uses the curvature at the old parameter, once, and the running Hessian H the curvature at the new one.
"""

from __future__ import annotations

import math
from typing import Literal, Unpack

import numpy as np
from numpy.typing import ArrayLike

from accounting.arrays import Array
from accounting.checks import fraction, positive
from dpbandits.policy.choices import Law, inverse_gap
from dpbandits.policy.parameters import PublishedParameters, checked_parameters, not_in_theory
from dpbandits.policy.protocol import Options, Pending, Policy
from dpbandits.reference.confidence import Ellipsoid
from dpkit.models.ellipsoid import RankOneInverse, ball_constrained_minimizer
from dpkit.models.links import Link, get_link
from dpkit.models.prior import Prior, PriorLike, checked_prior

__all__ = ["GLBOMD"]


class GLBOMD(Policy):
    """A generalized linear bandit that reads every reward once: optimism around a one-pass mirror descent estimate.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    link : str or Link
        μ in E[r | x] = μ(xᵀθ).
    theta_bound : float
        S ≥ ‖θ‖.
    parameters : {"practical", "theory", "published"}
        ``"theory"``: η = 1 + RS, λ and β_t of the theorem, under which the ellipsoid holds θ in all rounds with
        probability 1 − ``failure_probability``. ``"published"``: the paper's own experiments, the same with λ = d:
        smaller than the theorem's λ ≥ 14dηR², so that its promise is void. ``"practical"``: η = 1, λ = d/4 and
        β = ``exploration``, which explores far less and comes with no promise either.
    exploration : float or "inverse_gap"
        β of the practical parameters. Or arm a is drawn with probability 1/(K + γ·gap_a), and the best with the rest,
        where gaps are those of μ(xᵀθ_t) and γ = ``gamma_scale``·√t (Foster & Rakhlin 2020).
    gamma_scale : float
        By default that of Vowpal Wabbit.
    failure_probability : float
        δ of the theory's and the published parameters.
    dispersion : float
        g(τ) of the exponential family: 1 for Bernoulli and Poisson rewards, the variance for Gaussian ones.
    prior : (array_like, array_like), optional
        Mean and precision (the inverse of the covariance, or a number times the identity) of a normal prior of θ, in
        place of the default one. Of the practical parameters.
    **options
        ``reward_range``, ``base_rate``, ``on_violation``, ``horizon``, ``expire_after``, ``rng``: see
        :class:`dpbandits.Policy`.

    Examples
    --------
    >>> import numpy as np
    >>> policy = GLBOMD(dim=2)
    >>> for _ in range(100):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, float(decision.index == 1))
    >>> policy.select([[1.0, 0.0], [0.0, 1.0]]).index
    1
    """

    learned = ("theta", "rounds", "V")

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        theta_bound: float = 3.0,
        parameters: PublishedParameters = "practical",
        exploration: float | Literal["inverse_gap"] = 0.5,
        gamma_scale: float = 10.0,
        failure_probability: float = 0.01,
        dispersion: float = 1.0,
        prior: PriorLike | None = None,
        **options: Unpack[Options],
    ) -> None:
        self.link = get_link(link)
        super().__init__(dim, self.link.reward_range, **options)
        S = self.theta_bound = positive("theta_bound", theta_bound)
        self.exploration = exploration if exploration == "inverse_gap" else positive("exploration", exploration)
        self.gamma_scale = positive("gamma_scale", gamma_scale)
        self.failure_probability = fraction("failure_probability", failure_probability)
        self.dispersion = positive("dispersion", dispersion)
        self.parameters = checked_parameters(parameters, published=True)

        R = self.link.self_concordance(S)
        self._C = self.link.lipschitz(S) / self.dispersion  # C_μ/g(τ)
        self.eta = 1.0 if parameters == "practical" else 1.0 + R * S
        if parameters == "theory":
            self.ridge = 2.0 * max(7 * dim * self.eta * R**2, max(3 * self.eta * R * S, 1.0) * self._C)
        else:
            self.ridge = float(dim) if parameters == "published" else 0.25 * dim
        not_in_theory(prior, parameters)
        self.prior = checked_prior(prior, self.dim, S)
        start = Prior.of(self.prior, self.dim, self.ridge, S)
        self.V = RankOneInverse(dim, self.ridge, start=None if self.prior is None else start.precision)
        self.theta = start.mean.copy()
        self.rounds = 0  # rewards taken in

    def width(self) -> float:
        """β_t, the radius of the ellipsoid {θ : ‖θ − θ_t‖_{H_t} ≤ β_t}."""
        if self.parameters == "practical":
            return 0.0 if self.exploration == "inverse_gap" else float(self.exploration)
        # the theorem's proof bounds the error of θ_t by the t − 1 rewards before it; its statement (5) has t
        t = self.rounds + (self.parameters == "published")
        growth = math.log(2.0 + 2.0 * self._C * t / self.ridge)
        squared = 4.0 * self.ridge * self.theta_bound**2 + 2.0 * self.eta * math.log(1.0 / self.failure_probability)
        return math.sqrt(squared + 6.0 * self.dim * self.eta**2 * growth)

    def contains(self, theta: ArrayLike) -> bool:
        """Whether the confidence set holds ``theta``."""
        return Ellipsoid(self.theta, self.V, self.width()).contains(theta)

    by_rows = lasting = True

    def steady(self) -> int:
        return 1 if self.exploration == "inverse_gap" else super().steady()  # which explores less at every decision

    def score(self, arms: Array) -> Array | Law:
        if self.exploration == "inverse_gap":
            return inverse_gap(self.link.mean(arms @ self.theta), self.gamma_scale * math.sqrt(self.decisions))
        # x_t = argmax xᵀθ_t + β_t‖x‖_{H_t⁻¹}
        return Ellipsoid(self.theta, self.V, self.width()).largest(arms)

    def learn(self, pending: Pending, reward: float) -> None:
        arm = pending.arm
        g = self.dispersion
        e = float(arm @ self.theta)
        slope = (float(self.link.mean(e)) - reward) / g  # ∇ℓ_t(θ_t) = slope·x
        curvature = float(self.link.derivative(e)) / g  # ∇²ℓ_t(θ_t) = curvature·x xᵀ
        solved = self.V.inverse @ arm
        # ζ = θ_t − η H̃⁻¹∇ℓ_t(θ_t) with H̃ = H_t + η∇²ℓ_t(θ_t), whose inverse is needed along x only
        shrink = 1.0 + self.eta * curvature * float(arm @ solved)
        zeta = self.theta - (self.eta * slope / shrink) * solved
        if float(zeta @ zeta) > self.theta_bound**2:
            H_step = self.V.matrix + (self.eta * curvature * arm)[:, None] * arm
            zeta = ball_constrained_minimizer(*np.linalg.eigh(H_step), H_step @ zeta, self.theta_bound)
        self.theta = zeta
        # H_{t+1} = H_t + ∇²ℓ_t(θ_{t+1})
        self.V.add(arm, float(self.link.derivative(float(arm @ zeta))) / g, solved)
        self.rounds += 1

"""Thompson sampling for generalized linear rewards, from Laplace's approximation of the posterior. Not private.

The approximation is N(θ_t, v²H_t⁻¹), with θ_t the maximum of the posterior and H_t the Hessian of its negative
logarithm. Every reward refits the whole history by Newton's method from the last estimate, so an update costs O(td²)
and memory is O(td).

Source: Chapelle & Li, "An Empirical Evaluation of Thompson Sampling" (NIPS 2011), Algorithm 3, with the full Hessian in
place of its diagonal. The theory's inflation has the form of Kveton et al., "Randomized Exploration in Generalized
Linear Bandits" (AISTATS 2020, GLM-TSL): v² = k_μ times the squared radius of a confidence ellipsoid
{‖θ − θ_t‖_V ≤ ϱ_t}, V = λI/c_μ + Σ x xᵀ, so that draws reach beyond it in every direction with constant probability.
Its ϱ_t is derived here from Theorem 1 of Abbasi-Yadkori et al. (2011), the maximum being taken over {‖θ‖ ≤ S}.
"""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np

from accounting.arrays import Array
from accounting.checks import positive
from dpbandits.policy.choices import Law, Perturbed
from dpbandits.policy.parameters import Parameters, noise_level
from dpbandits.policy.protocol import Pending
from dpbandits.reference.confidence import ReferenceOptions, ReferencePolicy
from dpkit.models.likelihood import Rows, glm_loss, minimize_in_ball
from dpkit.models.links import Link, get_link

__all__ = ["LaplaceThompson"]


class LaplaceThompson(ReferencePolicy):
    """Thompson sampling for generalized linear rewards, from Laplace's approximation of the posterior.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    link : str or Link
        μ.
    theta_bound : float
        S ≥ ‖θ‖: the maximum is taken over this ball.
    parameters : {"practical", "theory"}
        ``"theory"``: v² = k_μϱ_t² of the module's derivation. ``"practical"``: v = ``radius_scale``; at 1 Laplace's
        approximation itself.
    radius_scale : float
        Of the practical parameters.
    failure_probability : float
        δ of the theory's parameters: how often ϱ_t may fail.
    noise_bound : float, optional
        R: the noise is R-sub-Gaussian. By default half the length of ``reward_range``.
    dispersion : float
        g(τ) of the exponential family: 1 for Bernoulli and Poisson rewards, the variance for Gaussian ones.
    ridge : float
        λ > 0: the prior is N(0, I/λ).
    **options
        ``reward_range``, ``base_rate``, ``on_violation``, ``horizon``, ``expire_after``, ``rng``: see
        :class:`dpbandits.Policy`.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range.

    Examples
    --------
    >>> import numpy as np
    >>> policy = LaplaceThompson(dim=2, rng=np.random.default_rng(0))
    >>> for _ in range(100):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, float(decision.index == 1))
    >>> policy.select([[1.0, 0.0], [0.0, 1.0]]).index
    1
    """

    learned = ("theta", "hessian", "rows")

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        theta_bound: float = 3.0,
        parameters: Parameters = "practical",
        radius_scale: float = 1.0,
        noise_bound: float | None = None,
        dispersion: float = 1.0,
        ridge: float = 1.0,
        **options: Unpack[ReferenceOptions],
    ) -> None:
        self.link = get_link(link)
        super().__init__(dim, self.link.reward_range, theta_bound, parameters, radius_scale, **options)
        S = self.theta_bound
        self.dispersion = positive("dispersion", dispersion)
        self.ridge = positive("ridge", ridge)
        low, high = self.link.derivative_range(S)
        self._c, self._k = low / self.dispersion, high / self.dispersion  # c_μ, k_μ of the loss
        typical = math.sqrt(high * self.dispersion)
        self.noise_bound = noise_level(noise_bound, self.reward_range, parameters, typical=typical)
        self.theta = np.zeros(dim)
        self.hessian = self.ridge * np.eye(dim)
        self.rows = Rows(dim + 1)  # (x, r)

    def width(self) -> float:
        """v: the draw of xᵀθ has the standard deviation v‖x‖_{H_t⁻¹}."""
        if self.parameters == "practical":
            return self.radius_scale
        # ϱ_t = (R/(g c_μ)) √(2 ln(1/δ) + d ln(1 + c_μ t/(dλ))) + √(λ/c_μ) S
        d, c = self.dim, self._c
        deviation = 2.0 * math.log(1.0 / self.failure_probability)
        deviation += d * math.log(1.0 + c * self.rows.count / (d * self.ridge))
        radius = self.noise_bound / (self.dispersion * c) * math.sqrt(deviation)
        return math.sqrt(self._k) * (radius + math.sqrt(self.ridge / c) * self.theta_bound)

    by_rows = lasting = True

    def score(self, arms: Array) -> Law:
        # θ̃ ~ N(θ_t, v²H_t⁻¹): with H = LLᵀ, the root is L⁻ᵀ
        return Perturbed(arms, self.theta, self.width() * np.linalg.inv(np.linalg.cholesky(self.hessian).T))

    def learn(self, pending: Pending, reward: float) -> None:
        arm = pending.arm
        self.rows.append([*arm, reward])
        X, r = self.rows.array[:, :-1], self.rows.array[:, -1]
        loss = glm_loss(self.link, X, r, ridge=self.ridge, dispersion=self.dispersion)
        self.theta, self.hessian = minimize_in_ball(loss, self.theta, radius=self.theta_bound)

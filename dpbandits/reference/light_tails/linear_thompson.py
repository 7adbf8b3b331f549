"""Thompson sampling for linear rewards: play the best arm of a draw from the posterior. Not private.

The posterior of a Gaussian prior and Gaussian noise is N(θ_t, v²V_t⁻¹) with V_t = λI + Σ x xᵀ, θ_t the ridge
regression. A round costs O(d³ + Kd) to select (one Cholesky factor) and O(d²) to update, memory O(d²).

Source: Agrawal & Goyal, "Thompson Sampling for Contextual Bandits with Linear Payoffs" (ICML 2013), Algorithm 1; the
theory's v is that of its revised version (arXiv:1209.3352v4), Theorem 1, with λ = 1.
"""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np

from accounting.arrays import Array
from accounting.checks import fraction, positive
from dpbandits.policy.choices import Law, Perturbed
from dpbandits.policy.parameters import Parameters, checked_parameters, noise_level, not_in_theory
from dpbandits.policy.protocol import Options, Pending, Policy
from dpkit.models.ellipsoid import RankOneInverse
from dpkit.models.prior import Prior, PriorLike, checked_prior

__all__ = ["LinearThompson"]


class LinearThompson(Policy):
    """Thompson sampling for linear rewards, E[r | x] = base_rate + xᵀθ.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    parameters : {"practical", "theory"}
        ``"theory"``: v = R√(9d ln(t/δ)) in round t, for which the theorem bounds the regret with probability
        1 − ``failure_probability``. ``"practical"``: v = R·``radius_scale``; at 1 the exact posterior of Gaussian noise
        with standard deviation R.
    radius_scale : float
        Of the practical parameters.
    failure_probability : float
        δ.
    noise_bound : float, optional
        R: the noise is R-sub-Gaussian. By default half the length of ``reward_range``; where that is infinite, 1 for
        the practical parameters.
    ridge : float
        λ > 0: the prior is N(0, (v²/λ)I).
    prior : (array_like, array_like), optional
        Mean and precision (the inverse of the covariance, or a number times the identity) of a normal prior of θ, in
        place of the default one. Of the practical parameters.
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
    >>> policy = LinearThompson(dim=2, noise_bound=0.5, rng=np.random.default_rng(0))
    >>> for _ in range(200):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, (0.1, 0.9)[decision.index])
    >>> policy.select([[1.0, 0.0], [0.0, 1.0]]).index
    1
    """

    learned = ("b", "theta", "rounds", "V")

    def __init__(
        self,
        dim: int,
        *,
        parameters: Parameters = "practical",
        radius_scale: float = 1.0,
        failure_probability: float = 0.01,
        noise_bound: float | None = None,
        ridge: float = 1.0,
        prior: PriorLike | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(dim, **options)
        self.parameters = checked_parameters(parameters)
        self.radius_scale = positive("radius_scale", radius_scale)
        self.failure_probability = fraction("failure_probability", failure_probability)
        self.noise_bound = noise_level(noise_bound, self.reward_range, parameters, typical=1.0)
        self.ridge = positive("ridge", ridge)
        not_in_theory(prior, parameters)
        self.prior = checked_prior(prior, self.dim, math.inf)
        # V counts rounds: a round has the precision 1/v²
        v2 = (self.radius_scale * self.noise_bound) ** 2
        start = Prior.of(self.prior, self.dim, self.ridge / v2, math.sqrt(v2 / self.ridge))
        self.V = RankOneInverse(dim, self.ridge, start=None if self.prior is None else v2 * start.precision)
        self.b = self.V.matrix @ start.mean
        self.theta = start.mean.copy()
        self.rounds = 0  # rewards taken in

    def width(self) -> float:
        """v: the draw of xᵀθ has the standard deviation v‖x‖_{V_t⁻¹}."""
        if self.parameters == "practical":
            return self.radius_scale * self.noise_bound
        return self.noise_bound * math.sqrt(9.0 * self.dim * math.log((self.rounds + 1) / self.failure_probability))

    by_rows = lasting = True

    def score(self, arms: Array) -> Law:
        # θ̃ ~ N(θ_t, v²V_t⁻¹)
        return Perturbed(arms, self.theta, np.asarray(self.width() * np.linalg.cholesky(self.V.inverse)))

    def learn(self, pending: Pending, reward: float) -> None:
        arm = pending.arm
        self.V.add(arm, 1.0)
        self.b += (reward - self.base_rate) * arm
        self.theta = self.V.inverse.dot(self.b)
        self.rounds += 1

"""OFUL: optimism over the ellipsoid around a ridge regression, for linear rewards with light-tailed noise. Not private.

One round costs O(Kd²) to select and O(d²) to update, memory O(d²).

Source: Abbasi-Yadkori, Pál & Szepesvári, "Improved Algorithms for Linear Stochastic Bandits" (NIPS 2011): the algorithm
of section 3, with the confidence set of Theorem 2 in its determinant form.
"""

from __future__ import annotations

import math
from typing import Literal, Unpack

from accounting.arrays import Array
from accounting.checks import choice, positive
from dpbandits.policy.choices import Law, inverse_gap
from dpbandits.policy.parameters import Parameters, noise_level, not_in_theory
from dpbandits.policy.protocol import Pending
from dpbandits.reference.confidence import ReferenceOptions, ReferencePolicy
from dpkit.models.ellipsoid import RankOneInverse
from dpkit.models.prior import Prior, PriorLike, checked_prior

__all__ = ["OFUL"]


class OFUL(ReferencePolicy):
    """The standard linear bandit: optimism for E[r | x] = base_rate + xᵀθ with R-sub-Gaussian noise.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    theta_bound : float
        S ≥ ‖θ‖.
    parameters : {"practical", "theory"}
        ``"theory"``: the radius β_t of the theorem, under which the ellipsoid holds θ in all rounds with probability
        1 − ``failure_probability``. ``"practical"``: that radius times ``radius_scale``, without the promise.
    radius_scale : float
        Factor on the radius, of the practical parameters. At 1 they are the theory's.
    exploration : {"optimism", "inverse_gap"}
        The largest upper bound; or arm a with probability 1/(K + γ·gap_a), and the best with the rest, where gaps are
        those of xᵀθ_t and γ = ``gamma_scale``·√t (Foster & Rakhlin 2020).
    gamma_scale : float
        By default that of Vowpal Wabbit.
    failure_probability : float
        δ.
    noise_bound : float, optional
        R. By default half the length of ``reward_range``; where that is infinite, 1 for the practical parameters.
    ridge : float
        λ > 0.
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
    >>> policy = OFUL(dim=2)
    >>> for _ in range(200):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, (0.1, 0.9)[decision.index])
    >>> policy.select([[1.0, 0.0], [0.0, 1.0]]).index
    1
    """

    learned = ("b", "theta", "V")

    def __init__(
        self,
        dim: int,
        *,
        theta_bound: float = 1.0,
        parameters: Parameters = "practical",
        radius_scale: float = 1.0,
        exploration: Literal["optimism", "inverse_gap"] = "optimism",
        gamma_scale: float = 10.0,
        noise_bound: float | None = None,
        ridge: float = 1.0,
        prior: PriorLike | None = None,
        **options: Unpack[ReferenceOptions],
    ) -> None:
        super().__init__(dim, (-math.inf, math.inf), theta_bound, parameters, radius_scale, **options)
        self.noise_bound = noise_level(noise_bound, self.reward_range, parameters, typical=1.0)
        self.ridge = positive("ridge", ridge)
        self.exploration = choice("exploration", exploration, "optimism", "inverse_gap")
        self.gamma_scale = positive("gamma_scale", gamma_scale)
        not_in_theory(prior, parameters)
        self.prior = checked_prior(prior, self.dim, self.theta_bound)
        # V counts rounds: a round has the precision 1/R²
        R2 = self.noise_bound**2
        start = Prior.of(self.prior, self.dim, self.ridge / R2, self.theta_bound)
        self.V = RankOneInverse(dim, self.ridge, start=None if self.prior is None else R2 * start.precision)
        self.b = self.V.matrix @ start.mean
        self.theta = start.mean.copy()

    def width(self) -> float:
        """β_t, the radius of the ellipsoid {θ : ‖θ − θ_t‖_{V_t} ≤ β_t}."""
        # β_t = R √(2 ln(1/δ) + ln(det V_t / λᵈ)) + √λ S
        deviation = 2.0 * math.log(1.0 / self.failure_probability) + self.V.log_det
        radius = self.noise_bound * math.sqrt(deviation) + math.sqrt(self.ridge) * self.theta_bound
        return self.scaled(radius)

    by_rows = lasting = True

    def steady(self) -> int:
        return 1 if self.exploration == "inverse_gap" else super().steady()  # which explores less at every decision

    def score(self, arms: Array) -> Array | Law:
        if self.exploration == "inverse_gap":
            return inverse_gap(self.link.mean(arms @ self.theta), self.gamma_scale * math.sqrt(self.decisions))
        return super().score(arms)

    def learn(self, pending: Pending, reward: float) -> None:
        arm = pending.arm
        self.V.add(arm, 1.0)
        self.b += (reward - self.base_rate) * arm
        self.theta = self.V.inverse.dot(self.b)

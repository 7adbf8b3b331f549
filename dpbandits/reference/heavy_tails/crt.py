"""CRT: ridge regression on rewards that are cut to zero above a growing threshold, for heavy tails. Not private.

Rewards need a finite moment of order 1 + ε only, and no horizon is needed. One round costs O(Kd²) to select and O(d²)
to update, memory O(d²), whatever the number of rounds played.

Source: Muñoz Medina & Yang, "No-Regret Algorithms for Heavy-Tailed Linear Bandits" (ICML 2016), the algorithm by
truncation (confidence region with truncation). Its threshold grows like t^{1/(2(1+ε))}, which is where the regret
Õ(T^{(2+ε)/(2(1+ε))}) comes from; the constants are derived here. With E|r|^{1+ε} ≤ u, α_t = (u√t)^{1/(1+ε)}, and r̂
the reward where |r| ≤ α_t and 0 elsewhere,

* the means of r̂_s and r_s differ by at most b_s = uα_s^{−ε}, and ‖Σ x_s b_s‖_{V⁻¹} ≤ √(Σ b_s²) as XV⁻¹Xᵀ ≤ I;
* r̂_s − E r̂_s is α_t-sub-Gaussian for s ≤ t, hence by Theorem 1 of Abbasi-Yadkori et al. (2011) with failure
  probability δ/(t(t+1)), ‖Σ x_s(r̂_s − E r̂_s)‖_{V⁻¹} ≤ α_t √(2 ln(t(t+1)/δ) + ln(det V/λᵈ)).
"""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np

from accounting.checks import fraction, positive
from dpbandits.policy.parameters import Parameters
from dpbandits.policy.protocol import Pending
from dpbandits.reference.confidence import ReferenceOptions, ReferencePolicy
from dpkit.models.ellipsoid import RankOneInverse

__all__ = ["CRT"]


class CRT(ReferencePolicy):
    """A linear bandit for heavy-tailed rewards: ridge regression on truncated rewards, with optimism.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    theta_bound : float
        S ≥ ‖θ‖.
    tail : float
        ε in (0, 1]: the noise η has E|η|^{1+ε} ≤ ν^{1+ε}.
    noise_scale : float
        ν. The moment of the reward itself (less the base rate) is at most u = 2^ε(S^{1+ε} + ν^{1+ε}).
    parameters : {"practical", "theory"}
        ``"theory"``: the radius of the module's derivation, under which the ellipsoid holds θ in all rounds with
        probability 1 − ``failure_probability``. ``"practical"``: that radius times ``radius_scale``.
    radius_scale : float
        Factor on the radius, of the practical parameters.
    failure_probability : float
        δ.
    ridge : float
        λ > 0.
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
    >>> policy = CRT(dim=2)
    >>> for _ in range(400):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, (0.1, 0.9)[decision.index])
    >>> policy.select([[1.0, 0.0], [0.0, 1.0]]).index
    1
    """

    learned = ("b", "theta", "rounds", "bias", "V")

    def __init__(
        self,
        dim: int,
        *,
        theta_bound: float = 1.0,
        tail: float = 1.0,
        noise_scale: float = 1.0,
        parameters: Parameters = "practical",
        radius_scale: float = 0.01,
        ridge: float = 1.0,
        **options: Unpack[ReferenceOptions],
    ) -> None:
        super().__init__(dim, (-math.inf, math.inf), theta_bound, parameters, radius_scale, **options)
        S = self.theta_bound
        eps = self.tail = fraction("tail", tail, include_one=True)
        nu = self.noise_scale = positive("noise_scale", noise_scale)
        self.ridge = positive("ridge", ridge)
        self._u = 2.0**eps * (S ** (1.0 + eps) + nu ** (1.0 + eps))
        self.V = RankOneInverse(dim, self.ridge)
        self.b = np.zeros(dim)
        self.theta = np.zeros(dim)
        self.rounds = 0  # rewards taken in
        self.bias = 0.0  # Σ b_s²

    def threshold(self) -> float:
        """α_t, above which the t-th reward counts as zero."""
        return float((self._u * math.sqrt(self.rounds)) ** (1.0 / (1.0 + self.tail)))

    def width(self) -> float:
        """β_t, the radius of the ellipsoid {θ : ‖θ − θ_t‖_{V_t} ≤ β_t}."""
        # β_t = α_t √(2 ln(t(t+1)/δ) + ln(det V_t/λᵈ)) + √(Σ b_s²) + √λ S
        t = self.rounds
        doubt = 2.0 * math.log(max(t * (t + 1.0), 1.0) / self.failure_probability) + self.V.log_det
        radius = self.threshold() * math.sqrt(doubt) + math.sqrt(self.bias) + math.sqrt(self.ridge) * self.theta_bound
        return self.scaled(radius)

    def learn(self, pending: Pending, reward: float) -> None:
        arm = pending.arm
        self.rounds += 1
        limit = self.threshold()
        excess = reward - self.base_rate
        self.bias += (self._u * limit**-self.tail) ** 2
        self.V.add(arm, 1.0)
        if abs(excess) <= limit:
            self.b += excess * arm
        self.theta = self.V.inverse.dot(self.b)

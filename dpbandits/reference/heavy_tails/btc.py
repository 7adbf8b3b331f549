"""BTC: every arm's mean by a truncated sum of its own, for finitely many arms and heavy tails. Not private.

The estimate of an arm x is Σ β_s y_s with β = xᵀV⁻¹Xᵀ, without the terms of size above ‖β‖_{1+ε}: what is left out
depends on the arm. A round costs O(tKd) to select, and memory is O(td). Regret grows with √d, not d, and with ln K.

Source: Xue, Wang, Wang & Zhang, "Nearly Optimal Regret for Stochastic Linear Bandits with Heavy-Tailed Payoffs" (IJCAI
2020, arXiv:2004.13465), BTC with its sieve (SupBTC). Constants as public code of a later paper states them; they
follow from three lines. For weights β that do not depend on the rewards, E|y_s|^{1+ε} ≤ u and h = ‖β‖_{1+ε},

* leaving out moves the mean by at most Σ|β_s|^{1+ε}u·h^{−ε} = u·h;
* what is left has variance at most u·h², and terms of size h: by Bernstein's inequality it is within
  (√(2uL) + ⅔L)h of its mean with probability 1 − 2e^{−L};
* h ≤ n^{(1−ε)/(2(1+ε))}‖β‖₂ for n terms, ‖β‖₂ ≤ ‖x‖_{V⁻¹}, and the ridge moves xᵀθ by at most √λ S‖x‖_{V⁻¹}.

So w(x) = (α + √λ S)‖x‖_{V⁻¹}, α = (u + √(2uL) + ⅔L)n^{(1−ε)/(2(1+ε))}, holds for all rounds, arms and stages with
probability 1 − δ for L = ln(2KT·stages/δ). The sieve makes β independent of the rewards (:mod:`.stages`).
"""

from __future__ import annotations

import math
from typing import NoReturn, Unpack

import numpy as np

from accounting.arrays import Array
from accounting.checks import fraction, integer, positive
from dpbandits.policy.choices import Law
from dpbandits.policy.parameters import Parameters
from dpbandits.policy.protocol import Pending
from dpbandits.reference.confidence import ReferencePolicy, TimedOptions
from dpbandits.reference.heavy_tails.stages import EXPLOITS, sieved, stages
from dpkit.models.ellipsoid import norms
from dpkit.models.likelihood import Rows

__all__ = ["BTC"]


class BTC(ReferencePolicy):
    """A linear bandit for heavy-tailed rewards: rewards truncated arm by arm, with optimism.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    horizon : int
        T, which the constants need.
    theta_bound : float
        S ≥ ‖θ‖.
    tail : float
        ε in (0, 1]: the noise η has E|η|^{1+ε} ≤ ν^{1+ε}.
    noise_scale : float
        ν. The moment of the reward itself (less the base rate) is at most u = 2^ε(S^{1+ε} + ν^{1+ε}).
    parameters : {"practical", "theory"}
        ``"theory"``: the sieve and the widths of the module, all of which hold with probability 1 −
        ``failure_probability``. ``"practical"``: no sieve, every reward is used, and the widths are ``radius_scale``
        times as large.
    radius_scale : float
        Factor on the widths, of the practical parameters.
    failure_probability : float
        δ.
    ridge : float
        λ > 0.
    **options
        ``reward_range``, ``base_rate``, ``on_violation``, ``expire_after``, ``rng``: see
        :class:`dpbandits.Policy`.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range.

    Examples
    --------
    >>> import numpy as np
    >>> policy = BTC(dim=2, horizon=1000)
    >>> for _ in range(200):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, (0.1, 0.9)[decision.index])
    >>> policy.select([[1.0, 0.0], [0.0, 1.0]]).index
    1
    """

    learned = ("rows",)
    notes = 1  # the stage

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        theta_bound: float = 1.0,
        tail: float = 1.0,
        noise_scale: float = 1.0,
        parameters: Parameters = "practical",
        radius_scale: float = 0.1,
        ridge: float = 1.0,
        **options: Unpack[TimedOptions],
    ) -> None:
        super().__init__(dim, (-math.inf, math.inf), theta_bound, parameters, radius_scale, horizon=horizon, **options)
        self._T = integer("horizon", horizon, at_least=1)
        S = self.theta_bound
        eps = self.tail = fraction("tail", tail, include_one=True)
        nu = self.noise_scale = positive("noise_scale", noise_scale)
        self.ridge = positive("ridge", ridge)
        self._moment = 2.0**eps * (S ** (1.0 + eps) + nu ** (1.0 + eps))  # u
        self.rows = Rows(dim + 2)  # (x, r, stage)
        self._screened: tuple[Array, int] = (np.empty(0), EXPLOITS)

    def estimates(self, arms: Array, stage: int) -> tuple[Array, Array]:
        """The estimates of all arms by the rewards of a stage, and their widths, each of shape (K,)."""
        rows = self.rows.array[self.rows.array[:, -1] == stage]
        X, y, order = rows[:, :-2], rows[:, -2], 1.0 + self.tail
        inverse = np.linalg.inv(X.T @ X + self.ridge * np.eye(self.dim))
        weights = (arms @ inverse) @ X.T  # β of every arm, of shape (K, n)
        sizes = np.abs(weights)
        limits = (sizes**order).sum(axis=1) ** (1.0 / order)
        terms = weights * y
        means = np.where(np.abs(terms) <= limits[:, None], terms, 0.0).sum(axis=1)
        doubt = math.log(2.0 * len(arms) * self._T * stages(self._T) / self.failure_probability)  # L
        u, power = self._moment, (1.0 - self.tail) / (2.0 * order)
        alpha = (u + math.sqrt(2.0 * u * doubt) + 2.0 / 3.0 * doubt) * max(len(y), 1) ** power
        return means, self.scaled(alpha + math.sqrt(self.ridge) * self.theta_bound) * norms(arms, inverse)

    def prepare(self, arms: Array) -> None:
        if self.parameters == "theory":
            self._screened = sieved(lambda stage: self.estimates(arms, stage), len(arms), self._T)
        else:
            means, widths = self.estimates(arms, 1)
            self._screened = means + widths, 1

    def score(self, arms: Array) -> Array | Law:
        return self._screened[0]

    def believed(self) -> NoReturn:
        """There is no confidence set of θ: the bounds are for arms."""
        raise NotImplementedError(f"{type(self).__name__} has no confidence set of θ: see ``estimates``")

    def note(self, arm: Array, index: int) -> tuple[int, ...]:
        return (self._screened[1],)

    def learn(self, pending: Pending, reward: float) -> None:
        (stage,) = pending.note
        if stage != EXPLOITS:
            self.rows.append([*pending.arm, reward - self.base_rate, float(stage)])

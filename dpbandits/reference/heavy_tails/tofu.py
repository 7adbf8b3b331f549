"""TOFU: a ridge regression each coordinate of which leaves out its largest terms, for heavy tails. Not private.

Rewards need a finite moment of order 1 + ε only. What is left out depends on the round, so every reward goes over the
whole history: an update costs O(td² + d³), and memory is O(td).

Source: Shao, Yu, King & Lyu, "Almost Optimal Algorithms for Linear Stochastic Bandits with Heavy-Tailed Payoffs"
(NeurIPS 2018, arXiv:1810.10895), Algorithm 2, with its constants. Its proof reads V_t^{−1/2}Xᵀ as if it did not
depend on the rewards; of arms that are chosen by the rewards the promise is the paper's, and is not proved again
here. Public code has (b/ln(2T/δ))^{1/ε} in b_t, which has not the dimension of a reward; here the exponent is
1/(1+ε).
"""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np

from accounting.checks import fraction, integer, positive
from dpbandits.policy.parameters import Parameters
from dpbandits.policy.protocol import Pending
from dpbandits.reference.confidence import ReferencePolicy, TimedOptions
from dpkit.models.ellipsoid import RankOneInverse
from dpkit.models.likelihood import Rows

__all__ = ["TOFU"]


class TOFU(ReferencePolicy):
    """A linear bandit for heavy-tailed rewards: truncated ridge regression, with optimism.

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
        ν. The moment of the reward itself (less the base rate) is at most b = 2^ε(S^{1+ε} + ν^{1+ε}).
    parameters : {"practical", "theory"}
        ``"theory"``: the radius of the paper, whose theorem is that the ellipsoid holds θ in all rounds with
        probability 1 − ``failure_probability`` (but see the module). ``"practical"``: that radius times
        ``radius_scale``.
    radius_scale : float
        Factor on the radius, of the practical parameters.
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
    >>> policy = TOFU(dim=2, horizon=1000)
    >>> for _ in range(200):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, (0.1, 0.9)[decision.index])
    >>> policy.select([[1.0, 0.0], [0.0, 1.0]]).index
    1
    """

    learned = ("theta", "V", "rows")

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        theta_bound: float = 1.0,
        tail: float = 1.0,
        noise_scale: float = 1.0,
        parameters: Parameters = "practical",
        radius_scale: float = 0.02,
        ridge: float = 1.0,
        **options: Unpack[TimedOptions],
    ) -> None:
        super().__init__(dim, (-math.inf, math.inf), theta_bound, parameters, radius_scale, horizon=horizon, **options)
        T = integer("horizon", horizon, at_least=1)
        S = self.theta_bound
        eps = self.tail = fraction("tail", tail, include_one=True)
        nu = self.noise_scale = positive("noise_scale", noise_scale)
        self.ridge = positive("ridge", ridge)
        b = 2.0**eps * (S ** (1.0 + eps) + nu ** (1.0 + eps))
        self._power = (1.0 - eps) / (2.0 * (1.0 + eps))
        # b_t = cut · t^{(1−ε)/(2(1+ε))}, β_t = noise · t^{(1−ε)/(2(1+ε))} + √λ S
        self._cut = (b / math.log(2.0 * T / self.failure_probability)) ** (1.0 / (1.0 + eps))
        surprise = math.log(2.0 * dim * T / self.failure_probability) ** (eps / (1.0 + eps))
        self._noise = 4.0 * math.sqrt(dim) * b ** (1.0 / (1.0 + eps)) * surprise
        self.V = RankOneInverse(dim, self.ridge)
        self.theta = np.zeros(dim)
        self.rows = Rows(dim + 1)  # (x, r)

    def width(self) -> float:
        """β_t, the radius of the ellipsoid {θ : ‖θ − θ_t‖_{V_t} ≤ β_t}."""
        radius = self._noise * self.rows.count**self._power + math.sqrt(self.ridge) * self.theta_bound
        return self.scaled(radius)

    def learn(self, pending: Pending, reward: float) -> None:
        arm = pending.arm
        self.V.add(arm, 1.0)
        self.rows.append([*arm, reward - self.base_rate])
        X, y = self.rows.array[:, :-1], self.rows.array[:, -1]
        # u_i, row i of V_t^{−1/2}Xᵀ; no eigenvalue of V_t is below λ
        eigenvalues, U = np.linalg.eigh(self.V.matrix)
        root = (U / np.sqrt(np.maximum(eigenvalues, self.ridge))) @ U.T
        terms = (X @ root) * y[:, None]  # u_{i,s} y_s, of shape (t, d)
        # θ_t = V_t^{−1/2} (u_1ᵀY_1, …, u_dᵀY_d), where Y_i leaves out what has |u_{i,s} y_s| > b_t
        limit = self._cut * len(y) ** self._power
        self.theta = root @ np.where(np.abs(terms) <= limit, terms, 0.0).sum(axis=0)

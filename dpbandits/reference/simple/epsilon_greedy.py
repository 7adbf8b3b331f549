"""ε-greedy on a one-pass weighted least-squares fit of a generalized linear model. Not private.

With probability ``exploration`` any arm, else the arm of the largest xᵀθ. The fit linearises the model at the current
estimate: with e = xᵀθ, w = μ̇(e) (floored) and g = w·e + r − μ(e), H = λI + Σ w x xᵀ and θ = H⁻¹Σ g x. One round
costs O(d² + Kd) and memory O(d²).

Source: the greedy rule with random exploration as in Sutton & Barto (2018), section 2.2; the fit is one
step of iteratively reweighted least squares per observation (McCullagh & Nelder 1989, section 2.5).
"""

from __future__ import annotations

from typing import Unpack

import numpy as np

from accounting.arrays import Array
from accounting.checks import fraction, positive
from dpbandits.policy.choices import Law, Shares
from dpbandits.policy.many import Gaps, Laws, Rounds
from dpbandits.policy.protocol import Options, Pending, Policy
from dpkit.models.ellipsoid import RankOneInverse
from dpkit.models.links import Link, get_link

__all__ = ["EpsilonGreedy"]


class EpsilonGreedy(Policy):
    """Greedy on a running fit, with uniform exploration at a fixed rate.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    link : str or Link
        μ in E[r | x] = μ(xᵀθ).
    theta_bound : float
        S ≥ ‖θ‖: the linear predictor is clipped to [−S, S] where the model is linearised.
    exploration : float
        Probability of a uniformly random arm, in [0, 1].
    ridge : float
        λ > 0.
    **options
        ``reward_range``, ``base_rate``, ``on_violation``, ``horizon``, ``expire_after``, ``rng``: see
        :class:`dpbandits.Policy`.

    Examples
    --------
    >>> import numpy as np
    >>> policy = EpsilonGreedy(dim=2, exploration=0.0, rng=np.random.default_rng(0))
    >>> for _ in range(50):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, float(decision.index == 1))
    >>> policy.select([[1.0, 0.0], [0.0, 1.0]]).index
    1
    """

    learned = ("b", "theta", "H")

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        theta_bound: float = 3.0,
        exploration: float = 0.05,
        ridge: float = 1.0,
        **options: Unpack[Options],
    ) -> None:
        self.link = get_link(link)
        super().__init__(dim, self.link.reward_range, **options)
        self.theta_bound = positive("theta_bound", theta_bound)
        self.exploration = fraction("exploration", exploration, include_zero=True, include_one=True)
        self.ridge = positive("ridge", ridge)
        self.weight_floor = 0.2 * self.link.lipschitz(theta_bound)
        self.H = RankOneInverse(dim, ridge)
        self.b = np.zeros(dim)
        self.theta = np.zeros(dim)

    def score(self, arms: Array) -> Law:
        shares = np.full(len(arms), self.exploration / len(arms))
        shares[(arms @ self.theta).argmax()] += 1.0 - self.exploration
        return Shares(shares)

    lasting = True

    def score_many(self, rounds: Rounds) -> Laws:
        if not isinstance(rounds, np.ndarray):
            return super().score_many(rounds)
        n, K = rounds.shape[:2]
        shares = np.full((n, K), self.exploration / K)
        shares[np.arange(n), (rounds @ self.theta).argmax(axis=1)] += 1.0 - self.exploration
        return Gaps(shares)

    def learn(self, pending: Pending, reward: float) -> None:
        arm = pending.arm
        e = min(max(float(arm @ self.theta), -self.theta_bound), self.theta_bound)
        w = max(float(self.link.derivative(e)), self.weight_floor)
        self.H.add(arm, w)
        self.b += (w * e + reward - float(self.link.mean(e))) * arm
        self.theta = self.H.inverse @ self.b

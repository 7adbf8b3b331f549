"""KL-UCB for K named arms without features: optimism by the divergence of Bernoulli laws. Not private.

Source: Garivier & Cappé, "The KL-UCB Algorithm for Bounded Stochastic Bandits and Beyond" (COLT 2011), Algorithm 1.
Every arm is played once; then, after t rounds, the arm with the largest

    max {q in [0, 1] : N_k·d(S_k/N_k, q) ≤ ln t + c·ln ln t},

N_k and S_k the number and the sum of its rewards, in units of their range, d the divergence of Bernoulli laws
(:mod:`dpkit.models.bernoulli`). Theorem 1: for c = 3 the regret is asymptotically the least there is for rewards of 0
and 1, Σ_k Δ_k·ln T/d(μ_k, μ*), and the bound holds for every law in [0, 1].

``parameters="theory"`` has the theorem's c = 3; ``"practical"`` has c = 0, as the paper recommends (section 7) and all
its figures have.

Late rewards: N_k counts those that came. A round costs O(K) to select and O(1) to update, memory O(K).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np

from accounting.arrays import Array
from dpbandits.policy.catalogue import Catalogue
from dpbandits.policy.checks import finite_rewards
from dpbandits.policy.choices import Law, Ties
from dpbandits.policy.offers import NOTHING
from dpbandits.policy.parameters import Parameters, checked_parameters
from dpbandits.policy.protocol import Options, Pending, Policy
from dpkit.models.bernoulli import upper_mean

__all__ = ["KLUCB"]


class KLUCB(Policy):
    """A bandit of named arms with rewards in a bounded range: optimism in Kullback-Leibler distance.

    Parameters
    ----------
    arms : int or list of str
        The names of the arms at the start; a number K stands for "0", …, str(K − 1).
    parameters : {"practical", "theory"}
        See the module.
    **options
        ``reward_range`` (finite; [0, 1] by default), ``on_violation``, ``horizon``, ``expire_after``, ``rng``: see
        :class:`dpbandits.Policy`. ``base_rate`` is not used.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> policy = KLUCB(["plain", "witty"], rng=rng)
    >>> for _ in range(500):
    ...     decision = policy.select()
    ...     policy.update(decision, float(rng.random() < {"plain": 0.1, "witty": 0.3}[decision.name]))
    >>> policy.plays.sum().item(), policy.plays[1].item() > 400, policy.means().round(1).tolist()
    (500, True, [0.1, 0.3])
    """

    offer = NOTHING
    catalogue: Catalogue
    passed_on = ("dim",)
    learned = ("plays", "total")

    def __init__(
        self, arms: int | Sequence[str], *, parameters: Parameters = "practical", **options: Unpack[Options]
    ) -> None:
        super().__init__(1, (0.0, 1.0), **options)
        self.catalogue = Catalogue(arms)
        self.arms = list(self.catalogue.names)
        self.parameters = checked_parameters(parameters)
        finite_rewards(self.reward_range, "for KLUCB")
        self._iterated = 3.0 if self.parameters == "theory" else 0.0  # c
        self.plays = np.zeros(len(self.arms), dtype=np.int64)  # N
        self.total = np.zeros(len(self.arms))  # S

    def grow(self) -> None:
        self.plays, self.total = np.append(self.plays, 0), np.append(self.total, 0.0)

    def means(self) -> Array:
        """The mean reward of each arm, shape (K,); the lower end of the range where there was none."""
        low, high = self.reward_range
        return low + (high - low) * self.total / np.maximum(self.plays, 1)

    def score(self, nothing: Array) -> Law:
        known, t = self.plays > 0, float(max(self.decisions, 1))
        bound = math.log(t) + self._iterated * max(0.0, math.log(max(1.0, math.log(t))))
        n = np.maximum(self.plays, 1)
        index = np.where(known, upper_mean(np.clip(self.total / n, 0.0, 1.0), bound / n), 2.0)
        # arms of which the same is known are equally good
        return Ties(self.catalogue.offered(index))

    def learn(self, pending: Pending, reward: float) -> None:
        low, high = self.reward_range
        self.plays[pending.index] += 1
        self.total[pending.index] += (reward - low) / (high - low)

    def resume(self, saved: Any) -> None:
        super().resume(saved)
        if (self.plays < 0).any():
            raise ValueError("plays must be at least 0, got others")

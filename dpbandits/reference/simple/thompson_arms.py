"""Thompson sampling for K named arms without features: a beta posterior of each arm's mean. Not private.

Source: Agrawal & Goyal, "Analysis of Thompson Sampling for the Multi-armed Bandit Problem" (COLT 2012), Algorithm 1 for
rewards of 0 and 1 and Algorithm 2 for rewards in [0, 1]; the rule is that of Thompson (1933). Every round draws
θ_k ~ Beta(1 + S_k, 1 + N_k − S_k) for each arm and plays the largest. For rewards of 0 and 1 the regret is
asymptotically the least there is (Kaufmann, Korda & Munos, ALT 2012).

S_k counts successes. A reward x strictly between 0 and 1, in units of the range, is one with probability x under
``parameters="theory"``: Algorithm 2's coin, for which the theorem holds with any law in [0, 1]. With ``"practical"`` it
is x of a success, which has the same mean and no coin's noise.

Late rewards: N_k counts those that came. A round costs O(K) to select and O(1) to update, memory O(K).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np

from accounting.arrays import Array
from dpbandits.policy.catalogue import Catalogue
from dpbandits.policy.checks import finite_rewards
from dpbandits.policy.choices import Betas, Law
from dpbandits.policy.offers import NOTHING
from dpbandits.policy.parameters import Parameters, checked_parameters
from dpbandits.policy.protocol import Options, Pending, Policy

__all__ = ["ThompsonArms"]


class ThompsonArms(Policy):
    """Thompson sampling of named arms with rewards in a bounded range.

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
    >>> policy = ThompsonArms(["plain", "witty"], rng=rng)
    >>> for _ in range(500):
    ...     decision = policy.select()
    ...     policy.update(decision, float(rng.random() < {"plain": 0.1, "witty": 0.3}[decision.name]))
    >>> policy.successes.sum().item() > 120, decision.name
    (True, 'witty')
    """

    offer = NOTHING
    catalogue: Catalogue
    passed_on = ("dim",)
    learned = ("successes", "failures")

    def __init__(
        self, arms: int | Sequence[str], *, parameters: Parameters = "practical", **options: Unpack[Options]
    ) -> None:
        super().__init__(1, (0.0, 1.0), **options)
        self.catalogue = Catalogue(arms)
        self.arms = list(self.catalogue.names)
        self.parameters = checked_parameters(parameters)
        finite_rewards(self.reward_range, "for ThompsonArms")
        self.successes, self.failures = np.zeros((2, len(self.arms)))

    def grow(self) -> None:
        self.successes, self.failures = np.append(self.successes, 0.0), np.append(self.failures, 0.0)

    def score(self, nothing: Array) -> Law:
        return Betas(1.0 + self.successes, 1.0 + self.failures, self.catalogue.active)

    def learn(self, pending: Pending, reward: float) -> None:
        low, high = self.reward_range
        x = (reward - low) / (high - low)
        if self.parameters == "theory" and 0.0 < x < 1.0:
            x = float(self.rng.random() < x)
        self.successes[pending.index] += x
        self.failures[pending.index] += 1.0 - x

    def resume(self, saved: Any) -> None:
        super().resume(saved)
        if (self.successes < 0.0).any() or (self.failures < 0.0).any():
            raise ValueError("successes and failures must be at least 0, got others")

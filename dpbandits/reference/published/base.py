"""What the algorithms as published have in common: a warning, and nothing that looks like a guarantee."""

from __future__ import annotations

import math
import warnings
from typing import Any, ClassVar, Literal, NoReturn, Unpack

import numpy as np

from accounting import Budget
from accounting.checks import fraction, integer, positive
from accounting.errors import NotPrivateWarning
from dpbandits.policy.checks import checked_budget, finite_rewards
from dpbandits.policy.options import PrivateOptions
from dpbandits.policy.protocol import Policy

__all__ = ["PublishedPolicy"]

# what a private policy takes to record its cost and to keep its promise
_OF_PRIVATE = ("ledger", "label", "checkpoint", "rounds_per_person")


class PublishedPolicy(Policy):
    """Base of the algorithms as published: (ε, δ) is what their papers claim, and sets the noise; nothing is promised.

    Parameters
    ----------
    dim, rewards See :class:`dpbandits.Policy`. budget : Budget The claimed (ε, δ). horizon : int T. theta_bound : float
        S. failure_probability : float The paper's ζ or α. **options Those of :class:`dpbandits.Policy`; ``rng`` is by
        default a fresh generator of numpy. What a private policy keeps its promise by (``ledger``, ``label``,
        ``checkpoint``, ``rounds_per_person``) is refused.

    Warns
    -----
    NotPrivateWarning
        Always.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range.
    """

    parameters: ClassVar[Literal["published"]] = "published"

    def __init__(
        self,
        dim: int,
        rewards: tuple[float, float],
        *,
        budget: Budget,
        horizon: int,
        theta_bound: float,
        failure_probability: float = 0.01,
        **options: Unpack[PrivateOptions],
    ) -> None:
        told: dict[str, Any] = dict(options)
        for name in _OF_PRIVATE:
            if told.pop(name, None) is not None:
                raise ValueError(
                    f"{name} must not be given with parameters='published', which protects nobody, got one: take "
                    "parameters='practical' or 'theory'"
                )
        if told.get("rng") is None:  # the secure source has not all laws that the papers draw from, nor is it needed
            told["rng"] = np.random.default_rng()
        super().__init__(dim, rewards, horizon=integer("horizon", horizon, at_least=1), **told)
        self.budget = checked_budget(budget)
        self.theta_bound = positive("theta_bound", theta_bound)
        self.failure_probability = fraction("failure_probability", failure_probability)
        warnings.warn(
            f"{type(self).__name__} is an algorithm as published, not private as claimed: nothing that it is told is "
            "protected",
            NotPrivateWarning,
            stacklevel=4,
        )

    @property
    def privacy(self) -> NoReturn:
        """There is none: what the paper claims is not known to hold."""
        raise AttributeError(f"{type(self).__name__} has no privacy: it is an algorithm as published, not private")

    def promise(self) -> str:
        return "not private: as published"

    def reward_bound(self) -> float:
        """R ≥ 1 with rewards in [−R, R]; the papers have them in [0, R]."""
        low, high = finite_rewards(self.reward_range)
        return max(1.0, abs(low), abs(high))

    def log_horizon(self) -> float:
        """ln T, at least ln 2."""
        return math.log(max(2, self.horizon or 0))

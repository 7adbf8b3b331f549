"""K named arms without features, the world of an A/B/n test: a reward's law depends on nothing but the arm.

==========  ===========================================================================
rewards     of an arm with mean μ
==========  ===========================================================================
bernoulli   1 with probability μ, else 0
uniform     uniform between 0 and 2μ
pareto      at least x = μ(a − 1)/a, and above y with probability (x/y)^a for y ≥ x
==========  ===========================================================================

Every policy can play it. One that is told names only plays arm k of its list for arm k here. One that scores rows is
given one-hot vectors. One that takes a context is given the constant (1) in every round.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from accounting.arrays import Array
from accounting.checks import choice, integer, positive
from dpbandits.lab.environments.arms import INSIDE, coins
from dpbandits.lab.environments.base import Named, Round
from dpbandits.lab.tables import finite_range
from dpbandits.policy.checks import real_array

__all__ = ["Arms"]

# rounds that are drawn at once
_BLOCK = 4096


class Arms(Named):
    """A bandit of K arms whose means are given, or drawn.

    Parameters
    ----------
    means : int or sequence of float
        Not negative, and for Bernoulli rewards at most 1. Every seed has them in another order. A number K draws K
        means for every seed, evenly between 0 and 1.
    rewards : {"bernoulli", "uniform", "pareto"}
        See the module. The arms of a round share their luck.
    reward_range : (float, float)
        What policies are told; those without bounds on rewards clip to it. It may be far wider than rewards are.
    tail_index : float
        a > 1, of ``pareto``: moments below it are finite.

    Attributes
    ----------
    n_arms, context_dim : int
        K, and 1.
    theta_bound : float
        3: what policies assume who know nothing. A one-hot model of rare rewards has a longer parameter.
    support : (float, float)
        Where rewards are, for a reference that pays nothing for learning it; ``reward_range`` where there is no bound.
    noise_scale : float
        The largest standard deviation of a reward, at most half the length of the range.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range.

    Examples
    --------
    Four headlines that one visitor in ten likes, and a better one:

    >>> import numpy as np
    >>> world = Arms([0.1, 0.1, 0.1, 0.1, 0.15])
    >>> first = next(world.episode(np.random.default_rng(0)))
    >>> first.means.tolist(), first.arms.shape, first.context.tolist()
    ([0.1, 0.15, 0.1, 0.1, 0.1], (5, 5), [1.0])
    """

    context_dim = 1

    def __init__(
        self,
        means: int | Sequence[float],
        *,
        rewards: Literal["bernoulli", "uniform", "pareto"] = "bernoulli",
        reward_range: tuple[float, float] = (0.0, 1.0),
        tail_index: float = 2.1,
    ) -> None:
        self.means: Array | None = None
        if isinstance(means, Sequence):
            self.means = real_array("means", means)
            if self.means.ndim != 1 or not len(self.means) or not (self.means >= 0.0).all():  # also for NaN
                raise ValueError(f"means must be numbers that are not negative, at least one, got means={means!r}")
        self.n_arms = K = integer("means", means, at_least=1) if self.means is None else len(self.means)
        self.rewards = choice("rewards", rewards, "bernoulli", "uniform", "pareto")
        largest = 1.0 if self.means is None else float(self.means.max())
        if rewards == "bernoulli" and not largest <= 1.0:
            raise ValueError(f"means must be at most 1 for rewards='bernoulli', got {largest:g}")
        self.tail_index = positive("tail_index", tail_index)
        if self.tail_index <= 1.0:
            raise ValueError(f"tail_index must be above 1, so that there is a mean, got tail_index={tail_index!r}")
        low, high = finite_range("reward_range", reward_range)
        self.support = {"bernoulli": (0.0, 1.0), "uniform": (0.0, 2.0 * largest)}.get(rewards, (low, high))
        self.noise_scale = min(self._deviation(largest), 0.5 * (high - low))
        told = f"{min(self.means):g} to {largest:g}" if self.means is not None else "0 to 1, drawn"
        name = f"{K} arms, {rewards} rewards of mean {told}"
        super().__init__(name, K, "logistic" if (low, high) == (0.0, 1.0) else "linear", 3.0, (low, high))

    def episode(self, rng: np.random.Generator) -> Iterator[Round]:
        """Rounds without end."""
        K = self.n_arms
        means = rng.random(K) if self.means is None else rng.permutation(self.means)
        arms, context = INSIDE * np.eye(K), np.ones(1)
        for shared in (means, arms, context):
            shared.setflags(write=False)
        while True:
            for rewards in self._drawn(rng, means):
                yield Round(arms, rewards, means, context)

    def _drawn(self, rng: np.random.Generator, means: Array) -> Array:
        """Of so many rounds, shape (rounds, K)."""
        if self.rewards == "bernoulli":
            return coins(rng, np.broadcast_to(means, (_BLOCK, len(means))))
        luck = 1.0 - rng.random((_BLOCK, 1))
        if self.rewards == "uniform":
            return 2.0 * means * luck
        return means * (1.0 - 1.0 / self.tail_index) * luck ** (-1.0 / self.tail_index)

    def _deviation(self, largest: float) -> float:
        """The largest standard deviation that an arm may have."""
        if self.rewards == "bernoulli":
            middle = 0.5 if self.means is None else float(self.means[np.abs(self.means - 0.5).argmin()])
            return math.sqrt(middle * (1.0 - middle))
        if self.rewards == "uniform":
            return largest / math.sqrt(3.0)
        a = self.tail_index
        return largest / math.sqrt(a * (a - 2.0)) if a > 2.0 else math.inf

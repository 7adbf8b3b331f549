"""Pages of k articles with clicks by position: two click models, with articles drawn afresh in every round or fixed.

An article with features x is attractive with probability μ(xᵀθ* + offset), to everyone for themselves. In the cascade
model people look from the top until the first article that attracts them, and click on it (Craswell et al. 2008); in
the position-based model they look at position j with probability q_j, and click on what is looked at and attractive
(Richardson et al. 2007).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from accounting.arrays import Array
from accounting.checks import integer
from dpbandits.lab.environments.arms import ArmLaw, arm_blocks, is_fixed, random_parameter
from dpbandits.lab.environments.base import Round
from dpbandits.lab.environments.glm import GLM
from dpbandits.policy.decision import Decision
from dpbandits.policy.slates import Examination, SlateDecision, checked_examination
from dpkit.models.links import get_link

__all__ = ["SlateRound", "Slates", "outcome"]


@dataclass(slots=True, eq=False, repr=False)
class SlateRound(Round):
    """One round: ``rewards`` says of every article whether it attracts this visitor, ``means`` how probable that is.

    Attributes
    ----------
    looked : ndarray of bool, of shape (k,)
        At which positions the visitor looks, in the position-based model; else all.
    examination : "cascade" or tuple of float

    Examples
    --------
    >>> import numpy as np
    >>> from dpbandits.lab.environments import SlateRound
    >>> now = SlateRound(np.eye(3), np.array([0.0, 1.0, 0.0]), np.full(3, 0.5))
    >>> now.clicks([0, 1, 2])  # a cascade ends with its first click
    [0.0, 1.0]
    """

    looked: Array | None = None
    examination: Literal["cascade"] | tuple[float, ...] = "cascade"

    def clicks(self, indices: Sequence[int]) -> list[float]:
        """What a policy is told of a slate: of a cascade up to the first click, else of every position."""
        attracted = self.rewards[list(indices)]
        if self.examination == "cascade":
            first = int(attracted.argmax()) + 1 if attracted.any() else len(attracted)
            return list(map(float, attracted[:first]))
        looked = np.ones(len(attracted)) if self.looked is None else self.looked[: len(attracted)]
        return list(map(float, attracted * looked))

    def value(self, indices: Sequence[int]) -> float:
        """The expected number of clicks on a slate: in a cascade how probable a click is."""
        means = np.asarray(self.means)[list(indices)]
        if self.examination == "cascade":
            return float(1.0 - np.prod(1.0 - means))
        return float(means @ np.array(self.examination[: len(means)]))

    def best(self, k: int) -> float:
        """The value of the best slate of k articles."""
        means = np.sort(np.asarray(self.means))[::-1][:k]
        if self.examination == "cascade":
            return float(1.0 - np.prod(1.0 - means))
        return float(means @ np.sort(self.examination[:k])[::-1][: len(means)])


class Slates(GLM):
    """Pages of k out of K articles, with a fresh θ* for every seed.

    Parameters
    ----------
    dim : int
        Dimension d of an article.
    arms : int
        K, the number of articles in a round.
    k : int
        The number of positions.
    examination : "cascade" or sequence of float
        The click model: q_j, with q_1 = 1, makes it the position-based one.
    theta_norm : float
        S = ‖θ*‖; the direction of θ* is uniform.
    arm_law : str
        See :mod:`dpbandits.lab.environments.arms`: ``"ball"`` draws articles afresh, ``"fixed"`` keeps them.
    offset : float
        Added to xᵀθ*; finite.

    Attributes
    ----------
    k, examination
        As a policy is told them.
    base_rate : float
        μ(offset).
    n_arms : int
        K, where articles are fixed; else there is no such attribute.

    Examples
    --------
    >>> import numpy as np
    >>> environment = Slates(dim=3, arms=10, k=4)
    >>> first = next(environment.episode(np.random.default_rng(1)))
    >>> best = np.argsort(-first.means)[:4]
    >>> first.clicks(best), round(first.value(best), 3), round(first.best(4), 3)
    ([0.0, 0.0, 0.0, 0.0], 0.807, 0.807)
    """

    def __init__(
        self,
        dim: int = 5,
        *,
        arms: int = 20,
        k: int = 4,
        examination: Examination = "cascade",
        theta_norm: float = 3.0,
        arm_law: ArmLaw = "ball",
        offset: float = -2.0,
    ) -> None:
        super().__init__(dim, arms=arms, theta_norm=theta_norm, arm_law=arm_law, offset=offset)
        self.k = integer("k", k, at_least=1)
        if self.k > self.arms:
            raise ValueError(f"k must be at most arms={arms}, got k={k!r}")
        self.examination = checked_examination(examination, self.k, (0.0, 1.0))
        model = "cascade" if self.examination == "cascade" else "position-based clicks"
        kept = ", fixed" if is_fixed(arm_law) else ""
        self.name = f"{model} (d = {self.dim}, {self.k} of K = {self.arms}{kept})"

    def episode(self, rng: np.random.Generator) -> Iterator[SlateRound]:
        """Rounds without end."""
        theta = random_parameter(rng, self.dim, self.theta_norm)
        mean = get_link("logistic").mean
        chances = np.ones(self.k) if self.examination == "cascade" else np.array(self.examination)
        for arms in arm_blocks(self.arm_law, rng, self.arms, self.dim):
            means = mean(arms @ theta + self.offset)
            attracted = (rng.random(means.shape) < means).astype(np.float64)
            looked = (rng.random((len(means), self.k)) < chances).astype(np.float64)
            for one in zip(arms, attracted, means, looked, strict=True):
                yield SlateRound(*one[:3], looked=one[3], examination=self.examination)


def outcome(now: Round, decision: Decision) -> tuple[float, float, float | list[float]]:
    """The reward of a decision, its regret (NaN where means are unknown), and what the policy is told.

    A policy of single choices shows a page of one article.
    """
    if isinstance(now, SlateRound) and isinstance(decision, SlateDecision):
        clicks = now.clicks(decision.indices)
        return sum(clicks), now.best(len(decision.indices)) - now.value(decision.indices), clicks
    gain = now.reward(decision.index)
    return gain, math.nan if now.means is None else float(now.means.max() - now.means[decision.index]), gain

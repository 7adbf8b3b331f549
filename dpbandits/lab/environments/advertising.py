"""Advertising: few clicks, and features that lie in [0, 1] and move together.

What the designers of policies seldom simulate and practitioners nearly always have: a low base rate, features that are
shares, ages or prices on a scale from 0 to 1, so that their means are far from 0 and they say much the same.

Law
---
* An advertisement has m = d − 1 features u = (Φ(z₁), …, Φ(z_m)), where the z_j are standard normal with correlation
  ``correlation``; so every u_j is uniform in [0, 1]. Its vector is x = (1, u)/√d; or, ``centred``,
  (1, 2u − 1)/√d, as ``dpkit.features.PublicScaler`` moves features between 0 and 1.
* Clicks: P(r = 1 | x) = σ(logit(``base_rate``) + wᵀ(u − ½)), where w is a random vector of norm ``effect``, new for
  every seed. The average over advertisements is a little higher, as σ is convex where clicks are rare.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from accounting.arrays import Array
from accounting.checks import fraction, integer, positive
from dpbandits.lab.environments.arms import INSIDE, coins, random_parameter, rounds_at_once
from dpbandits.lab.environments.base import Named, Round
from dpkit.models.links import get_link

__all__ = ["Advertising"]


class Advertising(Named):
    """Clicks on one of K advertisements, with fresh ones in every round and a fresh w for every seed.

    Parameters
    ----------
    dim : int
        d, the constant and d − 1 features; at least 2.
    arms : int
        K.
    base_rate : float
        Of clicks on an advertisement with u = (½, …, ½), in (0, 1).
    correlation : float
        Of the normal variables behind the features, in [0, 1).
    effect : float
        ‖w‖.
    centred : bool
        Whether 0 stands for the middle of a feature's range.

    Attributes
    ----------
    theta_bound : float
        √d·√((|logit(base_rate)| + ‖w‖√m/2)² + ‖w‖²), which no θ* for x exceeds; centred, it is
        √d·√(logit(base_rate)² + ‖w‖²/4).

    Examples
    --------
    >>> import numpy as np
    >>> first = next(Advertising().episode(np.random.default_rng(0)))
    >>> first.arms.shape, bool(first.arms.min() >= 0), bool(first.means.max() < 0.5)
    ((10, 8), True, True)
    """

    def __init__(
        self,
        dim: int = 8,
        *,
        arms: int = 10,
        base_rate: float = 0.04,
        correlation: float = 0.5,
        effect: float = 2.0,
        centred: bool = False,
    ) -> None:
        self.arms = integer("arms", arms, at_least=1)
        self.base_rate = fraction("base_rate", base_rate)
        self.correlation = fraction("correlation", correlation, include_zero=True)
        self.effect = positive("effect", effect)
        self._logit = math.log(self.base_rate / (1.0 - self.base_rate))
        self.centred = bool(centred)
        # θ* = √d·(logit − wᵀ1/2, w), or √d·(logit, w/2)
        d = integer("dim", dim, at_least=2)
        constant = abs(self._logit) + (0.0 if self.centred else self.effect * math.sqrt(d - 1) / 2.0)
        longest = math.sqrt(d) * math.hypot(constant, self.effect / (2.0 if self.centred else 1.0))
        more = ", centred" if self.centred else ""
        name = f"advertising, {100 * self.base_rate:g} % clicks (d = {d}, K = {self.arms}{more})"
        super().__init__(name, d, "logistic", longest)

    def episode(self, rng: np.random.Generator) -> Iterator[Round]:
        """Rounds without end."""
        w = random_parameter(rng, self.dim - 1, self.effect)
        mean = get_link("logistic").mean
        size = rounds_at_once(self.arms * self.dim)
        while True:
            u = self._features(rng, size * self.arms).reshape(size, self.arms, -1)
            means = mean(self._logit + (u - 0.5) @ w)
            shown = 2.0 * u - 1.0 if self.centred else u
            arms = np.concatenate([np.ones((size, self.arms, 1)), shown], axis=2) * (INSIDE / math.sqrt(self.dim))
            yield from map(Round, arms, coins(rng, means), means)

    def _features(self, rng: np.random.Generator, count: int) -> Array:
        from scipy.special import ndtr

        common, own = rng.standard_normal((count, 1)), rng.standard_normal((count, self.dim - 1))
        u: Array = ndtr(math.sqrt(self.correlation) * common + math.sqrt(1.0 - self.correlation) * own)
        return u

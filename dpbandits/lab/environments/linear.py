"""Linear rewards with light or heavy tails, r = xᵀθ* + η.

Noise laws
----------
=================  ==========================================  ==========================================
name               η / scale                                   E|η|^p / scale^p is finite for
=================  ==========================================  ==========================================
gaussian           N(0, 1)                                     every p
student_t          Student's t with ``df`` degrees of freedom  p < ``df``
pareto             X − E X, where P(X > x) = x^−α for x ≥ 1    p < α, the ``tail_index``
symmetric_pareto   ±(X − 1), either sign with probability ½    p < α
=================  ==========================================  ==========================================

All have mean 0. ``pareto`` is skewed: rare large gains, many small losses. The other three are symmetric, as policies
that take medians need it.

Policies for heavy tails want numbers ε and ν with E|η|^{1+ε} ≤ ν^{1+ε}. They are the environment's ``noise_tail`` and
``noise_scale``, with equality; :meth:`Linear.moment` gives ν for any other ε.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, get_args

import numpy as np

from accounting.arrays import Array
from accounting.checks import choice, fraction, integer, positive
from dpbandits.lab.environments.arms import ArmLaw, arm_blocks, checked_arm_law, random_parameter
from dpbandits.lab.environments.base import Named, Round

__all__ = ["Linear"]

Noise = Literal["gaussian", "student_t", "pareto", "symmetric_pareto"]


class Linear(Named):
    """A linear bandit with a fresh θ* for every seed and noise of a chosen tail.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    arms : int
        K, the number of arms in a round.
    noise : {"gaussian", "student_t", "pareto", "symmetric_pareto"}
        The law of η; see the module. All arms of a round share it.
    df : float
        Degrees of freedom of ``student_t``, above 1.
    tail_index : float
        α of the two Pareto laws, above 1.
    scale : float
        Factor on η.
    theta_norm : float
        S = ‖θ*‖; the direction of θ* is uniform.
    arm_law : {"ball", "sphere", "cube", "fixed", "fixed_sphere", "fixed_cube", "one_hot"}
        See :mod:`dpbandits.lab.environments.arms`.

    Attributes
    ----------
    noise_tail, noise_scale : float
        ε and ν. ε = 1, with ν the standard deviation, where the variance is finite; else half the largest ε below
        which the moment is finite, since ν grows without bound towards it.
    reward_range : (float, float)
        From the smallest mean plus the 0.5 % quantile of η to the largest mean plus its 99.5 % quantile. Rewards
        have no bounds; this is the range to which private policies clip them.

    Raises
    ------
    ValueError
        For a parameter out of range.

    Examples
    --------
    >>> import numpy as np
    >>> environment = Linear(dim=2, noise="student_t", df=2.1, arm_law="cube")
    >>> first = next(environment.episode(np.random.default_rng(0)))
    >>> first.arms.shape, first.rewards.shape
    ((50, 2), (50,))
    >>> environment.noise_tail, round(environment.noise_scale, 3)
    (1.0, 4.583)
    >>> round(environment.moment(0.5), 3)
    1.959
    """

    def __init__(
        self,
        dim: int = 2,
        *,
        arms: int = 50,
        noise: Noise = "gaussian",
        df: float = 2.1,
        tail_index: float = 1.2,
        scale: float = 1.0,
        theta_norm: float = 1.0,
        arm_law: ArmLaw = "ball",
    ) -> None:
        dim = integer("dim", dim, at_least=1)
        self.arms = integer("arms", arms, at_least=1)
        self.noise = choice("noise", noise, *get_args(Noise))
        self.df, self.tail_index = positive("df", df), positive("tail_index", tail_index)
        self.scale = positive("scale", scale)
        # moments are finite below this order; the mean must be
        self._order = {"gaussian": math.inf, "student_t": self.df}.get(noise, self.tail_index)
        if self._order <= 1.0:
            name = "df" if noise == "student_t" else "tail_index"
            raise ValueError(f"{name} must be above 1, or the noise has no mean, got {name}={self._order:g}")
        S = self.theta_norm = positive("theta_norm", theta_norm)
        self.arm_law = checked_arm_law(arm_law, self.arms, dim)
        self.noise_tail = 1.0 if self._order > 2.0 else (self._order - 1.0) / 2.0
        self.noise_scale = self.moment(self.noise_tail)
        low, high = self._quantiles(0.005)
        self.base_rate = 0.0
        law = {"gaussian": "Gaussian", "student_t": f"Student-t({self.df:g})", "pareto": f"Pareto({self.tail_index:g})"}
        title = law.get(noise, f"symmetric Pareto({self.tail_index:g})")
        name = f"linear bandit, {title} noise (d = {dim}, K = {self.arms}, S = {S:g})"
        super().__init__(name, dim, "linear", S, (low - S, high + S))

    def episode(self, rng: np.random.Generator) -> Iterator[Round]:
        """Rounds without end."""
        theta = random_parameter(rng, self.dim, self.theta_norm)
        for arms in arm_blocks(self.arm_law, rng, self.arms, self.dim):
            means = arms @ theta
            # one number per round: the arms of a round share their luck
            yield from map(Round, arms, means + self._draw_noise(rng, (len(arms), 1)), means)

    def moment(self, tail: float) -> float:
        """ν = (E|η|^{1+ε})^{1/(1+ε)} for ε = ``tail`` in (0, 1]: ``noise_scale`` at another ε.

        Raises
        ------
        ValueError
            If the moment is infinite.
        """
        p = 1.0 + fraction("tail", tail, include_one=True)
        if p >= self._order:
            raise ValueError(f"tail must be below {self._order - 1.0:g} for {self.noise} noise, got tail={tail!r}")
        return self.scale * float(self._absolute_moment(p) ** (1.0 / p))

    def _draw_noise(self, rng: np.random.Generator, size: tuple[int, int]) -> Array:
        if self.noise == "gaussian":
            return self.scale * rng.standard_normal(size)
        if self.noise == "student_t":
            return self.scale * rng.standard_t(self.df, size)
        excess = rng.pareto(self.tail_index, size)  # X − 1
        if self.noise == "pareto":
            return self.scale * (excess - 1.0 / (self.tail_index - 1.0))
        return self.scale * np.where(rng.random(size) < 0.5, -excess, excess)

    def _absolute_moment(self, p: float) -> float:
        """E|η/scale|^p."""
        from scipy.special import beta, gamma, hyp2f1

        half = float(gamma((p + 1.0) / 2.0)) / math.sqrt(math.pi)
        if self.noise == "gaussian":
            return float(2.0 ** (p / 2.0)) * half
        if self.noise == "student_t":
            n = self.df
            return float(n ** (p / 2.0) * half * gamma((n - p) / 2.0) / gamma(n / 2.0))
        a = self.tail_index
        if self.noise == "symmetric_pareto":
            return float(a * beta(p + 1.0, a - p))
        # E|X − m|^p with m = E X = a/(a − 1), above m and below it
        m = a / (a - 1.0)
        below = hyp2f1(p + 1.0, a + 1.0, p + 2.0, 1.0 / a) / ((p + 1.0) * a ** (p + 1.0))
        return float(a * m ** (p - a) * (beta(p + 1.0, a - p) + below))

    def _quantiles(self, tail: float) -> tuple[float, float]:
        """The quantiles of η at ``tail`` and 1 − ``tail`` < ½."""
        from scipy.special import ndtri, stdtrit

        if self.noise == "pareto":
            power, mean = -1.0 / self.tail_index, self.tail_index / (self.tail_index - 1.0)
            return self.scale * float((1.0 - tail) ** power - mean), self.scale * float(tail**power - mean)
        if self.noise == "gaussian":
            high = -ndtri(tail)
        elif self.noise == "student_t":
            high = -stdtrit(self.df, tail)
        else:
            high = (2.0 * tail) ** (-1.0 / self.tail_index) - 1.0
        return -self.scale * float(high), self.scale * float(high)

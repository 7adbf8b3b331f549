"""Private Frank–Wolfe steps over the ℓ₁ ball: gradients of all rows so far, and a corner that they name.

A step from θ goes towards v = report-noisy-min over the 2d corners of ⟨g, v⟩, g a sum of one row's gradients each. All
that is private about it is the corner's name; :mod:`~dpbandits.private.dphdb` says what the steps of all arms cost
together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accounting import ZCDP
from accounting.arrays import Array
from accounting.checks import integer
from dpkit.geometry import LpBall
from dpkit.mechanisms import report_noisy_max
from dpkit.models.likelihood import Rows
from dpkit.models.links import Link

__all__ = ["Corners", "recursive_gradient", "summed_gradient"]

# rows that are summed at once, and the unit of what is summed at every round
_BLOCK, _UNIT = 4096, 2.0**30


@dataclass(frozen=True)
class Corners:
    """Noisy comparisons of the ball's corners, the i-th at ε_i = ε_1·i^−power.

    Attributes
    ----------
    ball : LpBall
    clip : float
        C: every row's gradient is at most C in each entry.
    sensitivity : float
        Δ: how far one round moves the score ⟨g, v⟩ of a corner, ‖v‖₁ = S, rounding included.
    first_epsilon, power : float
    """

    ball: LpBall
    clip: float
    sensitivity: float
    first_epsilon: float
    power: float

    @classmethod
    def of(cls, ball: LpBall, clip: float, cost: ZCDP, calls: int, *, falling: bool, horizon: int, m: int) -> Corners:
        """So many calls, all together at this cost, where a person has m rows of T = ``horizon`` at most.

        All of them at the same ε, or ``falling``: at ε_1/√i.

        Sums are taken in blocks, in float64: of T terms of at most C·S each, which are themselves within (d + 8)u, they
        are off by at most (n + T/n + d + 16)·u·T·C·S for blocks of n, and so twice as much in two worlds; in every
        round's sums the summands are rounded instead, by at most half a unit each.
        """
        rounding = 2.0**-52 * horizon * (_BLOCK + horizon / _BLOCK + ball.dimension + 16.0) + 1.0 / _UNIT
        if rounding > 1e-3:
            raise ValueError(f"horizon must be such that rounding is no thousandth of a round, got horizon={horizon!r}")
        apart = 2.0 if cost.adjacency == "replace" else 1.0
        # ε_i with Σε_i²/8 = ρ, rounded down
        total = _harmonic(calls) if falling else float(calls)  # Σi^−2·power
        first = math.sqrt(8.0 * cost.rho / total) * (1.0 - 1e-12)
        # m rows of a person move it m times as far
        return cls(ball, clip, m * (apart + rounding) * clip * ball.radius, first, 0.5 if falling else 0.0)

    def epsilon(self, i: int) -> float:
        """ε_i, the range of the privacy loss of the i-th steps of all arms together."""
        return self.first_epsilon * math.pow(integer("i", i, at_least=1), -self.power)

    def step(self, theta: Array, gradient: Array, i: int, rate: float, rng: np.random.Generator) -> Array:
        """The i-th one, towards the corner of least noisy score."""
        scores = self.ball.vertex_scores(gradient)
        corner = report_noisy_max(scores, self.sensitivity, self.epsilon(i), "gumbel", minimise=True, rng=rng)
        return np.asarray(theta + rate * (self.ball.vertex(corner) - theta))

    def gradient(self, sums: Array) -> Array:
        """From sums of :func:`recursive_gradient`."""
        return np.asarray(sums * (self.clip / _UNIT))


def summed_gradient(rows: Rows, theta: Array, link: Link, clip: float) -> Array:
    """Σ clip(μ(xᵀθ) − r, ±C)·x over rows (x, r) with ‖x‖_∞ ≤ 1."""
    X, r = rows.array[:, :-1], rows.array[:, -1]
    # NaN, which a caller's link may give, counts for nothing
    slopes: Array = np.nan_to_num(np.clip(link.mean(X @ theta) - r, -clip, clip))
    starts = range(0, len(r), _BLOCK)
    return np.asarray(sum((slopes[i : i + _BLOCK] @ X[i : i + _BLOCK] for i in starts), np.zeros(X.shape[1])))


def recursive_gradient(x: Array, reward: float, thetas: tuple[Array, Array], t: int, link: Link, clip: float) -> Array:
    """clip((t + 1)(μ(xᵀθ_t) − r) − t(μ(xᵀθ_{t−1}) − r), ±C)·x, for θ_t and θ_{t−1}.

    In whole numbers, in units of C/2³⁰, so that sums have no rounding errors.
    """
    now, before = (float(link.mean(float(theta @ x))) for theta in thetas)
    slope = (t + 1) * (now - reward) - t * (before - reward)
    # in this order NaN, which a caller's link may give, becomes −C
    return np.asarray(np.rint(min(max(-1.0, slope / clip), 1.0) * _UNIT * x))


def _harmonic(n: int) -> float:
    """1 + ½ + … + 1/n, for large n by an upper bound that is off by less than 1/(12n²)."""
    if n <= 2**20:
        return float(np.sum(np.arange(1, n + 1) ** -1.0))
    return math.log(n) + float(np.euler_gamma) + 0.5 / n

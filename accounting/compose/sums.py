"""A composed privacy loss in its window: δ and ε from above, and δ from below.

Where the errors come from, and the proofs: :mod:`accounting.compose.convolution`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from accounting.arrays import Array
from accounting.roots import root_between

__all__ = ["Sum", "smallest"]


_UNIT_ROUNDOFF = 2.0**-52
# Relative error of the grid's floating-point losses.
_GRID_ERROR = 8 * _UNIT_ROUNDOFF
# How many cells of the grid are put together where a rough answer says where to look.
_TOGETHER = 16
# ln of what the weight of a loss must come to, to be left out.
_FADED = 60.0


@dataclass(frozen=True)
class Sum:
    """The composed loss in its window: e^(K − tL) times ``mass`` on ``losses``.

    The rounding error of ``mass`` is at most ``error``: of every entry, and in the Euclidean norm (Parseval).
    ``extra`` adds to every δ. By Chernoff's bounds (a, s) in ``from_below`` and ``from_above``, of the mass at most
    e^(a − sy) lies more than y ≥ 0 below the window, and wraps around to its upper end; and at most e^(a − sx) lies
    above x.
    """

    losses: Array
    mass: Array
    error: tuple[float, float]
    tilt: float
    cumulant: float
    extra: float
    from_below: tuple[float, float]
    from_above: tuple[float, float]
    step: float
    length: float
    count: int

    def delta(self, epsilon: float) -> float:
        """δ(ε) from above; 1 below the window, where the sum hardly ever is."""
        return self._on_grid(epsilon * (1 - _GRID_ERROR))

    def _on_grid(self, epsilon: float) -> float:
        """δ(ε) of losses that are multiples of the grid's step as it is in floating point."""
        if epsilon < self.losses[0]:
            return 1.0
        first = int(np.searchsorted(self.losses, epsilon, side="right"))
        weights = self._weights(epsilon, first)
        found = float(self.mass[first : first + weights.size] @ weights) + self._lost(weights)
        if first + weights.size < self.losses.size:
            found += 2 * math.exp(-_FADED)  # all mass together is hardly more than 1
        return min(1.0, self._untilted(epsilon, found) + self.extra)

    def doubt(self, epsilon: float) -> float:
        """What errors and cuts contribute to δ(ε), for an ε in the window."""
        first = int(np.searchsorted(self.losses, epsilon, side="right"))
        weights = self._weights(epsilon, first)
        return self._untilted(epsilon, self._lost(weights) + self._wrapped(epsilon)) + self.extra

    def wraps(self, epsilon: float) -> float:
        """What wraps around contributes to δ(ε), at most."""
        return self._untilted(epsilon, self._wrapped(epsilon))

    def _lost(self, weights: Array) -> float:
        """What rounding errors may change in a weighted sum of ``mass``."""
        return min(self.error[0] * float(weights.sum()), self.error[1] * float(np.linalg.norm(weights)))

    def _wrapped(self, epsilon: float) -> float:
        """The weighted mass that may count above ``epsilon`` and does not lie there, as the window is a circle.

        What lies less than y below comes to lie less than y below the upper end, where the weight is below
        e^(−tilt·(end − y − ε)); the weight of the rest is at most 1. Both are the same at the best y.
        """
        log_mass, tilt = self.from_above
        above = math.exp(min(0.0, log_mass - tilt * (epsilon + self.length)))
        log_mass, tilt = self.from_below
        light = 0.0
        if self.tilt > 0 and tilt > 0:
            distance = float(self.losses[0]) + self.length - self.step - epsilon
            light = max(0.0, self.tilt * tilt / (self.tilt + tilt) * distance - math.log(2.0))
        return math.exp(min(0.0, log_mass - light)) + above

    def grid_error(self, epsilon: float) -> float:
        """About how much the grid adds to ε: ½ of the variance nΔ²/6 that it adds, times density over slope."""
        at = int(np.clip(np.searchsorted(self.losses, epsilon), 0, self.losses.size - 1))
        density = float(self.mass[max(0, at - 4) : at + 5].mean()) / self.step
        slope = self._tilted_slope(epsilon)
        return self.count * self.step**2 / 12 * density / slope if slope > 0 else math.inf

    def _tilted_slope(self, epsilon: float) -> float:
        first = int(np.searchsorted(self.losses, epsilon))
        with np.errstate(under="ignore"):
            return float(self.mass[first:] @ np.exp(-(self.tilt + 1) * (self.losses[first:] - epsilon)))

    def slope(self, epsilon: float) -> float:
        """−dδ/dε, about."""
        return self._untilted(epsilon, self._tilted_slope(epsilon))

    def _weights(self, epsilon: float, first: int) -> Array:
        # up to where they have faded away
        end = None
        if self.tilt > 0:
            end = max(first, int(np.searchsorted(self.losses, epsilon + _FADED / self.tilt)))
        ahead = self.losses[first:end] - epsilon
        with np.errstate(under="ignore"):
            return np.asarray(np.exp(-self.tilt * ahead) * -np.expm1(-ahead))

    def _untilted(self, epsilon: float, total: float, sign: float = 1.0) -> float:
        if total <= 0:
            return 0.0
        slack = 1e-9 + 8 * _UNIT_ROUNDOFF * (abs(self.cumulant) + self.tilt * abs(epsilon))
        return math.exp(min(0.0, self.cumulant - self.tilt * epsilon + math.log(total) + sign * slack))

    def epsilon(self, delta: float) -> float:
        """The smallest ε ≥ 0 with δ(ε) ≤ ``delta``, at least the lower end of the window."""
        to_delta = lru_cache(maxsize=None)(self._on_grid)
        low, high = max(0.0, float(self.losses[0])), float(self.losses[-1])
        near = self._nearby(delta, low, high)
        if near is not None and to_delta(near[0]) > delta >= to_delta(near[1]):
            low, high = near
        elif to_delta(low) <= delta:
            return low * (1 + _GRID_ERROR)
        elif not (high > low and to_delta(high) <= delta):
            return math.inf
        return smallest(to_delta, delta, low, high) * (1 + _GRID_ERROR)

    def _nearby(self, delta: float, low: float, high: float) -> tuple[float, float] | None:
        """Where to look for ε first: a few cells in [low, high], found on a grid that many times as coarse."""
        size = self.losses.size // _TOGETHER * _TOGETHER
        if size < 64 * _TOGETHER or not low < high:
            return None
        mass = self.mass[:size].reshape(-1, _TOGETHER).sum(axis=1)
        coarse = replace(self, losses=self.losses[:size:_TOGETHER] + (_TOGETHER - 1) / 2 * self.step, mass=mass)
        target = math.log(delta)
        try:
            about = root_between(
                lambda x: math.log(coarse._on_grid(x) + 5e-324) - target, low, high, absolute=self.step
            )
        except ValueError:
            return None
        reach = _TOGETHER * float(self.step)
        return max(low, about - reach), min(high, about + reach)

    # ------------------------------------------------------------------------------------------------ from below

    def delta_at_least(self, epsilon: float, above: Sum, delta: float) -> float:
        """δ(ε) from below, where ``self`` was composed downwards and ``above`` upwards; tuned for a δ near ``delta``.

        See the module's text.
        """
        variance = above.count * above.step**2
        # half a millionth of δ each for the tails of Z, and the losses' own rounding
        reach = variance / 8 + math.sqrt(0.5 * variance * (math.log(2e6) - math.log(delta)))
        reach += 4 * _GRID_ERROR * float(np.abs(above.losses[[0, -1]]).max())
        # what straddles costs up to e^((1 + tilt)·reach), also of rounding errors: nothing is known
        if not (1 + max(above.tilt, 0.0)) * reach < 700:
            return 0.0
        tails = 2 * math.exp(-2 * (reach - variance / 8) ** 2 / variance)
        first = int(np.searchsorted(self.losses, epsilon, side="right"))
        weights = self._weights(epsilon * (1 + _GRID_ERROR), first)
        weights = np.maximum(weights, 0.0)
        kept = float(self.mass[first : first + weights.size] @ weights) - self._lost(weights) - self._wrapped(epsilon)
        near = slice(*np.searchsorted(above.losses, [epsilon - reach, epsilon + reach]))
        apart = above.losses[near] - epsilon
        with np.errstate(over="ignore"):
            cost = np.exp(-above.tilt * apart) * np.abs(np.expm1(-apart))
        straddling = float(above.mass[near] @ cost) + above._lost(cost)
        if epsilon - reach < above.losses[0]:
            straddling += math.exp(above.from_below[0]) * math.exp(min(700.0, above.tilt * reach)) * math.expm1(reach)
        return self._untilted(epsilon, kept, -1.0) - above._untilted(epsilon, straddling) - tails


def smallest(to_delta: Callable[[float], float], delta: float, low: float, high: float) -> float:
    """The smallest ε in [low, high] with ``to_delta(ε) ≤ delta``, rounded up; it falls, and meets δ at ``high``."""
    target = math.log(delta)
    # between two losses δ is linear in e^ε, so secants in ε soon land in the right cell and then on the root
    root = root_between(
        lambda x: math.log(to_delta(x) + 5e-324) - target, low, high, absolute=1e-16 * high, relative=1e-13
    )
    step = 1e-14
    while root < high and to_delta(root) > delta:
        root += step * max(root, 1e-3 * high)
        step *= 2
    return min(root, high)

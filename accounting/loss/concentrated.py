"""Dominating pairs of zero-concentrated releases (see :mod:`accounting.loss.pair`).

What is ρ-zCDP costs at every ε at most what the worst coin does there (:mod:`accounting.loss.worst_coins`). The curve
of all these coins is that of one pair, the *concentrated* one: convex in e^ε as a maximum, and symmetric, because P and
Q may change places. It composes.

*From above.* It is followed from its values, rounded up, at some orders (:mod:`accounting.loss.curves`). Several
zCDP releases add up to one, also if others come between them, whose worst laws may follow what was seen. Let A be the
curve of what is left of the others, C_ρ that of the ρ that is left, and suppose that what comes after the next release
reaches no more than their composition. If the next one is zCDP, of a part of ρ, fix what the pair of A draws: it and
C of the rest are together ρ-zCDP, so they reach no more than C_ρ, and so do the means over the draws. If it is one of
the others, fix what the concentrated pair draws: it and the rest of the others reach no more than A. By induction from
the last release on, all reach no more than the composition of A and C_ρ.

*From below*, some coins of it, each of which is certainly ρ-zCDP. In (q, p) they are points; P and Q of the polygon
through them have the losses ln Δp/Δq. Who plays a zCDP release *last* may choose the coin by what was seen, and so
reaches at every sum of the other losses the largest p − e^ε·q: together, the composition with that polygon.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accounting.arrays import Array
from accounting.loss.concentrated_curve import epsilon_of, zcdp_delta
from accounting.loss.curves import pair_of_curve
from accounting.loss.pair import Atoms, Symmetric, mirrored, remembered, with_mirror_image
from accounting.loss.worst_coins import LOWEST, SAFETY, worst_coin

__all__ = ["ConcentratedPair", "CoinsPair"]


_POINTS = 800
# A curve is followed down to about this, and as long as Q has more than next to nothing: beyond, P may have the rest.
_LOG_LEAST, _LOG_SMALLEST = -640.0, -700.0
# A smaller ρ is priced as this one: ε is next to nothing.
_SMALLEST_RHO = 1e-16


def _orders(rho: float) -> Array:
    """Orders less 1, from the lowest to where δ is next to nothing; closer where it is not small."""
    return LOWEST + max(LOWEST, math.sqrt(-_LOG_LEAST / rho)) * np.linspace(0.0, 1.0, _POINTS) ** 2


@dataclass(frozen=True)
class ConcentratedPair(Atoms, Symmetric):
    """Whatever is ``rho``-zCDP, from above."""

    rho: float

    @mirrored
    def delta(self, epsilon: float) -> float:
        return zcdp_delta(self.rho, epsilon)

    @remembered(16)
    def atoms(self) -> tuple[Array, Array, Array, float]:
        rho = max(self.rho, _SMALLEST_RHO)
        points = [(0.0, zcdp_delta(rho, 0.0))]
        for eta in _orders(rho):
            coin = worst_coin(rho, float(eta))
            log_delta = coin.log_delta
            epsilon = epsilon_of(rho, log_delta, coin.eta, coin.low)
            if points[-1][0] < epsilon < log_delta - _LOG_SMALLEST:
                points.append((epsilon, math.exp(log_delta) * (1 + 1e-12)))
        if len(points) == 1:
            raise ArithmeticError(f"what is {rho:g}-zCDP may have losses that are too large for floats")
        epsilons, deltas = np.array(points).T
        return pair_of_curve(epsilons, deltas)


@dataclass(frozen=True)
class CoinsPair(Atoms, Symmetric):
    """The same from below."""

    exact = True
    rho: float

    @remembered(16)
    def atoms(self) -> tuple[Array, Array, Array, float]:
        rho = self.rho
        coins = [worst_coin(rho * (1 - SAFETY), float(eta)) for eta in _orders(rho)[::-1]]
        known = [coin for coin in coins if coin.log_p - coin.high > 1.1 * _LOG_LEAST and coin.meets(rho)]
        p = np.exp([coin.log_p for coin in known])
        q = np.exp([coin.log_p - coin.high for coin in known])
        some = p + q < 1
        in_p, in_q = (np.diff(x[some], prepend=0.0) * (1 - 1e-9) for x in (p, q))
        if not (np.all(in_q > 0) and np.all(in_p > in_q) and np.all(np.diff(in_p / in_q) < 0)):
            raise ArithmeticError(f"rounding hides the coins of rho={rho:g}")
        return with_mirror_image(in_p, in_q)

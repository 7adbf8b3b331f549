"""Poisson samples of zCDP releases, each of which may follow what was seen, from above: as a game.

A release that is ρ-zCDP reads a unit with probability q. For a unit that is present the ratio of the laws with it and
without is z = 1 − q + qy, y the ratio of the release's own laws P and Q: so of one more such release before others that
reach at most H(t) = sup P(S) − t·Q(S), all reach

    sup E_Q[g(y)],    g(y) = z·H(t/z),    z = 1 − q + qy,

over all laws that are ρ-zCDP, with E_Q y = 1 and E_Q y^α ≤ e^(ρα(α − 1)) for α > 1 and α < 0. (For a unit that is
absent, P/Q is at most 1/(1 − q) for each, and the pairs composed one by one are far below, unless q is nearly 1.)

*From above.* With any a, b and λ_α ≥ 0, if f(y) = b + ay + Σλ_α·y^α·e^(−ρα(α − 1)) is at least g(y) for y ≥ y₀, and
g − f is at most M below,

    E_Q[g(y)] ≤ a + b + Σλ_α + M·e^(−(ln 1/y₀ − ρ)²/(4ρ)),

the last by the best of the moments of negative order (:mod:`accounting.accountants.concentrated_games`). g is convex:
it is the largest of the lines Az − Bt, for A − Bτ below H. So between two nodes g is at most its chord, f is at least
its tangents at both, and it is enough to look where they meet. Beyond the last node g rises by q at most, as H ≤ 1,
and f by what it does there at least. Below the first one, y₀, M is what the chord to g(0) = (1 − q)H(t/(1 − q)) is
above the tangent at 0, or 0. If f is positive and too small, a multiple of it will do: so any weights that are about
the best give a bound, and it does not matter how they were found.

*The weights* are the best ones for some nodes and some t, by an interior-point method for all t at once (Mehrotra
1992): they are the duals of the law that reaches most. Without a sample coins are about enough for that, and one
order; on one that law has three or more points, and more orders count. Between these t they are interpolated.

H is followed by its chords through points of a grid, 1 at t = 0; of the bounds there the lower hull is taken, as H is
convex. The moments of all releases together, M_α(q, ρ)^k at integer orders α, with E_Q z^α ≤ M_α by the binomial
expansion, say what H is at most beyond the grid, and wherever that is less.

*Among others* the pair of the curve stands for all of them, by the argument in
:mod:`accounting.accountants.concentrated_losses`. More than ``_MOST`` are several games, each of which may follow the
others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from accounting.accountants.concentrated_losses import ConcentratedPair
from accounting.accountants.convolution import Parts
from accounting.accountants.curves import LopsidedAtoms, delta_of_atoms, lower_hull, pair_of_whole_curve, value_between
from accounting.accountants.sampled_losses import SubsampledPair

if TYPE_CHECKING:
    from accounting.accountants.losses import LossPair

__all__ = ["SampledGamePair", "sampled_games"]

Array = NDArray[np.float64]

# Releases of one game. Points of the grid, to where the moments reach this share of δ; and how far they count beyond.
_MOST, _POINTS, _BEYOND, _FARTHEST = 20, 512, 1e-2, 1e-12
# What is added to the first curve, as a share of δ.
_LEAST = 1e-6
# Orders, less 1 and below 0, in multiples of 1/√(2ρ), for δ of 1e-6.
_ORDERS = np.array([0.1, 0.25, 0.4, 0.6, 0.8, 1.0, 1.3, 1.6, 2.0, 2.4, 2.9, 3.4, 4.0, 4.7, 5.6, 7.0])
_NEGATIVE = np.array([0.3, 0.8, 1.5, 2.5, 4.0])
# The t that weights are found for; rounds of that.
_ROWS, _ROUNDS = 64, 12
# Nodes where f and g may meet, and one of how many is used for the weights.
_NODES, _THIN = 361, 3
# Moments of all together: how many orders, and the largest.
_MOMENTS, _LARGEST = 80, 1000
# Where the game is played: ρ, δ and the rate; and of how many kinds of samples.
_WEAKEST, _STRONGEST, _RAREST, _COMMONEST, _LEAST_RATE, _MOST_KINDS = 1e-4, 10.0, 1e-30, 0.1, 1e-5, 3
# ln of δ for which a curve is known is a multiple of this.
_LEVELS = 2.0
# Far more than what rounding adds, and than the errors of f as a share of its terms.
_UP, _ROUNDING = 1 + 1e-12, 1e-11


@dataclass(frozen=True)
class SampledGamePair(LopsidedAtoms):
    """``count`` samples of ``rate`` of what is ``rho``-zCDP, for a unit that is present; for δ near e^``level``."""

    rho: float
    rate: float
    count: int
    level: float

    def delta(self, epsilon: float) -> float:
        if epsilon >= 0:
            return min(1.0, value_between(*_curve(self), epsilon))
        losses, p, _, beyond = self._atoms()
        return min(1.0, beyond + delta_of_atoms(epsilon, losses, p))

    def _atoms(self) -> tuple[Array, Array, Array, float]:
        return _atoms(self)


def sampled_games(parts: Parts, delta: float) -> Parts | None:
    """``parts`` with samples of zCDP releases as games; None where there are none to play."""
    level = math.floor(math.log(max(delta, 1e-280)) / _LEVELS) * _LEVELS
    known = {part: of for part in parts if (of := _sample_of(*part))} if _RAREST <= delta <= _COMMONEST else {}
    # every kind takes its time: those that matter most
    played = sorted(known, key=lambda part: part[1] * known[part][0] * known[part][1] ** 2)[-_MOST_KINDS:]
    found: list[tuple[LossPair, int]] = [part for part in parts if part not in played]
    for part in played:
        rho, rate = known[part]
        games = -(-part[1] // _MOST)
        each, more = divmod(part[1], games)
        for size, times in ((each + 1, more), (each, games - more)):
            if times:
                found.append((SampledGamePair(rho, rate, size, level), times))
    return tuple(found) if played else None


def _sample_of(pair: LossPair, count: int) -> tuple[float, float] | None:
    """ρ and the rate of samples of zCDP releases that have a game."""
    match pair:
        case SubsampledPair(inner=ConcentratedPair(rho=rho, count=1), rate=rate, present=True):
            known = count > 1 and _WEAKEST <= rho <= _STRONGEST and _LEAST_RATE <= rate <= 1 - _LEAST_RATE
            return (rho, rate) if known else None
    return None


@lru_cache(maxsize=32)
def _curve(pair: SampledGamePair) -> tuple[Array, Array]:
    """ε and δ at most, from some ε ≤ 0 on."""
    game = _Game(pair.rho, pair.rate, pair.count, math.exp(pair.level))
    for _ in range(pair.count):
        game.play()
    farther = np.linspace(game.grid[-1], game.moments.end(pair.count, _FARTHEST * math.exp(pair.level)), 65)[1:]
    grid = np.concatenate([game.grid, farther])
    return grid, np.concatenate([game.above, game.moments.of(pair.count, farther)])


@lru_cache(maxsize=32)
def _atoms(pair: SampledGamePair) -> tuple[Array, Array, Array, float]:
    return pair_of_whole_curve(*_curve(pair))


class _Moments:
    """What the moments of integer orders say."""

    def __init__(self, rho: float, rate: float, delta: float) -> None:
        most = min(4 + math.ceil(3 * math.sqrt(-math.log(delta) / rho)), _LARGEST)
        orders = np.unique(np.rint(np.geomspace(2, most, _MOMENTS)))[:, None].astype(np.float64)
        k = np.arange(most + 1.0)
        logs = gammaln(orders + 1) - gammaln(k + 1) - gammaln(np.maximum(orders - k, 0.0) + 1)
        logs += (orders - k) * math.log1p(-rate) + k * math.log(rate) + rho * k * (k - 1)
        self.logs = logsumexp(np.where(k <= orders, logs, -np.inf), axis=1)[:, None]
        self.logs += 1e-13 * (1 + self.logs + orders * np.log(orders))
        self.u = orders - 1
        self.entropy = self.u * np.log(self.u) - orders * np.log(orders)

    def of(self, count: int, epsilons: Array) -> Array:
        logs = np.min(count * self.logs + self.entropy - self.u * epsilons, axis=0)
        return np.asarray(np.exp(np.minimum(logs, 0.0)) * (_UP + 1e-11))

    def end(self, count: int, delta: float) -> float:
        """Where δ is this small."""
        return float(np.min((count * self.logs + self.entropy - math.log(delta)) / self.u))


def _places() -> Array:
    """ln y of the nodes, in multiples of √(2ρ): closer where g and f may meet."""
    return np.concatenate([np.linspace(-7, -2, 20)[:-1], np.linspace(-2, 5.5, _NODES), np.linspace(5.5, 14, 40)[1:]])


class _Game:
    """The game after some steps: its curve from above on a grid."""

    def __init__(self, rho: float, rate: float, count: int, delta: float) -> None:
        self.rho, self.rate, self.least = rho, rate, _LEAST * delta
        self.moments = _Moments(rho, rate, delta)
        top = max(self.moments.end(count, _BEYOND * delta), 1e-9)
        # below, H is 1 − t
        bottom = min(-count * math.log1p(-rate), top)
        self.step = (top + bottom) / _POINTS
        below = math.ceil(bottom / self.step)
        self.grid: Array = self.step * np.arange(-below, _POINTS - below + 1, dtype=np.float64)
        self.t = np.exp(self.grid)
        self.from_0 = np.concatenate([[0.0], self.t])
        self.played = 0

        scale = math.sqrt(2 * rho)
        reach = max(1.0, math.sqrt(math.log(delta) / math.log(1e-6)))
        orders = np.concatenate([1 + _ORDERS * reach / scale, -_NEGATIVE / scale])
        log_y = scale * _places() * np.where(_places() > 0, reach, 1.0)
        self.y = np.exp(log_y)
        self.z = 1 - rate + rate * self.y
        powers = np.exp(orders * log_y[:, None] - rho * orders * (orders - 1))
        ones, zeros = np.ones((self.y.size, 1)), np.zeros((self.y.size, 1))
        #: The terms of f and of its slope at the nodes.
        self.values = np.concatenate([ones, self.y[:, None], powers], axis=1)
        self.slopes = np.concatenate([zeros, ones, powers * orders / self.y[:, None]], axis=1)
        at = self.t[:, None] / self.z
        self.place = np.clip(np.searchsorted(self.from_0, at, side="right") - 1, 0, self.t.size - 1)
        widths = np.diff(self.from_0)
        self.share = np.minimum((at - self.from_0[self.place]) / widths[self.place], 1.0)

    def play(self) -> None:
        """One step more, before all others."""
        if self.played:
            left = self._left()
            values = self._bound(self._weights(left), left)
        else:
            values = self._alone()
        values = np.minimum(values, self.moments.of(self.played + 1, self.grid) + self.least)
        self.above = self._hulled(values)
        self.played += 1

    def _alone(self) -> Array:
        """What one release reaches."""
        _, p, q, beyond = ConcentratedPair(self.rho)._atoms()
        seen = (1 - self.rate) * q + self.rate * p
        t = self.t[:, None]
        return np.asarray(np.maximum(seen - t * q, 0.0).sum(axis=1) * _UP + self.rate * beyond + self.least)

    def _hulled(self, values: Array) -> Array:
        values = np.concatenate([[1.0], values])
        kept = lower_hull(self.from_0, values)
        return np.asarray(np.interp(self.t, self.from_0[kept], values[kept]) * _UP)

    def _left(self) -> Array:
        """g at every t, and node."""
        above = np.concatenate([[1.0], self.above])
        between = above[self.place] * (1 - self.share) + above[self.place + 1] * self.share
        return np.asarray(self.z * between * _UP)

    def _weights(self, left: Array) -> Array:
        rows = np.rint(np.linspace(0, self.t.size - 1, _ROWS)).astype(np.intp)
        size = self.values[::_THIN].max(axis=1)
        known = self.above[rows]
        found = _least_weights(self.values[::_THIN] / size[:, None], left[rows, ::_THIN] / size / known[:, None])
        every = np.arange(self.t.size)
        return np.stack([np.interp(every, rows, some) for some in found.T], axis=1)

    def _bound(self, weights: Array, left: Array) -> Array:
        """What f of these weights says, or a multiple of it."""
        f, slope = weights @ self.values.T, weights @ self.slopes.T
        rough, steep = np.abs(weights) @ self.values.T, np.abs(weights) @ np.abs(self.slopes).T
        f -= _ROUNDING * rough
        width = np.diff(self.y)
        ends = f[:, :-1] - f[:, 1:]
        with np.errstate(all="ignore"):
            # where the tangents meet
            share = (slope[:, 1:] * width + ends) / ((slope[:, 1:] - slope[:, :-1]) * width)
            share = np.clip(np.nan_to_num(share, nan=0.5), 0.0, 1.0)
            low = np.maximum(
                f[:, :-1] + (slope[:, :-1] - _ROUNDING * steep[:, :-1]) * share * width,
                f[:, 1:] - (slope[:, 1:] + _ROUNDING * steep[:, 1:]) * (1 - share) * width,
            )
            chord = left[:, :-1] + share * (left[:, 1:] - left[:, :-1])
            last = slope[:, -1] - _ROUNDING * steep[:, -1]
            times = np.maximum.reduce(
                [
                    np.where(f > 0, left / f, np.inf).max(axis=1),
                    np.where(low > 0, chord / low, np.inf).max(axis=1),
                    np.where(last > 0, self.rate / last, np.inf),
                ]
            )
            times *= _UP
            y = self.y[0]
            at_0 = f[:, 0] - slope[:, 0] * y - _ROUNDING * steep[:, 0] * y
            above = np.concatenate([[1.0], self.above])
            first = (1 - self.rate) * np.interp(self.t / (1 - self.rate), self.from_0, above) * _UP
            gap = np.maximum(first - times * at_0, 0.0) * _UP
            rare = math.exp(-((-math.log(y) - self.rho) ** 2) / (4 * self.rho)) * _UP
            sums = weights.sum(axis=1) + _ROUNDING * np.abs(weights).sum(axis=1)
            found = times * sums * _UP + gap * rare
        return np.asarray(np.where(np.isfinite(found), found, 1.0))


def _least_weights(terms: Array, goals: Array) -> Array:
    """About the w of least sum with terms·w ≥ goal, for each of ``goals``; all but the first two are not negative.

    It is the dual of the largest goal·ν, ν ≥ 0, of which every term has 1 at most, and the first two 1.
    """
    terms_t = terms.T
    size = terms_t.shape[0]
    full = np.concatenate([terms_t, np.eye(size)[:, 2:]], axis=1)
    cost = -np.concatenate([goals, np.zeros((goals.shape[0], size - 2))], axis=1)
    gram = full @ full.T
    first = full.T @ np.linalg.solve(gram, np.ones(size))
    y = np.linalg.solve(gram, full @ cost.T).T
    s = cost - y @ full
    x = np.tile(first + max(-1.5 * float(first.min()), 0.0), (goals.shape[0], 1))
    s += np.maximum(-1.5 * s.min(axis=1), 0.0)[:, None]
    product = (x * s).sum(axis=1)[:, None]
    x, s = x + 0.5 * product / s.sum(axis=1)[:, None], s + 0.5 * product / x.sum(axis=1)[:, None]

    def share(now: Array, move: Array) -> Array:
        """How far ``now`` may move."""
        return np.asarray(np.minimum(1.0, 0.95 / np.maximum((-move / now).max(axis=1), 1e-9))[:, None])

    with np.errstate(all="ignore"):
        for _ in range(_ROUNDS):
            primal, dual = 1 - x @ full.T, cost - y @ full - s
            mean = (x * s).mean(axis=1)[:, None]
            d = x / s
            normal = (full * d[:, None, :]) @ full.T
            normal += 1e-13 * np.eye(size) * np.trace(normal, axis1=1, axis2=2)[:, None, None] / size
            target = -x * s
            for corrected in (False, True):
                right = primal + (d * dual - target / s) @ full.T
                in_y = np.linalg.solve(normal, right[:, :, None])[:, :, 0]
                in_s = dual - in_y @ full
                in_x = (target - x * in_s) / s
                p, q = share(x, in_x), share(s, in_s)
                if not corrected:
                    after = ((x + p * in_x) * (s + q * in_s)).mean(axis=1)[:, None]
                    target = np.minimum((after / mean) ** 3, 1.0) * mean - x * s - in_x * in_s
            x, y, s = x + p * in_x, y + q * in_y, s + q * in_s
    weights = -y
    weights[:, 2:] = np.maximum(weights[:, 2:], 0.0)
    return weights

"""Many batches of a fixed size of pure mechanisms, one after another: what they cost when each follows the others.

One of n records is replaced, and a batch is m of them: q = m/n. The laws of a step are P = (1 − q)R + qS and Q =
(1 − q)R + qS′, as in :mod:`accounting.adaptive.fixed_batches.gaussian_batches`,
R, S and S′ the laws without the record, with it, and with its substitute; and k steps are a game V_k = Tᵏ·V₀, TV(x) =
max over R, S, S′ of E_P[V(x − L)], L = ln P/Q.

*Theorem.* Let R, S, S′ be within a factor a = e^ε₀ of each other. Then the maximum is reached where they are, up to a
common factor, one of

    R = (a, 1)        S = (1, a)        S′ = R              (or S and S′ exchanged),
    R = (a, 1, 1)     S = (1, a, 1)     S′ = (1, 1, a),
    R = (1, a, a)     S = (a, 1, a)     S′ = (a, a, 1).

*Proof.* Let u = dS/dR and v = dS′/dR. What a step is worth is E_R[G(u, v)], G convex (a convex function of P and Q that
is homogeneous of degree 1, of arguments linear in u and v), where E u = E v = 1 and (u, v) lies in the hexagon 1/a ≤ u,
v, u/v ≤ a. So (u, v) may be put on its corners (a, a), (a, 1), (1, a), (1/a, 1/a), (1/a, 1), (1, 1/a) with the same
mean (1, 1), and of laws on these six with that mean the best is an extreme one: on a segment or a triangle with (1, 1)
inside. As the corners lie from (1, 1) in the directions ±(1, 1), ±(1, 0), ±(0, 1), with + at a − 1 and − at 1 − 1/a,
these are three segments and the triangles (a, a), (1/a, 1), (1, 1/a) and (1/a, 1/a), (a, 1), (1, a). The masses follow
from the mean. On the segment from (a, a) to (1/a, 1/a) P is Q, which is worth least (Jensen). ∎

All of these are pure mechanisms, and each may follow what was seen: the game is what the worst ones do, exactly. Of
randomized response with k categories R, S and S′ are the responses to three categories, or S′ = R, or S = R. So it is
with unary encodings. There the bits of the three values matter, whose odds are α for a value's own bit and β for the
others, α = aβ; the densities of R, S and S′ are a^i, a^j and a^l, up to a common factor, at bits i, j and l of the
values of R, S and S′. These again are the corners and (1, 1), and R has them with weights α^i·β^(j + l).

*Numbers.* Losses are 0, ±ln(1 − q + qa) and ±ln(1 − q + q/a), on a grid of which the first is a multiple. From above,
the second is split over its two neighbours, as V is convex in e^x. From below, ε₀ is lowered a little, which any such
mechanism allows, so that both are multiples: then V is known exactly there, and
what lies between is known from below (:func:`~accounting.loss.curves.pair_of_points_below`). All terms
are positive, so rounding errors are relative to V, but for those of the losses, by which the curve is moved.

Serves mini-batches of a fixed size of anything pure: 100 × ``FixedSizeSubsampled(PureDP(0.5), 10, 1000)`` cost 0.196
at δ = 1e-6, and 0.212 step by step; with binary responses 0.439 and 0.502 at ε₀ = 1. By brute force:
``tests/accounting/adaptive/test_games.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from accounting.adaptive.engine import Batches, Board, Sparse, moved, play
from accounting.arrays import Array
from accounting.loss.curves import pair_of_points_below

__all__ = ["MOST_STEPS", "ReplacedCoins", "Response", "is_playable", "unary"]

Options = tuple[tuple[tuple[int, float], ...], ...]
#: How many categories a randomized response has, or which bits a unary encoding; None for any laws.
Response = int | Literal["optimized", "symmetric"] | None

#: More steps are several games.
MOST_STEPS = 4096
# Steps times nodes, a quarter of a second; and from below, where what ε₀ is lowered by falls with their square.
_WORK, _WORK_BELOW = 1.2e7, 3e7
# The nodes of the largest loss.
_FEWEST, _FINEST = 8, 4096
_LEAST_TAIL = 1e-290
# How far a loss may be from its node by rounding, as a share of the larger loss.
_MISSED = 1e-13


def is_playable(epsilon: float, rate: float) -> bool:
    """Whether the losses of a step are neither next to nothing nor too different for one grid."""
    return 1e-6 <= epsilon <= 8.0 and 1e-9 <= rate <= 1 - 1e-9


def unary(*, optimized: bool) -> Response:
    """Of a unary encoding; not optimized, it treats a bit of 1 as it does a bit of 0."""
    return "optimized" if optimized else "symmetric"


def _options(epsilon: float, response: Response, rate: float) -> Options:
    """The laws that a step may have: which loss, and how much P has there.

    Losses are numbered: 0, ±1 for ±ln(1 − q + q·e^ε) and ±2 for ∓ln(1 − q + q·e^(−ε)).
    """
    a = math.exp(epsilon)
    # weights of places, and whether R, S and S′ have a times as much there
    pair: list[tuple[float, tuple[int, int, int]]] = [(1.0, (1, 0, 1)), (1.0, (0, 1, 0))]
    triple = [(1.0, (1, 0, 0)), (1.0, (0, 1, 0)), (1.0, (0, 0, 1))]
    match response:
        case None:
            found = [pair, triple, [(1.0, (0, 1, 1)), (1.0, (1, 0, 1)), (1.0, (1, 1, 0))]]
        case int(k):
            found = [[*pair, (k - 2.0, (0, 0, 0))], *([[*triple, (k - 3.0, (0, 0, 0))]] if k > 2 else [])]
        case _:  # messages of bits, by the odds of one that is not the value's own
            odds = 1 / a if response == "optimized" else 1 / math.sqrt(a)
            pair = [(odds ** (i + j), (i, j, i)) for i, j in product((0, 1), repeat=2)]
            found = [pair, [(odds ** (i + j + l), (i, j, l)) for i, j, l in product((0, 1), repeat=3)]]
    found.append([(weight, (i, l, j)) for weight, (i, j, l) in found[0]])
    numbers = {(1, 0): 1, (0, 1): -1, (-1, 0): -2, (0, -1): 2}
    options = []
    for places in found:
        masses: dict[int, float] = {}
        for weight, (i, j, l) in places:
            loss = numbers.get((j - i, l - i), 0)
            masses[loss] = masses.get(loss, 0.0) + weight * a**i * (1 + rate * math.expm1((j - i) * epsilon))
        whole = math.fsum(weight * a**i for weight, (i, _, _) in places)
        options.append(tuple((loss, mass / whole) for loss, mass in masses.items()))
    return tuple(options)


def _losses(epsilon: float, rate: float) -> tuple[float, float]:
    """The larger and the smaller one."""
    return math.log1p(rate * math.expm1(epsilon)), -math.log1p(rate * math.expm1(-epsilon))


def _reach(epsilon: float, response: Response, rate: float, count: int, tail: float) -> float:
    """What no sum is larger than, but for ``tail``."""
    large, small = _losses(epsilon, rate)
    values = {0: 0.0, 1: large, -1: -large, 2: small, -2: -small}
    tilts = np.geomspace(1e-3, 600.0, 100) / large
    moments = [
        np.sum([mass * np.exp(tilts * values[loss]) for loss, mass in option], axis=0)
        for option in _options(epsilon, response, rate)
    ]
    # (Chernoff); what is cut off is counted all the same
    return min(count * large, float(np.min((count * np.log(np.max(moments, axis=0)) - math.log(tail)) / tilts)))


def _nodes(large: float, count: int, reach: float, work: float) -> NDArray[np.int64]:
    """Numbers of nodes for the larger loss that take an acceptable time."""
    most = int(min(max(work * large / (count * reach), 2 * _FEWEST), _FINEST))
    return np.arange(most // 2, most + 1)


def lowered(epsilon: float, rate: float, count: int, tail: float) -> tuple[float, int, int]:
    """A lower ε₀ of which both losses are multiples of one step, and the multiples; 0 if there is none near by."""
    large, small = _losses(epsilon, rate)
    sizes = _nodes(large, count, _reach(epsilon, None, rate, count, tail), _WORK_BELOW)
    # the ratio of the losses rises to 1 as ε₀ falls to 0
    upper = np.floor(sizes * (small / large)) + 1
    apart = np.where(upper < sizes, upper / sizes - small / large, math.inf)
    best = int(np.argmin(apart))
    if not apart[best] < 0.1 * (1 - small / large):
        return 0.0, 0, 0
    ratio = float(upper[best] / sizes[best])

    def too_low(at: float) -> bool:
        one, other = _losses(at, rate)
        return other >= ratio * one

    low, high = epsilon / 2, epsilon
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if too_low(middle) else (low, middle)
    one, other = _losses(low, rate)
    if abs(other - ratio * one) > _MISSED / 2 * one:  # it is less than half of ε₀
        return 0.0, 0, 0
    return low, int(sizes[best]), int(upper[best])


def _on_grid(options: Options, small: float, step: float, at: int) -> Options:
    """The options with the larger loss ``at`` nodes from 0, and the smaller one split over its two neighbours."""
    node = math.floor(small / step)
    found = []
    for option in options:
        masses: dict[int, float] = {}
        for loss, mass in option:
            if abs(loss) != 2:
                masses[loss * at] = masses.get(loss * at, 0.0) + mass
                continue
            low = node if loss > 0 else -node - 1
            # P and Q keep their masses between the nodes
            up = min(1.0, math.expm1(step * low - math.copysign(small, loss)) / math.expm1(-step) + 1e-12)
            for shift, share in ((low, 1 - up), (low + 1, up)):
                masses[shift] = masses.get(shift, 0.0) + share * mass
        found.append(tuple(masses.items()))
    return tuple(found)


def _play(options: Options, step: float, at: int, reach: float, count: int, *, lower: bool) -> tuple[Array, Array]:
    """Losses from 0 on, and V there after ``count`` steps, rounded up or down."""
    size = max(math.ceil(reach / step), 2 * at) + 2
    family = Sparse(Board(step, symmetric=True, lower=lower), options, 1e-14)
    return step * np.arange(size, dtype=np.float64), play([(family, count)], np.zeros(size))


@lru_cache(maxsize=8)
def _values(epsilon: float, response: Response, rate: float, count: int, tail: float) -> tuple[Array, Array]:
    """Losses from 0 on, evenly spaced, and V there after ``count`` steps, rounded up."""
    large, small = _losses(epsilon, rate)
    reach = _reach(epsilon, response, rate, count, tail)
    at = int(_nodes(large, count, reach, _WORK)[-1])
    step = large / at
    options = _on_grid(_options(epsilon, response, rate), small, step, at)
    losses, values = _play(options, step, at, reach, count, lower=False)
    return moved(losses, values, _MISSED * count * large)


@lru_cache(maxsize=8)
def _values_at_least(
    epsilon: float, response: Response, rate: float, count: int, tail: float
) -> tuple[Array, Array, float]:
    """The same rounded down, of a lower ε₀; and how far losses are moved at most by rounding."""
    epsilon, at, node = lowered(epsilon, rate, count, tail)
    large, _ = _losses(epsilon, rate)
    places = {0: 0, 1: at, -1: -at, 2: node, -2: -node}
    options = tuple(
        tuple((places[loss], mass) for loss, mass in option) for option in _options(epsilon, response, rate)
    )
    reach = _reach(epsilon, response, rate, count, tail)
    return *_play(options, large / at, at, reach, count, lower=True), _MISSED * count * large


@dataclass(frozen=True)
class ReplacedCoins(Batches):
    """``count`` steps with laws within e^``epsilon`` of each other, or a ``response``; last of a composition.

    ``tail`` is a probability that may be cut off. With ``from_below`` it is a lower bound on what the worst of these
    cost, where they come last.
    """

    epsilon: float
    response: Response
    rate: float
    count: int
    tail: float
    from_below: bool = False

    def _curve(self) -> tuple[Array, Array]:
        return _values(self.epsilon, self.response, self.rate, self.count, max(self.tail, _LEAST_TAIL))

    def _below(self) -> tuple[Array, Array, Array]:
        tail = max(self.tail, _LEAST_TAIL)
        losses, values, moved = _values_at_least(self.epsilon, self.response, self.rate, self.count, tail)
        # sums beyond the end count for nothing, and products are right to a few units in the last place
        most = values * (1 + 1e-9) + self.count * tail
        losses, p, q = pair_of_points_below(losses, values, most)
        return losses - moved, p, q

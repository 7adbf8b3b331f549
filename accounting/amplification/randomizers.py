"""Local randomizers whose own blankets are known: what their shuffled messages cost, from above and from below.

The curves are those of :mod:`accounting.amplification.blanket` (k-ary responses), :mod:`accounting.amplification.unary`
and :mod:`accounting.amplification.local_laplace`, each for two neighbours that are the worst.

For compositions a curve is turned into a pair (:mod:`accounting.loss.curves`). As that needs a hundred values,
k-ary and unary messages have a faster curve here: E[(ΣG)₊]/n with G's few values spread over a grid, as for Laplace
noise (:mod:`accounting.amplification.lattice_sums`).

From below, in compositions, every message is reduced to one of three: it speaks for the first value, for the second, or
for neither. What is released is at least the difference D of the two counts.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from accounting.amplification.blanket import response_delta, response_delta_at_least
from accounting.amplification.lattice_sums import nodes_for, sums_of_values
from accounting.amplification.local_laplace import laplace_thirds, local_laplace_delta, local_laplace_delta_at_least
from accounting.amplification.unary import unary_delta, unary_delta_at_least, unary_thirds, unary_types
from accounting.arrays import Array
from accounting.releases import Laplace, RandomizedResponse, UnaryEncoding
from accounting.roots import root_between

__all__ = ["Randomizer", "curve_atoms", "delta_at_least", "delta_at_most", "epsilon_at_least", "thirds"]

Randomizer = RandomizedResponse | UnaryEncoding | Laplace

# More users than this are priced as this many.
_MOST_USERS = 1 << 20
# The grid's step over one message's deviation, in compositions, and the largest transform.
_FINENESS, _MOST_NODES = 0.1, 1 << 17
# Points of a curve: evenly spaced up to so many deviations of the loss, then geometrically.
_EVEN, _DEVIATIONS, _GEOMETRIC = 70, 8.0, 15


def local_epsilon_of(randomizer: Randomizer) -> float:
    """What the randomizer costs by itself."""
    return 1.0 / randomizer.noise_multiplier if isinstance(randomizer, Laplace) else randomizer.epsilon


def delta_at_most(randomizer: Randomizer, users: int, epsilon: float) -> float:
    """δ at ε ≥ 0 of shuffled messages, rounded up."""
    match randomizer:
        case RandomizedResponse(epsilon=local, categories=k):
            return response_delta(local, int(k), users, epsilon)
        case UnaryEncoding(epsilon=local, optimized=optimized):
            return unary_delta(local, optimized, users, epsilon)
        case Laplace():
            return local_laplace_delta(local_epsilon_of(randomizer), users, epsilon)


def delta_at_least(randomizer: Randomizer, users: int, epsilon: float) -> float:
    """δ at ε ≥ 0 of shuffled messages where all others hold one and the same value, rounded down."""
    match randomizer:
        case RandomizedResponse(epsilon=local, categories=k):
            return response_delta_at_least(local, int(k), users, epsilon)
        case UnaryEncoding(epsilon=local, optimized=optimized):
            return unary_delta_at_least(local, optimized, users, epsilon)
        case Laplace():
            return local_laplace_delta_at_least(local_epsilon_of(randomizer), users, epsilon)


def epsilon_at_least(randomizer: Randomizer, users: int, delta: float) -> float:
    """A lower bound on the ε at ``delta`` of shuffled messages."""
    high = local_epsilon_of(randomizer)
    step = 1e-9 * high
    if delta_at_least(randomizer, users, step) <= delta:  # the root may be anything down to the smallest float
        return 0.0

    def distance(at: float) -> float:
        # close to linear, as √(−ln δ) is
        return math.sqrt(-math.log(max(delta_at_least(randomizer, users, at), 1e-320))) - math.sqrt(-math.log(delta))

    found = root_between(distance, step, high, absolute=step) - step
    while found > 0 and delta_at_least(randomizer, users, found) <= delta:
        found -= step
        step *= 2
    return max(found, 0.0)


def thirds(randomizer: Randomizer) -> tuple[float, float, float]:
    """The probabilities of a message for the first value: from others, who hold neither, the first's, the second's."""
    match randomizer:
        case RandomizedResponse(epsilon=local, categories=k):
            lie = math.exp(-local) / (1 + (int(k) - 1) * math.exp(-local))
            return lie, 1 / (1 + (int(k) - 1) * math.exp(-local)), lie
        case UnaryEncoding(epsilon=local, optimized=optimized):
            return unary_thirds(local, optimized)
        case Laplace():
            return laplace_thirds(local_epsilon_of(randomizer))


# ------------------------------------------------------------------------------------------------- curves as pairs


def _quick_delta(randomizer: Randomizer, users: int, epsilon: float) -> float:
    """As ``delta_at_most``, a little above it, and faster."""
    local = local_epsilon_of(randomizer)
    if epsilon >= local:
        return 0.0
    grown, n = math.exp(epsilon), min(users, _MOST_USERS)
    match randomizer:
        case RandomizedResponse(categories=2):
            return response_delta(local, 2, users, epsilon)
        case RandomizedResponse(categories=k):
            share, blanket = 1 / int(k), int(k) / (math.exp(local) + int(k) - 1)
            mass = np.array([share, share, 1 - 2 * share])
            # the densities of the two messages relative to γω
            first, second = np.array([math.exp(local), 1.0, 1.0]), np.array([1.0, math.exp(local), 1.0])
        case UnaryEncoding(optimized=optimized):
            mass, first, second, blanket = unary_types(local, optimized)
        case Laplace():
            return local_laplace_delta(local, users, epsilon)
    values = np.append(first - grown * second, 0.0)
    mass = np.append(blanket * mass, max(0.0, 1 - blanket))
    return min(1.0, sums_of_values(values, mass, n, min(_MOST_NODES, nodes_for(n, _FINENESS)), 1.0) / n)


@lru_cache(maxsize=32)
def curve_atoms(randomizer: Randomizer, users: int) -> tuple[Array, Array, Array]:
    """A pair that dominates shuffled messages: its losses in increasing order, and its masses under P and Q."""
    from accounting.loss.curves import pair_of_curve

    top = local_epsilon_of(randomizer)
    # a normal loss of deviation s has δ(0) ≈ s/√(2π)
    deviation = math.sqrt(2 * math.pi) * _quick_delta(randomizer, users, 0.0)
    core = min(top / 2, _DEVIATIONS * deviation)
    half = np.concatenate([np.linspace(0, core, _EVEN + 1), np.geomspace(core, top, _GEOMETRIC + 1)[1:]])
    values = np.array([*(_quick_delta(randomizer, users, float(at)) for at in half[:-1]), 0.0])
    return pair_of_curve(half, values)[:3]

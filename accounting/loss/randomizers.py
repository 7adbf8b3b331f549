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
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from accounting.amplification.blanket import MOST_USERS, response_delta, response_delta_at_least
from accounting.amplification.lattice_sums import nodes_for, sums_of_values
from accounting.amplification.local_laplace import laplace_thirds, local_laplace_delta, local_laplace_delta_at_least
from accounting.amplification.shuffling import where_delta_is
from accounting.amplification.unary import unary_delta, unary_delta_at_least, unary_thirds, unary_types
from accounting.arrays import Array
from accounting.loss.curves import pair_of_curve

__all__ = ["Encodings", "NoisyNumbers", "Randomizer", "Responses", "curve_atoms", "epsilon_at_least"]

# The grid's step over one message's deviation, in compositions, and the largest transform.
_FINENESS, _MOST_NODES = 0.1, 1 << 17
# Points of a curve: evenly spaced up to so many deviations of the loss, then geometrically.
_EVEN, _DEVIATIONS, _GEOMETRIC = 70, 8.0, 15


@dataclass(frozen=True)
class Responses:
    """k-ary randomized response."""

    epsilon: float
    categories: int

    def delta_at_most(self, users: int, epsilon: float) -> float:
        """δ at ε ≥ 0 of shuffled messages, rounded up."""
        return response_delta(self.epsilon, self.categories, users, epsilon)

    def delta_at_least(self, users: int, epsilon: float) -> float:
        """δ at ε ≥ 0 of shuffled messages where all others hold one and the same value, rounded down."""
        return response_delta_at_least(self.epsilon, self.categories, users, epsilon)

    def quick_delta(self, users: int, epsilon: float) -> float:
        """As ``delta_at_most`` at an ε below its own, a little above it, and faster."""
        local, k = self.epsilon, self.categories
        if k == 2:
            return response_delta(local, 2, users, epsilon)
        # the densities of the two messages relative to γω
        first, second = np.array([math.exp(local), 1.0, 1.0]), np.array([1.0, math.exp(local), 1.0])
        mass = np.array([1 / k, 1 / k, 1 - 2 / k])
        return _quick(mass, first, second, k / (math.exp(local) + k - 1), users, epsilon)

    def thirds(self) -> tuple[float, float, float]:
        """The probabilities of a message for the first value: from others, who hold neither, the first's, the
        second's."""
        shrunk, others = math.exp(-self.epsilon), self.categories - 1
        lie = shrunk / (1 + others * shrunk)
        return lie, 1 / (1 + others * shrunk), lie


@dataclass(frozen=True)
class Encodings:
    """Unary encodings, ``optimized`` or as in RAPPOR."""

    epsilon: float
    optimized: bool

    def delta_at_most(self, users: int, epsilon: float) -> float:
        return unary_delta(self.epsilon, self.optimized, users, epsilon)

    def delta_at_least(self, users: int, epsilon: float) -> float:
        return unary_delta_at_least(self.epsilon, self.optimized, users, epsilon)

    def quick_delta(self, users: int, epsilon: float) -> float:
        return _quick(*unary_types(self.epsilon, self.optimized), users, epsilon)

    def thirds(self) -> tuple[float, float, float]:
        return unary_thirds(self.epsilon, self.optimized)


@dataclass(frozen=True)
class NoisyNumbers:
    """Laplace noise of scale 1/``epsilon`` on a number in [0, 1]."""

    epsilon: float

    def delta_at_most(self, users: int, epsilon: float) -> float:
        return local_laplace_delta(self.epsilon, users, epsilon)

    def delta_at_least(self, users: int, epsilon: float) -> float:
        return local_laplace_delta_at_least(self.epsilon, users, epsilon)

    def quick_delta(self, users: int, epsilon: float) -> float:
        return local_laplace_delta(self.epsilon, users, epsilon)

    def thirds(self) -> tuple[float, float, float]:
        return laplace_thirds(self.epsilon)


#: What is known of the shuffled messages of users who all run it; the methods of :class:`Responses` say what each does.
Randomizer = Responses | Encodings | NoisyNumbers


def epsilon_at_least(randomizer: Randomizer, users: int, delta: float) -> float:
    """A lower bound on the ε at ``delta`` of shuffled messages."""
    high = randomizer.epsilon
    step = 1e-9 * high
    if randomizer.delta_at_least(users, step) <= delta:  # the root may be anything down to the smallest float
        return 0.0
    found = where_delta_is(delta, lambda at: randomizer.delta_at_least(users, at), step, high, step) - step
    while found > 0 and randomizer.delta_at_least(users, found) <= delta:
        found -= step
        step *= 2
    return max(found, 0.0)


# ------------------------------------------------------------------------------------------------- curves as pairs


def _quick(mass: Array, first: Array, second: Array, blanket: float, users: int, epsilon: float) -> float:
    """E[(ΣG)₊]/n of messages of a few types, G being the first density less e^ε times the second."""
    values = np.append(first - math.exp(epsilon) * second, 0.0)
    mass, n = np.append(blanket * mass, max(0.0, 1 - blanket)), min(users, MOST_USERS)
    return min(1.0, sums_of_values(values, mass, n, min(_MOST_NODES, nodes_for(n, _FINENESS)), 1.0) / n)


@lru_cache(maxsize=32)
def curve_atoms(randomizer: Randomizer, users: int) -> tuple[Array, Array, Array, float]:
    """The atoms of a pair that dominates shuffled messages."""
    top = randomizer.epsilon
    # a normal loss of deviation s has δ(0) ≈ s/√(2π)
    deviation = math.sqrt(2 * math.pi) * randomizer.quick_delta(users, 0.0)
    core = min(top / 2, _DEVIATIONS * deviation)
    half = np.concatenate([np.linspace(0, core, _EVEN + 1), np.geomspace(core, top, _GEOMETRIC + 1)[1:]])
    values = np.array([*(randomizer.quick_delta(users, float(at)) for at in half[:-1]), 0.0])
    return pair_of_curve(half, values)

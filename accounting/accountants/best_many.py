"""The best of some runs, many times, by moments of the loss: ε and δ.

Let the moments E_P[e^(tL)] of all steps be at most e^m together, as :mod:`accounting.accountants.best_moments` has them
for any order of outputs. As (1 − e^(ε − L))₊ ≤ e^(t(L − ε))·t^t/(1 + t)^(1 + t),

    δ(ε) ≤ e^(m − tε)·t^t/(1 + t)^(1 + t)

(Canonne, Kamath & Steinke 2020, Proposition 12), also if each step follows those before it: given these, the moment of
what is left is at most the product of the others. Beside other releases the moments of their pairs are factors, of
losses that are rounded up. Every t is valid; a few are tried.

*Beyond.* The pair of one run is (P, Q) up to β of P that Q has not, and as much the other way round: it is a mixture of
the two, with a chance of at most β over the mass that P and Q share for what they do not share. In any of K runs that
happens with E[K] times that chance at most, under either neighbour, so that each step adds 1 + e^ε times as much to δ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np

from accounting.accountants.best_moments import log_moment
from accounting.accountants.best_pairs import BestPair, one_run
from accounting.accountants.convolution import Convolution, Parts

__all__ = ["delta_of_best", "epsilon_of_best", "order_of_best"]

# A better order, by one and its moment, and the power of the order that moments are like.
Better = Callable[[float, float, float], float]

# Orders that are tried, until they are that near.
_ORDERS, _NEAR = 5, 0.04
# Several kinds take too long.
_MOST_KINDS = 3
# ln of what is cut off other sums.
_TAIL = -100.0
# Moments are hardly less than this share of what is guessed of them.
_LITTLE = 0.8


def order_of_best(parts: Parts, delta: float) -> float:
    """About the t by which moments of ``parts`` say most of ε."""
    order = 1.0
    for _ in range(20):
        rare = max(0.1, -math.log(delta) - math.log1p(order))
        order = min(2 * order, math.sqrt(2 * rare / _spread(parts, order)))
    return order


def epsilon_of_best(parts: Parts, delta: float, about: float) -> float:
    """ε at ``delta``, or ``about`` where that is less; it is an upper bound."""
    if not _is_small(parts) or not 0 < about < math.inf:
        return about
    left, order, found = delta - _beyond(parts, about), order_of_best(parts, delta), about
    if left <= 0 or _is_hopeless(parts, order, about, left):
        return about
    rare = -math.log(left)
    tried = _tried(
        parts,
        order,
        lambda t, moment, power: t * (max(0.1, rare - math.log1p(t)) / ((power - 1) * moment)) ** (1 / power),
    )
    for t, moment in tried:
        found = min(found, (_log_delta(moment, t, 0.0) + rare) / t * (1 + 1e-12))
    return max(found, 0.0)


def delta_of_best(parts: Parts, epsilon: float, about: float) -> float:
    """δ at ``epsilon``, or ``about`` where that is less; it is an upper bound."""
    if not _is_small(parts) or not 0 < about < 1:
        return about
    order, found = order_of_best(parts, about), about
    if _is_hopeless(parts, order, epsilon, about):
        return about
    tried = _tried(
        parts,
        order,
        lambda t, moment, power: t * (t * (epsilon + math.log1p(1 / t)) / (power * moment)) ** (1 / (power - 1)),
    )
    for t, moment in tried:
        found = min(found, math.exp(min(0.0, _log_delta(moment, t, epsilon))) * (1 + 1e-9) + _beyond(parts, epsilon))
    return found


def _tried(parts: Parts, order: float, better: Better) -> Iterator[tuple[float, float]]:
    """Orders and their moments, each better than the one before if moments were like a power of the order."""
    last = None
    for _ in range(_ORDERS):
        moment = _moment(parts, order)
        if not math.isfinite(moment):
            order /= 3
            continue
        yield order, moment
        power = (2 * order + 1) / (order + 1)
        if last is not None:
            power = min(max(math.log(moment / last[1]) / math.log(order / last[0]), 1.1), 20.0)
        last = order, moment
        order = min(max(better(order, moment, power), order / 3), 3 * order)
        if abs(order - last[0]) < _NEAR * order:
            return


def _is_small(parts: Parts) -> bool:
    """Whether there are such releases, among others, and of few kinds."""
    kinds = sum(isinstance(pair, BestPair) for pair, _ in parts)
    return 1 <= kinds <= _MOST_KINDS and sum(count for _, count in parts) > 1


def _log_delta(moment: float, order: float, epsilon: float) -> float:
    """ln of what δ is at most: e^(``moment`` − tε)·t^t/(1 + t)^(1 + t), t the ``order``."""
    return moment - order * (epsilon + math.log1p(1 / order)) - math.log1p(order)


def _spread(parts: Parts, order: float) -> float:
    """About 2/(t(t + 1)) times the logarithm of all moments: the squared losses, the largest ones first."""
    total, others = 0.0, _others(parts)
    for pair, count in parts:
        if isinstance(pair, BestPair):
            losses, p, _, _ = one_run(pair.inner)
            first = np.argsort(-np.abs(losses))
            better = np.minimum(np.cumsum(p[first]) - p[first], 1.0)
            total += count * float(pair.runs.gain(better, p[first]) @ losses[first] ** 2)
    return total + (2 * others.curve(order) / (order * (order + 1)) if others else 0.0)


def _is_hopeless(parts: Parts, order: float, epsilon: float, delta: float) -> bool:
    """Whether moments would have to be far smaller than they are guessed to be."""
    guess = _spread(parts, order) * order * (order + 1) / 2
    return _log_delta(_LITTLE * guess, order, epsilon) > math.log(delta)


@lru_cache(maxsize=4)
def _others(parts: Parts) -> Convolution | None:
    """All other pairs."""
    others = tuple((pair, count) for pair, count in parts if not isinstance(pair, BestPair))
    return Convolution(others, _TAIL) if others else None


def _moment(parts: Parts, order: float) -> float:
    """ln of the product of all moments."""
    total = sum(count * log_moment(pair.runs, pair.inner, order) for pair, count in parts if isinstance(pair, BestPair))
    others = _others(parts)
    return total + (others.curve(order) * (1 + 1e-9) if others else 0.0)


def _beyond(parts: Parts, epsilon: float) -> float:
    """What δ is more, as losses are not always among those that moments are taken of."""
    others = _others(parts)
    total = others.cut_off if others else 0.0
    for pair, count in parts:
        if isinstance(pair, BestPair):
            _, p, q, beyond = one_run(pair.inner)
            alike = float(np.minimum(p, q).sum())
            total += count * pair.runs.mean * beyond / alike * (1 + math.exp(min(epsilon, 700.0)))
    return total

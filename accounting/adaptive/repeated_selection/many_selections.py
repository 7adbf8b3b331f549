"""The best of some runs, many times: moments of the loss, for each Rényi order with the worst order of outputs.

One pair that dominates the best of K runs has the worst order of outputs at every ε
(:mod:`accounting.adaptive.repeated_selection.one_selection`). Of ten of them no mechanism is nearly as bad, as one
order has to do for all that may be seen of a step. But E_P[e^(tL)] has a bound for any order of outputs, for one t > 0
(:mod:`accounting.adaptive.repeated_selection.worst_moment`). Such moments multiply, also if each step follows those
before it: given these, the moment of what is left is at most the product of the others. (A game of values, as
:mod:`accounting.adaptive.engine` plays it, would need the laws that one step may have, and all orders are too many.)

**From moments to δ.** Let those of all steps be at most e^m together. As (1 − e^(ε − L))₊ ≤
e^(t(L − ε))·t^t/(1 + t)^(1 + t),

    δ(ε) ≤ e^(m − tε)·t^t/(1 + t)^(1 + t)

(Canonne, Kamath & Steinke 2020, Proposition 12). Beside other releases the moments of their pairs are factors, of
losses that are rounded up. Every t is valid. Those that are tried are of one geometric sequence, whichever of ε and δ
is asked for: so the two belong together, and change little if noise does.

**Beyond.** The pair of one run is (P, Q) up to β of P that Q has not, and as much the other way round: it is a mixture
of the two, with a chance of at most β over the mass that P and Q share for what they do not share. In any of K runs
that happens with E[K] times that chance at most, under either neighbour, so that each step adds 1 + e^ε times as much
to δ.

Serves whoever tunes again and again: 10 × ``BestOfRuns(Gaussian(8.0), stop=0.1)`` cost 3.649 at δ = 1e-6, and 4.445 by
the pairs of single selections. By brute force, against orders of a hundred outputs:
``tests/accounting/adaptive/test_many_selections.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache

import numpy as np

from accounting.adaptive.repeated_selection.one_selection import BestPair, one_run
from accounting.adaptive.repeated_selection.worst_moment import log_moment
from accounting.compose.convolution import Convolution, Parts

__all__ = ["delta", "epsilon", "order_of_best"]
# ln of a better order over one, by that and its moment, and the power of the order that moments are like.
Better = Callable[[float, float, float], float]

# Orders that are tried, at most; ln of one over the one before, and how many of them the next one is away, at most.
_ORDERS, _STEP, _FAR = 6, math.log(2) / 8, 12
# Several kinds take too long.
_MOST_KINDS = 3
# ln of what is cut off other sums.
_TAIL = -100.0
# Moments are hardly less than this share of what is guessed of them.
_LITTLE = 0.8
# Moments are rounded up to it.
_LEAST = 1e-12


def order_of_best(parts: Parts, delta: float) -> float:
    """About the t by which moments of ``parts`` say most of ε."""
    order = 1.0
    for _ in range(20):
        rare = max(0.1, -math.log(delta) - math.log1p(order))
        order = min(2 * order, math.sqrt(2 * rare / _spread(parts, order)))
    return order


def epsilon(parts: Parts, delta: float, of_sum: Callable[[], float], enough: float) -> float | None:
    """ε at ``delta``, or that of the sum where it is less; None of other parts."""
    if not _is_small(parts):
        return None
    found = about = of_sum()
    if not 0 < about < math.inf:
        return about
    with suppress(ArithmeticError):  # numbers beyond floats: what was found before is a bound all the same
        left, order = delta - _beyond(parts, about), order_of_best(parts, delta)
        if left <= 0 or _is_hopeless(parts, order, about, left):
            return about
        rare = -math.log(left)
        for t, moment in _tried(parts, order, _better_epsilon(rare)):
            found = min(found, max(0.0, (_log_delta(moment, t, 0.0) + rare) / t * (1 + 1e-12)))
    return found


def delta(parts: Parts, epsilon: float, of_sum: Callable[[], float], enough: float) -> float | None:
    """δ at ``epsilon``, or that of the sum where it is less; None of other parts."""
    if not _is_small(parts):
        return None
    found = about = of_sum()
    if about <= 0:
        return about
    with suppress(ArithmeticError):
        order, beyond = order_of_best(parts, about), _beyond(parts, epsilon)
        if beyond >= about or _is_hopeless(parts, order, epsilon, about):
            return about

        def least(tried: Iterator[tuple[float, float]]) -> float:
            logs = [_log_delta(moment, t, epsilon) for t, moment in tried]
            return min((math.exp(min(0.0, log)) * (1 + 1e-9) + beyond for log in logs), default=1.0)

        found = min(found, least(_tried(parts, order, _better_delta(epsilon))))
        # and by the orders that are tried where ε is asked for, at this δ: so the two are each other's inverse
        while beyond < found:
            order = order_of_best(parts, found)
            again = least(_tried(parts, order, _better_epsilon(-math.log(found - beyond))))
            if again >= found:
                break
            found = again
    return found


def _better_epsilon(rare: float) -> Better:
    """At which order ε is less, for a δ of e^−``rare``."""
    return lambda t, moment, power: math.log(max(0.1, rare - math.log1p(t)) / ((power - 1) * moment)) / power


def _better_delta(epsilon: float) -> Better:
    return lambda t, moment, power: math.log(t * (epsilon + math.log1p(1 / t)) / (power * moment)) / (power - 1)


def _tried(parts: Parts, order: float, better: Better) -> Iterator[tuple[float, float]]:
    """Orders of a geometric sequence and their moments, up to both that are next to the best one.

    It is guessed as if moments were like a power of the order.
    """
    known: dict[int, float] = {}
    at, last, ceiling = round(math.log(order) / _STEP), None, 10_000
    for _ in range(_ORDERS):
        t = math.exp(at * _STEP)
        known[at] = moment = _moment(parts, t)
        if not math.isfinite(moment):
            ceiling, at = at, at - _FAR
            continue
        yield t, moment
        power = (2 * t + 1) / (t + 1)
        if last is not None:
            power = min(max(math.log(moment / known[last]) / ((at - last) * _STEP), 1.1), 20.0)
        last = at
        best = at + min(max(better(t, moment, power) / _STEP, -_FAR), _FAR)
        next_to = [place for place in (math.floor(best), math.floor(best) + 1) if place < ceiling]
        left = [place for place in next_to or [ceiling - 1] if place not in known]
        if not left:
            return
        at = min(left, key=lambda place: abs(place - best))


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
    return Convolution(others, _TAIL, alone=False) if others else None


def _moment(parts: Parts, order: float) -> float:
    """ln of the product of all moments."""
    total = sum(count * log_moment(pair.runs, pair.inner, order) for pair, count in parts if isinstance(pair, BestPair))
    others = _others(parts)
    return max(total + (others.curve(order) * (1 + 1e-9) if others else 0.0), _LEAST)


def _beyond(parts: Parts, epsilon: float) -> float:
    """What δ is more, as losses are not always among those that moments are taken of."""
    others = _others(parts)
    total = others.cut_off if others else 0.0
    for pair, count in parts:
        if isinstance(pair, BestPair):
            _, p, q, beyond = one_run(pair.inner)
            alike = float(np.minimum(p, q).sum())
            chance = beyond / alike if alike > beyond else 1.0
            total += count * pair.runs.mean * chance * (1 + math.exp(min(epsilon, 700.0)))
    return total

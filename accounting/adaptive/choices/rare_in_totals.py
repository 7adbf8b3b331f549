"""Games of choices among the parts of a total: one long game of many, of which few tell much, in place of several.

An entry of :mod:`accounting.adaptive.registry`: :func:`in_place` puts it beside other releases; :func:`epsilon` and
:func:`delta` play it alone, without a pair.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

from accounting.adaptive.choices.coins import CoinKind
from accounting.adaptive.choices.every_coin import OfOneKind, PlayedPair
from accounting.adaptive.choices.rare_choices import (
    LongPair,
    curve_of_many,
    delta_of_many,
    epsilon_of_many,
    is_long,
)
from accounting.compose.convolution import Parts
from accounting.loss.pair import LossPair

__all__ = ["delta", "epsilon", "in_place"]

# ln of δ for which a curve is known is a multiple of this.
_LEVELS = 2.0


def _counts(parts: Parts) -> Counter[CoinKind]:
    """How many choices of each kind are in games of that kind alone."""
    counts: Counter[CoinKind] = Counter()
    for pair, times in parts:
        if (game := _single_game(pair)) is not None:
            counts[game[0]] += game[1] * times
    return counts


def _single_game(pair: LossPair) -> OfOneKind | None:
    return pair.games[0] if isinstance(pair, PlayedPair) and len(pair.games) == 1 else None


def _alone(parts: Parts) -> OfOneKind | None:
    """The kind and the number of choices, if ``parts`` are nothing but games of one kind."""
    counts = _counts(parts)
    if len(counts) != 1 or any(_single_game(pair) is None for pair, _ in parts):
        return None
    ((kind, count),) = counts.items()
    return kind, count


def in_place(parts: Parts, delta: float) -> Parts | None:
    """``parts`` with one long game of many choices, of which few tell much, in place of several beside other releases.

    Alone they need no pair.
    """
    if _alone(parts):
        return None
    # of few different values, so that one game serves many questions; rarer losses matter little
    level = math.floor(math.log(max(delta, 1e-280)) / _LEVELS) * _LEVELS
    many = {
        kind: LongPair(kind, count, level)
        for kind, count in _counts(parts).items()
        if is_long(kind, count, level) and curve_of_many(kind, count, level) is not None
    }
    others = tuple(part for part in parts if (game := _single_game(part[0])) is None or game[0] not in many)
    return (*others, *((pair, 1) for pair in many.values())) if many else None


def epsilon(parts: Parts, delta: float, of_sum: Callable[[], float], enough: float) -> float | None:
    many = _alone(parts)
    return epsilon_of_many(*many, delta, enough) if many and is_long(*many, math.log(delta)) else None


def delta(parts: Parts, epsilon: float, of_sum: Callable[[], float], enough: float) -> float | None:
    many = _alone(parts)
    return delta_of_many(*many, epsilon, enough) if many else None

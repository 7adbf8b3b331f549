"""Where the parts of a total are private choices: put the games of this package in their place.

A game of fewer choices dominates these, whatever else there is, and so does the pair of a single one. With Gumbel noise
that pair has the curve of the game of one. With Laplace noise it is that of the noise itself, and the game costs less:
the coin with the loss ε yields it less than half of the time. With exponential noise there is no game: each choice is
as Laplace noise.

An entry of :mod:`accounting.adaptive.registry`: :func:`replaced` puts games of up to 250 choices of a kind in place of
choices, whatever is asked; :func:`epsilon` and :func:`delta` play the choices of one kind alone, without a pair.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

from accounting.adaptive.choices.coins import CoinKind, kind_of
from accounting.adaptive.choices.every_coin import (
    OfOneKind,
    PlayedPair,
    is_playable,
    most_played,
    played_delta,
    played_epsilon,
    states,
)
from accounting.compose.convolution import Parts
from accounting.loss.pair import LossPair

__all__ = ["delta", "epsilon", "replaced"]

# A few choices of several kinds are played together, in any order, if no more of them may be left in as many ways.
_FEW, _MOST_STATES = 12, 1000
# The share of the sum of all the largest losses from which on games are less sharp than sums.
_NEAR = 0.9


def replaced(pairs: Counter[LossPair]) -> Counter[LossPair]:
    """``pairs`` with the choices of each kind as one pair, or a few: what they cost one after another."""
    found: Counter[LossPair] = Counter()
    few: list[tuple[LossPair, OfOneKind]] = []
    for pair, count in sorted(pairs.items(), key=lambda part: (part[1], repr(part[0]))):
        kind = kind_of(pair)
        if kind is None or (len(pairs) == 1 and is_playable(kind, count) and (count > 1 or _is_exact(kind))):
            found[pair] += count  # no game, or no pair is needed
            continue
        games = -(-count // most_played(kind, count))
        each, more = divmod(count, games)
        for size, times in ((each + 1, more), (each, games - more)):
            game = kind, size
            if times and not is_playable(kind, size):
                found[pair] += times * size
            elif times == 1 and size <= _FEW and states((*(one for _, one in few), game)) <= _MOST_STATES:
                few.append((pair, game))
            elif times:
                found[_of_one_kind(pair, game)] += times
    if len(few) == 1:
        found[_of_one_kind(*few[0])] += 1
    elif few:
        found[PlayedPair(tuple(game for _, game in few))] += 1
    return +found


def _is_exact(kind: CoinKind) -> bool:
    """Whether the pair of a single choice is: but for Laplace noise, where the coins are less than that."""
    return kind.least == 0


def _of_one_kind(pair: LossPair, game: OfOneKind) -> LossPair:
    kind, count = game
    return pair if count == 1 and _is_exact(kind) else PlayedPair((game,))


def _alone(parts: Parts) -> OfOneKind | None:
    """The game, if ``parts`` are nothing but choices of one kind, and few enough."""
    (pair, count), *more = parts
    kind = None if more else kind_of(pair)
    return (kind, count) if kind is not None and is_playable(kind, count) else None


def epsilon(parts: Parts, delta: float, of_sum: Callable[[], float], enough: float) -> float | None:
    if (game := _alone(parts)) is None:
        return None
    known = of_sum()
    return played_epsilon((game,), delta, known) if 0 < known < math.inf else known


def delta(parts: Parts, epsilon: float, of_sum: Callable[[], float], enough: float) -> float | None:
    if (game := _alone(parts)) is None:
        return None
    found = played_delta((game,), epsilon)
    # otherwise the game is certainly the better one: next to all the largest losses it knows them up to a lattice
    near = epsilon > _NEAR * sum(count * pair.highest(-700.0) for pair, count in parts)
    return min(found, of_sum()) if near or game[0].span > 1 or found < 1e-30 else found

"""Games in place of parts of a total: where many choices or steps, played together, cost less than one by one.

A game dominates what it stands for, whatever else is in the total; see
:mod:`accounting.adaptive.fixed_batches.replaced_games` and :mod:`accounting.adaptive.choices.long_games`. So every
answer with a game in place is a bound, as it is without, and the least one counts.
"""

from __future__ import annotations

import math
from collections import Counter

from accounting.adaptive.choices.coin_kinds import CoinKind
from accounting.adaptive.choices.long_games import curve_of_many, is_long
from accounting.compose.convolution import Parts

__all__ = ["choices_of_one_kind", "with_games", "with_long_games"]

# ln of δ for which a curve is known is a multiple of this.
_LEVELS = 2.0


def with_games(parts: Parts, delta: float) -> Parts | None:
    """``parts`` with steps on batches of a fixed size played as a whole, which is cheaper but for rounding."""
    if all(count == 1 for _, count in parts):
        return None
    from accounting.adaptive.fixed_batches.replaced_games import played

    games = played(parts, delta)
    return games if games != parts else None


def _short_games(parts: Parts) -> tuple[Counter[CoinKind], Parts]:
    """How many choices of each kind are in games of that kind alone, and all other parts."""
    from accounting.adaptive.choices.played_pairs import PlayedPair

    counts: Counter[CoinKind] = Counter()
    others = []
    for pair, times in parts:
        if isinstance(pair, PlayedPair) and len(pair.games) == 1:
            ((kind, size),) = pair.games
            counts[kind] += size * times
        else:
            others.append((pair, times))
    return counts, tuple(others)


def choices_of_one_kind(parts: Parts) -> tuple[CoinKind, int] | None:
    """The kind and the number of choices, if ``parts`` are nothing but games of one kind."""
    counts, others = _short_games(parts)
    if others or len(counts) != 1:
        return None
    ((kind, count),) = counts.items()
    return kind, count


def with_long_games(parts: Parts, delta: float) -> Parts | None:
    """``parts`` with one long game of many choices, of which few tell much, in place of several beside other releases.

    Alone they need no pair; see :func:`choices_of_one_kind`.
    """
    from accounting.adaptive.choices.played_pairs import LongPair, PlayedPair

    if choices_of_one_kind(parts):
        return None
    # of few different values, so that one game serves many questions; rarer losses matter little
    level = math.floor(math.log(max(delta, 1e-280)) / _LEVELS) * _LEVELS
    counts, _ = _short_games(parts)
    many = {
        kind: LongPair(kind, count, level)
        for kind, count in counts.items()
        if is_long(kind, count, level) and curve_of_many(kind, count, level) is not None
    }
    others = tuple(
        (pair, times)
        for pair, times in parts
        if not (isinstance(pair, PlayedPair) and len(pair.games) == 1 and pair.games[0][0] in many)
    )
    return (*others, *((pair, 1) for pair in many.values())) if many else None

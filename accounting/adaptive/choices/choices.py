"""Choices among the parts of a total: which coins they are at worst, and games in their place.

A game of fewer choices dominates these, whatever else there is, and so does the pair of a single one. With Gumbel noise
that pair has the curve of the game of one. With Laplace noise it is that of the noise itself, and the game costs less:
the coin with the loss ε yields it less than half of the time. With exponential noise there is no game: each choice is
as Laplace noise.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from accounting.adaptive.choices.coin_games import Games, Played, is_playable, most_played, states
from accounting.adaptive.choices.coin_kinds import CoinKind
from accounting.compose.convolution import Parts

if TYPE_CHECKING:  # the pairs are loaded when the first total is asked for
    from accounting.loss.pair import LossPair

__all__ = ["choices_alone", "in_games", "kind_of", "played"]

# A few choices of several kinds are played together, in any order, if no more of them may be left in as many ways.
_FEW, _MOST_STATES = 12, 1000


def kind_of(pair: LossPair, rate: float = 1.0, present: bool = True) -> CoinKind | None:
    """The coins that a choice is at worst, on a sample; None for what is no choice."""
    from accounting.loss.gumbel_maxima import SpanPair
    from accounting.loss.laplace_maxima import MaximumPair, excess

    match pair:
        case SpanPair(span=span):
            return CoinKind(span, 0.0, rate, present)
        case MaximumPair(theta=theta):
            more = excess(theta)
            return CoinKind(theta + more, more, rate, present)
    return None


def played(pair: LossPair, count: int) -> Played | None:
    """The game of ``count`` such choices, each of which may follow the others; None for what are no choices."""
    kind = _kind(pair)
    return (kind, count) if kind is not None and is_playable(kind, count) else None


def choices_alone(parts: Parts) -> Games | None:
    """The game, if ``parts`` are nothing but choices of one kind."""
    (pair, count), *more = parts
    game = None if more else played(pair, count)
    return None if game is None else (game,)


def in_games(pairs: Counter[LossPair]) -> Counter[LossPair]:
    """``pairs`` with the choices of each kind as one pair, or a few: what they cost one after another."""
    found: Counter[LossPair] = Counter()
    few: list[tuple[LossPair, Played]] = []
    for pair, count in sorted(pairs.items(), key=lambda part: (part[1], repr(part[0]))):
        kind = _kind(pair)
        if kind is None or (len(pairs) == 1 and played(pair, count) and (count > 1 or _is_exact(kind))):
            found[pair] += count  # no game, or no pair is needed
            continue
        games = -(-count // most_played(kind, count))
        each, more = divmod(count, games)
        for size, times in ((each + 1, more), (each, games - more)):
            if not times:
                continue
            if (game := played(pair, size)) is None:
                found[pair] += times * size
            elif times == 1 and size <= _FEW and states((*(one for _, one in few), game)) <= _MOST_STATES:
                few.append((pair, game))
            else:
                found[_of_one_kind(pair, game)] += times
    if len(few) == 1:
        found[_of_one_kind(*few[0])] += 1
    elif few:
        from accounting.adaptive.choices.played_pairs import PlayedPair

        found[PlayedPair(tuple(game for _, game in few))] += 1
    return +found


def _kind(pair: LossPair) -> CoinKind | None:
    from accounting.loss.sampled import SubsampledPair

    return kind_of(pair.inner, pair.rate, pair.present) if isinstance(pair, SubsampledPair) else kind_of(pair)


def _is_exact(kind: CoinKind) -> bool:
    """Whether the pair of a single choice is: but for Laplace noise, where the coins are less than that."""
    return kind.least == 0


def _of_one_kind(pair: LossPair, game: Played) -> LossPair:
    from accounting.adaptive.choices.played_pairs import PlayedPair

    kind, count = game
    return pair if count == 1 and _is_exact(kind) else PlayedPair((game,))

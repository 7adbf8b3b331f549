"""Choices among the parts of a total: which coins they are at worst, and games in their place."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from accounting.accountants.coin_games import MOST_CHOICES, Played, is_playable, states
from accounting.accountants.coin_kinds import CoinKind, Kind

if TYPE_CHECKING:  # the pairs are loaded when the first total is asked for
    from accounting.accountants.losses import LossPair

__all__ = ["in_games", "kind_of", "played"]

# A few choices of several kinds are played together, in any order, if no more of them may be left in as many ways.
_FEW, _MOST_STATES = 12, 1000


def kind_of(pair: LossPair, rate: float = 1.0, present: bool = True) -> Kind | None:
    """The coins that a choice is at worst, on a sample; None for what is no choice."""
    from accounting.accountants.laplace_maxima import MaximumPair, excess
    from accounting.accountants.losses import SpanPair
    from accounting.accountants.permute_and_flip import FlipKind, FlipPair

    match pair:
        case SpanPair(span=span):
            return CoinKind(span, 0.0, rate, present)
        case FlipPair(theta=theta):
            return FlipKind(theta, rate, present)
        case MaximumPair(theta=theta):
            more = excess(theta)
            return CoinKind(theta + more, more, rate, present)
    return None


def played(pair: LossPair, count: int) -> Played | None:
    """The game of ``count`` such choices, each of which may follow the others; None for what are no choices."""
    from accounting.accountants.sampled_losses import SubsampledPair

    kind = kind_of(pair.inner, pair.rate, pair.present) if isinstance(pair, SubsampledPair) else kind_of(pair)
    return (kind, count) if kind is not None and is_playable(kind, count) else None


def in_games(pairs: Counter[LossPair]) -> Counter[LossPair]:
    """``pairs`` with the choices of each kind as one pair, or a few: what they cost one after another."""
    if len(pairs) == 1 and max(pairs.values()) <= MOST_CHOICES:
        return pairs  # no pair is needed
    from accounting.accountants.curves import PlayedPair

    found: Counter[LossPair] = Counter()
    few: list[tuple[LossPair, Played]] = []
    for pair, count in sorted(pairs.items(), key=lambda part: (part[1], repr(part[0]))):
        games = -(-count // MOST_CHOICES)
        each, more = divmod(count, games)
        for size, times in ((each + 1, more), (each, games - more)):
            game = played(pair, size) if times else None
            if game is None:
                found[pair] += times * size
            elif times == 1 and size <= _FEW and states((*(one for _, one in few), game)) <= _MOST_STATES:
                few.append((pair, game))
            elif size > 1:
                found[PlayedPair((game,))] += times
            else:
                found[pair] += times
    # of single choices the pairs are exact
    if len(few) == 1 and few[0][1][1] == 1:
        found[few[0][0]] += 1
    elif few:
        found[PlayedPair(tuple(game for _, game in few))] += 1
    return +found

"""The tightenings, in the order in which they are asked, each with one entry.

A theorem is loaded when there is a release that it may be about.
"""

from __future__ import annotations

import math
from collections import Counter

from accounting.compose.convolution import Parts
from accounting.compose.tightenings import Tightening, registered
from accounting.loss.pair import LossPair

__all__ = ["TIGHTENINGS"]


def _joined_choices(pairs: Counter[LossPair]) -> Counter[LossPair]:
    from accounting.adaptive.choices.choices import in_games

    return in_games(pairs)


def _played_batches(parts: Parts, delta: float) -> Parts | None:
    from accounting.adaptive.choices.games_in_place import with_games

    return with_games(parts, delta)


def _long_game(parts: Parts, delta: float) -> Parts | None:
    from accounting.adaptive.choices.games_in_place import with_long_games

    return with_long_games(parts, delta)


def _long_epsilon(parts: Parts, delta: float, enough: float) -> float | None:
    from accounting.adaptive.choices.games_in_place import choices_of_one_kind
    from accounting.adaptive.choices.long_games import epsilon_of_many, is_long

    many = choices_of_one_kind(parts)
    return epsilon_of_many(*many, delta, enough) if many and is_long(*many, math.log(delta)) else None


def _long_delta(parts: Parts, epsilon: float, enough: float) -> float | None:
    from accounting.adaptive.choices.games_in_place import choices_of_one_kind
    from accounting.adaptive.choices.long_games import delta_of_many

    many = choices_of_one_kind(parts)
    return delta_of_many(*many, epsilon, enough) if many else None


def _short_epsilon(parts: Parts, delta: float, about: float) -> float:
    from accounting.adaptive.choices.choices import choices_alone
    from accounting.adaptive.choices.coin_games import played_epsilon

    games = choices_alone(parts)
    return played_epsilon(games, delta, about) if games and math.isfinite(about) else about


def _short_delta(parts: Parts, epsilon: float, enough: float) -> float | None:
    from accounting.adaptive.choices.choices import choices_alone
    from accounting.adaptive.choices.coin_games import played_delta

    if games := choices_alone(parts):
        found = played_delta(games, epsilon)
        # otherwise the game is certainly the better one
        return None if games[0][0].span > 1 or found < 1e-30 else found
    return None


def _less_delta(parts: Parts, epsilon: float, about: float) -> float:
    from accounting.adaptive.choices.choices import choices_alone
    from accounting.adaptive.choices.coin_games import played_delta

    games = choices_alone(parts)
    return min(about, played_delta(games, epsilon)) if games else about


def _best_epsilon(parts: Parts, delta: float, about: float) -> float:
    from accounting.adaptive.repeated_selection.best_many import epsilon_of_best

    return epsilon_of_best(parts, delta, about)


def _best_delta(parts: Parts, epsilon: float, about: float) -> float:
    from accounting.adaptive.repeated_selection.best_many import delta_of_best

    return delta_of_best(parts, epsilon, about)


TIGHTENINGS = [
    Tightening(joined=_joined_choices, delta=_short_delta, less_epsilon=_short_epsilon, less_delta=_less_delta),
    Tightening(in_place=_played_batches),
    Tightening(in_place=_long_game, again=True, epsilon=_long_epsilon, delta=_long_delta),
    Tightening(less_epsilon=_best_epsilon, less_delta=_best_delta),
]

if not registered:
    registered.extend(TIGHTENINGS)

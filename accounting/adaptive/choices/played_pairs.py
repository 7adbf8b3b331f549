"""The pairs of choices that are played: in games from above, and from below."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from accounting.adaptive.choices.coin_games import Games, played_curve, played_delta
from accounting.adaptive.choices.coin_kinds import CoinKind
from accounting.adaptive.choices.lattice_games import Play, game_below
from accounting.adaptive.choices.long_games import curve_of_many
from accounting.arrays import Array
from accounting.loss.curves import pair_of_whole_curve
from accounting.loss.pair import LopsidedAtoms

__all__ = ["GamePair", "LongPair", "PlayedPair"]


@dataclass(frozen=True)
class PlayedPair(LopsidedAtoms):
    """Choices of some kinds, among other releases; see :mod:`accounting.adaptive.choices.coin_games`."""

    follows = True
    games: Games

    def delta(self, epsilon: float) -> float:
        return played_delta(self.games, epsilon) if epsilon >= 0 else super().delta(epsilon)

    def atoms(self) -> tuple[Array, Array, Array, float]:
        return _played_atoms(self)


@dataclass(frozen=True)
class LongPair(LopsidedAtoms):
    """``count`` choices of which few tell much, among other releases; see
    :mod:`accounting.adaptive.choices.long_games`.

    It is there only where that game does not take too long; for δ near e^``level``.
    """

    kind: CoinKind
    count: int
    level: float

    def atoms(self) -> tuple[Array, Array, Array, float]:
        return _long_atoms(self)


@dataclass(frozen=True)
class GamePair(LopsidedAtoms):
    """Choices that come last, each with a few scores, from below; see
    :mod:`accounting.adaptive.choices.lattice_games`."""

    plays: tuple[Play, ...]

    def atoms(self) -> tuple[Array, Array, Array, float]:
        return _game_atoms(self)


@lru_cache(maxsize=32)
def _played_atoms(pair: PlayedPair) -> tuple[Array, Array, Array, float]:
    x, values = played_curve(pair.games)
    return pair_of_whole_curve(x, values)


@lru_cache(maxsize=16)
def _long_atoms(pair: LongPair) -> tuple[Array, Array, Array, float]:
    curve = curve_of_many(pair.kind, pair.count, pair.level)
    if curve is None:
        raise ArithmeticError(f"the game of {pair!r} takes too long")
    x, values = curve
    return pair_of_whole_curve(x, values)


@lru_cache(maxsize=16)
def _game_atoms(pair: GamePair) -> tuple[Array, Array, Array, float]:
    return pair_of_whole_curve(*game_below(pair.plays), lower=True)

"""One round of the game of coins: against every coin of a fine grid, on the same interpolated values."""

import numpy as np
import pytest

from accounting.adaptive.choices.coins import CoinKind
from accounting.adaptive.choices.every_coin import EveryCoin as Coins

KINDS = [
    CoinKind(0.05), CoinKind(3.0), CoinKind(1e-7), CoinKind(0.6, 0.1), CoinKind(0.8, 0.0, 0.1),
    CoinKind(0.8, 0.0, 0.1, False), CoinKind(6.0, 0.0, 0.02),
]  # fmt: skip


def chances(kind, t):
    """Of the high loss, under the law by which the losses are measured."""
    up, down = t, kind.span - t
    chance = np.expm1(-down) / np.expm1(-up - down)
    other = np.exp(-up) * chance
    return kind.rate * chance + (1 - kind.rate) * other if kind.present else 1 - other


@pytest.mark.parametrize("rounds", [0, 1, 6])
@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_no_coin_of_a_fine_grid_is_better_and_the_best_ones_are_as_good(kind, rounds):
    step = kind.width / 11.3
    x = step * np.arange(-60, 90, dtype=np.float64)
    coins = Coins(kind, step, x.size)
    values = np.maximum(-np.expm1(np.minimum(x, 1.0)), 0.0)
    for _ in range(rounds):
        values = coins.best(values)
    found = coins.best(values)
    # linear in y = e^x: from 1 at 0 to the first one, between neighbours, and the last one beyond
    y = np.exp(np.concatenate([[-700.0], x, [700.0]]))
    known = np.concatenate([[1.0], values, values[-1:]])
    t = np.linspace(*kind.ends, 4001)
    chance, (high, low) = chances(kind, t), kind.losses(t)
    some = np.arange(0, x.size, 7)
    best = np.array([
        np.max(chance * np.interp(np.exp(z - high), y, known) + (1 - chance) * np.interp(np.exp(z + low), y, known))
        for z in x[some]
    ])  # fmt: skip
    best = np.maximum(best, values[some])
    assert np.all(best <= found[some] * (1 + 1e-9))
    assert found[some] == pytest.approx(best, rel=2e-4, abs=1e-16)

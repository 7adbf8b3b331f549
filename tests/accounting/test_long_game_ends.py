"""What one long game makes of values beyond its lattice, and of the strongest choices: each step against every coin."""

import math

import numpy as np
import pytest

from accounting import NoisyMax, PoissonSubsampled, epsilon
from accounting.adaptive.choices import rare_choices
from accounting.adaptive.choices.coins import CoinKind

KINDS = [CoinKind(6.0, 0.0, 0.01), CoinKind(5.0, 0.0, 0.02, False)]


def coins(kind, t):
    high, low = kind.losses(t)
    in_p = np.expm1(-low) / np.expm1(-low - high)
    return in_p, in_p * np.exp(-high)


def short_lattices(kind):
    """A game, and lattices shorter than its losses, so that much is decided beyond both ends."""
    plan = rare_choices._plan(kind, 1000, math.log(1e-6))
    high, low = kind.losses(np.linspace(*kind.ends, 402))
    reach = round(float(high.max() + low.max()) / plan.step)
    ends = ((reach // 3, reach // 3), (2, reach // 2), (reach // 2, 2))
    return plan, rare_choices.RareCoins(kind, plan), [plan.step * np.arange(-below, above + 1) for below, above in ends]


@pytest.mark.parametrize("kind", KINDS)
def test_one_step_is_more_than_every_coin_also_beyond_both_ends(kind):
    """f is linear in e^z between the points, from 1 at 0 on, and then its last value; as much is rounded up as said."""
    plan, game, lattices = short_lattices(kind)
    t = np.linspace(*kind.ends, 402)[1:-1]
    high, low = kind.losses(t)
    in_p, _ = coins(kind, t)
    for z in lattices:
        start = np.maximum(-np.expm1(np.minimum(z, 1.0)), 0.0)
        for f in (start, 0.5 * start + 0.5 / (1 + np.exp(z))):

            def value(x, f=f, z=z):
                at = np.clip(np.searchsorted(z, x, side="right") - 1, 0, z.size - 2)
                share = np.clip(np.expm1(x - z[at]) / math.expm1(plan.step), 0.0, 1.0)
                inside = f[at] + share * (f[at + 1] - f[at])
                return np.where(x < z[0], 1 - (1 - f[0]) * np.exp(np.minimum(x - z[0], 0.0)), inside)

            x = z[:, None] - plan.drift
            best = np.max(in_p * value(x - high) + (1 - in_p) * value(x + low), axis=1)
            played = game.best(f)
            assert np.all(best * (1 + 5e-13) <= played)
            assert np.all(played <= 1.05 * best + 1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_differences_are_no_less_than_what_a_step_makes_of_a_change(kind):
    """T(f + g) ≤ Tf + T′g for g of either sign, also where g is not small beyond the ends."""
    _, game, lattices = short_lattices(kind)
    for z in lattices:
        f = 1 / (1 + np.exp(z))
        for g in (np.full(z.size, 0.3), -0.3 * f, 0.1 * np.sin(3 * z), 0.1 * np.cos(2 * z), -0.1 * np.cos(2 * z)):
            assert np.all(game.best(f + g) <= game.best(f) + g + game.difference(g) + 1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("faint", [6.0, -3.0])
def test_what_is_not_played_at_the_upper_end_is_safe(kind, faint, monkeypatch):
    """Against all steps on the whole lattice, one by one; also where the values that are left out are not small."""
    count, level = 260, math.log(1e-4)
    plan = rare_choices._plan(kind, count, level)
    monkeypatch.setattr(rare_choices, "_FAINT", faint)
    x, values = rare_choices._curve.__wrapped__(kind, count, level)
    game = rare_choices.RareCoins(kind, plan)
    f = np.maximum(-np.expm1(np.minimum(x + count * plan.drift, 1.0)), 0.0)
    for _ in range(count):
        f = game.best(f)
    assert np.all(np.minimum(f, 1.0) <= values * (1 + 1e-12))


@pytest.mark.parametrize(
    ("noise", "strength", "rate", "count", "target"),
    [
        ("gumbel", 8.0, 0.0391442904, 443, 7.669e-6),
        ("gumbel", 10.0, 0.00255, 296, 3.7e-3),
        ("exponential", 6.6, 1.35e-4, 259, 0.0643),
    ],
)
def test_units_that_are_absent_from_very_strong_choices_have_an_answer(noise, strength, rate, count, target, recwarn):
    """Where the best coin hardly ever falls on its other side, and where δ is met from the lattice's first point on."""
    found = epsilon(count * PoissonSubsampled(NoisyMax(strength, noise=noise), rate), target)
    assert not [one for one in recwarn if "no answer" in str(one.message)]
    assert found < 110

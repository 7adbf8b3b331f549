"""Three scores in batches of a fixed size: a mechanism that fits, worse than two scores, and covered from above."""

import math
import warnings

import numpy as np
import pytest
from scipy.integrate import trapezoid

from accounting import FixedSizeSubsampled, NoisyMax, PoissonSubsampled, bound
from accounting.adaptive.choices.coins import CoinKind
from accounting.adaptive.fixed_batches.maxima_batches import ReplacedMaxima
from accounting.loss.laplace import LaplacePair
from accounting.loss.sampled import ReplacedPair
from accounting.lower.lower_bound import lower_epsilon
from accounting.lower.maxima_in_batches import _LEADERS, _WINS, ThreeLossesPair, three_scores


def _chances(noise, scores):
    """By a fine sum over the winner's noise."""
    x = np.linspace(-40.0, 60.0, 100_001)
    tail = 0.5 * np.exp(-np.abs(x[:, None] - scores))
    density, below = {
        "gumbel": lambda y: (np.exp(-y - np.exp(-y)), np.exp(-np.exp(-y))),
        "exponential": lambda y: (np.where(y > 0, np.exp(-y), 0.0), np.maximum(-np.expm1(-y), 0.0)),
        "laplace": lambda y: (tail, np.where(y < 0, tail, 1 - tail)),
    }[noise](np.maximum(x[:, None] - scores, -30.0 if noise != "exponential" else 0.0))
    others = [np.delete(below, i, axis=1).prod(axis=1) for i in range(scores.size)]
    return np.array([trapezoid(density[:, i] * other, x) for i, other in enumerate(others)])


@pytest.mark.parametrize("noise", ["gumbel", "exponential", "laplace"])
@pytest.mark.parametrize("lead", [(-1.3, 0.7), (1.0, -0.5)])
def test_who_wins(noise, lead):
    leaders = _LEADERS if noise == "laplace" else 1
    found = _chances(noise, np.array([*lead, *[0.0] * leaders]))
    first, second = (np.array([x]) for x in lead)
    assert _WINS[noise](first, second)[0] == pytest.approx(found[0], rel=2e-3)
    assert _WINS[noise](second, first)[0] == pytest.approx(found[1], rel=2e-3)


@pytest.mark.parametrize("noise", ["gumbel", "exponential", "laplace"])
@pytest.mark.parametrize(("eps", "rate", "order"), [(1.5, 0.3, 0.5), (4.0, 0.01, 3.0), (12.0, 0.001, 0.1)])
def test_the_pair_is_that_of_some_scores(noise, eps, rate, order):
    high, chance = three_scores(eps, noise, rate, order)
    # which a it was, by the largest probability of P at its loss
    behind = -np.linspace(0.0, 2 * eps + 2, 129)
    wins = _WINS[noise]
    x, y = (
        (1 - rate) * wins(behind, behind) + rate * wins(behind + a, behind + b)
        for a, b in ((eps, eps / 2), (eps / 2, eps))
    )
    at = int(np.argmin(np.abs(x - chance)))
    assert chance <= x[at] <= chance * (1 + 1e-8)
    assert high <= math.log(x[at] / y[at]) <= high * (1 + 1e-6)
    assert x[at] + y[at] <= 1


@pytest.mark.parametrize("noise", ["gumbel", "exponential"])
@pytest.mark.parametrize(("eps", "rate"), [(1.5, 0.3), (3.0, 0.01), (6.0, 0.1)])
def test_upper_bounds_cover_it(noise, eps, rate):
    above = ReplacedMaxima(CoinKind(eps), rate, 1, 1e-12) if noise == "gumbel" else ReplacedPair(LaplacePair(eps), rate)
    for order in (0.1, 1.0, 10.0):
        pair = ThreeLossesPair(*three_scores(eps, noise, rate, order))
        for share in (-1.2, -0.5, 0.0, 0.3, 0.9):
            assert pair.delta(share * pair.high) <= above.delta(share * pair.high) * (1 + 1e-9)


@pytest.mark.thorough
def test_strong_choices_in_many_small_steps_are_worse_than_two_scores():
    choice = NoisyMax(4.0, "exponential")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="ε is only known")
        found = bound(120 * FixedSizeSubsampled(choice, batch_size=1, records=100), 1e-2)
    # of two scores the same is known from below, however they follow what was seen
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="ε is only known")
        two = bound(120 * PoissonSubsampled(choice, 0.01), 1e-2)
    assert found.lower > 1.05 * two.lower
    assert found.lower > two.upper
    assert found.lower <= found.upper


def test_fixed_coins_add_nothing_to_the_game_of_very_strong_choices(monkeypatch):
    release = 10 * FixedSizeSubsampled(NoisyMax(4.0, "exponential"), batch_size=1, records=20)
    found = lower_epsilon(release, 1e-6)
    monkeypatch.setattr("accounting.lower.lower_bound._are_strong_batches", lambda release: False)
    assert found == pytest.approx(lower_epsilon(release, 1e-6), rel=1e-3)


def test_no_failure_allowed():
    batch = FixedSizeSubsampled(NoisyMax(3.0, "exponential"), batch_size=1, records=100)
    assert 0 < lower_epsilon(5 * batch, 0.0) <= 5 * math.log1p(0.01 * math.expm1(3.0)) * (1 + 1e-9)

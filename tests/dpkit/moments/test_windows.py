"""RecordWindow: what one record moves, what it costs beside a Gaussian or a Laplace, and where the ends lie."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from accounting import Gaussian, Laplace, NoisyMax, PureDP, gdp
from dpkit.moments import windows
from dpkit.moments.windows import RecordWindow, covered

# ------------------------------------------------------------------------------------------------ what it costs


def laplace_tradeoff(z: float, alpha: np.ndarray) -> np.ndarray:
    """Dong, Roth & Su (2022), Proposition A.6, of Laplace noise of scale z for a sensitivity of 1."""
    mu = 1.0 / z
    small = 1.0 - math.exp(mu) * alpha
    middle = math.exp(-mu) / (4.0 * np.maximum(alpha, 1e-300))
    large = math.exp(-mu) * (1.0 - alpha)
    return np.where(alpha < 0.5 * math.exp(-mu), small, np.where(alpha <= 0.5, middle, large))


@pytest.mark.parametrize("z", [0.02, 0.25, 1.0, 4.0, 50.0])
def test_what_is_covered_by_laplace_noise_is_no_easier_to_tell(z):
    epsilon = covered(Laplace(z)).epsilon
    alpha = np.linspace(0.0, 1.0, 2001)

    def lines(epsilon):
        return np.maximum(1.0 - np.exp(epsilon) * alpha, np.exp(-epsilon) * (1.0 - alpha))

    assert (lines(epsilon) >= laplace_tradeoff(z, alpha) - 1e-12).all()
    corner = np.array([1.0 / (1.0 + math.exp(1.001 * epsilon))])  # and 0.1 % more would be
    assert math.exp(-1.001 * epsilon) * (1.0 - corner[0]) < laplace_tradeoff(z, corner)[0]


@pytest.mark.parametrize("z", [0.3, 0.5, 1.0, 4.2, 100.0])
def test_what_is_covered_by_gaussian_noise_is_as_private_by_gdp(z):
    choice = covered(Gaussian(z))
    assert 0.999 / z < gdp(choice) <= 1.0 / z
    # by exact binary tests: the worst mechanism of bounded range has losses t and t − ε′ (Dong, Durfee & Rogers 2020)
    from scipy.special import ndtr, ndtri

    epsilon = choice.epsilon
    t = np.linspace(1e-3, 1.0 - 1e-3, 999) * epsilon
    p = np.expm1(epsilon - t) / np.expm1(epsilon) * np.exp(t)  # (e^ε′ − e^t)/(e^ε′ − 1)
    assert (ndtr(ndtri(np.minimum(p, 1.0)) - 1.0 / z) <= p * np.exp(-t) + 1e-9).all()


def test_what_is_covered_keeps_the_adjacency_and_refuses_others():
    assert covered(Laplace(1.0, adjacency="zero_out")).adjacency == "zero_out"
    with pytest.raises(TypeError, match="cost must be a Gaussian or a Laplace"):
        RecordWindow(PureDP(1.0))


# ---------------------------------------------------------------------------------------------- what a record moves

ALPHABET = (None, -3.0, 0.0, 0.5, 0.7, 100.0)  # None does not come


def scores(told, monkeypatch, cost=None) -> tuple[list[np.ndarray], RecordWindow]:
    """By which the two ends are chosen, of records that tell them in turns."""
    seen = []

    def watched(scores, sensitivity, epsilon, noise, rng):
        assert sensitivity == 1.0
        seen.append(np.array(scores))
        return int(np.argmax(scores))

    window = RecordWindow(cost or Laplace(0.05))
    for t, r in enumerate(told):
        if r is not None:
            window.add(t % 2, r)
    with monkeypatch.context() as patch:
        patch.setattr(windows, "report_noisy_max", watched)
        window.release(((len(told) + 1) // 2, len(told) // 2))
    return seen, window


def test_one_record_moves_one_end_and_its_scores_by_one(monkeypatch):
    """All runs of three records over a small alphabet, and all their neighbours: replaced, missing."""
    found = {told: scores(told, monkeypatch)[0] for told in itertools.product(ALPHABET, repeat=3)}
    worst = 0.0
    for told, ends in found.items():
        for t, r in itertools.product(range(3), ALPHABET):
            moved = [np.abs(a - b).max() for a, b in zip(ends, found[(*told[:t], r, *told[t + 1 :])], strict=True)]
            assert moved[1 - t % 2] == 0.0
            worst = max(worst, moved[t % 2])
    assert worst == 1.0


def range_of_losses(window: RecordWindow, told, other, monkeypatch) -> float:
    """Of the exact probabilities of one end."""
    laws = []
    for records in (told, other):
        (above, _), _ = scores(records, monkeypatch)
        weights = np.exp(0.5 * window.choice.epsilon * above)
        laws.append(weights / weights.sum())
    loss = np.log(laws[0] / laws[1])
    return float(loss.max() - loss.min())


def test_losses_have_the_range_that_is_stated_and_one_more_record_is_caught(monkeypatch):
    window = RecordWindow(Gaussian(1.0))
    one, other = (100.0, 0.0, *8 * (0.0, 0.0)), (-3.0, 0.0, *8 * (0.0, 0.0))
    epsilon = window.choice.epsilon
    assert 0.49 * epsilon < range_of_losses(window, one, other, monkeypatch) <= epsilon * (1 + 1e-12)
    # with two records of one round
    assert (
        range_of_losses(window, (100.0, 0.0, 100.0, 0.0, *6 * (0.0, 0.0)), (*8 * (-3.0, 0.0),), monkeypatch) > epsilon
    )


# ------------------------------------------------------------------------------------------------- what it finds


@pytest.mark.parametrize("cost", [Laplace(1.0), Gaussian(4.2)])
def test_the_ends_are_right_to_a_few_ranks(cost):
    """False alarms: an end is farther off than that with probability 160·e^(−11) = 0.003 by the docstring."""
    rng = np.random.default_rng(5)
    for draw, (low, high) in (
        (lambda: 20.0 * (rng.random() < 0.5), ((0.0, 0.0), (22, 23))),
        (lambda: 1e-6 * (rng.pareto(2.0) + 1.0), ((0.5e-6, 1.1e-6), (1.4e-6, 6e-6))),
        (lambda: -rng.exponential(1e5), ((-6e5, -1e5), (-4e4, 0.0))),
    ):
        window = RecordWindow(cost, rng=rng)
        n = window.rounds[1]
        for t in range(n):
            window.add(t % 2, draw())
        found = window.release((n // 2, n // 2))
        assert low[0] <= found[0] <= low[1]
        assert high[0] <= found[1] <= high[1]


def test_records_that_never_come_count_as_zero():
    window = RecordWindow(Laplace(0.05))
    low, high = window.release((100, 100))
    assert low == -high == -(2.0**-40)
    for r, cell in (
        (0.0, 0),
        (1e-300, 1),
        (-1e-300, -1),
        (2.0, 83),
        (-2.0, -83),
        (2.1, 84),
        (1e300, 161),
        (-1e300, -161),
    ):
        window.counts[:] = 0
        window.add(0, r)
        assert np.flatnonzero(window.counts[0]).tolist() == [161 + cell]


def test_bad_records_and_states_are_refused():
    window = RecordWindow(Laplace(0.5))
    for r in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match="r must be a finite number"):
            window.add(0, r)
    assert window.counts.sum() == 0
    window.add(1, 7.0)
    again = RecordWindow(Laplace(0.5))
    again.resume(window.kept())
    assert (again.counts == window.counts).all()
    with pytest.raises(ValueError, match="counts must be at least 0"):
        again.resume(window.kept() | {"counts": -window.counts})
    with pytest.raises(ValueError, match="units"):
        RecordWindow(Laplace(0.6)).resume(window.kept())
    assert isinstance(window.choice, NoisyMax)

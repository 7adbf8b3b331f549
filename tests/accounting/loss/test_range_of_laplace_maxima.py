"""The range of the privacy loss of Laplace noisy maxima, of exact mechanisms."""

import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import Gaussian, Laplace, NoisyMax, PoissonSubsampled, bound, delta, epsilon
from accounting.adaptive.choices.coins import kind_of
from accounting.adaptive.choices.every_coin import played_delta
from accounting.adaptive.choices.scores_below import two_losses
from accounting.loss.laplace import LaplacePair
from accounting.loss.laplace_maxima import MaximumPair, excess, more_than_lead

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(40)


def laplace_max(scores):
    """Exact but for the rule, which is one of degree 79 between the scores, and in e^(−distance) beyond them."""
    ends = np.unique(scores)
    low, high = ends[0], ends[-1]
    v = (_NODES + 1) / 2
    x = [low + np.log(v), high - np.log(v)]
    w = [_WEIGHTS / (2 * v)] * 2
    for left, right in itertools.pairwise(ends):
        x.append(left + (right - left) * v)
        w.append(_WEIGHTS * (right - left) / 2)
    far = np.concatenate(x)[:, None] - scores
    half = 0.5 * np.exp(-np.abs(far))
    below = np.where(far < 0, half, 1 - half)
    return np.concatenate(w) @ (half / below * below.prod(axis=1, keepdims=True))


@pytest.mark.parametrize("seed", range(4))
def test_losses_part_as_the_proof_says(seed):
    """T by small moves of the scores, by its definition, and by (1)."""
    rng = np.random.default_rng(seed)
    scores, moves = rng.uniform(-2, 3, size=6), np.array([0, 1, 0, 1, 1, 0])
    scores[:2] = 0, rng.uniform(0, 2)
    log_ratio = np.log(laplace_max(scores + 1e-4 * moves) / laplace_max(scores - 1e-4 * moves)) / 2e-4
    found = log_ratio[1] - log_ratio[0]
    x = np.arange(-14, 30, 0.001) + 0.0005
    far = x - scores[:, None]
    hazards = 1 / (2 * np.exp(np.maximum(far, 0.0)) - 1)
    best = np.where(far < 0, np.exp(-np.abs(far)) / 2, 1 - np.exp(-np.abs(far)) / 2).prod(axis=0)

    def mean(values, of):
        return float((values * hazards[of] * best).sum() / (hazards[of] * best).sum())

    others = hazards[2] + hazards[5]
    assert found == pytest.approx(mean(hazards[moves == 1].sum(axis=0), 0) + mean(hazards[0] + others, 1), abs=1e-5)
    assert found == pytest.approx(1 - 2 * mean(x < 0, 0) + mean(hazards[0] + others, 1) - mean(others, 0), abs=1e-3)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, 0.5, 1.0]) | st.floats(-4, 4), min_size=2, max_size=7), st.data(), st.floats(0.02, 4)
)
def test_no_two_outcomes_differ_by_more(scores, data, eps):
    moved = data.draw(st.lists(st.sampled_from([0.0, 1.0, 0.4]), min_size=len(scores), max_size=len(scores)))
    before, scale = np.array(scores), data.draw(st.sampled_from([1.0, eps]))
    p, q = laplace_max(scale * before), laplace_max(scale * before + eps * np.array(moved))
    assert p.sum() == pytest.approx(1, abs=1e-11)
    losses = np.log(p / q)
    assert np.ptp(losses) <= eps + excess(eps) + 1e-9
    assert np.abs(losses).max() <= eps + 1e-9


def test_no_climb_finds_scores_that_differ_by_more():
    """Scores are moved at random, and kept where the range is larger: at best it is 1.1739, of five of two values."""
    rng, eps, best = np.random.default_rng(7), 1e-3, 0.0
    for moved in ([1, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0, 0]):
        half = eps / 2 * np.array(moved)

        def reached(scores, half=half):
            return np.ptp(np.log(laplace_max(scores - half) / laplace_max(scores + half))) / eps

        scores = rng.normal(size=half.size)
        found = reached(scores)
        for step in np.repeat(np.geomspace(1.0, 0.01, 12), 30):
            near = scores + step * rng.normal(size=half.size)
            if (value := reached(near)) > found:
                scores, found = near, value
        best = max(best, found)
    assert 1.165 < best < 1.175 < 1 + excess(eps) / eps


def test_scores_that_tie_come_within_a_fortieth():
    before, eps = np.zeros(5), 0.01
    after = before + eps * np.array([1, 1, 0, 0, 0])
    middle = (before + after) / 2 - before
    losses = np.log(laplace_max(-middle) / laplace_max(middle))
    assert np.ptp(losses) == pytest.approx(75 / 64 * eps, rel=1e-4)
    assert np.ptp(losses) > (eps + excess(eps)) / 1.025


@pytest.mark.parametrize(("eps", "behind"), [(2.0, 0.398), (4.0, 0.474)])
def test_six_scores_that_change_sides_come_within_a_hundredth(eps, behind):
    """One of three is ahead of the other two, before and after."""
    before = -np.array([0, behind, behind, behind + eps / 2, behind + eps / 2, eps / 2])
    losses = np.log(laplace_max(before) / laplace_max(before + eps * np.array([0, 0, 0, 1, 1, 1])))
    assert (eps + excess(eps)) / 1.01 < np.ptp(losses) < eps + excess(eps)


@pytest.mark.parametrize("eps", [0.01, 0.3, 2.0])
def test_no_coin_of_the_lower_value_is_longer(eps):
    for low, high in two_losses("laplace", eps):
        assert np.all(low + high <= eps + excess(eps))
        assert np.all(np.maximum(low, high) <= eps * (1 + 1e-9))


@pytest.mark.parametrize(
    ("choices", "as_noise", "share"),
    [
        (100 * NoisyMax(0.1, "laplace"), 100 * Laplace(10.0), 0.64),
        (20 * PoissonSubsampled(NoisyMax(0.3, "laplace"), 0.1), 20 * PoissonSubsampled(Laplace(1 / 0.3), 0.1), 0.71),
        (2 * NoisyMax(0.3, "laplace"), 2 * Laplace(1 / 0.3), 1.0001),
        (NoisyMax(0.3, "laplace"), Laplace(1 / 0.3), 1.0001),
    ],
    ids=repr,
)
def test_choices_are_cheaper_than_noise_on_a_number(choices, as_noise, share):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, before = bound(choices, 1e-6), epsilon(as_noise, 1e-6)
    assert found.lower <= found.upper <= share * before
    assert delta(choices, found.upper) <= 1e-6 * (1 + 1e-3)


def test_leads_that_change_sides_are_the_worst_of_strong_choices():
    for eps in np.geomspace(1e-3, 200, 300):
        sides = 2 * more_than_lead(eps / 2)
        assert excess(eps) >= sides
        assert eps < 2 or excess(eps) == sides


@pytest.mark.parametrize("eps", [1e-4, 0.05, 1.0, 8.0, 30.0])
def test_the_coins_of_one_choice_are_less_than_the_noise(eps):
    game = ((kind_of(MaximumPair(eps)), 1),)
    for at in eps * np.linspace(0, 0.999, 40):
        assert played_delta(game, float(at)) < LaplacePair(eps).delta(float(at))


@pytest.mark.filterwarnings("ignore:ε is only known")
@pytest.mark.parametrize(
    ("rate", "others", "width"),
    [(0.01, None, 0.1), (0.01, PoissonSubsampled(Gaussian(2.0), 0.01), 0.065), (1, None, 0.008)],
)
def test_single_choices_are_coins(rate, others, width):
    """Alone and beside other releases, on a sample or not."""
    choice = NoisyMax(1.0, "laplace")
    total = PoissonSubsampled(choice, rate) if rate < 1 else choice
    lower, upper = bound(total + others if others else total, 1e-3)
    assert (1 - width) * upper < lower <= upper

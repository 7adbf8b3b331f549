"""Lower ends: of every kind of release the worst mechanism that is known, which never costs more than the upper end."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hockey_stick import divergence
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import expon, gumbel_r, laplace

import accounting
from accounting import (
    BestOfPoissonRuns,
    Laplace,
    LocalShuffled,
    NoisyMax,
    PoissonSubsampled,
    PureDP,
    Release,
    delta,
    epsilon,
    parallel,
)
from accounting.compose import pld
from accounting.loss import LossPair
from accounting.lower.lower_bound import lower_epsilon
from accounting.lower.maxima_in_batches import _LEADERS, _WINS
from accounting.lower.witnesses import witness
from accounting.releases import Own

# The lower end as a share of the upper one at δ = 1e-5, where every way to a witness is met.
SHARES = {
    "ZCDP(0.3)": 1.0,
    "3 * ZCDP(0.1) + Gaussian(5.0)": 0.972212,
    "2 * ZCDP(0.02) + ZCDP(0.2) + Laplace(4.0)": 0.995526,
    "2 * DiscreteGaussian(1.3) + Gaussian(4.0)": 0.992942,
    "3 * DiscreteGaussian(0.8)": 0.979406,
    "4 * DiscreteGaussian(3.0, shift=2)": 1.0,
    "5 * DiscreteLaplace(3.0)": 1.0,
    "5 * DiscreteLaplace(6.0, shift=3)": 1.0,
    "TreeAggregation(3.0, 8) + 3 * Laplace(9.0)": 1.0,
    "2 * GeneralizedGaussian(3.0) + 2 * PureDP(0.2)": 1.0,
    "5 * UnaryEncoding(1.0, 4)": 1.0,
    "4 * ApproxDP(0.3, 1e-8) + Gaussian(4.0)": 1.0,
    "3 * NoisyMax(0.5) + Gaussian(5.0)": 1.0,
    "4 * NoisyMax(1.0, 'exponential')": 0.998704,
    "3 * NoisyMax(0.8, 'laplace')": 0.994616,
    "2 * PoissonSubsampled(NoisyMax(1.0), 0.2)": 0.997775,
    "3 * PoissonSubsampled(NoisyMax(2.0, 'laplace'), 0.1) + Laplace(5.0)": 0.947937,
    "10 * PoissonSubsampled(Laplace(0.8), 0.1)": 1.0,
    "10 * PoissonSubsampled(Gaussian(1.0), 0.1)": 1.0,
    "5 * PoissonSubsampled(DiscreteLaplace(1.0), 0.2)": 1.0,
    "5 * PoissonSubsampled(DiscreteGaussian(1.5), 0.2)": 0.986686,
    "3 * PoissonSubsampled(ZCDP(0.5), 0.2)": 0.881771,
    "6 * FixedSizeSubsampled(Gaussian(1.0), 10, 100)": 0.999079,
    "6 * FixedSizeSubsampled(Laplace(1.0), 10, 100)": 1.0,
    "3 * FixedSizeSubsampled(NoisyMax(1.0), 10, 100) + Gaussian(6.0)": 0.990312,
    "2 * FixedSizeSubsampled(NoisyMax(5.0), 10, 100)": 0.997785,
    "2 * FixedSizeSubsampled(NoisyMax(5.0, 'exponential'), 10, 100) + ZCDP(0.1)": 0.998425,
    "3 * FixedSizeSubsampled(ZCDP(0.3), 20, 100)": 0.87945,
    "4 * FixedSizeSubsampled(TreeAggregation(3.0, 4), 10, 100)": 0.998924,
    "3 * FixedSizeSubsampled(PureDP(0.5), 20, 100)": 1.0,
    "RandomAllocated(Gaussian(1.0), 8, 2) + Gaussian(6.0)": 1.0,
    "RandomAllocated(Laplace(1.0), 9, 2)": 0.998795,
    "BestOfRuns(PureDP(0.3), 0.2)": 0.991602,
    "BestOfRuns(Gaussian(3.0), 0.1) + Gaussian(5.0)": 0.992504,
    "BestOfPoissonRuns(Laplace(3.0), 5)": 0.993762,
    "LocalShuffled(1.0, 200) + Gaussian(5.0)": 0.979679,
    "2 * LocalShuffled(RandomizedResponse(1.0, 2), 200)": 0.998199,
    "2 * LocalShuffled(RandomizedResponse(2.0, 6), 300)": 0.972837,
    "2 * LocalShuffled(RandomizedResponse(7.0, 10), 300)": 0.722785,
    "ShuffledBinomial(2000, shift_norm=2.0, coordinates=4)": 0.997279,
    "ShuffledBinomial(2000, shift_norm=2.0, coordinates=4, rounded=True)": 0.994642,
    "2 * ShuffledBinomial(3000, shift_norm=2.5, coordinates=5, rounded=False)": 0.99673,
    "parallel(2 * Laplace(3.0), Gaussian(2.0))": 1.0,
    "2 * ObjectivePerturbation(3.0, curvature=0.1)": 0.811535,
}


@pytest.mark.filterwarnings("ignore:ε is only known:UserWarning")
@pytest.mark.parametrize("text", SHARES)
def test_a_lower_end_is_that_of_a_mechanism_that_fits_and_no_weaker_one(text: str) -> None:
    """Twice what a part does would lie above the upper end, and half of it far below this share."""
    release = eval(text, {name: getattr(accounting, name) for name in accounting.__all__})
    lower, upper = lower_epsilon(release, 1e-5), float(epsilon(release, 1e-5))
    assert lower <= upper
    assert lower / upper == pytest.approx(SHARES[text], rel=1e-3)


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("5 * DiscreteLaplace(3.0) + PureDP(0.3)", 1.0),
        ("3 * NoisyMax(0.8, 'laplace')", 1.0),
        ("3 * NoisyMax(0.8, 'laplace') + DiscreteLaplace(3.0)", 0.940658),
        ("6 * FixedSizeSubsampled(Laplace(1.0), 10, 100)", 1.0),
        ("RandomAllocated(Laplace(1.0), 9, 2)", 1.0),
        # a swap is a removal and an addition in each of two steps
        ("RandomAllocated(Laplace(1.0), 9, 2, adjacency='replace')", 1.0),
        ("PoissonSubsampled(RandomAllocated(Laplace(1.0), 9, 2), 0.1)", 1.0),
        ("2 * LocalShuffled(RandomizedResponse(2.0, 6), 300) + Laplace(3.0)", 1.0),
        ("2 * BestOfRuns(PureDP(0.3), 0.2) + Laplace(4.0)", 1.0),
        ("BestOfPoissonRuns(PureDP(1.0), 5)", 1.0),
    ],
)
def test_at_delta_0_the_largest_losses_add_up(text: str, share: float) -> None:
    release = eval(text, {name: getattr(accounting, name) for name in accounting.__all__})
    lower, upper = lower_epsilon(release, 0.0), float(epsilon(release, 0.0))
    assert lower <= upper
    assert lower / upper == pytest.approx(share, rel=1e-6)


@pytest.mark.parametrize(
    "release",
    [
        2 * accounting.ShuffledBinomial(3000, shift_norm=2.5, coordinates=5, rounded=False),
        6 * accounting.FixedSizeSubsampled(accounting.Gaussian(1.0), 10, 100),
        accounting.BestOfRuns(accounting.Gaussian(3.0), 0.1) + accounting.Laplace(5.0),
        accounting.RandomAllocated(accounting.Gaussian(1.0), 8, 2),
    ],
    ids=repr,
)
def test_at_delta_0_what_loses_without_limit_costs_infinitely_much(release: Release) -> None:
    assert lower_epsilon(release, 0.0) == math.inf


@pytest.mark.filterwarnings("ignore:ε is only known:UserWarning")
@pytest.mark.parametrize(("count", "delta_of_all"), [(1, 0.01), (1, 0.05), (3, 0.02)])
def test_samples_of_what_may_fail_cost_what_all_outputs_say(count: int, delta_of_all: float) -> None:
    """A failure of a unit that was not read is no loss, and so is one in the place of a unit that is not there."""
    epsilon_of_one, failing, rate, e = 1.0, 0.01, 0.2, math.exp(1.0)
    holds = (1 - failing) / (1 + e) * np.array([e, 1.0, 0.0, 0.0]) + failing * np.array([0.0, 0.0, 1.0, 0.0])
    lacks = holds[[1, 0, 3, 2]]
    here = there = np.ones(1)
    for _ in range(count):
        here, there = np.outer(here, (1 - rate) * lacks + rate * holds).ravel(), np.outer(there, lacks).ravel()
    lower, upper = accounting.bound(
        count * PoissonSubsampled(accounting.ApproxDP(epsilon_of_one, failing), rate), delta_of_all
    )
    exact = [max(divergence(here, there, at), divergence(there, here, at)) for at in (lower, upper)]
    assert delta_of_all <= exact[0] <= delta_of_all * 1.002
    assert exact[1] <= delta_of_all


@pytest.mark.filterwarnings("ignore:ε is only known:UserWarning")
def test_a_sample_of_what_may_fail_tells_of_a_unit_that_is_there_and_costs_more_where_it_is_not() -> None:
    """A failure tells that the unit was read, but not that there is none; all else tells more of one that is not."""
    epsilon_of_one, failing, rate, count, delta_of_all = 0.5, 0.005, 0.9, 5, 0.07
    e = math.exp(epsilon_of_one)
    holds = np.array([e, 1.0, 0.0, 0.0]) * (1 - failing) / (1 + e) + np.array([0.0, 0.0, failing, 0.0])
    lacks = holds[[1, 0, 3, 2]]
    here = there = np.ones(1)
    for _ in range(count):
        here, there = np.outer(here, (1 - rate) * lacks + rate * holds).ravel(), np.outer(there, lacks).ravel()
    sample = PoissonSubsampled(accounting.ApproxDP(epsilon_of_one, failing), rate)
    lower, upper = accounting.bound(count * sample, delta_of_all)
    exact = [max(divergence(here, there, at), divergence(there, here, at)) for at in (lower, upper)]
    assert delta_of_all <= exact[0] <= delta_of_all * 1.002
    assert exact[1] <= delta_of_all


def lopsided(present: float, absent: float) -> Release:
    """From outside: of a unit that is there it tells as much as one coin, and of one that is not as another."""
    pairs = PureDP(present).pair(), PureDP(absent).pair()
    return Own(pairs[0], absent=pairs[1], adjacency="add_remove", largest=max(present, absent))


@pytest.mark.filterwarnings("ignore:ε is only known:UserWarning")
@pytest.mark.parametrize("delta_of_all", [0.03, 0.1, 0.2])
@pytest.mark.parametrize(("present", "absent"), [(0.1, 1.5), (1.5, 0.1)])
def test_beside_failures_the_direction_that_costs_more_counts(
    present: float, absent: float, delta_of_all: float
) -> None:
    epsilon_of_one, failing, rate, count = 0.3, 0.01, 0.5, 3
    e = math.exp(epsilon_of_one)
    holds = np.array([e, 1.0, 0.0, 0.0]) * (1 - failing) / (1 + e) + np.array([0.0, 0.0, failing, 0.0])
    lacks = holds[[1, 0, 3, 2]]

    def exact(at: float) -> float:
        both = []
        for of_coin, one, other in ((present, holds, lacks), (absent, lacks, holds)):
            p = np.array([math.exp(of_coin), 1.0]) / (1 + math.exp(of_coin))
            q = p[::-1]
            for _ in range(count):
                sampled = ((1 - rate) * lacks + rate * law for law in (one, other))
                p, q = (np.outer(law, some).ravel() for law, some in zip((p, q), sampled, strict=True))
            both.append(divergence(p, q, at))
        return max(both)

    samples = count * PoissonSubsampled(accounting.ApproxDP(epsilon_of_one, failing), rate)
    lower, upper = accounting.bound(samples + lopsided(present, absent), delta_of_all)
    assert exact(upper) <= delta_of_all <= exact(lower)
    assert lower > 0.93 * upper


@pytest.mark.parametrize("delta_of_all", [0.01, 0.3])
@pytest.mark.parametrize(("present", "absent"), [(0.1, 1.5), (1.5, 0.1)])
@pytest.mark.parametrize("choices", [4 * PoissonSubsampled(NoisyMax(1.0), 0.4), PoissonSubsampled(NoisyMax(2.0), 0.7)])
def test_beside_choices_both_are_of_one_direction(
    choices: Release, present: float, absent: float, delta_of_all: float
) -> None:
    lower, upper = accounting.bound(choices + lopsided(present, absent), delta_of_all)
    assert 0.998 * upper < lower <= upper


@pytest.mark.filterwarnings("ignore:ε is only known:UserWarning")
def test_many_releases_of_which_some_certainly_fail_have_a_lower_end() -> None:
    one, many = accounting.ApproxDP(0.1, 0.01), 10**6
    assert lower_epsilon(many * one, 0.1) == math.inf
    # nearly all failures are of units that are not read
    assert lower_epsilon(many * PoissonSubsampled(one, 1e-9), 0.1) == 0


def test_branches_of_which_one_may_fail_do_not_fail_together() -> None:
    fails, noise = accounting.ApproxDP(0.1, 0.01), accounting.Gaussian(1.0)
    assert lower_epsilon(parallel(fails, noise), 0.02) == lower_epsilon(noise, 0.02)
    assert lower_epsilon(parallel(fails, noise), 0.005) == math.inf
    both = lower_epsilon(parallel(fails, noise) + Laplace(2.0), 0.02)
    assert lower_epsilon(noise + Laplace(2.0), 0.02) == pytest.approx(both, rel=1e-9)


@pytest.mark.parametrize("share", [0.99, 1 - 1e-6, 1 + 1e-6, 1.4])
@pytest.mark.parametrize("release", [3 * Laplace(1000.0), 2 * Laplace(5.0) + PureDP(0.1)], ids=repr)
def test_next_to_the_total_variation_no_lower_end_is_made_up(release: Release, share: float) -> None:
    """Where so small an ε is left that no grid shows any, or none, none is claimed."""
    level = share * float(delta(release, 0.0))
    assert lower_epsilon(release, level) <= float(epsilon(release, level)) < 0.01


@pytest.mark.parametrize("level", [1e-6, 0.3])
def test_branches_of_which_there_are_none_tell_nothing(level: float) -> None:
    assert (*accounting.bound(parallel(), level), lower_epsilon(parallel(), level)) == (0.0, 0.0, 0.0)
    assert accounting.rdp(parallel(), [1.5, 30.0]).tolist() == [0.0, 0.0]
    assert accounting.rdp(parallel() + Laplace(2.0), [3.0]) == accounting.rdp(Laplace(2.0), [3.0])


@pytest.mark.filterwarnings("ignore:ε is only known:UserWarning")
def test_where_there_are_too_many_branches_to_try_none_is_claimed_to_cost_anything() -> None:
    many = 10 * parallel(*(Laplace(1e5 + z) for z in range(8)))
    lower, upper = accounting.bound(many, 1e-9)
    assert 0 == lower < upper < 1e-3


@pytest.mark.parametrize("rate", [1.0, 0.3])
@pytest.mark.parametrize("noise", ["gumbel", "exponential", "laplace"])
@pytest.mark.parametrize("eps", [0.3, 2.0, 6.0])
def test_of_two_scores_the_witness_is_the_pair_with_the_largest_moment(eps: float, noise: str, rate: float) -> None:
    """By brute force over the lead, which a unit moves by ε, and the law of the difference of two noises."""
    lead = np.linspace(-12.0 - eps, 12.0 + eps, 20_001)

    def wins(a: np.ndarray) -> np.ndarray:
        if noise == "gumbel":
            return expit(a)
        far = np.exp(-np.abs(a)) * (0.5 if noise == "exponential" else 0.5 + np.abs(a) / 4)
        return np.where(a < 0, far, 1 - far)

    for order in (0.5, 4.0, 20.0):
        loss = np.stack([np.log(wins(side * lead) / wins(side * (lead - eps))) for side in (1, -1)])
        without = np.stack([wins(side * (lead - eps)) for side in (1, -1)])
        best = float(np.logaddexp(*(np.log(without) + (1 + order) * np.log1p(rate * np.expm1(loss)))).max())
        release = NoisyMax(eps, noise) if rate == 1 else PoissonSubsampled(NoisyMax(eps, noise), rate)
        found = witness(release, order)
        assert found is not None
        losses, _, q, _ = (found if rate == 1 else found.release).pair().atoms()
        moment = float(np.log(np.sum(q * np.exp((1 + order) * np.log1p(rate * np.expm1(losses))))))
        assert best - 0.01 * abs(best) - 1e-9 <= moment <= best + 1e-6 * abs(best)


class LaplaceNoise(Release):
    """From outside: Laplace noise of scale 1, of which the weaker description says twice as much."""

    def pair(self) -> LossPair:
        return Laplace(1.0).pair()

    def weaker(self) -> Release:
        return PureDP(2.0)


@pytest.mark.parametrize(
    ("release", "most"),
    [
        (LaplaceNoise(), 1.0),
        (2 * LaplaceNoise() + Laplace(2.0), 2.5),
        (PoissonSubsampled(LaplaceNoise(), 0.5), math.log1p(0.5 * math.expm1(1.0))),
        (parallel(LaplaceNoise(), Laplace(2.0)), 1.0),
        (PoissonSubsampled(parallel(LaplaceNoise(), Laplace(2.0)), 0.5), math.log1p(0.5 * math.expm1(1.0))),
        # outputs with G(s) of P and s of Q before them are e^(μ(G(s) − s)) times as likely as in one run, and G(s) − s
        # is at most the total variation
        (BestOfPoissonRuns(LocalShuffled(1.0, 200), 5), 1.0 + 5 * delta(LocalShuffled(1.0, 200), 0.0)),
    ],
    ids=repr,
)
def test_at_delta_0_no_lower_end_is_above_what_may_be_lost(release: Release, most: float) -> None:
    """Where accountants have no price at δ = 0, or a larger one."""
    assert 0.4 * most < lower_epsilon(release, 0.0) <= most < 0.9 * float(epsilon(release, 0.0))


@pytest.mark.thorough
def test_a_sample_of_what_has_two_directions_is_no_witness() -> None:
    """A unit that is present outside would have to be absent inside: nothing is claimed from below."""
    best = accounting.BestOfRuns(PoissonSubsampled(accounting.Gaussian(1.0), 0.3), 0.5)
    assert lower_epsilon(best, 1e-5) > 0
    assert lower_epsilon(PoissonSubsampled(best, 0.2), 1e-5) == 0


@settings(max_examples=8)
@given(st.floats(-6.0, 3.0), st.floats(-6.0, 3.0), st.sampled_from(sorted(_WINS)))
def test_how_often_the_first_of_three_scores_wins(first: float, second: float, noise: str) -> None:
    """Against the integral of its law; with Laplace noise the third score is held by many, and the largest counts."""
    law = {"gumbel": gumbel_r, "exponential": expon, "laplace": laplace}[noise]
    others = _LEADERS if noise == "laplace" else 1

    def density(x: float) -> float:
        return float(law.pdf(x - first) * law.cdf(x - second) * law.cdf(x) ** others)

    ends = sorted((first, second, 0.0))
    places = [ends[0] - 45.0, *ends, ends[-1] + 45.0]
    expected = sum(quad(density, a, b, epsabs=1e-12, limit=200)[0] for a, b in pairwise(places))
    # of several at once, in another order
    found = _WINS[noise](np.array([first, 0.5, first]), np.array([second, -1.0, second]))
    assert found[[0, 2]] == pytest.approx(expected, abs=1e-8)


def test_witnesses_that_can_gain_nothing_are_left_out() -> None:
    asked = []

    def below(one: float) -> float:
        asked.append(one)
        return 0.9995 * one

    def found(*some: float, known: float = 0.0) -> tuple[float, list[float]]:
        asked.clear()
        return pld.largest_below(some, lambda one: one, below, known), list(asked)

    assert found(1.0, 3.0, 2.999, 2.0) == (0.9995 * 3, [3.0])
    assert found(1.0, 3.0, known=2.5) == (0.9995 * 3, [3.0])
    assert found(3.0, known=2.998) == (2.998, [])
    assert found(known=2.0) == (2.0, [])
    assert found(0.0) == (0.0, [0.0])

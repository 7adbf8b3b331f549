"""Descriptions at the ends of what floats can say: an answer or a refusal, and nothing in between."""

import math

import pytest

from accounting import (
    Budget,
    DiscreteGaussian,
    FixedSizeSubsampled,
    Gaussian,
    Laplace,
    Ledger,
    LocalShuffled,
    NoisyMax,
    PoissonSubsampled,
    PureDP,
    RandomizedResponse,
    ShuffledBinomial,
    UnaryEncoding,
    UnsupportedRelease,
    bound,
    delta,
    epsilon,
)

# From little noise to much.
ENDS = [1e-12, 1e-3, 1.0, 800.0, 1e12]

FALLING = {
    "gaussian": Gaussian,
    "laplace": Laplace,
    "discrete": lambda z: DiscreteGaussian(z, shift=1),
    "pure": lambda z: PureDP(1 / z),
    "response": lambda z: RandomizedResponse(1 / z, 10),
    "unary": lambda z: UnaryEncoding(1 / z, 10),
    "choice": lambda z: NoisyMax(1 / z),
    "shuffled": lambda z: LocalShuffled(1 / z, 10**7),
    "shuffled by few": lambda z: LocalShuffled(RandomizedResponse(1 / z, 10), 2),
    "counts": lambda z: ShuffledBinomial(10**9, 1e3 / z, 2),
    "rare": lambda z: PoissonSubsampled(Gaussian(z), 1e-12),
    "often": lambda z: PoissonSubsampled(Laplace(z), 0.5),
    "swapped": lambda z: PoissonSubsampled(DiscreteGaussian(z, shift=1), 0.1, adjacency="replace"),
    "batch": lambda z: FixedSizeSubsampled(Gaussian(z), 1, 10**9),
}


@pytest.mark.slow
@pytest.mark.parametrize("make", FALLING.values(), ids=FALLING)
@pytest.mark.parametrize("at", [1e-6, 1e-15])
def test_from_end_to_end_more_noise_costs_less(make, at):
    found = [math.inf]
    for z in ENDS:
        try:
            found.append(float(epsilon(make(z), at)))
        except (UnsupportedRelease, ValueError):
            pass
        else:
            assert 0 <= found[-1] <= found[-2] * (1 + 1e-6)
    assert len(found) > 3


@pytest.mark.slow
@pytest.mark.parametrize("make", FALLING.values(), ids=FALLING)
def test_ten_of_them_cost_at_most_ten_times_as_much(make):
    one = float(epsilon(make(1.0), 1e-7))
    ten = float(epsilon(10 * make(1.0), 1e-6))
    assert ten <= 10 * one * (1 + 1e-6) + 1e-3
    assert one < 1e-3 or one * (1 - 1e-9) <= epsilon(10 * make(1.0), 1e-7)


@pytest.mark.filterwarnings("ignore:ε is only known")
def test_responses_that_hide_nothing():
    for eps in (699.0, 800.0, 1e12):
        for encoding in (UnaryEncoding(eps, 10), UnaryEncoding(eps, 10, optimized=False)):
            assert epsilon(encoding, 1e-6) == pytest.approx(eps, rel=1e-3)
            lower, upper = bound(encoding, 1e-6)
            assert 0 <= lower <= upper


@pytest.mark.parametrize("small", [0.0, 1e-6])
def test_a_ledger_in_which_nothing_lies_has_spent_nothing(small):
    """A pure budget, too: it said that ε was infinite, as Gaussian noise at δ = 0 would be."""
    assert epsilon(0 * Gaussian(1.0), small) == 0.0
    assert Ledger(Budget(1.0, small)).epsilon() == 0.0


def test_nothing_costs_less_than_nothing():
    # a unit is in the sample less often than δ
    for rare in (PoissonSubsampled(Gaussian(1e-3), 1e-12), PoissonSubsampled(Gaussian(800.0), 1e-12)):
        assert epsilon(rare, 1e-11) == 0.0
        assert 0 < delta(rare, 0.0, accountant="pld") <= 1e-12 * (1 + 1e-9)


def test_many_users_who_say_next_to_nothing():
    few, many = (float(epsilon(LocalShuffled(1e-6, users), 1e-15)) for users in (10**5, 10**7))
    assert 0 < many < few < 1e-6
    # about √n falls by √100
    assert many == pytest.approx(few / 10, rel=0.2)

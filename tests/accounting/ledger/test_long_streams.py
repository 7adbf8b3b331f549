"""A ledger's filters under adversaries who choose more than a thousand releases, each from all that was seen before.

How many releases fit is asked of a real ledger; what an adversary makes of them is found by dynamic programming
(``tests/support/streams_of_choices.py``). Largest δ reached over δ claimed, in what runs here and in what is slow:

| ledger | budget | releases | reached |
|---|---|---|---|
| pure releases | (4, 1e-5) | 2,030 | .555 |
| noisy maxima, of which any coin may be chosen | (4, 1e-5) | 1,997 | .464 |
| Poisson samples, z = 4, 2 % | (1, 1e-6) | 1,981 | .492 |
| Poisson samples, z = 1, 0.2 % | (1, 1e-6) | 6,673 | .426 |
| four kinds in a random order | (1, 1e-6) | 753 | .494 |
| the kind chosen, too; charges by levels, of their share of δ | (1, 1e-6) | up to 1,800 | .778 |
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import streams_of_choices as streams
from streams_of_choices import Adversary

from accounting import Budget, BudgetExceeded, Gaussian, Ledger, NoisyMax, PoissonSubsampled, PureDP, Release
from accounting.ledger.filters.default_rule import mixed_rule
from accounting.ledger.filters.measure_sums import measures
from accounting.ledger.filters.rule import without_failures


def admitted(budget: Budget, release: Release) -> int:
    """How many of a kind a ledger takes, the first of them alone: it may fix the rule."""

    def takes(count: int) -> bool:
        ledger = Ledger(budget)
        try:
            ledger.spend(release)
            ledger.spend((count - 1) * release)
        except BudgetExceeded:
            return False
        return True

    low, high = 1, 2
    while takes(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if takes(middle) else (low, middle)
    return low


def reached(epsilon, laws, step, count):
    return Adversary(epsilon, [laws], step).reached([0] * count)


@pytest.mark.thorough
def test_pure_releases():
    budget, eps, count = Budget(1.0, 1e-6), 0.007, 1000
    ledger = Ledger(budget)
    for _ in range(count):
        ledger.spend(PureDP(eps))
    most = admitted(budget, PureDP(eps))
    assert count < most < 1.25 * count
    step = eps / 4
    laws = streams.pure(eps, step, (1.0, 0.75, 0.5))
    assert 0.4 * budget.delta < reached(1.0, laws, step, most) <= budget.delta
    # a sixth more would pass it: the attack can succeed
    assert reached(1.0, laws, step, 7 * most // 6) > budget.delta


@pytest.mark.slow
def test_noisy_maxima_of_which_any_coin_may_be_chosen():
    budget, eps = Budget(4.0, 1e-5), 0.04
    most = admitted(budget, NoisyMax(eps))
    assert most > 1_900
    step = eps / 8
    laws = streams.coins(eps, step)
    fixed = reached(4.0, [laws[3]], step, most)
    # a choice is of some use
    assert fixed < reached(4.0, laws, step, most) <= budget.delta
    assert reached(4.0, laws, step, 6 * most // 5) > budget.delta


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "delta", "z", "rate"),
    [
        (1.0, 1e-6, 2.0, 0.01),
        (1.0, 1e-6, 4.0, 0.02),
        (1.0, 1e-6, 1.5, 0.005),
        (1.0, 1e-6, 1.0, 0.002),
        (4.0, 1e-5, 1.0, 0.01),
        (0.2, 1e-9, 2.0, 0.001),
    ],
)
def test_samples_whose_direction_is_chosen(epsilon, delta, z, rate):
    budget = Budget(epsilon, delta, adjacency="add_remove")
    most = admitted(budget, PoissonSubsampled(Gaussian(z), rate))
    assert most > 1_500
    step = 4e-4 * epsilon
    assert 0.3 * delta < reached(epsilon, streams.sampled_normal(z, rate, step), step, most) <= delta


def laws_of(release: Release, step: float) -> list[streams.Law]:
    match release:
        case PureDP(epsilon=eps):
            return streams.pure(eps, step)
        case NoisyMax(epsilon=eps):
            return streams.coins(eps, step)
        case Gaussian(noise_multiplier=z):
            return streams.normal(z, step)
        case PoissonSubsampled(release=Gaussian(noise_multiplier=z), rate=rate):
            return streams.sampled_normal(z, rate, step)
        case _:
            raise TypeError(f"no laws of {release!r}")


MIXED = Budget(1.0, 1e-6, adjacency="add_remove")
KINDS = {
    "small": [PureDP(0.01), NoisyMax(0.02), PoissonSubsampled(Gaussian(2.0), 0.01), Gaussian(150.0)],
    "skewed": [PureDP(0.01), PoissonSubsampled(Gaussian(1.5), 0.005), PoissonSubsampled(Gaussian(1.0), 0.002)],
    "rare and large": [
        Gaussian(200.0),
        PoissonSubsampled(Gaussian(1.0), 0.002),
        PoissonSubsampled(Gaussian(0.9), 0.002),
    ],
}
STEP = 4e-4


@pytest.mark.slow
@pytest.mark.parametrize("kinds", list(KINDS.values()), ids=list(KINDS))
@pytest.mark.parametrize("seed", [1, 2])
def test_several_kinds_one_after_the_other(kinds, seed):
    """A real ledger takes them one by one, until it takes none of them any more."""
    source, ledger, taken, refused = np.random.default_rng(seed), Ledger(MIXED), [], set()
    while len(refused) < len(kinds):
        kind = int(source.integers(len(kinds))) if taken else 0
        if kind in refused:
            continue
        try:
            ledger.spend(kinds[kind])
            taken.append(kind)
        except BudgetExceeded:
            refused.add(kind)
    adversary = Adversary(1.0, [laws_of(kind, STEP) for kind in kinds], STEP)
    assert 0.01 * MIXED.delta < adversary.reached(taken[::-1]) <= MIXED.delta


@pytest.mark.slow
@pytest.mark.parametrize("kinds", list(KINDS.values()), ids=list(KINDS))
def test_the_kind_is_chosen_too(kinds):
    """Charges by levels: over what was charged and the loss. Charges are rounded up to a 6,000th of the limit."""
    rule, cells = mixed_rule(MIXED), 6_000
    adversary = Adversary(1.0, [laws_of(kind, STEP) for kind in kinds], STEP)
    sums = [one for one in measures(rule, 1.0, without_failures(1e-6, rule.failure_delta)) if one.by_level is not None]
    for charged, share in zip(sums, (rule.shares[0], rule.heavy[0]), strict=True):
        levels = charged.by_level
        cell = levels._limit / cells
        kept = [level / cell for level in levels._kept]
        costs = [
            [max(1, math.ceil(cost / cell)) if cost < math.inf else cells + 1 for cost in levels.terms(kind)[0][1]]
            for kind in kinds
        ]
        after = {}
        for spent in range(cells, -1, -1):
            values = adversary.stopped
            for kind, row in enumerate(costs):
                # the charge at the largest level that allows it, as the rule has it
                step = next((c for c, left in zip(row, kept, strict=True) if spent + c + left <= cells), None)
                if step is not None:
                    values = np.maximum(values, adversary.best(after[spent + step], kind))
            after[spent] = adversary.ahead(values)
        assert 0.05 * share * MIXED.delta < adversary.at_start(values) <= share * MIXED.delta

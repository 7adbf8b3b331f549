"""Empirical audits of what leaves the shuffler: below the claim as it is, above it with half the noise bits or half p.

Confidence 1 − 1e-9: the sound protocol is flagged with probability at most 1e-9 under reseeding. The broken ones
are caught by a margin of several standard deviations; the seeds are fixed.
"""

import dataclasses

import numpy as np
import pytest
import white_box
from shuffled_counts import randomized

from accounting import Budget, audit
from dpkit.shuffle import Randomizer, ShuffledRandomizedResponse, VectorSum

USERS, TRIALS = 10, 110_000
BUDGET = Budget(2.0, 1e-4)


def outputs(constants, rng):
    """Independent releases at once: how many ones the analyzer sees, from users who all hold 0 but the first."""

    def mechanism(first, trials):
        X = np.zeros((trials, USERS))
        X[:, 0] = first
        ones = Randomizer(constants, rng=rng).ones(X.reshape(-1, 1))
        return ones.reshape(trials, USERS).sum(axis=1)

    return mechanism


@pytest.mark.parametrize(
    ("changes", "caught"),
    [
        pytest.param(lambda c: {}, False, id="sound"),
        pytest.param(lambda c: {"noise_bits": c.noise_bits // 2}, True, id="half b"),
        pytest.param(lambda c: {"noise_rate": 0.25}, True, id="half p"),
    ],
)
def test_the_vector_sum_is_as_private_as_it_says(changes, caught):
    sums = VectorSum(1, USERS, 1.0, budget=BUDGET)
    constants = dataclasses.replace(sums.protocol, **changes(sums.protocol))
    result = white_box.lower_bound(
        outputs(constants, np.random.default_rng(1)),
        1.0,
        -1.0,
        trials=TRIALS,
        delta=BUDGET.delta,
        confidence=1 - 1e-9,
        score=lambda ones: ones,
    )
    assert result.contradicts(sums.cost) is caught, str(result)
    # the audit of the sound one is not vacuous either
    assert result.epsilon > 0.75 * BUDGET.epsilon


@pytest.mark.parametrize("caught", [False, True])
def test_randomized_response_is_as_private_as_it_says(caught):
    # the broken twin keeps the local ε₀ of 40 users although only 4 take part
    response = ShuffledRandomizedResponse(
        2, 40 if caught else 4, budget=Budget(1.0, 1e-2), rng=np.random.default_rng(2)
    )

    def mechanism(first, trials):
        values = np.ones((trials, 4), dtype=np.int64)
        values[:, 0] = first
        return randomized(response, values.ravel()).reshape(trials, 4).sum(axis=1).astype(np.float64)

    result = audit.lower_bound(
        mechanism, 1, 0, trials=200_000, delta=1e-2, confidence=1 - 1e-9, score=lambda ones: ones, batched=True
    )
    assert result.contradicts(Budget(1.0, 1e-2).epsilon) is caught, str(result)

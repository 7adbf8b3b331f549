"""The theorems of ``docs/regret.md``: what privacy costs at least, and what DPSE loses at most."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import Budget
from dpbandits.policies import DPSE, AdaPUCB, PrivateArms, ThompsonArms

K, T, EPSILON = 3, 2000, 0.04
PRIVATE = {
    "PrivateArms": lambda rng: PrivateArms(K, budget=Budget(EPSILON, 0.0), horizon=T, rng=rng),
    "PrivateArms, δ": lambda rng: PrivateArms(K, budget=Budget(EPSILON, 1.0 / T), horizon=T, rng=rng),
    "DPSE": lambda rng: DPSE(K, budget=Budget(EPSILON, 0.0), horizon=T, rng=rng),
    "AdaPUCB": lambda rng: AdaPUCB(K, budget=Budget(EPSILON, 0.0), horizon=T, rng=rng),
}


def least(arms: int, epsilon: float, rounds: int, delta: float = 0.0) -> float:
    """Theorem 1, for δ ≤ (K − 1)/T."""
    y = epsilon * rounds / ((4 if delta else 2) * (arms - 1))
    return (arms - 1) / (4 * epsilon) * math.log(y / math.log(y))


def worlds() -> list[list[float]]:
    """Means: arm 1 has ½, all others 0; or arm k has 1."""
    return [[0.5, *(float(arm == best) for arm in range(1, K))] for best in range(K)]


def plays(policy, means, rounds, rng):
    """How often each arm was played, with rewards of 0 and 1."""
    counts = np.zeros(len(means), np.int64)
    for _ in range(rounds):
        decision = policy.select()
        counts[decision.index] += 1
        policy.update(decision, float(rng.random() < means[decision.index]))
    return counts


def worst(make) -> float:
    """The largest regret of all worlds, in one run of each."""
    found = []
    for means in worlds():
        gaps = max(means) - np.array(means)
        counts = plays(make(np.random.default_rng([0, 1])), means, T, np.random.default_rng(0))
        found.append(float(counts @ gaps))
    return max(found)


@pytest.mark.filterwarnings("ignore:.*cannot be told from noise yet")
@pytest.mark.parametrize("name", PRIVATE)
def test_a_private_policy_loses_what_the_theorem_says(name):
    # measured: 300 to 1,000 for a bound of 24
    assert worst(PRIVATE[name]) > least(K, EPSILON, T, 1.0 / T if "δ" in name else 0.0) > 18


def test_a_policy_without_privacy_loses_less():
    assert worst(lambda rng: ThompsonArms(K, rng=rng)) < least(K, EPSILON, T)


def test_a_rule_with_known_probabilities_keeps_the_inequality_of_the_proof_and_one_that_tells_more_does_not():
    """P_k(A) ≥ e^(−2mε)·P_1(A), by enumeration of all choices; a rule of twice the ε breaks it."""

    def law(epsilon: float, best: int, rounds: int = 7) -> dict[int, float]:
        """Of n_2, for two arms: play 2 first; then 1, but where the last reward of 2 was 1, told with ε, again 2."""
        honest = math.exp(epsilon) / (1 + math.exp(epsilon))
        again = honest if best else 1 - honest
        found: dict[int, float] = {}
        # from each play of arm 2 its reward is told once; after the first "no" arm 1 is played for good
        for n in range(1, rounds + 1):
            found[n] = again ** (n - 1) * (1 - again if n < rounds else 1.0)
        return found

    def kept(epsilon: float, claimed: float) -> bool:
        one, other = law(epsilon, 0), law(epsilon, 1)
        assert sum(one.values()) == pytest.approx(1.0)
        sums = [(n, sum(one[j] for j in range(1, n + 1)), sum(other[j] for j in range(1, n + 1))) for n in one]
        return all(theirs >= math.exp(-n * claimed) * ours * (1 - 1e-12) for n, ours, theirs in sums)

    assert kept(0.7, 0.7)
    assert not kept(3.0, 0.7)


@settings(max_examples=40)
@given(
    gap=st.floats(0.01, 1.0),
    scale=st.floats(0.001, 100.0),
    arms=st.integers(2, 40),
    beta=st.floats(1e-12, 0.5),
    parameters=st.sampled_from(["theory", "practical"]),
)
def test_the_closed_form_bounds_the_plays_of_an_arm(gap, scale, arms, beta, parameters):
    """N_k ≤ (172/Δ² + 33b/Δ)·ln(8Ke²/β) + 2e, by the policy's own epochs."""
    policy = DPSE(
        arms,
        budget=Budget(1.0 / scale, 0.0),
        horizon=2**60,
        failure_probability=beta,
        parameters=parameters,
        rng=np.random.default_rng(0),
    )
    lengths = np.diff([0, *policy.schedule.ends]) / arms
    e = 1
    while 1.001 * 2.0**-e > gap:
        e += 1
    L = math.log(8 * arms * e**2 / beta)
    assert lengths[:e].sum() <= (172 / gap**2 + 33 * scale / gap) * L + 2 * e
    # and the epochs are as long as the proof wants
    for epoch in range(1, e + 1):
        R = lengths[epoch - 1]
        h = math.sqrt(math.log(8 * arms * epoch**2 / beta) / (2 * R))
        c = scale * math.log(4 * arms * epoch**2 / beta) / R
        assert 4 * h + 4 * c <= 2.0**-epoch * (1 + 1e-9)


@pytest.mark.parametrize("adjacency", ["replace", "zero_out"])
def test_arms_are_played_as_often_as_the_theorem_allows(adjacency):
    """With β = 1e-11 no run may fail."""
    means, beta, rounds = [0.25, 0.875, 0.5], 1e-11, 12_000
    policy = DPSE(
        3,
        budget=Budget(4.0, 0.0, adjacency=adjacency),
        horizon=16_000,
        failure_probability=beta,
        rng=np.random.default_rng(8),
    )
    lengths = np.diff([0, *policy.schedule.ends]) / 3
    counts = plays(policy, means, rounds, np.random.default_rng(7))
    # Δ = 0.625 and 0.375: after the first, and the second epoch
    assert counts[0] <= lengths[0]
    assert counts[2] <= lengths[:2].sum()
    assert policy.left == ["1"]
    assert counts[1] == rounds - counts[0] - counts[2]


def test_the_failures_of_all_epochs_add_up_to_less_than_beta():
    total = sum(1 / e**2 for e in range(1, 10**6)) + 1e-6
    assert (1 + 1.2) / 4 * total < 0.91
    assert math.exp(1000 / 8192) < 1.2

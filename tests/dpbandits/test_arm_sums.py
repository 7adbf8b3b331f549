"""What noisy sums of rewards say of arms that stand, and how far one record moves them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import Budget
from dpbandits.private.parts.arm_fits import Precision, arrivals, fitted, weighed, weighed_together
from dpkit.models.prior import Prior
from dpkit.moments.arms import ArmSums, reward_scales, reward_sensitivity


def triangle(rng: np.random.Generator, k: int) -> np.ndarray:
    C = np.tril(rng.uniform(0.1, 1.0, (k, k)))
    return C / np.linalg.norm(C, axis=0)


# ------------------------------------------------------------------------------------------------- estimates


def covariance(C: np.ndarray, noise: float) -> np.ndarray:
    return noise**2 * np.linalg.inv(C.T @ C)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), k=st.integers(1, 6), K=st.integers(1, 4), noise=st.floats(0.1, 10.0))
def test_estimates_are_generalized_least_squares_of_the_encoded_sums(seed, k, K, noise):
    """Arm by arm, of y = C·s with its independent noise: min over m of (y − mCn)ᵀV⁻¹(y − mCn)."""
    rng = np.random.default_rng(seed)
    C, plays, sums = triangle(rng, k), rng.integers(0, 20, (k, K)).astype(float), rng.normal(0, 9, (k, K))
    v = rng.uniform(0.0, 1.0, K)
    precisions, scores = weighed(covariance(C, noise), plays, sums, v)
    for arm in range(K):
        inverse = np.linalg.inv(noise**2 * np.eye(k) + v[arm] * C @ np.diag(plays[:, arm]) @ C.T)
        design, outputs = C @ plays[:, arm], C @ sums[:, arm]
        assert precisions[arm] == pytest.approx(design @ inverse @ design, rel=1e-6, abs=1e-9)
        assert scores[arm] == pytest.approx(design @ inverse @ outputs, rel=1e-5, abs=1e-7)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32), J=st.integers(1, 3), more=st.integers(0, 3), K=st.integers(1, 4), d=st.integers(1, 3)
)
def test_estimates_by_directions_are_too(seed, J, more, K, d):
    """All of y = C·s, of which the batches after the J-th hold nothing but noise."""
    rng, k = np.random.default_rng(seed), J + more
    C, plays, sums = triangle(rng, k), rng.integers(0, 20, (J, K)).astype(float), rng.normal(0, 9, (k, d))
    v, X = rng.uniform(0.0, 1.0, K), rng.normal(size=(K, d))
    (left, right), scores = weighed_together(covariance(C, 2.0), plays, sums, v, X)
    F = np.kron(C, np.eye(d))
    design, chance = np.zeros((k * d, K)), np.zeros((k * d, k * d))
    for j in range(J):
        rows = slice(j * d, (j + 1) * d)
        design[rows], chance[rows, rows] = X.T * plays[j], (X.T * (v * plays[j])) @ X
    inverse = np.linalg.inv(4.0 * np.eye(k * d) + F @ chance @ F.T)
    assert np.allclose(left @ right, design.T @ F.T @ inverse @ F @ design, rtol=1e-5, atol=1e-7)
    assert np.allclose(scores, design.T @ F.T @ inverse @ F @ sums.ravel(), rtol=1e-4, atol=1e-6)


def test_an_arm_of_a_single_batch_has_the_noise_of_a_single_release():
    C, plays = triangle(np.random.default_rng(0), 5), np.zeros((5, 1))
    plays[1] = 10.0
    precision, _ = weighed(covariance(C, 3.0), plays, np.zeros((5, 1)), np.zeros(1))
    assert precision.item() == pytest.approx((10.0 / 3.0) ** 2, rel=1e-9)  # since columns of C have norm 1


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), d=st.integers(1, 4), K=st.integers(1, 6), radius=st.sampled_from([0.5, 100.0]))
def test_a_linear_model_is_ridge_regression_in_the_ball(seed, d, K, radius):
    rng = np.random.default_rng(seed)
    X, p, mean = rng.normal(size=(K, d)), rng.uniform(0.0, 9.0, K), rng.normal(size=K)
    prior = Prior(rng.normal(size=d) / (9 * d), np.diag(rng.uniform(0.5, 2.0, d)))
    found = fitted(X, lambda e: (e, np.ones(K)), lambda slopes: (np.diag(p), p * mean), prior, np.zeros(d), radius)
    precision = X.T @ np.diag(p) @ X + prior.precision
    free = np.linalg.solve(precision, X.T @ (p * mean) + prior.precision @ prior.mean)
    assert np.linalg.norm(found.mean) <= radius * (1 + 1e-9)
    if np.linalg.norm(free) <= radius:
        assert np.allclose(found.mean, free, rtol=1e-7, atol=1e-9)
    assert np.allclose(found.covariance, np.linalg.inv(precision), rtol=1e-7, atol=1e-9)
    assert np.allclose(found.root @ found.root, found.covariance, rtol=1e-7, atol=1e-9)


def test_a_precision_is_the_matrix_that_it_stands_for():
    rng = np.random.default_rng(0)
    p, left, right = rng.uniform(size=4), rng.normal(size=(4, 2)), rng.normal(size=(2, 4))
    for columns in (rng.normal(size=4), rng.normal(size=(4, 3))):
        assert np.allclose(Precision(p, left, right) @ columns, (np.diag(p) + left @ right) @ columns)


@settings(max_examples=40)
@given(shares=st.lists(st.floats(0.1, 1.0), min_size=1, max_size=8), delayed=st.booleans())
def test_shares_that_are_known_well_are_found_and_others_are_within_their_limits(shares, delayed):
    plays = 1e6 * np.arange(1.0, len(shares) + 1.0)
    plays[0] *= not delayed  # nothing is counted yet
    found = arrivals(np.eye(len(plays)), plays, plays * shares, least=0.01)
    assert np.allclose(found[delayed:], shares[delayed:], atol=1e-3)
    drowned = arrivals(1e30 * np.eye(len(plays)), plays, -plays, least=0.01)
    assert ((drowned >= 0.01) & (drowned <= 1.0)).all()


def test_what_is_known_well_is_found_on_the_curve():
    """Means that are known without doubt are solved for, though they are far from where Newton starts."""
    X, theta = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]), np.array([2.0, -1.5])
    many = np.full(3, 1e8)

    def moments(e: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean = 1.0 / (1.0 + np.exp(-e))
        return mean - 0.5, mean * (1.0 - mean)

    scores = many * moments(X @ theta)[0]
    found = fitted(X, moments, lambda slopes: (np.diag(many), scores), Prior(np.zeros(2), np.eye(2)), np.zeros(2), 3.0)
    assert np.allclose(found.mean, theta, atol=1e-4)


# ----------------------------------------------------------------------------------------------- sensitivity

RANGES = [(-0.5, 0.5), (-0.04, 0.96), (-0.9, 0.1), (-2.0, 7.0)]


# two arms in opposite directions; that an angle apart; the same as the first, shorter
ARMS = np.array([[1.0, 0.0], [-1.0, 0.0], [0.6, 0.8], [0.5, 0.0]])


def moved(c, a, one, other, correlation):
    """The squared distance of two records, (arm, by directions or not, g) or None, in columns so far correlated."""
    vectors = np.zeros((2, 7))
    for vector, record in zip(vectors, (one, other), strict=True):
        if record is not None:
            arm, together, g = record
            if together:
                vector[:2] = c * g * ARMS[arm]
            else:
                vector[2 + arm] = c * g
            vector[-1] = a
    return float(vectors[0] @ vectors[0] + vectors[1] @ vectors[1] - 2.0 * correlation * vectors[0] @ vectors[1])


@settings(max_examples=200)
@given(
    bounds=st.sampled_from(RANGES),
    shares=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    arms=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    together=st.tuples(st.booleans(), st.booleans()),
    come=st.sampled_from([(True, True), (True, False), (False, True)]),
    correlation=st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.0, 1.0)),
    adjacency=st.sampled_from(["replace", "zero_out"]),
    whose=st.sampled_from(["round", "person"]),
)
def test_no_record_moves_the_sums_farther(bounds, shares, arms, together, come, correlation, adjacency, whose):
    """One round has one arm; a person's two records may be any. In the same batch both are summed alike."""
    if adjacency == "zero_out" and all(come):
        come = (True, False)
    if whose == "round":
        arms = (arms[0], arms[0])
    if correlation == 1.0:
        together = (together[0], together[0])
    low, high = bounds
    c, a = reward_scales(low, high, adjacency)
    parts = zip(arms, together, shares, come, strict=True)
    records = [(k, form, low + share * (high - low)) if there else None for k, form, share, there in parts]
    sensitivity = reward_sensitivity(c, a, low, high, adjacency, whose=whose)
    assert moved(c, a, *records, correlation) <= sensitivity**2 * (1 + 1e-12)


@pytest.mark.parametrize(("low", "high"), RANGES)
@pytest.mark.parametrize("whose", ["round", "person"])
@pytest.mark.parametrize("adjacency", ["replace", "zero_out"])
def test_some_record_moves_them_so_far(low, high, adjacency, whose):
    c, a = reward_scales(low, high, adjacency)
    farthest = max((low, high), key=abs)
    pairs = [((0, True, farthest), None, 1.0)]
    if adjacency == "replace":
        pairs += [((0, True, low), (0, True, high), 1.0), ((0, False, farthest), (0, False, farthest), 0.0)]
        if whose == "person":
            pairs.append(((0, True, farthest), (1, True, farthest), 1.0))
    largest = max(moved(c, a, *pair) for pair in pairs)
    assert largest == pytest.approx(reward_sensitivity(c, a, low, high, adjacency, whose=whose) ** 2, rel=1e-12)


def test_counting_rewards_is_free_where_the_range_is_centred():
    c, a = reward_scales(-0.5, 0.5, "replace")
    counted, not_counted = (reward_sensitivity(c, one, -0.5, 0.5, "replace", whose="round") for one in (a, 0.0))
    assert counted == not_counted


# ------------------------------------------------------------------------------------------------------ sums


def sums(arms: int, adjacency: str = "replace", delay: int = 0) -> ArmSums:
    budget, rng = Budget(1.0, 1e-5, adjacency=adjacency), np.random.default_rng(5)
    more = {
        "budget": budget,
        "releases": 3,
        "horizon": 40,
        "rng": rng,
        "weigh": lambda noise: np.ones(3),
        "delay": delay,
    }
    return ArmSums(np.full((arms, 1), 0.5), -0.3, 0.7, **more)


def test_the_noise_of_sums_is_as_stated():
    """8000 entries: their standard deviation is within 5 % of the law's, but for 3e-10 of seeds (6.3 deviations)."""
    kept = sums(8000)
    first, _, plays = kept.release()
    assert not plays.any()
    second = kept.release()[0] - first
    covariance = kept.noise_of_batches(2)
    assert first.std() == pytest.approx(kept.noise_of_sums(1), rel=0.05)
    assert (first + second).std() == pytest.approx(kept.noise_of_sums(2), rel=0.05)
    assert second.std() == pytest.approx(math.sqrt(covariance[1, 1]), rel=0.05)
    correlation = covariance[0, 1] / math.sqrt(covariance[0, 0] * covariance[1, 1])
    assert np.corrcoef(first, second)[0, 1] == pytest.approx(correlation, abs=0.075)
    assert kept.noise_of_count(2) / kept.noise_of_sums(2) == pytest.approx(kept._c / kept._a)


def test_records_enter_the_sum_that_they_are_for():
    kept = sums(3)
    kept.add(1, 0.7, together=True)
    kept.add(2, -0.3, together=False)
    expected = np.array([kept._c * 0.35, 0.0, 0.0, -kept._c * 0.3, 2 * kept._a])
    assert np.allclose(kept.records / kept._unit, expected, atol=1e-8)
    assert np.array_equal(kept.records, np.rint(kept.records))


@settings(max_examples=60)
@given(
    delay=st.integers(0, 6),
    batches=st.lists(
        st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=5), min_size=3, max_size=3
    ),
)
def test_plays_are_counted_as_they_are_decided_so_many_rounds_later(delay, batches):
    """Also where a choice is made again after an interrupt, and over a state in the middle."""
    kept, chosen, counted = sums(3, delay=delay), [], 0
    for batch in batches:
        for arm, again in batch:
            if again:
                kept.decided(len(chosen), (arm + 1) % 3)
            kept.decided(len(chosen), arm)
            chosen.append(arm)
        other = sums(3, delay=delay)
        other.resume(kept.kept())
        until = max(counted, len(chosen) - delay)
        expected = np.bincount(chosen[counted:until], minlength=3).tolist()
        assert other.release()[2].tolist() == kept.release()[2].tolist() == expected
        counted = until


def test_states_go_on_and_wrong_ones_are_refused():
    one, other = sums(3), sums(3)
    one.decided(0, 1)
    one.add(1, 0.25, together=True)
    other.resume(one.kept())
    assert np.array_equal(other.records, one.records)
    assert other.release()[2].tolist() == [0.0, 1.0, 0.0]
    for name, wrong in (("plays", np.array([-1.0, 0, 0])), ("waiting", np.array([3])), ("waiting", np.array([-2]))):
        with pytest.raises(ValueError, match="plays must be at least 0, and waiting ones name an arm"):
            sums(3).resume(one.kept() | {name: wrong})
    with pytest.raises(ValueError, match="units must be"):
        sums(3).resume(one.kept() | {"units": np.array([1.0, 0.5])})

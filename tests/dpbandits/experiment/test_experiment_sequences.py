"""Intervals and e-values of experiments: theorems by enumeration, and how often they fail where people always look."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from many_experiments import Worlds, adversary, in_turn, sequences
from scipy.stats import norm

from accounting import Gaussian, Laplace
from dpbandits.experiment.batches import batch_ends
from dpbandits.experiment.sequences import Evidence, Sequences, log_mgf
from dpbandits.experiment.stopping import best_arm, futile, top_two

ALPHA = 0.05


def lattice(noise, scale: float, reach: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """The law of the nearest integer, from the distribution function of the real variable."""
    k = np.arange(-int(reach * scale) - 20, int(reach * scale) + 21)
    beyond = norm.sf if isinstance(noise, Gaussian) else lambda x: 0.5 * np.exp(-x)
    law = beyond((np.abs(k) - 0.5) / scale) - beyond((np.abs(k) + 0.5) / scale)
    return k, np.where(k == 0, 1.0 - 2.0 * beyond(0.5 / scale), law)


@pytest.mark.parametrize("noise", [Laplace(1.0), Gaussian(1.0)], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("scale", [0.3, 1.0, 7.0])
def test_the_bound_of_the_noise_holds_for_what_is_drawn(noise, scale):
    """φ is E exp(θk) of the rounded variable: exactly for Laplace noise, from above for Gaussian noise."""
    k, law = lattice(noise, scale)
    for theta in np.array([0.01, 0.2, 0.6, 0.9]) / max(scale, 0.5 if isinstance(noise, Gaussian) else 0.0):
        exact = np.log((law * np.exp(theta * k)).sum())
        bound = float(log_mgf(noise, scale, np.array(theta)))
        assert exact <= bound + 1e-12
        assert bound - exact < (1e-9 if isinstance(noise, Laplace) else 0.5 * theta + 1e-9)


@pytest.mark.parametrize("noise", [Laplace(1.0), Gaussian(1.0)], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("mean", [0.0, 0.125, 0.5, 0.75])
def test_a_batch_of_any_extreme_law_multiplies_evidence_by_at_most_one_on_average(noise, mean):
    """All two-point laws of this mean on a lattice of 8 steps, with the noise of each possible draw: E[M] ≤ 1."""
    steps, scale = 8, 12.0
    family = Sequences(noise, scale, steps, 100, True)
    k, law = lattice(noise, scale)
    worst = 0.0
    for i, j in itertools.combinations_with_replacement(np.arange(steps + 1) / steps, 2):
        if not i <= mean <= j:
            continue
        share = (mean - i) / (j - i) if j > i else 0.0
        for sign in (1.0, -1.0):
            total = np.stack([i + k / steps, j + k / steps])
            told = Evidence(total if sign > 0 else 1.0 - total, np.ones_like(total), np.ones_like(total))
            m = np.exp(family.log_evidence_above(told, np.array(mean if sign > 0 else 1.0 - mean)))
            worst = max(worst, float((np.array([1.0 - share, share]) @ m) @ law))
    assert worst <= 1.0 + 1e-9
    if isinstance(noise, Laplace):
        assert worst > 1.0 - 1e-9  # values 0 and 1 attain it


def test_evidence_of_two_arms_is_at_most_one_on_average_by_enumeration():
    """Two batches, one of each arm, of values 0 and 1: the mean of E over all draws, at the true means."""
    steps, scale, p = 4, 1.0, np.array([0.3, 0.55])
    k, law = lattice(Laplace(1.0), scale, reach=60)
    for balanced in (True, False):
        family = Sequences(Laplace(1.0), scale, steps, 50, balanced)
        x, y = np.meshgrid(k / steps, k / steps, indexing="ij")
        found = 0.0
        for a, b in itertools.product((0, 1), (0, 1)):
            one = np.ones_like(x)
            told, at = (Evidence(a + x, one, one), Evidence(b + y, one, one)), (np.full((*x.shape, 1), mu) for mu in p)
            E = np.exp(family.log_evidence_at(*told, *at))[..., 0]
            found += np.prod([p[0] if a else 1 - p[0], p[1] if b else 1 - p[1]]) * float(law @ E @ law)
        assert 0.95 < found <= 1.0 + 1e-9


@settings(max_examples=40)
@given(
    mean=st.tuples(st.floats(0.02, 0.98), st.floats(0.02, 0.98)),
    count=st.tuples(st.integers(20, 5000), st.integers(20, 5000)),
    apart=st.floats(-0.3, 0.3),
    balanced=st.booleans(),
)
def test_the_search_along_one_line_finds_the_least_evidence_of_the_whole_half_plane(mean, count, apart, balanced):
    family = Sequences(Laplace(1.0), 2.0**20, 2**20, 20_000, balanced)
    a, b = (
        Evidence(np.array([m * n]), np.array([float(n)]), np.array([3.0])) for m, n in zip(mean, count, strict=True)
    )
    found = float(family.log_evidence_better(a, b, apart)[0])
    grid = np.linspace(0.0, 1.0, 81)
    x, y = (one.ravel() for one in np.meshgrid(grid, grid))
    inside = x - y <= apart
    dense = family.log_evidence_at(a, b, x[None, inside], y[None, inside]).min()
    assert found <= dense + 1e-6
    if mean[0] - mean[1] <= apart:
        assert found == -np.inf


@settings(max_examples=40)
@given(mean=st.floats(0.0, 1.0), count=st.integers(1, 10_000), alpha=st.sampled_from([0.001, 0.05, 0.5]))
def test_the_ends_of_an_interval_are_where_evidence_reaches_its_threshold(mean, count, alpha):
    family = Sequences(Laplace(1.0), 2.0**20, 2**20, 20_000, True)
    told = Evidence(np.array([mean * count]), np.array([float(count)]), np.array([2.0]))
    low, high = float(family.lower(told, alpha)[0]), float(family.upper(told, alpha)[0])
    assert 0.0 <= low <= mean + 1e-9
    assert mean - 1e-9 <= high <= 1.0
    wanted = np.log(1.0 / alpha)
    if low > 0.0:
        assert abs(family.log_evidence_above(told, np.array([low + family.slack]))[0] - wanted) < 1e-6
    else:
        assert family.log_evidence_above(told, np.array([0.0]))[0] < wanted + 1e-6


def test_intervals_are_mirror_images_and_shrink():
    family = Sequences(Laplace(1.0), 2.0**20, 2**20, 20_000, True)
    n = np.array([50.0, 500.0, 5000.0, 50_000.0])
    told, turned = (Evidence(p * n, n, np.ones(4)) for p in (0.2, 0.8))
    low, high = family.lower(told, ALPHA), family.upper(told, ALPHA)
    np.testing.assert_allclose(low, 1.0 - family.upper(turned, ALPHA), atol=1e-9)
    assert (np.diff(high - low) < 0).all()
    assert high[-1] - low[-1] < 0.02


@pytest.mark.parametrize(("play", "balanced"), [(in_turn, True), (adversary, False)], ids=["fixed", "adaptive"])
def test_nothing_that_is_said_fails_more_often_than_alpha_where_somebody_always_looks(play, balanced):
    """2,000 experiments of two equal arms: intervals, both differences, and the best arm, after every release.

    Bernoulli values in a fixed split; adversarial ones, and turns by what was seen. The e-value at the true means is
    at least the one that is used. A mean of α·R alarms at most: more than 0.07·R has a probability below 1e-4 at these
    seeds' level, and the seed is fixed.
    """
    failed = alarms(play, balanced, 2000, seed=770_000)
    assert max(failed.values()) <= 0.07, failed


@pytest.mark.slow
@pytest.mark.parametrize(("play", "balanced"), [(in_turn, True), (adversary, False)], ids=["fixed", "adaptive"])
@pytest.mark.parametrize(("epsilon", "mean"), [(1.0, 0.1), (0.3, 0.5), (4.0, 0.02)])
def test_false_alarms_in_a_hundred_thousand_runs(play, balanced, epsilon, mean):
    """At most α and three standard errors."""
    failed = alarms(play, balanced, 100_000, seed=770_001, epsilon=epsilon, mean=mean, horizon=4000)
    assert max(failed.values()) <= ALPHA + 3 * np.sqrt(ALPHA * (1 - ALPHA) / 100_000), failed


def alarms(play, balanced, runs, *, seed, epsilon=1.0, mean=0.1, horizon=1000) -> dict[str, float]:
    family, ends = sequences(epsilon, horizon, 2, balanced)
    worlds = Worlds(runs, [mean, mean], epsilon, ends, seed)
    failed = {name: np.zeros(runs, dtype=bool) for name in ("intervals", "differences", "best")}
    truth = np.full((runs, 1), mean)
    for _ in range(2 * len(ends)):
        worlds.release(*play(worlds))
        known = worlds.evidence
        for told in (known, Evidence(known.count - known.total, known.count, known.releases)):
            at = worlds.means if told is known else 1.0 - worlds.means
            failed["intervals"] |= (family.log_evidence_above(told, at) >= np.log(4 / ALPHA)).any(axis=1)
        for a, b in ((0, 1), (1, 0)):
            E = family.log_evidence_at(known.of(np.array(a)), known.of(np.array(b)), truth, truth)[:, 0]
            failed["differences"] |= np.log(2 / ALPHA) <= E
        failed["best"] = failed["differences"]  # with two arms the same thresholds
    return {name: float(one.mean()) for name, one in failed.items()}


def test_the_best_arm_is_found_and_no_arm_where_all_are_alike():
    """300 experiments of five arms, at a third of the noise: found in nearly all, and never a wrong one."""
    family, ends = sequences(3.0, 20_000, 5, True)
    for means, most in (([0.1, 0.1, 0.2, 0.1, 0.1], 1.0), ([0.1] * 5, 0.0)):
        worlds, found = Worlds(40, means, 3.0, ends[ends <= 1500], seed=770_002), np.zeros(40, dtype=int)
        for look in range(5 * len(worlds.ends)):
            worlds.release(*in_turn(worlds))
            if look % 50 == 49:
                for run in np.flatnonzero(found == 0):
                    known = worlds.evidence
                    one = Evidence(known.total[run], known.count[run], known.releases[run])
                    found[run] = best_arm(family, one, ALPHA)
        assert set(found.tolist()) <= {0, 3}
        assert (found == 3).mean() == pytest.approx(most, abs=0.1)


def test_futility_needs_all_arms_to_be_worse_by_what_is_worthwhile():
    family = Sequences(Laplace(1.0), 2.0**20, 2**20, 20_000, True)
    n = np.full(3, 10_000.0)
    for means, said in (([0.1, 0.1, 0.1], True), ([0.1, 0.1, 0.14], False)):
        told = Evidence(np.array(means) * n, n, np.ones(3))
        assert futile(family, told, ALPHA, 0, 0.04) is said
    assert not futile(family, told, ALPHA, 0, 0.0)


def test_top_two_shares():
    """Half goes to a clear leader; the rest is for challengers, also where none has a chance that can be computed."""
    shares = top_two(np.array([0.9, 0.1, 0.2]), np.full(3, 0.01))
    np.testing.assert_allclose(shares, [0.5, 0.25, 0.25], atol=1e-6)
    assert top_two(np.full(4, 0.5), np.full(4, 0.1)) == pytest.approx(0.25)


@settings(max_examples=40)
@given(horizon=st.integers(1, 10**6), arms=st.integers(2, 20), noise=st.floats(0.0, 300.0))
def test_ends_of_batches_increase_to_the_horizon_and_are_not_many(horizon, arms, noise):
    ends = batch_ends(horizon, arms, noise)
    assert all(b > a for a, b in itertools.pairwise([0, *ends]))
    assert ends[-1] >= horizon
    assert len(ends) < 600
    assert ends[0] <= max(1, horizon // (8 * arms))

"""Every known-broken mechanism is caught, and its sound twin is not.

Confidence 1 − 1e-9 throughout: a sound mechanism is flagged with probability at most 1e-9 under reseeding. The
broken ones are caught by margins of many standard deviations; the seeds are fixed.
"""

from __future__ import annotations

import math
from functools import partial

import broken_mechanisms as broken
import numpy as np
import pytest

from accounting import ZCDP, Laplace, PureDP, TreeAggregation, audit, epsilon
from accounting.conversions import gdp_mu

CONFIDENCE = 1 - 1e-9
bound = partial(audit.lower_bound, confidence=CONFIDENCE, batched=True)


def judge(result, claim, *, caught):
    """Both ways of asking agree with what is expected."""
    assert result.contradicts(claim) is caught, str(result)
    if caught:
        with pytest.raises(audit.PrivacyViolation, match="claimed ε"):
            result.check(claim)
    else:
        result.check(claim)


@pytest.mark.parametrize("literal", [True, False])
def test_generalized_gaussian_radius(literal):
    sigma, order, d = 100.0, 3.0, 8
    rho = 0.02
    shift = np.zeros(d)
    shift[0] = sigma * math.sqrt(2 * rho / (order - 1))  # ρ = (r − 1)‖shift‖²/(2σ²)
    norms = partial(np.linalg.norm, ord=order, axis=1)
    mechanism = partial(
        broken.generalized_gaussian, sigma=sigma, order=order, literal=literal, rng=np.random.default_rng(1)
    )
    result = bound(
        mechanism,
        shift,
        np.zeros(d),
        trials=100_000,
        delta=1e-5,
        score=lambda y: norms(y) - norms(y - shift),
    )
    judge(result, ZCDP(rho), caught=literal)


@pytest.mark.parametrize("scale", [0.5, 1.0])
def test_laplace_scale(scale):
    rng = np.random.default_rng(2)
    result = bound(
        lambda x, n: x + rng.laplace(scale=scale, size=n),
        1.0,
        0.0,
        trials=100_000,
        delta=0.0,
        score=audit.scores.laplace(1.0, 0.0, scale),
    )
    judge(result, Laplace(1.0), caught=scale < 1)


@pytest.mark.parametrize("classical", [True, False])
def test_gaussian_at_large_epsilon(classical):
    # √(2 ln(1.25/δ))/ε is proved for ε < 1 only: at ε = 16 it gives 0.303 and 0.344 is needed
    delta, claim = 1e-5, 16.0
    needed = 1 / gdp_mu(claim, delta)
    scale = math.sqrt(2 * math.log(1.25 / delta)) / claim if classical else needed
    assert (scale < 0.9 * needed) is classical
    rng = np.random.default_rng(3)
    result = bound(
        lambda x, n: x + rng.normal(scale=scale, size=n),
        1.0,
        0.0,
        trials=200_000,
        delta=delta,
        gaussian=True,
        score=audit.scores.gaussian(1.0, 0.0, scale),
    )
    judge(result, claim, caught=classical)


def more_in_the_second_half(outputs):
    above = (outputs == 1.0).astype(float)
    half = above.shape[1] // 2
    return above[:, half:].sum(axis=1) - above[:, :half].sum(axis=1)


def published_number_below_threshold(outputs):
    """1 where all queries but the last were below and the last one's published number is nevertheless ≤ 0."""
    flags, numbers = np.split(outputs, 2, axis=1)
    return ((flags[:, :-1] == 0).all(axis=1) & (numbers[:, -1] <= 0)).astype(float)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("make", "twin", "data", "score", "trials"),
    [
        # ⊥, ⊥, ⊥ and then a published number ≤ 0, which tells that the threshold's noise was below it
        (
            partial(broken.noise_published_twice, cutoff=1),
            partial(broken.sound_sparse_vector_with_answers, cutoff=1),
            ([0.0] * 4, [1.0] * 4),
            published_number_below_threshold,
            600_000,
        ),
        (
            partial(broken.query_noise_without_cutoff_factor, cutoff=10),
            partial(broken.sound_sparse_vector, cutoff=10),
            ([0.0] * 10 + [1.0] * 10, [1.0] * 10 + [0.0] * 10),
            more_in_the_second_half,
            50_000,
        ),
        # ⊥, ⊤ is impossible on the neighbour
        (
            broken.no_query_noise,
            partial(broken.sound_sparse_vector, cutoff=2),
            ([0.0, 1.0], [1.0, 0.0]),
            more_in_the_second_half,
            20_000,
        ),
        (
            broken.no_cutoff,
            partial(broken.sound_sparse_vector, cutoff=20),
            ([0.0] * 20 + [1.0] * 20, [1.0] * 20 + [0.0] * 20),
            more_in_the_second_half,
            50_000,
        ),
    ],
    ids=["algorithm 3", "algorithm 4", "algorithm 5", "algorithm 6"],
)
def test_sparse_vector_variants(make, twin, data, score, trials):
    claim = PureDP(1.0)
    for build, caught in ((make, True), (twin, False)):
        mechanism = build(epsilon=1.0, rng=np.random.default_rng(4))
        judge(bound(mechanism, *data, trials=trials, delta=0.0, score=score), claim, caught=caught)


@pytest.mark.parametrize("rewind", [True, False])
def test_tree_restored_from_an_old_state(rewind):
    scale = 9.0
    mechanism = partial(broken.restored_tree, scale=scale, rewind=rewind, rng=np.random.default_rng(5))
    # two whole trees: more than the one element that two lives share can cost
    claim = 2 * TreeAggregation(scale, steps=4)
    result = bound(
        mechanism,
        [0.0, 0.0, 1.0, 0.0],
        [0.0, 0.0, 0.0, 0.0],
        trials=20_000,
        delta=1e-5,
        # where the noise is the same, the difference of the two lives is that of their data
        score=lambda y: -np.abs(y[:, 2] - y[:, 3] - 1.0),
    )
    judge(result, claim, caught=rewind)
    assert epsilon(claim, 1e-5) < 1.2


@pytest.mark.parametrize("mechanism", [broken.textbook_laplace, broken.lattice_laplace])
def test_floating_point_laplace(mechanism):
    result = bound(
        partial(mechanism, rng=np.random.default_rng(6)),
        1.0,
        0.0,
        trials=20_000,
        delta=0.0,
        score=broken.unreachable_from_zero,
    )
    judge(result, Laplace(1.0), caught=mechanism is broken.textbook_laplace)

"""How much the noise of each release matters, and which factor a policy's sums have for it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import Budget, Gaussian, calibrate
from dpbandits.policies import OnePassPrivateGLM
from dpbandits.private.parts.cold_start import clarity, release_weights
from dpkit.continual import BufferedToeplitz, Discounted, Weighted
from dpkit.moments.pairs import MOST_WEIGHTED

BUDGET = Budget(1.0, 1e-5)


def policy(horizon=10_000, **parameters):
    known = {"budget": BUDGET, "rng": np.random.default_rng(0)} | parameters
    return OnePassPrivateGLM(4, horizon=horizon, **known)


@settings(deadline=None)
@given(
    ends=st.lists(st.integers(1, 10**6), min_size=1, max_size=64, unique=True).map(sorted),
    signal=st.one_of(st.just(0.0), st.floats(0.0, 1.0), st.floats(0.0, 1e300)),
)
def test_weights_are_numbers_that_a_factor_can_be_made_for(ends, signal):
    weights = release_weights(ends, signal)
    assert weights.shape == (len(ends),)
    assert (np.isfinite(weights) & (weights > 0)).all()
    assert Weighted(weights=weights, shape=(), sensitivity=1.0, noise_multiplier=1.0).horizon == len(ends)


def test_before_there_is_signal_lengths_count_and_after_it_less_and_less():
    ends = np.cumsum(10 * 2 ** np.arange(10))
    lengths = np.append(np.diff(ends), ends[-1] - ends[-2])
    np.testing.assert_allclose(release_weights(ends, 0.0) / release_weights(ends, 0.0)[0], lengths / lengths[0])
    late = release_weights(ends, 1.0)
    np.testing.assert_allclose(late, lengths / ends**1.5)
    assert (np.diff(late[:-1]) < 0).all()


def test_a_policys_weights_are_those_of_its_noise_and_schedule():
    made = policy()
    sums, (a, c, *_) = made.sums.sums, made.sums.kept()["units"]
    one = calibrate(lambda z: Gaussian(z), BUDGET) * sums.sensitivity
    signal = clarity(4, 1.0, made.record.levels.base.W, made.theta_bound, one / c, one / a)
    weights = release_weights(made.schedule.ends, signal)
    np.testing.assert_allclose(sums.weights, weights / weights.max(), rtol=1e-12)
    # the first release that is clearer than the bound is within the run: what this is for
    clear = np.array(made.schedule.ends) * signal
    assert clear[0] < 5.0 < clear[-1]


@pytest.mark.parametrize(
    ("parameters", "kind"),
    [
        ({}, Weighted),
        ({"discount": 0.999}, Discounted),
        ({"release": "every_round", "horizon": 60}, BufferedToeplitz),
        ({"longest_batch": 60}, BufferedToeplitz),
        ({"rounds_per_person": 3, "budget": Budget(1.0, 1e-5, unit="person")}, BufferedToeplitz),
        ({"rounds_per_person": 1, "budget": Budget(1.0, 1e-5, unit="person")}, Weighted),
        ({"horizon": 1}, BufferedToeplitz),
    ],
)
def test_which_sums_are_weighted(parameters, kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = policy(**parameters)
    assert type(made.sums.sums) is kind
    assert kind is not Weighted or len(made.schedule.ends) <= MOST_WEIGHTED
    assert made.sums.cost == Gaussian(made.sums.sums.noise_multiplier, adjacency="replace")


@pytest.mark.thorough
@pytest.mark.parametrize("parameters", [{}, {"longest_batch": 60}])
def test_the_noise_of_a_batch_is_that_of_the_difference_of_two_releases(parameters):
    """Without records. A standard deviation over 14·n values is within 6.5/√(28n): a false alarm below 10⁻⁹.

    Where the factor is Toeplitz the stated one is a limit, of which a tenth may be missing.
    """
    made, n = policy(horizon=4000, **parameters), 250
    sums, fresh = made.sums, made.sums.kept()
    k = 8
    H, b = np.empty((n, 4, 4)), np.empty((n, 4))
    for i in range(n):
        sums.resume(fresh)
        released = [sums.release() for _ in range(k)]
        H[i], b[i] = (getattr(released[-1], part) - getattr(released[-2], part) for part in ("H", "b"))
    stated_H, stated_b = sums.batch_noise(k)
    upper = np.triu_indices(4, 1)
    measured = np.concatenate(
        [
            (H[:, upper[0], upper[1]] * np.sqrt(2.0) / stated_H).ravel(),
            (H[:, range(4), range(4)] / stated_H).ravel(),
            (b / stated_b).ravel(),
        ]
    )
    tolerance = 6.5 / np.sqrt(2 * measured.size) + (0.1 if parameters else 0.0)
    assert abs(measured.std() - 1.0) < tolerance

"""The Laplace mechanism, in floating point and on the lattice, and the attack on the textbook version."""

import math

import numpy as np
import pytest
from scipy import stats

from accounting import Budget, Laplace, audit, calibrate, epsilon
from dpkit.mechanisms import LaplaceMechanism


def mechanism(**parameters):
    return LaplaceMechanism(**{"noise_multiplier": 1.0, "sensitivity": 1.0} | parameters)


def test_laplace_costs_one_over_z():
    """The rounded noise at the largest distance that two rounded values can have: its loss is at most 1/z."""
    for z, granularity in ((0.7, 0.25), (2.0, 1.0), (1.0, 2.0**-6)):
        release = mechanism(noise_multiplier=z, exact=True, granularity=granularity)
        assert release.cost == Laplace(z, adjacency="replace")
        assert epsilon(release.cost, 0.0) == pytest.approx(1 / z, rel=1e-15)
        scale = release.noise_std(1) / math.sqrt(2) / granularity
        shift = math.floor(1.0 / granularity) + 1  # ⌊s/γ + 1⌋ steps
        k = np.arange(-int(8 * scale), int(8 * scale) + 1)
        p, q = (stats.laplace.cdf((k + 0.5 - m) / scale) - stats.laplace.cdf((k - 0.5 - m) / scale) for m in (0, shift))
        loss = np.abs(np.log(p[p > 1e-9]) - np.log(q[p > 1e-9])).max()
        assert 0.9 / z < loss <= 1 / z * (1 + 1e-6)


def test_norms_are_those_of_l1():
    release = mechanism(noise_multiplier=1e-200, sensitivity=1e-100, norm_bound=1.0, clip=True, exact=False)
    np.testing.assert_allclose(release.release([3.0, -1.0]), [0.75, -0.25], rtol=1e-9)
    with pytest.raises(ValueError, match=r"norm at most norm_bound=6\.9"):
        mechanism(norm_bound=6.9).release([3.0, 4.0])


def test_calibration_is_that_of_accounting():
    release = LaplaceMechanism.calibrated(budget=Budget(0.25, 0.0), sensitivity=3.0, releases=5)
    assert release.noise_multiplier == calibrate(lambda z: 5 * Laplace(z), Budget(0.25, 0.0))
    assert release.noise_multiplier == pytest.approx(20.0, rel=1e-9)


# --------------------------------------------------------------------------------------- floating-point support


def textbook_laplace(value, trials, rng):
    """Inversion in double precision, as in textbooks: the support of the output depends on ``value`` (Mironov 2012)."""
    u = rng.integers(1, 2**53, size=trials) * 2.0**-53
    return value + 10.0 * np.where(rng.random(trials) < 0.5, -1.0, 1.0) * np.log(u)


def unreachable_from_zero(outputs):
    """1 where no uniform on the grid of 2⁻⁵³ gives this output from value 0 (by textbook noise of scale 10), else 0."""
    nearest = np.rint(np.exp(-np.abs(outputs) / 10.0) * 2.0**53)
    reachable = np.zeros(outputs.shape, dtype=bool)
    for step in range(-2, 3):
        u = np.clip(nearest + step, 1, 2**53) * 2.0**-53
        reachable |= 10.0 * np.log(u) == -np.abs(outputs)
    return (~reachable).astype(float)


def support_attack(mechanism):
    # the claim is ε = 0.1; a sound mechanism is flagged with probability at most 1e-9
    return audit.lower_bound(
        mechanism, 1.0, 0.0, trials=20_000, delta=0.0, confidence=1 - 1e-9, score=unreachable_from_zero, batched=True
    )


def test_laplace_support_does_not_depend_on_the_value():
    rng = np.random.default_rng(5)
    broken = support_attack(lambda value, trials: textbook_laplace(value, trials, rng))
    assert broken.contradicts(Laplace(10.0))
    assert broken.epsilon > 10 * 0.1
    ours = mechanism(noise_multiplier=10.0, exact=True, rng=rng)
    assert not support_attack(lambda value, trials: ours.release(np.full(trials, value))).contradicts(ours.cost)

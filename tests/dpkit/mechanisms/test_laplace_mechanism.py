"""The Laplace mechanism, in floating point and on the lattice, and the attack on the textbook version."""

import math

import numpy as np
import pytest
from scipy import stats
from tabled import tabled
from watched import BAD_VALUES, WatchedGenerator

from accounting import Budget, Laplace, Ledger, audit, calibrate, epsilon
from dpkit.mechanisms import LaplaceMechanism

# Kolmogorov–Smirnov tests at this p-value: the false-alarm rate under reseeding.
ALARM = 1e-10
ROUTES = pytest.mark.parametrize("exact", [False, True], ids=["float", "lattice"])


def mechanism(**parameters):
    return LaplaceMechanism(**{"noise_multiplier": 1.0, "sensitivity": 1.0} | parameters)


def test_laplace_costs_one_over_z():
    """The rounded noise at the largest distance that two rounded values can have: its loss is at most 1/z."""
    for z, granularity in ((0.7, 0.25), (2.0, 1.0), (1.0, 2.0**-6)):
        release = mechanism(noise_multiplier=z, exact=True, granularity=granularity)
        assert release.cost == Laplace(z, adjacency="replace")
        assert epsilon(release.cost, 0.0) == 1 / z
        scale = release.noise_std(1) / math.sqrt(2) / granularity
        shift = math.floor(1.0 / granularity) + 1  # ⌊s/γ + 1⌋ steps
        k = np.arange(-int(8 * scale), int(8 * scale) + 1)
        p, q = (stats.laplace.cdf((k + 0.5 - m) / scale) - stats.laplace.cdf((k - 0.5 - m) / scale) for m in (0, shift))
        loss = np.abs(np.log(p[p > 1e-9]) - np.log(q[p > 1e-9])).max()
        assert 0.9 / z < loss <= 1 / z * (1 + 1e-6)


@ROUTES
def test_laplace_noise_has_the_stated_scale(exact):
    release = mechanism(noise_multiplier=3.0, sensitivity=2.0, exact=exact, rng=np.random.default_rng(0))
    value = np.full((600, 100), 7.0)
    noise = (release.release(value) - value).ravel()
    scale = release.noise_std(value.size) / math.sqrt(2)
    assert 5.999999 <= scale < 6.01
    assert stats.kstest(noise / scale, stats.laplace.cdf, method="asymp").pvalue > ALARM
    for wrong in (0.9, 1.1):
        assert stats.kstest(wrong * noise / scale, stats.laplace.cdf, method="asymp").pvalue < ALARM


@ROUTES
@tabled(("value", "message"), BAD_VALUES)
def test_laplace_refuses_before_it_draws(exact, value, message):
    rng, ledger = WatchedGenerator(), Ledger()
    release = mechanism(norm_bound=7.0, exact=exact, rng=rng, ledger=ledger)
    with pytest.raises((TypeError, ValueError), match=message):
        release.release(value)
    assert rng.draws == 0
    assert len(ledger.rows()) == 0
    release.release([3.0, 4.0])
    assert rng.draws > 0
    assert len(ledger.rows()) == 1


def test_norms_are_those_of_l1():
    release = mechanism(noise_multiplier=1e-200, sensitivity=1e-100, norm_bound=1.0, clip=True, exact=False)
    np.testing.assert_allclose(release.release([3.0, -1.0]), [0.75, -0.25], rtol=1e-9)
    with pytest.raises(ValueError, match=r"norm at most norm_bound=6\.9"):
        mechanism(norm_bound=6.9).release([3.0, 4.0])


def test_calibration_is_that_of_accounting():
    release = LaplaceMechanism.calibrated(budget=Budget(0.25, 0.0), sensitivity=3.0, releases=5)
    assert release.noise_multiplier == calibrate(lambda z: 5 * Laplace(z), Budget(0.25, 0.0))
    assert release.noise_multiplier == pytest.approx(20.0, rel=1e-9)
    assert mechanism(exact=True).cost == mechanism(exact=False).cost


@ROUTES
@pytest.mark.parametrize("shape", [(), (3,), (4, 3), (2, 0)])
def test_batch_shapes(exact, shape):
    out = mechanism(exact=exact).release(np.zeros(shape))
    assert isinstance(out, np.ndarray)
    assert out.shape == shape


def test_overflow_of_the_lattice_is_refused_before_it_draws():
    rng, ledger = WatchedGenerator(), Ledger()
    with pytest.raises(ValueError, match=r"at most 2\*\*62 steps"):
        mechanism(exact=True, rng=rng, ledger=ledger).release([1e16])
    assert rng.draws == 0
    assert len(ledger.rows()) == 0


@pytest.mark.parametrize("name", ["noise_multiplier", "sensitivity"])
@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
def test_bad_parameters_are_refused(name, wrong):
    with pytest.raises(ValueError, match=f"{name} must be"):
        mechanism(**{name: wrong})


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


def test_every_output_is_on_the_lattice_whatever_the_value():
    value = np.random.default_rng(0).standard_normal(1000)
    steps = mechanism(granularity=2.0**-12).release(value) / 2.0**-12
    assert np.array_equal(steps, np.rint(steps))


# ---------------------------------------------------------------------------------------------------- audit


def audited(release):
    """The audit of a release of vectors in R² on two values at L1 distance 1, with the claim's own score."""
    data, neighbour = np.array([0.5, 0.5]), np.zeros(2)
    return audit.lower_bound(
        lambda x, trials: release(np.broadcast_to(x, (trials, 2))),
        data,
        neighbour,
        trials=100_000,
        delta=0.0,
        confidence=1 - 1e-9,
        score=audit.scores.laplace(data, neighbour, 1.0),
        batched=True,
    )


@ROUTES
def test_the_audit_finds_the_claim_and_no_more(exact):
    release = mechanism(exact=exact, rng=np.random.default_rng(11))
    bound = audited(release.release)
    bound.check(release.cost)
    assert bound.epsilon > 0.6


@ROUTES
def test_the_audit_catches_half_the_noise(exact):
    half = mechanism(noise_multiplier=0.5, exact=exact, rng=np.random.default_rng(11))
    assert audited(half.release).contradicts(Laplace(1.0))

"""The generalized Gaussian mechanism: its norm, its cost, its noise."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy import stats
from tabled import tabled
from watched import BAD_VALUES, refused

from accounting import Budget, Gaussian, GeneralizedGaussian, audit, calibrate, delta, epsilon, gdp, zcdp
from dpkit.geometry import best_norm
from dpkit.mechanisms import GeneralizedGaussianMechanism

ALARM = 1e-10
NORMS = st.one_of(st.floats(1.0, 60.0), st.just(math.inf))


def mechanism(**parameters):
    defaults = {"noise_multiplier": 1.0, "q": math.inf, "dimension": 20, "sensitivity": 1.0}
    return GeneralizedGaussianMechanism(**defaults | parameters)


def norm(x, q):
    largest = np.abs(x).max()
    return float(largest * np.linalg.norm(x / largest, q)) if largest > 1e-300 else 0.0


# ---------------------------------------------------------------------------------------------- the privacy proof


@settings(deadline=None, max_examples=50)
@given(
    r=st.floats(2.0, 20.0),
    x=npst.arrays(float, 4, elements=st.floats(-5, 5)),
    y=npst.arrays(float, 4, elements=st.floats(-5, 5)),
)
def test_the_squared_norm_is_smooth(r, x, y):
    """λf(x) + (1 − λ)f(y) − f(λx + (1 − λ)y) ≤ κ λ(1 − λ)‖x − y‖² with κ = r − 1: the step that the proof rests on."""
    for weight in (0.1, 0.5, 0.9):
        left = weight * norm(x, r) ** 2 + (1 - weight) * norm(y, r) ** 2 - norm(weight * x + (1 - weight) * y, r) ** 2
        assert left <= (r - 1) * weight * (1 - weight) * norm(x - y, r) ** 2 + 1e-9


@settings(deadline=None, max_examples=60)
@given(q=NORMS, x=npst.arrays(float, 6, elements=st.floats(-5, 5)))
def test_kappa_covers_the_distance_between_the_norms(q, x):
    """κ₊·(length in the norm of the noise)² ≤ κ·(length in ℓ_q)²."""
    r, kappa = best_norm(q, 6)
    assert (r - 1) * norm(x, r) ** 2 <= kappa * norm(x, q) ** 2 * (1 + 1e-12)


@settings(deadline=None, max_examples=50)
@given(q=NORMS, dimension=st.integers(1, 10**6))
def test_generalized_gaussian_uses_the_best_norm(q, dimension):
    r, kappa = best_norm(q, dimension)
    if q < 2:
        assert (r, kappa) == (2.0, 1.0)
        return
    tried = np.linspace(2, min(q, 60), 20_000)
    values = (tried - 1) * dimension ** (2 / tried - 2 / q)
    assert 2 <= r <= q
    assert kappa <= values.min() * (1 + 1e-12)
    assert kappa == pytest.approx((r - 1) * dimension ** (2 / r - 2 / q), rel=1e-12)


def test_generalized_gaussian_costs_one_over_z():
    """Rényi divergences of order 1 and 2 of the noise and its shift, by Monte Carlo, against α/(2z²).

    Two of the shifts attain more than half of the claim, so half the noise would pass it.
    """
    d, n = 20, 100_000
    release = mechanism(dimension=d, rng=np.random.default_rng(3))
    assert release.cost == GeneralizedGaussian(1.0, adjacency="replace")
    assert (gdp(release.cost), zcdp(release.cost)) == (1.0, 0.5)
    z = release.release(np.zeros((n, d)))
    r, f = release.r, np.sum(np.abs(z) ** release.r, axis=-1) ** (2 / release.r)
    assert r > 2
    signs = np.where(np.arange(d) % 2, 1.0, -1.0)
    for shift, attained in ((np.ones(d), 0.5), (signs, 0.5), (np.eye(d)[0], 0.0)):  # all of ℓ∞ norm 1
        moved = np.sum(np.abs(z - shift) ** r, axis=-1) ** (2 / r)
        loss = (moved - f) / (2 * release.scale**2)
        # 6.5 standard errors: exceeded with probability below 1e-10 under reseeding
        kl, kl_error = loss.mean(), 6.5 * loss.std() / math.sqrt(n)
        moment = np.exp(loss)
        renyi = math.log(moment.mean() - 6.5 * moment.std() / math.sqrt(n))
        assert kl - kl_error < 0.5
        assert renyi < 2 * 0.5
        assert kl + kl_error > attained * 0.5


@pytest.mark.parametrize("r", [2.05, 3.0, 6.0])
def test_no_shift_in_the_plane_costs_more_than_gaussian_noise(r):
    """The hockey-stick divergences of the density and its shifts, summed over a lattice."""
    z, axis = 0.8, np.linspace(-9.0, 9.0, 361)
    scale = z * math.sqrt(r - 1)
    x, y = np.meshgrid(scale * axis, scale * axis)

    def density(x, y):
        return np.exp(-((np.abs(x) ** r + np.abs(y) ** r) ** (2 / r)) / (2 * scale**2))

    q = density(x, y)
    for angle in (0.0, 0.3, math.pi / 4, 1.2):
        v = np.array([math.cos(angle), math.sin(angle)])
        v /= np.sum(np.abs(v) ** r) ** (1 / r)
        p = density(x - v[0], y - v[1])
        found = [np.maximum(p - math.exp(e) * q, 0.0).sum() / q.sum() for e in (0.0, 1.0, 3.0)]
        claimed = [delta(GeneralizedGaussian(z), e) for e in (0.0, 1.0, 3.0)]
        assert np.all(np.array(found) <= np.array(claimed) * (1 + 1e-3))
        if r < 2.1:  # so that a tenth less noise would not do
            assert np.all(found > np.array([delta(Gaussian(1.1 * z), e) for e in (0.0, 1.0, 3.0)]))


def test_norms_up_to_two_are_the_plain_gaussian():
    release = mechanism(q=1.0, dimension=50, noise_multiplier=2.0, sensitivity=3.0, rng=np.random.default_rng(0))
    assert release.cost == Gaussian(2.0, adjacency="replace")
    assert (release.r, release.scale) == (2.0, 6.0)
    noise = release.release(np.zeros((2000, 50))).ravel()
    assert stats.kstest(noise / 6.0, stats.norm.cdf, method="asymp").pvalue > ALARM
    assert stats.kstest(noise / 6.6, stats.norm.cdf, method="asymp").pvalue < ALARM


def test_generalized_gaussian_noise_has_the_stated_scale():
    release = mechanism(noise_multiplier=2.0, sensitivity=3.0, rng=np.random.default_rng(1))
    assert release.scale == pytest.approx(6.0 * math.sqrt(release.kappa), rel=1e-14)
    value = np.arange(20.0)
    noise = release.release(np.broadcast_to(value, (20_000, 20))) - value
    squares = np.sum(np.abs(noise) ** release.r, axis=-1) ** (2 / release.r) / release.scale**2
    assert stats.kstest(squares, stats.chi2(20).cdf, method="asymp").pvalue > ALARM
    for wrong in (0.9, 1.1):
        assert stats.kstest(wrong**2 * squares, stats.chi2(20).cdf, method="asymp").pvalue < ALARM


@pytest.mark.parametrize("q", [2.5, 4.0, math.inf])
@pytest.mark.parametrize("dimension", [8, 100, 1000])
def test_plain_noise_is_smaller(q, dimension):
    """In the expected ℓ_q norm and per entry, at equal ρ."""
    shaped, plain = (mechanism(q=q, dimension=dimension, r=r, rng=np.random.default_rng(0)) for r in (None, 2.0))
    assert shaped.r > 2
    assert plain.cost == Gaussian(1.0, adjacency="replace")
    assert plain.scale == pytest.approx(dimension ** (0.5 - 1 / q), rel=1e-12)
    noises = [release.release(np.zeros((200_000 // dimension, dimension))) for release in (shaped, plain)]
    norms = [np.linalg.norm(z, q, axis=1).mean() for z in noises]
    assert norms[1] < 0.92 * norms[0]
    assert noises[1].std() < 0.9 * noises[0].std()


# -------------------------------------------------------------------------------------------------- refusals


@tabled(("value", "message"), [*BAD_VALUES, (0.0, "value must have shape"), ([[1.0], [2.0]], "value must have shape")])
def test_generalized_gaussian_refuses_before_it_draws(value, message):
    with refused((TypeError, ValueError), message) as known:
        release = mechanism(dimension=2, norm_bound=4.0, **known)
        release.release(value)
    release.release([3.0, 4.0])  # of ℓ∞ norm 4
    assert known["rng"].draws > 0
    assert "floating-point" in next(iter(known["ledger"].rows())).label


@tabled("q", [1.0, 1.5, 2.0, 3.7, math.inf])
def test_clipping_scales_to_the_norm_of_the_sensitivity(q):
    release = mechanism(noise_multiplier=1e-200, q=q, dimension=3, norm_bound=2.0, clip=True, sensitivity=1e-100)
    out = release.release([[3.0, -4.0, 12.0], [0.1, 0.0, 0.2], [0.0, 0.0, 0.0]])
    assert norm(out[0], q) == pytest.approx(2.0, rel=1e-9)
    np.testing.assert_allclose(out[0] / out[0, 0], [1, -4 / 3, 4], rtol=1e-12)
    np.testing.assert_allclose(out[1:], [[0.1, 0.0, 0.2], [0.0, 0.0, 0.0]], rtol=1e-12, atol=1e-200)


@tabled(
    ("parameters", "message"),
    [
        ({"q": 0.99}, "q must be at least 1"),
        ({"r": 1.9}, r"r must lie in \[2, max\(2, q\)\]"),
        ({"q": 3.0, "r": 3.1}, r"r must lie in \[2, max\(2, q\)\]"),
        ({"r": math.inf}, "r must be positive and finite"),
        ({"q": math.nan}, "q must be a number"),
        ({"dimension": 0}, "dimension must be at least 1"),
        ({"dimension": 2.5}, "dimension must be a whole number"),
        ({"sensitivity": 0.0}, "sensitivity must be positive"),
        ({"noise_multiplier": -1.0}, "noise_multiplier must be positive"),
        ({"rng": 1}, "rng must be"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises((TypeError, ValueError), match=message):
        mechanism(**parameters)


def test_calibration_is_that_of_accounting():
    budget = Budget(1.0, 1e-6)
    flat = GeneralizedGaussianMechanism.calibrated(
        budget=budget, q=math.inf, dimension=100, sensitivity=1.0, releases=4
    )
    assert flat.noise_multiplier == calibrate(lambda z: 4 * GeneralizedGaussian(z), budget)
    plain = GeneralizedGaussianMechanism.calibrated(budget=budget, q=1.2, dimension=100, sensitivity=1.0, releases=4)
    assert plain.noise_multiplier == calibrate(lambda z: 4 * Gaussian(z), budget)
    assert flat.release(np.zeros((2, 3, 100))).shape == (2, 3, 100)


# ----------------------------------------------------------------------------------------------------- audit


def audited(release, d):
    """The audit on a shift by 1 in every coordinate, scored by the log-likelihood ratio of the claim's noise."""
    claim = mechanism(dimension=d)

    def score(z):
        f = [np.sum(np.abs(z - m) ** claim.r, axis=-1) ** (2 / claim.r) for m in (1.0, 0.0)]
        return (f[1] - f[0]) / (2 * claim.scale**2)

    return audit.lower_bound(
        lambda x, trials: release(np.full((trials, d), x)),
        1.0,
        0.0,
        trials=50_000,
        delta=1e-2,
        confidence=1 - 1e-9,  # a sound mechanism is flagged with at most this probability
        score=score,
        batched=True,
    )


def test_the_audit_finds_less_than_the_claim_and_catches_half_the_noise():
    rng = np.random.default_rng(2)
    sound = mechanism(rng=rng)
    bound = audited(sound.release, 20)
    bound.check(sound.cost)
    assert bound.epsilon > 0.4 * epsilon(sound.cost, 1e-2)
    assert audited(mechanism(noise_multiplier=0.5, rng=rng).release, 20).contradicts(sound.cost)

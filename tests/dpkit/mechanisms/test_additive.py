"""What the Laplace and the Gaussian mechanism have in common: noise, refusals, audits, and what they say."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from tabled import tabled
from watched import BAD_VALUES, refused

from accounting import Budget, Gaussian, Laplace, Ledger, audit, epsilon
from dpbandits.policies import PrivateArms
from dpkit import queries
from dpkit.continual import BinaryTree
from dpkit.mechanisms import GaussianMechanism, LaplaceMechanism

BOTH = pytest.mark.parametrize("kind", [LaplaceMechanism, GaussianMechanism])
ROUTES = pytest.mark.parametrize("exact", [False, True], ids=["float", "lattice"])
# the law, the standard deviation of its unit, and its claim and score
LAWS = {
    LaplaceMechanism: (stats.laplace, math.sqrt(2), Laplace, audit.scores.laplace),
    GaussianMechanism: (stats.norm, 1.0, Gaussian, audit.scores.gaussian),
}
# Kolmogorov–Smirnov tests at this p-value: the false-alarm rate under reseeding.
ALARM = 1e-10


@BOTH
@ROUTES
def test_noise_has_the_stated_scale(kind, exact):
    law, unit, *_ = LAWS[kind]
    release = kind(noise_multiplier=3.0, sensitivity=2.0, exact=exact, rng=np.random.default_rng(0))
    value = np.full((600, 100), 7.0)
    noise = (release.release(value) - value).ravel()
    scale = release.noise_std(value.size) / unit
    assert 5.999999 <= scale < 6.01
    for wrong in (0.9, 1.0, 1.1):
        assert (stats.kstest(wrong * noise / scale, law.cdf, method="asymp").pvalue > ALARM) == (wrong == 1.0)


@BOTH
@ROUTES
@tabled(("value", "message"), BAD_VALUES)
def test_it_refuses_before_it_draws(kind, exact, value, message):
    bound = 7.0 if kind is LaplaceMechanism else 5.0  # of (3, 4), in L1 or L2
    with refused((TypeError, ValueError), message) as known:
        release = kind(noise_multiplier=1.0, sensitivity=1.0, norm_bound=bound, exact=exact, **known)
        release.release(value)
    release.release([3.0, 4.0])
    assert known["rng"].draws > 0
    assert len(known["ledger"].rows()) == 1


@BOTH
def test_overflow_of_the_lattice_is_refused_before_it_draws(kind):
    with refused(ValueError, r"at most 2\*\*62 steps") as known:
        kind(noise_multiplier=1.0, sensitivity=1.0, exact=True, **known).release([1e16])
    with refused(ValueError, "must lie in") as known:
        kind(noise_multiplier=1e12, sensitivity=1.0, exact=True, **known).release([1.0])


@BOTH
def test_every_output_is_on_the_lattice_whatever_the_value(kind):
    value = np.random.default_rng(0).standard_normal(1000)
    steps = kind(noise_multiplier=1.0, sensitivity=2.0**-7, granularity=2.0**-12).release(value) / 2.0**-12
    assert np.array_equal(steps, np.rint(steps))


@BOTH
@ROUTES
@tabled("shape", [(), (1,), (3,), (4, 3), (2, 0), (2, 3, 4)])
def test_batch_shapes(kind, exact, shape):
    out = kind(noise_multiplier=1.0, sensitivity=1.0, exact=exact).release(np.zeros(shape))
    assert isinstance(out, np.ndarray)
    assert (out.shape, out.dtype) == (shape, np.float64)


def audited(kind, z, exact, gaussian=False):
    """The audit of a release of vectors in R² on two values at distance 1, with the score of the claim for z = 1.

    A sound mechanism is flagged with probability at most 1e-9 under reseeding.
    """
    data, neighbour = np.array([0.5, 0.5] if kind is LaplaceMechanism else [0.6, 0.8]), np.zeros(2)
    mechanism = kind(noise_multiplier=z, sensitivity=1.0, exact=exact, rng=np.random.default_rng(11))
    return audit.lower_bound(
        lambda x, trials: mechanism.release(np.broadcast_to(x, (trials, 2))),
        data,
        neighbour,
        trials=50_000,
        delta=0.0 if kind is LaplaceMechanism else 1e-5 if gaussian else 1e-2,
        confidence=1 - 1e-9,
        score=LAWS[kind][3](data, neighbour, 1.0),
        batched=True,
        gaussian=gaussian,
    )


@pytest.mark.parametrize(("kind", "gaussian"), [*((kind, False) for kind in LAWS), (GaussianMechanism, True)])
@ROUTES
def test_the_audit_finds_the_claim_and_no_more(kind, gaussian, exact):
    bound, claim = audited(kind, 1.0, exact, gaussian), LAWS[kind][2](1.0)
    bound.check(claim)
    assert bound.epsilon > 0.6 * epsilon(claim, bound.delta)


@BOTH
@ROUTES
def test_the_audit_catches_half_the_noise(kind, exact):
    assert audited(kind, 0.5, exact).contradicts(LAWS[kind][2](1.0))


def test_a_number_without_a_name_is_refused_with_both_readings():
    with pytest.raises(TypeError, match=r"write epsilon=0\.1 for the privacy parameter, or noise_multiplier=0\.1"):
        LaplaceMechanism(0.1, sensitivity=1)
    with pytest.raises(TypeError, match=r"write noise_multiplier=0\.1 for the standard deviation"):
        GaussianMechanism(0.1, sensitivity=1)


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        (LaplaceMechanism, {}, "needs epsilon= or noise_multiplier="),
        (LaplaceMechanism, {"epsilon": 1.0, "noise_multiplier": 1.0}, "and not both"),
        (GaussianMechanism, {}, "needs noise_multiplier="),
        (GaussianMechanism, {"epsilon": 1.0}, r"calibrated\(budget=Budget\(epsilon, delta\)"),
        (GaussianMechanism, {"epsilon": 1.0, "noise_multiplier": 1.0}, "no epsilon="),
    ],
)
def test_the_noise_is_given_once(kind, parameters, message):
    with pytest.raises(TypeError, match=message):
        kind(sensitivity=1.0, **parameters)


@pytest.mark.parametrize("value", [0.1, 0.3, 1.0, 3.0, 7.0, 1e-5, 49.0])
def test_epsilon_is_what_laplace_noise_then_costs(value):
    mechanism = LaplaceMechanism(epsilon=value, sensitivity=1.0)
    assert epsilon(mechanism.cost, 0.0) <= value
    assert epsilon(mechanism.cost, 0.0) == pytest.approx(value, rel=1e-12)
    assert mechanism.cost == Laplace(mechanism.noise_multiplier, adjacency="replace")
    with pytest.raises(ValueError, match="epsilon must be positive"):
        LaplaceMechanism(epsilon=-value, sensitivity=1.0)


def test_a_budget_says_what_is_missing():
    with pytest.raises(TypeError, match=r"delta must be given: Budget\(1\.0, 0\.0\) for pure.*Budget\(1\.0, 1e-6\)"):
        Budget(1.0)
    with pytest.raises(ValueError, match=r"Gaussian noise needs budget\.delta > 0.*or take LaplaceMechanism"):
        GaussianMechanism.calibrated(budget=Budget(1.0, 0.0), sensitivity=1.0)


def test_the_repr_says_what_matters():
    laplace = repr(LaplaceMechanism(epsilon=0.5, sensitivity=3.0))
    assert laplace.startswith("LaplaceMechanism(epsilon=0.5, noise_multiplier=2, sensitivity=3.0, adjacency='replace')")
    assert laplace.endswith(": exact noise of std 8.49081")
    gaussian = repr(GaussianMechanism(noise_multiplier=2.0, sensitivity=3.0, norm_bound=3.0, clip=True, exact=False))
    assert "norm_bound=3.0, clip=True" in gaussian
    assert gaussian.endswith("floating-point noise of std 6")


@BOTH
@ROUTES
def test_pandas_goes_in_and_comes_out(kind, exact):
    mechanism = kind(noise_multiplier=1e-9, sensitivity=1.0, exact=exact, granularity=2.0**-20 if exact else None)
    series = pd.Series([1.0, 2.0], index=["a", "b"], name="towns")
    out = mechanism.release(series)
    assert isinstance(out, pd.Series)
    assert out.name == "towns"
    assert out.round(3).to_dict() == {"a": 1.0, "b": 2.0}
    frame = mechanism.release(pd.DataFrame({"x": [1, 2], "y": [3, 4]}, index=[5, 6]))
    assert frame.round(3).loc[6, "y"] == 4.0
    assert isinstance(mechanism.release(np.ones(3)), np.ndarray)


def test_polars_goes_in_and_comes_out():
    polars = pytest.importorskip("polars")
    mechanism = LaplaceMechanism(noise_multiplier=1e-9, sensitivity=1.0)
    out = mechanism.release(polars.Series("towns", [1.0, 2.0]))
    assert isinstance(out, polars.Series)
    assert out.name == "towns"
    frame = mechanism.release(polars.DataFrame({"x": [1, 2], "y": [3, 4]}))
    assert frame["y"].round(3).to_list() == [3.0, 4.0]


@BOTH
def test_a_missing_sensitivity_says_what_it_is(kind):
    with pytest.raises(TypeError, match=r"needs sensitivity=, the largest L[12] distance that one unit can cause"):
        kind(noise_multiplier=1.0)


@BOTH
@ROUTES
@pytest.mark.parametrize("confidence", [0.5, 0.95])
def test_intervals_hold_the_noise_as_often_as_they_say(kind, exact, confidence):
    rng = np.random.default_rng(3)
    mechanism = kind(noise_multiplier=2.0, sensitivity=3.0, exact=exact, rng=rng)
    low, high = mechanism.interval(confidence, size=1)
    assert low == -high
    runs = np.array([float(mechanism.release(0.3)) - 0.3 for _ in range(3000)])
    # 3000 runs are off by 0.061 with probability below 1e-9
    assert abs(np.mean((low <= runs) & (runs <= high)) - confidence) < 0.061
    # the lattice widens it by 0.1 % of noise, and two half steps of rounding
    floating = kind(noise_multiplier=2.0, sensitivity=3.0, exact=False).interval(confidence)[1]
    assert floating <= high <= floating * 1.002
    for wrong in (0.0, 1.0, 95, math.nan):
        with pytest.raises(ValueError, match="confidence must"):
            mechanism.interval(wrong)


@BOTH
@ROUTES
@tabled(
    ("value", "message"),
    [
        (math.nan, "value must be finite"),
        (-math.inf, "value must be finite"),
        (1j, "real numbers"),
        ("3", "real numbers"),
        (np.ma.masked_array([1.0, 2.0], [True, False]), "must not be masked"),
        (np.array([1, 2], dtype="m8[s]"), "real numbers"),
        (np.array(["2020-01-01"], dtype="M8[D]"), "real numbers"),
        (pd.Series([1, None], dtype="Int64"), "real numbers|finite"),
        (pd.Series([1.0, math.nan]), "value must be finite"),
    ],
)
def test_what_is_no_number_is_refused_before_anything_is_drawn(kind, exact, value, message):
    with refused((TypeError, ValueError), message) as known:
        kind(noise_multiplier=1.0, sensitivity=1.0, exact=exact, **known).release(value)


@BOTH
def test_a_scalar_is_released_as_an_array_of_one_is(kind):
    """The short way for one number: the same lattice, the same refusals, the same record."""
    mechanism = kind(noise_multiplier=1e-9, sensitivity=1.0, granularity=2.0**-10)
    for value in (0.3, -1234.56789, 1e6, 0.5 * 2.0**-10, 1.5 * 2.0**-10):
        assert float(mechanism.release(value)) == float(mechanism.release(np.array([value]))[0])
    ledger = Ledger()
    alone = kind(noise_multiplier=1.0, sensitivity=1.0, ledger=ledger, granularity=2.0**-10)
    alone.release(1.0)
    alone.release(np.array([1.0]))
    first, second = ledger.rows()
    assert (first.release, first.label) == (second.release, second.label)
    with pytest.raises(ValueError, match=r"at most 2\*\*62 steps"):
        alone.release(1e19)
    assert len(ledger.rows()) == 2


@BOTH
def test_the_class_takes_its_own_keywords_when_calibrated(kind):
    mechanism = kind.calibrated(budget=Budget(1.0, 1e-6), sensitivity=1.0, norm_bound=2.0, clip=True, exact=False)
    assert mechanism.clip
    assert mechanism.norm_bound == 2.0
    with pytest.raises(TypeError, match="cliq"):
        kind.calibrated(budget=Budget(1.0, 1e-6), sensitivity=1.0, cliq=True)


@BOTH
def test_the_lattice_of_an_array_is_its_own_whatever_another_thread_releases(kind):
    known = {"noise_multiplier": 1.0, "sensitivity": 1.0, "exact": True}

    class Shared(kind):
        """With another thread that releases a single number whenever the lattice of an array is noted."""

        _last_lattice = property(lambda self: (1, *kind(**known)._lattice(1)), lambda self, lattice: None)

    assert Shared(**known)._lattice(10**6) == kind(**known)._lattice(10**6)


def test_a_path_is_no_ledger():
    """Wherever one is taken, before anything is drawn."""
    budget = Budget(1.0, 1e-6)
    for spends in (
        lambda: LaplaceMechanism(epsilon=1.0, sensitivity=1.0, ledger="a.ledger").release(1.0),
        lambda: queries.mean([1.0], bounds=(0, 1), budget=budget, ledger="a.ledger"),
        lambda: BinaryTree(horizon=4, shape=(), sensitivity=1.0, noise_multiplier=1.0, ledger="a.ledger"),
        lambda: PrivateArms(["a", "b"], budget=budget, horizon=10, ledger="a.ledger"),
    ):
        with pytest.raises(TypeError, match=r"ledger must be a Ledger or None, got ledger='a.ledger': Ledger.create"):
            spends()

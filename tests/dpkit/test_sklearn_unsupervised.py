"""PrivatePCA, PrivateKMeans, PrivateScaler: how far a row moves what they release, its noise, its cost; pipelines."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, OneHotEncoder, PolynomialFeatures, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from tabled import tabled

from accounting import Budget, Gaussian, Ledger, calibrate, epsilon
from dpkit.features import PublicScaler
from dpkit.mechanisms import GaussianMechanism
from dpkit.sklearn import (
    EveryFitSpendsWarning,
    PrivateGLMClassifier,
    PrivateKMeans,
    PrivatePCA,
    PrivateScaler,
    UnprotectedStepWarning,
)

BUDGET = Budget(1.0, 1e-5)
AMPLE = Budget(1e4, 1e-5)
BOX = ([-1.0, -2.0], [3.0, 2.0])
ADJACENCIES = ("replace", "add_remove", "zero_out")


def pca(budget=BUDGET, **more):
    return PrivatePCA(**({"budget": budget, "bounds": BOX, "random_state": 0} | more))


def kmeans(budget=BUDGET, **more):
    return PrivateKMeans(**({"n_clusters": 2, "budget": budget, "bounds": BOX, "random_state": 0} | more))


def scaler(budget=BUDGET, **more):
    return PrivateScaler(**({"budget": budget, "bounds": BOX, "random_state": 0} | more))


ALL = (pca, kmeans, scaler)


def table(n=400, seed=0):
    rng = np.random.default_rng(seed)
    side = rng.integers(2, size=n)
    return np.column_stack([2.0 * side, side - 0.5]) + rng.normal(size=(n, 2)) * [0.3, 0.1]


def released(model) -> dict[str, np.ndarray]:
    names = ("components_", "mean_", "explained_variance_", "cluster_centers_", "scale_")
    return {name: getattr(model, name) for name in names if hasattr(model, name)}


@pytest.mark.filterwarnings("ignore::dpkit.sklearn.EveryFitSpendsWarning")
@parametrize_with_checks(
    [
        PrivatePCA(1, budget=AMPLE, row_norm=4.0),
        PrivateKMeans(2, budget=AMPLE, bounds=(-4.0, 4.0)),
        PrivateScaler(budget=AMPLE, bounds=(-4.0, 4.0)),
    ]
)
def test_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


# ------------------------------------------------------------------------------------------------- sensitivity


class Seen:
    """What is given to the mechanisms, and with what sensitivity; no noise, or what ``noise`` says, comes back."""

    def __init__(self, monkeypatch):
        self.values, self.bounds, self.multipliers = [], [], []

        def release(mechanism, value):
            self.values.append(np.asarray(value))
            self.bounds.append(mechanism.sensitivity)
            self.multipliers.append(mechanism.noise_multiplier)
            return np.asarray(value, dtype=np.float64)

        monkeypatch.setattr(GaussianMechanism, "release", release)

    def of(self, model, X, **more):
        self.values.clear()
        self.bounds.clear()
        model.fit(X, **more)
        # later iterations follow from what was released before, which differs without noise
        first = 2 if isinstance(model, PrivateKMeans) else 1
        return self.values[:first], self.bounds[:first]


WILD = st.one_of(
    st.sampled_from([-1e300, 1e300, -1.0, 3.0, -2.0, 2.0, 0.0, 1.0]), st.floats(-4.0, 4.0, allow_subnormal=False)
)
ROW = st.tuples(WILD, WILD)


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_no_row_moves_a_release_by_more_than_its_sensitivity(make, adjacency, monkeypatch):
    seen, far = Seen(monkeypatch), 0.0
    budget = Budget(1.0, 1e-5, adjacency=adjacency)
    # the start of k-means is held, so that the same centres are asked for on both sides
    fixed = np.array([[-0.5, 0.0], [0.5, 0.0]])
    monkeypatch.setattr("dpkit.sklearn._kmeans._Law.centres", lambda self, unit, k: fixed)
    monkeypatch.setattr("dpkit.sklearn._kmeans._Cells.iterations", lambda self, z, law: 1)
    others = table(5)

    def compare(one, other):
        nonlocal far
        left, bounds = seen.of(make(budget), np.vstack([others, [one]]))
        left = [value.copy() for value in left]
        if adjacency == "replace":
            right, _ = seen.of(make(budget), np.vstack([others, [other]]))
        else:
            right, _ = seen.of(make(budget), others)
        for a, b, bound in zip(left, right, bounds, strict=True):
            far = max(far, float(np.linalg.norm(a - b)) / bound)
        assert far <= 1.0

    settings(max_examples=30)(given(ROW, ROW)(compare))()
    # the search comes near: by the corners of the bounds at the latest, it finds what is short by 7 %
    for corner in ([3.0, 2.0], [3.0, -2.0], [-1.0, 2.0]):
        compare(corner, [-1.0, -2.0])
    assert far > 0.93


@pytest.mark.parametrize("make", ALL)
def test_a_person_moves_a_release_no_farther_than_a_row(make, monkeypatch):
    seen = Seen(monkeypatch)
    fixed = np.array([[-0.5, 0.0], [0.5, 0.0]])
    monkeypatch.setattr("dpkit.sklearn._kmeans._Law.centres", lambda self, unit, k: fixed)
    monkeypatch.setattr("dpkit.sklearn._kmeans._Cells.iterations", lambda self, z, law: 1)
    budget = Budget(1.0, 1e-5, unit="person")
    rng, others = np.random.default_rng(0), table(3)
    for size in (1, 3, 7, 200):
        found = []
        for _ in range(2):
            rows = np.vstack([others, rng.choice([-9.0, 9.0, 0.1], size=(size, 2))])
            groups = [*"abc", *"p" * size]
            values, bounds = seen.of(make(budget), rows, groups=groups)
            found.append([value.copy() for value in values])
        for a, b, bound in zip(*found, bounds, strict=True):
            assert np.linalg.norm(a - b) <= bound


# ------------------------------------------------------------------------------------------------- noise and cost


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_the_cost_that_is_recorded_is_the_calibrated_one(make, adjacency, monkeypatch):
    budget = Budget(1.0, 1e-5, adjacency=adjacency)
    ledger = Ledger()
    seen = Seen(monkeypatch)
    model = make(budget, ledger=ledger).fit(table())
    assert ledger.total == model.cost_
    assert ledger.rows()[0].label == type(model).__name__
    assert ledger.simulation
    assert epsilon(model.cost_, 1e-5) == pytest.approx(1.0)
    # all noise together is that of one release: 1/z² adds up
    z = calibrate(lambda z: Gaussian(z, adjacency=adjacency), budget)
    assert sum(multiplier**-2.0 for multiplier in seen.multipliers) == pytest.approx(z**-2.0, rel=1e-6)


def test_noise_has_the_stated_scale():
    X = np.tile([[1.0, 0.0]], (50, 1))
    model = PrivatePCA(budget=BUDGET, row_norm=1.0, random_state=0).fit(X)
    assert model.noise_std_ == pytest.approx(model.cost_.noise_multiplier * math.sqrt(2) * 1.125 / 50, rel=1e-3)
    # a standard deviation of 2,000 entries has a relative error of 1.6 %: a tenth is beyond 1e-9 under any seed
    wide = Budget(50.0, 1e-5)
    means = scaler(wide, bounds=(-1.0, 1.0)).fit(np.zeros((400, 2000))).mean_
    z = calibrate(Gaussian, wide)
    assert means.std() == pytest.approx(z * 2 * math.sqrt(2000) / 400, rel=0.0999)


def test_seeds_give_the_same_fit_and_the_secure_source_does_not():
    X = table()
    for make in ALL:
        for one, other in zip(released(make().fit(X)).values(), released(make().fit(X)).values(), strict=True):
            assert np.array_equal(one, other)
        ledger = Ledger()
        secure = [released(make(random_state=None, ledger=ledger).fit(X)) for _ in range(2)]
        assert not ledger.simulation
        assert any(not np.array_equal(a, b) for a, b in zip(secure[0].values(), secure[1].values(), strict=True))


def test_with_an_ample_budget_they_find_what_is_there():
    X = table(4000)
    for adjacency in ADJACENCIES:
        budget = Budget(1e3, 1e-5, adjacency=adjacency)
        model = pca(budget).fit(X)
        values, vectors = np.linalg.eigh(np.cov(X.T, bias=True))
        np.testing.assert_allclose(np.abs(model.components_ @ vectors[:, ::-1]), np.eye(2), atol=0.01)
        np.testing.assert_allclose(model.explained_variance_, values[::-1], atol=0.01)
        np.testing.assert_allclose(model.inverse_transform(model.transform(X)), X, atol=1e-9)
        centres = kmeans(budget).fit(X).cluster_centers_
        np.testing.assert_allclose(centres[centres[:, 0].argsort()], [[0.0, -0.5], [2.0, 0.5]], atol=0.05)
        scaled = scaler(budget).fit(X)
        np.testing.assert_allclose(scaled.scale_, X.std(axis=0), atol=0.02)
        np.testing.assert_allclose(scaled.inverse_transform(scaled.transform(X)), np.clip(X, *BOX), atol=1e-9)


@tabled(
    ("make", "change", "message"),
    [
        *((make, {"budget": None}, "budget must be given") for make in ALL),
        *((make, {"budget": Budget(1.0, 0.0)}, "budget must have delta > 0") for make in ALL),
        *((make, {"budget": Budget(1.0, 1e-5, unit="person")}, "groups must be given") for make in ALL),
        *((make, {"bounds": (1.0, 0.0)}, "bounds must be increasing") for make in ALL),
        *((make, {"bounds": (0.0, math.nan)}, "bounds must be increasing") for make in ALL),
        *((make, {"bounds": ([0.0] * 3, [1.0] * 3)}, "bounds must be .* or 2 of them") for make in ALL),
        (kmeans, {"bounds": None}, "bounds must be given"),
        (scaler, {"bounds": None}, "bounds must be given"),
        (pca, {"bounds": None}, "row_norm or bounds must be given"),
        (pca, {"row_norm": 0.0}, "row_norm must be positive"),
        (pca, {"row_norm": 1e200}, "row_norm must lie in"),
        (pca, {"n_components": 3}, "n_components must be at most"),
        (kmeans, {"n_clusters": 0}, "n_clusters must be"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_is_spent(make, change, message):
    ledger = Ledger()
    with pytest.raises(ValueError, match=message):
        make(**({"ledger": ledger} | change)).fit(table(20))
    assert not ledger.rows()


def test_clones_spend_from_one_ledger_and_are_counted():
    X, ledger = table(50), Ledger()
    for make in ALL:
        one = make(ledger=ledger)
        twins = [clone(one) for _ in range(2)]
        twins[0].fit(X)
        with pytest.warns(EveryFitSpendsWarning):
            twins[1].fit(X)
    assert len(ledger.rows()) == 6


# ------------------------------------------------------------------------------------------------- pipelines


def told(pipeline) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        pipeline.fit(table(60), np.arange(60) % 2)
    return [str(one.message) for one in found if issubclass(one.category, UnprotectedStepWarning)]


def last():
    return PrivateGLMClassifier(BUDGET, max_iter=1, solver="gradient_descent", random_state=0)


@pytest.mark.parametrize(
    "steps",
    [
        [StandardScaler(), last()],
        [FunctionTransformer(), Pipeline([("a", StandardScaler()), ("b", "passthrough")]), last()],
        [ColumnTransformer([("a", StandardScaler(), [0])]), last()],
        [FeatureUnion([("a", Normalizer()), ("b", StandardScaler())]), pca(bounds=None, row_norm=3.0)],
        [StandardScaler(), scaler(), Normalizer()],
        [StandardScaler(), Pipeline([("a", Normalizer()), ("b", last())])],
    ],
)
def test_a_step_that_learns_without_noise_is_told(steps):
    found = told(make_pipeline(*steps))
    assert len(found) == 1
    assert found[0].startswith("StandardScaler before a private estimator")


@pytest.mark.parametrize(
    "steps",
    [
        [FunctionTransformer(np.tanh), last()],
        [PublicScaler(low=-3.0, high=3.0), PolynomialFeatures(), last()],
        [scaler(), pca(bounds=None, row_norm=3.0), last()],
        [scaler(), StandardScaler()],  # nothing private comes after what learned
        [
            ColumnTransformer(
                [("a", OneHotEncoder(categories=[[0]], handle_unknown="ignore", sparse_output=False), [0])]
            ),
            last(),
        ],
        ["passthrough", None, last()],
    ],
)
def test_steps_that_learn_nothing_or_pay_are_not(steps):
    assert not told(Pipeline([(str(i), step) for i, step in enumerate(steps)]))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnprotectedStepWarning)
        X = StandardScaler().fit_transform(table(60))
        last().fit(X, np.arange(60) % 2)  # by hand nobody can tell

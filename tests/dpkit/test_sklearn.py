"""The scikit-learn estimators: scikit-learn's own checks, what a fit costs, and what travels with a model."""

import math
import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, ndtr
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks
from tabled import tabled
from watched import refused

from accounting import BestOfRuns, Budget, BudgetExceeded, Gaussian, Ledger, calibrate, epsilon
from accounting.notions.rdp import curve
from dpkit import randomness
from dpkit.geometry import LpBall
from dpkit.optimize import glm, noisy_gradient_descent
from dpkit.sklearn import (
    EveryFitSpendsWarning,
    PrivateGLMClassifier,
    PrivateGLMRegressor,
    PrivateSearch,
    ShortenedRowsWarning,
    split_budget,
)
from dpkit.sklearn.search import _score

BUDGET = Budget(1.0, 1e-5)
RANGE = (-1.0, 1.0)
# the checks of scikit-learn ask for good predictions from 50 rows and less, and bring labels of their own
AMPLE = Budget(1e4, 1e-5)


def classifier(budget=BUDGET, **more):
    return PrivateGLMClassifier(budget, **({"random_state": 0} | more))


def regressor(budget=BUDGET, **more):
    return PrivateGLMRegressor(budget, **({"target_range": RANGE, "random_state": 0} | more))


BOTH = pytest.mark.parametrize("make", [classifier, regressor])


def problem(n=200, d=3, seed=0):
    """Labels that suit both."""
    X = np.random.default_rng(seed).normal(size=(n, d)) / math.sqrt(d)
    return X, (X[:, 0] > 0).astype(float)


# No check is expected to fail. (Those of inputs by the array API run where SCIPY_ARRAY_API is set.)
@pytest.mark.filterwarnings("ignore::dpkit.sklearn.ShortenedRowsWarning")  # their rows are of any length
@pytest.mark.filterwarnings("ignore::dpkit.sklearn.EveryFitSpendsWarning")  # some fit in searches
@parametrize_with_checks(
    [
        PrivateGLMClassifier(AMPLE, classes="observed", max_iter=100),
        PrivateGLMRegressor(AMPLE, target_range=(-4.0, 4.0), max_iter=100),
    ]
)
def test_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


# ------------------------------------------------------------------------------------------------- models


def test_a_classifier_is_noisy_gradient_descent_on_shortened_rows_with_a_constant_feature():
    X, y = problem()
    model = classifier(solver="gradient_descent", row_norm=0.5, radius=3.0, max_iter=50, step_scale=0.7).fit(X, y)
    short = X * np.minimum(1.0, 0.5 / np.linalg.norm(X, axis=1))[:, None]
    direct = noisy_gradient_descent(
        glm("logistic", clip=0.5 * math.sqrt(2)),
        np.column_stack([short, np.full(200, 0.5)]),
        y,
        constraint=LpBall(2, 4, 6.0),
        budget=BUDGET,
        max_iterations=50,
        step_scale=0.7,
        rng=np.random.default_rng(0),
    )
    np.testing.assert_allclose(model.coef_[0], direct.x[:3], rtol=1e-9)
    assert model.intercept_[0] == pytest.approx(0.5 * direct.x[3])
    assert (model.cost_, model.n_iter_) == (direct.cost, direct.nit)
    eta = short @ direct.x[:3] + 0.5 * direct.x[3]
    np.testing.assert_allclose(model.decision_function(X), eta, rtol=1e-9)
    np.testing.assert_allclose(model.predict_proba(X), np.column_stack([expit(-eta), expit(eta)]), rtol=1e-9)
    assert np.array_equal(model.predict(X), (eta > 0).astype(int))
    probit = classifier(loss="probit").fit(X, y)
    np.testing.assert_allclose(probit.predict_proba(X)[:, 1], ndtr(probit.decision_function(X)))


def test_a_regressor_works_in_the_unit_of_the_targets():
    X, y = problem(2000)
    wide = regressor(AMPLE, target_range=(90.0, 130.0)).fit(X, 110.0 + 20.0 * (y - 0.5))
    unit = regressor(AMPLE).fit(X, y - 0.5)
    np.testing.assert_allclose(wide.coef_, 20.0 * unit.coef_, rtol=1e-9)
    np.testing.assert_allclose(wide.predict(X), 110.0 + 20.0 * unit.predict(X), rtol=1e-9)
    assert unit.intercept_ == pytest.approx(0.0, abs=0.05)
    assert regressor(fit_intercept=False).fit(X, y).intercept_ == 0.0


@pytest.mark.filterwarnings("ignore::dpkit.sklearn.ShortenedRowsWarning")
def test_real_data_are_fitted():
    X, y = load_breast_cancer(return_X_y=True)
    # constants that stand for public knowledge of the features' ranges
    Z = (X - np.median(X, axis=0)) / (X.max(axis=0) - X.min(axis=0))
    assert classifier(Budget(2.0, 1e-5)).fit(Z, y).score(Z, y) > 0.88
    X, y = load_diabetes(return_X_y=True)
    scores = [
        regressor(Budget(4.0, 1e-5), target_range=(25.0, 350.0), loss=loss).fit(10 * X, y).score(10 * X, y)
        for loss in ("squared", "huber")
    ]
    assert min(scores) > 0.35


def test_huber_withstands_outliers():
    X, _ = problem(2000)
    y = 0.5 * X[:, 0]
    far = np.where(np.arange(2000) % 5 == 0, 1.0, y)
    errors = [
        np.abs(regressor(AMPLE, loss=loss, **more).fit(X, far).predict(X) - y).mean()
        for loss, more in (("huber", {"threshold": 0.05}), ("squared", {}))
    ]
    assert errors[0] < 0.5 * errors[1]


# --------------------------------------------------------------------------------------------------- cost


@BOTH
@pytest.mark.parametrize("adjacency", ["replace", "add_remove", "zero_out"])
def test_every_fit_is_charged_and_meets_the_budget(make, adjacency):
    budget = Budget(1.0, 1e-5, adjacency=adjacency)
    ledger = Ledger()
    model = make(budget, ledger=ledger, public_rows=200).fit(*problem())
    assert ledger.total == model.cost_
    assert ledger.simulation
    assert epsilon(model.cost_, 1e-5) == pytest.approx(1.0)
    assert model.cost_.adjacency == adjacency
    model.fit(*problem())
    assert ledger.total == 2 * model.cost_


@BOTH
def test_the_secure_source_is_the_default_and_may_be_named(make):
    for source in (None, randomness.secure()):
        ledger = Ledger()
        fits = [make(ledger=ledger, random_state=source).fit(*problem()).coef_ for _ in range(2)]
        assert not ledger.simulation
        assert not np.array_equal(*fits)


def test_seeds_of_every_kind_are_simulations():
    ledger = Ledger()
    first, second = (
        [classifier(random_state=seed(), ledger=ledger).fit(*problem()).coef_ for _ in range(2)]
        for seed in (lambda: np.random.RandomState(1), lambda: np.random.default_rng(1))
    )
    assert np.array_equal(*first)
    assert np.array_equal(*second)
    assert np.array_equal(classifier(random_state=np.int64(1), ledger=ledger).fit(*problem()).coef_, second[0])
    assert [row.simulation for row in ledger.rows()] == [True] * 5


@BOTH
def test_no_row_and_no_target_weighs_more_than_its_bound(make):
    # what is released from hostile rows is what is released from the rows cut to the bounds
    X, y = problem(50)
    X[0] *= 1e12
    y[1] = 1e12 if make is regressor else y[1]
    cut = X * np.minimum(1.0, 1.0 / np.linalg.norm(X, axis=1))[:, None]
    fits = [make().fit(*data) for data in ((X, y), (cut, np.clip(y, *RANGE)))]
    np.testing.assert_allclose(fits[0].coef_, fits[1].coef_, rtol=1e-9)


@settings(max_examples=20)
@given(st.lists(st.floats(-1e300, 1e300), min_size=4, max_size=4), st.sampled_from([classifier, regressor]))
def test_any_finite_rows_are_fitted(values, make):
    model = make().fit(np.array(values).reshape(2, 2), np.array([0.0, 1.0]))
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.predict(np.array(values).reshape(2, 2))).all()


# ---------------------------------------------------------------------------------------- with scikit-learn


@BOTH
@pytest.mark.filterwarnings("ignore::dpkit.sklearn.EveryFitSpendsWarning")  # into a ledger without a budget
def test_searches_and_pipelines_spend_from_one_ledger(make):
    X, y = problem()
    ledger = Ledger()
    pipeline = Pipeline([("squash", FunctionTransformer(np.tanh)), ("model", make(ledger=ledger))])
    search = GridSearchCV(pipeline, {"model__radius": [1.0, 3.0]}, cv=3).fit(X, y)
    # 2 points, 3 folds, and the refit
    assert len(ledger.rows()) == 7
    cross_val_score(search.best_estimator_, X, y, cv=2)
    assert len(ledger.rows()) == 9
    assert search.predict(X).shape == (200,)


@BOTH
def test_one_budget_is_split_over_a_search(make):
    X, y = problem()
    budget = Budget(1.0, 1e-5)
    ledger = Ledger(budget)
    model = make(split_budget(budget, 2 * 3 + 1), ledger=ledger)
    with warnings.catch_warnings():
        warnings.simplefilter("error", EveryFitSpendsWarning)  # the ledger holds them all
        search = GridSearchCV(model, {"radius": [1.0, 30.0]}, cv=3, error_score="raise").fit(X, y)
    assert len(ledger.rows()) == 7
    assert 1.0 - 1e-6 < ledger.epsilon() <= 1.0
    with pytest.raises(BudgetExceeded):
        search.best_estimator_.fit(X, y)


def test_a_search_without_a_ledger_is_told_what_it_spends():
    X, y = problem()
    with pytest.warns(EveryFitSpendsWarning, match="each fit of a search") as found:
        cross_val_score(classifier(), X, y, cv=4)
    assert len(found) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", EveryFitSpendsWarning)
        classifier().fit(X, y).fit(X, y)  # who fits by hand knows
        clone(classifier()).fit(X, y)


@pytest.mark.parametrize("adjacency", ["replace", "zero_out", "add_remove"])
def test_most_rows_shortened_is_told_and_a_few_are_not(adjacency):
    X, y = problem(4000)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    budget = Budget(1.0, 1e-5, adjacency=adjacency)
    for share, warned in ((0.9, True), (0.3, False)):
        lengths = np.where(np.arange(4000) < share * 4000, 1.5, 1.0)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            classifier(budget, public_rows=4000).fit(lengths[:, None] * X, y)
        assert bool(found) == warned
        if warned:
            assert issubclass(found[0].category, ShortenedRowsWarning)
            assert "of the rows were longer than row_norm=1.0" in str(found[0].message)


def test_a_private_search_is_one_cost_and_finds_the_better_setting():
    X, y = problem(3000)
    ledger = Ledger(Budget(2.0, 1e-5))
    won = []
    for seed in range(4):
        known = {"budget": BUDGET, "ledger": ledger, "random_state": seed}
        search = PrivateSearch(classifier(), {"row_norm": [1.0, 1e4]}, **known).fit(X, y)
        won.append(search.best_params_["row_norm"])
        assert ledger.rows()[-1].release == search.cost_
        if seed == 0:
            assert isinstance(search.cost_, BestOfRuns)
            assert ledger.epsilon() == pytest.approx(1.0, rel=1e-6)
            assert search.best_score_ > 0.8
            assert np.array_equal(search.predict(X), search.best_estimator_.predict(X))
            ledger = Ledger()
    # the wrong one wins where all runs drew it, which is one search in six
    assert won.count(1.0) >= 3
    known = {"budget": Budget(4.0, 1e-5), "runs": 3.0, "random_state": 1}
    assert -0.5 < PrivateSearch(regressor(), {"loss": ["squared", "huber"]}, **known).fit(X, y - 0.5).best_score_ < 0.1


@tabled(
    ("change", "message"),
    [
        ({"budget": None}, "budget must be given"),
        ({"budget": Budget(1.0, 1e-5, adjacency="add_remove")}, "budget.adjacency must be one of"),
        ({"budget": Budget(1.0, 0.0)}, "budget must have delta > 0"),
        ({"parameters": {"depth": [1]}}, r"parameters must be lists of values of clip, .*radius.*, got {'depth'"),
        ({"parameters": {"radius": []}}, "parameters must be lists of values"),
        *(
            ({"parameters": {name: [None]}}, "parameters must be lists of values of clip")
            for name in ("budget", "ledger", "random_state", "classes")
        ),
        ({"estimator": regressor(), "parameters": {"target_range": [RANGE]}}, "parameters must be lists of values"),
        ({"estimator": regressor(target_range=None)}, "target_range must be given"),
        ({"estimator": classifier(classes=(0, 2))}, "y must hold labels of classes"),
        ({"runs": 1.0}, "mean must be greater than 1"),
        ({"validation": 0.0}, "validation must"),
        ({"validation": 1e-9}, "validation must leave rows in both parts"),
    ],
)
def test_a_private_search_refuses(change, message):
    ledger = Ledger()
    known = {"estimator": classifier(), "parameters": {}, "budget": BUDGET, "ledger": ledger} | change
    with pytest.raises(ValueError, match=message):
        PrivateSearch(**known).fit(*problem())
    assert not ledger.rows()


@pytest.mark.parametrize(
    ("estimator", "y", "error"),
    [
        (LogisticRegression(), problem()[1], TypeError),
        (Pipeline([("model", classifier())]), problem()[1], TypeError),
        (classifier(classes=(0.5, 1.5)), problem()[1] + 0.5, ValueError),  # scikit-learn takes no fractions for labels
    ],
)
def test_what_no_run_could_fit_is_refused_before_a_search_spends(estimator, y, error):
    ledger = Ledger()
    with pytest.raises(error):
        PrivateSearch(estimator, {}, budget=BUDGET, ledger=ledger, random_state=0).fit(problem()[0], y)
    assert not ledger.rows()


def test_nothing_tells_how_many_runs_a_search_made():
    """A count that is shared with clones would: by a warning that comes at the next fit, or does not."""
    X, y = problem(50)
    told = set()
    for seed in range(6):  # about 1, 2, 1, ... runs
        model = classifier()
        search = PrivateSearch(model, {}, budget=BUDGET, runs=2.0, random_state=seed).fit(X, y)
        for one in (model, search.best_estimator_):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                clone(one).set_params(budget=BUDGET).fit(X, y)
            told.add(sum(issubclass(warning.category, EveryFitSpendsWarning) for warning in caught))
    assert told == {0}


def test_clones_of_a_search_share_its_ledger_and_pickles_leave_it(tmp_path):
    X, y = problem(50)
    ledger = Ledger()
    search = PrivateSearch(classifier(), {}, budget=BUDGET, runs=1.5, ledger=ledger, random_state=0)
    assert clone(search).ledger is ledger
    cross_val_score(search, X, y, cv=2, scoring="accuracy")
    assert len(ledger.rows()) == 2
    with pytest.raises(TypeError, match="left behind"):
        pickle.loads(pickle.dumps(search)).fit(X, y)
    assert len(ledger.rows()) == 2


@pytest.mark.parametrize("solver", ["preconditioned", "gradient_descent", "dp_ftrl"])
def test_no_fit_of_a_search_costs_more_than_its_price_says_at_any_order(solver):
    """The price of the best of several runs rests on a Rényi curve, and a budget of a run is one point of it only."""
    X, y = problem(60)
    search = PrivateSearch(classifier(solver=solver), {}, budget=BUDGET, runs=1.5, random_state=0).fit(X, y)
    assert isinstance(search.cost_, BestOfRuns)
    orders = np.geomspace(1.01, 1e4, 30)
    assert (curve(search.best_estimator_.cost_, orders) <= curve(search.cost_.release, orders)).all()


def test_a_search_keeps_the_names_of_features():
    pandas = pytest.importorskip("pandas")
    X, y = problem(50)
    named = pandas.DataFrame(X, columns=["a", "b", "c"])
    search = PrivateSearch(classifier(), {}, budget=BUDGET, runs=1.5, random_state=0).fit(named, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(search.predict(named), search.best_estimator_.predict(named))
    with pytest.raises(ValueError, match="feature names"):
        search.predict(named[["c", "b", "a"]])


def test_targets_of_any_size_have_a_score():
    """A score that is no number would stop a search that has spent, for some targets and not for others."""
    model = regressor(target_range=(-1.5e308, 1.5e308), budget=BUDGET).fit(*problem(50))
    for theta in (0.0, 1e308, math.inf):
        model.coef_ = np.full(3, theta)
        X = np.array([[0.5, 0.5, 0.5], [-0.5, 0.0, 0.0]])
        for y in ([1.5e308, -1.5e308], [-1.5e308, 1.5e308], [0.0, 0.0]):
            with np.errstate(all="ignore"):
                assert -2.0 <= _score(model, X, np.array(y), np.arange(2)) <= 0.0


def test_a_search_for_people_keeps_their_rows_together(monkeypatch):
    X, y = problem(400)
    people = np.repeat(np.arange(100), 4)
    budget = Budget(4.0, 1e-5, unit="person")
    seen = []
    fit = PrivateGLMClassifier.fit

    def recorded(self, X, y, groups=None):
        seen.append((np.unique(groups), self.budget.unit))
        return fit(self, X, y, groups)

    monkeypatch.setattr(PrivateGLMClassifier, "fit", recorded)
    search = PrivateSearch(classifier(), {}, budget=budget, runs=1.5, random_state=0).fit(X, y, groups=people)
    (trained, unit), *_ = seen
    assert (len(trained), unit) == (80, "person")
    assert epsilon(search.cost_, 1e-5) == pytest.approx(4.0, rel=1e-6)
    for wrong, more in ((budget, {}), (BUDGET, {"groups": people})):
        with pytest.raises(ValueError, match=r"groups must be given|unit must be 'person'"):
            PrivateSearch(classifier(), {}, budget=wrong).fit(X, y, **more)


@pytest.mark.parametrize("make", [classifier, regressor])
def test_a_person_moves_a_score_by_at_most_one(make):
    X, y = problem(60)
    model = make(BUDGET).fit(X, y)
    who = np.repeat(np.arange(12), 5)
    whole = _score(model, X, y, who)
    for person in range(12):
        for wrong in (0.0, 1.0):
            assert abs(_score(model, X, np.where(who == person, wrong, y), who) - whole) <= 1.0
    # as many rows as anybody likes weigh no more than one
    many = np.concatenate([who, np.zeros(5000, int)])
    grown = _score(model, np.vstack([X, np.ones((5000, 3))]), np.concatenate([y, np.zeros(5000)]), many)
    assert abs(grown - whole) <= 1.0


def test_budgets_are_split_exactly():
    budget = Budget(2.0, 1e-6, adjacency="zero_out")
    one = split_budget(budget, 31)
    z = calibrate(lambda z: Gaussian(z), one)
    assert epsilon(31 * Gaussian(z), 1e-6) == pytest.approx(2.0, rel=1e-9)
    assert (one.adjacency, one.delta) == ("zero_out", 1e-6)
    with pytest.raises(ValueError, match="fits must be at least 1"):
        split_budget(budget, 0)
    with pytest.raises(ValueError, match="delta > 0"):
        split_budget(Budget(1.0, 0.0), 2)


def test_a_ledger_stops_a_search_that_would_pass_its_budget():
    X, y = problem()
    ledger = Ledger(Budget(2.0, 1e-5))
    model = classifier(ledger=ledger)
    with pytest.raises(BudgetExceeded):
        cross_val_score(model, X, y, cv=50, error_score="raise")
    assert 2 <= len(ledger.rows()) < 10
    assert ledger.epsilon() <= 2.0


def test_one_model_for_each_class_spends_for_each():
    X, _ = problem(600)
    y = np.argmax(X, axis=1)
    ledger = Ledger(Budget(24.0, 1e-5))
    model = OneVsRestClassifier(classifier(Budget(8.0, 1e-5), ledger=ledger)).fit(X, y)
    assert len(ledger.rows()) == 3
    assert model.score(X, y) > 0.7


def test_more_classes_under_one_budget():
    X, _ = problem(2000)
    y = np.array(["left", "middle", "right"])[np.argmax(X, axis=1)]
    ledger = Ledger()
    model = classifier(Budget(4.0, 1e-5), classes=("right", "left", "middle"), ledger=ledger).fit(X, y)
    assert ledger.total == model.cost_
    assert epsilon(model.cost_, 1e-5) == pytest.approx(4.0)
    assert (model.coef_.shape, model.intercept_.shape) == ((3, 3), (3,))
    np.testing.assert_allclose(model.coef_.sum(axis=0), 0.0, atol=1e-9)
    assert list(model.classes_) == ["left", "middle", "right"]
    assert model.score(X, y) > 0.85
    eta = model.decision_function(X)
    np.testing.assert_allclose(model.predict_proba(X), np.exp(eta) / np.exp(eta).sum(axis=1, keepdims=True))
    assert np.array_equal(model.predict(X), model.classes_[eta.argmax(axis=1)])


@pytest.mark.thorough
def test_the_digits_under_one_budget_and_one_budget_for_each():
    X, y = load_digits(return_X_y=True)
    X = (X - 8) / 8 / math.sqrt(64)
    budget = Budget(2.0, 1e-5)
    each, differences = split_budget(budget, 10), []
    for seed in range(3):
        together = classifier(budget, classes=range(10), random_state=seed).fit(X, y).score(X, y)
        # a seed for each class: clones with one seed would all have the same noise, which cancels in comparisons
        eta = [classifier(each, random_state=10 * seed + k).fit(X, y == k).decision_function(X) for k in range(10)]
        differences.append(together - np.mean(np.argmax(eta, axis=0) == y))
    # 0.27 ± 0.06 for one: the mean of three is below 0.06 with probability below 1e-9
    assert np.mean(differences) > 0.06


def test_names_of_features_are_kept():
    pandas = pytest.importorskip("pandas")
    X, y = problem()
    model = classifier().fit(pandas.DataFrame(X, columns=["a", "b", "c"]), y)
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    assert model.n_features_in_ == 3


def test_clones_share_the_ledger_and_are_not_fitted():
    ledger = Ledger()
    twin = clone(classifier(ledger=ledger).fit(*problem()))
    assert twin.ledger is ledger
    with pytest.raises(NotFittedError):
        twin.predict(problem()[0])
    assert clone(twin, safe=False).get_params()["ledger"] is ledger


@BOTH
def test_a_pickled_model_predicts_but_carries_no_ledger(make):
    X, y = problem()
    model = make(ledger=Ledger(), random_state=None).fit(X, y)
    copied = pickle.loads(pickle.dumps(model))
    assert np.array_equal(copied.predict(X), model.predict(X))
    assert copied.cost_ == model.cost_
    with pytest.raises(TypeError, match=r"ledger must be a Ledger or None, got ledger='left behind"):
        copied.fit(X, y)
    assert copied.set_params(ledger=None).fit(X, y).cost_ == model.cost_
    assert isinstance(model.ledger, Ledger)


def test_an_unfitted_copy_spends_from_the_same_file_and_from_no_memory(tmp_path):
    with Ledger.create(tmp_path / "fits.ledger", Budget(3.0, 1e-5)) as ledger:
        copied = pickle.loads(pickle.dumps(classifier(ledger=ledger)))
        copied.fit(*problem())
        assert ledger.total == copied.cost_
        copied.ledger.close()
    # nobody can set a parameter of the copies that joblib makes
    with pytest.raises(TypeError, match=r"left behind.*a ledger in a file, Ledger\.create\(path, budget\)"):
        pickle.loads(pickle.dumps(classifier(ledger=Ledger()))).fit(*problem())


def test_a_model_holds_what_was_released_and_public_values_only():
    model = classifier().fit(*problem())
    fitted = {name for name in vars(model) if name.endswith("_")}
    assert fitted == {"coef_", "intercept_", "classes_", "cost_", "n_iter_", "n_features_in_"}
    # and how often it was fitted
    assert set(vars(model)) - fitted - {"_fits"} == set(model.get_params())


# ------------------------------------------------------------------------------------------------- classes


def test_classes_are_public():
    X, y = problem()
    assert list(classifier().fit(X, np.ones(200)).classes_) == [0, 1]
    names = np.array(["no", "yes"])[y.astype(int)]
    model = classifier(classes=("yes", "no")).fit(X, names)
    assert list(model.classes_) == ["no", "yes"]
    assert set(model.predict(X)) <= {"no", "yes"}
    same = classifier(classes="observed").fit(X, names)
    assert np.array_equal(same.coef_, model.coef_)


@pytest.mark.parametrize(
    ("labels", "classes"), [((-1, 1), None), ((-1.0, 1.0), None), ((False, True), None), (("a", "b"), ("b", "a"))]
)
def test_two_classes_may_be_written_in_many_ways(labels, classes):
    X, y = problem()
    model = classifier(classes=classes).fit(X, np.asarray(labels)[y.astype(int)])
    assert model.classes_.tolist() == sorted(labels)
    assert set(model.predict(X)) <= set(labels)
    assert np.array_equal(model.coef_, classifier().fit(X, y).coef_)
    with pytest.raises(ValueError, match=r"classes=\[-1, 1\] only, got others"):
        classifier().fit(X, y - (np.arange(200) == 0) * (1 + y))


LABELS = "classes must be two or more labels or 'observed', got "
THREE, REMOVED = {"classes": (0, 1, 2)}, Budget(1.0, 1e-5, adjacency="add_remove")


@tabled(
    ("make", "change", "data", "error", "message"),
    [
        (classifier, {"budget": None}, {}, ValueError, "budget must be given, "),
        (classifier, {"budget": 1.0}, {}, TypeError, "budget must be a Budget"),
        (classifier, {"budget": REMOVED}, {}, ValueError, "public_rows must be given"),
        (classifier, {"loss": "squared"}, {}, ValueError, "loss must be 'logistic' or 'probit', got loss='squared'"),
        (classifier, {"classes": (1,)}, {}, ValueError, LABELS + r"classes=\(1,\)"),
        (classifier, {"classes": "ab"}, {}, ValueError, LABELS),
        (classifier, THREE | {"loss": "probit"}, {}, ValueError, "loss must be 'logistic' for 3 classes"),
        (classifier, THREE | {"solver": "dp_ftrl"}, {}, ValueError, "solver must be 'preconditioned'"),
        (
            classifier,
            {},
            {"y": np.full(200, 3)},
            ValueError,
            r"y must hold labels of classes=\[0, 1\] only, got others",
        ),
        (classifier, {"classes": "observed"}, {"y": np.ones(200)}, ValueError, "y must hold at least two classes"),
        (classifier, {"row_norm": 0.0}, {}, ValueError, "row_norm must be positive"),
        (classifier, {"radius": -1.0}, {}, ValueError, "radius must be positive"),
        (classifier, {"clip": 0.0}, {}, ValueError, "clip must be positive"),
        (classifier, {"max_iter": 0}, {}, ValueError, "max_iter must be at least 1"),
        (classifier, {"ledger": 3}, {}, TypeError, "ledger must be a Ledger or None, got ledger=3"),
        (classifier, {"random_state": "a"}, {}, TypeError, "random_state must be an int"),
        (classifier, {"solver": "newton"}, {}, ValueError, "solver"),
        (classifier, {"solver": "dp_ftrl", "public_rows": 40}, {}, ValueError, "public_rows"),
        (classifier, {}, {"X": np.full((200, 3), np.nan)}, ValueError, "NaN"),
        (regressor, {"loss": "logistic"}, {}, ValueError, "loss must be 'squared' or 'huber', got loss='logistic'"),
        (regressor, {"threshold": 1.0}, {}, ValueError, "threshold is for the loss 'huber' only"),
        (regressor, {"loss": "huber", "threshold": 0.0}, {}, ValueError, "threshold must be positive"),
        (regressor, {"target_range": None}, {}, ValueError, "target_range must be given"),
        (regressor, {"target_range": (1.0, 1.0)}, {}, ValueError, "target_range must be two increasing numbers"),
        (regressor, {"target_range": (0.0, math.inf)}, {}, ValueError, "target_range must be two increasing numbers"),
        (regressor, {}, {"y": np.full(200, np.inf)}, ValueError, "infinity"),
    ],
)
def test_refusals_draw_and_record_nothing(make, change, data, error, message):
    X, y = problem()
    with refused(error, message) as known:
        model = make(**({"random_state": known["rng"], "ledger": known["ledger"]} | change))
        model.fit(data.get("X", X), data.get("y", y))
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize("adjacency", ["replace", "zero_out"])
def test_dp_ftrl_solves_it_too(adjacency):
    X = np.random.default_rng(0).normal(size=(2000, 3)) / 3
    y = (X @ [1.0, -1.0, 0.0] > 0).astype(int)
    budget, ledger = Budget(1.0, 1e-6, adjacency=adjacency), Ledger()
    model = PrivateGLMClassifier(budget, solver="dp_ftrl", epochs=5, ledger=ledger, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.9
    assert ledger.total == model.cost_
    assert epsilon(model.cost_, 1e-6) == pytest.approx(1.0)
    assert model.n_iter_ == 5 * 46

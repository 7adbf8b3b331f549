"""Scalers: the unit ball always, nothing learned from what is transformed, and what private bounds cost."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from accounting import Budget, BudgetExceeded, Ledger
from dpkit.features import PublicScaler, private_scaler


def polars(data):
    return pytest.importorskip("polars").DataFrame(data)


FINITE = st.floats(-1e6, 1e6)


@pytest.mark.thorough
@given(
    rows=arrays(np.float64, (7, 3), elements=st.floats(allow_nan=False)),
    low=st.lists(FINITE, min_size=3, max_size=3),
    width=st.lists(st.floats(1e-3, 1e6), min_size=3, max_size=3),
    where=st.lists(st.floats(0, 1), min_size=3, max_size=3),
    constant=st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_every_row_ends_in_the_unit_ball(rows, low, width, where, constant):
    high = [a + b for a, b in zip(low, width, strict=True)]
    centre = [min(max(a + f * (b - a), a), b) for a, b, f in zip(low, high, where, strict=True)]
    scaler = PublicScaler(low=low, high=high, centre=centre, constant=constant)
    scaled = scaler.transform(rows)
    assert scaled.shape == (7, 3 + constant)
    assert (np.einsum("ij,ij->i", scaled, scaled) <= 1.0).all()
    np.testing.assert_array_equal(scaled[2], scaler.transform(rows[2]))  # a row alone, whatever comes with it


def test_the_formula_by_hand():
    scaler = PublicScaler(low=[0, -1], high=[4, 1], centre=[1, 0])
    expected = np.array([[0.0, 0.0], [1.0, 1.0], [-1 / 3, -1.0], [1.0, 0.5]]) / np.sqrt(2)
    np.testing.assert_allclose(scaler.transform([[1, 0], [9, 5], [-7, -2], [4, 0.5]]), expected, atol=1e-12)
    # one pair of bounds for all features
    np.testing.assert_allclose(PublicScaler(low=0, high=1).transform([[0.5, 1.0]]), [[0, 1 / np.sqrt(2)]], atol=1e-12)


@pytest.mark.parametrize("table", [pd.DataFrame, polars, dict])
def test_tables_are_read_by_name(table):
    data = table({"z": [1.0, 2.0], "age": [0, 100], "size": [1.0, 3.0]})
    scaler = PublicScaler(low={"age": 0, "size": 1}, high={"size": 3, "age": 100}, constant=True)
    expected = np.array([[1, -1, -1], [1, 1, 1]]) / np.sqrt(3)
    np.testing.assert_allclose(scaler.transform(data), expected, atol=1e-12)
    assert scaler.get_feature_names_out().tolist() == ["constant", "age", "size"]


@pytest.mark.parametrize("table", [pd.DataFrame, np.asarray])
def test_tables_without_names_are_read_as_they_are(table):
    scaler = PublicScaler(low=0, high=2)
    np.testing.assert_allclose(scaler.transform(table([[1.0, 2.0]])), [[0, 1 / np.sqrt(2)]], atol=1e-12)


def test_it_is_a_transform_of_scikit_learn_and_learns_nothing():
    scaler = PublicScaler(low=[0, 0], high=[1, 2])
    X = np.random.default_rng(0).random((5, 2))
    expected = scaler.transform(X)
    np.testing.assert_array_equal(make_pipeline(clone(scaler)).fit(100 * X).transform(X), expected)
    np.testing.assert_array_equal(scaler.fit_transform(X), expected)
    assert scaler.set_params(constant=True).transform(X).shape == (5, 3)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"low": 1, "high": 1}, "low must be below high"),
        ({"low": [0, 2], "high": [1, 1]}, "low must be below high"),
        ({"low": 0, "high": np.inf}, "high must be finite"),
        ({"low": np.nan, "high": 1}, "low must be finite"),
        ({"low": [0, 0, 0], "high": [1, 1]}, "one entry per feature"),
        ({"low": 0, "high": 1, "centre": 2}, "centre must lie between"),
        ({"low": {"a": 0}, "high": {"b": 1}}, "must name the same columns"),
    ],
)
def test_bounds_that_are_none_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        PublicScaler(**parameters)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[0.0, np.nan]], "X must not hold NaN.*column 1"),
        ([[0.0, 1.0, 2.0]], "X must have rows of 2 features"),
        ([[0.0, 1.0], [1.0]], "same length"),
        ([["a", "b"]], "real numbers"),
        (np.zeros((2, 2, 2)), "X must have rows"),
    ],
)
def test_rows_that_are_none_are_refused(rows, message):
    with pytest.raises(ValueError, match=message):
        PublicScaler(low=[0, 0], high=[1, 1]).transform(rows)


def test_private_bounds_cost_the_budget_and_are_near_the_quantiles():
    rng = np.random.default_rng(1)
    data = pd.DataFrame({"age": rng.normal(40, 5, 20_000), "size": rng.normal(-3, 1, 20_000), "id": range(20_000)})
    budget = Budget(2.0, 0.0)
    ledger = Ledger(budget)
    low, high = {"age": 0, "size": -50}, {"age": 200, "size": 50}
    scaler = private_scaler(data, bounds=(low, high), budget=budget, rng=rng, ledger=ledger)
    assert 1.9 < ledger.epsilon(0.0) <= 2.0
    assert scaler.columns == ["age", "size"]
    # 2 % and 98 % of a normal column: 2.05 standard deviations from the middle
    assert scaler.low["age"] == pytest.approx(40 - 2.05 * 5, abs=2)
    assert scaler.high["size"] == pytest.approx(-3 + 2.05, abs=0.5)
    assert scaler.centre["age"] == pytest.approx(40, abs=0.5)
    with pytest.raises(BudgetExceeded):
        private_scaler(data, bounds=(low, high), budget=budget, rng=rng, ledger=ledger)


def test_a_feature_with_one_value_keeps_its_public_bounds():
    scaler = private_scaler(
        np.full((2000, 1), 0.0), bounds=(0, 1), budget=Budget(50.0, 0.0), rng=np.random.default_rng(0)
    )
    assert scaler.low[0] < scaler.high[0] <= 1

"""Marginals: sensitivity by enumeration, the stated noise, agreement of tables, the least error."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tabled import tabled

from accounting import Budget, Gaussian, Ledger, calibrate
from dpkit import queries
from dpkit.queries.residual_basis import contrasts, squared_norms

COME = Budget(1.0, 1e-6, adjacency="add_remove")
NOTHING = replace(COME, epsilon=1e6)


def data_of(sizes, rows, seed=0):
    rng = np.random.default_rng(seed)
    return {f"c{i}": rng.integers(0, n, rows) for i, n in enumerate(sizes)}


def keys_of(sizes):
    return {f"c{i}": list(range(n)) for i, n in enumerate(sizes)}


def truth(data, sizes, names):
    cells = np.zeros([sizes[int(name[1:])] for name in names])
    np.add.at(cells, tuple(data[name] for name in names), 1)
    return cells


@given(st.integers(1, 40))
@settings(max_examples=40)
def test_contrasts_are_an_orthogonal_basis_beyond_the_total(n):
    matrix = contrasts(n)
    assert matrix.shape == (n - 1, n)
    assert not matrix.sum(axis=1).any()
    gram = matrix @ matrix.T
    assert np.array_equal(gram, np.diag(squared_norms([matrix])))
    assert (np.diag(gram) > 0).all()
    # a balanced tree has few different norms, so that noise is drawn for many at once
    assert np.unique(np.diag(gram)).size <= 2 * max(1, math.ceil(math.log2(n)))


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    adjacency=st.sampled_from(["add_remove", "replace", "zero_out"]),
    rows=st.integers(1, 2),
    draw=st.data(),
)
@settings(max_examples=30, deadline=None)
def test_no_pair_of_neighbours_is_farther_apart_than_the_cost_says(sizes, adjacency, rows, draw):
    """μ of every change of one unit, from all contrasts of all parts and their noise: the largest is 1/z, not less."""
    names = [f"c{i}" for i in range(len(sizes))]
    every = [t for k in range(1, len(sizes) + 1) for t in itertools.combinations(names, k)]
    tables = draw.draw(st.lists(st.sampled_from(every), min_size=1, max_size=3, unique=True))
    used = [name for name in names if any(name in table for table in tables)]
    budget = replace(COME, adjacency=adjacency, unit="person")
    found = queries.marginals(
        data_of(sizes, 5), keys_of(sizes), tables=tables, max_contributions=rows, budget=budget,
        rng=np.random.default_rng(0),
    )  # fmt: skip
    cells = list(itertools.product(*(range(sizes[int(name[1:])]) for name in used)))
    measured = []
    for part, deviation in found.deviations.items():
        matrices = [contrasts(sizes[int(name[1:])]) for name in part]
        own = np.array([[1.0]])
        for name in used:
            n = sizes[int(name[1:])]
            own = np.kron(own, matrices[part.index(name)] if name in part else np.ones((1, n)))
        measured.append(own / (deviation * np.sqrt(squared_norms(matrices).reshape(-1, 1))))
    moves = np.concatenate(measured)  # one column for each cell, in units of the noise
    # all multisets of at most so many rows, before and after
    units = [np.bincount(u, minlength=len(cells)) for k in range(rows + 1) for u in
             itertools.combinations_with_replacement(range(len(cells)), k)]  # fmt: skip
    after = units if adjacency == "replace" else [np.zeros(len(cells))]
    largest = max(float(np.linalg.norm(moves @ (u - v))) for u in units for v in after)
    assert largest * found.cost.noise_multiplier == pytest.approx(1.0, rel=1e-9)
    assert largest * found.cost.noise_multiplier <= 1.0 + 1e-12


@pytest.mark.parametrize("sizes", [(2, 3, 4), (5, 1, 2)])
def test_without_noise_the_tables_are_those_of_the_data(sizes):
    data = data_of(sizes, 300)
    found = queries.marginals(data, keys_of(sizes), budget=NOTHING)
    for table in [*itertools.permutations(keys_of(sizes), 2), ("c0",), ("c2",), ()]:
        assert np.allclose(found.array(*table), truth(data, sizes, table) if table else 300, atol=1e-9)
        assert found.noise_std(*table).max() < 1e-6


def test_tables_agree_and_their_answers_say_so():
    sizes = (4, 3, 5)
    found = queries.marginals(data_of(sizes, 500), keys_of(sizes), budget=COME)
    a, b, c = (found.array(*pair) for pair in found.tables)
    assert np.allclose(a.sum(axis=1), b.sum(axis=1))
    assert np.allclose(a.sum(axis=0), c.sum(axis=1))
    assert np.allclose([a.sum(), b.sum(), c.sum()], found.array())
    answer = found.table("c1", "c0")
    assert answer.keys == tuple(itertools.product(range(3), range(4)))
    assert np.allclose(answer.value, found.array("c0", "c1").T.reshape(-1))
    assert found.table().value == pytest.approx(float(found.array()))
    assert "c0 × c1: 12 cells" in repr(found)


def test_cells_have_the_stated_noise_and_intervals():
    """One table of 2500 cells, whose noise is independent: a false alarm has a probability below 1e-9, and noise that
    is 0.9 or 1.1 times as large would be seen."""
    sizes = (50, 50)
    data = data_of(sizes, 10_000)
    found = queries.marginals(data, keys_of(sizes), budget=COME, rng=np.random.default_rng(1))
    error = found.array("c0", "c1") - truth(data, sizes, ("c0", "c1"))
    std = found.noise_std("c0", "c1")
    assert np.allclose(std, calibrate(lambda z: Gaussian(z, adjacency="add_remove"), COME), rtol=0.01)
    assert abs(np.mean((error / std) ** 2) - 1) < 6.1 * math.sqrt(2 / error.size)
    low, high = found.table("c0", "c1").interval(0.95)
    exact = truth(data, sizes, ("c0", "c1")).reshape(-1)
    covered = np.mean((low <= exact) & (exact <= high))
    assert 0.95 - 6.1 * math.sqrt(0.05 * 0.95 / error.size) < covered < 0.99


@pytest.mark.thorough
def test_every_table_and_margin_has_the_stated_noise():
    """200 runs: in each table the largest of 30 or fewer standardised mean squares, 7 standard errors (1e-9)."""
    sizes = (2, 3, 5)
    data, keys = data_of(sizes, 200), keys_of(sizes)
    rng = np.random.default_rng(2)
    tables = [("c0", "c1"), ("c1", "c2"), ("c1",), ("c2",), ()]
    squares = dict.fromkeys(tables, 0.0)
    for _ in range(200):
        found = queries.marginals(data, keys, tables=tables[:2], budget=COME, rng=rng)
        for table in tables:
            off = found.array(*table) - (truth(data, sizes, table) if table else 200)
            squares[table] = squares[table] + (off / found.noise_std(*table)) ** 2 / 200
    for table in tables:
        assert np.abs(np.asarray(squares[table]) - 1).max() < 7 * math.sqrt(2 / 200), table


def test_no_other_precisions_have_less_error_at_the_same_cost():
    """The mean variance at a cost of one, by the formulas, at 200 other precisions nearby."""
    sizes, tables, weights = (2, 3, 4), [(0, 1), (1, 2), (2,)], [1.0, 2.0, 0.5]
    found = queries.marginals(
        data_of(sizes, 5), keys_of(sizes), tables=[[f"c{i}" for i in t] for t in tables], weights=weights, budget=COME
    )
    parts = [tuple(int(name[1:]) for name in part) for part in found.deviations]
    best = np.array([d**-2 for d in found.deviations.values()])

    def objective(tau):
        cost = sum(t * math.prod(1 - 1 / sizes[i] for i in part) for t, part in zip(tau, parts, strict=True))
        error = sum(
            w * math.prod(1 - 1 / sizes[i] for i in part) * math.prod(sizes[i] ** -2 for i in a if i not in part) / t
            for a, w in zip(tables, weights, strict=True)
            for t, part in zip(tau, parts, strict=True)
            if set(part) <= set(a)
        )
        return cost * error

    least = objective(best)
    mean = sum(w * np.mean(found.noise_std(*(f"c{i}" for i in t)) ** 2) for t, w in zip(tables, weights, strict=True))
    z = found.cost.noise_multiplier
    assert mean == pytest.approx(least * z**2, rel=0.01)  # rounding adds a twelfth of a row squared to each contrast
    rng = np.random.default_rng(0)
    assert all(objective(best * np.exp(0.2 * rng.normal(size=best.size))) >= least for _ in range(200))


def test_many_small_tables_have_less_noise_than_tables_of_their_own():
    sizes = (2,) * 8
    found = queries.marginals(data_of(sizes, 50), keys_of(sizes), budget=COME)
    z = calibrate(lambda z: 28 * Gaussian(z, adjacency="add_remove"), COME)
    assert max(found.noise_std(*table).max() for table in found.tables) < 0.5 * z


def test_persons_are_bounded_and_rows_with_other_values_count_nowhere():
    data = {"who": [1] * 50 + [2], "a": [0] * 51, "b": [0] * 50 + [7]}
    budget = replace(NOTHING, unit="person")
    found = queries.marginals(data, {"a": [0, 1], "b": [0, 1]}, person="who", max_contributions=3, budget=budget)
    assert np.allclose(found.array("a", "b"), [[3, 0], [0, 0]], atol=1e-9)
    once = queries.marginals(data, {"a": [0, 1], "b": [0, 1]}, where="b = 0", budget=NOTHING)
    assert float(once.array()) == pytest.approx(50)


def test_one_release_is_recorded_before_any_noise():
    ledger = Ledger(COME)
    found = queries.marginals(data_of((2, 2), 9), keys_of((2, 2)), budget=COME, ledger=ledger)
    (row,) = ledger.rows()
    assert (row.release, row.outcome) == (found.cost, "released")
    assert ledger.epsilon(1e-6) == pytest.approx(1.0)


@tabled(
    ("given", "error", "told"),
    [
        ({"budget": replace(COME, delta=0.0)}, ValueError, r"budget\.delta > 0"),
        ({"keys": {}}, TypeError, "keys must map"),
        ({"keys": {"c0": []}}, ValueError, "distinct values, at least one"),
        ({"keys": {"c0": [1, 1]}}, ValueError, "distinct values"),
        ({"keys": {"nope": [1]}}, ValueError, "nope"),
        ({"tables": [("c0", "x")]}, ValueError, "tables must cross columns of keys"),
        ({"tables": [("c0", "c0")]}, ValueError, "different columns"),
        ({"tables": []}, ValueError, "at least one table"),
        ({"tables": [()]}, ValueError, "at least one column"),
        ({"weights": [1.0, 2.0]}, ValueError, "one entry for each of the 1 tables"),
        ({"weights": [0.0]}, ValueError, "weights must be positive"),
        ({"budget": replace(COME, unit="person")}, TypeError, "max_contributions must be given"),
        ({"keys": {"c0": range(2001)}}, ValueError, "at most 2,000 values"),
        ({"keys": dict.fromkeys("abc", range(300)), "tables": [["a", "b", "c"]]}, ValueError, "10,000,000 cells"),
    ],
)
def test_refusals_come_before_anything_is_spent(given, error, told):
    ledger = Ledger()
    with pytest.raises(error, match=told):
        queries.marginals(data_of((2, 2), 9), **{"keys": keys_of((2, 2)), "budget": COME, "ledger": ledger} | given)
    assert not ledger.rows()


def test_tables_that_were_not_measured_are_named():
    found = queries.marginals(data_of((2, 2, 2), 9), keys_of((2, 2, 2)), tables=[("c0", "c1")], budget=COME)
    with pytest.raises(ValueError, match="ask for it in tables="):
        found.array("c0", "c2")
    with pytest.raises(ValueError, match="columns must be among"):
        found.array("x")
    with pytest.raises(ValueError, match="must be distinct"):
        found.array("c0", "c0")


def test_an_engine_counts_the_same_where_the_unit_is_a_row(tmp_path):
    pytest.importorskip("duckdb", reason="the extra 'tables' is not installed")
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"town": rng.choice(["A b", "O'N", "x"], 300), "age": rng.integers(0, 5, 300), "who": 1})
    frame.to_parquet(tmp_path / "rows.parquet")
    keys = {"town": ["A b", "O'N"], "age": [0, 1, 3]}
    asked = {"keys": keys, "tables": [("town", "age"), ("age",)], "where": "age < 3", "budget": NOTHING}
    here, there = (queries.marginals(data, **asked) for data in (frame, tmp_path / "rows.parquet"))
    for table in [("town", "age"), ("age",), ("town",)]:
        assert np.allclose(here.array(*table), there.array(*table), atol=1e-9)
    persons = {"person": "who", "max_contributions": 1, "budget": replace(COME, unit="person")}
    with pytest.raises(TypeError, match="marginals of persons need their columns in memory"):
        queries.marginals(tmp_path / "rows.parquet", **asked | persons)

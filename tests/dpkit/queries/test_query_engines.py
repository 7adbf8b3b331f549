"""Tables that an engine reads: the whole numbers of numpy, sensitivity attacked, refusals that cost nothing."""

import importlib.util
import math
import shutil
from itertools import cycle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from watched import refused

from accounting import Budget, Ledger
from dpkit import queries
from dpkit.queries import _rows
from dpkit.queries._units import Share
from dpkit.queries.engines import bounded, parts

duckdb = pytest.importorskip("duckdb")
pl = pytest.importorskip("polars")

ROWS = Budget(1.0, 1e-6, adjacency="add_remove")
PERSONS = Budget(1.0, 1e-6, adjacency="add_remove", unit="person")
HOSTILE = [
    0.0,
    -0.0,
    5e-324,
    -2.2e-308,
    0.5,
    1.5,
    2.5,
    -2.5,
    1e-9,
    1 / 3,
    99.99999999999999,
    100.0,
    1e17,
    -1e308,
    1e308,
]
EVERYTHING = Share(1, 1, "add_remove", alone=True)


def rows_of(data, **what):
    return _rows.rows_of(_rows.given(data), where=what.pop("where", None), **what)


def asked(data, how, bounds, rng):
    """The whole numbers that a query is about, before noise."""
    rows = rows_of(data, person=None, column="x")
    if how == "sums":
        return rows.sums(EVERYTHING, rng, 2.0**-20, bounds)()
    if how == "squares":
        return np.array(rows.squares(bounds, 25))
    if how == "below":
        return rows.below(EVERYTHING, rng, np.linspace(*bounds, 7))()[0]
    return rows.weights(EVERYTHING, rng, bounds, how, 30)()


def bins_of(data, edges, cut):
    groups = _rows.Bins(np.asarray(edges, float), cut)
    keys = range(len(edges) - 1)
    return rows_of(data, groups=groups, keys=keys, person=None, column="x").counts(EVERYTHING, None)()


@pytest.mark.thorough
@settings(max_examples=15)
@given(
    st.lists(st.sampled_from(HOSTILE) | st.floats(allow_nan=False, allow_infinity=False), max_size=12),
    st.sampled_from([(0.0, 100.0), (-7.3, 11.1), (-1e300, 1e300), (0.1, 0.1 + 1e-12)]),
)
def test_whole_numbers_are_those_of_numpy(values, bounds):
    frame = pl.DataFrame({"x": np.array(values, float)})
    rng = np.random.default_rng(0)
    for how in (1, 2, "squares", "below") + (("sums",) if bounds[1] < 1e3 else ()):
        want, found = asked(frame, how, bounds, rng), asked(frame.lazy(), how, bounds, rng)
        assert np.array_equal(want, found), how
    for edges in (np.linspace(*bounds, 8), np.array([bounds[0], bounds[1] / 2 + bounds[0] / 2, bounds[1]])):
        for cut in (False, True):
            assert np.array_equal(bins_of(frame, edges, cut), bins_of(frame.lazy(), edges, cut))


def a_table(seed, rows=400):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "id": rng.choice([-(2**63), -3, 5, 2**31, 2**62, *range(100, 130)], rows),
            "name": rng.choice(["ann", "Ann", "björn", "o'neill", "#1"], rows),
            "x": rng.choice([*HOSTILE[:10], 17.25, 99.5], rows),
            "age": rng.integers(0, 90, rows),
            "town": rng.choice(["a", "b", "c'x"], rows),
            "ok": rng.random(rows) < 0.5,
            "w": 3 * rng.random(rows),
            "day": pd.Timestamp("2025-01-01") + pd.to_timedelta(rng.integers(0, 10**6, rows), unit="s"),
        }
    )


def seeded():
    return {"rng": np.random.default_rng(1)}


KNOWN = {
    "count": lambda d, b: queries.count(d, where="age >= 18 and not town = a", budget=b, **seeded()),
    "all": lambda d, b: queries.count(d, budget=b, **seeded()),
    "dates": lambda d, b: queries.count(d, where="day < 2025-01-05 or x = 2.5", budget=b, **seeded()),
    "sum": lambda d, b: queries.sum(d, "age", bounds=(0, 80), where="ok", budget=b, **seeded()),
    "mean": lambda d, b: queries.mean(d, "x", bounds=(-10, 90), budget=b, **seeded()),
    "weighted": lambda d, b: queries.mean(
        d, "x", bounds=(-10, 90), weights="w", largest_weight=2, budget=b, **seeded()
    ),
    "towns": lambda d, b: queries.mean(
        d, "x", bounds=(0, 90), groups="town", keys=["a", "c'x", "?"], budget=b, **seeded()
    ),
    "variance": lambda d, b: queries.variance(d, "x", bounds=(-10, 90), budget=b, **seeded()),
    "bins": lambda d, b: queries.histogram(d, "x", bins=7, bounds=(-10, 90), budget=b, **seeded()),
    "edges": lambda d, b: queries.histogram(d, "age", bins=[1, 5, 70], budget=b, **seeded()),
    "cross": lambda d, b: queries.count(
        d, groups=["town", "ok"], keys={"town": ["a", "b"], "ok": [True, False]}, budget=b, **seeded()
    ),
    "when": lambda d, b: queries.mean(d, "day", bounds=("2025-01-01", "2025-02-01"), budget=b, **seeded()),
    "median": lambda d, b: queries.quantile(d, "x", candidates=np.arange(0, 101), budget=b, **seeded()),
}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The same rows in memory and in every source; the folder has them in two files, and in another order."""
    folder = tmp_path_factory.mktemp("tables")
    table = a_table(0)
    table.to_parquet(folder / "one.parquet")
    table.to_csv(folder / "one.csv", index=False)
    (folder / "many").mkdir()
    table.iloc[250:].to_parquet(folder / "many" / "a.parquet")
    table.iloc[:250].to_parquet(folder / "many" / "b.parquet")
    connection = duckdb.connect()
    return table, {
        "file": folder / "one.parquet",
        "csv": str(folder / "one.csv"),
        "folder": folder / "many",
        "pattern": str(folder / "many" / "*.parquet"),
        "lazy": pl.from_pandas(table).lazy(),
        "relation": connection.from_df(table),
    }


@pytest.mark.parametrize(
    "grid",
    [np.linspace(0, 100, 401), np.arange(31) / 10, np.linspace(-1, 2, 50), [-3, 0.1, 7.5, 40], [-1e-3, 1e-3], [2.0]],
    ids=["quarters", "tenths", "forty-ninths", "a few", "two", "one"],
)
def test_an_engine_counts_the_points_of_a_grid_that_are_not_above_a_value(grid):
    """By a division where that is right at all points and just below them, and else by bisection."""
    grid = np.asarray(grid, dtype=float)
    x = np.concatenate([grid, np.nextafter(grid, np.inf), np.nextafter(grid, -np.inf), HOSTILE])
    x = x[np.isfinite(x)]
    table = pd.DataFrame({"x": x})
    rows = _rows.rows_of(_rows.given(duckdb.from_df(table)), where=None, person=None, column="x")
    (found,) = rows.below(EVERYTHING, np.random.default_rng(0), grid)()
    assert found.tolist() == [*(int((x < point).sum()) for point in grid), x.size]


@pytest.mark.parametrize("query", KNOWN)
def test_seeded_answers_are_those_of_memory_whatever_the_source(sources, query):
    table, others = sources
    for adjacency in ("add_remove", "replace") if query in ("all", "mean", "variance") else ("add_remove",):
        budget = Budget(1.0, 1e-6, adjacency=adjacency)
        want = KNOWN[query](table, budget)
        for name, data in others.items():
            found = KNOWN[query](data, budget)
            assert np.array_equal(want.value, found.value), (name, adjacency)
            assert repr(want.cost) == repr(found.cost)
            assert want.query == found.query


PERSONAL = {
    "mean": {"column": "x", "max_contributions": 3},
    "few": {"column": "age", "max_contributions": 20},
    "count": {"column": None, "max_contributions": 2},
    "towns": {"column": "age", "groups": "town", "keys": ["a", "c'x", "?"], "max_groups": 1, "max_per_group": 2},
    "found": {"column": None, "groups": "town", "max_groups": 2, "max_per_group": 2},
}


def personal(data, how, person="id", seed=3):
    options = dict(PERSONAL[how])
    column = options.pop("column")
    bounds = {key: options.pop(key) for key in list(options) if key.startswith("max_")}
    share = Share(bounds.get("max_groups", 1), bounds.get("max_per_group", bounds.get("max_contributions")), "", False)
    rows = rows_of(data, person=person, column=column, numeric=column is not None, **options)
    rng = np.random.default_rng(seed)
    if column is None:
        return rows.counts(share, rng)()
    return rows.weights(share, rng, (0.0, 100.0), 1, 30)()


@pytest.mark.parametrize(("how", "person"), list(zip(PERSONAL, cycle(("id", "name")), strict=False)))
def test_the_same_rows_of_a_person_wherever_it_runs(sources, how, person, monkeypatch, tmp_path):
    table, others = sources
    want = personal(others["file"], how, person)
    shuffled = table.sample(frac=1, random_state=5)
    shuffled.to_parquet(tmp_path / "shuffled.parquet")
    for data in (others["csv"], others["folder"], others["lazy"], tmp_path / "shuffled.parquet"):
        assert np.array_equal(want, personal(data, how, person))
    monkeypatch.setattr(bounded, "_ROWS_PER_PART", 60)
    assert np.array_equal(want, personal(others["file"], how, person))
    # windows in SQL in the place of numpy
    monkeypatch.setattr(bounded, "DuckDB", type("none", (), {}))
    assert np.array_equal(want, personal(others["file"], how, person))


def test_every_row_of_a_person_has_the_same_chance():
    """3,000 persons with values 1, 1, 1, 9, of which one is used: the mean is 3 (alarm at 6 standard errors, 2e-9)."""
    rows = pl.DataFrame({"id": np.repeat(np.arange(3000), 4), "x": np.tile([1.0, 1.0, 1.0, 9.0], 3000)})
    rows = rows.with_columns(visit=pl.int_range(rows.height))
    for data in (queries.table(rows.lazy()), queries.table(rows.lazy(), row_key="visit")):
        n, total = np.array(
            rows_of(data, person="id", column="x").weights(
                Share(1, 1, "", False), np.random.default_rng(2), (0.0, 16.0), 1, 30
            )()
        ).ravel()
        assert n + total == 3000 << 30
        assert abs(16 * total / 2**30 / 3000 - 3) < 6 * 8 * math.sqrt(3 / 16 / 3000)


def attacked(seed):
    """One random table and plan: how far the exact sums move when a person goes or is replaced, by what is stated."""
    rng = np.random.default_rng(seed)
    persons, rows = int(rng.integers(1, 6)), int(rng.integers(0, 25))
    texts = rng.random() < 0.3
    table = pl.DataFrame(
        {
            "id": [f"p{i}" if texts else int(i) for i in rng.integers(0, persons, rows)],
            "x": rng.choice([-5.0, 0.0, 1.0, 2.5, 7.0, 100.0], rows),
            "town": rng.choice(["a", "b", "c"], rows),
            "visit": rng.integers(0, 3, rows),
        },
        schema={"id": pl.String if texts else pl.Int64, "x": pl.Float64, "town": pl.String, "visit": pl.Int64},
    )
    one = f"p{persons}" if texts else persons
    mine = pl.DataFrame(
        {
            "id": [one] * 12,
            "x": rng.choice([-5.0, 7.0, 100.0], 12),
            "town": rng.choice(["a", "b", "c"], 12),
            "visit": rng.integers(0, 3, 12),
        },
        schema=table.schema,
    )
    other = mine.with_columns(
        x=pl.Series(rng.choice([-5.0, 7.0, 100.0], 12)), town=pl.Series(rng.choice(["a", "b"], 12))
    )
    grouped, m, groups = rng.random() < 0.5, int(rng.integers(1, 4)), int(rng.integers(1, 3))
    share = Share(groups if grouped else 1, m, "replace", False)
    more = {"groups": "town", "keys": ["a", "b", "z", "c"]} if grouped else {}
    how = rng.choice(["counts", "sums", "weights"])
    keyed, where = bool(rng.random() < 0.4), "x > 0" if rng.random() < 0.3 else None

    def exact(frame):
        frame = frame.sample(fraction=1.0, shuffle=True, seed=int(rng.integers(2**31)))
        data = queries.table(frame.lazy(), row_key="visit" if keyed else None)
        numeric = how != "counts"
        used = rows_of(data, where=where, person="id", column="x" if numeric else None, numeric=numeric, **more)
        key = np.random.default_rng(seed)
        if how == "counts":
            return used.counts(share, key)()
        if how == "sums":
            return used.sums(share, key, 1.0, (-3.0, 10.0))()
        return used.weights(share, key, (0.0, 10.0), 1, 20)()

    without, present, swapped = exact(table), exact(pl.concat([table, mine])), exact(pl.concat([table, other]))
    reach = share.groups * share.per_group * {"counts": 1, "sums": 10, "weights": 1 << 20}[how]
    assert np.abs(present - without).sum() <= reach
    assert np.abs(swapped - without).sum() <= reach
    assert np.abs(present - swapped).sum() <= 2 * reach
    return np.abs(present - without).sum() / reach


@pytest.mark.thorough
def test_no_person_moves_the_sums_by_more_than_stated():
    worst = [attacked(seed) for seed in range(20)]
    assert max(worst) == 1.0  # and it is reached, so that a bound on one row more would fail


@pytest.mark.slow
def test_no_person_moves_the_sums_by_more_than_stated_in_many_tables():
    assert max(attacked(seed) for seed in range(1000, 3000)) == 1.0


def file_of(tmp_path, **columns):
    name = tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet"
    pl.DataFrame(columns, strict=False).write_parquet(name)
    return name


def test_bad_input_is_refused_before_anything_is_spent(tmp_path):
    good = file_of(tmp_path, x=[1.0, 2.0], id=[1, 2], town=["a", "b"], f=[0.5, 1.5])
    nan, null = file_of(tmp_path, x=[1.0, math.nan]), file_of(tmp_path, x=[1.0, None])
    inf, big = file_of(tmp_path, x=[1.0, -math.inf]), file_of(tmp_path, x=[1, 2**53 + 1])
    nobody = file_of(tmp_path, x=[1.0, 2.0], id=[1, None], town=[None, "a"], ok=[True, None])
    (tmp_path / "mixed").mkdir()
    pl.DataFrame({"x": [1.0]}).write_parquet(tmp_path / "mixed" / "a.parquet")
    pl.DataFrame({"x": [1]}).write_parquet(tmp_path / "mixed" / "b.parquet")
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.parquet").write_bytes(b"no Parquet")
    ask = {"bounds": (0, 10)}
    table = [
        (lambda b: queries.sum(good, "y", **ask, **b), ValueError, "one of the columns"),
        (lambda b: queries.sum(good, "town", **ask, **b), TypeError, "must hold numbers"),
        (lambda b: queries.sum(nan, "x", **ask, **b), ValueError, "1 rows with others"),
        (lambda b: queries.mean(null, "x", **ask, **b), ValueError, "1 rows with others"),
        (lambda b: queries.variance(inf, "x", **ask, **b), ValueError, "1 rows with others"),
        (lambda b: queries.sum(big, "x", **ask, **b), ValueError, r"at most 2\*\*53"),
        (lambda b: queries.histogram(nan, "x", bins=2, **ask, **b), ValueError, "1 rows with others"),
        (lambda b: queries.count(nobody, groups="town", keys=["a"], **b), ValueError, "groups must be known"),
        (lambda b: queries.count(nobody, where="ok", **b), ValueError, "1 missing in 'ok'"),
        (lambda b: queries.count(good, groups="id", keys=["a"], **b), TypeError, "keys must be what 'id' holds"),
        (lambda b: queries.count(good, where="town > 3", **b), ValueError, "no numbers"),
        (lambda b: queries.count(good, where=[True, False], **b), TypeError, "where must name a column"),
        (lambda b: queries.quantile(good, "x", **ask, **b), ValueError, "give candidates="),
        (lambda b: queries.top_k(good, "town", keys=["a"], **b), TypeError, "in memory"),
        (lambda b: queries.private_bounds(good, "x", **b), TypeError, "in memory"),
        (lambda b: queries.mean_vector(good, columns=["x"], **b), TypeError, "."),
        (lambda b: queries.count(str(tmp_path / "none.parquet"), **b), FileNotFoundError, "no file"),
        (lambda b: queries.count(" ", **b), ValueError, "empty text"),
        (lambda b: queries.count(tmp_path / "empty", **b), FileNotFoundError, "without Parquet files"),
        (lambda b: queries.count(tmp_path / "mixed", **b), ValueError, "same columns of the same types"),
        (lambda b: queries.count(tmp_path / "broken.parquet", **b), ValueError, "cannot read the data"),
    ]
    for query, kind, message in table:
        ledger = Ledger(ROWS)
        with refused(kind, message, ledger):
            query({"budget": ROWS, "ledger": ledger})
    persons = [
        (lambda b: queries.count(nobody, person="id", max_contributions=1, **b), ValueError, "person must be known"),
        (lambda b: queries.count(good, person="f", max_contributions=1, **b), TypeError, "whole numbers or texts"),
    ]
    for query, kind, message in persons:
        ledger = Ledger(PERSONS)
        with refused(kind, message, ledger):
            query({"budget": PERSONS, "ledger": ledger})


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("pyspark") is None or shutil.which("java") is None, reason="needs pyspark and java"
)
def test_spark_adds_up_the_same_whole_numbers(sources, tmp_path):
    from pyspark.sql import SparkSession

    table, others = sources
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.driver.host": "127.0.0.1"}
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        table.to_parquet(tmp_path / "t.parquet", coerce_timestamps="us")
        data = spark.read.parquet(str(tmp_path / "t.parquet"))
        for query, ask in KNOWN.items():
            assert np.array_equal(ask(table, ROWS).value, ask(data, ROWS).value), query
        for how in PERSONAL:
            for person in ("id", "name"):
                assert np.array_equal(personal(others["file"], how, person), personal(data, how, person)), how
    finally:
        spark.stop()


WORDS = st.sampled_from([1, 2, 2**30, parts.PRIME - 2, parts.PRIME - 1]) | st.integers(1, parts.PRIME - 1)
PIECES = st.none() | st.lists(st.sampled_from([0, 1, parts.PRIME - 1, parts.PRIME]), min_size=3, max_size=3)


@pytest.mark.thorough
@settings(max_examples=60)
@given(st.lists(PIECES, max_size=47), st.lists(WORDS, min_size=52, max_size=52))
def test_hashes_of_numpy_are_those_of_whole_numbers_without_bound(others, words):
    """At the ends of what 64 bits hold, too."""
    form, polynomial, pieces = words[:48], words[48:], [[parts.PRIME, 0, 5], *others][:47]
    places = parts.linear([None if piece is None else np.array(piece, np.int64) for piece in pieces], form)
    told = [sum(a * piece[i] for piece, a in zip(pieces, form[1:], strict=False) if piece) + form[0] for i in range(3)]
    assert places.tolist() == [place % parts.PRIME for place in told]
    wanted = [sum(a * t ** (3 - k) for k, a in enumerate(polynomial)) % parts.PRIME for t in places.tolist()]
    assert parts.mixed(places, polynomial).tolist() == wanted
    # block by block
    assert np.array_equal(parts.mixed(np.resize(places, 40_000), polynomial), np.resize(wanted, 40_000))


@pytest.mark.thorough
def test_thousands_of_tests_are_asked_in_memory_and_of_an_engine():
    table = pl.DataFrame({"a": range(3000)})
    for test, size in (
        (" and ".join(f"a != {i}" for i in range(2000)), 1000),
        (" or ".join(f"a = {i}" for i in range(2000)), 2000),
    ):
        for data in (table, table.lazy()):
            answer = queries.count(data, where=test, budget=Budget(1e5, 0.0, adjacency="add_remove"))
            assert answer.value == size
    with pytest.raises(ValueError, match=r"where must be a test.*nested too deeply"):
        queries.count(table, where="(" * 10_000 + "a = 1" + ")" * 10_000, budget=Budget(1.0, 0.0))


@pytest.mark.parametrize(("times", "size"), [(700, 1), (701, 2)])
def test_hundreds_of_nots_are_asked_in_memory_and_of_an_engine(times, size):
    table = pl.DataFrame({"a": [1, 2, 3, None]})
    for data in (table, table.lazy()):
        answer = queries.count(data, where="not " * times + "a = 1", budget=Budget(1e5, 0.0, adjacency="add_remove"))
        assert answer.value == size

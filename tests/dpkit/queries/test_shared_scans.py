"""A plan adds up its answers together: the numbers of one-by-one runs to the last bit, in as few scans as groupings."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import Budget, Ledger
from dpkit import queries
from dpkit.queries import Ask, _rows
from dpkit.queries.engines import parts, sessions, together
from dpkit.queries.reports import plans

duckdb = pytest.importorskip("duckdb")
pl = pytest.importorskip("polars")

COME = Budget(2.0, 0.0, adjacency="add_remove")
SWAP = replace(COME, adjacency="replace")
PEOPLE = replace(COME, unit="person")
EACH = {"person": "id", "max_contributions": 2, "max_groups": 2, "max_per_group": 1}
TOWNS = ["a", "b'c", "nowhere"]
HOSTILE = [0.0, -0.0, 5e-324, 0.5, 1.5, 2.5, -2.5, 1 / 3, 99.99999999999999, 100.0, 1e17, -1e308, 1e308]
CONDITIONS = [None, "v0 >= 18", "town = a", "not town = a and x > 1", "v0 > 1000"]
KINDS = [
    {"what": "count"},
    {"what": "count", "groups": "town", "keys": TOWNS},
    {"what": "count", "groups": ["town", "w0"], "keys": {"town": TOWNS, "w0": [True, False]}},
    {"what": "sum", "column": "v0", "bounds": (0, 80)},
    {"what": "sum", "column": "x", "bounds": (-7.3, 11.1), "groups": "town", "keys": TOWNS},
    {"what": "mean", "column": "x", "bounds": (0, 100)},
    {"what": "mean", "column": "x", "bounds": (0, 100), "groups": "town", "keys": TOWNS[:1]},
    {"what": "variance", "column": "x", "bounds": (-10, 90)},
    {"what": "variance", "column": "v0", "bounds": (0, 80), "groups": "town", "keys": TOWNS},
    {"what": "histogram", "column": "x", "bins": 7, "bounds": (-10, 90)},
    {"what": "histogram", "column": "v0", "bins": (1, 5, 70)},
    {"what": "quantile", "column": "x", "candidates": range(101), "q": 0.5},
    {"what": "quantile", "column": "v0", "candidates": range(0, 90, 7), "q": 0.9, "groups": "town", "keys": TOWNS},
]


def a_table(seed, rows=300):
    """Of columns that are called as those of the statements are."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "id": rng.choice([-(2**63), -3, 5, 2**31, *range(100, 140)], rows),
            "town": rng.choice(["a", "b'c", "d"], rows),
            "w0": rng.random(rows) < 0.5,
            "v0": rng.integers(-5, 90, rows),
            "x": rng.choice([*HOSTILE, *rng.normal(40, 30, 8)], rows),
        }
    )


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    table = a_table(0)
    path = tmp_path_factory.mktemp("shared") / "one.parquet"
    table.to_parquet(path)
    return {
        "file": path,
        "lazy": pl.from_pandas(table).lazy(),
        "relation": duckdb.connect().from_df(table),
        "pandas": table,
        "polars": pl.from_pandas(table),
    }


def numbers(report):
    return {name: (np.asarray(answer.value).tolist(), str(answer.raw)) for name, answer in report.items()}


def alone(session, scans):
    """Each scan by itself."""
    return [together.added_up(session, [scan])[0] for scan in scans]


def compared(asks, data, budget, seed, **who):
    """The same plan with shared scans and with one scan for each answer."""
    plan = queries.plan(asks, budget=budget, rows=100, **who)
    found = numbers(plan.run(data, rng=np.random.default_rng(seed)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plans, "added_up", alone)
        return found, numbers(plan.run(data, rng=np.random.default_rng(seed)))


PLANS = st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(CONDITIONS)), min_size=1, max_size=8)


def named(chosen):
    return [Ask(**kind, where=where, name=f"{i}") for i, (kind, where) in enumerate(chosen)]


@pytest.mark.thorough
@settings(max_examples=10, deadline=None)
@given(PLANS, st.sampled_from(["file", "lazy", "relation"]), st.sampled_from([COME, SWAP, PEOPLE]))
def test_shared_scans_change_no_number(sources, chosen, source, budget):
    found, wanted = compared(named(chosen), sources[source], budget, 3, **(EACH if budget is PEOPLE else {}))
    assert found == wanted


@pytest.mark.thorough
@settings(max_examples=15, deadline=None)
@given(
    PLANS,
    st.tuples(st.sampled_from(["file", "lazy", "relation", "pandas", "polars"]), st.sampled_from([COME, SWAP]))
    | st.tuples(st.sampled_from(["pandas", "polars"]), st.just(PEOPLE)),
)
def test_a_plan_gives_the_numbers_of_its_queries_called_one_after_another(sources, chosen, where_and_who):
    """(Persons in an engine's table are drawn for all answers before the first noise.)"""
    (source, budget), asks = where_and_who, named(chosen)
    plan = queries.plan(asks, budget=budget, rows=100, **(EACH if budget is PEOPLE else {}))
    rng, wanted = np.random.default_rng(7), {}
    for need, strength in zip(plan.demands, plan.strengths, strict=True):
        ask, options = need.ask, need.ask.options()
        if not need.by_rank and not need.free:
            options["noise"] = plan.noise
        if budget is PEOPLE:
            taken = ("person", *(("max_groups", "max_per_group") if ask.grouped else ("max_contributions",)))
            options |= {name: EACH[name] for name in taken}
        allowed = budget if need.free else need.allowed(strength, plan.noise)
        column = () if ask.column is None else (ask.column,)
        wanted[ask.name] = getattr(queries, ask.what)(
            sources[source], *column, where=ask.where, budget=allowed, rng=rng, **options
        )
    assert numbers(plan.run(sources[source], rng=np.random.default_rng(7))) == numbers(wanted)


@pytest.mark.parametrize("source", ["pandas", "polars"])
def test_what_is_in_memory_is_read_once_for_all_answers(sources, monkeypatch, source):
    def counted(name, read):
        return lambda data, *what, **how: said.append((name, *map(str, what[:1]))) or read(data, *what, **how)

    said = []
    for name in ("mask", "numbers", "grouped_by", "owners"):
        monkeypatch.setattr(_rows, name, counted(name, getattr(_rows, name)))
    monkeypatch.delattr(pl.DataFrame, "__array__")  # which would copy all of the frame
    asks = named([(kind, where) for kind in KINDS for where in (None, "v0 >= 18")])
    queries.plan(asks, budget=PEOPLE, rows=100, **EACH).run(sources[source])
    # two columns, of all rows and of some; no groups, towns, fewer towns, a cross-table; the persons; one condition
    assert {name: [one for one, *_ in said].count(name) for name in ("mask", "numbers", "owners")} == {
        "mask": 1, "numbers": 4, "owners": 2,
    }  # fmt: skip
    assert len([one for one in said if one == ("grouped_by", "town")]) == 4
    said.clear()
    queries.count(sources[source], where="v0 >= 18", budget=COME)
    queries.count(sources[source], where="v0 >= 18", budget=COME)
    assert len([one for one in said if one[0] == "mask"]) == 2  # outside a plan nothing is kept


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_groups_that_print_alike_are_not_the_same(kind):
    """As floats of 32 bits do beside those of 64, before NumPy 2 or where it is told to print as it did."""
    table = kind({"x": np.full(1000, 0.1, np.float32), "y": np.arange(1000) % 2})
    keys = [[0.1], [np.float32(0.1)], [1, 0], [1.0, 0.0], [True, False]]
    asks = [Ask("count", groups="x" if i < 2 else "y", keys=key, name=f"{i}") for i, key in enumerate(keys)]
    with np.printoptions(legacy="1.25"):
        report = queries.plan(asks, budget=replace(COME, epsilon=10.0)).run(table, rng=np.random.default_rng(0))
    counts = [int(np.asarray(answer.value)[0]) for answer in report.values()]
    assert np.abs(np.array(counts) - [0, 1000, 500, 500, 500]).max() < 100
    assert [list(map(type, answer.keys)) for answer in report.values()] == [list(map(type, key)) for key in keys]


@pytest.mark.thorough
@pytest.mark.parametrize("budget", [COME, SWAP])
def test_every_engine_gives_the_numbers_of_the_same_rows_in_memory(sources, budget):
    asks = named([(kind, where) for kind in KINDS for where in CONDITIONS])
    plan = queries.plan(asks, budget=budget, rows=100)
    found = {source: numbers(plan.run(data, rng=np.random.default_rng(5))) for source, data in sources.items()}
    assert all(one == found["pandas"] for one in found.values())


def test_queries_that_scan_twice_wait_for_each_other(sources):
    """The number of rows, which is public, and then the squares."""
    asks = [Ask("variance", "x", bounds=(0, 50), name="a"), Ask("variance", "v0", bounds=(0, 80), name="b")]
    found, wanted = compared([*asks, Ask("count")], sources["file"], SWAP, 0)
    assert found == wanted
    assert found["count"][0] == 300


def watched(monkeypatch):
    """The statements that add up, as they are asked."""
    said, ask = [], sessions.DuckDB.ask
    monkeypatch.setattr(sessions.DuckDB, "ask", lambda self, query: said.append(query) or ask(self, query))
    return said


def test_there_is_a_scan_for_each_grouping_and_one_for_all_else(sources, monkeypatch):
    asks = [Ask(**kind, where=where, name=f"{i} {where}") for i, kind in enumerate(KINDS) for where in CONDITIONS]
    plan = queries.plan(asks, budget=COME, rows=100)
    said = watched(monkeypatch)
    plan.run(sources["file"])
    # none; town; town among fewer keys; town and w0; bins of x and v0; ranks of x, and of v0 by town
    assert len([query for query in said if "COUNT" in query]) == 8
    said.clear()
    # what is checked of rows whose persons are bounded is checked for all answers at once
    few = [Ask("count", name="all"), Ask("mean", "x", bounds=(0, 100)), Ask("count", groups="town", keys=TOWNS)]
    queries.plan(few, budget=PEOPLE, rows=100, **EACH).run(sources["file"])
    assert len([query for query in said if query.startswith("SELECT COUNT(*) AS a0")]) == 1


@pytest.mark.parametrize("who", [{}, EACH])
def test_an_answer_that_is_refused_spends_nothing_and_leaves_no_thread(sources, who):
    """Its values are missing in rows that another answer is about."""
    table = a_table(1)
    table.loc[table["town"] == "a", "x"] = np.nan
    budget = PEOPLE if who else COME
    good = Ask("mean", "x", bounds=(0, 100), where="not town = a", name="good")
    bad = Ask("mean", "x", bounds=(0, 100), where="town = a", name="bad")
    lazy = pl.from_pandas(table, nan_to_null=False).lazy()
    ledger, before = Ledger(budget), threading.active_count()
    queries.plan([good, Ask("count")], budget=budget, rows=100, **who).run(lazy)
    for data in (lazy, table):
        with pytest.raises(ValueError, match="'bad': column must be finite"):
            queries.plan([good, bad, Ask("count")], budget=budget, ledger=ledger, rows=100, **who).run(data)
    assert not ledger.rows()
    assert threading.active_count() == before


def test_what_fails_only_beside_others_is_asked_alone():
    """An expression may fail on rows that another scan is about."""
    session = sessions.DuckDB()
    rows = "(SELECT UNNEST(['1', '2', 'x']) AS c)"
    number, known = "CAST(c AS BIGINT)", together.Scan(rows, "c <> 'x'", added=("LENGTH(c)",))
    scans = [together.Scan(rows, "c <> 'x'", added=(number,)), known, together.Scan(rows), together.Scan("nothing")]
    found = together.added_up(session, scans)
    assert found[:3] == [[(2, 3)], [(2, 2)], [(3,)]]
    assert isinstance(found[3], ValueError)
    # cells in which a scan has no row are none of its own
    cells = [together.Scan(rows, test, ("c",)) for test in ("c <> 'x'", "c <> '1'", "c IS NULL")]
    assert [sorted(one) for one in together.added_up(session, cells)] == [
        [("1", 1), ("2", 1)], [("2", 1), ("x", 1)], []
    ]  # fmt: skip
    # all of which fail: each has an error of its own
    assert all(isinstance(one, ValueError) for one in together.added_up(session, [together.Scan("nothing")] * 2))


def test_a_text_of_a_condition_is_never_read_as_sql(sources):
    """Signs that once marked what is shared would have made every row a thousand, for all answers of the scan."""
    texts = ["\ue000UNNEST(range(1000))\ue001", "\ue000(UNNEST(range(1000))\ue000)"]
    asks = [Ask("count", where=f"not town = '{text}'", name=str(i)) for i, text in enumerate(texts)]
    plan = queries.plan([Ask("count", where="town = a", name="a"), *asks], budget=COME)
    found, wanted = (numbers(plan.run(sources[it], rng=np.random.default_rng(0))) for it in ("file", "pandas"))
    assert found == wanted


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, MemoryError])
def test_a_run_that_ends_in_its_scans_spends_nothing(sources, monkeypatch, error):
    def broken(self, query):
        if "COUNT" in query:
            raise error("stopped")
        return ask(self, query)

    ask = sessions.DuckDB.ask
    monkeypatch.setattr(sessions.DuckDB, "ask", broken)
    ledger, before = Ledger(COME), threading.active_count()
    with pytest.raises(error):
        queries.plan([Ask("count"), Ask("sum", "x", bounds=(0, 1))], budget=COME, ledger=ledger).run(sources["file"])
    assert not ledger.rows()
    assert threading.active_count() == before


@pytest.mark.parametrize("who", [{}, EACH])
def test_threads_share_a_table(sources, who):
    """DuckDB answers one thread at a time on a connection, and refuses the others."""
    asks = [Ask("mean", "x", bounds=(0, 100), where=f"v0 > {i}", name=f"{i}") for i in range(3)]
    plan = queries.plan(asks, budget=PEOPLE if who else COME, rows=100, **who)
    shared, start = queries.table(sources["file"]), threading.Barrier(4)

    def run(_):
        start.wait()
        return numbers(plan.run(shared, rng=np.random.default_rng(1)))

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(run, range(4)))
    assert found == [numbers(plan.run(sources["file"], rng=np.random.default_rng(1)))] * 4


def test_a_query_that_ends_in_the_middle_of_a_table_keeps_nobody_from_it(sources, monkeypatch):
    def full(*_):
        raise OSError("the disk is full")

    table = queries.table(sources["file"])
    plan = queries.plan([Ask("mean", "x", bounds=(0, 100))], budget=PEOPLE, rows=100, person="id", max_contributions=2)
    with monkeypatch.context() as patch:
        patch.setattr(parts, "open", full, raising=False)
        with pytest.raises(OSError, match="full") as ended:
            plan.run(table)
    with ThreadPoolExecutor(1) as pool:
        assert len(pool.submit(plan.run, table).result(timeout=60)) == 1
    assert ended.traceback  # which is held until here, with all that was open


def test_the_ledger_has_one_row_whatever_is_shared(sources):
    asks = named([(kind, None) for kind in KINDS])
    rows = []
    for source in ("file", "pandas"):
        ledger = Ledger(COME)
        queries.plan(asks, budget=COME, ledger=ledger, rows=100, title="t").run(sources[source])
        (row,) = ledger.rows()
        rows.append((row.label, row.release, row.outcome))
    assert rows[0] == rows[1]
    assert rows[0][2] == "released"

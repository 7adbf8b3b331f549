"""Wrong input to queries: what is said, and that nothing was drawn or spent. And audits that catch broken queries."""

import math
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from tabled import tabled
from watched import WatchedGenerator, refused

from accounting import AdjacencyMismatch, Budget, BudgetExceeded, Ledger, audit, epsilon
from dpkit import queries
from dpkit.queries import _rows
from dpkit.queries import counts_and_sums as totals

ROW = Budget(1.0, 1e-6, adjacency="add_remove")
PERSON = Budget(1.0, 1e-6, adjacency="add_remove", unit="person")
PURE = Budget(1.0, 0.0)
TABLE = {"x": np.arange(6.0), "g": np.array(list("abcabc")), "id": np.array([1, 1, 2, 2, 3, 3])}
BY = {"groups": "g", "keys": list("abc")}


FULL = Budget(1.0, 0.0, adjacency="add_remove")
NAN_PERSONS, TRUE = np.array([1.0, math.nan]), np.ones(2, bool)
EACH, GROUPED = {"person": "id", "budget": PERSON}, {"person": "id", "budget": PERSON, **BY}
MAYBE, KNOWN = [True, None], np.array([True, False])
GONE = {"groups": ["a", None, None], "keys": ["a"], "where": np.array([True, True, False])}
UNIT = {"bounds": (0, 1)}

# what is asked, of what, how (by default with the budget of a row), and the message
WRONG = [
    ("count", (TABLE,), {"groups": "g", "keys": "abc"}, TypeError, r"the text 'abc': write \['abc'\]"),
    ("count", (TABLE,), {"groups": ["g", "id"], "keys": {"g": "abc", "id": [1]}}, TypeError, r"write \['abc'\]"),
    ("count", ({"g": TRUE},), {"groups": "g", "keys": ["True"]}, TypeError, "True and False without quotes, as"),
    ("count", ({"g": MAYBE},), {"groups": "g", "keys": ["True"], "where": KNOWN}, TypeError, "keys must be True and"),
    ("top_k", ([True, False],), {"keys": ["True", "False"]}, TypeError, "keys must be True and False"),
    ("count", ({"g": TRUE},), {"groups": "g", "keys": [True, pd.NA]}, TypeError, "keys must be True and False"),
    ("marginals", ({"g": TRUE},), {"keys": {"g": ["True"]}}, TypeError, "keys must be True and False"),
    ("count", (TABLE,), {"where": "x"}, TypeError, r'where="\(x\)" means the rows that have a value there'),
    ("variance", ([1.0],), {"bounds": (-1e308, 1e307)}, ValueError, r"at most 1e\+150 apart.*count in a larger unit"),
    ("mean", (TABLE, "x"), {}, TypeError, "bounds must be given.*without looking"),
    ("sum", (TABLE, "x"), {"bounds": (5, 0)}, ValueError, "low < high"),
    ("sum", (TABLE, "x"), {"bounds": (0, math.inf)}, ValueError, "finite"),
    ("sum", (TABLE, "x"), {"bounds": 5}, TypeError, r"must be two numbers"),
    ("mean", (TABLE, "x"), {"bounds": ("0", "5")}, ValueError, r"got '0' \(a number goes without quotes\)"),
    ("sum", (TABLE, ["x", "id"]), UNIT, TypeError, r"one column, got \['x', 'id'\]: ask once for each, or .* plan"),
    ("sum", (TABLE, len), UNIT, ValueError, "column must be one column, by its name or as an array, got builtin_func"),
    ("count", (TABLE,), {"budget": None}, TypeError, "budget must be given: what this query may spend"),
    ("count", (TABLE,), {"budget": 1.0}, TypeError, "budget must be a Budget"),
    ("count", (TABLE,), EACH, TypeError, "max_contributions must be given.*how many rows of one person"),
    ("count", (TABLE,), {"budget": PERSON}, TypeError, "give person= too"),
    ("count", (TABLE,), GROUPED | {"max_per_group": 1}, TypeError, "max_groups must be given.*in how many groups"),
    ("count", (TABLE,), GROUPED | {"max_groups": 1}, TypeError, "max_per_group must be given"),
    ("count", (TABLE,), {"person": "id", "max_contributions": 1}, ValueError, r"write Budget\(\.\.\., unit='person'\)"),
    ("count", (TABLE,), {"max_contributions": 3}, ValueError, "must be 1 where the budget counts rows"),
    ("count", (TABLE,), GROUPED | {"max_contributions": 3}, TypeError, "bounded by max_groups and max_per_group"),
    ("count", (TABLE,), EACH | {"max_contributions": 0}, ValueError, "max_contributions must be at least 1"),
    ("mean", (TABLE, "y"), UNIT, ValueError, "must be one of the columns"),
    ("mean", (TABLE,), UNIT, TypeError, "must name a column"),
    ("mean", (TABLE["x"], "x"), UNIT, TypeError, "give an array, or a table"),
    (
        *("mean", ([0.0, 1.0],), {"bounds": (0, 1e-310)}, ValueError),
        r"bounds must be at least 1e-280 apart.*got bounds=\(0, 1e-310\): count in a smaller unit",
    ),
    ("quantile", ([0.0, 1.0],), {"bounds": (0, 1e-300)}, ValueError, "bounds must be at least 1e-280 apart"),
    ("mean", ([1.0, math.nan],), UNIT, ValueError, "1 entries that are NaN.*by where="),
    ("sum", ([math.inf],), UNIT, ValueError, "finite"),
    ("mean", ([1j],), UNIT, TypeError, "real numbers"),
    ("count", (np.ones(3),), GONE, ValueError, "groups must be known for every row that is asked about, got 1 missing"),
    ("histogram", (TABLE, "g"), {"bins": 2, **UNIT}, TypeError, r"counted by count\(groups="),
    ("mean", (TABLE, "g"), UNIT, TypeError, "must hold numbers"),
    ("mean", (np.ma.masked_array([1.0, 2.0], [0, 1]),), UNIT, TypeError, "must not be masked"),
    ("mean", (np.array([1, 2], "m8[s]"),), UNIT, TypeError, "real numbers"),
    ("mean", (np.ones((2, 2)),), UNIT, ValueError, "one column"),
    ("mean", (np.ones(3),), {**UNIT, "where": TRUE}, ValueError, "one entry per row"),
    ("count", (TABLE,), {"where": "x"}, TypeError, "True or False"),
    (
        *("count", (np.ones(2),), {"person": NAN_PERSONS, "max_contributions": 1, "budget": PERSON}, ValueError),
        "person must be known for every row that is asked about, got 1 missing.*by where=",
    ),
    ("count", (TABLE,), {"keys": ["a"]}, TypeError, "give groups= too"),
    ("count", (TABLE,), {"groups": "g", "keys": ["a", "a"]}, ValueError, "keys must be distinct"),
    ("count", (TABLE,), {"groups": "g", "keys": []}, ValueError, "at least one group"),
    ("count", (TABLE,), {"groups": "g", "budget": PURE}, ValueError, "only with budget.delta > 0"),
    ("count", (TABLE,), {"groups": "g", "budget": replace(PURE, delta=5e-324)}, ValueError, "delta must be larger"),
    ("mean", (TABLE, "x"), {**UNIT, "groups": "g"}, TypeError, "keys must list the groups of a mean"),
    (
        *("count", (TABLE,), {"where": TABLE["x"] > 2, "noise": "gaussian", "budget": PURE}, ValueError),
        "Gaussian noise needs budget.delta > 0",
    ),
    ("sum", (TABLE, "x"), {**UNIT, "noise": "normal"}, ValueError, "'laplace' or 'gaussian'"),
    ("quantile", (TABLE, "x"), {**UNIT, "q": 50}, ValueError, r"in \[0, 1\] \(0.5 is the median\)"),
    ("quantile", (TABLE, "x"), {**UNIT, "q": []}, ValueError, "q must be"),
    *(
        ("quantile", (data, "x"), {"bounds": (0, 9), "confidence": 0.9, **how}, ValueError, f"one .*, got {got}: leave")
        for data, how, got in [
            (TABLE, {}, r"Budget\([^)]*add_remove[^)]*\)"),
            (TABLE, {"budget": PURE, "where": "x > 1"}, r"Budget\([^)]*replace[^)]*\) and where="),
            ({"x": np.zeros(0)}, {"budget": PURE}, "no rows"),
        ]
    ),
    ("top_k", (TABLE, "g"), {}, TypeError, "keys must list the candidates"),
    ("top_k", (TABLE, "g", 4), {"keys": list("abc")}, ValueError, "k must be at most the number of keys"),
    ("histogram", (TABLE, "x"), {"bins": [0, 2, 1]}, ValueError, "increasing edges"),
    ("histogram", (TABLE, "x"), {"bins": [0, 1], **UNIT}, TypeError, "leave one of them out"),
    (
        *("sum", (TABLE, "x"), {"bounds": (0, 1e-279), "budget": replace(FULL, epsilon=1e-13)}, ValueError),
        "larger epsilon|must lie in",
    ),
    (
        *("private_bounds", (TABLE, "x"), {"budget": replace(PURE, epsilon=1e-13)}, ValueError),
        "epsilon is too small for noise in 64 bits, got epsilon=5e-14",
    ),
    (
        *("private_bounds", (TABLE, "x"), {"budget": replace(PURE, epsilon=1e300)}, ValueError),
        "epsilon is too large for noise in 64 bits",
    ),
    (
        *("AboveThreshold", (0.0,), {"sensitivity": 1.0, "budget": replace(PURE, epsilon=1e300)}, ValueError),
        "epsilon is too large for noise in 64 bits",
    ),
    ("private_bounds", (TABLE, "x"), {"share": 1.5}, ValueError, "share must"),
    ("count", (TABLE,), {"ledger": Ledger(PERSON)}, ValueError, "budget must count the unit of the ledger, 'person'"),
]


@tabled(("query", "data", "how", "kind", "message"), WRONG)
def test_wrong_input_is_refused_before_anything_is_drawn_or_spent(query, data, how, kind, message):
    with refused(kind, message, how.get("ledger")) as known:
        getattr(queries, query)(*data, **{"budget": ROW} | how | known)


ONCE, ONE = {"person": "id", "max_contributions": 1}, {"person": "id", "max_groups": 1, "max_per_group": 1}
WIDE = {"bounds": (0, 9), **ONCE}
ASKED = {
    "count": lambda **m: queries.count(TABLE, **ONCE, **m),
    "sum": lambda **m: queries.sum(TABLE, "x", **WIDE, **m),
    "mean": lambda **m: queries.mean(TABLE, "x", **WIDE, **m),
    "variance": lambda **m: queries.variance(TABLE, "x", **WIDE, **m),
    "histogram": lambda **m: queries.histogram(TABLE, "x", bins=3, bounds=(0, 9), **ONE, **m),
    "unlisted": lambda **m: queries.count(TABLE, groups="g", **ONE, **m),
    "quantile": lambda **m: queries.quantile(TABLE, "x", q=[0.2, 0.7], **WIDE, **m),
    "top_k": lambda **m: queries.top_k(TABLE, "g", 2, keys=list("abc"), person="id", max_per_group=1, **m),
    "private_bounds": lambda **m: queries.private_bounds(TABLE, "x", **ONCE, **m),
}


@pytest.mark.parametrize("query", ASKED)
@tabled("adjacency", ["add_remove", "replace", "zero_out"])
def test_the_cost_is_recorded_before_noise_is_drawn(query, adjacency):
    budget = Budget(1.0, 1e-6, adjacency=adjacency, unit="person")
    ledger = Ledger(budget)
    rng = WatchedGenerator()
    answer = ASKED[query](budget=budget, ledger=ledger, rng=rng)
    drawn = rng.draws
    assert drawn > 0
    assert [row.release for row in ledger.rows()] == [answer.cost]
    assert epsilon(answer.cost, 1e-6) <= 1.0 + 1e-9
    assert epsilon(answer.cost, 1e-6) > 0.9
    assert ledger.simulation
    # the second one is refused: nothing is drawn and nothing recorded
    with pytest.raises(BudgetExceeded):
        ASKED[query](budget=budget, ledger=ledger, rng=rng)
    assert rng.draws == drawn
    assert len(ledger.rows()) == 1
    other = "replace" if adjacency != "replace" else "add_remove"
    with pytest.raises(AdjacencyMismatch):
        ASKED[query](budget=replace(budget, adjacency=other), ledger=ledger, rng=rng)
    assert rng.draws == drawn


def test_a_ledger_alone_does_not_say_how_much():
    with pytest.raises(TypeError, match="what this query may spend of the ledger's"):
        queries.count(TABLE, ledger=Ledger(ROW))


# ----------------------------------------------------------------------------------------------------- tables


def tables():
    import pyarrow

    yield TABLE
    yield pd.DataFrame(TABLE)
    yield pd.DataFrame(TABLE | {"g": pd.Categorical(list("abcabc"))})
    yield pyarrow.table(TABLE)

    class Stream:
        """A table that only speaks Arrow's protocol."""

        def __arrow_c_stream__(self, requested_schema=None):
            return pyarrow.table(TABLE).__arrow_c_stream__(requested_schema)

        def __len__(self):
            return 6

    yield Stream()


@pytest.mark.parametrize("index", range(5))
def test_tables_of_all_kinds_give_the_same(index):
    table = list(tables())[index]
    exact = Budget(1e5, 0.0, adjacency="add_remove", unit="person")
    answer = queries.sum(table, "x", bounds=(0, 9), person="id", max_groups=2, max_per_group=2, budget=exact, **BY)
    assert np.round(answer.value, 2).tolist() == [3.0, 5.0, 7.0]
    assert answer.query == "sum of x by g"
    assert queries.count(table, person="id", max_contributions=1, budget=exact).value == 3


def test_polars():
    polars = pytest.importorskip("polars")
    exact = Budget(1e5, 0.0, adjacency="add_remove")
    frame = polars.DataFrame({"x": [1.0, 2.0, 3.0], "g": ["a", "b", "a"]})
    assert round(queries.mean(frame, "x", bounds=(0, 4), budget=exact).value, 3) == 2.0
    assert queries.count(frame, groups="g", keys=["a", "b"], budget=exact).value.tolist() == [2, 1]
    with pytest.raises(ValueError, match="NaN"):
        queries.mean(polars.DataFrame({"x": [1, None]}), "x", bounds=(0, 4), budget=exact)


def test_series_with_another_index_are_refused():
    x = pd.Series([1.0, 2.0])
    with pytest.raises(ValueError, match="index of the data"):
        queries.mean(x, bounds=(0, 4), where=pd.Series([True, False], index=[1, 0]), budget=ROW)
    assert queries.mean(x.rename("height"), bounds=(0, 4), budget=ROW).query == "mean of height"


def test_answers_print_and_become_json():
    import json

    answer = queries.count(TABLE, budget=Budget(1e5, 0.0, adjacency="add_remove"), **BY)
    assert "a  2  [2, 2]" in repr(answer)
    assert "ε = 100000 for one row" in repr(answer)
    told = json.loads(json.dumps(answer.to_dict()))
    assert told["value"] == [2, 2, 2]
    assert told["keys"] == ["a", "b", "c"]
    assert told["low"] == [2, 2, 2]
    quantile = queries.quantile(TABLE, "x", bounds=(0, 9), budget=ROW)
    assert "low" not in quantile.to_dict()
    with pytest.raises(ValueError, match=r"rows_off\(0.95\) bounds"):
        quantile.interval()
    of_groups = queries.quantile(TABLE, "x", bounds=(0, 9), budget=ROW, **BY)
    assert 0 < of_groups.rows_off(1 - 2**-53).max() < 1000
    many = queries.count(TABLE, groups="x", keys=range(100), budget=ROW)
    assert "and 80 more" in repr(many)
    assert many.in_words().count("\n") == len(repr(many).splitlines()) - 2 + 80
    for told in (answer.interval, *(getattr(quantile, name) for name in ("in_words", "notes", "to_dict", "to_frame"))):
        with pytest.raises(ValueError, match="confidence must lie in"):
            told(95)


@pytest.mark.parametrize("query", [queries.sum, queries.count])
def test_the_confidence_of_the_noise_is_any_number_in_range(query):
    """A number in an array of no dimension is one, and what is none is refused by name."""
    answer = query([1.0, 2.5], budget=ROW, **(UNIT if query is queries.sum else {}))
    assert answer.noise_interval(np.array(0.95)) == answer.noise_interval(0.95)
    with pytest.raises(TypeError, match="confidence must be a number"):
        answer.noise_interval([0.95])
    with pytest.raises(ValueError, match="confidence must lie in"):
        answer.noise_interval(1)


# ----------------------------------------------------------------------------------------------------- audits


def scored(ask, rows, person=None, runs=100_000):
    """Independent counts of the same rows: as many groups of copies of them."""
    table = {"g": np.repeat(np.arange(runs), rows)}
    more = {}
    if person is not None:
        table["id"] = np.arange(runs * rows) if person == "apart" else np.repeat(np.arange(runs), rows)
        more = {"person": "id", "max_groups": 1, "max_per_group": 1}
    return ask(table, groups="g", keys=range(runs), **more).value.astype(float)


@pytest.mark.parametrize("with_pandas", [True, False])
def test_rows_that_where_leaves_out_may_lack_values_groups_and_persons(with_pandas, monkeypatch):
    if not with_pandas:
        monkeypatch.delitem(sys.modules, "pandas", raising=False)
    known = np.array([True, True, False, True])
    table = {
        "x": np.array([1.0, 3.0, math.nan, 5.0]),
        "g": np.array(["a", "b", None, "b"], object),
        "p": np.array([1.0, 1.0, math.nan, 2.0]),
    }
    much = Budget(1e6, 0.0, adjacency="add_remove", unit="person")
    who = {"where": known, "person": "p", "budget": much}
    each = who | {"max_contributions": 2}
    towns = who | {"groups": "g", "keys": ["a", "b"], "max_groups": 2, "max_per_group": 2}
    assert queries.count(table, **towns).value.tolist() == [1, 2]
    assert queries.sum(table, "x", bounds=(0, 10), **towns).value == pytest.approx([1, 8], abs=1e-3)
    assert queries.mean(table, "x", bounds=(0, 10), **each).value == pytest.approx(3, abs=1e-3)
    assert 3 <= queries.quantile(table, "x", q=0.6, bounds=(0, 10), **each).value <= 5
    assert queries.histogram(table, "x", bins=[0, 2, 10], max_groups=2, max_per_group=2, **who).value.tolist() == [1, 2]
    assert queries.top_k(table, "g", 1, keys=["a", "b"], max_per_group=2, **who).keys == ("b",)
    weighted = queries.mean(table, "x", weights="x", largest_weight=5, bounds=(0, 10), **each)
    assert weighted.value == pytest.approx((1 + 9 + 25) / 9, abs=1e-3)
    some = each | {"person": table["p"], "budget": Budget(1e6, 1e-6, adjacency="add_remove", unit="person")}
    for data, columns in ((table, ["x", "x"]), (np.column_stack([table["x"], table["x"]]), None)):
        mean = queries.mean_vector(data, columns, radius=10.0, **some).value
        assert mean == pytest.approx([3, 3], abs=0.3)
    low, high = queries.private_bounds(table, "x", share=0.9, **each).value
    assert low <= 1
    assert high >= 3


def bound(ask, rows, neighbour, person=None):
    # a sound query is flagged with probability at most 1e-9
    return audit.from_scores(scored(ask, rows, person), scored(ask, neighbour, person), delta=0.0, confidence=1 - 1e-9)


def test_an_audit_finds_the_claim_and_catches_half_the_noise(monkeypatch):
    rng = np.random.default_rng(7)
    budget = Budget(1.0, 0.0, adjacency="add_remove")

    def ask(table, **more):
        return queries.count(table, budget=budget, rng=rng, **more)

    found = bound(ask, 2, 1)
    found.check(epsilon(ask(TABLE, **BY).cost, 0.0))
    assert found.epsilon > 0.8
    sound = totals.with_noise
    monkeypatch.setattr(
        totals, "with_noise", lambda cells, law, rng: cells + (sound(0 * cells, law, rng) / 2).round().astype(int)
    )
    assert bound(ask, 2, 1).contradicts(1.0)


def test_an_audit_catches_a_person_who_is_not_cut(monkeypatch):
    """One person has five rows, and the query claims to use one."""
    rng = np.random.default_rng(7)
    budget = Budget(1.0, 0.0, adjacency="add_remove", unit="person")

    def ask(table, **more):
        return queries.count(table, budget=budget, rng=rng, **more)

    # present with five rows, or with none: the groups exist all the same
    empty = scored(lambda table, **m: ask({k: v[:1] for k, v in table.items()}, **m), 5, "one")[1:]
    cut = audit.from_scores(scored(ask, 5, "one")[1:], empty, delta=0.0, confidence=1 - 1e-9)
    cut.check(1.0)
    assert cut.epsilon > 0.8
    monkeypatch.setattr(_rows, "kept_rows", lambda *_: None)
    loose = audit.from_scores(scored(ask, 5, "one")[1:], empty, delta=0.0, confidence=1 - 1e-9)
    assert loose.contradicts(1.0)
    assert loose.epsilon > 3


def test_nullable_columns_of_pandas_and_texts_in_the_place_of_numbers():
    table = pd.DataFrame(
        {"x": [1, 2, None, 4], "who": ["a", None, "b", "b"], "t": ["1,5", "2", "3", "4"]}
    ).convert_dtypes()
    known = (table["x"].notna() & table["who"].notna()).to_numpy(bool)
    ask = {"budget": Budget(1e6, 0.0, adjacency="add_remove", unit="person"), "person": "who", "max_contributions": 1}
    assert queries.sum(table, "x", bounds=(0, 5), where=known, **ask).value == pytest.approx(5.0, abs=1e-3)
    with pytest.raises(ValueError, match=r"person must be known .* got 1 missing"):
        queries.count(table, **ask)
    rows = Budget(1.0, 0.0, adjacency="add_remove")
    with pytest.raises(ValueError, match="column must be finite, got 1 entries"):
        queries.sum(table, "x", bounds=(0, 5), budget=rows)
    with pytest.raises(
        TypeError, match=r"column must hold numbers, got texts or objects in 't': .*decimal point.*to_numeric"
    ):
        queries.sum(table, "t", bounds=(0, 5), budget=rows)


class Unread(dict):
    """A table that nobody may read."""

    def __getitem__(self, name):
        raise AssertionError(f"{name!r} was read")

    def __len__(self):
        raise AssertionError("the rows were counted")


@tabled(
    ("bounds", "error", "message"),
    [
        (None, TypeError, "bounds must be given: .* that you know .* without looking"),
        ((5, 5), ValueError, r"low < high, \(0, 120\) of ages say, got bounds=\(5, 5\)"),
        ((9, 2), ValueError, "low < high"),
        ((0, math.inf), ValueError, "finite"),
        ((math.nan, 1), ValueError, "finite"),
        ((-1e308, 1e308), ValueError, "the width of bounds must be"),
        ((0, 1e-300), ValueError, "count in a smaller unit"),
        ((0, 1, 2), TypeError, "must be two numbers"),
        (7, TypeError, "must be two numbers"),
        (("a", "b"), ValueError, "bounds must be written like 2026-01-31"),
        ((0, "2026-01-01"), TypeError, "must not be mixed"),
    ],
)
def test_bounds_of_a_quantile_are_refused_before_anything_is_read(tmp_path, bounds, error, message):
    """Nor is a file opened: there is none."""
    for data in (Unread(x=[1.0, 2.0]), str(tmp_path / "none.csv")):
        for query in (queries.quantile, queries.mean):
            with refused(error, message) as watched:
                query(data, "x", bounds=bounds, budget=FULL, **watched)
    with refused(error, message):
        queries.plan([queries.Ask("quantile", "x", q=0.5, bounds=bounds)], budget=FULL)


def test_a_quantile_that_would_sort_a_file_is_refused_before_it_is_read(tmp_path):
    path, ask = str(tmp_path / "none.csv"), queries.Ask("quantile", "x", name="half", q=0.5, bounds=(0, 1))
    with refused(ValueError, "give candidates=, the values that it may take") as watched:
        queries.quantile(path, "x", bounds=(0, 1), budget=FULL, **watched)
    with refused(ValueError, "'half': .*give candidates=") as watched:
        queries.plan([queries.Ask("count"), ask], budget=FULL, ledger=watched["ledger"]).run(path, rng=watched["rng"])

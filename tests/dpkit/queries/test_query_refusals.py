"""Wrong input to queries: what is said, and that nothing was drawn or spent. And audits that catch broken queries."""

import math
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from tabled import tabled
from watched import WatchedGenerator

from accounting import AdjacencyMismatch, Budget, BudgetExceeded, Ledger, audit, epsilon
from dpkit import queries
from dpkit.queries import counts_and_sums as totals

ROW = Budget(1.0, 1e-6, adjacency="add_remove")
PERSON = Budget(1.0, 1e-6, adjacency="add_remove", unit="person")
PURE = Budget(1.0, 0.0)
TABLE = {"x": np.arange(6.0), "g": np.array(list("abcabc")), "id": np.array([1, 1, 2, 2, 3, 3])}
BY = {"groups": "g", "keys": list("abc")}


WRONG = {
    "no bounds": (
        lambda **m: queries.mean(TABLE, "x", budget=ROW, **m),
        TypeError,
        "bounds must be given.*without looking",
    ),
    "bounds in the wrong order": (
        lambda **m: queries.sum(TABLE, "x", bounds=(5, 0), budget=ROW, **m),
        ValueError,
        "low < high",
    ),
    "infinite bounds": (
        lambda **m: queries.sum(TABLE, "x", bounds=(0, math.inf), budget=ROW, **m),
        ValueError,
        "finite",
    ),
    "one bound": (
        lambda **m: queries.sum(TABLE, "x", bounds=5, budget=ROW, **m),
        TypeError,
        r"two numbers \(low, high\)",
    ),
    "no budget": (lambda **m: queries.count(TABLE, **m), TypeError, "budget must be given: what this query may spend"),
    "a number as budget": (lambda **m: queries.count(TABLE, budget=1.0, **m), TypeError, "budget must be a Budget"),
    "no max_contributions": (
        lambda **m: queries.count(TABLE, person="id", budget=PERSON, **m),
        TypeError,
        "max_contributions must be given.*how many rows of one person",
    ),
    "no person": (lambda **m: queries.count(TABLE, budget=PERSON, **m), TypeError, "give person= too"),
    "no max_groups": (
        lambda **m: queries.count(TABLE, person="id", max_per_group=1, budget=PERSON, **BY, **m),
        TypeError,
        "max_groups must be given.*in how many groups",
    ),
    "no max_per_group": (
        lambda **m: queries.count(TABLE, person="id", max_groups=1, budget=PERSON, **BY, **m),
        TypeError,
        "max_per_group must be given",
    ),
    "a person under a row's budget": (
        lambda **m: queries.count(TABLE, person="id", max_contributions=1, budget=ROW, **m),
        ValueError,
        r"write Budget\(\.\.\., unit='person'\)",
    ),
    "several rows under a row's budget": (
        lambda **m: queries.count(TABLE, max_contributions=3, budget=ROW, **m),
        ValueError,
        "must be 1 where the budget counts rows",
    ),
    "the wrong bound for groups": (
        lambda **m: queries.count(TABLE, person="id", max_contributions=3, budget=PERSON, **BY, **m),
        TypeError,
        "bounded by max_groups and max_per_group",
    ),
    "no contributions": (
        lambda **m: queries.count(TABLE, person="id", max_contributions=0, budget=PERSON, **m),
        ValueError,
        "max_contributions must be at least 1",
    ),
    "a column that is not there": (
        lambda **m: queries.mean(TABLE, "y", bounds=(0, 1), budget=ROW, **m),
        ValueError,
        "must be one of the columns",
    ),
    "a table without a column": (
        lambda **m: queries.mean(TABLE, bounds=(0, 1), budget=ROW, **m),
        TypeError,
        "must name a column",
    ),
    "a name without a table": (
        lambda **m: queries.mean(TABLE["x"], "x", bounds=(0, 1), budget=ROW, **m),
        TypeError,
        "give an array, or a table",
    ),
    "bounds without a lattice between them": (
        lambda **m: queries.mean([0.0, 1.0], bounds=(0, 1e-310), budget=ROW, **m),
        ValueError,
        r"bounds must be at least 1e-280 apart.*got bounds=\(0, 1e-310\): count in a smaller unit",
    ),
    "quantiles between such bounds": (
        lambda **m: queries.quantile([0.0, 1.0], bounds=(0, 1e-300), budget=ROW, **m),
        ValueError,
        "bounds must be at least 1e-280 apart",
    ),
    "missing values": (
        lambda **m: queries.mean([1.0, math.nan], bounds=(0, 1), budget=ROW, **m),
        ValueError,
        "1 entries that are NaN.*by where=",
    ),
    "an infinite value": (lambda **m: queries.sum([math.inf], bounds=(0, 1), budget=ROW, **m), ValueError, "finite"),
    "complex values": (lambda **m: queries.mean([1j], bounds=(0, 1), budget=ROW, **m), TypeError, "real numbers"),
    "a missing group among the rows that are asked about": (
        lambda **m: queries.count(
            np.ones(3), groups=["a", None, None], keys=["a"], where=np.array([True, True, False]), budget=ROW, **m
        ),
        ValueError,
        "groups must be known for every row that is asked about, got 1 missing",
    ),
    "a histogram of texts": (
        lambda **m: queries.histogram(TABLE, "g", bins=2, bounds=(0, 1), budget=ROW, **m),
        TypeError,
        r"counted by count\(groups=",
    ),
    "texts as values": (
        lambda **m: queries.mean(TABLE, "g", bounds=(0, 1), budget=ROW, **m),
        TypeError,
        "must hold numbers",
    ),
    "masked values": (
        lambda **m: queries.mean(np.ma.masked_array([1.0, 2.0], [0, 1]), bounds=(0, 1), budget=ROW, **m),
        TypeError,
        "must not be masked",
    ),
    "times as values": (
        lambda **m: queries.mean(np.array([1, 2], "m8[s]"), bounds=(0, 1), budget=ROW, **m),
        TypeError,
        "real numbers",
    ),
    "two columns": (
        lambda **m: queries.mean(np.ones((2, 2)), bounds=(0, 1), budget=ROW, **m),
        ValueError,
        "one column",
    ),
    "unequal lengths": (
        lambda **m: queries.mean(np.ones(3), bounds=(0, 1), where=np.ones(2, bool), budget=ROW, **m),
        ValueError,
        "one entry per row",
    ),
    "a filter of numbers": (lambda **m: queries.count(TABLE, where="x", budget=ROW, **m), TypeError, "True or False"),
    "a missing person": (
        lambda **m: queries.count(
            np.ones(2), person=np.array([1.0, math.nan]), max_contributions=1, budget=PERSON, **m
        ),
        ValueError,
        "person must be known for every row that is asked about, got 1 missing.*by where=",
    ),
    "keys without groups": (
        lambda **m: queries.count(TABLE, keys=["a"], budget=ROW, **m),
        TypeError,
        "give groups= too",
    ),
    "repeated keys": (
        lambda **m: queries.count(TABLE, groups="g", keys=["a", "a"], budget=ROW, **m),
        ValueError,
        "keys must be distinct",
    ),
    "no keys": (
        lambda **m: queries.count(TABLE, groups="g", keys=[], budget=ROW, **m),
        ValueError,
        "at least one group",
    ),
    "unlisted groups at δ = 0": (
        lambda **m: queries.count(TABLE, groups="g", budget=PURE, **m),
        ValueError,
        "only with budget.delta > 0",
    ),
    "means of unlisted groups": (
        lambda **m: queries.mean(TABLE, "x", bounds=(0, 1), groups="g", budget=ROW, **m),
        TypeError,
        "keys must list the groups of a mean",
    ),
    "Gaussian noise at δ = 0": (
        lambda **m: queries.count(TABLE, where=TABLE["x"] > 2, noise="gaussian", budget=PURE, **m),
        ValueError,
        "Gaussian noise needs budget.delta > 0",
    ),
    "a noise that is none": (
        lambda **m: queries.sum(TABLE, "x", bounds=(0, 1), noise="normal", budget=ROW, **m),
        ValueError,
        "'laplace' or 'gaussian'",
    ),
    "a quantile beyond 1": (
        lambda **m: queries.quantile(TABLE, "x", q=50, bounds=(0, 1), budget=ROW, **m),
        ValueError,
        r"in \[0, 1\] \(0.5 is the median\)",
    ),
    "no quantiles": (
        lambda **m: queries.quantile(TABLE, "x", q=[], bounds=(0, 1), budget=ROW, **m),
        ValueError,
        "q must be",
    ),
    "no candidates": (
        lambda **m: queries.top_k(TABLE, "g", budget=ROW, **m),
        TypeError,
        "keys must list the candidates",
    ),
    "too many winners": (
        lambda **m: queries.top_k(TABLE, "g", 4, keys=list("abc"), budget=ROW, **m),
        ValueError,
        "k must be at most the number of keys",
    ),
    "bins out of order": (
        lambda **m: queries.histogram(TABLE, "x", bins=[0, 2, 1], budget=ROW, **m),
        ValueError,
        "increasing edges",
    ),
    "edges and bounds": (
        lambda **m: queries.histogram(TABLE, "x", bins=[0, 1], bounds=(0, 1), budget=ROW, **m),
        TypeError,
        "leave one of them out",
    ),
    "an infinitesimal ε": (
        lambda **m: queries.sum(TABLE, "x", bounds=(0, 1e-279), budget=Budget(1e-13, 0.0, adjacency="add_remove"), **m),
        ValueError,
        "larger epsilon|must lie in",
    ),
    "bounds at an infinitesimal ε": (
        lambda **m: queries.private_bounds(TABLE, "x", budget=Budget(1e-13, 0.0), **m),
        ValueError,
        "epsilon is too small for noise in 64 bits, got epsilon=5e-14",
    ),
    "bounds at an endless ε": (
        lambda **m: queries.private_bounds(TABLE, "x", budget=Budget(1e300, 0.0), **m),
        ValueError,
        "epsilon is too large for noise in 64 bits",
    ),
    "a threshold at an endless ε": (
        lambda **m: queries.AboveThreshold(0.0, sensitivity=1.0, budget=Budget(1e300, 0.0), **m),
        ValueError,
        "epsilon is too large for noise in 64 bits",
    ),
    "a share beyond 1": (
        lambda **m: queries.private_bounds(TABLE, "x", share=1.5, budget=ROW, **m),
        ValueError,
        "share must",
    ),
    "a ledger that counts persons": (
        lambda ledger, **m: queries.count(TABLE, budget=ROW, ledger=Ledger(PERSON), **m),
        ValueError,
        "budget must count the unit of the ledger, 'person'",
    ),
}


@tabled("case", WRONG)
def test_wrong_input_is_refused_before_anything_is_drawn_or_spent(case):
    ask, kind, message = WRONG[case]
    rng, ledger = WatchedGenerator(), Ledger()
    with pytest.raises(kind, match=message):
        ask(rng=rng, ledger=ledger)
    assert rng.draws == 0
    assert len(ledger.rows()) == 0


ASKED = {
    "count": lambda **m: queries.count(TABLE, person="id", max_contributions=1, **m),
    "sum": lambda **m: queries.sum(TABLE, "x", bounds=(0, 9), person="id", max_contributions=1, **m),
    "mean": lambda **m: queries.mean(TABLE, "x", bounds=(0, 9), person="id", max_contributions=1, **m),
    "variance": lambda **m: queries.variance(TABLE, "x", bounds=(0, 9), person="id", max_contributions=1, **m),
    "histogram": lambda **m: queries.histogram(
        TABLE, "x", bins=3, bounds=(0, 9), person="id", max_groups=1, max_per_group=1, **m
    ),
    "unlisted": lambda **m: queries.count(TABLE, groups="g", person="id", max_groups=1, max_per_group=1, **m),
    "quantile": lambda **m: queries.quantile(
        TABLE, "x", q=[0.2, 0.7], bounds=(0, 9), person="id", max_contributions=1, **m
    ),
    "top_k": lambda **m: queries.top_k(TABLE, "g", 2, keys=list("abc"), person="id", max_per_group=1, **m),
    "private_bounds": lambda **m: queries.private_bounds(TABLE, "x", person="id", max_contributions=1, **m),
}


@pytest.mark.parametrize("query", ASKED)
@pytest.mark.parametrize("adjacency", ["add_remove", "replace", "zero_out"])
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
    assert "counts one row" in repr(answer)
    told = json.loads(json.dumps(answer.to_dict()))
    assert told["value"] == [2, 2, 2]
    assert told["keys"] == ["a", "b", "c"]
    assert told["low"] == [2, 2, 2]
    quantile = queries.quantile(TABLE, "x", bounds=(0, 9), budget=ROW)
    assert "low" not in quantile.to_dict()
    with pytest.raises(ValueError, match=r"rows_off\(0.95\) bounds"):
        quantile.interval()
    many = queries.count(TABLE, groups="x", keys=range(100), budget=ROW)
    assert "and 80 more" in repr(many)
    with pytest.raises(ValueError, match="confidence must lie in"):
        answer.interval(95)


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
    monkeypatch.setattr(totals, "kept_rows", lambda *_: None)
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

"""What analysts stumbled over: cross-tables, tests in words, dates, contribution bounds, answers that say nothing."""

import ast
import inspect
import itertools
import json
from dataclasses import replace
from functools import partial

import commands
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tabled import tabled

from accounting import Budget, Ledger
from dpkit import queries
from dpkit.queries._where import parse, passing

run = partial(commands.run, "query")
ROWS = Budget(1e4, 0.0, adjacency="add_remove")
PERSONS = Budget(1e4, 0.0, adjacency="add_remove", unit="person")


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(3)
    n = 400
    return pd.DataFrame(
        {
            "id": rng.integers(0, 60, n),
            "region": rng.choice(["North", "South"], n),
            "sex": rng.choice(["f", "m"], n),
            "paid": rng.integers(0, 100, n),
            "day": pd.Timestamp("2025-01-01") + pd.to_timedelta(rng.integers(0, 365, n), unit="D"),
            "member": rng.random(n) < 0.4,
        }
    )


@pytest.fixture(scope="module", params=["csv", "parquet"])
def file(table, request, tmp_path_factory):
    path = tmp_path_factory.mktemp("stumbles") / f"visits.{request.param}"
    table.to_csv(path, index=False) if request.param == "csv" else table.to_parquet(path)
    return path


# ------------------------------------------------------------------------------------------------------- cross-tables


def test_several_columns_are_a_cross_table(table):
    right = table.groupby(["region", "sex"]).size()
    stated = {"region": ["South", "North", "West"], "sex": ["m", "f"]}
    product = queries.count(table, groups=["region", "sex"], keys=stated, budget=ROWS)
    assert product.keys == tuple(itertools.product(stated["region"], stated["sex"]))
    assert product.value.tolist() == [right.get(key, 0) for key in product.keys]
    cells = [("North", "f"), ("South", "m")]
    listed = queries.count(table, groups=("region", "sex"), keys=cells, budget=ROWS)
    assert dict(zip(listed.keys, listed.value.tolist(), strict=True)) == {key: right[key] for key in cells}
    found = queries.count(
        table,
        groups=["region", "sex"],
        budget=Budget(100.0, 1e-6, adjacency="add_remove"),
        rng=np.random.default_rng(0),
    )
    assert set(found.keys) == set(right.index)
    assert listed.query == "count by region and sex"
    frame = product.to_frame()
    assert list(frame.columns) == ["region", "sex", "value", "low", "high"]
    assert frame.attrs["cost"] == "ε = 10000 for one row, added or removed"
    assert "  North  f  " in repr(listed)
    # arrays cross as well, and one column in a list is that column
    arrays = queries.count(table, groups=[table["region"].to_numpy(), table["sex"]], keys=cells, budget=ROWS)
    assert arrays.value.tolist() == listed.value.tolist()
    assert queries.count(table, groups=["sex"], keys=["f", "m"], budget=ROWS).keys == ("f", "m")


@pytest.mark.parametrize("what", [queries.sum, queries.mean, partial(queries.quantile, q=0.5)])
def test_other_answers_by_several_columns(table, what):
    budget = Budget(1e6, 0.0, adjacency="add_remove")
    answer = what(
        table, "paid", bounds=(0, 100), groups=["region", "sex"], keys={"region": ["North"], "sex": ["m", "f"]},
        budget=budget,
    )  # fmt: skip
    name = {"sum": "sum", "mean": "mean"}.get(getattr(what, "__name__", ""), "median")
    for key, value in zip(answer.keys, answer.value, strict=True):
        rows = table[(table.region == key[0]) & (table.sex == key[1])]
        assert value == pytest.approx(getattr(rows.paid, name)(), abs=3)


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 1)), max_size=30), st.integers(1, 3),
    st.integers(1, 3),
)  # fmt: skip
def test_the_cells_of_one_person_are_bounded(rows, most_groups, most_rows):
    """What is counted of every person is within the bounds that the noise is made for, whatever the columns hold."""
    from dpkit.queries._groups import grouped_by
    from dpkit.queries._units import Share, kept_rows

    person, a, b = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    keys = {"a": [0, 1, 2], "b": [1, 0]}
    coded, names = grouped_by({"a": a, "b": b}, ["a", "b"], keys)
    assert [names[code] for code in coded] == list(zip(a.tolist(), b.tolist(), strict=True))
    share = Share(most_groups, most_rows, "add_remove", False)
    kept = kept_rows(person, coded, share, None, np.random.default_rng(0))
    cells, counted = np.unique(np.stack([person[kept], coded[kept]]), axis=1, return_counts=True)
    assert (counted <= most_rows).all()
    assert (np.bincount(cells[0]) <= most_groups).all()


@tabled(
    ("groups", "keys", "message"),
    [
        (["region", "nowhere"], [("North", 1)], "must be one of the columns"),
        (["region", "region"], [("North", "North")], "name each column once"),
        (["region", "sex"], ["North"], "must be tuples with a value of each"),
        (["region", "sex"], [["North", "f"]], "must be tuples with a value of each"),
        (["region", "sex"], {"region": ["North"]}, "must have the values of each column"),
        (["region", "sex"], {"region": ["North"], "sex": []}, "at least one value of each column"),
        (["region", "sex"], [("North", "f"), ("North", "f")], "must be distinct"),
    ],
)
def test_keys_that_do_not_fit_a_cross_table(groups, keys, message):
    data = {"region": np.array(["North", "South", "North"]), "sex": np.array(["f", "m", "f"])}
    ledger = Ledger(Budget(2.0, 0.0, adjacency="add_remove"))
    with pytest.raises(ValueError, match=message):
        queries.count(data, groups=groups, keys=keys, budget=Budget(1.0, 0.0, adjacency="add_remove"), ledger=ledger)
    assert not ledger.rows()


def test_a_cross_table_from_the_command_line(file, table):
    right = table.groupby(["region", "sex"]).size()
    by = ("--groups", "region", "--groups", "sex")
    keys = [part for one in ("region=North", "region=South", "sex=f") for part in ("--key", one)]
    answer = json.loads(run(file, "--count", *by, *keys, "--epsilon", 1e4, "--json"))
    assert answer["columns"] == ["region", "sex"]
    assert {tuple(k): v for k, v in zip(answer["keys"], answer["value"], strict=True)} == {
        (region, "f"): right[region, "f"] for region in ("North", "South")
    }
    assert json.loads(run(file, "--count", *by, "--key", "North, m", "--epsilon", 1e4, "--json"))["value"] == [
        right["North", "m"]
    ]
    assert "COLUMN=VALUE" in run(file, "--count", *by, "--key", "North", "--epsilon", 1, status=2)
    assert "none of 'sex'" in run(file, "--count", *by, "--key", "region=North", "--epsilon", 1, status=2)


# ------------------------------------------------------------------------------------------------------ tests in words


@tabled(
    ("test", "right"),
    [
        ("region == North", "region == 'North'"),
        ("region = North", "region == 'North'"),
        ("region != 'North' and paid >= 50", "region != 'North' and paid >= 50"),
        ("(region = North or paid < 10) and not sex = f", "(region == 'North' or paid < 10) and sex != 'f'"),
        ("paid in (1, 2, 3.0)", "paid in (1, 2, 3)"),
        ("not sex in (f)", "sex == 'm'"),
        ("sex not in (f, 'x')", "sex == 'm'"),
        ("member = TRUE or paid > 90", "member or paid > 90"),
        ("day >= 2025-07", "day >= '2025-07-01'"),
        ("day = 2025-07-04", "day == '2025-07-04'"),
        ("paid > 10 and paid < 20 or sex=m", "(paid > 10 and paid < 20) or sex == 'm'"),
    ],
)
def test_what_a_test_means(table, test, right):
    wanted = len(table.query(right))
    assert queries.count(table, where=test, budget=ROWS).value == wanted
    written = table.assign(day=table["day"].astype(str))  # dates as texts, as a CSV file has them
    assert queries.count(written, where=test, budget=ROWS).value == wanted


@tabled(
    ("test", "message"),
    [
        ("region => North", "no relation '=>'"),
        ("region ~ North", "no relation '~'"),
        ("region like North", "no relation 'like'"),
        ("region = North or", "a column is missing"),
        ("(region = North", "a parenthesis is not closed"),
        ("region = 'North", "a quote that is not closed"),
        ("region in North", "in needs a list"),
        ("region = North) and", "something is left over"),
        ("region = 5", "got the number 5"),
        ("region = 2025-01-01", "are not like 2026-01-31"),
        ("region > North", "which holds no numbers"),
        ("paid = North", "which holds numbers, with one"),
        ("paid = 2025-01-01", "which holds numbers, with one"),
        ("paid > '5'", "leave the quotes out"),
        ("day > North", "which holds dates, with a date"),
        ("day > 5", "which holds dates, with a date"),
        ("member and paid = 5", "which holds true and false"),
        ("member = yes", "'member' = true"),
        ("nowhere = 5", "must be one of the columns"),
    ],
)
def test_a_test_that_means_nothing_is_refused_before_anything_is_spent(test, message):
    data = pd.DataFrame(
        {"region": ["North"], "paid": [5], "day": pd.to_datetime(["2025-01-01"]), "member": [True]}
    )  # fmt: skip
    ledger = Ledger(Budget(2.0, 0.0, adjacency="add_remove"))
    with pytest.raises(ValueError, match=r"^where must") as refused:
        queries.count(data, where=test, budget=Budget(1.0, 0.0, adjacency="add_remove"), ledger=ledger)
    assert message in str(refused.value)
    assert not ledger.rows()


_VALUES = st.sampled_from([1.0, 2.0, float("nan")])
_TESTS = st.recursive(
    st.sampled_from(["a = 1", "a != 1", "b > 1", "b", "a in (1, 2)"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda t: f"({t[0]}) {t[1]} ({t[2]})"),
        inner.map(lambda test: f"not ({test})"),
    ),
    max_leaves=5,
)


@given(_TESTS, _VALUES, _VALUES)
def test_a_test_has_the_logic_of_sql(test, a, b):
    """Against SQLite, where a missing value is NULL and a column alone IS NOT NULL."""
    import re
    import sqlite3

    columns = {"a": np.array([a]), "b": np.array([b])}
    found = bool(passing(parse(test), columns.__getitem__)[0])
    sql = re.sub(r"(?<![\w])b(?! >)", "b IS NOT NULL", test)
    known = [None if value != value else value for value in (a, b)]
    right = sqlite3.connect(":memory:").execute(f"SELECT {sql} FROM (SELECT ? AS a, ? AS b)", known).fetchone()[0]
    assert found == bool(right)


def test_a_column_of_truth_is_still_named_by_its_name(table):
    assert queries.count(table, where="member", budget=ROWS).value == table.member.sum()


# --------------------------------------------------------------------------------------------------------------- dates


@pytest.mark.parametrize("form", ["datetime64", "texts", "dates"])
def test_dates_in_means_quantiles_and_histograms(table, form):
    days = (
        table["day"] if form == "datetime64" else table["day"].astype(str) if form == "texts" else table["day"].dt.date
    )
    data, bounds = pd.DataFrame({"day": days}), ("2025-01-01", "2026-01-01")
    mean = queries.mean(data, "day", bounds=bounds, budget=ROWS)
    right = table["day"].mean().to_datetime64()
    assert mean.value.dtype == np.dtype("datetime64[s]")
    assert abs(mean.value - right) < np.timedelta64(60, "s")
    low, high = mean.interval(0.95)
    assert low <= mean.value <= high
    median = queries.quantile(data, "day", bounds=bounds, budget=ROWS)
    assert abs(median.value - table["day"].median().to_datetime64()) <= np.timedelta64(3, "D")
    picked = queries.quantile(data, "day", candidates=["2025-01-01", "2025-07-01", "2025-12-31"], budget=ROWS)
    assert picked.value == np.datetime64("2025-07-01")
    half = queries.histogram(data, "day", bins=["2025-01-01", "2025-07-01", "2026-01-01"], budget=ROWS)
    assert half.value.tolist() == [(table["day"] < "2025-07-01").sum(), (table["day"] >= "2025-07-01").sum()]
    assert "2025-01-01  2025-07-01  " in repr(half)
    assert half.to_dict()["keys"][0] == ["2025-01-01", "2025-07-01"]
    assert json.loads(json.dumps(mean.to_dict()))["value"].startswith("2025-0")
    around = queries.private_bounds(data, "day", around="2025-07-01", budget=Budget(50.0, 0.0))
    assert [str(end)[:10] for end in around.value] == ["2024-10-18", "2026-03-14"]


@tabled(
    ("column", "bounds", "message"),
    [
        ("day", (0, 1), "the bounds of dates are dates"),
        ("paid", ("2025-01-01", "2026-01-01"), "column must hold dates"),
        ("day", ("2025-01-01", "2025-13-01"), "got '2025-13-01'"),
        ("day", ("2026-01-01", "2025-01-01"), "low < high"),
        ("day", ("2025-01-01", 5), "must not be mixed"),
        ("said", ("2025-01-01", "2026-01-01"), "column must be written like 2026-01-31"),
        ("zone", ("2025-01-01", "2026-01-01"), "must not have a time zone"),
        ("gap", ("2025-01-01", "2026-01-01"), "NaN"),
    ],
)
def test_dates_that_make_no_sense(column, bounds, message):
    day = pd.to_datetime(["2025-02-03", "2025-02-04"])
    data = pd.DataFrame({"day": day, "paid": [1, 2], "said": ["3.2.2025", "soon"], "zone": day.tz_localize("UTC")})
    data["gap"] = data["day"].where([True, False])
    with pytest.raises((TypeError, ValueError)) as refused:
        queries.mean(data, column, bounds=bounds, budget=ROWS)
    assert message in str(refused.value)
    assert "soon" not in str(refused.value)


def test_groups_by_dates_and_keys_of_another_kind():
    """A key that no label could equal is refused, in place of a count of 0 that is paid for."""
    day, texts = np.array(["2025-01-02", "2025-01-01", "2025-01-02"], "datetime64[D]"), np.array(["a", "b", "b"])
    keys = ["2025-01-02", "2025-01-01"], day[:2].tolist(), day[:2]
    for column, stated in itertools.product(
        (day, day.astype("datetime64[ns]"), day.astype(object), day.astype(str)), keys
    ):
        data = {"day": column, "town": texts}
        assert queries.count(data, groups="day", keys=stated, budget=ROWS).value.tolist() == [2, 1]
        both = queries.count(data, groups=["day", "town"], keys=[(stated[0], "b")], budget=ROWS)
        assert both.value.tolist() == [1]
    ledger = Ledger(Budget(2.0, 0.0, adjacency="add_remove"))
    ask = partial(queries.count, budget=Budget(1.0, 0.0, adjacency="add_remove"), ledger=ledger)
    for column, stated, message in (([1, 2], ["1"], "must be numbers"), (["1", "2"], [1], "must be texts")):
        data = {"g": np.array(column), "h": np.array(["a", "b"])}
        with pytest.raises(TypeError, match=message):
            ask(data, groups="g", keys=stated)
        with pytest.raises(TypeError, match=message):
            ask(data, groups=["h", "g"], keys={"h": ["a"], "g": stated})
    with pytest.raises(ValueError, match="dates that are missing"):
        ask({"g": np.array(["2025-01-02", "NaT"], "datetime64[D]")}, groups="g", keys=["2025-01-02"])
    assert not ledger.rows()


def test_dates_from_the_command_line(file, table):
    year = ("--bounds", "2025-01-01", "2026-01-01", "--epsilon", 1e4)
    mean = json.loads(run(file, "--mean", "day", *year, "--json"))["value"]
    assert abs(np.datetime64(mean) - table["day"].mean().to_datetime64()) < np.timedelta64(60, "s")
    assert "histogram of day" in run(file, "--histogram", "day", "--bins", 12, *year)
    assert "its bounds are dates, too" in run(file, "--mean", "day", "--bounds", 0, 5, "--epsilon", 1, status=2)
    assert "must hold dates" in run(file, "--mean", "paid", *year, status=2)
    assert "a sum of dates means nothing" in run(file, "--sum", "day", *year, status=2)


@tabled(
    ("name", "content", "message"),
    [
        ("empty.csv", b"", "is empty"),
        ("torn.csv", b'a,b\n1,"2\n1,2\n', "cannot be read as a CSV file"),
        ("latin.csv", "a,b\nö,1\n".encode("latin1"), "is no text in UTF-8"),
        ("no.parquet", b"a,b\n1,2\n", "cannot be read as a Parquet file"),
    ],
)
def test_no_raw_message_of_pandas_reaches_a_user(name, content, message, tmp_path_factory):
    path = tmp_path_factory.mktemp("bad") / name
    path.write_bytes(content)
    assert message in " ".join(run(path, "--count", "--where", "a = 1 and b = 2", "--epsilon", 1, status=2).split())


# ------------------------------------------------------------------------------------------------- contribution bounds


def test_an_answer_says_how_much_of_a_person_is_in_it(table):
    bounds = {"person": "id", "max_groups": 2, "max_per_group": 3}
    by = queries.count(table, groups="region", keys=["North", "South"], **bounds, budget=PERSONS)
    assert by.uses == "at most 3 rows of one person in each of at most 2 groups"
    assert f"counts {by.uses}; what was left out for that is not in the intervals" in repr(by)
    assert by.to_dict()["uses"] == by.uses
    assert by.value.sum() < len(table)
    one = queries.mean(table, "paid", bounds=(0, 100), person="id", max_contributions=1, budget=PERSONS)
    assert one.uses == "at most 1 row of one person"
    assert queries.count(table, budget=ROWS).uses == ""


@pytest.mark.parametrize("adjacency", ["add_remove", "replace", "zero_out"])
def test_the_share_that_was_cut(table, adjacency):
    budget = Budget(1e5, 0.0, adjacency=adjacency, unit="person")
    rows = table.groupby("id").size()
    cut = queries.share_cut(table, person="id", max_contributions=3, at_most=1000, budget=budget)
    assert cut.value == pytest.approx(1 - np.minimum(rows, 3).sum() / rows.sum(), abs=0.01)
    low, high = cut.interval(0.95)
    assert low <= cut.value <= high
    # by groups, against what is kept on average
    bounds = {"person": "id", "groups": "region", "keys": ["North", "South"], "max_groups": 1, "max_per_group": 2}
    kept = np.mean([queries.count(table, **bounds, budget=budget).value.sum() for _ in range(30)])
    cut = queries.share_cut(table, **bounds, at_most=1000, budget=budget)
    assert cut.value == pytest.approx(1 - kept / len(table), abs=0.02)  # 30 runs have a deviation of 0.004


def test_a_bound_on_contributions_is_found_privately(table):
    rows = table.groupby("id").size()
    found = queries.contribution_bound(table, person="id", share=0.9, budget=PERSONS)
    assert found.value == int(np.sort(rows)[int(np.ceil(0.9 * rows.size)) - 1])
    assert found.rows_off(0.95) < 1
    per_group = table.groupby(["id", "region"]).size()
    by = {"person": "id", "groups": "region", "keys": ["North", "South"], "budget": PERSONS}
    most = per_group.groupby("id").max()
    assert queries.contribution_bound(table, **by, bound="max_per_group", share=0.5, where="paid >= 0").value == int(
        np.sort(most)[int(np.ceil(0.5 * most.size)) - 1]
    )
    assert queries.contribution_bound(table, **by, bound="max_groups", share=0.9).value == 2
    with pytest.raises(ValueError, match="bound must be 'max_groups' or 'max_per_group' with groups"):
        queries.contribution_bound(table, **by)
    with pytest.raises(TypeError, match="needs person="):
        queries.contribution_bound(table, budget=ROWS)
    with pytest.raises(ValueError, match="at_most must be"):
        queries.share_cut(table, person="id", max_contributions=3, at_most=3, budget=PERSONS)


class _Recorder:
    """In the place of the scan: what it is asked, to the end, and for which sensitivity."""

    def __init__(self, threshold, *, sensitivity, budget, rng):
        assert threshold == 0.0
        self.sensitivity, self.asked = sensitivity, []
        _Recorder.last = self

    def ask(self, value):
        self.asked.append(value)


_OTHERS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), max_size=12)
_ONE = st.lists(st.integers(0, 2), min_size=1, max_size=7)


@settings(max_examples=60)
@given(_OTHERS, _ONE, _ONE, st.floats(0.05, 0.95), st.sampled_from([None, "max_groups", "max_per_group"]))
def test_one_person_moves_every_question_by_no_more_than_the_sensitivity(others, rows, swapped, q, bound):
    """A person more, of any rows; and one in the place of another."""

    def asked(data, adjacency):
        table = {"id": np.array([one for one, _ in data], np.int64), "g": np.array([g for _, g in data], np.int64)}
        by = {} if bound is None else {"groups": "g", "keys": [0, 1, 2], "bound": bound}
        budget = Budget(1.0, 0.0, adjacency=adjacency, unit="person")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("dpkit.queries.contributions.AboveThreshold", _Recorder)
            queries.contribution_bound(table, person="id", share=q, largest=5, budget=budget, **by)
        assert len(_Recorder.last.asked) == 5
        return np.array(_Recorder.last.asked), _Recorder.last.sensitivity

    person, other = [(9, g) for g in rows], [(8, g) for g in swapped]
    for adjacency, here, there in (
        ("add_remove", [*others, *person], others),
        ("zero_out", [*others, *person], others),
        ("replace", [*others, *person], [*others, *other]),
    ):
        (first, sensitivity), (second, _) = asked(here, adjacency), asked(there, adjacency)
        assert np.abs(first - second).max() <= sensitivity + 1e-9


# ------------------------------------------------------------------------------------------------- quantiles by group


def test_quantiles_by_group(table):
    budget = Budget(1e4, 0.0, adjacency="add_remove")
    answer = queries.quantile(
        table, "paid", q=[0.25, 0.75], bounds=(0, 100), groups="region", keys=["South", "North"], budget=budget
    )
    assert answer.columns == ("region", "q")
    assert answer.keys == (("South", 0.25), ("South", 0.75), ("North", 0.25), ("North", 0.75))
    for (region, q), value in zip(answer.keys, answer.value, strict=True):
        assert value == pytest.approx(table[table.region == region].paid.quantile(q), abs=1.5)
    assert answer.rows_off(0.95).shape == (4,)
    one = queries.quantile(
        table, "paid", candidates=range(101), groups="region", keys=["North", "South"], budget=budget
    )
    assert one.value.shape == (2,)
    with pytest.raises(TypeError, match="keys must list the groups of a quantile"):
        queries.quantile(table, "paid", bounds=(0, 100), groups="region", budget=budget)


@pytest.mark.parametrize(("adjacency", "rate"), [("add_remove", "1/6"), ("zero_out", "1/6"), ("replace", "1/12")])
def test_the_rate_of_grouped_quantiles(adjacency, rate):
    """Of the median: 1/(2·k·½) with k = G·m = 6 rows, and half of that where a unit is swapped for one elsewhere."""
    from fractions import Fraction

    from dpkit.queries._ranks import plan
    from dpkit.queries._units import Share

    (step,) = plan([0.5], 1.0, Share(1, 6, adjacency, False), grouped=True)
    assert step.rate == Fraction(rate)


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 9)), max_size=8),
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 9)), min_size=1, max_size=2, unique_by=lambda row: row[0]),
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 9)), min_size=1, max_size=2, unique_by=lambda row: row[0]),
    st.floats(0.01, 0.99),
)
def test_a_person_moves_the_log_of_grouped_quantiles_by_epsilon(rows, person, other, q):
    """The exact laws of both groups' draws on ten candidates: of two groups, one row of a person in each."""
    from dpkit.queries._ranks import part_rate
    from dpkit.queries._units import Share

    def losses(data, c):
        out = []
        for group in (0, 1):
            values = np.array([value for place, value in data if place == group])
            below = np.array([(values < o).sum() for o in range(10)])
            score = -c * np.abs(below - q * values.size)
            out.append(score - np.log(np.exp(score).sum()))
        return out[0][:, None] + out[1]

    for adjacency, neighbour in (("add_remove", rows), ("replace", [*rows, *other])):
        c = float(part_rate(1.0, q, Share(1, 2, adjacency, False)))
        ratio = losses([*rows, *person], c) - losses(neighbour, c)
        assert ratio.max() - ratio.min() <= 1 + 1e-9  # bounded range ε = 1


# -------------------------------------------------------------------------------------------------- answers to look at


def test_answers_are_shown_as_tables_and_plots(table):
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    by = queries.mean(table, "paid", bounds=(0, 100), groups="region", keys=["North", "<b>"], budget=ROWS)
    html = by._repr_html_()
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert "no information" in html
    assert "ε = 10000 for one row" in html
    ax = by.plot()
    assert [text.get_text() for text in ax.get_yticklabels()] == ["North", "<b>"]
    assert by.plot(Figure().add_subplot()).get_title(loc="left") == by.query
    one = queries.count(table, budget=ROWS)
    assert one.to_frame()["value"].tolist() == [len(table)]
    assert "400" in one._repr_html_()
    one.plot()
    winners = queries.top_k(table, "region", 1, keys=["North", "South"], budget=ROWS)
    assert winners.to_frame().columns.tolist() == ["place", "region", "rows_off"]
    assert winners._repr_html_()
    with pytest.raises(ValueError, match="names winners"):
        winners.plot()
    vector = queries.mean_vector(
        table, ["paid", "id"], radius=200, budget=Budget(50.0, 1e-6)
    )  # fmt: skip
    assert vector.to_frame()["column"].tolist() == ["paid", "id"]
    bounds = queries.private_bounds(table, "paid", budget=Budget(50.0, 0.0))
    assert bounds.to_frame()["bound"].tolist() == ["low", "high"]


def test_the_number_of_a_group_is_found_by_its_key(table):
    by = queries.count(table, groups="region", keys=["North", "South"], budget=ROWS)
    assert by["South"] == by.value[1]
    levels = {"groups": "region", "keys": ["North"], "bounds": (0, 100), "q": [0.25, 0.5]}
    quartiles = queries.quantile(table, "paid", **levels, budget=ROWS)
    assert quartiles["North", 0.5] == quartiles.value[1]
    with pytest.raises(KeyError, match=r"'West' is no key of count by region"):
        by["West"]
    with pytest.raises(TypeError, match="not iterable"):
        iter(by)
    with pytest.raises(TypeError, match=r"has no keys: .value is its number"):
        queries.count(table, budget=ROWS)["North"]
    with pytest.raises(TypeError, match=r".keys are the winners"):
        queries.top_k(table, "region", 1, keys=["North", "South"], budget=ROWS)["North"]


def test_a_query_that_pandas_calls_otherwise_is_named():
    with pytest.raises(AttributeError, match=r"no attribute 'median': ask quantile\(data, column, 0.5"):
        _ = queries.median
    with pytest.raises(AttributeError, match=r"no attribute 'kurtosis'$"):
        _ = queries.kurtosis
    assert not hasattr(queries, "std")
    assert queries.Ask("quantile", "paid", bounds=(0, 9)) == queries.Ask("quantile", "paid", q=0.5, bounds=(0, 9))


def test_type_checkers_see_no_name_that_is_not_there():
    # they read no bodies: of a module with a __getattr__, every name passes
    assert not [node for node in ast.parse(inspect.getsource(queries)).body if isinstance(node, ast.FunctionDef)]


def test_the_price_is_said_in_the_words_of_the_budget():
    data = [1.0, 2.0, 3.0]
    free = queries.count(data, budget=Budget(0.5, 0.0))
    assert free.price == "ε = 0 for one row, swapped for another"
    said = queries.mean(data, bounds=(0, 3), budget=Budget(0.5, 1e-6, adjacency="zero_out"))
    assert said.price == "ε = 0.5, δ = 1e-06 for one row, emptied"
    assert "noise_multiplier" not in repr(said)


# ------------------------------------------------------------------------------------------------------------ few rows

_FEW = {
    "mean": ("--mean", "paid", "--bounds", 0, 500),
    "variance": ("--variance", "paid", "--bounds", 0, 500),
    "mean of dates": ("--mean", "day", "--bounds", "2025-01-01", "2026-01-01"),
    "share": ("--share-cut", "--person", "id", "--max-contributions", 3),
}


@pytest.mark.parametrize("asked", _FEW.values(), ids=_FEW)
@pytest.mark.parametrize("rows", [0, 1])
def test_no_rows_and_one_row_say_no_information_alike(asked, rows, tmp_path):
    """At ε = 0.01, where noise of a hundred rows hides the one; an empty file has columns of no kind."""
    path = tmp_path / "few.csv"
    path.write_text("id,paid,day,town\n" + "7,20,2025-03-01,Linz\n" * rows)
    where = ("--where", "town = Linz and paid > 3 and day < 2025-06-01")
    sure = ("--epsilon", 0.01, "--confidence", 1 - 1e-9)
    answers = [json.loads(run(path, *asked, *where, *sure, "--json")) for _ in range(3)]
    assert all(set(answer) == set(answers[0]) for answer in answers)
    assert not any(answer["informative"] for answer in answers)
    assert "no information" in run(path, *asked, *sure)


def test_what_is_said_of_few_rows_is_a_function_of_what_was_released():
    """The same noisy sums of no row and of a hundred are the same answer, word for word."""
    answer = queries.mean(
        [], bounds=(0, 1), budget=Budget(0.1, 0.0, adjacency="add_remove"), rng=np.random.default_rng(1)
    )
    low, high = answer.interval(0.95)
    assert bool(answer.informative()) == (low > 0 or high < 1)
    told = repr(queries.quantile([], bounds=(0, 1), budget=Budget(0.1, 0.0, adjacency="add_remove")))
    assert "of fewer rows than that it says nothing" in told
    full = repr(queries.quantile([0.5] * 1000, bounds=(0, 1), budget=Budget(0.1, 0.0, adjacency="add_remove")))
    assert told.splitlines()[1:] == full.splitlines()[1:]
    empty = queries.count(
        pd.DataFrame({"g": []}),
        groups="g",
        budget=Budget(1.0, 1e-6, adjacency="add_remove"),
        rng=np.random.default_rng(1),
    )
    assert "no group is large enough to be shown" in repr(empty)
    assert len(empty.to_frame()) == 0


@pytest.mark.parametrize(
    "ask",
    [
        lambda table: queries.count(table, person="id", max_contributions=10**27, budget=PERSONS),
        lambda table: queries.count(table, budget=Budget(1e-17, 0.0, adjacency="add_remove")),
        lambda table: queries.sum(
            table, "paid", bounds=(0, 100), person="id", max_contributions=10**17, budget=replace(PERSONS, epsilon=1.0)
        ),
    ],
)
def test_noise_that_is_too_much_to_be_drawn_is_refused_with_its_size(ask, table):
    with pytest.raises(ValueError, match=r"within a factor of 2\*\*40 of the resolution, got 1e\+[12][0-9] steps"):
        ask(table)


def test_more_cells_than_memory_holds_are_refused_before_anything_is_charged(table):
    ledger = Ledger()
    with pytest.raises(ValueError, match="bins must be at most 1000000, got bins=9223372036854775807"):
        queries.histogram(table, "paid", bins=2**63 - 1, bounds=(0, 100), budget=ROWS, ledger=ledger)
    with pytest.raises(ValueError, match="largest must be at most 1000000"):
        queries.contribution_bound(table, person="id", largest=10**11, budget=PERSONS, ledger=ledger)
    with pytest.raises(ValueError, match="bins must be at most 1000000"):
        queries.plan([queries.Ask("histogram", "paid", bounds=(0, 100), bins=10**18)], budget=ROWS)
    assert not ledger.rows()

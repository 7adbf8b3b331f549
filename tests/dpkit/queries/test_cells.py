"""What a cell of a table is read as: of a CSV file by itself, of a frame by its declared type, never by other rows."""

import json
from decimal import Decimal
from functools import partial
from pathlib import Path

import commands
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tabled import tabled

from accounting import Budget
from dpkit import queries
from dpkit.cli.tables import Form, read_columns
from dpkit.queries._columns import chosen
from dpkit.queries._where import parse

SURE = Budget(1e6, 0.0, adjacency="add_remove")
EXACT = partial(queries.count, budget=SURE)
run = partial(commands.run, "query")
_INTEGERS = st.integers(-(10**19), 10**19).map(str)
# which a double cannot tell apart
_NEAR = st.integers(10**18, 10**18 + 3).map(str)
_CELLS = st.one_of(
    st.sampled_from(["", "NA", "J3", "x", "true", "True", "FALSE", "2026-01-31", "1", "007", "3.1", "3.10", "3,5"]),
    st.sampled_from(["1.234", "1.5", "-0", "+5", " 5", "1e3", "1e400", ".5", "5.", "nan", "inf", "0x10", "a b", "ä"]),
    _INTEGERS,
    st.decimals(-1000, 1000, places=2).map(str),
)
_TESTS = [
    "c = 3.1",
    "c != 7",
    "c >= 1000000000000000005",
    "c = '7'",
    "c = x",
    "c != true",
    "c < 2026-02",
    "c in (1, 5)",
]


def counted(file, *asked):
    """At ε = 10⁶, where noise is no more than a row, but for once in e^(10⁶) times."""
    return json.loads(run(file, "--count", *asked, "--epsilon", 1e6, "--json"))["value"]


def written(folder, *lines):
    path = folder / "t.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


# ------------------------------------------------------------------------------------------------------------- frames


FRAMES = {
    "polars": lambda ids: pl.DataFrame({"id": pl.Series(ids, dtype=pl.Int64)}),
    "pandas": lambda ids: pd.DataFrame({"id": pd.array(ids, dtype="Int64")}),
    "pandas of arrow": lambda ids: pd.DataFrame({"id": pd.array(ids, dtype="int64[pyarrow]")}),
    "pyarrow": lambda ids: pa.table({"id": pa.array(ids, pa.int64())}),
}


@pytest.mark.parametrize("made", FRAMES.values(), ids=FRAMES)
@tabled(
    ("test", "right"),
    [
        ("id = 1000000000000000005", 10),
        ("id != 1000000000000000005", 990),
        ("id < 1000000000000000005", 50),
        ("id <= 1000000000000000005.0", 10),  # a float, which is 10¹⁸
        ("id in (1000000000000000005, 1000000000000000006)", 20),
        ("not id = 1000000000000000005", 990),
    ],
)
def test_a_missing_value_changes_no_comparison_of_large_whole_numbers(made, test, right):
    ids = [10**18 + i % 100 for i in range(1000)]
    assert [EXACT(made(rows), where=test).value for rows in (ids, [*ids, None])] == [right, right]
    plan = queries.plan([queries.Ask("count", name="n", where=test)], budget=SURE)
    assert plan.run(made([*ids, None]))["n"].value == right


@pytest.mark.parametrize("made", FRAMES.values(), ids=FRAMES)
def test_a_missing_value_lets_no_number_be_rounded_that_is_refused_without_it(made):
    for ids in ([2**53 + 1], [2**53 + 1, None]):
        with pytest.raises(ValueError, match=r"integers of at most 2\*\*53"):
            queries.sum(made(ids), "id", bounds=(0, 2.0**54), where="id >= 0", budget=SURE)
    for ids in ([2**53], [2**53, None]):
        assert queries.sum(made(ids), "id", bounds=(0, 9), where="id >= 0", budget=SURE).value == 9


def test_a_column_of_uint64_keeps_its_values_beside_a_missing_one():
    frame = pd.DataFrame({"id": pd.array([2**64 - 1, 2**64 - 2, None], dtype="UInt64")})
    assert EXACT(frame, where=f"id = {2**64 - 1}").value == 1


# ---------------------------------------------------------------------------------------------------------- CSV files


class PATH:
    """Where the files of the property tests are."""

    file: Path


@pytest.fixture(scope="module", autouse=True)
def _folder(tmp_path_factory):
    PATH.file = tmp_path_factory.mktemp("cells") / "t.csv"


def _read(cells, form):
    PATH.file.write_text("c;last\n" + "".join(f"{cell};\n" for cell in cells), encoding="utf-8")
    return read_columns(PATH.file, ["c"], form)


def _found(table, test):
    try:
        return chosen(table, parse(test))
    except ValueError:
        return None


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    cells=st.lists(_CELLS, min_size=1, max_size=6),
    more=_CELLS,
    place=st.integers(0, 6),
    form=st.sampled_from([Form(";", ".", None, ()), Form(";", ",", ".", ()), Form(";", ".", ",", ("NA",))]),
)
def test_one_row_more_changes_nothing_that_the_others_are_read_as(cells, more, place, form):
    place = min(place, len(cells))
    before, after = _read(cells, form), _read([*cells[:place], more, *cells[place:]], form)
    one, other = before.cells("c"), after.cells("c")

    def others(values):
        return np.delete(np.asarray(values), place)

    assert one.texts.tolist() == others(other.texts).tolist()
    assert one.labels.tolist() == others(other.labels).tolist()
    assert np.array_equal(one.numbers, others(other.numbers), equal_nan=True)
    assert np.array_equal(one.strange, others(other.strange))
    persons = one.persons, others(other.persons)
    assert np.array_equal(*((codes[:, None] == codes) for codes in persons))
    for test in _TESTS:
        found, also = _found(before, test), _found(after, test)
        # other rows decide at most whether a question is refused
        assert found is None or also is None or np.array_equal(found, others(also))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    cells=st.lists(st.one_of(_INTEGERS, _NEAR, st.decimals(-3, 3, places=1).map(str)), min_size=1, max_size=8),
    number=st.one_of(_INTEGERS, _NEAR, st.decimals(-3, 3, places=1).map(str)),
)
def test_numbers_of_a_csv_file_are_compared_exactly(cells, number):
    table = _read(cells, Form(";", ".", None, ()))
    for relation, right in (("=", Decimal.__eq__), ("<", Decimal.__lt__), (">=", Decimal.__ge__)):
        expected = [right(Decimal(cell), Decimal(number)) for cell in cells]
        assert chosen(table, parse(f"c {relation} {number}")).tolist() == expected


@tabled(
    ("cells", "one_more", "asked", "right"),
    [
        (["3.10"] * 200, "J3", ("--groups", "c", "--key", "3.1"), [0]),
        (["3.10"] * 200, "J3", ("--groups", "c", "--key", "3.10"), [200]),
        (["3"] * 20, "3.5", ("--groups", "c", "--key", "3"), [20]),
        (["00005"] * 10, "x", ("--groups", "c", "--key", "5"), [0]),
        (["1.234"] * 20, "x", ("--thousands", ".", "--decimal", ",", "--groups", "c", "--key", "1234"), [0]),
        ([str(10**18 + i % 100) for i in range(200)], "1.5", ("--where", f"c = {10**18 + 5}"), 2),
        ([str(10**18 + i % 100) for i in range(200)], "", ("--where", f"c = {10**18 + 5}"), 2),
        (["7"] * 20, "x", ("--where", "c = '7'"), 20),
        (["True"] * 5, "maybe", ("--where", "c = true"), 5),
        (["True"] * 5, "maybe", ("--groups", "c", "--key", "true"), [5]),
        ([str(7 + i % 2) for i in range(20)], "x", ("--groups", "c", "--key", "07", "--key", "8"), [0, 10]),
    ],
)
def test_one_cell_decides_the_type_of_no_other(tmp_path_factory, cells, one_more, asked, right):
    folder = tmp_path_factory.mktemp("types")
    for rows in (cells, [*cells, one_more]):
        assert counted(written(folder, "c,d", *(f"{one}," for one in rows)), *asked) == right


def test_persons_are_told_apart_as_they_are_written(tmp_path):
    rows = [*(f"{i % 50}," for i in range(100)), *(f"0000{i % 50}," for i in range(100))]
    person = ("--person", "id", "--max-contributions", 1)
    counts = [counted(written(tmp_path, "id,d", *more), *person) for more in (rows, [*rows, "x,"])]
    assert counts == [100, 101]
    large = [f"{10**18 + i}," for i in range(100)]
    assert counted(written(tmp_path, "id,d", *large, "1.5,"), *person) == 101


def test_one_decimal_makes_no_sum_of_whole_numbers_a_real_one(tmp_path):
    """Else the answer says whether there is a row with a decimal: its noise has another lattice."""
    for rows in (["6", "7"], ["6", "7.5"], ["6", ""], []):
        path = written(tmp_path, "x,d", *(f"{one}," for one in rows))
        asked = ("--sum", "x", "--bounds", 0, 10, "--where", "x", "--epsilon", 0.5, "--json")
        values = [json.loads(run(path, *asked))["value"] for _ in range(3)]
        assert any(value % 1 for value in values)


def test_found_groups_are_texts(tmp_path):
    path = written(tmp_path, "c,d", *["010,"] * 500, *["10,"] * 500)
    told = json.loads(run(path, "--count", "--groups", "c", "--epsilon", 10, "--delta", 1e-6, "--json"))
    assert told["keys"] == ["010", "10"]


def test_keys_of_a_plan_mean_what_a_csv_file_has_written(tmp_path):
    plan = tmp_path / "plan.toml"
    path = written(tmp_path, "year,new", *["2024,True"] * 3, *["2025,false"] * 2)
    keys = "columns.year.keys = [2024, 2025]\ncolumns.new.keys = [true, false]"
    asked = "answers = [{what = 'count', groups = ['year', 'new']}]"
    plan.write_text(f"budget.epsilon = 1e6\n{keys}\n{asked}")
    told = json.loads(commands.run("report", plan, path, "--json"))
    assert [row["value"] for row in told["rows"]] == [3, 0, 0, 2]
    plan.write_text(plan.read_text(encoding="utf-8").replace("[2024, 2025]", "[3.1]"))
    assert "keys of a CSV file must be texts" in commands.run("report", plan, path, status=2).replace("\n", " ")


# ------------------------------------------------------------------------------------------- files that are not tables


@tabled(
    ("lines", "told"),
    [
        (["id,cost", *["1,3,50"] * 5], "row 2: 3 fields"),
        (["id,cost", "1,3", "1,3,50"], "row 3: 3 fields"),
        (["id,cost,town", "1,3,50,Köln"], "row 2: 4 fields"),
        (["id,cost,town", "1,3,Köln", "", "2,5"], "fields: it cannot be read as a CSV file"),
        (["id,v,v", "1,2,3"], "several columns named 'v'"),
        (["id,cost", "1,2", '2,"3', "3,4"], "cannot be read as a CSV file"),
        (["id,cost", "1,2", '2,3"', '3,"4"'], ""),
    ],
)
def test_a_file_that_is_no_table_is_refused_without_its_values(tmp_path_factory, lines, told):
    path = written(tmp_path_factory.mktemp("torn"), *lines)
    shown = run(path, "--count", "--where", "id", "--epsilon", 1, status=2 if told else 0).replace("\n", " ")
    assert told in shown
    assert "Köln" not in shown
    assert "50" not in shown


@pytest.mark.parametrize("suffix", [".csv.gz", ".csv.bz2", ".csv.xz", ".csv.zip", ".csv.zst"])
def test_compressed_files_are_read(tmp_path, suffix):
    path = tmp_path / f"t{suffix}"
    try:
        pd.DataFrame({"a": [1, 2, None], "b": ["x", "y\nz", "ä"]}).to_csv(path, index=False)
    except ImportError:
        pytest.skip("pandas has no compressor for it")
    assert counted(path, "--where", "a >= 1") == 2
    assert counted(path, "--where", "b != x") == 2


def test_marks_that_mean_two_things_are_refused(tmp_path):
    told = run(written(tmp_path, "x,d", "1.5,"), "--count", "--thousands", ".", "--epsilon", 1, status=2)
    assert "--thousands must be another character than decimal" in told

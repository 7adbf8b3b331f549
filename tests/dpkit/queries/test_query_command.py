"""``dpkit query``: answers, refusals, ledgers."""

import gzip
import json
import shutil
from functools import partial
from pathlib import Path

import commands
import numpy as np
import pandas as pd
import pytest
from tabled import tabled

from accounting import Budget, Ledger
from dpkit import queries


@pytest.fixture(scope="module", params=["csv", "parquet"])
def file(request, tmp_path_factory):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "income": rng.integers(0, 150_000, 2000),
            "id": rng.integers(0, 500, 2000),
            "town": rng.choice(["Linz", "Graz"], 2000),
            "age": rng.integers(0, 90, 2000),
        }
    )
    path = tmp_path_factory.mktemp("data") / f"survey.{request.param}"
    frame.to_csv(path, index=False) if request.param == "csv" else frame.to_parquet(path)
    return path


run = partial(commands.run, "query")


def counted(file, *asked):
    """At ε = 10⁶, where noise is no more than a row, but for once in e^(10⁶) times."""
    return json.loads(run(file, "--count", *asked, "--epsilon", 1e6, "--json"))["value"]


def test_a_mean_of_persons(file):
    person = ("--person", "id", "--max-contributions", 2)
    answer = json.loads(run(file, "--mean", "income", "--bounds", 0, 200_000, *person, "--epsilon", 1, "--json"))
    assert answer["query"] == "mean of income"
    assert answer["low"] < answer["value"] < answer["high"]
    assert 60_000 < answer["value"] < 90_000
    told = {name: answer[name] for name in ("unit", "adjacency", "epsilon", "delta")}
    assert told == {"unit": "person", "adjacency": "add_remove", "epsilon": 1.0, "delta": 0.0}


@pytest.mark.parametrize(
    "asked",
    [
        ["--count"],
        ["--count", "--groups", "town", "--key", "Linz", "--key", "Graz"],
        ["--count", "--groups", "town", "--delta", "1e-6"],
        ["--count", "--groups", "age", "--key", "20", "--key", "21"],
        ["--sum", "income", "--bounds", "-10", "200000"],
        ["--variance", "age", "--bounds", "0", "120"],
        ["--histogram", "age", "--bins", "30", "--bounds", "0", "120"],
        ["--quantile", "age", "-q", "0.25", "-q", "0.5", "--bounds", "0", "120"],
        ["--quantile", "age", "--bounds", "0", "120"],
        ["--top", "town", "-k", "1", "--key", "Linz", "--key", "Graz"],
    ],
    ids=" ".join,
)
def test_every_query_can_be_asked(file, asked):
    told = run(file, *asked, "--epsilon", 1)
    assert "costs" in told
    answer = json.loads(run(file, *asked, "--epsilon", 1, "--json"))
    assert answer["epsilon"] == 1.0
    # a line for every number
    assert told.count("\n") > np.size(answer["value"])


@tabled(
    ("asked", "message"),
    [
        ([], "ask for one of"),
        (["--count", "--mean", "age"], "ask for one of"),
        (["--mean", "age"], "bounds must be given"),
        (["--mean", "height", "--bounds", "0", "1"], "no column 'height' (named by --mean); its columns are income"),
        (["--mean", "income", "--bounds", "0", "1", "--person", "id"], "--max-contributions must be given"),
        (["--histogram", "age", "--groups", "town"], "--groups cannot be combined with --histogram"),
        (["--count", "--groups", "town"], "--delta > 0"),
        (["--mean", "town", "--bounds", "0", "1"], "2,000 of its 2,000 values are none"),
        (["--count", "--ledger", "nowhere.ledger"], "there is no ledger"),
        (["--median", "age", "--bounds", 0, 100], "say --quantile COLUMN"),
        (["--count", "--group-by", "town"], "say --groups COLUMN"),
        (["--mean", "age", "--bounds", "0,100"], "--bounds 0 300"),
    ],
)
def test_refusals_name_the_way_out(file, asked, message):
    assert message in run(file, *asked, "--epsilon", 1, status=2).replace("\n", " ")


def test_a_key_that_no_column_of_numbers_holds_is_refused_where_a_file_declares_them(file):
    asked = (file, "--count", "--groups", "age", "--key", "old", "--epsilon", 1)
    if file.suffix == ".csv":
        assert "old" in run(*asked)
    else:
        assert "--key must be a number" in run(*asked, status=2)


def test_a_file_that_is_not_there(tmp_path):
    assert "there is no file" in run(tmp_path / "no.csv", "--count", "--epsilon", 1, status=2)


def test_a_ledger_gives_its_terms_and_refuses_what_passes_them(file, tmp_path):
    path = tmp_path / "survey.ledger"
    Ledger.create(path, Budget(1.5, 1e-6, adjacency="replace", unit="person")).close()
    asked = [file, "--sum", "age", "--bounds", 0, 120, "--person", "id", "--max-contributions", 1, "--ledger", path]
    answer = json.loads(run(*asked, "--epsilon", 0.5, "--delta", 0, "--json"))
    assert (answer["unit"], answer["adjacency"]) == ("person", "replace")
    assert "the ledger, 'person'" in run(*asked, "--epsilon", 0.5, "--unit", "row", status=2)
    assert "--confidence must lie in (0, 1)" in run(*asked, "--epsilon", 0.5, "--confidence", 95, status=2)
    refused = run(*asked, "-e", 2.9999999, status=2)
    # a column of CSV declares no whole numbers, and is added up in smaller steps
    law = "DiscreteLaplace(0.333333, shift=120" if file.suffix == ".parquet" else "Laplace(0.333333"
    assert f"asks for {law}, adjacency='replace') (ε at δ=1e-06: 3 alone)" in refused
    with Ledger.open(path) as ledger:
        assert [row.label for row in ledger.rows()] == ["queries.sum of age"]
        assert not ledger.simulation


def test_of_a_ledger_and_its_copy_only_one_is_spent_from_by_its_witness(tmp_path):
    path, ledger, copy, witness = (tmp_path / name for name in ("a.csv", "a.ledger", "b.ledger", "witness"))
    path.write_text("age\n" + "40\n" * 50)
    Ledger.create(ledger, Budget(1.5, 0.0, adjacency="add_remove"), witness=witness).close()
    shutil.copy(ledger, copy)
    asked, known = (path, "--count", "--epsilon", 1, "--ledger"), ("--witness", witness)
    plan = tmp_path / "plan.toml"
    plan.write_text("budget = {epsilon = 1.0, delta = 0.0}\nanswers = [{what = 'count'}]")
    for told in (run(*asked, ledger, status=2), commands.run("report", plan, path, "--ledger", copy, status=2)):
        assert "--witness of a command" in told.replace("\n", " ")
    assert "costs" in run(*asked, ledger, *known)
    assert "older copy was put in its place" in run(*asked, copy, *known, status=2).replace("\n", " ")
    for other in (("report", plan, "--ledger", copy), ("ledger", "list", copy)):
        assert "older copy" in commands.run(*other, *known, status=2).replace("\n", " ")
    assert "older copy" in commands.run("audit", copy, *known, status=1).replace("\n", " ")
    assert "give --ledger, too" in run(*asked[:-1], *known, status=2)


def test_a_file_lacks_the_same_values_by_the_command_as_by_the_library(tmp_path):
    """Those of empty cells, and no others: "NA" and "None" are texts."""
    path, one = tmp_path / "gaps.csv", tmp_path / "one.csv"
    path.write_text('town,age\nNA,1\nNone,\nnull,3\n"",4\n')
    one.write_text("age\n40\n\n41\n")
    sure = Budget(1e6, 0.0, adjacency="add_remove")
    for test, right in {"town in (NA, None)": 2, "'town' and 'age'": 2}.items():
        assert counted(path, "--where", test) == right == queries.count(path, where=test, budget=sure).value
    assert counted(path, "--where", "'town'", "--missing", "NA", "--missing", "None") == 1
    assert counted(one) == 3 == queries.count(one, budget=sure).value


def test_keys_of_a_column_of_truth_are_read_in_any_case(tmp_path):
    path = tmp_path / "flags.csv"
    path.write_text("flag,town\n" + "True,Linz\n" * 3 + "False,Linz\n" * 2)
    assert counted(path, "--groups", "flag", "--key", "True", "--key", "FALSE") == [3, 2]
    crossed = ("--groups", "flag", "--groups", "town", "--key")
    assert counted(path, *crossed, "True,Linz", "--key", "false,Linz") == [3, 2]
    declared = tmp_path / "flags.parquet"
    pd.read_csv(path).to_parquet(declared)
    assert counted(declared, *crossed, "True,Linz", "--key", "false,Linz") == [3, 2]
    told = run(declared, "--top", "flag", "--key", "yes", "--key", "true", "--epsilon", 1, status=2)
    assert "--key must be true or false, as the column 'flag' is, got 'yes'" in told.replace("\n", " ")


def test_the_help_says_how():
    told = run("--help")
    for word in ("--max-contributions", "--bounds", "Parquet", "survey.csv"):
        assert word in told


def test_a_histogram_of_persons_says_how_they_are_bounded(file):
    bounded = ("--histogram", "income", "--bounds", 0, 1000, "--person", "id", "--max-contributions", 1)
    assert "give --max-groups and --max-per-group" in run(file, *bounded, "--epsilon", 1, status=2)


@pytest.mark.parametrize(
    ("tests", "right"),
    [
        (["age >= 30"], lambda f: f.age >= 30),
        (["age<30", "town = Linz"], lambda f: (f.age < 30) & (f.town == "Linz")),
        (["town != Linz"], lambda f: f.town != "Linz"),
        (["age = 30.5"], lambda f: f.age == 30.5),
        (["age > 20", "age <= 40"], lambda f: (f.age > 20) & (f.age <= 40)),
    ],
)
def test_rows_can_be_chosen(file, tests, right):
    frame = pd.read_csv(file) if file.suffix == ".csv" else pd.read_parquet(file)
    assert counted(file, *(part for test in tests for part in ("--where", test))) == int(right(frame).sum())


def test_a_row_without_the_value_never_passes(tmp_path):
    path = tmp_path / "few.csv"
    path.write_text("age,town,new\n20,Linz,True\n,Graz,False\n40,,True\n")
    right = {"age != 20": 1, "town != Graz": 1, "age >= 0": 2, "new = True": 2, "age": 2, "town": 2}
    assert {test: counted(path, "--where", test) for test in right} == right


@tabled(
    ("test", "message"),
    [
        ("", "--where must be a test, and a test is a column, one of"),
        ("height > 1", "the file has no column 'height'"),
        ("age > tall", "got > tall | which holds numbers, with one, got 'tall'"),
        ("town > Linz", "must ask for = or != of 'town'"),
    ],
)
def test_tests_that_make_no_sense(file, test, message):
    told = " ".join(run(file, "--count", "--where", test, "--epsilon", 1, status=2).split())
    assert message.split(" | ")[-1 if file.suffix == ".parquet" else 0] in told


def test_dates_have_an_order_and_a_missing_value_a_way_out(tmp_path):
    path = tmp_path / "days.csv"
    path.write_text("day,age\n2026-01-31,20\n2026-02-01,\n2026-03-01,30\n")
    right = {"day < 2026-02-01": 1, "day >= 2026-02": 2}
    assert {test: counted(path, "--where", test) for test in right} == right
    asked = (path, "--mean", "age", "--bounds", 0, 90, "--epsilon", 1e6)
    assert "by --where age" in run(*asked, status=2)
    # noise of 0.01 comes once in e^100 times
    answer = json.loads(run(*asked, "--where", "age", "--json"))
    assert (answer["query"], answer["value"]) == ("mean of age", pytest.approx(25, abs=0.01))


def test_a_file_with_semicolons_and_decimal_commas(tmp_path):
    file = tmp_path / "orders.csv"
    amounts = ["1.250,50", "20,25", "", "unknown"] * 25
    file.write_text("id;amount;day\n" + "".join(f"{i};{a};31.01.2026\n" for i, a in enumerate(amounts)))
    mean = ["--mean", "amount", "--bounds", 0, 2000, "--where", "amount", "--epsilon", 1e6]
    assert "say --separator ';'" in run(file, *mean, status=2)
    semicolons = ["--separator", ";"]
    told = run(file, *semicolons, *mean, status=2).replace("\n", " ")
    assert "'amount' must hold numbers" in told
    assert "reads decimal commas" in told
    assert "1.250" not in told
    european = [*semicolons, "--decimal", ",", "--thousands", "."]
    told = run(file, *european, *mean, status=2).replace("\n", " ")
    assert "25 of its 75 values are none" in told
    assert "--missing TEXT" in told
    answer = json.loads(run(file, *european, "--missing", "unknown", *mean, "--json"))
    assert answer["value"] == pytest.approx((1250.5 + 20.25) / 2, abs=0.1)


def test_dates_that_would_be_compared_as_texts_are_refused(tmp_path):
    file = tmp_path / "days.csv"
    file.write_text("day\n2026-01-31\n31.01.2026\n\n2026-02\n")
    told = run(file, "--count", "--where", "day >= 2026-01-01", "--epsilon", 1e6, status=2).replace("\n", " ")
    assert "1 of the 3 values of 'day' are not like 2026-01-31" in told
    assert "count: 1," in run(file, "--count", "--where", "day = 31.01.2026", "--epsilon", 1e6)


def test_one_text_far_down_leaves_one_kind_of_label(tmp_path):
    file = tmp_path / "items.csv"
    file.write_text("items,note\n" + "1,\n" * 300_000 + "5+,\n" + "1,\n" * 100)
    assert counted(file, "--groups", "items", "--key", "1", "--key", "5+") == [300_100, 1]


def test_an_answer_is_settled_and_counts_by_groups_fit_beside_each_other(file, tmp_path):
    place = tmp_path / "l.ledger"
    Ledger.create(place, Budget(3.0, 1e-6, adjacency="add_remove")).close()
    for groups in ("town", "age"):
        run(file, "--count", "--groups", groups, "--epsilon", 0.5, "--ledger", place)
    with Ledger.open(place) as ledger:
        assert [row.outcome for row in ledger.rows()] == ["released", "released"]
        ledger.verify()
    # all of a ledger's δ in one count leaves none for another, and the refusal says so
    Ledger.create(tmp_path / "other.ledger", Budget(3.0, 1e-6, adjacency="add_remove")).close()
    count = ["--count", "--groups", "town", "--delta", 1e-6, "--epsilon", 0.5, "--ledger", tmp_path / "other.ledger"]
    run(file, *count)
    assert "ask for less δ there" in run(file, *count, status=2).replace("\n", " ")


def test_winners_are_shown_in_order_and_not_as_places(file):
    told = run(file, "--top", "town", "-k", 2, "--key", "nowhere", "--key", "Linz", "--key", "Graz", "--epsilon", 1e3)
    assert {line.strip() for line in told.splitlines()[1:3]} in ({"1. Linz", "2. Graz"}, {"1. Graz", "2. Linz"})


def test_the_guide_names_five_mistakes():
    """(Its examples run in tests/test_documents.py.)"""
    guide = Path(__file__).resolve().parents[3] / "docs" / "mistakes-with-tables.md"
    assert guide.read_text(encoding="utf-8").partition("## Rows that")[0].count("\n## ") == 5


@tabled(
    ("asked", "told"),
    [
        (["--mean", "age", "--mean", "paid", "--bounds", "0", "9"], "--mean is given more than once: ask for one"),
        (["--mean", "age", "--bounds", "0", "9", "--bounds", "0", "5"], "--bounds is given more than once"),
    ],
)
def test_what_is_given_twice_and_meant_once_is_refused(tmp_path_factory, asked, told):
    path = tmp_path_factory.mktemp("twice") / "t.csv"
    path.write_text("age,paid\n1,2\n")
    shown = " ".join(run(path, *asked, "--epsilon", 1, status=2).replace("│", " ").split())
    assert told in shown


def test_an_export_of_a_ledger_is_not_spent_from(file, tmp_path):
    (tmp_path / "w.json").write_text(Ledger(Budget(1.0, 0.0, adjacency="add_remove")).to_json())
    shown = run(file, "--count", "--epsilon", 1, "--ledger", tmp_path / "w.json", status=2)
    assert "is an export, which is read only" in shown.replace("\n", " ")


@tabled(
    ("where", "told"),
    [
        ("flag = true", "which holds numbers, with one, got true"),
        ("flag != true", "which holds numbers, with one, got true"),
        ("paid = seven", "which holds numbers, with one, got 'seven'"),
        ("new = maybe", "which holds true and false, with one of them, got 'maybe'"),
        ("paid > 1e-99999999999999999999999", "a number of a shorter exponent"),
    ],
)
def test_a_value_that_no_cell_can_be_is_refused_before_anything_is_spent(tmp_path_factory, where, told):
    path = tmp_path_factory.mktemp("kinds") / "t.csv"
    path.write_text("flag,new,zip,paid\n0,true,1010,3.5\n1,false,01010,4\n1,true,1010,7\n")
    assert told in " ".join(run(path, "--count", "--where", where, "--epsilon", 1, status=2).split())
    assert counted(path, "--where", "zip = '1010'") == 2
    assert counted(path, "--where", "zip = 1010") == 3
    assert counted(path, "--where", "new = true") == 2
    asked = ("--mean", "new", "--bounds", 0, 1, "--epsilon", 1e6, "--json")
    assert json.loads(run(path, *asked))["value"] == pytest.approx(2 / 3, abs=1e-3)


def test_files_that_are_written_oddly_are_read_or_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("id,amount")  # no rows, and no line end
    assert counted(path) == 0
    path.write_bytes(b'a,b\r1,"x\r2,y\r3,z\r')
    assert "as many fields as the first line" in " ".join(run(path, "--count", "--epsilon", 1, status=2).split())
    path.write_bytes(b"a,n,b\n1,\xe9,2\n2,x,3\n")  # a text that nobody asks for is not in UTF-8
    assert counted(path, "--where", "a = 1") == 1
    path.write_bytes(b"gr\xf6,n\n1,2\n")
    assert "no text in UTF-8" in " ".join(run(path, "--count", "--epsilon", 1, status=2).split())
    path.write_text("a\n0\n0e99999999999999999999\n")
    assert "1 of the 2 values" in " ".join(run(path, "--count", "--where", "a = 0", "--epsilon", 1, status=2).split())
    with gzip.open(tmp_path / "v.CSV.GZ", "wb") as file:
        file.write(b"a\n1\n2\n")
    assert counted(tmp_path / "v.CSV.GZ") == 2

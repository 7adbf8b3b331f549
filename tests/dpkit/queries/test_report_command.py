"""``dpkit report``, its plans in TOML, and ``dpkit query --sql``."""

import csv
import json
from functools import partial

import commands
import numpy as np
import pandas as pd
import pytest
from tabled import tabled

from accounting import Budget, Ledger
from dpkit.cli.options import paid_for
from dpkit.queries import Report
from dpkit.queries.reports.plan_files import read_plan

PLAN = """
title = "Visits in October"
person = "id"
max_contributions = 4
max_groups = 2
max_per_group = 2
rows = 2000

[budget]
epsilon = 1.0
delta = 1e-6
unit = "person"

[columns]
paid.bounds = [0, 400]
town.keys = ["Graz", "Linz"]
sex.keys = ["f", "m"]

[[answers]]
what = "mean"
column = "paid"
groups = ["town", "sex"]

[[answers]]
what = "histogram"
column = "paid"
bins = [0, 50, 100, 400]
within = 200

[[answers]]
what = "count"
name = "expensive"
where = "paid >= 100 and town = Graz"
"""
run = partial(commands.run, "report")


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "id": rng.integers(0, 700, 2000),
            "town": rng.choice(["Graz", "Linz"], 2000),
            "sex": rng.choice(["f", "m"], 2000),
            "paid": rng.gamma(2.0, 40.0, 2000).round(2),
        }
    )
    frame.to_csv(tmp_path / "visits.csv", index=False)
    frame.to_parquet(tmp_path / "visits.parquet")
    (tmp_path / "visits.toml").write_text(PLAN, encoding="utf-8")
    return tmp_path


def test_a_plan_is_shown_and_nothing_is_spent(files):
    ledger = files / "team.ledger"
    Ledger.create(ledger, Budget(2.0, 1e-6, adjacency="add_remove", unit="person")).close()
    for more in ([], [files / "visits.csv", "--dry-run"]):
        told = run(files / "visits.toml", *more, "--ledger", ledger)
        assert "Visits in October: 3 answers for ε = 1 at δ = 1e-06" in told
        assert "mean of paid by town, sex" in told
    with Ledger.open(ledger) as opened:
        assert not opened.rows()


@pytest.mark.parametrize("name", ["visits.csv", "visits.parquet"])
def test_a_report_is_written_in_every_form(files, name):
    ledger = files / "team.ledger"
    Ledger.create(ledger, Budget(2.0, 1e-6, adjacency="add_remove", unit="person")).close()
    page, table = files / "page.html", files / "table.csv"
    told = json.loads(
        run(files / "visits.toml", files / name, "--html", page, "--csv", table, "--json", "--ledger", ledger)
    )
    assert told["epsilon"] == pytest.approx(1.0, rel=1e-4)
    assert len(told["rows"]) == 4 + 3 + 1
    assert "Visits in October" in page.read_text(encoding="utf-8")
    assert len(table.read_text(encoding="utf-8").splitlines()) == 9
    with Ledger.open(ledger) as opened:
        (row,) = opened.rows()
    assert row.label == "queries.plan: Visits in October, 3 answers"


def test_no_answer_is_paid_for_and_lost_for_want_of_a_file(files, monkeypatch):
    ledger, link = files / "team.ledger", files / "link.csv"
    Ledger.create(ledger, Budget(2.0, 1e-6, adjacency="add_remove", unit="person")).close()
    link.symlink_to(files / "new.csv")
    asked = (files / "visits.toml", files / "visits.csv", "--ledger", ledger)
    places = {"html": [files / "no" / "x.html", files], "csv": [ledger, files / "visits.csv", files / "t.csv" / "x"]}
    for option, refused in places.items():
        for place in refused:
            assert f"--{option} must be a file" in run(*asked, f"--{option}", place, status=2)
    assert "of its own" in run(*asked, "--csv", link, "--html", files / "new.csv", status=2)
    with Ledger.open(ledger) as opened:
        assert not opened.rows()
    assert link.is_symlink()
    assert not (files / "new.csv").exists()

    monkeypatch.setattr(Report, "to_html", lambda *_: (files / "no" / "x.html").write_text(""))
    told = run(*asked, "--csv", link, "--html", files / "page.html", status=2)
    assert "page.html could not be written" in told
    # both say of which rows the answers are
    lines = {row["answer"]: row["counts"] for row in csv.DictReader(link.read_text(encoding="utf-8").splitlines())}
    where, uses = "only rows where paid >= 100 and town = Graz", "counts at most 4 rows of one person"
    assert lines["expensive"] == f"{where}; {uses}"
    for shown in (
        f"expensive: {where}\n",
        f"expensive: {uses}\n",
        "by these bounds on one person is not in the intervals",
    ):
        assert shown in told


def test_what_cannot_be_printed_goes_to_the_errors(capsys):
    with pytest.raises(OSError, match="full"), paid_for(lambda: "expensive 42"):
        raise OSError("the disk is full")
    assert "expensive 42" in capsys.readouterr().err


def test_a_select_is_a_plan(files):
    pytest.importorskip("sqlglot", reason="the extra 'tables' is not installed")
    sql = "SELECT town, COUNT(*) AS n, AVG(paid) FROM visits WHERE paid < 300 GROUP BY town"
    public = ("--columns", files / "visits.toml")
    told = json.loads(
        commands.run("query", files / "visits.csv", "--sql", sql, *public, "--epsilon", 2, "--delta", 0, "--json")
    )
    assert [row["key"] for row in told["rows"]] == ["Graz", "Linz", "Graz", "Linz"]
    assert (told["epsilon"], told["delta"]) == (pytest.approx(2.0), 0.0)
    shown = commands.run("query", files / "visits.csv", f"--sql={sql}", *public, "--dry-run")
    assert "2 answers for ε = 1 at" in shown
    refused = commands.run("query", files / "visits.csv", "--sql", "SELECT MAX(paid) FROM v", *public, status=2)
    assert "MAX(paid) cannot be bounded" in refused
    # and without --sql it is the command that it was
    assert "count" in commands.run("query", files / "visits.csv", "--count", "--epsilon", 1)


@tabled(
    ("text", "told"),
    [
        ("[budget", "cannot be read as TOML"),
        ("epsilon = 1", "it has 'epsilon', which is none of budget, columns, answers, title"),
        ("budget.eps = 1", "budget has 'eps'"),
        ("budget = 3", "budget must be a table"),
        ("columns.paid.range = [0, 1]", "columns.paid has 'range'"),
        ("answers = [{column = 'paid'}]", "answers, number 1 must say what is asked"),
        ("answers = [{what = 'count', colour = 1}]", "answers, number 1 has 'colour'"),
        ("answers = [{what = 'count', groups = 'town'}]", "answers, number 1 groups by 'town': say its keys"),
        ("answers = [{what = 'count'}]", "budget must say the epsilon"),
        ("budget.epsilon = 1.0", "asks must be a sequence of Ask, at least one"),
        ("budget.epsilon = 1.0\nanswers = [{what = 'mean', column = 'x'}]", "'mean of x': bounds must be given"),
        (
            "budget.epsilon = 1.0\nanswers = [{what = 'count', within = 1}, {what = 'count', name = 'b', within = 1}]",
            "all of them fit with errors",
        ),
    ],
)
def test_a_plan_that_cannot_be_read_says_where(tmp_path_factory, text, told):
    path = tmp_path_factory.mktemp("plan") / "plan.toml"
    path.write_text(text, encoding="utf-8")
    assert told in " ".join(run(path, status=2).split())


def test_files_and_columns_that_are_not_there_are_named(files):
    assert "there is no file" in run(files / "no.toml", status=2)
    assert "there is no file" in run(files / "visits.toml", files / "no.csv", status=2)
    pd.DataFrame({"id": [1]}).to_csv(files / "other.csv", index=False)
    assert "no column 'paid'" in run(files / "visits.toml", files / "other.csv", status=2)
    refused = " ".join(run(files / "visits.toml", "--ledger", files / "no.ledger", status=2).split())
    assert "`dpkit ledger create`, with --epsilon, --delta, --unit and --adjacency" in refused


def test_a_file_with_decimal_commas_and_gaps_is_read_as_it_says(tmp_path):
    pytest.importorskip("sqlglot", reason="the extra 'tables' is not installed")
    plan, file = tmp_path / "plan.toml", tmp_path / "visits.csv"
    plan.write_text("budget.epsilon = 1e6\ncolumns.x.bounds = [0, 9e3]\nanswers = [{what = 'sum', column = 'x'}]")
    file.write_text("x;town\n1.000,5;Linz\n2.000,5;?\n" + "?;Graz\n" * 2)
    how = ("--separator", ";", "--decimal", ",", "--thousands", ".", "--missing", "?")
    asked = partial(commands.run, "query", file, "--columns", plan, "--sql")
    assert "say --separator ';'" in run(plan, file, status=2)
    assert "--decimal , (and --thousands" in run(plan, file, *how[:2], status=2)
    assert "leave their rows out by where = \"('x')\"" in run(plan, file, *how, status=2).replace("\n", " ")
    refused = asked("SELECT SUM(x) FROM visits", *how, status=2)
    assert "leave their rows out by WHERE x IS NOT NULL" in refused.replace("\n", " ")
    told = json.loads(asked("SELECT SUM(x) AS s FROM visits WHERE x IS NOT NULL", *how, "--json"))
    assert told["rows"][0]["value"] == pytest.approx(3001, abs=1)
    plan.write_text(plan.read_text().replace("'sum'", "'sum', where = \"('x')\""))
    assert "3,001" in run(plan, file, *how)


def test_candidates_and_edges_stand_in_the_place_of_bounds(tmp_path):
    path = tmp_path / "plan.toml"
    answers = "[{what = 'quantile', column = 'x', q = 0.5, candidates = [1, 2]}, {what = 'mean', column = 'x'}]"
    path.write_text(f"columns.x.bounds = [0, 9]\nanswers = {answers}", encoding="utf-8")
    assert [ask.bounds for ask in read_plan(path).asks] == [None, (0, 9)]


def test_columns_that_a_plan_needs(files):
    assert read_plan(files / "visits.toml").named_columns() == ["id", "paid", "town", "sex"]

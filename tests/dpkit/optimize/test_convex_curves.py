"""``dpkit reproduce figure-5-2`` and ``figure-5-3`` in a tiny form: what is measured, written, and gone on with."""

import csv
import io
import math

import numpy as np
import pytest
from commands import run as run_command
from pictures import coarse_pictures

from dpkit.geometry import LpBall
from dpkit.reproduce import convex_curves
from dpkit.reproduce.convex_curves import FIGURE_5_2, FIGURE_5_3, CurveFigure
from dpkit.reproduce.convex_workload import Cell, draw, suboptimality

TINY = ((Cell(400, 3, 1.5), ("NoisySFW", "OFW", "OFW as published")),)


def test_the_panels_are_the_papers():
    assert [(cell.T, cell.d, cell.p) for cell, _ in FIGURE_5_2.panels] == [(2000, 10, 1.5), (2000, 10, math.inf)]
    assert [(cell.T, cell.d, cell.p) for cell, _ in FIGURE_5_3.panels] == [(1000, 5, 1.5), (2000, 10, 1.5)]
    for figure in (FIGURE_5_2, FIGURE_5_3):
        assert all("OFW as published" in algorithms for _, algorithms in figure.panels)


def test_a_curve_is_measured_along_one_run(monkeypatch):
    cell, ball = TINY[0][0], LpBall(1.5, 3, 2.0)

    def shrinking(X, y, cell, scale, rng, note):
        for t in range(len(X)):
            note(ball.center + scale / (t + 1))

    monkeypatch.setitem(convex_curves._ALGORITHMS, "OFW", shrinking)
    found, seconds = convex_curves._curve(cell, "OFW", 0.5, seed=7)
    _, _, test_X, test_y, theta = draw(cell, 7)
    for i in (0, 9, 19):  # after 20, 200 and 400 rows
        expected = suboptimality(np.full(3, 0.5 / (20 * (i + 1))), test_X, test_y, theta)
        assert found[i] == pytest.approx(expected)
    assert (np.diff(seconds) >= 0).all()


@pytest.mark.thorough
def test_the_command_writes_three_files_and_goes_on(tmp_path, monkeypatch):
    coarse_pictures(monkeypatch)
    monkeypatch.setattr(convex_curves, "SCALES", (0.25, 0.5, 1.0))
    monkeypatch.setattr(convex_curves, "FIGURE_5_2", CurveFigure(TINY, tuned=False))
    command = ["reproduce", "figure-5-2", "--quick", "--jobs", "1", "--out", str(tmp_path)]
    shown = run_command(*command)
    assert {path.name for path in tmp_path.iterdir()} == {"figure-5-2.md", "figure-5-2.csv", "figure-5-2.png"}
    assert "OFW as published is not private as claimed" in shown
    written = (tmp_path / "figure-5-2.csv").read_text()
    lines = list(csv.DictReader(io.StringIO(written)))
    assert [line["scale"] for line in lines] == ["0.5", "1.0"] * 3
    assert all(len(line["subopt"].split(";")) == 20 for line in lines)
    run_command(*command)
    assert (tmp_path / "figure-5-2.csv").read_text() == written  # the seconds too: nothing ran again
    run_command(*(part for part in command if part != "--quick"), status=2)


def test_the_best_scale_is_found_on_public_data(monkeypatch):
    seeds, ends = [], {0.5: 0.3, 1.0: 0.2, 2.0: 0.4}

    def curve(cell, name, scale, seed):
        seeds.append(seed)
        return np.full(20, ends[scale]), np.arange(20.0)

    monkeypatch.setattr(convex_curves, "_curve", curve)
    figure = CurveFigure(TINY, tuned=True)
    rows = figure.run(quick=True)
    assert [(row.algorithm, row.scale, row.means[-1]) for row in rows] == [(a, 1.0, 0.2) for a in TINY[0][1]]
    assert set(seeds) == {0, 1, 1000, 1001, 1002}
    assert "| 40 | 3 | 1.5 | OFW | 1 | 0.2 | 0.2 | 0.2 ± 0 | 19 |" in figure.to_markdown(rows)
    assert figure.from_csv(figure.to_csv(rows)) == rows

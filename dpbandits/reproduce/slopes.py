"""How regret, error and time grow with T, d, K, ε and κ, beside what the four papers' theorems state.

``dpbandits reproduce slopes`` plays every policy on a grid of one size, the others fixed, and fits b in y ∝ x^b. A
theorem bounds regret from above and for large T: an exponent below what it states agrees with it, and one above it is
no contradiction on a grid of a few thousand rounds. The fit is a straight line through the logarithms of the means over
the seeds; its standard error is the jackknife's over the seeds, and knows nothing of a curve that is not straight.

>>> mean, error = exponent([1.0, 2.0, 4.0], [[3.0, 3.0], [6.0, 6.0], [12.0, 12.0]])
>>> round(mean, 9), round(error, 9)
(1.0, 0.0)
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpbandits.reproduce.figure import Figure, Quick, rounded
from dpbandits.reproduce.grids import OPTIMIZERS, Sweep, listed, sweeps
from dpbandits.reproduce.page import with_block
from dpbandits.reproduce.played import play
from dpbandits.reproduce.stored import write_lines
from dpkit.reproduce.convex_workload import Cell, draw

__all__ = [
    "PAGE",
    "SEEDS",
    "Measured",
    "exponent",
    "block",
    "publish",
    "read",
    "stored_at",
    "table",
    "write",
]

PAGE = Path("measurements") / "slopes.md"
SEEDS, QUICK_SEEDS = 10, 2


@dataclass(frozen=True)
class Measured:
    """What one line lost, and its seconds per round: a row per value of the grid, a number per seed."""

    loss: list[list[float]]
    seconds: list[list[float]]


def exponent(x: Sequence[float], y: Sequence[Sequence[float]]) -> tuple[float, float]:
    """b of mean y ∝ x^b, and its standard error.

    Parameters
    ----------
    x : sequence of float
        The grid.
    y : sequence of sequences of float
        For every value of the grid the numbers of all seeds, in one order of the seeds.

    Returns
    -------
    (float, float)
        The slope of least squares through the logarithms, and the jackknife's standard error over the seeds (NaN for
        a single seed). NaN where a mean is not positive.
    """
    found = np.asarray(y, dtype=np.float64)
    at = np.log(np.asarray(x, dtype=np.float64))
    at = at - at.mean()

    def slope(means: Any) -> float:
        if not (means > 0.0).all():
            return math.nan
        return float(at @ np.log(means) / (at @ at))

    seeds = found.shape[1]
    whole = slope(found.mean(axis=1))
    if seeds < 2:
        return whole, math.nan
    left_out = np.array([slope(np.delete(found, seed, axis=1).mean(axis=1)) for seed in range(seeds)])
    return whole, float(np.sqrt((seeds - 1) / seeds * ((left_out - left_out.mean()) ** 2).sum()))


def _excess(cell: Cell, name: str, seed: int) -> tuple[float, float]:
    """Excess loss at the end of a run, on the test set, and seconds per row."""
    X, y, test_X, test_y, theta = draw(cell, seed)
    learner = OPTIMIZERS[name](cell, np.random.default_rng([seed, 1]))
    iterate, begin = theta, time.perf_counter()
    for x, label in zip(X, y.tolist(), strict=True):
        iterate = learner.step(x, label)
    seconds = (time.perf_counter() - begin) / cell.T
    loss = [float(np.mean((test_y - test_X @ one) ** 2)) for one in (iterate, theta)]
    return loss[0] - loss[1], seconds


def measured(sweep: Sweep, *, seeds: int = SEEDS, jobs: int = 1, kept: Path | None = None) -> dict[str, Measured]:
    """Play a sweep.

    Parameters
    ----------
    sweep : Sweep
    seeds : int
        Runs per value, but for those of slow lines, which have fewer.
    jobs : int
        Processes; the optimizer has one.
    kept : path, optional
        A folder: runs of policies are kept there as they end, and not played again.

    Raises
    ------
    KeyboardInterrupt
        On Ctrl-C; what is done is kept.
    """
    if sweep.cells:
        found = {}
        for name in OPTIMIZERS:
            pairs = [[_excess(cell, name, seed) for seed in range(seeds)] for cell in sweep.cells]
            found[name] = Measured(*([[pair[i] for pair in row] for row in pairs] for i in (0, 1)))
        return found
    figure = Figure(sweep.title, sweep.panels, "", quick=Quick(rounds=1), seeds=seeds)
    played = play(figure, jobs=jobs, keep=None if kept is None else kept / sweep.name)
    if len(played) < len(sweep.panels) or not played[-1].complete:
        raise KeyboardInterrupt
    found = {}
    for name in sweep.lines:
        runs = [results.runs_of(name) for results in played]
        found[name] = Measured(
            [[float(one.regret[-1]) for one in row] for row in runs],
            [[float(one.seconds[-1] / one.round[-1]) for one in row] for row in runs],
        )
    return found


def stored_at(docs: Path, sweep: Sweep) -> Path:
    """The file of a sweep."""
    return docs / "tables" / "slopes" / f"{sweep.name}.json"


def write(path: Path, sweep: Sweep, found: Mapping[str, Measured]) -> None:
    """One line of JSON for each line of the sweep."""
    lines = sweep.lines
    write_lines(
        path,
        [
            {"line": name, "chosen": lines[name], "loss": one.loss, "seconds": one.seconds}
            for name, one in found.items()
        ],
    )


def read(path: Path, sweep: Sweep) -> dict[str, Measured]:
    """What was found of a sweep as it is described now.

    Raises
    ------
    ValueError
        If the file is of other lines, parameters, values or rounds.
    """
    told = json.loads(path.read_text(encoding="utf-8"))
    then = {one["line"]: one["chosen"] for one in told}
    if then != sweep.lines:
        raise ValueError(
            f"{path.name} must be of the sweep as it is: run `dpbandits reproduce slopes --docs docs`; it has "
            f"{then}, not {sweep.lines}"
        )
    return {one["line"]: Measured(one["loss"], one["seconds"]) for one in told}


def to_rows(found: Sequence[tuple[Sweep, Mapping[str, Measured]]]) -> list[dict[str, Any]]:
    """One for each sweep and line, with the means along the grid."""
    rows = []
    for sweep, lines in found:
        for name, one in lines.items():
            (growth, error), (pace, pace_error) = (exponent(sweep.values, y) for y in (one.loss, one.seconds))
            rows.append(
                {"sweep": sweep.name, "title": sweep.title, "axis": sweep.axis, "values": list(sweep.values)}
                | {"policy": name, "chosen": sweep.lines[name], "seeds": len(one.loss[0])}
                | {"means": [float(np.mean(row)) for row in one.loss], "exponent": growth, "exponent_se": error}
                | {"theorem": sweep.theorems[name], "time_exponent": pace, "time_exponent_se": pace_error}
            )
    return rows


def table(found: Sequence[tuple[Sweep, Mapping[str, Measured]]]) -> str:
    """One line for each row: means at the ends of the grid, exponents beside what the theorem states."""
    heads = ("grid", "policy", "seeds", "mean, first and last", "exponent", "theorem", "time per round, exponent")
    lines = [f"| {' | '.join(heads)} |", "|---|---|---:|---|---:|---|---:|"]
    before = ""
    for row in to_rows(found):
        grid = f"{row['axis']} = {listed(row['values'])}; {row['title']}"
        ends = ", ".join(rounded(row["means"][end]) for end in (0, -1))
        growth = _with_error(row["exponent"], row["exponent_se"])
        pace = _with_error(row["time_exponent"], row["time_exponent_se"])
        cells = ("" if grid == before else grid, row["policy"], str(row["seeds"]), ends, growth, row["theorem"], pace)
        lines.append(f"| {' | '.join(cells)} |")
        before = grid
    return "\n".join(lines)


def block(docs: Path) -> str:
    """The table of what is stored."""
    return table([(sweep, read(stored_at(docs, sweep), sweep)) for sweep in sweeps()])


def publish(docs: Path, found: Sequence[tuple[Sweep, Mapping[str, Measured]]]) -> None:
    """Keep what was found, and write the page's table anew."""
    for sweep, measured in found:
        write(stored_at(docs, sweep), sweep, measured)
    path = docs / PAGE
    path.write_text(with_block(path.read_text(encoding="utf-8"), "slopes", block(docs)), encoding="utf-8")


def _with_error(mean: float, error: float) -> str:
    if math.isnan(mean):
        return ""
    shown = f"{mean:.2f}".replace("-", "−")
    return shown if math.isnan(error) else f"{shown} ± {error:.2f}"

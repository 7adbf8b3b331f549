"""Table 5.1 of Han, Liang, Liang, Wang, Yao & Zhang, "On private online convex optimization: optimal algorithms in ℓ_p-
geometry and high dimensional contextual bandits", section 5.2.

The workload is ``convex_workload``; (1, 1/T)-DP for the replacement of one row. p = 1.5 (q = 3) and p = ∞ (q = 1).

    SubOpt = (L(θ̂) − L(θ))/(L(0) − L(θ)) on 10,000 fresh rows; 0 is perfect, 1 is no better than the start.

Public tuning. Every algorithm has two public numbers to choose: a clip norm (``CLIPS`` × d^(1/2 − 1/q), the ℓ₂ length
of a row with equal entries) and a step scale (``SCALES``). Where an algorithm has no step, its second grid is as long.
They are tuned for each cell on data sets of the same kind that are taken to be public, in the same way for all:

1. all points of the two grids on one data set;
2. the five best, and their neighbours half-way between two scales, on three more; the point with the best mean wins.

The winner then runs once on each of ``seeds`` fresh data sets, and these runs are the table. So no figure is the best
of several on the data that chose it.

Every run meets (1, 1/T) by our accounting, and the table says so from the cost that the optimizer reports. "OFW without
noise" is the paper's Algorithm 1 to the letter, but for the noise: no clipping, η_t = 1/(t + 1), nothing tuned.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from accounting import Budget, epsilon
from dpkit.optimize import glm
from dpkit.reproduce._lines import completed, read, to_csv
from dpkit.reproduce.convex_workload import ALGORITHMS, Cell, draw, suboptimality

__all__ = [
    "CLIPS",
    "PUBLISHED",
    "SCALES",
    "Row",
    "check_done",
    "from_csv",
    "picture",
    "run",
    "to_csv",
    "to_markdown",
]

Vector = NDArray[np.float64]

CLIPS = (0.05, 0.1, 0.2, 0.4, 0.8)
SCALES = (0.03125, 0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
# the seeds of the public data sets, far from those of the table
PUBLIC_SEEDS = 1000
QUICK_SEEDS = 3
# SubOpt as printed: (T, d, p) → algorithm → mean over 10 seeds
PUBLISHED: dict[tuple[int, int, float], dict[str, float]] = {
    (1000, 5, 1.5): {"NoisySFW": 0.522, "OFW": 0.0172},
    (1000, 5, math.inf): {"NoisySGD": 0.0802, "OFW": 0.112},
    (1000, 10, 1.5): {"NoisySFW": 0.953, "OFW": 0.201},
    (1000, 10, math.inf): {"NoisySGD": 0.636, "OFW": 0.582},
    (1000, 20, 1.5): {"NoisySFW": 1.05, "OFW": 0.775},
    (1000, 20, math.inf): {"NoisySGD": 0.955, "OFW": 0.982},
    (2000, 5, 1.5): {"NoisySFW": 0.44, "OFW": 0.00235},
    (2000, 5, math.inf): {"NoisySGD": 0.0344, "OFW": 0.0432},
    (2000, 10, 1.5): {"NoisySFW": 0.887, "OFW": 0.0595},
    (2000, 10, math.inf): {"NoisySGD": 0.484, "OFW": 0.364},
    (2000, 20, 1.5): {"NoisySFW": 0.957, "OFW": 0.406},
    (2000, 20, math.inf): {"NoisySGD": 0.947, "OFW": 0.82},
    (5000, 5, 1.5): {"NoisySFW": 0.35, "OFW": 0.000702},
    (5000, 5, math.inf): {"NoisySGD": 0.00989, "OFW": 0.0145},
    (5000, 10, 1.5): {"NoisySFW": 0.808, "OFW": 0.0163},
    (5000, 10, math.inf): {"NoisySGD": 0.115, "OFW": 0.125},
    (5000, 20, 1.5): {"NoisySFW": 1.0, "OFW": 0.185},
    (5000, 20, math.inf): {"NoisySGD": 0.602, "OFW": 0.637},
    (10000, 5, 1.5): {"NoisySFW": 0.351, "OFW": 0.000318},
    (10000, 5, math.inf): {"OFW": 0.00293},
    (10000, 10, 1.5): {"NoisySFW": 0.789, "OFW": 0.00465},
    (10000, 10, math.inf): {"NoisySGD": 0.0505, "OFW": 0.0467},
    (10000, 20, 1.5): {"NoisySFW": 0.937, "OFW": 0.0592},
    (10000, 20, math.inf): {"NoisySGD": 0.482, "OFW": 0.363},
}


@dataclass(frozen=True)
class Row:
    """One line of the table: an algorithm on a cell, at the point of its grids that ``tuning`` runs led to.

    ``subopt`` is the mean over ``seeds`` runs; ``seconds`` is one run's.
    """

    T: int
    d: int
    p: float
    algorithm: str
    passes: str
    subopt: float
    median: float
    deviation: float
    published: float | None
    epsilon: float
    delta: float
    clip: float
    scale: float
    seconds: float
    seeds: int
    tuning: int
    quick: bool


# --------------------------------------------------------------------------------------------------- running


@dataclass(frozen=True)
class _Plan:
    """How a line of the table is tuned and computed."""

    seeds: int
    quick: bool
    clips: tuple[float, ...]
    finalists: int
    tuning_sets: int


def run(
    *,
    horizons: Sequence[int] = (1000, 2000, 5000, 10_000),
    dimensions: Sequence[int] = (5, 10, 20),
    seeds: int = 10,
    quick: bool = False,
    algorithms: Sequence[str] = tuple(ALGORITHMS),
    jobs: int = 1,
    done: Sequence[Row] = (),
    progress: Callable[[list[Row], int], object] | None = None,
) -> list[Row]:
    """Every algorithm on every cell, tuned on public data.

    Parameters
    ----------
    horizons, dimensions : sequence of int
        T and d.
    seeds : int
        Independent data sets and runs per cell.
    quick : bool
        T = 1000 and d ∈ {5, 20} only, three seeds, and a shorter tuning: every second clip norm, then the three best
        points and their neighbours on one more data set.
    algorithms : sequence of str
        Keys of ``ALGORITHMS``.
    jobs : int
        Processes.
    done : sequence of Row
        Of an earlier call that was interrupted, with the same ``seeds`` and ``quick``: not run again.
    progress : callable, optional
        Called with the rows so far after each new one, and how many there will be.

    Returns
    -------
    list of Row
        In the order of the cells.

    Raises
    ------
    ValueError
        For an unknown algorithm, or rows ``done`` with other ``seeds`` or ``quick``.
    """
    clips: tuple[float, ...] = CLIPS
    finalists, tuning_sets = 5, 4
    if quick:
        horizons, dimensions, seeds = (1000,), (5, 20), QUICK_SEEDS
        clips, finalists, tuning_sets = CLIPS[::2], 3, 2
    unknown = sorted(set(algorithms) - set(ALGORITHMS))
    if unknown:
        raise ValueError(f"algorithms must be among {', '.join(ALGORITHMS)}, got {', '.join(unknown)}")
    cells = [Cell(T, d, p) for T in horizons for d in dimensions for p in (1.5, math.inf)]
    order = [(cell, name) for cell in cells for name in algorithms if cell.p in ALGORITHMS[name].geometries]
    check_done(done, seeds=seeds, quick=quick)
    found = {(Cell(row.T, row.d, row.p), row.algorithm): row for row in done}
    plan = _Plan(seeds, quick, clips, finalists, tuning_sets)
    return completed(order, found, partial(_row, plan=plan), jobs, progress)


def check_done(done: Sequence[Row], *, seeds: int, quick: bool) -> None:
    """Refuse rows that a run with these parameters cannot go on from.

    Raises
    ------
    ValueError
        If a row is of another number of seeds, or of another ``quick``.
    """
    seeds = QUICK_SEEDS if quick else seeds
    for row in done:
        if (row.seeds, row.quick) != (seeds, quick):
            raise ValueError(
                f"done must hold rows of seeds={seeds} and quick={quick}, "
                f"got one of seeds={row.seeds} and quick={row.quick}"
            )


def _row(key: tuple[Cell, str], *, plan: _Plan) -> Row:
    cell, name = key
    algorithm = ALGORITHMS[name]
    budget = Budget(1.0, 1.0 / cell.T)
    spent = 0.0

    def one(point: tuple[float, float], seed: int, data: tuple[Vector, Vector, Vector, Vector, Vector]) -> float:
        nonlocal spent
        X, y, test_X, test_y, theta = data
        objective = glm("squared", clip=point[0] * cell.row_length if algorithm.private else None)
        result = algorithm.run(objective, X, y, cell, budget, point[1], np.random.default_rng([seed, 1]))
        spent = max(spent, epsilon(result.cost, budget.delta) if algorithm.private else math.inf)
        return suboptimality(result.x, test_X, test_y, theta)

    best, tuning = (math.inf, 1.0), 0
    if algorithm.private:
        first, *more = [(seed, draw(cell, seed)) for seed in range(PUBLIC_SEEDS, PUBLIC_SEEDS + plan.tuning_sets)]
        points = [(clip, scale) for clip in plan.clips for scale in SCALES]
        start = {point: one(point, *first) for point in points}
        half = math.sqrt(SCALES[1] / SCALES[0]) if len(SCALES) > 1 else 1.0
        finalists = {
            (clip, scale * factor)
            for clip, scale in sorted(points, key=start.__getitem__)[: plan.finalists]
            for factor in (1.0 / half, 1.0, half)
        }
        score = {point: start[point] if point in start else one(point, *first) for point in sorted(finalists)}
        for each in more:
            for point in score:
                score[point] += one(point, *each)
        best = min(score, key=score.__getitem__)
        tuning = len(points) + len(finalists - start.keys()) + len(score) * len(more)
    sets = [(seed, draw(cell, seed)) for seed in range(plan.seeds)]
    begin = time.perf_counter()
    results = np.array([one(best, *each) for each in sets])
    seconds = (time.perf_counter() - begin) / plan.seeds
    return Row(
        T=cell.T,
        d=cell.d,
        p=cell.p,
        algorithm=name,
        passes=algorithm.passes,
        subopt=float(results.mean()),
        median=float(np.median(results)),
        deviation=float(results.std(ddof=1)) if plan.seeds > 1 else 0.0,
        published=PUBLISHED.get((cell.T, cell.d, cell.p), {}).get(name) if algorithm.private else None,
        epsilon=spent,
        delta=budget.delta if algorithm.private else 0.0,
        clip=best[0],
        scale=best[1],
        seconds=seconds,
        seeds=plan.seeds,
        tuning=tuning,
        quick=plan.quick,
    )


# --------------------------------------------------------------------------------------------------- writing


def from_csv(text: str) -> list[Row]:
    """The rows that ``to_csv`` wrote; refuses other columns."""
    return read(Row, text)


def to_markdown(rows: Sequence[Row]) -> str:
    """Mean SubOpt, a line per cell and a column per algorithm, the published value in brackets.

    The smallest of a cell is bold, the smallest of those that read each row once is in italics.
    """
    names = [name for name in ALGORITHMS if any(row.algorithm == name for row in rows)]
    lines = [f"| T | d | p | {' | '.join(names)} |", "|---" * (3 + len(names)) + "|"]
    for T, d, p in sorted({(row.T, row.d, row.p) for row in rows}):
        cell = {row.algorithm: row for row in rows if (row.T, row.d, row.p) == (T, d, p)}
        private = [row for row in cell.values() if ALGORITHMS[row.algorithm].private]
        best = min((row.subopt for row in private), default=math.nan)
        single = min((row.subopt for row in private if row.passes.startswith("one")), default=math.nan)
        shown = []
        for name in names:
            row = cell.get(name)
            text = "" if row is None else f"{row.subopt:.3g}"
            if row is not None and row in private:
                text = f"**{text}**" if row.subopt == best else f"*{text}*" if row.subopt == single else text
            if row is not None and row.published is not None:
                text += f" ({row.published:.3g})"
            shown.append(text)
        lines.append(f"| {T} | {d} | {_shown(p)} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def picture(rows: Sequence[Row], path: Path) -> None:
    """SubOpt against T, one panel per (p, d), published values as crosses; written to ``path``."""
    from matplotlib.figure import Figure

    panels = sorted({(row.p, row.d) for row in rows})
    columns = len({d for _, d in panels})
    figure = Figure(figsize=(3.4 * columns, 3.0 * math.ceil(len(panels) / columns)), layout="constrained")
    axes = figure.subplots(math.ceil(len(panels) / columns), columns, squeeze=False, sharex=True, sharey=True)
    names = [name for name in ALGORITHMS if any(row.algorithm == name for row in rows)]
    for (p, d), axis in zip(panels, axes.flat, strict=False):
        for index, name in enumerate(names):
            line = sorted((r for r in rows if (r.p, r.d, r.algorithm) == (p, d, name)), key=lambda r: r.T)
            if not line:
                continue
            colour = f"C{index}"
            style = "-" if ALGORITHMS[name].private else ":"
            axis.plot([r.T for r in line], [r.subopt for r in line], style, marker="o", ms=3, color=colour, label=name)
            printed = [r for r in line if r.published is not None]
            axis.plot([r.T for r in printed], [r.published for r in printed], "x", color=colour)
        axis.axhline(1.0, color="0.7", lw=0.8)
        axis.set(xscale="log", yscale="log", title=f"p = {_shown(p)}, d = {d}")
    for axis in axes[-1]:
        axis.set_xlabel("rows T")
    for axis in axes[:, 0]:
        axis.set_ylabel("SubOpt")
    handles = {line.get_label(): line for axis in axes.flat for line in axis.lines if line.get_label()[0] != "_"}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, fontsize="small")
    figure.savefig(path, dpi=80)


def _shown(p: float) -> str:
    return "∞" if math.isinf(p) else f"{p:g}"

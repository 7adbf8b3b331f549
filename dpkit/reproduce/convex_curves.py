"""Figures 5.2 and 5.3 of Han, Liang, Liang, Wang, Yao & Zhang, "On private online convex optimization: optimal
algorithms in ℓ_p-geometry and high dimensional contextual bandits": SubOpt along a run, for several step scales, and
against the seconds that have passed.

The workload is ``convex_workload``, as for Table 5.1; SubOpt is measured at twenty points of a run.

* Figure 5.2: T = 2000, d = 10; NoisySFW and DP-TOFW at p = 1.5, NoisySGD and DP-TOFW at p = ∞; every scale of
  ``SCALES``. The paper prints neither its grid nor values.
* Figure 5.3: p = 1.5; T = 1000, d = 5 and T = 2000, d = 10; NoisySFW and DP-TOFW, each with the scale of Figure 5.2
  that is best at the end on three public data sets.

"OFW" is the private form of DP-TOFW in this package, "OFW as published" the paper's algorithm to the letter, with
βD + L = 14 (β = 2, D = 4, |y − xᵀθ| ≤ 3 for its loss (y − xᵀθ)²): it is not private as claimed
(:mod:`dpkit.optimize.stream.published_frank_wolfe`). The private ones clip at 0.05·d^(1/2−1/q), the length that the
tuning of Table 5.1 chose most often, and cost (1, 1/T).
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting import Budget
from accounting.errors import NotPrivateWarning
from dpkit import optimize
from dpkit.geometry import LpBall
from dpkit.optimize import GLM, glm
from dpkit.optimize.stream.published_frank_wolfe import PublishedOnlineFrankWolfe
from dpkit.reproduce._lines import completed, read, to_csv
from dpkit.reproduce.convex_workload import RADIUS, Cell, draw, suboptimality

__all__ = ["FIGURE_5_2", "FIGURE_5_3", "SCALES", "CurveFigure", "Row"]

Vector = NDArray[np.float64]

SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)
CLIP = 0.05
# of the published algorithm: βD + L and its loss, which is not halved, as the printed noise grows like √(βD + L) only
GRADIENT_BOUND = 14.0
PUBLISHED_LOSS = GLM(
    "(η − y)²",
    lambda eta, y: np.square(eta - y),
    lambda eta, y: 2.0 * (eta - y),
    slope_bound=math.inf,
    curvature_bound=2.0,
)
POINTS = 20
PUBLIC_SEEDS = range(1000, 1003)
QUICK_SEEDS = 2
PUBLISHED = "OFW as published"


@dataclass(frozen=True)
class Row:
    """A curve: means and deviations over the seeds at equal parts of a run, as numbers with semicolons between them."""

    T: int
    d: int
    p: float
    algorithm: str
    scale: float
    subopt: str
    deviation: str
    seconds: str
    seeds: int
    quick: bool

    @property
    def means(self) -> list[float]:
        """SubOpt at every point."""
        return list(map(float, self.subopt.split(";")))

    @property
    def deviations(self) -> list[float]:
        """Standard deviations of SubOpt."""
        return list(map(float, self.deviation.split(";")))

    @property
    def clock(self) -> list[float]:
        """Seconds since the start."""
        return list(map(float, self.seconds.split(";")))


Key = tuple[Cell, str, float | None]


@dataclass(frozen=True)
class CurveFigure:
    """One of the figures; what ``dpkit reproduce`` asks of a table.

    Attributes
    ----------
    panels : sequence of (cell, algorithms)
    tuned : bool
        Whether each line has the best scale, instead of one line for every scale.
    """

    panels: tuple[tuple[Cell, tuple[str, ...]], ...]
    tuned: bool

    def run(
        self,
        *,
        seeds: int = 10,
        quick: bool = False,
        jobs: int = 1,
        done: Sequence[Row] = (),
        progress: Callable[[list[Row], int], object] | None = None,
    ) -> list[Row]:
        """All curves.

        Parameters
        ----------
        seeds : int
            Data sets and runs of a curve.
        quick : bool
            A tenth of the rows, two seeds and three scales.
        jobs : int
            Processes.
        done : sequence of Row
            Of an earlier call that was interrupted: not run again.
        progress : callable, optional
            Called with the rows so far after each new one, and how many there will be.
        """
        self.check_done(done, seeds=seeds, quick=quick)
        scales = SCALES[1:4] if quick else SCALES
        order: list[Key] = []
        for cell, algorithms in self.panels:
            size = Cell(cell.T // 10, cell.d, cell.p) if quick else cell
            order += [(size, name, scale) for name in algorithms for scale in ((None,) if self.tuned else scales)]
        found: dict[Key, Row] = {
            (Cell(row.T, row.d, row.p), row.algorithm, None if self.tuned else row.scale): row for row in done
        }
        make = partial(_row, scales=scales, seeds=QUICK_SEEDS if quick else seeds, quick=quick)
        return completed(order, found, make, jobs, progress)

    def check_done(self, done: Sequence[Row], *, seeds: int, quick: bool) -> None:
        """Refuse rows of runs with other ``seeds`` or another ``quick``."""
        expected = QUICK_SEEDS if quick else seeds
        if any((row.seeds, row.quick) != (expected, quick) for row in done):
            raise ValueError(f"done must hold lines of seeds={expected} and quick={quick}, got others")

    def from_csv(self, text: str) -> list[Row]:
        """The rows that ``to_csv`` wrote; refuses other columns."""
        return read(Row, text)

    def to_csv(self, rows: Sequence[Row]) -> str:
        """All columns."""
        return to_csv(rows)

    def to_markdown(self, rows: Sequence[Row]) -> str:
        """SubOpt after a quarter, a half and the whole of a run, ± its standard error, and the seconds of the run."""
        lines = ["| T | d | p | algorithm | scale | ¼ | ½ | at the end | seconds |", "|---" * 9 + "|"]
        for row in rows:
            quarter, half, last = (row.means[POINTS * part // 4 - 1] for part in (1, 2, 4))
            error = row.deviations[-1] / math.sqrt(row.seeds)
            lines.append(
                f"| {row.T} | {row.d} | {_shown(row.p)} | {row.algorithm} | {row.scale:g} | {quarter:.3g} | {half:.3g} "
                f"| {last:.3g} ± {error:.2g} | {row.clock[-1]:.2g} |"
            )
        return "\n".join(lines) + f"\n\n{PUBLISHED} is not private as claimed.\n"

    def picture(self, rows: Sequence[Row], path: Path) -> None:
        """A panel for each algorithm and cell, or for each cell where scales are tuned; written to ``path``."""
        from matplotlib.figure import Figure

        keys = list(dict.fromkeys((row.T, row.d, row.p, "" if self.tuned else row.algorithm) for row in rows))
        figure = Figure(figsize=(3.4 * len(keys), 3.2), layout="constrained")
        for axis, key in zip(figure.subplots(1, len(keys), squeeze=False, sharey=True).flat, keys, strict=True):
            T, d, p, algorithm = key
            for row in rows:
                if (row.T, row.d, row.p) != (T, d, p) or algorithm not in ("", row.algorithm):
                    continue
                x = row.clock if self.tuned else [(i + 1) / POINTS for i in range(POINTS)]
                name = row.algorithm if self.tuned else f"scale {row.scale:g}"
                (line,) = axis.plot(x, row.means, ":" if row.algorithm == PUBLISHED else "-", label=name)
                low, high = (np.add(row.means, np.multiply(sign, row.deviations)) for sign in (-1, 1))
                axis.fill_between(x, np.maximum(low, 1e-6), high, color=line.get_color(), alpha=0.15)
            axis.set(yscale="log", xlabel="seconds" if self.tuned else "part of the run")
            axis.set_title(f"{algorithm}{', ' if algorithm else ''}T = {T}, d = {d}, p = {_shown(p)}", fontsize="small")
            axis.legend(fontsize="x-small")
        figure.savefig(path, dpi=80)


def _row(key: Key, *, scales: Sequence[float], seeds: int, quick: bool) -> Row:
    cell, name, scale = key
    if scale is None:
        ends = {one: np.mean([_curve(cell, name, one, seed)[0][-1] for seed in PUBLIC_SEEDS]) for one in scales}
        scale = min(ends, key=ends.__getitem__)
    found, clocks = zip(*(_curve(cell, name, scale, seed) for seed in range(seeds)), strict=True)
    deviations = np.std(found, axis=0, ddof=1) if seeds > 1 else np.zeros(POINTS)
    return Row(
        cell.T,
        cell.d,
        cell.p,
        name,
        scale,
        subopt=_joined(np.mean(found, axis=0)),
        deviation=_joined(deviations),
        seconds=_joined(np.mean(clocks, axis=0)),
        seeds=seeds,
        quick=quick,
    )


def _joined(values: Vector) -> str:
    return ";".join(f"{value:.6g}" for value in values)


def _curve(cell: Cell, name: str, scale: float, seed: int) -> tuple[Vector, Vector]:
    """SubOpt, and seconds, at ``POINTS`` points of one run."""
    X, y, test_X, test_y, theta = draw(cell, seed)
    iterates: list[Vector] = []
    seconds: list[float] = []
    begin = time.perf_counter()

    def note(iterate: Vector) -> None:
        iterates.append(iterate)
        seconds.append(time.perf_counter() - begin)

    _ALGORITHMS[name](X, y, cell, scale, np.random.default_rng([seed, 1]), note)
    at = [math.ceil(len(iterates) * (i + 1) / POINTS) - 1 for i in range(POINTS)]
    subopt = [suboptimality(iterates[i], test_X, test_y, theta) for i in at]
    return np.array(subopt), np.array([seconds[i] for i in at])


Noted = Callable[[Vector], None]


def _private(name: str, **fixed: Any) -> Callable[[Vector, Vector, Cell, float, np.random.Generator, Noted], None]:
    def run_it(X: Vector, y: Vector, cell: Cell, scale: float, rng: np.random.Generator, note: Noted) -> None:
        getattr(optimize, name)(
            glm("squared", clip=CLIP * cell.row_length),
            X,
            y,
            constraint=LpBall(cell.p, cell.d, RADIUS),
            budget=Budget(1.0, 1.0 / cell.T),
            step_scale=scale,
            callback=note,
            rng=rng,
            **fixed,
        )

    return run_it


def _as_published(X: Vector, y: Vector, cell: Cell, scale: float, rng: np.random.Generator, note: Noted) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)  # the table says so
        learner = PublishedOnlineFrankWolfe(
            PUBLISHED_LOSS,
            LpBall(cell.p, cell.d, RADIUS),
            horizon=len(X),
            epsilon=1.0,
            delta=1.0 / cell.T,
            gradient_bound=GRADIENT_BOUND,
            step_scale=scale,
            rng=rng,
        )
    for x, label in zip(X, y.tolist(), strict=True):
        note(learner.step(x, label))


_ALGORITHMS = {
    "NoisySFW": _private("noisy_stochastic_frank_wolfe"),
    "NoisySGD": _private("noisy_sgd", steps=200),
    "OFW": _private("online_frank_wolfe"),
    PUBLISHED: _as_published,
}


def _shown(p: float) -> str:
    return "∞" if math.isinf(p) else f"{p:g}"


FIGURE_5_2 = CurveFigure(
    (
        (Cell(2000, 10, 1.5), ("NoisySFW", "OFW", PUBLISHED)),
        (Cell(2000, 10, math.inf), ("NoisySGD", "OFW", PUBLISHED)),
    ),
    tuned=False,
)
FIGURE_5_3 = CurveFigure(
    tuple((Cell(T, d, 1.5), ("NoisySFW", "OFW", PUBLISHED)) for T, d in ((1000, 5), (2000, 10))), tuned=True
)

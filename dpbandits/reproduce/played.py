"""How a reproduced figure is run, and the rows of its table.

>>> from dpbandits.lab.environments import GLM
>>> from dpbandits.reproduce.figure import Figure, Line, Panel, Quick
>>> panel = Panel("S = 3", GLM(2), rounds=200, lines=(Line("GLB-OMD", "GLBOMD", {"theta_bound": 3.0}),))
>>> figure = Figure("an example", (panel,), note="", quick=Quick(rounds=100, seeds=1), seeds=2)
>>> [row.found["seeds"] for row in rows(figure, play(figure, progress=False))]
[2]
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from accounting.errors import NotPrivateWarning
from dpbandits import policies
from dpbandits.lab.simulation.results import Results
from dpbandits.lab.simulation.runs import Run
from dpbandits.lab.simulation.simulate import simulate
from dpbandits.policy.protocol import Policy
from dpbandits.reproduce.figure import Figure, Line, Panel, Row

__all__ = ["play", "rows"]


def play(figure: Figure, *, jobs: int = 1, keep: Path | None = None, progress: bool = True) -> list[Results]:
    """Run a figure, panel by panel.

    Parameters
    ----------
    figure : Figure
    jobs : int
        Number of processes.
    keep : Path, optional
        Every run is kept as it ends, and not played again, in ``KEEP-N-Trounds.jsonl`` for panel N; each of these is
        a file for :meth:`dpbandits.Results.load`.
    progress : bool
        Show a progress bar per panel on a terminal.

    Returns
    -------
    list of Results
        One per panel; after Ctrl-C those that were begun, of which the last is incomplete.

    Raises
    ------
    KeyboardInterrupt
        If it comes before the first run is done.
    """
    played: list[Results] = []
    for number, panel in enumerate(figure.panels, start=1):
        resume = None if keep is None else keep.with_name(f"{keep.name}-{number}-T{panel.rounds}.jsonl")
        try:
            played.append(_play(panel, figure.seeds, jobs, resume, progress))
        except KeyboardInterrupt:
            if not played:
                raise
            break
        if not played[-1].complete:
            break
    return played


def _play(panel: Panel, seeds: int, jobs: int, resume: Path | None, progress: bool) -> Results:
    """One panel; lines with equally many seeds side by side."""
    limits = {line.name: min(seeds, line.seeds or seeds) for line in panel.lines}
    planned, runs = sum(limits.values()), list[Run]()
    quickest_first = sorted(panel.lines, key=lambda line: -limits[line.name])
    for count, group in groupby(quickest_first, lambda line: limits[line.name]):
        players = {line.name: _factory(line, panel) for line in group}
        known = {"rounds": panel.rounds, "seeds": count, "jobs": jobs, "resume": resume, "progress": progress}
        try:
            found = simulate(players, panel.environment, **known)  # type: ignore[arg-type]
        except KeyboardInterrupt:
            if not runs:
                raise
            break
        runs += found.runs
        if not found.complete:
            break
    order = [line.name for line in panel.lines]
    runs.sort(key=lambda run: (order.index(run.policy), run.seed))
    return Results(panel.environment.name, tuple(runs), planned)


def _factory(line: Line, panel: Panel) -> Callable[[np.random.Generator], Policy]:
    """Makes the policy of a line; picklable, for worker processes."""
    environment: Any = panel.environment
    kind = getattr(policies, line.policy)
    # d, or where the policy takes contexts their dimension and the number of arms
    sizes = (environment.context_dim, environment.n_arms) if kind.takes == "context" else (environment.dim,)
    return partial(_made, line, sizes, panel.rounds)


def _made(line: Line, sizes: tuple[int, ...], horizon: int, rng: np.random.Generator) -> Policy:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)  # the table says so
        policy: Policy = getattr(policies, line.policy)(*sizes, **line.arguments, horizon=horizon, rng=rng)
    return policy


def rows(figure: Figure, played: Sequence[Results]) -> list[Row]:
    """The table: one row per panel and line that has been played."""
    found = []
    for panel, results in zip(figure.panels, played, strict=False):
        lines = {line.name: line for line in panel.lines}
        for row in results.table():
            name = row["policy"]
            regrets = {run.seed: float(run.regret[-1]) for run in results.runs_of(name)}
            found.append(Row(panel.title, lines[name], row | {"exponent": _exponent(results, name)}, regrets))
    return found


def _exponent(results: Results, policy: str) -> float:
    """b of regret ∝ t^b from T/4 to T, of the mean over the seeds: √t has ½, chance 1; NaN where nothing was lost."""
    rounds, curves = results.curves(policy, "regret")
    mean = curves.mean(axis=0)
    before, after = float(np.interp(rounds[-1] / 4.0, rounds, mean)), float(mean[-1])
    return math.log(after / before) / math.log(4.0) if before > 0.0 else math.nan

"""What a reproduced figure is: panels of policies on one environment each; and how it is run.

>>> from dpbandits.lab.environments import GLM
>>> panel = Panel("S = 3", GLM(2), rounds=200, lines=(Line("GLB-OMD", "GLBOMD", {"theta_bound": 3.0}),))
>>> figure = Figure("an example", (panel,), note="", quick=Quick(rounds=100, seeds=1), seeds=2)
>>> [row.found["seeds"] for row in rows(figure, play(figure, progress=False))]
[2]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import signature
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np

from accounting.checks import integer
from dpbandits import policies
from dpbandits.lab.environments.base import Environment
from dpbandits.lab.simulation.results import Results
from dpbandits.lab.simulation.runs import Run
from dpbandits.lab.simulation.simulate import simulate
from dpbandits.policy.protocol import Policy
from dpkit.models.links import Link

__all__ = ["Claim", "Figure", "Found", "Line", "Panel", "Quick", "Row", "beside", "play", "rows", "shortened"]


@dataclass(frozen=True)
class Found:
    """What others found for a line: cumulative regret and seconds of one run; None is not stated."""

    regret: float | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Line:
    """One policy of a panel.

    Attributes
    ----------
    name : str
        Shown; different within a panel.
    policy : str
        A class in :mod:`dpbandits.policies`.
    arguments : mapping
        Its arguments besides its dimensions, ``horizon`` and ``rng``.
    published : Found
        Printed in the paper.
    public_code : Found
        Measured with the code that the policy's authors published, on this workload.
    seeds : int, optional
        A slow policy runs on at most so many seeds.
    drawn : bool
        Whether it is in the picture too.
    """

    name: str
    policy: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    published: Found = Found()
    public_code: Found = Found()
    seeds: int | None = None
    drawn: bool = True

    @property
    def parameters(self) -> str:
        """The parameter set, and every constant that is not its default."""
        known, told = signature(getattr(policies, self.policy)).parameters, dict(self.arguments)
        words = []
        if "parameters" in known:
            words.append(told.pop("parameters", known["parameters"].default))
        if isinstance(told.get("link"), Link):
            words.append(f"link = {told['link'].name}")
        # the task, not the tuning
        for name in ("link", "theta_bound", "budget", "reward_range", "on_violation"):
            told.pop(name, None)
        words += [f"{name} = {value if isinstance(value, str) else f'{value:.4g}'}" for name, value in told.items()]
        return ", ".join(words) or "defaults"


def beside(
    lines: Iterable[Line],
    *,
    published: Mapping[str, Found] | None = None,
    public_code: Mapping[str, Found] | None = None,
    called: Callable[[Line], str] = lambda line: line.name,
) -> tuple[Line, ...]:
    """The lines with what others found beside them, by the names that these are ``called`` there."""
    code, print_ = public_code or {}, published or {}
    return tuple(
        replace(line, public_code=code.get(called(line), Found()), published=print_.get(called(line), Found()))
        for line in lines
    )


@dataclass(frozen=True)
class Panel:
    """Some policies on one environment."""

    title: str
    environment: Environment
    rounds: int
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Claim:
    """A paper's comparison of two of its lines.

    Attributes
    ----------
    said : str
        What the paper says, in a clause that stands after "the paper:".
    line, other : str
        Names of lines; the claim is about the ratio of the first to the second.
    at_most, at_least : float, optional
        What the ratio must be for the claim to be reached. Where the paper has a word ("comparable") and no number, the
        bound is ours.
    measure : {"regret", "seconds"}
    panels : tuple of str
        Titles of the panels that it is about; by default all that have both lines.
    """

    said: str
    line: str
    other: str
    at_most: float = math.inf
    at_least: float = 0.0
    measure: Literal["regret", "seconds"] = "regret"
    panels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Quick:
    """The short form: so many rounds and seeds, without some of the lines."""

    rounds: int
    seeds: int = 2
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class Figure:
    """A published figure or table.

    Attributes
    ----------
    title : str
        What it is, and where it was published.
    panels : tuple of Panel
        Its parts.
    note : str
        What a reader must know: where the published values come from, and what is different here.
    claims : tuple of Claim
        What the paper says in words of its curves, or a table does in numbers, to be held against what was found.
    rival : str
        The line of the paper's own algorithm: which others do better is said.
    quick : Quick
        The short form.
    seeds : int
        Runs per line, but for those of lines with fewer ``seeds`` of their own. (The papers have 10.)
    axis : {"time", "epsilon"}
        What regret is drawn against.
    seconds : bool
        Whether the picture shows the time of a run, too.
    """

    title: str
    panels: tuple[Panel, ...]
    note: str
    quick: Quick
    seeds: int = 30
    axis: Literal["time", "epsilon"] = "time"
    seconds: bool = True
    claims: tuple[Claim, ...] = ()
    rival: str = ""


@dataclass(frozen=True)
class Row:
    """One line of the table: of which panel, what was played, and its row of :meth:`dpbandits.Results.table`.

    ``regrets`` are those of the runs, by seed: the policies of a panel play the same episodes, so that they can be
    compared seed by seed.
    """

    panel: str
    line: Line
    found: Mapping[str, Any]
    regrets: Mapping[int, float] = field(default_factory=dict)

    @property
    def private(self) -> bool:
        """Whether it has a price."""
        return math.isfinite(self.found["epsilon"])

    @property
    def simulation(self) -> bool:
        """Whether its noise was seeded; without noise there is nothing that a seed could give away."""
        return self.private and bool(self.found["simulation"])

    @property
    def seconds(self) -> float:
        """Of one run."""
        return float(self.found["seconds_per_round"] * self.found["rounds"])


def shortened(figure: Figure, *, quick: bool = False, rounds: int | None = None, seeds: int | None = None) -> Figure:
    """The same figure in its quick form, or with other rounds (at most its own) and seeds."""
    most = [] if rounds is None else [integer("rounds", rounds, at_least=1)]
    most += [figure.quick.rounds] if quick else []
    without = figure.quick.without if quick else ()
    panels = tuple(
        replace(
            panel,
            rounds=min([panel.rounds, *most]),
            lines=tuple(line for line in panel.lines if line.name not in without),
        )
        for panel in figure.panels
    )
    if seeds is None:
        seeds = figure.quick.seeds if quick else figure.seeds
    return replace(figure, panels=panels, seeds=integer("seeds", seeds, at_least=1))


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

"""What a reproduced figure is: panels of policies on one environment each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any, Literal

from accounting.checks import integer
from dpbandits import policies
from dpbandits.lab.environments.base import Environment
from dpkit.models.links import Link

__all__ = ["Claim", "Figure", "Found", "Line", "Panel", "Quick", "Row", "beside", "rounded", "shortened"]


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


def rounded(value: float) -> str:
    """A number for a table, in three digits or whole."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


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

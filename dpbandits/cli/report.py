"""Play, print a table, write a plot and a JSON file: the common end of every command."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from dpbandits.cli.options import folder, kept_in, processes
from dpbandits.lab.environments import Environment
from dpbandits.lab.simulation.results import Results, with_error
from dpbandits.lab.simulation.simulate import PolicyFactory, simulate

__all__ = ["play"]

_TRUST = {
    "joint": "joint: the server is trusted, the other rounds are not.",
    "shuffle": "shuffle: nobody is trusted but a shuffler that mixes messages.",
    "local": "local: nobody is trusted.",
}

_SIMULATION = (
    "This was a simulation: seeds make it repeatable, so its noise is predictable and nothing here is a private "
    "release. For real people leave out the seed: a policy made without rng draws its noise from a secure source."
)


def play(
    policies: Mapping[str, PolicyFactory],
    environment: Environment,
    *,
    command: str,
    rounds: int,
    seeds: int,
    jobs: int | None,
    out: Path,
    unit_note: str,
    resume: Path | None = None,
) -> None:
    """Simulate, report, and end the process with code 130 if it was interrupted."""
    from rich.console import Console

    folder(out)
    kept_in(resume)
    try:
        results = simulate(policies, environment, rounds=rounds, seeds=seeds, jobs=processes(jobs), resume=resume)
    except KeyboardInterrupt:
        typer.echo("interrupted before the first run was done; nothing is written", err=True)
        raise typer.Exit(130) from None
    console = Console(highlight=False)
    console.print(f"[bold]{results.caption()}[/bold]\n")
    console.print(_table(results))
    console.print("Reward is per round." + (" ± is one standard error over seeds.\n" if seeds > 1 else "\n"))
    if any(math.isfinite(row["epsilon"]) for row in results.table()):
        console.print(unit_note)
        kinds = {row["trust"] for row in results.table()}
        console.print(*(meaning for kind, meaning in _TRUST.items() if kind in kinds))
        console.print(f"\n{_SIMULATION}")
    saved = results.save(out / f"{command}.json")
    plot = results.plot(out / f"{command}.png")
    console.print(f"\nPlot: {plot.resolve()}\nData: {saved.resolve()}", soft_wrap=True)
    if not results.complete:
        typer.echo(f"interrupted: {len(results.runs)} of {results.planned_runs} runs are kept", err=True)
        raise typer.Exit(130)


def _table(results: Results) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    known = results.metric == "regret"
    # 80 columns hold it
    table = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    table.add_column("policy", no_wrap=True)
    table.add_column("reward" if known else "mean reward", justify="right", no_wrap=True)
    if known:
        table.add_column("regret", justify="right", no_wrap=True)
    table.add_column("ε, δ spent", no_wrap=True)
    table.add_column("trust", no_wrap=True)
    table.add_column("µs/round", justify="right", no_wrap=True)
    for row in results.table():
        private = math.isfinite(row["epsilon"])
        cells = [row["policy"], f"{row['reward']:.3f}" if known else with_error(row["reward"], row["reward_se"])]
        if known:
            cells.append(with_error(row["regret"], row["regret_se"]))
        cells.append(f"{row['epsilon']:.4g}, {row['delta']:g}" if private else "not private")
        cells += [row["trust"] if private else "", f"{1e6 * row['seconds_per_round']:.0f}"]
        table.add_row(*cells)
    return table

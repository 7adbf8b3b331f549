"""What commands print and write: tables, and the end of all that simulate (a table, a plot and a JSON file)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from dpbandits.cli.options import folder, kept_in, processes
from dpbandits.cli.refusals import fail
from dpbandits.lab.environments import Environment
from dpbandits.lab.simulation.results import Results, with_error
from dpbandits.lab.simulation.simulate import PolicyFactory, simulate
from dpkit.cli.options import print_json

__all__ = ["console", "play", "tabled", "unit_note"]

_TRUST = {
    "joint": "joint: the server is trusted, the other rounds are not.",
    "shuffle": "shuffle: nobody is trusted but a shuffler that mixes messages.",
    "local": "local: nobody is trusted.",
}

_SIMULATION = (
    "This was a simulation: seeds make it repeatable, so its noise is predictable and nothing here is a private "
    "release. For real people leave out the seed: a policy made without rng draws its noise from a secure source."
)


def console() -> Any:
    """Where tables and sentences go, as they are: no colours for numbers, and no name of an arm is taken for markup."""
    from rich.console import Console

    return Console(highlight=False, markup=False)


def tabled(
    columns: Mapping[str, Literal["left", "right"]], rows: Iterable[Sequence[str]], *, broken: str | None = None
) -> Any:
    """A table for 80 columns; of the column ``broken`` cells may take several lines."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for name, justify in columns.items():
        # words that are longer than the column are broken, too: their ends may be what tells them apart
        overflow: Literal["fold", "ellipsis"] = "fold" if name == broken else "ellipsis"
        table.add_column(name, justify=justify, no_wrap=name != broken, overflow=overflow)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def unit_note(unit: str, policies: Sequence[str]) -> str:
    """What a table of these policies says of the unit."""
    note = (
        "The unit of privacy is one round, its arms and its reward, not one person: who takes part in several rounds "
        "is protected less."
    )
    if unit == "person":
        note = (
            "The unit of privacy is one person: arms and rewards of all rounds of that person together. Everyone is "
            "served every time; person-private learns from all rounds of everybody, the others from one round of each."
        )
    if "standing-private" in policies:
        note += " standing-private protects rewards alone: arms, and which was shown in which round, must be public."
    return note


def play(
    policies: Mapping[str, PolicyFactory],
    environment: Environment,
    command: str,
    rounds: int,
    unit_note: str,
    *,
    seeds: int,
    jobs: int | None,
    out: Path,
    resume: Path | None = None,
    as_json: bool = False,
) -> None:
    """Simulate, report, and end the process with code 130 if it was interrupted."""
    folder(out)
    kept_in(resume)
    try:
        results = simulate(policies, environment, rounds=rounds, seeds=seeds, jobs=processes(jobs), resume=resume)
    except KeyboardInterrupt:
        fail("interrupted before the first run was done; nothing is written", 130)
    say = console().print
    if not as_json:
        say(results.caption(), style="bold")
        say()
        say(_table(results))
        say("Reward is per round." + (" ± is one standard error over seeds.\n" if seeds > 1 else "\n"))
        if any(math.isfinite(row["epsilon"]) for row in results.table()):
            kinds = {row["trust"] for row in results.table()}
            say(unit_note)
            say(*(meaning for kind, meaning in _TRUST.items() if kind in kinds))
            say(f"\n{_SIMULATION}")
    saved, plot = results.save(out / f"{command}.json"), results.plot(out / f"{command}.png")
    if as_json:
        print_json(
            {
                "caption": results.caption(), "metric": results.metric, "complete": results.complete,
                "simulation": True, "policies": results.table(), "plot": str(plot.resolve()),
                "data": str(saved.resolve()),
            }
        )  # fmt: skip
    else:
        say(f"\nPlot: {plot.resolve()}\nData: {saved.resolve()}", soft_wrap=True)
    if not results.complete:
        fail(f"interrupted: {len(results.runs)} of {results.planned_runs} runs are kept", 130)


def _table(results: Results) -> Any:
    columns: dict[str, Literal["left", "right"]] = {"policy": "left", "mean reward": "right", "ε, δ spent": "left"}
    if known := results.metric == "regret":
        columns = {"policy": "left", "reward": "right", "regret": "right", "ε, δ spent": "left"}
    rows = []
    for row in results.table():
        private = math.isfinite(row["epsilon"])
        cells = [row["policy"], f"{row['reward']:.3f}" if known else with_error(row["reward"], row["reward_se"])]
        cells += [with_error(row["regret"], row["regret_se"])] if known else []
        cells.append(f"{row['epsilon']:.4g}, {row['delta']:g}" if private else "not private")
        rows.append([*cells, row["trust"] if private else "", f"{1e6 * row['seconds_per_round']:.0f}"])
    return tabled(columns | {"trust": "left", "µs/round": "right"}, rows)

"""``dpbandits experiment plan | run | report``: how many persons, what a table says, and a page of it."""

from __future__ import annotations

import json
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Annotated, Literal

import typer

from dpbandits.cli.options import writable
from dpbandits.cli.refusals import Command, Commands
from dpkit.cli.options import Witness, paid_for
from dpkit.cli.printing import spending_ledger

__all__ = ["experiment"]

experiment = typer.Typer(
    cls=Commands, help="A/B/n tests: plan one, analyse one that was run, report.", rich_markup_mode="markdown"
)

_Alpha = Annotated[float, typer.Option(help="Level: the largest probability that a statement is ever wrong.")]
_Range = Annotated[
    tuple[float, float], typer.Option(help="Smallest and largest possible value; public.", metavar="LOW HIGH")
]
_Delta = Annotated[float, typer.Option(help="δ of the budget.")]
_Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object: what to_dict of the plan, or of the results, holds.")
]


@experiment.command(cls=Command)
def plan(
    baseline: Annotated[float, typer.Argument(help="The mean without any change: 0.1 for 10 %.")],
    effect: Annotated[float, typer.Argument(help="The smallest improvement to find: 0.02 for 2 points.")],
    epsilon: Annotated[list[float], typer.Option("--epsilon", "-e", help="ε. Repeat to compare.")] = [0.5, 1.0, 4.0],  # noqa: B006
    delta: _Delta = 0.0,
    alpha: _Alpha = 0.05,
    power: Annotated[float, typer.Option(help="Probability with which the improvement is found.")] = 0.8,
    arms: Annotated[int, typer.Option(help="Number of arms, the baseline among them.")] = 2,
    metric_range: _Range = (0.0, 1.0),
    std: Annotated[
        float | None, typer.Option(help="Standard deviation of a person's value; by default the largest.")
    ] = None,
    as_json: _Json = False,
) -> None:
    """Say how many persons an experiment needs, for every ε and without privacy.

    dpbandits experiment plan 0.10 0.01 -e 0.5 -e 1
    """
    from dpbandits.cli.report import console, tabled
    from dpbandits.experiment import plan as planned

    found = planned(
        baseline,
        effect,
        epsilon=epsilon,
        delta=delta,
        alpha=alpha,
        power=power,
        arms=arms,
        metric_range=metric_range,
        std=std,
    )
    if as_json:
        typer.echo(json.dumps(found.to_dict()))
        return
    head, *rows = found.cells()
    columns: dict[str, Literal["left", "right"]] = dict.fromkeys(head, "right")
    console().print(found.sentence, tabled(columns, rows))


@experiment.command(cls=Command)
def run(
    file: Annotated[Path, typer.Argument(help="A .csv file with a header, or a .parquet file: one person per row.")],
    value: Annotated[
        str, typer.Option(help="Column of the value; an empty cell is a value that never came.")
    ] = "value",
    arm: Annotated[str, typer.Option(help="Column that names the arm.")] = "arm",
    person: Annotated[
        str | None, typer.Option(help="Column that says whose row it is; the first row of each is used.")
    ] = None,
    epsilon: Annotated[float, typer.Option("--epsilon", "-e", help="ε of the release.")] = 1.0,
    delta: _Delta = 0.0,
    alpha: _Alpha = 0.05,
    metric_range: _Range = (0.0, 1.0),
    baseline: Annotated[str | None, typer.Option(help="The arm to compare with; by default the first by name.")] = None,
    missing: Annotated[
        float | None, typer.Option(help="What an empty cell counts as; by default the lower end.")
    ] = None,
    clip: Annotated[bool, typer.Option("--clip", help="Move values outside of the range to its ends.")] = False,
    ledger: Annotated[str | None, typer.Option(help="Record the cost in this ledger, which may refuse it.")] = None,
    witness: Witness = None,
    out: Annotated[Path | None, typer.Option(help="Write the results to this .json file, for report.")] = None,
    as_json: _Json = False,
) -> None:
    """Analyse an experiment that was run: persons who were split at random, each with an arm and a value.

    dpbandits experiment run test.csv --value bought --arm variant --person id -e 1 --out test.json

    **What is protected** is each person's value (each row's, without --person). Who took part, and in which arm, counts
    as public: the split must have been made at random. Each run of this command is a release, with fresh noise.
    """
    import numpy as np

    from accounting import Budget
    from dpbandits.cli.report import console, tabled
    from dpbandits.experiment import analyse
    from dpbandits.lab.tables import Table

    if out is not None:  # before anything is released
        writable(out, ".json", read=(file, ledger, witness))
    table = Table(file)
    table.require([value, arm, *([] if person is None else [person])])
    codes, names = table.codes(arm)
    low, _ = metric_range
    found = table.numbers([value], default=low if missing is None else missing)[:, 0]
    whose = None if person is None else table.persons(person)
    table.complain()
    budget = Budget(epsilon, delta, unit="row" if person is None else "person")
    kept = spending_ledger(ledger, witness)
    with nullcontext() if kept is None else closing(kept):
        results = analyse(
            found,
            np.array(names)[codes].tolist(),
            budget=budget,
            persons=whose,
            metric=value,
            metric_range=metric_range,
            alpha=alpha,
            baseline=baseline,
            missing=missing,
            clip=clip,
            ledger=kept,
            label=f"experiment run {file.name}, {value}",
        )
    say = console().print
    # shown first: what has been paid for is not lost where it cannot be written
    with paid_for(results.to_json):
        if as_json:
            typer.echo(results.to_json())
        else:
            # those that 80 columns have room for, if names take several lines
            head, *rows = ([*row[:2], *row[3:7]] for row in results.cells())
            head[4] = "less baseline"
            say(results.verdict, tabled(dict.fromkeys(head, "left"), rows, broken=head[0]))
            say(results.spent + ".")
    if out is not None:
        results.to_json(out)
        if not as_json:
            say(f"Data: {out.resolve()}", soft_wrap=True)


@experiment.command(cls=Command)
def report(
    source: Annotated[
        Path, typer.Argument(help="A saved experiment, its checkpoint, or the .json file of its results.")
    ],
    out: Annotated[Path, typer.Option(help="The page to write; the data go beside it, as .json.")] = Path(
        "experiment.html"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object: verdict, page, data.")] = False,
) -> None:
    """Write what an experiment has found as a page, and as JSON beside it.

    dpbandits experiment report test.state --out test.html

    A state is read as it was saved: nothing is released, and the experiment can go on.
    """
    from dpbandits.cli.report import console
    from dpbandits.experiment import Experiment, ExperimentResults

    writable(out, ".html", read=(source,))
    if not source.is_file():
        raise FileNotFoundError(f"there is no file {source}")
    if source.suffix in (".csv", ".parquet"):
        raise ValueError(f"source must hold results, got the table {source}: analyse it by dpbandits experiment run")
    with source.open("rb") as file:
        plain = file.read(1) == b"{"
    results = ExperimentResults.from_json(source.read_bytes()) if plain else Experiment.results_in(source)
    page, data = results.to_html(out), out.with_suffix(".json")
    if data.resolve() != source.resolve():
        results.to_json(data)
    if as_json:
        typer.echo(json.dumps({"verdict": results.verdict, "page": str(page.resolve()), "data": str(data.resolve())}))
        return
    say = console().print
    say(results.verdict)
    say(f"Page: {page.resolve()}\nData: {data.resolve()}", soft_wrap=True)

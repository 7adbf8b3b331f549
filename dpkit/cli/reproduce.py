"""``dpkit reproduce``: published tables, computed again and written as Markdown, CSV and a picture."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from dpkit.cli.options import print_json

__all__ = ["reproduce_command"]

_TABLES = ("table-5-1", "figure-5-2", "figure-5-3", "dp-ftrl", "regret")


def reproduce_command(
    table: Annotated[str, typer.Argument(help=f"One of: {', '.join(_TABLES)}.")],
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("."),
    quick: Annotated[bool, typer.Option("--quick", help="A part of the table: a minute instead of an hour.")] = False,
    seeds: Annotated[int, typer.Option(help="Independent data sets and runs per cell.", min=1)] = 10,
    jobs: Annotated[int, typer.Option(help="Processes.", min=1)] = os.cpu_count() or 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object: table, rows (as in the CSV file), files.")
    ] = False,
) -> None:
    """Run a table again and write it, with the published numbers beside ours where there are any.

    Writes table-5-1.md, .csv and .png, or the name of another table with the same endings.

    The CSV file is written after every line: after an interruption the same command goes on from it.

    With --quick: T = 1000, d in {5, 20}, three seeds, less tuning; for dp-ftrl digits only; for others short streams.

    dpkit reproduce table-5-1 --quick
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.text import Text

    from dpkit.reproduce import convex_curves, dp_ftrl, regret, table_5_1

    console = Console(stderr=True)
    if table not in _TABLES:
        console.print(Text(f"dpkit: table must be one of {', '.join(_TABLES)}, got {table!r}", style="red"))
        raise typer.Exit(2)
    made: Any = {
        "table-5-1": table_5_1,
        "figure-5-2": convex_curves.FIGURE_5_2,
        "figure-5-3": convex_curves.FIGURE_5_3,
        "dp-ftrl": dp_ftrl,
        "regret": regret,
    }[table]
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        said = f"dpkit: --out must be a folder that can be made, got {str(out)!r}: {error.strerror}"
        console.print(Text(said, style="red"), soft_wrap=True)
        raise typer.Exit(2) from None
    saved = out / f"{table}.csv"

    def keep(rows: list[Any], total: int) -> None:
        part = saved.with_suffix(".csv.part")
        part.write_text(made.to_csv(rows), encoding="utf-8")
        part.replace(saved)  # at once, so that an interruption leaves the last whole file
        bar.update(lines, completed=len(rows), total=total)

    try:
        done = made.from_csv(saved.read_text(encoding="utf-8")) if saved.exists() else []
        made.check_done(done, seeds=seeds, quick=quick)
    except ValueError as error:
        console.print(Text(f"dpkit: {saved} is not a table to go on from: {error}", style="red"))
        raise typer.Exit(2) from None
    columns = (TextColumn("lines"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        lines = bar.add_task("lines", total=None)
        try:
            rows = made.run(quick=quick, seeds=seeds, jobs=jobs, done=done, progress=keep)
        except KeyboardInterrupt:
            kept = f"the lines that are done are in {saved}" if saved.exists() else "no line was done"
            console.print(f"dpkit: interrupted: {kept}, and the same command goes on from there", highlight=False)
            raise typer.Exit(130) from None
        keep(rows, len(rows))
    markdown = made.to_markdown(rows)
    (out / f"{table}.md").write_text(markdown, encoding="utf-8")
    made.picture(rows, out / f"{table}.png")
    if as_json:
        rows_read = list(csv.DictReader(io.StringIO(made.to_csv(rows))))
        print_json(
            {"table": table, "rows": rows_read, "files": [f"{out / table}.{kind}" for kind in ("md", "csv", "png")]}
        )
        return
    typer.echo(markdown)
    console.print(f"Written to {out / table}.md, .csv and .png", highlight=False)

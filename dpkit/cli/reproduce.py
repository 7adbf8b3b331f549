"""``dpkit reproduce``: published tables, computed again and written as Markdown, CSV and a picture."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["reproduce_command"]

_TABLES = ("table-5-1",)


def reproduce_command(
    table: Annotated[str, typer.Argument(help=f"One of: {', '.join(_TABLES)}.")],
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("."),
    quick: Annotated[bool, typer.Option("--quick", help="A part of the table: a minute instead of an hour.")] = False,
    seeds: Annotated[int, typer.Option(help="Independent data sets and runs per cell.", min=1)] = 10,
    jobs: Annotated[int, typer.Option(help="Processes.", min=1)] = os.cpu_count() or 1,
) -> None:
    """Run a published table again and write it with the published numbers beside ours.

    Writes table-5-1.md, table-5-1.csv and table-5-1.png. The CSV file is written after every line of the table: a run
    that was interrupted goes on from it when the same command is given again. With --quick: T = 1000, d in {5, 20},
    three seeds and a shorter tuning.

    dpkit reproduce table-5-1 --quick
    """
    from rich.console import Console
    from rich.text import Text

    from dpkit.reproduce import table_5_1

    console = Console(stderr=True)
    if table not in _TABLES:
        console.print(Text(f"dpkit: table must be one of {', '.join(_TABLES)}, got {table!r}", style="red"))
        raise typer.Exit(2)
    out.mkdir(parents=True, exist_ok=True)
    saved = out / f"{table}.csv"

    def keep(rows: list[table_5_1.Row]) -> None:
        part = saved.with_suffix(".csv.part")
        part.write_text(table_5_1.to_csv(rows), encoding="utf-8")
        part.replace(saved)  # at once, so that an interruption leaves the last whole file
        status.update(f"{len(rows)} lines of the table are done")

    try:
        done = table_5_1.from_csv(saved.read_text(encoding="utf-8")) if saved.exists() else []
        table_5_1.check_done(done, seeds=seeds, quick=quick)
    except ValueError as error:
        console.print(Text(f"dpkit: {saved} is not a table to go on from: {error}", style="red"))
        raise typer.Exit(2) from None
    with console.status("running") as status:
        rows = table_5_1.run(quick=quick, seeds=seeds, jobs=jobs, done=done, progress=keep)
        keep(rows)
    markdown = table_5_1.to_markdown(rows)
    (out / f"{table}.md").write_text(markdown, encoding="utf-8")
    table_5_1.picture(rows, out / f"{table}.png")
    typer.echo(markdown)
    console.print(f"Written to {out / table}.md, .csv and .png", highlight=False)

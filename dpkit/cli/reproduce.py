"""``dpkit reproduce``: published tables, computed again and written as Markdown, CSV and a picture."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from dpkit.reproduce import table_5_1

__all__ = ["reproduce_command"]

_TABLES = ("table-5-1",)


def reproduce_command(
    table: Annotated[str, typer.Argument(help=f"One of: {', '.join(_TABLES)}.")],
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("."),
    quick: Annotated[bool, typer.Option("--quick", help="A part of the table: minutes instead of hours.")] = False,
    seeds: Annotated[int, typer.Option(help="Independent data sets and runs per cell.", min=1)] = 10,
    jobs: Annotated[int, typer.Option(help="Processes.", min=1)] = os.cpu_count() or 1,
) -> None:
    """Run a published table again and write it with the published numbers beside ours.

    Writes table-5-1.md, table-5-1.csv and table-5-1.png.

    dpkit reproduce table-5-1 --quick
    """
    console = Console(stderr=True)
    if table not in _TABLES:
        console.print(Text(f"dpkit: table must be one of {', '.join(_TABLES)}, got {table!r}", style="red"))
        raise typer.Exit(2)
    out.mkdir(parents=True, exist_ok=True)
    with console.status("running") as status:
        rows = table_5_1.run(
            quick=quick,
            seeds=seeds,
            jobs=jobs,
            progress=lambda row: status.update(f"T = {row.T}, d = {row.d}, p = {row.p:g}: {row.algorithm} done"),
        )
    markdown = table_5_1.to_markdown(rows)
    (out / f"{table}.md").write_text(markdown, encoding="utf-8")
    (out / f"{table}.csv").write_text(table_5_1.to_csv(rows), encoding="utf-8")
    table_5_1.picture(rows, out / f"{table}.png")
    typer.echo(markdown)
    console.print(f"Written to {out / table}.md, .csv and .png", highlight=False)

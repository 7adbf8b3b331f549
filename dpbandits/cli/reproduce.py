"""``dpbandits reproduce FIGURE``: published figures and tables, computed again."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from shutil import copyfile
from typing import Annotated

import typer

from dpbandits.cli.options import Jobs, folder, processes
from dpbandits.cli.refusals import fail
from dpbandits.reproduce import FIGURES, SLOPES

__all__ = ["HELP", "reproduce"]

HELP = "\n\n".join(
    [
        "Run a published figure or table again, with what was published beside it.",
        *(f"**{name}**: {line}" for name, (_, line) in FIGURES.items()),
        f"**{SLOPES}**: how regret, error and time grow with T, d, K, ε and κ, beside the theorems' exponents",
        "Writes a table (.md and .csv) and a picture (.png). Every line of the table says its parameters, its trust "
        "model and the (ε, δ) it has spent. Every run is kept in a .jsonl file as it ends: after Ctrl-C the same "
        "command goes on where it stopped. Delete these files to start anew.",
        "**--quick** takes less than two minutes on two cores, with fewer rounds and seeds, and the output says what "
        "was shortened. A full figure takes from two minutes to an hour on one core.",
    ]
)


def reproduce(
    figure: Annotated[str, typer.Argument(help="One of the names above.", show_default=False)],
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rounds and seeds.")] = False,
    seeds: Annotated[int | None, typer.Option(help="Runs per policy; by default as published.")] = None,
    rounds: Annotated[int | None, typer.Option(help="T, if fewer rounds than published are wanted.")] = None,
    jobs: Jobs = None,
    out: Annotated[Path, typer.Option(help="Folder for what is written.")] = Path(),
    table: Annotated[
        Path | None,
        typer.Option(help="Data of your own in place of what is bundled: covtype.data for glb-omd-figure-4."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object: figure, complete, rows (as in the CSV file), files.")
    ] = False,
    docs: Annotated[
        Path | None, typer.Option(help="The docs folder of a checkout: the figure's part of its page is written anew.")
    ] = None,
) -> None:
    if figure == SLOPES:
        if rounds is not None or table is not None:
            raise ValueError(f"rounds and table must be left out with {SLOPES}: a sweep has its own rounds")
        _slopes(quick, seeds, processes(jobs), out, as_json, docs)
        return
    from dpbandits.reproduce import load
    from dpbandits.reproduce.figure import shortened
    from dpbandits.reproduce.page import PAGE, image_at, publish
    from dpbandits.reproduce.played import play, rows
    from dpbandits.reproduce.report import picture, to_csv, to_markdown

    whole = load(figure, table)
    part = shortened(whole, quick=quick, rounds=rounds, seeds=seeds)
    if docs is not None and (quick or rounds is not None or table is not None):
        raise ValueError("docs must be left out with --quick, --rounds and --table: the page has whole figures")
    if docs is not None and not (docs / PAGE).is_file():
        raise ValueError(f"docs must be a folder with the page {PAGE}, got docs={str(docs)!r}")
    folder(out)
    # runs on the user's data are kept apart from those on what is bundled
    name = figure if table is None else f"{figure}-{table.name.partition('.')[0]}"
    try:
        played = play(part, jobs=processes(jobs), keep=out / name)
    except KeyboardInterrupt:
        fail("interrupted before the first run was done; nothing is written", 130)
    found = rows(part, played)
    markdown = to_markdown(part, found, whole)
    (out / f"{name}.md").write_text(markdown, encoding="utf-8")
    (out / f"{name}.csv").write_text(to_csv(found), encoding="utf-8")
    picture(part, played, found, out / f"{name}.png")
    if as_json:
        from dpkit.cli.options import print_json

        files = [f"{out / name}.{kind}" for kind in ("md", "csv", "png")]
        whole_played = len(played) == len(part.panels) and played[-1].complete
        listed = list(csv.DictReader(io.StringIO(to_csv(found))))
        print_json({"figure": figure, "complete": whole_played, "rows": listed, "files": files})
    else:
        typer.echo(markdown)
    typer.echo(f"Written to {out / name}.md, .csv and .png; runs in {name}-*.jsonl", err=True)
    if len(played) < len(part.panels) or not played[-1].complete:
        fail("interrupted: what is done is kept, and the same command goes on from there", 130)
    if docs is not None:
        publish(docs, figure, found)
        copyfile(out / f"{name}.png", image_at(docs, figure))


def _slopes(quick: bool, seeds: int | None, jobs: int, out: Path, as_json: bool, docs: Path | None) -> None:
    """Every sweep; what is done is kept in ``out/slopes``."""
    from accounting.checks import integer
    from dpbandits.reproduce.grids import shortened, sweeps
    from dpbandits.reproduce.slopes import PAGE, QUICK_SEEDS, SEEDS, measured, publish, table, to_rows

    if docs is not None and (quick or not (docs / PAGE).is_file()):
        raise ValueError(f"docs must be a folder with the page {PAGE}, and left out with --quick, got {str(docs)!r}")
    count = integer("seeds", seeds if seeds is not None else QUICK_SEEDS if quick else SEEDS, at_least=1)
    kept = out / ("slopes-quick" if quick else SLOPES)
    folder(kept)
    found = []
    try:
        for sweep in map(shortened, sweeps()) if quick else sweeps():
            found.append((sweep, measured(sweep, seeds=count, jobs=jobs, kept=kept)))
    except KeyboardInterrupt:
        fail("interrupted: what is done is kept, and the same command goes on from there", 130)
    markdown = table(found)
    if quick:
        markdown += f"\n\n**Shortened:** three values of each grid, a tenth of the rounds, {count} of {SEEDS} seeds."
    (out / f"{SLOPES}.md").write_text(markdown + "\n", encoding="utf-8")
    if as_json:
        from dpkit.cli.options import print_json

        print_json({"figure": SLOPES, "rows": to_rows(found), "files": [f"{out / SLOPES}.md"]})
    else:
        typer.echo(markdown)
    if docs is not None:
        publish(docs, found)

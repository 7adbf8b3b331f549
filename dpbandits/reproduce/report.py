"""A reproduced figure on paper: Markdown and CSV tables, and a picture, with the published values beside ours."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from dpbandits._extras import need
from dpbandits.lab.simulation.results import Results, with_error
from dpbandits.lab.simulation.runs import Run
from dpbandits.reproduce.confront import confronted
from dpbandits.reproduce.figure import Figure, Panel, Row, rounded

__all__ = ["picture", "tables", "to_csv", "to_markdown"]

_SIMULATION = (
    "*simulation*: the noise came from a seeded generator, so that runs can be repeated; nothing here is a private "
    "release."
)


def _value(value: float | None) -> str:
    return "" if value is None else rounded(value)


def _privacy(row: Row) -> str:
    if not row.private:
        return "not private"
    spent = f"{row.found['trust']} ({row.found['epsilon']:.4g}, {row.found['delta']:g})"
    return spent + (", *simulation*" if row.simulation else "")


_COLUMNS: dict[str, Callable[[Row], str]] = {
    "policy": lambda row: row.line.name,
    "parameters": lambda row: row.line.parameters,
    "trust, (ε, δ) spent": _privacy,
    "regret": lambda row: with_error(row.found["regret"], row.found["regret_se"]),
    "published regret": lambda row: _value(row.line.published.regret),
    "public code, regret": lambda row: _value(row.line.public_code.regret),
    "exponent": lambda row: "" if math.isnan(row.found["exponent"]) else f"{row.found['exponent']:.2f}",
    "seeds": lambda row: str(row.found["seeds"]),
    "s/run": lambda row: f"{row.seconds:.2g}",
    "published s/run": lambda row: _value(row.line.published.seconds),
    "public code, s/run": lambda row: _value(row.line.public_code.seconds),
}
_NUMBERS = ("regret", "exponent", "seeds", "s/run")


def to_markdown(figure: Figure, table: Sequence[Row], whole: Figure) -> str:
    """The table as text for readers, panel by panel; columns that say nothing are left out.

    Parameters
    ----------
    figure : Figure
        What was run.
    table : sequence of Row
        What was found.
    whole : Figure
        The figure in full, to say what was shortened.
    """
    cuts = _cuts(figure, whole)
    # what a paper says of its rounds cannot be held against fewer
    parts = [f"## {figure.title}", "" if cuts else confronted(figure, table), figure.note]
    if cuts:
        parts.append(f"**Shortened:** {'; '.join(cuts)}. What is quoted beside it is for the full figure.")
    parts.append(
        "Regret: mean ± standard error over the seeds; exponent: b of regret ∝ t^b from T/4 to T; s/run: seconds in "
        "the policy, for all rounds together."
    )
    if any(row.simulation for row in table):
        parts.append(_SIMULATION)
    parts += tables(table)
    planned = [line for panel in figure.panels for line in panel.lines]
    expected = sum(min(figure.seeds, line.seeds or figure.seeds) for line in planned)
    done = sum(row.found["seeds"] for row in table)
    if done < expected:
        parts.append(f"**INCOMPLETE:** {done} of {expected} runs.")
    return "\n\n".join(part for part in parts if part) + "\n"


def tables(table: Sequence[Row]) -> Iterator[str]:
    """The tables alone, one for each panel."""
    for panel, group in groupby(table, lambda row: row.panel):
        shown = list(group)
        cells = {head: [cell(row) for row in shown] for head, cell in _COLUMNS.items()}
        heads = [head for head, column in cells.items() if any(column)]
        lines = [f"### {panel}, T = {shown[0].found['rounds']:,}", "", f"| {' | '.join(heads)} |"]
        lines.append("|" + "|".join("---:" if head.endswith(_NUMBERS) else "---" for head in heads) + "|")
        lines += [f"| {' | '.join(line)} |" for line in zip(*(cells[head] for head in heads), strict=True)]
        yield "\n".join(lines)


def _cuts(figure: Figure, whole: Figure) -> list[str]:
    cuts = []
    rounds, full = ({panel.rounds for panel in one.panels} for one in (figure, whole))
    if rounds != full:
        cuts.append(f"T = {_listed(rounds)} instead of {_listed(full)}")
    if figure.seeds < whole.seeds:
        cuts.append(f"{figure.seeds} seed{'s' if figure.seeds > 1 else ''} instead of {whole.seeds}")
    kept, all_ = ([line.name for panel in one.panels for line in panel.lines] for one in (figure, whole))
    left_out = dict.fromkeys(name for name in all_ if name not in kept)
    if left_out:
        cuts.append(f"without {', '.join(left_out)}")
    return cuts


def _listed(numbers: set[int]) -> str:
    return " and ".join(f"{number:,}" for number in sorted(numbers))


def to_csv(table: Sequence[Row]) -> str:
    """All columns, one line per row; what is not known is empty."""
    text = io.StringIO()
    lines = [_plain(row) for row in table]
    writer = csv.DictWriter(text, lines[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: "" if value is None else value for name, value in line.items()} for line in lines)
    return text.getvalue()


def _plain(row: Row) -> dict[str, Any]:
    plain: dict[str, Any] = {"panel": row.panel, "policy": row.line.name, "parameters": row.line.parameters}
    plain |= {"privacy": row.found["trust"] if row.private else "not private"}
    plain |= {name: row.found[name] for name in ("epsilon", "delta")} | {"simulation": row.simulation}
    plain |= {name: row.found[name] for name in ("rounds", "seeds", "regret", "regret_se", "exponent")} | {
        "seconds": row.seconds
    }
    for source, found in (("published", row.line.published), ("public_code", row.line.public_code)):
        plain |= {f"{source}_regret": found.regret, f"{source}_seconds": found.seconds}
    return plain


def picture(figure: Figure, played: Sequence[Results], table: Sequence[Row], path: Path) -> None:
    """The panels, regret against rounds or ε, and the seconds of a run on a logarithmic axis; written to ``path``."""
    need("matplotlib", "plotting")
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Canvas
    from matplotlib.ticker import MaxNLocator

    from dpbandits.lab.simulation.plots import STYLE

    drawn = []
    for panel, results in zip(figure.panels, played, strict=False):
        names = {line.name for line in panel.lines if line.drawn}
        # an interrupted panel may have nothing else yet
        runs = tuple(run for run in results.runs if run.policy in names) or results.runs
        if figure.axis == "epsilon":
            runs = tuple(_at_the_claim(panel, run) for run in runs)
        drawn.append(replace(results, runs=runs + tuple(_published(panel, runs))))
    count = len(drawn) + figure.seconds
    columns = 2 if count == 4 else min(3, count)
    lines = -(-count // columns)
    with rc_context(STYLE):
        canvas = Canvas(figsize=(5.3 * columns, 4.2 * lines + 0.2), dpi=80, layout="constrained")
        axes = canvas.subplots(lines, columns, squeeze=False).ravel()
        for ax in axes[count:]:
            ax.set_visible(False)
        for panel, results, ax in zip(figure.panels, drawn, axes, strict=False):
            if figure.axis == "epsilon" and any(math.isfinite(run.privacy.epsilon) for run in results.runs):
                results.plot_epsilon(ax, band="se")
                # as asked for: what was spent may be a hair less, and its ticks would overlap
                ax.set_xticks(
                    sorted({line.arguments["budget"].epsilon for line in panel.lines if "budget" in line.arguments})
                )
            else:
                results.plot_time(ax, band="se")
                ax.xaxis.set_major_locator(MaxNLocator(5))
            ax.set_title(panel.title)
        if figure.seconds:
            _seconds(table, axes[count - 1])
        said = f"{figure.title}; bands: ± 1 standard error over the seeds"
        if any(row.simulation for row in table):
            said += "; seeded simulation: not a private release"
        canvas.supxlabel(said, x=0.01, ha="left", fontsize=8, color="#5f6368")
        canvas.savefig(path)


def _at_the_claim(panel: Panel, run: Run) -> Run:
    """An algorithm as published is drawn at the ε that its paper claims, although it has no price."""
    line = next(line for line in panel.lines if line.name == run.policy)
    if "budget" not in line.arguments or math.isfinite(run.privacy.epsilon):
        return run
    privacy = replace(run.privacy, epsilon=line.arguments["budget"].epsilon, delta=line.arguments["budget"].delta)
    return replace(run, algorithm=f"{line.policy} as published", privacy=privacy)


def _published(panel: Panel, runs: Sequence[Run]) -> Iterator[Run]:
    """What was published of private policies, as runs of one round, so that it is drawn against ε like ours."""
    lines = {line.name: line for line in panel.lines}
    drawn: set[float] = set()
    for run in runs:
        budget, regret = lines[run.policy].arguments.get("budget"), lines[run.policy].published.regret
        if budget is not None and regret is not None and budget.epsilon not in drawn:
            drawn.add(budget.epsilon)
            name, nothing = f"published, ε = {budget.epsilon:g}", np.zeros(1)
            privacy = replace(run.privacy, epsilon=budget.epsilon)
            yield Run(name, "published", run.seed, run.round[-1:], nothing, np.array([regret]), nothing, privacy)


def _seconds(table: Sequence[Row], ax: Any) -> None:
    """Bars, one per line and panel; crosses for what was published."""
    from matplotlib.ticker import NullFormatter

    from dpbandits.lab.simulation.plots import COLOURS

    shown = [row for row in table if row.line.drawn] or list(table)
    names = list(dict.fromkeys(row.line.name for row in shown))
    panels = list(dict.fromkeys(row.panel for row in shown))
    height = 0.8 / len(panels)
    for i, panel in enumerate(panels):
        mine = [row for row in shown if row.panel == panel]
        at = [names.index(row.line.name) + (i - (len(panels) - 1) / 2) * height for row in mine]
        ax.barh(at, [row.seconds for row in mine], 0.9 * height, color=COLOURS[i % len(COLOURS)], label=panel)
        for y, row in zip(at, mine, strict=True):
            ax.text(row.seconds * 1.1, y, f"{row.seconds:.2g}", va="center", fontsize=7)
            if row.line.published.seconds is not None:
                ax.plot(row.line.published.seconds, y, "x", color="black")
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set_xscale("log")
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.margins(x=0.15)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("seconds per run (log scale)")
    ax.set_title("Running time" + (" (×: published)" if any(row.line.published.seconds for row in shown) else ""))
    if len(panels) > 1:
        ax.legend(fontsize=8, frameon=False)

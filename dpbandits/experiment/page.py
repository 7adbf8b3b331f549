"""Results as one page of HTML that needs nothing else, and as a picture.

The page has the style of the ledger's report (``dpkit report``): no script, nothing loaded, readable in light and dark.
"""

from __future__ import annotations

import math
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from accounting.printed import axes_of, written
from accounting.text import printable
from dpbandits._extras import need

if TYPE_CHECKING:
    from dpbandits.experiment.results import ExperimentResults

__all__ = ["drawn", "page"]

_WIDTH, _RIGHT, _ROW, _TOP = 720, 40, 34, 14
# of a letter, and beside a name
_LETTER, _BESIDE = 8, 24
# as wide as the table is, but no wider lines; four facts in one row where there is room; an interval in one line, an
# arm's name in several
_STYLE = (
    "main{max-width:60rem}section p{max-width:44rem}"
    ".facts{grid-template-columns:repeat(auto-fit,minmax(8.5rem,1fr))}"
    "table.wide{font-size:.84rem;font-variant-numeric:tabular-nums}table.wide td{white-space:nowrap}"
    "table.wide td:first-child{white-space:normal;min-width:9rem;overflow-wrap:anywhere}"
)
_COLOURS = ("#0b63a8", "#b5530a", "#0f7f6c", "#8a3fa0", "#5c5f66", "#a3211a", "#6b4d00", "#3d7a1f")

_READING = (
    "Each row has an arm's mean and its interval. All intervals together hold the means, and all differences together "
    "the differences, with probability at least 1 − α, <b>at all times at once</b>: looking often, or stopping because "
    "of what was seen, costs nothing of it. The noise that protects people is taken into account. Which arm is best is "
    "a statement of its own, and may be known before an interval of a difference leaves 0.",
    "A mean is over decisions in released batches. A decision whose value did not come in time counts as {missing}. "
    "The statements need values of different decisions that are independent, and one mean for all of an arm's "
    "decisions; if that drifts, an interval holds for its average, and arms that were not shown evenly over time are "
    "not comparable.",
    "An e-value against “not better than the baseline” ever reaches 1/α with probability at most α, if that is true. "
    "The column “best (model)” is a model's word, a posterior of normal means: for orientation, with no error rate.",
)


def _text(words: str) -> str:
    return escape(printable(words))


def page(results: ExperimentResults) -> str:
    """The page."""
    own = results.setting
    style = "good" if results.best is not None else "open"
    warning = ""
    if results.simulation:
        warning = " The noise came from a seeded generator: this is a simulation, not a private release."
        style = "open"
    total = sum(results.assigned.values())
    facts = [
        ("Decisions", f"{total:,}", f"of {own.horizon:,}, {own.assignment} assignment"),
        ("Released", f"{sum(results.counted.values()):,}", "of them are in released batches"),
        ("Level", f"α = {own.alpha:g}", "of each metric, at all times"),
        ("State", "ended" if results.stopped else "running", results.stopped),
    ]
    cards = "".join(
        f"<div><dt>{_text(title)}</dt><dd>{_text(value)}<small>{_text(note)}</small></dd></div>"
        for title, value, note in facts
    )
    reading = "".join(f"<p>{text.format(missing=f'{own.missing:g}')}</p>" for text in _READING)
    style_sheet = files("dpkit").joinpath("cli/page.css").read_text(encoding="utf-8")
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>Experiment: {_text(', '.join(own.arms))}</title><style>{style_sheet}{_STYLE}</style></head><body>"
        f"<main><header><h1>Experiment</h1><p class='verdict {style}'>{_text(results.verdict + warning)}</p></header>"
        f"<section><dl class='facts'>{cards}</dl><p class='head'>{_text(results.spent)}</p></section>"
        f"{''.join(_metric(one) for one in results.metrics.values())}"
        f"<section><h2>How to read this</h2>{reading}</section></main></body></html>\n"
    )


def _metric(results: ExperimentResults) -> str:
    """A picture of intervals and a table."""
    head, *rows = results.cells()
    table = "".join(f"<th>{_text(cell)}</th>" for cell in head)
    table = f"<thead><tr>{table}</tr></thead><tbody>"
    table += "".join("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows) + "</tbody>"
    own = results.setting
    name = f"{own.metric}, in [{own.low:g}, {own.high:g}]"
    return (
        f"<section><h2>Means and intervals: {_text(name)}</h2><div class='scroll'>{_forest(results)}</div>"
        f"<div class='scroll'><table class='wide'>{table}</table></div></section>"
    )


def _forest(results: ExperimentResults) -> str:
    """Every arm's interval as a bar, its mean as a point."""
    ends = results.intervals
    ticks = _ticks(min(low for low, _ in ends.values()), max(high for _, high in ends.values()))
    least, most = ticks[0][0], ticks[-1][0]
    bottom = _TOP + _ROW * len(results.arms)
    names = [arm if len(arm) <= 20 else f"{arm[:19]}…" for arm in results.arms]
    left = _BESIDE + _LETTER * max(map(len, names))

    def px(value: float) -> float:
        return left + (value - least) / (most - least) * (_WIDTH - left - _RIGHT)

    parts = [f'<svg viewBox="0 0 {_WIDTH} {bottom + 30}" role="img" aria-label="Interval of each arm\'s mean">']
    for value, text in ticks:
        x = px(value)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{bottom}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{text}</text>')
    for row, arm in enumerate(results.arms):
        y, (low, high), mean = _TOP + _ROW * (row + 0.5), ends[arm], results.means[arm]
        parts.append(
            f'<text class="label" x="{left - 12}" y="{y + 4:.1f}" text-anchor="end">{_text(names[row])}</text>'
        )
        parts.append(f'<line class="line" x1="{px(low):.1f}" x2="{px(high):.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        if results.counted[arm]:
            parts.append(f'<circle class="point" cx="{px(mean):.1f}" cy="{y:.1f}" r="4.5"/>')
    return "".join(parts) + "</svg>"


def _ticks(least: float, most: float) -> list[tuple[float, str]]:
    """Round values, in equal steps, from at most ``least`` to at least ``most``, and how they are written.

    Examples
    --------
    >>> _ticks(0.0846, 0.183)
    [(0.08, '0.08'), (0.1, '0.10'), (0.12, '0.12'), (0.14, '0.14'), (0.16, '0.16'), (0.18, '0.18'), (0.2, '0.20')]
    >>> [text for _, text in _ticks(-300.0, 1250.0)]
    ['-500', '0', '500', '1,000', '1,500']
    """
    decade = math.floor(math.log10(most - least))
    # of three and more steps the longest
    part = max(part for part in (0.2, 0.5, 1.0, 2.0) if part * 10.0**decade <= (most - least) / 3.0)
    step, digits = part * 10.0**decade, max(0, (part < 1.0) - decade)
    first, last = math.floor(least / step + 1e-9), math.ceil(most / step - 1e-9)
    return [(round(k * step, digits + 2), f"{k * step:,.{digits}f}") for k in range(first, last + 1)]


def drawn(results: ExperimentResults, target: Any) -> Any:
    """Each arm's interval against the number of decisions, on axes, in a new figure, or in a file."""
    need("matplotlib", "plotting")
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    def new() -> Any:
        return Figure(figsize=(7.2, 4.4), dpi=150, layout="constrained").subplots()

    ax: Any = axes_of(target, "plotting", new)
    shown = []
    for k, (arm, path) in enumerate(results.history().items()):
        colour = _COLOURS[k % len(_COLOURS)]
        ax.plot(path["decisions"], path["mean"], color=colour, linewidth=1.6, label=arm)
        ax.fill_between(path["decisions"], path["low"], path["high"], color=colour, alpha=0.15, linewidth=0)
        shown += [*path["low"][len(path["low"]) // 4 :], *path["high"][len(path["high"]) // 4 :]]
    if shown:
        pad = 0.05 * (max(shown) - min(shown))
        ax.set_ylim(min(shown) - pad, max(shown) + pad)
        ax.legend(frameon=False)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    ax.set_xlabel("decisions")
    ax.set_ylabel("mean, and its interval at all times")
    ax.set_title(results.verdict, fontsize=10, wrap=True)
    return written(ax, target)

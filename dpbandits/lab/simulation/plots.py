"""Plots of results: regret or reward against time, and against ε. Drawn without a display; needs matplotlib."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from accounting.arrays import Array
from accounting.checks import choice
from accounting.printed import axes_of
from dpbandits._extras import need

if TYPE_CHECKING:
    from dpbandits.lab.price_table import PriceTable
    from dpbandits.lab.simulation.results import Metric, Results

__all__ = ["COLOURS", "STYLE", "draw", "draw_prices"]

# Okabe & Ito (2008): told apart with any colour vision
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_GREY = "#5f6368"
STYLE = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _GREY,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "xtick.color": _GREY,
    "ytick.color": _GREY,
}


def draw(
    results: Results,
    target: Any,
    panels: Sequence[Literal["time", "epsilon"]],
    metric: Metric | None = None,
    band: Literal["95%", "se"] = "95%",
) -> Any:
    """Draw one panel on the axes ``target``, or the panels side by side into the file ``target`` or a new figure.

    Returns
    -------
    The axes, or the path.
    """
    shown: Metric = choice("metric", results.metric if metric is None else metric, "reward", "regret")
    if shown == "regret" and results.metric != "regret":
        raise ValueError("metric must be 'reward' where regret is unknown, got metric='regret'")
    choice("band", band, "95%", "se")
    painters = {"time": _time, "epsilon": _epsilon}
    caption = results.caption()
    if len({run.seed for run in results.runs}) > 1:
        caption += f"; bands: {'95 % interval of the mean' if band == '95%' else '± 1 standard error'}"
    size, width = ((7.2, 4.4), 95) if len(panels) == 1 else ((12.0, 4.6), 170)
    drawn = [partial(painters[panel], results, metric=shown, band=band) for panel in panels]
    return _figure(target, drawn, size, caption, width)


def _figure(target: Any, panels: Sequence[Callable[[Any], None]], size: Any, caption: str, width: int) -> Any:
    """The axes ``target`` with the panels; or the path of a new image of them, side by side over a caption.

    Without a target the image is a new figure of pyplot, and its axes are returned, several in a tuple.
    """
    need("matplotlib", "plotting")
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    if target is not None and not isinstance(target, (str, PathLike)):
        if len(panels) > 1:
            raise ValueError(f"target must be a path or None for {len(panels)} plots side by side, got axes for one")
        axes_of(target, "plot")
        panels[0](target)
        return target
    with rc_context(STYLE):
        make: Any = Figure
        if target is None:
            import matplotlib.pyplot as plt

            make = plt.figure
        figure = make(figsize=size, dpi=150, layout="constrained")
        widths = (1.25, 1) if len(panels) == 2 else None
        axes = figure.subplots(1, len(panels), squeeze=False, width_ratios=widths)[0]
        for panel, ax in zip(panels, axes, strict=True):
            panel(ax)
        lines = textwrap.wrap(caption, width)
        below = 0.03 + 0.035 * len(lines)
        engine: Any = figure.get_layout_engine()
        engine.set(rect=(0.01, below, 0.98, 0.98 - below), wspace=0.04)
        figure.text(0.02, 0.02, "\n".join(lines), fontsize=8, color=_GREY)
        if target is None:
            return axes[0] if len(axes) == 1 else tuple(axes)
        figure.savefig(target)
    return Path(target)


def _time(results: Results, ax: Any, metric: Metric, band: str) -> None:
    from matplotlib.ticker import FuncFormatter

    ends, settled = [], []
    for colour, policy in _coloured(results):
        rounds, curves = results.curves(policy, metric)
        total = rounds[-1]
        if metric == "reward":
            # the mean over a few rounds is all luck
            first = min(int(np.searchsorted(rounds, total / 100)), len(rounds) - 1)
            rounds, curves = rounds[first:], curves[:, first:]
        middle, half = _interval(curves, band)
        ax.plot(rounds, middle, color=colour, linewidth=1.8)
        ax.fill_between(rounds, middle - half, middle + half, color=colour, alpha=0.15, linewidth=0)
        ends.append((float(middle[-1]), colour, policy))
        # nor should it set the scale
        late = rounds >= total / 10
        settled += [(middle - np.nan_to_num(half))[late].min(), (middle + np.nan_to_num(half))[late].max()]
    ax.set_xlim(0, total)
    if metric == "regret":
        _regret_axis(ax, [value for value, _, _ in ends], max(settled))
    else:
        pad = 0.05 * (max(settled) - min(settled)) or 0.05
        ax.set_ylim(min(settled) - pad, max(settled) + pad)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    ax.set_xlabel("round")
    ax.set_ylabel("mean reward per round so far" if metric == "reward" else _regret_label(ax))
    ax.set_title("Mean reward over time" if metric == "reward" else "Regret over time")
    _label_ends(ax, ends)


def _epsilon(results: Results, ax: Any, metric: Metric, band: str) -> None:
    families: dict[tuple[str, str], list[tuple[float, float, float, str]]] = {}  # by algorithm and unit
    lines, deltas, units = [], set(), set()
    for colour, policy in _coloured(results):
        run = results.runs_of(policy)[0]
        middle, half = _interval(results.curves(policy, metric)[1][:, -1:], band)
        if math.isfinite(run.privacy.epsilon):
            deltas.add(run.privacy.delta)
            units.add(run.privacy.unit)
            point = (run.privacy.epsilon, float(middle[0]), float(half[0]), colour)
            families.setdefault((run.algorithm, run.privacy.unit), []).append(point)
        else:
            lines.append((float(middle[0]), colour, policy))
            ax.axhline(middle[0], color=colour, linewidth=1.5, linestyle=(0, (5, 2)))
            ax.axhspan(middle[0] - half[0], middle[0] + half[0], color=colour, alpha=0.1, linewidth=0)
    if not families:
        raise ValueError("results must hold a private policy to be drawn against ε, got none")
    for (algorithm, unit), points in families.items():
        points.sort()
        # one algorithm: the colours of its runs elsewhere; several: a colour for each
        own = points[0][3] if len(families) > 1 else None
        ax.plot([p[0] for p in points], [p[1] for p in points], color=own or _GREY, linewidth=1.2, zorder=2)
        for epsilon, middle_, half_, colour in points:
            ax.errorbar(epsilon, middle_, half_, color=own or colour, marker="o", markersize=7, capsize=3, zorder=3)
        lines.append((points[-1][1], own or _GREY, algorithm if len(units) == 1 else f"{algorithm}, per {unit}"))
    budgets: list[float] = []
    for epsilon in sorted(point[0] for points in families.values() for point in points):
        if not budgets or epsilon > 1.02 * budgets[-1]:  # marks that would overlap
            budgets.append(epsilon)
    _budget_axis(ax, budgets)
    if metric == "regret":
        points = [point for family in families.values() for point in family]
        values = [value for value, _, _ in lines] + [point[1] for point in points]
        _regret_axis(ax, values, max(values))
    else:
        ax.margins(y=0.08)
    ax.set_xlabel("ε of the whole run" + (f" (δ = {deltas.pop():g})" if len(deltas) == 1 else ""))
    ax.set_ylabel("mean reward per round" if metric == "reward" else _regret_label(ax))
    ax.set_title(f"What privacy of one {' or '.join(sorted(units))} costs")
    _label_ends(ax, lines)


def _budget_axis(ax: Any, budgets: list[float]) -> None:
    """Logarithmic, with a mark at each of these."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    ax.set_xscale("log")
    ax.set_xlim(budgets[0] / 1.5, budgets[-1] * 1.5)
    ax.xaxis.set_major_locator(FixedLocator(budgets))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))


def _regret_axis(ax: Any, values: list[float], top: float) -> None:
    """From zero; logarithmic where one policy (as a rule the uniform one) would flatten all the others."""
    from matplotlib.ticker import FuncFormatter

    positive = [value for value in values if value > 0]
    if positive and max(positive) > 20 * min(positive):
        ax.set_yscale("log")
        ax.set_ylim(min(positive) / 3, top * 1.5)
    else:
        ax.set_ylim(0.0, 1.05 * top or 1.0)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))


def _regret_label(ax: Any) -> str:
    return "regret: expected reward lost" + (" (log scale)" if ax.get_yscale() == "log" else "")


def _coloured(results: Results) -> list[tuple[str, str]]:
    return [(COLOURS[i % len(COLOURS)], policy) for i, policy in enumerate(results.policies)]


def _interval(curves: Array, band: str) -> tuple[Array, Array]:
    """Mean over seeds and half the width of its band; NaN for a single seed."""
    n = len(curves)
    if n == 1:
        return curves[0], np.full(curves.shape[1], np.nan)
    factor = _student(n - 1) if band == "95%" else 1.0
    return curves.mean(axis=0), factor * curves.std(axis=0, ddof=1) / math.sqrt(n)


def _label_ends(ax: Any, ends: list[tuple[float, str, str]]) -> None:
    """Names in the margin at the height of their values, moved apart as little as possible where they overlap."""
    from scipy.optimize import isotonic_regression

    ends = sorted(ends)
    x = ax.get_xlim()[1]
    points = ax.transAxes.inverted().transform(ax.transData.transform([(x, value) for value, _, _ in ends]))
    heights = np.clip(points[:, 1], 0.0, 1.0)
    gap = min(0.06, 1.0 / len(ends))
    # least squares under the order, with the gaps taken off
    steps = gap * np.arange(len(ends))
    placed = isotonic_regression(heights - steps).x + steps
    placed = np.minimum(np.maximum(placed, steps), 1.0 - steps[::-1])
    for height, (_, colour, name) in zip(placed, ends, strict=True):
        ax.text(1.02, height, name, transform=ax.transAxes, color=colour, va="center", fontsize=9)


def draw_prices(table: PriceTable, target: Any) -> Any:
    """The share of the gain that is lost, against ε, a line for each unit, with 95 % intervals.

    Returns
    -------
    The axes, or the path.
    """
    return _figure(target, [partial(_prices, table)], (7.2, 4.6), f"{table.caption()}. {table.sentence()}", 105)


def _prices(table: PriceTable, ax: Any) -> None:
    from matplotlib.ticker import FuncFormatter

    lowest, highest = 0.0, 1.0
    units = list(dict.fromkeys(row.unit for row in table.rows))
    quantile = 1.96 if table.seeds < 2 else _student(table.seeds - 1)
    for colour, unit in zip(COLOURS, units, strict=False):
        rows = sorted((row for row in table.rows if row.unit == unit), key=lambda row: row.epsilon)
        epsilons, prices = [row.epsilon for row in rows], [row.price for row in rows]
        halves = [0.0 if math.isnan(row.price_se) else quantile * row.price_se for row in rows]
        ax.errorbar(
            epsilons, prices, halves, color=colour, marker="o", markersize=7, capsize=3, linewidth=1.5, label=unit
        )
        known = [(price, half) for price, half in zip(prices, halves, strict=True) if math.isfinite(price)]
        lowest = min([lowest, *(price - half for price, half in known)])
        highest = max([highest, *(price + half for price, half in known)])
    for level in (1.0, 0.0):
        ax.axhline(level, color=_GREY, linewidth=1.5, linestyle=(0, (5, 2)))
    budgets = sorted({row.epsilon for row in table.rows})
    _budget_axis(ax, budgets)
    margin = 0.08 * (highest - lowest)
    ax.set_ylim(lowest - margin, highest + 2 * margin)
    ax.text(budgets[-1] * 1.45, 1.015, "uniform choices", ha="right", va="bottom", color=_GREY, fontsize=9)
    ax.text(budgets[-1] * 1.45, -0.015, "not private", ha="right", va="top", color=_GREY, fontsize=9)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    ax.set_xlabel("ε")
    ax.set_ylabel("lost of the gain over uniform choices")
    ax.set_title("The price of privacy")
    ax.legend(title="protected", frameon=False)


def _student(degrees: int) -> float:
    """The half-width of a 95 % interval in standard errors."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.975))

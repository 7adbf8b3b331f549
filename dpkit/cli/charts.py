"""Small pictures as SVG text: lines on linear axes, coloured by the page's style sheet. No drawing library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Line", "Mark", "line_chart", "nice_ticks"]

_WIDTH, _HEIGHT = 680, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 84, 28, 44


@dataclass(frozen=True)
class Line:
    """One curve. ``style`` is a class of the style sheet; ``step`` holds each value until the next point."""

    name: str
    style: str
    points: Sequence[tuple[float, float]]
    step: bool = False


@dataclass(frozen=True)
class Mark:
    """A named point at ``(x, y)``, or without ``x`` a dashed line across the picture at height ``y``."""

    name: str
    y: float
    x: float | None = None


def line_chart(
    lines: Sequence[Line],
    *,
    title: str,
    x_ticks: Sequence[tuple[float, str]],
    x_label: str,
    y_label: str,
    marks: Sequence[Mark] = (),
) -> str:
    """An SVG picture of some lines, with the lowest and highest values inside its axes.

    Lines are named at their right end; names that would overlap are pushed apart.
    """
    xs = [x for line in lines for x, _ in line.points] + [x for x, _ in x_ticks]
    ys = [y for line in lines for _, y in line.points] + [mark.y for mark in marks]
    low, high = min(xs), max(xs)
    width = high - low or 1.0
    ticks = nice_ticks(max(ys, default=1.0) or 1.0)
    top = ticks[-1]

    def px(x: float) -> float:
        return _LEFT + (x - low) / width * (_WIDTH - _LEFT - _RIGHT)

    def py(y: float) -> float:
        return _HEIGHT - _BOTTOM - min(y, top) / top * (_HEIGHT - _TOP - _BOTTOM)

    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">']
    for tick in ticks:
        y = py(tick)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for value, text in x_ticks:
        x = px(value)
        parts.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 5}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 19}" text-anchor="middle">{escape(text)}</text>')
    parts.append(f'<line class="axis" x1="{_LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
    middle = (_LEFT + right) / 2
    parts.append(f'<text class="label" x="{middle}" y="{_HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>')
    parts.append(f'<text class="label" x="{_LEFT - 8}" y="{_TOP - 14}" text-anchor="end">{escape(y_label)}</text>')
    ends: list[tuple[float, str, str]] = []
    for mark in marks:
        y = py(mark.y)
        if mark.x is None:
            parts.append(f'<line class="budget" x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
            ends.append((y, mark.name, "budget"))
        else:
            x = px(mark.x)
            parts.append(f'<circle class="point" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>')
            parts.append(f'<text class="end budget" x="{x + 10:.1f}" y="{y - 6:.1f}">{escape(mark.name)}</text>')
    for line in lines:
        points = [(px(x), py(y)) for x, y in line.points]
        path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
        for x, y in points[1:]:
            path += f"H{x:.1f}V{y:.1f}" if line.step else f"L{x:.1f} {y:.1f}"
        parts.append(f'<path class="line {line.style}" d="{path}"/>')
        ends.append((points[-1][1], line.name, line.style))
    for y, name, style in _spread(ends):
        parts.append(f'<text class="end {style}" x="{right + 8}" y="{y + 4:.1f}">{escape(name)}</text>')
    return "".join(parts) + "</svg>"


def nice_ticks(top: float) -> list[float]:
    """0 and four to six round steps up to at least ``top``.

    Examples
    --------
    >>> nice_ticks(4.3)
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    """
    magnitude = 10.0 ** math.floor(math.log10(top / 4))
    step = next(factor * magnitude for factor in (1, 2, 2.5, 5, 10) if factor * magnitude * 5 >= top * (1 - 1e-9))
    count = math.ceil(top / step - 1e-9)
    return [round(index * step, 12) for index in range(count + 1)]


def _spread(ends: list[tuple[float, str, str]], gap: float = 15.0) -> list[tuple[float, str, str]]:
    """The same labels, each at least ``gap`` below the one before it, and all inside the picture."""
    placed: list[tuple[float, str, str]] = []
    for y, name, style in sorted(ends):
        placed.append((max(y, placed[-1][0] + gap) if placed else y, name, style))
    for index in range(len(placed) - 1, -1, -1):
        limit = placed[index + 1][0] - gap if index + 1 < len(placed) else _HEIGHT - _BOTTOM
        placed[index] = (min(placed[index][0], limit), *placed[index][1:])
    return placed

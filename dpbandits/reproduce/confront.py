"""What a paper says beside what was found: claim by claim, with both numbers, what is not reached first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from dpbandits.reproduce.figure import Claim, Figure, Row, rounded

__all__ = ["confronted", "paired"]

# a printed regret that ours is more than so many times above, or below, is told
_ABOVE, _BELOW = 1.15, 0.5
# the first is the worst
_VERDICTS = ("Not reached", "Not decided", "Reached")


def paired(row: Row, other: Row, times: float = 1.0) -> tuple[float, float, int]:
    """The regrets of one line less so many times those of another, on the seeds that both have played.

    Returns
    -------
    (float, float, int)
        The mean of the differences, half of its 95 % interval (Student's t; NaN for a single seed), and how many seeds.
    """
    from scipy.special import stdtrit

    seeds = sorted(row.regrets.keys() & other.regrets.keys())
    differences = np.array([row.regrets[seed] - times * other.regrets[seed] for seed in seeds])
    if len(seeds) < 2:
        return float(differences.mean()) if len(seeds) else math.nan, math.nan, len(seeds)
    half = stdtrit(len(seeds) - 1, 0.975) * differences.std(ddof=1) / math.sqrt(len(seeds))
    return float(differences.mean()), float(half), len(seeds)


def confronted(figure: Figure, table: Sequence[Row]) -> str:
    """A list of what is not reached, not decided, printed and far from what was found, who beats the paper's own, and
    what is reached; empty where the paper says nothing that is compared here.

    Parameters
    ----------
    figure : Figure
    table : sequence of Row
        What was found.
    """
    told: dict[str, list[str]] = {verdict: [] for verdict in _VERDICTS}
    for claim in figure.claims:
        found = list(_pairs(claim, table))
        if found:
            # what fails in one panel fails
            verdict = min((one for one, _, _ in found), key=_VERDICTS.index)
            head = f"**{verdict}:** the paper: {claim.said}. Here "
            told[verdict].append(_item(head, [(panel, words) for _, panel, words in found], table))
    missed, open_, reached = told.values()
    return "\n".join([*missed, *open_, *_printed(table), *_ahead(figure, table), *reached])


def _item(head: str, found: Sequence[tuple[str, str]], table: Sequence[Row]) -> str:
    """An item of the list; what was found in several panels is a list of its own."""
    if len({row.panel for row in table}) == 1:
        return f"- {head}{'; '.join(words for _, words in found)}."
    panels = dict.fromkeys(panel for panel, _ in found)
    inner = [f"{panel}: {'; '.join(words for where, words in found if where == panel)}" for panel in panels]
    return "\n".join([f"- {head.rstrip()}", *(f"    - {words}" for words in inner)])


def _pairs(claim: Claim, table: Sequence[Row]) -> Iterator[tuple[str, str, str]]:
    """Panel by panel, the verdict and the numbers."""
    rows = {(row.panel, row.line.name): row for row in table}
    for panel in dict.fromkeys(row.panel for row in table):
        row, other = rows.get((panel, claim.line)), rows.get((panel, claim.other))
        if row is None or other is None or (claim.panels and panel not in claim.panels):
            continue
        if claim.measure == "seconds":
            a, b, unit = row.seconds, other.seconds, " s"
        else:
            (a, b), unit = _means(row, other), ""
        words = f"{claim.line} {rounded(a)}{unit}, {claim.other} {rounded(b)}{unit}, a ratio of {a / b:.2g}"
        if claim.measure == "regret":
            words += _interval(row, other)
        code = other.line.public_code.regret if claim.measure == "regret" else other.line.public_code.seconds
        if code is not None:
            words += f" (public code of {claim.other}: {rounded(code)}{unit})"
        yield _verdict(claim, a / b, row, other), panel, words


def _verdict(claim: Claim, ratio: float, row: Row, other: Row) -> str:
    """By the ratio; not decided where the seeds leave open on which side of a bound it is."""
    if claim.measure == "regret":
        for bound in (claim.at_least, claim.at_most):
            if 0.0 < bound < math.inf:
                mean, half, _ = paired(row, other, bound)
                if abs(mean) <= half:
                    return "Not decided"
    return "Reached" if claim.at_least <= ratio <= claim.at_most else "Not reached"


def _means(row: Row, other: Row) -> tuple[float, float]:
    """The mean regrets of two lines on the seeds that both have played, where the runs are known."""
    seeds = row.regrets.keys() & other.regrets.keys()
    if not seeds:
        return row.found["regret"], other.found["regret"]
    return tuple(float(np.mean([one.regrets[seed] for seed in seeds])) for one in (row, other))  # type: ignore[return-value]


def _interval(row: Row, other: Row) -> str:
    mean, half, seeds = paired(row, other)
    return f" (difference {mean:+,.0f} ± {half:,.0f}, 95 %, {seeds} seeds)" if seeds > 1 else ""


def _printed(table: Sequence[Row]) -> Iterator[str]:
    """Printed regrets that are far from ours, those of the published parameters first."""
    published_first = sorted(table, key=lambda row: row.line.arguments.get("parameters") != "published")
    for head, low, high in (
        ("Above what is printed", _ABOVE, math.inf),
        ("Less than half of what is printed", 0.0, _BELOW),
    ):
        found = []
        for row in published_first:
            printed, regret = row.line.published.regret, row.found["regret"]
            if printed is not None and low < regret / printed < high:
                words = f"{row.line.name} {rounded(regret)}{_error(row)} for {rounded(printed)}"
                found.append((row.panel, words))
        if found:
            yield _item(f"**{head}:** ", found, table)


def _ahead(figure: Figure, table: Sequence[Row]) -> Iterator[str]:
    """Lines with less regret than the paper's own algorithm."""
    rows = {(row.panel, row.line.name): row for row in table}
    found = []
    for row in table:
        own = rows.get((row.panel, figure.rival))
        if own is None or own is row:
            continue
        a, b = _means(row, own)
        mean, half, seeds = paired(row, own)
        if a < b:
            how = f"{mean:+,.0f} ± {half:,.0f}, 95 %, {seeds} seeds" if seeds > 1 else "not paired"
            sure = ", not significant" if seeds > 1 and mean + half >= 0.0 else ""
            found.append((row.panel, f"{row.line.name} {rounded(a)} for {rounded(b)} ({how}{sure})"))
    if found:
        yield _item(f"**Ahead of {figure.rival}:** ", found, table)


def _error(row: Row) -> str:
    """± its standard error, where there is one."""
    error = row.found.get("regret_se", math.nan)
    return f" ± {rounded(error)}" if math.isfinite(error) else ""

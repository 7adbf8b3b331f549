"""A report as one HTML page: for readers who know the subject and nothing of privacy.

No scripts, nothing loaded from elsewhere, light and dark, narrow screens and paper. Every text is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from importlib.resources import files
from typing import Any

from accounting import Budget, Release, delta
from accounting.text import printable
from dpkit.queries.answer import Answer

__all__ = ["page"]


def page(
    answers: Mapping[str, Answer],
    rows: Sequence[Mapping[str, Any]],
    *,
    title: str,
    made: datetime,
    epsilon: float,
    budget: Budget,
    cost: Release,
    simulation: bool,
) -> str:
    """The page of ``answers``, with one of ``rows`` for each number."""
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_name.setdefault(row["answer"], []).append(row)
    limits = {name: f"counts {answer.uses}" if answer.uses else "" for name, answer in answers.items()}
    single = [name for name, answer in answers.items() if answer.keys is None]
    several = [name for name, answer in answers.items() if answer.keys is not None]
    sections = _at_a_glance([by_name[name][0] for name in single], limits) if single else ""
    sections += "".join(_table(name, answers[name], by_name[name], limits[name]) for name in several)
    style = files("dpkit.queries.reports").joinpath("page.css").read_text(encoding="utf-8")
    mark = (
        "<p class='mark'>Simulation: the noise was drawn from a seed. These numbers protect nobody.</p>"
        if simulation
        else ""
    )
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{_text(title)}</title><style>{style}</style></head><body><main>"
        f"<header><h1>{_text(title)}</h1><p class='quiet'>{made.day} {made:%B %Y}</p>{mark}"
        f"<p>Chance was added to every number on this page, to protect every single {_text(budget.unit)} in the data; "
        "how well it does is said at the end. Each number comes with a range: in 95 of 100 cases, the "
        f"number without that chance lies in it.</p></header>{sections}{_privacy(epsilon, budget, cost)}"
        "</main></body></html>\n"
    )


def _at_a_glance(rows: Sequence[Mapping[str, Any]], limits: Mapping[str, str]) -> str:
    told = {limits[row["answer"]] for row in rows}
    common = told.pop() if len(told) == 1 else ""
    body = "".join(
        f"<tr><th scope='row'>{_text(row['answer'])}{'' if common else _small(limits[row['answer']])}</th>"
        f"<td class='number'>{_value(row)}</td><td class='range'>{_range(row)}</td></tr>"
        for row in rows
    )
    return (
        f"<section><h2>At a glance</h2>{_small(common)}<table><thead><tr><th scope='col'>What</th>"
        "<th scope='col' class='number'>About</th><th scope='col'>Range</th></tr></thead>"
        f"<tbody>{body}</tbody></table></section>"
    )


def _table(name: str, answer: Answer, rows: Sequence[Mapping[str, Any]], limit: str) -> str:
    between = " – " if answer.columns == ("from", "to") else " · "
    values = [row["value"] for row in rows]
    bars = all(not isinstance(value, str) and value >= 0 for value in values) and max(values, default=0) > 0
    largest = max([row["high"] or 0 for row in rows] + values) if bars else 1
    body = "".join(
        f"<tr><th scope='row'>{_text(row['key'].replace(' / ', between))}</th><td class='number'>{_value(row)}</td>"
        f"{_bar(row, largest) if bars else ''}<td class='range'>{_range(row)}</td></tr>"
        for row in rows
    )
    head = "<th scope='col' class='bar' aria-hidden='true'></th>" if bars else ""
    return (
        f"<section><h2>{_text(name)}</h2>{_small(limit)}<table><thead><tr><th scope='col'></th>"
        f"<th scope='col' class='number'>About</th>{head}<th scope='col'>Range</th></tr></thead>"
        f"<tbody>{body}</tbody></table></section>"
    )


def _bar(row: Mapping[str, Any], largest: float) -> str:
    """A bar of the value, with its range as a line over it."""
    width = 100 * row["value"] / largest
    whisker = ""
    if row["low"] is not None:
        low, high = (100 * max(0.0, end) / largest for end in (row["low"], row["high"]))
        whisker = f"<i style='left:{low:.2f}%;width:{max(high - low, 0.3):.2f}%'></i>"
    return f"<td class='bar' aria-hidden='true'><div><b style='width:{width:.2f}%'></b>{whisker}</div></td>"


def _privacy(epsilon: float, budget: Budget, cost: Release) -> str:
    unit = _text(budget.unit)
    return (
        "<section><h2>How private is this?</h2>"
        f"<p>{_promise(epsilon, budget, cost)} It holds for all numbers on the page together, and it cannot be undone "
        "later.</p>"
        f"<p class='quiet'>Differential privacy: ε = {epsilon:.4g}, δ = {budget.delta:g}; unit: one {unit}; "
        f"neighbouring data: {_text(_NEIGHBOURS[budget.adjacency])}. Ranges count the added chance. They do not count "
        "values that were cut to fixed bounds, or rows that were left out to limit what one "
        f"{unit} contributes.</p></section>"
    )


def _promise(epsilon: float, budget: Budget, cost: Release) -> str:
    """What neighbours tell of one unit, in figures that are rounded up.

    At δ = 0 all odds change by a factor of at most e^ε. At δ > 0 no probability bounds the outcomes that change them
    more (for Gaussian noise it is above δ). But whoever holds either neighbour for as probable as the other decides
    rightly with a probability of at most ½ + δ(0)/2.
    """
    told = _QUESTIONS[budget.adjacency].format(f"one {_text(budget.unit)}")
    if budget.delta > 0:
        right = 50 + math.ceil(500 * float(delta(cost, 0.0)) * (1 + 1e-9)) / 10
        return (
            f"Suppose that somebody knows all other data, and guesses {told}. By the toss of a coin such a guess is "
            f"right in 50 of 100 cases; with this page it is right in at most {min(right, 100.0):.3g} of 100."
        )
    factor = math.exp(epsilon) * (1 + 1e-9) if epsilon < 20 else 0.0
    most = f"{math.ceil(100 * factor) / 100:.2f}" if factor < 100 else f"{math.ceil(factor):,}"
    return (
        f"Even for somebody who knows all other data, and guesses {told}, this page changes the odds by a factor of at "
        f"most {most if factor else f'e^{math.ceil(epsilon)}'}."
    )


# what can be guessed of one unit; both are neighbours
_QUESTIONS = {
    "add_remove": "whether {} is in the data",
    "replace": "which of two records of {} is the true one",
    "zero_out": "whether the data of {} were used",
}
_NEIGHBOURS = {
    "add_remove": "with or without one of them",
    "replace": "one of them swapped for another",
    "zero_out": "one of them left blank",
}


def _range(row: Mapping[str, Any]) -> str:
    if row["low"] is not None:
        return f"{_number(row['low'], _digits(row))} to {_number(row['high'], _digits(row))}"
    if row["rows_off"] is not None:
        return f"up to {_number(math.ceil(row['rows_off']))} rows off in rank"
    return ""


def _value(row: Mapping[str, Any]) -> str:
    if not row["informative"]:
        return "unknown"
    return _number(row["value"], _digits(row))


def _digits(row: Mapping[str, Any]) -> int | None:
    """Decimals that mean something: two digits of the range."""
    width = 0.0 if row["low"] is None or isinstance(row["low"], str) else (row["high"] - row["low"]) / 2
    return min(12, max(0, 1 - math.floor(math.log10(width)))) if width > 0 else None


def _number(value: Any, digits: int | None = None) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        return f"{value:,}"
    if digits is not None:
        return f"{value:,.{digits}f}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.4g}"


def _small(text: str) -> str:
    return f"<small>{_text(text)}</small>" if text else ""


def _text(text: str) -> str:
    return escape(printable(text), quote=True)

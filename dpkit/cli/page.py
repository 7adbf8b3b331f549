"""An audit as one self-contained HTML page: no script, nothing loaded from elsewhere, readable in light and dark."""

from __future__ import annotations

import math
from contextlib import suppress
from datetime import datetime, timedelta
from html import escape
from importlib.resources import files
from typing import cast

import numpy as np

from accounting import Ledger, Release, UnsupportedRelease, attacker, epsilon
from accounting.audit import Report, ScopeReport
from accounting.ledger.record.release_counts import ReleaseCounts
from accounting.text import printable
from accounting.totals import ACCOUNTANTS, Accountant
from dpkit.cli.card import attacks
from dpkit.cli.charts import Line, Mark, line_chart
from dpkit.cli.printing import accountant_name

__all__ = ["broken_page", "most_spent", "page", "verdict"]

_SHORT = {"gdp": "GDP", "pld": "PLD", "pure": "pure DP", "rdp": "RDP", "zcdp": "zCDP"}
_SLOW = "pld"
_SCOPES = 10  # scopes without a quota that are shown
_FEW, _MANY = 9, 61  # points of a curve, for an accountant that composes numerically and for a closed formula


def verdict(report: Report) -> tuple[str, str]:
    """A word for the style (``"good"``, ``"bad"``, ``"open"``) and the verdict in a sentence."""
    if report.budget is None:
        sentence = "No budget was declared: there is nothing to hold the total against."
        style = "open"
    elif report.within_budget:
        sentence, style = "The recorded releases are within the budget.", "good"
    else:
        sentence, style = "The recorded releases pass the budget.", "bad"
    if report.problems and style != "bad":
        sentence, style = f"{sentence} But something is wrong, see below.", "bad"
    if report.simulation:
        sentence += " Some noise came from a seeded generator: this is a simulation, not a private release."
        style = "bad" if style == "bad" else "open"
    return style, sentence


def page(ledger: Ledger, report: Report, *, name: str, made: datetime) -> str:
    """The page of a ledger that verifies.

    Parameters
    ----------
    ledger : Ledger
    report : Report
        From ``accounting.audit.recompute(ledger)``.
    name : str
        How the reader knows the ledger: its file name.
    made : datetime
        When the audit was made.
    """
    style, sentence = verdict(report)
    best = min(report.epsilons, key=report.epsilons.__getitem__, default=None)
    sections = [_facts(ledger, report, best)]
    if report.problems:
        items = "".join(f"<li>{_text(problem)}</li>" for problem in report.problems)
        sections.append(f"<section><h2>What is wrong</h2><ul class='bad'>{items}</ul></section>")
    if best is not None and report.rows:
        sections += [_side_by_side(report), _curve(ledger.total, report), _over_time(ledger, report)]
        with suppress(UnsupportedRelease):  # where the filter alone has a bound
            sections.append(attacks(attacker(ledger.total), 0.5))
    if report.scopes:
        sections.append(_scopes(report))
    sections.append(_largest_costs(report))
    sections.append(_READING)
    return _document(name, made, style, sentence, "".join(sections))


def broken_page(message: str, *, name: str, made: datetime) -> str:
    """The page of a ledger that does not verify: nothing in it can be relied on, so nothing of it is shown."""
    body = f"<section><h2>What is wrong</h2><p>{_text(message)}</p></section>"
    return _document(name, made, "bad", "The ledger does not verify: it was edited, damaged or replaced.", body)


# ----------------------------------------------------------------------------------------------- sections


def _facts(ledger: Ledger, report: Report, best: str | None) -> str:
    rows = ledger.rows()
    outcomes = [row.outcome for row in rows]
    total = "none" if best is None else f"ε = {_number(report.epsilons[best])}"
    at = f"at δ = {report.delta:g}" + (f", by {accountant_name(best)}" if best else "")
    budget = report.budget
    facts = [
        ("Spent", total, at),
        (
            "Budget",
            "none declared" if budget is None else f"ε = {budget.epsilon:g}",
            "" if budget is None else f"δ = {budget.delta:g}, one {budget.unit}, {budget.adjacency}",
        ),
        ("Releases", f"{report.rows:,}", _listed([(o, outcomes.count(o)) for o in ("released", "reserved", "failed")])),
        ("Recorded", *_period([row.time for row in rows])),
    ]
    if budget is not None:
        left, counted = ledger.remaining(), ledger.accountant
        by = "" if counted is None else f", by {accountant_name(counted)}"
        booked = "" if report.booked is None else f": it has booked ε = {_number(report.booked)}"
        facts.insert(2, ("Left", f"ε = {_number(left)}", f"as the filter counts it{by}{booked}"))
    cards = "".join(
        f"<div><dt>{_text(title)}</dt><dd>{_text(value)}<small>{_text(note)}</small></dd></div>"
        for title, value, note in facts
    )
    return (
        f"<section><dl class='facts'>{cards}</dl>"
        "<p class='head'>Head of the hash chain, to be kept elsewhere: "
        f"<code>{escape(ledger.head)}</code></p></section>"
    )


def _side_by_side(report: Report) -> str:
    scale = max([value for value in report.epsilons.values() if math.isfinite(value)], default=1.0) or 1.0
    if report.budget is not None:
        scale = max(scale, report.budget.epsilon)
    rows = ""
    for index, (name, value) in enumerate(report.epsilons.items()):
        width = 100 * min(value, scale) / scale
        best = "<small> smallest</small>" if index == 0 and len(report.epsilons) > 1 else ""
        mark = ""
        if report.budget is not None:
            mark = f"<i style='left:{100 * report.budget.epsilon / scale:.2f}%'></i>"
        rows += (
            f"<tr><th scope='row'>{escape(accountant_name(name))}{best}</th><td class='number'>{_number(value)}</td>"
            f"<td class='bar'><div><span class='{escape(name)}' style='width:{width:.2f}%'></span>{mark}</div></td>"
            "</tr>"
        )
    line = "" if report.budget is None else "The vertical line is the budget. "
    least = f"No proof can give less than ε = {_number(report.at_least)}." if report.at_least > 0 else ""
    return (
        f"<section><h2>Accountants side by side</h2><p>ε at δ = {report.delta:g}. {line}"
        f"Each is a proved upper bound; they differ because each knows the releases by another measure. {least}</p>"
        f"<div class='scroll'><table><thead><tr><th>accountant</th><th class='number'>ε</th><th></th></tr>"
        f"</thead><tbody>{rows}</tbody></table></div></section>"
    )


def _accountants(report: Report) -> list[str]:
    """Those of a report that price any description, as a ledger's filter does not."""
    return [name for name in report.epsilons if name in ACCOUNTANTS]


def _curve(total: Release, report: Report) -> str:
    exponents = (-12.0, -2.0)
    if report.delta > 0:
        exponents = (min(-12.0, math.floor(math.log10(report.delta)) - 1), -2.0)
    lines = []
    for name in _accountants(report):
        grid = np.linspace(*exponents, _FEW if name == _SLOW else _MANY)
        values = [(float(x), float(epsilon(total, 10.0**x, accountant=cast(Accountant, name)))) for x in grid]
        finite = [(x, value) for x, value in values if math.isfinite(value)]
        if finite:
            lines.append(Line(_SHORT.get(name, name), name, finite))
    marks = []
    if report.budget is not None and report.budget.delta > 0:
        marks.append(Mark("budget", report.budget.epsilon, math.log10(report.budget.delta)))
    ticks = range(math.ceil(exponents[0]), math.floor(exponents[1]) + 1)
    every = max(1, math.ceil(len(ticks) / 6))
    picture = line_chart(
        lines,
        title="ε against δ under every accountant",
        x_ticks=[(float(x), f"1e{x}") for x in ticks if (x - ticks[-1]) % every == 0],
        x_label="δ",
        y_label="ε",
        marks=marks,
    )
    point = " The point is the budget: curves below it meet it." if marks else ""
    return (
        f"<section><h2>ε against δ</h2><p>The whole price of what was recorded.{point}</p>"
        f"<div class='scroll'>{picture}</div></section>"
    )


def _over_time(ledger: Ledger, report: Report) -> str:
    quick = [name for name in _accountants(report) if name != _SLOW]
    name = quick[0] if quick else _SLOW
    rows = ledger.rows()
    shown = {round(x) for x in np.linspace(0, len(rows) - 1, _MANY if quick else _FEW)}
    replay = ReleaseCounts()
    points = []
    for row in rows:
        replay.add(row.scope, row.release)
        if row.index in shown:
            try:
                value = float(epsilon(replay.total(), report.delta, accountant=cast(Accountant, name)))
            except UnsupportedRelease:
                continue
            if math.isfinite(value):
                points.append(((row.time - rows[0].time).total_seconds(), value))
    if not points:
        return ""
    points = [(0.0, 0.0), *points]
    first, last = rows[0].time, rows[-1].time
    ticks = _time_ticks(first, last)
    marks = [] if report.budget is None else [Mark("budget", report.budget.epsilon)]
    picture = line_chart(
        [Line("spent", f"{name} solid", points, step=True)],
        title="ε spent over time",
        x_ticks=ticks,
        x_label="time of recording (UTC)",
        y_label="ε",
        marks=marks,
    )
    return (
        f"<section><h2>Spends over time</h2><p>ε of everything recorded up to each moment, at δ = {report.delta:g}, "
        f"by {escape(accountant_name(name))}.</p><div class='scroll'>{picture}</div></section>"
    )


def most_spent(scopes: list[ScopeReport]) -> list[ScopeReport]:
    """The scopes that a reader should see, by name: all that have a quota, and of the others those that cost most."""
    others = sorted((one for one in scopes if one.quota is None), key=lambda one: -one.epsilon)[:_SCOPES]
    return sorted([*(one for one in scopes if one.quota is not None), *others], key=lambda one: one.scope)


def _scopes(report: Report) -> str:
    shown = most_spent(report.scopes)
    rows = ""
    for one in shown:
        quota = "<span class=quiet>none</span>" if one.quota is None else f"{one.quota.epsilon:g}"
        at = "" if one.quota is None else f"<small> δ = {one.quota.delta:g}</small>"
        spent, bar = "", ""
        booked = "" if one.booked is None else _number(one.booked)
        if one.quota is not None and one.spent is not None:
            spent = _number(one.spent)
            share = 100 * min(1.0, one.spent / one.quota.epsilon)
            style = "good" if one.within_quota else "bad"
            bar = f"<div><span class='{style}' style='width:{share:.2f}%'></span></div>"
        rows += (
            f"<tr><th scope='row'>{_text(one.scope)}</th><td class='number'>{one.rows:,}</td>"
            f"<td class='number'>{_number(one.epsilon)}</td><td class='number'>{quota}{at}</td>"
            f"<td class='number'>{spent}</td><td class='number'>{booked}</td><td class='bar'>{bar}</td></tr>"
        )
    hidden = len(report.scopes) - len(shown)
    more = f"<p class='quiet'>{hidden:,} other scopes have no quota and met less.</p>" if hidden else ""
    return (
        "<section><h2>Scopes and quotas</h2><p>“ε met there” bounds everything that a unit of the scope met: there, in "
        f"its parts, around it and on the whole data, at δ = {report.delta:g}. A quota counts what was recorded in the "
        "scope and its parts only: spent is their price as a list, by the best accountant, and booked what the quota's "
        "filter holds back for them, which bounds releases that were chosen in the light of earlier ones.</p>"
        "<div class='scroll'><table class='wide scopes'><thead><tr><th>scope</th>"
        "<th class='number'>releases</th><th class='number'>ε met there</th><th class='number'>quota ε</th>"
        "<th class='number'>spent ε</th><th class='number'>booked ε</th><th></th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div>{more}</section>"
    )


def _largest_costs(report: Report) -> str:
    if not report.largest_costs:
        return "<section><h2>Largest costs</h2><p>Nothing was recorded.</p></section>"
    rows = "".join(
        f"<tr><td class='number'>{index}</td><td>{_text(label) or '<span class=quiet>no label</span>'}</td>"
        f"<td><code>{_text(release)}</code></td><td class='number'>{_number(alone)}</td></tr>"
        for index, label, release, alone in report.largest_costs
    )
    return (
        "<section><h2>Largest costs</h2><p>By what each would cost alone; costs do not add up by plain addition.</p>"
        "<div class='scroll'><table class='wide'><thead><tr><th class='number'>row</th><th>label</th><th>release</th>"
        f"<th class='number'>ε alone</th></tr></thead><tbody>{rows}</tbody></table></div></section>"
    )


_READING = (
    "<section><h2>How to read this</h2>"
    "<p>With one unit of data changed, whatever may come out gets at most e^ε times as probable, and δ more. Every "
    "release counts from the moment it was reserved, also if it failed or its process died before anything left; "
    "“reserved” stays where nobody noted what became of it. The smallest total "
    "above is a guarantee for a list of releases that was fixed in advance; for releases chosen in the "
    "light of earlier ones the ledger’s filter vouches, which counts one measure that was fixed at the start, and "
    "may therefore have less left than the totals suggest.</p>"
    "<p>This page checks arithmetic and records. It cannot see whether the noise was drawn as described, whether "
    "sensitivities were enforced, or whether something was released without being recorded.</p></section>"
)


# ---------------------------------------------------------------------------------------------- formatting


def _text(words: str) -> str:
    """Words of others, as they can stand on a page."""
    return escape(printable(words))


def _number(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else "∞"


def _listed(counts: list[tuple[str, int]]) -> str:
    return ", ".join(f"{count:,} {word}" for word, count in counts if count)


def _period(times: list[datetime]) -> tuple[str, str]:
    if not times:
        return "nothing", ""
    first, last = times[0], times[-1]
    day = f"{first:%Y-%m-%d}"
    if first.date() == last.date():
        return day, f"{first:%H:%M:%S} to {last:%H:%M:%S} UTC"
    return f"{(last - first).days + 1:,} days", f"{day} to {last:%Y-%m-%d}"


def _time_ticks(first: datetime, last: datetime) -> list[tuple[float, str]]:
    """Five moments between the first and the last, in the unit that tells them apart."""
    span = last - first
    form = "%Y-%m-%d" if span > timedelta(days=4) else "%m-%d %H:%M" if span > timedelta(days=1) else "%H:%M:%S"
    if span < timedelta(seconds=4):
        return [(0.0, f"{first:%H:%M:%S}"), (span.total_seconds(), f"+{span.total_seconds():.3g} s")]
    moments = [span * step / 4 for step in range(5)]
    return [(moment.total_seconds(), f"{first + moment:{form}}") for moment in moments]


def _document(name: str, made: datetime, style: str, sentence: str, body: str) -> str:
    style_sheet = files("dpkit.cli").joinpath("page.css").read_text(encoding="utf-8")
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>Privacy audit of {_text(name)}</title><style>{style_sheet}</style></head><body><main>"
        f"<header><h1>Privacy audit</h1><p class='quiet'><code>{_text(name)}</code>, "
        f"audited {made:%Y-%m-%d %H:%M} UTC</p><p class='verdict {style}'>{escape(sentence)}</p></header>"
        f"{body}</main></body></html>\n"
    )

"""``dpkit ledger card``: the claim that a ledger supports, on one page that a board or a citizen can read.

Reported in the order that Gomez, Kulynych, Kaissis, Calmon & Hayes ("(ε, δ) considered harmful", 2025) recommend: the
whole trade-off curve first, as μ of Gaussian differential privacy where one is proved, then (ε, δ), then what the best
attack could do, in words. And beside every figure what it covers and what it does not.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from accounting.text import printable

if TYPE_CHECKING:
    from accounting import Budget, Ledger
    from accounting.attacks import Attacker

__all__ = ["Card", "attacks", "card_of", "card_page", "change_of"]

# false-positive rates of the curve on the page
_RATES = np.geomspace(1e-4, 1.0, 120)
# where no budget says at which δ ε is asked
_DELTA = 1e-6


def change_of(budget: Budget) -> str:
    """Which two data sets a budget does not let anybody tell apart, in words."""
    unit = budget.unit
    return {
        "replace": f"the data of one {unit} are other data",
        "add_remove": f"one {unit} is in the data, or is not",
        "zero_out": f"one {unit} contributes, or contributes nothing",
    }[budget.adjacency]


@dataclass(frozen=True)
class Card:
    """What a ledger's releases together reveal, at most, about one unit.

    ``epsilon`` and ``mu`` are of everything recorded; ``mu`` is None where no Gaussian guarantee is proved, and
    ``epsilon`` infinite where no accountant has a bound. ``budget`` is what the ledger enforces, None without one.
    """

    name: str
    made: datetime
    budget: Budget | None
    delta: float
    epsilon: float
    mu: float | None
    attack: Attacker | None
    prior: float
    rows: int
    releases: tuple[tuple[str, int], ...]
    scopes: int
    first: datetime | None
    last: datetime | None
    simulation: bool
    head: str

    def to_dict(self) -> dict[str, Any]:
        """The same for JSON; infinite numbers and unknown ones are None."""
        budget = self.budget
        return {
            "name": self.name,
            "made": self.made.isoformat(),
            "simulation": self.simulation,
            "unit": None if budget is None else budget.unit,
            "adjacency": None if budget is None else budget.adjacency,
            "budget": None if budget is None else {"epsilon": budget.epsilon, "delta": budget.delta},
            "spent": {
                "mu": self.mu,
                "epsilon": self.epsilon if math.isfinite(self.epsilon) else None,
                "delta": self.delta,
            },
            "attack": None if self.attack is None else self.attack.to_dict(self.prior),
            "rows": self.rows,
            "releases": dict(self.releases),
            "scopes": self.scopes,
            "first": None if self.first is None else self.first.isoformat(),
            "last": None if self.last is None else self.last.isoformat(),
            "head": self.head,
            "covered": list(self.covered),
            "not_covered": list(self.not_covered),
        }

    @property
    def claim(self) -> str:
        """The guarantee, as one sentence for somebody who has never heard of ε."""
        if self.simulation:
            return (
                "Some of this noise can be computed again from a seed: this ledger is a simulation and protects nobody."
            )
        if not self.releases:
            return "Nothing has been released: nothing was revealed."
        if self.attack is None:
            return "No accountant bounds what was released: nothing is claimed."
        # to the next tenth of a per cent: what is said is no less than what is proved
        most = math.ceil(1000 * float(self.attack.true_positives(0.01)) - 1e-9) / 10
        if self.budget is not None and self.budget.adjacency == "replace":
            return (
                "Take a hundred people, and for each a record that is theirs and one that is not. Even the best attack "
                f"recognises at most {most:.3g} of the true ones if it may be wrong about 1 % of the others."
            )
        return (
            f"Of a hundred people whose data were used, even the best attack finds at most {most:.3g}, if it may "
            "wrongly name 1 % of those whose data were not."
        )

    @property
    def covered(self) -> tuple[str, ...]:
        """What the figures hold for."""
        lines = []
        if self.budget is not None:
            lines.append(f"Neighbouring data: {change_of(self.budget)}; everything else is the same.")
        lines.append("Attackers who know all other data, the method and its noise level, and have unlimited time.")
        lines.append("All releases recorded in this ledger together, and whatever is computed from them later.")
        if self.budget is not None:
            lines.append(
                f"Later releases, too: the ledger refuses what would pass ε = {self.budget.epsilon:g} at "
                f"δ = {self.budget.delta:g}."
            )
        return tuple(lines)

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What nobody may conclude from it."""
        unit = "unit" if self.budget is None else self.budget.unit
        lines = ["Releases that were made elsewhere, or without being recorded."]
        if self.budget is not None:
            lines.append(
                "Releases that somebody chose after seeing earlier answers: for those the enforced budget holds, "
                "and the figures of what was spent need not."
            )
        if self.scopes > 1:
            lines.append(
                f"A {unit} whose data are in several of the {self.scopes} scopes of the ledger, unless one lies in the "
                "other: each scope is counted for itself."
            )
        if unit != "person":
            lines.append(f"A person who contributes more than one {unit}: the figures are for one.")
        lines += [
            "What holds about people whether or not their data are used (that smoking causes cancer, say).",
            "Who can read the raw data, and whether the software ran as described: see the threat model and the audit.",
        ]
        return tuple(lines)

    def in_words(self) -> str:
        """The card as text."""
        lines = [f"What {printable(self.name)} claims, {self.made:%Y-%m-%d}", "", self.claim, ""]
        lines += [f"{name:<23} {value}" for name, value in self._facts()]
        if self.attack is not None and self.releases:
            lines += ["", self.attack.in_words(self.prior)]
        lines += ["", "It covers", *(f"- {line}" for line in self.covered)]
        lines += ["It does not cover", *(f"- {line}" for line in self.not_covered)]
        return "\n".join(lines)

    def _facts(self) -> list[tuple[str, str]]:
        facts = []
        if self.mu is not None:
            facts.append(("Gaussian privacy", f"μ = {self.mu:.4g}"))
        number = f"ε = {self.epsilon:.4g}" if math.isfinite(self.epsilon) else "no finite ε"
        facts.append(("spent", f"{number} at δ = {self.delta:g}"))
        if self.budget is not None:
            facts.append(("enforced for the future", f"ε ≤ {self.budget.epsilon:g} at δ = {self.budget.delta:g}"))
            facts.append(("protects", f"one {self.budget.unit} ({self.budget.adjacency})"))
        facts.append(("releases", f"{self.rows:,}"))
        if self.first is not None and self.last is not None:
            facts.append(("recorded", f"{self.first:%Y-%m-%d} to {self.last:%Y-%m-%d}"))
        facts.append(("head of the ledger", self.head))
        return facts


def card_of(ledger: Ledger, *, name: str, prior: float = 0.5, delta: float | None = None) -> Card:
    """The card of everything that a ledger has recorded.

    Parameters
    ----------
    name : str
        What the card calls the ledger.
    prior : float
        In (0, 1): how probable an attacker holds it beforehand that somebody's data were used.
    delta : float, optional
        The δ at which ε is stated; the budget's by default.
    """
    from accounting import UnsupportedRelease, attacker, gdp
    from accounting.releases.base import Composed

    budget, rows, total = ledger.budget, ledger.rows(), ledger.total
    at = _DELTA if delta is None and budget is None else budget.delta if delta is None and budget is not None else delta
    try:
        epsilon = float(ledger.epsilon(delta=at)) if rows else 0.0
    except UnsupportedRelease:
        epsilon = math.inf
    try:
        mu = float(gdp(total)) if rows else None
    except UnsupportedRelease:
        mu = None
    try:
        attack = attacker(total) if rows else None
    except UnsupportedRelease:
        attack = None
    kinds: Counter[str] = Counter()
    for row in rows:
        for part, count in row.release.parts if isinstance(row.release, Composed) else [(row.release, 1)]:
            kinds[type(part).__name__] += count
    return Card(
        name=name,
        made=datetime.now(UTC),
        budget=budget,
        delta=float(at or 0.0),
        epsilon=epsilon,
        mu=mu if mu is None or math.isfinite(mu) else None,
        attack=attack,
        prior=prior,
        rows=len(rows),
        releases=tuple(kinds.most_common()),
        scopes=len({row.scope for row in rows if row.scope}),
        first=rows[0].time if rows else None,
        last=rows[-1].time if rows else None,
        simulation=ledger.simulation,
        head=ledger.head,
    )


def card_page(card: Card) -> str:
    """The card as one HTML page that loads nothing: light and dark, for a phone, a screen and paper."""
    style = "bad" if card.simulation or (card.attack is None and card.releases) else "good"
    facts = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in card._facts()[:-1])
    covered, not_covered = (
        "".join(f"<li>{escape(one)}</li>" for one in some) for some in (card.covered, card.not_covered)
    )
    name = escape(printable(card.name))
    unit = "unit" if card.budget is None else escape(printable(card.budget.unit))
    style_sheet = files("dpkit.cli").joinpath("page.css").read_text(encoding="utf-8")
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>Privacy claim of {name}</title><style>{style_sheet}</style></head><body><main>"
        f"<header><h1>What was revealed about one {unit}</h1>"
        f"<p class='quiet'><code>{name}</code>, "
        f"{card.made:%Y-%m-%d %H:%M} UTC</p><p class='verdict {style}'>{escape(card.claim)}</p></header>"
        f"<section><h2>The guarantee</h2><dl class='facts'>{facts}</dl>"
        f"<p class='head'>Head of the ledger: <code>{escape(card.head)}</code></p></section>"
        f"{attacks(card.attack if card.releases else None, card.prior)}"
        f"<section><h2>It covers</h2><ul>{covered}</ul><h2>It does not cover</h2><ul>{not_covered}</ul></section>"
        "</main></body></html>\n"
    )


def attacks(attack: Attacker | None, prior: float) -> str:
    """A part of a page: what the best attack can do, as a table and a curve; empty where nothing bounds it."""
    from dpkit.cli.charts import Line, line_chart

    if attack is None:
        return ""
    found = attack.to_dict(prior)
    rows = "".join(
        "<tr>" + "".join(f"<td class='number'>{100 * float(one[key]):.3g} %</td>" for key in one) + "</tr>"
        for one in found["rates"]
    )
    curve = attack.true_positives(_RATES)
    picture = line_chart(
        [
            Line("attack", "pld solid", [(math.log10(x), float(y)) for x, y in zip(_RATES, curve, strict=True)]),
            Line("guessing", "pure", [(math.log10(x), float(x)) for x in _RATES]),
        ],
        title="True positives of the best attack, over its false positives",
        x_ticks=[(-4.0, "0.01 %"), (-3.0, "0.1 %"), (-2.0, "1 %"), (-1.0, "10 %"), (0.0, "100 %")],
        x_label="wrongly accused, of those whose data were not used",
        y_label="found",
    )
    return (
        "<section><h2>What the best attack can do</h2><p>An attacker knows all other data, sees everything that was "
        "released, and tries to tell whose data were used. Nobody can do better than this:</p><div class='scroll'>"
        "<table><thead><tr><th class='number'>wrongly accused</th><th class='number'>found, at most</th>"
        f"<th class='number'>a suspicion of {100 * prior:.3g} % becomes, at most</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
        f"<div class='scroll'>{picture}</div></section>"
    )

"""The answer of :func:`dpbandits.price_of_privacy`: rows, a sentence, and the forms in which they are read.

A table of prices is as confidential as the data it was computed from.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from accounting.printed import as_html, as_text
from dpbandits.lab.evaluate.agreement import Agreement
from dpbandits.lab.simulation.plots import draw_prices
from dpbandits.lab.simulation.results import with_error

__all__ = ["PriceRow", "PriceTable", "percent"]

# of the gain, in the sentence
_ENOUGH = 0.9
# a base rate as wrong as this slows every policy down
_FAR = 0.2
# standard errors between a model and its log from which it is told
_DOUBT = 2.0


@dataclass(frozen=True)
class PriceRow:
    """One unit and one ε.

    Attributes
    ----------
    unit : str
        "round" or "person".
    epsilon, delta : float
    policy : str
        The class that was played.
    reward, reward_se : float
        Mean reward per round, and its standard error over seeds (NaN for one seed).
    regret, regret_se : float
        Of the whole run; NaN where it is unknown.
    price, price_se : float
        The share of the gain that is lost.
    hopeless : bool
        Whether the policy warned, when it was made, that its noise exceeds what the rounds can say.

    Examples
    --------
    >>> from dpbandits import price_of_privacy
    >>> from dpbandits.lab.environments import GLM
    >>> price_of_privacy(GLM(dim=2, arms=5), [4.0], rounds=200, seeds=2).rows[0].unit
    'round'
    """

    unit: str
    epsilon: float
    delta: float
    policy: str
    reward: float
    reward_se: float
    regret: float
    regret_se: float
    price: float
    price_se: float
    hopeless: bool


@dataclass(frozen=True)
class PriceTable:
    """Prices, and the two policies that they stand between.

    Attributes
    ----------
    environment : str
        What was played.
    rounds, seeds : int
    modelled : bool
        Whether rewards came from a model that was fitted to a log of choices. Then there are also
    visitor, item, unused : tuple of str
        The columns that described visitors and items, and those that were constant.
    ranges : dict
        By name, the ranges by which columns were scaled into the unit ball.
    drifts : bool
        Whether the model changes in time, and the log was played in its order.
    agreements : tuple of Agreement
        What a random item, the best item for all and the model's choice earn by the model and by the log.
    free, free_se, uniform, uniform_se : float
        Mean reward per round without privacy, and of uniform choices.
    reference : str
        The class that was played without privacy, the better one of those that were tried.
    rows : tuple of PriceRow
        By unit, then ε.
    told : float
        What every policy was told that an arm taken at random pays, as a share of the range of rewards.
    paid : float
        What it pays, as such a share.

    Examples
    --------
    >>> from dpbandits import price_of_privacy
    >>> from dpbandits.lab.environments import GLM
    >>> table = price_of_privacy(GLM(dim=2, arms=5), [4.0], rounds=200, seeds=2)
    >>> table.rounds, table.seeds
    (200, 2)
    """

    environment: str
    rounds: int
    seeds: int
    modelled: bool
    free: float
    free_se: float
    uniform: float
    uniform_se: float
    rows: tuple[PriceRow, ...]
    told: float = math.nan
    paid: float = math.nan
    visitor: tuple[str, ...] = ()
    item: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    drifts: bool = False
    agreements: tuple[Agreement, ...] = ()
    reference: str = ""

    def sentence(self) -> str:
        """What the table says, in one sentence; more where it was a model, or where policies were told a wrong rate."""
        gain, error = self.free - self.uniform, math.hypot(*np.nan_to_num([self.free_se, self.uniform_se]))
        if not gain > 2 * error:
            text = (
                f"In {self.rounds:,} rounds nothing is learned here even without privacy "
                f"({self.free:.3g} per round, {self.uniform:.3g} by chance), so that there is no gain that "
                "privacy could cost."
            )
        else:
            parts = []
            for unit in dict.fromkeys(row.unit for row in self.rows):
                rows = sorted((row for row in self.rows if row.unit == unit), key=lambda row: row.epsilon)
                enough = next((row for row in rows if row.price <= 1 - _ENOUGH), None)
                told = enough or min(rows, key=lambda row: row.price)
                if told.price >= 1:
                    parts.append(f"protecting every {unit} keeps nothing of that gain at any ε tried")
                    continue
                kept = "all" if told.price <= 0 else percent(1 - told.price)
                why = "the least ε tried that keeps nine tenths" if enough else "the most that any ε tried keeps"
                why = f"± {percent(told.price_se)}, {why}" if told.price_se > 0 else why
                parts.append(f"protecting every {unit} at ε = {told.epsilon:g} keeps {kept} of that gain ({why})")
            text = (
                f"Learning earns {self.free:.3g} per round where choosing by chance earns {self.uniform:.3g}; "
                f"{', and '.join(parts)}."
            )
        ahead = [row for row in self.rows if row.price < -_DOUBT * row.price_se]
        if gain > 2 * error and ahead:
            text += (
                f" At ε = {ahead[0].epsilon:g} a private policy gains {percent(-ahead[0].price)} more than "
                f"{self.reference or 'the one without'}, which has not learned all that there is: prices are too low."
            )
        if self.seeds == 1:
            text += " One seed alone does not tell a gain from chance: take three or more."
        if self.modelled:
            text += " Rewards came from a model that was fitted to the log, so that this is a plan and no promise."
            for one in self.agreements:
                if one.errors > _DOUBT:
                    text += (
                        f" The log contradicts the model: {one}, {one.errors:.1f} standard errors apart. What there is "
                        "to gain, and with it every price, is as uncertain as that."
                    )
        if abs(self.paid - self.told) > _FAR:
            text += (
                f" An arm taken at random pays {self.paid:.2g} of the range of rewards, and policies believed "
                f"{self.told:.2g}. If that rate is public, state it by base_rate= or --base-rate: every policy then "
                "learns faster, and the prices change."
            )
        return text

    def described(self) -> str:
        """Of a model: which columns it used, and how time went."""
        kinds = (("visitors", self.visitor), ("items", self.item))
        used = " and ".join(f"{what} by {', '.join(map(self._ranged, names))}" for what, names in kinds if names)
        text = f"The model describes {used}" if used else "The model knows the names of items, and nothing of visitors"
        if self.unused:
            text += f"; {', '.join(self.unused)} never changed"
        return text + ("; rewards drift, so that rounds kept the log's order." if self.drifts else ".")

    def _ranged(self, name: str) -> str:
        if name not in self.ranges:
            return name
        low, high = self.ranges[name]
        return f"{name} ({low:.4g} to {high:.4g})"

    def __str__(self) -> str:
        """The table as text, and the sentence."""
        model = [self.described(), as_text(self.compared())] if self.modelled else []
        return "\n".join([self.caption(), as_text(self._cells()), *model, self.sentence()])

    def __repr__(self) -> str:
        return f"PriceTable({self.environment!r}, {len(self.rows)} prices): {self.sentence()}"

    def _repr_html_(self) -> str:
        return as_html(f"{self.caption()}. {self.sentence()}", self._cells())

    def _cells(self) -> list[list[str]]:
        lines = [["unit", "ε", "mean reward", "lost of the gain", ""]]
        lines.append(
            ["none", "∞", with_error(self.free, self.free_se), "0 %", f"{self.reference} (not private)".strip()]
        )
        for row in self.rows:
            price = percent(row.price) + (f" ± {percent(row.price_se)}" if row.price_se > 0 else "")
            note = "noise exceeds signal" if row.hopeless else ""
            lines.append([row.unit, f"{row.epsilon:g}", with_error(row.reward, row.reward_se), price, note])
        return [*lines, ["", "0", with_error(self.uniform, self.uniform_se), "100 %", "uniform choices"]]

    def compared(self) -> list[list[str]]:
        """Of a model: what three policies earn by it and by the log, with a header."""
        lines = [["earns per round", "by the model", "by the log", "apart"]]
        for one in self.agreements:
            apart = f"{one.errors:.1f} standard errors" if math.isfinite(one.error) else "no row tells"
            lines.append([one.policy, f"{one.model:.4f}", with_error(one.log, one.error), apart])
        return lines

    def caption(self) -> str:
        """What was played, and how often."""
        return f"{self.environment}: {self.rounds:,} rounds, {self.seeds} seed{'s' if self.seeds > 1 else ''}"

    def to_json(self) -> str:
        """Everything, as JSON; unknown numbers are null."""
        compared = [asdict(one) | {"errors": one.errors} for one in self.agreements]
        whole = asdict(self) | {"agreements": compared, "sentence": self.sentence()}
        return json.dumps(_plain(whole), ensure_ascii=False, indent=1)

    def save(self, path: str | Path) -> Path:
        """Write :meth:`to_json` to a file."""
        Path(path).write_text(self.to_json() + "\n", encoding="utf-8")
        return Path(path)

    def plot(self, target: Any = None) -> Any:
        """The price against ε, a line for each unit, into an image file, on matplotlib's axes, or in a new figure."""
        return draw_prices(self, target)


def percent(share: float) -> str:
    """A share in whole percents, or a question mark where it is unknown.

    Examples
    --------
    >>> from dpbandits.lab.price_table import percent
    >>> percent(0.254)
    '25 %'
    """
    return "?" if math.isnan(share) else f"{100 * share:.0f} %"


def _plain(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _plain(value) for key, value in node.items()}
    if isinstance(node, (list, tuple)):
        return [_plain(value) for value in node]
    return None if isinstance(node, float) and not math.isfinite(node) else node

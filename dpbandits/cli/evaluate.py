"""``dpbandits evaluate LOG``: what other policies would have earned, from a log of choices and their probabilities."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["evaluate"]

_LOG, _PRIVATE = "The log", "A private release"


def evaluate(
    file: Annotated[Path, typer.Argument(help="A .csv file with a header, or a .parquet file: one choice per row.")],
    reward: Annotated[str, typer.Option(help="Column of the reward.", rich_help_panel=_LOG)] = "reward",
    probability: Annotated[
        str, typer.Option(help="Column of the probability with which the choice was made.", rich_help_panel=_LOG)
    ] = "probability",
    arm: Annotated[str, typer.Option(help="Column that names what was chosen.", rich_help_panel=_LOG)] = "arm",
    person: Annotated[str | None, typer.Option(help="Column that says whose row it is.", rich_help_panel=_LOG)] = None,
    feature: Annotated[
        list[str] | None,
        typer.Option(help="A column that the model of doubly_robust may use. Repeat it.", rich_help_panel=_LOG),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(help="Column with the probability of the row's choice under another policy. Repeat to compare."),
    ] = None,
    top: Annotated[int, typer.Option(help="Value 'always this arm' for so many of the most frequent arms.")] = 10,
    method: Annotated[str, typer.Option(help="snips, ips or doubly_robust (not for --target).")] = "snips",
    largest_weight: Annotated[
        float | None, typer.Option(help="Cut weights to this; needed with --epsilon. It must not come from the log.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    epsilon: Annotated[
        float | None,
        typer.Option(help="Release the values with noise: the ε of all of them together.", rich_help_panel=_PRIVATE),
    ] = None,
    delta: Annotated[float, typer.Option(help="Their δ.", rich_help_panel=_PRIVATE)] = 0.0,
    max_contributions: Annotated[
        int | None, typer.Option(help="With --person: how many rows of one are used.", rich_help_panel=_PRIVATE)
    ] = None,
    reward_range: Annotated[
        tuple[float, float], typer.Option(help="Rewards outside are cut to it.", rich_help_panel=_PRIVATE)
    ] = (0.0, 1.0),
    ledger: Annotated[
        str | None,
        typer.Option(
            help="Record the cost in this ledger (a file or postgresql://…), which may refuse it.",
            rich_help_panel=_PRIVATE,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Value policies on a log that holds one chosen arm per row, its probability and its reward.

    dpbandits evaluate clicks.csv --reward click --probability propensity --arm item

    Rows: the policy that was logged, a uniform choice, "always this arm" for the most frequent arms, every --target.
    Without --epsilon the values are computed from the raw log, and as confidential as it; which arms are the most
    frequent is always read from the log, so name them by --target columns where that is private.
    """
    from accounting import Budget
    from dpbandits.lab.evaluate import Log

    if method not in ("snips", "ips", "doubly_robust") or (method == "doubly_robust" and (target or epsilon)):
        raise ValueError(f"--method must be snips, ips or, without --target and --epsilon, doubly_robust, got {method}")
    if epsilon is None and (ledger is not None or max_contributions is not None):
        raise ValueError("--ledger and --max-contributions belong to a private release: give --epsilon, too")
    if epsilon is not None and largest_weight is None:
        raise ValueError("--largest-weight must be given with --epsilon: it bounds what one row can say")
    if epsilon is not None and person is not None and max_contributions is None:
        raise ValueError("--max-contributions must be given with --person and --epsilon: how many rows of one are used")
    if top < 0:
        raise ValueError(f"--top must be at least 0, got {top}")
    numbers = [*(feature or []), *(target or [])]
    log = Log.read(file, reward=reward, probability=probability, arm=arm, person=person, features=numbers)
    valued = _valued(log, len(feature or []), target or [], top)
    if epsilon is None:
        model = _model(log, len(feature or [])) if method == "doubly_robust" else None
        rows = [_raw(log, name, pi, method, model, largest_weight, confidence) for name, pi in valued]
    else:
        unit = "row" if person is None else "person"
        budget, noise = _each(Budget(epsilon, delta, adjacency="add_remove", unit=unit), len(valued))
        rows = _released(
            log, valued, method, largest_weight, reward_range, budget, noise, max_contributions, ledger, confidence
        )
    if as_json:
        shown = {"rows": rows, "method": method, "confidence": confidence, "private": epsilon is not None}
        typer.echo(json.dumps(shown, ensure_ascii=False))
        return
    _print(rows, file.name, len(log.rewards), method, confidence, epsilon, delta, person)


def _each(budget: Any, count: int) -> tuple[Any, str]:
    """What each of so many values may cost, and the noise that is then the smaller one."""
    from dataclasses import replace

    from accounting import Gaussian, calibrate, epsilon

    if budget.delta:
        adjacency = budget.adjacency
        z = calibrate(lambda z: count * Gaussian(z, adjacency=adjacency), budget)
        if z < math.sqrt(2) * count / budget.epsilon:
            share = float(epsilon(Gaussian(z, adjacency=adjacency), budget.delta / count))
            return replace(budget, epsilon=share, delta=budget.delta / count), "gaussian"
    return replace(budget, epsilon=budget.epsilon / count, delta=budget.delta / count), "laplace"


def _valued(log: Any, features: int, targets: list[str], top: int) -> list[tuple[str, Any]]:
    """The policies to be valued, by name: how probable the logged choices are under each."""
    import numpy as np

    counts = np.bincount(log.chosen, minlength=len(log.arms))
    frequent = np.argsort(-counts, kind="stable")[: max(0, top)]
    valued = [("as logged", log.probabilities), (f"uniform over {len(log.arms):,} arms", log.uniform())]
    valued += [(f"always {log.arms[k]}", log.always(log.arms[k])) for k in frequent]
    return valued + [(name, log.features[:, features + j]) for j, name in enumerate(targets)]


def _model(log: Any, features: int) -> Any:
    """The rewards that are expected of every arm."""
    from dpbandits.lab.evaluate import cross_fitted

    X = log.features[:, :features] if features else None
    return cross_fitted(log.rewards, log.chosen, len(log.arms), features=X, persons=log.persons)


def _raw(
    log: Any, name: str, pi: Any, method: str, q: Any, largest_weight: float | None, confidence: float
) -> dict[str, Any]:
    import numpy as np

    from dpbandits.lab import evaluate as off_policy

    more: dict[str, Any] = {"largest_weight": largest_weight, "persons": log.persons}
    if q is not None and name != "as logged":
        rows = np.full(q.shape, 1 / len(log.arms))
        if name.startswith("always "):
            rows = np.zeros(q.shape)
            rows[:, log.arms.index(name.removeprefix("always "))] = 1.0
        found = off_policy.doubly_robust(log.rewards, log.probabilities, rows, chosen=log.chosen, model=q, **more)
    else:
        found = (off_policy.ips if method == "ips" or name == "as logged" else off_policy.snips)(
            log.rewards, log.probabilities, pi, **more
        )
    low, high = found.interval(confidence)
    return {"policy": name, "value": found.value, "low": low, "high": high, "effective_rows": found.effective_rows}


def _released(
    log: Any,
    valued: list[tuple[str, Any]],
    method: str,
    largest: float | None,
    reward_range: tuple[float, float],
    budget: Any,
    noise: Any,
    max_contributions: int | None,
    place: str | None,
    confidence: float,
) -> list[dict[str, Any]]:
    from accounting import Ledger
    from dpbandits.lab.evaluate import private_value

    try:
        ledger = None if place is None else Ledger.open(place, create=False)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error}: make one with dpkit ledger open … --epsilon … first") from None
    rows = []
    try:
        for name, pi in valued:
            answer = private_value(
                log.rewards, log.probabilities, pi, budget=budget, noise=noise,
                largest_weight=1.0 if largest is None or name == "as logged" else largest,
                method="ips" if method == "ips" else "snips", reward_range=reward_range, persons=log.persons,
                max_contributions=max_contributions, ledger=ledger,
            )  # fmt: skip
            low, high = answer.interval(confidence, sampling=True)
            rows.append({"policy": name, "value": answer.value, "low": low, "high": high, "cost": repr(answer.cost)})
    finally:
        if ledger is not None:
            ledger.close()
    return rows


def _print(
    rows: list[dict[str, Any]],
    name: str,
    count: int,
    method: str,
    confidence: float,
    epsilon: float | None,
    delta: float,
    person: str | None,
) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    table = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    table.add_column("policy")
    table.add_column("mean reward", justify="right", no_wrap=True)
    table.add_column(f"{confidence:.3g} interval", no_wrap=True)
    if epsilon is None:
        table.add_column("worth rows", justify="right", no_wrap=True)
    for row in rows:
        interval = Text(f"[{row['low']:.4f}, {row['high']:.4f}]")
        worth = [f"{row['effective_rows']:,.0f}"] if epsilon is None else []
        table.add_row(Text(row["policy"]), f"{row['value']:.4f}", interval, *worth)
    size = f"{count:,} rows" if epsilon is None else "released with noise"
    console.print(Text(f"{name}: {size}, {method}"), table)
    if epsilon is None:
        console.print("Computed from the raw log: as confidential as the log. --epsilon releases it with noise.")
    else:
        unit = "row" if person is None else "person"
        console.print(f"All values together cost ε = {epsilon:g}, δ = {delta:g} per {unit}, added or removed.")

"""``dpbandits evaluate LOG``: what other policies would have earned, from a log of choices and their probabilities."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Sequence
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from dpbandits.cli import options
from dpkit.cli.options import Witness, paid_for
from dpkit.cli.printing import spending_ledger

if TYPE_CHECKING:
    from accounting import Budget, Ledger
    from accounting.arrays import Array
    from dpbandits.lab.evaluate import Log

    # a policy: its name, how probable the logged choices are under it, and its law of arms, where that is one for all
    _Valued = tuple[str, Array, Array | None]

__all__ = ["evaluate"]

_log = options.log_option
_release = partial(typer.Option, rich_help_panel="A private release")


def evaluate(
    file: Annotated[Path, typer.Argument(help="A .csv file with a header, or a .parquet file: one choice per row.")],
    reward: options.RewardColumn = "reward",
    default_reward: options.DefaultReward = None,
    probability: Annotated[str, _log(help="Column of the probability with which the choice was made.")] = "probability",
    arm: Annotated[str, _log(help="Column that names what was chosen.")] = "arm",
    person: options.PersonColumn = None,
    feature: Annotated[
        list[str] | None, _log(help="A column that the model of doubly_robust may use. Repeat it.")
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
        float | None, _release(help="Release the values with noise: the ε of all of them together.")
    ] = None,
    delta: Annotated[float, _release(help="Their δ.")] = 0.0,
    max_contributions: Annotated[int | None, _release(help="With --person: how many rows of one are used.")] = None,
    reward_range: Annotated[
        tuple[float, float], _release(help="Rewards outside are cut to it.", metavar="LOW HIGH")
    ] = (0.0, 1.0),
    ledger: Annotated[
        str | None, _release(help="Record the cost in this ledger (a file or postgresql://…), which may refuse it.")
    ] = None,
    witness: Witness = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object: rows, method, confidence, private.")
    ] = False,
) -> None:
    """Value policies on a log that holds one chosen arm per row, its probability and its reward.

    dpbandits evaluate clicks.csv --reward click --probability propensity --arm item

    Rows: the policy that was logged, a uniform choice, "always this arm" for the most frequent arms, every --target. A
    row is marked by ! where the log does not hold all that its policy chooses; its interval says how much that leaves
    open.

    Without --epsilon the values are computed from the raw log, and as confidential as it; which arms are the most
    frequent is always read from the log, so name them by --target columns where that is private.
    """
    from accounting import Budget
    from accounting.checks import fraction
    from dpbandits.lab.evaluate import Log

    if method not in ("snips", "ips", "doubly_robust") or (method == "doubly_robust" and (target or epsilon)):
        raise ValueError(f"--method must be snips, ips or, without --target and --epsilon, doubly_robust, got {method}")
    if epsilon is None and (ledger is not None or witness is not None or max_contributions is not None):
        raise ValueError("--ledger and --max-contributions belong to a private release: give --epsilon, too")
    if epsilon is not None and largest_weight is None:
        raise ValueError("--largest-weight must be given with --epsilon: it bounds what one row can say")
    if epsilon is not None and person is not None and max_contributions is None:
        raise ValueError("--max-contributions must be given with --person and --epsilon: how many rows of one are used")
    fraction("--confidence", confidence)
    if top < 0:
        raise ValueError(f"--top must be at least 0, got {top}")
    numbers = [*(feature or []), *(target or [])]
    columns: dict[str, Any] = {"reward": reward, "probability": probability, "arm": arm, "person": person}
    log = Log.read(file, **columns, features=numbers, default_reward=default_reward)
    valued = _valued(log, target or [], top)
    size, unit = f"{len(log.rewards):,} rows", "row" if person is None else "person"
    note = "Computed from the raw log: as confidential as the log. --epsilon releases it with noise."
    if epsilon is None:
        model = _model(log, len(feature or [])) if method == "doubly_robust" else None
        rows = _raw(log, valued, method, model, largest_weight, confidence)
    else:
        budget, noise = _each(Budget(epsilon, delta, adjacency="add_remove", unit=unit), len(valued))
        how = {"budget": budget, "noise": noise, "method": "ips" if method == "ips" else "snips"}
        how |= {"largest_weight": largest_weight, "reward_range": reward_range, "max_contributions": max_contributions}
        label = f"evaluate {file.name}, {len(valued)} values"
        rows = _released(log, valued, how, (ledger, witness), label, confidence)
        size = "released with noise"
        note = f"All values together cost ε = {epsilon:g}, δ = {delta:g} per {unit}, added or removed."
        if method == "ips":
            note += (
                "\nNot checked: whether the log holds what these policies choose, which --method snips tells by the "
                "sums that it releases. Where they choose what was hardly ever logged, the values are wrong."
            )
    shown = {"rows": rows, "method": method, "confidence": confidence, "private": epsilon is not None}
    with paid_for(lambda: json.dumps(shown)):
        if as_json:
            typer.echo(json.dumps(shown, ensure_ascii=False))
        else:
            _print(f"{file.name}: {size}, {method}", rows, confidence, note)


def _valued(log: Log, targets: Sequence[str], top: int) -> list[_Valued]:
    """The policies to be valued: the one that was logged, uniform choices, always the same arm, the targets."""
    import numpy as np

    count = len(log.arms)
    frequent = np.argsort(-np.bincount(log.chosen, minlength=count), kind="stable")[:top]
    valued: list[_Valued] = [("as logged", log.probabilities, None)]
    valued.append((f"uniform over {count:,} arms", log.uniform(), np.full(count, 1 / count)))
    valued += [(f"always {log.arms[k]}", log.always(log.arms[k]), np.eye(count)[k]) for k in frequent]
    if targets and log.features is not None:  # the last columns
        valued += zip(targets, log.features.T[-len(targets) :], [None] * len(targets), strict=True)
    return valued


def _model(log: Log, features: int) -> Array:
    """The rewards that are expected of every arm."""
    from dpbandits.lab.evaluate import cross_fitted

    X = None if log.features is None or not features else log.features[:, :features]
    return cross_fitted(log.rewards, log.chosen, len(log.arms), features=X, persons=log.persons)


def _raw(
    log: Log,
    valued: Sequence[_Valued],
    method: str,
    model: Array | None,
    largest_weight: float | None,
    confidence: float,
) -> list[dict[str, Any]]:
    import numpy as np

    from dpbandits.lab.evaluate import doubly_robust, ips, snips

    more: dict[str, Any] = {"largest_weight": largest_weight, "persons": log.persons}
    rows = []
    for name, pi, law in valued:
        with warnings.catch_warnings():  # they are printed beside their rows
            warnings.simplefilter("ignore", UserWarning)
            if model is not None and law is not None:
                laws = np.broadcast_to(law, model.shape)
                found = doubly_robust(log.rewards, log.probabilities, laws, chosen=log.chosen, model=model, **more)
            else:
                estimator = ips if method == "ips" or name == "as logged" else snips
                found = estimator(log.rewards, log.probabilities, pi, **more)
        low, high = found.interval(confidence)
        row = {"policy": name, "value": found.value, "low": low, "high": high, "effective_rows": found.effective_rows}
        rows.append(row | {"support": found.support.share, "warning": str(found.support) or None})
    return rows


def _each(budget: Budget, count: int) -> tuple[Budget, str]:
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


def _released(
    log: Log,
    valued: Sequence[_Valued],
    how: dict[str, Any],
    place: tuple[str | None, str | None],
    label: str,
    confidence: float,
) -> list[dict[str, Any]]:
    """The values, all of them charged as one release: where one is refused, none is paid for and lost."""
    from accounting import compose
    from dpbandits.lab.evaluate import private_value
    from dpkit import randomness
    from dpkit.mechanisms._checked import charged
    from dpkit.queries._units import check_spending
    from dpkit.queries.reports.waiting import Waiting

    source = randomness.resolve(None)

    def waiting(name: str, pi: Array) -> Waiting:
        more = how | {"persons": log.persons, "rng": source}
        more |= {"largest_weight": 1.0} if name == "as logged" else {}
        return Waiting(
            lambda query: private_value(log.rewards, log.probabilities, pi, **more, ledger=cast("Ledger", query))
        )

    ledger = spending_ledger(*place)
    values = [waiting(name, pi) for name, pi, _ in valued]
    rows = []
    with nullcontext() if ledger is None else closing(ledger):
        check_spending(how["budget"], ledger)
        try:
            costs: list[Any] = [value.next() for value in values]
            with charged(ledger, compose([(cost, 1) for cost in costs]), label, source):
                answers: list[Any] = [value.next() for value in values]
        finally:
            for value in values:
                value.stop()
    for (name, *_), answer in zip(valued, answers, strict=True):
        low, high = answer.interval(confidence, sampling=True)
        row = {"policy": name, "value": answer.value, "low": low, "high": high, "cost": repr(answer.cost)}
        known = how["method"] != "snips" or name == "as logged"
        rows.append(row if known else _held(row, answer, answers[0], how, confidence))
    return rows


def _held(row: dict[str, Any], answer: Any, logged: Any, how: dict[str, Any], confidence: float) -> dict[str, Any]:
    """How much of a target the log holds, by sums that were released: that of the weights, over the number of rows.

    Nothing but the two noisy sums is looked at, so that nothing more is spent. Weights in [0, M] with a mean of at most
    1 have a variance of at most M. Where 1 is out of reach, what is missing may have paid any reward.
    """
    from scipy.special import ndtri

    from dpbandits.lab.evaluate.support import REMEDY

    M, (least, most) = how["largest_weight"], how["reward_range"]
    count = max(float(logged.counted), 1.0)
    share = M * float(answer.counted) / count
    sampling = math.sqrt(M * (how["max_contributions"] or 1) / count)
    reach = float(ndtri((1 + confidence) / 2)) * math.hypot(
        M * answer.counted_std / count, share * logged.counted_std / count, sampling
    )
    row |= {"support": share, "support_reach": reach, "warning": None}
    if abs(share - 1) > reach:
        lost = min(1.0, max(0.0, 1 - share + reach)) if share < 1 else 1.0
        row["low"] += lost * (least - row["low"])
        row["high"] += lost * (most - row["high"])
        row["warning"] = (
            f"by what was released, and with weights up to {M:g}, the log holds {_holds(share)} ± {_holds(reach)} of "
            f"this target, and should hold all; the interval is as wide as that leaves it open. {REMEDY}"
        )
    return row


def _print(title: str, rows: Sequence[dict[str, Any]], confidence: float, note: str) -> None:
    from rich.text import Text

    from dpbandits.cli.report import console, tabled
    from dpbandits.lab.evaluate.support import REMEDY

    raw, warned = "effective_rows" in rows[0], [row for row in rows if row.get("warning")]
    held = bool(warned) or any("support_reach" in row for row in rows)
    columns: dict[str, Literal["left", "right"]] = {"policy": "left", "mean reward": "right"}
    columns |= {f"{confidence:.3g} interval": "left", **({"worth rows": "right"} if raw else {})}
    columns |= {"log holds": "right"} if held else {}
    cells = []
    for row in rows:
        worth = [f"{row['effective_rows']:,.0f}"] if raw else []
        if held and "support" in row:
            reach = f" ± {_holds(row['support_reach'])}" if "support_reach" in row else ""
            worth.append(f"{_holds(row['support'])}{reach}{' !' if row['warning'] else ''}")
        elif held:
            worth.append("")
        cells.append([row["policy"], f"{row['value']:.4f}", f"[{row['low']:.4f}, {row['high']:.4f}]", *worth])
    say = console().print
    say(Text(title), tabled(columns, cells, broken="policy"))
    if held:
        say("Log holds: of each policy's choices, by the mean of the weights, which must be 100 % but for chance.")
    missing = [row for row in warned if row["support"] < 1]
    for row in warned:
        if row not in missing:
            say(f"! {row['policy']}: {row['warning']}")
    if missing:
        cut = "" if raw else ", or with weights that --largest-weight cuts"
        say(
            f"! The log has no support for the rest: it never or hardly ever made those choices{cut}, or they were not "
            "always on offer. What they pay is unknown, and the marked intervals are as wide as that leaves them open. "
            f"{REMEDY}."
        )
    say(note)


def _holds(share: float) -> str:
    return f"{100 * max(share, 0.0):.0f} %"

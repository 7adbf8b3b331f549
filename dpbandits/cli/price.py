"""``dpbandits price LOG|WORLD``: what each ε would cost, before anything is launched."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from accounting.checks import nonnegative, positive
from dpbandits.cli import options
from dpbandits.cli.refusals import Command, fail

__all__ = ["Lists", "price"]

_log = options.log_option
_model = partial(typer.Option, rich_help_panel="Delays, and the model of a log of choices")


class Lists(Command):
    """A command two of whose options take several values: ``--epsilons 0.5 1 2 --units round person``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Every further value gets the option's name before it."""
        spread: list[str] = []
        option: str | None = None  # the one whose values go on
        for word in args:
            if option and spread[-1] != option and _belongs(option, word):
                spread.append(option)
            elif spread[-1:] != [option]:
                option = word if word in ("--epsilons", "--units") else None
            spread.append(word)
        return super().parse_args(ctx, spread)


def _belongs(option: str, word: str) -> bool:
    if option == "--units":
        return word in ("round", "person")
    try:
        float(word)
    except ValueError:
        return False
    return True


def price(
    source: Annotated[str, typer.Argument(help="A .csv or .parquet file, or a world of the gallery.")],
    epsilons: Annotated[
        list[float] | None, typer.Option("--epsilons", help="The ε to price, one after another.")
    ] = None,
    units: Annotated[
        list[str] | None,
        typer.Option("--units", help="round, person or both; by default both, where rounds say whose they are."),
    ] = None,
    delta: Annotated[float, typer.Option(help="δ of the budgets: well below 1 over the number of rounds.")] = 1e-5,
    base_rate: Annotated[float | None, typer.Option(help=options.BASE_RATE)] = None,
    rounds: Annotated[
        int | None, typer.Option("--rounds", "-t", help="T; by default that of the log, or of the gallery.")
    ] = None,
    reward: options.RewardColumn = "reward",
    default_reward: options.DefaultReward = None,
    probability: Annotated[
        str | None,
        _log(help="The log has one choice per row: column of the probability with which it was made."),
    ] = None,
    round_column: Annotated[
        str, _log("--round", help="Column that tells rounds apart, in a log of all arms.")
    ] = "round",
    arm: Annotated[str, _log(help="Column that names the arm.")] = "arm",
    person: options.PersonColumn = None,
    feature: Annotated[
        list[str] | None,
        _log(help="A column that describes the arm or the visitor; the command finds out which. Repeat it."),
    ] = None,
    reward_range: Annotated[
        tuple[float, float], _log(help="Smallest and largest possible reward.", metavar="LOW HIGH")
    ] = (0.0, 1.0),
    feature_bound: Annotated[float, _log(help="Length to which a row of features may go.")] = 1.0,
    theta_bound: Annotated[float, _log(help="S, a bound on the norm of a good parameter.")] = 5.0,
    offered: Annotated[
        int | None,
        _model(help="How many arms a round has; by default all of up to 50, 10 of more, or as the log has them."),
    ] = None,
    delay: Annotated[
        str,
        _model(
            help="Mean number of rounds by which rewards come late; or the log's column of such numbers, empty for "
            "never, from which delays are drawn.",
            metavar="NUMBER|COLUMN",
        ),
    ] = "0",
    missing: Annotated[float, _model(help="Share of the rewards that never come.")] = 0.0,
    seeds: options.Seeds = 3,
    jobs: options.Jobs = None,
    resume: options.Resume = None,
    out: options.Out = Path(),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object and nothing else: what price.json holds.")
    ] = False,
) -> None:
    """What privacy will cost on your data, before you launch: the share of the gain over uniform choices that is lost.

    dpbandits price clicks.csv --probability propensity --person user --feature price --epsilons 0.5 1 2 4

    dpbandits price people --epsilons 1 4 --units round person

    A log in which the reward of every shown arm is known (as for **dpbandits replay**) is played as it is. For a log
    with one choice per row, --probability names its column: a model of the rewards is fitted to it, compared with the
    log on three simple policies, and played. A log that it contradicts, or that says too little, is refused.

    Prints a table and a sentence, and writes price.png and price.json. All of it is computed from the raw log, and as
    confidential. After Ctrl-C the same command goes on where it stopped, with --resume.
    """
    from dpbandits.lab.environments import GALLERY, ChosenLog, Delayed, LogReplay, world
    from dpbandits.lab.evaluate import Log
    from dpbandits.lab.price import price_of_privacy

    environment: Any
    columns: dict[str, Any]
    budgets = [positive("--epsilons", one) for one in epsilons or (0.5, 1.0, 2.0, 4.0)]
    options.folder(out)
    options.kept_in(resume)
    if default_reward is not None and probability is None:
        raise ValueError("--default-reward belongs to a log with one choice per row: give --probability, too")
    path = Path(source)
    late = _delays(delay, path)
    bounds: dict[str, Any] = {"feature_bound": feature_bound, "reward_range": reward_range, "theta_bound": theta_bound}
    if source in GALLERY:
        environment = world(source).make()
        rounds = world(source).rounds if rounds is None else rounds
    elif not path.is_file():
        raise ValueError(f"SOURCE must be a .csv or .parquet file or one of {', '.join(GALLERY)}, got {source!r}")
    elif probability is not None:
        columns = {"reward": reward, "probability": probability, "arm": arm, "person": person}
        columns["default_reward"] = default_reward
        environment = ChosenLog(Log.read(path, **columns, features=tuple(feature or ())), offered=offered, **bounds)
    elif not isinstance(late, float) and not feature:
        raise ValueError(f"--feature must name the features where --delay names a column, got --delay {delay} alone")
    else:
        columns = {"round_column": round_column, "reward_column": reward, "arm_column": arm, "person_column": person}
        environment = LogReplay(path, **columns, features=feature or None, **bounds)
    if not isinstance(late, float):
        environment = Delayed(environment, delay=late, missing=missing)
    elif late or missing:
        environment = Delayed(environment, delay="geometric" if late else 0, mean=late or 1.0, missing=missing)
    try:
        table = price_of_privacy(
            environment, budgets, units=units or None, rounds=rounds, seeds=seeds, delta=delta,
            base_rate=base_rate, jobs=options.processes(jobs), resume=resume,
        )  # fmt: skip
    except KeyboardInterrupt:
        kept = "nothing is kept: --resume FILE.jsonl keeps every run as it ends"
        if resume is not None:
            kept = f"what is done is kept in {resume}, and the same command goes on from there"
        fail(f"interrupted: {kept}", 130)
    saved, plot = table.save(out / "price.json"), table.plot(out / "price.png")
    if as_json:
        typer.echo(table.to_json())
        return
    _print(table)
    typer.echo(f"\nPlot: {plot.resolve()}\nData: {saved.resolve()}")


def _delays(delay: str, path: Path) -> Any:
    """A mean, or the delays in a column of the log."""
    from dpbandits.lab.tables import Table

    try:
        mean = float(delay)
    except ValueError:
        if not path.is_file():
            raise ValueError(f"--delay must be a number, or a column of a log, got {delay!r} for no log") from None
    else:
        return nonnegative("--delay", mean)
    table = Table(path)
    table.require([delay])
    found = table.delays(delay)
    table.complain()
    return found


def _print(table: Any) -> None:
    from rich.text import Text

    from dpbandits.cli.report import console, tabled
    from dpbandits.lab.price_table import percent
    from dpbandits.lab.simulation.results import with_error

    say = console().print
    columns: dict[str, Literal["left", "right"]] = {"protected": "left", "ε": "right", "mean reward": "right"}
    rows = [("nothing", "∞", with_error(table.free, table.free_se), percent(0.0), "not private")]
    for row in table.rows:
        lost = percent(row.price) + (f" ± {percent(row.price_se)}" if row.price_se > 0 else "")
        note = "noise exceeds signal" if row.hopeless else ""
        rows.append((row.unit, f"{row.epsilon:g}", with_error(row.reward, row.reward_se), lost, note))
    rows.append(("", "0", with_error(table.uniform, table.uniform_se), percent(1.0), "uniform choices"))
    say(Text(table.caption(), style="bold"), tabled(columns | {"lost": "right", "": "left"}, rows, broken=""))
    say("Lost: of the gain over uniform choices. ± is one standard error over seeds.\n")
    if table.modelled:
        head, *lines = table.compared()
        aligned: dict[str, Literal["left", "right"]] = {name: "right" if k else "left" for k, name in enumerate(head)}
        say(Text(table.described()), tabled(aligned, lines, broken=""))
        say("By the log: corrected by rewards that were seen, weighted by 1/probability.\n")
    say(Text(table.sentence(), style="bold"))
    say("\nComputed from raw data by seeded simulations: as confidential as the log, and not a private release.")

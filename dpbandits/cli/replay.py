"""``dpbandits replay FILE``: policies on a user's own log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpbandits.cli import options

__all__ = ["replay"]


def replay(
    file: Annotated[Path, typer.Argument(help="A .csv file with a header, or a .parquet file.")],
    layout: Annotated[str, typer.Option(help="long or labels; see above.")] = "long",
    round_column: Annotated[str, typer.Option("--round", help="Column that tells rounds apart (long).")] = "round",
    reward: Annotated[str, typer.Option(help="Column of the reward of the row's arm (long).")] = "reward",
    arm: Annotated[str, typer.Option(help="Column that names the arm, if there is one (long); not a feature.")] = "arm",
    label: Annotated[str, typer.Option(help="Column of the right arm (labels).")] = "label",
    person: Annotated[
        str | None, typer.Option(help="Column that says whose round it is; not a feature, and the same in a round.")
    ] = None,
    feature: Annotated[
        list[str] | None, typer.Option(help="A column that describes an arm. Repeat it. Default: all other columns.")
    ] = None,
    reward_range: Annotated[
        tuple[float, float], typer.Option(help="Smallest and largest possible reward (long). Others are refused.")
    ] = (0.0, 1.0),
    feature_bound: Annotated[
        float, typer.Option(help="Length to which a row of features may go; longer rows are scaled down to it.")
    ] = 1.0,
    theta_bound: Annotated[float, typer.Option(help="S, a bound on the norm of a good parameter.")] = 5.0,
    keep_order: Annotated[bool, typer.Option("--keep-order", help="Play the rounds in the order of the file.")] = False,
    epsilon: options.Epsilon = options.DEFAULT_EPSILONS,
    delta: options.Delta = 1e-5,
    policy: options.PolicyNames = None,
    unit: options.Unit = "round",
    base_rate: options.BaseRate = None,
    seeds: options.Seeds = 5,
    jobs: options.Jobs = None,
    resume: options.Resume = None,
    out: options.Out = Path(),
    as_json: options.AsJson = False,
) -> None:
    """Compare policies on your own log, in which the reward of every shown arm is known.

    **long**: one row per round and arm. Rows of a round stand together. Columns: round, reward, and the features of
    the arm (any names).

    **labels**: one row per round, with features and the label of the right arm. Every label is an arm with a
    parameter of its own; reward 1 for the right one, else 0. d = labels × (features + 1): choose few features.

    **Scale.** Features are divided by --feature-bound, and rows still longer than 1 are scaled to 1; an intercept is
    added. State a bound that you know without looking at the data: a maximum that is computed from the rows would
    reveal the largest one, and no ε covers that. Rewards are mapped from --reward-range to [0, 1]. The columns, the
    labels and the number of rounds count as public.

    **Persons.** --person COLUMN --unit person protects everyone in all rounds together. Whose a round is counts as
    public.

    The seed shuffles the rounds. Prints a table with standard errors over seeds, and writes replay.png and
    replay.json. A bad value is named by its row (the header is row 1) and column. Ctrl-C keeps what is done.
    """
    from dpbandits.cli.policies import factories, named
    from dpbandits.cli.report import play, unit_note
    from dpbandits.lab.environments import LogReplay

    if unit == "person" and person is None:
        raise ValueError("person must be given for --unit person: the column that says whose round it is, got none")
    environment = LogReplay(
        file,
        layout=layout,  # type: ignore[arg-type]
        round_column=round_column,
        reward_column=reward,
        arm_column=arm,
        label_column=label,
        person_column=person,
        features=feature or None,
        reward_range=reward_range,
        feature_bound=feature_bound,
        shuffle=not keep_order,
        theta_bound=theta_bound,
        base_rate=base_rate,
    )
    names, rounds = named(policy, unit, environment), environment.rounds
    policies = factories(names, epsilon, delta, environment, rounds, unit=unit)
    size = f"{rounds:,} rounds, {environment.rows:,} rows, d = {environment.dim}"
    told = f"{file.name}: {size}; {environment.rescaled:,} rows longer than --feature-bound {feature_bound:g}"
    typer.echo(told, err=as_json)
    note = unit_note(unit, names)
    play(policies, environment, "replay", rounds, note, seeds=seeds, jobs=jobs, out=out, resume=resume, as_json=as_json)

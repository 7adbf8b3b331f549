"""``dpbandits run``: policies on a simulated bandit with a known model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from accounting.checks import nonnegative
from dpbandits.cli.options import (
    DEFAULT_EPSILONS,
    BaseRate,
    Delta,
    Epsilon,
    Jobs,
    Out,
    PolicyNames,
    Resume,
    Seeds,
    Unit,
    chosen,
    unit_note,
)

__all__ = ["run"]

_WORLD = "World"
# the worlds of the gallery whose rounds say whose they are
_WITH_PERSONS = "people", "regulars", "films"


def run(
    world: Annotated[
        str | None,
        typer.Option(help="A world of the gallery, with its own link and sizes; see below.", rich_help_panel=_WORLD),
    ] = None,
    link: Annotated[
        str, typer.Option(help="logistic, probit, linear or poisson.", rich_help_panel=_WORLD)
    ] = "logistic",
    dim: Annotated[int, typer.Option("--dim", "-d", help="Dimension d of an arm.", rich_help_panel=_WORLD)] = 5,
    arms: Annotated[int, typer.Option("--arms", "-k", help="K, the number of arms.", rich_help_panel=_WORLD)] = 20,
    arm_law: Annotated[
        str,
        typer.Option(
            help="ball, sphere or cube: new arms in every round; fixed, fixed_sphere, fixed_cube or one_hot: one set.",
            rich_help_panel=_WORLD,
        ),
    ] = "ball",
    theta_norm: Annotated[
        float, typer.Option(help="S, the norm of the true parameter; policies know it.", rich_help_panel=_WORLD)
    ] = 3.0,
    noise: Annotated[
        str | None,
        typer.Option(
            help="gaussian, student_t, pareto or symmetric_pareto: linear rewards with this noise.",
            rich_help_panel=_WORLD,
        ),
    ] = None,
    tail_index: Annotated[
        float,
        typer.Option(
            help="Of student_t (degrees of freedom) and the Paretos: moments below it are finite.",
            rich_help_panel=_WORLD,
        ),
    ] = 2.1,
    delay: Annotated[
        float, typer.Option(help="Mean number of rounds by which rewards come late.", rich_help_panel=_WORLD)
    ] = 0.0,
    missing: Annotated[float, typer.Option(help="Share of the rewards that never come.", rich_help_panel=_WORLD)] = 0.0,
    rounds: Annotated[
        int | None,
        typer.Option(
            "--rounds", "-t", help="T, the number of rounds: 5000, or what the gallery has.", rich_help_panel=_WORLD
        ),
    ] = None,
    epsilon: Epsilon = DEFAULT_EPSILONS,
    delta: Delta = 1e-5,
    policy: PolicyNames = None,
    unit: Unit = "round",
    base_rate: BaseRate = None,
    seeds: Seeds = 5,
    jobs: Jobs = None,
    resume: Resume = None,
    out: Out = Path(),
) -> None:
    """Compare policies on a simulated bandit with a known model.

    Every round draws K arms, by default uniformly from the unit ball of R^d; the reward of arm x has mean μ(xᵀθ),
    where θ is a random vector of norm S, new for every seed. Regret is the expected reward lost against the best arm
    of every round. Where rewards are unbounded, private policies clip them to a fixed range: three standard
    deviations beyond the extreme means for the links linear and poisson, the middle 99 % of the noise for --noise.

    --world takes the place of all options that describe the model: logit-shift, advertising, unit-linear, one-hot,
    sphere, digits, diamonds, disjoint, disjoint-50, counts, flip, still, late, overtaking, sorted, quadratic, people,
    regulars or films. Their laws are in the documentation of dpbandits.lab.environments.

    --unit person protects persons, in a world that has some: people, regulars or films.

    Prints a table with standard errors over seeds, and writes run.png and run.json. Ctrl-C keeps what is done.
    """
    from dpbandits.cli.policies import factories
    from dpbandits.cli.report import play
    from dpbandits.lab.environments import GLM, Delayed, Linear
    from dpbandits.lab.environments import world as gallery

    known: dict[str, Any] = {"arms": arms, "theta_norm": theta_norm, "arm_law": arm_law}
    environment: Any
    if world is not None:
        environment = gallery(world).make()
    elif noise is None:
        environment = GLM(dim, link=link, **known)
    else:
        environment = Linear(dim, noise=noise, df=tail_index, tail_index=tail_index, **known)  # type: ignore[arg-type]
    if unit == "person" and world not in _WITH_PERSONS:
        raise ValueError(f"--world must be one with persons for --unit person, {', '.join(_WITH_PERSONS)}, got {world}")
    if nonnegative("--delay", delay) or missing:
        environment = Delayed(environment, delay="geometric" if delay else 0, mean=delay or 1.0, missing=missing)
    if rounds is None:
        rounds = 5000 if world is None else gallery(world).rounds
    names = chosen(policy, unit)
    policies = factories(names, epsilon, delta, environment, rounds, base_rate, unit)
    play(
        policies,
        environment,
        command="run",
        rounds=rounds,
        seeds=seeds,
        jobs=jobs,
        out=out,
        resume=resume,
        unit_note=unit_note(unit, names),
    )

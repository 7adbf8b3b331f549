"""``dpbandits run``: policies on a simulated bandit with a known model."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from accounting.checks import nonnegative
from dpbandits.cli import options

__all__ = ["run"]

# the worlds of the gallery whose rounds say whose they are
_WITH_PERSONS = "people", "regulars", "films"
_world = partial(typer.Option, rich_help_panel="World")


def run(
    world: Annotated[str | None, _world(help="A world of the gallery, with its own link and sizes; see below.")] = None,
    link: Annotated[str, _world(help="logistic, probit, linear or poisson.")] = "logistic",
    dim: Annotated[int, _world("--dim", "-d", help="Dimension d of an arm.")] = 5,
    arms: Annotated[int, _world("--arms", "-k", help="K, the number of arms.")] = 20,
    arm_law: Annotated[
        str,
        _world(
            help="ball, sphere or cube: new arms in every round; fixed, fixed_sphere, fixed_cube or one_hot: one set."
        ),
    ] = "ball",
    theta_norm: Annotated[float, _world(help="S, the norm of the true parameter; policies know it.")] = 3.0,
    noise: Annotated[
        str | None,
        _world(help="gaussian, student_t, pareto or symmetric_pareto: linear rewards with this noise."),
    ] = None,
    tail_index: Annotated[
        float, _world(help="Of student_t (degrees of freedom) and the Paretos: moments below it are finite.")
    ] = 2.1,
    delay: Annotated[float, _world(help="Mean number of rounds by which rewards come late.")] = 0.0,
    missing: Annotated[float, _world(help="Share of the rewards that never come.")] = 0.0,
    rounds: Annotated[
        int | None,
        _world("--rounds", "-t", help="T, the number of rounds: 5000, or what the gallery has."),
    ] = None,
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
    """Compare policies on a simulated bandit with a known model.

    Every round draws K arms, by default uniformly from the unit ball of R^d; the reward of arm x has mean μ(xᵀθ),
    where θ is a random vector of norm S, new for every seed. Regret is the expected reward lost against the best arm
    of every round. Where rewards are unbounded, private policies clip them to a fixed range: three standard
    deviations beyond the extreme means for the links linear and poisson, the middle 99 % of the noise for --noise.

    --world takes the place of all options that describe the model: logit-shift, advertising, unit-linear, one-hot,
    sphere, digits, diamonds, disjoint, disjoint-50, counts, flip, still, late, overtaking, sorted, quadratic, people,
    regulars or films; and, of arms without features, abn, abn-close, rare, unknown-scale, pareto, long-logits, arms-10,
    arms-40 or arms-100. Their laws are in the documentation of dpbandits.lab.environments.

    --unit person protects persons, in a world that has some: people, regulars or films.

    Prints a table with standard errors over seeds, and writes run.png and run.json. Ctrl-C keeps what is done.
    """
    from dpbandits.cli.policies import factories, named
    from dpbandits.cli.report import play, unit_note
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
    names = named(policy, unit, environment)
    policies = factories(names, epsilon, delta, environment, rounds, base_rate, unit)
    play(
        policies,
        environment,
        "run",
        rounds,
        unit_note(unit, names),
        seeds=seeds,
        jobs=jobs,
        out=out,
        resume=resume,
        as_json=as_json,
    )

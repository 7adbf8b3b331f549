"""``dpbandits run``: policies on a simulated generalized linear bandit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpbandits.cli.options import DEFAULT_EPSILONS, DEFAULT_POLICIES, Delta, Epsilon, Jobs, Out, PolicyNames, Seeds

__all__ = ["run"]

_UNIT = "Privacy is joint and its unit is one round: its arms and its reward."


def run(
    link: Annotated[str, typer.Option(help="logistic, probit, linear or poisson.")] = "logistic",
    dim: Annotated[int, typer.Option("--dim", "-d", help="Dimension d of an arm.")] = 5,
    arms: Annotated[int, typer.Option("--arms", "-k", help="K, new arms in every round.")] = 20,
    theta_norm: Annotated[float, typer.Option(help="S, the norm of the true parameter; policies know it.")] = 3.0,
    rounds: Annotated[int, typer.Option("--rounds", "-t", help="T, the number of rounds.")] = 5000,
    epsilon: Epsilon = DEFAULT_EPSILONS,
    delta: Delta = 1e-5,
    policy: PolicyNames = DEFAULT_POLICIES,
    seeds: Seeds = 5,
    jobs: Jobs = None,
    out: Out = Path(),
) -> None:
    """Compare policies on a simulated bandit with a known model.

    Every round draws K arms uniformly from the unit ball of R^d; the reward of arm x has mean μ(xᵀθ), where θ is a
    random vector of norm S, new for every seed. Regret is the expected reward lost against the best arm of every
    round. Where rewards are unbounded (linear, poisson), private policies clip them to a fixed range, three
    standard deviations beyond the extreme means.

    Prints a table with standard errors over seeds, and writes run.png and run.json. Ctrl-C keeps what is done.
    """
    from dpbandits.cli.policies import factories
    from dpbandits.cli.report import play
    from dpbandits.environments import GLM

    environment = GLM(dim, arms=arms, link=link, theta_norm=theta_norm)
    policies = factories(policy, epsilon, delta, environment, rounds)
    play(policies, environment, command="run", rounds=rounds, seeds=seeds, jobs=jobs, out=out, unit_note=_UNIT)

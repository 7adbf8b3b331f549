"""Run policies against an environment, over seeds and processors.

>>> from dpbandits.lab.environments import GLM
>>> from dpbandits.policies import EpsilonGreedy, Uniform
>>> policies = {
...     "uniform": lambda rng: Uniform(dim=3, rng=rng),
...     "greedy": lambda rng: EpsilonGreedy(dim=3, rng=rng),
... }
>>> results = simulate(policies, GLM(dim=3, arms=10), rounds=500, seeds=3, progress=False)
>>> regret = {row["policy"]: row["regret"] for row in results.table()}
>>> regret["greedy"] < regret["uniform"]
True
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from accounting.checks import integer
from dpbandits._progress_bar import progress_bar
from dpbandits.lab.environments.base import Environment, checked_rounds
from dpbandits.lab.simulation.play import Game, PolicyFactory, Task
from dpbandits.lab.simulation.results import Results
from dpbandits.lab.simulation.runs import Run
from dpbandits.lab.simulation.workers import by_joblib, by_processes, one_by_one

__all__ = ["PolicyFactory", "simulate"]


def simulate(
    policies: Mapping[str, PolicyFactory],
    environment: Environment,
    *,
    rounds: int | None = None,
    seeds: int | Sequence[int] = 5,
    jobs: int | None = None,
    backend: str | None = None,
    resume: str | Path | None = None,
    points: int = 500,
    progress: bool = True,
) -> Results:
    """Play every policy on every seed.

    For one seed all policies see the same arms and the same luck. A run depends on the environment, the policy's name
    and the seed alone: not on the other policies, on their order, on ``jobs`` or on ``backend``. Ctrl-C ends the
    simulation and keeps the runs that are done (``results.complete`` is then False).

    A policy is given the arms of a round, or its context where it takes contexts (:mod:`dpbandits.policy.offers`). One
    that knows no more of arms than their names, such as :class:`~dpbandits.policies.PrivateArms`, plays where arms
    are fixed: its k-th name is row k of the environment. So policies of all kinds can be compared on
    :class:`~dpbandits.lab.environments.Arms`, by the same luck. A policy is told a reward after as many further rounds
    as the environment delays it by; a reward that is due after the last round is not told.

    Parameters
    ----------
    policies : mapping from str to callable
        Under each name a function that makes the policy from a seeded generator, such as
        ``lambda rng: OnePassPrivateGLM(5, budget=budget, horizon=1000, rng=rng)``. Passing ``rng`` on makes the run
        reproducible, and a simulation: it is not a private release. A function with the attribute
        ``public_arms = True`` is called with the arms of the first round as well, for policies whose arms are public
        and stand: ``lambda rng, arms: StandingPrivateGLM(5, arms, budget=budget, horizon=1000, rng=rng)``.
    environment : Environment
        What they play against; see :mod:`dpbandits.lab.environments`.
    rounds : int, optional
        By default as many as the environment has.
    seeds : int or sequence of int
        ``n`` stands for 0, …, n − 1.
    jobs : int, optional
        Number of processes; by default this one alone, or all workers of ``backend``. Without ``backend``, where
        processes are not forked (macOS, Windows, Python ≥ 3.14), the functions in ``policies`` must be picklable:
        defined at the top of a module, not lambdas.
    backend : str, optional
        A back end of joblib that plays the runs: ``"loky"``, ``"dask"``, ``"ray"`` and what else is registered; or
        ``"joblib"`` for the one that ``joblib.parallel_config`` has set. By default processes of this machine, which
        start faster and need no further package.
    resume : path, optional
        A ``.jsonl`` file that keeps every run as it ends. Runs that are in it already are not played again, so that
        the same call goes on where it was stopped, and a call with more policies or seeds plays the new ones only.
        One call at a time may write to it.
    points : int
        Curves are kept at so many evenly spaced rounds, the last included.
    progress : bool
        Show a progress bar on a terminal, if ``rich`` is installed.

    Returns
    -------
    Results

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range; for a file to resume from with another environment, number of rounds or points,
        or a policy of the same name with other parameters. An error inside a run names the policy and the seed.
    ImportError
        If ``backend`` needs a package that is not installed.

    Examples
    --------
    >>> from dpbandits import simulate
    >>> from dpbandits.lab.environments import GLM
    >>> from dpbandits.policies import GLBOMD, Uniform
    >>> policies = {"GLB-OMD": lambda rng: GLBOMD(2, rng=rng), "chance": lambda rng: Uniform(2, rng=rng)}
    >>> results = simulate(policies, GLM(dim=2, arms=5), rounds=200, seeds=2, progress=False)
    >>> results.complete, len(results.table())
    (True, 2)
    """
    _check_policies(policies)
    if isinstance(environment, type):
        raise TypeError(f"environment must be an environment, got a class: make one by {environment.__name__}(…)")
    rounds = checked_rounds(rounds, environment)
    chosen = _checked_seeds(seeds)
    jobs = None if jobs is None else integer("jobs", jobs, at_least=1)
    if not (backend is None or isinstance(backend, str)):
        raise TypeError(f"backend must be the name of a back end of joblib, got backend={backend!r}")
    points = min(integer("points", points, at_least=1), rounds)
    game = Game(dict(policies), environment, -(-np.arange(1, points + 1) * rounds // points))

    # seed by seed, so that an interrupted simulation has its policies on the same seeds
    planned = [(name, seed) for seed in chosen for name in policies]
    done: dict[Task, Run] = {}
    log = None
    if resume is not None:
        from dpbandits.lab.simulation.runlog import RunLog

        log = RunLog(Path(resume), game)
        log.plan(chosen)
        done = {task: log.runs[task] for task in planned if task in log.runs}
    tasks = [task for task in planned if task not in done]
    with progress_bar(len(tasks) * rounds, environment.name, progress) as tick:
        if backend is not None and tasks:
            finished = by_joblib(game, tasks, tick, jobs, backend)
        elif min(jobs or 1, len(tasks)) > 1:
            finished = by_processes(game, tasks, tick, min(jobs or 1, len(tasks)))
        else:
            finished = one_by_one(game, tasks, tick)
        # an interrupt may come anywhere; what is in ``done`` is whole
        try:
            for task, played in finished:
                done[task] = played[0]
                if log is not None:
                    log.add(played)
        except KeyboardInterrupt:
            if not done:
                raise
        finally:
            finished.close()
    runs = tuple(done[name, seed] for name in policies for seed in chosen if (name, seed) in done)
    return Results(environment.name, runs, len(planned))


def _check_policies(policies: Mapping[str, PolicyFactory]) -> None:
    if not isinstance(policies, Mapping) or not policies:
        raise TypeError(f"policies must be a nonempty dict from names to functions, got policies={policies!r}")
    for name, make in policies.items():
        if not isinstance(name, str) or not callable(make):
            raise TypeError(f"policies[{name!r}] must be a function that makes a policy from a generator, got {make!r}")


def _checked_seeds(seeds: int | Sequence[int]) -> list[int]:
    listed = seeds if isinstance(seeds, Iterable) else range(integer("seeds", seeds, at_least=1))
    chosen = [integer("seeds", seed, at_least=0) for seed in listed]
    if not chosen or len(set(chosen)) < len(chosen):
        raise ValueError(f"seeds must be different numbers, at least one, got seeds={seeds!r}")
    return chosen

"""Run policies against an environment, over seeds and processors.

>>> from dpbandits.environments import GLM
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

import contextlib
import hashlib
import importlib.util
import math
import multiprocessing
import pickle
import signal
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from itertools import islice
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting._checks import integer
from dpbandits.environments.base import Environment
from dpbandits.policy import Policy
from dpbandits.results import Results, Run

__all__ = ["PolicyFactory", "simulate"]

PolicyFactory = Callable[[np.random.Generator], Policy]
# told how many more rounds are done
_Tick = Callable[[int], None]


def simulate(
    policies: Mapping[str, PolicyFactory],
    environment: Environment,
    *,
    rounds: int | None = None,
    seeds: int | Sequence[int] = 5,
    jobs: int = 1,
    points: int = 500,
    progress: bool = True,
) -> Results:
    """Play every policy on every seed.

    For one seed all policies see the same arms and the same luck. A run depends on the environment, the policy's name
    and the seed alone: not on the other policies, on their order or on ``jobs``. Ctrl-C ends the simulation and keeps
    the runs that are done (``results.complete`` is then False).

    Parameters
    ----------
    policies : mapping from str to callable
        Under each name a function that makes the policy from a seeded generator, such as
        ``lambda rng: OnePassPrivateGLM(5, budget=budget, horizon=1000, rng=rng)``. Passing ``rng`` on makes the run
        reproducible, and a simulation: it is not a private release.
    environment : Environment
        What they play against; see :mod:`dpbandits.environments`.
    rounds : int, optional
        By default as many as the environment has.
    seeds : int or sequence of int
        ``n`` stands for 0, …, n − 1.
    jobs : int
        Number of processes. Where processes are not forked (macOS, Windows, Python ≥ 3.14) the functions
        in ``policies`` must be picklable: defined at the top of a module, not lambdas.
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
        For a parameter out of range. An error inside a run names the policy and the seed.
    """
    if not isinstance(policies, Mapping) or not policies:
        raise TypeError(f"policies must be a nonempty dict from names to functions, got policies={policies!r}")
    for name, make in policies.items():
        if not isinstance(name, str) or not callable(make):
            raise TypeError(f"policies[{name!r}] must be a function that makes a policy from a generator, got {make!r}")
    if rounds is None:
        rounds = environment.rounds
    if rounds is None:
        raise ValueError(f"rounds must be given: {environment.name} has no end")
    rounds = integer("rounds", rounds, at_least=1)
    if environment.rounds is not None and rounds > environment.rounds:
        raise ValueError(f"rounds must be at most {environment.rounds} for {environment.name}, got rounds={rounds}")
    listed = seeds if isinstance(seeds, Iterable) else range(integer("seeds", seeds, at_least=1))
    chosen = [integer("seeds", seed, at_least=0) for seed in listed]
    if not chosen or len(set(chosen)) < len(chosen):
        raise ValueError(f"seeds must be different numbers, at least one, got seeds={seeds!r}")
    jobs = min(integer("jobs", jobs, at_least=1), len(policies) * len(chosen))
    points = min(integer("points", points, at_least=1), rounds)
    grid = -(-np.arange(1, points + 1) * rounds // points)

    # seed by seed, so that an interrupted simulation has its policies on the same seeds
    tasks = [(name, seed) for seed in chosen for name in policies]
    done: dict[tuple[str, int], Run] = {}
    with _progress_bar(len(tasks) * rounds, environment.name, progress) as tick:
        finished = (_parallel if jobs > 1 else _serial)(tasks, policies, environment, grid, jobs, tick)
        # an interrupt may come anywhere; what is in ``done`` is whole
        try:
            for task, run in finished:
                done[task] = run
        except KeyboardInterrupt:
            if not done:
                raise
        finally:
            finished.close()
    runs = tuple(done[name, seed] for name in policies for seed in chosen if (name, seed) in done)
    return Results(environment.name, runs, len(tasks))


def _play(
    name: str, make: PolicyFactory, environment: Environment, seed: int, grid: NDArray[np.int64], tick: _Tick
) -> Run:
    """One policy on one seed."""
    try:
        policy = make(_generator(seed, name))
        episode = environment.episode(_generator(seed))
        reward = regret = seconds = 0.0
        played = 0
        noted = np.empty((3, len(grid)))
        for i, end in enumerate(grid.tolist()):
            for now in islice(episode, end - played):
                started = perf_counter()
                decision = policy.select(now.arms)
                selected = perf_counter()
                index = decision.index
                gain = now.reward(index)
                told = perf_counter()
                policy.update(decision, gain)
                seconds += perf_counter() - told + selected - started
                reward += gain
                regret += math.nan if now.means is None else float(now.means.max() - now.means[index])
                played += 1
            if played < end:
                raise ValueError(f"{environment.name} must have at least {grid[-1]} rounds, got {played}")
            noted[:, i] = reward, regret, seconds
            tick(end - (int(grid[i - 1]) if i else 0))
        return Run(name, type(policy).__name__, seed, grid, noted[0], noted[1], noted[2], policy.privacy())
    except Exception as error:
        error.add_note(f"in the run of policy {name!r} on seed {seed}")
        raise


def _generator(seed: int, name: str | None = None) -> np.random.Generator:
    """The environment's generator of a seed, or a policy's: keyed by seed and name, so that order does not matter."""
    key = (0,) if name is None else (1, *hashlib.sha256(name.encode()).digest())
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


_Finished = Generator[tuple[tuple[str, int], Run], None, None]


def _serial(
    tasks: list[tuple[str, int]],
    policies: Mapping[str, PolicyFactory],
    environment: Environment,
    grid: NDArray[np.int64],
    jobs: int,
    tick: _Tick,
) -> _Finished:
    for name, seed in tasks:
        yield (name, seed), _play(name, policies[name], environment, seed, grid, tick)


# --------------------------------------------------------------------------------------------- processes

# what a worker process got when it started
_worker: tuple[Any, ...] = ()


class _Stopped(Exception):
    """The simulation was interrupted."""


def _start_worker(*shared: Any) -> None:
    global _worker
    _worker = shared
    # Ctrl-C reaches all processes of a terminal; the parent tells the workers when to stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _play_in_worker(name: str, seed: int) -> Run:
    policies, environment, grid, played, stop = _worker

    def tick(rounds: int) -> None:
        if stop.is_set():
            raise _Stopped
        with played.get_lock():
            played.value += rounds

    return _play(name, policies[name], environment, seed, grid, tick)


def _parallel(
    tasks: list[tuple[str, int]],
    policies: Mapping[str, PolicyFactory],
    environment: Environment,
    grid: NDArray[np.int64],
    jobs: int,
    tick: _Tick,
) -> _Finished:
    context = multiprocessing.get_context()
    if context.get_start_method() != "fork":
        try:
            pickle.dumps((dict(policies), environment))
        except Exception as error:
            raise TypeError(
                f"policies must be picklable for jobs={jobs} (functions at the top of a module, not lambdas): {error}"
            ) from error
    played, stop = context.Value("q", 0), context.Event()
    shared = (dict(policies), environment, grid, played, stop)
    with ProcessPoolExecutor(jobs, context, _start_worker, shared) as pool:
        waiting = {pool.submit(_play_in_worker, *task): task for task in tasks}
        shown = 0
        try:
            while waiting:
                finished = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED).done
                known = played.value
                tick(known - shown)
                shown = known
                for future in finished:
                    yield waiting.pop(future), future.result()
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def _progress_bar(total: int, title: str, wanted: bool) -> Iterator[_Tick]:
    if not (wanted and sys.stderr.isatty() and importlib.util.find_spec("rich")):
        yield lambda rounds: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(title, total=total)

    def tick(rounds: int) -> None:
        # started late: the bar has a thread, and processes should be forked before there are threads
        bar.start()
        bar.advance(task, rounds)

    try:
        yield tick
    finally:
        bar.stop()

"""The ways to play many runs: one after the other, over the processes of this machine, or where joblib sends them."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

from dpbandits._extras import need
from dpbandits.lab.simulation.play import Game, Played, Task, Tick

__all__ = ["by_joblib", "by_processes", "one_by_one"]

_Finished = Generator[tuple[Task, Played], None, None]


def one_by_one(game: Game, tasks: list[Task], tick: Tick) -> _Finished:
    """In this process, in the order of ``tasks``."""
    for task in tasks:
        yield task, game.play(*task, tick)


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


def _play_in_worker(name: str, seed: int) -> Played:
    game, played, stop = _worker

    def tick(rounds: int) -> None:
        if stop.is_set():
            raise _Stopped
        with played.get_lock():
            played.value += rounds

    return cast("Game", game).play(name, seed, tick)


@contextmanager
def _held_interrupts() -> Iterator[Callable[[], None]]:
    """Ctrl-C waits until the function that is yielded is called; a second one does not.

    Raised anywhere, it might leave a lock held that workers or the executor's thread wait for, for ever.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield lambda: None
        return
    held = False

    def hold(*_: object) -> None:
        nonlocal held
        if held:
            raise KeyboardInterrupt
        held = True

    def raise_held() -> None:
        if held:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, hold)
    try:
        yield raise_held
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def by_processes(game: Game, tasks: list[Task], tick: Tick, jobs: int) -> _Finished:
    """Over ``jobs`` processes of this machine, as they end."""
    context = multiprocessing.get_context()
    if context.get_start_method() != "fork":
        try:
            pickle.dumps(game)
        except Exception as error:
            raise TypeError(
                f"policies must be picklable for jobs={jobs} (functions at the top of a module, not lambdas): {error}"
            ) from error
    played, stop = context.Value("q", 0), context.Event()
    with (
        _held_interrupts() as raise_held,
        ProcessPoolExecutor(jobs, context, _start_worker, (game, played, stop)) as pool,
    ):
        waiting = {pool.submit(_play_in_worker, *task): task for task in tasks}
        shown = 0
        try:
            while waiting:
                finished = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED).done
                raise_held()
                known = played.value
                tick(known - shown)
                shown = known
                for future in finished:
                    yield waiting.pop(future), future.result()
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)


# ------------------------------------------------------------------------------------------------ joblib


def _play_far(game: Game, name: str, seed: int) -> Played:
    # far workers report whole runs only
    return game.play(name, seed, lambda rounds: None)


def by_joblib(game: Game, tasks: list[Task], tick: Tick, jobs: int | None, backend: str) -> _Finished:
    """Over the workers of a joblib back end, as they end; ``"joblib"`` is the one that its context has set."""
    joblib = need("joblib", f"backend={backend!r}", extra="sweep")
    own = {name: replace(game, policies={name: make}) for name, make in game.policies.items()}
    calls = [joblib.delayed(_play_far)(own[name], name, seed) for name, seed in tasks]
    chosen: dict[str, Any] = {} if backend == "joblib" else {"backend": backend, "n_jobs": -1}
    if jobs is not None:
        chosen["n_jobs"] = jobs
    with joblib.parallel_config(**chosen):
        try:
            parallel = joblib.Parallel(return_as="generator_unordered", batch_size=1)
        except ValueError:
            # a back end that gives back lists only (Ray): a list per few runs, so that an interrupt loses no more
            parallel = joblib.Parallel(batch_size=1)
            size = 4 * joblib.effective_n_jobs(parallel.n_jobs)
            batches = [calls[start : start + size] for start in range(0, len(calls), size)]
        else:
            batches = [calls]
        for batch in batches:
            finished = parallel(batch)
            try:
                for run, made in finished:
                    tick(int(game.grid[-1]))
                    yield (run.policy, run.seed), (run, made)
            finally:
                if not isinstance(finished, list):
                    finished.close()

"""Speed and memory of shuffled vector sums, against drawing their random bits with numpy.

    OPENBLAS_NUM_THREADS=1 python benchmarks/shuffle_speed.py

The floor is what no implementation can avoid: one random word for the noise bits and one uniform number for the
rounding, per coordinate and user. The whole job is 10⁶ users × 100 coordinates, encoded, shuffled and decoded in the
count encoding by worker processes that each hold one chunk of inputs.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np

from accounting import Budget
from dpkit import randomness
from dpkit.shuffle import Randomizer, Tally, VectorSum

USERS, COORDINATES, CHUNK = 10**6, 100, 20_000
BUDGET = Budget(1.0, 1e-6)


def best(job: Callable[[], object], repeats: int = 5) -> float:
    """Processor seconds of the fastest of several runs."""
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        job()
        seconds.append(time.process_time() - start)
    return min(seconds)


def inputs(count: int, seed: int) -> np.ndarray:
    X = np.random.default_rng(seed).standard_normal((count, COORDINATES))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def chunk(randomizer: Randomizer, seed: int) -> tuple[Tally, float, float]:
    """One worker's tally, the CPU seconds that it took besides making up inputs, and the peak memory in GB."""
    X = inputs(CHUNK, seed)
    start = time.process_time()
    tally = randomizer.tally(X)
    return tally, time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main() -> None:
    sums = VectorSum(COORDINATES, USERS, 1.0, budget=BUDGET)
    X = inputs(CHUNK, 0)
    print(f"{'10⁶ coordinates/s, one process':34}{'floor':>8}{'tally':>8}{'ones':>8}{'tally/floor':>13}")
    for name, rng in (("secure", randomness.secure()), ("simulation", np.random.default_rng(0))):
        randomizer = Randomizer(sums.protocol, rng=rng)

        def floor(rng: np.random.Generator = rng) -> None:
            rng.random(X.size)
            rng.bytes(8 * X.size)

        rates = [X.size / best(job) / 1e6 for job in (floor, partial(randomizer.tally, X), partial(randomizer.ones, X))]
        print(f"{name:34}{rates[0]:8.1f}{rates[1]:8.1f}{rates[2]:8.1f}{rates[1] / rates[0]:13.2f}")

    small = VectorSum(6, 1666, 1.0, budget=Budget(2.0, 0.01))
    x = np.full(6, 0.3)
    message = small.encode(x)
    sent = [message] * 1666
    encode = best(lambda: small.encode(x))
    shuffle = best(lambda: VectorSum(6, 1666, 1.0, budget=Budget(2.0, 0.01)).shuffle(sent), 2)
    print(
        f"\nlabelled bits: {small.messages_per_user} per user in {len(message)} bytes; one user {encode * 1e6:.0f} µs; "
    )
    print(f"1666 users shuffled in {shuffle:.2f} s")

    jobs = min(2, os.cpu_count() or 1)
    start = time.perf_counter()
    with ProcessPoolExecutor(jobs) as pool:
        done = list(pool.map(partial(chunk, sums.randomizer), range(USERS // CHUNK)))
    estimate = sums.decode(sums.shuffle(tally for tally, _, _ in done), USERS)
    wall, cpu = time.perf_counter() - start, sum(seconds for _, seconds, _ in done)
    truth = sum(inputs(CHUNK, seed).sum(axis=0) for seed in range(USERS // CHUNK))
    print(f"\n{USERS} users × {COORDINATES}: {USERS * COORDINATES / cpu / 1e6:.1f}·10⁶ coordinates per CPU second")
    print(f"wall {wall:.1f} s in {jobs} processes, inputs made up included; {max(gb for _, _, gb in done):.2f} GB each")
    print(f"noise {np.std(estimate - truth):.2f} measured, {sums.noise_std:.2f} stated at most")


if __name__ == "__main__":
    main()

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

    # what devices send, against permuting the g + b bits of every user and coordinate themselves
    n, D = 1000, 100
    many = VectorSum(D, n, 1.0, budget=BUDGET, rounds=10)
    x = np.full(D, 0.05)
    encode = best(lambda: many.encode(x)) * 1e6
    sent = [many.encode(x) for _ in range(n)]
    start = time.process_time()
    many.shuffle(sent)
    shuffle = (time.process_time() - start) * 1e6 / n
    bits = np.zeros(n * many.messages_per_user, dtype=np.uint8)
    start = time.process_time()
    np.random.default_rng(0).permutation(bits)
    permute = (time.process_time() - start) * 1e6 / n
    print(f"\nmessages of {n} users × {D}: {len(sent[0])} bytes each; per user {encode:.0f} µs on its device and")
    print(f"{shuffle:.1f} µs in the shuffler; permuting its {many.messages_per_user} bits would take {permute:.0f} µs")

    jobs = min(2, os.cpu_count() or 1)
    start = time.perf_counter()
    with ProcessPoolExecutor(jobs) as pool:
        done = list(pool.map(partial(chunk, sums.randomizer), range(USERS // CHUNK)))
    estimate = sums.decode(sums.shuffle_tallies(tally for tally, _, _ in done), USERS)
    wall, cpu = time.perf_counter() - start, sum(seconds for _, seconds, _ in done)
    truth = sum(inputs(CHUNK, seed).sum(axis=0) for seed in range(USERS // CHUNK))
    print(f"\n{USERS} users × {COORDINATES}: {USERS * COORDINATES / cpu / 1e6:.1f}·10⁶ coordinates per CPU second")
    print(f"wall {wall:.1f} s in {jobs} processes, inputs made up included; {max(gb for _, _, gb in done):.2f} GB each")
    print(f"noise {np.std(estimate - truth):.2f} measured, {sums.noise_std:.2f} stated at most")


if __name__ == "__main__":
    main()

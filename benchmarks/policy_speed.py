"""Time of one ``select`` + ``update`` (median, one thread) against the arithmetic alone, and how it grows with t.

    OPENBLAS_NUM_THREADS=1 python benchmarks/policy_speed.py

The floor is what plain numpy needs for one optimistic choice and one rank-one update with the same d and K.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import numpy as np

from accounting import Budget
from dpbandits.policies import GLBOMD, EpsilonGreedy, OnePassPrivateGLM, Uniform
from dpbandits.policy import Policy

DIM, ARMS = 20, 20


def arm_sets(rng: np.random.Generator, count: int) -> np.ndarray:
    X = rng.standard_normal((count, ARMS, DIM))
    return X / np.linalg.norm(X, axis=-1, keepdims=True)


def floor(X: np.ndarray) -> float:
    """Median seconds of the numpy lines that no optimistic policy can do without."""
    inverse, theta, b = np.eye(DIM), np.zeros(DIM), np.zeros(DIM)
    seconds = []
    for arms in X:
        start = time.perf_counter()
        scores = arms @ theta + np.sqrt(np.einsum("ij,ij->i", arms @ inverse, arms))
        x = arms[scores.argmax()]
        u = inverse @ x
        inverse -= (u / (1.0 + x @ u))[:, None] * u
        b += x
        theta = inverse @ b
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


def per_round(policy: Policy, X: np.ndarray, rounds: int) -> np.ndarray:
    """Seconds of select + update in each of ``rounds`` rounds."""
    coins = np.random.default_rng(1).random(rounds)
    seconds = np.empty(rounds)
    for t in range(rounds):
        arms = X[t % len(X)]
        start = time.perf_counter()
        decision = policy.select(arms)
        policy.update(decision, float(coins[t] < 0.5))
        seconds[t] = time.perf_counter() - start
    return seconds


def policies(horizon: int) -> dict[str, Callable[[], Policy]]:
    rng = np.random.default_rng
    budget = Budget(1.0, 1e-6)
    return {
        "Uniform": lambda: Uniform(DIM, rng=rng(0)),
        "EpsilonGreedy": lambda: EpsilonGreedy(DIM, rng=rng(0)),
        "GLBOMD": lambda: GLBOMD(DIM, rng=rng(0)),
        "OnePassPrivateGLM": lambda: OnePassPrivateGLM(DIM, budget=budget, horizon=horizon, rng=rng(0)),
        "OnePassPrivateGLM, secure": lambda: OnePassPrivateGLM(DIM, budget=budget, horizon=horizon),
        "OnePassPrivateGLM, every round": lambda: OnePassPrivateGLM(
            DIM, budget=budget, horizon=horizon, release="every_round", rng=rng(0)
        ),
    }


def main() -> None:
    X = arm_sets(np.random.default_rng(0), 2000)
    base = min(floor(X) for _ in range(3))
    print(f"d = {DIM}, K = {ARMS}; numpy floor {base * 1e6:.1f} µs")
    print(f"{'policy':32}{'µs':>8}{'× floor':>9}")
    for name, make in policies(2000).items():
        median = min(float(np.median(per_round(make(), X, 2000)[100:])) for _ in range(3))
        print(f"{name:32}{median * 1e6:8.1f}{median / base:9.2f}")
    print("\nrounds 10^5 against 10^3: ratio of the last 1000 rounds' medians, and peak memory of the policy")
    for name in ("GLBOMD", "OnePassPrivateGLM"):
        make = policies(100_000)[name]
        seconds = per_round(make(), X, 100_000)
        tracemalloc.start()
        peaks = []
        for rounds in (1_000, 10_000):
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            per_round(make(), X, rounds)
            peaks.append((tracemalloc.get_traced_memory()[1] - before - 16 * rounds) / 1024)
        tracemalloc.stop()
        ratio = np.median(seconds[-1000:]) / np.median(seconds[500:1500])
        print(f"{name:32} time ratio {ratio:.2f}; peak {peaks[0]:.0f} KiB at 10^3 rounds, {peaks[1]:.0f} KiB at 10^4")


if __name__ == "__main__":
    main()

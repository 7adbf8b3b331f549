"""How much longer a private test takes than the same test without noise, and the picture of docs/experiments.md.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.experiments                # the table, in minutes
    OPENBLAS_NUM_THREADS=1 python -m benchmarks.experiments --runs 100     # a look
    python -m benchmarks.experiments --picture                             # docs/images/experiment.png

One arm against a known baseline, one-sided at α = 0.05: the decisions until the e-value for "its mean is at most the
baseline" reaches 1/α, in batches as an experiment releases them. Without noise the same mixture is looked at after
every single value. Both are told a horizon of about five times what the test without noise needs. Cells are ratios of
mean stopping times ± one standard error; "false" is the share of alarms where the truth is the baseline, looked at
until the horizon. Seeds 770000 and following; simulations, nothing here is a private release.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from accounting import Budget, Laplace
from dpbandits import Experiment
from dpbandits.experiment.batches import batch_ends
from dpbandits.experiment.sequences import Evidence, Sequences
from dpkit.moments.trial_batches import STEPS
from dpkit.samplers import rounded_laplace

ROOT = Path(__file__).resolve().parent.parent
ALPHA, SEED = 0.05, 770_000
# baseline, truth, horizon
CASES = ((0.10, 0.105, 150_000), (0.10, 0.11, 40_000), (0.10, 0.12, 10_000), (0.10, 0.15, 2_000), (0.50, 0.55, 4_500))
EPSILONS = (0.5, 1.0, 4.0)


def without_noise(baseline: float, truth: float, horizon: int, runs: int, seed: int) -> NDArray[np.int64]:
    """Stopping times of the test that sees every value."""
    grid = Sequences(None, 1.0, STEPS, horizon, True).grid
    rng, bound = np.random.default_rng(seed), np.log1p(baseline * np.expm1(grid))
    times = np.full(runs, horizon)
    for run in range(runs):
        # the process moves by at most the largest λ per value: in blocks, until it is there
        total, block = 0, 4096
        for start in range(0, horizon, block):
            seen = total + np.cumsum(rng.random(min(block, horizon - start)) < truth)
            factors = seen[:, None] * grid - np.arange(start + 1, start + len(seen) + 1)[:, None] * bound
            largest = factors.max(axis=1)
            out = largest + np.log(np.exp(factors - largest[:, None]).mean(axis=1)) >= math.log(1.0 / ALPHA)
            if out.any():
                times[run] = start + int(out.argmax()) + 1
                break
            total = int(seen[-1])
    return times


def private(baseline: float, truth: float, horizon: int, epsilon: float, runs: int, seed: int) -> NDArray[np.int64]:
    """Stopping times of an experiment's arm; twice the horizon where it does not stop."""
    ends = np.array(batch_ends(horizon, 1, math.sqrt(2.0) / epsilon))
    rng, lengths = np.random.default_rng(seed), np.diff(ends, prepend=0)
    noise = rounded_laplace(STEPS / epsilon, (runs, len(ends)), rng=rng) / STEPS
    totals = (rng.binomial(lengths, truth, size=(runs, len(ends))) + noise).cumsum(axis=1)
    shape = totals.shape
    releases = np.broadcast_to(np.arange(1.0, len(ends) + 1.0), shape)
    told = Evidence(totals, np.broadcast_to(ends.astype(np.float64), shape), releases)
    family = Sequences(Laplace(1.0 / epsilon), STEPS / epsilon, STEPS, horizon, True)
    out = family.log_evidence_above(told, np.array(baseline)) >= math.log(1.0 / ALPHA)
    return np.where(out.any(axis=1), ends[out.argmax(axis=1)], 2 * horizon)


def table(runs: int) -> None:
    """Print it."""
    print("| baseline → truth | without privacy | " + " | ".join(f"ε = {e:g}" for e in EPSILONS) + " | false |")
    print("|---|---|" + "---|" * (len(EPSILONS) + 1))
    for number, (baseline, truth, horizon) in enumerate(CASES):
        seed = SEED + 10 * number
        few = runs if horizon < 100_000 else max(50, runs // 4)
        base = without_noise(baseline, truth, horizon, few, seed)
        error = base.std() / math.sqrt(few) / base.mean()
        cells, false = [], []
        for k, epsilon in enumerate(EPSILONS):
            longer = horizon if epsilon >= 1 else 2 * horizon
            times = private(baseline, truth, longer, epsilon, runs, seed + 1 + k)
            ratio = times.mean() / base.mean()
            cells.append(f"{ratio:.2f} ± {ratio * math.hypot(error, times.std() / math.sqrt(runs) / times.mean()):.2f}")
            alarms = private(baseline, baseline, longer, epsilon, runs, seed + 5 + k) <= longer * 1.5
            false.append(f"{alarms.mean():.3f}")
        said = f"{base.mean():,.0f} ± {base.std() / math.sqrt(few):,.0f}"
        print(
            f"| {baseline:.2f} → {truth:.3g} | {said} | " + " | ".join(cells) + f" | {', '.join(false)} |", flush=True
        )


def picture() -> Path:
    """Three headlines, one of them better, until the best one is known."""
    rng = np.random.default_rng(SEED)
    rates = {"plain": 0.10, "witty": 0.14, "loud": 0.11}
    budget = Budget(1.0, 0.0, unit="person")
    test = Experiment(
        list(rates),
        budget=budget,
        horizon=30_000,
        assignment="fixed",
        stop_when="best",
        rng=np.random.default_rng(SEED),
    )
    for person in range(30_000):
        if test.stopped:
            break
        decision = test.assign(person=person)
        test.record(decision, float(rng.random() < rates[decision.name]))
    results = test.results()
    print(results)
    return Path(results.plot(ROOT / "docs" / "images" / "experiment.png"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--picture", action="store_true")
    asked = parser.parse_args()
    if asked.picture:
        print(picture())
    else:
        table(asked.runs)

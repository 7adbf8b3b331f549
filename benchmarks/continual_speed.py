"""Speed, memory and error of the continual mechanisms, relative to drawing their noise in the same run.

    OPENBLAS_NUM_THREADS=1 python benchmarks/continual_speed.py [--long] [--plot FILE]

Processor time, the best of several. The ratios are to drawing as many standard normals from the same source, in one
call and row by row, and to the same mechanism with noise in floating point, input by input. ``--long`` adds a stream
of 2²⁰ vectors with its memory; ``--plot`` only draws the errors.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

from accounting import gdp
from dpkit import randomness
from dpkit.continual import BinaryTree, BufferedToeplitz, ContinualSum, Toeplitz, Unbounded
from dpkit.continual.coefficients import column_scales, sqrt_coefficients
from dpkit.geometry import svec

STEPS, DIMENSION = 2**14, 100
REPEATS = 7

MECHANISMS: dict[str, tuple[type[ContinualSum], dict[str, Any]]] = {
    "BufferedToeplitz": (BufferedToeplitz, {}),
    "Unbounded": (Unbounded, {}),
    "BinaryTree": (BinaryTree, {}),
    "BinaryTree, Honaker": (BinaryTree, {"estimator": "honaker"}),
    "Toeplitz": (Toeplitz, {}),
}


def make(name: str, rng: np.random.Generator, **parameters: Any) -> ContinualSum:
    mechanism, own = MECHANISMS[name]
    known = {"horizon": STEPS, "shape": DIMENSION, "sensitivity": 1.0, "noise_multiplier": 1.0} | own | parameters
    if mechanism is Unbounded:
        del known["horizon"]
    return mechanism(rng=rng, **known)


def best(*jobs: Callable[[], object]) -> list[float]:
    """The smallest processor time of each job over several rounds, in milliseconds."""
    times = [float("inf")] * len(jobs)
    for _ in range(REPEATS):
        for i, job in enumerate(jobs):
            start = time.process_time()
            job()
            times[i] = min(times[i], 1e3 * (time.process_time() - start))
    return times


def stream(sums: ContinualSum, rows: np.ndarray[Any, Any]) -> None:
    for row in rows:
        sums.add(row)


def in_floating_point(rng: np.random.Generator, rows: np.ndarray[Any, Any]) -> None:
    """What BufferedToeplitz costs with float64 noise on float64 sums, which is not private (docs/exact-noise.md)."""
    steps, d = rows.shape
    c = sqrt_coefficients(steps, 8 + steps.bit_length() // 4)
    buffers, noise, total = np.zeros((c.gaps.size, d)), np.zeros(d), np.zeros(d)
    feedback, rates = c.weights * c.rates, c.rates[:, None]
    scales = column_scales(c, steps).bounds(0, steps)
    for t, row in enumerate(rows):
        if not np.isfinite(np.vdot(row, row)):
            raise ValueError(row)
        w = rng.standard_normal(d)
        w -= feedback @ buffers
        buffers *= rates
        buffers += w
        w *= scales[t]
        noise += w
        total += row
        _ = total + noise


def speed(source: str, rng: np.random.Generator, dimension: int) -> None:
    rows = np.random.default_rng(0).normal(size=(STEPS, dimension))

    def draw_each() -> None:
        for _ in range(STEPS):
            rng.standard_normal(dimension)

    jobs: dict[str, Callable[[], object]] = {
        "drawing the noise, one call": lambda: rng.standard_normal(rows.shape),
        "drawing the noise, row by row": draw_each,
        "in floating point": lambda: in_floating_point(rng, rows),
    }
    for name in MECHANISMS:
        if name != "Toeplitz":
            jobs[f"{name}.add"] = lambda name=name: stream(make(name, rng, shape=dimension), rows)
        jobs[f"{name}.add_many"] = lambda name=name: make(name, rng, shape=dimension).add_many(rows)
    times = best(*jobs.values())
    print(
        f"\n{STEPS:,} vectors of dimension {dimension}, {source} source; ratios to one call, row by row, floating point"
    )
    for name, milliseconds in zip(jobs, times, strict=True):
        ratios = "  ".join(f"{milliseconds / other:6.2f} ×" for other in times[:3])
        print(f"{name:32s} {milliseconds:8.1f} ms  {ratios}")


def matrices(rng: np.random.Generator) -> None:
    d, steps = 100, 256
    x = np.eye(d)
    jobs: dict[str, Callable[[], object]] = {
        "drawing the noise": lambda: rng.standard_normal((steps, d * (d + 1) // 2)),
        "svec of the inputs": lambda: [svec(x) for _ in range(steps)],
    }
    for name in ("BufferedToeplitz", "BinaryTree"):

        def job(name: str = name) -> None:
            sums = make(name, rng, shape=(d, d), symmetric=True)
            for _ in range(steps):
                sums.add(x)

        jobs[f"{name}.add"] = job
    times = best(*jobs.values())
    print(f"\n{steps} symmetric matrices, d = {d} ({d * (d + 1) // 2:,} coordinates), simulation source")
    for name, milliseconds in zip(jobs, times, strict=True):
        print(f"{name:32s} {milliseconds:8.1f} ms  {milliseconds / times[0]:6.2f} ×")


def construction(rng: np.random.Generator) -> None:
    print("\nMaking a mechanism again (its coefficients are kept), and the first noise_std of a new horizon")
    for horizon in (20, 2**10, 2**14, 2**20):
        (again,) = best(lambda horizon=horizon: [make("BufferedToeplitz", rng, horizon=horizon) for _ in range(20)])
        start = time.process_time()
        sums = make("BufferedToeplitz", rng, horizon=horizon + 1)
        first = 1e3 * (time.process_time() - start)
        start = time.process_time()
        sums.noise_std(horizon)
        profile = 1e3 * (time.process_time() - start)
        print(
            f"T = {horizon:8,d}  again {again / 20:6.3f} ms   first {first:6.2f} ms   first noise_std {profile:6.2f} ms"
        )


def error_curve(name: str, horizon: int) -> np.ndarray[Any, Any]:
    """The noise of each estimate per unit of sensitivity, at rho = 1/2 for the whole stream."""
    sums = make(name, randomness.secure(), horizon=horizon, shape=1)
    return gdp(sums.cost) * np.array([sums.noise_std(t) for t in range(1, horizon + 1)])


def errors() -> None:
    print("\nNoise per unit of sensitivity at rho = 1/2: worst, root mean square, last")
    for name in MECHANISMS:
        for horizon in (2**10, 2**14):
            curve = error_curve(name, horizon)
            rms = float(np.sqrt(np.mean(curve**2)))
            print(f"{name:22s} T = {horizon:6,d}  {curve.max():8.4f}  {rms:8.4f}  {curve[-1]:8.4f}")


def plot(path: str, horizon: int = 2**10) -> None:
    """Draw the errors of all mechanisms against t."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.2), layout="constrained")
    axes = figure.subplots()
    steps = np.arange(1, horizon + 1)
    for name, color, width in (
        ("BinaryTree", "#bbbbbb", 0.6),
        ("BinaryTree, Honaker", "#d9a441", 0.6),
        ("Unbounded", "#7a3b9c", 1.6),
        ("Toeplitz", "#2b7bba", 1.6),
        ("BufferedToeplitz", "#c0392b", 2.2),
    ):
        axes.plot(steps, error_curve(name, horizon), label=name, color=color, linewidth=width)
    axes.axhline(2.961, color="black", linewidth=1, linestyle=":", label="lower bound on any factorization's worst")
    axes.set_xscale("log", base=2)
    axes.set_xlabel("t")
    axes.set_ylabel("standard deviation of the noise\nper unit of sensitivity, ρ = ½")
    axes.set_ylim(bottom=0)
    axes.set_title(f"Noise in the t-th of {horizon:,} prefix sums, at the same cost")
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left")
    figure.savefig(path, dpi=95)


def long_streams(rng: np.random.Generator) -> None:
    steps, chunk = 2**20, 2**12
    rows = np.zeros((chunk, DIMENSION))
    print(f"\n{steps:,} vectors of dimension {DIMENSION} in {steps // chunk} calls of add_many: memory besides them")
    for name in ("BufferedToeplitz", "Unbounded", "BinaryTree"):
        tracemalloc.start()
        start = time.process_time()
        sums = make(name, rng, horizon=steps)
        for _ in range(steps // chunk):
            sums.add_many(rows)
        seconds = time.process_time() - start
        peak = tracemalloc.get_traced_memory()[1] - rows.nbytes
        tracemalloc.stop()
        print(f"{name:22s} {peak / 1e6:6.2f} MB besides inputs and estimates, {seconds:6.2f} s (traced)")


def main() -> None:
    if "--plot" in sys.argv[1:]:
        plot(sys.argv[sys.argv.index("--plot") + 1])
        return
    simulation = np.random.default_rng(0)
    speed("simulation", simulation, DIMENSION)
    for dimension in (1, DIMENSION):
        speed("secure", randomness.secure(), dimension)
    matrices(simulation)
    construction(simulation)
    errors()
    if "--long" in sys.argv[1:]:
        long_streams(simulation)


if __name__ == "__main__":
    main()

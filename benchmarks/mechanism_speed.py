"""Speed of the secure source, the exact samplers and the mechanisms, relative to numpy's own generator in the same run.

    OPENBLAS_NUM_THREADS=1 python benchmarks/mechanism_speed.py

Processor time, the best of several. A ratio of 2 means: twice the time that numpy's (insecure) generator takes for as
many floating-point values of the same law.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np

from dpkit import randomness, samplers
from dpkit.mechanisms import GaussianMechanism, LaplaceMechanism, report_noisy_max
from dpkit.randomness import generator as _secure

COUNT = 1_000_000
REPEATS = 7


def best(function: Callable[[], object], calls: int = 1) -> float:
    """The smallest mean processor time of one call over ``calls`` calls, in seconds."""
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        for _ in range(calls):
            function()
        times.append((time.process_time() - start) / calls)
    return min(times)


def line(name: str, seconds: float, count: int, peer: float) -> None:
    print(f"{name:44s} {count / seconds / 1e6:8.2f} million/s {1e6 * seconds:12.1f} µs   {seconds / peer:6.2f} × numpy")


def main() -> None:
    numpy_source, secure = np.random.default_rng(), randomness.secure()

    print(f"\nSecure source, arrays of {COUNT:,}")
    for name in ("standard_normal", "standard_exponential", "random"):
        peer = best(lambda name=name: getattr(numpy_source, name)(COUNT))
        line(f"secure {name}", best(lambda name=name: getattr(secure, name)(COUNT)), COUNT, peer)
    normals = best(lambda: numpy_source.standard_normal(COUNT))
    line("os.urandom, 8 bytes for each (no transform)", best(lambda: os.urandom(8 * COUNT)), COUNT, normals)
    line("OpenSSL, 8 bytes for each (no transform)", best(lambda: _secure.random_bytes(8 * COUNT)), COUNT, normals)

    print("\nSecure source, small draws of normals")
    for size in (1, 231, 5050):
        peer = best(lambda size=size: numpy_source.standard_normal(size), 2000)
        line(f"secure standard_normal({size})", best(lambda size=size: secure.standard_normal(size), 2000), size, peer)

    print(f"\nExact samplers with secure bits, {COUNT:,} integers")
    laplaces = best(lambda: numpy_source.laplace(size=COUNT))
    for sampler, peer in (
        (samplers.discrete_laplace, laplaces),
        (samplers.rounded_laplace, laplaces),
        (samplers.discrete_gaussian, normals),
        (samplers.rounded_gaussian, normals),
    ):
        for scale in (0.1, 1.0, 1e3, 1e6, 1e9):
            seconds = best(lambda sampler=sampler, scale=scale: sampler(scale, COUNT))
            line(f"{sampler.__name__}, scale {scale:g}", seconds, COUNT, peer)
    for trials in (28, 1000):
        peer = best(lambda trials=trials: numpy_source.binomial(trials, 0.5, COUNT // 10))
        seconds = best(lambda trials=trials: samplers.binomial_half(trials, COUNT // 10))
        line(f"binomial_half, {trials} trials", seconds, COUNT // 10, peer)
    peer = best(lambda: numpy_source.standard_normal((10_000, 100)))
    seconds = best(lambda: samplers.generalized_gaussian(8.0, 1.0, 100, 10_000))
    line("generalized_gaussian, r = 8, 10,000 × 100", seconds, COUNT, peer)

    print("\nMechanisms, secure, against value + numpy's noise")
    for size in (1, 100, COUNT):
        value, calls = np.ones(size), 200 if size < COUNT else 1
        peer = best(lambda value=value: value + numpy_source.standard_normal(value.size), calls)
        for name, mechanism in (
            ("Gaussian, lattice", GaussianMechanism(noise_multiplier=1.0, sensitivity=1.0)),
            ("Gaussian, floating point", GaussianMechanism(noise_multiplier=1.0, sensitivity=1.0, exact=False)),
            ("Laplace, lattice", LaplaceMechanism(noise_multiplier=1.0, sensitivity=1.0)),
        ):
            seconds = best(lambda mechanism=mechanism, value=value: mechanism.release(value), calls)
            line(f"{name}, {size:,} entries", seconds, size, peer)

    print("\nOne value at a time, secure, against one value of numpy's")
    one = best(lambda: 1.0 + numpy_source.laplace(), 2000)
    few = 10 * numpy_source.standard_normal(12)
    small = {
        "Gaussian mechanism, one number": lambda: GaussianMechanism.release(gaussian, 1.0),
        "Laplace mechanism, one number": lambda: LaplaceMechanism.release(laplace, 1.0),
        "rounded_gaussian, one": lambda: samplers.rounded_gaussian(1e3),
        "rounded_laplace, one": lambda: samplers.rounded_laplace(1e3),
        "discrete_laplace, one": lambda: samplers.discrete_laplace(1e3),
        "noisy max of 12": lambda: report_noisy_max(few, 1.0, 1.0),
    }
    gaussian = GaussianMechanism(noise_multiplier=1.0, sensitivity=1.0)
    laplace = LaplaceMechanism(noise_multiplier=1.0, sensitivity=1.0)
    if find_spec("diffprivlib"):
        from diffprivlib.mechanisms import Laplace

        peer = Laplace(epsilon=1.0, sensitivity=1.0)
        small["diffprivlib's Laplace, one number (floating point)"] = lambda: peer.randomise(1.0)
    for name, draw in small.items():
        line(name, best(draw, 2000), 1, one)

    print("\nReport noisy max, against numpy's argmax of scores + Gumbel noise")
    for count in (100_000, COUNT):
        scores = 10 * numpy_source.standard_normal(count)
        peer = best(lambda scores=scores: np.argmax(0.5 * scores + numpy_source.gumbel(size=scores.size)))
        for label, rng in (("simulation", np.random.default_rng(0)), ("secure", None)):
            for noise in ("gumbel", "exponential", "laplace"):
                seconds = best(
                    lambda scores=scores, noise=noise, rng=rng: report_noisy_max(scores, 1.0, 1.0, noise, rng=rng)
                )
                line(f"{noise}, {label}, {count:,} candidates", seconds, count, peer)


if __name__ == "__main__":
    main()

"""The secure source, the exact samplers and the mechanisms, against numpy's generator in floating point and OpenDP."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import numpy as np

from benchmarks.table import Row
from dpkit import randomness, samplers
from dpkit.mechanisms import GaussianMechanism, LaplaceMechanism, report_noisy_max

COUNT, CALLS = 10**6, 2000


def often(call: Callable[[], object], times: int = CALLS) -> Callable[[], object]:
    def calls() -> None:
        for _ in range(times):
            call()

    return calls


def samplers_rows(numpy_source: np.random.Generator) -> list[Row]:
    found = []
    for sampler in (
        samplers.discrete_laplace,
        samplers.rounded_laplace,
        samplers.discrete_gaussian,
        samplers.rounded_gaussian,
    ):
        law = numpy_source.standard_normal if "gaussian" in sampler.__name__ else numpy_source.standard_exponential
        for scale in (1.0, 1e3, 1e9):
            found.append(
                Row(
                    f"{sampler.__name__}, scale {scale:g}",
                    lambda sampler=sampler, scale=scale: sampler(scale, COUNT),
                    lambda law=law: law(COUNT),
                    "numpy's float",
                    COUNT,
                )
            )
    return [
        *found,
        Row(
            "binomial_half, 1000 trials",
            lambda: samplers.binomial_half(1000, COUNT // 10),
            lambda: numpy_source.binomial(1000, 0.5, COUNT // 10),
            "numpy's binomial",
            COUNT // 10,
        ),
    ]


def single(numpy_source: np.random.Generator) -> list[Row]:
    gaussian = GaussianMechanism(noise_multiplier=1.0, sensitivity=1.0)
    laplace = LaplaceMechanism(noise_multiplier=1.0, sensitivity=1.0)
    few = 10 * numpy_source.standard_normal(12)
    draws: dict[str, Callable[[], object]] = {
        "Gaussian mechanism, one number": lambda: gaussian.release(1.0),
        "Laplace mechanism, one number": lambda: laplace.release(1.0),
        "rounded_gaussian, one": lambda: samplers.rounded_gaussian(1e3),
        "discrete_laplace, one": lambda: samplers.discrete_laplace(1e3),
        "noisy max of 12": lambda: report_noisy_max(few, 1.0, 1.0),
    }
    one = often(lambda: 1.0 + numpy_source.laplace())
    return [Row(name, often(draw), one, "numpy's float", CALLS, most=27.0) for name, draw in draws.items()]


def opendp_rows() -> list[Row]:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    theirs = dp.m.make_laplace(*space, scale=1e3)
    zeros, count = [0] * 2000, 2000
    return [
        Row(
            "discrete_laplace, scale 1000, 2000 of them",
            lambda: samplers.discrete_laplace(1e3, count),
            lambda: theirs(zeros),
            "OpenDP",
            count,
            0.1,
        )
    ]


def rows() -> list[Row]:
    numpy_source, secure = np.random.default_rng(), randomness.secure()
    scores = 10 * numpy_source.standard_normal(100_000)
    noise = [
        Row(
            f"secure {name}",
            lambda name=name: getattr(secure, name)(COUNT),
            lambda name=name: getattr(numpy_source, name)(COUNT),
            "numpy's",
            COUNT,
        )
        for name in ("standard_normal", "standard_exponential", "random")
    ]
    noise += [
        Row(
            f"secure standard_normal({size})",
            often(lambda size=size: secure.standard_normal(size)),
            often(lambda size=size: numpy_source.standard_normal(size)),
            "numpy's",
            CALLS,
        )
        for size in (1, 20, 231)
    ]
    values = np.ones(COUNT)
    large = [
        Row(
            f"{name} mechanism, 10⁶ entries",
            lambda mechanism=mechanism: mechanism.release(values),
            lambda: values + numpy_source.standard_normal(COUNT),
            "value + numpy's float",
            COUNT,
        )
        for name, mechanism in (
            ("Gaussian", GaussianMechanism(noise_multiplier=1.0, sensitivity=1.0)),
            ("Laplace", LaplaceMechanism(noise_multiplier=1.0, sensitivity=1.0)),
        )
    ]
    choice = [
        Row(
            f"report noisy max of 10⁵, {law}",
            lambda law=law: report_noisy_max(scores, 1.0, 1.0, law),
            lambda: np.argmax(0.5 * scores + numpy_source.gumbel(size=scores.size)),
            "numpy's Gumbel noise",
            scores.size,
        )
        for law in ("gumbel", "exponential")
    ]
    peers = opendp_rows() if find_spec("opendp") else []
    return noise + samplers_rows(numpy_source) + single(numpy_source) + large + choice + peers

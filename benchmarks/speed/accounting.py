"""The accountants against those of dp-accounting and Opacus; where neither has the question, against one transform.

All answers are upper bounds. The peers' questions are put to them as their documentation does.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from accounting import Budget, Gaussian, Laplace, LocalShuffled, PoissonSubsampled, Release, bound, calibrate, epsilon
from accounting.compose import pld
from accounting.releases import Composed
from benchmarks.table import Row

STEPS, RATE, DELTA = 10_000, 0.01, 1e-5


def transform() -> object:
    return np.fft.irfft(np.fft.rfft(np.ones(2**17)))


def anew(question: Callable[[], object]) -> Callable[[], object]:
    """The question, to an accountant that has forgotten its last answers."""

    def asked() -> object:
        pld._profile.cache_clear()
        return question()

    return asked


def dp_accounting_rows() -> list[Row]:
    import dp_accounting as dp
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    def sampled(noise: float, rate: float, steps: int) -> Any:
        return dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(noise)), steps)

    def asked(accountant: Callable[[], Any], event: Any) -> Callable[[], object]:
        return lambda: accountant().compose(event).get_epsilon(DELTA)

    def sigma() -> object:
        return dp.calibrate_dp_mechanism(
            RdpAccountant, lambda z: dp.SelfComposedDpEvent(dp.GaussianDpEvent(z), 100), 1.0, 1e-6
        )

    steps = STEPS * PoissonSubsampled(Gaussian(1.0), RATE)
    laplaces = [Laplace(5 + i / 100) for i in range(100)]
    different: Release = sum(laplaces, Composed())
    event = dp.ComposedDpEvent([dp.LaplaceDpEvent(5 + i / 100) for i in range(100)])
    million = 10**6 * Gaussian(2000.0)
    many = 10**6 * PoissonSubsampled(Gaussian(1.0), 0.001)
    peer = "dp-accounting"
    return [
        Row(
            f"{STEPS} sampled Gaussians, RDP",
            lambda: epsilon(steps, DELTA, accountant="rdp"),
            asked(RdpAccountant, sampled(1.0, RATE, STEPS)),
            peer,
            most=0.1,
        ),
        Row(
            f"{STEPS} sampled Gaussians, PLD",
            anew(lambda: epsilon(steps, DELTA, accountant="pld")),
            asked(PLDAccountant, sampled(1.0, RATE, STEPS)),
            peer,
            most=1.0,
        ),
        Row(
            "100 different Laplaces, PLD",
            anew(lambda: epsilon(different, DELTA, accountant="pld")),
            asked(PLDAccountant, event),
            peer,
            most=0.42,
        ),
        Row(
            "100 different Laplaces, RDP",
            lambda: epsilon(different, DELTA, accountant="rdp"),
            asked(RdpAccountant, event),
            peer,
            most=1.0,
        ),
        Row(
            "10⁶ sampled Gaussians, PLD",
            anew(lambda: epsilon(many, DELTA, accountant="pld")),
            asked(PLDAccountant, sampled(1.0, 0.001, 10**6)),
            peer,
            most=0.76,
        ),
        Row(
            "10⁶ Gaussians",
            lambda: epsilon(million, DELTA),
            asked(RdpAccountant, dp.SelfComposedDpEvent(dp.GaussianDpEvent(2000.0), 10**6)),
            peer,
            most=1.0,
        ),
        Row(
            "noise of 100 Gaussians",
            lambda: calibrate(lambda z: 100 * Gaussian(z), Budget(1.0, 1e-6)),
            sigma,
            peer,
            most=1.0,
        ),
    ]


def rows() -> list[Row]:
    steps = STEPS * PoissonSubsampled(Gaussian(1.0), RATE)
    parts = [Laplace(5 + i / 100) for i in range(1000)]
    thousand: Release = sum(parts, Composed())
    own = [
        Row("sum() of 1000 descriptions", lambda: sum(parts, Composed()), transform, "a transform of 2¹⁷", most=3.0),
        Row(
            "1000 different Laplaces, PLD",
            anew(lambda: epsilon(thousand, DELTA, accountant="pld")),
            transform,
            "a transform of 2¹⁷",
            most=600,
        ),
        Row(
            f"bracket of {STEPS} sampled Gaussians", anew(lambda: bound(steps, DELTA)), transform, "a transform of 2¹⁷"
        ),
        Row(
            "10⁷ shuffled messages",
            anew(lambda: epsilon(LocalShuffled(1.0, 10**7), DELTA)),
            transform,
            "a transform of 2¹⁷",
            most=200,
        ),
    ]
    return own + (dp_accounting_rows() if find_spec("dp_accounting") else [])

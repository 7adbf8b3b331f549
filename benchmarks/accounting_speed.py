"""What the accountants take, against the accountants of dp-accounting and Opacus where they are installed.

Run with ``python benchmarks/accounting_speed.py``. One table: milliseconds (the fastest of several runs), the answer,
and the peer's time and answer from the same run. Smaller answers are better as long as they are proved: all of these
are upper bounds.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

from accounting import Budget, Gaussian, Laplace, LocalShuffled, PoissonSubsampled, Release, bound, calibrate, epsilon
from accounting.releases import Composed

Job = Callable[[], float]
STEPS, RATE, DELTA = 10_000, 0.01, 1e-5


def best(job: Job, repeats: int) -> tuple[float, float]:
    """Seconds of the fastest of several runs, and the answer."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        answer = job()
        times.append(time.perf_counter() - start)
    return min(times), answer


def dp_accounting_jobs() -> dict[str, Job]:
    """The same questions to dp-accounting, by the key of the row that they are compared with."""
    try:
        import dp_accounting
        from dp_accounting.pld import PLDAccountant
        from dp_accounting.rdp import RdpAccountant
    except ImportError:
        print("dp-accounting is not installed: its column stays empty")
        return {}
    events = {
        "sampled": dp_accounting.SelfComposedDpEvent(
            dp_accounting.PoissonSampledDpEvent(RATE, dp_accounting.GaussianDpEvent(1.0)), STEPS
        ),
        "laplace": dp_accounting.SelfComposedDpEvent(dp_accounting.LaplaceDpEvent(2.0), 100),
        "different": dp_accounting.ComposedDpEvent([dp_accounting.LaplaceDpEvent(5 + i / 100) for i in range(100)]),
        "many": dp_accounting.SelfComposedDpEvent(
            dp_accounting.PoissonSampledDpEvent(0.001, dp_accounting.GaussianDpEvent(1.0)), 10**6
        ),
        "gaussians": dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(2000.0), 10**6),
    }

    def spent(accountant: Callable[[], object], event: str) -> Job:
        return lambda: float(accountant().compose(events[event]).get_epsilon(DELTA))  # type: ignore[attr-defined]

    def calibrated(accountant: Callable[[], object]) -> Job:
        return lambda: float(
            dp_accounting.calibrate_dp_mechanism(
                accountant,
                lambda z: dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(z), 100),
                1.0,
                1e-6,
            )
        )

    return {
        "rdp": spent(RdpAccountant, "sampled"),
        "pld": spent(PLDAccountant, "sampled"),
        "laplace": spent(PLDAccountant, "laplace"),
        "different": spent(PLDAccountant, "different"),
        "different_rdp": spent(RdpAccountant, "different"),
        "many": spent(PLDAccountant, "many"),
        "gaussians": spent(RdpAccountant, "gaussians"),
        "sigma": calibrated(RdpAccountant),
    }


def opacus_jobs() -> dict[str, Job]:
    """The same question to the Rényi accountant of Opacus, with its default orders."""
    try:
        from opacus.accountants import RDPAccountant
    except ImportError:
        print("Opacus is not installed: its column stays empty")
        return {}

    def spent() -> float:
        accountant = RDPAccountant()
        accountant.history = [(1.0, RATE, STEPS)]
        return float(accountant.get_epsilon(DELTA))

    return {"rdp": spent}


def import_seconds(module: str) -> float:
    """Seconds to import a module in a fresh interpreter, without those of the interpreter itself."""
    code = f"import time; start = time.perf_counter(); import {module}; print(time.perf_counter() - start)"
    return min(
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout) for _ in range(5)
    )


def main() -> None:
    """Print the table."""
    sampled = STEPS * PoissonSubsampled(Gaussian(1.0), RATE)
    million, laplace = 10**6 * Gaussian(2000.0), 100 * Laplace(2.0)
    different: Release = sum((Laplace(5 + i / 100) for i in range(100)), Composed())
    parts = [Laplace(5 + i / 100) for i in range(1000)]
    thousand: Release = sum(parts, Composed())
    many = 10**6 * PoissonSubsampled(Gaussian(1.0), 0.001)
    ours: dict[str, tuple[str, Job, int]] = {
        "rdp": (f"ε of {STEPS} sampled Gaussians, RDP", lambda: epsilon(sampled, DELTA, accountant="rdp"), 30),
        "pld": (f"ε of {STEPS} sampled Gaussians, PLD", lambda: epsilon(sampled, DELTA, accountant="pld"), 5),
        "laplace": ("ε of 100 Laplace releases, PLD", lambda: epsilon(laplace, DELTA, accountant="pld"), 5),
        "different": ("ε of 100 different Laplaces, PLD", lambda: epsilon(different, DELTA, accountant="pld"), 5),
        "different_rdp": ("ε of 100 different Laplaces, RDP", lambda: epsilon(different, DELTA, accountant="rdp"), 20),
        "thousand": ("ε of 1000 different Laplaces, PLD", lambda: epsilon(thousand, DELTA, accountant="pld"), 2),
        "many": ("ε of 10⁶ sampled Gaussians, PLD", lambda: epsilon(many, DELTA, accountant="pld"), 3),
        "bracket": (f"bracket of {STEPS} sampled Gaussians", lambda: bound(sampled, DELTA).lower, 3),
        "sum": ("sum() of 1000 descriptions", lambda: len(sum(parts, Composed()).parts), 10),  # type: ignore[attr-defined]
        "shuffled": ("ε of 10⁷ shuffled messages", lambda: epsilon(LocalShuffled(1.0, 10**7), DELTA), 3),
        "gaussians": ("ε of 10⁶ Gaussians", lambda: epsilon(million, DELTA), 200),
        "sigma": (
            "σ for 100 Gaussians at (1, 1e-6)",
            lambda: calibrate(lambda z: 100 * Gaussian(z), Budget(1.0, 1e-6)),
            50,
        ),
    }
    peers = {"dp-accounting": dp_accounting_jobs(), "Opacus": opacus_jobs()}
    for key, (title, job, repeats) in ours.items():
        seconds, answer = best(job, repeats)
        print(f"{title:36s} {seconds * 1e3:10.3f} ms   {answer:.9g}")
        for name, jobs in peers.items():
            if key in jobs:
                theirs, their_answer = best(jobs[key], 3)
                ratio = theirs / seconds
                print(f"{'    ' + name:36s} {theirs * 1e3:10.3f} ms   {their_answer:.9g}   ×{ratio:.1f}")
    base, whole = import_seconds("numpy"), import_seconds("accounting")
    print(f"{'import accounting':36s} {whole * 1e3:10.1f} ms   numpy alone {base * 1e3:.1f} ms")


if __name__ == "__main__":
    main()

"""What releases cost: ε at five δ, δ at an ε, brackets, curves of the notions that apply, and calibrated noise.

Descriptions are kept as text, so that what is priced stays the same whatever draws them.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from recorded_numbers import DELTAS_OF_PRICES

import accounting
from accounting import bound, calibrate, delta, epsilon, gdp, rdp, zcdp

ORDERS = (1.5, 2.0, 8.0, 32.0)
KEPT = Path(__file__).with_name("descriptions.json")

# what is calibrated, and to which budget
CALIBRATED = {
    "lambda z: 100 * Gaussian(z)": "Budget(1.0, 1e-6)",
    "lambda z: Gaussian(z)": "Budget(0.1, 1e-9)",
    "lambda z: Gaussian(z) + 20 * Gaussian(3 * z)": "Budget(8.0, 1e-5)",
    "lambda z: 30 * Laplace(z)": "Budget(1.0, 0.0)",
    "lambda z: 60 * Laplace(z)": "Budget(2.0, 1e-6)",
    "lambda z: DiscreteGaussian(z, shift=2)": "Budget(1.0, 1e-6)",
    "lambda z: 12 * DiscreteGaussian(z)": "Budget(2.0, 1e-6)",
    "lambda z: 10 * DiscreteLaplace(z, shift=1)": "Budget(1.0, 1e-6)",
    "lambda z: GeneralizedGaussian(z)": "Budget(0.7, 1e-7)",
    "lambda z: TreeAggregation(z, 1000)": "Budget(3.0, 1e-6)",
    "lambda z: 1000 * PoissonSubsampled(Gaussian(z), 0.01)": "Budget(1.0, 1e-5, adjacency='add_remove')",
    "lambda z: 300 * PoissonSubsampled(Gaussian(z), 0.02)": "Budget(4.0, 1e-6, adjacency='add_remove')",
    "lambda z: 50 * PoissonSubsampled(Gaussian(z), 0.1, adjacency='replace')": "Budget(4.0, 1e-5)",
    "lambda z: 20 * RandomAllocated(Gaussian(z), 100)": "Budget(2.0, 1e-6, adjacency='add_remove')",
    "lambda z: 100 * FixedSizeSubsampled(Gaussian(z), 10, 1000)": "Budget(2.0, 1e-5)",
    "lambda z: PureDP(0.2) + 5 * Gaussian(z)": "Budget(1.0, 1e-6)",
    "lambda z: ApproxDP(0.1, 1e-8) + Gaussian(z)": "Budget(1.0, 1e-6)",
    "lambda z: 40 * NoisyMax(1 / z)": "Budget(1.0, 1e-6)",
    "lambda z: BestOfRuns(Gaussian(z), stop=0.1)": "Budget(2.0, 1e-6)",
    "lambda z: ObjectivePerturbation(z, curvature=0.2)": "Budget(2.0, 1e-6)",
    "lambda z: parallel(Gaussian(z), Gaussian(2 * z)) + ZCDP(0.01)": "Budget(2.0, 1e-6)",
}


def made(text: str) -> Any:
    """What a text describes, in public names of ``accounting`` alone."""
    return eval(text, {name: getattr(accounting, name) for name in accounting.__all__})


def outcome(compute: Callable[[], Any]) -> Any:
    """Numbers, or the name of what was raised."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return [float(number) for number in np.atleast_1d(compute())]
    except (ValueError, TypeError, accounting.BudgetExceeded) as error:
        return [type(error).__name__]


def epsilons(release: Any, deltas: Iterable[float] = DELTAS_OF_PRICES) -> list[Any]:
    return [figure for d in deltas for figure in outcome(lambda d=d: epsilon(release, d))]


def notions(release: Any) -> dict[str, Callable[[], Any]]:
    """What else may be asked of a description."""
    return {
        "delta": lambda: [delta(release, e) for e in (0.5, 2.0)],
        "bound": lambda: bound(release, 1e-6),
        "rdp": lambda: rdp(release, ORDERS),
        "zcdp": lambda: zcdp(release),
        "gdp": lambda: gdp(release),
    }


def names(gate: bool) -> list[str]:
    """Descriptions, and what is calibrated. The gate has every third of the marked ones, and of the calibrations."""
    marks = json.loads(KEPT.read_text())
    if not gate:
        return [*marks, *CALIBRATED]
    return [text for text in marks if "gate" in marks[text]][::3] + list(CALIBRATED)[::3]


def found(text: str, gate: bool) -> dict[str, Any]:
    """All that is recorded of one description; in the gate its ε alone."""
    if text in CALIBRATED:
        return {"calibrate": outcome(lambda: calibrate(made(text), made(CALIBRATED[text])))}
    release = made(text)
    figures = {"epsilon": epsilons(release)}
    asked = [] if gate else json.loads(KEPT.read_text())[text]
    return figures | {kind: outcome(compute) for kind, compute in notions(release).items() if kind in asked}

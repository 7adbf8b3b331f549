"""What releases cost: ε at five δ, δ at an ε, brackets, curves of the notions that apply, and calibrated noise.

Descriptions are kept as text, so that what is priced stays the same whatever draws them.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

import accounting
from accounting import bound, calibrate, delta, epsilon, gdp, rdp, zcdp

DELTAS = (1e-3, 1e-5, 1e-6, 1e-9, 1e-12)
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


def epsilons(release: Any) -> list[Any]:
    return [figure for d in DELTAS for figure in outcome(lambda: epsilon(release, d))]


def names(gate: bool) -> list[str]:
    """Descriptions, and what is calibrated. The gate has those marked in the file and a third of the calibrations."""
    marks = json.loads(KEPT.read_text())
    return [text for text in marks if not gate or "gate" in marks[text]] + list(CALIBRATED)[:: 3 if gate else 1]


def found(text: str, gate: bool) -> dict[str, Any]:
    """All that is recorded of one description; in the gate its ε alone."""
    if text in CALIBRATED:
        return {"calibrate": outcome(lambda: calibrate(made(text), made(CALIBRATED[text])))}
    release = made(text)
    figures: dict[str, Any] = {"epsilon": epsilons(release)}
    if gate:
        return figures
    marks = json.loads(KEPT.read_text())[text]
    notions: dict[str, Callable[[], Any]] = {
        "delta": lambda: [delta(release, e) for e in (0.5, 2.0)],
        "bound": lambda: bound(release, 1e-6),
        "rdp": lambda: rdp(release, ORDERS),
        "zcdp": lambda: zcdp(release),
        "gdp": lambda: gdp(release),
    }
    figures |= {notion: outcome(compute) for notion, compute in notions.items() if notion in marks}
    return figures


def candidates(rng: np.random.Generator) -> Iterable[tuple[str, str]]:
    """A kind and a text of that kind, without end, the kinds in turn."""

    def between(low: float, high: float) -> str:
        return f"{np.exp(rng.uniform(np.log(low), np.log(high))):.3g}"

    def whole(low: int, high: int) -> int:
        return int(float(between(low, high)))

    def one(*of: str) -> str:
        return of[rng.integers(len(of))]

    def near(low: float = 0.05, high: float = 2.0) -> str:
        return between(low, high)

    relation = lambda: one("", "", ", adjacency='add_remove'", ", adjacency='zero_out'", ", adjacency='replace'")  # noqa: E731
    noise = lambda: one("", ", 'exponential'", ", 'laplace'")  # noqa: E731
    user = lambda: one("", "", ", adjacency='zero_out'")  # noqa: E731
    base: dict[str, Callable[[], str]] = {
        "Gaussian": lambda: f"Gaussian({between(0.5, 20)}{relation()})",
        "DiscreteGaussian": lambda: (
            f"DiscreteGaussian({between(0.8, 20)}{one('', ', shift=1', ', shift=3')}{relation()})"
        ),
        "DiscreteLaplace": lambda: (
            f"DiscreteLaplace({between(0.8, 30)}{one('', ', shift=1', ', shift=4')}{relation()})"
        ),
        "GeneralizedGaussian": lambda: f"GeneralizedGaussian({between(0.7, 20)}{relation()})",
        "Laplace": lambda: f"Laplace({between(0.5, 30)}{relation()})",
        "NoisyMax": lambda: f"NoisyMax({near()}{noise()}{relation()})",
        "RandomizedResponse": lambda: f"RandomizedResponse({near()}, {whole(2, 60)}{relation()})",
        "UnaryEncoding": lambda: f"UnaryEncoding({near()}, {whole(3, 60)}{one('', ', optimized=False')}{relation()})",
        "PureDP": lambda: f"PureDP({near(0.01)}{relation()})",
        "ZCDP": lambda: f"ZCDP({between(1e-4, 1)}{relation()})",
        "ApproxDP": lambda: f"ApproxDP({near()}, {between(1e-14, 1e-7)}{relation()})",
        "TreeAggregation": lambda: f"TreeAggregation({between(1, 30)}, {whole(2, 5000)}{relation()})",
        "ObjectivePerturbation": lambda: (
            f"ObjectivePerturbation({between(2, 30)}, {between(0.01, 0.5)}{one('', ', one_row=True')}{relation()})"
        ),
        "ShuffledBinomial": lambda: (
            f"ShuffledBinomial({whole(500, 50000)}, {between(1, 20)}, {whole(1, 8)}{one('', ', rounded=True')}{user()})"
        ),
        "LocalShuffled": lambda: (
            "LocalShuffled("
            + one(
                near(),
                f"RandomizedResponse({near()}, {whole(2, 30)})",
                f"UnaryEncoding({near()}, 20)",
                f"Laplace({between(0.5, 9)})",
            )
            + f", users={whole(200, 50000)}{user()})"
        ),
    }
    bare = lambda *kinds: base[one(*kinds)]().split(", adjacency")[0].rstrip(")") + ")"  # noqa: E731
    times = lambda text, most=400: f"{whole(2, most)} * {text}"  # noqa: E731
    swapped = ("Gaussian", "Laplace", "PureDP", "DiscreteGaussian", "DiscreteLaplace")
    poisson = lambda: f"PoissonSubsampled({bare('Gaussian', *base)}, {between(0.001, 0.5)})"  # noqa: E731
    swap = lambda: f"PoissonSubsampled({bare(*swapped)}, {between(0.002, 0.5)}, adjacency='replace')"  # noqa: E731
    fixed = lambda: f"FixedSizeSubsampled({bare(*base)}, {whole(1, 300)}, {whole(300, 50000)})"  # noqa: E731
    best = lambda: one(  # noqa: E731
        f"BestOfRuns({bare(*base)}, stop={between(0.02, 0.6)}{one('', ', shape=0.5', ', shape=2.0')})",
        f"BestOfPoissonRuns({bare(*base)}, mean={between(1, 20)})",
    )
    kinds: dict[str, Callable[[], str]] = {
        **base,
        **{f"{kind}, many": lambda make=make: times(make()) for kind, make in base.items()},
        "Poisson": poisson,
        "Poisson, many": lambda: times(poisson(), 3000),
        "DP-SGD": lambda: f"{whole(50, 20000)} * PoissonSubsampled(Gaussian({between(0.6, 4)}), {between(5e-4, 0.1)})",
        "Poisson, replaced": swap,
        "Poisson, replaced, many": lambda: times(swap(), 1000),
        "Poisson of a sum": lambda: (
            f"{whole(1, 50)} * PoissonSubsampled({bare(*base)} + {bare(*swapped)}, {between(0.01, 0.3)})"
        ),
        "fixed size": fixed,
        "fixed size, many": lambda: times(fixed(), 1000),
        "best": best,
        "best, and others": lambda: f"{whole(1, 5)} * {best()} + {whole(1, 9)} * {bare(*base)}",
        "best of DP-SGD": lambda: (
            f"BestOfRuns({whole(50, 2000)} * PoissonSubsampled(Gaussian({between(0.8, 4)}), 0.01), stop={between(0.05, 0.5)})"
        ),
        "sum": lambda: f"{whole(1, 60)} * {bare(*base)} + {whole(1, 60)} * {bare(*base)}",
        "sum of three": lambda: " + ".join(f"{whole(1, 20)} * {bare(*base)}" for _ in range(3)),
        "sampled and whole": lambda: f"{times(poisson())} + {whole(1, 5)} * {bare(*base)}",
        "parallel": lambda: f"{whole(1, 9)} * parallel({bare(*base)}, {whole(1, 9)} * {bare(*base)})",
        "parallel and more": lambda: f"parallel({bare(*base)}, {bare(*base)}, {poisson()}) + {times(bare(*base), 30)}",
        "composed": lambda: f"compose([({bare(*base)}, {whole(1, 9)}), ({bare(*base)}, {whole(1, 9)})])",
    }
    while True:
        for kind, text in kinds.items():
            yield kind, text()


def draw(count: int = 500, slowest: float = 1.0, quick: float = 0.1, seed: int = 20240) -> dict[str, list[str]]:
    """Descriptions that are priced within ``slowest`` seconds each, and which of them the gate and each notion take."""
    taken: dict[str, list[str]] = {}
    kinds: dict[str, list[int]] = {}
    refused = 0
    for kind, text in candidates(np.random.default_rng(seed)):
        if len(taken) == count:
            return taken
        if text in taken:
            continue
        try:
            release = made(text)
        except (ValueError, TypeError):  # that these do not go together is not a cost
            continue
        start = time.process_time()
        first = outcome(lambda: epsilon(release, 1e-6))
        if time.process_time() - start > slowest:
            continue
        costs = epsilons(release)
        spent = time.process_time() - start
        if spent > 3 * slowest or (isinstance(first[0], str) and (refused := refused + 1) > 12):
            continue
        number = len(kinds.setdefault(kind, []))
        marks = ["delta"] if len(taken) % 8 == 0 else []
        marks += ["bound"] if len(taken) % 8 == 1 and spent < slowest / 2 else []
        for notion, compute in {
            "rdp": lambda: rdp(release, ORDERS),
            "zcdp": lambda: zcdp(release),
            "gdp": lambda: gdp(release),
        }.items():
            marks += [notion] if not isinstance(outcome(compute)[0], str) else []
        if spent < quick and sum(kinds[kind]) < 3:
            marks.append("gate")
        kinds[kind].append("gate" in marks)
        taken[text] = marks
        print(f"{len(taken):4} {spent:6.2f} s  {kind}: {text} {costs[2]} {number}", flush=True)
    raise AssertionError("never")


def keep() -> None:
    KEPT.write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in draw().items()) + "\n}\n")

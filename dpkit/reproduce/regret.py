"""Regret of the online learners against the best fixed point, and how it grows with the length of the stream.

d = 4, the unit ball, rows of length at most 1, (ε, 10⁻⁶)-DP for the replacement of one row. With θ_t the iterate that a
learner has published before row t,

    regret(T) = Σ_{t≤T} f_t(θ_t) − min_{‖θ‖≤1} Σ_{t≤T} f_t(θ),

for streams of every length of ``HORIZONS``, each with a horizon of its own. Losses f_t:

* "linear": vectors of random directions and length 0.7, and a mean of 0.3 along one axis, which turns round after a
  third of the stream: whoever follows the sum is wrong for the second third;
* "logistic": ln(1 + e^η) − yη at η = xᵀθ for rows of random directions, and labels with P(y = 1) = 1/(1 + e^(−4xᵀθ°));
* "ridge": the same plus ‖θ‖²/8, which is ¼-strongly convex. For learners with a ``ridge``.

"Slope" is that of ln regret against ln T, by least squares over the last three lengths; its error is what the errors of
the means make of it. "Theory" is the exponent of what is proved of the learner's expected regret for every sequence of
losses that is fixed in advance, logarithms left out; its value at the longest stream is the "bound". For
``OnlineFrankWolfe`` there is one for losses that are drawn independently only (Han et al.). Nothing is tuned: all
parameters are the defaults, and clip norms are what bounds the gradients.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accounting import Budget
from dpkit import optimize
from dpkit.geometry import LpBall
from dpkit.optimize import glm
from dpkit.optimize.parts.stream_learner import largest_noise
from dpkit.reproduce._lines import completed, read, to_csv

__all__ = [
    "HORIZONS",
    "LEARNERS",
    "Row",
    "bound",
    "check_done",
    "from_csv",
    "picture",
    "run",
    "slope",
    "to_csv",
    "to_markdown",
]

Vector = NDArray[np.float64]

DIMENSION = 4
BALL = LpBall(2, DIMENSION)
RIDGE = 0.25
LOSSES = ("linear", "logistic", "ridge")
EPSILONS = (1.0, 8.0)
DELTA = 1e-6
HORIZONS = (256, 1024, 4096, 16_384)
QUICK_HORIZONS = (64, 256, 1024)
QUICK_SEEDS = 3
FITTED = 3


class _Learner(NamedTuple):
    make: Callable[..., Any]
    theory: dict[str, str]  # losses → exponent


LEARNERS: dict[str, _Learner] = {
    "leader": _Learner(optimize.FollowTheApproximateLeader, {"linear": "1/2", "logistic": "1/2", "ridge": "0"}),
    "leader, tree": _Learner(
        partial(optimize.FollowTheApproximateLeader, sums="tree"), {"linear": "1/2", "logistic": "1/2", "ridge": "0"}
    ),
    "regularized leader": _Learner(optimize.FollowTheRegularizedLeader, {"linear": "1/2", "logistic": "1/2"}),
    "implicit": _Learner(optimize.ImplicitGradientDescent, {"linear": "1/2", "logistic": "1/2", "ridge": "0"}),
    "implicit, hidden": _Learner(
        partial(optimize.ImplicitGradientDescent, steps_from="hidden"),
        {"linear": "3/4", "logistic": "3/4", "ridge": "1/2"},
    ),
    "Frank-Wolfe": _Learner(optimize.OnlineFrankWolfe, {"linear": "", "logistic": "1/2"}),
}


@dataclass(frozen=True)
class Row:
    """A line of the results: mean and deviation over the seeds."""

    losses: str
    epsilon: float
    learner: str
    horizon: int
    regret: float
    deviation: float
    seeds: int
    seconds: float


def run(
    *,
    losses: Sequence[str] = LOSSES,
    epsilons: Sequence[float] = EPSILONS,
    learners: Sequence[str] = tuple(LEARNERS),
    horizons: Sequence[int] = HORIZONS,
    seeds: int = 10,
    quick: bool = False,
    jobs: int = 1,
    done: Sequence[Row] = (),
    progress: Callable[[list[Row], int], object] | None = None,
) -> list[Row]:
    """Every learner on streams of every length.

    Parameters
    ----------
    losses, epsilons, learners, horizons : sequence
        What to run.
    seeds : int
        Streams per line.
    quick : bool
        Short streams and three seeds.
    jobs : int
        Processes.
    done : sequence of Row
        Of an earlier call that was interrupted: not run again.
    progress : callable, optional
        Called with the rows so far after each new one, and how many there will be.
    """
    if quick:
        horizons, seeds = QUICK_HORIZONS, QUICK_SEEDS
    check_done(done, seeds=seeds, quick=quick)
    order = [
        (f, e, a, T) for f in losses for e in epsilons for a in learners if f in LEARNERS[a].theory for T in horizons
    ]
    found = {(row.losses, row.epsilon, row.learner, row.horizon): row for row in done}
    return completed(order, found, partial(_row, seeds=seeds), jobs, progress)


def check_done(done: Sequence[Row], *, seeds: int, quick: bool) -> None:
    """Refuse rows of runs with other ``seeds`` or lengths."""
    expected, lengths = (QUICK_SEEDS, QUICK_HORIZONS) if quick else (seeds, HORIZONS)
    if any(row.seeds != expected for row in done):
        raise ValueError(f"seeds must be {expected} in every line, got others")
    if quick and any(row.horizon not in lengths for row in done):
        raise ValueError(f"horizon must be one of {lengths} in every line, got others")


def _row(key: tuple[str, float, str, int], *, seeds: int) -> Row:
    losses, epsilon, learner, T = key
    begin = time.perf_counter()
    found = [_regret(losses, epsilon, learner, T, seed) for seed in range(seeds)]
    deviation = float(np.std(found, ddof=1)) if seeds > 1 else 0.0
    seconds = (time.perf_counter() - begin) / seeds
    return Row(losses, epsilon, learner, T, float(np.mean(found)), deviation, seeds, round(seconds, 3))


def _regret(losses: str, epsilon: float, learner: str, T: int, seed: int) -> float:
    X, y, least = _stream(losses, T, seed)
    online = _make(losses, epsilon, learner, T, np.random.default_rng([seed, 1]))
    thetas = np.empty((T, DIMENSION))
    for t, (x, label) in enumerate(zip(X, y.tolist(), strict=True)):
        thetas[t] = online.theta
        online.step(x, label)
    suffered = float(online.objective.loss(np.einsum("td,td->t", X, thetas), y).sum())
    if losses == "ridge":
        suffered += RIDGE / 2 * float(np.square(thetas).sum())
    return suffered - least


def _make(losses: str, epsilon: float, learner: str, T: int, rng: np.random.Generator | None) -> Any:
    objective = glm("linear" if losses == "linear" else "logistic", clip=1.0)
    more = {"ridge": RIDGE} if losses == "ridge" else {}
    return LEARNERS[learner].make(objective, BALL, horizon=T, budget=Budget(epsilon, DELTA), rng=rng, **more)


@lru_cache(maxsize=32)
def _stream(losses: str, T: int, seed: int) -> tuple[Vector, Vector, float]:
    """Rows, labels, and the least loss of a fixed point of the ball."""
    source = np.random.default_rng([seed, 0])
    X = source.normal(size=(T, DIMENSION))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    if losses == "linear":
        X = 0.7 * X
        X[:, 0] += np.where(3 * np.arange(T) < T, 0.3, -0.3)
        return X, np.ones(T), -float(np.linalg.norm(X.sum(axis=0)))
    y = (source.random(T) < 1.0 / (1.0 + np.exp(-4.0 * X @ [0.6, -0.5, 0.0, 0.0]))).astype(np.float64)
    return X, y, T * _least(X, y, RIDGE if losses == "ridge" else 0.0)


def _least(X: Vector, y: Vector, ridge: float) -> float:
    """min_{‖θ‖≤1} of the mean logistic loss + ridge·‖θ‖²/2, by accelerated projected descent."""
    objective = glm("logistic")
    theta = point = np.zeros(DIMENSION)
    momentum, step = 1.0, 1.0 / (0.25 + ridge)
    for _ in range(2000):
        slope = objective.gradient_sum(point, X, y) / len(X) + ridge * point
        following = BALL.project(point - step * slope)
        faster = (1.0 + math.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        point = following + (momentum - 1.0) / faster * (following - theta)
        moved = float(np.abs(following - theta).max())
        theta, momentum = following, faster
        if moved < 1e-9:
            break
    return objective.mean(theta, X, y) + ridge / 2 * float(theta @ theta)


def bound(losses: str, epsilon: float, learner: str, T: int) -> float:
    """What is proved of the expected regret, for any such losses; NaN if nothing is. The modules have the proofs."""
    if learner == "Frank-Wolfe":
        return math.nan
    online = _make(losses, epsilon, learner, T, None)
    R = L = 1.0
    d, log = DIMENSION, math.log(T)
    if isinstance(online, optimize.FollowTheRegularizedLeader):
        eta, noise = online.learning_rate, largest_noise(online._sums) * math.sqrt(d)
        if losses == "linear":
            return R**2 / (2 * eta) + eta * T * L**2 / 2 + 1.02 * R * noise
        return R**2 / (2 * eta) + eta * T * (L**2 / 2 + L * noise)
    if isinstance(online, optimize.FollowTheApproximateLeader):
        noise, lam = largest_noise(online._sums) * math.sqrt(d), online.curvature
        if losses == "ridge":
            return (L**2 * (3 + log) + 2 * (L + lam * R) * noise * (1 + log)) / (2 * lam)
        return (L**2 + 2 * L * noise) * (2 + log) / (2 * lam) + lam * T * R**2 / 2
    noise, lam = float(online.noise_multiplier) * 2 * L * math.sqrt(d), float(online.curvature)
    if online.steps_from == "hidden":
        steep = L + lam * R
        found = (steep**2 + 2 * steep * noise) * (1 + log) / (2 * lam) + lam * R**2 / 2
        return found if losses == "ridge" else found + lam * T * R**2 / 2
    if losses == "ridge":
        return ((L + lam * R) ** 2 + noise**2) * (1 + log) / (2 * lam) + lam * R**2 / 2
    return 2 * math.sqrt(2 * T * (L**2 + noise**2)) * R


def slope(rows: Sequence[Row]) -> tuple[float, float]:
    """That of ln regret against ln T over the ``FITTED`` longest of ``rows``, and its standard error.

    Examples
    --------
    >>> from dpkit.reproduce.regret import Row, slope
    >>> exponent, error = slope([Row("linear", 1.0, "leader", T, 3.0 * T**0.5, 0.0, 10, 0.0) for T in (100, 200, 400)])
    >>> round(exponent, 9), round(error, 9)
    (0.5, 0.0)
    """
    last = sorted(rows, key=lambda row: row.horizon)[-FITTED:]
    if len(last) < 2 or any(row.regret <= 0 for row in last):
        return math.nan, math.nan
    x = np.log([row.horizon for row in last])
    weights = (x - x.mean()) / np.sum((x - x.mean()) ** 2)
    errors = np.array([row.deviation / (row.regret * math.sqrt(row.seeds)) for row in last])
    return float(weights @ np.log([row.regret for row in last])), float(np.linalg.norm(weights * errors))


def from_csv(text: str) -> list[Row]:
    """The rows that ``to_csv`` wrote; refuses other columns."""
    return read(Row, text)


def _curves(rows: Sequence[Row]) -> dict[tuple[str, float, str], list[Row]]:
    found: dict[tuple[str, float, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.losses, row.epsilon, row.learner), []).append(row)
    return found


def to_markdown(rows: Sequence[Row]) -> str:
    """Mean regret at every length ± its standard error at the last, the slope and that of theory, and its bound."""
    horizons = sorted({row.horizon for row in rows})
    lines = [
        f"| losses | ε | learner | {' | '.join(f'T = {T:,}' for T in horizons)} | slope | theory | bound |",
        "|---" * (6 + len(horizons)) + "|",
    ]
    for (losses, epsilon, learner), curve in _curves(rows).items():
        cell = {row.horizon: f"{row.regret:.0f}" for row in curve}
        last = max(curve, key=lambda row: row.horizon)
        cell[last.horizon] = f"{last.regret:.0f} ± {last.deviation / last.seeds**0.5:.0f}"
        found, error = slope(curve)
        fitted = "" if math.isnan(found) else f"{found:.2f} ± {error:.2f}"  # none where regret is negative
        cells = " | ".join(cell.get(T, "") for T in horizons)
        most = bound(losses, epsilon, learner, last.horizon)
        proved = "" if math.isnan(most) else f"{most:,.0f}"
        theory = LEARNERS[learner].theory[losses]
        lines.append(f"| {losses} | {epsilon:g} | {learner} | {cells} | {fitted} | {theory} | {proved} |")
    return "\n".join(lines) + "\n"


def picture(rows: Sequence[Row], path: Path) -> None:
    """Regret against T, one panel per losses and ε; written to ``path``."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row.losses for row in rows))
    epsilons = sorted({row.epsilon for row in rows})
    figure = Figure(figsize=(3.4 * len(names), 3.0 * len(epsilons)), layout="constrained")
    axes = figure.subplots(len(epsilons), len(names), squeeze=False, sharex=True)
    for (losses, epsilon, learner), curve in _curves(rows).items():
        axis = axes[epsilons.index(epsilon), names.index(losses)]
        errors = [row.deviation / row.seeds**0.5 for row in curve]
        color = f"C{list(LEARNERS).index(learner)}"
        axis.errorbar(
            [r.horizon for r in curve], [r.regret for r in curve], errors, marker="o", ms=3, label=learner, color=color
        )
        axis.set(xscale="log", yscale="log", title=f"{losses}, ε = {epsilon:g}", xlabel="T", ylabel="regret")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize="small")
    figure.savefig(path, dpi=80)

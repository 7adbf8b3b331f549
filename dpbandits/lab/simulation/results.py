"""What a simulation found: curves, a table, files and plots.

>>> from dpbandits.lab.environments import GLM
>>> from dpbandits.policies import Uniform
>>> from dpbandits.lab.simulation.simulate import simulate
>>> results = simulate({"uniform": lambda rng: Uniform(5, rng=rng)}, GLM(dim=5), rounds=100, seeds=2, progress=False)
>>> [(row["policy"], row["seeds"], row["rounds"]) for row in results.table()]
[('uniform', 2, 100)]
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array
from accounting.checks import choice
from accounting.printed import as_html, as_text
from dpbandits._extras import need
from dpbandits.lab.simulation import files as resultfile
from dpbandits.lab.simulation import plots
from dpbandits.lab.simulation.runs import Run

__all__ = ["Metric", "Results"]

Metric = Literal["reward", "regret"]


@dataclass(frozen=True, eq=False)
class Results:
    """The runs of a simulation.

    Attributes
    ----------
    environment : str
        The name of the environment.
    runs : tuple of Run
        Ordered by policy, then seed.
    planned_runs : int
        How many runs were asked for; more than ``len(runs)`` if the simulation was interrupted.

    Examples
    --------
    >>> from dpbandits import simulate
    >>> from dpbandits.lab.environments import GLM
    >>> from dpbandits.policies import Uniform
    >>> results = simulate({"chance": lambda rng: Uniform(2, rng=rng)}, GLM(dim=2), rounds=50, seeds=2, progress=False)
    >>> rounds, regret = results.curves("chance", "regret")
    >>> regret.shape == (2, len(rounds))
    True
    """

    environment: str
    runs: tuple[Run, ...]
    planned_runs: int

    @property
    def complete(self) -> bool:
        """Whether every run that was asked for is here."""
        return len(self.runs) == self.planned_runs

    @property
    def policies(self) -> list[str]:
        """The names of the policies, in order."""
        return list(dict.fromkeys(run.policy for run in self.runs))

    @property
    def simulation(self) -> bool:
        """Whether any noise came from a seeded generator, so that nothing here is a private release."""
        return any(run.privacy.simulation for run in self.runs)

    @property
    def metric(self) -> Metric:
        """``"regret"`` where it is known, else ``"reward"``."""
        return "reward" if any(np.isnan(run.regret).any() for run in self.runs) else "regret"

    def runs_of(self, policy: str) -> list[Run]:
        """The runs of one policy."""
        runs = [run for run in self.runs if run.policy == policy]
        if not runs:
            raise ValueError(f"policy must be one of {', '.join(map(repr, self.policies))}, got policy={policy!r}")
        return runs

    def curves(self, policy: str, metric: Metric) -> tuple[NDArray[np.int64], Array]:
        """Rounds (P,) and one curve per seed (n, P): cumulative regret, or the mean reward per round so far."""
        choice("metric", metric, "reward", "regret")
        runs = self.runs_of(policy)
        values = np.stack([getattr(run, metric) for run in runs])
        return runs[0].round, values / runs[0].round if metric == "reward" else values

    # ---------------------------------------------------------------------------------------------- tables

    def table(self) -> list[dict[str, Any]]:
        """One row per policy: means over seeds with their standard errors (NaN for a single seed).

        Returns
        -------
        list of dict
            ``policy, algorithm, seeds, rounds``; ``reward`` per round and cumulative ``regret``, each with ``_se``;
            ``seconds_per_round``; ``untold`` rewards per seed; ``epsilon`` (the largest of the seeds'; infinite if
            not private), ``delta``, ``trust``, ``adjacency``, ``unit`` and ``simulation``.
        """
        rows = []
        for policy in self.policies:
            runs = self.runs_of(policy)
            row: dict[str, Any] = {"policy": policy, "algorithm": runs[0].algorithm, "seeds": len(runs)}
            row["rounds"] = int(runs[0].round[-1])
            for metric in ("reward", "regret"):
                last = self.curves(policy, metric)[1][:, -1]
                row[metric] = float(last.mean())
                row[f"{metric}_se"] = float(last.std(ddof=1) / math.sqrt(len(last))) if len(last) > 1 else math.nan
            row["seconds_per_round"] = float(np.mean([run.seconds[-1] / run.round[-1] for run in runs]))
            row["untold"] = float(np.mean([run.untold for run in runs]))
            worst = max((run.privacy for run in runs), key=lambda privacy: privacy.epsilon)
            row |= {name: getattr(worst, name) for name in ("epsilon", "delta", "trust", "adjacency", "unit")}
            row["simulation"] = any(run.privacy.simulation for run in runs)
            rows.append(row)
        return rows

    def __str__(self) -> str:
        """The table as text, with what it is about."""
        return f"{self.caption()}\n{as_text(self._cells())}"

    def __repr__(self) -> str:
        return f"Results({self.environment!r}, {len(self.policies)} policies, {len(self.runs)} runs)"

    def _repr_html_(self) -> str:
        return as_html(self.caption(), self._cells())

    def _cells(self) -> list[list[str]]:
        lines = [["policy", "reward/round", "regret", "µs/round", "privacy"]]
        for row in self.table():
            regret = "" if math.isnan(row["regret"]) else with_error(row["regret"], row["regret_se"])
            microseconds = f"{1e6 * row['seconds_per_round']:.0f}"
            reward = with_error(row["reward"], row["reward_se"])
            lines.append([row["policy"], reward, regret, microseconds, cost(row)])
        return [[line[0], line[1], *line[3:]] for line in lines] if self.metric == "reward" else lines

    def caption(self) -> str:
        """Environment, rounds and seeds; whether it is incomplete; rewards never told; whether it is a simulation."""
        seeds = len({run.seed for run in self.runs})
        text = f"{self.environment}: {self.runs[0].round[-1]:,} rounds, {seeds} seed{'s' if seeds > 1 else ''}"
        if not self.complete:
            text += f"; INCOMPLETE: {len(self.runs)} of {self.planned_runs} runs"
        if untold := sum(run.untold for run in self.runs):
            text += f"; {untold / sum(run.round[-1] for run in self.runs):.2%} of the rewards never told"
        return text + ("; seeded simulation: not a private release" if self.simulation else "")

    def to_frame(self) -> Any:
        """A pandas ``DataFrame`` with one row per policy, seed and noted round."""
        return need("pandas", "to_frame").DataFrame(resultfile.columns(self))

    # ----------------------------------------------------------------------------------------------- files

    def save(self, path: str | Path) -> Path:
        """Write to a ``.json``, ``.csv`` or ``.parquet`` file, by its suffix; :meth:`load` gives the same back."""
        return resultfile.write(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Results:
        """Read what :meth:`save` wrote, or the ``.jsonl`` file in which a simulation keeps its runs.

        Raises
        ------
        ValueError
            If the file does not hold results.
        """
        return cls(*resultfile.read(Path(path)))

    # ----------------------------------------------------------------------------------------------- plots

    def plot_time(self, target: Any = None, metric: Metric | None = None, *, band: Literal["95%", "se"] = "95%") -> Any:
        """Regret, or mean reward so far, against rounds, with a band over seeds.

        Parameters
        ----------
        target : path, matplotlib Axes or None
            An image file to write (the suffix is its format), axes to draw on, or by default a new figure.
        metric : {"regret", "reward"}, optional
            By default regret where it is known.
        band : {"95%", "se"}
            The 95 % confidence interval of the mean over seeds (Student's t), or ± one standard error.

        Returns
        -------
        matplotlib Axes, or the path
        """
        return plots.draw(self, target, ("time",), metric, band)

    def plot_epsilon(
        self, target: Any = None, metric: Metric | None = None, *, band: Literal["95%", "se"] = "95%"
    ) -> Any:
        """Final regret or mean reward against ε; policies that are not private are horizontal lines.

        The parameters are those of :meth:`plot_time`.

        Raises
        ------
        ValueError
            If no policy is private.
        """
        return plots.draw(self, target, ("epsilon",), metric, band)

    def plot(self, target: Any = None, metric: Metric | None = None, *, band: Literal["95%", "se"] = "95%") -> Any:
        """Both plots side by side in an image file or a new figure; on axes, or if nothing is private, the first.

        The parameters are those of :meth:`plot_time`. Of a new figure with both plots both axes are returned.
        """
        private = any(math.isfinite(run.privacy.epsilon) for run in self.runs)
        both = private and (target is None or isinstance(target, (str, PathLike)))
        return plots.draw(self, target, ("time", "epsilon") if both else ("time",), metric, band)


def with_error(mean: float, error: float) -> str:
    """A mean and its standard error with two digits of the error: ``0.5931 ± 0.0031``."""
    if not error > 1e-9 * abs(mean):  # the same every time, but for rounding
        return f"{mean:.4g}"
    digits = max(0, 1 - math.floor(math.log10(error)))
    return f"{mean:,.{digits}f} ± {error:.{digits}f}"


def cost(row: dict[str, Any]) -> str:
    """The privacy of a row of the table: ``joint (1, 1e-05)-DP per round``."""
    if math.isinf(row["epsilon"]):
        return "not private"
    return f"{row['trust']} ({row['epsilon']:.4g}, {row['delta']:g})-DP per {row['unit']}"

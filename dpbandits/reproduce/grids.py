"""The grids of ``dpbandits reproduce slopes``: which size varies, what is played, and what the theorem states.

A sweep varies one of T, d, K, ε and κ for policies, or n and d for DP-TOFW. Where a theorem is of an algorithm that
differs from the policy here, the sweep says "the paper's": for these private forms no regret theorem is claimed.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from accounting import Budget
from accounting.errors import NotPrivateWarning
from dpbandits.lab.environments import GLM, Linear, PerArm
from dpbandits.reproduce.figure import Line, Panel
from dpkit.geometry import LpBall
from dpkit.models.links import get_link
from dpkit.optimize import OnlineFrankWolfe, glm
from dpkit.optimize.stream.published_frank_wolfe import PublishedOnlineFrankWolfe
from dpkit.reproduce.convex_curves import CLIP, GRADIENT_BOUND, PUBLISHED_LOSS
from dpkit.reproduce.convex_workload import RADIUS, Cell

__all__ = ["OPTIMIZERS", "Sweep", "listed", "shortened", "sweeps"]

_T = (1000, 2000, 4000, 8000, 16_000)


@dataclass(frozen=True)
class Sweep:
    """One size that varies.

    Attributes
    ----------
    name : str
        Of its file.
    title : str
        What is played, and what stays fixed.
    axis : str
        What varies.
    values : tuple of float
        Its values.
    panels : tuple of Panel
        One for each value; empty for the optimizer.
    theorems : mapping
        By the name of a line, the exponent that a theorem states.
    cells : tuple of Cell
        One for each value; of the optimizer only.
    """

    name: str
    title: str
    axis: str
    values: tuple[float, ...]
    panels: tuple[Panel, ...] = ()
    theorems: Mapping[str, str] = field(default_factory=dict)
    cells: tuple[Cell, ...] = ()

    @property
    def lines(self) -> dict[str, str]:
        """The lines' names, and all that was chosen for them: what is stored is of these, or is refused."""
        if self.cells:
            return {name: f"{name}, {self.axis} = {listed(self.values)}" for name in OPTIMIZERS}
        grid = f"{self.axis} = {listed(self.values)}, T = {listed([panel.rounds for panel in self.panels])}"
        return {line.name: f"{line.policy}, {line.parameters}, {grid}" for line in self.panels[0].lines}


def _swept(
    name: str,
    title: str,
    axis: str,
    values: Sequence[float],
    panel: Callable[[float], tuple[Any, int, tuple[Line, ...]]],
    theorems: Mapping[str, str],
    shown: Sequence[float] = (),
) -> Sweep:
    """The panels of all values; ``shown`` is the axis where the values themselves are not."""
    made = []
    for value in values:
        environment, rounds, lines = panel(value)
        made.append(Panel(f"{title}, {axis} = {value:g}", environment, rounds, lines))
    return Sweep(name, title, axis, tuple(shown or values), tuple(made), theorems)


def _glb_omd() -> list[Sweep]:
    """Zhang et al. (2025), Theorem 2: Õ(dSR√(S²R + log T)·√(T/κ_*)) + Õ(κd²…), O(d³ + d²K) per round."""

    def lines(S: float) -> tuple[Line, ...]:
        told = {"theta_bound": S}
        return (Line("GLB-OMD", "GLBOMD", told), Line("GLB-OMD, theory", "GLBOMD", told | {"parameters": "theory"}))

    def both(stated: str) -> dict[str, str]:
        return {"GLB-OMD": f"{stated}, theory's radius", "GLB-OMD, theory": stated}

    def bound(T: float) -> float:
        """Of T in the leading term, with R = 1 and S = 3."""
        return math.sqrt((9.0 + math.log(T)) * T * math.log(T))

    growth = f"½; {math.log(bound(_T[-1]) / bound(_T[0])) / math.log(_T[-1] / _T[0]):.2f} with its logarithms"
    fixed = "logistic rewards, d = 2, S = 3, K = 20"
    link = get_link("logistic")
    lengths = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
    return [
        _swept("glb-omd-T", fixed, "T", _T, lambda T: (GLM(2, theta_norm=3.0), int(T), lines(3.0)), both(growth)),
        _swept(
            "refit-T",
            fixed,
            "T",
            (200, 400, 800, 1600),
            lambda T: (GLM(2, theta_norm=3.0), int(T), (Line("OFUGLB", "OFUGLB", {"theta_bound": 3.0}, seeds=2),)),
            {"OFUGLB": "½, its authors'"},
        ),
        _swept(
            "glb-omd-d",
            "logistic rewards, S = 3, K = 20, T = 4,000",
            "d",
            (2, 4, 8, 16),
            lambda d: (GLM(int(d), theta_norm=3.0), 4000, lines(3.0)),
            both("1"),
        ),
        _swept(
            "glb-omd-K",
            "logistic rewards, d = 2, S = 3, T = 4,000",
            "K",
            (5, 10, 20, 40, 80),
            lambda K: (GLM(2, arms=int(K), theta_norm=3.0), 4000, lines(3.0)),
            both("0"),
        ),
        _swept(
            "glb-omd-kappa",
            "logistic rewards, d = 2, K = 20, T = 4,000, S = 1 to 6",
            "κ",
            lengths,
            lambda S: (GLM(2, theta_norm=S), 4000, lines(S)),
            both("0 in the leading term, 1 in the other"),
            shown=[round(link.kappa(S), 2) for S in lengths],
        ),
    ]


def _hvt_ucb() -> list[Sweep]:
    """Wang et al. (2025), Corollary 1: Õ(dT^(1/(1+ε))), O(1) per round in T."""

    def lines(tail: float, scale: float) -> tuple[Line, ...]:
        told: dict[str, Any] = {"tail": tail, "noise_scale": scale, "theta_bound": 1.0}
        return (Line("Hvt-UCB", "HvtUCB", told), Line("Hvt-UCB, theory", "HvtUCB", told | {"parameters": "theory"}))

    def both(stated: str) -> dict[str, str]:
        return {"Hvt-UCB": f"{stated}, theory's radius", "Hvt-UCB, theory": stated}

    gaussian = partial(Linear, arms=20)
    # E|η|^1.5 of ±(X − 1), X of Pareto's law with index a: ∫ (x − 1)^1.5·a·x^(−a−1) dx = a·B(2.5, a − 1.5)
    index = 1.6
    moment = index * math.gamma(2.5) * math.gamma(index - 1.5) / math.gamma(index + 1.0)
    heavy = partial(Linear, arms=20, noise="symmetric_pareto", tail_index=index)
    return [
        _swept(
            "hvt-ucb-T",
            "linear rewards, N(0, 1) noise, tail ε = 1, d = 2, K = 20",
            "T",
            _T,
            lambda T: (gaussian(2), int(T), lines(1.0, 1.0)),
            both("½"),
        ),
        _swept(
            "hvt-ucb-heavy-T",
            f"linear rewards, ±Pareto noise of index {index:g}, tail ε = ½, d = 2, K = 20",
            "T",
            _T,
            lambda T: (heavy(2), int(T), lines(0.5, moment ** (1 / 1.5))),
            both("⅔"),
        ),
        _swept(
            "hvt-ucb-d",
            "linear rewards, N(0, 1) noise, tail ε = 1, K = 20, T = 4,000",
            "d",
            (2, 4, 8, 16),
            lambda d: (gaussian(int(d)), 4000, lines(1.0, 1.0)),
            both("1"),
        ),
    ]


def _private_glm() -> list[Sweep]:
    """Sarmasarkar (2026), Theorems 5.1 and 6.2, of the paper's algorithms: √T, and ε^(−½) beside a term without ε."""

    def lines(epsilon: float) -> tuple[Line, ...]:
        told = {"theta_bound": 2.0, "budget": Budget(epsilon, 1e-3, unit="round")}
        return (
            Line("one-pass private", "OnePassPrivateGLM", told),
            Line("Private-GLM", "JointDPGLM", told, seeds=5),
            Line("shuffle GLM", "ShuffleGLM", told, seeds=5),
        )

    def all_of(stated: str) -> dict[str, str]:
        others = f"{stated}, the paper's"
        return {"one-pass private": "no theorem", "Private-GLM": others, "shuffle GLM": others}

    world = "logistic rewards, d = 3, S = 2, K = 20, δ = 0.001"
    return [
        _swept(
            "private-glm-epsilon",
            f"{world}, T = 4,000",
            "ε",
            (0.5, 1.0, 2.0, 4.0, 8.0),
            lambda epsilon: (GLM(3, theta_norm=2.0), 4000, lines(epsilon)),
            all_of("between −½ and 0"),
        ),
        _swept(
            "private-glm-T",
            f"{world}, ε = 2",
            "T",
            _T,
            lambda T: (GLM(3, theta_norm=2.0), int(T), lines(2.0)),
            all_of("½"),
        ),
    ]


def _dphdb() -> list[Sweep]:
    """Han et al. (2022), Theorem 4.3, of the paper's own algorithm: O(log²(dT)·log²T/ε²)."""
    environment = PerArm(20, arms=2)

    def lines(epsilon: float) -> tuple[Line, ...]:
        told = {
            "link": "linear",
            "theta_bound": environment.theta_l1_bound,
            "budget": Budget(epsilon, 1e-4, unit="round"),
            "reward_range": environment.reward_range,
            "on_violation": "clip",
            "clip": 1.5 * environment.scale,
        }
        return (Line("DP-HDB", "DPHDB", told),)

    # of log²(dT)·log²T
    bounds = [(math.log(20 * T) * math.log(T)) ** 2 for T in (_T[0], _T[-1])]
    growth = math.log(bounds[1] / bounds[0]) / math.log(_T[-1] / _T[0])
    world = "linear rewards, a sparse parameter per arm, d = 20, K = 2, δ = 0.0001"
    return [
        _swept(
            "dp-hdb-epsilon",
            f"{world}, T = 4,000",
            "ε",
            (0.5, 1.0, 2.0, 4.0, 8.0),
            lambda epsilon: (environment, 4000, lines(epsilon)),
            {"DP-HDB": "−2, the paper's"},
        ),
        _swept(
            "dp-hdb-T",
            f"{world}, ε = 1",
            "T",
            _T,
            lambda T: (environment, int(T), lines(1.0)),
            {"DP-HDB": f"0; {growth:.2f} with its logarithms; the paper's"},
        ),
    ]


def _dp_tofw() -> list[Sweep]:
    """Han et al. (2022), Theorem 3.3, as θ lies inside the set: excess risk Õ(1/n + d/(nε)²)/(γ²μ) for 1 < p ≤ 2.

    Here μ is about 2/d: E⟨x, v⟩² = ‖v‖₂²·E‖x‖₂²/d with ‖x‖₂² ≈ d^(1/3) where ‖x‖₃ = 1, and ‖v‖₂² ≥ d^(−1/3)‖v‖²_1.5.
    """
    rows, dimensions = (500, 1000, 2000, 4000, 8000), (3, 5, 10, 20, 40)
    loss = "linear regression, p = 1.5, (1, 1/n)-DP"
    return [
        Sweep(
            "dp-tofw-n",
            f"{loss}, d = 5",
            "n",
            tuple(map(float, rows)),
            theorems=dict.fromkeys(OPTIMIZERS, "between −2 and −1"),
            cells=tuple(Cell(n, 5, 1.5) for n in rows),
        ),
        Sweep(
            "dp-tofw-d",
            f"{loss}, n = 4,000",
            "d",
            tuple(map(float, dimensions)),
            theorems=dict.fromkeys(OPTIMIZERS, "between 1 and 2 (μ ≈ 2/d)"),
            cells=tuple(Cell(4000, d, 1.5) for d in dimensions),
        ),
    ]


def sweeps() -> list[Sweep]:
    """All of them.

    Examples
    --------
    >>> len(sweeps()), sorted({sweep.axis for sweep in sweeps()})
    (14, ['K', 'T', 'd', 'n', 'ε', 'κ'])
    """
    return [*_glb_omd(), *_hvt_ucb(), *_private_glm(), *_dphdb(), *_dp_tofw()]


def _private_frank_wolfe(cell: Cell, rng: np.random.Generator) -> Any:
    return OnlineFrankWolfe(
        glm("squared", clip=CLIP * cell.row_length),
        LpBall(cell.p, cell.d, RADIUS),
        horizon=cell.T,
        budget=Budget(1.0, 1.0 / cell.T),
        rng=rng,
    )


def _published_frank_wolfe(cell: Cell, rng: np.random.Generator) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)  # the table says so
        return PublishedOnlineFrankWolfe(
            PUBLISHED_LOSS,
            LpBall(cell.p, cell.d, RADIUS),
            horizon=cell.T,
            epsilon=1.0,
            delta=1.0 / cell.T,
            gradient_bound=GRADIENT_BOUND,
            rng=rng,
        )


OPTIMIZERS: dict[str, Callable[[Cell, np.random.Generator], Any]] = {
    "DP-TOFW": _private_frank_wolfe,
    "DP-TOFW as published": _published_frank_wolfe,
}


def shortened(sweep: Sweep) -> Sweep:
    """The quick form: three values, a tenth of the rounds."""
    panels = tuple(replace(panel, rounds=panel.rounds // 10) for panel in sweep.panels[:3])
    cells = tuple(replace(cell, T=cell.T // 10) for cell in sweep.cells[:3])
    values = sweep.values[:3]
    if sweep.axis in ("T", "n"):
        values = tuple(value / 10 for value in values)
    return replace(sweep, title=sweep.title.replace(" = 4,000", " = 400"), values=values, panels=panels, cells=cells)


def listed(values: Sequence[float]) -> str:
    """The values of a grid, with commas."""
    return ", ".join(f"{value:,g}" for value in values)

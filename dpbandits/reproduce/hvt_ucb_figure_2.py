"""Figure 2 of Wang, Zhang, Zhao & Zhou, "Heavy-Tailed Linear Bandits: Huber Regression with One-Pass Update"
(arXiv:2503.00419).

As Figure 1, with N(0, 1) noise; policies are told ε = 1, and here ν = 1.
"""

from __future__ import annotations

from dpbandits.lab.environments import Linear
from dpbandits.reproduce._heavy_lines import heavy_lines
from dpbandits.reproduce.figure import Figure, Panel, Quick

__all__ = ["figure"]


def figure() -> Figure:
    """One panel."""
    environment = Linear(2, arms=50, arm_law="fixed_cube")
    return Figure(
        title="Figure 2 of Wang et al. (2025): Gaussian noise",
        panels=(Panel("N(0, 1)", environment, 18_000, heavy_lines(1.0, 1.0)),),
        note="The paper prints curves: Hvt-UCB, HEAVY-OFUL and OFUL close together, CRTM behind them.",
        quick=Quick(rounds=3000),
    )

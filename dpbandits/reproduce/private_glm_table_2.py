"""Table 2 of Sarmasarkar, "Shuffle and Joint Differential Privacy for Generalized Linear Contextual Bandits"
(arXiv:2602.00417).

Probit rewards, d = 3, K = 20 arms of the unit ball in every round, T = 5000, θ* uniform on the sphere of radius
S ∈ {2, 2.5, 3}, δ = 0.02; cumulative regret, mean of 10 runs.
"""

from __future__ import annotations

from dpbandits.lab.environments import GLM
from dpbandits.reproduce._private_lines import private_lines
from dpbandits.reproduce.figure import Figure, Found, Panel, Quick

__all__ = ["PUBLISHED", "figure"]

# as printed; "ε = …" is Private-GLM
PUBLISHED: dict[float, dict[str, float]] = {
    2.0: {
        "GLM-UCB": 1400.27,
        "GLOC": 384.68,
        "RS-GLinCB": 289.69,
        "ε = 4": 674.17,
        "ε = 6": 516.58,
        "ε = 8": 425.53,
    },
    2.5: {
        "GLM-UCB": 1943.23,
        "GLOC": 631.60,
        "RS-GLinCB": 170.10,
        "ε = 4": 721.26,
        "ε = 6": 546.97,
        "ε = 8": 445.27,
    },
    3.0: {
        "GLM-UCB": 2323.06,
        "GLOC": 1346.59,
        "RS-GLinCB": 200.62,
        "ε = 4": 744.35,
        "ε = 6": 559.04,
        "ε = 8": 452.60,
    },
}

# regret and CPU seconds of the repositories of the policies' authors; GLM-UCB: one run at S = 2.5
_PUBLIC_CODE: dict[float, dict[str, Found]] = {
    2.0: {"uniform": Found(2151), "RS-GLinCB": Found(514), "GLOC": Found(386, 9)},
    2.5: {
        "uniform": Found(2325),
        "RS-GLinCB": Found(123),
        "GLOC": Found(635, 9),
        "GLM-UCB": Found(1964, 84),
    },
    3.0: {"uniform": Found(2415), "RS-GLinCB": Found(144), "GLOC": Found(1337, 9)},
}


def figure() -> Figure:
    """Three panels, one per column of the table."""
    return Figure(
        title="Table 2 of Sarmasarkar (2026): probit rewards, S = 2, 2.5 and 3",
        panels=tuple(
            Panel(
                f"probit, S = {S:g}",
                GLM(3, arms=20, link="probit", theta_norm=S),
                rounds=5000,
                lines=private_lines(
                    "probit",
                    S,
                    (1.0, 4.0, 6.0, 8.0),
                    ("GLM-UCB", "GLOC", "RS-GLinCB"),
                    published={name: Found(regret) for name, regret in printed.items()},
                    public_code=_PUBLIC_CODE[S],
                ),
            )
            for S, printed in PUBLISHED.items()
        ),
        note=(
            "The published regret of a private policy is that of the paper's Private-GLM (joint privacy) at the same ε "
            "and δ = 0.02; the paper has no ε = 1. Slow policies run on fewer seeds. RS-GLinCB explores for long with "
            "the probit's R = S; with R = 1, the bound on rewards, it behaves as published."
        ),
        quick=Quick(rounds=1000),
        axis="epsilon",
        seconds=False,
    )

"""Figure 1 of Zhang, Xu, Zhao & Sugiyama, "Generalized Linear Bandits: Almost Optimal Regret with One-Pass
Update" (2025).

Logistic rewards, d = 2, T = 3000, θ* uniform on the sphere of radius S ∈ {3, 5}; here K = 20 fresh arms of the unit
ball in every round.
"""

from __future__ import annotations

from dpbandits.lab.environments import GLM
from dpbandits.reproduce._glm_lines import glm_lines
from dpbandits.reproduce.figure import Figure, Found, Panel, Quick

__all__ = ["figure"]

# regret and CPU seconds of the repositories of the policies' authors, means over 5 seeds (GLM-UCB, OFUGLB and
# ada-OFU-ECOLog: fewer)
_PUBLIC_CODE = {
    3.0: {
        "uniform": Found(1253),
        "ECOLog": Found(120, 8.9),
        "RS-GLinCB, its authors' scale": Found(134, 1.6),
        "GLOC": Found(872, 1.4),
        "GLM-UCB": Found(275, 1.7),
        "OFUGLB": Found(33, 50),
        "ada-OFU-ECOLog": Found(115, 2.8),
    },
    5.0: {
        "uniform": Found(1438),
        "ECOLog": Found(111),
        "ada-OFU-ECOLog": Found(127),
        "RS-GLinCB, its authors' scale": Found(93),
        "GLOC": Found(1382),
    },
}


def figure() -> Figure:
    """Two panels, S = 3 and S = 5."""
    return Figure(
        title="Figure 1 of Zhang et al. (2025): logistic rewards",
        panels=tuple(
            Panel(
                f"logistic, S = {S:g}",
                GLM(2, arms=20, theta_norm=S),
                rounds=3000,
                lines=glm_lines("logistic", S, public_code=_PUBLIC_CODE[S]),
            )
            for S in (3.0, 5.0)
        ),
        note=(
            "The paper prints curves, no numbers, and has its own radii with λ = d; it does not state K. "
            '"Public code" is what the repositories of the policies\' authors were measured to give on this workload. '
            "OFUGLB and OFULog-r refit everything in every round and run on fewer seeds."
        ),
        quick=Quick(rounds=1000),
    )

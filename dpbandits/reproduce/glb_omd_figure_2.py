"""Figure 2 of Zhang, Xu, Zhao & Sugiyama, "Generalized Linear Bandits: Almost Optimal Regret with One-Pass
Update" (2025).

Poisson rewards, d = 2, T = 3000, θ* uniform on the sphere of radius S ∈ {3, 5}; here K = 20 fresh arms of the unit
ball in every round.
"""

from __future__ import annotations

from dpbandits.lab.environments import GLM
from dpbandits.reproduce._glm_lines import glm_lines
from dpbandits.reproduce.figure import Figure, Found, Panel, Quick

__all__ = ["figure"]

# page 18: the running time of OFUGLB
_PUBLISHED = {3.0: {"OFUGLB": Found(seconds=2783)}}


def figure() -> Figure:
    """Two panels, S = 3 and S = 5."""
    return Figure(
        title="Figure 2 of Zhang et al. (2025): Poisson rewards",
        panels=tuple(
            Panel(
                f"Poisson, S = {S:g}",
                GLM(2, arms=20, link="poisson", theta_norm=S),
                rounds=3000,
                lines=glm_lines("poisson", S, published=_PUBLISHED.get(S)),
            )
            for S in (3.0, 5.0)
        ),
        note=(
            "The paper prints curves, and states that GLB-OMD takes less than 1 s. It tells GLM-UCB and RS-GLinCB that "
            "rewards are at most 100; here GLM-UCB and GLOC take the root of the largest slope, e^(S/2), for the size "
            "of the noise. OFUGLB refits everything in every round and runs on fewer seeds."
        ),
        quick=Quick(rounds=1000),
    )

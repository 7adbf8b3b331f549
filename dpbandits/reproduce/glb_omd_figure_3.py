"""Figure 3 of Zhang, Xu, Zhao & Sugiyama, "Generalized Linear Bandits: Almost Optimal Regret with One-Pass
Update" (2025).

(a), (b): logistic rewards with S = 7 and S = 9. (c): the time of a run against S, with Poisson rewards.
"""

from __future__ import annotations

from dpbandits.lab.environments import GLM
from dpbandits.reproduce._glm_lines import glm_lines
from dpbandits.reproduce.figure import Figure, Found, Panel, Quick

__all__ = ["figure"]

_PUBLISHED = {9.0: {"OFUGLB": Found(seconds=7568)}}


def figure() -> Figure:
    """Four panels: logistic rewards with S = 7 and 9, Poisson rewards with S = 7 and 9."""
    cases = [("logistic", 7.0), ("logistic", 9.0), ("poisson", 7.0), ("poisson", 9.0)]
    return Figure(
        title="Figure 3 of Zhang et al. (2025): larger S",
        panels=tuple(
            Panel(
                f"{link.capitalize() if link == 'poisson' else link}, S = {S:g}",
                GLM(2, arms=20, link=link, theta_norm=S),
                rounds=3000,
                lines=glm_lines(link, S, published=_PUBLISHED.get(S) if link == "poisson" else None),
            )
            for link, S in cases
        ),
        note=(
            "The paper prints curves, and the running time of OFUGLB on Poisson rewards: 2783 s at S = 3 and 7568 s at "
            "S = 9, where GLB-OMD stays under 1 s. OFUGLB and OFULog-r run on fewer seeds here."
        ),
        quick=Quick(rounds=600, without=("OFULog-r",)),
    )

"""Figure 1 of Wang, Zhang, Zhao & Zhou, "Heavy-Tailed Linear Bandits: Huber Regression with One-Pass Update"
(arXiv:2503.00419).

Linear rewards, d = 2, 50 fixed arms, T = 18,000, Student t noise with 2.1 degrees of freedom; policies are told
ε = 0.99 and ν = 1.31.
"""

from __future__ import annotations

from dpbandits.lab.environments import Linear
from dpbandits.reproduce._heavy_lines import heavy_lines
from dpbandits.reproduce.figure import Figure, Found, Panel, Quick

__all__ = ["figure"]

# the repositories of the policies' authors; OFUL with R = 1, HEAVY-OFUL with its loops over rounds replaced by numpy
_PUBLIC_CODE = {"uniform": Found(15_533), "OFUL": Found(141, 0.5), "HEAVY-OFUL": Found(649, 40)}


def figure() -> Figure:
    """One panel."""
    environment = Linear(2, arms=50, noise="student_t", df=2.1, arm_law="fixed_cube")
    return Figure(
        title="Figure 1 of Wang et al. (2025): Student t noise",
        panels=(Panel("Student t, df = 2.1", environment, 18_000, heavy_lines(0.99, 1.31, public_code=_PUBLIC_CODE)),),
        note=(
            "The paper prints curves, and states that Hvt-UCB is more than 800 times faster than HEAVY-OFUL. That is a "
            "ratio of implementations: here HEAVY-OFUL refits by Newton's method from its last estimate. Its arms "
            "fill the square; here the square lies inside the unit circle."
        ),
        quick=Quick(rounds=3000),
    )

"""Figure 5.1 of Han, Liang, Liang, Wang, Yao & Zhang, "On private online convex optimization: optimal algorithms in
ℓ_p-geometry and high dimensional contextual bandits".

Linear rewards with a parameter per arm, T = 10,000, d = 50, K = 2, ε = 1. The paper does not state the law of contexts
and parameters, nor δ; here contexts are uniform in [−1, 1]^50, each θ_k has 5 entries of ± 1/5, the noise is
N(0, 0.1²), and δ = 1/T.
"""

from __future__ import annotations

from accounting import Budget
from dpbandits.lab.environments import PerArm
from dpbandits.reproduce.figure import Claim, Figure, Line, Panel, Quick

__all__ = ["figure_5_1"]


def figure_5_1() -> Figure:
    """One panel."""
    rounds, environment = 10_000, PerArm(50, arms=2)
    budget = Budget(1.0, 1.0 / rounds, unit="round")
    private = {"budget": budget, "reward_range": environment.reward_range, "on_violation": "clip"}
    # DP-HDB takes contexts and a bound on ‖θ_k‖₁; the others take block vectors and a bound on ‖(θ_1, θ_2)‖₂
    own = private | {"link": "linear", "theta_bound": environment.theta_l1_bound}
    # Algorithm 3 to the letter, whose claim of privacy is not proved; t₀ of Theorem 4.2 without its constant
    printed = own | {"parameters": "published"}
    # symmetric noise of known scale: gradients clipped there (see DPHDB's ``clip``)
    own |= {"clip": 1.5 * environment.scale}
    shared = {"theta_bound": environment.theta_bound}
    lines = (
        Line("uniform", "Uniform"),
        Line("OFUL", "OFUL", shared | {"noise_bound": environment.scale}),
        Line("DP-HDB", "DPHDB", own),
        Line("DP-HDB, a step per round", "DPHDB", own | {"release": "every_round"}),
        Line("DP-HDB as published", "DPHDB", printed),
        Line("DP-LinUCB", "DPLinUCB", private | shared),
    )
    return Figure(
        title="Figure 5.1 of Han et al. (2022): a sparse parameter per arm",
        panels=(Panel("linear, d = 50, K = 2", environment, rounds, lines),),
        note=(
            "The paper prints curves: DP-HDB far below DP-LinUCB (Shariff & Sheffet 2018). Its DP-HDB takes a step in "
            "every round, as DP-HDB as published has: its algorithm to the letter, whose claim of privacy is not "
            "proved. DP-HDB is told the scale of the noise, as is OFUL, which is not private. "
            "The others' parameter has K·d = 100 entries, of which ten are not 0."
        ),
        quick=Quick(rounds=5000),
        claims=(
            Claim(
                "DP-HDB is far below DP-LinUCB (here: at most half)", "DP-HDB as published", "DP-LinUCB", at_most=0.5
            ),
            Claim(
                "the same, with a step per round that is private", "DP-HDB, a step per round", "DP-LinUCB", at_most=0.5
            ),
            Claim("the same, with our steps on a schedule", "DP-HDB", "DP-LinUCB", at_most=0.5),
        ),
        rival="DP-HDB",
    )

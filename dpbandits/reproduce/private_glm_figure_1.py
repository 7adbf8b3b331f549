"""Figure 1 of Sarmasarkar, "Shuffle and Joint Differential Privacy for Generalized Linear Contextual Bandits"
(arXiv:2602.00417).

(a) logistic rewards, S = 3.5, T = 15,000; (b) probit rewards, S = 3, T = 5000; both with d = 5, K = 20 arms of the unit
ball in every round, ε ∈ {2, 4, 8} and δ = 0.02. ε = 1 is added.
"""

from __future__ import annotations

from dpbandits.lab.environments import GLM
from dpbandits.reproduce._private_lines import private_lines
from dpbandits.reproduce.figure import Figure, Found, Panel, Quick

__all__ = ["figure"]

# regret and CPU seconds of the repositories of the policies' authors
_PUBLIC_CODE = {
    "uniform": Found(6061),
    "RS-GLinCB": Found(442, 8.4),
    "ECOLog": Found(570, 31),
    "GLOC": Found(1445, 1.9),
}


def figure() -> Figure:
    """Two panels: logistic and probit."""
    epsilons = (1.0, 2.0, 4.0, 8.0)
    logistic = private_lines("logistic", 3.5, epsilons, ("ECOLog", "GLOC", "RS-GLinCB"), public_code=_PUBLIC_CODE)
    probit = private_lines("probit", 3.0, epsilons, ("GLM-UCB", "GLOC", "RS-GLinCB"))
    return Figure(
        title="Figure 1 of Sarmasarkar (2026): logistic and probit rewards, d = 5",
        panels=(
            Panel("logistic, S = 3.5", GLM(5, arms=20, theta_norm=3.5), 15_000, logistic),
            Panel("probit, S = 3", GLM(5, arms=20, link="probit", theta_norm=3.0), 5000, probit),
        ),
        note=(
            'The paper prints curves. "Public code" is what the repositories of the policies\' authors were measured '
            "to give on this workload. Slow policies run on fewer seeds."
        ),
        quick=Quick(rounds=1000),
        axis="epsilon",
        seconds=False,
    )

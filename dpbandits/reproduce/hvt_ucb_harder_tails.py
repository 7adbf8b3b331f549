"""Figures 1 and 2 of Wang, Zhang, Zhao & Zhou (arXiv:2503.00419), with noise that has no variance or is not symmetric.

Three laws, and for the last one two models:

* Student t with 1.5 degrees of freedom;
* ±(X − 1), where X has the Pareto law with α = 1.2, and either sign is as likely;
* X − E X, one-sided: most rewards lie 4 below their mean, and rare large ones make up for it;
* the same, and policies see (x, 1)/√2 in place of x.

Why the last panel. A Huber regression estimates where the bulk of the rewards lies, which under skewed noise is not the
mean but the mean less some b that is the same for all arms. Without a constant feature the fit must put b into the
slopes: whatever is played looks bad. With one, the constant takes b up, as long as S leaves room for it, and the
slopes, which alone decide what is best, are unharmed. True moments are no remedy: for α = 1.2 they are finite below
order 1.2 only, at order 1.1 ν is 10 already, rewards are clipped too late to be of use, and the guarantee, of the order
of νdT^(1/1.1), exceeds 2T, the largest regret there is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from dpbandits.lab.environments import Linear
from dpbandits.lab.environments.base import Round
from dpbandits.reproduce._heavy_lines import heavy_lines
from dpbandits.reproduce.figure import Figure, Line, Panel, Quick

__all__ = ["WithConstant", "figure"]

_ALPHA = 1.2


class WithConstant:
    """The rounds of a linear environment with a constant feature: (x, 1)/√2 in place of x.

    Parameters
    ----------
    environment : Linear
        What is played.
    room : float
        How far the constant may go: S² = 2(‖θ*‖² + room²).

    Examples
    --------
    >>> environment = WithConstant(Linear(2, arms=3), room=5.0)
    >>> next(environment.episode(np.random.default_rng(0))).arms[:, 2].round(3).tolist()
    [0.707, 0.707, 0.707]
    """

    def __init__(self, environment: Linear, room: float) -> None:
        self._environment = environment
        self.name = f"{environment.name}, with a constant"
        self.dim = environment.dim + 1
        self.link = environment.link
        self.theta_bound = math.sqrt(2.0 * (environment.theta_bound**2 + room**2))
        self.reward_range = environment.reward_range
        self.rounds = environment.rounds

    def episode(self, rng: np.random.Generator) -> Iterator[Round]:
        """The same arms, rewards and means, in one more dimension."""
        for now in self._environment.episode(rng):
            arms = np.column_stack([now.arms, np.ones(len(now.arms))]) / math.sqrt(2.0)
            yield Round(arms, now.rewards, now.means)


def figure() -> Figure:
    """Four panels."""
    t = Linear(2, arms=50, noise="student_t", df=1.5, arm_law="fixed_cube")
    symmetric = Linear(2, arms=50, noise="symmetric_pareto", tail_index=_ALPHA, arm_law="fixed_cube")
    skewed = Linear(2, arms=50, noise="pareto", tail_index=_ALPHA, arm_law="fixed_cube")
    constant = WithConstant(skewed, room=5.5)
    # ν of the moment of order 1.1, half way to where moments end
    true = {"tail": skewed.noise_tail, "noise_scale": skewed.noise_scale}
    lines = heavy_lines(1.0, 1.0, slow_seeds=2)
    with_constant = heavy_lines(1.0, 1.0, theta_bound=constant.theta_bound, slow_seeds=2)
    moments = Line("Hvt-UCB, true moments", "HvtUCB", true, drawn=False)
    return Figure(
        title="Harder tails than in Figures 1 and 2 of Wang et al. (2025)",
        panels=(
            Panel("Student t, df = 1.5", t, 18_000, lines),
            Panel("±Pareto, α = 1.2", symmetric, 18_000, lines),
            Panel("Pareto, α = 1.2, one-sided", skewed, 18_000, (*lines, moments)),
            Panel("the same, with a constant", constant, 18_000, with_constant),
        ),
        note=(
            "Not in the paper. The robust policies are not told the law: ε = 1, ν = 1. Under one-sided noise a clipped "
            "regression sees the bulk of the rewards, not their mean, and without a constant feature no policy learns; "
            "with one, (x, 1)/√2, the constant takes the difference up. HEAVY-OFUL, TOFU and AdaOFUL run on fewer "
            "seeds."
        ),
        quick=Quick(rounds=3000, without=("HEAVY-OFUL", "TOFU", "AdaOFUL")),
        seconds=False,
    )

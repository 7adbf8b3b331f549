"""A world that moves: the parameter of a generalized linear bandit changes once, at a time that nobody is told.

Law. Until round τ rewards follow θ₁, from then on θ₂. τ is uniform in the middle half of the rounds, or given.

==========  ====================================
change      θ₂
==========  ====================================
flip        −θ₁: what was best is now worst
fresh       another uniform direction
none        θ₁: the same world without a change
==========  ====================================
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from accounting.checks import integer, positive
from dpbandits.lab.environments.arms import ArmLaw, arm_blocks, checked_arm_law, random_parameter
from dpbandits.lab.environments.base import Named, Round
from dpbandits.lab.environments.glm import REWARDS, checked_rewards
from dpkit.models.links import get_link

__all__ = ["Drifting"]


class Drifting(Named):
    """:class:`~dpbandits.lab.environments.GLM` with a change of θ*; an episode has ``rounds`` rounds.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    change : {"flip", "fresh", "none"}
        See the module. The same seed has the same arms, θ₁, τ and luck for each.
    rounds : int
        T, at least 4.
    at : int, optional
        τ, the first round (from 0) that follows θ₂, in [0, T]. By default it is drawn from the seed, uniformly among
        T/4, …, 3T/4.
    arms : int
        K.
    link : {"logistic", "probit", "linear", "poisson"}
        μ; rewards as in :class:`~dpbandits.lab.environments.GLM`.
    theta_norm : float
        S = ‖θ₁‖ = ‖θ₂‖.
    arm_law : str
        See :mod:`dpbandits.lab.environments.arms`.

    Examples
    --------
    >>> import numpy as np
    >>> before, after = list(Drifting(dim=2, rounds=8, at=4).episode(np.random.default_rng(0)))[3:5]
    >>> fixed = Drifting(dim=2, rounds=8, at=4, change="none").episode(np.random.default_rng(0))
    >>> same = list(fixed)[3:5]
    >>> np.allclose(before.means, same[0].means), np.allclose(after.means, 1 - same[1].means)
    (True, True)
    """

    def __init__(
        self,
        dim: int = 5,
        *,
        change: Literal["flip", "fresh", "none"] = "flip",
        rounds: int = 20_000,
        at: int | None = None,
        arms: int = 20,
        link: str = "logistic",
        theta_norm: float = 3.0,
        arm_law: ArmLaw = "ball",
    ) -> None:
        self.dim = integer("dim", dim, at_least=1)
        if change not in ("flip", "fresh", "none"):
            raise ValueError(f"change must be 'flip', 'fresh' or 'none', got change={change!r}")
        self.change = change
        self.rounds = integer("rounds", rounds, at_least=4)
        self.at = None if at is None else integer("at", at, at_least=0)
        if self.at is not None and self.at > self.rounds:
            raise ValueError(f"at must be at most rounds={self.rounds}, got at={at!r}")
        self.arms = integer("arms", arms, at_least=1)
        self.link = checked_rewards(link)
        self.theta_norm = self.theta_bound = positive("theta_norm", theta_norm)
        self.arm_law = checked_arm_law(arm_law, self.arms, self.dim)
        self.reward_range = REWARDS[link].range(self.theta_norm)
        self.noise_scale = REWARDS[link].deviation(self.theta_norm)
        self.name = f"{link} bandit, change {change!r} (d = {self.dim}, K = {self.arms}, T = {self.rounds})"

    def episode(self, rng: np.random.Generator) -> Iterator[Round]:
        """``rounds`` rounds."""
        theta, other = (random_parameter(rng, self.dim, self.theta_norm) for _ in range(2))
        quarter = self.rounds // 4
        drawn = int(rng.integers(quarter, self.rounds - quarter, endpoint=True))
        at = drawn if self.at is None else self.at
        second = {"flip": -theta, "fresh": other, "none": theta}[self.change]
        mean, draw = get_link(self.link).mean, REWARDS[self.link].draw
        # the luck is apart from the arms, so that it is the same whatever the rewards' law takes of it
        luck = rng.spawn(1)[0]
        done = 0
        for block in arm_blocks(self.arm_law, rng, self.arms, self.dim):
            arms = block[: self.rounds - done]
            late = np.arange(done, done + len(arms)) >= at
            means = mean(np.where(late[:, None], arms @ second, arms @ theta))
            yield from map(Round, arms, draw(luck, means), means)
            done += len(arms)
            if done == self.rounds:
                return

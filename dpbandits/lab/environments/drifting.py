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

from accounting.checks import choice, integer
from dpbandits.lab.environments.arms import ArmLaw, arm_blocks, random_parameter
from dpbandits.lab.environments.base import Named, Round
from dpbandits.lab.environments.glm import GLM, rewards_of
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

    rounds: int

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
        still = GLM(dim, arms=arms, link=link, theta_norm=theta_norm, arm_law=arm_law)
        self.change = choice("change", change, "flip", "fresh", "none")
        T = integer("rounds", rounds, at_least=4)
        self.at = None if at is None else integer("at", at, at_least=0)
        if self.at is not None and self.at > T:
            raise ValueError(f"at must be at most rounds={T}, got at={at!r}")
        self.arms, self.theta_norm, self.arm_law = still.arms, still.theta_norm, still.arm_law
        self.noise_scale = still.noise_scale
        name = f"{link} bandit, change {change!r} (d = {still.dim}, K = {still.arms}, T = {T})"
        super().__init__(name, still.dim, link, still.theta_bound, still.reward_range, T)

    def episode(self, rng: np.random.Generator) -> Iterator[Round]:
        """``rounds`` rounds."""
        T = self.rounds
        theta, other = (random_parameter(rng, self.dim, self.theta_norm) for _ in range(2))
        drawn = int(rng.integers(T // 4, T - T // 4, endpoint=True))
        at = drawn if self.at is None else self.at
        second = {"flip": -theta, "fresh": other, "none": theta}[self.change]
        mean, draw = get_link(self.link).mean, rewards_of(self.link).draw
        # the luck is apart from the arms, so that it is the same whatever the rewards' law takes of it
        luck = rng.spawn(1)[0]
        done = 0
        for block in arm_blocks(self.arm_law, rng, self.arms, self.dim):
            arms = block[: T - done]
            late = np.arange(done, done + len(arms)) >= at
            means = mean(np.where(late[:, None], arms @ second, arms @ theta))
            yield from map(Round, arms, draw(luck, means), means)
            done += len(arms)
            if done == T:
                return

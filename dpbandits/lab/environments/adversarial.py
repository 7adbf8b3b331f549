"""Arm sets that an adversary chooses: without knowledge of what the policy plays, but with knowledge of θ*.

==============  ======================================================================================
name            arm sets
==============  ======================================================================================
hidden          all arms are orthogonal to a direction u in which half of ‖θ*‖² lies, but from round
                ``reveal`` on one of them is u, at a random place. It is then nearly always the best, and
                nothing that was learned before says so: who no longer explores never finds out.
alternating     the arms of round t are multiples of the (t mod d)-th vector of an orthonormal basis,
                evenly spaced in [−1, 1]. Every round tells about one direction only, so confidence
                widths shrink d times more slowly than where arms may be combined.
a function      ``arm_sets(t, rng)`` gives the arms of round t = 0, 1, …, of shape (K, d); K may change.
==============  ======================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import chain, count
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from accounting.arrays import Array
from accounting.checks import integer, positive
from dpbandits.lab.environments.arms import arm_blocks, random_parameter
from dpbandits.lab.environments.base import Named, Round
from dpbandits.lab.environments.glm import REWARDS, checked_rewards
from dpkit.models.links import get_link

__all__ = ["Adversarial"]

_Choose = Callable[[int, np.random.Generator], ArrayLike]
ArmSets = Literal["hidden", "alternating"] | _Choose


class Adversarial(Named):
    """A generalized linear bandit whose arms come from an oblivious adversary.

    Parameters
    ----------
    dim : int
        Dimension d of an arm; at least 2 for ``"hidden"``.
    arm_sets : {"hidden", "alternating"} or callable
        See the module. A function draws what is random in it from the generator that it is given; for processes
        that are not forked it must be picklable.
    arms : int
        K, for the two named ones.
    link : {"logistic", "probit", "linear", "poisson"}
        μ; rewards as in :class:`dpbandits.lab.environments.GLM`.
    theta_norm : float
        S = ‖θ*‖; the direction is uniform.
    reveal : int
        The first round with the hidden arm, for ``"hidden"``.

    Raises
    ------
    ValueError
        For a parameter out of range, and in an episode for arms that are not of shape (K, d).

    Examples
    --------
    >>> import numpy as np
    >>> def growing(t, rng):
    ...     return np.eye(3)[: 1 + t % 3]
    >>> rounds = Adversarial(dim=3, arm_sets=growing).episode(np.random.default_rng(0))
    >>> [len(next(rounds).arms) for _ in range(4)]
    [1, 2, 3, 1]
    """

    def __init__(
        self,
        dim: int = 5,
        *,
        arm_sets: ArmSets = "hidden",
        arms: int = 20,
        link: str = "logistic",
        theta_norm: float = 3.0,
        reveal: int = 1000,
    ) -> None:
        self.dim = integer("dim", dim, at_least=2 if arm_sets == "hidden" else 1)
        if arm_sets not in ("hidden", "alternating") and not callable(arm_sets):
            raise ValueError(f"arm_sets must be 'hidden', 'alternating' or a function, got arm_sets={arm_sets!r}")
        self.arm_sets = arm_sets
        self.arms = integer("arms", arms, at_least=2)
        self.link = checked_rewards(link)
        self.theta_norm = self.theta_bound = positive("theta_norm", theta_norm)
        self.reveal = integer("reveal", reveal, at_least=0)
        self.reward_range = REWARDS[link].range(self.theta_norm)
        self.noise_scale = REWARDS[link].deviation(self.theta_norm)
        self.rounds = None
        title = arm_sets if isinstance(arm_sets, str) else getattr(arm_sets, "__name__", "given")
        self.name = f"{link} bandit, {title} arm sets (d = {self.dim}, S = {self.theta_norm:g})"

    def episode(self, rng: np.random.Generator) -> Iterator[Round]:
        """Rounds without end."""
        theta = random_parameter(rng, self.dim, self.theta_norm)
        mean, draw = get_link(self.link).mean, REWARDS[self.link].draw
        # rewards have luck of their own, whatever the adversary draws
        luck = rng.spawn(1)[0]
        for arms in self._arms(rng, theta):
            means = mean(arms @ theta)
            yield Round(arms, draw(luck, means[None])[0], means)

    def _arms(self, rng: np.random.Generator, theta: Array) -> Iterator[Array]:
        if self.arm_sets == "hidden":
            return self._hidden(rng, theta)
        if self.arm_sets == "alternating":
            return self._alternating(rng)
        return self._given(rng, self.arm_sets)

    def _hidden(self, rng: np.random.Generator, theta: Array) -> Iterator[Array]:
        # u lies at 45° to θ*
        along = theta / np.linalg.norm(theta)
        across = random_parameter(rng, self.dim, 1.0)
        across -= (across @ along) * along
        u = math.sqrt(0.5) * (along + across / np.linalg.norm(across))
        blocks = arm_blocks("ball", rng, self.arms, self.dim)
        for t, arms in enumerate(chain.from_iterable(blocks)):
            arms = arms - np.outer(arms @ u, u)
            if t >= self.reveal:
                arms[rng.integers(self.arms)] = (1 - 1e-12) * u
            yield arms

    def _alternating(self, rng: np.random.Generator) -> Iterator[Array]:
        basis = np.linalg.qr(rng.standard_normal((self.dim, self.dim)))[0].T
        steps = np.linspace(-1.0, 1.0, self.arms)[:, None] * (1 - 1e-12)
        while True:
            for direction in basis:
                yield steps * direction

    def _given(self, rng: np.random.Generator, choose: _Choose) -> Iterator[Array]:
        for t in count():
            arms = np.asarray(choose(t, rng), dtype=np.float64)
            if arms.ndim != 2 or arms.shape[1] != self.dim or not len(arms):
                raise ValueError(
                    f"arm_sets must give arms of shape (K, {self.dim}) with K >= 1, got shape {arms.shape} in round {t}"
                )
            yield arms

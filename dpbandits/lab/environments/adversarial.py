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
from typing import Literal, cast

import numpy as np
from numpy.typing import ArrayLike

from accounting.arrays import Array
from accounting.checks import integer, positive
from dpbandits.lab.environments.arms import INSIDE, arm_blocks, random_parameter
from dpbandits.lab.environments.base import Named, Round
from dpbandits.lab.environments.glm import rewards_of
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
        if arm_sets not in ("hidden", "alternating") and not callable(arm_sets):
            raise ValueError(f"arm_sets must be 'hidden', 'alternating' or a function, got arm_sets={arm_sets!r}")
        self.arm_sets = arm_sets
        self.arms = integer("arms", arms, at_least=2)
        law = rewards_of(link)
        S = self.theta_norm = positive("theta_norm", theta_norm)
        self.reveal = integer("reveal", reveal, at_least=0)
        self.noise_scale = law.deviation(S)
        dim = integer("dim", dim, at_least=2 if arm_sets == "hidden" else 1)
        title = arm_sets if isinstance(arm_sets, str) else getattr(arm_sets, "__name__", "given")
        super().__init__(f"{link} bandit, {title} arm sets (d = {dim}, S = {S:g})", dim, link, S, law.range(S))

    def episode(self, rng: np.random.Generator) -> Iterator[Round]:
        """Rounds without end."""
        theta = random_parameter(rng, self.dim, self.theta_norm)
        mean, draw = get_link(self.link).mean, rewards_of(self.link).draw
        # rewards have luck of their own, whatever the adversary draws
        luck = rng.spawn(1)[0]
        make = self._given if callable(self.arm_sets) else getattr(self, f"_{self.arm_sets}")
        for arms in make(rng, theta):
            means = mean(arms @ theta)
            yield Round(arms, draw(luck, means[None])[0], means)

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
                arms[rng.integers(self.arms)] = INSIDE * u
            yield arms

    def _alternating(self, rng: np.random.Generator, theta: Array) -> Iterator[Array]:
        basis = np.linalg.qr(rng.standard_normal((self.dim, self.dim)))[0].T
        steps = np.linspace(-1.0, 1.0, self.arms)[:, None] * INSIDE
        while True:
            for direction in basis:
                yield steps * direction

    def _given(self, rng: np.random.Generator, theta: Array) -> Iterator[Array]:
        choose = cast("_Choose", self.arm_sets)
        for t in count():
            arms = np.asarray(choose(t, rng), dtype=np.float64)
            if arms.ndim != 2 or arms.shape[1] != self.dim or not len(arms):
                raise ValueError(
                    f"arm_sets must give arms of shape (K, {self.dim}) with K >= 1, got shape {arms.shape} in round {t}"
                )
            yield arms

"""The two design matrices of JointDPGLM: V of the rounds that explore and H of all others, and the rows of either set.

Both are released by one continual mechanism over the batches: a record is x xᵀ in the one or w·x xᵀ in the other, and
(svec V, svec(H)/W) has the sensitivity √2 wherever a record is; :mod:`~dpbandits.private.joint_dp_glm` has the proof.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from accounting import Adjacency, Budget, Gaussian, Release, TreeAggregation
from accounting.amplification.participation import group
from accounting.arrays import Array
from accounting.checks import integer
from dpkit.continual import BinaryTree, BufferedToeplitz
from dpkit.geometry import outer_product_sensitivity, smat, svec
from dpkit.models.likelihood import Rows
from dpkit.models.links import Link
from dpkit.moments.pairs import whole_digits
from dpkit.states import entries

__all__ = ["Designs", "Levels", "Price"]


@dataclass(frozen=True)
class Price:
    """What streams, optimizers and the level of rewards cost together, at one noise multiplier z.

    Attributes
    ----------
    mechanism : {"buffered", "tree"}
    share : float
        Of μ² that is given to the streams; the rest is the optimizers'. Both but for ``level``.
    steps : int
        Releases.
    adjacency : str
    m : int
        Records of one person at most.
    level : float
        The share of the level of rewards, 0 where none is released.
    """

    mechanism: Literal["buffered", "tree"]
    share: float
    steps: int
    adjacency: Adjacency
    m: int
    level: float = 0.0

    def streams(self, z: float) -> float:
        """The noise multiplier of V and H together."""
        return z / math.sqrt((1.0 - self.level) * self.share)

    def calls(self, z: float) -> float:
        """That of all calls of either optimizer together."""
        return z / math.sqrt((1.0 - self.level) * (1.0 - self.share))

    def numbers(self, z: float) -> float:
        """That of the level of rewards."""
        return z / math.sqrt(self.level)

    def __call__(self, z: float) -> Release:
        """Of V and H together, of all calls of the optimizer that costs most, and of the level."""
        optimizers = group(Gaussian(self.calls(z), adjacency=self.adjacency), self.m)
        if self.level:
            optimizers = optimizers + group(Gaussian(self.numbers(z), adjacency=self.adjacency), self.m)
        if self.mechanism == "tree":
            tree = TreeAggregation(self.streams(z), self.steps, adjacency=self.adjacency)
            return (tree if self.m == 1 else group(tree, self.m)) + optimizers
        return Gaussian(self.streams(z), adjacency=self.adjacency) + optimizers


class Designs:
    """The secret half: V and H of the open batch and of all batches, and all rows (x, r) of either set.

    Parameters
    ----------
    dim : int
        d.
    W : float
        The largest weight of a record in H.
    price : Price
    z : float
        Its noise multiplier.
    horizon : int
        T.
    rng : numpy.random.Generator

    Attributes
    ----------
    explored, others : Rows
        (x, r) of the exploration set, and of all other rounds.
    """

    KEPT = ("sums", "batch_V", "batch_H", "explored", "others")

    def __init__(self, dim: int, W: float, price: Price, z: float, *, horizon: int, rng: np.random.Generator) -> None:
        self.W = W
        digits, slack = whole_digits(horizon, dim * (dim + 1))
        self._unit = 2.0**digits
        kind = BufferedToeplitz if price.mechanism == "buffered" else BinaryTree
        self.sums = kind(
            horizon=price.steps,
            shape=dim * (dim + 1),
            sensitivity=outer_product_sensitivity(1.0, price.adjacency) + slack,
            noise_multiplier=price.streams(z),
            adjacency=price.adjacency,
            participations=price.m,
            rng=rng,
        )
        # of the open batch: whole numbers, in units of 2^−digits (H of its largest weight W)
        self.batch_V, self.batch_H = np.zeros((dim, dim)), np.zeros((dim, dim))
        self.explored, self.others = Rows(dim + 1, bound=1.0), Rows(dim + 1, bound=1.0)

    def noise(self) -> float:
        """The standard deviation of an entry of V, in the release where it is largest."""
        return max(map(self.sums.noise_std, range(1, self.sums.horizon + 1)))

    def add(self, explores: bool, x: Array, w: float, reward: float) -> None:
        """Take in one record: x xᵀ in V, or w·x xᵀ, 0 ≤ w ≤ W, in H."""
        if explores:
            self.explored.append([*x, reward])
            self.batch_V += np.rint((self._unit * x)[:, None] * x)
        else:
            self.others.append([*x, reward])
            self.batch_H += np.rint((self._unit * w / self.W * x)[:, None] * x)

    def release(self) -> tuple[Array, Array]:
        """Close the batch: V and H with noise."""
        batch = np.concatenate([svec(self.batch_V), svec(self.batch_H)]) / self._unit
        self.batch_V, self.batch_H = np.zeros_like(self.batch_V), np.zeros_like(self.batch_H)
        V, H = self.sums.add(batch).reshape(2, -1)
        return smat(V), smat(H * self.W)

    def kept(self) -> dict[str, Any]:
        """For a state file."""
        return entries.kept(self, self.KEPT)

    def resume(self, saved: Any) -> None:
        """The inverse of :meth:`kept`, checked."""
        entries.resume(self, self.KEPT, saved)


@dataclass(frozen=True)
class Levels:
    """λ of V and of H, the threshold 1/(γ²κR²) of criterion I, γ√κ, β, and the default numbers of calls."""

    shift_v: float
    shift_h: float
    threshold: float
    gamma: float
    beta: float
    calls: tuple[int, int]

    def caps(self, exploration_calls: int | None, policy_calls: int | None) -> tuple[int, int]:
        """The most calls for θ_o and for θ_τ: as stated, or by default."""
        most_o, most = self.calls
        return (
            integer("exploration_calls", most_o if exploration_calls is None else exploration_calls, at_least=1),
            integer("policy_calls", most if policy_calls is None else policy_calls, at_least=1),
        )

    @classmethod
    def practical(cls, ridge: float, noise: float, W: float, exploration: float, d: int, T: int) -> Levels:
        """λ from the noise of an entry of V; half-widths 2 at the threshold."""
        # E‖N‖ ≤ σ√(2d) for the noise N of V
        shift = ridge + noise * math.sqrt(2 * d)
        threshold = 0.5 / shift
        calls = 4, math.ceil(2 * math.log2(T + 1))
        return cls(shift, W * shift, threshold, 2.0 / math.sqrt(threshold), exploration, calls)

    @classmethod
    def theory(cls, link: Link, S: float, R: float, budget: Budget, zeta: float, d: int, T: int) -> Levels:
        """Those of section J.1 with C = 1; R bounds rewards and self-concordance together; calls by Lemma P.4."""
        eps, R = budget.epsilon, max(1.0, link.self_concordance(S), R)
        kappa, kappa_star = link.kappa(S), link.kappa_star(S)
        in_T, in_delta = math.log(T / zeta), math.log(1.0 / budget.delta)
        size, joint = math.sqrt(d * in_T), d**0.25 * (in_T * in_delta) ** 0.5 * (d + in_T) ** 0.25
        ridge = 1.25 * d * in_T
        ridge += 100 * math.sqrt(d) * in_delta * math.log(T + 1) * (math.sqrt(in_T) + math.sqrt(d)) / (eps * kappa_star)
        beta = R * size + R * S * joint / math.sqrt(eps * min(kappa_star, 1.0))
        gamma = R**2 * S * (size + joint / math.sqrt(eps * kappa_star))
        gamma += R**4 * S**4 * d * math.sqrt(kappa) * in_T * math.sqrt(in_delta) / eps
        calls = math.ceil(d * math.log1p(T / (d * ridge)) / math.log(11 / 8))
        return cls(ridge, ridge, 1.0 / (gamma**2 * kappa * R**2), gamma * math.sqrt(kappa), beta, (calls, calls))

"""What a slate tells, as one record: the sum of the secant records of its positions, clipped as one vector.

Position j holds the arm x_j, v = A x_j. As in :mod:`~dpbandits.private.parts.records` it has s and ψ at the θ that is
in force, and here q_j, the known chance that it is looked at (1 in a cascade): as E r_j = q_jμ(xᵀθ), its pair is

    (q_jψs·v vᵀ, ψ(r_j − q_jc₀)·v),   and the round's the sum of ν_j times these over the positions that were seen.

The weights ν_j may depend on the slate, and on what was released, but not on its clicks. Then E[Σν_j(pair)] is
Σν_jP(j is seen)·E[pair | it is seen] in a cascade, too, where a position is seen because those before it were not
clicked: the sums remain those of a weighted regression. Weights that looked at the clicks, such as one over the number
of positions that were seen, would favour rounds that end early, and with them clicks.

ν_j = τp_j, where p_j is what is publicly known of the chance that j is seen: q_j, or in a cascade (1 − c₀)^{j−1} for
clicks at the base rate. That is the best direction where arms are orthogonal, as the signal Σν_jp_j is then bought by
√Σν_j². And τ ≤ 1 is the largest number for which the sum is of size at most 1 (:class:`dpkit.moments.SumBounds`) with

* in a cascade whatever may be clicked: nothing in the first n positions, or the n-th;
* else no click on the slate, or one, anywhere. Room for all that might be clicked would make every round small for the
  sake of rare ones: where clicks have a mean of 12 % and a slate four positions, regret is a third more, at ε = 4, too.

What is longer than that, where there are several clicks, is cut, all of Σγ_ju_j by one factor. That is a bias, towards
smaller differences between arms, but hardly one of their order. Where clicks are as frequent as not, no click is as far
from the base rate as all, and nothing much is cut.

So a slate of arms that are all alike counts as one arm, less noisy, and one of k orthogonal arms as √k of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from accounting.arrays import Array
from dpbandits.policy.protocol import Pending
from dpbandits.policy.slates import shown_of
from dpbandits.private.parts.one_pass import Estimate, Refit
from dpbandits.private.parts.records import LONGEST_SCALE, LONGEST_SQUARE, Levels, SecantRecord
from dpkit.moments.pairs import NoisyPair
from dpkit.moments.summed import SumBounds

__all__ = ["SlateRecord", "SlateRefit", "looks", "weight_of_round"]

Pairs = tuple[Array, Array, Array, float | None]


@dataclass(frozen=True)
class SlateRecord:
    """Unit vectors v/‖v‖, and by position ω and γ of pairs (ω·u uᵀ, γ·u) whose sum is of size at most 1.

    Attributes
    ----------
    levels : Levels
    bounds : SumBounds
    k : int
    examination : "cascade" or tuple of float
    """

    levels: Levels
    bounds: SumBounds
    k: int
    examination: Literal["cascade"] | tuple[float, ...]

    def __call__(self, pending: Pending, clicks: tuple[float, ...], public: Estimate) -> Pairs:
        shown, seen = shown_of(pending), len(clicks)
        X = pending.arm.reshape(self.k, -1)[:shown]
        level = self.levels.at(public.level)
        record, (unit_w, unit_g) = level.record, level.units
        V = X @ public.metric.T
        slopes, psi, lengths = _secants(record, V, X @ public.theta)
        long = psi == 0.0  # too long, or no numbers
        lengths[long], V[long] = 0.0, 0.0
        U = V / np.where(lengths > 0.0, lengths, 1.0)[:, None]
        look, known, least, most = _positions(self.levels, public.level, self.examination, self.k)[:, :shown]
        weights = look * psi * lengths**2 * known * slopes / unit_w
        scale = look * psi * lengths / unit_g
        tau = self.fitting(U @ U.T, weights, scale * least, scale * most)
        gradients = np.clip(np.array(clicks) - known[:seen] * record.centre, least[:seen], most[:seen])
        found = tau * weights[:seen], tau * scale[:seen] * gradients
        deviation = None
        if not public.levelled:
            deviation = self.levels.deviation(clicks[0]) if clicks else 0.0
        return U[:seen], found[0], self.cut(U[:seen], *found), deviation

    def fitting(self, gram: Array, weights: Array, least: Array, most: Array) -> float:
        """τ, for pairs (ω_j·u_ju_jᵀ, γ_j·u_j) with γ_j between two numbers, the larger one where there is a click."""
        matrices = _up_to(np.outer(weights, weights) * gram**2)
        passed = _up_to(np.outer(least, least) * gram)
        if self.examination == "cascade":
            before, along = np.append(0.0, passed[:-1]), np.tril(gram, -1) @ least
            clicked = before + (2.0 * along + most * np.diag(gram)) * most
        else:
            matrices, passed = matrices[-1:], passed[-1:]
            more = most - least
            clicked = passed + (2.0 * gram @ least + more * np.diag(gram)) * more
        size = self.bounds.size(matrices, np.maximum(np.maximum(passed, clicked), 0.0))
        return 1.0 / max(1.0, float(size.max()))

    def cut(self, U: Array, weights: Array, gradients: Array) -> Array:
        """The γ_j, shortened so that the sum is of size at most 1."""
        M, b = U.T @ (weights[:, None] * U), gradients @ U
        left, square = 1.0 - self.bounds.matrix * float(np.vdot(M, M)), self.bounds.vector * float(b @ b)
        return gradients if square <= left else gradients * math.sqrt(max(0.0, left) / square)


@dataclass(frozen=True)
class SlateRefit:
    """The refit of single choices, for sums in which a round weighs ``weight`` rather than 1."""

    single: Refit
    weight: float

    def nothing(self) -> Estimate:
        """What is known at the start."""
        return self.single.nothing()

    def __call__(self, last: Estimate, sums: NoisyPair, ends: Sequence[int]) -> Estimate:
        less = 1.0 / self.weight
        noise, batch_noise = ((less * H, less * b) for H, b in (sums.noise, sums.batch_noise))
        return self.single(
            last, replace(sums, H=less * sums.H, b=less * sums.b, noise=noise, batch_noise=batch_noise), ends
        )


def looks(
    examination: Literal["cascade"] | tuple[float, ...], k: int, record: SecantRecord, rewards: tuple[float, float]
) -> Array:
    """p_j: the public guess of how probable it is that a position is seen."""
    if not isinstance(examination, str):
        return np.array(examination)
    low, high = rewards
    rate = min(max(0.0, (record.centre - low) / (high - low)), 1.0)
    return np.asarray((1.0 - rate) ** np.arange(k))


def weight_of_round(look: Array) -> float:
    """About Στp_j², where arms are half way between all alike and orthogonal (the geometric mean of both)."""
    square = float(look @ look)
    return square / math.sqrt(float(look.sum()) * math.sqrt(square))


def _up_to(table: Array) -> Array:
    """Σ_{i, j ≤ n} of its entries, for every n."""
    return np.diag(table.cumsum(axis=0).cumsum(axis=1))


def _secants(record: SecantRecord, V: Array, e: Array) -> tuple[Array, Array, Array]:
    """s and ψ of every row, as ``SecantRecord.weigh`` has them of one, and its length."""
    squares = np.einsum("ij,ij->i", V, V)
    lengths = np.sqrt(squares)
    near = np.abs(e) <= 1e-6
    slopes = np.where(near, record.link.derivative(e), (record.link.mean(e) - record.centre) / np.where(near, 1.0, e))
    psi = np.where(
        lengths <= 1.0 / LONGEST_SCALE, LONGEST_SCALE, 1.0 / np.maximum(np.maximum(lengths, squares), 1e-300)
    )
    # whatever a caller's link says, also where it is no number
    slopes = np.fmin(np.fmax(slopes, record.s_min), record.W)
    return slopes, np.where(squares < LONGEST_SQUARE, psi, 0.0), lengths


@lru_cache(maxsize=256)
def _positions(levels: Levels, o: float, examination: Literal["cascade"] | tuple[float, ...], k: int) -> Array:
    """In rows: p_j, q_j, and the least and the largest r_j − q_jc₀, cut where those of the first position would be."""
    record, (low, high) = levels.at(o).record, levels.reward_range
    look = looks(examination, k, record, levels.reward_range)
    known = np.ones(k) if isinstance(examination, str) else look
    centre, cut = known * record.centre, record.B + (1.0 - known) * abs(record.centre)
    return np.array([look, known, np.maximum(low - centre, -cut), np.minimum(high - centre, cut)])

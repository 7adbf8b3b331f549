"""Confidence sequences and e-values of arms from noisy sums, valid however often and whenever anybody looks.

All values are in lengths of their range, x ∈ [0, 1]. Of arm k so far J_k batches were released, of n_k decisions
together, whose sum with the noise is Y_k.

Theorem. Let the values of different decisions be independent given their arms, those of arm k with mean μ_k; let arms
be chosen, and batches be ended, by what was released before and by draws that depend on nothing else; let every batch's
noise be an independent Z of E exp(λZ) ≤ φ(λ). Then for all numbers λ_k

    M(λ; μ) = Π_k exp(λ_k·Y_k) / ((1 − μ_k + μ_k·exp(λ_k))^n_k · φ(λ_k)^J_k)

is at every release a nonnegative supermartingale that starts at 1. Any mixture of these over fixed weights is one, too,
and by Ville's inequality it ever reaches 1/α with probability at most α.

Proof. exp(λx) is convex: exp(λx) ≤ 1 − x + x·exp(λ) for x ∈ [0, 1], so that E exp(λX) ≤ 1 − μ + μ·exp(λ), with equality
for values 0 and 1. Give each arm a stack of its values in the order of its decisions, the stacks independent of each
other, of the noise and of the draws. Which stack is drawn from next, and when a batch ends, is known from what was
released and from draws; so, given all that, the values of the next batch of k to be released are untouched, and its
factor has a conditional mean of at most 1: n values of its stack, and its noise. (That a batch waits, or others are
released meanwhile, changes nothing: they show other parts of the stacks.) ∎

What follows from it:

* *An arm's interval*: with λ on a grid, all of one sign, the mixture falls (or rises) in μ_k: where it is below 1/α is
  one side of an interval that holds at all times with probability 1 − α. Bisection finds it.
* *Two arms*: a mixture E over pairs (λ_a, λ_b) is a sum of log-convex functions of (μ_a, μ_b), so convex, and its least
  value over all means with μ_a − μ_b ≤ d is an e-process for this hypothesis. Let m be the observed means, at more than
  d from each other. From a point z with μ_a − μ_b < d the way to m meets the border μ_a − μ_b = d, where
  E ≤ max(E(z), E(m)): so if all of the border is above E(m), no z is below the border's least value, and that is
  found by a search along one line. Otherwise the e-value is taken to be 0. Most weight is on λ_a > 0 > λ_b, which gains
  most if a is better; ``_ELSEWHERE`` is shared by all λ of both signs, to rule out levels that neither arm can have.
* *Means that drift*: log(1 − m + m·exp(λ)) is concave in m. Let decision i of an arm have a mean m_i of its own, given
  all that was released before its batch (as where those at a batch's end have less time for their values to come).
  The product of their factors is a supermartingale as before, and M, with the average of an arm's m_i in place of μ_k,
  is no larger: so intervals hold for these averages, and those of differences for differences of them.

What is released are sums, so nothing is known of a variance but its bound μ(1 − μ): of all laws with that mean, values
0 and 1 have the largest E exp(λX), and no interval from sums alone can be shorter for others. (Empirical Bernstein
bounds and bets on single values need the values, or a release of their squares at a price of its own.)

The noise is not the real-valued one but what is drawn: its nearest integer in steps. φ is exact for the rounded Laplace
variable (a geometric series), and for the rounded Gaussian the bound exp(σ²θ²/2 + |θ|/2), θ = λ per step, as rounding
moves a variable by at most ½. Values are rounded to steps, too: by at most half a step, by which intervals are wider.

Source of the method: Robbins (1970), mixtures over λ; Howard, Ramdas, McAuliffe & Sekhon (2021), time-uniform bounds;
Waudby-Smith, Wu & Ramdas (2022, arXiv:2202.08728), noise of the local model. The use of exact noise of sums and
the pairs of arms belong to this package.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting import Gaussian, Laplace
from accounting.arrays import Array

__all__ = ["Evidence", "Sequences", "log_mgf"]

# of neighbours among the λ; and the largest one, over 1/b for Laplace or 1/σ for Gaussian noise, and without noise
_RATIO, _EDGE, _LARGEST = 1.35, 0.9, 3.0
# the share of pairs of λ that only rule out levels, and how much less weight a pair has for a factor e between its λ
_ELSEWHERE, _APART = 0.1, 0.5
# of bisections; and of the search for a level, each of so many points, which leave two of its cells
_STEPS, _ROUNDS, _POINTS = 44, 6, 17


def log_mgf(noise: Laplace | Gaussian | None, scale: float, theta: Array) -> Array:
    """log φ: of the nearest integer to a variable of this scale, an upper bound, exact for Laplace; θ per step.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Laplace
    >>> k = np.arange(-400, 401)
    >>> law = np.where(k == 0, -np.expm1(-0.5 / 3), np.exp(-np.abs(k) / 3) * np.sinh(0.5 / 3))
    >>> abs(float(np.log((law * np.exp(0.2 * k)).sum()) - log_mgf(Laplace(1.0), 3.0, np.array(0.2)))) < 1e-12
    True
    """
    size = np.abs(theta)
    if noise is None:
        return np.zeros_like(size)
    if isinstance(noise, Gaussian):
        return np.asarray(0.5 * (scale * size) ** 2 + 0.5 * size)
    rate = 1.0 / scale
    if (size >= rate).any():
        raise ValueError(f"theta must be below 1/scale={rate!r} for Laplace noise, got {float(size.max())!r}")
    tails = 1.0 / np.expm1(rate - size) + 1.0 / np.expm1(rate + size)
    return np.asarray(np.log(-math.expm1(-0.5 * rate) + math.sinh(0.5 * rate) * tails))


def _against(alpha: float) -> float:
    """ln(1/α): how much evidence rules a mean out, where that is wrong with probability α. A part of α may be 0."""
    return math.log(1.0 / alpha) if alpha > 0 else math.inf


@dataclass(frozen=True)
class Evidence:
    """What was released of one metric of the arms, all of shape (…, K).

    Attributes
    ----------
    total : ndarray
        Y: noisy sums of values in lengths of their range, above its lower end.
    count : ndarray
        n: decisions in these sums.
    releases : ndarray
        J: of how many batches.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbandits.experiment.sequences import Evidence
    >>> seen = Evidence(total=np.array([52.0, 61.0]), count=np.array([500, 500]), releases=np.array([4, 4]))
    >>> (seen.total / seen.count).tolist()
    [0.104, 0.122]
    """

    total: Array
    count: Array
    releases: Array

    def of(self, arms: NDArray[Any]) -> Evidence:
        """Of these arms."""
        return Evidence(self.total[..., arms], self.count[..., arms], self.releases[..., arms])

    @property
    def mean(self) -> Array:
        """Of each arm, in [0, 1]; ½ where nothing was released."""
        return np.clip(np.where(self.count > 0, self.total / np.maximum(self.count, 1.0), 0.5), 0.0, 1.0)


@dataclass(frozen=True)
class Sequences:
    """The grid of λ for one kind of noise, and all that is computed with it.

    Parameters
    ----------
    noise : Laplace, Gaussian or None
        Which noise is in each batch's sum.
    scale : float
        Of its real-valued variable, in steps.
    steps : int
        Of the lattice, in the length of the range.
    horizon : int
        Decisions that are planned for; the smallest λ is best for so many.
    balanced : bool
        Whether all arms have about as many decisions. Intervals hold in any case; where it is not so, pairs of
        different λ are given weight.

    Examples
    --------
    >>> from accounting import Laplace
    >>> from dpbandits.experiment.sequences import Sequences
    >>> grid = Sequences(Laplace(1.0), 1.0, 1, 1000, balanced=True)
    >>> grid.horizon
    1000
    """

    noise: Laplace | Gaussian | None
    scale: float
    steps: int
    horizon: int
    balanced: bool

    @cached_property
    def grid(self) -> Array:
        """The λ > 0, in geometric progression, shape (L,)."""
        largest = _LARGEST if self.noise is None else min(_LARGEST, _EDGE * self.steps / self.scale)
        smallest = min(math.sqrt(8.0 * math.log(20.0) / self.horizon), largest / _RATIO**3)
        count = math.ceil(math.log(largest / smallest) / math.log(_RATIO))
        return np.asarray(largest * _RATIO ** -np.arange(count, -1.0, -1.0))

    @cached_property
    def _signed(self) -> Array:
        return np.concatenate([self.grid, -self.grid])

    @cached_property
    def _log_phi(self) -> Array:
        return log_mgf(self.noise, self.scale, self.grid / self.steps)

    @cached_property
    def _pairs(self) -> Array:
        """Weights of pairs (λ_a, λ_b) of signed λ, shape (2L, 2L), which gain if a is better."""
        L = len(self.grid)
        weights = np.full((2 * L, 2 * L), _ELSEWHERE / (2 * L) ** 2)
        apart = np.abs(np.subtract.outer(np.arange(L), np.arange(L))) * math.log(_RATIO)
        coupled = np.eye(L) if self.balanced else np.exp(-_APART * apart)
        weights[:L, L:] += (1.0 - _ELSEWHERE) * coupled / coupled.sum()
        return weights

    @property
    def slack(self) -> float:
        """How far rounding to steps can move a mean."""
        return 0.5 / self.steps

    def _log_factors(self, evidence: Evidence, mu: Array, signed: Array) -> Array:
        """log M of each arm, for each λ: shape (…, K) and a last axis of λ, where ``mu`` fits (…, K)."""
        phi = self._log_phi if len(signed) == len(self.grid) else np.concatenate([self._log_phi, self._log_phi])
        fixed = evidence.total[..., None] * signed - evidence.releases[..., None] * phi
        return np.asarray(fixed - evidence.count[..., None] * np.log1p(mu[..., None] * np.expm1(signed)))

    # --------------------------------------------------------------------------------------------- one arm

    def log_evidence_above(self, evidence: Evidence, mu: Array) -> Array:
        """log of the e-value of each arm for "its mean is at most μ", shape (…, K)."""
        found = self._log_factors(evidence, np.broadcast_to(mu, evidence.total.shape), self.grid)
        largest = found.max(axis=-1)
        return np.asarray(largest + np.log(np.exp(found - largest[..., None]).mean(axis=-1)))

    def lower(self, evidence: Evidence, alpha: float) -> Array:
        """Of each arm a bound below its mean that holds at all times with probability 1 − α, shape (…, K)."""
        wanted = _against(alpha)
        low, high = np.zeros(evidence.total.shape), np.ones(evidence.total.shape)
        for _ in range(_STEPS):
            middle = 0.5 * (low + high)
            out = self.log_evidence_above(evidence, middle) >= wanted
            low, high = np.where(out, middle, low), np.where(out, high, middle)
        return np.maximum(low - self.slack, 0.0)

    def upper(self, evidence: Evidence, alpha: float) -> Array:
        """Of each arm a bound above its mean: 1 less one below the mean of 1 − x, whose noise has the same law."""
        turned = Evidence(evidence.count - evidence.total, evidence.count, evidence.releases)
        return 1.0 - self.lower(turned, alpha)

    # -------------------------------------------------------------------------------------------- two arms

    def log_evidence_better(self, a: Evidence, b: Evidence, apart: Array | float = 0.0) -> Array:
        """log of the e-value for "μ_a − μ_b ≤ apart", of pairs of arms, shape (…), that of ``a`` and of ``b``."""
        # a hypothesis about the means of rounded values, which may be a step nearer
        d = np.broadcast_to(np.asarray(apart, dtype=np.float64), a.total.shape) + 2.0 * self.slack
        at_means = self.log_evidence_at(a, b, a.mean[..., None], b.mean[..., None])[..., 0]
        possible = (np.abs(d) < 1.0) & (a.mean - b.mean > d)
        d = np.where(possible, d, 0.0)
        low, high = np.maximum(0.0, -d), np.minimum(1.0, 1.0 - d)
        share, least = np.linspace(0.0, 1.0, _POINTS), np.full(d.shape, np.inf)
        for _ in range(_ROUNDS):
            mu = low[..., None] + (high - low)[..., None] * share
            found = self.log_evidence_at(a, b, np.clip(mu + d[..., None], 0.0, 1.0), mu)
            least, at = np.minimum(least, found.min(axis=-1)), found.argmin(axis=-1)
            cell = (high - low) / (_POINTS - 1)
            low, high = low + cell * np.maximum(at - 1, 0), low + cell * np.minimum(at + 1, _POINTS - 1)
        return np.where(possible & (least > at_means), least, -np.inf)

    def log_evidence_at(self, a: Evidence, b: Evidence, mu_a: Array, mu_b: Array) -> Array:
        """log E for "the means are μ_a and μ_b" of pairs, which gains if a is better: shape (…, M), that of μ."""

        def factors(evidence: Evidence, mu: Array) -> tuple[Array, Array]:
            wide = Evidence(evidence.total[..., None], evidence.count[..., None], evidence.releases[..., None])
            found = self._log_factors(wide, mu, self._signed)
            largest = found.max(axis=-1)
            return np.exp(found - largest[..., None]), largest

        (p, of_a), (q, of_b) = factors(a, mu_a), factors(b, mu_b)
        return np.asarray(of_a + of_b + np.log(((p @ self._pairs) * q).sum(axis=-1)))

    def least_difference(self, a: Evidence, b: Evidence, alpha: float) -> Array:
        """A bound below μ_a − μ_b that holds at all times with probability 1 − α, shape (…)."""
        wanted = _against(alpha)
        low, high = np.full(a.total.shape, -1.0), np.clip(a.mean - b.mean, -1.0, 1.0)
        for _ in range(_STEPS // 2):
            middle = 0.5 * (low + high)
            out = self.log_evidence_better(a, b, middle) >= wanted
            low, high = np.where(out, middle, low), np.where(out, high, middle)
        return low

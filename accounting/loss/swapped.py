"""Dominating pairs of Poisson samples in which one unit is swapped for another, for any noise.

With probability q the unit is in the sample. Let R be the law of the output without it, S and S′ with it and with its
substitute. Each of the two is one step from absent: it is no easier to tell from R than the inner pair, whose trade-off
function is f (f(a) is the least probability of missing, at a false-alarm rate a; f is its own inverse, as the
inner pair is symmetric).

*Theorem.* Let U be uniform on [0, 1], let T have the distribution function 1 − f(a) there, and T′ that of 1 − T.
Then P = (1 − q)U + qT against Q = (1 − q)U + qT′ dominates the swap. Both steps are possible at once, so it is
also what some mechanism costs.

*Proof.* Divergences are jointly convex, so let the rest of the sample be fixed. For an event A and a = R(A) one has
S(A) ≤ 1 − f(a), and S′(A) ≥ f(1 − a) as S′ hits the complement with at most 1 − f(1 − a). For E ≥ 1 therefore

    ((1 − q)R + qS)(A) − E·((1 − q)R + qS′)(A) ≤ (1 − q)(1 − E)a + q(1 − f(a)) − E·q·f(1 − a),

which is P − E·Q of the event [0, a]: T′ has at most a with probability f(1 − a). So the largest value, over A, is at
most the divergence of the pair. The density of T falls and that of T′ rises, both positive, so such events are the
best ones. The mirror x ↦ 1 − x exchanges P and Q, which gives E < 1. ∎

The inner pair is that of some noise R, symmetric around 0, that is shifted to the right; then T is the noise shifted to
the right and T′ the noise shifted to the left. Of ε-DP, f has the slopes −e^ε and −e^(−ε), so that the densities of
(U, T, T′) are (1, e^ε, e^(−ε)), (1, e^(−ε), e^(−ε)) and (1, e^(−ε), e^ε), the first and the last of U-mass 1/(1 + e^ε).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accounting.arrays import UNIT_ROUNDOFF, Array
from accounting.errors import UnsupportedRelease
from accounting.loss.gaussian import GaussianPair, normal_masses
from accounting.loss.integers import IntegerPair, is_listed
from accounting.loss.laplace import LaplacePair, laplace_masses
from accounting.loss.lattice import discrete_gaussian_mu
from accounting.loss.pair import Atoms, LossPair, Symmetric, mirrored, remembered
from accounting.loss.responses import Coins
from accounting.masses import laplace_below

__all__ = ["SwappedAtomsPair", "SwappedGaussianPair", "SwappedLaplacePair", "doubled", "swapped"]


_OUTWARD = 1 + 1e-13


def swapped(inner: LossPair, rate: float) -> LossPair:
    """The pair of a swap on a Poisson sample with ``rate`` below 1.

    Raises
    ------
    UnsupportedRelease
        If the inner pair is not that of a noise, or of pure differential privacy.
    """
    match inner:
        case GaussianPair(mu=mu):
            return SwappedGaussianPair(1.0 / mu, rate)
        case LaplacePair(theta=theta):
            return SwappedLaplacePair(theta, rate)
        case IntegerPair() | Coins(categories=2):
            return SwappedAtomsPair(inner, rate)
    raise UnsupportedRelease(f"the PLD accountant has no pair for a swap in a sample of {inner!r}")


def doubled(inner: LossPair) -> LossPair:
    """The pair of a swap without sampling: of twice the shift.

    Raises
    ------
    UnsupportedRelease
        If the inner pair is not that of a noise, or of pure differential privacy.
    """
    match inner:
        case GaussianPair(mu=mu):
            return GaussianPair(2.0 * mu)
        case LaplacePair(theta=theta):
            return LaplacePair(2.0 * theta)
        case Coins(epsilon=eps, categories=2):
            return Coins(2.0 * eps * (1 + 2.0**-51))
        case IntegerPair(noise="laplace", noise_multiplier=z, shift=shift):
            return IntegerPair("laplace", z / 2, 2 * shift)
        case IntegerPair(noise_multiplier=z, shift=shift) if is_listed(z / 2, 2 * shift):
            return IntegerPair("gaussian", z / 2, 2 * shift)
        case IntegerPair(noise_multiplier=z, shift=shift):
            return GaussianPair(2.0 * discrete_gaussian_mu(z, shift))
    raise UnsupportedRelease(f"the PLD accountant has no bound for two steps of {inner!r}")


@dataclass(frozen=True)
class SwappedGaussianPair(Symmetric):
    """(1 − q)N(0, z²) + qN(1, z²) against (1 − q)N(0, z²) + qN(−1, z²).

    L grows with x and is odd: x/z² = L/2 + asinh(((1 − q)/q)e^{1/(2z²)}·sinh(L/2)).
    """

    exact = True
    noise_multiplier: float
    rate: float

    def delta(self, epsilon: float) -> float:
        from scipy.special import ndtr

        # beyond that what e^ε·Q takes off is left out
        gap, q, scale = 1.0 / self.noise_multiplier, self.rate, math.exp(epsilon) if epsilon < 700 else 0.0
        t = float(self._place(np.array([epsilon]))[0])
        in_p = float((1 - q) * ndtr(-t) + q * ndtr(gap - t))
        in_q = float((1 - q) * ndtr(-t) + q * ndtr(-gap - t))
        # ndtr is right to a few units in the last place of t²
        return max(0.0, in_p - scale * in_q) + (64 + 8 * t * t) * UNIT_ROUNDOFF * (in_p + scale * in_q)

    def masses(self, edges: Array) -> tuple[Array, Array]:
        t, gap, q = self._place(edges), 1.0 / self.noise_multiplier, self.rate
        middle, right, left = (normal_masses(t - shift) for shift in (0.0, gap, -gap))
        return (1 - q) * middle + q * right, (1 - q) * middle + q * left

    def highest(self, log_tail: float) -> float:
        # both parts of P are beyond this x with less than that probability
        z, q = self.noise_multiplier, self.rate
        x = 1.0 + z * math.sqrt(-2 * log_tail)
        at_x, at_minus_x = np.logaddexp(math.log1p(-q), math.log(q) + (np.array([x, -x]) - 0.5) / z**2)
        return float(at_x - at_minus_x)

    def _place(self, loss: Array) -> Array:
        """x/z at which L is ``loss``."""
        z, q = self.noise_multiplier, self.rate
        half = np.abs(loss) / 2
        factor = math.log1p(-q) - math.log(q) + 0.5 / z**2
        with np.errstate(divide="ignore", over="ignore"):
            # ln of the argument of asinh, and asinh of what may be too large for a float
            log_a = factor + half + np.log(-np.expm1(-2 * half)) - math.log(2.0)
            reach = np.where(log_a < 300.0, np.arcsinh(np.exp(np.minimum(log_a, 300.0))), log_a + math.log(2.0))
        return np.asarray(np.sign(loss) * (half + reach) * z)


@dataclass(frozen=True)
class SwappedLaplacePair(Symmetric):
    """Laplace noise of scale 1, shifted by θ to the right or to the left with probability q.

    For 0 ≤ x ≤ θ the ratios of the shifted densities to the noise's are e^(2x − θ) and e^(−θ), so that L is
    ln(1 − q + qe^(2x − θ)) − ln(1 − q + qe^(−θ)). It is odd, and constant beyond θ.
    """

    exact = True
    theta: float
    rate: float

    @property
    def _largest(self) -> float:
        """L beyond θ."""
        return self._log_mixture(self.theta) - self._log_mixture(-self.theta)

    def _log_mixture(self, x: float) -> float:
        """ln(1 − q + qe^x)."""
        if x < 30.0:
            return math.log1p(self.rate * math.expm1(x))
        return x + math.log(self.rate) + math.log1p((1 - self.rate) / self.rate * math.exp(-x))

    def _place(self, loss: Array) -> Array:
        """x at which L is ``loss``; infinite beyond the largest loss."""
        q, size = self.rate, np.abs(loss)
        largest = self._largest
        inside = np.minimum(size, largest)
        # e^(2x) = 1 + (e^L − 1)(1 − q + qe^(−θ))e^θ/q, by the form that keeps its digits and its range
        factor = self._log_mixture(-self.theta) + self.theta - math.log(q)
        with np.errstate(divide="ignore"):
            log_rise = factor + inside + np.log(-np.expm1(-inside))
        x = np.minimum(0.5 * np.logaddexp(0.0, log_rise), self.theta)
        return np.asarray(np.sign(loss) * np.where(size < largest, x, np.inf))

    @mirrored
    def delta(self, epsilon: float) -> float:
        if epsilon >= self._largest * _OUTWARD:
            return 0.0
        # at or beyond the largest loss by rounding: the event x ≥ θ is not empty
        x = np.minimum(self._place(np.array([epsilon])), self.theta)
        q, (middle, right, left) = self.rate, (float(laplace_below(s - x)[0]) for s in (0.0, self.theta, -self.theta))
        grown = math.exp(min(epsilon, 700.0))
        # P − e^ε·Q = q(T − T′) − (e^ε − 1)Q, of which the second term is small where ε is
        in_q = (1 - q) * middle + q * left
        found = q * (right - left) - math.expm1(min(epsilon, 700.0)) * in_q
        return min(1.0, max(0.0, found) + 32 * UNIT_ROUNDOFF * (q * right + grown * in_q))

    def masses(self, edges: Array) -> tuple[Array, Array]:
        x, q = self._place(edges), self.rate
        middle, right, left = (laplace_masses(x - shift) for shift in (0.0, self.theta, -self.theta))
        return (1 - q) * middle + q * right, (1 - q) * middle + q * left

    def highest(self, log_tail: float) -> float:
        # the atom at the end must not come to lie beyond it
        return self._largest * _OUTWARD


@dataclass(frozen=True)
class SwappedAtomsPair(Atoms, Symmetric):
    """Integer noise, or pure differential privacy: finitely many losses."""

    exact = True
    mass_rounding = 4e-12
    loss_rounding = 1e-12
    inner: IntegerPair | Coins
    rate: float

    @remembered(16)
    def atoms(self) -> tuple[Array, Array, Array, float]:
        q = self.rate
        if isinstance(self.inner, Coins):
            eps = self.inner.epsilon
            log_absent = np.array([-eps, math.log(-math.expm1(-eps)), -eps]) - math.log1p(math.exp(-eps))
            ratios = np.array([-eps, -eps, eps])
            log_shifted = log_absent + ratios
        else:
            x, (log_absent, log_shifted) = self.inner.log_laws(np.array([0.0, self.inner.shift]), also_left=True)
            ratios = self.inner.log_ratios(x)
        mixed = np.logaddexp(math.log1p(-q), math.log(q) + ratios)  # ln(1 − q + q·e^ratio)
        p = np.exp(np.logaddexp(math.log1p(-q) + log_absent, math.log(q) + log_shifted))
        losses = np.maximum.accumulate(mixed - mixed[::-1])  # it rises; rounding must not change that
        return losses, p, p[::-1], 0.0

"""The dominating pairs of integer noise in one coordinate: the discrete Gaussian and the discrete Laplace.

Neighbours shift one integer by at most k ≥ 1. Both laws are log-concave and symmetric, so the loss of a shift by j,
L(x) = ln p(x − j)/p(x), does not fall as x rises; hence H(e^ε) = max over m of P(X ≥ m − j) − e^ε P(X ≥ m), which grows
with j. The pair (X + k, X) dominates therefore, and x ↦ k − x exchanges its two sides, so that L under P has the law of
−L under Q.

* Discrete Gaussian, P(x) ∝ exp(−x²/(2σ²)) (Canonne, Kamath & Steinke 2020): at X = y the loss is k(2y + k)/(2σ²).
* Discrete Laplace, P(x) ∝ b^|x| with b = e^(−1/t) (Ghosh, Roughgarden & Sundararajan 2012): the loss is (2j − k)/t for
  j = 0, …, k, with P-mass 1/(1 + b) at j = k, b^k/(1 + b) at j = 0, and b^(k−j)(1 − b)/(1 + b) between.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from accounting.arrays import Array
from accounting.errors import UnsupportedRelease
from accounting.loss.gaussian import LatticeGaussianPair
from accounting.loss.lattice import discrete_gaussian_mu
from accounting.loss.pair import Atoms, Symmetric, remembered

__all__ = ["IntegerPair", "atoms_of", "gaussian_pair", "is_listed"]


# e^(−745) is the smallest double: beyond √(2·745) standard deviations a Gaussian has no mass that can be written down
_REACH = 38.7
_MOST_ATOMS = 1 << 22
# of more losses the Gaussian that dominates them is as good
_MOST_LISTED = 1 << 19


def atoms_of(noise: Literal["gaussian", "laplace"], noise_multiplier: float, shift: int) -> float:
    """About how many losses an :class:`IntegerPair` has."""
    return shift + (2 * _REACH * noise_multiplier * shift if noise == "gaussian" else 0.0)


def is_listed(noise_multiplier: float, shift: int) -> bool:
    """Whether the discrete Gaussian's losses are listed; of more, the Gaussian that dominates it is as good.

    It is more expensive by 1/(24σ²), σ the scale; and σ > 400 of so many atoms unless the noise is next to nothing.
    """
    return noise_multiplier < 1e-3 or atoms_of("gaussian", noise_multiplier, shift) <= _MOST_LISTED


def gaussian_pair(noise_multiplier: float, shift: int) -> IntegerPair | LatticeGaussianPair:
    """The pair of discrete Gaussian noise on an integer that moves by ``shift`` at most."""
    if is_listed(noise_multiplier, shift):
        return IntegerPair("gaussian", noise_multiplier, shift)
    return LatticeGaussianPair(discrete_gaussian_mu(noise_multiplier, shift), noise_multiplier, shift)


@dataclass(frozen=True)
class IntegerPair(Atoms, Symmetric):
    """Noise of scale ``noise_multiplier`` × ``shift`` (σ or t) on an integer that moves by at most ``shift``."""

    exact = True
    # that of e^(−745), whose exponent is right to a few units in the last place
    mass_rounding = 1e-12
    loss_rounding = 4 * 2.0**-52
    noise: Literal["gaussian", "laplace"]
    noise_multiplier: float
    shift: int

    def __post_init__(self) -> None:
        scale = self.noise_multiplier * self.shift
        atoms = atoms_of(self.noise, self.noise_multiplier, self.shift)
        if atoms > _MOST_ATOMS:
            raise UnsupportedRelease(
                f"the PLD accountant takes integer noise of at most {_MOST_ATOMS} atoms, got {atoms:.3g} for a "
                f"discrete {self.noise.title()} of scale {scale:g} and shift={self.shift}"
            )

    @remembered(16)
    def atoms(self) -> tuple[Array, Array, Array, float]:
        x, (log_p,) = self.log_laws(np.array([self.shift]))
        losses = self.log_ratios(x)
        p = np.exp(log_p)
        for array in (losses, p):
            array.setflags(write=False)
        return losses, p, p[::-1], 0.0

    def log_ratios(self, x: Array) -> Array:
        """ln of the masses of noise around ``shift`` over those of noise around 0, at values x; it keeps its digits."""
        k, scale = self.shift, self.noise_multiplier * self.shift
        if self.noise == "laplace":
            return (np.abs(x) - np.abs(x - k)) / scale
        return k * (2.0 * x - k) / (2.0 * scale**2)

    def log_laws(self, around: Array, *, also_left: bool = False) -> tuple[Array, Array]:
        """Values, and ln of the masses that noise around some of 0, …, ``shift`` has there, a row for each of these.

        Values beyond which all ratios of such laws are constant are merged, or of these and noise around −``shift``.
        """
        k, scale = self.shift, self.noise_multiplier * self.shift
        first = -k if also_left else 0
        if self.noise == "laplace":
            x, b = np.arange(first, k + 1.0), math.exp(-1.0 / scale)
            logs = -np.abs(x - around[:, None]) / scale - math.log1p(b)
            logs[:, 1:-1] += math.log(-math.expm1(-1.0 / scale))
            return x, logs
        reach = math.ceil(_REACH * scale)
        x = np.arange(first - reach, k + reach + 1.0)
        total = float(np.exp(-0.5 * np.square(np.arange(-reach, reach + 1.0) / scale)).sum())
        return x, -0.5 * np.square((x - around[:, None]) / scale) - math.log(total)

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
from functools import lru_cache
from typing import Literal

import numpy as np

from accounting.arrays import Array
from accounting.errors import UnsupportedRelease
from accounting.loss.gaussian import LatticeGaussianPair
from accounting.loss.lattice import discrete_gaussian_mu
from accounting.loss.pair import Atoms, Symmetric

__all__ = ["IntegerPair", "atoms_of", "gaussian_pair", "is_listed", "log_laws"]


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

    def atoms(self) -> tuple[Array, Array, Array, float]:
        return *_atoms(self), 0.0

    def log_noise_and_shifted(self) -> tuple[Array, Array, Array]:
        """ln of the noise's own masses, of those that it has when shifted to the right, and of the latter over the
        former, value by value.

        Values beyond which both ratios, to the right and to the left, are constant are merged.
        """
        k = self.shift
        scale = self.noise_multiplier * k
        if self.noise == "laplace":
            x, b = np.arange(-k, k + 1.0), math.exp(-1.0 / scale)
            log_noise = -np.abs(x) / scale + math.log(-math.expm1(-1.0 / scale)) - math.log1p(b)
            log_noise[[0, -1]] = -1.0 / self.noise_multiplier - math.log1p(b)
            ratios = (np.abs(x) - np.abs(x - k)) / scale
            return log_noise, log_noise + ratios, ratios
        reach = math.ceil(_REACH * scale) + k
        x = np.arange(-reach, reach + 1.0)
        log_noise = -0.5 * np.square(x / scale)
        with np.errstate(under="ignore"):
            total = math.log(float(np.exp(log_noise).sum()))
        # where there is little noise, their difference would have no digits
        return log_noise - total, -0.5 * np.square((x - k) / scale) - total, k * (2.0 * x - k) / (2.0 * scale**2)


def log_laws(pair: IntegerPair) -> Array:
    """ln of the masses of noise around 0, …, ``shift``, a row each.

    Values beyond which all ratios of these are constant are merged.
    """
    k = pair.shift
    scale, around = pair.noise_multiplier * k, np.arange(k + 1.0)[:, None]
    if pair.noise == "laplace":
        b = math.exp(-1.0 / scale)
        log_laws = -np.abs(np.arange(k + 1.0) - around) / scale - math.log1p(b)
        log_laws[:, 1:-1] += math.log(-math.expm1(-1.0 / scale))
        return log_laws
    reach = math.ceil(_REACH * scale)
    x = np.arange(-reach, reach + k + 1.0)
    with np.errstate(under="ignore"):
        total = float(np.exp(-0.5 * np.square(np.arange(-reach, reach + 1.0) / scale)).sum())
    return np.asarray(-0.5 * np.square((x - around) / scale) - math.log(total))


@lru_cache(maxsize=16)
def _atoms(pair: IntegerPair) -> tuple[Array, Array, Array]:
    """The losses in increasing order, with their masses under P and under Q."""
    k = pair.shift
    scale = pair.noise_multiplier * k
    if pair.noise == "laplace":
        j = np.arange(k + 1.0)
        b = math.exp(-1.0 / scale)
        with np.errstate(under="ignore"):
            p = np.exp((j - k) / scale) * (-math.expm1(-1.0 / scale) / (1.0 + b))
            p[0], p[-1] = math.exp(-1.0 / pair.noise_multiplier) / (1.0 + b), 1.0 / (1.0 + b)
        losses = (2.0 * j - k) / scale
    else:
        reach = math.ceil(_REACH * scale)
        y = np.arange(-reach - k, reach + 1.0)
        with np.errstate(under="ignore"):
            p = np.exp(-0.5 * np.square(y / scale))
        p /= p.sum()
        losses = k * (2.0 * y + k) / (2.0 * scale**2)
    for array in (losses, p):
        array.setflags(write=False)
    return losses, p, p[::-1]

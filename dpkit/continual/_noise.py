"""The noise of encoded rows: four laws, each with its step γ, its standard deviation and its exact sampler.

γ is chosen such that rounding adds at most 2⁻¹⁰ (0.1 %) to the sensitivity, if the encoder has room for that. With the
factorization's joint norm N and E = :func:`_excess`, encoded rows of neighbouring streams are at most N·s/γ + E apart,
s the sensitivity of an input.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpkit import randomness
from dpkit.continual.factorization import UNIT_ROUNDOFF, Factorization, norm_of_ones
from dpkit.geometry import best_norm
from dpkit.samplers import discrete_gaussian, generalized_gaussian, rounded_laplace
from dpkit.samplers._boxes import MOST_BITS, normal_steps
from dpkit.samplers.lattice import default_granularity, lattice_scale
from dpkit.states.entries import conform

__all__ = ["KINDS", "Ahead", "Law", "law"]

KINDS = ("gaussian", "laplace", "generalized_gaussian", "discrete_gaussian")

# what the exact samplers take; refused when a stream is made, not at its first draw
_SMALLEST_SCALE, _LARGEST_SCALE = 2.0**-40, 2.0**40
# integers that are drawn ahead, 64 KiB
_AHEAD = 1 << 13


class Law(Protocol):
    """Independent entries of noise, in units of ``step``."""

    step: float  # γ
    std: float  # the standard deviation of one entry, in units of x
    dtype: np.dtype[Any]  # of encoded and noisy rows

    def draw(self, rng: np.random.Generator, rows: int, dimension: int) -> NDArray[Any]:
        """Fresh noise, shape (rows, dimension)."""


def law(noise: str, z: float, s: float, q: float, dimension: int, factorization: Factorization, norm: float) -> Law:
    """The law of ``noise`` with noise multiplier z for inputs of sensitivity s, of which C makes norm·s at most."""
    match noise:
        case "laplace":
            return _Laplace(z, s, dimension, factorization)
        case "generalized_gaussian":
            return _Generalized(z * s, q, dimension)
        case "discrete_gaussian":
            return _Discrete(z * s)
        case _:
            return _Gaussian(z, s, dimension, factorization, norm)


def _excess(factorization: Factorization, dimension: int, order: int, norm: float = 1.0) -> float:
    """The factorization's own excess, and that of the inputs that differ, in both worlds.

    v = x/γ is rounded within u·V, an entry √2·(x + x′)/2 of a half-vector, √2 rounded as well, within 3u·V before, and
    v over the norm of a column, by an encoder that scales them, within u·V after.
    """
    moved = 10 * UNIT_ROUNDOFF * factorization.reach * norm
    return factorization.excess(dimension, order) + moved * norm_of_ones(dimension, order)


class _Gaussian:
    """⌊2^b·N⌉ for a whole b, exactly; γ is such that 2^b = z·(N·s/γ + E), with N·s/γ ≥ 2¹⁰E."""

    dtype = np.dtype(np.int64)

    def __init__(self, z: float, s: float, dimension: int, factorization: Factorization, norm: float) -> None:
        excess = _excess(factorization, dimension, 2, norm)
        fine = factorization.fineness * norm
        least = max(1024.0 * excess, fine) + excess
        most = min(MOST_BITS, math.floor(math.log2(min(factorization.largest_noise, 2.0**MOST_BITS))))
        self.bits = max(0, min(math.ceil(math.log2(z) + math.log2(least)), most))
        # in streams so long and wide that there is no room for that, rounding may add up to a sixteenth
        least = max(16.0 * excess, fine) + excess
        if math.ldexp(1.0, self.bits) < z * least:
            raise ValueError(
                f"noise_multiplier must be at most 2**{most}/{least:.3g} for this horizon and shape, "
                f"got noise_multiplier={z!r}"
            )
        steps = math.ldexp(1.0, self.bits) / z - excess  # N·s/γ
        # eight roundings of 2⁻⁵³ or less are paid for by 2⁻⁴⁹ more
        self.step = s * norm / steps * (1 + 2.0**-49)
        # rounding adds 1/12 to the variance, within 10⁻⁷
        self.std = self.step * math.sqrt(math.ldexp(1.0, 2 * self.bits) + 1 / 12)

    def draw(self, rng: np.random.Generator, rows: int, dimension: int) -> NDArray[np.int64]:
        noise = np.empty((rows, dimension), np.int64)
        normal_steps(self.bits, noise.reshape(-1), rng)
        return noise


class _Laplace:
    """Rounded Laplace of scale z·(s/γ + E), s and E in L1, and γ a power of two; for encoders of column norm 1."""

    dtype = np.dtype(np.int64)

    def __init__(self, z: float, s: float, dimension: int, factorization: Factorization) -> None:
        excess = math.ceil(_excess(factorization, dimension, 1))
        # no more than the noise's own scale either, however small that is
        largest = min(z * s, s / factorization.fineness if factorization.fineness else math.inf)
        self.step = min(default_granularity(s, excess, norm=1), math.ldexp(1.0, math.frexp(largest)[1] - 1))
        self.scale = lattice_scale(z, s, self.step, excess, norm=1)
        # Σ(2k − 1)P(|⌊L⌉| ≥ k) with P = exp(−(k − ½)/t)
        ratio = -1 / self.scale
        gap = -math.expm1(ratio)
        self.std = self.step * math.sqrt(math.exp(ratio / 2) * (1 + math.exp(ratio))) / gap

    def draw(self, rng: np.random.Generator, rows: int, dimension: int) -> NDArray[np.int64]:
        return rounded_laplace(self.scale, (rows, dimension), rng=rng)


class _Generalized:
    """Density ∝ exp(−‖n‖_r²/(2σ₊²)), σ₊ = z·√κ·s, s in ℓ_q; r and κ follow from q and d. In real arithmetic."""

    step = 1.0
    dtype = np.dtype(np.float64)

    def __init__(self, scale: float, q: float, dimension: int) -> None:
        self._r, kappa = best_norm(q, dimension)
        self._sigma = math.sqrt(kappa) * scale
        # An entry is R·x_1/‖x‖_r with E R² = dσ₊² and independent |x_i|^r ~ Gamma(1/r). The direction is independent of
        # ‖x‖_r, so E(x_1²/‖x‖_r²) = E x_1²/E‖x‖_r², where ‖x‖_r^r ~ Gamma(d/r).
        r, d = self._r, dimension
        log = math.lgamma(3 / r) - math.lgamma(1 / r) + math.lgamma(d / r) - math.lgamma((d + 2) / r)
        self.std = self._sigma * math.sqrt(d * math.exp(log))

    def draw(self, rng: np.random.Generator, rows: int, dimension: int) -> NDArray[np.float64]:
        return generalized_gaussian(self._r, self._sigma, dimension, rows, rng=rng)


class _Discrete:
    """Integers of parameter z·s, s in L2, for streams of integers: no step but 1, and nothing is rounded."""

    step = 1.0
    dtype = np.dtype(np.int64)

    def __init__(self, scale: float) -> None:
        if not _SMALLEST_SCALE <= scale <= _LARGEST_SCALE:
            raise ValueError(f"noise_multiplier * sensitivity must lie in [2**-40, 2**40] for integers, got {scale!r}")
        self._sigma = scale
        # from σ = 8 on, the standard deviation is σ to the last digit
        self.std = scale
        if scale < 8:
            k = np.arange(-80, 81, dtype=np.float64)
            weights = np.exp(-0.5 * (k / scale) ** 2)
            self.std = math.sqrt(float(weights @ (k * k)) / float(weights.sum()))

    def draw(self, rng: np.random.Generator, rows: int, dimension: int) -> NDArray[np.int64]:
        return discrete_gaussian(self._sigma, (rows, dimension), rng=rng)


class Ahead:
    """Rows of noise, of which a few are drawn ahead for short vectors; each is used once, and then overwritten.

    The first time eight are drawn, then twice as many each time, so that a short stream does not wait for a long one.
    """

    def __init__(self, noise: Law, dimension: int, rng: np.random.Generator) -> None:
        self._law, self._rng = noise, rng
        self._rows = np.zeros((_AHEAD // dimension, dimension), noise.dtype)
        self._numbers = self._rows.reshape(-1)
        self._size = len(self._rows)
        self._used, self._drawn = self._size, 4

    def add_to(self, encoded: NDArray[Any]) -> NDArray[Any]:
        """``encoded`` plus as many rows of noise: an array until the next call; ``encoded`` may be overwritten."""
        count = len(encoded)
        if self._used + count > self._size:  # what is left is wasted
            if count > self._more():
                encoded += self._law.draw(self._rng, *encoded.shape)
                return encoded
            self._draw()
        used = self._used
        ahead = self._rows[used : used + count]
        # marked as used before it is used, so that an interrupt can waste rows but never repeat them
        self._used = used + count
        # in the place of the noise, of which nothing is left
        noisy: NDArray[Any] = np.add(encoded, ahead, ahead)
        return noisy

    def one(self, encoded: int) -> int:
        """The same for a single number."""
        if self._used == self._size:
            self._more()
            self._draw()
        used = self._used
        self._used = used + 1
        noise: int = self._numbers.item(used)
        self._numbers[used] = 0
        return encoded + noise

    def _more(self) -> int:
        self._drawn = min(2 * self._drawn, self._size)
        return self._drawn

    def _draw(self) -> None:
        self._used = self._size
        self._rows[-self._drawn :] = self._law.draw(self._rng, self._drawn, self._rows.shape[1])
        self._used -= self._drawn

    def kept(self) -> dict[str, Any]:
        """What a simulation saves, so that it continues bit for bit; of a secure source nothing."""
        if not randomness.is_simulation(self._rng):
            return {"ahead": self._rows[:0].copy(), "ahead_used": 0, "ahead_drawn": 0}
        return {"ahead": self._rows.copy(), "ahead_used": self._used, "ahead_drawn": self._drawn}

    def resume(self, rows: Any, used: Any, drawn: Any) -> None:
        """Take a simulation's rows over; if this is none, or the saved stream was none, draw new ones."""
        rows = conform("ahead", rows, like=self._rows if len(np.shape(rows)) == 2 and len(rows) else self._rows[:0])
        used, drawn = conform("ahead_used", used, like=0), conform("ahead_drawn", drawn, like=0)
        if max(used, drawn) > max(len(self._rows), 4):
            raise ValueError(f"ahead_used and ahead_drawn must be at most {len(self._rows)}, got {used} and {drawn}")
        self._used = len(self._rows)
        if len(rows) and randomness.is_simulation(self._rng):
            self._rows[:] = rows
            self._used, self._drawn = used, drawn

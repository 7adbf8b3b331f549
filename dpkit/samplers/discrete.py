"""Exact discrete Laplace and discrete Gaussian integers, and Bernoulli(exp(−x)), on whole arrays.

Every value has exactly the stated law: no table is cut and no probability is rounded, so nothing is added to δ. The
decisions are taken in double precision with a bound on their error, and the few that the bound leaves open (one value
in 10⁵ at most, for scales up to 10⁹) are settled with further random bits and digits.

* Discrete Laplace, P(k) ∝ exp(−|k|/t): a random sign, and the magnitude by inversion. With q = exp(−1/t) and U uniform,
  ⌊t·(ln(2/(1 + q)) − ln U)⌋ reaches k ≥ 1 with probability 2q^k/(1 + q), which with the sign is the law.
* Discrete Gaussian, P(k) ∝ exp(−k²/(2σ²)): Canonne, Kamath & Steinke (2020), Algorithm 3: a discrete Laplace Y of scale
  t = ⌊σ⌋ + 1, kept with probability exp(−(|Y| − σ²/t)²/(2σ²)).
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpkit import randomness
from dpkit.samplers._filtered import (
    BLOCK,
    FEW,
    bernoulli_exp_block,
    check_scale,
    signed_floor_log,
    signed_floor_log_one,
)

__all__ = ["bernoulli_exp", "discrete_gaussian", "discrete_laplace"]


def discrete_laplace(
    scale: float, shape: int | tuple[int, ...] = (), *, rng: np.random.Generator | None = None
) -> NDArray[np.int64]:
    """Integers with P(k) = (1 − q)/(1 + q)·q^|k|, q = exp(−1/scale), exactly.

    Parameters
    ----------
    scale : float
        t, in [2⁻⁴⁰, 2⁴⁰]. The variance is 2q/(1 − q)².
    shape : int or tuple of int
        Of the result.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.

    Returns
    -------
    ndarray of int64

    Raises
    ------
    ValueError
        If ``scale`` is outside [2⁻⁴⁰, 2⁴⁰].

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.samplers import discrete_laplace
    >>> noise = discrete_laplace(20.0, 10_000, rng=np.random.default_rng(1))
    >>> noise.dtype, bool(abs(np.abs(noise).mean() - 20) < 1)
    (dtype('int64'), True)
    """
    t = check_scale("scale", scale)
    source = randomness.resolve(rng)
    out = np.empty(shape, dtype=np.int64)
    flat = out.reshape(-1)
    if flat.size <= FEW:
        flat[:] = [signed_floor_log_one(t, _zero_offset(t), _share_zero, source) for _ in range(flat.size)]
        return out
    for start in range(0, flat.size, BLOCK):
        block = flat[start : start + BLOCK]
        block[:] = _laplace_block(t, block.size, source)
    return out


def _laplace_block(t: float, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return signed_floor_log(t, _zero_offset(t), _share_zero, count, rng)


def _zero_offset(t: float) -> float:
    """ln(2/(1 + q)) in double precision."""
    return -math.log1p(math.expm1(-1 / t) / 2)


def _share_zero(t: Decimal) -> Decimal:
    """ln(2/(1 + q)), which gives each sign half of the mass of 0."""
    return (2 / (1 + (-1 / t).exp())).ln()


def discrete_gaussian(
    sigma: float, shape: int | tuple[int, ...] = (), *, rng: np.random.Generator | None = None
) -> NDArray[np.int64]:
    """Integers with P(k) ∝ exp(−k²/(2·sigma²)), exactly.

    Parameters
    ----------
    sigma : float
        In [2⁻⁴⁰, 2⁴⁰]. The variance is at most sigma², and within 10⁻⁶ of it from sigma = 1 on.
    shape : int or tuple of int
        Of the result.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.

    Returns
    -------
    ndarray of int64

    Raises
    ------
    ValueError
        If ``sigma`` is outside [2⁻⁴⁰, 2⁴⁰].

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.samplers import discrete_gaussian
    >>> noise = discrete_gaussian(1e6, 10_000, rng=np.random.default_rng(0))
    >>> bool(abs(noise.std() / 1e6 - 1) < 0.03)
    True
    """
    sigma = check_scale("sigma", sigma)
    source = randomness.resolve(rng)
    out = np.empty(shape, dtype=np.int64)
    flat = out.reshape(-1)
    t = math.floor(sigma) + 1
    variance = Fraction(sigma) ** 2
    centre = float(variance / t)
    filled = 0
    while filled < flat.size:
        proposals = _laplace_block(t, min(BLOCK, 16 + (flat.size - filled) * 3 // 2), source)

        def exponent(i: int, proposals: NDArray[np.int64] = proposals) -> Fraction:
            return (abs(int(proposals[i])) - variance / t) ** 2 / (2 * variance)

        x = np.abs(proposals) - centre
        x /= math.sqrt(2) * sigma
        x *= x
        kept = proposals[bernoulli_exp_block(x, exponent, source)][: flat.size - filled]
        flat[filled : filled + kept.size] = kept
        filled += kept.size
    return out


def bernoulli_exp(x: ArrayLike, *, rng: np.random.Generator | None = None) -> NDArray[np.bool_]:
    """For each entry of ``x``, True with probability exp(−x), exactly.

    Parameters
    ----------
    x : array_like of float, any shape
        Nonnegative and finite.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.

    Returns
    -------
    ndarray of bool, of the shape of ``x``

    Examples
    --------
    >>> from dpkit.samplers import bernoulli_exp
    >>> bernoulli_exp([0.0, 1e6])
    array([ True, False])
    """
    exponents = np.asarray(x, dtype=np.float64)
    if not np.all((exponents >= 0) & np.isfinite(exponents)):
        raise ValueError(f"x must be nonnegative and finite, got x={x!r}")
    source = randomness.resolve(rng)
    flat = exponents.reshape(-1)
    out = np.empty(flat.size, dtype=np.bool_)
    for start in range(0, flat.size, BLOCK):
        block = flat[start : start + BLOCK]

        def exponent(i: int, block: NDArray[np.float64] = block) -> Fraction:
            return Fraction(float(block[i]))

        out[start : start + BLOCK] = bernoulli_exp_block(block, exponent, source)
    return out.reshape(exponents.shape)

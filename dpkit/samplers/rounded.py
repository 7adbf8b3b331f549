"""Laplace and Gaussian noise rounded to integers, with exactly the law of the rounded real number.

For an integer k and real noise Z, k + ⌊Z⌉ = ⌊k + Z⌉: adding rounded noise to an integer is a function of the
real-valued mechanism's output, so it costs exactly what that mechanism costs (exact Gaussian differential privacy for
the Gaussian, the Laplace mechanism's own curve for Laplace), in any dimension. The discrete Gaussian and the discrete
Laplace (``discrete``) have other laws and other, slightly more expensive, bounds.

* Laplace of scale t: a random sign, and ⌊−t·ln U + ½⌋.
* Gaussian: boxes under the density (``_boxes``); a few values one by one, E = −ln U being kept as |Z| with probability
  exp(−(E − 1)²/2), the ratio of the half-normal density to the exponential one up to a constant: a random sign, and
  ⌊σE + ½⌋.

Decisions are taken in double precision with a bound on their error, and settled with further random bits and digits
where the bound leaves them open, as in ``discrete``.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpkit import randomness
from dpkit.samplers import _filtered
from dpkit.samplers._boxes import scaled_normals
from dpkit.samplers._exact import LazyUniform, random_word, rounded_half_normal
from dpkit.samplers._filtered import BLOCK, FEW, check_scale, half_step, log_one

__all__ = ["half_normal_trial", "rounded_gaussian", "rounded_gaussian_one", "rounded_laplace", "rounded_laplace_one"]


def rounded_laplace(
    scale: float, shape: int | tuple[int, ...] = (), *, rng: np.random.Generator | None = None
) -> NDArray[np.int64]:
    """The nearest integers to Laplace variables of scale ``scale``, exactly.

    Parameters
    ----------
    scale : float
        t, in [2⁻⁴⁰, 2⁴⁰].
    shape : int or tuple of int
        Of the result.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.

    Returns
    -------
    ndarray of int64

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.samplers import rounded_laplace
    >>> noise = rounded_laplace(20.0, 10_000, rng=np.random.default_rng(1))
    >>> noise.dtype, bool(abs(np.abs(noise).mean() - 20) < 1)
    (dtype('int64'), True)
    """
    t = check_scale("scale", scale)
    source = randomness.resolve(rng)
    out = np.empty(shape, dtype=np.int64)
    flat = out.reshape(-1)
    if flat.size <= FEW:
        flat[:] = [rounded_laplace_one(t, source) for _ in range(flat.size)]
        return out
    for start in range(0, flat.size, BLOCK):
        block = flat[start : start + BLOCK]
        block[:] = _filtered.signed_floor_log(t, 0.5 / t, half_step, block.size, source)
    return out


def rounded_laplace_one(scale: float, rng: np.random.Generator) -> int:
    """One value of :func:`rounded_laplace`, of a checked scale."""
    return _filtered.signed_floor_log_one(scale, 0.5 / scale, half_step, rng)


def rounded_gaussian(
    sigma: float, shape: int | tuple[int, ...] = (), *, rng: np.random.Generator | None = None
) -> NDArray[np.int64]:
    """The nearest integers to centred Gaussian variables of standard deviation ``sigma``, exactly.

    Parameters
    ----------
    sigma : float
        In [2⁻⁴⁰, 2⁴⁰]. The variance is about sigma² + 1/12.
    shape : int or tuple of int
        Of the result.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.

    Returns
    -------
    ndarray of int64

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.samplers import rounded_gaussian
    >>> noise = rounded_gaussian(1e6, 10_000, rng=np.random.default_rng(0))
    >>> bool(abs(noise.std() / 1e6 - 1) < 0.03)
    True
    """
    sigma = check_scale("sigma", sigma)
    source = randomness.resolve(rng)
    out = np.empty(shape, dtype=np.int64)
    flat = out.reshape(-1)
    if flat.size <= FEW:
        flat[:] = [rounded_gaussian_one(sigma, source) for _ in range(flat.size)]
        return out
    scaled_normals(sigma, flat, source)
    return out


def rounded_gaussian_one(sigma: float, rng: np.random.Generator) -> int:
    """One value of :func:`rounded_gaussian`, of a checked scale: trials until one is kept."""
    while True:
        value = half_normal_trial(sigma, random_word(rng), random_word(rng), rng)
        if value is not None:
            return value


def half_normal_trial(sigma: float, word: int, height: int, rng: np.random.Generator) -> int | None:
    """The nearest integer to ±σE, or None where it is rejected; E and the sign are a word's, V is the other one."""
    y, error = log_one(word, 0.5 / sigma)
    if error < math.inf:
        e = y - (0.5 / sigma + 1)
        margin = (height >> 1) * 2.0**-63 - math.exp(-e * e / 2)
        low = max(math.floor(sigma * (y - error)), 0)
        # an error of E moves exp(−(E − 1)²/2) by less than as much
        settled = abs(margin) > error + _filtered.EXP_ERROR
        if settled and margin >= 0:
            return None
        if settled and low == math.floor(sigma * (y + error)):
            return -low if word & 1 else low
    u = LazyUniform(word >> 1, 63, rng)
    value = rounded_half_normal(u, LazyUniform(height, 64, rng), Fraction(sigma), half_step)
    return -value if value is not None and word & 1 else value

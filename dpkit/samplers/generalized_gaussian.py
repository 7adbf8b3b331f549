"""Generalized Gaussian vectors: density ∝ exp(−‖z‖_r²/(2σ²))."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from accounting.checks import integer, positive
from dpkit import randomness
from dpkit.samplers._exact import random_words

__all__ = ["generalized_gaussian"]


def generalized_gaussian(
    norm: float,
    sigma: float,
    dimension: int,
    shape: int | tuple[int, ...] = (),
    *,
    rng: np.random.Generator | None = None,
) -> NDArray[np.float64]:
    """Floating-point vectors with density ∝ exp(−‖z‖_r²/(2·sigma²)) in R^dimension.

    The radius ‖z‖_r and the direction z/‖z‖_r are independent: ‖z‖_r² ~ Gamma(d/2, scale 2σ²), that is σ²χ²_d, and
    the direction follows the cone measure of the unit sphere, which is that of a vector with independent coordinates
    of density ∝ exp(−|x|^r) (Schechtman & Zinn 1990). There |x|^r ~ Gamma(1/r), drawn as |x| = G^(1/r)·U with
    G ~ Gamma(1 + 1/r) and U uniform.

    Parameters
    ----------
    norm : float
        r ≥ 1, finite; 2 gives the ordinary Gaussian.
    sigma : float
        Positive.
    dimension : int
        d, at least 1.
    shape : int or tuple of int
        How many vectors.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.

    Returns
    -------
    ndarray of float64, shape ``(*shape, dimension)``

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.samplers import generalized_gaussian
    >>> z = generalized_gaussian(3.0, 2.0, 5, 1000, rng=np.random.default_rng(0))
    >>> z.shape, bool(abs(np.mean(np.linalg.norm(z, 3, axis=-1) ** 2) / 4 - 5) < 0.5)
    ((1000, 5), True)
    """
    r, sigma = positive("norm", norm), positive("sigma", sigma)
    if r < 1:
        raise ValueError(f"norm must be at least 1, got norm={norm!r}")
    d = integer("dimension", dimension, at_least=1)
    source = randomness.resolve(rng)
    leading = (shape,) if isinstance(shape, int) else shape
    if r == 2:
        return sigma * source.standard_normal((*leading, d))
    x = source.standard_gamma(1 + 1 / r, size=(*leading, d)) ** (1 / r)
    x *= 1 - source.random((*leading, d))
    signs = random_words(source, -(-x.size // 64)).view(np.uint8)
    np.negative(x, out=x, where=np.unpackbits(signs, count=x.size).view(np.bool_).reshape(x.shape))
    x /= np.max(np.abs(x), axis=-1, keepdims=True)  # so that no power underflows as a whole
    norms = np.sum(np.abs(x) ** r, axis=-1, keepdims=True) ** (1 / r)
    radius = sigma * np.sqrt(2 * source.standard_gamma(d / 2, size=(*leading, 1)))
    x *= radius / norms
    return x

"""The way of a real vector to integers and back: scale by 1/γ, round, add integer noise, multiply by γ.

γ (the granularity) is a power of two, so that scaling is exact in binary and the only rounding is the intended one.
Rounding to the nearest integer moves each coordinate by at most ½, hence the difference of two rounded vectors by at
most 1 per coordinate: an L2 sensitivity s becomes at most s/γ + √n on the integers, an L1 sensitivity s/γ + n.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from accounting.checks import integer, positive

__all__ = [
    "check_granularity",
    "default_granularity",
    "from_lattice",
    "lattice_scale",
    "lattice_sensitivity",
    "lattice_step",
    "to_lattice",
]

# Of the rounded value. Noise of a scale up to 2⁴⁰ passes 2⁶² with a probability below exp(−2²¹).
_LIMIT = 2.0**62


def default_granularity(sensitivity: float, dimension: int, *, norm: int) -> float:
    """The largest power of two that raises the sensitivity of ``dimension`` coordinates by at most 2⁻¹⁰ of itself.

    Parameters
    ----------
    sensitivity : float
        In the ``norm``, 1 or 2.
    dimension : int
        n, the number of rounded coordinates.
    norm : {1, 2}
        Of the sensitivity.

    Examples
    --------
    >>> from dpkit.samplers.lattice import default_granularity
    >>> default_granularity(1.0, 1, norm=2), default_granularity(1.0, 100, norm=2)
    (0.0009765625, 6.103515625e-05)
    """
    n = integer("dimension", dimension, at_least=1)
    exponent = math.frexp(positive("sensitivity", sensitivity) / n ** (1 / norm))[1] - 1
    return math.ldexp(1.0, exponent - 10)


def check_granularity(granularity: float) -> float:
    """``granularity`` as a float, if it is a power of two."""
    value = positive("granularity", granularity)
    if math.frexp(value)[0] != 0.5:
        raise ValueError(f"granularity must be a power of two, got granularity={granularity!r}")
    return value


def lattice_sensitivity(sensitivity: float, granularity: float, dimension: int, *, norm: int) -> float:
    """s/γ + n^(1/norm), rounded up: how far two rounded vectors can be apart, in units of γ.

    Examples
    --------
    >>> from dpkit.samplers.lattice import lattice_sensitivity
    >>> round(lattice_sensitivity(1.0, 0.25, 9, norm=2), 9), round(lattice_sensitivity(1.0, 0.25, 9, norm=1), 9)
    (7.0, 13.0)
    """
    enlarged: float = sensitivity / granularity + dimension ** (1 / norm)
    return enlarged * (1 + 2.0**-50)


def lattice_scale(
    noise_multiplier: float, sensitivity: float, granularity: float, dimension: int, *, norm: int
) -> float:
    """The scale of the integer noise: ``noise_multiplier`` × :func:`lattice_sensitivity`, rounded up.

    Raises
    ------
    ValueError
        If it is beyond 2⁴⁰ (where noise and rounded value could overflow, and sampling is slow) or below 2⁻⁴⁰.
    """
    scale = noise_multiplier * lattice_sensitivity(sensitivity, granularity, dimension, norm=norm) * (1 + 2.0**-50)
    if not 2.0**-40 <= scale <= 2.0**40:
        raise ValueError(
            "noise_multiplier × (sensitivity/granularity + rounding) must lie in [2**-40, 2**40] steps, got "
            f"noise_multiplier={noise_multiplier!r}, sensitivity={sensitivity!r}, granularity={granularity!r}"
        )
    return scale


def to_lattice(value: NDArray[np.float64], granularity: float) -> NDArray[np.int64]:
    """The nearest integers to ``value``/γ.

    Raises
    ------
    ValueError
        If one is beyond 2⁶² in size, from where noise could overflow the integers.

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.samplers.lattice import from_lattice, to_lattice
    >>> steps = to_lattice(np.array([0.3, -1.0]), 0.25)
    >>> steps, from_lattice(steps, 0.25)
    (array([ 1, -4]), array([ 0.25, -1.  ]))
    """
    largest = float(max(np.max(value, initial=0.0), -np.min(value, initial=0.0)))
    if not largest <= _LIMIT * granularity:
        raise ValueError(
            f"value must be at most 2**62 steps of granularity={granularity!r} in size, got an entry of {largest!r}"
        )
    steps = np.asarray(value / granularity)
    return np.rint(steps, out=steps).astype(np.int64)


def lattice_step(value: float, granularity: float) -> int:
    """What :func:`to_lattice` makes of one number; it must be finite."""
    if not math.isfinite(value):
        raise ValueError(f"value must be finite, got value={value!r}")
    return (
        round(value / granularity)
        if abs(value) <= _LIMIT * granularity
        else int(to_lattice(np.array(value), granularity))
    )


def from_lattice(steps: NDArray[np.int64], granularity: float) -> NDArray[np.float64]:
    """γ·``steps`` as float64 (correctly rounded: it reads only what the noisy integers say)."""
    values = np.asarray(steps.astype(np.float64))
    values *= granularity
    return values

"""The hockey-stick divergence of Gaussian DP, D_r(e) = Φ(−e/√r + √r/2) − e^e·Φ(−e/√r − √r/2), on arrays."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["divergence"]

Array = NDArray[np.float64]

# Four points of Gauss and Legendre on [−1, 1].
_NODES = np.array([-0.8611363115940526, -0.3399810435848563, 0.3399810435848563, 0.8611363115940526])
_WEIGHTS = np.array([0.3478548451374538, 0.6521451548625461, 0.6521451548625461, 0.3478548451374538])


def divergence(e: Array, r: float) -> Array:
    """D_r(e) of either sign, to twelve digits: φ(t₁)(M(t₁) − M(t₂)) with Mills' ratio M."""
    root, far = math.sqrt(r), np.abs(e)
    t1, t2 = far / root - root / 2, far / root + root / 2
    with np.errstate(under="ignore"):
        if root < 0.1:
            # t₁ and t₂ are close: −M′ = 1 − xM is integrated instead, by four points
            middle = (far / root)[:, None] + _NODES * (root / 2)
            apart = (1 - middle * _mills(middle)) @ _WEIGHTS * (root / 2)
            found = np.exp(-0.5 * t1 * t1) * apart / math.sqrt(2 * math.pi)
        else:
            found = _normal_tail(t1) - np.exp(-0.5 * t1 * t1) * _mills(t2) / math.sqrt(2 * math.pi)
        return np.asarray(np.where(e >= 0, found, -np.expm1(-far) + np.exp(-far) * found))


def _mills(x: Array) -> Array:
    """The normal tail over its density."""
    from scipy.special import erfcx

    return np.asarray(math.sqrt(math.pi / 2) * erfcx(x * math.sqrt(0.5)))


def _normal_tail(x: Array) -> Array:
    """Φ(−x), from Mills' ratio where e^(−x²/2) is common to both terms of a difference."""
    from scipy.special import ndtr

    right = np.maximum(x, 0.0)
    return np.asarray(np.where(x > 0, np.exp(-0.5 * right * right) * _mills(right) / math.sqrt(2 * math.pi), ndtr(-x)))

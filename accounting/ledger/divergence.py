"""The hockey-stick divergence of Gaussian DP, D_r(e) = Φ(−e/√r + √r/2) − e^e·Φ(−e/√r − √r/2), on arrays."""

from __future__ import annotations

import math

import numpy as np

from accounting.arrays import Array

__all__ = ["divergence"]


# Four points of Gauss and Legendre on [−1, 1].
_NODES = np.array([-0.8611363115940526, -0.3399810435848563, 0.3399810435848563, 0.8611363115940526])
_WEIGHTS = np.array([0.3478548451374538, 0.6521451548625461, 0.6521451548625461, 0.3478548451374538])
# of the bell e^(−x²/2)
_AREA = math.sqrt(2 * math.pi)


def divergence(e: Array, r: float) -> Array:
    """D_r(e) of either sign, to twelve digits: φ(t₁)(M(t₁) − M(t₂)) with Mills' ratio M."""
    root, far = math.sqrt(r), np.abs(e)
    t1, t2 = far / root - root / 2, far / root + root / 2
    with np.errstate(under="ignore"):
        bell = np.exp(-0.5 * t1 * t1)
        if root < 0.1:
            # t₁ and t₂ are close: −M′ = 1 − xM is integrated instead, by four points
            middle = (far / root)[:, None] + _NODES * (root / 2)
            apart = (1 - middle * _mills(middle)) @ _WEIGHTS * (root / 2)
            found = bell * apart / _AREA
        else:
            # the bell is common to both terms of the difference, but for t₁ ≤ 0
            found = bell * _mills(np.maximum(t1, 0.0)) / _AREA
            if (inside := t1 <= 0).any():
                from scipy.special import ndtr

                found[inside] = ndtr(-t1[inside])
            found -= bell * _mills(t2) / _AREA
        if (below := e < 0).any():
            less = far[below]
            found[below] = -np.expm1(-less) + np.exp(-less) * found[below]
    return np.asarray(found)


def _mills(x: Array) -> Array:
    """The normal tail over its density."""
    from scipy.special import erfcx

    return np.asarray(math.sqrt(math.pi / 2) * erfcx(x * math.sqrt(0.5)))

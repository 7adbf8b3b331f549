"""The ℓ_r norm after which noise for an ℓ_q sensitivity is shaped, and the constant κ that this costs.

For r ≥ 2 the square of ‖·‖_r is (r − 1)-smooth (Juditsky & Nemirovski 2008, example 3.2), and for r ≤ q
‖x‖_r ≤ d^(1/r − 1/q)·‖x‖_q: together κ(r) = (r − 1)·d^(2/r − 2/q). It has its interior minimum where
r² = 2 ln d·(r − 1), at r = ln d + √(ln²d − 2 ln d); beside it the ends 2 and q can be smallest.
"""

from __future__ import annotations

import math

from accounting.checks import integer, positive

__all__ = ["best_norm", "distorted_smoothness"]


def best_norm(q: float, dimension: int) -> tuple[float, float]:
    """The r of the smallest κ, and that κ, for a sensitivity in ℓ_q over R^``dimension``.

    Examples
    --------
    >>> from dpkit.geometry import best_norm
    >>> best_norm(1.5, 1000)
    (2.0, 1.0)
    >>> r, kappa = best_norm(float("inf"), 1000)
    >>> round(r, 3), round(kappa, 3)
    (12.73, 34.724)
    """
    exponent = positive("q", q, finite=False)
    if exponent < 1:
        raise ValueError(f"q must be at least 1, got q={q!r}")
    log_d = math.log(integer("dimension", dimension, at_least=1))
    candidates = [2.0]
    if 2 < exponent < math.inf:
        candidates.append(exponent)
    if log_d >= 2:
        interior = log_d + math.sqrt(log_d * log_d - 2 * log_d)
        candidates += [interior] if interior < exponent else []
    return min(((r, distorted_smoothness(r, exponent, dimension)) for r in candidates), key=lambda pair: pair[1])


def distorted_smoothness(r: float, q: float, dimension: int) -> float:
    """κ of noise shaped after ℓ_r, 2 ≤ r ≤ q, for a sensitivity in ℓ_q over R^``dimension``."""
    return (r - 1) * math.exp(max(0.0, 2 / r - 2 / q) * math.log(dimension))

"""The Kullback–Leibler divergence of Bernoulli laws, and the confidence bound that it gives: the index of KL-UCB.

    d(p, q) = p·ln(p/q) + (1 − p)·ln((1 − p)/(1 − q)),      0·ln 0 = 0.

By Chernoff's bound the mean p of n independent numbers in [0, 1] with expectation q has d(p, q) ≥ c, p < q, with
probability at most exp(−n·c). So the largest q with d(p, q) ≤ c lies below the true mean that rarely.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from accounting.arrays import Array

__all__ = ["divergence", "upper_mean"]

# Newton's steps double the digits; as a guard against an endless loop only
_MOST_STEPS = 60
_TOLERANCE = 1e-13


def divergence(p: ArrayLike, q: ArrayLike) -> Array:
    """d(p, q), entry by entry, for p and q in [0, 1]; infinite where q is 0 or 1 and p is not.

    Examples
    --------
    >>> import numpy as np
    >>> divergence([0.0, 0.5, 1.0], 0.5).round(6).tolist()
    [0.693147, 0.0, 0.693147]
    """
    from scipy.special import rel_entr

    first, second = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    return np.asarray(rel_entr(first, second) + rel_entr(1.0 - first, 1.0 - second))


def upper_mean(p: ArrayLike, bound: ArrayLike) -> Array:
    """The largest q in [p, 1] with d(p, q) ≤ ``bound``, entry by entry, to 10⁻¹² and from above.

    Parameters
    ----------
    p : array_like
        In [0, 1].
    bound : array_like
        At least 0.

    Examples
    --------
    >>> import numpy as np
    >>> q = upper_mean([0.0, 0.3, 1.0], 0.1)
    >>> q.round(6).tolist(), divergence(0.3, q[1]).round(9).item()
    ([0.095163, 0.521028, 1.0], 0.1)
    """
    p, bound = np.broadcast_arrays(np.asarray(p, dtype=np.float64), np.asarray(bound, dtype=np.float64))
    # d is convex in q, so that Newton's steps from the right of the solution never pass it. To its right lie what
    # Pinsker's inequality says, and what d(p, q) ≥ (1 − p)·ln(1/(1 − q)) − h(p) does, h the entropy
    rest, entropy = 1.0 - p, divergence(p, 0.5)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        far = -np.expm1(-(bound + np.log(2.0) - entropy) / rest)
        q = np.where(rest > 0.0, np.minimum(np.minimum(p + np.sqrt(0.5 * bound), 1.0), far), 1.0)
        for _ in range(_MOST_STEPS):
            step = (divergence(p, q) - bound) * q * (1.0 - q) / (q - p)
            # also at the ends, where there is nothing to divide by
            step = np.where(np.isfinite(step), np.maximum(step, 0.0), 0.0)
            q = q - step
            if (step <= _TOLERANCE).all():
                break
    return np.asarray(np.clip(q, p, 1.0))

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
# of a denominator, which may vanish where q = p; and the largest number below 1
_TINY, _BELOW_ONE = 1e-300, 1.0 - 2.0**-53


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
    """The largest q in [p, 1] with d(p, q) ≤ ``bound``, entry by entry, to 10⁻¹⁰.

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
    from scipy.special import rel_entr

    first, least = np.broadcast_arrays(np.asarray(p, dtype=np.float64), np.asarray(bound, dtype=np.float64))
    found = np.where(first < 1.0, -np.expm1(-least), 1.0)  # for p = 0, and p = 1
    inside = (first > 0.0) & (first < 1.0)
    low, c = first[inside], least[inside]
    # d is convex in q, so that Newton's steps from the right of the solution never pass it. To its right lie what
    # Pinsker's inequality says, and what d(p, q) ≥ (1 − p)·ln(1/(1 − q)) − h(p) does, h the entropy
    rest = 1.0 - low
    far = -np.expm1(-(c - low * np.log(low) - rest * np.log(rest)) / rest)
    q = np.minimum(np.minimum(low + np.sqrt(0.5 * c), far), _BELOW_ONE)
    for _ in range(_MOST_STEPS):
        above = rel_entr(low, q) + rel_entr(rest, 1.0 - q) - c
        step = np.maximum(above, 0.0) * q * (1.0 - q) / np.maximum(q - low, _TINY)
        q = np.maximum(q - step, low)
        if step.max(initial=0.0) <= _TOLERANCE:
            break
    found[inside] = q
    return found

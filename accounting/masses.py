"""The probability that two distributions give to intervals of the privacy loss, rounded outwards."""

from __future__ import annotations

import numpy as np

from accounting.arrays import Array

__all__ = ["between_places", "laplace_below", "mass_errors", "onto_edges", "onto_lattice", "split"]


def between_places(x: Array, tails: Array) -> Array:
    """What a law that is symmetric around 0 has up to x[0], between neighbouring x, and above the last.

    ``tails`` are its probabilities beyond |x|: of every difference the smaller ones are taken.
    """
    tails = np.concatenate([[0.0], tails, [0.0]])
    right = np.concatenate([[False], x > 0, [True]])
    masses = np.where(right[1:], -tails[1:], tails[1:]) - np.where(right[:-1], -tails[:-1], tails[:-1])
    masses[right[1:] & ~right[:-1]] += 1.0
    return np.asarray(masses)


def onto_lattice(places: Array, mass: Array) -> Array:
    """Masses at real ``places`` ≥ 0, each spread onto the two whole numbers around it: the law keeps its mean."""
    cells = np.floor(places).astype(np.int64)
    up, size = mass * (places - cells), int(cells.max()) + 2
    law = np.bincount(cells, weights=mass - up, minlength=size) + np.bincount(cells + 1, weights=up, minlength=size)
    return np.asarray(law, dtype=np.float64)


def onto_edges(mass: Array, moment: Array, edges: Array) -> Array:
    """Masses between neighbouring edges, each spread onto both of them so that Σx·mass of it remains its ``moment``."""
    up = np.clip((moment - edges[:-1] * mass) / np.diff(edges), 0.0, mass)
    law = np.zeros(edges.size)
    law[1:] += up
    law[:-1] += mass - up
    return law


def laplace_below(x: Array) -> Array:
    """The probability that Laplace noise of scale 1 is at most x."""
    tail = 0.5 * np.exp(-np.abs(x))
    return np.asarray(np.where(x < 0, tail, 1 - tail))


def mass_errors(mass: Array) -> Array:
    """How far masses of neighbouring intervals may be off: differences of distribution functions."""
    below = np.cumsum(mass)
    tail = np.minimum(below, below[-1] - below + mass)
    return np.asarray(tail * np.where(tail > 1e-3, 3e-14, 3e-12))


def split(p: Array, q: Array, edges: Array, *, lower: bool = False) -> Array:
    """Mass on the edges that dominates the pair between them (P and Q as in ``masses``; above the last is left out).

    Interval masses are differences of distribution functions, right to a few units in the last place of the smaller
    tail times its logarithm. With ``lower`` the errors are taken downwards, and what is below the first edge is left
    out too.
    """
    sign = -1.0 if lower else 1.0
    low, high = edges[:-1], edges[1:]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        inner_p = np.maximum(p[1:-1] + sign * mass_errors(p)[1:-1], 0.0)
        # e^low·Q, through e^(low)·Q ≤ P wherever Q is itself too small for its own digits
        inner_q = np.exp(np.minimum(low, 700.0)) * np.maximum(q[1:-1] - sign * mass_errors(q)[1:-1], 0.0)
        upper = np.clip((inner_p - inner_q) / -np.expm1(low - high), 0.0, inner_p)
        upper = np.where(high > low, upper, inner_p)
    total = np.zeros(edges.size)
    total[1:] += upper
    total[:-1] += inner_p - upper
    if not lower:
        total[0] += p[0] * (1 + 1e-14)
    return total

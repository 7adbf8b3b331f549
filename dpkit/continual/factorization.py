"""What a continual mechanism is made of: a factorization of the prefix sums, as a program for the rows of each factor.

Let A be the all-ones lower triangle and A = B·C, both factors revealed row by row. A stream x_1, x_2, … is encoded as
the rows of C·x, noise is added to them, and B of the result leaves: A·x plus the noise B·ζ. Here the encoded rows are
integers, in units of a public step γ, and so is the noise (:mod:`dpkit.continual.sums` adds it):

    k_t = ⌊(C·x/γ)_t⌉,    z_t = k_t + noise,    y = γB·z.

A :class:`Factorization` computes k from the inputs (``encode``; its state is secret) and y/γ from z (``decode``, which
depends on z alone). It may subtract from a row what the earlier z, which are public, say of it. Whatever else a
mechanism promises (exactness, cost, states, marks) is the same for all, so a new factorization is a new mechanism.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.checks import integer
from dpkit.continual.coefficients import ROUNDING

__all__ = [
    "UNIT_ROUNDOFF",
    "Factorization",
    "checked_horizon",
    "joint_norm_of",
    "most_participations",
    "norm_of_ones",
    "reach_of",
]

# u: the relative error of one operation in double precision
UNIT_ROUNDOFF = 2.0**-53

# what an int64 counts, so that every state fits into a file of plain numbers
_LONGEST = 2**62


class Factorization(ABC):
    """The factors of prefix sums over at most ``horizon`` inputs, and the state of one stream that runs through them.

    Inputs arrive as vectors v = x/γ of float64 with entries cut to [−``reach``, ``reach``]; encoded rows are int64. A
    subclass sets the attributes when it is made, and has to keep one promise, for whatever inputs and whatever z are
    returned to it: if v and v′ differ in one input by Δ, and z is the same, then the encoded rows satisfy

        ‖k − k′‖ ≤ column_norm·‖Δ‖ + excess(dimension, order)        (in L2 for order 2, in L1 for order 1)

    however the inputs are grouped into calls. That bound includes what float64 does to k, but not to v. If v and v′
    differ in at most m inputs, any two of them b or more steps apart, by ‖Δ‖ or less each, the same holds with
    ``joint_norm(m, b)`` in place of the column norm.

    Attributes
    ----------
    horizon : int
        T.
    column_norm : float
        N, at least the L2 norm of every column of C, rounded up.
    reach : float
        V: entries of v beyond it are cut, which lengthens no distance.
    fineness : float
        γ is at most sensitivity/fineness, for an encoder whose rounding adds up in the sums; 0 for others.
    largest_noise : float
        The largest standard deviation of noise, in units of γ, that the encoder has room for.
    in_parts : bool
        Whether ``many`` is called on parts of its inputs that fit into the processor's cache.
    agreement : float
        How far, relatively, the norms that two machines compute of one saved factor may lie apart. They are rounded up
        by as much or more.

    Examples
    --------
    >>> from dpkit.continual import ContinualSum
    >>> from dpkit.continual.banded import inverse_root
    >>> sums = ContinualSum(inverse_root(100, bands=8), shape=(), sensitivity=1.0, noise_multiplier=4.0)
    >>> sums.horizon
    100
    """

    horizon: int
    column_norm: float = 1.0
    reach: float
    fineness: float = 0.0
    largest_noise: float = math.inf
    in_parts: bool = True
    agreement: float = ROUNDING - 1.0

    def __init__(self, horizon: int) -> None:
        self.horizon = checked_horizon(horizon)

    @abstractmethod
    def begin(self, dimension: int, dtype: np.dtype[Any]) -> None:
        """Make the state of an empty stream; ``dtype`` is that of encoded rows (int64, float64 where noise is real)."""

    def check(self, t: int, v: NDArray[Any]) -> None:  # noqa: B027 (most have nothing to refuse)
        """Refuse inputs (rows) that cannot be taken at step t, before anything changes."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(horizon={self.horizon:,})"

    @abstractmethod
    def encode(self, t: int, v: NDArray[Any]) -> NDArray[Any]:
        """The rows of C·v, rounded, that input t (from 0) completes: shape (rows, dimension), a new array."""

    @abstractmethod
    def decode(self, t: int, z: NDArray[Any]) -> NDArray[Any]:
        """The t-th row of B·z, shape (dimension,), from the noisy rows of step t.

        ``z`` is an array only until the next call, and so is the result. It follows ``encode`` of the same step, whose
        state may take z into account here.
        """

    @abstractmethod
    def secret(self, t: int) -> dict[str, NDArray[Any]]:
        """The live arrays of the encoder after ``t`` inputs, by name."""

    @abstractmethod
    def public(self, t: int) -> dict[str, NDArray[Any]]:
        """The live arrays of the decoder after ``t`` inputs, by name."""

    def as_saved(self, arrays: Mapping[str, NDArray[Any]]) -> Factorization:
        """The factorization that a saved stream goes on with: this one, unless the stream has kept its own factor.

        Raises
        ------
        ValueError
            If what was kept is no factor of this kind.
        """
        return self

    def check_saved(self, arrays: Mapping[str, NDArray[Any]]) -> None:  # noqa: B027 (a state that cannot be wrong)
        """Refuse saved arrays that no stream can have reached, and for which the promise would not hold."""

    @abstractmethod
    def error(self, t: int) -> float:
        """The norm of the t-th row of B, 1 ≤ t ≤ horizon: what noise of unit variance becomes in the t-th sum."""

    def joint_norm(self, participations: int, min_separation: int = 1) -> float:
        """At least max ‖Σ_{j∈S} Ce_j‖ over the sets S of so many columns, any two of them so many steps apart.

        By default by the triangle inequality, for any C; where C ≥ 0, by :func:`joint_norm_of` from its columns' inner
        products.
        """
        return self.column_norm * most_participations(self.horizon, participations, min_separation)

    def excess(self, dimension: int, order: int) -> float:
        """How much farther rounding may take k and k′ apart: 4 in each of the horizon × dimension entries.

        Of those at most 1 is the rounding to integers, and 2η ≤ 3 what float64 does before that, with η ≤ 1.5 as in
        :func:`reach_of`. As norms count, η may be the root mean square over the entries of a call.
        """
        return 4.0 * norm_of_ones(float(self.horizon) * dimension, order)

    def one(self, t: int, v: float, noisy: Callable[[int], int]) -> float:
        """The sum after input t of a stream of single numbers: ``decode`` after ``encode``, where arrays would be slow.

        ``noisy`` takes one entry of the encoded rows to z.
        """
        rows = self.encode(t, np.array([v]))
        z = np.array([[noisy(k)] for k in rows.ravel().tolist()], rows.dtype)
        return float(self.decode(t, z)[0])

    def many(self, t: int, v: NDArray[Any], noisy: Callable[[NDArray[Any]], NDArray[Any]]) -> NDArray[Any]:
        """The sums after each of the inputs t, …, t + len(v) − 1; ``noisy`` takes encoded rows to z."""
        sums = np.empty_like(v)
        for i, row in enumerate(v):
            sums[i] = self.decode(t + i, noisy(self.encode(t + i, row)))
        return sums


def most_participations(horizon: int, participations: int, min_separation: int) -> int:
    """How many inputs of one unit a stream really has, if any two of them are ``min_separation`` steps apart."""
    separation = integer("min_separation", min_separation, at_least=1)
    return min(integer("participations", participations, at_least=1), -(-horizon // separation))


def joint_norm_of(inner: Callable[[int], float], participations: int, min_separation: int) -> float:
    """√(max over S of ‖Σ_{j∈S} Ce_j‖²), or somewhat more, for C with nonnegative inner products of its columns.

    Parameters
    ----------
    inner : callable
        g ↦ at least ⟨Ce_i, Ce_j⟩ for all i and j that are g steps apart or more; g = 0: the squared column norm.
    participations, min_separation : int
        m and b; S = {s_1 < … < s_m}.

    Notes
    -----
    Of contributions u_jΔ with ‖u_j‖ ≤ 1 the encoded stream moves by Σ_j Ce_j u_jᵀ, of squared norm
    Σ_ij ⟨Ce_i, Ce_j⟩⟨u_i, u_j⟩: with nonnegative ⟨Ce_i, Ce_j⟩ it is largest where all u_j are equal, and then that of
    ΣCe_j. As s_k and s_l are |k − l|b apart or more, it is at most m·inner(0) + 2Σ_{g<m} (m − g)·inner(g·b). ``inner``
    falls with g, so beyond g = 64 it is asked on a grid of steps of 2 %, and what lies between gets the value before.

    Examples
    --------
    >>> round(joint_norm_of(lambda gap: 0.5**gap, 2, 1) ** 2, 12)
    3.0
    """
    total, g = participations * inner(0), 1
    while g < participations:
        stop = min(participations, g + 1 if g < 64 else int(1.02 * g))
        # Σ (m − k) for g ≤ k < stop
        pairs = (stop - g) * participations - (stop * (stop - 1) - g * (g - 1)) // 2
        total += 2.0 * pairs * inner(g * min_separation)
        g = stop
    return math.sqrt(total)


def reach_of(row_sum: float, operations: float) -> float:
    """V such that η ≤ 1.5: η is the distance of the float64 number that is rounded to k_t from (C·v)_t itself.

    Parameters
    ----------
    row_sum : float
        K, at least the largest Σ_s |C_ts|, so that |(C·v)_t| ≤ K·V.
    operations : float
        κ such that η ≤ κ·u·K·V: for a dot product of n exact float64 numbers n (Higham 2002, §3.1: n·u/(1 − n·u)
        times Σ|C_ts v_s|, in whatever order and with or without fused operations); one more hundredth is added here.

    Notes
    -----
    So |k_t| ≤ K·V + 2 ≤ 1.5/(1.01·κ·u) + 2 < 2⁵⁴ for κ ≥ 1.
    """
    return 1.5 / (1.01 * operations * UNIT_ROUNDOFF * row_sum)


def checked_horizon(horizon: Any) -> int:
    """``horizon``, if it is a whole number of steps that a state can count."""
    checked = integer("horizon", horizon, at_least=1)
    if checked > _LONGEST:
        raise ValueError(f"horizon must be at most 2**62, got horizon={horizon!r}")
    return checked


def norm_of_ones(count: float, order: int) -> float:
    """The norm of a vector of ``count`` ones, in L1 or L2."""
    return math.sqrt(count) if order == 2 else float(count)

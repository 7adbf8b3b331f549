"""What every mechanism does before it draws: check the value, hold its norm, calibrate, record the cost."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Adjacency, Budget, Ledger, Release, calibrate
from accounting.checks import integer, positive
from dpkit import randomness

__all__ = ["charge", "check_bound", "real_array", "smallest_multiplier", "within_norm"]

# A norm may pass its bound by this much and still be taken as meeting it; the value is then scaled back.
_ROUNDING = 2.0**-30


def real_array(name: str, value: ArrayLike, *, finite: bool = True) -> NDArray[np.float64]:
    """``value`` as a float64 array, if its real numbers fit float64 exactly (and, by default, are finite)."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise TypeError(f"{name} must be an array of real numbers of at most 64 bits, got {name}.dtype={array.dtype}")
    if array.dtype.kind in "iu" and array.size and max(abs(int(array.min())), abs(int(array.max()))) > 2**53:
        raise ValueError(f"{name} must be integers of at most 2**53 in size, got larger ones")
    converted = array.astype(np.float64, copy=False)
    if finite and not np.all(np.isfinite(converted)):
        bad = int(np.count_nonzero(~np.isfinite(converted)))
        raise ValueError(f"{name} must be finite, got {bad} entries that are NaN or infinite")
    return converted


def check_bound(norm_bound: float | None, clip: bool) -> float | None:
    """``norm_bound`` as a float or None; clipping needs one."""
    if norm_bound is None:
        if clip:
            raise ValueError("norm_bound must be given where clip=True, got norm_bound=None")
        return None
    return positive("norm_bound", norm_bound)


def within_norm(x: NDArray[np.float64], norm: float, bound: float | None, clip: bool) -> NDArray[np.float64]:
    """``x`` with every vector along its last axis inside the ball of radius ``bound``, exactly; by scaling if ``clip``.

    A vector above the bound by no more than rounding (a relative 2⁻³⁰) is scaled back too; beyond that it is refused.
    """
    if bound is None or x.size == 0:
        return x
    vectors = np.atleast_1d(x)
    lengths = _norms(vectors, norm)
    longest = float(lengths.max())
    if longest <= bound * (1 - 2.0**-40):
        return x
    if not clip and longest > bound * (1 + _ROUNDING):
        raise ValueError(f"value must have norm at most norm_bound={bound!r}, got a vector of norm {longest!r}")
    # the margin covers the rounding errors of the norm and of the product
    factors = np.minimum(1.0, bound * (1 - 2.0**-40) / np.maximum(lengths, np.finfo(np.float64).tiny))
    scaled: NDArray[np.float64] = (vectors * factors).reshape(x.shape)
    return scaled


def _norms(x: NDArray[np.float64], norm: float) -> NDArray[np.float64]:
    """ℓ_q norms along the last axis (kept), q = ``norm``, without overflow."""
    magnitudes = np.abs(x)
    largest: NDArray[np.float64] = magnitudes.max(axis=-1, keepdims=True)
    if math.isinf(norm):
        return largest
    relative = magnitudes / np.where(largest > 0, largest, 1.0)
    with np.errstate(over="ignore"):  # a norm beyond the floats is infinite: refused, or clipped to nothing
        return np.asarray(largest * np.sum(relative**norm, axis=-1, keepdims=True) ** (1 / norm))


def smallest_multiplier(make_release: Callable[[float, Adjacency], Release], budget: Budget, releases: int) -> float:
    """The smallest noise multiplier at which ``releases`` releases together meet ``budget``."""
    count = integer("releases", releases, at_least=1)
    if not isinstance(budget, Budget):
        raise TypeError(f"budget must be a Budget, got budget={budget!r}")
    return calibrate(lambda z: count * make_release(z, budget.adjacency), budget)


def charge(ledger: Ledger | None, cost: Release, label: str, rng: np.random.Generator) -> None:
    """Record a release that is about to happen, if there is a ledger; raises where the ledger refuses."""
    if ledger is not None:
        ledger.spend(cost, label=label, simulation=randomness.is_simulation(rng))

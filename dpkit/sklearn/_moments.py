"""Exact sums of what rows contribute, with noise: what the estimators without labels release.

A row's contribution is a vector of whole numbers that is computed from this row alone, and no longer than a bound that
the caller proves. A person's is the mean over that person's rows. It lies in the convex hull of contributions of single
rows (and of 0, as shares are rounded down), and no two points of a hull are farther apart than two of those that span
it, so that a bound for rows holds for people. Sums are taken in whole numbers, rounded once to a lattice of floats
(which adds its last digits, √D of them for D entries, to the sensitivity), and released with Gaussian noise.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import validate_data

from accounting import Adjacency, Budget, Gaussian, Ledger, calibrate
from accounting.arrays import Array
from dpkit import randomness
from dpkit.clipping import shortened
from dpkit.geometry import smat
from dpkit.mechanisms import GaussianMechanism
from dpkit.optimize.parts.exact_products import LAST_DIGIT, half_vector, rounded_once
from dpkit.sklearn._estimator import CountsFits, checked_ledger, generator_of
from dpkit.training.groups import Groups, checked_groups
from dpkit.training.rows import checked_budget
from dpkit.training.whole_rows import BITS, UnitRows, check_rows, whole_product

__all__ = ["Asked", "asked", "calibrate_gaussian", "noisy_second_moment", "noisy_sums", "public_box"]

_SMALLEST, _LARGEST = 1e-100, 1e100


class Asked(NamedTuple):
    """What a fit works with, all of it checked."""

    rows: Array
    people: Groups | None
    budget: Budget
    ledger: Ledger | None
    source: np.random.Generator

    @property
    def units(self) -> int:
        """How many rows, or people, there are."""
        return len(self.rows) if self.people is None else len(self.people.sizes)

    def divisor(self, noisy: float) -> float:
        """The number of units to divide by: the true one where it is public, else the noisy one, at least 1."""
        return max(1.0, noisy if self.budget.adjacency == "add_remove" else float(self.units))


def asked(estimator: CountsFits, X: ArrayLike, groups: ArrayLike | None) -> Asked:
    """Check the table, the budget, the ledger and the source of an estimator's fit."""
    if estimator.budget is None:
        raise ValueError("budget must be given, budget=Budget(1.0, 1e-6) say, got budget=None")
    budget = checked_budget(estimator.budget, allowed=("replace", "add_remove", "zero_out"), people=True)
    if budget.delta == 0:
        raise ValueError(f"budget must have delta > 0 for Gaussian noise, got {budget!r}: allow 1e-6, say")
    ledger = checked_ledger(estimator.ledger)
    source = randomness.resolve(generator_of(estimator.random_state))
    rows = validate_data(estimator, X, dtype=np.float64)
    check_rows(len(rows))
    return Asked(rows, checked_groups(budget, groups, len(rows)), budget, ledger, source)


def public_box(bounds: Any, d: int) -> tuple[Array, Array]:
    """The middle of public bounds, and half of the length of every side."""
    if bounds is None:
        raise ValueError("bounds must be given, got bounds=None: two public numbers, or two rows of one per feature")
    try:
        low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), (d,)) for end in bounds)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"bounds must be (low, high), each one number or {d} of them, one per feature, got bounds={bounds!r}"
        ) from error
    # NaN is neither
    if not ((low < high) & (np.abs(low) <= _LARGEST) & (np.abs(high) <= _LARGEST)).all():
        raise ValueError(f"bounds must be increasing numbers of at most 1e100 in size, got bounds={bounds!r}")
    return 0.5 * low + 0.5 * high, np.maximum(0.5 * high - 0.5 * low, _SMALLEST)


def noisy_second_moment(
    given: Asked, X: Array, longest: float, constant: float, z: float
) -> tuple[Array, GaussianMechanism]:
    """Σ w·wᵀ with noise over the rows w = (x, ``constant``), each x shortened to ``longest``, and its mechanism.

    In units of L² with L² = ``longest``² + ``constant``². A row moves ww/L² by at most 1 in Frobenius norm, and by √2
    where it is replaced: ‖aaᵀ − bbᵀ‖² = ‖a‖⁴ + ‖b‖⁴ − 2(aᵀb)² ≤ 2.
    """
    n, d = X.shape
    rows = np.full((n, d + (constant > 0)), constant)
    shortened(X, longest, out=rows[:, :d])
    order = slice(None) if given.people is None else given.people.order
    shares = None if given.people is None else given.people.root_shares()[order]
    L = math.hypot(longest, constant) * (1.0 + 2.0**-40)
    second = UnitRows(rows[order], L).second_moment(L, shares)
    whole = rounded_once(half_vector(second))
    moves = math.sqrt(2.0) if given.budget.adjacency == "replace" else 1.0
    mechanism = _gaussian(z, moves, len(whole), given)
    return smat(mechanism.release(whole)), mechanism


def noisy_sums(
    given: Asked, parts: Array, whole: Array, moves: float, z: float, weights: Array | None = None
) -> tuple[Array, GaussianMechanism]:
    """Σ over units of the mean of part ⊗ (weights·whole)/2¹⁸ over a unit's rows, with noise, and its mechanism.

    ``parts`` (n, k) says with ones and zeros where a row counts, once in each row, and ``whole`` (n, p) holds its
    contribution there, whole numbers of at most 2¹⁸ in size; ``weights`` (p,), by default 1, are rounded down to whole
    multiples of 2⁻⁴⁰. ``moves`` bounds the distance of two contributions, and of one from 0.
    """
    shares = np.full(len(whole), 2.0**BITS)
    if given.people is not None:
        shares = np.floor(shares * given.people.shares())
    total = whole_product(parts * shares[:, None], whole)
    mechanism = _gaussian(z, moves, total.size, given)
    scales = np.ones(whole.shape[1]) if weights is None else weights
    columns = [(total[:, j], math.floor(scale * 2.0**40)) for j, scale in enumerate(scales)]
    released = mechanism.release(rounded_once(columns))
    return released.reshape(whole.shape[1], -1).T, mechanism


def _gaussian(z: float, moves: float, size: int, given: Asked) -> GaussianMechanism:
    """The mechanism for so many entries; their last digits count as well."""
    adjacency: Adjacency = given.budget.adjacency
    sensitivity = moves * (1.0 + 2.0**-40) + LAST_DIGIT * math.sqrt(size)
    return GaussianMechanism(noise_multiplier=z, sensitivity=sensitivity, adjacency=adjacency, rng=given.source)


def calibrate_gaussian(budget: Budget) -> Gaussian:
    """One Gaussian release that costs the budget."""
    return Gaussian(calibrate(lambda z: Gaussian(z, adjacency=budget.adjacency), budget), adjacency=budget.adjacency)

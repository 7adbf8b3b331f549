"""What a mean and a variance share: checked parameters, the rows in use, and sums of their Bernstein weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from accounting import Budget
from accounting.arrays import Array
from accounting.checks import positive
from dpkit import randomness
from dpkit.mechanisms._checked import settle
from dpkit.queries._columns import check_bounds, mask, name_of, numbers
from dpkit.queries._dates import is_dated
from dpkit.queries._groups import by, group_names, grouped_by, uses
from dpkit.queries._noise import Noise, NoiseName, choose_noise, spend, with_noise
from dpkit.queries._units import Share, check_spending, checked_share, kept_rows, owners
from dpkit.queries.answer import Answer

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["Moment", "fieller"]


# The resolution of u, the place of a value between its bounds.
_BITS = 30


class Moment:
    """The checked parameters of a moment, the rows that are used, and their cells."""

    def __init__(
        self,
        what: str,
        data: Any,
        column: Any,
        bounds: tuple[float, float] | None,
        where: Any,
        groups: Any,
        keys: Sequence[Any] | Mapping[str, Any] | None,
        person: Any,
        max_contributions: int | None,
        max_groups: int | None,
        max_per_group: int | None,
        budget: Budget | None,
        noise: NoiseName | None,
        rng: np.random.Generator | None,
        ledger: Ledger | None,
        weights: Any = None,
        largest_weight: float | None = None,
    ) -> None:
        self.budget = check_spending(budget, ledger)
        self.low, high = check_bounds(bounds)
        self.width = high - self.low
        self.share: Share = checked_share(
            self.budget,
            person=person,
            grouped=groups is not None,
            max_contributions=max_contributions,
            max_groups=max_groups,
            max_per_group=max_per_group,
        )
        self.rows = None if where is None else mask(data, where)
        self.dated = is_dated(bounds)
        self.values = numbers(data, column, self.rows, dated=self.dated)
        self.shares = _shares(data, weights, largest_weight, self.rows)
        self.owner = owners(data, person, self.rows)
        self.coded, self.names = grouped_by(data, groups, keys, self.rows)
        if groups is not None and keys is None:
            raise TypeError(
                f"keys must list the groups of a {what}; groups that are not public come from count(groups=...), whose "
                "answer has the keys that may be shown"
            )
        self.public_size = (
            self.share.alone
            and groups is None
            and where is None
            and weights is None
            and self.budget.adjacency != "add_remove"
        )
        self.query = f"{what} of {name_of(data, column, 'data')}{by(data, groups)}"
        if self.dated and what == "variance":
            self.query += ", in days²"
        self.columns = () if groups is None else group_names(data, groups)
        self.uses = uses(self.share, person, self.budget.unit, "" if groups is None else "group")
        self.noise, self.ledger, self.rng = noise, ledger, randomness.resolve(rng)
        self.kept: NDArray[np.bool_] | None = None

    def public_rows(self) -> int:
        """n, where it is public."""
        if self.values.size == 0:
            raise ValueError("data must have at least one row where their number is public, got none")
        return int(self.values.size)

    def law(self, *, l1: float, l2: float) -> Noise:
        """Noise for cells of these sensitivities, in units of one row."""
        bits = min(_BITS, 38 - max(0, math.ceil(math.log2(l1 / self.budget.epsilon))))
        if bits < 4:
            raise ValueError(f"budget.epsilon is too small for noise in 64 bits, got {self.budget!r}")
        steps = 2.0**bits
        return choose_noise(
            self.budget, self.noise, l1=l1 * steps, l2=l2 * steps, step=1 / steps, whole=False, one_cell=False
        )

    def used(self, start: int, stop: int, column: NDArray[Any]) -> NDArray[Any]:
        """The entries of a column in some rows, of those that are used."""
        part = column[start:stop]
        return part if self.kept is None else part[self.kept[start:stop]]

    def blocks(self, bits: int, size: int) -> Iterator[NDArray[np.int64]]:
        """u of the rows that are used, rounded to ``bits`` bits, block by block, and with groups their group."""
        factor = 2.0**bits / self.width
        for start in range(0, self.values.size, size):
            part = self.values[start : start + size].astype(np.float64)
            part -= self.low
            part *= factor
            np.clip(np.rint(part, out=part), 0.0, 2.0**bits, out=part)
            if self.kept is not None:
                part = part[self.kept[start : start + size]]
            yield part.astype(np.int64)

    def weights(self, degree: int) -> Callable[[int], list[NDArray[np.int64]]]:
        """The sums of the Bernstein weights of a degree, times the rows' own, on a lattice of so many bits."""
        groups = max(1, len(self.names))

        def sums(bits: int) -> list[NDArray[np.int64]]:
            one, size = 1 << bits, 1 << 14
            cells = np.zeros((degree + 1, groups), np.int64)
            for i, u in enumerate(self.blocks(bits, size)):
                if self.shares is not None:
                    share = self.used(i * size, (i + 1) * size, self.shares)
                    whole = np.floor(share * one)
                    upper = np.minimum(np.rint(whole * (u / one)), whole)
                    # nonnegative, and together at most one
                    parts = [(whole - upper).astype(np.int64), upper.astype(np.int64)]
                elif degree == 1:
                    parts = [one - u, u]
                else:
                    share = u / one
                    top = np.rint(share * share * one).astype(np.int64)
                    # never beyond what is left, so that the weights of a row are nonnegative and add up to one
                    bottom = np.minimum(np.rint((1 - share) ** 2 * one).astype(np.int64), one - top)
                    parts = [bottom, one - bottom - top, top]
                if self.coded is None:
                    cells[:, 0] += [int(part.sum()) for part in parts]
                    continue
                group = self.used(i * size, (i + 1) * size, self.coded)
                for cell, part in zip(cells, parts, strict=True):
                    # sums of 2¹⁴ numbers of 2³⁰ are exact in double precision
                    cell += np.bincount(group, weights=part, minlength=groups).astype(np.int64)
            return list(cells)

        return sums

    def noisy(self, sums: Callable[[int], list[NDArray[np.int64]]], law: Noise) -> list[Array]:
        """The cells with noise, in rows."""
        _, row = spend(law, self.query, self.rng, self.ledger)
        self.kept = kept_rows(self.owner, self.coded, self.share, self.rows, self.rng)
        cells = np.stack(sums(round(-math.log2(law.step))))
        noisy = with_noise(cells, law, self.rng)
        settle(self.ledger, row)
        return list(noisy * law.step)

    def shaped(self, values: Array) -> Any:
        """A number, or with groups an array."""
        return values if self.coded is not None else float(values.reshape(-1)[0])

    def answer(
        self,
        law: Noise,
        value: Array,
        spread: Array,
        noise_interval: Any,
        full_interval: Any,
        limits: tuple[float, float],
    ) -> Answer:
        return Answer(
            self.shaped(value),
            law.cost,
            self.query,
            self.budget,
            keys=tuple(self.names) if self.coded is not None else None,
            noise_std=self.shaped(spread),
            noise_interval=noise_interval,
            full_interval=full_interval,
            why_none="sampling error is offered for means",
            columns=self.columns,
            uses=self.uses,
            limits=limits,
        )


def fieller(
    total: Array,
    counted: Array,
    value: Array,
    weights: Callable[[Array], Array],
    law: Noise,
    confidence: float,
    sampling: bool,
) -> tuple[Array, Array]:
    """All μ in [0, 1] for which |total − μ·counted| is not beyond its 1 − ``confidence`` tail."""

    def believed(mu: Array) -> NDArray[np.bool_]:
        off = np.abs(total - mu * counted)
        w = weights(mu)
        if not sampling:
            return np.asarray(law.tail(off, w) >= 1 - confidence)
        from scipy.special import ndtri

        nodes = ndtri((np.arange(400) + 0.5) / 400)
        shifts = off[..., None] - nodes * np.sqrt(np.maximum(counted, 1.0) * mu * (1 - mu))[..., None]
        one_side = law.tail(np.abs(shifts), w[..., None, :]) / 2
        # P(|noise + sampling error| > off), the two sides being alike
        return np.asarray(2 * np.where(shifts > 0, one_side, 1 - one_side).mean(axis=-1) >= 1 - confidence)

    # both ends at once
    outer = np.stack([np.zeros(value.shape), np.ones(value.shape)])
    inner = np.where((counted <= 0) | believed(outer), outer, value)
    for _ in range(50):
        middle = (outer + inner) / 2
        inside = believed(middle)
        outer, inner = np.where(inside, outer, middle), np.where(inside, middle, inner)
    return inner[0], inner[1]


def _shares(data: Any, weights: Any, largest: float | None, rows: NDArray[np.bool_] | None = None) -> Array | None:
    """The weights of rows as shares of the largest, in [0, 1]."""
    if weights is None:
        if largest is not None:
            raise TypeError(f"largest_weight does not apply without weights, got largest_weight={largest!r}")
        return None
    if largest is None:
        raise TypeError("largest_weight must be given with weights: larger ones are cut to it, so it bounds a row")
    found = numbers(data, weights, rows).astype(np.float64)
    if (found < 0).any():
        raise ValueError(f"weights must not be negative, got {found[found < 0][0]:g}")
    return np.minimum(found / positive("largest_weight", largest), 1.0)

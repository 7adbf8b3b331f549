"""What a mean and a variance share: checked parameters, the rows in use, and sums of their Bernstein weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from accounting import Budget
from accounting.arrays import Array
from dpkit import randomness
from dpkit.queries._columns import check_bounds, name_of
from dpkit.queries._dates import is_dated
from dpkit.queries._groups import by, group_names, uses
from dpkit.queries._noise import Noise, NoiseName, choose_noise, paid, spend, with_noise
from dpkit.queries._rows import given, rows_of
from dpkit.queries._units import Share, check_spending, checked_share
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
        self.low, self.high = check_bounds(bounds)
        self.width = self.high - self.low
        self.share: Share = checked_share(
            self.budget,
            person=person,
            grouped=groups is not None,
            max_contributions=max_contributions,
            max_groups=max_groups,
            max_per_group=max_per_group,
        )
        self.dated = is_dated(bounds)
        data = given(data)
        self.rows = rows_of(
            data, where=where, groups=groups, keys=keys, person=person, column=column, dated=self.dated,
            weights=weights, largest_weight=largest_weight,
        )  # fmt: skip
        if groups is not None and keys is None:
            raise TypeError(
                f"keys must list the groups of a {what}; groups that are not public come from count(groups=...), whose "
                "answer has the keys that may be shown"
            )
        self.public_size = (
            self.share.alone
            and groups is None
            and self.rows.everything
            and weights is None
            and self.budget.adjacency != "add_remove"
        )
        self.query = f"{what} of {name_of(data, column, 'data')}{by(data, groups)}"
        if self.dated and what == "variance":
            self.query += ", in days²"
        self.columns = () if groups is None else group_names(data, groups)
        self.uses = uses(self.share, person, self.budget.unit, "" if groups is None else "group")
        self.noise, self.ledger, self.rng = noise, ledger, randomness.resolve(rng)

    def public_rows(self) -> int:
        """n, where it is public."""
        if self.rows.n == 0:
            raise ValueError("data must have at least one row where their number is public, got none")
        return self.rows.n

    def law(self, *, l1: float, l2: float) -> Noise:
        """Noise for cells of these sensitivities, in units of one row."""
        bits = min(_BITS, 38 - max(0, math.ceil(math.log2(l1 / self.budget.epsilon))))
        if bits < 4:
            raise ValueError(f"budget.epsilon is too small for noise in 64 bits, got {self.budget!r}")
        steps = 2.0**bits
        return choose_noise(
            self.budget, self.noise, l1=l1 * steps, l2=l2 * steps, step=1 / steps, whole=False, one_cell=False
        )

    def noisy(self, degree: int, law: Noise) -> list[Array]:
        """The sums of the Bernstein weights of a degree with noise, in rows; without the first where n tells it."""
        bounds, bits = (self.low, self.high), round(-math.log2(law.step))
        weights = self.rows.weights(self.share, self.rng, bounds, degree, bits)
        _, row = spend(law, self.query, self.rng, self.ledger)
        with paid(self.ledger, row):
            cells = weights()[1:] if self.public_size and degree == 1 else weights()
            noisy = with_noise(cells, law, self.rng)
        return list(noisy * law.step)

    def shaped(self, values: Array) -> Any:
        """A number, or with groups an array."""
        return values if self.rows.grouped else float(values.reshape(-1)[0])

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
            keys=tuple(self.rows.names) if self.rows.grouped else None,
            noise_std=self.shaped(spread),
            noise_interval=noise_interval,
            full_interval=full_interval,
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

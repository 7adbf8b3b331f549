"""The privacy loss distribution as a value: composed, asked, drawn, stored, and handed to other software."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from accounting.arrays import Array
from accounting.checks import fraction, integer, nonnegative
from accounting.compose import many_deltas
from accounting.compose.convolution import NEGLIGIBLE, Convolution, Parts
from accounting.compose.failures import rest_delta, split_failures
from accounting.compose.pairs import sides
from accounting.compose.pld import answers, delta_of, epsilon_of
from accounting.errors import UnsupportedRelease
from accounting.loss.grid import GridPair
from accounting.printed import as_html, axes_of, written
from accounting.releases.base import Own, Release, parallel

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

__all__ = ["PLD", "proved_trade_off"]

_FORMAT = 1
# δ at which a sum is found, whose curve is then known everywhere.
_LEVELS = (0.3, 0.05, 1e-3, 1e-6, 1e-10)
# ε at which a trade-off curve is touched, and ln of the δ up to which.
_POINTS, _RAREST = 256, -23.0
# e^x of larger ε is beyond floats.
_LARGEST = 600.0
# What a stored loss may leave out above its grid.
_LEFT_OUT = 1e-15


@dataclass(frozen=True, repr=False)
class PLD:
    """The privacy loss of everything that a description says, as a value: what a unit's outputs tell of it at worst.

    Sums are releases on the same data, ``+`` and ``*`` as of descriptions; two values of equal descriptions are equal.

    Examples
    --------
    >>> from accounting import PLD, Gaussian, Laplace
    >>> year = 12 * PLD.of(Laplace(5.0)) + PLD.of(Gaussian(3.0))
    >>> round(year.epsilon(1e-6), 3), round(year.delta(2.0), 5)
    (3.157, 0.00167)
    >>> year.trade_off([0.01, 0.5]).round(3)  # the least type II error at these type I errors
    array([0.944, 0.226])
    """

    release: Release

    @classmethod
    def of(cls, *releases: Release) -> PLD:
        """Of one description, or of all these together on the same data.

        Raises
        ------
        UnsupportedRelease
            If a part of a description has no known pair.
        """
        if not releases:
            raise TypeError("PLD.of needs at least one description")
        found = cls(sum(releases[1:], releases[0]))
        sides(found._split[1])  # what has no pair is refused here, and not when it is asked
        return found

    def __add__(self, other: PLD) -> PLD:
        return PLD(self.release + other.release) if isinstance(other, PLD) else NotImplemented

    def __mul__(self, count: int) -> PLD:
        return PLD(integer("count", count, at_least=0) * self.release)

    __rmul__ = __mul__

    def epsilon(self, delta: float) -> float:
        """The smallest proved ε at ``delta`` in (0, 1), by the privacy loss alone; infinite where failures pass δ."""
        left = rest_delta(self._split[0], fraction("delta", delta))
        with np.errstate(under="ignore"):
            return epsilon_of(self._alternatives, left) if left > 0 else math.inf

    def delta(self, epsilon: float) -> float:
        """The smallest proved δ at ``epsilon`` ≥ 0."""
        log_survival, _ = self._split
        with np.errstate(under="ignore"):
            found = delta_of(self._alternatives, nonnegative("epsilon", epsilon))
        return min(1.0, -math.expm1(log_survival) + math.exp(log_survival) * found)

    def trade_off(self, alphas: ArrayLike) -> Array:
        """The type II error that a test of one neighbour against the other has at least, at type I errors ``alphas``.

        Parameters
        ----------
        alphas : array_like
            In [0, 1], of any shape.

        Returns
        -------
        ndarray
            Of the shape of ``alphas``: from below, the largest that some (ε, δ(ε)) prove (Dong, Roth & Su 2022,
            Proposition 2.13).
        """
        type_one = np.asarray(alphas, dtype=np.float64)
        if not np.all((type_one >= 0) & (type_one <= 1)):
            raise ValueError(f"alphas must lie in [0, 1], got alphas={alphas!r}")
        return proved_trade_off(*self._curve, type_one)

    def plot(self, target: Any = None) -> Any:
        """Draw the trade-off curve (needs matplotlib), and the line of what tells nothing.

        Parameters
        ----------
        target : path, matplotlib Axes or None
            An image file to write (the suffix is its format), axes to draw on, or by default a new figure.

        Returns
        -------
        matplotlib Axes, or the path
        """
        axes = axes_of(target, "PLD.plot")
        at = np.linspace(0.0, 1.0, 400) ** 2
        if not axes.lines:
            axes.plot([0, 1], [1, 0], color="0.7", linewidth=1, label="nothing is told")
        text = repr(self.release)
        axes.plot(at, self.trade_off(at), label=text if len(text) <= 40 else f"{text[:39]}…")
        axes.set(xlabel="type I error", ylabel="type II error", xlim=(0, 1), ylim=(0, 1), aspect="equal")
        axes.legend(loc="upper right", fontsize="x-small")
        return written(axes, target)

    # ------------------------------------------------------------------------------------------------ stored, shared

    def save(self, path: str | Path) -> None:
        """Write the loss, on a grid, to an ``.npz`` file.

        What :meth:`load` reads is a bound as well, for δ down to about 10⁻¹⁰, and of 10⁵ releases and more 10⁻⁷: below
        that ε is infinite. Of releases that may follow each other, such as noisy maxima, it is that of the sum of their
        pairs, which may be wider.
        """
        arrays: dict[str, Any] = {"format": np.array(_FORMAT), "log_survival": np.array(self._split[0])}
        for name, side in zip(("present", "absent"), self._grids, strict=True):
            for i, pair in enumerate(side):
                arrays[f"{name}_{i}"] = np.concatenate([[pair.step, pair.first, pair.beyond], pair.mass])
        with Path(path).open("wb") as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    def load(cls, path: str | Path) -> PLD:
        """The value that :meth:`save` wrote."""
        with np.load(path, allow_pickle=False) as stored:
            if int(stored["format"]) != _FORMAT:
                raise ValueError(f"expected a PLD of format {_FORMAT}, got {int(stored['format'])} in {path}")
            log_survival = float(stored["log_survival"])
            counts = [sum(key.startswith(name) for key in stored.files) for name in ("present", "absent")]
            present = [_stored(stored[f"present_{i}"]) for i in range(counts[0])]
            absent = [_stored(stored[f"absent_{i}"]) for i in range(counts[1])]
        return cls._of_grids(present, absent, log_survival)

    def to_dp_accounting(self) -> PrivacyLossDistribution:
        """The loss, on a grid, as dp-accounting's privacy loss distribution (needs dp-accounting).

        Raises
        ------
        UnsupportedRelease
            For parallel branches none of which is known to be the worst at every δ: convert each by itself.
        """
        if any(len(side) > 1 for side in self._grids):
            raise UnsupportedRelease(
                f"a loss must be a bound at every δ, and branches have several, got {self.release!r}"
            )
        try:
            from dp_accounting.pld import pld_pmf, privacy_loss_distribution
        except ImportError:
            raise ImportError("to_dp_accounting needs dp-accounting: pip install dpkit[pld]") from None
        fails = -math.expm1(self._split[0])
        pairs = [side[0] for side in self._grids]
        if pairs[0].step != pairs[1].step:  # one grid for both directions
            pairs = [_coarser(pair, max(one.step for one in pairs)) for pair in pairs]
        pmfs = [
            pld_pmf.DensePLDPmf(pair.step, pair.first, (1 - fails) * pair.mass, fails + (1 - fails) * pair.beyond, True)
            for pair in pairs
        ]
        return privacy_loss_distribution.PrivacyLossDistribution(*pmfs[: 1 if pairs[0] == pairs[1] else 2])

    @classmethod
    def from_dp_accounting(cls, pld: PrivacyLossDistribution) -> PLD:
        """The value of a privacy loss distribution of dp-accounting, which must be an upper bound.

        Raises
        ------
        ValueError
            If it is an optimistic estimate.
        """
        found = []
        for pmf in (pld._pmf_remove, pld._pmf_add):
            dense = pmf.to_dense_pmf()
            if not dense._pessimistic_estimate:
                raise ValueError("pld must be a pessimistic estimate: an optimistic one is no bound")
            # tails that were cut off count as infinite, and are more than what is missing
            mass, beyond = _at_most_one(np.maximum(dense._probs, 0.0), float(dense._infinity_mass))
            found.append([GridPair(float(dense._discretization), int(dense._lower_loss), mass, beyond)])
        return cls._of_grids(found[0], found[1], 0.0)

    @classmethod
    def _of_grids(cls, present: list[GridPair], absent: list[GridPair], log_survival: float) -> PLD:
        from accounting.releases.guarantees import ApproxDP

        branches = [
            Own(one, absent=other if other != one else None) for one, other in zip(present, absent, strict=True)
        ]
        release = parallel(*branches)
        return cls(release + ApproxDP(0.0, -math.expm1(log_survival)) if log_survival < 0 else release)

    def __repr__(self) -> str:
        return f"PLD.of({self.release!r})"

    def _repr_html_(self) -> str:
        rows = [[f"{delta:g}", f"{self.epsilon(delta):.6g}"] for delta in (1e-3, 1e-5, 1e-6, 1e-9)]
        return as_html(repr(self), [["δ", "ε"], *rows])

    # --------------------------------------------------------------------------------------------------- what it holds

    @cached_property
    def _split(self) -> tuple[float, Release]:
        return split_failures(self.release, whole_counts=True)

    @cached_property
    def _sides(self) -> tuple[list[Parts], list[Parts]]:
        return sides(self._split[1])

    @property
    def _alternatives(self) -> list[Parts]:
        return list(dict.fromkeys(parts for side in self._sides for parts in side if parts))

    @cached_property
    def _grids(self) -> list[list[GridPair]]:
        """Every branch in both directions, in one order."""
        with np.errstate(under="ignore"):
            return [[_on_a_grid(parts) for parts in side] for side in self._sides]

    @cached_property
    def _curve(self) -> tuple[Array, Array]:
        """Some ε, and δ there."""
        alternatives, (log_survival, _) = self._alternatives, self._split
        epsilons = np.zeros(1)
        if alternatives:
            high = max(epsilon_of([parts], math.exp(_RAREST)) for parts in alternatives)
            epsilons = np.linspace(0.0, min(high, _LARGEST), _POINTS)
        with np.errstate(under="ignore"):
            deltas = np.max([np.zeros(epsilons.size), *(_deltas(parts, epsilons) for parts in alternatives)], axis=0)
        return epsilons, np.minimum(1.0, -math.expm1(log_survival) + math.exp(log_survival) * deltas)


def proved_trade_off(epsilons: Array, deltas: Array, alphas: Array) -> Array:
    """The largest type II errors that some (ε, δ) prove, or 0."""
    e, a = np.exp(np.minimum(epsilons, _LARGEST)), alphas[..., None]
    lines = [1 - deltas - e * a, (1 - deltas - a) / e]
    return np.asarray(np.max(lines, axis=(0, -1), initial=0.0))


def _deltas(parts: Parts, epsilons: Array) -> Array:
    """δ of a composition from above."""
    (pair, count), *more = parts
    if count == 1 and not more:
        return np.array([pair.delta(epsilon) for epsilon in epsilons.tolist()])
    found = [total for value, total in answers(parts, _LEVELS) if math.isfinite(value)]
    many = [many_deltas.deltas(total, epsilons) for total in found]
    return np.asarray(np.min([np.ones(epsilons.size), *many], axis=0))


def _stored(row: Array) -> GridPair:
    """A loss from a file: what is missing of it, as files of an earlier state lack the least losses, is infinite."""
    step, first, beyond, mass = float(row[0]), int(row[1]), float(row[2]), row[3:]
    missing = 1.0 - float(mass.sum()) - beyond
    return GridPair(step, first, mass, beyond + missing if 0 < missing <= 1e-6 else beyond)


def _on_a_grid(parts: Parts) -> GridPair:
    """A composed loss with its window, without a tilt."""
    if not parts:
        return GridPair(1.0, 0, np.ones(1), 0.0)
    losses = Convolution(parts, math.log(_LEFT_OUT), alone=False)
    if losses.reach == 0:
        beyond = min(1.0, losses.cut_off)
        return GridPair(1.0, 0, np.array([1.0 - beyond]), beyond)
    with np.errstate(divide="ignore"):  # some of the tilts that are tried are none
        window = losses.window(0.0, math.log(_LEFT_OUT / NEGLIGIBLE))
    # of one release nothing is convolved, and no transform adds its error to what is rare
    total = losses.compose(replace(window, direct=losses.counts.sum() == 1), losses.step(window))
    mass = (total.mass + total.error[0]) * math.exp(total.cumulant) * (1 + 1e-12)
    first = round(float(total.losses[0]) / total.step)
    some = np.flatnonzero(mass > 2 * total.error[0])
    # what is hardly there is moved up, to what is told
    start, end = (int(some[0]), int(some[-1]) + 1) if some.size else (0, mass.size)
    beyond = total.extra + float(mass[end:].sum())
    kept = mass[start:end].copy()
    # so is what lies below the window, which may have come to lie beyond the largest loss, where nothing is kept
    kept[0] += float(mass[:start].sum()) + math.exp(total.from_below[0])
    return GridPair(float(total.step), first + start, *_at_most_one(kept, min(1.0, beyond)))


def _at_most_one(mass: Array, beyond: float) -> tuple[Array, float]:
    """Masses without what they are above 1, taken off the lowest losses; what they lack is infinite."""
    above = np.minimum(beyond + np.cumsum(mass[::-1]), 1.0)
    return np.diff(above, prepend=beyond)[::-1], beyond + max(0.0, 1.0 - float(above[-1]))


def _coarser(pair: GridPair, step: float) -> GridPair:
    """The same on a wider grid, its losses rounded up."""
    places = np.ceil(pair.step * (pair.first + np.arange(pair.mass.size)) / step - 1e-9).astype(np.int64)
    first = int(places[0])
    mass = np.zeros(int(places[-1]) - first + 1)
    np.add.at(mass, places - first, pair.mass)
    return GridPair(step, first, mass, pair.beyond)

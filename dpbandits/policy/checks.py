"""Numbers that come in: refused by name, or as arrays of float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from accounting import AdjacencyMismatch, Budget
from accounting.arrays import Array
from accounting.checks import integer
from dpkit.models.links import Link

__all__ = [
    "NORM_TOLERANCE",
    "checked_base_rate",
    "checked_budget",
    "checked_range",
    "checked_reward",
    "checked_rounds",
    "checked_row",
    "each_of",
    "finite_rewards",
    "length_text",
    "real_array",
    "real_number",
    "refuse_unknown",
    "unit_picks",
    "unit_row",
    "unit_rows",
    "unit_stack",
]

T = TypeVar("T")

# beyond it a budget promises nothing, and binomial noise is too small to be priced in a reasonable time
_LARGEST_EPSILON = 1e4
# what a registry counts up to
_MOST_ROUNDS = 2**31
# squares of rewards, and of what is divided by them, must be numbers
_LARGEST = 1e100
# rows whose norm passes 1 by rounding only, also of float32, are scaled back, so that a sensitivity for norm 1 holds
NORM_TOLERANCE = 1e-6
# below 1 by so much, squares are at most 1 however they are added up
_SURELY = 1e-9
# one spare rounding step, so that scaled rows are at most 1 and not just about 1
_SPARE = 1 + 2.0**-50
# the products of rows; numpy 1 has a slower way only
_vecdot: Callable[[Array, Array], Array] = getattr(np, "vecdot", lambda X, Y: np.einsum("...j,...j->...", X, Y))


def real_array(name: str, value: ArrayLike | None) -> Array:
    """``value`` as an array of float64, if it holds real numbers and nothing else.

    Raises
    ------
    ValueError
        For nothing at all, strings, times, complex numbers, objects (also integers beyond all floats), and masked
        entries.
    """
    if value is None:
        raise ValueError(f"{name} must be given, got {name}=None")
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise ValueError(f"{name} must have no masked entries, got {int(np.ma.getmaskarray(value).sum())} of them")
    try:
        found = np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise ValueError(f"{name} must be rows of the same length, got rows of several lengths") from error
    if found.dtype == np.float64:
        return found
    if found.dtype.kind not in "fiub":
        kind = f"an array of type {found.dtype}" if found.ndim else f"one of type {type(value).__name__}"
        raise ValueError(f"{name} must be real numbers, got {kind}")
    with np.errstate(over="ignore"):  # infinite entries are refused by name
        return found.astype(np.float64)


def real_number(name: str, value: Any) -> float:
    found = real_array(name, value)
    if found.ndim:
        raise ValueError(f"{name} must be one number, got an array of shape {found.shape}")
    return float(found)


def checked_reward(reward: float, low: float, high: float, *, clip: bool) -> float:
    """A reward within its range, or moved there."""
    value = reward if type(reward) is float else real_number("reward", reward)
    if low <= value <= high and math.isfinite(value):
        return value
    if clip and not math.isnan(value) and math.isfinite(low) and math.isfinite(high):
        return min(max(value, low), high)
    way = ": state a wider reward_range= from public knowledge, or cut the reward to it" if math.isfinite(value) else ""
    raise ValueError(f"reward must be a finite number in [{low:g}, {high:g}], got reward={reward!r}{way}")


def unit_rows(arms: ArrayLike | None, dim: int) -> Array:
    """``arms`` as an array of shape (K, dim) whose rows have norm at most 1."""
    X = real_array("arms", arms)
    if X.ndim != 2 or X.shape[1] != dim or not len(X):
        raise ValueError(f"arms must have shape (K, {dim}) with K >= 1, got shape {X.shape}")
    squares = _squares(X)
    largest = squares.item(squares.argmax())  # NaN, if there is one
    if not largest <= 1.0:  # also true for NaN
        if not np.isfinite(X).all():
            raise ValueError(f"arms must be finite, got {X[~np.isfinite(X)][0]} in row {_bad_row(X)}")
        if largest > (1.0 + NORM_TOLERANCE) ** 2:
            row, length = int(squares.argmax()), length_text(math.sqrt(largest))
            raise ValueError(
                f"arms must have norm at most 1, got norm {length} in row {row}: scale them by public bounds, as "
                "dpkit.features.PublicScaler does"
            )
        X = X / np.maximum(1.0, np.sqrt(squares) * _SPARE)[:, None]
    return X


def length_text(length: float) -> str:
    """A length that is too large, so that one sees by how much.

    Examples
    --------
    >>> length_text(3.25), length_text(1.0000025)
    ('3.25', '1 + 2.5e-06')
    """
    return f"1 + {length - 1.0:.2g}" if length - 1.0 < 1e-3 else f"{length:.6g}"


def unit_stack(arms: Array, dim: int) -> Array | None:
    """Many sets of arms, shape (n, K, dim), as :func:`unit_rows` makes them one by one; None if one is refused.

    Examples
    --------
    >>> unit_stack(np.ones((2, 3, 1)), 1).shape, unit_stack(np.full((2, 3, 1), 2.0), 1)
    ((2, 3, 1), None)
    """
    if arms.ndim != 3 or arms.shape[2] != dim or not arms.shape[1]:
        return None
    squares = np.einsum("nkd,nkd->nk", arms, arms)
    if squares.max(initial=0.0) <= 1.0 - _SURELY:
        return arms
    squares = _squares(arms)  # to the last digit as one set's are
    largest = squares.max()  # NaN, if there is one
    if not largest <= (1.0 + NORM_TOLERANCE) ** 2:
        return None
    if largest <= 1.0:
        return arms
    X, sets = arms.copy(), np.flatnonzero(squares.max(axis=1) > 1.0)
    X[sets] /= np.maximum(1.0, np.sqrt(squares[sets]) * _SPARE)[:, :, None]
    return X


def unit_row(row: Array) -> Array:
    """A read-only copy of norm at most 1, whatever happens to the caller's array."""
    arm: Array = row.copy()
    square = float(arm.dot(arm))
    if not square <= 1.0:
        arm = arm / (math.sqrt(square) * _SPARE) if math.isfinite(square) else np.zeros_like(arm)
    arm.setflags(write=False)
    return arm


def unit_picks(rows: Array) -> Array:
    """A read-only array of rows, shape (n, d), each as by :func:`unit_row`; ``rows`` is nobody else's."""
    squares = np.einsum("nd,nd->n", rows, rows)
    if not squares.max(initial=0.0) <= 1.0:
        rows = np.stack([unit_row(row) for row in rows])
    rows.setflags(write=False)
    return rows


def checked_range(ends: Any, name: str = "reward_range") -> tuple[float, float]:
    """The two ends of a range, as floats."""
    try:
        low, high = map(float, ends)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be two numbers, (low, high), got {name}={ends!r}") from None
    if not low < high:
        raise ValueError(f"{name} must be increasing, got {name}={ends!r}")
    return low, high


def each_of(name: str, check: Callable[..., T], *columns: Iterable[Any]) -> list[T]:
    """What a check makes of every one of many values; its refusal names which one it was.

    Parameters
    ----------
    name : str
        What the values are called.
    check : callable
        Of one value of each column.

    Raises
    ------
    ValueError

    Examples
    --------
    >>> each_of("rewards", float, ["1", "one"])
    Traceback (most recent call last):
    ValueError: rewards[1]: could not convert string to float: 'one'
    """
    found = []
    for number, values in enumerate(zip(*columns, strict=True)):
        try:
            found.append(check(*values))
        except ValueError as error:
            raise ValueError(f"{name}[{number}]: {error}") from error
    return found


def refuse_unknown(kind: type, known: Iterable[str], name: str) -> None:
    """Raise for a keyword that a class does not know, with the one that was meant, or with all."""
    names = list(known)
    close = get_close_matches(name, names, 1)
    way = f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(names)}"
    raise TypeError(f"{kind.__name__} takes no argument {name!r}: {way}")


def checked_base_rate(base_rate: float | None, link: Link, low: float, high: float) -> float:
    """``base_rate``, or its default."""
    if base_rate is not None:
        rate = real_number("base_rate", base_rate)
        if not (low < rate < high and math.isfinite(rate)):
            raise ValueError(f"base_rate must lie strictly inside reward_range, ({low:g}, {high:g}), got {base_rate!r}")
        return rate
    middle, neutral = 0.5 * low + 0.5 * high, float(link.mean(0.0))
    least, most = link.reward_range
    # the middle of a range that cuts counts off says nothing of their mean
    usable = math.isfinite(middle) and math.isinf(least) == math.isinf(most)
    return middle if usable and link.reaches(middle) else neutral


def checked_budget(
    budget: Budget, *, units: tuple[str, ...] = ("row", "round", "person"), pure: bool = False
) -> Budget:
    """A budget that Gaussian or binomial noise can meet, or Laplace noise (``pure``), for one round or person replaced
    or zeroed out.

    Raises
    ------
    TypeError, ValueError
        If it is no :class:`~accounting.Budget`, its δ is 0 and it must not be, or its ε is larger than 10⁴.
    AdjacencyMismatch
        If it counts rows added or removed, or a unit that is not among ``units``.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpbandits.policy.private import checked_budget
    >>> checked_budget(Budget(1.0, 1e-6)).epsilon
    1.0
    """
    if not isinstance(budget, Budget):
        raise TypeError(f"budget must be a Budget such as Budget(1.0, 1e-6), got budget={budget!r}")
    if budget.delta == 0 and not pure:
        raise ValueError("delta must be positive for Gaussian noise, got delta=0.0")
    if budget.epsilon > _LARGEST_EPSILON:
        raise ValueError(f"epsilon must be at most {_LARGEST_EPSILON:g} for a policy, got epsilon={budget.epsilon!r}")
    if budget.adjacency == "add_remove":
        raise AdjacencyMismatch("a bandit's rounds are replaced or zeroed out, got adjacency='add_remove'")
    if budget.unit not in units:
        protected = " or ".join(unit for unit in units if unit != "row")
        raise AdjacencyMismatch(f"this policy protects one {protected}, got a budget with unit={budget.unit!r}")
    return budget


def checked_rounds(kind: type[Any], budget: Budget, rounds: int | None) -> int | None:
    """m, the number of records that a person may teach a policy of this class; None where the unit is not a person."""
    if budget.unit != "person":
        if rounds is not None:
            raise ValueError(
                f"rounds_per_person must not be given where the budget's unit is a {budget.unit}: make it "
                f"Budget(..., unit='person'), got rounds_per_person={rounds!r}"
            )
        return None
    if kind.prices_totals and rounds is not None:
        raise ValueError(
            f"rounds_per_person must not be given to {kind.__name__}, which learns from all rounds of a "
            f"person for one price, got rounds_per_person={rounds!r}"
        )
    m = 1 if rounds is None else integer("rounds_per_person", rounds, at_least=1)
    if m > (_MOST_ROUNDS if kind.prices_persons else 1):
        most = f"at most {_MOST_ROUNDS}" if kind.prices_persons else f"1 for {kind.__name__}"
        raise ValueError(f"rounds_per_person must be {most}, got rounds_per_person={rounds!r}")
    return m


def finite_rewards(reward_range: tuple[float, float], whose: str = "for a private policy") -> tuple[float, float]:
    """``reward_range``, which must be finite: sensitivities, or confidence bounds, are computed from it, and squares.

    Examples
    --------
    >>> from dpbandits.policy.private import finite_rewards
    >>> finite_rewards((0.0, 20.0))
    (0.0, 20.0)
    """
    low, high = reward_range
    if math.isinf(low) or math.isinf(high):
        raise ValueError(f"reward_range must be finite {whose}, got reward_range={reward_range}")
    if high - low < 1.0 / _LARGEST or max(-low, high) > _LARGEST:
        raise ValueError(
            f"reward_range must lie within ±{_LARGEST:g} and be at least {1.0 / _LARGEST:g} wide {whose}, got "
            f"reward_range={reward_range}: tell rewards in other units"
        )
    return low, high


def checked_row(index: int, count: int) -> int:
    """The row of a choice among so many arms.

    Examples
    --------
    >>> checked_row(1, 2)
    1
    """
    row = integer("index", index, at_least=0)
    if row >= count:
        raise ValueError(f"index must be that of one of {count} arms, got index={index!r}")
    return row


@np.errstate(over="ignore")  # which takes half as long so as inside of it
def _squares(X: Array) -> Array:
    """‖x‖² of every row; infinite where no float holds it, which is refused by name and needs no warning."""
    return _vecdot(X, X)


def _bad_row(X: Array) -> int:
    return int(np.flatnonzero(~np.isfinite(X).all(axis=1))[0])

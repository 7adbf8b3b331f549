"""What a report asks: one frozen description for each answer, which a plan prices before any data is touched."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from typing import Any, ClassVar, Literal, get_args

from accounting.checks import positive

__all__ = ["Ask", "What", "answers_said"]

What = Literal["count", "sum", "mean", "variance", "histogram", "quantile"]
_NEEDS_COLUMN = {"sum", "mean", "variance", "histogram", "quantile"}
# Which of the optional fields each question takes, besides those of all.
_TAKES = {
    "count": {"groups", "keys"},
    "sum": {"bounds", "groups", "keys"},
    "mean": {"bounds", "groups", "keys"},
    "variance": {"bounds", "groups", "keys"},
    "histogram": {"bounds", "bins"},
    "quantile": {"bounds", "candidates", "groups", "keys", "q"},
}
_OPTIONAL = ("bounds", "candidates", "groups", "keys", "bins", "q")


@dataclass(frozen=True, repr=False)
class Ask:
    """One answer that a report should have.

    Parameters
    ----------
    what : {"count", "sum", "mean", "variance", "histogram", "quantile"}
        Which of the queries of :mod:`dpkit.queries`.
    column : str, optional
        Of what; a count needs none.
    name : str
        What the answer is called in the plan and the report; by default a description such as ``"mean of paid"``.
    bounds : (float, float), optional
        Values outside are cut to them. They must not come from the data.
    where : str, optional
        Only these rows, as a test in words: ``"age >= 18 and town = Linz"``.
    groups : str or sequence of str, optional
        One number for each group; several columns are a cross-table.
    keys : sequence or mapping, optional
        The groups, which must be known without looking at the data; of several columns tuples, or the values of each
        column. Needed with ``groups``.
    bins : int or sequence of float
        Of a histogram: so many bins between ``bounds``, or their edges.
    q : float or sequence of float
        Of a quantile, in [0, 1]; by default 0.5, the median.
    candidates : sequence of float, optional
        Of a quantile, in the place of ``bounds``: the values that it may take (of large tables, always).
    max_contributions, max_groups, max_per_group : int, optional
        How much of one person is used; by default what the plan says.
    within : float, optional
        The accuracy wanted: half the width of the 95 % interval for the noise of each number, in the units of the
        answer (of a quantile, by how many rows it may be off).
    weight : float
        Without ``within``: this answer's share of what the others leave, in relation to the other weights.
    rows : float, optional
        A public guess of the number of rows that a mean or a variance is taken over (in each group), from which its
        error is foretold; by default what the plan says. It changes no answer.

    Examples
    --------
    >>> from dpkit import queries
    >>> queries.Ask("mean", "paid", bounds=(0, 500), where="age >= 65").name
    'mean of paid where age >= 65'
    >>> queries.Ask("mean", "paid", bounds=(0, 500), q=0.5)
    Traceback (most recent call last):
        ...
    ValueError: 'mean of paid, q = 0.5': q does not apply to a mean, got q=0.5
    """

    what: What
    column: str | None = None
    name: str = ""
    bounds: tuple[float, float] | None = None
    where: str | None = None
    groups: str | tuple[str, ...] | None = None
    keys: tuple[Any, ...] | None = None
    bins: int | tuple[float, ...] | None = None
    q: float | tuple[float, ...] | None = None
    candidates: tuple[float, ...] | None = None
    max_contributions: int | None = None
    max_groups: int | None = None
    max_per_group: int | None = None
    within: float | None = None
    weight: float = 1.0
    rows: float | None = None

    def __init__(
        self,
        what: What,
        column: str | None = None,
        *,
        name: str = "",
        bounds: Sequence[float] | None = None,
        where: str | None = None,
        groups: str | Sequence[str] | None = None,
        keys: Sequence[Any] | Mapping[str, Sequence[Any]] | None = None,
        bins: int | Sequence[float] | None = None,
        q: float | Sequence[float] | None = None,
        candidates: Sequence[float] | None = None,
        max_contributions: int | None = None,
        max_groups: int | None = None,
        max_per_group: int | None = None,
        within: float | None = None,
        weight: float = 1.0,
        rows: float | None = None,
    ) -> None:
        given = {
            "what": what,
            "column": column,
            "where": where,
            "bounds": _frozen(bounds),
            "groups": _frozen(groups),
            "keys": None if keys is None else _cells(groups, keys),
            "bins": _frozen(bins),
            "q": 0.5 if q is None and what == "quantile" else _frozen(q),
            "candidates": _frozen(candidates),
            "max_contributions": max_contributions,
            "max_groups": max_groups,
            "max_per_group": max_per_group,
            "within": within,
            "weight": weight,
            "rows": rows,
        }
        for key, value in given.items():
            object.__setattr__(self, key, value)
        object.__setattr__(self, "name", name or self._described())
        self._check()

    def __repr__(self) -> str:
        """What was stated."""
        said = [repr(self.what), *([] if self.column is None else [repr(self.column)])]
        stated = {
            field.name: getattr(self, field.name) for field in fields(self) if field.name not in ("what", "column")
        }
        if self.name == self._described():
            del stated["name"]
        said += [f"{name}={value!r}" for name, value in stated.items() if value != Ask._UNSTATED.get(name)]
        return f"Ask({', '.join(said)})"

    def _described(self) -> str:
        out = self.what if self.column is None else f"{self.what} of {self.column}"
        if self.q is not None:
            out += f", q = {_listed(self.q)}"
        if self.groups is not None:
            out += f" by {_listed(self.groups)}"
        return out + (f" where {self.where}" if self.where else "")

    def _check(self) -> None:
        if self.what not in get_args(What):
            raise ValueError(f"what must be one of {', '.join(get_args(What))}, got what={self.what!r}")
        if not isinstance(self.name, str):
            raise TypeError(f"name must be a text, got name={self.name!r}")
        for entry in (self.column, self.where, *(self.groups if isinstance(self.groups, tuple) else (self.groups,))):
            if entry is not None and not isinstance(entry, str):
                raise TypeError(
                    f"{self.name!r}: columns are named by texts, so that a plan needs no data, got {entry!r}"
                )
        if (self.what in _NEEDS_COLUMN) != (self.column is not None):
            wanted = "must name the column it is about" if self.what in _NEEDS_COLUMN else "takes no column"
            raise ValueError(f"{self.name!r}: a {self.what} {wanted}, got column={self.column!r}")
        for option in _OPTIONAL:
            value = getattr(self, option)
            if value is not None and option not in _TAKES[self.what]:
                raise ValueError(f"{self.name!r}: {option} does not apply to a {self.what}, got {option}={value!r}")
        if (self.groups is None) != (self.keys is None):
            raise ValueError(
                f"{self.name!r}: groups and keys go together, got groups={self.groups!r} and keys={self.keys!r}: a "
                "plan lists the groups that are reported, known without looking at the data"
            )
        for option in ("within", "weight", "rows"):
            if (value := getattr(self, option)) is not None:
                positive(f"{option} of {self.name!r}", value)
        if self.within is not None and self.weight != 1.0:
            raise ValueError(f"{self.name!r}: weight shares what is left, and within= is wanted: leave one of them out")

    _UNSTATED: ClassVar[dict[str, Any]] = {"name": "", "weight": 1.0}

    @property
    def grouped(self) -> bool:
        """Whether there is one number for each group or bin."""
        return self.groups is not None or self.what == "histogram"

    def options(self) -> dict[str, Any]:
        """What of the description is passed to the query, ``where`` and the bounds on persons aside."""
        found = {field.name: getattr(self, field.name) for field in fields(self) if field.name in _OPTIONAL}
        if self.what == "histogram" and found["bins"] is None:
            found["bins"] = 10
        return {
            key: list(value) if isinstance(value, tuple) and key != "bounds" else value
            for key, value in found.items()
            if value is not None
        }

    def numbers(self) -> int:
        """How many numbers the answer has."""
        if self.keys is not None:
            return len(self.keys) * (len(self.q) if isinstance(self.q, tuple) else 1)
        if self.what == "histogram":
            return (len(self.bins) - 1) if isinstance(self.bins, tuple) else int(self.bins or 10)
        return len(self.q) if isinstance(self.q, tuple) else 1


def _cells(groups: Any, keys: Any) -> tuple[Any, ...]:
    """The groups one by one, of several columns as tuples."""
    for one in keys.values() if isinstance(keys, Mapping) else [keys]:
        if isinstance(one, str):
            raise TypeError(f"keys must be a list of groups, got the text {one!r}: write [{one!r}]")
    if not isinstance(keys, Mapping):
        return tuple(_frozen(key) for key in keys)
    names = [groups] if isinstance(groups, str) else list(groups or ())
    if set(keys) != set(names):
        raise ValueError(f"keys must have the values of each column of groups, {names!r}, got {list(keys)!r}")
    return tuple(product(*(tuple(keys[name]) for name in names))) if len(names) > 1 else tuple(keys[names[0]])


def _frozen(value: Any) -> Any:
    return value if isinstance(value, str) or not hasattr(value, "__iter__") else tuple(value)


def _listed(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(_listed(entry) for entry in value)
    return f"{value:g}" if isinstance(value, float) and math.isfinite(value) else str(value)


def answers_said(number: int) -> str:
    """How many answers, in words: "1 answer", "3 answers"."""
    return f"{number} answer" if number == 1 else f"{number} answers"

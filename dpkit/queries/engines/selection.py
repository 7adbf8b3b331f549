"""What a query selects of a table, the key of the hash that chooses a person's rows, and what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from dpkit.queries.engines.dialects import Dialect
from dpkit.queries.engines.layers import layered
from dpkit.queries.engines.parts import PRIME
from dpkit.queries.engines.tables import Table
from dpkit.samplers._exact import random_words

__all__ = ["Key", "Selection", "Totals"]

_FORM = 48


@dataclass(frozen=True)
class Key:
    """The coefficients of the hash: of the linear form, and four of the polynomial."""

    form: tuple[int, ...]
    polynomial: tuple[int, int, int, int]

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> Key:
        """From 64 random bits each, which leaves each of the 2³¹ − 2 values within 2⁻³³ of its share."""
        found = [1 + int(word) % (PRIME - 1) for word in random_words(rng, _FORM + 4)]
        return cls(tuple(found[:_FORM]), (found[-4], found[-3], found[-2], found[-1]))

    def linear(self, pieces: Sequence[str], start: int = 1) -> str:
        """The linear form of pieces of at most 31 bits, from a coefficient on, in SQL: all products are below 2⁶²."""
        terms = [f"({piece} * {a}) % {PRIME}" for piece, a in zip(pieces, self.form[start:], strict=False)]
        return f"(({' + '.join(terms)} + {self.form[0]}) % {PRIME})"

    def mixed(self, t: str) -> str:
        """The polynomial of a column that holds a linear form."""
        out, *others = map(str, self.polynomial)
        for coefficient in others:
            out = f"(({out} * {t} + {coefficient}) % {PRIME})"
        return out


@dataclass(frozen=True)
class Selection:
    """What is selected, before any bound: all as SQL; ``where`` behind WHERE, ``keys`` as what stands behind FROM."""

    table: Table
    where: str
    person: str | None
    whole_person: bool
    groups: list[str]
    keys: str | None
    columns: list[str]
    known: list[str]  # have a value where all columns have one
    binned: bool

    @property
    def dialect(self) -> Dialect:
        return self.table.dialect

    @cached_property
    def g(self) -> list[str]:
        return [f"g{i}" for i in range(len(self.groups))]

    @cached_property
    def v(self) -> list[str]:
        return [f"v{i}" for i in range(len(self.columns))]

    @property
    def rows(self) -> str:
        return self.table.rows()

    def selected(self) -> str:
        """p (the person), k (the row key), g0, g1, … (groups) and v0, v1, … (whole numbers) of every row."""
        given = dict(zip(self.g + self.v, self.groups + self.columns, strict=True))
        if self.person is not None:
            given["p"] = self.person
            if self.table.row_key is not None:
                given["k"] = self._row_key()
        source, texts = layered(self.rows, self.where, list(given.values()))
        named = [f"{text} AS {name}" for text, name in zip(texts, given, strict=True)]
        return f"(SELECT {', '.join(named) or '1 AS one'} FROM {source}) AS t"

    def _row_key(self) -> str:
        name = self.table.row_key
        kind = self.table.kind(name, "row_key")
        if kind not in ("whole", "text"):
            raise TypeError(f"row_key must be whole numbers or texts, got {name!r}: convert it to a text")
        column = self.dialect.column(str(name))
        if kind == "whole":
            return f"CAST({column} AS BIGINT)"
        return self.dialect.hash_of_text(self.dialect.text(column))


@dataclass
class Totals:
    """n and the sums of the columns by group (and by what is spread); what is bad or missing, in rows."""

    cells: dict[tuple[Any, ...], tuple[int, ...]] = field(default_factory=dict)
    bad: int = 0
    unknown_groups: int = 0
    unknown_persons: int = 0

    def add(self, key: tuple[Any, ...], numbers: Sequence[Any]) -> None:
        """Numbers of a cell, which may have some already."""
        before = self.cells.get(key, (0,) * len(numbers))
        self.cells[key] = tuple(old + int(new or 0) for old, new in zip(before, numbers, strict=True))

"""The language of ``where``: which rows are meant, in a sentence.

    region = North and (paid >= 20 or day < 2026-02-01) and not town in (Linz, 'Bad Ischl')

A test is a column, a relation and a value; tests are joined by ``and``, ``or``, ``not`` and parentheses, ``not`` before
``and`` before ``or``. Relations are ``=`` (also written ``==``), ``!=``, ``<``, ``<=``, ``>``, ``>=``, ``in (a, b)``
and ``not in (a, b)``. A column alone means the rows that have a value there. Names and values with spaces may be
written as they are; what holds a sign, a comma, a parenthesis or one of the words above goes into quotes, ' or " or `.

A column of numbers is compared with numbers, one of dates with dates (2026-01-31, 2026-01, 2026-01-31 08:30), one of
true and false with these, one of texts with texts: by = and != alone, unless all of them are dates. Whatever else is
asked is refused. A number that is meant as a text goes into quotes: zip = '1010'. Comparisons of whole numbers are
exact, however large they are and whatever is missing.

A column of a CSV file has no type of its own (``_cells``): there the value that is written in the test says whether
numbers, dates, truth or texts are compared, one cell after another, and what is not of that kind is refused.

A row that lacks the value passes no test of it, and not the opposite either (the logic of SQL): ``town != Linz`` and
``not town = Linz`` mean the rows of which a town is known, and another one.
"""

from __future__ import annotations

import operator
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dpkit.queries._cells import Cells
from dpkit.queries._dates import DATE, as_dates

__all__ = [
    "Both",
    "Either",
    "Known",
    "Not",
    "Test",
    "Where",
    "kind_of",
    "missing",
    "named_columns",
    "number_in",
    "parse",
    "passing",
    "told_instead",
]

Mask = NDArray[np.bool_]
_RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_ORDER = ("<", "<=", ">", ">=")
_FOREIGN = re.compile(r"\s(like|ilike|is|between|contains|matches|equals|eq|gt|lt|ge|le|ne)\s", re.IGNORECASE)
_HELP = "a test is a column, one of = != < <= > >= in, and a value, as in town = Linz"
_TOKEN = re.compile(r"""\s*(?:(?P<quoted>'[^']*'|"[^"]*"|`[^`]*`)(?![^\s()<>=!~&|,])|(?P<sign>[<>=!~&|]+|[(),])|"""
                    r"""(?P<word>[^\s()<>=!~&|,]+))""")  # fmt: skip


@dataclass(frozen=True)
class Value:
    """A value as it was written; ``quoted`` makes it a text, whatever it looks like."""

    text: str
    quoted: bool = False


@dataclass(frozen=True)
class Known:
    """The rows that have a value in the column."""

    column: str


@dataclass(frozen=True)
class Test:
    """A column, a relation (one of = != < <= > >= in), and one value, with ``in`` several."""

    column: str
    relation: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Not:
    """The rows that fail it, of those of which that is known."""

    of: Where


@dataclass(frozen=True)
class Both:
    """The rows that pass both."""

    left: Where
    right: Where


@dataclass(frozen=True)
class Either:
    """The rows that pass at least one."""

    left: Where
    right: Where


Where = Known | Test | Not | Both | Either


def parse(text: str) -> Where:
    """The sentence as a tree, or a refusal that shows where it ends to make sense.

    >>> parse("town = Bad Ischl and not paid > 20")  # doctest: +NORMALIZE_WHITESPACE
    Both(left=Test(column='town', relation='=', values=(Value(text='Bad Ischl', quoted=False),)),
         right=Not(of=Test(column='paid', relation='>', values=(Value(text='20', quoted=False),))))
    """
    parser = _Parser(text)
    try:
        return parser.sentence()
    except RecursionError:
        raise ValueError(f"where must be a test, and {_HELP}: this one is nested too deeply") from None


def named_columns(tree: Where) -> list[str]:
    """The columns that a tree names."""
    if isinstance(tree, (Known, Test)):
        return [tree.column]
    parts = [tree.of] if isinstance(tree, Not) else [tree.left, tree.right]
    return [column for part in parts for column in named_columns(part)]


def passing(tree: Where, read: Callable[[str], NDArray[Any] | Cells]) -> Mask:
    """Which rows pass; ``read`` gives the columns, masked where whole numbers are missing."""
    return _truth(tree, {name: read(name) for name in named_columns(tree)})[0]


class _Parser:
    """By recursive descent, over tokens (kind, text, start, end)."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"where must be a test, and {_HELP}, got where={text!r}")
        self.text, self.at = text, 0
        self.tokens = list(self._split())

    def _split(self) -> Iterator[tuple[str, str, int, int]]:
        place = 0
        while self.text[place:].strip():
            found = _TOKEN.match(self.text, place)
            if found is None or (found["word"] or "")[:1] in ("'", '"', "`"):
                self._refuse("a quote that is not closed", place)
            kind = str(found.lastgroup)
            text = found[kind]
            if kind == "word" and text.lower() in ("and", "or", "not", "in"):
                kind, text = "keyword", text.lower()
            if kind == "sign" and text not in ("(", ")", ","):
                if text == "==":
                    text = "="
                if text not in _RELATIONS:
                    self._refuse(f"no relation {text!r}", found.start(found.lastgroup or 0))
            yield kind, text, found.start(kind if kind != "keyword" else "word"), found.end()
            place = found.end()

    def _refuse(self, what: str, place: int | None = None) -> NoReturn:
        if place is None:
            place = self.tokens[self.at][2] if self.at < len(self.tokens) else len(self.text)
        rest = self.text[place:].strip()
        where = f"at {rest!r}" if rest else "at its end"
        raise ValueError(f"where must be a test, and {_HELP}: {what} {where}, got where={self.text!r}")

    def _next(self, *wanted: tuple[str, str]) -> bool:
        """Step over the next token if it is one of these."""
        here = self.tokens[self.at][:2] if self.at < len(self.tokens) else ("", "")
        found = here in wanted
        self.at += found
        return found

    def sentence(self) -> Where:
        tree = self._either()
        if self.at < len(self.tokens):
            self._refuse("something is left over")
        return tree

    def _either(self) -> Where:
        parts = [self._both()]
        while self._next(("keyword", "or")):
            parts.append(self._both())
        return _joined(Either, parts)

    def _both(self) -> Where:
        parts = [self._one()]
        while self._next(("keyword", "and")):
            parts.append(self._one())
        return _joined(Both, parts)

    def _one(self) -> Where:
        negated = 0
        while self._next(("keyword", "not")):
            negated += 1
        if negated:
            return Not(self._one()) if negated % 2 else self._one()
        if self._next(("sign", "(")):
            tree = self._either()
            if not self._next(("sign", ")")):
                self._refuse("a parenthesis is not closed")
            return tree
        start = self.tokens[self.at][2] if self.at < len(self.tokens) else 0
        quoted = self.at < len(self.tokens) and self.tokens[self.at][0] == "quoted"
        column = self._phrase("a column").text
        negated = False
        if self.tokens[self.at : self.at + 2] and [t[:2] for t in self.tokens[self.at : self.at + 2]] == [
            ("keyword", "not"), ("keyword", "in"),
        ]:  # fmt: skip
            self.at += 1
            negated = True
        if self._next(("keyword", "in")):
            test: Where = Test(column, "in", self._list())
            return Not(test) if negated else test
        for relation in _RELATIONS:
            if self._next(("sign", relation)):
                return Test(column, relation, (self._phrase("a value"),))
        strange = None if quoted else _FOREIGN.search(column)
        if strange:
            self._refuse(f"no relation {strange[1]!r} (a column of that name goes into quotes)", start)
        return Known(column)

    def _list(self) -> tuple[Value, ...]:
        if not self._next(("sign", "(")):
            self._refuse("in needs a list in parentheses")
        values = [self._phrase("a value")]
        while self._next(("sign", ",")):
            values.append(self._phrase("a value"))
        if not self._next(("sign", ")")):
            self._refuse("a parenthesis is not closed")
        return tuple(values)

    def _phrase(self, what: str) -> Value:
        """A quoted text, or words with the spaces between them as they are written."""
        start = self.at
        if start < len(self.tokens) and self.tokens[start][0] == "quoted":
            self.at += 1
            return Value(self.tokens[start][1][1:-1], True)
        while self.at < len(self.tokens) and self.tokens[self.at][0] == "word":
            self.at += 1
        if self.at == start:
            self._refuse(f"{what} is missing")
        return Value(self.text[self.tokens[start][2] : self.tokens[self.at - 1][3]])


def _joined(word: type[Both] | type[Either], parts: list[Where]) -> Where:
    """All of them in a tree of the least depth: who reads a tree calls itself, and tests may be thousands."""
    if len(parts) == 1:
        return parts[0]
    half = (len(parts) + 1) // 2
    return word(_joined(word, parts[:half]), _joined(word, parts[half:]))


def _truth(tree: Where, columns: dict[str, NDArray[Any] | Cells]) -> tuple[Mask, Mask]:
    """Of which rows it is true, and of which it is false; of the others neither is known."""
    if isinstance(tree, Not):
        yes, no = _truth(tree.of, columns)
        return no, yes
    if isinstance(tree, (Both, Either)):
        (yes, no), (also, nor) = _truth(tree.left, columns), _truth(tree.right, columns)
        return (yes & also, no | nor) if isinstance(tree, Both) else (yes | also, no & nor)
    array = columns[tree.column]
    if isinstance(array, Cells):
        return _truth_of_cells(tree, array)
    known = ~missing(array)
    kind = _kind(array, known, tree.column)
    if isinstance(tree, Known):
        if kind == "truth":
            raise ValueError(_untested_truth(tree.column))
        return known, ~known
    relation = "=" if tree.relation == "in" else tree.relation
    found: Mask = np.zeros(array.size, np.bool_)
    for value in tree.values:
        found |= _compared(array, known, kind, tree.column, relation, value)
    return found & known, ~found & known


def _truth_of_cells(tree: Known | Test, cells: Cells) -> tuple[Mask, Mask]:
    """The same of a column that is written in a CSV file."""
    known = ~cells.missing
    if isinstance(tree, Known):
        if cells.truth is not None:
            raise ValueError(_untested_truth(tree.column))
        return known, ~known
    relation = "=" if tree.relation == "in" else tree.relation
    found: Mask = np.zeros(known.size, np.bool_)
    for value in tree.values:
        found |= _compared_cells(cells, known, tree.column, relation, value)
    return found & known, ~found & known


def _compared_cells(cells: Cells, known: Mask, column: str, relation: str, value: Value) -> Mask:
    """Which cells stand in the relation; the value says whether they are numbers, truth, dates or texts."""
    text, compare = value.text, _RELATIONS[relation]
    if not value.quoted and number_in(text) is not None:
        if strange := int(np.count_nonzero(cells.strange)):
            raise ValueError(
                f"where must compare {column!r}, which holds texts, with a text, got the number {text}, and "
                f"{strange:,} of the {int(known.sum()):,} values are no numbers: write '{text}' in quotes if it is "
                "meant as a text"
            )
        return np.asarray(compare(cells.signs(text), 0), np.bool_)
    if not value.quoted and relation not in _ORDER and text.lower() in ("true", "false"):
        if known.any() and not cells.strange.any():
            raise ValueError(
                f"where must compare {column!r}, which holds numbers, with one, got {text}: write '{text}' in quotes "
                "if it is meant as a text"
            )
        return np.equal(cells.equal(text.lower(), in_any_case=True), relation == "=")
    if relation in _ORDER and not DATE.match(text):
        raise ValueError(
            f"where must ask for = or != of {column!r}, or compare it with a number, or with a date such as "
            f"2026-01-31, got {relation} {text}"
        )
    if DATE.match(text) and not (value.quoted and relation not in _ORDER):
        return _compared(cells.texts, known, "texts" if known.any() else "anything", column, relation, value)
    if not value.quoted and known.any() and (cells.truth is not None or not cells.strange.any()):
        held = "numbers, with one" if cells.truth is None else "true and false, with one of them"
        raise ValueError(
            f"where must compare {column!r}, which holds {held}, got {text!r}: write '{text}' in quotes if it is meant "
            "as a text"
        )
    return np.equal(cells.equal(text), relation == "=")


def _untested_truth(column: str) -> str:
    return (
        f"where must say what is asked of {column!r}, which holds true and false: {column} = true; "
        f"or {column} in (true, false) for the rows that have a value there"
    )


def missing(array: NDArray[Any]) -> Mask:
    """Which values are not known."""
    if isinstance(array, np.ma.MaskedArray):
        return np.asarray(np.ma.getmaskarray(array), np.bool_)
    if array.dtype.kind == "M":
        return np.asarray(np.isnat(array), np.bool_)
    if array.dtype.kind not in "fO":
        return np.zeros(array.size, np.bool_)
    pandas = sys.modules.get("pandas")  # whose NA has no truth value
    return np.asarray(pandas.isna(array) if pandas else (array != array) | (array == None), np.bool_)  # noqa: E711


def _kind(array: NDArray[Any], known: Mask, column: str) -> str:
    """What a column holds: numbers, truth, dates, texts, or (where no value is known) anything."""
    kind = array.dtype.kind
    if not known.any():
        return "anything"  # an empty column is answered as a full one would be
    if kind in "iufbMUS":
        return {"b": "truth", "M": "dates", "U": "texts", "S": "texts"}.get(kind, "numbers")
    kinds = {kind_of(kind) for kind in set(map(type, array[known].tolist()))}
    if len(kinds) > 1 or "" in kinds:
        raise ValueError(
            f"where must ask about a column of one kind, numbers, texts, dates or true and false, and {column!r} holds "
            "several: convert it first"
        )
    return kinds.pop()


def kind_of(kind: type) -> str:
    """What values of a type are: numbers, truth, dates, texts, or nothing of these."""
    import datetime
    import numbers
    from decimal import Decimal

    if issubclass(kind, (bool, np.bool_)):
        return "truth"
    if issubclass(kind, (numbers.Real, Decimal)):
        return "numbers"
    return "dates" if issubclass(kind, datetime.date) else "texts" if issubclass(kind, str) else ""


def _compared(array: NDArray[Any], known: Mask, kind: str, column: str, relation: str, value: Value) -> Mask:
    """Which rows stand in the relation; those that are not known do not matter."""
    text, compare = value.text, _RELATIONS[relation]
    if kind == "anything":
        return np.zeros(array.size, np.bool_)
    if kind == "numbers":
        number = None if value.quoted else number_in(text)
        if number is None:
            quotes = f"the text {text!r}: leave the quotes out" if value.quoted else repr(text)
            raise ValueError(f"where must compare {column!r}, which holds numbers, with one, got {quotes}")
        return _on_known(array, known, lambda part: compare(_comparable(part, number), number))
    if kind == "truth":
        if text.lower() not in ("true", "false") or relation in _ORDER:
            raise ValueError(f"where must ask whether {column!r} = true or {column!r} = false, got {relation} {text}")
        return _on_known(array, known, lambda part: compare(part.astype(np.bool_), text.lower() == "true"))
    if kind == "dates":
        if not DATE.match(text):
            raise ValueError(
                f"where must compare {column!r}, which holds dates, with a date such as 2026-01-31, got {text!r}"
            )
        day = as_dates("where", [text], private=False)[0]
        return _on_known(array, known, lambda part: compare(as_dates("where", part), day))
    dated = DATE.match(text) is not None and not value.quoted
    if relation in _ORDER and not DATE.match(text):
        raise ValueError(
            f"where must ask for = or != of {column!r}, which holds no numbers, or for a date such as 2026-01-31, "
            f"got {relation} {text}"
        )
    if dated or relation in _ORDER:
        other = sum(not DATE.match(str(one)) for one in array[known].tolist())
        if other:
            raise ValueError(
                f"where must compare dates with dates, year first: {other:,} of the {int(known.sum()):,} values of "
                f"{column!r} are not like 2026-01-31; write them so first, or quote '{text}' if it is a text"
            )
        day = as_dates("where", [text], private=False)[0]
        return _on_known(array, known, lambda part: compare(as_dates("where", part), day))
    if not value.quoted and number_in(text) is not None:
        raise ValueError(
            f"where must compare {column!r}, which holds texts, with a text, got the number {text}: write '{text}' in "
            "quotes if it is meant as a text"
        )
    return _on_known(array, known, lambda part: compare(part.astype(str), text))


def _on_known(array: NDArray[Any], known: Mask, test: Callable[[NDArray[Any]], Any]) -> Mask:
    out = np.zeros(array.size, np.bool_)
    out[known] = test(np.asarray(array[known]))
    return out


def _comparable(part: NDArray[Any], number: float | int) -> NDArray[Any]:
    """Numbers that are compared exactly, where numpy would round one of them to a double first."""
    if part.dtype.kind in "iu" and isinstance(number, float) and part.size:
        return part.astype(object) if max(-int(part.min()), int(part.max())) > 2**53 else part
    if part.dtype.kind == "f" and isinstance(number, int) and abs(number) > 2**53:
        return part.astype(object)
    return part


def told_instead(column: str) -> str:
    """What to write in the place of a column that is not one of true and false."""
    name = column if re.match(r"\w+$", column) else f"'{column}'"
    return f'where="{name} = 1" tests it, and where="({name})" means the rows that have a value there'


def number_in(text: str) -> float | int | None:
    """The finite number that a text is, if it is one."""
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return number if np.isfinite(float(number)) else None
    return None

"""At most so many rows of one person, chosen by a keyed hash: the same rows on every engine, in every order of rows.

Order. A person's rows are put into the order of h(person, row key), and the first m are used; a person's groups are put
into the order of h(person, group), and the first G are used. h is a random polynomial of degree 3 over the field of
2³¹ − 1 elements, of a random linear form of the 31-bit pieces of its arguments (Carter & Wegman 1979): its coefficients
are drawn anew for every query, from the secure source or from the seeded generator of a simulation. Ties, of
probability 2⁻³⁰ for two rows, go by the values.

Why this bounds sensitivity. Which of a person's rows are used depends on that person's rows and on the coefficients
alone, whatever the hash is worth: with the same coefficients, neighbouring data give the same selection of everybody
else's rows. A hash that spreads badly would cost accuracy (rows that are used are no fair sample), never privacy.

Row keys. Without a column that tells a person's rows apart, the key of a row is what the query uses of it, its group
and its whole numbers, and a number that counts rows that agree in all of these. Rows that agree are exchangeable, as
the sums are the same whichever of them is used; counting them gives each a chance of its own.

A count needs no choice among a person's rows in a group: it is min(rows, m).

Parts. Persons are hashed into parts that the engine can sort in memory, which are read one after another.
"""

from __future__ import annotations

import math

import numpy as np

from dpkit.queries._units import Share
from dpkit.queries.engines.dialects import Dialect
from dpkit.queries.engines.parts import PRIME, kept_by_numpy
from dpkit.queries.engines.selection import Key, Selection, Totals
from dpkit.queries.engines.sessions import DuckDB
from dpkit.queries.engines.together import Scan

__all__ = ["kept_totals"]

# rows that are sorted at once
_ROWS_PER_PART = 2_000_000


def kept_totals(selection: Selection, share: Share, rng: np.random.Generator, spread: bool) -> Totals:
    """The sums over the rows that are used; ``spread``: counts for every value of the first column."""
    if selection.person is None:
        return _all_totals(selection, spread)
    totals = _checks(selection)
    if totals.bad or totals.unknown_groups or totals.unknown_persons:
        return totals
    key = Key.drawn(rng)
    rows = totals.cells.pop(())[0]
    parts = math.ceil(rows / _ROWS_PER_PART)
    session = selection.table.session
    if (
        isinstance(session, DuckDB) and selection.whole_person and selection.columns and parts
        and (selection.keys is not None or selection.binned or not selection.groups)
    ):  # fmt: skip
        _add_parts(totals, session, selection, share, key, parts, spread)
        return totals
    query = _counted if not selection.columns else _chosen
    for part in range(parts):
        for found in session.ask(query(selection, share, key, (part, parts), spread)):
            numbers = 1 + (0 if spread else len(selection.v))
            totals.add(tuple(found[:-numbers]), found[-numbers:])
    return totals


def _add_parts(
    totals: Totals, session: DuckDB, selection: Selection, share: Share, key: Key, parts: int, spread: bool
) -> None:
    """The sums over the rows that numpy keeps, part by part."""
    source, cell = _listed_rows(selection, key, (0, 1))
    keyed = selection.table.row_key is not None
    columns = ["p", *cell, *selection.v, *(["k"] if keyed else [])]
    batches = session.batches(f"SELECT {', '.join(f'CAST({name} AS BIGINT)' for name in columns)} FROM {source}")
    kept = kept_by_numpy(batches, share, key.form, key.polynomial, parts=parts, grouped=bool(cell), keyed=keyed)
    for group, *values in kept:
        if spread:
            cells, counts = np.unique(np.stack([group, values[0]]), axis=1, return_counts=True)
            for (code, value), n in zip(cells.T.tolist(), counts.tolist(), strict=True):
                totals.add((code, value) if cell else (value,), [n])
            continue
        size = int(group.max(initial=0)) + 1
        counts = np.bincount(group, minlength=size)
        # in two halves, whose sums are exact in double precision
        sums = [
            [(int(high) << 16) + int(low) for high, low in zip(
                np.bincount(group, weights=column >> 16, minlength=size).tolist(),
                np.bincount(group, weights=column & 0xFFFF, minlength=size).tolist(),
                strict=True,
            )]
            for column in values
        ]  # fmt: skip
        for code in np.flatnonzero(counts).tolist():
            totals.add((code,) if cell else (), [int(counts[code]), *(column[code] for column in sums)])


def _all_totals(selection: Selection, spread: bool) -> Totals:
    """Where nothing bounds what is used: one scan, which checks what it adds up."""
    g = len(selection.groups)
    cell = (*selection.groups, *selection.columns[:spread])
    known, added = ((), ()) if spread else (tuple(selection.known), tuple(selection.columns))
    numbers_of = 1 + len(known) + len(added)
    keyed = selection.keys is not None
    totals = Totals()
    for found in selection.table.added_up(
        Scan(selection.rows, selection.where, cell, known, added, selection.keys, g if keyed else 0)
    ):
        key, numbers = list(found[:-numbers_of]), found[-numbers_of:]
        if keyed:
            lost = key.pop(1)
            key[0] = -1 if key[0] is None else key[0]
        else:
            lost = any(part is None for part in key[:g])
        n, counts, sums = int(numbers[0]), numbers[1 : 1 + len(known)], numbers[1 + len(known) :]
        if (lost and selection.binned) or (spread and key[-1] is None):
            totals.bad += n
            continue
        totals.bad += max((n - int(count) for count in counts), default=0)
        if lost:
            totals.unknown_groups += n
            continue
        totals.add(tuple(key), [n, *sums])
    return totals


def _checks(selection: Selection) -> Totals:
    """What is bad or missing in all rows that are asked about, used or not; and how many they are."""
    g = len(selection.groups)
    wanted = (str(selection.person), *selection.groups, *selection.known)
    ((n, persons, *known),) = selection.table.added_up(Scan(selection.rows, selection.where, known=wanted))
    missing = [n - one for one in known]
    groups = max(missing[:g], default=0)
    bad = max(missing[g:], default=0) + (groups if selection.binned else 0)
    return Totals({(): (n,)}, int(bad), 0 if selection.binned else int(groups), int(n - persons))


def _equal(g: list[str]) -> str:
    return " AND ".join(f"{name} = keys.k{i}" for i, name in enumerate(g))


def _listed_rows(selection: Selection, key: Key, part: tuple[int, int]) -> tuple[str, list[str]]:
    """The rows of a part of the persons, in listed groups only; and the columns that name the group."""
    source, cell = selection.selected(), selection.g
    number, parts = part
    if selection.keys is not None:
        others = ", ".join(["p", *(["k"] if selection.table.row_key else []), *selection.v])
        source = f"(SELECT code, {others} FROM {source} JOIN {selection.keys} ON {_equal(selection.g)}) AS t"
        cell = ["code"]
    tests = [] if parts == 1 else [f"{key.linear(_person(selection), start=-4)} % {parts} = {number}"]
    if selection.binned:
        tests.append("g0 >= 0")
    return source + (f" WHERE {' AND '.join(tests)}" if tests else ""), cell


def _pieces(whole: str, dialect: Dialect) -> list[str]:
    return [f"({whole} & {PRIME})", dialect.high_bits(whole)]


def _person(selection: Selection) -> list[str]:
    p = "p" if selection.whole_person else selection.dialect.hash_of_text("p")
    return _pieces(p, selection.dialect)


def _group_pieces(selection: Selection, cell: list[str]) -> list[str]:
    """Of the group's number where it is listed, else of its values."""
    if cell != selection.g or selection.binned:
        return [f"CAST({cell[0]} AS BIGINT)"]
    out = []
    for name in cell:
        out += _pieces(selection.dialect.hash_of_text(selection.dialect.text(name)), selection.dialect)
    return out


def _counted(selection: Selection, share: Share, key: Key, part: tuple[int, int], spread: bool) -> str:
    """The number of rows that are used, by group."""
    source, cell = _listed_rows(selection, key, part)
    m, most = share.per_group, share.groups
    own = ", ".join(["p", *cell])
    counts = f"SELECT {own}, COUNT(*) AS n FROM {source} GROUP BY {own}"
    if not cell:
        return f"SELECT SUM(LEAST(n, {m})) FROM ({counts}) AS a"
    names = ", ".join(cell)
    linear = key.linear([*_person(selection), *_group_pieces(selection, cell)])
    return (
        f"SELECT {names}, SUM(LEAST(n, {m})) FROM (SELECT {names}, n, ROW_NUMBER() OVER "
        f"(PARTITION BY p ORDER BY h, {names}) AS place FROM (SELECT p, {names}, n, {key.mixed('t')} AS h FROM "
        f"(SELECT p, {names}, n, {linear} AS t FROM ({counts}) AS a) AS b) AS c) AS d "
        f"WHERE place <= {most} GROUP BY {names}"
    )


def _chosen(selection: Selection, share: Share, key: Key, part: tuple[int, int], spread: bool) -> str:
    """Number and sums of the rows that are used, by group."""
    source, cell = _listed_rows(selection, key, part)
    say, v = selection.dialect, selection.v
    own, ordered = ", ".join(["p", *cell]), ", ".join(v)
    person = _person(selection)
    if selection.table.row_key is None:
        alike = ", ".join(["p", *cell, *v])
        number = f"ROW_NUMBER() OVER (PARTITION BY {alike} ORDER BY p)"
        source = f"(SELECT {alike}, CAST({number} AS BIGINT) AS j FROM {source}) AS a"
        pieces = [*person, *(piece for name in [*v, "j"] for piece in _pieces(name, say))]
        ordered += ", j"
    else:
        source = f"(SELECT {own}, k, {ordered} FROM {source}) AS a"
        # with the values, for a key that several of a person's rows have
        pieces = [*person, *(piece for name in [*v, "k"] for piece in _pieces(name, say))]
    linear = [f"{key.linear(pieces)} AS t"]
    mixed = [f"{key.mixed('t')} AS h"]
    places = [f"ROW_NUMBER() OVER (PARTITION BY {own} ORDER BY h, {ordered}) AS place"]
    tests = [f"place <= {share.per_group}"]
    if cell:
        linear.append(f"{key.linear([*person, *_group_pieces(selection, cell)])} AS t_group")
        mixed.append(f"{key.mixed('t_group')} AS h_group")
        places.append(f"DENSE_RANK() OVER (PARTITION BY p ORDER BY h_group, {', '.join(cell)}) AS place_of_group")
        tests.append(f"place_of_group <= {share.groups}")
    columns = ", ".join(["p", *cell, ordered])
    hashed = f"SELECT {columns}, {', '.join(linear)} FROM {source}"
    hashed = f"SELECT {columns}, {', '.join(mixed)} FROM ({hashed}) AS b"
    placed = f"SELECT {', '.join([*cell, *v])}, {', '.join(places)} FROM ({hashed}) AS c"
    named = [*cell, *(v[:1] if spread else [])]
    sums = ["COUNT(*)", *([] if spread else [f"SUM({name})" for name in v])]
    grouped = f" GROUP BY {', '.join(named)}" if named else ""
    return f"SELECT {', '.join([*named, *sums])} FROM ({placed}) AS d WHERE {' AND '.join(tests)}{grouped}"

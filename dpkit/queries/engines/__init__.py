"""Tables of any size: an engine filters, joins, bounds what a person contributes, and adds up whole numbers.

This package states the sensitivity, prices, draws exact noise and writes the ledger; what an engine hands back are sums
of whole numbers, a few for each group. ``data`` of a query may be a path (CSV, Parquet, a folder or pattern of it), a
LazyFrame of polars, a relation of DuckDB or a data frame of Spark; :func:`table` makes joins and derived tables.

Why the seam is SQL text, with a dialect of ten lines for each engine (``dialects``). Sensitivity rests on single
operations: how a number is rounded, what NaN is compared with, whether a product can leave 64 bits. Ibis and narwhals
hide these behind names of their own, and their window functions and casts differ between engines in just these places;
a translator of SQL passes them through unchanged. What all engines read alike (CASE, COUNT, SUM, windows, remainders of
whole numbers) is plenty, and one can read what is asked.

==================  ========================================================
which rows          ``tables``, ``conditions``, ``derived``
which numbers       ``scanned``
bounds on a person  ``bounded``, ``parts``
many queries        ``together``, ``layers``
where it runs       ``sessions``, ``dialects``
==================  ========================================================
"""

from dpkit.queries.engines.scanned import UNSORTED, Scanned, scanned
from dpkit.queries.engines.sessions import is_source
from dpkit.queries.engines.tables import Table, table, table_of
from dpkit.queries.engines.together import Scan, added_up

__all__ = ["UNSORTED", "Scan", "Scanned", "Table", "added_up", "is_source", "scanned", "table", "table_of"]

"""Private answers about a table: counts, sums, means, variances, histograms, quantiles, the most frequent values.

For analysts. Every query takes an array, a Series or a table (pandas, polars, pyarrow, a mapping of arrays), what may
be spent, and what is known of the columns; it returns an :class:`Answer` with a value, an interval and its cost.

Who is protected is said by the budget.

* ``budget.unit``: ``"row"``, or a person. For a person, ``person=`` names the column that says whose row it is, and
  ``max_contributions`` (or ``max_groups`` and ``max_per_group``, where the answer has one number per group) bounds
  how many rows of one person are used; the others are left out at random. Without ``person=`` the bounds are the
  caller's word, which nothing checks.
  :func:`contribution_bound` finds a bound privately, and :func:`share_cut` says what one leaves out.
* ``budget.adjacency``: under ``"replace"`` neighbours have the same number of units, so that the number of rows is
  public where every unit is one row; under ``"add_remove"`` it is private, and queries protect it; under ``"zero_out"``
  a unit is swapped for one that contributes nothing. Rows that were filtered out beforehand make the number of the
  others private: use ``where=`` in place of a filter.

Everything random is exact (``dpkit.samplers``), sums are sums of whole numbers, and a ledger records or refuses the
cost before anything is drawn. Bad input is refused before anything is spent.

>>> from accounting import Budget
>>> from dpkit import queries
>>> table = {"income": [21_000, 48_000, 35_000, 90_000], "id": ["u", "v", "v", "w"]}
>>> budget = Budget(1e6, 0.0, adjacency="add_remove", unit="person")
>>> answer = queries.mean(table, "income", bounds=(0, 200_000), person="id", max_contributions=2, budget=budget)
>>> round(answer.value)
48500
"""

from typing import TYPE_CHECKING, NoReturn

from dpkit.queries.above_threshold import AboveThreshold
from dpkit.queries.answer import Answer
from dpkit.queries.candidates import top_k
from dpkit.queries.contributions import contribution_bound, share_cut
from dpkit.queries.counts_and_sums import count, sum
from dpkit.queries.engines import table
from dpkit.queries.histograms import histogram
from dpkit.queries.marginal_tables import Marginals
from dpkit.queries.means_and_variances import mean, variance
from dpkit.queries.private_bounds import private_bounds
from dpkit.queries.quantiles import quantile
from dpkit.queries.reports.asks import Ask
from dpkit.queries.reports.plans import Plan, plan
from dpkit.queries.reports.report import Report
from dpkit.queries.residual_planner import marginals
from dpkit.queries.vectors import mean_vector

# what is looked for under the names that pandas gives it
_INSTEAD = {
    "median": "quantile(data, column, 0.5, bounds=..., budget=...)",
    "percentile": "quantile(data, column, q, bounds=..., budget=...), q in [0, 1]",
    "std": "variance(data, column, bounds=..., budget=...), of whose value it is the root",
    "min": "private_bounds(data, column, budget=...)",
    "max": "private_bounds(data, column, budget=...)",
    "value_counts": "count(data, groups=column, keys=..., budget=...)",
}


if not TYPE_CHECKING:  # to a type checker, which reads no body, a module that has it has every name

    def __getattr__(name: str) -> NoReturn:
        hint = f": ask {_INSTEAD[name]}" if name in _INSTEAD else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}", name=name)


__all__ = [
    "AboveThreshold",
    "Answer",
    "Ask",
    "Marginals",
    "Plan",
    "Report",
    "contribution_bound",
    "count",
    "histogram",
    "marginals",
    "mean",
    "mean_vector",
    "plan",
    "private_bounds",
    "quantile",
    "share_cut",
    "sum",
    "table",
    "top_k",
    "variance",
]

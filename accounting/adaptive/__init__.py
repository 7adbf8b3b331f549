"""Tighter totals where what was seen before decides what is worst next; each a theorem in one file.

* Which theorems are there, for which releases, and what does each gain? ``registry``, in the order of trial.
* How is such a game played, and why is the result certain? ``engine``.
* Many private choices: ``choices``. Batches of a fixed size: ``fixed_batches``. The best of several runs:
  ``repeated_selection``.
"""

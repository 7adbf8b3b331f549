"""Tighter totals for adaptive composition, where each release may follow what was seen: a theorem in each file.

* Which theorems are there, for which releases, and what does each gain? ``registry``, in the order of trial.
* How is such a game played, and why is the result certain? ``engine``.
* Many private choices: ``choices``. Batches of a fixed size: ``fixed_batches``. The best of several runs:
  ``repeated_selection``.
"""

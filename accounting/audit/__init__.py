"""Audits: is a ledger's arithmetic right, and is a mechanism as private as it says?

* ``recompute(ledger)``: the total under every accountant, against the declared budget.
* ``lower_bound(mechanism, data, neighbour, …)``: an empirical lower bound on ε from runs on two neighbouring inputs,
  with the test that shows it; ``from_scores`` for scores that exist already; ``one_run`` for one run with canaries.
* ``SequentialAudit``: canaries of one run, or of one run after another, until the bound is enough.
* ``scores``: log-likelihood ratios of common noises, and a classifier that learns one.

A lower bound above the claim proves, at its confidence, that the claim is false. One below it proves nothing.
"""

from accounting.audit import scores
from accounting.audit.canaries import one_run
from accounting.audit.findings import LowerBound, OneRunBound, PrivacyViolation, SequentialBound
from accounting.audit.report import Report, ScopeReport, recompute
from accounting.audit.sequential import SequentialAudit
from accounting.audit.threshold import from_scores, lower_bound

__all__ = [
    "LowerBound",
    "OneRunBound",
    "PrivacyViolation",
    "Report",
    "ScopeReport",
    "SequentialAudit",
    "SequentialBound",
    "from_scores",
    "lower_bound",
    "one_run",
    "recompute",
    "scores",
]

"""How a policy survives: which file answers which question.

* What does a saved state hold, and how is a policy made of it again? ``state``.
* How does a crash lose no reward? ``checkpoint`` (a state at every release) and ``journal`` (what came since).
* What waits for its reward? ``pending``. The log of decisions, for evaluation: ``decision_log``.
"""

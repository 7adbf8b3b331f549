"""Private and reference contextual bandits on one interface: ``select`` an arm, ``update`` with its reward."""

import dpkit  # noqa: F401 (first: it refuses a foreign package in the place of accounting)
from accounting import __version__
from dpbandits.policy import Decision, Pending, Policy, PrivacyReport
from dpbandits.private_policy import PrivatePolicy
from dpbandits.simulation.results import Results
from dpbandits.simulation.simulate import simulate

__all__ = [
    "Decision",
    "Pending",
    "Policy",
    "PrivacyReport",
    "PrivatePolicy",
    "Results",
    "__version__",
    "simulate",
]

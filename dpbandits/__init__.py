"""Private and reference contextual bandits on one interface: ``select`` an arm, ``update`` with its reward."""

from dpbandits.policy import Decision, Policy, PrivacyReport
from dpbandits.simulation.results import Results
from dpbandits.simulation.simulate import simulate

__all__ = ["Decision", "Policy", "PrivacyReport", "Results", "simulate"]

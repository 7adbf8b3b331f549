"""Private and reference contextual bandits on one interface: ``select`` an arm, ``update`` with its reward."""

from dpbandits.policy import Decision, Pending, Policy, PrivacyReport
from dpbandits.private_policy import PrivatePolicy
from dpbandits.simulation.results import Results
from dpbandits.simulation.simulate import simulate

__all__ = ["Decision", "Pending", "Policy", "PrivacyReport", "PrivatePolicy", "Results", "simulate"]

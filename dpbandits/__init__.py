"""Private and reference contextual bandits on one interface: ``select`` an arm, ``update`` with its reward."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpkit.lazy import attributes_of  # dpkit first: it refuses a foreign package in the place of accounting

if TYPE_CHECKING:
    from accounting import __version__
    from dpbandits.experiment.experiment import Experiment
    from dpbandits.lab import environments, evaluate
    from dpbandits.lab.price import price_of_privacy
    from dpbandits.lab.price_table import PriceTable
    from dpbandits.lab.simulation.results import Results
    from dpbandits.lab.simulation.simulate import simulate
    from dpbandits.policy.private import PrivatePolicy
    from dpbandits.policy.protocol import Decision, Pending, Policy, PrivacyReport
    from dpbandits.policy.released import Released

__all__ = [
    "Decision",
    "Experiment",
    "Pending",
    "Policy",
    "PrivacyReport",
    "PriceTable",
    "PrivatePolicy",
    "Released",
    "Results",
    "__version__",
    "environments",
    "evaluate",
    "price_of_privacy",
    "simulate",
]

# Loaded when they are first asked for, so that the command line's help does not wait for numpy.
_HOMES = {
    "Decision": "dpbandits.policy.protocol",
    "Experiment": "dpbandits.experiment.experiment",
    "Pending": "dpbandits.policy.protocol",
    "Policy": "dpbandits.policy.protocol",
    "PrivacyReport": "dpbandits.policy.protocol",
    "PrivatePolicy": "dpbandits.policy.private",
    "Released": "dpbandits.policy.released",
    "PriceTable": "dpbandits.lab.price_table",
    "Results": "dpbandits.lab.simulation.results",
    "__version__": "accounting",
    "environments": "dpbandits.lab.environments",
    "evaluate": "dpbandits.lab.evaluate",
    "price_of_privacy": "dpbandits.lab.price",
    "simulate": "dpbandits.lab.simulation.simulate",
}

__getattr__, __dir__ = attributes_of(__name__, _HOMES)

"""Private and reference contextual bandits on one interface: ``select`` an arm, ``update`` with its reward."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dpkit  # noqa: F401 (first: it refuses a foreign package in the place of accounting)
from dpbandits._lazy import attributes_of

if TYPE_CHECKING:
    from accounting import __version__
    from dpbandits.policy import Decision, Pending, Policy, PrivacyReport
    from dpbandits.price import price_of_privacy
    from dpbandits.price_table import PriceTable
    from dpbandits.private_policy import PrivatePolicy
    from dpbandits.released import Released
    from dpbandits.simulation.results import Results
    from dpbandits.simulation.simulate import simulate

__all__ = [
    "Decision",
    "Pending",
    "Policy",
    "PrivacyReport",
    "PriceTable",
    "PrivatePolicy",
    "Released",
    "Results",
    "__version__",
    "price_of_privacy",
    "simulate",
]

# Loaded when they are first asked for, so that the command line's help does not wait for numpy.
_HOMES = {
    "Decision": "dpbandits.policy",
    "Pending": "dpbandits.policy",
    "Policy": "dpbandits.policy",
    "PrivacyReport": "dpbandits.policy",
    "PrivatePolicy": "dpbandits.private_policy",
    "Released": "dpbandits.released",
    "PriceTable": "dpbandits.price_table",
    "Results": "dpbandits.simulation.results",
    "__version__": "accounting",
    "price_of_privacy": "dpbandits.price",
    "simulate": "dpbandits.simulation.simulate",
}

__getattr__, __dir__ = attributes_of(__name__, _HOMES)

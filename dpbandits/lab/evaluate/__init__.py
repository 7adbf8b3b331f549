"""What a policy would have earned, from a log of choices with their probabilities; also as a private release.

>>> from dpbandits import evaluate
>>> log = evaluate.Log.of(rewards=[1, 0, 1, 0], probabilities=[0.5] * 4, chosen=["tea", "tea", "coffee", "coffee"])
>>> evaluate.ips(log.rewards, log.probabilities, log.always("tea")).value
0.5
"""

from dpbandits.lab.evaluate.estimate import Estimate
from dpbandits.lab.evaluate.logs import Log
from dpbandits.lab.evaluate.off_policy import cross_fitted, doubly_robust, ips, snips
from dpbandits.lab.evaluate.private import private_value
from dpbandits.lab.evaluate.rejection import LoggedRound, rejection_replay
from dpbandits.lab.evaluate.slates import cascade_ips, position_ips

__all__ = [
    "Estimate",
    "Log",
    "LoggedRound",
    "cascade_ips",
    "cross_fitted",
    "doubly_robust",
    "ips",
    "position_ips",
    "private_value",
    "rejection_replay",
    "snips",
]

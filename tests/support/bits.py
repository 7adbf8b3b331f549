"""``bits``: what a tree of values holds, to the last bit, to be compared.

``repr`` shows eight digits of an array, leaves out the middle of long ones, and takes ten times as long.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from dpbandits import Policy


def bits(tree: Any) -> Any:
    if isinstance(tree, np.ndarray):
        return tree.dtype.str, tree.shape, tree.tobytes()
    if isinstance(tree, dict):
        return tuple((key, bits(value)) for key, value in tree.items())
    if isinstance(tree, (list, tuple)):
        return tuple(bits(value) for value in tree)
    if is_dataclass(tree) and not isinstance(tree, type):
        return type(tree), tuple(bits(getattr(tree, field.name)) for field in fields(tree))
    return repr(tree)  # of a float the shortest that is read as the same


def fingerprint(policy: Policy) -> object:
    """Everything that a policy knows."""
    return bits((policy.kept(), policy.decisions, policy.open_decisions, policy.rng.bit_generator.state))

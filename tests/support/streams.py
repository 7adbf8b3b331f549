"""Continual sums of every kind, for what all of them have in common."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from factors import length

from dpkit.continual import BinaryTree, BufferedToeplitz, Discounted, Toeplitz, Unbounded, Weighted

CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "buffered": (BufferedToeplitz, {}),
    "unbounded": (Unbounded, {}),
    "discounted": (Discounted, {"discount": 1 - 1e-12}),
    "toeplitz": (Toeplitz, {}),
    "weighted": (Weighted, {}),
    "tree": (BinaryTree, {}),
    "honaker": (BinaryTree, {"estimator": "honaker"}),
    "laplace": (BinaryTree, {"noise": "laplace"}),
    "generalized": (BinaryTree, {"noise": "generalized_gaussian", "q": math.inf}),
}


def arguments(case: str, *, horizon: Any = 10, cases: Any = CASES, **parameters: Any) -> tuple[Any, dict[str, Any]]:
    """A mechanism, and parameters for its ``calibrated``."""
    mechanism, own = cases[case]
    return mechanism, length(mechanism, horizon) | {"sensitivity": 1.0, "shape": 3} | own | parameters


def make(case: str, *, seed: int = 0, **parameters: Any) -> Any:
    mechanism, known = arguments(case, **parameters)
    return mechanism(**{"noise_multiplier": 1.0, "rng": np.random.default_rng(seed)} | known)


def run_of(sums: Any) -> Any:
    """The record of a stream's releases, a :class:`dpkit.states.Run`."""
    return sums._run

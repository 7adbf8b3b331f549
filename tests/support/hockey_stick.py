"""The hockey-stick divergence of two laws on the same outcomes."""

import math

import numpy as np


def divergence(p: np.ndarray, q: np.ndarray, at: float) -> float:
    """The δ that P and Q have at ε = ``at``."""
    return float(np.maximum(p - math.exp(at) * q, 0.0).sum())

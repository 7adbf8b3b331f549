"""The encoder matrices of continual mechanisms, written out."""

from __future__ import annotations

import numpy as np


def toeplitz_factor(c: np.ndarray) -> np.ndarray:
    """C with entries c_{t−s} for t ≥ s, every column divided by its norm."""
    m = len(c)
    C = np.array([[c[t - s] if t >= s else 0.0 for s in range(m)] for t in range(m)])
    return C / np.linalg.norm(C, axis=0)

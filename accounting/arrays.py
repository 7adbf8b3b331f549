"""The type of arrays of numbers that all three packages compute with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array"]

# float64 everywhere; shapes stand in docstrings
Array = NDArray[np.float64]

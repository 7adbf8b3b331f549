"""The type of arrays of numbers that all three packages compute with, and their rounding."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["UNIT_ROUNDOFF", "Array"]

# float64 everywhere; shapes stand in docstrings
Array = NDArray[np.float64]

#: from 1 to the next number
UNIT_ROUNDOFF = 2.0**-52

"""Faults of the noise itself: its last digits, and that it comes twice."""

from __future__ import annotations

import copy

import broken_mechanisms
import numpy as np
from numpy.typing import NDArray
from published import published

Array = NDArray[np.float64]

# value ± ln U in floats, scale 1: its docstring and the test of its outputs are in tests/support
textbook_laplace = published("Mironov 2012", "world-federation-of-advertisers/cross-media-measurement#1357")(
    broken_mechanisms.textbook_laplace
)
# two elements, a backup, a third; then a crash, the backup with the generator's state, and a fourth with the same noise
restored_tree = published("no public report")(broken_mechanisms.restored_tree)


@published("arXiv:2207.13793", "IBM/differential-privacy-library#94")
def good_noise_added_in_floats(value: float, trials: int, *, rng: np.random.Generator) -> Array:
    """Noise however well it was drawn, added to the value in floating point.

    Haney, Desfontaines, Hartman, Shrestha and Hay: the digits of a sum end where those of its larger part do. Near 0,
    what comes from 1 is a multiple of 2⁻⁵⁴, and most of what comes from 0 is not. Scale 1.
    """
    return value + rng.laplace(size=trials)


@published("opendp/opendp#2934")
def buffer_of_a_forked_worker(values: tuple[float, float], trials: int, *, rng: np.random.Generator) -> Array:
    """Two workers release a value each, with the noise that their parent had in store when it was forked."""
    found = np.empty((trials, 2))
    for run in range(trials):
        store = rng.normal(size=8)
        for worker, value in enumerate(values):
            found[run, worker] = value + copy.deepcopy(store)[0]
    return found

"""A generator that counts its draws, and a ledger's view, to show that a refusal draws nothing and records nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from accounting import Ledger


class WatchedGenerator(np.random.Generator):
    def __init__(self, seed=0):
        super().__init__(np.random.PCG64(seed))
        self.draws = 0


def _watch(name):
    inherited = getattr(np.random.Generator, name)

    def method(self, *args, **kwargs):
        self.draws += 1
        return inherited(self, *args, **kwargs)

    return method


for _name in ("random", "integers", "standard_normal", "standard_gamma", "standard_exponential", "laplace", "normal"):
    setattr(WatchedGenerator, _name, _watch(_name))


@contextmanager
def refused(error: Any, message: str, ledger: Ledger | None = None) -> Iterator[dict[str, Any]]:
    """Inside, something is refused, with ``rng=`` and ``ledger=`` from here: nothing is drawn, nothing recorded."""
    rng, ledger = WatchedGenerator(), Ledger() if ledger is None else ledger
    before = rng.bit_generator.state, ledger.rows()
    with pytest.raises(error, match=message):
        yield {"rng": rng, "ledger": ledger}
    assert rng.draws == 0
    np.testing.assert_equal((rng.bit_generator.state, ledger.rows()), before)


# value, and the message of its refusal
BAD_VALUES = [
    ([1.0, float("nan")], "value must be finite"),
    ([1.0, float("inf")], "value must be finite"),
    ([-float("inf"), 0.0], "value must be finite"),
    (["a", "b"], "value must be an array of real numbers"),
    ([1j, 0.0], "value must be an array of real numbers"),
    ([None, 0.0], "value must be an array of real numbers"),
    (np.zeros(2, dtype=np.longdouble), "value must be an array of real numbers of at most 64 bits"),
    (np.array([0, 2**53 + 1]), r"value must be integers of at most 2\*\*53"),
    (np.array([0, 2**64 - 1], dtype=np.uint64), r"value must be integers of at most 2\*\*53"),
    ([3.0, 4.001], "value must have norm at most norm_bound"),
    ([1e308, 1e308], "value must have norm at most norm_bound"),
]


def recorded_releases(patch, module):
    """A list of what a module releases from now on by Gaussian noise, and its sensitivity; there is no noise."""
    seen = []

    class Recorded(module.GaussianMechanism):
        def release(self, value):
            seen.append((self.sensitivity, np.array(value)))
            return value

        def release_part(self, value, *, of):
            return self.release(value)

    patch.setattr(module, "GaussianMechanism", Recorded)
    return seen

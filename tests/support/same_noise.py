"""The secure source, with the same bits in every run: what a test sees is what it saw before.

A test that draws noise as a user does (``rng=None``) cannot be given a seed, and one in 10⁹ of a thousand such tests is
one too many where nobody changed anything. So each test, and each example in a docstring, begins a stream of its own,
of which the source's bits are made. ``--hypothesis-profile=search`` leaves the source as it is.
"""

from zlib import crc32

import numpy as np
import pytest

from dpkit.randomness import generator

# what is tested there is the source: that a fork or a second generator draws something else
_AS_IT_IS = "test_randomness.py"


class SameNoise:
    def __init__(self):
        self._source = generator.random_bytes
        self._begin("")

    def _begin(self, name):
        self._bits, self._drawn = np.random.Generator(np.random.Philox(crc32(name.encode()))), False

    def bytes(self, count):
        self._drawn = True
        return self._bits.bytes(count)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        generator.random_bytes = self._source if item.path.name == _AS_IT_IS else self.bytes
        if self._drawn:
            generator._renew_all()  # nothing that an earlier test drew ahead is left
        self._begin(item.nodeid)
        return (yield)

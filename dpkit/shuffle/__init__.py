"""The shuffle model: private sums, frequencies and means without trusting whoever computes them.

Users randomize their own data, a shuffler mixes all messages, and only what is left of them is seen. ``VectorSum``
adds vectors and symmetric matrices; ``docs/shuffle-model.md`` says what is trusted.

>>> from accounting import Budget
>>> from dpkit.shuffle import VectorSum
>>> sums = VectorSum(6, 1666, 1.0, budget=Budget(2.0, 0.01))
>>> round(sums.noise_std, 2), sums.protocol.noise_bits
(2.26, 54)
"""

from dpkit.shuffle.analyzer import Analyzer
from dpkit.shuffle.frequencies import Frequencies
from dpkit.shuffle.protocol import SumProtocol, Tally
from dpkit.shuffle.randomized_response import ShuffledRandomizedResponse
from dpkit.shuffle.randomizer import Randomizer
from dpkit.shuffle.scalar_mean import ScalarMean
from dpkit.shuffle.shuffler import Shuffler
from dpkit.shuffle.vector_sum import VectorSum
from dpkit.shuffle.wire import MessageError

__all__ = [
    "Analyzer",
    "Frequencies",
    "MessageError",
    "Randomizer",
    "ScalarMean",
    "ShuffledRandomizedResponse",
    "Shuffler",
    "SumProtocol",
    "Tally",
    "VectorSum",
]

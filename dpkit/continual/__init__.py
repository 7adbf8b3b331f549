"""Sums of a stream that are released after every input, at a cost in privacy that is fixed in advance.

=====================  =======================================  ==============  =================  =================
mechanism              worst noise, T = 2¹⁰ and 2¹⁴ inputs       memory          noise              whole stream costs
=====================  =======================================  ==============  =================  =================
``BufferedToeplitz``   3.08, 3.96                               O(log T)        Gaussian           Gaussian(z)
``Unbounded``          4.18, 5.23 (T need not be known)         O(1)            Gaussian           Gaussian(z)
``Toeplitz``           3.27, 4.16                               O(T)            Gaussian           Gaussian(z)
``BinaryTree``         10.5, 14.5; Honaker 7.62, 10.5           O(log T)        four kinds         L(T) nodes
``Discounted``         2.14 for γ = 0.99, whatever T is         O(1)            Gaussian           Gaussian(z)
``Weighted``           least on average with weights, T ≤ 256   O(T)            Gaussian           Gaussian(z)
=====================  =======================================  ==============  =================  =================

(The noise is the standard deviation of the worst estimate, per unit of sensitivity, at ρ = ½ zCDP. ``Discounted``
releases Σ_s γ^(t−s) x_s, which forgets; the others release Σ_s x_s.)

For units that come back every b steps, as rows do in training, ``ContinualSum`` takes a ``Banded`` factorization, from
``inverse_root`` (closed form) or ``optimal`` (numerical).

Every mechanism has the same methods: ``add(x)`` returns the noisy sum so far and ``add_many(xs)`` several of them,
``noise_std(t)`` is the standard deviation of the t-th, ``cost`` describes the whole stream, and is what the
ledger is charged with, once, when the mechanism is made. ``state()`` saves a stream; the class method
``restore(state)`` returns a new mechanism that continues it with fresh noise; ``kept()`` and ``resume(saved)`` do so
in place, for an object that owns the stream and its promise. Noise is added to integers, so the guarantee holds in
floating point too. Each is a ``ContinualSum`` with a ``Factorization``, and so is a new one.
"""

from dpkit.continual.banded import Banded, inverse_root, optimal
from dpkit.continual.binary_tree import BinaryTree
from dpkit.continual.buffered_toeplitz import BufferedToeplitz
from dpkit.continual.discounted import Discounted
from dpkit.continual.factorization import Factorization
from dpkit.continual.sums import ContinualSum
from dpkit.continual.toeplitz import Toeplitz
from dpkit.continual.unbounded import Unbounded
from dpkit.continual.weighted import Weighted

__all__ = [
    "Banded",
    "BinaryTree",
    "BufferedToeplitz",
    "ContinualSum",
    "Discounted",
    "Factorization",
    "Toeplitz",
    "Unbounded",
    "Weighted",
    "inverse_root",
    "optimal",
]

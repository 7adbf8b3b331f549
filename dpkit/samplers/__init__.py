"""Samplers with exactly the law they state, on whole arrays: discrete and rounded Laplace and Gaussian integers,
Bernoulli, binomial. And the generalized Gaussian, in floating point.

>>> import numpy as np
>>> from dpkit.samplers import discrete_gaussian
>>> discrete_gaussian(3.0, (2, 2)).shape
(2, 2)
"""

from dpkit.samplers.binomial import binomial_half
from dpkit.samplers.discrete import bernoulli_exp, discrete_gaussian, discrete_laplace
from dpkit.samplers.generalized_gaussian import generalized_gaussian
from dpkit.samplers.rounded import rounded_gaussian, rounded_laplace

__all__ = [
    "bernoulli_exp",
    "binomial_half",
    "discrete_gaussian",
    "discrete_laplace",
    "generalized_gaussian",
    "rounded_gaussian",
    "rounded_laplace",
]

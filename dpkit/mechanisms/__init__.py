"""Mechanisms that release one value: Laplace, Gaussian, generalized Gaussian, and the index of the largest score.

>>> from accounting import Budget
>>> from dpkit.mechanisms import GaussianMechanism
>>> GaussianMechanism.calibrated(budget=Budget(1.0, 1e-6), sensitivity=2.0).cost
Gaussian(noise_multiplier=4.2246788..., adjacency='replace')
"""

from dpkit.mechanisms.additive import GaussianMechanism, LaplaceMechanism
from dpkit.mechanisms.generalized_gaussian import GeneralizedGaussianMechanism
from dpkit.mechanisms.noisy_max import report_noisy_max

__all__ = ["GaussianMechanism", "GeneralizedGaussianMechanism", "LaplaceMechanism", "report_noisy_max"]

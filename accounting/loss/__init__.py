"""The privacy loss of one description: which file answers which question.

* What is a pair asked for, and does one fit together? ``pair``. Noise of one's own: ``additive``.
* Noise: ``gaussian``, ``laplace``, ``integers`` (on one integer), ``lattice`` and ``lattice_vectors`` (on vectors).
* Responses, and what is pure: ``responses``. One choice by noisy scores: ``gumbel_maxima``, ``laplace_maxima``.
* What is ρ-zCDP: ``concentrated``, by the curve of ``concentrated_curve`` and the coins of ``worst_coins``.
* Random allocation of units to steps: ``allocated``, by the ratio of one step (``allocated_ratio``), of an epoch
  (``allocated_epochs``, ``allocated_sums``) and of a swap (``allocated_swaps``).
* Samples: ``sampled``, and where a unit is swapped ``swapped``. Shuffled messages: ``shuffled``, of the local
  ``randomizers``.
* Counts with binomial noise: ``count_vectors``. One row of a perturbed objective: ``one_row``.
* From a curve δ(ε) to a pair: ``curves``. A loss on an even grid, as other software has it: ``grid``.
* Of batches: ``replaced_noise``; from below: ``counts``.

No file here knows a description; these say their pairs by :meth:`accounting.Release.pair`.
"""

from accounting.arrays import Array
from accounting.loss.additive import AdditiveNoise
from accounting.loss.pair import AllFinite, Atoms, LossPair, NoLoss, Symmetric, check_pair

__all__ = ["AdditiveNoise", "AllFinite", "Array", "Atoms", "LossPair", "NoLoss", "Symmetric", "check_pair"]

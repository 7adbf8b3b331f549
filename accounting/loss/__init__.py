"""The privacy loss of one description: which file answers which question.

* What is asked of a pair, what a pair of one's own derives from, and whether it fits together: :mod:`~accounting.loss.pair`.
* Noise: :mod:`~accounting.loss.gaussian`, :mod:`~accounting.loss.laplace`, :mod:`~accounting.loss.integers` (on one
  integer), :mod:`~accounting.loss.lattice` and :mod:`~accounting.loss.lattice_vectors` (on integer vectors).
* Responses, and what is pure: :mod:`~accounting.loss.responses`. One choice by noisy scores:
  :mod:`~accounting.loss.gumbel_maxima`, :mod:`~accounting.loss.laplace_maxima`.
* What is ρ-zCDP: :mod:`~accounting.loss.concentrated`, from the curve of :mod:`~accounting.loss.concentrated_curve` and
  the coins of :mod:`~accounting.loss.worst_coins`.
* Samples: :mod:`~accounting.loss.sampled`, and of a swap :mod:`~accounting.loss.swapped`.
* Shuffled messages: :mod:`~accounting.loss.shuffled`; counts under binomial noise: :mod:`~accounting.loss.count_vectors`.
* One row of a perturbed objective: :mod:`~accounting.loss.one_row`, :mod:`~accounting.loss.half_normal`.
* From a curve δ(ε) to a pair: :mod:`~accounting.loss.curves`.
* From below: :mod:`~accounting.loss.counts`, :mod:`~accounting.loss.triangles`, :mod:`~accounting.loss.three_scores`.
"""

from accounting.arrays import Array
from accounting.loss.pair import AdditiveNoise, AllFinite, Atoms, LossPair, NoLoss, Symmetric, check_pair

__all__ = ["AdditiveNoise", "AllFinite", "Array", "Atoms", "LossPair", "NoLoss", "Symmetric", "check_pair"]

"""Prefix sums of a stream by a binary tree of noisy partial sums: the classical mechanism, with noise of several kinds.

Source: Dwork, Naor, Pitassi & Rothblum (2010), "Differential privacy under continual observation", and Chan, Shi & Song
(2011), "Private and continual release of statistics", Algorithm 2; the better estimator is that of Honaker (2015),
"Efficient use of differentially private binary trees", the one from below, which is online.

A node of level h at step t is the sum of the 2^h inputs up to t, for every t that 2^h divides, with noise of its own.

* ``estimator="standard"``: the estimate is the sum of the nodes over the set bits of t. So its noise is that of t with
  its lowest set bit cleared, plus that of one new node.
* ``estimator="honaker"``: every node is drawn, and the sum of 2^h inputs is estimated from its node and from the
  estimates of its two halves together, weighted by their variances: v_h = 2v_{h−1}/(1 + 2v_{h−1}) in units of a
  node's, v_0 = 1, which tends to ½. Where the horizon is a power of two its root is left out, which saves one level.

Guarantee
---------
* Unit: one input x_t. Neighbouring streams differ in one input, in the sense of ``adjacency``, by at most
  ``sensitivity``: in L2 norm for Gaussian and discrete Gaussian noise, in L1 for Laplace, in ℓ_q for the generalized
  Gaussian.
* One input sits in at most L nodes, L = ⌊log₂ T⌋ + 1 (Honaker: ⌈log₂ T⌉, at least 1), each released once. So the whole
  stream costs L adaptively composed node releases: ``TreeAggregation`` for Gaussian noise, else L times the node's.
* A unit that contributes to several inputs moves a node once for each of them that lies under it: the stream then costs
  ``Gaussian(noise_multiplier/s)``, s from :func:`accounting.amplification.participation.tree_sensitivity`; for other
  noise L times the node's as for that many changes.
* Inputs may depend on earlier outputs, since composition is adaptive.
* It holds for the program as it runs, in floating point. Inputs are rounded to integers, of which nodes are exact sums,
  and the noise is an exactly sampled rounded Gaussian or Laplace variable (``dpkit.continual.sums``). Discrete Gaussian
  noise is for inputs that are integers by themselves: integers in, integers out.
* Except for the generalized Gaussian, which is private in real-number arithmetic, and drawn and added in float64.

Cost per step: one draw (Honaker: two on average) and four additions of the dimension. Memory: 2 log₂ T + 6 vectors
(Honaker: 3 log₂ T + 4).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from accounting import (
    Adjacency,
    DiscreteGaussian,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    Release,
    TreeAggregation,
)
from accounting.amplification.participation import group, tree_sensitivity
from accounting.checks import positive
from dpkit.continual._noise import KINDS
from dpkit.continual._tree import Tree, levels_of
from dpkit.continual.coefficients import ROUNDING
from dpkit.continual.factorization import checked_horizon, most_participations
from dpkit.continual.sums import ContinualSum, one_of

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["BinaryTree"]

_COSTS = {"laplace": Laplace, "generalized_gaussian": GeneralizedGaussian, "discrete_gaussian": DiscreteGaussian}


class BinaryTree(ContinualSum):
    """Noisy prefix sums of at most ``horizon`` inputs, by a binary tree.

    Parameters
    ----------
    horizon : int
        T, the largest number of inputs.
    noise_multiplier : float
        The noise of *one node*: its standard deviation (Laplace: its scale) over the sensitivity.
    noise : {"gaussian", "laplace", "generalized_gaussian", "discrete_gaussian"}
        The distribution of the nodes' noise. With ``"discrete_gaussian"`` inputs and estimates are integers (int64);
        inputs beyond 2⁶¹ and sums beyond 2⁶² are refused, and so are matrices.
    q : float
        For the generalized Gaussian: the norm ℓ_q, 1 ≤ q ≤ ∞, of the sensitivity.
    estimator : {"standard", "honaker"}
        How the nodes are combined. Honaker's has about 0.75 of the worst error and draws twice as much noise.
    shape, sensitivity, adjacency, participations, min_separation, symmetric, rng, ledger, label
        As for :class:`dpkit.continual.ContinualSum`; so are the attributes and what is raised. The sensitivity is in
        the norm of the noise, and for matrices that of the half-vector.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.continual import BinaryTree
    >>> known = {"budget": Budget(1.0, 1e-6), "horizon": 1023, "shape": (), "sensitivity": 1.0}
    >>> sums = BinaryTree.calibrated(**known, noise="discrete_gaussian")
    >>> sums.add(3).dtype
    dtype('int64')
    >>> round(BinaryTree.calibrated(**known).noise_std(1023), 2)
    42.26
    >>> round(BinaryTree.calibrated(**known, estimator="honaker").noise_std(1023), 2)
    32.19
    """

    _PARAMETERS: ClassVar[tuple[str, ...]] = ("horizon", "q", "estimator")
    _KINDS: ClassVar[tuple[str, ...]] = KINDS

    def __init__(
        self,
        *,
        horizon: int,
        shape: int | tuple[int, ...],
        sensitivity: float,
        noise_multiplier: float,
        noise: Literal["gaussian", "laplace", "generalized_gaussian", "discrete_gaussian"] = "gaussian",
        q: float = 2.0,
        estimator: Literal["standard", "honaker"] = "standard",
        adjacency: Adjacency = "replace",
        participations: int = 1,
        min_separation: int = 1,
        symmetric: bool = False,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
        label: str = "binary tree sums",
    ) -> None:
        one_of("noise", noise, KINDS)
        self.estimator = one_of("estimator", estimator, ("standard", "honaker"))
        self.q = positive("q", q, finite=False)
        if self.q < 1 or (self.q != 2 and noise != "generalized_gaussian"):
            bound = "at least 1" if noise == "generalized_gaussian" else f"2 with noise={noise!r}"
            raise ValueError(f"q must be {bound}, got q={q!r}")
        if noise == "discrete_gaussian" and (symmetric or estimator == "honaker"):
            raise ValueError(
                "noise='discrete_gaussian' must go with symmetric=False and estimator='standard', "
                f"got symmetric={symmetric!r}, estimator={estimator!r}"
            )
        super().__init__(
            Tree(checked_horizon(horizon), estimator == "honaker"),
            shape=shape,
            sensitivity=sensitivity,
            noise_multiplier=noise_multiplier,
            noise=noise,
            adjacency=adjacency,
            participations=participations,
            min_separation=min_separation,
            symmetric=symmetric,
            rng=rng,
            ledger=ledger,
            label=label,
        )

    @classmethod
    def _describe(cls, noise_multiplier: float, parameters: Mapping[str, Any]) -> Release:
        adjacency = parameters["adjacency"]
        noise = one_of("noise", parameters.get("noise", "gaussian"), KINDS)
        horizon = checked_horizon(parameters.get("horizon"))
        levels = levels_of(horizon, parameters.get("estimator", "standard") == "honaker")
        separation = parameters.get("min_separation", 1)
        most = most_participations(horizon, parameters.get("participations", 1), separation)
        if most > 1 and noise == "gaussian":
            square = tree_sensitivity(horizon, most, separation) ** 2
            if levels < horizon.bit_length():  # no root, under which all of them lie
                square -= most**2
            return Gaussian(noise_multiplier / math.sqrt(square) / ROUNDING, adjacency=parameters["adjacency"])
        if noise == "gaussian":
            # the longest stream of which an input sits in that many nodes; the horizon, except without its root
            return TreeAggregation(noise_multiplier, min(horizon, 2**levels - 1), adjacency=adjacency)
        node: Release = _COSTS[noise](noise_multiplier, adjacency=adjacency)
        # with more contributions, as if all of them lay in the same nodes
        return levels * (node if most == 1 else group(node, most))

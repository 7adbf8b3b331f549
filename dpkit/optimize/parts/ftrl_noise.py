"""The noise of DP-FTRL: which continual sum hides the gradients, for the steps, epochs and rates at hand."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from accounting import gdp
from dpkit.continual import Banded, BinaryTree, BufferedToeplitz, ContinualSum, Factorization
from dpkit.continual.banded import lowest_error

__all__ = ["Kind", "learning_rates", "noise_stream"]

Vector = NDArray[np.float64]
Kind = Literal["banded", "buffered", "tree", "independent"]

_KINDS = ("banded", "buffered", "tree", "independent")
# the most bands that are chosen: what a step takes and a state holds grows with them
_BANDS = 64


def learning_rates(horizon: int, cooldown: float) -> Vector:
    """The public factors of the learning rate: 1, and falling linearly to 1/(cT) over the last c·T steps.

    Examples
    --------
    >>> from dpkit.optimize.parts.ftrl_noise import learning_rates
    >>> learning_rates(5, 0.6).round(3)
    array([1.   , 1.   , 1.   , 0.667, 0.333])
    """
    left = np.arange(horizon, 0, -1) / horizon
    return np.minimum(1.0, left / cooldown) if cooldown else np.ones(horizon)


def noise_stream(
    factorization: Kind | Factorization,
    *,
    horizon: int,
    momentum: float,
    rates: Vector | None,
    epochs: int,
    batches: int,
    noise_multiplier: float,
    **known: Any,
) -> ContinualSum:
    """A continual sum over ``horizon`` gradient sums that costs Gaussian(``noise_multiplier``).

    A unit takes part ``epochs`` times, ``batches`` steps apart. ``known`` are ``shape``, ``sensitivity``, ``adjacency``
    and ``rng`` of the sum.
    """
    known |= {"noise_multiplier": noise_multiplier, "participations": epochs, "min_separation": batches}
    match factorization:
        case "banded":
            made: Factorization = lowest_error(
                horizon,
                bands=_BANDS,
                momentum=momentum,
                rates=rates,
                participations=epochs,
                min_separation=batches,
            )
        case "independent":
            made = Banded([1.0], horizon, inverse=False)
        case "buffered":
            return BufferedToeplitz(horizon=horizon, **known)
        case "tree":
            # its noise multiplier is that of one node
            once = BinaryTree(horizon=horizon, estimator="honaker", **known | {"noise_multiplier": 1.0, "rng": None})
            known["noise_multiplier"] = noise_multiplier * gdp(once.cost)
            return BinaryTree(horizon=horizon, estimator="honaker", **known)
        case Factorization():
            made = factorization
            if made.horizon != horizon:
                raise ValueError(
                    f"factorization must have the horizon {horizon}, {epochs} epochs of {batches} batches, "
                    f"got horizon={made.horizon}"
                )
        case _:
            raise ValueError(f"factorization must be one of {_KINDS} or a Factorization, got {factorization!r}")
    return ContinualSum(made, **known)

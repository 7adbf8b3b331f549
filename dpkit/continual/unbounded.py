"""Prefix sums of a stream whose length nobody knows in advance, with Gaussian noise at one fixed cost.

Source: the coefficients follow an idea of Jacobsen & Fawaz (2025), "Private Continual Counting of Unbounded Streams",
arXiv:2506.15018: perturb the square-root factorization by a logarithm. Here a quadrature makes them sums of geometric
series, so that the stream needs no memory that grows with it (see ``dpkit.continual.buffered_toeplitz``).

c_k falls slightly faster than k^(−1/2), so that the squares of the c_k have a sum that hardly grows with the length of
the stream. Then one noise level serves every length: nothing restarts, and no budget is divided over epochs.

    output = A·x + σA·C⁻¹ζ,    C_ts = c_{t−s}/‖c‖,    c_k ~ k^(−1/2) (ln k)^(−0.36).

The price is error. Against a ``BufferedToeplitz`` that was told the number of steps t, the noise in the t-th estimate
has at most 1.8 times the standard deviation, for every t up to 2⁴⁰.

Guarantee
---------
* Unit: one input x_t. Neighbouring streams differ in one input, in the sense of ``adjacency``, by at most
  ``sensitivity`` in L2 norm.
* Every column of C has norm at most 1, in closed form for 2⁴⁰ steps and rounded up, and σ = noise_multiplier ×
  sensitivity. So the whole stream, wherever it ends, costs one ``Gaussian(noise_multiplier)``. It ends after 2⁴⁰ steps
  at the latest (35 years at a thousand inputs per second); the next input is refused.
* Inputs may depend on earlier outputs, and so may the decision to stop: the cost is that of all 2⁴⁰ steps.
* C ≥ 0, so the same cost covers a change that moves an input to another step.
* It holds for the program as it runs, in floating point: noise is added to integers (``dpkit.continual.sums``).

Cost per step: (8 × buffers + 12) × dimension multiplications and additions, with 20 buffers, and one draw.
Memory: four vectors per buffer, two of them for the time of a call, and six more; 64 KiB of noise drawn ahead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from accounting import Adjacency
from dpkit.continual._buffers import Buffered
from dpkit.continual.coefficients import column_scales, square_summable_coefficients
from dpkit.continual.sums import ContinualSum

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["Unbounded"]

LONGEST = 2**40


class Unbounded(ContinualSum):
    """Noisy prefix sums of a stream of unknown length.

    Parameters
    ----------
    noise_multiplier : float
        The whole stream costs ``Gaussian(noise_multiplier)``, however long it gets.
    shape, sensitivity, noise, adjacency, participations, min_separation, symmetric, rng, ledger, label
        As for :class:`dpkit.continual.ContinualSum`; so are the attributes and what is raised.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.continual import BufferedToeplitz, Unbounded
    >>> known = {"budget": Budget(1.0, 1e-6), "shape": (), "sensitivity": 1.0, "rng": np.random.default_rng(0)}
    >>> sums = Unbounded.calibrated(**known)
    >>> estimate = sums.add(1.0)
    >>> round(sums.noise_std(1000), 1), round(BufferedToeplitz.calibrated(horizon=1000, **known).noise_std(1000), 1)
    (18.9, 11.1)
    """

    def __init__(
        self,
        *,
        shape: int | tuple[int, ...],
        sensitivity: float,
        noise_multiplier: float,
        noise: Literal["gaussian"] = "gaussian",
        adjacency: Adjacency = "replace",
        participations: int = 1,
        min_separation: int = 1,
        symmetric: bool = False,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
        label: str = "sums of an unbounded stream",
    ) -> None:
        c = square_summable_coefficients()
        super().__init__(
            Buffered(c, LONGEST, column_scales(c, LONGEST, constant=True)),
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

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
* Every column of C has norm at most 1, in closed form for 2⁴⁸ steps and rounded up, and σ = noise_multiplier ×
  sensitivity. So the whole stream, wherever it ends, costs one ``Gaussian(noise_multiplier)``. It ends after 2⁴⁸ steps
  at the latest (nine years at a million inputs per second); the next input is refused.
* Inputs may depend on earlier outputs, and so may the decision to stop: the cost is that of all 2⁴⁸ steps.
* C ≥ 0, so the same cost covers a change that moves an input to another step.
* The guarantee is for real-number arithmetic; the noise is drawn and added in float64.

Cost per step: (2 × buffers + 5) × dimension multiplications and additions, with 20 buffers, and one draw.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Adjacency, Gaussian, Ledger
from dpkit.continual._buffers import BufferedSums
from dpkit.continual._stream import ContinualSum, one_of
from dpkit.continual.coefficients import ROUNDING, prefix_sum_errors, square_summable_coefficients

__all__ = ["Unbounded"]

LONGEST = 2**48


class Unbounded(ContinualSum):
    """Noisy prefix sums of a stream of unknown length.

    Parameters
    ----------
    shape : int or tuple of int
        The shape of one input. ``()`` for scalars.
    sensitivity : float
        The largest L2 (Frobenius) distance between one input and the one that a neighbouring stream has in its
        place, under ``adjacency``: 2B for vectors of norm at most B under "replace"; see ``dpkit.geometry``. It is the
        caller's to guarantee, by clipping: a distance cannot be checked on one input.
    noise_multiplier : float
        The whole stream costs ``Gaussian(noise_multiplier)``, however long it gets.
    noise : {"gaussian"}
        The distribution of ζ.
    adjacency : {"replace", "add_remove", "zero_out"}
        The neighbouring relation that ``sensitivity`` was measured under.
    symmetric : bool
        Inputs are symmetric (d, d) matrices; noise is added to their isometric half-vector, estimates are symmetric.
    rng : numpy.random.Generator, optional
        By default secure; any other generator makes it a simulation, and the ledger says so.
    ledger : Ledger, optional
        Charged with the whole stream here, before any noise is drawn.
    label : str
        For the reader of the ledger.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range.
    BudgetExceeded
        If the ledger refuses.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.continual import BufferedToeplitz, Unbounded
    >>> known = {"budget": Budget(1.0, 1e-6), "shape": (), "sensitivity": 1.0, "rng": np.random.default_rng(0)}
    >>> sums = Unbounded.calibrated(**known)
    >>> estimate = sums.add(1.0)
    >>> round(sums.noise_std(1000), 1), round(BufferedToeplitz.calibrated(horizon=1000, **known).noise_std(1000), 1)
    (19.3, 11.1)
    """

    _PARAMETERS: ClassVar[tuple[str, ...]] = (
        "shape",
        "sensitivity",
        "noise_multiplier",
        "noise",
        "adjacency",
        "symmetric",
    )

    def __init__(
        self,
        *,
        shape: int | tuple[int, ...],
        sensitivity: float,
        noise_multiplier: float,
        noise: Literal["gaussian"] = "gaussian",
        adjacency: Adjacency = "replace",
        symmetric: bool = False,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
        label: str = "sums of an unbounded stream",
    ) -> None:
        self._configure(shape, sensitivity, noise_multiplier, noise, adjacency, symmetric)
        self._open(rng, ledger, label)

    def _configure(
        self,
        shape: int | tuple[int, ...],
        sensitivity: float,
        noise_multiplier: float,
        noise: str,
        adjacency: Adjacency,
        symmetric: bool,
    ) -> None:
        self._declare(LONGEST, shape, sensitivity, noise_multiplier, adjacency, symmetric)
        self.noise = one_of("noise", noise, ("gaussian",))
        self._c = square_summable_coefficients()
        norm = math.sqrt(float(self._c.squared_norm(LONGEST))) * ROUNDING
        self._scale = self._sigma * norm
        self._sums = BufferedSums(self._c, self._layout.dimension)

    @classmethod
    def _describe(cls, noise_multiplier: float, parameters: Mapping[str, Any]) -> Gaussian:
        return Gaussian(noise_multiplier, adjacency=parameters["adjacency"])

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {"buffers": self._sums.buffers, "estimate": self._sums.total}

    def _load(self, arrays: dict[str, NDArray[Any]]) -> None:
        self._sums.buffers[:] = arrays["buffers"]
        self._sums.total[:] = arrays["estimate"]

    def noise_std(self, t: int) -> float:
        """The standard deviation of the noise in the t-th estimate, t ≥ 1, in closed form.

        Of each entry; for symmetric inputs of each diagonal entry, and √2 times that of an off-diagonal one.
        """
        return self._scale * math.sqrt(float(prefix_sum_errors(self._c).squared_norm(self._check_step(t))))

    def add(self, x: ArrayLike) -> NDArray[np.float64]:
        """Take the next input and return the noisy sum of all inputs so far, a new array of shape ``shape``.

        Raises
        ------
        ValueError, TypeError
            If ``x`` has the wrong shape or type, is not finite or not symmetric. Nothing is drawn and the state is
            unchanged.
        """
        self._check_room(1)
        flat = self._layout.flatten(x)
        self.steps += 1
        return self._layout.unflatten(self._sums.add(self._rng, flat, self._scale))

    def add_many(self, xs: ArrayLike) -> NDArray[np.float64]:
        """Take n inputs at once, ``xs`` of shape ``(n, *shape)``, and return the noisy sum after each of them.

        The same as n calls of :meth:`add` up to rounding, several times faster. Inputs that depend on earlier outputs
        must be added one by one.

        Raises
        ------
        ValueError, TypeError
            As for :meth:`add`; then none of the inputs is taken.
        """
        rows = self._layout.flatten_rows(xs)
        self._check_room(len(rows))
        scales = np.broadcast_to(self._scale, (len(rows), 1))
        self.steps += len(rows)
        return self._layout.unflatten(self._sums.add_rows(self._rng, rows, scales))

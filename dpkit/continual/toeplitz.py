"""Prefix sums of a stream with correlated Gaussian noise, by the exact square-root factorization: the reference.

Source: Fichtenberger, Henzinger & Upadhyay (2023), "Constant matters: fine-grained error bound on differentially
private continual observation", arXiv:2202.11205.

The all-ones lower triangle A is C·C for the lower-triangular Toeplitz matrix C with entries c_k = binom(2k, k)/4^k.
What leaves is A·x + σCζ, row by row, with independent standard Gaussian ζ; that is C applied to C·x + σζ.

All rows of ζ that were drawn so far are kept, so memory grows with the stream: T × dimension numbers.
``BufferedToeplitz`` does the same job with less noise in logarithmic memory; this is what it is compared with.

Guarantee
---------
* Unit: one input x_t. Neighbouring streams differ in one input, in the sense of ``adjacency``, by at most
  ``sensitivity`` in L2 norm.
* The column of C that meets that input has norm at most ‖(c_0 … c_{T−1})‖, and σ = noise_multiplier × sensitivity ×
  that norm. So the *whole stream* costs one ``Gaussian(noise_multiplier)``.
* Inputs may depend on earlier outputs: a lower-triangular C with Gaussian noise is as private for adaptive inputs as
  for fixed ones (Denisov, McMahan, Rush, Smith & Thakurta 2022, arXiv:2202.08312, Theorem 2.1).
* The guarantee is for real-number arithmetic; the noise is drawn and added in float64.

Cost per step t: 2t × dimension multiplications and additions, most of them in matrix products over blocks of steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Adjacency, Gaussian, Ledger
from dpkit.continual._stream import ContinualSum, accumulate, one_of
from dpkit.continual.coefficients import ROUNDING

__all__ = ["Toeplitz"]

_BLOCK = 64


class Toeplitz(ContinualSum):
    """Noisy prefix sums of at most ``horizon`` inputs, by the square root of the all-ones triangle.

    Parameters
    ----------
    horizon : int
        T, the largest number of inputs; what is calibrated for.
    shape : int or tuple of int
        The shape of one input. ``()`` for scalars.
    sensitivity : float
        The largest L2 (Frobenius) distance between one input and the one that a neighbouring stream has in its
        place, under ``adjacency``: 2B for vectors of norm at most B under "replace"; see ``dpkit.geometry``. It is the
        caller's to guarantee, by clipping: a distance cannot be checked on one input.
    noise_multiplier : float
        The whole stream costs ``Gaussian(noise_multiplier)``.
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
    >>> from dpkit.continual import Toeplitz
    >>> sums = Toeplitz(horizon=1024, shape=(), sensitivity=1.0, noise_multiplier=1.0, rng=np.random.default_rng(0))
    >>> estimate = sums.add(1.0)
    >>> round(sums.noise_std(1), 4), round(sums.noise_std(1024), 4)
    (1.809, 3.2726)
    """

    def __init__(
        self,
        *,
        horizon: int,
        shape: int | tuple[int, ...],
        sensitivity: float,
        noise_multiplier: float,
        noise: Literal["gaussian"] = "gaussian",
        adjacency: Adjacency = "replace",
        symmetric: bool = False,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
        label: str = "Toeplitz sums",
    ) -> None:
        self._configure(horizon, shape, sensitivity, noise_multiplier, noise, adjacency, symmetric)
        self._open(rng, ledger, label)

    def _configure(
        self,
        horizon: int,
        shape: int | tuple[int, ...],
        sensitivity: float,
        noise_multiplier: float,
        noise: str,
        adjacency: Adjacency,
        symmetric: bool,
    ) -> None:
        self._declare(horizon, shape, sensitivity, noise_multiplier, adjacency, symmetric)
        self.noise = one_of("noise", noise, ("gaussian",))
        self._c, self._norms = _square_root(self.horizon)
        self._scale = self._sigma * float(self._norms[-1]) * ROUNDING
        self._sum = np.zeros(self._layout.dimension)
        self._zeta = np.zeros((self.horizon, self._layout.dimension))
        self._earlier = np.zeros((0, self._layout.dimension))

    @classmethod
    def _describe(cls, noise_multiplier: float, parameters: Mapping[str, Any]) -> Gaussian:
        return Gaussian(noise_multiplier, adjacency=parameters["adjacency"])

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {"sum": self._sum, "zeta": self._zeta[: self.steps]}

    def _load(self, arrays: dict[str, NDArray[Any]]) -> None:
        self._sum = arrays["sum"]
        self._zeta[: self.steps] = arrays["zeta"]
        self._earlier = self._earlier[:0]  # of other draws

    @property
    def coefficients(self) -> NDArray[np.float64]:
        """c_0, …, c_{T−1}, the first column of C; all are nonnegative."""
        return self._c.copy()

    def noise_std(self, t: int) -> float:
        """The standard deviation of the noise in the t-th estimate, 1 ≤ t ≤ horizon, in closed form.

        Of each entry; for symmetric inputs of each diagonal entry, and √2 times that of an off-diagonal one.
        """
        return self._scale * float(self._norms[self._check_step(t) - 1])

    def add(self, x: ArrayLike) -> NDArray[np.float64]:
        """Take the next input and return the noisy sum of all inputs so far, a new array of shape ``shape``.

        Raises
        ------
        ValueError, TypeError
            If ``x`` has the wrong shape or type, is not finite or not symmetric, or passes the horizon. Nothing is
            drawn and the state is unchanged.
        """
        self._check_room(1)
        flat = self._layout.flatten(x)
        s = self.steps
        start = s - s % _BLOCK
        if start == s or not len(self._earlier):
            self._earlier = self._from_earlier(start)
        self._zeta[s] = self._rng.standard_normal(self._layout.dimension)
        noise = self._c[s - start :: -1] @ self._zeta[start : s + 1]
        noise += self._earlier[s - start]
        noise *= self._scale
        total = self._sum + flat
        noise += total
        # counted last: should the draw be interrupted, the step is repeated with another one, never left without noise
        self._sum = total
        self.steps += 1
        return self._layout.unflatten(noise)

    def _from_earlier(self, start: int) -> NDArray[np.float64]:
        """What the ζ before step ``start`` add to each step of the block that starts there."""
        rows = min(_BLOCK, self.horizon - start)
        if start == 0:
            return np.zeros((rows, self._layout.dimension))
        # row i of the band holds c_{start+i}, …, c_{i+1}
        band = np.lib.stride_tricks.sliding_window_view(self._c[start + rows - 1 : 0 : -1], start)[::-1]
        return band @ self._zeta[:start]

    def add_many(self, xs: ArrayLike) -> NDArray[np.float64]:
        """Take n inputs at once, ``xs`` of shape ``(n, *shape)``, and return the noisy sum after each of them.

        As n calls of :meth:`add` up to rounding, with one fast Fourier transform. Inputs that depend on earlier outputs
        must be added one by one.

        Raises
        ------
        ValueError, TypeError
            As for :meth:`add`; then none of the inputs is taken.
        """
        rows = self._layout.flatten_rows(xs)
        self._check_room(len(rows))
        start, stop = self.steps, self.steps + len(rows)
        if start == stop:
            return self._layout.unflatten(rows.copy())
        self._zeta[start:stop] = self._rng.standard_normal(rows.shape)
        from scipy.fft import irfft, next_fast_len, rfft

        n = next_fast_len(2 * stop - 1, real=True)
        transform = rfft(self._zeta[:stop], n, axis=0)
        transform *= rfft(self._c[:stop], n)[:, None]
        noise = irfft(transform, n, axis=0)[start:stop]
        noise *= self._scale
        sums = rows.copy()
        sums[0] += self._sum
        accumulate(sums)
        noise += sums
        self._earlier = self._earlier[:0]
        self._sum = sums[-1].copy()
        self.steps = stop
        return self._layout.unflatten(noise)


@lru_cache(maxsize=4)
def _square_root(horizon: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """c_0, …, c_{T−1} and the norms ‖(c_0 … c_{t−1})‖ for t = 1, …, T."""
    k = np.arange(1, horizon, dtype=np.float64)
    c = np.cumprod(np.concatenate([[1.0], 1.0 - 0.5 / k]))
    norms = np.sqrt(np.cumsum(c * c))
    c.setflags(write=False)
    norms.setflags(write=False)
    return c, norms

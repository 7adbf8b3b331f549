"""Discounted sums of a stream, Σ_s γ^{t−s} x_s, after every input: what is old counts less, at one cost for ever.

For averages over a world that moves: the sum remembers about 1/(1 − γ) inputs. The source is the square-root
factorization of Fichtenberger, Henzinger & Upadhyay (2023), arXiv:2202.11205, in the buffers of Dvijotham et al.
(2024), arXiv:2404.16706, for the lower triangle A_γ with the entries γ^{t−s} in place of that of ones. (Kalinin &
Lampert 2024, arXiv:2405.13763, treat the same A_γ as the workload of gradient descent with weight decay.)

With r_k = binom(2k, k)/4^k, the generating function of (γ^k r_k) is (1 − γz)^(−1/2), so that the lower triangle C with
the entries γ^{t−s} r_{t−s} is the square root of A_γ. The stream is encoded as the rows of C·x/d, d = ‖(γ^k r_k)‖ over
the length of the stream, and its noise in the sums is the product of A_γ·(C/d)⁻¹ = d·C with fresh Gaussians:

    noise of the t-th sum = noise_multiplier · sensitivity · ‖(γ^k r_k)_{k<t}‖ · ‖(γ^k r_k)_{k<T}‖
                          ≤ noise_multiplier · sensitivity · (2/π)K(γ²),      K(m) = ∫₀^{π/2} dφ/√(1 − m sin²φ),

since Σ_k r_k² m^k = (2/π)K(m). No Toeplitz factorization has a smaller limit: by Cauchy & Schwarz the norms of b and c
with b·c = 1/(1 − γz) on the unit circle have at least the product mean |1/(1 − γz)| = (2/π)K(γ²).

=======  ==============  ====================  ===============================
γ        (2/π)K(γ²)      noise on every input  remembers about
=======  ==============  ====================  ===============================
0.9      1.45            2.29                  10 inputs
0.99     2.14            7.09                  100
0.999    2.86            22.4                  1,000
0.9999   3.59            70.7                  10,000
=======  ==============  ====================  ===============================

The r_k are those of a quadrature with few geometric series, as in ``BufferedToeplitz``, good for 40/(1 − γ) steps;
its noise is within one thousandth of the above, which the tests check; cost and ``noise_std`` are exact for what is
used in its place.

Guarantee
---------
* Unit: one input x_t. Neighbouring streams differ in one input, in the sense of ``adjacency``, by at most
  ``sensitivity`` in L2 norm.
* Every column of C/d has norm at most 1, in closed form and rounded up. So the whole stream, wherever it ends, costs
  one ``Gaussian(noise_multiplier)``: an input that no longer counts in the sums has been paid for once.
* Inputs may depend on earlier outputs (Denisov, McMahan, Rush, Smith & Thakurta 2022, arXiv:2202.08312, Theorem 2.1).
* C ≥ 0, so the same cost covers a change that moves an input to another step. (Windows that end abruptly have factors
  with negative entries, of which that does not hold; they are not offered.)
* It holds for the program as it runs, in floating point: noise is added to integers (``dpkit.continual.sums``).

Cost per step: (8 × buffers + 13) × dimension multiplications and additions, with 18 to 28 buffers, and one draw.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from accounting import Adjacency
from accounting.checks import fraction
from dpkit.continual._buffers import Buffered
from dpkit.continual.coefficients import ColumnScales, Geometric, prefix_sum_errors, sqrt_coefficients
from dpkit.continual.factorization import checked_horizon
from dpkit.continual.sums import ContinualSum

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["Discounted"]

Vector = NDArray[np.float64]

# 35 years at a thousand inputs per second
_LONGEST = 2**40
# less than that of an input is not seen beside the next one
_LEAST = 1e-12
# rows that are added up at once
_ROWS = 64


class Discounted(ContinualSum):
    """Noisy discounted sums y_t = x_t + γ·y_{t−1} of a stream.

    Parameters
    ----------
    discount : float
        γ, from 10⁻¹² to 1 − 10⁻¹².
    horizon : int, optional
        T, the largest number of inputs. By default 2⁴⁰, that is, without an end: more than about 1/(1 − γ) inputs
        cost no more noise.
    noise_multiplier : float
        The whole stream costs ``Gaussian(noise_multiplier)``, however long it gets.
    shape, sensitivity, noise, adjacency, participations, min_separation, symmetric, rng, ledger, label
        As for :class:`dpkit.continual.ContinualSum`; so are the attributes and what is raised.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> sums = Discounted.calibrated(
    ...     budget=Budget(1.0, 1e-6), discount=0.99, shape=(), sensitivity=1.0, rng=np.random.default_rng(0)
    ... )
    >>> for _ in range(1000):
    ...     estimate = sums.add(1.0)    # the sum without noise tends to 100
    >>> round(float(estimate)), round(sums.noise_std(1000), 1), round(sums.noise_std(10**9), 1)
    (80, 9.0, 9.0)
    """

    _PARAMETERS: ClassVar[tuple[str, ...]] = ("discount", "horizon")

    def __init__(
        self,
        *,
        discount: float,
        shape: int | tuple[int, ...],
        sensitivity: float,
        noise_multiplier: float,
        horizon: int | None = None,
        noise: Literal["gaussian"] = "gaussian",
        adjacency: Adjacency = "replace",
        participations: int = 1,
        min_separation: int = 1,
        symmetric: bool = False,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
        label: str = "discounted sums",
    ) -> None:
        self.discount = fraction("discount", discount)
        if self.discount > 1 - 1e-12:
            raise ValueError(f"discount must be at most 1 - 1e-12 (use Unbounded), got discount={discount!r}")
        if self.discount < _LEAST:
            raise ValueError(f"discount must be at least {_LEAST:g} (less leaves nothing), got discount={discount!r}")
        horizon = checked_horizon(_LONGEST if horizon is None else horizon)
        self._c, scales = _factors(self.discount, horizon)
        super().__init__(
            _Discounted(self.discount, self._c, horizon, scales),
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

    def coefficients(self, count: int) -> Vector:
        """The first entries of C's first column, before its division by d; all are nonnegative."""
        return self._c.terms(0, count)


class _Discounted(Buffered):
    """The encoder of ``Buffered``, whose c_k fall by the factor γ; the public sum falls by γ at every step, too."""

    def __init__(self, discount: float, c: Geometric, horizon: int, scales: ColumnScales) -> None:
        super().__init__(c, horizon, scales)
        self._discount = discount
        lags = np.subtract.outer(np.arange(_ROWS), np.arange(_ROWS))
        self._fading: Vector = np.where(lags >= 0, discount ** np.maximum(lags, 0.0), 0.0)

    def _add_up(self, growth: Vector) -> None:
        for start in range(0, len(growth), _ROWS):
            rows = growth[start : start + _ROWS]
            rows[0] += self._discount * self._total
            rows[:] = self._fading[: len(rows), : len(rows)] @ rows
            self._total[:] = rows[-1]


@lru_cache(maxsize=64)
def _factors(discount: float, horizon: int) -> tuple[Geometric, ColumnScales]:
    """c and the bound d on the norms of its columns.

    If c and b are those of the prefix sums, b·c = 1/(1 − z), then γ^k c_k and γ^k b_k are those of the discounted ones.
    """
    steps = min(horizon, math.ceil(40 / (1 - discount)))
    plain = sqrt_coefficients(steps, 16 + steps.bit_length() // 3)
    c = plain.discounted(discount)
    errors = prefix_sum_errors(plain).discounted(discount)
    return c, ColumnScales(c, horizon, constant=True, errors=errors)

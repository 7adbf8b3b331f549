"""What an optimizer returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from accounting import Gaussian, Release

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

__all__ = ["NOTHING", "outcome"]

# the cost of a run that reads no row
NOTHING: Release = 0 * Gaussian(1.0)


def outcome(
    x: NDArray[np.float64],
    cost: Release,
    *,
    nit: int,
    nfev: int,
    message: str,
    clipped: int,
    not_private: tuple[str, ...] = ("clipped",),
    **more: object,
) -> OptimizeResult:
    """A ``scipy.optimize.OptimizeResult``.

    Fields: ``x`` (released, inside the set), ``cost`` (what the ledger was charged with; also as ``release``), ``nit``,
    ``nfev`` (gradients of rows, in expectation and of the public number of rows), ``message``, ``success``, and
    ``clipped``: how many gradients of rows were cut to the clip norm, those that overflowed included. ``clipped`` is
    **not private**: no noise covers it, it is for the holder of the data alone, and is not printed with the others.
    ``not_private`` names it, and every other field of which that is true.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Gaussian
    >>> from dpkit.training.result import outcome
    >>> outcome(np.zeros(1), Gaussian(2.0), nit=1, nfev=3, message="one step", clipped=0).cost
    Gaussian(noise_multiplier=2.0)
    """
    from dpkit.training.printed_result import PrivateResult

    return PrivateResult(
        x=x,
        nit=nit,
        nfev=nfev,
        message=message,
        success=True,
        cost=cost,
        release=cost,
        clipped=clipped,
        not_private=not_private,
        **more,
    )

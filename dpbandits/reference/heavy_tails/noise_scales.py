"""ν_t by round: how large the noise is, where that is known to change.

Theorem 1 of Wang et al. (arXiv:2503.00419) bounds regret by √(Σ ν_t²), where E|η_t|^{1+ε} ≤ ν_t^{1+ε} and ν_t is known
when the reward of round t is taken in; Corollary 1 is the same for one ν ≥ ν_t.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from accounting.arrays import Array
from accounting.checks import positive

__all__ = ["NoiseScale", "noise_scale_at", "noise_scales"]

NoiseScale = float | Sequence[float] | Array | Callable[[int], float]


def noise_scales(given: NoiseScale, horizon: int) -> float | Array:
    """ν as it is given, or all ν_t, t = 1, …, T.

    Parameters
    ----------
    given : float, sequence of T floats, or callable
        A number is ν of all rounds. A callable is asked for ν_t at once for every t = 1, …, T, so that a state can
        keep what it says.
    horizon : int
        T.

    Raises
    ------
    ValueError
        If ν is not positive, or ν_t not finite and at least 0 in some round, or there are not T of them.

    Examples
    --------
    >>> noise_scales(lambda t: 1.0 / t, horizon=4).tolist()
    [1.0, 0.5, 0.3333333333333333, 0.25]
    """
    if not callable(given) and np.ndim(given) == 0:
        return positive("noise_scale", given)  # type: ignore[arg-type]
    told = [given(t) for t in range(1, horizon + 1)] if callable(given) else given
    scales = np.array(told, dtype=np.float64)
    if scales.shape != (horizon,):
        raise ValueError(
            f"noise_scale must be a number, a function of the round, or one number for each of horizon={horizon} "
            f"rounds, got an array of shape {scales.shape}"
        )
    wrong = np.flatnonzero(~(np.isfinite(scales) & (scales >= 0.0)))
    if len(wrong):
        raise ValueError(
            f"noise_scale must be finite and at least 0 in every round, got {scales[wrong[0]]} in round {wrong[0] + 1}"
        )
    scales.setflags(write=False)
    return scales


def noise_scale_at(scales: float | Array, round: int) -> float:
    """ν_t of the round that has so many before it."""
    return scales if isinstance(scales, float) else float(scales[round])

"""What other accountants say of the same releases: dp-accounting's events, and the history of an Opacus accountant."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from accounting.accountants.zcdp import zcdp
from accounting.checks import integer
from accounting.errors import UnsupportedRelease
from accounting.releases import (
    Composed,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    NoisyMax,
    PoissonSubsampled,
    PureDP,
    RandomizedResponse,
    Release,
    TreeAggregation,
)

if TYPE_CHECKING:
    from dp_accounting import DpEvent

__all__ = ["from_opacus", "to_dp_accounting"]


def to_dp_accounting(release: Release) -> DpEvent:
    """A description (a ledger's ``total``, say) as a ``dp_accounting.DpEvent``.

    What has an event of its own keeps it. A pure ε-DP release becomes the randomized response that dominates it, and
    anything else that has a ρ (parallel composition included) a ``ZCDpEvent``, so that dp-accounting's ε is an upper
    bound for what happened.

    Raises
    ------
    ImportError
        If dp-accounting is not installed (``pip install dpkit[pld]``).
    UnsupportedRelease
        If no event bounds the description (``ApproxDP`` has none).
    """
    try:
        import dp_accounting as dp
    except ImportError:
        raise ImportError("to_dp_accounting needs dp-accounting: pip install dpkit[pld]") from None

    def event(part: Release) -> Any:
        match part:
            case Gaussian(noise_multiplier=z):
                return dp.GaussianDpEvent(z)
            case Laplace(noise_multiplier=z):
                return dp.LaplaceDpEvent(z)
            case TreeAggregation(noise_multiplier=z):
                return dp.SelfComposedDpEvent(dp.GaussianDpEvent(z), part.levels)
            case RandomizedResponse(epsilon=eps, categories=k):
                # with probability p, one of the k categories evenly; else the truth
                return dp.RandomizedResponseDpEvent(k / (math.exp(eps) + k - 1), k)
            case DiscreteLaplace(noise_multiplier=z):
                return event(PureDP(1.0 / z))
            case PureDP(epsilon=eps) | NoisyMax(epsilon=eps, noise="exponential" | "laplace"):
                return dp.RandomizedResponseDpEvent(2 / (math.exp(eps) + 1), 2)
            case PoissonSubsampled(release=inner, rate=rate, adjacency="add_remove"):
                return dp.PoissonSampledDpEvent(rate, event(inner))
            case Composed(parts=parts):
                return dp.ComposedDpEvent([dp.SelfComposedDpEvent(event(inner), count) for inner, count in parts])
        try:
            return dp.ZCDpEvent(zcdp(part))
        except UnsupportedRelease:
            raise UnsupportedRelease(f"dp-accounting has no event for {part!r}") from None

    return event(release)


def from_opacus(history: Iterable[tuple[float, float, int]]) -> Release:
    """The description of a training run, from the ``history`` of an Opacus accountant.

    Parameters
    ----------
    history : iterable of (noise_multiplier, sample_rate, steps)
        ``optimizer.accountant.history``, or ``privacy_engine.accountant.history``. It describes Poisson sampling:
        a run that shuffled its batches instead is not what Opacus accounts for.

    Returns
    -------
    Release
        One Poisson-subsampled Gaussian per step, for ``"add_remove"`` neighbours.

    Examples
    --------
    >>> from accounting import epsilon
    >>> from accounting.ledger import from_opacus
    >>> run = from_opacus([(1.0, 0.01, 5000), (1.2, 0.01, 5000)])
    >>> epsilon(run, 1e-5) < epsilon(from_opacus([(1.0, 0.01, 10000)]), 1e-5)
    True
    """
    total: Release = Composed()
    for entry in history:
        try:
            noise_multiplier, rate, steps = entry
        except (TypeError, ValueError):
            raise ValueError(
                f"history must hold (noise_multiplier, sample_rate, steps), got an entry {entry!r}"
            ) from None
        step = PoissonSubsampled(Gaussian(noise_multiplier, adjacency="add_remove"), rate)
        total = total + integer("steps", steps, at_least=1) * step
    return total

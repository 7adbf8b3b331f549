"""What other accountants say of the same releases: dp-accounting's events, and the history of an Opacus accountant."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from accounting.checks import integer
from accounting.errors import UnsupportedRelease
from accounting.notions.zcdp import zcdp
from accounting.releases import (
    ZCDP,
    BestOfPoissonRuns,
    BestOfRuns,
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
from accounting.releases.base import known

if TYPE_CHECKING:
    from dp_accounting import DpEvent

__all__ = ["from_dp_accounting", "from_opacus", "to_dp_accounting"]


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

    Examples
    --------
    >>> from accounting import Gaussian
    >>> from accounting.ledger import to_dp_accounting
    >>> to_dp_accounting(2 * Gaussian(4.0))  # doctest: +SKIP
    SelfComposedDpEvent(event=GaussianDpEvent(noise_multiplier=4.0), count=2)
    """
    try:
        from dp_accounting import dp_event as dp
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
            case BestOfRuns(release=inner, shape=eta) if eta >= 0:
                return dp.RepeatAndSelectDpEvent(event(inner), part.mean, eta)
            case BestOfPoissonRuns(release=inner, mean=mean):
                return dp.RepeatAndSelectDpEvent(event(inner), mean, math.inf)
            case Composed(parts=parts):
                return dp.ComposedDpEvent([dp.SelfComposedDpEvent(event(inner), count) for inner, count in parts])
        try:
            return dp.ZCDpEvent(zcdp(part))
        except UnsupportedRelease:
            raise UnsupportedRelease(f"dp-accounting has no event for {part!r}") from None

    return event(known(release))


def from_dp_accounting(event: DpEvent) -> Release:
    """The description of a ``dp_accounting.DpEvent``, so that it can be spent from a ledger.

    What dp-accounting leaves to its accountants, the neighbouring relation, is left to the budget here too; only what
    is sampled counts one unit present or absent. ``RandomizedResponseDpEvent`` becomes our randomized response of as
    many categories, and a ``ZCDpEvent`` is taken for what it is if its ξ is 0.

    Raises
    ------
    ImportError
        If dp-accounting is not installed (``pip install dpkit[pld]``).
    UnsupportedRelease
        If nothing here describes a part of the event (sampling of fixed sizes), or it is not
        private at all.

    Examples
    --------
    >>> import dp_accounting as dp  # doctest: +SKIP
    >>> from_dp_accounting(dp.SelfComposedDpEvent(dp.GaussianDpEvent(2.0), 10))  # doctest: +SKIP
    (10 * Gaussian(noise_multiplier=2.0))
    """
    try:
        from dp_accounting import dp_event as dp
    except ImportError:
        raise ImportError("from_dp_accounting needs dp-accounting: pip install dpkit[pld]") from None
    match event:
        case dp.NoOpDpEvent():
            return Composed()
        case dp.GaussianDpEvent(noise_multiplier=z) if z > 0:
            return Gaussian(z)
        case dp.LaplaceDpEvent(noise_multiplier=z) if z > 0:
            return Laplace(z)
        case dp.DiscreteLaplaceDpEvent(noise_parameter=rate, sensitivity=bound) if rate > 0 and bound > 0:
            # P(x) ∝ e^(−a|x|), in every coordinate: the scale 1/a is noise_multiplier × the L1 sensitivity
            return DiscreteLaplace(1.0 / (rate * bound))
        case dp.RandomizedResponseDpEvent(noise_parameter=noise, num_buckets=k) if 0 < noise <= 1 and k > 1:
            # with probability p one of the k categories evenly, else the truth
            eps = math.log1p(k * (1 - noise) / noise)
            return RandomizedResponse(eps, k) if eps > 0 else Composed()
        case dp.ZCDpEvent(rho=rho, xi=xi) if xi == 0:
            return ZCDP(rho)
        case dp.SelfComposedDpEvent(event=inner, count=count):
            return integer("count", count, at_least=0) * from_dp_accounting(inner)
        case dp.ComposedDpEvent(events=events):
            return sum(map(from_dp_accounting, events), start=Composed())
        case dp.PoissonSampledDpEvent(sampling_probability=rate, event=inner) if rate > 0:
            return PoissonSubsampled(from_dp_accounting(inner), rate)
        case dp.PoissonSampledDpEvent(sampling_probability=rate) if rate == 0:
            return Composed()
        case dp.RepeatAndSelectDpEvent(event=inner, mean=mean, shape=math.inf):
            return BestOfPoissonRuns(from_dp_accounting(inner), mean)
        case dp.RepeatAndSelectDpEvent(event=inner, mean=mean, shape=eta) if mean > 1:
            return BestOfRuns.of_mean(from_dp_accounting(inner), mean, eta)
        case dp.SingleEpochTreeAggregationDpEvent(noise_multiplier=z, step_counts=counts) if z > 0:
            steps = [counts] if isinstance(counts, int) else list(counts)
            # a unit is in one of the trees only
            return TreeAggregation(z, steps=max(steps))
    raise UnsupportedRelease(f"no description here covers the event {event!r}")


def from_opacus(history: Any) -> Release:
    """The description of a training run, from the history of an Opacus accountant.

    Parameters
    ----------
    history : iterable of (noise_multiplier, sample_rate, steps), or an accountant, or a PrivacyEngine
        ``privacy_engine.accountant.history``, or what has it: the accountant, the engine, or the accountant's
        ``state_dict()``. It describes Poisson sampling: a run that shuffled its batches instead is not what Opacus
        accounts for.

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

    Raises
    ------
    TypeError, ValueError
        For what is no history and has none.
    """
    total: Release = Composed()
    for entry in _entries(history):
        try:
            noise_multiplier, rate, steps = entry
        except (TypeError, ValueError):
            raise ValueError(
                f"history must hold (noise_multiplier, sample_rate, steps), got an entry {entry!r}"
            ) from None
        step = PoissonSubsampled(Gaussian(noise_multiplier, adjacency="add_remove"), rate)
        total = total + integer("steps", steps, at_least=1) * step
    return total


def _entries(history: Any) -> Iterable[Any]:
    """Those of a history, or of what has one."""
    found = getattr(history, "accountant", history)
    found = found.get("history") if isinstance(found, Mapping) else getattr(found, "history", found)
    if isinstance(found, (str, bytes)) or not isinstance(found, Iterable):
        raise TypeError(
            "history must be the .history of an Opacus accountant (privacy_engine.accountant.history), the accountant, "
            f"or the PrivacyEngine, got {type(history).__name__}"
        )
    return found

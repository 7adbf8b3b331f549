"""What is measured: names, ranges, and what a decision counts as whose value does not come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpbandits.policy.checks import checked_reward, finite_rewards
from dpkit.states.entries import short

__all__ = ["Metrics"]


class Metrics:
    """The metrics of an experiment.

    Parameters
    ----------
    ranges : dict of str to (float, float)
        Finite; the first one decides.
    missing : dict of str to float
        By default the lower end of each range.
    clip : bool
        Whether values outside are moved to the ends, instead of refused.

    Examples
    --------
    >>> metrics = Metrics({"bought": (0, 1), "revenue": (0, 100)}, {}, clip=False)
    >>> metrics.checked({"bought": 1})
    (1.0, 0.0)
    """

    def __init__(self, ranges: Mapping[str, tuple[float, float]], missing: Mapping[str, float], *, clip: bool) -> None:
        if not ranges:
            raise ValueError("metrics must be at least one, got none")
        self.ranges = {}
        for name, (low, high) in ranges.items():
            low, high = finite_rewards((float(low), float(high)))
            if not low < high:
                raise ValueError(f"the range of {name} must be increasing, got ({low:g}, {high:g})")
            self.ranges[name] = (low, high)
        if unknown := set(missing) - set(ranges):
            raise ValueError(f"missing must be of metrics, {list(ranges)}, got {sorted(unknown)}")
        self.missing = {name: float(missing.get(name, low)) for name, (low, _) in self.ranges.items()}
        for name, (low, high) in self.ranges.items():
            if not low <= self.missing[name] <= high:
                raise ValueError(
                    f"missing must lie in the range of {name}, [{low:g}, {high:g}], got missing={self.missing[name]!r}"
                )
        self.clip = clip

    def checked(self, value: Any) -> tuple[float, ...]:
        """The values of all metrics: of one metric a number, of several a mapping from their names.

        Raises
        ------
        ValueError
            If it is none, or one is outside of its range.
        """
        if len(self.ranges) == 1 and not isinstance(value, (Mapping, tuple)):
            value = {next(iter(self.ranges)): value}
        elif isinstance(value, tuple) and len(value) == len(self.ranges):  # from a journal
            value = dict(zip(self.ranges, value, strict=True))
        if not isinstance(value, Mapping) or set(value) - set(self.ranges):
            raise ValueError(f"value must be a mapping of metrics among {list(self.ranges)}, got {short(value)}")
        told = {**self.missing, **{name: one for name, one in value.items() if one is not None}}
        return tuple(self._within(name, told[name]) for name in self.ranges)

    def _within(self, metric: str, value: Any) -> float:
        low, high = self.ranges[metric]
        try:
            return checked_reward(value, low, high, clip=self.clip)
        except ValueError:
            raise ValueError(
                f"{metric} must be a finite number in [{low:g}, {high:g}], got {short(value)}: state a wider "
                "metric_range, or on_violation='clip'"
            ) from None

"""The keywords that policies share, for the signatures of their constructors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

import numpy as np

from dpbandits.durability.decision_log import DecisionLog

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["CommonOptions", "Options", "PrivateOptions", "RewardRange", "StatedOptions", "Violation"]

Violation = Literal["raise", "clip"]
# of a private policy
RewardRange = tuple[float, float] | Literal["learned"]


class CommonOptions(TypedDict, total=False):
    """The keywords that every policy takes; see :class:`dpbandits.Policy`."""

    base_rate: float | None
    on_violation: Violation
    expire_after: int | None
    decision_log: str | Path | DecisionLog | None
    rng: np.random.Generator | None


class StatedOptions(CommonOptions, total=False):
    """And the range of rewards, where it must be stated."""

    reward_range: tuple[float, float] | None


class Options(StatedOptions, total=False):
    """Those of the policies that need no horizon."""

    horizon: int | None


class PrivateOptions(CommonOptions, total=False):
    """Those of every private policy besides ``budget`` and ``horizon``; see :class:`dpbandits.PrivatePolicy`."""

    reward_range: RewardRange | None
    ledger: Ledger | None
    label: str | None
    checkpoint: str | Path | None
    rounds_per_person: int | None

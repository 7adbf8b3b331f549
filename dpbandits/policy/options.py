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
    """The keywords that every policy takes; see :class:`dpbandits.Policy`.

    Examples
    --------
    >>> from dpbandits.policy.protocol import CommonOptions
    >>> "rng" in CommonOptions.__annotations__ or bool(CommonOptions.__mro__)
    True
    """

    base_rate: float | None
    on_violation: Violation
    expire_after: int | None
    decision_log: str | Path | DecisionLog | None
    rng: np.random.Generator | None


class StatedOptions(CommonOptions, total=False):
    """And the range of rewards, where it must be stated."""

    reward_range: tuple[float, float] | None


class Options(StatedOptions, total=False):
    """Those of the policies that need no horizon.

    Examples
    --------
    >>> from dpbandits.policy.protocol import Options
    >>> "rng" in Options.__annotations__ or bool(Options.__mro__)
    True
    """

    horizon: int | None


class PrivateOptions(CommonOptions, total=False):
    """Those of every private policy besides ``budget`` and ``horizon``; see :class:`dpbandits.PrivatePolicy`.

    Examples
    --------
    >>> from dpbandits.policies import PrivateArms
    >>> from accounting import Budget
    >>> options = {"label": "headlines"}  # keywords that every private policy takes
    >>> PrivateArms(["a", "b"], budget=Budget(1.0, 0.0), horizon=100, **options).label
    'headlines'
    """

    reward_range: RewardRange | None
    ledger: Ledger | None
    label: str | None
    checkpoint: str | Path | None
    rounds_per_person: int | None

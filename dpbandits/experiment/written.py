"""Results as a tree of plain values, and what they are made of read from one again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dpbandits.experiment.setting import Setting

if TYPE_CHECKING:
    from dpbandits.experiment.results import ExperimentResults

__all__ = ["parts_of", "tree_of"]

_FORMAT, _VERSION = "dpbandits experiment", 1
_WHOLE, _REAL, _PLAIN = ("sums", "counts", "when"), ("center", "spread"), ("assigned", "spent", "simulation")


def tree_of(results: ExperimentResults) -> dict[str, Any]:
    """What people read, and under "setting" and "released" all that the value is made of."""
    own = results.setting
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "verdict": results.verdict,
        "best": results.best,
        "stopped": results.stopped,
        "spent": results.spent,
        "simulation": results.simulation,
        "means": {arm: None if math.isnan(mean) else mean for arm, mean in results.means.items()},
        "intervals": {arm: list(ends) for arm, ends in results.intervals.items()},
        "differences": {arm: list(ends) for arm, ends in results.differences.items()},
        "e_values": results.e_values,
        "chance_of_best_by_a_model": results.chance_of_best,
        "assigned": results.assigned,
        "counted": results.counted,
        "setting": {**vars(own), "arms": list(own.arms)},
        "released": {name: getattr(results, name).tolist() for name in (*_WHOLE, *_REAL)},
        "other_metrics": [tree_of(one) for one in results.others],
    }


def parts_of(tree: Mapping[str, Any], read: Callable[[Mapping[str, Any]], ExperimentResults]) -> dict[str, Any]:
    """The arguments of the value, checked; ``read`` makes those of other metrics."""
    if (tree.get("format"), tree.get("version")) != (_FORMAT, _VERSION):
        raise ValueError(f"results must be of the format {_FORMAT!r}, version {_VERSION}, got another one")
    try:
        setting = Setting(**{**tree["setting"], "arms": tuple(tree["setting"]["arms"])})
        found: dict[str, Any] = {name: np.array(tree["released"][name], dtype=np.float64) for name in _REAL}
        found |= {name: np.array(tree["released"][name], dtype=np.int64) for name in _WHOLE}
        K = len(setting.arms)
        shapes = {found[name].shape for name in _WHOLE}
        batches = shapes.pop()
        whole = not shapes and len(batches) == 2 and batches[0] == K
        if not whole or {found[name].shape for name in _REAL} != {(K,)} or set(tree["assigned"]) != set(setting.arms):
            raise ValueError("other shapes")
        others = tuple(read(one) for one in tree["other_metrics"])
        plain = {name: tree[name] for name in (*_PLAIN, "best", "stopped")}
        return {"setting": setting, **found, **plain, "others": others}
    except (TypeError, KeyError, IndexError, ValueError) as error:
        raise ValueError(f"results must fit together, got some that do not: {error!r}") from None

"""States of LDPGLM that earlier versions wrote, as what its sums and its public half hold now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpbandits.durability.state import gathered
from dpkit.geometry import smat, svec
from dpkit.moments.pairs import pair_scales
from dpkit.states.entries import plain

if TYPE_CHECKING:
    from dpbandits.private.ldp_glm import LDPGLM

__all__ = ["older"]

# β of policies that were saved with sums of tangent records, and played by half-widths
_BEFORE = 0.5


def older(policy: LDPGLM, saved: Any) -> Any:
    """What a state of this policy keeps now, also those of before messages told of a level, or records were secants."""
    saved = gathered(saved, ("sums", "messages"))
    if not isinstance(saved, Mapping):
        return saved
    if "uncertainty" in dict(saved.get("public", {})):
        saved = _of_tangents(policy, saved)
    if not policy.record.levels.learned and isinstance(saved.get("sums"), Mapping):
        saved = {**saved, "sums": {"told": 0.0, "numbers": 0} | dict(saved["sums"])}
    return saved


def _of_tangents(policy: LDPGLM, saved: Mapping[str, Any]) -> dict[str, Any]:
    """Sums of tangents solve Hθ = b as those of secants do, in other units."""
    sums, size = dict(saved["sums"]), policy.dim * (policy.dim + 1) // 2
    (a, c), W = policy.sums.scales, policy.link.lipschitz(policy.theta_bound)
    old = pair_scales(W, policy.clip, policy.gradient_share)
    total = np.array(sums["sums"], dtype=np.float64)
    H, b = smat(total[:size] / old[0]), total[size:] / old[1]
    sums["sums"] = np.concatenate([svec(a * H), c * b])
    sums["released"] = sums["messages"]
    # about as many releases have been made
    k = float(np.searchsorted(policy.schedule.ends, sums["messages"], side="right"))
    policy.exploration = _BEFORE
    policy.rule = rule = replace(policy.rule, exploration=_BEFORE)
    policy.refit = replace(policy.refit, rule=rule)
    known = {"theta": dict(saved["public"])["theta"], "H": H, "b": b, "slopes": k, "secants": k, "totals": (H, b)}
    # until the next release a random direction is added, of the length that θ may have
    public = replace(policy.refit.nothing(), root=_BEFORE * policy.refit.prior.root, **known)
    return {**saved, "sums": sums, "public": plain(public)}

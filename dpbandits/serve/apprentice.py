"""What the bandit would have got in the place of the rule that it watches: sums over the log, and the report of them.

Where the old rule has chosen arm a with probability p, and the bandit, on the same context and before it saw the
reward r, would have chosen b, the weight w = 1{a = b}/p makes

    V̂ = (1/n) Σ w r,    Ŝ = Σ w r / Σ w

estimates of the bandit's mean reward: V̂ without bias, as E[w r | past] is what the bandit's choice would have got, and
Ŝ (self-normalized) with a bias of order 1/n and mostly less noise. Both count the bandit as it learned, not as it is at
the end. :mod:`dpbandits.lab.evaluate` has them for logs that are kept, among others; here rows go after their release.

The sums are raw data: nothing is added to them. Only the owner sees them, and only where the file keeps curves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

__all__ = ["SUMS", "report", "sums"]

# what is rarer does not happen: such a probability is a mistake, and its weight's square would swamp every sum
_RAREST = 1e-12
# what :func:`sums` gives, by the names of the columns in which it is added up
SUMS = ("rounds", "agreed", "reward", "known", "w", "ww", "wr", "wwr", "wwrr")


def sums(reward: float, agreed: int | None, probability: float | None) -> tuple[float, ...] | None:
    """What a rewarded decision adds: 1, agreement, r, and, where p ≥ 1e-12 is known, 1, w, w², w r, w² r, w² r².

    ``agreed`` says whether the bandit would have chosen the same (None: there was no other rule), and ``probability``
    with which probability the old rule did.
    """
    if agreed is None:
        return None
    if probability is None or probability < _RAREST:
        return (1.0, float(agreed), reward, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    w, r = agreed / probability, reward
    return (1.0, float(agreed), r, 1.0, w, w * w, w * r, w * w * r, w * w * r * r)


def report(total: Sequence[float]) -> dict[str, Any]:
    """The report on added :func:`sums`; ``bandit`` is None where no probabilities are known, or nothing agreed."""
    rounds, agreed, reward, n, w, ww, wr, wwr, wwrr = total
    found: dict[str, Any] = {
        "rounds": int(rounds),
        "agreement": agreed / rounds if rounds else None,
        "incumbent": reward / rounds if rounds else None,
        "bandit": None,
    }
    if n and w:
        ips, snips = wr / n, wr / w
        found["bandit"] = {
            "rounds": int(n),
            "ips": ips,
            "ips_error": math.sqrt(max(0.0, wwrr / n - ips**2) / n),
            "snips": snips,
            "snips_error": math.sqrt(max(0.0, wwrr - 2 * snips * wwr + snips**2 * ww)) / w,
            "effective_rounds": w**2 / ww,
        }
    return found

"""One policy on one seed: what was noted, and the entry of JSON that keeps it.

The rest of the room builds on this: :mod:`.play` makes runs, :mod:`.runlog` keeps them as they end, :mod:`.results`
holds them together, :mod:`.files` writes them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array
from dpbandits.policy.protocol import PrivacyReport

__all__ = ["CURVES", "PRIVACY", "Run", "entry", "from_entry"]

CURVES = ("round", "reward", "regret", "seconds")
PRIVACY = tuple(field.name for field in fields(PrivacyReport))


@dataclass(frozen=True, eq=False)
class Run:
    """One policy on one seed.

    Attributes
    ----------
    policy : str
        The name that the policy was given.
    algorithm : str
        Its class.
    seed : int
        The seed of the environment and of the policy.
    round : ndarray of shape (P,)
        The rounds after which the rest was noted; the last is the number of rounds.
    reward, regret, seconds : ndarray of shape (P,)
        Sums up to that round: rewards; the best arm's expected reward less the chosen one's (NaN where unknown);
        and the time that the policy itself took.
    privacy : PrivacyReport
        What the whole run cost.
    untold : int
        How many rewards the policy was never told: missing, or still on their way after the last round. They count
        in ``reward`` all the same.

    Examples
    --------
    >>> from dpbandits import simulate
    >>> from dpbandits.lab.environments import GLM
    >>> from dpbandits.policies import Uniform
    >>> results = simulate({"chance": lambda rng: Uniform(2, rng=rng)}, GLM(dim=2), rounds=50, seeds=1, progress=False)
    >>> run = results.runs[0]
    >>> run.policy, run.seed, int(run.round[-1])
    ('chance', 0, 50)
    """

    policy: str
    algorithm: str
    seed: int
    round: NDArray[np.int64]
    reward: Array
    regret: Array
    seconds: Array
    privacy: PrivacyReport
    untold: int = 0


def entry(run: Run) -> dict[str, Any]:
    """One run for JSON.

    Examples
    --------
    >>> from dpbandits import simulate
    >>> from dpbandits.lab.environments import GLM
    >>> from dpbandits.lab.simulation.runs import entry, from_entry
    >>> from dpbandits.policies import Uniform
    >>> results = simulate({"chance": lambda rng: Uniform(2, rng=rng)}, GLM(dim=2), rounds=50, seeds=1, progress=False)
    >>> from_entry(entry(results.runs[0])).policy
    'chance'
    """
    one: dict[str, Any] = {name: getattr(run, name) for name in ("policy", "algorithm", "seed", "untold")}
    one |= {name: getattr(run, name).tolist() for name in CURVES}
    if np.isnan(run.regret).any():
        one["regret"] = None
    # JSON has no infinity: null stands for it
    privacy = {name: getattr(run.privacy, name) for name in PRIVACY}
    return one | {"privacy": {k: None if v == math.inf else v for k, v in privacy.items()}}


def from_entry(one: dict[str, Any]) -> Run:
    """The inverse of :func:`entry`; numbers may be texts.

    Examples
    --------
    See :func:`entry`.

    >>> from dpbandits.lab.simulation.runs import from_entry
    >>> callable(from_entry)
    True
    """
    noted = np.array(one["round"], dtype=np.int64)
    known = one | ({"regret": np.full(len(noted), np.nan)} if one["regret"] is None else {})
    reward, regret, seconds = (np.array(known[name], dtype=np.float64) for name in CURVES[1:])
    spent: dict[str, Any] = {name: math.inf if value is None else value for name, value in one["privacy"].items()}
    head = str(one["policy"]), str(one["algorithm"]), int(one["seed"])
    return Run(*head, noted, reward, regret, seconds, PrivacyReport(**spent), int(one["untold"]))

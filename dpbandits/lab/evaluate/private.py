"""The value of a policy, released with noise: what a log says, without saying much about any of its rows or persons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from accounting import Budget
from accounting.checks import choice, positive
from dpbandits.lab.evaluate.off_policy import weighted
from dpbandits.lab.tables import finite_range
from dpbandits.policy.checks import real_array
from dpkit import queries

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["private_value"]


def private_value(
    rewards: ArrayLike,
    probabilities: ArrayLike,
    target: ArrayLike,
    *,
    largest_weight: float,
    budget: Budget,
    method: Literal["snips", "ips", "doubly_robust"] = "snips",
    reward_range: tuple[float, float] = (0.0, 1.0),
    baseline: ArrayLike | None = None,
    model: ArrayLike | None = None,
    persons: Any = None,
    max_contributions: int | None = None,
    noise: Literal["laplace", "gaussian"] | None = None,
    ledger: Ledger | None = None,
    rng: np.random.Generator | None = None,
) -> queries.Answer:
    """Release what another policy would have earned on a log, under differential privacy.

    A row counts with its weight w = π/p, cut to ``largest_weight``, so that one row moves the sums by a bounded amount:
    that much noise is added, exactly, and recorded in the ledger (see :func:`dpkit.queries.mean`). The target and the
    model must not have been fitted on this log, unless they were released privately.

    Nothing here warns where the log does not hold what the target does, as :func:`dpbandits.lab.evaluate.ips` would: a
    warning that depends on rows would be a release that nobody has paid for. What was paid for tells it with
    ``method="snips"``: ``largest_weight * answer.counted`` is the sum of the weights with its noise
    (``largest_weight * answer.counted_std``), and should be the number of rows. With the other methods nobody looks.

    Parameters
    ----------
    rewards, probabilities, target : array_like of shape (n,)
        As of :func:`dpbandits.lab.evaluate.ips`.
    largest_weight : float
        It must not come from the data. Cutting draws the value towards 0 (``ips``), towards the mean of the logged
        policy (``snips``), or towards the model (``doubly_robust``).
    budget : Budget
        What it may cost, for one row or one person.
    method : {"snips", "ips", "doubly_robust"}
        ``snips`` has the least noise where weights vary.
    reward_range : (float, float)
        Finite; rewards outside are cut.
    baseline, model : array_like of shape (n,)
        For ``doubly_robust``: Σ_a π(a)·q(a) and q(chosen) of every row, of a model that was not fitted on this log, or
        was released privately; cut to ``reward_range``.
    persons, max_contributions
        Whose rows they are, and how many of one person are used, where ``budget.unit`` is a person.
    noise, ledger, rng
        As in :func:`dpkit.queries.mean`.

    Returns
    -------
    dpkit.queries.Answer
        Whose ``interval(sampling=True)`` counts noise and sampling error, not what cutting has moved.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range; nothing is spent.

    Examples
    --------
    >>> rng = np.random.default_rng(0)        # seeded: a simulation; leave it out to protect real people
    >>> chosen = rng.integers(2, size=10_000)
    >>> clicks = rng.random(10_000) < np.where(chosen, 0.2, 0.1)
    >>> budget = Budget(1.0, 0.0, adjacency="add_remove")
    >>> answer = private_value(clicks, np.full(10_000, 0.5), chosen, largest_weight=2.0, budget=budget, rng=rng)
    >>> round(answer.value, 2)
    0.19
    """
    r, w = weighted(rewards, probabilities, target, largest_weight)
    M = positive("largest_weight", largest_weight)
    low, high = finite_range("reward_range", reward_range)
    choice("method", method, "snips", "ips", "doubly_robust")
    if (baseline is not None, model is not None) != (2 * (method == "doubly_robust",)):
        raise ValueError(f"baseline and model belong to method='doubly_robust' and to no other, got method={method!r}")
    r = np.clip(r, low, high)
    more: dict[str, Any] = {
        "person": persons, "max_contributions": max_contributions, "budget": budget, "noise": noise, "ledger": ledger,
        "rng": rng,
    }  # fmt: skip
    if method == "snips":
        return queries.mean(r, bounds=(low, high), weights=w, largest_weight=M, **more)
    if method == "ips":
        return queries.mean(w * r, bounds=(min(0.0, M * low), max(0.0, M * high)), **more)
    floor, q = (_cut(name, values, r.shape, low, high) for name, values in (("baseline", baseline), ("model", model)))
    reach = M * (high - low)
    return queries.mean(floor + w * (r - q), bounds=(low - reach, high + reach), **more)


def _cut(name: str, values: Any, shape: tuple[int, ...], low: float, high: float) -> Any:
    found = real_array(name, values)
    if found.shape != shape or np.isnan(found).any():
        raise ValueError(f"{name} must have one number per row, {shape}, got shape {found.shape} or NaN")
    return np.clip(found, low, high)

"""An experiment that others have run: private results from a table of arms and values, with one release per arm.

For whoever has split people at random already, and has everybody's value. All values of an arm are one batch, so there
is one noisy sum per arm, and less noise than in an experiment that is looked at.

Privacy. Unit: a row, or with ``persons`` a person, of whom the first row is used. Adjacency: "replace". Protected is
the *value*. Who took part, in which arm, is taken to be public, as are the arms' numbers of rows: the split must have
been made by draws that depend on nothing of these people. A value moves the sum of its own arm, which is public, by at
most the length of the range, and costs one ``Laplace(z)`` or ``Gaussian(z)`` (:class:`dpkit.moments.TrialBatches`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import AdjacencyMismatch, Budget, Laplace
from accounting import epsilon as price_of
from accounting.checks import choice, fraction, ledger_or_none
from dpbandits.experiment.results import ExperimentResults
from dpbandits.experiment.setting import Setting
from dpbandits.policy.checks import checked_budget, checked_range, real_array
from dpkit import randomness
from dpkit.mechanisms._checked import charged
from dpkit.moments.trial_batches import STEPS, TrialBatches

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["analyse"]

# a split is even if no arm has so many times as many rows as another
_EVEN = 1.5


def analyse(
    values: ArrayLike,
    arms: Sequence[str],
    *,
    budget: Budget,
    persons: Sequence[Hashable] | None = None,
    metric: str = "value",
    metric_range: tuple[float, float] = (0.0, 1.0),
    alpha: float = 0.05,
    baseline: str | None = None,
    missing: float | None = None,
    clip: bool = False,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
    label: str = "experiment",
) -> ExperimentResults:
    """Results of an experiment whose rows are known already.

    Parameters
    ----------
    values : array_like of shape (n,)
        NaN where the value is missing.
    arms : sequence of str, of length n
        Who was shown what, by a random split.
    budget : Budget
        Under "replace". With ``unit="person"`` the rows' persons are needed.
    persons : sequence of length n, optional
        Whose row it is. A person's first row is used, and all must be of one arm.
    metric : str
        What the values are called in the results.
    metric_range, alpha, baseline, missing
        As for :class:`dpbandits.Experiment`; the baseline is by default the first arm in alphabetical order.
    clip : bool
        Move values outside of the range to its ends, instead of refusing them.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.
    ledger : Ledger, optional
        Charged before any noise is drawn.
    label : str
        Of the ledger's row.

    Returns
    -------
    ExperimentResults

    Raises
    ------
    ValueError
        For lengths that differ, a value outside of the range, a single arm, or a person in two arms. Nothing is spent.
    BudgetExceeded
        If the ledger refuses.
    AdjacencyMismatch
        If the ledger protects persons, and the budget does not. Nothing is spent.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpbandits.experiment import analyse
    >>> rng = np.random.default_rng(0)   # seeded: a simulation
    >>> shown = ["old", "new"] * 2000
    >>> bought = rng.random(4000) < np.where(np.array(shown) == "new", 0.2, 0.1)
    >>> results = analyse(bought, shown, budget=Budget(1.0, 0.0), baseline="old", rng=rng)
    >>> print(results.verdict)
    new is best (wrong with probability at most 0.05, however often anybody looks).
    """
    found = real_array("values", values)
    if found.ndim != 1 or len(arms) != len(found):
        raise ValueError(f"arms must have one name for each of the values, got {len(arms)} for shape {found.shape}")
    checked_budget(budget, pure=True)
    if budget.adjacency != "replace":
        raise ValueError(f"budget must be of adjacency 'replace' for a split that is public, got {budget.adjacency!r}")
    low, high = checked_range(metric_range, "metric_range")
    absent = low if missing is None else float(missing)
    if not low <= absent <= high:
        raise ValueError(f"missing must lie in metric_range, [{low:g}, {high:g}], got missing={missing!r}")
    names, chosen = np.unique(np.asarray(arms, dtype=str), return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"arms must be at least two, got {names.tolist()}")
    if (persons is None) != (budget.unit != "person"):
        raise ValueError(
            f"persons must be given where the budget's unit is a person, and only there, got unit={budget.unit!r}"
        )
    ledger = ledger_or_none(ledger)
    counted = None if ledger is None else ledger.budget
    if counted is not None and counted.unit == "person" != budget.unit:
        raise AdjacencyMismatch(
            f"ledger must count what the budget counts, one {budget.unit}, got one that counts one person: state whose "
            "rows they are"
        )
    if persons is not None:
        first = _first_rows(persons, chosen)
        found, chosen = found[first], chosen[first]
    arm_names = tuple(names.tolist())
    base = arm_names[0] if baseline is None else choice("baseline", baseline, *arm_names)
    outside = (found < low) | (found > high)
    if outside.any() and not clip:
        raise ValueError(
            f"metric_range must hold all values, got a value of {found[outside][0]:g} for [{low:g}, {high:g}]: state "
            "the range that they can have, or clip them to it"
        )
    level, counts = fraction("alpha", alpha), np.bincount(chosen)
    whole = np.clip(np.where(np.isnan(found), absent, found), low, high)[:, None]
    source = randomness.resolve(rng)
    ends = [int(counts.max())]
    sums = TrialBatches(len(names), [(low, high)], [absent], ends, budget=budget, rng=source)
    sums.add_many(chosen, whole)
    with charged(ledger, sums.cost, label, source):
        noisy = np.array([sums.release(k, 0) for k in range(len(names))])
    even = counts.max() <= _EVEN * counts.min()
    noise: Literal["laplace", "gaussian"] = "laplace" if isinstance(sums.cost, Laplace) else "gaussian"
    setting = Setting(
        arms=arm_names,
        baseline=base,
        metric=metric,
        low=low,
        high=high,
        missing=absent,
        alpha=level,
        assignment="fixed" if even else "adaptive",
        horizon=len(found),
        noise=noise,
        scale=sums.scale,
        steps=STEPS,
    )
    share = (noisy[:, 0] / STEPS / counts) + (absent - low) / (high - low)
    center = np.clip(share, 0.0, 1.0)
    spread = np.sqrt(np.maximum(center * (1.0 - center), 1.0 / counts) / counts + (sums.noise / counts) ** 2)
    simulation = randomness.is_simulation(source)
    spent = f"({price_of(sums.cost, budget.delta):.6g}, {budget.delta:g})-DP, the value of one {budget.unit}"
    spent += " (SIMULATION: the noise came from a seeded generator; not a private release)" if simulation else ""
    return ExperimentResults(
        setting,
        assigned=dict(zip(arm_names, counts.tolist(), strict=True)),
        sums=noisy,
        counts=counts[:, None],
        when=np.full((len(names), 1), len(found)),
        center=center,
        spread=spread,
        spent=spent,
        simulation=simulation,
        stopped="all rows are in",
    ).with_best()


def _first_rows(persons: Sequence[Hashable], chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first row of every person, all of whose rows must be of one arm."""
    if len(persons) != len(chosen):
        raise ValueError(f"persons must be one for each of {len(chosen)} values, got {len(persons)}")
    rows: dict[Hashable, int] = {}
    for row, person in enumerate(persons):
        first = rows.setdefault(person, row)
        if chosen[first] != chosen[row]:
            raise ValueError(
                f"a person must be in one arm, got one whose rows {first + 1} and {row + 1} are of two: leave such "
                "persons out by a rule that does not look at values"
            )
    return np.array(list(rows.values()), dtype=np.int64)

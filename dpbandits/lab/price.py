"""What privacy will cost on your data, before you launch: the share of the gain over uniform choices that is lost.

Simulations on the same rounds and the same luck: policies that are not private, uniform choices, and for every unit of
privacy and every ε a private policy. Of the first the better one counts: ``GLBOMD``, which is greedy, or one that
explores, ``LinearThompson`` (``DisjointThompson`` where arms have a parameter each); where arms are fixed and have no
features, ``ThompsonArms`` alone. With u, f and p their mean rewards (or, where regret is known, minus the mean regrets,
which are less noisy),

    price = (f − p)/(f − u):    0 where privacy costs nothing, 1 where nothing is left of what learning gains.

Its standard error is that of a ratio of means, paired by seed.

Everything here is computed from raw data by seeded simulations: a table of prices is as confidential as the log, and
choosing ε by it gives away a little of the log. Where that matters, use a world of ``dpbandits.lab.environments`` that
is like the data.

>>> from dpbandits.lab.environments import GLM
>>> world = GLM(dim=3, link="probit", theta_norm=2.0)
>>> table = price_of_privacy(world, [1.0, 8.0], rounds=500, seeds=3, progress=False)
>>> [(row.unit, row.epsilon) for row in table.rows]
[('round', 1.0), ('round', 8.0)]
>>> 0 < table.rows[1].price < table.rows[0].price < 1
True
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from accounting import Budget
from accounting.arrays import Array
from accounting.checks import fraction
from dpbandits.lab import price_policies
from dpbandits.lab.environments.base import Environment, checked_rounds, without_features
from dpbandits.lab.price_policies import UNITS
from dpbandits.lab.price_table import PriceRow, PriceTable
from dpbandits.lab.simulation.results import Results
from dpbandits.lab.simulation.simulate import simulate
from dpbandits.policy.checks import checked_base_rate
from dpbandits.policy.protocol import Policy
from dpkit.models.links import get_link

if TYPE_CHECKING:
    from dpbandits.lab.environments import ChosenLog
    from dpbandits.lab.evaluate import Log

__all__ = ["price_of_privacy"]

_UNIFORM = "uniform"
# what a table tells of a model of a log
_OF_MODELS = ("visitor", "item", "unused", "ranges", "drifts", "agreements")


def price_of_privacy(
    source: Environment | Log,
    budgets: Sequence[float | Budget],
    *,
    policies: Mapping[str, str | type[Policy]] | None = None,
    units: Sequence[str] | None = None,
    rounds: int | None = None,
    seeds: int | Sequence[int] = 5,
    delta: float = 1e-5,
    base_rate: float | None = None,
    jobs: int | None = None,
    resume: str | Path | None = None,
    progress: bool = True,
) -> PriceTable:
    """Simulate what each budget would cost.

    Parameters
    ----------
    source : Environment or dpbandits.lab.evaluate.Log
        A log in which the reward of every shown arm is known is a
        :class:`~dpbandits.lab.environments.LogReplay`, and is played as it is. For a log of choices
        (:class:`dpbandits.lab.evaluate.Log`) a reward model is fitted and played; see
        :class:`~dpbandits.lab.environments.ChosenLog`, which also has what to tell about it.
    budgets : sequence of float or Budget
        Numbers are ε. Their unit is replaced by each of ``units``.
    policies : mapping, optional
        Private policies by unit, as classes or their names in ``dpbandits.policies``; by default
        ``{"round": "OnePassPrivateGLM", "person": "PersonPrivateGLM"}``; ``"PrivateArms"`` for both where arms
        are fixed and have no features, and ``"DisjointPrivateGLM"`` where the environment shows contexts to fixed
        arms, of a parameter each.
    units : sequence of {"round", "person"}, optional
        By default both, where rounds say whose they are; else rounds.
    rounds : int, optional
        By default as many as the source has.
    seeds : int or sequence of int
        ``n`` stands for 0, …, n − 1.
    delta : float
        δ of budgets that are given by ε.
    base_rate : float, optional
        What every policy, also the one that is not private, is told that an arm taken at random pays; by default
        what the environment says, if it does. It must be public.
    jobs : int, optional
        Number of processes.
    resume : path, optional
        A ``.jsonl`` file that keeps every run as it ends, so that the same call goes on after an interrupt; see
        :func:`dpbandits.simulate`. Without it nothing is left of an interrupted call; ``KeyboardInterrupt`` says so.
    progress : bool
        Show a progress bar on a terminal, if ``rich`` is installed.

    Returns
    -------
    PriceTable

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range; for persons where rounds say not whose they are; for a log that cannot support
        a forecast, with the reason.

    Examples
    --------
    >>> from dpbandits import price_of_privacy
    >>> from dpbandits.lab.environments import GLM
    >>> prices = price_of_privacy(GLM(dim=2, arms=5), [1.0, 4.0], rounds=300, seeds=2)
    >>> [row.epsilon for row in prices.rows]
    [1.0, 4.0]
    """
    environment, model_of_log = _environment(source)
    listed = _budgets(budgets, delta)
    count = checked_rounds(rounds, environment)
    chosen = _units(environment, units)
    kinds = price_policies.kinds({} if policies is None else policies, chosen, environment)
    rate = getattr(environment, "base_rate", None) if base_rate is None else base_rate
    model: dict[str, Any] = {"link": environment.link, "theta_bound": environment.theta_bound, "base_rate": rate}
    private = model | {"reward_range": environment.reward_range, "on_violation": "clip", "horizon": count}

    unprotected = price_policies.free(environment, model)
    made = {**unprotected, _UNIFORM: price_policies.uniform(environment)}
    priced: dict[str, Budget] = {}
    for unit in chosen:
        for budget in listed:
            own = replace(budget, unit=unit)
            name = f"{unit}, ε = {own.epsilon!r}, δ = {own.delta!r}"
            if name in priced:
                raise ValueError(f"budgets must be different, got ε = {own.epsilon:g} twice")
            priced[name] = own
            made[name] = price_policies.private(kinds[unit], environment, private, own)
    hopeless = {name: made[name].hopeless(environment) for name in priced}
    results = simulate(
        made, environment, rounds=count, seeds=seeds, jobs=jobs, resume=resume, points=1, progress=progress
    )
    if not results.complete:
        kept = f"kept in {resume}, from which the same call goes on" if resume else "lost: resume=FILE.jsonl keeps them"
        raise KeyboardInterrupt(f"{len(results.runs)} of {results.planned_runs} runs are done, and {kept}")
    best = max(unprotected, key=lambda name: float(_last(results, name).mean()))
    free, uniform = _last(results, best), _last(results, _UNIFORM)
    found = {row["policy"]: row for row in results.table()}
    rows = []
    for name, budget in priced.items():
        row = found[name]
        values = [row[key] for key in ("algorithm", "reward", "reward_se", "regret", "regret_se")]
        price = _ratio(free - _last(results, name), free - uniform)
        cells = [budget.unit, budget.epsilon, budget.delta, *values, *price, hopeless[name]]
        rows.append(PriceRow(*cells))
    baselines = {
        field + suffix: found[name]["reward" + suffix]
        for field, name in (("free", best), ("uniform", _UNIFORM))
        for suffix in ("", "_se")
    }
    low, high = environment.reward_range
    told = (checked_base_rate(rate, get_link(environment.link), low, high) - low) / (high - low)
    if without_features(environment):  # what is played there believes nothing, and learns it
        told = math.nan
    return PriceTable(
        environment.name,
        count,
        found[best]["seeds"],
        model_of_log is not None,
        reference=found[best]["algorithm"],
        **baselines,
        rows=tuple(rows),
        told=told,
        paid=(baselines["uniform"] - low) / (high - low),
        **({} if model_of_log is None else {name: getattr(model_of_log, name) for name in _OF_MODELS}),
    )


def _environment(source: Any) -> tuple[Any, ChosenLog | None]:
    """What is played, and the model of a log in it, if there is one."""
    from dpbandits.lab.environments import ChosenLog
    from dpbandits.lab.evaluate import Log

    if isinstance(source, Log):
        world = ChosenLog(source)
        return world, world
    needed = ("episode", "dim", "link", "theta_bound", "reward_range")
    if missing := [name for name in needed if not hasattr(source, name)]:
        raise TypeError(
            f"source must be an environment or a dpbandits.lab.evaluate.Log, got a {type(source).__name__} without "
            f"{missing[0]!r}: read a file with LogReplay(path) or Log.read(path)"
        )
    inner = source
    while not isinstance(inner, ChosenLog) and "environment" in vars(inner):  # delays, persons
        inner = inner.environment
    return source, inner if isinstance(inner, ChosenLog) else None


def _budgets(budgets: Any, delta: float) -> list[Budget]:
    if isinstance(budgets, (str, Budget)) or not isinstance(budgets, Iterable):
        raise TypeError(f"budgets must be a sequence of ε or Budget such as [0.5, 1.0, 2.0], got {budgets!r}")
    fraction("delta", delta)
    found = []
    for one in budgets:
        if isinstance(one, bool) or not isinstance(one, (Budget, Real)):
            raise TypeError(f"budgets must hold numbers (ε) or Budget, got {one!r}")
        found.append(one if isinstance(one, Budget) else Budget(float(one), delta))
    if not found:
        raise ValueError("budgets must hold at least one ε, got none")
    return found


def _units(environment: Environment, units: Any) -> list[str]:
    known = next(environment.episode(np.random.default_rng(0))).person is not None
    if units is None:
        return ["round", "person"] if known else ["round"]
    if isinstance(units, str) or not isinstance(units, Iterable):
        raise TypeError(f"units must be a sequence such as ('round', 'person'), got units={units!r}")
    asked = list(units)
    if not asked or len(set(map(str, asked))) < len(asked) or not set(map(str, asked)) <= set(UNITS):
        raise ValueError(f"units must be one or both of 'round' and 'person', got units={units!r}")
    if "person" in asked and not known:
        raise ValueError(
            f"units must be ('round',) where rounds say not whose they are, got units={units!r} for "
            f"{environment.name}: name the column of persons (person_column=, --person), or take a world that has some"
        )
    return asked


def _last(results: Results, name: str) -> Array:
    """What each seed was worth: per round, minus the regret where it is known."""
    if results.metric == "regret":
        return np.asarray(-results.curves(name, "regret")[1][:, -1] / results.runs[0].round[-1])
    return np.asarray(results.curves(name, "reward")[1][:, -1])


def _ratio(lost: Array, gain: Array) -> tuple[float, float]:
    """The mean of ``lost`` over that of ``gain``, with its standard error to first order; NaN without a gain."""
    n, whole = len(gain), float(gain.mean())
    if not whole > 0:
        return math.nan, math.nan
    share = float(lost.mean()) / whole
    if n == 1:
        return share, math.nan
    return share, float((lost - share * gain).std(ddof=1)) / (whole * math.sqrt(n))

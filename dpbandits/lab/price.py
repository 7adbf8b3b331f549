"""What privacy will cost on your data, before you launch: the share of the gain over uniform choices that is lost.

Three simulations on the same rounds and the same luck: a policy that is not private, uniform choices, and for every
unit of privacy and every ε a private policy. The first is ``GLBOMD``; or, where arms are fixed and have no
features, ``ThompsonArms``, since greedy policies get stuck there. With u, f and p their mean rewards (or, where regret
is known, minus the mean regrets, which are less noisy),

    price = (f − p)/(f − u):    0 where privacy costs nothing, 1 where nothing is left of what learning gains.

Its standard error is that of a ratio of means, paired by seed.

Everything here is computed from raw data by seeded simulations: a table of prices is as confidential as the log, and
choosing ε by it gives away a little of the log. Where that matters, use a world of ``dpbandits.lab.environments`` that
is like the data.

>>> from dpbandits.lab.environments import GLM
>>> world = GLM(dim=3, link="probit", theta_norm=2.0)
>>> table = price_of_privacy(world, [1.0, 8.0], rounds=1000, seeds=3, progress=False)
>>> [(row.unit, row.epsilon) for row in table.rows]
[('round', 1.0), ('round', 8.0)]
>>> 0 < table.rows[1].price < table.rows[0].price < 1
True
"""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from accounting import Budget
from accounting.arrays import Array
from accounting.checks import fraction
from dpbandits.lab.environments.base import Environment, checked_rounds, without_features
from dpbandits.lab.price_table import PriceRow, PriceTable
from dpbandits.lab.simulation.results import Results
from dpbandits.lab.simulation.simulate import simulate
from dpbandits.policy.checks import checked_base_rate
from dpbandits.policy.offers import NOTHING
from dpbandits.policy.private import PrivatePolicy
from dpbandits.policy.protocol import Policy
from dpkit.models.links import get_link

if TYPE_CHECKING:
    from dpbandits.lab.evaluate import Log

__all__ = ["price_of_privacy"]

# what is played where nothing else is asked for
_PRIVATE = {"round": "OnePassPrivateGLM", "person": "PersonPrivateGLM"}
_WITHOUT_FEATURES = {"round": "PrivateArms", "person": "PrivateArms"}
_FREE, _UNIFORM = "not private", "uniform"


@dataclass(frozen=True)
class _Made:
    """A function that makes a policy; picklable, for worker processes."""

    algorithm: Callable[..., Policy]
    shape: tuple[int, ...]
    parameters: Mapping[str, Any]

    @property
    def public_arms(self) -> bool:
        """Whether it is told the arms, which stand."""
        return bool(getattr(self.algorithm, "public_arms", False))

    def __call__(self, rng: np.random.Generator, *arms: Array) -> Policy:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the noise for ε")  # the table says so
            return self.algorithm(*self.shape, *arms, **self.parameters, rng=rng)

    def hopeless(self, environment: Environment) -> bool:
        arms = [next(iter(environment.episode(np.random.default_rng(0)))).arms] if self.public_arms else []
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            self.algorithm(*self.shape, *arms, **self.parameters, rng=np.random.default_rng(0))
        return any(str(one.message).startswith("the noise for ε") for one in said)


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
        ``{"round": "OnePassPrivateGLM", "person": "PersonPrivateGLM"}``, and ``"PrivateArms"`` for both where arms
        are fixed and have no features. Policies for arms with parameters of their own (``DisjointPrivateGLM``) need an
        environment that shows contexts to them.
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
        For a parameter out of range; for persons where rounds say not whose they are.
    """
    environment, modelled = _environment(source)
    listed = _budgets(budgets, delta)
    count = checked_rounds(rounds, environment)
    chosen = _units(environment, units)
    named = without_features(environment)
    kinds = _kinds({} if policies is None else policies, chosen, _WITHOUT_FEATURES if named else _PRIVATE)
    rate = getattr(environment, "base_rate", None) if base_rate is None else base_rate
    model: dict[str, Any] = {"link": environment.link, "theta_bound": environment.theta_bound, "base_rate": rate}
    private = model | {"reward_range": environment.reward_range, "on_violation": "clip", "horizon": count}

    made = {
        _FREE: _free_arms(environment) if named else _Made(_class("GLBOMD"), (environment.dim,), model),
        _UNIFORM: _Made(_class("Uniform"), (environment.dim,), {}),
    }
    priced: dict[str, Budget] = {}
    for unit in chosen:
        for budget in listed:
            own = replace(budget, unit=unit)
            name = f"{unit}, ε = {own.epsilon!r}, δ = {own.delta!r}"
            if name in priced:
                raise ValueError(f"budgets must be different, got ε = {own.epsilon:g} twice")
            priced[name] = own
            made[name] = _private(kinds[unit], environment, private, own)
    hopeless = {name: made[name].hopeless(environment) for name in priced}
    results = simulate(
        made, environment, rounds=count, seeds=seeds, jobs=jobs, resume=resume, points=1, progress=progress
    )
    if not results.complete:
        kept = f"kept in {resume}, from which the same call goes on" if resume else "lost: resume=FILE.jsonl keeps them"
        raise KeyboardInterrupt(f"{len(results.runs)} of {results.planned_runs} runs are done, and {kept}")
    free, uniform = _last(results, _FREE), _last(results, _UNIFORM)
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
        for field, name in (("free", _FREE), ("uniform", _UNIFORM))
        for suffix in ("", "_se")
    }
    low, high = environment.reward_range
    return PriceTable(
        environment.name,
        count,
        found[_FREE]["seeds"],
        modelled,
        **baselines,
        rows=tuple(rows),
        told=(checked_base_rate(rate, get_link(environment.link), low, high) - low) / (high - low),
        paid=(baselines["uniform"] - low) / (high - low),
    )


def _environment(source: Any) -> tuple[Any, bool]:
    from dpbandits.lab.environments import ChosenLog
    from dpbandits.lab.evaluate import Log

    if isinstance(source, Log):
        return ChosenLog(source), True
    needed = ("episode", "dim", "link", "theta_bound", "reward_range")
    if missing := [name for name in needed if not hasattr(source, name)]:
        raise TypeError(
            f"source must be an environment or a dpbandits.lab.evaluate.Log, got a {type(source).__name__} without "
            f"{missing[0]!r}: read a file with LogReplay(path) or Log.read(path)"
        )
    inner = source
    while not isinstance(inner, ChosenLog) and "environment" in vars(inner):  # delays, persons
        inner = inner.environment
    return source, isinstance(inner, ChosenLog)


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
    if not asked or len(set(map(str, asked))) < len(asked) or not set(map(str, asked)) <= _PRIVATE.keys():
        raise ValueError(f"units must be one or both of 'round' and 'person', got units={units!r}")
    if "person" in asked and not known:
        raise ValueError(
            f"units must be ('round',) where rounds say not whose they are, got units={units!r} for "
            f"{environment.name}: name the column of persons (person_column=, --person), or take a world that has some"
        )
    return asked


def _kinds(policies: Any, units: Sequence[str], usual: Mapping[str, str]) -> dict[str, type[Policy]]:
    """The private policies of these units."""
    if not isinstance(policies, Mapping):
        raise TypeError(f"policies must be a mapping from 'round' or 'person' to a policy, got {policies!r}")
    if wrong := [unit for unit in policies if unit not in _PRIVATE]:
        raise ValueError(f"policies must have the keys 'round' or 'person', got {wrong[0]!r}")
    found = {}
    for unit in units:
        given = policies.get(unit, usual[unit])
        found[unit] = kind = _class(given) if isinstance(given, str) else given
        if not (isinstance(kind, type) and issubclass(kind, PrivatePolicy)):
            raise ValueError(f"policies[{unit!r}] must be a private policy of dpbandits.policies, got {given!r}")
    return found


def _class(name: str) -> Any:
    return getattr(importlib.import_module("dpbandits.policies"), name, None)


def _free_arms(environment: Any) -> _Made:
    """The policy without privacy for K arms without features, which knows how large rewards are."""
    told = {"reward_range": getattr(environment, "support", environment.reward_range), "on_violation": "clip"}
    return _Made(_class("ThompsonArms"), (environment.n_arms,), told)


def _private(kind: type[Policy], environment: Any, parameters: Mapping[str, Any], budget: Budget) -> _Made:
    """A private policy of the environment's dimension; for standing arms that of a context, and how many arms."""
    # without a link, for a policy that is linear
    dropped = set() if "link" in signature(kind.__init__).parameters else {"link"}
    shape: tuple[int, ...] = (environment.dim,)
    if kind.offer is NOTHING:
        if not hasattr(environment, "n_arms"):
            raise ValueError(
                f"policies must choose from changing arms in {environment.name}, whose arms are not fixed, got "
                f"{kind.__name__}"
            )
        shape, dropped = (environment.n_arms,), dropped | {"theta_bound"}
    elif kind.takes == "context":
        if not hasattr(environment, "context_dim"):
            raise ValueError(
                f"policies must choose from changing arms in {environment.name}, which shows no contexts to arms that "
                f"stand (a world such as disjoint does), got {kind.__name__}"
            )
        # the bound on θ is that of all arms together, not of one
        shape, dropped = (environment.context_dim, environment.n_arms), dropped | {"theta_bound"}
    told = {name: value for name, value in parameters.items() if name not in dropped}
    return _Made(kind, shape, told | {"budget": budget})


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

"""What privacy will cost on your data, before you launch: the share of the gain over uniform choices that is lost.

Three simulations on the same rounds and the same luck: a policy that is not private, uniform choices, and for every
unit of privacy and every ε a private policy. With u, f and p their mean rewards (or, where regret is known, minus the
mean regrets, which are less noisy),

    price = (f − p)/(f − u):    0 where privacy costs nothing, 1 where nothing is left of what learning gains.

Its standard error is that of a ratio of means, paired by seed.

Everything here is computed from raw data by seeded simulations: a table of prices is as confidential as the log, and
choosing ε by it gives away a little of the log. Where that matters, use a world of ``dpbandits.environments`` that is
like the data.

>>> from dpbandits.environments import GLM
>>> world = GLM(dim=3, link="probit", theta_norm=2.0)
>>> table = price_of_privacy(world, [1.0, 8.0], rounds=1000, seeds=3, progress=False)
>>> [(row.unit, row.epsilon) for row in table.rows]
[('round', 1.0), ('round', 8.0)]
>>> 0 < table.rows[1].price < table.rows[0].price < 1
True
"""

from __future__ import annotations

import importlib
import json
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from accounting import Budget
from accounting.checks import fraction, integer
from accounting.printed import as_html, as_text
from dpbandits.environments.base import Environment
from dpbandits.policy import Array, Policy
from dpbandits.simulation.results import Results, with_error
from dpbandits.simulation.simulate import simulate

if TYPE_CHECKING:
    from dpbandits.evaluate import Log

__all__ = ["PriceRow", "PriceTable", "percent", "price_of_privacy"]

# what is played where nothing else is asked for
_PRIVATE = {"round": "OnePassPrivateGLM", "person": "PersonPrivateGLM"}
_FREE, _UNIFORM = "not private", "uniform"
# of the gain, in the sentence
_ENOUGH = 0.9


@dataclass(frozen=True)
class PriceRow:
    """One unit and one ε.

    Attributes
    ----------
    unit : str
        "round" or "person".
    epsilon, delta : float
    policy : str
        The class that was played.
    reward, reward_se : float
        Mean reward per round, and its standard error over seeds (NaN for one seed).
    regret, regret_se : float
        Of the whole run; NaN where it is unknown.
    price, price_se : float
        The share of the gain that is lost.
    hopeless : bool
        Whether the policy warned, when it was made, that its noise exceeds what the rounds can say.
    """

    unit: str
    epsilon: float
    delta: float
    policy: str
    reward: float
    reward_se: float
    regret: float
    regret_se: float
    price: float
    price_se: float
    hopeless: bool


@dataclass(frozen=True)
class PriceTable:
    """Prices, and the two policies that they stand between.

    Attributes
    ----------
    environment : str
        What was played.
    rounds, seeds : int
    modelled : bool
        Whether rewards came from a model that was fitted to a log of choices.
    free, free_se, uniform, uniform_se : float
        Mean reward per round without privacy, and of uniform choices.
    rows : tuple of PriceRow
        By unit, then ε.
    """

    environment: str
    rounds: int
    seeds: int
    modelled: bool
    free: float
    free_se: float
    uniform: float
    uniform_se: float
    rows: tuple[PriceRow, ...]

    def sentence(self) -> str:
        """What the table says, in one sentence (a second one where it was a model)."""
        gain, error = self.free - self.uniform, math.hypot(_known(self.free_se), _known(self.uniform_se))
        if not gain > 2 * error:
            text = (
                f"In {self.rounds:,} rounds nothing is learned here even without privacy "
                f"({self.free:.3g} per round, {self.uniform:.3g} by chance), so that there is no gain that "
                "privacy could cost."
            )
        else:
            parts = []
            for unit in dict.fromkeys(row.unit for row in self.rows):
                rows = sorted((row for row in self.rows if row.unit == unit), key=lambda row: row.epsilon)
                enough = next((row for row in rows if row.price <= 1 - _ENOUGH), None)
                told = enough or rows[-1]
                parts.append(
                    f"protecting every {unit} at ε = {told.epsilon:g} keeps {percent(1 - told.price)} of that gain"
                    + (
                        " (the least ε tried that keeps nine tenths)"
                        if enough
                        else " (the most that any ε tried keeps)"
                    )
                )
            text = (
                f"Learning earns {self.free:.3g} per round where choosing by chance earns {self.uniform:.3g}; "
                f"{', and '.join(parts)}."
            )
        if self.modelled:
            text += " Rewards came from a model that was fitted to the log, so that this is a plan and no promise."
        return text

    def __str__(self) -> str:
        """The table as text, and the sentence."""
        return "\n".join([self.caption(), as_text(self._cells()), self.sentence()])

    def __repr__(self) -> str:
        return f"PriceTable({self.environment!r}, {len(self.rows)} prices): {self.sentence()}"

    def _repr_html_(self) -> str:
        return as_html(f"{self.caption()}. {self.sentence()}", self._cells())

    def _cells(self) -> list[list[str]]:
        lines = [["unit", "ε", "mean reward", "lost of the gain", ""]]
        lines.append(["none", "∞", with_error(self.free, self.free_se), "0 %", "not private"])
        for row in self.rows:
            price = percent(row.price) + (f" ± {percent(row.price_se)}" if row.price_se > 0 else "")
            note = "noise exceeds signal" if row.hopeless else ""
            lines.append([row.unit, f"{row.epsilon:g}", with_error(row.reward, row.reward_se), price, note])
        return [*lines, ["", "0", with_error(self.uniform, self.uniform_se), "100 %", "uniform choices"]]

    def caption(self) -> str:
        """What was played, and how often."""
        return f"{self.environment}: {self.rounds:,} rounds, {self.seeds} seed{'s' if self.seeds > 1 else ''}"

    def to_json(self) -> str:
        """Everything, as JSON; unknown numbers are null."""
        return json.dumps(_plain(asdict(self) | {"sentence": self.sentence()}), ensure_ascii=False, indent=1)

    def save(self, path: str | Path) -> Path:
        """Write :meth:`to_json` to a file."""
        Path(path).write_text(self.to_json() + "\n", encoding="utf-8")
        return Path(path)

    def plot(self, target: Any) -> Any:
        """The price against ε, a line for each unit, into an image file or on matplotlib's axes."""
        from dpbandits.simulation.plots import draw_prices

        return draw_prices(self, target)


@dataclass(frozen=True)
class _Made:
    """A function that makes a policy; picklable, for worker processes."""

    algorithm: Callable[..., Policy]
    shape: tuple[int, ...]
    parameters: Mapping[str, Any]

    def __call__(self, rng: np.random.Generator) -> Policy:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the noise for ε")  # the table says so
            return self.algorithm(*self.shape, **self.parameters, rng=rng)

    def hopeless(self) -> bool:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            self.algorithm(*self.shape, **self.parameters, rng=np.random.default_rng(0))
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
    progress: bool = True,
) -> PriceTable:
    """Simulate what each budget would cost.

    Parameters
    ----------
    source : Environment or dpbandits.evaluate.Log
        A log in which the reward of every shown arm is known is a
        :class:`~dpbandits.environments.LogReplay`, and is played as it is. For a log of choices
        (:class:`dpbandits.evaluate.Log`) a reward model is fitted and played; see
        :class:`~dpbandits.environments.ChosenLog`, which also has what to tell about it.
    budgets : sequence of float or Budget
        Numbers are ε. Their unit is replaced by each of ``units``.
    policies : mapping, optional
        Private policies by unit, as classes or their names in ``dpbandits.policies``; by default
        ``{"round": "OnePassPrivateGLM", "person": "PersonPrivateGLM"}``. Policies for standing arms
        (``DisjointPrivateGLM``) need an environment that shows contexts to them.
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
    count = environment.rounds if rounds is None else integer("rounds", rounds, at_least=1)
    if count is None:
        raise ValueError(f"rounds must be given: {environment.name} has no end")
    if environment.rounds is not None and count > environment.rounds:
        raise ValueError(f"rounds must be at most {environment.rounds} for {environment.name}, got rounds={rounds}")
    chosen = _units(environment, units)
    kinds = _kinds(policies, chosen)
    rate = getattr(environment, "base_rate", None) if base_rate is None else base_rate
    model: dict[str, Any] = {"link": environment.link, "theta_bound": environment.theta_bound, "base_rate": rate}
    private = model | {"reward_range": environment.reward_range, "on_violation": "clip", "horizon": count}

    made = {
        _FREE: _Made(_class("GLBOMD"), (environment.dim,), model),
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
            shape = _shape(kinds[unit], environment)
            made[name] = _Made(kinds[unit], shape, _accepted(kinds[unit], private) | {"budget": own})
    hopeless = {name: made[name].hopeless() for name in priced}
    results = simulate(made, environment, rounds=count, seeds=seeds, jobs=jobs, points=1, progress=progress)
    if not results.complete:
        raise KeyboardInterrupt
    free, uniform = _last(results, _FREE), _last(results, _UNIFORM)
    found = {row["policy"]: row for row in results.table()}
    rows = []
    for name, budget in priced.items():
        row = found[name]
        price, error = _ratio(free - _last(results, name), free - uniform)
        values = {key: row[key] for key in ("reward", "reward_se", "regret", "regret_se")}
        rows.append(
            PriceRow(
                budget.unit, budget.epsilon, budget.delta, row["algorithm"], **values,
                price=price, price_se=error, hopeless=hopeless[name],
            )
        )  # fmt: skip
    baselines = {
        field + suffix: found[name]["reward" + suffix]
        for field, name in (("free", _FREE), ("uniform", _UNIFORM))
        for suffix in ("", "_se")
    }
    return PriceTable(environment.name, count, found[_FREE]["seeds"], modelled, **baselines, rows=tuple(rows))


def _environment(source: Any) -> tuple[Any, bool]:
    from dpbandits.environments import ChosenLog
    from dpbandits.evaluate import Log

    if isinstance(source, Log):
        return ChosenLog(source), True
    missing = [name for name in ("episode", "dim", "link", "theta_bound", "reward_range") if not hasattr(source, name)]
    if missing:
        raise TypeError(
            f"source must be an environment or a dpbandits.evaluate.Log, got a {type(source).__name__} without "
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
    for budget in budgets:
        if isinstance(budget, Budget):
            found.append(budget)
        elif isinstance(budget, bool) or not isinstance(budget, (int, float, np.integer, np.floating)):
            raise TypeError(f"budgets must hold numbers (ε) or Budget, got {budget!r}")
        else:
            found.append(Budget(float(budget), delta))
    if not found:
        raise ValueError("budgets must hold at least one ε, got none")
    return found


def _units(environment: Environment, units: Any) -> list[str]:
    first = next(environment.episode(np.random.default_rng(0)))
    known = first.person is not None
    if units is None:
        return ["round", "person"] if known else ["round"]
    if isinstance(units, str) or not isinstance(units, Iterable):
        raise TypeError(f"units must be a sequence such as ('round', 'person'), got units={units!r}")
    listed = list(units)
    if not listed or len(set(map(str, listed))) < len(listed) or any(unit not in _PRIVATE for unit in listed):
        raise ValueError(f"units must be one or both of 'round' and 'person', got units={units!r}")
    if "person" in listed and not known:
        raise ValueError(
            f"units must be ('round',) where rounds say not whose they are, got units={units!r} for "
            f"{environment.name}: name the column of persons (person_column=, --person), or take a world that has some"
        )
    return listed


def _kinds(policies: Any, units: Sequence[str]) -> dict[str, type[Policy]]:
    from dpbandits.private_policy import PrivatePolicy

    if policies is not None and not isinstance(policies, Mapping):
        raise TypeError(f"policies must be a mapping from 'round' or 'person' to a policy, got {policies!r}")
    wrong = [unit for unit in policies or {} if unit not in _PRIVATE]
    if wrong:
        raise ValueError(f"policies must have the keys 'round' or 'person', got {wrong[0]!r}")
    found: dict[str, type[Policy]] = {}
    for unit in units:
        given = (policies or {}).get(unit, _PRIVATE[unit])
        kind = _class(given) if isinstance(given, str) else given
        if not (isinstance(kind, type) and issubclass(kind, PrivatePolicy)):
            raise ValueError(f"policies[{unit!r}] must be a private policy of dpbandits.policies, got {given!r}")
        found[unit] = kind
    return found


def _class(name: str) -> Any:
    return getattr(importlib.import_module("dpbandits.policies"), name, None)


def _shape(kind: type[Policy], environment: Environment) -> tuple[int, ...]:
    """The dimension; for standing arms that of a context, and how many arms."""
    if kind.takes == "arms":
        return (environment.dim,)
    if not hasattr(environment, "context_dim"):
        raise ValueError(
            f"policies must choose from changing arms in {environment.name}, which shows no contexts to arms that "
            f"stand (a world such as disjoint does), got {kind.__name__}"
        )
    standing = cast("Any", environment)
    return standing.context_dim, standing.n_arms


def _accepted(kind: type[Policy], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Without a link, for a policy that is linear; the bound on θ is that of all arms together, not of one."""
    from inspect import signature

    dropped = set() if "link" in signature(kind.__init__).parameters else {"link"}
    if kind.takes == "context":
        dropped.add("theta_bound")
    return {name: value for name, value in parameters.items() if name not in dropped}


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


def _known(value: float) -> float:
    return 0.0 if math.isnan(value) else value


def percent(share: float) -> str:
    """A share in whole percents, or a question mark where it is unknown."""
    return "?" if math.isnan(share) else f"{100 * share:.0f} %"


def _plain(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _plain(value) for key, value in node.items()}
    if isinstance(node, (list, tuple)):
        return [_plain(value) for value in node]
    return None if isinstance(node, float) and not math.isfinite(node) else node

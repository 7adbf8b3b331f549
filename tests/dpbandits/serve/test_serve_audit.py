"""Everything that one person does in a run differs, and both runs go through the service's own database.

The score is the exact log-likelihood ratio of all that was released. With a linear link a record is (x xᵀ, r·x),
whatever was released before; so two runs are the same Gaussian noise around two known streams of sums, and how far
apart these are, encoded, in standard deviations of the noise, is all that there is to know.
"""

from dataclasses import replace

import numpy as np
import pytest
import white_box
from again import rewinder
from lives import NORTH, ROUNDS, THEIRS, WORLDS, Lives
from serving import configured, drain

from accounting import audit
from dpbandits.serve.learner import Learner
from dpbandits.serve.lineage import begun
from dpbandits.serve.store import Choice, Store
from dpkit.states.registry import Registry

# A sound service is flagged, and a broken one missed, with probability at most this (its lower bound is far beyond).
CONFIDENCE, TRIALS, EPSILON, DELTA = 1 - 1e-9, 440, 8.0, 1e-2
SEEDED = "[simulation]\nseed = 21"


class Runs(Lives):
    """Runs of one service, one after the other, in each of which a person lives in one of the worlds."""

    def __init__(self, folder, monkeypatch, m):
        policy = (
            f'class = "OnePassPrivateGLM"\ndim = 2\nlink = "linear"\nhorizon = {ROUNDS}\nrounds_per_person = {m}\n'
            "first_batch = 2\ngrowth = 1.0\nclip = 1.0\ngradient_share = 0.9\nreward_range = [-1.0, 1.0]"
        )
        config = configured(folder, policy=policy, unit="person", epsilon=EPSILON, delta=DELTA, more=SEEDED)
        self.learner = Learner(config)
        self.policy, self.store = self.learner.policy, self.learner.store
        self.store.database.execute("PRAGMA synchronous = OFF")
        self.again = rewinder(self.policy)
        self.listen(monkeypatch)

    def play(self, world):
        store = self.store
        store._seen = 0, ""
        self.again()
        self.policy.persons = Registry(self.policy.rounds_per_person)
        due, theirs = {}, iter(WORLDS[world])
        with store.writing():  # a new database, and all that comes in
            for table in ("decisions", "rewards"):
                store.database.execute(f"DELETE FROM {table}")
            store._decisions = store._rewards = 0
            store._digest = begun(store.incarnation)
            self.learner._trail.first, self.learner._trail.digests = 0, [store._digest]
            store.note("forgotten", 0)
            for t in range(ROUNDS):
                mine = t in THEIRS
                arm, reward, delay = next(theirs) if mine else (NORTH, 0.5, 0)
                (id,) = store.decide([Choice(0, None, np.array(arm), "ann" if mine else f"other {t}")], 0.0, ROUNDS)
                due.setdefault(t + delay, []).append((id, reward))
                assert set(store.reward(due.pop(t, []), 0.0, None)) <= {"accepted"}
        drain(self.learner)
        assert self.policy.decisions == ROUNDS

    def encoded(self, world):
        """In standard deviations of the noise."""
        return self.factor() @ self.stream(world) / self.policy.sums.sums._law.std

    def farthest(self):
        """How far apart the encoded streams of two worlds are at most, and of which two."""
        places = {world: self.encoded(world) for world in WORLDS}
        pairs = [(one, other) for one in WORLDS for other in WORLDS if one < other]
        return max((float(np.linalg.norm(places[one] - places[other])), (one, other)) for one, other in pairs)

    def claim(self):
        return 1.0 / self.policy.sums.cost.noise_multiplier

    def lower_bound(self, one, other, trials=TRIALS):
        shift = self.encoded(one) - self.encoded(other)
        n = len(shift)
        decode = self.factor() @ np.linalg.inv(np.tril(np.ones((n, n))))

        def told(world, trials):
            self.outputs.clear()
            for _ in range(trials):
                self.play(world)
            return np.array(self.outputs).reshape(trials, -1)

        def score(outputs):
            return np.einsum("ij,njk,ik->n", decode, outputs.reshape(len(outputs), n, -1), shift)

        return white_box.lower_bound(
            told, one, other, trials=trials, delta=DELTA, confidence=CONFIDENCE, score=score,
        )  # fmt: skip


@pytest.mark.parametrize("m", [1, 3])
def test_no_two_worlds_of_a_person_are_farther_apart_than_the_price(tmp_path, monkeypatch, m):
    runs = Runs(tmp_path, monkeypatch, m)
    distance, _ = runs.farthest()
    assert 0.9 * runs.claim() < distance <= runs.claim()
    runs.learner.close()


def test_a_service_that_loses_track_of_who_came_is_caught(tmp_path, monkeypatch):
    decisions = Store.decisions

    def confused(self, after, most):
        found = decisions(self, after, most)
        return [(number, replace(one, person=f"{number}"), digest) for number, one, digest in found]

    monkeypatch.setattr(Store, "decisions", confused)
    runs = Runs(tmp_path, monkeypatch, 1)
    distance, _ = runs.farthest()
    assert distance > 1.3 * runs.claim()
    runs.learner.close()


@pytest.mark.slow
@pytest.mark.parametrize("m", [1, 3])
def test_a_person_shows_no_more_than_the_budget(tmp_path, monkeypatch, m):
    runs = Runs(tmp_path, monkeypatch, m)
    _, worst = runs.farthest()
    bound = runs.lower_bound(*worst)
    bound.check(EPSILON)
    print(f"lower bound {bound.epsilon:.3f} of {EPSILON}")
    assert bound.epsilon >= 0.5 * EPSILON
    runs.learner.close()


@pytest.mark.slow
def test_the_audit_finds_that_nobody_knows_who_came(tmp_path, monkeypatch):
    runs = Runs(tmp_path, monkeypatch, 1)
    monkeypatch.setattr(Registry, "_may", lambda self, mark, batch: True)
    _, worst = runs.farthest()
    with pytest.raises(audit.PrivacyViolation):
        runs.lower_bound(*worst).check(EPSILON)
    runs.learner.close()

"""The policies that price persons by a total, audited end to end: two runs that differ in all that one person does.

The score is the exact log-likelihood ratio. A release is a sum plus rounded or binomial noise of one scale, and noise
that wide is as good as Gaussian noise; so with the totals k_P and k_Q that the two worlds would have formed after the
same earlier releases, the ratio of a transcript y is Σ (‖y − k_Q‖² − ‖y − k_P‖²)/(2σ²). The world that was not
played is followed beside the one that was: it is given the same releases, so that it makes the same choices for others.
That is checked, too.
"""

from __future__ import annotations

import numpy as np
import pytest
import white_box
from again import rewinder

from accounting import Budget, Gaussian, calibrate
from dpbandits.policies import PersonPrivateGLM, ShufflePersonGLM
from dpkit.moments.people import People, PersonTotals

Kind = type[PersonPrivateGLM | ShufflePersonGLM]
each_kind = pytest.mark.parametrize("kind", [PersonPrivateGLM, ShufflePersonGLM])
BUDGET = Budget(8.0, 1e-2, unit="person")
# A sound mechanism is flagged, and a broken one missed, with probability at most this (its lower bound is far beyond).
CONFIDENCE = 1 - 1e-9
ROUNDS, EVERY = 6, 2
ARMS = np.array([[1.0, 0.0], [0.0, 1.0], [-0.6, 0.8]])

# what the person does in its rounds: the arm that is offered, and the reward, how many rounds late, or None for never
Deeds = list[tuple[list[float], float | None, int]]
EAST: Deeds = [([1.0, 0.0], 1.0, 0)] * 3
WEST: Deeds = [([-1.0, 0.0], 1.0, 0)] * 3
POOR: Deeds = [([1.0, 0.0], 0.0, 0)] * 3
HARDLY: Deeds = [([0.0, 1.0], 0.0, 3), ([-1.0, 0.0], 1.0, 1), ([-1.0, 0.0], None, 0)]


class World:
    """A policy with one set of deeds, whose releases can be dictated."""

    def __init__(self, kind: Kind, seed: int, base_rate: float | None) -> None:
        known = {"budget": BUDGET, "horizon": ROUNDS, "first_batch": EVERY, "growth": 1.02, "base_rate": base_rate}
        self.policy = kind(2, rng=np.random.default_rng(seed), **known)
        assert list(self.policy.schedule.ends) == [2, 4]
        self.rewind = rewinder(self.policy)
        self.summed = self.policy.sums._summed
        self.policy.sums._summed = self._summed

    def _summed(self, contributions, persons, longest):
        columns = list(contributions)
        self.totals.append(np.sum([some.sum(axis=1) for some in columns], axis=0))
        played = self.dictated is None
        self.outputs.append(self.summed(columns, persons, longest) if played else self.dictated[len(self.outputs)])
        return self.outputs[-1]

    def play(self, deeds: Deeds, coins: np.ndarray, dictated=None) -> tuple[np.ndarray, np.ndarray]:
        """Every second round is the person's; the totals and the outputs of all releases."""
        self.rewind()
        self.totals, self.outputs, self.dictated, self.shown = [], [], dictated, []
        self.policy.rng.bit_generator.state = np.random.PCG64(int(coins[0])).state
        late: dict[int, list] = {}
        for t in range(ROUNDS):
            mine = t % EVERY == 0
            arm, reward, delay = deeds[t // EVERY] if mine else (None, float(coins[t] % 2), 0)
            decision = self.policy.select([arm] if mine else ARMS, person="me" if mine else f"other {t}")
            if not mine:
                self.shown.append(decision.index)
            if reward is not None:
                late.setdefault(t + delay, []).append((decision, reward))
            for earlier, value in late.pop(t, []):
                self.policy.update(earlier, value)
        return np.array(self.totals), np.array(self.outputs)


def runs_of(kind: Kind, one: Deeds, other: Deeds, base_rate: float | None = 0.5):
    """Returns ``runs(deeds, trials)``, whose rows are the totals with ``one`` and ``other`` and the outputs; and σ."""
    played, beside = World(kind, 1, base_rate), World(kind, 2, base_rate)
    rng = np.random.default_rng(3)

    def runs(deeds: Deeds, trials: int) -> np.ndarray:
        found = []
        for _ in range(trials):
            coins = rng.integers(2**31, size=ROUNDS)
            totals, outputs = played.play(deeds, coins)
            others = beside.play(other if deeds is one else one, coins, dictated=outputs)[0]
            assert played.shown == beside.shown
            found.append((totals, others, outputs) if deeds is one else (others, totals, outputs))
        return np.array(found)

    return runs, played.policy.sums.noise


def shifts(kind: Kind, one: Deeds, other: Deeds, transcripts: int = 20, base_rate: float | None = 0.5) -> np.ndarray:
    """Of some transcripts, the squared shifts of all releases together over what the run's cost allows.

    If it is at most 1 for every transcript, the run costs at most what it says (fully adaptive Gaussian composition).
    """
    runs, σ = runs_of(kind, one, other, base_rate)
    P, Q, _ = np.moveaxis(np.concatenate([runs(one, transcripts // 2), runs(other, transcripts // 2)]), 1, 0)
    z = calibrate(Gaussian, BUDGET)
    return ((P - Q) ** 2).sum(axis=(1, 2)) / (σ / z) ** 2


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "trials"), [(PersonPrivateGLM, 306), pytest.param(ShufflePersonGLM, 792, marks=pytest.mark.slow)]
)
def test_one_person_shows_no_more_than_the_budget(kind, trials):
    """Opposite arms and the same rewards in all rounds."""
    runs, σ = runs_of(kind, EAST, WEST)

    def score(found: np.ndarray) -> np.ndarray:
        P, Q, y = np.moveaxis(found, 1, 0)
        return np.asarray((((y - Q) ** 2).sum(axis=(1, 2)) - ((y - P) ** 2).sum(axis=(1, 2))) / (2 * σ**2))

    bound = white_box.lower_bound(
        runs, EAST, WEST, trials=trials, delta=BUDGET.delta, confidence=CONFIDENCE, score=score,
        middle=0.0,
    )  # fmt: skip
    bound.check(BUDGET.epsilon)
    assert bound.epsilon >= 0.15 * BUDGET.epsilon  # and the audit is not blind


@each_kind
@pytest.mark.parametrize("other", [WEST, HARDLY], ids=["west", "hardly"])
def test_no_transcript_shows_more_than_was_paid(kind, other):
    """Also where the other one's rewards are late, or never come."""
    paid = shifts(kind, EAST, other)
    assert paid.max() <= 1.0
    if other is WEST:
        assert paid.min() >= 0.7  # nearly the worst pair


@each_kind
@pytest.mark.parametrize("other", [WEST, POOR, HARDLY], ids=["west", "poor", "hardly"])
def test_no_transcript_shows_more_than_was_paid_where_the_level_is_learned(kind, other):
    paid = shifts(kind, EAST, other, 10, base_rate=None)
    assert paid.max() <= 1.0
    if other is POOR:
        assert paid.min() >= 0.7


def test_a_version_that_does_not_pay_for_the_level_is_caught(monkeypatch):
    numbers = PersonTotals._with_numbers
    monkeypatch.setattr(
        PersonTotals, "_with_numbers", lambda self, those, people, scales, less, beside: numbers(
            self, those, people, 3.0 * scales, 1.0, beside
        ),
    )  # fmt: skip
    assert shifts(PersonPrivateGLM, EAST, POOR, 4, base_rate=None).min() > 1.1


@each_kind
def test_a_version_that_forgets_what_was_paid_is_caught(monkeypatch, kind):
    def pay(self, people: People, share: float) -> np.ndarray:
        return np.ones(len(people))

    monkeypatch.setattr(PersonTotals, "pay", pay)
    assert shifts(kind, EAST, WEST, 4).min() > 1.4


def test_a_version_that_counts_a_person_twice_is_caught(monkeypatch):
    once = People.groups

    def groups(self):
        for _ in range(2):
            yield from once(self)

    monkeypatch.setattr(People, "groups", groups)
    assert shifts(PersonPrivateGLM, EAST, WEST, 4).min() > 2.8
    with pytest.raises(ValueError, match="users must be the number of users in the message"):
        shifts(ShufflePersonGLM, EAST, WEST, 4)  # the shuffler counts who sent

"""PrivateArms, audited without chance: exact likelihood ratios over all ways in which a short run can go.

What is released is laid down beforehand, far above or far below what sums can be, in every pattern. Then all that is
seen of a run is known, and how likely it is follows from the sums that were to be released: where a release is beyond
two sums, the log-likelihood ratio of Laplace noise is their distance over its scale. The greatest sum of these over a
run's releases, over all patterns and all pairs of neighbouring worlds, is the ε of the policy, up to the few outputs
between the sums, which say less. Choices depend on the releases; where two worlds lead to different ones, or to a
release at different times, one glance tells them apart, and ε is infinite.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from accounting import Budget
from dpbandits.policies import PrivateArms
from dpkit.moments import arm_batches
from dpkit.moments.arm_batches import ArmBatches, least_noise

EPSILON, ROUNDS, NEVER = 1.5, 8, 99
STEPS = arm_batches.steps_apart("replace")
FAR = 50 * STEPS
# of a round: its reward, and after how many further rounds it comes
TOLD = [(0.0, 0), (1.0, 0), (0.0, 3), (1.0, 1), (1.0, 3), (1.0, NEVER)]
HIGH, LOW, LATE, SILENT = [(1.0, 0)] * ROUNDS, [(0.0, 0)] * ROUNDS, [(1.0, 3)] * ROUNDS, [(1.0, NEVER)] * ROUNDS


class Runs:
    """Runs of one policy, of which the releases are laid down and the rewards a world's."""

    def __init__(self, monkeypatch, kind=PrivateArms, *, people=None, m=1, changes=False, spoil=lambda policy: None):
        self.kind, self.people, self.changes, self.spoil = kind, people, changes, spoil
        unit = "round" if people is None else "person"
        self.given = {"budget": Budget(EPSILON, 0.0, unit=unit)}
        if people is not None:
            self.given["rounds_per_person"] = m
        found = least_noise(self.given["budget"], m)  # once, and not for each run
        monkeypatch.setattr(arm_batches, "least_noise", lambda budget, records=1: found)
        monkeypatch.setattr(arm_batches, "rounded_laplace", self._scaled)
        monkeypatch.setattr(arm_batches, "from_lattice", self._laid_down)

    def _scaled(self, scale, rng):
        self.scales.append(scale)
        return np.zeros((), np.int64)

    def _laid_down(self, total, step):
        self.totals.append(int(total))
        self.seen.append("release")
        return self.pattern[len(self.totals) - 1] * FAR * step

    def play(self, world, pattern):
        """What is seen but for the releases, the sums behind these, and the scales of their noise."""
        self.pattern, self.seen, self.totals, self.scales = pattern, [], [], []
        policy = self.kind(
            ["a", "b"], horizon=60, first_batch=2, growth=1.0, rng=np.random.default_rng(3), **self.given
        )
        self.spoil(policy)
        due: dict[int, list[tuple[int, float]]] = {}
        for t, (reward, late) in enumerate(world):
            if self.changes and t == 3:
                policy.add_arm("c")
            if self.changes and t == 5:
                policy.retire_arm("a")
            self.seen.append(policy.select(person=None if self.people is None else self.people[t]).index)
            due.setdefault(t + late, []).append((t, reward))
            for key, value in due.pop(t, []):
                policy.update(key, value)
        policy.settle()
        return self.seen, np.array(self.totals), np.array(self.scales)

    def epsilon(self, worlds, patterns):
        """The greatest log-likelihood ratio between any two of the worlds, and how far one sum moves."""
        greatest = farthest = 0.0
        for pattern in patterns:
            runs = [self.play(world, pattern) for world in worlds]
            for (seen, sums, scales), (others, other_sums, other_scales) in itertools.combinations(runs, 2):
                if seen != others or scales.tolist() != other_scales.tolist():
                    return math.inf, math.inf
                apart = np.abs(sums - other_sums)
                # both signs of each release are among the patterns, and the sum over them is the largest there is
                greatest = max(greatest, float((apart / scales).sum()))
                farthest = max(farthest, float(apart.max(initial=0)))
        return greatest, farthest / STEPS


PATTERNS = list(itertools.product((-1, 1), repeat=5))[::5]


def neighbours(rest, place):
    """Worlds that differ in one round."""
    return [[*rest[:place], told, *rest[place + 1 :]] for told in TOLD]


@pytest.mark.parametrize("changes", [False, True])
def test_a_round_shows_no_more_than_epsilon(changes, monkeypatch):
    """Late, missing and moved rewards; also where arms come and go."""
    runs, rng, worst = Runs(monkeypatch, changes=changes), np.random.default_rng(1), 0.0
    for place in (0, 4):
        rest = [TOLD[i] for i in rng.integers(len(TOLD), size=ROUNDS)]
        found, farthest = runs.epsilon(neighbours(rest, place), PATTERNS)
        assert found <= EPSILON * (1 + 1e-9)
        assert farthest <= 1.0
        worst = max(worst, found)
    assert worst > 0.999 * EPSILON  # it is reached


def halved(policy):
    policy.sums._scale /= 2


class CountsRewards(PrivateArms):
    """A broken one: its batches end after so many rewards, in place of decisions."""

    def decided(self, pending):
        pass

    def learn(self, pending, reward):
        super().learn(pending, reward)
        self.sums.turns.decided(self.sums.turns.decisions, pending.index)


class LearnsTwice(PrivateArms):
    """A broken one: a late reward enters the batch that is open, and that of its decision's arm after it."""

    def learn(self, pending, reward):
        super().learn(pending, reward)
        if pending.round < self.decisions - 1:
            self.again = (*getattr(self, "again", ()), (pending.index, reward))

    def close_batch(self):
        found = super().close_batch()
        for arm, reward in getattr(self, "again", ()):
            self.sums.add(arm, reward)
        self.again = ()
        return found


@pytest.mark.parametrize(
    ("kind", "spoil"),
    [(PrivateArms, halved), (CountsRewards, None), (LearnsTwice, None)],
    ids=["half", "count", "twice"],
)
def test_broken_ones_are_caught(kind, spoil, monkeypatch):
    runs = Runs(monkeypatch, kind, spoil=spoil or (lambda policy: None))
    found, _ = runs.epsilon(neighbours([TOLD[1]] * ROUNDS, 0), PATTERNS[:4])
    assert found > 1.45 * EPSILON


# ---------------------------------------------------------------------------------------------------------- persons

PEOPLE = [0, 1, 0, 0, 2, 0, 1, 0]
MINE = [t for t, person in enumerate(PEOPLE) if person == 0]


def lives(count, seed=2):
    """Worlds that differ in everything that one person does."""
    rng, rest, worlds = np.random.default_rng(seed), [TOLD[1], TOLD[0]] * (ROUNDS // 2), []
    own = [HIGH, LOW, LATE, SILENT, *([TOLD[i] for i in rng.integers(len(TOLD), size=ROUNDS)] for _ in range(count))]
    for mine in own:
        worlds.append([mine[t] if PEOPLE[t] == 0 else rest[t] for t in range(ROUNDS)])
    return worlds


@pytest.mark.parametrize("m", [1, 2, 3])
def test_a_person_shows_no_more_than_epsilon(m, monkeypatch):
    """With m times the noise, and no more than one record in a batch, by which one sum moves by the range at most."""
    runs = Runs(monkeypatch, people=PEOPLE, m=m)
    found, farthest = runs.epsilon(lives(6), PATTERNS)
    assert 0.999 * EPSILON < found <= EPSILON * (1 + 1e-9)
    assert farthest == 1.0


def uncapped(policy):
    policy.persons.most = 10**6


def several_in_a_batch(policy):
    policy.sums.turns.may_ask = policy.sums.turns.may_tell = lambda arm, person: True


def test_a_person_without_a_cap_or_twice_in_a_batch_is_caught(monkeypatch):
    found, _ = Runs(monkeypatch, people=PEOPLE, m=2, spoil=uncapped).epsilon(lives(0)[:2], PATTERNS[:4])
    assert found > 1.4 * EPSILON
    _, farthest = Runs(monkeypatch, people=PEOPLE, m=3, spoil=several_in_a_batch).epsilon(lives(0), PATTERNS)
    assert farthest == 2.0


def test_what_is_dropped_of_a_person_does_not_depend_on_others(monkeypatch):
    """Whatever others do, and whether their rewards come: the same records of a person are in the same sums."""
    runs, learned = Runs(monkeypatch, people=PEOPLE, m=2), []

    def note(policy):
        add = policy.learn
        found = []
        learned.append(found)
        policy.learn = lambda pending, reward: (found.append((pending.round, policy.releases)), add(pending, reward))

    runs.spoil = note
    for others in (HIGH, LOW, LATE, SILENT):
        runs.play([LATE[t] if PEOPLE[t] == 0 else others[t] for t in range(ROUNDS)], PATTERNS[1])
    mine = [[(t, batch) for t, batch in found if t in MINE] for found in learned]
    assert mine[0] == mine[1] == mine[2] == mine[3]
    assert 1 <= len(mine[0]) <= 2


def test_two_late_records_of_a_person_do_not_meet_in_a_batch():
    """The second is dropped, where noise is made for sums that one record of a person is in."""
    policy = PrivateArms(
        2,
        budget=Budget(2.0, 0.0, unit="person"),
        rounds_per_person=3,
        horizon=60,
        first_batch=2,
        growth=1.0,
        rng=np.random.default_rng(0),
    )
    own: dict[int, list[int]] = {0: [], 1: []}
    for t in range(12):
        decision = policy.select(person="ann" if t % 2 else f"p{t}")
        if t % 2 and len(policy.waiting[decision.id].arm):
            own[decision.index].append(decision.id)
    assert max(map(len, own.values())) >= 2
    for late in own.values():
        for key in late:
            policy.update(key, 1.0)
    assert set(policy.sums.sums.tolist()) <= {0, STEPS // 2}


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_persons_pay_by_the_law_with_the_least_noise(delta):
    from accounting import Gaussian, Laplace, epsilon

    kinds = []
    for m in (1, 2, 5, 20):
        sums = ArmBatches(
            2, 0.0, 1.0, budget=Budget(1.0, delta, unit="person"), records=m, rng=np.random.default_rng(0)
        )
        assert epsilon(sums.cost, delta) == pytest.approx(1.0, rel=1e-6)
        assert sums.cost == m * sums.law
        kinds.append(type(sums.law))
        if delta == 0.0:
            assert sums.noise == pytest.approx(math.sqrt(2) * m)
        else:
            assert sums.noise <= math.sqrt(2) * m * (1 + 1e-9)
    assert kinds == ([Laplace] * 4 if delta == 0.0 else [Laplace] * 3 + [Gaussian])

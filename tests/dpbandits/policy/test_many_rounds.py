"""Many requests at once: the choices, the books, the journal and the releases of one after the other."""

from __future__ import annotations

import threading
import warnings

import numpy as np
import pytest
from chi_square import fits
from private_policies import OF_PERSONS, SMALL, small
from rounds_of_many import arm_sets, requests, seeded, shares_of

from accounting import Budget
from dpbandits import Experiment, Policy, policies
from dpbandits.durability import state
from dpbandits.experiment.policy import ExperimentPolicy
from dpbandits.policies import OnePassPrivateGLM, PrivateArms, Uniform
from dpbandits.private.parts.records import SecantRecord
from dpkit.models.links import get_link

ROUNDS = 30


def books(policy: Policy) -> str:
    """Everything that a state holds, as text."""
    tree = state.tree_of(policy) | {"open": policy.waiting.packed(policy.arm_size, policy.notes)}
    return repr({name: value for name, value in tree.items() if name not in ("id", "journal")})


def both(make, parts=(1, 7, 3, 19)) -> tuple[list, list, Policy, Policy]:
    """The same rounds one by one and in parts, some with their rewards between two parts."""
    one, many = make(), make()
    asked, found, together = requests(one, ROUNDS), [], []
    coins = seeded(1).random(ROUNDS)
    at = 0
    for number, part in enumerate(parts):
        mine = [one.select(arms) for arms in asked[at : at + part]]
        theirs = many.select_many(asked[at : at + part])
        found, together, at = found + mine, together + list(theirs), at + part
        # of the second part and the third one in another order than they were decided in, and together
        for some in {0: [[0]], 2: [[9, 8], [5, 10, 3]]}.get(number, []):
            for i in some:
                one.update(found[i], float(coins[i]))
            many.update_many([together[i] for i in some], coins[some])
    return found, together, one, many


def told(decision) -> tuple:
    return decision.id, decision.index, decision.name, decision.arm.tolist()


def _slow(name: str):
    """Shuffled sums of a batch take seconds."""
    return pytest.param(name, marks=pytest.mark.slow) if name.startswith("Shuffle") and name != "ShuffleArms" else name


@pytest.mark.parametrize("name", [*map(_slow, sorted(set(SMALL) - set(OF_PERSONS)))])
def test_private_policies_choose_and_keep_what_they_do_one_by_one(name):
    """Bit by bit with one seed: draws, noise, releases, open decisions, sums."""
    found, together, one, many = both(lambda: small(name, rng=seeded(3), label="run", reward_range=(0.0, 1.0)))
    assert [told(a) for a in together] == [told(b) for b in found]
    assert many.releases == one.releases
    assert many.releases > 0 or name == "LDPArms"
    assert books(many) == books(one)
    # the probability of each is that of its own release
    assert [a.probability for a in together[:8]] == pytest.approx([b.probability for b in found[:8]], rel=1e-9)


@pytest.mark.parametrize("name", ["OnePassPrivateGLM", "PrivateArms", "StandingPrivateGLM"])
def test_the_release_of_a_range_of_rewards_is_due_inside_a_batch(name):
    more = {"horizon": 6000, "reward_range": "learned", "label": "run", "first_batch": 300}
    one, many = (small(name, rng=seeded(3), **more) for _ in range(2))
    asked, rewards = requests(one, 900), seeded(2).random(900)
    found = [one.select(arms) for arms in asked[:300]]
    for decision, reward in zip(found, rewards, strict=False):
        one.update(decision, float(reward))
    found += [one.select(arms) for arms in asked[300:]]
    together = [*many.select_many(asked[:300])]
    many.update_many(together, rewards[:300])
    together += many.select_many(asked[300:])
    assert [told(a) for a in together] == [told(b) for b in found]
    assert many.learned_range == one.learned_range
    assert many.learned_range is not None
    assert books(many) == books(one)


REFERENCES = [
    *((name, {}) for name in ("EpsilonGreedy", "GLBOMD", "LaplaceThompson", "LinearThompson", "OFUL", "Uniform")),
    *((name, {"exploration": "inverse_gap"}) for name in ("GLBOMD", "OFUL")),
    *((name, {"horizon": 40}) for name in ("HvtUCB", "MENU")),
]


@pytest.mark.parametrize(("name", "more"), REFERENCES)
def test_reference_policies_choose_what_they_do_one_by_one(name, more):
    found, together, one, many = both(lambda: getattr(policies, name)(2, **more, rng=seeded(3), reward_range=(0, 1)))
    assert [told(a) for a in together] == [told(b) for b in found]
    assert books(many) == books(one)


# ------------------------------------------------------------------------------------------------ laws and shapes


def test_the_law_of_many_choices_is_that_of_each():
    """χ² against the probabilities of single choices, with the secure source; false alarms once in 10¹⁰."""
    policy = OnePassPrivateGLM(2, budget=Budget(1.0, 1e-5), horizon=10**5, first_batch=150, growth=1000.0)
    X = arm_sets(1, 5, 2)
    policy.update_many(policy.select_many(np.tile(X, (150, 1, 1))), seeded(1).random(150) < 0.5)
    policy.settle()
    assert policy.releases == 1
    chances = shares_of(policy.released(), X[0])
    asked = np.tile(X, (20_000, 1, 1))
    for found in (policy.select_many(asked[:10_000]).indices, policy.released().choose_many(asked).indices):
        assert fits(found, range(5), chances)
        assert not fits(found, range(5), chances[::-1])
    arms = PrivateArms(3, budget=Budget(1.0, 0.0), horizon=10**5, first_batch=10**4)
    assert fits(arms.select_many(9000).indices, range(3), np.full(3, 1 / 3))


def test_draws_of_two_requests_are_independent():
    """Of a thousand pairs of requests with one law: 2 × 2 cells of equal probability."""
    policy = OnePassPrivateGLM(2, budget=Budget(4.0, 1e-5), horizon=10**5, first_batch=10**4)
    pairs = policy.select_many(np.tile(np.eye(2), (8000, 1, 1))).indices.reshape(-1, 2)
    assert fits(pairs @ [2, 1], range(4), np.full(4, 0.25))


@pytest.mark.parametrize("name", ["OnePassPrivateGLM", "DPLinUCB", "LDPGLM"])
@pytest.mark.parametrize("exploration", [1.0, "inverse_gap"])
def test_requests_may_offer_different_numbers_of_arms(name, exploration):
    more = {"exploration": exploration} if name == "OnePassPrivateGLM" else {}
    one, many = (small(name, rng=seeded(3), label="run", **more) for _ in range(2))
    asked = [arm_sets(1, K, 2, seed=K)[0] for K in (1, 4, 2, 2, 7, 3, 1, 5, 2, 6)]
    found = [one.select(arms) for arms in asked]
    assert [told(a) for a in many.select_many(asked)] == [told(b) for b in found]
    assert books(many) == books(one)


def test_nothing_is_chosen_for_nobody():
    policy = small("OnePassPrivateGLM")
    for none in ([], np.zeros((0, 3, 2)), 0 * [np.eye(2)]):
        decisions = policy.select_many(none)
        assert (len(decisions), list(decisions), decisions.indices.tolist(), decisions.ids) == (0, [], [], [])
        policy.update_many(decisions, [])
        assert len(policy.released().choose_many(none)) == 0
    assert policy.decisions == 0


LONG = np.tile(np.eye(2), (5, 1, 1))
WRONG = {
    "two dimensions": (np.eye(2), r"arms\[0\]: arms must have shape \(K, 2\)"),
    "three features": (np.ones((4, 2, 3)) / 2, r"arms\[0\]: arms must have shape \(K, 2\)"),
    "a set that is empty": ([np.eye(2), np.zeros((0, 2))], r"arms\[1\]: arms must have shape"),
    "no arms at all": (np.zeros((3, 0, 2)), r"arms\[0\]: arms must have shape"),
    "one too long": (np.concatenate([LONG, 2 * LONG]), r"arms\[5\]: arms must have norm at most 1, got norm 2"),
    "one not finite": (np.where(np.arange(5)[:, None, None] == 3, np.nan, LONG), r"arms\[3\]: arms must be finite"),
    "a text": ("ab", "arms must be those of many requests"),
    "nothing": (None, "arms must be those of many requests"),
    "a number": (7, r"arms must be given"),
    "too many": (np.tile(np.eye(2), (41, 1, 1)), "at most 40 requests, what is left of horizon=40, got 41"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_refused_leaves_everything_as_it_was(what):
    asked, words = WRONG[what]
    policy = small("OnePassPrivateGLM", rng=seeded(), label="run")
    before = books(policy)
    with pytest.raises(ValueError, match=words):
        policy.select_many(asked)
    assert books(policy) == before


@pytest.mark.parametrize(
    ("wrong", "words"),
    [(2.0, r"arms\[3\]: context must have norm at most 1, got norm 2"), (np.nan, r"arms\[3\]: context must be finite")],
)
def test_of_many_contexts_one_that_is_refused_is_named(wrong, words):
    policy = small("DisjointPrivateGLM", rng=seeded(), label="run")
    asked = np.tile([0.6, -0.8], (5, 1))
    asked[3] = wrong * np.array([1.0, 0.0])
    before = books(policy)
    with pytest.raises(ValueError, match=words):
        policy.select_many(asked)
    with pytest.raises(ValueError, match=r"arms\[0\]: context must have shape \(2,\)"):
        policy.select_many(np.ones((5, 3)))
    assert books(policy) == before


def test_rewards_that_are_refused_are_all_refused():
    policy = small("OnePassPrivateGLM", rng=seeded(), label="run")
    made = policy.select_many(LONG[:4])
    before = books(policy)
    closed = small("OnePassPrivateGLM").select_many(LONG[:1])
    for decisions, rewards, words in [
        (made, [1.0, 1.0], "rewards must be as many as decisions, 4"),
        (made, [1.0, 1.0, 0.5, 7.0], r"rewards\[3\]: reward must be"),
        (made, [1.0, np.nan, 0.5, 0.0], r"rewards\[1\]: reward must be"),
        ([0, 1, 1], [0.0, 0.0, 0.0], "decisions must be given once each"),
        ([0, 9], [0.0, 0.0], r"decisions\[1\]: decision must be one whose reward is still open"),
        (closed, [0.0], "decisions must come from this policy"),
    ]:
        with pytest.raises(ValueError, match=words):
            policy.update_many(decisions, rewards)
        assert books(policy) == before
    policy.update_many(made, [1.0, None, 0.5, 0.0])
    assert policy.open_decisions == []


@pytest.mark.parametrize("metrics", [None, {"bought": (0.0, 1.0), "spent": (0.0, 9.0)}])
def test_of_many_values_of_an_experiment_none_is_learned_where_one_is_refused(metrics):
    test = Experiment(["a", "b"], budget=Budget(1.0, 0.0), horizon=900, metrics=metrics, rng=seeded())
    policy = test.policy

    def value(x):
        return x if metrics is None else {"bought": x}

    late = test.assign()
    while not policy.releases:
        test.assign()
        policy.settle()
    made = [test.assign() for _ in range(3)]
    before = books(policy)
    for decisions, values, words in [
        (made, [value(1.0), value(0.5), value(7.0)], r"rewards\[2\]: (value|bought) must be a finite number"),
        ([*made, late], [value(1.0), None, None, value("x")], r"rewards\[3\]: (value|bought) must be"),
        (made, [value(1.0), None, {"other": 1.0}], r"rewards\[2\]: value must be a mapping"),
        ([made[0], 880], [value(1.0), value(1.0)], r"rewards\[1\]: decision must be one whose reward is still open"),
        (made, [value(1.0)], "rewards must be as many as decisions, 3"),
    ]:
        with pytest.raises(ValueError, match=words):
            policy.update_many(decisions, values)
        assert books(policy) == before
    # what is of a batch that is closed counts for nothing
    policy.update_many([late, *made], [value(1.0), value(1.0), None, value(0.0)])
    assert not {late.id, *(one.id for one in made)} & set(policy.open_decisions)


def test_norms_that_pass_one_by_rounding_are_scaled_as_one_by_one():
    X = arm_sets(60, 4, 7)
    long = [i for i in range(60) if (np.vecdot(X[i], X[i]) > 1.0).any()] if hasattr(np, "vecdot") else [0]
    one, many = (Uniform(7, rng=seeded(1)) for _ in range(2))
    found = many.select_many(X)
    assert 0 < len(long) < 60 or not hasattr(np, "vecdot")
    assert [told(a) for a in found] == [told(one.select(arms)) for arms in X]
    assert all(not a.arm.flags.writeable for a in found)


# ------------------------------------------------------------------------------------------------ persons and caps


@pytest.mark.parametrize("name", ["OnePassPrivateGLM", "PrivateArms", _slow("ShuffleOnePassGLM"), "PersonPrivateGLM"])
def test_persons_teach_what_they_do_one_by_one(name):
    """Three persons in one batch of requests, who come back in later ones: capped alike."""
    budget = Budget(4.0, 1e-5, unit="person")
    kinds = [small(name, rng=seeded(3), label="run", budget=budget) for _ in range(2)]
    if name == "PersonPrivateGLM":
        sizes = {"horizon": 40, "first_batch": 4, "rng": None, "label": "run"}
        kinds = [policies.PersonPrivateGLM(2, budget=budget, **sizes | {"rng": seeded(3)}) for _ in range(2)]
    one, many = kinds
    for policy in kinds:
        policy.persons._salt = 32 * "0"
    asked, who = requests(one, 12), ["ann", "bob", "ann", "eve", "eve", "bob", "ann", "dan", "bob", "fay", "dan", "gus"]
    for _ in range(2):
        mine = [one.select(arms, person) for arms, person in zip(asked, who, strict=True)]
        theirs = many.select_many(asked, who)
        for decision in mine:
            one.update(decision, 1.0)
        many.update_many(theirs, np.ones(12))
        assert [told(a) for a in theirs] == [told(b) for b in mine]
        assert books(many) == books(one)
    before = books(many)
    for persons, words in [
        (None, "person must be given"),
        (who[:3], "persons must be one for each of 12"),
        ([*who[:11], 7], "persons must be of one type"),
        ([*who[:11], 1.5], r"persons\[11\]: person must be an id"),
        (list(range(12)), "person must be of type str"),
    ]:
        with pytest.raises(ValueError, match=words):
            many.select_many(asked, persons)
        assert books(many) == before


# ------------------------------------------------------------------------------------------- crashes and threads


def durable(path, **more):
    return OnePassPrivateGLM(
        2, budget=Budget(4.0, 1e-5), horizon=200, first_batch=10, checkpoint=path, rng=seeded(3), label="run", **more
    )


def again(path):
    return Policy.load(path, unattended=True)


@pytest.mark.parametrize("cut", [0, 1, 3, 40])
def test_a_crash_between_the_halves_loses_nothing_that_was_acknowledged(tmp_path, cut):
    """Of the last record some bytes are missing, as after a crash in the middle of the write."""
    policy = durable(tmp_path / "run.state")
    X = arm_sets(25, 3, 2)
    made = policy.select_many(X)
    policy.update_many(made[:20], np.linspace(0, 1, 20))
    said, waiting, sums = policy.released().to_json(), policy.open_decisions, repr(policy.kept())
    (journal,) = (path for path in tmp_path.iterdir() if path.suffix == ".journal")
    whole = journal.read_bytes()
    policy.select_many(X[:4])  # nobody is told of these, as the program ends here
    later = journal.read_bytes()
    policy.run.release_hold()
    journal.write_bytes(later[: len(later) - cut] if cut else whole)
    found = again(tmp_path / "run.state")
    assert found.released().to_json() == said
    assert repr(found.kept()) == sums
    assert found.open_decisions[: len(waiting)] == waiting
    assert 0 <= found.decisions - 25 <= 4
    found.update_many(found.open_decisions, np.ones(len(found.open_decisions)))
    assert found.select(X[0]).id == found.decisions - 1


@pytest.mark.parametrize("name", ["OnePassPrivateGLM", "PrivateArms", "JointDPGLM", "SlatePrivateGLM"])
def test_what_came_together_comes_back_from_the_journal(tmp_path, name):
    """More than one record holds, and with rewards that never come."""

    def known(policy):
        return repr((policy.decisions, policy.waiting.packed(policy.arm_size, policy.notes), policy.kept()))

    policy = small(name, horizon=4000, first_batch=3000, checkpoint=tmp_path / "run.state", rng=seeded(3), label="run")
    made = policy.select_many(requests(policy, 1500))
    policy.update_many(made[:1300], [None if i % 7 == 0 else float(i % 2) for i in range(1300)])
    policy.update_many(made[1300:1301], [1.0])
    policy.run.release_hold()
    (journal,) = (path for path in tmp_path.iterdir() if path.suffix == ".journal")
    if name != "SlatePrivateGLM":  # whose slates are shown one by one
        assert len(journal.read_bytes().splitlines()) == 1 + 2 + 2 + 1
    found = again(tmp_path / "run.state")
    assert known(found) == known(policy)
    found.update_many(found.open_decisions, np.ones(199))
    assert found.open_decisions == []


def test_there_is_one_write_for_a_batch_and_one_for_its_rewards(tmp_path, monkeypatch):
    policy = durable(tmp_path / "run.state")
    writes, syncs = [], []
    journal = policy.durable.journal
    append, sync = journal._append, journal.sync
    monkeypatch.setattr(journal, "_append", lambda records: (writes.append(len(records)), append(records)))
    monkeypatch.setattr(journal, "sync", lambda: (syncs.append(1), sync()))
    made = policy.select_many(arm_sets(8, 3, 2))
    assert (writes, syncs) == ([1], [])
    policy.update_many(made, np.ones(8))
    assert (writes, syncs) == ([1, 1], [1])


def test_a_full_disk_refuses_decisions_and_rewards_whole(tmp_path, monkeypatch):
    policy = durable(tmp_path / "run.state")
    made = policy.select_many(arm_sets(3, 3, 2))
    before = books(policy).partition("'generator'")[0]

    def full(records):
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(policy.durable.journal, "_append", full)
        for job in (lambda: policy.select_many(arm_sets(3, 3, 2)), lambda: policy.update_many(made, np.ones(3))):
            with pytest.raises(OSError, match="No space left"):
                job()
            assert books(policy).partition("'generator'")[0] == before
    policy.update_many(made, np.ones(3))


@pytest.mark.parametrize("name", ["OnePassPrivateGLM", "PrivateArms", "in persons"])
def test_an_interrupt_between_the_halves_stops_the_run(tmp_path, name, monkeypatch):
    """Decisions are in the journal and not yet counted, or the reverse: whoever goes on loads the file."""
    from dpkit.states import RunStopped

    path, known = tmp_path / "run.state", name != "in persons"
    persons = None if known else list("abcdef")
    more = {} if known else {"budget": Budget(4.0, 1e-5, unit="person")}
    policy = small(name if known else "PrivateArms", checkpoint=path, rng=seeded(3), first_batch=10, **more)
    asked = requests(policy, 6)
    policy.select(asked[0], "z" if persons else None)

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if known:
            patch.setattr(type(policy.waiting), "admit", interrupt)
        else:
            patch.setattr(policy.durable.journal, "_append", interrupt)
        with pytest.raises(KeyboardInterrupt):
            policy.select_many(asked, persons)
    with pytest.raises(RunStopped, match="interrupted while it decided"):
        policy.select_many(asked, persons)
    policy.run.release_hold()
    found = again(path)
    assert found.decisions == (7 if known else 1)
    found.update_many(found.open_decisions, np.ones(found.decisions))
    assert len(found.select_many(asked, persons)) == 6


def test_threads_share_a_policy():
    policy = OnePassPrivateGLM(2, budget=Budget(4.0, 1e-5), horizon=10**4, first_batch=37)
    made, X = [], arm_sets(50, 3, 2)

    def work():
        for _ in range(10):
            decisions = policy.select_many(X)
            policy.update_many(decisions, np.ones(50))
            made.extend(decisions.ids)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == list(range(2000))
    assert (policy.decisions, policy.open_decisions) == (2000, [])


def test_a_state_keeps_decisions_that_were_made_together(tmp_path):
    policy = small("OnePassPrivateGLM", rng=seeded(3))
    made = policy.select_many(arm_sets(9, 3, 2))
    policy.update_many(made[:2], [1.0, 0.0])
    policy.save(tmp_path / "policy.state")
    found = again(tmp_path / "policy.state")
    assert found.open_decisions == policy.open_decisions == list(range(2, 9))
    for one in (policy, found):
        one.update_many(made[2:], np.linspace(0, 1, 7))
    assert books(found) == books(policy)


def test_decisions_expire_as_one_by_one():
    one, many = (Uniform(2, expire_after=4, rng=seeded()) for _ in range(2))
    for arms in LONG:
        one.select(arms)
    many.select_many(LONG)
    assert many.open_decisions == one.open_decisions == [1, 2, 3, 4]


def test_the_log_has_a_row_for_each(tmp_path):
    paths = [tmp_path / "one.csv", tmp_path / "many.csv"]
    one, many = (
        small("OnePassPrivateGLM", exploration="inverse_gap", decision_log=path, rng=seeded(3)) for path in paths
    )
    X = arm_sets(9, 3, 2)
    for arms in X:
        one.update(one.select(arms), 1.0)
    for part in (X[:4], X[4:8], X[8:]):
        many.update_many(many.select_many(part), np.ones(len(part)))
    for policy in (one, many):
        policy.decision_log.flush()
    assert paths[1].read_text() == paths[0].read_text()


# --------------------------------------------------------------------------------- what has a select of its own


def test_an_experiment_assigns_many_once_each():
    metrics = {"value": (0.0, 1.0)}
    plan = {"alpha": 0.05, "assignment": "adaptive", "baseline": "a", "metrics": metrics, "missing": {"value": 0.5}}
    rest = {"wait": 0, "stop_when": None, "worthwhile": 0.01}
    budget = Budget(2.0, 0.0, unit="person")
    policy = ExperimentPolicy(["a", "b"], budget=budget, horizon=200, rng=seeded(), **plan, **rest)
    made = policy.select_many(6, ["ann", "bob", "ann", "eve", "bob", "dan"])
    assert made.ids == [0, 1, 0, 2, 1, 3]
    assert [one.name for one in made] == [policy.arms[index] for index in made.indices]
    policy.update_many([0, 1, 2, 3], [1.0, 0.0, 1.0, 1.0])
    assert policy.open_decisions == []


def test_a_select_of_ones_own_is_asked_every_time():
    class Counted(Uniform):
        asked = 0

        def select(self, arms=None, person=None):
            self.asked += 1
            return super().select(arms, person)

    policy = Counted(2, rng=seeded())
    assert policy.select_many(LONG)[4].probability == 0.5
    assert policy.asked == 5


@pytest.mark.parametrize("name", ["StandingPrivateGLM", "PrivateArms"])
def test_steps_of_ones_own_are_taken_for_every_round(name):
    kind, asked = getattr(policies, name), []

    class Own(kind):
        def decided(self, pending):
            asked.append("decided")
            super().decided(pending)

        def note(self, arm, index):
            asked.append("note")
            return super().note(arm, index)

        def learn(self, pending, reward):
            asked.append("learn")
            super().learn(pending, reward)

    arms = {"dim": 2, "arms": np.eye(2)} if name == "StandingPrivateGLM" else {"arms": 2}
    policy = Own(**arms, budget=Budget(1.0, 1e-5), horizon=1000, first_batch=100)
    policy.update_many(policy.select_many(5), np.ones(5))
    assert asked.count("decided") == asked.count("learn") == 5
    assert asked.count("note") == (5 if policy.notes else 0)


@pytest.mark.parametrize("name", ["StandingPrivateGLM", "PrivateArms"])
def test_also_those_of_a_class_that_is_mixed_in(name):
    asked = []

    class Noted:
        def learn(self, pending, reward):
            asked.append(pending.round)
            super().learn(pending, reward)

    class Mixed(Noted, getattr(policies, name)):
        pass

    arms = {"dim": 2, "arms": np.eye(2)} if name == "StandingPrivateGLM" else {"arms": 2}
    policy = Mixed(**arms, budget=Budget(1.0, 1e-5), horizon=1000, first_batch=100)
    policy.update_many(policy.select_many(5), np.ones(5))
    assert asked == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("link", ["linear", "logistic", "probit", "poisson"])
def test_many_records_are_those_of_each_round(link):
    """Also of short, long and broken vectors, and at e = 0."""
    record = SecantRecord.of(get_link(link), 2.0, (0.0, 1.0), None)
    X = arm_sets(1, 9, 3)[0] * np.array([0.1, 0.5, 1.0, 3.0, 1e60, 0.0, 1.0, 1.0, 1.0])[:, None]
    X[7, 0], X[8, 0] = np.nan, np.inf
    e, rewards = np.array([0.5, -1.0, 0.0, 1e-7, 0.3, 2.0, -900.0, 0.1, 0.2]), seeded().random(9) * 3 - 1
    with np.errstate(all="ignore"):
        expected = [record.weigh(*one) for one in zip(X, e.tolist(), rewards.tolist(), strict=True)]
        found = np.transpose(record.weigh_many(X, e, rewards))
    np.testing.assert_allclose(found, expected, rtol=1e-14)


# ------------------------------------------------------------------------------------- numbers that no float squares


@pytest.mark.parametrize("entry", [1e200, 1e308, -1e308])
@pytest.mark.parametrize("name", ["OnePassPrivateGLM", "SlatePrivateGLM", "StandingPrivateGLM", "DisjointPrivateGLM"])
def test_entries_whose_squares_overflow_are_refused_and_nothing_else_is_said(name, entry):
    policy, many = small(name), requests(small(name), 4).copy()
    many[2].flat[0] = entry
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for ask in (policy.select, policy.released().choose):
            with pytest.raises(ValueError, match="must have norm at most 1, got norm inf"):
                ask(many[2])
        for ask in (policy.select_many, policy.released().choose_many):
            with pytest.raises(ValueError, match=r"arms\[2\]: (arms|context) must have norm at most 1, got norm inf"):
                ask(many)

"""What a policy has released: a value that makes the same choices, holds no secret, and is read strictly."""

from __future__ import annotations

import gc
import json
import math
import pickle
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from private_policies import SMALL, offered, play, small
from tabled import tabled

from accounting import Budget
from dpbandits import PrivatePolicy, Released
from dpbandits.policies import OnePassPrivateGLM
from dpkit.models.links import get_link

SEED = 5


def seeded(seed: int = SEED) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture(params=SMALL)
def name(request) -> str:
    return request.param


@pytest.fixture(params=[3, 14], ids=["before a release", "after some"])
def rounds(request) -> int:
    return request.param


def played(name: str, rounds: int):
    policy = small(name, rng=seeded())
    play(policy, rounds)
    policy.settle()
    return policy


def shell_of(released: Released) -> PrivatePolicy:
    """The object that makes its choices."""
    (shell,) = (held for held in gc.get_referents(released) if isinstance(held, PrivatePolicy))
    return shell


def test_it_makes_the_policys_choices_bit_by_bit(name, rounds):
    policy = played(name, rounds)
    released = policy.released()
    again = Released.from_json(released.to_json())
    policy.rng.bit_generator.state = seeded(7).bit_generator.state
    made = policy.select(offered(policy))
    for one in (released, again):
        found = one.choose(offered(policy), seeded(7))
        if name == "DPSE" or (name == "DPHDB" and policy.releases == 0):  # whose turn it is, only the policy knows
            assert found[1] == 1 / 2
        else:
            assert found == (made.index, made.probability)


def test_releases_before_and_after_json_are_the_same(name, rounds):
    released = played(name, rounds).released()
    again = Released.from_json(released.to_json().encode())
    assert again.to_json() == released.to_json()
    assert repr(again) == repr(released)
    assert (again.number, again.run, again.price, again.takes) == (
        released.number,
        released.run,
        released.price,
        released.takes,
    )
    assert repr(again.public) == repr(released.public)
    assert pickle.loads(pickle.dumps(released)).to_json() == released.to_json()


def test_probabilities_sum_to_one_and_are_those_of_choices(name, rounds):
    policy = played(name, rounds)
    released = policy.released()
    shares = released.probabilities(offered(policy))
    assert shares.sum() == pytest.approx(1.0, abs=1e-6)  # two arms: exact
    index, probability = released.choose(offered(policy))
    assert probability == shares[index] > 0.0


def test_nothing_secret_is_in_it(name, rounds):
    """Choices are made by an object without the secret half, its generator, ledger and books."""
    policy = played(name, rounds)
    released = policy.released()
    shell = shell_of(released)
    chooser = policy.chooser()
    for attribute in (*chooser.secret, *policy.secret, "rng", "ledger", "run", "decisions"):
        assert attribute not in vars(shell), attribute
    released.choose(offered(policy), seeded())
    # and nothing of it is the live policy's, which goes on
    mine = [value for value in vars(shell.public).values() if isinstance(value, np.ndarray)]
    theirs = [value for value in vars(chooser.public).values() if isinstance(value, np.ndarray)]
    assert not any(np.shares_memory(a, b) for a in mine for b in theirs)
    before = released.to_json()
    play(policy, 10)
    assert released.to_json() == before


def test_secret_halves_do_not_move_it(name):
    """Runs that differ in everything but what is public have one and the same release."""
    texts = set()
    for reward in (0.0, 1.0):
        policy = small(name, rng=seeded(), label="same")
        policy.waiting.run = "same"
        for _ in range(3):
            policy.update(policy.select(offered(policy)), reward)
        text = json.loads(policy.released().to_json())
        texts.add(json.dumps(text | {"config": None}))
    assert len(texts) == 1


def test_it_cannot_be_changed():
    released = played("OnePassPrivateGLM", 14).released()
    with pytest.raises(AttributeError, match="a Released cannot be changed, got a new value for 'number'"):
        released.number = 7
    with pytest.raises(ValueError, match="read-only"):
        shell_of(released).public.theta[0] = 7.0
    released.public["theta"][0] = 7.0  # a copy
    assert released.public["theta"][0] != 7.0


def test_numbers_grow_with_what_is_released():
    policy = small("OnePassPrivateGLM", rng=seeded())
    numbers = []
    for _ in range(40):
        numbers.append(policy.released().number)
        play(policy, 1)
    assert numbers[0] == 0
    assert numbers == sorted(numbers)
    assert numbers[-1] == policy.releases > 3


def test_released_does_not_release_and_settle_does():
    policy = small("OnePassPrivateGLM", rng=seeded())
    play(policy, 4)
    assert policy.released().number == 0
    for _ in range(2):
        policy.settle()
        assert policy.released().number == 1


def test_a_million_characters_hold_a_hundred_dimensions():
    for name in ("OnePassPrivateGLM", "DPLinUCB", "PrivateHvtUCB", "JointDPGLM"):
        policy = small(name, first_batch=4)
        wide = type(policy)(100, budget=policy.budget, horizon=100_000)
        assert len(wide.released().to_json()) < 1_000_000


def test_infinite_parameters_and_own_links_come_through():
    policy = small("DPHDB", margin=math.inf)
    again = Released.from_json(policy.released().to_json())
    assert json.loads(again.to_json())["config"]["margin"] == {"__float__": "inf"}
    mine = get_link("probit").at(0.3)
    mine = replace(mine, name="mine")
    policy = OnePassPrivateGLM(2, mine, budget=Budget(1.0, 1e-6), horizon=50)
    released = policy.released()
    again = Released.from_json(released.to_json(), link=mine)
    assert again.choose(np.eye(2), seeded()) == released.choose(np.eye(2), seeded())
    with pytest.raises(ValueError, match="link must be one of"):
        Released.from_json(released.to_json())


@pytest.mark.parametrize("arms", [np.full((2, 2), np.nan), np.eye(3), np.zeros((0, 2)), [[2.0, 0.0]], "ab"])
def test_bad_arms_are_refused(arms):
    released = small("OnePassPrivateGLM").released()
    with pytest.raises(ValueError, match="arms must"):
        released.choose(arms)


def test_priors_come_through():
    policy = small("OnePassPrivateGLM", prior=([0.5, 0.1], 4.0 * np.eye(2)))
    released = policy.released()
    again = Released.from_json(released.to_json())
    assert again.probabilities(np.eye(2)).tolist() == released.probabilities(np.eye(2)).tolist()
    assert released.probabilities(np.eye(2))[0] > 0.6
    assert again.to_json() == released.to_json()


def test_arms_that_come_and_go_are_released():
    for name in ("DisjointPrivateGLM", "DisjointShuffleGLM"):
        policy = small(name, rng=seeded(), arms=["a", "b"])
        play(policy, 6)
        old = policy.released()
        policy.add_arm("c")
        policy.retire_arm("a")
        play(policy, 6)
        new = Released.from_json(policy.released().to_json())
        assert (old.names, new.names) == (("a", "b"), ("a", "b", "c"))
        assert new.number > old.number
        shares = new.probabilities(offered(policy))
        assert (shares > 0).tolist() == [False, True, True]
        assert shares.sum() == pytest.approx(1.0, abs=1e-9)
        assert len(old.probabilities(offered(policy))) == 2
        # a choice of an arm that is gone, made before it went
        decision = policy.register(offered(policy), 0, probability=0.5)
        assert decision.name == "a"
        policy.update(decision, 1.0)


# ------------------------------------------------------------------------------------------ strict reading


def damaged(change) -> str:
    tree = json.loads(played("OnePassPrivateGLM", 14).released().to_json())
    return json.dumps(change(tree) or tree)


@tabled(
    ("change", "message"),
    [
        (lambda tree: tree.update(version=2), "format 'dpbandits released', version 1"),
        (lambda tree: tree.update(format="x"), "format"),
        (lambda tree: tree.pop("price") and None, "must hold the entries"),
        (lambda tree: tree.update(more=1), "must hold the entries"),
        (lambda tree: tree.update(number=-1), "number must be"),
        (lambda tree: tree.update(number=1.5), "number must be"),
        (lambda tree: tree.update(releases=10**6), "releases must be at most"),
        (lambda tree: tree.update(policy="os:system"), "a private policy that is imported"),
        (
            lambda tree: tree.update(policy="dpbandits.reference.simple.uniform:Uniform"),
            "a private policy that is imported",
        ),
        (lambda tree: tree.update(config=[]), "config must hold entries"),
        (lambda tree: tree["config"].update(dim=3), "theta must be finite, float64 and of shape"),
        (lambda tree: tree["config"].update(nonsense=3), "fit together"),
        (lambda tree: tree["config"].pop("budget") and None, "fit together"),
        (lambda tree: tree["public"].pop("theta") and None, "public must hold the entries"),
        (lambda tree: tree["public"].update(theta=[0.0, 0.0]), "theta must be an array"),
        (lambda tree: tree["public"].update(theta={"__array__": ["f8", [3], ""]}), "shape that it says"),
        (lambda tree: tree["public"].update(theta={"__array__": ["f8", [2], "!"]}), "text must be a release"),
        (lambda tree: tree["public"].update(theta={"__array__": ["O", [2], ""]}), "type, shape, base64"),
        (lambda tree: tree["public"].update(theta={"__array__": ["f8", [2], "AAAAAAAA+H8AAAAAAAD4fw=="]}), "finite"),
        (lambda tree: tree["public"].update(theta={"__float__": "nan"}), "finite, 'inf' or '-inf'"),
        (lambda tree: tree.update(price="x" * 10**4), "short texts"),
        (lambda tree: [tree], "format"),
    ],
)
def test_what_does_not_fit_together_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Released.from_json(damaged(change))


@pytest.mark.parametrize("text", ["", "{", "NaN", "[" * 10_000, '{"a": Infinity}', b"\xff\xfe"])
def test_what_is_no_json_is_refused(text):
    with pytest.raises(ValueError, match=r"must be (a release as JSON|of the format)"):
        Released.from_json(text)


# --------------------------------------------------------------------------------------------- registering


def test_a_run_of_registered_choices_is_the_run_of_the_policy(name):
    """Deciders that always have the newest release, and a learner that registers: the same state in the end."""
    alone, learner, decider = small(name, rng=seeded()), small(name, rng=seeded()), seeded(1)
    for i in range(30):
        reward = float(i % 3 == 0)
        learner.settle()
        if name == "DPSE" or (name == "DPHDB" and learner.releases == 0):
            index = i % 2
        else:
            index, _ = Released.from_json(learner.released().to_json()).choose(offered(learner), decider)
        learner.update(learner.register(offered(learner), index, i % 3, probability=0.5), reward)
        # the policy alone is told to choose the same, by a generator that it does not share with its noise
        alone.update(alone.register(offered(alone), index, i % 3), reward)
    assert repr(alone.kept()) == repr(learner.kept())
    assert (alone.releases, alone.decisions) == (learner.releases, learner.decisions)
    assert learner.releases > 1


def test_choices_of_an_older_release_are_learned(name):
    policy = small(name, rng=seeded())
    old = policy.released()
    while policy.decisions < 25:
        index, probability = old.choose(offered(policy))
        decision = policy.register(offered(policy), index, policy.decisions % 3, probability=probability)
        assert (decision.probability, decision.index) == (probability, index)
        policy.update(decision, 1.0)
    policy.settle()
    assert policy.releases > 1
    assert policy.released().number > old.number


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.eye(2), 2), "index must be that of one of 2 arms, got index=2"),
        ((np.eye(2), -1), "index must be"),
        ((np.eye(2), True), "index must be"),
        ((np.eye(3), 0), "arms must have shape"),
    ],
)
def test_bad_choices_are_not_registered(arguments, message):
    policy = small("OnePassPrivateGLM")
    with pytest.raises((ValueError, TypeError), match=message):
        policy.register(*arguments)
    for bad in (0.0, 1.5, math.nan, -0.1):
        with pytest.raises(ValueError, match="probability must"):
            policy.register(np.eye(2), 0, probability=bad)
    assert (policy.decisions, policy.open_decisions) == (0, [])


def test_registered_choices_end_with_the_horizon_and_count_persons():
    policy = small("OnePassPrivateGLM", budget=Budget(4.0, 1e-5, unit="person"), horizon=5)
    with pytest.raises(ValueError, match="person must be given"):
        policy.register(np.eye(2), 0)
    for i in range(5):
        policy.register(np.eye(2), 0, person=f"user {i}")
    with pytest.raises(ValueError, match="horizon must be at least 6"):
        policy.register(np.eye(2), 0, person="last")


def test_registered_choices_survive_a_crash(tmp_path):
    path = tmp_path / "policy"
    policy = small("OnePassPrivateGLM", rng=seeded(), checkpoint=path)
    for i in range(14):
        decision = policy.register(np.eye(2), i % 2, probability=0.5)
        if i % 3:
            policy.update(decision, 1.0)
    state = repr(policy.kept()), policy.open_decisions, policy.released().to_json()
    del policy
    again = OnePassPrivateGLM.load(path, unattended=True)
    assert (repr(again.kept()), again.open_decisions, again.released().to_json()) == state


@pytest.mark.thorough
def test_two_processes_and_a_queue_as_the_page_has_them(tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "released.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(import multiprocessing\n.*?)```", page, flags=re.DOTALL)
    assert len(program.split("if __name__")[1].splitlines()) <= 12
    (tmp_path / "two.py").write_text(program)
    done = subprocess.run([sys.executable, "two.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert re.match(r"Released\(OnePassPrivateGLM, number=\d+, \(1, 1e-06\)-DP joint", done.stdout), done.stderr


def test_a_release_of_many_positions_is_refused_before_rooms_are_made_for_them():
    tree = json.loads(played("SlatePrivateGLM", 14).released().to_json())
    tree["config"]["k"] = 10**15  # whose rooms no machine has
    with pytest.raises(ValueError, match=r"^k must be at most 10,000 positions, got k=1000000000000000$"):
        Released.from_json(json.dumps(tree))


def test_a_release_of_a_large_dimension_is_refused_by_the_size_of_its_arrays():
    tree = json.loads(played("OnePassPrivateGLM", 14).released().to_json())
    tree["config"]["dim"] = 10**6  # whose squares no machine has
    with pytest.raises(ValueError, match=r"^dim must be that of the arrays in the release, got dim=1000000"):
        Released.from_json(json.dumps(tree))

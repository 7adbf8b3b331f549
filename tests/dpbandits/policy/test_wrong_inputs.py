"""Wrong inputs to evaluation, priors, logs and prices: each a clear error that names parameter, value and remedy."""

from __future__ import annotations

import numpy as np
import pytest
from tabled import tabled

from accounting import Budget
from dpbandits import policies, price_of_privacy
from dpbandits.lab.environments import GLM, ChosenLog, Delayed, People
from dpbandits.lab.evaluate import (
    Log,
    LoggedRound,
    cross_fitted,
    doubly_robust,
    ips,
    private_value,
    rejection_replay,
    snips,
)

WORLD = GLM(2)
R, P, PI = [1.0, 0.0], [0.5, 0.5], [1.0, 0.0]
ADD = Budget(1.0, 0.0, adjacency="add_remove")
GOOD = Log.of(R, P, ["a", "b"])


def price(source=WORLD, budgets=(1.0,), **more):
    return price_of_privacy(source, budgets, **{"rounds": 10, "seeds": 1, "progress": False, **more})


def value(**more):
    known = {"rewards": R, "probabilities": P, "target": PI, "largest_weight": 2.0, "budget": ADD}
    return private_value(**(known | {"rng": np.random.default_rng(0)} | more))


def robust(**more):
    eye = np.eye(2)
    known = {"rewards": R, "probabilities": P, "target": eye, "chosen": [0, 1], "model": eye}
    return doubly_robust(**(known | more))


CASES = {
    # estimates
    "a probability of 0": (lambda: ips(R, [0.5, 0.0], PI), r"probabilities must be in \(0, 1\], got 0 in row 1"),
    "a probability of 2": (lambda: ips(R, [0.5, 2.0], PI), r"probabilities must be in \(0, 1\], got 2 in row 1"),
    "NaN for a probability": (lambda: ips(R, [np.nan, 0.5], PI), r"probabilities must be .* got nan in row 0"),
    "fewer probabilities": (lambda: ips(R, [0.5], PI), r"rewards and probabilities must have one entry per row"),
    "no rows": (lambda: snips([], [], []), r"rewards and probabilities must have one entry per row"),
    "an infinite reward": (lambda: snips([np.inf, 0], P, PI), r"rewards must be finite, got inf in row 0"),
    "words for rewards": (lambda: ips(["a", "b"], P, PI), r"rewards must be real numbers, got an array of type"),
    "a target of 2": (lambda: ips(R, P, [2.0, 0.0]), r"target must be in \[0, 1\], got 2 in row 0"),
    "a target below 0": (lambda: snips(R, P, [0.0, -0.5]), r"target must be in \[0, 1\], got -0.5 in row 1"),
    "a short target": (lambda: ips(R, P, [1.0]), r"target must have one entry per row, \(2,\), got shape \(1,\)"),
    "a target of zeros": (lambda: snips(R, P, [0.0, 0.0]), r"target must be positive for at least one row"),
    "no weight": (lambda: ips(R, P, PI, largest_weight=0.0), r"largest_weight must be .*got .*0"),
    "fewer persons": (
        lambda: ips(R, P, PI, persons=["a"]),
        r"persons must have one entry per row, 2, got shape \(1,\)",
    ),
    "a flat table": (lambda: robust(target=[1.0, 0.0]), r"target must be a finite table with one row per choice"),
    "rows that add up to 2": (lambda: robust(target=np.ones((2, 2))), r"target must have rows .* add up to 1"),
    "an item that is none": (lambda: robust(chosen=[0, 2]), r"chosen must be whole numbers from 0 to 1"),
    "half an item": (lambda: robust(chosen=[0.0, 0.5]), r"chosen must be whole numbers from 0 to 1"),
    "another model": (lambda: robust(model=np.eye(3)), r"target and model must have shape \(n, K\)"),
    "NaN in a model": (lambda: robust(model=[[np.nan, 0], [0, 1]]), r"model must be a finite table"),
    "one fold": (lambda: cross_fitted(R, [0, 1], 2, folds=1), r"folds must be .*got .*1"),
    "no ridge": (lambda: cross_fitted(R, [0, 1], 2, ridge=0.0), r"ridge must be .*got .*0"),
    "no items": (lambda: cross_fitted(R, [0, 1], 0), r"arms must be .*got .*0"),
    "an item too many": (lambda: cross_fitted(R, [0, 2], 2), r"chosen must hold one number from 0 to 1 per reward"),
    "confidence of 1": (lambda: ips(R, P, PI).interval(1.0), r"confidence must lie in .*got confidence=1"),
    "bounds in a wrong order": (lambda: ips(R, P, PI).interval(largest=(1, 0)), r"largest must be two increasing"),
    "bounds that do not hold": (lambda: ips(R, P, PI).interval(largest=(0, 1)), r"largest must bound every term"),
    # private values
    "an unknown method": (lambda: value(method="dm"), r"method must be 'snips', 'ips' or 'doubly_robust', got .*'dm'"),
    "an endless range": (lambda: value(reward_range=(0, np.inf)), r"reward_range must be finite and increasing"),
    "no weight at all": (lambda: value(largest_weight=-1.0), r"largest_weight must be .*got .*-1"),
    "no baseline": (lambda: value(method="doubly_robust"), r"baseline and model belong to method='doubly_robust'"),
    "a short baseline": (
        lambda: value(method="doubly_robust", baseline=[0.0], model=[0.0, 0.0]),
        r"baseline must have one number per row",
    ),
    # logs
    "names that are not all": (
        lambda: Log.of(R, P, ["a", "b"], arms=["a"]),
        r"arms must be different names .* got 'b'",
    ),
    "a name twice": (lambda: Log.of(R, P, ["a", "a"], arms=["a", "a"]), r"arms must be different names"),
    "an unknown arm": (lambda: GOOD.always("c"), r"arm must be one of \('a', 'b'\), got 'c'"),
    "fewer features": (lambda: Log.of(R, P, ["a", "b"], features=[[1.0]]), r"features must be finite, with 2 rows"),
    "fewer whose": (lambda: Log.of(R, P, ["a", "b"], persons=["x"]), r"persons must have 2 entries, got 1"),
    "no pscore": (lambda: Log.from_open_bandit({"action": [0], "reward": [1]}), r"feedback must hold 'pscore'"),
    "positions": (
        lambda: Log.from_open_bandit({"action": [0, 1], "reward": R, "pscore": P, "position": [0, 1]}),
        r"feedback must have one position only: select its rows",
    ),
    "a line of no format": (lambda: Log.from_vowpal_wabbit(["1:0 | a"]), r"line 1 must be 'action:cost:probability"),
    "a line of no numbers": (lambda: Log.from_vowpal_wabbit(["1:x:0.5 | a"]), r"line 1 must hold numbers"),
    # replays
    "no smallest probability": (
        lambda: rejection_replay(policies.Uniform(2), [LoggedRound(np.eye(2), 0, 1.0, 0.5)]),
        r"smallest_probability must be given where rounds have probabilities, got 0.5 in round 0",
    ),
    "a smaller one": (
        lambda: rejection_replay(policies.Uniform(2), [LoggedRound(np.eye(2), 0, 1.0, 0.1)], smallest_probability=0.5),
        r"probability must be in \[0.5, 1\], got 0.1 in round 0",
    ),
    "no round": (lambda: rejection_replay(policies.Uniform(2), []), r"log must have a round in which the policy"),
    # models of logs
    "a frame for a log": (lambda: ChosenLog({"a": 1}), r"log must be a dpbandits.lab.evaluate.Log, got a dict"),
    "one arm offered": (lambda: ChosenLog(GOOD, offered=1), r"offered must be .*at least 2.*got .*1"),
    "a bound of 0": (lambda: ChosenLog(GOOD, feature_bound=0.0), r"feature_bound must be .*got .*0"),
    "rewards beyond": (
        lambda: ChosenLog(Log.of([7, 0], P, ["a", "b"])),
        r"rewards must lie .*got 7 in row 0: state the",
    ),
    "an empty range": (lambda: ChosenLog(GOOD, reward_range=(1, 1)), r"reward_range must be finite and increasing"),
    "one item": (lambda: ChosenLog(Log.of(R, P, ["a", "a"])), r"choices of at least two items, got 1"),
    "items without features": (
        lambda: ChosenLog(Log.of(np.zeros(300), np.full(300, 0.5), range(300))),
        r"features must be given for a log of more than 200 items, got 300 items and none: name the columns",
    ),
    # prices
    "a path": (lambda: price("clicks.csv"), r"source must be an environment .*got a str.*read a file with LogReplay"),
    "one number": (lambda: price(budgets=1.0), r"budgets must be a sequence of ε or Budget .*got 1.0"),
    "no budgets": (lambda: price(budgets=[]), r"budgets must hold at least one ε, got none"),
    "a word for ε": (lambda: price(budgets=["1"]), r"budgets must hold numbers \(ε\) or Budget, got '1'"),
    "True for ε": (lambda: price(budgets=[True]), r"budgets must hold numbers \(ε\) or Budget, got True"),
    "ε below 0": (lambda: price(budgets=[-1.0]), r"epsilon must be .*got .*-1"),
    "NaN for ε": (lambda: price(budgets=[np.nan]), r"epsilon must be .*got .*nan"),
    "one ε twice": (lambda: price(budgets=[1.0, 1.0]), r"budgets must be different, got ε = 1 twice"),
    "δ of 0": (lambda: price(delta=0.0), r"delta must lie in .*got delta=0"),
    "a unit for units": (lambda: price(units="round"), r"units must be a sequence such as .*got units='round'"),
    "an unknown unit": (lambda: price(units=["cat"]), r"units must be one or both of .*got units=\['cat'\]"),
    "no units": (lambda: price(units=[]), r"units must be one or both of"),
    "nobody": (lambda: price(units=["person"]), r"units must be \('round',\) where .*: name the column of persons"),
    "no rounds": (lambda: price(rounds=0), r"rounds must be .*got .*0"),
    "no end": (lambda: price(rounds=None), r"rounds must be given: .* has no end"),
    "more rounds than there are": (
        lambda: price(People(WORLD, persons=2, rounds=5), rounds=6),
        r"rounds must be at most 5 for .*, got rounds=6",
    ),
    "no seeds": (lambda: price(seeds=0), r"seeds must be .*got .*0"),
    "no delays": (lambda: Delayed(WORLD, delay=[]), r"delay must be a list of at least one delay, got .*\(0,\)"),
    "half a delay": (lambda: Delayed(WORLD, delay=[1, 0.5]), r"delay must hold whole numbers .*got 0.5 in place 1"),
    "an endless delay": (lambda: Delayed(WORLD, delay=[np.inf]), r"delay must hold whole .*or -1 for never, got inf"),
    "no processes": (lambda: price(jobs=0), r"jobs must be .*got .*0"),
    "a list of policies": (lambda: price(policies=["GLBOMD"]), r"policies must be a mapping from 'round' or 'person'"),
    "a policy for cats": (lambda: price(policies={"cat": "GLBOMD"}), r"policies must have the keys .*got 'cat'"),
    "a public policy": (lambda: price(policies={"round": "GLBOMD"}), r"policies\['round'\] must be a private policy"),
    "no policy": (lambda: price(policies={"round": "Magic"}), r"policies\['round'\] must be .*got 'Magic'"),
}


def test_there_are_enough():
    assert len(CASES) >= 60


@tabled("case", sorted(CASES))
def test_wrong_inputs_say_what_is_wrong(case):
    wrong, message = CASES[case]
    with pytest.raises((ValueError, TypeError), match=message):
        wrong()

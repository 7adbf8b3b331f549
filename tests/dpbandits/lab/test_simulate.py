"""Simulation: exact sums, the same luck for all, reproducible in any order and over processes, interruptible."""

import functools
import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
from simulations import curves, greedy, private, quiet, uniform

from accounting import Budget
from dpbandits.lab.environments import GLM, Round
from dpbandits.lab.simulation import play
from dpbandits.policies import GLBOMD, OnePassPrivateGLM, Uniform


def omd(rng):
    return GLBOMD(3, rng=rng)


class First(Uniform):
    """Always the first arm."""

    def score(self, arms):
        return -np.arange(len(arms), dtype=float)


class Ladder:
    """Round t gives t to the first arm, whose mean is 1 below the best."""

    name, dim, link, theta_bound, reward_range = "ladder", 1, "linear", 1.0, (0.0, 100.0)

    def __init__(self, rounds=10, known=True):
        self.rounds, self.known = rounds, known

    def episode(self, rng):
        for t in range(1, self.rounds + 1):
            yield Round(np.ones((2, 1)), np.array([t, 0.0]), np.array([t, t + 1.0]) if self.known else None)


def test_sums_are_exact_and_noted_at_even_rounds():
    results = quiet({"first": lambda rng: First(1, rng=rng)}, Ladder(), seeds=1, points=4)
    run = results.runs[0]
    assert run.round.tolist() == [3, 5, 8, 10]
    assert run.reward.tolist() == [6, 15, 36, 55]
    assert run.regret.tolist() == [3, 5, 8, 10]
    assert run.algorithm == "First"
    assert (np.diff(run.seconds) > 0).all()


@pytest.mark.parametrize("points", [1, 7, 499, 500, 501, 10_000])
def test_the_last_round_is_noted_and_no_round_twice(points):
    run = quiet({"first": lambda rng: First(1, rng=rng)}, Ladder(501), seeds=1, points=points).runs[0]
    assert len(run.round) == min(points, 501)
    assert run.round[-1] == 501
    assert (np.diff(run.round) > 0).all()


def test_regret_is_unknown_where_means_are():
    results = quiet({"first": lambda rng: First(1, rng=rng)}, Ladder(known=False), seeds=2)
    assert all(np.isnan(run.regret).all() for run in results.runs)
    assert results.metric == "reward"


@pytest.mark.thorough
def test_runs_depend_on_name_and_seed_only():
    environment = GLM(3, arms=5)
    policies = {"uniform": uniform, "greedy": greedy, "private": private}
    together = curves(quiet(policies, environment, rounds=300, seeds=3))
    backwards = dict(reversed(policies.items()))
    assert curves(quiet(backwards, environment, rounds=300, seeds=[2, 0, 1])) == together
    alone = curves(quiet({"private": private}, environment, rounds=300, seeds=[2]))
    assert alone["private", 2] == together["private", 2]
    # lambdas will do for several processes where these are forked
    assert curves(quiet(policies, environment, rounds=300, seeds=3, jobs=2)) == together
    assert together["greedy", 0] != together["greedy", 1]


def test_all_policies_see_the_same_luck():
    # a deterministic policy under two names
    results = curves(quiet({"a": omd, "b": omd, "c": greedy, "d": greedy}, GLM(3), rounds=300, seeds=2))
    assert results["a", 0] == results["b", 0] != results["a", 1]
    # a random one has its own luck under each name
    assert results["c", 0] != results["d", 0]


def test_privacy_is_reported_and_seeds_are_marked():
    secure = functools.partial(OnePassPrivateGLM, 3, budget=Budget(2.0, 1e-5, unit="round"), horizon=50)
    policies = {"seeded": private, "secure": lambda rng: secure(), "uniform": uniform}
    results = quiet(policies, GLM(3), rounds=50, seeds=1)
    seeded, safe, none = (run.privacy for run in results.runs)
    assert seeded.simulation
    assert not safe.simulation
    assert (safe.epsilon, safe.delta, safe.unit, safe.trust) == (pytest.approx(2.0, rel=1e-9), 1e-5, "round", "joint")
    assert math.isinf(none.epsilon)
    assert results.simulation


def test_the_clock_is_the_policys_alone(monkeypatch):
    clock = itertools.count()
    monkeypatch.setattr(play, "perf_counter", lambda: float(next(clock)))

    class Slow(Ladder):
        def episode(self, rng):
            for now in super().episode(rng):
                for _ in range(100):  # none of which is the policy's
                    next(clock)
                yield now

    run = quiet({"first": lambda rng: First(1, rng=rng)}, Slow(), seeds=1).runs[0]
    assert run.seconds.tolist() == [2.0 * t for t in range(1, 11)]  # a choice and an update, a second each


def test_an_interrupt_keeps_the_runs_that_are_done():
    made = []

    def interrupted(rng):
        made.append(rng)
        if len(made) == 2:
            raise KeyboardInterrupt
        return uniform(rng)

    results = quiet({"greedy": greedy, "interrupted": interrupted}, GLM(3), rounds=100, seeds=3)
    assert [(run.policy, run.seed) for run in results.runs] == [("greedy", 0), ("greedy", 1), ("interrupted", 0)]
    assert not results.complete
    assert results.planned_runs == 6
    assert "INCOMPLETE: 3 of 6 runs" in str(results)
    expected = curves(quiet({"greedy": greedy}, GLM(3), rounds=100, seeds=2))
    assert {key: value for key, value in curves(results).items() if key[0] == "greedy"} == expected


def test_an_interrupt_before_the_first_run_is_done_is_passed_on():
    def interrupted(rng):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quiet({"interrupted": interrupted}, GLM(3), rounds=100)


_PARALLEL = """
import os, pathlib, signal, sys, time
from dpbandits.lab.environments import GLM
from dpbandits.policies import Uniform
from dpbandits.lab.simulation.simulate import simulate

kept = pathlib.Path(sys.argv[1])

class Endless(Uniform):
    def score(self, arms):
        time.sleep(2.0)
        return super().score(arms)

def fast(rng):
    return Uniform(3, rng=rng)

def endless(rng):
    # the parent keeps a run once it has it
    while '"policy": "fast"' not in kept.read_text():
        time.sleep(0.01)
    os.kill(os.getppid(), signal.SIGINT)
    return Endless(3, rng=rng)

if __name__ == "__main__":
    # a shell's background jobs, of which the tests may be one, ignore the signal
    signal.signal(signal.SIGINT, signal.default_int_handler)
    results = simulate({"fast": fast, "endless": endless}, GLM(3), rounds=300, seeds=1, jobs=2, resume=kept)
    print([run.policy for run in results.runs], results.complete, results.runs[0].round[-1])
"""


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_an_interrupt_stops_the_processes_and_keeps_what_is_done(tmp_path):
    # the second run would take ten minutes
    script = tmp_path / "script.py"
    script.write_text(_PARALLEL)
    command = [sys.executable, str(script), str(tmp_path / "kept.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "['fast'] False 300", done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_names_the_run(jobs):
    def broken(rng):
        return Uniform(2, rng=rng)  # the arms have three dimensions

    with pytest.raises(ValueError, match=r"arms must have shape \(K, 2\)") as caught:
        quiet({"uniform": uniform, "broken": broken}, GLM(3), rounds=100, seeds=[7], jobs=jobs)
    assert caught.value.__notes__ == ["in the run of policy 'broken' on seed 7"]


def test_a_horizon_that_is_too_short_is_an_error_not_a_cheap_run():
    with pytest.raises(ValueError, match="horizon must be at least 301 for one more round, got 300"):
        quiet({"private": private}, GLM(3), rounds=301, seeds=1)


def test_a_policy_plays_one_run_and_brings_nothing_along():
    shared = First(1, rng=np.random.default_rng(0))
    quiet({"one": lambda rng: shared}, Ladder(), seeds=1)
    with pytest.raises(ValueError, match=r"policies\['one'\] must make a new policy in every call"):
        quiet({"one": lambda rng: shared}, Ladder(), seeds=1)

    class Alike(First):
        def __eq__(self, other):
            return isinstance(other, Alike)

        __hash__ = None

    kept = []
    quiet({"one": lambda rng: kept.append(Alike(1, rng=rng)) or kept[-1]}, Ladder(), seeds=2)


@pytest.mark.parametrize(
    ("rewards", "means", "message"),
    [
        ([0.0], None, r"rewards of a round must have shape \(2,\).* got shape \(1,\)"),
        ([0.0, 1.0], [0.0, 1.0, 5.0], r"means of a round must have shape \(2,\).* got shape \(3,\)"),
    ],
)
def test_a_round_has_a_reward_and_a_mean_for_every_arm(rewards, means, message):
    class Wrong(Ladder):
        def episode(self, rng):
            while True:
                yield Round(np.ones((2, 1)), np.array(rewards), None if means is None else np.array(means))

    with pytest.raises(ValueError, match=message):
        quiet({"first": lambda rng: First(1, rng=rng)}, Wrong(), seeds=1)
    with pytest.raises(TypeError, match=r"got a class: make one by Wrong\(…\)"):
        quiet({"first": lambda rng: First(1, rng=rng)}, Wrong, seeds=1)


def test_an_environment_that_ends_early_is_an_error():
    environment = Ladder(10)
    short = Ladder(7)
    environment.episode = short.episode
    with pytest.raises(ValueError, match="ladder must have at least 10 rounds, got 7"):
        quiet({"first": lambda rng: First(1, rng=rng)}, environment, seeds=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rounds": None}, "rounds must be given: .* has no end"),
        ({"rounds": 0}, "rounds must be at least 1, got rounds=0"),
        ({"seeds": 0}, "seeds must be at least 1, got seeds=0"),
        ({"seeds": []}, "seeds must be different numbers"),
        ({"seeds": [1, 1]}, "seeds must be different numbers"),
        ({"seeds": [-1]}, "seeds must be at least 0"),
        ({"jobs": 0}, "jobs must be at least 1, got jobs=0"),
        ({"points": 0}, "points must be at least 1, got points=0"),
    ],
)
def test_bad_parameters_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        quiet({"uniform": uniform}, GLM(3), **{"rounds": 10} | arguments)


def test_bad_policies_and_too_many_rounds_are_refused():
    with pytest.raises(TypeError, match="policies must be a nonempty dict"):
        quiet({}, GLM(3), rounds=10)
    with pytest.raises(TypeError, match=r"policies\['uniform'\] must be a function that makes a policy"):
        quiet({"uniform": Uniform(3)}, GLM(3), rounds=10)
    with pytest.raises(ValueError, match="rounds must be at most 10 for ladder, got rounds=11"):
        quiet({"first": lambda rng: First(1, rng=rng)}, Ladder(10), rounds=11)


@pytest.mark.thorough
def test_factories_must_be_picklable_where_processes_are_not_forked(monkeypatch):
    import multiprocessing

    spawn = multiprocessing.get_context("spawn")
    monkeypatch.setattr(multiprocessing, "get_context", lambda: spawn)
    with pytest.raises(TypeError, match="policies must be picklable for jobs=2"):
        quiet({"uniform": lambda rng: Uniform(3, rng=rng)}, GLM(3), rounds=10, jobs=2)
    from dpbandits.cli.policies import factories

    picklable = factories(["uniform", "one-pass-private"], [1.0], 1e-5, GLM(3), 10)
    results = quiet(picklable, GLM(3), rounds=10, seeds=2, jobs=2)
    assert curves(results) == curves(quiet(picklable, GLM(3), rounds=10, seeds=2))


def test_importing_needs_no_extra_package():
    code = (
        "import sys, dpbandits.lab.simulation.simulate, dpbandits.lab.simulation.results, dpbandits.lab.environments\n"
        "print({'pandas', 'matplotlib', 'rich', 'typer', 'pyarrow', 'sklearn', 'joblib', 'dask'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"

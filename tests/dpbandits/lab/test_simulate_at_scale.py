"""Late rewards told when they are due, back ends that give the same bits, simulations that go on where they stopped."""

import functools
import importlib.util
import json
import math
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from simulations import curves, greedy, private, quiet, uniform
from tabled import tabled

from accounting import Budget
from dpbandits.lab.environments import GLM, Available, Delayed, Linear, Round
from dpbandits.lab.simulation.results import Results
from dpbandits.policies import EpsilonGreedy, OnePassPrivateGLM, Uniform

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "sweep_dask.py"

# as lambdas, which reach far processes whole: those cannot import this file
POLICIES = {
    "uniform": lambda rng: Uniform(3, rng=rng),
    "greedy": lambda rng: EpsilonGreedy(3, rng=rng),
    "private": lambda rng: OnePassPrivateGLM(3, budget=Budget(1.0, 1e-5, unit="round"), horizon=300, rng=rng),
}
WORLD = Delayed(Available(GLM(3, arms=5)), mean=10, missing=0.1)


# ------------------------------------------------------------------------------------------------- late rewards


class Diary(Uniform):
    """Notes the decision that every reward belongs to, and how many decisions had been made by then."""

    def __init__(self, *arguments, **parameters):
        super().__init__(*arguments, **parameters)
        self.entries = []

    def update(self, decision, reward):
        super().update(decision, reward)
        self.entries.append((decision.id, self.decisions, reward))


class Late:
    """Round t = 0, 1, … gives the reward t with the t-th delay."""

    name, dim, link, theta_bound, reward_range, rounds = "late", 1, "linear", 1.0, (0.0, 100.0), None

    def __init__(self, delays):
        self.delays = delays

    def episode(self, rng):
        for t, delay in enumerate(self.delays):
            yield Round(np.ones((1, 1)), np.array([float(t)]), np.array([0.0]), delay=delay)


def diary(delays, points=500):
    made = []

    def make(rng):
        made.append(Diary(1, rng=rng))
        return made[-1]

    results = quiet({"diary": make}, Late(delays), rounds=len(delays), seeds=1, points=points)
    return made[0], results.runs[0]


@tabled("points", [1, 3, 8])
def test_rewards_are_told_exactly_when_they_are_due(points):
    # decision t with delay m is told once t + 1 + m decisions have been made; of those due together the oldest first
    policy, run = diary([3, 0, None, 1, 0, 9, 2, 0], points)
    told = [(1, 2), (0, 4), (3, 5), (4, 5), (7, 8)]
    assert [(number, decisions) for number, decisions, _ in policy.entries] == told
    assert all(reward == number for number, _, reward in policy.entries)
    assert run.untold == 3  # the missing one, and two that are due later
    assert policy.open_decisions == [5, 6]
    assert run.reward[-1] == sum(range(8))  # counted when decided
    policy, run = diary([0] * 5, points)
    assert [(number, decisions) for number, decisions, _ in policy.entries] == [(t, t + 1) for t in range(5)]
    assert (run.untold, policy.open_decisions) == (0, [])


@pytest.mark.parametrize(("delay", "error"), [(-1, ValueError), (0.5, TypeError)])
def test_a_delay_that_is_no_number_of_rounds_is_an_error(delay, error):
    with pytest.raises(error, match="delay must be"):
        diary([0, delay])


def test_delays_are_the_same_for_all_policies_and_reported(tmp_path):
    results = quiet({"a": uniform, "b": greedy}, WORLD, rounds=300, seeds=2)
    untold = {(run.policy, run.seed): run.untold for run in results.runs}
    assert untold["a", 0] == untold["b", 0]
    assert untold["a", 1] == untold["b", 1]
    # a tenth of the 300 rewards and about 10 at the end: 40 ± 6
    assert all(10 < number < 80 for number in untold.values())
    assert results.table()[0]["untold"] == (untold["a", 0] + untold["a", 1]) / 2
    share = sum(untold.values()) / 1200
    assert f"{share:.2%} of the rewards never told" in results.caption()
    for suffix in (".json", ".csv", ".parquet"):
        assert curves(Results.load(results.save(tmp_path / f"r{suffix}"))) == curves(results)
    assert "never told" not in quiet({"a": uniform}, GLM(3), rounds=10, seeds=1).caption()


def test_late_rewards_cost_regret_and_no_more():
    at_once = quiet({"greedy": greedy}, GLM(3), rounds=1000, seeds=3).table()[0]["regret"]
    late = quiet({"greedy": greedy}, Delayed(GLM(3), mean=100), rounds=1000, seeds=3).table()[0]["regret"]
    chance = quiet({"uniform": uniform}, GLM(3), rounds=1000, seeds=3).table()[0]["regret"]
    assert at_once < late < 0.7 * chance


@pytest.mark.thorough
def test_memory_does_not_grow_with_the_rounds():
    # 1000 more decisions that wait for a missing reward would take 0.2 MB
    def peak(rounds):
        world = Late([0, 3, None] * (rounds // 3))
        tracemalloc.start()
        quiet({"uniform": lambda rng: Uniform(1, rng=rng)}, world, rounds=rounds, seeds=1, points=100)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(300)
    assert abs(peak(3900) - peak(900)) < 50_000


# --------------------------------------------------------------------------------------------------- back ends


@pytest.fixture(scope="module")
def reference():
    return curves(quiet(POLICIES, WORLD, rounds=200, seeds=3))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["threading", "sequential", "loky"])
def test_every_back_end_gives_the_same_bits(reference, backend, tmp_path):
    joblib = pytest.importorskip("joblib")
    path = tmp_path / "runs.jsonl"
    assert curves(quiet(POLICIES, WORLD, rounds=200, seeds=3, jobs=2, backend=backend, resume=path)) == reference
    assert curves(Results.load(path)) == reference
    if backend == "loky":  # its processes and threads would stay for all tests to come
        joblib.externals.loky.get_reusable_executor().shutdown(wait=True)


@pytest.mark.slow
def test_a_local_cluster_of_dask_gives_the_same_bits(reference):
    distributed = pytest.importorskip("distributed")
    joblib = pytest.importorskip("joblib")
    with distributed.Client(
        n_workers=1, threads_per_worker=2, processes=True, dashboard_address=None, set_as_default=True
    ):
        assert curves(quiet(POLICIES, WORLD, rounds=200, seeds=3, backend="dask")) == reference
        with joblib.parallel_config(backend="dask"):
            assert curves(quiet(POLICIES, WORLD, rounds=200, seeds=3, backend="joblib")) == reference


def test_the_example_goes_on_where_it_stopped(tmp_path):
    pytest.importorskip("distributed")
    spec = importlib.util.spec_from_file_location("sweep_dask", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    path = tmp_path / "sweep.jsonl"
    first = example.sweep(path, "sequential", rounds=100, seeds=1)
    both = example.sweep(path, "sequential", rounds=100, seeds=2)
    assert first.policies == both.policies == ["OFUL", "CRTM", "Hvt-UCB"]
    assert curves(first).items() <= curves(both).items()


@pytest.mark.thorough
def test_back_ends_without_generators_will_do(reference, monkeypatch):
    # as Ray's, which gives back a list when all of it is done
    joblib = pytest.importorskip("joblib")
    asked = []

    class Lists(joblib.Parallel):
        def __init__(self, *arguments, return_as="list", **parameters):
            asked.append(return_as)
            if return_as != "list":
                raise ValueError("this back end does not support return_as")
            super().__init__(*arguments, **parameters)

    monkeypatch.setattr(joblib, "Parallel", Lists)
    assert curves(quiet(POLICIES, WORLD, rounds=200, seeds=3, backend="threading", jobs=2)) == reference
    assert asked == ["generator_unordered", "list"]


def test_an_error_at_a_back_end_names_the_run():
    pytest.importorskip("joblib")

    def broken(rng):
        return Uniform(2, rng=rng)  # the arms have three dimensions

    with pytest.raises(ValueError, match=r"arms must have shape \(K, 2\)") as caught:
        quiet({"broken": broken}, GLM(3), rounds=100, seeds=[7], backend="threading")
    assert caught.value.__notes__ == ["in the run of policy 'broken' on seed 7"]


def test_bad_back_ends_are_refused(monkeypatch):
    pytest.importorskip("joblib")
    with pytest.raises(ValueError, match="Invalid backend: cloud"):
        quiet({"uniform": uniform}, GLM(3), rounds=10, backend="cloud")
    with pytest.raises(TypeError, match="backend must be the name of a back end of joblib, got backend=2"):
        quiet({"uniform": uniform}, GLM(3), rounds=10, backend=2)
    monkeypatch.setitem(__import__("sys").modules, "joblib", None)
    with pytest.raises(ImportError, match=r"backend='loky' needs joblib: .*dpkit\[sweep\]"):
        quiet({"uniform": uniform}, GLM(3), rounds=10, backend="loky")


# ----------------------------------------------------------------------------------------------------- resuming


def counted(make, made, stop_at=math.inf):
    def counting(rng):
        made.append(make)
        if len(made) == stop_at:
            raise KeyboardInterrupt
        return make(rng)

    return counting


def test_a_rerun_plays_only_what_is_missing_and_gives_the_same_bits(reference, tmp_path):
    path = tmp_path / "runs.jsonl"
    made = []
    stopped = {name: counted(make, made, stop_at=6) for name, make in POLICIES.items()}
    partial = quiet(stopped, WORLD, rounds=200, seeds=3, resume=path)
    assert len(partial.runs) == 5
    on_disk = Results.load(path)
    assert not on_disk.complete
    assert (len(on_disk.runs), on_disk.planned_runs) == (5, 9)
    assert curves(on_disk) == curves(partial)

    played = []
    policies = {name: counted(make, played) for name, make in POLICIES.items()}
    whole = quiet(policies, WORLD, rounds=200, seeds=3, resume=path)
    assert curves(whole) == curves(Results.load(path)) == reference
    assert whole.complete
    assert len(played) == 4 + 3  # the missing runs, and a look at each policy that has runs
    assert [(r.policy, r.seed) for r in Results.load(path).runs] == [(r.policy, r.seed) for r in whole.runs]
    # nothing is left to do
    size = path.stat().st_size
    assert curves(quiet(POLICIES, WORLD, rounds=200, seeds=3, resume=path)) == reference
    assert path.stat().st_size < size + 200


def test_more_seeds_and_policies_extend_the_file(reference, tmp_path):
    path = tmp_path / "runs.jsonl"
    first = quiet({"greedy": greedy}, WORLD, rounds=200, seeds=[1], resume=path)
    assert curves(first) == {("greedy", 1): reference["greedy", 1]}
    quiet({"uniform": uniform}, WORLD, rounds=200, seeds=2, resume=path, jobs=2)
    # what was not asked for this time is not in the results, but in the file
    assert curves(quiet(POLICIES, WORLD, rounds=200, seeds=3, resume=path)) == reference
    assert len(quiet({"greedy": greedy}, WORLD, rounds=200, seeds=[2], resume=path).runs) == 1
    assert curves(Results.load(path)) == reference


def test_a_line_that_a_crash_has_cut_is_played_again(reference, tmp_path):
    path = tmp_path / "runs.jsonl"
    quiet(POLICIES, WORLD, rounds=200, seeds=3, resume=path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    assert len(Results.load(path).runs) == 8
    assert curves(quiet(POLICIES, WORLD, rounds=200, seeds=3, resume=path)) == reference
    assert curves(Results.load(path)) == reference
    assert all(isinstance(json.loads(line), dict) for line in path.read_text().splitlines())


@pytest.mark.parametrize(
    ("world", "arguments", "what"),
    [
        (GLM(3, arm_law="sphere"), {}, "environment.arm_law, got 'sphere', but .* has 'ball'"),
        (GLM(3, theta_norm=2), {}, "environment, got .*S = 2"),
        (Delayed(GLM(3), delay=1), {}, "environment, got .*delay 1"),
        (Linear(3), {}, "environment, got linear bandit"),
        (GLM(3), {"rounds": 51}, "rounds, got 51, but .* has 50"),
        (GLM(3), {"points": 10}, "points, got 10, but .* has 50"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path, world, arguments, what):
    path = tmp_path / "runs.jsonl"
    quiet({"uniform": uniform}, GLM(3), rounds=50, seeds=1, resume=path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=f"resume must be a file of the same {what}"):
        quiet({"uniform": uniform}, world, **{"rounds": 50} | arguments, seeds=1, resume=path)
    assert path.read_bytes() == before


def test_worlds_are_compared_by_what_they_do(tmp_path):
    class Coins:
        name, dim, link, theta_bound, reward_range, rounds = "coins", 2, "logistic", 3.0, (0.0, 1.0), None

        def __init__(self, chances):
            self.means = np.array(chances)

        def episode(self, rng):
            while True:
                yield Round(np.eye(2), (rng.random(2) < self.means).astype(float), self.means)

    path = tmp_path / "runs.jsonl"
    policies = {"uniform": lambda rng: Uniform(2, rng=rng)}
    quiet(policies, Coins([0.2, 0.8]), rounds=50, seeds=1, resume=path)
    quiet(policies, Coins([0.2, 0.8]), rounds=50, seeds=2, resume=path)
    with pytest.raises(ValueError, match="the same environment's first rounds"):
        quiet(policies, Coins([0.2, 0.7]), rounds=50, seeds=2, resume=path)


def test_a_policy_with_other_parameters_needs_another_name(tmp_path):
    path = tmp_path / "runs.jsonl"
    quiet({"p": private}, GLM(3), rounds=50, seeds=1, resume=path)
    with pytest.raises(ValueError, match=r"policy 'p' must have the budget that it has in .*'epsilon': 1\.0"):
        quiet({"p": functools.partial(private, epsilon=2.0)}, GLM(3), rounds=50, seeds=2, resume=path)
    with pytest.raises(ValueError, match=r"policy 'p' must have the algorithm .* got algorithm=Uniform"):
        quiet({"p": uniform}, GLM(3), rounds=50, seeds=2, resume=path)
    assert len(quiet({"p": private}, GLM(3), rounds=50, seeds=2, resume=path).runs) == 2


@pytest.mark.parametrize("text", ["a,b", "a,b\n1,2\n", "{}\n", "3\n", '{"format": "dpbandits-results-1"}\n'])
def test_other_files_are_refused_and_left_as_they_are(tmp_path, text):
    path = tmp_path / "other.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match="resume must be a file of runs that this package wrote"):
        quiet({"uniform": uniform}, GLM(3), rounds=50, resume=path)
    assert path.read_text() == text
    with pytest.raises(ValueError, match="path must hold results that were saved by this package"):
        Results.load(path)
    with pytest.raises(ValueError, match=r"resume must end in \.jsonl, got runs\.json"):
        quiet({"uniform": uniform}, GLM(3), rounds=50, resume="runs.json")

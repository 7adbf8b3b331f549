"""The log of decisions: what is in it, who may read it, and what other policies would have earned."""

from __future__ import annotations

import copy
import io
import json
import os
import stat
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from private_policies import SMALL, offered, play, small

from accounting import Budget
from dpbandits import evaluate, policies
from dpbandits.durability.decision_log import DecisionLog, _whole
from dpbandits.policies import EpsilonGreedy, OnePassPrivateGLM

COLUMNS = ["id", "index", "arm", "probability", "release", "reward", "arms"]


def seeded(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture(params=["log.csv", "log.parquet"])
def path(request, tmp_path):
    return tmp_path / request.param


def frame(path) -> pd.DataFrame:
    return pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)


@pytest.mark.parametrize("name", SMALL)
def test_every_private_policy_keeps_one(name, path):
    policy = small(name, rng=seeded(), decision_log=path)
    made = [policy.select(offered(policy)) for _ in range(9)]
    for i, decision in enumerate(made):
        policy.update(decision, i / 10)
    made += [policy.select(offered(policy)) for _ in range(3)]
    policy.update(made[9], 0.9)
    policy.forget(made[10])
    policy.decision_log.flush()
    rows = frame(path)
    assert list(rows.columns) == COLUMNS
    assert rows["id"].tolist() == list(range(11))
    assert rows["index"].tolist() == [decision.index for decision in made[:11]]
    # pandas before 3 reads a number of a file to the last digit but one
    assert rows["probability"].tolist() == pytest.approx([decision.probability for decision in made[:11]], rel=1e-15)
    assert rows["arm"].astype(str).tolist() == [decision.name or str(decision.index) for decision in made[:11]]
    assert rows["reward"].tolist()[:10] == [i / 10 for i in range(10)]
    assert np.isnan(rows["reward"].iloc[10])
    assert rows["release"].tolist() == sorted(rows["release"])
    assert rows["release"].iloc[0] == 0 < rows["release"].iloc[10]
    for text in rows["arms"]:
        np.testing.assert_array_equal(json.loads(text), offered(policy))


def test_it_is_read_as_it_is(path):
    policy = EpsilonGreedy(2, exploration=0.5, decision_log=path, rng=seeded())
    play(policy, 20)
    policy.forget(policy.select(np.eye(2)))
    policy.decision_log.flush()
    with pytest.raises(ValueError, match="column 'reward': the value is missing"):
        evaluate.Log.read(path)
    log = evaluate.Log.read(path, default_reward=0.0, offered="arms")
    assert len(log.rewards) == 21
    assert log.rewards.tolist() == 20 * [1.0] + [0.0]
    assert set(log.probabilities) <= {0.25, 0.75}
    assert len(log.offered) == 21


def test_only_its_owner_reads_it(path):
    policy = EpsilonGreedy(2, decision_log=path)
    play(policy, 3)
    policy.decision_log.flush()
    files = [path] if path.is_file() else [path, *path.iterdir()]
    assert not any(stat.S_IMODE(file.stat().st_mode) & 0o077 for file in files)


def test_persons_are_kept_only_if_asked(path, tmp_path):
    budget = Budget(4.0, 1e-5, unit="person")
    for log, columns in (
        (path, COLUMNS),
        (DecisionLog(tmp_path / "who.csv", persons=True), ["id", "person", *COLUMNS[1:]]),
    ):
        policy = small("OnePassPrivateGLM", budget=budget, decision_log=log)
        policy.update(policy.select(np.eye(2), person="ann"), 1.0)
        policy.decision_log.flush()
        rows = frame(policy.decision_log.path)
        assert list(rows.columns) == columns
        assert ("ann" in rows.to_csv()) == ("person" in columns)


def test_a_path_that_exists_is_refused_before_anything_is_charged(path):
    path.touch()
    with pytest.raises(ValueError, match="decision_log must be a new path"):
        EpsilonGreedy(2, decision_log=path)
    with pytest.raises(ValueError, match=r"decision_log must be a \.csv or \.parquet path"):
        EpsilonGreedy(2, decision_log="log.txt")
    with pytest.raises(TypeError, match="decision_log must be a path or a DecisionLog"):
        EpsilonGreedy(2, decision_log=3)


def test_a_loaded_policy_goes_on_with_it(path, tmp_path):
    policy = small("OnePassPrivateGLM", checkpoint=tmp_path / "state", decision_log=path)
    play(policy, 10)
    policy.decision_log.flush()
    late = policy.select(np.eye(2))
    del policy
    again = OnePassPrivateGLM.load(tmp_path / "state", unattended=True, decision_log=path)
    again.update(late.id, 1.0)  # what was open leaves no row
    play(again, 5)
    again.decision_log.flush()
    assert frame(path)["id"].tolist() == [*range(10), *range(11, 16)]
    assert "decision_log" not in again.released().to_json()


def test_copies_leave_it_alone(path):
    policy = EpsilonGreedy(2, decision_log=path, rng=seeded())
    twin = copy.deepcopy(policy)
    play(twin, 3)
    play(policy, 2)
    policy.decision_log.flush()
    assert twin.decision_log is None
    assert len(frame(path)) == 2


def test_expired_decisions_have_rows_without_reward(path):
    policy = EpsilonGreedy(2, decision_log=path, expire_after=2)
    for _ in range(5):
        policy.select(np.eye(2))
    policy.decision_log.flush()
    assert frame(path)["id"].tolist() == [0, 1, 2]
    assert frame(path)["reward"].isna().all()


def test_a_line_that_is_not_whole_is_cut_off(tmp_path):
    path = tmp_path / "log.csv"
    policy = EpsilonGreedy(2, decision_log=path)
    play(policy, 3)
    policy.decision_log.flush()
    with path.open("a") as file:
        file.write("3,0,0,0.97")
    play(policy, 2)
    policy.decision_log.flush()
    assert frame(path)["id"].tolist() == [0, 1, 2, 3, 4]
    assert _whole(io.BytesIO(b"a line\nanother\n" + b"x" * (2**16 - 1))) == 15  # a line ends where a read begins


def test_names_with_commas_quotes_and_lines_come_back(path):
    names = ['a,"b"', "line\nbreak", "=1+1"]
    policy = policies.DisjointThompson(2, names, decision_log=path, rng=seeded())
    for _ in range(60):
        policy.update(policy.select([0.1, 0.2]), 0.0)
    policy.decision_log.flush()
    assert set(evaluate.Log.read(path).arms) == {'a,"b"', "line\\nbreak", "=1+1"}


@pytest.mark.thorough
def test_rows_are_written_by_the_thousand_and_at_the_end_of_the_program(tmp_path):
    paths = [tmp_path / "log.csv", tmp_path / "log.parquet"]
    code = f"""
import numpy as np
import pandas as pd
from dpbandits.policies import Uniform
for path in {list(map(str, paths))!r}:
    policy = Uniform(2, decision_log=path)
    for i in range(1005):
        policy.update(policy.select(np.eye(2)), 1.0)
    print(len(pd.read_csv(path) if path.endswith(".csv") else pd.read_parquet(path)))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["1000", "1000"]
    assert [len(frame(path)) for path in paths] == [1005, 1005]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_child_of_a_fork_does_not_write_its_parents_rows(tmp_path):
    path = tmp_path / "log.csv"
    policy = EpsilonGreedy(2, decision_log=path)
    play(policy, 3)
    child = os.fork()
    if child == 0:
        policy.decision_log.flush()
        os._exit(0)
    os.waitpid(child, 0)
    assert not path.exists()
    policy.decision_log.flush()
    assert len(frame(path)) == 3


def test_a_log_that_cannot_be_written_does_not_stop_learning(tmp_path):
    (tmp_path / "gone").mkdir()
    policy = EpsilonGreedy(2, decision_log=DecisionLog(tmp_path / "gone" / "log.csv", every=1))
    (tmp_path / "gone").rmdir()
    with pytest.warns(UserWarning, match="keeps its rows, as it cannot be written"):
        play(policy, 1)
    with pytest.raises(FileNotFoundError):
        policy.decision_log.flush()
    (tmp_path / "gone").mkdir()
    policy.decision_log.flush()
    assert len(frame(tmp_path / "gone" / "log.csv")) == 1


def test_rows_that_a_full_disk_cut_are_written_again_whole(tmp_path, monkeypatch):
    """What a write left is cut off at once: another program may read the log before the next one."""
    path = tmp_path / "log.csv"
    policy = EpsilonGreedy(2, decision_log=DecisionLog(path, every=1))
    play(policy, 1)
    whole, opened = path.read_bytes(), os.fdopen

    class Full:
        def __init__(self, file):
            self.file = file

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()

        def __getattr__(self, name):
            return getattr(self.file, name)

        def write(self, data):
            return self.file.write(data[:3])

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdopen", lambda *given, **more: Full(opened(*given, **more)))
        with pytest.warns(UserWarning, match="is the disk full"):
            play(policy, 1)
    assert path.read_bytes() == whole
    policy.decision_log.flush()
    assert path.read_bytes().startswith(whole)
    assert len(frame(path)) == 2


# ---------------------------------------------------------------------------------- what others would have earned


def test_other_policies_are_valued_on_it(path):
    """The choices of one release, on the log of another policy."""
    trained = small("OnePassPrivateGLM", exploration="inverse_gap", rng=seeded(), horizon=400)
    logger = policies.Uniform(2, decision_log=path, rng=seeded(1))
    rng, liked = seeded(2), np.array([0.2, 0.8])
    for policy in (trained, logger):
        for _ in range(400):
            decision = policy.select(np.eye(2))
            policy.update(decision, float(rng.random() < liked[decision.index]))
    logger.decision_log.flush()
    log = evaluate.Log.read(path, offered="arms")
    released = trained.released()
    target = log.under(released)
    shares = released.probabilities(np.eye(2))
    np.testing.assert_allclose(target, shares[log.indices])
    low, high = evaluate.ips(log.rewards, log.probabilities, target).interval(1 - 1e-9)
    assert low < shares @ liked < high


@pytest.mark.thorough
@pytest.mark.parametrize(("runs", "least"), [(28, 14), pytest.param(200, 160, marks=pytest.mark.slow)])
def test_intervals_from_private_logs_hold_the_truth_as_often_as_they_say(tmp_path, runs, least):
    """95 % intervals for the uniform policy, from logs of a private policy.

    If each held with probability 0.93 (they are normal ones, for 300 rows of unequal weight), fewer than 14 of 28
    would with probability 8e-11, and fewer than 160 of 200 with 4e-10.
    """
    X = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    liked = np.array([0.3, 0.6, 0.5])
    held = 0
    for seed in range(runs):
        rng, path = seeded(seed), tmp_path / f"{seed}.csv"
        policy = OnePassPrivateGLM(
            2, budget=Budget(1.0, 1e-5), horizon=300, exploration="inverse_gap", gamma_scale=1.0,
            decision_log=path, rng=seeded(1000 + seed),
        )  # fmt: skip
        for _ in range(300):
            decision = policy.select(X)
            policy.update(decision, float(rng.random() < liked[decision.index]))
        policy.decision_log.flush()
        log = evaluate.Log.read(path)
        low, high = evaluate.ips(log.rewards, log.probabilities, np.full(300, 1 / 3)).interval()
        held += low <= liked.mean() <= high
    print(f"{held} of {runs} intervals hold the truth")
    assert held >= least

"""A user's log: both layouts in every format, one public scale, and errors that name the row and the column."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tabled import tabled

from dpbandits.lab.environments import LogReplay

pd = pytest.importorskip("pandas")

LONG = """round,arm,reward,price,rating
1,tea,0,0.3,0.9
1,coffee,1,0.1,0.7
2,tea,1,0.3,0.8
2,cocoa,0,3.0,4.0
2,coffee,0.5,0.1,0.6
"""


def episode(environment, seed=0):
    return list(environment.episode(np.random.default_rng(seed)))


@pytest.fixture
def written(tmp_path):
    def write(text, name="log.csv"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_long_layout(written):
    environment = LogReplay(written(LONG), shuffle=False)
    assert (environment.rounds, environment.rows, environment.dim, environment.rescaled) == (2, 5, 3, 1)
    assert environment.features == ["price", "rating"]
    first, second = episode(environment)
    assert first.arms * math.sqrt(2) == pytest.approx(np.array([[1, 0.3, 0.9], [1, 0.1, 0.7]]))
    assert first.rewards.tolist() == [0.0, 1.0]
    # (3, 4) has length 5 and is cut to length 1
    assert second.arms[1] * math.sqrt(2) == pytest.approx([1, 0.6, 0.8])
    assert second.rewards.tolist() == [1.0, 0.0, 0.5]
    assert first.means is None


def test_every_format_gives_the_same_rounds(written, tmp_path):
    path = written(LONG)
    frame = pd.read_csv(path)
    frame.to_parquet(tmp_path / "log.parquet")
    frame.to_csv(tmp_path / "windows.csv", index=False, encoding="utf-8-sig", lineterminator="\r\n")
    expected = episode(LogReplay(path))
    for source in (frame, tmp_path / "log.parquet", str(tmp_path / "windows.csv")):
        for a, b in zip(expected, episode(LogReplay(source)), strict=True):
            assert np.array_equal(a.arms, b.arms)
            assert np.array_equal(a.rewards, b.rewards)


@pytest.mark.thorough
@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(1, 4), st.floats(-5, 5), st.floats(-1e3, 1e3)), min_size=2, max_size=30),
    bound=st.floats(1e-3, 1e3),
)
def test_arms_never_pass_the_public_length(rows, bound):
    frame = pd.DataFrame(rows, columns=["n", "a", "b"]).assign(reward=0.5)
    frame["round"] = np.arange(len(frame)) // 3
    environment = LogReplay(frame, features=["a", "b"], feature_bound=bound)
    for now in episode(environment):
        assert np.linalg.norm(now.arms, axis=1).max() <= 1
    longer = np.hypot(frame["a"], frame["b"]) > bound
    assert abs(environment.rescaled - longer.sum()) <= (np.isclose(np.hypot(frame["a"], frame["b"]), bound)).sum()


def test_a_row_does_not_change_the_scale_of_the_others():
    frame = pd.DataFrame({"round": [1, 1, 2], "reward": [0.0, 1.0, 1.0], "a": [0.2, 0.4, 0.6]})
    for outlier in (1e6, 1e200):
        other = frame.assign(a=[0.2, 0.4, outlier])
        kept, again = (episode(LogReplay(source, shuffle=False)) for source in (frame, other))
        assert np.array_equal(kept[0].arms, again[0].arms)
        assert np.linalg.norm(again[1].arms) <= 1


def test_rewards_are_mapped_from_their_range():
    frame = pd.DataFrame({"round": [1, 1, 1], "reward": [1, 5, 2], "a": [0, 0, 0]})
    assert episode(LogReplay(frame, reward_range=(1, 5)))[0].rewards.tolist() == [0.0, 1.0, 0.25]


def test_labels_layout():
    frame = pd.DataFrame({"kind": ["b", "a", "c", "b"], "x": [1.0, 2.0, 3.0, 4.0], "y": [0.0, 0.0, 0.0, 0.0]})
    environment = LogReplay(frame, layout="labels", label_column="kind", feature_bound=4.0, shuffle=False)
    assert environment.labels == ["a", "b", "c"]
    assert environment.dim == 9
    rounds = episode(environment)
    assert [now.rewards.tolist() for now in rounds] == [[0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0]]
    assert (environment.context_dim, environment.n_arms) == (2, 3)
    assert rounds[1].context == pytest.approx([0.5, 0.0])
    assert max(np.linalg.norm(now.context) for now in rounds) <= 1.0
    blocks = rounds[1].arms.reshape(3, 3, 3) * math.sqrt(2)
    for k in range(3):
        assert blocks[k, k] == pytest.approx([1, 0.5, 0])
        assert not np.delete(blocks[k], k, axis=0).any()


def test_the_seed_shuffles_whole_rounds():
    number = np.repeat(np.arange(100), 2)
    frame = pd.DataFrame({"round": number, "reward": number / 99, "a": number / 100})
    environment = LogReplay(frame)
    orders = [[now.rewards[0] for now in episode(environment, seed)] for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2]) == pytest.approx(frame["reward"][::2].tolist())
    for now in episode(environment, 2):
        assert now.arms[0, 1] * math.sqrt(2) == pytest.approx(now.rewards[0] * 0.99)


@tabled(
    ("text", "message", "layout"),
    [
        ("round,reward,a\n1,0,0.3\n1,1,\n", "log.csv, row 3, column 'a': the value is missing", "long"),
        ("round,reward,a\n1,0,0.3\n1,1,x\n2,7,\n", "log.csv, row 3, column 'a': 'x' is not a finite number", "long"),
        ("round,reward,a\n1,0,inf\n", "log.csv, row 2, column 'a': 'inf' is not a finite number", "long"),
        ("round,reward,a\n1,nan,1\n", "log.csv, row 2, column 'reward': 'nan' is not a finite number", "long"),
        ("round,reward,a\n1,0,1\n1,1.5,x\n", r"log.csv, row 3, column 'reward': '1.5' must lie in \[0, 1\]", "long"),
        ("round,reward,a\n1,0,1\n,1,x\n", "log.csv, row 3, column 'round': the value is missing", "long"),
        ("round,reward,a\n1,0,1\n\n1,0,x\n", "log.csv, row 3, column 'round': the value is missing", "long"),
        (
            "round,reward,a\n1,0,1\n2,0,1\n1,0,1\n",
            "row 4, column 'round': '1' was seen before: the rows of a round",
            "long",
        ),
        (
            "round,arm,reward,a\n1,p,0,1\n2,p,0,1\n2,p,0,1\n",
            "row 4, column 'arm': 'p' stands twice in its round",
            "long",
        ),
        ("round,reward,a\n1,0,1\n1,0\n", "log.csv, row 3, column 'a': the value is missing", "long"),
        ("round,reward,a\n1,0,1\n1,0,1,1\n", "log.csv: expected 3 fields in line 3, saw 4", "long"),
        ("round,reward,a\n1,0,1,9\n1,0,1,9\n", "log.csv, row 2: there are more fields than in the header", "long"),
        ("round,reward,a\n", "log.csv: there must be at least one row of data", "long"),
        ("", "log.csv: no columns to parse", "long"),
        ("round,reward\n1,0\n", "log.csv: there must be at least one column of features, got round, reward", "long"),
        ("rund,reward,a\n1,0,1\n", "log.csv: there must be a column 'round', got rund, reward, a", "long"),
        ("label,a\nx,1\n,2\n", "log.csv, row 3, column 'label': the value is missing", "labels"),
        ("label,a\nx,1\ny,2\nx,?\n", r"log.csv, row 4, column 'a': '\?' is not a finite number", "labels"),
        ("label,a\nx,1\nx,2\n", "log.csv: column 'label' must hold at least two labels, got one", "labels"),
        ("a,b\nx,1\n", "log.csv: there must be a column 'label', got a, b", "labels"),
    ],
)
def test_the_first_bad_value_of_a_log_is_named(written, text, message, layout):
    with pytest.raises(ValueError, match=message):
        LogReplay(written(text), layout=layout)


@settings(max_examples=30, deadline=None)
@given(row=st.integers(0, 19), column=st.sampled_from(["round", "reward", "a", "b"]), later=st.integers(0, 19))
def test_any_missing_cell_of_a_table_is_found(row, column, later):
    frame = pd.DataFrame({"round": np.arange(20) // 4, "reward": 0.5, "a": 0.1, "b": 0.2}).astype(object)
    frame.loc[row, column] = None
    frame.loc[max(row + 1, later), "b"] = "bad"
    with pytest.raises(ValueError, match=f"the frame, row {row + 1}, column '{column}': the value is missing"):
        LogReplay(frame)


def test_bad_files_and_parameters_are_refused(written, tmp_path):
    path = written(LONG)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        LogReplay(tmp_path / "none.csv")
    with pytest.raises(ValueError, match=r"a log must be a \.csv or \.parquet file"):
        LogReplay(written(LONG, "log.txt"))
    with pytest.raises(ValueError, match=r"log\.parquet: Parquet magic bytes not found"):
        LogReplay(written(LONG, "log.parquet"))
    with pytest.raises(ValueError, match="layout must be 'long' or 'labels', got layout='wide'"):
        LogReplay(path, layout="wide")
    for bad in ((1, 0), (0, math.inf), (math.nan, 1)):
        with pytest.raises(ValueError, match="reward_range must be finite and increasing"):
            LogReplay(path, reward_range=bad)
    with pytest.raises(ValueError, match=r"feature_bound must be positive and finite, got feature_bound=0\.0"):
        LogReplay(path, feature_bound=0.0)
    with pytest.raises(ValueError, match="column 'reward' cannot be a feature"):
        LogReplay(path, features=["price", "reward"])
    with pytest.raises(ValueError, match="there must be a column 'colour'"):
        LogReplay(path, features=["colour"])
    with pytest.raises(ValueError, match="columns must have different names"):
        LogReplay(pd.DataFrame([[1, 0, 1, 1]], columns=["round", "reward", "a", "a"]))

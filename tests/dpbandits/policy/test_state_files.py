"""State files from elsewhere: whatever is in one, it loads or is refused by a ValueError, in little memory and time."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import math
import os
import subprocess
import sys
import time
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from private_policies import SIZES, SMALL, offered, play, small
from tabled import tabled

from accounting import Budget
from dpbandits import Policy, policies
from dpkit.models.likelihood import Rows
from dpkit.states import files

# what a leaf is replaced by: of other types, signs and sizes, and what asks for much memory or time
LEAVES: list[Any] = [
    *(None, True, False, "", "x", "linear", "every_round", "theory", "tree", "Doubling", "a" * 10**6, "\x00\ud800"),
    *(0, 1, -1, 2, 3, 60, 61, 1000, 10**6, 10**9, 10**12, 10**15, 2**31, 2**61, 2**62, 2**63, 10**30, 10**400),
    *(0.0, -0.0, 0.5, 1.0 + 1e-15, 1.00001, -1.5, 5e-324, 1e-300, 1e15, 1e308, math.nan, math.inf, -math.inf),
    *([], {}, [0], [[]], [1.0, -1.0], [10**12] * 3, [-math.inf, math.inf], {"x": 1}, [[[[[[[[1]]]]]]]]),
]
NUMBERS = [0.0, -0.0, 1.0, -1.0, 1.1, 1e-300, 1e308, -1e308, math.nan, math.inf, -math.inf, 2.0**62, -(2.0**62)]
INTEGERS = [0, 1, -1, 2, 10, 10**6, 10**12, 2**61, 2**63 - 1, -(2**63)]


def leaves(tree: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every node of a tree but its root."""
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in entries:
        yield (*way, key)
        yield from leaves(value, (*way, key))


def changed_array(array: np.ndarray, rng: np.random.Generator) -> Any:
    array = array.copy()
    match rng.integers(8):
        case 0 | 1 | 2 if array.size:
            values = NUMBERS if array.dtype == np.float64 else INTEGERS if array.dtype == np.int64 else [True, False]
            array.flat[rng.integers(array.size)] = values[rng.integers(len(values))]
            return array
        case 3:
            return array.astype([np.float64, np.int64, np.bool_][rng.integers(3)])
        case 4:
            return array.reshape(-1) if rng.random() < 0.5 else array[None]
        case 5 if array.ndim and len(array):
            return array[1:] if rng.random() < 0.5 else np.concatenate([array, array])
        case 6:
            return np.zeros([(), (0,), (0, 2**39), (10,), (3, 3), (1000,)][rng.integers(6)])
        case _:
            return array.tolist()


def changed(tree: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """A tree of which one to three nodes differ."""
    tree = copied(tree)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        ways = list(leaves(tree))
        if rng.random() < 0.4:  # the parameters, of which a constructor makes something
            ways = [way for way in ways if way[0] == "config" and len(way) > 1] or ways
        *way, key = ways[rng.integers(len(ways))]
        parent = tree
        for step in way:
            parent = parent[step]
        match rng.integers(12):
            case 0:
                del parent[key]
            case 1 if isinstance(parent, dict):
                parent[f"{key}_"] = parent[key]
            case 1:
                parent.append(parent[key])
            case 2:  # what stands elsewhere
                node: Any = tree
                for step in ways[rng.integers(len(ways))]:
                    node = node[step]
                parent[key] = copied(node)
            case _ if isinstance(parent[key], np.ndarray):
                with np.errstate(all="ignore"):
                    parent[key] = changed_array(parent[key], rng)
            case _:
                parent[key] = copied(LEAVES[rng.integers(len(LEAVES))])
    return tree


def copied(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: copied(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [copied(value) for value in tree]
    return tree.copy() if isinstance(tree, np.ndarray) else tree


def honest_policy(name: str, **more: Any) -> Policy:
    """A policy that has released, with decisions that are open, of which one's batch is closed."""
    kind = getattr(policies, name)
    if kind.trust == "none" and name not in SMALL:
        own = {"arms": 2} if kind.takes == "context" else SIZES.get(name, {})
        sizes = () if "dim" in kind.passed_on else (2,)
        policy = kind(*sizes, **{"horizon": 40, "reward_range": (0.0, 1.0), **own, **more})
    else:
        policy = small(name, **more)
    policy.select(offered(policy))
    play(policy, 6)
    policy.select(offered(policy))
    return policy


def faults(policy: Policy) -> list[str]:
    """What a loaded policy must not hold: NaN or infinity in what it learned, and arms or rows that are too long."""
    found = []

    def look(node: Any, way: str) -> None:
        if isinstance(node, dict):
            for key, value in node.items():
                look(value, f"{way}.{key}")
        elif isinstance(node, list):
            for value in node:
                look(value, way)
        elif isinstance(node, (float, np.ndarray)) and not np.isfinite(node).all():
            found.append(f"{way} is not finite")

    look(policy.kept(), "learned")
    for pending in policy.waiting.values():
        rows = pending.arm.reshape(getattr(policy, "k", 1), -1)  # of a slate
        if len(pending.arm) and not policy.offer.length(rows).max() <= 1.0:
            found.append("an arm is too long")
    for value in vars(policy).values():
        for rows in value if isinstance(value, list) else [value]:
            if isinstance(rows, Rows) and rows._bound == 1.0 and rows.count:
                lengths = np.linalg.norm(rows.array[:, :-1], rows._order, axis=1)
                found += ["a row is too long"] * (not (lengths <= 1.0).all())
    low, high = policy.reward_range
    found += ["reward_range is no range"] * (not low < high)
    return found


WITH_SHUFFLER = ["DisjointShuffleGLM", "ShuffleArms", "ShuffleGLM", "ShuffleLinUCB", "ShuffleOnePassGLM"]


class Reader:
    """Loads files that were changed from an honest one, and looks at what comes out."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.path = name, folder / name
        honest_policy(name).save(self.path)
        self.tree, self.honest = files.read(self.path)[0], self.path.read_bytes()
        self.loads = 0
        self.usual = 0
        # seconds, and bytes: a shuffled batch of another size or budget is calibrated anew
        self.patience, self.room = (10.0, 2**24) if name.startswith("Shuffle") else (1.0, 2**20)
        for _ in range(2):  # the first one fills caches
            self.usual = self.take(self.honest, limit=False)
        self.patience += 20 * self.took  # of a machine that is slow today

    def take(self, data: bytes, *, limit: bool = True) -> int:
        """Load these bytes; the most memory that it took."""
        self.path.write_bytes(data)
        peak = self.load_once()
        if limit:
            assert self.took <= self.patience, (self.name, self.took)
            # what is read is held as bytes, as text and as a tree; beside that there is what a load makes of parameters
            allowed = 4 * self.usual + 8 * len(data) + self.room
            if peak > allowed:
                # The first load of its kind in a process fills tables of constants, and cycles of a process that has
                # much else are collected late: two mebibytes for them, and another load tells what the file takes.
                assert peak <= allowed + 2**21, (self.name, peak)
                gc.collect()
                peak = self.load_once()
                assert peak <= allowed, (self.name, peak)
        return peak

    def load_once(self) -> int:
        tracemalloc.start()
        start = time.process_time()
        policy = None
        try:
            with contextlib.suppress(ValueError):
                policy = Policy.load(self.path, unattended=True)
        finally:
            self.took, peak = time.process_time() - start, tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        if policy is not None:
            self.loads += 1
            assert faults(policy) == []
        return peak

    def mutated(self, rng: np.random.Generator) -> bytes:
        """Other bytes, or another tree with the right checksum."""
        if rng.random() < 0.15:
            data = bytearray(self.honest[:-32])
            data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
            return bytes(data) + (hashlib.sha256(data).digest() if rng.random() < 0.8 else self.honest[-32:])
        while True:
            tree = changed(self.tree, rng)
            # the batches of a long run are as long in calibration as they were when the policy was made
            if self.name.startswith("Shuffle") and "horizon" in str(tree.get("config")):
                horizon = tree["config"].get("horizon")
                if isinstance(horizon, (int, float)) and 10**4 < horizon < math.inf:
                    continue
            with contextlib.suppress(TypeError, ValueError):  # no such file can be written
                return files.encode(tree)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("each", "shuffled", "seed", "least"), [(8, 5, 0, 200), pytest.param(230, 15, 10**6, 5000, marks=pytest.mark.slow)]
)
def test_mutated_files_load_soundly_or_are_refused(tmp_path, each, shuffled, seed, least):
    done, loads = 0, 0
    for name in policies.__all__:
        # a name's files are the same whatever other policies there are
        reader, rng = Reader(name, tmp_path), np.random.default_rng([seed, *name.encode()])
        for _ in range(shuffled if name in (*WITH_SHUFFLER, "LDPGLM") else each):
            data = reader.mutated(rng)
            try:
                reader.take(data)
            except ValueError:
                raise
            except Exception as error:
                raise AssertionError(f"{name}: {error!r} for {data!r}") from error
            done += 1
        loads += reader.loads - 2
    assert loads > done / 20, "nothing gets past the checks: the test looks at nothing"
    assert done >= least


def _budget(**changed: float) -> dict[str, Any]:
    return {"epsilon": 4.0, "delta": 1e-5, "adjacency": "replace", "unit": "row"} | changed


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        *(("OnePassPrivateGLM", asked) for asked in ({"dim": 10**6}, {"horizon": 10**15}, {"label": "a" * 10**6})),
        ("OnePassPrivateGLM", {"horizon": 10**15, "growth": 1 + 1e-15}),
        ("OnePassPrivateGLM", {"horizon": 10**15, "growth": 1.00001}),
        ("OnePassPrivateGLM", {"horizon": 10**15, "growth": 1.0}),
        ("LDPGLM", {"horizon": 10**7, "growth": 1.0}),
        ("DPHDB", {"n_arms": 10**9}),
        ("DPHDB", {"steps": 10**12}),
        ("DPHDB", {"forced": 10**12}),
        ("DPHDB", {"release": "every_round", "horizon": 10**12}),
        ("ShuffleGLM", {"batches": [10**12] * 3}),
        ("ShuffleOnePassGLM", {"budget": {"epsilon": 1e15, "delta": 1e-5, "adjacency": "replace", "unit": "round"}}),
        ("Doubling", {"first_epoch": 10**15}),
        *((name, {"budget": _budget(delta=5e-324)}) for name in WITH_SHUFFLER),
        *(("ShuffleLinUCB", {"budget": _budget(delta=delta)}) for delta in (1e-300, 1e-31)),
        ("Uniform", {"dim": 10**9}),
        ("GLMUCB", {"dim": 10**6}),
    ],
    ids=lambda value: str(value)[:60],
)
def test_files_that_ask_for_much(name, asked, tmp_path):
    reader = Reader(name, tmp_path)
    tree = copied(reader.tree)
    assert set(asked) <= set(tree["config"])
    tree["config"].update(asked)
    reader.take(files.encode(tree))


def load(tree: dict[str, Any], path: Path) -> Policy:
    path.write_bytes(files.encode(tree))
    return Policy.load(path, unattended=True)


def saved(policy: Policy, path: Path) -> dict[str, Any]:
    policy.save(path)
    return files.read(path)[0]


def test_a_budget_that_no_noise_meets_is_refused(tmp_path):
    tree = saved(honest_policy("DisjointShuffleGLM"), tmp_path / "state")
    tree["config"]["budget"]["delta"] = 5e-324
    with pytest.raises(ValueError, match=r"a state that fits together.*a delta above 5e-31"):
        load(tree, tmp_path / "state")


@pytest.mark.parametrize(
    ("name", "more"),
    [
        *((name, {}) for name in ("DisjointPrivateGLM", "DisjointShuffleGLM", "OnePassPrivateGLM", "ShuffleLinUCB")),
        ("Doubling", {"algorithm": "DisjointPrivateGLM", "parameters": {"arms": 2, "first_batch": 4}}),
    ],
)
def test_sums_in_the_units_of_another_version_are_refused(name, more, tmp_path):
    """Scales of records that changed since: also those of files that do not say theirs, as older ones do not."""
    tree = saved(honest_policy(name, **more), tmp_path / "state")
    load(tree, tmp_path / "state")
    *way, _ = next(way for way in leaves(tree) if way[-1] == "units")
    sums = tree
    for step in way:
        sums = sums[step]
    units = sums.pop("units")
    with pytest.raises(ValueError, match=r"units must be .* got none: another version wrote the state"):
        load(tree, tmp_path / "state")
    sums["units"] = units * np.where(np.arange(len(units)) == 1, 0.25 / 0.4, 1.0)
    with pytest.raises(ValueError, match=r"units must be \[.*\], by which sums are scaled here, got \["):
        load(tree, tmp_path / "state")


@pytest.mark.thorough
def test_counts_that_cannot_be(tmp_path):
    reader = Reader("Doubling", tmp_path)
    for key, value in (("epoch", 60), ("epoch", 61), ("decisions", 2**61), ("decisions", 2**63)):
        tree = copied(reader.tree)
        (tree if key in tree else tree["learned"])[key] = value
        reader.take(files.encode(tree))


STANDING = ["DisjointPrivateGLM", "DisjointThompson", "DisjointLinUCB", "DisjointShuffleGLM"]


@tabled(
    ("name", "entry", "value", "message"),
    [
        ("DPHDB", "indices", [2, 0], "index must be that of an arm, got index=2"),
        ("OnePassPrivateGLM", "indices", [-1, 0], "index must be that of an arm, got index=-1"),
        ("JointDPGLM", "notes", np.zeros((2, 2), np.int64), "open.notes must be finite, int64 and of shape"),
        ("Doubling", "notes", np.zeros((2, 0), np.int64), "open.notes must be finite, int64 and of shape"),
        ("DPLinUCB", "arms", np.full((2, 2), 0.8), "open arm must be finite, of 2 entries and length at most 1"),
        ("DPLinUCB", "ids", [1, 0], "open.ids must increase"),
        *((name, "indices", [0, 2], "index must be that of an arm, got index=2") for name in STANDING),
        # only where decisions count from the start, and not rewards, is an arm dropped before its reward comes
        *((name, "closed", [True, False], "open arm must be finite, of 2 entries") for name in (*STANDING[:2], "OFUL")),
    ],
)
def test_open_decisions_that_cannot_be_are_refused_at_once(name, entry, value, message, tmp_path):
    """Not only when their rewards come."""
    tree = saved(honest_policy(name), tmp_path / "state")
    tree["open"][entry] = np.asarray(value, dtype=tree["open"][entry].dtype)
    with pytest.raises(ValueError, match=message):
        load(tree, tmp_path / "state")


def test_open_decisions_of_an_epochs_standing_arms_are_checked_too(tmp_path):
    parameters = {"arms": 2, "first_batch": 4}
    policy = honest_policy("Doubling", algorithm="DisjointPrivateGLM", parameters=parameters)
    tree = saved(policy, tmp_path / "state")
    tree["open"]["indices"][-1] = 2
    with pytest.raises(ValueError, match="index must be that of an arm, got index=2"):
        load(tree, tmp_path / "state")


def line(record: Any) -> bytes:
    """Of a journal, with the right checksum."""
    text = record if isinstance(record, bytes) else json.dumps(record, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


@pytest.mark.parametrize(("name", "place", "value"), [("DPHDB", 2, 2), ("JointDPGLM", 4, []), ("DPLinUCB", 2, -1)])
def test_a_journal_with_decisions_that_cannot_be_is_refused_at_once(name, place, value, tmp_path):
    policy = honest_policy(name, checkpoint=tmp_path / "c")
    del policy
    gc.collect()
    (journal,) = tmp_path.glob(".c.*.journal")
    records = [json.loads(entry[9:]) for entry in journal.read_bytes().splitlines()]
    next(record for record in records if record[0] == "d")[place] = value
    journal.write_bytes(b"".join(map(line, records)))
    with pytest.raises(ValueError, match=r"an open decision's (index|note) must"):
        Policy.load(tmp_path / "c", unattended=True)


# ------------------------------------------------------------------------------------------------ journals


def changed_journal(data: bytes, rng: np.random.Generator) -> bytes:
    """Other bytes, or other records with the right checksum."""
    if rng.random() < 0.2:
        place = int(rng.integers(len(data)))
        return data[:place] + bytes([data[place] ^ 1 << int(rng.integers(8))]) + data[place + 1 :]
    records = [json.loads(entry[9:]) for entry in data.splitlines()]
    at = int(rng.integers(len(records)))
    match rng.integers(8):
        case 0:
            del records[at]
        case 1:
            records.insert(at, records[int(rng.integers(len(records)))])
        case 2:
            other = int(rng.integers(len(records)))
            records[at], records[other] = records[other], records[at]
        case 3 if records[at][0] == "d":
            values = rng.choice(NUMBERS, int(rng.integers(4)))
            records[at][3] = np.asarray(values, "<f8").tobytes().hex()
        case 4:
            records[at].append(None)
        case _:
            ways = list(leaves(records[at]))
            *way, key = ways[rng.integers(len(ways))]
            parent = records[at]
            for step in way:
                parent = parent[step]
            parent[key] = copied(LEAVES[rng.integers(len(LEAVES))])
    deep = [line(b"[" * 10**5)] if rng.random() < 0.02 else []
    return b"".join([*map(line, records), *deep])


@pytest.mark.thorough
@pytest.mark.parametrize("each", [5, pytest.param(500, marks=pytest.mark.slow)])
def test_mutated_journals_load_soundly_or_are_refused(tmp_path, each):
    folder, loads = tmp_path, 0
    for name in sorted(SMALL):
        path, rng = folder / name, np.random.default_rng(each)
        policy = honest_policy(name, checkpoint=path)
        policy.forget(policy.select(offered(policy)))
        made = policy.select_many([offered(policy) for _ in range(4)])
        policy.update_many(made[:3], [1.0, None, 0.0])
        del policy
        gc.collect()
        (journal,) = folder.glob(f".{name}.*.journal")
        checkpoint, honest = path.read_bytes(), journal.read_bytes()
        for _ in range(3 if name == "LDPGLM" else each):
            path.write_bytes(checkpoint)
            data = changed_journal(honest, rng)
            journal.write_bytes(data)
            policy = None
            with contextlib.suppress(ValueError):
                policy = Policy.load(path, unattended=True)
            if policy is not None:
                loads += 1
                assert faults(policy) == []
                assert len(policy.open_decisions) <= data.count(b",")
                del policy
                gc.collect()
    assert loads > each / 2, "nothing gets past the checks: the test looks at nothing"


# ------------------------------------------------------------------------------------------- guided search

HARNESS = """
import hashlib, pathlib, sys
import atheris

with atheris.instrument_imports(include=["dpkit.states", "dpbandits.policy.protocol", "dpbandits.policy.private"]):
    from dpbandits import Policy
    from dpkit.states import files
sys.path[:0] = {folders!r}
import test_state_files as fuzz

path = pathlib.Path({scratch!r})


def one(data):
    for whole in (data, data + hashlib.sha256(data).digest()):
        path.write_bytes(whole)
        try:
            policy = Policy.load(path, unattended=True)
        except ValueError:
            continue
        assert fuzz.faults(policy) == []


atheris.Setup(sys.argv, one)
atheris.Fuzz()
"""


@pytest.mark.slow
def test_a_guided_search_finds_nothing_else(tmp_path):
    """DPKIT_FUZZ_SECONDS and DPKIT_FUZZ_CORPUS say for how long, and where the corpus is kept."""
    pytest.importorskip("atheris", reason="the search for files is guided by the package atheris")
    seconds = int(os.environ.get("DPKIT_FUZZ_SECONDS", "20"))
    corpus = Path(os.environ.get("DPKIT_FUZZ_CORPUS", tmp_path / "corpus"))
    corpus.mkdir(parents=True, exist_ok=True)
    names = ("OnePassPrivateGLM", "DPHDB", "Doubling", "OFUL", "GLMUCB")
    for name in names:
        honest_policy(name).save(tmp_path / name)
        (corpus / f"seed-{name}").write_bytes((tmp_path / name).read_bytes()[:-32])
    script = tmp_path / "harness.py"
    here = Path(__file__).resolve()
    folders = [str(here.parent), str(here.parents[2] / "support"), str(here.parents[2] / "support" / "bandits")]
    script.write_text(HARNESS.format(folders=folders, scratch=str(tmp_path / "file")), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script, f"-max_total_time={seconds}", "-rss_limit_mb=1000", "-max_len=8192", corpus],
        env={**os.environ, "PYTHONPATH": str(here.parents[3])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=seconds + 300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert len(list(corpus.iterdir())) > len(names), "the corpus did not grow: nothing was found to be new"


class Weight:
    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight


class Weighted(policies.PrivateArms, Weight):
    """From outside: what comes after ``Policy`` takes arguments of its own, which are none of the state's."""

    def __init__(self, arms: int, **options: Any) -> None:
        policies.PrivateArms.__init__(self, arms, **options)
        Weight.__init__(self, 2.0)


def test_a_policy_with_a_class_beside_it_is_saved_and_loaded(tmp_path: Path) -> None:
    policy = Weighted(3, budget=Budget(1.0, 0.0), horizon=100)
    policy.update(policy.select(), 0.5)
    policy.save(tmp_path / "state")
    assert Weighted.load(tmp_path / "state", unattended=True).decisions == 1

"""Hashed JSON: the rule in two further transcriptions, the unit ball, what is refused, and what is reported."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from pathlib import Path

import hashed_by_rule
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tabled import tabled

from dpkit.features import Hashed, Scaled
from dpkit.features.murmur import murmur3

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "docs" / "tables" / "features-from-json.json"


@pytest.fixture(scope="module")
def vectors():
    return json.loads(VECTORS.read_text(encoding="utf-8"))


def dense(entries: dict[str, float], dim: int) -> np.ndarray:
    row = np.zeros(dim)
    row[list(map(int, entries))] = list(entries.values())
    return row


def test_the_vectors_are_met(vectors):
    for one in vectors["cases"]:
        parameters = vectors["parameters"][one["parameters"]]
        found = Hashed(**parameters).transform([one["row"]])[0]
        np.testing.assert_allclose(found, dense(one["entries"], parameters["dim"]), rtol=0, atol=vectors["tolerance"])
    # Appleby's function: values published with other implementations of it
    known = {("", 0): 0, ("", 1): 0x514E28B7, ("", 2**32 - 1): 0x81F16F39, ("hello", 0): 0x248BFA47}
    for one in vectors["hashes"]:
        assert murmur3([one["text"].encode()], one["seed"]).tolist() == [one["hash"]]
        assert known.pop((one["text"], one["seed"]), one["hash"]) == one["hash"]
    assert not known


def test_the_rule_in_another_language(vectors):
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    script = ROOT / "tests" / "support" / "hashed_by_rule.mjs"
    run = subprocess.run(["node", script, VECTORS], capture_output=True, text=True, check=True, encoding="utf-8")
    told = json.loads(run.stdout)
    assert told["hashes"] == [one["hash"] for one in vectors["hashes"]]
    for one, row in zip(vectors["cases"], told["rows"], strict=True):
        np.testing.assert_allclose(row, dense(one["entries"], len(row)), rtol=0, atol=vectors["tolerance"])


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(st.fixed_dictionaries({}, optional={"context": JSON, "action": JSON}), max_size=4), st.integers(1, 40))
@settings(max_examples=40, deadline=None)
def test_rows_are_those_of_the_rule_and_in_the_unit_ball(rows, dim):
    hashed = Hashed(dim, ranges={"context": (-2, 5)})
    found = hashed.transform(rows)
    assert found.shape == (len(rows), dim)
    assert (np.einsum("ij,ij->i", found, found) <= 1.0).all()
    for row, x in zip(rows, found, strict=True):
        by_rule = hashed_by_rule.row_of(row, dim, hashed.namespaces, hashed.interactions, hashed.ranges, 0)
        np.testing.assert_allclose(x, by_rule, rtol=0, atol=1e-9)
        # a row alone, and with what was hashed before
        np.testing.assert_allclose(hashed.transform([row])[0], x, rtol=0, atol=1e-15)


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_many_hashes_at_once(texts, seed):
    assert murmur3(texts, seed).tolist() == [hashed_by_rule.murmur3(text, seed) for text in texts]


@pytest.mark.thorough
def test_long_texts_need_their_own_length_only():
    """A long text among many short ones: a table as wide as that would need thirty gigabytes."""
    long = "x" * 300_003
    hashed = Hashed(8)
    rows = hashed.transform([{"action": [f"n{k}" for k in range(100_000)]}, {"action": long}])
    np.testing.assert_allclose(rows[1], Hashed(8).transform([{"action": long}])[0])
    assert murmur3([long.encode()], 5).tolist() == [hashed_by_rule.murmur3(long.encode(), 5)]


def test_arms_are_rows():
    hashed = Hashed(128, ranges={"context/age": (0, 100)})
    context = {"age": 31, "tags": ["jazz", "live"]}
    actions = [{"id": k, "kind": "ab"[k % 2]} for k in range(7)] + [None, {}, "text"]
    rows = hashed.transform([{"context": context, "action": one} for one in actions])
    np.testing.assert_allclose(hashed.arms(context, actions), rows, rtol=0, atol=1e-15)
    assert hashed.arms(context, []).shape == (0, 128)
    # which action suits whom: without interactions visitors do not change the difference of two arms
    plain = Hashed(128, interactions=[])
    one, two = (plain.arms({"age": age}, actions[:2]) for age in (0.2, 0.9))
    np.testing.assert_allclose(one[0] - one[1], two[0] - two[1], atol=1e-12)
    one, two = (Hashed(128).arms({"age": age}, actions[:2]) for age in (0.2, 0.9))
    assert np.abs((one[0] - one[1]) - (two[0] - two[1])).max() > 0.01


def test_what_meets_by_chance_cancels_on_average():
    """Inner products of hashed rows are those of the features, in mean over seeds: within six standard errors."""
    rows = [{"x": {f"f{k}": 0.3 for k in range(10)}}, {"x": {f"f{k}": 0.3 for k in range(5, 15)}}]
    products = []
    for seed in range(400):
        one, two = Hashed(16, namespaces=["x"], interactions=[], seed=seed).transform(rows)
        products.append(one @ two)
    assert abs(np.mean(products) - 0.45) < 6 * np.std(products) / math.sqrt(400) + 0.005
    assert np.std(products) > 0.05


def deep(levels: int):
    value = "x"
    for _ in range(levels):
        value = [value]
    return value


@tabled(
    ("value", "message"),
    [
        ({"a": math.nan}, "numbers must be finite, got one that is not at 'action/a'"),
        ([math.inf], r"numbers must be finite.*'action\[0\]'"),
        (10**400, "numbers must be finite"),
        ("\ud800", "texts must have a UTF-8 form"),
        ({1: "x"}, "keys must be texts, got 1 below 'action'"),
        ({"a": (1, 2)}, "rows must hold what json.loads returns, got a tuple at 'action/a'"),
        ({"a": np.float64(1)}, "got a float64 at 'action/a'"),
        (deep(33), "at most 32 levels"),
    ],
)
def test_what_is_no_json_is_refused(value, message):
    with pytest.raises(ValueError, match=message):
        Hashed(8).transform([{"action": value}])


def test_thirty_two_levels_are_taken():
    assert Hashed(8).transform([{"action": deep(32)}]).any()


@tabled(
    ("parameters", "message"),
    [
        ({"dim": 0}, "dim must be"),
        ({"dim": 2**31}, "dim must be below"),
        ({"dim": 8, "namespaces": "action"}, "namespaces must be a sequence of names"),
        ({"dim": 8, "namespaces": []}, "namespaces must be at least one"),
        ({"dim": 8, "namespaces": ["a", "a"]}, "all different"),
        ({"dim": 8, "interactions": [("context", "x")]}, "interactions must be pairs of different namespaces"),
        ({"dim": 8, "interactions": [("context", "context")]}, "interactions must be pairs of different namespaces"),
        ({"dim": 8, "ranges": {"context/a": (1, 1)}}, "ranges must be finite and increasing"),
        ({"dim": 8, "seed": -1}, "seed must be"),
        ({"dim": 8, "seed": 2**32}, "seed must be below"),
    ],
)
def test_wrong_parameters_are_refused(parameters, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Hashed(**parameters)


def test_wrong_rows_are_refused():
    with pytest.raises(ValueError, match="mappings from the namespaces"):
        Hashed(8).transform([{"acton": 1}])
    with pytest.raises(ValueError, match="mappings from the namespaces"):
        Hashed(8).transform(["x"])
    with pytest.raises(ValueError, match="namespaces must be two"):
        Hashed(8, namespaces=["a"], interactions=[]).arms({}, [{}])


def test_the_report_counts_what_meets():
    hashed = Hashed(32, namespaces=["item"], interactions=[], ranges={"item/price": (0, 50)})
    rows = [{"item": {"name": f"n{k}", "price": 60 if k < 3 else k, "size": 0.5}} for k in range(40)]
    report = hashed.collisions(rows)
    assert report.features == 42
    names = [f'item/name="n{k}' for k in range(40)] + ["item/price", "item/size"]
    entries = [hashed_by_rule.murmur3(name.encode()) % 2**31 % 32 for name in names]
    assert report.used == len(set(entries))
    assert report.alone == sum(entries.count(entry) == 1 for entry in entries) / 42
    assert report.expected == pytest.approx((31 / 32) ** 41)
    assert report.cut == {"item/price": 3 / 40}
    assert len(report.shared[0]) == max(map(entries.count, entries))
    assert len({entries[names.index(name)] for name in report.shared[0]}) == 1
    pair = Hashed(4096).collisions([{"context": {"a": 1, "b": "x"}, "action": {"c": "y"}}])
    assert pair.features == 5
    assert Hashed(8).collisions([]).alone == 1.0


ROWS = st.lists(st.lists(FLOATS, min_size=3, max_size=3), min_size=1, max_size=5)


@given(ROWS, st.floats(1e-300, 1e300))
@settings(max_examples=100, deadline=None)
def test_scaled_vectors_end_in_the_unit_ball(rows, bound):
    found = Scaled(bound).transform(rows)
    assert (np.einsum("ij,ij->i", found, found) <= 1.0).all()
    for row, x in zip(rows, found, strict=True):
        length = math.hypot(*row)
        if length < 1e300:
            np.testing.assert_allclose(x, np.array(row) / max(bound, length), rtol=1e-9, atol=1e-300)
    np.testing.assert_array_equal(Scaled(bound).transform(rows[0]), found[0])


def test_scaled_refuses():
    for rows, message in (([[math.nan]], "finite"), (["x"], "real numbers"), (np.zeros((1, 1, 1)), "one row")):
        with pytest.raises(ValueError, match=message):
            Scaled(1.0).transform(rows)
    with pytest.raises(ValueError, match="bound must be"):
        Scaled(0.0)

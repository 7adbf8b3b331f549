"""Who has taught: against a dictionary, on states that are damaged, and at a size where memory counts."""

from __future__ import annotations

import enum
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tabled import tabled

from dpkit.states.registry import NOBODY, Registry, kind_of

keys = st.one_of(
    st.integers(-(2**63), 2**63 - 1).filter(lambda key: key != NOBODY),
    # as if many hashes began alike, also at the end of the table
    st.sampled_from([*range(-9, -1), *range(8), 2**63 - 1, -(2**63)]),
)


class Rules:
    """What a registry is to do, in a dictionary."""

    def __init__(self, most):
        self.most, self.taught = most, {}

    def admit(self, key, batch):
        batches = self.taught.setdefault(key, [])
        if len(batches) >= self.most or batch in batches[-1:]:
            return False
        batches.append(batch)
        return True


@settings(max_examples=100, deadline=None)
@given(
    most=st.integers(1, 4), rounds=st.lists(st.tuples(keys, st.integers(0, 1)), max_size=300), again=st.integers(0, 300)
)
def test_as_a_dictionary_would_decide(most, rounds, again):
    registry, rules, batch = Registry(most), Rules(most), 0
    registry.kind = "int"
    for i, (key, step) in enumerate(rounds):
        if i == again:  # through a state
            resumed = Registry(most)
            resumed.resume(registry.kept(), batch=batch)
            registry = resumed
        may = registry.may_teach(key, batch)
        assert registry.admit(key, batch) == rules.admit(key, batch) == may
        batch += step
    assert len(registry) == len(rules.taught)


def test_many_persons_and_a_table_that_grows():
    registry = Registry(2)
    ids = [registry.key(f"person {i}") for i in range(5000)]
    assert len(set(ids)) == 5000
    assert all(registry.admit(key, 0) for key in ids)
    assert not any(registry.admit(key, 0) for key in ids)
    assert all(registry.admit(key, 1) for key in ids)
    assert not any(registry.admit(key, 2) for key in ids)
    assert len(registry) == 5000


def test_a_million_persons_in_a_hundred_megabytes():
    """A quarter of them in a quarter of that: filled through a state, then beyond the next doubling."""
    n = 2**18 - 5
    registry = Registry(3)
    registry.kind = "int"
    state = registry.kept()
    hashes = np.unique(np.random.default_rng(0).integers(0, 2**64 - 1, n, dtype=np.uint64))
    state |= {"hashes": hashes.view(np.int64), "marks": np.full(len(hashes), (1 << 32) + 7)}
    tracemalloc.start()
    try:
        registry.resume(state, batch=9)
        state.clear()
        held, peak = tracemalloc.get_traced_memory()
        assert held < 10e6
        assert peak < 25e6
        tracemalloc.reset_peak()
        registry.kept()
        assert tracemalloc.get_traced_memory()[1] < 25e6
    finally:
        tracemalloc.stop()
    assert len(registry) == len(hashes)
    for key in range(10):
        assert registry.admit(key, 9)
    some = hashes[::2503].view(np.int64).tolist()
    assert not any(registry.admit(key, 7) for key in some)
    assert all(registry.admit(key, 9) for key in some)


def test_two_salts_hash_differently_and_one_salt_always_alike():
    one, other = Registry(1), Registry(1)
    assert one.key("ann") == one.key("ann") != other.key("ann")


class Number(enum.IntEnum):
    SEVEN = 7


@tabled(
    ("person", "kind"),
    [
        ("", "str"),
        ("ü\ud800", "str"),
        (np.str_("x"), "str"),
        (b"\0", "bytes"),
        (-(10**30), "int"),
        (np.int8(-1), "int"),
        (np.uint64(2**64 - 1), "int"),
        (Number.SEVEN, "int"),
    ],
)
def test_ids(person, kind):
    assert kind_of(person) == kind
    assert Registry(1).key(person) != NOBODY


def test_equal_ids_are_one_person_and_others_are_not():
    registry = Registry(1)
    assert registry.key(7) == registry.key(np.int64(7)) == registry.key(Number.SEVEN) != registry.key(-7)
    numbers = [0, 1, -1, 127, 128, -128, -129, 255, 256, 2**63, -(2**63), 2**64, 10**40]
    assert len({registry.key(number) for number in numbers}) == len(numbers)


@tabled("person", [True, np.True_, 1.0, np.float64(1), None, ("a",), ["a"], {}, object(), np.array([1])])
def test_what_is_no_id(person):
    with pytest.raises(ValueError, match="person must be an id of type str, bytes or int"):
        Registry(1).key(person)


@pytest.mark.parametrize(("kind", "person"), [("str", 7), ("int", "7"), ("bytes", "7"), ("str", b"7")])
def test_ids_of_one_run_have_one_type(kind, person):
    registry = Registry(1)
    registry.kind = kind
    with pytest.raises(ValueError, match=f"person must be of type {kind}, like the run's first one"):
        registry.key(person)


MARK = (1 << 32) + 1


@tabled(
    "damage",
    [
        {"kind": "float"},
        {"kind": 3},
        {"kind": ""},
        {"salt": "0" * 31},
        {"salt": "g" * 32},
        {"salt": None},
        {"hashes": np.array([5, 3])},
        {"hashes": np.array([3, 3])},
        {"hashes": np.array([-5, 3])},  # they ascend without a sign
        {"hashes": np.array([3, NOBODY])},
        {"hashes": np.array([3.0, 5.0])},
        {"hashes": np.array([[3], [5]])},
        {"hashes": [3, 5]},
        {"hashes": np.array([3])},
        {"marks": np.array([MARK])},
        {"marks": np.array([MARK, 1])},
        {"marks": np.array([MARK, -MARK])},
        {"marks": np.array([MARK, MARK + (2 << 32)])},
        {"marks": np.array([MARK, MARK + 9])},
        {"more": 1},
    ],
)
def test_damaged_states_are_refused_and_change_nothing(damage):
    state = {"kind": "int", "salt": "0" * 32, "hashes": np.array([3, 5]), "marks": np.array([MARK, MARK + (1 << 32)])}
    registry = Registry(2)
    registry.resume(dict(state), batch=4)
    assert [registry.admit(key, 4) for key in (3, 5, 7)] == [True, False, True]
    before = registry.kept()
    with pytest.raises(ValueError, match="must"):
        registry.resume(state | damage, batch=4)
    assert repr(registry.kept()) == repr(before)
    for name in state:
        with pytest.raises(ValueError, match="persons must hold"):
            registry.resume({key: value for key, value in state.items() if key != name}, batch=4)


def test_hashes_that_are_all_alike_do_not_ask_for_more_memory_than_their_file():
    state = Registry(1).kept() | {"kind": "int", "hashes": np.arange(2**62 - 4000, 2**62), "marks": np.full(4000, MARK)}
    registry = Registry(1)
    tracemalloc.start()
    try:
        registry.resume(state, batch=1)  # slow, and no larger
        crowded = state | {"hashes": np.arange(-4002, -2)}
        with pytest.raises(ValueError, match="spread like random numbers"):
            registry.resume(crowded, batch=1)
        assert tracemalloc.get_traced_memory()[1] < 4e6
    finally:
        tracemalloc.stop()

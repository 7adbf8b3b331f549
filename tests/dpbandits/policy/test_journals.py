"""The journal: what is written comes back, what a full disk left is cut off, and what nobody needs is left behind."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from private_policies import play, small

from dpbandits.durability.journal import Entry, Journal
from dpbandits.durability.pending import Pending, Together

RUN = "0123456789abcdef"


def decision(round: int, size: int = 3) -> Pending:
    return Pending(np.arange(size) / 10, 1, round, (4, 5), 2**63 - 1)


def told(entry: Entry) -> Any:
    """An entry in a form that can be compared."""
    if not isinstance(entry, Pending):
        return entry
    return entry.arm.tolist(), entry.index, entry.round, entry.note, entry.person


def reopened(folder: Path, journal: Journal, seen: int) -> Journal:
    return Journal.reopened(folder / "c", RUN, {**journal.place(), "bytes": seen})


def test_entries_come_back_in_order_and_each_is_seen_or_not(tmp_path: Path) -> None:
    journal = Journal.fresh(tmp_path / "c", RUN, {0: decision(0)})
    entries: list[Entry] = [
        *(decision(i) for i in range(1, 4)),
        decision(4, size=0),
        "str",
        (1, 0.5),
        2,
        (3, (1.0, -2.0)),
        4,
        decision(5, size=1),
    ]
    journal.add(entries[:4])
    seen = journal.place()["bytes"]
    journal.add(entries[4:])
    found = list(reopened(tmp_path, journal, seen).entries())
    assert [told(entry) for _, entry in found] == [told(entry) for entry in [decision(0), *entries]]
    assert [known for known, _ in found] == [True] * 5 + [False] * 6


def test_a_journal_that_is_shorter_than_was_seen_is_refused(tmp_path: Path) -> None:
    journal = Journal.fresh(tmp_path / "c", RUN, {})
    with pytest.raises(ValueError, match="must be beside its checkpoint, whole"):
        reopened(tmp_path, journal, journal.place()["bytes"] + 1)


def test_what_comes_together_is_one_record(tmp_path: Path) -> None:
    journal = Journal.fresh(tmp_path / "c", RUN, {})
    journal.add([*((i, 1.0) for i in range(50)), *range(50, 100), *map(decision, range(100, 150))])
    assert len(journal.path.read_bytes().splitlines()) == 3  # whose it is, what was closed, and what was decided
    # arms of several lengths are no array
    several = Together([np.arange(size) / 10 for size in (2, 4)], [1, 2], range(150, 152))
    journal.add(several)
    found = list(reopened(tmp_path, journal, 0).entries())
    assert [told(entry) for _, entry in found[-2:]] == [told(entry) for entry in several]


@pytest.mark.parametrize("seen_all", [False, True])
def test_half_a_record_is_cut_off_where_the_checkpoint_ends_and_damage_before_it_is_refused(
    tmp_path: Path, seen_all: bool
) -> None:
    journal = Journal.fresh(tmp_path / "c", RUN, {})
    journal.add([(1, 0.5)])
    whole = journal.path.read_bytes()
    seen = len(whole) if seen_all else 0
    journal.path.write_bytes(whole + whole[-9:])
    assert [entry for _, entry in reopened(tmp_path, journal, seen).entries()] == [(1, 0.5)]
    assert journal.path.read_bytes() == whole
    journal.path.write_bytes(whole[:-1] + b"x" if seen_all else whole.replace(b"0.5", b"0.6") + whole[-9:])
    with pytest.raises(ValueError, match="is damaged at byte"):
        list(reopened(tmp_path, journal, seen).entries())


def test_what_a_full_disk_left_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal.fresh(tmp_path / "c", RUN, {})
    journal.add([(1, 0.5)])
    whole, file = journal.path.read_bytes(), journal._file

    class Full:
        """Has room for one byte more, after which what was written before it is still there."""

        def __getattr__(self, name: str) -> Any:
            return getattr(file, name)

        def write(self, data: bytes) -> int:
            return file.write(data[:1])

    monkeypatch.setattr(journal, "_file", Full())
    with pytest.raises(OSError, match="is the disk full"):
        journal.add([(2, 0.5)])
    assert journal.path.read_bytes() == whole


@pytest.mark.parametrize(
    "record",
    [
        ["d", 0, 0, "", [], 2**63],
        ["x", 0, 0, "", [], 0],
        ["d", 0, 0, "", [], -(2**63) - 1],
        ["d", 0, 0, "", [1, "a"], 0],
        ["d", 0, 0, "", [1, 2.0], 0],
        ["d", 0, True, "", [], 0],
        ["d", 0.0, 0, "", [], 0],
        ["D", [0, 1], [0, 0], "00" * 8, [[], []], [0, 0]],
        ["D", [0], [0, 0], "", [[]], [0]],
        ["R", [0, 1], [0.5]],
        ["r", 0, float("inf")],
        ["r", 0, [1.0, float("nan")]],
        ["r", 0, ["a"]],
        ["f", 0.5],
        ["p", 1],
    ],
    ids=repr,
)
def test_a_whole_record_that_says_nothing_is_refused(tmp_path: Path, record: list[Any]) -> None:
    journal = Journal.fresh(tmp_path / "c", RUN, {})
    text = json.dumps(record).encode()
    with journal.path.open("ab") as file:
        file.write(b"%08x %s\n" % (zlib.crc32(text), text))
    with pytest.raises(ValueError, match=r"the journal must hold records|non-hexadecimal|buffer size"):
        list(reopened(tmp_path, journal, 0).entries())


def test_a_journal_of_records_that_nobody_needs_is_left_behind(tmp_path: Path) -> None:
    policy = small("OnePassPrivateGLM", checkpoint=tmp_path / "c")
    first = policy.durable.journal.path
    play(policy, 38)
    policy.durable.keep(lambda: {}, policy.waiting)
    journal = policy.durable.journal
    assert journal.path != first
    assert not first.exists()
    assert journal.records <= 2 * len(policy.waiting) + 1


def test_a_journal_is_kept_while_most_of_it_is_of_use_and_renewed_once_when_asked(tmp_path: Path) -> None:
    policy = small("OnePassPrivateGLM", checkpoint=tmp_path / "c")
    for _ in range(5):  # rewards that do not come
        policy.select(np.eye(policy.dim))
    durable, paths = policy.durable, []
    for renew in (False, True, False, False):
        if renew:
            durable.renew()
        durable.keep(lambda: {}, policy.waiting)
        paths.append(durable.journal.path)
    assert paths[0] != paths[1] == paths[2] == paths[3]
    assert [path.exists() for path in paths[:2]] == [False, True]


def test_rewards_that_come_together_are_on_disk_when_they_are_acknowledged(tmp_path: Path) -> None:
    policy = small("OnePassPrivateGLM", checkpoint=tmp_path / "c")
    durable, synced = policy.durable, []
    durable.journal.sync = lambda: synced.append(durable.journal.records)
    durable.add((0, 0.5))
    assert len(synced) == 1
    with durable.together():
        durable.add((1, 0.5))
        durable.add((2, 0.5))
        assert len(synced) == 1
    assert len(synced) == 2
    assert synced[-1] == durable.journal.records

"""Calls that end in the middle, at every step that touches the disk or in memory, and what is called next: after a load
the state is what was acknowledged.

What each reward was, and how often it was learned, is noted in the secret half of a policy. So one can tell from a
loaded policy, and not only from what it would release, that nothing is lost, learned twice or learned in place of
another reward.
"""

from __future__ import annotations

import errno
import gc
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count, cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interrupts import interrupted
from private_policies import BUDGET, small

from dpbandits import Policy
from dpbandits.durability.journal import Journal
from dpbandits.policies import DisjointPrivateGLM
from dpkit.states import RunStopped

HORIZON = 40
SYNC = "fdatasync" if hasattr(os, "fdatasync") else "fsync"
CONTEXT = np.array([0.6, -0.8])
OPEN = 0  # what ``taught`` says of a decision that taught nothing
TAUGHT = {0.0: 1.0, 1.0: 3.0}  # and of one that taught this reward once; no two of these add up to one of them


class Noting(DisjointPrivateGLM):
    """A policy that notes what each decision has taught."""

    secret = ("sums", "taught")

    def __init__(self, dim, arms, link="logistic", *, budget, horizon, **options):
        self.taught = np.zeros(HORIZON)
        super().__init__(dim, arms, link, budget=budget, horizon=horizon, **options)

    def learn(self, pending, reward):
        self.taught[pending.round] += TAUGHT[reward]
        super().learn(pending, reward)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint, with a journal beside it: eight decisions, of which one has its reward and one is given up."""
    folder = tmp_path_factory.mktemp("begun")
    size = {"budget": BUDGET, "horizon": HORIZON, "first_batch": 10, "growth": 1.0}
    policy = Noting(2, ["a", "b"], **size, rng=np.random.default_rng(0), checkpoint=folder / "c")
    for _ in range(6):
        policy.select(CONTEXT)
    policy.select_many([CONTEXT] * 2)
    policy.update(0, 1.0)
    policy.forget(1)
    policy.run.release_hold()
    return folder


def loaded(folder: Path) -> Noting:
    policy = Policy.load(folder / "c", unattended=True)
    assert isinstance(policy, Noting)
    return policy


@pytest.fixture
def lives(begun: Path, tmp_path: Path) -> Callable[[], Noting]:
    """Policies at that point, each with a checkpoint of its own."""
    numbers = count()

    def one() -> Noting:
        policy = loaded(Path(shutil.copytree(begun, tmp_path / f"life {next(numbers)}")))
        policy.durable.journal.sync()
        return policy

    return one


def state_of(policy: Noting) -> tuple[Any, ...]:
    """What a load must bring back."""
    arms = policy.catalogue.kept()
    return (
        policy.decisions,
        policy.open_decisions,
        policy.releases,
        policy.taught.tolist(),
        arms["names"],
        arms["died"].tolist(),
    )


def reloaded(policy: Noting) -> tuple[Any, ...]:
    """The state after a crash, and a load that goes on."""
    folder = policy.checkpoint.parent
    policy.run.release_hold()
    again = loaded(folder)
    found = state_of(again)
    again.update_many(again.open_decisions, np.ones(len(again.open_decisions)))
    again.select(CONTEXT)
    again.run.release_hold()
    del policy, again
    gc.collect()  # each that is still there is asked by every load whether it holds that file
    return found


# ----------------------------------------------------------------------------------------------------- steps


class Place:
    """Where a call ends: at the n-th step that touches the disk, before or after it; or there and ever after."""

    def __init__(self, error: BaseException, n: int, *, after: bool, always: bool = False) -> None:
        self.error, self.n, self.after, self.always = error, n, after, always
        self.steps = 0

    def step(self, real: Callable[..., Any], *arguments: Any) -> Any:
        self.steps += 1
        hit = self.steps == self.n or (self.always and self.steps > self.n)
        if hit and not self.after:
            raise self.error
        found = real(*arguments)
        if hit:
            raise self.error
        return found


class _File:
    """A journal's file, whose steps are counted."""

    def __init__(self, file: Any, place: Place) -> None:
        self._file, self._place = file, place

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: bytes) -> int:
        return self._place.step(self._file.write, data)

    def truncate(self, size: int) -> int:
        return self._place.step(self._file.truncate, size)


@contextmanager
def ends_at(policy: Noting, place: Place) -> Iterator[None]:
    """Calls inside end at that place of what they write."""
    journal = policy.durable.journal
    file = journal._file
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "_file", _File(file, place))
        for name in {"fdatasync", "fsync", "replace"} & {*dir(os)}:
            patch.setattr(os, name, partial(place.step, getattr(os, name)))
        patch.setattr(journal, "add", partial(place.step, journal.add))
        try:
            yield
        finally:
            journal._file = file


# makes a call that may be ended in the middle; whether it was
Cut = Callable[[Noting, Callable[[], object]], bool]
FULL = OSError(errno.EIO, "the disk fails")
CALLS: dict[str, Callable[[Noting], object]] = {
    "select": lambda policy: policy.select(CONTEXT),
    "select_many": lambda policy: policy.select_many([CONTEXT] * 2),
    "register": lambda policy: policy.register(CONTEXT, 0),
    "update": lambda policy: policy.update(3, 0.0),
    "update_many": lambda policy: policy.update_many([3, 7], [0.0, None]),
    "forget": lambda policy: policy.forget(3),
    "add_arm": lambda policy: policy.add_arm("c"),
    "retire_arm": lambda policy: policy.retire_arm("a"),
}
# what may follow; ten decisions make a release due
THEN: dict[str, tuple[Callable[[Noting], object], ...]] = {
    "nothing": (),
    "another value": (lambda policy: policy.update(3, 1.0),),
    "forgotten": (lambda policy: policy.forget(3),),
    "an arm comes": (lambda policy: policy.add_arm("d"), CALLS["select"]),
    "a release": (*3 * (CALLS["select"],), lambda policy: policy.update(3, 1.0)),
}


def goes_on(policy: Noting, then: tuple[Callable[[Noting], object], ...]) -> bool | None:
    """Whether the reward of decision 3 was acknowledged, as 1, or that it was given up (False); None for neither."""
    acknowledged = None
    for call in then:
        try:
            was_open = 3 in policy.open_decisions
            call(policy)
            if was_open and 3 not in policy.open_decisions:
                acknowledged = bool(policy.taught[3])
        except (RunStopped, ValueError):
            pass
    return acknowledged


def check(lives: Callable[[], Noting], name: str, follows: str, cut: Cut) -> bool:
    """Play one life, and compare what is loaded with what was acknowledged; whether the call was cut short."""
    policy = lives()
    old = state_of(policy)
    was_cut = cut(policy, lambda: CALLS[name](policy))
    stopped = policy.run.stopped is not None
    acknowledged = goes_on(policy, THEN[follows])
    known = state_of(policy)
    found = reloaded(policy)
    if not stopped:
        assert found == known
        if acknowledged is not None:
            assert found[3][3] == (TAUGHT[1.0] if acknowledged else OPEN)
    else:
        assert acknowledged is None
        assert found in (old, after(lives, name)), "a state that is neither the old nor the new one"
    assert set(found[3]) <= {OPEN, *TAUGHT.values()}
    return was_cut


_AFTER: dict[str, tuple[Any, ...]] = {}


def after(lives: Callable[[], Noting], name: str) -> tuple[Any, ...]:
    """The state after a call that nothing ends."""
    if name not in _AFTER:
        policy = lives()
        CALLS[name](policy)
        _AFTER[name] = state_of(policy)
        policy.run.release_hold()
    return _AFTER[name]


ERRORS = {"interrupt": KeyboardInterrupt(), "error": FULL}
WAYS = [("interrupt", False, False), ("interrupt", True, False), ("error", False, False), ("error", False, True)]


@pytest.mark.parametrize(
    ("name", "all_of_them"),
    [
        *((name, False) for name in ("forget", "select", "update")),
        # ``register`` writes what ``select`` does, and ``retire_arm`` what ``add_arm`` does
        *(
            pytest.param(name, True, marks=pytest.mark.thorough)
            for name in sorted(CALLS.keys() - {"register", "retire_arm"})
        ),
    ],
)
def test_a_call_that_ends_where_something_is_written(name: str, all_of_them: bool, lives: Callable[[], Noting]) -> None:
    """At every write, cut and sync, before and after it; once, or on a disk that fails from there on."""
    ended, follows = 0, sorted(THEN) if all_of_them else ["an arm comes", "another value"]
    for kind, behind, always in WAYS:
        for n in count(1):

            def cut(policy: Noting, call: Callable[[], object]) -> bool:
                with ends_at(policy, Place(ERRORS[kind], n, after=behind, always=always)):  # noqa: B023
                    try:
                        call()
                    except (KeyboardInterrupt, OSError):
                        return True
                return False

            if not all(check(lives, name, one, cut) for one in follows):
                break
            ended += 1
    assert ended >= len(WAYS) * (2 if name in ("update", "update_many") else 1)


STRIDES = {name: 97 if name.endswith("arm") else 17 for name in CALLS}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "stride"),
    [*STRIDES.items(), *(pytest.param(name, 1, marks=pytest.mark.slow) for name in CALLS)],
)
def test_a_call_that_is_interrupted_at_any_line(name: str, stride: int, lives: Callable[[], Noting]) -> None:
    turns = cycle(sorted(THEN))
    for n in count(1, stride):
        if not check(lives, name, next(turns), lambda _, call: interrupted(call, n)):  # noqa: B023
            break
    assert n > 2 * stride


# ------------------------------------------------------------------------------------------- disks and older journals


def test_what_a_failed_sync_may_have_lost_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that has reported the loss once counts the rest as written: nothing it has is on this disk."""
    journal = Journal.fresh(tmp_path / "c", "0" * 32, {})
    journal.add([1])
    with monkeypatch.context() as patch:
        patch.setattr(os, SYNC, partial(Place(FULL, 1, after=False).step, None))
        with pytest.raises(OSError, match="the disk fails"):
            journal.sync()
    assert journal.doubtful
    whole, written = journal.path.read_bytes(), []
    real = Path.open
    monkeypatch.setattr(Path, "open", lambda path, *how: written.append(how) or real(path, *how))
    journal.sync()
    assert written == [("r+b",)]
    assert not journal.doubtful
    journal.sync()
    assert len(written) == 1
    monkeypatch.undo()
    assert journal.path.read_bytes() == whole


def test_the_next_entry_is_written_through_where_one_was_taken_back(lives: Callable[[], Noting]) -> None:
    """Whatever it is: else a cut in power might bring back a reward whose decision was given up."""
    policy, synced = lives(), []
    sync = getattr(os, SYNC)
    with ends_at(policy, Place(FULL, 2, after=False)), pytest.raises(OSError, match="the disk fails"):
        policy.update(3, 0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, SYNC, lambda handle: synced.append(handle) or sync(handle))
        policy.forget(3)
        policy.forget(4)
    assert len(synced) == 1


@pytest.mark.parametrize("many", [False, True])
def test_an_unmade_decision_that_an_earlier_version_left_in_a_journal(many: bool, lives: Callable[[], Noting]) -> None:
    """It lies before the place that the checkpoint has seen, and was made again after it, or not."""
    policy = lives()
    journal = policy.durable.journal
    pending = policy.waiting[7]
    journal.add([type(pending)(pending.arm, 0, 8)])
    policy.add_arm("c")
    if many:
        policy.select_many([CONTEXT] * 3)
        policy.update(8, 1.0)
    known = state_of(policy)
    assert reloaded(policy) == known


def test_a_journal_that_holds_more_than_one_decision_too_many_is_refused(lives: Callable[[], Noting]) -> None:
    policy = lives()
    pending = policy.waiting[7]
    policy.durable.journal.add([type(pending)(pending.arm, 0, 9)])
    policy.add_arm("c")
    policy.run.release_hold()
    with pytest.raises(ValueError, match="the journal must hold decision 8 next, got 9"):
        loaded(policy.checkpoint.parent)


# ------------------------------------------------------------------------------------------- without a journal


def test_what_an_interrupt_left_unmade_is_not_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    policy = small("OnePassPrivateGLM")
    policy.select(np.eye(2))
    kind = type(policy.waiting)
    real = kind.__setitem__

    def then_interrupted(self: Any, key: int, pending: Any) -> None:
        real(self, key, pending)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(kind, "__setitem__", then_interrupted)
        with pytest.raises(KeyboardInterrupt):
            policy.select(np.eye(2))
    assert policy.open_decisions == [0]
    policy.save(tmp_path / "saved")
    assert Policy.load(tmp_path / "saved", unattended=True).open_decisions == [0]
    assert policy.select(np.eye(2)).id == 1


@pytest.mark.parametrize("name", ["Doubling", "Restarting"])
def test_an_epochs_decision_that_is_half_counted_stops_the_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run has it, and the epoch does not."""
    policy = small(name)
    policy.select(np.eye(2))
    real = Policy.admit

    def then_interrupted(self: Any, pending: Any) -> None:
        real(self, pending)
        raise KeyboardInterrupt

    monkeypatch.setattr(Policy, "admit", then_interrupted)
    with pytest.raises(KeyboardInterrupt):
        policy.select(np.eye(2))
    monkeypatch.undo()
    with pytest.raises(RunStopped, match="was interrupted while it decided"):
        policy.select(np.eye(2))

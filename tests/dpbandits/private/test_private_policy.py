"""The promises of every private policy: one release of a batch, whatever happens; and no acknowledged reward lost."""

from __future__ import annotations

import contextlib
import copy
import errno
import gc
import os
import pickle
import signal
import sys
import time
from collections import Counter
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from bits import bits
from interrupts import Interrupter, at_once, interrupted
from ledgers import opened
from private_policies import BUDGET, EPOCHS, SMALL, budget_of, offered, play, small
from tabled import tabled

from accounting import Ledger
from dpbandits import Policy, PrivatePolicy
from dpbandits.policies import OnePassPrivateGLM
from dpkit.moments import whole_digits
from dpkit.states import RunStopped, files

with_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


@pytest.fixture(params=sorted(SMALL))
def name(request):
    return request.param


# ---------------------------------------------------------------------------------------------- interrupts


@pytest.mark.parametrize(("most", "least"), [(12, 10), pytest.param(400, 60, marks=pytest.mark.slow)])
def test_an_interrupted_release_is_never_made_twice(name, most, least):
    """At so many of its lines, evenly spread."""
    with Interrupter(sys.maxsize) as whole:
        pass
    policy = small(name)
    play(policy, 4)
    with whole:
        policy.select(offered(policy))
    lines = sys.maxsize - whole.left
    points = np.unique(np.linspace(1, lines, most).astype(int)).tolist()
    assert len(points) >= least
    for n in points:
        policy = small(name)
        play(policy, 4)
        inner = policy.policy if name in EPOCHS else policy
        with closed_batches(type(inner)) as entered:
            with contextlib.suppress(KeyboardInterrupt), Interrupter(n):
                policy.select(offered(policy))
            with contextlib.suppress(RunStopped):
                policy.select(offered(policy))
                # it goes on right: the batch was released once, before or after the interrupt
                assert inner.releases == sum(entered.values()) == 1
        assert max(entered.values(), default=0) <= 1, f"a batch was released twice after an interrupt at line {n}"


@contextlib.contextmanager
def closed_batches(kind, before=lambda: None):
    """How often batches of a number have been closed inside."""
    entered, close = Counter[int](), kind.close_batch

    def counted(self):
        before()
        entered[self.releases] += 1
        return close(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "close_batch", counted)
        yield entered


def test_it_says_in_a_line_what_it_is_and_in_a_table_how_it_was_made(name):
    policy = small(name)
    policy.select(offered(policy))
    size = [] if policy.catalogue is None else [f"{len(policy.catalogue.standing)} arms"]
    if not size or policy.dim > 1:
        size.append(f"dim={policy.dim}")
    assert repr(policy).startswith(
        f"{type(policy).__name__}({', '.join(size)}): 1 of 40 decisions, 0 releases, {policy.trust} (4, 1e-05)"
    )
    assert "\n" not in repr(policy)
    assert "SIMULATION" in repr(small(name, rng=np.random.default_rng(0)))
    assert "<td>base_rate</td>" in policy._repr_html_()


def test_an_interrupted_update_learns_once_or_stops(name):
    n = 1
    while True:
        policy = small(name, rng=np.random.default_rng(0))
        play(policy, 2)
        decision = policy.select(offered(policy))
        learned, real = [], policy.learn
        policy.learn = lambda *told: (learned.append(told), real(*told))  # noqa: B023
        if not interrupted(lambda: policy.update(decision, 1.0), n):  # noqa: B023
            break
        with contextlib.suppress(RunStopped, ValueError):
            policy.update(decision, 1.0)
        assert len(learned) <= 1
        n += 5
    assert n > 5


# every policy meets one of the three places, and the two that stand for the rest all of them
PLACES = ("draft", "place", "mark")
STOPS = [(name, PLACES[i % 3]) for i, name in enumerate(sorted(SMALL))]
STOPS += [(name, place) for name in ("OnePassPrivateGLM", "Doubling") for place in PLACES if (name, place) not in STOPS]


@pytest.mark.parametrize(("name", "place"), STOPS)
def test_an_exception_of_the_disk_or_the_ledger_stops_the_policy(name, place, tmp_path, monkeypatch):
    with Ledger.create(tmp_path / "ledger", budget_of(name)) as ledger:
        policy = small(name, ledger=ledger, checkpoint=tmp_path / "c")
        play(policy, 4)
        held = (tmp_path / "c").read_bytes()

        def full(*_: object, **__: object):
            raise OSError(errno.ENOSPC, "no space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(*((ledger, place) if place == "mark" else (files, place)), full)
            with pytest.raises(OSError, match="no space left"):
                policy.select(offered(policy))
        for by_hand in range(2):
            with pytest.raises(RunStopped, match=r"stopped at release .*: load the newest checkpoint, .*c"):
                _ = policy.save(tmp_path / "by hand") if by_hand else policy.select(offered(policy))
        assert (tmp_path / "c").read_bytes() == held
        del policy
        gc.collect()
        again = Policy.load(tmp_path / "c", ledger=ledger)
        assert again.decisions == 4
        assert again.releases == (1 if place == "place" else 0)  # it was marked: the draft is found and used
        play(again, 10)
        assert list(tmp_path.glob("*.draft")) == []


# ------------------------------------------------------------------------------- threads, forks and copies


def shared(policy: PrivatePolicy, rounds: int) -> list[list[int]]:
    """Eight threads play so many rounds each: the ids that each has told."""
    told: list[list[int]] = [[] for _ in range(8)]

    def work(mine: list[int]) -> None:
        for _ in range(rounds):
            decision = policy.select(offered(policy))
            policy.update(decision, 1.0)
            mine.append(decision.id)

    at_once(partial(work, mine) for mine in told)
    return told


def test_threads_share_a_policy(name):
    policy = small(name, horizon=80, **({EPOCHS[name]: 20} if name in EPOCHS else {}))
    assert sorted(chain.from_iterable(shared(policy, 10))) == list(range(80))
    assert policy.open_decisions == []
    if name not in EPOCHS:
        assert policy.releases == sum(end < 80 for end in policy.schedule.ends)


@pytest.mark.slow
def test_eight_threads_of_a_hundred_thousand_rounds(name):
    """Ids are unique, releases are the schedule's, and no reward is lost."""
    batches = {"batches": [1000] * 20 + [800_000]} if name == "ShuffleGLM" else {}
    policy = small(name, horizon=800_000, **batches)
    with closed_batches(type(policy)) as entered:
        told = shared(policy, 100_000)
    assert [len(some) for some in told] == [100_000] * 8
    assert (np.sort(np.concatenate(told)) == np.arange(800_000)).all()
    assert policy.open_decisions == []
    if name not in EPOCHS:
        assert policy.releases == len(policy.schedule.ends)
        assert dict(entered) == dict.fromkeys(range(policy.releases), 1)


@pytest.mark.slow
def test_locks_and_checks_cost_a_twenty_fifth_of_a_round():
    """Rounds of the two alternate; the ratio is that of their medians in a block, and of forty blocks the median."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 20))
    X /= 1.001 * np.linalg.norm(X, axis=1, keepdims=True)

    class Bare(OnePassPrivateGLM):
        def _check(self) -> None:
            pass

        def _check_open(self) -> None:
            pass

    policies = [
        kind(20, budget=BUDGET, horizon=10**6, first_batch=400, rng=np.random.default_rng(1))
        for kind in (OnePassPrivateGLM, Bare)
    ]
    policies[1].lock = contextlib.nullcontext()
    took, ratios = np.zeros((400, 2)), []
    for _ in range(40):
        for i, row in enumerate(took):
            for which in (0, 1) if i % 2 else (1, 0):
                start = time.perf_counter()
                policies[which].update(policies[which].select(X), 1.0)
                row[which] = time.perf_counter() - start
        ratios.append(np.divide(*np.median(took, axis=0)))
    assert np.median(ratios) <= 1.04


@with_fork
def test_the_child_of_a_fork_refuses_at_once(name):
    policy = small(name)
    play(policy, 4)
    policy.lock.acquire()  # another thread holds it at the moment of the fork
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            policy.select(offered(policy))
            os.write(write, b"went on")
        except RunStopped as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    policy.lock.release()
    os.waitpid(child, 0)
    assert f"belongs to process {os.getpid()}".encode() in os.read(read, 1000)
    os.close(read)
    os.close(write)
    play(policy, 1)


@tabled("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_copies_are_refused(name, way):
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        way(small(name))


def test_a_signal_handler_may_call_in(name):
    """The lock is reentrant: a handler that selects in the middle of a release is refused, and nothing waits."""
    policy = small(name)
    play(policy, 4)

    def handler() -> None:
        with pytest.raises(RunStopped):
            policy.select(offered(policy))

    with closed_batches(type(policy.policy if name in EPOCHS else policy), handler) as entered:
        play(policy, 1)
    assert sum(entered.values()) == 1
    play(policy, 3)


# --------------------------------------------------------------------------------------- marks and states


def test_states_made_with_a_ledger_need_it_and_others_need_a_word(name, tmp_path):
    small(name).save(tmp_path / "alone")
    with pytest.raises(ValueError, match="goes on only where unattended=True says"):
        Policy.load(tmp_path / "alone")
    play(Policy.load(tmp_path / "alone", unattended=True), 6)
    ledger = Ledger(budget_of(name))
    small(name, ledger=ledger).save(tmp_path / "with")
    with pytest.raises(ValueError, match="ledger must be given for a state that was made with one"):
        Policy.load(tmp_path / "with", unattended=True)
    play(Policy.load(tmp_path / "with", ledger=ledger), 6)


def test_an_older_state_is_refused_and_the_newest_goes_on(name, tmp_path):
    ledger = Ledger(budget_of(name))
    policy = small(name, ledger=ledger)
    play(policy, 2)
    policy.save(tmp_path / "older")
    play(policy, 4)
    policy.save(tmp_path / "newer")
    assert policy.releases == 1
    with pytest.raises(ValueError, match="the state must be the newest of its run: the ledger has marked release 1"):
        Policy.load(tmp_path / "older", ledger=ledger)
    again = Policy.load(tmp_path / "newer", ledger=ledger)
    play(again, again.horizon - again.decisions)
    # and the one that was outrun stops before its next release
    with pytest.raises(RunStopped, match="another process goes on with this run"):
        play(policy, 30)
    with pytest.raises(RunStopped):
        policy.select(offered(policy))


def test_of_two_that_continue_one_state_one_is_stopped(name, tmp_path):
    ledger = Ledger(budget_of(name))
    one = small(name, ledger=ledger)
    play(one, 3)
    one.save(tmp_path / "start")
    other = Policy.load(tmp_path / "start", ledger=ledger)
    play(one, 4)
    assert one.releases == 1
    with pytest.raises(RunStopped, match="another process goes on with this run"):
        play(other, 4)
    play(one, 8)


def test_a_checkpoint_is_held_by_one_object(name, tmp_path):
    policy = small(name, checkpoint=tmp_path / "c")
    with pytest.raises(BlockingIOError, match="must be used by one object at a time"):
        Policy.load(tmp_path / "c", unattended=True)
    with pytest.raises(ValueError, match="path must not be the checkpoint"):
        policy.save(tmp_path / "c")
    with pytest.raises(ValueError, match=r"checkpoint must be a new file, got .*, which exists"):
        small(name, checkpoint=tmp_path / "c")


def test_a_stopped_policy_that_is_still_there_lets_go_of_its_checkpoint(name, tmp_path, monkeypatch):
    with Ledger.create(tmp_path / "ledger", budget_of(name)) as ledger:
        policy = small(name, ledger=ledger, checkpoint=tmp_path / "c")
        play(policy, 4)
        with monkeypatch.context() as patch:
            patch.setattr(files, "draft", interrupt)
            with pytest.raises(KeyboardInterrupt):
                policy.select(offered(policy))
        again = Policy.load(tmp_path / "c", ledger=ledger)  # which is what the refusal says
        with pytest.raises(RunStopped, match="load the newest checkpoint"):
            policy.select(offered(policy))
        play(again, 4)
        assert again.releases >= 1
        with pytest.raises(BlockingIOError, match="go on with the first, or delete it"):
            Policy.load(tmp_path / "c", ledger=ledger)


def interrupt(*_, **__):
    raise KeyboardInterrupt


def test_the_journal_brings_everything_back(name, tmp_path):
    """Rewards since the last release, late ones, open and forgotten decisions; twice over, to the same sums."""
    policy = small(name, checkpoint=tmp_path / "c")
    late = [policy.select(offered(policy)) for _ in range(3)]
    play(policy, 4)
    policy.forget(late[2])
    policy.update(late[0], 1.0)
    play(policy, 1)
    known = (policy.decisions, policy.releases, policy.open_decisions)
    learned = bits(policy.kept())
    del policy
    gc.collect()
    for _ in range(2):
        again = Policy.load(tmp_path / "c", unattended=True)
        assert isinstance(again, PrivatePolicy)
        assert (again.decisions, again.releases, again.open_decisions) == known
        if again.trust == "joint":  # the other two draw noise when a reward comes
            assert bits(again.kept()) == learned
        assert again.checkpoint == tmp_path / "c"
        del again
        gc.collect()
    again = Policy.load(tmp_path / "c", unattended=True)
    again.update(late[1].id, 1.0)
    play(again, 12)
    assert again.open_decisions == []
    assert len(list(tmp_path.glob(".c.*.journal"))) == 1


def test_the_journal_is_cut_where_a_write_broke_off_and_refused_where_it_is_damaged(tmp_path):
    policy = small("OnePassPrivateGLM", checkpoint=tmp_path / "c")
    play(policy, 3)
    learned = bits(policy.kept())
    del policy
    gc.collect()
    (journal,) = tmp_path.glob(".c.*.journal")
    whole = journal.read_bytes()
    for torn in (whole + b"1234", whole + whole[:40]):
        journal.write_bytes(torn)
        again = Policy.load(tmp_path / "c", unattended=True)
        assert bits(again.kept()) == learned
        del again
        gc.collect()
        assert journal.read_bytes() == whole
    for at in range(0, len(whole) - 60, 7):
        journal.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(ValueError, match="journal"):
            Policy.load(tmp_path / "c", unattended=True)
    journal.unlink()
    with pytest.raises(ValueError, match=r"the journal .* must be beside its checkpoint"):
        Policy.load(tmp_path / "c", unattended=True)


@pytest.mark.thorough
def test_a_checkpoint_does_not_grow_with_the_rewards_that_are_late(tmp_path):
    policy = OnePassPrivateGLM(2, budget=BUDGET, horizon=4000, first_batch=4, checkpoint=tmp_path / "c")
    sizes = []
    for _ in range(4000):
        policy.select(np.eye(2))
        sizes.append((tmp_path / "c").stat().st_size)
    # every release keeps what it took in and what it gave, five numbers each
    assert max(sizes) < 1.2 * sizes[0] + 80 * policy.releases
    (journal,) = tmp_path.glob(".c.*.journal")
    assert journal.stat().st_size < 4000 * 120


# -------------------------------------------------------------------------------------- crashes of processes


def in_a_child(work) -> int:
    """Run ``work`` in a fork, which is a process of its own; its pid."""
    if (child := os.fork()) == 0:
        ended = 3  # by an exception
        try:
            work()
            ended = 0
        finally:
            os._exit(ended)
    return child


def of_eight(ledger: Ledger, checkpoint: Path) -> OnePassPrivateGLM:
    """A policy that releases after every eight rounds."""
    known = {"budget": BUDGET, "horizon": 20_000, "first_batch": 8, "growth": 1.0, "reward_range": (0, 1)}
    return OnePassPrivateGLM(2, "linear", **known, metric="plain", ledger=ledger, checkpoint=checkpoint)


def rounds_that_are_told(folder: Path, told: int) -> None:
    """Load or make the policy, and play: every acknowledged reward is told to the parent."""
    with opened(folder / "ledger", BUDGET) as ledger:
        policy = Policy.load(folder / "c", ledger=ledger) if (folder / "c").exists() else of_eight(ledger, folder / "c")
        os.write(told, b"s")
        while True:
            policy.update(policy.select([[1.0, 0.0]]), 1.0)
            os.write(told, b".")


def rewards_in(policy: PrivatePolicy) -> int:
    """How many rewards the open batch has: at w = 1 and A = I each adds the same to the first entry of its matrix."""
    sums = policy.sums
    unit = 2 ** whole_digits(policy.horizon, 5)[0]
    return round(sums.batch[0, 0] / round(unit * sums.kept()["units"][0]))


def check_after_a_crash(folder: Path, acknowledged: int) -> int:
    """Every acknowledged reward is in the sums, and every release was marked; how many rewards there are."""
    with Ledger.open(folder / "ledger") as ledger:
        policy = Policy.load(folder / "c", ledger=ledger)
        mark = ledger.newest_mark(policy.run.id)
        assert (0 if mark is None else mark.step) == policy.releases == policy.sums.sums.steps
        learned = policy.schedule.start(policy.releases) + rewards_in(policy)
        assert acknowledged <= learned <= acknowledged + 1
        assert policy.decisions - learned in (0, 1)
        if policy.decisions > learned:  # chosen, and killed before its reward was acknowledged
            policy.update(policy.open_decisions[0], 1.0)
        assert len(ledger.rows()) == 1
        return policy.decisions


@pytest.mark.thorough
@with_fork
@pytest.mark.parametrize("count", [12, pytest.param(500, marks=pytest.mark.slow)])
def test_kills_lose_no_acknowledged_reward_and_repeat_no_release(tmp_path, count):
    folder = tmp_path
    rng, acknowledged = np.random.default_rng(0), 0
    for _ in range(count):
        read, write = os.pipe()
        child = in_a_child(lambda: rounds_that_are_told(folder, write))  # noqa: B023
        os.close(write)
        assert os.read(read, 1) == b"s"
        told = b""
        for _ in range(rng.integers(2, 40)):  # anywhere in its work, however slow the machine
            told += os.read(read, 1)
        time.sleep(float(rng.uniform(0.0, 0.001)))
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        while chunk := os.read(read, 1 << 16):
            told += chunk
        os.close(read)
        acknowledged = check_after_a_crash(folder, acknowledged + len(told))
        gc.collect()
    assert acknowledged > count


def dies_at(n: int) -> None:
    """End the process at its n-th call that changes a file."""
    left = [n]

    def counting(function):
        def wrapped(*arguments, **more):
            left[0] -= 1
            if left[0] == 0:
                os._exit(9)
            return function(*arguments, **more)

        return wrapped

    for call in ("open", "fsync", "fdatasync", "replace", "unlink", "link"):
        setattr(os, call, counting(getattr(os, call)))
    files.encode = counting(files.encode)


@pytest.mark.thorough
@with_fork
def test_a_process_that_dies_at_any_call_of_a_transaction(tmp_path):
    """The eighth reward, and the release that is due at the next choice."""
    points = 0
    for n in range(1, 60):
        folder = tmp_path / str(n)
        folder.mkdir()

        def until_the_release(folder=folder):
            with Ledger.create(folder / "ledger", BUDGET) as ledger:
                policy = of_eight(ledger, folder / "c")
                for _ in range(7):
                    policy.update(policy.select([[1.0, 0.0]]), 1.0)
                dies_at(n)  # noqa: B023
                policy.update(policy.select([[1.0, 0.0]]), 1.0)
                policy.select([[1.0, 0.0]])

        _, status = os.waitpid(in_a_child(until_the_release), 0)
        with Ledger.open(folder / "ledger") as ledger:
            policy = Policy.load(folder / "c", ledger=ledger)
            mark = ledger.newest_mark(policy.run.id)
            assert (0 if mark is None else mark.step) == policy.releases == policy.sums.sums.steps
            learned = policy.schedule.start(policy.releases) + rewards_in(policy)
            assert learned in (7, 8)
            assert list(folder.glob(".c.*.draft")) == []
        del policy
        gc.collect()
        if os.waitstatus_to_exitcode(status) == 0:
            assert learned == 8
            break
        points += 1
    assert points >= 8


@pytest.mark.thorough
@with_fork
@pytest.mark.parametrize("races", [4, pytest.param(200, marks=pytest.mark.slow)])
def test_two_processes_at_the_same_release(tmp_path, races):
    """With a copy of the checkpoint each: one wins, and its checkpoint is the one with the newest mark."""
    for race in range(races):
        folder = tmp_path / str(race)
        folder.mkdir()
        with Ledger.create(folder / "ledger", BUDGET) as ledger:
            policy = small("OnePassPrivateGLM", ledger=ledger)
            play(policy, 4)
            policy.save(folder / "start")
            run = policy.run.id
        start = time.monotonic() + 0.05

        def continues(which: str, folder=folder, start=start):
            with Ledger.open(folder / "ledger") as ledger:
                try:
                    policy = Policy.load(folder / "start", ledger=ledger, checkpoint=folder / which)
                    time.sleep(max(0.0, start - time.monotonic()))
                    policy.select(np.eye(2))
                    os._exit(0)
                except (RunStopped, ValueError):  # the other one was there before the release, or before the loading
                    os._exit(1)

        children = {which: in_a_child(lambda which=which: continues(which)) for which in "ab"}
        ended = {which: os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for which, child in children.items()}
        assert sorted(ended.values()) == [0, 1]
        (winner,) = (which for which, code in ended.items() if code == 0)
        with Ledger.open(folder / "ledger") as ledger:
            mark = ledger.newest_mark(run)
            assert mark is not None
            assert files.read(folder / winner)[1] == mark.digest
            loser = "ab".replace(winner, "")
            if (folder / loser).exists():
                with pytest.raises(ValueError, match="must be the newest of its run"):
                    Policy.load(folder / loser, ledger=ledger)
            again = Policy.load(folder / winner, ledger=ledger)
            assert again.releases == 1
        del again
        gc.collect()

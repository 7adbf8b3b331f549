"""Checkpoints and journals where things go wrong around them: folders, neighbours, backups, odd arguments."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import shutil
import warnings
from dataclasses import replace
from functools import partial
from itertools import count

import numpy as np
import pytest
from interrupts import interrupted
from ledgers import Shelf
from private_policies import BUDGET, EPOCHS, SMALL, offered, play, small
from tabled import tabled

from accounting import Budget, Ledger, LedgerBehind
from dpbandits import Policy
from dpbandits.policies import Doubling, OnePassPrivateGLM
from dpkit.models.links import get_link
from dpkit.states import RunStopped, files


def one(**more):
    return small("OnePassPrivateGLM", **more)


def loaded(path, **more) -> Policy:
    gc.collect()
    return Policy.load(path, **({} if "ledger" in more else {"unattended": True}), **more)


def test_arms_of_length_one_come_back(tmp_path):
    """Some of them are a unit in the last place too long, if their squares are added up in another order."""
    arms = np.random.default_rng(0).normal(size=(2000, 20))
    arms /= np.linalg.norm(arms, axis=1, keepdims=True)
    policy = OnePassPrivateGLM(20, budget=BUDGET, horizon=10_000, first_batch=5000, checkpoint=tmp_path / "c")
    for arm in arms:
        policy.register(arm[None], 0)
    lengths = np.array([float(policy.offer.length(pending.arm)) for pending in policy.waiting.values()])
    if not (lengths > 1.0).any():
        pytest.skip("this numpy adds up in one order")
    del policy
    assert len(loaded(tmp_path / "c").open_decisions) == 2000


# ------------------------------------------------------------------------------------------------- places


def test_a_relative_checkpoint_stays_where_it_was_made(tmp_path, monkeypatch):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "a")
    policy = one(checkpoint="c")
    monkeypatch.chdir(tmp_path / "b")
    play(policy, 10)
    assert policy.checkpoint == tmp_path / "a" / "c"
    with pytest.raises(ValueError, match="path must not be the checkpoint"):
        policy.save("../a/c")
    del policy
    gc.collect()
    monkeypatch.chdir(tmp_path)
    policy = Policy.load("a/c", unattended=True)
    assert policy.decisions == 10
    monkeypatch.chdir(tmp_path / "b")
    play(policy, 10)
    assert list((tmp_path / "b").iterdir()) == []


def test_nothing_is_charged_where_no_checkpoint_can_be_written(tmp_path):
    ledger = Ledger(BUDGET)
    with pytest.raises(FileNotFoundError):
        one(ledger=ledger, checkpoint=tmp_path / "missing" / "c")
    holder = files.hold(tmp_path / "c")
    with pytest.raises(BlockingIOError):
        one(ledger=ledger, checkpoint=tmp_path / "c")
    holder.close()
    assert ledger.rows() == []
    play(one(ledger=ledger, checkpoint=tmp_path / "c"), 10)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_nothing_is_charged_in_a_folder_that_cannot_be_written(tmp_path):
    ledger = Ledger(BUDGET)
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError):
        one(ledger=ledger, checkpoint=tmp_path / "c")
    assert ledger.rows() == []


@pytest.mark.parametrize("name", ["a*b?", "[x]", "[!a]", "c.1"])
def test_checkpoints_with_odd_names_leave_their_neighbours_alone(name, tmp_path):
    """As patterns, the names match those of neighbours; and ``.c.*.journal`` matches the journal of ``c.1``."""
    neighbours = [tmp_path / other for other in (name, "c", "aab1", "x", "b")]
    held = [one(checkpoint=path) for path in neighbours]
    for _ in range(6):
        for policy in held:
            play(policy, 4)
    assert len(list(tmp_path.glob(".*.journal"))) == 5
    foreign = files.draft(tmp_path / "c.1", {"a": 1})[0]
    del held, policy
    for path in neighbours:
        assert loaded(path).decisions == 24
    assert foreign.exists() == (name != "c.1")


# ----------------------------------------------------------------------------------- ledgers and journals


@pytest.mark.parametrize(("more", "releases"), [(12, 3), (4, 2)])
def test_a_ledger_from_a_backup_that_lacks_marks_is_refused(more, releases, tmp_path):
    """Also where it lacks one: the state that this belongs to may have been outrun by one that is missing, too."""
    path = tmp_path / "ledger"
    with Ledger.create(path, BUDGET) as ledger:
        policy = one(ledger=ledger, checkpoint=tmp_path / "c")
        play(policy, 6)
    shutil.copy(path, tmp_path / "backup")
    del policy
    with Ledger.open(path) as ledger:
        policy = loaded(tmp_path / "c", ledger=ledger)
        play(policy, more)
        assert policy.releases == releases
    del policy
    newest = (tmp_path / "c").read_bytes()
    with Ledger.open(tmp_path / "backup") as ledger, pytest.raises(ValueError, match="must be the newest of its run"):
        loaded(tmp_path / "c", ledger=ledger)
    assert (tmp_path / "c").read_bytes() == newest
    with Ledger.open(path) as ledger:
        assert loaded(tmp_path / "c", ledger=ledger).releases == releases


def test_another_ledger_with_the_same_rows_is_refused(tmp_path):
    policy = one(ledger=Ledger(BUDGET), label="run", checkpoint=tmp_path / "c")
    play(policy, 6)
    other = Ledger(BUDGET)
    one(ledger=other, label="run")
    del policy
    with pytest.raises(ValueError, match="must be the newest of its run"):
        loaded(tmp_path / "c", ledger=other)


def test_loading_with_a_wrong_ledger_does_not_cost_the_marked_draft(tmp_path, monkeypatch):
    ledger = Ledger(BUDGET)
    policy = one(ledger=ledger, label="run", checkpoint=tmp_path / "c")
    play(policy, 4)
    with monkeypatch.context() as patch:
        patch.setattr(files, "place", lambda *_: (_ for _ in ()).throw(OSError("killed between mark and move")))
        with pytest.raises(OSError, match="between mark and move"):
            policy.select(np.eye(2))
    del policy
    other = Ledger(BUDGET)
    one(ledger=other, label="run")
    with pytest.raises(ValueError, match="ledger must be given"):
        loaded(tmp_path / "c")
    with pytest.raises(ValueError, match="ledger must hold the cost"):
        loaded(tmp_path / "c", ledger=Ledger())
    assert len(files.drafts(tmp_path / "c")) == 1
    assert loaded(tmp_path / "c", ledger=ledger).releases == 1
    assert files.drafts(tmp_path / "c") == []


def test_a_release_that_the_witness_does_not_have_is_seen_by_nobody(tmp_path):
    """Not even by who loads the checkpoint with a ledger that is open: it would be noised again after a step back."""
    shelf, volume = Shelf(), tmp_path / "volume"
    volume.mkdir()
    ledger = Ledger.create(volume / "ledger", BUDGET, witness=shelf)
    policy = one(ledger=ledger, checkpoint=volume / "checkpoint", first_batch=4, horizon=40)
    while not policy.due():
        policy.update(policy.select(np.eye(policy.dim)), 1.0)
    shutil.copytree(volume, tmp_path / "snapshot")
    shelf.away = True
    with pytest.raises(OSError, match="out of reach"):
        policy.select(np.eye(policy.dim))
    with pytest.raises(OSError, match="the shelf does not have"):
        loaded(volume / "checkpoint", ledger=ledger)
    shelf.away = False
    policy.run.release_hold()
    again = loaded(volume / "checkpoint", ledger=ledger)
    assert again.released().number == 1
    again.run.release_hold()
    ledger.close()
    shutil.copy(tmp_path / "snapshot" / "ledger", volume / "ledger")
    with pytest.raises(LedgerBehind):
        Ledger.open(volume / "ledger", witness=shelf)


def test_an_epoch_that_is_charged_begins_once_the_witness_knows(tmp_path):
    shelf = Shelf()
    ledger = Ledger.create(tmp_path / "ledger", BUDGET, witness=shelf)
    policy = Doubling(2, "OnePassPrivateGLM", budget=BUDGET, first_epoch=8, ledger=ledger, label="doubled")
    while not policy.over():
        policy.update(policy.select(np.eye(2)), 1.0)
    shelf.away = True
    for _ in range(3):
        with pytest.raises(OSError, match="out of reach"):
            policy.select(np.eye(2))
    assert policy.epoch == 0
    shelf.away = False
    policy.select(np.eye(2))
    assert policy.epoch == 1
    assert [row.label for row in ledger.rows()] == ["doubled: epoch 0", "doubled: epoch 1"]
    assert len(shelf.objects) == ledger.entries


def test_two_runs_of_one_label_on_one_ledger_are_two(tmp_path):
    ledger = Ledger(Budget(20.0, 1e-3))
    both = [one(ledger=ledger, label="run", checkpoint=tmp_path / name) for name in "ab"]
    for policy in both:
        play(policy, 10)
    del both, policy
    assert [row.label for row in ledger.rows()] == ["run", "run"]
    for name in "ab":
        policy = loaded(tmp_path / name, ledger=ledger)
        assert policy.decisions == 10
        play(policy, 10)


def test_a_checkpoint_copied_while_it_runs_goes_on_once(tmp_path):
    ledger = Ledger(BUDGET)
    policy = one(ledger=ledger, checkpoint=tmp_path / "c")
    play(policy, 3)
    (tmp_path / "copy").mkdir()
    for path in tmp_path.glob("*c*"):
        if path.is_file():
            shutil.copy(path, tmp_path / "copy" / path.name)
    other = loaded(tmp_path / "copy" / "c", ledger=ledger)
    play(other, 1)
    play(policy, 4)
    with pytest.raises(RunStopped, match="another process goes on with this run"):
        play(other, 1)
    play(policy, 10)


def test_whoever_drops_a_policy_hears_of_no_open_file(tmp_path):
    """Nor who goes on to a new journal, as this one does at releases."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always", ResourceWarning)
        policy = one(checkpoint=tmp_path / "c")
        play(policy, 30)
        del policy
        gc.collect()
    assert [str(warning.message) for warning in heard if warning.category is ResourceWarning] == []


def test_the_journal_of_another_run_is_refused(tmp_path):
    policies = [one(checkpoint=tmp_path / name) for name in "ab"]
    for policy in policies:
        play(policy, 3)
    del policies, policy
    gc.collect()
    (a,), (b,) = (tmp_path.glob(f".{name}.*.journal") for name in "ab")
    a.write_bytes(b.read_bytes())
    with pytest.raises(ValueError, match=r"the journal .* must be of this checkpoint's run"):
        loaded(tmp_path / "a")
    assert loaded(tmp_path / "b").decisions == 3


def test_a_journal_that_lacks_a_decision_is_refused(tmp_path):
    policy = one(checkpoint=tmp_path / "c")
    for _ in range(3):
        policy.select(np.eye(policy.dim))
    del policy
    gc.collect()
    (journal,) = tmp_path.glob(".c.*.journal")
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:2] + lines[3:]))
    with pytest.raises(ValueError, match="must hold decision 1 next, got 2"):
        loaded(tmp_path / "c")


# ------------------------------------------------------------------------------------- decisions and time


@pytest.mark.parametrize("name", sorted(SMALL))
def test_expired_decisions_stay_expired(name, tmp_path):
    """Also those that expired before the checkpoint was saved, and stand in the journal as open."""
    policy = small(name, checkpoint=tmp_path / "c", expire_after=3)
    early = [policy.select(offered(policy)) for _ in range(3)]
    play(policy, 2)
    play(policy, 5 if name in EPOCHS else 0)
    policy.select(offered(policy))
    known = policy.open_decisions
    assert policy.releases == 1 or name in (*EPOCHS, "LDPArms")  # which counts reports, and not decisions
    assert early[0].id not in known
    del policy
    assert loaded(tmp_path / "c").open_decisions == known


def test_decisions_stay_expired_where_a_crash_follows_a_release(tmp_path):
    """The next decision, which would let others expire, was not written; these stand in the journal as open."""
    policy = one(checkpoint=tmp_path / "c", expire_after=6)
    while policy.releases < 2:
        known = policy.open_decisions
        policy.select(np.eye(policy.dim))
    del policy
    gc.collect()
    (journal,) = tmp_path.glob(".c.*.journal")
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-1]))
    assert loaded(tmp_path / "c").open_decisions == known


# through a shuffler, or in epochs, it is public which rewards count for nothing any more
DROPPING = {*EPOCHS, *(name for name in SMALL if "Shuffle" in name)} - {"ShufflePersonGLM"}


def kept_arms(policy: Policy) -> list[int]:
    return [key for key, pending in policy.waiting.items() if len(pending.arm)]


@pytest.mark.parametrize("many", [True, False])
@pytest.mark.parametrize("name", sorted(SMALL))
def test_arms_that_were_dropped_stay_dropped(name, many, tmp_path):
    """Of batches that were closed before the load, whose decisions stand in the journal with all that was chosen."""
    policy = small(name, checkpoint=tmp_path / "c")
    if many:
        policy.select_many(22 * [offered(policy)], **({"persons": range(22)} if policy.persons is not None else {}))
    else:
        for _ in range(22):
            policy.select(offered(policy))
    known = kept_arms(policy)
    assert (len(known) < 22) == (name in DROPPING)
    del policy
    assert kept_arms(loaded(tmp_path / "c")) == known


@pytest.mark.parametrize("key", [1.0, True, "1", None, 1.5, math.nan, np.float64(1.0), [1]])
@pytest.mark.parametrize("checkpoint", [True, False])
def test_what_is_no_id_is_refused_and_leaves_no_trace(key, checkpoint, tmp_path):
    policy = one(checkpoint=tmp_path / "c") if checkpoint else one()
    for _ in range(3):
        policy.select(np.eye(2))
    for call in (lambda: policy.update(key, 1.0), lambda: policy.forget(key)):
        with pytest.raises(ValueError, match="decision must be a Decision or its id"):
            call()
    policy.update(np.int64(1), 1.0)
    policy.forget(10**30)
    policy.forget(-1)
    assert policy.open_decisions == [0, 2]
    if checkpoint:
        del policy
        assert loaded(tmp_path / "c").open_decisions == [0, 2]


@pytest.mark.parametrize("name", sorted(SMALL))
def test_rewards_after_the_horizon_and_decisions_from_before_a_load(name, tmp_path):
    policy = small(name, checkpoint=tmp_path / "c")
    late = [policy.select(offered(policy)) for _ in range(2)]
    play(policy, 38)
    with pytest.raises(ValueError, match="horizon must be at least 41"):
        policy.select(offered(policy))
    policy.update(late[0], 1.0)
    forgotten = late[0]
    del policy
    policy = loaded(tmp_path / "c")
    policy.update(late[1], 1.0)
    assert policy.open_decisions == []
    policy.forget(forgotten)
    with pytest.raises(ValueError, match="whose reward is still open, got decision id 0"):
        policy.update(forgotten, 1.0)


def test_a_forgotten_decision_takes_no_reward(tmp_path):
    policy = one(checkpoint=tmp_path / "c")
    decision = policy.select(np.eye(2))
    policy.forget(decision)
    with pytest.raises(ValueError, match="whose reward is still open"):
        policy.update(decision, 1.0)
    del policy
    with pytest.raises(ValueError, match="whose reward is still open"):
        loaded(tmp_path / "c").update(decision, 1.0)


@pytest.mark.parametrize("broken", ["nan", "inf"])
@pytest.mark.parametrize("name", ["OnePassPrivateGLM", "DPHDB"])
def test_arms_that_another_thread_spoils_enter_finite(name, broken, monkeypatch):
    policy, arms = small(name), offered(small(name))
    checked = policy.checked_arms

    def and_then_spoiled(given):
        X = checked(given)
        arms[...] = float(broken)
        return X

    monkeypatch.setattr(policy, "checked_arms", and_then_spoiled)
    with np.errstate(all="ignore"):
        arm = policy.select(arms).arm
    assert np.isfinite(arm).all()
    assert policy.offer.length(arm) <= 1.0


SPOILED = [(name, release) for name in ("DPHDB", "JointDPGLM") for release in ("scheduled", "every_round")]


@pytest.mark.parametrize(("name", "release"), [*SPOILED, ("LDPGLM", None), ("ShuffleGLM", None)])
@pytest.mark.parametrize("part", ["derivative", "mean"])
def test_a_link_that_gives_nan_for_some_arms(name, release, part):
    """It is refused when the policy is made, or its records are those of other levels."""
    whole = getattr(get_link("logistic"), part)
    link = replace(
        get_link("logistic"),
        name="mine",
        **{part: lambda z: np.where(np.asarray(z) == 0.0, whole(z), np.nan)[()]},
    )
    if part == "mean" and name in ("ShuffleGLM", "LDPGLM"):
        with pytest.raises(ValueError, match=r"must be a number|must have a largest slope"):
            small(name, link=link)
        return
    policy = small(name, link=link, **({} if release is None else {"release": release}))
    play(policy, 40)

    def finite(node) -> bool:
        if isinstance(node, dict):
            return all(map(finite, node.values()))
        return all(map(finite, node)) if isinstance(node, list) else bool(np.isfinite(node).all())

    assert finite(policy.kept())


@tabled("name", sorted(SMALL))
def test_a_budget_that_promises_nothing_is_refused(name):
    with pytest.raises(ValueError, match="epsilon must be at most 10000 for a policy, got epsilon=1"):
        small(name, budget=Budget(1e15, 1e-5))


# --------------------------------------------------------- interrupts where an epoch, a file or a load begins


@pytest.mark.thorough
@pytest.mark.parametrize("stride", [397, pytest.param(29, marks=pytest.mark.slow)])
def test_an_interrupted_start_of_an_epoch_loses_and_repeats_nothing(tmp_path, stride):
    for n in count(1, stride):
        folder = tmp_path / str(n)
        folder.mkdir()
        ledger = Ledger(BUDGET)
        policy = small("Doubling", first_epoch=6, ledger=ledger, label="run", checkpoint=folder / "c")
        play(policy, 6)
        if not interrupted(partial(policy.select, offered(policy)), n):
            break
        with contextlib.suppress(RunStopped):
            play(policy, 1)
            assert (policy.epoch, policy.decisions - len(policy.open_decisions)) == (1, 7)
        told = policy.decisions - len(policy.open_decisions)
        del policy
        policy = loaded(folder / "c", ledger=ledger)
        assert policy.decisions - len(policy.open_decisions) == told
        mark = ledger.newest_mark(policy.run.id)
        assert (0 if mark is None else mark.step) == policy.run.step
        play(policy, 2)
        assert policy.epoch == 1
        assert [row.scope for row in ledger.rows()] == ["run: epoch 0", "run: epoch 1"]
        del policy
    assert n > 3 * stride


@pytest.mark.parametrize("name", ["OnePassPrivateGLM", "Doubling", "ShuffleLinUCB"])
@pytest.mark.parametrize("stride", [1997, pytest.param(61, marks=pytest.mark.slow)])
def test_an_interrupted_load_may_be_repeated(name, tmp_path, stride):
    ledger = Ledger(BUDGET)
    policy = small(name, ledger=ledger, checkpoint=tmp_path / "c")
    play(policy, 7)
    policy.select(offered(policy))
    known = policy.decisions, policy.releases, policy.open_decisions
    del policy
    loaded(tmp_path / "c", ledger=ledger)  # caches are full
    held: list[Policy] = []
    for n in count(1, stride):
        gc.collect()
        if not interrupted(lambda: held.append(Policy.load(tmp_path / "c", ledger=ledger)), n):
            break
    (policy,) = held
    assert n > stride
    assert (policy.decisions, policy.releases, policy.open_decisions) == known
    play(policy, 10)


@pytest.mark.parametrize("stride", [397, pytest.param(37, marks=pytest.mark.slow)])
def test_an_interrupted_start_of_a_checkpoint_leaves_one_that_loads_or_none(tmp_path, stride):
    small("OnePassPrivateGLM")
    held: list[Policy] = []
    for n in count(1, stride):
        path, ledger = tmp_path / str(n), Ledger(BUDGET)
        if not interrupted(lambda: held.append(one(ledger=ledger, checkpoint=path)), n):  # noqa: B023
            break
        gc.collect()
        if path.exists():
            play(Policy.load(path, ledger=ledger), 10)
            assert len(ledger.rows()) == 1
        else:
            play(one(ledger=Ledger(BUDGET), checkpoint=path), 10)
    assert n > stride
    play(held[0], 10)
